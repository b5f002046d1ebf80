"""The functions that read judgments and runs from any source, at once or in chunks of whole queries."""

from __future__ import annotations

import contextlib
import glob
import re
import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import numpy as np

from torchrank.names.arguments import imported, integer, one_of, with_hints, with_texts
from torchrank.tables import files
from torchrank.tables.columns import Columns, error_of, is_frame, rows_of_dictionary, rows_of_frame, rows_of_tuples
from torchrank.tables.files import Format
from torchrank.tables.pair_tables import (
    Duplicates,
    PairTable,
    Qrels,
    ReadingError,
    Rows,
    Run,
    Ties,
    ids_of,
)

T = TypeVar("T", bound=PairTable)

# Files of at least so many bytes are read in chunks by themselves; compressed ones have several times as many lines.
LARGE, LARGE_COMPRESSED = 2**26, 2**24
# Pieces that are read while something else is waited for.
EARLY = 16
# Bytes of a line of a run, about, and the bytes that tell the format of a file.
LINE, SAMPLE = 40, 2**16


@with_hints
@with_texts(FORMATS=files.ABOUT_FORMATS)
def read_qrels(
    source: Any,
    *,
    columns: Columns = None,
    format: Format = "auto",
    duplicates: Duplicates = "error",
    expansion: int = files.EXPANSION,
) -> Qrels:
    """Read judgments: a grade for each judged (query, document) pair.

    Ids are kept as they are: text stays text ("007", "1e5", "NA"), integers stay integers.

    Args:
        source: a path, "-" for standard input, or an open file, also compressed (gzip, bz2, xz, zstd, lz4); a data
            frame of pandas, polars, pyarrow or another library with the Arrow interface or a method to_pandas, or a
            dictionary of columns; a dictionary ``{query: {document: grade}}``, which is not copied, so leave it
            unchanged, or ``{query: [documents]}`` of relevant documents; an iterable or array of (query, document,
            grade) rows, of (query, subtopic, document, grade), or of (query, document), which have the grade 1; named
            tuples or dictionaries; ``Qrels`` of ranx, or another object whose ``to_dict()`` returns such a dictionary;
            ``"irds:..."``, a dataset of ir_datasets.
        columns: the columns of query, item (the document) and grade, by name, or by number from 0 in files without a
            header: a dictionary, which may name a subtopic, too, or the three in this order; None = found by their
            usual names and places.
        format: the format of a file; "auto" = recognised by the content:
            FORMATS.
        duplicates: "error", or the grade to keep of a document that is given twice: "first", or "best", the largest.
        expansion: how many times its size a compressed, Parquet or Arrow file of more than 64 MB may have in memory.

    The grade of a document is the largest over its subtopics, which measures as :class:`AlphaNDCG` read one by one.

    Raises:
        ReadingError: a line cannot be read, a grade is NaN, a document occurs twice. It names source, line and text.
        ValueError, TypeError, OSError: an argument is none of these; the file cannot be opened.

    Example:
        >>> import io, torchrank as tr
        >>> tr.read_qrels(io.StringIO("q1 0 007 1\\nq1 0 NA 0\\n")).to_dict()
        {'q1': {'007': 1.0, 'NA': 0.0}}
    """
    return _read(Qrels, source, files.Reading("grade", columns, format, expansion=expansion), duplicates)


@with_hints
@with_texts(FORMATS=files.ABOUT_FORMATS)
def read_run(
    source: Any,
    *,
    columns: Columns = None,
    format: Format = "auto",
    duplicates: Duplicates = "error",
    ties: Ties | None = None,
    subset: str | None = None,
    split: str | None = None,
    expansion: int = files.EXPANSION,
) -> Run:
    """Read a run: a score for each retrieved (query, document) pair. The score alone decides the order.

    Ids are kept as they are: text stays text ("007", "1e5", "NA"), integers stay integers. A document with the score
    -inf is not retrieved.

    Args:
        source: as in :func:`read_qrels`, with scores in place of grades; lists of documents begin with the best; or the
            file or folder of predictions that MTEB writes. A folder or a pattern such as ``"runs/*.zst"`` has several
            runs, which :func:`torchrank.evaluate` reads.
        columns: the columns of query, item (the document) and score, as in :func:`read_qrels`; ``{"rank": ...}`` in
            place of the score takes ranks, 1 for the best.
        format: the format of a file; "auto" = recognised by the content:
            FORMATS.
        duplicates: "error", or the score to keep of a document that is given twice: "first", or "best", the largest.
        ties: "document": equal scores rank by document id, the higher first, as in trec_eval; integer ids are compared
            as text, too. "rows": they rank in the order of the rows. "expected": they are tied, and measures are
            expectations over their orders. None = "document", or the rule of a :class:`Run` that is the source.
        subset: the subset of MTEB's predictions, if there are several.
        split: the split of MTEB's predictions, if there are several.
        expansion: how many times its size a compressed, Parquet or Arrow file of more than 64 MB may have in memory.

    Raises:
        ReadingError: a line cannot be read, a score is NaN, a document occurs twice. It names source, line and text.
        ValueError, TypeError, OSError: an argument is none of these; the file cannot be opened.

    Example:
        >>> import io, torchrank as tr
        >>> tr.read_run(io.StringIO("q1 Q0 d7 1 0.5 bm25\\nq1 Q0 d3 2 1e-3 bm25\\n")).to_dict()
        {'q1': {'d7': 0.5, 'd3': 0.001}}
    """
    if ties is not None:
        one_of("ties", ties, get_args(Ties))
    run = _read(Run, source, files.Reading("score", columns, format, subset, split, expansion), duplicates)
    return run if ties is None else run.with_ties(ties)


def read_pairs(source: Any, expansion: int = files.EXPANSION) -> Qrels:
    """Read pairs of query and document, whatever their number: any source of judgments, without grades if need be."""
    if isinstance(source, tuple) and len(source) == 2 and not any(isinstance(part, tuple | str) for part in source):
        source = dict(zip(("query", "item"), source))  # two columns, as in `update`
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The judgments .* have no grades")
        reading = files.Reading("grade", expansion=expansion)
        table = source if isinstance(source, PairTable) else _read(Qrels, source, reading, "first")
    return Qrels(table.queries, table.query, table.items, np.zeros(len(table)), table.source)


def stem(path: str | Path) -> str:
    """The name of a file without folders and endings: the name of its run.

    Example:
        >>> stem("runs/bm25.run.gz")
        'bm25'
    """
    name = Path(path).name
    return re.sub(r"\.(gz|bz2|xz|lz4|zst)$", "", name).rsplit(".", 1)[0] or name


def named_runs(source: str | Path) -> list[tuple[str, str | Path]]:
    """The names and the files of the runs of a path, of a folder, or of a pattern such as ``runs/*.gz``.

    A folder that has JSON alone is one run, the predictions of MTEB. Files of one name in several folders have the name
    of the folder, too.

    Raises:
        FileNotFoundError: no file has the pattern, or the folder has no file.
    """
    place = Path(source)
    is_pattern = re.search(r"[*?[]", str(source)) and not place.exists() and not str(source).startswith("irds:")
    found = (
        map(Path, glob.iglob(str(place), recursive=True)) if is_pattern else place.iterdir() if place.is_dir() else ()
    )
    paths = sorted(path for path in found if path.is_file() and not path.name.startswith("."))
    if is_pattern and not paths:
        raise FileNotFoundError(f"Expected files like {source}, got none")
    if not paths and place.is_dir() and not next(place.rglob("*.json"), None):
        way_out = f"of folders in it pass a pattern such as '{place / '*' / '*.run'}'"
        raise FileNotFoundError(f"Expected a folder with files of runs, got no file in {source}; {way_out}")
    if not is_pattern and all(path.suffix == ".json" for path in paths):
        return [(stem(source) or str(source), source)]
    names = [stem(path) for path in paths]
    if len(set(names)) < len(names):
        names = [f"{path.parent.name}/{name}" for path, name in zip(paths, names)]
    return list(zip(names, paths))


@contextlib.contextmanager
def one_of_several(name: str, runs: Sized) -> Iterator[None]:
    """Add the way out to the error of a run that cannot be read, if there are others."""
    try:
        yield
    except ReadingError as error:
        if len(runs) > 1:
            error.add_note(f"To leave {name} out, pass the files of the other runs.")
        raise


def _read(kind: type[T], source: Any, reading: files.Reading, duplicates: Duplicates) -> T:
    one_of("duplicates", duplicates, get_args(Duplicates))
    one_of("format", reading.format, get_args(Format))
    integer("expansion", reading.expansion, least=1, or_none=False)
    if isinstance(source, kind):
        return source
    if isinstance(source, PairTable):
        raise TypeError(f"Expected a source of {kind.__name__}, got {source!r}; exchange the judgments and the run")
    content = content_of(source, reading)
    return kind.of_rows(content, duplicates) if isinstance(content, Rows) else kind.of_dict(*content)


def content_of(source: Any, reading: files.Reading) -> files.Content:
    """The rows of a source, or its dictionaries and its name."""
    value, columns = reading.value, reading.columns
    if isinstance(source, str) and source.startswith("irds:"):
        dataset = imported("ir_datasets").load(source.removeprefix("irds:"))
        wanted = "qrels" if value == "grade" else "scoreddocs"
        if not getattr(dataset, f"has_{wanted}", lambda: True)():
            raise ReadingError(f"Expected a dataset with {wanted}, got one without", source)
        return rows_of_tuples(getattr(dataset, f"{wanted}_iter")(), value, None, source)
    if isinstance(source, str | Path) or hasattr(source, "read"):
        if isinstance(source, str | Path) and source != "-" and Path(source).is_dir():
            if value == "grade":
                raise ReadingError("Expected a file, got a folder; pass the path of a file", str(source))
            paths = sorted(Path(source).rglob("*.json"))  # the only file of predictions in a folder of MTEB
            named = [path for path in paths if "prediction" in path.name] or paths
            if len(named) != 1:
                listed = ", ".join(str(path.relative_to(source)) for path in named[:5]) or "none"
                message = f"Expected a folder with one JSON file of predictions, got {listed}; pass a file"
                raise ReadingError(message, str(source))
            source = named[0]
        text = files.open_text(source, value, reading.expansion)
        return files.FORMATS[files.format_of(text, reading)].read(text, reading)
    if isinstance(source, Mapping):
        return rows_of_dictionary(source, value, columns, "")
    if is_frame(source):
        return rows_of_frame(source, value, columns, f"<{type(source).__name__}>")
    if hasattr(source, "to_dict") and not hasattr(source, "shape"):
        return source.to_dict(), ""  # Qrels and Run of ranx
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return rows_of_tuples(source, value, columns, f"<{type(source).__name__}>")
    raise TypeError(f"Expected a path, a data frame, a dictionary or tuples, got {type(source).__name__}")


# ---- chunks of whole queries -----------------------------------------------------------------------------------------


class QueryReturnsError(ReadingError):
    """The rows of a query are not together."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """A run in chunks of whole queries, made by :func:`torchrank.read_chunks`.

    Iteration returns one :class:`torchrank.Run` after the other. :func:`torchrank.evaluate` takes it as a run.
    """

    #: the name of the source; "" = it has none
    name: str
    pieces: Callable[[], Iterator[Rows]] = field(repr=False)
    duplicates: Duplicates = "error"
    ties: Ties | None = None
    #: whether the file may be read as a whole instead, if a query returns
    automatic: bool = False

    def __iter__(self) -> Iterator[Run]:
        for rows in _complete_queries(self.pieces()):
            run = Run.of_rows(rows, self.duplicates)
            yield run if self.ties is None else run.with_ties(self.ties)

    def begun(self, wanted: Callable[[], bool]) -> Chunks:
        """These chunks, to be iterated once: the first pieces are read now, as long as ``wanted`` returns True."""
        pieces, early = self.pieces(), deque[Rows]()
        while wanted() and len(early) < EARLY and (piece := next(pieces, None)) is not None:
            early.append(piece)

        def all_pieces() -> Iterator[Rows]:
            while early:
                yield early.popleft()
            yield from pieces

        return replace(self, pieces=all_pieces)


def read_chunks(
    source: Any,
    *,
    lines: int = 250_000,
    columns: Columns = None,
    format: Format = "auto",
    duplicates: Duplicates = "error",
    ties: Ties | None = None,
) -> Chunks:
    """Read a run that is larger than memory, in chunks of whole queries.

    :func:`torchrank.evaluate` takes the result as a run, in the memory of one chunk, the judgments, and the values of
    all queries. The rows of a query must be together; queries may be in any order.

    Args:
        source: the path of a file of lines (TREC, tab-separated, JSON lines; also compressed), of a Parquet or an Arrow
            file; or an iterable of pieces of a run, each a source of :func:`torchrank.read_run`, e.g. of data frames or
            of lists of tuples. A query may be cut between two pieces.
        lines: number of lines of a chunk, about; a chunk has at least one whole query. Not used for pieces.
        columns: as :func:`torchrank.read_run`.
        format: as there.
        duplicates: as there.
        ties: as there; None = "document".

    Raises:
        ReadingError: while chunks are read, as :func:`torchrank.read_run`; or a query returns after another one. It
            names file and line.
        ValueError, TypeError: an argument has an unknown value, or the source is neither a path nor an iterable.

    Example:
        >>> import torchrank as tr
        >>> pieces = [[("q1", "a", 0.9)], [("q1", "b", 0.5), ("q2", "c", 0.3)]]
        >>> [run.to_dict() for run in tr.read_chunks(pieces)]
        [{'q1': {'a': 0.9, 'b': 0.5}}, {'q2': {'c': 0.3}}]
    """
    integer("lines", lines, least=1, or_none=False)
    one_of("duplicates", duplicates, get_args(Duplicates))
    one_of("format", format, get_args(Format))
    reading = files.Reading("score", columns, format)
    if ties is not None:
        one_of("ties", ties, get_args(Ties))
    if isinstance(source, str | Path):
        return Chunks(str(source), partial(_pieces, Path(source), lines, reading), duplicates, ties)
    if not isinstance(source, Iterable) or hasattr(source, "read") or isinstance(source, Mapping | PairTable):
        raise TypeError(f"Expected a path or an iterable of pieces of a run, got {type(source).__name__}")
    begun: list[bool] = []

    def pieces() -> Iterator[Rows]:
        if begun and isinstance(source, Iterator):  # which would be empty, without an error
            raise ValueError("Expected pieces that can be read again, got an iterator; pass a list to read_chunks")
        begun.append(True)
        return (_rows_of(piece, reading) for piece in source)

    return Chunks("", pieces, duplicates, ties)


def chunks_of_large(source: Any, duplicates: Duplicates = "error") -> Chunks | None:
    """The chunks of a path, if it is a file of lines or columns that needs much memory as a whole; else None."""
    if not isinstance(source, str | Path) or not (path := Path(source)).is_file():
        return None
    kind = files.columnar_format(path)
    with files.opened(path) as (_, _, packed):
        if path.stat().st_size < (LARGE_COMPRESSED if packed or kind else LARGE):
            return None
    try:
        kind = kind or files.format_of(next(_texts(path, SAMPLE // LINE)), files.Reading("score"))
    except ReadingError:  # reading it as a whole will say why
        return None
    if files.FORMATS[kind].layout is None and kind not in ("parquet", "arrow"):
        return None
    return replace(read_chunks(source, duplicates=duplicates), automatic=True)


# ---- pieces of files -------------------------------------------------------------------------------------------------


def _pieces(path: Path, lines: int, reading: files.Reading) -> Iterator[Rows]:
    """The rows of pieces of about ``lines`` lines of a file, which may end within a query."""
    pieces = _frames(path, lines, reading) if files.columnar_format(path) else _read_texts(path, lines, reading)
    with ThreadPoolExecutor(1) as pool:  # another thread reads the next piece while this one is evaluated
        following = pool.submit(next, pieces, None)
        while (rows := following.result()) is not None:
            following = pool.submit(next, pieces, None)
            yield rows


def _frames(path: Path, lines: int, reading: files.Reading) -> Iterator[Rows]:
    """The rows of pieces of a Parquet or an Arrow file."""
    before, kind = 0, files.columnar_format(path) or "auto"
    for frame in files.frames(path, kind, str(path), reading, lines):
        yield rows_of_frame(frame, reading.value, reading.columns, str(path), before=before)
        before += len(frame)


def _read_texts(path: Path, lines: int, reading: files.Reading) -> Iterator[Rows]:
    """The rows of pieces of a file of lines."""
    texts = _texts(path, lines)
    first = next(texts)
    known = files.FORMATS[name := files.format_of(first, reading)]
    if known.layout is None:
        way_out = "pass an iterable of pieces of it to read_chunks"
        raise ReadingError(f"Expected a file of lines or columns, got {name}; {way_out}", first.name)
    others = replace(reading, layout=known.layout(first.from_first_row, reading))
    for text in chain([first], texts):
        yield cast(Rows, known.read(text, reading if text is first else others))


def _texts(path: Path, lines: int) -> Iterator[files.Text]:
    """Pieces of text that end with a line: the first one, and all others that are not blank."""
    with contextlib.ExitStack() as stack:
        stream, name, packed = stack.enter_context(files.opened(path))
        if packed:
            stream = stack.enter_context(files.decompressed(stream, packed, name))
        number, rest, more, is_first = 1, bytearray(), b"\n", True
        while more:
            more = stream.read(lines * LINE)
            cut = more.rfind(b"\n") + 1
            if more and not cut:
                rest += more
                if len(rest) > files.LONGEST_LINE:
                    raise files.Text.of(b"", name).too_long(number, bytes(rest))
                continue
            data, rest = bytes(rest) + more[:cut], bytearray(more[cut:])
            if data.strip() or (is_first and not more):
                yield files.without_mark(data, name, number) if is_first else files.Text.of(data, name, number)
                is_first = False
            number += data.count(b"\n")


# ---- pieces to whole queries -----------------------------------------------------------------------------------------


def _rows_of(piece: Any, reading: files.Reading) -> Rows:
    """The rows of a source of :func:`torchrank.read_run`."""
    content = piece if isinstance(piece, Run) else content_of(piece, reading)
    if isinstance(content, Rows):
        return content
    run = content.columns if isinstance(content, Run) else Run.of_dict(*content).columns
    return Rows(run.queries, run.query, run.items, run.value, run.source, error_of(run.source))  # type: ignore[arg-type]


def _complete_queries(pieces: Iterable[Rows]) -> Iterator[Rows]:
    """The rows of some pieces, cut between queries: the last query of a piece waits for the next piece.

    Raises:
        QueryReturnsError: a query has rows before and after those of another one.
    """
    held: list[Rows] = []  # the pieces of the last query
    last: Hashable = None
    seen: set[Hashable] = set()
    kinds: tuple[str, str] | None = None
    for rows in pieces:
        starts: list[int] = np.flatnonzero(np.diff(rows.query, prepend=-1)).tolist()
        names, numbers = rows.queries.to_keys(), rows.query[starts]
        keys = [names[number] for number in numbers]
        empty = np.setdiff1d(np.arange(len(names)), numbers)
        if starts:
            piece_kinds = rows.queries.kind, rows.item.kind
            if kinds not in (None, piece_kinds) and "objects" not in (*piece_kinds, *(kinds or ())):
                raise rows.error(
                    f"Expected ids of queries and documents as before, {kinds}, got {piece_kinds}; read ids as text", 0
                )
            kinds = piece_kinds
        if len(empty):
            yield Rows(
                rows.queries.take(empty), rows.query[:0], rows.item.take(np.arange(0)), rows.value[:0], "", rows.error
            )
        if not starts:
            continue
        if held and keys[0] == last:
            stop = starts[1] if len(starts) > 1 else len(rows.value)
            held.append(_cut(rows, 0, stop))
            starts, keys = starts[1:], keys[1:]
        for start, key in zip(starts, keys):
            if key in seen:
                shown = rows.queries.take(rows.query[[start]]).tolist()[0]
                message = f"Expected the rows of each query together, got query {shown!r} again"
                message += "; read it as a whole by read_run"
                error = rows.error(message, start)
                raise QueryReturnsError(message, error.source, error.line, error.text, error.unit)
            seen.add(key)
        if not starts:
            continue
        if held:
            yield _joined(held)
        if starts[-1] > starts[0]:
            yield _cut(rows, starts[0], starts[-1])
        held, last = [_cut(rows, starts[-1], len(rows.value))], keys[-1]
    if held:
        yield _joined(held)


def _cut(rows: Rows, start: int, stop: int) -> Rows:
    """Consecutive rows of whole queries."""
    query = rows.query[start:stop]
    changes = np.diff(query, prepend=-1) != 0
    queries, number = rows.queries.take(query[changes]), np.cumsum(changes, dtype=query.dtype) - 1
    error = rows.error
    return Rows(
        queries, number, rows.item.take(slice(start, stop)), rows.value[start:stop], rows.source,
        lambda message, row: error(message, start + row),
    )  # fmt: skip


def _joined(pieces: list[Rows]) -> Rows:
    """All rows of the pieces of one query."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    starts = np.cumsum([0, *(len(piece.value) for piece in pieces)])
    item = ids_of([name for piece in pieces for name in piece.item.tolist()])
    value = np.concatenate([piece.value for piece in pieces])

    def error(message: str, row: int) -> ReadingError:
        number = int(np.searchsorted(starts, row, side="right")) - 1
        return pieces[number].error(message, row - int(starts[number]))

    return Rows(first.queries, np.zeros(len(value), np.int32), item, value, first.source, error)  # type: ignore[arg-type]
