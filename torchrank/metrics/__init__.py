"""The third room: one class per measure, each a formula on a Ranking."""

from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import AUROC, F1, MAP, BinaryMetric, FallOut, FBeta, Precision, Recall, RPrecision
from torchrank.metrics.compare import APTau, ComparingMetric, KendallDistance, KendallTau, Spearman, WeightedTau
from torchrank.metrics.graded import CG, DCG, NDCG, GradedMetric
from torchrank.metrics.overlap import RBO, Overlap
from torchrank.metrics.parse import parse
from torchrank.metrics.positions import MR, MRR, HitRate, PositionMetric

__all__ = [
    "AUROC",
    "CG",
    "DCG",
    "F1",
    "MAP",
    "MR",
    "MRR",
    "NDCG",
    "RBO",
    "APTau",
    "BinaryMetric",
    "ComparingMetric",
    "FBeta",
    "FallOut",
    "GradedMetric",
    "HitRate",
    "KendallDistance",
    "KendallTau",
    "Overlap",
    "PositionMetric",
    "Precision",
    "RPrecision",
    "RankingMetric",
    "Recall",
    "Spearman",
    "WeightedTau",
    "parse",
]
