"""Columns of text of polars, pyarrow and pandas to ids, without a Python object for each row."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from torchrank.names.optional import installed
from torchrank.tables.id_columns import PADDING, TextIds


def library_of(native: Any) -> str:
    """The name of the package that defines the type of an object."""
    return type(native).__module__.split(".")[0]


def text_of(native: Any) -> TextIds | None:
    """The ids of a column of text, or of categories that are text.

    Args:
        native: a series of polars or pandas, or a ChunkedArray of pyarrow.

    Returns:
        None if the column has missing values, is of another type, or of pandas without pyarrow.
    """
    readers = {"polars": _of_polars, "pyarrow": _of_arrow, "pandas": _of_pandas}
    reader = readers.get(library_of(native))
    return None if reader is None else reader(native)


def _text(data: Any, start: np.ndarray, length: np.ndarray) -> TextIds:
    """The column of ids in a buffer, which is copied, because a word may be read past its end."""
    return TextIds(np.pad(np.frombuffer(data, np.uint8), (0, PADDING)), start, length)


def _of_polars(series: Any) -> TextIds | None:
    polars = sys.modules["polars"]
    if series.null_count() or not isinstance(series.dtype, polars.String | polars.Categorical | polars.Enum):
        return None
    series = series.cast(polars.String)
    length = series.str.len_bytes().to_numpy().astype(np.int64)
    return _text(series.str.join("").item().encode(), np.cumsum(length) - length, length)


def _of_arrow(column: Any) -> TextIds | None:
    import pyarrow
    from pyarrow import types

    if column.null_count:
        return None
    if types.is_dictionary(column.type):
        column = column.unify_dictionaries().combine_chunks()
        distinct = _of_arrow(pyarrow.chunked_array([column.dictionary]))
        return None if distinct is None else distinct.take(column.indices.to_numpy())
    if not any(is_text(column.type) for is_text in (types.is_string, types.is_large_string, types.is_string_view)):
        return None
    column = column.cast(pyarrow.large_string()).combine_chunks()
    _, offsets, data = column.buffers()
    if not len(column) or data is None:
        return TextIds.of([""] * len(column))
    place = np.frombuffer(offsets, np.int64)[column.offset :][: len(column) + 1]
    text = memoryview(data)[int(place[0]) : int(place[-1])]
    return _text(text, place[:-1] - place[0], np.diff(place))


def _of_pandas(series: Any) -> TextIds | None:
    pandas = sys.modules["pandas"]
    by_arrow = getattr(series.dtype, "storage", "") == "pyarrow" or isinstance(
        series.dtype, pandas.CategoricalDtype | pandas.ArrowDtype
    )
    if not by_arrow or not installed("pyarrow"):
        return None
    import pyarrow

    try:
        return _of_arrow(pyarrow.Table.from_pandas(series.to_frame(""), preserve_index=False).column(0))
    except pyarrow.ArrowException:  # categories of several types
        return None
