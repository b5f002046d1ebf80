"""Lines of text to columns: the places of all fields are found at once, and every line has the same number of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import numpy as np

from torchrank.tables.errors import ReadingError
from torchrank.tables.id_columns import LONGEST_ID, PADDING, TextIds
from torchrank.tables.pair_tables import keep_order

Array = np.ndarray

# Bytes of text that are cut into fields at a time, so that temporaries stay in the cache.
CHUNK = 2**20
# The most bytes of a line.
LONGEST_LINE = 1_000_000
NEWLINE, TAB, SPACE, HASH = 10, 9, 32, 35
# Longest number that is parsed with others in one array.
WIDE = 32
#: the text whose numbers are read: its name, the bytes before the last of them, and its size; for a progress bar
progress: list[tuple[str, int, int]] = []
_LINE_BREAK = re.compile(rb"\n")
# Fields between tabs may have blanks around a number.
_NUMBER = re.compile(rb"\s*[+-]?((\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|inf|infinity)\s*", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Text:
    """The bytes of a source.

    Args:
        name: the name of the source, for messages.
        buffer: uint8, the bytes and :data:`~torchrank.tables.id_columns.PADDING` zeros.
        begin: where the first line begins.
        first_line: the number of this line in the source.
    """

    name: str
    buffer: Array
    begin: int = 0
    first_line: int = 1

    @classmethod
    def of(cls, data: bytes, name: str, first_line: int = 1) -> Text:
        """The text of some bytes."""
        return cls(name, np.frombuffer(data + bytes(PADDING), np.uint8), 0, first_line)

    @cached_property
    def end(self) -> int:
        """Where the last line ends."""
        return len(self.buffer) - PADDING

    def starts_with(self, *marks: bytes) -> bool:
        """Whether the first bytes behind white space are one of some marks."""
        return bytes(self.buffer[self.begin : self.end][:1000]).lstrip().startswith(marks)

    def error(self, message: str, place: int) -> ReadingError:
        """The error of the line that contains a place of the buffer."""
        before = bytes(self.buffer[self.begin : place])
        start = self.begin + before.rfind(b"\n") + 1
        line = bytes(self.buffer[start : min(start + 1000, self.end)]).split(b"\n")[0].rstrip(b"\r")
        return ReadingError(
            message, self.name, self.first_line + before.count(b"\n"), line.decode("utf-8", "backslashreplace")
        )

    def too_long(self, place: int) -> ReadingError:
        """The error of a line that is too long."""
        return self.error(
            f"Expected lines of at most {LONGEST_LINE:,} bytes, got a longer one; end each row with a line break", place
        )

    @cached_property
    def first_stop(self) -> int:
        """Where the first line ends: the place of its line break."""
        if line_break := _LINE_BREAK.search(self.buffer.data, self.begin, self.begin + LONGEST_LINE + 1):
            return line_break.start()
        if self.end - self.begin > LONGEST_LINE:
            raise self.too_long(self.begin)
        return self.end

    def first_line_bytes(self) -> bytes:
        """The first line, without its end."""
        return bytes(self.buffer[self.begin : self.first_stop]).rstrip(b"\r")

    def after_first_line(self) -> Text:
        """The text without its first line."""
        return Text(self.name, self.buffer, min(self.first_stop + 1, self.end), self.first_line + 1)


def fields(text: Text, wanted: list[int], width: int, tabs: bool = False) -> list[TextIds]:
    """Cut lines into fields.

    Args:
        text: the lines; empty ones are left out.
        wanted: numbers of the columns to return, from 0.
        width: the number of fields of each line that is not a comment.
        tabs: fields are separated by one tab each, and may contain blanks; by default by any white space.

    Raises:
        ReadingError: a line has another number of fields, an empty field among those that are wanted, or a control
            character; a line or a field is too long.
    """
    cut = _between_tabs if tabs else _between_blanks
    dtype: type = np.int32 if len(text.buffer) < 2**31 else np.int64
    # Columns of the final size, because memory of pieces that are joined later is not given back.
    room, rows = _count_lines(text), 0
    starts: list[Array] = [np.empty(room, dtype=dtype) for _ in wanted]
    lengths: list[Array] = [np.empty(room, dtype=np.int32) for _ in wanted]
    begin = text.begin
    while begin < text.end:
        stop = _stop(text, begin)
        start, end = cut(text, begin, stop, width)
        part = slice(rows, rows + len(start))
        for column, number in enumerate(wanted):
            np.add(start[:, number], begin, out=starts[column][part], casting="unsafe")
            np.subtract(end[:, number], start[:, number], out=lengths[column][part], casting="unsafe")
        begin, rows = stop, part.stop
    columns = [TextIds(text.buffer, start[:rows], length[:rows]) for start, length in zip(starts, lengths)]
    for ids in columns:
        if rows and ids.length.min() == 0:
            raise text.error(f"Expected {width} fields, got an empty one", int(ids.start[ids.length.argmin()]))
        if (longest := int(ids.length.max(initial=LONGEST_ID))) > LONGEST_ID:
            message = f"Expected fields of at most {LONGEST_ID:,} bytes, got one of {longest:,}; shorten it"
            raise text.error(message, int(ids.start[ids.length.argmax()]))
    return columns


def _count_lines(text: Text) -> int:
    """The number of lines, empty ones included."""
    places = range(text.begin, text.end, CHUNK)
    return 1 + sum(int(np.count_nonzero(text.buffer[n : min(n + CHUNK, text.end)] == NEWLINE)) for n in places)


def _stop(text: Text, begin: int) -> int:
    """The place behind the last line that ends in the next piece of a text."""
    if text.end - begin <= LONGEST_LINE:
        return text.end
    last_newline = bytes(text.buffer[begin : begin + LONGEST_LINE + 1]).rfind(b"\n")
    if last_newline < 0:
        raise text.too_long(begin)
    return begin + last_newline + 1


def _between_blanks(text: Text, begin: int, stop: int, width: int) -> tuple[Array, Array]:
    """Places [line, field] where fields start and end, relative to ``begin``, for any white space between them."""
    chunk = text.buffer[begin:stop]
    blank = np.ones(len(chunk) + 2, dtype=bool)
    np.less_equal(chunk, SPACE, out=blank[1:-1])
    edges = np.flatnonzero(blank[1:] != blank[:-1])
    start, end = edges[0::2], edges[1::2]
    refuse_control_characters(text, begin, chunk)
    newline = np.flatnonzero(chunk == NEWLINE)
    if len(newline) == 0 or newline[-1] != len(chunk) - 1:
        newline = np.append(newline, len(chunk))
    if len(start) == width * len(newline):
        line_start, line_end = start[::width], end[width - 1 :: width]
        if (line_end <= newline).all() and (line_start[1:] > newline[:-1]).all():
            starts, ends = start.reshape(-1, width), end.reshape(-1, width)
            comment = _begins_comment(chunk, line_start)
            return (starts[~comment], ends[~comment]) if comment.any() else (starts, ends)
    line = np.searchsorted(newline, start)
    first = np.flatnonzero(np.diff(line, prepend=-1))
    keep = ~np.isin(line, line[first[_begins_comment(chunk, start[first])]])
    start, end, line = start[keep], end[keep], line[keep]
    count = np.bincount(line, minlength=len(newline))
    bad = np.flatnonzero((count != width) & (count != 0))
    if len(bad):
        raise text.error(_expected(width, int(count[bad[0]])), begin + int(newline[bad[0]]))
    return start.reshape(-1, width), end.reshape(-1, width)


def is_comment(line: bytes) -> bool:
    """Whether a line is a comment: it begins with a # and a blank, because an id may begin with a #."""
    return line.split()[:1] == [b"#"]


def _begins_comment(chunk: Array, first: Array) -> Array:
    """bool [line]: whether the lines whose first fields start at some places are comments."""
    begins_comment = chunk[first] == HASH
    if begins_comment.any():
        after = np.minimum(first + 1, len(chunk) - 1)
        begins_comment &= (chunk[after] <= SPACE) | (after == first)
    return begins_comment


def _between_tabs(text: Text, begin: int, stop: int, width: int) -> tuple[Array, Array]:
    """Places [line, field] where fields start and end, relative to ``begin``, for one tab between them."""
    chunk = text.buffer[begin:stop]
    refuse_control_characters(text, begin, chunk)
    end = np.append(np.flatnonzero((chunk == TAB) | (chunk == NEWLINE)), len(chunk))
    start = np.concatenate([[0], end[:-1] + 1])
    last_byte = np.minimum(end, len(chunk) - 1)
    last = (chunk[last_byte] == NEWLINE) | (end == len(chunk))
    # The end of a line may be CRLF.
    end = end - (last & (chunk[np.maximum(end - 1, 0)] == 13))
    first = np.concatenate([[True], last[:-1]])
    empty_line = first & last & (end == start)
    start, end, first = start[~empty_line], end[~empty_line], first[~empty_line]
    line = np.cumsum(first) - 1
    count = np.bincount(line, minlength=0)
    bad = np.flatnonzero(count != width)
    if len(bad):
        raise text.error(_expected(width, int(count[bad[0]]), "tabs"), begin + int(end[np.searchsorted(line, bad[0])]))
    return start.reshape(-1, width), end.reshape(-1, width)


def _expected(width: int, count: int, between: str = "white space") -> str:
    return f"Expected {width} fields between {between}, as in the first line, got {count}"


def refuse_control_characters(text: Text, begin: int, chunk: Array) -> None:
    """Raise ReadingError if a piece of a text, which begins at ``begin``, has a control character."""
    # Below the tab, or between the carriage return and the blank: there the difference in uint8 is small.
    bad = (chunk < TAB) | (chunk - np.uint8(14) < SPACE - 14)
    if bad.any():
        place = int(bad.argmax())
        raise text.error(f"Expected text, got the control character {int(chunk[place]):#04x}", begin + place)


def numbers(text: Text, column: TextIds, what: str) -> Array:
    """Parse a column of decimal numbers: float64 [row], each the nearest to its text, in their order.

    Args:
        text: the text of the column, for messages.
        column: the places of the numbers.
        what: the name of the column, for messages.

    Raises:
        ReadingError: a field is not a number, or is NaN.
    """
    values = np.empty(len(column), dtype=np.float64)
    for start in range(0, len(column), CHUNK // 8):
        part = slice(start, start + CHUNK // 8)
        parsed = _parsed(column.take(part))
        progress[:] = [(text.name, int(column.start[part][-1]), text.end)]
        values[part] = np.nan if parsed is None else parsed
    progress.clear()
    if np.isnan(values).any():
        for row, key in enumerate(column.to_keys()):
            if not _NUMBER.fullmatch(key):
                got = key[:50].decode("utf-8", "backslashreplace")
                raise text.error(f"Expected {what} to be a number, got {got!r}", int(column.start[row]))
    keep_order(values, lambda rows: [Decimal(key.decode().strip()) for key in column.take(rows).to_keys()])
    return values


def _parsed(column: TextIds) -> Array | None:
    """The numbers of a column; None if a field is none."""
    width = -(-int(column.length.max()) // 8)
    if width * 8 > WIDE:
        keys = column.to_keys()
        return np.array([float(key) for key in keys]) if all(map(_NUMBER.fullmatch, keys)) else None
    fixed = np.zeros((len(column), width), dtype="<u8")
    for number in range(width):
        rows = np.flatnonzero(column.length > 8 * number)
        fixed[rows, number] = column.take(rows).words(number)
    # Python's float, which numpy calls, takes underscores between digits.
    if (fixed.view(np.uint8) == ord("_")).any():
        return None
    try:
        return fixed.view(f"S{8 * width}").ravel().astype(np.float64)
    except ValueError:
        return None
