"""State of a metric that keeps its rows, because a query may come in pieces: few bytes, two collectives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrank.state.synchronisation import all_gather, place_in
from torchrank.state.torchmetrics_fixes import SafeMetric
from torchrank.state.waiting import LOCK

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


# The dtypes in which rows are kept. Workers exchange indexes into this tuple.
DTYPES = (*INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Rows(NamedTuple):
    """Candidates: score, target and index of the query of each, all [row]."""

    preds: Tensor
    target: Tensor
    indexes: Tensor


# The dtypes of a state without rows.
EMPTY = (torch.float32, torch.int8, torch.int32)


class KeepsRows(SafeMetric):
    """A metric whose states ``preds``, ``target`` and ``indexes`` are lists of rows."""

    ignore_index: int | None

    def add_state(self, name: str, default: Any, dist_reduce_fx: Any = None, persistent: bool = False) -> None:
        """Add a state. The name of a state of rows contains ``ignore_index``, which selects the rows."""
        if name in Rows._fields:
            self.leave_meta()
            # torchmetrics.MetricCollection shares states between metrics if their names are equal, and their values
            # after the first batch. So the name contains all arguments that select rows, and no others.
            self._prefix = "rows" if self.ignore_index is None else f"rows(ignore_index={self.ignore_index})"
            name, dist_reduce_fx = f"{self._prefix}:{name}", "cat"
        super().add_state(name, default, dist_reduce_fx, persistent)

    def _parts(self) -> list[list[Tensor]]:
        return [getattr(self, f"{self._prefix}:{field}") for field in Rows._fields]

    def _replace(self, rows: Rows) -> None:
        for field, x in zip(Rows._fields, rows):
            setattr(self, f"{self._prefix}:{field}", [x])

    def keep(self, rows: Rows) -> None:
        """Add copies of rows."""
        narrow = [narrowed(x) for x in rows]
        with LOCK:
            for parts, x in zip(self._parts(), narrow):
                parts.append(x)

    def rows(self) -> Rows:
        """All rows as one tensor for each field. The state keeps these tensors in place of the parts."""
        for parts, dtype in zip(self._parts(), EMPTY):
            if len(parts) != 1:
                parts[:] = [torch.cat(parts) if parts else torch.empty(0, dtype=dtype, device=self.device)]
        return Rows(*(parts[0] for parts in self._parts()))

    def fits(self, name: str, rows: Tensor) -> bool:
        return rows.dim() == 1

    def merge_state(self, incoming_state: Any) -> None:
        """Add the rows of another metric of this class.

        Raises:
            ValueError: it is not a state of such a metric.
        """
        theirs = incoming_state.metric_state if isinstance(incoming_state, SafeMetric) else incoming_state
        if isinstance(theirs, dict) and (fault := self.fault(theirs)):
            raise ValueError(f"{fault}; pass a metric, or its metric_state")
        super().merge_state(incoming_state)
        self._computed = None

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        rows = self.rows()
        if dist_sync_fn is gather_all_tensors:
            rows = gathered(Rows(*(x.to(self.device) for x in rows)), process_group or self.process_group)
        else:  # a function of the user, which gathers one state at a time
            super()._sync_dist(dist_sync_fn, process_group)
            rows = Rows(*(getattr(self, f"{self._prefix}:{field}") for field in Rows._fields))
        self._replace(rows)


def narrowed(x: Tensor) -> Tensor:
    """A copy in the smallest signed integer dtype that holds all values; floats keep their dtype. Reads the values."""
    if x.dtype == torch.bool:
        return x.to(torch.int8)
    if x.is_floating_point() or x.dtype == torch.int8:
        return x.clone()
    low, high = torch.stack(x.aminmax()).tolist()
    fitting = (t for t in INTEGERS if torch.iinfo(t).min <= low and high <= torch.iinfo(t).max)
    return x.to(next(fitting), copy=True)


def gathered(rows: Rows, group: Any) -> Rows:
    """The rows of all workers, in the order of the workers: two collectives, or one if no worker has rows."""
    # The first collective exchanges the number of rows and their dtypes, which may differ between workers.
    _, world = place_in(group, rows.preds.device)
    mine = torch.tensor([len(rows.preds), *(DTYPES.index(x.dtype) for x in rows)], device=rows.preds.device)
    heads = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(heads, mine, group=group)
    counts, *codes = torch.stack(heads).T.tolist()
    if not any(counts):
        return rows
    used = [[DTYPES[c] for c, n in zip(code, counts) if n] for code in codes]
    dtypes = [functools.reduce(torch.promote_types, dtypes_of_field) for dtypes_of_field in used]
    # The second one exchanges bytes, so that fields of different dtypes travel together.
    packed = [x.to(t).unsqueeze(1).view(torch.uint8) for x, t in zip(rows, dtypes)]
    parts = torch.cat(all_gather(torch.cat(packed, dim=1), counts, group))
    fields = parts.split([t.itemsize for t in dtypes], dim=1)
    return Rows(*(x.contiguous().view(t).squeeze(1) for x, t in zip(fields, dtypes)))
