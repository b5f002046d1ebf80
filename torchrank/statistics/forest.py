"""The forest plot of a comparison; it needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchrank.statistics.drawing import axes_of, describe, draw_intervals, shortened


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


def draw_forest(
    rows: Sequence[Effect], about: str, margin: float | Mapping[str, float] | None, axes: Any
) -> tuple[Any, Any]:
    """Draw a row for each difference, with its interval, and a band of the margin. A significant one is filled.

    Args:
        rows: the differences. If they are of one measure, this is the title.
        about: the text below the axis.
        margin: difference that does not matter; of a margin for each measure, that of the only one.
        axes: axes of matplotlib; None = a new figure.
    """
    titles = list(dict.fromkeys(row.title for row in rows))
    single = len(titles) == 1
    names = [row.name if single else f"{row.measure}: {row.name}{row.title[len(row.measure) :]}" for row in rows]
    # room for the names and, below the axis, for the text
    axes = axes_of(axes, 4.4 + 0.085 * max(map(len, names), default=0), 1.4 + 0.3 * len(rows), managed=True)
    axes.axvline(0, color="0.5", linewidth=1)
    width = margin.get(rows[0].measure) if isinstance(margin, Mapping) and single else margin
    if isinstance(width, int | float):
        axes.axvspan(-width, width, color="0.9", zorder=0)
    value, low, high = ([getattr(row, column) for row in rows] for column in ("value", "low", "high"))
    draw_intervals(axes, names, value, low, high, [row.significant for row in rows])
    describe(axes, titles[0] if single else "", about, "")
    axes.grid(axis="x", alpha=0.3)
    return axes.figure, axes
