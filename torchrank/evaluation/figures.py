"""The figures of the report: charts of an evaluation with their captions and legends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torchrank.evaluation import svg
from torchrank.evaluation.curves import differences, label_over_k, outcome, worst_first
from torchrank.evaluation.reported import Reported, first_table
from torchrank.statistics.comparison import Comparison, Row

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


def figures(evaluation: Reported, comparison: Comparison | None) -> list[Part]:
    """All charts, with headings; parts without a chart are left out."""
    parts = []
    if comparison:
        note = f"Filled dot: {comparison.significant}. Hollow dot: not. The intervals are not corrected."
        parts.append(Part(f"Differences with {100 * comparison.level:g} % intervals", _forests(comparison), note))
    if evaluation.rankings:
        keys = [(svg.key(style), run) for style, run in enumerate(evaluation.runs)]
        parts.append(Part("Curves", [*_cutoffs(evaluation), *_precision_recall(evaluation)], keys=keys))
    if comparison:
        note = "The largest loss is on the left. The dashed line is the mean."
        parts.append(
            Part("Differences of queries, sorted", note=note, folded=_sorted_differences(evaluation, comparison))
        )
    else:
        parts.append(Part("Values of queries, sorted", _sorted_values(evaluation)))
    return [part for part in parts if part.figures or part.folded]


def _forests(comparison: Comparison) -> list[Figure]:
    """For each measure a row for each pair."""
    charts = []
    for measure in comparison.measures:
        rows = comparison.effects(measure)
        chart = svg.forest(rows, f"{measure}: differences of runs, with intervals", "difference")
        charts.append(Figure(measure, chart, "" if rows[0].higher_is_better else "lower is better"))
    return charts


def _cutoffs(evaluation: Reported) -> list[Figure]:
    """A chart for each measure that has a cutoff; cutoffs of one measure share their chart."""
    charts: dict[str, Figure] = {}
    for label in _labels(evaluation):
        try:
            family = label_over_k(label)
            curves = () if family in charts else evaluation.over_cutoffs(label)
        except (TypeError, ValueError):  # a measure of the whole list, or one without a name of its own
            continue
        if curves and len(curves[0].x) > 1 and any(math.isfinite(y) for curve in curves for y in curve.y):
            name = family.removesuffix("@k")
            chart = svg.lines(curves, f"{family} over the cutoff k", "k (logarithmic)", name, log=True)
            charts[family] = Figure(family, chart)
    return list(charts.values())


def _precision_recall(evaluation: Reported) -> list[Figure]:
    curves = evaluation.precision_recall()
    chart = svg.lines(curves, "Precision over recall", "recall", "interpolated precision")
    return [Figure("Precision over recall", chart)]


def _sorted_differences(evaluation: Reported, comparison: Comparison) -> list[tuple[str, list[Figure]]]:
    """Charts of all queries, a chart for each pair, by measure."""
    sections = []
    for measure in (label for label in comparison.measures if label in _labels(evaluation)):
        rows = [row for row in comparison.rows if row.pair.measure == measure]
        more = f", the first {MOST_PAIRS} of {len(rows)} pairs" if len(rows) > MOST_PAIRS else ""
        if charts := [_pair(evaluation, row) for row in rows[:MOST_PAIRS] if row.pair.n]:
            sections.append((measure + more, charts))
    return sections


def _pair(evaluation: Reported, row: Row) -> Figure:
    pair = row.pair
    rows, same = differences(evaluation[pair.a], evaluation[pair.b], pair.measure)
    title = f"{pair.b} - {pair.a}"
    chart = svg.differences(
        rows["delta"], rows["id"], f"{pair.measure}: {title}, by query", pair.higher_is_better, same.difference
    )
    return Figure(title, chart, f"{outcome(same)}; mean {same.difference:+.4f}")


def _sorted_values(evaluation: Reported) -> list[Figure]:
    """For each measure the values of the first run."""
    run = evaluation.runs[0]
    charts = []
    for label in _labels(evaluation):
        if len(rows := worst_first(evaluation[run], label)):
            mean = math.fsum(rows["value"]) / len(rows)
            chart = svg.differences(rows["value"], rows["id"], f"{label} of queries, sorted", mean=mean, signed=False)
            charts.append(Figure(label, chart, f"mean of values {mean:.4f}"))
    return charts


def _labels(evaluation: Reported) -> list[str]:
    return first_table(evaluation).labels
