"""The import of torchmetrics without the packages of its other domains."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from typing import Any


def import_torchmetrics(whole: bool) -> None:
    """Import torchmetrics, and PyTorch with it. A failure is left to the next import, which raises it.

    Args:
        whole: whether torchmetrics imports the optional packages that it finds. SciPy, matplotlib and Pillow take a
            third of the time of the import, and this command uses no audio, image or plot of torchmetrics.
    """
    with contextlib.suppress(Exception), contextlib.nullcontext() if whole else _nothing_optional():
        import_module("torchmetrics")


@contextlib.contextmanager
def _nothing_optional() -> Iterator[None]:
    """Context in which torchmetrics finds PyTorch and NumPy only, as if nothing else were installed."""
    found: Any = import_module("lightning_utilities.core.imports")
    cache, is_met, is_there = found.RequirementCache, found.RequirementCache.__bool__, found.package_available
    cache.__bool__ = lambda self: str(self.requirement).startswith(("torch<", "torch>")) and is_met(self)
    found.package_available = lambda name: name == "numpy"
    try:
        yield
    finally:
        cache.__bool__, found.package_available = is_met, is_there
