"""Scores counted by comparing them: by operations of torch, and by compiled loops, Triton's on a GPU."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from torchrank.engine.counts import ScoreCounts, Thresholds, compared_dtype, next_below
from torchrank.hardware import costs
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


def count_by_comparing(
    scores: Tensor,
    thresholds: Thresholds,
    mask: Tensor | None = None,
    tie_break: Tensor | None = None,
    judged_tie_break: Tensor | None = None,
    dtype: torch.dtype = torch.int64,
    total: ScoreCounts | None = None,
) -> ScoreCounts:
    """Count by comparing all scores with the score of each judged item.

    Args:
        scores: [query, candidate].
        thresholds: scores of the judged items, [query, entry]; not ``among_finite`` with ``mask`` or tie breaks.
        mask: bool [query, candidate], False = padding.
        tie_break: [query, candidate], the larger value ranks first among equal scores.
        judged_tie_break: tie breaks of the judged items, [query, entry].
        dtype: the dtype of the counts.
        total: counts of other columns, to which these counts are added in place; None = no other columns.

    Returns:
        the counts; without tie breaks, ``equal`` is 0 for a judged item with the score -inf.
    """
    if tie_break is None and not why_no_kernel(scores.device):
        from torchrank.engine.kernels import count_scores

        total = total or ScoreCounts.nothing(thresholds.scores.shape, scores.device, dtype)
        count_scores(scores, thresholds.scores.to(compared_dtype(scores.dtype)), mask, total)
        return total
    counted: tuple[Tensor, Tensor, Tensor, Tensor | None] | None = None
    if tie_break is not None and judged_tie_break is not None:
        greater, equal = _by_tie_break(scores, thresholds.scores, mask, tie_break, judged_tie_break)
        counted = greater, equal, *count_retrieved(scores, mask)
    elif mask is None and is_compiled():
        counted = fused(scores, thresholds)
    if counted is None:
        # If all scores are finite, the bounds lack -inf, so ``above_lowest`` is empty and not read.
        above, entries = count_above(scores, thresholds.bounds, mask, dtype), thresholds.scores.shape[1]
        greater, at_least, above_lowest = above.tensor_split([entries, 2 * entries], dim=-1)
        counted = greater, at_least - greater, above_lowest.squeeze(-1), None
    greater, equal, retrieved, has_nan = counted
    if thresholds.among_finite:
        retrieved, has_nan = count_retrieved(scores, finite=True)
    elif has_nan is None:
        has_nan = find_nan(scores, retrieved, mask)
    counts = ScoreCounts(greater.to(dtype), equal.to(dtype), retrieved.to(dtype), has_nan)
    if total is None:
        return counts
    total.add(counts)
    return total


def _by_tie_break(
    scores: Tensor, judged: Tensor, mask: Tensor | None, tie_break: Tensor, judged_tie_break: Tensor
) -> tuple[Tensor, Tensor]:
    """Number of candidates ahead of, and tied with, each entry: int64 [query, entry] each."""
    ahead, tied = (torch.zeros(judged.shape, dtype=torch.int64, device=judged.device) for _ in range(2))
    all_rows, all_columns = strips(scores, 2)
    for rows in all_rows:
        pairs = list(zip(judged[rows].T.unsqueeze(-1), judged_tie_break[rows].T.unsqueeze(-1)))
        for columns in all_columns:
            tile, tile_breaks = tile_scores(scores, mask, rows, columns), tie_break[rows, columns]
            for entry, pair in enumerate(pairs):
                for total, where in zip((ahead, tied), ahead_and_tied(tile, tile_breaks, *pair)):
                    total[rows, entry] += where.sum(-1)
    return ahead, tied


def equal_in_order(ordered: Tensor, judged: Tensor, up_to: Tensor) -> Tensor:
    """Number of scores that equal each of ``judged``, among scores in ascending order: int64 [query, entry].

    Args:
        ordered: [query, candidate].
        judged: [query, entry].
        up_to: number of scores at most ``judged``.
    """
    if ordered.is_cpu:
        last, before = (ordered.gather(-1, (up_to - n).clamp_min_(0)) == judged for n in (1, 2))
        if not bool((before & (up_to > 1)).any()):  # no ties, so a second search can be saved
            return last.long()  # where ``up_to`` is 0, the smallest score is above the judged one
    return up_to - torch.searchsorted(ordered, judged)


def count_equal(scores: Tensor, value: Tensor) -> Tensor:
    """Number of scores of each row that equal its ``value`` [query, 1]: int64 [query]; 0 for a value of -inf."""
    if not why_no_kernel(scores.device):
        return count_by_comparing(scores, Thresholds(value)).equal.squeeze(-1)
    greater, at_least = count_above(scores, torch.cat([value, next_below(value)], dim=-1)).unbind(-1)
    return at_least - greater


def count_retrieved(scores: Tensor, mask: Tensor | None = None, finite: bool = False) -> tuple[Tensor, Tensor]:
    """Number of scores above -inf, int64 [query], and whether a score is NaN, bool [query].

    ``finite``: whether all scores are known to be finite; then no score is read.
    """
    if finite:
        retrieved = torch.full((len(scores),), scores.shape[1], device=scores.device)
        return retrieved, torch.zeros_like(retrieved, dtype=torch.bool)
    if not why_no_kernel(scores.device):
        return count_by_comparing(scores, Thresholds(scores.new_empty((len(scores), 0))), mask)[2:]
    retrieved = count_above(scores, scores.new_full((len(scores), 1), float("-inf")), mask).squeeze(-1)
    return retrieved, find_nan(scores, retrieved, mask)


def find_nan(scores: Tensor, retrieved: Tensor, mask: Tensor | None) -> Tensor:
    """Whether a score is NaN: bool [query]. ``retrieved`` [query] is the number of scores above -inf."""
    # If all scores are above -inf, no score is NaN. This is so for most data, and saves another pass.
    if mask is None and scores.is_cpu and (retrieved.numpy() == scores.shape[1]).all():
        return torch.zeros_like(retrieved, dtype=torch.bool)
    smallest = []
    all_rows, all_columns = strips(scores, 1)
    for rows in all_rows:
        # The minimum of several scores is NaN if any score is NaN.
        least = [tile_scores(scores, mask, rows, columns).amin(-1) for columns in all_columns]
        smallest.append(least[0] if len(least) == 1 else torch.stack(least).amin(0))
    return _joined(smallest).isnan()


def count_above(scores: Tensor, bounds: Tensor, mask: Tensor | None = None, dtype: torch.dtype = torch.int64) -> Tensor:
    """Number of scores of each row above each of its ``bounds`` [query, bound]: [query, bound] in ``dtype``.

    All bounds are compared in one operation, and all comparisons are summed in another, while a tile stays in cache.
    """
    wide = compared_dtype(scores.dtype)
    bounds = bounds.to(wide).unsqueeze(-1)
    # torch sums floats with vector instructions, but not bools. So the comparisons are written as floats.
    buffer, counts = None, []
    height, all_columns = tile_shape(scores, bounds.shape[1])
    limits = bounds.split(height)
    for columns in all_columns:
        # The overhead per tile must be small, because an operation on a tile takes only about twenty microseconds.
        tile = scores[:, columns]
        parts: Iterable[Tensor] = tile.split(height)
        if mask is not None or scores.dtype != wide:
            starts = range(0, max(1, len(scores)), height)
            parts = (tile_scores(scores, mask, slice(start, start + height), columns) for start in starts)
        shape = min(height, len(bounds)), bounds.shape[1], tile.shape[1]
        if buffer is None:  # the first tile is the widest
            buffer = torch.empty(math.prod(shape), dtype=wide, device=scores.device)
        out, sums = buffer[: math.prod(shape)].view(shape), []
        for part, limit in zip(parts, limits):
            above = torch.gt(part.unsqueeze(1), limit, out=out if len(part) == len(out) else out[: len(part)])
            sums.append(above.sum(-1))
        counts.append(_joined(sums))
    # float32 counts exactly up to 2 ** 24, and a tile has fewer columns.
    return (counts[0] if len(counts) == 1 else torch.stack(counts).to(dtype).sum(0)).to(dtype)


def tile_shape(scores: Tensor, results: int) -> tuple[int, list[slice]]:
    """The height of strips of rows, and the columns of the tiles of a strip, which stay in a processor's cache.

    Args:
        scores: [query, candidate].
        results: number of comparisons with each score in one operation.

    Returns:
        the height, at least 1; the columns of at least one tile.
    """
    queries, candidates = scores.shape
    # On an accelerator the tiles only bound the temporaries.
    size = costs.now.tile if scores.is_cpu else costs.now.device_tile * costs.now.block
    # Threads have rows of their own: each reads the same rows in all operations.
    threads = min(torch.get_num_threads(), costs.now.tile_threads) if scores.is_cpu else 1
    # A row is cut only if it is much too long, because more tiles are more operations.
    pieces = max(1, -(-candidates * results // (2 * size)))
    width = max(1, -(-candidates // pieces))
    height = max(1, min(queries, max(1, size // max(1, width * results)) * threads))
    return height, [slice(start, start + width) for start in range(0, max(1, candidates), width)]


def strips(scores: Tensor, results: int) -> tuple[list[slice], list[slice]]:
    """The rows of at least one strip, and the columns of the tiles of each strip."""
    height, columns = tile_shape(scores, results)
    return [slice(start, start + height) for start in range(0, max(1, len(scores)), height)], columns


def _joined(strips: list[Tensor]) -> Tensor:
    """Concatenate the results of the strips of rows; a single result is not copied."""
    return strips[0] if len(strips) == 1 else torch.cat(strips)


def tile_scores(scores: Tensor, mask: Tensor | None, rows: slice, columns: slice) -> Tensor:
    """The scores of a tile; -inf where ``mask`` is False. Dtypes other than float64 become float32, which is exact."""
    tile = scores[rows, columns].to(compared_dtype(scores.dtype))
    return tile if mask is None else tile.masked_fill(~mask[rows, columns], float("-inf"))


def ahead_and_tied(
    scores: Tensor, tie_break: Tensor | None, judged: Tensor, judged_tie_break: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Whether each score ranks ahead of ``judged``, and whether each score is tied with ``judged``: bool each."""
    if tie_break is None or judged_tie_break is None:
        return scores > judged, scores == judged
    same = scores == judged
    return (scores > judged) | (same & (tie_break > judged_tie_break)), same & (tie_break == judged_tie_break)
