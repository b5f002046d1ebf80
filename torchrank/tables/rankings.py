"""The rankings of tables: of judgments and a run, or of one frame with both."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from torchrank.names.arguments import one_of, warn
from torchrank.ranking.query_names import QueryNames
from torchrank.ranking.ranking import Ranking
from torchrank.tables import frames
from torchrank.tables.ids import NumberIds, factorise
from torchrank.tables.joining import Pairs, join, ranking_of
from torchrank.tables.sources import read_qrels, read_run
from torchrank.tables.table import Duplicates, Qrels, Rows, Run, Ties


def rank_run(qrels: Any, run: Any, duplicates: Duplicates = "error") -> Ranking:
    """The ranking of two tables, or of their sources."""
    return join(read_qrels(qrels, duplicates=duplicates), read_run(run, duplicates=duplicates))


def rank_frame(
    frame: Any,
    *,
    query: str | None,
    item: str | None,
    score: str | None,
    grade: str | None,
    group: str | None,
    ties: Ties,
    duplicates: Duplicates,
) -> Ranking:
    """The ranking of one frame with scores and grades."""
    one_of("ties", ties, get_args(Ties))
    one_of("duplicates", duplicates, get_args(Duplicates))
    chosen: dict[str, Any] = {"query": query, "item": item, "score": score, "grade": grade, "group": group}
    ids, items, scores, grades, groups = frames.of_both(frame, chosen, ties)
    number, queries = factorise(ids)
    names = QueryNames(queries) if groups is None else frames.with_groups(queries, number, groups, str(group))
    if items is None:
        items = NumberIds(np.arange(len(scores)))
    else:
        rows = Rows(
            queries, number, items, np.where(np.isnan(scores), -np.inf, scores), "frame", frames.error_of("frame")
        )
        kept = rows.without_duplicates(duplicates)
        if kept is not None:
            number, items, scores, grades = number[kept], items.take(kept), scores[kept], grades[kept]
    retrieved, judged = np.flatnonzero(~np.isnan(scores)), np.flatnonzero(~np.isnan(grades))
    run = Run(queries, number[retrieved], items.take(retrieved), scores[retrieved], "frame", ties=ties)
    qrels = Qrels(queries, number[judged], items.take(judged), grades[judged], "frame")
    row_in_run = np.full(len(scores), -1)
    row_in_run[retrieved] = np.arange(len(retrieved))
    if len(scores) and not (row_in_run[judged] >= 0).any():
        warn("No row has both a score and a grade, so nothing retrieved is judged: all values are 0; join both by id")
    return ranking_of(Pairs.of_rows(qrels, run, row_in_run[judged])).with_names(names)
