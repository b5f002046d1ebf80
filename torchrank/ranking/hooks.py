"""Functions of :class:`Ranking` that other rooms set, because they import this room."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def hook(name: str) -> Callable[..., Any]:
    """The function until another room sets it: it imports all rooms, and calls the function that is then set."""

    def first(*arguments: Any, **options: Any) -> Any:
        import_module("torchrank.public")
        return getattr(import_module("torchrank.ranking.ranking").Ranking, name)(*arguments, **options)

    return staticmethod(first)
