"""Every measure, described by its own class: the table of torchrank/metrics/README.md."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torchrank as tr
from torchrank.cli.plain import formula, nearest, rows
from torchrank.names.labels import split
from torchrank.names.parse import parse_all, resolve
from torchrank.names.registry import measures
from torchrank.names.spellings import also_in

# A vertical line would end the cell of a table.
BAR, BAR_IN_MATH = "|", r"\vert "

HEAD = ("label", "meaning", "formula", "range", "source", "also in")


@dataclass(frozen=True)
class Description:
    """What a class says of itself."""

    #: the class
    name: str
    #: how names call it; "@k" if it can be cut
    label: str
    #: the first sentence of its docstring, without its formula
    summary: str
    #: LaTeX, the first formula of its docstring
    formula: str
    #: smallest and largest value, and which way is better
    range: str
    #: who defined it
    source: str
    #: which libraries have it, under which name
    also_in: str

    @classmethod
    def of(cls, measure: type) -> Description:
        """Read a class.

        Raises:
            ValueError: its docstring lacks something.
        """
        text = inspect.getdoc(measure) or ""
        formula = re.search(r":math:`(.*?)`", text, re.DOTALL)
        if formula is None:
            raise ValueError(f"Expected the docstring of {measure.__name__} to have a formula, :math:`...`, got none")
        owner: Any = measure
        cut = "@k" if getattr(owner, "takes_top_k", True) else ""
        return cls(
            measure.__name__,
            owner.name + cut,
            _summary(text),
            " ".join(formula[1].split()),
            _range(owner),
            section(measure, "Source"),
            also_in(measure),
        )


def section(measure: type, title: str) -> str:
    """A section of a docstring as one line.

    Raises:
        ValueError: there is none of this title.
    """
    text = inspect.getdoc(measure) or ""
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    if found is None:
        raise ValueError(f"Expected the docstring of {measure.__name__} to have a section {title!r}, got none")
    return _without_roles(" ".join(found[1].split())).replace("``", "`")


def _without_roles(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)


def _summary(text: str) -> str:
    first = text.split("\n\n")[0].replace("\n", " ")
    if re.search(r":math:`[^`]*`\s+\w", first):
        raise ValueError(f"Expected a first sentence that does not go on behind its formula, got {first!r}")
    plain = re.sub(r"[,:]?\s*:math:`.*?`", "", first)
    sentence = re.split(r"(?<=[a-z)\]`])\.\s", plain + " ")[0]
    return _without_roles(sentence).strip().rstrip(".").replace("``", "`")


def _range(measure: Any) -> str:
    names = {-math.inf: "-∞", math.inf: "∞"}
    low, high = (names.get(bound, f"{bound:g}") for bound in measure.value_range)
    better = {True: ", higher is better", False: ", lower is better"}.get(measure.higher_is_better, "")
    return f"{low} … {high}{better}"


def described() -> list[Description]:
    """All measures that the library exports, by label."""
    exported: list[Any] = [getattr(tr, name) for name in tr.__all__]
    measures = [one for one in exported if inspect.isclass(one) and vars(one).get("name")]
    return sorted(map(Description.of, measures), key=lambda one: one.label)


def table() -> str:
    """The page, as a table in Markdown."""
    rows = [
        (
            f"`{one.label}` `{one.name}`",
            one.summary,
            f"${one.formula.replace(BAR, BAR_IN_MATH)}$",
            one.range,
            one.source,
            one.also_in,
        )
        for one in described()
    ]
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def found(spelling: str) -> dict[str, list[str]]:
    """The classes that a spelling stands for, each with the labels that say what of it is meant.

    Raises:
        ValueError: no measure has this name.
    """
    classes = {one.name.lower(): one.name for one in described()}
    if spelling.lower() in classes:
        return {classes[spelling.lower()]: []}
    try:
        labels = resolve(spelling)
    except ValueError:
        names = [*measures(), *classes]
        raise ValueError(f"Expected the name of a measure, got {spelling!r}{nearest(spelling, names)}") from None
    meant: dict[str, list[str]] = {measures()[label.name].__name__: [] for label in labels}
    try:
        metrics = parse_all(spelling)
    except ValueError:
        if any(label.parameters for label in labels):
            raise
        metrics = []  # those of a catalogue need more than a name
    for metric in metrics:
        meant[type(metric).__name__] += [metric.label] * (metric.label != metric.name)
    return meant


def page(measure: str, spelling: str, labels: list[str]) -> str:
    """One measure, for people to read."""
    one = next(one for one in described() if one.name == measure)
    cls = getattr(tr, measure)
    cells = [
        ("formula", formula(one.formula)),
        ("range", one.range),
        ("parameters", ", ".join(f"{key}={value!r}" for key, value in cls.definition().items())),
        ("source", one.source.replace("`", "")),
        ("also in", one.also_in.replace("`", "")),
    ]
    if labels:
        cells = [(spelling, ", ".join(labels)), *cells]
    return "\n".join(
        [f"{one.label}  (torchrank.{one.name})", *rows([("", one.summary.replace("`", ""))], 0), "", *rows(cells)]
    )


def run(names: Sequence[str]) -> int:
    """Print those that are named; all of them, in Markdown, if none is."""
    single = [one for several in names for one in split(several)]
    pages = [page(measure, name, labels) for name in single for measure, labels in found(name).items()]
    print("\n\n".join(pages) if names else table())
    return 0
