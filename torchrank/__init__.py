"""Ranking metrics for PyTorch: exact under ties, constant in memory, the same number on one worker or many."""

from typing import TYPE_CHECKING

from torchrank.version import __version__ as __version__

if TYPE_CHECKING:
    from torchrank.metrics.public import *  # noqa: F403
    from torchrank.public import *  # noqa: F403


if not TYPE_CHECKING:
    # PyTorch takes seconds to import, which `torchrank --help` does not need: all names come with the first in use.

    def __getattr__(name: str):
        """Import all public names, and return one; raise for an unknown name, with the nearest known one."""
        if name != "__all__" and name.startswith("__"):  # asked for by tools
            raise AttributeError(f"module 'torchrank' has no attribute {name!r}")
        names = _imported()
        if name in names:
            return names[name]
        from torchrank.names.nearest import did_you_mean

        hint = did_you_mean(name, names["__all__"])
        if name.startswith("Retrieval"):
            hint = "; import it from torchrank.retrieval"
        raise AttributeError(f"module 'torchrank' has no attribute {name!r}{hint}")

    def __dir__():
        return sorted(_imported())

    def _imported():
        from importlib import import_module

        public = import_module("torchrank.public")  # this form asks this module for no attribute
        globals().update({name: getattr(public, name) for name in ["__all__", *public.__all__]})
        return globals()
