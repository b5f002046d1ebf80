import math

import numpy as np
import pytest

from tests.support.optional import by_scipy, stats
from tests.support.system_values import named, only, values
from torchrank.statistics.comparison import compare, comparison_of
from torchrank.statistics.paired import FAMILY_TESTS, PAIR_TESTS, paired_statistics


def test_t_test_and_interval_are_those_of_scipy():
    a, b = values(systems=2).T
    row, reference = only({"a": a, "b": b}), stats.ttest_rel(b, a)
    interval = reference.confidence_interval(0.95)
    assert row["p"] == pytest.approx(reference.pvalue, rel=1e-9)
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert (row["mean_a"], row["mean_b"]) == pytest.approx((a.mean(), b.mean()))
    assert row["difference"] == pytest.approx((b - a).mean())
    assert row["sd"] == pytest.approx((b - a).std(ddof=1))


def test_level_widens_the_interval_and_follows_alpha():
    narrow, wide = only(named(systems=2), level=0.5), only(named(systems=2), alpha=0.01)
    reference = stats.ttest_rel(*values(systems=2).T[::-1]).confidence_interval(0.99)
    assert (wide["low"], wide["high"]) == pytest.approx((reference.low, reference.high))
    assert narrow["high"] - narrow["low"] < 0.3 * (wide["high"] - wide["low"])


def test_the_effect_is_d_z_with_hedges_correction():
    a, b = values(12, 2).T
    d = b - a
    gamma = math.gamma(11 / 2) / (math.sqrt(11 / 2) * math.gamma(10 / 2))  # the exact correction for 11 degrees
    assert only({"a": a, "b": b})["effect"] == pytest.approx(d.mean() / d.std(ddof=1) * gamma, rel=1e-3)


def test_the_relative_interval_is_near_that_of_the_bootstrap():
    a, b = values(400, 2).T
    row = only({"a": a, "b": b})
    drawn = np.random.default_rng(1).integers(0, 400, (4000, 400))
    replicates = b[drawn].mean(axis=1) / a[drawn].mean(axis=1) - 1
    assert row["relative"] == pytest.approx(b.mean() / a.mean() - 1)
    assert (row["relative_high"] - row["relative_low"]) / 2 / 1.96 == pytest.approx(replicates.std(), rel=0.06)


def test_the_relative_difference_to_a_mean_of_0_is_missing():
    row = only({"a": [0.0] * 30, "b": [0.1, 0.2, 0.3] * 10})
    assert all(math.isnan(row[name]) for name in ("relative", "relative_low", "relative_high"))


def test_the_probability_of_being_better_is_the_posterior_of_the_mean_without_a_correction_of_its_variance():
    a, b = values(80, 2, step=0.01).T
    d = b - a
    posterior = stats.t.sf(0, 79, loc=d.mean(), scale=d.std(ddof=1) / math.sqrt(80))
    cross_validated = stats.t.sf(0, 79, loc=d.mean(), scale=d.std(ddof=1) * math.sqrt(1 / 80 + 1 / 79))
    better = only({"a": a, "b": b})["better"]
    assert better == pytest.approx(posterior, rel=1e-9)
    assert abs(better - cross_validated) > 0.01


def test_wins_count_queries_on_which_b_is_better_and_rounding_is_a_tie():
    a = [0.1, 0.3, 0.5, 0.7]
    b = [0.2, 0.1 + 0.2, 0.4, 0.9]
    row = only({"a": a, "b": b})
    assert (row["wins"], row["ties"], row["losses"]) == (2, 1, 1)
    row = only({"a": a, "b": b}, higher_is_better=False)
    assert (row["wins"], row["ties"], row["losses"]) == (1, 1, 2)


@pytest.mark.xdist_group("statsmodels")  # imported once
def test_tests_of_equivalence_are_those_of_statsmodels_and_of_the_formula():
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    a, b = values(90, 2, step=0.004).T
    row = only({"a": a, "b": b}, margin=0.03)
    p, lower, _ = weightstats.ttost_paired(b, a, -0.03, 0.03)
    assert row["p_equivalent"] == pytest.approx(p)
    assert row["p_not_worse"] == pytest.approx(lower[1])
    d, se = (b - a).mean(), (b - a).std(ddof=1) / math.sqrt(90)
    assert row["p_not_worse"] == pytest.approx(stats.t.sf((d + 0.03) / se, 89))
    assert row["p_equivalent"] == pytest.approx(max(stats.t.sf((d + 0.03) / se, 89), stats.t.cdf((d - 0.03) / se, 89)))
    assert row["equivalent"] is (row["p_equivalent"] <= 0.05)


def test_not_worse_follows_the_direction_of_the_measure():
    systems = {"a": values(90, 1)[:, 0], "b": values(90, 1)[:, 0] + np.random.default_rng(2).normal(0.1, 0.02, 90)}
    assert only(systems, margin=0.02)["not_worse"] is True
    assert only(systems, margin=0.02, higher_is_better=False)["not_worse"] is False
    assert only(systems, margin=0.02)["equivalent"] is False


def test_each_measure_has_its_own_margin():
    systems = {name: {"ndcg": column, "mr": 100 * column} for name, column in named(200, 2, step=0).items()}
    both = compare(systems, margin={"ndcg": 0.05, "mr": 5.0}).table
    assert both["p_equivalent"][0] == pytest.approx(both["p_equivalent"][1])
    one = compare(systems, margin={"mr": 5.0})
    assert one.table["equivalent"] == [None, both["equivalent"][1]]
    with pytest.raises(ValueError, match="did you mean 'ndcg'"):
        compare(systems, margin={"ndgc": 0.1})


def test_statistics_of_pairs_and_their_values_make_the_same_comparison():
    a, b = values(50, 2).T
    assert comparison_of([paired_statistics(a, b)]) == compare({"a": a, "b": b})


@pytest.mark.parametrize("test", by_scipy([*PAIR_TESTS, *FAMILY_TESTS]))
def test_identical_systems_have_p_1_and_are_named(test):
    a = values(30, 1)[:, 0]
    compared = compare({"a": a, "b": a.copy(), "c": a + values(30, 1, seed=1)[:, 0]}, test=test, replicates=200)
    row = compared.table.rows[0]
    assert row["p"] == row["p_corrected"] == 1
    assert row["winner"] is None
    assert row["better"] == 0.5
    assert math.isnan(row["low"])
    assert any(note.startswith("identical") and "a, b" in note for note in compared.notes)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("test", ["t", "randomization", "tukey"])
def test_fewer_than_two_queries_have_no_verdict(n, test):
    compared = compare({"a": [0.1] * n, "b": [0.9] * n}, test=test, margin=0.1)
    row = compared.table.rows[0]
    assert row["n"] == n
    assert row["winner"] is None
    assert row["equivalent"] is None
    assert all(math.isnan(row[name]) for name in ("p", "p_corrected", "low", "high", "better", "detectable", "effect"))
    assert any("fewer than two queries" in note for note in compared.notes)


def test_a_constant_difference_has_no_interval_and_no_t_test_but_a_randomization_test():
    a = values(30, 1)[:, 0]
    compared = compare({"a": a, "b": a + 0.1})
    row = compared.table.rows[0]
    assert all(math.isnan(row[name]) for name in ("p", "low", "high", "better", "effect"))
    assert row["winner"] is None
    assert any("no spread" in note for note in compared.notes)
    assert only({"a": a, "b": a + 0.1}, test="randomization")["winner"] == "b"


def test_a_query_without_a_value_of_one_system_is_not_paired_but_counted():
    a, b = values(30, 2).T
    b[3] = a[4] = a[5] = b[5] = math.nan
    row = only({"a": a, "b": b})
    keep = ~np.isnan(a - b)
    assert (row["n"], row["unpaired"]) == (27, 2)
    assert row["p"] == pytest.approx(stats.ttest_rel(b[keep], a[keep]).pvalue)
    assert "unpaired" in str(compare({"a": a, "b": b}))
    p = only({"a": a, "b": b}, test="randomization")["p"]
    assert p == only({"a": a[keep], "b": b[keep]}, test="randomization")["p"] < 1


@pytest.mark.needs("scipy")
def test_tukey_takes_the_queries_that_all_systems_have_scored():
    systems = named(30, 3)
    systems["c"][:4] = math.nan
    for column in systems.values():
        column[9] = math.nan  # a query that no system has scored is not missing in any
    row = compare(systems, test="tukey").table.rows[0]
    assert (row["n"], row["unpaired"]) == (25, 4)
    assert (
        row["p"] == compare({k: np.delete(v, [0, 1, 2, 3, 9]) for k, v in systems.items()}, test="tukey").table["p"][0]
    )


def test_rare_large_differences_are_warned_of():
    rare = np.zeros(100)
    rare[:2] = 0.9
    noise = np.random.default_rng(0).normal(0, 0.01, 100)
    assert any("a few queries make up" in w for w in compare({"a": noise, "b": rare}).warnings)
    assert compare(named(60, 2)).warnings == ()
    assert any("few queries" in w for w in compare(named(8, 2)).warnings)


@pytest.mark.needs("scipy")
def test_a_rank_test_that_contradicts_the_means_has_no_winner():
    a = np.zeros(100)
    b = np.where(np.arange(100) < 20, 1.0, -0.01)
    compared = compare({"a": a, "b": b}, test="sign")
    assert compared.table["p"][0] < 1e-6
    assert compared.table["winner"] == [None]
    assert any("opposite directions" in warning for warning in compared.warnings)
    assert any("not the equality of the means" in note for note in compared.notes)


def test_corrected_p_values_are_printed_where_they_differ():
    g = np.random.default_rng(0)
    systems = {name: g.random(30) for name in "abc"}
    two, three = compare({name: systems[name] for name in "ab"}), compare(systems)
    assert "p_corrected" not in two.printed.columns
    assert "p_corrected" in two.table.columns
    assert "p_corrected" in three.printed.columns


def test_one_query_says_nothing_about_the_better_of_two_systems():
    (one,), (two,) = (compare({"a": np.full(n, 0.5), "b": np.full(n, 0.5)}).rows for n in (1, 2))
    assert math.isnan(one.pair.better)
    assert two.pair.better == 0.5
