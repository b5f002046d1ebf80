"""A ranking made of rectangles of different widths, joined as late as possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.hardware.threads import GRAIN, available
from torchrank.layouts.canonical import BLOCK
from torchrank.layouts.cutting import OVERHEAD, groups
from torchrank.ranking.derived import Derived

R = TypeVar("R", bound=Derived)


@dataclass(frozen=True, eq=False)
class Parted(Derived):
    """A ranking that may consist of several rectangles; its entries are put together if they are asked for."""

    def narrowed(self, start: int) -> Iterator[Self]:
        """This ranking, of the queries of a batch from ``start`` on, in rectangles hardly wider than their queries.

        On an accelerator, which cannot look for padding without waiting, as it is.
        """
        if not reading_is_free(self.first) or self.subtopics is not None or self.pool is not None:
            yield self
            return
        width, queries = self.first.shape[1], self.queries
        ahead = self.valid.flip(-1).to(torch.uint8)
        sizes = torch.where(self.valid.any(-1), width - ahead.argmax(-1), 0) if width else self.valid.sum(-1)
        numbers = torch.arange(start, start + self.num_queries, device="cpu") if queries is None else queries
        errors = self.errors
        for rows, wide in groups(sizes, OVERHEAD, BLOCK):
            if wide == width and len(rows) == len(sizes):
                yield self
                return
            cut = {name: getattr(self, name)[rows, :wide] for name in ("first", "tied", "grade", "valid")}
            yield replace(self.take(rows), **cut, queries=numbers[rows], errors=errors)
            errors = torch.zeros_like(errors)

    @classmethod
    def join(cls, rankings: Iterable[Self]) -> Self:
        """One ranking of the queries of all, which know all judged candidates as entries.

        Measures look at its :attr:`parts`; they become one rectangle where its entries are asked for.
        """
        parts = tuple(rankings)
        if len(parts) == 1:  # whose queries are in order
            return parts[0] if parts[0].queries is None else replace(parts[0], queries=None)
        if any(part.queries is not None for part in parts):
            parts = tuple(numbered(parts))
        assert all(part.pool is None for part in parts), "Expected rankings that know all judged candidates"
        order = batch_order([part.queries for part in parts])
        lengths = torch.cat([part.num_candidates for part in parts])
        ignored = _together([(part.ignored, part.num_candidates) for part in parts])
        whole = object.__new__(cls)
        whole.__dict__.update(
            num_candidates=lengths if order is None else lengths[order],
            errors=torch.stack([part.errors for part in parts]).sum(0),
            depth=max(part.depth for part in parts),
            reach=parts[0].reach,
            ignored=ignored if ignored is None or order is None else ignored[order],
            all_candidates=all(part.all_candidates for part in parts),
            only_relevant=parts[0].only_relevant,
            _parts=parts,
            _cache={},
        )
        if parts[0].subtopics is not None:  # which has a value where it has none
            whole._put_together()
        return whole

    def parts(self) -> list[Self]:
        """Rectangles of its queries, not all as wide as the widest, with the numbers of these if not in order.

        Pieces of one of several go with it, because there may be many.
        """
        rectangles, threads = self._rectangles, available()
        if threads < 2 or self.size < GRAIN or self.num_candidates.device.type != "cpu":
            return [self] if len(rectangles) == 1 else list(map(replace, rectangles))
        room = min(BLOCK, self.size // threads + 1)
        return [part for rectangle in rectangles for part in rectangle._cut(1 + rectangle.first.numel() // room)]

    @property
    def _rectangles(self) -> tuple[Self, ...]:
        return self.__dict__.get("_parts", (self,))

    @property
    def size(self) -> int:
        """Entries of all queries, padding included."""
        return sum(part.first.numel() for part in self._rectangles)

    def _cut(self, count: int) -> Iterator[Self]:
        """So many rectangles of consecutive queries, the errors in the first."""
        cuts = [self.num_queries * part // count for part in range(count + 1)]
        for start, stop in pairwise(cuts):
            if start < stop or not stop:
                errors = torch.zeros_like(self.errors) if start else self.errors
                yield replace(self.take(slice(start, stop)), errors=errors)

    def __getattr__(self, name: str) -> Any:
        # Reached only by the entries of a ranking of several parts, which are put together once they are asked for.
        if "_parts" not in self.__dict__ or name not in ("first", "tied", "grade", "valid"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._put_together()
        return self.__dict__[name]

    def _put_together(self) -> None:
        parts: tuple[Self, ...] = self.__dict__["_parts"]
        width = max(part.first.shape[1] for part in parts)
        first, tied, grade, valid = [
            torch.cat([torch.nn.functional.pad(getattr(p, name), (0, width - p.first.shape[1])) for p in parts])
            for name in ("first", "tied", "grade", "valid")
        ]
        lengths = torch.cat([part.num_candidates for part in parts])
        intents = [part.subtopics for part in parts if part.subtopics is not None]  # dense, so of equal width
        subtopics = torch.cat(intents) if intents else None
        joined = self.in_rank_order(first, tied, grade, valid, lengths, self.errors, self.depth, subtopics=subtopics)
        order = batch_order([part.queries for part in parts])
        joined = joined if order is None else joined.take(order)
        self.__dict__.update({name: getattr(joined, name) for name in ("first", "tied", "grade", "valid", "subtopics")})


def _together(parts: Sequence[tuple[Tensor | None, Tensor]]) -> Tensor | None:
    """Which queries of several batches do not count, bool [query]; each batch with something else [query]."""
    if all(ignored is None for ignored, _ in parts):
        return None
    return torch.cat([torch.zeros_like(x, dtype=torch.bool) if flag is None else flag for flag, x in parts])


def numbered(parts: Sequence[R], start: int = 0) -> list[R]:
    """Parts of a batch from the query ``start`` on, with the numbers of their queries, which are counted from there."""
    numbered, first = [], start
    for part in parts:
        stop = start + part.num_queries
        numbers = torch.arange(start, stop, device=part.num_candidates.device)
        numbered.append(replace(part, queries=numbers if part.queries is None else part.queries + first))
        start = stop
    return numbered


def batch_order(queries: Sequence[Tensor | None]) -> Tensor | None:
    """Where each query of a batch stands in its parts, given their numbers in each; None if they are in order."""
    numbers = [part for part in queries if part is not None]
    return torch.cat(numbers).argsort() if numbers else None
