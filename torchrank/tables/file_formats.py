"""The formats of files: an entry for each, which recognises, reads and writes it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torchrank.tables import file_readers, frames, records
from torchrank.tables.column_names import Columns
from torchrank.tables.errors import ReadingError
from torchrank.tables.pair_tables import Rows
from torchrank.tables.text import Text

Format = Literal["auto", "trec", "tsv", "csv", "json", "jsonl", "parquet"]
#: the rows of a source, or its dictionaries by query and its name
Content = Rows | tuple[Mapping[Any, Any], str]
#: a run to write: the documents of each query with their scores, the best first
Ranked = Mapping[Any, Sequence[tuple[Any, float]]]


@dataclass(frozen=True)
class Reading:
    """How a source is read: "score" or "grade", and arguments of :func:`torchrank.read_run`."""

    value: str
    columns: Columns = None
    format: Format = "auto"
    subset: str | None = None
    split: str | None = None
    expansion: int = file_readers.EXPANSION


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


def _read_json(text: Text, reading: Reading) -> Content:
    tables = records.json_tables(text, reading.value, reading.subset, reading.split)
    of = records.of_tuples if isinstance(tables, list) else frames.of_dictionary
    return of(tables, reading.value, reading.columns, text.name)


def _tabs(reading: Reading) -> bool | None:
    """Whether fields of text in no other format are between tabs; None = if they do not fit between white space."""
    return None if reading.format == "auto" else False


FORMATS: dict[Format, FileFormat] = {
    "trec": FileFormat(
        "fields between any white space: query, subtopic, document, grade of judgments; query, Q0, document, rank,"
        ' score, and a tag or none of a run; a line that begins with "# " is a comment',
        lambda text, reading: file_readers.delimited(text, reading.value, reading.columns, _tabs(reading)),
        lambda text: True,
        lambda text, reading: file_readers.header_of(text, reading.value, reading.columns, _tabs(reading)),
        (".run", ".trec", ".txt"),
        _write_trec,
    ),
    "tsv": FileFormat(
        "fields between single tabs, which may have blanks, with a header as in BEIR; without one as those of trec;"
        " query, document, and grade or, as in MS MARCO, rank; or query, document, rank and score, as ColBERT writes",
        lambda text, reading: file_readers.delimited(text, reading.value, reading.columns, tabs=True),
        header=lambda text, reading: file_readers.header_of(text, reading.value, reading.columns, tabs=True),
        endings=(".tsv",),
        write=_write_tsv,
    ),
    "csv": FileFormat(
        "fields between commas, quoted as in spreadsheets, with a header",
        lambda text, reading: file_readers.comma_separated(text, reading.value, reading.columns),
        file_readers.is_comma_separated,
    ),
    "json": FileFormat(
        "``{query: {document: number}}``, a dictionary of columns, a list of rows that are dictionaries or lists, or"
        " predictions of MTEB",
        _read_json,
        lambda text: text.starts_with(b"{", b"["),
        endings=(".json",),
        write=_write_json,
    ),
    "jsonl": FileFormat(
        "a dictionary of query, document and number in each line",
        lambda text, reading: records.json_lines(text, reading.value, reading.columns),
        lambda text: text.starts_with(b"{") and records.is_json_lines(text),
        lambda text, reading: (b"", 0),
        (".jsonl",),
        _write_json_lines,
    ),
    "parquet": FileFormat(
        "a data frame",
        lambda text, reading: frames.of_frame(
            file_readers.parquet(text, reading.value, reading.expansion), reading.value, reading.columns, text.name
        ),
        lambda text: bytes(text.buffer[:4]) == b"PAR1",
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
