"""Ray Data: the evaluation of datasets that are larger than a machine, and of models that score whole queries."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ray.data.aggregate import AggregateFnV2
from ray.data.context import ShuffleStrategy
from ray.exceptions import RayTaskError

from torchrank.evaluation.evaluate import MEASURES
from torchrank.evaluation.partial import PartialEvaluation, merge, partial
from torchrank.integrations.arrow import Job, Scores, check_version, columns_of, frame_arguments
from torchrank.names.arguments import with_hints
from torchrank.version import __version__
from torchrank.wrappers.suite_metric import Suite

if TYPE_CHECKING:
    import pyarrow
    from ray.data import Dataset

#: ways of Ray to shuffle that cannot bring equal keys together, other than by sorting
SORTING = (ShuffleStrategy.SORT_SHUFFLE_PULL_BASED, ShuffleStrategy.SORT_SHUFFLE_PUSH_BASED)


@with_hints
def evaluate(
    dataset: Dataset,
    measures: Suite = MEASURES,
    *,
    query: str | None = None,
    item: str | None = None,
    score: Scores = None,
    rank: str | None = None,
    grade: str | None = None,
    by: str | None = None,
    baseline: str | None = None,
    partitions: int | None = None,
    **options: Any,
) -> PartialEvaluation:
    """Evaluate a dataset of Ray, whose rows have scores and grades: ``evaluate(dataset, "ndcg@10 map")``.

    The numbers are those of :func:`torchrank.evaluate` on one machine. Ray brings the rows of each query together, each
    block becomes a state of a few KB, and Ray adds the states. Where a model scores whole queries nothing needs to be
    brought together: see :class:`Scorer`.

    A worker holds one partition of the rows, because Ray brings it as one block, and ranks some 16 MB of it at a time.
    A query is never split: one id that stands for many users, as "unknown", makes one block large.

    Args:
        dataset: rows with a query, an item, a score and a grade.
        measures: as :func:`torchrank.evaluate`.
        query: the column of query ids; None = found among usual names, as for all columns.
        item: the column of item ids.
        score: the column of scores; or those of several systems, in a list or as ``{system: column}``.
        rank: the column of ranks in place of scores, 1 for the best.
        grade: the column of grades.
        by: the column of slices, such as the country of a user.
        baseline: another column of scores, or the name of a system, with which others are compared; it comes first.
        partitions: number of partitions; None = as Ray is configured, 200.
        options: further arguments of :func:`torchrank.partial`, which are sent to each worker.

    Returns:
        What :func:`torchrank.merge` returns: means, intervals, slices and comparisons.

    Raises:
        ReadingError: a column is missing.
        ValueError: an argument has an unknown value; ``ties="rows"``, because shuffled rows have no order.
        Exception: what a worker raised, after Ray's RayTaskError, which has the lines of its code; or it has another
            version of torchrank.

    Example:
        >>> import torchrank as tr
        >>> # found = tr.integrations.ray.evaluate(ray.data.read_parquet("impressions"), "ndcg@10 map", query="user",
        >>> #     item="item", score="new", baseline="old", grade="clicked", by="country")
        >>> # found.compare()
    """
    if options.get("ties") == "rows":
        raise ValueError("Expected ties='expected' or 'document', got 'rows'; shuffled rows have no order")
    if hasattr(measures, "map_batches"):
        raise TypeError("Expected one dataset with scores and grades, got two; join judgments and run by query, item")
    schema = dataset.schema()
    columns = list(schema.names) if schema else []
    lists = {
        name for name in columns if re.search("list|tensor", str(schema.types[columns.index(name)]), re.IGNORECASE)
    }
    arguments = frame_arguments(
        columns, lists, query=query, item=item, score=score, rank=rank, grade=grade, by=by, baseline=baseline
    )
    job = Job(measures, arguments["query"], {**arguments, **options})
    nothing = job.state_of_nothing(columns)
    rows = dataset.select_columns(columns_of(arguments))
    if rows.context.shuffle_strategy in SORTING:
        whole = rows.sort(job.query)
    else:
        whole = rows.repartition(partitions or rows.context.default_hash_shuffle_parallelism, keys=[job.query])
    states = whole.map_batches(_states, fn_args=[job], batch_size=None, batch_format="pyarrow")
    return merge([nothing, *_found(states, measures)], measures)


def merged(states: Dataset, measures: Suite | None = None) -> PartialEvaluation:
    """The sum of the states of a dataset, such as :class:`Scorer` makes it; arguments as :func:`torchrank.merge`.

    Raises:
        ValueError: as :func:`torchrank.merge`; there is no state; or workers have another version than the driver.
        Exception: what a worker raised, such as an error of your function; Ray adds lines to its message.
    """
    total = merge(_found(states, measures), measures)
    check_version(__version__, total.facts.version)
    return total


class Scorer:
    """A class for ``map_batches`` of Ray: workers score whole queries with a model, and return the states of batches.

    Each row of the dataset is a query, such as a user with the items that are relevant to him, so nothing is brought
    together or written. :func:`merged` adds the states.

    Args:
        load: a function that each worker calls once. It returns the function of the user from a batch to a frame with
            scores and grades, or to judgments and a run, as :func:`torchrank.partial` takes them.
        measures: as :func:`torchrank.partial`.
        options: its further arguments.

    Example:
        >>> import torchrank as tr
        >>> # Scorer = tr.integrations.ray.Scorer
        >>> # states = users.map_batches(Scorer, fn_constructor_args=[load_model, "ndcg@10"], batch_size=1024,
        >>> #     num_gpus=1)
        >>> # tr.integrations.ray.merged(states)
    """

    def __init__(self, load: Callable[[], Callable[[Any], Any]], measures: Suite = MEASURES, **options: Any) -> None:
        self.score, self.measures, self.options = load(), measures, options

    def __call__(self, batch: Any) -> dict[str, list[bytes]]:
        found = self.score(batch)
        if isinstance(found, tuple):
            judgments, run = found
            state = partial(judgments, run, self.measures, closed=True, **self.options)
        else:
            state = partial(found, self.measures, **self.options)
        return {"state": [state.to_bytes()]}


class MergeStates(AggregateFnV2):
    """The sum of states in a column of a dataset of Ray, as a state: ``dataset.aggregate(MergeStates())``.

    Args:
        measures: as :func:`torchrank.merge`.
        column: the column of the states, and of the result.
    """

    def __init__(self, measures: Suite | None = None, column: str = "state") -> None:
        super().__init__(column, bytes, on=column, ignore_nulls=True)
        self.measures, self.column = measures, column

    def aggregate_block(self, block: pyarrow.Table) -> bytes:
        return merge(block[self.column].to_pylist(), self.measures).to_bytes()

    def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
        return merge([current_accumulator, new], self.measures).to_bytes()


def _states(block: pyarrow.Table, job: Job) -> dict[str, list[bytes]]:
    """The state of a block, whose queries are whole."""
    import pyarrow

    kinds = dict(zip(block.schema.names, block.schema.types))
    order = [
        name for name in job.order(kinds) if not isinstance(kinds[name], pyarrow.BaseExtensionType | pyarrow.ListType)
    ]
    batches = block.sort_by([(name, "ascending") for name in order]).to_batches(max_chunksize=10_000)
    return {"state": list(job.states(batches))}


def _found(states: Dataset, measures: Suite | None) -> list[bytes]:
    """The sum of the states of a dataset; nothing if there are none. Raises the error of a worker, not Ray's."""
    context = states.context
    before, context.raise_original_map_exception = context.raise_original_map_exception, True
    try:
        total = states.aggregate(MergeStates(measures))
    except RayTaskError as error:
        raise error.cause from error
    finally:
        context.raise_original_map_exception = before
    return [total["state"]] if total and total["state"] else []
