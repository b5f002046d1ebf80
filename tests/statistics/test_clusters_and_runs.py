import math

import numpy as np
import pytest
import torch

from tests.support.optional import stats
from tests.support.system_values import by_id, named, only, values
from torchrank.statistics.comparison import compare
from torchrank.statistics.paired import paired_statistics, statistics_of_runs


@pytest.mark.xdist_group("statsmodels")  # imported once
def test_standard_errors_of_clusters_are_those_of_statsmodels():
    linear = pytest.importorskip("statsmodels.regression.linear_model")
    a, b = values(200, 2).T
    users = np.random.default_rng(3).integers(0, 40, 200)
    fitted = linear.OLS(b - a, np.ones(200)).fit(
        cov_type="cluster", cov_kwds={"groups": users, "use_correction": False}, use_t=True
    )
    count = len(set(users))
    row = compare({"a": a, "b": b}, clusters=users).rows[0]
    assert row.pair.standard_error == pytest.approx(fitted.bse[0] * math.sqrt(count / (count - 1)))
    assert row.pair.df == count - 1


def test_clusters_of_one_query_change_nothing_and_few_clusters_are_warned_of():
    systems = named(40, 2)
    plain, alone = only(systems), only(systems, clusters=np.arange(40))
    assert plain == pytest.approx(alone, rel=1e-9)
    assert not any("clusters" in warning for warning in compare(systems, clusters=np.arange(40)).warnings)
    assert any("10 clusters" in warning for warning in compare(systems, clusters=np.arange(40) % 10).warnings)


def test_randomization_flips_whole_clusters():
    a, b = values(40, 2).T
    users = np.arange(40) % 8
    sums = np.array([(b - a)[users == user].sum() for user in range(8)])
    signs = 1 - 2 * (np.arange(2**8)[:, None] >> np.arange(8) & 1)
    exact = (np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12).mean()
    assert only({"a": a, "b": b}, clusters=users, test="randomization")["p"] == pytest.approx(exact)


def test_clusters_are_given_by_id_where_systems_have_ids():
    a, b = values(40, 2).T
    users = {f"q{i}": f"user {i % 9}" for i in range(40)}
    with_ids = only({"a": by_id(a), "b": by_id(b)}, clusters=users)
    assert with_ids["p"] == pytest.approx(only({"a": a, "b": b}, clusters=torch.arange(40) % 9)["p"])
    with pytest.raises(ValueError, match="got none for 'q0'"):
        compare({"a": by_id(a), "b": by_id(b)}, clusters={k: v for k, v in users.items() if k != "q0"})
    with pytest.raises(ValueError, match=r"a dictionary \{id: cluster\}"):
        compare({"a": by_id(a), "b": by_id(b)}, clusters=[0] * 40)
    with pytest.raises(ValueError, match="clusters of 40 queries, got 3"):
        compare({"a": a, "b": b}, clusters=[0, 1, 2])
    with pytest.raises(ValueError, match="got test='wilcoxon'"):
        compare({"a": a, "b": b}, clusters=[0] * 40, test="wilcoxon")


@pytest.mark.parametrize(("count", "warned"), [(1, True), (29, True), (30, False)])
def test_a_comparison_of_clusters_names_their_number_and_size(count, warned):
    found = compare(named(60, 2), clusters=np.arange(60) * count // 60)
    assert f"standard errors of {count} clusters of {60 / count:.3g} queries on average" in found.notes
    assert any(warning.startswith(f"{count} clusters") for warning in found.warnings) == warned


def test_no_queries_have_no_clusters():
    assert "standard errors of 0 clusters of 0 queries on average" in compare({"a": [], "b": []}, clusters=[]).notes


def test_several_runs_are_compared_by_welchs_test_of_their_means():
    rng = np.random.default_rng(5)
    base = values(100, 1)[:, 0]
    a = [torch.tensor(base + rng.normal(0, 0.01) + rng.normal(0, 0.05, 100)) for _ in range(4)]
    b = [torch.tensor(base + 0.02 + rng.normal(0, 0.02) + rng.normal(0, 0.05, 100)) for _ in range(6)]
    row = only({"a": a, "b": b})
    means = [[float(run.mean()) for run in runs] for runs in (a, b)]
    reference = stats.ttest_ind(means[1], means[0], equal_var=False)
    interval = reference.confidence_interval()
    assert row["p"] == pytest.approx(reference.pvalue)
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    assert row["n"] == 100
    assert "it speaks of methods" in str(compare({"a": a, "b": b}))
    assert "it speaks of methods" not in str(compare({"a": a[0], "b": b[0]}))
    errors = [stats.sem(x) for x in means]
    ratio = row["mean_b"] / row["mean_a"]  # its error by the delta method: relative errors add like independent ones
    relative = ratio * math.hypot(errors[0] / row["mean_a"], errors[1] / row["mean_b"])
    half = stats.t.ppf(0.975, reference.df) * relative
    assert (row["relative_low"], row["relative_high"]) == pytest.approx((ratio - 1 - half, ratio - 1 + half))


def test_queries_that_the_runs_of_one_method_lack_are_not_paired():
    a, b, nan = np.full((7, 2), 0.5), np.full((7, 3), 0.75), math.nan
    a[:2, 0] = b[2, 1] = a[5, 1] = b[5] = nan
    pair = statistics_of_runs(a, b)
    assert (pair.n, pair.unpaired) == (3, 3)


def test_means_of_runs_that_differ_by_rounding_have_no_spread_even_beside_runs_of_zeros():
    nothing, some = np.zeros((3, 2)), np.full((3, 2), [0.3, 0.1 + 0.2])
    assert 0 < some.mean(axis=0).var(ddof=1) < 1e-32
    for a, b in ((nothing, some), (some, nothing)):
        assert statistics_of_runs(a, b).standard_error == 0
        pair = paired_statistics(a.mean(axis=0), b.mean(axis=0))
        assert (pair.standard_error, pair.sd) == (0, 0)


def test_runs_need_the_t_test_and_two_runs_of_every_system():
    a = values(30, 4).T
    with pytest.raises(ValueError, match=r"several runs of every system or of none, got \{'a': 2, 'b': 1\}"):
        compare({"a": [a[0], a[1]], "b": a[2]})
    with pytest.raises(ValueError, match="test='t' with several runs"):
        compare({"a": [a[0], a[1]], "b": [a[2], a[3]]}, test="sign")
    with pytest.raises(ValueError, match="one run of each system"):
        compare({"a": [a[0], a[1]], "b": [a[2], a[3]]}, clusters=[0, 1] * 15)
    with pytest.raises(ValueError, match="at least two runs of 'a'"):
        compare({"a": [a[0]], "b": [a[2], a[3]]})
