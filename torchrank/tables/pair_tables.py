"""Columns of ids, and the classes :class:`Qrels` and :class:`Run`: judgments and scores of documents as columns.

Ids are text, places in a buffer, or integers. No id is cut or turned into another type. Every column of ids has a
``kind``, the type of its ids for messages: ids of different kinds are never equal. ``take`` returns the ids of chosen
rows, int64 [row]; ``tolist`` the ids as the user has them; ``to_keys`` hashable objects, equal only for equal ids;
``hashes`` uint64 [row], equal for equal ids; ``equals`` whether the ids of two columns are equal, row by row.
"""

from __future__ import annotations

import re
import reprlib
from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, ClassVar, Literal, Self

import numpy as np

Array = np.ndarray

# The three bytes of a lone surrogate, each as a character.
_LONE = re.compile("\\udced[\\udca0-\\udcbf][\\udc80-\\udcbf]")

# Odd constants with well mixed bits; the first is 2 ** 64 divided by the golden ratio.
MIX, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
# Words are read past the end of an id, so buffers end with this number of further bytes.
PADDING = 8
# Rows that are hashed at a time, so that temporaries stay small.
BLOCK = 2**18
# The most bytes of an id of a file or of a data frame.
LONGEST_ID = 100_000
# For each number of bytes of an id that a word of 8 bytes holds: the bytes that belong to the id.
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class TextIds:
    """Ids that are text: places in a buffer of bytes.

    Args:
        buffer: uint8, with :data:`PADDING` bytes after the last id.
        start: integer [row], the place of the first byte.
        length: integer [row], the number of bytes.
    """

    buffer: Array
    start: Array
    length: Array
    kind = "text"

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        """The column of strings, in UTF-8."""
        joined = "".join(texts)
        if joined.isascii():
            data, lengths = joined.encode(), np.fromiter(map(len, texts), np.int64, len(texts))
        else:
            encoded = [encode(text) for text in texts]
            data, lengths = b"".join(encoded), np.fromiter(map(len, encoded), np.int64, len(texts))
        return cls(np.frombuffer(data + bytes(PADDING), np.uint8), np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Array | slice) -> TextIds:
        return TextIds(self.buffer, self.start[rows], self.length[rows])

    def tolist(self) -> list[Hashable]:
        keys = self.to_keys()
        try:
            return [key.decode() for key in keys]
        except UnicodeDecodeError:
            return [decode(key) for key in keys]

    def to_keys(self) -> list[bytes]:
        view = self.buffer.data
        return [bytes(view[start : start + n]) for start, n in zip(self.start.tolist(), self.length.tolist())]

    def words(self, number: int) -> Array:
        """uint64 [row]: the bytes 8 * number to 8 * number + 7 of each id as an integer, zeros after its end.

        Every id must have 8 * number bytes or more.
        """
        word_of_byte = np.ndarray(len(self.buffer) - PADDING + 1, "<u8", self.buffer, strides=(1,))
        start = self.start if number == 0 else self.start + 8 * number
        return word_of_byte[start] & _MASKS[np.minimum(self.length - 8 * number, 8)]

    def hashes(self) -> Array:
        hashes = np.empty(len(self), dtype=np.uint64)
        for part in blocks(len(self)):
            hashes[part] = self.take(part)._hashes()
        return hashes

    def _hashes(self) -> Array:
        hashes, number = mixed(self.length.astype(np.uint64) * MIX ^ self.words(0)), 1
        while len(rows := np.flatnonzero(self.length > 8 * number)):
            hashes[rows] = mixed(hashes[rows] ^ self.take(rows).words(number))
            number += 1
        return hashes

    def equals(self, other: Any) -> Array:
        if not isinstance(other, TextIds):
            return np.zeros(len(self), dtype=bool)
        equal, number = (self.length == other.length) & (self.words(0) == other.words(0)), 1
        while len(rows := np.flatnonzero(equal & (self.length > 8 * number))):
            equal[rows] = self.take(rows).words(number) == other.take(rows).words(number)
            number += 1
        return equal


@dataclass(frozen=True, eq=False)
class NumberIds:
    """Ids that are integers: int64 [row]."""

    values: Array
    kind = "integers"

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Array | slice) -> NumberIds:
        return NumberIds(self.values[rows])

    def tolist(self) -> list[Hashable]:
        return self.values.tolist()

    def to_keys(self) -> list[int]:
        return self.values.tolist()

    def hashes(self) -> Array:
        return mixed(self.values.view(np.uint64) * MIX)

    def equals(self, other: Any) -> Array:
        return self.values == other.values if isinstance(other, NumberIds) else np.zeros(len(self), dtype=bool)


@dataclass(frozen=True, eq=False)
class ObjectIds:
    """Ids of other types that Python can hash: keys of dictionaries."""

    values: list[Any]
    kind = "objects"

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Array | slice) -> ObjectIds:
        return ObjectIds([self.values[row] for row in np.arange(len(self))[rows].tolist()])

    def tolist(self) -> list[Hashable]:
        return self.values

    def to_keys(self) -> list[Hashable]:
        return [encode(value) if isinstance(value, str) else value for value in self.values]

    def hashes(self) -> Array:
        return np.fromiter((hash(key) & (2**64 - 1) for key in self.to_keys()), np.uint64, len(self))

    def equals(self, other: Any) -> Array:
        return np.fromiter((a == b for a, b in zip(self.to_keys(), other.to_keys())), bool, len(self))


Ids = TextIds | NumberIds | ObjectIds


@dataclass(frozen=True, eq=False)
class KeyIds:
    """Ids that are keys of dictionaries, one dictionary per query, and are read only where they are needed."""

    tables: Sequence[Any]

    @cached_property
    def start(self) -> Array:
        """int64 [query + 1]: the row of the first id of each query, and the number of rows."""
        return np.cumsum([0, *map(len, self.tables)], dtype=np.int64)

    def take(self, rows: Array) -> Ids:
        query = np.searchsorted(self.start, rows, side="right") - 1
        names = {number: list(self.tables[number]) for number in np.unique(query).tolist()}
        places = (rows - self.start[query]).tolist()
        return ids_of([names[number][place] for number, place in zip(query.tolist(), places)])

    def tolist(self) -> list[Hashable]:
        return list(chain.from_iterable(self.tables))

    def rows_of(self, queries: Sequence[int], ids: Sequence[Any]) -> Array:
        """int64: the row of each id in its query; -1 = not there, or the query is -1."""
        starts, rows = self.start.tolist(), dict[int, dict[Any, int]]()
        for query in set(queries):
            names = enumerate(self.tables[query], starts[query]) if query >= 0 else ()
            rows[query] = {name: row for row, name in names}
        return np.array([rows[query].get(name, -1) for query, name in zip(queries, ids)], dtype=np.int64)


def ids_of(values: list[Any]) -> Ids:
    """The column of Python objects.

    Raises:
        ValueError: an integer does not fit in 64 bits.
    """
    kinds = set(map(type, values))
    if all(issubclass(kind, str) for kind in kinds):
        return TextIds.of(values)
    if not all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return ObjectIds(values)
    try:
        return NumberIds(np.array(values, dtype=np.int64))
    except OverflowError:
        large = next(value for value in values if not -(2**63) <= value < 2**63)
        raise ValueError(f"Expected integer ids that int64 can hold, got {large}; pass ids as text") from None


def is_missing(value: Any) -> bool:
    """Whether a value in place of an id says that there is none: None, NaN, or NA of pandas."""
    return value is None or str(value != value) in ("True", "<NA>")


def text_order(ids: Ids) -> Array:
    """int64 [row]: numbers in the order of the ids as text, byte by byte; equal for equal ids.

    Raises:
        TypeError: the ids have no order.

    Example:
        >>> text_order(NumberIds(np.array([7, 10, -1, 7]))).tolist()
        [2, 1, 0, 2]
    """
    keys: Any = ids.values if isinstance(ids, ObjectIds) else ids.to_keys()
    keys = list(map(str, keys)) if isinstance(ids, NumberIds) else keys
    try:
        number = {key: place for place, key in enumerate(sorted(set(keys)))}
    except TypeError as error:
        kinds = " and ".join(sorted({type(key).__name__ for key in keys}))
        way_out = "read the run by tr.read_run(source, ties='expected')"
        raise TypeError(f"Expected tied documents to have ids of one type, got {kinds}; {way_out}") from error
    return np.fromiter((number[key] for key in keys), np.int64, len(keys))


def factorise(ids: TextIds | NumberIds) -> tuple[Array, TextIds | NumberIds]:
    """Number the distinct ids of a column in the order in which they appear.

    Returns:
        the number of each row, int32 [row], and the distinct ids.

    Example:
        >>> codes, distinct = factorise(TextIds.of(["b", "b", "a", "b"]))
        >>> codes.tolist(), distinct.tolist()
        ([0, 0, 1, 0], ['b', 'a'])
    """
    if not len(ids):
        return np.zeros(0, dtype=np.int32), ids
    # Most rows have the id of the row before, so only the first row of each run of equal ids is looked up.
    heads = np.flatnonzero(np.append(True, ~ids.take(slice(1, None)).equals(ids.take(slice(-1)))))
    some = ids.take(heads)
    first, number = _distinct(some.hashes())
    if not some.equals(some.take(first[number])).all():  # two ids have the same hash
        rows: dict[Hashable, int] = {}
        first, number = _distinct(np.array([rows.setdefault(key, row) for row, key in enumerate(some.to_keys())]))
    return np.repeat(number, np.diff(heads, append=len(ids))), some.take(first)


def pair_hashes(query: Array, items: Ids) -> Array:
    """uint64 [row]: a hash of the number of a query and the id of a document."""
    hashes = items.hashes()
    for part in blocks(len(hashes)):
        of_query = (query[part].astype(np.int64).view(np.uint64) + np.uint64(1)) * MIX
        hashes[part] = mixed(hashes[part] + of_query)
    return hashes


def blocks(rows: int) -> list[slice]:
    """Slices of at most :data:`BLOCK` rows."""
    return [slice(start, min(start + BLOCK, rows)) for start in range(0, rows, BLOCK)]


def encode(text: str) -> bytes:
    """The bytes of a text. Bytes of a file that are not UTF-8 are the same as in the file."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # JSON can have other lone surrogates
        return b"".join(c.encode("utf-8", "surrogate" + ("escape" if _is_byte(c) else "pass")) for c in text)


def decode(data: bytes) -> str:
    r"""The text of bytes, the inverse of :func:`encode`.

    Example:
        >>> decode(encode("a\udcff\ud800")) == "a\udcff\ud800"
        True
    """

    def joined(match: re.Match[str]) -> str:
        character = match[0].encode("utf-8", "surrogateescape").decode("utf-8", "surrogatepass")
        return match[0] if _is_byte(character) else character

    return _LONE.sub(joined, data.decode("utf-8", "surrogateescape"))


def _is_byte(character: str) -> bool:
    """Whether a character stands for a byte of a file that is not UTF-8."""
    return "\udc80" <= character <= "\udcff"


def mixed(x: Array) -> Array:
    """uint64: numbers of 64 well mixed bits, in place of numbers that differ in few bits."""
    x = x * MIX
    x = (x ^ (x >> np.uint64(32))) * SECOND
    return x ^ (x >> np.uint64(29))


# Longest piece of a source that a message shows.
SHOWN = 120
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = SHOWN


class ReadingError(ValueError):
    """A source of judgments or of a run cannot be read.

    Fields: ``source``, its name; ``line``, the number of the line or row, counted from 1, or None; ``unit``, "line"
    or "row"; ``text``, the text of the line, shortened.
    """

    def __init__(self, message: str, source: str = "", line: int | None = None, text: str = "", unit: str = "line"):
        self.source, self.line, self.text, self.unit = source, line, shorten(text), unit
        place = f"{source}, {unit} {line}" if line is not None else source
        shown = f": {self.text!r}" if text else ""
        super().__init__(f"{place}: {message}{shown}" if place else f"{message}{shown}")


#: returns the error of a row, given a message and the number of the row, from 0
RowError = Callable[[str, int], ReadingError]


class NothingInCommonError(ValueError):
    """Judgments and a run have queries and documents, but none in common."""


def no_common_query(theirs: Hashable, ours: Hashable, where: str = "") -> NothingInCommonError:
    """The error that shows a query of the run and a judged query."""
    way_out = "use the same ids in both"
    if isinstance(theirs, str) != isinstance(ours, str):
        texts = "astype({'query_id': str, 'doc_id': str})"
        way_out = f"an integer never equals a text: read both as text, in pandas by {texts}"
    why = f"a query of the run is {theirs!r}, a judged query is {ours!r}; {way_out}"
    return NothingInCommonError(f"Expected queries that are judged{where}, got none: {why}")


def shorten(text: str) -> str:
    """A text of at most :data:`SHOWN` characters, with "..." for its missing end."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def shown(value: object) -> str:
    """A value as messages show it, without its middle if it is long, and without what is nested in it deeply."""
    return _SHORT.repr(value)


Duplicates = Literal["error", "first", "best"]
Ties = Literal["document", "expected", "rows"]
# The document of which an item is a chunk: what is before the last separator in its id, or by a dictionary or function.
Parent = str | Mapping[Any, Hashable] | Callable[[Any], Hashable]
# Most values of the second column of judgments, for a query, that are read as its subtopics.
MOST_SUBTOPICS = 100
# Keys of dictionaries whose types are looked at. In others the usual missing ids are looked up, which takes less time.
TYPED = 2**16


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as they are read, before they are checked.

    Args:
        queries: the distinct queries.
        query: integer [row], the number of the query of each row.
        item: the id of the document of each row.
        value: float64 [row].
        source: the name of the source.
        error: returns the error of a row, given a message and the number of the row, from 0.
        subtopic: integer [row], the number of the subtopic in its query, as :func:`subtopics_of` returns it.
    """

    queries: TextIds | NumberIds
    query: Array
    item: TextIds | NumberIds
    value: Array
    source: str
    error: RowError
    subtopic: Array | None = None

    def take(self, rows: Array | None) -> Rows:
        """The chosen rows, int64 [n]; None = all."""
        if rows is None:
            return self
        subtopic = None if self.subtopic is None else self.subtopic[rows]
        columns = {"query": self.query[rows], "item": self.item.take(rows), "value": self.value[rows]}
        return replace(self, **columns, subtopic=subtopic)

    @cached_property
    def hashes(self) -> Array:
        """uint64 [row]: a hash of query and document."""
        return pair_hashes(self.query, self.item)

    def without_duplicates(self, duplicates: Duplicates) -> Array | None:
        """The rows that stay if every document of a query, or of its subtopic, is there once; None = all.

        Raises:
            ReadingError: a document occurs twice, and ``duplicates`` is "error".
        """
        group, hashes = self.query, self.hashes
        if self.subtopic is not None:
            group = group.astype(np.int64) * MOST_SUBTOPICS + self.subtopic
            hashes = pair_hashes(group, self.item)
        ordered = np.sort(hashes)
        again = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(again):
            return None
        keep = np.ones(len(group), dtype=bool)
        seen: dict[tuple[int, Hashable], int] = {}
        suspects = np.flatnonzero(np.isin(hashes, again))
        for row, key in zip(suspects.tolist(), self.item.take(suspects).to_keys()):
            first = seen.setdefault((int(group[row]), key), row)
            if first == row:
                continue
            if duplicates == "error":
                place = self.error("", first)
                before = f"first in {place.unit} {place.line}" if place.line else "first before it"
                item, query = (
                    shown(ids.take(np.array([n])).tolist()[0])
                    for ids, n in ((self.item, row), (self.queries, self.query[row]))
                )
                raise self.error(
                    f"Expected every document once for its {'query' if self.subtopic is None else 'subtopic'}, got"
                    f" document {item} of query {query} twice, {before}; pass duplicates='first' or 'best'",
                    row,
                )
            better = duplicates == "best" and self.value[row] > self.value[first]
            keep[first if better else row] = False
            seen[int(group[row]), key] = row if better else first
        return None if keep.all() else np.flatnonzero(keep)


def subtopics_of(query: Array, ids: TextIds | NumberIds | None) -> Array | None:
    """The number of the subtopic of each row among those of its query, in the order of their ids: int64 [row].

    None if no query has several, or if a query has more than :data:`MOST_SUBTOPICS`: then the ids have another meaning.

    Example:
        >>> subtopics_of(np.array([0, 0, 1, 0]), TextIds.of(["10", "2", "7", "2"])).tolist()
        [1, 0, 0, 0]
    """
    if not ids:
        return None
    code, distinct = factorise(ids)
    number = len(distinct)
    several = np.unique(query.astype(np.int64) * number + code) // number
    if not 1 < np.bincount(several).max() <= MOST_SUBTOPICS:
        return None
    names = [str(name) for name in distinct.tolist()]
    order = sorted(range(number), key=lambda place: (len(names[place]), names[place]))  # "10" after "2"
    pair = query.astype(np.int64) * number + np.argsort(order)[code]
    known = np.unique(pair)
    return np.searchsorted(known, pair) - np.searchsorted(known, query.astype(np.int64) * number)


@dataclass(frozen=True, eq=False)
class PairTable:
    """One number for each (query, document) pair.

    Args:
        queries: the distinct queries.
        query: integer [row], the number of the query of each row.
        items: the document of each row, :class:`Ids` or :class:`KeyIds`.
        value: float64 [row].
        source: the name of the source.
    """

    queries: Ids
    query: Array
    items: Any
    value: Array
    source: str = ""
    #: uint64 [row]: hashes of query and document, if they are known
    known_hashes: Array | None = field(default=None, repr=False)
    #: the table of the items, and the parent of each item, if the documents here are parents; see :meth:`by_parent`
    parts: tuple[PairTable, list[Hashable]] | None = field(default=None, repr=False)
    #: int64 [row]: the row of each pair in one frame, from which both the judgments and the run are
    frame_row: Array | None = field(default=None, repr=False)

    #: the name of the number
    value_name: ClassVar[str] = "value"
    #: the expected numbers, for messages
    expected: ClassVar[str] = "a number"

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        source = f", source={self.source!r}" if self.source else ""
        return f"{type(self).__name__}(queries={len(self.queries)}, rows={len(self)}{source})"

    @property
    def query_ids(self) -> list[Hashable]:
        """The ids of the queries, in the order of their numbers."""
        return self.queries.tolist()

    @cached_property
    def hashes(self) -> Array:
        """uint64 [row]: a hash of query and document."""
        return pair_hashes(self.query, self.items) if self.known_hashes is None else self.known_hashes

    @property
    def columns(self) -> Self:
        """This table with its documents as a column, also if they are keys of dictionaries."""
        return self._of_keys if isinstance(self.items, KeyIds) else self  # not kept: a cycle would keep its memory

    @cached_property
    def _of_keys(self) -> Self:
        return replace(self, items=ids_of(self.items.tolist()))

    def with_rows(self, rows: Array) -> Self:
        """The chosen rows, int64 [n], with all queries."""
        frame_row = None if self.frame_row is None else self.frame_row[rows]
        columns = {"query": self.query[rows], "items": self.items.take(rows), "value": self.value[rows]}
        return replace(self, **columns, known_hashes=None, frame_row=frame_row)

    def by_parent(self, parent: Parent | None) -> Self:
        """The table of the documents that the items are parts of, each with its largest number; None = the items.

        Raises:
            TypeError: ``parent`` is neither a separator, a dictionary nor a function, or returns no id.
        """
        if parent is None:
            return self
        parents = _parents_of(parent, self.items.tolist())
        number = {one: n for n, one in enumerate(dict.fromkeys(parents))}
        pair = self.query.astype(np.int64) * len(number) + np.array([number[one] for one in parents], dtype=np.int64)
        first, row = _distinct(pair)
        items, value = ids_of([parents[place] for place in first.tolist()]), _largest(self.value, row, len(first))
        parts = self, parents
        columns = {"query": self.query[first], "items": items, "value": value}
        return replace(self, **columns, known_hashes=None, parts=parts, frame_row=None)

    def to_dict(self) -> dict[Hashable, dict[Hashable, float]]:
        """The table as ``{query: {document: number}}``."""
        tables: list[dict[Hashable, float]] = [{} for _ in range(len(self.queries))]
        for query, item, value in zip(self.query.tolist(), self.items.tolist(), self.value.tolist()):
            tables[query][item] = value
        return dict(zip(self.query_ids, tables))

    @classmethod
    def of_rows(cls, rows: Rows, duplicates: Duplicates) -> Self:
        """Check rows, and number their queries.

        Raises:
            ReadingError: a number is NaN, or a document occurs twice for its query.
        """
        bad = cls._bad(rows.value)
        if bad.any():
            row = int(bad.argmax())
            raise rows.error(f"Expected {cls.value_name} to be {cls.expected}, got {_shown(rows.value[row])}", row)
        return cls.of_distinct(rows.take(rows.without_duplicates(duplicates)))

    @classmethod
    def of_distinct(cls, rows: Rows) -> Self:
        """The table of checked rows, each of another document."""
        return cls(rows.queries, rows.query, rows.item, rows.value, rows.source, rows.hashes)

    @classmethod
    def of_dict(cls, tables: Mapping[Any, Mapping[Any, Any]], source: str = "") -> Self:
        """The table of ``{query: {document: number}}``, whose documents are read only where they are needed.

        Raises:
            ReadingError: a query has no dictionary, an id is missing, or a number is none or NaN.
        """
        inner = list(tables.values())
        for query, table in tables.items():
            if not isinstance(table, Mapping):
                form = f"{{query: {{document: {cls.value_name}}}}}"
                raise ReadingError(f"Expected {form}, got {type(table).__name__} for query {query!r}", source)
        kinds = set(map(type, islice(chain(tables, chain.from_iterable(inner)), TYPED)))
        if not kinds <= {str, int} or any(key in table for table in (tables, *inner) for key in ("", None, np.nan)):
            refuse_missing(tables, "query ids", source)
            for query, table in tables.items():
                refuse_missing(table, f"document ids of query {shown(query)}", source)
        sizes = np.fromiter(map(len, inner), np.int64, len(inner))
        value = _floats(chain.from_iterable(table.values() for table in inner))
        if cls._bad(value).any():
            for query, table in tables.items():
                for item, number in table.items():
                    if cls._bad(_floats([number])).any():
                        got = f"{_shown(number)} for document {shown(item)} of query {shown(query)}"
                        raise ReadingError(f"Expected {cls.value_name} to be {cls.expected}, got {got}", source)
        numbers = chain.from_iterable(table.values() for table in inner)
        changed = keep_order(value, lambda rows: list(map(list(numbers).__getitem__, rows.tolist())))
        queries = ids_of(list(tables))
        query = np.repeat(np.arange(len(inner), dtype=np.int32), sizes)
        made = cls(queries, query, KeyIds(inner), value, source)
        return made.columns if changed else made  # the numbers of the dictionaries are not read again

    @classmethod
    def _bad(cls, values: Array) -> Array:
        """Which numbers are refused, bool [row]."""
        return np.isnan(values)


def refuse_missing(ids: Iterable[Any], what: str, source: str) -> None:
    """Raise ReadingError if one of the keys of a dictionary is no id."""
    for key in ids:
        if is_missing(key) or key == "":
            raise ReadingError(f"Expected {what} to be text or integers, got {key!r}; leave it out", source)


def _parents_of(parent: Parent, items: Sequence[Any]) -> list[Hashable]:
    """The document of each item, which is the item itself if it has no parent."""
    if isinstance(parent, str) and parent:
        return [item.rpartition(parent)[0] or item if isinstance(item, str) else item for item in items]
    if not isinstance(parent, Mapping) and not callable(parent):
        wanted = "a separator such as '#', a dictionary from chunk to document or a function"
        raise TypeError(f"Expected parent to be {wanted}, got {parent!r}")
    found = list(map(parent.get if isinstance(parent, Mapping) else parent, items))
    for item, document in zip(items, found):
        if not isinstance(document, Hashable) or document == "":
            way_out = "for an id without a parent return None"
            raise TypeError(f"Expected parent to return text or an integer, got {document!r} for {item!r}; {way_out}")
    return [item if is_missing(document) else document for item, document in zip(items, found)]


def _distinct(x: Array) -> tuple[Array, Array]:
    """The first row of each distinct element, in the order of these rows, and the place in it of each row, int32."""
    _, first, row = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order))
    return first[order], place[row]


def _largest(values: Array, row: Array, rows: int) -> Array:
    """The largest of the values [entry, ...] of each row."""
    largest = np.full((rows, *values.shape[1:]), -np.inf)
    np.maximum.at(largest, row, values)
    return largest


def _floats(values: Iterable[Any]) -> Array:
    """float64 [value]; one NaN if a value is not a number."""
    try:
        # An array of Python refuses text, which numpy would convert; from a list it is faster.
        return np.array(array("d", list(values)), dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return np.full(1, np.nan)


def keep_order(values: Array, exact: Callable[[Array], Any], least: float = 2.0**53) -> bool:
    """Change numbers that were rounded to the same float64, so that they are different and in their order.

    The numbers of one sign are moved away from 0, each by as few float64 as possible.

    Args:
        values: float64 [row], which is changed.
        exact: returns the numbers of some rows, int64 [n], before they were rounded: [n].
        least: the smallest absolute value that rounding may have changed.

    Returns:
        whether there are numbers of this size.

    Example:
        >>> values = np.array([2.0**53, 2.0**53, 0.5])
        >>> keep_order(values, lambda rows: [2**53 + 1, 2**53]), values.tolist()
        (True, [9007199254740994.0, 9007199254740992.0, 0.5])
    """
    large = np.flatnonzero((np.abs(values) >= least) & np.isfinite(values))
    if not len(large):
        return False
    numbers = exact(large)
    if not isinstance(numbers, np.ndarray):
        numbers, given = np.empty(len(large), dtype=object), numbers
        numbers[:] = [x.item() if hasattr(x, "item") else x for x in given]
        with suppress(TypeError, OverflowError):
            numbers = np.array(array("q", numbers))  # all are integers, which are sorted faster
    for sign in (1, -1):
        rows = np.flatnonzero(sign * values[large] >= least)
        distinct, place = np.unique(numbers[rows], return_inverse=True)
        # The bits of positive floats are integers in the same order.
        bits = np.abs(distinct[::sign].astype(np.float64)).view(np.int64)
        step = np.arange(len(bits))
        bits = np.maximum.accumulate(bits - step) + step
        values[large[rows]] = sign * bits.view(np.float64)[::sign][place]
    return True


@dataclass(frozen=True, eq=False, repr=False)
class Qrels(PairTable):
    """Judgments: a grade for each judged (query, document) pair; made by :func:`read_qrels`.

    Columns: ``query`` integer [row], the number of the query in ``query_ids``; ``grades`` float64 [row]; ``subtopics``
    float64 [row, subtopic], the grade for each subtopic of the query, of which ``grades`` has the largest; None = none.

    Example:
        >>> import torchrank as tr
        >>> qrels = tr.read_qrels({"q1": {"a": 1, "b": 0}, "q2": {"a": 2}})
        >>> qrels, qrels.query_ids, qrels.grades.tolist()
        (Qrels(queries=2, rows=3), ['q1', 'q2'], [1.0, 0.0, 2.0])
    """

    value_name = "grade"
    expected = "a finite number"
    subtopics: Array | None = field(default=None, repr=False)

    @classmethod
    def of_distinct(cls, rows: Rows) -> Self:
        if rows.subtopic is None:
            return super().of_distinct(rows)
        item, _ = factorise(rows.item)
        pair = rows.query.astype(np.int64) * (1 + item.max()) + item
        first, row = _distinct(pair)
        value = _largest(rows.value, row, len(first))
        # A document is not relevant to other subtopics, or not judged if it is so for none.
        grades = np.repeat(np.minimum(value, 0)[:, None], 1 + rows.subtopic.max(), axis=1)
        grades[row, rows.subtopic] = rows.value
        return replace(super().of_distinct(rows.take(first)), value=value, subtopics=grades)

    def with_rows(self, rows: Array) -> Self:
        return replace(super().with_rows(rows), subtopics=None if self.subtopics is None else self.subtopics[rows])

    def by_parent(self, parent: Parent | None) -> Self:
        if parent is None or self.subtopics is None:
            return super().by_parent(parent)
        # Each subtopic is a table of its own, whose rows are alike.
        columns = [replace(self, value=column, subtopics=None).by_parent(parent) for column in self.subtopics.T]
        grades = np.stack([column.value for column in columns], axis=-1)
        parents = columns[0].parts[1]  # type: ignore[index]
        return replace(columns[0], value=grades.max(-1), subtopics=grades, parts=(self, parents))

    @classmethod
    def _bad(cls, values: Array) -> Array:
        return ~np.isfinite(values)

    @property
    def grades(self) -> Array:
        """float64 [row]: the grade of each pair; below 0 = in the pool, not judged."""
        return self.value


@dataclass(frozen=True, eq=False, repr=False)
class Run(PairTable):
    """A run: a score for each retrieved (query, document) pair; made by :func:`read_run`.

    Columns: ``query`` integer [row], the number of the query in ``query_ids``; ``scores`` float64 [row]. ``ties`` is
    ``"document"`` (equal scores rank by id, the higher first, as in trec_eval), ``"rows"`` (in the order of the rows)
    or ``"expected"`` (they are tied).

    Example:
        >>> import torchrank as tr
        >>> run = tr.read_run([("q1", "a", 0.5), ("q1", "b", 0.7)])
        >>> len(run), run.query_ids, run.scores.tolist()
        (2, ['q1'], [0.5, 0.7])
    """

    value_name = "score"
    ties: Ties = "document"

    @property
    def scores(self) -> Array:
        """float64 [row]: the score of each pair; -inf = not retrieved."""
        return self.value

    def with_ties(self, ties: Ties) -> Run:
        """This run with another rule for equal scores."""
        return replace(self, ties=ties)

    def first(self, depth: int) -> Run:
        """The first documents of each query; equal scores are cut by id, or by row."""
        if not (self.lists.retrieved > depth).any():
            return self
        rows = self.ranked
        query = self.query[rows]
        place = np.arange(len(rows)) - np.searchsorted(query, query)
        return self.columns.with_rows(np.sort(rows[place < depth]))

    @property
    def ranked(self) -> Array:
        """int64 [row]: the retrieved rows of each query by rank, queries by their numbers; ties as ``ties`` says."""
        lists = self.lists
        rows = lists.row(np.arange(len(self)))
        query = self.query[rows]
        begin = np.flatnonzero(np.append(True, (np.diff(query) != 0) | (lists.scores[1:] != lists.scores[:-1])))
        size = np.diff(begin, append=len(rows))
        places, ordered = lists.ordered(self.columns, begin[size > 1], size[size > 1])
        rows[places] = ordered
        return rows[self.value[rows] > -np.inf]

    @cached_property
    def lists(self) -> RankedLists:
        """The rows of each query by descending score."""
        return RankedLists.of(self.query, self.value, len(self.queries))


@dataclass(frozen=True, eq=False)
class RankedLists:
    """The rows of a run by query, then by descending score."""

    #: int64 [row]: numbers of the rows in this order; None = they are in this order
    rows: Array | None
    #: float64 [row]: scores in this order
    scores: Array
    #: int64 [query + 1]: the place where each query begins, and the number of rows
    start: Array
    #: int64 [query]: number of retrieved documents, which have a score above -inf
    retrieved: Array

    @classmethod
    def of(cls, query: Array, scores: Array, num_queries: int) -> RankedLists:
        """Sort the rows; nothing is sorted if they are in order."""
        rows = None
        if ((query[1:] < query[:-1]) | (scores[1:] > scores[:-1]) & (query[1:] == query[:-1])).any():
            by_score = np.empty(len(scores), dtype=np.int64)
            by_score[np.argsort(-scores)] = np.arange(len(scores))
            rows = np.argsort(query.astype(np.int64) * len(scores) + by_score)
            query, scores = query[rows], scores[rows]
        start = np.searchsorted(query, np.arange(num_queries + 1, dtype=query.dtype))
        retrieved = np.diff(start)
        if len(scores) and scores.min() == -np.inf:
            retrieved = count_above(scores, start[:-1], start[1:], np.full(num_queries, -np.inf))
        return cls(rows, scores, start, retrieved)

    def row(self, places: Array) -> Array:
        """The rows at places of the order."""
        return places if self.rows is None else self.rows[places]

    def tie(self, query: Array, score: Array) -> tuple[Array, Array]:
        """How many scores of a query are above a score, and how many are equal to it: two of int64 [entry]."""
        bounds = self.start[query], self.start[query + 1], score
        above = count_above(self.scores, *bounds)
        return above, count_above(self.scores, *bounds, or_equal=True) - above

    def ordered(self, run: Run, begin: Array, size: Array) -> tuple[Array, Array]:
        """The places of tie groups, and their rows in the order of ``run.ties``: two of int64 [member].

        Args:
            run: the run of these lists.
            begin: int64 [group], the place where each group begins.
            size: int64 [group].
        """
        group = np.repeat(np.arange(len(begin)), size)
        places = np.arange(len(group)) - (np.cumsum(size) - size)[group] + begin[group]
        rows = self.row(places)
        order = rows if run.ties == "rows" else -text_order(run.items.take(rows))
        return places, rows[np.lexsort((order, group))]


def count_above(scores: Array, start: Array, stop: Array, than: Array, or_equal: bool = False) -> Array:
    """How many scores are above others: int64 [entry], by binary search in all lists at once.

    Args:
        scores: float64 [row], descending from ``start`` to ``stop``.
        start: where the list of each entry begins.
        stop: where it ends.
        than: float64 [entry].
        or_equal: count equal scores too.

    Example:
        >>> count_above(np.array([3.0, 2.0, 2.0, 1.0]), np.array([0]), np.array([4]), np.array([2.0])).tolist()
        [1]
    """
    low, high = start.copy(), stop.copy()
    while (open_ := low < high).any():
        middle = np.minimum((low + high) // 2, len(scores) - 1)
        above = scores[middle] >= than if or_equal else scores[middle] > than
        low = np.where(open_ & above, middle + 1, low)
        high = np.where(open_ & ~above, middle, high)
    return low - start


def _shown(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    return "NaN" if value is not None and is_missing(value) else shown(value)
