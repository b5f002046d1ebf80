"""``torchrank measures``, ``presets`` and ``spellings``: all names, as text for a terminal, without torch."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterable
from typing import Any

from torchrank.names.arguments import MOST, did_you_mean
from torchrank.names.labels import split, write
from torchrank.names.parse import ALWAYS, EXCEPT, LIBRARIES, parse_all, resolve
from torchrank.names.parse import rows as table_rows
from torchrank.names.registry import described, stored

WIDTH = 100
#: longer names do not widen the first column of a list
LONGEST = 24


def rows(pairs: Iterable[tuple[str, str]], indent: int = 2) -> list[str]:
    """Lines of a table with two columns. The second column is wrapped."""
    pairs = list(pairs)
    start = indent + max((len(left) for left, _ in pairs), default=0) + 2
    lines = []
    for left, right in pairs:
        first, rest = " " * indent + left.ljust(start - indent), " " * start
        lines += textwrap.wrap(right, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return lines


def listed(pairs: Iterable[tuple[str, str]], width: float, example: str = "") -> str:
    """Lines "name  text", cut at ``width`` characters, and an example of the command that prints one whole."""
    pairs = [(left.replace("`", ""), right.replace("`", "")) for left, right in pairs]
    start = min(max(len(left) for left, _ in pairs), LONGEST)
    lines = [f"{left.ljust(start)}  {right}" for left, right in pairs]
    cut = [line if len(line) <= width else f"{line[: int(width) - 1].rstrip()}…" for line in lines]
    return "\n".join([*cut, *([f"\n`{example}` describes one of them."] if example else [])])


#: the spellings of each measure, by its name: labels with their spellings, and names that mean something else elsewhere
SPELLINGS: dict[str, Any] = stored("spellings")
#: all measures by name, and in the order of their labels
MEASURES = described()
BY_LABEL = sorted(MEASURES.values(), key=lambda one: one.label)


def measure_lines(width: float) -> str:
    """All measures, a line for each: its label, and what it is."""
    return listed([(about.label, about.summary) for about in BY_LABEL], width, "torchrank measures ndcg")


def classes_of(spelling: str) -> dict[str, list[str]]:
    """The measures that a spelling stands for, by name, each with its labels if the spelling sets parameters.

    Raises:
        ValueError: no measure has this name.
    """
    classes = {one.class_name.lower(): one.name for one in BY_LABEL}
    if spelling.lower() in classes:
        return {classes[spelling.lower()]: []}
    try:
        labels = resolve(spelling, MEASURES)
    except ValueError:
        hint = f"{did_you_mean(spelling, [*MEASURES, *classes])}; `torchrank measures` lists them"
        raise ValueError(f"Expected the name of a measure, got {spelling!r}{hint}") from None
    meant: dict[str, list[str]] = {label.name: [] for label in labels}
    sets_parameters = any(label.parameters for label in labels)
    try:
        if sets_parameters or not all(type(cut) is int and 0 < cut <= MOST for label in labels for cut in label.cuts):
            import torchrank.public  # noqa: F401 - the classes, which check values

            for metric in parse_all(spelling):
                meant[metric.name] += [metric.label] * (metric.label != metric.name)
        else:
            for label in labels:
                measure = MEASURES[label.name]
                cuts = label.cuts if measure.takes_top_k and measure.parses else ()
                meant[label.name] += [write(label.name, {}, cut) for cut in cuts]
    except ValueError:
        if sets_parameters:
            raise  # others are of a catalogue, whose data a name cannot contain
    return meant


def _page(name: str, spelling: str, labels: list[str]) -> str:
    about = MEASURES[name]
    cells = [
        ("formula", about.formula_text),
        ("range", about.range),
        ("parameters", ", ".join(f"{key}={value}" for key, value in about.parameters.items())),
        ("source", about.source.replace("`", "")),
        ("also in", about.also_in.replace("`", "")),
    ]
    if labels:
        cells = [(spelling, ", ".join(labels)), *cells]
    head = f"{about.label}  (torchrank.{about.class_name})"
    return "\n".join([head, *rows([("", about.summary.replace("`", ""))], 0), "", *rows(cells)])


def measure_pages(names: str) -> list[str]:
    """The pages of the measures that a text names."""
    return [_page(measure, name, labels) for name in split(names) for measure, labels in classes_of(name).items()]


def library(spelling: str) -> str:
    """The name of the preset for a library, in any spelling.

    Raises:
        ValueError: there is no preset for it.
    """
    known = {_key(name): name for name in LIBRARIES}
    known |= {_key(name): key for key, names in LIBRARIES.items() for name in names.split(", ")}
    if _key(spelling) not in known:
        hint = did_you_mean(spelling, LIBRARIES) or f"; the libraries are {', '.join(LIBRARIES)}"
        raise ValueError(f"Expected a library that has a preset, got {spelling!r}{hint}")
    return known[_key(spelling)]


def _key(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def preset_lines(width: float) -> str:
    """All libraries, a line for each: the name of its preset, its title, and the settings of all its measures."""
    settings = {name: f" ({_always(name)})" if name in ALWAYS else "" for name in LIBRARIES}
    titles = [(name, title + settings[name]) for name, title in LIBRARIES.items()]
    return listed(titles, width, "torchrank presets beir")


def _always(name: str) -> str:
    return ", ".join(f"{key}={value}" for key, value in ALWAYS.get(name, {}).items())


def preset_pages(spelling: str) -> list[str]:
    """The measures of a library, in any spelling, each with the label that reproduces its number."""
    name = library(spelling)
    entries = [cell for row in table_rows(MEASURES).values() for cell in row.get(name, [])]
    cells = [(theirs, f"none: {why}" if ours is None else ours) for theirs, ours, why in entries]
    plain = [(re.sub("[][{}]", "", theirs), re.sub("[][{}]", "", ours)) for theirs, ours in cells]
    head = [f'tr.preset("{name}", 10): {LIBRARIES[name]}', ""]
    if name in ALWAYS:
        head += [*rows([("all with", f"{_always(name)}, unless a label says otherwise")]), ""]
    differing = ["", *rows([("but", EXCEPT[name].replace("`", ""))])] if name in EXCEPT else []
    return ["\n".join([*head, *rows([("there", "here"), *plain]), *differing])]


OTHERS = "Names that mean something else in a library: name, here, there"


def spelling_lines(width: float) -> str:
    """A line for each label with all its spellings, then the names that have another meaning in their library."""
    return _lists(MEASURES, lambda pairs: listed(pairs, width))


def spelling_pages(text: str) -> list[str]:
    """The spellings of the measures that a text names, in any spelling.

    Raises:
        ValueError: no measure has this name.
    """
    names = dict.fromkeys(label.name for name in split(text) for label in resolve(name, MEASURES))
    return [_lists(names, lambda pairs: "\n".join(rows((x.replace("`", ""), y.replace("`", "")) for x, y in pairs)))]


def _lists(names: Collection[str], show: Callable[[list[tuple[str, str]]], str]) -> str:
    same, others = all_spellings(names)
    lists = [same, [(name, f"{here}; {there}") for name, here, there in others]]
    return f"\n\n{OTHERS}\n\n".join(show(pairs) for pairs in lists if pairs)


def all_spellings(names: Collection[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Labels of measures with their spellings; and names with another meaning in their library, and both meanings."""
    chosen, others = [SPELLINGS[name] for name in names], dict[tuple[str, str], dict[str, None]]()
    for one in chosen:
        for theirs, here, there in one["others"]:
            others.setdefault((f"`{theirs}`", f"`{here}`"), {})[there] = None
    same = [(f"`{label}`", theirs) for label, theirs in sorted(pair for one in chosen for pair in one["same"])]
    return same, [(*row, "; ".join(others[row])) for row in sorted(others, key=lambda row: row[0].lower())]


#: for each command the pages of a name, and the lines of all
LISTS = {
    "measures": (measure_pages, measure_lines),
    "presets": (preset_pages, preset_lines),
    "spellings": (spelling_pages, spelling_lines),
}
