"""``python -m benchmarks --launches``: kernels that a batch launches on an accelerator, counted without one.

The updates run on torch's meta device, where tensors have shapes and no values, and a mode sees each operation of
torch. Counted are operations that write a tensor on this device. Left out are views (``expand``, ``select``, ``view``),
allocations (``empty``), operations without elements, and tensors on the CPU. An operation that copies its input first
(``masked_fill``, ``scatter``) counts as two. Sorting counts as one, although a device sorts in several passes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import torchrank as tr
from torchrank import retrieval

# Operations that only allocate.
ALLOCATIONS = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")

# Operations out of place that copy a tensor, and then change the copy.
COPYING = ("masked_fill", "scatter", "scatter_add", "index_put", "index_fill")

#: functions of the page "One batch" in torchrank/README.md, and the stage that each begins
STAGES = {
    **{"arrange": "arrange", "rank_chunks": "rank"},
    **{"measured": "measure", "_measure": "measure", "weigh": "weigh", "accumulate": "accumulate"},
}

SUITE = ["mrr", "mr", "hitrate@1,10", "recall@10", "precision@10", "map@10", "ndcg@10"]


class Launches(TorchDispatchMode):
    """Count the operations that launch a kernel, by stage and name."""

    def __init__(self) -> None:
        super().__init__()
        #: number of kernels by (stage, operation)
        self.found: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        written = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.is_meta and x.numel()]
        if written and not func.is_view and name not in ALLOCATIONS:
            self.found[_stage(), name] += 1 + (name in COPYING)
        return result


def _stage() -> str:
    """The innermost stage that runs now."""
    frame = sys._getframe(2)
    while frame:
        if frame.f_code.co_name in STAGES:
            return STAGES[frame.f_code.co_name]
        frame = frame.f_back  # type: ignore[assignment]
    return "other"


def of_label(queries: int = 1024, items: int = 10_000) -> Counter[tuple[str, str]]:
    """Kernels of eight binary measures on scores [query, item] with one right answer per query."""
    return _of(tr.RankingCollection(SUITE), _floats(queries, items), _integers(queries))


def of_grades(queries: int = 1024, candidates: int = 100) -> Counter[tuple[str, str]]:
    """Kernels of eight measures on scores and grades [query, candidate], which are sorted."""
    return _of(tr.RankingCollection(SUITE), _floats(queries, candidates), _integers(queries, candidates))


def of_rows(rows: int = 100_000) -> Counter[tuple[str, str]]:
    """Kernels of one update of a class that replaces torchmetrics' own, on flat rows."""
    return _of(retrieval.RetrievalNormalizedDCG(), _floats(rows), _integers(rows), _integers(rows))


def _of(metric: Any, *batch: torch.Tensor) -> Counter[tuple[str, str]]:
    metric = metric.to("meta")
    metric.update(*batch)  # tables that later batches share
    with Launches() as launches:
        metric.update(*batch)
    return launches.found


def _floats(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float32, device="meta")


def _integers(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int64, device="meta")


CASES: dict[str, Callable[[], Counter[tuple[str, str]]]] = {
    "8 measures, label": of_label,
    "8 measures, grades": of_grades,

}


def table() -> str:
    """The counts of all cases: a line for each stage, with its operations, the most frequent first."""
    lines = []
    for case, count in CASES.items():
        found = count()
        lines.append(f"{case}: {found.total()}")
        for stage in dict.fromkeys([*STAGES.values(), "other"]):
            ops = Counter({name: n for (of, name), n in found.items() if of == stage})
            if ops:
                shown = ", ".join(f"{name} {n}" for name, n in ops.most_common())
                lines.append(f"  {stage:<10} {ops.total():>4}  {shown}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
