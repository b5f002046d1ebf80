"""torchmetrics' contract, without its surprises: what every stateful class of this library builds on."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torchmetrics import Metric

F = TypeVar("F", bound=Callable[..., Any])


#: Held while a state is replaced, so that threads lose no update. It is no part of a metric, which can be pickled.
LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LOCK._at_fork_reinit)  # type: ignore[attr-defined]  # the holder is not in it


def eager(function: F) -> F:
    """The function, left out of the graphs of torch.compile and torch.jit.script.

    As torch.compiler.disable does it, whose import takes seconds.
    """
    disabled: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def outside(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:  # nothing is compiled
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    outside._torchdynamo_disable = True  # type: ignore[attr-defined]
    return cast(F, torch.jit.unused(outside))


class SafeMetric(Metric):
    """A :class:`torchmetrics.Metric` that leaves no trace of a call that raised and never lets workers wait in vain."""

    full_state_update = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # torch.jit.script of a module that holds a metric evaluates annotations and compiles properties, all in vain.
        cls.__annotations__ = {}
        properties = (name for base in cls.__mro__ for name, x in vars(base).items() if isinstance(x, property))
        cls.__jit_unused_properties__ = sorted({*properties})

    def leave_meta(self) -> None:
        """Keep the state on the CPU if the default device is "meta", where tensors have no values."""
        if self._device.type == "meta":
            self._device = torch.device("cpu")

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        return eager(super()._wrap_update(update))

    @eager
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its own value. A call that raises leaves no trace."""
        if self._is_synced:
            return super().forward(*args, **kwargs)  # which refuses
        # torchmetrics changes these on its way, and restores them only if nothing raises.
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
                setattr(self, name, [])  # torchmetrics empties the list, which a wrapper may have taken as the state
        super().reset()

    def _copy_state_dict(self) -> dict[str, Any]:
        # Tensors in lists are never written to, so forward and synchronisation need no copies of them.
        return {name: x.copy() if isinstance(x, list) else x.clone() for name, x in self.metric_state.items()}

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        stock = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def computed(*args: Any, **kwargs: Any) -> Any:
            if self._to_sync and self.distributed_available_fn():
                self._computed = None  # a worker that answers from its cache would let the others wait
            try:
                return stock(*args, **kwargs)
            except Exception:
                self.unsync(self._is_synced and self._should_unsync)
                raise

        return computed

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        def move(x: Tensor) -> Tensor:  # fn may cast as well, of which only the device is followed
            return self.moved(x, fn(torch.empty(0, dtype=torch.float32, device=x.device)).device)

        return super()._apply(move, exclude_state)

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        """A state, or another tensor of the metric, on another device."""
        return x.to(device)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any) -> None:
        saved = [name for name in self._defaults if prefix + name in state_dict]
        super()._load_from_state_dict(state_dict, prefix, *args)
        wrong: list[str] = args[-1]  # what load_state_dict will raise for
        for name in saved:  # the checkpoint stays as it is
            value, default = getattr(self, name), self._defaults[name]
            if isinstance(value, Tensor) and isinstance(default, Tensor):
                value = self.restored(value).clone()
                if value.shape != default.shape:
                    wrong.append(
                        f"Expected {prefix}{name} to have shape {list(default.shape)}, got {list(value.shape)}, that of"
                        " another version of torchrank; evaluate again."
                    )
                    value = default.clone()
            else:
                value = [self.restored(x) for x in value]
            setattr(self, name, value)
        if saved:
            self._computed = None
            self._update_count = max(1, self._update_count)

    def restored(self, x: Tensor) -> Tensor:
        """A state as it is on this device, from one that was saved on another."""
        return x.to(self.device)
