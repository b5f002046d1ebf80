"""``torchrank measures``: descriptions of all measures, read from their classes and docstrings."""

from __future__ import annotations

import functools
import inspect
import math
import re
from dataclasses import dataclass
from typing import Any

import torchrank.public as public
from torchrank.cli.plain import formula, listed, rows
from torchrank.names.labels import split
from torchrank.names.nearest import did_you_mean
from torchrank.names.parse import parse_all, resolve
from torchrank.names.registry import measures
from torchrank.names.spellings import also_in
from torchrank.statistics.table import Table

# Markdown ends a cell at a bar, and drops the backslash before a punctuation mark; these commands mean the same.
IN_MARKDOWN = {"|": r"\vert ", r"\,": r"\thinspace ", r"\{": r"\lbrace ", r"\}": r"\rbrace "}

HEAD = ("label", "meaning", "formula", "range", "source", "also in")


@dataclass(frozen=True)
class Description:
    """Description of a measure, from its class and docstring."""

    #: name of the class
    name: str
    #: name in labels, with "@k" if it takes a cutoff
    label: str
    #: first sentence of the docstring, without its formula
    summary: str
    #: first formula of the docstring, LaTeX
    formula: str
    #: smallest and largest value, and the better direction
    range: str
    #: publication that defines it
    source: str
    #: other libraries that have it, with their names for it
    also_in: str

    @classmethod
    def of(cls, measure: type) -> Description:
        """Read the description of a class.

        Raises:
            ValueError: a part is missing in its docstring.
        """
        text = inspect.getdoc(measure) or ""
        formula = re.search(r":math:`(.*?)`", text, re.DOTALL)
        if formula is None:
            raise ValueError(f"Expected the docstring of {measure.__name__} to have a formula, :math:`...`, got none")
        owner: Any = measure
        cut = "@k" if owner.takes_top_k else ""
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
        ValueError: there is no section with this title.
    """
    text = inspect.getdoc(measure) or ""
    match = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    if match is None:
        raise ValueError(f"Expected the docstring of {measure.__name__} to have a section {title!r}, got none")
    return _without_roles(" ".join(match[1].split())).replace("``", "`")


def _without_roles(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)


def _summary(text: str) -> str:
    first = text.split("\n\n")[0].replace("\n", " ")
    plain = re.sub(r"[,:]?\s*:math:`.*?`", "", first)
    sentence = re.split(r"(?<=[a-z)\]`])\.\s", plain + " ")[0]
    return _without_roles(sentence).strip().rstrip(".").replace("``", "`")


def _range(measure: Any) -> str:
    names = {-math.inf: "-∞", math.inf: "∞"}
    low, high = (names.get(bound, f"{bound:g}") for bound in measure.value_range)
    better = {True: ", higher is better", False: ", lower is better"}.get(measure.higher_is_better, "")
    return f"{low} … {high}{better}"


@functools.cache
def described() -> tuple[Description, ...]:
    """Descriptions of all exported measures, in the order of their labels."""
    exported: list[Any] = [getattr(public, name) for name in public.__all__]
    measures = [measure for measure in exported if inspect.isclass(measure) and vars(measure).get("name")]
    return tuple(sorted(map(Description.of, measures), key=lambda description: description.label))


def lines(width: float) -> str:
    """All measures, a line for each: its label, and what it is."""
    return listed([(about.label, about.summary) for about in described()], width, "torchrank measures ndcg")


def table() -> str:
    """All measures as a table in Markdown."""
    rows = [
        (
            f"`{description.label}` `{description.name}`",
            description.summary,
            f"${_in_markdown(description.formula)}$",
            description.range,
            description.source,
            description.also_in,
        )
        for description in described()
    ]
    return Table(dict(zip(HEAD, zip(*rows)))).to_markdown()


def _in_markdown(latex: str) -> str:
    return re.sub("|".join(map(re.escape, IN_MARKDOWN)), lambda mark: IN_MARKDOWN[mark[0]], latex)


def classes_of(spelling: str) -> dict[str, list[str]]:
    """The classes that a spelling stands for, each with its labels if the spelling sets parameters.

    Raises:
        ValueError: no measure has this name.
    """
    classes = {description.name.lower(): description.name for description in described()}
    if spelling.lower() in classes:
        return {classes[spelling.lower()]: []}
    try:
        labels = resolve(spelling)
    except ValueError:
        names = [*measures(), *classes]
        hint = f"{did_you_mean(spelling, names)}; `torchrank measures` lists them"
        raise ValueError(f"Expected the name of a measure, got {spelling!r}{hint}") from None
    meant: dict[str, list[str]] = {measures()[label.name].__name__: [] for label in labels}
    try:
        metrics = parse_all(spelling)
    except ValueError:
        if any(label.parameters for label in labels):
            raise
        metrics = []  # measures of a catalogue need arguments, which a name cannot contain
    for metric in metrics:
        meant[type(metric).__name__] += [metric.label] * (metric.label != metric.name)
    return meant


def page(measure: str, spelling: str, labels: list[str]) -> str:
    """One measure as text for a terminal."""
    about = next(about for about in described() if about.name == measure)
    cls = getattr(public, measure)
    cells = [
        ("formula", formula(about.formula)),
        ("range", about.range),
        ("parameters", ", ".join(f"{key}={value!r}" for key, value in cls.definition().items())),
        ("source", about.source.replace("`", "")),
        ("also in", about.also_in.replace("`", "")),
    ]
    if labels:
        cells = [(spelling, ", ".join(labels)), *cells]
    return "\n".join(
        [f"{about.label}  (torchrank.{about.name})", *rows([("", about.summary.replace("`", ""))], 0), "", *rows(cells)]
    )


def pages(names: str) -> list[str]:
    """The pages of the measures that a text names."""
    return [page(measure, name, labels) for name in split(names) for measure, labels in classes_of(name).items()]
