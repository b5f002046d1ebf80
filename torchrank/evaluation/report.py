"""The report of an evaluation: one HTML file, which needs no network, no other file and no script to be read.

Its charts are inline SVG, which the template writes. Colours are variables of the page. Dashes and the forms of markers
tell lines apart without colours. So a report needs no matplotlib, and a chart says the number of each query.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from torchrank.display import Score, Table, cell, printable, shortened
from torchrank.evaluation.plots import Curve, differences, label_over_k, outcome, queries_of, worst_first
from torchrank.names.arguments import imported
from torchrank.statistics.comparison import Comparison, Effect
from torchrank.statistics.paired import FAMILY_TESTS
from torchrank.version import __version__
from torchrank.wrappers.per_query import QueryTable


def first_table(evaluation: Any) -> QueryTable:
    """The values of the first run of an evaluation, which has the measures of all runs."""
    return next(iter(evaluation.tables.values()))


def interval(low: float, high: float, spec: str = ".4f") -> str:
    """An interval as text; "-" if there is none.

    Example:
        >>> interval(0.1, 0.25, "+.2f")
        '[+0.10, +0.25]'
    """
    return "-" if math.isnan(low) or math.isnan(high) else f"[{cell(low, spec)}, {cell(high, spec)}]"


#: size of a chart, and its margins, in units of the drawing
WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 10, 42
#: the largest number of bars, each with a text; and of steps in their place
MOST_BARS, MOST_STEPS = 300, 800
#: most characters of the name of a row, the width of one, and the height of a row
LONGEST, CHARACTER, ROW = 24, 6.3, 26
#: most pairs of runs with a chart of their own, for each measure
MOST_PAIRS = 12


@dataclass(frozen=True)
class Axis:
    """An axis: from numbers to places of the drawing.

    Attributes:
        low: the number at the beginning.
        high: the number at the end, above ``low``.
        start: the place of the beginning.
        end: the place of the end.
        log: whether places are those of logarithms.
        whole: whether numbers are integers.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    whole: bool = False

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float, zero: bool = False, log: bool = False) -> Axis:
        """An axis that holds some numbers, with some room; ``zero`` includes 0. Missing numbers are left out."""
        shown = [0.0] * zero + [value for value in values if math.isfinite(value)]
        low, high = min(shown), max(shown)
        if log:
            return cls(low, high if high > low else 10 * low, start, end, log)
        room = 0.04 * (high - low) or 0.54 * (abs(low) if abs(low) > 1e-300 else 1.0)
        return cls(low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        """The place of a number."""
        low, high, value = (math.log(number) if self.log else number for number in (self.low, self.high, value))
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[float]:
        """Round numbers from ``low`` to ``high``, about six.

        Example:
            >>> Axis(0, 10, 0, 100).ticks, Axis(1, 100, 0, 100, log=True).ticks
            ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0])
        """
        if self.log:
            powers = 10.0 ** np.arange(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            places = np.outer(powers, (1, 2, 5)).ravel()
            places = places[(self.low <= places) & (places <= self.high)]
            ticks = places if len(places) <= 10 else np.intersect1d(places, powers)
            return ticks.tolist() or [self.low, self.high]
        # the smallest of 1, 2 and 5 times a power of 10 with at most six steps
        least = (self.high - self.low) / 6 * (1 - 1e-9)
        power = 10.0 ** math.floor(math.log10(least))
        step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= least)
        step = max(step, 1.0) if self.whole else step
        return [step * n for n in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Chart:
    """The places and texts of a chart, whose elements are in the template.

    Attributes:
        title: what readers hear who do not see it.
        caption: its caption.
        more: a line below the caption.
        x: the horizontal axis.
        y: the vertical axis; the places of the top and bottom of rows without numbers.
        names: of the axes.
        lines: for each run the path of its line, and (x, y, text) of each point.
        bars: (kind, x, y, text) of each query with a difference.
        width: of the bars.
        steps: the path of a step curve in place of bars.
        mean: the mean, and its text.
        rows: for each difference its name, text, place, and those of its interval and value; None where there is none.
    """

    title: str
    caption: str
    more: str
    x: Axis
    y: Axis
    names: tuple[str, str]
    lines: Sequence[tuple[str, list[tuple[float, float, str]]]] = ()
    bars: Sequence[tuple[str, float, float, str]] = ()
    width: float = 0.0
    steps: str = ""
    mean: tuple[float, str] | None = None
    rows: Sequence[Mapping[str, Any]] = ()


def line_chart(curves: Sequence[Curve], caption: str, x_name: str, y_name: str, title: str, log: bool = False) -> Chart:
    """A chart of lines, whose points show their numbers if the pointer rests on them; NaN interrupts a line."""
    x = Axis.around((place for curve in curves for place in curve.x), LEFT, WIDTH - RIGHT, log=log)
    values = [y for curve in curves for y in curve.y if math.isfinite(y)]
    zero = not values or min(values) < 0.4 * max(values)
    y, place, lines = Axis.around(values, HEIGHT - BOTTOM, TOP, zero), x_name.split(" ")[0], []
    for curve in curves:
        path, points = "", []
        for a, b, before in zip(curve.x, curve.y, (math.nan, *curve.y)):
            if math.isfinite(b):
                path += f"{'M' if math.isnan(before) else 'L'}{x(a)} {y(b)}"
                points.append((x(a), y(b), f"{curve.run}: {cell(b)} at {place} {a:g}"))
        lines.append((path, points))
    return Chart(title, caption, "", x, y, (x_name, y_name), lines=lines)


def bar_chart(
    table: Table, column: str, caption: str, title: str, more: str, mean: float, higher: bool = True, sign: str = ""
) -> Chart:
    """The values or differences of queries in a given order: bars, or a step curve if there are many.

    Args:
        table: the id of each query, in the order of the chart, and its value.
        column: the name of the column of values.
        caption: its caption.
        title: the name of the chart.
        more: a line below the caption.
        mean: the mean of the values, drawn as a line.
        higher: whether a positive difference is a gain.
        sign: "+" for differences, which are printed with their signs.
    """
    values, spec = table[column], f"{sign}.4f"
    x = Axis(0, len(values), LEFT, WIDTH - RIGHT, whole=True)
    y = Axis.around(values, HEIGHT - BOTTOM, TOP, zero=True)
    bars, steps = [], ""
    if len(values) > MOST_BARS:  # a step curve through some of the values, the first and the last among them
        positions = [round(n * (len(values) - 1) / (MOST_STEPS - 1)) for n in range(MOST_STEPS)]
        steps = f"M{LEFT} {y(values[0])}{''.join(f'H{x(i)}V{y(values[i])}' for i in positions)}H{WIDTH - RIGHT}"
    else:
        for at, (name, value) in enumerate(zip(table["id"], values)):
            if value:
                kind = "gain" if (value > 0) == higher else "loss"
                bars.append((kind, x(at + 0.5), y(value), f"{name}: {value:{spec}}"))
    return Chart(
        title, caption, more, x, y, ("queries, sorted", "difference" if sign else "value"), bars=bars, steps=steps,
        width=round(min(28.0, 0.8 * (WIDTH - LEFT - RIGHT) / len(values)), 1), mean=(y(mean), f"mean {mean:{spec}}"),
    )  # fmt: skip


def forest_chart(rows: Sequence[Effect]) -> Chart:
    """A row for each difference: a point, and a line over its interval."""
    start = 20 + CHARACTER * max(min(len(row.name), LONGEST) for row in rows)
    x = Axis.around((value for row in rows for value in row[3:6]), start, WIDTH - RIGHT, zero=True)
    measure, more = rows[0].measure, "" if rows[0].higher_is_better else "lower is better"
    placed = [
        {
            "name": shortened(row.name, LONGEST),
            "text": f"{row.name}: {cell(row.value, '+.4f')} {interval(row.low, row.high, '+.4f')}",
            "y": TOP + ROW * (n + 0.5),
            "ends": (x(row.low), x(row.high)) if math.isfinite(row.high) else None,
            "value": x(row.value) if math.isfinite(row.value) else None,
            "significant": row.significant,
        }
        for n, row in enumerate(rows)
    ]
    title, y = f"{measure}: differences of runs, with intervals", Axis(0, 1, TOP + ROW * len(rows), TOP)
    return Chart(title, measure, more, x, y, ("difference", ""), rows=placed)


def over_cutoffs(evaluation: Any) -> list[Chart]:
    """A chart for each measure that has a cutoff; cutoffs of one measure share their chart."""
    charts: dict[str, Chart] = {}
    for label in first_table(evaluation).labels:
        try:
            family = label_over_k(label)
            curves = () if family in charts else evaluation.over_cutoffs(label)
        except (TypeError, ValueError):  # a measure of the whole list, or one without a name of its own
            continue
        if curves and len(curves[0].x) > 1 and any(math.isfinite(y) for curve in curves for y in curve.y):
            names = "k (logarithmic)", family.removesuffix("@k")
            charts[family] = line_chart(curves, family, *names, f"{family} over the cutoff k", log=True)
    return list(charts.values())


def sorted_differences(evaluation: Any, comparison: Comparison) -> dict[str, list[Chart]]:
    """For each measure, by its name in the report, a chart of the differences of all queries for each pair of runs."""
    sections = {}
    for measure in (label for label in comparison.measures if label in first_table(evaluation).labels):
        pairs, charts = [row.pair for row in comparison.rows if row.pair.measure == measure], []
        for pair in (pair for pair in pairs[:MOST_PAIRS] if pair.n):
            table, same = differences(evaluation[pair.a], evaluation[pair.b], measure)
            name, mean = f"{pair.b} - {pair.a}", same.difference
            title, more = f"{measure}: {name}, by query", f"{outcome(same)}; mean {mean:+.4f}"
            charts.append(bar_chart(table, "delta", name, title, more, mean, pair.higher_is_better, "+"))
        if charts:
            left = f", the first {MOST_PAIRS} of {len(pairs)} pairs" if len(pairs) > MOST_PAIRS else ""
            sections[measure + left] = charts
    return sections


def sorted_values(table: QueryTable) -> list[Chart]:
    """For each measure a chart of the values of all queries."""
    charts = []
    for label in table.labels:
        if len(values := worst_first(table, label)):
            mean, title = math.fsum(values["value"]) / len(values), f"{label} of queries, sorted"
            charts.append(bar_chart(values, "value", label, title, f"mean of values {mean:.4f}", mean))
    return charts


def verdict(evaluation: Any, comparison: Comparison | None, level: float = 0.95) -> str:
    """The best run in the first measure, and the runs than which it is significantly better."""
    label = first_table(evaluation).labels[0]
    values = {run: means[label] for run, means in evaluation.means.items() if math.isfinite(means[label])}
    if not values:
        return f"No run has a value of {label}."
    higher = first_table(evaluation).higher_results_are_better[label]
    best = (max if higher else min)(values.values())
    leaders = [run for run, value in values.items() if value == best]
    if comparison is None:
        run = evaluation.runs[0]
        low_high = interval(*evaluation.intervals(level)[run][label])
        return (
            f"{run}: {label} {cell(best)}, {100 * level:g} % interval {low_high}, {queries_of([len(evaluation[run])])}."
        )
    if all(row.pair.identical for row in comparison.rows if row.pair.measure == label):
        return f"The runs are equal in {label} ({cell(best)}): no query differs."
    if len(leaders) > 1:
        return f"{listed(leaders)} share the best mean in {label}, {cell(best)}."
    leader = leaders[0]
    rows = [row for row in comparison.rows if row.pair.measure == label and leader in (row.pair.a, row.pair.b)]
    tested = {row.pair.a if row.pair.b == leader else row.pair.b: not math.isnan(row.p_corrected) for row in rows}
    beaten = comparison.beaten(leader, label)
    others = [run for run in comparison.systems if run not in (leader, *beaten)]
    parts = {
        "significantly better than": beaten,
        "not significantly better than": [run for run in others if tested.get(run)],
        "no test was possible against": [run for run in others if tested.get(run) is False],
        "not compared with": [run for run in others if run not in tested],
    }
    said = "; ".join(f"{what} {listed(runs)}" for what, runs in parts.items() if runs)
    correction = "" if len(comparison.systems) < 3 or comparison.correction == "none" else f", {comparison.correction}"
    test = f"({comparison.test} test{correction}, alpha {comparison.alpha:g})"
    return f"{leader} is best in {label}, {cell(best)}: {said} {test}."


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d", "e", "f"])
        ('a, b and c', 'a, b, c, d and 2 more')
    """
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


#: rows of a page of the table of queries, and the largest number of rows without the script
PAGE, MOST_ROWS = 25, 500


def report(
    evaluation: Any, comparison: Comparison | None, slices: Table | None, worst: int, level: float, **given: Any
) -> str:
    """The text of the report: arguments and errors of :meth:`torchrank.Evaluation.to_html`."""
    labels, way_out = first_table(evaluation).labels, "pass the result of compare() of this evaluation"
    if comparison:
        if unknown := [run for run in comparison.systems if run not in evaluation.runs]:
            wanted = f"Expected a comparison of {', '.join(evaluation.runs)}"
            raise ValueError(f"{wanted}, got one with {unknown[0]!r}; {way_out}")
        slices_of = tuple(f"{label}/" for label in labels)
        if unknown := [x for x in comparison.measures if x not in labels and not x.startswith(slices_of)]:
            raise ValueError(f"Expected a comparison in {', '.join(labels)}, got one in {unknown[0]!r}; {way_out}")
    script, queries = _file("page.js"), sorted({len(table) for table in evaluation.tables.values()})
    page = _template().render(
        **given, version=__version__, style=_file("page.css").rstrip(),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        verdict=verdict(evaluation, comparison, level), runs=evaluation.runs, labels=labels,
        means_over=evaluation.queries, queries=" to ".join(map(str, sorted({queries[0], queries[-1]}))),
        paper=comparison and evaluation.table(comparison), comparison=comparison, tukey=FAMILY_TESTS, level=100 * level,
        summary=_summary(evaluation, evaluation.summary(level), level), coverage=evaluation.coverage,
        slices=slices and _summary(evaluation, slices, level), compared=comparison and _columns(comparison),
        columns=_explained(comparison) if comparison else {},
        forests=[forest_chart(comparison.effects(measure)) for measure in comparison.measures] if comparison else [],
        curves=over_cutoffs(evaluation) if evaluation.rankings else [],
        recall=evaluation.rankings and line_chart(
            evaluation.precision_recall(), "Precision over recall", "recall", "interpolated precision",
            "Precision over recall",
        ),
        differences=sorted_differences(evaluation, comparison) if comparison else {},
        values=[] if comparison else sorted_values(first_table(evaluation)),
        all_queries=_queries(evaluation, comparison, MOST_ROWS, [0])[0],
        worst=_queries(evaluation, comparison, worst), data=_data(evaluation, comparison), script=script,
    )  # fmt: skip
    return f"{page}\n"


@functools.cache
def _template() -> Any:
    """The page. Every value in it is cleaned of characters that command a browser, and escaped."""
    jinja2, markup = imported("jinja2", "report"), imported("markupsafe", "report").Markup  # late: it takes a while
    page = jinja2.Environment(
        autoescape=True, finalize=lambda value: value if isinstance(value, markup) else printable(str(value)),
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    page.filters["html"] = lambda table, *arguments: markup(table.with_notes().to_html(*arguments))
    return page.from_string(_file("page.html.j2"))


# ---- sections --------------------------------------------------------------------------------------------------------


def _summary(evaluation: Any, table: Table, level: float) -> Table:
    """The rows of each measure, or of its slices, with the best value in bold."""
    measures = [*dict.fromkeys(table["measure"])]
    rows = sorted(table.rows, key=lambda row: measures.index(row["measure"]))
    better = first_table(evaluation).higher_results_are_better
    higher = {name: next(up for label, up in better.items() if f"{name}/".startswith(f"{label}/")) for name in measures}
    values = {label: [row["value"] for row in rows if row["measure"] == label] for label in higher}
    known = {label: {value for value in values[label] if not math.isnan(value)} for label in higher}
    best = {label: (max if higher[label] else min)(known[label]) for label in higher if len(known[label]) > 1}
    return Table.of_rows([
        {
            "Measure": f"{row['measure']}{'' if higher[row['measure']] else ' (lower is better)'}",
            "Run": row["run"],
            "Value": Score(row["value"], best=row["value"] == best.get(row["measure"])),
            f"{100 * level:g} % interval": interval(row["low"], row["high"]),
            "Standard error": row["standard error"],
            "Queries": row["queries"],
            "Empty": row["empty"],
        }
        for row in rows
    ])  # fmt: skip


def _columns(comparison: Comparison) -> Table:
    """The columns of the report, of which some have several of the comparison in a cell."""
    table, columns, formats = comparison.table, {}, {}
    for column in (column for column in comparison.columns if column.head):
        title = column.head.format(level=100 * comparison.level)
        columns[title] = table[column.name]
        if column.cells:
            parts = [[cell(value, table.formats.get(name, "")) for value in table[name]] for name in column.cells]
            columns[title] = ["-" if "-" in texts else column.form.format(*texts) for texts in zip(*parts)]
        elif column.format:
            formats[title] = column.format
    return Table(columns, formats)


def _explained(comparison: Comparison) -> dict[str, str]:
    """The explanation of each column of the report that has one."""
    corrected = "p" if comparison.correction == "none" else "the corrected p"
    facts = {"test": comparison.test, "corrected": corrected, "alpha": comparison.alpha}
    return {column.head.lower(): column.legend.format(**facts) for column in comparison.columns if column.legend}


def _queries(
    evaluation: Any, comparison: Comparison | None, most: int, pairs: Sequence[int] | None = None
) -> list[tuple[str, Table]]:
    """The worst queries in the first measure: for each pair of runs the largest losses, or the lowest values of a run.

    Args:
        evaluation: the evaluation.
        comparison: its comparison; None for the only run.
        most: number of queries.
        pairs: the numbers of the pairs whose gains are listed, too; None = all pairs, without gains.
    """
    label = first_table(evaluation).labels[0]
    if comparison is None:
        run = evaluation.runs[0]
        return [(f"{run}, {label}", _renamed(worst_first(evaluation[run], label, most), ["Query", label]))]
    lists = []
    for a, b in _pairs(comparison) if pairs is None else [_pairs(comparison)[number] for number in pairs]:
        table = evaluation[a].deltas(evaluation[b], label, most) if pairs else evaluation.losses(a, b, label, most)
        lists.append((f"{b} - {a}, {label}", _renamed(table, ["Query", a, b, "b - a"])))
    return lists


def _renamed(table: Table, names: Sequence[str]) -> Table:
    """A table of queries with other names of its columns, of which two may be equal."""
    unique = [f"{name}{' ' * names[:n].count(name)}" for n, name in enumerate(names)]
    columns = {name: table[column] for name, column in zip(unique, table.columns)}
    columns[unique[0]] = [str(query) for query in columns[unique[0]]]
    return Table(columns, {unique[3]: "+.4f"} if len(names) > 3 else {})


# ---- rows of queries -------------------------------------------------------------------------------------------------


def _pairs(comparison: Comparison | None) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.pair.a, row.pair.b) for row in comparison.rows)) if comparison else []


def _data(evaluation: Any, comparison: Comparison | None) -> str:
    """The values of all queries, in 7 digits, in the order of ids: JSON for an element ``script``."""
    runs, first, measures = evaluation.runs, first_table(evaluation), []
    ids = np.unique(np.concatenate([table.ids for table in evaluation.tables.values()])).tolist()
    for label in first.labels:
        tables = [dict(zip(table.ids.tolist(), table.columns[label].tolist())) for table in evaluation.tables.values()]
        rows = [[table.get(query, math.nan) for query in ids] for table in tables]
        values = [[float(f"{x:.7g}") if math.isfinite(x) else None for x in row] for row in rows]
        measures.append({"label": printable(label), "higher": first.higher_is_better[label], "values": values})
    pairs = [[runs.index(a), runs.index(b)] for a, b in _pairs(comparison)]
    names = [printable(str(query)) for query in ids]
    data = {"page": PAGE, "runs": list(map(printable, runs)), "pairs": pairs, "ids": names, "measures": measures}
    # ASCII, and without "<", which could end the element
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _file(name: str) -> str:
    return files("torchrank.evaluation").joinpath("page", name).read_text(encoding="utf-8")
