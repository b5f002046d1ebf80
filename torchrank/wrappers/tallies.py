"""Vectors of sums over the queries of a batch, one vector for each way to weight the queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free, widest_float
from torchrank.state import sums
from torchrank.state.estimates import Estimate, estimate
from torchrank.state.measure import Measure
from torchrank.state.measurements import Measurements
from torchrank.state.scoring import weigh
from torchrank.wrappers.suites import some_of

#: membership of queries: bool [query], or None = all queries
Members = Tensor | None


class PlainTally:
    """The sums of each metric: :class:`torchrank.state.sums.Sum`, one metric after the other."""

    #: whether each query needs an id
    needs_ids = False
    #: text that defines the sums, besides the metrics
    definition = ""
    #: the level of intervals if none is given
    level = 0.95

    def __init__(self, metrics: Mapping[str, Measure]) -> None:
        #: the metrics by key
        self.metrics = metrics
        #: number of the sums of means, which come first, and of all sums
        self.num_plain = self.size = len(metrics) * sums.SIZE

    def sums(
        self, measured: Measurements, weights: Tensor | None, ids: Tensor | None, groups: Sequence[Members]
    ) -> Tensor:
        """The sums over each group of queries: float [group, size]."""
        found = []
        for members in groups:
            results = weigh(list(self.metrics.values()), *within(measured, weights, members))
            found.append(torch.cat([result.sums for result in results]))
        return torch.stack(found)

    def of_metrics(self, state: Tensor) -> dict[str, Tensor]:
        """The sums [..., SIZE] of each metric by key, from sums [..., size] of a group."""
        parts = state[..., : self.num_plain].unflatten(-1, (-1, sums.SIZE))
        return {key: parts[..., n, :] for n, key in enumerate(self.metrics)}

    def values(self, state: Tensor) -> dict[str, Tensor]:
        """The results to report, by key, from sums [size]: float64 []."""
        return {key: self.metrics[key].value_of(part) for key, part in self.of_metrics(state).items()}

    def estimates(self, state: Tensor, level: float, method: str) -> dict[str, Estimate]:
        """The estimates by key, from sums [size]."""
        return {
            key: estimate(self.metrics[key], part, None, level, method) for key, part in self.of_metrics(state).items()
        }

    def errors(self, state: Tensor) -> Tensor:
        """Counters of bad values [kind], from sums [group, size]: for each kind the largest of all metrics."""
        parts = torch.stack(list(self.of_metrics(state).values()))
        return parts[..., sums.Sum.ERRORS :].flatten(0, -2).amax(0)


def within(measured: Measurements, weights: Tensor | None, members: Members) -> tuple[Measurements, Tensor | None]:
    """Measurements and weights in which only the members of a group count."""
    if members is None:
        return measured, weights
    if reading_is_free(members):  # then the sums of a small group cost little
        at = members.nonzero().squeeze(-1)
        return some_of(measured, at), None if weights is None else weights.to(at.device)[at]
    ones = torch.ones(members.shape, dtype=widest_float(members.device), device=members.device)
    return measured, (ones if weights is None else weights.to(ones)).masked_fill(~members, 0.0)
