"""The third room: one class per measure, each a formula on a Ranking."""

from torchrank.metrics.base import RankingMetric
from torchrank.metrics.beyond import IntraListDiversity, Novelty, Popularity, Serendipity, Unexpectedness
from torchrank.metrics.binary import AUROC, F1, MAP, BinaryMetric, FallOut, FBeta, Precision, Recall, RPrecision
from torchrank.metrics.cascade import ERR, NERR
from torchrank.metrics.compare import APTau, ComparingMetric, KendallDistance, KendallTau, Spearman, WeightedTau
from torchrank.metrics.confusion import MCC, Accuracy, Utility
from torchrank.metrics.curve import PRCurve
from torchrank.metrics.cuts import RelativePrecision, SetAP
from torchrank.metrics.exposure import Coverage, Entropy, Gini, Personalization
from torchrank.metrics.graded import CG, DCG, NDCG, GradedMetric
from torchrank.metrics.intents import APIA, PIA, IntentMetric, SubtopicRecall
from torchrank.metrics.interpolated import ElevenPoint, InterpolatedPrecision, RecallAtPrecision
from torchrank.metrics.judged import Bpref, InfAP, Judged
from torchrank.metrics.overlap import RBO, Overlap
from torchrank.metrics.pairs import LRAP, OPA, CoverageError, RankingLoss
from torchrank.metrics.parse import parse
from torchrank.metrics.positions import MR, MRR, HitRate, PositionMetric
from torchrank.metrics.propensity import IPS, PSNDCG, PSP, inverse_propensity, propensities
from torchrank.metrics.qmeasure import QMeasure
from torchrank.metrics.redundancy import ERRIA, NERRIA, NNRBP, NRBP, AlphaDCG, AlphaNDCG
from torchrank.metrics.trec import RNDCG, YAAP, BinG, NumRel, NumRelRet, NumRet
from torchrank.metrics.users import CWL, RBP, RBPResidual, UserMetric
from torchrank.metrics.weighted import ARP, PWA

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
