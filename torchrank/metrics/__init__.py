"""The third room: one class per measure, each a formula on a Ranking."""

from torchrank.metrics.base import RankingMetric
from torchrank.metrics.beyond import IntraListDiversity, Novelty, Popularity, Serendipity, Unexpectedness
from torchrank.metrics.binary import AUROC, F1, MAP, BinaryMetric, FallOut, FBeta, Precision, Recall, RPrecision
from torchrank.metrics.cascade import ERR, NERR
from torchrank.metrics.compare import APTau, ComparingMetric, KendallDistance, KendallTau, Spearman, WeightedTau
from torchrank.metrics.exposure import Coverage, Entropy, Gini, Personalization
from torchrank.metrics.graded import CG, DCG, NDCG, GradedMetric
from torchrank.metrics.overlap import RBO, Overlap
from torchrank.metrics.parse import parse
from torchrank.metrics.positions import MR, MRR, HitRate, PositionMetric
from torchrank.metrics.propensity import IPS, PSNDCG, PSP, inverse_propensity, propensities
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
    "IPS",
    "MAP",
    "MR",
    "MRR",
    "NDCG",
    "NERR",
    "PSNDCG",
    "PSP",
    "PWA",
    "RBO",
    "RBP",
    "APTau",
    "BinaryMetric",
    "ComparingMetric",
    "Coverage",
    "Entropy",
    "FBeta",
    "FallOut",
    "Gini",
    "GradedMetric",
    "HitRate",
    "IntraListDiversity",
    "KendallDistance",
    "KendallTau",
    "Novelty",
    "Overlap",
    "Personalization",
    "Popularity",
    "PositionMetric",
    "Precision",
    "QMeasure",
    "RBPResidual",
    "RPrecision",
    "RankingMetric",
    "Recall",
    "Serendipity",
    "Spearman",
    "Unexpectedness",
    "UserMetric",
    "WeightedTau",
    "inverse_propensity",
    "parse",
    "propensities",
]
