"""Arguments: their checks, with errors that name what is meant; optional packages; docstrings that list a registry."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from torchrank.names.labels import name_of, write
from torchrank.names.registry import DATA, measures

F = TypeVar("F", bound=Callable[..., Any])


def one_of(argument: str, value: object, known: Iterable[object], or_callable: bool = False) -> None:
    """Raise ValueError unless an argument has a known value or, if ``or_callable``, is a callable with a new name."""
    known = tuple(known)
    if or_callable and callable(value):
        if name_of(value) in known:
            # A label shows only the name, so two definitions would have the same label.
            raise ValueError(
                f"Expected {argument} to be a callable with a name of its own, got {value!r}; pass"
                f" {name_of(value)!r} for the known one, or rename it"
            )
    elif value not in known:
        also = " or a callable with a name" if or_callable else ""
        hint = did_you_mean(value, [name for name in known if isinstance(name, str)]) if isinstance(value, str) else ""
        raise ValueError(f"Expected {argument} to be one of {', '.join(map(repr, known))}{also}, got {value!r}{hint}")


def number(
    argument: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> None:
    """Raise ValueError unless an argument is a finite number within its bounds."""
    # bool is a number in Python, but no parameter takes True for 1.
    real = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not real or not (above < value < below and least <= value <= most):  # type: ignore[operator]
        bounds = [
            f"{sign} {bound}"
            for sign, bound in ((">", above), (">=", least), ("<", below), ("<=", most))
            if math.isfinite(bound)
        ]
        wanted = " and ".join(bounds) or "that is finite"
        raise ValueError(f"Expected {argument} to be a number {wanted}, got {value!r}")


def plain(value: Any) -> Any:
    """Convert a number of NumPy to one of Python, so that labels show both alike. Return other values as they are."""
    import numpy  # here, because commands that only print names do without it

    return value.item() if isinstance(value, numpy.generic) else value


# Integers up to this one are exact in float64.
MOST = 2**53


def integer(
    argument: str, value: object, least: int, or_none: bool = True, most: int = MOST, others: str = ""
) -> int | None:
    """Return an argument as a Python int, or as None if ``or_none``. ``others`` are further values, for the message.

    Raises:
        ValueError: it is not an integer of Python or NumPy, or it is out of bounds.
    """
    if value is None and or_none:
        return None
    if not isinstance(value, Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        bound = f"<= {most}" if isinstance(value, Integral) and int(value) > most else f">= {least}"
        also = f"{others} or None" if or_none else others
        way_out, whole = "", str(value).removesuffix(".0")
        if argument == "top_k" and isinstance(value, list | tuple):
            way_out = "; give several to RankingCollection, as 'ndcg@5,10'"
        elif not isinstance(value, Integral) and whole.isdecimal() and least <= int(whole) <= most:
            way_out = f"; pass {whole}"
        kind = TypeError if getattr(value, "ndim", 0) else ValueError  # scores, in a call as of a function
        raise kind(f"Expected {argument} to be an integer {bound}{also}, got {value!r}{way_out}")
    return int(value)


def _to_measure(name: str) -> str:
    """The way to pass a parameter to a measure, with an example of it."""
    if name == "top_k":
        return "pass top_k to the measure, as NDCG(top_k=10) or 'ndcg@10'"
    every = sorted(measures().values(), key=lambda measure: measure.name != "ndcg")
    measure = next(measure for measure in every if name in measure.declared)
    value, label = measure.declared[name].default, ""
    if name in measure.definition():
        label = f" or {write(measure.name, {name: value}, None)!r}"
    value = "..." if value is inspect.Parameter.empty else repr(value)
    return f"pass {name} to the measure, as {measure.__name__}({name}={value}){label}"


def unknown(call: str, name: str, known: Iterable[str], others: Iterable[str] = (), way: str = "") -> str:
    """The error message for an unknown argument: the known one that is meant, or the ``way`` to pass it elsewhere.

    Args:
        call: the function or class that was called.
        name: the unknown argument.
        known: the arguments of the call.
        others: arguments that are passed elsewhere; by default the parameters of all measures.
        way: where these are passed, a template; by default to a measure.
    """
    known = list(known)
    others = others or dict.fromkeys(name for measure in measures().values() for name in measure.declared)
    hint = did_you_mean(name, known)
    if not hint and (meant := closest(name, others)):
        hint = f"; {way.format(meant[0]) if way else _to_measure(meant[0])}"
    expected = f"an argument of {call}" if hint else f"{call} to have arguments {', '.join(known)}"
    return f"Expected {expected}, got {name!r}{hint}"


def explained(
    error: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Exception:
    """An error of a call with an unknown argument, or of a method of a class: what is meant. Other errors as they are.

    It costs nothing until a call fails, unlike a check before each call.
    """
    name, message = function.__name__, ""
    called: Any = type(args[0]) if name == "__init__" else function
    declared = getattr(called, "declared", {})  # parameters of a measure
    parameters = inspect.signature(called).parameters
    if "self" in parameters and not (args and hasattr(type(args[0]), name)):
        message = f"Expected {name} of a metric, got {name} of its class; write NDCG(top_k=10).{name}(preds, target)"
    elif declared and any(getattr(value, "ndim", 0) for value in args[1:]):
        got, places = type(args[1]).__name__, "top_k=10" if called.takes_top_k else ""
        way_out = f"write {called.__name__}({places}).score(preds, target)"
        message = f"Expected parameters of {called.__name__}, got a {got}; {way_out}"
    elif all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
        wrong = [keyword for keyword in kwargs if keyword not in parameters]
        known = [
            one for one in parameters if one not in ("self", "cls") and not (declared and declared[one].of_torchmetrics)
        ]
        if wrong and wrong[0] in declared and declared[wrong[0]].why:
            message = (
                f"Expected no {wrong[0]} for {called.__name__}, {declared[wrong[0]].why}, got {kwargs[wrong[0]]!r}"
            )
        elif wrong and declared:
            message = unknown(
                called.__name__, wrong[0], known, inspect.signature(called.update).parameters, "pass {}= to update"
            )
        elif wrong:
            message = unknown(called.__name__, wrong[0], known)
    if not message:
        return error
    better = TypeError(message)
    better.__suppress_context__ = True
    return better


def with_hints(function: F) -> F:
    """Errors of a function for unknown arguments name the arguments that are meant."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            raise explained(error, function, args, kwargs)  # noqa: B904

    return cast(F, call)


def warn(message: str) -> None:
    """Warn at the line of the user that called this library. Python shows a warning once for each line."""
    inside, frame, level = {"torchrank", "torchmetrics", "torch", "contextlib"}, sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


# ---- the known names that are most like an unknown one ---------------------------------------------------------------


#: the least likeness of a name that is meant
LIKE = 0.7


def nearest(names: Iterable[str], known: dict[str, str]) -> list[str]:
    """Up to three names of different measures that are most like the given ones; a known one alone."""
    names = tuple(names)
    if exact := [name for name in names if name in known]:
        return exact[:1]
    likeness = {other: max(_likeness(name, other) for name in names) for other in known}
    hints: dict[str, str] = {}
    # Close to the best and not too far from the name: a bad hint is worse than none.
    for near in sorted(known, key=likeness.__getitem__, reverse=True):
        if likeness[near] >= LIKE and likeness[near] > max(likeness.values()) - 0.15:
            hints.setdefault(known[near], near)
    return list(hints.values())[:3]


def keeps_words(name: str, other: str) -> bool:
    """Whether another name has at least half of each word of a name in a row, if the name has several words."""
    blocks = [{*range(b.b, b.b + b.size)} for b in difflib.SequenceMatcher(None, other, name).get_matching_blocks()]
    words = [{*range(*word.span())} for word in re.finditer(r"[^\W_]+", name)]
    return len(words) == 1 or all(2 * max(len(word & block) for block in blocks) >= len(word) for word in words)


def _likeness(name: str, other: str) -> float:
    # Half for common letters, half for common sequences: letters alone would make all anagrams equal.
    shared = 2 * (Counter(name) & Counter(other)).total() / (len(name) + len(other))
    if shared < LIKE:  # and so is the mean, because no sequence has more than the common letters
        return shared
    return (shared + difflib.SequenceMatcher(None, other, name).ratio()) / 2


#: names of arguments, commands and libraries, each with other words of the field for it
SYNONYMS: dict[str, str] = DATA["synonyms"]


def closest(name: str, known: Iterable[str]) -> list[str]:
    """The known names for which an unknown one is another word, or those that are most like it."""
    by_lower = {other.lower(): other for other in known}
    meant = [other for other, words in SYNONYMS.items() if other in by_lower and name.lower() in words.split()]
    return [by_lower[other] for other in meant or nearest([name.lower()], {other: other for other in by_lower})]


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of an error message for an unknown name: the nearest known names, or nothing."""
    near = closest(str(name), known)  # an argument of another type is unknown, too
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


# ---- packages that torchrank does not require ------------------------------------------------------------------------


def imported(module: str, extra: str = "", instead: str = "") -> Any:
    """A module of a package that is imported when it is used.

    Args:
        module: the name of the module.
        extra: the extra of torchrank that installs the package; "" = no extra does.
        instead: another way to go on, without the package.

    Raises:
        ImportError: the package is not installed.
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
        return import_module(module)
    except ImportError as error:
        part = f" (the extra {extra!r} of torchrank installs it)" if extra else ""
        way_out = f"run `pip install {package}`{part}{instead and ', or '}{instead}"
        raise ImportError(f"Expected {package} to be installed; {way_out}") from error


def installed(module: str) -> bool:
    """Whether a module can be imported; imports it."""
    try:
        imported(module)
    except ImportError:
        return False
    return True


# ---- docstrings ------------------------------------------------------------------------------------------------------


def with_texts(**texts: str) -> Callable[[F], F]:
    """A decorator that writes texts in place of words in capitals in the docstring of a function."""

    def decorate(function: F) -> F:
        for word, text in texts.items():
            function.__doc__ = (function.__doc__ or "").replace(word, text)
        return function

    return decorate
