"""The third room: one class per measure, each a formula on a Ranking."""

from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import AUROC, F1, MAP, BinaryMetric, FallOut, FBeta, Precision, Recall, RPrecision
from torchrank.metrics.graded import CG, DCG, NDCG, GradedMetric
from torchrank.metrics.parse import parse
from torchrank.metrics.positions import MR, MRR, HitRate, PositionMetric
from torchrank.metrics.trec import BinG, NumRel, NumRelRet

__all__ = [
    "AUROC",
    "CG",
    "DCG",
    "F1",
    "MAP",
    "MR",
    "MRR",
    "NDCG",
    "BinG",
    "BinaryMetric",
    "FBeta",
    "FallOut",
    "GradedMetric",
    "HitRate",
    "NumRel",
    "NumRelRet",
    "PositionMetric",
    "Precision",
    "RPrecision",
    "RankingMetric",
    "Recall",
    "parse",
]
