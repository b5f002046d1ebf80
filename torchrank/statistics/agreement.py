"""How far judges agree on the same items."""

from __future__ import annotations

import itertools
import math
from typing import Literal, get_args

import numpy as np

from torchrank.names.arguments import one_of

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
