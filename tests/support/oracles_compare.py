"""Two rankings compared, from the definitions: over all pairs of candidates, and rank by rank."""

import functools
import itertools
import math

from tests.support.oracles import oracle

# Candidates behind the list are candidates to these measures, also where a layout means padding.
compared = functools.partial(oracle, baseline=None, empty="skip", counts_irrelevant=True)
NOT_SKIPPED = {"empty_target_action": "neg"}

# (place, grade) of every candidate: the smaller place is the better, equal places are a tie.
Candidates = list[tuple[float, float]]


def settled(query, ties):
    """Candidates as a tie policy orders them; candidates not retrieved share the last place."""
    best_first = {"expected": 0, "optimistic": -1, "pessimistic": 1}[ties]
    listed = sorted(query.listed, key=lambda x: (-x[0], best_first * x[1]))
    if ties == "expected":
        places = [float(sum(other > score for other, _ in listed)) for score, _ in listed]
    else:
        places = [float(place) for place in range(len(listed))]
    found = [(place, grade) for place, (_, grade) in zip(places, listed)]
    return found + [(math.inf, grade) for grade in query.missing]


def sign(one, other):
    return (one > other) - (one < other)


def signs(candidates):
    """For all pairs, which is the better one in the first ranking and in the other: 1, 0 or -1 each."""
    return [(sign(y[0], x[0]), sign(x[1], y[1])) for x, y in itertools.combinations(candidates, 2)]


@compared(
    "kendalltau",
    few=[{}, {"variant": "a"}],
    many=[{"variant": "c"}, {"variant": "gamma"}, NOT_SKIPPED],
    others={"variant": ["a", "b"]},
)
def kendall_tau(query, *, ties, variant="b"):
    candidates = settled(query, ties)
    pairs = signs(candidates)
    net = sum(a * b for a, b in pairs)
    if variant == "a":
        return net / len(pairs) if pairs else None
    if variant == "gamma":
        ordered = sum(abs(a * b) for a, b in pairs)
        return net / ordered if ordered else None
    one, other = sum(abs(a) for a, _ in pairs), sum(abs(b) for _, b in pairs)
    if not one or not other:
        return None
    if variant == "b":
        return net / math.sqrt(one * other)
    values = min(len({place for place, _ in candidates}), len({grade for _, grade in candidates}))
    return 2 * net / (len(candidates) ** 2 * (values - 1) / values)


@compared(
    "kendalldistance",
    few=[{}],
    many=[{"normalized": True}, {"penalty": 0.25}, {"penalty": 0, "normalized": True}, NOT_SKIPPED],
    others={"normalized": [True], "penalty": [0.25, 0]},
)
def kendall_distance(query, *, ties, normalized=False, penalty=0.5):
    pairs = signs(settled(query, ties))
    if not pairs:
        return None
    distance = sum(a * b < 0 for a, b in pairs) + penalty * sum((a == 0) != (b == 0) for a, b in pairs)
    return distance / len(pairs) if normalized else distance


@compared(
    "weightedtau",
    few=[{}],
    many=[{"weigh_by": "preds"}, {"weigh_by": "target"}, NOT_SKIPPED],
    others={"weigh_by": ["preds", "target"]},
)
def weighted_tau(query, *, ties, weigh_by="both"):
    candidates = settled(query, ties)
    pairs = signs(candidates)
    if all(a == 0 for a, _ in pairs) or all(b == 0 for _, b in pairs):
        return None
    sorting = {"preds": lambda x: (x[0], -x[1]), "target": lambda x: (-x[1], x[0])}
    values = []
    for by in sorting if weigh_by == "both" else [weigh_by]:
        ordered = sorted(candidates, key=sorting[by])
        weights = [1 / i + 1 / j for i, j in itertools.combinations(range(1, len(ordered) + 1), 2)]
        weighted = list(zip(weights, signs(ordered)))
        norms = math.fsum(w * a * a for w, (a, _) in weighted) * math.fsum(w * b * b for w, (_, b) in weighted)
        values.append(math.fsum(w * a * b for w, (a, b) in weighted) / math.sqrt(norms))
    return math.fsum(values) / len(values)


def all_orders(candidates):
    """The grades in every order that ties of the first ranking leave open."""
    places = sorted({place for place, _ in candidates})
    blocks = ([grade for place, grade in candidates if place == this] for this in places)
    found = itertools.product(*map(itertools.permutations, blocks))
    return [tuple(itertools.chain.from_iterable(parts)) for parts in found]


@compared("aptau", few=[{}], many=[NOT_SKIPPED])
def ap_tau(query, *, ties):
    candidates = settled(query, ties)
    if len(candidates) < 2:
        return None
    values = []
    for grades in all_orders(candidates):
        # Two that are tied in the true ranking are in the right order in half of its orders.
        ranks = range(1, len(grades))
        right = [sum(0.5 * (1 + sign(above, grades[rank])) for above in grades[:rank]) / rank for rank in ranks]
        values.append(2 * math.fsum(right) / len(ranks) - 1)
    return math.fsum(values) / len(values)


def mean_ranks(values):
    return [sum(x < value for x in values) + (1 + sum(x == value for x in values)) / 2 for value in values]


@compared("spearman", few=[{}], many=[NOT_SKIPPED])
def spearman(query, *, ties):
    candidates = settled(query, ties)
    one, other = mean_ranks([place for place, _ in candidates]), mean_ranks([-grade for _, grade in candidates])
    middle = (len(candidates) + 1) / 2
    spread = math.fsum((x - middle) ** 2 for x in one) * math.fsum((x - middle) ** 2 for x in other)
    if not spread:
        return None
    return math.fsum((x - middle) * (y - middle) for x, y in zip(one, other)) / math.sqrt(spread)


# ---- what lists have in common: how much of each candidate is in a list down to a depth ----------


def shares(values, variant):
    """For each of some candidates, by depth, how much of it a list has: the smaller value is the better."""
    found = {}
    for name, value in values.items():
        above, tied = sum(x < value for x in values.values()), sum(x == value for x in values.values())
        if variant == "w":
            found[name] = lambda depth, above=above: float(depth > above)
        else:
            found[name] = lambda depth, above=above, tied=tied: min(max(depth - above, 0), tied) / tied
    return found


def two_values(query, ties):
    """The retrieved candidates by their places, and all candidates by their grades."""
    candidates = dict(enumerate(settled(query, ties)))
    retrieved = {name: place for name, (place, _) in candidates.items() if place < math.inf}
    return retrieved, {name: -grade for name, (_, grade) in candidates.items()}


def two_lists(query, ties, variant="a"):
    return [shares(values, variant) for values in two_values(query, ties)]


@compared("overlap", few=[{"top_k": 3}, {}], many=[{"top_k": 1}, {"top_k": 2}, {"top_k": 10}, NOT_SKIPPED])
def overlap(query, *, ties, top_k=None):
    one, other = two_lists(query, ties)
    if not other:
        return None
    depth = len(other) if top_k is None else top_k
    return math.fsum(one[name](depth) * other[name](depth) for name in one) / depth


@compared("lip", few=[{"top_k": 2}, {}], many=[{"top_k": 1}, {"top_k": 3}, {"top_k": 10}, NOT_SKIPPED])
def least_item_promoted(query, *, ties, top_k=None):
    candidates = settled(query, ties)
    if not candidates:
        return None
    retrieved = [one for one in candidates if one[0] < math.inf]
    k = len(retrieved) if top_k is None else top_k
    values = []
    for order in all_orders(retrieved):
        ranks = [1 + sum(grade > mine for _, grade in candidates) for mine in order[:k]]
        values.append(max([k, *ranks]) - k)
    return math.fsum(values) / len(values)


@compared(
    "rbo",
    few=[{}, {"variant": "b", "p": 0.6}, {"variant": "w", "p": 0.8}],
    many=[
        {"p": 0.3},
        {"variant": "b"},
        {"variant": "w"},
        *({"top_k": 3, "variant": variant} for variant in "abw"),
        {"top_k": 20, "p": 0.8},
        NOT_SKIPPED,
    ],
    others={"variant": ["a", "b"], "p": [0.5, 0.25]},
)
def rank_biased_overlap(query, *, ties, p=0.9, variant="a", top_k=None):
    short, long = two_lists(query, ties, variant)
    if not long:
        return None
    if top_k is None:
        return extrapolated(short, long, p, variant)
    weights = [p**depth for depth in range(top_k)]
    agreed = [weight * common(short, long, depth, variant) for depth, weight in enumerate(weights, 1)]
    return math.fsum(agreed) / math.fsum(weights)


def at_depth(short, long, depth):
    """How much of each candidate two lists have down to a depth, and what both have."""
    one, other = ({name: share(depth) for name, share in shares_.items()} for shares_ in (short, long))
    return one, other, math.fsum(one[name] * other[name] for name in one.keys() & other.keys())


def common(short, long, depth, variant):
    """The agreement of two lists at a depth. A list that has ended counts as if it went on with other candidates."""
    one, other, both = at_depth(short, long, depth)
    behind = [max(0, depth - len(each)) for each in (one, other)]
    sizes = [math.fsum(each.values()) + more for each, more in zip((one, other), behind)]
    norms = [math.fsum(x * x for x in each.values()) + more for each, more in zip((one, other), behind)]
    return both / {"w": sum(sizes) / 2, "a": depth, "b": math.sqrt(norms[0] * norms[1])}[variant]


def extrapolated(short, long, p, variant):
    """RBO_ext as Corsi and Urbano have it, of the candidates of two lists down to each depth."""
    if not short:
        return 0.0
    value, agreement, at_end = 0.0, 0.0, 0.0
    for depth in range(1, len(long) + 1):
        one, other, both = at_depth(short, long, depth)
        sizes = [math.fsum(each.values()) for each in (one, other)]
        norms = [math.fsum(x * x for x in each.values()) for each in (one, other)]
        if depth > len(short):  # the shorter list goes on with candidates of which nothing is known
            sizes[0] = norms[0] = depth
            open_ = [share for name, share in other.items() if name not in short and share > 0]
            both += (depth - len(short)) * at_end * math.fsum(open_) / len(open_)
        agreement = both / {"w": sum(sizes) / 2, "a": depth, "b": math.sqrt(norms[0] * norms[1])}[variant]
        if depth == len(short):
            at_end = agreement
        value += (1 - p) * p ** (depth - 1) * agreement
    return value + agreement * p ** len(long)


def list_weights(ranks, p):
    """The share of attention of each candidate; those with one rank share it evenly."""
    weights = {}
    for name, rank in ranks.items():
        above, tied = sum(x < rank for x in ranks.values()), sum(x == rank for x in ranks.values())
        weights[name] = math.fsum((1 - p) * p**place for place in range(above, above + tied)) / tied
    return weights


def two_weights(query, ties, p):
    return [list_weights(values, p) for values in two_values(query, ties)]


@compared("rba", few=[{}, {"p": 0.6}], many=[{"p": 0.3}, NOT_SKIPPED], others={"p": [0.5, 0.25]})
def rank_biased_alignment(query, *, ties, p=0.95):
    one, other = two_weights(query, ties, p)
    return math.fsum(math.sqrt(one[name] * other[name]) for name in one) if other else None


@compared("rbr", few=[{"top_k": 2}, {"p": 0.6}], many=[{}, {"top_k": 10, "p": 0.3}, NOT_SKIPPED], others={"p": [0.5]})
def rank_biased_recall(query, *, ties, top_k=None, p=0.95):
    one, _ = two_lists(query, ties)
    _, other = two_weights(query, ties, p)
    return math.fsum(one[name](top_k or len(one)) * other[name] for name in one) if other else None


def fall(old, new):
    """By how much a document fell: MTEB's score of two ranks."""
    return new / old - 1 if old >= new else 1 - old / new


@compared("pmrr", few=[{}], many=[NOT_SKIPPED, {"aggregation": "sum"}])
def mean_fall(query, *, ties, aggregation="mean"):
    candidates = settled(query, ties)
    if not candidates:
        return None
    places = [place for place, _ in candidates if place < math.inf]
    values = []
    for place, grade in candidates:
        above, beside = sum(x < place for x in places), places.count(place)
        new = range(above + 1, above + beside + 1) if place < math.inf else [len(places) + 1]
        before, tied = sum(x > grade for _, x in candidates), sum(x == grade for _, x in candidates)
        old = range(before + 1, before + tied + 1)
        values.append(math.fsum(fall(o, n) for o in old for n in new) / len(old) / len(new))
    return math.fsum(values) / len(values)
