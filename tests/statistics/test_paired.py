"""Tests of pairs and families of systems, beside scipy, statsmodels and enumerations."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tests.support.cases import cases
from tests.support.optional import by_scipy, stats
from torchrank.statistics.paired import Drawing, correct, family_p, paired_p, paired_statistics, statistics_of_runs


def differences(n=40, mean=0.03, seed=0):
    return np.random.default_rng(seed).normal(mean, 0.1, n)


def crossed(queries, systems, shift=0.0, seed=0):
    # values of which most variance is between queries; the last system is better by `shift`
    rng = np.random.default_rng(seed)
    values = rng.normal(0.5, 0.25, (queries, 1)) + rng.normal(0, 0.1, (queries, systems))
    values[:, -1] += shift
    return values


@pytest.mark.parametrize("zeros", ["pratt", "zsplit"])
@pytest.mark.needs("scipy")
def test_wilcoxon_keeps_zeros_as_scipy_does_when_asked(zeros):
    d = np.concatenate([np.zeros(950), differences(50, 0.04)])
    p = paired_p(d, "wilcoxon", Drawing(zeros=zeros))
    assert p == stats.wilcoxon(d, zero_method=zeros).pvalue
    assert p > 3 * stats.wilcoxon(d).pvalue


@pytest.mark.needs("scipy")
def test_sign_is_the_binomial_test_of_wins_among_differences():
    d = np.concatenate([np.zeros(7), differences()])
    wins, losses = (d > 0).sum(), (d < 0).sum()
    assert paired_p(d, "sign") == stats.binomtest(wins, wins + losses).pvalue


@cases("n", [2, 5, 11])
def test_randomization_of_few_queries_is_exact(n):
    d = differences(n, 0.08, seed=n)
    exact = stats.permutation_test(
        (d, np.zeros(n)), lambda x, y, axis: (x - y).mean(axis), permutation_type="samples", vectorized=True
    )
    assert paired_p(d, "randomization", Drawing(replicates=3)) == pytest.approx(exact.pvalue)


def test_zeros_do_not_make_randomization_inexact():
    d = np.concatenate([differences(9, 0.08), np.zeros(100)])
    assert paired_p(d, "randomization", Drawing(replicates=3)) == paired_p(d[:9], "randomization")


@cases("n", [8, 30])
def test_rounding_of_sums_does_not_break_their_ties(n):
    # sums of whole numbers are exact, sums of their tenths are not
    for seed in range(20):
        whole = np.random.default_rng(seed).integers(-2, 4, n).astype(np.float64)
        drawing = Drawing(replicates=500)
        assert paired_p(whole / 10, "randomization", drawing) == paired_p(whole, "randomization", drawing)


def test_rounding_of_means_does_not_break_their_ties():
    for seed in range(20):
        whole = np.random.default_rng(seed).integers(0, 3, (8, 3)).astype(np.float64)
        one, other = (family_p(x, "randomized-tukey", Drawing(replicates=200)) for x in (whole, whole / 10))
        assert (one == other).all()


def test_random_signs_agree_with_the_enumeration_of_all():
    d = differences(20, 0.05, seed=3)
    signs = 1 - 2 * (np.arange(2**10)[:, None] >> np.arange(10) & 1)
    sums = (signs @ d[:10])[:, None] + signs @ d[10:]
    exact = (np.abs(sums) >= abs(d.sum()) - 1e-12).mean()
    assert 0.001 < exact < 0.5
    assert paired_p(d, "randomization", Drawing(40_000)) == pytest.approx(exact, abs=0.01)


@cases("test", ["randomization", "bootstrap"])
def test_a_monte_carlo_p_is_never_0_and_at_least_one_of_its_replicates(test):
    clear = differences(200, 2.0)
    assert paired_p(clear, test, Drawing(replicates=99)) == 1 / 100
    p = family_p(crossed(60, 3, 5.0), "randomized-tukey", Drawing(replicates=99))
    assert p[0, 2] == 1 / 100


def test_signs_of_up_to_14_differences_are_enumerated_and_those_of_more_are_drawn():
    for n, p in ((14, 2 / 2**14), (15, 1 / 4)):
        assert paired_p(np.linspace(0.1, 0.2, n), "randomization", Drawing(3)) == p


def test_replicates_with_the_observed_t_statistic_are_extreme():
    differences = [Fraction(x) for x in (0, 0, 1)]

    def squares(x):  # of the mean and of the spread, both times a constant
        return sum(x) ** 2, sum((one - sum(x) / 3) ** 2 for one in x)

    mean, spread = squares(differences)
    drawn = [squares(x) for x in itertools.product([x - Fraction(1, 3) for x in differences], repeat=3)]
    share = sum(m * spread >= mean * s for m, s in drawn) / len(drawn)
    assert share > sum(m * spread > mean * s for m, s in drawn) / len(drawn) + 0.2
    for scale in (1, 0.1, 0.7):
        p = paired_p(scale * np.array([0, 0, 1]), "bootstrap", Drawing(20_000))
        assert p == pytest.approx(share, abs=0.02)


@cases("test", ["randomization", "bootstrap"])
def test_the_seed_gives_the_same_p_and_another_seed_another(test):
    found = [paired_p(differences(), test, Drawing(999, seed)) for seed in (5, 5, 6)]
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0] == pytest.approx(found[2], abs=0.05)


def test_chunks_of_the_drawing_cover_all_replicates(monkeypatch):
    monkeypatch.setattr("torchrank.statistics.paired._CHUNK", 1000)
    assert sum(count for _, count in Drawing(777).chunks(40)) == 777
    assert paired_p(differences(200, 2.0), "randomization", Drawing(777)) == 1 / 778
    assert [count for _, count in Drawing(3).chunks(2000)] == [1, 1, 1]  # one replicate is always drawn


@pytest.mark.needs("scipy")
def test_tests_of_a_mean_have_no_verdict_on_a_difference_without_spread():
    constant = np.full(30, 0.25)
    assert math.isnan(paired_p(constant, "t"))
    assert math.isnan(paired_p(constant, "bootstrap"))
    assert np.isnan(family_p(np.stack([np.linspace(0, 1, 30), np.linspace(0, 1, 30) + 0.25], 1), "tukey")[0, 1])
    assert paired_p(constant, "sign") == pytest.approx(2 / 2**30)


def test_tukey_of_two_systems_is_the_paired_t_test():
    values = crossed(25, 2, 0.05)
    paired = stats.ttest_rel(values[:, 1], values[:, 0]).pvalue
    assert family_p(values, "tukey")[0, 1] == pytest.approx(paired, rel=1e-6)


@pytest.mark.needs("scipy")
def test_tukey_is_the_studentized_range_of_a_two_way_layout():
    # the residual variance from the least squares fit of systems and queries as factors
    values = crossed(12, 4, 0.1)
    n, k = values.shape
    queries, systems = (index.reshape(-1) for index in np.indices(values.shape))
    design = np.concatenate([np.eye(n)[queries], np.eye(k)[systems]], axis=1)
    fitted = design @ np.linalg.lstsq(design, values.reshape(-1), rcond=None)[0]
    df = n * k - np.linalg.matrix_rank(design)
    error = math.sqrt(((values.reshape(-1) - fitted) ** 2).sum() / df / n)
    p = family_p(values, "tukey")
    for i, j in ((0, 3), (1, 2)):
        q = abs(values[:, i].mean() - values[:, j].mean()) / error
        assert p[i, j] == pytest.approx(stats.studentized_range.sf(q, k, df), rel=1e-9)


def test_randomized_tukey_of_few_values_is_the_share_of_all_orders():
    # two queries of two systems: the difference of means is 0.3 in 2 of 4 orders, 0.1 in the others
    values = np.array([[0.0, 0.4], [0.0, 0.2]])
    p = family_p(values, "randomized-tukey", Drawing(20_000))
    assert p[0, 1] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("test", by_scipy(["tukey", "randomized-tukey"]))
def test_false_alarms_in_a_family_of_systems_are_about_as_frequent_as_the_level_says(test):
    drawing = Drawing(replicates=199)
    runs = 30 if test == "tukey" else 200
    alarms = np.mean([family_p(crossed(15, 3, seed=seed), test, drawing).min() <= 0.2 for seed in range(runs)])
    assert 0.08 <= alarms <= 0.4 if test == "tukey" else 0.13 <= alarms <= 0.28


@pytest.mark.parametrize(
    ("correction", "method"), [("holm", "holm"), ("bh", "fdr_bh"), ("benjamini-hochberg", "fdr_bh")]
)
@pytest.mark.xdist_group("statsmodels")  # imported once
def test_corrections_are_those_of_statsmodels(correction, method, monkeypatch):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    monkeypatch.setattr("gc.collect", int)  # which it calls each time, half a second in the whole suite
    for seed in range(20):
        p = np.random.default_rng(seed).random(9) ** 3
        assert correct(p, correction) == pytest.approx(multitest.multipletests(p, method=method)[1])


def test_a_pair_without_a_test_is_not_counted_in_the_family():
    corrected = correct([0.02, math.nan, 0.01], "holm")
    assert corrected[0] == corrected[2] == pytest.approx(0.02)
    assert math.isnan(corrected[1])
    assert correct([], "bh") == []


def test_unknown_names_are_errors_with_the_nearest_known_one():
    with pytest.raises(ValueError, match="did you mean 'holm'"):
        correct([0.1], "hölm")
    with pytest.raises(ValueError, match="zeros to be one of 'pratt', 'zsplit', got 'wilcox'"):
        Drawing(zeros="wilcox")
    with pytest.raises(ValueError, match="replicates to be an integer >= 1"):
        Drawing(replicates=0)


def test_runs_without_a_spread_or_without_queries_have_no_degrees_of_their_own():
    runs = np.array([[0.5, 0.5, 0.5], [0.25, 0.25, 0.25]])
    pair = statistics_of_runs(runs, runs[:, :2] + 0.1)
    assert (pair.standard_error, pair.df) == (pytest.approx(0, abs=1e-12), 3)
    assert (pair.n, pair.difference, pair.wins, pair.losses) == (2, pytest.approx(0.1), 2, 0)
    nothing = statistics_of_runs(np.full((2, 3), math.nan), runs)
    assert (nothing.n, nothing.df) == (0, 0)
    assert math.isnan(nothing.difference)
    one = statistics_of_runs(runs, np.array([[math.nan, 1.0], [0.5, 0.75]]))
    assert (one.n, one.unpaired, one.mean_b) == (1, 1, 0.625)
    a, b = np.full((7, 2), 0.5), np.full((7, 3), 0.75)
    a[:2, 0] = b[2, 1] = a[5, 1] = b[5] = math.nan  # two queries, one, and one that no method has
    some = statistics_of_runs(a, b)
    assert (some.n, some.unpaired) == (3, 3)
    zero = statistics_of_runs(runs * 0, runs)
    assert math.isnan(zero.relative_standard_error)


def test_means_of_runs_that_differ_by_rounding_have_no_spread_even_beside_runs_of_zeros():
    nothing, some = np.zeros((3, 2)), np.full((3, 2), [0.3, 0.1 + 0.2])
    assert 0 < some.mean(axis=0).var(ddof=1) < 1e-32
    for a, b in ((nothing, some), (some, nothing)):
        assert statistics_of_runs(a, b).standard_error == 0
        pair = paired_statistics(a.mean(axis=0), b.mean(axis=0))
        assert (pair.standard_error, pair.sd) == (0, 0)
