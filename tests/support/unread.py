"""Batches on the CPU of which no value is read, as on an accelerator."""

from collections import deque

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.simulated_device import reads
from torchrank.engine import sorting
from torchrank.hardware import devices


def leave_values_unread(monkeypatch):
    """Take the branches of an accelerator: every shortcut that depends on values is left out, and so is numpy."""
    monkeypatch.setattr(Tensor, "is_cpu", False)
    for module in sorting, devices:
        monkeypatch.setattr(module, "by_numpy", lambda device: False)
    # Tables of discounts are summed in another order on an accelerator; none may stay for later tests on the CPU.
    monkeypatch.setattr(devices, "_tensors", {})
    for name in ("_small", "_large"):
        monkeypatch.setattr(devices, name, deque(maxlen=getattr(devices, name).maxlen))


class NothingRead(TorchDispatchMode):
    """A context in which an operation that reads values, or whose shape depends on them, raises."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not reads(func, args), f"{func} makes the host wait for an accelerator"
        return func(*args, **(kwargs or {}))


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that an operation makes."""

    bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else [made]:
            if isinstance(x, Tensor):  # views have fewer elements in memory, or are of more
                self.bytes = max(self.bytes, min(x.nbytes, x.untyped_storage().nbytes()))
        return made


class Elsewhere(Tensor):
    """Tensors on the CPU that say that they are not, beside others; and so do all results of their operations."""

    is_cpu = False

    def as_subclass(self, cls):
        return self if cls is Tensor else super().as_subclass(cls)  # other tensors become plain ones in an update
