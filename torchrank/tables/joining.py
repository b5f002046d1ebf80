"""The join of judgments and a run: the ranks of the judged documents, without a table of all documents."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from torchrank.engine.flat import Entries
from torchrank.layouts.bad_values import no_errors
from torchrank.layouts.canonical import IN_THE_POOL, OUTSIDE_THE_POOL
from torchrank.names.arguments import warn
from torchrank.ranking.entries import depth_of
from torchrank.ranking.query_names import QueryNames
from torchrank.ranking.ranking import Ranking, Rankings
from torchrank.tables.ids import Ids, KeyIds, blocks, pair_hashes
from torchrank.tables.table import Qrels, RankedLists, Run, count_above

Array = np.ndarray

# Places in the table that excludes most documents without a judgment, for each judgment.
ROOM = 32


def join(qrels: Qrels, run: Run) -> Ranking:
    """Rank the documents of a run, with the grades of the judgments; queries are in the order of ``qrels``.

    Entries are the judged documents. Documents without a judgment become entries when all candidates are read. Warns if
    no query or no document is in both.
    """
    pairs = Pairs.of(qrels, run)
    if pairs.disjoint:
        warn(pairs.disjoint)
    return ranking_of(pairs)


def ranking_of(pairs: Pairs) -> Ranking:
    """The ranking of judgments whose places in a run are known."""
    ranking = Rankings(_rankings(pairs.judged_entries(), pairs.lengths, pairs.subtopics), pairs)
    return ranking.with_names(QueryNames(pairs.qrels.queries))


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
    def of(cls, qrels: Qrels, run: Run, number: Array | None = None) -> Pairs:
        """Find the judged documents in the run.

        Args:
            qrels: the judgments.
            run: the run.
            number: int64 [query of qrels], the number of each query in the run, -1 = not in the run; None = looked up.
        """
        if number is None:
            numbers: dict[Hashable, int] = {key: at for at, key in enumerate(run.queries.hashable())}
            number = np.array([numbers.get(key, -1) for key in qrels.queries.hashable()], dtype=np.int64)
        _warn_if_exchanged(qrels, run)
        if isinstance(qrels.items, KeyIds) and isinstance(run.items, KeyIds):
            return cls(qrels, run, number, *_looked_up(qrels.items, run.items, number, qrels.query))
        qrels, run = qrels.columns, run.columns
        return cls._at(qrels, run, number, matches(qrels, run, number[qrels.query]))

    @classmethod
    def of_rows(cls, qrels: Qrels, run: Run, row: Array) -> Pairs:
        """Pairs whose row in the run is known, int64 [judgment], -1 = not in the run; both have the same queries."""
        return cls._at(qrels, run, np.arange(len(run.queries)), row)

    @classmethod
    def _at(cls, qrels: Qrels, run: Run, number: Array, row: Array) -> Pairs:
        score = np.where(row < 0, -np.inf, run.value[row] if len(run) else -np.inf)
        return cls(qrels, run, number, score, _Taken(row))

    @cached_property
    def common(self) -> int:
        """Number of judged documents that the run has."""
        return int((self.score > -np.inf).sum()) or int((self.rows(np.arange(len(self.score))) >= 0).sum())

    @property
    def disjoint(self) -> str:
        """A sentence if judgments and run have queries or documents, but none in common; else ""."""
        qrels, run = self.qrels, self.run
        if self.common or not len(run):
            return ""
        if not len(qrels):
            return f"No document is judged: the judgments {qrels.source} are empty; pass others"
        known = self.number[self.number >= 0]
        if not len(known):
            return _unlike("query", run.queries, qrels.queries, 0, 0)
        theirs = np.flatnonzero(np.isin(run.query, known))[:1]
        ours = np.flatnonzero(self.number[qrels.query] >= 0)[:1]
        return _unlike("document", run.items, qrels.items, theirs[0], ours[0]) if len(theirs) and len(ours) else ""

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

    @property
    def subtopics(self) -> Array | None:
        """float64 [judgment, subtopic]: the grades for each subtopic."""
        return None if self.qrels.subtopics is None else np.maximum(self.qrels.subtopics, IN_THE_POOL)

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
        subtopics = self.subtopics
        if subtopics is not None:
            subtopics = np.concatenate([subtopics, np.repeat(rest.value[:, None], subtopics.shape[1], axis=1)])
        return Ranking.join(_rankings((both[0], both[1], both[2], both[3]), self.lengths, subtopics))


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


def _unlike(what: str, theirs: Ids, ours: Ids, their_row: int, our_row: int) -> str:
    """The sentence that shows an id of a run and a judged id, of which none is in both."""
    one, other = theirs.take(np.array([their_row])), ours.take(np.array([our_row]))
    same = "ids of one type" if {one.kind, other.kind} == {"text", "integers"} else "the same ids"
    return (
        f"No {what} of the run is judged: a {what} of the run is {one.tolist()[0]!r}, a judged {what} is"
        f" {other.tolist()[0]!r}; use {same} in both"
    )


def _warn_if_exchanged(qrels: Qrels, run: Run) -> None:
    # Grades are mostly integers, and scores mostly are not.
    fractional = qrels.value != qrels.value.round()
    if len(run) and fractional.any() and (run.value == run.value.round()).all():
        message = (
            f"The judgments have grades such as {qrels.value[fractional.argmax()]:g}, and all scores of the run are"
            " integers; if the two are exchanged, pass the judgments first"
        )
        warn(message)


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


def _rankings(judged: tuple[Array, Array, Array, Array], lengths: Array, subtopics: Array | None) -> Iterator[Ranking]:
    """Rankings of queries with similar numbers of entries, from the query, rank, tie and grade of each entry.

    With grades for subtopics, float64 [entry, subtopic], one ranking of all queries.
    """
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
    if subtopics is None:
        return entries.alone(no_errors(torch.device("cpu")))
    return iter([entries.of_subtopics(torch.from_numpy(subtopics[order]), no_errors(torch.device("cpu")))])
