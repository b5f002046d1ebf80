"""The tables of the pages, computed from a file of results alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.plan import COMPILED, NUMBERS, OURS
from benchmarks.report import Report

#: largest number of cores that other processes may use without a note
MUCH = 0.2
SHOWN = {OURS: "", COMPILED: "compiled ", NUMBERS: "to the numbers "}
#: the rows of the short table: title, workload, torchrank's contender, another contender, the quantity of both
SHORT = (
    ("Learning to rank: {what}", "ltr: no ties", NUMBERS, "torchmetrics, nDCG alone", "median_ms"),
    ("TREC run: {what}", "run", NUMBERS, "ranx", "median_ms"),
    ("Evaluation of a file: {what}", "files: 1,000,000 lines", OURS, "pytrec_eval", "median_ms"),
    ("Next item: {what}", "next_item", NUMBERS, "PyG, topk(100) and metrics", "median_ms"),
    ("Link prediction: {what}", "link_prediction", OURS, "PyKEEN, ranks unfiltered", "median_ms"),
    (
        "Bytes that each worker sends for one result (4 workers, 10,000 queries each)",
        "sync",
        f"{OURS}, many",
        "torchmetrics, many",
        "bytes",
    ),
)
UNITS = {"median_ms": "ms", "bytes": "bytes"}


def tables(report: Report) -> str:
    """All tables and notes of a report, in Markdown."""
    parts = [heading(report)]
    if report["workloads"]:
        parts.append(workloads(report["workloads"]))
        parts += notes(report["workloads"])
    if report["scaling"]:
        parts.append(scaling(report["scaling"]))
        parts += notes(report["scaling"])
    return "\n\n".join(parts)


def heading(report: Report) -> str:
    """Machine, versions and date."""
    machine, versions = report["machine"], report["versions"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads"
    where = f"{machine['gpu']}, CUDA {machine['cuda']}" if "gpu" in machine else where
    told = [f"Python {versions['python']}"]
    told += [f"{name} {found}" for name, found in versions.items() if found and name not in ("python", "commit")]
    of = f" of commit {versions['commit']}" if versions["commit"] else ""
    quick = " Quick run on small shapes: these times mean nothing." if report["quick"] else ""
    return f"{where}; {', '.join(told)}; {report['date']}{of}. Medians in ms (quartiles).{quick}"


# ---- the short table ------------------------------------------------------------------------------------------------


def short(report: Report) -> str:
    """A table of a few workloads, each with one other library, in Markdown.

    The ratio is the value of the other library divided by torchrank's.
    """
    machine = report["machine"]
    where = f"{machine.get('gpu', machine['cpu'])}, {machine['cores']} cores, {report['date']}"
    lines = []
    for title, key, ours, other, quantity in SHORT:
        row = report["workloads"].get(key, {"contenders": {}})
        both = [row["contenders"].get(name, {}) for name in (ours, other)]
        if all(quantity in result for result in both):
            shown = [_with_unit(result, quantity) for result in both]
            ratio = number(both[1][quantity] / both[0][quantity])
            name = other.removesuffix(", many")
            lines.append([title.format(what=row["what"]), shown[0], f"{name}: {shown[1]}", ratio])
    return _markdown([where, OURS, "another library", "other / torchrank"], lines)


def _with_unit(result: dict[str, Any], quantity: str) -> str:
    of = f" of {result['metrics']} metrics" if "metrics" in result else ""
    return f"{number(result[quantity])} {UNITS[quantity]}{of}"


# ---- workloads -----------------------------------------------------------------------------------------------------


def workloads(rows: dict[str, Any]) -> str:
    """A table with a line for each workload."""
    header = ["workload", OURS, "floor", "of the floor", "others"]
    return _markdown(header, [_line(key, row) for key, row in rows.items()])


def _line(key: str, row: dict[str, Any]) -> list[str]:
    contenders, floor = row["contenders"], row["floor"]
    own = [name for name in contenders if name.startswith(OURS)]
    others = [name for name in contenders if name not in (*own, floor)]
    return [
        f"**{key}** {row['what']}",
        "; ".join(f"{SHOWN.get(name, f'{name}: ')}{_result(contenders[name])}" for name in own),
        f"{floor} {_result(contenders[floor])}" if floor in contenders else "",
        "; ".join(_to_floor(row)),
        "; ".join([*(_other(row, name) for name in others), *_bounds(row, others)]),
    ]


def _result(result: dict[str, Any], spread: bool = True) -> str:
    """The result of a contender as text."""
    if "median_ms" not in result:
        return ""
    low, high = (number(ms) for ms in result["quartiles_ms"])
    parts = [number(result["median_ms"]) + (f" ({low} to {high})" if spread else "")]
    parts += [f"{result['gb_per_s']:.0f} GB/s"] if result.get("gb_per_s", 0) >= 1 else []
    parts += [f"{result['metrics']} metrics"] if "metrics" in result else []
    if count := result.get("collectives"):
        parts.append(f"{count} collective{'s' * (count > 1)}, {result['bytes']:,} bytes")
    return ", ".join(parts)


def _to_floor(row: dict[str, Any]) -> list[str]:
    """torchrank's times divided by the floor's, with their targets if there are any."""
    told = []
    for name in (OURS, COMPILED):
        asked = [t for t in row["targets"] if t["contender"] == name and t["versus"] == row["floor"] is not None]
        for target in asked:
            told.append(SHOWN[name] + _asked(target, " x its speed" if target["at_least"] else ""))
        ratio = row["contenders"].get(name, {}).get("to_floor")
        if ratio is not None and not asked:
            told.append(SHOWN[name] + number(ratio))
    return told


def _other(row: dict[str, Any], name: str) -> str:
    told = f"{name} {_result(row['contenders'][name], spread=False)}"
    asked = [_asked(t, _unit(t)) for t in row["targets"] if t["versus"] == name]
    return f"{told}: {', '.join(asked)}" if asked else told


def _unit(target: dict[str, Any]) -> str:
    """The unit of a ratio: the other contender divided by torchrank, or torchrank divided by it."""
    if target["at_least"]:
        return " times as long"
    return " of its memory" if target["quantity"] == "peak_mb" else " of its time"


def _bounds(row: dict[str, Any], others: list[str]) -> list[str]:
    """Targets that compare with neither the floor nor another measured contender."""
    names = {"peak_mb": "MB of memory", "median_ms": "ms"}
    told = []
    for target in row["targets"]:
        versus = target["versus"]
        if versus is None or versus not in (row["floor"], *others):
            what = names.get(target["quantity"], target["quantity"]) + (f" against {versus}" if versus else "")
            told.append(f"{what}: {_asked(target)}")
    return told


def _asked(target: dict[str, Any], unit: str = "") -> str:
    """The value of a target, with its bound."""
    bound = f"{'at least' if target['at_least'] else 'at most'} {target['limit']:g}"
    if target["met"] is None:
        return f"not measured ({bound})"
    told = number(target["value"]) + unit
    return f"{told} ({bound})" if target["met"] else f"**{told}** ({bound}: missed)"


def notes(rows: dict[str, Any]) -> list[str]:
    """Notes on numbers that differ, times that are not reliable, and contenders that were skipped."""
    skipped = [f"- {key}, {name}: {why}" for key, row in rows.items() for name, why in row.get("skipped", {}).items()]
    wrong = [
        f"- **{key}: other numbers than {check['against']}**, by {check['difference']} ({', '.join(check['labels'])})"
        for key, row in rows.items()
        for check in row.get("checks", [])
        if not check["agree"]
    ]
    busy = [
        f"- **{key}: measured beside other work**, which took {cores} cores"
        for key, row in rows.items()
        if (cores := row["measured"]["cores_of_others"]) and cores > MUCH
    ]
    return ["\n".join(part) for part in (wrong, busy, skipped) if part]


# ---- scaling -------------------------------------------------------------------------------------------------------


def scaling(rows: dict[str, Any]) -> str:
    """A table with a line for each doubled size."""
    header = ["workload", "", "ms", "growth", "growth of the floor", "peak MB", "growth"]
    lines = []
    for key, row in rows.items():
        for point, result in row["points"].items():
            quantities = ("median_ms", "median_ms_growth", "floor_median_ms_growth", "peak_mb", "peak_mb_growth")
            found = [result.get(quantity) for quantity in quantities]
            lines.append([f"**{key}** {row['what']}", point, *("" if v is None else number(v) for v in found)])
    return _markdown(header, lines)


def _markdown(header: list[str], lines: Iterable[list[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def number(value: float) -> str:
    """A number with three digits, and with all digits before the decimal point."""
    if value >= 100 or value in (0, 1):
        return f"{value:,.0f}"
    return f"{value:.{1 if value >= 10 else 2 if value >= 1 else 3}f}"
