"""Are the differences between systems real: paired tests on the values of queries, verdicts, and gates."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Number
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from torchrank.display import SUPERSCRIPTS, Score, Table, axes_of, describe, draw_intervals, finite, shortened
from torchrank.names.arguments import did_you_mean, one_of, with_hints, with_texts
from torchrank.names.parse import Named, parse_all
from torchrank.statistics.intervals import check_share, detectable, queries_needed
from torchrank.statistics.paired import (
    CORRECTIONS,
    FAMILY_TESTS,
    OTHER_NULLS,
    PAIR_TESTS,
    AnytimeStatistics,
    Drawing,
    PairStatistics,
    correct,
    differences_of,
    family_p,
    paired_p,
    paired_statistics,
    statistics_of_runs,
)

_CONDITION = re.compile(r"\s*(\S.*?)\s*([<>])\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


class WrongDataError(ValueError):
    """Data, not the call, is wrong."""


@dataclass(frozen=True)
class Verdict:
    """The result of a gate for one pair of systems.

    ``state`` is "significant", "not significant" or "not tested", and ``remark`` says why a pair is not tested, or that
    judgments are missing.
    """

    gate: str
    a: str
    b: str
    difference: float | None
    p: float | None
    state: str
    passed: bool
    remark: str = ""

    def __str__(self) -> str:
        numbers = [] if self.difference is None else [f"difference {self.difference:+.4f}"]
        numbers += [] if self.p is None else [f"p = {self.p:.2g}"]
        shown = f" ({', '.join(numbers)})" * bool(numbers) + f"; {self.remark}" * bool(self.remark)
        return f"{self.gate} [{self.b} - {self.a}]: {self.state}{shown}"

    @property
    def judged(self) -> str:
        """The verdict in words, with its result first."""
        return f"{'passed' if self.passed else 'FAILED'}: {self}"


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of gates, as :meth:`torchrank.Comparison.gate` returns them: true if all have passed."""

    verdicts: tuple[Verdict, ...]

    def __bool__(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    def __repr__(self) -> str:
        return "\n".join(verdict.judged for verdict in self.verdicts)


@dataclass(frozen=True)
class Gate:
    """A condition on the difference of a measure, e.g. ``ndcg@10 < -0.005``.

    "fail-if" fails if the difference meets it significantly. "require" passes only then. So with few queries a gate of
    the first kind rarely fails, and one of the second kind mostly does. The test is Student's t test, or if the
    comparison has the test "anytime" the same for all looks together. If the difference is the same on all queries,
    and not 0, it is the sign test: p = 0.5 to the number of queries.
    """

    kind: str
    measure: str
    above: bool
    bound: float

    @classmethod
    def of(cls, text: str, kind: str) -> Gate:
        """Read a gate.

        Args:
            text: the condition.
            kind: "fail-if" or "require".

        Raises:
            ValueError: the text is not a condition.
        """
        if not (match := _CONDITION.fullmatch(text)):
            raise ValueError(f"Expected a condition such as 'ndcg@10 < -0.005' for {kind}, got {text!r}")
        return cls(kind, match[1], match[2] == ">", float(match[3]))

    def named(self, keys: Sequence[str], parameters: Mapping[str, Any] = MappingProxyType({})) -> Gate:
        """The gate with the name that its measure has among others.

        Args:
            keys: names of measures, such as those of a preset. A measure that has none of them has its label.
            parameters: those of all measures that have them, unless a name sets them.

        Raises:
            ValueError: the gate does not name one measure.
        """
        try:
            measure = Named(zip(keys, keys))[self.measure]
        except KeyError:
            measure, *others = (metric.label for metric in parse_all(self.measure, parameters))
            if others:
                message = f"Expected one measure in a condition for {self.kind}, got {self.measure!r}"
                raise ValueError(message) from None
        return replace(self, measure=measure)

    def verdicts(self, pairs: Sequence[PairStatistics], baseline: str, alpha: float, remark: str = "") -> list[Verdict]:
        """The verdict for each system except the baseline.

        Args:
            pairs: the pairs of a comparison.
            baseline: the system from which the others differ.
            alpha: the error rate.
            remark: what else is to be said.

        Raises:
            ValueError: the measure is not among the measures of the pairs.
        """
        measures = dict.fromkeys(pair.measure for pair in pairs)
        if self.measure not in measures:
            raise ValueError(
                f"Expected the measure of {self.kind} to be one of {', '.join(measures)}, got {self.measure!r};"
                " evaluate it, too"
            )
        text, found = f"{self.kind} {self.measure} {'>' if self.above else '<'} {self.bound:g}", []
        for pair in (pair for pair in pairs if (pair.measure, pair.a) == (self.measure, baseline)):
            spread = pair.standard_error > 0
            few = not (pair.n > 1 and pair.standard_error >= 0)  # no spread is known of one query or cluster
            if few or not (spread or abs(pair.difference) > 0):
                passed, difference = self.kind == "fail-if", None if math.isnan(pair.difference) else pair.difference
                why = "fewer than two queries that both have scored" if few else "equal on every query"
                remarks = "; ".join(filter(None, (why, remark)))
                found.append(Verdict(text, pair.a, pair.b, difference, None, "not tested", passed, remarks))
                continue
            beyond = (pair.difference - self.bound) * (1 if self.above else -1)
            p = pair.p_beyond(beyond)
            met = p <= alpha
            state, passed = "significant" if met else "not significant", met == (self.kind == "require")
            found.append(Verdict(text, pair.a, pair.b, pair.difference, p, state, passed, remark))
        return found


#: A larger skewness of the differences, over the root of their number, distorts tests of means.
MOST_SKEW = 0.25
#: Fewer queries let a verdict rest on the shape of the distribution.
FEW_QUERIES = 20
#: What confidence sequences from sums promise, and what to use where they do not hold.
ANYTIME = "valid at all looks together, if queries come in random order; asymptotic"
BETTING = "torchrank.QueryTable.confidence_sequences holds for any number of queries"
#: Fewer clusters make their standard error too small.
FEW_CLUSTERS = 30


def notes_on(pairs: Sequence[PairStatistics], p_values: Sequence[float], made: Comparison) -> list[str]:
    """Lines that explain the numbers of a comparison, and name pairs without a test or without a difference."""
    test, margin = made.test, made.margin
    intervals = f"{100 * made.level:g} % {'confidence sequences' if test == 'anytime' else 't intervals'}"
    notes = [f"{test} test of b - a, {intervals}; {_family(pairs, p_values, made)}"]
    notes += [ANYTIME] if test == "anytime" else []
    notes += [OTHER_NULLS[test]] if test in OTHER_NULLS else []
    if margin is not None:
        each = margin.items() if isinstance(margin, Mapping) else [("", margin)]
        size = ", ".join(f"{value:g} {label}".strip() for label, value in each)
        notes.append(f"margin {size}: equivalent if |b - a| is shown to be less, not_worse if b loses less")
    if lower := dict.fromkeys(pair.measure for pair in pairs if not pair.higher_is_better):
        notes.append(f"lower is better: {', '.join(lower)}")
    if most := max((pair.unpaired for pair in pairs), default=0):
        notes.append(f"up to {most} queries were scored by one system only; a pair does not count them")
    flat = "the same difference everywhere: no spread, so no interval and no t test"
    named = {
        "identical on every query, p = 1": lambda pair: pair.n > 1 and pair.identical,
        "fewer than two queries or clusters that both have scored, no verdict": lambda pair: pair.df == 0,
        flat: lambda pair: pair.df > 0 and not pair.identical and not pair.standard_error > 0,
    }
    return notes + _named(pairs, named)


def warnings_on(pairs: Sequence[PairStatistics], test: str) -> list[str]:
    """Lines on the pairs whose numbers should not be trusted."""
    of_means = test not in OTHER_NULLS
    skewed = "a few queries make up most of the difference, so tests and intervals of means are unreliable: add queries"
    few = f"few queries: a verdict on less than {FEW_QUERIES} depends on the shape of their distribution"
    weighty = "a few queries have most of the weight: the effective number of queries is less than half of their number"
    opposite = "means and wins point in opposite directions: no winner is named"
    named: dict[str, Callable[[PairStatistics], bool]] = {
        f"{skewed}, or look at these": lambda x: (
            of_means and x.n >= FEW_QUERIES and abs(x.skewness) / math.sqrt(x.n) > MOST_SKEW
        ),
        # of several runs it is not known
        few + f"; {BETTING}" * (test == "anytime"): lambda x: 1 < x.n < FEW_QUERIES and not math.isnan(x.sd),
        weighty: lambda x: x.effective < x.n / 2,
        opposite: lambda x: not of_means and x.gain * (x.wins - x.losses) < 0,
    }
    return _named(pairs, named)


def _family(pairs: Sequence[PairStatistics], p_values: Sequence[float], made: Comparison) -> str:
    measures = len(dict.fromkeys(pair.measure for pair in pairs))
    count = len(dict.fromkeys((pair.a, pair.b) for pair in pairs))
    if made.test in FAMILY_TESTS:
        return f"p-values are valid over all pairs together{', for each measure' * (measures > 1)}"
    if made.correction == "none":
        return "p-values are not corrected"
    if count == 1 and measures > 1 and made.family == "measure":
        way_out = "family='all' (--family all) corrects over the measures"
        return f"p-values are not corrected, since each measure has one pair; {way_out}"
    over = f"{count} pair{'s' * (count != 1)}"
    if measures > 1:
        over += f" x {measures} measures" if made.family == "all" else ", for each measure"
    untested = sum(map(math.isnan, p_values))
    return f"{made.correction} over {over}" + f" ({untested} without a test not counted)" * bool(untested)


def _named(pairs: Sequence[PairStatistics], lines: Mapping[str, Callable[[PairStatistics], bool]]) -> list[str]:
    """Each line with up to three of the pairs that it concerns; without those that concern none."""
    found = []
    for text, holds in lines.items():
        named = [f"{pair.measure}: {pair.a}, {pair.b}" for pair in pairs if holds(pair)]
        more = f"; {len(named) - 3} more" if len(named) > 3 else ""
        found += [f"{text} ({'; '.join(named[:3])}{more})"] if named else []
    return found


class Effect(NamedTuple):
    """A row of a forest plot: the difference of two systems with its interval; NaN where there is none."""

    measure: str
    a: str
    b: str
    value: float
    low: float
    high: float
    significant: bool
    higher_is_better: bool

    @property
    def name(self) -> str:
        """The direction of the difference."""
        return f"{shortened(self.b)} - {shortened(self.a)}"


#: how a warning begins that says which judged documents a system lacks
LABELS = "labels may be missing, so a loss may be no regression"


@dataclass(frozen=True)
class Row:
    """One pair of systems on one measure: its statistics and p-values, of which NaN means "no verdict".

    Args:
        pair: the statistics of the pair.
        p: p-value of the test.
        p_corrected: p-value corrected over the family of tests.
        p_equivalent: corrected p-value of equivalence (TOST); NaN without a margin.
        p_not_worse: corrected p-value of non-inferiority of ``b``; NaN without a margin.
    """

    pair: PairStatistics
    p: float
    p_corrected: float
    p_equivalent: float = math.nan
    p_not_worse: float = math.nan


@dataclass(frozen=True)
class Column:
    """A column of a comparison."""

    name: str
    about: str
    format: str = ""
    #: the value in a row; None = the attribute of the pair with this name
    value: Callable[[Comparison, Row], Any] | None = None
    #: whether printed tables show it, and whether it needs a margin
    printed: bool = True
    margin: bool = False
    #: the title and explanation of the column of the report; "" = the report has it in another column or not at all
    head: str = ""
    legend: str = ""
    #: in the report, the columns in one cell, and the form of the cell; () = the column itself
    cells: tuple[str, ...] = ()
    form: str = ""

    def of(self, comparison: Comparison, row: Row) -> Any:
        """The value in a row of a comparison."""
        return self.value(comparison, row) if self.value else getattr(row.pair, self.name)


def _verdict(comparison: Comparison, p: float) -> bool | None:
    return None if math.isnan(p) else p <= comparison.alpha


#: all columns of a comparison, in their order
COLUMNS = (
    Column("measure", "label of the measure", head="Measure"),
    Column("a", "name of the first system, the baseline if there is one", head="a"),
    Column("b", "name of the second system", head="b"),
    Column("mean_a", "mean of a on the queries that both have scored", head="Mean of a"),
    Column("mean_b", "mean of b on these queries", head="Mean of b"),
    Column("difference", "mean_b - mean_a", "+.4f", head="b - a",
           legend="the mean of b minus the mean of a; its interval is not corrected for several pairs"),
    Column("low", "lower end of the interval of the difference", "+.4f", lambda c, row: row.pair.interval(c.level)[0],
           head="{level:g} % interval", cells=("low", "high"), form="[{}, {}]"),
    Column("high", "upper end of this interval", "+.4f", lambda c, row: row.pair.interval(c.level)[1]),
    Column("relative", "difference as a share of mean_a", "+.2%", printed=False),
    Column("relative_low", "lower end of the interval of this share", "+.2%",
           lambda c, row: row.pair.relative_interval(c.level)[0], False),
    Column("relative_high", "upper end of this interval", "+.2%", lambda c, row: row.pair.relative_interval(c.level)[1],
           False),
    Column("p", "p-value of the test", ".2g", lambda c, row: row.p, head="p",
           legend="probability of a difference at least as large if the runs were equally good; {test} test"),
    Column("p_corrected", "p-value over the family of tests", ".2g", lambda c, row: row.p_corrected,
           head="p corrected"),
    Column("winner", "the better system, if one is shown", "", lambda c, row: c.winner(row), head="Winner",
           legend="the better run, if {corrected} is at most {alpha:g}; else no difference is shown"),
    Column("better", "posterior probability that b is better, under a flat prior", ".3f", printed=False),
    Column("effect", "difference in standard deviations of differences (Hedges)", "+.3f", head="Effect",
           legend="difference in standard deviations of the differences, with Hedges' correction"),
    Column("sd", "standard deviation of the differences", printed=False),
    Column("wins", "queries in which b is better", head="Better, equal, worse", cells=("wins", "ties", "losses"),
           form="{}, {}, {}", legend="numbers of queries on which b is better than a, equal to it, and worse"),
    Column("ties", "queries in which both are equal"),
    Column("losses", "queries in which b is worse"),
    Column("detectable", "smallest true difference that these queries show with the given power", "",
           lambda c, row: row.pair.detectable(c.power, c.alpha), False),
    Column("n", "queries that both have scored", head="n",
           legend="number of compared queries; one that a run lacks counts 0, if means are over judged queries"),
    Column("unpaired", "queries that only one has scored", "d"),
    Column("p_equivalent", "corrected p-value of equivalence", ".2g", lambda c, row: row.p_equivalent, False, True),
    Column("equivalent", "whether the difference is shown to be below the margin", "",
           lambda c, row: _verdict(c, row.p_equivalent), margin=True, head="Equivalent"),
    Column("p_not_worse", "corrected p-value of non-inferiority", ".2g", lambda c, row: row.p_not_worse, False, True),
    Column("not_worse", "whether b is shown to lose less than the margin", "",
           lambda c, row: _verdict(c, row.p_not_worse), margin=True, head="Not worse"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Comparison:
    """Comparison of systems on the same queries, as :func:`compare` returns it.

    Printing shows the main columns of :attr:`table`, the notes and the warnings. ``to_dict``, ``to_json`` and
    ``to_pandas`` have all columns.

    Args:
        rows: a row for each measure and pair.
        test: name of the test.
        correction: name of the correction of p-values.
        family: ``"measure"`` or ``"all"``, the tests that are corrected together.
        alpha: a corrected p-value of at most this is a verdict.
        level: level of the intervals.
        power: power of the smallest detectable difference.
        margin: difference that does not matter, of all measures or of each by its label; None if there is none.
        baseline: system with which all others are compared, or None for all pairs.
        notes: lines that explain the numbers.
        warnings: lines on numbers that should not be trusted.

    Example:
        >>> from torchrank.statistics.comparison import compare
        >>> a = {"q1": 0.2, "q2": 0.5, "q3": 0.3, "q4": 0.4}
        >>> b = {"q1": 0.4, "q2": 0.7, "q3": 0.4, "q4": 0.6}
        >>> compared = compare({"a": a, "b": b})
        >>> compared.table["winner"], compared.warnings
        (['b'], ('few queries: a verdict on less than 20 depends on the shape of their distribution (value: a, b)',))
        >>> Comparison.from_dict(compared.to_dict()) == compared
        True
    """

    rows: tuple[Row, ...]
    test: str = "t"
    correction: str = "holm"
    family: str = "measure"
    alpha: float = 0.05
    level: float = 0.95
    power: float = 0.8
    margin: float | Mapping[str, float] | None = None
    baseline: str | None = None
    notes: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, in the order in which they were given; a baseline is the first."""
        return tuple(dict.fromkeys([row.pair.a for row in self.rows] + [row.pair.b for row in self.rows]))

    @property
    def measures(self) -> tuple[str, ...]:
        """Labels of the measures."""
        return tuple(dict.fromkeys(row.pair.measure for row in self.rows))

    def winner(self, row: Row) -> str | None:
        """The better system of a row, None if no difference is shown.

        A rank test whose wins contradict the means has no winner: the test does not concern the means.
        """
        pair = row.pair
        if not row.p_corrected <= self.alpha or not pair.gain:
            return None
        if self.test in OTHER_NULLS and pair.gain * (pair.wins - pair.losses) < 0:
            return None
        return pair.b if pair.gain > 0 else pair.a

    def beaten(self, system: str, measure: str) -> list[str]:
        """The systems than which one is shown to be better in a measure."""
        pairs = [row.pair for row in self.rows if row.pair.measure == measure and self.winner(row) == system]
        return [pair.b if pair.a == system else pair.a for pair in pairs]

    @property
    def decided(self) -> bool:
        """Whether every row has a verdict: a winner, or with a margin equivalence.

        An evaluation may end when it is decided if the test is ``"anytime"``. Under any other test, looking until there
        is a verdict makes false verdicts frequent.
        """
        return all(self.winner(row) is not None or row.p_equivalent <= self.alpha for row in self.rows)

    def gate(self, fail_if: str | Sequence[str] = (), *, require: str | Sequence[str] = ()) -> Verdicts:
        """Conditions on the difference of each system from the baseline, to assert: the gates of ``torchrank compare``.

        Args:
            fail_if: conditions, e.g. ``"ndcg@10 < -0.005"``: the result is false if one is met significantly, at
                ``alpha``. With few queries it rarely is.
            require: conditions that must be met significantly, e.g. ``"ndcg@10 > -0.01"``.

        Returns:
            The verdicts, which are true if all have passed, and print as sentences. The baseline is that of the
            comparison, or the first system.

        Raises:
            ValueError: there is no condition, a text is not one, or its measure is not compared.

        Example:
            >>> import torchrank as tr
            >>> comparison = tr.compare({"old": [0.5, 0.4, 0.6, 0.3] * 5, "new": [0.4, 0.4, 0.5, 0.1] * 5})
            >>> assert comparison.gate("value < -0.2")
            >>> comparison.gate("value < -0.05")              # pytest prints it if it is asserted
            FAILED: fail-if value < -0.05 [new - old]: significant (difference -0.1000, p = 0.0031)
        """
        given = {"fail-if": fail_if, "require": require}
        texts = [(x, kind) for kind, some in given.items() for x in ([some] if isinstance(some, str) else some)]
        if not texts:
            raise ValueError("Expected a condition, got none; pass one such as 'ndcg@10 < -0.005'")
        return self._judged([Gate.of(text, kind).named(self.measures) for text, kind in texts])

    def _judged(self, gates: Sequence[Gate]) -> Verdicts:
        """The verdicts of gates."""
        pairs, remark = [row.pair for row in self.rows], "; ".join(x for x in self.warnings if x.startswith(LABELS))
        found = [gate.verdicts(pairs, self.systems[0], self.alpha, remark) for gate in gates]
        return Verdicts(tuple(verdict for some in found for verdict in some))

    @property
    def significant(self) -> str:
        """What the verdicts of the tests are called: "significant", or "significant after correction"."""
        return f"significant{' after correction' * (self.correction != 'none')}"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of :attr:`table`."""
        return tuple(column for column in COLUMNS if self.margin is not None or not column.margin)

    @property
    @with_texts(COLUMNS="\n        ".join(f"| {c.name} | {c.about}{', with a margin' * c.margin} |" for c in COLUMNS))
    def table(self) -> Table:
        """All numbers, a row for each measure and pair; a difference is b - a.

        | column | content |
        |---|---|
        COLUMNS
        """
        lines = [*self.notes, *(f"Warning: {warning}" for warning in self.warnings)]
        rows = [{column.name: column.of(self, row) for column in self.columns} for row in self.rows]
        return Table.of_rows(
            rows, {column.name: column.format for column in COLUMNS if column.format}, lines, ("measure", "a", "b")
        )

    @property
    def printed(self) -> Table:
        """The main columns of :attr:`table`."""
        table = self.table
        hidden = {"unpaired"} if not any(table["unpaired"]) else set()
        if repr(table["p"]) == repr(table["p_corrected"]):  # NaN equals NaN
            hidden.add("p_corrected")
        return table.of([c.name for c in COLUMNS if c.printed and c.name in table and c.name not in hidden])

    def __repr__(self) -> str:
        return repr(self.printed)

    def _repr_html_(self) -> str:
        return self.printed._repr_html_()

    def to_markdown(self) -> str:
        """The printed columns as a Markdown table, with notes and warnings."""
        return self.printed.to_markdown()

    def to_latex(self) -> str:
        """The printed columns as a LaTeX table for the package booktabs; notes and warnings are comments."""
        return self.printed.to_latex()

    def to_csv(self, path: str | Path | None = None) -> str:
        """All columns of :attr:`table` as comma-separated text, in full precision: :meth:`torchrank.Table.to_csv`."""
        return self.table.to_csv(path)

    def to_pandas(self) -> Any:
        """All columns of :attr:`table` as a ``pandas.DataFrame``.

        Raises:
            ImportError: pandas is not installed.
        """
        return self.table.to_pandas()

    def to_dict(self) -> dict[str, Any]:
        """All settings and numbers, in values that JSON has; NaN is None. :meth:`from_dict` reads it."""
        rows = []
        for described, row in zip(self.table, self.rows):
            p_values = {name: p for name, p in vars(row).items() if name != "pair"}
            given = {**described, **asdict(row.pair), **p_values}
            rows.append({name: finite(value) for name, value in given.items()})
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rows"}
        return {**settings, "notes": list(self.notes), "warnings": list(self.warnings), "rows": rows}

    def to_json(self, indent: int | None = None) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Comparison:
        """The comparison that :meth:`to_dict` wrote.

        Raises:
            ValueError: an entry is missing.
        """
        try:
            kind = AnytimeStatistics if given["test"] == "anytime" else PairStatistics
            rows = [Row(kind(**_read(kind, row)), **_read(Row, row, "pair")) for row in given["rows"]]
            settings = {f.name: given[f.name] for f in fields(cls)}
        except KeyError as error:
            way_out = "pass the result of to_dict()"
            raise ValueError(f"Expected an entry {error} of a comparison, got none; {way_out}") from None
        lines = {name: tuple(given[name]) for name in ("notes", "warnings")}
        return cls(**{**settings, **lines, "rows": tuple(rows)})

    def __eq__(self, other: object) -> bool:
        # through to_dict, in which a missing number equals a missing number
        return self.to_dict() == other.to_dict() if isinstance(other, Comparison) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def leaderboard(self, digits: int = 4) -> Table:
        """The table of a paper: a row for each system, a column for each measure, letters of the systems that it beats.

        A mean is that of the pair with the most queries. Against a baseline, only the baseline has a letter. HTML,
        Markdown and LaTeX print the best mean in bold.

        Args:
            digits: decimals of the means.

        Example:
            >>> from torchrank.statistics.comparison import compare
            >>> a = [0.2, 0.5, 0.3, 0.4]
            >>> board = compare({"bm25": a, "dense": [0.4, 0.7, 0.4, 0.6]}).leaderboard(digits=2)
            >>> print(board.with_notes())
               system  value
            a  bm25    0.35
            b  dense   0.53ᵃ
        """
        letters, several = list(SUPERSCRIPTS), len(self.systems) > 25  # 25 letters, then the digits
        if several:
            numbers = map(str, range(1, len(self.systems) + 1))
            letters = ["".join(letters[25 + int(digit)] for digit in number) for number in numbers]
        marks = dict(zip(self.systems, letters))
        plain = ["".join(SUPERSCRIPTS[character] for character in mark) for mark in marks.values()]
        columns: dict[str, list[Any]] = {"": plain, "system": list(self.systems)}
        for measure in self.measures:
            rows = [row for row in self.rows if row.pair.measure == measure]
            means = {}
            for system in self.systems:
                most = max((row.pair for row in rows if system in (row.pair.a, row.pair.b)), key=lambda pair: pair.n)
                means[system] = most.mean_a if most.a == system else most.mean_b
            known = [mean for mean in means.values() if not math.isnan(mean)]
            best = (max if rows[0].pair.higher_is_better else min)(known, default=math.nan)
            beaten = {system: {*self.beaten(system, measure)} for system in self.systems}
            join = (" " * several).join
            columns[measure] = [
                Score(mean, join(mark for other, mark in marks.items() if other in beaten[system]), mean == best)
                for system, mean in means.items()
            ]
        note = f"A letter after a mean: significantly better than the system of the letter ({self.alpha:g})."
        return Table(columns, dict.fromkeys(self.measures, f".{digits}f"), [note, *self.table.notes])

    def detectable(self, power: float = 0.8, alpha: float = 0.05) -> Table:
        """The smallest true difference that a t test of each pair finds on these queries, without correction.

        Example:
            >>> from torchrank.statistics.comparison import compare
            >>> table = compare({"a": [0.2, 0.5, 0.3, 0.4], "b": [0.4, 0.7, 0.4, 0.6]}).detectable(power=0.9)
            >>> round(table["detectable"][0], 4)
            0.1205
        """
        differences = [detectable(row.pair.standard_error, row.pair.df, power, alpha) for row in self.rows]
        note = f"found with probability {power:g} by a t test at {alpha:g}"
        return self._pair_table({"n": [row.pair.n for row in self.rows], "detectable": differences}, note)

    def queries_needed(self, delta: float, power: float = 0.8, alpha: float = 0.05) -> Table:
        """Number of queries with which a t test of each pair finds a true difference of ``delta``, without correction.

        None for pairs without a spread, and for several runs, whose test counts runs and not queries.

        Example:
            >>> from torchrank.statistics.comparison import compare
            >>> compare({"a": [0.2, 0.5, 0.3, 0.4], "b": [0.4, 0.7, 0.4, 0.6]}).queries_needed(0.01)["queries"]
            [199]
        """
        # the standard error allows for clusters, the standard deviation does not; several runs have none
        spreads = [r.pair.standard_error * math.sqrt(r.pair.n) if r.pair.sd > 0 else math.nan for r in self.rows]
        needed = [queries_needed(delta, sd, power, alpha) if sd > 0 else None for sd in spreads]
        note = f"for a difference of {delta:g}, found with probability {power:g} by a t test at {alpha:g}"
        return self._pair_table({"sd": spreads, "queries": needed}, note)

    def _pair_table(self, columns: dict[str, list[Any]], note: str) -> Table:
        names = {name: [getattr(row.pair, name) for row in self.rows] for name in ("measure", "a", "b")}
        return Table({**names, **columns}, notes=[note])

    def effects(self, measure: str | None = None) -> list[Effect]:
        """The differences with their intervals: those of one measure, or all."""
        found = []
        for row in (row for row in self.rows if measure in (None, row.pair.measure)):
            numbers = row.pair.difference, *row.pair.interval(self.level)
            shown = self.winner(row) is not None, row.pair.higher_is_better
            found.append(Effect(row.pair.measure, row.pair.a, row.pair.b, *numbers, *shown))
        return found

    def forest(self, ax: Any = None, measure: str | None = None) -> tuple[Any, Any]:
        """Draw the differences with their intervals, and a band of the margin. A filled dot is significant.

        Args:
            ax: axes of matplotlib to draw on; a new figure if None.
            measure: the measure to draw; None = all of them in one axes.

        Returns:
            The figure and the axes.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: there is no such measure.
        """
        if measure is not None:
            one_of("measure", measure, self.measures)
        about = f"difference with its {100 * self.level:g} % interval\nfilled dot: {self.significant}; hollow dot: not"
        rows, single = self.effects(measure), measure is not None or len(self.measures) == 1
        lower = ["" if row.higher_is_better else " (lower is better)" for row in rows]
        names = [row.name if single else f"{row.measure}: {row.name}{more}" for row, more in zip(rows, lower)]
        # room for the names and, below the axis, for the text
        axes = axes_of(ax, 4.4 + 0.085 * max(map(len, names), default=0), 1.4 + 0.3 * len(rows), managed=True)
        axes.axvline(0, color="0.5", linewidth=1)
        width = self.margin.get(rows[0].measure) if isinstance(self.margin, Mapping) and single else self.margin
        if isinstance(width, int | float):
            axes.axvspan(-width, width, color="0.9", zorder=0)
        value, low, high = ([getattr(row, column) for row in rows] for column in ("value", "low", "high"))
        draw_intervals(axes, names, value, low, high, [row.significant for row in rows])
        describe(axes, f"{rows[0].measure}{lower[0]}" if single else "", about, "")
        axes.grid(axis="x", alpha=0.3)
        return axes.figure, axes


def comparison_of(
    pairs: Sequence[PairStatistics], p_values: Sequence[float] | None = None, *, level: float | None = None,
    notes: Sequence[str] = (), warnings: Sequence[str] = (), **settings: Any,
) -> Comparison:  # fmt: skip
    """The comparison of pairs whose statistics are known.

    Args:
        pairs: statistics of each measure and pair.
        p_values: p-values of another test than t, one for each pair.
        level: level of the intervals; 1 - alpha if None.
        notes: further lines that explain the numbers.
        warnings: further lines on numbers that should not be trusted.
        settings: fields of :class:`Comparison`, from ``test`` to ``baseline``.

    Example:
        >>> pair = PairStatistics("ndcg@10", "a", "b", 400, 0.40, 0.42, standard_error=0.01, df=399, sd=0.2, wins=9)
        >>> comparison_of([pair]).table.rows[0]["p"] == pair.p
        True
    """
    made = Comparison((), **settings)
    made = replace(made, level=1 - made.alpha if level is None else level)
    for name in ("alpha", "level", "power"):
        check_share(name, getattr(made, name))
    margin = made.margin
    for label in margin if isinstance(margin, Mapping) else ():
        one_of("each label of margin", label, dict.fromkeys(pair.measure for pair in pairs))
    for width in margin.values() if isinstance(margin, Mapping) else [margin]:
        if width is not None and not 0 < width < math.inf:
            raise ValueError(f"Expected margin to be positive, got {width}; give the largest that does not matter")
    p_values = [pair.p for pair in pairs] if p_values is None else list(p_values)
    raised = {"p_corrected": p_values}
    if margin is not None:
        widths = [margin.get(x.measure, math.nan) if isinstance(margin, Mapping) else margin for x in pairs]
        for name in ("p_equivalent", "p_not_worse"):
            raised[name] = [getattr(pair, name)(width) for pair, width in zip(pairs, widths)]
    families: dict[str, list[int]] = {}  # the rows that are corrected together
    for i, pair in enumerate(pairs):
        families.setdefault(pair.measure if made.family == "measure" else "", []).append(i)
    numbers = [{"p": p} for p in p_values]
    for name, values in raised.items():
        for family in families.values():
            for i, p in zip(family, correct([values[i] for i in family], made.correction)):
                numbers[i][name] = p
    rows = tuple(Row(pair, **given) for pair, given in zip(pairs, numbers))
    notes, warnings = (*notes_on(pairs, p_values, made), *notes), (*warnings_on(pairs, made.test), *warnings)
    return replace(made, rows=rows, notes=notes, warnings=warnings)


def _read(kind: Any, row: Mapping[str, Any], *skipped: str) -> dict[str, Any]:
    return {f.name: math.nan if row[f.name] is None else row[f.name] for f in fields(kind) if f.name not in skipped}


Array = np.ndarray

#: the measure of values that come without a label
UNNAMED = "value"


@dataclass(frozen=True)
class Matched:
    """Values of systems on the same queries.

    Args:
        values: float64 [query, run] for each system, by measure and system; NaN where a query has no value. A system
            that was given as one run has one column.
        ids: the query ids in the order of the rows; None if the systems were matched by position.
        missing: number of queries that some system lacks.
        higher_is_better: directions that the systems give, by measure.
    """

    values: dict[str, dict[str, Array]]
    ids: list[Hashable] | None
    missing: int
    higher_is_better: dict[str, bool]


@dataclass(frozen=True)
class _Run:
    """One evaluation of one system: its ids, if it has any, and its columns."""

    name: str
    ids: list[Hashable] | None
    columns: dict[str, Array]
    higher_is_better: dict[str, bool]


def match(systems: Mapping[str, Any], missing: str = "error") -> Matched:
    """Match the queries of systems by id, or by position if they have no ids.

    Args:
        systems: values of each system by its name, in a form that :func:`compare` documents.
        missing: ``"error"`` refuses queries that some system lacks, ``"drop"`` leaves them unpaired, ``"zero"`` counts
            them as 0.

    Returns:
        The queries sorted by id, so that nothing depends on the order in which they came.

    Raises:
        ValueError: systems have different measures, numbers of queries or ids.
        TypeError: a system has none of the forms.

    Example:
        >>> match({"a": {"q2": 0.2, "q1": 0.1}, "b": {"q1": 0.5, "q2": 0.6}}).values["value"]["a"].tolist()
        [[0.1], [0.2]]
    """
    one_of("missing", missing, ("error", "drop", "zero"))
    if not isinstance(systems, Mapping):
        raise ValueError(f'Expected a dictionary of systems, got {type(systems).__name__}; pass {{"a": ..., "b": ...}}')
    if len(systems) < 2:
        raise ValueError(f"Expected at least two systems, got {', '.join(map(str, systems)) or 'none'}; name each")
    runs: dict[str, list[_Run]] = {}
    for name, system in systems.items():
        several = isinstance(system, list | tuple) and not all(map(_is_number, system))
        if several and len(system) < 2:
            got = "got one; give the run itself, without a list"
            raise ValueError(f"Expected at least two runs of {str(name)!r}, {got}")
        named = {f"{name}[{i}]": x for i, x in enumerate(system)} if several else {str(name): system}
        runs[str(name)] = [_run(key, x) for key, x in named.items()]
    every = [run for system in runs.values() for run in system]
    first = every[0]
    for run in every:
        if different := set(first.columns) ^ set(run.columns):
            raise ValueError(
                f"Expected the same measures of every system, got {_three(sorted(different))} in only one of "
                f"{first.name!r} and {run.name!r}; evaluate both with one collection"
            )
        if (first.ids is None) != (run.ids is None):
            raise ValueError(
                f"Expected ids in all systems or in none, got them in only one of {first.name!r} and {run.name!r};"
                " give all systems as {id: value}"
            )
    if not first.columns:
        raise ValueError(f"Expected values of at least one measure, got none in {first.name!r}; add a column")
    ids, lacking = None, 0
    if first.ids is not None:
        ids, rows, lacking = _by_id(every, missing)
    else:
        lengths = {run.name: len(next(iter(run.columns.values()))) for run in every}
        if len(set(lengths.values())) > 1:
            way_out = "give {id: value} to match by id"
            raise ValueError(f"Expected as many queries in every system, got {lengths}; {way_out}")
        rows = [np.arange(length) for length in lengths.values()]
    filler, values = 0.0 if missing == "zero" else np.nan, {}
    for measure in first.columns:
        columns = iter([np.where(row < 0, filler, run.columns[measure][row]) for run, row in zip(every, rows)])
        values[measure] = {name: np.stack([next(columns) for _ in system], axis=1) for name, system in runs.items()}
    directions = {label: known for run in reversed(every) for label, known in run.higher_is_better.items()}
    return Matched(values, ids, lacking, directions)


def cluster_numbers(clusters: Any, ids: list[Hashable] | None, queries: int) -> Array:
    """The cluster of each query as int64 [query], from ``{id: cluster}`` or a sequence by position.

    Raises:
        ValueError: a query has no cluster, or a sequence is given for queries with ids.

    Example:
        >>> cluster_numbers({"q1": "ann", "q2": "bob", "q3": "ann"}, ["q1", "q2", "q3"], 3).tolist()
        [0, 1, 0]
    """
    if isinstance(clusters, Mapping) != (ids is not None):
        if ids is not None:
            raise ValueError(
                f"Expected clusters to be a dictionary {{id: cluster}}, got {type(clusters).__name__}, but the"
                " systems are matched by id; pass dict(zip(ids, clusters)), of lists"
            )
        raise ValueError(
            f"Expected clusters to be a sequence with the cluster of each query, got {_short(clusters)}, but the"
            " systems have no ids; pass its values in the order of the queries"
        )
    if ids is not None:
        if lacking := [query for query in ids if query not in clusters]:
            raise ValueError(f"Expected a cluster for every query, got none for {_three(lacking)}; add them")
        values = [clusters[query] for query in ids]
    else:
        values = _listed(clusters)
        if len(values) != queries:
            raise ValueError(f"Expected clusters of {queries} queries, got {len(values)}; give one for each query")
    return numbered_clusters(values, range(queries) if ids is None else ids)


def numbered_clusters(clusters: Sequence[Any], queries: Sequence[Any]) -> Array:
    """The number of the cluster of each query, int64 [query]: clusters are equal as keys of a dictionary are.

    Raises:
        ValueError: a cluster is missing, None or NaN, or cannot be a key.

    Example:
        >>> numbered_clusters([1, "1", ("ann", 2), ("ann", 2)], [0, 1, 2, 3]).tolist()
        [0, 1, 2, 2]
    """
    numbers: dict[Hashable, int] = {}
    cluster_numbers = np.empty(len(clusters), dtype=np.int64)
    for row, (cluster, query) in enumerate(zip(clusters, queries)):
        if cluster is None or not isinstance(cluster, Hashable) or cluster != cluster:
            raise ValueError(
                f"Expected the cluster of each query to be a text, a number or a tuple, got {cluster!r} for query"
                f" {query!r}; leave the query out, or give it a separate cluster"
            )
        cluster_numbers[row] = numbers.setdefault(cluster, len(numbers))
    return cluster_numbers


def _run(name: str, values: Any) -> _Run:
    ids, columns, directions = None, values, {}
    if hasattr(values, "ids") and hasattr(values, "columns"):
        ids, columns = _listed(values.ids), {label: values.columns[label] for label in values.columns}
        directions = dict(getattr(values, "higher_is_better", None) or {})
    elif hasattr(values, "compute") and not hasattr(values, "__array__"):
        raise TypeError(f"Expected {name!r} to be values, got {type(values).__name__}; pass its compute()")
    elif isinstance(values, Mapping):
        columns = {UNNAMED: values} if all(map(_is_number, values.values())) else values
        if all(isinstance(column, Mapping) for column in columns.values()):
            ids = list(dict.fromkeys(query for column in columns.values() for query in column))
            columns = {label: [column.get(query, np.nan) for query in ids] for label, column in columns.items()}
    else:
        return _Run(name, None, {UNNAMED: _vector(f"{name!r}", values)}, {})
    vectors = {str(label): _vector(f"{name!r}, {label!r}", column) for label, column in columns.items()}
    lengths = {label: len(column) for label, column in vectors.items()}
    if ids is not None:
        lengths["ids"] = len(ids)
        if len(set(ids)) < len(ids):
            twice = [query for query, times in Counter(ids).items() for _ in range(times - 1)]
            raise ValueError(f"Expected each id of {name!r} once, got {_three(twice)} twice; keep one value of each")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Expected columns of {name!r} of equal length, got {lengths}; give every query a value")
    return _Run(name, ids, vectors, directions)


def _by_id(runs: Sequence[_Run], missing: str) -> tuple[list[Hashable], list[Array], int]:
    """The ids; for each run the row of each id in its columns, -1 for none; and how many ids some run lacks."""
    places = [{query: row for row, query in enumerate(run.ids or ())} for run in runs]
    ids = sorted(set().union(*places), key=lambda query: (type(query).__name__, query))
    rows = [np.array([place.get(query, -1) for query in ids], dtype=np.int64) for place in places]
    lacks = [row < 0 for row in rows]
    if missing == "error":
        for run, lack in zip(runs, lacks):
            if lack.any():
                queries = _three([ids[i] for i in np.flatnonzero(lack)])
                raise ValueError(
                    f"Expected the same queries in every system, got none of {queries} in {run.name!r}; pass"
                    " missing='zero' to count them as 0, or missing='drop' to leave them out"
                )
    if missing == "drop" and np.any(lacks, axis=0).all():
        ids_of = "; ".join(f"{run.name}: {_three(list(run.ids or ()))}" for run in runs)
        way_out = "use the same ids in all systems"
        raise WrongDataError(f"Expected queries that all systems have, got none ({ids_of}); {way_out}")
    return ids, rows, int(np.any(lacks, axis=0).sum())


def _vector(name: str, values: Any) -> Array:
    values = values.detach().cpu() if hasattr(values, "detach") else values
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Expected {name} to be values per query, a dictionary {{id: value}} or a table with ids and columns, "
            f"got {_short(values)}; pass the result of PerQuery or of score(), or of evaluate() one run, results['run']"
        ) from error
    if column.ndim != 1:
        way_out = "give one value for each query"
        raise ValueError(f"Expected {name} to be [query], got shape {list(column.shape)}; {way_out}")
    if np.isinf(column).any():
        raise ValueError(f"Expected {name} to be finite or NaN, got an infinite value; mark a missing value by NaN")
    return column


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) or getattr(value, "ndim", None) == 0


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _three(names: Iterable[Any]) -> str:
    named = [repr(name) for name in names]
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:40]}..."


# Tests that can treat the queries of a cluster as one.
_CLUSTERED = ("t", "randomization", "anytime")


@with_hints
def compare(
    systems: Mapping[str, Any],
    baseline: str | None = None,
    *,
    test: str = "t",
    correction: str | None = None,
    family: str = "measure",
    alpha: float = 0.05,
    level: float | None = None,
    margin: float | Mapping[str, float] | None = None,
    missing: str = "error",
    clusters: Any = None,
    higher_is_better: bool | Mapping[str, bool] | None = None,
    zeros: str = "pratt",
    replicates: int = 10_000,
    seed: int = 0,
    power: float = 0.8,
) -> Comparison:
    r"""Compare systems on the same queries: differences with intervals, p-values and verdicts.

    A system is given in one of these forms, all systems in the same one:

    | form | meaning |
    |---|---|
    | tensor, array or list, float [query] | values of one measure, matched by position |
    | ``{id: value}`` | values of one measure, matched by id |
    | ``{label: [query]}`` or ``{label: {id: value}}`` | values of several measures |
    | :class:`torchrank.QueryTable`, or an object with ``ids`` and ``columns`` | several measures, matched by id |
    | list of at least two of these | several runs of a method, such as training seeds |

    A value of NaN is not a value: its query is not paired, and counted in the column ``unpaired``. Queries are sorted
    by id, so that the result does not depend on their order.

    Tests of one query set speak of these systems as they are. Training again gives another system: give several runs
    to compare methods. Their means are compared by Welch's t test over the runs.

    | test | null hypothesis | needs |
    |---|---|---|
    | ``"t"`` | equal means | |
    | ``"randomization"`` | labels of the systems can be swapped on every query | |
    | ``"bootstrap"`` | equal means | |
    | ``"tukey"`` | equal means of all systems, two-way; valid over all pairs | scipy |
    | ``"randomized-tukey"`` | systems can be permuted on every query; valid over all pairs | |
    | ``"wilcoxon"`` | differences are symmetric about 0, which is not equality of means | scipy |
    | ``"sign"`` | wins and losses are equally likely; ties are dropped | scipy |
    | ``"anytime"`` | equal means; the error rate holds however often one looks, see :class:`torchrank.Compared` | |

    Source:
        Smucker, Allan and Carterette, A comparison of statistical significance tests for information retrieval
        evaluation, CIKM 2007. Carterette, Multiple testing in statistical analysis of systems-based information
        retrieval experiments, ACM TOIS 2012.

    Args:
        systems: the values of each system, by its name.
        baseline: name of the system with which each other one is compared; None compares all pairs.
        test: name of the test.
        correction: ``"holm"`` (the default), ``"bh"`` or ``"none"``. The tests of Tukey need none and accept no other.
        family: ``"measure"`` corrects over the pairs of each measure, ``"all"`` over pairs and measures.
        alpha: a corrected p-value of at most this is a verdict.
        level: level of the intervals, which are not corrected; 1 - alpha if None.
        margin: difference that does not matter, of all measures or of each by its label, in their units. It adds the
            tests of equivalence (TOST) and of non-inferiority, "b is not worse than a by the margin", by Student's t
            and corrected like the others.
        missing: queries that some system lacks: ``"error"``, ``"drop"`` or ``"zero"``.
        clusters: cluster of each query, whose queries may depend on each other: ``{id: cluster}``, or [query] by
            position. For ``"t"``, ``"randomization"`` and ``"anytime"``.
        higher_is_better: direction of all measures, or of each by its label. None takes the directions that the
            systems have in an attribute of that name, and True elsewhere.
        zeros: ``"pratt"`` or ``"zsplit"``, the treatment of differences of 0 in Wilcoxon's test.
        replicates: number of random replicates of the tests that draw.
        seed: seed of these tests. The same seed gives the same p-values.
        power: power of the smallest detectable difference.

    Returns:
        A :class:`Comparison`. Identical systems have p = 1. Fewer than two queries, or differences without a spread,
        have NaN where a spread would be needed.

    Raises:
        ValueError: the systems do not match, or an argument has no such value.
        TypeError: a system has none of the forms.
        ImportError: the test needs scipy, which is not installed.

    Example:
        >>> bm25 = {"q1": 0.21, "q2": 0.50, "q3": 0.33, "q4": 0.40, "q5": 0.10}
        >>> dense = {"q5": 0.22, "q4": 0.61, "q3": 0.40, "q2": 0.72, "q1": 0.41}
        >>> compared = compare({"bm25": bm25, "dense": dense}, baseline="bm25")
        >>> row = compared.table.rows[0]
        >>> round(row["difference"], 3), round(row["p"], 4), row["winner"], row["n"]
        (0.164, 0.0051, 'dense', 5)
    """
    if test not in {**PAIR_TESTS, **FAMILY_TESTS}:
        known = [*PAIR_TESTS, *FAMILY_TESTS]
        hint = "; it is called 'randomization'" if str(test).startswith("perm") else did_you_mean(test, known)
        raise ValueError(f"Expected test to be one of {', '.join(known)}, got {test!r}{hint}")
    one_of("family", family, ("measure", "all"))
    if correction is not None:
        one_of("correction", correction, CORRECTIONS)
    if test in FAMILY_TESTS and (correction not in (None, "none") or family == "all"):
        raise ValueError(
            f"Expected no correction and family='measure' with test={test!r}, whose p-values cover all pairs, got "
            f"correction={correction!r} and family={family!r}; leave both out"
        )
    correction = "none" if test in FAMILY_TESTS else correction or "holm"
    drawing = Drawing(replicates, seed, zeros)
    matched = match(systems, missing)
    every = list(map(str, systems))
    names = list(itertools.combinations(every, 2))
    if baseline is not None:
        one_of("baseline", baseline, every)
        names = [(baseline, name) for name in every if name != baseline]
    given = {} if higher_is_better is None else higher_is_better
    given = dict.fromkeys(matched.values, given) if isinstance(given, bool) else given
    for label in given:
        one_of("each label of higher_is_better", label, matched.values)
    directions = dict.fromkeys(matched.values, True) | matched.higher_is_better | dict(given)
    columns = next(iter(matched.values.values()))
    runs, notes, warnings, numbers = {name: x.shape[1] for name, x in columns.items()}, [], [], None
    several = max(runs.values()) > 1
    if matched.missing:
        how = "count as 0" if missing == "zero" else "are left out"
        notes.append(f"{matched.missing} queries that some system lacks {how}")
    if clusters is not None:
        if test not in _CLUSTERED or several:
            raise ValueError(
                f"Expected one run of each system and test={' or '.join(map(repr, _CLUSTERED))} with clusters, got "
                f"test={test!r}; leave the clusters out, or change the test"
            )
        numbers = cluster_numbers(clusters, matched.ids, len(next(iter(columns.values()))))
        count = len(np.unique(numbers))
        notes.append(f"standard errors of {count} clusters of {len(numbers) / max(1, count):.3g} queries on average")
        if count < FEW_CLUSTERS:
            warnings.append(f"{count} clusters: their standard errors are too small below about {FEW_CLUSTERS}")
    tables = (x if isinstance(x, list | tuple) else [x] for x in systems.values())
    warnings += plain_means_warnings(*_not_plain(itertools.chain.from_iterable(tables)))
    if several:
        if min(runs.values()) == 1:
            raise ValueError(f"Expected several runs of every system or of none, got {runs}; give at least two of each")
        if test != "t":
            raise ValueError(f"Expected test='t' with several runs of a system, got {test!r}; leave the test out")
        counted = ", ".join(f"{name} {number}" for name, number in runs.items())
        notes.append(f"Welch's t over runs ({counted}): it speaks of methods; tests over queries speak of one run each")
    pairs: list[PairStatistics] = []
    p_values: list[float] = []
    for measure, values in matched.values.items():
        about: dict[str, Any] = {"measure": measure, "higher_is_better": bool(directions[measure])}
        single = {name: column[:, 0] for name, column in values.items()}
        if test in FAMILY_TESTS:
            lacking = np.isnan(list(single.values()))
            incomplete = lacking.any(axis=0)
            dropped = int((incomplete & ~lacking.all(axis=0)).sum())
            single = {name: np.where(incomplete, np.nan, column) for name, column in single.items()}
            family_values = family_p(np.stack(list(single.values()), axis=1)[~incomplete], test, drawing)
        for a, b in names:
            if several:
                pair = statistics_of_runs(values[a], values[b], names=(a, b), **about)
            else:
                pair = paired_statistics(single[a], single[b], numbers, names=(a, b), **about)
            if test in FAMILY_TESTS:
                pair, p = replace(pair, unpaired=dropped), float(family_values[every.index(a), every.index(b)])
            elif test in ("t", "anytime") or pair.identical or pair.n < 2:
                pair = pair.anytime() if test == "anytime" else pair
                p = pair.p
            else:
                differences = differences_of(single[a], single[b])
                both = ~np.isnan(differences)
                clustered = differences[both] if numbers is None else np.bincount(numbers[both], differences[both])
                p = paired_p(clustered, test, drawing)
            pairs.append(pair)
            p_values.append(p)
    return comparison_of(
        pairs, p_values, test=test, correction=correction, family=family, alpha=alpha, level=level, power=power,
        margin=margin, baseline=baseline, notes=notes, warnings=warnings,
    )  # fmt: skip


def plain_means_warnings(others: Iterable[str], weighted: bool) -> list[str]:
    """Warnings of a comparison of plain means.

    Args:
        others: the measures whose results are others than the plain means of their values.
        weighted: whether queries have weights.
    """
    warnings = []
    if others := dict.fromkeys(others):
        warnings.append(f"compared are plain means of the values of queries, not the results of {', '.join(others)}")
    if weighted:
        warnings.append("weights of the tables are not used: every query counts alike")
    return warnings


def _not_plain(tables: Iterable[Any]) -> tuple[list[str], bool]:
    """The arguments of :func:`plain_means_warnings` for the values of queries in any form."""
    tables = list(tables)
    others = [label for table in tables for label in getattr(table, "other_results", ())]
    return others, any(getattr(table, "weights", None) is not None for table in tables)


def best_of(checkpoints: Mapping[Any, Any], level: float = 0.95, replicates: int = 1000, seed: int = 0) -> Table:
    r"""The value of the best checkpoint without the luck of having been chosen, for each measure.

    The best of E checkpoints on a set of queries looks better than it is on other queries, because the luck of these
    queries helped to choose it. A paired bootstrap draws queries, the same for all checkpoints, and chooses again: the
    bias is the mean of how far the value of the chosen one is above its expectation. Values of the checkpoints differ
    by this luck, too, so their expectations are nearer to each other than their values :math:`m_e`. With v the mean
    variance of the luck and s the variance of the values over checkpoints, the bootstrap takes expectations of variance
    s - v:

    .. math:: \bar m + \sqrt{\max(0, 1 - v / s)} \; (m_e - \bar m).

    Args:
        checkpoints: the values of each checkpoint by its epoch or name, as a :class:`torchrank.QueryTable` or another
            form that :func:`torchrank.compare` takes. Queries that one of them lacks are left out.
        level: share of such intervals that contain the expected value of the chosen checkpoint.
        replicates: number of replicates.
        seed: their seed.

    Returns:
        A :class:`torchrank.Table` with a row for each measure: ``best``, the chosen checkpoint; ``value``, its mean;
        ``bias``; ``corrected`` = value - bias; ``low`` and ``high``, the interval around the corrected value;
        ``queries``, the number of queries that all checkpoints have scored. Fewer than two queries have no bias.

    Raises:
        ValueError: there are fewer than two checkpoints, they have different measures, or an argument is out of range.

    Example:
        >>> import numpy as np, torchrank as tr
        >>> generator = np.random.default_rng(0)
        >>> query = generator.uniform(0.2, 0.8, 100)  # the expected value of each query is the same at every epoch
        >>> values = query + generator.uniform(-0.2, 0.2, (20, 100))
        >>> epochs = {epoch: tr.QueryTable(range(100), {"mrr": values[epoch]}) for epoch in range(20)}
        >>> tr.best_of(epochs)
        measure  best   value    bias  corrected     low    high  queries
        mrr         1  0.5456  0.0207     0.5249  0.4851  0.5629      100
        value: mean of the best of 20 checkpoints, on the queries that chose it
        bias: the luck of this choice, by 1000 bootstrap replicates (seed 0)
        corrected: value - bias; low and high: its 95 % interval
    """
    check_share("level", level)
    if len(checkpoints) < 2:
        raise ValueError(f"Expected two or more checkpoints, got {len(checkpoints)}; a single one was not chosen")
    drawing = Drawing(replicates, seed)
    matched = match({str(name): table for name, table in checkpoints.items()}, missing="drop")
    names, rows = list(checkpoints), []
    for measure, columns in matched.values.items():
        sign = 1 if matched.higher_is_better.get(measure, True) else -1
        values = sign * np.stack([column.mean(axis=1) for column in columns.values()])
        values = values[:, ~np.isnan(values).any(axis=0)]
        means = values.mean(axis=1) if values.size else np.full(len(values), np.nan)
        best = int(means.argmax())
        luck = _luck(values, means, drawing) if values.shape[1] > 1 else np.full(1, np.nan)
        bias, ends = luck.mean(), np.quantile(luck, [(1 + level) / 2, (1 - level) / 2])
        low, high = sorted(sign * (means[best] - ends))
        row = {"best": names[best], "value": sign * means[best], "bias": sign * bias}
        row |= {"corrected": row["value"] - row["bias"], "low": low, "high": high, "queries": values.shape[1]}
        rows.append({"measure": measure, **row})
    notes = [
        f"value: mean of the best of {len(names)} checkpoints, on the queries that chose it",
        f"bias: the luck of this choice, by {replicates} bootstrap replicates (seed {seed})",
        f"corrected: value - bias; low and high: its {100 * level:g} % interval",
        *(f"Warning: {warning}" for warning in plain_means_warnings(*_not_plain(checkpoints.values()))),
    ]
    return Table.of_rows(rows, notes=notes)


def _luck(values: Array, means: Array, drawing: Drawing) -> Array:
    """How far the chosen checkpoint of each replicate is above its expectation, from values [checkpoint, query]."""
    n = values.shape[1]
    parts = []
    for generator, count in drawing.chunks(n):
        drawn = generator.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n)
        parts.append(times @ values.T / n - means)
    luck = np.concatenate(parts)  # [replicate, checkpoint]
    of_luck = luck.var(axis=1, ddof=1).mean()
    spread = means.var(ddof=1)
    shrunk = math.sqrt(max(0.0, 1 - of_luck / spread) if spread > 0 else 0.0) * means
    chosen = (shrunk + luck).argmax(axis=1)  # a common mean would choose the same
    return luck[np.arange(len(luck)), chosen]
