"""Every measure from its definition, in plain Python, with every order of tied candidates written out.

Slow and obvious on purpose: the library is compared with it, so they share no formula and no code.
Each function has beside it, in :func:`oracle`, the parameters to try and the mean over random orders. Families of
measures have modules of their own, ``oracles_*.py``.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.tie_orders import Query, expectation, flags, number_of_positives, orders


class Oracle(NamedTuple):
    """A measure from its definition, and the values of its parameters that tests try."""

    #: of a query, ``ties`` and parameters; None if there is nothing to measure
    value: Callable[..., float | None]
    #: parameters to try in every layout, under every tie policy
    few: list[dict[str, Any]]
    #: those to try in a few layouts
    many: list[dict[str, Any]]
    #: the value for r relevant candidates among n in random order, cut at k; None if it has no closed form
    baseline: Callable[[int, int, int], float] | None
    #: the value of an empty query
    empty: str
    #: by parameter, values for labels
    others: dict[str, list[Any]]
    #: whether candidates behind the list count, also those that a layout has as padding
    counts_irrelevant: bool


ORACLES = {}
#: Measures whose low values are good. A query for which nothing was retrieved has no value.
LOWER = {
    "arp", "coverageerror", "eed", "eel", "fallout", "firstrank", "hole", "kendalldistance", "lip", "mr", "rankingloss",
    "rbpresidual",
}  # fmt: skip


def oracle(name, *, few, many, baseline, empty="neg", others=None, of="query", counts_irrelevant=False):
    """Register the function of a measure.

    It takes ``of`` "query" a query and ties; of "flags" the relevance at rank 1, 2, ... and the number of relevant
    candidates that lack; of "grades" the grades at rank 1, 2, ... and those that lack; and its parameters. Queries in
    which nothing is relevant have no value, but of "all flags" and "all grades".
    """

    def register(measure):
        *of_all, kind = of.split()
        value = measure if kind == "query" else {"flags": of_flags, "grades": of_grades}[kind](measure, bool(of_all))
        ORACLES[name] = Oracle(value, few, many, baseline, empty, others or {}, counts_irrelevant)
        return measure

    return register


def of_flags(measure, of_all=False):
    """The mean of a measure over the orders that ties leave open; None where nothing is relevant, unless ``of_all``."""

    once = cache(measure)  # short queries have the same orders again and again

    def value(query, *, ties, relevance_level=1, **parameters):
        judged = flags(query, relevance_level)
        if not of_all and not number_of_positives(judged):
            return None
        lack = len(judged.missing)
        return expectation([(once(order, lack, **parameters), weight) for order, weight in orders(judged, ties)])

    return value


def of_grades(measure, of_all=False):
    """The same of grades; None where no grade is positive."""

    def value(query, *, ties, **parameters):
        if not of_all and max([0, *query.grades]) <= 0:
            return None
        lack = query.missing
        return expectation([(measure(order, lack, **parameters), weight) for order, weight in orders(query, ties)])

    return value


# ---- parameters to try


def squared(grade):
    return grade * grade


def hyperbolic(rank):
    return 3 / (2 * rank + 1)


WHOLE_OR_CUT = [{}, {"top_k": 3}]
CUT = [{"top_k": k} for k in (1, 4, 10)]
CUTS = (None, 1, 3, 10)
LEVELS = [{"relevance_level": level} for level in (2, 0.5)]
LEVELS_CUT = [{"top_k": 3, "relevance_level": level} for level in (2, 0.5)]
DISCOUNTS = [
    {"top_k": k, **more}
    for k in (None, 3)
    for more in (
        {"gain": "exponential"},
        {"gain": squared},
        {"discount": "reciprocal"},
        {"discount": "clipped"},
        {"discount": "clipped", "log_base": 3},
        {"discount": hyperbolic},
        {"log_base": math.e},
        {"gain": "exponential", "log_base": 3},
    )
]


# ---- means over random orders


def hypergeometric(h, n, r, k):
    """Chance of h relevant among the first k of n candidates in random order, r of them relevant."""
    return math.comb(r, h) * math.comb(n - r, k - h) / math.comb(n, k)


def discounts(k):
    return math.fsum(1 / math.log2(1 + j) for j in range(1, k + 1))


def precisions(n, r, k):
    """Sum of the precision at each of the first k ranks, if relevant: then so is its share of those before it."""
    return math.fsum(r / n * (1 + (j - 1) * (r - 1) / max(1, n - 1)) / j for j in range(1, k + 1))


def one_in_reach(n, r, k):
    """Chance of a relevant one among the first k."""
    return (math.comb(n, r) - math.comb(n - k, r)) / math.comb(n, r)


# ---- measures of binary relevance: is the candidate at rank 1, 2, ... relevant, and how many relevant ones lack


@oracle(
    "precision",
    of="flags",
    few=WHOLE_OR_CUT,
    many=[*CUT, *LEVELS_CUT, *({"top_k": k, "adaptive_k": True} for k in CUTS)],
    baseline=lambda n, r, k: r / n,
)
def precision(relevant, missing, top_k=None, adaptive_k=False):
    if top_k is None or (adaptive_k and len(relevant) < top_k):
        return sum(relevant) / len(relevant) if relevant else 0.0
    return sum(relevant[:top_k]) / top_k


def recall(relevant, missing, top_k=None, normalize="relevant"):
    everywhere = sum(relevant) + missing
    return sum(relevant[:top_k]) / (min(everywhere, top_k) if normalize == "min" and top_k else everywhere)


def share_of_weight(grades, missing, top_k, level, gain):
    """The weights of the relevant candidates up to a rank, of all of them."""
    weights = [gain_of(grade, gain) if grade >= level else 0 for grade in [*grades, *missing]]
    return math.fsum(weights[: len(grades)][:top_k]) / math.fsum(weights) if math.fsum(weights) else None


@oracle(
    "recall",
    few=WHOLE_OR_CUT,
    many=[
        *CUT,
        *LEVELS_CUT,
        *({"top_k": k, "normalize": "min"} for k in CUTS),
        *({"top_k": k, "gain": gain} for k in (None, 3) for gain in ("linear", squared)),
        {"top_k": 3, "gain": "exponential", "relevance_level": 0.5},
    ],
    baseline=lambda n, r, k: k / n,
    others={"normalize": ["min"]},
)
def recall_or_share(query, *, ties, relevance_level=1, gain=None, **parameters):
    if gain is None:
        return of_flags(recall)(query, ties=ties, relevance_level=relevance_level, **parameters)
    parameters = {"top_k": None, **parameters}
    return of_grades(share_of_weight)(query, ties=ties, level=relevance_level, gain=gain, **parameters)


@oracle(
    "f1", of="flags", few=WHOLE_OR_CUT, many=[*CUT, *LEVELS_CUT], baseline=lambda n, r, k: 2 * (k * r / n) / (k + r)
)
@oracle(
    "fbeta",
    of="flags",
    few=[{"top_k": 2, "beta": 2}],
    many=[*LEVELS_CUT, *({"top_k": k, "beta": beta} for k in CUTS for beta in (0.5, 3))],
    baseline=lambda n, r, k: 5 * (k * r / n) / (k + 4 * r),  # of beta = 2
)
def f_beta(relevant, missing, top_k=None, beta=1):
    p, r = precision(relevant, missing, top_k), recall(relevant, missing, top_k)
    return (1 + beta * beta) * p * r / (beta * beta * p + r) if p > 0 and r > 0 else 0.0


def average_precision(relevant, missing, top_k=None, normalize="relevant"):
    everywhere = sum(relevant) + missing
    at_hits = [sum(relevant[:rank]) / rank for rank, is_hit in enumerate(relevant[:top_k], 1) if is_hit]
    whole = {
        "relevant": everywhere,
        "min": everywhere if top_k is None else min(everywhere, top_k),
        "length": min(everywhere, len(relevant[:top_k])),
        "k": len(relevant) if top_k is None else top_k,
        "retrieved": len(at_hits),
    }[normalize]
    return math.fsum(at_hits) / whole if whole else 0.0


def weighted_precision(grades, missing, top_k, level, gain):
    """Precision at each relevant candidate, weighted by its gain."""
    worth = [gain_of(grade, gain) if grade >= level else 0 for grade in grades]
    whole = math.fsum([*worth, *(gain_of(grade, gain) for grade in missing if grade >= level)])
    if not whole:
        return None
    flags_ = [grade >= level for grade in grades]
    return math.fsum(w * sum(flags_[:rank]) / rank for rank, w in enumerate(worth[:top_k], 1)) / whole


@oracle(
    "map",
    few=[*WHOLE_OR_CUT, {"top_k": 2, "normalize": "retrieved"}],
    many=[
        *LEVELS_CUT,
        *({"top_k": k, "normalize": how} for k in CUTS for how in ("relevant", "min", "length", "k", "retrieved")),
        *({"top_k": k, "gain": gain} for k in (None, 3) for gain in ("linear", squared)),
        {"gain": "exponential", "relevance_level": 0.5},
    ],
    baseline=lambda n, r, k: precisions(n, r, k) / r,
)
def mean_average_precision(query, *, ties, relevance_level=1, gain=None, **parameters):
    if gain is None:
        return of_flags(average_precision)(query, ties=ties, relevance_level=relevance_level, **parameters)
    parameters = {"top_k": None, **parameters}
    return of_grades(weighted_precision)(query, ties=ties, level=relevance_level, gain=gain, **parameters)


@oracle(
    "rprecision",
    of="flags",
    few=[{}, {"multiple": 0.5}],
    many=[*LEVELS, *({"multiple": m} for m in (0.05, 0.2, 1.2, 2)), {"multiple": 2, "relevance_level": 2}],
    baseline=lambda n, r, k: r / n,
    others={"multiple": [2, 0.2]},
)
def r_precision(relevant, missing, multiple=1):
    everywhere = sum(relevant) + missing
    cut = everywhere if multiple == 1 else int(multiple * everywhere + 0.9)
    return precision(relevant, missing, cut) if cut else 0.0


@oracle(
    "fallout", of="all flags", empty="pos", few=WHOLE_OR_CUT, many=[*CUT, *LEVELS_CUT], baseline=lambda n, r, k: k / n
)
def fall_out(relevant, missing, top_k=None):
    irrelevant = [not flag for flag in relevant]
    if not any(irrelevant):
        # Nothing at all was retrieved for a query that has an answer: it is left out, but it is not empty.
        return 0.0 if missing and not relevant else None
    return sum(irrelevant[:top_k]) / sum(irrelevant)


# The baseline is one half, but 0 where the first k are all relevant or all irrelevant.
@oracle(
    "auroc",
    of="flags",
    empty="skip",
    few=WHOLE_OR_CUT,
    many=[*CUT, *LEVELS_CUT, *({"top_k": k, "max_fpr": rate} for k in CUTS for rate in (0.25, 0.7, 1))],
    baseline=lambda n, r, k: (1 - hypergeometric(0, n, r, k) - (hypergeometric(k, n, r, k) if k <= r else 0)) / 2,
)
def area_under_roc(relevant, missing, top_k=None, max_fpr=None):
    if all(relevant):
        return 0.0 if missing and not relevant else None
    first = relevant[:top_k]
    pairs = sum(first) * (len(first) - sum(first))
    if max_fpr is not None and pairs:
        return partial_area(first, Fraction(max_fpr))
    won = sum(one and not other for one, other in itertools.combinations(first, 2))
    return won / pairs if pairs else 0.0


def partial_area(relevant, limit):
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


def gain_of(grade, gain):
    if grade <= 0:
        return 0.0
    return {"linear": float, "exponential": lambda g: 2.0**g - 1}[gain](grade) if isinstance(gain, str) else gain(grade)


def discount_of(discount, log_base=2):
    """A discount as a function of the rank."""
    named = {
        "log2": lambda rank: math.log(log_base) / math.log(rank + 1),
        "clipped": lambda rank: 1 if rank < log_base else math.log(log_base) / math.log(rank),
        "reciprocal": lambda rank: 1 / rank,
        "none": lambda rank: 1,
    }
    return named.get(discount, discount)


def discounted(grades, top_k, gain, discount="log2", log_base=2):
    at = discount_of(discount, log_base)
    return math.fsum(gain_of(grade, gain) * at(rank) for rank, grade in enumerate(grades[:top_k], 1))


@oracle(
    "cg",
    of="grades",
    few=WHOLE_OR_CUT,
    many=[*CUT, {"top_k": 3, "gain": "exponential"}, {"gain": squared}],
    baseline=lambda n, r, k: k * r / n,
)
def cumulative_gain(grades, missing, top_k=None, gain="linear"):
    return math.fsum(gain_of(grade, gain) for grade in grades[:top_k])


@oracle("dcg", of="grades", few=WHOLE_OR_CUT, many=[*CUT, *DISCOUNTS], baseline=lambda n, r, k: r / n * discounts(k))
def discounted_cumulative_gain(grades, missing, top_k=None, gain="linear", discount="log2", log_base=2):
    return discounted(grades, top_k, gain, discount, log_base)


@oracle(
    "ndcg",
    of="grades",
    few=[*WHOLE_OR_CUT, {"top_k": 2, "gain": "exponential"}],
    many=[
        *CUT,
        *DISCOUNTS,
        *({"top_k": k, "normalize": "k", "gain": gain} for k in (1, 3, 10) for gain in ("linear", "exponential")),
    ],
    baseline=lambda n, r, k: r / n * discounts(k) / discounts(min(r, k)),
    others={"normalize": ["k"]},
)
def normalised_gain(grades, missing, top_k=None, gain="linear", discount="log2", log_base=2, normalize="ideal"):
    ideal = discounted(sorted([*grades, *missing], reverse=True), top_k, gain, discount, log_base)
    whole = discounted([1] * top_k, top_k, gain, discount, log_base) if normalize == "k" and top_k else ideal
    return discounted(grades, top_k, gain, discount, log_base) / whole


# ---- one value for one query ---------------------------------------------------------------------

for _path in sorted(Path(__file__).parent.glob("oracles_*.py")):
    importlib.import_module(f"tests.support.{_path.stem}")


def judged(query, unjudged, worth):
    """The query for each thing that its unjudged candidates could be."""
    everyone = [*query.listed, *((None, grade) for grade in query.missing)]
    if unjudged == "condensed":
        highest = lambda grade: max(grade) if isinstance(grade, tuple) else grade  # noqa: E731 - of all subtopics
        possible = [[(score, grade) for score, grade in everyone if highest(grade) >= 0]]
    else:
        options = [[grade] if grade >= 0 else [0, worth] for _, grade in everyone]
        scores = [score for score, _ in everyone]
        possible = [list(zip(scores, chosen)) for chosen in itertools.product(*options)]
    return [
        Query(tuple(x for x in one if x[0] is not None), tuple(grade for score, grade in one if score is None))
        for one in possible
    ]


def value(name, query, *, unjudged="irrelevant", **parameters):
    """The value of the measure called ``name`` for a query; NaN if the query is skipped."""
    if unjudged == "irrelevant":
        return value_of(name, query, **parameters)
    worth = max(1, parameters.get("relevance_level", 1))
    values = [value_of(name, one, **parameters) for one in judged(query, unjudged, worth)]
    values = [one for one in values if not math.isnan(one)]
    return (max if unjudged == "upper" else min)(values, default=math.nan)


@cache
def measured(name, query, ties, parameters):
    """The same; None if there is nothing to measure."""
    return ORACLES[name].value(query, ties=ties, **dict(parameters))


def value_of(
    name,
    query,
    *,
    ties="expected",
    empty_target_action=None,
    relevance_level=1,
    filtered=False,
    average="query",
    **parameters,
):
    """The same where no candidate is unjudged. ``average`` is about the mean over queries, and changes nothing here."""
    if (empty_target_action == "listed" or name in LOWER) and not query.listed:
        return math.nan
    given = {} if relevance_level == 1 else {"relevance_level": relevance_level}
    given |= {"filtered": True} if filtered else {}
    result = measured(name, query, ties, tuple({**given, **parameters}.items()))
    if result is None:
        return {"neg": 0.0, "pos": 1.0, "skip": math.nan, "listed": 0.0}[empty_target_action or ORACLES[name].empty]
    return result
