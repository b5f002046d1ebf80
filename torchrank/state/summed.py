"""A metric whose state is one vector of sums under a name that no other metric has."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

import torchrank.state.sums as state
from torchrank.layouts.checks import comparable, explain
from torchrank.names.arguments import warn
from torchrank.state.sums import Sum
from torchrank.state.synchronisation import appended
from torchrank.state.torchmetrics_fixes import SafeMetric, eager

#: the sums of a mean that are never below 0
COUNTS = [Sum.W, Sum.QUERIES, Sum.EMPTY, Sum.W2, *range(Sum.ERRORS, state.SIZE)]


class SummedMetric(SafeMetric):
    """A metric whose state is a vector of sums. Their order is that of the subclass; all are added over workers."""

    #: what every update needs beside the arguments of other metrics
    asks_for = ""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.leave_meta()
        self._state = ""
        # The indexes of the first and the last row of the last update of flat rows.
        self._ends: tuple[int, int] | None = None
        # Whether batches without a relevant candidate had grades with fractions, bool []; None = there were none.
        self._fractions: Tensor | None = None
        self._in_forward = False
        # Counters of bad values of all workers, since the last compute.
        self._errors: Tensor | None = None

    @property
    def definition_name(self) -> str:
        """The name that identifies the metric on other workers."""
        return self._state

    @property
    def sums(self) -> Tensor:
        """The state: float64 [number]; float32 [2, number] on a device without float64."""
        return getattr(self, f"{self._state}:sums")

    @property
    def rows(self) -> list[Tensor] | None:
        """Per-query (value, weight), float [query, 2] for each part; None = the metric keeps none."""
        return None

    def _set(self, part: str, value: Tensor | list[Tensor]) -> None:
        setattr(self, f"{self._state}:{part}", value)

    def reducible(self) -> bool:
        """Whether the state can be reduced together with the states of other metrics now."""
        return self.dist_sync_fn is None and self.sync_on_compute and not self._is_synced

    def notice_cut(self, indexes: Tensor | None) -> None:
        """Warn if the first query of a batch of flat rows is the last query of the batch before. On the CPU only."""
        if indexes is None or not indexes.is_cpu or not len(indexes):
            return
        indexes = comparable(indexes)
        before, self._ends = self._ends, (int(indexes[0]), int(indexes[-1]))
        # If each batch numbers its queries from 0, it begins where the batch before began.
        if before is not None and before[0] < before[1] == self._ends[0] == int(indexes.min()):
            warn(
                "Counted the last query of an update and the first query of the next one, which have the same index, as"
                " two queries; if they are one, pass it whole, or use the classes of torchrank.retrieval, which join"
                " the rows of a query"
            )

    @eager
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its own value. A call that raises changes nothing."""
        self._in_forward = True
        try:
            return super().forward(*args, **kwargs)
        finally:
            self._in_forward = False

    def reset(self) -> None:
        """Forget all batches."""
        super().reset()
        if not self._in_forward:  # forward resets as well, but restores the state
            self._ends = self._fractions = None

    @contextlib.contextmanager
    def over_all_workers(self) -> Iterator[None]:
        """Context in which the state is that of all workers, as in :meth:`compute`. All workers must enter it."""
        sync = not self._is_synced and self.sync_on_compute
        with self.sync_context(self.dist_sync_fn, should_sync=sync, should_unsync=sync):
            yield

    def _narrow(self, value: Tensor) -> Tensor:
        """A value in float32, unless it is finite in float64 only, or a count that float32 rounds."""
        narrow = value.to(torch.float32)
        if not (value.is_cpu or self._should_unsync):  # forward must not wait for an accelerator
            return narrow
        rounded_count = (narrow != value) & (value == value.round()) & (value.abs() <= 2**53)
        return value if bool(((narrow.isinf() & value.isfinite()) | rounded_count).any()) else narrow

    def raise_errors(self) -> None:
        """Raise for bad values, after all workers have communicated and the state is unsynced.

        Raises:
            ValueError: a worker has met bad values; the message counts them by kind. The metric can be used further.
        """
        if self._errors is not None and (fault := explain(self._errors)):
            self._computed = None
            raise ValueError(f"{self._state.split('#')[0]}: {fault}")

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        stock = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def computed(*args: Any, **kwargs: Any) -> Any:
            value = stock(*args, **kwargs)
            if self._should_unsync:  # forward returns NaN instead
                self.raise_errors()
            return value

        return computed

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        # forward calls this while the metric contains the batch alone; incoming_state is the state before the batch.
        for name, incoming in incoming_state.items():
            setattr(self, name, self.joined(name, incoming, getattr(self, name)))

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the state of another metric with the same label. Its queries follow the queries of this metric.

        Raises:
            ValueError: the other metric has another label.
        """
        for name, value in self.mergeable(incoming_state).items():
            setattr(self, name, self.joined(name, getattr(self, name), value))
        self._computed = None
        self._update_count += incoming_state._update_count if isinstance(incoming_state, Metric) else 1
        if self._fractions is None:
            self._fractions = getattr(incoming_state, "_fractions", None)

    def joined(self, name: str, earlier: Any, later: Any) -> Any:
        """The value of a state over the queries of two values of it, on the device of the earlier one."""
        if isinstance(earlier, list):
            return appended(earlier, later)
        return state.add(earlier, later)

    def mergeable(self, other: dict[str, Any] | Metric) -> dict[str, Any]:
        """The state of another metric with the same label.

        Raises:
            ValueError: it has another label, or is not a state of such a metric.
        """
        theirs = other.metric_state if isinstance(other, Metric) else other
        if not isinstance(theirs, dict) or theirs.keys() != self._defaults.keys():
            raise ValueError(f"Expected the state of another {self._state}, got {getattr(other, 'label', other)!r}")
        if fault := self.fault(theirs):
            raise ValueError(f"{fault}; pass a metric, or its metric_state")
        return theirs

    def counts(self, sums: Tensor) -> Tensor:
        """The numbers in a state [number] that are never below 0."""
        return sums[:0]

    def fault(self, states: Mapping[str, Any]) -> str:
        name = f"{self._state}:sums"
        if fault := super().fault(states):
            return fault
        counts = self.counts(state.read(self.restored(states[name])))
        return "" if bool((counts >= 0).all()) else f"Expected {name} to have counts >= 0, got {float(counts.min()):g}"

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        is_state = x.dtype == torch.float64 or state.compensated(x)
        return state.carry(x, device) if is_state else x.to(device)

    def restored(self, x: Tensor) -> Tensor:
        return state.carry(x, self.device)
