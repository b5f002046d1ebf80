"""The settings that reproduce the numbers of other libraries, as presets and as a table, from ``known_as``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from torchrank.names.labels import read, write
from torchrank.names.nearest import did_you_mean
from torchrank.names.parse import parse, required
from torchrank.names.registry import measures
from torchrank.names.spellings import TITLES, Known, known, without_optional

if TYPE_CHECKING:
    from torchrank.names.types import Array

#: The libraries with a preset, and the versions that were compared.
LIBRARIES = {"trec_eval": "trec_eval 10", "trec_eval9": "trec_eval 9, pytrec_eval"} | {
    name: TITLES[name]
    for name in (
        *("beir", "beir_custom", "mteb", "msmarco"),
        *("sklearn", "torchmetrics", "pyg", "recbole", "rectools", "lenskit", "pykeen", "rax"),
        *("lightgbm", "xgboost", "catboost"),
        *("ragas", "deepeval", "trulens"),
    )
}


#: Options of :func:`torchrank.evaluate` that reproduce a tool; all others have their defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "trec_eval": {"queries": "both"},
    "trec_eval9": {"queries": "both", "precision": "single"},
    "beir": {"queries": "both", "precision": "single", "ignore_identical_ids": True},
    "beir_custom": {},
    "mteb": {"queries": "both", "precision": "single"},
    "msmarco": {},
}


#: The cutoffs of these tools.
CUTOFFS = {
    "trec_eval": (5, 10, 15, 20, 30, 100, 200, 500, 1000),
    "trec_eval9": (5, 10, 15, 20, 30, 100, 200, 500, 1000),
    "beir": (1, 3, 5, 10, 100, 1000),
    "beir_custom": (1, 3, 5, 10, 100, 1000),
    "mteb": (1, 3, 5, 10, 20, 100, 1000),
    "msmarco": (10,),
}


#: Settings of all measures of a library.
ALWAYS: dict[str, dict[str, Any]] = {
    "pyg": {"empty_target_action": "skip"},
    "recbole": {"empty_target_action": "skip"},
    "rectools": {"empty_target_action": "skip"},
    "lenskit": {"empty_target_action": "skip"},
    "pykeen": {"filtered": True, "average": "positive", "ties": "realistic"},
    "rax": {"empty_target_action": "listed"},
    "lightgbm": {"empty_target_action": "pos"},
    "xgboost": {"empty_target_action": "pos"},
    "catboost": {"ties": "pessimistic", "empty_target_action": "pos"},
    "trulens": {"empty_target_action": "skip"},
}


#: Cases in which the numbers still differ from those of a library.
EXCEPT = {
    "trec_eval": "with `-c`, `unj` counts 0 for a query that the run lacks; here it is left out",
    "trec_eval9": "`iprec_at_recall` is 0 / 0 there for an empty list",
    "beir": "means are rounded to 5 digits",
    "beir_custom": "equal scores rank in the order of the dictionary; means are rounded to 5 digits",
    "mteb": "`mrr_at_k` does not round scores to single precision; means of the others are rounded to 5 digits",
    "msmarco": "documents of any grade are relevant: leave those of grade 0 out of the judgments",
    "pyg": "0 if no query has a relevant candidate; here NaN",
    "rectools": "`Accuracy` and `MCC` treat a shorter list as one of k, and need `collection_size` for ids here",
    "lenskit": "`gain=rating` is for users with test items; before 2026.2.1 `DCG` was 0 without any",
    "rax": "a list in which all scores are -inf counts as 0, and a batch in which all lists are masked is 0",
    "lightgbm": "equal scores rank in the order of rows: pass `tie_break=-numpy.arange(len(scores))`",
    "xgboost": "as LightGBM, and scores are rounded to float32",
    "catboost": "`PrecisionAt`, `RecallAt` and `MAP` ignore weights of groups: pass none",
    "ragas": "grades are its judge's verdicts on the retrieved contexts, whose number is k; ids count once",
    "deepeval": "grades are its judge's verdicts on the retrieved contexts, whose number is k",
    "trulens": "precision and recall take all ties at k, if there are scores; 0 is relevant, but in NDCG",
}


#: A library's spelling of a cutoff, for measures that can have one; in brackets if it can be left out.
CUT = {
    "beir": "@{k}",
    "beir_custom": "@{k}",
    "mteb": "_at_{k}",
    "msmarco": "@{k}",
    "torchmetrics": "[@{k}]",
    "pyg": "@{k}",
    "recbole": "@{k}",
    "rectools": "(k={k})",
    "lenskit": "[@{k}]",
    "rax": "[@{k}]",
    "lightgbm": "@{k}",
    "xgboost": "[@{k}]",
    "ragas": "[@{k}]",
    "deepeval": "[@{k}]",
    "trulens": "[@{k}]",
}


#: The first measures of a preset; the others follow by name.
FIRST = ("precision", "relprecision", "recall", "f1", "hitrate", "mrr", "map", "yaap", "ndcg", "dcg")


#: Measures of a library that have no class here, and the reason.
LACKING: dict[str, dict[str, str]] = {
    "mteb": {"nAUC": "`torchrank.Abstention`"},
    "ragas": {
        "context_recall": "of the claims of a reference answer",
        "context_relevance": "a judge's opinion of all contexts together",
    },
    "deepeval": {
        "ContextualRecallMetric": "of the sentences of an expected output",
        "ContextualRelevancyMetric": "of the statements in all contexts; with one in each it is precision",
    },
    "pykeen": {
        "count": "`numrel(aggregation=sum)`",
        **dict.fromkeys(
            ("standard_deviation", "variance", "median_absolute_deviation"),
            "a callable `aggregation` of `mr` computes it, if each query has one positive",
        ),
        **dict.fromkeys(
            ("adjusted_geometric_mean_rank_index", "z_geometric_mean_rank"),
            "the expectation of a geometric mean depends on the number of all ranks, so no sums over queries have it",
        ),
    },
}


class Cell(NamedTuple):
    """A measure of a library. ``{k}`` is a cutoff; text in brackets is left out if no cutoff is given."""

    #: the name in the library
    theirs: str
    #: our label, or None if no setting gives the same number
    ours: str | None
    #: the reason, if there is no label
    why: str = ""


def rows() -> dict[str, dict[str, list[Cell]]]:
    """The names of other libraries and our labels, by measure and library, from ``known_as`` of the classes.

    The numbers agree if no scores are tied, and under ties if the library defines their meaning. For libraries without
    grades they agree if grades are 0 and 1. Measures that need a catalogue or ids are left out.
    """
    cells: dict[str, dict[str, list[Cell]]] = {}
    every = measures()
    for name in [*(name for name in FIRST if name in every), *sorted(every.keys() - set(FIRST))]:
        measure = every[name]
        # A measure of recommended lists has no policy for targets, and refuses scores.
        reads_scores = "empty_target_action" in measure.definition() and not required(measure)
        for entry in known(measure) if reads_scores else ():
            if entry.library in LIBRARIES and entry.theirs:
                cells.setdefault(name, {}).setdefault(entry.library, []).append(_cell(measure, entry))
    for library, lacking in LACKING.items():
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
            "sklearn", "torchmetrics", "pyg", "recbole", "rectools", "lenskit", "pykeen", "rax",
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
                labels[_fill(theirs, cutoff)] = parse(label, **catalogue) if catalogue else _with(label, always)
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


def _with(text: str, always: dict[str, Any]) -> str:
    """A label with further parameters, which do not replace its own."""
    label = read(text)
    more = {key: value for key, value in always.items() if key not in label.parameters}
    return write(label.name, {**label.parameters, **more}, label.cuts[0] if label.cuts else None)
