"""Measures that trec_eval alone has, from their definitions."""

import itertools
import math

from tests.support.oracles import (
    LEVELS,
    average_precision,
    discounted,
    discounts,
    gain_of,
    of_flags,
    oracle,
    precisions,
    squared,
)
from tests.support.tie_orders import blocks, number_of_positives

SKIPPED = {"empty_target_action": "skip"}
GAINS = [{"gain": "exponential"}, {"gain": squared}, SKIPPED]
LEVELS_AND_SKIPPED = [*LEVELS, SKIPPED]


@oracle("numrel", of="flags", few=[{}], many=LEVELS_AND_SKIPPED, baseline=lambda n, r, k: r)
def relevant(order, missing):
    return float(sum(order) + missing)


@oracle("numrelret", of="flags", few=[{}, {"top_k": 2}], many=LEVELS_AND_SKIPPED, baseline=lambda n, r, k: k * r / n)
def relevant_retrieved(order, missing, top_k=None):
    return float(sum(order[:top_k]))


@oracle("numret", of="all grades", few=[{}, {"top_k": 2}], many=[{"top_k": 1}, SKIPPED], baseline=lambda n, r, k: k)
def retrieved(grades, missing, top_k=None):
    return float(len(grades[:top_k])) or None


@oracle(
    "filled",
    of="all grades",
    few=[{"top_k": 3}],
    many=[{}, {"top_k": 3, "whole": True}, {"top_k": 2, "whole": True, **SKIPPED}],
    baseline=lambda n, r, k: min(n, k) / k,
)
def filled(grades, missing, top_k=1, whole=False):
    share = len(grades[:top_k]) / top_k
    return float(share == 1 if whole else share) if grades else None


@oracle(
    "numnonrelret",
    of="all grades",
    few=[{"top_k": 2}, {}],
    many=[{"top_k": 1, "relevance_level": 2}, SKIPPED],
    baseline=lambda n, r, k: k * (n - r) / n,
)
def irrelevant_retrieved(grades, missing, relevance_level=1, top_k=None):
    return float(sum(0 <= grade < relevance_level for grade in grades[:top_k])) if grades else None


@oracle("numq", few=[{}], many=[SKIPPED], baseline=lambda n, r, k: 1)
def queries(query, *, ties):
    return 1.0


@oracle("yaap", few=[{}], many=LEVELS_AND_SKIPPED, baseline=lambda n, r, k: of_total(precisions(n, r, n), r))
def log_odds(query, *, ties, relevance_level=1):
    """Of the expected average precision."""
    value = of_flags(average_precision)(query, ties=ties, relevance_level=relevance_level)
    everywhere = number_of_positives(query, relevance_level)
    return None if value is None else of_total(value * everywhere, everywhere)


def of_total(total, everywhere):
    return math.log((1 + total) / (1 + everywhere - total))


@oracle(
    "bing", of="flags", few=[{}], many=LEVELS_AND_SKIPPED, baseline=lambda n, r, k: discounts(n - r + 1) / (n - r + 1)
)
def binary_g(order, missing):
    """Only irrelevant candidates above a relevant one cost it something."""
    places = [place for place, flag in enumerate(order) if flag]
    return math.fsum(1 / math.log2(2 + place - hits) for hits, place in enumerate(places)) / (len(places) + missing)


@oracle(
    "rndcg",
    of="grades",
    few=[{}],
    many=[{"gain": "exponential"}, SKIPPED],
    baseline=lambda n, r, k: (
        (r / n) * ((discounts(r) + discounts(n)) / 2 if n > r + 1 else discounts(r)) / discounts(r)
    ),
)
def ndcg_at_levels(grades, missing, gain="linear"):
    best = sorted([*grades, *missing], reverse=True)
    levels = sorted({grade for grade in best if grade > 0}, reverse=True)
    cuts = [sum(grade >= level for grade in best) for level in levels]
    if len(grades) > cuts[-1] + 1:
        cuts.append(len(grades))
    return math.fsum(discounted(grades, cut, gain) / discounted(best, cut, gain) for cut in cuts) / len(cuts)


@oracle("g", few=[{}], many=GAINS, baseline=lambda n, r, k: 1 / math.log2(2 + (n - r) / 2))
def normalized_gain(query, *, ties, gain="linear"):
    """With the candidates of a tie group in its middle, half of the others before each."""
    groups = [[gain_of(grade, gain) for grade in block] for block in blocks(query)]
    if ties != "expected":
        groups = [[value] for group in groups for value in sorted(group, reverse=ties == "optimistic")]
    missing = [gain_of(grade, gain) for grade in query.missing if grade > 0]
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


@oracle("ndcgrel", of="grades", few=[{}], many=GAINS, baseline=of_random_gains)
def ndcg_at_relevant(grades, missing, gain="linear"):
    best = sorted([*grades, *missing], reverse=True)
    relevant = sum(grade > 0 for grade in best)
    ranks = [rank for rank, grade in enumerate(grades, 1) if grade > 0]
    found = math.fsum(discounted(grades, rank, gain) / discounted(best, rank, gain) for rank in ranks)
    at_end = discounted(grades, None, gain) / discounted(best, None, gain)
    return (found + (relevant - len(ranks)) * at_end) / relevant
