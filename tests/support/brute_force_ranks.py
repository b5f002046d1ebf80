"""Scores with many ties, and the ranks of judged candidates: each is compared with its whole list."""

import itertools
import math
from typing import NamedTuple

import numpy
import torch

from torchrank.engine.judged import Counting

INF, NAN = math.inf, math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

FIELDS = ("first", "tied", "grade", "valid", "num_candidates", "errors")


def some_scores(queries, candidates, dtype=torch.float32, seed=0):
    """Many ties, infinities and both zeros; a row where nothing, and one where only one thing, was retrieved."""
    g = torch.Generator().manual_seed(seed)
    shape = queries, candidates
    scores = torch.randint(-5, 6, shape, generator=g) / 4
    scores = torch.where(torch.rand(shape, generator=g) < 0.3, torch.randn(shape, generator=g), scores)
    which = torch.rand(shape, generator=g)
    for value, low in ((-INF, 0.0), (INF, 0.1), (-0.0, 0.13), (0.0, 0.2)):
        scores[(which >= low) & (which < low + 0.1)] = value
    scores[::7] = torch.randn(scores[::7].shape, generator=g)
    for row, value in ((1, -INF), (2, 0.5), (4, -INF)):
        scores[row : row + 1] = value
    scores[4:5, :1] = 1
    return scores.to(dtype)


def pairs_of(shape, number, seed):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(size, (number,), generator=g) for size in shape)


class Places(NamedTuple):
    """Where judged candidates stand: an element for each of them, and the length of each list."""

    query: torch.Tensor
    #: the best rank, how many candidates share it, and the grade
    first: torch.Tensor
    tied: torch.Tensor
    grade: torch.Tensor
    #: [query]
    lengths: torch.Tensor

    def only(self, which):
        return Places(*(column[which] for column in self[:4]), self.lengths)

    def rows(self, start, stop):
        """The places in some queries, which count from 0 again."""
        some = self.only((self.query >= start) & (self.query < stop))
        return some._replace(query=some.query - start, lengths=self.lengths[start:stop])


def no_places(queries, candidates):
    """Those of queries in which nothing is judged."""
    nothing = torch.zeros(0, dtype=torch.float64)
    return Places(nothing.long(), nothing, nothing, nothing, torch.full((queries,), float(candidates)).double())


def joined(parts):
    """The places of several batches of queries, one behind the other."""
    start = itertools.accumulate((len(part.lengths) for part in parts), initial=0)
    moved = [part._replace(query=part.query + before) for part, before in zip(parts, start)]
    return Places(*map(torch.cat, zip(*moved)))


def places(ranking):
    """The places that a ranking has."""
    query, column = ranking.valid.nonzero(as_tuple=True)
    found = (side[query, column].double() for side in (ranking.first, ranking.tied, ranking.grade))
    return Places(query, *found, ranking.num_candidates.double())


def standing(scores, judged, mask=None, exclude=None, tie_break=None):
    """The places of all that is judged, {item: grade} of each query, by comparing it with the whole list."""
    found = [(query, item, grade) for query, grades in enumerate(judged) for item, grade in grades.items()]
    query, item = torch.tensor([pair[:2] for pair in found], dtype=torch.int64).reshape(-1, 2).T
    grade = torch.tensor([worth for *_, worth in found], dtype=torch.float64)
    real = torch.ones(scores.shape, dtype=torch.bool) if mask is None else mask.clone()
    if exclude is not None:
        real[exclude] = False
        given = torch.ones_like(real) if mask is None else mask
        relevant = query[grade > 0], item[grade > 0]
        real[relevant] = given[relevant]
    scores = scores.double()
    lengths = (real & (scores > -INF)).sum(-1)
    there = real[query, item]
    query, item, grade = query[there], item[there], grade[there]
    lists, own = scores[query], scores[query, item, None]
    ties = (torch.zeros(()) if tie_break is None else tie_break).expand_as(scores)
    beside, own_tie = lists == own, ties[query, item, None]
    ahead = real[query] & ((lists > own) | (beside & (ties[query] > own_tie)))
    beside = real[query] & beside & (ties[query] == own_tie)
    retrieved = own.squeeze(-1) > -INF
    first = torch.where(retrieved, ahead.sum(-1), lengths[query]) + 1
    tied = torch.where(retrieved, beside.sum(-1), 0)
    return Places(query, first.double(), tied.double(), grade, lengths.double())


def entries(ranking):
    columns = (x.tolist() for x in (ranking.first, ranking.tied, ranking.grade, ranking.valid))
    return [[tuple(one) for *one, valid in zip(*row) if valid] for row in zip(*columns)]


def assert_stands(ranking, want, reach=None, relevant=False):
    """Entries at ranks up to ``reach`` are as they should be, and all others behind it."""
    got = places(ranking)
    assert torch.equal(got.lengths, want.lengths)
    assert (got.first.diff()[got.query.diff() == 0] >= 0).all()
    if relevant:
        got, want = (side.only(side.grade > 0) for side in (got, want))
    if ranking.pool is None:
        assert torch.equal(got.query.bincount(), want.query.bincount())
    if reach is not None:
        got, want = (side.only(side.first <= reach) for side in (got, want))
    got, want = (in_order(side) for side in (got, want))
    if not torch.equal(got, want):
        queries = got[:, 0].unique().tolist()
        differing = [query for query in queries if not torch.equal(of(query, got), of(query, want))]
        query = differing[0] if differing else None
        assert of(query, got).tolist() == of(query, want).tolist(), f"in {len(differing)} queries, first in {query}"


def in_order(found):
    """[entry, (query, first, tied, grade)] by query, rank, tie and grade."""
    rows = torch.stack([column.double() for column in found[:4]], dim=-1)
    return rows[numpy.lexsort(rows.T.flip(0).numpy())]


def of(query, rows):
    return rows if query is None else rows[rows[:, 0] == query]


def assert_same(got, want):
    for name in FIELDS:
        torch.testing.assert_close(getattr(got, name), getattr(want, name), rtol=0, atol=0, equal_nan=True)
    assert (got.depth, got.reach) == (want.depth, want.reach)


# ---- engines, forced --------------------------------------------------------------------------------------------


#: costs by which a method is taken wherever it can be, and counting is elsewhere
FORCED = {
    counting: {**dict.fromkeys(("few", "few_by_torch", "few_by_kernel"), limits), "best_of": 0, "sorted_from": 0}
    for counting, limits in zip(Counting, ((INF, INF), (-1, INF), (INF, -1)))
}


def make_blocks_small(assume):
    assume(block=60, device_chunk=1, tile=130, rectangle=4, copied=100, tied=60, few_tied=2, group=3, groups_per_rank=1)
