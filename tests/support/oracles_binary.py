"""Further measures of binary relevance, and of pairs, from their definitions."""

import itertools
import math
from fractions import Fraction

from tests.support.oracles import (
    LEVELS,
    LEVELS_CUT,
    WHOLE_OR_CUT,
    average_precision,
    gain_of,
    hypergeometric,
    of_flags,
    oracle,
    precisions,
    squared,
)
from tests.support.tie_orders import flags, orders

CUT = [{"top_k": k} for k in (None, 1, 2, 4, 10)]
SIZES = [{"top_k": 3, "collection_size": size} for size in (4, 1000)]
WORTH = {"hit": 2, "false_alarm": -0.5, "miss": -1.25, "rejection": 0.1}


def mean_hits(n, r, k):
    return k * r / n


# ---- sets and contingency tables: flags in rank order, how many relevant ones lack


@oracle(
    "relprecision",
    of="flags",
    few=WHOLE_OR_CUT,
    many=CUT + LEVELS_CUT,
    baseline=lambda n, r, k: mean_hits(n, r, k) / min(k, r),
)
def relative_precision(relevant, missing, top_k=None):
    everywhere = sum(relevant) + missing
    shown = len(relevant) if top_k is None else top_k
    possible = min(shown, everywhere)
    return sum(relevant[:top_k]) / possible if possible else 0.0


@oracle("setap", of="flags", few=[{}], many=LEVELS, baseline=lambda n, r, k: r / n)
def set_average_precision(relevant, missing):
    if not relevant:
        return 0.0
    return sum(relevant) / len(relevant) * sum(relevant) / (sum(relevant) + missing)


def contingency(relevant, missing, top_k):
    """Relevant and shown, irrelevant and shown, relevant and not shown, neither."""
    shown = len(relevant) if top_k is None else min(top_k, len(relevant))
    cells = [(flag, rank < shown) for rank, flag in enumerate(relevant)] + [(True, False)] * missing
    return [cells.count(cell) for cell in ((True, True), (False, True), (True, False), (False, False))]


@oracle(
    "accuracy",
    of="flags",
    few=WHOLE_OR_CUT,
    many=CUT + LEVELS_CUT + SIZES,
    baseline=lambda n, r, k: (n - k - r + 2 * mean_hits(n, r, k)) / n,
    others={"collection_size": [0, 1000]},
)
def accuracy(relevant, missing, top_k=None, collection_size=None):
    tp, fp, fn, tn = contingency(relevant, missing, top_k)
    tn = max(tn, (collection_size or 0) - tp - fp - fn)
    return (tp + tn) / (tp + fp + fn + tn)


@oracle("mcc", of="flags", few=WHOLE_OR_CUT, many=CUT + LEVELS_CUT + SIZES, baseline=lambda n, r, k: 0)
def matthews(relevant, missing, top_k=None, collection_size=None):
    tp, fp, fn, tn = contingency(relevant, missing, top_k)
    tn = max(tn, (collection_size or 0) - tp - fp - fn)
    spread = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return (tp * tn - fp * fn) / math.sqrt(spread) if spread else 0.0


@oracle(
    "utility",
    of="all flags",
    few=[{}, {"top_k": 3, **WORTH}],
    many=CUT
    + LEVELS_CUT
    + [{**WORTH, "top_k": k, "collection_size": size} for k in (None, 2) for size in (None, 0, 1000)],
    baseline=lambda n, r, k: 2 * mean_hits(n, r, k) - k,
    others={"hit": [2, 0.25], "false_alarm": [0, -1.5], "miss": [-0.5], "rejection": [1e-05]},
)
def utility(relevant, missing, top_k=None, hit=1, false_alarm=-1, miss=0, rejection=0, collection_size=None):
    if not relevant and not missing:
        return None
    tp, fp, fn, tn = contingency(relevant, missing, top_k)
    if collection_size is not None:
        tn = collection_size - tp - fp - fn
    return hit * tp + false_alarm * fp + miss * fn + rejection * tn


# ---- ranks of the relevant candidates


@oracle(
    "allhit",
    of="flags",
    few=[{}, {"top_k": 3}, {"top_k": 2, "enough": 2}],
    many=CUT + LEVELS_CUT + [{"top_k": k, "enough": least} for k in (None, 1, 3) for least in (1, 2, 5)],
    baseline=lambda n, r, k: hypergeometric(r, n, r, k) if r <= k else 0,
    others={"enough": [1, 3]},
)
def all_hit(relevant, missing, top_k=None, enough=None):
    everywhere = sum(relevant) + missing
    return float(sum(relevant[:top_k]) >= (enough or everywhere))


@oracle(
    "eachrr",
    of="flags",
    few=WHOLE_OR_CUT,
    many=CUT + LEVELS_CUT,
    baseline=lambda n, r, k: math.fsum(1 / rank for rank in range(1, k + 1)) / n,
)
def each_reciprocal_rank(relevant, missing, top_k=None):
    everywhere = sum(relevant) + missing
    return math.fsum(flag / rank for rank, flag in enumerate(relevant[:top_k], 1)) / everywhere


@oracle(
    "inp",
    of="flags",
    few=[{}],
    many=LEVELS,
    baseline=lambda n, r, k: math.fsum(r / j * math.comb(j - 1, r - 1) for j in range(r, n + 1)) / math.comb(n, r),
)
def inverse_negative_penalty(relevant, missing):
    return 0.0 if missing else sum(relevant) / max(rank for rank, flag in enumerate(relevant, 1) if flag)


@oracle("mapatr", of="flags", few=[{}], many=LEVELS, baseline=lambda n, r, k: precisions(n, r, r) / r)
def average_precision_at_r(relevant, missing):
    return average_precision(relevant, missing, top_k=sum(relevant) + missing)


@oracle(
    "trapezoidalap",
    of="flags",
    few=[{}],
    many=LEVELS,
    # The expected precisions before the ranks 1, 2, ... are 1, (r - 1) / (n - 1), (r - 1) / (n - 1), ...
    baseline=lambda n, r, k: (precisions(n, r, n) + r / n * r) / (2 * r),
)
def area_of_trapezia(relevant, missing):
    """The area under the points of recall and precision after each candidate, as drawn."""
    everywhere = sum(relevant) + missing
    points = [(0, 1)] + [(sum(relevant[:n]) / everywhere, sum(relevant[:n]) / n) for n in range(1, len(relevant) + 1)]
    return math.fsum((x - before) * (y + last) / 2 for (before, last), (x, y) in itertools.pairwise(points))


@oracle("coverageerror", of="flags", few=[{}], many=LEVELS, baseline=lambda n, r, k: r * (n + 1) / (r + 1))
def coverage_error(relevant, missing):
    return len(relevant) + 1 if missing else max(rank for rank, flag in enumerate(relevant, 1) if flag)


@oracle("rankingloss", of="flags", few=[{}], many=LEVELS, baseline=lambda n, r, k: 1 / 2)
def ranking_loss(relevant, missing):
    if all(relevant):
        return 1.0 if missing and not relevant else None
    everyone = [*relevant, *[True] * missing]
    wrong = [not one for one, other in itertools.combinations(everyone, 2) if one != other]
    return sum(wrong) / len(wrong)


@oracle("lrap", few=[{}], many=LEVELS, baseline=lambda n, r, k: precisions(n, r, n) / r)
def label_ranking_precision(query, *, ties, relevance_level=1):
    judged = flags(query, relevance_level)
    if ties != "grouped":
        return of_flags(average_over_labels)(query, ties=ties, relevance_level=relevance_level)
    everywhere = sum(flag for _, flag in judged.listed) + len(judged.missing)
    at = [score for score, flag in judged.listed if flag]
    shares = [sum(x >= s for x in at) / sum(x >= s for x, _ in judged.listed) for s in at]
    return math.fsum(shares) / everywhere if everywhere else None


def average_over_labels(relevant, missing):
    ranks = [rank for rank, flag in enumerate(relevant, 1) if flag]
    return math.fsum(sum(r <= rank for r in ranks) / rank for rank in ranks) / (len(ranks) + missing)


# ---- the curve of expected hits by rank


def curve_of(query, ties, level):
    """(rank, hits) at each rank, and the number of relevant candidates."""
    judged = flags(query, level)
    found = orders(judged, ties)
    total = sum(weight for _, weight in found)
    hits = ((k, sum(sum(order[:k]) * weight for order, weight in found)) for k in range(1, len(judged.listed) + 1))
    points = [(rank, Fraction(hit, total)) for rank, hit in hits]
    return points, sum(flag for _, flag in judged.listed) + len(judged.missing)


def whole_hits(recall, everywhere, rounding):
    if rounding == "up":
        return int(recall * everywhere + 0.9)
    exact = Fraction(recall * everywhere)  # the product is that of floating point
    return math.floor(exact + Fraction(1, 2))


@oracle(
    "iprec",
    few=[{}, {"recall": 0.8}],
    many=LEVELS
    + [{"recall": r, "rounding": how} for r in (0, 0.1, 0.25, 0.3, 0.4, 0.7, 1) for how in ("nearest", "up")],
    baseline=lambda n, r, k: r / n,
    others={"recall": [0, 0.1, 1]},
)
def interpolated_precision(query, *, ties, relevance_level=1, recall=0.5, rounding="nearest"):
    points, everywhere = curve_of(query, ties, relevance_level)
    if not everywhere:
        return None
    wanted = whole_hits(recall, everywhere, rounding)
    return float(max((hits / rank for rank, hits in points if hits >= wanted), default=0))


@oracle(
    "elevenpoint",
    few=[{}],
    many=[*LEVELS, {"rounding": "up"}, {"rounding": "up", "relevance_level": 2}, {"points": (0.2, 0.5, 0.8)}],
    baseline=lambda n, r, k: r / n,
    others={"rounding": ["up"], "points": [(0.5,), (0.25, 0.75)]},
)
def eleven_points(query, *, ties, relevance_level=1, rounding="nearest", points=None):
    recalls = points or [float(f"{tenths / 10:.1f}") for tenths in range(11)]
    given = {"ties": ties, "relevance_level": relevance_level, "rounding": rounding}
    values = [interpolated_precision(query, recall=recall, **given) for recall in recalls]
    return None if None in values else math.fsum(values) / len(recalls)


@oracle(
    "recallatprecision",
    few=WHOLE_OR_CUT,
    many=[
        *LEVELS_CUT,
        *({"min_precision": p, "top_k": k} for p in (0.1, 0.3, 1 / 3, 0.6, 2 / 3, 1) for k in (None, 1, 2, 4)),
    ],
    baseline=lambda n, r, k: k / n if r / n >= 0.5 else 0,
    others={"min_precision": [0.25, 1]},
)
def recall_at_precision(query, *, ties, relevance_level=1, top_k=None, min_precision=0.5):
    points, everywhere = curve_of(query, ties, relevance_level)
    if not everywhere:
        return None
    enough = [hits for rank, hits in points[:top_k] if float(hits / rank) >= min_precision]
    return float(max(enough, default=0) / everywhere)


# ---- pairs of grades


@oracle(
    "opa",
    few=[{}],
    many=[
        {"empty_target_action": "skip"},
        {"pairs": "retrieved"},
        *({"gain": gain} for gain in ("linear", "exponential", squared)),
        {"average": "pair"},
        {"average": "pair", "gain": "linear", "pairs": "retrieved"},
    ],
    baseline=lambda n, r, k: 1 / 2,
    others={"average": ["pair"], "pairs": ["retrieved"]},
)
def ordered_pairs(query, *, ties, gain=None, pairs="all"):
    listed = [(score, max(grade, 0)) for score, grade in query.listed]
    everyone = listed + [(-math.inf, grade) for grade in query.missing if grade > 0 and pairs == "all"]
    worth = {"expected": 0.5, "optimistic": 1, "pessimistic": 0}[ties]
    right, whole = [], []
    for one, other in itertools.combinations(everyone, 2):
        if one[1] != other[1]:
            weight = 1 if gain is None else gain_of(max(one[1], other[1]), gain)
            whole.append(weight)
            is_right = (one[0] > other[0]) == (one[1] > other[1])
            right.append(weight * (worth if one[0] == other[0] else is_right))
    if not listed:
        return 0.0 if everyone else None
    return math.fsum(right) / math.fsum(whole) if any(whole) else None


PAIRED = [*LEVELS, {"top_k": 1}, {"top_k": 3, "relevance_level": 2}, {"top_k": 10}]


def of_pairs(order, missing, top_k, most):
    """The share of pairs in the right order, of the first ``most`` relevant and the first k irrelevant candidates."""
    k = top_k or max(1, sum(not flag for flag in order))
    counted = [place for place, flag in enumerate(order) if flag][:most]
    # irrelevant candidates that the list lacks stand at its end
    others = [*(place for place, flag in enumerate(order) if not flag), *[len(order)] * k][:k]
    everywhere = sum(order) + missing
    return sum(one < other for one in counted for other in others) / (k * min(most or everywhere, everywhere))


def of_random_pairs(n, r, k, most):
    """n of the others precede the j-th relevant candidate, in random order."""
    total, m = 0.0, n - r
    for j in range(1, min(r, most) + 1):
        chance = math.prod((r - i) / (n - i) for i in range(j))  # of none before it
        for ahead in range(min(k, m + 1)):
            total += chance * (k - ahead)
            # one more of the others before it: j - 1 + ahead candidates and this one
            chance *= (j + ahead) / (ahead + 1) * (m - ahead) / max(1, n - j - ahead)
    return total / (k * min(most, r))


@oracle(
    "partialauc",
    few=[{}, {"top_k": 2}],
    many=PAIRED,
    of="flags",
    baseline=lambda n, r, k: sum(max(0, k - ahead) for ahead in range(n - r + 1)) / (n - r + 1) / k,
)
def partial_auc(order, missing, top_k=None):
    return of_pairs(order, missing, top_k, None)


@oracle("pap", few=[{}, {"top_k": 2}], many=PAIRED, of="flags", baseline=lambda n, r, k: of_random_pairs(n, r, k, k))
def partial_auc_of_first(order, missing, top_k=None):
    return of_pairs(order, missing, top_k, top_k)
