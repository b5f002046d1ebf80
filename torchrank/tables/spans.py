"""Spans of documents: judgments of passages become judgments of the chunks of any chunker."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from torchrank.names.arguments import one_of
from torchrank.tables.columns import READ, error_of, find_columns, float_column, frame_of, id_column, is_records
from torchrank.tables.pair_tables import (
    MOST_SUBTOPICS,
    NothingInCommonError,
    NumberIds,
    Qrels,
    ReadingError,
    Rows,
    TextIds,
    factorise,
    shown,
)

Array = np.ndarray
#: positions are smaller, so that 2^27 documents follow each other on one axis of int64
FAR = 2**36
#: the length by which the text that a chunk and a span have in common is divided
Share = Literal["smaller", "span", "chunk", "union"]


@dataclass(frozen=True, eq=False)
class Spans:
    """Spans of documents, one in each row: of chunks, or the evidence for queries."""

    #: the chunk, or the query, of each row
    ids: TextIds | NumberIds
    document: TextIds | NumberIds
    #: int64 [row]: the first position, and the one after the last
    start: Array
    end: Array
    #: float64 [row]: what a chunk costs; without such a column its length
    cost: Array

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> Array:
        """int64 [row]."""
        return self.end - self.start


def read_spans(source: Any, kind: Literal["chunks", "spans"]) -> Spans:
    """Read the spans of chunks, or the evidence for queries.

    Args:
        source: a data frame, a dictionary of columns, or a list of rows: dictionaries, or tuples (chunk or query,
            document, start, end).
        kind: the columns are those of :data:`READ`.

    Raises:
        ReadingError: a column is missing, a position is not an integer >= 0, or a span has no text.
    """
    name = f"<{kind}>"
    if isinstance(source, list | tuple) and not is_records(source):
        form = f"rows ({READ[kind][0]}, document, start, end), or a frame with such columns"
        for number, row in enumerate(source):
            if not isinstance(row, list | tuple) or len(row) != 4:
                raise ReadingError(f"Expected {form}, got {shown(row)}", name, number + 1, "", "row")
        source = {column: [row[place] for row in source] for place, column in enumerate(READ[kind][:4])}
    frame = frame_of(source, name)
    numbers = find_columns(None, frame.labels, kind, name, way_out="rename the column of {}")
    columns = {column: frame[number] for column, number in numbers.items()}
    error = error_of(name)
    ids, document = (id_column(columns[column], f"{column} ids", error) for column in READ[kind][:2])
    start, end = (float_column(columns[column], column, error) for column in ("start", "end"))
    if (bad := ~((start >= 0) & (start < end) & (end < FAR) & (start % 1 == 0) & (end % 1 == 0))).any():
        row = int(bad.argmax())
        wanted = (
            "integers from the start of the document, 0 <= start < end < 2**36, where end is after the last position"
        )
        raise error(f"Expected {wanted}, got {start[row]:g} and {end[row]:g}", row)
    cost = float_column(columns["cost"], "cost", error) if "cost" in columns else end - start
    if (bad := ~((cost >= 0) & (cost < np.inf))).any():
        raise error(f"Expected costs to be finite numbers >= 0, got {cost[bad][0]:g}", int(bad.argmax()))
    first = np.unique(factorise(ids)[0], return_index=True)[1]
    if kind == "chunks" and len(first) < len(ids):
        row = int(np.setdiff1d(np.arange(len(ids)), first)[0])
        raise error(f"Expected every chunk once, got {ids.tolist()[row]!r} again; give each chunk its own id", row)
    return Spans(ids, document, start.astype(np.int64), end.astype(np.int64), cost)


def document_numbers(chunks: Spans, spans: Spans) -> tuple[Array, Array]:
    """Numbers of the documents of chunks and of spans, equal for equal documents: two of int64 [row].

    Raises:
        NothingInCommonError: no document has both.
    """
    keys = chunks.document.to_keys(), spans.document.to_keys()
    number = {key: n for n, key in enumerate(dict.fromkeys(chain(*keys)))}
    of_chunks, of_spans = (np.fromiter(map(number.__getitem__, each), np.int64, len(each)) for each in keys)
    if len(chunks) and len(spans) and not np.isin(of_spans, of_chunks).any():
        theirs, ours = chunks.document.tolist()[0], spans.document.tolist()[0]
        raise NothingInCommonError(
            f"Expected documents that chunks and spans have in common, got none: a chunk is in {theirs!r}, a span in"
            f" {ours!r}; use the same ids in both"
        )
    return of_chunks, of_spans


def overlaps(chunks: Spans, spans: Spans) -> tuple[Array, Array]:
    """The rows of all chunks and spans that have text in common: two of int64 [pair]."""
    of_chunks, of_spans = document_numbers(chunks, spans)
    # All documents follow each other on one axis.
    width = max(chunks.end.max(initial=0), spans.end.max(initial=0))
    order = np.lexsort((chunks.start, of_chunks))
    chunk_start, chunk_end = (x[order] + of_chunks[order] * width for x in (chunks.start, chunks.end))
    span_start, span_end = (x + of_spans * width for x in (spans.start, spans.end))
    # Chunks may overlap and contain others, so the first one that reaches a span is found by the end of all before it.
    first = np.searchsorted(np.maximum.accumulate(chunk_end), span_start, side="right")
    number = np.maximum(np.searchsorted(chunk_start, span_end) - first, 0)
    span = np.repeat(np.arange(len(spans)), number)
    chunk = np.arange(len(span)) - np.repeat(number.cumsum() - number - first, number)
    inside = chunk_end[chunk] > span_start[span]
    return order[chunk[inside]], span[inside]


def judge_spans(chunks: Any, gold: Any, *, grade: Literal["overlap"] | float, share: Share = "smaller") -> Qrels:
    r"""Judgments of chunks, from spans of the documents that answer the queries.

    The spans stay as they are when documents are cut in another way, so that two chunkers are compared by one set of
    labels. A chunk and a span of a query are judged by the share of the text that they have in common,

    .. math:: s = \frac{|chunk \cap span|}{\min(|chunk|, |span|)},

    or divided by another length. The spans of a query are its subtopics: the grade of a chunk is the largest over the
    spans, and ``strecall@k`` is the share of the spans with a relevant chunk in the first k ranks, among those that
    have one at all. If a query has more than 100 spans, there are no subtopics. :func:`torchrank.evaluate_spans`
    measures the text itself, without grades.

    Args:
        chunks: a span of its document for each chunk: a data frame or dictionary with the columns ``chunk_id``,
            ``doc_id``, ``start`` and ``end``, or their usual names in other libraries, as ``start_index``; or a list of
            rows (chunk, document, start, end). ``end`` is the position after the last one, as in slices of Python.
        gold: the spans that answer the queries: a row (query, document, start, end) for each, or columns ``query_id``,
            ``doc_id``, ``start`` and ``end``. A query may have several. Positions have the unit of those of chunks:
            characters, tokens or seconds.
        grade: "overlap", the share itself, a grade from 0 to 1, whose threshold is ``relevance_level=`` of
            :func:`torchrank.evaluate`; or a threshold above 0: the grade 1 for a share of it or more, else 0. There is
            no default, because the threshold may decide which chunker wins.
        share: what the common text is divided by: "smaller", the length of the shorter of both: 1 if one contains the
            other; "span", the length of the span, which favours long chunks; "chunk", that of the chunk, which favours
            short ones; or "union", the length of the text of both.

    Returns:
        :class:`torchrank.Qrels` of all chunks that have text in common with a span, for :func:`torchrank.evaluate`. A
        query without such a chunk has no relevant document, and counts.

    Source:
        "smaller" is the overlap coefficient, of Szymkiewicz and Simpson; "union" that of Jaccard.

    Raises:
        ReadingError: a column is missing, a position is not an integer, a span is empty, a chunk is there twice.
        ValueError: no document has chunks and spans, or an argument has an unknown value.

    Example:
        >>> import torchrank as tr
        >>> gold = [("q1", "doc", 10, 30)]
        >>> chunks = [("a", "doc", 0, 15), ("b", "doc", 15, 40), ("c", "doc", 40, 60)]
        >>> tr.judge_spans(chunks, gold, grade="overlap").to_dict()  # 5 / 15 and 15 / 20
        {'q1': {'a': 0.3333333333333333, 'b': 0.75}}
        >>> tr.judge_spans(chunks, gold, grade=0.5).to_dict()
        {'q1': {'a': 0.0, 'b': 1.0}}
    """
    one_of("share", share, get_args(Share))
    if grade != "overlap" and not (isinstance(grade, int | float) and 0 < grade <= 1):
        raise ValueError(f"Expected grade to be 'overlap' or a threshold, 0 < threshold <= 1, got {grade!r}")
    pieces, spans = read_spans(chunks, "chunks"), read_spans(gold, "spans")
    chunk, span = overlaps(pieces, spans)
    common = np.minimum(pieces.end[chunk], spans.end[span]) - np.maximum(pieces.start[chunk], spans.start[span])
    lengths = pieces.length[chunk], spans.length[span]
    if share == "smaller":
        value = common / np.minimum(*lengths)
    elif share == "union":
        value = common / (lengths[0] + lengths[1] - common)
    else:
        value = common / lengths[share == "span"]
    if grade != "overlap":
        value = (value >= grade).astype(np.float64)
    query, queries = factorise(spans.ids)
    order = np.argsort(query, kind="stable")
    subtopic = np.empty(len(spans), dtype=np.int64)  # the spans of a query are numbered from 0
    subtopic[order] = np.arange(len(spans)) - np.searchsorted(query[order], query[order])
    has_subtopics = len(span) > 0 and subtopic.max() < MOST_SUBTOPICS
    subtopics = subtopic[span] if has_subtopics else None
    rows = Rows(queries, query[span], pieces.ids.take(chunk), value, "<spans>", error_of("<spans>"), subtopics)
    return Qrels.of_rows(rows, "best")
