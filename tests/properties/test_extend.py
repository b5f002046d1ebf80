"""A measure, a gain and a measure of lists of a user, made from `torchrank.extend` alone."""

import itertools
import math
import random
from dataclasses import dataclass
from statistics import mean
from types import SimpleNamespace

import pytest
import torch

import torchrank as tr
from torchrank import extend


@dataclass(frozen=True)
class Capped(extend.Gain):
    """The grade, but at most a cap."""

    cap: float

    monotone = True

    def __call__(self, grade):
        return grade.clamp(max=self.cap)


@dataclass(frozen=True)
class Halving:
    half_life: float

    def __call__(self, rank):
        return 0.5 ** ((rank - 1) / self.half_life)


@pytest.fixture
def own():
    """Measures of a user, which no other test finds."""

    class PatientGain(extend.GradedMetric):
        """The capped grades, discounted by a half-life, as a share of their sum."""

        name = "patientgain"

        half_life: float = extend.number(default=2, above=0)
        normalised: bool = extend.flag(default=True)

        def measure(self, ranking):
            gains = ranking.gains(Capped(2))
            total = (gains * ranking.mean_discount(Halving(self.half_life), self.top_k)).sum(-1)
            return extend.ratio(total, gains.sum(-1)) if self.normalised else total

    class LastRank(extend.BinaryMetric):
        """The last rank of a candidate that is not relevant, over the length of the list."""

        name = "lastrank"
        policies = ("optimistic", "pessimistic")

        def need(self):
            return extend.Need(all_candidates=True)

        def measure(self, ranking):
            other = ranking.valid & (ranking.tied > 0) & ~ranking.relevant(self.relevance_level)
            return extend.ratio((ranking.first * other).amax(-1), ranking.num_candidates)

    class Share(extend.BinaryMetric):
        """Recall, as a sum and its divisor."""

        name = "share"

        def numerator(self, ranking):
            return ranking.hits(self.relevance_level, self.top_k)

        def denominator(self, ranking):
            return ranking.num_relevant(self.relevance_level)

    class MeanPrice(extend.PerUserMetric):
        name = "meanprice"
        value_range = (0.0, math.inf)

        prices: torch.Tensor = extend.described()

        def describe(self, prices):
            return {"prices": prices}, len(prices)

        def measure(self, lists):
            return lists.mean(self.prices[lists.ids])

    return SimpleNamespace(PatientGain=PatientGain, LastRank=LastRank, Share=Share, MeanPrice=MeanPrice)


def orders(scores, grades):
    """The grades in every order that the scores allow."""
    for order in itertools.permutations(range(len(scores))):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            yield [grades[item] for item in order]


def patient_gain(grades, half_life, top_k):
    gains = [min(grade, 2) for grade in grades]
    return sum(gain * 0.5 ** (n / half_life) for n, gain in enumerate(gains[:top_k])) / (sum(gains) or 1)


def last_rank(grades):
    return max([rank for rank, grade in enumerate(grades, 1) if grade < 1], default=0) / len(grades)


draw = random.Random(0)
QUERIES = [([draw.randrange(3) for _ in range(5)], [draw.randrange(4) for _ in range(5)]) for _ in range(60)]
SCORES = torch.tensor([scores for scores, _ in QUERIES], dtype=torch.float32)
GRADES = torch.tensor([grades for _, grades in QUERIES])


def test_a_graded_measure_is_the_mean_over_all_orders_of_ties(own):
    expected = [mean(patient_gain(order, 3, 4) for order in orders(*query)) for query in QUERIES]
    assert own.PatientGain(4, half_life=3).score(SCORES, GRADES).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("ties", "extreme"), [("optimistic", max), ("pessimistic", min)])
def test_a_measure_of_all_candidates_is_that_of_the_best_or_worst_order(own, ties, extreme):
    # relevant candidates first, in the best order, move the others behind them
    expected = [extreme(map(last_rank, orders(*query))) for query in QUERIES]
    assert own.LastRank(ties=ties).score(SCORES, GRADES).tolist() == pytest.approx(expected)


def test_a_sum_and_its_divisor_give_the_value_and_the_bounds_of_differences(own):
    other, unjudged = SCORES.flip(1), GRADES - 1
    assert torch.equal(own.Share(2).score(SCORES, GRADES), tr.Recall(2).score(SCORES, GRADES))
    for got, want in zip(*(tr.difference_bounds(cls(2), SCORES, other, unjudged) for cls in (own.Share, tr.Recall))):
        assert torch.equal(got, want)


def test_a_collection_gives_cutoffs_and_the_label_parses_back(own):
    suite = tr.RankingCollection(["patientgain(half_life=3)@1,4", "ndcg@2"])
    suite.update(SCORES, GRADES)
    assert list(suite.compute()) == ["patientgain(half_life=3)@1", "patientgain(half_life=3)@4", "ndcg@2"]
    assert tr.parse("patientgain(half_life=3)@4").half_life == 3


def test_a_measure_of_lists_reads_the_data_of_the_catalogue(own):
    metric = own.MeanPrice(top_k=2, prices=torch.tensor([10.0, 2.5, 40.0]))
    metric.update(torch.tensor([[2, 0, 1], [1, 0, -1]]))
    assert metric.compute().item() == pytest.approx(((40 + 10) / 2 + (2.5 + 10) / 2) / 2)


def test_every_name_is_documented():
    assert all(f"`{name}`" in extend.__doc__ for name in extend.__all__)


def test_a_normalised_measure_computes_its_ideal_once_and_a_subclass_with_a_formula_decides_what_is_empty():
    asked = []

    class Asking(tr.NDCG):
        name = "askingndcg"

        def ideal(self, ranking):
            asked.append("ideal")
            return super().ideal(ranking)

    class Doubled(Asking):
        name = "doubledndcg"

        def measure(self, ranking):
            return 2 * super().measure(ranking)

        def empty(self, ranking):
            asked.append("empty")
            return super().empty(ranking)

    scores, grades = torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([[1, 0], [0, 0]])
    assert Asking(empty_target_action="pos").score(scores, grades).tolist() == [1, 1]
    assert asked == ["ideal"]
    assert Doubled(empty_target_action="pos").score(scores, grades).tolist() == [2, 1]
    assert "empty" in asked


@pytest.mark.parametrize("relevant", [[1, 1], [1, 0]])
def test_a_measure_of_ones_own_may_return_integers(relevant):
    class Found(tr.metrics.BinaryMetric):
        name = "found"

        def measure(self, ranking):
            return ranking.hit(1).sum(-1)

    scores, target = torch.rand(2, 3), torch.tensor(relevant).unsqueeze(-1).expand(2, 3)
    metric = Found()
    metric.update(scores, target)
    assert metric.compute() == 3 * sum(relevant) / 2
    assert metric.score(scores, target).is_floating_point()


def test_a_wrong_measure_of_ones_own_is_refused():
    class Wide(tr.metrics.BinaryMetric):
        name = "wide"

        def measure(self, ranking):
            return ranking.first

    class Undefined(tr.metrics.BinaryMetric):
        name = "undefined"

    scores, target = torch.rand(2, 3), torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"Wide.measure to return .* \[query\], here 2 values, got shape \[2, 3\]"):
        Wide().score(scores, target)
    with pytest.raises(NotImplementedError, match=r"Undefined to define measure"):
        Undefined().score(scores, target)
