"""Measures that trec_eval alone has, from their definitions."""

import itertools
import math

from tests.support.oracles import LEVELS, discounts, oracle, precisions, squared
from tests.support.tie_orders import blocks, expectation, flags, orders

SKIPPED = {"empty_target_action": "skip"}
LEVELS_AND_SKIPPED = [*LEVELS, SKIPPED]


def of_orders(query, ties, level, value):
    """The expectation of ``value(flags in rank order, relevant ones that lack)``."""
    judged = flags(query, level)
    missing = len(judged.missing)
    return expectation([(value(order, missing), weight) for order, weight in orders(judged, ties)])


@oracle("numrel", few=[{}], many=LEVELS_AND_SKIPPED, baseline=lambda n, r, k: r)
def relevant(query, *, ties, relevance_level=1):
    grades = [*(grade for _, grade in query.listed), *query.missing]
    return float(sum(grade >= relevance_level for grade in grades)) or None


@oracle("numrelret", few=[{}, {"top_k": 2}], many=LEVELS_AND_SKIPPED, baseline=lambda n, r, k: k * r / n)
def relevant_retrieved(query, *, ties, relevance_level=1, top_k=None):
    def value(order, missing):
        return float(sum(order[:top_k])) if any(order) or missing else None

    return of_orders(query, ties, relevance_level, value)


@oracle("numret", few=[{}, {"top_k": 2}], many=[{"top_k": 1}, SKIPPED], baseline=lambda n, r, k: k)
def retrieved(query, *, ties, top_k=None):
    return float(len(query.listed[:top_k])) or None


@oracle(
    "filled",
    few=[{"top_k": 3}],
    many=[{}, {"top_k": 3, "whole": True}, {"top_k": 2, "whole": True, **SKIPPED}],
    baseline=lambda n, r, k: min(n, k) / k,
)
def filled(query, *, ties, top_k=1, whole=False):
    ranks = [rank < len(query.listed) for rank in range(top_k)]
    return float(all(ranks) if whole else sum(ranks) / top_k) if query.listed else None


@oracle(
    "numnonrelret",
    few=[{"top_k": 2}, {}],
    many=[{"top_k": 1, "relevance_level": 2}, SKIPPED],
    baseline=lambda n, r, k: k * (n - r) / n,
)
def irrelevant_retrieved(query, *, ties, relevance_level=1, top_k=None):
    def value(order):
        return float(sum(0 <= grade < relevance_level for grade in order[:top_k])) if order else None

    return expectation([(value(order), weight) for order, weight in orders(query, ties)])


@oracle("numq", few=[{}], many=[SKIPPED], baseline=lambda n, r, k: 1)
def queries(query, *, ties):
    return 1.0


@oracle("yaap", few=[{}], many=LEVELS_AND_SKIPPED, baseline=lambda n, r, k: of_total(precisions(n, r, n), r))
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


@oracle("bing", few=[{}], many=LEVELS_AND_SKIPPED, baseline=lambda n, r, k: discounts(n - r + 1) / (n - r + 1))
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


@oracle(
    "rndcg",
    few=[{}],
    many=[{"gain": "exponential"}, SKIPPED],
    baseline=lambda n, r, k: (
        (r / n) * ((discounts(r) + discounts(n)) / 2 if n > r + 1 else discounts(r)) / discounts(r)
    ),
)
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


@oracle(
    "g",
    few=[{}],
    many=[{"gain": "exponential"}, {"gain": squared}, SKIPPED],
    baseline=lambda n, r, k: 1 / math.log2(2 + (n - r) / 2),
)
def normalized_gain(query, *, ties, gain="linear"):
    """With the candidates of a tie group in its middle, half of the others before each."""
    worth = {"linear": lambda g: g, "exponential": lambda g: 2**g - 1}.get(gain, gain)
    groups = [[worth(g) if g > 0 else 0 for g in block] for block in blocks(query)]
    if ties != "expected":
        groups = [[value] for group in groups for value in sorted(group, reverse=ties == "optimistic")]
    missing = [worth(g) for g in query.missing if g > 0]
    ideal = sorted([*itertools.chain.from_iterable(groups), *missing], reverse=True)
    costs = [0, *itertools.accumulate(max(1, value) for value in ideal)]
    above, gained, total = 0, 0, []
    for group in groups:
        middle = [above + (len(group) + 1) // 2, above + (len(group) + 2) // 2]
        for value in group:
            seen = gained + value + (sum(group) - value) / 2
            total.append(value / math.log2(2 + sum(costs[rank] for rank in middle) / 2 - seen))
        above, gained = above + len(group), gained + sum(group)
    return math.fsum(total) / sum(ideal) if sum(ideal) else None


def of_random_gains(n, r, k):
    """Of r candidates of grade 1 among n in random order."""
    at, total = [1 / math.log2(1 + rank) for rank in range(1, n + 1)], []
    before = ideal = 0.0
    for rank, discount in enumerate(at, 1):
        ideal += discount if rank <= r else 0
        total.append((r / n * discount + r * (r - 1) / (n * max(1, n - 1)) * before) / ideal)
        before += discount
    return math.fsum(total) / r


@oracle("ndcgrel", few=[{}], many=[{"gain": "exponential"}, {"gain": squared}, SKIPPED], baseline=of_random_gains)
def ndcg_at_relevant(query, *, ties, gain="linear"):
    worth = {"linear": lambda g: g, "exponential": lambda g: 2**g - 1}.get(gain, gain)

    def gained(grades):
        return math.fsum(worth(g) / math.log2(1 + rank) for rank, g in enumerate(grades, 1) if g > 0)

    best = sorted([*(grade for _, grade in query.listed), *query.missing], reverse=True)
    relevant = sum(grade > 0 for grade in best)
    if not relevant:
        return None

    def value(order):
        found = [gained(order[:rank]) / gained(best[:rank]) for rank, grade in enumerate(order, 1) if grade > 0]
        missing = relevant - len(found)
        return (math.fsum(found) + missing * gained(order) / gained(best)) / relevant

    return expectation([(value(order), weight) for order, weight in orders(query, ties)])
