"""The figures of the report: charts of an evaluation with their captions and legends."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from torchrank.evaluation import svg
from torchrank.evaluation.curves import Curve
from torchrank.evaluation.reported import Reported
from torchrank.statistics.comparison import Comparison, Row
from torchrank.statistics.pair_statistics import differences_of

#: most pairs of runs with a chart of their own, for each measure
MOST_PAIRS = 12


@dataclass(frozen=True)
class Figure:
    """A chart with its caption, and a line below the caption."""

    caption: str
    chart: Markup
    more: str = ""


@dataclass(frozen=True)
class Part:
    """Charts under one heading: in a row, or in sections that can be folded."""

    heading: str
    figures: Sequence[Figure] = ()
    note: str = ""
    #: the sample of a line, and the run that has it
    keys: Sequence[tuple[Markup, str]] = ()
    #: the name of each section, and its charts
    folded: Sequence[tuple[str, Sequence[Figure]]] = ()


def figures(evaluation: Reported, comparison: Comparison | None) -> list[Part]:
    """All charts, with headings; parts without a chart are left out."""
    parts = []
    if comparison:
        note = "A full dot is a significant difference, a hollow one is not."
        parts.append(Part(f"Differences with {100 * comparison.level:g} % intervals", _forests(comparison), note))
    if evaluation.rankings:
        keys = [(Markup(svg.key(at)), run) for at, run in enumerate(evaluation.runs)]
        parts.append(Part("Curves", [*_cutoffs(evaluation), *_precision_recall(evaluation)], keys=keys))
    if comparison:
        note = "The largest gain is on the left. The dashed line is the mean."
        parts.append(
            Part("Differences of queries, sorted", note=note, folded=_sorted_differences(evaluation, comparison))
        )
    else:
        parts.append(Part("Values of queries, sorted", _sorted_values(evaluation)))
    return [part for part in parts if part.figures or part.folded]


def _forests(comparison: Comparison) -> list[Figure]:
    """For each measure a row for each pair."""
    found = []
    for measure in comparison.measures:
        rows = [row for row in comparison.rows if row.pair.measure == measure]
        differences = [
            svg.Difference(
                f"{row.pair.b} - {row.pair.a}",
                row.pair.difference,
                *row.pair.interval(comparison.level),
                filled=comparison.winner(row) is not None,
            )
            for row in rows
        ]
        chart = svg.forest(differences, f"{measure}: differences of runs, with intervals", "difference")
        found.append(Figure(measure, Markup(chart), "" if rows[0].pair.higher_is_better else "lower is better"))
    return found


def _cutoffs(evaluation: Reported) -> list[Figure]:
    """A chart for each measure that has a cutoff; cutoffs of one measure share their chart."""
    families: dict[str, str] = {}
    for label in _labels(evaluation):
        families.setdefault(re.sub(r"@\d+$", "", label), label)
    found = []
    for family, label in families.items():
        try:
            curves = evaluation.over_cutoffs(label)
        except (TypeError, ValueError):  # a measure of the whole list, or one without a name of its own
            continue
        if len(curves[0].x) > 1 and any(math.isfinite(one) for curve in curves for one in curve.y):
            chart = svg.lines(_lines(curves), f"{family}@k over the cutoff k", "k (logarithmic)", family, log=True)
            found.append(Figure(f"{family}@k", Markup(chart)))
    return found


def _precision_recall(evaluation: Reported) -> list[Figure]:
    curves = evaluation.precision_recall()
    chart = svg.lines(_lines(curves), "Precision over recall", "recall", "interpolated precision")
    return [Figure("Precision over recall", Markup(chart))]


def _lines(curves: Sequence[Curve]) -> list[svg.Line]:
    return [svg.Line(curve.run, curve.x, curve.y) for curve in curves]


def _sorted_differences(evaluation: Reported, comparison: Comparison) -> list[tuple[str, list[Figure]]]:
    """Charts of all queries, a chart for each pair, by measure."""
    sections = []
    for measure in comparison.measures:
        rows = [row for row in comparison.rows if row.pair.measure == measure]
        more = f", the first {MOST_PAIRS} of {len(rows)} pairs" if len(rows) > MOST_PAIRS else ""
        if charts := [_pair(evaluation, row) for row in rows[:MOST_PAIRS] if row.pair.n]:
            sections.append((measure + more, charts))
    return sections


def _pair(evaluation: Reported, row: Row) -> Figure:
    pair = row.pair
    found = evaluation[pair.a].deltas(evaluation[pair.b], pair.measure, None)
    before, after = (np.array(found[name], dtype=np.float64) for name in ("before", "after"))
    values = differences_of(before, after)[::-1]
    names = [str(one) for one in reversed(found["id"])]
    mean = math.fsum(values) / len(values)
    title = f"{pair.b} - {pair.a}"
    chart = svg.differences(
        values.tolist(), names, f"{pair.measure}: {title}, by query", higher=pair.higher_is_better, mean=mean
    )
    counts = f"{pair.wins} better, {pair.ties} equal, {pair.losses} worse; mean {mean:+.4f}"
    return Figure(title, Markup(chart), counts)


def _sorted_values(evaluation: Reported) -> list[Figure]:
    """For each measure the values of the first run, the best first."""
    run = evaluation.runs[0]
    found = []
    for label, higher in evaluation[run].higher_is_better.items():
        values = evaluation[run].columns[label].astype(np.float64)
        order = np.argsort(-values if higher else values, kind="stable")
        order = order[~np.isnan(values[order])]
        if len(order):
            names = [str(evaluation[run].ids[at]) for at in order]
            mean = math.fsum(values[order]) / len(order)
            chart = svg.differences(
                values[order].tolist(), names, f"{label} of queries, sorted", mean=mean, signed=False
            )
            found.append(Figure(label, Markup(chart), f"mean of values {mean:.4f}"))
    return found


def _labels(evaluation: Reported) -> list[str]:
    return evaluation[evaluation.runs[0]].labels
