"""Files to rows: lines of text, whose fields are found at once, JSON and parquet; an entry for each format."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from torchrank.names.arguments import imported, installed
from torchrank.tables import columns as names
from torchrank.tables.id_columns import LONGEST_ID, PADDING, TextIds, decode, encode, factorise
from torchrank.tables.pair_tables import ReadingError, Rows, keep_order, shorten, shown, subtopics_of

Array = np.ndarray
Format = Literal["auto", "trec", "tsv", "csv", "json", "jsonl", "parquet"]

# A gzip or parquet file is read up to so many times its size, and up to EXPANDED bytes in any case.
EXPANSION, EXPANDED = 100, 2**26
# The bound that no gzip file exceeds: its format has at most 1,032 bytes for each byte.
ANY_EXPANSION = 1100
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


@dataclass(frozen=True)
class Reading:
    """How a source is read: "score" or "grade", and arguments of :func:`torchrank.read_run`."""

    value: str
    columns: names.Columns = None
    format: Format = "auto"
    subset: str | None = None
    split: str | None = None
    expansion: int = EXPANSION


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
        way_out = "end each row with a line break"
        return self.error(f"Expected lines of at most {LONGEST_LINE:,} bytes, got a longer one; {way_out}", place)

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
    places = range(text.begin, text.end, CHUNK)
    counts = (np.count_nonzero(text.buffer[n : min(n + CHUNK, text.end)] == NEWLINE) for n in places)
    room, rows = 1 + sum(map(int, counts)), 0  # empty lines included
    starts: list[Array] = [np.empty(room, dtype=dtype) for _ in wanted]
    lengths: list[Array] = [np.empty(room, dtype=np.int32) for _ in wanted]
    begin = text.begin
    while begin < text.end:
        stop = text.end
        if stop - begin > LONGEST_LINE:  # behind the last line that ends in the next piece
            last_newline = bytes(text.buffer[begin : begin + LONGEST_LINE + 1]).rfind(b"\n")
            if last_newline < 0:
                raise text.too_long(begin)
            stop = begin + last_newline + 1
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


# How files of other compressions begin, and what decompresses them.
OTHERS = {
    b"\x04\x22\x4d\x18": "lz4 -d",
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"BZh91AY&SY": "bzip2 -d",
    b"\xfd7zXZ\0": "xz -d",
    b"PK\x03\x04": "unzip",
}
# Columns of files without a header, by the number of fields: query, document, score or grade, and subtopic.
RUN_FIELDS = {5: (0, 2, 4), 6: (0, 2, 4)}
QRELS_FIELDS = {2: (0, 1), 4: (0, 2, 3, 1)}


def open_text(source: Any, value: str, expansion: int) -> Text:
    """The content of a path, of "-" (standard input) or of an open file, decompressed, without a byte order mark.

    Raises:
        ReadingError: it is empty, in UTF-16, of another compression, or not a whole gzip file; or it has more than
            ``expansion`` times the size of its file.
    """
    text = _content(source)
    if text.buffer[:2].tobytes() != b"\x1f\x8b":
        return without_mark(text)
    data, most = bytearray(), max(EXPANDED, expansion * text.end)
    try:
        with gzip.open(io.BytesIO(text.buffer[: text.end].data)) as stream:  # a gzip file can have several parts
            while piece := stream.read(CHUNK):
                data += piece
                if len(data) > most:
                    raise ReadingError(
                        f"Expected a gzip file of at most {most:,} bytes, decompressed, got a larger one; if you trust"
                        f" it, {names.reading_with(value, f'expansion={ANY_EXPANSION}')}",
                        text.name,
                    )
    except (OSError, EOFError, zlib.error) as error:
        raise ReadingError(f"Expected a whole gzip file, got one with: {error}", text.name) from error
    data += bytes(PADDING)
    return without_mark(Text(text.name, np.frombuffer(data, np.uint8)))


def without_mark(text: Text) -> Text:
    """A text without its byte order mark and the blank lines at its beginning.

    Raises:
        ReadingError: it is empty, in UTF-16 or of another compression.
    """
    head = bytes(text.buffer[:10])
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ReadingError("Expected text in UTF-8, got UTF-16; convert the file", text.name)
    for start, call in OTHERS.items():
        if head.startswith(start):
            raise ReadingError(f"Expected text or gzip, got another compression; decompress it with {call}", text.name)
    if head[:3] == b"\xef\xbb\xbf":
        text = Text(text.name, text.buffer, 3)
    if (first := _first_word(text)) == text.end:
        raise ReadingError("Expected lines of text, got an empty file", text.name)
    blank = bytes(text.buffer[text.begin : first])
    return Text(text.name, text.buffer, text.begin + blank.rfind(b"\n") + 1, text.first_line + blank.count(b"\n"))


def is_blank(text: Text) -> bool:
    """Whether a text has white space only."""
    return _first_word(text) == text.end


def _first_word(text: Text) -> int:
    """The place of the first byte that is not white space; the end if there is none."""
    for place in range(text.begin, text.end, CHUNK):
        stop = min(place + CHUNK, text.end)
        if rest := bytes(text.buffer[place:stop]).lstrip():
            return stop - len(rest)
    return text.end


def _content(source: Any) -> Text:
    if isinstance(source, str) and source == "-":
        return Text.of(sys.stdin.buffer.read(), "<stdin>")
    if hasattr(source, "read"):
        data = source.read()
        name = str(getattr(source, "name", f"<{type(source).__name__}>"))
        return Text.of(data.encode() if isinstance(data, str) else bytes(data), name)
    path = Path(source)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        buffer = np.zeros(size + PADDING, dtype=np.uint8)
        read = file.readinto(memoryview(buffer)[:size])  # type: ignore[arg-type]
        rest = file.read()  # a pipe has size 0, and a file can grow
    if read == size and not rest:
        return Text(str(path), buffer)
    return Text.of(bytes(buffer[:read]) + rest, str(path))


def parquet(text: Text, reading: Reading) -> Rows:
    """Read the data frame of a parquet file, by the first library that is installed.

    Raises:
        ImportError: none is installed.
        ReadingError: it is not a whole parquet file, or it has many times the size of its file.
    """
    by_polars = not installed("pyarrow.parquet") and installed("polars")
    library = imported("polars") if by_polars else imported("pyarrow.parquet", instead="`pip install polars`")
    file, most = io.BytesIO(bytes(text.buffer[text.begin : text.end])), max(EXPANDED, reading.expansion * text.end)
    try:
        if by_polars:  # which does not tell the sizes of compressed texts
            rows, encoded = library.scan_parquet(file).select(library.len()).collect().item(), 0
            columns = len(library.read_parquet_schema(file))
        else:
            metadata = library.read_metadata(file)
            rows, columns = metadata.num_rows, metadata.num_columns
            encoded = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        # Repeated values take few bytes of a file, but 8 bytes or more each in memory.
        size = max(encoded, 8 * rows * columns)
        frame = None if size > most else library.read_parquet(file) if by_polars else library.read_table(file)
    except Exception as error:  # of either library, and of the file system below
        raise ReadingError(f"Expected a whole parquet file, got one with: {error}", text.name) from error
    if frame is None:
        way_out = names.reading_with(reading.value, f"expansion={-(-size // text.end)}")
        got = f"got {size:,}; if you trust it, {way_out}"
        raise ReadingError(f"Expected a parquet file of at most {most:,} bytes, decompressed, {got}", text.name)
    return names.of_frame(frame, reading.value, reading.columns, text.name)


def delimited(text: Text, reading: Reading, tabs: bool | None = None) -> Rows:
    """Read fields between white space, or between tabs, with or without a header.

    Args:
        text: the text.
        reading: how it is read.
        tabs: fields are separated by one tab each; None = if no format is named, this fits, and white space does not.

    Raises:
        ReadingError: a line cannot be read, or the number of fields is none of a known format.
    """
    text, value = _from_first_row(text), reading.value
    line = text.first_line_bytes()
    refuse_control_characters(text, text.begin, np.frombuffer(line, np.uint8))
    width, columns, between_tabs = _header(text, reading, tabs)
    by_tabs = between_tabs or len(line.rstrip().split(b"\t")) == width
    if columns is None:
        columns = _without_header(text, width, reading, by_tabs)
    else:
        text = text.after_first_line()
    wanted = list(columns.values())
    try:
        found = fields(text, wanted, width, between_tabs)
    except ReadingError:
        if between_tabs or not by_tabs or (tabs is None and reading.format != "auto"):
            raise
        found = fields(text, wanted, width, tabs=True)  # an id of a later line has a blank
    cut = dict(zip(columns, found))
    codes, queries = factorise(cut.pop("query"))  # the places of ten million queries take 80 MB
    item, third, rank = cut["item"], cut.get(value, cut.get("rank")), cut.get("rank")
    subtopic = subtopics_of(codes, cut.pop("subtopic", None))
    what = value if value in cut else "rank"
    values = names.relevant(len(item), text.name) if third is None else numbers(text, third, what)
    if rank is not None:
        values = _from_ranks(text, codes, rank, values) if third is rank else _beside_ranks(text, codes, rank, values)

    def error(message: str, row: int) -> ReadingError:
        return text.error(message, int(item.start[row]))

    return Rows(queries, codes, item, values, text.name, error, subtopic)


def header_of(text: Text, reading: Reading, tabs: bool | None = None) -> tuple[bytes, int]:
    """The line with the names of the columns, b"" if there is none, and the number of fields of a line."""
    text = _from_first_row(text)
    width, columns, _ = _header(text, reading, tabs)
    return b"" if columns is None else text.first_line_bytes() + b"\n", width


def _from_first_row(text: Text) -> Text:
    """A text without the blank lines and comments at its beginning."""
    while text.begin < text.end and (not (line := text.first_line_bytes()).strip() or is_comment(line)):
        text = text.after_first_line()
    if text.begin == text.end:
        raise ReadingError("Expected lines of text, got comments only", text.name)
    return text


def _header(text: Text, reading: Reading, tabs: bool | None) -> tuple[int, dict[str, int] | None, bool]:
    """The number of fields of the first line; the columns that they name, if they do; whether tabs separate them."""
    line, value, chosen = text.first_line_bytes(), reading.value, reading.columns
    by_tabs = line.decode("utf-8", "backslashreplace").split("\t")
    # between white space of ASCII; str.split would cut at other blanks too
    by_blanks = [field.decode("utf-8", "backslashreplace") for field in line.split()]
    asked = list(names.chosen_columns(chosen, value).values())
    named = any(isinstance(column, str) for column in asked)
    for header, between_tabs in ((by_tabs, True), (by_blanks, False)):
        if between_tabs and len(header) == 1:
            continue
        try:
            columns = names.find_columns(chosen, header, value, text.name)
        except ReadingError:
            continue
        if not asked or named:
            return len(header), columns, between_tabs
    if named:
        names.find_columns(chosen, by_tabs if len(by_tabs) > 1 else by_blanks, value, text.name)
    if tabs is None:
        tabs = reading.format == "auto" and _has_blanks_in_fields(line.strip(), text, value)
    return len(by_tabs if tabs else by_blanks), None, tabs


def _has_blanks_in_fields(line: bytes, text: Text, value: str) -> bool:
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
        raise text.error(
            f"Expected fields between tabs or between blanks, got both; use one of them, or {way_out} or 'trec'",
            text.begin,
        )
    return False


def _without_header(text: Text, width: int, reading: Reading, by_tabs: bool) -> dict[str, int]:
    """The columns of a file without a header, by its number of fields."""
    value = reading.value
    asked = names.chosen_columns(reading.columns, value)
    if asked:
        known = {"query", "item", "rank" if "rank" in asked else value}
        if set(asked) - {"subtopic"} != known and (value, set(asked)) != ("grade", {"query", "item"}):
            raise ValueError(f"Expected columns to number query, item and {value}, got {dict(asked)!r}")
        if not all(isinstance(number, int) and 0 <= number < width for number in asked.values()):
            raise text.error(f"Expected columns to be numbers from 0 to {width - 1}, got {asked}", text.begin)
        return asked
    usual = (RUN_FIELDS if value == "score" else QRELS_FIELDS).get(width)
    if usual is None and width == 3 and by_tabs:
        return {"query": 0, "item": 1, "rank" if value == "score" else value: 2}  # MS MARCO has ranks
    if width == 4 and by_tabs and value == "score":
        return {"query": 0, "item": 1, "rank": 2, "score": 3}  # ColBERT
    if usual is None:
        form = "query Q0 document rank score tag" if value == "score" else "query 0 document grade"
        way_out = names.column_choice(value).format("query").replace("...", f"0, 'item': 1, '{value}': ...")
        if width in (QRELS_FIELDS if value == "score" else RUN_FIELDS):
            way_out += ", or exchange the judgments and the run"
        if width == 1:
            way_out = "separate the fields by blanks, tabs or commas"
        raise text.error(f"Expected fields like '{form}', got {width}; {way_out}", text.begin)
    return dict(zip(("query", "item", value, "subtopic"), usual))


def is_comma_separated(text: Text) -> bool:
    """Whether the first line has commas and no other separators, or several usual names of columns between commas."""
    line = _from_first_row(text).first_line_bytes()
    if b"," not in line or b"\t" in line:
        return False
    return len(line.split()) == 1 or sum(names.is_usual(field.strip(' "')) for field in decode(line).split(",")) > 1


def comma_separated(text: Text, reading: Reading) -> Rows:
    """Read fields between commas: as fields between tabs in the same lines, of the columns that are read.

    Raises:
        ReadingError: a line cannot be read, or the first line names no columns and the user does not number them.
    """
    text = _from_first_row(text)
    asked = names.chosen_columns(reading.columns, reading.value).values()
    numbered = bool(asked) and not any(isinstance(column, str) for column in asked)  # there is no header
    rows = csv.reader(io.StringIO(decode(bytes(text.buffer[text.begin : text.end])), newline=""), strict=True)
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


def _beside_ranks(text: Text, query: Array, column: TextIds, scores: Array) -> Array:
    """The scores of a file with ranks. Judgments between tabs have four fields, too, and no ranks."""
    try:
        ranks = numbers(text, column, "rank")
    except ReadingError:
        ranks = np.full(len(column), -1.0)
    order = np.argsort(query, kind="stable")
    number, rank, score = query[order], ranks[order], scores[order]
    begins = np.diff(number, prepend=-1) != 0
    wrong = np.where(begins, rank > 1, (rank <= np.roll(rank, 1)) | (score > np.roll(score, 1)))
    if text.first_line > 1:  # a piece of a file may begin within a query
        wrong[:1] = False
    wrong |= (rank < 0) | (rank != np.floor(rank))
    if wrong.any():
        raise text.error(
            "Expected four fields between tabs to be query, document, rank from 1 and score, the best first, as ColBERT"
            " writes them; exchange the judgments and the run, or read it by tr.read_run(source, columns={'query': 0,"
            " 'item': 1, 'score': ...})",
            int(column.start[order[wrong.argmax()]]),
        )
    return scores


def _from_ranks(text: Text, query: Array, column: TextIds, ranks: Array) -> Array:
    """Scores that descend with the rank."""
    codes = query.astype(np.int64)
    wrong = (ranks != np.floor(ranks)) | (ranks < 0) | (ranks > 2**31)
    key = np.sort(codes[~wrong] << 32 | ranks[~wrong].astype(np.int64))
    again = key[1:][key[1:] == key[:-1]]
    if wrong.any() or len(again):
        place = int(wrong.argmax())
        if not wrong.any():
            place = int(np.flatnonzero((codes << 32 | ranks.astype(np.int64)) == again[0])[1])
        raise text.error(
            "Expected the third field to be a rank, each once for a query; if it is a score, read it by"
            " tr.read_run(source, columns={'query': 0, 'item': 1, 'score': 2})",
            int(column.start[place]),
        )
    return -ranks


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
    for number, line in enumerate(bytes(text.buffer[text.begin : text.end]).split(b"\n"), text.first_line):
        if len(line) > LONGEST_LINE:
            raise Text.of(line, text.name, number).too_long(0)
        if line.strip():
            rows.append(_loads(line, text.name, number))
            lines.append((number, line))

    def error(message: str, row: int) -> ReadingError:
        number, line = lines[row]
        return ReadingError(message, text.name, number, line.decode("utf-8", "backslashreplace").strip())

    for row, values in enumerate(rows):
        if not isinstance(values, dict):
            raise error("Expected a dictionary in each line", row)
    return names.of_dictionaries(rows, reading.value, reading.columns, text.name, error)


def json_tables(text: Text, reading: Reading) -> Content:
    """Read ``{query: {document: number}}``, MTEB's ``{subset: {split: {query: {document: score}}}}``, or rows."""
    tables, value = _loads(bytes(text.buffer[text.begin : text.end]), text.name, None), reading.value
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
    return (names.of_tuples if isinstance(tables, list) else names.of_dictionary)(
        tables, value, reading.columns, text.name
    )


def _depth(tables: Any, most: int = 4) -> int:
    """How many dictionaries are inside each other, at most ``most``."""
    if not most or not isinstance(tables, dict):
        return 0
    return 1 + max((_depth(table, most - 1) for table in islice(tables.values(), 3)), default=0)


def _loads(data: bytes, source: str, line: int | None) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            seen: set[str] = set()
            again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ReadingError(f"Expected each key once, got {again!r} twice", source, line)
        if (longest := max(map(len, table), default=LONGEST_ID)) > LONGEST_ID:
            message = f"Expected ids of at most {LONGEST_ID:,} characters, got one of {longest:,}; shorten it"
            raise ReadingError(message, source, line)
        return table

    try:
        return json.loads(data, object_pairs_hook=once)
    except ReadingError:
        raise
    except (ValueError, RecursionError) as error:
        number = getattr(error, "lineno", None) if line is None else line
        rows = data.split(b"\n")
        text = rows[number - 1 if line is None and number else 0].decode("utf-8", "backslashreplace") if rows else ""
        raise ReadingError(f"Expected JSON, got {error}", source, number, text.strip()) from error


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
    #: the line with the names of columns, b"" if there is none, and the number of fields; None = no file of lines
    header: Callable[[Text, Reading], tuple[bytes, int]] | None = None
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
        header_of,
        (".run", ".trec", ".txt"),
        _write_trec,
    ),
    "tsv": FileFormat(
        "fields between single tabs, which may have blanks, with a header as in BEIR; without one as those of trec;"
        " query, document, and grade or, as in MS MARCO, rank; or query, document, rank and score, as ColBERT writes",
        partial(delimited, tabs=True),
        header=partial(header_of, tabs=True),
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
        lambda text, reading: (b"", 0),
        (".jsonl",),
        _write_json_lines,
    ),
    "parquet": FileFormat("a data frame", parquet, lambda text: bytes(text.buffer[:4]) == b"PAR1"),
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
