"""Evaluations of parts of a run, in small states that are added: for runs on several machines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from torchrank.display import Table
from torchrank.evaluation.evaluate import MEASURES, Evaluator, Options, Part, Precision, Queries
from torchrank.names.arguments import with_hints
from torchrank.state.metric import Measure
from torchrank.state.scoring import FILLS
from torchrank.state.sums import Estimate, ExactSums, Interval, estimate, estimate_table
from torchrank.tables.pair_tables import (
    SECOND,
    Duplicates,
    NothingInCommonError,
    ObjectIds,
    Qrels,
    Ties,
    mixed,
    no_common_query,
)
from torchrank.version import __version__
from torchrank.wrappers.suite_metric import Suite, collection_of, hash_ids, measures_of, readable

# Groups of queries, by the hash of their ids, in which the queries of all parts are counted.
BUCKETS = 256


@dataclass(frozen=True, eq=False)
class PartialEvaluation:
    """The numbers of a part of a run, or of several merged parts; made by :func:`partial` and :func:`merge`.

    It pickles to a few KB for any number of queries. Sums are not rounded, so merged parts give the numbers of the
    whole run to the bit, in any split and order.

    Attributes:
        labels: the labels of the measures.
        num_queries: number of queries over which means are taken.
        means: the value of each measure, by label, as :func:`torchrank.evaluate` returns it.
        coverage: a table with one row, as :attr:`torchrank.Evaluation.coverage`.
    """

    metrics: Mapping[str, Measure]
    #: by name: the facts that must be equal in all parts
    facts: Mapping[str, Any]
    #: sums of the values of the queries in the parts, minus those that the same queries have in `absent`, by label
    sums: Mapping[str, ExactSums]
    #: by label the number of queries in the parts that have nothing to measure, minus that of the same queries in
    #: `absent`; and of all judged queries without a run
    empty: Mapping[str, int]
    absent_empty: Mapping[str, int]
    #: sums of the values that all judged queries have without a run, by label; of no query if means are over both
    absent: Mapping[str, ExactSums]
    #: int32 [bucket]: number of judged queries, and of judged queries in the parts
    judged: np.ndarray
    seen: np.ndarray
    #: sums of the share of judged documents in the first ranks
    shares: ExactSums
    #: sums by the name of a column of the coverage
    counts: Mapping[str, int]
    #: the id of a query of the run, and of a judged query; documents of both if none is in both, as a sentence
    examples: tuple[Any, Any, str]

    @property
    def labels(self) -> list[str]:
        return list(self.metrics)

    @property
    def num_queries(self) -> int:
        return int((self.judged if self.facts["queries"] == "judged" else self.seen).sum())

    @property
    def means(self) -> dict[str, float]:
        return {label: result.value for label, result in self.estimates().items()}

    def intervals(self, level: float = 0.95) -> dict[str, Interval]:
        """The confidence interval of each measure, by label: (low, high)."""
        return {label: result.interval for label, result in self.estimates(level).items()}

    def summary(self, level: float = 0.95) -> Table:
        """A table with a row for every measure: value, standard error, interval and numbers of queries."""
        return estimate_table(self.estimates(level), level)

    def estimates(self, level: float = 0.95) -> dict[str, Estimate]:
        """The value, standard error, interval and counts of each measure, by label.

        Raises:
            ValueError: the parts have queries or documents, but none that is judged; or ``level`` is not between 0 and
                1.
        """
        theirs, ours, disjoint = self.examples
        if theirs is not None and not self.seen.any() and self.judged.any():
            raise no_common_query(theirs, ours)
        if disjoint and not self.counts["parts that match"]:
            raise NothingInCommonError(disjoint)
        found = {}
        for label, metric in self.metrics.items():
            sums, empty = self.sums[label] + self.absent[label], self.empty[label] + self.absent_empty[label]
            skipped = math.isnan(FILLS[metric.empty_target_action])
            result = estimate(metric, sums.vector(), None, level, "auto")
            found[label] = replace(result, queries=sums.count + empty * skipped, empty=empty)
        return found

    @property
    def coverage(self) -> Table:
        judged, seen = int(self.judged.sum()), int(self.seen.sum())
        row = {
            "queries": self.num_queries,
            "judged": judged,
            "missing": judged - seen,
            "not in the judgments": self.counts["not in the judgments"],
            "no relevant": self.facts["no relevant"],
            f"unjudged@{self.facts['depth']}": 1 - self.shares.mean,
            "not retrieved": self.facts["judged documents"] - self.counts["retrieved"],
            "same id as query": self.counts["same id as query"],
        }
        return Table.of_rows([row])

    def __repr__(self) -> str:
        return f"{self.summary()}\n\n{self.coverage}"


@with_hints
def partial(
    qrels: Any,
    part: Any,
    measures: Suite = MEASURES,
    *,
    queries: Queries = "judged",
    ignore_identical_ids: bool = False,
    precision: Precision = "double",
    ties: Ties | None = None,
    duplicates: Duplicates = "error",
    exclude: Any = None,
) -> PartialEvaluation:
    """Evaluate a part of a run: some of its queries, each with all its documents.

    Send the states of all parts to one process, and add them with :func:`torchrank.merge`. The result is that
    of :func:`torchrank.evaluate` for the whole run: the same means to the bit. Judged queries that are in no part
    count as there.

    Args:
        qrels: the judgments of all queries, not of this part only: any source of :func:`torchrank.read_qrels`. Several
            calls with one :class:`torchrank.Qrels` prepare it once.
        part: a source of :func:`torchrank.read_run`, e.g. a data frame or a path; it may be empty.
        measures: as :func:`torchrank.evaluate`; like the other arguments the same in all parts.
        queries: as there.
        ignore_identical_ids: as there.
        precision: as there.
        ties: as there.
        duplicates: as there.
        exclude: as there.

    Raises:
        ReadingError: a source cannot be read, or there are no judgments.
        ValueError: an argument has an unknown value, a measure is not a mean over queries, or queries count differently
            in it, e.g. in ``"mr(average=positive)"``.

    Example:
        >>> import torchrank as tr
        >>> qrels = tr.read_qrels({"q1": {"a": 1}, "q2": {"c": 2}})
        >>> parts = [{"q1": {"b": 0.9, "a": 0.5}}, {"q2": {"c": 0.3}}]
        >>> tr.merge(tr.partial(qrels, part, "mrr") for part in parts).means
        {'mrr': 0.75}
    """
    options = Options.of(
        None, queries=queries, ignore_identical_ids=ignore_identical_ids, precision=precision, ties=ties,
        duplicates=duplicates, exclude=exclude,
    )  # fmt: skip
    measures = readable(measures)
    evaluator = Evaluator.of(qrels, measures_of(collection_of(measures), "partial", means=True), options)
    in_run = evaluator.part(part)
    everything = _absent(evaluator, measures) if queries == "judged" else evaluator.absent(in_run.query_numbers[:0])
    answered = in_run.query_numbers if queries == "judged" else in_run.query_numbers[:0]
    weights = [pair for part in (in_run, everything) for pair in (part.weights or {}).items()]
    if unequal := [label for label, weight in weights if (weight != 1).any()]:  # sums with weights are rounded
        way_out = "evaluate it with torchrank.evaluate"
        raise ValueError(f"Expected measures in which all queries have the same weight, got {unequal[0]}; {way_out}")
    replaced = _sums(evaluator, {label: values[answered] for label, values in everything.values.items()})
    digest, judged = evaluator.made_once("digest", lambda: _digest(evaluator.qrels.columns))
    facts = {
        "version": __version__,
        "measures": tuple((label, metric.definition_name) for label, metric in evaluator.metrics.items()),
        "judgments": digest,
        "queries": queries,
        "ignore_identical_ids": ignore_identical_ids,
        "precision": precision,
        "ties": ties or "document",
        "duplicates": duplicates,
        "exclude": None if options.excluded is None else _digest(options.excluded.columns)[0],
        "depth": evaluator.depth,
        "no relevant": evaluator.no_relevant,
        "judged documents": evaluator.num_judged,
    }
    return PartialEvaluation(
        dict(evaluator.metrics),
        facts,
        {label: sums - replaced[label] for label, sums in _sums(evaluator, in_run.values).items()},
        {label: int(x.sum()) - int(everything.empty[label][answered].sum()) for label, x in in_run.empty.items()},
        {label: int(x.sum()) for label, x in everything.empty.items()},
        _sums(evaluator, everything.values),
        np.bincount(judged, minlength=BUCKETS).astype(np.int32),
        np.bincount(judged[in_run.query_numbers], minlength=BUCKETS).astype(np.int32),
        ExactSums.of(in_run.judged),
        {
            "not in the judgments": in_run.queries - len(in_run.query_numbers),
            "same id as query": in_run.retrieved_itself,
            "retrieved": in_run.retrieved,
            "parts that match": in_run.matches,
        },
        (in_run.example, next(iter(evaluator.qrels.query_ids), None), in_run.disjoint),
    )


def merge(states: Iterable[PartialEvaluation]) -> PartialEvaluation:
    """Add the states of parts of one run; merged states can be merged again, in any order.

    **Every query must be in one part.** A query in two parts is detected without a list of queries: the queries are
    counted in 256 groups by a hash of their id. It is found for certain if all judged queries are in the parts, and
    otherwise if no judged query of its group is missing. So a part that is given twice is practically always found.

    Raises:
        ValueError: there is no state; states have other judgments, measures, options or versions; a query is in two
            parts.
        TypeError: an object is not a state.
    """
    total: PartialEvaluation | None = None
    for state in states:
        if not isinstance(state, PartialEvaluation):
            raise TypeError(f"Expected states of torchrank.partial, got {type(state).__name__}")
        total = state if total is None else _added(total, state)
    if total is None:
        raise ValueError("Expected the state of at least one part, got none; evaluate an empty part")
    more = (total.seen - total.judged).clip(0)
    if more.any():
        raise ValueError(
            f"Expected every query in one part, got {int(more.sum())} or more judged queries in several; partition the"
            " run by query, and merge each part once"
        )
    return total


def _added(first: PartialEvaluation, second: PartialEvaluation) -> PartialEvaluation:
    for name, fact in first.facts.items():
        if second.facts[name] != fact:
            way_out = "evaluate all parts alike"
            raise ValueError(f"Expected states of the same {name}, got {fact!r} and {second.facts[name]!r}; {way_out}")

    both: dict[str, Any] = {}
    for name in ("sums", "empty", "counts"):
        theirs = getattr(second, name)
        both[name] = {label: ours + theirs[label] for label, ours in getattr(first, name).items()}
    (one, judged, disjoint), (other, _, apart) = first.examples, second.examples
    examples = (other if one is None else one, judged, disjoint or apart)
    return replace(first, **both, seen=first.seen + second.seen, shares=first.shares + second.shares, examples=examples)


def _absent(evaluator: Evaluator, measures: Suite) -> Part:
    """The part of all queries without a run, without rankings."""

    def made() -> Part:
        return replace(evaluator.absent(np.arange(len(evaluator.numbers))), rankings=())

    names = [measures] if isinstance(measures, str) else measures
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return made()  # functions of the user may have equal names
    return evaluator.made_once(("absent", *names), made)


def _sums(evaluator: Evaluator, values: Mapping[str, np.ndarray]) -> dict[str, ExactSums]:
    """The sums of values by label, in the terms in which the mean of each measure adds them."""
    sums = {}
    for label, metric in evaluator.metrics.items():
        column = torch.from_numpy(values[label]).to(torch.float64)
        sums[label] = ExactSums.of(metric.mean.inside(column[~column.isnan()]).numpy())
    return sums


def _digest(qrels: Qrels) -> tuple[str, np.ndarray]:
    """A digest of all judgments in any order, and the bucket of each judged query, int64 [query]."""
    queries = mixed(_hashes(qrels.queries))
    grades = np.zeros(len(qrels), np.uint64)
    for column in (qrels.value[:, None] if qrels.subtopics is None else qrels.subtopics).T:
        grades = mixed(grades * SECOND + mixed((column + 0.0).view(np.uint64)))  # -0.0 and 0.0 are one grade
    rows = mixed(queries[qrels.query] + np.uint64(3) * mixed(_hashes(qrels.items)) + np.uint64(5) * grades)
    # Sums do not depend on the order of the rows.
    parts = [int(np.add.reduce(hashes, dtype=np.uint64)) for hashes in (queries, rows, mixed(rows ^ SECOND))]
    text = "".join(f"{part:016x}" for part in parts)
    return f"{len(queries)} queries, {len(rows)} rows, {text}", (queries % np.uint64(BUCKETS)).astype(np.int64)


def _hashes(ids: Any) -> np.ndarray:
    """uint64 [id]: equal in all processes."""
    if isinstance(ids, ObjectIds):
        return hash_ids([f"{type(key).__name__} {key!r}" for key in ids.tolist()]).numpy().view(np.uint64)
    return np.asarray(ids.hashes())
