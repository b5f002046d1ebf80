"""The evaluation of runs with judgments: all numbers of one or several systems."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch

from torchrank.collection.collection import check_one_library, keyed, metrics_of, several
from torchrank.evaluation.evaluation import Evaluation
from torchrank.layouts.arrange import progress_bar
from torchrank.metrics.subtopics import IntentMetric
from torchrank.names.arguments import did_you_mean, integer, one_of, warn, with_hints
from torchrank.names.labels import split
from torchrank.names.parse import CUTOFFS, LIBRARIES, OPTIONS, parse_all
from torchrank.names.parse import preset as preset_of
from torchrank.names.types import Unjudged
from torchrank.ranking.ranking import Ranking, numbered
from torchrank.statistics.comparison import LABELS
from torchrank.tables.columns import is_columns, is_frame, is_records
from torchrank.tables.files import EXPANSION
from torchrank.tables.joining import Pairs, ranking_of, tables_of_frame, without
from torchrank.tables.pair_tables import (
    Duplicates,
    KeyIds,
    NothingInCommonError,
    ObjectIds,
    PairTable,
    Parent,
    Qrels,
    ReadingError,
    Run,
    Ties,
    ids_of,
    no_common_query,
)
from torchrank.tables.sources import (
    Chunks,
    QueryReturnsError,
    chunks_of_large,
    named_runs,
    one_of_several,
    read_pairs,
    read_qrels,
    read_run,
    stem,
)
from torchrank.wrappers.compared import rectified_tables
from torchrank.wrappers.per_query import QueryTable
from torchrank.wrappers.suite_metric import Suite, collection_of, measures_of, values_of

Queries = Literal["judged", "both"]
Precision = Literal["double", "single"]

#: the measures if neither measures nor a preset are given
MEASURES = "ndcg@10 map mrr recall@100"


@dataclass(frozen=True)
class Options:
    """The options of all runs; the arguments of :func:`torchrank.evaluate` with their defaults."""

    queries: Queries = "judged"
    ignore_identical_ids: bool = False
    precision: Precision = "double"
    depth: int | None = None
    ties: Ties | None = None
    duplicates: Duplicates = "error"
    expansion: int = EXPANSION
    parent: Parent | None = None
    exclude: Any = None

    @classmethod
    def of(cls, preset: str | None, **arguments: Any) -> Options:
        """Options, with those of a preset in place of None.

        Raises:
            ValueError: the preset or the value of an option is unknown.
        """
        if preset is not None and preset not in OPTIONS:
            other = f"; pass the measures tr.preset({preset!r}, 10)" if preset in LIBRARIES else ""
            hint = other or did_you_mean(str(preset), OPTIONS)
            raise ValueError(f"Expected preset to be one of {', '.join(OPTIONS)}, got {preset!r}{hint}")
        known = OPTIONS[preset] if preset is not None else {}
        options = cls(**{**known, **{name: value for name, value in arguments.items() if value is not None}})
        one_of("queries", options.queries, get_args(Queries))
        one_of("precision", options.precision, get_args(Precision))
        if not isinstance(options.ignore_identical_ids, bool):
            raise ValueError(f"Expected ignore_identical_ids to be True or False, got {options.ignore_identical_ids!r}")
        return replace(options, depth=integer("depth", options.depth, 1))

    @cached_property
    def excluded(self) -> Qrels | None:
        """The pairs that leave the judgments and all runs."""
        return None if self.exclude is None else read_pairs(self.exclude, self.expansion).by_parent(self.parent)

    def apply(self, run: Run, itself: np.ndarray) -> Run:
        """The part of a run that is evaluated, with its scores as they are compared.

        Args:
            run: the run.
            itself: bool [row], the result of :func:`identical`.

        Raises:
            ValueError: tied documents have no order, by which the run could be cut.
        """
        if self.ignore_identical_ids and itself.any():
            run = run.columns.with_rows(np.flatnonzero(~itself))
        if self.precision == "single":
            run = run.columns  # dictionaries would be read again
            with np.errstate(over="ignore"):
                rounded = run.value.astype(np.float32).astype(np.float64)
            # Scores below the range of float32 are tied, and are still scores of retrieved documents.
            below = (rounded == -np.inf) & (run.value > -np.inf)
            run = replace(run, value=np.where(below, np.finfo(np.float64).min, rounded))
        if self.depth is None:
            return run
        if run.ties == "expected":
            raise ValueError("Expected ties='document' or 'rows' with depth, got 'expected'; leave out one of both")
        return run.first(self.depth)


def identical(run: Run) -> np.ndarray:
    """bool [row]: whether the document of a row has the id of its query."""
    if isinstance(run.items, KeyIds):
        if not any(query in table for query, table in zip(run.query_ids, run.items.tables)):
            return np.zeros(len(run), dtype=bool)  # without a column of all documents
        run = run.columns
    queries, items = run.queries.take(run.query), run.items
    return np.asarray(items.equals(queries) if items.kind == "objects" else queries.equals(items))


def metrics_by_key(measures: Suite, **parameters: Any) -> Mapping[str, Any]:
    """The metrics of a suite, by the names by which they are asked for, with further parameters.

    Parameters in the name of a measure go before.

    Args:
        measures: names, or metrics if all parameters are None.
        parameters: parameters by name, for the measures that have them; None = not given.

    Raises:
        ValueError: a measure is not given by its name.
    """
    wanted = {name: value for name, value in parameters.items() if value is not None}

    def with_parameters(name: Any) -> list[Any]:
        if not isinstance(name, str):
            which = f"{' and '.join(wanted)}, got {name!r}; give the parameter to the measure"
            raise ValueError(f"Expected names of measures with {which}")
        return parse_all(name, wanted)

    suite: Any = list(measures) if several(measures) else measures  # a generator is read once
    if isinstance(measures, Mapping):
        if wanted:
            several_of = {key: with_parameters(name) for key, name in measures.items()}
            suite = {key: found[0] if len(found) == 1 else measures[key] for key, found in several_of.items()}
        elif all(isinstance(measure, str) for measure in measures.values()):
            return dict(keyed(measures))
        return dict(collection_of(suite).items())
    every = suite if isinstance(suite, list) else [suite]
    check_one_library(every)
    if wanted:
        suite = [metric for name in every for metric in with_parameters(name)]
    elif any(isinstance(measure, str) for measure in every):
        suite = {}
        for measure in every:
            for part in split(measure) if isinstance(measure, str) else [measure]:
                found = metrics_of(part, {})
                suite |= {part: found[0][1]} if isinstance(part, str) and len(found) == 1 else dict(found)
        if all(isinstance(measure, str) for measure in every):
            return suite  # of no user, so it needs no copy
    return dict(collection_of(suite).items())


Array = np.ndarray

#: the rank up to which unjudged documents are counted, if no measure has a cutoff
DEPTH = 10

NO_JUDGMENTS = "Expected judgments of at least one document, got none; pass rows (query, document, grade)"

#: objects made of judgments, by their names; they go with the judgments
_OBJECTS: WeakKeyDictionary[Qrels, dict[Hashable, Any]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Part:
    """The values of those queries of a run that are judged, and counts of all its queries."""

    #: int64 [query]: the number of each query in the judgments
    query_numbers: Array
    #: float [query] by label; NaN where the query was skipped
    values: Mapping[str, Array]
    #: float [query] by label; a label that is not here has the weight 1
    weights: Mapping[str, Array]
    #: bool [query] by label: whether the query has nothing to measure
    empty: Mapping[str, Array]
    #: float64 [query]: the share of judged documents in the first ranks
    judged: Array
    #: rankings of the judged documents, with the numbers of their queries in the judgments; () = they are not kept
    rankings: Sequence[Ranking]
    #: number of queries, judged or not
    queries: int
    #: number of queries that have retrieved a document with the same id
    retrieved_itself: int
    #: the id of a query; None = there is none
    example: Any
    #: number of judged documents that are retrieved
    retrieved: int = 0
    #: whether the run has judged documents, retrieved or cut off; and if not, what it has not in common with judgments
    matches: bool = False
    disjoint: str = ""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Judgments and measures, which give values to the queries of any run."""

    qrels: Qrels
    #: the measures by label
    metrics: Mapping[str, Any]
    options: Options
    #: whether parts have the rankings of all judged documents, also if measures read those of the relevant ones
    keeps_rankings: bool = True

    @classmethod
    def of(
        cls, qrels: Any, metrics: Mapping[str, Any], options: Options, closed: bool = False, keeps_rankings: bool = True
    ) -> Self:
        """Read the judgments, and check that they are some for these measures; those of a closed part may be none."""
        read = read_qrels(qrels, duplicates=options.duplicates, expansion=options.expansion)
        judgments = without(read.by_parent(options.parent), options.excluded)
        if not len(judgments) and not closed:
            raise ReadingError(NO_JUDGMENTS, judgments.source)
        intents = [label for label, metric in metrics.items() if isinstance(metric, IntentMetric)]
        if intents and judgments.subtopics is None:
            warn(
                f"The judgments have no subtopics, so {', '.join(intents)} counts each query as one subtopic; pass rows"
                " (query, subtopic, document, grade)"
            )
        grades = judgments.value
        levels = {label: getattr(metric, "relevance_level", 0) for label, metric in metrics.items()}
        above = [label for label, level in levels.items() if level > grades.max(initial=-np.inf)]
        if above and bool(((grades > 0) & (grades % 1 > 0)).any()):
            way_out = "pass relevance_level=, the lowest grade that is relevant"
            warn(f"No grade is relevant to {', '.join(above)}, because the largest is {grades.max():g}; {way_out}")
        return cls(judgments, metrics, options, keeps_rankings)

    @cached_property
    def depth(self) -> int:
        """The rank up to which unjudged documents are counted."""
        return min((metric.top_k for metric in self.metrics.values() if metric.top_k), default=DEPTH)

    def made_once(self, name: Hashable, made: Callable[[], Any]) -> Any:
        """An object that is made once for these judgments, also if other evaluators use them."""
        objects = _OBJECTS.setdefault(self.qrels, {})
        if name not in objects:
            objects[name] = made()
        return objects[name]

    @cached_property
    def numbers(self) -> dict[Hashable, int]:
        """The number of each judged query, by its id as key of dictionaries."""
        return self.made_once("numbers", lambda: {key: n for n, key in enumerate(self.qrels.queries.to_keys())})

    def all_parts(self, source: Any, done: Callable[[int], None]) -> list[Part]:
        """The parts of a run, of each chunk or of all; ``done`` gets the number of judged queries of each."""

        def read(sources: Iterable[Any]) -> Iterator[Part]:
            for part in map(self.part, sources):
                yield part
                done(len(part.query_numbers))

        try:
            chunks = source if isinstance(source, Chunks) else chunks_of_large(source, self.options.duplicates)
            return list(read([source] if chunks is None else chunks))
        except QueryReturnsError:
            if isinstance(source, Chunks) and not source.automatic:
                raise
            return list(read([Path(source.name) if isinstance(source, Chunks) else source]))  # as a whole

    def part(self, source: Any) -> Part:
        """The values of the judged queries of a source of :func:`torchrank.read_run`."""
        options = self.options
        run = read_run(source, ties=options.ties, duplicates=options.duplicates, expansion=options.expansion)
        uncut = run.by_parent(options.parent)
        run = without(uncut, options.excluded)
        itself = identical(run)
        numbers = self.numbers
        judged = np.array([numbers.get(key, -1) for key in run.queries.to_keys()], dtype=np.int64)  # -1 = not judged
        in_run = np.flatnonzero(judged >= 0)
        in_run = in_run[judged[in_run].argsort()]  # in the order of the judgments
        part = self._part(judged[in_run], options.apply(run, itself), in_run, run.query[itself], run)
        # Documents that are excluded from both were in both.
        return replace(part, matches=True, disjoint="") if len(run) < len(uncut) else part

    def absent(self, numbers: Array) -> Part:
        """The part of some queries without a run, given by their numbers."""
        run = read_run({})
        return self._part(numbers, run, np.full(len(numbers), -1), run.query)

    @property
    def num_judged(self) -> int:
        """Number of judged documents."""
        return int((self.qrels.value >= 0).sum())

    @property
    def no_relevant(self) -> int:
        """Number of judged queries without a relevant document, at the lowest level of the measures."""
        levels = (getattr(metric, "relevance_level", None) for metric in self.metrics.values())
        level = min((level for level in levels if level is not None), default=1)
        relevant = self.qrels.query[self.qrels.value >= level]
        return len(self.numbers) - len(np.unique(relevant))

    def _part(self, numbers: Array, run: Run, in_run: Array, with_itself: Array, uncut: Run | None = None) -> Part:
        """The part of some queries.

        Args:
            numbers: int64 [query], the numbers of the queries in the judgments, in ascending order.
            run: the run.
            in_run: int64 [query], the numbers of the same queries in the run; -1 = not in the run.
            with_itself: int [n], the numbers of the queries that have retrieved a document with the same id.
            uncut: the run with the documents that the options leave out.
        """
        example = run.queries.take(np.arange(1)).tolist()[0] if len(run.queries) else None
        counts = len(run.queries), len(np.unique(with_itself)), example
        if not len(numbers):
            nothing = {label: np.zeros(0) for label in self.metrics}
            empty = dict.fromkeys(nothing, np.zeros(0, dtype=bool))
            return Part(numbers, nothing, {}, empty, np.zeros(0), (), *counts)
        qrels = self._judgments(numbers)
        pairs = Pairs.of(qrels, run, in_run)
        matches = bool(pairs.common or (uncut is not None and Pairs.of(qrels, uncut, in_run).common))
        retrieved = int(((pairs.score > -np.inf) & (qrels.value >= 0)).sum())
        # Most documents may be irrelevant, and most measures do not read them.
        few = pairs.relevant_or_few
        some = len(few) < len(qrels)
        relevant = {label: metric for label, metric in self.metrics.items() if some and metric.required.relevant}
        others = {label: metric for label, metric in self.metrics.items() if label not in relevant}
        values, weights, empty = dict[str, Array](), dict[str, Array](), dict[str, Array]()
        rankings: list[Ranking] = []
        for metrics, judgments in ((others, None), (relevant, few)):
            keeps = self.keeps_rankings and judgments is None
            if not metrics and not keeps:
                continue
            ranking = ranking_of(pairs, judgments)
            if metrics:
                for columns, by_label in zip((values, weights, empty), values_of(metrics, ranking)):
                    columns |= {label: column.numpy() for label, column in (by_label or {}).items()}
            if keeps:  # without the run, which takes far more memory
                queries = torch.from_numpy(numbers)
                rankings = [replace(part, queries=queries[part.queries]) for part in numbered(ranking.parts())]
        disjoint = "" if matches else pairs.disjoint
        return Part(
            numbers, values, weights, empty, pairs.judged_share(self.depth), rankings, *counts, retrieved, matches,
            disjoint,
        )  # fmt: skip

    def _judgments(self, numbers: Array) -> Qrels:
        """The judgments of some queries."""
        qrels = self.qrels
        if len(numbers) == len(self.numbers):
            return qrels
        number = np.full(len(self.numbers), -1)
        number[numbers] = np.arange(len(numbers))

        def cut(table: PairTable) -> tuple[Array, Qrels]:
            rows = np.flatnonzero(number[table.query] >= 0)
            keys, tables = isinstance(table.items, KeyIds), numbers.tolist()
            items = KeyIds([table.items.tables[n] for n in tables]) if keys else table.items.take(rows)
            query = number[table.query[rows]].astype(table.query.dtype)
            return rows, Qrels(table.queries.take(numbers), query, items, table.value[rows], table.source)

        rows, judgments = cut(qrels)
        subtopics, parts = None if qrels.subtopics is None else qrels.subtopics[rows], qrels.parts
        if parts is not None:
            rows, table = cut(parts[0])
            parts = table, [parts[1][row] for row in rows.tolist()]
        return replace(judgments, subtopics=subtopics, parts=parts)


@dataclass(frozen=True, eq=False)
class Scored:
    """The values of judged queries by one run, with those that it lacks."""

    #: bool [query]: whether the query is in the run
    inside: Array
    #: float [query] by label, NaN where the query was skipped; weights, None = all are 1; whether the query is empty
    columns: Mapping[str, Array]
    weights: Mapping[str, Array] | None
    empty: Mapping[str, Array]
    #: float64 [query]: the share of judged documents in the first ranks
    judged: Array
    rankings: Sequence[Ranking]
    #: numbers of queries and documents, for the coverage; those in the judgments do not depend on the run
    counts: dict[str, int]

    @classmethod
    def of(cls, evaluator: Evaluator, parts: Sequence[Part], numbers: Array | None = None) -> Self:
        """The values of some queries, given by their numbers in ascending order; None = all judged ones."""
        numbers = np.arange(len(evaluator.numbers)) if numbers is None else numbers
        inside = np.isin(numbers, np.concatenate([numbers[:0], *(part.query_numbers for part in parts)]))
        all_parts = [*parts, *([] if inside.all() else [evaluator.absent(numbers[~inside])])]
        order = np.concatenate([numbers[:0], *(part.query_numbers for part in all_parts)]).argsort()

        columns, empty, weights = {}, {}, {}
        for label in evaluator.metrics:
            columns[label] = np.concatenate([np.zeros(0), *(part.values[label] for part in all_parts)])[order]
            empty[label] = np.concatenate([np.zeros(0, bool), *(part.empty[label] for part in all_parts)])[order]
            each = [part.weights.get(label, np.ones(len(part.judged))) for part in all_parts]
            weights[label] = np.concatenate([np.zeros(0), *each])[order]
        alike = not any(part.weights for part in all_parts)
        judged = np.concatenate([np.zeros(0), *(part.judged for part in all_parts)])[order]
        counts = {
            "judged": len(evaluator.numbers),
            "seen": int(inside.sum()),
            "no relevant": evaluator.no_relevant,
            "judged documents": evaluator.num_judged,
            "not in the judgments": sum(part.queries - len(part.query_numbers) for part in parts),
            "retrieved": sum(part.retrieved for part in parts),
            "same id as query": sum(part.retrieved_itself for part in parts),
            "parts that match": sum(part.matches for part in parts),
        }
        rankings = [ranking for part in all_parts for ranking in part.rankings]
        return cls(inside, columns, None if alike else weights, empty, judged, rankings, counts)

    def take(self, rows: Array) -> Scored:
        """The values of some queries, given by their rows."""
        columns, empty = ({key: x[rows] for key, x in found.items()} for found in (self.columns, self.empty))
        weights = None if self.weights is None else {key: x[rows] for key, x in self.weights.items()}
        return replace(
            self, inside=self.inside[rows], columns=columns, weights=weights, empty=empty, judged=self.judged[rows]
        )

    def table(self, evaluator: Evaluator, groups: Sequence[Any] | None = None) -> QueryTable:
        """The table of all judged queries."""
        ids, metrics = _ids(evaluator.qrels), dict(evaluator.metrics)
        return QueryTable(ids, self.columns, self.weights, metrics, groups, self.empty)


def coverage_row(depth: int, counts: Mapping[str, int], share: float) -> dict[str, Any]:
    """A row of the coverage.

    Args:
        depth: the rank up to which unjudged documents are counted.
        counts: those of :class:`Scored`.
        share: the mean share of judged documents in these ranks.
    """
    return {
        "judged": counts["judged"],
        "missing": counts["judged"] - counts["seen"],
        "not in the judgments": counts["not in the judgments"],
        "no relevant": counts["no relevant"],
        f"unjudged@{depth}": 1 - share,
        "not retrieved": counts["judged documents"] - counts["retrieved"],
        "same id as query": counts["same id as query"],
    }


@dataclass(frozen=True, eq=False)
class Task:
    """The judgments, measures and runs of a call of :func:`evaluate` or :func:`torchrank.partial`."""

    evaluator: Evaluator
    #: runs by name
    runs: Mapping[str, Any]
    #: whether the user has given several runs, or names
    several: bool
    #: whether it is one data frame with scores and grades, and the group and the cluster of each query of it
    is_frame: bool
    groups: Sequence[Any] | None
    clusters: Sequence[Any] | None
    #: whether all measures are given by names; functions of the user may have equal ones
    by_name: bool

    @classmethod
    def of(
        cls,
        qrels: Any,
        run: Any,
        measures: Suite | None,
        columns: Mapping[str, Any],
        preset: str | None,
        relevance_level: float | None,
        unjudged: Unjudged | None,
        *,
        part: bool = False,
        closed: bool = False,
        **arguments: Any,
    ) -> Self:
        """Read the arguments of :func:`evaluate`.

        Args:
            qrels: as there; likewise run, measures, preset, relevance_level, unjudged, and ``arguments``, of
                :class:`Options`.
            run: as there.
            measures: as there.
            columns: names of columns by their role; several columns of scores are a dictionary by system, or a list.
            preset: as there.
            relevance_level: as there.
            unjudged: as there.
            part: accept only measures that are computed from sums, and a frame without rows.
            closed: whether the judgments may be none.
            arguments: as there.
        """
        # The rows or names of a generator are read twice: here, to tell them apart, and by their reader.
        read_once = (isinstance(x, Iterator) and not (hasattr(x, "read") or is_frame(x)) for x in (qrels, run))
        qrels, run = (list(x) if once else x for x, once in zip((qrels, run), read_once))
        is_frame_of_both = _is_single_frame(qrels, run, measures, columns)
        if is_frame_of_both and not (arguments["ties"] or preset):
            arguments["ties"] = "expected"
        options = Options.of(preset, **arguments)
        groups: list[Sequence[Any] | None] = [None, None]
        runs: Mapping[str, Any] | None = None
        several, systems = False, ["run"]
        if is_frame_of_both:
            measures, score = run if measures is None else measures, columns["score"]
            if several := isinstance(score, list | Mapping):
                systems = [str(name) for name in score]
                columns = {**columns, "score": list(score.values() if isinstance(score, Mapping) else score)}
                if not systems or len(set(systems)) < len(systems):
                    got = f"{len(systems)} names, {len(set(systems))} different ones"
                    raise ValueError(f"Expected columns of scores, each once, got {got}; pass {{system: column}}")
            with_items = options.exclude is not None or options.parent is not None
            ties = options.ties or "document"
            qrels, tables, names = tables_of_frame(qrels, columns, ties, options.duplicates, with_items)
            groups, runs = [each.group_list() for each in names], dict(zip(systems, tables))
        if measures is None:
            measures = MEASURES if preset is None else preset_of(preset, *CUTOFFS[preset])
        suite = metrics_by_key(measures, relevance_level=relevance_level, unjudged=unjudged)
        metrics = measures_of(suite, "partial" if part else "evaluate", means=part)
        evaluator = Evaluator.of(qrels, metrics, options, closed or (part and is_frame_of_both), not part)
        if runs is None:
            runs = runs_by_name(run, evaluator.numbers)
            several = next(iter(runs.values())) is not run
        every = [measures] if isinstance(measures, str) else measures
        by_name = isinstance(every, list | tuple) and all(isinstance(name, str) for name in every)
        of_queries, clusters = groups
        return cls(evaluator, runs, several, is_frame_of_both, of_queries, clusters, by_name)


def check_common(evaluator: Evaluator, parts: Sequence[Part], name: str, by: str = "") -> None:
    """Raise NothingInCommonError if judgments and a run have queries or documents, but none in common."""
    theirs = next((part.example for part in parts if part.queries), None)
    if theirs is not None and evaluator.numbers and not any(len(part.query_numbers) for part in parts):
        raise no_common_query(theirs, evaluator.qrels.query_ids[0], f"{by} in run {name!r}")
    if (disjoint := [part.disjoint for part in parts if part.disjoint]) and not any(part.matches for part in parts):
        raise NothingInCommonError(f"Run {name!r}{by and f',{by}'}: {disjoint[0]}")


@with_hints
def evaluate(
    qrels: Any,
    run: Any = None,
    measures: Suite | None = None,
    *,
    query: str | None = None,
    item: str | None = None,
    score: str | list[str] | Mapping[str, str] | None = None,
    rank: str | None = None,
    grade: str | None = None,
    by: str | None = None,
    preset: str | None = None,
    queries: Queries | None = None,
    ignore_identical_ids: bool | None = None,
    precision: Precision | None = None,
    ties: Ties | None = None,
    depth: int | None = None,
    relevance_level: float | None = None,
    unjudged: Unjudged | None = None,
    duplicates: Duplicates = "error",
    expansion: int = EXPANSION,
    parent: Parent | None = None,
    exclude: Any = None,
    human: Any = None,
    strata: Mapping[Any, Any] | None = None,
    progress: bool = False,
) -> Evaluation:
    """Evaluate one or several runs with the same judgments: ``evaluate(qrels, run, "ndcg@10")``.

    One data frame with scores and grades is enough: ``evaluate(frame, "ndcg@10")``. Its columns are those of
    :meth:`torchrank.Ranking.from_table`: a query (or user), an item, a score and a grade in each row, or a query and
    lists of the others. Equal scores then get the mean over all of their orders, as in scikit-learn's ``ndcg_score``;
    ``ties="rows"`` ranks them in the order of the rows, as LightGBM.

    Args:
        qrels: judgments: any source that :func:`torchrank.read_qrels` takes, e.g. a path, also of a compressed file
            (gzip, bz2, xz, zstd, lz4), or ``{query: {document: grade}}``.
        run: a run: any source that :func:`torchrank.read_run` takes, e.g. a path or ``{query: {document: score}}``; or
            several, ``{name: run}``; or a list of paths, a folder or a pattern such as ``"runs/*.zst"``, whose runs
            have the names of the files. A dictionary of empty dictionaries is one run if a key is a judged query, and
            several runs otherwise. A run that is larger than memory is given by :func:`torchrank.read_chunks`; files of
            64 MB or more, and compressed, Parquet and Arrow files of 16 MB or more, are read so by themselves, if the
            rows of each query are together. None, or the measures, if ``qrels`` is one frame with scores.
        measures: names separated by blanks, metrics, or a collection; default: ``"ndcg@10 map mrr recall@100"``, or
            all of the preset at the cutoffs of the tool.
        query: of one frame, the name of the column of query ids; None = found among usual names.
        item: of one frame, the name of the column of item ids; None = found among usual names, and not needed.
        score: of one frame, the name of the column of scores; None = found among usual names; of several systems a list
            of columns, or ``{system: column}``. A row without a score (null or NaN) was not retrieved.
        rank: of one frame, the name of a column of ranks in place of scores, 1 for the best.
        grade: of one frame, the name of the column of grades; None = found among usual names. A row without a grade is
            unjudged.
        by: of one frame, the name of a column with one value for each query, e.g. the country of the user, for
            :meth:`Evaluation.by`.
        preset: a tool, whose measures and options are the defaults of all other arguments: "trec_eval" (10),
            "trec_eval9" (pytrec_eval), "beir", "beir_custom" (its ``evaluate_custom``), "mteb", "msmarco"
            or "longmemeval".
        queries: the queries over which means are taken: "judged", all of ``qrels``, a run that lacks a query has
            retrieved nothing for it (``trec_eval -c``); "both", the judged queries of the run (``trec_eval``, BEIR).
            The report has the other mean, too, if they differ. A query for which nothing is retrieved has no value of
            measures whose low values are good, as ``mr``. Default: "judged".
        ignore_identical_ids: leave out documents whose id is the id of the query, as BEIR does; default: False.
        precision: "double" compares scores as they are; "single" after rounding to float32, as pytrec_eval and the
            libraries on it do, in which close scores tie. Default: "double".
        ties: the order of equal scores, as :func:`torchrank.read_run`: "document", "rows" or "expected"; of one frame,
            without a preset, "expected".
        depth: keep the first documents of each query only, as ``trec_eval -M``; None = all of them.
        relevance_level: the lowest relevant grade, as ``trec_eval -l``, of all measures that have this parameter and
            whose names do not set it. ``measures`` must be names.
        unjudged: the treatment of unjudged documents, likewise; "condensed" removes them, as ``trec_eval -J``.
        duplicates: "error", or the grade and the score to keep of a document that is given twice, as
            :func:`torchrank.read_run`: "first", or "best", the largest.
        expansion: how many times its size a compressed, Parquet or Arrow file of more than 64 MB may have in memory.
        parent: the document of which an item is a chunk: a separator, "#" for ids such as ``doc#chunk`` (what is before
            the last one is the document), a dictionary or a function from the id of a chunk to that of its document.
            A document has the best score and the largest grade of its chunks. Ids without a parent, or with the parent
            None or NaN, are documents.
        exclude: pairs of query and document that leave the judgments and all runs before anything is ranked, as the
            documents that a user has seen in residual evaluation, or the excluded ids of BRIGHT: any source of
            :func:`torchrank.read_qrels`, e.g. ``{query: [documents]}``, pairs, a frame or a file; grades are not read.
            The documents below move up. If no judgment of a query remains, it has nothing relevant. Chunks
            leave with their document.
        human: judgments of people for some of the queries, as ``qrels``, which are then those of a cheap judge, as a
            language model. The queries must be a random sample, or one of each of the ``strata``. Means, intervals and
            comparisons are those of :class:`torchrank.Rectified`; values of queries stay those of the judge.
        strata: with ``human``, a dictionary from the id of each query to its stratum.
        progress: show a progress bar if it takes more than a second; requires tqdm.

    Returns:
        An :class:`Evaluation`: means with intervals, values of all queries, coverage and comparisons.

    Raises:
        ReadingError: a source cannot be read, or there are no judgments.
        ValueError: the judgments, or those of ``human``, and a run have no query or no document in common; an argument
            has an unknown value, ``depth`` is given although ties are expected values, a parameter is given although a
            measure is not a name, or a column is named although there is a run.
        TypeError: there is neither a run nor one data frame.

    Example:
        >>> import torchrank as tr
        >>> qrels = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}}
        >>> results = tr.evaluate(qrels, {"q1": {"b": 0.9, "a": 0.5}, "q2": {"c": 0.3, "d": 0.2}}, "mrr ndcg@10")
        >>> results.means["run"]["mrr"], results["run"]["mrr"].tolist()
        (0.75, [0.5, 1.0])
        >>> frame = {"user": ["u1", "u1", "u2"], "item": [7, 8, 7], "score": [0.5, 0.9, 0.3], "label": [1, 0, 1]}
        >>> tr.evaluate(frame | {"country": ["fr", "fr", "de"]}, "mrr", by="country").by()
        run  measure   value  standard error  low  high  queries  empty
        run  mrr/de   1.0000               -    -     -        1      0
        run  mrr/fr   0.5000               -    -     -        1      0
        equal scores have the mean over all of their orders
    """
    columns = {"query": query, "item": item, "score": score, "rank": rank, "grade": grade, "group": by}
    task = Task.of(
        qrels, run, measures, columns, preset, relevance_level, unjudged, queries=queries, ties=ties, depth=depth,
        ignore_identical_ids=ignore_identical_ids, precision=precision, duplicates=duplicates, expansion=expansion,
        parent=parent, exclude=exclude,
    )  # fmt: skip
    evaluator, metrics, options = task.evaluator, task.evaluator.metrics, task.evaluator.options
    if task.is_frame:
        lowest = float(evaluator.qrels.value.min(initial=np.inf))
        notice_all_relevant(metrics, lowest, len(evaluator.qrels) > len(evaluator.numbers))
    people = None if human is None else Evaluator.of(human, metrics, options, keeps_rankings=False)
    tables, other, by_people = dict[str, QueryTable](), dict[str, QueryTable](), dict[str, QueryTable]()
    rankings, coverage = dict[str, Ranking](), list[dict[str, Any]]()
    with progress_bar(progress, "evaluating", "query", delay=1) as step:
        for name, source in task.runs.items():
            step(len(evaluator.numbers))
            if people is not None:
                source = read_run(source, ties=options.ties, duplicates=duplicates, expansion=expansion)  # once
                parts = people.all_parts(source, lambda count: None)
                check_common(people, parts, name, " by people")
                found = Scored.of(people, parts)
                table = found.table(people)
                by_people[name] = table.where(found.inside) if options.queries == "both" else table
            with one_of_several(name, task.runs):
                parts = evaluator.all_parts(source, lambda count: step(-count))
            check_common(evaluator, parts, name)
            found = Scored.of(evaluator, parts)
            all_judged, ranking = found.table(evaluator, task.groups), Ranking.join(iter(found.rankings))
            inside = found.inside
            tables[name], rankings[name] = all_judged, ranking
            if not inside.all():
                both = all_judged.where(inside)
                if options.queries == "both":
                    tables[name], rankings[name] = both, ranking.take(torch.from_numpy(inside))
                other[name] = all_judged if options.queries == "both" else both
            share = float(found.judged[inside].mean()) if inside.any() else float("nan")
            row = coverage_row(evaluator.depth, found.counts, share)
            coverage.append({"run": name, "queries": len(tables[name]), **row})
            step(-int((~inside).sum()))
    tied = options.ties or "document"
    rectified = rectified_tables(evaluator.metrics, tables, by_people, strata) if by_people else None
    unlabelled = unlabelled_runs(coverage, found.counts["judged documents"], evaluator.depth)
    return Evaluation(
        tables, other, coverage, options.queries, options.ignore_identical_ids, rankings, tied, unlabelled, rectified
    )


def unlabelled_runs(coverage: Sequence[Mapping[str, Any]], judged: int, depth: int) -> list[str]:
    """A sentence on each run that has few of the judged documents, and unjudged ones in their place.

    It has less than a tenth of them, and more than nine tenths of the first ranks are unjudged; or it has less than
    half of those of another run, and at least a tenth more of its first ranks are unjudged.
    """
    share = f"unjudged@{depth}"
    best = min(coverage, key=lambda row: row["not retrieved"])
    sentences = []
    for row in coverage:
        few, most = judged - row["not retrieved"], judged - best["not retrieved"]
        beside = few < most / 2 and row[share] >= best[share] + 0.1
        if beside or (few < judged / 10 and row[share] > 0.9):
            other = f", {best['run']} {most}" * beside
            sentences.append(
                f"{LABELS}: {row['run']} has {few} of {judged} judged documents{other}, and"
                f" {100 * row[share]:.0f} % of its first {depth} are unjudged; if its ids or chunks are new, judge"
                " these, or pass parent= (--parent)"
            )
    return sentences


def _is_single_frame(qrels: Any, run: Any, measures: Any, columns: Mapping[str, Any]) -> bool:
    """Whether the first argument of :func:`evaluate` is a frame with scores and grades, and the second is not a run."""
    named = [f"{'by' if name == 'group' else name}=" for name, column in columns.items() if column is not None]
    frame = is_frame(qrels) or is_records(qrels) or is_columns(qrels, named or None)
    alone = run is None or (measures is None and _are_measures(run))
    if frame and alone:
        return True
    if run is None or (alone and named):
        way_out = "pass the run as the second argument"
        if isinstance(qrels, str | Path):
            way_out += f"; or, if {qrels} has scores and grades, read it as a frame, as by polars.scan_parquet"
        raise TypeError(
            "Expected a run, or one data frame with columns of queries, scores and grades, got"
            f" {type(qrels).__name__} alone; {way_out}"
        )
    if named:
        ways_out = ["read each by tr.read_qrels and tr.read_run, with columns={...}"] if named != ["by="] else []
        if columns["group"] is not None:
            ways_out.append("leave by= out, and pass the group of each query to the result: .by({query: group})")
        way_out = ", and ".join(ways_out)
        raise ValueError(f"Expected one data frame with {' and '.join(named)}, got a run, too; {way_out}")
    return False


def notice_all_relevant(metrics: Mapping[str, Any], lowest: float, several: bool) -> None:
    """Warn if every row of one frame is relevant to some measures, as with ratings from 1 to 5.

    Args:
        metrics: the measures by label.
        lowest: the lowest grade.
        several: whether a query has more candidates than one.
    """
    levels = {label: getattr(metric, "relevance_level", np.inf) for label, metric in metrics.items()}
    trivial = [label for label, level in levels.items() if level <= lowest]
    if trivial and several:
        warn(
            f"Every row of the frame is relevant to {', '.join(trivial)}, because the lowest grade is {lowest:g}; pass"
            " relevance_level=, the lowest grade that is relevant, or add the rows of candidates that are not"
        )


def _are_measures(argument: Any) -> bool:
    """Whether an argument has names of measures, or metrics, and not a run: an existing file, or one with an ending."""
    if isinstance(argument, str):
        return not (argument == "-" or re.search(r"[/\\]|\.\w*[A-Za-z]\w*$", argument) or Path(argument).exists())
    if isinstance(argument, torch.nn.Module):
        return True
    every = argument.values() if isinstance(argument, Mapping) else argument
    if not several(every) or isinstance(every, Chunks) or is_frame(every) or hasattr(every, "read"):
        return False
    rest = iter(every)
    return all(isinstance(x, str | torch.nn.Module) and _are_measures(x) for x in chain([next(rest, None)], rest))


def runs_by_name(run: Any, judged: Container[Any]) -> dict[str, Any]:
    """Runs by name; a single run is named by its file, or "run".

    Args:
        run: the argument of :func:`evaluate`.
        judged: the judged queries, as keys of dictionaries.
    """
    if isinstance(run, Mapping) and run and all(isinstance(docs, Mapping) and not docs for docs in run.values()):
        # Empty runs by name, or queries without documents.
        queries = ids_of(list(run)).to_keys()
        return {"run": run} if any(query in judged for query in queries) else {str(name): {} for name in run}
    if isinstance(run, Mapping) and not _is_table(run):
        # an empty run, or a query without documents, tells nothing about the depth of the dictionary
        first: Any = next((value for value in run.values() if not isinstance(value, Sized) or len(value)), {})
        several = not _is_ranked(first)
        if isinstance(first, Mapping):
            inner = next(iter(first.values()), None)
            several = isinstance(inner, Mapping) or _is_ranked(inner) or _is_table(first)
        return {str(name): source for name, source in run.items()} if run and several else {"run": run}
    if isinstance(run, list | tuple) and run and all(isinstance(path, str | Path) for path in run):
        return _named_paths(run)
    if isinstance(run, Chunks):
        return {stem(run.name) if run.name else "run": run}
    return _named_paths([run]) if isinstance(run, str | Path) else {"run": run}


def _named_paths(paths: Iterable[str | Path]) -> dict[str, Any]:
    """The files of paths, folders and patterns, by the names of their runs."""
    pairs = [pair for path in paths for pair in named_runs(path)]
    runs = dict(pairs)
    if len(runs) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"Expected runs with different names, got {names}; pass a dict {{name: path}}")
    return runs


def _is_ranked(docs: Any) -> bool:
    """Whether a list has the documents of a query, ids or pairs (document, score), and not the rows of a run."""
    wanted = list | tuple | set | frozenset | np.ndarray | torch.Tensor
    if not isinstance(docs, wanted) or getattr(docs, "shape", "") == ():
        return False
    doc = next(iter(docs), "")
    return len(doc) == 2 if isinstance(doc, list | tuple) else isinstance(doc, str | int | np.integer | torch.Tensor)


def _is_table(run: Mapping[Any, Any]) -> bool:
    """Whether a dictionary has the columns of one run, not runs by name."""
    if not is_columns(run):
        return False
    for column in run.values():
        first = next(iter(column), "")  # of the rows of a run a dictionary, a tuple or an array
        if not (is_frame(column) or isinstance(first, Mapping | list | tuple) or np.shape(first) not in ((), (1,))):
            return True
    return False


def _ids(qrels: Qrels) -> np.ndarray:
    """The ids of the judged queries, as texts or integers.

    Raises:
        ValueError: ids of several types have no order.
    """
    ids = qrels.query_ids
    if all(isinstance(query, int) for query in ids):
        return np.array(ids)
    if isinstance(qrels.queries, ObjectIds):
        try:
            sorted(ids)  # type: ignore[type-var]
        except TypeError:
            first, other = ids[0], next(other for other in ids if type(other) is not type(ids[0]))
            raise ValueError(f"Expected query ids of one type, got {first!r} and {other!r}; pass texts") from None
    return np.fromiter(ids, dtype=object, count=len(ids))  # np.array would make two dimensions of tuples
