"""Expected exposure: the mean discount of each candidate over all orders of its tie, written out."""

import itertools
import math
from functools import cache

from tests.support.oracles import CUT, WHOLE_OR_CUT, discount_of, hyperbolic, oracle
from tests.support.tie_orders import blocks

FEW_TRIED = [{"patience": 0.2, "top_k": 2}, {"discount": "log2"}]
TRIED = [*CUT[:1], *FEW_TRIED, {"patience": 1}]
TRIED += [{"discount": how, "top_k": 3} for how in ("clipped", "reciprocal", "none", hyperbolic)]


@cache
def of_one(above, tied, top_k, discount, patience):
    """Exposure of one of some tied candidates behind others: its mean discount over all orders."""
    at = (lambda rank: patience ** (rank - 1)) if discount == "geometric" else discount_of(discount)
    seen = []
    for order in itertools.permutations(range(tied)):
        rank = above + 1 + order.index(0)
        seen.append(at(rank) if top_k is None or rank <= top_k else 0)
    return math.fsum(seen) / len(seen)


def exposures(query, ties, *user):
    """Exposure and target of each candidate; None if nothing is relevant."""
    shown = []
    for block in blocks(query):
        if ties == "expected":
            e = of_one(len(shown), len(block), *user)
            shown += [(grade, e) for grade in block]
        else:
            for grade in sorted(block, reverse=ties == "optimistic"):
                shown.append((grade, of_one(len(shown), 1, *user)))
    shown += [(grade, 0.0) for grade in query.missing if grade > 0]
    grades = [max(grade, 0) for grade, _ in shown]
    if not any(grades):
        return None
    wanted = [of_one(sum(other > grade for other in grades), grades.count(grade), *user) for grade in grades]
    return [(e, target) for (_, e), target in zip(shown, wanted)]


def seen(k):
    return math.fsum(0.5**above for above in range(k))


def of_random(n, r, k):
    """Each of n candidates has the same exposure."""
    return seen(min(n, k)) ** 2 / n


def loss_of_random(n, r, k):
    of_relevant = seen(min(r, k))
    rest = (seen(min(n, k)) - of_relevant) ** 2 / (n - r)
    return of_relevant**2 / r + rest - of_random(n, r, k)


def measure(name, many, baseline, formula):
    @oracle(name, few=WHOLE_OR_CUT, many=many, baseline=baseline, empty="skip", others={"patience": [0.2, 0.9]})
    def value(query, *, ties, top_k=None, discount="geometric", patience=0.5):
        pairs = exposures(query, ties, top_k, discount, patience)
        return None if pairs is None else math.fsum(formula(e, target) for e, target in pairs)


measure("eel", TRIED, loss_of_random, lambda e, target: (e - target) ** 2)
measure("eed", FEW_TRIED, of_random, lambda e, target: e * e)
measure("eer", FEW_TRIED, of_random, lambda e, target: e * target)
