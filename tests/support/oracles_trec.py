"""Measures that trec_eval alone has, from their definitions."""

import math

from orders import expectation, flags, orders


def of_orders(query, ties, level, value):
    """The expectation of ``value(flags in rank order, relevant ones that lack)``."""
    judged = flags(query, level)
    missing = len(judged.missing)
    return expectation([(value(order, missing), weight) for order, weight in orders(judged, ties)])


def relevant(query, *, ties, relevance_level=1):
    grades = [*(grade for _, grade in query.listed), *query.missing]
    return float(sum(grade >= relevance_level for grade in grades)) or None


def relevant_retrieved(query, *, ties, relevance_level=1, top_k=None):
    def value(order, missing):
        return float(sum(order[:top_k])) if any(order) or missing else None

    return of_orders(query, ties, relevance_level, value)


def retrieved(query, *, ties, top_k=None):
    return float(len(query.listed[:top_k])) or None


def log_odds(query, *, ties, relevance_level=1):
    """Of the expected average precision."""

    def value(order, missing):
        if not any(order) and not missing:
            return None
        return math.fsum(sum(order[:rank]) / rank for rank, flag in enumerate(order, 1) if flag)

    total = of_orders(query, ties, relevance_level, value)
    return None if total is None else of_total(total, relevant(query, ties=ties, relevance_level=relevance_level))


def of_total(total, everywhere):
    return math.log((1 + total) / (1 + everywhere - total))


def binary_g(query, *, ties, relevance_level=1):
    def value(order, missing):
        if not any(order) and not missing:
            return None
        above, total = 0, []
        for flag in order:
            if flag:
                total.append(1 / math.log2(2 + above))
            above += not flag
        return math.fsum(total) / (len(total) + missing)

    return of_orders(query, ties, relevance_level, value)


def ndcg_at_levels(query, *, ties, gain="linear"):
    worth = {"linear": lambda g: g, "exponential": lambda g: 2**g - 1}[gain]

    def dcg(grades):
        return math.fsum(max(0.0, worth(g)) / math.log2(1 + rank) for rank, g in enumerate(grades, 1))

    best = sorted([*(grade for _, grade in query.listed), *query.missing], reverse=True)
    levels = sorted({grade for grade in best if grade > 0}, reverse=True)
    if not levels:
        return None
    cuts = [sum(grade >= level for grade in best) for level in levels]
    if len(query.listed) > cuts[-1] + 1:
        cuts.append(len(query.listed))

    def value(order):
        return math.fsum(dcg(order[:cut]) / dcg(best[:cut]) for cut in cuts) / len(cuts)

    return expectation([(value(order), weight) for order, weight in orders(query, ties)])


ORACLES = {
    "numrel": relevant,
    "numrelret": relevant_retrieved,
    "numret": retrieved,
    "yaap": log_odds,
    "bing": binary_g,
    "rndcg": ndcg_at_levels,
}
EMPTY = {}
FEW = {
    "numrel": [{}],
    "numrelret": [{}, {"top_k": 2}],
    "numret": [{}, {"top_k": 2}],
    "yaap": [{}],
    "bing": [{}],
    "rndcg": [{}],
}
MANY = {
    name: [{"relevance_level": level} for level in (2, 0.5)] + [{"empty_target_action": "skip"}]
    for name in ("numrel", "numrelret", "yaap", "bing")
} | {
    "numret": [{"top_k": 1}, {"empty_target_action": "skip"}],
    "rndcg": [{"gain": "exponential"}, {"empty_target_action": "skip"}],
}
OTHERS = {}


def log_discounts(k):
    return math.fsum(1 / math.log2(1 + rank) for rank in range(1, k + 1))


#: Of a scorer that knows nothing of n candidates, r of them relevant, cut at k.
BASELINES = {
    "numrel": lambda n, r, k: r,
    "numrelret": lambda n, r, k: k * r / n,
    "numret": lambda n, r, k: k,
    # each rank has a share r / n of being relevant, and then of the j - 1 before it (r - 1) / (n - 1) are
    "yaap": lambda n, r, k: of_total(
        math.fsum(r / n * (1 + (j - 1) * (r - 1) / max(1, n - 1)) / j for j in range(1, n + 1)), r
    ),
    "bing": lambda n, r, k: log_discounts(n - r + 1) / (n - r + 1),
    "rndcg": lambda n, r, k: (
        (r / n) * ((log_discounts(r) + log_discounts(n)) / 2 if n > r + 1 else log_discounts(r)) / log_discounts(r)
    ),
}
