"""Systems compared from sums: the numbers of scipy, and of the comparison that has all values."""

import bisect
import itertools
import math
import statistics

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support import simulated_judges
from tests.support.cases import cases
from tests.support.optional import by_scipy, stats
from torchrank.statistics.intervals import anytime_level, anytime_p
from torchrank.wrappers.compared import Kind

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


@pytest.mark.parametrize(("baseline", "test"), [(None, "t"), ("b", "t"), *by_scipy([("b", "tukey")])])
def test_all_columns_are_those_of_the_comparison_of_values(baseline, test):
    scores, grades = batch()
    lower = {"mr": False}
    wanted = tr.compare(values(scores, grades), baseline, test=test, higher_is_better=lower, margin=0.01)
    found = compared(scores, grades, (3, 90, 91, 200)).comparison(baseline, test=test, margin=0.01)
    assert found.notes == wanted.notes
    for one, other in zip(found.table, wanted.table):
        for column, value in other.items():
            expected = pytest.approx(value, rel=1e-7, abs=1e-9, nan_ok=True) if isinstance(value, float) else value
            assert one[column] == expected, column
    for one, other in zip(found.rows, wanted.rows):
        assert one.pair.skewness == pytest.approx(other.pair.skewness, rel=1e-6)


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


@cases("option", ["nothing", "long", "mask", "exclude", "groups", "fractions"])
def test_what_systems_share_changes_no_value(option):
    draw = torch.Generator().manual_seed(0)
    shape = 20, 200 if option == "long" else 12
    chosen = torch.rand(shape, generator=draw) < 24 / shape[1]
    grades = torch.randint(-1, 4, shape, generator=draw) * chosen
    grades = grades / 2 if option == "fractions" else grades
    scores = {
        "distinct": torch.rand(shape, generator=draw),
        "tied": torch.randint(0, 3, shape, generator=draw) / 4,
        "equal": torch.zeros(shape),
        "cut": torch.rand(shape, generator=draw).masked_fill_(torch.arange(shape[1]) > 2, -torch.inf),
    }
    options = {
        "mask": torch.rand(shape, generator=draw) < 0.7,
        "exclude": (torch.arange(20), torch.randint(0, 12, (20,), generator=draw)),
        "groups": torch.randint(-1, 5, (12,), generator=draw),
    }
    taken = {name: x for name, x in options.items() if name == option}
    names = ["ndcg@3", "ndcg(gain=exponential)@5", "ndcg(ties=optimistic)@3", "recall@3", "map@5", "err"]
    metric, suite = tr.Compared(names, list(scores)), tr.RankingCollection(names)
    metric.update(scores, grades, **taken)
    found = metric.compute()
    for name, x in scores.items():
        suite.reset()
        suite.update(x, grades, **taken)
        for key, value in suite.compute().items():
            assert found[f"{key}/{name}"] == value, (key, name)
            assert found[f"{key}/{name}"].shape == ()
    for name, other in itertools.combinations(scores, 2):
        difference = found[f"map@5/{other}"] - found[f"map@5/{name}"]
        assert found[f"map@5/{other}-{name}"].item() == pytest.approx(difference.item(), abs=1e-6)


def test_a_query_that_one_system_skips_is_not_paired():
    metric = tr.Compared("mr", ["a", "b"])
    grades = torch.tensor([[1, 0], [0, 1], [1, 0]])
    empty = tr.Ranking.from_scores(torch.rand(3, 2), torch.tensor([[1, 0], [0, 1], [0, 0]]))
    metric.update({"a": tr.Ranking.from_scores(torch.rand(3, 2), grades), "b": empty})
    (row,) = metric.comparison().table.rows
    assert (row["n"], row["unpaired"]) == (2, 1)
    with pytest.raises(ValueError, match="same queries"):
        metric.comparison(test="tukey")


def test_identical_systems_have_p_1_in_every_test_and_one_query_no_verdict():
    scores, grades = batch()
    metric = tr.Compared("mrr", ["a", "b"])
    metric.update({"a": scores["a"][:1], "b": scores["b"][:1]}, grades[:1])
    assert math.isnan(metric.comparison().table["p"][0])
    metric.reset()
    metric.update({"a": scores["a"], "b": scores["a"].clone()}, grades)
    (row,) = metric.comparison().table.rows
    assert (row["p"], row["wins"], row["ties"], row["winner"]) == (1.0, 0, 200, None)
    metric = tr.Compared("mrr", SYSTEMS)
    metric.update(dict.fromkeys(SYSTEMS, scores["a"]), grades)
    assert metric.comparison(test="tukey", correction="none").table["p"] == [1, 1, 1]


@cases("seed", range(8))
def test_values_in_one_proportion_are_compared_though_rounding_makes_a_variance_negative(seed):
    draw = torch.Generator().manual_seed(seed)
    grades = torch.zeros(40, 3)
    grades[:, 0] = torch.rand(40, generator=draw) + 0.5
    best = torch.rand(40, 3, generator=draw).sort(descending=True).values
    metric = tr.Compared("dcg", ["a", "b"])
    metric.update({"a": best, "b": best[:, [1, 0, 2]]}, grades)  # all values of b are those of a, divided by log2(3)
    (row,) = metric.comparison().table.rows
    assert row["mean_b"] / row["mean_a"] == pytest.approx(1 / math.log2(3))


@cases("weighted", [False, True])
@cases("baseline", [None, "b"])
def test_an_anytime_comparison_of_sums_is_that_of_the_values_and_counts_the_effective_number(baseline, weighted):
    scores, grades = batch()
    weights = {"weights": torch.rand(200).double() + 0.1} if weighted else {}
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


X = torch.tensor([[0.2, 0.1], [0.4, 0.6]])


RANKING = tr.Ranking.from_scores(X, X > 0)


def updated(scores, *target):
    tr.Compared("mrr", ["a", "b"]).update(scores, *target)


@cases(
    ("call", "message"),
    [
        (lambda: tr.Compared("mrr", ["a"]), "two or more systems"),
        (lambda: tr.Compared("mrr", ["a", "a"]), "each once"),
        (lambda: tr.Compared("mrr", "ab"), "names of two or more"),
        (lambda: tr.Compared("map(aggregation=geometric)", SYSTEMS), "arithmetic means"),
        (lambda: tr.Compared("map(aggregation=median)", SYSTEMS), "computed from sums"),
        (lambda: tr.Compared("opa(average=pair)", SYSTEMS), "one weight for all systems"),
        (lambda: updated({"a": X}, X > 0), "the systems a, b"),
        (
            lambda: updated({"a": X, "b": torch.rand(2, 3)}, X > 0),
            r"Expected scores of the same candidates from all systems, got shapes \{'a': \[2, 2\], 'b': \[2, 3\]\}",
        ),
        (lambda: updated({"a": RANKING, "b": RANKING.take(torch.tensor([0]))}), "different numbers"),
        (lambda: compared(*batch()).comparison("d"), "one of a, b, c"),
        (lambda: compared(*batch()).comparison(test="wilcoxon"), "PerQuery"),
        (lambda: compared(*batch()).comparison(test="tukey", correction="holm"), "no correction"),
    ],
)
def test_wrong_calls_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_warning_tells_that_weights_of_tables_are_not_used():
    values = {"a": [1, 0, 1], "b": [0, 0, 1]}
    tables = {name: tr.QueryTable([1, 2, 3], {"mrr": x}, {"mrr": [1, 2, 1]}) for name, x in values.items()}
    assert any("weights" in line for line in tr.compare(tables).warnings)


# ---- a judge that people correct: formulas in plain Python, intervals by simulation --------------------------------

NAMES_JUDGED = ["ndcg@5", "mrr", "hitrate@1"]


def batch_judged(queries=400, seed=0, kind=0.15):
    """Scores, grades of people, and grades of a judge who finds more documents relevant."""
    draw = torch.Generator().manual_seed(seed)
    scores = torch.rand(queries, 8, generator=draw)
    people = (torch.rand(queries, 8, generator=draw) < 0.1 + 0.4 * scores).long()
    return scores, people, torch.where(torch.rand(queries, 8, generator=draw) < kind, 1, people)


def known(y, f, everyone):
    """Value, variance and weight of the judge, from values of the sample and by the judge of all queries."""
    n, total = len(y), len(everyone)
    of_y, of_f = statistics.variance(y), max(statistics.variance(f), statistics.variance(everyone))
    correlation = statistics.covariance(y, f) / math.sqrt(of_y * of_f) * n / (n + 4)
    factor = correlation * math.sqrt(of_y / of_f)
    value = statistics.mean(y) + factor * (statistics.mean(everyone) - statistics.mean(f))
    return value, of_y / n * (1 - (1 - n / total) * correlation**2), factor


def by_query(scores, grades, name):
    return tr.RankingCollection(name).score(scores, grades)[name].tolist()


@cases("opposite", [False, True])
def test_the_table_has_the_numbers_of_the_formula_for_any_split(opposite):
    scores, people, model = batch_judged()
    model = 1 - model if opposite else model  # a judge that people correct by a negative weight
    judged = torch.rand(400, generator=torch.Generator().manual_seed(1)) < 0.2
    metric = tr.Rectified(NAMES_JUDGED)
    for part in (slice(0, 1), slice(1, 37), slice(37, 38), slice(38, 400)):
        metric.update(scores[part], model[part], human=people[part], judged=judged[part])
    table = metric.summary()
    for row in table:
        y, f = (torch.tensor(by_query(scores, grades, row["measure"])) for grades in (people, model))
        value, variance, factor = known(y[judged].tolist(), f[judged].tolist(), f.tolist())
        want = {"value": value, "standard error": math.sqrt(variance), "weight": factor, "judge": f.mean().item()}
        want |= {"effective": y[judged].var().item() / variance}
        assert {column: row[column] for column in want} == pytest.approx(want, rel=1e-5)
        assert (row["queries"], row["human"]) == (400, judged.sum())
        assert metric.compute()[row["measure"]].item() == pytest.approx(value, rel=1e-6)
    assert metric.num_queries == 400
    assert all((row["weight"] < 0) == opposite for row in table)


def hits(by_query):
    """Labels of queries whose first candidate is relevant, or not."""
    return 1 - torch.tensor(by_query)


@cases("of_people", [0, 1])
def test_equal_values_of_people_are_their_mean_and_a_judge_has_no_weight(of_people):
    metric, scores = tr.Rectified(["hitrate@1", "mrr"]), torch.tensor([[0.9, 0.1]] * 30)
    judge, human = hits([n % 3 % 2 for n in range(30)]), hits([of_people] * 30)
    metric.update(scores, judge, human=human, judged=torch.arange(30) < 20)
    hit, rank = metric.summary()
    alone = tr.HitRate(top_k=1)
    alone.update(scores[:20], human[:20])
    assert (hit["value"], hit["weight"], hit["effective"]) == (of_people, 0, 20)
    assert (hit["low"], hit["high"]) == pytest.approx(alone.interval())
    assert (rank["value"], rank["weight"], math.isnan(rank["low"])) == ((1 + of_people) / 2, 0, not of_people)
    assert metric.queries_needed(0.1)["more"] == [0, 0]


@cases("turned", [False, True])
def test_a_corrected_share_beyond_0_or_1_has_an_interval_that_ends_there(turned):
    strata = torch.tensor([0] * 300 + [1] * 700)
    people = [1, 1, 0, 0, 0] + [0] * 995  # in the first stratum the judge agrees; in the second it was wrong by chance
    judge = [1, 1, 0, 0, 0] * 60 + [1] * 30 + [0] * 670
    judged = (torch.arange(1000) < 5) | ((torch.arange(1000) >= 300) & (torch.arange(1000) < 360))
    if turned:
        people, judge = [1 - x for x in people], [1 - x for x in judge]
    metric = tr.Rectified("hitrate@1", strata=2)
    scores = torch.tensor([[0.9, 0.1]] * 1000)
    metric.update(scores, hits(judge), human=hits(people), judged=judged, strata=strata)
    (row,) = metric.summary()
    if turned:
        assert 0 < row["low"] < row["high"] == 1 < row["value"]
    else:
        assert row["value"] < 0 == row["low"] < row["high"] < 1


def test_a_stratum_without_queries_changes_nothing():
    scores, people, model = batch_judged(300)
    strata, judged = (torch.arange(300) % 3 > 0).long(), torch.arange(300) % 10 < 2
    found = []
    for names in (["a", "b"], ["a", "b", "empty"]):
        metric = tr.Rectified(NAMES_JUDGED, strata=names)
        metric.update(scores, model, human=people, judged=judged, strata=strata)
        people_of_strata = torch.tensor([50.0, 70.0, math.nan])[: len(names)]
        variances = [one.variance_with(people_of_strata).item() for _, _, one in metric._by_subject(1)]
        found.append((metric.summary(), metric.queries_needed(0.16), variances))
    (summary, needed, variances), (more, with_empty, same) = found
    assert variances == pytest.approx(same, rel=1e-12)
    for one, other in zip(summary, more, strict=True):
        assert one == pytest.approx(other)
    empty = [row for row in with_empty if row["stratum"] == "empty"]
    assert [(row["queries"], row["human"], row["needed"], row["more"]) for row in empty] == [(0, 0, 0, 0)] * 3
    for one, other in zip(needed, (row for row in with_empty if row not in empty), strict=True):
        assert one == pytest.approx(other)


@cases("of_model", [0, 1])
def test_a_judge_without_use_leaves_the_interval_of_people(of_model):
    scores, people, _ = batch_judged(60)
    constant = torch.full_like(people, of_model)  # all values are 0, or all are 1
    metric, alone = tr.Rectified(NAMES_JUDGED), tr.RankingCollection(NAMES_JUDGED)
    metric.update(scores, constant, human=people, judged=torch.arange(60) % 2 == 0)
    alone.update(scores[::2], people[::2])
    for found, wanted in zip(metric.summary(), alone.summary()):
        assert (found["measure"], found["weight"]) == (wanted["measure"], 0)
        numbers = {column: wanted[column] for column in ("value", "standard error", "low", "high")} | {"effective": 30}
        assert {column: found[column] for column in numbers} == pytest.approx(numbers)


def test_strata_are_weighted_by_their_shares_and_sampled_at_any_rate():
    scores, people, model = batch_judged(600)
    strata = (torch.arange(600) % 3 > 0).long()  # 200 and 400 queries
    people[strata == 0, 4:] = 0  # another difficulty
    judged = torch.where(strata == 0, torch.arange(600) % 2 == 0, torch.arange(600) % 10 == 1)
    metric = tr.Rectified("ndcg@5", strata=["hard", "easy"])
    metric.update(scores, model, human=people, judged=judged, strata=strata)
    y, f = (torch.tensor(by_query(scores, grades, "ndcg@5")).double() for grades in (people, model))
    parts = [(y[judged & at], f[judged & at], f[at]) for at in (strata == 0, strata == 1)]
    share = [len(everyone) / 600 for *_, everyone in parts]

    def combined(of):  # what people could still tell about the mean
        return sum(w**2 * (1 / len(p[0]) - 1 / len(p[2])) * of(*p) for w, p in zip(share, parts))

    of_y = combined(lambda y, f, _: y.var())
    of_f = combined(lambda y, f, everyone: max(f.var(), everyone.var()))
    n = int(judged.sum())
    correlation = combined(lambda y, f, _: torch.cov(torch.stack([y, f]))[0, 1]) / (of_y * of_f).sqrt() * n / (n + 4)
    factor = correlation * (of_y / of_f).sqrt()
    means = [y.mean() + factor * (everyone.mean() - f.mean()) for y, f, everyone in parts]
    value = sum(w * mean for w, mean in zip(share, means))
    variance = (1 - correlation**2) * of_y + sum(w**2 * p[0].var() / len(p[2]) for w, p in zip(share, parts))
    variance += sum(w * (mean - value) ** 2 for w, mean in zip(share, means)) / 600
    (row,) = metric.summary()
    assert row["value"] == pytest.approx(float(value), rel=1e-6)
    assert row["standard error"] == pytest.approx(float(variance.sqrt()), rel=1e-6)
    assert row["weight"] == pytest.approx(float(factor), rel=1e-6)
    errors = [w**2 * p[0].var() / len(p[0]) for w, p in zip(share, parts)]
    degrees = sum(errors) ** 2 / sum(error**2 / (len(p[0]) - 1) for error, p in zip(errors, parts))
    assert row["high"] - row["value"] == pytest.approx(stats.t.ppf(0.975, degrees) * row["standard error"], rel=1e-6)
    # Neyman: numbers in proportion to share times standard deviation of what the judge does not explain
    left = [y.var() - 2 * factor * torch.cov(torch.stack([y, f]))[0, 1] + factor**2 * max(f.var(), everyone.var())
            for y, f, everyone in parts]  # fmt: skip
    ratio = share[0] * left[0].sqrt() / (share[1] * left[1].sqrt())
    hard, easy = metric.queries_needed(0.06)
    assert all(row["more"] > 5 and row["needed"] < row["queries"] for row in (hard, easy))
    assert hard["needed"] / easy["needed"] == pytest.approx(float(ratio), rel=0.02)


def test_a_stratum_whose_weight_is_that_of_a_query_without_people_tells_nothing_of_the_judge():
    scores, people, model = batch_judged(100)
    judged, weights = torch.arange(100) % 2 == 0, torch.ones(100)
    strata = (torch.arange(100) >= 9).long()
    judged[:9], weights[8] = torch.arange(9) < 8, 1000.0
    found = []
    for part in (slice(0, 100), slice(9, 100)):
        metric = tr.Rectified("ndcg@5", strata=2)
        given = {"judged": judged[part], "weights": weights[part], "strata": strata[part]}
        metric.update(scores[part], model[part], human=people[part], **given)
        (row,) = metric.summary()
        found.append(row["weight"] * (row["human"] + 4) / row["human"])  # without the doubt
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_differences_of_systems_are_corrected_as_differences():
    scores, people, model = batch_judged()
    other = scores + 0.2 * people * torch.rand(400, 8, generator=torch.Generator().manual_seed(3))
    judged = torch.arange(400) % 8 == 0
    metric = tr.Rectified(NAMES_JUDGED, ["a", "b"])
    metric.update({"a": scores, "b": other}, model, human=people, judged=judged)
    alone = tr.Compared(NAMES_JUDGED, ["a", "b"])
    alone.update({"a": scores[judged], "b": other[judged]}, people[judged])
    found = metric.comparison().table
    for row, turned, by_people in zip(found, metric.comparison("b").table, alone.comparison().table):
        of_system = [[by_query(x, grades, row["measure"]) for x in (scores, other)] for grades in (people, model)]
        y, f = (torch.tensor(b) - torch.tensor(a) for a, b in of_system)
        value, variance, _ = known(y[judged].tolist(), f[judged].tolist(), f.tolist())
        assert row["difference"] == pytest.approx(value, rel=1e-5)
        assert metric.compute()[f"{row['measure']}/b-a"].item() == pytest.approx(value, rel=1e-5)
        low, high = row["low"], row["high"]
        reach = 2.009575 * math.sqrt(variance)  # 97.5 % of Student's t with 49 degrees of freedom
        assert [low, high] == pytest.approx([value - reach, value + reach], rel=1e-5)
        assert [turned["low"], turned["high"], turned["a"]] == [pytest.approx(-high), pytest.approx(-low), "b"]
        for column in ("wins", "ties", "losses", "n"):
            assert row[column] == by_people[column]
    assert [row["measure"] for row in metric.summary()] == [f"{name}/{key}" for name in NAMES_JUDGED for key in "ab"]
    assert tr.Comparison.from_dict(metric.comparison().to_dict()) == metric.comparison()


# ---- simulations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("judge", simulated_judges.JUDGES)
@pytest.mark.parametrize("humans", [20, 200])
def test_intervals_cover_the_truth_and_are_never_wider_than_those_of_people(judge, humans):
    for measure in ("graded", "hit", "difference"):
        found = simulated_judges.simulated(measure, judge, humans, 400, seed=1, queries=600)
        assert found["coverage"] > 0.92  # 95 % minus three standard errors of 400 intervals
        assert found["width"] < 1.05
        if judge == "good":
            assert found["width"] < 0.75


# ---- how many more -------------------------------------------------------------------------------------------------


def test_the_needed_queries_are_the_fewest_that_reach_the_width():
    scores, people, model = batch_judged(300)
    strata = (torch.arange(300) % 3 > 0).long()
    people[strata == 0, 1:] = 0
    metric = tr.Rectified("ndcg@5", strata=2)
    metric.update(scores, model, human=people, judged=torch.arange(300) % 20 < 2, strata=strata)
    ((_, _, found),) = metric._by_subject(1)
    rows = metric.queries_needed(0.15).rows
    human = [row["human"] for row in rows]

    def width(numbers):
        return 2 * stats.t.ppf(0.975, sum(numbers) - 2) * found.variance_with(torch.tensor(numbers).double()).sqrt()

    near = range(max(human[0], rows[0]["needed"] - 7), min(100, rows[0]["needed"] + 7) + 1)
    # More queries of the second stratum make the interval narrower.
    enough = [bisect.bisect_left(range(201), -0.15, human[1], key=lambda n, one=one: -width((one, n))) for one in near]
    fewest = min(sum(numbers) for numbers in zip(near, enough) if numbers[1] <= 200)
    assert abs(sum(row["needed"] for row in rows) - fewest) <= 3
    assert width([row["needed"] for row in rows]) <= 0.15 < width([row["needed"] - 1 for row in rows])
    assert all(row["more"] == row["needed"] - row["human"] >= 0 for row in rows)
    more = torch.arange(300) < 0
    for n, row in enumerate(rows):
        more[(strata == n).nonzero().squeeze(-1)[: row["needed"]]] = True
    again = tr.Rectified("ndcg@5", strata=2)
    again.update(scores, model, human=people, judged=more, strata=strata)
    (row,) = again.summary()
    assert row["high"] - row["low"] == pytest.approx(0.15, rel=0.25)
    assert metric.queries_needed(1.0)["more"] == [0, 0]
    assert metric.queries_needed(0.001)["needed"] == [None, None]
    (narrowest,) = set(metric.queries_needed(0.001)["narrowest"])
    assert narrowest == pytest.approx(float(width([100, 200])), rel=1e-9)
    assert metric.queries_needed(narrowest * 1.0001)["needed"] == [100, 200]
    assert metric.queries_needed(narrowest * 0.9999)["needed"] == [None, None]


# ---- layouts, state, wrong calls -----------------------------------------------------------------------------------


def test_label_minus_100_marks_queries_that_people_have_not_judged():
    (scores, *_), labels, judged = batch_judged(50), torch.arange(50) % 8, torch.arange(50) % 2 == 0
    one, other = tr.Rectified("mrr"), tr.Rectified("mrr")
    one.update(scores, labels, human=torch.where(judged, (labels + 1) % 8, -100))
    other.update(scores, labels, human=(labels + 1) % 8, judged=judged)
    assert one.summary().rows == other.summary().rows
    assert one.summary()["human"] == [25]


def test_rankings_and_batches_without_people_and_weights_are_taken():
    scores, people, model = batch_judged(60)
    weights = torch.rand(60, generator=torch.Generator().manual_seed(0))
    tensors, rankings = tr.Rectified(NAMES_JUDGED), tr.Rectified(NAMES_JUDGED)
    tensors.update(scores[:40], model[:40], human=people[:40], weights=weights[:40])
    tensors.update(scores[40:], model[40:], weights=weights[40:])
    judge, human = (tr.Ranking.from_scores(scores, grades) for grades in (model, people))
    rankings.update(judge, human=human, judged=torch.arange(60) < 40, weights=weights)
    for one, other in zip(tensors.summary(), rankings.summary()):
        assert list(one.values()) == pytest.approx(list(other.values()))
    y, f = (tr.MRR().score(scores, grades) for grades in (people, model))
    at = slice(0, 40)
    mean = (f * weights).sum() / weights.sum() - (f * weights)[at].sum() / weights[at].sum()
    row = tensors.summary().rows[1]
    assert row["value"] == pytest.approx(float((y * weights)[at].sum() / weights[at].sum() + row["weight"] * mean))


def test_without_people_there_is_no_value_and_with_one_query_no_interval():
    scores, people, model = batch_judged(20)
    metric = tr.Rectified("mrr")
    metric.update(scores, model)
    (row,) = metric.summary()
    assert [math.isnan(row["value"]), math.isnan(row["low"]), row["human"]] == [True, True, 0]
    with pytest.raises(ValueError, match="two or more queries of each stratum"):
        metric.queries_needed(0.1)
    metric.update(scores, model, human=people, judged=torch.arange(20) == 3)
    (row,) = metric.summary()
    assert row["value"] == pytest.approx(tr.MRR().score(scores, people)[3].item())
    assert [math.isnan(row["low"]), row["weight"]] == [True, 0]


def test_wrong_people_strata_and_tests_raise_with_a_way_out_that_works():
    scores, people, model = batch_judged(20)
    for judged in (torch.arange(20), torch.ones(3, dtype=torch.bool)):
        with pytest.raises(ValueError, match=r"Expected judged to be bool of shape \[20\]"):
            tr.Rectified("mrr").update(scores, model, human=people, judged=judged)
    human = tr.Ranking.from_label(scores[:3], torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="Expected human to have the 20 queries"):
        tr.Rectified("mrr").update(tr.Ranking.from_scores(scores, model), human=human)
    with pytest.raises(ValueError, match="got shape") as raised:
        tr.Rectified("mrr").update(scores, model, human=people[:15])
    assert "target is human= here" in raised.value.__notes__[0]
    metric = tr.Rectified("mrr", ["a", "b"], strata=2)
    both = {"a": scores, "b": -scores}
    with pytest.raises(TypeError, match=r"Expected strata .*; pass strata= to every update"):
        metric.update(both, model, human=people)
    metric.update(both, model, human=people, strata=torch.arange(20) % 3)
    with pytest.raises(ValueError, match="one of the strata 0, 1, got 6 in none or in several; pass strata="):
        metric.compute()
    metric.reset()
    metric.update(both, model, human=people, strata=torch.arange(20) % 2)
    with pytest.raises(ValueError, match=r"Expected test to be 't' in Rectified.*; take test='t'"):
        metric.comparison(test="tukey")
    assert len(metric.comparison(test="t").rows) == 1
    named, numbers = (tr.Rectified("mrr", strata=["even", "odd"]) for _ in range(2))
    named.update(scores, model, human=people, strata=["even", "odd"] * 10)
    numbers.update(scores, model, human=people, strata=torch.arange(20) % 2)
    assert named.summary() == numbers.summary()
    named.update(scores, model, human=people, strata=["even", "none"] * 10)
    with pytest.raises(ValueError, match=r"even, odd, got 10 in none or in several, e\.g\. 'none'; pass strata="):
        named.compute()
    judged = torch.ones(20, dtype=torch.bool)
    for call, message in (
        (lambda: tr.Rectified("mrr").comparison(), "two or more systems to compare, got one; pass systems="),
        (lambda: tr.Rectified("mrr").update(scores, model, judged=judged), "people with judged, .*; pass human="),
        (lambda: metric.queries_needed(0), "Expected width to be positive, got 0"),
        (lambda: tr.Rectified("gmap"), "Expected arithmetic means over queries in Rectified"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert len(Kind) == 4
