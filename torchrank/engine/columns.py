"""Scores that exist only some columns at a time, and the scores of single pairs that are picked from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.layouts.items import Pairs
from torchrank.layouts.sharding import Shard


@dataclass(frozen=True, eq=False)
class Columns:
    """Scores [query, item] that exist only some columns at a time."""

    #: returns (first column, scores [query, column]) from left to right
    read: Callable[[], Iterable[tuple[int, Tensor]]]
    #: number of columns of all workers; None = unknown before the reading
    width: int | None
    dtype: torch.dtype
    #: whether ``read`` can be called more than once
    again: bool = True
    #: number of columns of each reading but the last, at most; None = unknown
    at_once: int | None = None
    #: predicts the scores of judged items, given rows and items [query, entry], which saves one reading; returns None
    #: if it cannot predict
    guess: Callable[[slice | Tensor, Tensor], Tensor | None] | None = None
    #: whether all scores are known to be finite
    finite: bool = False
    #: this worker's part, if other workers have other columns of the same queries
    shard: Shard | None = None


class Seen:
    """Scores of judged items and of excluded pairs, picked from the columns as they are read."""

    def __init__(self, columns: Columns, rows: slice | Tensor, items: Tensor, pairs: Pairs | None) -> None:
        self.rows, self.items, self.pairs, self.dtype = rows, items, pairs, columns.dtype
        self.width = 0
        self.forget()

    def forget(self) -> None:
        """Reset, before another reading."""
        self.own = torch.zeros(self.items.shape, dtype=self.dtype, device=self.items.device)
        self.here = torch.zeros_like(self.items, dtype=torch.bool)
        if self.pairs is not None:
            self.pair_scores = torch.zeros(self.pairs.item.shape, dtype=self.dtype, device=self.items.device)
            self.pairs_here = torch.zeros_like(self.pairs.item, dtype=torch.bool)

    def pick(self, first: int, scores: Tensor) -> None:
        """Pick from scores [query, column] of the columns from ``first`` on."""
        column, inside = within(self.items, first, scores)
        if isinstance(self.rows, slice):
            picked = scores[self.rows].gather(-1, column)
        else:  # one index instead of a copy of whole rows
            picked = scores[self.rows.unsqueeze(-1), column]
        self.own = torch.where(inside, picked, self.own)
        self.here = self.here | inside
        self.width = max(self.width, first + scores.shape[1])
        if self.pairs is not None:
            column, inside = within(self.pairs.item, first, scores)
            query = self.pairs.query  # numbered within the group; the scores have the rows of the whole batch
            query = query + (self.rows.start or 0) if isinstance(self.rows, slice) else self.rows[query]
            self.pair_scores = torch.where(inside, scores[query, column], self.pair_scores)
            self.pairs_here = self.pairs_here | inside


def within(items: Tensor, first: int, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The columns of items in scores that begin at column ``first``, clamped; and whether the items are in there."""
    column, last = items - first, scores.shape[1] - 1
    return column.clamp(0, last), (column >= 0) & (column <= last)
