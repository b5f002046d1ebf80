"""What the classes of measures say, for ``torchrank/names/measures.json``: commands print it without torch."""

import inspect
import json
import math
import re
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import torchrank.public  # noqa: F401 - all measures
from torchrank.names import registry
from torchrank.names.labels import read
from torchrank.names.labels import write as write_label
from torchrank.names.parse import parse_all, required, resolve
from torchrank.names.registry import BOTH, PARSE, TITLES, Description, known, measures, plain, without_optional

# LaTeX commands in formulas, and their text in a terminal.
SYMBOLS = {
    "sum": "Σ", "prod": "Π", "le": "≤", "ge": "≥", "ne": "≠", "in": "∈", "notin": "∉", "cap": "∩", "bigcup": "∪",  # noqa: RUF001
    "exists": "∃", "cdot": "·", "alpha": "α", "beta": "β", "tau": "τ", "choose": " choose ", "left": "", "right": "",  # noqa: RUF001
    "text": "", ",": " ", "{": "{", "}": "}",
}  # fmt: skip


FILE = Path(registry.__file__).with_name("measures.json")


def write():
    """Write the descriptions of all measures of the package."""
    every = [describe(cls) for cls in measures().values() if cls.__module__.startswith("torchrank.")]
    entries = [{key: value for key, value in asdict(one).items() if key != "known_as"} for one in every]
    FILE.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    registry.described.cache_clear()
    found = {cls.name: spellings(cls) for cls in measures().values() if cls.__module__.startswith("torchrank.")}
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    FILE.with_name("spellings.json").write_text(text, encoding="utf-8")


def describe(measure):
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
        formula_text=formula_text(" ".join(formula[1].split())),
        range=f"{low} … {high}{better}",
        source=section(measure, "Source"),
        also_in=also_in(measure),
        known_as=vars(measure).get("known_as", {}),
    )


def _parses(name):
    try:
        return bool(parse_all(name))
    except ValueError:
        return False


def section(measure, title):
    """A section of a docstring as one line.

    Raises:
        ValueError: there is no section with this title.
    """
    text = inspect.getdoc(measure) or ""
    match = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", text + "\n", re.MULTILINE)
    if match is None:
        raise ValueError(f"Expected the docstring of {measure.__name__} to have a section {title!r}, got none")
    return _without_roles(" ".join(match[1].split())).replace("``", "`")


def _without_roles(text):
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text)


def formula_text(latex):
    """A LaTeX formula as plain text."""
    # Unbrace simple indexes first, so that the braces that remain belong to fractions, roots and groups.
    latex = re.sub(r"([_^])\{(\w+)\}", r"\1\2", latex)
    while match := re.search(r"\\frac(?={)", latex):
        above, after = _group(latex, match.end())
        below, after = _group(latex, after)
        over = "/" if re.fullmatch(r"\w+", above) and re.fullmatch(r"\w+", below) else " / "
        latex = f"{latex[: match.start()]}{_factor(above)}{over}{_factor(below)}{latex[after:]}"
    while match := re.search(r"\\sqrt(?={)", latex):
        inside, after = _group(latex, match.end())
        latex = f"{latex[: match.start()]}√({inside}){latex[after:]}"
    latex = re.sub(r"(?<!\\)\{", "(", re.sub(r"(?<!\\)\}", ")", latex))
    return " ".join(re.sub(r"\\([a-z]+|.)", lambda command: SYMBOLS.get(command[1], command[1]), latex).split())


def _group(text, start):
    """The inside of a group that begins with a brace at ``start``, and the position after the group."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0) * (text[position - 1] != "\\")
        if not depth:
            return text[start + 1 : position], position + 1
    raise ValueError(f"Expected a closing brace for {text[start:]!r}, got none")


def _factor(text):
    return text if re.fullmatch(r"\w+", text) else f"({text})"


def also_in(measure):
    """The libraries that have a measure, as one line of text. Libraries that need no setting come first."""
    # Libraries with the same setting and remark share an entry of the line.
    groups = {}
    entries = [entry for entry in known(measure) if entry.library != PARSE]
    for entry in entries:
        title = TITLES.get(entry.library, entry.library)
        if entry.library in BOTH and all(entry._replace(library=version) in entries for version in BOTH):
            if entry.library == BOTH[1]:  # both versions are one entry
                continue
            title = " and ".join(TITLES[version] for version in BOTH)
        setting = plain(re.sub(r"\[?@.*", "", entry.settings[0])[1:-1].replace("{root}", "√x"))
        names = groups.setdefault((not entry.same, setting, entry.remark), {}).setdefault(title, [])
        names += [f"`{plain(without_optional(entry.theirs))}`"] if entry.theirs else []
    texts = {}  # those of one library alone together
    for (differs, setting, remark), libraries in sorted(groups.items(), key=lambda group: group[0] != (False, "", "")):
        if setting and not remark and len(libraries) == 1 and all(libraries.values()):
            ((title, names),) = libraries.items()
            texts.setdefault(title, []).append(f"{', '.join(names)} with `{setting}`")
            continue
        text = ", ".join(title + (f" ({', '.join(names)})" if names else "") for title, names in libraries.items())
        text = f"with `{setting}` {text}" if setting else text
        text += f" differs: {remark}" if differs else f", {remark}" if remark else ""
        texts[text] = []
    lines = [f"{text} ({', '.join(names)})" if names else text for text, names in texts.items()]
    return "; ".join(lines) + "." if lines else "none of the libraries compared."


# ---- spellings -------------------------------------------------------------------------------------------------------

#: numbers in place of the names in braces
_NUMBERS = defaultdict(lambda: 0.5, k=10, root=math.sqrt(0.5))


def spellings(measure):
    """Labels of a measure with their spellings; and names with another meaning in their library, and both meanings."""
    same = {}
    others = []
    for entry in known(measure):
        theirs = without_optional(entry.theirs)
        label = ", ".join(measure.name + without_optional(setting) for setting in entry.settings)
        here = read_here(measure.name, entry) if theirs else []
        if entry.same and here == read_there(measure.name, entry):
            if theirs != measure.name:
                same.setdefault(label, {})[f"`{theirs}`"] = None
        elif here and entry.library != PARSE:
            meaning = ", ".join(write_label(it.name, it.parameters, None) for it in here)
            others.append((theirs, meaning, f"{TITLES[entry.library]}: {f'`{label}`' if entry.same else entry.remark}"))
    return {"same": [(label, ", ".join(found)) for label, found in same.items()], "others": others}


def read_there(name, entry, cut=""):
    """The labels of a measure's name as its library means it, with numbers in braces."""
    return [read(name + without_optional(setting).format_map(_NUMBERS) + cut) for setting in entry.settings]


def read_here(name, entry):
    """The labels of a name as it is read here, alone or before a cutoff; none if it is refused."""
    labels = []
    for cut in ("", "@10"):
        try:
            labels = resolve(without_optional(entry.theirs).format_map(_NUMBERS) + cut)
            if labels == read_there(name, entry, cut):
                return read_there(name, entry)
        except ValueError:
            pass
    return labels
