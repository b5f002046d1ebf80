"""The grammar of labels: ``name(parameter=value, ...)@k``. The label is the definition, and names the state."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

# More than labels need: names of other libraries hold digits, dots, commas and what not.
_SHAPE = re.compile(r"\s*(?P<name>[^\s@()]+)\s*(?:\((?P<inside>.*)\))?\s*(?:@\s*(?P<at>[^\s@()][^@()]*?))?\s*")
_PARAMETER = re.compile(r"\s*(\w+)\s*=\s*('[^']*'|\"[^\"]*\"|[^,'\"]+?)\s*(?:,|$)")


_NAMESAKES: WeakKeyDictionary[Callable, int] = WeakKeyDictionary()


@dataclass(frozen=True)
class Label:
    """The parts of a label: ``ndcg(gain=exponential)@5,10``."""

    #: as it was written
    name: str
    #: by their names in lower case
    parameters: dict[str, object]
    #: what stands behind the @, or nothing
    at: str

    @property
    def cuts(self) -> tuple[int, ...]:
        """The cut-offs. ValueError if something else stands behind the @."""
        cuts = [cut.strip() for cut in self.at.split(",")] if self.at else []
        if not all(cut.isdecimal() for cut in cuts):
            raise ValueError(f"Expected cut-offs like '@10' or '@5,10' behind {self.name}, got '@{self.at}'")
        return tuple(int(cut) for cut in cuts)


def write(name: str, parameters: Mapping[str, object], top_k: int | None) -> str:
    """A label with the parameters given, in their order."""
    inside = ",".join(f"{key}={_value(value)}" for key, value in parameters.items())
    return name + (f"({inside})" if inside else "") + ("" if top_k is None else f"@{top_k}")


def read(text: str) -> Label:
    """Take a label apart.

    Raises:
        ValueError: it does not have the grammar of a label.
    """
    parts = _SHAPE.fullmatch(text)
    if parts is None:
        raise ValueError(f"Expected a label like 'ndcg@10' or 'map(normalize=min)@5,10', got {text!r}")
    inside = parts["inside"] or ""
    parameters: dict[str, object] = {}
    end = 0
    while inside[end:].strip():
        parameter = _PARAMETER.match(inside, end)
        if parameter is None:
            raise ValueError(f"Expected parameters like 'beta=2, ties=optimistic' in {text!r}, got {inside[end:]!r}")
        parameters[parameter[1].lower()] = _literal(parameter[2])
        end = parameter.end()
    return Label(parts["name"], parameters, parts["at"] or "")


def arguments(cls: type, root: type) -> dict[str, Any]:
    """Keyword-only arguments of a class and of its parents up to a root, with their defaults, its own first."""
    found: dict[str, Any] = {}
    for owner in cls.__mro__:
        if issubclass(owner, root) and "__init__" in owner.__dict__:
            for name, parameter in inspect.signature(owner.__init__).parameters.items():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    found.setdefault(name, parameter.default)
    return found


def name_of(function: Callable) -> str:
    """The name of a callable, which stands for it in a label.

    Raises:
        ValueError: it has none of its own, as a lambda.
    """
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"Expected a callable with a name of its own (it becomes part of the metric's label), got {function!r};"
            " define it with def"
        )
    return name


def namesake(function: Callable) -> int:
    """0 for the first callable of its name; a number of its own for each other one, as long as both exist."""
    name = name_of(function)
    try:
        if function not in _NAMESAKES:
            others = [number for other, number in _NAMESAKES.items() if name_of(other) == name]
            _NAMESAKES[function] = max(others) + 1 if others else 0
        return _NAMESAKES[function]
    except TypeError:  # it can be neither hashed nor referred to weakly, as a numpy function
        return 0


def _value(value: object) -> str:
    if callable(value):
        return name_of(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text.capitalize() if text.lower() in ("true", "false") else text)
    except (ValueError, SyntaxError):
        return text
