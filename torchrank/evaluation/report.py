"""The report of an evaluation: one HTML file, which needs no network, no other file and no script to be read."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from torchrank.evaluation.curves import worst_first
from torchrank.evaluation.figures import figures
from torchrank.evaluation.markup import interval
from torchrank.evaluation.reported import Reported, first_table
from torchrank.evaluation.verdict import listed, verdict
from torchrank.names.optional import imported
from torchrank.statistics.comparison import Comparison
from torchrank.statistics.paired_tests import FAMILY_TESTS
from torchrank.statistics.table import Score, Table, cell, printable
from torchrank.version import __version__

#: rows of a page of the table of queries, and the largest number of rows without the script
PAGE, MOST_ROWS = 25, 500


def report(
    evaluation: Reported,
    comparison: Comparison | None,
    slices: Table | None,
    *,
    title: str | None,
    about: Mapping[str, str] | None,
    gates: Mapping[str, bool] | None,
    worst: int,
    level: float,
) -> str:
    """The text of the report: arguments and errors of :meth:`torchrank.Evaluation.to_html`."""
    _check(evaluation, comparison)
    script = _file("page.js")
    page = _template().render(
        title=title or f"Evaluation of {listed(evaluation.runs)}",
        version=__version__,
        style=_file("page.css").rstrip(),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        verdict=verdict(evaluation, comparison, level),
        gates=gates,
        about=_about(evaluation, comparison, about or {}),
        paper=comparison and evaluation.table(comparison),
        summary=_summary(evaluation, evaluation.summary(level), level),
        slices=slices and _summary(evaluation, slices, level),
        coverage=evaluation.coverage,
        charts_of_runs=figures(evaluation, comparison),
        all_queries=_queries(evaluation, comparison, MOST_ROWS, [0])[0],
        worst=_queries(evaluation, comparison, worst),
        legend=_legend(comparison, level),
        data=_json(_data(evaluation, comparison)),
        script=script,
        comparison=comparison and _comparison(comparison),
        warnings=comparison and comparison.warnings,
        notes=comparison and comparison.notes,
    )
    return f"{page}\n"


@functools.cache
def _template() -> Any:
    """The page. Every value in it is cleaned of characters that command a browser, and escaped."""
    jinja2, markup = imported("jinja2", "report"), imported("markupsafe", "report").Markup  # late: it takes a while
    page = jinja2.Environment(
        autoescape=True,
        finalize=lambda value: value if isinstance(value, markup) else printable(str(value)),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    page.filters["html"] = lambda table, *arguments: markup(table.with_notes().to_html(*arguments))
    return page.from_string(_file("page.html.j2"))


def _check(evaluation: Reported, comparison: Comparison | None) -> None:
    for kind, known, used in (
        ("of", evaluation.runs, comparison.systems if comparison else ()),
        ("in", first_table(evaluation).labels, comparison.measures if comparison else ()),
    ):
        # slices of a measure are named like ndcg@10/slice
        if unknown := [x for x in used if x not in known and not x.startswith(tuple(f"{name}/" for name in known))]:
            raise ValueError(
                f"Expected a comparison {kind} {', '.join(known)}, got one {'with' if kind == 'of' else kind}"
                f" {unknown[0]!r}; pass the result of compare() of this evaluation"
            )


# ---- sections --------------------------------------------------------------------------------------------------------


def _about(evaluation: Reported, comparison: Comparison | None, about: Mapping[str, str]) -> dict[str, str]:
    counts = sorted({len(table) for table in evaluation.tables.values()})
    which = "all judged queries" if evaluation.queries == "judged" else "the judged queries of each run"
    lines = {
        "Runs": ", ".join(evaluation.runs),
        **about,
        "Queries": f"{' to '.join(map(str, counts[:1] + counts[1:][-1:]))}, {which}",
        "Measures": ", ".join(first_table(evaluation).labels),
    }
    if comparison:
        lines["Test"] = comparison.test
        lines["Correction"] = "by the test itself" if comparison.test in FAMILY_TESTS else comparison.correction
        lines["Alpha"] = f"{comparison.alpha:g}"
        lines["Baseline"] = comparison.baseline or "none, all pairs of runs"
    lines["Version"] = f"torchrank {__version__}"
    return lines


def _summary(evaluation: Reported, table: Table, level: float) -> Table:
    """The rows of each measure, or of its slices, with the best value in bold."""
    measures = [*dict.fromkeys(table["measure"])]
    rows = sorted(table.rows, key=lambda row: measures.index(row["measure"]))
    better = first_table(evaluation).higher_results_are_better
    higher = {name: next(up for label, up in better.items() if f"{name}/".startswith(f"{label}/")) for name in measures}
    values = {label: [row["value"] for row in rows if row["measure"] == label] for label in higher}
    known = {label: {value for value in values[label] if not math.isnan(value)} for label in higher}
    best = {label: (max if higher[label] else min)(known[label]) for label in higher if len(known[label]) > 1}
    return Table.of_rows([
        {
            "Measure": f"{row['measure']}{'' if higher[row['measure']] else ' (lower is better)'}",
            "Run": row["run"],
            "Value": Score(row["value"], best=row["value"] == best.get(row["measure"])),
            f"{100 * level:g} % interval": interval(row["low"], row["high"]),
            "Standard error": row["standard error"],
            "Queries": row["queries"],
            "Empty": row["empty"],
        }
        for row in rows
    ])  # fmt: skip


def _comparison(comparison: Comparison) -> Table:
    table, columns, formats = comparison.table, {}, {}
    for column in comparison.columns:
        if head := column.head:
            title = head.title.format(level=100 * comparison.level)
            columns[title] = table[column.name]
            formats[title] = column.format
            if head.columns:
                parts = [[cell(value, table.formats.get(name, "")) for value in table[name]] for name in head.columns]
                columns[title] = ["-" if "-" in texts else head.form.format(*texts) for texts in zip(*parts)]
    return Table(columns, {title: spec for title, spec in formats.items() if spec})


def _queries(
    evaluation: Reported, comparison: Comparison | None, most: int, pairs: Sequence[int] | None = None
) -> list[tuple[str, Table]]:
    """The worst queries in the first measure: for each pair of runs the largest losses, or the lowest values of a run.

    Args:
        evaluation: the evaluation.
        comparison: its comparison; None for the only run.
        most: number of queries.
        pairs: the numbers of the pairs whose gains are listed, too; None = all pairs, without gains.
    """
    label = first_table(evaluation).labels[0]
    if comparison is None:
        run = evaluation.runs[0]
        return [(f"{run}, {label}", _renamed(worst_first(evaluation[run], label, most), ["Query", label]))]
    lists = []
    for a, b in _pairs(comparison) if pairs is None else [_pairs(comparison)[number] for number in pairs]:
        table = (
            evaluation.losses(a, b, label, most) if pairs is None else evaluation[a].deltas(evaluation[b], label, most)
        )
        lists.append((f"{b} - {a}, {label}", _renamed(table, ["Query", a, b, "b - a"])))
    return lists


def _renamed(table: Table, names: Sequence[str]) -> Table:
    """A table of queries with other names of its columns, of which two may be equal."""
    unique = [f"{name}{' ' * names[:n].count(name)}" for n, name in enumerate(names)]
    columns = {name: table[column] for name, column in zip(unique, table.columns)}
    columns[unique[0]] = [str(query) for query in columns[unique[0]]]
    return Table(columns, {unique[3]: "+.4f"} if len(names) > 3 else {})


def _legend(comparison: Comparison | None, level: float) -> dict[str, str]:
    lines = {
        "bold": "the best run of a measure, whether significantly or not",
        "interval": f"with a probability of {100 * level:g} % such an interval contains the expected value over queries"
        " like these; Student's t, or Wilson's for values of 0 and 1. An interval by Student's t can reach beyond the"
        " range of the measure",
        "empty": "queries without a value, which the mean leaves out; by default, a query without a relevant document"
        " has the value 0",
        "-": "no value",
    }
    if comparison:
        corrected = "p" if comparison.correction == "none" else "the corrected p"
        lines |= {"a, b": "the two runs that a row compares; every difference is b - a"}
        facts = {"test": comparison.test, "corrected": corrected, "alpha": comparison.alpha}
        for head in (column.head for column in comparison.columns if column.head and column.head.legend):
            lines[head.title.lower()] = head.legend.format(**facts)
    lines["judged"] = "queries of the judgments; missing: those that a run lacks"
    lines["unjudged@k"] = "mean share of the first k documents that nobody has judged; they count as not relevant"
    return lines


# ---- rows of queries -------------------------------------------------------------------------------------------------


def _pairs(comparison: Comparison | None) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row.pair.a, row.pair.b) for row in comparison.rows)) if comparison else []


def _data(evaluation: Reported, comparison: Comparison | None) -> dict[str, Any]:
    """The values of all queries, in 7 digits, in the order of ids."""
    runs = evaluation.runs
    union = np.unique(np.concatenate([table.ids for table in evaluation.tables.values()])).tolist()
    position = {query: n for n, query in enumerate(union)}
    first = first_table(evaluation)
    measures = []
    for label in first.labels:
        values = [_spread(evaluation[run].ids.tolist(), evaluation[run].columns[label], position) for run in runs]
        measures.append({"label": printable(label), "higher": first.higher_is_better[label], "values": values})
    pairs = [[runs.index(a), runs.index(b)] for a, b in _pairs(comparison)]
    ids = [printable(str(query)) for query in position]
    return {"page": PAGE, "runs": list(map(printable, runs)), "pairs": pairs, "ids": ids, "measures": measures}


def _spread(ids: Sequence[Any], values: np.ndarray, position: Mapping[Any, int]) -> list[float | None]:
    row: list[float | None] = [None] * len(position)
    for query, value in zip(ids, values.tolist()):
        row[position[query]] = float(f"{value:.7g}") if math.isfinite(value) else None
    return row


def _json(data: Any) -> str:
    """JSON for an element ``script``: ASCII, and without "<", which could end the element."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _file(name: str) -> str:
    return files("torchrank.evaluation").joinpath("page", name).read_text(encoding="utf-8")
