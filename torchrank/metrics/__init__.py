"""The third room: one class per measure, each a formula on a Ranking."""

from torchrank.metrics.average_precision import MAP, YAAP
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.beyond_accuracy import IntraListDiversity, Novelty, Popularity, Serendipity, Unexpectedness
from torchrank.metrics.binary import (
    F1,
    BinaryMetric,
    BinG,
    FallOut,
    FBeta,
    Precision,
    Recall,
    RelativePrecision,
    RPrecision,
    SetAP,
)
from torchrank.metrics.cascade import ERR, NERR
from torchrank.metrics.catalogue_exposure import Coverage, Entropy, Gini, Personalization
from torchrank.metrics.confusion import MCC, Accuracy, Utility
from torchrank.metrics.counts import NumRel, NumRelRet, NumRet
from torchrank.metrics.graded import ARP, CG, DCG, NDCG, PWA, RNDCG, GradedMetric
from torchrank.metrics.incomplete_judgments import Bpref, InfAP, Judged
from torchrank.metrics.intent_aware import APIA, PIA, IntentMetric, SubtopicRecall
from torchrank.metrics.novelty import ERRIA, NERRIA, NNRBP, NRBP, AlphaDCG, AlphaNDCG
from torchrank.metrics.pairwise import LRAP, OPA, CoverageError, RankingLoss
from torchrank.metrics.positions import MR, MRR, HitRate, PositionMetric
from torchrank.metrics.precision_recall_curve import ElevenPoint, InterpolatedPrecision, PRCurve, RecallAtPrecision
from torchrank.metrics.propensity import IPS, PSNDCG, PSP, inverse_propensity, propensities
from torchrank.metrics.q_measure import QMeasure
from torchrank.metrics.rank_correlation import (
    APTau,
    ComparingMetric,
    KendallDistance,
    KendallTau,
    Spearman,
    WeightedTau,
)
from torchrank.metrics.rank_overlap import RBO, Overlap
from torchrank.metrics.roc import AUROC
from torchrank.metrics.user_models import CWL, RBP, RBPResidual, UserMetric
from torchrank.names.parse import parse

__all__ = [
    "APIA",
    "ARP",
    "AUROC",
    "CG",
    "CWL",
    "DCG",
    "ERR",
    "ERRIA",
    "F1",
    "IPS",
    "LRAP",
    "MAP",
    "MCC",
    "MR",
    "MRR",
    "NDCG",
    "NERR",
    "NERRIA",
    "NNRBP",
    "NRBP",
    "OPA",
    "PIA",
    "PSNDCG",
    "PSP",
    "PWA",
    "RBO",
    "RBP",
    "RNDCG",
    "YAAP",
    "APTau",
    "Accuracy",
    "AlphaDCG",
    "AlphaNDCG",
    "BinG",
    "BinaryMetric",
    "Bpref",
    "ComparingMetric",
    "Coverage",
    "CoverageError",
    "ElevenPoint",
    "Entropy",
    "FBeta",
    "FallOut",
    "Gini",
    "GradedMetric",
    "HitRate",
    "InfAP",
    "IntentMetric",
    "InterpolatedPrecision",
    "IntraListDiversity",
    "Judged",
    "KendallDistance",
    "KendallTau",
    "Novelty",
    "NumRel",
    "NumRelRet",
    "NumRet",
    "Overlap",
    "PRCurve",
    "Personalization",
    "Popularity",
    "PositionMetric",
    "Precision",
    "QMeasure",
    "RBPResidual",
    "RPrecision",
    "RankingLoss",
    "RankingMetric",
    "Recall",
    "RecallAtPrecision",
    "RelativePrecision",
    "Serendipity",
    "SetAP",
    "Spearman",
    "SubtopicRecall",
    "Unexpectedness",
    "UserMetric",
    "Utility",
    "WeightedTau",
    "inverse_propensity",
    "parse",
    "propensities",
]
