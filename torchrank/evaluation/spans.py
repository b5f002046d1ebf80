"""Recall, precision and IoU of retrieved text, by the spans that answer each query."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from torchrank.evaluation.evaluate import runs_by_name
from torchrank.evaluation.evaluation import Evaluation
from torchrank.names.arguments import one_of
from torchrank.names.labels import quantity_of, read, split
from torchrank.names.parse import SPAN_MEASURES
from torchrank.ranking.budgets import SLACK
from torchrank.tables.columns import USUAL, frame_of, is_frame, usual_form
from torchrank.tables.pair_tables import ReadingError, Run, factorise, no_common_query, shown
from torchrank.tables.sources import read_run
from torchrank.tables.spans import Spans, document_numbers, overlaps, read_spans

Array = np.ndarray
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
    if not is_frame(source):
        return None
    forms = USUAL["chunk"][0].split()
    known = [label for label in frame_of(source, "run").labels if usual_form(label) in map(usual_form, forms)]
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
