"""What the classes of measures say, for ``torchrank/names/measures.json``: commands print it without torch."""

from __future__ import annotations

import inspect
import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torchrank.public  # noqa: F401 - all measures
from torchrank.names import registry
from torchrank.names.parse import parse_all, required
from torchrank.names.registry import Description, measures

FILE = Path(registry.__file__).with_name("measures.json")


def write() -> None:
    """Write the descriptions of all measures of the package."""
    every = [describe(cls) for cls in measures().values() if cls.__module__.startswith("torchrank.")]
    entries = [{key: value for key, value in asdict(one).items() if key != "known_as"} for one in every]
    FILE.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    registry.described.cache_clear()


def describe(measure: Any) -> Description:
    """The description of a class.

    Raises:
        ValueError: a part is missing in its docstring.
    """
    text = inspect.getdoc(measure) or ""
    formula = re.search(r":math:`(.*?)`", text, re.DOTALL)
    if formula is None:
        raise ValueError(f"Expected the docstring of {measure.__name__} to have a formula, :math:`...`, got none")
    first = re.sub(r"[,:]?\s*:math:`.*?`", "", text.split("\n\n")[0].replace("\n", " "))
    sentence = re.split(r"(?<=[a-z)\]`])\.\s", first + " ")[0]
    low, high = ({-math.inf: "-∞", math.inf: "∞"}.get(bound, f"{bound:g}") for bound in measure.value_range)
    better = {True: ", higher is better", False: ", lower is better"}.get(measure.higher_is_better, "")
    return Description(
        class_name=measure.__name__,
        name=measure.name,
        takes_top_k=measure.takes_top_k,
        parameters={key: repr(value) for key, value in measure.definition().items()},
        required=required(measure),
        parses=_parses(measure.name + "@1" * measure.takes_top_k),
        summary=_without_roles(sentence).strip().rstrip(".").replace("``", "`"),
        formula=" ".join(formula[1].split()),
        range=f"{low} … {high}{better}",
        source=section(measure, "Source"),
        known_as=vars(measure).get("known_as", {}),
    )


def _parses(name: str) -> bool:
    try:
        return bool(parse_all(name))
    except ValueError:
        return False


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
