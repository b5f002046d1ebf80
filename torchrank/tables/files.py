"""Files to rows: lines of text, whose fields are found at once, JSON, Parquet and Arrow; an entry for each format."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from torchrank.names.arguments import imported, installed
from torchrank.tables import columns as names
from torchrank.tables.pair_tables import (
    LONGEST_ID,
    PADDING,
    ReadingError,
    RowError,
    Rows,
    TextIds,
    blocks,
    decode,
    encode,
    factorise,
    keep_order,
    shorten,
    shown,
    subtopics_of,
)

Array = np.ndarray
Format = Literal["auto", "trec", "tsv", "csv", "json", "jsonl", "parquet", "arrow"]

# A compressed or parquet file is read up to so many times its size, and up to EXPANDED bytes in any case.
EXPANSION, EXPANDED = 100, 2**26
# The bound that no gzip file exceeds: its format has at most 1,032 bytes for each byte.
ANY_EXPANSION = 1100
# Bytes of text that are cut into fields at a time, so that temporaries stay in the cache.
PIECE = 2**18
# The most bytes of a line.
LONGEST_LINE = 1_000_000
NEWLINE, TAB, SPACE, HASH = b"\n\t #"
# How files of columns begin; a stream with the mark of its first message.
PARQUET, ARROW, ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
# Longest number that is parsed with others in one array.
WIDE = 32
# Fields between tabs may have blanks around a number.
_NUMBER = re.compile(rb"\s*[+-]?((\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|inf|infinity)\s*", re.IGNORECASE)
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")
_BLANK = re.compile(rb"\s*+")
# Blank lines and comments: a comment begins with a # and a blank, because an id may begin with a #.
_NO_ROWS = re.compile(rb"([ \t\r\x0b\x0c]*(#([ \t\r\x0b\x0c][^\n]*)?)?\n)*+")


# ---- lines and their fields ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where the lines of a file have their columns."""

    #: the number of fields of each line
    width: int
    #: the number of each column that is read
    columns: Mapping[str, int]
    #: fields are separated by one tab each, and may contain blanks; else by any white space
    tabs: bool = False
    #: the first line can have these fields between tabs, too; then an id of a later line may have a blank
    or_tabs: bool = False
    #: the first line has the names of the columns
    header: bool = False


@dataclass(frozen=True)
class Reading:
    """How a source is read: "score" or "grade", and arguments of :func:`torchrank.read_run`."""

    value: str
    columns: names.Columns = None
    format: Format = "auto"
    subset: str | None = None
    split: str | None = None
    expansion: int = EXPANSION
    #: the layout of the file, of which this is not the beginning
    layout: Layout | None = None


@dataclass(frozen=True, eq=False)
class Text:
    """The bytes of a source, whose lines are counted from ``first_line``, and :data:`PADDING` zeros."""

    name: str
    padded: bytes
    first_line: int = 1

    @classmethod
    def of(cls, data: bytes, name: str, first_line: int = 1) -> Text:
        """The text of some bytes."""
        return cls(name, b"".join((data, bytes(PADDING))), first_line)

    @cached_property
    def end(self) -> int:
        """The number of bytes of the source."""
        return len(self.padded) - PADDING

    @property
    def data(self) -> bytes:
        """The bytes of the source."""
        return self.padded[:-PADDING]

    def starts_with(self, *marks: bytes) -> bool:
        """Whether the first bytes after white space are one of some marks."""
        return self.padded[: min(1000, self.end)].lstrip().startswith(marks)

    def from_place(self, place: int) -> Text:
        """The text without the bytes before a place, where a line begins."""
        if not place:
            return self
        return Text(self.name, self.padded[place:], self.first_line + self.padded.count(b"\n", 0, place))

    @property
    def from_first_row(self) -> Text:
        """The text without the blank lines and comments at its beginning."""
        return self._rest or self

    @cached_property
    def _rest(self) -> Text | None:
        """That text; None = it is this one, which would keep its memory if it held itself."""
        found = self.from_place(_NO_ROWS.match(self.padded, 0, self.end).end())  # type: ignore[union-attr]
        if not _fields_of(found.first_line_bytes(), tabs=False):
            raise ReadingError("Expected lines of text, got comments only", self.name)
        return None if found is self else found

    def first_line_bytes(self) -> bytes:
        """The first line, without its end."""
        stop = self.padded.find(b"\n", 0, LONGEST_LINE + 1)
        if stop < 0 and self.end > LONGEST_LINE:
            raise self.too_long(self.first_line, self.padded)
        return self.padded[: self.end if stop < 0 else stop].removesuffix(b"\r")

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The number and the bytes of each line."""
        for number, line in enumerate(io.BytesIO(self.data), self.first_line):
            yield number, line.removesuffix(b"\n")

    def error(self, message: str, line: int, text: bytes) -> ReadingError:
        """The error of a line."""
        return ReadingError(message, self.name, line, text[:1000].rstrip(b"\r").decode("utf-8", "backslashreplace"))

    def too_long(self, line: int, text: bytes) -> ReadingError:
        """The error of a line that is too long."""
        way_out = "end each row with a line break"
        return self.error(f"Expected lines of at most {LONGEST_LINE:,} bytes, got a longer one; {way_out}", line, text)

    def refuse_control_characters(self, line: int, text: bytes) -> None:
        """Raise ReadingError if a line has a control character."""
        if bad := _CONTROL.search(text):
            raise self.error(f"Expected text, got the control character {bad[0][0]:#04x}", line, text)


def fields(text: Text, layout: Layout) -> dict[str, TextIds]:
    """The columns of lines. Blank lines are left out, and comments, if any white space separates fields.

    Raises:
        ReadingError: a line has another number of fields, an empty field among those that are read, or a control
            character; a line or a field is too long.
    """
    end, buffer = text.end, np.frombuffer(text.padded, np.uint8)
    dtype: type = np.int32 if 2 * len(buffer) < 2**31 else np.int64
    columns: dict[str, list[tuple[Array, ...]]] = {
        name: [(np.zeros(0, dtype), np.zeros(0, np.int32))] for name in layout.columns
    }
    more, place = list[Array](), len(buffer)  # the text is followed by copies of pieces that are not regular
    begin, line = 0, text.first_line
    while begin < end:
        stop = text.padded.rfind(b"\n", begin, min(begin + PIECE, end)) + 1
        stop = stop or text.padded.find(b"\n", begin, end) + 1 or end
        length, first = _lengths(buffer[begin:stop], layout), begin
        if length is None:
            squeezed, first = _squeezed(text.padded[begin:stop], layout.tabs), place
            length = None if stop - begin > LONGEST_LINE else _lengths(squeezed, layout)
            if length is None:
                rows = list(_rows(Text.of(text.padded[begin:stop], text.name, line), layout))
                length = np.array([list(map(len, row)) for row in rows], np.int64).reshape(-1, layout.width)
                squeezed = np.frombuffer(b"".join(b"\n".join(row) + b"\n" for row in rows), np.uint8)
            more.append(squeezed)
            place += len(squeezed)
        after = np.cumsum(length + 1)
        start = (first + after).reshape(length.shape) - length - 1
        for name, number in layout.columns.items():
            columns[name].append((start[:, number].astype(dtype), length[:, number].astype(np.int32)))
        begin, line = stop, line + text.padded.count(b"\n", begin, stop)
    if more:
        buffer = np.concatenate([buffer, *more, np.zeros(PADDING, np.uint8)])
    return {name: TextIds(buffer, *map(np.concatenate, zip(*parts))) for name, parts in columns.items()}


def _squeezed(piece: bytes, tabs: bool) -> Array:
    """Lines without blank ones and carriage returns, and with one blank between fields, unless these are tabs."""
    lines = piece.split(b"\n")
    rows = (line.removesuffix(b"\r") for line in lines) if tabs else map(b" ".join, map(bytes.split, lines))
    return np.frombuffer(b"\n".join([*filter(None, rows), b""]), np.uint8)


def _lengths(piece: Array, layout: Layout) -> Array | None:
    """The lengths [line, field] of the fields of some lines; None if a line is not regular.

    Regular lines have the fields that are expected, with one separator between them, and no comments.
    """
    ends = np.flatnonzero(piece < SPACE + (not layout.tabs))
    if not len(piece):
        return np.zeros((0, layout.width), np.int64)
    if len(piece) > LONGEST_LINE or len(ends) % layout.width or piece[-1] != NEWLINE:
        return None
    separators = piece[ends].reshape(-1, layout.width)
    if (separators[:, -1] != NEWLINE).any():
        return None
    length, separator = np.diff(ends, prepend=-1) - 1, TAB if layout.tabs or piece[ends[0]] == TAB else SPACE
    if (separators[:, :-1] != separator).any() or not 0 < length.min() <= length.max() <= LONGEST_ID:
        return None
    length = length.reshape(-1, layout.width)
    begins_comment = piece[ends[:: layout.width] - length[:, 0]] == HASH
    return None if not layout.tabs and (begins_comment & (length[:, 0] == 1)).any() else length


def _rows(text: Text, layout: Layout) -> Iterator[list[bytes]]:
    """The fields of each line."""
    for number, line in text.lines():
        if len(line) > LONGEST_LINE:
            raise text.too_long(number, line)
        text.refuse_control_characters(number, line)
        row = _fields_of(line, layout.tabs)
        if not row:
            continue
        if len(row) != layout.width:
            between = "tabs" if layout.tabs else "white space"
            message = f"Expected {layout.width} fields between {between}, as in the first line, got {len(row)}"
            raise text.error(message, number, line)
        for place in layout.columns.values():
            if not row[place]:
                raise text.error(f"Expected {layout.width} fields, got an empty one", number, line)
            if (longest := len(row[place])) > LONGEST_ID:
                message = f"Expected fields of at most {LONGEST_ID:,} bytes, got one of {longest:,}; shorten it"
                raise text.error(message, number, line)
        yield row


def _fields_of(line: bytes, tabs: bool) -> list[bytes]:
    """The fields of a line; none if it is blank, or a comment between white space."""
    if tabs:
        return (line := line.removesuffix(b"\r")).split(b"\t") if line else []
    row = line.split()
    return [] if row[:1] == [b"#"] else row


def numbers(column: TextIds, what: str, error: RowError) -> Array:
    """Parse a column of decimal numbers: float64 [row], each the nearest to its text, in their order.

    Args:
        column: the texts of the numbers.
        what: the name of the column, for messages.
        error: returns the error of a row.

    Raises:
        ReadingError: a field is not a number, or is NaN.
    """
    values = np.empty(len(column), dtype=np.float64)
    for part in blocks(len(column)):
        values[part] = _parsed(column.take(part))
    if np.isnan(values).any():
        for row, key in enumerate(column.to_keys()):
            if not _NUMBER.fullmatch(key):
                got = key[:50].decode("utf-8", "backslashreplace")
                raise error(f"Expected {what} to be a number, got {got!r}", row)
    keep_order(values, lambda rows: [Decimal(key.decode().strip()) for key in column.take(rows).to_keys()])
    return values


def _parsed(column: TextIds) -> Array | float:
    """The numbers of a column; NaN if a field is none."""
    width = -(-int(column.length.max()) // 8)
    if width * 8 > WIDE:
        keys = column.to_keys()
        return np.array([float(key) for key in keys]) if all(map(_NUMBER.fullmatch, keys)) else np.nan
    fixed = np.zeros((len(column), width), dtype="<u8")
    for number in range(width):
        rows = np.flatnonzero(column.length > 8 * number)
        fixed[rows, number] = column.take(rows).words(number)
    # Python's float, which numpy calls, takes underscores between digits.
    if (fixed.view(np.uint8) == ord("_")).any():
        return np.nan
    try:
        return fixed.view(f"S{8 * width}").ravel().astype(np.float64)
    except ValueError:
        return np.nan


# ---- the content of files --------------------------------------------------------------------------------------------

#: how compressed files begin: the module that opens them, and the command for those that have none
COMPRESSED = {
    rb"\x1f\x8b": ("gzip", "gzip -d"),
    rb"BZh[1-9]1AY&SY": ("bz2", "bzip2 -d"),
    rb"\xfd7zXZ\0": ("lzma", "xz -d"),
    rb"\x04\x22\x4d\x18": ("lz4.frame", "lz4 -d"),
    rb"\x28\xb5\x2f\xfd": ("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "zstd -d"),
    rb"PK\x03\x04": ("", "unzip"),
}


@contextlib.contextmanager
def opened(source: Any) -> Iterator[tuple[IO[bytes], str, tuple[str, str] | None]]:
    """The bytes of a path, of "-" (standard input) or of an open file; its name; its row of :data:`COMPRESSED`."""
    with contextlib.ExitStack() as stack:
        file: Any
        if isinstance(source, str) and source == "-":
            file, name = sys.stdin.buffer, "<stdin>"
        elif hasattr(source, "read"):
            data, name = source.read(), str(getattr(source, "name", f"<{type(source).__name__}>"))
            file = io.BytesIO(data.encode() if isinstance(data, str) else data)
        else:
            file, name = stack.enter_context(Path(source).open("rb")), str(Path(source))
        file = file if hasattr(file, "peek") else io.BufferedReader(file)
        packed = next((found for start, found in COMPRESSED.items() if re.match(start, file.peek(10)[:10])), None)
        if packed and not (packed[0] and installed(packed[0])):
            package = {"lz4.frame": "lz4", "backports.zstd": "backports.zstd"}.get(packed[0])
            way_out = f"decompress it with {packed[1]}" + (f", or install the package {package}" if package else "")
            raise ReadingError(f"Expected text or gzip, got another compression; {way_out}", name)
        yield file, name, packed


@contextlib.contextmanager
def decompressed(file: IO[bytes], packed: tuple[str, str], name: str) -> Iterator[IO[bytes]]:
    """The content of a compressed file; raises ReadingError if it is not a whole one."""
    try:
        with imported(packed[0]).open(file, "rb") as stream:
            yield stream
    except ReadingError:
        raise
    except Exception as error:  # each module has its own
        raise ReadingError(f"Expected a whole {packed[1].split()[0]} file, got one with: {error}", name) from error


def open_text(source: Any, value: str, expansion: int) -> Text:
    """The content of a path, of "-" (standard input) or of an open file, decompressed, without a byte order mark.

    Raises:
        ReadingError: it is empty, in UTF-16, or not a whole compressed file; or it has more than ``expansion`` times
            the size of its file.
    """
    with opened(source) as (file, name, packed):
        data = file.read()
    if packed is None:
        return without_mark(data, name)
    most, content = max(EXPANDED, expansion * len(data)), bytearray()
    with decompressed(io.BytesIO(data), packed, name) as stream:
        while piece := stream.read(PIECE):
            content += piece
            if len(content) > most:
                enough = ANY_EXPANSION if packed[0] == "gzip" else "..."
                raise _too_large(packed[1].split()[0], most, "a larger one", enough, value, name)
    return without_mark(bytes(content), name)


def _too_large(kind: str, most: int, got: str, enough: object, value: str, name: str) -> ReadingError:
    """The error of a file with more than ``most`` bytes in memory, for which ``expansion=enough`` is enough."""
    way_out = names.reading_with(value, f"expansion={enough}")
    message = f"Expected a {kind} file of at most {most:,} bytes, decompressed, got {got}; if you trust it, {way_out}"
    return ReadingError(message, name)


def without_mark(data: bytes, name: str, first_line: int = 1) -> Text:
    """The text of a source without its byte order mark and the blank lines at its beginning.

    Raises:
        ReadingError: it is empty or in UTF-16.
    """
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ReadingError("Expected text in UTF-8, got UTF-16; convert the file", name)
    text = Text.of(data.removeprefix(b"\xef\xbb\xbf"), name, first_line)
    first = _BLANK.match(text.padded, 0, text.end).end()  # type: ignore[union-attr]
    if first == text.end:
        raise ReadingError("Expected lines of text, got an empty file", name)
    return text.from_place(text.padded.rfind(b"\n", 0, first) + 1)


# ---- formats ---------------------------------------------------------------------------------------------------------

# Columns of files without a header, by the number of fields: query, document, score or grade, and subtopic.
RUN_FIELDS = {5: (0, 2, 4), 6: (0, 2, 4)}
QRELS_FIELDS = {2: (0, 1), 4: (0, 2, 3, 1)}


def delimited(text: Text, reading: Reading, tabs: bool | None = None) -> Rows:
    """Read fields between white space, or between tabs, with or without a header.

    Args:
        text: the text.
        reading: how it is read.
        tabs: fields are separated by one tab each; None = if no format is named, this fits, and white space does not.

    Raises:
        ReadingError: a line cannot be read, or the number of fields is none of a known format.
    """
    text = text.from_first_row
    layout = reading.layout or layout_of(text, reading, tabs)
    if layout.header and reading.layout is None:
        text = text.from_place(text.padded.find(b"\n", 0, text.end) + 1 or text.end)
    try:
        cut = fields(text, layout)
    except ReadingError:
        if not layout.or_tabs:
            raise
        layout = replace(layout, tabs=True)
        cut = fields(text, layout)

    def error(message: str, row: int) -> ReadingError:
        rows = (found for found in text.lines() if _fields_of(found[1], layout.tabs))
        return text.error(message, *next(islice(rows, row, None)))

    value, (codes, queries) = reading.value, factorise(cut["query"])
    item, subtopic = cut["item"], subtopics_of(codes, cut.get("subtopic"))
    what = value if value in cut else "rank"
    values = numbers(cut[what], what, error) if what in cut else names.relevant(len(item), text.name)
    if "rank" in cut and value not in cut:
        values = _from_ranks(codes, values, error)
    elif "rank" in cut:
        _refuse_other_ranks(codes, cut["rank"], values, error, text.first_line == 1)
    return Rows(queries, codes, item, values, text.name, error, subtopic)


def _refuse_other_ranks(query: Array, column: TextIds, scores: Array, error: RowError, is_beginning: bool) -> None:
    """Raise ReadingError if fields beside scores are no ranks. Judgments between tabs have four fields, too."""
    try:
        ranks = numbers(column, "rank", error)
    except ReadingError:
        ranks = np.full(len(column), -1.0)
    order = np.argsort(query, kind="stable")
    number, rank, score = query[order], ranks[order], scores[order]
    begins = np.diff(number, prepend=-1) != 0
    wrong = np.where(begins, rank > 1, (rank <= np.roll(rank, 1)) | (score > np.roll(score, 1)))
    wrong[:1] &= is_beginning  # another piece of a file may begin within a query
    wrong |= (rank < 0) | (rank != np.floor(rank))
    if wrong.any():
        raise error(
            "Expected four fields between tabs to be query, document, rank from 1 and score, the best first, as ColBERT"
            " writes them; exchange the judgments and the run, or read it by tr.read_run(source, columns={'query': 0,"
            " 'item': 1, 'score': ...})",
            int(order[wrong.argmax()]),
        )


def _from_ranks(query: Array, ranks: Array, error: RowError) -> Array:
    """Scores that descend with the rank."""
    order = np.lexsort((ranks, query))
    wrong = (ranks != np.floor(ranks)) | (ranks < 0)
    wrong[order[1:]] |= (np.diff(query[order]) == 0) & (np.diff(ranks[order]) == 0)
    if wrong.any():
        raise error(
            "Expected the third field to be a rank, each once for a query; if it is a score, read it by"
            " tr.read_run(source, columns={'query': 0, 'item': 1, 'score': 2})",
            int(wrong.argmax()),
        )
    return -ranks


def layout_of(text: Text, reading: Reading, tabs: bool | None = None) -> Layout:
    """The layout of a file, by its first line, which is neither blank nor a comment.

    Raises:
        ReadingError: it is none of a known format.
    """
    value, line = reading.value, text.first_line_bytes()
    text.refuse_control_characters(text.first_line, line)
    by_tabs = line.decode("utf-8", "backslashreplace").split("\t")
    # between white space of ASCII; str.split would cut at other blanks too
    by_blanks = [field.decode("utf-8", "backslashreplace") for field in line.split()]
    asked = names.chosen_columns(reading.columns, value)
    named = any(isinstance(column, str) for column in asked.values())

    def error(message: str) -> ReadingError:
        return text.error(message, text.first_line, line)

    layout = None
    for header, is_tabs in ((by_tabs, True), (by_blanks, False)):
        if layout is None and (named or not asked) and len(header) > is_tabs:
            with contextlib.suppress(ReadingError):
                columns = names.find_columns(reading.columns, header, value, text.name)
                layout = Layout(len(header), columns, is_tabs, header=True)
    if layout is None:
        if named:
            names.find_columns(reading.columns, by_tabs if len(by_tabs) > 1 else by_blanks, value, text.name)
        if tabs is None and reading.format == "auto":
            is_tabs = _has_blanks_in_fields(line.strip(), value, error)
        else:
            is_tabs = bool(tabs)
        width = len(by_tabs if is_tabs else by_blanks)
        fits_tabs = is_tabs or len(line.rstrip().split(b"\t")) == width
        columns = _numbered(asked, width, value, error) if asked else _usual(width, value, fits_tabs, error)
        layout = Layout(width, columns, is_tabs)
    or_tabs = not layout.tabs and bool(tabs or reading.format == "auto")
    return replace(layout, or_tabs=or_tabs and len(line.rstrip().split(b"\t")) == layout.width)


def _has_blanks_in_fields(line: bytes, value: str, error: Callable[[str], ReadingError]) -> bool:
    """Whether the fields of a line are between tabs, and have blanks: there are as many as a known format has.

    Raises:
        ReadingError: the fields between white space may be the right ones, too.
    """
    by_tabs, by_blanks = line.split(b"\t"), line.split()
    if not (2 <= len(by_tabs) <= 6 and len(by_tabs) < len(by_blanks) and all(map(bytes.strip, by_tabs))):
        return False
    iterations = b"0", b"Q0"  # the second field of most files of TREC
    second = by_blanks[1].upper()
    if second not in iterations or by_tabs[1].strip().upper() in iterations or len(by_blanks) > 6:
        return True
    if second == b"0" and len(by_tabs) > 2:
        way_out = names.reading_with(value, "format='tsv'")
        raise error(
            f"Expected fields between tabs or between blanks, got both; use one of them, or {way_out} or 'trec'"
        )
    return False


def _numbered(asked: dict[str, Any], width: int, value: str, error: Callable[[str], ReadingError]) -> dict[str, int]:
    """The columns of a file without a header that the user numbers."""
    known = {"query", "item", "rank" if "rank" in asked else value}
    if set(asked) - {"subtopic"} != known and (value, set(asked)) != ("grade", {"query", "item"}):
        raise ValueError(f"Expected columns to number query, item and {value}, got {asked!r}")
    if not all(isinstance(number, int) and 0 <= number < width for number in asked.values()):
        raise error(f"Expected columns to be numbers from 0 to {width - 1}, got {asked}")
    return asked


def _usual(width: int, value: str, fits_tabs: bool, error: Callable[[str], ReadingError]) -> dict[str, int]:
    """The columns of a file without a header, by its number of fields."""
    usual = (RUN_FIELDS if value == "score" else QRELS_FIELDS).get(width)
    if usual is None and width == 3 and fits_tabs:
        return {"query": 0, "item": 1, "rank" if value == "score" else value: 2}  # MS MARCO has ranks
    if width == 4 and fits_tabs and value == "score":
        return {"query": 0, "item": 1, "rank": 2, "score": 3}  # ColBERT
    if usual is None:
        form = "query Q0 document rank score tag" if value == "score" else "query 0 document grade"
        way_out = names.column_choice(value).format("query").replace("...", f"0, 'item': 1, '{value}': ...")
        if width in (QRELS_FIELDS if value == "score" else RUN_FIELDS):
            way_out += ", or exchange the judgments and the run"
        if width == 1:
            way_out = "separate the fields by blanks, tabs or commas"
        raise error(f"Expected fields like '{form}', got {width}; {way_out}")
    return dict(zip(("query", "item", value, "subtopic"), usual))


def comma_separated(text: Text, reading: Reading) -> Rows:
    """Read fields between commas: as fields between tabs in the same lines, of the columns that are read.

    Raises:
        ReadingError: a line cannot be read, or the first line names no columns and the user does not number them.
    """
    text = text.from_first_row
    asked = names.chosen_columns(reading.columns, reading.value).values()
    numbered = bool(asked) and not any(isinstance(column, str) for column in asked)  # there is no header
    rows = csv.reader(io.StringIO(decode(text.data), newline=""), strict=True)
    pieces, line = list[str](), 0
    try:
        for row in rows:
            if not pieces:
                columns, width = names.find_columns(reading.columns, row, reading.value, text.name), len(row)
                pieces += ["\t".join(columns), "\n" * numbered]
                row = row if numbered else []
            if row and len(row) != width:
                message = f"Expected {width} fields between commas, as in the first line, got {len(row)}"
                raise ReadingError(message, text.name, text.first_line + line, ",".join(row))
            pieces += ["\t".join([row[number] for number in columns.values()]) if row else ""]
            pieces += ["\n" * (rows.line_num - line)]
            line = rows.line_num
    except csv.Error as error:
        raise ReadingError(f"Expected fields between commas, got {error}", text.name, text.first_line + line) from error
    joined = Text.of(encode("".join(pieces)), text.name, text.first_line - numbered)
    return delimited(joined, Reading(reading.value), tabs=True)


def is_comma_separated(text: Text) -> bool:
    """Whether the first line has commas and no other separators, or several usual names of columns between commas."""
    line = text.from_first_row.first_line_bytes()
    if b"," not in line or b"\t" in line:
        return False
    return len(line.split()) == 1 or sum(names.is_usual(field.strip(' "')) for field in decode(line).split(",")) > 1


def is_json_lines(text: Text) -> bool:
    """Whether the first line is a dictionary by itself, without dictionaries in it."""
    try:
        first = json.loads(text.first_line_bytes())
    except (ValueError, RecursionError):  # a long line is not a line of a file of lines
        return False
    if not isinstance(first, dict) or any(isinstance(value, dict) for value in first.values()):
        return False
    return not all(isinstance(value, list) for value in first.values())  # {query: [documents]}


def json_lines(text: Text, reading: Reading) -> Rows:
    """Read a file with one dictionary in each line."""
    rows, lines = [], []
    for number, line in text.lines():
        if len(line) > LONGEST_LINE:
            raise text.too_long(number, line)
        if line.strip():
            rows.append(from_json(line, text.name, number))
            lines.append((number, line.strip()))

    def error(message: str, row: int) -> ReadingError:
        return text.error(message, *lines[row])

    for row, values in enumerate(rows):
        if not isinstance(values, dict):
            raise error("Expected a dictionary in each line", row)
    return names.rows_of_frame(rows, reading.value, reading.columns, text.name, error)


def json_tables(text: Text, reading: Reading) -> Content:
    """Read ``{query: {document: number}}``, MTEB's ``{subset: {split: {query: {document: score}}}}``, or rows."""
    tables, value = from_json(text.data, text.name, None), reading.value
    rows = isinstance(tables, list) and all(isinstance(row, dict | list) for row in tables)
    if not rows and not isinstance(tables, dict):
        raise ReadingError(f"Expected {{query: {{document: number}}}} or rows, got {shown(tables)}", text.name)
    for name, asked in (("subset", reading.subset), ("split", reading.split)) if value == "score" else ():
        if _depth(tables) > (3 if name == "subset" else 2):
            # Beside the subsets stands the description of the model.
            tables = {key: table for key, table in tables.items() if name == "split" or not key.startswith("mteb_")}
            asked = next(iter(tables)) if asked is None and len(tables) == 1 else asked
            if asked not in tables:
                listed = f"{shorten(', '.join(tables))}, got {asked!r}; read it by tr.read_run(source, {name}=...)"
                raise ReadingError(f"Expected {name} to be one of {listed}", text.name)
            tables = tables[asked]
        elif asked is not None and _depth(tables) <= 2:
            got = "{query: {document: number}}"
            raise ReadingError(f"Expected a file with a {name} {asked!r}, got {got}", text.name)
    return (names.rows_of_tuples if isinstance(tables, list) else names.rows_of_dictionary)(
        tables, value, reading.columns, text.name
    )


def _depth(tables: Any, most: int = 4) -> int:
    """How many dictionaries are inside each other, at most ``most``."""
    if not most or not isinstance(tables, dict):
        return 0
    return 1 + max((_depth(table, most - 1) for table in islice(tables.values(), 3)), default=0)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dictionary of JSON, whose keys are all different."""
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ReadingError(f"Expected each key once, got {again!r} twice")
    if (longest := max(map(len, table), default=LONGEST_ID)) > LONGEST_ID:
        raise ReadingError(f"Expected ids of at most {LONGEST_ID:,} characters, got one of {longest:,}; shorten it")
    return table


_DECODER = json.JSONDecoder(object_pairs_hook=_once)


def from_json(data: bytes, source: str, line: int | None) -> Any:
    """The object of a text in JSON: a line of a source, or the whole source, whose line is None."""
    try:
        return _DECODER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
    except ReadingError as error:
        raise ReadingError(str(error), source, line) from None
    except (ValueError, RecursionError) as error:
        number = getattr(error, "lineno", None) if line is None else line
        rows = data.split(b"\n")
        text = rows[number - 1 if line is None and number else 0].decode("utf-8", "backslashreplace")
        raise ReadingError(f"Expected JSON, got {error}", source, number, text.strip()) from error


def whole_frame(text: Text, reading: Reading, kind: Literal["parquet", "arrow"]) -> Rows:
    """Read the data frame of a Parquet or an Arrow file, which is refused if it has many times the size of its file."""
    (frame,) = frames(io.BytesIO(text.data), kind, text.name, reading, packed=text.end)
    return names.rows_of_frame(frame, reading.value, reading.columns, text.name)


def frames(
    source: Any, kind: Format, name: str, reading: Reading, lines: int | None = None, packed: int | None = None
) -> Iterator[Any]:
    """The data frames of a Parquet file, by the first library that is installed, or of an Arrow file, by pyarrow.

    Args:
        source: the file, or its path.
        kind: "parquet" or "arrow", a file or a stream.
        name: the name of the source.
        reading: how it is read.
        lines: the rows of each frame, about; None = one frame has all rows.
        packed: the bytes of the file, of which memory may take a multiple; None = it has no bound.

    Raises:
        ImportError: no library is installed.
        ReadingError: it is not a whole file, or it is too large.
    """
    library, by_polars = "pyarrow.ipc" if kind == "arrow" else "pyarrow.parquet", False
    if kind == "parquet" and not installed(library) and installed("polars"):
        library, by_polars = "polars", True
    module = imported(library, instead="" if kind == "arrow" else "`pip install polars`")
    failures = (Exception, module.exceptions.PanicException) if by_polars else Exception

    def check(size: int) -> None:
        if packed and size > (most := max(EXPANDED, reading.expansion * packed)):
            enough = "..." if kind == "arrow" else -(-size // packed)  # of an Arrow file a part is known
            raise _too_large(kind, most, f"{size:,}", enough, reading.value, name)

    try:
        if kind == "arrow":
            yield from _arrow_frames(module, source, lines, check)
        elif by_polars:  # which does not tell the sizes of compressed texts
            scan = module.scan_parquet(source)
            rows = scan.select(module.len()).collect().item()
            check(8 * rows * len(scan.collect_schema()))
            for start in range(0, max(rows, 1), lines or max(rows, 1)):
                yield scan.slice(start, lines).collect()
        else:
            file = module.ParquetFile(source)
            data = file.metadata
            # Repeated values take few bytes of a file, but 8 bytes or more each in memory.
            encoded = sum(data.row_group(number).total_byte_size for number in range(data.num_row_groups))
            check(max(encoded, 8 * data.num_rows * data.num_columns))
            yield from file.iter_batches(lines) if lines else [file.read()]
    except ReadingError:
        raise
    except failures as error:  # of either library, and of the file system below
        raise ReadingError(f"Expected a whole {kind} file, got one with: {error}", name) from error


def _arrow_frames(module: Any, source: Any, lines: int | None, check: Callable[[int], None]) -> Iterator[Any]:
    """The tables of an Arrow file or stream, whose batches may be small."""
    with source if hasattr(source, "read") else imported("pyarrow").memory_map(str(source)) as file:
        is_stream = file.read(len(ARROW)) != ARROW
        file.seek(0)
        reader = module.open_stream(file) if is_stream else module.open_file(file)
        batches = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
        held, rows, size = [], 0, 0
        for batch in batches:
            batch.validate(full=True)
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            check(size)
            if lines and rows >= lines:
                table = imported("pyarrow").Table.from_batches(held)
                yield from (table.slice(start, lines) for start in range(0, rows, lines))
                held, rows = [], 0
        if held or not lines:
            yield imported("pyarrow").Table.from_batches(held, reader.schema)


def columnar_format(path: Path) -> Format | None:
    """The format of a file of columns, by its first bytes; None = another file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(len(ARROW))
    return "parquet" if start.startswith(PARQUET) else "arrow" if start.startswith((ARROW, ARROW_STREAM)) else None


#: the rows of a source, or its dictionaries by query and its name
Content = Rows | tuple[Mapping[Any, Any], str]
#: a run to write: the documents of each query with their scores, the best first
Ranked = Mapping[Any, Sequence[tuple[Any, float]]]


@dataclass(frozen=True)
class FileFormat:
    """A format of files."""

    #: a description, for docstrings
    about: str
    read: Callable[[Text, Reading], Content]
    #: whether a text is in this format; the last format of :data:`FORMATS` that recognises a text reads it
    recognises: Callable[[Text], bool] = lambda text: False
    #: where the lines have their columns, None = each line names them; no function = not a file of lines
    layout: Callable[[Text, Reading], Layout | None] | None = None
    #: the endings of files that are written in this format
    endings: Sequence[str] = ()
    write: Callable[[Ranked], Iterator[str]] | None = None


def _write_trec(run: Ranked) -> Iterator[str]:
    for query, pairs in run.items():
        for rank, (item, score) in enumerate(pairs, 1):
            yield f"{_field(query)} Q0 {_field(item)} {rank} {score!r} torchrank\n"


def _write_tsv(run: Ranked) -> Iterator[str]:
    yield "query-id\tcorpus-id\tscore\n"
    for query, pairs in run.items():
        for item, score in pairs:
            yield f"{_field(query, '')}\t{_field(item, '')}\t{score!r}\n"


def _write_json(run: Ranked) -> Iterator[str]:
    yield json.dumps({str(query): {str(item): score for item, score in pairs} for query, pairs in run.items()}) + "\n"


def _write_json_lines(run: Ranked) -> Iterator[str]:
    for query, pairs in run.items():
        for item, score in pairs:
            yield json.dumps({"query-id": query, "corpus-id": item, "score": score}) + "\n"


def _field(name: Any, blank: str = " ") -> str:
    """An id as a field between white space, or between tabs if it may have blanks."""
    text = str(name)
    if not text or any(character < " " or character == blank for character in text):
        way_out = "write .json or .jsonl" if blank == "" else "write .tsv, .json or .jsonl"
        raise ReadingError(f"Expected ids without white space, got {text!r}; {way_out}")
    return text


FORMATS: dict[Format, FileFormat] = {
    "trec": FileFormat(
        "fields between any white space: query, subtopic, document, grade of judgments; query, Q0, document, rank,"
        ' score, and a tag or none of a run; a line that begins with "# " is a comment',
        delimited,
        lambda text: True,
        layout_of,
        (".run", ".trec", ".txt"),
        _write_trec,
    ),
    "tsv": FileFormat(
        "fields between single tabs, which may have blanks, with a header as in BEIR; without one as those of trec;"
        " query, document, and grade or, as in MS MARCO, rank; or query, document, rank and score, as ColBERT writes",
        partial(delimited, tabs=True),
        layout=partial(layout_of, tabs=True),
        endings=(".tsv",),
        write=_write_tsv,
    ),
    "csv": FileFormat(
        "fields between commas, quoted as in spreadsheets, with a header",
        comma_separated,
        is_comma_separated,
    ),
    "json": FileFormat(
        "``{query: {document: number}}``, a dictionary of columns, a list of rows that are dictionaries or lists, or"
        " predictions of MTEB",
        json_tables,
        lambda text: text.starts_with(b"{", b"["),
        endings=(".json",),
        write=_write_json,
    ),
    "jsonl": FileFormat(
        "a dictionary of query, document and number in each line",
        json_lines,
        lambda text: text.starts_with(b"{") and is_json_lines(text),
        lambda text, reading: None,
        (".jsonl",),
        _write_json_lines,
    ),
    "parquet": FileFormat(
        "a data frame", partial(whole_frame, kind="parquet"), lambda text: text.padded.startswith(PARQUET)
    ),
    "arrow": FileFormat(
        "a data frame, of Arrow's files (Feather) or streams",
        partial(whole_frame, kind="arrow"),
        lambda text: text.padded.startswith((ARROW, ARROW_STREAM)),
    ),
}
#: the functions that write a run, by the ending of its file
WRITERS = {ending: known.write for known in FORMATS.values() if known.write for ending in known.endings}


def format_of(text: Text, reading: Reading) -> Format:
    """The format that the user names, or that is recognised."""
    if reading.format != "auto":
        return reading.format
    return next(name for name, known in reversed(FORMATS.items()) if known.recognises(text))


_LINES = (f'"{name}": {known.about}' for name, known in FORMATS.items())
#: the list of all formats, for docstrings
ABOUT_FORMATS = ";\n            ".join(textwrap.fill(line, 108, subsequent_indent=" " * 12) for line in _LINES)
