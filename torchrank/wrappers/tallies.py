"""Vectors of sums over the queries of a batch, one vector for each way to weight the queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from torchrank.hardware.devices import scalar
from torchrank.state import sums
from torchrank.state.estimates import Estimate, estimate
from torchrank.state.measure import Measure
from torchrank.state.scoring import reduce
from torchrank.state.values import Status, Values

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

    def sums(self, values: Values, ids: Tensor | None, groups: Sequence[Members]) -> Tensor:
        """The sums over each group of queries, from values [metric, query]: float [group, size]."""
        metrics = list(self.metrics.values())
        return torch.stack([torch.cat(reduce(metrics, within(values, members))) for members in groups])

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


def within(values: Values, members: Members) -> Values:
    """Values in which only the members of a group count."""
    if members is None:
        return values
    if members.is_cpu:  # then the sums of a small group cost little
        return values.take(members.nonzero().squeeze(1))
    absent = scalar(Status.ABSENT, values.status.dtype, values.status.device)
    return replace(values, status=torch.where(members, values.status, absent))
