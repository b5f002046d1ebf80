"""The forest plot of a comparison; it needs matplotlib."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torchrank.statistics.drawing import axes_of, draw_intervals, shortened


def draw_forest(
    rows: Sequence[Mapping[str, Any]],
    lower: Collection[str],
    level: float,
    margin: float | Mapping[str, float] | None = None,
    axes: Any = None,
) -> tuple[Any, Any]:
    """Draw a row for each difference, with its interval, and a band of the margin. A mark with a winner is filled.

    Args:
        rows: the rows of the table of a comparison.
        lower: the measures of which lower values are better.
        level: level of the intervals.
        margin: difference that does not matter; a margin for each measure is not drawn.
        axes: axes of matplotlib; None = a new figure.
    """
    axes = axes_of(axes, height=1.2 + 0.3 * len(rows), managed=True)
    axes.axvline(0, color="0.5", linewidth=1)
    if isinstance(margin, int | float):
        axes.axvspan(-margin, margin, color="0.9", zorder=0)
    names = [_label(row, row["measure"] in lower) for row in rows]
    centre, low, high = ([row[column] for row in rows] for column in ("difference", "low", "high"))
    draw_intervals(axes, names, centre, low, high, [row["winner"] is not None for row in rows])
    axes.set_xlabel(f"difference, {100 * level:g} % interval, not corrected\nfilled: the corrected test shows it")
    return axes.figure, axes


def _label(row: Mapping[str, Any], lower: bool) -> str:
    b, a = shortened(row["b"]), shortened(row["a"])
    return f"{row['measure']}: {b} - {a}{' (lower is better)' * lower}"
