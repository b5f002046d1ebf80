"""Graded measures and models of users, from their definitions; see :mod:`tests.support.oracles`."""

import itertools
import math
from functools import cache

from tests.support.oracles import WHOLE_OR_CUT, gain_of, oracle, squared
from tests.support.tie_orders import blocks

SKIPPED = {"empty_target_action": "skip"}
STOPS = [
    *({"top_k": k} for k in (1, 10)),
    {"top_k": 2, "max_grade": 2},
    {"max_grade": 1},
    {"max_grade": 2.5},
    {"max_grade": 3, "gain": "linear"},
    SKIPPED,
]

# ---- what r relevant candidates among n in random order get at k, or as a whole list ---------------------------------


def stops(n, r, k, max_grade=4):
    """The mean over sets of j candidates of (1 - R) ** their number of relevant ones, for each j."""
    stay = 1 - 1 / 2**max_grade
    passed = [1.0]
    for j in range(1, k + 1):
        hits = range(max(0, j - (n - r)), min(j, r) + 1)
        chances = (math.comb(j, h) * math.comb(n - j, r - h) / math.comb(n, r) for h in hits)  # as of r among j
        passed.append(math.fsum(chance * stay**h for chance, h in zip(chances, hits)))
    return math.fsum((before - after) / j for j, (before, after) in enumerate(itertools.pairwise(passed), 1))


def best_stops(r, k, max_grade=4):
    stay = 1 - 1 / 2**max_grade
    return math.fsum(stay ** (j - 1) * (1 - stay) / j for j in range(1, min(r, k) + 1))


def blended_baseline(n, r, k):
    """A relevant one at rank j has 1 + (j - 1) (r - 1) / (n - 1) up to there, of which count and gain are the same."""
    each = [2 * (1 + (j - 1) * (r - 1) / max(1, n - 1)) / (j + min(j, r)) for j in range(1, k + 1)]
    return math.fsum(each) / n


# ---- a reader who stops at what satisfies ----------------------------------------------------------------------------


def satisfaction(grade, max_grade, gain="exponential"):
    if gain == "linear":
        return min(max(grade, 0.0), max_grade) / max_grade
    return (2.0 ** min(grade, max_grade) - 1) / 2.0**max_grade if grade > 0 else 0.0


@oracle(
    "err", of="grades", few=WHOLE_OR_CUT, many=STOPS, baseline=stops, others={"max_grade": [3, 2.5], "gain": ["linear"]}
)
def reciprocal_rank_of_stop(grades, missing, top_k=None, max_grade=4, gain="exponential"):
    total, still_there = 0.0, 1.0
    for rank, grade in enumerate(grades[:top_k], 1):
        total += still_there * satisfaction(grade, max_grade, gain) / rank
        still_there *= 1 - satisfaction(grade, max_grade, gain)
    return total


def first_of_random(n, r, k):
    """The mean of 0.85 ** (rank - 1) of the first relevant candidate."""
    ranks = range(1, min(k, n - r + 1) + 1)
    return math.fsum(0.85 ** (j - 1) * math.comb(n - j, r - 1) for j in ranks) / math.comb(n, r)


@oracle(
    "pfound",
    of="grades",
    few=[{"max_grade": 3}, {"top_k": 3}],
    many=[
        {"top_k": 1, "max_grade": 4},
        {"gain": "exponential", "max_grade": 4},
        {"p": 0.5, "max_grade": 2.5, "top_k": 4},
    ],
    baseline=first_of_random,
    others={"max_grade": [3, 2.5], "gain": ["exponential"]},
)
def found(grades, missing, top_k=None, max_grade=1, gain="linear", p=0.85):
    """A user who looks at each rank with the probability to get there."""
    total, look = 0.0, 1.0
    for grade in grades[:top_k]:
        total += look * satisfaction(grade, max_grade, gain)
        look *= (1 - satisfaction(grade, max_grade, gain)) * p
    return total


@oracle(
    "nerr",
    of="grades",
    few=[{}, {"top_k": 3, "max_grade": 3}],
    many=STOPS,
    baseline=lambda n, r, k: stops(n, r, k) / best_stops(r, k),
    others={"gain": ["linear"]},
)
def normalised_reciprocal_rank(grades, missing, top_k=None, **of_grades):
    best = reciprocal_rank_of_stop(sorted([*grades, *missing], reverse=True), (), top_k, **of_grades)
    found = reciprocal_rank_of_stop(grades, missing, top_k, **of_grades)
    return found / best


# ---- rank-biased precision -------------------------------------------------------------------------------------------


def worth(grade, relevance_level, max_grade):
    if max_grade is None:
        return float(grade >= relevance_level)
    return min(grade / max_grade, 1.0) if grade > 0 else 0.0


@oracle(
    "rbp",
    of="all grades",
    few=[{}, {"top_k": 3, "max_grade": 3}],
    many=[
        *({"top_k": k, "p": p} for k in (1, 2, 10) for p in (0.95, 0.2)),
        *({"top_k": k, "normalize": True, "max_grade": grade} for k in (None, 2) for grade in (None, 2)),
        *({"relevance_level": level, "top_k": k} for level in (2, 0.5) for k in (None, 3)),
        {"max_grade": 1},
        {"max_grade": 2.5, "p": 0.5},
        SKIPPED,
    ],
    baseline=lambda n, r, k: r / n * (1 - 0.9**k),
    others={"p": [0.5, 0.95], "normalize": [True]},
)
def rank_biased(grades, missing, top_k=None, p=0.9, normalize=False, relevance_level=1, max_grade=None):
    gains = [worth(grade, relevance_level, max_grade) for grade in grades]
    ideal = sorted([*gains, *(worth(grade, relevance_level, max_grade) for grade in missing)], reverse=True)
    if sum(ideal) == 0:
        return None
    found, best = (math.fsum(gain * p**above for above, gain in enumerate(row[:top_k])) for row in (gains, ideal))
    return found / best if normalize else (1 - p) * found


@oracle(
    "rbpresidual",
    of="all grades",
    few=WHOLE_OR_CUT,
    many=[{"p": 0.5}, {"p": 0.95, "top_k": 2}, {"top_k": 1}, {"top_k": 10}, SKIPPED],
    baseline=lambda n, r, k: 0.9**k,
    others={"unjudged": []},
)
def rank_biased_residual(grades, missing, top_k=None, p=0.9):
    if not grades:
        return None
    seen = grades[:top_k]
    return p ** len(seen) + (1 - p) * math.fsum(p**above for above, grade in enumerate(seen) if grade < 0)


# ---- Q-measure -------------------------------------------------------------------------------------------------------


@oracle(
    "qmeasure",
    of="grades",
    few=WHOLE_OR_CUT,
    many=[
        *({"top_k": k, "normalize": how} for k in (None, 1, 2, 10) for how in ("relevant", "min")),
        *({"top_k": k, "beta": beta} for k in (None, 3) for beta in (0.1, 3)),
        *({"top_k": k, "gain": gain} for k in (None, 2) for gain in ("exponential", squared)),
        SKIPPED,
    ],
    baseline=blended_baseline,
    others={"normalize": ["min"]},
)
def blended_ratio(grades, missing, top_k=None, beta=1, normalize="relevant", gain="linear"):
    gains = [gain_of(grade, gain) for grade in grades]
    ideal = sorted([*gains, *(gain_of(grade, gain) for grade in missing)], reverse=True)
    relevant = sum(x > 0 for x in ideal)
    total = 0.0
    for rank, one in enumerate(gains[:top_k], 1):
        if one > 0:
            count = sum(x > 0 for x in gains[:rank])
            total += (count + beta * math.fsum(gains[:rank])) / (rank + beta * math.fsum(ideal[:rank]))
    return total / (min(relevant, top_k) if normalize == "min" and top_k else relevant)


# ---- weighted means --------------------------------------------------------------------------------------------------


@oracle(
    "arp",
    of="grades",
    empty="skip",
    few=[{}],
    many=[{"gain": "exponential"}, {"gain": squared}, SKIPPED],
    baseline=lambda n, r, k: (n + 1) / 2,
)
def mean_position(grades, missing, gain="linear"):
    behind = len(grades) + 1
    pairs = [(gain_of(grade, gain), rank) for rank, grade in enumerate(grades, 1)]
    pairs += [(gain_of(grade, gain), behind) for grade in missing]
    whole = math.fsum(one for one, _ in pairs)
    return math.fsum(one * rank for one, rank in pairs) / whole


@oracle(
    "pwa",
    of="grades",
    few=WHOLE_OR_CUT,
    many=[{"top_k": 1}, {"top_k": 10}, {"top_k": 2, "gain": "exponential"}, {"gain": squared}, SKIPPED],
    baseline=lambda n, r, k: r / n,
)
def position_weighted(grades, missing, top_k=None, gain="linear"):
    seen = grades[:top_k]
    whole = math.fsum(1 / rank for rank in range(1, len(seen) + 1))
    return math.fsum(gain_of(grade, gain) / rank for rank, grade in enumerate(seen, 1)) / whole if seen else 0.0


# ---- C/W/L: a user walks down the list, rank by rank -----------------------------------------------------------------


def hasty(gain, rank):
    return (2 - gain) / (2 + rank)


def goes_on(user, gains, rank, patience, settings):
    """The chance to go on from a rank; behind the list nothing gains."""

    def gain_at(any_rank):
        return gains[any_rank - 1] if any_rank <= len(gains) else 0.0

    gain, gained, target = gain_at(rank), math.fsum(gains[:rank]), settings["target"]
    if callable(user):
        return user(gain, rank)
    if user == "ap":
        here, behind = (math.fsum(gain_at(j) / j for j in range(start, len(gains) + 1)) for start in (rank, rank + 1))
        return behind / here if here else 0.0
    if user == "bpm":
        for earlier in range(1, rank):
            target += settings["benefit"] * (gain_at(earlier) - settings["middle"])
            patience += settings["cost"] * (gain_at(earlier) - settings["middle"])
        return float(gained < target - 1e-9 and rank < patience - 1e-9)
    wants = rank + 2 * target
    return {
        "precision": lambda: 1.0,
        "rbp": lambda: settings["p"],
        "rr": lambda: float(gained == 0),
        "sdcg": lambda: math.log(rank + 1) / math.log(rank + 2),
        "insq": lambda: ((wants - 1) / wants) ** 2,
        "inst": lambda: ((wants - gained - 1) / (wants - gained)) ** 2,
        "nerr8": lambda: 1 - gain,
        "nerr9": lambda: (1 - gain) * rank / (rank + 1),
        "nerr10": lambda: (1 - gain) * settings["p"],
        "nerr11": lambda: (1 - gain) * ((wants - 1) / wants) ** 2,
    }[user]()


STATIC = ("precision", "sdcg", "insq")
ADAPTIVE = ("rr", "ap", "inst", "bpm", "nerr8", "nerr9", "nerr10", "nerr11", hasty)


@oracle(
    "cwl",
    few=[{"top_k": 4}, {"top_k": 3, "max_grade": 3, "user": "inst"}],
    many=[
        {},
        {"p": 0.5, "top_k": 2},
        *({"user": user, "top_k": 4} for user in (*STATIC, *ADAPTIVE)),
        *({"user": user, "top_k": 5, "max_grade": 3} for user in ADAPTIVE),
        *({"user": user, "top_k": 6, "target": 2.5} for user in ("insq", "inst", "bpm", "nerr11")),
        {"user": "bpm", "top_k": 4, "max_grade": 3, "target": 1.5, "benefit": 0.7, "middle": 0.4},
        {"user": "bpm", "top_k": 3, "max_grade": 3, "benefit": 1, "cost": 2, "target": 2},
        {"user": "inst", "max_grade": 2},
        *({"user": "nerr10", "top_k": 3, "relevance_level": level} for level in (2, 0.5)),
        *({"of": of, "user": user, "top_k": 4} for of in ("total_utility", "depth") for user in ("inst", "rr")),
        SKIPPED,
    ],
    baseline=lambda n, r, k: r / n,
    others={
        "of": ["depth", "total_utility"],
        "user": ["inst", "bpm", hasty],
        "target": [2, 0.5],
        "benefit": [0.5],
        "cost": [2],
        "middle": [0.25],
    },
)
def rate_of_gain(query, *, ties, of="utility", top_k=None, user="rbp", relevance_level=1, max_grade=None, **given):
    """Tied candidates share their gains, which is all that "expected" ties are here."""
    settings = {"p": 0.8, "target": 1, "benefit": 0, "cost": 0, "middle": 0.5} | given
    values = [[worth(grade, relevance_level, max_grade) for grade in block] for block in blocks(query)]
    missing = sum(worth(grade, relevance_level, max_grade) for grade in query.missing)
    if of != "depth" and sum(map(sum, values)) + missing == 0:
        return None
    if ties == "expected":
        gains = [math.fsum(block) / len(block) for block in values for _ in block]
    else:
        gains = [x for block in values for x in sorted(block, reverse=ties == "optimistic")]
    ranks = 1000 if user == "bpm" and settings["cost"] else top_k or 1000
    total, depth = walked(tuple(gains[:ranks]), ranks, top_k or ranks, user, tuple(settings.items()))
    return {"utility": total / depth, "total_utility": total, "depth": depth}[of]


@cache
def walked(gains, ranks, patience, user, settings):
    """The gains that a user sees, and the number of ranks seen."""
    seen, total, attention = 1.0, 0.0, 0.0
    for rank in range(1, ranks + 1):
        total, attention = total + seen * math.fsum(gains[rank - 1 : rank]), attention + seen
        seen *= min(1.0, max(0.0, goes_on(user, gains, rank, patience, dict(settings))))
        if seen < 1e-18:  # of which a thousand are less than a digit
            break
    return total, attention
