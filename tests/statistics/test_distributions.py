import math

import pytest

from tests.support.cases import cases
from tests.support.optional import stats
from torchrank.statistics.intervals import normal_cdf, normal_quantile, t_cdf, t_quantile

DF = [1, 1.5, 2, 2.7, 3, 5, 9.3, 29, 59.9, 60.1, 100, 1234.5, 1e4, 1e5, 1e6, 1e7]
PROBABILITIES = [1e-10, 1e-7, 1e-4, 0.01, 0.025, 0.1, 0.2499, 0.2501, 0.4, 0.49, 0.6, 0.9, 0.975, 1 - 1e-7, 1 - 1e-10]


@cases("df", DF)
def test_quantiles_of_t_are_those_of_scipy_to_ten_digits(df):
    for p in PROBABILITIES:
        assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-10, abs=0)


@cases("df", DF)
def test_probabilities_of_t_are_those_of_scipy_to_ten_digits(df):
    for p in PROBABILITIES:
        x = float(stats.t.ppf(p, df))
        assert t_cdf(x, df) == pytest.approx(stats.t.cdf(x, df), rel=1e-10, abs=0)


@pytest.mark.parametrize("df", [1, 2.5, 30, 1e7])
def test_near_the_median_the_quantile_follows_the_density(df):
    # scipy loses digits here, because it forms 1 - p: the density at 0 is the reference
    assert t_quantile(0.5 + 2**-30, df) == pytest.approx(2**-30 / stats.t.pdf(0, df), rel=1e-10)
    assert t_quantile(0.5, df) == 0
    assert t_cdf(0, df) == 0.5


@pytest.mark.parametrize("df", [1, 3, 7.5, 200, 1e6])
def test_tails_are_those_of_scipy_to_twelve_digits(df):
    for x in (0.5, 1 - 1e-9, 1 + 1e-9, 2, 12, 35):
        assert t_cdf(-x, df) == pytest.approx(stats.t.sf(x, df), rel=1e-12, abs=1e-300)


def test_the_normal_distribution_is_that_of_scipy():
    for p in PROBABILITIES:
        assert normal_quantile(p) == pytest.approx(stats.norm.ppf(p), rel=1e-12)
        assert normal_cdf(float(stats.norm.ppf(p))) == pytest.approx(p, rel=1e-10)
    assert normal_cdf(-30) == pytest.approx(stats.norm.cdf(-30), rel=1e-12)


def test_infinite_degrees_of_freedom_are_the_normal_distribution():
    assert t_quantile(0.975, math.inf) == normal_quantile(0.975)
    assert t_cdf(1.3, math.inf) == normal_cdf(1.3)


def test_ends_are_infinite_and_nan_stays():
    assert t_quantile(0, 4) == -math.inf
    assert t_quantile(1, 4) == math.inf
    assert t_cdf(math.inf, 4) == 1
    assert t_cdf(-math.inf, 4) == 0
    assert math.isnan(t_quantile(math.nan, 4))
    assert math.isnan(t_cdf(1, math.nan))
    assert math.isnan(normal_quantile(math.nan))


def test_impossible_arguments_are_errors():
    with pytest.raises(ValueError, match=r"Expected a probability in \[0, 1\], got 1.5"):
        t_quantile(1.5, 3)
    with pytest.raises(ValueError, match="Expected degrees of freedom above 0, got 0"):
        t_cdf(1.0, 0)
