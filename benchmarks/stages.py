"""Where the time of a class of ``torchrank.retrieval`` goes: ``python -m benchmarks --stages``."""

from __future__ import annotations

import contextlib
import functools
import importlib
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import benchmarks.contenders as c
import benchmarks.data as data
from benchmarks.flat_rows import MANY_ROWS, ROWS_OF_LISTS
from benchmarks.plan import Data

#: functions, in the order in which they run; the time of a stage is that of its functions, without stages inside them
STAGES = {
    "update: checks of values": ("torchrank.retrieval:_binary",),
    "update: copies in short dtypes": ("torchrank.retrieval:narrowed",),
    "compute: concatenation": ("torchrank.retrieval:Retrieval.all_rows",),
    "compute: rows of other metrics": ("torchrank.retrieval:_same",),
    "compute: layout": ("torchrank.retrieval:arrange", "torchrank.engine.rank_layout:plan"),
    "rank: lists of equal length?": ("torchrank.engine.rank_layout:as_matrix",),
    "rank: keys": ("torchrank.engine.lists:PackedRows.of", "torchrank.engine.lists:falling"),
    "rank: sort": ("torchrank.engine.lists:sort_in_place", "torchrank.engine.lists:descending"),
    "rank: ranks of a matrix": ("torchrank.engine.lists:descending", "torchrank.engine.lists:_ranks"),
    "rank: entries": ("torchrank.engine.lists:_entries", "torchrank.engine.lists:PackedRows.entries"),
    "rank: ties": ("torchrank.engine.lists:PackedRows.tied", "torchrank.engine.lists:PackedRows.tie_groups"),
    "rank: groups of queries": ("torchrank.engine.lists:buckets",),
    "rank: rectangles": ("torchrank.engine.lists:_rectangle",),
    "measure": ("torchrank.metrics.base:RankingMetric.resolve_ties", "torchrank.metrics.base:RankingMetric.measure"),
    "empty queries": ("torchrank.retrieval:Retrieval.all_empty",),
    "aggregate": ("torchrank.retrieval:Retrieval.aggregated",),
}
REST = "everything else"

#: repetitions, and repetitions before them that are not counted
RUNS, BEFORE = 30, 5


class Watch:
    """The seconds of stages without the stages inside them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._last = 0.0

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Context whose time counts for a stage."""
        self._lap()
        self._running.append(name)
        try:
            yield
        finally:
            self._lap()
            self._running.pop()

    def _lap(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._last
        self._last = now

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function, or a function that returns a generator, whose time counts for a stage."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                found = function(*args, **kwargs)
            return self._steps(name, found) if isinstance(found, Iterator) else found

        return timed

    def _steps(self, name: str, found: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self.stage(name):
                one = next(found, self)
            if one is self:
                return
            yield one


def table() -> str:
    """The milliseconds of each stage, for one class and two orders of rows, beside one sort of the keys."""
    orders = {
        "in no order": data.positive_flat_rows({**MANY_ROWS, "share": 0.1}, "cpu"),
        "in lists": data.positive_lists({**ROWS_OF_LISTS, "share": 0.1}, "cpu"),
    }
    found = {order: _of_class("Precision", rows) for order, rows in orders.items()}
    names = [*STAGES, REST]
    lines = [f"RetrievalPrecision(top_k=10), ms{'':<14}" + "".join(f"{order:>14}" for order in found)]
    lines += [f"{'rows':<42}" + "".join(f"{len(rows.keys):>14,}" for rows in orders.values())]
    lines += [f"{name:<42}" + "".join(f"{one.get(name, 0.0):14.3f}" for one in found.values()) for name in names]
    lines += [f"{'together':<42}" + "".join(f"{sum(one.values()):14.3f}" for one in found.values())]
    sorts = [_median(rows.keys.sort) for rows in orders.values()]
    lines += [f"{'torch.sort of int64 keys':<42}" + "".join(f"{1e3 * seconds:14.3f}" for seconds in sorts)]
    return "\n".join(lines)


def _of_class(name: str, rows: Data) -> dict[str, float]:
    """The median milliseconds of each stage."""
    ready = c.retrieval(name)(rows)
    runs = []
    for _ in range(BEFORE + RUNS):
        watch = Watch()
        with contextlib.ExitStack() as patches:
            for stage, functions in STAGES.items():
                for function in functions:
                    owner, attribute = _found(function)
                    _patch(patches, watch, stage, owner, attribute)
            with watch.stage(REST):
                ready.run()
        runs.append(dict(watch.seconds))
    counted = runs[BEFORE:]
    return {stage: 1e3 * statistics.median(run.get(stage, 0.0) for run in counted) for stage in [*STAGES, REST]}


def _found(path: str) -> tuple[Any, str]:
    """The owner of a function, given as module:Class.function, and its name there."""
    module, _, rest = path.partition(":")
    *classes, name = rest.split(".")
    return functools.reduce(getattr, classes, importlib.import_module(module)), name


def _patch(patches: contextlib.ExitStack, watch: Watch, stage: str, owner: Any, name: str) -> None:
    static = vars(owner)[name]
    function = watch.watched(stage, getattr(static, "__func__", static))
    patches.enter_context(
        mock.patch.object(owner, name, classmethod(function) if isinstance(static, classmethod) else function)
    )


def _median(run: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(BEFORE + RUNS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[BEFORE:])
