"""Packages that torchrank does not require."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def imported(module: str, extra: str = "", instead: str = "") -> Any:
    """A module of a package that is imported when it is used.

    Args:
        module: the name of the module.
        extra: the extra of torchrank that installs the package; "" = no extra does.
        instead: another way to go on, without the package.

    Raises:
        ImportError: the package is not installed.
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
        return import_module(module)
    except ImportError as error:
        part = f" (the extra {extra!r} of torchrank installs it)" if extra else ""
        way_out = f"run `pip install {package}`{part}{instead and ', or '}{instead}"
        raise ImportError(f"Expected {package} to be installed; {way_out}") from error


def installed(module: str) -> bool:
    """Whether a module can be imported; imports it."""
    try:
        imported(module)
    except ImportError:
        return False
    return True
