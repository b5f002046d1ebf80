"""Contenders: floors, torchrank itself, and plain references that check its numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import torchrank as tr
from benchmarks.plan import Contender, Data, Numbers, Prepared, UnavailableError, cuts, label

#: number of items whose similarities are computed at once
BLOCK = 8192
#: number of queries that a reference computes at once
CHUNK = 64


# ---- floors --------------------------------------------------------------------------------------------------------


def sort(data: Data) -> Prepared:
    """Sort the scores of every query."""
    return Prepared(lambda: data.scores.sort(dim=-1, descending=True))


def best(k: int) -> Contender:
    """torch.topk of all scores."""
    return lambda data: Prepared(lambda: data.scores.topk(k))


def best_k(data: Data) -> Prepared:
    """torch.topk for the k of the data."""
    return Prepared(lambda: data.scores.topk(data.k), lambda found: {"scores": found.values, "at ids": found.values})


def largest(data: Data) -> Prepared:
    """Read every score once."""
    return Prepared(lambda: data.scores.amax(-1))


def sort_keys(data: Data) -> Prepared:
    """One sort for the lists of all queries."""
    return Prepared(lambda: data.keys.sort())


def sort_twice(data: Data) -> Prepared:
    """Sort both scores of every query."""
    return Prepared(lambda: (data.scores.sort(dim=-1), data.target.sort(dim=-1)))


def blocked_product(data: Data) -> Prepared:
    """Compute the similarities, chunk by chunk into one buffer, and do not use them."""
    count = len(data.queries)
    buffer = torch.empty(count * min(BLOCK, len(data.items)), device=data.device, dtype=data.items.dtype)
    blocks = [items.T for items in data.items.split(BLOCK)]

    def product() -> None:
        for items in blocks:
            torch.matmul(data.queries, items, out=buffer[: count * items.shape[1]].view(count, -1))

    return Prepared(product)


# ---- torchrank -----------------------------------------------------------------------------------------------------


def dense(data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``update`` for scores and their target."""
    return (data.scores, data.target), {}


def masked(data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``update`` for scores, their target and a mask of the real candidates."""
    return (data.scores, data.target), {"mask": data.mask}


def listed(data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``update`` for scores and one tensor of relevant ids per query."""
    return (data.scores, list(data.relevant)), {}


def filtered(data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``update`` for scores, their target and pairs to exclude."""
    return (data.scores, data.target), {"exclude": data.exclude}


def ranking(data: Data) -> Prepared:
    """Rank all candidates, and measure nothing."""
    return Prepared(lambda: tr.Ranking.from_scores(data.scores, data.target))


def flat(data: Data) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of ``update`` for flat rows: scores, target and the query of each row."""
    return (data.scores, data.target), {"indexes": data.indexes}


class Suite:
    """torchrank's contenders for a suite of measures.

    States are not reset between repetitions, because an update adds to sums, which takes the same time for all sums.
    """

    def __init__(self, measures: str, arguments: Callable[[Data], Any] = dense) -> None:
        self.measures, self.arguments = measures.split(), arguments

    def _made(self, data: Data) -> tuple[tr.RankingCollection, Callable[[], None]]:
        suite = tr.RankingCollection(self.measures).to(data.device)
        suite.waits = False  # the batch is ranked in the update that is timed
        args, kwargs = self.arguments(data)
        return suite, lambda: suite.update(*args, **kwargs)

    def update(self, data: Data) -> Prepared:
        """An update, the cost of every batch."""
        suite, update = self._made(data)
        return Prepared(update, lambda _: suite.compute())

    def numbers(self, data: Data) -> Prepared:
        """Update and compute, for comparison with peers that do their work in ``compute``."""
        suite, update = self._made(data)

        def run() -> Numbers:
            update()
            return suite.compute()

        return Prepared(run, lambda found: found)

    def compiled(self, data: Data, eager: Contender | None = None) -> Prepared:
        """A contender with compiled kernels; None = an update."""
        if not hasattr(tr, "use_compiled"):
            raise UnavailableError("torchrank has no use_compiled")
        ready = (eager or self.update)(data)
        tr.use_compiled(True)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "torch.compile failed")  # otherwise eager kernels would be measured
                ready.run()
        except UserWarning as warning:
            raise UnavailableError(str(warning).splitlines()[0]) from warning
        finally:
            tr.use_compiled(False)
        return Prepared(ready.run, ready.read, lambda: tr.use_compiled(True), lambda: tr.use_compiled(False))

    def wrapped(
        self,
        make: Callable[[tr.RankingCollection], Any],
        more: Callable[[Tensor], dict[str, Any]] = lambda numbers: {},
        systems: bool = False,
    ) -> Contender:
        """An update of a metric around the suite.

        ``more`` are its further arguments, given the number of each query; ``systems`` = it takes two systems.
        """

        def prepare(data: Data) -> Prepared:
            metric = make(tr.RankingCollection(self.measures)).to(data.device)
            metric.waits = False
            (scores, target), kwargs = self.arguments(data)
            kwargs = kwargs | more(torch.arange(len(data.scores), device=data.device))
            scores = {"a": scores, "b": scores.clone()} if systems else scores
            return Prepared(lambda: metric.update(scores, target, **kwargs), before=metric.reset)

        return prepare

    def embedded(self, data: Data, **options: Any) -> Prepared:
        """An update from embeddings, without the matrix of scores; with options of ``Ranking.from_embeddings``."""
        suite = tr.RankingCollection(self.measures).to(data.device)
        relevant = data.relevant[:, 0] if data.relevant.shape[1] == 1 else data.relevant

        def run() -> None:
            suite.update(tr.Ranking.from_embeddings(data.queries, data.items, relevant, **options))

        return Prepared(run, lambda _: suite.compute())


def retrieval(names: str) -> Contender:
    """torchrank's classes with torchmetrics' names: one class, or a collection of several."""

    def prepare(data: Data) -> Prepared:
        from torchrank import retrieval

        return from_rows(retrieval, names, data)

    return prepare


def our_best_k(data: Data) -> Prepared:
    """The best scores and their ids. The check also reads the scores at these ids."""
    from torchrank.engine.judged import top_k  # older versions of the library do not have it

    def read(found: tuple[Tensor, Tensor]) -> Numbers:
        values, ids = found
        distinct = ids.sort(-1).values.diff(dim=-1).bool().all()
        return {"scores": values, "at ids": data.scores.gather(1, ids) if distinct else torch.full_like(values, -1)}

    return Prepared(lambda: top_k(data.scores, data.k), read)


# ---- rows, whose queries may arrive in pieces ---------------------------------------------------------------------


RETRIEVAL: dict[str, dict[str, Any]] = {
    "MAP": {},
    "MRR": {},
    "NormalizedDCG": {"top_k": 10},
    "Precision": {"top_k": 10},
    "Recall": {"top_k": 10},
    "HitRate": {"top_k": 10},
    "FallOut": {"top_k": 10},
    "RPrecision": {},
    "AUROC": {},
    "PrecisionRecallCurve": {},
    "RecallAtFixedPrecision": {"min_precision": 0.2},
}


def from_rows(library: Any, names: str, data: Data) -> Prepared:
    """An epoch of one batch, by classes of torchrank or torchmetrics, which have the same names and arguments."""
    from torchmetrics import MetricCollection

    made = {name: getattr(library, f"Retrieval{name}")(**RETRIEVAL[name]).to(data.device) for name in names.split()}
    metric = MetricCollection(made) if len(made) > 1 else made[names]

    def run() -> Any:
        metric.reset()
        metric.update(data.scores, data.target, indexes=data.indexes)
        return metric.compute()

    def read(found: Any) -> Numbers:
        parts = found if isinstance(found, tuple) else (found,)
        return found if isinstance(found, dict) else {f"{names} {n}": part for n, part in enumerate(parts)}

    return Prepared(run, read)


# ---- references ----------------------------------------------------------------------------------------------------


def counted(measures: str) -> Contender:
    """Ranks found by counting larger scores, candidate by candidate; measures computed by their formulas."""

    def prepare(data: Data) -> Prepared:
        def run() -> Numbers:
            chunks = range(0, len(data.relevant), CHUNK)
            found = torch.cat([ranks(data, slice(start, start + CHUNK)) for start in chunks])
            found = found.double().sort(1).values
            return {label(name, k): measured(name, k, found) for name, k in cuts(measures)}

        return Prepared(run, lambda found: found)

    return prepare


def ranks(data: Data, rows: slice) -> Tensor:
    """The rank of each relevant candidate of some queries, the middle rank in a tie group: [query, relevant]."""
    relevant = data.relevant[rows]
    scores = data.queries[rows] @ data.items.T if hasattr(data, "queries") else data.scores[rows].clone()
    own = scores.gather(1, relevant)
    if getattr(data, "exclude", None) is not None:
        query, item = data.exclude
        inside = (query >= rows.start) & (query < rows.start + len(relevant))
        scores[query[inside] - rows.start, item[inside]] = -torch.inf
        scores.scatter_(1, relevant, own)
    larger = torch.stack([(scores > one).sum(1) for one in own.split(1, dim=1)], 1)
    equal = torch.stack([(scores == one).sum(1) for one in own.split(1, dim=1)], 1)
    return 1 + larger + (equal - 1) / 2


def measured(name: str, k: int | None, ranks: Tensor) -> Tensor:
    """The mean of a measure over queries, from the ranks of all relevant candidates in ascending order."""
    count = ranks.shape[1]
    number = torch.arange(1, count + 1, dtype=ranks.dtype, device=ranks.device)
    inside = torch.ones_like(ranks) if k is None else (ranks <= k).to(ranks.dtype)
    if name == "ndcg":
        return ((inside / (1 + ranks).log2()).sum(1) / (1 / (1 + number[:k]).log2()).sum()).mean()
    if name == "precision" and k is not None:
        return inside.sum(1).mean() / k
    terms = {
        "mr": ranks,
        "mrr": (inside / ranks)[:, :1],
        "map": inside * number / ranks,
        "recall": inside,
        "hitrate": inside[:, :1],
    }
    return terms[name].mean()
