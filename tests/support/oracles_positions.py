"""Mean rank, reciprocal rank and hits from their definitions, and their values by chance, with every rank tried."""

import itertools
import math

from tests.support.oracles import one_in_reach, oracle
from tests.support.tie_orders import Query, expectation, flags, orders

#: what is averaged instead of ranks, and what makes a rank of the mean again
MEANS = {"mean": (float, float), "geometric": (math.log, math.exp), "harmonic": (lambda x: 1 / x, lambda x: 1 / x)}

# ---- the ranks of relevant candidates, the length of the list, how many it lacks


def mean_rank(ranks, length, missing, inside=float):
    everywhere = [*ranks, *[length + 1] * missing]
    return math.fsum(map(inside, everywhere)) / len(everywhere)


def reciprocal_rank(ranks, length, missing, top_k=None):
    return max((1 / rank for rank in ranks if top_k is None or rank <= top_k), default=0.0)


def hit(ranks, length, missing, top_k=None):
    return float(any(top_k is None or rank <= top_k for rank in ranks))


POSITIONS = {"mr": mean_rank, "mrr": reciprocal_rank, "hitrate": hit}


# ---- as the scores have it; the query holds flags


def by_scores(name, query, ties, **parameters):
    length, missing = len(query.listed), len(query.missing)
    if ties == "realistic":
        ranks = []
        for score, relevant in query.listed:
            ahead = sum(other > score for other, _ in query.listed)
            tied = sum(other == score for other, _ in query.listed)
            ranks += [ahead + 1 + (tied - 1) / 2] * bool(relevant)
        return POSITIONS[name](ranks, length, missing, **parameters)
    found = [([r for r, flag in enumerate(order, 1) if flag], weight) for order, weight in orders(query, ties)]
    return expectation([(POSITIONS[name](r, length, missing, **parameters), weight) for r, weight in found])


def each_against_irrelevant(query):
    """Filtered ranking: a list of its own for every relevant candidate."""
    others = tuple((score, flag) for score, flag in query.listed if not flag)
    found = [Query(((score, flag), *others)) for score, flag in query.listed if flag]
    return found + [Query(others, (flag,)) for flag in query.missing]


# ---- as chance has it


def by_chance(name, query, *, filtered=False, **parameters):
    """Mean and variance over all ranks that the relevant candidates could have; the query holds flags."""
    if filtered:
        each = [by_chance(name, single, **parameters) for single in each_against_irrelevant(query)]
        return math.fsum(mean for mean, _ in each) / len(each), math.fsum(v for _, v in each) / len(each) ** 2
    candidates = len(query.listed) + len(query.missing)
    relevant = sum(flag for _, flag in query.listed) + len(query.missing)
    chosen = itertools.combinations(range(1, candidates + 1), relevant)
    values = [POSITIONS[name](ranks, candidates, 0, **parameters) for ranks in chosen]
    mean = math.fsum(values) / len(values)
    return mean, math.fsum((value - mean) ** 2 for value in values) / len(values)


def in_terms_of(how, value, mean, variance, lower_is_better=False):
    """A value adjusted for chance, 0 where chance leaves nothing open."""
    if how is None:
        return value
    if how == "ratio":
        return value / mean
    if how == "index":
        return 0.0 if abs(1 - mean) < 1e-12 else (value - mean) / (1 - mean)
    if variance < 1e-15:
        return 0.0
    return (mean - value if lower_is_better else value - mean) / math.sqrt(variance)


# ---- one value for one query


def position(name):
    def value(
        query,
        *,
        ties,
        relevance_level=1,
        filtered=False,
        adjusted=None,
        aggregation="mean",
        inverse=False,  # of the mean over queries, not of a value
        **parameters,
    ):
        query = flags(query, relevance_level)
        if not query.missing and not any(flag for _, flag in query.listed):
            return None
        inside, outside = MEANS[aggregation if name == "mr" else "mean"]
        more = {"inside": inside} if name == "mr" else {}
        singles = each_against_irrelevant(query) if filtered else [query]
        found = [by_scores(name, single, ties, **parameters, **more) for single in singles]
        value = outside(math.fsum(found) / len(found))
        if adjusted is None:
            return value
        return in_terms_of(adjusted, value, *by_chance(name, query, filtered=filtered, **parameters), name == "mr")

    return value


# ---- parameters to try

FILTERED = (False, True)
ADJUSTED = [
    {"adjusted": how, "top_k": top_k, "filtered": filtered}
    for how in ("index", "z")
    for top_k in (None, 1, 2, 3, 10)
    for filtered in FILTERED
]
CUT = [{"top_k": top_k, "filtered": filtered} for filtered in FILTERED for top_k in (1, 2, 3, 10)]
EACH = [
    *({"filtered": filtered, "relevance_level": level} for filtered in FILTERED for level in (2, 0.5)),
    {"filtered": True, "average": "positive"},
]

oracle(
    "mr",
    empty="skip",
    few=[{}, {"filtered": True}],
    many=[
        *EACH,
        {"average": "positive"},
        *({"adjusted": how, "filtered": filtered} for how in ("ratio", "index", "z") for filtered in FILTERED),
        *({"aggregation": how, "filtered": filtered} for how in ("geometric", "harmonic") for filtered in FILTERED),
        {"inverse": True},
        {"adjusted": "index", "relevance_level": 2},
        {"adjusted": "z", "unjudged": "condensed"},
    ],
    baseline=lambda n, r, k: (n + 1) / 2,
    others={"inverse": [True]},
)(position("mr"))
oracle(
    "mrr",
    few=[{}, {"top_k": 2, "filtered": True}],
    many=[
        *CUT,
        *EACH,
        *ADJUSTED,
        {"adjusted": "z", "relevance_level": 2},
        {"adjusted": "index", "unjudged": "condensed"},
    ],
    # the first relevant one is at rank j if the others are among the n - j behind it
    baseline=lambda n, r, k: math.fsum(math.comb(n - j, r - 1) / math.comb(n, r) / j for j in range(1, k + 1)),
    others={"adjusted": ["index", "z"]},
)(position("mrr"))
oracle(
    "hitrate",
    few=[{}, {"top_k": 2}, {"top_k": 2, "filtered": True}],
    many=[*CUT, *EACH, *ADJUSTED, {"adjusted": "index", "top_k": 2, "relevance_level": 0.5}],
    baseline=one_in_reach,
)(position("hitrate"))


@oracle(
    "firstrank",
    of="flags",
    empty="skip",
    few=[{}],
    many=[{"relevance_level": 2}, {"relevance_level": 0.5}],
    baseline=lambda n, r, k: (n + 1) / (r + 1),
)
def first_rank(relevant, missing):
    return 1.0 + [*relevant, True].index(True)
