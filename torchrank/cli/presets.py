"""``torchrank presets``: the presets of libraries as text for a terminal."""

from __future__ import annotations

import re

from torchrank.cli.plain import rows
from torchrank.names.nearest import did_you_mean
from torchrank.names.presets import ALWAYS, EXCEPT, LIBRARIES
from torchrank.names.presets import rows as table_rows


def library(spelling: str) -> str:
    """The name of the preset for a library, in any spelling.

    Raises:
        ValueError: there is no preset for it.
    """
    known = {_key(name): name for name in LIBRARIES}
    known |= {_key(name): key for key, names in LIBRARIES.items() for name in names.split(", ")}
    if _key(spelling) not in known:
        hint = did_you_mean(spelling, LIBRARIES)
        raise ValueError(f"Expected a library, one of {', '.join(LIBRARIES)}, got {spelling!r}{hint}")
    return known[_key(spelling)]


def _key(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def page(name: str) -> str:
    """The measures of a library, each with the label that reproduces its number, as text for a terminal."""
    always = ", ".join(f"{key}={value}" for key, value in ALWAYS.get(name, {}).items())
    found = [cell for row in table_rows().values() for cell in row.get(name, [])]
    cells = [(theirs, f"none: {why}" if ours is None else ours) for theirs, ours, why in found]
    plain = [(re.sub("[][{}]", "", theirs), re.sub("[][{}]", "", ours)) for theirs, ours in cells]
    head = [f'tr.preset("{name}", 10): {LIBRARIES[name]}', ""]
    if always:
        head += [*rows([("all with", f"{always}, unless a label says otherwise")]), ""]
    differing = ["", *rows([("but", EXCEPT[name].replace("`", ""))])] if name in EXCEPT else []
    return "\n".join([*head, *rows([("there", "here"), *plain]), *differing])
