"""Dataclasses: nobody changes their fields, and those with arrays are equal only to themselves."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator


def dataclasses_of(folder: str) -> Iterator[type]:
    """The dataclasses that a folder of the package defines."""
    package = importlib.import_module(f"torchrank.{folder}")
    names = [
        f"{package.__name__}.{part.name}" for part in pkgutil.iter_modules(package.__path__) if part.name[0] != "_"
    ]
    for name in [package.__name__, *names]:
        for thing in vars(importlib.import_module(name)).values():
            if isinstance(thing, type) and thing.__module__ == name and "__dataclass_params__" in vars(thing):
                yield thing


def check(folder: str, values: str, changed: str = "") -> None:
    """Compare the options of dataclasses.

    Args:
        folder: the folder of the package.
        values: the names of those that are equal if their fields are equal.
        changed: the names of those whose fields are changed.
    """
    found = [(one.__name__, one.__dataclass_params__) for one in dataclasses_of(folder)]
    assert sorted(name for name, of in found if of.eq) == sorted(values.split())
    assert [name for name, of in found if not of.frozen] == changed.split()
    for one in dataclasses_of(folder):
        inherited = next(vars(base)["__repr__"] for base in one.__mro__[1:] if "__repr__" in vars(base))
        written = inherited is not object.__repr__ and not hasattr(inherited, "__wrapped__")
        assert one.__dataclass_params__.repr == (not written), one
