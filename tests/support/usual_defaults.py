"""Defaults of public functions, classes and methods, and bounds of parameters: by name, the same where not listed."""

from __future__ import annotations

import inspect
import math
from types import FunctionType, MethodType
from typing import Any

import torch

import torchrank as tr
from torchrank.layouts.canonical import Need

#: the default of an argument wherever it is; None for all others
USUAL = {
    "alpha": 0.05, "digits": 4, "duplicates": "error", "expansion": 100, "family": "measure", "format": "auto",
    "level": 0.95, "notes": (), "points": 11, "power": 0.8, "relevance_level": 1, "repeats": "error",
    "replicates": 1000, "seed": 0,
    **dict.fromkeys(("anytime", "ignore_identical_ids", "ignored_identical_ids", "progress"), False),
    **dict.fromkeys(("caption", "name", "source", "text"), ""),
}  # fmt: skip

#: the defaults of single functions, classes and methods
OTHERS = {
    "compare": {"test": "t", "level": None, "missing": "error", "zeros": "pratt", "replicates": 10_000},
    "Comparison": {"test": "t", "correction": "holm", "warnings": ()},
    "Table.of_rows": {"columns": ()},
    "Table.to_html": {"grouped": False},
    "Comparison.gate": {"fail_if": (), "require": ()},
    "Evaluation": {"ties": "document", "unlabelled": ()},
    "Evaluation.to_html": {"worst": 10},
    "evaluate": {"ignore_identical_ids": None, "relevance_level": None},
    "partial": {"measures": "ndcg@10 map mrr recall@100", "queries": "judged", "precision": "double"},
    "Ranking": dict.fromkeys(("all_candidates", "complete", "of_labels", "only_relevant"), False),
    "Ranking.from_embeddings": {"similarity": "dot", "group": False, "atol": 0, "rtol": 0},
    "Ranking.from_flat": {"judged": False},
    "Ranking.from_generated": {"invalid": "hold"},
    "Ranking.from_negatives": {"atol": 0, "rtol": 0},
    "Ranking.from_table": {"ties": "expected"},
    "Ranking.in_rank_order": {"placed": False, "of_labels": False},
    "Ranking.parts": {"all_candidates": False},
    "Ranking.rank": {"need": Need(None, False, False, 1)},
    "Ranking.sampled": {"replacement": False},
    "expected_median_rank": {"aggregation": "midpoint"},
    "ReadingError": {"unit": "line"},
    "Run": {"ties": "document"},
    "read_chunks": {"lines": 250_000},
    "RankingCollection": {"keys": "label"},
    "RankingCollection.keys": {"keep_base": False},
    "RankingCollection.items": {"keep_base": False, "copy_state": True},
    "RankingCollection.plot": {"over_k": False},
    **{key: {"method": "auto"} for key in ("RankingCollection.intervals", "RankingCollection.summary")},
    "Abstention": {"confidence": "max"},
    "Bootstrapped": {"method": "percentile"},
    # None = the level that the wrapper was made with
    **{key: {"level": None} for key in ("Bootstrapped.intervals", "Bootstrapped.summary", "Bootstrapped.difference")},
    **{key: {"level": None} for key in ("Compared.comparison", "Rectified.comparison", "Sliced.summary")},
    **{f"{key}.add": {"groups": (None,)} for key in ("Abstention", "Bootstrapped", "Compared", "Rectified", "Sliced")},
    "Sliced.estimates": {"level": None, "method": "auto"},
    "Sliced.worst": {"level": None, "min_queries": 2},
    "Sliced.difference": {"level": None, "other": "rest"},
    "PerQuery": {"dtype": torch.float64},
    "QueryTable.deltas": {"most": 10},
    "SampledRanks": {
        "replacement": False, "sampling": "uniform", "empty_target_action": "skip", "aggregation": "mean",
        "ties": "expected", "unjudged": "irrelevant", "validate_args": True, "sync_on_compute": True,
        "dist_sync_on_step": False, "compute_on_cpu": False, "compute_with_cache": True,
    },
    "SampledRanks.estimate": {"method": "em", "gamma": 0.01},
    "TieReport": {"atol": 0.0, "rtol": 0.0},
    "UnpaddedSampler": {"shuffle": False, "drop_last": False},
}  # fmt: skip


#: the default of a parameter of a measure wherever it is; None for all others
OF_MEASURES = {
    "aggregation": "mean", "average": "query", "beta": 1, "empty_target_action": "neg", "gain": "linear",
    "middle": 0.5, "of": "utility", "pairs": "all", "patience": 0.5, "penalty": 0.5, "relevance_level": 1,
    "rounding": "nearest", "ties": "expected", "unjudged": "irrelevant", "user": "rbp", "weigh_by": "both",
    **dict.fromkeys(("compute_with_cache", "sync_on_compute", "validate_args"), True),
    **dict.fromkeys(("adaptive_k", "bounded", "compute_on_cpu", "dist_sync_on_step", "filtered", "inverse"), False),
    **dict.fromkeys(("normalize", "normalized", "self_normalized", "whole"), False),
    **dict.fromkeys(("behind", "hit", "multiple", "target"), 1),
    **dict.fromkeys(("benefit", "cost", "miss", "rejection", "smoothing"), 0),
}  # fmt: skip

#: the defaults of single measures, by parameter
SINGLE: dict[str, dict[Any, str]] = {
    "aggregation": {"sum": "NumQ"},
    "alpha": {0.5: "AlphaDCG AlphaNDCG NRBP NNRBP", 0.01: "Miscalibration"},
    "beta": {0.5: "NRBP NNRBP"},
    "discount": {
        "log2": "DCG NDCG AlphaDCG AlphaNDCG PSNDCG NDKL DemographicParity ExposureParity",
        "geometric": "EEL EED EER",
        "none": "IPS Miscalibration Entropy Gini LorenzCurve",
        "clipped": "AWRF",
    },
    "distance": {"kl": "Miscalibration", "js": "AWRF"},
    "empty_target_action": {
        "pos": "FallOut",
        "skip": "APTau ARP AUROC EED EEL EER FirstRank KendallDistance KendallTau LIP MR Overlap PMRR RBA RBO RBR"
        " Spearman WeightedTau",
    },
    "false_alarm": {-1: "Utility"},
    "gain": {None: "MAP APIA OPA", "exponential": "ERR NERR UMeasure"},
    "log_base": {2: "DCG NDCG PSNDCG Entropy", math.e: "Miscalibration AWRF"},
    "max_grade": {4: "ERR NERR", 1: "ERRIA NERRIA"},
    "min_precision": {0.5: "RecallAtPrecision"},
    "normalize": {"relevant": "Recall MAP APIA QMeasure", "ideal": "NDCG", True: "Compat", "min": "Bpref"},
    "of": {"cost": "CWLCost"},
    "p": {0.95: "Compat RBA RBR", 0.9: "RBP RBPResidual RBO", 0.8: "CWL CWLCost"},
    "patience": {0.85: "Entropy Gini LorenzCurve", 132_000: "UMeasure", None: "CategoryEntropy"},
    "points": {tuple(n / 10 for n in range(11)): "ElevenPoint"},
    "recall": {0.5: "InterpolatedPrecision"},
    "tail": {0.1: "TailPercentage"},
    "variant": {"b": "KendallTau", "a": "RBO"},
    # seconds and probabilities of the users of TBG and of U-measure
    "half_life": {224: "TBG"},
    "seconds_per_summary": {4.4: "TBG"},
    "seconds_per_word": {0.018: "TBG"},
    "seconds_per_item": {7.8: "TBG"},
    "click_relevant": {0.64: "TBG"},
    "click_other": {0.39: "TBG"},
    "save": {0.77: "TBG"},
    "snippet": {200: "UMeasure"},
    "read": {0.2: "UMeasure"},
}

#: the bounds of parameters that are numbers, of all measures or of a single one
BOUNDS = {
    "beta half_life max_grade multiple relevance_level tail target UMeasure.patience": {"above": 0},
    "log_base num_users": {"above": 1},
    "p CategoryEntropy.patience Miscalibration.alpha": {"above": 0, "below": 1},
    "max_fpr min_precision patience": {"above": 0, "most": 1},
    "behind seconds_per_item seconds_per_summary seconds_per_word smoothing snippet": {"least": 0},
    "Miscalibration.log_base AWRF.log_base": {"least": 2},
    "alpha click_other click_relevant penalty read recall save NRBP.beta NNRBP.beta": {"least": 0, "most": 1},
    "collection_size": {"least": 0, "most": 2**53},
    "num_items top_k": {"least": 1, "most": 2**53},
    "CWL.top_k CWLCost.top_k": {"least": 1, "most": 2**18},
    "benefit cost false_alarm hit middle miss rejection": {},
}

#: the values of parameters that take others than True and False
CHOICES = {"Entropy.normalize": (False, True, "distinct"), "IPS.self_normalized": (False, True, "query")}

#: the lowest and the highest value of measures, and whether high values are good; of those left out 0, 1 and True
RANGES = {
    "Aliasing Duplication FallOut Gini Hole RBPResidual RankingLoss": (0, 1, False),
    "ACLT AlphaDCG CG CategoryEntropy DCG EER Entropy IPS Novelty": (0, math.inf, True),
    "NumQ NumRel NumRelRet NumRet PWA TBG UMeasure": (0, math.inf, True),
    "CWLCost CoverageError EED EEL KendallDistance LIP Miscalibration": (0, math.inf, False),
    "NDKL NumNonrelRet Popularity": (0, math.inf, False),
    "APTau KendallTau MCC PMRR Spearman WeightedTau": (-1, 1, True),
    "ARP FirstRank MR": (1, math.inf, False),
    "IntraListDiversity": (0, 2, True),
    "PopularityLift": (-1, math.inf, False),
    "Utility YAAP": (-math.inf, math.inf, True),
}

#: the measures of which a statement is true
TRUE_OF = {
    "monotone_behind": "CG CWL DCG ERR F1 FBeta HitRate IPS MAP MRR NDCG NERR NumRel NumRelRet PRCurve PSNDCG PSP PWA"
    " Precision RBP Recall RecallAtPrecision RelativePrecision Utility",
    "empty_without_denominator": "NDCG Recall",
    "of_every_positive": "MR",
    "takes_repeats": "Aliasing Duplication Unrepeated Validity",
}


def by_name(table: dict[str, Any]) -> dict[str, Any]:
    return {name: row for names, row in table.items() for name in names.split()}


def check_measure(measure: Any) -> None:
    """Compare the defaults of a measure, also of parameters that it fixes, the bounds of its numbers, and its range."""
    name = measure.__name__
    single = {key: by_name({names: d for d, names in some.items()}) for key, some in SINGLE.items()}
    found = {key: one.default for key, one in measure.declared.items() if one.default is not inspect.Parameter.empty}
    assert found == {key: single.get(key, {}).get(name, OF_MEASURES.get(key)) for key in found}

    assert [key for key, one in measure.declared.items() if one.init and not one.kw_only] == ["top_k"]

    bounds, choices = {}, {}
    for key, one in measure.declared.items():
        if hasattr(one, "bounds"):
            bounds[key] = one.bounds
        elif hasattr(one, "least"):
            bounds[key] = {"least": one.least, "most": one.most}
        elif isinstance(getattr(one, "known", None), tuple) and one.known:
            choices[key] = one.known
    usual = by_name(BOUNDS)
    assert bounds == {key: usual.get(f"{name}.{key}", usual.get(key)) for key in bounds}
    assert choices == {key: CHOICES.get(f"{name}.{key}", (True, False)) for key in choices}
    assert (*measure.value_range, measure.higher_is_better) == by_name(RANGES).get(name, (0, 1, True))
    assert {key for key in TRUE_OF if getattr(measure, key, False)} == {
        key for key in TRUE_OF if name in TRUE_OF[key].split()
    }


def check(folder: str) -> None:
    """Compare the defaults of all that a folder of the package has public."""
    found, wanted = {}, {}
    for name in tr.__all__:
        thing = getattr(tr, name)
        if str(getattr(thing, "__module__", "")).startswith(f"torchrank.{folder}"):
            ours = [base for base in getattr(thing, "__mro__", ()) if base.__module__.startswith(f"torchrank.{folder}")]
            public = {key for base in ours for key in vars(base) if key[0] != "_"}  # inherited ones too
            for path, function in {name: thing, **{f"{name}.{key}": getattr(thing, key) for key in public}}.items():
                if isinstance(function, FunctionType | MethodType | type):
                    parameters = inspect.signature(function).parameters.items()
                    defaults = {key: one.default for key, one in parameters if one.default is not one.empty}
                    defaults = {key: default for key, default in defaults.items() if repr(default) != "<factory>"}
                    found[path] = defaults
                    wanted[path] = {key: {**USUAL, **OTHERS.get(path, {})}.get(key) for key in defaults}
    assert any(found.values())
    assert found == wanted
