"""Ranking metrics for PyTorch: exact under ties, constant in memory, the same number on one worker or many."""

from torchrank.collection import RankingCollection
from torchrank.engine.fused import use_compiled
from torchrank.metrics import (
    ARP,
    AUROC,
    CG,
    CWL,
    DCG,
    ERR,
    F1,
    MAP,
    MR,
    MRR,
    NDCG,
    NERR,
    PWA,
    RBP,
    FallOut,
    FBeta,
    HitRate,
    Precision,
    QMeasure,
    RankingMetric,
    RBPResidual,
    Recall,
    RPrecision,
    parse,
)
from torchrank.ranking import Ranking

__version__ = "0.1.0"

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
    "FBeta",
    "FallOut",
    "HitRate",
    "Precision",
    "QMeasure",
    "RBPResidual",
    "RPrecision",
    "Ranking",
    "RankingCollection",
    "RankingMetric",
    "Recall",
    "parse",
    "use_compiled",
]
