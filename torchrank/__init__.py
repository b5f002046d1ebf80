"""Ranking metrics for PyTorch: exact under ties, constant in memory, the same number on one worker or many."""

from torchrank.collection import RankingCollection
from torchrank.engine.fused import use_compiled
from torchrank.metrics import (
    AUROC,
    CG,
    DCG,
    F1,
    MAP,
    MR,
    MRR,
    NDCG,
    RBO,
    APTau,
    FallOut,
    FBeta,
    HitRate,
    KendallDistance,
    KendallTau,
    Overlap,
    Precision,
    RankingMetric,
    Recall,
    RPrecision,
    Spearman,
    WeightedTau,
    parse,
)
from torchrank.ranking import Ranking

__version__ = "0.1.0"

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
    "FBeta",
    "FallOut",
    "HitRate",
    "KendallDistance",
    "KendallTau",
    "Overlap",
    "Precision",
    "RPrecision",
    "Ranking",
    "RankingCollection",
    "RankingMetric",
    "Recall",
    "Spearman",
    "WeightedTau",
    "parse",
    "use_compiled",
]
