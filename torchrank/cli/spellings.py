"""``torchrank spellings``: the names of measures in other libraries, as tables in Markdown."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

import torchrank.public  # noqa: F401 - all measures
from torchrank.cli.plain import listed, rows
from torchrank.names.labels import Label, read, split, write
from torchrank.names.parse import resolve
from torchrank.names.registry import measures
from torchrank.names.spellings import PARSE, TITLES, Known, known, without_optional
from torchrank.statistics.table import Table

#: numbers in place of the names in braces
_NUMBERS: dict[str, Any] = defaultdict(lambda: 0.5, k=10, root=math.sqrt(0.5))


HEAD = "Names that mean something else in a library: name, here, there"


def lines(width: float) -> str:
    """A line for each label with all its spellings, then the names that have another meaning in their library."""
    return _lists(measures(), lambda pairs: listed(pairs, width))


def pages(text: str) -> list[str]:
    """The spellings of the measures that a text names, in any spelling.

    Raises:
        ValueError: no measure has this name.
    """
    names = dict.fromkeys(label.name for name in split(text) for label in resolve(name))
    return [_lists(names, lambda pairs: "\n".join(rows((x.replace("`", ""), y.replace("`", "")) for x, y in pairs)))]


def _lists(names: Collection[str], show: Callable[[list[tuple[str, str]]], str]) -> str:
    same, others = _spellings(names)
    lists = [same, [(name, f"{here}; {there}") for name, here, there in others]]
    return f"\n\n{HEAD}\n\n".join(show(pairs) for pairs in lists if pairs)


def table() -> str:
    """:func:`lines` as tables in Markdown."""
    same, others = (list(zip(*rows)) for rows in _spellings(measures()))
    first, second = Table(dict(zip(("label", "spellings"), same))), Table(dict(zip(("name", "here", "there"), others)))
    return f"{first.to_markdown()}\n\nNames that mean something else in a library:\n\n{second.to_markdown()}"


def _spellings(names: Collection[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Labels of measures with their spellings; and names with another meaning in their library, and both meanings."""
    spellings: dict[str, dict[str, None]] = {}
    others: dict[tuple[str, str], dict[str, None]] = {}
    for name in names:
        for entry in known(measures()[name]):
            theirs = without_optional(entry.theirs)
            label = ", ".join(name + without_optional(setting) for setting in entry.settings)
            here = read_here(name, entry) if theirs else []
            if entry.same and here == read_there(name, entry):
                if theirs != name:
                    spellings.setdefault(label, {})[f"`{theirs}`"] = None
            elif here and entry.library != PARSE:
                row = (f"`{theirs}`", f"`{', '.join(write(it.name, it.parameters, None) for it in here)}`")
                remark = f"`{label}`" if entry.same else entry.remark
                others.setdefault(row, {})[f"{TITLES[entry.library]}: {remark}"] = None
    same = [(f"`{label}`", ", ".join(spellings[label])) for label in sorted(spellings)]
    return same, [(*row, "; ".join(others[row])) for row in sorted(others, key=lambda row: row[0].lower())]


def read_there(name: str, entry: Known, cut: str = "") -> list[Label]:
    """The labels of a measure's name as its library means it, with numbers in braces."""
    return [read(name + without_optional(setting).format_map(_NUMBERS) + cut) for setting in entry.settings]


def read_here(name: str, entry: Known) -> list[Label]:
    """The labels of a name as it is read here, alone or before a cutoff; none if it is refused."""
    labels: list[Label] = []
    for cut in ("", "@10"):
        try:
            labels = resolve(without_optional(entry.theirs).format_map(_NUMBERS) + cut)
            if labels == read_there(name, entry, cut):
                return read_there(name, entry)
        except ValueError:
            pass
    return labels
