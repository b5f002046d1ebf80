"""Products of embeddings on an accelerator: how many there are, and the ranks that they give. No test needs one."""

import math

import pytest
import torch

import torchrank as tr
from benchmarks import products
from tests.support.brute_force_ranks import assert_same, pairs_of
from tests.support.unread import Elsewhere
from torchrank.engine import streams
from torchrank.hardware.devices import multiplying

INF, NAN = math.inf, math.nan


def elsewhere(x):
    """A tensor, or tensors, as on an accelerator."""
    if isinstance(x, torch.Tensor):
        return x.as_subclass(Elsewhere)
    return type(x)(map(elsewhere, x)) if isinstance(x, list | tuple) else x


# ---- how many --------------------------------------------------------------------------------------------------------


@pytest.mark.xdist_group("gpu")  # the first use of the meta device takes seconds
@pytest.mark.parametrize("excluded", [0, 3000])
def test_no_product_is_computed_twice_for_a_label_per_query(excluded):
    queries, items, dimension = 1024, 200_000, 32
    seen = products.of(queries, items, dimension, excluded)
    tiles, width = 13, 15_616  # the next multiple of 256 from 200,000 / 13 on
    assert seen.products == tiles + 1  # a tile has the labels of all queries
    assert seen.flops == 2 * queries * width * dimension * (tiles + 1)
    assert seen.largest <= 2**26
    assert seen.found.total() < (27 * tiles + 180 if excluded else 16 * tiles + 80)
    assert seen.bytes.total() < 1.05 * (4 * queries * width * tiles * 9)  # passes over the scores


@pytest.mark.xdist_group("gpu")
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 10**6, 8), torch.float32), ((5000, 30_000, 8), torch.bfloat16), ((3, 9000, 5000), torch.float32),
     ((300, 70_000, 8), torch.float64)],
    ids=str,
)  # fmt: skip
def test_no_buffer_is_larger_than_64_mb_of_float32_or_128_mb_of_float64(shape, dtype):
    queries, items, dimension = shape
    batch = [torch.empty(n, dimension, dtype=dtype, device="meta") for n in (queries, items)]
    with products.Products() as seen:
        tr.Ranking.from_embeddings(*batch, torch.empty(queries, dtype=torch.int64, device="meta"))
    assert seen.largest <= 2**24 * max(4, dtype.itemsize)  # 16 bits are compared as 32
    assert seen.flops < 2 * 2 * queries * items * dimension


# ---- the ranks -------------------------------------------------------------------------------------------------------


RELEVANT = {
    "label": lambda g: torch.randint(-1, 300, (40,), generator=g),
    "padded": lambda g: torch.stack([torch.randperm(300, generator=g)[:3] for _ in range(40)]),
    "lists": lambda g: [torch.randperm(300, generator=g)[: (1, 1, 2, 0, 9)[q % 5]] for q in range(40)],
    "more than items": lambda g: [torch.randperm(300, generator=g)[:20] for _ in range(40)],
}


@pytest.mark.parametrize(
    ("kind", "dtype", "exclude"),
    [
        (kind, dtype, (turn + number) % 2 == 1)  # every pair of two of these
        for turn, kind in enumerate(RELEVANT)
        for number, dtype in enumerate([torch.float32, torch.bfloat16, torch.float64])
    ],
    ids=str,
)
def test_the_ranks_on_a_device_are_those_on_the_cpu(monkeypatch, kind, exclude, dtype):
    g = torch.Generator().manual_seed(0)
    queries, items = (torch.randint(-3, 4, (n, 8), generator=g).to(dtype) for n in (40, 300))
    items[7], items[9::50] = INF, -INF
    queries = queries.abs() + 1
    relevant, more = RELEVANT[kind](g), {"exclude": pairs_of((40, 300), 400, seed=1)} if exclude else {}
    made = []
    monkeypatch.setattr(torch, "mm", lambda *args, mm=torch.mm, **given: made.append(1) or mm(*args, **given))
    for chunk in (64, 100, 299, 300):  # with ragged tiles, and without
        want = tr.Ranking.from_embeddings(queries, items, relevant, chunk_size=chunk, **more)
        made.clear()
        moved = elsewhere([queries, items, relevant]), {name: elsewhere(x) for name, x in more.items()}
        got = tr.Ranking.from_embeddings(*moved[0], chunk_size=chunk, **moved[1])
        assert not got.first.is_cpu
        assert_same(got, want)
        if kind == "label":
            assert len(made) == -(-300 // chunk) + (chunk < 300)


@pytest.mark.parametrize("number", [NAN, INF])
def test_queries_with_nan_among_their_scores_are_counted_on_a_device(number):
    queries, items, label = torch.ones(5, 3), torch.rand(40, 3), torch.arange(5)
    queries[2], items[3] = number, 0  # 0 times infinity is NaN
    with pytest.raises(ValueError, match="1 query with NaN"):
        tr.MRR().score(tr.Ranking.from_embeddings(*elsewhere([queries, items, label]), chunk_size=10))


def test_a_device_that_computes_a_score_in_two_ways_is_an_error_and_one_product_is_the_way_out(monkeypatch):
    g = torch.Generator().manual_seed(0)
    batch = elsewhere([torch.randn(6, 4, generator=g), torch.randn(90, 4, generator=g), torch.arange(6)])
    right = streams._paired
    monkeypatch.setattr(streams, "_paired", lambda *given: right(*given) + torch.tensor([0, 0, 0, 1e-3, 0, 0]))
    metric = tr.MRR()
    metric.update(tr.Ranking.from_embeddings(*batch, chunk_size=20))
    with pytest.raises(ValueError, match=r"1 relevant item whose score was computed twice .* chunk_size=2\*\*31"):
        metric.compute()
    want = tr.MRR().score(batch[0] @ batch[1].T, batch[2])
    assert torch.equal(tr.MRR().score(tr.Ranking.from_embeddings(*batch, chunk_size=2**31)), want)


# ---- their precision -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "inside"),
    [("highest", "ieee"), ("tf32x3", "ieee"), ("tf32", "tf32"), ("bf16", "tf32"), (None, "none")],
)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_torch_multiplies_in_the_precision_and_keeps_its_setting(precision, inside, device):
    matmul = {"cuda": torch.backends.cuda, "cpu": torch.backends.mkldnn}[device]
    matmul = getattr(matmul, "matmul", None)
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("torch has the setting from 2.9 on")
    before = matmul.fp32_precision
    with multiplying(precision, torch.device(device)):
        assert matmul.fp32_precision == (before if precision is None else "ieee" if device == "cpu" else inside)
    assert matmul.fp32_precision == before


@pytest.mark.parametrize("precision", ["highest", "tf32", "tf32x3", "bf16"])
def test_with_a_precision_sums_of_16_bits_have_32(precision):
    g = torch.Generator().manual_seed(0)
    queries, items = (torch.randn(n, 64, generator=g).bfloat16() for n in (20, 500))
    label, scores = torch.arange(20), queries.double() @ items.double().T
    for x in (lambda y: y, elsewhere):
        ranking = tr.Ranking.from_embeddings(*x([queries, items, label]), chunk_size=200, precision=precision)
        assert torch.equal(ranking.first, tr.Ranking.from_label(scores, label).first)


# ---- neighbours within rounding --------------------------------------------------------------------------------------


def snapped(row, positives, tolerance):
    """Scores of a query, in plain Python: those within the tolerance are those of the nearest relevant item."""
    near = [min(positives, key=lambda p: abs(x - p), default=x) for x in row]
    return [p if abs(x - p) <= tolerance(p) else x for x, p in zip(row, near)]


@pytest.mark.parametrize(
    ("kind", "exclude", "where"),
    [
        (kind, exclude, [lambda x: x, elsewhere][(turn + exclude) % 2])  # every pair of two of these
        for turn, kind in enumerate(RELEVANT)
        for exclude in (False, True)
    ],
)
def test_items_within_the_tolerance_are_tied_with_a_relevant_one(kind, exclude, where, assume):
    assume(copied=3000)
    g = torch.Generator().manual_seed(0)
    queries, items = (torch.randint(-9, 10, (n, 3), generator=g).float() / 4 for n in (40, 300))
    relevant, more = RELEVANT[kind](g), {"exclude": pairs_of((40, 300), 400, seed=1)} if exclude else {}
    scores, own = queries @ items.T, [row[row >= 0].tolist() for row in [x.reshape(-1) for x in relevant]]
    of = zip(scores.tolist(), own)
    near = [snapped(row, [row[item] for item in some], lambda p: 0.3 + abs(p) / 64) for row, some in of]
    want = tr.Ranking.from_scores(torch.tensor(near), [torch.tensor(some).long() for some in own], **more)
    for given in ({}, {"top_k": 5}):
        batch, pairs = where([queries, items, relevant]), {name: where(x) for name, x in more.items()}
        got = tr.Ranking.from_embeddings(*batch, chunk_size=64, atol=0.3, rtol=1 / 64, **pairs, **given)
        metrics = tr.RankingCollection(["ndcg@5", "mrr@5", "recall@5", "precision@5"])
        for one, other in zip(metrics.score(got).values(), metrics.score(want).values()):
            torch.testing.assert_close(
                torch.Tensor.as_subclass(one, torch.Tensor), other, rtol=1e-12, atol=1e-14, equal_nan=True
            )


def test_labels_with_a_neighbour_within_rounding_are_counted_and_reported():
    g = torch.Generator().manual_seed(0)
    queries, items = (torch.nn.functional.normalize(torch.randn(n, 16, generator=g), dim=-1) for n in (200, 500))
    label = torch.randint(500, (200,), generator=g)
    exact, scores = tr.Ranking.from_label(queries.double() @ items.double().T, label), queries @ items.T
    short = tr.Ranking.from_embeddings(queries, items, label, precision="bf16", atol=2**-6)
    near = ((scores - scores.gather(1, label[:, None])).abs() <= 2**-6).sum(-1)
    assert ((short.tied[:, 0] > 1) == (near > 1)).double().mean() > 0.95  # the scores are in bfloat16
    # What the tolerance promises: the exact rank is within the tie.
    assert ((short.first <= exact.first) & (exact.first < short.first + short.tied)).all()
    report = tr.TieReport("mrr")
    report.update(short)
    assert report.compute()["tied_queries"] == (short.tied > 1).float().mean()


def test_groups_within_the_tolerance_are_tied_with_a_relevant_one():
    g = torch.Generator().manual_seed(0)
    queries, items, label = torch.randn(9, 3, generator=g), torch.randn(60, 3, generator=g), torch.arange(9) * 5
    groups, best = torch.arange(60) // 2, (queries @ items.T).view(9, 30, 2).amax(-1)
    own = best.gather(1, label[:, None] // 2)
    got = tr.Ranking.from_embeddings(queries, items, label, groups=groups, chunk_size=8, atol=0.5)
    assert torch.equal(got.first, (best > own + 0.5).sum(-1, keepdim=True) + 1.0)
    assert torch.equal(got.tied, ((best - own).abs() <= 0.5).sum(-1, keepdim=True).double())


def test_embeddings_without_dimensions_are_all_tied():
    ranking = tr.Ranking.from_embeddings(torch.zeros(3, 0), torch.zeros(5, 0), torch.tensor([1, 2, 0]))
    assert ranking.first.tolist() == [[1]] * 3
    assert ranking.tied.tolist() == [[5]] * 3


def test_a_tolerance_is_not_negative():
    with pytest.raises(ValueError, match="atol"):
        tr.Ranking.from_embeddings(torch.eye(2), torch.eye(2), torch.arange(2), atol=-1)
