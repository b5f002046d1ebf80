"""Data frames to rows, through narwhals or the Arrow interface."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from torchrank.names.optional import imported, installed
from torchrank.ranking.query_names import QueryNames
from torchrank.tables import column_names as names
from torchrank.tables import native
from torchrank.tables.errors import ReadingError
from torchrank.tables.pair_tables import Rows
from torchrank.tables.records import (
    array_of,
    exploded,
    float_column,
    has_lists,
    id_column,
    of_columns,
    of_lists,
)

#: libraries whose objects are data frames
LIBRARIES = ("pandas", "polars", "pyarrow", "modin", "cudf", "duckdb", "dask", "pyspark")


def is_frame(source: Any) -> bool:
    """Whether a source is a data frame, or another object with columns."""
    if isinstance(source, np.ndarray):
        return bool(source.dtype.names) and source.ndim == 1
    if isinstance(source, type) or len(getattr(source, "shape", "qd")) == 1:  # a class, or a series
        return False
    methods = ("__arrow_c_stream__", "__dataframe__", "__narwhals_dataframe__", "__narwhals_lazyframe__", "to_pandas")
    return native.library_of(source) in LIBRARIES or any(hasattr(source, method) for method in methods)


def is_records(source: Any) -> bool:
    """Whether a source is a list of rows with names: dictionaries or named tuples."""
    return isinstance(source, list | tuple) and len(source) > 0 and all(map(_has_names, source))


def _has_names(row: Any) -> bool:
    return isinstance(row, Mapping) or hasattr(row, "_fields")


def is_columns(source: Any, chosen: names.Columns = None) -> bool:
    """Whether a dictionary has columns, not documents by query: a key is a usual name, or the user has named some."""
    if not isinstance(source, Mapping) or not source:
        return False
    other = str, bytes, Mapping, set, frozenset
    for column in source.values():
        if isinstance(column, other) or not hasattr(column, "__len__") or getattr(column, "shape", "") == ():
            return False
    return chosen is not None or any(map(names.is_usual, source))


@dataclass(frozen=True)
class Frame:
    """The columns of a data frame, each of which is read when it is asked for.

    Args:
        labels: the names of the columns.
        columns: the columns, as the library of the frame has them.
    """

    labels: list[Any]
    columns: list[Any]

    def ids(self, number: int) -> Any:
        """A column of ids: a column of text, integers [row], or a list with None for missing values."""
        column = self.columns[number]
        text = native.text_of(column.to_native() if hasattr(column, "to_native") else column)
        return _values(column) if text is None else text

    def values(self, number: int) -> Any:
        """A column of numbers: an array with NaN for missing values, or a list with None."""
        column = self.columns[number]
        if hasattr(column, "to_native") and column.dtype.is_float():
            return column.fill_null(float("nan")).to_numpy()
        return _values(column)

    def has_lists(self, number: int) -> bool:
        """Whether the rows of a column are lists."""
        return has_lists(self.ids(number))

    def row(self, number: int) -> str:
        """A row for a message."""
        parts = (f"{label}={column[number]!r}" for label, column in zip(self.labels, self.columns))
        return ", ".join(parts)


def frame_of(source: Any, name: str) -> Frame:
    """The columns of a data frame, or of a dictionary of columns.

    Raises:
        ImportError: the frame needs narwhals or pyarrow.
        TypeError: it is not a data frame.
        ReadingError: columns have different lengths or the same name.
    """
    source = _plain(source)
    if isinstance(source, Mapping):
        columns = [_listed(column) for column in source.values()]
        lengths = {str(label): len(column) for label, column in zip(source, columns)}
        if len(set(lengths.values())) > 1:
            raise ReadingError(f"Expected columns of one length, got {lengths}", name)
        return Frame(list(lengths), columns)
    nw = imported("narwhals", "files")
    try:
        columns = list(_narwhals(source, nw).iter_columns())
    except nw.exceptions.DuplicateError as error:
        raise ReadingError(f"Expected columns with different names, got {error}", name) from error
    return Frame([column.name for column in columns], columns)


def _plain(source: Any) -> Any:
    """A source whose columns narwhals or this module can read."""
    if isinstance(source, np.ndarray):
        return {name: source[name] for name in source.dtype.names}
    if is_records(source):
        rows = [row if isinstance(row, Mapping) else row._asdict() for row in source]
        return {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}
    if native.library_of(source) == "datasets" and hasattr(source, "with_format"):
        return source.with_format("arrow")[:]  # under any format that the user has set
    if native.library_of(source) in ("duckdb", "_duckdb") and not installed("pyarrow"):
        return source.fetchnumpy()
    return source


def _listed(column: Any) -> Any:
    """A column of a dictionary, as an array, a series or a list."""
    if hasattr(column, "detach"):
        column = array_of(column)
    if isinstance(column, np.ma.MaskedArray):
        return column.tolist() if np.ma.is_masked(column) else column.data
    if native.library_of(column) in ("polars", "pyarrow", "pandas") and installed("narwhals"):
        try:
            return imported("narwhals").from_native(column, series_only=True)
        except TypeError:  # an index of pandas, an array of pyarrow
            return list(column.tolist())
    if isinstance(column, np.ndarray):
        return column.reshape(len(column)) if column.size == len(column) else column  # [row, 1] is [row]
    return list(column)


def _narwhals(frame: Any, nw: Any) -> Any:
    try:
        wrapped = nw.from_native(frame)
    except TypeError:
        wrapped = nw.from_native(_converted(frame))
    return wrapped.collect() if isinstance(wrapped, nw.LazyFrame) else wrapped


def _converted(frame: Any) -> Any:
    """A frame of a library that is installed."""
    if hasattr(frame, "__arrow_c_stream__"):
        if not installed("pyarrow") and installed("polars"):
            return imported("polars").DataFrame(frame)
        return imported("pyarrow", instead="`pip install polars`").table(frame)
    if hasattr(frame, "to_pandas"):
        return frame.to_pandas()
    raise TypeError(f"Expected a data frame or a dictionary of columns, got {type(frame).__name__}") from None


def _values(column: Any) -> Any:
    """A column as an array of numbers, or as a list with None for missing values."""
    if not hasattr(column, "to_native"):
        return column
    missing = column.is_null()
    if not missing.any():
        values = column.to_numpy() if column.dtype.is_numeric() else column.to_list()
        return values if isinstance(values, list) or values.dtype.kind in "iuf" else column.to_list()
    # NaN of pandas stands for a missing value.
    return [None if is_missing else value for is_missing, value in zip(missing.to_list(), column.to_list())]


def of_frame(source: Any, value: str, chosen: names.Columns, name: str) -> Rows:
    """Rows of a data frame with the columns query, document and value."""
    frame = frame_of(source, name)
    numbers = names.find(chosen, frame.labels, value, name, has_lists=frame.has_lists)
    columns = {
        column: (frame.ids if column in ("query", "item", "subtopic") else frame.values)(number)
        for column, number in numbers.items()
    }
    return of_columns(columns, value, name)


def of_dictionary(
    tables: Mapping[Any, Any], value: str, chosen: names.Columns, name: str
) -> Rows | tuple[Mapping[Any, Any], str]:
    """The rows of columns or of lists of documents by query; dictionaries by query as they are, with their name."""
    if is_columns(tables, chosen):
        return of_frame(tables, value, chosen, name or f"<{type(tables).__name__}>")
    if all(isinstance(table, Mapping) for table in tables.values()):
        return tables, name
    return of_lists(tables, value, name)


def of_both(source: Any, chosen: Mapping[str, str | None], items: bool) -> tuple[Any, Any, Any, Any, Any, Any]:
    """The columns of one frame with scores and grades; ``items`` says whether items must be there.

    Returns:
        of each row query and group, None = no groups; the row of each entry of its lists, None = no lists; of each
        entry item, None = no items, score and grade, NaN = missing.

    Raises:
        ReadingError: a column is missing or has other types.
    """
    frame = frame_of(source, "frame")
    named = {name: column for name, column in chosen.items() if column is not None}
    way_out = "pass {}= with the name of its column"
    numbers = names.find(named, frame.labels, "both", "frame", items, way_out, frame.has_lists)

    def error(message: str, row: int) -> ReadingError:
        return ReadingError(message, "frame", row + 1, frame.row(row), "row")

    query = id_column(frame.ids(numbers["query"]), "query ids", error)
    groups = frame.ids(numbers["group"]) if "group" in numbers else None
    columns = {"item": frame.ids(numbers["item"])} if "item" in numbers else {}
    columns |= {name: frame.values(numbers[name]) for name in ("score", "rank", "grade") if name in numbers}
    flat, row, error_of_entry = exploded(columns, error, ranked=True)
    item = id_column(flat["item"], "item ids", error_of_entry) if "item" in flat else None
    grade = float_column(flat["grade"], "grade", error_of_entry, or_missing=True)
    if len(bad := np.flatnonzero(np.isinf(grade))):
        raise error_of_entry(f"Expected grade to be a finite number, got {grade[bad[0]]}", int(bad[0]))
    if "rank" in flat:
        return query, groups, row, item, -float_column(flat["rank"], "rank", error_of_entry, or_missing=True), grade
    return query, groups, row, item, float_column(flat["score"], "score", error_of_entry, or_missing=True), grade


def with_groups(queries: Any, query: np.ndarray, groups: Any, column: str) -> QueryNames:
    """The ids of queries with their groups.

    Args:
        queries: the ids of the queries.
        query: int [row], the number of the query of each row, in the order of appearance.
        groups: the group of each row, as :meth:`Frame.ids` returns it.
        column: the name of the column of groups, for messages.

    Raises:
        ReadingError: a query has two groups, or a group is neither text, an integer nor a bool.
    """
    code, known = _numbered(groups.tolist() if hasattr(groups, "tolist") else groups, column)
    _, first = np.unique(query, return_index=True)
    of_query = code[first]
    other = np.flatnonzero(code != of_query[query])
    if len(other):
        row, group = int(other[0]), [*known, None]
        first_group, name = group[of_query[query[row]]], queries.take(query[row : row + 1]).tolist()[0]
        both = f"{first_group!r} and {group[code[row]]!r}"
        message = f"Expected one {column} for each query, got {both} for query {name!r}"
        raise ReadingError(message, "frame", row + 1, unit="row")
    return QueryNames(queries, known, of_query)


def _numbered(groups: list[Any], column: str) -> tuple[np.ndarray, list[Hashable]]:
    """The number of the group of each row, -1 = missing, and the groups."""
    for row, group in enumerate(groups):
        if group is not None and not isinstance(group, str | int | np.integer):
            message = f"Expected {column} to be text, integers or bools, got {group!r} of type {type(group).__name__}"
            raise ReadingError(message, "frame", row + 1, unit="row")
    known = [group for group in dict.fromkeys(groups) if group is not None]
    number = {None: -1} | {group: number for number, group in enumerate(known)}
    return np.array([number[group] for group in groups], dtype=np.int64), known


def error_of(source: str) -> Any:
    """The function that returns the error of a row of a source."""
    return lambda message, row: ReadingError(message, source, row + 1, "", "row")
