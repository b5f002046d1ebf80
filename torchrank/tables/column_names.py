"""The columns of a table: their usual names, and the names or numbers that a user gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain
from typing import Any

from torchrank.names.arguments import one_of, warn
from torchrank.names.nearest import did_you_mean
from torchrank.tables.errors import ReadingError

#: usual names of each column: first names of ids, then names that a column of texts may have, too; of a group the first
#: is read, and the others are an ambiguity
USUAL: dict[str, tuple[tuple[str, ...], ...]] = {
    "query": (
        ("query_id", "qid", "topic_id", "user_id", "uid", "user_idx", "session_id"),
        ("query", "topic", "user", "session"),
    ),
    "item": (
        ("docno",),  # PyTerrier has internal numbers in "docid"
        ("doc_id", "item_id", "document_id", "corpus_id", "passage_id", "pid", "iid", "item_idx", "movie_id")
        + ("product_id", "article_id", "track_id", "asin"),
        ("document", "doc", "passage", "item", "movie", "product", "article", "track"),
    ),
    "score": (
        ("score", "scores", "similarity", "sim", "prediction", "pred", "est", "y_score", "y_pred"),
        ("rank", "position", "rating"),  # which is the grade, where a frame has both
    ),
    "grade": (
        ("grade", "relevance", "rel", "label", "judgment", "judgement"),
        ("score", "rating", "target", "y_true", "r_ui"),
    ),
    "subtopic": (("subtopic", "subtopic_id", "intent", "intent_id", "aspect"), ("iteration", "iter")),
}
#: columns that hold ranks, 1 for the best
RANKS = ("rank", "position")
#: the columns that are read of judgments, of a run, and of one frame that has both
READ = {
    "grade": ("query", "item", "grade", "subtopic"),
    "score": ("query", "item", "score", "rank"),
    "both": ("query", "item", "score", "grade", "rank", "group"),
}
#: columns of interactions that hold no grade
TIMES = ("timestamp", "time", "datetime", "date")

Columns = Mapping[str, Any] | Sequence[Any] | None


def usual_form(name: Any) -> str:
    """The form in which names are compared: of ``User-ID``, ``userId`` and RecBole's ``user_id:token`` "userid"."""
    return re.sub(r"[\s_-]", "", str(name).lower()).partition(":")[0]


_FORMS = {column: [[usual_form(name) for name in group] for group in groups] for column, groups in USUAL.items()}
_ALL_FORMS = {form for groups in _FORMS.values() for group in groups for form in group}


def is_usual(name: Any) -> bool:
    """Whether a name is a usual name of a column."""
    return usual_form(name) in _ALL_FORMS


def find(
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
        value: "score", "grade" or "both".
        source: the name of the source.
        item: whether the column of items must be there.
        way_out: how to name a column, with "{}" for query, item or the value; "" = by :func:`choice`.
        has_lists: whether the rows of a column are lists, whose name may be a plural.

    Raises:
        ReadingError: a column is not there.

    Example:
        >>> find(None, ["query-id", "corpus-id", "score"], "grade", "")
        {'query': 0, 'item': 1, 'grade': 2}
    """
    chosen = chosen_columns(columns, value)
    numbers = {column: number(asked, names, source) for column, asked in chosen.items()}
    forms = [usual_form(name) for name in names]
    way_out = way_out or choice(value)
    ambiguous: list[tuple[list[str], list[int]]] = []
    missing: list[str] = []
    if "score" in chosen and forms[numbers["score"]] in RANKS:
        name, ranks = names[numbers["score"]], way_out.format("rank")
        warn(f"Column {name} is read as scores, so that the largest is the best; if it has ranks, {ranks}")
    for column in READ[value]:
        if column in numbers or column in ("rank", "group") or (column == "score" and "rank" in numbers):
            continue
        if known := _usual(column, forms, set(numbers.values()), has_lists):
            roles = ["rank" if column == "score" and forms[place] in RANKS else column for place in known]
            numbers[roles[0]] = known[0]
            ambiguous.append((roles, known))
        elif column != "subtopic" and (item or column != "item"):
            missing.append(column)
            if column == "query":
                break
    others = [n for n, form in enumerate(forms) if n not in numbers.values() and form not in TIMES]
    for column in missing:
        lists = "item" in numbers and has_lists(numbers["item"])
        interactions = column == value == "grade" or (column == "score" and lists)
        if not (interactions and (not others or (lists and "item" in chosen))):
            what = f"{column} ids" if column in ("query", "item") else f"{column}s"
            listed = ", ".join([name for group in USUAL[column] for name in group][:4])
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


def _usual(column: str, forms: Sequence[str], taken: Container[int], has_lists: Callable[[int], bool]) -> list[int]:
    """The numbers of the columns of the first group of usual names that has some."""
    groups = ([forms.index(form) for form in group if form in forms] for group in _FORMS[column])
    plurals = ([forms.index(f"{form}s") for form in group if f"{form}s" in forms] for group in _FORMS[column])
    lists = (list(filter(has_lists, group)) for group in plurals)
    return next((left for group in chain(groups, lists) if (left := [n for n in group if n not in taken])), [])


def choice(value: str) -> str:
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


def number(asked: Any, names: Sequence[Any], source: str) -> int:
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
