"""The base of metrics around a suite: sums of all its measures in one state, with one all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank.state.sums as state
from torchrank.collection.line_plots import plot_results
from torchrank.layouts.arrange import Batch
from torchrank.state.estimates import estimate_table
from torchrank.state.scoring import score_batch
from torchrank.state.summed import COUNTS, SummedMetric
from torchrank.state.synchronisation import all_reduce
from torchrank.state.values import Values
from torchrank.state.waiting import LOCK
from torchrank.statistics.drawing import plot_ends
from torchrank.statistics.table import Table
from torchrank.wrappers.suites import check_ids
from torchrank.wrappers.tallies import Members, PlainTally


class SuiteMetric(SummedMetric):
    """Sums of all measures of a suite over one or more groups of queries.

    The measures only define values: their own states stay empty. The state of this metric is one vector. It begins
    with ``num_counters`` numbers of the subclass; the sums of one group after the other follow, the first group being
    all queries.
    """

    higher_is_better = None
    is_differentiable = False
    #: number of further counters at the beginning of the state
    num_counters = 0
    #: a name among those that were counted as bad on this worker
    _unknown: str | None = None

    def __init__(self, tally: PlainTally, groups: int, definition: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tally, self.groups = tally, groups
        # Counters of the subclass over all workers, since the last compute.
        self._counters: Tensor | None = None
        names = [metric.definition_name for metric in tally.metrics.values()]
        self._definition = f"{definition}{tally.definition}: {', '.join(names)}"
        # The names of states may have numbers of namesakes, which depend on the metrics made before in this process.
        states = [metric._state for metric in tally.metrics.values()]
        self._state = f"{definition}{tally.definition}: {', '.join(states)}"
        size = self.num_counters + groups * tally.size
        self.add_state(f"{self._state}:sums", state.nothing(self.device, size - state.SIZE), dist_reduce_fx="sum")

    @property
    def definition_name(self) -> str:
        return self._definition

    # ---- add, compute ------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all batches."""
        super().reset()
        if not self._in_forward:
            self._unknown = None

    def add(self, batch: Batch, ids: Any = None, groups: Sequence[Members] = (None,), counters: Any = None) -> None:
        """Add the queries of a batch to the sums of all queries and of each group.

        ``counters`` are those of the subclass, or a function of the values that returns them.
        """
        values = Values.stack(score_batch(list(self.tally.metrics.values()), batch, total=False))
        queries, device = values.num_queries, values.values.device
        for members in groups:
            if members is not None and len(members) != queries:
                raise ValueError(f"Expected slices of {queries} queries, as in preds, got {len(members)}")
        groups = [None if members is None else members.to(device) for members in groups]
        numbers = None
        if self.tally.needs_ids or ids is not None:
            numbers, _ = check_ids(ids, queries, device, type(self).__name__)
        with torch.no_grad():
            sums = self.tally.sums(values, numbers, groups).flatten()
            if counters is not None:
                counters = counters(values) if callable(counters) else counters
                sums = torch.cat([counters.to(sums), sums])
        with LOCK:
            self._set("sums", state.add(self.sums, sums))
        self.notice_cut(batch.indexes)

    def counts(self, sums: Tensor) -> Tensor:
        return torch.cat([part[:, COUNTS] for part in self.tally.of_metrics(self.parts(sums)).values()])

    def parts(self, sums: Tensor) -> Tensor:
        """The sums [group, size] of each group, from the whole vector."""
        return sums[self.num_counters :].view(self.groups, self.tally.size)

    def compute(self) -> dict[str, Tensor]:
        """The results by key, over the queries of all workers: float32 [].

        Raises:
            ValueError: a worker has met bad values. The metric can be used further.
        """
        sums = self._counted(state.read(self.sums))
        bad = self.tally.errors(self.parts(sums)).sum() > 0
        return {key: self._narrow(torch.where(bad, float("nan"), x)) for key, x in self.results(sums).items()}

    def results(self, sums: Tensor) -> dict[str, Tensor]:
        """The results by key, from the whole vector of sums."""
        return self.tally.values(self.parts(sums)[0])

    def of_all_workers(self) -> Tensor:
        """The whole vector of sums over the queries of all workers.

        Raises:
            ValueError: a worker has met bad values.
        """
        with self.over_all_workers():
            sums = self._counted(state.read(self.sums))
        self.raise_errors()
        return sums

    def _counted(self, sums: Tensor) -> Tensor:
        """The sums. Their counters are kept, to raise after all workers have communicated."""
        self._errors, self._counters = self.tally.errors(self.parts(sums)), sums[: self.num_counters]
        return sums

    def raise_errors(self) -> None:
        super().raise_errors()
        if self._counters is not None:
            self.check(self._counters)

    @property
    def example(self) -> str:
        """A name that was counted as bad, for an error message."""
        return "" if self._unknown is None else f", e.g. {self._unknown!r}"

    def check(self, counters: Tensor) -> None:
        """Raise ValueError for bad arguments that the counters of the subclass have found."""

    def summary(self, level: float = 0.95, method: str | None = None) -> Table:
        """A table with a row for every metric, over the queries of all workers; see :meth:`RankingCollection.summary`.

        Like :meth:`compute` it makes one all-reduce, so all workers must call it.
        """
        sums = self.parts(self.of_all_workers())[0]
        return estimate_table(self.tally.estimates(sums, level, method or "auto"), level, method=method or "auto")

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot a row for each result, with its interval and one colour for each metric; needs matplotlib.

        Args:
            val: a result of :meth:`compute` or ``forward``, which has no intervals unless they are a bootstrap's; or a
                list of results, which are drawn as lines over time; None = compute, with the intervals of
                :meth:`summary`.
            ax: the axes to draw in; None = new axes.

        Returns:
            The figure and its axes.
        """
        if val is not None and not isinstance(val, Mapping):
            return plot_results(val, ax)
        if val is None:
            table = self.summary()
            intervals = {f"{key}/{end}": x for end in ("low", "high") for key, x in zip(table["measure"], table[end])}
            val = intervals | self.compute()
        keys = [key for key in val if not key.endswith(("/low", "/high"))]
        kinds = [
            next((n for n, of in enumerate(self.tally.metrics) if f"{key}/".startswith(f"{of}/")), 0) for key in keys
        ]
        what = f"value with its {100 * self.tally.level:g} % interval" if len(keys) < len(val) else "value"
        return plot_ends(ax, val, keys, ("", "/low", "/high"), what, kinds)

    @property
    def num_queries(self) -> int:
        """Number of queries of this worker, empty ones included; within ``sync_context()`` of all workers."""
        first = self.parts(state.read(self.sums))[0]
        return int(first[state.Sum.QUERIES])

    # ---- torchmetrics' contract --------------------------------------------------------------------------------

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:  # a function of the user
            super()._sync_dist(dist_sync_fn, process_group)
            return
        name = self.definition_name
        self._set("sums", all_reduce({name: self}, process_group or self.process_group, one_message=True)[name][0])
