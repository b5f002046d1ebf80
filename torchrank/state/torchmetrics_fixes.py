"""Base class of all stateful classes: torchmetrics' contract without its side effects and deadlocks."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import Metric

from torchrank.hardware.graphs import eager
from torchrank.state.waiting import LOCK, Waiting


@functools.cache
def _properties(cls: type) -> tuple[str, ...]:
    """Names of the properties in the body of a class. Those of a base are asked for by each of its subclasses."""
    return tuple(name for name, value in vars(cls).items() if isinstance(value, property))


#: types whose values torch.nn.Module does not register
PLAIN = frozenset({bool, int, float, str, tuple, list, dict, type(None), FunctionType, MethodType, inspect.Signature})
PLAIN |= {torch.device, torch.dtype}

#: what compilers leave out of their graphs in any class, beside `update`, `forward` and `compute`
UNTRACED = {
    "__init__", "comparison", "curves", "difference", "estimate", "estimates", "histogram", "interval", "intervals",
    "merge_state", "num_empty", "num_queries", "num_rows", "rank_distribution", "reset", "score", "standard_error",
    "summary", "worst",
}  # fmt: skip


class SafeMetric(Metric):
    """A :class:`torchmetrics.Metric` that a call that raises leaves unchanged, and that no worker waits for forever."""

    full_state_update = False
    #: the dict of its results, for an error message
    results_to_log = "metric.compute()"
    #: names of attributes that cannot be set any more
    _fixed = frozenset[str]()
    #: whether small batches may wait to be ranked together, see :meth:`torchrank.RankingMetric.update`
    waits = True
    #: the batches that wait for this metric, if it alone is updated; None = its batches never wait
    _waiting: Waiting | None = None
    #: the batches that wait for this metric and perhaps others, which have its states as long; None = none
    _held: Waiting | None = None
    _in_forward = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # torch.jit.script of a module with a metric evaluates its annotations and compiles its properties. Skip both.
        cls.__annotations__ = {}
        cls.__jit_unused_properties__ = sorted({name for base in cls.__mro__ for name in _properties(base)})
        for name in UNTRACED & vars(cls).keys():
            attribute = vars(cls)[name]
            setattr(
                cls,
                name,
                property(eager(attribute.fget))
                if isinstance(attribute, property) and attribute.fget
                else eager(attribute),
            )

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._fixed:
            raise AttributeError(f"Expected {name} of {self} to stay as it is, got {value!r}; make a new metric")
        # torch.nn.Module tries whether each value is a parameter, a module or a buffer: a third of the time to make a
        # metric. An attribute of the class may be a property, or one that torchmetrics refuses to change.
        attributes = self.__dict__
        if self._held is not None and name in self._defaults:
            self.rank_waiting()
        if ":" in name and (own := attributes.get("_state")) and not name.startswith(f"{own}:"):
            raise ValueError(  # MetricCollection writes the state of the first metric of a group into the others
                f"Expected {own} to keep its own state, got that of {name.rpartition(':')[0]}; leave compute_groups"
                " out of MetricCollection, which finds equal states by itself"
            )
        simple = type(value) in PLAIN or name in attributes.get("_defaults", ())
        known = (
            name in attributes.get("_parameters", ())
            or name in attributes.get("_modules", ())
            or name in attributes.get("_buffers", ())
        )
        if simple and not known and not hasattr(type(self), name):
            attributes[name] = value
        else:
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

    def leave_meta(self) -> None:
        """Keep the state on the CPU if the default device is "meta", where tensors have no values."""
        if self._device.type == "meta":
            self._device = torch.device("cpu")

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        if hasattr(update, "_torchdynamo_disable"):  # by the class; the result here is eager as well
            update = MethodType(update.__wrapped__, self)  # type: ignore[attr-defined]
        wrapped = super()._wrap_update(update)
        if hasattr(type(self).update, "bulk"):
            vars(self)["_waiting"] = waiting = Waiting(self, wrapped, update, lambda: [self])
            wrapped = functools.wraps(update)(lambda *args, **kwargs: waiting.update(*args, **kwargs))
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
        try:
            return super().forward(*args, **kwargs)
        except Exception:
            for name, value in before.items():
                setattr(self, name, value)
            self._is_synced, self._computed = False, None
            self._to_sync, self._should_unsync, self._enable_grad = self.sync_on_compute, True, False
            raise

    @eager
    def reset(self) -> None:
        """Forget all batches."""
        if self._waiting is not None:
            self._waiting.drop()
        for name, default in self._defaults.items():
            if isinstance(default, list):
                setattr(self, name, [])  # torchmetrics empties the list in place, but a wrapper may hold it
        super().reset()

    def _copy_state_dict(self) -> dict[str, Any]:
        # Tensors in lists are never changed in place, so forward and synchronisation need no copies of them.
        return {name: x.copy() if isinstance(x, list) else x.clone() for name, x in self.metric_state.items()}

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        stock = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def computed(*args: Any, **kwargs: Any) -> Any:
            if self._to_sync and self.distributed_available_fn():
                self._computed = None  # a worker that returned a cached value would leave the others waiting
            return stock(*args, **kwargs)

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

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        # fn may change the dtype as well, e.g. in `half()`. Apply it to an empty tensor and follow its device only.
        def move(x: Tensor) -> Tensor:
            return self.moved(x, fn(torch.empty(0, dtype=torch.float32, device=x.device)).device)

        return super()._apply(move, exclude_state)

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        """A state or another tensor of the metric, on another device."""
        return x.to(device)

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
        return "" if len(numbers) < 2 else f"Expected as many rows in all lists of the state, got {sorted(numbers)}"

    def fits(self, name: str, rows: Tensor) -> bool:
        """Whether a tensor can be in a list of the state."""
        return True

    def restored(self, x: Tensor) -> Tensor:
        """A saved state, possibly of another device, as it is on this device."""
        return x.to(self.device)


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
