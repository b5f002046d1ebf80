"""Scores that exist only some columns at a time, and the scores of single pairs that are picked from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.layouts.canonical import Pairs
from torchrank.layouts.catalogues import Shard
from torchrank.ranking.ranking import Tolerance


@dataclass(frozen=True, eq=False)
class Columns:
    """Scores [query, item] that exist only some columns at a time."""

    #: returns (first column, scores [query, column]) from left to right
    read: Callable[[], Iterable[tuple[int, Tensor]]]
    #: number of columns of all workers; None = unknown before the reading
    width: int | None
    dtype: torch.dtype
    #: whether ``read`` can be called more than once
    again: bool
    #: within which scores are tied with that of a relevant item; None = only equal ones are
    tolerance: Tolerance | None
    #: number of columns of each reading but the last, at most; None = unknown
    at_once: int | None = None
    #: returns the scores of pairs, given rows and items [pair], without a reading; None if a reading costs less
    score: Callable[[Tensor, Tensor], Tensor | None] | None = None
    #: whether all scores are known to be finite
    finite: bool = False
    #: this worker's part, if other workers have other columns of the same queries
    shard: Shard | None = None


class Seen:
    """Scores of judged items and of excluded pairs, picked from the columns as they are read."""

    def __init__(self, rows: slice | Tensor, items: Tensor, pairs: Pairs | None, dtype: torch.dtype) -> None:
        self.shape, self.width = items.shape, 0
        if isinstance(rows, slice):
            rows = torch.arange(len(items), device=items.device) + (rows.start or 0)
        #: rows of the whole batch and items, judged items before excluded pairs: int64 [pair] each
        self.row, self.item = rows.unsqueeze(-1).expand_as(items).flatten(), items.flatten()
        if pairs is not None:  # a pair of query -1 reads the last row, without effect
            self.row, self.item = torch.cat([self.row, rows[pairs.query]]), torch.cat([self.item, pairs.item])
        self.scores = torch.zeros(self.item.shape, dtype=dtype, device=items.device)
        self.here = torch.zeros_like(self.item, dtype=torch.bool)

    @property
    def judged_scores(self) -> Tensor:
        """Scores of the judged items [query, entry], 0 for those that were not seen."""
        return self.scores[: self.shape.numel()].view(self.shape)

    def pick(self, first: int, scores: Tensor) -> None:
        """Pick from scores [query, column] of the columns from ``first`` on."""
        column, inside = within(self.item, first, scores)
        self.scores = torch.where(inside, scores[self.row, column], self.scores)
        self.here = self.here | inside
        self.width = max(self.width, first + scores.shape[1])


def within(items: Tensor, first: int, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The columns of items in scores that begin at column ``first``, clamped; and whether the items are in there."""
    column, last = items - first, scores.shape[1] - 1
    return column.clamp(0, last), (column >= 0) & (column <= last)
