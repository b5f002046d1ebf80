"""Parameters of measures, each declared in one line: its name, type, default and check."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, dataclass_transform

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
    #: the type as it is written in the class
    annotation: Any = REQUIRED
    #: whether the label shows it, because it changes the values of the metric
    labelled: bool = True
    #: whether :class:`torchmetrics.Metric` stores and checks it
    of_torchmetrics: bool = False
    #: whether it describes a catalogue; then a digest names the state, and the label does not show it
    of_catalogue: bool = False
    #: whether it is an argument of a hand-written ``__init__``, which passes it on
    by_hand: bool = False

    #: the class that declares it
    owner: type = object

    @functools.cached_property
    def hint(self) -> Any:
        """The type itself, or the text of the annotation if a name in it is not found."""
        if not isinstance(self.annotation, str):
            return self.annotation
        # The names in an annotation belong to the module of the class, or to the class.
        try:
            return eval(self.annotation, vars(sys.modules[self.owner.__module__]), dict(vars(self.owner)))
        except NameError:
            return self.annotation

    @property
    def or_none(self) -> bool:
        """Whether the type allows None."""
        return any(kind in (None, types.NoneType) for kind in _alternatives(self.hint))

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
            raise TypeError(f"Expected values for one_of(), or a Literal type, got {self.annotation}")
        values = [value for kind in literals for value in typing.get_args(kind)]
        return [*values, None] if self.or_none else values


@dataclass(frozen=True)
class _Fixed(Parameter):
    why: str = ""

    def checked(self, owner: type, name: str, value: Any) -> Any:
        raise ValueError(f"Expected no {name} for {owner.__name__}, {self.why}, got {value!r}")


# ---- declarations of parameters, in the body of a class --------------------------------------------------------------


def parameter(*, default: Any = REQUIRED, check: Callable[[Any], Any] | None = None, labelled: bool = True) -> Any:
    """Declare a parameter with any value.

    Args:
        default: the default; without one the parameter is required.
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


def flag(*, default: bool) -> Any:
    """Declare True or False."""
    return _OneOf(default, known=(True, False))


def described(*, default: Any = REQUIRED) -> Any:
    """Declare a tensor that describes a catalogue, such as ``groups``."""
    return Parameter(default, of_catalogue=True)


def of_torchmetrics(*, default: Any) -> Any:
    """Declare an argument of :class:`torchmetrics.Metric`."""
    return Parameter(default, labelled=False, of_torchmetrics=True)


def derived(*, init: Literal[False] = False) -> Any:
    """Declare an attribute that the class computes; it is not an argument."""
    return Parameter(init=init, labelled=False)


def fixed(value: Any, why: str, *, init: Literal[False] = False) -> Any:
    """Fix a parameter of a parent class to ``value``. ``why`` is a relative clause for the error message."""
    return _Fixed(value, init=init, why=why)


# ---- classes with parameters -----------------------------------------------------------------------------------------


class _Signature:
    """The signature of a class. An instance raises AttributeError, so that ``inspect`` uses its ``__call__``."""

    def __get__(self, instance: object, owner: type[Parametrised]) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        return signature(owner)


class _Documentation:
    """The docstring of a class. Its ``Args`` contain the parameters of the parents, in the words of the nearest one."""

    def __init__(self, written: str) -> None:
        self.written = written

    @functools.cached_property
    def text(self) -> str:
        """The docstring as it is written, without indentation."""
        return inspect.cleandoc(self.written)

    def __get__(self, instance: object, owner: type[Parametrised]) -> str:
        return _documented(owner, self.text)


class _WithSelf(inspect.Signature):
    """The signature of a class, behind ``self``. It is made when it is read, because types may follow the class."""

    def __init__(self, owner: type[Parametrised]) -> None:
        super().__init__()
        self._owner = owner

    @property
    def parameters(self) -> types.MappingProxyType[str, inspect.Parameter]:
        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return types.MappingProxyType({"self": this, **signature(self._owner).parameters})

    def replace(self, **changes: Any) -> inspect.Signature:  # type: ignore[override]
        return inspect.Signature([*self.parameters.values()]).replace(**changes)


@dataclass_transform(
    eq_default=False,
    kw_only_default=True,
    field_specifiers=(parameter, number, integer, cutoff, one_of, flag, described, of_torchmetrics, derived, fixed),
)
class Parametrised:
    """A class whose parameters are declared in its body: ``beta: float = number(default=1, above=0)``.

    A class inherits the parameters of its parents. ``empty_target_action: str = "skip"`` changes the default of an
    inherited one. A class may also have its own ``__init__``, whose keyword-only arguments are parameters.
    """

    #: all parameters by name: first the parameters of the class itself, then those of its parents
    declared: ClassVar[Mapping[str, Parameter]] = {}
    _class_parameters: ClassVar[Mapping[str, Parameter]] = {}
    #: the constructor as it is written in the nearest class that has one
    _written: ClassVar[Callable[..., None]] = object.__init__
    __signature__ = _Signature()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        parents = _merged(cls.__mro__[1:])
        cls._class_parameters = {**_in_body(cls, parents), **_in_constructor(cls, parents)}
        cls.declared = _merged(cls.__mro__)
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        if cls.__doc__:
            cls.__doc__ = _Documentation(cls.__doc__)  # type: ignore[assignment]
        super().__init_subclass__(**kwargs)


def _merged(classes: Iterable[type]) -> dict[str, Parameter]:
    merged: dict[str, Parameter] = {}
    for owner in classes:
        for name, param in vars(owner).get("_class_parameters", {}).items():
            merged.setdefault(name, param)
    return merged


def _in_body(cls: type, parents: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The parameters in the body of a class. Their class attributes are deleted."""
    annotations, declared = _annotations(cls), {}
    for name, value in list(vars(cls).items()):
        inherits = name in annotations and name in parents and not isinstance(value, Parameter)
        if not inherits and not isinstance(value, Parameter):
            continue
        if name not in annotations:
            raise TypeError(f"Expected {cls.__name__} to give the parameter {name!r} a type, as {name}: float")
        param = replace(parents[name], default=value) if inherits else value
        typed = replace(param, annotation=annotations[name], owner=cls)
        declared[name] = param if inherits and typed.hint is not None else typed  # a parent checks by its own type
        delattr(cls, name)
    return declared


def _in_constructor(cls: type, parents: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The keyword-only arguments of an ``__init__`` in the body of a class."""
    if "__init__" not in vars(cls):
        return {}
    declared = {}
    for param in inspect.signature(vars(cls)["__init__"]).parameters.values():
        if param.kind is param.KEYWORD_ONLY:
            parent = parents.get(param.name, Parameter(annotation=param.annotation, by_hand=True))
            declared[param.name] = replace(parent, default=param.default)
    return declared


def _constructor(cls: type[Parametrised]) -> Callable[..., None]:
    """The ``__init__`` of a class with the signature of the class. Some tools, such as jsonargparse, read no other."""
    written = vars(cls).get("__init__")
    if written:
        cls._written = written

    @functools.wraps(cls._written)
    def constructor(self: Any, *args: Any, **kwargs: Any) -> None:
        if written:
            written(self, *args, **kwargs)
        else:
            super(cls, self).__init__(*args, **kwargs)

    constructor.__signature__ = _WithSelf(cls)  # type: ignore[attr-defined]
    return constructor


def bind(
    cls: type[Parametrised], by_position: Sequence[Any], by_name: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The checked values of all parameters of a class, with defaults, and the remaining arguments.

    Raises:
        TypeError: too many arguments by position, or a missing argument.
        ValueError: an argument has an invalid value.
    """
    # The texts of the errors are those of Python for a constructor that is written out.
    start = f"{cls.__name__}.__init__()"
    ours = {name: param for name, param in cls.declared.items() if not param.of_torchmetrics}
    places = [name for name, param in ours.items() if not param.kw_only]
    if any(getattr(value, "ndim", 0) for value in by_position):
        example = f"{cls.__name__}({'top_k=10' if places else ''}).score(preds, target)"
        raise TypeError(
            f"Expected parameters of {cls.__name__}, got a {type(by_position[0]).__name__}; write {example}"
        )
    if len(by_position) > len(places):
        many = f"{1 + len(places)} positional arguments but {1 + len(by_position)} were given"
        raise TypeError(f"{start} takes from 1 to {many}")
    passed = dict(zip(places, by_position))
    if twice := [name for name in passed if name in by_name]:
        raise TypeError(f"{start} got multiple values for argument {twice[0]!r}")
    passed |= by_name
    missing = [name for name, param in ours.items() if param.init and param.default is REQUIRED and name not in passed]
    if missing:
        kind = "keyword-only" if ours[missing[0]].kw_only else "positional"
        wanted = f"{len(missing)} required {kind} argument{'s' * (len(missing) > 1)}"
        raise TypeError(f"{start} missing {wanted}: {' and '.join(map(repr, missing))}")
    values: dict[str, Any] = {}
    for name, param in ours.items():
        # A fixed parameter is checked too, because its check raises the error.
        if name in passed and (param.init or isinstance(param, _Fixed)):
            values[name] = param.checked(cls, name, passed.pop(name))
        elif name not in passed and param.default is not REQUIRED and not param.by_hand:
            values[name] = param.default
    return values, passed


def signature(cls: type[Parametrised]) -> inspect.Signature:
    """The arguments of the constructor of a class, with the arguments that it passes on to its parents."""
    written = [*inspect.signature(cls._written).parameters.values()][1:]
    kinds = {param.kind for param in written}
    ours = [_argument(cls, name, param) for name, param in cls.declared.items() if param.init]
    if inspect.Parameter.VAR_POSITIONAL in kinds:  # the class has no constructor of its own
        first = [param for param in ours if param.kind is param.POSITIONAL_OR_KEYWORD]
    else:
        first = [param for param in written if param.kind is param.POSITIONAL_OR_KEYWORD]
    names = {param.name for param in first}
    rest = ours if inspect.Parameter.VAR_KEYWORD in kinds else written
    return inspect.Signature([*first, *(x for x in rest if x.kind is x.KEYWORD_ONLY and x.name not in names)])


def _argument(cls: type, name: str, param: Parameter) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY if param.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
    hint = param.hint
    if isinstance(param, _OneOf) and callable(param.known):  # the values that this class has, not those of all classes
        values = tuple(value for value in param.known(cls) if value is not None)
        hint = Literal[values] | None if param.or_none else Literal[values]
    return inspect.Parameter(name, kind, default=param.default, annotation=hint)


#: parameters of all measures, which the documentation of a measure only names
COMMON = ("ties", "empty_target_action", "aggregation", "validate_args")


def _documented(cls: type[Parametrised], text: str) -> str:
    """A docstring with complete ``Args``: ``top_k``, the entries of the text, those of the parents, and ``kwargs``.

    A text that documents its ``kwargs`` stays as it is, and so does the text of the base class of a kind.
    """
    listed = _entries(text)
    if "kwargs" in listed or "registry" in vars(cls):
        return text
    entries = dict(listed)
    taken = {name for name, param in cls.declared.items() if param.init and param.hint is not None}
    for parent in cls.__mro__[1:]:
        inherited = _entries(getattr(vars(parent).get("__doc__"), "text", ""))
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


def _annotations(cls: type) -> dict[str, Any]:
    """The annotations of a class itself, without those of its parents."""
    # From Python 3.14 on annotations are evaluated lazily. As strings they are read without evaluating them.
    if sys.version_info < (3, 14):
        return inspect.get_annotations(cls)
    import annotationlib

    return annotationlib.get_annotations(cls, format=annotationlib.Format.STRING)


def _alternatives(hint: Any) -> Iterable[Any]:
    """The types of a union, or the type itself."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        for part in typing.get_args(hint):
            yield from _alternatives(part)
    else:
        yield hint
