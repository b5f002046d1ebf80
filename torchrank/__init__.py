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
    BinG,
    FallOut,
    FBeta,
    HitRate,
    NumRel,
    NumRelRet,
    Precision,
    RankingMetric,
    Recall,
    RPrecision,
    parse,
)
from torchrank.presets import preset
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
    "BinG",
    "FBeta",
    "FallOut",
    "HitRate",
    "NumRel",
    "NumRelRet",
    "Precision",
    "RPrecision",
    "Ranking",
    "RankingCollection",
    "RankingMetric",
    "Recall",
    "parse",
    "preset",
    "use_compiled",
]
