"""From a name to a metric, in this library's spelling and in that of ir_measures."""

from __future__ import annotations

import difflib
from typing import Any

from torchrank.metrics.base import RankingMetric
from torchrank.metrics.labels import Label, read

# Other names of the measures, and of their parameters, in lower case.
NAMES = {
    "rr": "mrr",
    "p": "precision",
    "r": "recall",
    "ap": "map",
    "success": "hitrate",
    "hits": "hitrate",
    "hit": "hitrate",
    "hr": "hitrate",
    "rprec": "rprecision",
    "auc": "auroc",
}
PARAMETERS = {"rel": "relevance_level", "norm": "normalize"}
GAINS_OF_DCG = {"log2": "linear", "exp-log2": "exponential"}  # ir_measures' values of dcg=


def parse(name: str, **overrides: Any) -> RankingMetric:
    """The metric that a name stands for: the inverse of :attr:`RankingMetric.label`.

    Args:
        name: a label as ``"ndcg@10"`` or ``"map(normalize=min,relevance_level=2)@100"``, or ir_measures' spelling of
            it (``"nDCG@10"``, ``"RR"``, ``"P@5"``, ``"AP(rel=2)@100"``, ``"Success@1"``). Case does not matter.
        overrides: arguments of the metric, which win over those in the name.

    Raises:
        ValueError: an unknown name or parameter, or several cut-offs, which only a collection takes.

    Example:
        >>> import torchrank as tr
        >>> tr.parse("AP(rel=2)@100").label
        'map(relevance_level=2)@100'
    """
    metrics = parse_all(name, **overrides)
    if len(metrics) > 1:
        raise ValueError(
            f"Expected one cut-off in {name!r}, got {len(metrics)}: a list of them is for RankingCollection"
        )
    return metrics[0]


def parse_all(name: str, **overrides: Any) -> list[RankingMetric]:
    """The metrics that a name with any number of cut-offs stands for: ``"ndcg@5,10"`` is two."""
    if not isinstance(name, str):
        raise TypeError(f"Expected the name of a metric, as 'ndcg@10', got {type(name).__name__}")
    label = read(name)
    measure = _measure(label, name)
    given, known = _arguments(label), measure.definition()
    for argument in given:
        if argument not in known:
            raise ValueError(
                f"Expected {measure.name} to have parameters {', '.join(known)}, got {argument!r} in {name!r}"
            )
    if label.cuts and not measure.takes_top_k:
        raise ValueError(f"Expected no cut-off for {measure.name}, got {name!r}")
    cuts: list[dict[str, Any]] = [{"top_k": cut} for cut in label.cuts] or [{}]
    return [measure(**{**cut, **given, **overrides}) for cut in cuts]


def _measure(label: Label, name: str) -> type[RankingMetric]:
    registry = RankingMetric.registry
    found = NAMES.get(label.name.lower(), label.name.lower())
    if found not in registry:
        near = difflib.get_close_matches(found, registry, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"Expected the name of a measure ({', '.join(sorted(registry))}), got {name!r}{hint}")
    return registry[found]


def _arguments(label: Label) -> dict[str, Any]:
    arguments = {PARAMETERS.get(key, key): value for key, value in label.parameters.items()}
    if "dcg" in arguments:
        spelling = arguments.pop("dcg")
        if spelling not in GAINS_OF_DCG:
            raise ValueError(f"Expected dcg to be one of {', '.join(GAINS_OF_DCG)}, got {spelling!r}")
        arguments["gain"] = GAINS_OF_DCG[spelling]
    return arguments
