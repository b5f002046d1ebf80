"""Scale: 10^9 queries in one state, 10,000 workers, 10^9 items over 64 workers. Prints the tables of SCALE.md."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import torch
import torch.distributed as dist
from torch import Tensor

import torchrank as tr
import torchrank.state.sums as state
from benchmarks.measure import timed
from benchmarks.plan import Prepared, cuts, label
from benchmarks.sync import SUITE, counting
from torchrank.layouts.checks import Problem
from torchrank.state.sums import Sum
from torchrank.state.synchronisation import DIGEST, MESSAGE

#: queries of a batch
BATCH = 1000
#: times that each batch is added
PASSES = 100
WORKERS, SHARDS, ITEMS, DIMENSIONS = 10_000, 64, 10**9, 64
#: seconds of one message between two workers, and bytes a second: assumptions
LATENCY, BANDWIDTH = 10e-6, 12.5e9


def tables(quick: bool = False) -> str:
    """All tables, in Markdown."""
    rows = [
        drift(1_000_000 if not quick else 1000),
        orders(WORKERS if not quick else 100),
        reduction(),
        shards((250_000, 500_000, 1_000_000) if not quick else (5_000, 10_000)),
    ]
    return "\n\n".join(markdown([*some]) for some in rows)


# ---- errors of the sums ----------------------------------------------------------------------------------------------


def batches(values: Tensor) -> Tensor:
    """The states [batch, SIZE] of batches of queries with weight 1, from their values [batch, query]."""
    number, queries = values.shape
    zero = values.new_zeros(number)
    errors = values.new_zeros(number, len(Problem))
    return state.summed(values, torch.ones_like(values), zero + queries, zero, errors)


def exact(values: Tensor) -> Fraction:
    """The sum of multiples of 2^-53 in [0, 1], without rounding."""
    units = (values.to(torch.float64) * 2.0**53).to(torch.int64)
    high, low = units >> 27, units & (2**27 - 1)
    return Fraction((int(high.sum()) << 27) + int(low.sum()), 2**53)


def drift(number: int) -> Iterator[dict[str, str]]:
    """Add batches of uniform values one by one, to a float64 state and to pairs of float32, and compare the means."""
    generator = torch.Generator().manual_seed(0)
    forms = {"float64": torch.float64, "pairs of float32": torch.float32}
    totals = {
        "float64": torch.zeros(state.SIZE, dtype=torch.float64),
        "pairs of float32": torch.zeros(2, state.SIZE, dtype=torch.float32),
    }
    # Each batch is added PASSES times, every time in another order, because drawing new values would take longer.
    distinct = number // PASSES
    drawn = torch.rand((distinct, BATCH), generator=generator, dtype=torch.float64)
    sums = {form: PASSES * exact(drawn.to(dtype)) for form, dtype in forms.items()}
    for form, dtype in forms.items():
        states = batches(drawn.to(dtype))
        for _ in range(PASSES):
            for batch in states[torch.randperm(distinct, generator=generator)]:
                totals[form] = state.add(totals[form], batch)
    queries = number * BATCH
    for form, dtype in forms.items():
        wide = totals[form].to(torch.float64)
        total = wide if wide.dim() == 1 else wide.sum(0)
        unit = torch.finfo(dtype).eps / 2
        # A pair rounds its low part only; the sum of a batch is rounded in its own dtype, at most once a query.
        added = number * (unit if dtype == torch.float64 else unit**2)
        usual = unit * math.sqrt(number) / 3 if dtype == torch.float64 else unit / math.sqrt(distinct)
        mean = sums[form] / queries
        yield {
            "state": form,
            "queries": f"{queries:,}",
            "relative error of the mean": _error(float(total[Sum.WV] / total[Sum.W]), mean),
            "usual size": f"{usual:.0e}",
            "bound": f"{added + BATCH * unit:.0e}",
            "queries counted": f"{int(total[Sum.QUERIES]):,}",
        }


def orders(workers: int) -> Iterator[dict[str, str]]:
    """Reduce the states of workers in several orders, and compare the means."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.rand((workers, BATCH), generator=generator, dtype=torch.float64)
    shuffles = [torch.randperm(workers, generator=generator) for _ in range(20)]
    for dtype in (torch.float64, torch.float32):
        values = drawn.to(dtype)
        states, mean = batches(values), exact(values) / drawn.numel()
        line = [_mean(_in_line(states[order])) for order in shuffles]
        tree = [_mean(_in_a_tree(states[order])) for order in shuffles]
        yield {
            "sums": str(dtype).removeprefix("torch."),
            "workers": f"{workers:,}",
            "largest error of 20 lines": max((_error(x, mean) for x in line), key=float),
            "of 20 trees": max((_error(x, mean) for x in tree), key=float),
            "different means": str(len({*line, *tree})),
            "as float32": str(len({torch.tensor(x, dtype=torch.float32).item() for x in (*line, *tree)})),
        }


def _in_line(states: Tensor) -> Tensor:
    """The sum from the first worker to the last, as a ring adds each part of a message."""
    total = states[0]
    for other in states[1:]:
        total = total + other
    return total


def _in_a_tree(states: Tensor) -> Tensor:
    """The sum of pairs, of pairs of pairs, and so on."""
    while len(states) > 1:
        odd = states[len(states) // 2 * 2 :]
        states = torch.cat([states[0 : len(states) - len(odd) : 2] + states[1::2], odd])
    return states[0]


def _mean(sums: Tensor) -> float:
    wide = sums.to(torch.float64)
    return float(wide[Sum.WV] / wide[Sum.W])


def _error(value: float, wanted: Fraction) -> str:
    return f"{float(abs(Fraction(value) - wanted) / wanted):.1e}"


# ---- messages of a reduction -----------------------------------------------------------------------------------------


def reduction() -> Iterator[dict[str, str]]:
    """The bytes of states, read from metrics, and the computed time of their reduction over all workers."""
    suite = [tr.parse(label(*cut)) for cut in cuts(SUITE)]
    curve = tr.PRCurve(top_k=1000)
    cases: dict[str, Sequence[tr.RankingMetric]] = {"ndcg@10": suite[:1], f"{len(suite)} labels": suite}
    for name, metrics in cases.items():
        yield _reduced(name, sum(metric.sums.nbytes for metric in metrics))
    yield _reduced("prcurve@1000", curve.sums.nbytes)
    # Values are gathered: every worker receives all, 16 bytes a query. Their numbers stand in the message.
    kept = 16 * 100_000
    row = _reduced("ndcg@10, median", suite[0].sums.nbytes + 8 * WORKERS)
    gathered = (WORKERS - 1) * (LATENCY + kept / BANDWIDTH)
    row["held after it"] = f"{kept * WORKERS / 1e9:.0f} GB"
    row["state"] = f"{kept:,} B"
    yield {**row, "ring": f"{gathered:.1f} s", "tree": "the same bytes"}


def _reduced(name: str, held: int) -> dict[str, str]:
    """A row for sums that are added over all workers."""
    message = 8 * max(MESSAGE, 2 * DIGEST + held // 8)
    steps = math.ceil(math.log2(WORKERS))
    ring = 2 * (WORKERS - 1) * (LATENCY + message / WORKERS / BANDWIDTH)
    tree = 2 * steps * (LATENCY + message / BANDWIDTH)
    return {
        "metrics": name,
        "state": f"{held:,} B",
        "message": f"{message:,} B",
        "held after it": f"{held:,} B",
        "ring": f"{1e3 * ring:.0f} ms",
        "tree": f"{1e3 * tree:.2f} ms",
    }


# ---- a part of a catalogue -------------------------------------------------------------------------------------------


def shards(sizes: Iterable[int], queries: int = 256) -> Iterator[dict[str, str]]:
    """Time the ranking of parts of a catalogue, as one worker does it, and count its bytes."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
        try:
            measured = [_shard(size, queries) for size in sizes]
        finally:
            dist.destroy_process_group()
    size = ITEMS // SHARDS
    largest, product, ranking, seen = measured[-1]
    grown = size / largest
    rows = [*measured, (size, product * grown, ranking * grown, seen)]
    for items, multiplied, ranked, counted in rows:
        yield {
            "items of a worker": f"{items:,}" + (f" (of {ITEMS:,})" if items == size else ""),
            "embeddings": f"{4 * DIMENSIONS * items / 1e9:.3g} GB",
            "product": f"{1e3 * multiplied:,.0f} ms",
            "Gflop/s": f"{2 * DIMENSIONS * items * queries / multiplied / 1e9:.0f}",
            "ranking": f"{1e3 * ranked:,.0f} ms",
            "ns per score": f"{1e9 * ranked / items / queries:.3f}",
            "collectives": str(counted["collectives"]),
            "bytes": f"{counted['bytes']:,}",
            "": "computed" if items == size else "measured",
        }


def _shard(size: int, queries: int) -> tuple[int, float, float, dict[str, int]]:
    """Items, seconds of the product in blocks and of the ranking, and the collectives of one ranking."""
    generator = torch.Generator().manual_seed(2)
    asked = torch.randn((queries, DIMENSIONS), generator=generator, dtype=torch.float32)
    items = torch.randn((size, DIMENSIONS), generator=generator, dtype=torch.float32)
    relevant = torch.randint(size, (queries,), generator=generator)

    def ranked() -> tr.Ranking:
        return tr.Ranking.from_embeddings(asked, items, relevant, group=None)

    def multiplied() -> None:
        for block in items.split(2**12):
            asked @ block.T

    with counting() as seen:
        ranked()
    return size, _median(multiplied), _median(ranked), dict(seen)


def _median(run: Callable[[], object]) -> float:
    ready = Prepared(run)
    timed(ready, "cpu")
    return statistics.median(timed(ready, "cpu")[0] for _ in range(5))


def markdown(rows: Sequence[dict[str, str]]) -> str:
    """A table in Markdown."""
    lines = [[*rows[0]], ["---"] * len(rows[0]), *([*row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
