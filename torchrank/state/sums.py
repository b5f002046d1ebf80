"""The fourth room: values of queries become sums; sums become one number, on one worker or on many."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from torchrank.hardware.devices import widest_float
from torchrank.layouts.bad_values import Problem


class Sum(IntEnum):
    """What the entries of the state vector are. v = value and w = weight of a scored query."""

    WV = 0
    W = 1
    QUERIES = 2
    EMPTY = 3
    SQUARES = 4  # and the six that follow, see :func:`squares`
    W2 = 10  # the last of these
    FAR = 11  # the same seven of batches with weights whose squares float64 does not hold
    ERRORS = 18  # and all that follow, but the numbers that a metric adds from SIZE on


SIZE = Sum.ERRORS + len(Problem)


#: A batch whose weight is above LARGE or below 1 / LARGE is among the far ones.
LARGE = 2.0**460


#: The squares of far batches are those of weights times or divided by this.
SCALE = 2.0**540


def nothing(device: torch.device, more: int = 0) -> Tensor:
    """The state of a metric that has seen no query, and adds up ``more`` numbers besides.

    float64 [SIZE + more]; where a device has no float64, float32 [2, SIZE + more]: a sum and what its rounding has
    lost.
    """
    size = SIZE + more
    wide = widest_float(device) == torch.float64
    return torch.zeros(size if wide else (2, size), dtype=widest_float(device), device=device)


def add(total: Tensor, extra: Tensor) -> Tensor:
    """A new state; never in place, so that it works on tensors made in inference mode."""
    if total.dim() == 1:
        return total + (extra if extra.dim() == 1 else extra.sum(0))
    high, low = total
    extra_high, extra_low = extra if extra.dim() == 2 else (extra, torch.zeros_like(extra))
    result = high + extra_high
    rest = result - high
    lost = (high - (result - rest)) + (extra_high - rest)  # Knuth's two-sum: exact
    return torch.stack([result, low + extra_low + lost])


def read(total: Tensor) -> Tensor:
    """The sums [SIZE] of a state."""
    return total if total.dim() == 1 else total.sum(0)


def carry(state: Tensor, device: torch.device) -> Tensor:
    """A state on another device, in that device's own precision."""
    if not state.is_floating_point() or state.dtype == widest_float(device):
        return state.to(device)
    if state.dim() == 1 and len(state) >= SIZE:
        wide = state.to(torch.float64)
        high = wide.to(torch.float32)
        return torch.stack([high, (wide - high).to(torch.float32)]).to(device)
    wide = state.to(device, dtype=widest_float(device))
    return wide.sum(0) if compensated(state) else wide


def compensated(x: Tensor) -> bool:
    """Whether a tensor is a state of sums and of what their rounding has lost; per-query values are narrower."""
    return x.dim() == 2 and len(x) == 2 and x.shape[1] >= SIZE


def summed(values: Tensor, weights: Tensor, queries: Tensor, empty: Tensor, errors: Tensor) -> Tensor:
    """The sums [metric, SIZE] of one batch.

    Values with weights [metric, query]; number of queries, and of empty ones, [metric]; errors [metric, kind].
    """
    wv, w = (weights * values).sum(-1), weights.sum(-1)
    counts = torch.stack([wv, w, queries.to(w.dtype), empty.to(w.dtype)], dim=-1)
    return torch.cat([counts, squares(values, weights, wv, w), errors.to(w.dtype)], dim=-1)


def squares(values: Tensor, weights: Tensor, wv: Tensor, w: Tensor) -> Tensor:
    """The sums of one batch from which :func:`standard_error` comes: float [metric, 14].

    sum(w^2 (v - c)^2) for three centres c, sum(w^2 (v - c)) for the same, and sum(w^2); and once more for far batches.
    With c = 0 alone, a spread that is small beside the values would be lost in rounding. The other two centres are
    the mean of the batch on two coarse grids. If the spread is that small, all batches have the same point of one grid
    at least. So their sums around it can be added, on whatever worker they are.

    Args:
        values: float [metric, query].
        weights: float [metric, query].
        wv: the sum of their products, [metric].
        w: the sum of the weights, [metric].
    """
    one = torch.ones_like(w)
    if values.dtype == torch.float64:
        small, large = w < 1 / LARGE, w > LARGE
        weights = weights * torch.where(small, one * SCALE, torch.where(large, one / SCALE, one)).unsqueeze(-1)
        far = (small | large).unsqueeze(-1)
    else:  # a device of float32 only, which has no such weights
        far = torch.zeros_like(w, dtype=torch.bool).unsqueeze(-1)
    centre = centres(torch.nan_to_num(wv / w, 0.0, 0.0, 0.0))
    apart = (values - centre[..., 1:2]) * weights
    w2 = (weights**2).sum(-1, keepdim=True)
    first, second = (weights * apart).sum(-1, keepdim=True), (apart**2).sum(-1, keepdim=True)
    shift = centre[..., 1:2] - centre
    shifted = first + shift * w2
    result = torch.cat([second + shift * (first + shifted), shifted, w2], dim=-1)
    return torch.cat([torch.where(far, 0.0, result), torch.where(far, result, 0.0)], dim=-1)


def centres(mean: Tensor) -> Tensor:
    """0, and the nearest points of two grids of 14 bits, one of which is not near the middle between two: [..., 3]."""
    places = 2.0 ** (39 if mean.dtype == torch.float64 else 10) + 1  # leaves the leading bits (Veltkamp)
    both = torch.stack([mean, mean * (4 / 3)], dim=-1)
    large = both * places
    grid = large - (large - both)
    return torch.stack([torch.zeros_like(mean), grid[..., 0], grid[..., 1] / (4 / 3)], dim=-1)


def scaled(sums: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of :func:`squares` [..., 7], and the sum of the weights [...], of weights scaled to what fits."""
    w, squares, far = sums[..., Sum.W], sums[..., Sum.SQUARES : Sum.FAR], sums[..., Sum.FAR : Sum.ERRORS]
    if sums.dtype != torch.float64:
        return squares, w
    small, large = w < 1 / LARGE, w > LARGE
    usual = squares + far / SCALE / SCALE
    extreme = far + squares / SCALE / SCALE
    scale = torch.where(small, w * SCALE, torch.where(large, w / SCALE, w))
    return torch.where((small | large).unsqueeze(-1), extreme, usual), scale


def mean(sums: Tensor) -> Tensor:
    """The weighted mean; NaN of nothing."""
    return sums[Sum.WV] / sums[Sum.W]


def standard_error(sums: Tensor, n: Tensor) -> Tensor:
    """The standard error of the weighted mean m over ``n`` scored queries; NaN of fewer than two.

    Its square is sum(w^2 (v - m)^2) / sum(w)^2 * n / (n - 1).
    """
    squares, w = scaled(sums)
    second, first, w2 = squares[..., :3], squares[..., 3:6], squares[..., 6:]
    m = mean(sums)
    centre = centres(m)
    # All batches had this centre if their sums, carried back to 0, are the sums around 0.
    back = second + centre * (2 * first + centre * w2)
    common = (back - second[..., :1]).abs() <= 2.0**-42 * second[..., :1]
    off = m.unsqueeze(-1) - centre
    best = torch.where(common, off.abs(), float("inf")).argmin(-1, keepdim=True)
    spread = (second - off * (2 * first - off * w2)).gather(-1, best).squeeze(-1)
    return (spread.clamp_min(0) * n / (n - 1)).sqrt() / w


def weights_beside_squares(sums: Tensor) -> Tensor:
    """sum(w) / sqrt(sum(w^2))."""
    squares, w = scaled(sums)
    return w / squares[..., 6].sqrt()
