"""The errors of sources that cannot be read, and of sources that have nothing in common."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Hashable

# Longest piece of a source that a message shows.
SHOWN = 120
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = SHOWN


class ReadingError(ValueError):
    """A source of judgments or of a run cannot be read.

    Fields: ``source``, its name; ``line``, the number of the line or row, counted from 1, or None; ``unit``, "line"
    or "row"; ``text``, the text of the line, shortened.
    """

    def __init__(self, message: str, source: str = "", line: int | None = None, text: str = "", unit: str = "line"):
        self.source, self.line, self.text, self.unit = source, line, shorten(text), unit
        place = f"{source}, {unit} {line}" if line is not None else source
        shown = f": {self.text!r}" if text else ""
        super().__init__(f"{place}: {message}{shown}" if place else f"{message}{shown}")


#: returns the error of a row, given a message and the number of the row, from 0
RowError = Callable[[str, int], ReadingError]


class NothingInCommonError(ValueError):
    """Judgments and a run have queries and documents, but none in common."""


def no_common_query(theirs: Hashable, ours: Hashable, where: str = "") -> NothingInCommonError:
    """The error that shows a query of the run and a judged query."""
    way_out = "use the same ids in both"
    if isinstance(theirs, str) != isinstance(ours, str):
        texts = "astype({'query_id': str, 'doc_id': str})"
        way_out = f"an integer never equals a text: read both as text, in pandas by {texts}"
    return NothingInCommonError(
        f"Expected queries that are judged{where}, got none: a query of the run is {theirs!r}, a judged query is"
        f" {ours!r}; {way_out}"
    )


def shorten(text: str) -> str:
    """A text of at most :data:`SHOWN` characters, with "..." for its missing end."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def shown(value: object) -> str:
    """A value as messages show it, without its middle if it is long, and without what is nested in it deeply."""
    return _SHORT.repr(value)
