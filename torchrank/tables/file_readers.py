"""Files to rows: TREC, tab-separated, JSON and JSON lines, recognised by their content."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from torchrank.names.optional import imported, installed
from torchrank.tables import column_names as names
from torchrank.tables.errors import ReadingError
from torchrank.tables.id_columns import PADDING, TextIds, factorise
from torchrank.tables.pair_tables import Rows, subtopics_of
from torchrank.tables.records import relevant
from torchrank.tables.text import CHUNK, Text, fields, is_comment, numbers, refuse_control_characters

Array = np.ndarray

# A gzip or parquet file is read up to so many times its size, and up to EXPANDED bytes in any case.
EXPANSION, EXPANDED = 100, 2**26
# The bound that no gzip file exceeds: its format has at most 1,032 bytes for each byte.
ANY_EXPANSION = 1100
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
QRELS_FIELDS = {4: (0, 2, 3, 1)}


def open_text(source: Any, value: str, expansion: int) -> Text:
    """The content of a path, of "-" (standard input) or of an open file, decompressed, without a byte order mark.

    Raises:
        ReadingError: it is empty, in UTF-16, of another compression, or not a whole gzip file; or it has more than
            ``expansion`` times the size of its file.
    """
    text = _content(source)
    return without_mark(_decompressed(text, value, expansion) if text.buffer[:2].tobytes() == b"\x1f\x8b" else text)


def _decompressed(text: Text, value: str, expansion: int) -> Text:
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
    return Text(text.name, np.frombuffer(data, np.uint8))


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


def parquet(text: Text, value: str, expansion: int) -> Any:
    """The data frame of a parquet file, by the first library that is installed.

    Raises:
        ImportError: none is installed.
        ReadingError: it is not a whole parquet file, or it has many times the size of its file.
    """
    by_polars = not installed("pyarrow.parquet") and installed("polars")
    library = imported("polars") if by_polars else imported("pyarrow.parquet", instead="`pip install polars`")
    file, most = io.BytesIO(bytes(text.buffer[text.begin : text.end])), max(EXPANDED, expansion * text.end)
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
        if size <= most:
            return library.read_parquet(file) if by_polars else library.read_table(file)
    except Exception as error:  # of either library, and of the file system below
        raise ReadingError(f"Expected a whole parquet file, got one with: {error}", text.name) from error
    raise ReadingError(
        f"Expected a parquet file of at most {most:,} bytes, decompressed, got {size:,}; if you trust it,"
        f" {names.reading_with(value, f'expansion={-(-size // text.end)}')}",
        text.name,
    )


def delimited(text: Text, value: str, chosen: names.Columns, tabs: bool) -> Rows:
    """Read fields between white space, or between tabs, with or without a header.

    Args:
        text: the text.
        value: "score" or "grade".
        chosen: the user's choice of columns.
        tabs: fields are separated by one tab each.

    Raises:
        ReadingError: a line cannot be read, or the number of fields is none of a known format.
    """
    text = _from_first_row(text)
    line = text.first_line_bytes()
    refuse_control_characters(text, text.begin, np.frombuffer(line, np.uint8))
    header, columns, between_tabs = _header(line, text, value, chosen, tabs)
    width = len(header)
    if columns is None:
        columns = _without_header(text, width, value, chosen, len(line.rstrip().split(b"\t")) == width)
    else:
        text = text.after_first_line()
    cut = dict(zip(columns, fields(text, list(columns.values()), width, between_tabs)))
    codes, queries = factorise(cut.pop("query"))  # the places of ten million queries take 80 MB
    item, third = cut["item"], cut.get(value, cut.get("rank"))
    subtopic = subtopics_of(codes, cut.pop("subtopic", None))
    what = "rank" if "rank" in columns else value
    values = relevant(len(item), text.name) if third is None else numbers(text, third, what)
    if what == "rank" and third is not None:
        values = _from_ranks(text, codes, third, values)

    def error(message: str, row: int) -> ReadingError:
        return text.error(message, int(item.start[row]))

    return Rows(queries, codes, item, values, text.name, error, subtopic)


def header_of(text: Text, value: str, chosen: names.Columns, tabs: bool) -> tuple[bytes, int]:
    """The line with the names of the columns, b"" if there is none, and the number of fields of a line."""
    line = _from_first_row(text).first_line_bytes()
    header, columns, _ = _header(line, text, value, chosen, tabs)
    return b"" if columns is None else line + b"\n", len(header)


def _from_first_row(text: Text) -> Text:
    """A text without the blank lines and comments at its beginning."""
    while text.begin < text.end and (not (line := text.first_line_bytes()).strip() or is_comment(line)):
        text = text.after_first_line()
    if text.begin == text.end:
        raise ReadingError("Expected lines of text, got comments only", text.name)
    return text


def _header(
    line: bytes, text: Text, value: str, chosen: names.Columns, tabs: bool
) -> tuple[list[str], dict[str, int] | None, bool]:
    """The fields of the first line; the columns that they name, None if they name none; whether tabs separate them."""
    decoded = line.decode("utf-8", "backslashreplace")
    by_tabs = decoded.split("\t")
    asked = list(names.chosen_columns(chosen, value).values())
    for header, between_tabs in ((by_tabs, True), (_split(line), False)):
        if between_tabs and len(header) == 1:
            continue
        try:
            columns = names.find(chosen, header, value, text.name)
        except ReadingError:
            continue
        if not asked or any(isinstance(column, str) for column in asked):
            return header, columns, between_tabs
    if any(isinstance(column, str) for column in asked):
        names.find(chosen, by_tabs if len(by_tabs) > 1 else _split(line), value, text.name)
    return (by_tabs, None, True) if tabs else (_split(line), None, False)


def _split(line: bytes) -> list[str]:
    """Fields between white space of ASCII; str.split would cut at other blanks too."""
    return [field.decode("utf-8", "backslashreplace") for field in line.split()]


def _without_header(text: Text, width: int, value: str, chosen: names.Columns, by_tabs: bool) -> dict[str, int]:
    """The columns of a file without a header, by its number of fields."""
    asked = names.chosen_columns(chosen, value)
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
    if usual is None:
        form = "query Q0 document rank score tag" if value == "score" else "query 0 document grade"
        third = f", '{value}': ..." if width > 2 or value == "score" else ""
        way_out = names.choice(value).format("query").replace("...", f"0, 'item': 1{third}")
        if width in (QRELS_FIELDS if value == "score" else RUN_FIELDS):
            way_out += ", or exchange the judgments and the run"
        if width == 1:
            way_out = "read files between commas as a data frame"
        raise text.error(f"Expected fields like '{form}', got {width}; {way_out}", text.begin)
    return dict(zip(("query", "item", value, "subtopic"), usual))


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
