"""The evaluation of runs with judgments: all numbers of one or several systems."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from torchrank.evaluation.evaluation import Evaluation
from torchrank.metrics.incomplete_judgments import Judged
from torchrank.names.arguments import one_of
from torchrank.ranking.ranking import Ranking
from torchrank.state.measure import Measure
from torchrank.tables import rankings as _rankings  # noqa: F401 - sets Ranking.from_run's function
from torchrank.tables.frames import is_columns
from torchrank.tables.ids import KeyIds
from torchrank.tables.sources import read_qrels, read_run
from torchrank.tables.table import Qrels, Run, Ties
from torchrank.wrappers.query_table import QueryTable
from torchrank.wrappers.suites import Suite, collection_of, measures_of

#: the queries over which means are taken
Queries = Literal["judged", "both"]

#: the rank up to which unjudged documents are counted, if no measure has a cutoff
DEPTH = 10


def evaluate(
    qrels: Any,
    run: Any,
    measures: Suite = "ndcg@10 map mrr recall@100",
    *,
    queries: Queries = "judged",
    ignore_identical_ids: bool = False,
    precision: Literal["double", "single"] = "double",
    ties: Ties | None = None,
) -> Evaluation:
    """Evaluate one or several runs with the same judgments.

    Args:
        qrels: judgments: any source that :func:`torchrank.read_qrels` takes, e.g. a path or ``{query: {document:
            grade}}``.
        run: a run: any source that :func:`torchrank.read_run` takes, e.g. a path or ``{query: {document: score}}``; or
            several, ``{name: run}``; or a list of paths, whose names are those of the files.
        measures: names separated by blanks, metrics, or a collection.
        queries: the queries over which means are taken: "judged", all of ``qrels``, a run that lacks a query has
            retrieved nothing for it (``trec_eval -c``), and has no value of measures whose low values are good, as
            ``mr``; "both", the judged queries of the run (``trec_eval``, BEIR). The report has the other mean, too, if
            they differ.
        ignore_identical_ids: leave out documents whose id is the id of the query, as BEIR does by default.
        precision: "double" compares scores as they are; "single" after rounding to float32, as pytrec_eval and the
            libraries on it do, in which close scores tie.
        ties: the order of equal scores, as :func:`torchrank.read_run`.

    Returns:
        An :class:`Evaluation`: means with intervals, values of all queries, coverage and comparisons.

    Raises:
        ReadingError: a source cannot be read.
        ValueError: the judgments and a run have no query in common, or an argument has an unknown value.

    Example:
        >>> import torchrank as tr
        >>> qrels = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}}
        >>> found = tr.evaluate(qrels, {"q1": {"b": 0.9, "a": 0.5}, "q2": {"c": 0.3, "d": 0.2}}, "mrr ndcg@10")
        >>> found.means["run"]["mrr"], found.tables["run"].columns["mrr"].tolist()
        (0.75, [0.5, 1.0])
    """
    one_of("queries", queries, ("judged", "both"))
    one_of("precision", precision, ("double", "single"))
    if not isinstance(ignore_identical_ids, bool):
        raise ValueError(f"Expected ignore_identical_ids to be True or False, got {ignore_identical_ids!r}")
    judgments = read_qrels(qrels)
    suite = collection_of(measures)
    metrics = measures_of(suite, "evaluate", means=False)
    depth = min((metric.top_k for metric in metrics.values() if metric.top_k), default=DEPTH)
    tables: dict[str, QueryTable] = {}
    other: dict[str, QueryTable] = {}
    coverage: list[dict[str, Any]] = []
    for name, source in _named(run).items():
        read = read_run(source, ties=ties)
        _check_queries(judgments, read, name)
        itself = _identical(read)
        found_itself = len(np.unique(read.query[itself]))
        if ignore_identical_ids and itself.any():
            read = _rows(read.columns, ~itself)
        if precision == "single":
            read = read.columns  # dictionaries would be read again
            read = replace(read, value=read.value.astype(np.float32).astype(np.float64))
        ranking = Ranking.from_run(judgments, read)
        inside = _in_run(judgments, read)
        values = _without_missing(suite.score(ranking), metrics, inside)
        whole = QueryTable(_ids(judgments), values, metrics=dict(metrics))
        found = whole if queries == "judged" else whole.where(inside)
        if not inside.all():
            other[name] = whole.where(inside) if queries == "judged" else whole
        tables[name] = found
        judged = Judged(top_k=depth).score(ranking).numpy()[inside]
        coverage.append(
            {
                "run": name,
                "queries": len(found),
                "judged": len(judgments.queries),
                "missing": int((~inside).sum()),
                "without judgments": len(read.queries) - int(inside.sum()),
                "no relevant": int((ranking.num_relevant(1) == 0).sum()),
                f"unjudged@{depth}": float(1 - judged.mean()) if len(judged) else float("nan"),
                "found itself": found_itself,
            }
        )
    return Evaluation(tables, other, coverage, queries, ignore_identical_ids)


def _without_missing(
    values: Mapping[str, Tensor], metrics: Mapping[str, Measure], inside: np.ndarray
) -> dict[str, Tensor]:
    """Values without those of queries that the run lacks, of measures whose low values are good."""
    missing = torch.from_numpy(~inside)
    return {
        label: values[label].masked_fill(missing, math.nan) if metric.higher_is_better is False else values[label]
        for label, metric in metrics.items()
    }


def _named(run: Any) -> dict[str, Any]:
    """Runs by name; a single run is named by its file, or "run"."""
    if isinstance(run, Mapping) and not (is_columns(run) and all(np.ndim(one) == 1 for one in run.values())):
        # an empty run, or a query without documents, tells nothing about the depth of the dictionary
        first = next((one for one in run.values() if not isinstance(one, Mapping) or one), {})
        inner = next(iter(first.values()), None) if isinstance(first, Mapping) else None
        several = not isinstance(first, Mapping) or isinstance(inner, Mapping)
        return {str(name): one for name, one in run.items()} if run and several else {"run": run}
    if isinstance(run, list | tuple) and run and all(isinstance(one, str | Path) for one in run):
        names = [_stem(one) for one in run]
        if len(set(names)) < len(names):
            raise ValueError(f"Expected runs with different names, got {names}; pass a dict {{name: path}}")
        return dict(zip(names, run))
    return {_stem(run) if isinstance(run, str | Path) else "run": run}


def _stem(path: str | Path) -> str:
    """The name of a file without folders and endings such as .run.gz."""
    name = Path(path).name
    return name.removesuffix(".gz").rsplit(".", 1)[0] or name


def _keys(table: Qrels | Run) -> Iterable[Any]:
    return table.queries.hashable()


def _in_run(qrels: Qrels, run: Run) -> np.ndarray:
    """bool [query of qrels]: whether the run has it."""
    known = set(_keys(run))
    return np.array([one in known for one in _keys(qrels)], dtype=bool)


def _ids(qrels: Qrels) -> np.ndarray:
    """The ids of the judged queries, as texts or integers."""
    ids = qrels.query_ids
    return np.array(ids) if all(isinstance(one, int) for one in ids) else np.array(ids, dtype=object)


def _check_queries(qrels: Qrels, run: Run, name: str) -> None:
    if len(qrels.queries) and len(run.queries) and not _in_run(qrels, run).any():
        raise ValueError(
            f"Expected queries that are judged in run {name!r}, got none: a query of the run is {run.query_ids[0]!r}, a"
            f" judged query is {qrels.query_ids[0]!r}; use the same ids in both"
        )


def _identical(run: Run) -> np.ndarray:
    """bool [row]: whether the document of a row has the id of its query."""
    if isinstance(run.items, KeyIds) and not any(
        query in table for query, table in zip(run.query_ids, run.items.tables)
    ):
        return np.zeros(len(run), dtype=bool)  # without a column of all documents
    table = run.columns
    queries = table.queries.take(table.query)
    if queries.kind != table.items.kind:
        return np.zeros(len(run), dtype=bool)
    return np.asarray(table.items.same(queries))


def _rows(run: Run, keep: np.ndarray) -> Run:
    """Some rows of a run."""
    at = np.flatnonzero(keep)
    return replace(run, query=run.query[at], items=run.items.take(at), value=run.value[at], known_hashes=None)
