"""Confidence sequences: their boundary by numeric integration, simulated looks, and bets in plain Python."""

import math
from statistics import NormalDist, fmean

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support import looks
from tests.support.cases import cases
from tests.support.optional import stats
from tests.support.random_batches import with_values
from torchrank.statistics.intervals import BETS, EFFECT, anytime_level, anytime_p, betting_interval, wilson
from torchrank.statistics.paired import PairStatistics


def mixture(z, n, positive=False):
    """The mean of exp(effect S - effect^2 n / 2), S = z sqrt(n), over normal effects, integrated."""
    grid = np.linspace(0 if positive else -10 * EFFECT, 10 * EFFECT, 20_001)
    density = np.exp(-((grid / EFFECT) ** 2) / 2) / EFFECT / math.sqrt(2 * math.pi) * (2 if positive else 1)
    values = density * np.exp(grid * z * math.sqrt(n) - grid**2 * n / 2)
    return float((values[1:] + values[:-1]).sum() / 2 * (grid[1] - grid[0]))


# ---- the boundary ----------------------------------------------------------------------------------------------------


@cases("n", [0.5, 1, 3, 5, 40, 205, 3000])
@cases("level", [0.8, 0.95, 0.99])
def test_the_martingale_is_1_over_the_error_rate_at_the_ends_of_an_interval(n, level):
    reached = anytime_level(level, n)
    assert level < reached < 1
    if (z := NormalDist().inv_cdf(0.5 + reached / 2)) < 6:  # beyond, a level next to 1 has few digits
        assert mixture(z, n) == pytest.approx(1 / (1 - level), rel=1e-4)
    else:
        assert n < 7


@cases("n", [5, 205, 3000])
@cases("z", [-2.0, 0.3, 1.5, 3.0, 4.5])
def test_p_values_are_1_over_the_martingale(n, z):
    assert anytime_p(stats.norm.sf(z), n, sides=1) == pytest.approx(min(1, 1 / mixture(z, n, positive=True)), rel=1e-5)
    assert anytime_p(2 * stats.norm.sf(abs(z)), n) == pytest.approx(min(1, 1 / mixture(z, n)), rel=1e-5)


def test_a_difference_is_found_exactly_where_the_interval_leaves_out_0():
    pair = PairStatistics("mrr", "a", "b", 80, 0.3, 0.3, 0.01, 79.0, wins=9).anytime()
    low, high = pair.interval(0.95)
    at_the_end = PairStatistics("mrr", "a", "b", 80, 0.3, 0.3 + (high - low) / 2, 0.01, 79.0, wins=9).anytime()
    assert at_the_end.p == pytest.approx(0.05, rel=1e-6)
    assert 0.02 < at_the_end.p_above(at_the_end.difference) < 0.0255  # one side: half, and a little more


# ---- looks, simulated ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", looks.DIFFERENCES)
def test_100_looks_raise_at_most_the_level_of_false_alarms_where_a_t_test_raises_a_third(name):
    differences = looks.DIFFERENCES[name](np.random.default_rng(1), (1000, 2000))
    t_test, anytime = looks.alarms(differences)
    assert 0.28 < t_test < 0.45
    assert anytime <= (0.065 if name == "exponential" else 0.05)  # of 1,000 runs; skewed ones are at the level


@pytest.mark.parametrize("p", [0.02, 0.5])
def test_all_looks_at_a_hit_rate_contain_it(p):
    hits = (np.random.default_rng(3).random((1000, 1000)) < p).cumsum(axis=1)[:, 9::10]
    reach = {}
    for n, column in zip(range(10, 1001, 10), hits.T):
        ends = {k: wilson(k / n, n, anytime_level(0.95, n)) for k in set(column.tolist())}
        reach[n] = [ends[k][0] <= p <= ends[k][1] for k in column.tolist()]
    assert np.array([*reach.values()]).all(axis=0).mean() >= 0.94


@pytest.mark.parametrize(("effect", "most"), [(0.1, 1200), (0.2, 320), (0.5, 90)])
def test_a_better_system_is_found_after_a_part_of_5000_queries(effect, most):
    right, wrong, queries = looks.verdicts(effect, runs=100)
    assert (right, wrong) == (1, 0)
    assert queries < most


def test_bets_keep_the_level_where_rare_large_differences_mislead_sums():
    differences = looks.rare(np.random.default_rng(8), (200, 300))
    assert looks.lost_bets((1 + differences) / 2, 0.5) <= 0.05
    assert looks.alarms(differences)[1] > 0.5  # as the page says


# ---- metrics and collections -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5, 3.0] * 25])
def test_a_confidence_sequence_is_mean_and_standard_error_with_the_boundary(weights):
    values = np.random.default_rng(5).uniform(0, 3, 100)
    metric = with_values(values, weights)
    w = np.ones(100) if weights is None else np.array(weights)
    mean = (w * values).sum() / w.sum()
    error = math.sqrt((w**2 * (values - mean) ** 2).sum() * 100 / 99) / w.sum()
    n = w.sum() ** 2 / (w**2).sum()
    u = n / 25
    z = math.sqrt((1 + u) / u * (math.log(1 + u) + 2 * math.log(20)))
    half = -stats.t.ppf(stats.norm.sf(z), 99) * error
    assert metric.confidence_sequence() == pytest.approx((mean - half, mean + half), rel=1e-6)
    assert metric.confidence_sequence(0.8).high < metric.confidence_sequence(0.99).high


def test_hits_have_the_form_of_wilson_and_medians_order_statistics():
    hits = tr.HitRate(top_k=1)
    hits.update(torch.eye(2).repeat(100, 1), torch.tensor([0] * 200))
    assert hits.confidence_sequence() == pytest.approx(wilson(0.5, 200, anytime_level(0.95, 200)))
    values = np.random.default_rng(6).permutation(401) / 400.0
    median = with_values(values, aggregation="median")
    assert median.confidence_sequence() == pytest.approx(median.interval(anytime_level(0.95, 401)))
    called = with_values(values, aggregation=torch.std)
    assert math.isnan(called.confidence_sequence().low)


def test_a_summary_for_looks_says_so_and_warns_of_few_queries():
    suite = tr.RankingCollection(["mrr", "hitrate@1"])
    scores = torch.rand(60, 10, generator=torch.Generator().manual_seed(0))
    suite.update(scores[:12], torch.zeros(12, dtype=torch.int64))
    table = suite.summary(anytime=True)
    assert table.notes[0] == "low and high: 95 % confidence sequence"
    assert "fewer than 20 queries" in table.notes[-1]
    suite.update(scores[12:], torch.zeros(48, dtype=torch.int64))
    table = suite.summary(0.9, anytime=True)
    assert not any("fewer" in note for note in table.notes)
    sequences = suite.confidence_sequences(0.9)
    assert dict(zip(table["measure"], zip(table["low"], table["high"]))) == sequences
    assert sequences["mrr"] == suite["mrr"].confidence_sequence(0.9) == suite.intervals(0.9, "anytime")["mrr"]
    assert all(a.low < b.low < b.high < a.high for a, b in zip(sequences.values(), suite.intervals(0.9).values()))


# ---- comparisons -----------------------------------------------------------------------------------------------------


def systems(queries=120, better=0.1, seed=0):
    draw = np.random.default_rng(seed)
    old = draw.uniform(0, 0.8, queries)
    return {"old": old, "new": old + draw.normal(better, 0.2, queries)}


def test_clusters_count_as_the_queries_of_an_anytime_test():
    values, clusters = systems(), np.arange(120) // 10
    row = tr.compare(values, test="anytime", clusters=clusters).rows[0]
    assert row.pair.looks == 12
    t = tr.compare(values, clusters=clusters).rows[0]
    assert row.pair.p == anytime_p(t.pair.p, 12)


def test_a_comparison_is_decided_by_a_winner_in_all_rows_or_by_equivalence():
    assert tr.compare(systems(), test="anytime").decided
    equal = systems(400, better=0.0)
    assert not tr.compare(equal, test="anytime").decided
    assert tr.compare(equal, test="anytime", margin=0.1).decided
    assert not tr.compare({**systems(), "same": systems()["old"]}, test="anytime").decided


# ---- bets ------------------------------------------------------------------------------------------------------------


def wealth(values, m):
    """The larger wealth of those who bet that the mean is above m, and below m."""
    above = fmean(math.prod(1 - c + c * x / m for x in values) for c in BETS.tolist())
    below = fmean(math.prod(1 - c + c * (1 - x) / (1 - m) for x in values) for c in BETS.tolist())
    return max(above, below)


@pytest.mark.parametrize("values", [[0.1, 0.9, 0.5, 0.4, 0.2], [0.0] * 30 + [1.0], [1.0] * 12, [0.5] * 40])
def test_the_ends_of_a_betting_interval_are_where_the_wealth_is_2_over_the_error_rate(values):
    low, high = betting_interval(np.array(values), 0.9)
    assert low <= fmean(values) <= high
    for end in {low, high} - {0.0, 1.0}:
        assert wealth(values, end) == pytest.approx(20, rel=1e-6)
    assert betting_interval(np.array(values[::-1]), 0.9) == pytest.approx((low, high), abs=1e-11)  # in any order
    moved = betting_interval(2 + 3 * np.array(values), 0.9, 2.0, 5.0)
    assert moved == pytest.approx((2 + 3 * low, 2 + 3 * high), abs=1e-9)


def test_equal_losses_on_all_queries_have_the_p_value_of_bets_on_every_probability():
    for n in (2, 5, 12):
        pair = PairStatistics("mrr", "a", "b", n, 0.3, 0.2, 0.0, n - 1.0, losses=n)
        wealth = np.mean([(2 * p) ** n for p in (np.arange(10_000) + 0.5) / 10_000])  # bets on each probability alike
        assert pair.p_constant == 0.5**n
        assert pair.anytime().p_constant == pytest.approx(1 / wealth, rel=1e-5)


def test_differences_around_zero_have_no_anytime_evidence_and_others_that_of_their_mean():
    level, around = [0.5] * 30, [0.1, -0.1, 0.2, -0.2, 0.3, -0.3] * 5
    for shift in (0.0, 0.3):
        other = [value + difference + shift for value, difference in zip(level, around)]
        (row,) = tr.compare({"a": level, "b": other}, test="anytime").rows
        assert row.p == pytest.approx(anytime_p(stats.ttest_rel(other, level).pvalue, 30), rel=1e-6)
        assert (row.p == 1) == (shift == 0)
