"""Scores of generated answers by the nuggets, the expected facts, that they support."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from torchrank.evaluation.evaluation import Evaluation
from torchrank.layouts.checks import check_tensor
from torchrank.metrics.binary import Recall
from torchrank.names.types import Array
from torchrank.ranking.ranking import ratio
from torchrank.tables import files
from torchrank.tables.pair_tables import Qrels, ReadingError, ids_of, shown
from torchrank.wrappers.compared import rectified_tables
from torchrank.wrappers.per_query import QueryTable

#: grades of TREC's assignments; "failed" is what nuggetizer writes if its model gave no answer
SUPPORT = {"not_support": 0, "partial_support": 1, "support": 2, "failed": 0}
IMPORTANCE = {"okay": 1, "vital": 2}


def nugget_scores(support: Array, importance: Array) -> dict[str, Tensor]:
    r"""The scores of answers by their nuggets, as in the RAG track of TREC: float64 [query] each, by name.

    .. math:: \frac{\sum_n w_n s_n}{\sum_n w_n}

    with the credit s of a nugget, 1 for full and 0.5 for partial support, or 0 for partial support in the strict
    scores, and its weight w:

    =================================  ======================================
    score                              weight
    =================================  ======================================
    ``all``, ``all_strict``            1
    ``vital``, ``vital_strict``        1 if the nugget is vital, else 0
    ``weighted``, ``weighted_strict``  1 if the nugget is vital, else 0.5
    =================================  ======================================

    An answer without such nuggets has the score 0.

    Args:
        support: int [query, nugget]: 2 = the answer supports the nugget, 1 = partially, 0 = not.
        importance: int [query, nugget]: 2 = vital, 1 = okay, 0 = padding.

    Source:
        Pradeep et al., Initial nugget evaluation results for the TREC 2024 RAG track with the AutoNuggetizer framework,
        arXiv 2411.09607, 2024.

    Raises:
        ValueError: a shape is another one, or a number is not 0, 1 or 2.

    Example:
        >>> import torch, torchrank as tr
        >>> scores = tr.nugget_scores(torch.tensor([[2, 1, 0, 2]]), torch.tensor([[2, 2, 2, 1]]))
        >>> {name: round(value.item(), 3) for name, value in scores.items()}  # doctest: +NORMALIZE_WHITESPACE
        {'all': 0.625, 'all_strict': 0.5, 'vital': 0.5, 'vital_strict': 0.333,
         'weighted': 0.571, 'weighted_strict': 0.429}
    """
    support, importance = check_tensor(support, "support"), check_tensor(importance, "importance")
    if support.dim() != 2 or support.shape != importance.shape:
        got = f"{list(support.shape)} and {list(importance.shape)}"
        raise ValueError(f"Expected support and importance of one shape [query, nugget], got {got}")
    for name, x in (("support", support), ("importance", importance)):
        if len(bad := x[(x != 0) & (x != 1) & (x != 2)]):
            raise ValueError(f"Expected {name} to be 0, 1 or 2, got {bad[0].item():g}")
    vital, there = (importance == 2).double(), (importance > 0).double()
    weights = {"all": there, "vital": vital, "weighted": (there + vital) / 2}
    credits = {"": support.double() / 2, "_strict": (support == 2).double()}
    return {
        f"{name}{kind}": ratio((weight * credit).sum(-1), weight.sum(-1))
        for name, weight in weights.items()
        for kind, credit in credits.items()
    }


def read_nuggets(source: Any) -> Qrels:
    """Read the assignments of nuggets to the answers of a run: the support of each nugget of each query.

    Args:
        source: a path of JSON lines as castorini's nuggetizer writes them, also compressed, or an iterable of such
            dictionaries: ``{"qid": ..., "nuggets": [{"text": ..., "importance": "vital" or "okay", "assignment":
            "support", "partial_support" or "not_support"}, ...]}``. Other keys are not read. "failed", where the model
            of nuggetizer gave no answer, counts as "not_support", as there.

    Returns:
        Judgments whose documents are nuggets, with the grades 2 = support, 1 = partial support, 0 = none, for
        :func:`evaluate_nuggets` and :func:`torchrank.agree`. The subtopics are vital and okay: a nugget has the grade
        -1 for the one that it is not.

    Raises:
        ReadingError: a line is another one, or a query is there twice.

    Example:
        >>> import torchrank as tr
        >>> nuggets = [{"text": "It rains.", "importance": "vital", "assignment": "partial_support"}]
        >>> tr.read_nuggets([{"qid": "q1", "nuggets": nuggets}]).to_dict()
        {'q1': {'It rains.': 1.0}}
    """
    if isinstance(source, Qrels):
        if source.subtopics is None:
            raise ReadingError(
                "Expected assignments of nuggets, got judgments of documents; pass their file", source.source
            )
        return source
    lines: Iterable[tuple[int, Any]]
    if isinstance(source, str | Path) or hasattr(source, "read"):
        text = files.open_text(source, "grade", files.EXPANSION)
        name = text.name
        lines = ((number, files.from_json(line, name, number)) for number, line in text.lines() if line.strip())
    else:
        name, lines = f"<{type(source).__name__}>", enumerate(source, 1)
    tables: dict[Any, dict[str, tuple[int, int]]] = {}
    for number, line in lines:
        try:
            query, nuggets = line["qid"], dict[str, tuple[int, int]]()
            for one in line["nuggets"]:
                key = one["text"] if one["text"] not in nuggets else f"{one['text']} ({len(nuggets)})"
                nuggets[key] = SUPPORT[one["assignment"]], IMPORTANCE[one["importance"]]
        except (KeyError, TypeError) as error:
            form = (
                f"a line with qid and nuggets, each with text, importance ({', '.join(IMPORTANCE)}) and assignment"
                f" ({', '.join(SUPPORT)})"
            )
            raise ReadingError(f"Expected {form}, got {error}", name, number, shown(line)) from None
        if query in tables:
            raise ReadingError(f"Expected every query once, got {query!r} again; read each run by itself", name, number)
        tables[query] = nuggets
    items = [text for nuggets in tables.values() for text in nuggets]
    numbers = np.array([pair for nuggets in tables.values() for pair in nuggets.values()]).reshape(-1, 2)
    support, vital = numbers[:, 0].astype(np.float64), numbers[:, 1] == 2
    query = np.repeat(np.arange(len(tables)), [len(nuggets) for nuggets in tables.values()])
    subtopics = np.where(np.stack([vital, ~vital], axis=1), support[:, None], -1)
    return Qrels(ids_of(list(tables)), query, ids_of(items), support, name, subtopics=subtopics)


def evaluate_nuggets(
    runs: Mapping[str, Any], *, human: Mapping[str, Any] | None = None, strata: Mapping[Any, Any] | None = None
) -> Evaluation:
    """Evaluate runs of generated answers by the nuggets that they support: means, intervals and comparisons.

    Args:
        runs: the assignments of each run, ``{name: source}``, sources of :func:`read_nuggets` or its results.
        human: assignments by people for some of the queries, likewise, if those of ``runs`` are of a model. Means,
            intervals and comparisons are then those of :class:`torchrank.Rectified`.
        strata: with ``human``, a dictionary from the id of each query to its stratum; as in
            :func:`torchrank.evaluate`.

    Returns:
        An :class:`torchrank.Evaluation` with the scores of :func:`nugget_scores`, without curves over ranks. A run that
        lacks a query of another one has the score 0 there.

    Raises:
        ReadingError: as :func:`read_nuggets`, or there is no query.
        ValueError: people have judged other runs, or none of the queries.

    Example:
        >>> import torchrank as tr
        >>> def line(query, *assigned):
        ...     names = [{"text": f"{n}", "importance": "vital", "assignment": one} for n, one in enumerate(assigned)]
        ...     return {"qid": query, "nuggets": names}
        >>> a = [line("q1", "support", "not_support"), line("q2", "support", "partial_support")]
        >>> b = [line("q1", "support", "support"), line("q2", "support", "support")]
        >>> results = tr.evaluate_nuggets({"a": a, "b": b})
        >>> results.means["a"]["vital"], results.means["a"]["vital_strict"], results.means["b"]["vital"]
        (0.625, 0.5, 1.0)
    """
    if not isinstance(runs, Mapping):
        raise TypeError(f"Expected assignments by run, got {type(runs).__name__}; pass {{'run': assignments}}")
    found = {str(name): read_nuggets(source) for name, source in runs.items()}
    ids = list(dict.fromkeys(query for qrels in found.values() for query in qrels.query_ids))
    if len({isinstance(query, str) for query in ids}) > 1:
        raise ReadingError("Expected query ids of one type, got integers and texts; write qid as texts in all files")
    if not ids:
        raise ReadingError("Expected the nuggets of at least one query, got none; pass {name: path}")
    values = {name: _scores(qrels, ids) for name, qrels in found.items()}
    known = {name: set(qrels.query_ids) for name, qrels in found.items()}
    answered = {name: np.array([query in own for query in ids]) for name, own in known.items()}
    facts = {name: {"nuggets": len(qrels)} for name, qrels in found.items()}
    results = Evaluation.of_values(ids, values, answered, facts)
    if human is None:
        return results
    if human.keys() != runs.keys():
        got = f"{', '.join(human)}; give the assignments of each run the same name in both"
        raise ValueError(f"Expected assignments by people for the runs {', '.join(found)}, got {got}")
    people = {name: read_nuggets(human[name]) for name in runs}
    tables = {name: QueryTable(qrels.query_ids, _scores(qrels, qrels.query_ids)) for name, qrels in people.items()}
    suite = {label: Recall() for label in results[next(iter(found))].labels}
    return replace(results, rectified=rectified_tables(suite, results.tables, tables, strata))


def _scores(qrels: Qrels, ids: Sequence[Any]) -> dict[str, np.ndarray]:
    """The scores of some queries by name, 0 of those without an answer."""
    assert qrels.subtopics is not None
    place = np.arange(len(qrels)) - np.searchsorted(qrels.query, qrels.query)
    shape = 2, len(qrels.queries) + 1, 1 + place.max(initial=0)  # the last query has no answer
    support, importance = np.zeros(shape)
    support[qrels.query, place], importance[qrels.query, place] = qrels.value, 1 + (qrels.subtopics[:, 0] >= 0)
    row = {query: number for number, query in enumerate(qrels.query_ids)}
    rows = [row.get(query, -1) for query in ids]
    return {label: score.numpy()[rows] for label, score in nugget_scores(support, importance).items()}
