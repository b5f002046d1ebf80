"""A batch of the user, in tensors. It can be cut by queries, to find the first query with a bad value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor

from torchrank.layouts.bad_values import Problem
from torchrank.layouts.checks import indexes_of, shape_of, tensor_of
from torchrank.names.types import Array, Pairs, Repeats

F = TypeVar("F", bound=Callable[..., Any])


class Options(TypedDict, total=False):
    """The arguments of ``update`` besides ``preds`` and ``target``, for methods that pass them on to a batch."""

    mask: Array | None
    indexes: Array | None
    group_sizes: Array | None
    exclude: Pairs | None
    tie_break: Array | None
    groups: Array | None
    repeats: Repeats
    weights: Array | None


def with_options(method: F) -> F:
    """Decorator that shows each of the :class:`Options` in the signature of a method, for help and for torchmetrics."""
    signature = inspect.signature(method)
    options = (
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(Batch, name), annotation=kind.__forward_arg__
        )
        for name, kind in Options.__annotations__.items()
    )
    method.__signature__ = signature.replace(parameters=[*signature.parameters.values()][:-1] + [*options])  # type: ignore[attr-defined]
    return method


@dataclass(frozen=True, eq=False)
class Batch:
    """Arguments of ``update`` or ``score``, before any check. Arrays and lists of numbers become tensors.

    A list as ``target`` or ``exclude`` stays a list, with the ids of one query in each element. A ``mask`` or
    ``tie_break`` of the catalogue, [candidate] or [1, candidate], gets a row for each query, which takes no memory.

    A collection passes the batch itself to ``update`` of its members, in the place of ``preds``, with their results.
    """

    preds: Any
    target: Any = None
    weights: Any = None
    mask: Any = None
    indexes: Any = None
    exclude: Any = None
    tie_break: Any = None
    #: sizes of the queries in place of indexes, int [query]; None as soon as they are converted
    group_sizes: Any = None
    #: the group of each candidate or row; beside ids, of each id
    groups: Any = None
    #: what is done with repeated ids: "error", "first" or "hold"
    repeats: str = "error"
    #: the results of metrics that have scored the batch together, by the id of each metric
    results: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, x in list(vars(self).items()):
            stays = x is None or isinstance(x, Tensor | dict | str)
            if not stays and not (isinstance(x, list) and name in ("target", "exclude")):
                vars(self)[name] = tensor_of(x)
        if self.group_sizes is not None:
            vars(self).update(indexes=indexes_of(self.group_sizes, self.preds, self.indexes), group_sizes=None)
        for name in ("mask", "tie_break"):
            if (x := getattr(self, name)) is not None:
                shape, per_item = shape_of(self.preds), shape_of(x)
                if len(shape) == 2 and shape != per_item and per_item in (shape[1:], [1, shape[1]]):
                    vars(self)[name] = x.expand(shape)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments besides ``preds``, ``target`` and ``weights``, by name."""
        names = ("mask", "indexes", "exclude", "tie_break", "groups")
        found = {name: getattr(self, name) for name in names}
        return found | {"repeats": None if self.repeats == "error" else self.repeats}

    @property
    def queries(self) -> Tensor | None:
        """Numbers of the queries, int64 [query]: their indexes if given, else 0, 1, ...; None for a Ranking."""
        if not isinstance(self.preds, Tensor):
            return None
        if self.indexes is None:
            return torch.arange(len(self.preds), device="cpu")
        return self.indexes.unique().cpu()

    def rows(self, start: int, stop: int) -> Batch:
        """The batch of the queries from ``start`` to ``stop``, without the pairs of other queries."""
        rows: slice | Tensor = slice(start, stop)
        if self.indexes is not None:
            rows = torch.isin(self.indexes, self.indexes.unique()[start:stop])

        def cut(x: Any) -> Any:
            if isinstance(x, tuple):  # of pairs: the first tensor holds queries, which are numbered from 0 again
                x = tuple(map(tensor_of, x))
                inside = (x[0] >= start) & (x[0] < stop)
                return tuple(part[inside.to(part.device)] - (0 if at else start) for at, part in enumerate(x))
            if x is None:
                return None
            x = x.tocsr() if hasattr(x, "tocsr") else x  # a sparse matrix in any format
            return x[rows.to(x.device) if isinstance(rows, Tensor) and isinstance(x, Tensor) else rows]

        of_all = self.indexes is None and isinstance(self.groups, Tensor) and self.groups.dim() == 1
        options = {"repeats": self.repeats} | ({"groups": self.groups} if of_all else {})
        options |= {name: cut(x) for name, x in self.options.items() if name not in options}
        weights = None if self.weights is None else self.weights[start:stop]
        return Batch(cut(self.preds), cut(self.target), weights, **options)

    def first(self, kind: Problem, errors: Callable[[Batch], Tensor]) -> int | None:
        """The number of the first query in which ``errors`` counts a problem; None if no single query has it.

        Bisects the batch, so that all calls of ``errors`` together cost little more than one on the whole batch.
        """
        queries = self.queries
        if queries is None or not errors(self.rows(0, len(queries)))[kind]:
            return None
        start, stop = 0, len(queries)
        while stop - start > 1:
            middle = (start + stop) // 2
            start, stop = (start, middle) if errors(self.rows(start, middle))[kind] else (middle, stop)
        return int(queries[start])
