"""``torchrank presets``: the presets of libraries as text for a terminal."""

from __future__ import annotations

import re

import torchrank.public  # noqa: F401 - all measures
from torchrank.cli.plain import listed, rows
from torchrank.names.nearest import did_you_mean
from torchrank.names.presets import ALWAYS, EXCEPT, LIBRARIES, Cell
from torchrank.names.presets import rows as table_rows
from torchrank.names.spellings import plain
from torchrank.statistics.table import Table


def library(spelling: str) -> str:
    """The name of the preset for a library, in any spelling.

    Raises:
        ValueError: there is no preset for it.
    """
    known = {_key(name): name for name in LIBRARIES}
    known |= {_key(name): key for key, names in LIBRARIES.items() for name in names.split(", ")}
    if _key(spelling) not in known:
        hint = did_you_mean(spelling, LIBRARIES) or f"; the libraries are {', '.join(LIBRARIES)}"
        raise ValueError(f"Expected a library that has a preset, got {spelling!r}{hint}")
    return known[_key(spelling)]


def _key(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def lines(width: float) -> str:
    """All libraries, a line for each: the name of its preset, its title, and the settings of all its measures."""
    settings = {name: f" ({_always(name)})" if name in ALWAYS else "" for name in LIBRARIES}
    return listed(
        [(name, title + settings[name]) for name, title in LIBRARIES.items()], width, "torchrank presets beir"
    )


def table() -> str:
    """The measures of all libraries in Markdown. The first two rows are about all measures of a library."""
    lines: list[list[str]] = [["all of these", *(_always(name, "`{}`") for name in LIBRARIES)]]
    lines.append(["except", *(EXCEPT.get(name, "") for name in LIBRARIES)])
    for measure, row in table_rows().items():
        lines.append([measure, *("; ".join(map(_shown, row.get(name, []))) for name in LIBRARIES)])
    return Table(dict(zip(["", *LIBRARIES.values()], zip(*lines)))).to_markdown()


def _shown(cell: Cell) -> str:
    return plain(f"none: {cell.why}" if cell.ours is None else f"`{cell.ours}`")


def _always(name: str, form: str = "{}") -> str:
    return ", ".join(form.format(f"{key}={value}") for key, value in ALWAYS.get(name, {}).items())


def pages(name: str) -> list[str]:
    """The page of a library, in any spelling."""
    return [page(library(name))]


def page(name: str) -> str:
    """The measures of a library, each with the label that reproduces its number, as text for a terminal."""
    entries = [cell for row in table_rows().values() for cell in row.get(name, [])]
    cells = [(theirs, f"none: {why}" if ours is None else ours) for theirs, ours, why in entries]
    plain = [(re.sub("[][{}]", "", theirs), re.sub("[][{}]", "", ours)) for theirs, ours in cells]
    head = [f'tr.preset("{name}", 10): {LIBRARIES[name]}', ""]
    if name in ALWAYS:
        head += [*rows([("all with", f"{_always(name)}, unless a label says otherwise")]), ""]
    differing = ["", *rows([("but", EXCEPT[name].replace("`", ""))])] if name in EXCEPT else []
    return "\n".join([*head, *rows([("there", "here"), *plain]), *differing])
