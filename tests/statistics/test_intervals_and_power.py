import math
from functools import partial

import numpy as np
import pytest

from tests.support.optional import stats
from tests.support.system_values import named
from torchrank.statistics.comparison import compare
from torchrank.statistics.intervals import detectable, queries_needed, t_interval, wilson
from torchrank.statistics.paired import PairStatistics


def test_t_intervals_are_those_of_scipy_and_never_have_width_0():
    assert t_interval(0.4, 0.02, 30, 0.9) == pytest.approx(stats.t.interval(0.9, 30, 0.4, 0.02))


@pytest.mark.parametrize(("error", "df"), [(0.0, 30), (0.1, 0), (math.nan, 0)])
def test_without_a_spread_or_degrees_of_freedom_nothing_is_known(error, df):
    pair = PairStatistics("mrr", "a", "b", 3, 0.1, 0.2, error, df, wins=3)
    assert all(map(math.isnan, (*t_interval(0.4, error, df), detectable(error, df), pair.p, pair.better)))


@pytest.mark.parametrize(("successes", "n"), [(0, 12), (3, 12), (12, 12), (480, 500)])
def test_wilson_is_that_of_scipy(successes, n):
    reference = stats.binomtest(successes, n).proportion_ci(0.9, method="wilson")
    assert wilson(successes / n, n, 0.9) == pytest.approx((reference.low, reference.high), abs=1e-12)


def test_wilson_of_one_value_is_missing_and_takes_an_effective_number():
    assert all(math.isnan(end) for end in wilson(1.0, 1))
    assert wilson(0.5, 20.5)[0] > wilson(0.5, 20)[0]


@pytest.mark.parametrize(("effect", "needed"), [(0.1, 787), (0.3, 90), (0.5, 34), (1.0, 10)])
def test_queries_needed_are_those_of_the_exact_power(effect, needed):
    assert queries_needed(effect, 1.0) == queries_needed(-0.01 * effect, 0.01) == needed

    def power(n):
        limit, shift = stats.t.ppf(0.975, n - 1), effect * math.sqrt(n)
        return stats.nct.sf(limit, n - 1, shift) + stats.nct.cdf(-limit, n - 1, shift)

    assert power(needed) >= 0.8 > power(needed - 2)


@pytest.mark.xdist_group("statsmodels")  # imported once
def test_queries_needed_are_near_those_of_statsmodels():
    power = pytest.importorskip("statsmodels.stats.power")
    exact = power.TTestPower().solve_power(0.3, power=0.8, alpha=0.05)
    assert exact == pytest.approx(89.15, abs=0.01)
    assert queries_needed(0.3, 1.0) == math.ceil(exact)


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0.0, 1.0), "delta to be a difference other than 0"), ((0.1, 0.0), "sd to be positive"), ((0.1, 1, 80), "power")],
)
def test_impossible_questions_of_power_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        queries_needed(*arguments)


def test_two_queries_have_a_detectable_difference():
    assert detectable(0.1, 1) == pytest.approx(0.1 * (stats.t.ppf(0.975, 1) + stats.t.ppf(0.8, 1)))


def test_at_least_two_queries_are_needed():
    assert queries_needed(100.0, 1.0, alpha=0.9) == 2


@pytest.mark.parametrize("name", ["power", "alpha"])
def test_power_and_error_rate_of_a_question_are_shares(name):
    for ask in (partial(detectable, 0.1, 39), partial(queries_needed, 0.1, 1.0)):
        with pytest.raises(ValueError, match=f"Expected {name} to be between 0 and 1, got 1.5"):
            ask(**{name: 1.5})
