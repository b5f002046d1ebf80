"""Scores of a batch: labels, chunks, weights, bad values, and queries that do not count."""

import math

import pytest
import torch
from torch.testing import assert_close

import torchrank as tr
from tests.support.cases import cases
from tests.support.metric_kinds import BATCHES, NAN, check, every_class, every_kind, spread, with_cutoff
from torchrank.state import sums


def test_bad_values_of_a_ranking_count_once_whatever_its_chunks(monkeypatch):
    monkeypatch.setattr("torchrank.state.scoring.MANY_VALUES", 4)
    metric = tr.PRCurve(2)
    metric.update(tr.Ranking.from_ranks(torch.tensor([0.5, 2, 9, 1, 3, 2]), num_candidates=5))
    with pytest.raises(ValueError, match=r"\b2 ranks"):
        metric.compute()
    one = tr.PRCurve(9)  # whose chunks are of one query
    one.update(tr.Ranking.from_ranks(torch.tensor([2]), num_candidates=5))
    assert one.num_queries == 1


# reciprocal ranks 1/2, 1, nothing relevant, 1/3, 1/4
FIVE = (
    torch.tensor([[0.5, 0.9, 0.1, 0.0], [0.9, 0.5, 0.1, 0.0], [4, 3, 2, 1], [0.5, 0.9, 0.6, 0.0], [1, 4, 3, 2]]),
    torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]),
)


WEIGHTS = torch.tensor([1.0, 2.0, 3.0, 0.0, 0.5])


@cases(
    ("how", "action", "expected"),
    [
        ("mean", "neg", (0.5 + 2 + 0.125) / 6.5),
        ("mean", "skip", (0.5 + 2 + 0.125) / 3.5),
        ("median", "neg", 0.25),  # weight 3 at 0, then 0.5 at 1/4: half of 6.5 is reached
        ("min", "skip", 0.25),
        ("none", "skip", [0.5, 1.0, NAN, NAN, 0.25]),
        (spread, "skip", 0.75),
    ],
)
@cases("dtype", [torch.float32, torch.float64, torch.float16, torch.int64], ids=str)
def test_weights_by_hand(how, action, expected, dtype):
    metric = tr.MRR(aggregation=how, empty_target_action=action)
    weights = WEIGHTS.to(dtype) if dtype.is_floating_point else (WEIGHTS * 2).to(dtype)
    metric.update(*FIVE, weights=weights)
    check(metric.compute(), expected)
    assert (metric.num_queries, metric.num_empty) == (4, 1)


@every_kind
def test_a_weight_of_zero_is_as_if_the_query_were_not_there(kind):
    metric, without = kind.make(), kind.make()
    kept = torch.tensor([True, False, True, True, False, True, True, False, True, True, True, True])
    for there, (preds, target) in zip(kept.split([5, 1, 6]), BATCHES):
        metric.update(preds, target, weights=there.double())
        without.update(preds[there], target[there])
    value = metric.compute()
    if metric.aggregation == "none":
        assert value[~kept].isnan().all()
        value = value[kept]
    assert torch.equal(value.nan_to_num(9), without.compute().nan_to_num(9))
    assert metric.num_queries == without.num_queries
    assert metric.num_empty == without.num_empty
    torch.testing.assert_close(metric.standard_error, without.standard_error, equal_nan=True)
    metric.reset()
    metric.update(*FIVE, weights=torch.zeros(5))
    assert (metric.compute().isnan().all(), metric.num_queries) == (True, 0)


@every_class
def test_an_empty_query_of_weight_zero_is_no_error(cls):
    metric = with_cutoff(cls, empty_target_action="error")
    preds, target = torch.tensor([[0.1, 0.9, 0.5]] * 2), torch.tensor([[1, 0, 1], [0, 0, 0]])
    if cls is tr.FallOut:
        target[1] = 1
    metric.update(preds, target, weights=torch.tensor([1.0, 0.0]))
    check(metric.compute(), metric.score(preds[:1], target[:1]).item())


@pytest.mark.parametrize("validate_args", [True, False])
def test_sampled_negatives_have_finite_counts_of_bad_values(validate_args):
    metric = tr.HitRate(top_k=10, validate_args=validate_args)
    metric.update(tr.Ranking.from_ranks(torch.tensor([201, 1]), num_candidates=10_001).sampled(100))
    assert metric.sums[sums.Sum.ERRORS : sums.SIZE].tolist() == [0.0] * (sums.SIZE - sums.Sum.ERRORS)


INF = math.inf


def test_curves_of_rows_of_all_lengths_have_the_weights_of_their_queries():
    generator = torch.Generator().manual_seed(0)
    lengths = [3, 90, 5, 40, 4]
    indexes = torch.tensor([query for query, length in enumerate(lengths) for _ in range(length)])
    scores, target = torch.rand((2, len(indexes)), generator=generator)
    target, weights = (target > 0.5).long(), torch.tensor([1.0, 8.0, 2.0, 4.0, 16.0])
    whole, each = tr.PRCurve(5), tr.PRCurve(5)
    whole.update(scores, target, indexes=indexes, weights=weights)
    for query in range(len(lengths)):
        rows = indexes == query
        each.update(scores[rows].unsqueeze(0), target[rows].unsqueeze(0), weights=weights[query : query + 1])
    for found, expected in zip(whole.compute(), each.compute()):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["mask", "exclude", "tie_break", "indexes"])
def test_a_ranking_takes_weights_alone(name):
    ranking = tr.Ranking.from_ranks(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match=f"Expected nothing but weights with a Ranking, got {name}"):
        tr.MRR().score(ranking, **{name: torch.ones(2)})
    with pytest.raises(ValueError, match="Expected nothing but weights with a Ranking, got target"):
        tr.MRR().score(ranking, torch.ones(2))
    metric = tr.MRR()
    metric.update(ranking, weights=torch.tensor([3.0, 1.0]))
    assert metric.compute().item() == 0.875


@pytest.mark.parametrize("bad", [INF, NAN, -1.0])
def test_without_validation_a_bad_weight_is_0_and_not_counted(bad):
    suite = tr.RankingCollection({"checked": tr.MRR(), "unchecked": tr.MRR(validate_args=False)})
    labels, weights = torch.tensor([0, 1, 2]), torch.tensor([1.0, bad, 2.0])
    scores = torch.tensor([[3.0, 2.0, 1.0]] * 3)
    suite.update(scores, labels, weights=weights)
    assert suite["unchecked"].compute().item() == pytest.approx((1 + 2 / 3) / 3)
    suite.update(torch.tensor([[NAN, 2.0, 1.0]]), torch.tensor([1]))
    assert suite["unchecked"].compute().item() == pytest.approx((1 + 2 / 3 + 1) / 4)
    assert suite["unchecked"].sums.isfinite().all()
    with pytest.raises(ValueError, match="1 query weight"):
        suite["checked"].compute()


@pytest.mark.parametrize("name", ["mrr(aggregation=median)", "mr(filtered=True,average=positive)", "mr", "mrr@2"])
@pytest.mark.parametrize("labels", [False, True])
def test_chunks_of_a_batch_have_the_sums_and_values_of_the_whole(assume, name, labels):
    draw = torch.Generator().manual_seed(0)
    scores, grades = torch.rand(40, 9, generator=draw), torch.randint(0, 3, (40, 9), generator=draw)
    grades[::7] = 0
    target = grades.argmax(-1).masked_fill(torch.arange(40) % 9 == 0, -100) if labels else grades
    weights = torch.rand(40, generator=draw, dtype=torch.float64)
    found = []
    for block in (10_000, 45):
        assume(block=block)
        plain, weighted = (tr.parse(name) for _ in range(2))
        plain.update(scores, target)
        weighted.update(scores, target, weights=weights)
        kept = tr.PerQuery(name)
        kept.update(scores, target, query_ids=torch.arange(40))
        found.append([plain.sums, weighted.sums, kept.compute().compute()[name], plain.compute(), weighted.compute()])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12, equal_nan=True)


def tied_labels(candidates: int = 9, queries: int = 150):
    """Scores [query, candidate] with ties and labels: at every rank, not retrieved, none, and of no query."""
    generator = torch.Generator().manual_seed(candidates)
    scores = torch.randn(queries, candidates, generator=generator).round()
    label = torch.randint(-1, candidates, (queries,), generator=generator)
    label[::50] = -100
    scores[torch.arange(0, queries, 7), label[::7].clamp_min(0)] = -INF
    scores[1] = -INF
    return scores, label


@pytest.mark.parametrize("weights", [None, "whole", "random"])
@pytest.mark.parametrize("queries", [1, 3, 150])
@pytest.mark.parametrize("direct", [0, sums.DIRECT])
def test_a_metric_alone_has_the_state_that_it_has_in_a_suite(monkeypatch, queries, weights, direct):
    monkeypatch.setattr(sums, "DIRECT", direct)
    scores, label = tied_labels()
    weight = {None: None, "whole": label.abs() % 3, "random": torch.rand(150, dtype=torch.float64)}[weights]
    batch = scores[-queries:], label[-queries:], None if weight is None else weight[-queries:]
    # Some have weights of their own, some are not looked up, and some have infinite values.
    suite = tr.RankingCollection(
        "ndcg@3 mrr mr hitrate(ties=realistic)@2 mr(aggregation=harmonic) mr(filtered=True,average=positive)"
    )
    suite.update(*batch[:2], weights=batch[2])
    for key, metric in suite.items():
        alone = tr.parse(key)
        alone.update(*batch[:2], weights=batch[2])
        assert torch.equal(alone.sums.view(torch.int64), metric.sums.view(torch.int64)), key


@pytest.mark.parametrize("action", ["neg", "pos", "skip", "error", "listed"])
@pytest.mark.parametrize("scores", [[[0.9, 0.1]], [[0.5, 0.5, 0.5]]], ids=["no ties", "ties"])
def test_a_label_below_the_level_leaves_its_query_empty(action, scores):
    scores, label = torch.tensor(scores), torch.tensor([1])
    grades = torch.zeros(scores.shape, dtype=torch.int64).scatter(1, label[:, None], 1)
    for cls in tr.Precision, tr.Recall, tr.F1, tr.MAP, tr.MR, tr.MRR, tr.HitRate, tr.FirstRank:
        for cut in [{"top_k": 1}, {}] if cls.takes_top_k else [{}]:
            metric = cls(**cut, relevance_level=2, empty_target_action=action)
            if action == "error":
                with pytest.raises(ValueError, match="empty_target_action='error'"):
                    metric.score(scores, label)
            else:
                assert_close(metric.score(scores, label), metric.score(scores, grades), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("candidates", [5, 9])
def test_a_label_with_score_nan_is_not_retrieved(candidates):
    scores = torch.arange(float(candidates)).expand(3, -1).clone()
    scores[0, 2] = scores[1, 0] = float("nan")
    scores[1, 1] = -INF
    label = torch.tensor([2, 0, candidates - 1])
    rank = tr.MR(validate_args=False).score(scores, label)
    assert rank.tolist() == [candidates, candidates - 1, 1]  # behind the others that are retrieved
    assert tr.MRR(validate_args=False).score(scores, label).tolist() == [0, 0, 1]
    assert tr.Ranking.from_label(scores, label).errors.sum() == 2
