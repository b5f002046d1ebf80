"""Spark: the evaluation of data frames that are larger than a machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

from torchrank.evaluation.evaluate import MEASURES
from torchrank.evaluation.partial import PartialEvaluation, merge
from torchrank.integrations.arrow import JUDGMENTS, SOURCE, Job, Scores, columns_of, frame_arguments
from torchrank.names.arguments import one_of, with_hints
from torchrank.tables.columns import READ, find_columns
from torchrank.wrappers.suite_metric import Suite

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

#: the setting of the most bytes of a batch, which also has a most number of rows
BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"


@with_hints
def evaluate(
    frame: DataFrame,
    run: DataFrame | Mapping[str, DataFrame] | Suite | None = None,
    measures: Suite | None = None,
    *,
    query: str | None = None,
    item: str | None = None,
    score: Scores = None,
    rank: str | None = None,
    grade: str | None = None,
    by: str | Mapping[Any, Any] | None = None,
    baseline: str | None = None,
    partitions: int | None = None,
    **options: Any,
) -> PartialEvaluation:
    """Evaluate a data frame of Spark, whose rows have scores and grades: ``evaluate(frame, "ndcg@10 map")``.

    The numbers are those of :func:`torchrank.evaluate` on one machine. Spark brings the rows of each query together,
    each partition becomes a state of a few KB, and the driver adds the states: no row is collected.

    A worker holds some 16 MB of rows at a time, or its largest query, because a query is never split: one id that
    stands for many users, as "unknown", makes one task long. Leave such rows out first.

    Args:
        frame: rows with a query, an item, a score and a grade; or judgments, if there is a run.
        run: a data frame, or several, ``{name: frame}``, which Spark joins with the judgments; or the measures.
        measures: as :func:`torchrank.evaluate`.
        query: the column of query ids, also of a run; None = found among usual names, as for all columns.
        item: the column of item ids, also of a run.
        score: the column of scores; or of one frame those of several systems, in a list or as ``{system: column}``.
        rank: the column of ranks in place of scores, 1 for the best.
        grade: the column of grades.
        by: of one frame, the column of slices, such as the country of a user; with a run, ``{query: slice}``.
        baseline: the name of the system with which others are compared, which comes first; of one frame, also another
            column of scores.
        partitions: number of partitions; None = as Spark is configured.
        options: further arguments of :func:`torchrank.partial`, which are sent to each worker.

    Returns:
        What :func:`torchrank.merge` returns: means, intervals, slices and comparisons.

    Raises:
        ReadingError: a column is missing.
        ValueError: an argument has an unknown value; ``ties="rows"``, because rows of Spark have no order; ids are text
            in one frame, and not in another.
        Exception: a worker found an error, of which Spark's PythonException has the text; or it has another version of
            torchrank than the driver.

    Example:
        >>> import torchrank as tr
        >>> # found = tr.integrations.spark.evaluate(spark.table("impressions"), "ndcg@10 map", query="user",
        >>> #     item="item", score="new", baseline="old", grade="clicked", by="country")
        >>> # found.compare()
    """
    if options.get("ties") == "rows":
        raise ValueError("Expected ties='expected' or 'document', got 'rows'; rows of Spark have no order")
    if isinstance(run, list | tuple) and any(hasattr(one, "mapInArrow") for one in run):
        raise TypeError(f"Expected a frame or {{name: frame}} as run, got a {type(run).__name__}; pass {{name: frame}}")
    names: dict[str, Any] = {"query": query, "item": item, "score": score, "rank": rank, "grade": grade}
    if hasattr(run, "mapInArrow") or isinstance(run, Mapping):
        runs: dict[Any, DataFrame] = dict(run) if isinstance(run, Mapping) else {None: run}
        if isinstance(by, str):
            raise ValueError(
                f"Expected by={{query: slice}} with judgments and runs, got the column {by!r}; pass a dict"
            )
        if baseline is not None:
            one_of("baseline", baseline, list(runs))
            runs = {baseline: runs.pop(baseline), **runs}
        rows, options = _in_one_table(frame, runs, names), options if by is None else {**options, "by": by}
        job = Job(measures or MEASURES, "query", options, tuple(runs))
    else:
        lists = {field.name for field in frame.schema if field.dataType.typeName() == "array"}
        arguments = frame_arguments(frame.columns, lists, by=by, baseline=baseline, **names)
        rows = frame.select(*map(_quoted, columns_of(arguments)))
        job = Job((run if measures is None else measures) or MEASURES, arguments["query"], {**arguments, **options})

    def states(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        for state in job.states(batches):
            yield pyarrow.RecordBatch.from_pydict({"state": [state]})

    nothing = job.state_of_nothing(rows.columns)
    whole = rows.repartition(*([partitions] if partitions else []), _quoted(job.query))
    whole = whole.sortWithinPartitions(*map(_quoted, job.order(rows.columns)))
    with _batches_of_rows(frame.sparkSession, rows):
        found = whole.mapInArrow(states, "state binary").collect()
    return merge([nothing, *(row.state for row in found)], job.measures)


def _in_one_table(judgments: DataFrame, runs: Mapping[Any, DataFrame], names: Mapping[str, Any]) -> DataFrame:
    """The rows of judgments and of runs, with the number of the run of each."""
    tables: list[DataFrame] = []
    texts: dict[str, dict[bool, str]] = {}
    for number, (name, frame) in enumerate([("judgments", judgments), *runs.items()], JUDGMENTS):
        value, source = ("grade", name) if number == JUDGMENTS else ("score", f"run {name or ''}".strip())
        chosen = {role: names[role] for role in READ[value] if names.get(role) is not None}
        way_out = "pass {}= with the name of its column"
        numbers = find_columns(chosen, frame.columns, value, source, way_out=way_out)
        columns = {role: frame.columns[place] for role, place in numbers.items()}
        for role in ("query", "item"):
            kind = frame.schema[columns[role]].dataType.typeName()
            seen = texts.setdefault(role, {})
            seen[kind == "string"] = f"{kind} in {source}"
            if len(seen) > 1:
                raise ValueError(
                    f"Expected {role} ids of one type, got {' and '.join(seen.values())}; cast one of them"
                )
        cells = {role: _quoted(column) for role, column in columns.items()}
        if "rank" in cells:
            cells["score"] = f"-{cells.pop('rank')}"
        cells = {"grade": "1", **cells} if value == "grade" else cells  # interactions are relevant
        tables.append(frame.selectExpr(*(f"{cell} as {role}" for role, cell in cells.items()), f"{number} as {SOURCE}"))
    return reduce(lambda first, second: first.unionByName(second, allowMissingColumns=True), tables)


@contextmanager
def _batches_of_rows(session: Any, rows: DataFrame) -> Iterator[None]:
    """Lift Spark's limit of bytes of a batch for a while, unless rows have lists.

    Spark adds up the bytes after each row, for up to half of the time that Arrow takes (benchmarks/TRIED.md). Batches
    of numbers and ids are small by their number of rows.
    """
    limit = session.conf.get(BYTES_PER_BATCH, None)
    if limit is None or any(field.dataType.typeName() == "array" for field in rows.schema):
        yield
        return
    session.conf.set(BYTES_PER_BATCH, str(2**31 - 1))
    try:
        yield
    finally:
        session.conf.set(BYTES_PER_BATCH, limit)


def _quoted(name: str) -> str:
    """A column as Spark's SQL names it, also with dots and blanks."""
    return "`" + name.replace("`", "``") + "`"
