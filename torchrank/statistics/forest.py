"""The forest plot of a comparison; it needs matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torchrank.statistics.comparison import Comparison


def draw_forest(comparison: Comparison, axes: Any = None) -> tuple[Any, Any]:
    """Draw a row for each difference, with its interval, and a band of the margin."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Expected matplotlib to be installed; run `pip install matplotlib`") from error

    rows = comparison.table.rows
    if axes is None:
        axes = plt.subplots(figsize=(6.4, 1.2 + 0.3 * len(rows)), layout="constrained")[1]
    centre, low, high = (
        np.array([row[name] for row in rows], dtype=np.float64) for name in ("difference", "low", "high")
    )
    places = np.arange(len(rows))
    axes.axvline(0, color="0.5", linewidth=1)
    if isinstance(comparison.margin, int | float):  # one for all measures
        axes.axvspan(-comparison.margin, comparison.margin, color="0.9", zorder=0)
    axes.hlines(places, low, high, color="C0")
    axes.plot(centre, places, "o", color="C0")
    lower = {row.pair.measure for row in comparison.rows if not row.pair.higher_is_better}
    axes.set_yticks(places, [_label(row, row["measure"] in lower) for row in rows])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)  # a "$" in a name is a "$"
    axes.set_ylim(len(rows) - 0.4, -0.6)  # descending, so that the first row is on top
    axes.set_xlabel(f"difference, {100 * comparison.level:g} % interval, not corrected for several pairs")
    return axes.figure, axes


def _label(row: dict[str, Any], lower: bool) -> str:
    return f"{row['measure']}: {row['b']} - {row['a']}{' (lower is better)' * lower}"
