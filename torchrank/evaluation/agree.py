"""How far judges agree on documents, and on the order of systems."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from torchrank.display import Table
from torchrank.evaluation.evaluate import MEASURES, evaluate
from torchrank.evaluation.evaluation import Evaluation
from torchrank.metrics.rank_correlation import KendallTau
from torchrank.names.arguments import one_of
from torchrank.tables.pair_tables import Duplicates
from torchrank.tables.sources import read_qrels, stem
from torchrank.wrappers.suite_metric import Suite, readable


def agree(
    judgments: Mapping[str, Any] | Sequence[str | Path],
    runs: Any = None,
    measures: Suite | None = None,
    *,
    duplicates: Duplicates = "error",
) -> Table:
    """How far judges agree: Krippendorff's alpha of their grades, and Kendall's tau of the systems that they order.

    ==========  =================================================================================================
    documents   (query, document) pairs that both have graded; negative grades are none
    equal       share of equal grades
    nominal     Krippendorff's alpha of grades as names, as an order, and as numbers: 1 = always equal, 0 = chance
    ordinal     likewise
    interval    likewise
    tau ...     Kendall's tau-b of the runs by each measure, over the queries that both have judged
    ==========  =================================================================================================

    Report ``ordinal`` for grades, which have an order, and ``nominal`` for labels such as "spam": alpha is defined by
    the level of measurement of the data. ``interval`` takes the step from 0 to 1 for as large as that from 2 to 3.

    Args:
        judgments: two or more judges, ``{name: judgments}``, each any source of :func:`torchrank.read_qrels`; or paths.
        runs: two or more runs, as in :func:`torchrank.evaluate`; None = compare the grades only.
        measures: as in :func:`torchrank.evaluate`.
        duplicates: likewise.

    Returns:
        A table with a row for each pair of judges, and one for all of them if there are three or more.

    Source:
        Krippendorff, Computing Krippendorff's alpha-reliability, 2011, also on its levels. Tau: Voorhees, Variations in
        relevance judgments and the measurement of retrieval effectiveness, SIGIR 1998.

    Raises:
        ReadingError: a source cannot be read.
        ValueError: there are fewer than two judges or runs, or two judges have no document in common.

    Example:
        >>> import torchrank as tr
        >>> people = {"q1": {"a": 2, "b": 0, "c": 1}, "q2": {"a": 0, "d": 1}}
        >>> model = {"q1": {"a": 2, "b": 1, "c": 1}, "q2": {"a": 0, "d": 1}}
        >>> tr.agree({"people": people, "model": model})
        a       b      documents   equal  nominal  ordinal  interval
        people  model          5  0.8000   0.7097   0.7943    0.8163
    """
    if not isinstance(judgments, Mapping):
        judgments = {stem(path): path for path in judgments}
    tables = {str(name): read_qrels(source, duplicates=duplicates) for name, source in judgments.items()}
    if len(tables) < 2:
        raise ValueError(f"Expected two or more judges with different names, got {', '.join(tables)}; name each file")
    graded: dict[tuple[Any, Any], list[float]] = {}  # by (query, document), for each judge; NaN = not judged
    for judge, table in enumerate(tables.values()):
        for query, documents in table.to_dict().items():
            for document, grade in documents.items():
                graded.setdefault((query, document), [math.nan] * len(tables))[judge] = grade
    grades = np.array(list(graded.values()), dtype=np.float64).reshape(-1, len(tables))
    grades[grades < 0] = np.nan
    names, measures = list(tables), MEASURES if measures is None else readable(measures)
    found = [] if runs is None else [evaluate(table, runs, measures) for table in tables.values()]
    if found and len(found[0].runs) < 2:
        raise ValueError(f"Expected two or more runs to order, got {', '.join(found[0].runs)}; name the files of all")
    rows: list[dict[str, Any]] = []
    for places in [*itertools.combinations(range(len(names)), 2)] + [tuple(range(len(names)))] * (len(names) > 2):
        both = grades[:, places][(~np.isnan(grades[:, places])).sum(1) > 1]
        one, other = ("all", None) if len(places) > 2 else (names[places[0]], names[places[1]])
        if not len(both):
            raise ValueError(f"Expected documents that {one} and {other} have graded, got none; give both the same ids")
        low, high = np.nanmin(both, axis=1), np.nanmax(both, axis=1)
        row = {"a": one, "b": other, "documents": len(both), "equal": float((low == high).mean())}
        row |= {level: krippendorff_alpha(both, level) for level in get_args(Level)}
        for label in found[0][found[0].runs[0]].labels if found else ():
            row[f"tau {label}"] = _tau(found[places[0]], found[places[1]], label) if other else math.nan
        rows.append(row)
    return Table.of_rows(rows)


def _tau(one: Evaluation, other: Evaluation, label: str) -> float:
    """Kendall's tau-b of the means of all runs over the queries of both evaluations."""
    means = np.array(
        [
            [table.where(np.isin(table.ids, against[run].ids)).values()[label] for run, table in each.tables.items()]
            for each, against in ((one, other), (other, one))
        ]
    )
    if np.isnan(means).any():
        return math.nan
    # rounding of equal means is not an order
    first, second = (np.unique(row, return_inverse=True)[1] for row in means.round(12))
    return float(KendallTau().score(torch.from_numpy(first).double().view(1, -1), torch.from_numpy(second).view(1, -1)))


#: what the numbers of grades mean: names, an order, or distances
Level = Literal["nominal", "ordinal", "interval"]


def krippendorff_alpha(grades: np.ndarray, level: Level) -> float:
    r"""Krippendorff's alpha: 1 for judges that always agree, 0 for judges that draw their grades at random.

    .. math:: \alpha = 1 - \frac{D_o}{D_e}, \qquad
        D_o = \frac1n \sum_u \frac{1}{m_u - 1} \sum_{i \ne j} \delta^2(v_{ui}, v_{uj}), \qquad
        D_e = \frac{1}{n (n - 1)} \sum_{g \ne h} \delta^2(v_g, v_h)

    over the n grades of all items u with :math:`m_u \ge 2` of them. :math:`\delta^2` is 1 for different grades
    (nominal), the squared difference of grades (interval), or of their mean ranks among the n grades (ordinal).

    Source:
        Krippendorff, Computing Krippendorff's alpha-reliability, 2011. That its ordinal distance, the number of grades
        from one to the other with half of those at the ends, is the difference of mean ranks follows by cancelling.

    Args:
        grades: float [item, judge]; NaN where a judge has not graded the item.
        level: the level of measurement.

    Returns:
        At most 1; NaN if no item has two grades, or all grades are equal.

    Example:
        >>> round(krippendorff_alpha(np.array([[1, 1], [0, 0], [2, 1], [0, 0], [2, 2]]), "ordinal"), 4)
        0.8898
    """
    one_of("level", level, get_args(Level))
    grades = grades[(~np.isnan(grades)).sum(1) >= 2]
    graded = ~np.isnan(grades)
    values, code, counts = np.unique(grades[graded], return_inverse=True, return_counts=True)
    n = len(code)
    if len(values) < 2:
        return math.nan
    if level != "interval":  # the mean rank of each grade, less a half; for names any numbers that differ
        values = counts.cumsum() - counts / 2
    v = np.full(grades.shape, np.nan)
    v[graded] = values[code.ravel()]
    each = 2 / (graded.sum(1) - 1)
    observed = 0.0
    for one, other in itertools.combinations(v.T, 2):
        squares = (one - other) ** 2 if level != "nominal" else np.where(np.isnan(one - other), np.nan, one != other)
        observed += np.nansum(each * squares)
    if level == "nominal":
        expected = n**2 - (counts**2).sum()
    else:
        expected = 2 * n * (counts * (values - counts @ values / n) ** 2).sum()
    return float(1 - (n - 1) * observed / expected)
