"""The verdict of an evaluation in one sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchrank.evaluation.markup import interval, number
from torchrank.evaluation.reported import Reported
from torchrank.statistics.comparison import Comparison, Row


def verdict(evaluation: Reported, comparison: Comparison | None, level: float = 0.95) -> str:
    """The best run in the first measure, and the runs than which it is significantly better."""
    label = evaluation[evaluation.runs[0]].labels[0]
    values = {run: found[label] for run, found in evaluation.means.items() if math.isfinite(found[label])}
    if not values:
        return f"No run has a value of {label}."
    higher = evaluation[evaluation.runs[0]].higher_results_are_better[label]
    best = (max if higher else min)(values.values())
    leaders = [run for run, value in values.items() if value == best]
    if comparison is None:
        run = evaluation.runs[0]
        low_high = interval(*evaluation.intervals(level)[run][label])
        return (
            f"{run}: {label} {number(best)}, {100 * level:g} % interval {low_high}, {_queries(len(evaluation[run]))}."
        )
    rows = [row for row in comparison.rows if row.pair.measure == label]
    if rows and all(row.pair.identical for row in rows):
        return f"The runs are equal in {label} ({number(best)}): no query differs."
    if len(leaders) > 1:
        return f"{listed(leaders)} share the best mean in {label}, {number(best)}."
    return f"{leaders[0]} is best in {label}, {number(best)}: {_against_others(leaders[0], rows, comparison)}."


def _against_others(best: str, rows: Sequence[Row], comparison: Comparison) -> str:
    """The verdicts on the best run and each other one."""
    better: list[str] = []
    undecided: list[str] = []
    untested: list[str] = []
    for row in rows:
        if best in (row.pair.a, row.pair.b):
            other = row.pair.a if row.pair.b == best else row.pair.b
            found = better if comparison.winner(row) == best else untested if math.isnan(row.p_corrected) else undecided
            found.append(other)
    apart = [run for run in comparison.systems if run not in (best, *better, *undecided, *untested)]
    parts = [f"significantly better than {listed(better)}"] if better else []
    parts += [f"not significantly better than {listed(undecided)}"] if undecided else []
    parts += [f"no test was possible against {listed(untested)}"] if untested else []
    parts += [f"not compared with {listed(apart)}"] if apart else []
    correction = "" if len(comparison.systems) < 3 or comparison.correction == "none" else f", {comparison.correction}"
    return f"{'; '.join(parts)} ({comparison.test} test{correction}, alpha {comparison.alpha:g})"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d", "e", "f"])
        ('a, b and c', 'a, b, c, d and 2 more')
    """
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


def _queries(count: int) -> str:
    return f"{count} quer{'y' if count == 1 else 'ies'}"
