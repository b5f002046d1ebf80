"""The names of the measures in other libraries, from ``known_as`` of their classes, and other names of parameters.

``known_as`` has, by library, the names of the measure there and for each the setting that gives its numbers here::

    known_as = {
        "parse": "AP mean_average_precision",
        "trec_eval": {"map": "", "map_cut_{k}": "@{k}", "gm_map": "(aggregation=geometric)"},
        "ranx": "map",
        "pyg": {"LinkPredMAP": "(normalize=min)"},
        "pyndeval": {"MAP-IA": "(normalize=min) where N counts all subtopics"},
        "recbole": {"gauc": "~ weighted by the relevant"},
    }

- A string is a list of names without a setting. A list of settings makes one label of each.
- Text behind a setting is a remark, for the page of measures. The name "" is for a remark on a library.
- "~" marks another measure: the page shows it with its remark, and no preset or parser takes it.
- Names under "parse" are understood, and shown nowhere.
- "trec_eval9" is as "trec_eval" unless it is given.
- In a name ``{k}`` is a cut-off or a list of them. ``{x}`` is a number or a list of them, of which each makes a label
  of its own. Any other name in braces is one number. A setting may use them, and ``{root}``, the square root of
  ``{x}``. Brackets are around a cut-off that may be left out.

Case does not matter. An underscore may also be a dot, as on trec_eval's command line (``ndcg_cut.5,10``), a hyphen or
nothing, as in names of classes (``RecipRank``). Parameters in a name must be given as they stand there; all others,
and a cut-off behind ``@``, are passed on. Where two names fit, the one with parameters or a cut-off wins, then the one
under "parse". The measures' own names come before all without parameters or a cut-off.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: the library of names that are understood, and shown nowhere
PARSE = "parse"


#: the versions of trec_eval, of which the second is as the first unless it is given
BOTH = ("trec_eval", "trec_eval9")


#: The libraries that a measure may be known in, and their names on a page.
TITLES = {
    "trec_eval": "trec_eval",
    "trec_eval9": "pytrec_eval",
    "sklearn": "scikit-learn",
    "torchmetrics": "torchmetrics",
    "pyg": "PyG",
    "recbole": "RecBole",
    "rectools": "RecTools",
    "lenskit": "LensKit",
    "pykeen": "PyKEEN",
    "rax": "rax",
    "ircor": "the R package ircor",
    "rbo": "the package rbo",
} | {
    name: name
    for name in (
        *("BEIR", "Keras", "NTCIREVAL", "RePlay", "TensorFlow Ranking", "Transformers4Rec", "cwl_eval", "ir_measures"),
        *("metrax", "pyndeval", "pytorchltr", "pyxclib", "ranking-metrics-torch", "ranx", "scipy"),
        *("sentence-transformers", "torcheval", "torchrec"),
    )
}


# Other names of parameters: of all their values, or value by value the arguments that these stand for.
PARAMETERS: dict[str, str | dict[Any, dict[str, Any]]] = {
    "rel": "relevance_level",
    "norm": "normalize",
    "cutoff": "top_k",
    "gains": "gain",
    "t": "target",
    "max_rel": "max_grade",
    "dcg": {"log2": {"gain": "linear"}, "exp-log2": {"gain": "exponential"}},
    "judged_only": {True: {"unjudged": "condensed"}, False: {}},
}


class Known(NamedTuple):
    """A name of a measure in another library."""

    #: a key of :data:`TITLES`, or :data:`PARSE`
    library: str
    theirs: str
    #: behind our name, several if theirs stands for several labels
    settings: tuple[str, ...]
    remark: str
    #: whether it is the same measure
    same: bool


_SETTING = re.compile(r"(?P<other>~\s*)?(?P<setting>(?:\(.*?\))?(?:\[?@\S+)?)\s*(?P<remark>.*)", re.DOTALL)


@functools.cache
def known(measure: type) -> tuple[Known, ...]:
    """The names of a measure elsewhere: its own, not those of its parents."""
    given: Mapping[str, Any] = vars(measure).get("known_as", {})
    if BOTH[0] in given:
        given = {**given, BOTH[1]: given.get(BOTH[1], given[BOTH[0]])}
    return tuple(_read(given))


def _read(known_as: Mapping[str, Any]) -> Iterator[Known]:
    for library, names in known_as.items():
        if isinstance(names, str):
            names = dict.fromkeys(names.split() or [""], "")
        for theirs, text in names.items():
            parts = [_SETTING.fullmatch(one) for one in ([text] if isinstance(text, str) else text)]
            settings = tuple(part["setting"] for part in parts if part)
            first = parts[0]
            assert first is not None
            yield Known(library, theirs, settings, first["remark"], not first["other"])


def also_in(measure: type) -> str:
    """The libraries that have a measure as one line of text: those that need no setting first."""
    groups: dict[tuple[bool, str, str], dict[str, list[str]]] = {}
    entries = [one for one in known(measure) if one.library != PARSE]
    for one in entries:
        title = TITLES.get(one.library, one.library)
        if one.library in BOTH and all(one._replace(library=version) in entries for version in BOTH):
            if one.library == BOTH[1]:
                continue
            title = " and ".join(TITLES[version] for version in BOTH)
        setting = plain(re.sub(r"\[?@.*", "", one.settings[0])[1:-1].replace("{root}", "√x"))
        names = groups.setdefault((not one.same, setting, one.remark), {}).setdefault(title, [])
        names += [f"`{plain(without_optional(one.theirs))}`"] if one.theirs else []
    texts: dict[str, list[str]] = {}  # those of one library alone together
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


def without_optional(text: str) -> str:
    """A name or a setting without a cut-off in brackets."""
    return re.sub(r"\[.*?\]", "", text)


def plain(text: str) -> str:
    """A name or a setting for people to read, without brackets and braces."""
    return re.sub("[][{}]", "", text)
