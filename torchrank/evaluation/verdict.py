"""The verdict of an evaluation in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchrank.evaluation.curves import queries_of
from torchrank.evaluation.markup import interval
from torchrank.evaluation.reported import Reported, first_table
from torchrank.statistics.comparison import Comparison
from torchrank.statistics.table import cell


def verdict(evaluation: Reported, comparison: Comparison | None, level: float = 0.95) -> str:
    """The best run in the first measure, and the runs than which it is significantly better."""
    label = first_table(evaluation).labels[0]
    values = {run: means[label] for run, means in evaluation.means.items() if math.isfinite(means[label])}
    if not values:
        return f"No run has a value of {label}."
    higher = first_table(evaluation).higher_results_are_better[label]
    best = (max if higher else min)(values.values())
    leaders = [run for run, value in values.items() if value == best]
    if comparison is None:
        run = evaluation.runs[0]
        low_high = interval(*evaluation.intervals(level)[run][label])
        return (
            f"{run}: {label} {cell(best)}, {100 * level:g} % interval {low_high}, {queries_of([len(evaluation[run])])}."
        )
    if all(row.pair.identical for row in comparison.rows if row.pair.measure == label):
        return f"The runs are equal in {label} ({cell(best)}): no query differs."
    if len(leaders) > 1:
        return f"{listed(leaders)} share the best mean in {label}, {cell(best)}."
    return f"{leaders[0]} is best in {label}, {cell(best)}: {_against_others(leaders[0], label, comparison)}."


def _against_others(best: str, label: str, comparison: Comparison) -> str:
    """The verdicts on the best run and each other one."""
    rows = [row for row in comparison.rows if row.pair.measure == label and best in (row.pair.a, row.pair.b)]
    tested = {row.pair.a if row.pair.b == best else row.pair.b: not math.isnan(row.p_corrected) for row in rows}
    better = comparison.beaten(best, label)
    others = [run for run in comparison.systems if run not in (best, *better)]
    parts = {
        "significantly better than": better,
        "not significantly better than": [run for run in others if tested.get(run)],
        "no test was possible against": [run for run in others if tested.get(run) is False],
        "not compared with": [run for run in others if run not in tested],
    }
    said = "; ".join(f"{what} {listed(runs)}" for what, runs in parts.items() if runs)
    correction = "" if len(comparison.systems) < 3 or comparison.correction == "none" else f", {comparison.correction}"
    return f"{said} ({comparison.test} test{correction}, alpha {comparison.alpha:g})"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d", "e", "f"])
        ('a, b and c', 'a, b, c, d and 2 more')
    """
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])
