"""Bounds of parameters and ranges of measures: by name, the same where not listed."""

import math

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
    "enough num_items top_k": {"least": 1, "most": 2**53},
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
    "monotone_behind": "AllHit CG CWL DCG ERR EachRR F1 FBeta HitRate IPS MAP MRR NDCG NERR NumRel NumRelRet PFound"
    " PRCurve PSNDCG PSP PWA Precision RBP Recall RecallAtPrecision RelativePrecision Utility",
    "empty_without_denominator": "NDCG Recall",
    "of_every_positive": "MR",
    "takes_repeats": "Aliasing Duplication Unrepeated Validity",
}


def by_name(table):
    return {name: row for names, row in table.items() for name in names.split()}


def check_measure(measure):
    """Compare the bounds of the numbers that a measure takes, its choices, and its range."""
    name = measure.__name__
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
    true = {key for key in TRUE_OF if name in TRUE_OF[key].split()}
    assert {key for key in TRUE_OF if getattr(measure, key, False)} == true
