"""The third room: one class per measure, each a formula on a Ranking."""

from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import AUROC, F1, MAP, BinaryMetric, FallOut, FBeta, Precision, Recall, RPrecision
from torchrank.metrics.graded import CG, DCG, NDCG, GradedMetric
from torchrank.metrics.intents import APIA, PIA, IntentMetric, SubtopicRecall
from torchrank.metrics.novelty import ERRIA, NERRIA, NNRBP, NRBP, AlphaDCG, AlphaNDCG
from torchrank.metrics.parse import parse
from torchrank.metrics.positions import MR, MRR, HitRate, PositionMetric

__all__ = [
    "APIA",
    "AUROC",
    "CG",
    "DCG",
    "ERRIA",
    "F1",
    "MAP",
    "MR",
    "MRR",
    "NDCG",
    "NERRIA",
    "NNRBP",
    "NRBP",
    "PIA",
    "AlphaDCG",
    "AlphaNDCG",
    "BinaryMetric",
    "FBeta",
    "FallOut",
    "GradedMetric",
    "HitRate",
    "IntentMetric",
    "PositionMetric",
    "Precision",
    "RPrecision",
    "RankingMetric",
    "Recall",
    "SubtopicRecall",
    "parse",
]
