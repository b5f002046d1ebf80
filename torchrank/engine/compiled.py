"""The counting kernel as one compiled loop, on request. It reads the scores once for all counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.hardware.threads import allow_cutting

_requested = False

_kernel: Callable[..., Any] | None = None


def use_compiled(enabled: bool) -> None:
    """Compile the kernel that counts scores with :func:`torch.compile`, off by default. Results do not change.

    The kernel serves score matrices without mask and tie breaks. It reads them once for each right answer of a query.
    While it is on, torch's own threads serve all batches, also on a busy machine.
    The first batch compiles: about ten seconds on two cores, or one second if torch's cache contains the kernel.
    Another dtype or memory layout, or a dimension of 1, compiles again; other sizes do not. Compiling for the CPU
    requires a C++ compiler. If compiling fails, one warning is given, and the eager kernel is used from then on.

    Args:
        enabled: whether to use the compiled kernel from now on.

    Example:
        >>> import torchrank as tr
        >>> tr.use_compiled(False)
    """
    global _kernel
    _request(enabled)
    if enabled and _kernel is None:
        _kernel = torch.compile(_count, dynamic=True)


def _request(enabled: bool) -> None:
    global _requested
    _requested = enabled
    # The kernel keeps Python's lock, so parts of a batch on several threads would be counted one after the other.
    allow_cutting(not enabled)


def is_compiled() -> bool:
    """Whether to count by :func:`fused`."""
    return _requested


def fused(scores: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Count scores above and equal to ``own`` [query, entry].

    Returns:
        both counts, int64 [query, entry] each; the number of scores above -inf, int64 [query, 1]; and whether a score
        is NaN, bool [query], or None on the CPU, where the third number usually rules it out.
    """
    try:
        assert _kernel is not None
        with torch.no_grad():  # always, because a kernel is compiled again if the gradient mode changes
            counts = _kernel(scores, own)
    except Exception as error:
        _request(False)
        warnings.warn(
            f"torch.compile failed, so the scores are counted by the eager kernel from now on: {error}", stacklevel=2
        )
        counts = _count(scores, own)
    *numbers, has_nan = counts
    greater, equal, retrieved = (number.long() for number in numbers)
    return greater, equal, retrieved, has_nan


def _count(scores: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    wide, mine = scores.unsqueeze(1), own.unsqueeze(-1)
    # Vector registers hold twice as many counts of 32 bits as of 64, and no row has 2 ** 31 columns.
    greater = (wide > mine).sum(-1, dtype=torch.int32)
    equal = (wide == mine).sum(-1, dtype=torch.int32)
    retrieved = (scores > float("-inf")).sum(-1, keepdim=True, dtype=torch.int32)
    return greater, equal, retrieved, None if reading_is_free(scores) else scores.isnan().any(-1)
