"""``python -m benchmarks --plan``: how the batch of each row is ranked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from benchmarks.plan import NUMBERS, OURS, Workload
from benchmarks.workloads import WORKLOADS


@contextmanager
def seen() -> Iterator[list[str]]:
    """Context in which the plans that torchrank logs are written down, each once."""
    plans: list[str] = []
    with patch.object(logging.getLogger("torchrank"), "debug", lambda _, layout, how: plans.append(how)):
        yield plans
    plans[:] = dict.fromkeys(plans)


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
