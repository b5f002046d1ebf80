"""Systems compared from sums: the numbers of scipy, and of the comparison that has all values."""

import math

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.optional import by_scipy, stats
from torchrank.statistics.intervals import anytime_level, anytime_p

NAMES = ["ndcg@10", "mrr", "hitrate@1", "mr"]
SYSTEMS = ["a", "b", "c"]


def batch(queries=200, seed=0):
    """Scores of three systems and grades; some queries have nothing relevant, which MR skips."""
    draw = torch.Generator().manual_seed(seed)
    grades = (torch.rand(queries, 12, generator=draw) > 0.8).int()
    scores = torch.rand(queries, 12, generator=draw)
    noise = torch.rand(queries, 12, generator=draw)
    return {"a": scores, "b": scores + 0.3 * noise, "c": scores + 0.1 * grades}, grades


def compared(scores, grades, cuts=(200,), **keywords):
    metric = tr.Compared(NAMES, SYSTEMS)
    start = 0
    for stop in cuts:
        part = {key: x[start:stop] for key, x in keywords.items()}
        metric.update({name: x[start:stop] for name, x in scores.items()}, grades[start:stop], **part)
        start = stop
    return metric


def values(scores, grades):
    suite = tr.RankingCollection(NAMES)
    return {name: suite.score(x, grades) for name, x in scores.items()}


def test_p_values_are_those_of_scipy():
    scores, grades = batch()
    known = values(scores, grades)
    table = compared(scores, grades, (3, 90, 91, 200)).comparison().table
    assert len(table) == len(NAMES) * 3
    for row in table:
        a, b = (known[row[name]][row["measure"]].numpy() for name in ("a", "b"))
        both = ~(np.isnan(a) | np.isnan(b))
        test = stats.ttest_rel(b[both], a[both])
        assert row["n"] == both.sum()
        assert row["p"] == pytest.approx(test.pvalue, rel=1e-12)
        assert [row["low"], row["high"]] == pytest.approx([*test.confidence_interval()], rel=1e-10)


@pytest.mark.parametrize(
    ("baseline", "test"), [(None, "t"), ("a", "t"), ("c", "t"), *by_scipy([(None, "tukey"), ("b", "tukey")])]
)
def test_all_columns_are_those_of_the_comparison_of_values(baseline, test):
    scores, grades = batch()
    lower = {"mr": False}
    wanted = tr.compare(values(scores, grades), baseline, test=test, higher_is_better=lower, margin=0.01)
    found = compared(scores, grades, (60, 200)).comparison(baseline, test=test, margin=0.01)
    assert found.notes == wanted.notes
    for one, other in zip(found.table, wanted.table):
        for column, value in other.items():
            expected = pytest.approx(value, rel=1e-7, abs=1e-9, nan_ok=True) if isinstance(value, float) else value
            assert one[column] == expected, column


def test_skewed_differences_are_warned_of_from_the_third_sum():
    grades = torch.ones(60, 1, dtype=torch.int64)
    better = torch.zeros(60, 2)
    better[0, 0] = 1.0  # one query wins, all others tie
    target = torch.cat([grades, torch.zeros_like(grades)], 1)
    metric = tr.Compared("mrr", ["a", "b"])
    metric.update({"a": torch.zeros(60, 2), "b": better}, target)
    (row,) = metric.comparison().rows
    d = [0.25] + [0.0] * 59
    assert row.pair.skewness == pytest.approx(stats.skew(d))
    assert any("a few queries make up" in line for line in metric.comparison().warnings)
    (other,) = metric.comparison(baseline="b").rows
    assert other.pair.skewness == pytest.approx(-row.pair.skewness)
    assert other.pair.difference == pytest.approx(-row.pair.difference)


@pytest.mark.xdist_group("statsmodels")  # imported once
def test_weights_are_those_of_a_weighted_regression():
    api = pytest.importorskip("statsmodels.regression.linear_model")
    scores, grades = batch()
    weights = torch.rand(200, generator=torch.Generator().manual_seed(1)).double()
    weights[:5] = 0
    table = compared(scores, grades, (70, 200), weights=weights).comparison().table
    known = values(scores, grades)
    for row in table:
        a, b = (known[row[name]][row["measure"]].numpy() for name in ("a", "b"))
        counted = ~np.isnan(a) & (weights.numpy() > 0)
        d, w = (b - a)[counted], weights.numpy()[counted]
        fit = api.WLS(d, np.ones_like(d), weights=w).fit(cov_type="HC1")
        assert row["difference"] == pytest.approx(fit.params[0], rel=1e-9)
        se = (row["high"] - row["low"]) / 2 / stats.t.ppf(0.975, len(d) - 1)
        assert se == pytest.approx(fit.bse[0], rel=1e-9)


def test_a_few_queries_with_most_of_the_weight_are_warned_of():
    scores, grades = batch()
    weights = torch.ones(200).double()
    weights[:3] = 1000
    assert any("most of the weight" in line for line in compared(scores, grades, weights=weights).comparison().warnings)
    assert not any("weight" in line for line in compared(scores, grades).comparison().warnings)


def test_compute_has_the_values_and_the_differences():
    scores, grades = batch()
    metric = compared(scores, grades)
    found = metric.compute()
    for name, x in scores.items():
        suite = tr.RankingCollection(NAMES)
        suite.update(x, grades)
        for key, value in suite.compute().items():
            assert found[f"{key}/{name}"] == value
    assert found["mrr/b-a"].item() == pytest.approx(found["mrr/b"].item() - found["mrr/a"].item(), abs=1e-6)
    assert all(value.dtype == torch.float32 and value.dim() == 0 for value in found.values())


def test_a_query_that_one_system_skips_is_not_paired():
    metric = tr.Compared("mr", ["a", "b"])
    grades = torch.tensor([[1, 0], [0, 1], [1, 0]])
    empty = tr.Ranking.from_scores(torch.rand(3, 2), torch.tensor([[1, 0], [0, 1], [0, 0]]))
    metric.update({"a": tr.Ranking.from_scores(torch.rand(3, 2), grades), "b": empty})
    (row,) = metric.comparison().table.rows
    assert (row["n"], row["unpaired"]) == (2, 1)
    with pytest.raises(ValueError, match="same queries"):
        metric.comparison(test="tukey")


def test_identical_systems_have_p_1_and_one_query_no_verdict():
    scores, grades = batch()
    metric = tr.Compared("mrr", ["a", "b"])
    metric.update({"a": scores["a"][:1], "b": scores["b"][:1]}, grades[:1])
    assert math.isnan(metric.comparison().table["p"][0])
    metric.reset()
    metric.update({"a": scores["a"], "b": scores["a"].clone()}, grades)
    (row,) = metric.comparison().table.rows
    assert (row["p"], row["wins"], row["ties"], row["winner"]) == (1.0, 0, 200, None)


@pytest.mark.parametrize("seed", range(8))
def test_values_in_one_proportion_are_compared_though_rounding_makes_a_variance_negative(seed):
    draw = torch.Generator().manual_seed(seed)
    grades = torch.zeros(40, 3)
    grades[:, 0] = torch.rand(40, generator=draw) + 0.5
    best = torch.rand(40, 3, generator=draw).sort(descending=True).values
    metric = tr.Compared("dcg", ["a", "b"])
    metric.update({"a": best, "b": best[:, [1, 0, 2]]}, grades)  # all values of b are those of a, divided by log2(3)
    (row,) = metric.comparison().table.rows
    assert row["mean_b"] / row["mean_a"] == pytest.approx(1 / math.log2(3))


def test_tukeys_test_of_systems_without_a_spread_of_differences_has_no_p():
    scores, grades = batch(20)
    metric = tr.Compared("mrr", SYSTEMS)
    metric.update(dict.fromkeys(SYSTEMS, scores["a"]), grades)
    for test in ("t", "tukey"):
        correction = {} if test == "t" else {"test": "tukey", "correction": "none"}
        assert [row["p"] for row in metric.comparison(**correction).table] == [1, 1, 1]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("baseline", [None, "b"])
def test_an_anytime_comparison_of_sums_is_that_of_the_values_and_counts_the_effective_number(baseline, weighted):
    scores, grades = batch()
    weights = (
        {"weights": torch.rand(200, generator=torch.Generator().manual_seed(1)).double() + 0.1} if weighted else {}
    )
    metric = compared(scores, grades, (60, 200), **weights)
    metric.anytime = True
    found, once = metric.comparison(baseline, margin=0.01), metric.comparison(baseline, test="t")
    wanted = tr.compare(values(scores, grades), baseline, test="anytime", higher_is_better={"mr": False}, margin=0.01)
    n = float(weights["weights"].sum() ** 2 / weights["weights"].square().sum()) if weighted else None
    for row, other, t in zip(found.rows, wanted.rows, once.rows):
        assert row.pair.p == pytest.approx(anytime_p(t.pair.p, n or t.pair.n), rel=0.02)  # MR skips a few queries
        assert row.pair.interval(0.95) == pytest.approx(t.pair.interval(anytime_level(0.95, row.pair.looks)))
        if not weighted:
            assert row.pair.p == pytest.approx(other.pair.p, rel=1e-7)
            assert row.p_not_worse == pytest.approx(other.p_not_worse, rel=1e-7)
            assert found.notes == wanted.notes
    assert metric.decided == found.decided == all(row["winner"] for row in metric.comparison().table)
    assert metric.summary().notes[0] == "low and high: 95 % confidence sequence"
    assert metric.summary(method="t").notes[0] == "low and high: 95 % confidence interval"


def test_a_comparison_is_decided_after_a_part_of_the_queries():
    scores, grades = batch(3000)
    metric = tr.Compared("mrr", ["a", "b"], anytime=True)
    assert not metric.decided
    for rows in torch.arange(3000).split(50):
        metric.update({name: scores[name][rows] for name in "ab"}, grades[rows])
        if metric.decided:
            break
    assert metric.num_queries == 3000  # b has the same scores and noise
    metric.reset()
    for rows in torch.arange(3000).split(50):
        metric.update({"a": scores["a"][rows], "b": scores["c"][rows]}, grades[rows])
        if metric.decided:
            break
    assert metric.num_queries < 1000
    assert metric.comparison().table["winner"] == ["b"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tr.Compared("mrr", ["a"]), "two or more systems"),
        (lambda: tr.Compared("mrr", ["a", "a"]), "each once"),
        (lambda: tr.Compared("mrr", "ab"), "names of two or more"),
        (lambda: tr.Compared("map(aggregation=geometric)", SYSTEMS), "arithmetic means"),
        (lambda: tr.Compared("map(aggregation=median)", SYSTEMS), "computed from sums"),
        (lambda: tr.Compared("opa(average=pair)", SYSTEMS), "one weight for all systems"),
        (
            lambda: tr.Compared("mrr", SYSTEMS).update({"a": torch.rand(2, 2)}, torch.ones(2, 2).int()),
            "the systems a, b, c",
        ),
        (
            lambda: tr.Compared("mrr", ["a", "b"]).update(
                {"a": torch.rand(2, 2), "b": torch.rand(2, 3)}, torch.ones(2, 2).int()
            ),
            r"Expected scores of the same candidates from all systems, got shapes \{'a': \[2, 2\], 'b': \[2, 3\]\}",
        ),
        (lambda: compared(*batch()).comparison("d"), "one of a, b, c"),
        (lambda: compared(*batch()).comparison(test="wilcoxon"), "PerQuery"),
        (lambda: compared(*batch()).comparison(test="tukey", correction="holm"), "no correction"),
    ],
)
def test_wrong_calls_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_scores_outside_of_a_dict_raise():
    with pytest.raises(TypeError, match="dict from system to scores"):
        tr.Compared("mrr", SYSTEMS).update(torch.rand(2, 2), torch.ones(2, 2).int())
    rankings = [tr.Ranking.from_ranks(torch.tensor([1] * n), num_candidates=3) for n in (2, 3)]
    with pytest.raises(ValueError, match="different numbers"):
        tr.Compared("mrr", ["a", "b"]).update(dict(zip("ab", rankings)))


def test_a_warning_tells_that_weights_of_tables_are_not_used():
    tables = {
        name: tr.QueryTable([1, 2, 3], {"mrr": x}, {"mrr": [1, 2, 1]})
        for name, x in (("a", [1, 0, 1]), ("b", [0, 0, 1]))
    }
    assert any("weights" in line for line in tr.compare(tables).warnings)


@pytest.mark.parametrize(
    "metric",
    [
        tr.Compared(["mrr"], ["a", "b"]),
        tr.PerQuery("mrr"),
        tr.Sliced("mrr", ["x"]),
        tr.Bootstrapped("mrr"),
        tr.TieReport(tr.MRR()),
        tr.Rectified("mrr"),
        tr.Abstention("mrr"),
    ],
    ids=lambda metric: type(metric).__name__,
)
def test_a_query_that_is_cut_by_two_updates_is_noticed(metric):
    scores, grades = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 0, 1])
    given = {"Sliced": {"slices": torch.tensor([0, 0])}, "PerQuery": {"query_ids": torch.arange(2)}}
    given |= {"Bootstrapped": given["PerQuery"], "Abstention": {"confidence": torch.tensor([0.5, 0.25])}}
    preds = {"a": scores, "b": scores} if type(metric) is tr.Compared else scores
    options = given.get(type(metric).__name__, {})
    metric.update(preds, grades, indexes=torch.tensor([0, 0, 1]), **options)
    with pytest.warns(UserWarning, match="Counted the last query of an update"):
        metric.update(preds, grades, indexes=torch.tensor([1, 2, 2]), **options)
