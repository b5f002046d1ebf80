"""Times of an update on a quiet machine, and beside processes that keep its cores busy.

``python -m benchmarks --busy`` prints the slowest tenth of the first updates in new processes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import interleaved, repetitions, short, summary, warmed
from benchmarks.plan import OURS, Contender, Data, Prepared, Shape

FLOOR = "amax, over and over"
BESIDE_ONE, BESIDE = "beside one spinning process", "beside one a core"
#: seconds for each contender, quiet and busy
BUDGET = 3.0
#: scores that the floor reads at least
READ = 10**8
#: updates in a new process, and sorts by one thread after them
UPDATES = 30
SORT = "one thread of torch.sort, 300,000 keys"


def _tried() -> dict[str, Callable[[], Prepared]]:
    """What ``--busy`` measures, by name."""
    import benchmarks.contenders as c
    from benchmarks import data
    from benchmarks.flat_rows import FLAT, MANY_ROWS
    from benchmarks.workloads import LTR, find
    from torchrank.retrieval import RetrievalMAP

    def drop_in(**cutoff: int) -> Prepared:
        rows, metric = data.positive_flat_rows({**MANY_ROWS, "share": 0.1}, "cpu"), RetrievalMAP(**cutoff)
        update = functools.partial(metric.update, rows.scores, rows.target, rows.indexes)
        return Prepared(lambda: (update(), metric.compute(), metric.reset()))

    def labels() -> Prepared:
        return c.Suite("ndcg@10 mrr mr").update(data.labels({"queries": 1024, "candidates": 20_000}, "cpu"))

    def row(key: str) -> Prepared:
        workload = find(key)
        return workload.contenders[OURS](workload.make(workload.shape, "cpu"))

    return {
        "drop-in MAP, 300,000 rows": drop_in,
        "drop-in MAP, top_k = 10": functools.partial(drop_in, top_k=10),
        f"flat rows: {FLAT}": functools.partial(row, "flat"),
        f"grades 8,000 x 40: {LTR}": functools.partial(row, "ltr: no ties"),
        "label 1,024 x 20,000": labels,
        "lists of 50 in 1,024 x 20,000": functools.partial(row, "many_relevant"),
        "embeddings 1,024 x 64, 200,000 items": functools.partial(row, "catalogue: 1 relevant"),
    }


def first_updates(name: str) -> None:
    """Main function of a new process: print the seconds of its first updates, and of sorts by one thread."""
    run, keys = _tried()[name]().run, torch.randint(2**62, (300_000,), generator=torch.Generator().manual_seed(0))
    print(flush=True)
    sys.stdin.readline()  # until the machine is as busy as it should be
    updates = [_seconds(run) for _ in range(UPDATES)]
    torch.set_num_threads(1)
    print(json.dumps([updates, [_seconds(keys.sort) for _ in range(UPDATES)]]), flush=True)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _in_new_process(name: str, others: int) -> tuple[list[float], list[float]]:
    code = "import sys; from benchmarks.busy import first_updates; first_updates(sys.argv[1])"
    command, pipe = [sys.executable, "-c", code, name], subprocess.PIPE
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        with spinning(others):
            process.stdin.write("\n")
            process.stdin.flush()
            updates, sorts = json.loads(process.stdout.readline())
    return updates, sorts


def table() -> str:
    """The 90th percentile and the largest time of the first updates, beside those of a sort, as Markdown."""
    cores = _cores()
    lines = [
        f"Times as long as the median alone: the 90th percentile (the longest in ms) of {UPDATES} in a new process.",
        "",
        f"| update | alone, ms | one spinning process a core | {SORT} | two a core | {SORT} |",
        "|---|---|---|---|---|---|",
    ]
    for name in _tried():
        alone, *busy = (_in_new_process(name, others * cores) for others in (0, 1, 2))
        medians = [statistics.median(times) for times in alone]
        cells = [
            f"{statistics.quantiles(times, n=10)[-1] / median:.1f}" + f" ({1e3 * max(times):.0f})" * (times is each[0])
            for each in busy
            for times, median in zip(each, medians)
        ]
        lines.append(f"| {name} | {1e3 * medians[0]:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def largest(data: Data) -> Prepared:
    """Read every score several times, for some milliseconds: shorter work fits into one time slice of a core."""
    times = max(1, READ // data.scores.numel())

    def read() -> None:
        for _ in range(times):
            data.scores.amax(-1)

    return Prepared(read)


@contextlib.contextmanager
def spinning(count: int) -> Iterator[None]:
    """Context in which ``count`` other processes keep a core busy each."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(count)]
    try:
        time.sleep(0.2 * bool(count))  # until Python has started
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def slowed(
    make: Callable[[Shape, str], Data], contenders: Mapping[str, Contender]
) -> Callable[[Shape, str], dict[str, Any]]:
    """Measure contenders on a quiet and on a busy machine.

    Results are times, and ``slowed``: the larger of the two busy times, divided by the quiet time.
    """

    def measure(shape: Shape, device: str) -> dict[str, Any]:
        data = make(shape, device)
        ready = {name: contender(data) for name, contender in contenders.items()}
        found: dict[str, dict[str, Any]] = {}
        for suffix, others in (("", 0), (f", {BESIDE_ONE}", 1), (f", {BESIDE}", _cores())):
            with spinning(others):
                wanted = {
                    name: repetitions(warmed(one, device)[0], shape["seconds"], (3, 50)) for name, one in ready.items()
                }
                times = interleaved(ready, wanted, device, lambda name: None)
            found |= {name + suffix: summary(runs) for name, runs in times.items()}
        for name in ready:
            worst = max(found[f"{name}, {beside}"]["median_ms"] for beside in (BESIDE_ONE, BESIDE))
            found[name]["slowed"] = short(worst / found[name]["median_ms"])
        return {"contenders": found}

    return measure
