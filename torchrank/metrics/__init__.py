"""The third room: one class per measure, each a formula on a Ranking."""

from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import AUROC, F1, MAP, BinaryMetric, FallOut, FBeta, Precision, Recall, RPrecision
from torchrank.metrics.graded import CG, DCG, NDCG, GradedMetric
from torchrank.metrics.parse import parse
from torchrank.metrics.positions import MR, MRR, HitRate, PositionMetric
from torchrank.metrics.propensity import IPS, PSNDCG, PSP, inverse_propensity, propensities

__all__ = [
    "AUROC",
    "CG",
    "DCG",
    "F1",
    "IPS",
    "MAP",
    "MR",
    "MRR",
    "NDCG",
    "PSNDCG",
    "PSP",
    "BinaryMetric",
    "FBeta",
    "FallOut",
    "GradedMetric",
    "HitRate",
    "PositionMetric",
    "Precision",
    "RPrecision",
    "RankingMetric",
    "Recall",
    "inverse_propensity",
    "parse",
    "propensities",
]
