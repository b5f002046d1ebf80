"""Base class of all stateful classes: torchmetrics' contract without its side effects and deadlocks."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from inspect import Signature
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from torchrank.hardware.graphs import eager

#: Held while a state is replaced, so that threads lose no update. One for all metrics, because locks cannot be pickled.
LOCK = threading.Lock()


# A thread of the parent may hold the lock during a fork. It does not exist in the child and would never release it.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LOCK._at_fork_reinit)  # type: ignore[attr-defined]


@functools.cache
def _properties(cls: type) -> tuple[str, ...]:
    """Names of the properties in the body of a class. Those of a base are asked for by each of its subclasses."""
    return tuple(name for name, value in vars(cls).items() if isinstance(value, property))


#: types whose values torch.nn.Module does not register
PLAIN = frozenset({bool, int, float, str, tuple, list, dict, type(None), FunctionType, MethodType, Signature})
PLAIN |= {torch.device, torch.dtype}


class SafeMetric(Metric):
    """A :class:`torchmetrics.Metric` that a call that raises leaves unchanged, and that no worker waits for forever."""

    full_state_update = False
    #: the dict of its results, for an error message
    results_to_log = "metric.compute()"
    #: names of attributes that cannot be set any more
    _fixed = frozenset[str]()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # torch.jit.script of a module with a metric evaluates its annotations and compiles its properties. Skip both.
        cls.__annotations__ = {}
        cls.__jit_unused_properties__ = sorted({name for base in cls.__mro__ for name in _properties(base)})
        for name in {"__init__", "score"} & vars(cls).keys():
            setattr(cls, name, eager(vars(cls)[name]))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._fixed:
            raise AttributeError(f"Expected {name} of {self} to stay as it is, got {value!r}; make a new metric")
        # torch.nn.Module tries whether each value is a parameter, a module or a buffer: a third of the time to make a
        # metric. An attribute of the class may be a property, or one that torchmetrics refuses to change.
        own = self.__dict__
        simple = type(value) in PLAIN or name in own.get("_defaults", ())
        known = name in own.get("_parameters", ()) or name in own.get("_modules", ()) or name in own.get("_buffers", ())
        if simple and not known and not hasattr(type(self), name):
            own[name] = value
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "items":  # asked for by Lightning's log_dict
            raise AttributeError(
                f"Expected a dict or a collection, got a {type(self).__name__}; log one value with self.log(name,"
                f" metric), several in on_validation_epoch_end: self.log_dict({self.results_to_log}); metric.reset()"
            )
        return super().__getattr__(name)

    def leave_meta(self) -> None:
        """Keep the state on the CPU if the default device is "meta", where tensors have no values."""
        if self._device.type == "meta":
            self._device = torch.device("cpu")

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        return eager(super()._wrap_update(update))

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

    def reset(self) -> None:
        """Forget all batches."""
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
            try:
                return stock(*args, **kwargs)
            except Exception:
                self.unsync(self._is_synced and self._should_unsync)
                raise

        return eager(computed)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        # fn may change the dtype as well, e.g. in `half()`. Apply it to an empty tensor and follow its device only.
        def move(x: Tensor) -> Tensor:
            return self.moved(x, fn(torch.empty(0, dtype=torch.float32, device=x.device)).device)

        return super()._apply(move, exclude_state)

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        """A state or another tensor of the metric, on another device."""
        return x.to(device)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any) -> None:
        saved = [name for name in self._defaults if prefix + name in state_dict]
        super()._load_from_state_dict(state_dict, prefix, *args)
        wrong: list[str] = args[-1]  # load_state_dict raises an error with these messages
        for name in saved:
            value, default = getattr(self, name), self._defaults[name]
            if isinstance(value, Tensor) and isinstance(default, Tensor):
                value = self.restored(value).clone()  # the metric must not share memory with the checkpoint
                if value.shape != default.shape:
                    wrong.append(
                        f"Expected {prefix}{name} to have shape {list(default.shape)}, got {list(value.shape)}, saved"
                        " by another version of torchrank; evaluate again."
                    )
                    value = default.clone()
            else:
                value = [self.restored(x) for x in value]
            setattr(self, name, value)
        if saved:
            self._computed = None
            self._update_count = max(1, self._update_count)

    def restored(self, x: Tensor) -> Tensor:
        """A saved state, possibly of another device, as it is on this device."""
        return x.to(self.device)
