"""The evaluation of runs with judgments: all numbers of one or several systems."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchrank.evaluation.evaluation import Evaluation
from torchrank.evaluation.options import Options, Precision, Queries, Unjudged, identical, with_parameters
from torchrank.metrics.incomplete_judgments import Judged
from torchrank.names.presets import CUTOFFS
from torchrank.names.presets import preset as preset_of
from torchrank.ranking.ranking import Ranking
from torchrank.state.measure import Measure
from torchrank.tables import rankings as _rankings  # noqa: F401 - sets Ranking.from_run's function
from torchrank.tables.frames import is_columns
from torchrank.tables.sources import read_qrels, read_run
from torchrank.tables.table import Qrels, Run, Ties
from torchrank.wrappers.query_table import QueryTable
from torchrank.wrappers.suites import Suite, collection_of, measures_of

#: the measures if neither measures nor a preset are given
MEASURES = "ndcg@10 map mrr recall@100"

#: the rank up to which unjudged documents are counted, if no measure has a cutoff
DEPTH = 10


def evaluate(
    qrels: Any,
    run: Any,
    measures: Suite | None = None,
    *,
    preset: str | None = None,
    queries: Queries | None = None,
    ignore_identical_ids: bool | None = None,
    precision: Precision | None = None,
    ties: Ties | None = None,
    depth: int | None = None,
    relevance_level: float | None = None,
    unjudged: Unjudged | None = None,
) -> Evaluation:
    """Evaluate one or several runs with the same judgments.

    Args:
        qrels: judgments: any source that :func:`torchrank.read_qrels` takes, e.g. a path or ``{query: {document:
            grade}}``.
        run: a run: any source that :func:`torchrank.read_run` takes, e.g. a path or ``{query: {document: score}}``; or
            several, ``{name: run}``; or a list of paths, whose names are those of the files.
        measures: names separated by blanks, metrics, or a collection; default: ``"ndcg@10 map mrr recall@100"``, or
            all of the preset at the cutoffs of the tool.
        preset: a tool, whose measures and options are the defaults of all other arguments: "trec_eval" (10),
            "trec_eval9" (pytrec_eval), "beir", "beir_custom" (its ``evaluate_custom``), "mteb" or "msmarco".
        queries: the queries over which means are taken: "judged", all of ``qrels``, a run that lacks a query has
            retrieved nothing for it (``trec_eval -c``), and has no value of measures whose low values are good, as
            ``mr``; "both", the judged queries of the run (``trec_eval``, BEIR). The report has the other mean, too, if
            they differ. Default: "judged".
        ignore_identical_ids: leave out documents whose id is the id of the query, as BEIR does; default: False.
        precision: "double" compares scores as they are; "single" after rounding to float32, as pytrec_eval and the
            libraries on it do, in which close scores tie. Default: "double".
        ties: the order of equal scores, as :func:`torchrank.read_run`.
        depth: keep the first documents of each query only, as ``trec_eval -M``; None = all of them.
        relevance_level: the lowest relevant grade, as ``trec_eval -l``, of all measures that have this parameter and
            whose names do not set it. ``measures`` must be names.
        unjudged: the treatment of unjudged documents, likewise; "condensed" removes them, as ``trec_eval -J``.

    Returns:
        An :class:`Evaluation`: means with intervals, values of all queries, coverage and comparisons.

    Raises:
        ReadingError: a source cannot be read.
        ValueError: the judgments and a run have no query in common, an argument has an unknown value, ``depth`` is
            given although ties are expected values, or a parameter is given although a measure is not a name.

    Example:
        >>> import torchrank as tr
        >>> qrels = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}}
        >>> found = tr.evaluate(qrels, {"q1": {"b": 0.9, "a": 0.5}, "q2": {"c": 0.3, "d": 0.2}}, "mrr ndcg@10")
        >>> found.means["run"]["mrr"], found.tables["run"].columns["mrr"].tolist()
        (0.75, [0.5, 1.0])
    """
    given = {"queries": queries, "ignore_identical_ids": ignore_identical_ids, "precision": precision}
    options = Options.of(preset, depth=depth, **given)
    if measures is None:
        measures = MEASURES if preset is None else preset_of(preset, *CUTOFFS[preset])
    suite = collection_of(with_parameters(measures, relevance_level=relevance_level, unjudged=unjudged))
    judgments = read_qrels(qrels)
    metrics = measures_of(suite, "evaluate", means=False)
    first = min((metric.top_k for metric in metrics.values() if metric.top_k), default=DEPTH)
    tables: dict[str, QueryTable] = {}
    other: dict[str, QueryTable] = {}
    rankings: dict[str, Ranking] = {}
    coverage: list[dict[str, Any]] = []
    for name, source in _named(run).items():
        read = read_run(source, ties=ties)
        _check_queries(judgments, read, name)
        itself = identical(read)
        found_itself = len(np.unique(read.query[itself]))
        read = options.apply(read, itself)
        ranking = Ranking.from_run(judgments, read)
        inside = _in_run(judgments, read)
        values = _without_missing(suite.score(ranking), metrics, inside)
        whole = QueryTable(_ids(judgments), values, metrics=dict(metrics))
        found = whole if options.queries == "judged" else whole.where(inside)
        if not inside.all():
            other[name] = whole.where(inside) if options.queries == "judged" else whole
        tables[name] = found
        judged_only = Ranking.join(ranking.parts())  # without the run, which takes far more memory
        rankings[name] = judged_only if options.queries == "judged" else judged_only.take(torch.from_numpy(inside))
        judged = Judged(top_k=first).score(ranking).numpy()[inside]
        coverage.append(
            {
                "run": name,
                "queries": len(found),
                "judged": len(judgments.queries),
                "missing": int((~inside).sum()),
                "without judgments": len(read.queries) - int(inside.sum()),
                "no relevant": int((ranking.num_relevant(1) == 0).sum()),
                f"unjudged@{first}": float(1 - judged.mean()) if len(judged) else float("nan"),
                "found itself": found_itself,
            }
        )
    return Evaluation(tables, other, coverage, options.queries, options.ignore_identical_ids, rankings)


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
