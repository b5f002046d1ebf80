"""Frames, dictionaries, tuples and lists to rows: the names of their columns, and the columns themselves."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from torchrank.names.arguments import did_you_mean, imported, installed, one_of, warn
from torchrank.tables.pair_tables import (
    LONGEST_ID,
    PADDING,
    NumberIds,
    ReadingError,
    RowError,
    Rows,
    TextIds,
    factorise,
    ids_of,
    is_missing,
    keep_order,
    refuse_missing,
    shown,
    subtopics_of,
)

#: usual names of each column: first names of ids, then names that a column of texts may have, too; of a group the first
#: is read, and the others are an ambiguity
USUAL = {
    "query": ("query_id qid topic_id user_id uid user_idx session_id", "query topic user session"),
    "item": (
        "docno",  # PyTerrier has internal numbers in "docid"
        "doc_id item_id document_id corpus_id passage_id pid iid item_idx movie_id product_id article_id track_id asin",
        "document doc passage item movie product article track",
    ),
    # a rating is the grade, where a frame has both
    "score": ("score scores similarity sim prediction pred est y_score y_pred", "rank position rating"),
    "grade": ("grade relevance rel label judgment judgement", "score rating target y_true r_ui"),
    "subtopic": ("subtopic subtopic_id intent intent_id aspect", "iteration iter"),
    "chunk": ("chunk_id node_id segment_id passage_id pid", "chunk node segment passage id"),
    "start": ("start start_index start_char_idx start_char char_start", "begin from"),
    "end": ("end end_index end_char_idx end_char char_end", "stop to"),
    "cost": ("tokens num_tokens n_tokens token_count cost", ""),
}
#: columns that hold ranks, 1 for the best
RANKS = ("rank", "position")
#: the columns that are read of judgments, of a run, of one frame that has both, of chunks, and of spans
READ = {
    "grade": ("query", "item", "grade", "subtopic"),
    "score": ("query", "item", "score", "rank"),
    "both": ("query", "item", "score", "grade", "rank", "group"),
    "chunks": ("chunk", "item", "start", "end", "cost"),
    "spans": ("query", "item", "start", "end"),
}
#: columns of interactions that hold no grade
TIMES = ("timestamp", "time", "datetime", "date")

Columns = Mapping[str, Any] | Sequence[Any] | None


def usual_form(name: Any) -> str:
    """The form in which names are compared: of ``User-ID``, ``userId`` and RecBole's ``user_id:token`` "userid"."""
    return re.sub(r"[\s_-]", "", str(name).lower()).partition(":")[0]


_FORMS = {
    column: [[usual_form(name) for name in group.split()] for group in groups] for column, groups in USUAL.items()
}
_ALL_FORMS = {form for name in (*READ["both"][:4], "subtopic") for group in _FORMS[name] for form in group}


def is_usual(name: Any) -> bool:
    """Whether a name is a usual name of a column."""
    return usual_form(name) in _ALL_FORMS


def find_columns(
    columns: Columns,
    names: Sequence[Any],
    value: str,
    source: str,
    item: bool = True,
    way_out: str = "",
    has_lists: Callable[[int], bool] = lambda number: False,
) -> dict[str, int]:
    """The numbers of the columns ``query``, ``item``, the value or ``rank``, and ``subtopic`` of a table with names.

    A column that the user names is not taken for another one. Rows without any other column than query, item and time
    are interactions: they have no column of grades. Lists of items, which are ranked, need no scores; nor grades or
    other columns where the user names the items.

    Args:
        columns: the user's choice: names or numbers, by column or in the order query, item, value; None = usual names.
        names: the names of all columns.
        value: "score", "grade", "both", "chunks" or "spans".
        source: the name of the source.
        item: whether the column of items must be there.
        way_out: how to name a column, with "{}" for query, item or the value; "" = by :func:`column_choice`.
        has_lists: whether the rows of a column are lists, whose name may be a plural.

    Raises:
        ReadingError: a column is not there.

    Example:
        >>> find_columns(None, ["query-id", "corpus-id", "score"], "grade", "")
        {'query': 0, 'item': 1, 'grade': 2}
    """
    chosen = chosen_columns(columns, value)
    numbers = {column: _number_of(asked, names, source) for column, asked in chosen.items()}
    forms = [usual_form(name) for name in names]
    way_out = way_out or column_choice(value)
    ambiguous: list[tuple[list[str], list[int]]] = []
    missing: list[str] = []
    if "score" in chosen and forms[numbers["score"]] in RANKS:
        name, ranks = names[numbers["score"]], way_out.format("rank")
        warn(f"Column {name} is read as scores, so that the largest is the best; if it has ranks, {ranks}")
    for column in READ[value]:
        if column in numbers or column in ("rank", "group") or (column == "score" and "rank" in numbers):
            continue
        # the first group of usual names that has some, or their plurals
        groups = ([forms.index(form) for form in group if form in forms] for group in _FORMS[column])
        plurals = ([forms.index(f"{form}s") for form in group if f"{form}s" in forms] for group in _FORMS[column])
        left = ([n for n in group if n not in numbers.values()] for group in groups)
        named = ([n for n in group if n not in numbers.values() and has_lists(n)] for group in plurals)
        if known := next(filter(None, chain(left, named)), []):
            roles = ["rank" if column == "score" and forms[place] in RANKS else column for place in known]
            numbers[roles[0]] = known[0]
            ambiguous.append((roles, known))
        elif column not in ("subtopic", "cost") and (item or column != "item"):
            missing.append(column)
            if column == "query":
                break
    others = [n for n, form in enumerate(forms) if n not in numbers.values() and form not in TIMES]
    for column in missing:
        lists = "item" in numbers and has_lists(numbers["item"])
        interactions = column == value == "grade" or (column == "score" and lists)
        if not (interactions and (not others or (lists and "item" in chosen))):
            what = f"{column} ids" if column in ("query", "item", "chunk") else f"{column}s"
            listed = ", ".join(" ".join(USUAL[column]).split()[:4])
            raise ReadingError(
                f"Expected a column of {what} named like {listed}, got the columns {', '.join(map(str, names))};"
                f" {way_out.format(column)}",
                source,
            )
        if column == "score" and others:
            ranked = f"The lists of column {names[numbers['item']]} are ranked as they are, the best first"
            warn(f"{ranked}; if they have scores, {way_out.format('score')}")
    for roles, known in ambiguous:
        if unread := {names[place]: role for place, role in zip(known, roles) if place not in numbers.values()}:
            message = f"Column {names[known[0]]} is read as the {roles[0]}, not {' or '.join(map(str, unread))}"
            warn(f"{message}; if wrong, {way_out.format(next(iter(unread.values())))}")
    return numbers


def column_choice(value: str) -> str:
    """The way out of errors of columns, with "{}" for the name of a column."""
    return reading_with(value, "columns={{'{}': ...}}")


def reading_with(value: str, argument: str) -> str:
    """The way out of errors that an argument of the reader of grades or scores prevents."""
    return f"read it by tr.{'read_qrels' if value == 'grade' else 'read_run'}(source, {argument})"


def chosen_columns(columns: Columns, value: str) -> dict[str, Any]:
    """The user's choice of columns as a dictionary.

    Raises:
        ValueError: it names no column that is read.
    """
    if columns is None:
        return {}
    if isinstance(columns, str) or not isinstance(columns, Mapping | Sequence):
        raise TypeError(f"Expected columns to be a dictionary or three names, got {columns!r}")
    known = READ[value]
    if not isinstance(columns, Mapping):
        if len(columns) != 3:
            raise ValueError(f"Expected columns to be query, item and {value}, got {list(columns)!r}")
        return dict(zip(known[:3], columns))
    for name in columns:
        one_of("each key of columns", name, known)
    if "score" in columns and "rank" in columns:
        raise ValueError("Expected a column of scores or of ranks, got both; leave out one of them")
    return dict(columns)


def _number_of(asked: Any, names: Sequence[Any], source: str) -> int:
    """The number of the column with a name or number.

    Raises:
        ReadingError: there is none.
    """
    if not isinstance(asked, str | int | tuple):  # a column itself, such as a series
        got = f"{type(asked).__name__}; pass the name of a column"
        raise ReadingError(f"Expected one of the columns {', '.join(map(str, names))}, got {got}", source)
    if asked in names:
        return list(names).index(asked)
    if isinstance(asked, int) and 0 <= asked < len(names) and not any(isinstance(name, int) for name in names):
        return asked
    hint = did_you_mean(str(asked), [str(name) for name in names])
    raise ReadingError(f"Expected one of the columns {', '.join(map(str, names))}, got {asked!r}{hint}", source)


def library_of(native: Any) -> str:
    """The name of the package that defines the type of an object."""
    return type(native).__module__.split(".")[0]


def plain(column: Any) -> Any:
    """A column of any library: a column of text, an array of numbers, or a list with None for missing values.

    Text of polars and of Arrow makes no Python objects. NaN of pandas is a missing value.
    """
    if hasattr(column, "detach"):
        column = array_of(column)
    if isinstance(column, np.ma.MaskedArray):
        return column.tolist() if np.ma.is_masked(column) else column.data
    if isinstance(column, np.ndarray):
        return column.reshape(len(column)) if column.size == len(column) else column  # [row, 1] is [row]
    library = library_of(column)
    if library == "pyarrow":
        if str(column.type).startswith("dictionary"):  # of which polars makes texts, also of integers
            if column.null_count:
                return plain(column.cast(column.type.value_type))
            whole = column.combine_chunks() if hasattr(column, "chunks") else column
            return _taken(plain(whole.dictionary), whole.indices.to_numpy())
        if str(column.type) in ("string", "large_string", "string_view") and len(column) and not column.null_count:
            return _text_of_arrow(column)
        return plain(imported("polars").from_arrow(column)) if installed("polars") else column.to_pylist()
    if library == "pandas":
        kind, missing = column.dtype.kind, column.isna()
        if kind == "f":
            return column.to_numpy(np.float64, na_value=np.nan)
        if missing.any():
            return [None if is_missing else value for is_missing, value in zip(missing, column.tolist())]
        if hasattr(column, "cat"):
            return _taken(plain(column.cat.categories), column.cat.codes.to_numpy())
        if kind in "iu":
            return column.to_numpy()
        if column.dtype == object or not installed("pyarrow"):
            return column.tolist()
        return plain(imported("pyarrow").array(column))
    if library != "polars":
        return list(column)
    polars = sys.modules["polars"]
    if isinstance(column.dtype, polars.String | polars.Categorical | polars.Enum) and not column.null_count():
        texts = column.cast(polars.String)
        length = texts.str.len_bytes().to_numpy().astype(np.int64)
        data = texts.str.join("").item().encode() + bytes(PADDING)
        return TextIds(np.frombuffer(data, np.uint8), np.cumsum(length) - length, length)
    is_array = column.dtype.is_float() or (column.dtype.is_integer() and not column.null_count())
    return column.to_numpy() if is_array else column.to_list()


def _text_of_arrow(column: Any) -> TextIds:
    """The texts of a column of pyarrow without missing values, whose bytes are copied once."""
    whole = column.cast("large_string")
    whole = whole.combine_chunks() if hasattr(whole, "chunks") else whole
    _, offsets, data = whole.buffers()
    place = np.frombuffer(offsets, np.int64)[whole.offset :][: len(whole) + 1]
    text = np.frombuffer(data or b"", np.uint8)[place[0] : place[-1]]
    return TextIds(np.pad(text, (0, PADDING)), place[:-1] - place[0], np.diff(place))


def _taken(distinct: Any, rows: np.ndarray) -> Any:
    """The values of a column that has each of them once."""
    if isinstance(distinct, TextIds):
        return distinct.take(rows)
    return distinct[rows] if isinstance(distinct, np.ndarray) else [distinct[row] for row in rows.tolist()]


def relevant(rows: int, source: str) -> np.ndarray:
    """The grades of interactions, which have none: float64 [row]."""
    warn(f"The judgments {source} have no grades: each pair is relevant, with the grade 1")
    return np.ones(rows, dtype=np.float64)


def id_column(values: Any, what: str, error: RowError) -> TextIds | NumberIds:
    """The column of ids that are text or integers.

    Raises:
        ReadingError: an id is neither, a column has both, or an integer does not fit in 64 bits.
    """
    if isinstance(values, TextIds):
        return _refuse_lengths(values, what, error)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        if values.dtype == np.uint64 and len(values) and values.max() >= 2**63:
            raise error(f"Expected {what} that int64 can hold; pass them as text", int(values.argmax()))
        return NumberIds(values.astype(np.int64))
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":  # integers, of which some are missing
        listed = [None if is_missing(value) else value for value in listed]
    kinds = {kind: issubclass(kind, int | np.integer) and kind is not bool for kind in set(map(type, listed))}
    texts = {kind for kind in kinds if issubclass(kind, str)}
    if texts == set(kinds) or all(kinds.values()):
        try:
            column = ids_of(listed)
        except ValueError as large:
            row = next(row for row, value in enumerate(listed) if not -(2**63) <= value < 2**63)
            raise error(str(large), row) from None
        return _refuse_lengths(column, what, error)
    allowed = texts or {kind for kind, integer in kinds.items() if integer}
    wanted = "text" if texts else "text or integers"
    # Integers become floats where some are missing, so the missing id is the one to mend.
    missing = next((row for row, value in enumerate(listed) if is_missing(value)), None)
    if missing is not None:
        floats = " and convert the others to integers" if float in kinds and not texts else ""
        message = f"Expected {what} to be {wanted}, got {listed[missing]!r}; leave out missing ids{floats}"
        raise error(message, missing)
    row = next(row for row, value in enumerate(listed) if type(value) not in allowed)
    kind = type(listed[row])
    way_out = "; convert ids to integers or to text" if issubclass(kind, float) else ""
    raise error(f"Expected {what} to be {wanted}, got {shown(listed[row])} of type {kind.__name__}{way_out}", row)


def _refuse_lengths(column: Any, what: str, error: RowError) -> Any:
    if isinstance(column, TextIds) and len(column) and int(column.length.min()) == 0:
        raise error(f"Expected {what} to be text, got an empty one", int(column.length.argmin()))
    if isinstance(column, TextIds) and (longest := int(column.length.max(initial=LONGEST_ID))) > LONGEST_ID:
        message = f"Expected {what} of at most {LONGEST_ID:,} bytes, got one of {longest:,}; shorten it"
        raise error(message, int(column.length.argmax()))
    return column


def float_column(values: Any, what: str, error: RowError, or_missing: bool = False) -> np.ndarray:
    """A column of numbers, float64 [row], in their order; if ``or_missing``, with NaN in place of None.

    Raises:
        ReadingError: a value is not a number.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufb":
        column = values.astype(np.float64)
        if values.dtype.kind in "iu" or values.dtype.itemsize > 8:
            keep_order(column, lambda rows: values[rows], least=2.0**53 if values.dtype.kind in "iu" else 0)
        return column
    column = np.empty(len(values), dtype=np.float64)
    values = values.tolist() if isinstance(values, TextIds) else values
    for row, value in enumerate(values):
        try:
            if isinstance(value, str):
                raise ValueError
            column[row] = np.nan if value is None and or_missing else float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            text = ", a text; convert the column to float" if isinstance(value, str) else ""
            raise error(f"Expected {what} to be a number, got {shown(value)}{text}", row) from None
    keep_order(column, lambda rows: [values[row] for row in rows.tolist()])
    return column


def rows_of_lists(tables: Mapping[Any, Any], value: str, source: str) -> Rows:
    """Rows of ``{query: [documents]}`` or ``{query: [(document, value), ...]}``; another query may have a dictionary.

    The documents of a run are ranked, the best first. Those of judgments have the grade 1.

    Raises:
        ReadingError: a query has something else, a set in place of a ranking, or pairs of another length; an id is
            missing.
    """
    refuse_missing(tables, "query ids", source)
    query: list[int] = []
    pairs: list[tuple[Any, Any]] = []
    entries: list[Any] = []
    for number, (name, docs) in enumerate(tables.items()):
        listed = [*docs.items()] if isinstance(docs, Mapping) else docs.tolist() if hasattr(docs, "tolist") else docs
        if isinstance(listed, set | frozenset) and value == "score":
            raise ReadingError(f"Expected a list of documents, the best first, got a set for query {name!r}", source)
        if not isinstance(listed, list | tuple | set | frozenset):
            form = f"{{query: {{document: {value}}}}} or {{query: [documents]}}"
            raise ReadingError(f"Expected {form}, got {type(docs).__name__} for query {name!r}", source)
        entries += listed
        ids = [entry for entry in listed if not isinstance(entry, list | tuple)]
        if ids:
            listed = [(entry, 1.0 if value == "grade" else -rank) for rank, entry in enumerate(listed, 1)]
        wrong = next((entry for entry in listed if len(entry) != 2), None)
        if wrong is not None or 0 < len(ids) < len(listed):
            got = f"both for query {name!r}" if wrong is None else f"{shown(wrong)} for query {name!r}"
            raise ReadingError(f"Expected documents or pairs (document, {value}), got {got}", source)
        pairs += listed
        query += [number] * len(listed)

    def error(message: str, row: int) -> ReadingError:
        return ReadingError(message, source, text=f"{list(tables)[query[row]]!r}: {shown(entries[row])}")

    item = id_column([item for item, _ in pairs], "document ids", error)
    values = float_column([number for _, number in pairs], value, error)
    return Rows(ids_of(list(tables)), np.array(query, np.int32), item, values, source, error)  # type: ignore[arg-type]


def rows_of_tuples(tuples: Iterable[Any], value: str, chosen: Columns, source: str) -> Rows:
    """Rows of an iterable of tuples (query, document, value), named tuples or dictionaries.

    Tuples of four, (query, iteration, document, grade), are judgments as in a file, those of two have the grade 1.
    """
    rows = _objects(tuples).tolist() if hasattr(tuples, "tolist") else list(tuples)
    if not rows:
        return rows_of_columns({"query": [], "item": [], value: []}, value, source)
    if isinstance(rows[0], np.ndarray) and len({np.shape(row) for row in rows}) == 1:
        rows = _objects(rows).tolist()
    first = rows[0]
    if isinstance(first, Mapping):
        if (row := next((n for n, entry in enumerate(rows) if not isinstance(entry, Mapping)), None)) is not None:
            raise ReadingError("Expected a dictionary in each row", source, row + 1, shown(rows[row]), "row")
        return rows_of_frame(rows, value, chosen, source)
    fields = getattr(first, "_fields", None)
    of_frame_or_tensors = (
        "pass one frame with a query, a score and a grade in each row, as tr.evaluate(frame, 'ndcg@10'), or tensors"
        " [query, candidate] to a metric, as tr.NDCG().score(scores, grades)"
    )
    if not isinstance(first, Sequence) or isinstance(first, str | bytes):
        raise ReadingError(
            f"Expected rows to be tuples (query, document, {value}), got {shown(first)}; {of_frame_or_tensors}",
            source, 1, "", "row",
        )  # fmt: skip
    if fields or chosen is not None:
        numbers = find_columns(chosen, fields or [""] * len(first), value, source)
    elif len(first) == 3 or (len(first) in (2, 4) and value == "grade"):
        places = {2: (0, 1), 3: (0, 1, 2), 4: (0, 2, 3, 1)}[len(first)]
        numbers = dict(zip(("query", "item", value, "subtopic"), places))
    else:
        way_out = f"add the {value}"
        if len(first) > 2:
            way_out = column_choice(value).format("query").replace("...", "0, ...")
        if hasattr(tuples, "tolist"):
            way_out = of_frame_or_tensors
        raise ReadingError(
            f"Expected rows to be tuples (query, document, {value}), got {len(first)} fields; {way_out}",
            source, 1, shown(first), "row",
        )  # fmt: skip
    for row, entry in enumerate(rows):
        if not isinstance(entry, Sequence) or len(entry) != len(first):
            raise ReadingError(
                f"Expected {len(first)} fields, as in the first row", source, row + 1, shown(entry), "row"
            )
    return rows_of_columns({name: [entry[number] for entry in rows] for name, number in numbers.items()}, value, source)


def array_of(values: Any) -> np.ndarray:
    """An array; of a tensor, float64 in place of floats that numpy may lack."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values
    return np.asarray(values)


def has_lists(column: Any) -> bool:
    """Whether the rows of a column are lists."""
    if isinstance(column, TextIds):
        return False
    if isinstance(column, np.ndarray) and (column.ndim > 1 or column.dtype.kind != "O"):
        return column.ndim > 1
    first = next((entry for entry in column if not is_missing(entry)), None)
    return isinstance(first, list | tuple) or getattr(first, "ndim", 0) > 0


def exploded(
    columns: Mapping[str, Any], error: RowError, ranked: bool
) -> tuple[dict[str, Any], np.ndarray | None, RowError]:
    """Columns with a row for each entry of their lists.

    Args:
        columns: columns by name.
        error: the function that returns the error of a row.
        ranked: lists without scores and ranks are ranked as they are, the best first: they get a column of ranks.

    Returns:
        the columns; the row of each entry, int64 [entry], None = the columns have no lists; the function that returns
        the error of an entry.

    Raises:
        ReadingError: columns have lists of different lengths, or only some have lists.
    """
    if not any(map(has_lists, columns.values())):
        return dict(columns), None, error
    flat, lengths = dict(columns), dict[str, np.ndarray]()
    for name, column in columns.items():
        lengths[name] = np.ones(len(column), dtype=np.int64)
        if has_lists(column):
            listed = [entry.tolist() if hasattr(entry, "tolist") else entry for entry in column]
            listed = [entry if isinstance(entry, list | tuple) or not is_missing(entry) else () for entry in listed]
            for row, entry in enumerate(listed):
                if not isinstance(entry, list | tuple):
                    raise error(f"Expected {name} to be a list, got {shown(entry)}", row)
            lengths[name] = np.array([len(entry) for entry in listed], dtype=np.int64)
            flat[name] = list(chain.from_iterable(listed))
    (first, length), *others = lengths.items()
    for name, other in others:
        if len(rows := np.flatnonzero(length != other)):
            row = int(rows[0])
            raise error(f"Expected lists of one length, got {length[row]} of {first} and {other[row]} of {name}", row)
    row_of = np.repeat(np.arange(len(length)), length)
    if ranked and not {"score", "rank"} & columns.keys():
        flat["rank"] = 1 + np.arange(len(row_of)) - np.searchsorted(row_of, row_of)
    return flat, row_of, lambda message, entry: error(message, int(row_of[entry]))


def _objects(table: Any) -> np.ndarray:
    """An array of rows, whose columns may be whole numbers in floats: these are integers in an array of ids."""
    array = array_of(table)
    if array.ndim == 2 and array.dtype.kind == "f":
        columns = [column.astype(np.int64) if (column == column.round()).all() else column for column in array.T]
        array = np.array([list(row) for row in zip(*(column.tolist() for column in columns))], dtype=object)
    return array


def _cell(column: Any, row: int) -> Any:
    """A value of a column."""
    value = column.take(np.array([row])).tolist()[0] if isinstance(column, TextIds) else column[row]
    return value.item() if isinstance(value, np.generic) else value


def rows_of_columns(
    columns: Mapping[str, Any], value: str, source: str, error: RowError | None = None, before: int = 0
) -> Rows:
    """Rows of the columns query, item, value or rank or none of both, and subtopic.

    Args:
        columns: lists, arrays or columns of ids by name. Without a value and a rank they are interactions, of grade 1.
        value: "score" or "grade".
        source: the name of the source.
        error: the function that returns the error of a row; None = one with the row itself.
        before: the rows of the source that are before these.

    Raises:
        ReadingError: an id is neither text nor an integer, or a column has both; a value is not a number.
    """
    query, item, third = columns["query"], columns["item"], columns.get(value, columns.get("rank"))

    def error_of_row(message: str, row: int) -> ReadingError:
        cells = (shown(_cell(column, row)) for column in (query, item, third) if column is not None)
        return ReadingError(message, source, before + row + 1, ", ".join(cells), "row")

    error = error or error_of_row
    codes, queries = factorise(id_column(query, "query ids", error))
    subtopics = id_column(columns["subtopic"], "subtopics", error) if "subtopic" in columns else None
    in_lists = {name: column for name, column in columns.items() if name not in ("query", "subtopic")}
    flat, row_of, error = exploded(in_lists, error, value == "score")
    item, third = flat["item"], flat.get(value, flat.get("rank"))
    if row_of is not None:
        codes, subtopics = codes[row_of], subtopics and subtopics.take(row_of)
    values = relevant(len(item), source) if third is None else float_column(third, value, error)
    items = id_column(item, "document ids", error)
    values = -values if "rank" in flat else values
    return Rows(queries, codes, items, values, source, error, subtopics_of(codes, subtopics))


#: libraries whose objects are data frames
LIBRARIES = ("pandas", "polars", "pyarrow", "modin", "cudf", "duckdb", "dask", "pyspark")


def is_frame(source: Any) -> bool:
    """Whether a source is a data frame, or another object with columns."""
    if isinstance(source, np.ndarray):
        return bool(source.dtype.names) and source.ndim == 1
    if isinstance(source, type) or len(getattr(source, "shape", "qd")) == 1:  # a class, or a series
        return False
    methods = ("__arrow_c_stream__", "__dataframe__", "__narwhals_dataframe__", "__narwhals_lazyframe__", "to_pandas")
    return library_of(source) in LIBRARIES or any(hasattr(source, method) for method in methods)


def is_records(source: Any) -> bool:
    """Whether a source is a list of rows with names: dictionaries or named tuples."""
    rows = isinstance(source, list | tuple) and len(source) > 0
    return rows and all(isinstance(row, Mapping) or hasattr(row, "_fields") for row in source)


def is_columns(source: Any, chosen: Columns = None) -> bool:
    """Whether a dictionary has columns, not documents by query: a key is a usual name, or the user has named some."""
    if not isinstance(source, Mapping) or not source:
        return False
    other = str, bytes, Mapping, set, frozenset
    for column in source.values():
        if isinstance(column, other) or not hasattr(column, "__len__") or getattr(column, "shape", "") == ():
            return False
    return chosen is not None or any(map(is_usual, source))


@dataclass(frozen=True)
class Frame:
    """The columns of a data frame, each of which is read when it is asked for.

    Args:
        labels: the names of the columns.
        columns: the columns, as the library of the frame has them.
    """

    labels: list[Any]
    columns: Sequence[Any]

    def __getitem__(self, number: int) -> Any:
        return plain(self.columns[number])

    def has_lists(self, number: int) -> bool:
        """Whether the rows of a column are lists."""
        return has_lists(self[number])


#: methods that make a frame of pandas, or of polars, of a frame of another library
CONVERSIONS = ("collect", "to_pandas", "toPandas", "compute")


def frame_of(source: Any, name: str) -> Frame:
    """The columns of a data frame, or of a dictionary of columns.

    Raises:
        ImportError: the frame needs polars or pyarrow.
        TypeError: it is not a data frame.
        ReadingError: columns have different lengths or the same name.
    """
    library = library_of(source)
    if isinstance(source, np.ndarray):
        source = {name: source[name] for name in source.dtype.names}
    elif is_records(source):
        rows = [row if isinstance(row, Mapping) else row._asdict() for row in source]
        source = {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}
    elif library in ("duckdb", "_duckdb"):
        source = source.fetchnumpy()
    elif library == "pyarrow" and hasattr(source, "read_all"):
        source = source.read_all()
    elif library == "datasets" and hasattr(source, "with_format"):
        source = source.with_format("arrow")[:]  # under any format that the user has set
    if isinstance(source, Mapping):
        lengths = {str(label): len(column) for label, column in source.items()}
        if len(set(lengths.values())) > 1:
            raise ReadingError(f"Expected columns of one length, got {lengths}", name)
        return Frame(list(lengths), list(source.values()))
    if library == "pandas":
        frame = Frame(list(source.columns), [source.iloc[:, number] for number in range(source.shape[1])])
    elif library == "polars" and hasattr(source, "get_columns"):
        frame = Frame(source.columns, source.get_columns())
    elif library_of(source) == "pyarrow" and hasattr(source, "columns"):
        frame = Frame(source.schema.names, source.columns)
    elif hasattr(source, "__arrow_c_stream__"):
        if installed("polars"):
            return frame_of(imported("polars").DataFrame(source), name)
        return frame_of(imported("pyarrow", instead="`pip install polars`").table(source), name)
    elif method := next((getattr(source, method) for method in CONVERSIONS if hasattr(source, method)), None):
        return frame_of(method(), name)
    else:
        raise TypeError(f"Expected a data frame or a dictionary of columns, got {type(source).__name__}")
    if len(set(frame.labels)) < len(frame.labels):
        raise ReadingError(f"Expected columns with different names, got {', '.join(map(str, frame.labels))}", name)
    return frame


def rows_of_frame(
    source: Any, value: str, chosen: Columns, name: str, error: RowError | None = None, before: int = 0
) -> Rows:
    """Rows of a data frame with the columns query, document and value: arguments of :func:`rows_of_columns`."""
    frame = frame_of(source, name)
    numbers = find_columns(chosen, frame.labels, value, name, has_lists=frame.has_lists)
    return rows_of_columns({name: frame[number] for name, number in numbers.items()}, value, name, error, before)


def rows_of_dictionary(
    tables: Mapping[Any, Any], value: str, chosen: Columns, name: str
) -> Rows | tuple[Mapping[Any, Any], str]:
    """The rows of columns or of lists of documents by query; dictionaries by query as they are, with their name."""
    if is_columns(tables, chosen):
        return rows_of_frame(tables, value, chosen, name or f"<{type(tables).__name__}>")
    if all(isinstance(table, Mapping) for table in tables.values()):
        return tables, name
    return rows_of_lists(tables, value, name)


def columns_of_both(
    source: Any, chosen: Mapping[str, Any], items: bool
) -> tuple[Any, list[Any], Any, Any, list[np.ndarray], np.ndarray]:
    """The columns of one frame with scores and grades; ``items`` says whether items must be there.

    Returns:
        of each row query, and group and cluster, None = there are none; the row of each entry of its lists, None = no
        lists; of each entry item, None = no items, the scores of each system, and grade, NaN = missing. ``chosen`` may
        have a list of columns of scores, one for each system, and the column "cluster".

    Raises:
        ReadingError: a column is missing or has other types.
    """
    frame = frame_of(source, "frame")
    named, more = {name: column for name, column in chosen.items() if column is not None}, list[int]()
    if isinstance(named.get("score"), list):
        named["score"], *others = named["score"]
        more = [_number_of(other, frame.labels, "frame") for other in others]
    of_clusters = [_number_of(named.pop("cluster"), frame.labels, "frame")] if "cluster" in named else []
    way_out, labels = "pass {}= with the name of its column", list(frame.labels)
    for number in (*more, *of_clusters):
        labels[number] = ""  # which is taken for no other column
    numbers = find_columns(named, labels, "both", "frame", items, way_out, frame.has_lists)

    def error(message: str, row: int) -> ReadingError:
        cells = (f"{label}={_cell(plain(column), row)!r}" for label, column in zip(frame.labels, frame.columns))
        return ReadingError(message, "frame", row + 1, ", ".join(cells), "row")

    columns = {name: frame[number] for name, number in numbers.items()}
    columns |= {f"score {number}": frame[number] for number in more}
    query = id_column(columns.pop("query"), "query ids", error)
    groups = [columns.pop("group", None), next((frame[number] for number in of_clusters), None)]
    flat, row, error_of_entry = exploded(columns, error, ranked=True)
    item = id_column(flat["item"], "item ids", error_of_entry) if "item" in flat else None
    grade = float_column(flat["grade"], "grade", error_of_entry, or_missing=True)
    if len(bad := np.flatnonzero(np.isinf(grade))):
        raise error_of_entry(f"Expected grade to be a finite number, got {grade[bad[0]]}", int(bad[0]))
    which = "rank" if "rank" in flat else "score"
    scores = [
        float_column(flat[name], which, error_of_entry, or_missing=True)
        for name in (which, *(f"score {number}" for number in more))
    ]
    return query, groups, row, item, [-score for score in scores] if which == "rank" else scores, grade


def error_of(source: str) -> Any:
    """The function that returns the error of a row of a source."""
    return lambda message, row: ReadingError(message, source, row + 1, "", "row")
