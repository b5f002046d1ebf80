"""All measures by name, and their names in other libraries: ``names.toml``, or ``known_as`` of the class of a user."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torchrank.names.labels import literal

DATA: dict[str, Any] = tomllib.loads((Path(__file__).parent / "names.toml").read_text(encoding="utf-8"))

#: libraries, and their names on a page
TITLES: dict[str, str] = DATA["titles"]

#: other names of parameters: our name, or the arguments for each value
PARAMETERS: dict[str, str | dict[Any, dict[str, Any]]] = {
    name: other if isinstance(other, str) else {literal(value): given for value, given in other.items()}
    for name, other in DATA["parameters"].items()
}

#: the registries of all kinds of measures; a name in a later registry wins
KINDS: list[dict[str, Any]] = []


def measures() -> dict[str, Any]:
    """Every measure by its name, including measures of users."""
    by_name: dict[str, Any] = {}
    for kind in KINDS:
        by_name |= kind
    return by_name


@dataclass(frozen=True, eq=False)
class Description:
    """What the class of a measure says, for commands that only print it: torch takes seconds to import."""

    class_name: str
    #: the name in labels
    name: str
    takes_top_k: bool
    #: the arguments that change the value, with their defaults as text
    parameters: dict[str, str]
    #: the arguments that have no default
    required: list[str]
    #: whether a name with a cutoff is enough to make it; others need data on a catalogue
    parses: bool
    #: first sentence of the docstring, without its formula
    summary: str
    #: first formula of the docstring, in LaTeX and as text for a terminal
    formula: str
    formula_text: str
    #: smallest and largest value, and the better direction
    range: str
    #: publication that defines it
    source: str
    #: other libraries that have it, with their names for it
    also_in: str
    #: as of the class
    known_as: Mapping[str, Any]

    def definition(self) -> dict[str, str]:
        """The parameters, by the method that classes have for them."""
        return self.parameters

    @property
    def label(self) -> str:
        """The name in labels, with "@k" if it takes a cutoff."""
        return self.name + "@k" * self.takes_top_k


def stored(name: str) -> Any:
    """The content of ``measures.json`` or ``spellings.json``, which ``tests/support/pages.py`` writes."""
    return json.loads((Path(__file__).parent / f"{name}.json").read_text(encoding="utf-8"))


@functools.cache
def described() -> dict[str, Description]:
    """The measures of this package by name, from ``measures.json``."""
    measures = stored("measures")
    return {one["name"]: Description(**one, known_as=DATA["measures"].get(one["name"], {})) for one in measures}


# ---- names in other libraries ----------------------------------------------------------------------------------------

#: the key of names that the parser accepts and no page shows
PARSE = "parse"


#: the versions of trec_eval; the second has the names of the first unless its own are given
BOTH = ("trec_eval", "trec_eval9")


class Known(NamedTuple):
    """A name of a measure in another library."""

    #: a key of :data:`TITLES`, or :data:`PARSE`
    library: str
    #: the name there
    theirs: str
    #: the text after our name in the label; several if the name stands for several labels
    settings: tuple[str, ...]
    #: a remark for the page of measures
    remark: str
    #: whether it is the same measure; False for "~"
    same: bool


_SETTING = re.compile(r"(?P<other>~\s*)?(?P<setting>(?:\(.*?\))?(?:\[?@\S+)?)\s*(?P<remark>.*)", re.DOTALL)


@functools.cache
def known(measure: type | Description) -> tuple[Known, ...]:
    """The names of a measure in other libraries, without those of its parents."""
    # vars, because a subclass is another measure and does not inherit the names.
    names: Mapping[str, Any] = vars(measure).get("known_as", {})
    if BOTH[0] in names:
        names = {**names, BOTH[1]: names.get(BOTH[1], names[BOTH[0]])}
    return tuple(_read(names))


def _read(known_as: Mapping[str, Any]) -> Iterator[Known]:
    for library, names in known_as.items():
        for theirs, text in ({names: ""} if isinstance(names, str) else names).items():
            parts = [_SETTING.fullmatch(part) for part in ([text] if isinstance(text, str) else text)]
            settings = tuple(part["setting"] for part in parts if part)
            first = parts[0]
            assert first is not None
            for name in theirs.split() or [""]:
                yield Known(library, name, settings, first["remark"], not first["other"])


def without_optional(text: str) -> str:
    """A name or a setting without an optional cutoff in brackets."""
    return re.sub(r"\[.*?\]", "", text)


def plain(text: str) -> str:
    """A name or a setting without brackets and braces, to be shown."""
    return re.sub("[][{}]", "", text)
