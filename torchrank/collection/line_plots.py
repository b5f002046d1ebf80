"""Plots of many metrics in one figure; they need matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchrank.names.arguments import imported
from torchrank.statistics.drawing import COLUMN, axes_of, draw_lines, log_axis, plainly, room_for, style


def plot_results(values: Any, axes: Any) -> tuple[Any, Any]:
    """Draw the results of several metrics: a row for each metric, or a line for each over a list of results."""
    return plot_steps(values, axes) if isinstance(values, Sequence) else plot_values(values, axes)


def plot_values(values: Mapping[str, Any], axes: Any) -> tuple[Any, Any]:
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


def plot_steps(values: Sequence[Mapping[str, Tensor]], axes: Any) -> tuple[Any, Any]:
    """Draw a line for each metric over a list of results."""
    steps = list(range(len(values)))
    figure, axes = _plot_lines({key: (steps, [float(result[key]) for result in values]) for key in values[0]}, axes)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(imported("matplotlib.ticker", "plot").MaxNLocator(integer=True))
    return figure, axes


def plot_over_k(
    lines: Mapping[str, tuple[list[int], list[float]]], levels: Mapping[str, float], axes: Any
) -> tuple[Any, Any]:
    """Draw lines through points (k, value), with ticks at these k, and lines at some levels."""
    cutoffs = sorted({k for found, _ in lines.values() for k in found})
    across = [cutoffs[0], cutoffs[-1]] if cutoffs else [1, 2]
    figure, axes = _plot_lines({**lines, **{name: (across, [level, level]) for name, level in levels.items()}}, axes)
    axes.set_xlabel("k")
    log_axis(axes, cutoffs)
    return figure, axes


def _plot_lines(lines: Mapping[str, tuple[list[int], list[float]]], axes: Any) -> tuple[Any, Any]:
    """Draw lines through points (x, y), with their names next to the axes."""
    height = max(4.8, 1.2 + 0.22 * min(len(lines), COLUMN))
    axes = axes_of(axes, 6.4 + room_for(list(lines), aside=True), height, managed=True)
    draw_lines(axes, lines, aside=True)
    return axes.get_figure(), axes
