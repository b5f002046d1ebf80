"""Exact nearest neighbours, the ground truth of an index."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from torchrank.engine.judged import top_k
from torchrank.hardware import costs
from torchrank.hardware.devices import all_finite, eager, widened
from torchrank.layouts.checks import check_tensor, integer_ids
from torchrank.layouts.conversions import repeated
from torchrank.names.arguments import integer, one_of
from torchrank.names.types import Array


@eager
def exact_neighbors(
    queries: Array,
    items: Array,
    k: int,
    *,
    where: Array | None = None,
    metric: Literal["l2", "ip", "cosine"] = "l2",
) -> tuple[Tensor, Tensor]:
    r"""The k nearest items of each query, by brute force: the ground truth for the recall of an index.

    Products in float64 choose the items, and the distances are computed again from the chosen items in float64. So,
    unlike those of FAISS' flat index, they do not depend on the number of queries. Two items whose squared distances
    differ by less than about 2e-15 times the largest squared distance of any two vectors can be confused: by 2,000, if
    vectors are 1e9 apart. Blocks of queries and items bound the memory beyond the arguments and results to about 100
    MB, unless a query has many candidates or k is large. The function reads values, so the host waits for an
    accelerator.

    Args:
        queries: numbers [query, dimension].
        items: numbers [item, dimension].
        k: number of neighbours.
        where: a filter, bool [item] or [query, item], True = may be a neighbour; or candidates, int
            [query, candidate], -1 = padding: the k nearest of these items. With the points that an index has found,
            the result has their exact distances, also if the index compresses vectors.
        metric: "l2", the squared distance :math:`\sum_i (q_i - x_i)^2`; "ip", 1 minus the inner product; "cosine", 1
            minus the cosine. These are the distances of hnswlib and usearch. FAISS has the same l2, and the inner
            product p in place of 1 - p; Annoy the root of l2, and :math:`\sqrt{2 - 2 \cos}`.

    Returns:
        int64 ids and float64 distances, [query, k] each, nearest first, and lower ids first among equal distances. If
        several items have the k-th distance, any of them are returned. Id -1 and distance inf fill the rows of queries
        with fewer than k items.

    Raises:
        TypeError: an argument does not hold numbers.
        ValueError: shapes do not fit together, numbers are not finite, candidates are not ids of items, or an argument
            has an unknown value.

    Example:
        >>> import torch, torchrank as tr
        >>> query, items = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 0.0], [2.0, 1.0], [3.0, 1.0]])
        >>> tr.exact_neighbors(query, items, k=2)
        (tensor([[0, 1]]), tensor([[1., 4.]], dtype=torch.float64))
        >>> tr.exact_neighbors(query, items, k=3, where=[False, True, True])
        (tensor([[ 1,  2, -1]]), tensor([[4., 9., inf]], dtype=torch.float64))
    """
    one_of("metric", metric, ("l2", "ip", "cosine"))
    integer("k", k, least=1, or_none=False)
    vectors, points = (check_tensor(x, name).detach() for x, name in ((queries, "queries"), (items, "items")))
    vectors = vectors.to(points.device)
    if vectors.dim() != 2 or points.dim() != 2 or vectors.shape[1] != points.shape[1]:
        raise ValueError(
            "Expected queries [query, dimension] and items [item, dimension] of one dimension, got shapes"
            f" {list(vectors.shape)} and {list(points.shape)}; pass queries[None] for one query"
        )
    shape = [len(vectors), len(points)]
    for x, name in ((vectors, "queries"), (points, "items")):
        if x.is_complex() or x.dtype == torch.bool:
            raise TypeError(f"Expected {name} to be numbers, got {x.dtype}")
        if not all_finite(x) and (wrong := int((~x.isfinite()).any(-1).sum())):
            raise ValueError(f"Expected finite {name}, got {wrong} rows with NaN or infinity; leave them out")
    allowed = None if where is None else check_tensor(where, "where").to(points.device)
    if allowed is None or allowed.dtype == torch.bool:
        if allowed is not None and list(allowed.shape) not in (shape, shape[1:]):
            raise ValueError(f"Expected where of shape {shape[1:]} or {shape}, got {list(allowed.shape)}")
        return _nearest(vectors, points, _chosen(vectors, points, allowed, k, metric), k, metric)
    ids = integer_ids(allowed.long() if allowed.dtype == torch.uint64 else allowed, "where", "candidates").long()
    if list(ids.shape) in (shape, shape[1:]) and len(points) > 2 and bool(((ids == 0) | (ids == 1)).all()):
        raise ValueError("Expected candidates where, or a mask of bools, got 0 or 1 for each item; pass where == 1")
    if ids.dim() != 2 or len(ids) != len(vectors):
        raise ValueError(f"Expected candidates where of shape [{len(vectors)}, candidate], got {list(ids.shape)}")
    if bool(((ids < -1) | (ids >= len(points))).any()):
        raise ValueError(f"Expected candidates where 0 to {len(points) - 1}, or -1 for padding, got others")
    return _nearest(vectors, points, ids.masked_fill(repeated(ids), -1), k, metric)


def _factors(x: Tensor, metric: str) -> Tensor:
    """Vectors in float64, for cosines of length 1."""
    return normalize(widened(x), dim=-1) if metric == "cosine" else widened(x)


def _chosen(queries: Tensor, items: Tensor, allowed: Tensor | None, k: int, metric: str) -> Tensor:
    """The k nearest items of each query, by products: int64 [query, k], in any order, -1 = there are fewer."""
    number = torch.arange(len(items), device=items.device)
    if allowed is not None and allowed.dim() == 1:
        number = number[allowed]
    room = 4 * costs.now.block
    columns = max(1, min(2**14, room // max(1, items.shape[1])))
    # Small norms keep the digits of differences of products, so distances are measured from a point near the items.
    center = widened(items[: 2**10]).mean(0) if metric == "l2" and len(items) else 0
    chosen = []
    for rows in torch.arange(len(queries), device=items.device).split(max(1, room // columns)):
        left = _factors(queries[rows], metric) - center
        best = left.new_full((len(rows), k), float("-inf"))
        ids = torch.full_like(best, -1, dtype=torch.int64)
        for block in number.split(columns):
            right = _factors(items[block], metric) - center
            scores = left @ right.T
            if metric == "l2":
                scores -= right.square().sum(-1) / 2
            if allowed is not None and allowed.dim() == 2:
                scores.masked_fill_(~allowed[rows.unsqueeze(-1), block], float("-inf"))
            values, column = top_k(scores, min(k, len(block)))
            best, place = top_k(torch.cat([best, values], -1), k)
            ids = torch.cat([ids, block[column]], -1).gather(-1, place)
        chosen.append(ids.masked_fill(best == float("-inf"), -1))
    return torch.cat(chosen)


def _nearest(queries: Tensor, items: Tensor, ids: Tensor, k: int, metric: str) -> tuple[Tensor, Tensor]:
    """The k nearest of some items of each query, int64 [query, item], and their distances."""
    if not len(items):
        return queries.new_full((len(queries), k), -1, dtype=torch.int64), widened(
            queries.new_full((len(queries), k), float("inf"))
        )
    ids, rows = ids.sort(dim=-1).values, max(1, 4 * costs.now.block // max(1, ids.shape[1] * items.shape[1]))
    parts = []
    for some, row in zip(ids.split(rows), queries.split(rows)):
        one, other = _factors(row, metric).unsqueeze(1), _factors(items[some.clamp_min(0)], metric)
        distance = (one - other).square().sum(-1) if metric == "l2" else 1 - (one * other).sum(-1)
        parts.append(distance.masked_fill(some < 0, float("inf")))
    distance, order = torch.cat(parts).sort(dim=-1, stable=True)
    missing = max(0, k - ids.shape[1])
    nearest = pad(ids.gather(-1, order)[:, :k], (0, missing), value=-1)
    return nearest, pad(distance[:, :k], (0, missing), value=float("inf"))
