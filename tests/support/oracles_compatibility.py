"""Compatibility from its definition: the largest overlap with any ideal order, depth by depth."""

import itertools
import math
from functools import cache

from tests.support.oracles import oracle


@cache
def ideal_orders(entries):
    """Every order of the entries of positive grade by descending grade."""
    grades = sorted({grade for _, grade in entries if grade > 0}, reverse=True)
    number = math.prod(math.factorial(sum(one == grade for _, one in entries)) for grade in grades)
    if number > 1000:  # then only the order of the list within each grade, which is the best one in shorter lists
        return [[entry for grade in grades for entry in entries if entry[1] == grade]]
    levels = [itertools.permutations([entry for entry in entries if entry[1] == grade]) for grade in grades]
    return [list(itertools.chain.from_iterable(parts)) for parts in itertools.product(*levels)]


def overlap(one, other, p, depths):
    return math.fsum(p ** (d - 1) * len(set(one[:d]) & set(other[:d])) / d for d in range(1, depths + 1))


def random_order(n, r, k):
    """One grade: the ideal has those in the first d of the list among its own first d, of which r d / n are found."""
    value = math.fsum(0.95 ** (d - 1) * r / n for d in range(1, k + 1))
    return value / math.fsum(0.95 ** (d - 1) * min(r, d) / d for d in range(1, k + 1))


@oracle(
    "compat",
    of="grades",
    few=[{}, {"top_k": 2, "p": 0.6}],
    many=[
        {"top_k": 3},
        {"p": 0.3},
        {"p": 0.9999},
        *({"normalize": False, "top_k": k, "p": p} for k, p in ((None, 0.95), (4, 0.8), (10, 0.5))),
    ],
    baseline=random_order,
    others={"p": [0.5, 0.25], "normalize": [False]},
)
def compatibility(grades, missing, top_k=None, p=0.95, normalize=True):
    entries = tuple(enumerate([*grades, *missing]))
    ideals = ideal_orders(entries)
    ranking = entries[: len(grades)]
    depths = max(len(ranking), len(ideals[0]))
    depths = depths if top_k is None else min(depths, top_k)
    best = max(overlap(ranking, ideal, p, depths) for ideal in ideals)
    if not normalize:
        return best / math.fsum(p ** (d - 1) for d in range(1, depths + 1))
    return best / overlap(ideals[0], ideals[0], p, depths)
