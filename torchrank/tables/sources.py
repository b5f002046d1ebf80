"""The functions that read judgments and runs from any source."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np

from torchrank.names.arguments import integer, one_of, with_hints
from torchrank.names.docstrings import with_texts
from torchrank.names.optional import imported
from torchrank.tables import file_readers, frames, records
from torchrank.tables.column_names import Columns
from torchrank.tables.errors import ReadingError
from torchrank.tables.file_formats import ABOUT_FORMATS, FORMATS, Content, Format, Reading, format_of
from torchrank.tables.pair_tables import Duplicates, PairTable, Qrels, Rows, Run, Ties

T = TypeVar("T", bound=PairTable)


@with_hints
@with_texts(FORMATS=ABOUT_FORMATS)
def read_qrels(
    source: Any,
    *,
    columns: Columns = None,
    format: Format = "auto",
    duplicates: Duplicates = "error",
    expansion: int = file_readers.EXPANSION,
) -> Qrels:
    """Read judgments: a grade for each judged (query, document) pair.

    Ids are kept as they are: text stays text ("007", "1e5", "NA"), integers stay integers.

    Args:
        source: a path, "-" for standard input, or an open file, of which gzip is recognised; a data frame of pandas,
            polars, pyarrow or another library that narwhals or the Arrow interface covers, or a dictionary of columns;
            a dictionary ``{query: {document: grade}}``, which is not copied, so leave it unchanged, or ``{query:
            [documents]}`` of relevant documents; an iterable or array of (query, document, grade) rows, of (query,
            subtopic, document, grade), or of (query, document), which have the grade 1; named tuples or dictionaries;
            ``Qrels`` of ranx, or another object whose ``to_dict()`` returns such a dictionary;
            ``"irds:..."``, a dataset of ir_datasets.
        columns: the columns of query, item (the document) and grade, by name, or by number from 0 in files without a
            header: a dictionary, which may name a subtopic, too, or the three in this order; None = found by their
            usual names and places.
        format: the format of a file; "auto" = recognised by the content:
            FORMATS.
        duplicates: "error", or the grade to keep of a document that is given twice: "first", or "best", the largest.
        expansion: how many times its size a gzip or parquet file of more than 64 MB may have, decompressed.

    The grade of a document is the largest over its subtopics, which measures as :class:`AlphaNDCG` read one by one.

    Raises:
        ReadingError: a line cannot be read, a grade is NaN, a document occurs twice. It names source, line and text.
        ValueError, TypeError, OSError: an argument is none of these; the file cannot be opened.

    Example:
        >>> import io, torchrank as tr
        >>> tr.read_qrels(io.StringIO("q1 0 007 1\\nq1 0 NA 0\\n")).to_dict()
        {'q1': {'007': 1.0, 'NA': 0.0}}
    """
    return _read(Qrels, source, Reading("grade", columns, format, expansion=expansion), duplicates)


@with_hints
@with_texts(FORMATS=ABOUT_FORMATS)
def read_run(
    source: Any,
    *,
    columns: Columns = None,
    format: Format = "auto",
    duplicates: Duplicates = "error",
    ties: Ties | None = None,
    subset: str | None = None,
    split: str | None = None,
    expansion: int = file_readers.EXPANSION,
) -> Run:
    """Read a run: a score for each retrieved (query, document) pair. The score alone decides the order.

    Ids are kept as they are: text stays text ("007", "1e5", "NA"), integers stay integers. A document with the score
    -inf is not retrieved.

    Args:
        source: as in :func:`read_qrels`, with scores in place of grades; lists of documents begin with the best; or the
            file or folder of predictions that MTEB writes.
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
        expansion: how many times its size a gzip or parquet file of more than 64 MB may have, decompressed.

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
    run = _read(Run, source, Reading("score", columns, format, subset, split, expansion), duplicates)
    return run if ties is None else run.with_ties(ties)


def read_pairs(source: Any, expansion: int = file_readers.EXPANSION) -> Qrels:
    """Read pairs of query and document, whatever their number: any source of judgments, without grades if need be."""
    if isinstance(source, tuple) and len(source) == 2 and not any(isinstance(part, tuple | str) for part in source):
        source = dict(zip(("query", "item"), source))  # two columns, as in `update`
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The judgments .* have no grades")
        reading = Reading("grade", expansion=expansion)
        table = source if isinstance(source, PairTable) else _read(Qrels, source, reading, "first")
    return Qrels(table.queries, table.query, table.items, np.zeros(len(table)), table.source)


def stem(path: str | Path) -> str:
    """The name of a file without folders and endings: the name of its run.

    Example:
        >>> stem("runs/bm25.run.gz")
        'bm25'
    """
    name = Path(path).name
    return name.removesuffix(".gz").rsplit(".", 1)[0] or name


def _read(kind: type[T], source: Any, reading: Reading, duplicates: Duplicates) -> T:
    one_of("duplicates", duplicates, get_args(Duplicates))
    one_of("format", reading.format, get_args(Format))
    integer("expansion", reading.expansion, least=1, or_none=False)
    if isinstance(source, kind):
        return source
    if isinstance(source, PairTable):
        raise TypeError(f"Expected a source of {kind.__name__}, got {source!r}; exchange the judgments and the run")
    content = content_of(source, reading)
    return kind.of_rows(content, duplicates) if isinstance(content, Rows) else kind.of_dict(*content)


def content_of(source: Any, reading: Reading) -> Content:
    """The rows of a source, or its dictionaries and its name."""
    value, columns = reading.value, reading.columns
    if isinstance(source, str) and source.startswith("irds:"):
        return _of_ir_datasets(source, value)
    if isinstance(source, str | Path) or hasattr(source, "read"):
        if isinstance(source, str | Path) and source != "-" and Path(source).is_dir():
            if value == "grade":
                raise ReadingError("Expected a file, got a folder; pass the path of a file", str(source))
            source = _predictions(Path(source))
        text = file_readers.open_text(source, value, reading.expansion)
        return FORMATS[format_of(text, reading)].read(text, reading)
    if (
        hasattr(source, "to_dict")
        and not isinstance(source, Mapping)
        and not (frames.is_frame(source) or hasattr(source, "shape"))
    ):
        return source.to_dict(), ""  # Qrels and Run of ranx
    if isinstance(source, Mapping):
        return frames.of_dictionary(source, value, columns, "")
    if frames.is_frame(source):
        return frames.of_frame(source, value, columns, f"<{type(source).__name__}>")
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return records.of_tuples(source, value, columns, f"<{type(source).__name__}>")
    raise TypeError(f"Expected a path, a data frame, a dictionary or tuples, got {type(source).__name__}")


def _predictions(folder: Path) -> Path:
    """The only file of predictions in a folder of MTEB."""
    paths = sorted(folder.rglob("*.json"))
    named = [path for path in paths if "prediction" in path.name] or paths
    if len(named) != 1:
        listed = ", ".join(str(path.relative_to(folder)) for path in named[:5]) or "none"
        raise ReadingError(
            f"Expected a folder with one JSON file of predictions, got {listed}; pass a file", str(folder)
        )
    return named[0]


def _of_ir_datasets(source: str, value: str) -> Rows:
    dataset = imported("ir_datasets").load(source.removeprefix("irds:"))
    wanted = "qrels" if value == "grade" else "scoreddocs"
    has = getattr(dataset, f"has_{wanted}", None)
    if has is not None and not has():
        raise ReadingError(f"Expected a dataset with {wanted}, got one without", source)
    return records.of_tuples(getattr(dataset, f"{wanted}_iter")(), value, None, source)
