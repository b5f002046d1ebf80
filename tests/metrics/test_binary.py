"""Measures of positions: other means of ranks, their inverses, and adjustments for chance; cuts beside scikit-learn."""

import itertools
import math
import random
import statistics
from functools import cache

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support import layout_cases, oracles, oracles_positions
from tests.support.cases import cases
from tests.support.optional import sklearn_metrics
from tests.support.tie_orders import flags
from torchrank.formulas import random_ranking as chance

ADJUSTED = [
    layout_cases.config("mr", adjusted="ratio"),
    layout_cases.config("mr", adjusted="index", filtered=True),
    layout_cases.config("mr", adjusted="z"),
    layout_cases.config("mrr", adjusted="index"),
    layout_cases.config("mrr", adjusted="z", filtered=True),
    layout_cases.config("mrr", adjusted="z"),
    layout_cases.config("mrr", adjusted="index", top_k=3),
    layout_cases.config("hitrate", adjusted="index", top_k=2),
    layout_cases.config("hitrate", adjusted="z", top_k=2, filtered=True),
    layout_cases.config("mr", aggregation="geometric", filtered=True),
    layout_cases.config("mr", aggregation="harmonic"),
]
CHANCE = [config for config in ADJUSTED if "adjusted" in config.for_oracle]


def value(config, query, **more):
    return oracles.value(config.name, query, **config.for_oracle, **more)


# ---- compute adjusts the mean of all


@cases("config", CHANCE, ids=str)
@cases("average", ["query", "positive"])
@cases("weighted", [False, True])
def test_adjusted_values_are_of_the_mean_over_all_queries(config, average, weighted):
    parameters = config.for_oracle
    if average == "positive" and not (config.name == "mr" or parameters.get("filtered")):
        pytest.skip("one value per query")
    how, name = parameters.pop("adjusted"), config.name
    queries, batch = layout_cases.batch("dense_masked", 300)
    rng = random.Random(1)
    weights = [rng.choice((0, 0.5, 1, 2.25)) if weighted else 1.0 for _ in queries]
    metric = config.metric(average=average, empty_target_action="skip")
    metric.update(*batch.args, **batch.kwargs, weights=torch.tensor(weights, dtype=torch.float64))
    m = e = v = total = 0.0
    for query, w in zip(queries, weights):
        query = flags(query, 1)
        positives = sum(flag for _, flag in query.listed) + len(query.missing)
        if positives and (query.listed or name != "mr"):
            w *= positives if average == "positive" else 1
            mean, variance = oracles_positions.by_chance(name, query, **parameters)
            if how != "ratio" and (variance if how == "z" else abs(1 - mean)) < 1e-12:
                continue  # nothing is left to chance
            m += w * oracles.value(name, query, **parameters)
            e, v, total = e + w * mean, v + w * w * variance, total + w
    m, e, v = m / total, e / total, v / total**2
    want = {"ratio": m / e, "index": (m - e) / (1 - e), "z": (e - m if name == "mr" else m - e) / math.sqrt(v)}[how]
    assert metric.compute().item() == pytest.approx(want, rel=1e-6)


def test_queries_without_a_choice_weigh_nothing():
    scores, target = torch.tensor([[1.0, -math.inf], [2.0, 1.0]]), torch.tensor([[1, 0], [0, 1]])
    for label, last in {"mr(adjusted=index)": -1, "mr(adjusted=z)": -1, "mrr(adjusted=index)": -1}.items():
        metric = tr.parse(label)
        assert metric.score(scores, target).tolist() == pytest.approx([0, last])
        assert metric(scores, target).item() == pytest.approx(last)
        assert metric(scores[:1], target[:1]) == 0
    assert tr.HitRate(adjusted="z")(scores, target) == 0  # without k nobody can miss


def test_a_mean_over_nothing_is_unknown():
    scores = torch.rand(2, 3)
    for label in ("mr(adjusted=index)", "mrr(adjusted=z,empty_target_action=skip)", "mr"):
        assert tr.parse(label)(scores, torch.zeros(2, 3)).isnan()


def test_the_length_of_the_list_must_be_known():
    ranks = torch.tensor([3.0])
    for label in ("mr(adjusted=index)", "mr(adjusted=z)", "mrr(adjusted=z)", "hitrate(adjusted=index)@2"):
        assert tr.parse(label).score(tr.Ranking.from_ranks(ranks)).isnan().all()
        assert tr.parse(label)(tr.Ranking.from_ranks(ranks)).isnan()
        assert tr.parse(label).score(tr.Ranking.from_ranks(ranks, 9)).isfinite().all()


@pytest.mark.parametrize(("n", "r"), [(2, 1), (9, 4), (1000, 1), (1000, 7), (3000, 2900), (20_000, 3)])
def test_a_constant_scorer_is_as_good_as_chance(n, r):
    target = torch.zeros(1, n, dtype=torch.int64)
    target[0, -r:] = 1
    for label in ("mr(adjusted=index)", "mr(adjusted=z)", "mrr(adjusted=index)", "mrr(adjusted=z)@1"):
        for filtered in (False, True):
            metric = tr.parse(label, filtered=filtered)
            assert metric.score(torch.zeros(1, n), target).item() == pytest.approx(0, abs=1e-9)
    assert tr.MR(adjusted="ratio")(torch.zeros(1, n), target) == 1
    for k in (1, 5, 100):
        value = tr.HitRate(top_k=k, adjusted="index").score(torch.zeros(1, n), target)
        assert value.item() == pytest.approx(0, abs=1e-9)


# ---- the moments


@cache
def chances_of_the_first(n, r):
    """The chance of each rank to be that of the first of r relevant candidates among n."""
    return [math.comb(n - j, r - 1) / math.comb(n, r) for j in range(1, n + 1)]


def moments(n, r, worth):
    """Mean and variance of the worth of the first of r relevant candidates among n."""
    chances = chances_of_the_first(n, r)
    mean = math.fsum(p * worth(j) for j, p in enumerate(chances, 1))
    return mean, math.fsum(p * (worth(j) - mean) ** 2 for j, p in enumerate(chances, 1))


@pytest.mark.parametrize("most", [1, 1600])
def test_moments(most):
    some = (1, 2, 3, 20, 199, 380, 420, 1599)
    pairs = [(n, r) for n in (1, 2, 3, 4, 7, 30, 200, 1600) for r in some if r <= min(n, most)]
    n, r = torch.tensor(pairs, dtype=torch.float64).T
    for k in (None, 1, 2, 5, 100, 5000):
        mrr, hits = chance.reciprocal_rank_moments(n, r, k, most), chance.hit_moments(n, r, k, most)
        for i, pair in enumerate(pairs):
            mean, variance = moments(*pair, lambda j, k=k: 1 / j if k is None or j <= k else 0.0)
            assert mrr.mean[i].item() == pytest.approx(mean, rel=1e-14, abs=0), (pair, k)
            assert mrr.variance[i].item() == pytest.approx(variance, rel=1e-8, abs=1e-12), (pair, k)
            mean, variance = moments(*pair, lambda j, k=k: float(k is None or j <= k))
            assert hits.mean[i].item() == pytest.approx(mean, rel=1e-10), (pair, k)
            assert hits.variance[i].item() == pytest.approx(variance, rel=1e-9, abs=1e-12), (pair, k)


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("most", [0, 1, 5])
def test_moments_of_queries_without_relevant_candidates_are_0(n, most):
    sizes = torch.tensor([n, 9], dtype=torch.float64), torch.tensor([0, most], dtype=torch.float64)
    for k in (None, 1, 3, 100):
        for found in (chance.reciprocal_rank_moments(*sizes, k, most), chance.hit_moments(*sizes, k, most)):
            assert (found.mean[0].item(), found.variance[0].item()) == (0, 0)


def test_moments_in_many_pieces(monkeypatch):
    n, r = torch.tensor([50.0, 60], dtype=torch.float64), torch.tensor([5.0, 30], dtype=torch.float64)
    for k in (None, 20):
        whole = chance.reciprocal_rank_moments(n, r, k, 60), chance.hit_moments(n, r, k, 60)
        with monkeypatch.context() as patch:
            patch.setattr(chance, "BLOCK", 24)
            pieces = chance.reciprocal_rank_moments(n, r, k, 60), chance.hit_moments(n, r, k, 60)
        for one, other in zip(whole, pieces):
            torch.testing.assert_close(torch.stack(one), torch.stack(other), rtol=1e-12, atol=1e-14)


# ---- means and inverses


def test_inverse():
    ranking = tr.Ranking.from_ranks(torch.tensor([1.0, 2, 4, 8]), 10)
    want = {
        "mean": 4 / 15,
        "geometric": 64**-0.25,
        "median": 1 / 2,
        "midpoint": 1 / 3,
        "max": 1 / 8,
        "harmonic": 15 / 32,
    }
    for how, inverse in want.items():
        metric = tr.MR(inverse=True, aggregation=how)
        assert metric(ranking).item() == pytest.approx(inverse)
        assert metric.score(ranking).tolist() == pytest.approx([1, 2, 4, 8])
    assert tr.MR(inverse=True, aggregation="none")(ranking).tolist() == [1, 0.5, 0.25, 0.125]
    plain, metric = tr.MR(), tr.MR(inverse=True)
    plain.update(ranking)
    metric.update(ranking)
    assert metric.standard_error.item() == pytest.approx(plain.standard_error.item() * (4 / 15) ** 2)


@pytest.mark.parametrize(
    ("ranks", "weights", "expected"),
    [
        ([5.0, 1, 2], None, 2),
        ([5.0, 1, 2, 4], None, 3),
        ([5.0, 1, 2, 4], [1.0, 1, 1, 2], 4),
        ([5.0, 1, 2, 4], [2.0, 1, 0, 1], 4.5),
        ([7.0], None, 7),
    ],
)
def test_midpoint(ranks, weights, expected):
    metric = tr.MR(aggregation="midpoint")
    weights = None if weights is None else torch.tensor(weights)
    metric.update(tr.Ranking.from_ranks(torch.tensor(ranks), 10), weights=weights)
    assert metric.compute().item() == expected


# ---- labels and ranges


@pytest.mark.parametrize(
    ("label", "low", "high", "higher_is_better"),
    [
        ("mr", 1, math.inf, False),
        ("mr(inverse=True)", 0, 1, True),
        ("mr(adjusted=ratio)", 0, 2, False),
        ("mr(adjusted=index)", -1, 1, True),
        ("mr(adjusted=z)", -math.inf, math.inf, True),
        ("mrr", 0, 1, True),
        ("mrr(adjusted=index)", -math.inf, 1, True),
        ("hitrate(adjusted=z)@3", -math.inf, math.inf, True),
    ],
)
def test_range(label, low, high, higher_is_better):
    for metric in (tr.parse(label), tr.parse(label).clone()):
        assert metric.value_range == (low, high)
        assert metric.plot_lower_bound == (low if math.isfinite(low) else None)
        assert metric.plot_upper_bound == (high if math.isfinite(high) else None)
        assert metric.higher_is_better is higher_is_better


def test_parameters_that_exclude_each_other_are_refused():
    with pytest.raises(ValueError, match="adjusted=None together with inverse=True, got 'z'"):
        tr.MR(inverse=True, adjusted="z")
    for more in ({"aggregation": "geometric"}, {"aggregation": "harmonic"}):
        with pytest.raises(ValueError, match="adjusted=None together with"):
            tr.MR(adjusted="index", **more)
    for cls in (tr.MRR, tr.HitRate):
        with pytest.raises(ValueError, match="adjusted to be one of None, 'index', 'z', got 'ratio'"):
            cls(adjusted="ratio")
    with pytest.raises(ValueError, match="inverse to be one of"):
        tr.MR(inverse="yes")
    ranking = tr.Ranking.from_score_blocks([torch.rand(2, 9)], torch.tensor([1, 2]), top_k=3)
    with pytest.raises(ValueError, match="all ranks exact"):  # chance must know the number of retrieved candidates
        tr.HitRate(top_k=3, adjusted="index").score(ranking)


def test_other_aggregations_take_each_query_once():
    ranking = tr.Ranking.from_ranks(torch.tensor([1.0, 3, 90]), torch.tensor([3, 5, 100]))
    values = tr.MR(adjusted="z").score(ranking)
    assert torch.equal(tr.MR(adjusted="z", aggregation="none")(ranking), values.float())
    assert tr.MR(adjusted="z", aggregation="median")(ranking).item() == pytest.approx(values.median().item())


@pytest.mark.parametrize("sizes", [[1], [5], [2, 3], [2, 4, 7], [3, 3, 5, 2], [4, 4, 4, 4, 4], [9, 1, 1]])
def test_the_expected_median_rank_is_the_mean_over_all_ranks(sizes):
    every = list(itertools.product(*(range(1, size + 1) for size in sizes)))
    for how, median in (("midpoint", statistics.median), ("median", statistics.median_low)):
        want = sum(map(median, every)) / len(every)
        assert tr.expected_median_rank(sizes, how).item() == pytest.approx(want, rel=1e-12)


def test_the_expected_median_of_many_ranks_is_the_mean_of_simulations():
    sizes = torch.randint(1, 300, (101,), generator=torch.Generator().manual_seed(0))
    ranks = (torch.rand(20_000, 101, generator=torch.Generator().manual_seed(1)) * sizes).floor() + 1
    medians = ranks.median(-1).values.double()
    error = medians.std() / len(medians) ** 0.5
    assert abs(tr.expected_median_rank(sizes) - medians.mean()) < 4 * error
    assert tr.expected_median_rank([1000] * 201).item() == pytest.approx(500.5, rel=1e-12)  # by symmetry


def test_the_expected_median_rank_refuses_what_are_no_numbers_of_candidates():
    for bad in ([], [0, 3], [[1, 2]]):
        with pytest.raises(ValueError, match=r"numbers >= 1 \[rank\]"):
            tr.expected_median_rank(bad)
    with pytest.raises(ValueError, match="'midpoint', 'median'"):
        tr.expected_median_rank([3], "mean")


@pytest.mark.xdist_group("sklearn")
def test_matthews_and_accuracy_of_scikit_learn():
    generator = np.random.default_rng(0)
    preds, target = generator.random((30, 12)), (generator.random((30, 12)) < 0.3).astype(int)
    target[:, 0] = 1
    for k in (1, 3, 8):
        chosen = (preds.argsort(1).argsort(1) >= 12 - k).astype(int)
        for theirs, ours in ("matthews_corrcoef", tr.MCC(top_k=k)), ("accuracy_score", tr.Accuracy(top_k=k)):
            want = torch.tensor([getattr(sklearn_metrics, theirs)(t, c) for t, c in zip(target, chosen)])
            torch.testing.assert_close(ours.score(torch.from_numpy(preds), torch.from_numpy(target)), want.double())


@pytest.mark.parametrize("measure", [tr.Recall, tr.MAP])
def test_a_weight_that_overflows_raises(measure):
    metric = measure(gain="exponential")
    scores, grades = torch.tensor([[0.9, 0.8], [0.9, 0.8]]), torch.tensor([[1.0, 0.0], [5000.0, 1.0]])
    with pytest.raises(ValueError, match="gain of it, that is NaN or infinite, first in query 1"):
        metric.score(scores, grades)
    metric.update(scores, grades)
    with pytest.raises(ValueError, match="1 relevance grade, or gain of it"):
        metric.compute()
