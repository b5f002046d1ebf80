"""Axes, texts and styles that all plots share. Plots need matplotlib, which is imported when one is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchrank.names.arguments import imported

#: colours that colour-blind readers distinguish (Okabe and Ito), with lines and marks for readers of grey prints; the
#: three cycles have lengths without a common divisor, so that the first 140 lines differ
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D", "v")
HATCHES = ("", "///", "...", "xxx")

#: more names than this are in a legend beside the axes, and the number in one column of it
INSIDE, COLUMN = 6, 20


def axes_of(ax: Any, width: float = 6.4, height: float = 4.2, managed: bool = False) -> Any:
    """The given axes, or those of a new figure.

    Args:
        ax: axes of matplotlib, or None for a new figure.
        width: width of a new figure in inches.
        height: height of a new figure in inches.
        managed: make the figure by pyplot, which shows it in notebooks and by ``pyplot.show()``, and keeps it until it
            is closed. Other figures need no display, and are freed with their axes.

    Raises:
        ImportError: matplotlib is not installed.
    """
    if ax is not None:
        return ax
    if managed:
        return imported("matplotlib.pyplot", "plot").subplots(figsize=(width, height), layout="constrained")[1]
    return imported("matplotlib.figure", "plot").Figure(figsize=(width, height), layout="constrained").add_subplot()


def style(number: int) -> dict[str, Any]:
    """The colour, line and mark of a line, by its number from 0."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINES[number % len(LINES)],
        "marker": MARKS[number % len(MARKS)],
    }


def shortened(name: str, most: int = 40) -> str:
    """A name of at most ``most`` characters, whose middle is left out if it is longer.

    Example:
        >>> shortened("bm25"), shortened("dense-retriever-with-a-long-name-large", most=21)
        ('bm25', 'dense-retr…name-large')
    """
    name = " ".join(name.split())  # a line break would hide other names
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[-half:]}"


def plainly(texts: Sequence[Any], names: Sequence[str]) -> None:
    """Set texts without interpretation: matplotlib would read "$" as mathematics."""
    for text, name in zip(texts, names):
        text.set_parse_math(False)
        text.set_text(name)


def describe(axes: Any, title: str, xlabel: str, ylabel: str) -> None:
    """Set title and labels without interpretation, and remove the frame where there is no axis."""
    axes.set_title(title, loc="left", fontsize="medium", parse_math=False)
    axes.set_xlabel(xlabel, parse_math=False)
    axes.set_ylabel(ylabel, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)


def draw_lines(axes: Any, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], aside: bool = False) -> None:
    """Draw a line through points (x, y) for each name, with a legend."""
    drawn = []
    for number, (x, y) in enumerate(lines.values()):
        drawn += axes.plot(x, y, **style(number), markersize=4, linewidth=1.4, markevery=max(1, len(x) // 30))
    axes.grid(alpha=0.3)
    add_legend(axes, drawn, list(lines), aside)


def log_axis(axes: Any, cutoffs: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers at 1, 2, 5, 10, ..., or at the cutoffs if these are few."""
    ticker = imported("matplotlib.ticker", "plot")
    axes.set_xscale("log")
    few = 0 < len(cutoffs) <= 8
    axes.xaxis.set_major_locator(ticker.FixedLocator(cutoffs) if few else ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda k, _: f"{k:,g}"))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    if len(cutoffs) == 1:
        axes.set_xlim(cutoffs[0] / 2, cutoffs[0] * 2)


def add_legend(axes: Any, drawn: Sequence[Any], names: Sequence[str], aside: bool = False) -> None:
    """Add a legend, unless there is a single run without a name.

    It is within the axes, or beside them if there are many names or long ones, or if ``aside``.
    """
    if not drawn or list(names) == ["run"]:
        return
    placeholders = [f"line {number}" for number in range(len(drawn))]  # a legend hides names that begin with "_"
    shown = [shortened(name) for name in names]
    if aside or beside(shown):
        options: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0}
        options |= {"ncols": -(-len(drawn) // COLUMN), "fontsize": "small"}
    else:
        options = {"loc": "best"}
    legend = axes.legend(drawn, placeholders, frameon=False, handlelength=2.6, **options)
    plainly(legend.get_texts(), shown)


def beside(names: Sequence[str]) -> bool:
    """Whether the legend of some names is beside the axes."""
    return len(names) > INSIDE or any(len(name) > 24 for name in names)


def room_for(names: Sequence[str], aside: bool = False) -> float:
    """Width in inches of the legend beside the axes; 0 for one within them."""
    shown = [shortened(name) for name in names]
    if not shown or not (aside or beside(shown)):
        return 0.0
    return -(-len(shown) // COLUMN) * (0.55 + 0.07 * max(map(len, shown)))


def draw_intervals(
    axes: Any,
    names: Sequence[str],
    centre: Any,
    low: Any,
    high: Any,
    filled: Sequence[bool] | None = None,
    kinds: Sequence[int] | None = None,
) -> None:
    """Draw a row for each name, the first on top: a mark, and a line from ``low`` to ``high`` unless these are NaN.

    Marks where ``filled`` is False are white inside; None = all marks are filled. Rows of one of the ``kinds`` have one
    colour; None = all rows.
    """
    places, kinds = range(len(names)), kinds or [0] * len(names)
    axes.hlines(places, low, high, color=[style(kind)["color"] for kind in kinds])
    for kind in sorted(set(kinds)):
        rows = [place for place in places if kinds[place] == kind]
        axes.plot([centre[row] for row in rows], rows, "o", color=style(kind)["color"])
    hollow = [place for place in places if filled is not None and not filled[place]]
    axes.plot([centre[place] for place in hollow], hollow, "o", color=COLOURS[0], markerfacecolor="white")
    axes.set_yticks(places, names)
    plainly(axes.get_yticklabels(), names)
    axes.set_ylim(len(names) - 0.4, -0.6)  # descending, so that the first row is on top


def plot_ends(
    ax: Any,
    results: Mapping[str, Any],
    keys: Sequence[str],
    ends: tuple[str, str, str],
    what: str,
    kinds: Sequence[int] | None = None,
) -> tuple[Any, Any]:
    """A figure and its axes with a row for each key: its value and the two ends of a line, at ``key + end``.

    A line without ends is left out. ``kinds`` are those of :func:`draw_intervals`.
    """
    axes = axes_of(ax, height=1.2 + 0.3 * len(keys), managed=True)
    centre, low, high = ([float(results.get(f"{key}{end}", math.nan)) for key in keys] for end in ends)
    draw_intervals(axes, keys, centre, low, high, kinds=kinds)
    describe(axes, "", what, "")
    axes.grid(axis="x", alpha=0.3)
    return axes.figure, axes
