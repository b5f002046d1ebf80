"""Measures of incomplete judgments: walk down each order, and count as trec_eval counts."""

import itertools
import math

from tests.support.oracles import CUT, LEVELS, hypergeometric, oracle


# Any number of the irrelevant ones is as likely to be ahead of a relevant one.
@oracle(
    "bpref",
    of="all grades",
    counts_irrelevant=True,
    few=[{}],
    many=[
        *LEVELS,
        *({"top_k": k} for k in (1, 3)),
        *({"normalize": "relevant", **more} for more in ({}, {"top_k": 2, "relevance_level": 2})),
    ],
    baseline=lambda *numbers: of_slots(*numbers),
    others={"normalize": ["relevant"]},
)
def bpref(grades, missing, relevance_level=1, top_k=None, normalize="min"):
    everyone = [*grades, *missing]
    relevant = sum(grade >= relevance_level for grade in everyone)
    irrelevant = sum(0 <= grade < relevance_level for grade in everyone)
    if not relevant:
        return None
    total, above = 0.0, 0
    least = relevant if normalize == "relevant" else min(irrelevant, relevant)
    for grade in grades[:top_k]:
        if grade >= relevance_level:
            total += 1 - min(above, relevant) / least if above else 1
        elif grade >= 0:
            above += 1
    return total / relevant


def of_slots(n, r, k):
    """A relevant candidate is one of n - r + 1 in random order; h of these are among the first k."""
    irrelevant = n - r
    worth = [1 - min(ahead, r) / min(irrelevant, r) if ahead else 1 for ahead in range(irrelevant + 1)]
    so_far = [0.0, *itertools.accumulate(worth)]
    hits = range(max(0, k - r + 1), min(k, irrelevant + 1) + 1)
    return math.fsum(hypergeometric(h, n, irrelevant + 1, k) * so_far[h] for h in hits) / (irrelevant + 1)


@oracle("infap", of="all grades", few=[{}], many=LEVELS, baseline=None)
def inferred(grades, missing, relevance_level=1):
    tiny = 0.00001
    relevant = sum(grade >= relevance_level for grade in [*grades, *missing])
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


@oracle("judged", of="all grades", few=[{"top_k": 3}, {}], many=CUT, baseline=lambda n, r, k: 1)
def judged(grades, missing, top_k=None):
    return sum(grade >= 0 for grade in grades[:top_k]) / len(grades[:top_k]) if grades else None


@oracle("hole", of="all grades", few=[{"top_k": 3}, {}], many=CUT, baseline=lambda n, r, k: 0)
def unjudged(grades, missing, top_k=None):
    return sum(grade < 0 for grade in grades[:top_k]) / (top_k or len(grades)) if grades else None
