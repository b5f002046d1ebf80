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

# Operations that read as many elements of their first argument as they return.
LOOKUPS = ("gather", "take", "index", "index_select")

#: names of functions, and the stage that each begins; "One batch" in torchrank/README.md explains the stages
STAGES = {
    "arrange_batch": "arrange",
    "rank_judged": "rank",
    "rank_lists": "rank",
    "per_query": "measure",
    "settled": "reduce",
    "reduce": "reduce",
    "accumulate": "accumulate",
}

SUITE = ["mrr", "mr", "hitrate@1,10", "recall@10", "precision@10", "map@10", "ndcg@10"]


class Launches(TorchDispatchMode):
    """Count the operations that launch a kernel, by stage and name."""

    def __init__(self, device: str = "meta") -> None:
        super().__init__()
        self.device = device
        #: number of kernels by (stage, operation)
        self.found: Counter[tuple[str, str]] = Counter()
        #: bytes of their arguments and results by stage; nothing is assumed to stay in a cache
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        result = func(*args, **keywords)
        name, stage = func._schema.name.split("::")[1], _stage()
        written = self._on_device(result)
        if written and not func.is_view and name not in ALLOCATIONS:
            self.found[stage, name] += 1 + (name in COPYING)
            arguments = args[1:] if name in LOOKUPS else args
            read = self._on_device((arguments, {key: x for key, x in keywords.items() if key != "out"}))
            read += written if name in LOOKUPS else []
            self.bytes[stage] += sum(x.numel() * x.element_size() for x in read + written)
        return result

    def _on_device(self, tree: Any) -> list[torch.Tensor]:
        tensors = [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]
        return [x for x in tensors if x.device.type == self.device and x.numel()]


def _stage() -> str:
    """The innermost stage that runs now."""
    frame = sys._getframe(2)
    while frame:
        if frame.f_code.co_name in STAGES:
            return STAGES[frame.f_code.co_name]
        frame = frame.f_back  # type: ignore[assignment]
    return "outside"


def of_label(queries: int = 1024, items: int = 10_000) -> Launches:
    """Kernels of eight measures on scores [query, item] with one right answer per query."""
    return _of(tr.RankingCollection(SUITE), _floats(queries, items), _integers(queries))


def of_grades(queries: int = 1024, candidates: int = 100) -> Launches:
    """Kernels of eight measures on scores and grades [query, candidate], which are sorted."""
    return _of(tr.RankingCollection(SUITE), _floats(queries, candidates), _integers(queries, candidates))


def of_rows(rows: int = 10_000) -> Launches:
    """Kernels of one update of a class that replaces torchmetrics' own, on flat rows.

    It reads the range of integers to keep them in a narrow dtype, which the meta device cannot, so it is counted on the
    CPU.
    """
    metric = retrieval.RetrievalNormalizedDCG()
    grades = torch.ones(rows, dtype=torch.int64)
    with Launches("cpu") as launches:
        metric.update(torch.zeros(rows, dtype=torch.float32), grades, grades)
    return launches


def _of(metric: Any, *batch: torch.Tensor) -> Launches:
    metric = metric.to("meta")
    metric.waits = False
    metric.update(*batch)  # makes constants that later batches share
    with Launches() as launches:
        metric.update(*batch)
    return launches


def _floats(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float32, device="meta")


def _integers(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int64, device="meta")


CASES: dict[str, Callable[[], Launches]] = {
    "8 measures, scores [1024, 10000], a label per query": of_label,
    "8 measures, scores [1024, 1000000], a label per query": lambda: of_label(items=1_000_000),
    "8 measures, scores and grades [1024, 100]": of_grades,
    "drop-in for torchmetrics.retrieval, flat rows": of_rows,
}


def table() -> str:
    """The counts of all cases: a line for each stage, with its operations, the most frequent first."""
    lines = []
    for case, count in CASES.items():
        seen = count()
        lines.append(f"{case}: {seen.found.total()} kernels, {_size(seen.bytes.total())}")
        for stage in dict.fromkeys([*STAGES.values(), "outside"]):
            ops = Counter({name: n for (of, name), n in seen.found.items() if of == stage})
            if ops:
                shown = ", ".join(f"{name} {n}" for name, n in ops.most_common())
                lines.append(f"  {stage:<10} {ops.total():>4} {_size(seen.bytes[stage]):>10}  {shown}")
    return "\n".join(lines)


def _size(number: int) -> str:
    return f"{number / 1e9:.2f} GB" if number > 1e8 else f"{number / 1e6:.2f} MB"
