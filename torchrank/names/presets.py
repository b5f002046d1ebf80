"""Which settings reproduce the numbers of which library: one table, from which presets and the README are made."""

from __future__ import annotations

import re
from numbers import Integral
from typing import Any

from torchrank.names.labels import read, write

#: The libraries, and what was compared.
LIBRARIES = {
    "trec_eval": "trec_eval 10",
    "trec_eval9": "trec_eval 9, pytrec_eval",
    "sklearn": "scikit-learn",
    "torchmetrics": "torchmetrics",
    "pyg": "PyG",
    "recbole": "RecBole",
    "rectools": "RecTools",
    "lenskit": "LensKit",
    "pykeen": "PyKEEN",
    "rax": "rax",
}


#: What holds for all measures of a library.
ALWAYS: dict[str, dict[str, Any]] = {
    "pyg": {"empty_target_action": "skip"},
    "recbole": {"empty_target_action": "skip"},
    "rectools": {"empty_target_action": "skip"},
    "lenskit": {"empty_target_action": "skip"},
    "pykeen": {"filtered": True, "average": "positive", "ties": "realistic"},
    "rax": {"empty_target_action": "listed"},
}


#: Where these numbers differ from a library's all the same.
EXCEPT = {
    "pyg": "0 if no query has a relevant candidate; here NaN",
    "rectools": "`Accuracy` and `MCC` take a shorter list for one of k, and of ids need `collection_size` here",
    "lenskit": "`gain=rating` is for users with test items; before 2026.2.1 `DCG` of none was 0",
    "rax": "a list of nothing but scores of -inf counts as 0, and a batch of nothing but masked lists is 0",
}


def _both(theirs: str, ours: str | None, why: str = "") -> dict[str, tuple[str, str | None, str]]:
    """A cell for both versions of trec_eval."""
    return {"trec_eval": (theirs, ours, why), "trec_eval9": (theirs, ours, why)}


#: By measure and library: their name, the label of ours, or None and why no setting gives the same number. ``{k}`` is a
#: cut-off, and what stands in brackets is left out where none is given. Numbers agree where no scores are tied, and
#: under ties where the library defines what they mean; for libraries that know no grades, where these are 0 and 1.
TABLE: dict[str, dict[str, tuple[str, str | None, str]]] = {
    "precision": {
        **_both("P_{k}", "precision@{k}"),
        "torchmetrics": ("RetrievalPrecision[@{k}]", "precision[@{k}]", ""),
        "pyg": ("LinkPredPrecision@{k}", "precision@{k}", ""),
        "recbole": ("precision@{k}", "precision@{k}", ""),
        "rectools": ("Precision(k={k})", "precision@{k}", ""),
        "lenskit": ("Precision[@{k}]", "precision(adaptive_k=True,empty_target_action=listed)[@{k}]", ""),
        "rax": ("precision_metric[@{k}]", "precision(adaptive_k=True)[@{k}]", ""),
    },
    "relative precision": {
        **_both("relative_P_{k}", "relprecision@{k}"),
        "rectools": ("Precision(k={k}, r_precision=True)", "relprecision@{k}", ""),
    },
    "recall": {
        **_both("recall_{k}", "recall@{k}"),
        "torchmetrics": ("RetrievalRecall[@{k}]", "recall[@{k}]", ""),
        "pyg": ("LinkPredRecall@{k}", "recall@{k}", ""),
        "recbole": ("recall@{k}", "recall@{k}", ""),
        "rectools": ("Recall(k={k})", "recall@{k}", ""),
        "lenskit": ("Recall[@{k}]", "recall(normalize=min)[@{k}]", ""),
        "rax": ("recall_metric[@{k}]", "recall[@{k}]", ""),
    },
    "F1": {
        "pyg": ("LinkPredF1@{k}", "f1@{k}", ""),
        "rectools": ("F1Beta(k={k})", "f1@{k}", ""),
    },
    "hit rate": {
        **_both("success_{k}", "hitrate@{k}"),
        "torchmetrics": ("RetrievalHitRate[@{k}]", "hitrate[@{k}]", ""),
        "pyg": ("LinkPredHitRatio@{k}", "hitrate@{k}", ""),
        "recbole": ("hit@{k}", "hitrate@{k}", ""),
        "rectools": ("HitRate(k={k})", "hitrate@{k}", ""),
        "lenskit": ("Hit[@{k}]", "hitrate[@{k}]", ""),
        "pykeen": ("hits_at_{k}", "hitrate@{k}", ""),
    },
    "reciprocal rank": {
        **_both("recip_rank", "mrr"),
        "torchmetrics": ("RetrievalMRR[@{k}]", "mrr[@{k}]", ""),
        "pyg": ("LinkPredMRR@{k}", "mrr@{k}", ""),
        "recbole": ("mrr@{k}", "mrr@{k}", ""),
        "rectools": ("MRR(k={k})", "mrr@{k}", ""),
        "lenskit": ("RecipRank[@{k}]", "mrr[@{k}]", ""),
        "pykeen": ("inverse_harmonic_mean_rank", "mrr", ""),
        "rax": ("mrr_metric[@{k}]", "mrr[@{k}]", ""),
    },
    "average precision": {
        **_both("map", "map"),
        "sklearn": ("average_precision_score", "lrap(ties=grouped)", ""),
    },
    "average precision at k": {
        **_both("map_cut_{k}", "map@{k}"),
        "torchmetrics": ("RetrievalMAP[@{k}]", "map(normalize=retrieved)[@{k}]", ""),
        "pyg": ("LinkPredMAP@{k}", "map(normalize=min)@{k}", ""),
        "recbole": ("map@{k}", "map(normalize=min)@{k}", ""),
        "rectools": ("MAP(k={k})", "map@{k}", ""),
        "lenskit": ("AveragePrecision[@{k}]", "map(normalize=length,empty_target_action=listed)[@{k}]", ""),
        "rax": ("ap_metric[@{k}]", "map[@{k}]", ""),
    },
    "average precision by k": {"rectools": ("MAP(k={k}, divide_by_k=True)", "map(normalize=k)@{k}", "")},
    "geometric mean AP": _both("gm_map", "map(aggregation=geometric)"),
    "log odds of AP": {"trec_eval": ("yaap", "yaap", "")},
    "NDCG": {
        **_both("ndcg", "ndcg"),
        "sklearn": ("ndcg_score[@{k}]", "ndcg[@{k}]", ""),
        "torchmetrics": ("RetrievalNormalizedDCG[@{k}]", "ndcg[@{k}]", ""),
        "lenskit": ("NDCG[@{k}]", "ndcg(discount=clipped)[@{k}]", ""),
        "rax": ("ndcg_metric[@{k}]", "ndcg(gain=exponential)[@{k}]", ""),
    },
    "NDCG of graded test items": {
        "lenskit": ("NDCG(gain=rating)[@{k}]", "ndcg(discount=clipped,empty_target_action=neg)[@{k}]", ""),
    },
    "NDCG at k": {
        **_both("ndcg_cut_{k}", "ndcg@{k}"),
        "pyg": ("LinkPredNDCG@{k}", "ndcg@{k}", ""),
        "recbole": ("ndcg@{k}", "ndcg@{k}", ""),
        "rectools": ("NDCG(k={k}, divide_by_achievable=True)", "ndcg@{k}", ""),
    },
    "NDCG by k": {"rectools": ("NDCG(k={k})", "ndcg(normalize=k)@{k}", "")},
    "DCG": {
        "sklearn": ("dcg_score[@{k}]", "dcg[@{k}]", ""),
        "lenskit": ("DCG[@{k}]", "dcg(discount=clipped)[@{k}]", ""),
        "rax": ("dcg_metric[@{k}]", "dcg(gain=exponential)[@{k}]", ""),
    },
    "DCG of graded test items": {
        "lenskit": ("DCG(gain=rating)[@{k}]", "dcg(discount=clipped,empty_target_action=neg)[@{k}]", ""),
    },
    "R-precision": {
        **_both("Rprec", "rprecision"),
        "torchmetrics": ("RetrievalRPrecision", "rprecision", ""),
    },
    "fall-out": {"torchmetrics": ("RetrievalFallOut[@{k}]", "fallout[@{k}]", "")},
    "area under ROC": {
        "sklearn": ("roc_auc_score", "auroc", ""),
        "torchmetrics": ("RetrievalAUROC[@{k}]", "auroc(empty_target_action=neg)[@{k}]", ""),
        "recbole": ("gauc", None, "weighs queries by their positives: give weights"),
        "rectools": ("PartialAUC(k={k})", None, "cuts at the k-th irrelevant one"),
    },
    "LRAP": {
        "sklearn": ("label_ranking_average_precision_score", "lrap(ties=grouped,empty_target_action=pos)", ""),
        "torchmetrics": ("MultilabelRankingAveragePrecision", "lrap(ties=grouped,empty_target_action=pos)", ""),
    },
    "coverage error": {
        "sklearn": ("coverage_error", "coverageerror(ties=pessimistic)", ""),
        "torchmetrics": ("MultilabelCoverageError", "coverageerror(ties=pessimistic)", ""),
    },
    "ranking loss": {
        "sklearn": ("label_ranking_loss", "rankingloss(ties=pessimistic)", ""),
        "torchmetrics": ("MultilabelRankingLoss", "rankingloss(ties=pessimistic)", ""),
    },
    "pairs in order": {"rax": ("opa_metric", "opa", "")},
    "accuracy": {"rectools": ("Accuracy(k={k})", "accuracy@{k}", "")},
    "MCC": {"rectools": ("MCC(k={k})", "mcc@{k}", "")},
    "precision of all": _both("set_P", "precision"),
    "recall of all": _both("set_recall", "recall"),
    "F1 of all": _both("set_F", "f1"),
    "AP of a set": _both("set_map", "setap"),
    "relative precision of all": _both("set_relative_P", "relprecision"),
    "interpolated precision": {
        "trec_eval": ("iprec_at_recall_0.50", "iprec(recall=0.5)", ""),
        "trec_eval9": ("iprec_at_recall_0.50", "iprec(recall=0.5,rounding=up)", ""),
    },
    "11-point average": {
        "trec_eval": ("11pt_avg", "elevenpoint", ""),
        "trec_eval9": ("11pt_avg", "elevenpoint(rounding=up)", ""),
    },
    "precision at multiples of R": _both("Rprec_mult_0.80", "rprecision(multiple=0.8)"),
    "utility": _both("utility", "utility"),
    "binary G": _both("binG", "bing"),
    "number retrieved": _both("num_ret", "numret"),
    "number relevant": _both("num_rel", "numrel"),
    "number relevant retrieved": _both("num_rel_ret", "numrelret"),
    "G": _both("G", None, "not offered here"),
    "NDCG at the relevant": _both("ndcg_rel", None, "not offered here"),
    "NDCG at the levels": _both("Rndcg", "rndcg"),
    "bpref": _both("bpref", "bpref"),
    "geometric mean bpref": _both("gm_bpref", "bpref(aggregation=geometric)"),
    "inferred AP": _both("infAP", "infap"),
    "RBP": {
        "trec_eval": ("rbp", None, "scales grades by numbers that it does not set"),
        "lenskit": ("RBP[@{k}]", "rbp(p=0.85)[@{k}]", ""),
    },
    "RBP residual": {"trec_eval": ("rbp_resid", None, "drops the tail where all is judged")},
    "unjudged": {"trec_eval": ("unj_{k}", None, "1 - judged@{k}, but for lists shorter than k")},
    "mean rank": {"pykeen": ("arithmetic_mean_rank", "mr", "")},
    "geometric mean rank": {"pykeen": ("geometric_mean_rank", "mr(aggregation=geometric)", "")},
    "harmonic mean rank": {"pykeen": ("harmonic_mean_rank", "mr(aggregation=harmonic)", "")},
    "median rank": {"pykeen": ("median_rank", None, "the median of positives, not of queries")},
    "inverse mean rank": {"pykeen": ("inverse_arithmetic_mean_rank", "mr(inverse=True)", "")},
    "adjusted mean rank": {"pykeen": ("adjusted_arithmetic_mean_rank", "mr(adjusted=ratio)", "")},
    "adjusted mean rank index": {"pykeen": ("adjusted_arithmetic_mean_rank_index", "mr(adjusted=index)", "")},
    "z of mean rank": {"pykeen": ("z_arithmetic_mean_rank", "mr(adjusted=z)", "")},
    "adjusted reciprocal rank": {"pykeen": ("adjusted_inverse_harmonic_mean_rank", "mrr(adjusted=index)", "")},
    "z of reciprocal rank": {"pykeen": ("z_inverse_harmonic_mean_rank", "mrr(adjusted=z)", "")},
    "adjusted hit rate": {"pykeen": ("adjusted_hits_at_{k}", "hitrate(adjusted=index)@{k}", "")},
    "z of hit rate": {"pykeen": ("z_hits_at_{k}", "hitrate(adjusted=z)@{k}", "")},
}


def preset(name: str, *k: int) -> dict[str, str]:
    """The measures of another library under its own names, with the settings that reproduce its numbers.

    The names of libraries are those of :data:`LIBRARIES`; what has no such setting is left out. :data:`EXCEPT` tells
    where the numbers differ all the same.

    Args:
        name: "trec_eval" (10), "trec_eval9", "sklearn", "torchmetrics", "pyg", "recbole", "rectools", "lenskit",
            "pykeen" or "rax".
        k: cut-offs. Without any, measures that must have one are left out.

    Returns:
        {their name: our label}, which :class:`torchrank.RankingCollection` takes.

    Raises:
        ValueError: an unknown library; a cut-off that is not an integer >= 1; none for a library all of whose measures
            have one.

    Example:
        >>> import torchrank as tr
        >>> tr.preset("recbole", 5)["map@5"]
        'map(normalize=min,empty_target_action=skip)@5'
        >>> suite = tr.RankingCollection(tr.preset("recbole", 5, 10))
    """
    if name not in LIBRARIES:
        raise ValueError(f"Expected the name of a library, one of {', '.join(LIBRARIES)}, got {name!r}")
    for cut in k:
        if not isinstance(cut, Integral) or isinstance(cut, bool) or cut < 1:
            raise ValueError(f"Expected cut-offs to be integers >= 1, got {cut!r}")
    found: dict[str, str] = {}
    for row in TABLE.values():
        theirs, ours, _ = row.get(name, ("", None, ""))
        if ours is None:
            continue
        cuts: tuple[int | None, ...] = (None,)
        if "{k}" in ours and (k or "[" not in ours):
            cuts = k
        for at in cuts:
            found[_fill(theirs, at)] = _with(_fill(ours, at), ALWAYS.get(name, {}))
    if not found:
        raise ValueError(f"Expected at least one cut-off for {name}, as in preset({name!r}, 10), got none")
    return found


def table() -> str:
    """The table in Markdown, with what holds for all measures of a library in its first two rows."""
    always = [", ".join(f"`{key}={value}`" for key, value in ALWAYS.get(name, {}).items()) for name in LIBRARIES]
    rows = [["", *LIBRARIES.values()], ["---"] * (1 + len(LIBRARIES)), ["all of these", *always]]
    rows.append(["except", *(EXCEPT.get(name, "") for name in LIBRARIES)])
    for measure, row in TABLE.items():
        rows.append([measure, *(_shown(*row[name][1:]) if name in row else "" for name in LIBRARIES)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _shown(ours: str | None, why: str) -> str:
    text = f"none: {why}" if ours is None else f"`{ours}`"
    return re.sub("[][{}]", "", text)


def _fill(text: str, k: int | None) -> str:
    """A template with its cut-off; without one, it goes without what stands in brackets."""
    if k is None:
        return re.sub(r"\[.*?\]", "", text)
    return re.sub(r"[][]", "", text).replace("{k}", str(k))


def _with(text: str, always: dict[str, Any]) -> str:
    """A label with further parameters, of which its own win."""
    label = read(text)
    more = {key: value for key, value in always.items() if key not in label.parameters}
    return write(label.name, {**label.parameters, **more}, label.cuts[0] if label.cuts else None)
