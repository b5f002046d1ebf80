"""The sums that form the state of a metric, and the mean and standard error computed from them."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from torchrank.hardware.devices import constant, widest_float
from torchrank.layouts.checks import Problem


class Sum(IntEnum):
    """Indexes into the state vector. v is the value and w the weight of a scored query."""

    WV = 0  # sum(w v)
    W = 1  # sum(w)
    QUERIES = 2  # number of queries
    EMPTY = 3  # number of empty queries
    SQUARES = 4  # seven sums from 4 to 10, see :func:`summed`
    W2 = 10  # the last of them, sum(w^2)
    ERRORS = 11  # a counter for each kind of bad value; the further sums of a metric begin at SIZE


SIZE = Sum.ERRORS + len(Problem)

#: Weights have no standard error if their sum is above LARGE or below 1 / LARGE: squares are infinite, or lose digits.
LARGE = 2.0**460

#: Number of sums that states had behind SQUARES before torchrank 0.1, for such weights, and of counters behind those.
FORMER, FORMER_KINDS = 7, 8

#: Largest number of queries whose differences to all three centres are computed at once, in three times the memory.
DIRECT = 2**11


def nothing(device: torch.device, num_extra: int = 0) -> Tensor:
    """The state of a metric without queries, with ``num_extra`` further sums.

    float64 [SIZE + num_extra]. On a device without float64 it is float32 [2, SIZE + num_extra]: each sum, and the
    rounding error that it has accumulated.
    """
    size = SIZE + num_extra
    wide = widest_float(device) == torch.float64
    return torch.zeros(size if wide else (2, size), dtype=widest_float(device), device=device)


def add(total: Tensor, extra: Tensor) -> Tensor:
    """The sum of two states on the device of the first, as a new tensor: inference mode forbids changes in place."""
    if extra.device != total.device:  # a batch [number] has no rounding errors yet
        extra = extra.to(total) if extra.dim() == total.dim() == 1 else carry(extra, total.device)
    if total.dim() == 1:
        return total + (extra if extra.dim() == 1 else read(extra))
    high, low = total
    extra_high, extra_low = extra if extra.dim() == 2 else (extra, torch.zeros_like(extra))
    result = high + extra_high
    rest = result - high
    lost = (high - (result - rest)) + (extra_high - rest)  # Knuth's two-sum: exact
    return torch.stack([result, low + extra_low + lost])


def read(total: Tensor) -> Tensor:
    """The sums [SIZE + num_extra] of a state."""
    if total.dim() == 1:
        return total
    return total[0] + total[1].nan_to_num(0.0)  # the rounding error of an infinite sum is NaN


def carry(state: Tensor, device: torch.device) -> Tensor:
    """A state on another device, in the widest dtype of that device."""
    if not state.is_floating_point() or state.dtype == widest_float(device):
        return state.to(device)
    if state.dim() == 1 and len(state) >= SIZE:  # float64 sums become float32 sums and rounding errors
        wide = state.to(torch.float64)
        high = wide.to(torch.float32)
        return torch.stack([high, (wide - high).to(torch.float32)]).to(device)
    wide = state.to(device, dtype=widest_float(device))
    return read(wide) if compensated(state) else wide


def current(state: Tensor, size: int) -> Tensor:
    """A state of ``size`` numbers that was saved by this version, or before torchrank 0.1."""
    new = len(Problem) - FORMER_KINDS
    if state.shape[-1:] != (size + FORMER - new,):
        return state
    end = Sum.ERRORS + FORMER + FORMER_KINDS
    parts = state[..., : Sum.ERRORS], state[..., Sum.ERRORS + FORMER : end], state[..., :new] * 0, state[..., end:]
    return torch.cat(parts, dim=-1)


def compensated(x: Tensor) -> bool:
    """Whether a tensor contains sums and their rounding errors. Per-query values have fewer columns."""
    return x.dim() == 2 and len(x) == 2 and x.shape[1] >= SIZE


def summed(
    values: Tensor,
    weights: Tensor | None,
    queries: Tensor | None,
    empty: Tensor | None,
    errors: Tensor,
    counted: Tensor | None = None,
) -> Tensor:
    """The sums [metric, SIZE] of one batch.

    Seven of them, from which :func:`standard_error` is computed, have three centres c: sum(w^2 (v - c)^2) for each c,
    sum(w^2 (v - c)) for each c, and sum(w^2). With c = 0 alone, a spread that is small compared to the values would be
    lost in rounding. The other two centres are the mean of the batch, rounded to two coarse grids. If the spread is
    small, then all batches round to the same point of at least one grid. So their sums around this point can be added,
    over batches and workers.

    Args:
        values: float [metric, query].
        weights: float [metric, query]; None = all are 1.
        queries: [metric]: number of queries; None = that of the values.
        empty: [metric]: number of empty queries; None = 0.
        errors: [metric, kind]: counters of bad values.
        counted: [metric]: number of queries of weight 1, if the weight of all others is 0, and so is their value.
    """
    factors = None if counted is not None else weights  # a second factor of 0 or 1 changes nothing
    wv = (values if factors is None else factors * values).sum(1, keepdim=True)
    number = torch.full_like(wv, values.shape[1]) if weights is None or queries is None else wv
    w = number if weights is None else weights.sum(1, keepdim=True) if counted is None else counted.unsqueeze(1)
    w2 = w if factors is None else (factors**2).sum(1, keepdim=True)
    centre = centres(torch.nan_to_num(wv / w, 0.0, 0.0, 0.0))
    # The number of metrics decides nothing here, so a metric alone has the bits that it has in a suite.
    if values.shape[1] <= DIRECT:
        first, second = _around(values, centre, weights, factors)
    else:
        # The sums around one centre near the values are accurate. The sums around the other centres are shifts of them.
        first, second = _around(values, centre[:, 1:2], weights, factors)
        shift = centre[:, 1:2] - centre
        shifted = first + shift * w2
        first, second = shifted, second + shift * (first + shifted)
    number = number if queries is None else queries.unsqueeze(1).to(w.dtype)
    none = torch.zeros_like(w) if empty is None else empty.unsqueeze(1).to(w.dtype)
    return torch.cat([wv, w, number, none, second, first, w2, errors.to(w.dtype)], dim=1)


def _around(values: Tensor, centre: Tensor, weights: Tensor | None, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sums of w^2 (v - c) and of w^2 (v - c)^2 around some centres: float [metric, centre] each.

    Args:
        values: float [metric, query].
        centre: float [metric, centre].
        weights: float [metric, query]; None = all are 1.
        factors: the weights; None = all are 0 or 1, and values of weight 0 are 0.
    """
    values, centre = values.unsqueeze(1), centre.unsqueeze(2)
    if weights is None:
        apart = values - centre
    elif factors is None:
        apart = torch.addcmul(values, weights.unsqueeze(1), centre, value=-1)
    else:
        apart = (values - centre) * weights.unsqueeze(1)
    first = (apart if factors is None else factors.unsqueeze(1) * apart).sum(2)
    return first, apart.square_().sum(2)


def centres(mean: Tensor) -> Tensor:
    """Three centres for a mean [..., 1]: 0, and the nearest points of two grids of 14 bits: [..., 3].

    A mean halfway between two points of one grid is not halfway between points of the other. So at least one grid
    rounds all means near it to the same point.
    """
    times, over = _grids(mean.dtype, mean.device)
    scaled = mean * times
    # Adding half of the last bit that stays, and clearing the bits below it, rounds to 14 leading bits.
    cleared, integer = (39, torch.int64) if mean.dtype == torch.float64 else (10, torch.int32)
    scaled.view(integer).add_(1 << (cleared - 1)).bitwise_and_(-(1 << cleared))
    return scaled / over


@constant
def _grids(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The factors of a mean before it is rounded to each centre, and the divisors after it."""
    factors = torch.tensor([0, 1, 4 / 3], dtype=dtype, device=device)
    return factors, factors.clamp_min(1)


def mean(sums: Tensor) -> Tensor:
    """The weighted mean [...] of sums [..., SIZE]; NaN without scored queries."""
    return sums[..., Sum.WV] / sums[..., Sum.W]


def standard_error(sums: Tensor, n: Tensor) -> Tensor:
    """The standard error [...] of the weighted mean m over ``n`` [...] scored queries; NaN for n < 2.

    Its square is sum(w^2 (v - m)^2) / sum(w)^2 * n / (n - 1). NaN if the sum of the weights is above LARGE or below
    1 / LARGE.
    """
    second, first, w2 = sums[..., Sum.SQUARES : Sum.ERRORS].split((3, 3, 1), -1)
    m = mean(sums).unsqueeze(-1)
    centre = centres(m)
    # Sums of different batches belong to a common centre only if, shifted back to 0, they equal the sums around 0.
    back = second + centre * (2 * first + centre * w2)
    common = (back - second[..., :1]).abs() <= 2.0**-46 * second[..., :1]
    off = m - centre
    # Of the common centres the one nearest to m loses the fewest digits in the shift to m.
    best = torch.where(common, off.abs(), float("inf")).argmin(-1, keepdim=True)
    spread = (second - off * (2 * first - off * w2)).gather(-1, best).squeeze(-1)
    # With one query, rounding errors must not be divided by 0.
    spread = torch.where(n > 1, spread.clamp_min(0) * n / (n - 1), float("nan"))
    return spread.sqrt() / _squarable(sums[..., Sum.W])


def effective_size(sums: Tensor) -> Tensor:
    """Kish's effective number of queries: sum(w)^2 / sum(w^2); for weights of 1 exactly their number.

    NaN if the sum of the weights is above LARGE or below 1 / LARGE.
    """
    w = _squarable(sums[..., Sum.W])
    return w / sums[..., Sum.W2] * w


def _squarable(w: Tensor) -> Tensor:
    """Sums of weights, NaN for weights whose squares leave the range of float64."""
    return torch.where((w < LARGE) & (w > 1 / LARGE), w, float("nan"))
