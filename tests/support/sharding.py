"""Shared by tests of engines and of streams: counting one query at a time, and processes that share a catalogue."""

import contextlib
import datetime
import itertools
import math
import pickle
import re
import traceback
from pathlib import Path
from typing import NamedTuple

import numpy
import torch
import torch.distributed as dist
import workers

import torchrank as tr
from torchrank.engine.catalogue import Engine
from torchrank.layouts import canonical

INF, NAN = math.inf, math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


# ---- data, and where its candidates stand ------------------------------------------------------------------------

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
    lists, own, tie_break = (
        scores[query],
        scores[query, item, None],
        torch.zeros(()) if tie_break is None else tie_break,
    )
    ties = tie_break.expand_as(scores)
    beside, own_tie = lists == own, ties[query, item, None]
    ahead = real[query] & ((lists > own) | (beside & (ties[query] > own_tie)))
    beside = real[query] & beside & (ties[query] == own_tie)
    retrieved = own.squeeze(-1) > -INF
    first = torch.where(retrieved, ahead.sum(-1), lengths[query]) + 1
    tied = torch.where(retrieved, beside.sum(-1), 0)
    return Places(query, first.double(), tied.double(), grade, lengths.double())


def entries(ranking):
    columns = (ranking.first, ranking.tied, ranking.grade, ranking.valid)
    return [
        [(first, tied, grade) for first, tied, grade, valid in zip(*row) if valid]
        for row in zip(*(column.tolist() for column in columns))
    ]


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
        differing = [
            query for query in got[:, 0].unique().tolist() if not torch.equal(*(of(query, x) for x in (got, want)))
        ]
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


# ---- ways, forced ------------------------------------------------------------------------------------------------


def force(monkeypatch, engine):
    """Take an engine wherever it can be taken; returns a list of those that were."""
    taken = []

    def chosen(entries, candidates, reach, device, tie_break):
        possible = {Engine.COUNT: True, Engine.TOP: reach is not None, Engine.SORT: True}
        taken.append(engine if possible[engine] else Engine.COUNT)
        return taken[-1]

    for module in ("catalogue", "sparse"):
        monkeypatch.setattr(f"torchrank.engine.{module}.cheapest", chosen)
    return taken


def make_blocks_small(monkeypatch):
    sizes = {
        "layouts.canonical.BLOCK": 150,
        "engine.catalogue.BLOCK": 7,
        "engine.counting.BLOCK": 200,
        "engine.topk.BLOCK": 20,
        "engine.tiles.CACHED": 130,
        "engine.flat.BLOCK": 16,
        "engine.flat.OVERHEAD": 4,
        "engine.sorting.LONGEST": 64,
        "engine.sorting.MANY": 4,
        "engine.sorting.AGAIN": 2,
        "engine.packed.ROWS": 8,
        "engine.sparse.OVERHEAD": 8,
        "engine.sparse.COPIED": 100,
        "engine.dense.WORTH_CUTTING": 4,
        "engine.dense.TIED_SHARE": 2,
        "engine.dense.TIED_ENTRIES": 60,
    }
    for name, size in sizes.items():
        monkeypatch.setattr(f"torchrank.{name}", size)
    monkeypatch.setattr("torchrank.engine.topk.GROUP", 3)
    monkeypatch.setattr("torchrank.engine.topk.GROUPS_PER_RANK", 1)


# ---- workers with a slice of the catalogue each ------------------------------------------------------------------


class Catalogue(NamedTuple):
    """Embeddings to rank, of which every worker has some items; their entries are so small that products are exact."""

    #: relevant items of each query
    relevant: int
    items: int = 3000
    dtype: torch.dtype = torch.float32
    more: dict = {}
    #: scores in one product, at most; None = as it comes
    product: int | None = None
    exclude: bool = False
    bad: bool = False

    def make(self):
        g = torch.Generator().manual_seed(self.items + self.relevant)
        queries = torch.randint(-3, 4, (11, 4), generator=g).to(self.dtype)
        items = torch.randint(-3, 4, (self.items, 4), generator=g).to(self.dtype)
        queries[:, 0], items[:, 0], items[::13, 0] = 1, 0, -INF
        relevant = [torch.randperm(self.items, generator=g)[: self.relevant] for _ in queries]
        more = dict(self.more)
        if self.relevant == 1:
            relevant = torch.cat(relevant)
        if self.exclude:
            more["exclude"] = pairs_of((len(queries), self.items), 40 * self.items // 10, seed=1)
        if self.bad:
            items[self.items // 2, 1] = NAN
            relevant[0], relevant[1] = torch.tensor([0, 0, self.items, 3]), torch.tensor([1, 2])
        return queries, items, relevant, more


CATALOGUES = {
    "one": Catalogue(1),
    "one, few items": Catalogue(1, items=40, more={"chunk_size": 7}),
    "one, excluding": Catalogue(1, exclude=True, more={"chunk_size": 100}),
    "one, bf16": Catalogue(1, dtype=torch.bfloat16, more={"chunk_size": 499}),
    "few": Catalogue(3, more={"chunk_size": 1000}),
    "few, in blocks of queries": Catalogue(3, product=8000, more={"chunk_size": 1000}),
    "few, bad values": Catalogue(3, bad=True),
    "few, top_k": Catalogue(3, more={"top_k": 5, "chunk_size": 999}),
    "more than a slice, top_k": Catalogue(70, more={"top_k": 80, "chunk_size": 450}),
    "many, top_k": Catalogue(60, more={"top_k": 5, "chunk_size": 800}),
    "many, top_k, in blocks of queries": Catalogue(60, product=8000, more={"top_k": 5, "chunk_size": 1000}),
    "many, top_k, excluding, bf16": Catalogue(60, dtype=torch.bfloat16, exclude=True, more={"top_k": 20}),
    "very many": Catalogue(150, dtype=torch.float64, more={"chunk_size": 640}),
    "very many, excluding": Catalogue(150, exclude=True),
}

# The shares of the items that workers have: of two and of three.
SLICES = {
    "uneven": {2: (0.02, 0.98), 3: (0.2, 0.78, 0.02)},
    "first empty": {2: (0, 1), 3: (0, 0.4, 0.6)},
    "others empty": {2: (1, 0), 3: (1, 0, 0)},
    "one empty": {2: (0, 1), 3: (0.5, 0, 0.5)},
}


def shared(name):
    """How the items of a catalogue are shared: unevenly, and in one of the ways in which a worker has none."""
    uneven, *empty = SLICES
    return uneven, empty[list(CATALOGUES).index(name) % len(empty)]


def ranked(case, rank=0, shares=(1,), group=False):
    """The ranking that one worker gets, and the collectives that it took."""
    queries, items, relevant, more = case.make()
    cuts = [round(share * len(items)) for share in itertools.accumulate(shares, initial=0)]
    before, canonical.PRODUCT = canonical.PRODUCT, case.product or canonical.PRODUCT
    try:
        with workers.counted() as count:
            mine = items[cuts[rank] : cuts[rank + 1]]
            ranking = tr.Ranking.from_embeddings(queries, mine, relevant, group=group, **more)
    finally:
        canonical.PRODUCT = before
    return ranking, dict(count)


def work(rank, folder):
    """The main function of each of three workers, two of which work together without the third as well."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/group",
        rank=rank,
        world_size=3,
        timeout=datetime.timedelta(seconds=30),
    )
    two = dist.new_group([1, 2])
    results = {}
    try:
        for world, group, place in ((3, None, rank), (2, two, rank - 1)):
            if place < 0:
                continue
            for name, case in CATALOGUES.items():
                for how in shared(name):
                    results[world, name, how] = ranked(case, place, SLICES[how][world], group)
            queries, items, relevant, _ = CATALOGUES["one"].make()
            number = len(queries) - (place == 1)
            try:
                tr.Ranking.from_embeddings(queries[:number], items, relevant[:number], group=group)
            except ValueError as error:
                results[world, "different"] = str(error)
    except BaseException:
        results["error"] = traceback.format_exc()
    Path(folder, f"{rank}.result").write_bytes(pickle.dumps(results))
    workers.leave()
    workers.end()


# ---- memory ------------------------------------------------------------------------------------------------------


def memory_of_embeddings():
    """Megabytes by which memory has grown behind each of three steps, in a process that did nothing before."""
    torch.set_num_threads(1)
    queries, items, label = torch.randn(512, 32), torch.randn(100_000, 32), torch.randint(100_000, (512,))
    tr.Ranking.from_embeddings(queries[:9], items[:9000], label[:9] % 9000, chunk_size=4000)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, grown = peak(), []
    for step in (
        lambda: tr.Ranking.from_embeddings(queries, items, label),
        lambda: tr.Ranking.from_embeddings(queries, items, label, chunk_size=100_000),
        lambda: queries @ items.T,
    ):
        step()
        grown.append((peak() - before) / 1e6)
    return grown


def memory_of_sparse_lists():
    """The same of nDCG at all ranks, where queries have very different numbers of relevant candidates."""
    torch.set_num_threads(1)
    scores, grade = torch.randn(100_000, 400), torch.zeros(100_000, 400, dtype=torch.int8)
    grade[:, 7] = 1
    grade[::4, :12] = 1
    tr.NDCG().score(scores[:9], grade[:9])
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    grown = []
    for given in (scores, scores.view(400, 100_000).T):
        before = peak()
        tr.NDCG().score(given, grade)
        grown.append((peak() - before) / 1e6)
    return grown


def memory_of_best_scores():
    """The same of recall@100, for which the best scores of a matrix are selected, in two dtypes."""
    torch.set_num_threads(1)
    scores, items = torch.randn(20_000, 2000), torch.arange(10).expand(20_000, -1).contiguous()
    recall = tr.Recall(top_k=100)
    recall.score(scores[:9], list(items[:9]))
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    grown = []
    for given in (scores, scores.half()):
        before = peak()
        recall.score(given, list(items))
        grown.append((peak() - before) / 1e6)
    return grown


def peak():
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1])
