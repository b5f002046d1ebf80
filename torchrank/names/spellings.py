"""The names of measures in other libraries, from ``known_as`` of the classes, and other names of parameters.

``known_as`` contains, for each library, the names of the measure there and the settings that give their numbers here::

    known_as = {
        "parse": "AP mean_average_precision",
        "trec_eval": {"map": "", "map_cut_{k}": "@{k}", "gm_map": "(aggregation=geometric)"},
        "ranx": "map",
        "pyg": {"LinkPredMAP": "(normalize=min)"},
        "pyndeval": {"MAP-IA": "(normalize=min) where N counts all subtopics"},
        "recbole": {"gauc": "~ weighted by the relevant"},
    }

- A string is a list of names without a setting. Names with the same setting are a list, too, as ``"zmr zamr"``.
- A list of settings makes one label of each.
- Text after a setting is a remark, for the page of measures. The name "" is for a remark on a library.
- "~" marks a different measure: the page shows it with its remark, and presets and the parser leave it out.
- Names under "parse" are accepted by the parser, and shown nowhere.
- "trec_eval9" is the same as "trec_eval" unless it is given.
- In a name ``{k}`` is a cutoff or a list of cutoffs. ``{x}`` is a number or a list of numbers, each of which makes its
  own label; ``{xs}`` is a list of numbers for one label. Any other name in braces is one number. A setting may use
  them, and ``{root}``, the square root of ``{x}``. A cutoff in brackets may be left out.
- CatBoost's ``Name:key=value;key=value`` has the parameters in any order.
- CatBoost and LightGBM round labels to float32, and those above 0.5 are relevant: at or above 0.50000003.

Case does not matter, except for names of ir_measures that mean something else in lower case: ``NumRel`` is a sum. An
underscore may also be a dot, as on trec_eval's command line (``ndcg_cut.5,10``), a hyphen or nothing, as in names of
classes (``RecipRank``). Parameters in a name must be given with the same values. All other parameters, and a cutoff
after ``@``, are passed on.

If two names fit, the name with parameters or a cutoff wins, then the name under "parse". A measure's own name wins over
all names without parameters or a cutoff.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: the key of names that the parser accepts and no page shows
PARSE = "parse"


#: the versions of trec_eval; the second has the names of the first unless its own are given
BOTH = ("trec_eval", "trec_eval9")


#: The libraries in ``known_as``, and their names on a page.
TITLES = {
    "trec_eval": "trec_eval",
    "trec_eval9": "pytrec_eval",
    "beir": "BEIR",
    "beir_custom": "BEIR's `evaluate_custom`",
    "mteb": "MTEB",
    "msmarco": "MS MARCO",
    "sklearn": "scikit-learn",
    "torchmetrics": "torchmetrics",
    "pyg": "PyG",
    "recbole": "RecBole",
    "rectools": "RecTools",
    "lenskit": "LensKit",
    "lenskit_reranking": "LensKit's `metrics.reranking`",
    "pykeen": "PyKEEN",
    "rax": "rax",
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
    "catboost": "CatBoost",
    "ragas": "ragas",
    "deepeval": "DeepEval",
    "trulens": "TruLens",
    "ircor": "the R package ircor",
    "rbo": "the package rbo",
} | {
    name: name
    for name in (
        *("Elliot", "FairRankTune", "Keras", "NTCIREVAL", "RBStar", "RePlay", "TREC Fair Ranking"),
        *("TensorFlow Ranking", "Transformers4Rec", "cwl_eval", "ir_measures"),
        *("metrax", "pyndeval", "pytorchltr", "pyxclib", "ranking-metrics-torch", "ranx", "reranking"),
        *("scipy", "sentence-transformers", "torcheval", "torchrec"),
    )
}


# Other names of parameters: our name, or the arguments for each value.
PARAMETERS: dict[str, str | dict[Any, dict[str, Any]]] = {
    "rel": "relevance_level",
    "norm": "normalize",
    "cutoff": "top_k",
    "gains": "gain",
    "t": "target",
    "max_rel": "max_grade",
    "dcg": {"log2": {}, "exp-log2": {"gain": "exponential"}},
    "top": "top_k",
    "type": {"Base": {}, "Exp": {"gain": "exponential"}},
    "denominator": {"LogPosition": {}, "Position": {"discount": "reciprocal"}},
    "judged_only": {True: {"unjudged": "condensed"}, False: {}},
}


class Known(NamedTuple):
    """A name of a measure in another library."""

    #: a key of :data:`TITLES`, or :data:`PARSE`
    library: str
    #: the name there
    theirs: str
    #: the text after our name in the label; several if the name stands for several labels
    settings: tuple[str, ...]
    #: a remark for the page of measures
    remark: str
    #: whether it is the same measure; False for "~"
    same: bool


_SETTING = re.compile(r"(?P<other>~\s*)?(?P<setting>(?:\(.*?\))?(?:\[?@\S+)?)\s*(?P<remark>.*)", re.DOTALL)


@functools.cache
def known(measure: type) -> tuple[Known, ...]:
    """The names of a measure in other libraries, without those of its parents."""
    # vars, because a subclass is another measure and does not inherit the names.
    names: Mapping[str, Any] = vars(measure).get("known_as", {})
    if BOTH[0] in names:
        names = {**names, BOTH[1]: names.get(BOTH[1], names[BOTH[0]])}
    return tuple(_read(names))


def _read(known_as: Mapping[str, Any]) -> Iterator[Known]:
    for library, names in known_as.items():
        for theirs, text in ({names: ""} if isinstance(names, str) else names).items():
            parts = [_SETTING.fullmatch(part) for part in ([text] if isinstance(text, str) else text)]
            settings = tuple(part["setting"] for part in parts if part)
            first = parts[0]
            assert first is not None
            for name in theirs.split() or [""]:
                yield Known(library, name, settings, first["remark"], not first["other"])


def also_in(measure: type) -> str:
    """The libraries that have a measure, as one line of text. Libraries that need no setting come first."""
    # Libraries with the same setting and remark share an entry of the line.
    groups: dict[tuple[bool, str, str], dict[str, list[str]]] = {}
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
    """A name or a setting without an optional cutoff in brackets."""
    return re.sub(r"\[.*?\]", "", text)


def plain(text: str) -> str:
    """A name or a setting without brackets and braces, to be shown."""
    return re.sub("[][{}]", "", text)
