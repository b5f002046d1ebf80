"""The result of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchrank.names.nearest import did_you_mean
from torchrank.state.estimates import Interval
from torchrank.statistics.compare import compare
from torchrank.statistics.comparison import Comparison
from torchrank.statistics.table import Table
from torchrank.wrappers.query_table import QueryTable


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Numbers of one or several runs over the same judgments, made by :func:`torchrank.evaluate`.

    Attributes:
        tables: for each run the values of all queries, a :class:`torchrank.QueryTable` with the ids of the judgments.
        other: the same over the other set of queries, for runs that lack judged queries.
        rows: the rows of :attr:`coverage`.
        queries: "judged" or "both", the queries over which means are taken.
        ignored_identical_ids: whether documents with the id of their query were left out.
    """

    tables: Mapping[str, QueryTable]
    other: Mapping[str, QueryTable]
    rows: Sequence[Mapping[str, Any]]
    queries: str
    ignored_identical_ids: bool = False

    @property
    def runs(self) -> list[str]:
        """The names of the runs."""
        return list(self.tables)

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """The value of each measure, by run and label."""
        return {name: _values(table) for name, table in self.tables.items()}

    def intervals(self, level: float = 0.95) -> dict[str, dict[str, Interval]]:
        """The confidence interval of each measure, by run and label: (low, high)."""
        found = {}
        for name, table in self.tables.items():
            rows = table.summary(level).rows
            found[name] = {row["measure"]: Interval(row["low"], row["high"]) for row in rows}
        return found

    def summary(self, level: float = 0.95) -> Table:
        """A table with a row for every run and measure: value, standard error, interval and numbers of queries."""
        rows = [{"run": name, **row} for name, table in self.tables.items() for row in table.summary(level).rows]
        rows = [{k: v for k, v in row.items() if k != "effective"} for row in rows]
        first = next(iter(self.tables.values())).summary(level)
        return Table.of_rows(rows, notes=[first.notes[0], *self._others()])

    def by(self, slices: Mapping[Any, Any], level: float = 0.95) -> Table:
        """A table with a row for every run, measure and slice; ``slices`` is a dict from query id to slice."""
        rows = [{"run": name, **row} for name, table in self.tables.items() for row in table.by(slices, level).rows]
        return Table.of_rows([{k: v for k, v in row.items() if k != "effective"} for row in rows])

    @property
    def coverage(self) -> Table:
        """A table with a row for every run: how the queries and documents of judgments and run fit together.

        | column | content |
        |---|---|
        | queries | number of queries over which means are taken |
        | judged | number of queries in the judgments |
        | missing | judged queries that the run lacks |
        | without judgments | queries of the run that are not judged; they are left out |
        | no relevant | judged queries without a relevant document |
        | unjudged@k | mean share of unjudged documents in the first k ranks |
        | found itself | queries that have retrieved a document with their own id |
        """
        left = "such documents are left out"
        if not self.ignored_identical_ids:
            left = "ignore_identical_ids=True leaves such documents out"
        notes = [
            f"{row['run']}: {row['found itself']} queries have retrieved themselves; {left}"
            for row in self.rows
            if row["found itself"] > 0.01 * max(1, row["queries"])
        ]
        return Table.of_rows(list(self.rows), notes=[*self._others(), *notes])

    def compare(self, baseline: str | None = None, **options: Any) -> Comparison:
        """The comparison of the runs, query by query: arguments of :func:`torchrank.compare`.

        Raises:
            ValueError: there is one run only, or as :func:`torchrank.compare`.
        """
        if len(self.tables) < 2:
            raise ValueError(
                f"Expected two or more runs to compare, got {', '.join(self.runs)}; evaluate {{name: run}}"
            )
        return compare(self.tables, baseline, missing="drop" if self.queries == "both" else "error", **options)

    def __getitem__(self, name: str) -> QueryTable:
        if name not in self.tables:
            raise KeyError(f"Expected one of {', '.join(self.runs)}, got {name!r}{did_you_mean(name, self.runs)}")
        return self.tables[name]

    def _others(self) -> list[str]:
        """A note on each run whose mean over the other queries differs."""
        where = "that the run has, too" if self.queries == "judged" else "of the judgments"
        notes = []
        for name, table in self.other.items():
            values = ", ".join(f"{label} {value:.4f}" for label, value in _values(table).items())
            notes.append(f"{name}: over the {len(table)} queries {where}: {values}")
            lower = [label for label, higher in table.higher_is_better.items() if not higher]
            if lower and self.queries == "judged":
                count = len(self.tables[name]) - len(table)
                notes.append(
                    f"Warning: {name} lacks {count} judged queries, which have no value of {', '.join(lower)}: an empty"
                    " list would look good there; compare runs of the same queries"
                )
        return notes

    def _printed(self) -> tuple[Table, Table]:
        """The summary and the coverage, with each note once."""
        summary = self.summary()
        return summary, self.coverage.without_notes(summary)

    def __repr__(self) -> str:
        return "\n\n".join(map(str, self._printed()))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self._printed())

    def to_markdown(self) -> str:
        """The summary and the coverage in Markdown."""
        return "\n\n".join(table.to_markdown() for table in self._printed())

    def to_dict(self) -> dict[str, Any]:
        """All numbers, in values that JSON has; NaN is None."""
        return {
            "queries": self.queries,
            "summary": self.summary().to_dict(),
            "coverage": self.coverage.to_dict(),
            "per_query": {name: Table(table.to_dict()).to_dict() for name, table in self.tables.items()},
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)


def _values(table: QueryTable) -> dict[str, float]:
    """The value of each measure, in double precision."""
    return dict(zip(table.labels, table.summary()["value"]))
