"""Interleaved timing, and a summary of the repetitions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from benchmarks.plan import Prepared


def timed(ready: Prepared, device: str) -> tuple[float, Any]:
    """The seconds of one run, and its result."""
    ready.before()
    try:
        _wait(device)
        start = time.perf_counter()
        result = ready.run()
        _wait(device)
        return time.perf_counter() - start, result
    finally:
        ready.after()


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def warmed(ready: Prepared, device: str) -> tuple[float, Any]:
    """The seconds and the result of a second run, without the costs of the first run."""
    timed(ready, device)
    return timed(ready, device)


def repetitions(seconds: float, budget: float, bounds: tuple[int, int]) -> int:
    """The number of runs of a contender, from the seconds of one run."""
    return max(bounds[0], min(bounds[1], int(budget / max(seconds, 1e-6))))


def free_once() -> None:
    """Free 30 MB, as a process that trains has before: from then on glibc keeps up to 60 MB for the next batch.

    Until then it returns the memory of each batch to the system, and every page of the next one costs a fault.
    """
    torch.ones(30 * 2**20, dtype=torch.uint8)


def rounds(wanted: Mapping[str, int]) -> Iterator[list[str]]:
    """The contenders of each round, in rotating order. A contender with fewer runs has them spread over the rounds."""
    names, longest = list(wanted), max(wanted.values(), default=0)
    for number in range(longest):
        # Rotate, so that no contender always follows the same one, whose memory it would find in the caches.
        first = number % len(names)
        order = names[first:] + names[:first]
        yield [name for name in order if (number + 1) * wanted[name] // longest > number * wanted[name] // longest]


def interleaved(
    contenders: Mapping[str, Prepared], wanted: Mapping[str, int], device: str, tick: Callable[[str], None]
) -> dict[str, list[float]]:
    """The seconds of every run of every contender. Contenders take turns, so that disturbances hit all alike."""
    free_once()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for names in rounds(wanted):
        for name in names:
            tick(name)
            seconds[name].append(timed(contenders[name], device)[0])
    return seconds


def summary(seconds: list[float]) -> dict[str, Any]:
    """Median and quartiles in milliseconds."""
    ms = sorted(1e3 * s for s in seconds)
    low, middle, high = statistics.quantiles(ms, n=4, method="inclusive") if len(ms) > 1 else ms * 3
    return {"median_ms": short(middle), "quartiles_ms": [short(low), short(high)], "runs": len(ms)}


def short(value: float) -> float:
    """A measurement rounded to four digits."""
    return float(f"{value:.4g}")
