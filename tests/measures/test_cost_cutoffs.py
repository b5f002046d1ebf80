"""Cutoffs by cost against every order that ties leave open, each walked until the budget is spent."""

import itertools
import math
from statistics import fmean

import pytest
import torch

import torchrank as tr
from tests.support.random_batches import rng

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


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("levels", [2, 4, 1000])
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


def test_update_collections_and_wrappers_take_the_ranking():
    scores, grades, costs = lists(3, 1000)
    ranking = tr.Ranking.from_scores(scores, grades, cost=costs)
    suite = tr.RankingCollection("recall@300tok,500tok ndcg@3")
    assert list(suite) == ["recall@300tok", "recall@500tok", "ndcg@3"]
    suite.update(ranking)
    sliced = tr.Sliced("recall@300tok", 2)
    sliced.update(ranking, slices=torch.arange(6) % 2)
    one = tr.parse("recall@300tok").score(ranking)
    assert suite.compute()["recall@300tok"].item() == pytest.approx(one.mean().item(), rel=1e-6)
    assert sliced.compute()["recall@300tok/1"].item() == pytest.approx(one[1::2].mean().item(), rel=1e-6)
    assert suite.compute()["ndcg@3"] == tr.NDCG(3)(scores, grades)


def test_a_tie_break_decides_the_order_within_the_budget():
    scores, cost = torch.tensor([[1.0, 1.0]]), torch.tensor([100, 300])
    target = torch.tensor([[0, 1]])
    for tie_break, want in (([[0, 1]], 1.0), ([[1, 0]], 0.0), (None, 0.5)):
        given = {"tie_break": torch.tensor(tie_break)} if tie_break else {}
        ranking = tr.Ranking.from_scores(scores, target, cost=cost, **given)
        assert tr.parse("recall@300tok").score(ranking) == want


def test_many_ties_of_one_cost_are_exact_and_of_several_costs_say_the_way_out():
    scores, target = torch.zeros(1, 500), (torch.arange(500) < 5).long().unsqueeze(0)
    ranking = tr.Ranking.from_scores(scores, target, cost=torch.full((500,), 20))
    assert tr.parse("recall@2000tok").score(ranking).item() == pytest.approx(100 / 500)
    ranking = tr.Ranking.from_scores(scores, target, cost=torch.arange(500))
    with pytest.raises(ValueError, match=r"at most 6 ties of different costs .* pass tie_break to Ranking.from_scores"):
        tr.parse("recall@2000tok").score(ranking)
    ranking = tr.Ranking.from_scores(scores, target, cost=torch.arange(500) + 2001)  # none of them can be paid
    assert tr.parse("recall@2000tok").score(ranking) == 0
    ranking = tr.Ranking.from_scores(scores, target, cost=torch.arange(500), tie_break=torch.arange(500))
    assert tr.parse("recall@2000tok").score(ranking) == 0


def test_costs_that_cannot_be_used_are_refused():
    scores, target = torch.rand(2, 3), torch.tensor([0, 1])
    with pytest.raises(
        ValueError, match=r"ranking with costs for recall@9tok; pass Ranking.from_scores\(..., cost=...\)"
    ):
        tr.parse("recall@9tok").score(scores, target)
    for cost, words in ((torch.ones(2), "shape of preds"), (torch.tensor([1.0, -1, 0]), "costs >= 0")):
        with pytest.raises(ValueError, match=words):
            tr.Ranking.from_scores(scores, target, cost=cost)
    with pytest.raises(ValueError, match="costs >= 0, got a negative one or NaN"):  # an id that has no cost
        tr.Ranking.from_ids([[0, 2]], torch.tensor([0]), cost=torch.ones(2))
    for other in ({"groups": [0, 0, 1]}, {"repeats": "first"}, {"exclude": [torch.tensor([1])]}):
        with pytest.raises(ValueError, match="no exclude, groups and repeats with cost"):
            tr.Ranking.from_ids([[0, 2]], torch.tensor([0]), cost=torch.ones(3), **other)
    for other in ({"exclude": [torch.tensor([1])] * 2}, {"groups": torch.tensor([0, 0, 1])}):
        with pytest.raises(ValueError, match="no exclude and no groups together with cost"):
            tr.Ranking.from_scores(scores, target, cost=torch.ones(3), **other)
    with pytest.raises(ValueError, match="a cost as '2000tok'"):
        tr.Recall("0tok")
