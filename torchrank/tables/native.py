"""Columns of text of polars, pyarrow and pandas to ids, without a Python object for each row."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from torchrank.tables.ids import PADDING, TextIds

Array = np.ndarray


def library_of(native: Any) -> str:
    """The name of the package that defines the type of an object."""
    return type(native).__module__.split(".")[0]


def ids_of(native: Any) -> TextIds | Array | None:
    """The ids of a column of text, or of categories that are text or integers.

    Args:
        native: a series of polars or pandas, an index of pandas, or a ChunkedArray of pyarrow.

    Returns:
        a column, or integers [row]; None = it has missing values, or is of another type.
    """
    readers = {"polars": _of_polars, "pyarrow": _of_arrow, "pandas": _of_pandas}
    reader = readers.get(library_of(native))
    return None if reader is None else reader(native)


def _text(data: Any, start: Array, length: Array) -> TextIds:
    """The column of some bytes, which are copied, because a word may be read past their end."""
    buffer = np.zeros(len(data) + PADDING, np.uint8)
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    return TextIds(buffer, start, length)


def _taken(distinct: TextIds | Array | None, codes: Array) -> TextIds | Array | None:
    if distinct is None:
        return None
    return distinct.take(codes) if isinstance(distinct, TextIds) else distinct[codes]


def _of_polars(series: Any) -> TextIds | Array | None:
    polars = sys.modules["polars"]
    if series.null_count():
        return None
    if series.dtype == polars.String:
        length = series.str.len_bytes().to_numpy().astype(np.int64)
        return _text(series.str.join("").item().encode(), np.cumsum(length) - length, length)
    if isinstance(series.dtype, polars.Categorical | polars.Enum):
        # Categories are numbered in a pool that other columns share, so only those of this column are read.
        distinct = series.unique()
        codes, own = (one.to_physical().to_numpy().astype(np.int64) for one in (series, distinct))
        place = np.zeros(1 + own.max(initial=0), np.int64)
        place[own] = np.arange(len(own))
        return _taken(_of_polars(distinct.cast(polars.String)), place[codes])
    return None


def _of_arrow(column: Any) -> TextIds | Array | None:
    import pyarrow
    from pyarrow import types

    if column.null_count:
        return None
    if types.is_dictionary(column.type):
        whole = _one_chunk(column.unify_dictionaries())
        if types.is_integer(column.type.value_type) and not whole.dictionary.null_count:
            return _taken(whole.dictionary.to_numpy(), whole.indices.to_numpy())
        return _taken(_of_arrow(pyarrow.chunked_array([whole.dictionary])), whole.indices.to_numpy())
    if any(is_text(column.type) for is_text in (types.is_string, types.is_large_string, types.is_string_view)):
        whole = _one_chunk(column.cast(pyarrow.large_string()))
        _, offsets, data = whole.buffers()
        if not len(whole) or data is None:
            return _text(b"", *np.zeros((2, len(whole)), np.int64))
        place = np.frombuffer(offsets, np.int64)[whole.offset :][: len(whole) + 1]
        text = memoryview(data)[int(place[0]) : int(place[-1])]
        return _text(text, place[:-1] - place[0], np.diff(place))
    return None


def _one_chunk(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _of_pandas(series: Any) -> TextIds | Array | None:
    pandas = sys.modules["pandas"]
    if isinstance(series.dtype, pandas.CategoricalDtype):
        codes, categories = series.array.codes, series.array.categories
        if (codes < 0).any():
            return None
        if categories.dtype.kind in "iu" and isinstance(categories.dtype, np.dtype):
            return categories.to_numpy()[codes]
        words = _of_pandas(categories)
        if words is None and all(isinstance(one, str) for one in categories):
            words = TextIds.of(categories.tolist())
        return _taken(words, codes)
    if getattr(series.dtype, "storage", "") == "pyarrow" or isinstance(series.dtype, pandas.ArrowDtype):
        import pyarrow

        column = series.array.__arrow_array__()
        return _of_arrow(column if isinstance(column, pyarrow.ChunkedArray) else pyarrow.chunked_array([column]))
    return None
