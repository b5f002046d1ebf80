"""Rows that are Python objects: JSON, JSON lines, dictionaries, tuples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from torchrank.names.arguments import warn
from torchrank.tables import column_names as names
from torchrank.tables.errors import ReadingError, RowError, shorten, shown
from torchrank.tables.id_columns import LONGEST_ID, NumberIds, TextIds, factorise, is_missing, of_objects
from torchrank.tables.pair_tables import Rows, keep_order, refuse_missing, subtopics_of
from torchrank.tables.text import LONGEST_LINE, Text


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
    kinds = {kind: issubclass(kind, int | np.integer) and kind is not bool for kind in set(map(type, listed))}
    texts = {kind for kind in kinds if issubclass(kind, str)}
    if texts == set(kinds) or all(kinds.values()):
        try:
            column = of_objects(listed)
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


def _value(column: Any, row: int) -> Any:
    """A row of a list, an array or a column of ids."""
    value = column.take(np.array([row])).tolist()[0] if isinstance(column, TextIds) else column[row]
    return value.item() if isinstance(value, np.generic) else value


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


def of_lists(tables: Mapping[Any, Any], value: str, source: str) -> Rows:
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
    return Rows(of_objects(list(tables)), np.array(query, np.int32), item, values, source, error)  # type: ignore[arg-type]


def of_tuples(tuples: Iterable[Any], value: str, chosen: names.Columns, source: str) -> Rows:
    """Rows of an iterable of tuples (query, document, value), named tuples or dictionaries.

    Tuples of four, (query, iteration, document, grade), are judgments as in a file, those of two have the grade 1.
    """
    rows = _objects(tuples).tolist() if hasattr(tuples, "tolist") else list(tuples)
    if not rows:
        return of_columns({"query": [], "item": [], value: []}, value, source)
    if isinstance(rows[0], np.ndarray) and len({np.shape(row) for row in rows}) == 1:
        rows = _objects(rows).tolist()
    first = rows[0]
    if isinstance(first, Mapping):
        return of_dictionaries(rows, value, chosen, source)
    fields = getattr(first, "_fields", None)
    if not isinstance(first, Sequence) or isinstance(first, str | bytes):
        raise ReadingError(
            f"Expected rows to be tuples (query, document, {value}), got {shown(first)}; pass one frame with"
            " a query, a score and a grade in each row, as tr.evaluate(frame, 'ndcg@10'), or tensors [query, candidate]"
            " to a metric, as tr.NDCG().score(scores, grades)",
            source, 1, "", "row",
        )  # fmt: skip
    if fields or chosen is not None:
        numbers = names.find(chosen, fields or [""] * len(first), value, source)
    elif len(first) == 3 or (len(first) in (2, 4) and value == "grade"):
        places = {2: (0, 1), 3: (0, 1, 2), 4: (0, 2, 3, 1)}[len(first)]
        numbers = dict(zip(("query", "item", value, "subtopic"), places))
    else:
        way_out = names.choice(value).format("query").replace("...", "0, ...") if len(first) > 2 else f"add the {value}"
        raise ReadingError(
            f"Expected rows to be tuples (query, document, {value}), got {len(first)} fields; {way_out}",
            source, 1, shown(first), "row",
        )  # fmt: skip
    for row, entry in enumerate(rows):
        if not isinstance(entry, Sequence) or len(entry) != len(first):
            raise ReadingError(
                f"Expected {len(first)} fields, as in the first row", source, row + 1, shown(entry), "row"
            )
    return of_columns({name: [entry[number] for entry in rows] for name, number in numbers.items()}, value, source)


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


def of_columns(columns: Mapping[str, Any], value: str, source: str, error: RowError | None = None) -> Rows:
    """Rows of the columns query, item, value or rank or none of both, and subtopic.

    Args:
        columns: lists, arrays or columns of ids by name. Without a value and a rank they are interactions, of grade 1.
        value: "score" or "grade".
        source: the name of the source.
        error: the function that returns the error of a row; None = one with the row itself.

    Raises:
        ReadingError: an id is neither text nor an integer, or a column has both; a value is not a number.
    """
    query, item, third = columns["query"], columns["item"], columns.get(value, columns.get("rank"))

    def error_of_row(message: str, row: int) -> ReadingError:
        text = ", ".join(shown(_value(column, row)) for column in (query, item, third) if column is not None)
        return ReadingError(message, source, row + 1, text, "row")

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


def of_dictionaries(
    rows: list[Any], value: str, chosen: names.Columns, source: str, error: RowError | None = None
) -> Rows:
    """Rows that are dictionaries with the same keys, as in JSON lines."""
    keys = list(rows[0])
    numbers = names.find(chosen, keys, value, source, has_lists=lambda number: has_lists([rows[0][keys[number]]]))
    wanted = {name: keys[number] for name, number in numbers.items()}
    for row, values in enumerate(rows):
        if not isinstance(values, Mapping) or any(key not in values for key in wanted.values()):
            message = f"Expected the keys {', '.join(map(repr, wanted.values()))}"
            raise error(message, row) if error else ReadingError(message, source, row + 1, shown(values), "row")
    return of_columns({name: [values[key] for values in rows] for name, key in wanted.items()}, value, source, error)


# ---- JSON ------------------------------------------------------------------------------------------------------------


def is_json_lines(text: Text) -> bool:
    """Whether the first line is a dictionary by itself, without dictionaries in it."""
    try:
        first = json.loads(text.first_line_bytes())
    except (ValueError, RecursionError):  # a long line is not a line of a file of lines
        return False
    if not isinstance(first, dict) or any(isinstance(value, dict) for value in first.values()):
        return False
    return not all(isinstance(value, list) for value in first.values())  # {query: [documents]}


def json_lines(text: Text, value: str, chosen: names.Columns) -> Rows:
    """Read a file with one dictionary in each line."""
    rows, lines = [], []
    for number, line in enumerate(bytes(text.buffer[text.begin : text.end]).split(b"\n"), text.first_line):
        if len(line) > LONGEST_LINE:
            raise Text.of(line, text.name, number).too_long(0)
        if line.strip():
            rows.append(_loads(line, text.name, number))
            lines.append((number, line))

    def error(message: str, row: int) -> ReadingError:
        number, line = lines[row]
        return ReadingError(message, text.name, number, line.decode("utf-8", "backslashreplace").strip())

    for row, values in enumerate(rows):
        if not isinstance(values, dict):
            raise error("Expected a dictionary in each line", row)
    return of_dictionaries(rows, value, chosen, text.name, error)


def json_tables(text: Text, value: str, subset: str | None, split: str | None) -> Any:
    """Read ``{query: {document: number}}``, MTEB's ``{subset: {split: {query: {document: score}}}}``, or rows."""
    tables = _loads(bytes(text.buffer[text.begin : text.end]), text.name, None)
    rows = isinstance(tables, list) and all(isinstance(row, dict | list) for row in tables)
    if not rows and not isinstance(tables, dict):
        raise ReadingError(f"Expected {{query: {{document: number}}}} or rows, got {shown(tables)}", text.name)
    for name, asked in (("subset", subset), ("split", split)) if value == "score" else ():
        if _depth(tables) > (3 if name == "subset" else 2):
            # Beside the subsets stands the description of the model.
            tables = {key: table for key, table in tables.items() if name == "split" or not key.startswith("mteb_")}
            tables = _chosen(tables, name, asked, text.name)
        elif asked is not None and _depth(tables) <= 2:
            raise ReadingError(
                f"Expected a file with a {name} {asked!r}, got {{query: {{document: number}}}}", text.name
            )
    return tables


def _depth(tables: Any, most: int = 4) -> int:
    """How many dictionaries are inside each other, at most ``most``."""
    if not most or not isinstance(tables, dict):
        return 0
    return 1 + max((_depth(table, most - 1) for table in islice(tables.values(), 3)), default=0)


def _chosen(tables: dict[str, Any], name: str, asked: str | None, source: str) -> dict[str, Any]:
    if asked is None and len(tables) == 1:
        return next(iter(tables.values()))
    if asked not in tables:
        raise ReadingError(
            f"Expected {name} to be one of {shorten(', '.join(tables))}, got {asked!r}; read it by tr.read_run(source,"
            f" {name}=...)",
            source,
        )
    return tables[asked]


def _loads(data: bytes, source: str, line: int | None) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            seen: set[str] = set()
            again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ReadingError(f"Expected each key once, got {again!r} twice", source, line)
        if (longest := max(map(len, table), default=LONGEST_ID)) > LONGEST_ID:
            message = f"Expected ids of at most {LONGEST_ID:,} characters, got one of {longest:,}; shorten it"
            raise ReadingError(message, source, line)
        return table

    try:
        return json.loads(data, object_pairs_hook=once)
    except ReadingError:
        raise
    except (ValueError, RecursionError) as error:
        number = getattr(error, "lineno", None) if line is None else line
        rows = data.split(b"\n")
        text = rows[number - 1 if line is None and number else 0].decode("utf-8", "backslashreplace") if rows else ""
        raise ReadingError(f"Expected JSON, got {error}", source, number, text.strip()) from error
