"""Small inputs with one wide, long or tied part. Their evaluation must need little time and memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import torchrank as tr
from benchmarks.data import normal, seeded
from benchmarks.plan import Contender, Data, Prepared, Shape

#: megabytes that an evaluation may need beyond a multiple of the input
ROOM_MB = 64
#: this multiple
TIMES = 10
#: largest number of seconds for an evaluation
SECONDS = 5

SUITE = "ndcg@10 mrr map recall@100"


@dataclass(frozen=True)
class Case:
    """An input and its evaluation."""

    #: sizes by name
    shape: Shape
    #: sizes for a smoke test
    quick: Shape
    #: megabytes of the input
    size: float
    #: function from sizes to arguments by name
    make: Callable[..., dict[str, Any]]
    #: function that evaluates the arguments
    run: Callable[..., Any]
    #: most megabytes that the evaluation may need; None = by the size of the input
    most: float | None = None

    def data(self, shape: Shape, device: str) -> Data:
        """The input of a shape."""
        return Data(device=device, arguments=self.make(**shape))

    @property
    def contender(self) -> Contender:
        """This library on the input."""
        return lambda data: Prepared(lambda: self.run(**data.arguments))


def integers(high: int, shape: tuple[int, ...], seed: int = 1) -> torch.Tensor:
    """Random integers from 0 to ``high`` - 1."""
    return torch.randint(high, shape, generator=seeded("cpu", seed))


def updated(measures: str = SUITE) -> Callable[..., Any]:
    """An update of a suite with the arguments ``preds``, ``target`` and optionally ``indexes``."""

    def run(preds: Any, target: Any, **more: Any) -> None:
        tr.RankingCollection(measures.split()).update(preds, target, **more)

    return run


def scored(ranked: Callable[..., tr.Ranking], measures: str = SUITE) -> Callable[..., Any]:
    """The values of a suite for a ranking, which ``ranked`` makes from the arguments."""
    return lambda **arguments: tr.RankingCollection(measures.split()).score(ranked(**arguments))


def ids(queries: int, positions: int, relevant: int) -> dict[str, Any]:
    """Long lists of ids with many relevant ones."""
    order = torch.rand(queries, 2 * positions, generator=seeded("cpu")).argsort(-1)
    return {"preds": order[:, :positions].clone(), "target": order[:, -relevant:].clone()}


def one_wide(queries: int, relevant: int) -> list[torch.Tensor]:
    """One relevant item for each query, and very many for a query in the middle."""
    items = list(torch.arange(queries).unsqueeze(-1))
    items[queries // 2] = torch.arange(relevant)
    return items


def wide_ids(queries: int, relevant: int) -> dict[str, Any]:
    """Short lists of ids, and one query with many relevant ones."""
    return {"ids": torch.arange(10 * queries).view(queries, 10), "relevant": one_wide(queries, relevant)}


def wide_scores(queries: int, relevant: int) -> dict[str, Any]:
    """Scores of items that are all relevant for one of the queries."""
    return {"scores": normal((queries, relevant), "cpu"), "relevant": one_wide(queries, relevant)}


def wide_excluded(queries: int, items: int, relevant: int, excluded: int) -> dict[str, Any]:
    """Scores, very many relevant items for one query in ten, and very many excluded pairs."""
    made = [torch.arange(relevant if query % 10 == 0 else 5) for query in range(queries)]
    pairs = integers(queries, (excluded,)), integers(items, (excluded,), seed=2)
    return {"preds": normal((queries, items), "cpu"), "target": made, "exclude": pairs}


def wide_run(queries: int, documents: int) -> dict[str, Any]:
    """A run with short lists for all queries and a long list for one."""
    score = torch.rand(documents, generator=seeded("cpu")).tolist()
    found = [f"d{number}" for number in range(documents)]
    qrels = {f"q{query}": dict.fromkeys(found[:3], 1) for query in range(queries)}
    run = {query: dict(zip(found[:10], score)) for query in qrels}
    run[f"q{queries // 2}"] = dict(zip(found, score))
    return {"qrels": qrels, "run": run}


def wide_user(queries: int, items: int, dimensions: int, relevant: int) -> dict[str, Any]:
    """Embeddings, with many relevant items for one query."""
    made = normal((queries + items, dimensions), "cpu")
    return {"queries": made[:queries], "items": made[queries:], "relevant": one_wide(queries, relevant)}


def wide_rows(queries: int, longest: int) -> dict[str, Any]:
    """Rows of short lists and one long list."""
    sizes = torch.full((queries,), 3)
    sizes[queries // 2] = longest
    rows = int(sizes.sum())
    indexes = torch.repeat_interleave(torch.arange(queries), sizes)
    return {"preds": normal((rows,), "cpu"), "target": integers(2, (rows,)), "indexes": indexes}


def lists(queries: int, candidates: int) -> dict[str, Any]:
    """Scores and grades."""
    return {"preds": normal((queries, candidates), "cpu"), "target": integers(2, (queries, candidates))}


def rows_of_one(rows: int) -> dict[str, Any]:
    """Flat rows with a different query for each."""
    return {"preds": normal((rows,), "cpu"), "target": integers(2, (rows,)), "indexes": torch.arange(rows)}


def shuffled_rows(rows: int, queries: int) -> dict[str, Any]:
    """Flat rows in no order, a tenth of them relevant."""
    relevant = integers(10, (rows,)) == 0
    return {"preds": normal((rows,), "cpu"), "target": relevant.long(), "indexes": integers(queries, (rows,), seed=2)}


def tied(queries: int, candidates: int, below: int = 0) -> dict[str, Any]:
    """Equal scores, as of an untrained model. A fifth is relevant, and ``below`` is the grade of the others."""
    relevant = integers(5, (queries, candidates)) == 0
    return {"preds": torch.zeros(queries, candidates), "target": torch.where(relevant, 1, below)}


def serendipity(ids: torch.Tensor, relevant: list[torch.Tensor]) -> None:
    """Serendipity of short lists."""
    tr.Serendipity(interactions=torch.ones(10 * len(ids) + 1)).update(ids, relevant)


def curve(preds: torch.Tensor, target: torch.Tensor, indexes: torch.Tensor) -> Any:
    """The median of the precision-recall curves of all queries."""
    from torchrank.retrieval import RetrievalPrecisionRecallCurve

    metric = RetrievalPrecisionRecallCurve(aggregation="median")
    metric.update(preds, target, indexes=indexes)
    return metric.compute()


def precision(preds: torch.Tensor, target: torch.Tensor, indexes: torch.Tensor) -> Any:
    """The class of ``torchrank.retrieval``, which keeps its rows."""
    from torchrank.retrieval import RetrievalPrecision

    metric = RetrievalPrecision(top_k=10)
    metric.update(preds, target, indexes=indexes)
    return metric.compute()


def blocks(scores: torch.Tensor, relevant: list[torch.Tensor]) -> tr.Ranking:
    """A ranking from score blocks."""
    return tr.Ranking.from_score_blocks(list(scores.split(2000, dim=1)), relevant)


def from_ids(queries: int, positions: int, relevant: int, size: float) -> Case:
    """A case with long lists of ids."""
    shape = {"queries": queries, "positions": positions, "relevant": relevant}
    return Case(shape, {"queries": 2, "positions": 50, "relevant": 20}, size, ids, updated())


def from_embeddings(relevant: int) -> Case:
    """A case with many relevant items for one user."""
    shape = {"queries": 4096, "items": 100_000, "dimensions": 64, "relevant": relevant}
    quick = {"queries": 20, "items": 300, "dimensions": 4, "relevant": 50}
    return Case(shape, quick, 27, wide_user, scored(tr.Ranking.from_embeddings, "ndcg@10 recall@100 mr"))


def tie(measures: str, queries: int = 100, below: int = 0) -> Case:
    """A case in which all scores are equal."""
    shape, quick = {"queries": queries, "candidates": 20_000}, {"queries": 2, "candidates": 200}
    return Case({**shape, "below": below}, {**quick, "below": below}, 12 * queries / 50, tied, updated(measures))


NARROW = {"queries": 20_000, "relevant": 20_000}
FEW = {"queries": 20, "relevant": 50}
ROWS, SOME = {"rows": 4_000_000, "queries": 60_000}, {"rows": 500, "queries": 20}

CASES: dict[str, Case] = {
    "ids, 1 x 100,000, 5,000 relevant": from_ids(1, 100_000, 5000, 0.8),
    "ids, 1 x 1,000,000, 5,000 relevant": from_ids(1, 1_000_000, 5000, 8),
    "ids, 1,000 x 10,000, 500 relevant": from_ids(1000, 10_000, 500, 84),
    "ids, one wide": Case(NARROW, FEW, 2, wide_ids, scored(tr.Ranking.from_ids)),
    "scores, one wide": Case(
        {**NARROW, "queries": 1000},
        FEW,
        80,
        wide_scores,
        scored(lambda scores, relevant: tr.Ranking.from_scores(scores, relevant)),
    ),
    "score blocks, one wide": Case({**NARROW, "queries": 1000}, FEW, 80, wide_scores, scored(blocks)),
    "1,000,000 excluded, some wide": Case(
        {"queries": 1000, "items": 20_000, "relevant": 1500, "excluded": 10**6},
        {"queries": 20, "items": 200, "relevant": 50, "excluded": 500},
        98,
        wide_excluded,
        updated(),
    ),
    "run, one wide": Case(
        {"queries": 20_000, "documents": 20_000},
        {"queries": 20, "documents": 50},
        20,
        wide_run,
        scored(tr.Ranking.from_run),
    ),
    "Serendipity, one wide": Case(NARROW, FEW, 2, wide_ids, serendipity),
    "curve, one long": Case(
        {"queries": 20_000, "longest": 20_000}, {"queries": 20, "longest": 50}, 1.6, wide_rows, curve
    ),
    **{f"embeddings, one wide, {relevant:,} relevant": from_embeddings(relevant) for relevant in (100, 1000, 20_000)},
    "2,000,000 queries of 8": Case(
        {"queries": 2_000_000, "candidates": 8}, {"queries": 200, "candidates": 8}, 192, lists, updated("ndcg@10")
    ),
    "2,000,000 rows of one": Case({"rows": 2_000_000}, {"rows": 200}, 40, rows_of_one, updated("ndcg@10")),
    "4,000,000 rows in no order": Case(ROWS, SOME, 80, shuffled_rows, updated(), most=200),
    "4,000,000 rows in no order, kept": Case(ROWS, SOME, 80, shuffled_rows, precision, most=100),
    "1 list of 10,000,000": Case(
        {"queries": 1, "candidates": 10**7}, {"queries": 1, "candidates": 500}, 120, lists, updated("ndcg@10")
    ),
    **{f"all tied, {name}": tie(name) for name in ("err", "nerr", "erria", "nrbp", "auroc(max_fpr=0.1)@10000")},
    "all tied, infap": tie("infap", queries=20, below=-1),
}
