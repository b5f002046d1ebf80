"""``python -m benchmarks --rivals``: small new libraries beside torchrank, each that is installed: numbers and times.

The input is 500 queries of 100 ranked documents, 10 of 1,000 relevant. Each library gets it in the form that it takes,
made before the clock starts: lists of texts there; here :func:`torchrank.evaluate` reads dictionaries of texts with all
100 scores, and ``update`` tensors of integers. All sides take turns, and the shortest run of each counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

import torchrank as tr

QUERIES, LENGTH, ITEMS, RELEVANT, ROUNDS = 500, 100, 1000, 10, 15


class Rival(NamedTuple):
    """One row: what is computed, and a function for each side that returns the number."""

    name: str
    measure: str
    theirs: Callable[[], float]
    #: ``evaluate`` of dictionaries; None for inputs that are tensors
    ours: Callable[[], float] | None
    #: ``update`` of tensors
    tensors: Callable[[], float]


class Lists(NamedTuple):
    """The input in several forms."""

    scores: torch.Tensor
    target: torch.Tensor
    ids: list[list[str]]
    relevant: list[list[str]]

    @classmethod
    def made(cls) -> Lists:
        generator = torch.Generator().manual_seed(0)
        scores = torch.rand(QUERIES, ITEMS, generator=generator)
        target = torch.zeros(QUERIES, ITEMS, dtype=torch.int64)
        target.scatter_(1, torch.rand(QUERIES, ITEMS, generator=generator).topk(RELEVANT).indices, 1)
        scores = scores + 0.3 * target
        ids = [[f"d{i}" for i in row] for row in scores.topk(LENGTH).indices.tolist()]
        return cls(scores, target, ids, [[f"d{i}" for i in row.nonzero().flatten().tolist()] for row in target])

    def evaluated(self, names: str) -> Callable[[], float]:
        """tr.evaluate of dictionaries, with the first of some measures."""
        qrels = {f"q{n}": dict.fromkeys(row, 1) for n, row in enumerate(self.relevant)}
        run = {f"q{n}": {doc: float(-place) for place, doc in enumerate(row)} for n, row in enumerate(self.ids)}
        first = str(next(iter(tr.RankingCollection(names))))
        return lambda: float(tr.evaluate(qrels, run, names).means["run"][first])

    def updated(self, names: str) -> Callable[[], float]:
        """update and compute of integer ids."""
        suite, ids = tr.RankingCollection(names), self.scores.topk(LENGTH).indices
        relevant = self.target.topk(RELEVANT).indices

        def run() -> float:
            suite.reset()
            suite.update(ids, relevant)
            return float(next(iter(suite.compute().values())))

        return run


def rivals(lists: Lists) -> Iterator[Callable[[], Rival]]:
    """The rows; each raises ImportError if its library is not installed."""

    def retrieval_eval_gate() -> Rival:
        from rag_eval_gate.backends import Hit
        from rag_eval_gate.goldset import GoldQuery
        from rag_eval_gate.metrics import aggregate, score_query

        gold = [GoldQuery(str(n), "", frozenset(row)) for n, row in enumerate(lists.relevant)]
        hits = [[Hit(doc) for doc in row] for row in lists.ids]
        names = "ndcg@10 mrr@10 recall@5 recall@10"
        theirs = lambda: aggregate([score_query(*one) for one in zip(gold, hits)])["ndcg@10"]  # noqa: E731
        return Rival("retrieval-eval-gate", names, theirs, lists.evaluated(names), lists.updated(names))

    def rankkit() -> Rival:
        from rankkit.data import Run
        from rankkit.metrics import average_precision, mrr, ndcg

        runs = [
            Run(str(n), tuple(row), dict.fromkeys(found, 1.0))
            for n, (row, found) in enumerate(zip(lists.ids, lists.relevant))
        ]

        def theirs() -> float:
            each = [(ndcg(run, 10), mrr(run, 10), average_precision(run, 10)) for run in runs]
            return sum(one[0] for one in each) / len(each)

        names = "ndcg(gain=exponential)@10 mrr@10 map@10"
        return Rival("rankkit", names, theirs, lists.evaluated(names), lists.updated(names))

    def recsys_eval() -> Rival:
        from recsys_eval.metrics import ndcg_at_k

        gains = [dict.fromkeys(row, 1.0) for row in lists.relevant]
        theirs = lambda: sum(ndcg_at_k(*one, 10) for one in zip(lists.ids, gains)) / QUERIES  # noqa: E731
        return Rival("recsys-eval", "ndcg@10", theirs, lists.evaluated("ndcg@10"), lists.updated("ndcg@10"))

    def warprec() -> Rival:
        from warprec.evaluation.metrics.accuracy.ndcg import nDCGRendle2020

        rows, metric, ours = torch.arange(QUERIES), nDCGRendle2020(k=10, num_users=QUERIES), tr.NDCG(10)

        def theirs() -> float:
            metric.reset()
            metric.update(lists.scores, user_indices=rows, binary_relevance=lists.target.float())
            return float(next(iter(metric.compute().values())).mean())

        def run() -> float:
            ours.reset()
            ours.update(lists.scores, lists.target)
            return float(ours.compute())

        return Rival("WarpRec's module", "ndcg@10", theirs, None, run)

    def rbstar() -> Rival:
        from rbstar.rb_metrics import RBMetric
        from rbstar.rb_ranking import RBRanking

        one, other = lists.scores.topk(LENGTH).indices, (lists.scores + 0.1 * lists.target).topk(LENGTH).indices
        pairs = [[RBRanking([[i] for i in row]) for row in both] for both in zip(one.tolist(), other.tolist())]

        def theirs() -> float:
            metric, total = RBMetric(phi=0.95), 0.0
            for metric._observation, metric._reference in pairs:
                total += metric.rb_alignment().lower_bound
            return total / len(pairs)

        ours = tr.RBA()
        return Rival(
            "RBStar", "rba", theirs, None, lambda: float(ours.score(tr.Ranking.from_rankings(one, other)).mean())
        )

    yield from (retrieval_eval_gate, rankkit, recsys_eval, warprec, rbstar)


def table() -> str:
    """A row for each library that is installed."""
    rows = [
        "| library | measures | there | here | its time, of `evaluate` | of `update` |",
        "|---|---|---|---|---|---|",
    ]
    for made in rivals(Lists.made()):
        try:
            rival = made()
        except ImportError as error:
            rows.append(f"| {made.__name__} | not installed: {error.name} | | | | |")
            continue
        times: dict[Callable[[], float], list[float]] = {side: [] for side in rival[2:] if side is not None}
        values = [f"{side():.6f}" for side in times]
        for _ in range(ROUNDS):
            for side, taken in times.items():
                start = time.perf_counter()
                side()
                taken.append(time.perf_counter() - start)
        theirs, *ours = (min(taken) for taken in times.values())
        ratios = ["", *(f"{theirs / one:.2f}" for one in ours)][-2:]
        here = " and ".join(dict.fromkeys(values[1:]))
        rows.append(f"| {rival.name} | {rival.measure} | {values[0]} | {here} | {' | '.join(ratios)} |")
    return "\n".join(rows)
