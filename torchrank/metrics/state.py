"""The fourth room: values of queries become sums; sums become one number, on one worker or on many."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from torchrank.engine.places import real
from torchrank.problems import Problem


class Sum(IntEnum):
    """What the entries of the state vector are. v = value and w = weight of a scored query.

    The squares give the standard error of the weighted mean m, whose variance is sum(w^2 (v - m)^2) / sum(w)^2.
    """

    WV = 0
    W = 1
    W2V2 = 2
    W2V = 3
    W2 = 4
    QUERIES = 5
    EMPTY = 6
    ERRORS = 7  # and all that follows, but what a metric adds from SIZE on


SIZE = Sum.ERRORS + len(Problem)


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
    wv = weights * values
    sums = [wv.sum(-1), weights.sum(-1), (wv * wv).sum(-1), (weights * wv).sum(-1), (weights * weights).sum(-1)]
    counts = [queries.to(wv.dtype), empty.to(wv.dtype)]
    return torch.cat([torch.stack([*sums, *counts], dim=-1), errors.to(wv.dtype)], dim=-1)


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
    """The standard error of the weighted mean over ``n`` scored queries; NaN of fewer than two."""
    m = mean(sums)
    spread = sums[Sum.W2V2] - 2 * m * sums[Sum.W2V] + m * m * sums[Sum.W2]
    return (spread.clamp_min(0) * n / (n - 1)).sqrt() / sums[Sum.W]


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

    @property
    def sums(self) -> Tensor:
        """Its state [SIZE]."""

    @property
    def rows(self) -> list[Tensor] | None:
        """Its per-query values, a list of float [query, 2], or None if it keeps none."""

    def reducible(self) -> bool:
        """Whether it wants to be reduced this way now."""


class JointReduction:
    """One all-reduce for metrics that are computed one after another.

    The first of them to be computed reduces the states of all, always. If every worker has declared that the others
    follow, each of these takes its part when its turn comes; else it reduces anew. So whether a collective runs, and of
    what size, depends on the order of computes and resets, which is the same on every worker, and on what a collective
    has found out, but never on who had an update: workers do not wait for each other in vain.
    """

    def __init__(self, metrics: Sequence[Summed]) -> None:
        self._metrics = list(metrics)
        self._taken: dict[int, tuple[Tensor, Tensor, list[Tensor] | None]] = {}
        self._declared = False

    def reduce(self, metric: Summed, group: Any) -> tuple[Tensor, list[Tensor] | None]:
        """The state of ``metric`` over all workers: its sums and its per-query values."""
        if id(metric) not in self._taken:
            self._collect(metric, group)
        before, sums, rows = self._taken.pop(id(metric))
        if before is not metric.sums:
            warnings.warn(
                "This metric was updated between the compute of another of its collection and its own: its value is as"
                " of the former. Compute the whole collection at once.",
                stacklevel=2,
            )
        return sums, rows

    def declare(self) -> None:
        """All will be computed one after another, without an update in between. Holds for one reduction."""
        self._taken = {}
        self._declared = True

    def revoke(self) -> None:
        """A metric was updated: they may be computed at different times."""
        self._declared = False

    def forget(self) -> None:
        """A metric was reset: what was reduced is of the past."""
        self._declared = False
        self._taken = {}

    def _collect(self, metric: Summed, group: Any) -> None:
        peers = [m for m in self._metrics if m.process_group is group and m.reducible()]
        metrics = peers if any(m is metric for m in peers) else [metric]
        reduced = all_reduce(metrics, metric, self._declared, group)
        self._taken = {id(m): (m.sums, sums, rows) for m, sums, rows in reduced}
        self._declared = False


def all_reduce(
    metrics: Sequence[Summed], first: Summed, together: bool, group: Any
) -> list[tuple[Summed, Tensor, list[Tensor] | None]]:
    """Sum the states of several metrics over the workers of a group in one collective.

    Per-query values take one more, and come in the order of the workers. The answer is for all of the metrics if all
    workers want it ``together``, else for the ``first`` alone.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    device = first.sums.device
    rows = [_flat(m.rows or [], device) for m in metrics]
    notes = torch.zeros((world, 1 + len(metrics)), dtype=real(device), device=device)
    notes[rank] = notes.new_tensor([float(together), *(float(len(r)) for r in rows)])
    everything = torch.cat([*(m.sums.to(device).reshape(-1) for m in metrics), notes.reshape(-1)])
    dist.all_reduce(everything, group=group)

    *states, notes = everything.split([*(m.sums.numel() for m in metrics), notes.numel()])
    notes = notes.reshape(world, -1)
    sums = {id(m): state.reshape(m.sums.shape) for m, state in zip(metrics, states)}
    gathered: dict[int, list[Tensor]] = {}
    agreed = bool((notes[:, 0] == 1).all())
    wanted = [i for i, m in enumerate(metrics) if agreed or m is first]
    keepers = [i for i in wanted if metrics[i].rows is not None]
    if keepers:
        counts = notes[:, 1:].round().long()[:, keepers].tolist()
        parts = all_gather(torch.cat([rows[i] for i in keepers]), [sum(count) for count in counts], group)
        split = [part.split(count) for part, count in zip(parts, counts)]
        gathered = {i: [by_worker[n] for by_worker in split] for n, i in enumerate(keepers)}
    return [(metrics[i], sums[id(metrics[i])], gathered.get(i)) for i in wanted]


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
