"""The join of judgments and a run: the ranks of the judged documents, without a table of all documents."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchrank.engine.flat import Entries
from torchrank.layouts.bad_values import no_errors
from torchrank.layouts.canonical import IN_THE_POOL, OUTSIDE_THE_POOL
from torchrank.ranking.entries import depth_of
from torchrank.ranking.query_names import QueryNames
from torchrank.ranking.ranking import Ranking
from torchrank.tables.ids import KeyIds, blocks, pair_hashes
from torchrank.tables.table import Qrels, RankedLists, Run, count_above

Array = np.ndarray

# Places in the table that excludes most documents without a judgment, for each judgment.
ROOM = 32


def join(qrels: Qrels, run: Run, number: Array | None = None) -> Ranking:
    """Rank the documents of a run, with the grades of the judgments; queries are in the order of ``qrels``.

    Entries are the judged documents. Documents without a judgment become entries when all candidates are read.

    Args:
        qrels: the judgments.
        run: the run.
        number: int64 [query of qrels], the number of each query in the run, -1 = not in the run; None = looked up.
    """
    ranking = ranking_of(Pairs.of(qrels, run, _queries_in_run(qrels, run) if number is None else number))
    return ranking.with_names(QueryNames(qrels.queries))


def ranking_of(pairs: Pairs) -> Ranking:
    """The ranking of judgments whose places in a run are known."""
    judged = pairs.judged_entries()
    return Ranking.with_others(_rankings(judged, pairs.lengths), pairs)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Judgments, and their places in a run."""

    qrels: Qrels
    run: Run
    #: int64 [query of qrels]: the number of the query in the run; -1 = not in the run
    number: Array
    #: float64 [judgment]: the score of the document; -inf = not retrieved
    score: Array
    #: returns the rows of the run, int64, of some judgments that are in it
    rows: Callable[[Array], Array]

    @classmethod
    def of(cls, qrels: Qrels, run: Run, number: Array) -> Pairs:
        """Find the judged documents in the run; ``number`` as in :func:`join`."""
        _warn_if_exchanged(qrels, run)
        if isinstance(qrels.items, KeyIds) and isinstance(run.items, KeyIds):
            score, rows = _looked_up(qrels.items, run.items, number, qrels.query)
            if (number >= 0).any() and not (score > -np.inf).any():
                _warn_of_types(qrels, run)
            return cls(qrels, run, number, score, rows)
        qrels, run = qrels.columns, run.columns
        if (number >= 0).any():
            _warn_of_types(qrels, run)
        return cls._at(qrels, run, number, matches(qrels, run, number[qrels.query]))

    @classmethod
    def of_rows(cls, qrels: Qrels, run: Run, row: Array) -> Pairs:
        """Pairs whose row in the run is known, int64 [judgment], -1 = not in the run; both have the same queries."""
        return cls._at(qrels, run, np.arange(len(run.queries)), row)

    @classmethod
    def _at(cls, qrels: Qrels, run: Run, number: Array, row: Array) -> Pairs:
        score = np.where(row < 0, -np.inf, run.value[row] if len(run) else -np.inf)
        return cls(qrels, run, number, score, _Taken(row))

    @property
    def lengths(self) -> Array:
        """int64 [query of qrels]: number of retrieved documents."""
        retrieved = np.append(self.run.lists.retrieved, 0)
        return retrieved[self.number]

    def judged_entries(self) -> tuple[Array, Array, Array, Array]:
        """Query, first rank, tied candidates and grade of every judgment."""
        lists, query = self.run.lists, self.qrels.query.astype(np.int64)
        tied = np.zeros(len(query), dtype=np.int64)
        first = self.lengths[query] + 1
        found = np.flatnonzero(self.score > -np.inf)
        number = self.number[query[found]]
        bounds = lists.start[number], lists.start[number + 1]
        before = count_above(lists.scores, *bounds, self.score[found])
        first[found] = 1 + before
        tied[found] = count_above(lists.scores, *bounds, self.score[found], or_equal=True) - before
        if self.run.ties == "document":
            several = tied > 1
            if several.any():
                in_tie = np.flatnonzero(several)
                begin = lists.start[self.number[query[in_tie]]] + first[in_tie] - 1
                first[in_tie] += _place_in_tie(self.run, lists, begin, tied[in_tie], self.rows(in_tie))
                tied[in_tie] = 1
        return query, first, tied, np.maximum(self.qrels.value, IN_THE_POOL)

    def __call__(self) -> Ranking:
        """The ranking with an entry for every candidate."""
        query, first, tied, grade = self.judged_entries()
        rows = self.rows(np.arange(len(self.score)))
        outside = np.ones(len(self.run), dtype=bool)
        outside[rows[rows >= 0]] = False
        known = np.flatnonzero(self.number >= 0)
        query_of = np.full(len(self.run.queries), -1)  # of each query of the run
        query_of[self.number[known]] = known
        others = np.flatnonzero(outside & (query_of[self.run.query] >= 0))
        rest = Qrels(
            self.qrels.queries,
            query_of[self.run.query[others]],
            self.run.items,
            np.full(len(others), float(OUTSIDE_THE_POOL)),
        )
        them = Pairs(rest, self.run, self.number, self.run.value[others], _Taken(others)).judged_entries()
        # Grades outside the pool are below those of unjudged candidates in it.
        them = *them[:3], rest.value
        both = [np.concatenate(pair) for pair in zip((query, first, tied, grade), them)]
        return Ranking.join(_rankings((both[0], both[1], both[2], both[3]), self.lengths))


@dataclass(frozen=True, eq=False)
class _Taken:
    """The rows of some judgments, from the rows of all; an object, because rankings are pickled."""

    found: Array

    def __call__(self, judgments: Array) -> Array:
        return self.found[judgments]


@dataclass(frozen=True, eq=False)
class _Located:
    """The rows of some judgments, from dictionaries."""

    judged: KeyIds
    retrieved: KeyIds
    number: Array
    query: Array

    def __call__(self, judgments: Array) -> Array:
        rows = np.full(len(judgments), -1)
        number = self.number[self.query[judgments]]
        known = np.flatnonzero(number >= 0)
        names = self.judged.tolist()
        wanted = [names[one] for one in judgments[known].tolist()]
        rows[known] = self.retrieved.locate(number[known].tolist(), wanted)
        return rows


def _looked_up(judged: KeyIds, retrieved: KeyIds, number: Array, query: Array) -> tuple[Array, _Located]:
    """The score of each judgment, and the function that returns rows of the run, for two sets of dictionaries."""
    scores: list[Any] = []
    nothing = float("-inf")
    for grades, at in zip(judged.tables, number.tolist()):
        get = retrieved.tables[at].get if at >= 0 else {}.get
        scores += [get(item, nothing) for item in grades]
    return np.array([float(score) for score in scores], dtype=np.float64), _Located(judged, retrieved, number, query)


def _queries_in_run(qrels: Qrels, run: Run) -> Array:
    numbers: dict[Hashable, int] = {key: number for number, key in enumerate(run.queries.hashable())}
    found = [numbers.get(key, -1) for key in qrels.queries.hashable()]
    if numbers and found and max(found) < 0:
        theirs, ours = run.queries.take(np.arange(1)).tolist()[0], qrels.queries.take(np.arange(1)).tolist()[0]
        message = (
            f"No query of the run is judged: a query of the run is {theirs!r}, a judged query is {ours!r};"
            " use the same query ids in both"
        )
        warnings.warn(message, stacklevel=6)
    return np.array(found, dtype=np.int64)


def _warn_of_types(qrels: Qrels, run: Run) -> None:
    if not (len(qrels) and len(run)):
        return
    # The first id tells the kind: columns have one kind, and of dictionaries no document was found.
    first = run.items.take(np.arange(1)), qrels.items.take(np.arange(1))
    if {one.kind for one in first} == {"text", "integers"}:
        theirs, ours = (one.tolist()[0] for one in first)
        message = (
            f"No document of the run is judged: a document of the run is {theirs!r}, a judged document is {ours!r};"
            " use document ids of one type in both"
        )
        warnings.warn(message, stacklevel=6)


def _warn_if_exchanged(qrels: Qrels, run: Run) -> None:
    # Grades are mostly integers, and scores mostly are not.
    fractional = qrels.value != qrels.value.round()
    if len(run) and fractional.any() and (run.value == run.value.round()).all():
        message = (
            f"The judgments have grades such as {qrels.value[fractional.argmax()]:g}, and all scores of the run are"
            " integers; if the two are exchanged, pass the judgments first"
        )
        warnings.warn(message, stacklevel=6)


# ---- documents that are in both --------------------------------------------------------------------------------------


def matches(qrels: Qrels, run: Run, number: Array) -> Array:
    """The row of the run of each judgment: int64 [judgment], -1 = not in the run.

    Hashes of 64 bits select the rows. Every match is compared byte for byte.

    Args:
        qrels: the judgments.
        run: the run.
        number: int64 [judgment], the number of the query in the run; -1 = not in the run.
    """
    found = np.full(len(qrels), -1, dtype=np.int64)
    wanted = np.flatnonzero(number >= 0)
    if not len(wanted) or not len(run):
        return found
    if qrels.items.kind != run.items.kind and "objects" not in (qrels.items.kind, run.items.kind):
        return found
    asked = qrels.items.take(wanted)
    hashes = pair_hashes(number[wanted], asked)
    rows = _candidates(hashes, run.hashes)
    order = np.argsort(hashes)
    ordered = hashes[order]
    at = np.minimum(np.searchsorted(ordered, run.hashes[rows]), len(order) - 1)
    equal = ordered[at] == run.hashes[rows]
    rows, judgment = rows[equal], order[at[equal]]
    same = (run.query[rows] == number[wanted[judgment]]) & run.items.take(rows).same(asked.take(judgment))
    collision = not same.all() or (ordered[1:] == ordered[:-1]).any()
    if collision or "objects" in (qrels.items.kind, run.items.kind):
        return _matches_by_dictionary(qrels, run, number)
    found[wanted[judgment]] = rows
    return found


def _candidates(hashes: Array, among: Array) -> Array:
    """The rows of ``among`` whose leading bits are those of one of ``hashes``: all equal ones, and few others."""
    bits = min(24, (ROOM * len(hashes)).bit_length())
    shift = np.uint64(64 - bits)
    marked = np.zeros(2**bits, dtype=bool)
    marked[hashes >> shift] = True
    return np.concatenate([np.flatnonzero(marked[among[part] >> shift]) + part.start for part in blocks(len(among))])


def _matches_by_dictionary(qrels: Qrels, run: Run, number: Array) -> Array:
    """:func:`matches` without hashes of 64 bits, for the case that two of them collide."""
    judged = {
        (query, key): judgment
        for judgment, (query, key) in enumerate(zip(number.tolist(), qrels.items.hashable()))
        if query >= 0
    }
    found = np.full(len(qrels), -1, dtype=np.int64)
    for row, pair in enumerate(zip(run.query.tolist(), run.items.hashable())):
        if (judgment := judged.get(pair)) is not None:
            found[judgment] = row
    return found


# ---- ranks -----------------------------------------------------------------------------------------------------------


def _place_in_tie(run: Run, lists: RankedLists, begin: Array, size: Array, rows: Array) -> Array:
    """How many documents of its tie group rank before each document, by descending id: int64 [entry].

    Args:
        run: the run.
        lists: its rows by query and score.
        begin: int64 [entry], the place where the tie group of each entry begins.
        size: int64 [entry], the size of this group.
        rows: int64 [entry], the row of the run.
    """
    starts, first = np.unique(begin, return_index=True)
    sizes = size[first]
    offset = np.cumsum(sizes) - sizes
    group = np.repeat(np.arange(len(starts)), sizes)
    members = lists.row(np.arange(len(group)) - offset[group] + starts[group])
    order = np.lexsort((*run.items.take(members).sort_keys(), group))
    place = np.empty(len(members), dtype=np.int64)
    place[order] = (offset + sizes - 1)[group] - np.arange(len(members))
    by_row = np.argsort(members)
    return place[by_row[np.searchsorted(members, rows, sorter=by_row)]]


def _rankings(judged: tuple[Array, Array, Array, Array], lengths: Array) -> Iterator[Ranking]:
    """Rankings of queries with similar numbers of entries, from the query, rank, tie and grade of each entry."""
    order = np.lexsort((judged[2] == 0, judged[1], judged[0]))
    query, first, tied, grade = (torch.from_numpy(np.ascontiguousarray(x[order])) for x in judged)
    sizes = torch.bincount(query, minlength=len(lengths))
    entries = Entries(
        first.double(),
        tied.double(),
        grade,
        sizes,
        sizes.cumsum(0) - sizes,
        torch.from_numpy(lengths).double(),
        depth_of(first, tied),
    )
    return entries.alone(no_errors(torch.device("cpu")))
