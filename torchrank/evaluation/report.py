"""The report of an evaluation: one HTML file, which needs no network, no other file and no script to be read."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from torchrank.evaluation.figures import figures
from torchrank.evaluation.markup import Best, Head, clean, escaped, interval, number, table, tag
from torchrank.evaluation.reported import Reported
from torchrank.evaluation.verdict import listed, verdict
from torchrank.statistics.comparison import Comparison
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
    sections = [
        ("Input and settings", _about(evaluation, comparison, about or {})),
        ("Summary", _summary(evaluation, level)),
        ("Comparison", _comparison(comparison) if comparison else ""),
        ("Coverage", _coverage(evaluation)),
        ("Charts", figures(evaluation, comparison)),
        ("Queries", _queries(evaluation, comparison)),
        ("Largest losses" if comparison else "Lowest values", _worst(evaluation, comparison, worst)),
        ("How to read this", _legend(comparison, level)),
    ]
    return Template(_file("page.html")).substitute(
        title=escaped(title or f"Evaluation of {listed(evaluation.runs)}"),
        version=escaped(__version__),
        style=_file("page.css").rstrip(),
        verdict=tag("p", escaped(verdict(evaluation, comparison, level)), class_="verdict") + _gates(gates or {}),
        sections="\n".join(_section(heading, inner) for heading, inner in sections if inner),
        data=_json(_data(evaluation, comparison)),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


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


def _section(heading: str, inner: str) -> str:
    return tag("section", tag("h2", escaped(heading)) + inner)


def _gates(gates: Mapping[str, bool]) -> str:
    words = {True: "passed", False: "failed"}
    items = (
        tag("li", tag("strong", words[passed]) + tag("span", escaped(text)), class_=words[passed])
        for text, passed in gates.items()
    )
    return tag("ul", "".join(items), class_="gates") if gates else ""


def _about(evaluation: Reported, comparison: Comparison | None, about: Mapping[str, str]) -> str:
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
    return _terms(lines)


def _summary(evaluation: Reported, level: float) -> str:
    found = evaluation.summary(level)
    heads = [
        Head("Measure", numeric=False),
        Head("Run", numeric=False),
        Head("Value"),
        Head(f"{100 * level:g} % interval"),
        Head("Standard\nerror"),
        Head("Queries"),
        Head("Empty", title="queries that have nothing to measure"),
    ]
    higher = evaluation[evaluation.runs[0]].higher_results_are_better
    groups = []
    for label in dict.fromkeys(found["measure"]):
        rows = [row for row in found.rows if row["measure"] == label]
        values = [row["value"] for row in rows if not math.isnan(row["value"])]
        best = (max if higher[label] else min)(values) if len(set(values)) > 1 else math.nan
        name = label if higher[label] else f"{label}\n(lower is better)"
        groups.append((name, [_estimate(row, best) for row in rows]))
    return table(heads, groups, "Summary")


def _estimate(row: Mapping[str, Any], best: float) -> list[str]:
    value = number(row["value"])
    return [
        row["run"],
        Best(value) if row["value"] == best else value,
        interval(row["low"], row["high"]),
        number(row["standard error"]),
        number(row["queries"], "d"),
        number(row["empty"], "d"),
    ]


def _comparison(comparison: Comparison) -> str:
    margin = comparison.margin is not None
    heads = [
        Head("Measure", numeric=False),
        Head("Run", numeric=False),
        Head("Against", numeric=False),
        Head("Mean"),
        Head("Other\nmean"),
        Head("Difference"),
        Head(f"{100 * comparison.level:g} % interval"),
        Head("p"),
        Head("p\ncorrected"),
        Head("Winner", numeric=False),
        Head("Effect", title="difference in standard deviations of the differences"),
        Head("Better,\nequal,\nworse", title="numbers of queries"),
        Head("n", title="queries that are compared"),
        *([Head("Equivalent", numeric=False), Head("Not worse", numeric=False)] if margin else []),
    ]
    described = comparison.table.rows
    groups = [
        (measure, [_pair(row) for row in described if row["measure"] == measure]) for measure in comparison.measures
    ]
    shown = table(heads, groups, "Comparison", id="comparison")
    return shown + _list(comparison.warnings, "warnings") + _list(comparison.notes, "notes")


def _pair(row: Mapping[str, Any]) -> list[str]:
    verdicts = {True: "yes", False: "no", None: "-"}
    return [
        row["b"],
        row["a"],
        number(row["mean_b"]),
        number(row["mean_a"]),
        number(row["difference"], "+.4f"),
        interval(row["low"], row["high"], "+.4f"),
        number(row["p"], ".2g"),
        number(row["p_corrected"], ".2g"),
        row["winner"] or "-",
        number(row["effect"], "+.3f"),
        f"{row['wins']}, {row['ties']}, {row['losses']}",
        number(row["n"], "d"),
        *(verdicts[row[name]] for name in ("equivalent", "not_worse") if name in row),
    ]


def _coverage(evaluation: Reported) -> str:
    found = evaluation.coverage
    names = {name: name[:1].upper() + name[1:] for name in found.columns}
    heads = [Head(names[name], numeric=name != "run") for name in found.columns]
    rows = [[number(value, "d" if isinstance(value, int) else ".4f") for value in row.values()] for row in found.rows]
    return table(heads, [(None, rows)], "Coverage") + _list(found.notes, "warnings")


def _queries(evaluation: Reported, comparison: Comparison | None) -> str:
    """The table that the script sorts and filters; without it, the largest losses of the first pair."""
    labels = evaluation[evaluation.runs[0]].labels
    pairs = _pairs(comparison)
    if pairs:
        a, b = pairs[0]
        rows = _losses(evaluation, a, b, labels[0], MOST_ROWS, gains=True)
        about, heads = f"{labels[0]}, {b} against {a}", [a, b, "Difference"]
    else:
        rows = _lowest(evaluation, evaluation.runs[0], labels[0], MOST_ROWS)
        about, heads = labels[0], evaluation.runs[:1]
    columns = [Head("Query", numeric=False), *map(Head, heads)]
    text = f"Without JavaScript this table has one order, the worst first, and {len(rows)} queries: {about}."
    script_off = tag("noscript", tag("p", escaped(text), class_="notes"))
    return _controls() + script_off + table(columns, [(None, rows)], "Queries", id="queries") + _pager()


def _controls() -> str:
    measure = tag("label", "Measure" + tag("select", id="measure"))
    pair = tag("label", "Runs" + tag("select", id="pair"))
    find = tag("label", "Query contains" + '<input id="find" type="search" autocomplete="off">')
    return tag("div", measure + pair + find, class_="controls", hidden="")


def _pager() -> str:
    before, after = (
        tag("button", "Previous", type="button", id="before"),
        tag("button", "Next", type="button", id="after"),
    )
    return tag("div", before + after + tag("output", id="status"), class_="controls", hidden="")


def _worst(evaluation: Reported, comparison: Comparison | None, most: int) -> str:
    """Lists of the worst queries in the first measure, by pair of runs, or by run without a comparison."""
    label = evaluation[evaluation.runs[0]].labels[0]
    found: list[tuple[str, list[str], list[list[str]]]] = []
    for a, b in _pairs(comparison):
        found.append((f"{b} against {a}, {label}", [a, b, "Difference"], _losses(evaluation, a, b, label, most)))
    for run in [] if comparison else evaluation.runs:
        found.append((f"{run}, {label}", [label], _lowest(evaluation, run, label, most)))
    return tag("div", "".join(_list_of(*one) for one in found), class_="lists")


def _list_of(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = [Head("Query", numeric=False), *map(Head, heads)]
    inner = table(columns, [(None, rows)], title) if rows else tag("p", "No query.")
    return tag("div", tag("h3", escaped(title)) + inner)


def _legend(comparison: Comparison | None, level: float) -> str:
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
            "n": "number of compared queries; one that a run lacks counts 0, if means are over judged queries",
            "difference": "mean of the run - mean of the other run; its interval is not corrected for several pairs",
            "p": f"probability of a difference at least as large if the runs were equally good; {comparison.test} test",
            "winner": f"the better run, if {corrected} is at most {comparison.alpha:g}; else no difference is shown",
            "effect": "difference in standard deviations of the differences, with Hedges' correction",
            "better, equal, worse": "numbers of queries on which the run beats the other run, ties with it, and loses",
        }
    lines["judged"] = "queries of the judgments; missing: those that a run lacks"
    lines["unjudged@k"] = "mean share of the first k documents that nobody has judged; they count as not relevant"
    return _terms(lines)


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


# ---- parts -----------------------------------------------------------------------------------------------------------


def _terms(lines: Mapping[str, str]) -> str:
    return tag("dl", "".join(tag("dt", escaped(name)) + tag("dd", escaped(text)) for name, text in lines.items()))


def _list(found: Sequence[str], kind: str) -> str:
    return tag("ul", "".join(tag("li", escaped(one)) for one in found), class_=kind) if found else ""


def _json(data: Any) -> str:
    """JSON for an element ``script``: ASCII, and without "<", which could end the element."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _file(name: str) -> str:
    return files("torchrank.evaluation").joinpath("page", name).read_text(encoding="utf-8")
