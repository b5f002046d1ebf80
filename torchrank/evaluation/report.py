"""The report of an evaluation: one HTML file, which needs no network, no other file and no script to be read.

Its charts are inline SVG. Colours are variables of the page. Dashes and the forms of markers tell lines apart without
colours.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from torchrank.display import Score, Table, cell, printable, shortened
from torchrank.evaluation.plots import Curve, differences, label_over_k, outcome, queries_of, worst_first
from torchrank.names.arguments import imported
from torchrank.statistics.comparison import Comparison, Effect
from torchrank.statistics.paired import FAMILY_TESTS, PairStatistics
from torchrank.version import __version__
from torchrank.wrappers.query_table import QueryTable


def first_table(evaluation: Any) -> QueryTable:
    """The values of the first run of an evaluation, which has the measures of all runs."""
    return next(iter(evaluation.tables.values()))


def escaped(text: object) -> str:
    """A text as content, or as the value of an attribute.

    Example:
        >>> escaped('<b title="x">')
        '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(printable(str(text)))


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element. Its content is markup, its attributes are texts; None leaves an attribute out.

    Example:
        >>> tag("th", escaped("a & b"), scope="col", class_="n", id=None)
        '<th scope="col" class="n">a &amp; b</th>'
    """
    given = [(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None]
    return f"<{name}{''.join(f' {key}={chr(34)}{escaped(value)}{chr(34)}' for key, value in given)}>{content}</{name}>"


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
#: the largest number of bars that have a text of their own, and of bars; and of steps in their place
MOST_TEXTS, MOST_BARS, MOST_STEPS = 300, 2000, 800
#: number of different styles of lines
STYLES = 8
#: most characters of a label, and the width of one
LONGEST, _CHARACTER = 24, 6.3


@dataclass(frozen=True)
class Scale:
    """An axis: from numbers to places of the drawing.

    Attributes:
        low: the number at the beginning.
        high: the number at the end, above ``low``.
        start: the place of the beginning.
        end: the place of the end.
        log: whether places are those of logarithms.
        integers: whether numbers are integers.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    integers: bool = False

    def __call__(self, value: float) -> str:
        """The place of a number."""
        low, high, value = (math.log(number) if self.log else number for number in (self.low, self.high, value))
        return _short(self.start + (value - low) / (high - low) * (self.end - self.start))

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers from ``low`` to ``high``, at most about ``most``.

        Example:
            >>> Scale(0, 10, 0, 100).ticks(), Scale(1, 100, 0, 100, log=True).ticks()
            ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [1, 2, 5, 10, 20, 50, 100])
        """
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for digits in ((1, 2, 5), (1,)):
                places = [digit * 10**power for power in powers for digit in digits]
                ticks = [place for place in places if self.low <= place <= self.high]
                if len(ticks) <= most + 4:
                    break
            return ticks or [self.low, self.high]
        # the smallest of 1, 2, 2.5 and 5 times a power of 10 with at most so many steps
        least = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(least))
        step = next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= least * (1 - 1e-9))
        step = math.ceil(step) if self.integers else step
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * n for n in range(first, last + 1)]


def scale_of(values: Iterable[float], start: float, end: float, *, log: bool = False, zero: bool = False) -> Scale:
    """An axis that holds some numbers, with some room; ``zero`` includes 0. Missing numbers are left out."""
    shown = (0.0 if abs(value) <= 1e-300 else value for value in values)  # no tick is between smaller numbers
    finite = [0.0] * zero + [value for value in shown if math.isfinite(value)]
    low, high = min(finite), max(finite)
    if log:
        return Scale(low, high if high > low else low * 10, start, end, True)
    room = 0.04 * (high - low) or 0.54 * (abs(low) or 1.0)
    return Scale(low - room, high + room, start, end)


def line_chart(curves: Sequence[Curve], title: str, x_label: str, y_label: str, *, log: bool = False) -> str:
    """A chart of lines, whose points show their numbers if the pointer rests on them; NaN interrupts a line."""
    x = scale_of((place for curve in curves for place in curve.x), LEFT, WIDTH - RIGHT, log=log)
    values = [y for curve in curves for y in curve.y if math.isfinite(y)]
    zero = not values or min(values) < 0.4 * max(values)
    y = scale_of(values, HEIGHT - BOTTOM, TOP, zero=zero)
    inner, place = _axes(x, y, x_label, y_label), x_label.split(" ")[0]
    for n, curve in enumerate(curves):
        path = marks = ""
        for a, b, before in zip(curve.x, curve.y, (math.nan, *curve.y)):
            if math.isfinite(b):
                path += f"{'M' if math.isnan(before) else 'L'}{x(a)} {y(b)}"
                text = _title(f"{curve.run}: {cell(b)} at {place} {a:g}")
                marks += tag("path", text, d=_marker(n % STYLES, float(x(a)), float(y(b))))
        drawn = tag("path", d=path, class_="line") + tag("g", marks, class_="marks")
        inner += tag("g", drawn, class_=f"s{n % STYLES}")
    return _chart(title, inner)


def _marker(style: int, x: float, y: float, r: float = 3.2) -> str:
    """The outline of a marker: a circle, square, triangle, diamond, or one of these upside down."""
    if style % 4 == 0:
        return f"M{_short(x - r)} {_short(y)}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0z"
    corners = (
        ((-r, -r), (r, -r), (r, r), (-r, r)),
        ((-r, r), (0, -1.2 * r), (r, r)),
        ((0, -1.4 * r), (1.4 * r, 0), (0, 1.4 * r), (-1.4 * r, 0)),
    )[style % 4 - 1]
    sign = 1 if style < 4 else -1
    return "M" + "L".join(f"{_short(x + a)} {_short(y + sign * b)}" for a, b in corners) + "z"


def line_key(style: int) -> str:
    """The sample of a line for a legend."""
    style %= STYLES
    inner = tag("path", d="M1 7H31", class_="line") + tag("g", tag("path", d=_marker(style, 16, 7)), class_="marks")
    return tag("svg", tag("g", inner, class_=f"s{style}"), viewBox="0 0 32 14", class_="key", aria_hidden="true")


def bar_chart(
    values: Sequence[float],
    names: Sequence[object],
    title: str,
    higher: bool = True,
    mean: float = math.nan,
    signed: bool = True,
) -> str:
    """The differences of queries in a given order: bars, or a step curve if there are many.

    Args:
        values: the difference of each query, in the order of the chart.
        names: the text of each query.
        title: the name of the chart.
        higher: whether a positive difference is a gain.
        mean: the mean of the differences, drawn as a line.
        signed: whether these are differences, printed with their signs; otherwise they are values.
    """
    spec, y_label = ("+.4f", "difference") if signed else (".4f", "value")
    x = Scale(0, len(values), LEFT, WIDTH - RIGHT, integers=True)
    y = scale_of(values, HEIGHT - BOTTOM, TOP, zero=True)
    texts = [f"{name}: {value:{spec}}" for name, value in zip(names, values)]
    if len(values) > MOST_BARS:
        # a step curve through some of the values, the first and the last among them
        positions = [round(n * (len(values) - 1) / (MOST_STEPS - 1)) for n in range(MOST_STEPS)]
        path = f"M{LEFT} {y(values[0])}" + "".join(f"H{x(i)}V{y(values[i])}" for i in positions)
        inner = tag("path", d=f"{path}H{WIDTH - RIGHT}", class_="steps")
    else:
        step, few, inner = (WIDTH - LEFT - RIGHT) / len(values), len(values) <= MOST_TEXTS, ""
        for kind, sign in (("gain", 1 if higher else -1), ("loss", -1 if higher else 1)):
            drawn = {at: f"M{x(at + 0.5)} {y(0)}V{y(value)}" for at, value in enumerate(values) if sign * value > 0}
            bars = "".join(tag("path", _title(texts[at]), d=path) for at, path in drawn.items() if few)
            width = _short(min(28.0, max(0.4, 0.8 * step if few else step)))
            inner += tag("g", bars if few else tag("path", d="".join(drawn.values())), class_=kind, stroke_width=width)
    inner += tag("path", d=f"M{LEFT} {y(0)}H{WIDTH - RIGHT}", class_="zero")
    if math.isfinite(mean):
        inner += tag("path", _title(f"mean {mean:{spec}}"), d=f"M{LEFT} {y(mean)}H{WIDTH - RIGHT}", class_="mean")
    return _chart(title, _axes(x, y, "queries, sorted", y_label) + inner)


def forest_chart(rows: Sequence[Effect], title: str, x_label: str) -> str:
    """A row for each difference: a point, and a line over its interval."""
    step, top = 26, 8
    longest = max(min(len(row.name), LONGEST) for row in rows)
    left = 12 + _CHARACTER * longest
    bottom = top + step * len(rows)
    values = (value for row in rows for value in (row.value, row.low, row.high))
    x = scale_of(values, left + 8, WIDTH - RIGHT, zero=True)
    marks = _x_axis(x, bottom, top, x_label) + tag("path", d=f"M{x(0)} {top}V{bottom}", class_="zero")
    for position, row in enumerate(rows):
        y = top + step * (position + 0.5)
        text = _title(f"{row.name}: {cell(row.value, '+.4f')} {interval(row.low, row.high, '+.4f')}")
        name = escaped(shortened(row.name, LONGEST))
        drawn = tag("text", name + text, x=_short(left), y=_short(y), dy=4, text_anchor="end")
        if math.isfinite(row.high):
            drawn += tag("path", text, d=f"M{x(row.low)} {_short(y)}H{x(row.high)}", class_="range")
        if math.isfinite(row.value):
            form = "dot" if row.significant else "dot hollow"
            drawn += tag("path", text, d=_marker(0, float(x(row.value)), y, 4.5), class_=form)
        marks += tag("g", drawn)
    return _chart(title, marks, bottom + BOTTOM)


# ---- parts -----------------------------------------------------------------------------------------------------------


def _chart(title: str, inner: str, height: float = HEIGHT) -> str:
    return tag("svg", inner, viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=title)


def _title(text: str) -> str:
    return tag("title", escaped(text))


def _axes(x: Scale, y: Scale, x_label: str, y_label: str) -> str:
    left, bottom, digits = x.start, y.start, _digits(y.ticks())
    grid = "".join(f"M{_short(left)} {y(tick)}H{_short(x.end)}" for tick in y.ticks())
    texts = "".join(
        tag("text", digits(tick), x=_short(left), y=y(tick), dx=-7, dy=4, text_anchor="end") for tick in y.ticks()
    )
    middle = (y.start + y.end) / 2
    name = tag("text", escaped(y_label), transform=f"translate(13 {middle:g}) rotate(-90)", class_="name")
    return _x_axis(x, bottom, None, x_label) + tag("path", d=grid, class_="grid") + texts + name


def _x_axis(x: Scale, bottom: float, top: float | None, label: str) -> str:
    """Ticks and their texts; lines up to ``top`` if it is given."""
    ticks, length = x.ticks(), 4 if top is None else top - bottom
    kind = "axis" if top is None else "grid"
    digits = _digits(ticks)
    paths = tag("path", d="".join(f"M{x(tick)} {_short(bottom)}v{_short(length)}" for tick in ticks), class_=kind)
    base = tag("path", d=f"M{_short(x.start)} {_short(bottom)}H{_short(x.end)}", class_="axis")
    texts = "".join(tag("text", digits(tick), x=x(tick), y=_short(bottom), dy=17, class_="tick") for tick in ticks)
    name = tag("text", escaped(label), x=_short((x.start + x.end) / 2), y=_short(bottom), dy=37, class_="name")
    return paths + base + texts + name


def _digits(ticks: Sequence[float]) -> Callable[[float], str]:
    """The format of ticks: as many decimals as they need."""
    spread = max(map(abs, ticks))
    for decimals in range(7):
        if all(abs(round(tick, decimals) - tick) <= 1e-6 * spread for tick in ticks):
            return lambda value: f"{value:.{decimals}f}"
    return lambda value: f"{value:.2g}"


def _short(place: float) -> str:
    """A place with one decimal, without a needless one."""
    return f"{place:.1f}".removesuffix(".0")


#: most pairs of runs with a chart of their own, for each measure
MOST_PAIRS = 12


@dataclass(frozen=True)
class Figure:
    """A chart, as markup, with its caption, and a line below the caption."""

    caption: str
    chart: str
    more: str = ""


@dataclass(frozen=True)
class Part:
    """Charts under one heading: in a row, or in sections that can be folded."""

    heading: str
    figures: Sequence[Figure] = ()
    note: str = ""
    #: the sample of a line, as markup, and the run that has it
    keys: Sequence[tuple[str, str]] = ()
    #: the name of each section, and its charts
    folded: Sequence[tuple[str, Sequence[Figure]]] = ()


def figures(evaluation: Any, comparison: Comparison | None) -> list[Part]:
    """All charts, with headings; parts without a chart are left out."""
    parts, labels = [], first_table(evaluation).labels
    if comparison:
        forests = []  # for each measure a row for each pair
        for measure in comparison.measures:
            rows = comparison.effects(measure)
            chart = forest_chart(rows, f"{measure}: differences of runs, with intervals", "difference")
            forests.append(Figure(measure, chart, "" if rows[0].higher_is_better else "lower is better"))
        note = f"Filled dot: {comparison.significant}. Hollow dot: not. The intervals are not corrected."
        parts.append(Part(f"Differences with {100 * comparison.level:g} % intervals", forests, note))
    if evaluation.rankings:
        keys = [(line_key(style), run) for style, run in enumerate(evaluation.runs)]
        title = "Precision over recall"
        chart = line_chart(evaluation.precision_recall(), title, "recall", "interpolated precision")
        parts.append(Part("Curves", [*_cutoffs(evaluation), Figure(title, chart)], keys=keys))
    if comparison:
        sections = []  # charts of all queries, a chart for each pair, by measure
        for measure in (label for label in comparison.measures if label in labels):
            pairs = [row.pair for row in comparison.rows if row.pair.measure == measure]
            more = f", the first {MOST_PAIRS} of {len(pairs)} pairs" if len(pairs) > MOST_PAIRS else ""
            if charts := [_sorted_differences(evaluation, pair) for pair in pairs[:MOST_PAIRS] if pair.n]:
                sections.append((measure + more, charts))
        note = "The largest loss is on the left. The dashed line is the mean."
        parts.append(Part("Differences of queries, sorted", note=note, folded=sections))
    else:
        charts, run = [], evaluation.runs[0]  # for each measure the values of the first run
        for label in labels:
            if len(values := worst_first(evaluation[run], label)):
                mean, title = math.fsum(values["value"]) / len(values), f"{label} of queries, sorted"
                chart = bar_chart(values["value"], values["id"], title, mean=mean, signed=False)
                charts.append(Figure(label, chart, f"mean of values {mean:.4f}"))
        parts.append(Part("Values of queries, sorted", charts))
    return [part for part in parts if part.figures or part.folded]


def _cutoffs(evaluation: Any) -> list[Figure]:
    """A chart for each measure that has a cutoff; cutoffs of one measure share their chart."""
    charts: dict[str, Figure] = {}
    for label in first_table(evaluation).labels:
        try:
            family = label_over_k(label)
            curves = () if family in charts else evaluation.over_cutoffs(label)
        except (TypeError, ValueError):  # a measure of the whole list, or one without a name of its own
            continue
        if curves and len(curves[0].x) > 1 and any(math.isfinite(y) for curve in curves for y in curve.y):
            name = family.removesuffix("@k")
            chart = line_chart(curves, f"{family} over the cutoff k", "k (logarithmic)", name, log=True)
            charts[family] = Figure(family, chart)
    return list(charts.values())


def _sorted_differences(evaluation: Any, pair: PairStatistics) -> Figure:
    rows, same = differences(evaluation[pair.a], evaluation[pair.b], pair.measure)
    title = f"{pair.b} - {pair.a}"
    chart = bar_chart(
        rows["delta"], rows["id"], f"{pair.measure}: {title}, by query", pair.higher_is_better, same.difference
    )
    return Figure(title, chart, f"{outcome(same)}; mean {same.difference:+.4f}")


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
    evaluation: Any,
    comparison: Comparison | None,
    slices: Table | None,
    *,
    title: str | None,
    about: Mapping[str, str] | None,
    gates: Mapping[str, bool] | None,
    worst: int,
    level: float,
) -> str:
    """The text of the report: arguments and errors of :meth:`torchrank.Evaluation.to_html`."""
    for kind, known, used in (
        ("of", evaluation.runs, comparison.systems if comparison else ()),
        ("in", first_table(evaluation).labels, comparison.measures if comparison else ()),
    ):
        # slices of a measure are named like ndcg@10/slice
        if unknown := [x for x in used if x not in known and not x.startswith(tuple(f"{name}/" for name in known))]:
            raise ValueError(
                f"Expected a comparison {kind} {', '.join(known)}, got one {'with' if kind == 'of' else kind}"
                f" {unknown[0]!r}; pass the result of compare() of this evaluation"
            )
    script = _file("page.js")
    page = _template().render(
        title=title or f"Evaluation of {listed(evaluation.runs)}", version=__version__,
        style=_file("page.css").rstrip(), digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        verdict=verdict(evaluation, comparison, level), gates=gates,
        about=_about(evaluation, comparison, about or {}), paper=comparison and evaluation.table(comparison),
        summary=_summary(evaluation, evaluation.summary(level), level),
        slices=slices and _summary(evaluation, slices, level), coverage=evaluation.coverage,
        charts_of_runs=figures(evaluation, comparison),
        all_queries=_queries(evaluation, comparison, MOST_ROWS, [0])[0],
        worst=_queries(evaluation, comparison, worst), legend=_legend(comparison, level),
        data=_data(evaluation, comparison), script=script, comparison=comparison and _columns(comparison),
        warnings=comparison and comparison.warnings, notes=comparison and comparison.notes,
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


def _about(evaluation: Any, comparison: Comparison | None, about: Mapping[str, str]) -> dict[str, str]:
    counts = sorted({len(table) for table in evaluation.tables.values()})
    which = "all judged queries" if evaluation.queries == "judged" else "the judged queries of each run"
    lines = {
        "Runs": ", ".join(evaluation.runs),
        **about,
        "Queries": f"{' to '.join(map(str, counts[:1] + counts[1:][-1:]))}, {which}",
        "Measures": ", ".join(first_table(evaluation).labels),
    }
    if comparison:
        lines["Test"] = comparison.test
        lines["Correction"] = "by the test itself" if comparison.test in FAMILY_TESTS else comparison.correction
        lines["Alpha"] = f"{comparison.alpha:g}"
        lines["Baseline"] = comparison.baseline or "none, all pairs of runs"
    lines["Version"] = f"torchrank {__version__}"
    return lines


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
    table, columns, formats = comparison.table, {}, {}
    for column in comparison.columns:
        if head := column.head:
            title = head.title.format(level=100 * comparison.level)
            columns[title], formats[title] = table[column.name], column.format
            if head.columns:
                parts = [[cell(value, table.formats.get(name, "")) for value in table[name]] for name in head.columns]
                columns[title] = ["-" if "-" in texts else head.form.format(*texts) for texts in zip(*parts)]
    return Table(columns, {title: spec for title, spec in formats.items() if spec})


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


def _legend(comparison: Comparison | None, level: float) -> dict[str, str]:
    lines = {
        "bold": "the best run of a measure, whether significantly or not",
        "interval": f"with a probability of {100 * level:g} % such an interval contains the expected value over queries"
        " like these; Student's t, or Wilson's for values of 0 and 1. An interval by Student's t can reach beyond the"
        " range of the measure",
        "empty": "queries without a value, which the mean leaves out; by default, a query without a relevant document"
        " has the value 0",
        "-": "no value",
    }
    if comparison:
        corrected = "p" if comparison.correction == "none" else "the corrected p"
        lines |= {"a, b": "the two runs that a row compares; every difference is b - a"}
        facts = {"test": comparison.test, "corrected": corrected, "alpha": comparison.alpha}
        for head in (column.head for column in comparison.columns if column.head and column.head.legend):
            lines[head.title.lower()] = head.legend.format(**facts)
    lines["judged"] = "queries of the judgments; missing: those that a run lacks"
    lines["unjudged@k"] = "mean share of the first k documents that nobody has judged; they count as not relevant"
    return lines


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
