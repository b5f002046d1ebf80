"""The report of an evaluation: one HTML file, which needs no network, no other file and no script to be read."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
from markupsafe import Markup

from torchrank.evaluation.figures import figures
from torchrank.evaluation.markup import clean, interval, number
from torchrank.evaluation.reported import Reported
from torchrank.evaluation.verdict import listed, verdict
from torchrank.statistics.comparison import Comparison, Head
from torchrank.statistics.paired_tests import FAMILY_TESTS
from torchrank.version import __version__

#: rows of a page of the table of queries, and the largest number of rows without the script
PAGE, MOST_ROWS = 25, 500


def report(
    evaluation: Reported,
    comparison: Comparison | None = None,
    *,
    title: str | None = None,
    about: Mapping[str, str] | None = None,
    gates: Mapping[str, bool] | None = None,
    worst: int = 10,
    level: float = 0.95,
) -> str:
    """The text of the report: arguments and errors of :meth:`torchrank.Evaluation.to_html`."""
    _check(evaluation, comparison)
    script = _file("page.js")
    page = _template().render(
        title=title or f"Evaluation of {listed(evaluation.runs)}",
        version=__version__,
        style=Markup(_file("page.css").rstrip()),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        verdict=verdict(evaluation, comparison, level),
        gates=gates,
        about=_about(evaluation, comparison, about or {}),
        summary=_summary(evaluation, level),
        interval_name=f"{100 * level:g} % interval",
        coverage=evaluation.coverage,
        charts_of_runs=figures(evaluation, comparison),
        all_queries=_queries(evaluation, comparison),
        worst=_worst(evaluation, comparison, worst),
        legend=_legend(comparison, level),
        data=_json(_data(evaluation, comparison)),
        script=Markup(script),
        comparison=comparison and _comparison(comparison),
    )
    return f"{page}\n"


@functools.cache
def _template() -> Any:
    """The page. Every value in it is cleaned of what HTML cannot hold, and escaped."""
    from jinja2 import Environment, StrictUndefined  # installed with PyTorch; imported late, because it takes a while

    page = Environment(
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else clean(value),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    page.filters |= {"number": number, "interval": interval}
    return page.from_string(_file("page.html.j2"))


def _check(evaluation: Reported, comparison: Comparison | None) -> None:
    if comparison is None:
        return
    if unknown := [one for one in comparison.systems if one not in evaluation.tables]:
        raise ValueError(
            f"Expected a comparison of {', '.join(evaluation.runs)}, got one with {unknown[0]!r}; pass the result of"
            " compare() of this evaluation"
        )
    labels = evaluation[evaluation.runs[0]].labels
    if unknown := [one for one in comparison.measures if one not in labels]:
        raise ValueError(
            f"Expected a comparison in {', '.join(labels)}, got one in {unknown[0]!r}; pass the result of compare() of"
            " this evaluation"
        )


# ---- sections --------------------------------------------------------------------------------------------------------


def _about(evaluation: Reported, comparison: Comparison | None, about: Mapping[str, str]) -> dict[str, str]:
    counts = sorted({len(table) for table in evaluation.tables.values()})
    which = "all judged queries" if evaluation.queries == "judged" else "the judged queries of each run"
    lines = {
        "Runs": ", ".join(evaluation.runs),
        **about,
        "Queries": f"{' to '.join(map(str, counts[:1] + counts[1:][-1:]))}, {which}",
        "Measures": ", ".join(evaluation[evaluation.runs[0]].labels),
    }
    if comparison:
        lines["Test"] = comparison.test
        lines["Correction"] = "by the test itself" if comparison.test in FAMILY_TESTS else comparison.correction
        lines["Alpha"] = f"{comparison.alpha:g}"
        lines["Baseline"] = comparison.baseline or "none, all pairs of runs"
    lines["Version"] = f"torchrank {__version__}"
    return lines


def _summary(evaluation: Reported, level: float) -> list[tuple[str, list[dict[str, Any]]]]:
    """The rows of each measure; a row has a mark if it is the best."""
    higher = evaluation[evaluation.runs[0]].higher_results_are_better
    by_measure: dict[str, list[dict[str, Any]]] = {}
    for row in evaluation.summary(level).rows:
        by_measure.setdefault(row["measure"], []).append(row)
    groups = []
    for label, rows in by_measure.items():
        values = [row["value"] for row in rows if not math.isnan(row["value"])]
        best = (max if higher[label] else min)(values) if len(set(values)) > 1 else math.nan
        name = label if higher[label] else f"{label}\n(lower is better)"
        groups.append((name, [{**row, "best": row["value"] == best} for row in rows]))
    return groups


def _comparison(comparison: Comparison) -> dict[str, Any]:
    columns = [(one, one.head) for one in comparison.columns if one.head]
    formats = {one.name: one.format for one in comparison.columns}
    heads = [replace(head, title=head.title.format(level=100 * comparison.level)) for _, head in columns]
    rows = comparison.table.rows
    for row in rows:
        row["cells"] = [
            _cell(head, {key: row[key] for key in head.columns or [one.name]}, formats) for one, head in columns
        ]
    return {
        "groups": [(name, [row for row in rows if row["measure"] == name]) for name in comparison.measures],
        "heads": heads,
        "warnings": comparison.warnings,
        "notes": comparison.notes,
    }


def _cell(head: Head, values: Mapping[str, Any], formats: Mapping[str, str]) -> tuple[str, str]:
    """The alignment and the text of a cell."""
    texts = [
        "yes" if one is True else "no" if one is False else number(one, formats[key]) for key, one in values.items()
    ]
    return "" if head.left else "n", "-" if "-" in texts else head.form.format(*texts)


def _queries(evaluation: Reported, comparison: Comparison | None) -> dict[str, Any]:
    """The table that the script sorts and filters; without it, the largest losses of the first pair."""
    label = evaluation[evaluation.runs[0]].labels[0]
    if pairs := _pairs(comparison):
        a, b = pairs[0]
        rows = _losses(evaluation, a, b, label, MOST_ROWS, gains=True)
        return {"about": f"{label}, {b} against {a}", "heads": [a, b, "Difference"], "rows": rows}
    run = evaluation.runs[0]
    return {"about": label, "heads": [run], "rows": _lowest(evaluation, run, label, MOST_ROWS)}


def _worst(
    evaluation: Reported, comparison: Comparison | None, most: int
) -> list[tuple[str, list[str], list[list[str]]]]:
    """Lists of the worst queries in the first measure, by pair of runs, or by run without a comparison."""
    label = evaluation[evaluation.runs[0]].labels[0]
    if comparison is None:
        return [(f"{run}, {label}", [label], _lowest(evaluation, run, label, most)) for run in evaluation.runs]
    return [
        (f"{b} against {a}, {label}", [a, b, "Difference"], _losses(evaluation, a, b, label, most))
        for a, b in _pairs(comparison)
    ]


def _legend(comparison: Comparison | None, level: float) -> dict[str, str]:
    lines = {
        "bold": "the best run of a measure, whether significantly or not",
        "interval": f"with a probability of {100 * level:g} % such an interval contains the expected value over queries"
        " like these; Student's t, or Wilson's for values of 0 and 1",
        "empty": "queries that have nothing to measure, e.g. no relevant document",
        "-": "no value",
    }
    if comparison:
        corrected = "p" if comparison.correction == "none" else "the corrected p"
        lines |= {
            "a, b": "in notes: b is the run, a the run against which it stands",
        }
        facts = {"test": comparison.test, "corrected": corrected, "alpha": comparison.alpha}
        for head in (one.head for one in comparison.columns if one.head and one.head.legend):
            lines[" ".join(head.title.lower().split())] = head.legend.format(**facts)
    lines["judged"] = "queries of the judgments; missing: those that a run lacks"
    lines["unjudged@k"] = "mean share of the first k documents that nobody has judged; they count as not relevant"
    return lines


# ---- rows of queries -------------------------------------------------------------------------------------------------


def _pairs(comparison: Comparison | None) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.pair.a, row.pair.b) for row in comparison.rows)) if comparison else []


def _losses(evaluation: Reported, a: str, b: str, label: str, most: int, gains: bool = False) -> list[list[str]]:
    """The queries with the largest losses, with those that gain or without them."""
    found = evaluation[a].deltas(evaluation[b], label, most).rows
    sign = 1 if evaluation[a].higher_is_better[label] else -1
    lost = set() if gains else set(evaluation.missing(b))
    after = {row["id"]: number(row["after"]) + " (missing)" * (row["id"] in lost) for row in found}
    return [
        [str(row["id"]), number(row["before"]), after[row["id"]], number(row["delta"], "+.4f")]
        for row in found
        if gains or row["delta"] * sign < 0
    ]


def _lowest(evaluation: Reported, run: str, label: str, most: int) -> list[list[str]]:
    """The queries with the worst values of a run."""
    found = evaluation[run]
    values = found.columns[label] if found.higher_is_better[label] else -found.columns[label]
    order = [at for at in np.argsort(values, kind="stable") if not math.isnan(values[at])][:most]
    return [[str(found.ids[at]), number(float(found.columns[label][at]))] for at in order]


def _data(evaluation: Reported, comparison: Comparison | None) -> dict[str, Any]:
    """The values of all queries, in 7 digits, in the order of ids."""
    runs = evaluation.runs
    union = np.unique(np.concatenate([found.ids for found in evaluation.tables.values()])).tolist()
    at = {one: n for n, one in enumerate(union)}
    first = evaluation[runs[0]]
    measures = []
    for label in first.labels:
        values = [_spread(evaluation[run].ids.tolist(), evaluation[run].columns[label], at) for run in runs]
        measures.append({"label": clean(label), "higher": first.higher_is_better[label], "values": values})
    pairs = [[runs.index(a), runs.index(b)] for a, b in _pairs(comparison)]
    ids = [clean(one) for one in at]
    return {"page": PAGE, "runs": [clean(run) for run in runs], "pairs": pairs, "ids": ids, "measures": measures}


def _spread(ids: Sequence[Any], values: np.ndarray, at: Mapping[Any, int]) -> list[float | None]:
    row: list[float | None] = [None] * len(at)
    for one, value in zip(ids, values.tolist()):
        row[at[one]] = float(f"{value:.7g}") if math.isfinite(value) else None
    return row


def _json(data: Any) -> Markup:
    """JSON for an element ``script``: ASCII, and without "<", which could end the element."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def _file(name: str) -> str:
    return files("torchrank.evaluation").joinpath("page", name).read_text(encoding="utf-8")
