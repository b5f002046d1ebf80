"""Recall of approximate neighbours, against the best of all exact answers, and against real indexes."""

import itertools

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.optional import annoy, faiss, hnswlib, usearch_index
from torchrank.hardware import costs


def rng(seed=0):
    return np.random.default_rng(seed)


def recall(found, distance, exact, top_k=None, **kwargs):
    return tr.Recall(top_k=top_k).score(tr.Ranking.from_neighbors(found, distance, *exact, **kwargs)).tolist()


def best_share(found, distances, k, atol=0.0):
    """The largest share of an exact answer among found ids, over all answers: sets of k ids, ties in any way."""
    radius = np.sort(distances)[k - 1]
    nearer = set(np.flatnonzero(distances < radius - atol).tolist())
    tied = np.flatnonzero(abs(distances - radius) <= atol).tolist()
    answers = [nearer | set(some) for some in itertools.combinations(tied, k - len(nearer))]
    return max(len(answer & set(found)) for answer in answers) / k


@pytest.mark.parametrize("atol", [0.0, 1.0])
def test_recall_is_the_largest_share_over_all_exact_answers(atol):
    for seed in range(60):
        generator = rng(seed)
        points, query, k = generator.integers(-4, 5, 12), generator.integers(-4, 5), int(generator.integers(1, 7))
        distances = (abs(points - query) if seed % 2 else (points - query) ** 2).astype(float)
        exact = distances.argsort(kind="stable")[:k]  # one of the exact answers
        found = generator.integers(-1, 12, generator.integers(1, 9))  # with repeated ids, and padding between them
        given = np.where(found < 0, 3.4028235e38, distances[found])
        arguments = (x[None] for x in (found, given, exact, distances[exact]))
        ranking = tr.Ranking.from_neighbors(*arguments, atol=atol, rtol=0)
        returned = found[found >= 0].tolist()
        for cutoff in range(1, len(found) + 1):
            want = best_share(returned[:cutoff], distances, k, atol)
            assert tr.Recall(top_k=cutoff).score(ranking).item() == pytest.approx(want, abs=1e-12), (seed, cutoff)
        assert ranking.num_candidates.item() == len(returned)


def test_chunks_of_queries_are_ranked_as_the_whole():
    items, queries = (np.round(x) for x in data())  # with ties
    exact = tr.exact_neighbors(queries, items, 10)
    found = rng().integers(-1, 2000, (50, 300))
    found[:, ::7] = exact[0].numpy().repeat(5, axis=1)[:, : found[:, ::7].shape[1]]  # repeated ones
    distance = ((queries[:, None] - items[found]) ** 2).sum(-1)
    whole = tr.Ranking.from_neighbors(found, distance, *exact)
    with costs.assumed(block=1000):  # three queries
        parts = tr.Ranking.from_neighbors(found, distance, *exact)
    for name in ("first", "tied", "valid", "num_candidates"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))
    again = torch.where(torch.tensor([[n in (7, 40)] for n in range(50)]), exact[0][:, :1], exact[0])
    with costs.assumed(block=1000), pytest.raises(ValueError, match="2 targets given more than once"):
        recall(found, distance, (again, exact[1]))


def test_points_that_a_filter_excludes_do_not_count():
    # Items 0 and 1 are nearer, but filtered out; the filter leaves two, fewer than three.
    exact = np.array([[5, 6, -1]]), np.array([[4.0, 9.0, np.inf]])
    assert recall([[0, 1, 5]], [[1.0, 2.0, 4.0]], exact) == [0.5]
    assert recall([[5, 6, -1]], [[4.0, 9.0, 3.4e38]], exact) == [1]


def test_other_measures_read_the_ranks_of_the_exact_neighbours():
    exact = np.array([[4, 2, 7]]), np.array([[1.0, 2, 3]])
    ranking = tr.Ranking.from_neighbors([[9, 2, 2, 4, 1]], [[1.0, 2, 2, 1, 8]], *exact)
    values = tr.RankingCollection(["mrr", "hitrate@1", "hitrate@2", "precision@4", "precision", "map@5"]).score(ranking)
    want = [1 / 2, 0, 1, 2 / 4, 2 / 5, (1 / 2 + 2 / 4) / 3]
    assert [value.item() for value in values.values()] == pytest.approx(want)


def test_no_exact_neighbours_are_nothing_to_measure():
    ranking = tr.Ranking.from_neighbors([[1, 2]], [[1.0, 2]], [[-1, -1]], [[np.inf, np.inf]])
    metric = tr.Recall(top_k=2, empty_target_action="skip")
    metric.update(ranking)
    assert metric.num_empty == 1


def test_wrong_distances_away_from_the_radius_change_nothing():
    # An index that reports the distance 0 for everything, or distances of compressed vectors.
    generator, exact = rng(), (np.arange(5)[None], np.arange(5.0)[None])
    for distance in (np.zeros((1, 5)), generator.random((1, 5)) / 3, np.arange(5.0)[None] ** 2 + 20):
        assert recall([[0, 7, 1, 8, 9]], distance, exact) == [0.4]


MIXED = [[1]] * 2, [[1.0]] * 2, [[1, 2, 3]] * 2, [[1.0, 2, 3], [2, 1, 2]]
BAD = {
    "found must be integer": (TypeError, "found to be integer ids", ([[1.0]], [[1.0]], [[1]], [[1.0]])),
    "exact must be integer": (TypeError, "exact to be integer ids", ([[1]], [[1.0]], [[1.0]], [[1]])),
    "distances are numbers": (TypeError, "found_distance to be distances", ([[1]], [[True]], [[1]], [[1.0]])),
    "one query": (ValueError, r"found \[2\], .*pass each as x\[None\]", ([1, 2], [1.0, 2.0], [[1]], [[1.0]])),
    "as many queries": (ValueError, r"found \[1, 1\], .* exact \[2, 1\]", ([[1]], [[1.0]], [[1], [2]], [[1.0], [2.0]])),
    "no neighbours": (ValueError, r"exact \[1, 0\]", ([[1]], [[1.0]], [[]], [[]])),
    "one shape": (ValueError, r"exact \[1, 2\], exact_distance \[1, 1\]", ([[1]], [[1.0]], [[1, 2]], [[1.0]])),
    "in order": (ValueError, "nearest first, got others in query 1; sort them", MIXED),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_calls_are_refused(case):
    kind, message, arguments = BAD[case]
    with pytest.raises(kind, match=message):
        tr.Ranking.from_neighbors(*arguments)


def test_counts_of_other_queries_are_refused():
    with pytest.raises(ValueError, match=r"counts of shape \[1\], got \[2\]"):
        tr.Ranking.from_neighbors([[1, 2]], [[1.0, 2.0]], [[1, 2]], [[1.0, 2.0]], counts=[2, 2])


def test_distances_of_nan_and_repeated_exact_neighbours_are_refused():
    for found, exact in (([1.0, np.nan], [1.0, 2.0]), ([1.0, 2.0], [1.0, np.nan])):
        with pytest.raises(ValueError, match="numbers, got others in query 0; pass counts"):
            tr.Ranking.from_neighbors([[1, 2]], [found], [[1, 2]], [exact])
    with pytest.raises(ValueError, match="1 target given more than once"):
        recall([[1, 2]], [[1.0, 2.0]], ([[1, 1]], [[1.0, 1.0]]))
    assert recall([[1, -1]], [[1.0, np.nan]], ([[1, -1]], [[1.0, np.nan]])) == [1]  # padding


# ---- real indexes ----------------------------------------------------------------------------------------------------


def data(items=2000, dimension=16, queries=50, seed=0):
    generator = rng(seed)
    return (generator.standard_normal((n, dimension)).astype(np.float32) for n in (items, queries))


def share_of_ids(found, exact):
    return [len(set(one) & set(other)) / len(other) for one, other in zip(found.tolist(), exact.tolist())]


def test_recall_of_faiss_without_ties_is_the_share_of_common_ids():
    items, queries = data()
    index = faiss.index_factory(16, "IVF32,Flat")
    index.train(items)
    index.add(items)
    exact = tr.exact_neighbors(queries, items, 10)
    for nprobe in (1, 4, 32):
        index.nprobe = nprobe
        distance, found = index.search(queries, 10)
        values = recall(found, distance, exact, 10)
        assert values == pytest.approx(share_of_ids(found, exact[0]))
        assert (np.mean(values) == 1) == (nprobe == 32)


def test_recall_of_faiss_by_inner_products_with_a_filter():
    items, queries = data()
    index = faiss.IndexFlatIP(16)
    index.add(items)
    allowed = np.arange(0, 2000, 3)
    selector = faiss.SearchParameters(sel=faiss.IDSelectorBatch(allowed))
    product, found = index.search(queries, 10, params=selector)
    exact, distance = tr.exact_neighbors(queries, items, 10, where=np.arange(2000) % 3 == 0, metric="ip")
    assert recall(found, product, (exact, 1 - distance)) == [1] * 50
    unfiltered = index.search(queries, 10)
    assert np.mean(recall(unfiltered[1], unfiltered[0], (exact, 1 - distance))) < 0.6


def test_equal_points_of_faiss_stand_for_each_other_and_missing_ones_count_as_missing():
    items, queries = np.ones((50, 4), np.float32), np.ones((1, 4), np.float32)
    index = faiss.IndexHNSWFlat(4, 4)
    index.add(items)
    distance, found = index.search(queries, 50)
    missing = int((found == -1).sum())
    assert missing > 0
    assert recall(found, distance, tr.exact_neighbors(queries, items, 50)) == [pytest.approx(1 - missing / 50)]
    distance, found = index.search(queries, 10)
    others = np.setdiff1d(np.arange(50), found)[None, :10]  # another exact answer
    assert recall(found, distance, (others, np.zeros((1, 10)))) == [1]


def test_repeated_and_negative_ids_of_faiss():
    items, queries = np.arange(6, dtype=np.float32)[:, None], np.zeros((1, 1), np.float32)
    ids = np.array([-7, 4, 4, 4, -2, 8])
    index = faiss.IndexIDMap(faiss.IndexFlatL2(1))
    index.add_with_ids(items, ids)
    distance, found = index.search(queries, 8)
    assert found.tolist() == [[*ids.tolist(), -1, -1]]
    exact = np.array([[-7, 4, -2, 8]]), np.array([[0.0, 1, 16, 25]])
    assert recall(found, distance, exact, 4) == [0.5]
    assert recall(found, distance, exact, 6) == [1]


@pytest.mark.parametrize(("space", "seed"), [("l2", 0), ("ip", 1), ("cosine", 2)])
def test_recall_of_hnswlib_by_its_own_distances(space, seed):
    items, queries = data(seed=seed)
    items[1000:] = items[:1000]  # each point twice
    index = hnswlib.Index(space, 16)
    index.init_index(2000, ef_construction=200, M=16, random_seed=7)
    index.add_items(items)
    index.set_ef(2000)
    found, distance = index.knn_query(queries, 9)
    assert found.dtype == np.uint64
    exact = tr.exact_neighbors(queries, items, 9, metric=space)
    np.testing.assert_allclose(exact[1], distance, rtol=1e-4, atol=1e-5)
    by_ids, values = np.mean(share_of_ids(found, exact[0])), np.mean(recall(found, distance, exact, atol=1e-6))
    assert values == 1
    assert by_ids < 1  # the ninth has a twin


def test_labels_beyond_int64_of_hnswlib():
    index = hnswlib.Index("l2", 1)
    index.init_index(3, random_seed=7)
    labels = np.array([2**63 + 5, 2**64 - 3, 7], np.uint64)
    index.add_items(np.arange(3, dtype=np.float32)[:, None], labels)
    found, distance = index.knn_query(np.zeros((1, 1), np.float32), 3)
    assert recall(found, distance, (labels[None], np.array([[0.0, 1, 4]]))) == [1]
    assert recall(found, distance, (labels[None, ::2], np.array([[0.0, 4]])), 2) == [0.5]


def test_counts_of_usearch_tell_padding_from_the_key_0():
    items, queries = data(items=3, queries=2)
    index = usearch_index.Index(ndim=16, metric="l2sq", dtype="f32")
    index.add(np.arange(3), items)
    matches = index.search(queries, 5)
    assert (np.asarray(matches.keys)[:, 3:] == 0).all()
    exact = tr.exact_neighbors(queries, items, 5)
    assert recall(matches.keys, matches.distances, exact, counts=matches.counts) == [1, 1]
    index.remove(0)
    matches = index.search(queries, 5)
    want = [pytest.approx(2 / 3)] * 2
    assert recall(matches.keys, matches.distances, exact, counts=matches.counts) == want
    with pytest.raises(ValueError, match="numbers, got others in query 0; pass counts"):
        recall(matches.keys, matches.distances, exact)


def test_short_lists_of_annoy():
    items, queries = data()
    index = annoy.AnnoyIndex(16, "euclidean")
    for number, item in enumerate(items):
        index.add_item(number, item)
    index.set_seed(3)
    index.build(2, n_jobs=1)
    some = ((query, 200, 60 + 9 * n) for n, query in enumerate(queries))
    lists = [index.get_nns_by_vector(*one, include_distances=True) for one in some]
    assert len({len(ids) for ids, _ in lists}) > 1
    exact, squared = tr.exact_neighbors(queries, items, 10)
    found, distance = [ids for ids, _ in lists], [distances for _, distances in lists]
    values = recall(found, distance, (exact, squared.sqrt()))
    want = [len(set(ids) & set(one)) / 10 for ids, one in zip(found, exact.tolist())]
    assert values == pytest.approx(want)
    assert 0 < np.mean(values) < 1


def test_lists_of_several_lengths_are_padded():
    exact = [[1, 2], [3]], [[1, 2], [0.5]]
    assert recall([[2], [4, 3, 5]], [[2.0], [0.1, 0.5, 0.6]], exact) == [0.5, 1]
    assert recall([[], np.array([3], np.uint64)], [[], [0.5]], exact) == [0, 1]
    assert recall([[], []], [[], []], exact) == [0, 0]
    with pytest.raises(TypeError, match=r"found to be integer ids.*float"):
        recall([[1.5, 2.0], [3]], [[1.0, 2.0], [1]], exact)


def test_a_repeated_id_with_infinite_distance_is_no_further_point():
    # The form in which pynndescent fills lists.
    found, distance = np.array([[4, 2, 2, 2]]), np.array([[0.5, 1.0, np.inf, np.inf]])
    exact = np.array([[4, 2, 1, 3]]), np.array([[0.5, 1.0, 2.0, 3.0]])
    assert recall(found, distance, exact) == [0.5]
