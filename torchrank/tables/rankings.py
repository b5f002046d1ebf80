"""The rankings of tables: of judgments and a run, or of one frame with both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from torchrank.names.arguments import one_of, warn
from torchrank.ranking.query_names import QueryNames
from torchrank.ranking.ranking import Ranking
from torchrank.tables import frames
from torchrank.tables.id_columns import NumberIds, factorise
from torchrank.tables.joining import Pairs, join, ranking_of, without
from torchrank.tables.pair_tables import Duplicates, Parent, Qrels, Rows, Run, Ties
from torchrank.tables.sources import read_pairs, read_qrels, read_run


def rank_run(
    qrels: Any, run: Any, duplicates: Duplicates = "error", parent: Parent | None = None, exclude: Any = None
) -> Ranking:
    """The ranking of two tables, or of their sources."""
    judgments, retrieved = read_qrels(qrels, duplicates=duplicates), read_run(run, duplicates=duplicates)
    excluded = None if exclude is None else read_pairs(exclude).by_parent(parent)
    return join(without(judgments.by_parent(parent), excluded), without(retrieved.by_parent(parent), excluded))


def rank_frame(frame: Any, *, ties: Ties, duplicates: Duplicates, **columns: str | None) -> Ranking:
    """The ranking of one frame with scores and grades."""
    qrels, run, names, row = tables_of_frame(frame, columns, ties, duplicates)
    return ranking_of(Pairs.of_rows(qrels, run, np.arange(len(run.queries)), row)).with_names(names)


def tables_of_frame(
    frame: Any, columns: Mapping[str, str | None], ties: Ties, duplicates: Duplicates, item: bool = False
) -> tuple[Qrels, Run, QueryNames, np.ndarray]:
    """The judgments and the run of one frame, both with all queries, and the row of the run of each judgment.

    Args:
        frame: a data frame, or a dictionary of columns.
        columns: the names of the columns query, item, score, grade and group; None = usual names, and no groups.
        ties: the order of equal scores.
        duplicates: "error", or the row to keep of an item that a query has twice.
        item: whether the column of items must be there, also without an order by id.
    """
    one_of("ties", ties, get_args(Ties))
    one_of("duplicates", duplicates, get_args(Duplicates))
    ids, groups, row, items, scores, grades = frames.of_both(frame, columns, item or ties == "document")
    number, queries = factorise(ids)
    names = QueryNames(queries)
    if groups is not None:
        names = frames.with_groups(queries, number, groups, str(columns["group"]))
    number = number if row is None else number[row]
    if items is None:
        items = NumberIds(-1 - np.arange(len(scores)))  # which no query has as its id
    else:
        rows = Rows(
            queries, number, items, np.where(np.isnan(scores), -np.inf, scores), "frame", frames.error_of("frame")
        )
        distinct = rows.without_duplicates(duplicates)
        if distinct is not None:
            number, items, scores, grades = number[distinct], items.take(distinct), scores[distinct], grades[distinct]
    retrieved, judged = np.flatnonzero(~np.isnan(scores)), np.flatnonzero(~np.isnan(grades))
    unscored, ungraded = int(np.isnan(scores[judged]).sum()), len(grades) - len(judged)
    if len(retrieved) + len(judged) and unscored == len(judged):
        warn("No row has both a score and a grade, so nothing retrieved is judged: all values are 0; join both by id")
        unscored = ungraded = 0
    if unscored:
        warn(
            f"{unscored} of {len(judged)} rows with a grade have no score (NaN or missing), so they count as not"
            " retrieved; NaN from a model is a bug of the model, and items that were not retrieved have the score -inf"
        )
    if ungraded:
        warn(
            f"{ungraded} of {len(grades)} rows have no grade (NaN or missing), so they count as unjudged; items that"
            " are not relevant have the grade 0, and items that nobody judged the grade -1"
        )
    run = Run(queries, number[retrieved], items.take(retrieved), scores[retrieved], "frame", ties=ties)
    qrels = Qrels(queries, number[judged], items.take(judged), grades[judged], "frame")
    row_in_run = np.full(len(scores), -1)
    row_in_run[retrieved] = np.arange(len(retrieved))
    return qrels, run, names, row_in_run[judged]
