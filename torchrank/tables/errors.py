"""The error of every source that cannot be read."""

from __future__ import annotations

# Longest piece of a source that a message shows.
SHOWN = 120


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


def shorten(text: str) -> str:
    """A text of at most :data:`SHOWN` characters, with "..." for its missing end."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
