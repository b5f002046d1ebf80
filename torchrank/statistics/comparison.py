"""The result of a comparison of systems: a row for each measure and pair, with verdicts, gates, notes and warnings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from torchrank.display import SUPERSCRIPTS, Score, Table, axes_of, describe, draw_intervals, finite, shortened
from torchrank.names.arguments import one_of, with_texts
from torchrank.names.parse import Named, parse_all
from torchrank.statistics.intervals import check_share, detectable, queries_needed
from torchrank.statistics.paired import FAMILY_TESTS, OTHER_NULLS, AnytimeStatistics, PairStatistics, correct

_CONDITION = re.compile(r"\s*(\S.*?)\s*([<>])\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


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
            # A collapse to 0 on all queries has no spread, but must not pass.
            p = pair.p_above(beyond) if spread else pair.p_constant if beyond > 0 else 1.0
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

    @property
    def title(self) -> str:
        """The measure and its direction."""
        return f"{self.measure}{'' if self.higher_is_better else ' (lower is better)'}"


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
class Head:
    """A column of the report: its title, and its explanation."""

    title: str
    legend: str = ""
    #: the columns of the comparison in one cell, and the form of the cell; () = the column itself
    columns: tuple[str, ...] = ()
    form: str = ""


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
    #: the column of the report; None = the report has it at the left, in another column or not at all
    head: Head | None = None

    def of(self, comparison: Comparison, row: Row) -> Any:
        """The value in a row of a comparison."""
        return self.value(comparison, row) if self.value else getattr(row.pair, self.name)


def _verdict(comparison: Comparison, p: float) -> bool | None:
    return None if math.isnan(p) else p <= comparison.alpha


#: all columns of a comparison, in their order
COLUMNS = (
    Column("measure", "label of the measure", head=Head("Measure")),
    Column("a", "name of the first system, the baseline if there is one", head=Head("a")),
    Column("b", "name of the second system", head=Head("b")),
    Column("mean_a", "mean of a on the queries that both have scored", head=Head("Mean of a")),
    Column("mean_b", "mean of b on these queries", head=Head("Mean of b")),
    Column("difference", "mean_b - mean_a", "+.4f", head=Head("b - a", "the mean of b minus the mean of a; its interval"
           " is not corrected for several pairs")),
    Column("low", "lower end of the interval of the difference", "+.4f", lambda c, row: row.pair.interval(c.level)[0],
           head=Head("{level:g} % interval", columns=("low", "high"), form="[{}, {}]")),
    Column("high", "upper end of this interval", "+.4f", lambda c, row: row.pair.interval(c.level)[1]),
    Column("relative", "difference as a share of mean_a", "+.2%", printed=False),
    Column("relative_low", "lower end of the interval of this share", "+.2%",
           lambda c, row: row.pair.relative_interval(c.level)[0], False),
    Column("relative_high", "upper end of this interval", "+.2%", lambda c, row: row.pair.relative_interval(c.level)[1],
           False),
    Column("p", "p-value of the test", ".2g", lambda c, row: row.p, head=Head("p", "probability of a difference at"
           " least as large if the runs were equally good; {test} test")),
    Column("p_corrected", "p-value over the family of tests", ".2g", lambda c, row: row.p_corrected,
           head=Head("p corrected")),
    Column("winner", "the better system, if one is shown", "", lambda c, row: c.winner(row), head=Head("Winner",
           "the better run, if {corrected} is at most {alpha:g}; else no difference is shown")),
    Column("better", "posterior probability that b is better, under a flat prior", ".3f", printed=False),
    Column("effect", "difference in standard deviations of the differences", "+.3f", head=Head("Effect",
           "difference in standard deviations of the differences, with Hedges' correction")),
    Column("sd", "standard deviation of the differences", printed=False),
    Column("wins", "queries in which b is better", head=Head("Better, equal, worse",
           "numbers of queries on which b is better than a, equal to it, and worse", ("wins", "ties", "losses"),
           "{}, {}, {}")),
    Column("ties", "queries in which both are equal"),
    Column("losses", "queries in which b is worse"),
    Column("detectable", "smallest true difference that these queries show with the given power", "",
           lambda c, row: row.pair.detectable(c.power, c.alpha), False),
    Column("n", "queries that both have scored", head=Head("n", "number of compared queries; one that a run lacks"
           " counts 0, if means are over judged queries")),
    Column("unpaired", "queries that only one has scored", "d"),
    Column("p_equivalent", "corrected p-value of equivalence", ".2g", lambda c, row: row.p_equivalent, False, True),
    Column("equivalent", "whether the difference is shown to be below the margin", "",
           lambda c, row: _verdict(c, row.p_equivalent), margin=True, head=Head("Equivalent")),
    Column("p_not_worse", "corrected p-value of non-inferiority", ".2g", lambda c, row: row.p_not_worse, False, True),
    Column("not_worse", "whether b is shown to lose less than the margin", "",
           lambda c, row: _verdict(c, row.p_not_worse), margin=True, head=Head("Not worse")),
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
        >>> from torchrank.statistics.compare import compare
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
            >>> from torchrank.statistics.compare import compare
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
            >>> from torchrank.statistics.compare import compare
            >>> table = compare({"a": [0.2, 0.5, 0.3, 0.4], "b": [0.4, 0.7, 0.4, 0.6]}).detectable(power=0.9)
            >>> round(table["detectable"][0], 4)
            0.1205
        """
        differences = [detectable(row.pair.standard_error, row.pair.df, power, alpha) for row in self.rows]
        note = f"found with probability {power:g} by a t test at {alpha:g}"
        return self._of_pairs({"n": [row.pair.n for row in self.rows], "detectable": differences}, note)

    def queries_needed(self, delta: float, power: float = 0.8, alpha: float = 0.05) -> Table:
        """Number of queries with which a t test of each pair finds a true difference of ``delta``, without correction.

        None for pairs without a spread, and for several runs, whose test counts runs and not queries.

        Example:
            >>> from torchrank.statistics.compare import compare
            >>> compare({"a": [0.2, 0.5, 0.3, 0.4], "b": [0.4, 0.7, 0.4, 0.6]}).queries_needed(0.01)["queries"]
            [199]
        """
        # the standard error allows for clusters, the standard deviation does not; several runs have none
        spreads = [r.pair.standard_error * math.sqrt(r.pair.n) if r.pair.sd > 0 else math.nan for r in self.rows]
        needed = [queries_needed(delta, sd, power, alpha) if sd > 0 else None for sd in spreads]
        note = f"for a difference of {delta:g}, found with probability {power:g} by a t test at {alpha:g}"
        return self._of_pairs({"sd": spreads, "queries": needed}, note)

    def _of_pairs(self, columns: dict[str, list[Any]], note: str) -> Table:
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
        rows = self.effects(measure)
        titles = list(dict.fromkeys(row.title for row in rows))
        single = len(titles) == 1
        names = [row.name if single else f"{row.measure}: {row.name}{row.title[len(row.measure) :]}" for row in rows]
        # room for the names and, below the axis, for the text
        axes = axes_of(ax, 4.4 + 0.085 * max(map(len, names), default=0), 1.4 + 0.3 * len(rows), managed=True)
        axes.axvline(0, color="0.5", linewidth=1)
        width = self.margin.get(rows[0].measure) if isinstance(self.margin, Mapping) and single else self.margin
        if isinstance(width, int | float):
            axes.axvspan(-width, width, color="0.9", zorder=0)
        value, low, high = ([getattr(row, column) for row in rows] for column in ("value", "low", "high"))
        draw_intervals(axes, names, value, low, high, [row.significant for row in rows])
        describe(axes, titles[0] if single else "", about, "")
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
    margin, family, correction = made.margin, made.family, made.correction
    check_settings({pair.measure for pair in pairs}, made.alpha, level, made.power, margin)
    made = replace(made, level=1 - made.alpha if level is None else level)
    p_values = [pair.p for pair in pairs] if p_values is None else list(p_values)
    raised = {"p_corrected": p_values}
    if margin is not None:
        widths = [margin.get(x.measure, math.nan) if isinstance(margin, Mapping) else margin for x in pairs]
        for name in ("p_equivalent", "p_not_worse"):
            raised[name] = [getattr(pair, name)(width) for pair, width in zip(pairs, widths)]
    groups: dict[str, list[int]] = {}  # the rows that are corrected together
    for i, pair in enumerate(pairs):
        groups.setdefault(pair.measure if family == "measure" else "", []).append(i)
    numbers = [{"p": p} for p in p_values]
    for name, values in raised.items():
        for group in groups.values():
            for i, p in zip(group, correct([values[i] for i in group], correction)):
                numbers[i][name] = p
    rows = tuple(Row(pair, **given) for pair, given in zip(pairs, numbers))
    notes, warnings = (*notes_on(pairs, p_values, made), *notes), (*warnings_on(pairs, made.test), *warnings)
    return replace(made, rows=rows, notes=notes, warnings=warnings)


def check_settings(
    measures: Iterable[str], alpha: float, level: float | None, power: float, margin: float | Mapping[str, float] | None
) -> None:
    """Raise ValueError for a share that is not between 0 and 1, or a margin not above 0 or of another measure."""
    for name, share in (("alpha", alpha), ("level", 1 - alpha if level is None else level), ("power", power)):
        check_share(name, share)
    for label in margin if isinstance(margin, Mapping) else ():
        one_of("each label of margin", label, measures)
    for width in margin.values() if isinstance(margin, Mapping) else [margin]:
        if width is not None and not 0 < width < math.inf:
            raise ValueError(f"Expected margin to be positive, got {width}; give the largest that does not matter")


def _read(kind: Any, row: Mapping[str, Any], *skipped: str) -> dict[str, Any]:
    return {f.name: math.nan if row[f.name] is None else row[f.name] for f in fields(kind) if f.name not in skipped}
