"""Average precision and its kin."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.cutoff_tie import CutoffTie
from torchrank.formulas.gains import RECIPROCAL
from torchrank.metrics.binary import BinaryMetric
from torchrank.names.parameters import one_of
from torchrank.ranking.arithmetic import ratio
from torchrank.ranking.ranking import Ranking

__all__ = ["MAP", "YAAP"]


class MAP(BinaryMetric):
    r"""Average precision, whose mean over queries is MAP: :math:`AP@k = \frac{1}{N} \sum_{i \le k} rel_i \, P@i`.

    Ties after McSherry and Najork, Computing information retrieval performance measures efficiently in the presence of
    tied scores, ECIR 2008; the form for ``normalize="retrieved"`` sums over how many of a tie cut by k come before it.

    Source:
        trec_eval; Buckley and Voorhees, Evaluating evaluation measure stability, SIGIR 2000.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        normalize: what N is: "relevant", all R relevant candidates (trec_eval's ``map`` and ``map_cut``); "min",
            min(R, k); "length", min(R, k, length of the list), as LensKit does; "k", k itself (without ``top_k`` the
            length of the list), as RecTools can; "retrieved", the relevant ones among the first k, with ``top_k`` and
            expected ties without bounds over what is unjudged.
        kwargs: as :class:`BinaryMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.7, 0.6, 0.5]]), torch.tensor([[1, 0, 1, 1, 0]])
        >>> tr.MAP().score(scores, target)  # (1 + 2/3 + 3/4) / 3
        tensor([0.8056], dtype=torch.float64)
    """

    known_as = {
        "parse": {
            "AP": "",
            "average_precision": "",
            "mean_average_precision": "",
            "gmap": "(aggregation=geometric)",
            "map_cut": "@5,10,15,20,30,100,200,500,1000",
            "retrieval_average_precision": "(normalize=retrieved)",
        },
        "trec_eval": {"map": "", "map_cut_{k}": "@{k}", "gm_map": "(aggregation=geometric)"},
        "ir_measures": "AP",
        "ranx": "map",
        "rax": "ap_metric",
        "TensorFlow Ranking": "MeanAveragePrecisionMetric",
        "metrax": "AveragePrecisionAtK",
        "rectools": {"MAP": "", "MAP(divide_by_k=True)": "(normalize=k)"},
        "pyg": {"LinkPredMAP": "(normalize=min)"},
        "recbole": {"map": "(normalize=min)"},
        "RePlay": {"MAP": "(normalize=min)"},
        "Transformers4Rec": {"AvgPrecisionAt": "(normalize=min)"},
        "ranking-metrics-torch": {"": "(normalize=min)"},
        "lenskit": {"AveragePrecision": "(normalize=length,empty_target_action=listed)"},
        "torchmetrics": {"RetrievalMAP": "(normalize=retrieved)"},
    }
    name = "map"

    normalize: Literal["relevant", "min", "length", "k", "retrieved"] = one_of(default="relevant")

    @property
    def no_bounds_reason(self) -> str:
        random = self.normalize == "retrieved" and self.top_k is not None and self.ties == "expected"
        return "of which a tie cut by top_k makes the number of hits random" if random else ""

    def measure(self, ranking: Ranking) -> Tensor:
        if self.normalize == "retrieved" and self.top_k is not None and not ranking.untied:
            return _precision_by_hits(ranking, self.relevance_level, self.top_k)
        return ratio(precisions(ranking, self.relevance_level, self.top_k).sum(-1), self.whole(ranking))

    def whole(self, ranking: Ranking) -> Tensor:
        """What the precisions are divided by, where that is no matter of chance: float64 [query]."""
        relevant, length = ranking.num_relevant(self.relevance_level), self.length(ranking)
        if self.normalize in ("retrieved", "k"):
            return length if self.normalize == "k" else self.hits(ranking)
        if self.normalize == "length":
            return torch.minimum(relevant, torch.minimum(length, ranking.num_candidates))
        return relevant if self.normalize == "relevant" or self.top_k is None else torch.minimum(relevant, length)


def precisions(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Expected rel * P@rank, summed over the ranks that an entry can have: float64 [query, entry].

    A share c = (r - 1) / (n - 1) of the others in its block is relevant: P@j is (before + 1 + c (j - a - 1)) / j.
    """
    before, beside = ranking.relevant_before_and_in_tie(level)
    if ranking.untied:
        return (before + beside) * ranking.discount_sum(RECIPROCAL, top_k) * beside
    above = ranking.first - 1
    inside = ranking.ranks_in_top_k(top_k)
    c = ratio(beside - 1, ranking.tied - 1)
    harmonic = ranking.discount_sum(RECIPROCAL, top_k)
    total = (before + 1 - (above + 1) * c) * harmonic + c * inside
    return torch.where(ranking.found(level), ratio(total, ranking.tied), 0.0)


def _precision_by_hits(ranking: Ranking, level: float, top_k: int) -> Tensor:
    """AP divided by the hits in the first k, which a tie cut by k makes random: a sum over their number."""
    surely = ranking.found(level) & (ranking.prob_in_top_k(top_k) == 1)
    full = torch.where(surely, precisions(ranking, level, top_k), 0.0).sum(-1)
    # Given h hits among the s places of the cut block, they are a block of s with h relevant ones.
    cut = CutoffTie.of(ranking, level, top_k)
    h, s = cut.hits, cut.places
    first, harmonic = cut.at(ranking.first), cut.at(ranking.discount_sum(RECIPROCAL, top_k))
    c = ratio(h - 1, s - 1)
    partial = torch.where(h > 0, ratio(h, s) * ((cut.before + 1 - first * c) * harmonic + c * s), 0.0)
    return (cut.chance * ratio(full.unsqueeze(-1) + partial, cut.before + h)).sum(-1)


class YAAP(BinaryMetric):
    r"""Yet another average precision, the log odds of AP: :math:`\ln \frac{1 + R \, AP}{1 + R - R \, AP}`.

    So that the mean over queries does not hang on those of middling precision. Under ``ties="expected"`` that of the
    expected average precision, which is not the expectation.

    Source:
        Robertson, On smoothing average precision, ECIR 2012; trec_eval, ``yaap``.

    Args:
        relevance_level: a grade at or above it is relevant; > 0.
        kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.YAAP().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # ln((1 + 5/3) / (3 - 5/3))
        tensor([0.6931], dtype=torch.float64)
    """

    known_as = {"trec_eval": "yaap", "trec_eval9": {}}
    name = "yaap"
    value_range = (-math.inf, math.inf)
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        total = precisions(ranking, self.relevance_level, None).sum(-1)
        return torch.log((1 + total) / (1 + ranking.num_relevant(self.relevance_level) - total))
