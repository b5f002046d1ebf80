"""Exact neighbours are those of brute force by differences in float64."""

import math
import sys

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support import memory_growth, workers
from tests.support.optional import faiss
from torchrank.hardware import costs


def brute_force(queries, items, metric):
    """All distances [query, item], by a loop over pairs of rows in float64."""
    queries, items = (torch.as_tensor(x).double() for x in (queries, items))
    rows = []
    for query in queries:
        if metric == "l2":
            rows.append(((query - items) ** 2).sum(-1))
        elif metric == "ip":
            rows.append(1 - (query * items).sum(-1))
        else:
            rows.append(1 - torch.nn.functional.cosine_similarity(query, items, dim=-1, eps=1e-300))
    return torch.stack(rows)


def vectors(dtype=torch.float32, items=300, queries=20, dimension=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return (torch.randint(0, 20, (n, dimension), generator=generator, dtype=dtype) for n in (queries, items))
    return (torch.randn(n, dimension, generator=generator).to(dtype) for n in (queries, items))


def same_neighbors(got, want, k):
    """Distances in order are those of brute force, and each id has its distance."""
    ids, distances = got
    nearest = want.sort(dim=-1).values[:, :k]
    torch.testing.assert_close(distances[:, : nearest.shape[1]], nearest, rtol=1e-12, atol=1e-14)
    real = ids >= 0
    assert torch.equal(real, distances.isfinite())
    own = want.gather(-1, ids.clamp_min(0))
    torch.testing.assert_close(distances[real], own[real], rtol=1e-12, atol=1e-14)
    assert all(len(set(row[row >= 0].tolist())) == int((row >= 0).sum()) for row in ids)


@pytest.mark.parametrize("metric", ["l2", "ip", "cosine"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.uint8])
def test_neighbours_are_those_of_brute_force(metric, dtype):
    queries, items = vectors(dtype)
    want = brute_force(queries, items, metric)
    for k in (1, 7, 300):
        same_neighbors(tr.exact_neighbors(queries, items, k, metric=metric), want, k)
    with costs.assumed(block=50):  # blocks of 33 items and 6 queries
        same_neighbors(tr.exact_neighbors(queries, items, 40, metric=metric), want, 40)


@pytest.mark.parametrize("block", [50, 2**19])
def test_filters_leave_out_items_of_all_or_of_each_query(block):
    queries, items = vectors()
    want = brute_force(queries, items, "l2")
    generator = torch.Generator().manual_seed(1)
    for shape, share in (((300,), 0.5), ((300,), 0.02), ((20, 300), 0.5), ((20, 300), 0.02), ((300,), 0.0)):
        where = torch.rand(shape, generator=generator) < share
        with costs.assumed(block=block):
            got = tr.exact_neighbors(queries, items, 10, where=where)
        same_neighbors(got, want.masked_fill(~where, float("inf")), 10)


def test_candidates_are_ranked_by_their_exact_distances():
    queries, items = vectors()
    want = brute_force(queries, items, "l2")
    generator = np.random.default_rng(0)
    candidates = generator.integers(-1, 300, (20, 30))
    candidates[:, 20:] = candidates[:, :10]  # repeated ones count once
    among = torch.full_like(want, float("inf"))
    for row, ids in enumerate(candidates):
        among[row, ids[ids >= 0]] = want[row, ids[ids >= 0]]
    for k in (5, 30, 40):
        got = tr.exact_neighbors(queries, items, k, where=candidates)
        same_neighbors(got, among, k)
        assert got[0].shape == (20, k)
    labels = np.abs(candidates)
    same_ids = [tr.exact_neighbors(queries, items, 5, where=x)[0] for x in (labels, labels.astype(np.uint64))]
    assert torch.equal(*same_ids)  # hnswlib returns uint64


def test_fewer_items_than_k_are_padded():
    ids, distances = tr.exact_neighbors(torch.zeros(2, 3), torch.ones(1, 3), 3)
    assert ids.tolist() == [[0, -1, -1]] * 2
    assert distances.tolist() == [[3.0, float("inf"), float("inf")]] * 2
    ids, distances = tr.exact_neighbors(torch.zeros(2, 3), torch.ones(0, 3), 2)
    assert (ids.tolist(), distances.dtype) == ([[-1, -1]] * 2, torch.float64)
    assert distances.tolist() == [[float("inf")] * 2] * 2


def test_distances_far_from_the_origin_do_not_depend_on_the_number_of_queries():
    generator = np.random.default_rng(0)
    items = (1000 + generator.standard_normal((1000, 128))).astype(np.float32)
    index = faiss.IndexFlatL2(128)
    index.add(items)
    wrong = index.search(items, 1)
    assert (wrong[1][:, 0] != np.arange(1000)).any()  # a flat index of many queries subtracts norms
    ids, distances = tr.exact_neighbors(items, items, 5)
    assert ids[:, 0].tolist() == list(range(1000))
    assert (distances[:, 0] == 0).all()
    few = tr.exact_neighbors(items[:10], items, 5)
    assert torch.equal(few[0], ids[:10])
    assert torch.equal(few[1], distances[:10])
    same_neighbors((ids[:50], distances[:50]), brute_force(items[:50], items, "l2"), 5)


def test_exact_distances_of_the_points_that_an_index_has_found():
    queries, items = vectors(items=2000, dimension=16)
    index = faiss.index_factory(16, "SQ4")
    index.train(items.numpy())
    index.add(items.numpy())
    distance, found = index.search(queries.numpy(), 50)
    nearest, exact = tr.exact_neighbors(queries, items, 10), brute_force(queries, items, "l2")
    again = tr.exact_neighbors(queries, items, 50, where=found)
    torch.testing.assert_close(again[1], exact.gather(-1, torch.from_numpy(found)).sort(dim=-1).values)
    assert not np.allclose(distance, again[1], rtol=1e-3)
    compressed = tr.Recall(top_k=10).score(tr.Ranking.from_neighbors(found, distance, *nearest)).mean()
    reranked = tr.Recall(top_k=10).score(tr.Ranking.from_neighbors(*again, *nearest)).mean()
    assert compressed < 0.9 < reranked


@pytest.mark.parametrize(
    ("kind", "message", "change"),
    [
        (ValueError, "metric to be one of", {"metric": "dot"}),
        (ValueError, "k to be an integer >= 1", {"k": 0}),
        (ValueError, r"pass queries\[None\] for one", {"queries": torch.zeros(6)}),
        (ValueError, r"one dimension, got shapes \[2, 5\] and \[300, 6\]", {"queries": torch.zeros(2, 5)}),
        (ValueError, "finite items, got 2 rows", {"items": torch.tensor([[0.0] * 6, [math.nan] * 6, [math.inf] * 6])}),
        (TypeError, "items to be numbers", {"items": torch.zeros(2, 6, dtype=torch.bool)}),
        (ValueError, r"where of shape \[300\] or \[20, 300\]", {"where": torch.ones(20, dtype=torch.bool)}),
        (ValueError, "candidates where 0 to 299", {"where": torch.full((20, 1), 300)}),
        (ValueError, r"candidates where of shape \[20, candidate\]", {"where": torch.zeros(3, 2, dtype=torch.int64)}),
        (TypeError, "integer ids", {"where": torch.zeros(20, 300)}),
        (ValueError, "pass where == 1", {"where": [0, 1] * 150}),
        (ValueError, "pass where == 1", {"where": torch.ones(20, 300, dtype=torch.int8)}),
    ],
)
def test_wrong_calls_are_refused(kind, message, change):
    queries, items = vectors()
    with pytest.raises(kind, match=message):
        tr.exact_neighbors(**{"queries": queries, "items": items, "k": 3} | change)


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")
def test_memory_of_exact_neighbours_and_of_recall_is_bounded():
    with workers.CONTEXT.Pool(1) as pool:
        grown = pool.apply_async(memory_growth.memory_of_neighbors).get(300)
    assert grown[0] < 110, "all distances are 320 MB"
    assert grown[1] < 96, "ids and distances are 64 MB, and all of them in float64 and sorted several times that"
