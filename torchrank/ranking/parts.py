"""Rankings that consist of rectangles of different widths, which are joined as late as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.hardware.sorting import order_of
from torchrank.layouts.canonical import BLOCK
from torchrank.layouts.cutting import OVERHEAD, groups
from torchrank.ranking.gained import Gained

R = TypeVar("R", bound=Gained)


@dataclass(frozen=True, eq=False)
class Parted(Gained):
    """A ranking that may consist of several rectangles; these are joined when their entries are read."""

    def narrowed(self, start: int) -> Iterator[Self]:
        """Cut this ranking into rectangles with little padding, and number its queries.

        Queries without numbers get the numbers from ``start`` on. Padding depends on values, so on an accelerator the
        ranking stays as it is.
        """
        if not reading_is_free(self.first) or self.subtopics is not None or self.pool is not None:
            yield self
            return
        width, queries = self.first.shape[1], self.queries
        # The size of a query is the column behind its last valid entry. Masked candidates may be invalid before it.
        from_end = self.valid.flip(-1).to(torch.uint8)
        sizes = torch.where(self.valid.any(-1), width - from_end.argmax(-1), 0) if width else self.valid.sum(-1)
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
        """One ranking of the queries of several rankings whose entries are all judged candidates.

        Measures read its :meth:`parts`. The parts are joined to one rectangle when a field of the entries is read.
        """
        parts = tuple(rankings)
        if len(parts) == 1:  # the queries of a single part are in order
            return parts[0] if parts[0].queries is None else replace(parts[0], queries=None)
        if any(part.queries is not None for part in parts):
            parts = tuple(numbered(parts))
        assert all(part.pool is None for part in parts), "Expected rankings with all judged candidates as entries"
        return cls._unjoined(parts)

    @classmethod
    def with_others(cls, judged: Iterable[Self], everything: Callable[[], Self]) -> Self:
        """One ranking of judged candidates, which gets entries for all others only if they are read.

        Args:
            judged: rankings whose entries are the judged candidates.
            everything: returns the ranking with an entry for every candidate; it can be pickled.
        """
        parts = tuple(judged)
        whole = cls._unjoined(tuple(numbered(parts)) if any(part.queries is not None for part in parts) else parts)
        whole.__dict__.update(all_candidates=True, _with_all=everything)
        return whole

    @classmethod
    def _unjoined(cls, parts: tuple[Self, ...]) -> Self:
        """The ranking of some parts, whose fields of entries are joined when they are read."""
        order = batch_order([part.queries for part in parts])
        lengths = torch.cat([part.num_candidates for part in parts])
        ignored = _together([(part.ignored, part.num_candidates) for part in parts])
        # An instance without first, tied, grade and valid: reading one of these calls __getattr__, which joins parts.
        whole = object.__new__(cls)
        whole.__dict__.update(
            num_candidates=lengths if order is None else lengths[order],
            errors=torch.stack([part.errors for part in parts]).sum(0),
            depth=max(part.depth for part in parts),
            reach=parts[0].reach,
            ignored=ignored if ignored is None or order is None else ignored[order],
            all_candidates=all(part.all_candidates for part in parts),
            only_relevant=parts[0].only_relevant,
            draw=parts[0].draw,
            _parts=parts,
            _cache={},
        )
        # ``subtopics`` has a default on the class, so that reading it does not call __getattr__: join now.
        if any(part.subtopics is not None for part in parts):
            whole._join_parts()
        return whole

    def parts(self, all_candidates: bool = False) -> list[Self]:
        """Rectangles of some queries each, with their numbers if they are not in order.

        Their entries are the judged candidates, or all candidates if these are asked for and the ranking has them. Each
        of several rectangles is a copy whose cache is freed with it, because there may be many rectangles.
        """
        if all_candidates and "_with_all" in self.__dict__:
            return self._everything().parts()
        rectangles = self._rectangles
        return list(rectangles if len(rectangles) == 1 else map(replace, rectangles))

    @property
    def _rectangles(self) -> tuple[Self, ...]:
        return self.__dict__.get("_parts", (self,))

    @property
    def size(self) -> int:
        """Number of entries of all queries, padding included."""
        return sum(part.first.numel() for part in self._rectangles)

    def _everything(self) -> Self:
        """The ranking with an entry for every candidate."""
        if "_all" not in self.__dict__:
            self.__dict__["_all"] = self.__dict__["_with_all"]()
        return self.__dict__["_all"]

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for missing attributes: the entries of a ranking whose parts are not yet joined.
        if "_parts" not in self.__dict__ or name not in ("first", "tied", "grade", "valid"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._join_parts()
        return self.__dict__[name]

    def _join_parts(self) -> None:
        """Set the fields of the entries: all parts padded to one width, queries in order."""
        names = ("first", "tied", "grade", "valid", "subtopics")
        if "_with_all" in self.__dict__:
            everything = self._everything()
            self.__dict__.update({name: getattr(everything, name) for name in names})
            return
        parts: tuple[Self, ...] = self.__dict__["_parts"]
        width = max(part.first.shape[1] for part in parts)
        first, tied, grade, valid = [
            torch.cat([torch.nn.functional.pad(getattr(p, name), (0, width - p.first.shape[1])) for p in parts])
            for name in ("first", "tied", "grade", "valid")
        ]
        lengths = torch.cat([part.num_candidates for part in parts])
        grades = [part.subtopics for part in parts if part.subtopics is not None]
        pad = torch.nn.functional.pad
        subtopics = torch.cat([pad(one, (0, 0, 0, width - one.shape[1])) for one in grades]) if grades else None
        joined = self.in_rank_order(first, tied, grade, valid, lengths, self.errors, self.depth, subtopics=subtopics)
        order = batch_order([part.queries for part in parts])
        joined = joined if order is None else joined.take(order)
        self.__dict__.update({name: getattr(joined, name) for name in names})


def _together(parts: Sequence[tuple[Tensor | None, Tensor]]) -> Tensor | None:
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
