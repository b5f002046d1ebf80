"""Calls that a type checker accepts, and that work."""

from typing import assert_type

import torch
from torch import Tensor
from torchmetrics import MeanMetric

import torchrank as tr
from torchrank.metrics import BinaryMetric, GradedMetric
from torchrank.names.parameters import number
from torchrank.names.types import EmptyAction
from torchrank.ranking.ranking import Ranking

SCORES, GRADES = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 2]])
LABELS, IDS = torch.tensor([1]), torch.tensor([[2, 0]])
QUERIES, ITEMS = torch.tensor([0, 0]), torch.tensor([0, 2])


def clipped(grade: Tensor) -> Tensor:
    return grade.clamp_max(1)


def constructors() -> list[BinaryMetric | GradedMetric]:
    tr.MAP(10)
    tr.MAP(None, normalize="min", relevance_level=2)
    tr.MR(filtered=True, average="positive", ties="realistic", adjusted="ratio")
    tr.MR(inverse=True, empty_target_action="neg")
    tr.DCG(top_k=5, discount=torch.rsqrt, gain={1: 1, 2: 4})
    tr.KendallTau(variant="gamma", sync_on_compute=False)
    tr.Overlap(10)
    tr.IPS(self_normalized="query")
    tr.CWL(5, user="insq", target=2)
    tr.AUROC(max_fpr=0.1, aggregation=torch.amax)
    tr.PRCurve(3, adaptive_k=True)
    return [tr.NDCG(10, gain=clipped), tr.Precision(5, adaptive_k=True)]


def of_lists() -> None:
    counts = torch.tensor([3, 1, 2])
    tr.Novelty(5, interactions=counts, num_users=4, normalize=True)
    assert_type(tr.Popularity(interactions=counts).score(IDS), Tensor)
    tr.IntraListDiversity(categories=counts)
    assert_type(tr.IntraListDiversity(categories=[5, 7, 5]).categories, Tensor | None)
    assert_type(tr.Popularity(interactions=counts.numpy()).interactions, Tensor)
    tr.Serendipity(interactions=counts, relevance_level=2)
    coverage = tr.Coverage(num_items=3, validate_args=False)
    coverage.update(IDS, exclude=(QUERIES, ITEMS))
    assert_type(coverage.compute(), Tensor)
    assert_type(coverage(IDS), Tensor)


def layouts() -> None:
    metric = tr.MRR(filtered=True)
    metric.update(SCORES, GRADES, mask=torch.ones(1, 3, dtype=torch.bool), weights=torch.ones(1))
    metric.update(SCORES, LABELS, exclude=[torch.tensor([0])])
    metric.update(SCORES, (QUERIES, ITEMS))
    metric.update(SCORES, (QUERIES, ITEMS, torch.ones(2)))
    metric.update(IDS, [torch.tensor([0, 1])])
    metric.update(SCORES[0], GRADES[0], indexes=torch.zeros(3, dtype=torch.int64))
    metric.update(Ranking.from_scores(SCORES, GRADES))
    metric.update([[0.9, 0.5, 0.1]], GRADES.numpy(), mask=[True, True, False], weights=[2.0])
    metric.update(SCORES.numpy(), [[0, 1]], exclude=([0], [2]))


def results() -> None:
    ndcg = tr.NDCG()
    assert_type(ndcg(SCORES, GRADES), Tensor)
    assert_type(ndcg.compute(), Tensor)
    assert_type(ndcg.score(SCORES, target=GRADES), Tensor)
    assert_type(ndcg.top_k, int | None)
    assert_type(tr.FBeta(beta=2).beta, float)
    precision, _, ranks = tr.PRCurve(2)(SCORES, GRADES)
    assert_type(precision + ranks, Tensor)


def collections() -> None:
    suite = tr.RankingCollection(["ndcg@5,10", tr.HitRate(1), MeanMetric()], prefix="val/")
    names = ["mrr", "map"]
    tr.RankingCollection(names).update(SCORES, (QUERIES, ITEMS))
    tr.RankingCollection("mrr", "map", tr.MR())
    tr.RankingCollection({"first": "mrr", "second": tr.MRR(5)})
    tr.RankingCollection("mrr", keys="plain")[tr.plain("mrr", identifier=True)]
    suite.add_metrics("map")
    assert_type(suite(SCORES, GRADES)["val/ndcg@5"], Tensor)
    assert_type(suite.score(SCORES, GRADES)["val/map"], Tensor)
    assert suite.compute()["val/ndcg@10"].item() <= 1


def own() -> None:
    class Typed(BinaryMetric):
        """A measure of one's own: a parameter, and another default."""

        name = "typed"
        share: float = number(default=2, above=0)
        empty_target_action: EmptyAction = "skip"

        def measure(self, ranking: Ranking) -> Tensor:
            return self.hits(ranking) / self.share

    metric = Typed(share=4, relevance_level=2)
    assert_type(metric.share, float)
    assert_type(metric(SCORES, GRADES), Tensor)
