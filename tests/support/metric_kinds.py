"""A metric for each kind of state, batches for them, and the results that they must have."""

import itertools
import math
import statistics
from collections import Counter
from typing import Any, NamedTuple

import torch

import torchrank as tr
from tests.support import layout_cases
from tests.support.cases import cases


def spread(values):
    return values.max() - values.min()


class Kind(NamedTuple):
    """A metric with one kind of state."""

    cls: type[tr.RankingMetric]
    parameters: dict[str, Any] = {}

    def make(self, **kwargs):
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

each_state = cases("kind", [KINDS[name] for name in ("sums", "sums, mean adjusted", "kept, none")])

CLASSES = list(tr.RankingMetric.registry.values())

every_class = cases("cls", CLASSES, ids=lambda cls: cls.name)


OTHERS = layout_cases.OTHERS | {
    "aggregation": ["geometric", "harmonic", "median", "min", "max", "none", spread],
    "relevance_level": [2, 0.5, 1e-07, 1.5],
    "beta": [0.75, 0.5, 1e-3],
    "log_base": [10, 2.5, math.e],
    "top_k": [1, 10, 1000],
}


#: Parameters of more than half of the measures.
NUMBERS = Counter(name for cls in CLASSES for name in cls.definition())
SHARED = {name for name, number in NUMBERS.items() if number > len(CLASSES) / 2}


def variants(cls):
    """Metrics of a class that differ from the default in one parameter, and some in two."""
    names = [*cls.definition(), *(["top_k"] if cls.takes_top_k else [])]
    assert set(names) <= OTHERS.keys(), f"{cls.__name__} has parameters for which there are no values to try"
    known = {"ties": (*cls.policies, "realistic"), "unjudged": cls.takes_unjudged_for}
    tried = [(name, value) for name in names for value in OTHERS.get(f"{cls.name}.{name}", OTHERS[name])]
    options = [(n, v) for n, v in tried if v != cls.definition().get(n) and v in known.get(n, [v])]
    if cls not in (tr.NDCG, tr.MAP):  # parameters that most measures have are the same code: one value of each
        options = [option for n in names for option in [o for o in options if o[0] == n][: 1 if n in SHARED else None]]
    for chosen in [(), *((o,) for o in options), *list(itertools.combinations(options, 2))[::37]]:
        kwargs = dict(chosen)
        if len(kwargs) == len(chosen):
            try:
                yield kwargs, cls(**kwargs)
            except ValueError:  # some do not go together
                needs_more = kwargs.keys() & {"average", "bounded"}
                if len(kwargs) == 1 and not needs_more and kwargs not in ({"ties": "realistic"}, {"normalize": "k"}):
                    raise


def with_cutoff(cls, **kwargs):
    return cls(**({"top_k": 3} if cls.takes_top_k else {}), **kwargs)


def batch(seed, queries=5):
    """Scores with ties and graded targets; the second query has nothing relevant."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 12, (queries, 7), generator=generator) / 2
    target = torch.randint(0, 4, (queries, 7), generator=generator) * (torch.rand(7, generator=generator) < 0.6)
    target[1:2] = 0
    return scores, target


BATCHES = [batch(seed, queries) for seed, queries in ((1, 5), (2, 1), (3, 6))]

ALL = tuple(torch.cat(parts) for parts in zip(*BATCHES))

NAN = float("nan")


SCORED = {}


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
    return fill(kind.make(**kwargs), batches)


def fill(metric, batches):
    for arguments in batches:
        metric.update(*arguments)
    return metric
