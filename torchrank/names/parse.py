"""From names to metrics: labels, the spellings of other libraries, and presets with all measures of one."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchrank.names.arguments import did_you_mean, keeps_words, nearest
from torchrank.names.labels import Label, read, split, write
from torchrank.names.registry import (
    DATA,
    PARAMETERS,
    PARSE,
    TITLES,
    Description,
    Known,
    known,
    measures,
    without_optional,
)

if TYPE_CHECKING:
    from torchrank.names.types import Array


def parse(name: str, **overrides: Any) -> Any:
    """Return the metric of a name. This is the inverse of :attr:`RankingMetric.label`.

    Accepted are labels and the spellings of ir_measures (``"nDCG@10"``, ``"AP(rel=2)@100"``, ``"RR"``), trec_eval 10
    (``"ndcg_cut_10"``, ``"recip_rank"``, ``"P_5"``), PyKEEN (``"hits_at_10"``,
    ``"adjusted_arithmetic_mean_rank_index"``), ranx (``"map@10-l2"``), MTEB (``"ndcg_at_10"``) and others. ``known_as``
    of the classes lists them.

    A name that one library has gives the number of that library, or an error. Some names have other meanings elsewhere,
    and ``torchrank spellings`` lists them. ``hits@k`` is :class:`HitRate`; ranx counts the hits, which is
    ``numrelret@k``. ``accuracy@k`` is RecTools' accuracy; in sentence-transformers and BEIR it is ``hitrate@k``.
    ``iprec_at_recall_0.40`` rounds as trec_eval 10; pytrec_eval and ir_measures, whose name is ``IPrec@0.4``, round up.

    ``k`` in a name stands for the cutoff after ``@``: ``ndcg_at_k@2`` is ``ndcg_at_2``.

    A name defines the measure only. :func:`torchrank.preset` also sets a library's treatment of ties, its aggregate and
    its value of queries without a relevant candidate.

    Args:
        name: a label, for example ``"ndcg@10"`` or ``"map(normalize=min,relevance_level=2)@100"``, or another library's
            spelling. Case does not matter, but for ir_measures' sums: ``NumRel``, ``NumRet``, ``NumRelRet``, ``NumQ``.
        overrides: arguments of the metric, which replace those in the name. Measures of recommended lists require some:
            ``tr.parse("coverage@10", num_items=1000)``.

    Raises:
        ValueError: the name or a parameter is unknown, or there are several names or cutoffs. Only a collection accepts
            several.

    Example:
        >>> import torchrank as tr
        >>> tr.parse("AP(rel=2)@100").label, tr.parse("ndcg_cut_10").label, tr.parse("P_5", ties="optimistic").label
        ('map(relevance_level=2)@100', 'ndcg@10', 'precision(ties=optimistic)@5')
    """
    metrics = parse_all(name, **overrides)
    if len(metrics) > 1:
        several = "metric" if len(split(name)) > 1 else "cutoff"
        raise ValueError(
            f"Expected one {several} in {name!r}, got {len(metrics)}; use RankingCollection for several metrics"
        )
    return metrics[0]


class Named(dict[str, Any]):
    """A dictionary by names, in which any spelling of a measure finds its value.

    Example:
        >>> from torchrank.metrics.public import Precision
        >>> Named({"P_5": 0.2})["precision@5"]
        0.2
        >>> Named({"P_5": 0.2})["P_15"]
        Traceback (most recent call last):
        KeyError: "Expected one of 'P_5', got 'P_15'; did you mean 'P_5'?"
    """

    def __missing__(self, name: str) -> Any:
        wanted = _label_of(name)
        for key, value in self.items():
            if wanted is not None and _label_of(key) == wanted:
                return value
        raise KeyError(f"Expected one of {', '.join(map(repr, self))}, got {name!r}{did_you_mean(name, self)}")


def _label_of(name: str) -> str | None:
    """The label of a name; None if it is not the name of one measure."""
    try:
        return str(parse(name).label)
    except (ValueError, TypeError):
        return None


def parse_all(name: str, defaults: Mapping[str, Any] = MappingProxyType({}), /, **overrides: Any) -> list[Any]:
    """Return the metrics of a list of names with any cutoffs: ``"ndcg@5,10 recall@1-3"`` has five.

    ``defaults`` are arguments of the metrics that have such arguments; those in a name go before.
    """
    if not isinstance(name, str):
        raise TypeError(f"Expected the name of a metric, for example 'ndcg@10', got {type(name).__name__}")
    return [
        metric
        for part in split(name)
        for label in resolve(part)
        for metric in _metrics(label, part, defaults, overrides)
    ]


def resolve(name: str, registry: Mapping[str, Any] | None = None) -> list[Label]:
    """Return the labels of a name, with this library's own names of the measures.

    ``registry`` has the measures by name, as classes or descriptions; None = all classes.

    Raises:
        ValueError: no measure has this name.
    """
    # The order decides if a name fits several times: spellings of other libraries, own names, a cutoff in the name.
    if len(name) > LONGEST:
        raise ValueError(f"Expected a name of at most {LONGEST:,} characters, got {len(name):,}: {name[:50]!r}...")
    if suffixed := _LEVEL.fullmatch(name):
        if _LEVEL.fullmatch(suffixed["name"]):
            raise ValueError(f"Expected one relevance level, as in 'map-l2', got several in {name[:50]!r}")
        level = {"relevance_level": int(suffixed["level"])}
        return [replace(label, parameters=label.parameters | level) for label in resolve(suffixed["name"], registry)]
    label, registry = read(name), measures() if registry is None else registry
    if len(label.name) > LONGEST_PLAIN:
        raise ValueError(f"Expected the name of a measure, got {len(label.name):,} characters: {name[:50]!r}...")
    lower = label.name.lower()
    spellings = _ordered(tuple(registry.values()))
    if lower in registry:
        # Our own name wins over a spelling of the same name, unless that has parameters or a cutoff, as IPrec@0.1, or
        # is ir_measures' in the same letters: NumRel is the sum, numrel the mean.
        spellings = [
            x for x in spellings if x.literal == lower and (x.cutoff or x.parameters or x.of_ir_measures == label.name)
        ]
    for spelling in spellings:
        if labels := spelling.fit(label):
            return labels
    joined = lower if lower in registry else re.sub("[_-]", "", lower)  # hit_rate, R-precision
    if joined in registry:
        return [Label(joined, label.parameters, label.cutoff)]
    if cut := _CUT.fullmatch(label.name):  # ndcg_10, ndcg_at_10; or a placeholder: ndcg_at_k@10
        link, placeholder = (cut["link"] or "").lower(), cut["k"].lower() == "k"
        is_parameter = "at" not in link and cut["name"].lower() in _NUMBERED
    if cut and link and placeholder == bool(label.cutoff) and not is_parameter:
        try:
            return resolve(write(cut["name"], label.parameters, None) + f"@{label.cutoff or cut['k']}", registry)
        except ValueError:
            pass  # the error below shows the name as it was given
    near = _suggestions(label, cut, spellings, registry)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    hint = "use tr.evaluate_spans; " if joined in SPAN_MEASURES else hint
    raise ValueError(f"Expected the name of a measure, got {name!r}: {hint}`torchrank measures` lists them")


def _suggestions(
    label: Label, cut: re.Match[str] | None, spellings: Sequence[_Spelling], registry: Mapping[str, Any]
) -> list[str]:
    """The names that are most like an unknown one, with its parameters and its cutoff."""
    lower = label.name.lower()
    stem, cutoff = (cut["name"].lower(), label.cutoff or cut["k"]) if cut else (lower, label.cutoff)
    if stem in _NUMBERED or not re.fullmatch(_FORMS["k"], cutoff):
        cutoff = ""
    examples = {measure.name + "@{k}" * measure.takes_top_k: measure.name for measure in registry.values()}
    examples |= {spelling.example: spelling.measure for spelling in spellings if spelling.example}
    known, after = {}, {}
    for example, measure in examples.items():
        text = example.removesuffix("@{k}").replace("{k}", cutoff or "10")
        known[text], after[text] = measure, f"@{cutoff}" if cutoff and example.endswith("@{k}") else ""
    # A word more, as in cv_recall, is another measure.
    same = [near for near in nearest((lower, stem), known) if keeps_words(stem, near)]
    return [write(near, label.parameters, None) + after[near] for near in same]


@functools.lru_cache(maxsize=8)  # a new measure makes a new list
def _ordered(measures: tuple[Any, ...]) -> list[_Spelling]:
    """The spellings of all measures, those first that win if several fit."""
    named = ((measure, entry) for measure in measures for entry in known(measure) if entry.same and entry.theirs)
    return sorted((_Spelling.of(measure, entry) for measure, entry in named), key=lambda x: x.rank)


#: the most characters of a name, with its parameters and cutoffs; and without them
LONGEST, LONGEST_PLAIN = 10_000, 100


#: the measures of :func:`torchrank.evaluate_spans`, which are no classes
SPAN_MEASURES = ("spanrecall", "spanprecision", "spaniou")


#: ranx's suffix for the relevance level, map-l2
_LEVEL = re.compile(r"\s*+(?P<name>[^()]+(?:\(.*\)[^()]*)?)-l(?P<level>\d{1,9})\s*", re.IGNORECASE)


#: patterns of the names in braces; any other name is one number
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)"
_NUMBERS = rf"{_NUMBER}(?:,{_NUMBER})*"
_FORMS = {"k": r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", "x": _NUMBERS, "xs": _NUMBERS}


#: a cutoff as MTEB and others write it, ndcg_at_10, ndcg_10; or k in its place
_CUT = re.compile(rf"(?P<name>[\W\d]*[^\W\d].*?)(?P<link>[_-](?:at[_-])?)?(?P<k>k|{_FORMS['k']})", re.IGNORECASE)


#: after these names a number may be their parameter instead of a cutoff; bpref-10 is another measure
_NUMBERED = ("f", "fbeta", "f_beta", "rbp", "rbo", "bpref")


def _metrics(label: Label, name: str, defaults: Mapping[str, Any], overrides: dict[str, Any]) -> list[Any]:
    measure = measures()[label.name]
    arguments, known = _arguments(label), measure.definition()
    for argument in arguments:
        if argument not in known and argument != "top_k":
            raise ValueError(
                f"Expected {measure.name} to have parameters {', '.join(known)}, got {argument!r} in {name!r}"
            )
    if label.cuts and not measure.takes_top_k:
        raise ValueError(f"Expected no cutoff for {measure.name}, got {name!r}")
    cuts: list[dict[str, Any]] = [{"top_k": cut} for cut in label.cuts if "top_k" not in overrides] or [{}]
    wanted = [key for key in required(measure) if key not in {**cuts[0], **arguments, **overrides}]
    if wanted:
        given = [f"{key}={value!r}" for key, value in {**cuts[0], **arguments}.items()]
        call = f"tr.{measure.__name__}({', '.join([*given, *(f'{key}=...' for key in wanted)])})"
        raise ValueError(f"Expected {', '.join(wanted)} for {name!r}, got none; pass {call}")
    more = {key: value for key, value in defaults.items() if key in known}
    return [measure(**{**cut, **more, **arguments, **overrides}) for cut in cuts]


@functools.cache
def required(measure: type | Description) -> list[str]:
    """Names of the arguments that a measure requires."""
    if isinstance(measure, Description):
        return measure.required
    known = inspect.signature(measure).parameters.values()
    return [p.name for p in known if p.default is p.empty and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _arguments(label: Label) -> dict[str, Any]:
    """The parameters of a label by this library's names of them."""
    arguments: dict[str, Any] = {}
    known = measures()[label.name].definition()
    for key, value in label.parameters.items():
        # A name elsewhere replaces the name only, or each value by several arguments.
        other = key if key in known else PARAMETERS.get(key, key)
        if isinstance(other, str):
            if other in arguments:
                raise ValueError(f"Expected one value of {other} for {label.name}, got another by {key}={value!r}")
            arguments[other] = value
        elif value in list(other):  # a table of gains has no hash
            if twice := [name for name in other[value] if name in arguments]:
                raise ValueError(f"Expected one value of {twice[0]} for {label.name}, got another by {key}={value!r}")
            arguments |= other[value]
        else:
            raise ValueError(f"Expected {key} to be one of {', '.join(map(str, other))}, got {value!r}")
    return arguments


# ---- spellings -------------------------------------------------------------------------------------------------------

_HOLE = re.compile(r"{(\w+)}")


@dataclass(frozen=True)
class _Spelling:
    """Another library's spelling of some labels; see ``names.toml``."""

    name: re.Pattern[str]
    #: the parameters that a name must have
    parameters: dict[str, object]
    #: the cutoff that a name must have; None = any
    cutoff: re.Pattern[str] | None
    #: templates of the labels
    labels: Sequence[str]
    #: a name that fits, for hints, with ``{k}`` for a cutoff; empty if it needs parameters or stands for several labels
    example: str
    #: the name in lower case, as it is written there
    literal: str
    #: the name as ir_measures writes it; empty if it is another library's
    of_ir_measures: str
    #: the name of the measure
    measure: str
    #: the smallest wins: most parameters first, then names under "parse"
    rank: tuple[int, bool]

    @classmethod
    def of(cls, measure: Any, entry: Known) -> _Spelling:
        parts = read(without_optional(entry.theirs))
        labels = [measure.name + without_optional(setting) for setting in entry.settings]
        theirs = _WORD.sub("_", parts.name).lower()
        example = _HOLE.sub(lambda hole: hole[0] if hole[1] == "k" else "0.5", theirs)
        if parts.parameters or parts.cutoff or ("{k}" not in example and ("@" in "".join(labels) or len(labels) > 1)):
            example = ""
        elif "{k}" not in example and measure.takes_top_k:
            example += "@{k}"
        cutoff = re.compile(_pattern(parts.cutoff), re.IGNORECASE) if parts.cutoff else None
        rank = (-len(parts.parameters) - bool(cutoff), entry.library != PARSE)
        pattern = re.compile(_pattern(theirs), re.IGNORECASE)
        exact = parts.name if entry.library == "ir_measures" and labels != [measure.name] else ""
        return cls(pattern, parts.parameters, cutoff, labels, example, parts.name.lower(), exact, measure.name, rank)

    def fit(self, label: Label) -> list[Label]:
        """The labels of a name in this spelling; nothing if the name does not fit."""
        named = self.name.fullmatch(label.name)
        behind = self.cutoff.fullmatch(label.cutoff) if self.cutoff else None
        if named is None or (self.cutoff and behind is None):
            return []
        values = named.groupdict() | (behind.groupdict() if behind else {})
        for key, wanted in self.parameters.items():
            if key not in label.parameters:
                return []
            # A number in braces takes the value of the name, any other value must be equal.
            if isinstance(wanted, str) and (hole := _HOLE.fullmatch(wanted)):
                values[hole[1]] = str(label.parameters[key])
            elif label.parameters[key] != wanted:
                return []
        rest = {key: value for key, value in label.parameters.items() if key not in self.parameters}
        numbers = values.pop("x", "0").split(",")
        labels = [
            read(text.format(**values, x=x, root=math.sqrt(abs(float(x)))))
            for text, x in itertools.product(self.labels, numbers)
        ]
        passed = "" if self.cutoff else label.cutoff
        if passed and any(filled.cutoff for filled in labels):
            return []  # the spelling and the name both set the cutoff
        return [Label(filled.name, {**filled.parameters, **rest}, filled.cutoff or passed) for filled in labels]


def _pattern(text: str) -> str:
    # Pieces at even places are literal, those between are names in braces. An underscore may also be a dot, a hyphen or
    # nothing.
    pieces = _HOLE.split(text)
    literal = [re.escape(piece).replace("_", "[_.-]?") for piece in pieces[::2]]
    holes = [f"(?P<{name}>{_FORMS.get(name, _NUMBER)})" for name in pieces[1::2]]
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(literal, holes, fillvalue="")))


#: the places in the name of a class where another word begins, and hyphens
_WORD = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|-")


# ---- presets ---------------------------------------------------------------------------------------------------------

#: libraries with a preset, and the versions that were compared
LIBRARIES: dict[str, str] = {name: one.get("title", TITLES[name]) for name, one in DATA["presets"].items()}


def _each(key: str) -> dict[str, Any]:
    return {name: one[key] for name, one in DATA["presets"].items() if key in one}


#: what ``names.toml`` says of presets
OPTIONS, ALWAYS, CUT, EXCEPT = map(_each, ("options", "always", "cut", "except"))
CUTOFFS: dict[str, tuple[int, ...]] = {name: tuple(cuts) for name, cuts in _each("cutoffs").items()}


#: the first measures of a preset; the others follow by name
FIRST = ("precision", "relprecision", "recall", "f1", "hitrate", "mrr", "map", "yaap", "ndcg", "dcg")


class Cell(NamedTuple):
    """A measure of a library. ``{k}`` is a cutoff; text in brackets is left out if no cutoff is given."""

    #: the name in the library
    theirs: str
    #: our label, or None if no setting gives the same number
    ours: str | None
    #: the reason, if there is no label
    why: str = ""


def rows(registry: Mapping[str, Any] | None = None) -> dict[str, dict[str, list[Cell]]]:
    """The names of other libraries and our labels, by measure and library. ``registry`` is as for :func:`resolve`.

    The numbers agree if no scores are tied, and under ties if the library defines their meaning. For libraries without
    grades they agree if grades are 0 and 1. Measures that need a catalogue or ids are left out.
    """
    cells: dict[str, dict[str, list[Cell]]] = {}
    every = measures() if registry is None else registry
    for name in [*(name for name in FIRST if name in every), *sorted(every.keys() - set(FIRST))]:
        measure = every[name]
        # A measure of recommended lists has no policy for targets, and refuses scores.
        reads_scores = "empty_target_action" in measure.definition() and not required(measure)
        for entry in known(measure) if reads_scores else ():
            if entry.library in LIBRARIES and entry.theirs:
                cells.setdefault(name, {}).setdefault(entry.library, []).append(_cell(measure, entry))
    for library, lacking in DATA["lacking"].items():
        for theirs, why in lacking.items():
            cells.setdefault(f"{theirs} of {LIBRARIES[library].split()[0]}", {})[library] = [Cell(theirs, None, why)]
    return cells


def _cell(measure: Any, entry: Known) -> Cell:
    if not entry.same:
        return Cell(entry.theirs, None, entry.remark)
    (setting,) = entry.settings  # names that stand for several labels are not those of libraries with a preset
    theirs, ours, cut = entry.theirs, measure.name + setting, CUT.get(entry.library, "")
    if cut and measure.takes_top_k and "{k}" not in theirs:
        # A cutoff in parentheses joins the parameters of the name, if it has any.
        inside = cut.startswith("(") and "(" in theirs
        theirs = theirs.replace("(", f"{cut[:-1]}, ", 1) if inside else theirs + cut
        # Our label keeps the brackets, by which ``preset`` recognises that the cutoff can be left out.
        ours += cut if "[" in cut else "@{k}"
    return Cell(theirs, ours)


def preset(name: str, *k: int, num_items: int | None = None, interactions: Array | None = None) -> dict[str, Any]:
    """The measures of another library under its own names, with the settings that reproduce its numbers.

    Measures without such a setting are left out. ``torchrank presets`` lists the cases in which the numbers still
    differ.
    :func:`torchrank.evaluate` also takes a preset, with the tool's queries, precision and cutoffs.

    Measures of recommended lists, such as coverage, are included if the catalogue that they need is passed. They read
    ids, so the suite takes ``scores.topk(max(k)).indices`` in place of scores.

    Args:
        name: a library: "trec_eval" (10), "trec_eval9", "beir", "beir_custom", "mteb", "msmarco",
            "longmemeval", "sklearn", "torchmetrics", "pyg", "recbole", "rectools", "lenskit", "pykeen", "rax",
            "lightgbm", "xgboost", "catboost", "ragas", "deepeval" or "trulens".
        k: cutoffs. Without any, measures that require one are left out.
        num_items: the number of items in the catalogue, for coverage, Gini index and entropy. RecBole and its scores
            count the padding item, too: ``dataset.item_num``.
        interactions: [item], the number of interactions of each item in the training data, for popularity and the long
            tail.

    Returns:
        {their name: our label}, for :class:`torchrank.RankingCollection`; a metric in place of the label if it has a
        catalogue.

    Raises:
        TypeError: the name is not a text.
        ValueError: the library is unknown, a cutoff is not an integer >= 1, or all measures of the library require a
            cutoff and ``k`` is empty.

    Example:
        >>> import torchrank as tr
        >>> tr.preset("recbole", 5)["map@5"]
        'map(normalize=min,empty_target_action=skip)@5'
        >>> suite = tr.RankingCollection(tr.preset("recbole", 5, 10, num_items=1000))
        >>> suite["itemcoverage@10"]
        Coverage(coverage@10)
    """
    if not isinstance(name, str):
        raise TypeError(f"Expected the name of a library, for example 'trec_eval', got {type(name).__name__}")
    if name not in LIBRARIES:
        key = {title.lower(): key for key, title in TITLES.items()}.get(name.lower(), name)
        parses = key in TITLES and key not in LIBRARIES
        hint = "; its names parse without a preset" if parses else did_you_mean(key, LIBRARIES)
        raise ValueError(f"Expected the name of a library, one of {', '.join(LIBRARIES)}, got {name!r}{hint}")
    for cut in k:
        if not isinstance(cut, Integral) or isinstance(cut, bool) or cut < 1:
            several = ", ".join(map(str, cut)) if isinstance(cut, list | tuple) else ""
            way_out = several and f"; pass preset({name!r}, {several})"
            raise ValueError(f"Expected cutoffs to be integers >= 1, got {cut!r}{way_out}")
    labels: dict[str, Any] = {}
    always = ALWAYS.get(name, {})
    cells = [(cell, dict[str, Any]()) for row in rows().values() for cell in row.get(name, [])]
    cells += _of_catalogue(name, num_items=num_items, interactions=interactions)
    for (theirs, ours, _), catalogue in cells:
        if ours is not None:
            for cutoff in k if "{k}" in ours and (k or "[" not in ours) else (None,):
                label = _fill(ours, cutoff)
                if catalogue:
                    labels[_fill(theirs, cutoff)] = parse(label, **catalogue)
                    continue
                parts = read(label)  # parameters of every measure do not replace its own
                top_k = parts.cuts[0] if parts.cuts else None
                labels[_fill(theirs, cutoff)] = write(parts.name, parts.parameters | always | parts.parameters, top_k)
    if not labels:
        raise ValueError(f"Expected at least one cutoff for {name}, as in preset({name!r}, 10), got none")
    return labels


def _of_catalogue(library: str, **catalogue: Any) -> Iterator[tuple[Cell, dict[str, Any]]]:
    """The measures of a library that require arguments about the catalogue, and these; None is a missing argument."""
    for measure in measures().values():
        needed = {key: catalogue.get(key) for key in required(measure)}
        if needed and all(value is not None for value in needed.values()):
            for entry in known(measure):
                if entry.library == library and entry.theirs and entry.same:
                    yield _cell(measure, entry), needed


def _fill(text: str, k: int | None) -> str:
    """A template with its cutoff, or without the text in brackets if there is none."""
    if k is None:
        return without_optional(text)
    return re.sub(r"[][]", "", text).replace("{k}", str(k))
