"""Targets with subtopics: intent-aware measures against brute force, in all that a batch can go through.

A probability of 2 of an intent is a subtopic that is there twice.
"""

import math
import pickle
import random

import pytest
import torch

import torchrank as tr
from tests.support import layout_cases
from tests.support.cases import cases
from tests.support.oracle_comparison import FEW, MANY, assert_equal, configs_of
from tests.support.tie_orders import Query
from torchrank.formulas import cascades
from torchrank.layouts import canonical
from torchrank.metrics import IntentMetric

NAMES = sorted(name for name, cls in tr.RankingMetric.registry.items() if issubclass(cls, IntentMetric))
every_measure = pytest.mark.parametrize("name", NAMES)


def random_queries(seed, size, subtopics=3, longest=5, ties=True):
    rng = random.Random(seed)

    def grades():
        worth = (-1, 0, 0, 0, 1, 1, 2, 3) if rng.random() < 0.9 else (-1,)
        return tuple(rng.choice(worth) for _ in range(subtopics))

    found = [Query(), Query((), (grades(),)), Query(((0.0, (0,) * subtopics),))]
    for _ in range(size):
        length = rng.randint(0, longest)
        scores = [float(rng.randint(-1, 1)) for _ in range(length)]
        scores = scores if ties else [float(x) for x in rng.sample(range(9), length)]
        found.append(Query(tuple((x, grades()) for x in scores), tuple(grades() for _ in range(rng.choice((0, 0, 1))))))
    return found


def tensors(queries, subtopics=3, junk=0):
    """Scores, and grades of each subtopic; the missing, and padding, score -inf."""
    width = max(len(q.listed) + len(q.missing) for q in queries) + 1
    scores = torch.full((len(queries), width), -math.inf, dtype=torch.float64)
    target = torch.full((len(queries), width, subtopics), junk)
    order = random.Random(0)
    for row, query in enumerate(queries):
        columns = order.sample(range(width), len(query.listed) + len(query.missing))
        everyone = [*query.listed, *((-math.inf, grades) for grades in query.missing)]
        for column, (score, grades) in zip(columns, everyone):
            scores[row, column], target[row, column] = score, torch.tensor(grades)
    return scores, target


def assert_same(got, want):
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11, equal_nan=True)


def assert_values(config, queries, where, *arguments, **options):
    assert_equal(config, queries, layout_cases.scoring(config).score(*arguments, **options), where)


@every_measure
def test_every_parameter_equals_the_oracle_and_few_with_masks_exclusions_and_tie_breaks(name):
    queries = random_queries(name, 30)
    scores, target = tensors(queries)
    for config in configs_of(name, MANY):
        assert_values(config, queries, "subtopics", scores, target)
    hidden = (tensors(queries, junk=2)[1] != target).any(-1)
    masked = scores.masked_fill(hidden, math.nan), target.double().masked_fill(hidden.unsqueeze(-1), math.nan)
    first, pairs = scores.masked_fill(hidden, 9.0), tuple(hidden.nonzero().T)
    distinct = random_queries("ties", 40, ties=False)
    preds, of_distinct = tensors(distinct)
    coarse, fine = layout_cases.coarse(preds), layout_cases.fine(preds)
    for config in configs_of(name, FEW):
        assert_values(config, queries, "a mask", *masked, mask=~hidden)
        assert_values(config, queries, "excluded", first, target, exclude=pairs)
        assert_values(config, distinct, "tie breaks", coarse, of_distinct, tie_break=fine)


@every_measure
def test_blocks_and_rankings_are_one(name, monkeypatch):
    scores, target = tensors(random_queries("blocks", 13))
    metric = tr.RankingMetric.registry[name](top_k=3)
    want = metric.score(scores, target)
    ranking = tr.Ranking.from_scores(scores, target)
    assert_same(metric.score(ranking), want)
    assert torch.equal(ranking.grade.amax(-1), target.amax((-1, -2)))
    for module in (canonical, cascades):
        monkeypatch.setattr(module, "BLOCK", 64)
    assert_same(metric.score(scores, target), want)
    assert_same(metric.score(tr.Ranking.from_scores(scores, target)), want)


@every_measure
def test_padding_subtopics_and_their_order_and_that_of_candidates_change_nothing(name):
    scores, target = tensors(random_queries("padding", 60))
    metric = tr.RankingMetric.registry[name]()
    want = metric.score(scores, target)
    padded = torch.cat([torch.zeros_like(target[..., :1]), target, torch.full_like(target, -1)], -1)
    assert_same(metric.score(scores, padded), want)
    columns = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(0))
    assert_same(metric.score(scores[:, columns], target[:, columns]), want)
    if name not in ("alphandcg", "nerria", "nnrbp"):  # among equals the first subtopic decides which comes next
        assert_same(metric.score(scores, target.flip(-1)), want)


def test_other_measures_see_the_largest_grade():
    scores, target = tensors(random_queries("mixed", 60))
    names = ["alphandcg@2", "ndcg@2", "map(ties=optimistic)", "map(unjudged=lower)", "mr(filtered=True)", "strecall@1"]
    suite = tr.RankingCollection(names)
    values = suite.score(scores, target)
    for name in names:
        intent = name.startswith(("alpha", "st"))
        assert_same(values[name], tr.parse(name).score(scores, target if intent else target.amax(-1)))
    for rows in (slice(0, 1), slice(1, 9), slice(9, None), slice(0, 0)):
        suite.update(scores[rows], target[rows])
    suite = pickle.loads(pickle.dumps(suite))
    suite.update(tr.Ranking.from_scores(scores, target))
    for name, value in suite.compute().items():
        assert value.item() == pytest.approx(tr.parse(name)(scores, target).item(), rel=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 0), (2, 4, 2), (3, 3, 2), (2, 3, 2, 1)])
def test_a_target_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match="Expected target"):
        tr.AlphaNDCG().score(torch.zeros(2, 3), torch.zeros(shape))


@pytest.mark.parametrize("name", [name for name in NAMES if tr.RankingMetric.registry[name].takes_top_k])
def test_a_batch_whose_relevant_candidates_are_all_tied_behind_the_cutoff(name):
    metric = tr.RankingMetric.registry[name](top_k=1)
    assert metric.score(torch.tensor([[3.0, 2.0, 1.0, 1.0]]), [torch.tensor([2, 3])]).tolist() == [0]


def test_a_bad_grade_of_any_subtopic_is_found():
    target = torch.zeros(1, 3, 2)
    target[0, 1, 1] = math.nan
    with pytest.raises(ValueError, match="grade"):
        tr.PIA().score(torch.zeros(1, 3), target)


# ---- worked examples and other libraries -----------------------------------------------------------------------------


def nuggets(*found, of=5):
    return torch.tensor([[[int(s in one) for s in range(of)] for one in found]])


def test_the_list_of_clarke_et_al():
    # Gains 2, 1/2, 1/4, 0, 2, 1/2, 1, 1/4 where ideal ones are 2, 2, 1, 1/2, 1/2, 1/4, 1/4, as in SIGIR 2008.
    target = nuggets({0, 1}, {0}, {0}, set(), {2, 3}, {2}, {4}, {2})
    scores = torch.arange(8.0).flip(0).unsqueeze(0)
    gained = [tr.AlphaDCG(top_k=k).score(scores, target).item() for k in range(1, 9)]
    assert gained == pytest.approx([2, 2.315, 2.440, 2.440, 3.214, 3.392, 3.726, 3.805], abs=6e-4)
    normal = [tr.AlphaNDCG(top_k=k).score(scores, target).item() for k in range(1, 8)]
    ideal = [2, 3.262, 3.762, 3.977, 4.170, 4.260, 4.343]
    assert normal == pytest.approx([a / b for a, b in zip(gained, ideal)], abs=3e-4)


NDEVAL = {
    "erria(bounded=True)@{k}": "ERR-IA@{k}",
    "nerria@{k}": "nERR-IA@{k}",
    "alphadcg(bounded=True)@{k}": "alpha-DCG@{k}",
    "alphandcg@{k}": "alpha-nDCG@{k}",
    "pia@{k}": "P-IA@{k}",
    "strecall@{k}": "strec@{k}",
    "apia": "MAP-IA",
    "nrbp": "NRBP",
    "nnrbp": "nNRBP",
}


@pytest.mark.parametrize("subtopics", [1, 4])
def test_ndeval(subtopics):
    pyndeval = pytest.importorskip("pyndeval")
    generator = torch.Generator().manual_seed(subtopics)
    target = (torch.rand(40, 30, subtopics, generator=generator) < 0.15).int()
    target[..., 0] |= target.amax(-1) * (torch.rand(40, 1, generator=generator) < 0.5)
    target[:, :, -1] *= torch.rand(40, 1, generator=generator) < 0.7
    # Among equals ndeval takes the largest document id, this library the one of the first subtopics.
    order = [sorted(range(30), key=lambda d, row=row: row[d].tolist()) for row in target]
    target = torch.stack([row[torch.tensor(one)] for row, one in zip(target, order)])
    scores, others = torch.rand(2, 40, 30, generator=generator)
    scores = scores.masked_fill(others < 0.2, -math.inf)
    rows = [(q, d) for q in range(40) for d in range(30)]
    qrels = [(f"q{q}", str(s), f"d{d:02}", int(target[q, d, s])) for q, d in rows for s in range(subtopics)]
    run = [(f"q{q}", f"d{d:02}", scores[q, d].item()) for q, d in rows if scores[q, d] > -math.inf]
    names = {ours.format(k=k): theirs.format(k=k) for ours, theirs in NDEVAL.items() for k in (2, 5, 20)}
    found = pyndeval.RelevanceEvaluator(qrels, list(dict.fromkeys(names.values()))).evaluate(run)
    judged = [q for q in range(40) if target[q].any()]
    for ours, theirs in names.items():
        values = tr.parse(ours).score(scores, target)[judged]
        want = torch.tensor([found[f"q{q}"][theirs] for q in judged], dtype=torch.float64)
        torch.testing.assert_close(values, want, rtol=1e-9, atol=1e-9, msg=lambda text, ours=ours: f"{ours}: {text}")


@pytest.mark.parametrize("widths", [(1, 1), (1, 4), (4, 1)])
def test_rankings_with_subtopics_are_joined_at_the_width_of_the_widest(widths):
    targets = [(torch.arange(6 * width).view(2, width, 3) % 4 == 1).long() for width in widths]
    rankings = [tr.Ranking.from_scores(torch.arange(2.0 * len(x[0])).view(2, -1), x) for x in targets]
    joined = tr.Ranking.join(rankings)
    assert joined.subtopics.shape == (4, max(widths), 3)
    wanted = torch.cat([tr.AlphaNDCG().score(ranking) for ranking in rankings])
    assert tr.AlphaNDCG().score(joined).tolist() == wanted.tolist()


TWO_INTENTS_SCORES = torch.tensor([[0.9, 0.8, 0.1]])
TWO_INTENTS = torch.tensor([[[1, 0], [1, 1], [0, 0]]])


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
    ranking = tr.Ranking.from_scores(TWO_INTENTS_SCORES, TWO_INTENTS).with_intents(torch.zeros(2))
    assert tr.PIA(empty_target_action="skip").score(ranking).isnan().all()


def test_errors():
    ranking = tr.Ranking.from_scores(TWO_INTENTS_SCORES, TWO_INTENTS)
    with pytest.raises(ValueError, match=r"shape \[2\] or \[1, 2\], got \[3\]"):
        ranking.with_intents(torch.ones(3))
    with pytest.raises(ValueError, match="finite and >= 0"):
        ranking.with_intents(torch.tensor([0.5, -0.5]))
    with pytest.raises(ValueError, match="with subtopics"):
        tr.Ranking.from_scores(TWO_INTENTS_SCORES, TWO_INTENTS[..., 0]).with_intents(torch.ones(1))
    with pytest.raises(TypeError, match="probabilities"):
        ranking.with_intents((0.5, 0.5))
