"""Functions of rooms that import this one, which can be imported only when they are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Hook(Generic[T]):
    """A function of a module as an attribute of a class; the module is imported when the attribute is read."""

    module: str
    name: str

    def __get__(self, instance: Any, owner: type) -> Callable[..., T]:
        function: Callable[..., T] = getattr(import_module(self.module), self.name)
        return function
