"""The result of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from torchrank.display import Score, Table
from torchrank.evaluation.plots import Plots
from torchrank.evaluation.report import first_table, listed, report
from torchrank.metrics.binary import Recall
from torchrank.names.arguments import integer
from torchrank.names.parse import Named
from torchrank.ranking.ranking import Ranking
from torchrank.state.sums import Interval
from torchrank.statistics.comparison import Comparison, compare
from torchrank.statistics.intervals import check_share
from torchrank.wrappers.compared import Rectified
from torchrank.wrappers.grouped import GROUPS, Reduce
from torchrank.wrappers.per_query import QueryTable


@dataclass(frozen=True, eq=False)
class Evaluation(Plots):
    """Numbers of one or several runs over the same judgments, made by :func:`torchrank.evaluate`.

    | for | use |
    |---|---|
    | means and intervals | :attr:`means`, :meth:`intervals`, :meth:`summary`, :meth:`by` groups of queries |
    | the values of each query | ``results["bm25"]["ndcg@10"]``, of a :class:`torchrank.QueryTable` |
    | which run is better | :meth:`compare`, :meth:`differences` |
    | surprising numbers | :attr:`coverage`, :meth:`missing` |
    | files and plots | :meth:`to_html`, :meth:`to_csv`, :meth:`to_pandas`, :meth:`to_json`, ``plot_*`` |

    Attributes:
        tables: for each run the values of all queries, a :class:`torchrank.QueryTable` with the ids of the judgments.
        other: the same over the other set of queries, for runs that lack judged queries.
        rows: the rows of :attr:`coverage`.
        queries: "judged" or "both", the queries over which means are taken.
        ignored_identical_ids: whether documents with the id of their query were left out.
        rankings: for each run the ranking of the judged documents, with the queries of ``tables`` in their order;
            empty if only values were given.
        ties: the order of equal scores: "document", "rows", or "expected", the mean over all of their orders.
        unlabelled: sentences on runs whose documents are hardly judged, alone or next to those of another run.
        rectified: with judgments of people, the :class:`torchrank.Rectified` of means and comparisons, which says how
            many more queries people have to judge; None without. All else is by the judge.
        reduce: how the values of the queries of a group become one value, see :meth:`grouped`; None = there are no
            groups.
    """

    tables: Mapping[str, QueryTable]
    other: Mapping[str, QueryTable]
    rows: Sequence[Mapping[str, Any]]
    queries: str
    ignored_identical_ids: bool = False
    rankings: Mapping[str, Ranking] = field(default_factory=dict)
    ties: str = "document"
    unlabelled: Sequence[str] = ()
    rectified: Rectified | None = None
    reduce: str | None = None

    @classmethod
    def of_values(
        cls,
        ids: Any,
        values: Mapping[str, Mapping[str, Any]],
        answered: Mapping[str, Any],
        facts: Mapping[str, Mapping[str, int]],
        ties: str = "document",
    ) -> Self:
        """An evaluation of given values per query, shares from 0 to 1 where higher is better.

        Args:
            ids: the ids of the queries.
            values: for each run the values [query] of each measure by its label.
            answered: for each run bool [query], the queries that it does not lack.
            facts: for each run further columns of the coverage.
            ties: as in the constructor.
        """
        ids = np.array(ids, dtype=np.int64 if all(isinstance(query, int) for query in ids) else object)
        share = Recall()  # for its range and direction
        tables = {
            run: QueryTable(ids, columns, metrics=dict.fromkeys(columns, share)) for run, columns in values.items()
        }
        other = {run: tables[run].where(inside) for run, inside in answered.items() if not inside.all()}
        rows = [
            {"run": run, "queries": len(ids), "missing": int((~answered[run]).sum()), **more}
            for run, more in facts.items()
        ]
        return cls(tables, other, rows, "judged", ties=ties)

    @cached_property
    def _means(self) -> dict[str, dict[str, float]]:
        if self.rectified is None:
            return {name: table.values() for name, table in self.tables.items()}
        rows = self.summary().rows
        return {name: {row["measure"]: row["value"] for row in rows if row["run"] == name} for name in self.tables}

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """The value of each measure, by run and by the name of the measure as it was given.

        Example:
            >>> import torchrank as tr
            >>> means = tr.evaluate({"q1": {"a": 1}}, {"bm25": {"q1": {"b": 2.0, "a": 1.0}}}, "P_5 mrr").means
            >>> means["bm25"], means["bm25"]["precision@5"]
            ({'P_5': 0.2, 'mrr': 0.5}, 0.2)
        """
        return Named({name: Named(values) for name, values in self._means.items()})

    def intervals(self, level: float = 0.95) -> dict[str, dict[str, Interval]]:
        """The confidence interval of each measure, by run and label: (low, high)."""
        by_run: dict[str, dict[str, Interval]] = Named()
        for name in self.tables:
            rows = [row for row in self.summary(level) if row["run"] == name]
            by_run[name] = Named({row["measure"]: Interval(row["low"], row["high"]) for row in rows})
        return by_run

    def summary(self, level: float = 0.95) -> Table:
        """A table with a row for every run and measure: value, standard error, interval and numbers of queries."""
        if self.rectified is not None:
            summary = self.rectified.summary(level)
            keys = [(run, label) for label in first_table(self).labels for run in self.runs]
            rows = [{"run": run, **row, "measure": label} for (run, label), row in zip(keys, summary.rows)]
            rows.sort(key=lambda row: self.runs.index(row["run"]))
            more = "how many more to judge: rectified.queries_needed(width), or --width"
            return Table.of_rows(rows, summary.formats, [*summary.notes, more, *self._tied, *self._others()])
        summaries = {name: table.summary(level) for name, table in self.tables.items()}
        first = next(iter(summaries.values()))
        return Table.of_rows(rows_of_runs(summaries), notes=[first.notes[0], *self._tied, *self._others()])

    def by(self, slices: Mapping[Any, Any] | None = None, level: float = 0.95) -> Table:
        """A table with a row for every run, measure and slice.

        Args:
            slices: a dict from query id to slice; None = the column ``by`` of :func:`torchrank.evaluate`.
            level: the probability that an interval contains the expected value.

        Raises:
            ValueError: there is no such column, or as :meth:`torchrank.QueryTable.by`.
        """
        self._refuse_people("slices")
        by_slice = {name: table.by(slices, level) for name, table in self.tables.items()}
        return Table.of_rows(rows_of_runs(by_slice), notes=self._tied)

    def grouped(
        self,
        reduce: Reduce = "min",
        groups: str | Mapping[Any, Any] | None = None,
        order: Mapping[Any, Any] | None = None,
    ) -> Evaluation:
        """The evaluation of groups of queries, each with one value: paraphrases, turns, subqueries.

        Measures are ``ndcg@10/min`` and so on, and groups are the queries of means, intervals, comparisons and files.
        Curves of rankings stay those of the queries.

        Args:
            reduce: "min", "max", "mean", "all" or "last", see :class:`torchrank.Grouped`.
            groups: a separator, "_" for ids such as ``group_1`` (what is before the last one is the group); or a dict
                from the id of each query to its group; None = the column ``by`` of :func:`torchrank.evaluate`.
            order: for "last", a dict from the id of each query to its number in the group.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.QueryTable.grouped`.

        Example:
            >>> import torchrank as tr
            >>> qrels = {"a_1": {"x": 1}, "a_2": {"x": 1}, "b_1": {"y": 1}}
            >>> run = {"a_1": {"x": 1.0}, "a_2": {"z": 2.0, "x": 1.0}, "b_1": {"y": 1.0}}
            >>> tr.evaluate(qrels, run, "mrr").grouped("min", "_").means["run"]
            {'mrr/min': 0.75}
        """
        self._refuse_people("groups")

        def by_group(table: QueryTable) -> QueryTable:
            if not isinstance(groups, str):
                return table.grouped(reduce, groups, order)
            ids = table.ids.tolist()
            if not groups or (ids and not any(isinstance(key, str) and groups in key for key in ids)):
                got = repr(ids[0]) if ids else "none"
                raise ValueError(f"Expected ids of queries with the separator {groups!r}, got {got}; pass another one")
            known = {key: key.rpartition(groups)[0] or key if isinstance(key, str) else key for key in ids}
            return table.grouped(reduce, known, order)

        tables, other = ({name: by_group(table) for name, table in each.items()} for each in (self.tables, self.other))
        return replace(self, tables=tables, other=other, reduce=reduce)

    @property
    def _tied(self) -> list[str]:
        notes = {"expected": "have the mean over all of their orders", "rows": "rank in the order of the rows"}
        tied = [f"equal scores {notes[self.ties]}"] if self.ties in notes else []
        return [*tied, *([] if self.reduce is None else [GROUPS])]

    @property
    def coverage(self) -> Table:
        """A table with a row for every run: how the queries and documents of judgments and run fit together.

        | column | content |
        |---|---|
        | queries | number of queries over which means are taken |
        | judged | number of queries in the judgments |
        | missing | judged queries that the run lacks |
        | not in the judgments | queries of the run that are not judged; they are left out |
        | no relevant | judged queries without a relevant document |
        | unjudged@k | mean share of unjudged documents in the first k ranks |
        | not retrieved | judged documents that are not in the run, up to `depth`, also of queries that it lacks |
        | same id as query | queries that have retrieved a document with the same id |
        """
        notes, left = self._others(), "such documents are left out"
        if not self.ignored_identical_ids:
            left = "ignore_identical_ids=True, in the command --ignore-identical-ids, leaves such documents out"
        for row in self.rows:
            run, count = row["run"], row.get("same id as query", 0)
            # A user and an item with one number are not the same.
            if count > 0.01 * max(1, row["queries"]) and any(
                isinstance(query, str) and not query.isdecimal() for query in self.tables[run].ids.tolist()
            ):
                notes.append(f"{run}: {count} queries have retrieved a document with the same id; {left}")
        warnings = [f"Warning: {text}" for text in self.unlabelled]
        return Table.of_rows(list(self.rows), notes=[*notes, *warnings])

    def missing(self, name: str) -> list[Any]:
        """The ids of the judged queries that a run lacks; they count 0 in means over judged queries.

        Raises:
            KeyError: there is no such run.

        Example:
            >>> import torchrank as tr
            >>> tr.evaluate({"q1": {"a": 1}, "q2": {"b": 1}}, {"q1": {"a": 0.5}}, "mrr").missing("run")
            ['q2']
        """
        tables = [self[name], self.other.get(name, self[name])]
        judged, both = (table.ids.tolist() for table in (tables if self.queries == "judged" else reversed(tables)))
        scored = set(both)
        return [query for query in judged if query not in scored]

    def compare(
        self, baseline: str | None = None, *, by: Mapping[Any, Any] | bool | None = None, **options: Any
    ) -> Comparison:
        """The comparison of the runs, query by query: arguments of :func:`torchrank.compare`.

        Args:
            baseline: the run with which each other one is compared; None compares all pairs.
            by: the slice of each query, by its id; the slices are compared, too, as ``ndcg@10/slice``. A query without
                a slice is in none. True = the column ``by`` of :func:`torchrank.evaluate`.
            options: further arguments of :func:`torchrank.compare`.

        Raises:
            ValueError: there is one run only, or as :func:`torchrank.compare`.
        """
        if len(self.tables) < 2:
            raise ValueError(
                f"Expected two or more runs to compare, got {', '.join(self.runs)}; pass the judgments and the runs:"
                " tr.evaluate(qrels, {'a': run, 'b': other}). A data frame can be both"
            )
        by = None if by is False else by
        if self.rectified is not None:
            if by is not None:
                self._refuse_people("slices")
            options.pop("seed", None)  # the t test draws nothing
            comparison = self.rectified.comparison(baseline, **options)
        else:
            groups = None if by is True else by
            tables = self.tables if by is None else {name: x.sliced(groups) for name, x in self.tables.items()}
            comparison = compare(tables, baseline, missing="drop" if self.queries == "both" else "error", **options)
        return replace(comparison, warnings=(*comparison.warnings, *self.unlabelled))

    def table(self, comparison: Comparison | None = None, digits: int = 4) -> Table:
        """The table of a paper: a row for each run, a column for each measure, letters of significance, best in bold.

        Its ``to_latex`` (for booktabs), ``to_markdown`` and ``to_html`` print the best in bold.

        Args:
            comparison: the result of :meth:`compare`; None = ``compare()``, if there are several runs.
            digits: decimals of the means.

        Raises:
            TypeError: ``comparison`` is something else.

        Example:
            >>> import torchrank as tr
            >>> qrels = {f"q{n}": {"a": 1} for n in range(9)}
            >>> bm25 = {f"q{n}": {"b": n % 2, "a": 0.5} for n in range(9)}
            >>> runs = {"bm25": bm25, "dense": {query: {"a": 1} for query in qrels}}
            >>> print(tr.evaluate(qrels, runs, "mrr P_1").table(digits=2).to_latex().partition("%")[0])
            \\begin{tabular}{llrr}
            \\toprule
             & system & mrr & P\\_1 \\\\
            \\midrule
            a & bm25 & 0.78 & 0.56 \\\\
            b & dense & \\textbf{1.00}$^{a}$ & \\textbf{1.00}$^{a}$ \\\\
            \\bottomrule
            \\end{tabular}
            <BLANKLINE>
        """
        if not isinstance(comparison, Comparison | None):
            way_out = "for LaTeX, Markdown or HTML call table().to_latex(), to_markdown() or to_html()"
            raise TypeError(f"Expected comparison to be what compare() returns, got {comparison!r}; {way_out}")
        if len(self.tables) > 1:
            return (comparison or self.compare()).leaderboard(digits)
        means, labels = self.means.values(), first_table(self).labels
        columns = {label: [Score(values[label]) for values in means] for label in labels}
        return Table({"system": self.runs, **columns}, dict.fromkeys(columns, f".{digits}f"))

    def differences(self, a: str, b: str, measure: str) -> Table:
        """The differences of two runs, query by query, the largest losses of ``b`` first, then by id.

        Args:
            a: the name of the first run, the baseline.
            b: the name of the second run.
            measure: the label of a measure of this evaluation.

        Returns:
            A table with the columns id, before (the value of ``a``), after (of ``b``) and delta = after - before.
            Queries without a value in one of the runs are left out.

        Raises:
            KeyError: there is no such run.
            ValueError: there is no such measure, or the runs have no query in common.

        Example:
            >>> import torchrank as tr
            >>> qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
            >>> runs = {"bm25": {"q1": {"a": 1.0}, "q2": {"b": 1.0}}, "dense": {"q1": {"c": 2.0, "a": 1.0}, "q2": {}}}
            >>> tr.evaluate(qrels, runs, "mrr").differences("bm25", "dense", "mrr")
            id  before   after    delta
            q2  1.0000  0.0000  -1.0000
            q1  1.0000  0.5000  -0.5000
            mrr, 2 common queries
        """
        return self[a].deltas(self[b], measure, most=None)

    def losses(self, a: str, b: str, measure: str, most: int | None = None) -> Table:
        """The queries in which run ``b`` is worse than run ``a``, the largest losses first.

        Returns:
            The table of :meth:`differences`. A value of ``b`` is marked if the run lacks the query.
        """
        sign = 1 if self[a].higher_is_better[measure] else -1
        rows = [row for row in self[a].deltas(self[b], measure, most).rows if row["delta"] * sign < 0]
        lost = set(self.missing(b))
        for row in rows:
            row["after"] = Score(row["after"], " (missing)" * (row["id"] in lost))
        return Table.of_rows(rows, columns=("id", "before", "after", "delta"), notes=[f"{measure}: {b} - {a}"])

    def _others(self) -> list[str]:
        """A note on each run whose mean over the other queries differs."""
        notes = []
        for name, table in self.other.items():
            values = [f"{label} {value:.4f}" for label, value in table.values().items()]
            shown = values if len(values) <= 6 else values[:4]
            if len(values) > len(shown):
                other = "both" if self.queries == "judged" else "judged"
                shown = [*shown, f"{len(values) - len(shown)} more with queries={other!r} (--queries {other})"]
            queries = "judged query" if len(table) == 1 else f"{len(table)} judged queries"
            if self.reduce is not None:
                queries = "group of queries" if len(table) == 1 else f"{len(table)} groups of queries"
            where = f"on the {queries} that it answers" if self.queries == "judged" else f"on all {queries}"
            notes.append(f"{name}: {where}: {', '.join(shown)}")
            lower = [label for label, higher in table.higher_is_better.items() if not higher]
            if lower and self.queries == "judged":
                count = len(self.tables[name]) - len(table)
                notes.append(
                    f"Warning: {name} lacks {count} judged queries, which have no value of {', '.join(lower)}: an empty"
                    " list would look good there; compare runs of the same queries"
                )
        return notes

    @property
    def has_slices(self) -> bool:
        """Whether :func:`torchrank.evaluate` was given a column ``by``, and values by one file of judgments."""
        return self.rectified is None and all(table.groups is not None for table in self.tables.values())

    def _printed(self) -> tuple[Table, ...]:
        """The summary, the slices if there are some, and the coverage, with each note once."""
        summary, tables = self.summary(), [*([self.by()] if self.has_slices else []), self.coverage]
        return summary, *(table.without_notes(summary) for table in tables)

    def _in_one_table(self) -> Table:
        """The rows of the summary, and those of the slices if there are some."""
        return Table.of_rows([row for table in self._printed()[:-1] for row in table])

    def __repr__(self) -> str:
        return "\n\n".join(map(str, self._printed()))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self._printed())

    def to_markdown(self) -> str:
        """The summary and the coverage in Markdown."""
        return "\n\n".join(table.to_markdown() for table in self._printed())

    def to_latex(self) -> str:
        """The table of a paper in LaTeX, for the package booktabs: :meth:`table`."""
        return self.table().to_latex()

    def to_csv(self, path: str | Path | None = None) -> str:
        r"""The summary, and the slices if there are some, in full precision: :meth:`torchrank.Table.to_csv`.

        Args:
            path: a file to write, in UTF-8; None = none.

        Returns:
            The text of the file: a row for every run and measure, and for every slice.

        Example:
            >>> import torchrank as tr
            >>> tr.evaluate({"q1": {"a": 1}}, {"q1": {"b": 2.0, "a": 1.0}}, "mrr").to_csv()
            'run,measure,value,standard error,low,high,queries,empty\nrun,mrr,0.5,,,,1,0\n'
        """
        return self._in_one_table().to_csv(path)

    def to_pandas(self) -> Any:
        """The rows of :meth:`to_csv` as a ``pandas.DataFrame``; ``results["bm25"].to_pandas()`` has the queries.

        Raises:
            ImportError: pandas is not installed.
        """
        return self._in_one_table().to_pandas()

    def to_polars(self) -> Any:
        """The rows of :meth:`to_csv` as a ``polars.DataFrame``.

        Raises:
            ImportError: polars is not installed.
        """
        return self._in_one_table().to_polars()

    def to_dict(self) -> dict[str, Any]:
        """All numbers, in values that JSON has; NaN is None."""
        return {
            "queries": self.queries,
            "summary": self.summary().to_dict(),
            **({"by": self.by().to_dict()} if self.has_slices else {}),
            "coverage": self.coverage.to_dict(),
            "per_query": {name: Table(table.to_dict()).to_dict() for name, table in self.tables.items()},
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        comparison: Comparison | None = None,
        title: str | None = None,
        about: Mapping[str, str] | None = None,
        gates: Mapping[str, bool] | None = None,
        worst: int = 10,
        level: float = 0.95,
        by: Mapping[Any, Any] | None = None,
    ) -> str:
        """A report in one HTML file: verdict, tables, charts, and the values of all queries.

        The file loads nothing, and the same evaluation gives the same bytes. A script in it sorts and filters the
        queries; all else can be read without scripts. The first measure decides the verdict.

        Args:
            path: a file to write, in UTF-8; None = none.
            comparison: the result of :meth:`compare`; None = ``compare()``, if there are several runs.
            title: the title; None = the names of the runs.
            about: further facts by name, e.g. files and their digests.
            gates: whether each condition holds, by its text.
            worst: number of queries in the lists of the largest losses.
            level: the level of the intervals of means.
            by: the slice of each query, by its id, for a table of slices; None = the column ``by`` of
                :func:`torchrank.evaluate`. A query without a slice is in none.

        Returns:
            The text of the file.

        Raises:
            ValueError: the comparison has other runs or measures, or as :meth:`compare`.
            ImportError: jinja2 is not installed, which PyTorch brings along.
            OSError: the file cannot be written.

        Example:
            >>> import torchrank as tr
            >>> qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
            >>> runs = {"bm25": {"q1": {"a": 1.0}, "q2": {"b": 1.0}}, "dense": {"q1": {"a": 1.0}, "q2": {"c": 1.0}}}
            >>> page = tr.evaluate(qrels, runs, "mrr").to_html(about={"Judgments": "qrels.txt"})
            >>> "bm25 is best in mrr" in page
            True
        """
        self._refuse_people("reports")
        integer("worst", worst, least=1, or_none=False)
        check_share("level", level)
        if comparison is None and len(self.tables) > 1:
            comparison = self.compare()
        slices = None
        if by is not None or self.has_slices:
            ids = [query for table in self.tables.values() for query in table.ids.tolist()]
            slices = self.by(by and {query: by.get(query) for query in ids}, level)
        title = title or f"Evaluation of {listed(self.runs)}"
        text = report(self, comparison, slices, worst, level, title=title, about=about or {}, gates=gates)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8", newline="\n")
        return text


def rows_of_runs(tables: Mapping[str, Table]) -> list[dict[str, Any]]:
    """The rows of the tables of all runs, with the name of the run, without effective numbers of queries."""
    rows = [{"run": name, **row} for name, table in tables.items() for row in table.rows]
    return [{column: value for column, value in row.items() if column != "effective"} for row in rows]
