"""A device that this machine does not have: tensors with values on the CPU that say that they are elsewhere.

A mode sees each operation of torch. It refuses what a device refuses: tensors of several devices, and float64 if the
device has none. It lists the operations for which a program would wait. Since the values are there, whole computations
can be compared with those of a CPU.
"""

import contextlib
import unittest.mock
from functools import cache

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from torchrank.hardware import devices

# C++ code takes the tensors for those of the meta device, which has no values to read. Other devices need a library.
META = torch.device("meta")

# Operations that read values, or whose shapes depend on values.
READS = {
    *("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"),
    *("equal", "bincount", "histc"),
}


class There(Tensor):
    """A tensor on a simulated device, whose values are ``here``."""

    is_meta = is_cpu = False
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, here, owner):
        like = {"strides": here.stride(), "storage_offset": here.storage_offset(), "dtype": here.dtype}
        return Tensor._make_wrapper_subclass(cls, here.shape, device=META, **like)

    def __init__(self, here, owner):
        self.here, self.owner = here, owner

    @property
    def device(self):
        return self.owner.shown

    def tolist(self):
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} outside of the mode of the device")


def _here(x):
    """Arguments with values in place of the tensors on the device."""
    if type(x) is There:
        return x.here
    return [*map(_here, x)] if isinstance(x, tuple | list) else x


def reads(func, args):
    """Whether an operation reads values, as one does whose result has as many elements as a mask has True."""
    if func is torch.ops.aten.index.Tensor:
        return any(isinstance(x, Tensor) and x.dtype == torch.bool for x in args[1])
    return _always_reads(func)


@cache
def _always_reads(func):
    return func._schema.name.split("::")[1] in READS or func is torch.ops.aten.repeat_interleave.Tensor


@cache
def _copies(func):
    """Whether an operation may copy between devices."""
    return func._schema.name.split("::")[1] in ("_to_copy", "copy_")


class Device(contextlib.ExitStack):
    """A context in which ``torch.device(kind)`` exists."""

    def __init__(self, kind, float64=True):
        super().__init__()
        self.device, self.float64 = torch.device(kind), float64
        #: the device that tensors show: within functions of torch, to which no mode applies, "meta"
        self.shown = self.device
        #: names of operations for which the host has waited
        self.waits = []
        self._constants = {}
        self.makes_a_constant = False
        self._make = devices._make

    def __enter__(self):
        super().__enter__()
        self.enter_context(_Operations(self))
        self.enter_context(_Names(self))
        self.enter_context(unittest.mock.patch.object(devices, "_make", self._constant))
        return self

    def _constant(self, key, make):
        """A tensor that is kept for later batches, as no tensor of a mode is."""
        if key not in self._constants:
            before, self.makes_a_constant = self.makes_a_constant, True
            self._constants[key] = self._make(key, make)
            self.makes_a_constant = before
        return self._constants[key]

    def put(self, x):
        """Arguments with all their tensors on the device."""
        return tree_map(self._put, x)

    def _put(self, x):
        if not isinstance(x, Tensor):
            return x
        return (x if self.float64 or x.dtype != torch.float64 else x.float()).to(self.device)

    @contextlib.contextmanager
    def without_waiting(self):
        """Context in which no operation may make the host wait."""
        before = len(self.waits)
        yield
        assert not self.waits[before:], self.waits[before:]


class _Names(TorchFunctionMode):
    """Calls that name the device go to the operations below as calls that name "meta"."""

    def __init__(self, owner):
        super().__init__()
        self.owner = owner

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is Tensor.to:
            args = tuple(map(self._renamed, args))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self._renamed(kwargs["device"])}
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is META:
            return func(*args, **{**kwargs, "device": None}).to(META)  # made there, it would have no values
        if func is Tensor.new_tensor and type(args[0]) is There:
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype, **kwargs}).to(META)
        if func is Tensor.__getitem__ and type(args[0]) is There:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            args = args[0], tuple(torch.tensor(x).to(META) if isinstance(x, list) else x for x in index)
        if func is Tensor.__setitem__ and type(args[0]) is There and not isinstance(args[2], Tensor):
            # A number at the places of tensors is copied from the CPU; at slices it is filled in.
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            self.owner.waits += ["index_put_"] * any(isinstance(x, Tensor) for x in index)
        if func is Tensor.quantile and not self.owner.float64 and type(args[0]) is There:
            # From torch 2.15 on its ranks are float64, unless the code in C++ is told of "mps".
            return There(func(*_here(args), **kwargs), self.owner)
        self.owner.shown = META
        try:
            return func(*args, **kwargs)
        finally:
            self.owner.shown = self.owner.device

    def _renamed(self, x):
        return META if isinstance(x, str | torch.device) and torch.device(x).type == self.owner.device.type else x


class _Operations(TorchDispatchMode):
    """Run operations on the values, and check devices and dtypes."""

    def __init__(self, owner):
        super().__init__()
        self.owner = owner

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # nothing is compiled here, and the wrapper that torch adds takes a tenth of the time

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        several = [x if isinstance(x, tuple | list) else (x,) for x in (*args, *kwargs.values())]
        given = [x for part in several for x in part if isinstance(x, Tensor)]
        there = [x for x in given if type(x) is There]
        asked = kwargs.get("device")
        elsewhere = bool(there) if asked is None else asked == META
        copies = _copies(func)
        if func is torch.ops.aten.copy_.default:
            elsewhere = type(args[0]) is There
        if not there and not elsewhere:
            return func(*args, **kwargs)
        if asked == META:
            kwargs["device"] = torch.device("cpu")
        moved = copies and (elsewhere != bool(there) or len({type(x) for x in given if x.dim()}) > 1)
        if reads(func, args) or (moved and not kwargs.get("non_blocking") and not self.owner.makes_a_constant):
            self.owner.waits.append(func._schema.name)
        if there and not copies and any(type(x) is not There and x.dim() for x in given):
            raise RuntimeError(f"Expected all tensors on {self.owner.device}, got others of {func} on the CPU")
        owners = {id(x.here): x for x in there}
        result = func(*_here(args), **{key: _here(x) for key, x in kwargs.items()})
        return self._there(result, owners, func) if elsewhere else result

    def _there(self, x, owners, func):
        if isinstance(x, tuple | list):
            return [self._there(one, owners, func) for one in x]
        if not isinstance(x, Tensor):
            return x
        if x.dtype == torch.float64 and not self.owner.float64:
            raise TypeError(f"Expected no float64 on {self.owner.device}, got it from {func}")
        return owners[id(x)] if id(x) in owners else There(x, self.owner)
