"""On request, the counting kernel as one compiled loop: one read of the scores, whatever it counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_requested = False


_kernel: Callable[..., Any] | None = None


def use_compiled(enabled: bool) -> None:
    """Compile the kernel that counts scores, with :func:`torch.compile`; off by default. No number changes.

    It serves score matrices with one right answer per query, which are then read once instead of about three times.
    The first batch compiles: about ten seconds on two cores, a second where torch's cache holds the kernel. Another
    dtype or memory layout, or a dimension of 1, compiles again; other sizes do not. Where compiling fails (on the CPU
    it takes a C++ compiler), a warning says so once and the eager kernel goes on.

    Args:
        enabled: True from now on, or False.

    Example:
        >>> import torchrank as tr
        >>> tr.use_compiled(False)
    """
    global _requested, _kernel
    _requested = enabled
    if not enabled:
        return
    if _kernel is None:
        _kernel = torch.compile(_count, dynamic=True)


def is_compiled() -> bool:
    """Whether :func:`fused` is the kernel to take."""
    return _requested


def fused(scores: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores above and equal to ``own`` [query, 1], int64 [query, 1] each, and the smallest of each row."""
    global _requested
    try:
        assert _kernel is not None
        with torch.no_grad():  # of which a change would compile again
            greater, equal, smallest = _kernel(scores, own)
    except Exception as error:
        _requested = False
        warnings.warn(
            f"torch.compile failed, so the scores are counted by the eager kernel from now on: {error}", stacklevel=2
        )
        greater, equal, smallest = _count(scores, own)
    return greater.long(), equal.long(), smallest


def _count(scores: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # 32 bits fill vector registers twice as well as 64, and no tile has that many columns.
    greater = (scores > own).sum(-1, keepdim=True, dtype=torch.int32)
    equal = (scores == own).sum(-1, keepdim=True, dtype=torch.int32)
    return greater, equal, scores.amin(-1)
