"""Calls that a type checker refuses, in every line that says so. Nothing here is ever called."""

import torch
from torch import Tensor

import torchrank as tr
from torchrank.metrics import BinaryMetric
from torchrank.names.parameters import number

SCORES, GRADES = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 2]])


def constructors() -> None:
    tr.MRR(filtred=True)  # error
    tr.MRR(filtered="yes")  # error
    tr.NDCG(k=10)  # error
    tr.NDCG("10")  # error
    tr.NDCG(5, 10)  # error
    tr.NDCG(relevance_level=2)  # error
    tr.NDCG(gain="quadratic")  # error
    tr.NDCG(ties="random")  # error
    tr.MAP(normalize="max")  # error
    tr.MAP(empty_target_action="zero")  # error
    tr.MAP(aggregation="total")  # error
    tr.MAP(sync_on_compute="no")  # error
    tr.FBeta(beta="two")  # error
    tr.MR(top_k=5)  # error
    tr.MR(adjusted="ratios")  # error
    tr.KendallTau(variant="d")  # error
    tr.PRCurve()  # error
    tr.PRCurve(None)  # error
    tr.PRCurve(3, aggregation="median")  # error


def of_lists() -> None:
    tr.Coverage()  # error
    tr.Coverage(num_items=3, aggregation="mean")  # error
    tr.Coverage(num_items=3, ties="expected")  # error
    tr.Novelty(interactions=torch.ones(3))  # error
    tr.Novelty(interactions="counts", num_users=3)  # error
    tr.Serendipity(interactions=torch.ones(3), expected=torch.ones(3))  # error
    tr.Popularity(interactions=torch.ones(3), num_items=3)  # error


def calls() -> None:
    metric = tr.MRR()
    metric.update({"a": 0.9, "b": 0.5}, GRADES)  # error
    metric.update(SCORES, {0, 1})  # error
    metric.update(SCORES, GRADES, SCORES)  # error
    metric.update(SCORES, GRADES, weight=torch.ones(1))  # error
    metric.score(SCORES, {"a": 1})  # error
    metric(SCORES, GRADES, indices=GRADES)  # error
    metric.compute()["mrr"].items()  # error
    tr.Coverage(num_items=3).update(GRADES, tie_break=SCORES)  # error


def collections() -> None:
    tr.RankingCollection("mrr", keys="simple")  # error
    suite = tr.RankingCollection(["ndcg@10", 3])  # error
    suite.compute().item()  # error
    suite.compute()["ndcg@10"].items()  # error
    suite(SCORES, GRADES)["ndcg@10"].items()  # error
    suite.update(SCORES, GRADES, exclude=GRADES)  # error


def own() -> None:
    class Typed(BinaryMetric):
        """A measure of one's own."""

        p: float = number(default=0.5, above=0)

        def measure(self, ranking: tr.Ranking) -> Tensor:
            return self.hits(ranking) ** self.p

    Typed(q=2)  # error
    Typed(p="half")  # error
