"""Charts of the report as inline SVG: lines, sorted differences, and intervals.

Colours are variables of the page. Dashes and the forms of markers tell lines apart without colours.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torchrank.evaluation.curves import Curve
from torchrank.evaluation.markup import escaped, interval, tag
from torchrank.statistics.drawing import shortened
from torchrank.statistics.forest import Effect
from torchrank.statistics.table import cell

#: size of a chart, and its margins, in units of the drawing
WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 10, 42
#: the largest number of bars that have a text of their own, and the largest number of bars
MOST_TEXTS, MOST_BARS = 300, 2000
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
            return _log_ticks(self.low, self.high, most + 4)
        step = _round_step((self.high - self.low) / most)
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


def lines(curves: Sequence[Curve], title: str, x_label: str, y_label: str, *, log: bool = False) -> str:
    """A chart of lines, whose points show their numbers if the pointer rests on them; NaN interrupts a line."""
    x = scale_of((place for curve in curves for place in curve.x), LEFT, WIDTH - RIGHT, log=log)
    values = [y for curve in curves for y in curve.y if math.isfinite(y)]
    zero = not values or min(values) < 0.4 * max(values)
    y = scale_of(values, HEIGHT - BOTTOM, TOP, zero=zero)
    marks = "".join(_line(curve, n % STYLES, x, y, x_label) for n, curve in enumerate(curves))
    return _chart(title, _axes(x, y, x_label, y_label) + marks)


def _line(line: Curve, style: int, x: Scale, y: Scale, x_label: str) -> str:
    points = [(a, b) for a, b in zip(line.x, line.y) if math.isfinite(b)]
    breaks = [math.isnan(b) for b in (math.nan, *line.y)]
    path = "".join(
        f"{'M' if broken else 'L'}{x(a)} {y(b)}" for a, b, broken in zip(line.x, line.y, breaks) if math.isfinite(b)
    )
    place = x_label.split(" ")[0]
    marks = "".join(
        tag("path", _title(f"{line.run}: {cell(b)} at {place} {a:g}"), d=_marker(style, float(x(a)), float(y(b))))
        for a, b in points
    )
    return tag("g", tag("path", d=path, class_="line") + tag("g", marks, class_="marks"), class_=f"s{style}")


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


def key(style: int) -> str:
    """The sample of a line for a legend."""
    style %= STYLES
    inner = tag("path", d="M1 7H31", class_="line") + tag("g", tag("path", d=_marker(style, 16, 7)), class_="marks")
    return tag("svg", tag("g", inner, class_=f"s{style}"), viewBox="0 0 32 14", class_="key", aria_hidden="true")


def differences(
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
        inner = tag("path", d=_steps(values, x, y), class_="steps")
    else:
        above, below = (operator.gt, operator.lt) if higher else (operator.lt, operator.gt)
        inner = "".join(
            tag("g", _bars(values, texts, x, y, beyond), class_=kind, stroke_width=_bar_width(len(values)))
            for kind, beyond in (("gain", above), ("loss", below))
        )
    inner += tag("path", d=f"M{LEFT} {y(0)}H{WIDTH - RIGHT}", class_="zero")
    if math.isfinite(mean):
        inner += tag("path", _title(f"mean {mean:{spec}}"), d=f"M{LEFT} {y(mean)}H{WIDTH - RIGHT}", class_="mean")
    return _chart(title, _axes(x, y, "queries, sorted", y_label) + inner)


def _bars(
    values: Sequence[float], texts: Sequence[str], x: Scale, y: Scale, beyond: Callable[[float, float], bool]
) -> str:
    """The bars on one side of 0, with texts if they are few."""
    drawn = [position for position, value in enumerate(values) if beyond(value, 0)]
    paths = [f"M{x(position + 0.5)} {y(0)}V{y(values[position])}" for position in drawn]
    if len(values) > MOST_TEXTS:
        return tag("path", d="".join(paths))
    return "".join(tag("path", _title(texts[position]), d=path) for path, position in zip(paths, drawn))


def _bar_width(count: int) -> str:
    step = (WIDTH - LEFT - RIGHT) / count
    return _short(min(28.0, max(0.4, 0.8 * step if count <= MOST_TEXTS else step)))


def _steps(values: Sequence[float], x: Scale, y: Scale, most: int = 800) -> str:
    """A step curve through ``most`` of more values, the first and the last among them."""
    positions = [round(n * (len(values) - 1) / (most - 1)) for n in range(most)]
    return f"M{LEFT} {y(values[0])}" + "".join(f"H{x(i)}V{y(values[i])}" for i in positions) + f"H{WIDTH - RIGHT}"


def forest(rows: Sequence[Effect], title: str, x_label: str) -> str:
    """A row for each difference: a point, and a line over its interval."""
    step, top = 26, 8
    longest = max(min(len(row.name), LONGEST) for row in rows)
    left = 12 + _CHARACTER * longest
    bottom = top + step * len(rows)
    values = (value for row in rows for value in (row.value, row.low, row.high))
    x = scale_of(values, left + 8, WIDTH - RIGHT, zero=True)
    marks = _x_axis(x, bottom, top, x_label) + tag("path", d=f"M{x(0)} {top}V{bottom}", class_="zero")
    for position, row in enumerate(rows):
        marks += _difference(row, x, top + step * (position + 0.5), left)
    return _chart(title, marks, bottom + BOTTOM)


def _difference(row: Effect, x: Scale, y: float, left: float) -> str:
    text = _title(f"{row.name}: {cell(row.value, '+.4f')} {interval(row.low, row.high, '+.4f')}")
    name = shortened(row.name, LONGEST)
    marks = tag("text", escaped(name) + text, x=_short(left), y=_short(y), dy=4, text_anchor="end")
    if math.isfinite(row.high):
        marks += tag("path", text, d=f"M{x(row.low)} {_short(y)}H{x(row.high)}", class_="range")
    if math.isfinite(row.value):
        form = "dot" if row.significant else "dot hollow"
        marks += tag("path", text, d=_marker(0, float(x(row.value)), y, 4.5), class_=form)
    return tag("g", marks)


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


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of 10 that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= least * (1 - 1e-9))


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        ticks = [digit * 10**power for power in powers for digit in digits if low <= digit * 10**power <= high]
        if len(ticks) <= most:
            break
    return ticks or [low, high]


def _short(place: float) -> str:
    """A place with one decimal, without a needless one."""
    return f"{place:.1f}".removesuffix(".0")
