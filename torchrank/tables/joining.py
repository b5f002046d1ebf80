"""The join of judgments and a run: the ranks of the judged documents, without a table of all documents."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, get_args

import numpy as np
import torch

from torchrank.engine.lists import Entries
from torchrank.layouts.canonical import IN_THE_POOL, OUTSIDE_THE_POOL
from torchrank.layouts.checks import no_errors
from torchrank.names.arguments import one_of, warn
from torchrank.ranking.ranking import QueryNames, Ranking, Rankings, depth_of
from torchrank.tables.columns import columns_of_both, error_of
from torchrank.tables.pair_tables import (
    Duplicates,
    KeyIds,
    NumberIds,
    PairTable,
    Parent,
    Qrels,
    ReadingError,
    Rows,
    Run,
    TextIds,
    Ties,
    blocks,
    factorise,
    pair_hashes,
)
from torchrank.tables.sources import read_pairs, read_qrels, read_run

Array = np.ndarray
T = TypeVar("T", bound=PairTable)

# Buckets for each judgment in the hash table that rules out most unjudged documents.
BUCKETS = 32


# Judged documents of a query, from which on the irrelevant ones are left out for measures that do not read them.
MANY_JUDGED = 64


def ranking_of(pairs: Pairs, chosen: Array | None = None) -> Ranking:
    """The ranking of judged documents whose rows in a run are known; of some of them, int64 [n], or None = of all."""
    entries, subtopics = (pairs.every_entry if chosen is None else pairs.entries(chosen)), pairs.subtopics
    if subtopics is not None and chosen is not None:
        subtopics = subtopics[chosen]
    ranking = Rankings(_rankings(entries, pairs.lengths, subtopics), pairs if chosen is None else None)
    return ranking.with_names(QueryNames(pairs.qrels.queries))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Judgments, and the row and score of each judged document in a run."""

    qrels: Qrels
    run: Run
    #: int64 [query of qrels]: the number of the query in the run; -1 = not in the run
    number: Array
    #: float64 [judgment]: the score of the document; -inf = not retrieved
    score: Array
    #: int64 [judgment]: the row of the document in the run, -1 = not in the run; None = for dictionaries, not known yet
    row: Array | None

    @classmethod
    def of(cls, qrels: Qrels, run: Run, number: Array | None = None) -> Pairs:
        """Find the judged documents in the run.

        Args:
            qrels: the judgments.
            run: the run.
            number: int64 [query of qrels], the number of each query in the run, -1 = not in the run; None = looked up.
        """
        if number is None:
            number = _numbers_of(qrels, run)
        # Most grades are integers, and most scores are not.
        fractional = qrels.value != qrels.value.round()
        if len(run) and fractional.any() and (run.value == run.value.round()).all():
            warn(
                f"The judgments have grades such as {qrels.value[fractional.argmax()]:g}, and all scores of the run are"
                " integers; if the two are exchanged, pass the judgments first"
            )
        if isinstance(qrels.items, KeyIds) and isinstance(run.items, KeyIds):
            scores: list[Any] = []  # looked up in dictionaries
            for grades, query in zip(qrels.items.tables, number.tolist()):
                get = run.items.tables[query].get if query >= 0 else {}.get
                scores += [get(item, -math.inf) for item in grades]
            return cls(qrels, run, number, np.array([float(score) for score in scores], dtype=np.float64), None)
        return cls.of_rows(qrels.columns, run.columns, number)

    @classmethod
    def of_rows(cls, qrels: Qrels, run: Run, number: Array) -> Pairs:
        """Pairs of two tables whose documents are columns."""
        row = matches(qrels, run, number[qrels.query])
        score = np.where(row < 0, -np.inf, run.value[row] if len(run) else -np.inf)
        return cls(qrels, run, number, score, row)

    def rows(self, judgments: Array) -> Array:
        """The row in the run of each of ``judgments``, int64 [n], -1 = not in the run."""
        if self.row is not None:
            return self.row[judgments]
        names, numbers = self.qrels.items.tolist(), self.number[self.qrels.query[judgments]]
        wanted = [names[judgment] for judgment in judgments.tolist()]
        return self.run.items.rows_of(numbers.tolist(), wanted)

    @cached_property
    def common(self) -> int:
        """Number of judged documents that the run has."""
        return int((self.score > -np.inf).sum()) or int((self.rows(np.arange(len(self.score))) >= 0).sum())

    @property
    def disjoint(self) -> str:
        """A warning if the judgments and a run with documents have no query or no document in common; else ""."""
        qrels, run = self.qrels, self.run
        if self.common or not len(run):
            return ""
        if not len(qrels):
            source = f" in {qrels.source}" if qrels.source else ""
            return f"No query of the run has a judged document{source}; pass other judgments"
        known = self.number[self.number >= 0]
        if not len(known):
            return _no_common("query", run.queries, qrels.queries, 0, 0)
        row = np.flatnonzero(np.isin(run.query, known))[:1]
        judged = np.flatnonzero(self.number[qrels.query] >= 0)[:1]
        return _no_common("document", run.items, qrels.items, row[0], judged[0]) if len(row) and len(judged) else ""

    @property
    def lengths(self) -> Array:
        """int64 [query of qrels]: number of retrieved documents."""
        return np.append(self.run.lists.retrieved, 0)[self.number]

    def entries(self, judgments: Array) -> tuple[Array, Array, Array, Array]:
        """Query, first rank, number of tied candidates, and grade of each document of ``judgments``, int64 [n]."""
        if "every_entry" in vars(self):
            query, first, tied, grade = (column[judgments] for column in self.every_entry)
            return query, first, tied, grade
        lists, query, score = self.run.lists, self.qrels.query[judgments].astype(np.int64), self.score[judgments]
        tied = np.zeros(len(query), dtype=np.int64)
        first = self.lengths[query] + 1
        retrieved = np.flatnonzero(score > -np.inf)
        above, tied[retrieved] = lists.tie(self.number[query[retrieved]], score[retrieved])
        first[retrieved] = 1 + above
        in_tie = np.flatnonzero(tied > 1) if self.run.ties != "expected" else retrieved[:0]
        if len(in_tie):
            begin = lists.start[self.number[query[in_tie]]] + first[in_tie] - 1
            groups, group = np.unique(begin, return_index=True)
            places, rows = lists.ordered(self.run, groups, tied[in_tie][group])
            order = np.argsort(rows)
            first[in_tie] += places[order[np.searchsorted(rows, self.rows(judgments[in_tie]), sorter=order)]] - begin
            tied[in_tie] = 1
        return query, first, tied, np.maximum(self.qrels.value[judgments], IN_THE_POOL)

    @cached_property
    def every_entry(self) -> tuple[Array, Array, Array, Array]:
        """The :meth:`entries` of all judged documents, of which others are then taken."""
        return self.entries(np.arange(len(self.score)))

    @property
    def relevant_or_few(self) -> Array:
        """int64 [n]: the judgments, without the irrelevant ones of queries that have many.

        Only the judgments of the query decide, so that its value has the same bits in every part.
        """
        many = np.bincount(self.qrels.query, minlength=len(self.number)) > MANY_JUDGED
        return np.flatnonzero((self.qrels.value > 0) | ~many[self.qrels.query])

    def judged_share(self, depth: int) -> Array:
        """float64 [query of qrels]: the share of judged documents in the first ranks; of equal scores the mean."""
        ranks = np.minimum(self.lengths, depth)
        last = np.full(len(ranks), np.inf)  # the score at the last of these ranks
        some = np.flatnonzero(ranks)
        last[some] = self.run.lists.scores[self.run.lists.start[self.number[some]] + ranks[some] - 1]
        near = np.flatnonzero((self.score >= last[self.qrels.query]) & (self.qrels.value >= 0))
        query, first, tied, _ = self.entries(near)
        weight = np.clip((depth + 1 - first) / tied, 0, 1)
        # One tie group of a query is cut at most, so sums do not depend on the order of the judgments.
        whole, cut = (np.bincount(query, weight * chosen, len(ranks)) for chosen in (weight == 1, weight < 1))
        return np.minimum(whole + cut, ranks) / np.maximum(ranks, 1)

    @property
    def subtopics(self) -> Array | None:
        """float64 [judgment, subtopic]: the grades for each subtopic."""
        return None if self.qrels.subtopics is None else np.maximum(self.qrels.subtopics, IN_THE_POOL)

    @property
    def partly_judged(self) -> Array | None:
        """bool [judgment]: the document has a part without a grade; None = documents have no parts.

        A grade under the id of the document is one of all its parts.
        """
        if self.qrels.parts is None:
            return None
        judged = {(query, part) for query, part, _, grade in _parts_of(self.qrels) if grade >= 0}
        partly = {
            (query, parent)
            for query, part, parent, _ in itertools.chain(_parts_of(self.qrels), _parts_of(self.run))
            if (query, part) not in judged and (query, parent) not in judged
        }
        names = self.qrels.query_ids
        documents = zip(self.qrels.query.tolist(), self.qrels.items.tolist())
        return np.array([(names[query], document) in partly for query, document in documents], dtype=bool)

    def __call__(self) -> Ranking:
        """The ranking with an entry for every candidate."""
        query, first, tied, grade = self.every_entry
        rows = self.rows(np.arange(len(self.score)))
        outside = np.ones(len(self.run), dtype=bool)
        outside[rows[rows >= 0]] = False
        known = np.flatnonzero(self.number >= 0)
        query_of = np.full(len(self.run.queries), -1)  # the number in ``qrels`` of each query of the run
        query_of[self.number[known]] = known
        others = np.flatnonzero(outside & (query_of[self.run.query] >= 0))
        grades = np.full(len(others), float(OUTSIDE_THE_POOL))
        outside_pool = Qrels(self.qrels.queries, query_of[self.run.query[others]], self.run.items, grades)
        unjudged = Pairs(outside_pool, self.run, self.number, self.run.value[others], others).every_entry
        # The grade of documents outside the pool is below the grade of unjudged documents in the pool.
        both = zip((query, first, tied, grade), (*unjudged[:3], grades))
        query, first, tied, grade = map(np.concatenate, both)
        subtopics, partly = self.subtopics, self.partly_judged
        if partly is not None:
            partly = np.concatenate([partly & (self.qrels.value >= 0), np.zeros(len(others), bool)])
        if subtopics is not None:
            subtopics = np.concatenate([subtopics, np.repeat(grades[:, None], subtopics.shape[1], axis=1)])
        return Ranking.join(_rankings((query, first, tied, grade), self.lengths, subtopics, partly))


def _parts_of(table: PairTable) -> Iterator[tuple[Hashable, Hashable, Hashable, float]]:
    """The query, the id, the parent and the number of each part of the documents of a table."""
    if table.parts is not None:
        parts, parents = table.parts
        queries = map(parts.query_ids.__getitem__, parts.query.tolist())
        yield from zip(queries, parts.items.tolist(), parents, parts.value.tolist())


def _numbers_of(table: PairTable, among: PairTable) -> Array:
    """int64 [query of table]: the number of each query in another table; -1 = not in it."""
    numbers: dict[Hashable, int] = {key: number for number, key in enumerate(among.queries.to_keys())}
    return np.array([numbers.get(key, -1) for key in table.queries.to_keys()], dtype=np.int64)


def without(table: T, excluded: PairTable | None) -> T:
    """A table without some pairs of query and document, with all its queries; warns if no query is judged."""
    if excluded is None or not len(excluded):
        return table
    table, excluded = table.columns, excluded.columns
    number = _numbers_of(excluded, table)
    if isinstance(table, Qrels) and len(table) and (number < 0).all():
        warn(_no_common("query", excluded.queries, table.queries, 0, 0, "exclude="))
    keep = np.ones(len(table), dtype=bool)
    rows = matches(excluded, table, number[excluded.query])
    keep[rows[rows >= 0]] = False
    return table.with_rows(np.flatnonzero(keep))


def _no_common(what: str, run_ids: Any, judged_ids: Any, run_row: int, judged_row: int, of: str = "the run") -> str:
    """A warning that no id is in both the run and the judgments, with an example of each."""
    retrieved, judged = run_ids.take(np.array([run_row])), judged_ids.take(np.array([judged_row]))
    run_id, judged_id = retrieved.tolist()[0], judged.tolist()[0]
    way_out = "ids of one type" if {retrieved.kind, judged.kind} == {"text", "integers"} else "the same ids"
    chunks = ", or parent='#' (--parent '#') to evaluate chunks as their documents"
    chunks *= "#" in f"{run_id}{judged_id}"
    return (
        f"No {what} of {of} is judged: a {what} of {of} is {run_id!r}, a judged {what} is {judged_id!r};"
        f" use {way_out} in both{chunks}"
    )


# ---- documents that are in both --------------------------------------------------------------------------------------


def matches(qrels: PairTable, run: PairTable, number: Array) -> Array:
    """The row of the run of each judgment: int64 [judgment], -1 = not in the run.

    Hashes of 64 bits select the rows. The ids of every selected row are then compared byte for byte.

    Args:
        qrels: the judgments.
        run: the run.
        number: int64 [judgment], the number of the query in the run; -1 = not in the run.
    """
    if qrels.frame_row is not None and run.frame_row is not None:
        place = np.full(1 + max(x.max(initial=-1) for x in (qrels.frame_row, run.frame_row)), -1)
        place[run.frame_row] = np.arange(len(run))
        return place[qrels.frame_row]
    row_of = np.full(len(qrels), -1, dtype=np.int64)
    wanted = np.flatnonzero(number >= 0)
    if not len(wanted) or not len(run):
        return row_of
    asked = qrels.items.take(wanted)
    hashes = pair_hashes(number[wanted], asked)
    rows = _candidates(hashes, run.hashes)
    order = np.argsort(hashes)
    ordered = hashes[order]
    place = np.minimum(np.searchsorted(ordered, run.hashes[rows]), len(order) - 1)
    equal = ordered[place] == run.hashes[rows]
    rows, judgment = rows[equal], order[place[equal]]
    same = (run.query[rows] == number[wanted[judgment]]) & run.items.take(rows).equals(asked.take(judgment))
    if "objects" not in (qrels.items.kind, run.items.kind) and same.all() and (ordered[1:] != ordered[:-1]).all():
        row_of[wanted[judgment]] = rows
        return row_of
    # without hashes: for hashes that collide, and for ids of any type
    judged = {pair: judgment for judgment, pair in enumerate(zip(number.tolist(), qrels.items.to_keys()))}
    for row, pair in enumerate(zip(run.query.tolist(), run.items.to_keys())):
        if (place_of := judged.get(pair)) is not None:
            row_of[place_of] = row
    return row_of


def _candidates(hashes: Array, among: Array) -> Array:
    """The rows of ``among`` that share the leading bits of one of ``hashes``: all matches, and few false positives."""
    bits = min(24, (BUCKETS * len(hashes)).bit_length())
    shift = np.uint64(64 - bits)
    marked = np.zeros(2**bits, dtype=bool)
    marked[hashes >> shift] = True
    return np.concatenate([np.flatnonzero(marked[among[part] >> shift]) + part.start for part in blocks(len(among))])


# ---- ranks -----------------------------------------------------------------------------------------------------------


def _rankings(
    judged: tuple[Array, Array, Array, Array], lengths: Array, subtopics: Array | None, partly: Array | None = None
) -> Iterator[Ranking]:
    """Rankings of queries with similar numbers of entries, from what :meth:`Pairs.entries` returns.

    With ``subtopics``, grades float64 [entry, subtopic], a single ranking of all queries. ``partly`` marks the entries
    that are partly judged, bool [entry].
    """
    # Tied entries have one order, too, so that the order of the rows changes no bit of a sum.
    further = [*([] if partly is None else [partly]), *([] if subtopics is None else subtopics.T)]
    by_rank = judged[0] * (1 + judged[1].max(initial=0)) + judged[1]
    order = np.lexsort((*further, judged[3], by_rank))
    query, first, tied, grade = (torch.from_numpy(np.ascontiguousarray(x[order])) for x in judged)
    sizes = torch.bincount(query, minlength=len(lengths))
    entries = Entries(
        first.double(), tied.double(), grade, sizes, sizes.cumsum(0) - sizes, torch.from_numpy(lengths).double(),
        depth_of(first, tied), partly_judged=None if partly is None else torch.from_numpy(partly[order]),
    )  # fmt: skip
    errors = no_errors(torch.device("cpu"))
    if subtopics is None:
        return entries.alone(errors)
    return iter([entries.of_subtopics(torch.from_numpy(subtopics[order]), errors)])


def rank_run(
    qrels: Any, run: Any, duplicates: Duplicates = "error", parent: Parent | None = None, exclude: Any = None
) -> Ranking:
    """The ranking of two tables, or of their sources; queries are in the order of ``qrels``.

    Entries are the judged documents. Documents without a judgment become entries when all candidates are read. Warns if
    the judgments and the run have no query or no document in common.
    """
    judgments, retrieved = read_qrels(qrels, duplicates=duplicates), read_run(run, duplicates=duplicates)
    excluded = None if exclude is None else read_pairs(exclude).by_parent(parent)
    pairs = Pairs.of(without(judgments.by_parent(parent), excluded), without(retrieved.by_parent(parent), excluded))
    if pairs.disjoint:
        warn(pairs.disjoint)
    return ranking_of(pairs)


def rank_frame(frame: Any, *, ties: Ties, duplicates: Duplicates, **columns: str | None) -> Ranking:
    """The ranking of one frame with scores and grades."""
    qrels, (run,), (names, _) = tables_of_frame(frame, columns, ties, duplicates)
    return ranking_of(Pairs.of_rows(qrels, run, np.arange(len(run.queries)))).with_names(names)


def tables_of_frame(
    frame: Any, columns: Mapping[str, Any], ties: Ties, duplicates: Duplicates, item: bool = False
) -> tuple[Qrels, list[Run], list[QueryNames]]:
    """The judgments and the runs of one frame, all with all queries; and these with their groups, and their clusters.

    Args:
        frame: a data frame, or a dictionary of columns.
        columns: the names of the columns query, item, score, grade, group and cluster; None = usual names, and no
            groups. Each of a list of columns of scores is a run.
        ties: the order of equal scores.
        duplicates: "error", or the row to keep of an item that a query has twice.
        item: whether the column of items must be there, also without an order by id.
    """
    one_of("ties", ties, get_args(Ties))
    one_of("duplicates", duplicates, get_args(Duplicates))
    ids, groups, row, items, scores, grades = columns_of_both(frame, columns, item or ties == "document")
    number, queries = factorise(ids)
    names = [
        QueryNames(queries) if column is None else with_groups(queries, number, column, str(columns[name]))
        for name, column in zip(("group", "cluster"), groups)
    ]
    number = number if row is None else number[row]
    if items is None:
        items = NumberIds(-1 - np.arange(len(grades)))  # which no query has as its id
    else:
        best = np.where(np.isnan(scores[0]), -np.inf, scores[0])
        distinct = Rows(queries, number, items, best, "frame", error_of("frame")).without_duplicates(duplicates)
        if distinct is not None:
            if duplicates == "best" and len(scores) > 1:
                way_out = "pass duplicates='first', or one row for each item"
                raise ValueError(f"Expected one column of scores with duplicates='best', got {len(scores)}; {way_out}")
            number, items, grades = number[distinct], items.take(distinct), grades[distinct]
            scores = [score[distinct] for score in scores]
    judged = np.flatnonzero(~np.isnan(grades))
    qrels, runs = Qrels(queries, number[judged], items.take(judged), grades[judged], "frame", frame_row=judged), []
    ungraded = len(grades) - len(judged)
    for score in scores:
        retrieved, unscored = np.flatnonzero(~np.isnan(score)), int(np.isnan(score[judged]).sum())
        if len(retrieved) + len(judged) and unscored == len(judged):
            warn(
                "No row has both a score and a grade, so nothing retrieved is judged: all values are 0; join both by id"
            )
            unscored = ungraded = 0
        if unscored:
            warn(
                f"{unscored} of {len(judged)} rows with a grade have no score (NaN or missing), so they count as not"
                " retrieved; NaN from a model is a bug of the model, and items that were not retrieved have the score"
                " -inf"
            )
        columns_of_run = queries, number[retrieved], items.take(retrieved), score[retrieved], "frame"
        runs.append(Run(*columns_of_run, frame_row=retrieved, ties=ties))
    if ungraded:
        way_out = "items that are not relevant have the grade 0, and items that nobody judged the grade -1"
        warn(f"{ungraded} of {len(grades)} rows have no grade (NaN or missing), so they count as unjudged; {way_out}")
    return qrels, runs, names


def with_groups(queries: Any, query: np.ndarray, groups: Any, column: str) -> QueryNames:
    """The ids of queries with their groups.

    Args:
        queries: the ids of the queries.
        query: int [row], the number of the query of each row, in the order of appearance.
        groups: the group of each row, as a frame has it.
        column: the name of the column of groups, for messages.

    Raises:
        ReadingError: a query has two groups, or a group is neither text, an integer nor a bool.
    """
    if isinstance(groups, TextIds):
        code, distinct = factorise(groups)
        code, known = code.astype(np.int64), distinct.tolist()
    else:
        groups = groups.tolist() if hasattr(groups, "tolist") else groups
        for row, group in enumerate(groups):
            if group is not None and not isinstance(group, str | int | np.integer):
                kind = f"{group!r} of type {type(group).__name__}"
                message = f"Expected {column} to be text, integers or bools, got {kind}"
                raise ReadingError(message, "frame", row + 1, unit="row")
        known = [group for group in dict.fromkeys(groups) if group is not None]
        number = {None: -1} | {group: number for number, group in enumerate(known)}  # -1 = missing
        code = np.array([number[group] for group in groups], dtype=np.int64)
    _, first = np.unique(query, return_index=True)
    of_query = code[first]
    other = np.flatnonzero(code != of_query[query])
    if len(other):
        row, names = int(other[0]), [*known, None]
        both = f"{names[of_query[query[row]]]!r} and {names[code[row]]!r}"
        name = queries.take(query[row : row + 1]).tolist()[0]
        message = f"Expected one {column} for each query, got {both} for query {name!r}"
        raise ReadingError(message, "frame", row + 1, unit="row")
    return QueryNames(queries, known, of_query)
