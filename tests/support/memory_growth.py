"""Functions for a process that did nothing before: by how many megabytes its peak of memory grows in some steps."""

import contextlib
import re
from pathlib import Path

import torch

import torchrank as tr


def growth(steps):
    """Megabytes by which the peak of memory after each step is higher than the memory before the first one."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, grown = peak(), []
    for step in steps:
        step()
        grown.append((peak() - before) / 1e6)
    return grown


def peak():
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])


def memory_of_embeddings():
    """Of one chunk of the items after another, of all of them at once, and of a matrix of all scores."""
    torch.set_num_threads(1)
    queries, items, label = torch.randn(512, 32), torch.randn(100_000, 32), torch.randint(100_000, (512,))
    tr.Ranking.from_embeddings(queries[:9], items[:9000], label[:9] % 9000, chunk_size=4000)
    return growth(
        [
            lambda: tr.Ranking.from_embeddings(queries, items, label),
            lambda: tr.Ranking.from_embeddings(queries, items, label, chunk_size=100_000),
            lambda: queries @ items.T,
        ]
    )


def memory_of_sparse_lists():
    """Of nDCG at all ranks, where queries have very different numbers of relevant candidates."""
    torch.set_num_threads(1)
    scores, grade = torch.randn(50_000, 400), torch.zeros(50_000, 400, dtype=torch.int8)
    grade[:, 7] = 1
    grade[::4, :12] = 1
    tr.NDCG().score(scores[:9], grade[:9])
    transposed = scores.view(400, 50_000).T
    return growth([lambda: tr.NDCG().score(scores, grade)]) + growth([lambda: tr.NDCG().score(transposed, grade)])


def memory_of_best_scores():
    """Of recall@100, for which the best scores of a matrix are selected, in two dtypes."""
    torch.set_num_threads(1)
    scores, items = torch.randn(20_000, 2000), torch.arange(10).expand(20_000, -1).contiguous()
    recall, half = tr.Recall(top_k=100), scores.half()
    recall.score(scores[:9], list(items[:9]))
    return growth([lambda: recall.score(scores, list(items))]) + growth([lambda: recall.score(half, list(items))])


def memory_of_neighbors():
    """Of exact neighbours with a filter of each query, and of the recall of many lists."""
    torch.set_num_threads(1)
    queries, items = torch.randn(200, 32), torch.randn(200_000, 32)
    where = torch.randint(0, 2, (200, 200_000), dtype=torch.bool)
    found, distance = torch.randint(200_000, (20_000, 200)), torch.rand(20_000, 200, dtype=torch.float64)
    nearest = torch.arange(10).expand(20_000, -1), torch.rand(20_000, 10).sort().values

    def neighbors(rows):
        tr.exact_neighbors(queries[rows], items, 100, where=where[rows])

    def recall(rows):
        tr.Ranking.from_neighbors(found[rows], distance[rows], *(x[rows] for x in nearest))

    neighbors(slice(2))
    recall(slice(9))
    return growth([lambda: neighbors(slice(None))]) + growth([lambda: recall(slice(None))])
