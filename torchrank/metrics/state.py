"""The fourth room: values of queries become sums; sums become one number, on one worker or on many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Protocol

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
    PROBLEMS = 7  # and all that follows


SIZE = Sum.PROBLEMS + len(Problem)


def nothing(device: torch.device) -> Tensor:
    """The state of a metric that has seen no query.

    float64 [SIZE]; where a device has no float64, float32 [2, SIZE]: a sum and what its rounding has lost.
    """
    wide = real(device) == torch.float64
    return torch.zeros(SIZE if wide else (2, SIZE), dtype=real(device), device=device)


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
    if state.dim() == 1 and len(state) == SIZE:
        wide = state.to(torch.float64)
        high = wide.to(torch.float32)
        return torch.stack([high, (wide - high).to(torch.float32)]).to(device)
    wide = state.to(device, dtype=real(device))
    return wide.sum(0) if state.shape == (2, SIZE) else wide


def summed(values: Tensor, weights: Tensor, queries: Tensor, empty: Tensor, errors: Tensor) -> Tensor:
    """The sums [SIZE] of one batch: values with weights, number of queries, of empty ones, problems by kind."""
    wv = weights * values
    sums = [wv.sum(), weights.sum(), (wv * wv).sum(), (weights * wv).sum(), (weights * weights).sum()]
    return torch.cat([torch.stack([*sums, queries.to(wv.dtype), empty.to(wv.dtype)]), errors.to(wv.dtype)])


def mean(sums: Tensor) -> Tensor:
    """The weighted mean; NaN of nothing."""
    return sums[Sum.WV] / sums[Sum.W]


def standard_error(sums: Tensor, n: Tensor) -> Tensor:
    """The standard error of the weighted mean over ``n`` scored queries; NaN of fewer than two."""
    m = mean(sums)
    spread = sums[Sum.W2V2] - 2 * m * sums[Sum.W2V] + m * m * sums[Sum.W2]
    return (spread.clamp_min(0) * n / (n - 1)).sqrt() / sums[Sum.W]


def aggregate(how: str | Callable[[Tensor], Tensor], values: Tensor, weights: Tensor) -> Tensor:
    """Reduce per-query values [query], NaN = skipped, by "median", "min", "max", "none" or a callable.

    Queries of weight 0 do not count. The median is the lower weighted one: the smallest value that at least half of
    the weight does not exceed.
    """
    if how == "none":
        return values
    scored = (weights > 0) & ~values.isnan()
    values, weights = values[scored], weights[scored]
    if not len(values):
        return values.new_full((), float("nan"))
    if how == "median":
        values, order = values.sort()
        reached = weights[order].cumsum(0) * 2 >= weights.sum() * (1 - 1e-12)
        return values[reached.int().argmax()]
    if how in ("min", "max"):
        return values.amin() if how == "min" else values.amax()
    assert callable(how)
    return torch.as_tensor(how(values))


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

    The first of them to be computed reduces the states of all; each of the others takes its part when its turn comes.
    Whether a collective runs depends only on the order in which metrics are computed, which is the same on every
    worker, and never on who has had an update: so workers cannot wait for each other in vain.
    """

    def __init__(self, metrics: Sequence[Summed]) -> None:
        self._metrics = list(metrics)
        self._taken: dict[int, tuple[Tensor, Tensor, list[Tensor] | None]] = {}

    def reduce(self, metric: Summed, group: Any) -> tuple[Tensor, list[Tensor] | None]:
        """The state of ``metric`` over all workers: its sums and its per-query values."""
        if id(metric) not in self._taken:
            self._collect(metric, group)
        before, sums, rows = self._taken.pop(id(metric))
        if before is not metric.sums:
            raise RuntimeError(
                "Expected no update between the compute of one metric of a collection and the next, got an update of"
                " this one after its state was reduced with the others: compute the whole collection at once"
            )
        return sums, rows

    def _collect(self, metric: Summed, group: Any) -> None:
        alone = group is not metric.process_group
        together = [m for m in self._metrics if m.process_group is group and m.reducible()]
        metrics = [metric] if alone or not any(m is metric for m in together) else together
        reduced = all_reduce(metrics, group)
        self._taken = {id(m): (m.sums, *state) for m, state in zip(metrics, reduced)}


def all_reduce(metrics: Sequence[Summed], group: Any) -> list[tuple[Tensor, list[Tensor] | None]]:
    """Sum the states of several metrics over the workers of a group in one collective.

    Per-query values take one more, and come in the order of the workers.
    """
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    keepers = [m for m in metrics if m.rows is not None]
    device = metrics[0].sums.device
    rows = [_flat(m.rows or [], device) for m in keepers]
    sizes = torch.zeros((world, len(keepers)), dtype=real(device), device=device)
    sizes[rank] = sizes.new_tensor([float(len(r)) for r in rows])
    everything = torch.cat([*(m.sums.to(device).reshape(-1) for m in metrics), sizes.reshape(-1)])
    dist.all_reduce(everything, group=group)

    states = everything[: everything.numel() - sizes.numel()]
    sums = [part.reshape(m.sums.shape) for m, part in zip(metrics, states.chunk(len(metrics)))]
    gathered: dict[int, list[Tensor]] = {}
    if keepers:
        counts = everything[-sizes.numel() :].reshape(world, -1).round().long().tolist()
        parts = _all_gather(torch.cat(rows), [sum(count) for count in counts], group)
        split = [part.split(count) for part, count in zip(parts, counts)]
        gathered = {id(m): [by_worker[i] for by_worker in split] for i, m in enumerate(keepers)}
    return [(total, gathered.get(id(m))) for m, total in zip(metrics, sums)]


def _flat(rows: list[Tensor], device: torch.device) -> Tensor:
    return torch.cat([torch.empty((0, 2), dtype=real(device), device=device), *(r.to(device) for r in rows)])


def _all_gather(rows: Tensor, sizes: list[int], group: Any) -> list[Tensor]:
    """The rows [n, 2] of every worker, of known numbers that may differ: one collective, none if all are empty."""
    longest = max(sizes)
    if not longest:
        return [rows[:0] for _ in sizes]
    padded = torch.nn.functional.pad(rows, (0, 0, 0, longest - len(rows)))
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded, group=group)
    return [part[:size] for part, size in zip(gathered, sizes)]
