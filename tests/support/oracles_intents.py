"""Intent-aware measures from their definitions.

A judgment is a tuple of grades, one for each subtopic; a grade alone is about the only one.
"""

import math
from fractions import Fraction
from functools import cache

from tests.support.oracles import (
    average_precision,
    discount_of,
    hyperbolic,
    one_in_reach,
    oracle,
    precision,
    precisions,
    squared,
    weighted_precision,
)
from tests.support.tie_orders import Query, expectation, orders


def tuples(query):
    """The query with grades for each subtopic."""

    def of(grade):
        return grade if isinstance(grade, tuple) else (grade,)

    return Query(tuple((score, of(grade)) for score, grade in query.listed), tuple(map(of, query.missing)))


def in_every_order(query, level, value):
    """The mean of ``value(order, missing)``; None if no candidate is relevant to any subtopic."""
    query = tuples(query)
    all_candidates = [*(grades for _, grades in query.listed), *query.missing]
    if not any(grade >= level for grades in all_candidates for grade in grades):
        return None
    return expectation([(value(order, query.missing), weight) for order, weight in orders(query, "expected")])


def by_subtopic(measure):
    """The mean of a measure of flags over the subtopics for which it is defined."""

    def oracle(query, *, ties, relevance_level=1, gain=None, **parameters):
        def value(order, missing):
            found = []
            for subtopic in range(len([*order, *missing][0])):
                relevant = [grades[subtopic] >= relevance_level for grades in order]
                lacking = sum(grades[subtopic] >= relevance_level for grades in missing)
                if any(relevant) or lacking:
                    if gain is None:
                        found.append(measure(relevant, lacking, **parameters))
                    else:
                        of_one = [[grades[subtopic] for grades in each] for each in (order, missing)]
                        top_k = parameters.get("top_k")
                        found.append(weighted_precision(*of_one, top_k, relevance_level, gain) or 0.0)
            return math.fsum(found) / len(found)

        return in_every_order(query, relevance_level, value)

    return oracle


def subtopic_recall(query, *, ties, top_k=None, relevance_level=1):
    def value(order, missing):
        there, covered = set(), set()
        for grades in [*order, *missing]:
            there |= {subtopic for subtopic, grade in enumerate(grades) if grade >= relevance_level}
        for grades in order[:top_k]:
            covered |= {subtopic for subtopic, grade in enumerate(grades) if grade >= relevance_level}
        return len(covered) / len(there)

    return in_every_order(query, relevance_level, value)


def gains_at(order, worth, fading):
    """The gain of each candidate of an order."""
    left = [1.0] * max((len(grades) for grades in order), default=0)
    gains = []
    for grades in order:
        gains.append(math.fsum(worth(grade) * rest for grade, rest in zip(grades, left)))
        left = [rest * (1 - fading * worth(grade)) for grade, rest in zip(grades, left)]
    return gains


def greedy(all_candidates, worth, fading):
    """Put the candidate that gains most next, again and again."""
    order = []
    rest = list(all_candidates)
    while rest:
        gains = [gains_at([*order, one], worth, fading)[-1] for one in rest]
        best = max(range(len(rest)), key=lambda i: (round(gains[i], 10), [worth(grade) for grade in rest[i]]))
        order.append(rest.pop(best))
    return order


def novelty(query, level, worth, fading, discount, top_k, divided_by, most=1):
    def total(order):
        gains = gains_at(order, worth, fading)[:top_k]
        return math.fsum(gain * discount(rank) for rank, gain in enumerate(gains, 1))

    ideals = []

    def value(order, missing):
        all_candidates = [*order, *missing]
        intents = sum(any(grades[s] >= level for grades in all_candidates) for s in range(len(all_candidates[0])))
        if divided_by == "ideal":
            if not ideals:  # which is the same in every order
                ideals.append(total(greedy(all_candidates, worth, fading)))
            return total(order) / ideals[0] if ideals[0] else 0.0
        if divided_by == "bound":
            best = [math.prod([most, *[1 - fading * most] * i]) * discount(i + 1) for i in range(top_k or 0)]
            return total(order) / (intents * math.fsum(best))
        return total(order) / {"intents": intents, "nothing": 1}[divided_by]

    return in_every_order(query, level, value)


def alpha_dcg(divided_by):
    def oracle(query, *, ties, top_k=None, alpha=0.5, bounded=False, discount="log2", relevance_level=1):
        relevant = lambda grade: float(grade >= relevance_level)  # noqa: E731
        how = "bound" if bounded else divided_by
        return novelty(query, relevance_level, relevant, alpha, discount_of(discount), top_k, how)

    return oracle


def err(divided_by):
    def oracle(query, *, ties, top_k=None, max_grade=1, bounded=False, relevance_level=1):
        def stop(grade):
            return (2 ** min(grade, max_grade) - 1) / 2**max_grade if grade >= relevance_level else 0.0

        how = "bound" if bounded else divided_by
        return novelty(query, relevance_level, stop, 1, lambda rank: 1 / rank, top_k, how, most=stop(math.inf))

    return oracle


def rank_biased(divided_by):
    def oracle(query, *, ties, top_k=None, alpha=0.5, beta=0.5, relevance_level=1):
        relevant = lambda grade: float(grade >= relevance_level)  # noqa: E731
        found = novelty(query, relevance_level, relevant, alpha, lambda i: beta ** (i - 1), top_k, divided_by)
        return found if found is None or divided_by == "ideal" else found * (1 - (1 - alpha) * beta)

    return oracle


# ---- means over random orders, of one subtopic


@cache
def left_at(n, r, k):
    """Mean of 1/2 for each relevant one among the first 0, 1, ..., k of n in random order: how much gain is left."""
    # Which of the n they are, r at a time: as the generating function sum over h of C(j, h) C(n - j, r - h) / 2 ** h.
    left, comb = [], math.comb
    for j in range(k + 1):
        ways = sum(comb(j, h) * comb(n - j, r - h) << (r - h) for h in range(max(0, r - n + j), min(j, r) + 1))
        left.append(float(Fraction(ways, comb(n, r) << r)))
    return left


def mean_novelty(n, r, k, discount):
    """Discounted gains that are halved by each relevant one: each takes half of the rest."""
    left = left_at(n, r, k)
    return math.fsum(2 * (left[j - 1] - left[j]) * discount(j) for j in range(1, k + 1))


def best_novelty(r, k, discount):
    return math.fsum(0.5 ** (j - 1) * discount(j) for j in range(1, min(r, k) + 1))


def halves(rank):
    return 0.5 ** (rank - 1)


def over_best(discount):
    return lambda n, r, k: mean_novelty(n, r, k, discount) / best_novelty(r, k, discount)


# ---- parameters to try

CUT = [
    *({"top_k": top_k} for top_k in (1, 4, 10)),
    *({"top_k": 3, "relevance_level": level} for level in (2, 0.5)),
    {"relevance_level": 2},
]
ALPHAS = [{"top_k": top_k, "alpha": alpha} for top_k in (None, 3) for alpha in (0, 0.3, 1)]
FALLING = [{"discount": "reciprocal"}, {"discount": "clipped", "top_k": 3}, {"discount": hyperbolic, "alpha": 0.3}]
BETAS = [{"alpha": alpha, "beta": beta} for alpha in (0.5, 0.9) for beta in (0, 0.8, 1)]
GRADES = [{"top_k": top_k, "max_grade": most} for top_k in (None, 3) for most in (1.5, 2, 4)]
NORMALIZED = [{"top_k": top_k, "normalize": normalize} for top_k in (None, 2) for normalize in ("min", "retrieved")]

oracle("pia", few=[{}, {"top_k": 3}], many=[*CUT, {"top_k": 4, "adaptive_k": True}], baseline=lambda n, r, k: r / n)(
    by_subtopic(precision)
)
oracle(
    "apia",
    few=[{}, {"top_k": 3}],
    many=[*CUT, *NORMALIZED, {"gain": "linear"}, {"gain": squared, "top_k": 2}],
    baseline=lambda n, r, k: precisions(n, r, k) / r,
)(by_subtopic(average_precision))
oracle("strecall", few=[{}, {"top_k": 2}], many=CUT, baseline=one_in_reach)(subtopic_recall)
oracle(
    "alphadcg",
    few=[{}, {"top_k": 3}],
    many=[
        *CUT,
        *ALPHAS,
        *FALLING,
        *({"top_k": k, "alpha": alpha, "bounded": True} for k in (1, 4) for alpha in (0, 0.5, 0.9)),
    ],
    baseline=lambda n, r, k: mean_novelty(n, r, k, discount_of("log2")),
    others={"alpha": [0.25, 1], "bounded": [True]},
)(alpha_dcg("nothing"))
oracle("alphandcg", few=[{}, {"top_k": 2}], many=CUT + ALPHAS + FALLING, baseline=over_best(discount_of("log2")))(
    alpha_dcg("ideal")
)
oracle(
    "erria",
    few=[{"top_k": 3}, {"max_grade": 3}],
    many=[*CUT, *GRADES, *({"top_k": k, "max_grade": most, "bounded": True} for k in (1, 4) for most in (1, 3))],
    baseline=lambda n, r, k: mean_novelty(n, r, k, discount_of("reciprocal")) / 2,
    others={"max_grade": [2, 4.5]},
)(err("intents"))
oracle(
    "nerria",
    few=[{}, {"top_k": 2, "max_grade": 2}],
    many=CUT + GRADES,
    baseline=over_best(discount_of("reciprocal")),
    others={"max_grade": [2, 4.5]},
)(err("ideal"))
oracle(
    "nrbp",
    few=[{}, {"top_k": 2, "beta": 0.8}],
    many=CUT + ALPHAS + BETAS,
    baseline=lambda n, r, k: mean_novelty(n, r, k, halves) * 3 / 4,
)(rank_biased("intents"))
oracle("nnrbp", few=[{}, {"top_k": 3, "alpha": 0.7}], many=CUT + ALPHAS + BETAS, baseline=over_best(halves))(
    rank_biased("ideal")
)
