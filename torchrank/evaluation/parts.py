"""The values of the judged queries of a run, or of a part of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self
from weakref import WeakKeyDictionary

import numpy as np

from torchrank.collection.collection import RankingCollection
from torchrank.metrics.incomplete_judgments import Judged
from torchrank.names.arguments import one_of
from torchrank.ranking.ranking import Ranking
from torchrank.tables.chunks import Chunks, QueryReturnsError, is_large, read_chunks
from torchrank.tables.ids import Ids, KeyIds
from torchrank.tables.sources import read_qrels, read_run
from torchrank.tables.table import Qrels, Run, Ties
from torchrank.wrappers.suites import Suite, collection_of, measures_of

Array = np.ndarray

#: the queries over which means are taken
Queries = Literal["judged", "both"]
#: the way in which scores are compared
Precision = Literal["double", "single"]

#: the rank up to which unjudged documents are counted, if no measure has a cutoff
DEPTH = 10

#: objects made of judgments, by their names; they go with the judgments
_KEPT: WeakKeyDictionary[Qrels, dict[Hashable, Any]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Part:
    """The values of those queries of a run that are judged, and counts of all its queries."""

    #: int64 [query]: the number of each query in the judgments
    at: Array
    #: float [query] by label; NaN where the query was skipped
    values: Mapping[str, Array]
    #: float64 [query]: the share of judged documents in the first ranks
    judged: Array
    #: number of queries, judged or not
    queries: int
    #: number of queries that have retrieved a document with their own id
    found_itself: int
    #: the id of a query; None = there is none
    example: Any


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Judgments and measures, which give values to the queries of any run."""

    qrels: Qrels
    #: the measures as the user gave them
    measures: Suite
    suite: RankingCollection
    #: the measures by label
    metrics: Mapping[str, Any]
    queries: Queries
    ignore_identical_ids: bool
    precision: Precision
    ties: Ties | None

    @classmethod
    def of(
        cls,
        qrels: Any,
        measures: Suite,
        user: str,
        means: bool,
        queries: Queries,
        ignore_identical_ids: bool,
        precision: Precision,
        ties: Ties | None,
    ) -> Self:
        """Check the arguments of :func:`torchrank.evaluate`; ``user`` and ``means`` are those of `measures_of`."""
        one_of("queries", queries, ("judged", "both"))
        one_of("precision", precision, ("double", "single"))
        one_of("ignore_identical_ids", ignore_identical_ids, (True, False))
        judgments = read_qrels(qrels)
        suite = collection_of(measures.split() if isinstance(measures, str) else measures)
        metrics = measures_of(suite, user, means=means)
        return cls(judgments, measures, suite, metrics, queries, ignore_identical_ids, precision, ties)

    @property
    def depth(self) -> int:
        """The rank up to which unjudged documents are counted."""
        return min((metric.top_k for metric in self.metrics.values() if metric.top_k), default=DEPTH)

    def kept(self, name: Hashable, made: Callable[[], Any]) -> Any:
        """An object that is made once for these judgments, also if other evaluators use them."""
        objects = _KEPT.setdefault(self.qrels, {})
        if name not in objects:
            objects[name] = made()
        return objects[name]

    @property
    def numbers(self) -> dict[Hashable, int]:
        """The number of each judged query, by its id as key of dictionaries."""
        return self.kept("numbers", lambda: {key: at for at, key in enumerate(self.qrels.queries.hashable())})

    def parts(self, source: Any) -> Iterator[Part]:
        """The parts of a run: of each chunk, or of all.

        Raises:
            QueryReturnsError: a large file is not grouped by query; read it as a whole.
        """
        if isinstance(source, str | Path) and is_large(source):
            source = read_chunks(source)
        yield from map(self.part, source) if isinstance(source, Chunks) else [self.part(source)]

    def all_parts(self, source: Any, done: Callable[[int], None] | None = None) -> list[Part]:
        """The parts of a run; ``done`` gets the number of judged queries of each."""

        def read(parts: Iterator[Part]) -> Iterator[Part]:
            for part in parts:
                yield part
                if done is not None:
                    done(len(part.at))

        try:
            return list(read(self.parts(source)))
        except QueryReturnsError:
            if isinstance(source, Chunks):
                raise
            return list(read(iter([self.part(source)])))

    def part(self, source: Any) -> Part:
        """The values of the judged queries of a source of :func:`torchrank.read_run`."""
        run = read_run(source, ties=self.ties)
        itself = _identical(run)
        found_itself = len(np.unique(run.query[itself]))
        if self.ignore_identical_ids and itself.any():
            run = _rows(run.columns, ~itself)
        if self.precision == "single":
            run = run.columns  # dictionaries would be read again
            run = replace(run, value=run.value.astype(np.float32).astype(np.float64))
        numbers = self.numbers
        at = np.array(sorted(numbers[key] for key in run.queries.hashable() if key in numbers), dtype=np.int64)
        example = run.queries.take(np.arange(1)).tolist()[0] if len(run.queries) else None
        if not len(at):
            values = {label: np.zeros(0) for label in self.metrics}
            return Part(at, values, np.zeros(0), len(run.queries), found_itself, example)
        ranking = Ranking.from_run(self._judgments(at), run)
        judged = Judged(top_k=self.depth).score(ranking).numpy()
        return Part(at, self._values(ranking), judged, len(run.queries), found_itself, example)

    def absent(self, at: Array) -> dict[str, Array]:
        """The values of some queries without a run, given by their numbers: float [query] by label."""
        if not len(at):
            return {label: np.zeros(0) for label in self.metrics}
        return self._values(Ranking.from_run(self._judgments(at), read_run({})))

    @property
    def absent_of_all(self) -> dict[str, Array]:
        """The values of all queries without a run: float [query] by label."""
        every = np.arange(len(self.numbers))
        names = [self.measures] if isinstance(self.measures, str) else self.measures
        if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
            return self.absent(every)  # functions of the user may have equal names
        return self.kept(("absent", *names), lambda: self.absent(every))

    @property
    def no_relevant(self) -> int:
        """Number of judged queries without a relevant document."""
        relevant = self.qrels.query[self.qrels.value >= 1]
        return len(self.numbers) - len(np.unique(relevant))

    def _values(self, ranking: Ranking) -> dict[str, Array]:
        return {label: values.numpy() for label, values in self.suite.score(ranking).items()}

    def _judgments(self, at: Array) -> Qrels:
        """The judgments of some queries."""
        qrels = self.qrels
        if len(at) == len(self.numbers):
            return qrels
        number = np.full(len(self.numbers), -1)
        number[at] = np.arange(len(at))
        rows = np.flatnonzero(number[qrels.query] >= 0)
        items: Ids = qrels.items
        items = KeyIds([items.tables[one] for one in at.tolist()]) if isinstance(items, KeyIds) else items.take(rows)
        query = number[qrels.query[rows]].astype(qrels.query.dtype)
        return Qrels(qrels.queries.take(at), query, items, qrels.value[rows], qrels.source)


def check_queries(evaluator: Evaluator, parts: Sequence[Part], name: str = "") -> None:
    """Raise ValueError if judgments and a run have queries, but none in common."""
    theirs = next((part.example for part in parts if part.queries), None)
    if theirs is not None and evaluator.numbers and not any(len(part.at) for part in parts):
        raise ValueError(
            f"Expected queries that are judged in run {name!r}, got none: a query of the run is {theirs!r}, a judged"
            f" query is {evaluator.qrels.query_ids[0]!r}; use the same ids in both"
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
