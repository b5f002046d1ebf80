"""The grammar of labels: ``name(parameter=value, ...)@k``. A label defines a metric and names its state."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

# Accepts more than our own labels, because names of other libraries contain digits, dots and commas.
# No two neighbours can match the same text, so that a match takes time in proportion to its text.
_SHAPE = re.compile(
    r"\s*+(?P<name>[^\s@()]++)\s*+(?:\((?P<inside>.*)\))?\s*+(?:@\s*+(?P<cutoff>[^\s@()](?:[^@()]*[^\s@()])?))?\s*+"
)


_PARAMETER = re.compile(
    r"\s*(\w+)\s*=\s*('[^']*'|\"[^\"]*\"|{[^{}]*}|\[[^][]*\]|[^\s,'\"{}[](?:[^,'\"{}]*[^\s,'\"{}])?)\s*(?:,|$)"
)


#: trec_eval's gains of grades behind a name: ndcg.1=3.5,2=9
_GAINS = re.compile(r"(?P<name>[^=]*[^=\d])[._](?P<gains>\d+=[\d.]+(?:,\d+=[\d.]+)*)")


# The commas and spaces between labels in one string, but not beside an @, before another cutoff or gain (ndcg.1=2,2=4)
# or in parentheses, which match as a whole.
_BETWEEN = re.compile(
    r"\([^()]*\)|(?P<between>(?<![@,\s])(?:\s*,\s*|\s+)(?![@(,\s])(?!-?[\d.]+(?:=|(?:-\d+|%|tok)?\s*(?:,|\s|$))))"
)


#: a cutoff that is a share of the list, or a cost
_QUANTITY = re.compile(r"(?P<number>\d{1,12}(?:\.\d{1,9})?)(?P<unit>%|tok)")


#: the most cutoffs that one label may have
MOST_CUTS = 1000


# Number of each callable among those of the same name. Weak, so that a callable can be freed.
_NAMESAKES: WeakKeyDictionary[Callable, int] = WeakKeyDictionary()


@dataclass(frozen=True)
class Label:
    """The parts of a label: ``ndcg(gain=exponential)@5,10``."""

    #: the name as it was written
    name: str
    #: values by name of the parameter, in lower case
    parameters: dict[str, object]
    #: the text after the @; empty if there is none
    cutoff: str

    @property
    def cuts(self) -> tuple[int | str, ...]:
        """The cutoffs of ``5,10``, ``1-100``, ``10%`` or ``2000tok``.

        Raises:
            ValueError: the text after the @ is something else, or there are too many cutoffs.
        """
        cuts: list[int | str] = []
        for part in self.cutoff.split(",") if self.cutoff else []:
            if part.strip().endswith(("%", "tok")):
                cuts.append(part.strip())
                continue
            ends = [end.strip() for end in part.split("-")]
            numbers: list[int] = [int(end) for end in ends if end.isascii() and end.isdecimal() and len(end) < 19]
            if len(numbers) != len(ends) or len(ends) > 2 or numbers[0] > numbers[-1]:
                raise ValueError(
                    f"Expected cutoffs like '@10', '@5,10' or '@1-5' after {self.name}, got '@{self.cutoff}'"
                )
            # Counted before the range is expanded, which could exhaust the memory.
            if len(cuts) + numbers[-1] - numbers[0] >= MOST_CUTS:
                raise ValueError(f"Expected at most {MOST_CUTS} cutoffs after {self.name}, got '@{self.cutoff}'")
            cuts += range(numbers[0], numbers[-1] + 1)
        return tuple(cuts)


def quantity_of(text: str) -> tuple[float, str]:
    """The number and the unit of a cutoff such as ``10%`` or ``2000tok``; NaN if it is none."""
    found = _QUANTITY.fullmatch(text)
    number, unit = (float(found["number"]), found["unit"]) if found else (math.nan, "")
    return (number if 0 < number <= (100 if unit == "%" else math.inf) else math.nan), unit


def write(name: str, parameters: Mapping[str, object], top_k: int | str | None) -> str:
    """A label with the given parameters, in their order."""
    inside = ",".join(f"{key}={_value(value)}" for key, value in parameters.items())
    return name + (f"({inside})" if inside else "") + ("" if top_k is None else f"@{top_k}")


def split(text: str) -> list[str]:
    """The labels in one string: ``"ndcg@5,10, mrr"`` and ``"ndcg@5,10 mrr"`` have two each."""
    text = text.strip()
    parts, start = [], 0
    for match in _BETWEEN.finditer(text):
        if match["between"]:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


def read(text: str) -> Label:
    """Read the parts of a label.

    Raises:
        ValueError: the text does not follow the grammar of labels.
    """
    parts = _SHAPE.fullmatch(text)
    if parts is None:
        raise ValueError(f"Expected a label like 'ndcg@10' or 'map(normalize=min)@5,10', got {text!r}")
    name, inside = parts["name"], parts["inside"] or ""
    if ":" in name and "=" in name:  # CatBoost's parameters: NDCG:top=10;type=Exp
        name, _, options = name.partition(":")
        inside = f"{options.replace(';', ',')},{inside}"
    elif of_grades := _GAINS.fullmatch(name):
        name, inside = of_grades["name"], f"gain={{{of_grades['gains'].replace('=', ':')}}},{inside}"
    parameters: dict[str, object] = {}
    end = 0
    while inside[end:].strip():
        parameter = _PARAMETER.match(inside, end)
        if parameter is None:
            raise ValueError(f"Expected parameters like 'beta=2, ties=optimistic' in {text!r}, got {inside[end:]!r}")
        parameters[parameter[1].lower()] = _literal(parameter[2])
        end = parameter.end()
    return Label(name, parameters, parts["cutoff"] or "")


def name_of(function: Callable) -> str:
    """The name of a callable, by which labels show it.

    Raises:
        ValueError: the callable has no name of its own, for example a lambda.
    """
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"Expected a callable with a name of its own, for the label of the metric, got {function!r};"
            " define it with def"
        )
    return name


def namesake(function: Callable) -> int:
    """Number of a callable among the existing callables of its name: 0 for the first, another for each further one."""
    name = name_of(function)
    try:
        if function not in _NAMESAKES:
            others = [number for other, number in _NAMESAKES.items() if name_of(other) == name]
            _NAMESAKES[function] = max(others) + 1 if others else 0
        return _NAMESAKES[function]
    except TypeError:  # it cannot be hashed or weakly referenced, for example a NumPy function
        return 0


def _value(value: object) -> str:
    if callable(value):
        return name_of(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_value(key)}:{_value(gain)}" for key, gain in value.items()) + "}"
    if isinstance(value, tuple):
        return "{" + ",".join(map(_value, value)) + "}"
    # 2 and 2.0 are one value, so they have one label.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _literal(text: str) -> object:
    try:
        # True and False are read in any case: Python has them in capitals, command lines often do not.
        return ast.literal_eval(text.capitalize() if text.lower() in ("true", "false") else text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two by brackets or signs nested deeply
        return text
