"""Compiled loops that count scores: Triton's on a GPU, and on request torch.compile's, once for each right answer."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchrank.engine.thresholds import Thresholds
from torchrank.hardware.threads import keep_number_of_threads

# The sign bit of a float32, and the bits of infinity.
SIGN, INFINITY = -(2**31), 0x7F800000

_requested = False

#: the compiled functions by name
_kernels: dict[str, Callable[..., Any]] = {}


def use_compiled(enabled: bool) -> None:
    """Compile the kernels that count scores with :func:`torch.compile`, off by default. Results do not change.

    The kernels serve score matrices without mask and tie breaks. They read them once for each right answer of a query.
    On a CUDA device with Triton nothing is compiled, because a kernel of torchrank's own reads the scores once.
    Scores in float32 on a CPU are read again if they contain NaN or infinite numbers, or if a right answer has score 0.
    While it is on, torch's own threads serve all batches, also on a busy machine.
    The first batch compiles: about ten seconds on two cores, or one second if torch's cache contains the kernel.
    Another dtype or memory layout, or a dimension of 1, compiles again; other sizes do not. Compiling for the CPU
    requires a C++ compiler. If compiling fails, or has reached torch's ``recompile_limit`` of eight kinds of batch, one
    warning is given, and the eager kernel is used until the next ``use_compiled(True)``.

    Args:
        enabled: whether to use the compiled kernels from now on.

    Example:
        >>> import torchrank as tr
        >>> tr.use_compiled(False)
    """
    _request(enabled)
    if enabled and not _kernels:
        # Without fullgraph, torch may run a function uncompiled, whose temporaries fill the memory.
        for function in (_compare, _compare_bits):
            _kernels[function.__name__] = torch.compile(function, dynamic=True, fullgraph=True)


def _request(enabled: bool) -> None:
    global _requested
    _requested = enabled
    keep_number_of_threads(enabled)  # torch compiles a kernel again for another number of threads


@functools.cache
def why_no_kernel(device: torch.device, *products: Any) -> str:
    """The reason why Triton's kernels do not count on a device; "" = they do.

    The first call compiles, waits for the device, and warns if the kernel does not work.

    Args:
        device: device of the scores, or of the embeddings.
        products: dtype, precision and dimensions of the embeddings; none = the scores are a matrix.
    """
    on_gpu = device.type == "cuda" and torch.cuda.is_available()
    if not on_gpu and os.environ.get("TRITON_INTERPRET") != "1":
        return "the scores are not on a CUDA device"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    try:
        from torchrank.engine import kernels

        right = kernels.multiply_right(device, *products) if products else kernels.count_right(device)
        reason = "" if right else "the kernel counts wrong on this device"
    except Exception as error:  # of the compiler, or of the driver
        reason = f"the kernel fails on this device: {error}"
    if reason:
        warnings.warn(f"Counts of scores on {device} take several times as long, because {reason}", stacklevel=2)
    return reason


def is_compiled() -> bool:
    """Whether to count by :func:`fused`."""
    return _requested


def fused(scores: Tensor, thresholds: Thresholds) -> tuple[Tensor, Tensor, Tensor, Tensor | None] | None:
    """Count scores above and equal to ``thresholds`` [query, entry]; None if compiling fails.

    Args:
        scores: [query, candidate].
        thresholds: of the same dtype.

    Returns:
        both counts, int64 [query, entry] each, where nothing equals -inf; the number of scores above -inf, int64
        [query]; and whether a score is NaN, bool [query], or None where the third number usually rules it out.
    """
    try:
        with torch.no_grad():  # always, because a kernel is compiled again if the gradient mode changes
            if thresholds.comparable_by_bits and scores.numel():
                return _by_bits(scores, thresholds)
            return _kernels["_compare"](scores, thresholds.scores, not scores.is_cpu)
    except Exception as error:
        _request(False)
        warnings.warn(
            "torch.compile failed, so the scores are counted by the eager kernel until use_compiled(True):"
            f" {error.__cause__ or error}",
            stacklevel=2,
        )
        return None


def _compare(scores: Tensor, judged: Tensor, find_nan: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Count by comparisons."""
    wide, mine = scores.unsqueeze(1), judged.unsqueeze(-1)
    # Vector registers hold twice as many counts of 32 bits as of 64, and no row has 2 ** 31 columns.
    greater = (wide > mine).sum(-1, dtype=torch.int32)
    equal = (wide == mine).sum(-1, dtype=torch.int32) * (judged > float("-inf"))
    retrieved = (scores > float("-inf")).sum(-1, dtype=torch.int32)
    has_nan = scores.isnan().any(-1) if find_nan else None
    return greater.long(), equal.long(), retrieved.long(), has_nan


def _by_bits(scores: Tensor, thresholds: Thresholds) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Count float32 scores by their bits, which takes half the time of comparisons."""
    kernel = _kernels["_compare_bits"]
    bits, zeros = scores.view(torch.int32), thresholds.zeros
    greater, equal, largest = kernel(bits, thresholds.bits, not thresholds.among_finite)
    finite = thresholds.among_finite or int(largest.max()) < INFINITY
    if finite and zeros is None:
        return greater, equal, torch.full_like(greater[:, 0], scores.shape[1]), None
    marks = scores.new_tensor([-0.0, -math.inf, math.inf]).expand(len(scores), 3).contiguous()
    above, same, _ = kernel(bits, marks.view(torch.int32), False)
    # By its bits, NaN is above inf or below -inf.
    retrieved, has_nan = above[:, 1], (above[:, 2] > 0) | (above[:, 1] + same[:, 1] < scores.shape[1])
    if bool(has_nan.any()):  # NaN is neither above nor equal to a score
        greater, equal, retrieved, _ = _kernels["_compare"](scores, thresholds.scores, False)
        return greater, equal, retrieved, has_nan
    equal = equal if zeros is None else equal + zeros * same[:, :1]
    return greater, equal * (thresholds.scores > -math.inf), retrieved, has_nan


def _compare_bits(scores: Tensor, judged: Tensor, find_largest: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Count by the bits of float32, given as int32. Zeros count as equal only if they have the same sign.

    As integers, the bits of positive numbers are in the order of the numbers. The bits of negative numbers are below
    them, in the opposite order. If ``judged`` is negative, then all sign bits are flipped, and all greater scores are
    below it. A score that is clamped to the bits next to ``judged``, minus ``judged``, is -1, 0 or 1. Nothing is
    compared, because the compiler makes several instructions of a comparison.

    Returns:
        both counts, int64 [query, entry]; and the bits of the score that is largest in magnitude, int32 [query, entry],
        or None.
    """
    flip = judged & SIGN
    place = (judged ^ flip).unsqueeze(-1)
    wide = scores.unsqueeze(1)
    side = torch.minimum(torch.maximum(wide ^ flip.unsqueeze(-1), place - 1), place + 1) - place
    differing = (side & 1).sum(-1, dtype=torch.int32)
    balance = side.sum(-1, dtype=torch.int32)  # bits above minus bits below
    greater = (differing + torch.where(flip == 0, balance, -balance)) // 2
    # Expanded to the same shape as above, so that the compiler makes one loop.
    largest = (wide & ~SIGN).expand(-1, judged.shape[1], -1).amax(-1) if find_largest else None
    return greater.long(), scores.shape[1] - differing.long(), largest
