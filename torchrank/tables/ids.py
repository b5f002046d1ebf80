"""Columns of ids: text as places in a buffer, integers as they are. No id is cut or turned into another type."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, Self

import numpy as np

Array = np.ndarray

# The three bytes of a lone surrogate, each as a character.
_LONE = re.compile("\\udced[\\udca0-\\udcbf][\\udc80-\\udcbf]")

# An odd constant with well mixed bits: 2 ** 64 divided by the golden ratio.
MIX = np.uint64(0x9E3779B97F4A7C15)
# Words are read past the end of an id, so buffers end with so many bytes more.
PADDING = 8
# Rows that are hashed or compared at a time, so that temporaries stay small.
BLOCK = 2**18
# Ids that a dictionary of Python numbers faster than a sort of their hashes.
FEW = 5_000
# The most bytes of an id of a file or of a data frame.
LONGEST_ID = 100_000
# For each number of bytes of an id that a word of 8 bytes holds: the bytes that belong to the id.
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)


class Ids(Protocol):
    """A column of ids."""

    #: the type of the ids, for messages; ids of different kinds are never equal
    kind: str

    def __len__(self) -> int: ...

    def take(self, rows: Array) -> Any:
        """The ids of some rows, int64 [row]."""

    def tolist(self) -> list[Hashable]:
        """The ids as the user has them."""

    def hashable(self) -> Sequence[Hashable]:
        """The ids as hashable objects, equal only for equal ids."""

    def hashes(self) -> Array:
        """uint64 [row]: equal for equal ids."""

    def same(self, other: Any) -> Array:
        """bool [row]: the ids of two columns are equal, row by row."""

    def sort_keys(self) -> list[Array]:
        """Columns for :func:`numpy.lexsort` whose ascending order is that of the ids as text, byte by byte."""


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
        """The column of some strings, in UTF-8."""
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
        keys = self.hashable()
        try:
            return [key.decode() for key in keys]
        except UnicodeDecodeError:
            return [decode(key) for key in keys]

    def hashable(self) -> list[bytes]:
        view = self.buffer.data
        return [bytes(view[a : a + n]) for a, n in zip(self.start.tolist(), self.length.tolist())]

    def words(self, number: int) -> Array:
        """uint64 [row]: the bytes 8 * number to 8 * number + 7 of each id as an integer, zeros behind its end.

        Every id must be longer than 8 * number bytes.
        """
        at_each_byte = np.ndarray(len(self.buffer) - PADDING + 1, "<u8", self.buffer, strides=(1,))
        at = self.start if number == 0 else self.start + 8 * number
        return at_each_byte[at] & _MASKS[np.minimum(self.length - 8 * number, 8)]

    def _each_word(self) -> Iterator[tuple[Any, Array]]:
        """For each word of the longest id: the rows of ids that have such a word, and these words."""
        rows: Any = slice(None)
        part = self
        for number in range(-(-int(self.length.max(initial=0)) // 8)):
            longer = part.length > 8 * number
            if not longer.all():
                rows, part = np.arange(len(self))[rows][longer], part.take(longer)
            yield rows, part.words(number)

    def hashes(self) -> Array:
        if len(self) > BLOCK:
            whole = np.empty(len(self), dtype=np.uint64)
            for part in blocks(len(self)):
                whole[part] = self.take(part).hashes()
            return whole
        hashes = self.length.astype(np.uint64) * MIX
        for rows, word in self._each_word():
            hashes[rows] = _mixed(hashes[rows] ^ word)
        return hashes

    def same(self, other: Any) -> Array:
        if not isinstance(other, TextIds):
            return np.zeros(len(self), dtype=bool)
        same = self.length == other.length
        rows, number = np.flatnonzero(same & (self.length > 0)), 0
        while len(rows):
            equal = self.take(rows).words(number) == other.take(rows).words(number)
            same[rows[~equal]] = False
            number += 1
            rows = rows[equal & (self.length[rows] > 8 * number)]
        return same

    def changes(self) -> Array:
        """bool [row]: the id differs from the id before it, or is the first."""
        changes = np.ones(len(self), dtype=bool)
        for part in blocks(len(self) - 1):  # each with the row behind it
            changes[part.start + 1 : part.stop + 1] = self.take(slice(part.start, part.stop + 1))._differences()
        return changes

    def _differences(self) -> Array:
        """bool [row - 1]: two neighbours differ."""
        different = self.length[1:] != self.length[:-1]
        for rows, word in self._each_word():
            other = word[1:] != word[:-1]
            if isinstance(rows, slice):
                different |= other
            else:
                different[rows[:-1][other & (np.diff(rows) == 1)]] = True
        return different

    def _zero_at_end(self) -> bool:
        return 0 in self.length or not len(self) or 0 in self.buffer[self.start + self.length - 1]

    def sort_keys(self) -> list[Array]:
        # Two ids that differ in zero bytes at their ends have equal words.
        keys = [self.length] if self._zero_at_end() else []
        # Words that few ids have would be columns of zeros: what is behind the others is sorted as text.
        dense = 1 + int(self.length.mean() / 4) if len(self) else 0
        rows = np.flatnonzero(self.length > 8 * dense)
        rest = [key[8 * dense :] for key in self.take(rows).hashable()]
        if rest:
            place = {text: number for number, text in enumerate(sorted(set(rest)), 1)}
            keys.append(np.zeros(len(self), dtype=np.int64))
            keys[-1][rows] = [place[text] for text in rest]
        words = []
        for (rows, word), _ in zip(self._each_word(), range(dense)):
            words.append(np.zeros(len(self), dtype=np.uint64))
            words[-1][rows] = word.byteswap()
        return keys + words[::-1]


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

    def hashable(self) -> list[int]:
        return self.values.tolist()

    def hashes(self) -> Array:
        return _mixed(self.values.view(np.uint64) * MIX)

    def same(self, other: Any) -> Array:
        return self.values == other.values if isinstance(other, NumberIds) else np.zeros(len(self), dtype=bool)

    def changes(self) -> Array:
        """bool [row]: the id differs from the id before it, or is the first."""
        return np.concatenate([[True], self.values[1:] != self.values[:-1]])

    def sort_keys(self) -> list[Array]:
        # The decimal digits as a number of 19 digits, filled with zeros from the right; the shorter of two that agree
        # is the first. A minus sign is less than each digit.
        negative = self.values < 0
        size = np.where(negative, -self.values, self.values).view(np.uint64)
        powers = np.uint64(10) ** np.arange(1, 20, dtype=np.uint64)
        digits = 1 + np.searchsorted(powers, size, side="right")
        filled = size * np.uint64(10) ** (19 - digits).clip(0).astype(np.uint64)
        return [digits, filled, ~negative]


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

    def hashable(self) -> list[Hashable]:
        return [encode(value) if isinstance(value, str) else value for value in self.values]

    def hashes(self) -> Array:
        return np.fromiter((hash(value) & (2**64 - 1) for value in self.hashable()), np.uint64, len(self))

    def same(self, other: Any) -> Array:
        return np.fromiter((a == b for a, b in zip(self.hashable(), other.hashable())), bool, len(self))

    def sort_keys(self) -> list[Array]:
        try:
            numbers = {value: number for number, value in enumerate(sorted(set(self.values)))}
        except TypeError as error:
            kinds = " and ".join(sorted({type(value).__name__ for value in self.values}))
            way_out = "read the run by tr.read_run(source, ties='expected')"
            raise TypeError(f"Expected tied documents to have ids of one type, got {kinds}; {way_out}") from error
        return [np.fromiter((numbers[value] for value in self.values), np.int64, len(self))]


@dataclass(frozen=True, eq=False)
class KeyIds:
    """Ids that are keys of dictionaries, one dictionary per query, and are read only where they are needed."""

    tables: Sequence[Any]
    kind = "keys"

    @cached_property
    def start(self) -> Array:
        """int64 [query + 1]: the row of the first id of each query, and the number of rows."""
        return np.cumsum([0, *map(len, self.tables)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.start[-1])

    def take(self, rows: Array) -> Ids:
        query = np.searchsorted(self.start, rows, side="right") - 1
        names = {number: list(self.tables[number]) for number in np.unique(query).tolist()}
        places = (rows - self.start[query]).tolist()
        return of_objects([names[number][place] for number, place in zip(query.tolist(), places)])

    def whole(self) -> Ids:
        """All ids as a column."""
        return of_objects(list(chain.from_iterable(self.tables)))

    def locate(self, queries: Sequence[int], ids: Sequence[Any]) -> Array:
        """int64: the row of each id in its query; -1 = not there."""
        starts, places = self.start.tolist(), {}
        for query in set(queries):
            places[query] = {name: row for row, name in enumerate(self.tables[query], starts[query])}
        return np.array([places[query].get(name, -1) for query, name in zip(queries, ids)], dtype=np.int64)

    def tolist(self) -> list[Hashable]:
        return list(chain.from_iterable(self.tables))

    def hashable(self) -> Sequence[Hashable]:
        return self.whole().hashable()

    def hashes(self) -> Array:
        return self.whole().hashes()

    def same(self, other: Any) -> Array:
        return self.whole().same(other)

    def sort_keys(self) -> list[Array]:
        return self.whole().sort_keys()


def of_objects(values: list[Any]) -> TextIds | NumberIds | ObjectIds:
    """The column of some Python objects.

    Raises:
        ValueError: an integer does not fit in 64 bits.
    """
    kinds = set(map(type, values))
    if kinds <= {str}:
        return TextIds.of(values)
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        try:
            return NumberIds(np.array(values, dtype=np.int64))
        except OverflowError:
            large = next(value for value in values if not -(2**63) <= value < 2**63)
            raise ValueError(f"Expected integer ids that int64 can hold, got {large}; pass ids as text") from None
    if all(issubclass(kind, str) for kind in kinds):  # numpy strings
        return TextIds.of(list(map(str, values)))
    return ObjectIds(values)


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
    # Most rows have the id of the row before, so only the first row of each run is looked up.
    changes = np.flatnonzero(ids.changes())
    heads = ids.take(changes)
    codes = _numbered(heads) if len(heads) > FEW else _looked_up(heads)
    first = np.zeros(1 + codes.max(), dtype=np.int64)
    first[codes[::-1]] = changes[::-1]
    return np.repeat(codes, np.diff(changes, append=len(ids))), ids.take(first)


def _looked_up(ids: TextIds | NumberIds) -> Array:
    """The number of each id in the order of appearance, int32 [row], by a dictionary."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in ids.hashable()], dtype=np.int32)


def _numbered(ids: TextIds | NumberIds) -> Array:
    """The same by hashes of 64 bits; each id is compared with the first one of its hash."""
    _, first, place = np.unique(ids.hashes(), return_index=True, return_inverse=True)
    if not ids.same(ids.take(first[place])).all():
        return _looked_up(ids)
    number = np.empty(len(first), dtype=np.int32)
    number[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return number[place]


def pair_hashes(query: Array, items: Ids) -> Array:
    """uint64 [row]: a hash of the number of a query and the id of a document."""
    hashes = items.hashes()
    for part in blocks(len(hashes)):
        of_query = (query[part].astype(np.int64).view(np.uint64) + np.uint64(1)) * MIX
        hashes[part] = _mixed(hashes[part] + of_query)
    return hashes


def blocks(rows: int) -> list[slice]:
    """Slices of at most :data:`BLOCK` rows."""
    return [slice(at, min(at + BLOCK, rows)) for at in range(0, rows, BLOCK)]


def encode(text: str) -> bytes:
    """The bytes of a text; bytes of a file that are no UTF-8 come back as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # JSON can have other lone surrogates
        return b"".join(one.encode("utf-8", "surrogate" + ("escape" if _is_byte(one) else "pass")) for one in text)


def decode(data: bytes) -> str:
    r"""The text of some bytes, the inverse of :func:`encode`.

    Example:
        >>> decode(encode("a\udcff\ud800")) == "a\udcff\ud800"
        True
    """

    def joined(found: re.Match[str]) -> str:
        one = found[0].encode("utf-8", "surrogateescape").decode("utf-8", "surrogatepass")
        return found[0] if _is_byte(one) else one

    return _LONE.sub(joined, data.decode("utf-8", "surrogateescape"))


def _is_byte(character: str) -> bool:
    """Whether a character stands for a byte of a file that is no UTF-8."""
    return "\udc80" <= character <= "\udcff"


def _mixed(x: Array) -> Array:
    x = x * MIX
    x ^= x >> np.uint64(32)
    return x
