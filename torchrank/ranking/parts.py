"""Rectangles of queries: cut from a ranking, numbered, and put in the order of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import torch
from torch import Tensor

from torchrank.hardware import costs
from torchrank.hardware.sorted_values import order_of
from torchrank.layouts.cutting import groups
from torchrank.ranking.entries import PER_ENTRY
from torchrank.ranking.gained import Gained

R = TypeVar("R", bound=Gained)


@dataclass(frozen=True, eq=False)
class Parted(Gained):
    """One rectangle of queries. :class:`torchrank.ranking.ranking.Rankings` has several."""

    def narrowed(self, start: int) -> Iterator[Self]:
        """Cut this ranking into rectangles with little padding, and number its queries.

        Queries without numbers get the numbers from ``start`` on. Padding depends on values, so on an accelerator the
        ranking stays as it is.
        """
        if not self.first.is_cpu or self.subtopics is not None or self.pool is not None:
            yield self
            return
        width, queries = self.first.shape[1], self.queries
        # The size of a query is the column behind its last valid entry. Masked candidates may be invalid before it.
        from_end = self.valid.flip(-1).to(torch.uint8)
        sizes = torch.where(self.valid.any(-1), width - from_end.argmax(-1), 0) if width else self.valid.sum(-1)
        numbers = torch.arange(start, start + self.num_queries, device="cpu") if queries is None else queries
        errors = self.errors
        for rows, wide in groups(sizes, costs.now.rectangle, costs.now.block):
            if wide == width and len(rows) == len(sizes):
                yield self
                return
            cut = {name: x[rows, :wide] for name in PER_ENTRY if (x := getattr(self, name)) is not None}
            yield replace(self.take(rows), **cut, queries=numbers[rows], errors=errors)
            errors = torch.zeros_like(errors)

    def parts(self, all_candidates: bool = False) -> list[Self]:
        """Rectangles of some queries each, with their numbers if they are not in order.

        Their entries are the judged candidates, or all candidates if these are asked for and the ranking has them.
        """
        return [self]

    @property
    def size(self) -> int:
        """Number of entries of all queries, padding included."""
        return self.first.numel()


def together(parts: Sequence[tuple[Tensor | None, Tensor]]) -> Tensor | None:
    """Join ``ignored`` of several batches, bool [query] or None; each with any tensor [query] for its length."""
    if all(ignored is None for ignored, _ in parts):
        return None
    return torch.cat([torch.zeros_like(x, dtype=torch.bool) if flag is None else flag for flag, x in parts])


def numbered(parts: Sequence[R], start: int = 0) -> list[R]:
    """Number the queries of consecutive parts, the first query with ``start``.

    Parts that have numbers already have them relative to ``start``.
    """
    numbered, first = [], start
    for part in parts:
        stop = start + part.num_queries
        numbers = torch.arange(start, stop, device=part.num_candidates.device)
        numbered.append(replace(part, queries=numbers if part.queries is None else part.queries + first))
        start = stop
    return numbered


def batch_order(queries: Sequence[Tensor | None]) -> Tensor | None:
    """The place of each query of a batch in the joined parts, given the numbers in each part; None if in order."""
    numbers = [part for part in queries if part is not None]
    return order_of(torch.cat(numbers)) if numbers else None
