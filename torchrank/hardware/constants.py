"""Small tensors that every batch needs, made once for each device."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")

T = TypeVar("T")

# Largest number of elements of a small tensor, and of one that is kept: a table over the ranks of a million items has
# 8 MB.
SMALL, LARGEST = 2**10, 2**20

# Largest number of small tensors and of others that are kept.
MANY, MOST = 2**10, 64

_tensors: dict[tuple[object, ...], Any] = {}

#: the keys of small tensors and of others, the oldest first
_small: deque[tuple[object, ...]] = deque(maxlen=MANY)
_large: deque[tuple[object, ...]] = deque(maxlen=MOST)

_lock = threading.Lock()


def constant(make: Callable[P, T], keep: Callable[P, bool] | None = None) -> Callable[P, T]:
    """Decorator that keeps the tensors of a function of hashable arguments. Nobody may change them in place.

    Args:
        make: the function.
        keep: whether to keep the tensor of some arguments; None = of all.
    """

    @functools.wraps(make)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (make, args, tuple(kwargs.items()))
        tensors = _tensors.get(key)
        if tensors is not None:
            return tensors
        if keep is not None and not keep(*args, **kwargs):
            return make(*args, **kwargs)
        return _make(key, functools.partial(make, *args, **kwargs))

    return once


def cached_tensors(key: tuple[object, ...], make: Callable[[], T]) -> T:
    """The tensor, or tuple of tensors, of a hashable key: ``make()`` at first. Nobody may change it in place."""
    tensors = _tensors.get(key)
    return _make(key, make) if tensors is None else tensors


def _make(key: tuple[object, ...], make: Callable[[], T]) -> T:
    with torch.inference_mode(False), torch.no_grad():  # tensors of inference mode are of no use outside of it
        made = make()
    tensors: tuple[Any, ...] = made if isinstance(made, tuple) else (made,)
    # A mode for tracing makes tensors of another type, which end with the mode.
    size = sum(x.numel() for x in tensors)
    if all(type(x) is Tensor for x in tensors) and size <= LARGEST:
        with _lock:
            keys = _small if size <= SMALL else _large
            if len(keys) == keys.maxlen:
                _tensors.pop(keys[0], None)  # the deque drops its oldest key
            keys.append(key)
            _tensors[key] = made
    return made


@constant
def scalar(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor [], because ``torch.where`` with a number makes a tensor of it each time."""
    return torch.full((), value, dtype=dtype, device=device)
