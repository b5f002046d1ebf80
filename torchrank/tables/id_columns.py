"""Columns of ids: text as places in a buffer, integers as they are. No id is cut or turned into another type.

Every column has a ``kind``, the type of its ids for messages: ids of different kinds are never equal. ``take`` returns
the ids of chosen rows, int64 [row]; ``tolist`` the ids as the user has them; ``to_keys`` hashable objects, equal only
for equal ids; ``hashes`` uint64 [row], equal for equal ids; ``equals`` whether the ids of two columns are equal, row by
row.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self

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
        buffer: uint8, with :data:`PADDING` bytes behind the last id.
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
        """uint64 [row]: the bytes 8 * number to 8 * number + 7 of each id as an integer, zeros behind its end.

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

    def take(self, rows: Array) -> ObjectIds:
        return ObjectIds([self.values[row] for row in rows.tolist()])

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
        return of_objects([names[number][place] for number, place in zip(query.tolist(), places)])

    def tolist(self) -> list[Hashable]:
        return list(chain.from_iterable(self.tables))

    def rows_of(self, queries: Sequence[int], ids: Sequence[Any]) -> Array:
        """int64: the row of each id in its query; -1 = not there, or the query is -1."""
        starts, rows = self.start.tolist(), dict[int, dict[Any, int]]()
        for query in set(queries):
            names = enumerate(self.tables[query], starts[query]) if query >= 0 else ()
            rows[query] = {name: row for row, name in names}
        return np.array([rows[query].get(name, -1) for query, name in zip(queries, ids)], dtype=np.int64)


def of_objects(values: list[Any]) -> Ids:
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
    codes, first = _numbered(ids.take(heads))
    return np.repeat(codes, np.diff(heads, append=len(ids))), ids.take(heads[first])


def _numbered(ids: TextIds | NumberIds) -> tuple[Array, Array]:
    """The number of each id in the order of appearance, int32 [row], and the first row of each distinct id."""
    _, first, place = np.unique(ids.hashes(), return_index=True, return_inverse=True)
    if not ids.equals(ids.take(first[place])).all():  # two ids have the same hash
        rows: dict[Hashable, int] = {}
        row = np.array([rows.setdefault(key, row) for row, key in enumerate(ids.to_keys())])
        first, place = np.unique(row, return_inverse=True)
    number = np.empty(len(first), dtype=np.int32)
    number[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return number[place], np.sort(first)


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
