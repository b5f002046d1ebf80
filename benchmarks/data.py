"""The inputs of the workloads: random, but equal in every run."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.plan import Data, Shape

#: mean score of relevant candidates minus mean score of the others, in standard deviations, as of a trained model
LEARNT = 2.0


def seeded(device: str, seed: int = 0) -> torch.Generator:
    """A new generator of random numbers on a device."""
    return torch.Generator(device).manual_seed(seed)


def normal(shape: tuple[int, ...], device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal numbers."""
    return torch.randn(shape, generator=seeded(device), device=device, dtype=dtype)


def graded(shape: Shape, device: str) -> Data:
    """Lists of graded documents. With ``decimals`` scores are rounded, so that many are tied."""
    size = shape["queries"], shape["candidates"]
    scores = normal(size, device)
    if shape["decimals"] is not None:
        scores = scores.round(decimals=shape["decimals"])
    target = torch.randint(0, shape["grades"], size, generator=seeded(device, 1), device=device)
    return Data(device=device, scores=scores, target=target)


def few_relevant(shape: Shape, device: str) -> Data:
    """Lists of graded documents, of which few are relevant: ``relevant`` on average, and many more in a few lists."""
    data = graded({**shape, "decimals": None}, device)
    queries, candidates = data.scores.shape
    spread = -torch.rand((queries, 1), generator=seeded(device, 9), device=device).log()  # of mean 1
    drawn = torch.rand(data.scores.shape, generator=seeded(device, 10), device=device)
    data.target = (data.target + 1) * (drawn < spread * shape["relevant"] / candidates)
    return data


def padded(shape: Shape, device: str) -> Data:
    """Lists of graded documents of different lengths, padded to the longest; every hundredth has a tie."""
    data = graded({**shape, "decimals": None}, device)
    queries, candidates = data.scores.shape
    lengths = torch.randint(candidates // 2, candidates, (queries, 1), generator=seeded(device, 8), device=device)
    data.mask = torch.arange(candidates, device=device) < lengths
    data.scores[::100, 1] = data.scores[::100, 0]
    return data


def two_rankings(shape: Shape, device: str) -> Data:
    """Two weakly correlated scores of every candidate, float64, without ties."""
    size = shape["queries"], shape["candidates"]
    scores, noise = normal((2, *size), device, torch.float64)
    return Data(device=device, scores=scores, target=scores + LEARNT * noise)


def some_of(queries: int, candidates: int, count: int, device: str) -> Tensor:
    """``count`` different candidates of each query: int64 [query, count]."""
    start = torch.randint(0, candidates, (queries, 1), generator=seeded(device, 2), device=device)
    stride = candidates // count
    within = torch.randint(0, stride, (queries, count), generator=seeded(device, 3), device=device)
    return (start + torch.arange(count, device=device) * stride + within) % candidates


def run(shape: Shape, device: str) -> Data:
    """Judged runs: scores and a dense matrix of zeros and ones."""
    size = shape["queries"], shape["candidates"]
    relevant = some_of(*size, shape["relevant"], device)
    target = torch.zeros(size, dtype=torch.int64, device=device).scatter_(1, relevant, 1)
    return Data(device=device, scores=normal(size, device) + LEARNT * target, target=target, relevant=relevant)


def labels(shape: Shape, device: str) -> Data:
    """Scores over a catalogue with one relevant item for each query, and optionally pairs to exclude."""
    queries, candidates = shape["queries"], shape["candidates"]
    relevant = some_of(queries, candidates, 1, device)
    scores = normal((queries, candidates), device, getattr(torch, shape.get("dtype", "float32")))
    row = torch.arange(queries, device=device)
    scores[row, relevant[:, 0]] += LEARNT
    exclude = None
    if excluded := shape.get("excluded"):
        exclude = row.repeat_interleave(excluded), some_of(queries, candidates, excluded, device).flatten()
    return Data(device=device, scores=scores, target=relevant[:, 0], relevant=relevant, exclude=exclude)


def scores_alone(shape: Shape, device: str) -> Data:
    """Scores without judgments, for a search of the k best."""
    return Data(device=device, scores=normal((shape["queries"], shape["candidates"]), device), k=shape["k"])


def embeddings(shape: Shape, device: str) -> Data:
    """Embeddings of items, and of queries near their relevant items."""
    items = normal((shape["items"], shape["dimensions"]), device)
    relevant = some_of(shape["queries"], shape["items"], shape["relevant"], device)
    noise = torch.randn((shape["queries"], shape["dimensions"]), generator=seeded(device, 4), device=device)
    dtype = getattr(torch, shape.get("dtype", "float32"))
    queries = items[relevant].mean(1) + noise
    return Data(device=device, queries=queries.to(dtype), items=items.to(dtype), relevant=relevant)


def flat_rows(shape: Shape, device: str) -> Data:
    """Rows in random order, each with the index of its query. A few lists are long, most are short."""
    rows, queries = shape["rows"], shape["queries"]
    drawn = torch.empty(queries, dtype=torch.float64).log_normal_(0, 1.2, generator=seeded("cpu", 5))
    # Rounding and clipping change the total, so the scale is found by iteration. The remaining rows are distributed
    # over the lists of middle length, one each.
    scale = rows / drawn.sum()
    for _ in range(20):
        lengths = (drawn * scale).round().clamp(1, shape["longest"]).long()
        scale = scale * rows / lengths.sum()
    missing = rows - int(lengths.sum())
    dealt = lengths.argsort(descending=True)[torch.arange(abs(missing)) % (queries // 2) + queries // 8]
    lengths = lengths.scatter_add(0, dealt, torch.full_like(dealt, 1 if missing > 0 else -1))
    if lengths.sum() != rows or lengths.min() < 1 or lengths.max() > shape["longest"]:
        raise ValueError(f"Expected sizes for which lists of random lengths exist, got {dict(shape)}")

    indexes = torch.arange(queries).repeat_interleave(lengths)
    indexes = indexes[torch.randperm(rows, generator=seeded("cpu", 6))].to(device)
    target = (torch.rand(rows, generator=seeded(device, 7), device=device) < shape["share"]).long()
    scores = normal((rows,), device) + target
    return Data(device=device, scores=scores, target=target, indexes=indexes, keys=packed(indexes, scores))


def positive_flat_rows(shape: Shape, device: str) -> Data:
    """:func:`flat_rows` with scores above 0, because torchmetrics counts candidates below 0 as irrelevant."""
    data = flat_rows(shape, device)
    data.scores = data.scores.exp()
    return data


def positive_lists(shape: Shape, device: str) -> Data:
    """Rows of lists of equal length, one list after the other, with scores above 0."""
    queries, candidates = shape["queries"], shape["candidates"]
    indexes = torch.arange(queries, device=device).repeat_interleave(candidates)
    target = (torch.rand(len(indexes), generator=seeded(device, 7), device=device) < shape["share"]).long()
    scores = (normal(indexes.shape, device) + target).exp()
    return Data(device=device, scores=scores, target=target, indexes=indexes, keys=packed(indexes, scores))


def packed(indexes: Tensor, scores: Tensor) -> Tensor:
    """int64 keys in the order of (query, score): the query in the high bits, the score in the low bits."""
    bits = scores.view(torch.int32).long()
    # As integers, negative floats are in descending order. Flip all bits but the sign.
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (indexes << 32) + (ordered + 2**31)
