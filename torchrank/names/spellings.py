"""What other libraries call the measures: a spelling, and the label that it stands for.

In a spelling ``{k}`` is a cut-off or a list of them, ``{x}`` a number or a list of them, of which each makes a label of
its own, and any other name in braces is one number. A label may use them, and ``{root}``, the square root of ``{x}``.
An underscore may also be a dot, as on trec_eval's command line (``ndcg_cut.5,10``), a hyphen or nothing, as in names
of classes (``RecipRank``). Parameters in a
spelling must be given as they stand there; all others, and a cut-off behind ``@``, are passed on. Case does not matter,
and where two spellings fit the first wins. The measures' own names come before all of these.
"""

from __future__ import annotations

from typing import Any

#: The cut-offs that trec_eval takes if it is given none.
_CUTS = "5,10,15,20,30,100,200,500,1000"


# Common names, the same in many libraries.
COMMON = {
    "rr": "mrr",
    "mean_reciprocal_rank": "mrr",
    "reciprocal_rank": "mrr",
    "recip_rank": "mrr",  # trec_eval, LensKit
    "p": "precision",
    "prec": "precision",
    "r": "recall",
    "ap": "map",
    "average_precision": "map",
    "mean_average_precision": "map",
    "success": "hitrate",
    "hits": "hitrate",
    "hit": "hitrate",
    "hr": "hitrate",
    "hit_ratio": "hitrate",
    "f": "f1",
    "f_beta": "fbeta",
    "f1_beta": "fbeta",
    "f{x}": "fbeta(beta={x})",
    "rprec": "rprecision",
    "mean_rank": "mr",
    "auc": "auroc",
    "roc_auc": "auroc",
    "gmap": "map(aggregation=geometric)",
    "normalized_dcg": "ndcg",
    "ndcg_burges": "ndcg(gain=exponential)",  # ranx
    "dcg_burges": "dcg(gain=exponential)",
    "rbp{x}": "rbp(p={x})",  # ranx: rbp.95
    "coverage_error": "coverageerror",
    "ranking_loss": "rankingloss",
    "label_ranking_average_precision": "lrap",
    "label_ranking_loss": "rankingloss",
    "kendall": "kendalltau",
    "tau": "kendalltau",
    "tau_ap": "aptau",
    "weighted_kendall_tau": "weightedtau",
    "kendall_tau_b": "kendalltau",
    "kendall_rank_corr_coef": "kendalltau",
    "spearmanr": "spearman",
    "spearman_rho": "spearman",
    "spearman_corr_coef": "spearman",
    "rank_biased_overlap": "rbo",
    "rbo_ext": "rbo",
    "cumulative_gain": "cg",
    "discounted_cumulative_gain": "dcg",
    "normalized_discounted_cumulative_gain": "ndcg",
    "normalised_discounted_cumulative_gain": "ndcg",
    "expected_reciprocal_rank": "err",
    "rank_biased_precision": "rbp",
    "binary_preference": "bpref",
    "inferred_ap": "infap",
    "inferred_average_precision": "infap",
    "interpolated_precision_at_recall_{x}": "iprec(recall={x})",
    "recall_at_fixed_precision": "recallatprecision",
    "retrieval_recall_at_fixed_precision": "recallatprecision",
    "precision_recall_curve": "prcurve",
    "retrieval_precision_recall_curve": "prcurve",
    "q_measure": "qmeasure",
    "matthews": "mcc",
    "matthews_correlation": "mcc",
    "ordered_pair_accuracy": "opa",  # TensorFlow Ranking
    "average_relevance_position": "arp",
    "precision_ia": "pia",
    "ap_ia": "apia",
    "position_weighted_average": "pwa",
    "subtopic_recall": "strecall",
    "s_recall": "strecall",
    "strec": "strecall",  # pyndeval
    "gauc": "auroc",
    "rocauc": "auroc",  # RePlay
    "top_k_accuracy": "hitrate",  # BEIR
    "top_k_categorical_accuracy": "hitrate",  # Keras
    "top_{k}_accuracy": "hitrate@{k}",
    "psprecision": "psp",  # pyxclib
    "snips": "ips(self_normalized=True)",
}


# trec_eval 10, as it prints them and as its option -m takes them.
TREC_EVAL: dict[str, str | list[str]] = {
    "p_{k}": "precision@{k}",
    "recall_{k}": "recall@{k}",
    "success_{k}": "hitrate@{k}",
    "map_cut_{k}": "map@{k}",
    "map_cut": f"map@{_CUTS}",
    "ndcg_cut_{k}": "ndcg@{k}",
    "ndcg_cut": f"ndcg@{_CUTS}",
    "relative_p_{k}": "relprecision@{k}",
    "relative_p": f"relprecision@{_CUTS}",
    "rprec_mult_{x}": "rprecision(multiple={x})",
    "rprec_mult": [f"rprecision(multiple={step / 5:g})" for step in range(1, 11)],
    "set_p": "precision",
    "set_recall": "recall",
    "set_f": "f1",
    "set_f_{x}": "fbeta(beta={root})",  # its parameter stands where the square of beta does
    "set_map": "setap",
    "set_relative_p": "relprecision",
    "iprec_at_recall_{x}": "iprec(recall={x})",
    "iprec_at_recall": [f"iprec(recall={step / 10:g})" for step in range(11)],
    "11pt_avg": "elevenpoint",
    "gm_map": "map(aggregation=geometric)",
    "gm_bpref": "bpref(aggregation=geometric)",
    "num_rel": "numrel",
    "num_rel_ret": "numrelret",
    "num_ret": "numret",
    "rbp_p={p}": "rbp(p={p})",
    "rbp_{p}": "rbp(p={p})",
    "rbp_resid_p={p}": "rbpresidual(p={p})",
    "rbp_resid_{p}": "rbpresidual(p={p})",
    "rbp_resid": "rbpresidual",
    "utility_{hit},{false_alarm},{miss},{rejection}": (
        "utility(hit={hit},false_alarm={false_alarm},miss={miss},rejection={rejection})"
    ),
}


# ir_measures 0.4, where it differs from the above. Its SetF hands its beta on to trec_eval, as x.
IR_MEASURES = {
    "setp(relative=True)": "relprecision",
    "setp(relative=False)": "precision",
    "setp": "precision",
    "setrelp": "relprecision",
    "setr": "recall",
    "setf(beta={x})": "fbeta(beta={root})",
    "setf": "f1",
    "iprec@{x}": "iprec(recall={x})",
    "numret(rel={x})": "numrelret(relevance_level={x})",
    "\N{GREEK SMALL LETTER ALPHA}_dcg": "alphadcg",
    "\N{GREEK SMALL LETTER ALPHA}_ndcg": "alphandcg",
    "alpha_dcg@{k}": "alphadcg(bounded=True)@{k}",
    "\N{GREEK SMALL LETTER ALPHA}_dcg@{k}": "alphadcg(bounded=True)@{k}",
    "err_ia@{k}": "erria(bounded=True)@{k}",
    "map_ia": "apia",
    "inst": "cwl(user=inst)",
    "insq": "cwl(user=insq)",
    "bpm": "cwl(user=bpm)",
    "sdcg": "cwl(user=sdcg)",
    "nerr8": "cwl(user=nerr8)",
    "nerr9": "cwl(user=nerr9)",
    "nerr10": "cwl(user=nerr10)",
    "nerr11": "cwl(user=nerr11)",
}


# PyKEEN. Its ranks are filtered, over all positives, and realistic: that is for the arguments to say, or the preset.
PYKEEN = {
    "arithmetic_mean_rank": "mr",
    "geometric_mean_rank": "mr(aggregation=geometric)",
    "gmr": "mr(aggregation=geometric)",
    "harmonic_mean_rank": "mr(aggregation=harmonic)",
    "hmr": "mr(aggregation=harmonic)",
    "median_rank": "mr(aggregation=midpoint)",
    "inverse_arithmetic_mean_rank": "mr(inverse=True)",
    "iamr": "mr(inverse=True)",
    "inverse_geometric_mean_rank": "mr(aggregation=geometric,inverse=True)",
    "igmr": "mr(aggregation=geometric,inverse=True)",
    "inverse_median_rank": "mr(aggregation=midpoint,inverse=True)",
    "inverse_harmonic_mean_rank": "mrr",
    "adjusted_arithmetic_mean_rank": "mr(adjusted=ratio)",
    "adjusted_mean_rank": "mr(adjusted=ratio)",
    "aamr": "mr(adjusted=ratio)",
    "amr": "mr(adjusted=ratio)",
    "adjusted_arithmetic_mean_rank_index": "mr(adjusted=index)",
    "adjusted_mean_rank_index": "mr(adjusted=index)",
    "aamri": "mr(adjusted=index)",
    "amri": "mr(adjusted=index)",
    "z_arithmetic_mean_rank": "mr(adjusted=z)",
    "zamr": "mr(adjusted=z)",
    "zmr": "mr(adjusted=z)",
    "adjusted_inverse_harmonic_mean_rank": "mrr(adjusted=index)",
    "adjusted_mean_reciprocal_rank": "mrr(adjusted=index)",
    "adjusted_mrr": "mrr(adjusted=index)",
    "aihmr": "mrr(adjusted=index)",
    "amrr": "mrr(adjusted=index)",
    "z_inverse_harmonic_mean_rank": "mrr(adjusted=z)",
    "zihmr": "mrr(adjusted=z)",
    "zmrr": "mrr(adjusted=z)",
    "hits_at_{k}": "hitrate@{k}",
    "h_at_{k}": "hitrate@{k}",
    "h": "hitrate",
    "adjusted_hits_at_{k}": "hitrate(adjusted=index)@{k}",
    "ahits_at_{k}": "hitrate(adjusted=index)@{k}",
    "ah_at_{k}": "hitrate(adjusted=index)@{k}",
    "ahits": "hitrate(adjusted=index)",
    "ah": "hitrate(adjusted=index)",
    "z_hits_at_{k}": "hitrate(adjusted=z)@{k}",
}


# Names of classes and functions that only one library has, with the definition that it gives them.
CLASSES = {
    # torchmetrics
    "retrieval_map": "map(normalize=retrieved)",
    "retrieval_average_precision": "map(normalize=retrieved)",
    "retrieval_mrr": "mrr",
    "retrieval_reciprocal_rank": "mrr",
    "retrieval_precision": "precision",
    "retrieval_recall": "recall",
    "retrieval_hit_rate": "hitrate",
    "retrieval_fall_out": "fallout",
    "retrieval_r_precision": "rprecision",
    "retrieval_normalized_dcg": "ndcg",
    "retrieval_auroc": "auroc",
    "multilabel_ranking_average_precision": "lrap(ties=grouped,empty_target_action=pos)",
    "multilabel_coverage_error": "coverageerror(ties=pessimistic)",
    "multilabel_ranking_loss": "rankingloss(ties=pessimistic)",
    # PyG
    "link_pred_precision": "precision",
    "link_pred_recall": "recall",
    "link_pred_f1": "f1",
    "link_pred_hit_ratio": "hitrate",
    "link_pred_mrr": "mrr",
    "link_pred_map": "map(normalize=min)",
    "link_pred_ndcg": "ndcg",
    "link_pred_coverage": "coverage",
    "link_pred_diversity": "diversity",
    "link_pred_personalization": "personalization",
    "link_pred_average_popularity": "popularity",
    # rax; TensorFlow Ranking's classes are called the same but for the underscore
    "precision_metric": "precision(adaptive_k=True)",
    "recall_metric": "recall",
    "mrr_metric": "mrr",
    "ap_metric": "map",
    "mean_average_precision_metric": "map",
    "ndcg_metric": "ndcg(gain=exponential)",
    "dcg_metric": "dcg(gain=exponential)",
    "opa_metric": "opa",
    "arp_metric": "arp",
    "hits_metric": "hitrate",
    "precision_ia_metric": "pia(adaptive_k=True)",
    "alpha_dcg_metric": "alphadcg",
    "bpref_metric": "bpref",
    "pwa_metric": "pwa",
    # scikit-learn
    "ndcg_score": "ndcg",
    "dcg_score": "dcg",
    "roc_auc_score": "auroc",
    "average_precision_score": "lrap(ties=grouped)",
    "label_ranking_average_precision_score": "lrap(ties=grouped,empty_target_action=pos)",
    "top_k_accuracy_score": "hitrate",
    "matthews_corrcoef": "mcc",
    "f1_score": "f1",
    "fbeta_score": "fbeta",
    # metrax
    "precision_at_k": "precision(adaptive_k=True)",
    "recall_at_k": "recall",
    "average_precision_at_k": "map",
    "ndcg_at_k": "ndcg(gain=exponential)",
    "dcg_at_k": "dcg(gain=exponential)",
    # Transformers4Rec, and ranking-metrics-torch with an underscore
    "precision_at": "precision",
    "recall_at": "recall",
    "avg_precision_at": "map(normalize=min)",
    "dcg_at": "dcg",
    "ndcg_at": "ndcg",
    # LensKit, RecBole, RecTools, RePlay: of lists of items
    "list_gini": "gini",
    "exposure_gini": "gini(discount=geometric)",
    "gini_index": "gini",
    "item_coverage": "coverage",
    "catalog_coverage": "coverage",
    "catalogue_coverage": "coverage",
    "average_popularity": "popularity",
    "avg_rec_popularity": "popularity",
    "shannon_entropy": "entropy",
    "mean_inv_user_freq": "novelty",
    "miuf": "novelty",
    "surprisal": "novelty(normalize=True)",
    "intra_list_diversity": "diversity",
    "ild": "diversity",
    "list_length": "numret",
    # BEIR
    "r_cap": "recall(normalize=min)",
    "recall_cap": "recall(normalize=min)",
}


SPELLINGS: dict[str, str | list[str]] = {**COMMON, **IR_MEASURES, **TREC_EVAL, **PYKEEN, **CLASSES}


# Other names of parameters: of all their values, or value by value the arguments that these stand for.
PARAMETERS: dict[str, str | dict[Any, dict[str, Any]]] = {
    "rel": "relevance_level",
    "norm": "normalize",
    "cutoff": "top_k",
    "gains": "gain",
    "t": "target",
    "max_rel": "max_grade",
    "dcg": {"log2": {"gain": "linear"}, "exp-log2": {"gain": "exponential"}},
    "judged_only": {True: {"unjudged": "condensed"}, False: {}},
}
