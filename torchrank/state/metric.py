"""The base of all metrics: what torchmetrics asks for, states of sums and of rows, averages over queries, and names."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from types import MethodType, NoneType
from typing import Any, ClassVar, Self, TypeGuard, dataclass_transform

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank.names.labels as labels
import torchrank.names.parameters as parameters
import torchrank.state.sums as state
from torchrank.hardware.devices import eager
from torchrank.layouts.arrange import Batch
from torchrank.layouts.checks import comparable, explain
from torchrank.names.arguments import plain, warn
from torchrank.names.registry import DATA, KINDS
from torchrank.ranking.ranking import only
from torchrank.state.scoring import Status, Values, score_batch
from torchrank.state.sums import MEANS, Estimate, Interval, Mean, Method, Sum, aggregate, from_sums, is_mean
from torchrank.state.synchronisation import State, all_reduce, appended
from torchrank.state.waiting import LOCK, Waiting


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(
    parameters.parameter, parameters.number, parameters.integer, parameters.cutoff, parameters.one_of, parameters.flag,
    parameters.described, parameters.of_torchmetrics, parameters.derived, parameters.fixed,
))  # fmt: skip
class SafeMetric(Metric):
    """A :class:`torchmetrics.Metric` that a call that raises leaves unchanged, and that no worker waits for forever.

    All its states are added over workers, or follow each other. Their names begin with that of the metric.
    """

    full_state_update = False
    #: what every update needs beside the arguments of other metrics
    asks_for = ""
    #: the dict of its results, for an error message
    results_to_log = "metric.compute()"
    #: the parameters of a measure by name: those of the class itself, then those of its parents
    declared: ClassVar[Mapping[str, parameters.Parameter]] = {}
    #: names of attributes that cannot be set any more
    _fixed = frozenset[str]()
    #: the name of the metric, with which those of its states begin
    _state = ""
    #: whether small batches may wait to be ranked together, see :meth:`torchrank.RankingMetric.update`
    waits = True
    #: the batches that wait for this metric, if it alone is updated; None = its batches never wait
    _waiting: Waiting | None = None
    #: the batches that wait for this metric and perhaps others, which have its states as long; None = none
    _held: Waiting | None = None
    _in_forward = False
    #: the indexes of the first and the last row of the last update of flat rows
    _ends: tuple[int, int] | None = None
    #: whether batches had grades with fractions, bool []; None = no floating grades
    _fractions: Tensor | None = None
    #: counters of bad values of all workers, since the last compute
    _errors: Tensor | None = None
    #: the sums that were read last, of all workers
    _read: Tensor | None = None
    #: the state over all workers, while a collection that has reduced it computes
    _over_workers: State | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # torch.jit.script of a module with a metric would compile its properties.
        owned = [(name, value) for base in cls.__mro__ for name, value in vars(base).items()]
        cls.__jit_unused_properties__ = [name for name, value in owned if isinstance(value, property)]
        parameters.declare(cls)
        if cls.declared:
            become_measure(cls)
        if "__init__" in vars(cls):
            cls.__init__ = eager(cls.__init__)  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._fixed:
            raise AttributeError(f"Expected {name} of {self} to stay as it is, got {value!r}; make a new metric")
        if ":" in name and self._state:
            if not name.startswith(f"{self._state}:"):
                raise ValueError(  # MetricCollection writes the state of the first metric of a group into the others
                    f"Expected {self._state} to keep its own state, got that of {name.rpartition(':')[0]}; leave"
                    " compute_groups out of MetricCollection, which finds equal states by itself"
                )
            self.rank_waiting()
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        attributes = self.__dict__
        if name in attributes.get("_defaults", ()):
            with LOCK:  # another thread may add the next batch
                self.rank_waiting()
                if name in attributes:
                    return attributes[name]
        if name == "items":  # asked for by Lightning's log_dict
            raise AttributeError(
                f"Expected a dict or a collection, got a {type(self).__name__}; log one value with self.log(name,"
                f" metric), several in on_validation_epoch_end: self.log_dict({self.results_to_log}, sync_dist=True);"
                " metric.reset()"
            )
        return super().__getattr__(name)

    def rank_waiting(self) -> None:
        """Rank the batches that wait for this metric."""
        with LOCK:
            if self._held is not None:
                self._held.flush()

    def count_update(self) -> None:
        """Note an update, as torchmetrics does in each."""
        attributes = self.__dict__
        attributes["_update_count"] += 1
        attributes["_computed"] = None

    # ---- the state -----------------------------------------------------------------------------------------------

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

    # ---- torchmetrics' contract ----------------------------------------------------------------------------------

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        # torch.jit.script of a module with a metric reads these, and not those of the class.
        vars(self)["__annotations__"] = {"training": bool}
        if self._device.type == "meta":  # the default device, where a state would have no values
            self._device = torch.device("cpu")
        # A function of the user that functools.wraps has given the marks of ours is not one of ours.
        if getattr(update, "eager", None) is getattr(update, "__func__", self):  # the result here is eager as well
            update = MethodType(update.__wrapped__, self)  # type: ignore[attr-defined]
        wrapped = super()._wrap_update(update)
        if getattr(update, "bulk", None) is getattr(update, "__func__", self):
            vars(self)["_waiting"] = waiting = Waiting(self, wrapped, update, lambda: [self])
            wrapped = functools.wraps(update)(functools.partial(waiting.update))
        if hasattr(update, "__signature__"):  # copied from the function, with self
            wrapped.__signature__ = inspect.signature(update)  # type: ignore[attr-defined]
        return eager(wrapped)

    @eager
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its own value. A call that raises changes nothing."""
        if self._is_synced:
            return super().forward(*args, **kwargs)  # raises torchmetrics' error
        # torchmetrics changes these attributes in forward, and restores them only if nothing raises.
        before = {name: list(value) if isinstance(value, list) else value for name, value in self.metric_state.items()}
        before |= {name: getattr(self, name) for name in ("_update_count", "compute_on_cpu")}
        self._in_forward = True
        try:
            return super().forward(*args, **kwargs)
        except Exception:
            for name, value in before.items():
                setattr(self, name, value)
            self._is_synced, self._computed = False, None
            self._to_sync, self._should_unsync, self._enable_grad = self.sync_on_compute, True, False
            raise
        finally:
            self._in_forward = False

    @eager
    def reset(self) -> None:
        """Forget all batches."""
        if self._waiting is not None:
            self._waiting.drop()
        for name, default in self._defaults.items():
            if isinstance(default, list):
                setattr(self, name, [])  # torchmetrics empties the list in place, but a wrapper may hold it
        super().reset()
        if not self._in_forward:  # forward resets as well, but restores the state
            self._ends = self._fractions = None

    def _copy_state_dict(self) -> dict[str, Any]:
        # Tensors in lists are never changed in place, so forward and synchronisation need no copies of them.
        return {name: x.copy() if isinstance(x, list) else x.clone() for name, x in self.metric_state.items()}

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        # forward calls this while the metric contains the batch alone; incoming_state is the state before the batch.
        for name, incoming in incoming_state.items():
            setattr(self, name, self.joined(name, incoming, getattr(self, name)))

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        stock = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def computed(*args: Any, **kwargs: Any) -> Any:
            if self._to_sync and self.distributed_available_fn():
                self._computed = None  # a worker that returned a cached value would leave the others waiting
            value = stock(*args, **kwargs)
            if self._should_unsync:  # forward returns NaN instead
                self.raise_errors()
            return value

        return eager(computed)

    @contextlib.contextmanager
    def sync_context(
        self,
        dist_sync_fn: Callable[..., Any] | None = None,
        process_group: Any = None,
        should_sync: bool = True,
        should_unsync: bool = True,
        distributed_available: Callable[..., bool] | None = None,
    ) -> Iterator[None]:
        """Context in which the state is that of all workers, as :meth:`torchmetrics.Metric.sync_context`.

        All workers must enter it. The state of this worker is back afterwards, also after an exception.
        """
        self.sync(dist_sync_fn, process_group, should_sync, distributed_available)
        try:
            yield
        finally:
            self.unsync(self._is_synced and should_unsync)

    @eager
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

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        # fn may change the dtype as well, e.g. in `half()`. Apply it to an empty tensor and follow its device only.
        def move(x: Tensor) -> Tensor:
            return self.moved(x, fn(torch.empty(0, dtype=torch.float32, device=x.device)).device)

        return super()._apply(move, exclude_state)

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        """A state or another tensor of the metric, on another device."""
        is_sums = x.dtype == torch.float64 or state.compensated(x)
        return state.carry(x, device) if is_sums else x.to(device)

    def __getstate__(self) -> dict[str, Any]:
        with LOCK:
            self.rank_waiting()
            return {name: value for name, value in super().__getstate__().items() if name not in ("_waiting", "_held")}

    # ---- checkpoints ---------------------------------------------------------------------------------------------

    def place(self) -> tuple[int, int]:
        """The rank of this worker, and the number of workers whose states are added; (0, 1) if it is alone."""
        if not self.sync_on_compute or not self.distributed_available_fn() or not dist.is_initialized():
            return 0, 1
        return dist.get_rank(self.process_group), dist.get_world_size(self.process_group)

    @property
    def _part(self) -> str:
        """The key in a checkpoint of the worker that saved it, and of the number of workers; [0, 1] = of all."""
        return f"{next(iter(self._defaults)).rpartition(':')[0]}:part"

    def state_dict(self, *args: Any, prefix: str = "", **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The state if it is persistent, and on several workers the rank of this worker and their number.

        Within ``metric.sync_context()``, which all workers enter, it is the state of all workers. It loads into any
        number of workers: the first takes it, the others begin empty. The state of one worker loads into the worker of
        the same rank among as many workers. Elsewhere ``load_state_dict`` raises RuntimeError, unless the state is
        empty, as it is between epochs.
        """
        saved = super().state_dict(*args, prefix=prefix, **kwargs)  # type: ignore[misc]
        place = self.place()
        if place[1] > 1 and any(self._persistent.values()):
            saved[prefix + self._part] = torch.tensor((0, 1) if self._is_synced else place, device=self.device)
        return saved

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any) -> None:
        saved_values = {name: state_dict.pop(prefix + name) for name in self._defaults if prefix + name in state_dict}
        part = state_dict.pop(prefix + self._part, None)
        super()._load_from_state_dict(state_dict, prefix, *args)
        if not saved_values:
            return
        (rank, world), saved = self.place(), part.tolist() if isinstance(part, Tensor) else part
        fault, way_out = self.fault(saved_values), "leave its keys out of the state_dict"
        of_all_workers = saved in (None, [0, 1])
        if not (fault or of_all_workers or saved == [rank, world] or all(map(_is_empty, saved_values.values()))):
            fault = f"Expected the state of all workers, or of [worker, of] [{rank}, {world}], got that of {saved}"
            way_out = f"save it in metric.sync_context() on all workers, or {way_out}"
        if fault:  # load_state_dict raises an error with these messages
            args[-1].append(f"{prefix[:-1]}: {fault}; {way_out}.".removeprefix(": "))
            return
        # Only the sum over workers counts, so one of them takes the whole.
        for name, value in (saved_values if not of_all_workers or rank == 0 else self._defaults).items():
            # A copy, because the metric must not share memory with the checkpoint.
            copied = self.restored(value).clone() if isinstance(value, Tensor) else [self.restored(x) for x in value]
            setattr(self, name, copied)
        self._computed = None
        self._update_count = max(1, self._update_count)

    def fault(self, states: Mapping[str, Any]) -> str:
        """What is wrong with states that are to be loaded or merged, "Expected ..., got ..."; empty = nothing."""
        numbers = set()
        for name, default in self._defaults.items():
            value = states.get(name)
            if isinstance(default, Tensor):
                if not _is_readable(value) or _told(self.restored(value)) != _told(default):
                    return f"Expected {name} to be {_told(default)}, got {_told(value)}"
            elif isinstance(value, list | tuple) and all(_is_readable(x) and self.fits(name, x) for x in value):
                numbers.add(sum(map(len, value)))
            else:
                return f"Expected {name} to be a list of tensors as in metric_state, got {_told(value)}"
        if len(numbers) > 1:
            return f"Expected as many rows in all lists of the state, got {sorted(numbers)}"
        if (name := f"{self._state}:sums") in self._defaults:
            counts = self.counts(state.read(self.restored(states[name])))
            if not bool((counts >= 0).all()):
                return f"Expected {name} to have counts >= 0, got {float(counts.min()):g}"
        return ""

    def counts(self, sums: Tensor) -> Tensor:
        """The numbers in a state [number] that are never below 0."""
        return sums[:0]

    def fits(self, name: str, rows: Tensor) -> bool:
        """Whether a tensor can be in a list of the state."""
        return True

    def restored(self, x: Tensor) -> Tensor:
        """A saved state, possibly of another device, as it is on this device."""
        return state.carry(x, self.device)


def _is_readable(x: object) -> TypeGuard[Tensor]:
    """Whether a state is a dense tensor of real numbers."""
    if not isinstance(x, Tensor) or x.is_nested or x.is_meta or x.is_quantized:
        return False
    return x.layout is torch.strided and not x.is_complex()


def _is_empty(value: Tensor | list[Tensor]) -> bool:
    """Whether a state is that of a metric without queries."""
    return not any(bool(x.any()) if x is value else len(x) for x in ([value] if isinstance(value, Tensor) else value))


def _told(x: object) -> str:
    """A state in an error message."""
    if isinstance(x, list | tuple):
        return f"a {type(x).__name__} of {', '.join(map(_told, x[:3])) or 'nothing'}"
    return f"a tensor {list(x.shape)} of {x.dtype}" if isinstance(x, Tensor) and not x.is_nested else type(x).__name__


#: the sums of a mean that are never below 0
COUNTS = [Sum.W, Sum.QUERIES, Sum.EMPTY, Sum.W2, *range(Sum.ERRORS, state.SIZE)]


def become_measure(cls: Any) -> None:
    """Complete the class of a measure: its docstring, constructor, bounds and entry in the registry."""
    if cls.__doc__:
        cls.__doc__ = parameters.documented(cls)
    if "__init__" not in vars(cls):
        write = parameters.constructor(cls)

        @functools.wraps(write)
        def construct(self: Measure, *args: Any, **kwargs: Any) -> None:
            write(self, *args, **kwargs)
            Measure.__init__(self)

        cls.__init__ = construct
    cls.plot_lower_bound, cls.plot_upper_bound = plot_bounds(cls.value_range)
    cls.takes_top_k = cls.declared["top_k"].hint is not NoneType
    if vars(cls).keys() & {"measure", "numerator"} and "monotone_behind" not in vars(cls):
        cls.monotone_behind = "measure" not in vars(cls)
    # A class with its own registry is the base of a kind of measures.
    if "registry" in vars(cls) and vars(cls).get("listed", True):
        KINDS.append(cls.registry)
    if name := vars(cls).get("name"):
        if not re.fullmatch("[a-z][a-z0-9]*", name):
            raise TypeError(f"Expected {cls.__name__}.name to be lower-case letters and digits, got {name!r}")
        # The same class may be defined again, for example in a cell of a notebook.
        if name in cls.registry and not _same(cls.registry[name], cls):
            raise TypeError(f"Expected {cls.__name__} to have a name of its own, got {name!r}; choose another name")
        cls.registry[name] = cls
        if cls.__module__.startswith("torchrank."):
            cls.known_as = DATA["measures"].get(name, {})


def plot_bounds(value_range: tuple[float, float]) -> tuple[float | None, ...]:
    """The ends of the axis of a plot; None = the values decide."""
    return tuple(limit if math.isfinite(limit) else None for limit in value_range)


def _same(first: type, second: type) -> bool:
    """Whether two classes have the same module and name, for example one defined twice in a notebook."""
    return (first.__module__, first.__qualname__) == (second.__module__, second.__qualname__)


class Measure(SafeMetric):
    """The average over queries of values that arrive in batches, with a name and parameters.

    The state is one small vector of sums, for any number of queries. Only an ``aggregation`` other than a mean or
    a sum keeps the values. Several threads may call ``update`` at once, but not ``forward``, ``compute`` or ``reset``.
    For a batch with bad values ``forward`` returns NaN, and :meth:`compute` raises.

    On several workers :meth:`compute`, :meth:`interval` and the summary of a collection are of all workers, and wait
    for them. The properties :attr:`standard_error`, :attr:`num_queries` and :attr:`num_empty` do not wait: they are of
    this worker, and within ``metric.sync_context()`` of all.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        process_group, dist_sync_fn, distributed_available_fn, sync_on_compute, dist_sync_on_step, compute_on_cpu,
            compute_with_cache: as :class:`torchmetrics.Metric`.

    Raises:
        TypeError: the class has the name of another measure, or an argument has an unknown name.
        ValueError: an argument has an unknown value.
    """

    is_differentiable = False
    higher_is_better = True

    #: its name in labels
    name: ClassVar[str] = ""
    #: every measure of a kind by its name
    registry: ClassVar[dict[str, Any]]
    #: its names in other libraries, with the settings that reproduce them, as in ``torchrank/names/names.toml``, which
    #: has those of the measures of this package
    known_as: ClassVar[Mapping[str, Any]] = {}
    #: smallest and largest value
    value_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    #: whether ``score`` returns the numbers of each query that are summed further
    shows_extra: ClassVar[bool] = False
    #: whether it measures recommended lists, and not rankings
    takes_lists: ClassVar[bool] = False
    #: whether it can be cut at a rank; False if a class declares ``top_k: None = None``
    takes_top_k: ClassVar[bool] = True
    #: whether a relevant candidate behind the reach of :meth:`need` matters only because it is relevant, not by its
    #: rank, and one more such candidate never raises the value of a query that is not empty. By default False for a
    #: class that defines :meth:`measure`, and True for a class that defines :meth:`numerator`: one more relevant
    #: candidate should not lower the :meth:`denominator`
    monotone_behind: ClassVar[bool] = False

    top_k: int | None = parameters.integer(default=None, least=1, kw_only=False)
    #: the cutoff as a share of each list, "10%", or as a cost, "2000tok"; then ``top_k`` is None
    relative: str | None = parameters.derived(default=None)
    process_group: Any = parameters.of_torchmetrics(default=None)
    dist_sync_fn: Callable[..., Any] | None = parameters.of_torchmetrics(default=None)
    distributed_available_fn: Callable[[], bool] | None = parameters.of_torchmetrics(default=None)
    sync_on_compute: bool = parameters.of_torchmetrics(default=True)
    dist_sync_on_step: bool = parameters.of_torchmetrics(default=False)
    compute_on_cpu: bool = parameters.of_torchmetrics(default=False)
    compute_with_cache: bool = parameters.of_torchmetrics(default=True)

    def __init__(self) -> None:
        """Check the parameters, which are attributes already, and create an empty state."""
        if self.name not in self.registry or not _same(self.registry[self.name], type(self)):
            raise TypeError(
                f"Expected {type(self).__name__} to have a name of its own, got {self.name!r}; set the attribute name"
            )
        others = {name: getattr(self, name) for name, param in self.declared.items() if param.of_torchmetrics}
        super().__init__(**others)
        catalogue = {}
        for name, param in self.declared.items():
            if param.of_catalogue:
                catalogue[name] = vars(self).pop(name, param.default)
            elif param.init and name not in others and (value := getattr(self, name)) is not param.default:
                setattr(self, name, plain(param.checked(type(self), name, value)))
        if self.top_k is not None and not self.takes_top_k:
            raise ValueError(
                f"Expected no top_k for {type(self).__name__}, which reads the whole list, got {self.top_k}"
            )
        # Attributes come first: the checks of a subclass and its catalogue read them.
        self.__post_init__()
        self.begin(self.keep(catalogue))

    def __post_init__(self) -> None:
        """Check arguments against each other. All of them are attributes already. A subclass calls its parent first."""

    def changed(self, **parameters: Any) -> Self:
        """A new metric with other values of some parameters."""
        same = [name for name, param in self.declared.items() if param.init and not param.of_torchmetrics]
        values = {name: getattr(self, name) for name in same} | {"top_k": self.relative or self.top_k}
        return type(self)(**(values | parameters))

    def reports(self, value_range: tuple[float, float], higher_is_better: bool | None) -> None:
        """Set a range and a direction of the reported values that differ from the class."""
        low, high = plot_bounds(value_range)
        # torchmetrics raises if these attributes are assigned, so they are written to the instance's dict.
        vars(self).update(
            value_range=value_range, plot_lower_bound=low, plot_upper_bound=high, higher_is_better=higher_is_better
        )

    def keep(self, catalogue: dict[str, Any]) -> str:
        """Store the data about a catalogue. Returns its digest, which becomes part of the name of the state."""
        return ""

    @classmethod
    @functools.cache
    def definition(cls) -> dict[str, Any]:
        """The arguments that change the value, with their defaults. The measure's own arguments come first."""
        shown = {name: param for name, param in cls.declared.items() if param.kw_only and param.labelled}
        return {name: param.default for name, param in shown.items() if param.default is not parameters.REQUIRED}

    @property
    def label(self) -> str:
        """Name, parameters that differ from their defaults, and cutoff: ``map(normalize=min)@10``."""
        if (label := vars(self).get("_label")) is not None:
            return label
        values = {name: (getattr(self, name), default) for name, default in self.definition().items()}
        differing = {k: v for k, (v, default) in values.items() if not isinstance(v, Tensor) and v != default}
        return labels.write(self.name, differing, self.relative or self.top_k)

    @property
    def definition_name(self) -> str:
        # Without the numbers of namesakes, which depend on the metrics that a process has made before.
        return self.label + self._known

    def begin(self, known: str = "") -> None:
        """Create an empty state. ``known`` identifies data that are not part of the label, such as a catalogue."""
        # Two callables may share a name, and so a label. Their numbers keep the states apart.
        callables = [value for name in self.definition() if callable(value := getattr(self, name))]
        namesakes = "".join(f"#{n}" for value in callables if (n := labels.namesake(value)))
        label = self.label
        # torchmetrics.MetricCollection merges metrics if the names of their states are equal, and their values after
        # the first batch. The colon keeps the names apart from attributes.
        self._state = label + namesakes + known
        self.add_state(f"{self._state}:sums", state.nothing(self.device, self.num_extra_sums), dist_reduce_fx="sum")
        self.keeps_values = not from_sums(self.aggregation)
        if self.keeps_values:
            self.add_state(f"{self._state}:values", [], dist_reduce_fx="cat")
        self._known, self._label = known, label
        # A changed parameter would make the label, and so the name of the state, wrong.
        self._fixed = frozenset({"top_k", *self.definition()})

    @functools.cached_property
    def num_extra_sums(self) -> int:
        """Number of further sums in the state, besides the sums of a mean."""
        return 0

    @property
    def weighs_lists(self) -> bool:
        """Whether the weight of a query depends on its list, so that it differs between systems."""
        return False

    def further_sums(self, extra: Any, weights: Tensor) -> Tensor:
        """The further sums [number] of a batch, from ``extra`` of its values, and the final weights [query].

        By default ``extra`` is [number, query], and the sums are those of extra x weight.
        """
        return only(weights > 0, extra * weights).sum(-1)

    def scored(self, batch: Batch, result: Values | None = None, notice: bool = True) -> Any:
        """The return value of ``score`` for a batch. Waits for the device, so ``update`` does not call it.

        Args:
            batch: the batch.
            result: its values; None = they are measured.
            notice: whether to warn of grades that are all below the level of relevance.

        Raises:
            ValueError: the batch has bad values; the error names the first query with them.
        """

        def of(part: Batch) -> Values:
            return score_batch([self], part, total=False).of(0)

        now = self._fractions
        if result is None:
            self._fractions = None
            result = of(batch)
            now, self._fractions = self._fractions, now
        if faults := explain(
            result.errors, lambda kind: batch.first(kind, lambda part: of(part).errors), batch.outside
        ):
            raise ValueError(f"{self.label}: {faults}")
        counted = result.status != Status.ABSENT
        if notice:
            self.notice_fractions(int(counted.sum()), int((result.status == Status.EMPTY).sum()), now)
        return self.shown(result)

    def shown(self, result: Values) -> Any:
        """The values that ``score`` returns."""
        return result.values

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one value, or a list of values over time, with the bounds of the measure. Needs matplotlib."""
        if isinstance(val, list | tuple):
            val = [torch.as_tensor(value, device="cpu") for value in val]
        figure, axes = self._plot(torch.as_tensor(val, device="cpu") if isinstance(val, float) else val, ax)
        axes.set_ylabel(self.label)  # type: ignore[union-attr]
        return figure, axes

    def extra_repr(self) -> str:
        return self.label

    @property
    def rows(self) -> list[Tensor] | None:
        """Per-query (value, weight), float [query, 2] for each part; None for a mean or a sum, which keep none."""
        return getattr(self, f"{self._state}:values") if self.keeps_values else None

    def counts(self, sums: Tensor) -> Tensor:
        return sums[COUNTS]

    def fits(self, name: str, rows: Tensor) -> bool:
        return rows.dim() == 2 and rows.shape[1] == 2 and rows.is_floating_point()

    # ---- add, compute ------------------------------------------------------------------------------------------

    def accumulate(self, found: Values, n: int = 0) -> None:
        """Add the sums, and if they are kept the values, of a batch, which was scored for this metric as the n-th."""
        assert found.sums is not None
        name = f"{self._state}:sums"
        with LOCK:
            vars(self)[name] = state.add(getattr(self, name), found.sums[n])
            if self.keeps_values:
                own = found.of(n)
                values = torch.where(own.kinds[2], own.values, float("nan"))
                self._set("values", appended(self.rows or [], [torch.stack([values, own.final_weights], dim=-1)]))
                if self.compute_on_cpu:
                    self._move_list_states_to_cpu()

    def add_scored(self, found: Values, n: int) -> None:
        """As ``update``, with the values of a batch that was scored for several metrics, of which this is the n-th."""
        self.count_update()
        self.accumulate(found, n)

    def forward_scored(self, found: Values, n: int) -> Any:
        """As ``forward``, with the values of a batch, see :meth:`add_scored`."""
        update = vars(self)["update"]
        vars(self)["update"] = lambda: self.add_scored(found, n)
        try:
            return self()
        finally:
            vars(self)["update"] = update

    def compute(self) -> Tensor:
        """The aggregate of all queries, of all workers, unlike :attr:`standard_error` and :attr:`num_queries`.

        Returns:
            float32 []; NaN if no query was scored. With ``aggregation="none"`` float32 [query], NaN for skipped
            queries. float64 if a value is beyond the range of float32, e.g. for exponential gains of large grades, or a
            count above 2**24, which float32 would round.
            ``forward`` on an accelerator does not read values: it returns float32, with infinity for such a value.

        Raises:
            ValueError: a worker has met bad values; the message counts them by kind. The metric can be used further.
        """
        self._read = sums = state.read(self.sums)
        self._errors = sums[Sum.ERRORS : state.SIZE]
        value = self.value_of(sums, self._joined_rows())
        return self._narrow(torch.where(self._errors.sum() > 0, float("nan"), value))

    def raise_errors(self) -> None:
        super().raise_errors()
        if self._fractions is not None and self._read is not None:
            queries, empty = self._read[[Sum.QUERIES, Sum.EMPTY]].tolist()
            self.notice_fractions(queries, empty, self._fractions)

    def notice_fractions(self, queries: float, empty: float, fractions: Tensor | None) -> None:
        """Warn if no query has a relevant candidate, though grades are between 0 and the level of relevance."""
        level = getattr(self, "relevance_level", math.nan)
        if 0 < queries == empty and fractions is not None and bool(fractions):
            warn(
                f"No grade reaches relevance_level={level:g}, so no query has a relevant candidate, though there are"
                " fractions above 0; pass relevance_level=, the lowest grade that is relevant"
            )

    def value_of(self, sums: Tensor, rows: Tensor | None = None) -> Tensor:
        """The result of :meth:`compute` in float64.

        Args:
            sums: [..., SIZE].
            rows: per-query (value, weight) [query, 2], for an aggregation that keeps them.
        """
        if rows is None:
            return self.transform_result(self.result(sums), sums)
        return self.transform_result(aggregate(self.aggregation, rows[:, 0], rows[:, 1]), sums)

    def result(self, sums: Tensor) -> Tensor:
        """The mean, or the sum, over all queries, from their sums [..., SIZE]: float64 [...]."""
        if self.adds_up:
            return torch.where(sums[..., Sum.W] > 0, sums[..., Sum.WV], float("nan"))
        return self.mean.outside(state.mean(sums))

    @property
    def adds_up(self) -> bool:
        """Whether the result is the sum of weight x value over queries, not their average."""
        return self.aggregation == "sum"

    @property
    def mean(self) -> Mean:
        """The mean of this metric; the arithmetic mean if its aggregation is not a mean."""
        return MEANS[self.aggregation if is_mean(self.aggregation) else "mean"]

    def transform_result(self, average: Tensor, sums: Tensor) -> Tensor:
        """The result of :meth:`compute`, from the average over queries: the average itself unless overridden."""
        return average

    @property
    def turned(self) -> bool:
        """Whether the result falls where the values of queries rise, as for 1 / their mean."""
        return False

    @property
    def higher_values_are_better(self) -> bool:
        """Whether a higher value of a query is better."""
        return (self.higher_is_better is not False) is not self.turned

    @property
    @eager
    def num_queries(self) -> int:
        """Number of queries of this worker, empty ones included; within ``metric.sync_context()`` of all workers."""
        return int(state.read(self.sums)[Sum.QUERIES])

    @property
    @eager
    def num_empty(self) -> int:
        """Number of empty queries among :attr:`num_queries`, of the same workers: they have nothing to measure."""
        return int(state.read(self.sums)[Sum.EMPTY])

    @property
    @eager
    def standard_error(self) -> Tensor:
        """Standard error of the mean over queries of this worker, float32 []; in ``metric.sync_context()`` of all.

        Three digits or more are exact down to a spread of 1e-11 of the values. The weights of different batches may
        differ by a factor of 1e6; far beyond it, from 1e7 on, the error can be too small. It is NaN if the sum of the
        weights is above 1e138 or below 1e-138. For a geometric or harmonic mean it is of first order in the spread of
        the values. For a sum it is the error of the mean, times the sum of the weights: the number of queries is taken
        as given.
        """
        return self._narrow(self.error_of(state.read(self.sums)))

    def error_of(self, sums: Tensor) -> Tensor:
        """The standard error of :meth:`value_of`, from sums [..., SIZE]: float64 [...]."""
        error = state.standard_error(sums, self.scored_of(sums))
        if self.adds_up:
            return error * sums[..., Sum.W]
        return error * self.mean.slope(self.mean.outside(state.mean(sums)))

    def scored_of(self, sums: Tensor) -> Tensor:
        """Number of queries with a value, from sums [..., SIZE]: float64 [...]."""
        queries = sums[..., Sum.QUERIES]
        return queries - sums[..., Sum.EMPTY] if self.empty_target_action == "skip" else queries

    # ---- intervals ---------------------------------------------------------------------------------------------

    @eager
    def interval(self, level: float = 0.95, method: Method = "auto") -> Interval:
        r"""A confidence interval for the value that :meth:`compute` returns, over the queries of all workers.

        With m the mean of n scored queries and se its :attr:`standard_error`, "t" is :math:`m \pm t_{n-1} se`. "wilson"
        is Wilson's score interval, for values that are all 0 or 1. It never has a width of 0, and it covers 95 % where
        "t" covers 33 % (20 queries, a hit rate of 0.98). "auto" is "wilson" for such values, "t" for all others. For a
        geometric or harmonic mean, se has the slope of the mean as a factor. A sum has the ends of "t" for the mean,
        times the sum of the weights. A median, or another percentile, has an interval between two order statistics, a
        callable aggregation the percentiles of 1,000 bootstrap samples. "anytime" is :meth:`confidence_sequence`.

        Like :meth:`compute` it waits for all workers, unless it is called in ``metric.sync_context()``.

        Source:
            Student, The probable error of a mean, Biometrika 1908. Wilson, Probable inference, the law of succession,
            and statistical inference, JASA 1927. With weights, n is that of Kish, Survey sampling, 1965.

        Args:
            level: the probability that the interval contains the expected value, above 0 and below 1.
            method: "auto", "t", "wilson" or "anytime".

        Returns:
            (low, high), floats; both NaN for fewer than two scored queries, for equal values that are not 0 or 1, for
            "min", "max" and "none", for a percentile with too few queries on one of its sides, and for a measure that
            is not a mean over queries.

        Raises:
            ValueError: an argument has an unknown value, "wilson" is asked for other values than 0 and 1, or a worker
                has met bad values.

        Example:
            >>> import torch, torchrank as tr
            >>> hits = tr.HitRate(top_k=1)
            >>> hits.update(torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.4]]), torch.tensor([0, 0, 0]))
            >>> [round(end, 4) for end in hits.interval()]
            [0.2077, 0.9385]
        """
        state.check(level, method)
        return self.estimate_of(*self.of_all_workers(), level, method).interval

    def confidence_sequence(self, level: float = 0.95) -> Interval:
        r"""An interval that may be looked at after every batch: all looks hold together with probability ``level``.

        An :meth:`interval` holds at one number of queries that was chosen before. If somebody looks again and again, or
        stops when the number pleases, use a confidence sequence. With se the standard error of n queries (with weights
        their effective number) and :math:`u = 0.04 n` it is

        .. math:: m \pm z \, se, \qquad z^2 = \frac{1 + u}{u} \left(\log(1 + u) - 2 \log(1 - level)\right),

        with Student's quantile in place of z, and Wilson's form for values that are all 0 or 1. It is asymptotic: for
        fewer than some 20 queries, or values of which a few are far from the others, keep the values and use
        :meth:`torchrank.QueryTable.confidence_sequences`. Queries must come in random order.

        Like :meth:`compute` it waits for all workers.

        Source:
            Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Time-uniform central limit theory and asymptotic
            confidence sequences, Annals of Statistics 2024.

        Args:
            level: the probability that all looks contain the expected value, above 0 and below 1.

        Returns:
            (low, high), floats; both NaN where :meth:`interval` has NaN, and for a callable aggregation.

        Raises:
            ValueError: as :meth:`interval`.

        Example:
            >>> import torch, torchrank as tr
            >>> hits = tr.HitRate(top_k=1)
            >>> hits.update(torch.eye(4).repeat(50, 1), torch.tensor([0, 1, 2, 0]).repeat(50))
            >>> [round(end, 4) for end in hits.interval()], [round(end, 4) for end in hits.confidence_sequence()]
            ([0.6857, 0.8049], [0.6475, 0.8305])
        """
        return self.interval(level, "anytime")

    def estimate_of(self, sums: Tensor, rows: Tensor | None, level: float = 0.95, method: Method = "auto") -> Estimate:
        """The value, standard error and interval of sums [SIZE] and, if they are kept, of values [query, 2].

        Raises:
            ValueError: as :meth:`interval`.
        """
        self._read, self._errors = sums, sums[Sum.ERRORS : state.SIZE]
        self.raise_errors()
        return state.estimate(self, sums, rows, level, method)

    def of_all_workers(self) -> tuple[Tensor, Tensor | None]:
        """The sums [SIZE] of all workers, and their per-query (value, weight) [query, 2] if these are kept."""
        with self.over_all_workers():
            return state.read(self.sums), self._joined_rows()

    def _joined_rows(self) -> Tensor | None:
        sums = state.read(self.sums)
        return None if self.rows is None else torch.cat([sums.new_empty((0, 2)), *(row.to(sums) for row in self.rows)])

    # ---- torchmetrics' contract ----------------------------------------------------------------------------------

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        stock = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def computed(*args: Any, **kwargs: Any) -> Any:
            value = stock(*args, **kwargs)
            if isinstance(value, tuple):
                return tuple(part.reshape(-1) for part in value)
            return value.reshape(-1) if self.aggregation == "none" else value  # torchmetrics squeezes one value

        return computed

    @contextlib.contextmanager
    def reduced_to(self, over_workers: State | None) -> Iterator[None]:
        """Context in which the state over all workers is one that a collection has reduced; None = it is unknown."""
        self._over_workers = over_workers
        try:
            yield
        finally:
            self._over_workers = None

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:  # a function of the user, which gathers one tensor at a time
            if (rows := self._joined_rows()) is not None:
                self._set("values", [rows])
            super()._sync_dist(dist_sync_fn, process_group)
            if self.rows is not None:
                self._set("values", [getattr(self, f"{self._state}:values")])
            return
        name, found = self.definition_name, self._over_workers
        sums, parts = found or all_reduce({name: self}, process_group or self.process_group)[name]
        self._set("sums", sums)
        if parts is not None:
            self._set("values", parts)

    def restored(self, x: Tensor) -> Tensor:
        return super().restored(state.current(x, self.sums.shape[-1]))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_over_workers": None, "_errors": None, "_read": None}
