"""The fourth room: values of queries become sums; sums become one number, on one worker or on many."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from torchrank.engine.places import real
from torchrank.problems import Problem


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
    wide = real(device) == torch.float64
    return torch.zeros(size if wide else (2, size), dtype=real(device), device=device)


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
    if not state.is_floating_point() or state.dtype == real(device):
        return state.to(device)
    if state.dim() == 1 and len(state) >= SIZE:
        wide = state.to(torch.float64)
        high = wide.to(torch.float32)
        return torch.stack([high, (wide - high).to(torch.float32)]).to(device)
    wide = state.to(device, dtype=real(device))
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


@dataclass(frozen=True)
class Mean:
    """A mean of values that is a function of the arithmetic mean of functions of them, and so of sums."""

    #: what is summed instead of a value
    inside: Callable[[Tensor], Tensor]
    #: from the mean of these to the mean of the values
    outside: Callable[[Tensor], Tensor]
    #: how much the mean of the values changes with the mean of what is summed, given the former
    slope: Callable[[Tensor], Tensor]


#: What a geometric mean takes smaller values for, or one query would decide alone (Robertson, CIKM 2006).
FLOOR = 1e-5

MEANS = {
    "mean": Mean(lambda x: x, lambda x: x, torch.ones_like),
    "geometric": Mean(lambda x: x.clamp_min(FLOOR).log(), torch.exp, lambda x: x),
    "harmonic": Mean(torch.reciprocal, torch.reciprocal, torch.square),
}


def is_mean(how: object) -> TypeGuard[str]:
    """Whether an aggregation needs no more than sums."""
    return isinstance(how, str) and how in MEANS


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


def aggregate(how: str | Callable[[Tensor], Tensor], values: Tensor, weights: Tensor) -> Tensor:
    """Reduce per-query values [query], NaN = skipped, by "median", "midpoint", "min", "max", "none" or a callable.

    Queries of weight 0 do not count. The median is the lower weighted one: the smallest value that at least half of
    the weight does not exceed. If exactly half does not, "midpoint" is halfway between it and the next value.
    """
    if how == "none":
        return values
    scored = (weights > 0) & ~values.isnan()
    values, weights = values[scored], weights[scored]
    if not len(values):
        return values.new_full((), float("nan"))
    if how in ("median", "midpoint"):
        values, order = values.sort()
        so_far, whole = weights[order].cumsum(0) * 2, weights.sum()
        lower = values[(so_far >= whole * (1 - 1e-12)).int().argmax()]
        return lower if how == "median" else (lower + values[(so_far > whole * (1 + 1e-12)).int().argmax()]) / 2
    if how in ("min", "max"):
        return values.amin() if how == "min" else values.amax()
    assert callable(how)
    return torch.as_tensor(how(values), device=values.device)


class Summed(Protocol):
    """A metric whose state can be reduced together with others'."""

    process_group: Any
    sync_on_compute: bool

    @property
    def definition_name(self) -> str:
        """Its label and its catalogue, by which other workers know it."""

    @property
    def sums(self) -> Tensor:
        """Its state [SIZE]."""

    @property
    def rows(self) -> list[Tensor] | None:
        """Its per-query values, a list of float [query, 2], or None if it keeps none."""

    def reducible(self) -> bool:
        """Whether it may be reduced this way now."""


class WorkersDifferError(ValueError):
    """Workers reduce different metrics."""


class JointReduction:
    """One all-reduce for metrics that are computed in a row.

    The first of the row reduces the states of all. Each other one takes its part in its turn, without communication.
    Metrics go by key and label, so their order may differ between workers.

    A collective runs on all workers or on none, so all must decide alike whether a compute takes its part. Workers have
    updates, and look at metrics, at different times. Only the order of computes and resets is the same on all. This
    order is the same for a row and for two computes with an update of another worker in between. So the caller of
    compute decides. :meth:`RankingCollection.compute` is a row, and so is Lightning's loop over the metrics that it has
    logged; neither leaves room for an update. Any other compute reduces its metric alone, and its value is fresh.
    A part that was not taken is dropped by a reset of any metric of the row, and by a compute outside of rows.
    """

    def __init__(self, members: Mapping[str, Any]) -> None:
        #: metrics by key, those that are reduced in another way among them
        self.members = dict(members)
        self._parts: dict[int, tuple[Tensor, list[Tensor] | None] | WorkersDifferError] = {}

    def reduce(self, metric: Summed, group: Any) -> tuple[Tensor, list[Tensor] | None]:
        """The state of ``metric`` over the workers of a group: its sums and its per-query values."""
        if id(metric) not in self._parts:
            self._collect(metric, group)
        part = self._parts.pop(id(metric))
        if isinstance(part, WorkersDifferError):
            raise part
        return part

    def forget(self) -> None:
        """Drop the parts that were not taken."""
        self._parts = {}

    def _collect(self, metric: Summed, group: Any) -> None:
        peers, beside = {}, []
        for key, member in self.members.items():
            if not (member.process_group is group and member.sync_on_compute):
                continue
            if getattr(member, "reducible", bool)():
                name = member.definition_name
                peers[name if name == key else f"{key}: {name}"] = member
            else:
                beside.append(f"{key}: {type(member).__name__}")
        if all(member is not metric for member in peers.values()):
            peers, beside = {metric.definition_name: metric}, []
        try:
            parts = all_reduce(peers, group, beside)
        except WorkersDifferError as error:
            self._parts |= {id(member): error for member in peers.values()}
        else:
            self._parts |= {id(peers[name]): part for name, part in parts.items()}


#: Numbers of the first message, which is as long whatever is reduced: messages of different lengths abort a worker.
MESSAGE = 4096
#: Bytes of the digest of the names; the message has a sum and a sum of squares for each.
DIGEST = 8


def all_reduce(
    metrics: Mapping[str, Summed], group: Any, beside: Sequence[str] = ()
) -> dict[str, tuple[Tensor, list[Tensor] | None]]:
    """Sum the states of metrics over the workers of a group, by name, in one collective.

    States of more than some 4,000 numbers together take one more. So do per-query values, which come in the order of
    the workers.

    Args:
        metrics: by name.
        group: the workers; None = all.
        beside: further names that workers must have in common.

    Raises:
        WorkersDifferError: workers have different names, or states of different sizes. Raised on all of them.
        ValueError: this process is not in the group.
    """
    rank, world = place_in(group)
    names = sorted(metrics)
    members = [metrics[name] for name in names]
    device = members[0].sums.device
    keepers = {name: _flat(m.rows, device) for name, m in zip(names, members) if m.rows is not None}
    counts = torch.zeros((world, len(keepers)), dtype=real(device), device=device)
    if keepers:
        counts[rank] = counts.new_tensor([len(rows) for rows in keepers.values()])
    states = [m.sums.to(device) for m in members]
    sizes = [f"{state.numel()} numbers{' and values' * (name in keepers)}" for name, state in zip(names, states)]
    described = dict(zip(names, sizes))
    described |= dict.fromkeys(sorted(beside), "")
    digest = hashlib.blake2b(repr(described).encode(), digest_size=DIGEST).digest()
    mark = counts.new_tensor(list(digest))
    payload = torch.cat([mark, mark**2, *(state.reshape(-1) for state in states), counts.reshape(-1)])

    message = torch.nn.functional.pad(payload, (0, MESSAGE - min(len(payload), MESSAGE)))
    head, rest = message[:MESSAGE].contiguous(), message[MESSAGE:].contiguous()
    dist.all_reduce(head, group=group)
    total, total_of_squares = head[: 2 * DIGEST].view(2, DIGEST)
    if not bool((total**2 == world * total_of_squares).all()):  # equal only if all are equal (Cauchy-Schwarz)
        raise WorkersDifferError(_differences(described, world, group))
    if len(rest):
        dist.all_reduce(rest, group=group)
    reduced = torch.cat([head, rest])[2 * DIGEST : len(payload)].split([*(s.numel() for s in states), counts.numel()])
    sums = {name: part.reshape(state.shape) for name, part, state in zip(names, reduced, states)}
    gathered: dict[str, list[Tensor]] = {}
    if keepers:
        lengths = reduced[-1].reshape(world, -1).round().long().tolist()
        parts = all_gather(torch.cat(list(keepers.values())), [sum(several) for several in lengths], group)
        split = [part.split(several) for part, several in zip(parts, lengths)]
        gathered = {name: [by_worker[n] for by_worker in split] for n, name in enumerate(keepers)}
    return {name: (sums[name], gathered.get(name)) for name in names}


def place_in(group: Any) -> tuple[int, int]:
    """The rank of this process among the workers of a group, and how many these are.

    Raises:
        ValueError: it is none of them.
    """
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(
            f"Expected this process to be in the metric's process_group, got process {dist.get_rank()}, which is not;"
            " compute on the workers of the group only"
        )
    return rank, dist.get_world_size(group)


def _differences(described: dict[str, str], world: int, group: Any) -> str:
    """The message for workers that reduce different metrics: which metrics, on which workers."""
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, described, group=group)
    having: dict[str, list[int]] = {}
    for rank, found in enumerate(everyone):
        for name, size in found.items():
            same = all(other.get(name, size) == size for other in everyone)
            having.setdefault(name if same else f"{name} of {size}", []).append(rank)
    partly = [f"{name} on {', '.join(map(str, ranks))}" for name, ranks in having.items() if len(ranks) < world]
    return (
        f"Expected all {world} workers to compute the same metrics, got {'; '.join(partly)} only;"
        " build the same metrics and collections on every worker"
    )


def appended(rows: list[Tensor], more: list[Tensor]) -> list[Tensor]:
    """Rows and more of them: a new list, of few parts, as short ones are joined."""
    rows = list(rows)
    for part in more:
        while len(rows) > 1 and len(rows[-2]) <= 2 * len(rows[-1]) and rows[-2].device == rows[-1].device:
            rows[-2:] = [torch.cat(rows[-2:])]
        rows.append(part)
    return rows


def _flat(rows: list[Tensor], device: torch.device) -> Tensor:
    return torch.cat([torch.empty((0, 2), dtype=real(device), device=device), *(r.to(device) for r in rows)])


def all_gather(rows: Tensor, sizes: list[int], group: Any) -> list[Tensor]:
    """The rows [n, column] of every worker, of known numbers that may differ: one collective, none if all are empty."""
    longest = max(sizes)
    if not longest:
        return [rows[:0] for _ in sizes]
    padded = torch.nn.functional.pad(rows, (0, 0, 0, longest - len(rows)))
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded, group=group)
    return [part[:size] for part, size in zip(gathered, sizes)]
