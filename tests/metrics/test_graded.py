"""Graded measures: empty queries, and digits of long ties and large gains."""

from fractions import Fraction

import pytest
import torch

import torchrank as tr
from torchrank.metrics import GradedMetric
from torchrank.ranking.ranking import only


class BehindTheFirst(GradedMetric):
    """Gains behind the first rank."""

    name = "behindthefirst"

    @property
    def discount_function(self):
        return lambda rank: (rank > 1).double()


class FromTwoOn(GradedMetric):
    """Gains, if the largest one is at least 2."""

    name = "fromtwoon"

    def ideal(self, ranking):
        return only(super().ideal(ranking) >= 2, super().ideal(ranking))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("own", [BehindTheFirst, FromTwoOn])
def test_a_metric_of_the_user_leaves_empty_queries_of_others_alone(own, first):
    scores, grades = torch.tensor([[3.0, 2.0, 1.0]] * 3), torch.tensor([[0, 0, 1], [0, 0, 0], [0, 1, 2]])
    one, other = (metric(top_k=1, empty_target_action="skip") for metric in (own, tr.NDCG))
    suite = tr.RankingCollection([one, other] if first else [other, one])
    for metric, empty in ((one, [True, True, own is BehindTheFirst]), (other, [False, True, False])):
        assert suite.score(scores, grades)[metric.label].isnan().tolist() == empty
        assert metric.score(scores, grades).isnan().tolist() == empty


@pytest.mark.parametrize("first", [0, 1])
def test_an_ideal_value_that_underflows_leaves_other_measures_alone(first):
    names = ["ndcg(log_base=1.2,empty_target_action=skip)", "cg(empty_target_action=skip)"]
    grades = torch.tensor([[0.0, 5e-324]], dtype=torch.float64)
    found = tr.RankingCollection(names[first:] + names[:first]).score(grades.flip(-1), grades)
    assert found[names[0]].isnan()
    assert found[names[1]] == 5e-324


def test_a_list_whose_first_rank_has_no_discount_is_not_empty():
    def second(rank):
        return (rank == 2).to(rank.dtype)

    metric = tr.DCG(discount=second, empty_target_action="skip")
    assert metric.score(torch.tensor([[2.0, 1.0]]), torch.tensor([[1, 3]])).tolist() == [3]


def test_a_list_of_unknown_length_reaches_the_cutoff_of_a_position_weighted_average():
    ranking = tr.Ranking.from_ranks(torch.tensor([[1], [3], [4]]))
    assert tr.PWA(top_k=3).score(ranking).tolist() == pytest.approx([6 / 11, 2 / 11, 0])
    assert tr.PWA().score(ranking).isnan().all()


def test_ties_far_behind_the_relevant_candidates():
    # Beyond the ideal order the sums come from digamma functions.
    n, behind = 3000, 500
    scores = torch.cat([torch.arange(behind, 0, -1), torch.zeros(n)]).double().unsqueeze(0)
    target = torch.zeros(1, n + behind, dtype=torch.int64)
    target[0, [3, 40, behind + 5, behind + 77]] = torch.tensor([1, 3, 2, 1])
    ideal = [3, 5, 6] + [7] * (n + behind)
    alone = (1 + 1) / (4 + 7) + (2 + 4) / (41 + 7)
    shared = 0.0
    for grade, other in ((2, 1), (1, 2)):
        for j in range(n):
            count, gained = 2 + 1 + j / (n - 1), 4 + grade + other * j / (n - 1)
            shared += (count + gained) / (behind + 1 + j + ideal[behind + j]) / n
    pairs = target.nonzero()
    for arguments in ((scores, target), (scores, (*pairs.T, target[tuple(pairs.T)]))):
        assert tr.QMeasure().score(*arguments).item() == pytest.approx((alone + shared) / 4, rel=1e-12)


def test_equal_grades_are_one_level_for_any_rounding_of_gains():
    grades = torch.tensor([0, 0.5, 0.5, 0.5, 0.5, 0.5]).expand(9, -1)
    values = tr.RNDCG(gain="exponential").score(torch.arange(6.0).flip(0).expand(9, -1), grades)
    torch.testing.assert_close(values, values[:1].expand(9), rtol=1e-12, atol=0)


def test_q_measure_of_three_huge_gains_in_a_long_tie_group_keeps_its_digits():
    size, gain = 500, 10**12
    # A relevant candidate is as likely at each rank p, and each of the two others before it with (p - 1) / 499.
    ranks = range(1, size + 1)
    at_ranks = [Fraction((1 + gain) * (size + 2 * p - 3), (size - 1) * (p + gain * min(p, 3))) for p in ranks]
    grades = torch.zeros(1, size, dtype=torch.int64).index_fill(1, torch.tensor([7, 80, 400]), gain)
    for metric in (tr.QMeasure(), tr.QMeasure(top_k=500)):
        found = metric.score(torch.ones(1, size), grades).item()
        assert found == pytest.approx(float(sum(at_ranks) / size), rel=1e-13)
