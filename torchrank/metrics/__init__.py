"""The third room: one class per measure, each a formula on a Ranking."""

from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import AUROC, F1, MAP, BinaryMetric, FallOut, FBeta, Precision, Recall, RPrecision
from torchrank.metrics.cascade import ERR, NERR
from torchrank.metrics.graded import CG, DCG, NDCG, GradedMetric
from torchrank.metrics.parse import parse
from torchrank.metrics.positions import MR, MRR, HitRate, PositionMetric
from torchrank.metrics.qmeasure import QMeasure
from torchrank.metrics.users import CWL, RBP, RBPResidual, UserMetric
from torchrank.metrics.weighted import ARP, PWA

__all__ = [
    "ARP",
    "AUROC",
    "CG",
    "CWL",
    "DCG",
    "ERR",
    "F1",
    "MAP",
    "MR",
    "MRR",
    "NDCG",
    "NERR",
    "PWA",
    "RBP",
    "BinaryMetric",
    "FBeta",
    "FallOut",
    "GradedMetric",
    "HitRate",
    "PositionMetric",
    "Precision",
    "QMeasure",
    "RBPResidual",
    "RPrecision",
    "RankingMetric",
    "Recall",
    "UserMetric",
    "parse",
]
