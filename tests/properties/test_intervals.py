"""Intervals of metrics and suites, beside scipy, statsmodels, and simulations with known expectations."""

import itertools
import math
from statistics import fmean

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import stats
from tests.support.random_batches import batch, rng, with_values
from torchrank.state.sums import Sum, estimate

LEVELS = (0.8, 0.95, 0.99)


def with_hits(hits, weights=None):
    """A hit rate whose queries have these values, 0 or 1."""
    metric = tr.HitRate(top_k=1)
    scores = torch.tensor([[0.9, 0.1]]).expand(len(hits), 2)
    metric.update(scores, 1 - torch.as_tensor(hits, dtype=torch.int64), weights=weights)
    return metric


def same(got, want, tolerance=1e-9):
    assert got == pytest.approx(tuple(want), rel=tolerance, abs=tolerance, nan_ok=True)


def is_nan(interval):
    return math.isnan(interval.low) and math.isnan(interval.high)


# ---- means -----------------------------------------------------------------------------------------------------------


@cases("level", LEVELS)
@cases("metric", [tr.MRR(), tr.NDCG(top_k=3), tr.MR(), tr.AUROC(), tr.MAP(empty_target_action="skip")])
def test_t_interval_is_that_of_scipy_over_the_scored_queries(metric, level):
    metric = metric.clone()
    values = metric.score(*batch())
    for part in range(0, 40, 8):
        metric.update(*(x[part : part + 8] for x in batch()))
    scored = values[~values.isnan()].numpy()
    same(metric.interval(level, "t"), stats.ttest_1samp(scored, 0).confidence_interval(level))
    same(metric.interval(level), metric.interval(level, "t"))


@pytest.mark.xdist_group("statsmodels")  # imported once
def test_weighted_error_is_that_of_weighted_least_squares_in_statsmodels():
    api = pytest.importorskip("statsmodels.regression.linear_model")
    values, weights = torch.rand(30, generator=rng()) * 3, torch.rand(30, generator=rng(1)) * 5
    fit = api.WLS(values.double().numpy(), [1] * 30, weights=weights.double().numpy()).fit(cov_type="HC1", use_t=True)
    metric = with_values(values, weights, pieces=4)
    assert float(metric.standard_error) == pytest.approx(fit.bse[0], rel=1e-6)
    same(metric.interval(0.9), fit.conf_int(0.1)[0])


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_interval_is_the_same_for_weights_of_any_size(scale):
    values, weights = torch.rand(30, generator=rng()), torch.rand(30, generator=rng(1), dtype=torch.float64)
    same(with_values(values, weights * scale, pieces=3).interval(), with_values(values, weights).interval(), 1e-7)
    hits = (values > 0.4).int()
    same(with_hits(hits, weights * scale).interval(), with_hits(hits, weights).interval())


@cases("level", LEVELS)
@cases(("k", "n"), [(0, 5), (5, 5), (1, 2), (7, 20), (199, 200)])
def test_auto_is_wilson_of_scipy_for_values_of_0_and_1(k, n, level):
    metric = with_hits([1] * k + [0] * (n - k))
    want = stats.binomtest(k, n).proportion_ci(level, method="wilson")
    same(metric.interval(level), want)
    same(metric.interval(level, "wilson"), want)
    assert metric.interval(level).low < metric.interval(level).high


def test_wilson_of_weights_counts_the_effective_number_of_queries():
    hits, weights = [1, 0, 1, 1, 0, 1], [1.0, 2.0, 0.5, 3.0, 1.0, 0.0]
    p = sum(w * h for w, h in zip(weights, hits)) / sum(weights)
    n = sum(weights) ** 2 / sum(w * w for w in weights)
    z = stats.norm.ppf(0.975)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    same(with_hits(hits, torch.tensor(weights)).interval(), (centre - half, centre + half), 1e-7)


def test_one_value_between_0_and_1_makes_auto_t_and_wilson_an_error():
    metric = tr.MRR()
    metric.update(torch.eye(9), torch.arange(9))
    assert metric.interval(method="wilson") == metric.interval()
    metric.update(torch.tensor([[0.9, 0.1, 0.2]]), torch.tensor([1]))
    same(metric.interval(), stats.ttest_1samp([1] * 9 + [1 / 3], 0).confidence_interval(), 1e-7)
    with pytest.raises(ValueError, match="0 and 1 only for method='wilson', got others from mrr"):
        metric.interval(method="wilson")


@pytest.mark.parametrize(("how", "inside", "slope"), [("geometric", math.log, 1), ("harmonic", lambda v: 1 / v, 2)])
def test_geometric_and_harmonic_means_use_the_slope_of_the_mean(how, inside, slope):
    values = (torch.rand(50, generator=rng(), dtype=torch.float64) + 0.5).tolist()
    value = stats.gmean(values) if how == "geometric" else stats.hmean(values)
    reach = stats.sem([inside(v) for v in values]) * value**slope * stats.t.ppf(0.975, 49)
    same(with_values(values, aggregation=how).interval(), (value - reach, value + reach))


@pytest.mark.parametrize(
    "metric",
    [
        tr.MR(inverse=True),
        tr.MR(inverse=True, aggregation="geometric"),
        tr.MR(adjusted="index"),
        tr.MR(adjusted="ratio"),
        tr.MR(filtered=True, average="positive"),
        tr.MRR(filtered=True, average="positive"),
    ],
    ids=lambda metric: metric.label,
)
def test_error_of_transformed_and_weighted_means_is_near_that_of_the_jackknife(metric):
    metric, (scores, grades) = metric.clone(), batch(queries=150)
    metric.update(scores, grades)
    low, high = metric.interval()
    assert (low + high) / 2 == pytest.approx(float(metric.compute()), rel=1e-6)
    alone = tr.Sliced(metric, len(scores))  # the sums of each query
    alone.update(scores, grades, slices=torch.arange(len(scores)))
    one = alone.parts(alone.sums)[1:]
    one = one[one[:, Sum.QUERIES] > one[:, Sum.EMPTY]]
    left_out = metric.value_of(metric.sums - one).tolist()  # leave one query out
    error = math.sqrt((len(left_out) - 1) * fmean((x - fmean(left_out)) ** 2 for x in left_out))
    assert float(metric.standard_error) == pytest.approx(error, rel=0.03)


# ---- no interval -----------------------------------------------------------------------------------------------------


@cases("values", [[], [0.4], [1.0], [0.3] * 50, [7.0, 7.0]])
@cases("how", ["mean", "geometric", "harmonic", "median", "midpoint", "p25", "callable"])
def test_too_few_or_equal_values_have_no_interval(values, how):
    metric = with_values(values, aggregation=spread if how == "callable" else how)
    assert is_nan(metric.interval())
    weights = torch.rand(len(values), generator=rng(), dtype=torch.float64)
    assert is_nan(with_values(values, weights, pieces=3, aggregation=metric.aggregation).interval())


def spread(values):
    return values.quantile(0.9)


@pytest.mark.parametrize("how", ["none", "min", "max"])
def test_aggregates_without_a_sampling_theory_have_no_interval(how):
    assert is_nan(with_values(torch.rand(30, generator=rng()), aggregation=how).interval())


def test_measures_that_are_no_mean_have_no_interval_but_a_row():
    lists = torch.randint(0, 9, (20, 3), generator=rng())
    lists = torch.stack([lists[:, 0], 9 + lists[:, 1], 18 + lists[:, 2]], -1)
    coverage, novelty = tr.Coverage(num_items=30), tr.Novelty(interactions=torch.arange(1, 31), num_users=40)
    suite = tr.RankingCollection({"coverage": coverage, "novelty": novelty})
    suite.update(lists)
    assert is_nan(suite.intervals()["coverage"])
    want = stats.ttest_1samp(novelty.score(lists).numpy(), 0).confidence_interval()
    same(suite.intervals()["novelty"], want)
    assert suite.summary().rows[0]["value"] == pytest.approx(float(suite["coverage"].compute()))
    assert math.isnan(suite.summary().rows[0]["standard error"])


# ---- other aggregates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_interval_of_a_median_has_the_ranks_of_binomial_quantiles(level):
    for n in (2, 5, 6, 7, 8, 9, 20, 31, 100, 257):
        values = torch.rand(n, generator=rng(n), dtype=torch.float64)
        ordered = values.sort().values.tolist()
        # The largest r for which the r-th smallest value is above the median with a probability of (1 - level) / 2.
        ranks = [r for r in range(1, n) if stats.binom.cdf(r - 1, n, 0.5) <= (1 - level) / 2]
        r = max(ranks, default=0)
        want = [(ordered[at - 1], ordered[n - at]) for at in (r - 1, r) if at > 0]  # one rank wider is conservative
        got = with_values(values, pieces=2, aggregation="median").interval(level)
        # At 0.99 the normal distribution asks for more values than the binomial one.
        assert got in want or (is_nan(got) and r < 1 + (level > 0.95)), (n, got, want)


@pytest.mark.parametrize("level", LEVELS)
def test_interval_of_a_percentile_covers_it_by_the_binomial_distribution(level):
    for percent, n in itertools.product((1, 25, 95), (5, 20, 257, 1000)):
        values = torch.randperm(n, generator=rng(n)).double() + 1  # so that a value is its place in the order
        low, high = with_values(values, pieces=2, aggregation=f"p{percent}").interval(level)
        if math.isnan(low):
            assert n * min(percent, 100 - percent) / 100 < 8  # too few values are beyond the percentile
            continue
        below = stats.binom(n, percent / 100)
        covered = below.cdf(high - 1) - below.cdf(low - 1)
        narrower = below.cdf(high - 2) - below.cdf(low)
        assert narrower < level + 0.01, (percent, n)
        assert covered > level - 0.01, (percent, n)


def test_interval_of_a_weighted_median_is_that_of_repeated_values():
    values = torch.rand(50, generator=rng(), dtype=torch.float64)
    plain = with_values(values, aggregation="median").interval()
    same(with_values(values, [3.0] * 50, aggregation="median").interval(), plain)
    heavy = torch.where(torch.arange(50) < 25, 1.0, 0.0)
    half = with_values(values[:25], aggregation="midpoint")
    same(with_values(values, heavy, aggregation="midpoint").interval(), half.interval())


def test_interval_of_one_over_a_median_is_one_over_that_of_the_median():
    scores, grades = batch(queries=100)
    plain, inverse = (tr.MR(aggregation="median", inverse=inverse) for inverse in (False, True))
    for metric in (plain, inverse):
        metric.update(scores, grades)
    low, high = inverse.interval()
    same((1 / high, 1 / low), plain.interval())
    assert low <= float(inverse.compute()) <= high


def test_interval_of_a_function_is_near_that_of_a_bootstrap_in_scipy():
    values = torch.rand(200, generator=rng(), dtype=torch.float64) ** 2
    metric = with_values(values, aggregation=spread)
    boot = {"n_resamples": 1000, "method": "percentile", "rng": 0}
    want = stats.bootstrap((values.numpy(),), lambda x, axis: np.quantile(x, 0.9, axis=axis), **boot)
    want = want.confidence_interval
    same(metric.interval(), want, 0.03)
    assert metric.interval() == metric.interval()


# ---- arguments, bad values, suites -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, math.nan, "0.9", None, True])
def test_unknown_level_is_an_error(level):
    metric = with_values([1, 2])
    for ask in (metric.interval, tr.RankingCollection([metric]).intervals, tr.RankingCollection([metric]).summary):
        with pytest.raises(ValueError, match="Expected level to be a number between 0 and 1"):
            ask(level)


def test_interval_leaves_the_metric_as_it_is_and_can_be_asked_in_a_sync_context():
    metric = with_values(torch.rand(20, generator=rng()), aggregation="median")
    before = metric.interval(), float(metric.compute()), metric.num_queries
    with metric.sync_context():
        assert metric.interval() == before[0]
    assert (metric.interval(), float(metric.compute()), metric.num_queries) == before
    metric.update(torch.zeros(1, 1), torch.full((1, 1), 5.0, dtype=torch.float64))
    assert metric.num_queries == before[2] + 1


@pytest.mark.parametrize(("weights", "effective"), [([2.0] * 4, None), ([1.0, 1, 1, 3], 3.0), ([0.0, 1, 1, 1], None)])
def test_effective_number_is_shown_if_weights_differ(weights, effective):
    suite = tr.RankingCollection(["mrr"])
    suite.update(*batch(queries=4), weights=torch.tensor(weights))
    table = suite.summary()
    assert ("effective" in table.columns) == (effective is not None)
    assert effective is None or table["effective"] == pytest.approx([effective])


def test_one_query_has_no_standard_error_whatever_its_value():
    alone = tr.Sliced("mrr", 200)
    alone.update(tr.Ranking.from_ranks(torch.arange(1, 201), num_candidates=200), slices=torch.arange(200))
    metric = tr.MRR()
    for rank, one in enumerate(alone.parts(alone.sums)[1:], 1):
        assert math.isnan(metric.error_of(one)), rank
        assert is_nan(estimate(metric, one).interval), rank
    for rank in (1, 3, 49, 200):
        metric.reset()
        metric.update(tr.Ranking.from_ranks(torch.tensor([rank]), num_candidates=200))
        assert math.isnan(metric.standard_error)
        assert is_nan(metric.interval())
