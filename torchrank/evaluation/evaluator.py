"""The options of an evaluation, and the values of the judged queries of a run, or of a part of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch

from torchrank.collection.members import check_one_library, keyed, several
from torchrank.metrics.incomplete_judgments import judged_within
from torchrank.metrics.subtopics import IntentMetric
from torchrank.names.arguments import did_you_mean, integer, one_of, warn
from torchrank.names.labels import split
from torchrank.names.parse import LIBRARIES, OPTIONS, parse_all
from torchrank.ranking.intervals import ratio
from torchrank.ranking.ranking import Ranking, numbered
from torchrank.tables.files import EXPANSION
from torchrank.tables.id_columns import KeyIds
from torchrank.tables.joining import Pairs, ranking_of, without
from torchrank.tables.pair_tables import (
    Duplicates,
    NothingInCommonError,
    PairTable,
    Parent,
    Qrels,
    ReadingError,
    Run,
    Ties,
    no_common_query,
)
from torchrank.tables.sources import Chunks, QueryReturnsError, of_large, read_pairs, read_qrels, read_run
from torchrank.wrappers.suite_metric import Suite, collection_of, measures_of, readable, values_of

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
    keys = run.items.tables if isinstance(run.items, KeyIds) else None
    if keys is not None and not any(query in table for query, table in zip(run.query_ids, keys)):
        return np.zeros(len(run), dtype=bool)  # without a column of all documents
    table = run.columns
    queries, items = table.queries.take(table.query), table.items
    return np.asarray(items.equals(queries) if items.kind == "objects" else queries.equals(items))


def with_parameters(measures: Suite, **parameters: Any) -> Any:
    """A suite whose measures have the names by which they are asked for, and further parameters.

    Parameters in the name of a measure go before.

    Args:
        measures: names, or metrics if all parameters are None.
        parameters: parameters by name, for the measures that have them; None = not given.

    Raises:
        ValueError: a measure is not given by its name.
    """
    wanted = {name: value for name, value in parameters.items() if value is not None}

    def named_by(name: Any) -> list[Any]:
        if not isinstance(name, str):
            which = f"{' and '.join(wanted)}, got {name!r}; give the parameter to the measure"
            raise ValueError(f"Expected names of measures with {which}")
        return parse_all(name, wanted)

    if isinstance(measures, Mapping):
        if not wanted:
            return measures
        several_of = {key: named_by(name) for key, name in measures.items()}
        return {key: metrics[0] if len(metrics) == 1 else measures[key] for key, metrics in several_of.items()}
    measures = list(measures) if several(measures) else measures  # a generator is read once
    every = measures if isinstance(measures, list) else [measures]
    check_one_library(every)
    if wanted:
        return [metric for name in every for metric in named_by(name)]
    # A measure has the name by which it is asked for.
    named: dict[str, Any] = {}
    for measure in every:
        for part in split(measure) if isinstance(measure, str) else [measure]:
            metrics: dict[str, Any] = dict(keyed(part))
            named |= dict(zip([part], metrics.values())) if isinstance(part, str) and len(metrics) == 1 else metrics
    return named if any(isinstance(measure, str) for measure in every) else measures


Array = np.ndarray

#: the rank up to which unjudged documents are counted, if no measure has a cutoff
DEPTH = 10

#: objects made of judgments, by their names; they go with the judgments
_OBJECTS: WeakKeyDictionary[Qrels, dict[Hashable, Any]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Part:
    """The values of those queries of a run that are judged, and counts of all its queries."""

    #: int64 [query]: the number of each query in the judgments
    query_numbers: Array
    #: float [query] by label; NaN where the query was skipped
    values: Mapping[str, Array]
    #: float [query] by label; None = all are 1
    weights: Mapping[str, Array] | None
    #: bool [query] by label: whether the query has nothing to measure
    empty: Mapping[str, Array]
    #: float64 [query]: the share of judged documents in the first ranks
    judged: Array
    #: rankings of the judged documents, with the numbers of their queries in the judgments
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
    #: the measures as the user gave them
    measures: Suite
    #: the measures by label
    metrics: Mapping[str, Any]
    options: Options

    @classmethod
    def of(cls, qrels: Any, measures: Suite, user: str, means: bool, options: Options) -> Self:
        """Check the arguments of :func:`torchrank.evaluate`; ``user`` and ``means`` are those of `measures_of`."""
        measures = readable(measures)
        metrics = measures_of(collection_of(measures), user, means=means)
        read = read_qrels(qrels, duplicates=options.duplicates, expansion=options.expansion)
        judgments = without(read.by_parent(options.parent), options.excluded)
        if not len(judgments):
            message = "Expected judgments of at least one document, got none; pass rows (query, document, grade)"
            raise ReadingError(message, judgments.source)
        intents = [label for label, metric in metrics.items() if isinstance(metric, IntentMetric)]
        if intents and judgments.subtopics is None:
            warn(
                f"The judgments have no subtopics, so {', '.join(intents)} counts each query as one subtopic; pass rows"
                " (query, subtopic, document, grade)"
            )
        grades = judgments.value
        levels = {label: getattr(metric, "relevance_level", 0) for label, metric in metrics.items()}
        above = [label for label, level in levels.items() if level > grades.max()]
        if above and bool(((grades > 0) & (grades % 1 > 0)).any()):
            way_out = "pass relevance_level=, the lowest grade that is relevant"
            warn(f"No grade is relevant to {', '.join(above)}, because the largest is {grades.max():g}; {way_out}")
        return cls(judgments, measures, metrics, options)

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
            chunks = source if isinstance(source, Chunks) else of_large(source, self.options.duplicates)
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
    def absent_of_all(self) -> Part:
        """The part of all queries without a run, without rankings."""

        def made() -> Part:
            return replace(self.absent(np.arange(len(self.numbers))), rankings=())

        names = [self.measures] if isinstance(self.measures, str) else self.measures
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            return made()  # functions of the user may have equal names
        return self.made_once(("absent", *names), made)

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
            return Part(numbers, nothing, None, nothing, np.zeros(0), (), *counts)
        qrels = self._judgments(numbers)
        pairs = Pairs.of(qrels, run, in_run)
        matches = bool(pairs.common or (uncut is not None and Pairs.of(qrels, uncut, in_run).common))
        retrieved = int(((pairs.score > -np.inf) & (qrels.value >= 0)).sum())
        ranking = ranking_of(pairs)
        values, weights, empty = (
            {label: column.numpy() for label, column in (by_label or {}).items()}
            for by_label in values_of(self.metrics, ranking)
        )
        judged, rankings = np.zeros(len(numbers)), []
        for part in numbered(ranking.parts()):
            judged[part.queries] = ratio(judged_within(part, self.depth), part.num_within(self.depth))
            # Without the run, which takes far more memory.
            rankings.append(replace(part, queries=torch.from_numpy(numbers)[part.queries]))
        disjoint = "" if matches else pairs.disjoint
        return Part(numbers, values, weights or None, empty, judged, rankings, *counts, retrieved, matches, disjoint)

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


def check_common(evaluator: Evaluator, parts: Sequence[Part], name: str, by: str = "") -> None:
    """Raise NothingInCommonError if judgments and a run have queries or documents, but none in common."""
    theirs = next((part.example for part in parts if part.queries), None)
    if theirs is not None and evaluator.numbers and not any(len(part.query_numbers) for part in parts):
        raise no_common_query(theirs, evaluator.qrels.query_ids[0], f"{by} in run {name!r}")
    if (disjoint := [part.disjoint for part in parts if part.disjoint]) and not any(part.matches for part in parts):
        raise NothingInCommonError(f"Run {name!r}{by and f',{by}'}: {disjoint[0]}")
