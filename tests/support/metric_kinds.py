"""A metric for each kind of state, batches for them, and the results that they must have."""

import math
import statistics
from typing import Any, NamedTuple

import torch
from torch import Tensor

import torchrank as tr
from tests.support.cases import cases


def spread(values: Tensor) -> Tensor:
    return values.max() - values.min()


class Kind(NamedTuple):
    """A metric with one kind of state."""

    cls: type[tr.RankingMetric]
    parameters: dict[str, Any] = {}

    def make(self, **kwargs: Any) -> tr.RankingMetric:
        return self.cls(**self.parameters, **kwargs)


# All candidates of a query are listed in these tests, so that the mean of the adjusted ranks is that of its queries.
KINDS = {
    "sums": Kind(tr.NDCG, {"top_k": 3}),
    "sums, empty skipped": Kind(tr.MR),
    "sums, mean adjusted": Kind(tr.MR, {"adjusted": "index"}),
    "kept, none": Kind(tr.MRR, {"aggregation": "none"}),
    "kept, median": Kind(tr.NDCG, {"aggregation": "median"}),
    "kept, function": Kind(tr.KendallTau, {"aggregation": spread}),
}

every_kind = cases("kind", KINDS.values(), ids=list(KINDS))

each_state = cases(
    "kind", [KINDS[name] for name in ("sums", "sums, mean adjusted", "kept, none")], ids=["sums", "adjusted", "kept"]
)

CLASSES = list(tr.RankingMetric.registry.values())

every_class = cases("cls", CLASSES, ids=lambda cls: cls.name)


def with_cutoff(cls, **kwargs):
    return cls(**({"top_k": 3} if cls.takes_top_k else {}), **kwargs)


def batch(seed: int, queries: int = 5) -> tuple[Tensor, Tensor]:
    """Scores with ties and graded targets; the second query has nothing relevant."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 12, (queries, 7), generator=generator) / 2
    target = torch.randint(0, 4, (queries, 7), generator=generator) * (torch.rand(7, generator=generator) < 0.6)
    target[1:2] = 0
    return scores, target


BATCHES = [batch(seed, queries) for seed, queries in ((1, 5), (2, 1), (3, 6))]

ALL = tuple(torch.cat(parts) for parts in zip(*BATCHES))

NAN = float("nan")


SCORED: dict[Any, Any] = {}


def values_of(metric, scores, target):
    """The values of the queries of a batch, each scored by itself, and once for all tests."""
    key = metric.label, id(scores), id(target)
    if key not in SCORED:  # with the batch, so that no other gets its id
        SCORED[key] = scores, target, [metric.score(s[None], t[None]).item() for s, t in zip(scores, target)]
    return SCORED[key][2]


def aggregated(metric, batches):
    """The expected value of batches: plain Python on its values for one query at a time."""
    rows = [row for batch in batches for row in values_of(metric, *batch)]
    if metric.aggregation == "none":
        return rows
    rows = [row for row in rows if not math.isnan(row)]
    if not rows:
        return NAN
    if callable(metric.aggregation):
        return max(rows) - min(rows)
    how = {"mean": statistics.fmean, "sum": math.fsum, "median": statistics.median_low, "min": min, "max": max}
    return how[metric.aggregation](rows)


def check(value, expected):
    expected = torch.tensor(expected, dtype=torch.float32)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected, equal_nan=True, rtol=1e-6, atol=1e-7)


def filled(kind, batches=BATCHES, **kwargs):
    metric = kind.make(**kwargs)
    for preds, target in batches:
        metric.update(preds, target)
    return metric


def fill(metric, batches):
    for arguments in batches:
        metric.update(*arguments)
    return metric
