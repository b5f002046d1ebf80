"""The evaluation of runs with judgments: all numbers of one or several systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchrank.evaluation.evaluation import Evaluation
from torchrank.evaluation.parts import Evaluator, Part, Precision, Queries, check_queries
from torchrank.layouts.progress import progress_bar
from torchrank.tables.chunks import Chunks
from torchrank.tables.frames import is_columns
from torchrank.tables.table import Qrels, Ties
from torchrank.wrappers.query_table import QueryTable
from torchrank.wrappers.suites import Suite


def evaluate(
    qrels: Any,
    run: Any,
    measures: Suite = "ndcg@10 map mrr recall@100",
    *,
    queries: Queries = "judged",
    ignore_identical_ids: bool = False,
    precision: Precision = "double",
    ties: Ties | None = None,
    progress: bool = False,
) -> Evaluation:
    """Evaluate one or several runs with the same judgments.

    Args:
        qrels: judgments: any source that :func:`torchrank.read_qrels` takes, e.g. a path or ``{query: {document:
            grade}}``.
        run: a run: any source that :func:`torchrank.read_run` takes, e.g. a path or ``{query: {document: score}}``; or
            several, ``{name: run}``; or a list of paths, whose names are those of the files. A run that is larger than
            memory is given by :func:`torchrank.tables.read_chunks`; files of 64 MB or more are read so by themselves,
            if the rows of each query are together.
        measures: names separated by blanks, metrics, or a collection.
        queries: the queries over which means are taken: "judged", all of ``qrels``, a run that lacks a query has
            retrieved nothing for it (``trec_eval -c``); "both", the judged queries of the run (``trec_eval``, BEIR).
            The report has the other mean, too, if they differ.
        ignore_identical_ids: leave out documents whose id is the id of the query, as BEIR does by default.
        precision: "double" compares scores as they are; "single" after rounding to float32, as pytrec_eval and the
            libraries on it do, in which close scores tie.
        ties: the order of equal scores, as :func:`torchrank.read_run`.
        progress: show a progress bar if it takes more than a second; requires tqdm.

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
    evaluator = Evaluator.of(qrels, measures, "evaluate", False, queries, ignore_identical_ids, precision, ties)
    tables: dict[str, QueryTable] = {}
    other: dict[str, QueryTable] = {}
    coverage: list[dict[str, Any]] = []
    with progress_bar(progress, "evaluating", "query", delay=1) as step:
        for name, source in _named(run).items():
            if step is not None:
                step(len(evaluator.numbers))
            parts = evaluator.all_parts(source, None if step is None else lambda count: step(-count))
            check_queries(evaluator, parts, name)
            tables[name], inside, row = _joined(evaluator, parts)
            whole = tables[name]
            if queries == "both":
                tables[name] = whole.where(inside)
            if not inside.all():
                other[name] = whole.where(inside) if queries == "judged" else whole
            coverage.append({"run": name, "queries": len(tables[name]), **row})
            if step is not None:
                step(-int((~inside).sum()))
    return Evaluation(tables, other, coverage, queries, ignore_identical_ids)


def _joined(evaluator: Evaluator, parts: Sequence[Part]) -> tuple[QueryTable, np.ndarray, dict[str, Any]]:
    """The values of all judged queries, bool [query] of those in the run, and a row of the coverage."""
    number = len(evaluator.numbers)
    inside = np.zeros(number, dtype=bool)
    for part in parts:
        inside[part.at] = True
    missing = np.flatnonzero(~inside)
    pieces = [(part.at, part.values) for part in parts] + [(missing, evaluator.absent(missing))]
    columns = {label: np.zeros(number, dtype=np.float64) for label in evaluator.metrics}
    for at, values in pieces:
        for label, column in columns.items():
            column[at] = values[label]
    judged = np.zeros(number, dtype=np.float64)
    for part in parts:
        judged[part.at] = part.judged
    row = {
        "judged": number,
        "missing": len(missing),
        "without judgments": sum(part.queries - len(part.at) for part in parts),
        "no relevant": evaluator.no_relevant,
        f"unjudged@{evaluator.depth}": float(1 - judged[inside].mean()) if inside.any() else float("nan"),
        "found itself": sum(part.found_itself for part in parts),
    }
    return QueryTable(_ids(evaluator.qrels), columns, metrics=dict(evaluator.metrics)), inside, row


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
    if isinstance(run, Chunks):
        return {_stem(run.name) if run.name else "run": run}
    return {_stem(run) if isinstance(run, str | Path) else "run": run}


def _stem(path: str | Path) -> str:
    """The name of a file without folders and endings such as .run.gz."""
    name = Path(path).name
    return name.removesuffix(".gz").rsplit(".", 1)[0] or name


def _ids(qrels: Qrels) -> np.ndarray:
    """The ids of the judged queries, as texts or integers."""
    ids = qrels.query_ids
    return np.array(ids) if all(isinstance(one, int) for one in ids) else np.array(ids, dtype=object)
