"""The formats of the results of ``torchrank eval``, ``compare`` and ``power``."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchrank.statistics.table import printable

if TYPE_CHECKING:
    from torchrank.evaluation.evaluation import Evaluation
    from torchrank.statistics.table import Table

#: all formats, and those that hold several tables; the others hold one
FORMATS = ("table", "json", "jsonl", "csv", "markdown", "latex")
SEVERAL = ("table", "json", "markdown")


def formatted(table: Table, kind: str) -> str:
    """A table as text in one of :data:`FORMATS`, but "json", in which a result is one document."""
    if kind == "table":
        return str(table)
    if kind == "markdown":
        return table.to_markdown()
    if kind == "latex":
        return table.to_latex()
    if kind == "csv":
        return table.to_csv().rstrip("\n")
    return "\n".join(map(json.dumps, rows_of(table)))


def rows_of(table: Table) -> list[dict[str, Any]]:
    """The rows in values that JSON has."""
    columns = table.to_dict()
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def show(text: str) -> None:
    """Print a result; on a terminal without the characters that command it, which ids may have."""
    print(printable(text, "\t\n") if sys.stdout.isatty() else text)


def print_json(values: Mapping[str, Any]) -> None:
    """Print a document in JSON; NaN is refused."""
    print(json.dumps(values, allow_nan=False))


def per_query(found: Evaluation) -> str:
    """All values of all queries: run, query, measure, value, separated by tabs."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(["run", "query", "measure", "value"])
    for name, table in found.tables.items():
        for label, values in table.columns.items():
            writer.writerows([name, query, label, value] for query, value in zip(table.ids.tolist(), values.tolist()))
    return text.getvalue()
