"""A page for each public name, and the cheat sheet, from the classes themselves."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from typing import Any

import measure_list

import torchrank.public as public
from torchrank import extend, integrations
from torchrank.cli.lists import BY_LABEL
from torchrank.names.registry import PARSE, TITLES, Description, known

#: arguments that all metrics have from torchmetrics
INHERITED = (
    *("validate_args", "process_group", "dist_sync_fn", "distributed_available_fn", "sync_on_compute"),
    *("dist_sync_on_step", "compute_on_cpu", "compute_with_cache"),
)
#: public modules beside the package
MODULES = ("extend", "integrations", "retrieval")
#: classes of other packages, whose methods are not repeated
ABOVE = "Metric, Module, ModuleDict, Sampler, dict, object, tuple, ValueError"


@functools.cache
def measures() -> dict[str, Description]:
    """Descriptions of all measures by the name of the class."""
    return {one.class_name: one for one in BY_LABEL}


@functools.cache
def addresses() -> dict[str, str]:
    """The page of each public name, without its ending."""
    names = sorted({*public.__all__, *MODULES})
    return {name: f"{'measures' if name in measures() else 'api'}/{name.lower()}" for name in names}


def page_of(code: str, labels: bool) -> str | None:
    """The page of a name or label in a text; a label without arguments and cutoff only if ``labels``."""
    name = code.removeprefix("torchrank.").removeprefix("tr.").removesuffix("()")
    label = re.fullmatch(r"(\w+)(\(.*=.*\))?(@[\w,-]+)?", code)
    if name not in addresses() and label and (labels or label[2] or label[3]):
        name = next((one.class_name for one in measures().values() if one.name == label[1]), name)
    return addresses().get(name)


def table(text: str, head: str) -> list[str]:
    """The rows of the table in Markdown whose first column has this head, with the two rows of the head."""
    found = re.search(rf"^\| {head} \|.*\n(\|.*\n)+", f"{text}\n", re.MULTILINE)
    if found is None:
        raise ValueError(f"Expected a table whose first column is {head!r}, got none in: {text[:200]}")
    return found[0].splitlines()


def questions(choosing: str) -> dict[str, str]:
    """For each measure in the table of questions its question, after those that it continues."""
    asked: dict[str, str] = {}
    before = ""
    for question, answer, *_ in (row.strip("| ").split(" | ") for row in table(choosing, "question")[2:]):
        before = f"{before} {question}." if question.startswith("The same") else question
        for code in re.findall(r"`([^`]*)`", answer):
            asked.setdefault((page_of(code, labels=True) or "").removeprefix("measures/"), before)
    return asked


def families(choosing: str) -> str:
    """Which measure for which question, and all measures by family, in Markdown.

    Args:
        choosing: the page with the table of questions.
    """
    parts = ["### Which one?\n", *table(choosing, "question"), ""]
    for family, listed in measure_list.families().items():
        parts.append(f"### {family}\n\n{measure_list.FAMILIES[family][0]}\n")
        parts.append("| class | measure | label | values |\n| --- | --- | --- | --- |")
        parts += [f"| `{one.class_name}` | {one.summary} | `{one.label}` | {one.range} |" for one in listed] + [""]
    return "\n".join(parts)


def measure_page(name: str, question: str = "") -> str:
    """The page of a measure, in reStructuredText; ``question`` is the one that it answers."""
    one, cls = measures()[name], getattr(public, name)
    siblings = [other for other in measures() if getattr(public, other).__module__ == cls.__module__ and other != name]
    return "\n".join(
        [
            ":orphan:\n",
            _title(name),
            f"{_rst(one.summary)}.\n",
            f".. math::\n\n   {one.formula}\n",
            f"Label ``{one.label}``; values {one.range}.\n",
            f"{question or 'Not sure?'} :doc:`Which measure for which question </measures/index>`\n",
            f".. py:currentmodule:: torchrank\n\n.. autoclass:: {name}{signature(cls)}{_members(cls)}\n",
            *_names_elsewhere(cls),
            _title("See also", "-"),
            f"- {_first(inspect.getmodule(cls))}: {', '.join(f':class:`{other}`' for other in siblings)}."
            * bool(siblings),
            "- :doc:`/measures/index`: which measure for which question, ties, special cases.",
            "- :class:`RankingMetric`: the arguments that all measures share, ``update``, ``score``, ``compute``.",
        ]
    )


def other_page(name: str) -> str:
    """The page of any other public name, in reStructuredText."""
    head, thing = f":orphan:\n\n{_title(name)}\n.. py:currentmodule:: torchrank\n", getattr(public, name, None)
    if name == "integrations":
        return "\n".join([head, ".. automodule:: torchrank.integrations\n", *map(_module, integrations.__all__)])
    if name in MODULES:
        options = ":members:\n   :imported-members:\n   :exclude-members: Ranking, RankingMetric"
        return f"{head}\n.. automodule:: torchrank.{name}\n   {options}\n"
    kind = "class" if inspect.isclass(thing) else "function"
    members = f"\n   :members:\n   :inherited-members: {ABOVE}\n   :member-order: bysource" * (kind == "class")
    return f"{head}\n.. auto{kind}:: {name}{members}\n"


def _module(name: str) -> str:
    return f"{_title(name, '-')}\n.. automodule:: torchrank.integrations.{name}\n   :members:\n"


def families_page() -> str:
    """The base classes of measures, with the arguments that a family shares."""
    above = {base for name in measures() for base in getattr(public, name).__mro__}
    known = {*public.__all__, *extend.__all__}
    bases = [one for one in above if one.__module__.startswith("torchrank.metrics") and one.__name__ not in known]
    lines = [f".. autoclass:: {one.__module__}.{one.__name__}\n" for one in sorted(bases, key=lambda one: one.__name__)]
    return "\n".join([":orphan:\n", _title("What families of measures share"), *lines])


def cheat_sheet(readme: str) -> str:
    """One page, in Markdown: the calls for each layout, as the README has them, and all names of other libraries."""
    libraries: dict[tuple[str, str], dict[str, None]] = {}
    for name in measures():
        cls: Any = getattr(public, name)
        for one in known(cls):
            if one.same and one.theirs and one.library != PARSE:
                labels = " ".join(f"[`{cls.name}{setting}`]({addresses()[name]}.rst)" for setting in one.settings)
                libraries.setdefault((f"`{one.theirs}`", labels), {})[TITLES[one.library]] = None
    rows = [f"| {theirs} | {', '.join(several)} | {here} |" for (theirs, here), several in libraries.items()]
    return "\n".join(
        [
            "# Cheat sheet\n\n## What you have, and the call\n",
            "`update`, `forward` and `score` take the same arguments, of a metric, a collection and a wrapper.\n",
            *table(readme, r"you have \| `preds`"),
            "\n## The name elsewhere, and the label here\n",
            "The label reproduces the number of that library. `tr.parse` takes most of the names, too, and"
            " [names with two meanings](guide/names.md) are listed separately.\n",
            "| name elsewhere | library | label |\n| --- | --- | --- |",
            *sorted(rows, key=str.lower),
            "",
        ]
    )


def index_page() -> str:
    """The index of all public names that are not measures."""
    others = [name for name in addresses() if name not in measures()]
    about = [getattr(public, name, None) or importlib.import_module(f"torchrank.{name}") for name in others]
    rows = [
        f"   * - :doc:`{name}`\n     - {_first(thing)}".replace(f"`{name}`", f"`{name} <{name.lower()}>`")
        for name, thing in zip(others, about, strict=True)
    ]
    head = ".. list-table::\n   :widths: 25 75\n"
    last = ":doc:`families`: the arguments that a family of measures shares.\n"
    return "\n".join([_title("Classes and functions"), head, *rows, "", last])


def signature(cls: Any) -> str:
    """The arguments of a measure and their defaults, without those of all torchmetrics' metrics."""
    parameters = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in inspect.signature(cls).parameters.values()
        if one.name not in INHERITED
    ]
    return str(inspect.Signature(parameters))


def _members(cls: Any) -> str:
    """The option that adds the methods of a measure that others do not have."""
    parents = cls.__mro__[1:]
    new = [name for name, thing in vars(cls).items() if inspect.isfunction(thing) and thing.__doc__]
    new = [name for name in new if name[0] != "_" and not any(hasattr(parent, name) for parent in parents)]
    return f"\n   :members: {', '.join(new)}" if new else ""


def _names_elsewhere(cls: Any) -> list[str]:
    rows = [
        (TITLES[one.library].replace("`", ""), f"``{one.theirs}``" if one.theirs else "", _here(cls, one))
        for one in known(cls)
        if one.library != PARSE
    ]
    if not rows:
        return []
    cells = [f"   * - {a}\n     - {b}\n     - {c}" for a, b, c in rows]
    head = "   * - library\n     - name there\n     - label here"
    return [_title("Names elsewhere", "-"), f".. list-table::\n   :header-rows: 1\n\n{head}", *cells, ""]


def _here(cls: Any, one: Any) -> str:
    labels = ", ".join(f"``{cls.name}{setting}``" for setting in one.settings) if one.same else "another measure"
    return f"{labels}{': ' * bool(one.remark)}{_rst(one.remark)}"


def _rst(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"``\1``", " ".join(text.split())).replace("*", r"\*")


def _first(module: Any) -> str:
    return _rst(re.sub(r":\w+:`~?([^`]*)`", r"`\1`", (module.__doc__ or "").split("\n")[0])).rstrip(".")


def _title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"
