"""The third room: one class per measure, each a formula on a Ranking."""

from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import AUROC, F1, MAP, BinaryMetric, FallOut, FBeta, Precision, Recall, RPrecision
from torchrank.metrics.confusion import MCC, Accuracy, Utility
from torchrank.metrics.curve import PRCurve
from torchrank.metrics.cuts import RelativePrecision, SetAP
from torchrank.metrics.graded import CG, DCG, NDCG, GradedMetric
from torchrank.metrics.interpolated import ElevenPoint, InterpolatedPrecision, RecallAtPrecision
from torchrank.metrics.pairs import LRAP, OPA, CoverageError, RankingLoss
from torchrank.metrics.parse import parse
from torchrank.metrics.positions import MR, MRR, HitRate, PositionMetric

__all__ = [
    "AUROC",
    "CG",
    "DCG",
    "F1",
    "LRAP",
    "MAP",
    "MCC",
    "MR",
    "MRR",
    "NDCG",
    "OPA",
    "Accuracy",
    "BinaryMetric",
    "CoverageError",
    "ElevenPoint",
    "FBeta",
    "FallOut",
    "GradedMetric",
    "HitRate",
    "InterpolatedPrecision",
    "PRCurve",
    "PositionMetric",
    "Precision",
    "RPrecision",
    "RankingLoss",
    "RankingMetric",
    "Recall",
    "RecallAtPrecision",
    "RelativePrecision",
    "SetAP",
    "Utility",
    "parse",
]
