"""The grammar of labels: ``name(parameter=value, ...)@k``. The label is the definition, and names the state."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

# More than labels need: names of other libraries hold digits, dots, commas and what not.
_SHAPE = re.compile(r"\s*(?P<name>[^\s@()]+)\s*(?:\((?P<inside>.*)\))?\s*(?:@\s*(?P<at>[^\s@()][^@()]*?))?\s*")


_PARAMETER = re.compile(r"\s*(\w+)\s*=\s*('[^']*'|\"[^\"]*\"|{[^{}]*}|[^,'\"{}]+?)\s*(?:,|$)")


# A list of labels in one string: commas and spaces between them, but not in parentheses, beside an @, or before
# another cut-off.
_PARENTHESES = re.compile(r"\([^()]*\)")


_BETWEEN = re.compile(r"(?<![@,\s])(?:\s*,\s*|\s+)(?![@(,\s])(?!-?[\d.]+(?:-\d+)?\s*(?:,|\s|$))")


#: cut-offs that one label may stand for
MOST_CUTS = 1000


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
        """The cut-offs, ``5,10`` or ``1-100``. ValueError if something else stands behind the @, or too many."""
        cuts: list[int] = []
        for part in self.at.split(",") if self.at else []:
            ends = [end.strip() for end in part.split("-")]
            numbers = [int(end) for end in ends if end.isascii() and end.isdecimal()]
            if len(numbers) != len(ends) or len(ends) > 2 or numbers[0] > numbers[-1]:
                raise ValueError(
                    f"Expected cut-offs like '@10', '@5,10' or '@1-5' behind {self.name}, got '@{self.at}'"
                )
            if len(cuts) + numbers[-1] - numbers[0] >= MOST_CUTS:
                raise ValueError(f"Expected at most {MOST_CUTS} cut-offs behind {self.name}, got '@{self.at}'")
            cuts += range(numbers[0], numbers[-1] + 1)
        return tuple(cuts)


def write(name: str, parameters: Mapping[str, object], top_k: int | None) -> str:
    """A label with the parameters given, in their order."""
    inside = ",".join(f"{key}={_value(value)}" for key, value in parameters.items())
    return name + (f"({inside})" if inside else "") + ("" if top_k is None else f"@{top_k}")


def split(text: str) -> list[str]:
    """The labels of a list in one string: ``"ndcg@5,10, mrr"`` and ``"ndcg@5,10 mrr"`` are two."""
    text = text.strip()
    inside = [found.span() for found in _PARENTHESES.finditer(text)]
    parts, start = [], 0
    for between in _BETWEEN.finditer(text):
        if not any(first <= between.start() < last for first, last in inside):
            parts.append(text[start : between.start()])
            start = between.end()
    return [*parts, text[start:]]


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
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_value(key)}:{_value(worth)}" for key, worth in value.items()) + "}"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text.capitalize() if text.lower() in ("true", "false") else text)
    except (ValueError, SyntaxError):
        return text
