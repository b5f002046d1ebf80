"""``python -m benchmarks --plan``: how the batch of each row is ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torchrank.engine.rank_layout as rank_layout
from benchmarks.plan import NUMBERS, OURS, Workload
from benchmarks.workloads import WORKLOADS


@contextmanager
def seen() -> Iterator[list[str]]:
    """Context in which the plans that are made are written down, each once."""
    found: dict[str, None] = {}
    make: Callable[..., Any] = rank_layout.plan

    def told(*arguments: Any) -> Any:
        made = make(*arguments)
        found[str(made)] = None
        return made

    plans: list[str] = []
    rank_layout.plan = told
    try:
        yield plans
    finally:
        rank_layout.plan = make
        plans += found


def of(workload: Workload, quick: bool = False) -> list[str]:
    """The plans of a workload's batches, in which torchrank runs once."""
    data = workload.make(workload.quick if quick else workload.shape, "cpu")
    name = next(name for name in (NUMBERS, OURS, *workload.contenders) if name in workload.contenders)
    ready = workload.contenders[name](data)
    with seen() as plans:
        ready.before()
        ready.run()
    return plans


def table(quick: bool = False) -> str:
    """The plans of all rows that are measured in this process and rank batches on a CPU."""
    rows = [w for w in WORKLOADS if w.measure is None and "cpu" in w.devices]
    lines = ["| row | plan |", "|---|---|"]
    for workload in rows:
        lines += [f"| {workload.key} | {said} |" for said in of(workload, quick)]
    return "\n".join(lines)
