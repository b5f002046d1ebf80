"""A batch as the user gave it, cut by queries: it finds the first query with a bad value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchrank.layouts.bad_values import Problem


@dataclass(frozen=True, eq=False)
class Batch:
    """What ``update`` and ``score`` take, of which nothing is checked yet."""

    preds: Any
    target: Any
    weights: Any
    #: mask, indexes, exclude and tie_break, by name
    options: dict[str, Any]

    @property
    def queries(self) -> Tensor | None:
        """The names of the queries, int64 [query]: their numbers, or their indexes; None of a Ranking."""
        if not isinstance(self.preds, Tensor):
            return None
        indexes = self.options.get("indexes")
        return torch.arange(len(self.preds), device="cpu") if indexes is None else indexes.unique().cpu()

    def rows(self, start: int, stop: int) -> Batch:
        """The batch of the queries from start to stop. Pairs of no query of it are left out."""
        indexes = self.options.get("indexes")
        rows: slice | Tensor = slice(start, stop)
        if indexes is not None:
            rows = torch.isin(indexes, indexes.unique()[start:stop])

        def cut(x: Any, name: str = "") -> Any:
            if isinstance(x, tuple):
                inside = (x[0] >= start) & (x[0] < stop)
                return tuple(part[inside.to(part.device)] - (0 if at else start) for at, part in enumerate(x))
            if not isinstance(x, Tensor | list) or (name == "tie_break" and x.dim() < self.preds.dim()):  # type: ignore[union-attr]
                return x  # the same for all queries
            return x[rows.to(x.device) if isinstance(rows, Tensor) and isinstance(x, Tensor) else rows]

        options = {name: cut(x, name) for name, x in self.options.items()}
        weights = None if self.weights is None else self.weights[start:stop]
        return Batch(cut(self.preds), cut(self.target), weights, options)

    def first(self, kind: Problem, errors: Callable[[Batch], Tensor]) -> int | None:
        """The name of the first query in which ``errors`` counts a problem; None if no single query has it.

        Looks at one half after the other, so that all looks together cost little more than one at the whole.
        """
        queries = self.queries
        if queries is None or not errors(self.rows(0, len(queries)))[kind]:
            return None
        start, stop = 0, len(queries)
        while stop - start > 1:
            middle = (start + stop) // 2
            start, stop = (start, middle) if errors(self.rows(start, middle))[kind] else (middle, stop)
        return int(queries[start])
