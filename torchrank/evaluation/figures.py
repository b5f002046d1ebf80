"""The figures of the report: charts of an evaluation with their captions and legends."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from torchrank.evaluation import svg
from torchrank.evaluation.curves import Curve
from torchrank.evaluation.markup import escaped, tag
from torchrank.evaluation.reported import Reported
from torchrank.statistics.comparison import Comparison, Row
from torchrank.statistics.pair_statistics import differences_of

#: most pairs of runs with a chart of their own, for each measure
MOST_PAIRS = 12


def figures(evaluation: Reported, comparison: Comparison | None) -> str:
    """All charts, with headings."""
    parts = []
    if comparison:
        heading = f"Differences with {100 * comparison.level:g} % intervals"
        parts.append(_part(heading, _differences_legend(), _forests(comparison)))
    if evaluation.rankings:
        curves = [*_cutoffs(evaluation), *_precision_recall(evaluation)]
        parts.append(_part("Curves", _legend(evaluation.runs), curves))
    if comparison:
        parts.append(_sorted_differences(evaluation, comparison))
    else:
        parts.append(_part("Values of queries, sorted", "", _sorted_values(evaluation)))
    return "".join(parts)


def _part(heading: str, legend: str, found: Sequence[str]) -> str:
    return tag("h3", escaped(heading)) + legend + _charts(found) if found else ""


def _charts(found: Sequence[str]) -> str:
    return tag("div", "".join(found), class_="charts single" if len(found) == 1 else "charts")


def _figure(caption: str, chart: str, more: str = "") -> str:
    small = tag("small", escaped(more)) if more else ""
    return tag("figure", tag("figcaption", escaped(caption) + small) + chart)


def _legend(runs: Sequence[str]) -> str:
    items = (tag("li", svg.key(at) + tag("span", escaped(run))) for at, run in enumerate(runs))
    return tag("ul", "".join(items), class_="legend")


def _differences_legend() -> str:
    return tag("p", "A full dot is a significant difference, a hollow one is not.", class_="notes")


def _forests(comparison: Comparison) -> list[str]:
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
        found.append(_figure(measure, chart, "" if rows[0].pair.higher_is_better else "lower is better"))
    return found


def _cutoffs(evaluation: Reported) -> list[str]:
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
            found.append(_figure(f"{family}@k", chart))
    return found


def _precision_recall(evaluation: Reported) -> list[str]:
    curves = evaluation.precision_recall()
    chart = svg.lines(_lines(curves), "Precision over recall", "recall", "interpolated precision")
    return [_figure("Precision over recall", chart)]


def _lines(curves: Sequence[Curve]) -> list[svg.Line]:
    return [svg.Line(curve.run, curve.x, curve.y) for curve in curves]


def _sorted_differences(evaluation: Reported, comparison: Comparison) -> str:
    """Charts of all queries, a chart for each pair; those of the first measure are open."""
    parts: list[str] = []
    for measure in comparison.measures:
        rows = [row for row in comparison.rows if row.pair.measure == measure]
        charts = [_pair(evaluation, row) for row in rows[:MOST_PAIRS] if row.pair.n]
        if not charts:
            continue
        more = f", the first {MOST_PAIRS} of {len(rows)} pairs" if len(rows) > MOST_PAIRS else ""
        inside = tag("summary", escaped(measure + more)) + _charts(charts)
        parts.append(tag("details", inside, open=None if parts else ""))
    note = tag("p", "The largest gain is on the left. The dashed line is the mean.", class_="notes")
    return tag("h3", "Differences of queries, sorted") + note + "".join(parts) if parts else ""


def _pair(evaluation: Reported, row: Row) -> str:
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
    return _figure(title, chart, counts)


def _sorted_values(evaluation: Reported) -> list[str]:
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
            found.append(_figure(label, chart, f"mean of values {mean:.4f}"))
    return found


def _labels(evaluation: Reported) -> list[str]:
    return evaluation[evaluation.runs[0]].labels
