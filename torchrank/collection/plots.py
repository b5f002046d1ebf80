"""Plots of many metrics in one figure; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchrank.statistics.drawing import axes_of, imported, plainly

# Number of lines that a legend can distinguish, the number of default colours. More lines are named at their ends.
LEGEND = 10


def plot_values(values: Mapping[str, Tensor], axes: Any = None) -> tuple[Any, Any]:
    """Draw a row for each metric: its name, a mark for its value or for the value of each query, and the number."""
    figure, axes = _axes(axes, list(values), 1.2 + 0.28 * len(values))
    for row, value in enumerate(values.values()):
        numbers = torch.as_tensor(value, device="cpu").reshape(-1)
        single = len(numbers) == 1
        axes.plot(numbers, [row] * len(numbers), "o" if single else "|", color=f"C{row % 10}")
        text = f"{numbers.item():.4g}" if single else f"{len(numbers)} values"
        axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), va="center", size="small")
    axes.set_yticks(range(len(values)), list(values))
    plainly(axes.get_yticklabels(), list(values))
    axes.set_ylim(len(values) - 0.4, -0.6)  # descending, so that the first metric is on top
    axes.grid(True, alpha=0.4)
    return figure, axes


def plot_steps(values: Sequence[Mapping[str, Tensor]], axes: Any = None) -> tuple[Any, Any]:
    """Draw a line for each metric over a list of results."""
    steps = list(range(len(values)))
    lines = {key: (steps, [float(result[key]) for result in values]) for key in values[0]}
    return plot_lines(lines, "step", axes)


def plot_lines(
    lines: Mapping[str, tuple[list[int], list[float]]],
    xlabel: str,
    axes: Any = None,
    levels: Mapping[str, float] | None = None,
) -> tuple[Any, Any]:
    """Draw lines through points (x, y), and dashed lines at some levels.

    Up to ten lines have a legend beside the axes. If there are more, each has its name at its end.
    """
    names = [*lines, *(levels or {})]
    many = len(names) > LEGEND
    figure, axes = _axes(axes, names, 1.2 + 0.18 * len(names) if many else 4.8)
    drawn = [axes.plot(x, y, marker="o" if len(x) < 30 else "", markersize=4)[0] for x, y in lines.values()]
    ends = [x for line in drawn for x in line.get_xdata()] or [0, 1]
    for level in (levels or {}).values():
        drawn += axes.plot([min(ends), max(ends)], [level, level], "--", color=f"C{len(drawn) % 10}")
    if many:
        _name_ends(axes, drawn, names)
    else:
        # Legends hide names that begin with "_", so the names are set afterwards.
        legend = axes.legend(drawn, [f"line {i}" for i in range(len(drawn))], loc="upper left", bbox_to_anchor=(1, 1))
        plainly(legend.get_texts(), names)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(imported("matplotlib.ticker").MaxNLocator(integer=True))
    axes.grid(True, alpha=0.4)
    return figure, axes


def _name_ends(axes: Any, drawn: Sequence[Any], names: Sequence[str]) -> None:
    """Write the names of lines beside the axes, evenly spaced in the order of their ends, each with a thin line."""
    order = sorted(range(len(drawn)), key=lambda i: _end(drawn[i])[1])
    texts = []
    for place, i in enumerate(order):
        x, y = _end(drawn[i])
        texts.append(
            axes.annotate(
                "name",
                (x, y),
                (1.04, (place + 0.5) / len(order)),
                textcoords="axes fraction",
                va="center",
                size="small",
                color=drawn[i].get_color(),
                arrowprops={"arrowstyle": "-", "color": drawn[i].get_color(), "linewidth": 0.5, "relpos": (0, 0.5)},
            )
        )
    plainly(texts, [names[i] for i in order])


def _end(line: Any) -> tuple[float, float]:
    """The last point of a line with a finite value; (0, 0) if there is none."""
    points = torch.as_tensor(line.get_xydata(), device="cpu")
    there = points[points[:, 1].isfinite()]
    x, y = (there if len(there) else torch.zeros_like(points))[-1].tolist()
    return x, y


def _axes(axes: Any, names: Sequence[str], height: float) -> tuple[Any, Any]:
    """The figure and axes to draw in. New ones have room for the names."""
    # sizes in inches, from the number and the lengths of names in a small font
    width = 6 + 0.09 * max(map(len, names), default=0)
    axes = axes_of(axes, width, min(max(2.4, height), 20), managed=True)
    return axes.get_figure(), axes
