"""The values of several systems, in the forms that users have, matched by their query ids."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np

from torchrank.names.arguments import one_of

Array = np.ndarray

#: the measure of values that come without a label
UNNAMED = "value"


@dataclass(frozen=True)
class Matched:
    """Values of systems on the same queries.

    Args:
        values: float64 [query, run] for each system, by measure and system; NaN where a query has no value. A system
            that was given as one run has one column.
        ids: the query ids in the order of the rows; None if the systems were matched by position.
        missing: number of queries that some system lacks.
        higher_is_better: directions that the systems give, by measure.
    """

    values: dict[str, dict[str, Array]]
    ids: list[Hashable] | None
    missing: int
    higher_is_better: dict[str, bool]


@dataclass(frozen=True)
class _Run:
    """One evaluation of one system: its ids, if it has any, and its columns."""

    name: str
    ids: list[Hashable] | None
    columns: dict[str, Array]
    higher_is_better: dict[str, bool]


def match(systems: Mapping[str, Any], missing: str = "error") -> Matched:
    """Match the queries of systems by id, or by position if they have no ids.

    Args:
        systems: values of each system by its name, in a form that :func:`compare` documents.
        missing: ``"error"`` refuses queries that some system lacks, ``"drop"`` leaves them unpaired, ``"zero"`` counts
            them as 0.

    Returns:
        The queries sorted by id, so that nothing depends on the order in which they came.

    Raises:
        ValueError: systems have different measures, numbers of queries or ids.
        TypeError: a system has none of the forms.

    Example:
        >>> match({"a": {"q2": 0.2, "q1": 0.1}, "b": {"q1": 0.5, "q2": 0.6}}).values["value"]["a"].tolist()
        [[0.1], [0.2]]
    """
    one_of("missing", missing, ("error", "drop", "zero"))
    if not isinstance(systems, Mapping):
        raise ValueError(f'Expected a dictionary of systems, got {type(systems).__name__}; pass {{"a": ..., "b": ...}}')
    if len(systems) < 2:
        raise ValueError(f"Expected at least two systems, got {', '.join(map(str, systems)) or 'none'}; name each")
    runs = {str(name): _runs(str(name), system) for name, system in systems.items()}
    every = [run for system in runs.values() for run in system]
    measures = _measures(every)
    ids, rows, lacking = _by_id(every, missing) if every[0].ids is not None else _by_position(every)
    filler = 0.0 if missing == "zero" else np.nan

    def column(run: _Run, measure: str, row: Array) -> Array:
        return np.where(row < 0, filler, run.columns[measure][row])

    values = {}
    for measure in measures:
        columns = iter([column(run, measure, row) for run, row in zip(every, rows)])
        values[measure] = {name: np.stack([next(columns) for _ in system], axis=1) for name, system in runs.items()}
    directions = {label: known for run in reversed(every) for label, known in run.higher_is_better.items()}
    return Matched(values, ids, lacking, directions)


def cluster_numbers(clusters: Any, ids: list[Hashable] | None, queries: int) -> Array:
    """The cluster of each query as int64 [query], from ``{id: cluster}`` or a sequence by position.

    Raises:
        ValueError: a query has no cluster, or a sequence is given for queries with ids.

    Example:
        >>> cluster_numbers({"q1": "ann", "q2": "bob", "q3": "ann"}, ["q1", "q2", "q3"], 3).tolist()
        [0, 1, 0]
    """
    if isinstance(clusters, Mapping) != (ids is not None):
        if ids is not None:
            raise ValueError(
                f"Expected clusters to be a dictionary {{id: cluster}}, got {type(clusters).__name__}, but the"
                " systems are matched by id; pass dict(zip(ids, clusters)), of lists"
            )
        raise ValueError(
            f"Expected clusters to be a sequence with the cluster of each query, got {_short(clusters)}, but the"
            " systems have no ids; pass its values in the order of the queries"
        )
    if ids is not None:
        if lacking := [query for query in ids if query not in clusters]:
            raise ValueError(f"Expected a cluster for every query, got none for {_three(lacking)}; add them")
        values = [clusters[query] for query in ids]
    else:
        values = _listed(clusters)
        if len(values) != queries:
            raise ValueError(f"Expected clusters of {queries} queries, got {len(values)}; give one for each query")
    return numbered_clusters(values, range(queries) if ids is None else ids)


def numbered_clusters(clusters: Sequence[Any], queries: Sequence[Any]) -> Array:
    """The number of the cluster of each query, int64 [query]: clusters are equal as keys of a dictionary are.

    Raises:
        ValueError: a cluster is missing, None or NaN, or cannot be a key.

    Example:
        >>> numbered_clusters([1, "1", ("ann", 2), ("ann", 2)], [0, 1, 2, 3]).tolist()
        [0, 1, 2, 2]
    """
    numbers: dict[Hashable, int] = {}
    cluster_numbers = np.empty(len(clusters), dtype=np.int64)
    for row, (cluster, query) in enumerate(zip(clusters, queries)):
        if cluster is None or not isinstance(cluster, Hashable) or cluster != cluster:
            raise ValueError(
                f"Expected the cluster of each query to be a text, a number or a tuple, got {cluster!r} for query"
                f" {query!r}; leave the query out, or give it a separate cluster"
            )
        cluster_numbers[row] = numbers.setdefault(cluster, len(numbers))
    return cluster_numbers


def _runs(name: str, system: Any) -> list[_Run]:
    several = isinstance(system, list | tuple) and not all(_is_number(value) for value in system)
    runs = list(system) if several else [system]
    if several and len(runs) < 2:
        raise ValueError(f"Expected at least two runs of {name!r}, got one; give the run itself, without a list")
    return [_run(f"{name}[{i}]" if several else name, run) for i, run in enumerate(runs)]


def _run(name: str, values: Any) -> _Run:
    ids, columns, directions = None, values, {}
    if hasattr(values, "ids") and hasattr(values, "columns"):
        ids, columns = _listed(values.ids), {label: values.columns[label] for label in values.columns}
        directions = dict(getattr(values, "higher_is_better", None) or {})
    elif hasattr(values, "compute") and not hasattr(values, "__array__"):
        raise TypeError(f"Expected {name!r} to be values, got {type(values).__name__}; pass its compute()")
    elif not isinstance(values, Mapping):
        return _checked(_Run(name, None, {UNNAMED: _vector(f"{name!r}", values)}, {}))
    else:
        columns = {UNNAMED: values} if all(map(_is_number, values.values())) else values
        if all(isinstance(column, Mapping) for column in columns.values()):
            ids = list(dict.fromkeys(query for column in columns.values() for query in column))
            columns = {label: [column.get(query, np.nan) for query in ids] for label, column in columns.items()}
    vectors = {str(label): _vector(f"{name!r}, {label!r}", column) for label, column in columns.items()}
    return _checked(_Run(name, ids, vectors, directions))


def _checked(run: _Run) -> _Run:
    lengths = {label: len(column) for label, column in run.columns.items()}
    if run.ids is not None:
        lengths["ids"] = len(run.ids)
        if len(set(run.ids)) < len(run.ids):
            seen: set[Hashable] = set()
            twice = [query for query in run.ids if query in seen or seen.add(query)]  # type: ignore[func-returns-value]
            raise ValueError(
                f"Expected each id of {run.name!r} once, got {_three(twice)} twice; keep one value of each"
            )
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Expected columns of {run.name!r} of equal length, got {lengths}; give every query a value")
    return run


def _measures(runs: Sequence[_Run]) -> list[str]:
    first = runs[0]
    for run in runs:
        if different := set(first.columns) ^ set(run.columns):
            raise ValueError(
                f"Expected the same measures of every system, got {_three(sorted(different))} in only one of "
                f"{first.name!r} and {run.name!r}; evaluate both with one collection"
            )
        if (first.ids is None) != (run.ids is None):
            raise ValueError(
                f"Expected ids in all systems or in none, got them in only one of {first.name!r} and {run.name!r};"
                " give all systems as {id: value}"
            )
    if not first.columns:
        raise ValueError(f"Expected values of at least one measure, got none in {first.name!r}; add a column")
    return list(first.columns)


def _by_position(runs: Sequence[_Run]) -> tuple[None, list[Array], int]:
    lengths = {run.name: len(next(iter(run.columns.values()))) for run in runs}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Expected as many queries in every system, got {lengths}; give {{id: value}} to match by id")
    return None, [np.arange(length) for length in lengths.values()], 0


def _by_id(runs: Sequence[_Run], missing: str) -> tuple[list[Hashable], list[Array], int]:
    """The ids; for each run the row of each id in its columns, -1 for none; and how many ids some run lacks."""
    places = [{query: row for row, query in enumerate(run.ids or ())} for run in runs]
    ids = sorted(set().union(*places), key=lambda query: (type(query).__name__, query))
    rows = [np.array([place.get(query, -1) for query in ids], dtype=np.int64) for place in places]
    lacks = [row < 0 for row in rows]
    if missing == "error":
        for run, lack in zip(runs, lacks):
            if lack.any():
                queries = _three([ids[i] for i in np.flatnonzero(lack)])
                raise ValueError(
                    f"Expected the same queries in every system, got none of {queries} in {run.name!r}; pass"
                    " missing='zero' to count them as 0, or missing='drop' to leave them out"
                )
    if missing == "drop" and np.any(lacks, axis=0).all():
        ids_of = "; ".join(f"{run.name}: {_three(list(run.ids or ()))}" for run in runs)
        raise ValueError(
            f"Expected queries that all systems have, got none ({ids_of}); use the same ids in all systems"
        )
    return ids, rows, int(np.any(lacks, axis=0).sum())


def _vector(name: str, values: Any) -> Array:
    values = values.detach().cpu() if hasattr(values, "detach") else values
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Expected {name} to be values per query, a dictionary {{id: value}} or a table with ids and columns, "
            f"got {_short(values)}; pass the result of PerQuery or of score(), or of evaluate() one run, results['run']"
        ) from error
    if column.ndim != 1:
        raise ValueError(
            f"Expected {name} to be [query], got shape {list(column.shape)}; give one value for each query"
        )
    if np.isinf(column).any():
        raise ValueError(f"Expected {name} to be finite or NaN, got an infinite value; mark a missing value by NaN")
    return column


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) or getattr(value, "ndim", None) == 0


def _listed(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _three(names: Iterable[Any]) -> str:
    named = [repr(name) for name in names]
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:40]}..."
