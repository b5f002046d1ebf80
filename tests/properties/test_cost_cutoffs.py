"""Cutoffs by cost against every order that ties leave open, each walked until the budget is spent."""

import itertools
import math
from collections import Counter
from fractions import Fraction
from statistics import fmean

import pytest
import torch

import torchrank as tr
from tests.support.random_batches import rng
from torchrank.ranking import budgets

MEASURES = ["recall", "hitrate", "ndcg", "precision", "map"]


def lists(seed, levels, width=4, queries=6):
    scores = torch.randint(0, levels, (queries, width), generator=rng(seed)).double()
    scores[torch.rand(scores.shape, generator=rng(seed + 1)) < 0.1] = -math.inf
    grades = torch.randint(0, 3, scores.shape, generator=rng(seed + 2))
    costs = torch.randint(0, 5, scores.shape, generator=rng(seed + 3)) * 100
    return scores, grades, costs


def orders(scores):
    """Every order of the retrieved candidates, best first."""
    found = [i for i, score in enumerate(scores) if score > -math.inf]
    groups = [[i for i in found if scores[i] == one] for one in sorted({scores[i] for i in found}, reverse=True)]
    for choice in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield list(itertools.chain(*choice))


def within(order, costs, budget):
    """The number of candidates from the first on that fit."""
    spent = list(itertools.accumulate(costs[i] for i in order))
    return sum(one <= budget for one in spent)


def expected(name, scores, grades, costs, budget):
    """The mean over all orders of the measure at that rank."""
    by_rank = {}
    for order in orders(scores):
        by_rank.setdefault(within(order, costs, budget), []).append(order)
    relevant, values = torch.tensor(grades).nonzero().flatten(), []
    for k, several in by_rank.items():
        ids = torch.full((len(several), len(scores)), -1)
        if k:
            ids[:, : len(several[0])] = torch.tensor(several)
        query, item = torch.cartesian_prod(torch.arange(len(several)), relevant).reshape(-1, 2).T
        target = query, item, torch.tensor(grades)[item]
        values += tr.parse(f"{name}@{max(1, k)}").score(ids, target).tolist()
    return fmean(values)


@pytest.mark.parametrize(("name", "levels"), zip(MEASURES, [2, 4, 1000, 4, 2]))
def test_a_budget_has_the_mean_over_all_orders_of_ties(name, levels):
    scores, grades, costs = lists(levels, levels)
    for budget in (50, 300, 500):
        metric = tr.parse(f"{name}@{budget}tok")
        got = metric.score(tr.Ranking.from_scores(scores, grades, cost=costs))
        want = [expected(name, *(x.tolist() for x in one), budget) for one in zip(scores, grades, costs)]
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=1e-10, atol=1e-12)


def test_costs_of_a_catalogue_labels_masks_and_lists_of_ids_are_read():
    scores, cost = torch.rand(4, 9, generator=rng(1)), torch.randint(1, 9, (9,), generator=rng(2))
    mask, labels = torch.rand(4, 9, generator=rng(3)) < 0.7, torch.tensor([0, 3, -1, 8])
    metric = tr.parse("hitrate@10tok")
    got = metric.score(tr.Ranking.from_scores(scores, labels, mask=mask, cost=cost))
    ids = scores.masked_fill(~mask, -1).argsort(descending=True)
    ids = ids.masked_fill(~mask.gather(1, ids), -1)
    assert got.equal(metric.score(tr.Ranking.from_ids(ids, labels, cost=cost)))
    assert got.equal(metric.score(tr.Ranking.from_ids(ids, labels, cost=cost[ids.clamp_min(0)])))
    for row, value in enumerate(got.tolist()):
        order = [i for i in ids[row].tolist() if i >= 0]
        assert value == (labels[row].item() in order[: within(order, cost.tolist(), 10)])


def test_a_collection_takes_the_ranking_and_several_budgets():
    scores, grades, costs = lists(3, 1000)
    ranking = tr.Ranking.from_scores(scores, grades, cost=costs)
    suite = tr.RankingCollection("recall@300tok,500tok ndcg@3")
    suite.update(ranking)
    wanted = {label: tr.parse(label).score(ranking).mean().float() for label in ("recall@300tok", "recall@500tok")}
    torch.testing.assert_close(suite.compute(), wanted | {"ndcg@3": tr.NDCG(3)(scores, grades)})


def test_a_tie_break_decides_the_order_within_the_budget():
    scores, cost = torch.tensor([[1.0, 1.0]]), torch.tensor([100, 300])
    target = torch.tensor([[0, 1]])
    for tie_break, want in (([[0, 1]], 1.0), ([[1, 0]], 0.0), (None, 0.5)):
        given = {"tie_break": torch.tensor(tie_break)} if tie_break else {}
        ranking = tr.Ranking.from_scores(scores, target, cost=cost, **given)
        assert tr.parse("recall@300tok").score(ranking) == want


def test_many_ties_of_one_cost_or_none_that_fits_are_exact():
    scores, target = torch.zeros(1, 500), (torch.arange(500) < 5).long().unsqueeze(0)
    ranking = tr.Ranking.from_scores(scores, target, cost=torch.full((500,), 20))
    assert tr.parse("recall@2000tok").score(ranking).item() == pytest.approx(100 / 500)
    before = torch.nn.functional.pad(scores, (1, 0), value=1.0), torch.nn.functional.pad(target, (1, 0))
    cost = torch.full((501,), 20).index_fill(0, torch.tensor([0]), 40)  # the first candidate is not tied
    ranking = tr.Ranking.from_scores(*before, cost=cost)
    assert tr.parse("recall@2000tok").score(ranking).item() == pytest.approx(98 / 500)
    ranking = tr.Ranking.from_scores(scores, target, cost=torch.arange(500) + 2001)  # none of them can be paid
    assert tr.parse("recall@2000tok").score(ranking) == 0
    ranking = tr.Ranking.from_scores(scores, target, cost=torch.arange(500), tie_break=torch.arange(500))
    assert tr.parse("recall@2000tok").score(ranking) == 0
    # Three times 0.1 is a little more than 0.3 in binary.
    ranking = tr.Ranking.from_scores(scores, target, cost=torch.full((500,), 0.1, dtype=torch.float64))
    assert tr.parse("recall@0.3tok").score(ranking).item() == pytest.approx(3 / 500)


def mean_recall(relevant, costs, budget):
    """Expected recall of tied candidates by the number of sets of each size and cost, for integer costs."""
    total = 0
    for i in relevant:
        ways = Counter({(0, 0): 1})  # of the other candidates, by number and cost
        for j, cost in enumerate(costs):
            if j != i:
                ways += Counter({(n + 1, spent + cost): times for (n, spent), times in ways.items()})
        fits = [(n, times) for (n, spent), times in ways.items() if spent + costs[i] <= budget]
        # A set of n others and then i begin an order with probability 1 / (C(m - 1, n) m).
        total += sum(Fraction(times, math.comb(len(costs) - 1, n) * len(costs)) for n, times in fits)
    return float(total / len(relevant))


@pytest.mark.parametrize(("tied", "error"), [(8, 1e-12), (11, 1e-12), (12, 0.02), (25, 0.02)])
def test_ties_are_exact_up_to_eleven_and_within_the_stated_error_beyond(tied, error):
    costs = torch.randint(0, 30, (3, tied), generator=rng(tied))
    grades = (torch.rand(3, tied, generator=rng(1)) < 0.3).long()
    grades[:, 0] = 1
    got = tr.parse("recall@60tok").score(tr.Ranking.from_scores(torch.zeros(3, tied), grades, cost=costs))
    want = [mean_recall(g.nonzero().flatten().tolist(), c.tolist(), 60) for g, c in zip(grades, costs)]
    assert got.tolist() == pytest.approx(want, abs=error)


def test_values_of_many_ties_depend_neither_on_the_order_of_candidates_nor_on_the_batch():
    costs, grades = (torch.randint(0, high, (4, 40), generator=rng(high)) for high in (30, 3))
    scores = (torch.arange(40) < torch.tensor([[40], [13], [5], [30]])).double()
    metric = tr.parse("ndcg@60tok")
    got = metric.score(tr.Ranking.from_scores(scores, grades, cost=costs))
    order = torch.randperm(40, generator=rng(0))
    for row in range(4):
        one = [x[row, order].unsqueeze(0) for x in (scores, grades, costs)]
        assert metric.score(tr.Ranking.from_scores(*one[:2], cost=one[2])).item() == pytest.approx(got[row].item())


@pytest.mark.parametrize("ties", ["optimistic", "pessimistic"])
def test_the_best_and_the_worst_order_also_rank_equal_grades_by_cost(ties):
    for seed in range(3):
        scores, grades, costs = lists(seed, 2, width=6, queries=1)
        order = sorted(range(6), key=lambda i: (grades[0, i], -costs[0, i]), reverse=ties == "optimistic")
        tie_break = torch.empty(6).scatter(0, torch.tensor(order), -torch.arange(6.0))
        for name in MEASURES:
            broken = tr.Ranking.from_scores(scores, grades, cost=costs, tie_break=tie_break)
            got = tr.parse(f"{name}(ties={ties})@300tok").score(tr.Ranking.from_scores(scores, grades, cost=costs))
            assert got.item() == pytest.approx(tr.parse(f"{name}@300tok").score(broken).item())


@pytest.mark.parametrize("name", ["recall", "hitrate", "precision", "ndcg", "mrr"])
def test_bounds_are_the_extremes_over_judgments_of_the_mean_over_orders(name):
    bounds = [tr.parse(f"{name}(unjudged={end})@300tok") for end in ("lower", "upper")]
    for seed in range(4):
        scores, grades, costs = lists(seed, 1 + seed % 3, queries=1)
        grades[torch.rand(grades.shape, generator=rng(seed)) < 0.5] = -1
        unjudged, values = (grades[0] < 0).nonzero().flatten(), []
        for choice in itertools.product((0, 1), repeat=len(unjudged)):
            judged = grades[0].index_put((unjudged,), torch.tensor(choice, dtype=torch.int64))
            values.append(expected(name, scores[0].tolist(), judged.tolist(), costs[0].tolist(), 300))
        ranking = tr.Ranking.from_scores(scores, grades, cost=costs)
        assert [metric.score(ranking).item() for metric in bounds] == pytest.approx([min(values), max(values)])


def test_bounds_of_more_ties_than_are_tried_contain_the_value_of_each_judgment():
    scores, costs = torch.zeros(1, 10), torch.randint(1, 9, (1, 10), generator=rng(0))
    ranking = tr.Ranking.from_scores(scores, torch.full((1, 10), -1), cost=costs)
    low, high = (tr.parse(f"hitrate(unjudged={end})@12tok").score(ranking).item() for end in ("lower", "upper"))
    for seed in range(20):
        grades = torch.randint(0, 2, (1, 10), generator=rng(seed))
        value = tr.parse("hitrate@12tok").score(tr.Ranking.from_scores(scores, grades, cost=costs)).item()
        assert low <= value <= high
    with pytest.raises(ValueError, match="whose cutoff depends on the judgments"):
        tr.parse("hitrate(unjudged=upper,ties=optimistic)@12tok")


def test_candidates_that_are_removed_cost_nothing():
    scores, grades, costs = lists(0, 3, width=5)
    grades[:, ::2] = -1
    got = tr.parse("recall(unjudged=condensed)@300tok").score(tr.Ranking.from_scores(scores, grades, cost=costs))
    judged = tr.Ranking.from_scores(scores[:, 1::2], grades[:, 1::2], cost=costs[:, 1::2])
    assert got.tolist() == pytest.approx(tr.parse("recall@300tok").score(judged).tolist())


def test_a_query_without_a_value_in_some_orders_has_the_mean_of_the_others():
    ranking = tr.Ranking.from_scores(torch.zeros(1, 2), torch.tensor([[1, -1]]), cost=torch.tensor([1, 9]))
    # The first of two ties fits, or nothing was retrieved.
    assert tr.parse("judged@5tok").score(ranking) == 0.5
    assert tr.parse("judged(empty_target_action=skip)@5tok").score(ranking) == 1


def test_lists_without_candidates_have_nothing_within_a_budget():
    for ranking in (
        tr.Ranking.from_scores(torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.int64), cost=torch.zeros(2, 0)),
        tr.Ranking.from_scores(torch.zeros(2, 0), torch.tensor([-1, -1]), cost=torch.zeros(0)),
        tr.Ranking.from_ids(torch.zeros(2, 0, dtype=torch.int64), torch.tensor([3, 4]), cost=torch.ones(9)),
        tr.Ranking.from_ids(torch.full((2, 3), -1), torch.tensor([3, 4]), cost=torch.ones(9)),
    ):
        assert tr.parse("recall@9tok").score(ranking).tolist() == [0, 0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
def test_bad_costs_are_counted_and_raise_in_compute_but_those_of_padding_are_not_read(bad):
    scores, grades, cost = torch.rand(2, 3), torch.ones(2, 3), torch.tensor([[1, bad, 2], [1, 2, bad]])
    ids, label, good = torch.arange(3).repeat(2, 1), torch.tensor([0, 1]), cost.isfinite() & (cost >= 0)
    message = "2 query weights that are negative or not finite, or such costs of candidates; expected finite"
    metric = tr.parse("recall@9tok")
    metric.update(tr.Ranking.from_scores(scores, grades, cost=cost))
    with pytest.raises(ValueError, match=message):
        metric.compute()
    with pytest.raises(ValueError, match=message):
        metric.score(tr.Ranking.from_ids(ids, label, cost=cost))
    for unread in (
        tr.Ranking.from_scores(scores, grades, mask=good, cost=cost),
        tr.Ranking.from_scores(scores.masked_fill(~good, -math.inf), grades * good, cost=cost),
        tr.Ranking.from_ids(ids.masked_fill(~good, -1), label, cost=cost),
    ):
        assert metric.score(unread).tolist() == [1, 1]


def test_costs_that_cannot_be_used_are_refused():
    scores, target = torch.rand(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"ranking with costs for recall@9tok; pass Ranking.from_scores\(..., cost="):
        tr.parse("recall@9tok").score(scores, target)
    with pytest.raises(ValueError, match="shape of preds"):
        tr.Ranking.from_scores(scores, target, cost=torch.ones(2))
    with pytest.raises(ValueError, match=r"1 query weight that .*, or such a cost"):  # an id that has no cost
        tr.parse("recall@9tok").score(tr.Ranking.from_ids([[0, 2]], torch.tensor([0]), cost=torch.ones(2)))
    for other in ({"groups": [0, 0, 1]}, {"repeats": "first"}, {"exclude": [torch.tensor([1])]}):
        with pytest.raises(ValueError, match="no exclude, groups and repeats with cost"):
            tr.Ranking.from_ids([[0, 2]], torch.tensor([0]), cost=torch.ones(3), **other)
    for other in ({"exclude": [torch.tensor([1])] * 2}, {"groups": torch.tensor([0, 0, 1])}):
        with pytest.raises(ValueError, match="no exclude and no groups together with cost"):
            tr.Ranking.from_scores(scores, target, cost=torch.ones(3), **other)
    with pytest.raises(ValueError, match="a cost as '2000tok'"):
        tr.Recall("0tok")


def test_a_budget_has_the_mean_over_all_orders_of_candidates_with_subtopics():
    scores, _, costs = lists(2, 2)
    grades = torch.randint(0, 2, (*scores.shape, 2), generator=rng(9))
    got = tr.parse("alphandcg@300tok").score(tr.Ranking.from_scores(scores, grades, cost=costs))
    for value, row, graded, cost in zip(got.tolist(), scores.tolist(), grades, costs.tolist()):
        values = []
        for order in orders(row):
            number, places = within(order, cost, 300), torch.full((1, len(row)), -math.inf)
            places[0, order[:number]] = -torch.arange(float(number))
            values += tr.parse(f"alphandcg@{max(1, number)}").score(places, graded[None]).tolist()
        assert value == pytest.approx(fmean(values))


def test_rankings_of_tied_candidates_come_a_few_at_a_time_and_their_chances_add_up(monkeypatch):
    monkeypatch.setattr(budgets, "BLOCK", 64)
    ranking = tr.Ranking.from_scores(torch.zeros(3, 8), torch.ones(3, 8).long(), cost=2 ** torch.arange(8))
    query, chance, parts = zip(*budgets.prefixes(ranking, 100, "expected"))
    assert max(part.first.numel() for part in parts) < 2 * 64
    total = torch.zeros(3, dtype=torch.float64).index_add(0, torch.cat(query), torch.cat(chance))
    torch.testing.assert_close(total, torch.ones(3, dtype=torch.float64))
