"""What depends on a device: float types, constants, the cost of reading values, sorting, threads, and compilation.

An accelerator runs behind the program, and reading a value waits until the accelerator has caught up. So every shortcut
that depends on values (no ties, few grades, nothing to do) is taken only if ``x.is_cpu``, or where it is
:func:`worth_reading`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar, cast

import numpy
import torch
from torch import Tensor

from torchrank.hardware import costs
from torchrank.names.arguments import explained

P = ParamSpec("P")

T = TypeVar("T")

# Largest number of elements of a small tensor, and of one that is kept: a table over the ranks of a million items has
# 8 MB.
SMALL, LARGEST = 2**10, 2**20

# Largest number of small tensors and of others that are kept.
MANY, MOST = 2**10, 64

_tensors: dict[tuple[object, ...], Any] = {}

#: the keys of small tensors and of others, the oldest first
_small: deque[tuple[object, ...]] = deque(maxlen=MANY)
_large: deque[tuple[object, ...]] = deque(maxlen=MOST)

_lock = threading.Lock()

_DENORMAL = 1e-310


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on devices without float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def widened(x: Tensor) -> Tensor:
    """A tensor in the widest float type of its device."""
    return x.to(widest_float(x.device))


@contextmanager
def multiplying(precision: str | None, device: torch.device) -> Iterator[None]:
    """Context in which float32 is multiplied in ``precision``, whatever torch's setting is; None = as it is.

    Products of numbers of 16 bits, and of those that were rounded to bfloat16, are exact in TF32.
    """
    modules = {"cuda": torch.backends.cuda, "cpu": torch.backends.mkldnn}
    settings = getattr(modules.get(device.type), "matmul", None)
    if precision is None or settings is None:
        yield
        return
    exact = precision in ("highest", "tf32x3") or device.type == "cpu"
    newer = hasattr(settings, "fp32_precision")  # from torch 2.9 on
    name, value = ("fp32_precision", "ieee" if exact else "tf32") if newer else ("allow_tf32", not exact)
    before = getattr(settings, name)
    setattr(settings, name, value)
    try:
        yield
    finally:
        setattr(settings, name, before)


def keeps_denormals(device: torch.device) -> bool:
    """Whether a device distinguishes denormal numbers from 0. A CPU can be told not to, and Metal never does."""
    return _DENORMAL > 0 if device.type == "cpu" else device.type != "mps"


def by_numpy(device: torch.device) -> bool:
    """Whether numpy sorts faster than torch on this device, with the threads of torch as they are now."""
    return device.type == "cpu" and torch.get_num_threads() <= costs.now.numpy_threads


def all_finite(x: Tensor) -> bool:
    """Whether all elements are finite. False on a device, whose values are not read, and for sums beyond the dtype."""
    # A finite sum has finite terms, and is the fastest to compute.
    return x.is_cpu and math.isfinite(x.sum())


def every(x: Tensor) -> bool:
    """Whether all elements of a bool tensor are True. On an accelerator this waits."""
    if not x.is_cpu:
        return bool(x.all())
    elements = x.numpy()  # which numpy reads many times as fast as torch
    expanded = elements.size and not any(elements.strides)
    return bool(elements.flat[0] if expanded else elements.all())


def worth_reading(x: Tensor, steps: int) -> bool:
    """Whether to read a value of ``x`` that may save some ``steps`` of a few operations each."""
    return x.is_cpu or steps >= costs.now.waiting


def greatest(x: Tensor, bound: int, steps: int = 0) -> int:
    """The largest element of ``x``, 0 if there is none; or its upper ``bound`` if reading is not :func:`worth_reading`.

    ``steps`` is what a smaller number may save on an accelerator, at 0 it is not read there.
    """
    if not worth_reading(x, steps):
        return bound
    return int(x.max()) if x.numel() else 0


def surely(x: Tensor) -> bool:
    """Whether all elements of a bool tensor are True, as far as this is known without waiting for an accelerator."""
    return x.is_cpu and every(x)


def possibly(x: Tensor) -> bool:
    """Whether an element of a tensor is not 0, as far as this is known without waiting: on an accelerator always."""
    return not x.is_cpu or bool(x.any())


def put(x: Tensor, place: tuple[Tensor, ...], value: float) -> None:
    """Set ``x[place] = value`` without waiting: written like this, torch copies the number to an accelerator."""
    x.index_put_(place, scalar(value, x.dtype, x.device))


def running_sum(x: Tensor) -> Tensor:
    """Cumulative sum of floats over the last dimension, the same in every run."""
    if x.is_cpu:
        return x.cumsum(-1)
    # torch.cumsum is not deterministic on accelerators, so add shifted copies, with shifts 1, 2, 4, ...
    step = 1
    while step < x.shape[-1]:
        x = x + torch.nn.functional.pad(x[..., :-step], (step, 0))
        step *= 2
    return x


# ---- constants -------------------------------------------------------------------------------------------------------


def constant(make: Callable[P, T], keep: Callable[P, bool] | None = None) -> Callable[P, T]:
    """Decorator that keeps the tensors of a function of hashable arguments. Nobody may change them in place.

    Args:
        make: the function.
        keep: whether to keep the tensor of some arguments; None = of all.
    """

    @functools.wraps(make)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (make, args, tuple(kwargs.items()))
        tensors = _tensors.get(key)
        if tensors is not None:
            return tensors
        if keep is not None and not keep(*args, **kwargs):
            return make(*args, **kwargs)
        return _make(key, functools.partial(make, *args, **kwargs))

    return once


def _make(key: tuple[object, ...], make: Callable[[], T]) -> T:
    with torch.inference_mode(False), torch.no_grad():  # tensors of inference mode are of no use outside of it
        made = make()
    tensors: tuple[Any, ...] = made if isinstance(made, tuple) else (made,)
    # A mode for tracing makes tensors of another type, which end with the mode.
    size = sum(x.numel() for x in tensors)
    if all(type(x) is Tensor for x in tensors) and size <= LARGEST:
        with _lock:
            keys = _small if size <= SMALL else _large
            if len(keys) == keys.maxlen:
                _tensors.pop(keys[0], None)  # the deque drops its oldest key
            keys.append(key)
            _tensors[key] = made
    return made


@constant
def scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor [], because ``torch.where`` with a number makes a tensor of it each time."""
    return torch.full((), value, dtype=dtype, device=device)


# ---- sorting ---------------------------------------------------------------------------------------------------------


def ascending(x: Tensor) -> Tensor:
    """Sort each row in ascending order, NaN last. Not for bfloat16, which numpy does not have."""
    return torch.from_numpy(numpy.sort(x.numpy(), axis=-1)) if by_numpy(x.device) else x.sort(dim=-1).values


def sort_in_place(x: Tensor) -> None:
    """Sort each row of integers [..., element] in ascending order, for the CPU only."""
    if by_numpy(x.device):
        x.numpy().sort(axis=-1)
    else:
        x.copy_(x.sort(dim=-1).values)


def largest(x: Tensor, k: int) -> Tensor:
    """The ``k`` largest numbers of each row in descending order, NaN first: [row, k]. Not for bfloat16."""
    if by_numpy(x.device) and x.shape[1] < costs.now.heap_from * k:
        largest = numpy.partition(x.numpy(), -k, axis=-1)[:, -k:] if k < x.shape[1] else x.numpy()
        return torch.from_numpy(numpy.sort(largest, axis=-1)).flip(-1)
    return x.sort(dim=-1, descending=True).values if k == x.shape[1] else best(x, k)[0]


def best(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest numbers of each row in descending order, and their columns, by torch.topk: [row, k] each."""
    values, columns = x.topk(asked(k, x.shape[1], x.device))
    return values[:, :k].contiguous(), columns[:, :k].contiguous()


def asked(k: int, width: int, device: torch.device) -> int:
    """The number of columns to ask of torch.topk, at least ``k`` and at most ``width``.

    On CUDA torch 2.13 has a faster kernel for sorted powers of two from 64 to 1,024. In long rows more columns take the
    same time.
    """
    return k if device.type != "cuda" or k > 2**10 else min(width, max(2**6, 2 ** (k - 1).bit_length()))


def order_of(numbers: Tensor) -> Tensor:
    """The argsort of distinct integers >= 0, int64 [number]; in one pass if none is missing."""
    if numbers.is_cpu and len(numbers) and int(numbers.max()) == len(numbers) - 1:
        return torch.empty_like(numbers).scatter_(0, numbers, torch.arange(len(numbers), device="cpu"))
    return numbers.argsort()


# ---- compilation -----------------------------------------------------------------------------------------------------

F = TypeVar("F", bound=Callable[..., Any])


def eager(function: F) -> F:
    """Exclude a function from the graphs of torch.compile and torch.jit.script, and explain wrong calls.

    Like torch.compiler.disable, but without its import, which takes seconds.
    """
    disabled = functools.cache(lambda: torch.compiler.disable(function))

    @functools.wraps(function)
    def outside(*args: Any, **kwargs: Any) -> Any:
        try:
            if "torch._dynamo" not in sys.modules:  # no function is compiled in this process
                return function(*args, **kwargs)
            return disabled()(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            raise explained(error, function, args, kwargs)  # noqa: B904

    outside._torchdynamo_disable = True  # type: ignore[attr-defined]
    outside.eager = outside  # type: ignore[attr-defined]
    return cast(F, torch.jit.unused(outside))


# ---- threads ---------------------------------------------------------------------------------------------------------
#
# A batch has as many threads of torch as there are cores that no other process wants. torch cuts every operation into
# as many pieces as it has threads, and waits for all pieces. A batch is hundreds of operations. Beside a process that
# keeps a core busy, each wait can be for a thread that has lost its core, which costs milliseconds. One thread waits
# for nobody. The results are the same.

#: seconds for which a count of threads holds, because the system takes a tenth of a millisecond for it
HOLDS = 0.01

#: when threads were counted, and how many of other processes wanted a core
_counted = -math.inf, 0


def free_cores() -> float:
    """Number of cores that this process may use and that no thread of another process wants; may be below 1."""
    global _counted
    now = time.monotonic()
    if now - _counted[0] > HOLDS:
        running = _running()
        # The threads of this process include those of torch, which spin for milliseconds after an operation.
        _counted = now, max(0, running - _own()) if running > 1 else 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores - _counted[1], _quota())


@functools.cache
def _quota() -> float:
    """The quota of a Linux container in cores, read once; inf if there is none."""
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max") as file:
        quota, period = map(int, file.read().split())  # without a quota, the first word is "max"
        return quota / period
    return math.inf


def _running() -> int:
    """Number of threads of the machine that run or wait for a core; 0 if the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/loadavg", "rb", buffering=0) as file:
        return int(file.read(64).split()[3].partition(b"/")[0])
    return 0


def _own() -> int:
    """Number of such threads of this process, at least 1."""
    running = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            # A thread may end between the listing and the reading.
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/stat", "rb", buffering=0) as file:
                running += file.read(256).rpartition(b") ")[2][:1] == b"R"  # behind the name, which may be anything
    return max(1, running)


# torch cuts an operation into pieces if it has more elements than this.
GRAIN = 2**15

# Whether a batch may run with another number of threads than that of the caller.
_flexible = True


def keep_number_of_threads(keep: bool) -> None:
    """Run all batches with the caller's number of threads, also on a busy machine."""
    global _flexible
    _flexible = not keep


def in_batch(device: torch.device, size: int = 0) -> AbstractContextManager[None]:
    """Context of a batch: without autocast, and with fewer threads of torch if fewer cores are free.

    Without autocast, scores are ranked in their own dtype.

    Args:
        device: the device of the batch. Accelerators need no threads.
        size: number of elements of the batch. Operations with few elements are not cut into pieces.
    """
    number = fewer = torch.get_num_threads()
    if device.type == "cpu" and size > GRAIN and number > 1 and _flexible:
        fewer = max(1, int(min(number, free_cores())))
    autocast = torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    return _without_autocast(device, fewer) if autocast or fewer < number else nullcontext()


@contextmanager
def _without_autocast(device: torch.device, threads: int) -> Iterator[None]:
    number = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_num_threads(number)
