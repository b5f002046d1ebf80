"""Float types and costs of a device.

An accelerator runs behind the program, and reading a value waits until the accelerator has caught up. So every shortcut
that depends on values (no ties, few grades, nothing to do) is taken only if ``x.is_cpu``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from torchrank.hardware import costs

_DENORMAL = 1e-310


def widest_float(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on devices without float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def widened(x: Tensor) -> Tensor:
    """A tensor in the widest float type of its device."""
    return x.to(widest_float(x.device))


def autocast_off(device: torch.device) -> AbstractContextManager[Any]:
    """Context without autocast, so that scores are ranked in their own dtype."""
    enabled = torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


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
    if x.numel() and not any(x.stride()):  # an expanded scalar
        return bool(x[(0,) * x.dim()])
    # numpy reads bools many times as fast as torch on the CPU.
    return bool(x.numpy().all() if x.is_cpu else x.all())
