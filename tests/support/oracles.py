"""Every measure from its definition, in plain Python, with every order of tied candidates written out.

Slow and obvious on purpose: this is what the library is compared with, so it shares no formula and no code with it.
Families of measures have modules of their own, ``oracles_*.py``: a function of a whole :class:`Query` for each measure,
and the parameters to try.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from orders import Query, expectation, flags, orders

# ---- measures of binary relevance: is the candidate at rank 1, 2, ... relevant, and how many relevant ones lack


def precision(
    relevant: Sequence[bool], missing: int, top_k: int | None = None, adaptive_k: bool = False
) -> float | None:
    if not any(relevant) and not missing:
        return None
    if top_k is None or (adaptive_k and len(relevant) < top_k):
        return sum(relevant) / len(relevant) if relevant else 0.0
    return sum(relevant[:top_k]) / top_k


def recall(
    relevant: Sequence[bool], missing: int, top_k: int | None = None, normalize: str = "relevant"
) -> float | None:
    if not any(relevant) and not missing:
        return None
    everywhere = sum(relevant) + missing
    return sum(relevant[:top_k]) / (min(everywhere, top_k) if normalize == "min" and top_k else everywhere)


def f_beta(relevant: Sequence[bool], missing: int, top_k: int | None = None, beta: float = 1) -> float | None:
    p, r = precision(relevant, missing, top_k), recall(relevant, missing, top_k)
    if p is None or r is None:
        return None
    return (1 + beta * beta) * p * r / (beta * beta * p + r) if p > 0 and r > 0 else 0.0


def average_precision(
    relevant: Sequence[bool], missing: int, top_k: int | None = None, normalize: str = "relevant"
) -> float | None:
    everywhere = sum(relevant) + missing
    if not everywhere:
        return None
    at_hits = [sum(relevant[:rank]) / rank for rank, is_hit in enumerate(relevant[:top_k], 1) if is_hit]
    whole = {
        "relevant": everywhere,
        "min": everywhere if top_k is None else min(everywhere, top_k),
        "length": min(everywhere, len(relevant[:top_k])),
        "k": len(relevant) if top_k is None else top_k,
        "retrieved": len(at_hits),
    }[normalize]
    return math.fsum(at_hits) / whole if whole else 0.0


def r_precision(relevant: Sequence[bool], missing: int, multiple: float = 1) -> float | None:
    everywhere = sum(relevant) + missing
    if not everywhere:
        return None
    cut = everywhere if multiple == 1 else int(multiple * everywhere + 0.9)
    return precision(relevant, missing, cut) if cut else 0.0


def fall_out(relevant: Sequence[bool], missing: int, top_k: int | None = None) -> float | None:
    irrelevant = [not flag for flag in relevant]
    if not any(irrelevant):
        # Nothing at all was retrieved for a query that has an answer: that is a result, not an empty query.
        return 0.0 if missing and not relevant else None
    return sum(irrelevant[:top_k]) / sum(irrelevant)


def area_under_roc(
    relevant: Sequence[bool], missing: int, top_k: int | None = None, max_fpr: float | None = None
) -> float | None:
    if not any(relevant) and not missing:
        return None
    if all(relevant):
        return 0.0 if missing and not relevant else None
    first = relevant[:top_k]
    pairs = sum(first) * (len(first) - sum(first))
    if max_fpr is not None and pairs:
        return partial_area(first, Fraction(max_fpr))
    won = sum(one and not other for one, other in itertools.combinations(first, 2))
    return won / pairs if pairs else 0.0


def partial_area(relevant: Sequence[bool], limit: Fraction) -> float:
    """Walk along the ROC curve up to a false positive rate, then rescale as McClish did."""
    rate, height, area = Fraction(0), Fraction(0), Fraction(0)
    for one in relevant:
        if one:
            height += Fraction(1, sum(relevant))
        else:
            step = min(Fraction(1, len(relevant) - sum(relevant)), limit - rate)
            rate, area = rate + step, area + step * height
    least, most = limit**2 / 2, limit
    return float((1 + (area - least) / (most - least)) / 2)


# ---- measures of graded relevance: the grades at rank 1, 2, ..., and those which lack ------------


def gain_of(grade: float, gain: str | Callable[[float], float]) -> float:
    if grade <= 0:
        return 0.0
    return {"linear": float, "exponential": lambda g: 2.0**g - 1}[gain](grade) if isinstance(gain, str) else gain(grade)


def discounted(
    grades: Sequence[float],
    top_k: int | None,
    gain: str | Callable[[float], float],
    discount: str | Callable[[float], float],
    log_base: float,
) -> float:
    def at(rank: int) -> float:
        if discount == "log2":
            return math.log(log_base) / math.log(rank + 1)
        if discount == "clipped":
            return 1 if rank < log_base else math.log(log_base) / math.log(rank)
        return 1 / rank if discount == "reciprocal" else discount(rank)

    return math.fsum(gain_of(grade, gain) * at(rank) for rank, grade in enumerate(grades[:top_k], 1))


def cumulative_gain(
    grades: Sequence[float], missing: Sequence[float], top_k: int | None = None, gain: Any = "linear"
) -> float | None:
    if all(gain_of(grade, gain) == 0 for grade in [*grades, *missing]):
        return None
    return math.fsum(gain_of(grade, gain) for grade in grades[:top_k])


def discounted_cumulative_gain(
    grades: Sequence[float],
    missing: Sequence[float],
    top_k: int | None = None,
    gain: Any = "linear",
    discount: Any = "log2",
    log_base: float = 2,
) -> float | None:
    if all(gain_of(grade, gain) == 0 for grade in [*grades, *missing]):
        return None
    return discounted(grades, top_k, gain, discount, log_base)


def normalised_gain(
    grades: Sequence[float],
    missing: Sequence[float],
    top_k: int | None = None,
    gain: Any = "linear",
    discount: Any = "log2",
    log_base: float = 2,
    normalize: str = "ideal",
) -> float | None:
    ideal = discounted(sorted([*grades, *missing], reverse=True), top_k, gain, discount, log_base)
    whole = discounted([1] * top_k, top_k, gain, discount, log_base) if normalize == "k" and top_k else ideal
    return discounted(grades, top_k, gain, discount, log_base) / whole if ideal else None


# ---- one value for one query ---------------------------------------------------------------------

BINARY = {
    "precision": precision,
    "recall": recall,
    "fbeta": f_beta,
    "f1": f_beta,
    "map": average_precision,
    "rprecision": r_precision,
    "fallout": fall_out,
    "auroc": area_under_roc,
}
GRADED = {"cg": cumulative_gain, "dcg": discounted_cumulative_gain, "ndcg": normalised_gain}

#: Modules with further measures. Each has
#: ORACLES: functions (query, *, ties, **parameters) -> value, or None if there is nothing to measure, by name;
#: EMPTY: what an empty query counts for those of which it is not "neg";
#: FEW, MANY: by name, the parameters to try in every layout, and in a few;
#: OTHERS: by parameter, values for labels;
#: BASELINES: by name, what r relevant candidates among n in random order get at k.
FAMILIES = [importlib.import_module(path.stem) for path in sorted(Path(__file__).parent.glob("oracles_*.py"))]
FAMILY = {name: oracle for family in FAMILIES for name, oracle in family.ORACLES.items()}
ORACLES = {**BINARY, **GRADED, **FAMILY}

#: What an empty query counts, unless it is said.
EMPTY = dict.fromkeys(ORACLES, "neg") | {"auroc": "skip", "fallout": "pos"}
for family in FAMILIES:
    EMPTY |= family.EMPTY


def judged(query: Query, unjudged: str, worth: float) -> list[Query]:
    """The query for each thing that its unjudged candidates could be."""
    everyone = [*query.listed, *((None, grade) for grade in query.missing)]
    if unjudged == "condensed":
        possible = [[(score, grade) for score, grade in everyone if grade >= 0]]
    else:
        options = [[grade] if grade >= 0 else [0, worth] for _, grade in everyone]
        possible = [
            [(score, grade) for (score, _), grade in zip(everyone, chosen)] for chosen in itertools.product(*options)
        ]
    return [
        Query(
            tuple((score, grade) for score, grade in one if score is not None),
            tuple(grade for score, grade in one if score is None),
        )
        for one in possible
    ]


def value(name: str, query: Query, *, unjudged: str = "irrelevant", **parameters: Any) -> float:
    """What the measure called ``name`` says of a query; NaN where it is skipped."""
    if unjudged == "irrelevant":
        return value_of(name, query, **parameters)
    worth = max(1, parameters.get("relevance_level", 1))
    values = [value_of(name, one, **parameters) for one in judged(query, unjudged, worth)]
    values = [one for one in values if not math.isnan(one)]
    return (max if unjudged == "upper" else min)(values, default=math.nan)


def value_of(
    name: str,
    query: Query,
    *,
    ties: str = "expected",
    empty_target_action: str | None = None,
    relevance_level: float = 1,
    filtered: bool = False,
    average: str = "query",
    **parameters: Any,
) -> float:
    """The same where no candidate is unjudged. ``average`` is about the mean over queries, and changes nothing here."""
    if empty_target_action == "listed" and not query.listed:
        return math.nan
    if name in FAMILY:
        given = {} if relevance_level == 1 else {"relevance_level": relevance_level}
        given |= {"filtered": True} if filtered else {}
        result = FAMILY[name](query, ties=ties, **given, **parameters)
    elif name in GRADED:
        result = expectation(
            [(GRADED[name](order, query.missing, **parameters), weight) for order, weight in orders(query, ties)]
        )
    else:
        judged = flags(query, relevance_level)
        result = expectation(
            [(BINARY[name](order, len(judged.missing), **parameters), weight) for order, weight in orders(judged, ties)]
        )
    if result is None:
        return {"neg": 0.0, "pos": 1.0, "skip": math.nan, "listed": 0.0}[empty_target_action or EMPTY[name]]
    return result
