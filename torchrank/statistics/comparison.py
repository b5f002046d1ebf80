"""The result of a comparison of systems: a row for each measure and pair, with verdicts, notes and warnings."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from torchrank.names.arguments import one_of
from torchrank.names.docstrings import with_texts
from torchrank.statistics.corrections import correct
from torchrank.statistics.forest import Effect, draw_forest
from torchrank.statistics.gates import Gate, Verdicts
from torchrank.statistics.mean_intervals import check_share
from torchrank.statistics.pair_statistics import AnytimeStatistics, PairStatistics
from torchrank.statistics.paired_tests import OTHER_NULLS
from torchrank.statistics.power import detectable, queries_needed
from torchrank.statistics.reading import notes_on, warnings_on
from torchrank.statistics.table import SUPERSCRIPTS, Score, Table, finite

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
        rows = [
            {name: finite(value) for name, value in {**described, **asdict(row.pair), **_p_values(row)}.items()}
            for described, row in zip(self.table, self.rows)
        ]
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
            raise ValueError(
                f"Expected an entry {error} of a comparison, got none; pass the result of to_dict()"
            ) from None
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
        marks = dict(zip(self.systems, _marks(len(self.systems))))
        columns: dict[str, list[Any]] = {"": list(map(_lowered, marks.values())), "system": list(self.systems)}
        for measure in self.measures:
            rows = [row for row in self.rows if row.pair.measure == measure]
            means = {system: _mean(system, rows) for system in self.systems}
            known = [mean for mean in means.values() if not math.isnan(mean)]
            best = (max if rows[0].pair.higher_is_better else min)(known, default=math.nan)
            beaten = {system: {*self.beaten(system, measure)} for system in self.systems}
            join = (" " * (len(marks) > 25)).join
            columns[measure] = [
                Score(mean, join(mark for other, mark in marks.items() if other in beaten[system]), mean == best)
                for system, mean in means.items()
            ]
        note = f"A letter behind a mean: significantly better than the system of the letter ({self.alpha:g})."
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
        rows = [row for row in self.rows if measure in (None, row.pair.measure)]
        return [
            Effect(
                row.pair.measure, row.pair.a, row.pair.b, row.pair.difference, *row.pair.interval(self.level),
                self.winner(row) is not None, row.pair.higher_is_better,
            )
            for row in rows
        ]  # fmt: skip

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
        return draw_forest(self.effects(measure), about, self.margin, ax)


def comparison_of(
    pairs: Sequence[PairStatistics],
    p_values: Sequence[float] | None = None,
    *,
    test: str = "t",
    correction: str = "holm",
    family: str = "measure",
    alpha: float = 0.05,
    level: float | None = None,
    power: float = 0.8,
    margin: float | Mapping[str, float] | None = None,
    baseline: str | None = None,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Comparison:
    """The comparison of pairs whose statistics are known.

    Args:
        pairs: statistics of each measure and pair.
        p_values: p-values of another test than t, one for each pair.
        test: name of the test, for the report.
        correction: ``"holm"``, ``"bh"`` or ``"none"``.
        family: ``"measure"`` corrects over the pairs of each measure, ``"all"`` over all tests.
        alpha: error rate.
        level: level of the intervals; 1 - alpha if None.
        power: power of the smallest detectable difference.
        margin: difference that does not matter, of all measures or of each by its label; adds tests of equivalence
            and non-inferiority.
        baseline: name of the system with which all others are compared.
        notes: further lines that explain the numbers.
        warnings: further lines on numbers that should not be trusted.

    Example:
        >>> pair = PairStatistics("ndcg@10", "a", "b", 400, 0.40, 0.42, standard_error=0.01, df=399, sd=0.2, wins=9)
        >>> comparison_of([pair]).table.rows[0]["p"] == pair.p
        True
    """
    check_settings({pair.measure for pair in pairs}, alpha, level, power, margin)
    level = 1 - alpha if level is None else level
    p_values = [pair.p for pair in pairs] if p_values is None else list(p_values)
    groups = _groups(pairs, family)
    raised = {"p": p_values, "p_corrected": _corrected(p_values, groups, correction)}
    if margin is not None:
        for name in ("p_equivalent", "p_not_worse"):
            raised[name] = _corrected(
                [getattr(pair, name)(_margin(margin, pair.measure)) for pair in pairs], groups, correction
            )
    rows = [Row(pair, **{name: values[i] for name, values in raised.items()}) for i, pair in enumerate(pairs)]
    about = notes_on(pairs, p_values, test, correction, family, level, margin)
    return Comparison(
        tuple(rows), test, correction, family, alpha, level, power, margin, baseline,
        (*about, *notes), (*warnings_on(pairs, test), *warnings),
    )  # fmt: skip


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


def _groups(pairs: Sequence[PairStatistics], family: str) -> list[list[int]]:
    """The indexes of the rows that are corrected together."""
    groups: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        groups.setdefault(pair.measure if family == "measure" else "", []).append(i)
    return list(groups.values())


def _corrected(p_values: Sequence[float], groups: Sequence[Sequence[int]], correction: str) -> list[float]:
    corrected = [math.nan] * len(p_values)
    for group in groups:
        for i, p in zip(group, correct([p_values[i] for i in group], correction)):
            corrected[i] = p
    return corrected


def _margin(margin: float | Mapping[str, float], measure: str) -> float:
    return margin.get(measure, math.nan) if isinstance(margin, Mapping) else margin


def _mean(system: str, rows: Sequence[Row]) -> float:
    pairs = [row.pair for row in rows if system in (row.pair.a, row.pair.b)]
    largest = max(pairs, key=lambda pair: pair.n)
    return largest.mean_a if largest.a == system else largest.mean_b


def _marks(count: int) -> list[str]:
    marks = list(SUPERSCRIPTS)  # 25 letters, then the digits
    if count <= 25:
        return marks
    return ["".join(marks[25 + int(digit)] for digit in str(number)) for number in range(1, count + 1)]


def _lowered(mark: str) -> str:
    return "".join(SUPERSCRIPTS[character] for character in mark)


def _p_values(row: Row) -> dict[str, float]:
    return {f.name: getattr(row, f.name) for f in fields(row) if f.name != "pair"}


def _read(kind: Any, row: Mapping[str, Any], *skipped: str) -> dict[str, Any]:
    return {f.name: math.nan if row[f.name] is None else row[f.name] for f in fields(kind) if f.name not in skipped}
