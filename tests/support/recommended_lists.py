"""Measures of recommended lists and their definitions in plain Python, on ragged lists."""

import itertools
import math
import random
from collections import Counter

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases

ITEMS, USERS = 13, 40
GENERATOR = torch.Generator().manual_seed(5)
COUNTS = torch.randint(0, 12, (ITEMS,), generator=GENERATOR) * (torch.arange(ITEMS) % 4 > 0)
VECTORS = torch.randn(ITEMS, 5, generator=GENERATOR)
VECTORS[3] = 0
KINDS = torch.randint(-1, 4, (ITEMS,), generator=GENERATOR)
TAGS = torch.rand(ITEMS, 6, generator=GENERATOR) < 0.4
TAIL = (COUNTS > 0) & (COUNTS < 6)
BASELINE = torch.tensor([4, 9, 1, 0, 12])


def hyperbolic(rank):
    return 3 / (2 * rank + 1)


def log2(rank):
    return 1 / math.log2(1 + rank)


# ---- from the definitions, in plain Python ---------------------------------------------------------------------------


def mean(values):
    values = [value for value in values if value is not None]
    return math.fsum(values) / len(values) if values else math.nan


def over_list(value):
    return lambda lists, wanted: mean([mean([value(i) for i in found]) if found else None for found in lists])


def surprise(i):
    return -math.log2(max(1, int(COUNTS[i])) / 20)


def cosine_distance(i, j):
    a, b = VECTORS[i].double().tolist(), VECTORS[j].double().tolist()
    norms = math.hypot(*a) * math.hypot(*b)
    return 1 - (math.fsum(x * y for x, y in zip(a, b)) / norms if norms else 0)


def pairwise(distance):
    def value(found):
        pairs = list(itertools.combinations(found, 2))
        return mean([distance(i, j) for i, j in pairs]) if pairs else None

    return lambda lists, wanted: mean([value(found) for found in lists])


def hamming(i, j):
    return sum(a != b for a, b in zip(TAGS[i].tolist(), TAGS[j].tolist())) / 6


def serendipity(lists, wanted):
    levels = sorted({int(n) for n in COUNTS if n}, reverse=True)
    by_popularity = {i: levels.index(int(n)) + 1 for i, n in enumerate(COUNTS) if n}

    def value(found, relevant):
        gains = []
        for rank, i in enumerate(found, 1):
            popular = (ITEMS + 1 - by_popularity[i]) / ITEMS if i in by_popularity else 0
            gains.append(max((ITEMS + 1 - rank) / ITEMS - popular, 0) * (i in relevant))
        return mean(gains) if found else None

    return mean([value(found, relevant) for found, relevant in zip(lists, wanted)])


def personalization(lists, wanted):
    lists = [set(found) for found in lists if found]
    return mean([1 - len(a & b) / math.sqrt(len(a) * len(b)) for a, b in itertools.combinations(lists, 2)])


def lift(lists, profiles):
    def popularity(items):
        return mean([float(COUNTS[i]) for i in items]) if items else 0.0

    pairs = [(popularity(found), popularity(profile)) for found, profile in zip(lists, profiles) if found]
    r, p = (math.fsum(column) for column in zip(*[pair for pair in pairs if pair[1] > 0]))
    return (r - p) / p


def exposure(lists, discount=lambda rank: 1):
    found = Counter()
    for ids in lists:
        for rank, i in enumerate(ids, 1):
            found[i] += discount(rank)
    return [found[i] for i in range(ITEMS)]


def entropy(shares, base):
    whole = math.fsum(shares)
    return -math.fsum(x / whole * math.log(x / whole, base) for x in shares if x)


def gini(shares):
    """By its other definition: half the mean difference of two items over the mean."""
    differences = math.fsum(abs(x - y) for x in shares for y in shares)
    return differences / (2 * len(shares) * math.fsum(shares))


def measured(cls, value, **catalogue):
    """A measure as a function of k, and its definition."""
    return lambda k: cls(k, **catalogue), value


ALL, KNOWN = {"num_items": ITEMS}, {"interactions": COUNTS}
SURPRISING, OF_3 = {**KNOWN, "num_users": 20}, {**ALL, "log_base": 3}
METRICS = {
    "coverage": measured(tr.Coverage, lambda lists, _: len(set().union(*lists)) / ITEMS, **ALL),
    "novelty": measured(tr.Novelty, over_list(surprise), **SURPRISING),
    "novelty, 0 to 1": measured(
        tr.Novelty, over_list(lambda i: surprise(i) / math.log2(20)), **SURPRISING, normalize=True
    ),
    "popularity": measured(tr.Popularity, over_list(lambda i: float(COUNTS[i])), **KNOWN),
    "popularity, 0 to 1": measured(
        tr.Popularity, over_list(lambda i: float(COUNTS[i]) / float(COUNTS.sum())), **KNOWN, normalize=True
    ),
    "popularitylift": measured(tr.PopularityLift, lift, **KNOWN),
    "aplt": measured(tr.APLT, over_list(lambda i: float(TAIL[i])), long_tail=TAIL),
    "tailcoverage": measured(
        tr.TailCoverage,
        lambda lists, _: sum(map(TAIL.tolist().__getitem__, set().union(*lists))) / int(TAIL.sum()),
        long_tail=TAIL,
    ),
    "diversity": measured(tr.IntraListDiversity, pairwise(cosine_distance), embeddings=VECTORS),
    "diversity of kinds": measured(
        tr.IntraListDiversity, pairwise(lambda i, j: float(KINDS[i] != KINDS[j])), categories=KINDS
    ),
    "diversity of tags": measured(tr.IntraListDiversity, pairwise(hamming), categories=TAGS),
    "serendipity": measured(tr.Serendipity, serendipity, **KNOWN),
    "personalization": measured(tr.Personalization, personalization, **ALL),
    "entropy": measured(tr.Entropy, lambda lists, _: entropy(exposure(lists), 2), **ALL),
    "entropy(log_base=3)": measured(tr.Entropy, lambda lists, _: entropy(exposure(lists), 3), **OF_3),
    "entropy(normalize=True,discount=log2)": measured(
        tr.Entropy, lambda lists, _: entropy(exposure(lists, log2), ITEMS), **ALL, normalize=True, discount="log2"
    ),
    "entropy(normalize=distinct,log_base=3)": measured(
        tr.Entropy,
        lambda lists, _: entropy(exposure(lists), 3) / len(set().union(*lists)),
        **OF_3,
        normalize="distinct",
    ),
    "gini": measured(tr.Gini, lambda lists, _: gini(exposure(lists)), **ALL),
} | {
    f"gini(discount={of})": measured(tr.Gini, lambda lists, _, at=at: gini(exposure(lists, at)), **ALL, discount=of)
    for of, at in (
        (hyperbolic, hyperbolic),
        ("geometric", lambda rank: 0.85 ** (rank - 1)),
        ("clipped", lambda rank: 1 / math.log2(max(rank, 2))),
        ("reciprocal", lambda rank: 1 / rank),
    )
}
every_metric = cases("name", METRICS)


def of(name, k=None):
    return METRICS[name][0](k)


def expected(name, lists, wanted, k=None):
    return METRICS[name][1]([found[:k] for found in lists], wanted)


def draw(seed, users=USERS):
    """Ragged lists and the relevant items of each user, in plain Python."""
    rng = random.Random(seed)
    lists = [rng.sample(range(ITEMS), rng.choice([0, 1, 2, 5, 8, 8])) for _ in range(users)]
    return lists, [rng.sample(range(ITEMS), rng.choice([0, 1, 3])) for _ in range(users)]


def ids_of(lists, rng=None):
    """Ids of ragged lists, with padding anywhere between them: int64 [list, position]."""
    width = 2 + max([0, *map(len, lists)])
    rows = []
    for found in lists:
        row = [-1] * width
        for place, i in zip(sorted((rng or random.Random(0)).sample(range(width), len(found))), found):
            row[place] = i
        rows.append(row)
    return torch.tensor(rows, dtype=torch.int64).reshape(len(lists), width)


def tensors(lists, wanted, rng=None):
    """Ids of ragged lists, and relevant ids."""
    return ids_of(lists, rng), [torch.tensor(relevant, dtype=torch.int64) for relevant in wanted]


def total(metric):
    """The result before it is rounded to float32."""
    return metric.result(metric.sums).item()


def close(got, want):
    assert got == pytest.approx(want, rel=1e-12, abs=1e-14, nan_ok=True)
