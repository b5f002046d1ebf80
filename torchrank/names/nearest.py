"""The known names that are most like an unknown one."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable


def nearest(names: Iterable[str], known: dict[str, str]) -> list[str]:
    """Up to three names of different measures that are most like the given ones; a known one alone."""
    names = tuple(names)
    if exact := [name for name in names if name in known]:
        return exact[:1]
    likeness = {other: max(_likeness(name, other) for name in names) for other in known}
    hints: dict[str, str] = {}
    # Close to the best and not too far from the name: a bad hint is worse than none.
    for near in sorted(known, key=likeness.__getitem__, reverse=True):
        if likeness[near] >= 0.7 and likeness[near] > max(likeness.values()) - 0.15:
            hints.setdefault(known[near], near)
    return list(hints.values())[:3]


def _likeness(name: str, other: str) -> float:
    # Half for common letters, half for common sequences: letters alone would make all anagrams equal.
    shared = 2 * (Counter(name) & Counter(other)).total() / (len(name) + len(other))
    return (shared + difflib.SequenceMatcher(None, other, name).ratio()) / 2


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message for an unknown name: the nearest known names, or nothing."""
    name = str(name)  # an argument of another type is unknown, too
    by_lower = {other.lower(): other for other in known}
    near = nearest([name.lower()], {other: other for other in by_lower})
    return f"; did you mean {' or '.join(repr(by_lower[other]) for other in near)}?" if near else ""
