"""Values of labels: a metric alone and in a suite, beside lists, below the level of relevance, and with bad scores."""

import pytest
import torch
from torch.testing import assert_close

import torchrank as tr
from torchrank.state import sums

INF = float("inf")


def labels(ties: bool, candidates: int = 9, queries: int = 150):
    """Scores [query, candidate] and labels: at every rank, not retrieved, none, and of no query."""
    generator = torch.Generator().manual_seed(candidates)
    scores = torch.randn(queries, candidates, generator=generator)
    scores = scores.round() if ties else scores
    label = torch.randint(-1, candidates, (queries,), generator=generator)
    label[::50] = -100
    scores[torch.arange(0, queries, 7), label[::7].clamp_min(0)] = -INF
    scores[1] = -INF
    return scores, label


def test_a_metric_alone_has_the_bits_that_it_has_in_a_suite():
    batch = labels(ties=True)
    suite = tr.RankingCollection(["ndcg@3", "mrr@7", "map@50", "hitrate@1"])
    for key, value in suite.score(*batch).items():
        assert torch.equal(value.nan_to_num(-1), tr.parse(key).score(*batch).nan_to_num(-1))
        assert torch.equal(value.nan_to_num(-1), tr.parse(key).score(tr.Ranking.from_label(*batch)).nan_to_num(-1))


@pytest.mark.parametrize("weights", [None, "whole", "random"])
@pytest.mark.parametrize("queries", [1, 3, 150])
@pytest.mark.parametrize("direct", [0, sums.DIRECT])
def test_a_metric_alone_has_the_state_that_it_has_in_a_suite(monkeypatch, queries, weights, direct):
    monkeypatch.setattr(sums, "DIRECT", direct)
    scores, label = labels(ties=True, queries=150)
    weight = {None: None, "whole": label.abs() % 3, "random": torch.rand(150, dtype=torch.float64)}[weights]
    batch = scores[-queries:], label[-queries:], None if weight is None else weight[-queries:]
    # Some have weights of their own, some are not looked up, and some have infinite values.
    names = [
        "ndcg@3",
        "mrr",
        "mr",
        "hitrate(ties=realistic)@2",
        "mr(aggregation=harmonic)",
        "mr(filtered=True,average=positive)",
    ]
    suite = tr.RankingCollection(names)
    suite.update(*batch[:2], weights=batch[2])
    for key, metric in suite.items():
        alone = tr.parse(key)
        alone.update(*batch[:2], weights=batch[2])
        assert torch.equal(alone.sums.view(torch.int64), metric.sums.view(torch.int64)), key


def test_a_label_has_the_value_of_a_list_with_one_item():
    scores, metric = torch.rand(3, 5), tr.DCG(top_k=3)
    lists, pairs = [torch.tensor([1]), torch.tensor([4]), torch.tensor([2])], (torch.arange(3), torch.tensor([1, 4, 2]))
    ids = scores.argsort(-1, descending=True)
    value = metric.score(scores, pairs[1])
    for other in metric.score(scores, lists), metric.score(scores, pairs), metric.score(ids, pairs[1]):
        assert_close(other, value, rtol=1e-14, atol=0)


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


@pytest.mark.parametrize("names", [["ndcg@3", "mrr@2"], ["ndcg@3", "mrr(unjudged=lower)@2"]])
def test_labels_in_chunks_and_beside_metrics_of_all_candidates(assume, names):
    suite, batch = tr.RankingCollection(names), labels(ties=True)
    wanted = suite.score(*batch)
    assume(block=99)
    for key, value in suite.score(*batch).items():
        assert_close(value, wanted[key], rtol=1e-14, atol=1e-15, equal_nan=True)


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


def test_errors_of_labels_are_counted():
    scores, label = labels(ties=False)
    scores[3, 2] = float("nan")
    with pytest.raises(ValueError, match="1 query with NaN"):
        tr.MRR(top_k=3).score(scores, label)
    metric = tr.MRR(top_k=3, validate_args=False)
    metric.update(scores, label)
    assert metric.compute().isfinite()
    with pytest.raises(ValueError, match=r"quer\w+ with nothing"):
        tr.Recall(top_k=3, empty_target_action="error").score(*labels(ties=True))
