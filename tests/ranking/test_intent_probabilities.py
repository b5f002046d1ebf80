"""Probabilities of intents: a weight of 2 is a subtopic that is there twice."""

import pickle

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from torchrank.metrics import IntentMetric

NAMES = sorted(name for name, cls in tr.RankingMetric.registry.items() if issubclass(cls, IntentMetric))
SCORES = torch.tensor([[0.9, 0.8, 0.1]])
TARGET = torch.tensor([[[1, 0], [1, 1], [0, 0]]])


def batch(queries=40, candidates=5, subtopics=3):
    generator = torch.Generator().manual_seed(5)
    scores = torch.randint(0, 4, (queries, candidates), generator=generator).double()
    target = torch.randint(-1, 3, (queries, candidates, subtopics), generator=generator).clamp_max(1)
    counts = torch.randint(0, 4, (queries, subtopics), generator=generator)
    counts[:, 0] = counts[:, 0].clamp_min(1)
    return scores, target, counts


@cases("top_k", [None, 2])
@cases("name", NAMES)
def test_a_subtopic_of_twice_the_probability_counts_twice(name, top_k):
    scores, target, counts = batch()
    metric = tr.RankingMetric.registry[name](top_k, empty_target_action="skip")
    found = metric.score(tr.Ranking.from_scores(scores, target).with_intents(counts.double() / 7))
    repeated = [grades.repeat_interleave(repeats, dim=-1) for grades, repeats in zip(target, counts)]
    widest = max(grades.shape[-1] for grades in repeated)  # others get subtopics of which nothing is relevant
    repeated = torch.stack([torch.nn.functional.pad(grades, (0, widest - grades.shape[-1])) for grades in repeated])
    want = metric.score(scores, repeated)
    if name == "alphadcg":  # a sum over subtopics: the weights have the mean 1
        there, there_repeated = ((grades > 0).any(1).sum(-1) for grades in (target, repeated))
        want = torch.where(there > 0, want * there / there_repeated, want)
    torch.testing.assert_close(found, want, rtol=1e-10, atol=1e-12, equal_nan=True)
    assert (~found.isnan()).sum() > 20


@pytest.mark.parametrize("name", NAMES)
def test_equal_probabilities_change_nothing(name):
    scores, target, _ = batch()
    metric = tr.RankingMetric.registry[name](3)
    ranking = tr.Ranking.from_scores(scores, target)
    equal = ranking.with_intents(torch.full((3,), 0.25))
    torch.testing.assert_close(metric.score(equal), metric.score(ranking), rtol=1e-12, atol=0)


def test_worked_example():
    ranking = tr.Ranking.from_scores(SCORES, TARGET).with_intents(torch.tensor([[0.75, 0.25]]))
    assert tr.PIA(2).score(ranking).item() == pytest.approx(0.75 * 2 / 2 + 0.25 * 1 / 2)
    assert tr.ERRIA().score(ranking).item() == pytest.approx(0.75 * (1 / 2 + 1 / 4 / 2) + 0.25 * 1 / 4)
    # weights 1.5 and 0.5; the second candidate gains 2 at first, and 1.5 / 2 + 0.5 behind it
    assert tr.AlphaDCG(1).score(ranking).item() == pytest.approx(1.5)
    assert tr.AlphaNDCG(1).score(ranking).item() == pytest.approx(1.5 / 2)


def test_probabilities_follow_their_queries():
    scores, target, counts = batch()
    ranking = tr.Ranking.from_scores(scores, target).with_intents(counts)
    want = tr.ERRIA(3).score(ranking)
    rows = torch.tensor([7, 3, 20])
    torch.testing.assert_close(tr.ERRIA(3).score(ranking.take(rows)), want[rows], rtol=0, atol=0)
    copied = pickle.loads(pickle.dumps(ranking))
    torch.testing.assert_close(tr.ERRIA(3).score(copied), want, rtol=0, atol=0)
    suite = tr.RankingCollection({"one": tr.ERRIA(3), "other": tr.ERRIA(3, unjudged="condensed")})
    suite.update(ranking)
    judged = tr.Ranking.from_scores(scores, target, mask=(target >= 0).any(-1)).with_intents(counts)
    assert suite.compute()["one"].item() == pytest.approx(want.mean().item(), rel=1e-6)
    assert suite.compute()["other"].item() == pytest.approx(tr.ERRIA(3).score(judged).mean().item(), rel=1e-6)


def test_a_query_without_a_probable_intent_is_empty():
    ranking = tr.Ranking.from_scores(SCORES, TARGET).with_intents(torch.zeros(2))
    assert tr.PIA(empty_target_action="skip").score(ranking).isnan().all()


def test_errors():
    ranking = tr.Ranking.from_scores(SCORES, TARGET)
    with pytest.raises(ValueError, match=r"shape \[2\] or \[1, 2\], got \[3\]"):
        ranking.with_intents(torch.ones(3))
    with pytest.raises(ValueError, match="finite and >= 0"):
        ranking.with_intents(torch.tensor([0.5, -0.5]))
    with pytest.raises(ValueError, match="with subtopics"):
        tr.Ranking.from_scores(SCORES, TARGET[..., 0]).with_intents(torch.ones(1))
    with pytest.raises(TypeError, match="probabilities"):
        ranking.with_intents((0.5, 0.5))
