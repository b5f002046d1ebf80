"""The grammar of labels: ``name(parameter=value, ...)@k``. A label defines a metric and names its state."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal
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
        parameters[parameter[1].lower()] = literal(parameter[2])
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


def literal(text: str) -> object:
    """The value of a text in a label: a number, a constant, a table or the text itself."""
    try:
        # True and False are read in any case: Python has them in capitals, command lines often do not.
        return ast.literal_eval(text.capitalize() if text.lower() in ("true", "false") else text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # the last two by brackets or signs nested deeply
        return text


# ---- spellings for loggers that refuse or drop characters such as "@", "(" and "=" -----------------------------------

#: the spelling of the keys of a collection
KeyStyle = Literal["label", "plain", "identifier"]

_SPELLED = str.maketrans({"@": "_at_", "%": "pct", **dict.fromkeys("(,=:", "_"), **dict.fromkeys("){}", "")})
# MLflow accepts these and ":", which it refuses on Windows. Lightning's MLFlowLogger drops letters beyond ASCII.
_REFUSED = re.compile(r"[^\w/. -]", re.ASCII)
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_MINUS = re.compile(r"(?:(?<=[=,:{])|(?<=\de))-(?=\d)")


def plain(label: str, *, identifier: bool = False) -> str:
    """The plain spelling of a label, which all loggers accept: ``ndcg_at_10`` for ``ndcg@10``.

    ``@`` becomes ``_at_``; ``%`` becomes ``pct``; ``(``, ``,``, ``=`` and ``:`` become ``_``; closing and curly
    brackets are left out. ASCII letters, digits, ``_``, ``/``, ``.``, ``-`` and blanks stay, and any other character
    becomes ``_``.

    Different labels of this library's measures have different plain spellings, because each can be read in one way
    only. Names of measures contain no ``_``. No parameter or option of a measure has a name that another one continues
    after ``_``. Numbers begin with a digit or a sign. A callable of yours can break this: a gain with the name
    ``exponential_at_10``. A :class:`torchrank.RankingCollection` refuses two keys with one spelling.

    Args:
        label: a label, or any other key.
        identifier: also spell numbers without ``.`` and ``-``: 0.8 is ``0p8`` and 1e-05 is ``1em05``. Any other such
            character, ``/`` and blanks become ``_``. The result fits ``[_a-zA-Z][_a-zA-Z0-9]*``, W&B's pattern of
            names by which its pages can sort and filter.

    Returns:
        The spelling. It fits MLflow's pattern ``[/\\w.\\- :]*``. The plain spelling of a plain spelling is the same.

    Raises:
        TypeError: the label is not a text.

    Example:
        >>> import torchrank as tr
        >>> tr.plain("rbp(p=0.8)@5"), tr.plain(tr.NDCG(top_k=10, gain="exponential").label)
        ('rbp_p_0.8_at_5', 'ndcg_gain_exponential_at_10')
        >>> tr.plain("rbp(p=0.8)@5", identifier=True)
        'rbp_p_0p8_at_5'
    """
    if not isinstance(label, str):
        raise TypeError(f"Expected a label, got {label!r}; pass the label of a metric, e.g. tr.plain(metric.label)")
    if not identifier:
        return _REFUSED.sub("_", label.translate(_SPELLED))
    spelled = plain(_MINUS.sub("m", _POINT.sub("p", label)))
    return re.sub(r"[/. -]|^(?=\d)", "_", spelled)


def spell(key: str, style: str) -> str:
    """A key in the spelling of a collection."""
    return key if style == "label" else plain(key, identifier=style == "identifier")


def check_different(keys: Iterable[str], style: str) -> None:
    """Raise ValueError if two keys have the same spelling."""
    labels: dict[str, str] = {}
    for key in keys:
        spelled = spell(key, style)
        if spelled in labels:
            other = labels[spelled]
            wanted, got = (
                ("every metric once", f"{key!r} twice")
                if other == key
                else (f"keys with different {style} spellings", f"{other!r} and {key!r}, both {spelled!r}")
            )
            raise ValueError(f"Expected {wanted}, got {got}; pass a dict to choose the keys")
        labels[spelled] = key
