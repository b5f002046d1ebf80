"""Functions of :class:`Ranking` from rooms that import this one: they can be imported only when they are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchrank.ranking.ranking import Ranking


@dataclass(frozen=True)
class Hook:
    """A function of a module as an attribute of a class; the module is imported when the attribute is read."""

    module: str
    name: str

    def __get__(self, instance: Any, owner: type) -> Callable[..., Ranking]:
        function: Callable[..., Ranking] = getattr(import_module(self.module), self.name)
        return function
