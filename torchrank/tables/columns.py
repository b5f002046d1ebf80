"""The columns of a table: their usual names, and the names or numbers that a user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchrank.names.nearest import did_you_mean
from torchrank.tables.errors import ReadingError

#: usual names of each column, in the order in which they are looked for, with "_" for "-" and blanks
USUAL = {
    "query": ("query", "query_id", "qid", "q_id", "queryid", "topic", "topic_id", "user", "user_id", "userid"),
    "item": (
        *("document", "doc", "doc_id", "docid", "docno", "document_id", "corpus_id", "passage_id", "pid"),
        *("item", "item_id", "itemid", "product_id", "movie_id"),
    ),
    "score": ("score", "scores", "sim", "similarity", "prediction", "pred", "rating"),
    "grade": ("grade", "relevance", "rel", "label", "judgment", "judgement", "score", "rating", "target"),
    "rank": ("rank", "position"),
}

Columns = Mapping[str, Any] | Sequence[Any] | None


def usual_form(name: str) -> str:
    """The form in which names are compared."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def find(columns: Columns, names: Sequence[str], value: str, source: str, item: bool = True) -> dict[str, int]:
    """The numbers of the columns of a table with names: of ``query``, ``item``, and the value or ``rank``.

    Args:
        columns: the user's choice: names or numbers, by column or in the order query, item, value; None = usual names.
        names: the names of all columns.
        value: "score" or "grade".
        source: the name of the source.
        item: whether the column of items must be there.

    Raises:
        ReadingError: a column is not there.

    Example:
        >>> find(None, ["query-id", "corpus-id", "score"], "grade", "")
        {'query': 0, 'item': 1, 'grade': 2}
    """
    chosen, found = given(columns, value), {}
    forms = [usual_form(str(name)) for name in names]
    for column in ("query", "item", value):
        asked = chosen.get(column, chosen.get("rank") if column == value else None)
        if asked is not None:
            found["rank" if column not in chosen else column] = number(asked, names, source)
            continue
        usual = [forms.index(name) for name in USUAL[column] if name in forms]
        usual = [one for one in usual if one not in found.values()]
        if usual:
            found[column] = usual[0]
        elif column == "score" and any(name in forms for name in USUAL["rank"]):
            found["rank"] = next(forms.index(name) for name in USUAL["rank"] if name in forms)
        elif item or column != "item":
            raise ReadingError(
                f"Expected a column of {column} ids named like {', '.join(USUAL[column][:4])}"
                if column in ("query", "item")
                else f"Expected a column of {column}s named like {', '.join(USUAL[column][:4])}",
                source,
                text=f"columns {', '.join(map(str, names))}; pass columns={{'{column}': ...}}",
            )
    return found


def given(columns: Columns, value: str) -> dict[str, Any]:
    """The user's choice of columns as a dictionary.

    Raises:
        ValueError: it names no column that is read.
    """
    if columns is None:
        return {}
    if isinstance(columns, str) or not isinstance(columns, Mapping | Sequence):
        raise TypeError(f"Expected columns to be a dictionary or three names, got {columns!r}")
    known = ("query", "item", value, "rank") if value == "score" else ("query", "item", value)
    if not isinstance(columns, Mapping):
        if len(columns) != 3:
            raise ValueError(f"Expected columns to be query, item and {value}, got {list(columns)!r}")
        return dict(zip(known, columns))
    for name in columns:
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise ValueError(f"Expected columns to be among {', '.join(known)}, got {name!r}{hint}")
    return dict(columns)


def number(asked: Any, names: Sequence[str], source: str) -> int:
    """The number of the column with a name or number.

    Raises:
        ReadingError: there is none.
    """
    if asked in names:
        return list(names).index(asked)
    if isinstance(asked, int) and 0 <= asked < len(names) and not any(isinstance(name, int) for name in names):
        return asked
    hint = did_you_mean(str(asked), [str(name) for name in names])
    raise ReadingError(f"Expected one of the columns {', '.join(map(str, names))}, got {asked!r}{hint}", source)
