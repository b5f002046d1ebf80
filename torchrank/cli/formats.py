"""The formats of the results of ``torchrank eval``, ``compare`` and ``power``, and of their errors."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from torchrank.display import Table, finite, printable, shortened

#: ways out of errors that only Python has, and the calls that have them
IN_PYTHON = {
    "by tr.read_qrels(": "tr.evaluate(tr.read_qrels(path, columns=...), run)",
    "by tr.read_run(": "tr.evaluate(qrels, tr.read_run(path, columns=...))",
}
#: arguments of Python that are options of the command
OPTIONS = (
    *("queries", "precision", "ties", "ignore_identical_ids", "depth", "relevance_level", "unjudged", "preset"),
    *("duplicates", "expansion", "parent"),
    *("baseline", "test", "correction", "family", "alpha", "seed", "power", "delta"),
)
_ARGUMENT = re.compile(rf"(?<![^ ])({'|'.join(OPTIONS)})=('[^']*'(?: or '\w+')?|True|[\d.]+\b|(?=,))")
_CALL = re.compile(rf"\bby tr\.read_\w+\(source, ((?:{'|'.join(OPTIONS)})=[^)]+)\)")


def refused(command: str, error: Exception, status: int) -> int:
    """Print an error as :func:`in_shell`, and its notes; the exit status."""
    for text in (in_shell(error), *getattr(error, "__notes__", ())):
        print(f"torchrank{command and ' '}{command}: {printable(text)}", file=sys.stderr)
    return status


def in_shell(message: object) -> str:
    """A message with options of the command for arguments of Python, and the call of ways out that only Python has."""

    def option(argument: re.Match[str]) -> str:
        value = argument[2].replace("'", "")
        return f"--{argument[1].replace('_', '-')}" + ("" if value in ("True", "") else f" {value}")

    text = _ARGUMENT.sub(option, _CALL.sub(r"with \1", str(message)))
    calls = [call for way_out, call in IN_PYTHON.items() if way_out in text]
    return f"{text}; in Python: {calls[0]}" if calls else text


if TYPE_CHECKING:
    from torchrank.evaluation.evaluation import Evaluation

#: all formats, and those that hold several tables; the others hold one
FORMATS = ("table", "json", "jsonl", "csv", "markdown", "latex", "html")
SEVERAL = ("table", "json", "markdown", "html")

#: columns that a narrow terminal does not show, the first to go first; some go together
DROPPED = (
    *("weight", "unpaired", "effect", "n", "wins, ties, losses"),
    *("no relevant", "same id as query", "not retrieved", "not in the judgments"),
    *("mean_a, mean_b", "empty", "p", "standard error", "queries", "low, high", "p_corrected"),
)

#: the fewest characters to which a text is cut
SHORTEST = 8


def width_of(wide: bool) -> float:
    """The number of characters in a line of the terminal; no bound if there is none, or if ``wide``."""
    return math.inf if wide else shutil.get_terminal_size((math.inf, 24)).columns  # type: ignore[arg-type]


def fitted(table: Table, width: float) -> Table:
    """A table in lines of at most ``width`` characters: columns are left out, and named below; then texts are cut."""

    def excess() -> float:
        return sum(table.widths) + 2 * (len(table.columns) - 1) - width

    lacking: list[str] = []
    for group in (*DROPPED, *reversed(table.columns[2:])):
        if excess() <= 0:
            break
        # the corrected p stands for both
        if gone := [name for name in group.split(", ") if name in table and (name != "p" or "p_corrected" in table)]:
            table = table.of([name for name in table.columns if name not in gone])
            lacking += gone
    while (over := excess()) > 0 and max(table.widths) > SHORTEST:
        name, widest = max(zip(table.columns, table.widths), key=lambda column: column[1])
        most = max(SHORTEST, widest - int(over))
        texts = [shortened(value, most) if isinstance(value, str) else value for value in table[name]]
        if texts == table[name]:
            break
        table = Table({**{key: table[key] for key in table.columns}, name: texts}, table.formats, table.notes)
    note = [f"columns hidden: {', '.join(lacking)}; --wide shows them"] if lacking else []
    return table.with_notes(*note, *table.notes)


def wrapped(text: str, width: float) -> str:
    """A text whose lines are wrapped at ``width`` characters."""
    if width == math.inf:
        return text
    options: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
    lines = ([line] if len(line) <= width else textwrap.wrap(line, int(width), **options) for line in text.split("\n"))
    return "\n".join(line for pieces in lines for line in pieces)


def formatted(table: Table, kind: str, width: float) -> str:
    """A table as text in one of :data:`FORMATS`, but "json", in which a result is one document."""
    if kind == "table":
        return wrapped(str(fitted(table, width)), width)
    if kind == "jsonl":
        return "\n".join(map(json.dumps, rows_of(table)))
    return str(getattr(table, f"to_{kind}")()).rstrip("\n")


def rows_of(table: Table) -> list[dict[str, Any]]:
    """The rows in values that JSON has."""
    return [{name: finite(value) for name, value in row.items()} for row in table]


def means_of(evaluation: Evaluation) -> dict[str, dict[str, Any]]:
    """The value of each measure by run, in values that JSON has."""
    return {run: {name: finite(value) for name, value in values.items()} for run, values in evaluation.means.items()}


def show(text: str) -> None:
    """Print a result; on a terminal without the characters that command it, which ids may have."""
    print(printable(text, "\t\n") if sys.stdout.isatty() else text)


def per_query(evaluation: Evaluation) -> str:
    """All values of all queries: run, query, measure, value, separated by tabs."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(["run", "query", "measure", "value"])
    for name, table in evaluation.tables.items():
        for label, values in table.columns.items():
            writer.writerows([name, query, label, value] for query, value in zip(table.ids.tolist(), values.tolist()))
    return text.getvalue()
