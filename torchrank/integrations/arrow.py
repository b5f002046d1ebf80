"""Arrow batches in, bytes out: the state of a partition, which Spark and Ray share."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from torchrank.evaluation.partial import PartialEvaluation, merge, partial
from torchrank.tables.columns import find_columns
from torchrank.version import __version__
from torchrank.wrappers.suite_metric import Suite

if TYPE_CHECKING:
    import pyarrow

#: bytes of Arrow, about, that are ranked at once: hundreds of thousands of rows
BULK = 2**24
#: the column with the number of the run of a row, where rows of judgments and of runs are in one table
SOURCE, JUDGMENTS = "source", -1

Scores = str | Sequence[str] | Mapping[str, str] | None


@dataclass(frozen=True)
class Job:
    """What a worker does with a partition; it comes from the driver.

    Args:
        measures: as :func:`torchrank.partial`.
        query: the column of query ids, by which the rows of a partition are sorted.
        options: further arguments of :func:`torchrank.partial`.
        runs: the names of the runs, where rows of judgments and of runs are in one table; None = a run without a name.
        version: the version of the driver.
    """

    measures: Suite
    query: str
    options: Mapping[str, Any]
    runs: Sequence[str | None] = ()
    version: str = __version__

    def order(self, columns: Iterable[str]) -> list[str]:
        """The columns to sort a partition by: the query; all if duplicates go, so that engines keep the same row."""
        others = (name for name in columns if name != self.query)
        return [self.query, *(others if self.options.get("duplicates", "error") != "error" else ())]

    def states(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[bytes]:
        """The state of all batches of a partition, as bytes; nothing if it has no rows.

        Raises:
            ValueError: the worker has another version than the driver.
        """
        check_version(self.version, __version__)
        bulks = map(self.state, whole_queries(batches, self.query))
        if (first := next(bulks, None)) is not None:
            yield merge([first, *bulks], self.measures).to_bytes()

    def state(self, table: pyarrow.Table) -> PartialEvaluation:
        """The state of a table of whole queries."""
        if not self.runs:
            return partial(table, self.measures, **self.options)
        tables = {name: _rows_of(table, number, "score") for number, name in enumerate(self.runs)}
        runs = {name: rows if len(rows) else {} for name, rows in tables.items()}
        judgments = _rows_of(table, JUDGMENTS, "grade")
        return partial(judgments, runs.get(None, runs), self.measures, closed=True, **self.options)

    def state_of_nothing(self, columns: Sequence[str]) -> PartialEvaluation:
        """The state of a table without rows: wrong arguments raise on the driver, before anything is read."""
        import pyarrow

        return self.state(pyarrow.table({name: pyarrow.nulls(0) for name in columns}))


def check_version(driver: str, worker: str) -> None:
    """Raise if a worker has another version than the driver."""
    if driver != worker:
        way_out = "install one version on all machines"
        raise ValueError(f"Expected torchrank {driver}, as the driver has, got {worker} on a worker; {way_out}")


def frame_arguments(
    names: Sequence[str], lists: Container[str], score: Scores, by: Any, baseline: str | None, **columns: str | None
) -> dict[str, Any]:
    """The arguments of :func:`torchrank.partial` that name the columns of a frame with grades in the rows.

    Args:
        names: the names of all columns.
        lists: the names of the columns whose rows are lists.
        score: a column; or several, in a list or by the name of the system; None = found by its usual names.
        by: the column of slices; None = no slices.
        baseline: another column of scores, or the name of a system, which comes first.
        columns: the other columns; None = found by usual names, or none.
    """
    systems = {name: name for name in ([score] if isinstance(score, str) else score or ())}
    systems = dict(score) if isinstance(score, Mapping) else systems
    named = {**columns, "group": by, "score": next(iter(systems.values()), None)}
    numbers = find_columns(
        {role: column for role, column in named.items() if column is not None}, names, "both", "frame", item=False,
        way_out="pass {}= with the name of its column", has_lists=lambda number: names[number] in lists,
    )  # fmt: skip
    found: dict[str, Any] = {"by" if role == "group" else role: names[number] for role, number in numbers.items()}
    if baseline is not None:
        systems = systems or {found["score"]: found["score"]}
        systems = {baseline: systems.pop(baseline, baseline), **systems}
    if baseline is not None or not isinstance(score, str | None):
        found["score"] = systems
    return found


def columns_of(arguments: Mapping[str, Any]) -> list[str]:
    """The columns that arguments of :func:`frame_arguments` name."""
    each = ([*names.values()] if isinstance(names, Mapping) else [names] for names in arguments.values())
    return list(dict.fromkeys(chain.from_iterable(each)))


def whole_queries(batches: Iterable[pyarrow.RecordBatch], query: str) -> Iterator[pyarrow.Table]:
    """Tables of whole queries, of about BULK bytes, from batches that are sorted by query; a query may cross batches.

    Memory holds one table, or the largest query.
    """
    import pyarrow
    from pyarrow import compute

    held, size = list[Any](), 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size < BULK:
            continue
        table, size = pyarrow.Table.from_batches(held), 0
        start = compute.index(table[query], table[query][-1]).as_py()  # of the last query, whose rows may go on
        if start:
            yield table[:start]
            held = table[start:].to_batches()
    if sum(map(len, held)):
        yield pyarrow.Table.from_batches(held)


def _rows_of(table: pyarrow.Table, source: int, value: str) -> pyarrow.Table:
    """The rows of judgments, or of a run, in a table of all; ``value`` is the column of grades or of scores."""
    from pyarrow import compute

    rows = table.filter(compute.equal(table[SOURCE], source))
    return rows.drop_columns([SOURCE, "grade" if value == "score" else "score"])
