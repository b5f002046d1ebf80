"""Data frames to rows, through narwhals or the Arrow interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from torchrank.tables import columns as names
from torchrank.tables.errors import ReadingError
from torchrank.tables.records import id_column, rows_of
from torchrank.tables.table import Rows


def is_frame(source: Any) -> bool:
    """Whether a source is a data frame, or another object with columns."""
    if isinstance(source, type | str | bytes | list | tuple):
        return False
    methods = ("__arrow_c_stream__", "__dataframe__", "__narwhals_dataframe__", "__narwhals_lazyframe__", "to_pandas")
    return any(hasattr(source, name) for name in methods) or type(source).__module__.split(".")[0] in (
        *("pandas", "polars", "pyarrow", "modin", "cudf", "duckdb", "dask", "pyspark"),
    )


def is_columns(source: Any) -> bool:
    """Whether a dictionary has columns, not dictionaries."""
    if not isinstance(source, Mapping) or not source:
        return False
    return not any(isinstance(one, Mapping) or np.ndim(one) == 0 for one in source.values())


def columns_of(frame: Any, source: str = "") -> dict[str, Any]:
    """The columns of a data frame by name: numpy arrays of numbers, or lists with None for missing values.

    Raises:
        ImportError: the frame needs narwhals or pyarrow.
        TypeError: it is no data frame.
    """
    if isinstance(frame, Mapping):
        lengths = {str(name): len(column) for name, column in frame.items()}
        if len(set(lengths.values())) > 1:
            raise ReadingError(f"Expected columns of one length, got {lengths}", source)
        return {str(name): column if isinstance(column, np.ndarray) else list(column) for name, column in frame.items()}
    try:
        import narwhals as nw
    except ImportError as error:
        raise ImportError("Reading data frames needs narwhals: pip install torchrank-metrics[files]") from error
    return {series.name: _values(series, nw) for series in _native(frame, nw).iter_columns()}


def _native(frame: Any, nw: Any) -> Any:
    try:
        found = nw.from_native(frame)
    except TypeError:
        if hasattr(frame, "__arrow_c_stream__"):
            try:
                import pyarrow
            except ImportError as error:
                raise ImportError("Reading this data frame needs pyarrow: pip install pyarrow") from error
            found = nw.from_native(pyarrow.table(frame))
        elif hasattr(frame, "to_pandas"):
            found = nw.from_native(frame.to_pandas())
        else:
            raise TypeError(f"Expected a data frame, got {type(frame).__name__}") from None
    return found.collect() if isinstance(found, nw.LazyFrame) else found


def _values(series: Any, nw: Any) -> Any:
    if series.dtype.is_numeric() and not series.is_null().any():
        found = series.to_numpy()
        return found if found.dtype.kind in "iuf" else series.to_list()
    if isinstance(series.dtype, nw.Categorical | nw.Enum):
        series = series.cast(nw.String)
    missing = series.is_null().to_list()
    values = series.to_list()
    # NaN of pandas stands for a missing value.
    return [None if gone else value for gone, value in zip(missing, values)] if any(missing) else values


def of_frame(frame: Any, value: str, chosen: names.Columns, source: str) -> Rows:
    """Rows of a data frame with the columns query, document and value."""
    found = columns_of(frame, source)
    labels = list(found)
    at = names.find(chosen, labels, value, source)
    query, item, third = (found[labels[at[name]]] for name in ("query", "item", value if value in at else "rank"))
    rows = rows_of(query, item, third, source, value)
    return replace(rows, value=-rows.value) if "rank" in at else rows


def of_both(frame: Any, chosen: dict[str, str], ties: str) -> tuple[Any, Any, Any, Any]:
    """Queries, items (None if there are none), scores and grades of one frame; NaN = missing.

    Raises:
        ReadingError: a column is missing or has other types.
    """
    found = columns_of(frame, "frame")
    labels = list(found)
    named = {name: column for name, column in chosen.items() if column is not None}
    with_score = {name: column for name, column in named.items() if name != "grade"}
    at = names.find(with_score, labels, "score", "frame", item=ties == "document")
    # A column "score" or "rating" holds the scores here, so the grades are looked for in other columns.
    others = ["" if number == at.get("score") else label for number, label in enumerate(labels)]
    with_grade = {name: column for name, column in named.items() if name not in ("score", "rank")}
    at["grade"] = names.find(with_grade, others, "grade", "frame", item=False)["grade"]

    def error(message: str, row: int) -> ReadingError:
        shown = ", ".join(f"{label}={found[label][row]!r}" for label in labels)
        return ReadingError(message, "frame", row + 1, shown, "row")

    query = id_column(found[labels[at["query"]]], "query ids", error)
    item = id_column(found[labels[at["item"]]], "item ids", error) if "item" in at else None
    score = _with_gaps(found[labels[at["score" if "score" in at else "rank"]]], "score", error)
    grade = _with_gaps(found[labels[at["grade"]]], "grade", error)
    return query, item, score if "score" in at else -score, grade


def _with_gaps(values: Any, what: str, error: Any) -> np.ndarray:
    if not isinstance(values, np.ndarray):
        for row, value in enumerate(values):
            if value is not None and (isinstance(value, str) or not hasattr(value, "__float__")):
                raise error(f"Expected {what} to be a number, got {value!r}", row)
        values = np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
    return values.astype(np.float64)


def error_of(source: str) -> Any:
    """The function that returns the error of a row of a source."""
    return lambda message, row: ReadingError(message, source, row + 1, "", "row")
