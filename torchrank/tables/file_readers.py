"""Files to rows: fields between blanks, tabs or commas, and parquet."""

from __future__ import annotations

import csv
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
from torchrank.tables.id_columns import PADDING, TextIds, decode, encode, factorise
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
QRELS_FIELDS = {2: (0, 1), 4: (0, 2, 3, 1)}


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


def delimited(text: Text, value: str, chosen: names.Columns, tabs: bool | None) -> Rows:
    """Read fields between white space, or between tabs, with or without a header.

    Args:
        text: the text.
        value: "score" or "grade".
        chosen: the user's choice of columns.
        tabs: fields are separated by one tab each; None = if this fits, and white space does not.

    Raises:
        ReadingError: a line cannot be read, or the number of fields is none of a known format.
    """
    text = _from_first_row(text)
    line = text.first_line_bytes()
    refuse_control_characters(text, text.begin, np.frombuffer(line, np.uint8))
    header, columns, between_tabs = _header(line, text, value, chosen, tabs)
    width = len(header)
    by_tabs = between_tabs or len(line.rstrip().split(b"\t")) == width
    if columns is None:
        columns = _without_header(text, width, value, chosen, by_tabs)
    else:
        text = text.after_first_line()
    wanted = list(columns.values())
    try:
        found = fields(text, wanted, width, between_tabs)
    except ReadingError:
        if between_tabs or not by_tabs or tabs is False:
            raise
        found = fields(text, wanted, width, tabs=True)  # an id of a later line has a blank
    cut = dict(zip(columns, found))
    codes, queries = factorise(cut.pop("query"))  # the places of ten million queries take 80 MB
    item, third, rank = cut["item"], cut.get(value, cut.get("rank")), cut.get("rank")
    subtopic = subtopics_of(codes, cut.pop("subtopic", None))
    what = value if value in cut else "rank"
    values = relevant(len(item), text.name) if third is None else numbers(text, third, what)
    if rank is not None:
        values = _from_ranks(text, codes, rank, values) if third is rank else _beside_ranks(text, codes, rank, values)

    def error(message: str, row: int) -> ReadingError:
        return text.error(message, int(item.start[row]))

    return Rows(queries, codes, item, values, text.name, error, subtopic)


def header_of(text: Text, value: str, chosen: names.Columns, tabs: bool | None) -> tuple[bytes, int]:
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
    line: bytes, text: Text, value: str, chosen: names.Columns, tabs: bool | None
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
    if tabs is None:
        tabs = _has_blanks_in_fields(line.strip(), text, value)
    return (by_tabs, None, True) if tabs else (_split(line), None, False)


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
    if width == 4 and by_tabs and value == "score":
        return {"query": 0, "item": 1, "rank": 2, "score": 3}  # ColBERT
    if usual is None:
        form = "query Q0 document rank score tag" if value == "score" else "query 0 document grade"
        way_out = names.choice(value).format("query").replace("...", f"0, 'item': 1, '{value}': ...")
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


def comma_separated(text: Text, value: str, chosen: names.Columns) -> Rows:
    """Read fields between commas: as fields between tabs in the same lines, of the columns that are read.

    Raises:
        ReadingError: a line cannot be read, or the first line names no columns and ``chosen`` does not number them.
    """
    text = _from_first_row(text)
    asked = names.chosen_columns(chosen, value).values()
    numbered = bool(asked) and not any(isinstance(column, str) for column in asked)  # there is no header
    rows = csv.reader(io.StringIO(decode(bytes(text.buffer[text.begin : text.end])), newline=""), strict=True)
    pieces, line = list[str](), 0
    try:
        for row in rows:
            if not pieces:
                columns, width = names.find(chosen, row, value, text.name), len(row)
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
    return delimited(Text.of(encode("".join(pieces)), text.name, text.first_line - numbered), value, None, tabs=True)


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
