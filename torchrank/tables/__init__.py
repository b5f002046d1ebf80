"""Files, data frames and dictionaries of judgments and runs, and their join to a ranking."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchrank.evaluation.partial import PartialEvaluation, merge, partial
    from torchrank.tables.chunks import read_chunks

__all__ = ["PartialEvaluation", "merge", "partial", "read_chunks"]


def __getattr__(name: str) -> Any:
    """Import the functions on large runs when they are used, because the readers are imported before torch."""
    if name == "read_chunks":
        from torchrank.tables.chunks import read_chunks

        return read_chunks
    if name in __all__:
        import torchrank.evaluation.partial as found

        return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
