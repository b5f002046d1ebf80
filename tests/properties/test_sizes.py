"""Inputs that are wide or tied somewhere: the numbers of queries alone, and no tensor beyond its bound."""

import gc
import itertools
import math

import numpy
import pytest
import torch
import torchmetrics.retrieval

import torchrank as tr
import torchrank.retrieval
from tests.support import oracle_comparison, trec_files
from tests.support.brute_force_ranks import FORCED, assert_stands, entries, standing
from tests.support.unread import Largest
from torchrank.engine import rank
from torchrank.engine.judged import Counting
from torchrank.formulas import cascades
from torchrank.layouts.arrange import arrange
from torchrank.layouts.canonical import Need
from torchrank.metrics import incomplete_judgments as judged_metrics

SUITE = ["ndcg@5", "mrr", "map", "recall@20", "mr", "precision"]


def largest(call):
    with Largest() as mode:
        call()
    return mode.bytes


def assert_equal(got, want):
    assert got.keys() == want.keys()
    for name in got:
        torch.testing.assert_close(got[name], want[name], rtol=1e-12, atol=1e-14, equal_nan=True, msg=name)


# ---- ids -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["update", "exclude", "Serendipity"])
def test_a_long_list_of_ids_with_many_relevant_takes_as_much_as_the_list(call):
    ids, relevant = torch.randperm(50_000).unsqueeze(0), torch.arange(0, 50_000, 20).unsqueeze(0)
    if call == "Serendipity":
        metric, more = tr.Serendipity(interactions=torch.ones(50_000)), {}
    else:
        metric = tr.RankingCollection(SUITE)
        more = {"exclude": (torch.zeros(2000).long(), torch.arange(2000))} if call == "exclude" else {}
    assert largest(lambda: metric.update(ids, relevant, **more)) <= 2 * ids.nbytes


# ---- one wide query among narrow ones ------------------------------------------------------------------------------

WIDE, NARROW = 3000, 200


def wide_ids():
    ids = torch.arange(NARROW * 10).reshape(NARROW, 10)
    relevant = [ids[q, q % 10 : q % 10 + 2] for q in range(NARROW)]
    relevant[150] = torch.arange(1495, 1495 + WIDE)
    return (lambda rows: tr.Ranking.from_ids(ids[rows], relevant[rows])), ids.nbytes


def wide_catalogue(make=tr.Ranking.from_scores):
    scores = torch.randn(NARROW, WIDE, generator=torch.Generator().manual_seed(3)).round(decimals=2)
    relevant = [torch.tensor([q]) for q in range(NARROW)]
    relevant[150] = torch.randperm(WIDE, generator=torch.Generator().manual_seed(4))
    return (lambda rows: make(scores[rows], relevant[rows])), scores.nbytes


def wide_blocks():
    return wide_catalogue(lambda scores, relevant: tr.Ranking.from_score_blocks(list(scores.split(700, 1)), relevant))


def wide_flat():
    sizes = torch.full((NARROW,), 3)
    sizes[150] = WIDE
    indexes = torch.repeat_interleave(torch.arange(NARROW), sizes)
    g = torch.Generator().manual_seed(5)
    scores, target = torch.randn(len(indexes), generator=g), torch.randint(0, 2, (len(indexes),), generator=g)

    def make(rows):
        some = (indexes >= rows.start) & (indexes < rows.stop)
        return tr.Ranking.from_flat(scores[some], target[some], indexes[some], judged=True)

    return make, scores.nbytes


def wide_run():
    qrels = {f"q{q}": {"a": 1, f"d{q % 7}": 2} for q in range(NARROW)}
    run = {f"q{q}": {f"d{d}": (d * 7919 + q) % 11 / 4 for d in range(5)} for q in range(NARROW)}
    run["q150"] = {f"d{d}": d % 100 for d in range(WIDE)}
    qrels["q7"] = {}
    del run["q7"], run["q8"]

    def make(rows):
        names = [f"q{q}" for q in range(NARROW)[rows]]
        return tr.Ranking.from_run({q: qrels[q] for q in names}, {q: run[q] for q in names if q in run})

    return make, 24 * (WIDE + 5 * NARROW)


WIDES = {"ids": wide_ids, "catalogue": wide_catalogue, "blocks": wide_blocks, "flat": wide_flat, "run": wide_run}


@pytest.mark.parametrize("name", WIDES)
def test_a_ranking_with_one_wide_query_is_no_rectangle_and_scores_as_its_queries_alone(assume, name):
    assume(rectangle=1000)
    make, size = WIDES[name]()
    suite = tr.RankingCollection(SUITE)
    made = []
    assert largest(lambda: made.append((ranking := make(slice(0, NARROW)), suite.score(ranking)))) <= size + 2**21
    ranking, got = made[0]
    some = [0, 6, 7, 8, 149, 150, 151, NARROW - 1]
    alone = [suite.score(make(slice(q, q + 1))) for q in some]
    assert_equal({k: v[some] for k, v in got.items()}, {k: torch.cat([a[k] for a in alone]) for k in got})
    suite.update(ranking)
    assert suite["mrr"].num_queries == NARROW
    assert ranking.first.shape[0] == ranking.num_queries == NARROW  # entries of all, if somebody asks
    assert entries(ranking.take(torch.tensor([150]))) == entries(make(slice(150, 151)))
    assert_equal(suite.score(ranking.take(torch.arange(NARROW))), got)


def test_a_ranking_of_parts_is_pickled_with_its_parts():
    import pickle

    ranking = pickle.loads(pickle.dumps(WIDES["ids"]()[0](slice(0, NARROW))))
    assert len(list(ranking.parts())) > 1
    assert tr.MRR().score(ranking).shape == (NARROW,)
    with pytest.raises(AttributeError, match="'Rankings' object has no attribute 'nothing'"):
        _ = ranking.nothing


def test_a_long_list_keeps_its_relevant_candidates_alone():
    scores, target = torch.rand(1, 10**6), torch.zeros(1, 10**6, dtype=torch.int8)
    target[0, ::3] = 1
    assert len(next(rank(arrange(scores, target), Need(relevant=True))).first[0]) == 333_334


# ---- catalogues that come some columns at a time -------------------------------------------------------------------


def test_a_group_of_queries_that_lie_apart_is_none_of_consecutive_queries(assume):
    assume(**FORCED[Counting.COUNT], rectangle_counted=0)
    g = torch.Generator().manual_seed(3)
    scores = torch.rand(10, 200, generator=g)
    sizes = [1, 1, 2, 90, 2, 90, 90, 90, 90, 1]  # by size: 0, 1, 9, 2, 4, which begin and end like 0, 1, 2, 3, 4
    relevant = [torch.randperm(200, generator=g)[:size] for size in sizes]
    ranking = tr.Ranking.from_score_blocks(list(scores.split(70, dim=1)), relevant)
    assert len(ranking.rectangles) > 1
    assert_stands(ranking, standing(scores, [dict.fromkeys(ids.tolist(), 1) for ids in relevant]))


# ---- long ties -----------------------------------------------------------------------------------------------------


def over_all_orders(metric, grades):
    """The mean of a measure over all orders of candidates that are tied, in plain enumeration."""
    orders = torch.tensor(list(itertools.permutations(range(grades.shape[-1]))))
    scores = -torch.arange(grades.shape[-1], dtype=torch.float64).expand(orders.shape)
    return metric.score(scores, grades[orders]).mean()


CASCADES = [tr.ERR(), tr.ERR(3, max_grade=5), tr.NERR(), tr.ERRIA(), tr.NRBP()]
CASCADES += [tr.AlphaDCG(alpha=1), tr.AlphaDCG(2, alpha=0.3)]


@pytest.mark.parametrize("metric", CASCADES, ids=lambda m: m.label)
def test_a_cascade_over_a_long_tie_is_the_mean_over_all_orders(monkeypatch, metric):
    monkeypatch.setattr(cascades, "LONG", -1)
    for grades in ([0, 1, 4, 1, 2, 0], [3, 3, 3, 3, 3, 3], [0, 0, 0, 0, 0, 1], [4, 4, 0, 1, 1, 0]):
        target = torch.tensor(grades)
        want = over_all_orders(metric, target)
        torch.testing.assert_close(metric.score(torch.zeros(1, 6), target.unsqueeze(0))[0], want, rtol=1e-13, atol=0)


@pytest.mark.parametrize("block", [cascades.BLOCK, 4 * 100], ids=["one chunk", "ten chunks"])
def test_the_chance_that_somebody_stops_keeps_its_digits(monkeypatch, block):
    monkeypatch.setattr(cascades, "LONG", -1)
    monkeypatch.setattr(cascades, "BLOCK", block)
    # One of a thousand tied candidates stops one reader in 2^40: the mean of 1 / rank over a thousand ranks.
    target = torch.zeros(1, 1000, dtype=torch.int64)
    target[0, 500] = 1
    harmonic = sum(1 / rank for rank in range(1, 1001)) / 1000
    target = target.expand(40, -1)
    value = tr.ERR(max_grade=40).score(torch.zeros(40, 1000), target)
    torch.testing.assert_close(value, torch.full_like(value, 2.0**-40 * harmonic), rtol=1e-12, atol=0)


@pytest.mark.parametrize("long", [0, 2**60], ids=["recurrence", "sum"])
def test_infap_over_a_tie_is_the_mean_over_all_orders(monkeypatch, long):
    monkeypatch.setattr(judged_metrics, "LONG", long)
    metric = tr.InfAP()
    for grades in ([1, 1, 0, -1, -2, -1], [1, -1, -1, -1, -2, -2], [1, 1, 1, 0, 0, -1], [0, 1, -2, -2, -2, 1]):
        target = torch.tensor(grades)
        value = metric.score(torch.zeros(1, 6), target.unsqueeze(0))[0]
        torch.testing.assert_close(value, over_all_orders(metric, target), rtol=1e-11, atol=0)


def test_reciprocal_ranks_by_recurrence_are_their_sums(monkeypatch):
    share = torch.tensor([0.02, 0.5, 0.98, 0.5, 0.02, 0.98])[:, None]
    g = torch.Generator().manual_seed(10)
    scores = torch.zeros(6, 900)
    scores[1] = torch.arange(900) % 3
    scores[2, :700] = 1
    target = torch.where(torch.rand(6, 900, generator=g) < share, torch.randint(0, 2, (6, 900), generator=g), -1)
    target[3] -= torch.randint(0, 2, (900,), generator=g)
    values = []
    for long in (2**60, 0):
        monkeypatch.setattr(judged_metrics, "LONG", long)
        values.append(tr.InfAP().score(scores, target))
    torch.testing.assert_close(values[0], values[1], rtol=1e-12, atol=0)


@pytest.mark.parametrize(("top_k", "max_fpr"), [(None, 0.1), (None, 0.9), (3, 0.4), (6, 0.4), (6, 0.9)])
def test_the_partial_area_of_ties_is_the_mean_over_all_orders(top_k, max_fpr):
    metric = tr.AUROC(top_k, max_fpr=max_fpr)
    for grades in ([0, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0]):
        target = torch.tensor(grades)
        value = metric.score(torch.zeros(1, 6), target.unsqueeze(0))[0]
        torch.testing.assert_close(value, over_all_orders(metric, target), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("metric", [tr.AUROC(900, max_fpr=0.1), tr.ERR(), tr.InfAP()], ids=lambda m: m.label)
def test_a_long_tie_takes_no_table_of_its_pairs(metric):
    target = (torch.rand(2, 2000, generator=torch.Generator().manual_seed(11)) < 0.2).long() * 2 - 1
    assert largest(lambda: metric.score(torch.zeros(2, 2000), target)) <= 2**22


# ---- cutoffs -------------------------------------------------------------------------------------------------------


def test_a_cutoff_that_nothing_reaches_is_no_allocation():
    scores, target = torch.rand(3, 5), torch.randint(0, 2, (3, 5))
    far, whole = tr.NDCG(2**53), tr.NDCG()
    assert torch.equal(far.score(scores, target), whole.score(scores, target))


# ---- curves --------------------------------------------------------------------------------------------------------


def some_rows(queries, longest):
    """Rows of queries of one to a few candidates, of which a few have many, and some have nothing relevant."""
    g = torch.Generator().manual_seed(12)
    sizes = torch.randint(1, 6, (queries,), generator=g)
    sizes[queries // 2], sizes[3] = longest, longest // 2
    indexes = torch.repeat_interleave(torch.arange(queries), sizes)
    target = (torch.rand(len(indexes), generator=g) < 0.4).long()
    return torch.rand(len(indexes), generator=g), target, indexes


CURVES = [("mean", "neg", True), ("median", "skip", False), ("max", "pos", True), (torch.amin, "skip", True)]


@pytest.mark.parametrize(("aggregation", "action", "adaptive_k"), CURVES)
def test_a_curve_at_a_few_ranks_at_a_time_is_the_curve_of_torchmetrics(monkeypatch, aggregation, action, adaptive_k):
    monkeypatch.setattr("torchrank.retrieval.BLOCK", 64)
    monkeypatch.setattr("torchrank.retrieval.OVERHEAD", 4)
    kwargs = {"aggregation": aggregation, "empty_target_action": action, "adaptive_k": adaptive_k}
    curves = []
    for kind in (torchrank.retrieval, torchmetrics.retrieval):
        metric = kind.RetrievalPrecisionRecallCurve(**kwargs)
        metric.update(*some_rows(11, 30))
        curves.append(metric.compute())
    torch.testing.assert_close(curves[0], curves[1])


def test_a_curve_with_one_long_list_makes_no_short_one_longer():
    metric = torchrank.retrieval.RetrievalPrecisionRecallCurve(aggregation="median")
    metric.update(*some_rows(3000, 3000))
    assert largest(metric.compute) <= 2**21


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("layout", ["grades", "label", "flat", "ranking"])
def test_sums_of_very_many_queries_are_those_of_their_values(monkeypatch, assume, layout, ignored):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randint(0, 5, (50, 9), generator=generator).float()
    grades = torch.randint(0, 3, (50, 9), generator=generator)
    label = torch.randint(-1, 9, (50,), generator=generator)
    label[::7] = -100 if ignored else -1
    rows = torch.arange(50).repeat_interleave(9)[torch.arange(450) % 9 <= torch.arange(450) % 7]
    flat = scores.flatten()[torch.arange(450) % 9 <= torch.arange(450) % 7]
    batches = {
        "grades": ((scores, grades), {}),
        "label": ((scores, label), {}),
        "flat": ((flat, (flat > 2).long()), {"indexes": rows}),
        "ranking": ((tr.Ranking.from_scores(scores, label),), {}),
    }
    args, kwargs = batches[layout]
    suite = ["ndcg@3", "map", "mr", "mrr(aggregation=geometric)", "hitrate(empty_target_action=skip)@1"]
    whole, summed = tr.RankingCollection(suite), tr.RankingCollection(suite)
    whole.update(*args, **kwargs)
    monkeypatch.setattr("torchrank.state.scoring.MANY_VALUES", 0)
    assume(block=40)
    monkeypatch.setattr("torchrank.state.scoring.Values.clone", None)
    summed.update(*args, **kwargs)
    for key, metric in whole.items():
        found = (summed[key].num_queries, summed[key].num_empty)
        assert found == (metric.num_queries, metric.num_empty)
        torch.testing.assert_close(summed[key].standard_error, metric.standard_error)
    torch.testing.assert_close(summed.compute(), whole.compute(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("weights", [None, torch.arange(20_000) % 3])
def test_further_sums_of_very_many_flat_queries_take_little_memory(weights):
    """Query n has n % 3 irrelevant rows before its relevant row, and as many behind that there are two."""
    above, rows = torch.arange(20_000) % 3, torch.arange(60_000)
    grades = (rows % 3 == above.repeat_interleave(3)).long()
    order = torch.randperm(60_000, generator=torch.Generator().manual_seed(1))
    sampled, curve = tr.SampledRanks(num_negatives=2, num_items=10_000), tr.PRCurve(300)
    wide = tr.SampledRanks(num_negatives=300, num_items=10_000)
    flat = (-(rows % 3).float())[order], grades[order]
    for metric in (sampled, curve, wide):
        peak = largest(lambda metric=metric: metric.update(*flat, indexes=(rows // 3)[order], weights=weights))
        assert peak <= 2**23
    counts = torch.bincount(above, weights=weights).double()
    torch.testing.assert_close(sampled.histogram, counts, rtol=0, atol=0)
    torch.testing.assert_close(curve.compute()[1][:3], (counts.cumsum(0) / counts.sum()).float(), rtol=1e-6, atol=0)
    values = sampled.score(*flat, indexes=(rows // 3)[order])
    torch.testing.assert_close(values, 1 - above / 2, check_dtype=False)


@pytest.mark.parametrize("name", ["ndcg(normalize=k)", "ndcg(normalize=k,discount=clipped)", "alphadcg(bounded=True)"])
def test_a_cutoff_far_behind_the_list_takes_little_memory(name):
    scores, grades = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]])
    metric, found = tr.parse(f"{name}@1500000"), []
    assert largest(lambda: found.append(metric.score(scores, grades))) <= 2**23
    ranks = numpy.arange(1, 1_500_001)
    discounts = 1 / numpy.log2(numpy.maximum(2, ranks + (0 if "clipped" in name else 1)))
    whole = math.fsum(d * 0.5**at for at, d in enumerate(discounts[:99])) if "alpha" in name else discounts.sum()
    gained = discounts[0] + discounts[2] * (0.5 if "alpha" in name else 1)
    assert found[0].item() == pytest.approx(gained / whole, rel=1e-12)


def test_bad_values_of_very_many_queries_are_counted(monkeypatch, assume):
    monkeypatch.setattr("torchrank.state.scoring.MANY_VALUES", 0)
    assume(block=8)
    scores = torch.rand(20, 4)
    scores[[3, 11], 1] = float("nan")
    metric = tr.NDCG(empty_target_action="error")
    metric.update(scores, torch.cat([torch.zeros(1, 4), torch.ones(19, 4)]))
    with pytest.raises(ValueError, match=r"2 queries with NaN.*1 query with nothing to measure"):
        metric.compute()


def test_rankings_that_are_joined_keep_their_queries_in_the_order_given():
    def of(*grades):
        indexes = torch.arange(len(grades))
        return tr.Ranking.from_flat(torch.ones(len(grades)), torch.tensor(grades), indexes, judged=True)

    wide = tr.Ranking.from_ids(torch.arange(80).view(4, 20), [torch.arange(n) for n in (1, 2, 20, 1)])
    joined = tr.Ranking.join([of(1, 1), of(0, 0), tr.Ranking.join([of(1), of(0, 1)])])
    assert tr.Precision().score(joined).tolist() == [1, 1, 0, 0, 1, 0, 1]
    twice = tr.Recall().score(tr.Ranking.join([wide, wide]))
    assert twice.tolist() == tr.Recall().score(wide).repeat(2).tolist()


def test_values_of_queries_that_are_summed_in_chunks_are_in_the_order_of_the_batch(monkeypatch):
    # Ranked in groups of similar sizes, the longest list last.
    sizes = torch.tensor([2] * 2000 + [3, 3000, 1, 999])
    indexes = torch.arange(len(sizes)).repeat_interleave(sizes)
    scores, target = torch.randn(len(indexes), generator=torch.Generator().manual_seed(0)), torch.ones(len(indexes))
    monkeypatch.setattr("torchrank.state.scoring.MANY_VALUES", 3000)  # 300 queries in a chunk
    suite = tr.RankingCollection([tr.PRCurve(5), "mr"])  # a curve is summed in chunks, with the metrics beside it
    for batch in ((scores, target, None, indexes), (tr.Ranking.from_flat(scores, target, indexes),)):
        names = ("preds", "target", "mask", "indexes")
        values = suite.score(**dict(zip(names, batch)))["mr"]
        assert values.tolist() == [(1 + size) / 2 for size in sizes.tolist()]


def test_memory_of_batches_and_files_is_free_at_once(tmp_path):
    """Python looks for cycles by the number of objects, and a few rankings or pieces of files can fill the memory."""
    metrics = [config.metric() for config in oracle_comparison.IN_TURN]
    grades = torch.randint(0, 3, (5, 12), generator=torch.Generator().manual_seed(0))
    paths = trec_files.files_of(tmp_path, *trec_files.two_runs())
    frame = {"user": [1, 1], "score": [2, 1], "label": [0, 1]}

    def work():
        for scores in (grades.float(), torch.rand(5, 12)):  # with ties, and without
            for metric in metrics:
                metric.score(scores, grades)
            tr.RankingCollection(SUITE).update(scores, grades[:, 0])
        tr.evaluate(paths[0], paths[1:], "ndcg@5 map")
        tr.evaluate(frame, "ndcg@5 map")

    gc.collect()
    gc.disable()
    try:
        work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = {type(one).__name__ for one in gc.garbage if type(one).__module__.startswith("torchrank")}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert "NDCG" in found  # metrics and their waiting batches are cycles
    assert not found & {"Ranking", "DenseLayout", "CatalogueLayout", "Text", "TextIds", "NumberIds", "Run", "Qrels"}
