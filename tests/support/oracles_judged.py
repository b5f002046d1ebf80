"""Measures of incomplete judgments: walk down each order, and count what trec_eval counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from orders import Query, expectation, orders


def bpref(query: Query, *, ties: str, relevance_level: float = 1) -> float | None:
    def of(grades: Sequence[float]) -> float | None:
        everyone = [*grades, *query.missing]
        relevant = sum(grade >= relevance_level for grade in everyone)
        irrelevant = sum(0 <= grade < relevance_level for grade in everyone)
        if not relevant:
            return None
        total, above = 0.0, 0
        for grade in grades:
            if grade >= relevance_level:
                total += 1 - min(above, relevant) / min(irrelevant, relevant) if above else 1
            elif grade >= 0:
                above += 1
        return total / relevant

    return expectation([(of(order), weight) for order, weight in orders(query, ties)])


def inferred(query: Query, *, ties: str, relevance_level: float = 1) -> float | None:
    tiny = 0.00001

    def of(grades: Sequence[float]) -> float | None:
        relevant = sum(grade >= relevance_level for grade in [*grades, *query.missing])
        if not relevant:
            return None
        at_hits = []
        for place, grade in enumerate(grades):
            if grade >= relevance_level:
                hits = sum(other >= relevance_level for other in grades[:place])
                judged = sum(other >= 0 for other in grades[:place])
                pool = sum(other >= -1 for other in grades[:place])
                expected = pool / place * (hits + tiny) / (judged + 2 * tiny) if place else 0
                at_hits.append(1 / (place + 1) + place / (place + 1) * expected)
        return math.fsum(at_hits) / relevant

    return expectation([(of(order), weight) for order, weight in orders(query, ties)])


def judged(query: Query, *, ties: str, top_k: int | None = None) -> float | None:
    if not query.listed:
        return None
    shares = []
    for order, weight in orders(query, ties):
        first = order[:top_k]
        shares.append((sum(grade >= 0 for grade in first) / len(first), weight))
    return expectation(shares)


ORACLES = {"bpref": bpref, "infap": inferred, "judged": judged}
EMPTY: dict[str, str] = {}
FEW: dict[str, list[dict[str, Any]]] = {"bpref": [{}], "infap": [{}], "judged": [{"top_k": 3}, {}]}
MANY: dict[str, list[dict[str, Any]]] = {
    "bpref": [{"relevance_level": 2}, {"relevance_level": 0.5}],
    "infap": [{"relevance_level": 2}, {"relevance_level": 0.5}],
    "judged": [{"top_k": k} for k in (1, 2, 4, 10)],
}
COUNTING_IRRELEVANT = {"bpref"}
OTHERS: dict[str, list[Any]] = {}

#: Of a scorer that knows nothing of n candidates, all judged, r of them relevant: any number of the irrelevant ones is
#: as likely to be ahead of a relevant one.
BASELINES = {
    "bpref": lambda n, r, k: (
        1 - sum(min(ahead, r) for ahead in range(n - r + 1)) / (n - r + 1) / min(n - r, r) if n > r else 1
    ),
    "judged": lambda n, r, k: 1,
}
