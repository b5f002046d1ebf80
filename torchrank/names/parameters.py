"""Parameters of measures, each declared in one line of the class: its name, type, default and check."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torchrank.names.arguments as arguments
from torchrank.names.labels import quantity_of

#: the default of a parameter that has none
REQUIRED: Any = inspect.Parameter.empty


@dataclass(frozen=True)
class Parameter:
    """A parameter of a class: an argument of its constructor, or an attribute that the class computes."""

    default: Any = REQUIRED
    #: whether it can be given only by name, not by position
    kw_only: bool = True
    #: from a value to the value to store; raises ValueError for an invalid value
    check: Callable[[Any], Any] | None = None
    #: whether the constructor takes it; False if the class computes it
    init: bool = True
    #: its type; the text of the annotation if a name in it is not found
    hint: Any = Any
    #: whether the label shows it, because it changes the values of the metric
    labelled: bool = True
    #: whether :class:`torchmetrics.Metric` stores and checks it
    of_torchmetrics: bool = False
    #: whether it describes a catalogue; then a digest names the state, and the label does not show it
    of_catalogue: bool = False
    #: the reason why the class fixes its value, as a relative clause; empty if it does not
    why: str = ""

    @property
    def or_none(self) -> bool:
        """Whether the type allows None."""
        return types.NoneType in _alternatives(self.hint)

    def checked(self, owner: type, name: str, value: Any) -> Any:
        """The value to store. Raises ValueError for an invalid value."""
        return value if self.check is None else self.check(value)


@dataclass(frozen=True, kw_only=True)
class _Number(Parameter):
    bounds: Mapping[str, float]

    def checked(self, owner: type, name: str, value: Any) -> Any:
        if value is not None or not self.or_none:
            arguments.number(name, value, **self.bounds)
        return value


@dataclass(frozen=True, kw_only=True)
class _Integer(Parameter):
    least: int
    most: int

    def checked(self, owner: type, name: str, value: Any) -> int | None:
        return arguments.integer(name, value, self.least, self.or_none, self.most)


@dataclass(frozen=True)
class _Cutoff(_Integer):
    def checked(self, owner: type, name: str, value: Any) -> Any:
        if not owner.takes_top_k:  # type: ignore[attr-defined]
            return super().checked(owner, name, value)
        number, unit = quantity_of(value) if isinstance(value, str) else (math.nan, "")
        if math.isnan(number):
            others = ", a share as '10%', a cost as '2000tok',"
            return arguments.integer(name, value, self.least, self.or_none, self.most, others)
        return f"{number:.12g}{unit}"


@dataclass(frozen=True)
class _OneOf(Parameter):
    known: tuple[object, ...] | Callable[[Any], Iterable[object]] = ()

    def checked(self, owner: type, name: str, value: Any) -> Any:
        known = tuple(self.known(owner) if callable(self.known) else self.known or self.literals)
        or_callable = any(Callable in (kind, typing.get_origin(kind)) for kind in _alternatives(self.hint))
        arguments.one_of(name, value, known, or_callable)
        # The known value itself, so that an equal one, such as 1 for True, does not appear in labels.
        return known[known.index(value)] if value in known else value

    @property
    def literals(self) -> list[object]:
        """The values of the literal types, and None if the type allows it."""
        literals = [kind for kind in _alternatives(self.hint) if typing.get_origin(kind) is Literal]
        if not literals:
            raise TypeError(f"Expected values for one_of(), or a Literal type, got {self.hint}")
        values = [value for kind in literals for value in typing.get_args(kind)]
        return [*values, None] if self.or_none else values


# ---- declarations of parameters, in the body of a class --------------------------------------------------------------


def parameter(*, default: Any = REQUIRED, check: Callable[[Any], Any] | None = None, labelled: bool = True) -> Any:
    """Declare a parameter with any value.

    Args:
        default: the default, which is not checked; without one the parameter is required.
        check: from a value to the value to store; raises ValueError for an invalid value.
        labelled: False if the parameter does not change the values of the metric.
    """
    return Parameter(default, check=check, labelled=labelled)


def number(
    *,
    default: Any = REQUIRED,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
) -> Any:
    """Declare a finite number within bounds, or None if the type allows it."""
    bounds = {"above": above, "least": least, "below": below, "most": most}
    return _Number(default, bounds={name: bound for name, bound in bounds.items() if bound is not None})


def integer(*, default: Any = REQUIRED, least: int, most: int = arguments.MOST, kw_only: bool = True) -> Any:
    """Declare an integer within bounds, or None if the type allows it."""
    return _Integer(default, kw_only=kw_only, least=least, most=most)


def cutoff(*, default: Any = None, kw_only: bool = False) -> Any:
    """Declare ``top_k``: an integer, a share of each list such as "10%", a cost such as "2000tok", or None."""
    return _Cutoff(default, kw_only=kw_only, least=1, most=arguments.MOST)


def one_of(*known: object, default: Any = REQUIRED, among: Callable[[Any], Iterable[object]] | None = None) -> Any:
    """Declare one of some values, or a callable with a name if the type allows it.

    Args:
        known: the values; without any, the values of the type, a ``Literal``.
        default: the default.
        among: from a class to its values, if they differ between subclasses.
    """
    return _OneOf(default, known=among or known)


def flag(*, default: bool, labelled: bool = True) -> Any:
    """Declare True or False. ``labelled`` is as for :func:`parameter`."""
    return _OneOf(default, known=(True, False), labelled=labelled)


def described(*, default: Any = REQUIRED) -> Any:
    """Declare a tensor that describes a catalogue, such as ``groups``."""
    return Parameter(default, of_catalogue=True)


def of_torchmetrics(*, default: Any) -> Any:
    """Declare an argument of :class:`torchmetrics.Metric`."""
    return Parameter(default, labelled=False, of_torchmetrics=True)


def derived(*, default: Any = REQUIRED, init: Literal[False] = False) -> Any:
    """Declare an attribute that the class computes; it is not an argument."""
    return Parameter(default, init=init, labelled=False)


def fixed(value: Any, why: str, *, init: Literal[False] = False) -> Any:
    """Fix a parameter of a parent class to ``value``. ``why`` is a relative clause for the error message."""
    return Parameter(value, init=init, why=why)


# ---- classes with parameters -----------------------------------------------------------------------------------------


def declare(cls: Any) -> None:
    """Collect the parameters of a class: those in its body, and those of its parents.

    ``empty_target_action: str = "skip"`` changes the default of an inherited one. Then ``cls.declared`` has all of them
    by name, those of the class itself first.
    """
    parents = _merged(cls.__mro__[1:])
    own, annotations = {}, _annotations(cls)
    for name, value in list(vars(cls).items()):
        if not isinstance(value, Parameter) and not (name in parents and name in annotations):
            continue
        if name not in annotations:
            raise TypeError(f"Expected {cls.__name__} to give the parameter {name!r} a type, as {name}: float")
        if name not in parents and any(hasattr(vars(parent).get(name), "__get__") for parent in cls.__mro__[1:]):
            raise TypeError(f"Expected {cls.__name__} to name no parameter like a method, got {name!r}; rename it")
        hint = _hint(cls, annotations[name])
        if isinstance(value, Parameter):
            own[name] = dataclasses.replace(value, hint=hint)
        else:  # the parent checks by its own type, unless None takes the parameter away
            own[name] = dataclasses.replace(
                parents[name], default=value, hint=hint if hint is types.NoneType else parents[name].hint
            )
        if (
            own[name].default is REQUIRED or own[name].of_catalogue
        ):  # a buffer is found only if the class has no default
            delattr(cls, name)
        else:
            setattr(cls, name, own[name].default)
    cls._class_parameters = own
    cls.declared = _merged(cls.__mro__)


def _merged(classes: Iterable[type]) -> dict[str, Parameter]:
    merged: dict[str, Parameter] = {}
    for owner in classes:
        for name, param in vars(owner).get("_class_parameters", {}).items():
            merged.setdefault(name, param)
    return merged


def constructor(cls: Any) -> Callable[..., None]:
    """An ``__init__`` that sets the parameters of a class, as that of a dataclass."""
    fields = []
    for name, param in cls.declared.items():
        default = dataclasses.MISSING if param.default is REQUIRED else param.default
        if param.init:
            fields.append((name, param.hint, dataclasses.field(default=default, kw_only=param.kw_only)))
    # That of a frozen one writes past __setattr__, because the constructor of torch.nn.Module has not run yet.
    made = dataclasses.make_dataclass(
        cls.__name__, fields, namespace={"__module__": cls.__module__}, frozen=True, eq=False, repr=False
    )
    return vars(made)["__init__"]


def _annotations(cls: type) -> dict[str, Any]:
    """The annotations of a class itself, without those of its parents."""
    if sys.version_info < (3, 14):
        return inspect.get_annotations(cls)
    import annotationlib  # evaluates lazily: names that are imported for type checkers only are not found

    return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)


def _hint(cls: type, annotation: Any) -> Any:
    """The type of an annotation, or the annotation itself if a name in it is not found."""
    alone = type(cls.__name__, (), {"__module__": cls.__module__, "__annotations__": {"hint": annotation}})
    try:
        return typing.get_type_hints(alone)["hint"]
    except NameError:
        return annotation


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the type itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


# ---- their lines in docstrings ---------------------------------------------------------------------------------------

#: parameters of all measures, which the documentation of a measure only names
COMMON = ("ties", "empty_target_action", "aggregation", "validate_args")


def documented(cls: Any) -> str:
    """The docstring of a class with complete ``Args``: ``top_k``, its own, those of the parents, and ``kwargs``.

    A text that documents its ``kwargs`` stays as it is, and so does the text of the base class of a kind.
    """
    text = inspect.cleandoc(cls.__doc__)
    listed = _entries(text)
    if "kwargs" in listed or "registry" in vars(cls):
        return text
    entries = dict(listed)
    taken = {name for name, param in cls.declared.items() if param.init and param.hint is not types.NoneType}
    for parent in cls.__mro__[1:]:
        inherited = _entries(vars(parent).get("__doc__") or "")
        if is_base := "registry" in vars(parent):
            inherited = {"top_k": inherited["top_k"]}
        entries |= {names: x for names, x in inherited.items() if (taken - _names(entries)) & _names([names])}
        if is_base:
            break
    if "top_k" in entries:
        entries = {"top_k": entries["top_k"]} | entries
    entries.pop("kwargs", None)
    if common := [f"``{name}``" for name in COMMON if name in taken - _names(entries)]:
        entries["kwargs"] = f"    kwargs: {', '.join(common)}: as :class:`RankingMetric`."
    section = "\n".join(["Args:", *entries.values()])
    if listed:
        return text.replace("\n".join(["Args:", *listed.values()]), section)
    before, *after = re.split(r"^(?=Raises:|Example:)", text, maxsplit=1, flags=re.MULTILINE)
    return "\n\n".join([before.rstrip(), section, *after])


def _entries(text: str) -> dict[str, str]:
    """The lines of each entry of the section ``Args``, by the names of its parameters."""
    section = re.search(r"^Args:\n(.*?)(?=\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return {x.split(":")[0].strip(): x for x in re.split(r"\n(?=    \S)", section[1])} if section else {}


def _names(entries: Iterable[str]) -> set[str]:
    """The parameters that entries document."""
    return {name for names in entries for name in names.split(", ")}
