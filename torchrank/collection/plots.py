"""Plots of many metrics in one figure; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchrank.names.optional import imported
from torchrank.statistics.drawing import COLUMN, axes_of, draw_lines, plainly, room_for, style


def plot_results(values: Any, axes: Any = None) -> tuple[Any, Any]:
    """Draw the results of several metrics: a row for each metric, or a line for each over a list of results."""
    return plot_steps(values, axes) if isinstance(values, Sequence) else plot_values(values, axes)


def plot_values(values: Mapping[str, Tensor], axes: Any = None) -> tuple[Any, Any]:
    """Draw a row for each metric: its name, a mark for its value or for the value of each query, and the number."""
    # sizes in inches, from the number and the lengths of names in a small font
    width, height = 6 + 0.09 * max(map(len, values), default=0), min(max(2.4, 1.2 + 0.28 * len(values)), 20)
    axes = axes_of(axes, width, height, managed=True)
    for row, value in enumerate(values.values()):
        numbers = torch.as_tensor(value, device="cpu").reshape(-1)
        single = len(numbers) == 1
        axes.plot(numbers, [row] * len(numbers), "o" if single else "|", color=style(row)["color"])
        text = f"{numbers.item():.4g}" if single else f"{len(numbers)} values"
        axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), va="center", size="small")
    axes.set_yticks(range(len(values)), list(values))
    plainly(axes.get_yticklabels(), list(values))
    axes.set_ylim(len(values) - 0.4, -0.6)  # descending, so that the first metric is on top
    axes.grid(True, alpha=0.4)
    return axes.get_figure(), axes


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
    """Draw lines through points (x, y), and lines at some levels, with their names beside the axes."""
    ends = [place for x, _ in lines.values() for place in x] or [0, 1]
    across = [min(ends), max(ends)]
    drawn = {**lines, **{name: (across, [level, level]) for name, level in (levels or {}).items()}}
    axes = axes_of(
        axes, 6.4 + room_for(list(drawn), aside=True), max(4.8, 1.2 + 0.22 * min(len(drawn), COLUMN)), managed=True
    )
    draw_lines(axes, drawn, aside=True)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(imported("matplotlib.ticker", "plot").MaxNLocator(integer=True))
    return axes.get_figure(), axes
