"""Catalogues of embeddings, and the main function of workers with a slice of each."""

import datetime
import itertools
import math
import pickle
import traceback
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

import torchrank as tr
from tests.support import workers
from tests.support.brute_force_ranks import pairs_of
from tests.support.unread import Elsewhere
from torchrank.hardware import costs

INF, NAN = math.inf, math.nan


class Catalogue(NamedTuple):
    """Embeddings to rank, of which every worker has some items; their entries are so small that products are exact.

    Embeddings in uint8 are packed bits.
    """

    #: relevant items of each query
    relevant: int
    items: int = 3000
    dtype: torch.dtype = torch.float32
    more: dict = {}
    #: scores in one product, at most; None = as it comes
    product: int | None = None
    exclude: bool = False
    bad: bool = False
    #: as on an accelerator
    elsewhere: bool = False

    def make(self):
        g = torch.Generator().manual_seed(self.items + self.relevant)
        queries = torch.randint(-3, 4, (11, 4), generator=g).to(self.dtype)
        items = torch.randint(-3, 4, (self.items, 4), generator=g).to(self.dtype)
        if self.dtype.is_floating_point:
            queries[:, 0], items[:, 0], items[::13, 0] = 1, 0, -INF
        relevant = [torch.randperm(self.items, generator=g)[: self.relevant] for _ in queries]
        more = dict(self.more)
        if self.relevant == 1:
            relevant = torch.cat(relevant)
            relevant[:3] = torch.tensor([0.02, 0.2, 0.98]).mul(self.items).round()  # where a slice begins
            relevant[3:6] = relevant[:3] - 1  # and where the one before ends
        if self.exclude:
            more["exclude"] = pairs_of((len(queries), self.items), 40 * self.items // 10, seed=1)
        if self.bad:
            items[self.items // 2, 1] = NAN
            relevant[0], relevant[1] = torch.tensor([0, 0, self.items, 3]), torch.tensor([1, 2])
        if self.elsewhere:
            queries, items = (x.as_subclass(Elsewhere) for x in (queries, items))
        return queries, items, relevant, more


CATALOGUES = {
    "one": Catalogue(1),
    "one, excluding": Catalogue(1, exclude=True, more={"chunk_size": 100}),
    "one, int8": Catalogue(1, dtype=torch.int8, more={"chunk_size": 499}),
    "one, on a device": Catalogue(1, elsewhere=True, more={"chunk_size": 64}),
    "few, on a device, excluding": Catalogue(3, elsewhere=True, exclude=True, more={"chunk_size": 100}),
    "few, in blocks of queries": Catalogue(3, product=8000, more={"chunk_size": 1000}),
    "few, packed bits, excluding": Catalogue(3, dtype=torch.uint8, exclude=True, more={"similarity": "hamming"}),
    "few, bad values": Catalogue(3, bad=True),
    "few, top_k": Catalogue(3, more={"top_k": 5, "chunk_size": 999}),
    "more than a slice, top_k": Catalogue(70, more={"top_k": 80, "chunk_size": 450}),
    "many, top_k": Catalogue(60, more={"top_k": 5, "chunk_size": 800}),
    "many, top_k, excluding, bf16": Catalogue(60, dtype=torch.bfloat16, exclude=True, more={"top_k": 20}),
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
    with workers.counted() as count, costs.assumed(product=case.product or costs.now.product, best_of=1):
        mine = items[cuts[rank] : cuts[rank + 1]]
        ranking = tr.Ranking.from_embeddings(queries, mine, relevant, group=group, **more)
    return ranking, dict(count)


def work(rank, folder):
    """The main function of each of three workers, two of which work together without the third as well."""
    torch.set_num_threads(1)
    group = {"init_method": f"file://{folder}/group", "rank": rank, "world_size": 3}
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300), **group)
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
            for what, size, groups in ("different", number, None), ("groups", len(queries), torch.arange(len(items))):
                try:
                    tr.Ranking.from_embeddings(queries[:size], items, relevant[:size], group=group, groups=groups)
                except ValueError as error:
                    results[world, what] = str(error)
    except BaseException:
        results["error"] = traceback.format_exc()
    Path(folder, f"{rank}.result").write_bytes(pickle.dumps(results))
    workers.leave()
    workers.end()
