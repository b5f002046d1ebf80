"""Spans of documents: judgments of the chunks of any chunker from those of passages; and measures of retrieved text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from torchrank.evaluation.evaluate import runs_by_name
from torchrank.evaluation.evaluation import Evaluation
from torchrank.names.arguments import one_of
from torchrank.names.labels import quantity_of, read, split
from torchrank.names.parse import SPAN_MEASURES
from torchrank.ranking.budgets import SLACK
from torchrank.tables import columns as tables
from torchrank.tables.pair_tables import (
    MOST_SUBTOPICS,
    NothingInCommonError,
    NumberIds,
    Qrels,
    ReadingError,
    Rows,
    Run,
    TextIds,
    factorise,
    no_common_query,
    shown,
)
from torchrank.tables.sources import read_run

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
    if isinstance(source, list | tuple) and not tables.is_records(source):
        form = f"rows ({tables.READ[kind][0]}, document, start, end), or a frame with such columns"
        for number, row in enumerate(source):
            if not isinstance(row, list | tuple) or len(row) != 4:
                raise ReadingError(f"Expected {form}, got {shown(row)}", name, number + 1, "", "row")
        source = {column: [row[place] for row in source] for place, column in enumerate(tables.READ[kind][:4])}
    frame = tables.frame_of(source, name)
    numbers = tables.find_columns(None, frame.labels, kind, name, way_out="rename the column of {}")
    columns = {column: frame[number] for column, number in numbers.items()}
    error = tables.error_of(name)
    ids, document = (tables.id_column(columns[column], f"{column} ids", error) for column in tables.READ[kind][:2])
    start, end = (tables.float_column(columns[column], column, error) for column in ("start", "end"))
    if (bad := ~((start >= 0) & (start < end) & (end < FAR) & (start % 1 == 0) & (end % 1 == 0))).any():
        row = int(bad.argmax())
        wanted = (
            "integers from the start of the document, 0 <= start < end < 2**36, where end is after the last position"
        )
        raise error(f"Expected {wanted}, got {start[row]:g} and {end[row]:g}", row)
    cost = tables.float_column(columns["cost"], "cost", error) if "cost" in columns else end - start
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
    rows = Rows(queries, query[span], pieces.ids.take(chunk), value, "<spans>", tables.error_of("<spans>"), subtopics)
    return Qrels.of_rows(rows, "best")


# ---- measures of text ------------------------------------------------------------------------------------------------

#: how often text counts that several retrieved chunks have
Repeated = Literal["once", "each"]


def evaluate_spans(
    chunks: Any,
    gold: Any,
    run: Any,
    measures: str | Sequence[str] = "spanrecall@5 spanprecision@5 spaniou@5",
    *,
    repeated: Repeated = "once",
    ties: Literal["document", "rows"] | None = None,
) -> Evaluation:
    r"""Evaluate runs of chunks by the text that they retrieve, so that chunkers are compared on one set of labels.

    With R the text of the first chunks of a query, and G that of its spans, both as sets of positions in documents,

    .. math:: spanrecall = \frac{|R \cap G|}{|G|}, \qquad spanprecision = \frac{|R \cap G|}{|R|}, \qquad
        spaniou = \frac{|R \cap G|}{|R \cup G|}.

    A cutoff is a number of chunks, ``spanrecall@5``, or a budget, ``spanrecall@2000tok``: the chunks before the first
    one that costs too much. Chunkers with chunks of different lengths are compared at a budget. Costs are a column
    ``tokens`` or ``cost`` of the chunks, without one their lengths.

    Equal scores have one order, as in trec_eval: a union of texts depends on which of the tied chunks are in it.

    Args:
        chunks: the span of each chunk of all runs, as in :func:`torchrank.judge_spans`; or ``{run: chunks}``, those of
            each run.
        gold: the spans that answer the queries, as there.
        run: a run of chunks, or several, ``{name: run}``, as in :func:`torchrank.evaluate`.
        measures: names separated by blanks, or a list of names.
        repeated: "once", R is a union; or "each", text that several retrieved chunks have counts in R for each of them,
            as in Chroma's token IoU, so that overlapping chunks cost precision.
        ties: as in :func:`torchrank.read_run`; "expected" is not defined.

    Returns:
        An :class:`torchrank.Evaluation` over all queries of ``gold``, without curves over ranks. A query that a run
        lacks has the value 0. Its coverage also has the numbers of chunks and of spans, and of spans "in no chunk".

    Source:
        Smith and Troynikov, Evaluating chunking strategies for retrieval, Chroma technical report, 2024.

    Raises:
        ReadingError: as :func:`torchrank.judge_spans`, or a run has a chunk whose span is missing.
        ValueError: a measure or an argument is unknown, ties are "expected", or there is no document in common.

    Example:
        >>> import torchrank as tr
        >>> gold = [("q1", "doc", 10, 30)]
        >>> short = [("a", "doc", 0, 15), ("b", "doc", 15, 40)]
        >>> long = [("whole", "doc", 0, 100)]
        >>> runs = {"short": {"q1": {"b": 0.9, "a": 0.3}}, "long": {"q1": {"whole": 0.7}}}
        >>> results = tr.evaluate_spans({"short": short, "long": long}, gold, runs, "spanrecall@1 spaniou@1")
        >>> results.means
        {'short': {'spanrecall@1': 0.75, 'spaniou@1': 0.5}, 'long': {'spanrecall@1': 1.0, 'spaniou@1': 0.2}}
    """
    one_of("repeated", repeated, get_args(Repeated))
    cuts = _cuts(measures)
    spans = read_spans(gold, "spans")
    if not len(spans):
        raise ReadingError("Expected spans of at least one query, got none; pass rows (query, document, start, end)")
    query, queries = factorise(spans.ids)
    numbers = {key: number for number, key in enumerate(queries.to_keys())}
    runs = runs_by_name(run, numbers)
    of_each = isinstance(chunks, Mapping) and any(name in chunks for name in runs)
    values, answered, facts = dict[str, dict[str, Array]](), dict[str, Array](), dict[str, dict[str, int]]()
    for name, source in runs.items():
        retrieved = read_run(source, columns=_chunk_column(source), ties=ties)
        if retrieved.ties == "expected":
            raise ValueError(
                "Expected ties to be 'document' or 'rows', got 'expected', which unions of texts do not have"
            )
        number = np.array([numbers.get(key, -1) for key in retrieved.queries.to_keys()], dtype=np.int64)
        if len(number) and number.max() < 0:
            raise no_common_query(retrieved.query_ids[0], queries.tolist()[0], f" in run {name!r}")
        if of_each and name not in chunks:
            raise ValueError(f"Expected chunks for run {name!r}, got those of {', '.join(map(str, chunks))}; add them")
        pieces = read_spans(chunks[name] if of_each else chunks, "chunks")
        values[name] = _values(retrieved, number, pieces, spans, query, cuts, repeated)
        answered[name] = np.isin(np.arange(len(queries)), number)
        reached = np.unique(overlaps(pieces, spans)[1])
        facts[name] = {"chunks": len(pieces), "spans": len(spans), "in no chunk": len(spans) - len(reached)}
    return Evaluation.of_values(queries.tolist(), values, answered, facts, ties=ties or "document")


def _chunk_column(source: Any) -> dict[str, Any] | None:
    """The column of chunks in the frame of a run, which may also have one of documents; None = the usual one."""
    if not tables.is_frame(source):
        return None
    forms = [tables.usual_form(name) for name in tables.USUAL["chunk"][0].split()]
    known = [label for label in tables.frame_of(source, "run").labels if tables.usual_form(label) in forms]
    return {"item": known[0]} if len(known) == 1 else None


def _cuts(measures: str | Sequence[str]) -> dict[str, tuple[str, float, float]]:
    """The name, the largest number of chunks, and the budget of each measure by its label; inf = no limit.

    Raises:
        TypeError: they are no names.
        ValueError: a measure is another one, or has no cutoff.
    """
    names = [measures] if isinstance(measures, str) else measures
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"Expected names of measures, such as 'spanrecall@5', got {shown(measures)}; pass a text or a list"
        )
    cuts: dict[str, tuple[str, float, float]] = {}
    for text in chain.from_iterable(map(split, names)):
        label = read(text)
        one_of("each measure", label.name, SPAN_MEASURES)
        for cut in label.cuts or [0]:
            number, unit = (cut, "") if isinstance(cut, int) else quantity_of(cut)
            if label.parameters or not number > 0 or unit == "%":
                raise ValueError(f"Expected a cutoff such as {label.name}@5 or {label.name}@2000tok, got {text!r}")
            limits = (number, math.inf) if unit == "" else (math.inf, number)
            cuts[f"{label.name}@{cut}"] = label.name, *limits
    return cuts


def _values(
    run: Run,
    answered: Array,
    chunks: Spans,
    spans: Spans,
    query: Array,
    cuts: Mapping[str, tuple[str, float, float]],
    repeated: Repeated,
) -> dict[str, Array]:
    """The values [query] of each measure by its label.

    Args:
        run: the run.
        answered: int64 [query of the run], the number of each query among those of the spans; -1 = it has none.
        chunks: the spans of the chunks.
        spans: the evidence.
        query: int [row], the number of the query of each row of ``spans``.
        cuts: the measures, as :func:`_cuts` returns them.
        repeated: as in :func:`evaluate_spans`.
    """
    rows = run.ranked
    rows = rows[answered[run.query[rows]] >= 0]
    known = {key: row for row, key in enumerate(chunks.ids.to_keys())}
    items = run.columns.items.take(rows)
    chunk = np.array([known.get(key, -1) for key in items.to_keys()], dtype=np.int64)
    if chunk.min(initial=0) < 0:
        unknown = shown(items.tolist()[int(chunk.argmin())])
        message = f"Expected a row in chunks for each chunk of the run, got none for {unknown}; add its row"
        raise ReadingError(message, run.source)
    first = np.searchsorted(run.query[rows], run.query[rows])  # the place where the query of each row begins
    place, spent = np.arange(len(rows)) - first, np.append(0, chunks.cost[chunk].cumsum())
    spent = spent[1:] - spent[first]
    of_chunks, of_spans = document_numbers(chunks, spans)
    text = answered[run.query[rows]], of_chunks[chunk], chunks.start[chunk], chunks.end[chunk]
    evidence = query, of_spans, spans.start, spans.end
    number = query.max() + 1
    wanted, values = _covered(number, *evidence), {}
    for label, (name, ranks, budget) in cuts.items():
        inside = (place < ranks) & (spent <= budget * SLACK)
        chosen = [x[inside] for x in text]
        retrieved = _covered(number, *chosen)
        both = retrieved + wanted - _covered(number, *map(np.concatenate, zip(chosen, evidence)))
        if repeated == "each":
            retrieved = np.bincount(chosen[0], chunks.length[chunk[inside]], number)
        divisor = {"spanrecall": wanted, "spanprecision": retrieved, "spaniou": retrieved + wanted - both}[name]
        values[label] = both / np.maximum(divisor, 1)  # lengths are integers
    return values


def _covered(number: int, query: Array, document: Array, start: Array, end: Array) -> Array:
    """The length of the union of the spans of each of ``number`` queries: float64 [query]."""
    order = np.lexsort((start, document, query))
    query, document, start, end = (x[order] for x in (query, document, start, end))
    # The documents of all queries follow each other on one axis, on which each span adds what is after all before it.
    another = (np.diff(query, prepend=-1) != 0) | (np.diff(document, prepend=-1) != 0)
    shift = another.cumsum() * end.max(initial=0)
    before = np.append(0, np.maximum.accumulate(end + shift))[:-1]
    return np.bincount(query, np.maximum(end + shift - np.maximum(start + shift, before), 0), number)
