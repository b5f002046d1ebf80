"""A metric whose state is one vector of sums under a name that no other metric has."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

import torchrank.state.sums as state
from torchrank.hardware.devices import reading_is_free
from torchrank.layouts.bad_values import explain
from torchrank.state.synchronisation import appended
from torchrank.state.torchmetrics_fixes import SafeMetric


class SummedMetric(SafeMetric):
    """A metric whose state is a vector of sums. Their order is that of the subclass; all are added over workers."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.leave_meta()
        self._state = ""
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

    @contextlib.contextmanager
    def over_all_workers(self) -> Iterator[None]:
        """Context in which the state is that of all workers, as in :meth:`compute`. All workers must enter it."""
        sync = not self._is_synced and self.sync_on_compute
        self.sync(dist_sync_fn=self.dist_sync_fn, should_sync=sync)
        try:
            yield
        finally:
            self.unsync(sync and self._is_synced)

    def _narrow(self, value: Tensor) -> Tensor:
        """A value in float32, unless it is finite in float64 only."""
        narrow = value.to(torch.float32)
        readable = reading_is_free(value) or self._should_unsync  # forward must not wait for an accelerator
        return value if readable and bool((narrow.isinf() & value.isfinite()).any()) else narrow

    def raise_errors(self) -> None:
        """Raise for bad values, after all workers have communicated and the state is unsynced.

        Raises:
            ValueError: a worker has met bad values; the message counts them by kind. The metric can be used further.
        """
        if self._errors is not None and (found := explain(self._errors)):
            self._computed = None
            raise ValueError(f"{self._state.split('#')[0]}: {found}")

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

    def joined(self, name: str, earlier: Any, later: Any) -> Any:
        """The value of a state over the queries of two values of it, on the device of the earlier one."""
        if isinstance(earlier, list):
            return appended(earlier, later)
        return state.add(earlier, state.carry(later, earlier.device))

    def mergeable(self, other: dict[str, Any] | Metric) -> dict[str, Any]:
        """The state of another metric with the same label.

        Raises:
            ValueError: it has another label, or is no state.
        """
        theirs = other.metric_state if isinstance(other, Metric) else other
        if not isinstance(theirs, dict) or theirs.keys() != self._defaults.keys():
            raise ValueError(f"Expected the state of another {self._state}, got {getattr(other, 'label', other)!r}")
        return theirs

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        is_state = x.dtype == torch.float64 or state.compensated(x)
        return state.carry(x, device) if is_state else x.to(device)

    def restored(self, x: Tensor) -> Tensor:
        return state.carry(x, self.device)
