"""The options of an evaluation: of the tool that it reproduces, of its runs and of all its measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from torchrank.collection.members import check_one_library, keyed, several
from torchrank.names.arguments import integer, one_of
from torchrank.names.labels import split
from torchrank.names.nearest import did_you_mean
from torchrank.names.parse import parse_all
from torchrank.names.presets import LIBRARIES, OPTIONS
from torchrank.tables.files import EXPANSION
from torchrank.tables.id_columns import KeyIds
from torchrank.tables.joining import without
from torchrank.tables.pair_tables import Duplicates, Parent, Qrels, Run, Ties
from torchrank.tables.sources import read_pairs, read_qrels, read_run
from torchrank.wrappers.suites import Suite

Queries = Literal["judged", "both"]
Precision = Literal["double", "single"]

#: the measures if neither measures nor a preset are given
MEASURES = "ndcg@10 map mrr recall@100"


@dataclass(frozen=True)
class Options:
    """The options of all runs; the arguments of :func:`torchrank.evaluate` with their defaults."""

    queries: Queries = "judged"
    ignore_identical_ids: bool = False
    precision: Precision = "double"
    depth: int | None = None
    ties: Ties | None = None
    duplicates: Duplicates = "error"
    expansion: int = EXPANSION
    parent: Parent | None = None
    exclude: Any = None

    @classmethod
    def of(cls, preset: str | None, **arguments: Any) -> Options:
        """Options, with those of a preset in place of None.

        Raises:
            ValueError: the preset or the value of an option is unknown.
        """
        if preset is not None and preset not in OPTIONS:
            other = f"; pass the measures tr.preset({preset!r}, 10)" if preset in LIBRARIES else ""
            hint = other or did_you_mean(str(preset), OPTIONS)
            raise ValueError(f"Expected preset to be one of {', '.join(OPTIONS)}, got {preset!r}{hint}")
        known = OPTIONS[preset] if preset is not None else {}
        options = cls(**{**known, **{name: value for name, value in arguments.items() if value is not None}})
        one_of("queries", options.queries, get_args(Queries))
        one_of("precision", options.precision, get_args(Precision))
        if not isinstance(options.ignore_identical_ids, bool):
            raise ValueError(f"Expected ignore_identical_ids to be True or False, got {options.ignore_identical_ids!r}")
        return replace(options, depth=integer("depth", options.depth, 1))

    def judgments(self, source: Any) -> Qrels:
        """The judgments of a source."""
        qrels = read_qrels(source, duplicates=self.duplicates, expansion=self.expansion)
        return without(qrels.by_parent(self.parent), self.excluded)

    def run(self, source: Any) -> Run:
        """The run of a source, with the pairs that are excluded."""
        run = read_run(source, ties=self.ties, duplicates=self.duplicates, expansion=self.expansion)
        return run.by_parent(self.parent)

    @cached_property
    def excluded(self) -> Qrels | None:
        """The pairs that leave the judgments and all runs."""
        return None if self.exclude is None else read_pairs(self.exclude, self.expansion).by_parent(self.parent)

    def apply(self, run: Run, itself: np.ndarray) -> Run:
        """The part of a run that is evaluated, with its scores as they are compared.

        Args:
            run: the run.
            itself: bool [row], the result of :func:`identical`.

        Raises:
            ValueError: tied documents have no order, by which the run could be cut.
        """
        if self.ignore_identical_ids and itself.any():
            run = run.columns.with_rows(np.flatnonzero(~itself))
        if self.precision == "single":
            run = run.columns  # dictionaries would be read again
            run = replace(run, value=_single(run.value))
        if self.depth is None:
            return run
        if run.ties == "expected":
            raise ValueError("Expected ties='document' or 'rows' with depth, got 'expected'; leave out one of both")
        return run.first(self.depth)


def _single(scores: np.ndarray) -> np.ndarray:
    """Scores rounded to float32. Those below its range are tied, and are still scores of retrieved documents."""
    with np.errstate(over="ignore"):
        rounded = scores.astype(np.float32).astype(np.float64)
    return np.where((rounded == -np.inf) & (scores > -np.inf), np.finfo(np.float64).min, rounded)


def identical(run: Run) -> np.ndarray:
    """bool [row]: whether the document of a row has the id of its query."""
    if isinstance(run.items, KeyIds) and not any(
        query in table for query, table in zip(run.query_ids, run.items.tables)
    ):
        return np.zeros(len(run), dtype=bool)  # without a column of all documents
    table = run.columns
    queries = table.queries.take(table.query)
    if queries.kind != table.items.kind and "objects" not in (queries.kind, table.items.kind):
        return np.zeros(len(run), dtype=bool)
    items, other_ids = (table.items, queries) if table.items.kind == "objects" else (queries, table.items)
    return np.asarray(items.equals(other_ids))


def with_parameters(measures: Suite, **parameters: Any) -> Any:
    """A suite whose measures have the names by which they are asked for, and further parameters.

    Parameters in the name of a measure go before.

    Args:
        measures: names, or metrics if all parameters are None.
        parameters: parameters by name, for the measures that have them; None = not given.

    Raises:
        ValueError: a measure is not given by its name.
    """
    wanted = {name: value for name, value in parameters.items() if value is not None}
    if isinstance(measures, Mapping):
        if not wanted:
            return measures
        several_of = {key: _named(name, wanted) for key, name in measures.items()}
        return {key: metrics[0] if len(metrics) == 1 else measures[key] for key, metrics in several_of.items()}
    measures = list(measures) if several(measures) else measures  # a generator is read once
    every = measures if isinstance(measures, list) else [measures]
    check_one_library(every)
    if wanted:
        return [metric for name in every for metric in _named(name, wanted)]
    # A measure has the name by which it is asked for.
    named: dict[str, Any] = {}
    for measure in every:
        for part in split(measure) if isinstance(measure, str) else [measure]:
            metrics: dict[str, Any] = dict(keyed(part))
            named |= dict(zip([part], metrics.values())) if isinstance(part, str) and len(metrics) == 1 else metrics
    return named if any(isinstance(measure, str) for measure in every) else measures


def _named(name: Any, wanted: Mapping[str, Any]) -> list[Any]:
    if not isinstance(name, str):
        raise ValueError(
            f"Expected names of measures with {' and '.join(wanted)}, got {name!r}; give the parameter to the measure"
        )
    return parse_all(name, wanted)
