"""Random queries, every layout in which they can be written down, and the metrics to try on them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

import torchrank as tr
from tests.support.oracles import ORACLES
from tests.support.tie_orders import Query

INF = math.inf
NAN = math.nan

# Scores of excluded candidates: not retrieved in the first place, or best of all.
ANY_SCORE = (-INF, INF, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)

# ---- metrics -------------------------------------------------------------------------------------


class Config(NamedTuple):
    """A metric to try."""

    name: str
    parameters: tuple[tuple[str, Any], ...] = ()

    def metric(self, **more):
        return tr.RankingMetric.registry[self.name](**dict(self.parameters), **more)

    @property
    def for_oracle(self):
        return dict(self.parameters)

    def __str__(self):
        return self.metric().label


@cache
def scoring(config):
    """A metric that only scores, so that one serves all tests."""
    return config.metric()


def config(name, **parameters):
    return Config(name, tuple(parameters.items()))


POSITIONAL = ("mr", "mrr", "hitrate")


def few_configs():
    """Every measure once or twice under every tie policy."""
    return of_families("few")


def of_families(which):
    """The configurations that the oracles of measures name, under every tie policy that a measure knows."""
    return [
        config(name, **parameters, ties=ties)
        for name, oracle in ORACLES.items()
        for parameters in getattr(oracle, which)
        for ties in tr.RankingMetric.registry[name].policies
    ]


def many_configs():
    """Every measure x parameter x tie policy."""
    found = few_configs() + of_families("many")
    for name in ORACLES:
        for action in ("neg", "pos", "skip", "listed"):
            found.append(config(name, empty_target_action=action))
        cls = tr.RankingMetric.registry[name]
        for unjudged in cls.takes_unjudged_for:
            if unjudged != "irrelevant":
                found += [config(name, unjudged=unjudged, ties=ties) for ties in cls.policies]
    return list(dict.fromkeys(found))


#: Values to try of every parameter, for labels; of a parameter that has others for some measure, "measure.parameter".
OTHERS = {
    "ties": ["optimistic", "pessimistic", "realistic"],
    "empty_target_action": ["neg", "pos", "skip", "listed", "error"],
    "aggregation": ["geometric", "harmonic", "sum", "median", "midpoint", "p5", "min", "max", "none"],
    "relevance_level": [2, 0.5],
    "beta": [0.75, 0.5],
    "normalize": ["min", "length", "k", "retrieved"],
    "unjudged": ["condensed", "lower", "upper"],
    "adaptive_k": [True],
    "max_fpr": [0.25, 0.5],
    "gain": ["exponential", torch.sqrt, {0: 1, 1: 4.5}],
    "discount": ["clipped", "reciprocal", torch.rsqrt],
    "log_base": [10, 2.5],
    "filtered": [True],
    "average": ["positive"],
    "whole": [True],
    "top_k": [1, 2, 100],
}
for name, oracle in ORACLES.items():
    for parameter, values in oracle.others.items():
        OTHERS.setdefault(parameter, values)
        OTHERS[f"{name}.{parameter}"] = values

# ---- queries -------------------------------------------------------------------------------------

GRADES = {"graded": (-2, -1, 0, 0, 0, 1, 1, 2, 3), "float": (-0.5, 0, 0, 0.25, 0.5, 1, 1.5, 2), "binary": (0, 0, 1)}


def random_query(rng, grades, longest=5, ties=True):
    length = rng.randint(0, longest)
    levels = rng.choice((1, 2, 3, 8))
    scores = [float(rng.randint(-levels, levels)) for _ in range(length)]
    if rng.random() < 0.1:
        scores = [scores[0]] * length if length else []
    if not ties:
        scores = [float(x) for x in rng.sample(range(-8, 9), length)]
    missing = rng.choice((0, 0, 0, 1, 2))
    listed = tuple((score, rng.choice(grades)) for score in scores)
    return Query(listed, tuple(rng.choice(grades) for _ in range(missing)))


def single(query, rng):
    """At most one relevant candidate."""
    cells = [(score, 0) for score, _ in query.listed]
    where = rng.randint(-2, len(cells))
    if 0 <= where < len(cells):
        cells[where] = (cells[where][0], 1)
    return Query(tuple(cells), (1,) if where == len(cells) else ())


def with_positives(query, positives, rng):
    """Exactly so many relevant candidates, at most one of them missing."""
    missing = rng.randint(0, 1)
    listed = [(float(rng.randint(-2, 2)), 1) for _ in range(positives - missing)]
    return Query((*listed, *((score, 0) for score, _ in query.listed[:4])), (1,) * missing)


@cache
def population(kind, size):
    """Seeded random queries of a kind, with the corner cases in front."""
    rng = random.Random(kind)
    distinct = kind.endswith("distinct")
    grades = GRADES.get(kind.split()[0], GRADES["binary"])
    corners = [Query(), Query(((0.0, 0),)), Query(((-1.0, 1),)), Query((), (1,)), Query((), (1, 1, 0))]
    corners += [Query(((0.0, 1), (-1.0, 1))), Query(((0.0, 0), (1.0, 0))), Query(((1.0, 0),), (1,))]
    queries = [random_query(rng, grades, ties=not distinct) for _ in range(size)]
    if kind.startswith("single"):
        return tuple(single(query, rng) for query in queries)
    if kind.startswith("positives"):
        return tuple(with_positives(query, int(kind.split()[1]), rng) for query in queries)
    if kind.startswith("complete"):
        return tuple(Query(query.listed) for query in corners + queries)
    if kind.startswith("long"):
        # Many positives are ranked in another way than a few. With few ties the orders can still be written out.
        scores = [float(x) for x in (*range(37), 4, 21, 36)]
        long = tuple((score, int(rng.random() < 0.8)) for score in scores)
        return (*corners, *queries, Query(long), Query(tuple((-score, 1) for score, _ in long), (1, 1)))
    return tuple(corners + queries)


@st.composite
def queries(draw, grades=GRADES["graded"], min_size=1, max_size=5, longest=5):
    """Lists of small queries, for hypothesis to shrink."""
    grade = st.sampled_from(sorted(set(grades), key=abs))
    entry = st.tuples(st.integers(-2, 2).map(float), grade)
    query = st.builds(Query, st.lists(entry, max_size=longest).map(tuple), st.lists(grade, max_size=2).map(tuple))
    return draw(st.lists(query, min_size=min_size, max_size=max_size))


# ---- layouts -------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """The arguments of ``update`` or ``score`` for a list of queries."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = {}


class Layout(NamedTuple):
    #: the kind of queries that it can express, see :func:`population`
    kind: str
    make: Callable[[list[Query], random.Random], Batch]


LAYOUTS = {}


def is_read_never(layout):
    """Whether batches of a layout are ranked on an accelerator without a wait."""
    return layout.startswith(("dense", "labels")) or layout in ("ids_and_padded_ids", "ids_and_label", "ids_masked")


def says_all(layout):
    """Whether a layout has every judgment, also of the irrelevant."""
    return layout.startswith(("dense", "flat", "ranking_from_scores", "ranking_from_flat"))


#: Layouts whose padding says that something was judged irrelevant and not retrieved.
PADDED = {"dense_padded", "dense_bool_grades", "dense_shared_tie_break", "flat", "flat_tie_break", "ranking_from_flat"}
#: Measures to which that makes a difference.
COUNTING_IRRELEVANT = {name for name, oracle in ORACLES.items() if oracle.counts_irrelevant}


def suits(config, layout):
    """Whether a layout has all that a measure needs."""
    if config.name in COUNTING_IRRELEVANT and layout in PADDED:
        return False
    if says_all(layout):
        return True
    return is_relevant_enough(config) if isinstance(config, Config) else config.required.relevant


@cache
def is_relevant_enough(config):
    """Whether a metric needs no candidates but the relevant ones."""
    return scoring(config).required.relevant


def layout(kind):
    def register(make):
        LAYOUTS[make.__name__] = Layout(kind, make)
        return make

    return register


def batch(name, size):
    """Queries of the kind that a layout takes, in that layout."""
    # Tensors are made once; a ranking remembers what was derived from it.
    found = (made_anew if name.startswith("ranking") else made_once)(name, size)
    LENT.extend((tensor, tensor._version) for tensor in tensors_in(found[1]))
    return found


#: Tensors that the test which runs now has got from :func:`batch`, and how often each was written until then.
LENT = []


def take_back():
    """Fail if a tensor of :func:`batch` was written; later tests get new ones."""
    written = [tuple(tensor.shape) for tensor, version in LENT if tensor._version != version]
    LENT.clear()
    if written:
        made_once.cache_clear()
    assert not written, f"arguments of these shapes were written in place: {written}"


def made_anew(name, size):
    kind, make = LAYOUTS[name]
    found = population(kind, size)
    return found, make(list(found), random.Random(name))


made_once = cache(made_anew)


class Cell(NamedTuple):
    """A column of a query; padding is None."""

    score: float
    grade: float

    @property
    def retrieved(self):
        return self.score > -INF


def cells(queries, rng, extra=2):
    """The queries as the rows of a rectangle, in shuffled columns; None = padding."""
    width = max((len(q.listed) + len(q.missing) for q in queries), default=0) + extra
    rows = []
    for query in queries:
        row = [*(Cell(*x) for x in query.listed), *(Cell(-INF, grade) for grade in query.missing)]
        row += [None] * (width - len(row))
        rng.shuffle(row)
        rows.append(row)
    return rows


def grid(rows, fill, dtype):
    values = [[fill(cell) for cell in row] for row in rows]
    return torch.tensor(values, dtype=dtype).reshape(len(rows), -1)


def scores_of(rows, padding, dtype=torch.float64):
    return grid(rows, lambda cell: padding() if cell is None else cell.score, dtype)


def grades_of(rows, padding=lambda: 0, dtype=torch.int64):
    return grid(rows, lambda cell: padding() if cell is None else cell.grade, dtype)


def mask_of(rows):
    return grid(rows, lambda cell: cell is not None, torch.bool)


def triples_of(rows, rng):
    """(query, item, grade) of all that is relevant and of some that is judged but not, shuffled."""
    found = [
        (query, item, cell.grade)
        for query, row in enumerate(rows)
        for item, cell in enumerate(row)
        if cell is not None and (cell.grade > 0 or rng.random() < 0.3)
    ]
    rng.shuffle(found)
    return found


def positives_of(rows):
    return [[item for item, cell in enumerate(row) if cell is not None and cell.grade >= 1] for row in rows]


def integers(values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


def columns(rows, number):
    """The columns of rows, as (query, item) or (query, item, grade)."""
    return tuple(map(integers, zip(*rows) if rows else [()] * number))


def excluded(rows, rng):
    """All padding, some of it twice, and some targets, which stay all the same; shuffled."""
    pairs = []
    for query, row in enumerate(rows):
        for item, cell in enumerate(row):
            if cell is None:
                pairs += [(query, item)] * rng.choice((1, 1, 2, 3))
            elif cell.grade > 0:
                pairs += [(query, item)] * rng.choice((0, 0, 1, 2))
    rng.shuffle(pairs)
    return columns(pairs, 2)


def coarse(scores):
    """Scores of which pairs of neighbours are made equal, which :func:`fine` tells apart again."""
    return (scores / 2).floor()


def fine(scores):
    return scores.nan_to_num(nan=7, neginf=-3, posinf=5)


# ...of scores and grades


@layout("graded")
def dense_masked(queries, rng):
    rows = cells(queries, rng)
    preds = scores_of(rows, lambda: rng.choice((NAN, INF, -INF, 99.0, 0.0)))
    return Batch((preds, grades_of(rows, lambda: rng.choice((-1, 0, 1, 3)))), {"mask": mask_of(rows)})


@layout("graded")
def dense_padded(queries, rng):
    rows = cells(queries, rng)
    return Batch((scores_of(rows, lambda: -INF, torch.float32), grades_of(rows, dtype=torch.int8)))


@layout("float")
def dense_float_grades(queries, rng):
    rows = cells(queries, rng)
    preds = scores_of(rows, lambda: rng.choice((NAN, 99.0)), torch.bfloat16)
    return Batch((preds, grades_of(rows, lambda: NAN, torch.float32)), {"mask": mask_of(rows)})


@layout("binary")
def dense_bool_grades(queries, rng):
    rows = cells(queries, rng)
    return Batch((scores_of(rows, lambda: -INF, torch.float16), grades_of(rows, dtype=torch.bool)))


@layout("graded")
def dense_strided(queries, rng):
    rows = cells(queries, rng)
    preds, target, mask = scores_of(rows, lambda: 1.0), grades_of(rows, dtype=torch.int16), mask_of(rows)
    preds = preds.repeat_interleave(2, dim=1)[:, ::2]
    return Batch((preds, target.t().contiguous().t()), {"mask": mask.t().contiguous().t()})


@layout("graded")
def dense_excluded(queries, rng):
    rows = cells(queries, rng)
    preds = scores_of(rows, lambda: rng.choice(ANY_SCORE))
    target = grades_of(rows, lambda: rng.choice((0, -1)))
    return Batch((preds, target), {"exclude": excluded(rows, rng)})


@layout("graded")
def dense_tie_break(queries, rng):
    rows = cells(queries, rng)
    preds = scores_of(rows, lambda: rng.choice((NAN, 0.0)))
    kwargs = {"mask": mask_of(rows), "tie_break": fine(preds).long()}
    return Batch((coarse(preds), grades_of(rows, lambda: 2)), kwargs)


@layout("graded distinct")
def dense_shared_tie_break(queries, rng):
    rows = [sorted(row, key=lambda cell: -INF if cell is None else cell.score) for row in cells(queries, rng)]
    columns = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(1))
    preds, target = scores_of(rows, lambda: -INF)[:, columns], grades_of(rows)[:, columns]
    return Batch((coarse(preds), target), {"tie_break": columns.double()})


# ...flat


def flat_rows(queries, rng, junk):
    """(index, score, grade, real) in random order; indices ascend with the queries, with gaps; none without a row."""
    rows = []
    for number, query in enumerate(queries):
        index = 3 * number - 5
        mine = [(index, score, grade, True) for score, grade in query.listed]
        mine += [(index, -INF, grade, True) for grade in query.missing]
        mine += [(index, *junk(), False) for _ in range(rng.randint(0 if mine else 1, 2))]
        rows += mine
    rng.shuffle(rows)
    return rows


@layout("graded")
def flat(queries, rng):
    index, score, grade, _ = zip(*flat_rows(queries, rng, lambda: (-INF, 0)))
    preds = torch.tensor(score, dtype=torch.float64)
    return Batch((preds, integers(grade)), {"indexes": integers(index)})


@layout("float")
def flat_masked(queries, rng):
    junk = lambda: (rng.choice((NAN, INF, 0.0)), rng.choice((NAN, 2.0, 0.0)))  # noqa: E731
    index, score, grade, real = zip(*flat_rows(queries, rng, junk))
    preds, target = torch.tensor(score, dtype=torch.float32), torch.tensor(grade, dtype=torch.float64)
    return Batch((preds, target), {"indexes": integers(index, torch.int32), "mask": torch.tensor(real)})


@layout("graded")
def flat_tie_break(queries, rng):
    index, score, grade, _ = zip(*flat_rows(queries, rng, lambda: (-INF, 0)))
    preds = torch.tensor(score, dtype=torch.float64)
    return Batch((coarse(preds), integers(grade)), {"indexes": integers(index), "tie_break": fine(preds)})


# ...over a catalogue


@layout("graded")
def catalogue_triples(queries, rng):
    rows = cells(queries, rng)
    query, item, grade = columns(triples_of(rows, rng), 3)
    return Batch((scores_of(rows, lambda: -INF), (query, item.int(), grade)))


@layout("graded")
def catalogue_triples_excluded(queries, rng):
    rows = cells(queries, rng)
    preds = scores_of(rows, lambda: rng.choice(ANY_SCORE))
    # Excluded pairs may have been judged as well, only not as relevant.
    others = [(q, i) for q, row in enumerate(rows) for i, cell in enumerate(row) if cell is None and rng.random() < 0.3]
    judged = [*triples_of(rows, rng), *((q, i, rng.choice((0, -1))) for q, i in others)]
    return Batch((preds, columns(judged, 3)), {"exclude": excluded(rows, rng)})


@layout("binary")
def catalogue_pairs(queries, rng):
    rows = cells(queries, rng)
    found = [(query, item) for query, items in enumerate(positives_of(rows)) for item in items]
    rng.shuffle(found)
    preds = scores_of(rows, lambda: rng.choice((NAN, INF, 0.0)), torch.bfloat16)
    return Batch((preds, columns(found, 2)), {"mask": mask_of(rows)})


@layout("binary")
def catalogue_lists(queries, rng):
    rows = cells(queries, rng)
    target = [integers(rng.sample(items, len(items))) for items in positives_of(rows)]
    return Batch((scores_of(rows, lambda: -INF, torch.float32), target))


@layout("binary")
def catalogue_tie_break(queries, rng):
    rows = cells(queries, rng)
    preds = scores_of(rows, lambda: rng.choice(ANY_SCORE))
    target = [integers(items) for items in positives_of(rows)]
    return Batch((coarse(preds), target), {"tie_break": fine(preds), "exclude": excluded(rows, rng)})


@layout("binary distinct")
def catalogue_shared_tie_break(queries, rng):
    rows = [sorted(row, key=lambda cell: -INF if cell is None else cell.score) for row in cells(queries, rng)]
    target = [integers(items) for items in positives_of(rows)]
    # The largest tie break of all belongs to junk, which is excluded.
    rows = [[*row, None] for row in rows]
    preds = scores_of(rows, lambda: 0.0)
    kwargs = {"tie_break": torch.arange(preds.shape[1]), "exclude": excluded(rows, rng)}
    return Batch((coarse(preds), target), kwargs)


@layout("long binary")
def catalogue_of_long_lists(queries, rng):
    return catalogue_lists(queries, rng)


@layout("single")
def labels(queries, rng):
    rows = cells(queries, rng)
    target = integers([items[0] if items else rng.choice((-1, -99, -101)) for items in positives_of(rows)])
    return Batch((scores_of(rows, lambda: -INF, torch.float32), target))


@layout("single")
def labels_excluded(queries, rng):
    rows = cells(queries, rng)
    target = integers([items[0] if items else -1 for items in positives_of(rows)])
    preds = scores_of(rows, lambda: rng.choice(ANY_SCORE))
    return Batch((preds, target), {"exclude": excluded(rows, rng)})


@layout("single")
def labels_tie_break(queries, rng):
    rows = cells(queries, rng)
    target = integers([items[0] if items else -1 for items in positives_of(rows)])
    preds = scores_of(rows, lambda: rng.choice((NAN, 1.0)))
    return Batch((coarse(preds), target), {"mask": mask_of(rows), "tie_break": fine(preds)})


# ...as ids already ranked


class Ids(NamedTuple):
    """Ranked ids of a query and the (id, grade) that are judged, retrieved or not."""

    ranked: list[int]
    judged: list[tuple[int, float]]


def ids_of(queries, rng):
    """Queries without ties, each candidate with an id of its own."""
    found = []
    for query in queries:
        names = rng.sample(range(2000) if rng.random() < 0.5 else range(10**12, 10**12 + 50), 12)
        order = sorted(query.listed, key=lambda x: -x[0])
        judged = [(name, grade) for name, (_, grade) in zip(names, order)]
        judged += list(zip(names[len(order) :], query.missing))
        found.append(Ids(names[: len(order)], judged))
    return found


def padded(rows, rng, anywhere):
    """Rows filled up with negatives, behind or anywhere."""
    width = max(map(len, rows), default=0) + 1
    result = []
    for row in rows:
        row = list(row)
        while len(row) < width:
            row.insert(rng.randint(0, len(row)) if anywhere else len(row), rng.choice((-1, -1, -7)))
        result.append(row)
    return torch.tensor(result, dtype=torch.int64)


def positive_ids(found):
    return [[name for name, grade in one.judged if grade >= 1] for one in found]


@layout("binary distinct")
def ids_and_padded_ids(queries, rng):
    found = ids_of(queries, rng)
    return Batch((padded([x.ranked for x in found], rng, True), padded(positive_ids(found), rng, True)))


@layout("binary distinct")
def ids_and_lists(queries, rng):
    found = ids_of(queries, rng)
    target = [integers(rng.sample(items, len(items))) for items in positive_ids(found)]
    return Batch((padded([x.ranked for x in found], rng, False), target))


@layout("binary distinct")
def ids_and_pairs(queries, rng):
    found = ids_of(queries, rng)
    pairs = [(query, item) for query, items in enumerate(positive_ids(found)) for item in items]
    rng.shuffle(pairs)
    return Batch((padded([x.ranked for x in found], rng, True), columns(pairs, 2)))


@layout("graded distinct")
def ids_and_triples(queries, rng):
    found = ids_of(queries, rng)
    judged = [(query, item, grade) for query, one in enumerate(found) for item, grade in one.judged]
    judged = [x for x in judged if x[2] > 0 or rng.random() < 0.4]
    rng.shuffle(judged)
    return Batch((padded([x.ranked for x in found], rng, False), columns(judged, 3)))


@layout("single distinct")
def ids_and_label(queries, rng):
    found = ids_of(queries, rng)
    target = integers([items[0] if items else -1 for items in positive_ids(found)])
    return Batch((padded([x.ranked for x in found], rng, True), target))


@layout("binary distinct")
def ids_masked(queries, rng):
    found = ids_of(queries, rng)
    positives = positive_ids(found)
    ids = padded([x.ranked for x in found], rng, True)
    mask = ids >= 0
    # Masked ids may be any, also relevant ones and those elsewhere in the list.
    for query, (one, items) in enumerate(zip(found, positives)):
        for place in (~mask[query]).nonzero().flatten().tolist():
            ids[query, place] = rng.choice([3, -1, *one.ranked, *items])
    return Batch((ids, padded(positives, rng, False)), {"mask": mask})


@layout("graded distinct")
def ids_excluded(queries, rng):
    found = ids_of(queries, rng)
    ranked, pairs, judged = [], [], []
    for query, one in enumerate(found):
        row = list(one.ranked)
        for junk in rng.sample(range(5000, 5100), rng.randint(0, 3)):
            row.insert(rng.randint(0, len(row)), junk)
            pairs += [(query, junk)] * rng.choice((1, 1, 2))
            if rng.random() < 0.3:
                judged.append((query, junk, rng.choice((0, -1))))
        pairs += [(query, item) for item, grade in one.judged if grade > 0 and rng.random() < 0.3]
        pairs += [(query, 7777)] * rng.randint(0, 1)  # not in the list anyway
        judged += [(query, item, grade) for item, grade in one.judged if grade > 0 or rng.random() < 0.3]
        ranked.append(row)
    rng.shuffle(pairs)
    return Batch((padded(ranked, rng, True), columns(judged, 3)), {"exclude": columns(pairs, 2)})


# ...as a Ranking


@layout("graded")
def ranking_from_scores(queries, rng):
    made = dense_masked(queries, rng)
    return Batch((tr.Ranking.from_scores(*made.args, **made.kwargs),))


@layout("graded")
def ranking_from_flat(queries, rng):
    made = flat_tie_break(queries, rng)
    return Batch((tr.Ranking.from_flat(*made.args, **made.kwargs, judged=True),))


@layout("binary distinct")
def ranking_from_ranks(queries, rng):
    rows = []
    for query in queries:
        order = sorted(query.listed, key=lambda x: -x[0])
        ranks = [float(rank) for rank, (_, grade) in enumerate(order, 1) if grade >= 1]
        ranks += [INF] * sum(grade >= 1 for grade in query.missing)
        rng.shuffle(ranks)
        rows.append(ranks)
    width = max(map(len, rows)) + 1
    ranks = torch.tensor([row + [rng.choice((0.0, -1.0))] * (width - len(row)) for row in rows], dtype=torch.float64)
    return Batch((tr.Ranking.from_ranks(ranks, integers([len(query.listed) for query in queries])),))


@layout("positives 2")
def ranking_from_negatives(queries, rng):
    pos = [[score for score, grade in q.listed if grade] + [-INF] * len(q.missing) for q in queries]
    return Batch((tr.Ranking.from_negatives(torch.tensor(pos), negatives_of(queries, rng)),))


def negatives_of(queries, rng):
    rows = [[score for score, grade in q.listed if not grade] for q in queries]
    width = max(map(len, rows))
    return torch.tensor([row + [-INF] * (width - len(row)) for row in rows])


@layout("complete")
def ranking_from_embeddings(queries, rng):
    # Against the unit vectors as items, a query embedding is the list of its scores.
    rows = cells(queries, rng)
    scores = scores_of(rows, lambda: float(rng.randint(-3, 3)), torch.float32)
    relevant = [integers(items) for items in positives_of(rows)]
    similarity = rng.choice(("dot", "cosine"))
    exclude = excluded(rows, rng)
    items = torch.eye(scores.shape[1])
    return Batch((tr.Ranking.from_embeddings(scores, items, relevant, exclude=exclude, similarity=similarity),))


@layout("graded distinct")
def ranking_from_run(queries, rng):
    # Pairs of neighbours get one score, so that the names of the documents decide.
    names = sorted(f"d{number}" for number in range(20))
    qrels = {}
    run = {}
    for number, query in enumerate(queries):
        order = sorted(query.listed)
        chosen = sorted(rng.sample(names, len(order)))
        spare = [name for name in names if name not in chosen]
        key = f"q{-number}"
        # Documents without a judgment are outside the pool: a grade of -2.
        qrels[key] = {name: grade for name, (_, grade) in zip(chosen, order) if grade > -2}
        qrels[key] |= dict(zip(spare, query.missing))
        scored = [(name, math.floor(score / 2)) for name, (score, _) in zip(chosen, order)]
        rng.shuffle(scored)
        if scored or rng.random() < 0.5:
            run[key] = dict(scored)
    run["not judged"] = {"d1": 1.0}
    shuffled = list(run)
    rng.shuffle(shuffled)
    return Batch((tr.Ranking.from_run(qrels, {key: run[key] for key in shuffled}),))


def tensors_in(value):
    """All tensors among arguments, however deep."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))
