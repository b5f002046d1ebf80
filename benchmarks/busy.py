"""Times of an update on a quiet machine, beside one spinning process, and beside one spinning process per core."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.measure import interleaved, repetitions, short, summary, warmed
from benchmarks.plan import Contender, Data, Prepared, Shape

FLOOR = "amax, over and over"
BESIDE_ONE, BESIDE = "beside one spinning process", "beside one a core"
#: seconds for each contender, quiet and busy
BUDGET = 3.0
#: scores that the floor reads at least
READ = 10**8


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
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        found: dict[str, dict[str, Any]] = {}
        for suffix, others in (("", 0), (f", {BESIDE_ONE}", 1), (f", {BESIDE}", cores)):
            with spinning(others):
                for one in ready.values():  # run until the library has noticed whether the machine is busy
                    end = time.monotonic() + shape["seconds"] / 2
                    while time.monotonic() < end:
                        one.run()
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
