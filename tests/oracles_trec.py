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


ORACLES = {"numrel": relevant, "numrelret": relevant_retrieved, "bing": binary_g}
EMPTY = {}
FEW = {"numrel": [{}], "numrelret": [{}, {"top_k": 2}], "bing": [{}]}
MANY = {
    name: [{"relevance_level": level} for level in (2, 0.5)] + [{"empty_target_action": "skip"}] for name in ORACLES
}
OTHERS = {}
