"""The normal and Student's t distribution, intervals, and how many queries a difference needs."""

import math
from functools import partial

import numpy as np
import pytest

from tests.support.cases import cases
from tests.support.optional import stats
from tests.support.system_values import named
from torchrank.statistics.comparison import compare
from torchrank.statistics.intervals import (
    detectable,
    normal_cdf,
    normal_quantile,
    queries_needed,
    t_cdf,
    t_interval,
    t_quantile,
    welch,
    wilson,
)
from torchrank.statistics.paired import PairStatistics

DF = [0.5, 1, 1.5, 2, 2.7, 3, 5, 9.3, 29, 59.9, 60.1, 100, 1234.5, 1e4, 1e5, 1e6, 1e7]
PROBABILITIES = [1e-10, 1e-7, 1e-4, 0.01, 0.025, 0.1, 0.2499, 0.2501, 0.4, 0.49, 0.6, 0.9, 0.975, 1 - 1e-7, 1 - 1e-10]


@cases("df", DF)
def test_quantiles_and_probabilities_of_t_are_those_of_scipy_to_ten_digits(df):
    for p in PROBABILITIES:
        x = float(stats.t.ppf(p, df))
        assert t_quantile(p, df) == pytest.approx(x, rel=1e-10, abs=0)
        assert t_cdf(x, df) == pytest.approx(stats.t.cdf(x, df), rel=1e-10, abs=0)


@cases("df", [1, 2.5, 30, 1e7])
def test_near_the_median_the_quantile_follows_the_density(df):
    # scipy loses digits here, because it forms 1 - p: the density at 0 is the reference
    assert t_quantile(0.5 + 2**-30, df) == pytest.approx(2**-30 / stats.t.pdf(0, df), rel=1e-10)
    assert t_quantile(0.5, df) == 0
    assert t_cdf(0, df) == 0.5


@cases("df", [1, 3, 7.5, 200, 1e6])
def test_tails_are_those_of_scipy_to_twelve_digits(df):
    for x in (0.5, 1 - 1e-9, 1 + 1e-9, 2, 12, 35):
        assert t_cdf(-x, df) == pytest.approx(stats.t.sf(x, df), rel=1e-12, abs=1e-300)


def test_the_normal_distribution_is_that_of_scipy():
    for p in PROBABILITIES:
        assert normal_quantile(p) == pytest.approx(stats.norm.ppf(p), rel=1e-12)
        assert normal_cdf(float(stats.norm.ppf(p))) == pytest.approx(p, rel=1e-10)
    assert normal_cdf(-30) == pytest.approx(stats.norm.cdf(-30), rel=1e-12)


def test_ends_are_infinite_nan_stays_and_impossible_arguments_are_errors():
    assert (t_quantile(0.975, math.inf), t_cdf(1.3, math.inf)) == (normal_quantile(0.975), normal_cdf(1.3))
    assert (t_quantile(0, 4), t_quantile(1, 4)) == (-math.inf, math.inf)
    assert (t_cdf(-math.inf, 4), t_cdf(math.inf, 4)) == (0, 1)
    assert all(map(math.isnan, (t_quantile(math.nan, 4), t_cdf(1, math.nan), normal_quantile(math.nan))))
    with pytest.raises(ValueError, match=r"Expected a probability in \[0, 1\], got 1.5"):
        t_quantile(1.5, 3)
    with pytest.raises(ValueError, match="Expected degrees of freedom above 0, got 0"):
        t_cdf(1.0, 0)


def test_welch_and_wilson_are_those_of_scipy_and_have_edges():
    draw = np.random.default_rng(0)
    a, b = draw.normal(0, 1, 8), draw.normal(0, 3, 21)
    error, df = welch([(stats.sem(x) ** 2, len(x)) for x in (a, b)])
    test = stats.ttest_ind(a, b, equal_var=False)
    assert (a.mean() - b.mean()) / error == pytest.approx(test.statistic)
    assert df == pytest.approx(test.df)
    assert welch([(0.04, 1), (0.0, 5)]) == (pytest.approx(0.2), 1)
    for parts in ([(0.0, 5), (0.0, 5)], [(math.nan, 5), (0.1, 5)], []):
        assert all(map(math.isnan, welch(parts)))
    for hits, n in ((0, 2), (2, 2), (3, 20), (20, 20), (0, 9)):
        want = stats.binomtest(hits, n).proportion_ci(0.9, "wilson")
        assert wilson(hits / n, n, 0.9) == pytest.approx((want.low, want.high), abs=1e-12)
    assert wilson(0, 9)[0] == 0 == 1 - wilson(1, 9)[1]
    for p, n in ((0.5, 1), (0.5, 1.9), (-0.1, 9), (1.1, 9), (math.nan, 9), (0.5, math.nan)):
        assert all(map(math.isnan, wilson(p, n)))
    assert not math.isnan(wilson(0.5, 2 - 1e-12)[0])


def test_t_intervals_are_those_of_scipy_and_never_have_width_0():
    assert t_interval(0.4, 0.02, 30, 0.9) == pytest.approx(stats.t.interval(0.9, 30, 0.4, 0.02))


@cases(("error", "df"), [(0.0, 30), (0.1, 0), (math.nan, 0)])
def test_without_a_spread_or_degrees_of_freedom_nothing_is_known(error, df):
    pair = PairStatistics("mrr", "a", "b", 3, 0.1, 0.2, error, df, wins=3)
    assert all(map(math.isnan, (*t_interval(0.4, error, df), detectable(error, df), pair.p, pair.better)))


@cases(("effect", "needed"), [(0.1, 787), (0.3, 90), (0.5, 34), (1.0, 10)])
def test_queries_needed_are_those_of_the_exact_power(effect, needed):
    assert queries_needed(effect, 1.0) == queries_needed(-0.01 * effect, 0.01) == needed

    def power(n):
        limit, shift = stats.t.ppf(0.975, n - 1), effect * math.sqrt(n)
        return stats.nct.sf(limit, n - 1, shift) + stats.nct.cdf(-limit, n - 1, shift)

    assert power(needed) >= 0.8 > power(needed - 2)


@pytest.mark.xdist_group("statsmodels")  # imported once
def test_queries_needed_are_near_those_of_statsmodels():
    power = pytest.importorskip("statsmodels.stats.power")
    assert queries_needed(0.3, 1.0) == math.ceil(power.TTestPower().solve_power(0.3, power=0.8, alpha=0.05))


def test_the_detectable_difference_is_found_with_the_given_power():
    smallest = detectable(0.1 / math.sqrt(40), 39)
    rng = np.random.default_rng(6)
    found = stats.ttest_1samp(rng.normal(smallest, 0.1, (600, 40)), 0, axis=1).pvalue <= 0.05
    assert 0.74 <= np.mean(found) <= 0.86


def test_a_comparison_has_the_detectable_difference_and_the_queries_needed_of_each_pair():
    compared = compare(named(60, 3), power=0.9)
    assert compared.table["detectable"] == compared.detectable(power=0.9)["detectable"]
    needed = compared.queries_needed(0.01)
    assert needed["queries"] == [queries_needed(0.01, sd) for sd in compared.table["sd"]]
    alike = compare({"a": [0.1, 0.2], "b": [0.1, 0.2]})
    cancelled = compare({"a": [0.5] * 4, "b": [0.25, 0.75, 0.75, 0.25]}, clusters=[0, 0, 1, 1])
    for without, spread in ((alike, "nan"), (cancelled, "0.0")):
        table = without.queries_needed(0.01)
        assert (table["queries"], repr(table["sd"])) == ([None], f"[{spread}]")
    assert cancelled.rows[0].pair.sd > 0


def test_two_queries_are_needed_and_have_a_detectable_difference():
    assert detectable(0.1, 1) == pytest.approx(0.1 * (stats.t.ppf(0.975, 1) + stats.t.ppf(0.8, 1)))
    assert queries_needed(100.0, 1.0, alpha=0.9) == 2


@cases("name", ["power", "alpha"])
def test_power_and_error_rate_of_a_question_are_shares(name):
    for ask in (partial(detectable, 0.1, 39), partial(queries_needed, 0.1, 1.0)):
        with pytest.raises(ValueError, match=f"Expected {name} to be between 0 and 1, got 1.5"):
            ask(**{name: 1.5})
