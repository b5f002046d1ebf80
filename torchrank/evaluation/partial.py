"""Evaluations of parts of the queries, in small states that are added: for data on several machines."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, NoReturn

import numpy as np
import torch

from torchrank.display import Table
from torchrank.evaluation.evaluate import (
    NO_JUDGMENTS,
    Evaluator,
    Part,
    Precision,
    Queries,
    Scored,
    Task,
    coverage_row,
    metrics_by_key,
    notice_all_relevant,
    unlabelled_runs,
)
from torchrank.evaluation.evaluation import Evaluation, rows_of_runs
from torchrank.names.arguments import with_hints
from torchrank.names.parse import Named, parse
from torchrank.names.types import Unjudged
from torchrank.state.metric import Measure
from torchrank.state.sums import NO_INTERVAL, SIZE, Estimate, ExactSums, estimate, estimate_table, exact_sums
from torchrank.statistics.comparison import FEW_CLUSTERS, Comparison, numbered_clusters, plain_means_warnings
from torchrank.statistics.paired import TIE, PairStatistics
from torchrank.tables.files import EXPANSION
from torchrank.tables.pair_tables import (
    SECOND,
    Duplicates,
    NothingInCommonError,
    ObjectIds,
    Parent,
    Qrels,
    ReadingError,
    Ties,
    ids_of,
    mixed,
    no_common_query,
)
from torchrank.version import __version__
from torchrank.wrappers.compared import PAIR_SIZE, Pair, comparison_of_pairs, statistics_of
from torchrank.wrappers.per_query import slices_by_name, with_clusters
from torchrank.wrappers.suite_metric import Suite, hash_ids, is_plain_mean, readable

#: where results are that states have, and those that need the values of all queries
WAY_OUT = (
    "use means, summary(), by() and compare(), whose tables have to_csv() and others, or torchrank.evaluate on one"
    " machine, which keeps the values of all queries"
)
#: The first bytes of a state, and the number of its format, which changes with the meaning of the bytes.
MAGIC, FORMAT = b"torchrank part\n\0", 1

#: The most hashes of ids of queries in a state, the smallest ones, by which a query in two parts is found.
SAMPLE = 1024

#: Numbers of a measure and a system: of queries, of empty ones, and :class:`ExactSums`; and of a pair of systems: the
#: sums of the differences, and those of ``PAIR``.
SINGLE = 2 + len(ExactSums.__dataclass_fields__)
PAIR = (Pair.A, Pair.B, Pair.AA, Pair.BB, Pair.DDD, Pair.ABOVE, Pair.BELOW, Pair.UNPAIRED)
PAIRED = len(ExactSums.__dataclass_fields__) + len(PAIR)

#: Numbers of clusters, and sums of products of the sums of each: of a system T T, T W and W W, T = sum(w v) and W =
#: sum(w); and of a pair A A, A B, B B, A N, B N and N N, N = its number of queries.
CLUSTERED, CLUSTERED_PAIR = 4, 7

#: Numbers of all queries, of judgments, and of judged queries that some run lacks; and of each run, the last of which
#: is a sum of shares.
TOTALS = ("judged", "no relevant", "judged documents", "judgments", "clusters", "lacked")
OF_RUN = ("not in the judgments", "retrieved", "same id as query", "seen", "parts that match", "shares")

#: The most bits after the point of a number in a state: four factors that are the smallest float64.
MOST_BITS = 4 * 1074

#: the definition of a measure: a label with one cutoff, as "ndcg(gain=exponential)@10"
DEFINITION = re.compile(r"[^@]{1,1000}(@[\d.]{1,20}%?)?")


@dataclass(frozen=True)
class Facts:
    """What must be equal in all parts, in types that JSON has."""

    version: str
    #: label and definition of each measure
    measures: list[list[str]]
    runs: list[str]
    #: whether results are by run, parts are of one frame, and closed; and the digest of judgments of all queries
    several: bool
    frame: bool
    closed: bool
    judgments: str | None
    #: whether there are slices and clusters
    by: bool
    clusters: bool
    #: options of :func:`torchrank.evaluate`
    queries: str
    ignore_identical_ids: bool
    precision: str
    ties: str
    depth: int | None
    duplicates: str
    parent: str | bool
    exclude: str | bool
    #: the rank up to which unjudged documents are counted
    first_ranks: int


@dataclass(frozen=True, eq=False)
class PartialEvaluation:
    """The numbers of a part of the queries, or of several merged parts; made by :func:`partial` and :func:`merge`.

    It has a few KB for any number of queries, also pickled. Sums are not rounded, so merged parts give the numbers of
    the whole to the bit, in any split and order.

    Results of one run are by label, as ``means["ndcg@10"]``. Those of several, or of runs with names, are by run and
    label, as those of :class:`torchrank.Evaluation`.
    """

    facts: Facts
    #: [number] of TOTALS, and [run * number] of OF_RUN; objects
    totals: np.ndarray
    of_runs: np.ndarray
    #: by slice, None = all queries: [measure * number], first of each system, then of each pair; objects. With clusters
    #: [measure * number] of them follow. Of parts that are not closed minus the sums that the same queries have without
    #: a run; those of all judged queries are `absent`
    sums: Mapping[Hashable, np.ndarray]
    absent: np.ndarray | None
    #: uint64 [n], sorted: the smallest hashes of the ids of queries, and of clusters
    sample: np.ndarray
    sample_of_clusters: np.ndarray
    #: by run: the id of a query, and what has nothing in common; the id of a judged query; and the lowest grade
    examples: Sequence[tuple[Any, str]]
    judged_example: Any
    lowest: float
    #: the measures by label, if they are those of the user; None = made of their names
    known: Mapping[str, Measure] | None = field(default=None, repr=False)

    @property
    def runs(self) -> list[str]:
        """The names of the runs."""
        return list(self.facts.runs)

    @property
    def labels(self) -> list[str]:
        """The labels of the measures."""
        return [label for label, _ in self.facts.measures]

    @property
    def slices(self) -> list[str]:
        """The names of the slices, in their order."""
        return list(slices_by_name([name for name in self.sums if name is not None]))

    @property
    def num_queries(self) -> int:
        """Number of queries over which means are taken; of several runs the largest."""
        seen = max(self._of_run(run)["seen"] for run in range(len(self.runs)))
        return int(seen if self.facts.queries == "both" else self.totals[TOTALS.index("judged")])

    @property
    def metrics(self) -> dict[str, Measure]:
        """The measures by label.

        Raises:
            ValueError: a measure is not known by its name, as one of your own in a process that has not imported it.
        """
        known, found = self.known or {}, {}
        for label, definition in self.facts.measures:
            found[label] = known[label] if label in known else _measure(definition)
            if found[label].definition_name != definition:
                message = f"Expected the measure {definition!r} as {label}, got {found[label].definition_name!r}"
                raise ValueError(f"{message}; evaluate and merge with one version of torchrank")
        return found

    # ---- results -----------------------------------------------------------------------------------------------

    @property
    def means(self) -> dict[str, Any]:
        """The value of each measure, by label, or by run and label, as :attr:`torchrank.Evaluation.means`."""
        return self._shown(self._by_run(lambda found: found.value))

    def intervals(self, level: float = 0.95) -> dict[str, Any]:
        """The confidence interval of each measure, by label, or by run and label: (low, high)."""
        return self._shown(self._by_run(lambda found: found.interval, level))

    def estimates(self, level: float = 0.95) -> dict[str, Any]:
        """The value, standard error, interval and counts of each measure, by label, or by run and label.

        Raises:
            ValueError: there are no judgments, or a run has queries or documents, but none that is judged; or ``level``
                is not between 0 and 1.
        """
        return self._shown(self._by_run(lambda found: found, level))

    def summary(self, level: float = 0.95) -> Table:
        """A table with a row for every measure, or run and measure: value, interval and numbers of queries."""
        notes = self._cluster_notes()[1]
        tables = {run: estimate_table(found, level, notes) for run, found in self._by_run(lambda x: x, level).items()}
        first = next(iter(tables.values()))
        return Table.of_rows(rows_of_runs(tables), notes=first.notes) if self.facts.several else first

    def by(self, level: float = 0.95) -> Table:
        """A table with a row for every run, measure and slice, as :meth:`torchrank.Evaluation.by`.

        Raises:
            ValueError: the parts have no slices.
        """
        if isinstance(level, Mapping) or not self.facts.by:
            got = "the slices of queries" if isinstance(level, Mapping) else "none"
            way_out = "pass by= when you evaluate the parts, because sums have no queries to group"
            raise ValueError(f"Expected parts with slices, got {got}; {way_out}")
        self._check()
        tables, slices = {}, slices_by_name([name for name in self.sums if name is not None])
        for run, name in enumerate(self.runs):
            parts = {text: self._estimates(part, run, level) for text, part in slices.items()}
            keys = [(label, text) for label in self.labels for text in slices]
            tables[name] = estimate_table({f"{label}/{text}": parts[text][label] for label, text in keys}, level)
        return Table.of_rows(rows_of_runs(tables))

    @property
    def coverage(self) -> Table:
        """A table with a row for each run, as :attr:`torchrank.Evaluation.coverage`."""
        totals, rows = dict(zip(TOTALS, self.totals)), []
        for run, name in enumerate(self.runs):
            counts = self._of_run(run)
            share = float(counts["shares"] / Fraction(counts["seen"])) if counts["seen"] else math.nan
            number = counts["seen"] if self.facts.queries == "both" else totals["judged"]
            row = {name: int(count) for name, count in (totals | counts).items() if name != "shares"}
            rows.append({"run": name, "queries": int(number), **coverage_row(self.facts.first_ranks, row, share)})
        judged, depth = int(totals["judged documents"]), self.facts.first_ranks
        notes = [f"Warning: {text}" for text in unlabelled_runs(rows, judged, depth)]
        if not self.facts.several:
            rows = [{column: value for column, value in rows[0].items() if column != "run"}]
        return Table.of_rows(rows, notes=notes)

    def compare(
        self,
        baseline: str | None = None,
        *,
        test: Literal["t", "tukey", "anytime"] = "t",
        by: bool = False,
        correction: str | None = None,
        family: str = "measure",
        alpha: float = 0.05,
        level: float | None = None,
        margin: float | Mapping[str, float] | None = None,
        power: float = 0.8,
    ) -> Comparison:
        """The comparison of the runs, query by query, from sums: that of :meth:`torchrank.Evaluation.compare`.

        Args:
            baseline: the run with which each other one is compared; None compares all pairs.
            test: "t", the paired t test; "anytime", which holds at all looks together; or "tukey", which needs scipy.
            by: compare the slices, too, as ``ndcg@10/slice``.
            correction: as :func:`torchrank.compare`; likewise the other arguments.
            family: as there.
            alpha: as there.
            level: as there.
            margin: as there.
            power: as there.

        Raises:
            ValueError: there is one run only, or an argument has an unknown value; a test needs the values of all
                queries, which :meth:`torchrank.Evaluation.compare` has.
        """
        runs, metrics = self.runs, self.metrics
        if len(runs) < 2:
            raise ValueError(f"Expected two or more runs to compare, got {', '.join(runs)}; give parts of both")
        if test not in ("t", "tukey", "anytime"):
            way_out = "torchrank.evaluate keeps the values that other tests need"
            raise ValueError(f"Expected test to be 't', 'tukey' or 'anytime', got {test!r}; {way_out}")
        if self.facts.clusters and test == "tukey":
            raise ValueError("Expected test='t' or 'anytime' with clusters, got 'tukey'; leave the clusters out")
        self._check()
        parts: dict[str, Hashable] = {"": None}
        if by:
            parts |= {
                f"/{text}": name for text, name in slices_by_name([x for x in self.sums if x is not None]).items()
            }
        keys = [(label, end) for label in metrics for end in parts]
        names = list(itertools.combinations(runs, 2))

        def of_pair(key: int, pair: int, turned: bool) -> PairStatistics:
            label, end = keys[key]
            numbers = self._numbers(parts[end])[self.labels.index(label), len(runs) * SINGLE :]
            sums, scale = _pair_vector(numbers[pair * PAIRED : (pair + 1) * PAIRED])
            higher = metrics[label].higher_values_are_better
            found = statistics_of(sums, f"{label}{end}", names[pair], higher, turned)
            # Rounding of equal differences is not spread.
            if found.sd <= 1e-12 * scale:
                found = replace(found, sd=0.0, standard_error=0.0, skewness=math.nan)
            if not self.facts.clusters:
                return found
            row = self._of_clusters(parts[end])[self.labels.index(label), len(runs) * CLUSTERED :]
            return _with_clusters(found, row[pair * CLUSTERED_PAIR : (pair + 1) * CLUSTERED_PAIR], turned, scale)

        totals, weighted = dict(zip(TOTALS, self.totals)), dict[str, bool]()
        for label, row in zip(metrics, self._numbers(None)):
            singles = row[: len(runs) * SINGLE].reshape(-1, SINGLE)
            weighted[label] = any(ExactSums(*one[2:]).weight != ExactSums(*one[2:]).count for one in singles)
        others = [f"{key}{end}" for key, end in keys if weighted[key] or not is_plain_mean(metrics[key])]
        notes = [f"{totals['lacked']} queries that some system lacks are left out"] if totals["lacked"] else []
        warnings = plain_means_warnings(others, any(weighted.values()))
        if count := self._cluster_notes()[0]:
            size = self.num_queries / count
            notes.append(f"standard errors of {count} clusters of {size:.3g} queries on average")
            if count < FEW_CLUSTERS:
                warnings.insert(0, f"{count} clusters: their standard errors are too small below about {FEW_CLUSTERS}")
        options: dict[str, Any] = {"family": family, "alpha": alpha, "level": level, "margin": margin, "power": power}
        return comparison_of_pairs(
            of_pair, len(keys), runs, baseline, test, correction, notes=notes, warnings=warnings, **options
        )

    def __getitem__(self, run: str) -> NoReturn:
        raise TypeError(f"Expected a result that sums have, got the values of queries of {run!r}; {WAY_OUT}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(Evaluation, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttributeError(f"Expected a result that sums have, got {name!r}; {WAY_OUT}")

    def __repr__(self) -> str:
        tables = (self.summary(), *([self.by()] if self.facts.by else []), self.coverage)
        return "\n\n".join(map(str, tables))

    def _numbers(self, part: Hashable) -> np.ndarray:
        """The numbers of a slice, None = all queries: objects [measure, number]."""
        numbers = self.sums[part][: _size(self.facts, SINGLE, PAIRED)]
        if self.absent is not None:
            numbers = numbers + self.absent
        return numbers.reshape(len(self.labels), -1)

    def _of_clusters(self, part: Hashable) -> np.ndarray:
        """The numbers of clusters of a slice: objects [measure, number]."""
        return self.sums[part][_size(self.facts, SINGLE, PAIRED) :].reshape(len(self.labels), -1)

    def _of_run(self, run: int) -> dict[str, Any]:
        """The numbers OF_RUN of a run by name."""
        return dict(zip(OF_RUN, self.of_runs[run * len(OF_RUN) : (run + 1) * len(OF_RUN)]))

    def _check(self) -> None:
        """Raise ValueError if parts have queries or documents, but none in common with the judgments."""
        totals, metrics = dict(zip(TOTALS, self.totals)), self.metrics
        if not totals["judgments"]:
            raise ReadingError(NO_JUDGMENTS)
        for run, (theirs, disjoint) in enumerate(self.examples):
            name = f" in run {self.runs[run]!r}" if self.facts.several else ""
            if theirs is not None and not self._of_run(run)["seen"]:
                raise no_common_query(theirs, self.judged_example, name)
            if disjoint and not self._of_run(run)["parts that match"]:
                raise NothingInCommonError(f"Run {self.runs[run]!r}: {disjoint}" if name else disjoint)
        if self.facts.frame:
            notice_all_relevant(metrics, self.lowest, totals["judgments"] > totals["judged"])

    def _estimates(self, part: Hashable, run: int, level: float) -> dict[str, Estimate]:
        """The estimates by label of a slice, None = all queries, and a run."""
        found = {}
        for n, ((label, metric), row) in enumerate(zip(self.metrics.items(), self._numbers(part))):
            queries, empty, *numbers = row[run * SINGLE : (run + 1) * SINGLE]
            sums = ExactSums(*numbers)
            one = estimate(metric, sums.vector(), None, level, "auto")
            if self.facts.clusters:
                count, tt, tw, ww = self._of_clusters(part)[n, run * CLUSTERED : (run + 1) * CLUSTERED]
                if count < 2 or not sums.weight or not math.isfinite(one.value):
                    one = replace(one, standard_error=math.nan, interval=NO_INTERVAL)
                else:
                    mean = sums.total / Fraction(sums.weight)
                    spread = float((tt - 2 * mean * tw + mean**2 * ww) / Fraction(sums.weight) ** 2)
                    one = with_clusters(one, sums.vector(), int(count), max(0.0, spread), level)
            found[label] = replace(one, queries=int(queries), empty=int(empty))
        return found

    def _cluster_notes(self) -> tuple[int, list[str]]:
        """The number of clusters, and notes on them."""
        count = int(self.totals[TOTALS.index("clusters")]) if self.facts.clusters else 0
        few = [f"fewer than {FEW_CLUSTERS} clusters: the standard errors are too small"] * (count < FEW_CLUSTERS)
        note = f"{count} clusters: standard errors and intervals allow for dependence within them"
        return count, [note, *few] if self.facts.clusters else []

    def _by_run(self, of: Any, level: float = 0.95) -> dict[str, dict[str, Any]]:
        """A function of the estimate of each measure, by run and label."""
        self._check()
        estimates = {name: self._estimates(None, run, level) for run, name in enumerate(self.runs)}
        return Named({name: Named({key: of(x) for key, x in found.items()}) for name, found in estimates.items()})

    def _shown(self, by_run: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return by_run if self.facts.several else next(iter(by_run.values()))

    # ---- bytes -------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The state as bytes, which :meth:`from_bytes` reads in another process, and in the next release.

        They are the same for all splits of the same queries, and have no code, unlike a pickle.
        """
        slices = sorted((name for name in self.sums if name is not None), key=lambda x: (type(x).__name__, x))
        # Examples are only for runs that have nothing in common with the judgments: others depend on the split.
        of_runs = [self._of_run(run) for run in range(len(self.runs))]
        theirs = [None if run["seen"] else one for run, (one, _) in zip(of_runs, self.examples)]
        apart = ["" if run["parts that match"] else one for run, (_, one) in zip(of_runs, self.examples)]
        counts = np.array(
            [min(x, 1) if name == "parts that match" else x for run in of_runs for name, x in run.items()], object
        )
        vectors = [self.totals, counts, *(self.sums[name] for name in (None, *slices))]
        numbers = [
            Fraction(x) for vector in (*vectors, *([] if self.absent is None else [self.absent])) for x in vector
        ]
        integers = [x.numerator.to_bytes(x.numerator.bit_length() // 8 + 1, "little", signed=True) for x in numbers]
        head = json.dumps(
            {
                "facts": vars(self.facts), "slices": slices, "absent": self.absent is not None,
                "sample": [len(self.sample), len(self.sample_of_clusters)], "examples": list(zip(theirs, apart)),
                "lowest": self.lowest,
                "judged": None if all(run["seen"] for run in of_runs) else self.judged_example,
            },
        ).encode()  # fmt: skip
        return b"".join(
            [
                MAGIC, np.array([FORMAT, len(head)], dtype="<u4").tobytes(), head,
                self.sample.astype("<u8").tobytes(), self.sample_of_clusters.astype("<u8").tobytes(),
                np.array([x.denominator.bit_length() - 1 for x in numbers], dtype="<u2").tobytes(),
                np.array([len(x) for x in integers], dtype="<u2").tobytes(), *integers,
            ]
        )  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> PartialEvaluation:
        """The state of :meth:`to_bytes`. Nothing in the bytes is executed.

        Raises:
            ValueError: the bytes are not a state, are cut, or have another format.
        """
        data = bytes(data)
        start = len(MAGIC) + 8
        if not data.startswith(MAGIC) or len(data) < start:
            raise ValueError(f"Expected the bytes of a state of torchrank.partial, got {len(data)} others")
        number, length = np.frombuffer(data[len(MAGIC) : start], dtype="<u4").tolist()
        if number != FORMAT:
            way_out = f"read it with the torchrank that wrote it; this is {__version__}"
            raise ValueError(f"Expected a state of format {FORMAT}, got format {number}; {way_out}")
        try:
            return cls._read(json.loads(data[start : start + length]), memoryview(data)[start + length :])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            message = f"Expected the bytes of a state of torchrank.partial, got a broken one of {len(data)} bytes"
            raise ValueError(f"{message}: {error}; send it again") from None

    @classmethod
    def _read(cls, head: Mapping[str, Any], data: memoryview) -> PartialEvaluation:
        """The state of its head and the arrays after it."""
        facts, slices, (queries, clusters) = Facts(**head["facts"]), head["slices"], head["sample"]
        labels, definitions = zip(*facts.measures)
        for names in (facts.runs, labels):
            if not 0 < len(names) == len(set(names)) or not all(isinstance(x, str) for x in (*names, *definitions)):
                raise ValueError("names of runs or measures are missing, or twice")
        of_slice, absent = _size(facts, SINGLE, PAIRED), bool(head["absent"])
        of_clusters = _size(facts, CLUSTERED, CLUSTERED_PAIR) if facts.clusters else 0
        sizes = [len(TOTALS), len(facts.runs) * len(OF_RUN), *[of_slice + of_clusters] * (1 + len(slices))]
        sizes += [of_slice] * absent
        start = 8 * (queries + clusters)
        if min(queries, clusters) < 0 or max(queries, clusters) > SAMPLE or start + 4 * sum(sizes) > len(data):
            raise ValueError("arrays are cut")
        sample, clusters_sample = np.split(np.frombuffer(data[:start], dtype="<u8"), [queries])
        arrays = np.frombuffer(data[start : start + 4 * sum(sizes)], dtype="<u2")
        exponents, lengths = arrays.reshape(2, -1)
        ends = start + 4 * sum(sizes) + np.cumsum(lengths, dtype=np.int64)
        if ends[-1] != len(data) or exponents.max() > MOST_BITS:
            raise ValueError("numbers are cut")
        numbers = np.empty(len(ends), dtype=object)
        for n, (end, count, exponent) in enumerate(zip(ends.tolist(), lengths.tolist(), exponents.tolist())):
            integer = int.from_bytes(data[end - count : end], "little", signed=True)
            numbers[n] = Fraction(integer, 1 << exponent) if exponent else integer
        totals, of_runs, *vectors = np.split(numbers, np.cumsum(sizes)[:-1])
        without = vectors.pop() if absent else None
        examples = [(theirs, str(disjoint)) for theirs, disjoint in head["examples"]]
        sums = dict(zip((None, *slices), vectors))
        if len(examples) != len(facts.runs) or len(sums) != len(vectors):
            raise ValueError("runs or slices differ")
        lowest = float(head["lowest"])
        return cls(
            facts, totals, of_runs, sums, without, sample, clusters_sample, examples, head["judged"], lowest
        )  # fmt: skip

    def __reduce__(self) -> Any:
        return PartialEvaluation.from_bytes, (self.to_bytes(),)


@with_hints
def partial(
    qrels: Any,
    part: Any = None,
    measures: Suite | None = None,
    *,
    query: str | None = None,
    item: str | None = None,
    score: str | list[str] | Mapping[str, str] | None = None,
    rank: str | None = None,
    grade: str | None = None,
    by: str | Mapping[Any, Any] | None = None,
    clusters: str | Mapping[Any, Any] | None = None,
    preset: str | None = None,
    queries: Queries | None = None,
    ignore_identical_ids: bool | None = None,
    precision: Precision | None = None,
    ties: Ties | None = None,
    depth: int | None = None,
    relevance_level: float | None = None,
    unjudged: Unjudged | None = None,
    duplicates: Duplicates = "error",
    expansion: int = EXPANSION,
    parent: Parent | None = None,
    exclude: Any = None,
    closed: bool = False,
) -> PartialEvaluation:
    """Evaluate a part of the queries, each with all its documents.

    Send the states of all parts to one process, and add them with :func:`torchrank.merge`. The result is that of
    :func:`torchrank.evaluate` for all queries: the same means to the bit, in any split and order.

    | call | judgments |
    |---|---|
    | ``partial(frame, "ndcg@10")`` | grades in the rows of one data frame: of the queries of this part |
    | ``partial(qrels, run, "ndcg@10", closed=True)`` | of the queries of this part alone, also those without a run |
    | ``partial(qrels, run, "ndcg@10")`` | of all queries; those that are in no part count as in ``evaluate`` |

    Args:
        qrels: the judgments, any source of :func:`torchrank.read_qrels`; or one data frame with scores and grades. Of
            the judgments of all queries, several calls with one :class:`torchrank.Qrels` prepare it once.
        part: the run of the queries of this part: any source of :func:`torchrank.read_run`, e.g. a data frame or a
            path; or several, ``{name: run}``. It may be empty. None, or the measures, if ``qrels`` is one frame.
        measures: as :func:`torchrank.evaluate`; like the arguments below the same in all parts.
        query: of one frame, the name of a column, as there.
        item: as there.
        score: as there; of several systems a list of columns, or ``{system: column}``.
        rank: as there.
        grade: as there.
        by: slices: of one frame, the name of a column with one value for each query; with ``closed``, a dictionary from
            the id of each query to its slice, None = in none.
        clusters: clusters of queries, e.g. their users, in the same way; all queries of a cluster belong to one part.
            Standard errors, intervals and comparisons allow for dependence within clusters, as
            :meth:`torchrank.QueryTable.summary` and :func:`torchrank.compare`.
        preset: as there.
        queries: as there.
        ignore_identical_ids: as there.
        precision: as there.
        ties: as there.
        depth: as there.
        relevance_level: as there.
        unjudged: as there.
        duplicates: as there.
        expansion: as there.
        parent: as there.
        exclude: as there; with ``closed``, and of one frame, the pairs of the queries of this part are enough.
        closed: the judgments are those of the queries of this part alone.

    Raises:
        ReadingError: a source cannot be read, or there are no judgments although the part is not closed.
        ValueError: an argument has an unknown value, a measure is not computed from sums over queries, slices or
            clusters are given for a part that is not closed, or a query has no cluster.

    Example:
        >>> import torchrank as tr
        >>> frame = {"user": ["u1", "u1", "u2"], "item": [7, 8, 7], "score": [0.5, 0.9, 0.3], "label": [1, 0, 1]}
        >>> parts = [{name: column[rows] for name, column in frame.items()} for rows in (slice(2), slice(2, 3))]
        >>> tr.merge(tr.partial(part, "mrr") for part in parts).means
        {'mrr': 0.75}
        >>> qrels = tr.read_qrels({"q1": {"a": 1}, "q2": {"c": 2}, "q3": {"d": 1}})
        >>> parts = [{"q1": {"b": 0.9, "a": 0.5}}, {"q2": {"c": 0.3}}]
        >>> tr.merge(tr.partial(qrels, part, "mrr") for part in parts).means
        {'mrr': 0.5}
    """
    columns = {"query": query, "item": item, "score": score, "rank": rank, "grade": grade, "group": None}
    columns |= {role: x for role, x in (("group", by), ("cluster", clusters)) if isinstance(x, str)}
    part, measures = readable(part), None if measures is None else readable(measures)
    task = Task.of(
        qrels, part, measures, columns, preset, relevance_level, unjudged, part=True, closed=closed, queries=queries,
        ignore_identical_ids=ignore_identical_ids, precision=precision, ties=ties, depth=depth, duplicates=duplicates,
        expansion=expansion, parent=parent, exclude=exclude,
    )  # fmt: skip
    evaluator, closed = task.evaluator, closed or task.is_frame
    for name, given in (("by", by), ("clusters", clusters)):
        if given is not None and not closed:
            raise ValueError(f"Expected a closed part with {name}=, got the judgments of all queries; pass closed=True")
    parts = [evaluator.all_parts(source, lambda count: None) for source in task.runs.values()]
    options, number = evaluator.options, len(evaluator.numbers)
    slices, group = _slices(_aligned(evaluator, by, task.groups, "by"), number)
    of_query = _aligned(evaluator, clusters, task.clusters, "clusters")
    hashes_of_clusters, absent, both = np.zeros(0, dtype=np.uint64), None, options.queries == "both"
    if closed:
        answered = np.arange(number)
        scored = [Scored.of(evaluator, found) for found in parts]
        sums = _sums(evaluator.metrics, scored, both, group, len(slices) + 1)
        whole = sums.sum(0)
        if of_query is not None:
            cluster = numbered_clusters(of_query, evaluator.qrels.query_ids)
            hashes_of_clusters = mixed(_hashes(ids_of(list(dict.fromkeys(of_query)))))
            added = _cluster_sums(evaluator.metrics, scored, both, cluster, group, len(slices) + 1)
            sums = np.concatenate([sums, added], axis=1)
            whole = np.append(whole, _cluster_sums(evaluator.metrics, scored, both, cluster, group * 0, 1)[0])
    else:
        answered = np.unique(np.concatenate([part.query_numbers for found in parts for part in found]))
        scored = [Scored.of(evaluator, found, answered) for found in parts]
        sums = _sums(evaluator.metrics, scored, both, group[answered], 1)
        if not both:
            without, absent = _absent(evaluator, task.by_name, len(parts))
            rows = without.take(answered)
            sums = sums - _sums(evaluator.metrics, [rows] * len(parts), both, group[answered], 1)
        whole = sums[0]
    inside = np.array([one.inside for one in scored]).reshape(len(parts), len(answered))
    of_runs: list[Any] = []
    for one in scored:
        of_runs += [*(one.counts[name] for name in OF_RUN[:-1]), ExactSums.of(one.judged[one.inside]).total]
    lacked = int((inside.any(0) & ~inside.all(0)).sum()) if both else 0
    totals = scored[0].counts | {"judgments": len(evaluator.qrels), "lacked": lacked}
    totals["clusters"] = len(hashes_of_clusters)
    hashes = evaluator.made_once("hashes", lambda: mixed(_hashes(evaluator.qrels.queries)))
    digest = None if closed else evaluator.made_once("digest", lambda: _digest(evaluator.qrels.columns))
    excluded = options.excluded
    facts = Facts(
        version=__version__,
        measures=[[label, metric.definition_name] for label, metric in evaluator.metrics.items()],
        runs=list(task.runs),
        several=task.several,
        frame=task.is_frame,
        closed=closed,
        judgments=digest,
        by=by is not None,
        clusters=clusters is not None,
        queries=options.queries,
        ignore_identical_ids=options.ignore_identical_ids,
        precision=options.precision,
        ties=options.ties or "document",
        depth=options.depth,
        duplicates=duplicates,
        parent=parent if isinstance(parent, str) else parent is not None,
        exclude=excluded is not None if closed or excluded is None else _digest(excluded.columns),
        first_ranks=evaluator.depth,
    )
    return PartialEvaluation(
        facts,
        np.array([totals[name] for name in TOTALS], dtype=object),
        np.array(of_runs, dtype=object),
        dict(zip((None, *slices), (whole, *sums))),
        absent,
        np.unique(hashes[answered])[:SAMPLE],
        np.unique(hashes_of_clusters)[:SAMPLE],
        [_example(found) for found in parts],
        _shown(next(iter(evaluator.qrels.query_ids), None)),
        float(evaluator.qrels.value.min(initial=np.inf)),
        dict(evaluator.metrics),
    )


def merge(states: Iterable[PartialEvaluation | bytes], measures: Suite | None = None) -> PartialEvaluation:
    """Add the states of parts of the queries; merged states can be merged again, in any order.

    **Every query must be in one part.** Each state has the 1,024 smallest hashes of its ids, by which a query in two
    parts is found: for certain up to 1,024 queries; of more, if a part is given twice, or the parts are not by query. A
    single query in two large parts can be missed.

    Args:
        states: states of :func:`partial`, or their bytes by :meth:`PartialEvaluation.to_bytes`.
        measures: measures that have no name, such as those with functions of your own; None = made of their names.

    Raises:
        ValueError: there is no state; states have other judgments, measures, options or versions; a query is in two
            parts.
        TypeError: an object is not a state.
    """
    total: PartialEvaluation | None = None
    for given in states:
        state = PartialEvaluation.from_bytes(given) if isinstance(given, bytes | bytearray | memoryview) else given
        if not isinstance(state, PartialEvaluation):
            raise TypeError(f"Expected states of torchrank.partial, got {type(state).__name__}")
        total = state if total is None else _added(total, state)
    if total is None:
        raise ValueError("Expected the state of at least one part, got none; evaluate an empty part")
    return total if measures is None else replace(total, known=metrics_by_key(measures))


def _added(first: PartialEvaluation, second: PartialEvaluation) -> PartialEvaluation:
    for name, fact in vars(first.facts).items():
        if (other := getattr(second.facts, name)) != fact:
            way_out = "evaluate all parts alike"
            raise ValueError(f"Expected states of the same {name}, got {fact!r} and {other!r}; {way_out}")
    again = np.intersect1d(first.sample, second.sample, assume_unique=True)
    seen = [x["seen"] + y["seen"] for x, y in zip(map(first._of_run, _runs(first)), map(second._of_run, _runs(first)))]
    more = 0 if first.facts.closed else max(seen) - first.totals[TOTALS.index("judged")]
    if len(again) or more > 0:
        raise ValueError(
            f"Expected every query in one part, got {max(len(again), more)} or more judged queries in several;"
            " partition the data by query, and merge each part once"
        )
    if len(np.intersect1d(first.sample_of_clusters, second.sample_of_clusters, assume_unique=True)):
        raise ValueError(
            "Expected every cluster in one part, got one or more in several; partition the data by cluster"
        )
    totals = first.totals + second.totals
    if not first.facts.closed:  # those of all judgments
        totals[:-1] = first.totals[:-1]
    sums = dict(first.sums)
    for part, numbers in second.sums.items():
        sums[part] = sums[part] + numbers if part in sums else numbers
    examples = [
        (_least([one, other]), _least([apart, also]) or "")
        for (one, apart), (other, also) in zip(first.examples, second.examples)
    ]
    sample, clusters = (
        np.union1d(getattr(first, name), getattr(second, name))[:SAMPLE] for name in ("sample", "sample_of_clusters")
    )
    judged = _least([first.judged_example, second.judged_example])
    return PartialEvaluation(
        first.facts, totals, first.of_runs + second.of_runs, sums, first.absent, sample, clusters, examples, judged,
        min(first.lowest, second.lowest), first.known or second.known,
    )  # fmt: skip


def _runs(state: PartialEvaluation) -> range:
    return range(len(state.facts.runs))


def _least(examples: Sequence[Any]) -> Any:
    """The first of some ids or sentences in an order that does not depend on theirs; None without any."""
    return min((x for x in examples if x not in (None, "")), key=lambda x: (type(x).__name__, x), default=None)


def _example(parts: Sequence[Part]) -> tuple[Any, str]:
    """The id of a query of the parts of a run, and a sentence if they have no judged document."""
    return _shown(_least([_shown(part.example) for part in parts])), _least([part.disjoint for part in parts]) or ""


def _shown(key: Any) -> Any:
    """An id as JSON has it, shortened."""
    return key if key is None or isinstance(key, int) else str(key)[:100]


def _size(facts: Facts, single: int, paired: int) -> int:
    """The number of numbers of all measures, from those of a system and of a pair."""
    runs = len(facts.runs)
    return len(facts.measures) * (runs * single + runs * (runs - 1) // 2 * paired)


def _aligned(evaluator: Evaluator, given: Any, of_frame: Sequence[Any] | None, name: str) -> Sequence[Any] | None:
    """The slice or cluster of each query, from the user's dictionary or the column of a frame."""
    if not isinstance(given, Mapping):
        return of_frame
    ids = evaluator.qrels.query_ids
    if missing := [key for key in ids if key not in given]:
        raise ValueError(f"Expected each query in {name}, got none for {missing[0]!r}; add it")
    return [given[key] for key in ids]


def _slices(groups: Sequence[Any] | None, queries: int) -> tuple[list[Any], np.ndarray]:
    """The names of the slices, and the number of that of each query, int64 [query]: the last one = in none."""
    if groups is None:
        return [], np.zeros(queries, dtype=np.int64)
    groups = [group.item() if isinstance(group, np.generic) else group for group in groups]
    names = [name for name in dict.fromkeys(groups) if name is not None and name == name]  # NaN = in none
    if other := [name for name in names if not isinstance(name, str | int | float)]:
        raise ValueError(f"Expected slices to be texts or numbers, got {other[0]!r}; pass str of it")
    number = {name: n for n, name in enumerate(names)}
    return names, np.array([number.get(group, len(names)) for group in groups], dtype=np.int64)


def _sums(
    metrics: Mapping[str, Measure], scored: Sequence[Scored], both: bool, group: np.ndarray, groups: int
) -> np.ndarray:
    """The numbers of each group of queries: objects [group, number], as :attr:`PartialEvaluation.sums`.

    Args:
        metrics: the measures by label.
        scored: the values of the same queries by each run.
        both: only queries that are in a run count for it.
        group: int64 [query].
        groups: number of groups.
    """

    def numbers(chosen: np.ndarray) -> list[int]:
        return np.bincount(group[chosen], minlength=groups).tolist()

    columns: list[Sequence[Any]] = []
    for label, metric in metrics.items():
        values = []
        for one in scored:
            value, inside, weights = _values(one, label, metric, both)
            empty = one.empty[label] & (one.inside | (not both))
            columns += [numbers(empty | ~np.isnan(value)), numbers(empty)]
            columns += zip(*map(astuple, ExactSums.by(inside, weights, group, groups)))
            values.append(value)
        for pair in itertools.combinations(values, 2):
            known = np.isfinite(pair[0]), np.isfinite(pair[1])
            paired = np.flatnonzero(known[0] & known[1])
            a, b, inside = pair[0][paired], pair[1][paired], group[paired]
            d = b - a
            apart = np.abs(d) > TIE * np.maximum(np.abs(a), np.abs(b))
            columns += zip(*map(astuple, ExactSums.by(d, None, inside, groups)))
            columns += [exact_sums(factors, inside, groups) for factors in ([a], [b], [a, a], [b, b], [d, d, d])]
            differing = paired[apart & (d > 0)], paired[apart & (d < 0)], known[0] != known[1]
            columns += [numbers(queries) for queries in differing]
    return _transposed(columns, groups)


def _values(one: Scored, label: str, metric: Measure, both: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The values of queries that count, NaN elsewhere; what is summed of them; and weights, None = all are 1."""
    value = np.where(one.inside | (not both), one.columns[label], np.nan)
    weights = None if one.weights is None or (one.weights[label] == 1).all() else one.weights[label]
    return value, metric.mean.inside(torch.from_numpy(value)).numpy(), weights


def _transposed(columns: Sequence[Sequence[Any]], groups: int) -> np.ndarray:
    """Columns [number][group] as objects [group, number]."""
    result = np.empty((groups, len(columns)), dtype=object)
    for n, column in enumerate(columns):
        result[:, n] = column
    return result


def _cluster_sums(
    metrics: Mapping[str, Measure],
    scored: Sequence[Scored],
    both: bool,
    cluster: np.ndarray,
    group: np.ndarray,
    groups: int,
) -> np.ndarray:
    """The numbers of clusters in each group of queries: objects [group, number]. Arguments are those of `_sums`."""
    place = cluster * groups + group

    def products(*numbers: np.ndarray) -> list[Sequence[Any]]:
        """The number of clusters in each group, and sums of products of any two of the sums of each cluster."""
        inside = ~np.isnan(numbers[0])
        units, unit = np.unique(place[inside], return_inverse=True)
        sums = []
        for column in (x[inside] for x in numbers):
            order = np.lexsort((column, unit))  # the order of the rows changes no bit
            sums.append(np.bincount(unit[order], column[order], len(units)))
        of_unit = units % groups
        pairs = itertools.combinations_with_replacement(sums, 2)
        return [np.bincount(of_unit, minlength=groups).tolist(), *(exact_sums(x, of_unit, groups) for x in pairs)]

    columns: list[Sequence[Any]] = []
    for label, metric in metrics.items():
        values = []
        for one in scored:
            value, inside, weights = _values(one, label, metric, both)
            weights = np.ones_like(value) if weights is None else weights
            total = np.where(weights > 0, inside * weights, 0.0)
            columns += products(np.where(np.isfinite(inside), total, np.nan), weights)
            values.append(value)
        for a, b in itertools.combinations(values, 2):
            a, b = np.where(np.isfinite(b), a, np.nan), np.where(np.isfinite(a), b, np.nan)
            columns += products(a, b, np.ones_like(a))
    return _transposed(columns, groups)


def _with_clusters(found: PairStatistics, numbers: np.ndarray, turned: bool, scale: float) -> PairStatistics:
    """The statistics of a pair with the standard errors of clusters, as :func:`torchrank.compare` has them."""
    count, aa, ab, an, bb, bn, nn = numbers
    if turned:
        aa, an, bb, bn = bb, bn, aa, an
    found = replace(found, df=float(max(0, count - 1)), effective=math.nan)
    if count < 2:
        return replace(found, standard_error=math.nan, relative_standard_error=math.nan)
    mean, ratio = Fraction(found.difference), Fraction(found.mean_b / found.mean_a) if found.mean_a else None
    apart = (bb - 2 * ab + aa) - 2 * mean * (bn - an) + mean**2 * nn
    error = math.sqrt(max(0.0, float(apart * count / (count - 1))))
    error = (error if error > 1e-12 * scale else 0.0) / found.n
    relative = math.nan
    if ratio is not None:
        square = float((bb - 2 * ratio * ab + ratio**2 * aa) * count / (count - 1))
        relative = math.sqrt(max(0.0, square)) / found.n / abs(found.mean_a)
    return replace(found, standard_error=error, relative_standard_error=relative)


def _pair_vector(numbers: np.ndarray) -> tuple[torch.Tensor, float]:
    """The sums of a pair as those of :class:`torchrank.Compared`, each rounded once, and the size of its values."""
    differences, more = ExactSums(*numbers[: -len(PAIR)]), dict(zip(PAIR, numbers[-len(PAIR) :]))
    more |= {Pair.D: differences.total, Pair.DD: differences.squares}
    sums = torch.zeros(PAIR_SIZE, dtype=torch.float64, device="cpu")
    sums[:SIZE] = differences.vector()
    for kind, number in more.items():
        sums[SIZE + kind] = float(number)
    return sums, math.sqrt(max(more[Pair.AA], more[Pair.BB]) / max(1, differences.count))


def _absent(evaluator: Evaluator, by_name: bool, runs: int) -> tuple[Scored, np.ndarray]:
    """The values of all queries without a run, and their numbers.

    They are made once for measures that are given by name; functions of the user may have equal ones.
    """

    def made() -> tuple[Scored, np.ndarray]:
        everything = Scored.of(evaluator, [])
        group = np.zeros(len(evaluator.numbers), dtype=np.int64)
        return everything, _sums(evaluator.metrics, [everything] * runs, False, group, 1)[0]

    definitions = (metric.definition_name for metric in evaluator.metrics.values())
    return evaluator.made_once(("absent", runs, *definitions), made) if by_name else made()


def _measure(definition: str) -> Measure:
    """The measure of a definition.

    Raises:
        ValueError: it is not the label of one measure.
    """
    if not DEFINITION.fullmatch(definition):
        raise ValueError(f"Expected the label of one measure, got {definition[:100]!r}")
    try:
        return parse(definition)
    except (ValueError, TypeError) as error:
        way_out = f"import its class, or pass measures= to torchrank.merge: {error}"
        raise ValueError(f"Expected measures that are known by name, got {definition!r}; {way_out}") from None


def _digest(qrels: Qrels) -> str:
    """A digest of all judgments in any order."""
    queries = mixed(_hashes(qrels.queries))
    grades = np.zeros(len(qrels), np.uint64)
    for column in (qrels.value[:, None] if qrels.subtopics is None else qrels.subtopics).T:
        grades = mixed(grades * SECOND + mixed((column + 0.0).view(np.uint64)))  # -0.0 and 0.0 are one grade
    rows = mixed(queries[qrels.query] + np.uint64(3) * mixed(_hashes(qrels.items)) + np.uint64(5) * grades)
    # Sums do not depend on the order of the rows.
    parts = [int(np.add.reduce(hashes, dtype=np.uint64)) for hashes in (queries, rows, mixed(rows ^ SECOND))]
    text = "".join(f"{part:016x}" for part in parts)
    return f"{len(queries)} queries, {len(rows)} rows, {text}"


def _hashes(ids: Any) -> np.ndarray:
    """uint64 [id]: equal in all processes."""
    if isinstance(ids, ObjectIds):
        return hash_ids([f"{type(key).__name__} {key!r}" for key in ids.tolist()]).numpy().view(np.uint64)
    return np.asarray(ids.hashes())
