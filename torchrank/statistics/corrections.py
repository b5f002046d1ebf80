"""Corrections of p-values that are read together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from torchrank.names.arguments import one_of


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values by Holm's step-down method: the chance of even one false alarm stays below the level.

    Source:
        Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 1979.

    Example:
        >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    return _sorted(p_values, lambda p: np.maximum.accumulate(np.arange(len(p), 0, -1) * p))


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """P-values by Benjamini and Hochberg's step-up method: bounds the expected share of false alarms among alarms.

    Source:
        Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 1995.

    Example:
        >>> [round(p, 3) for p in benjamini_hochberg([0.01, 0.04, 0.03])]
        [0.03, 0.04, 0.04]
    """

    def step_up(p: np.ndarray) -> np.ndarray:
        return np.minimum.accumulate((len(p) / np.arange(1, len(p) + 1) * p)[::-1])[::-1]

    return _sorted(p_values, step_up)


def uncorrected(p_values: Sequence[float]) -> list[float]:
    """The p-values themselves, for one planned comparison.

    Example:
        >>> uncorrected([0.01, 0.04])
        [0.01, 0.04]
    """
    return [float(p) for p in p_values]


#: the corrections by their names
CORRECTIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    "holm": holm,
    "bh": benjamini_hochberg,
    "benjamini-hochberg": benjamini_hochberg,
    "none": uncorrected,
}


def correct(p_values: Sequence[float], correction: str) -> list[float]:
    """P-values corrected by a method of :data:`CORRECTIONS`. NaN stays, and does not count as a test.

    Raises:
        ValueError: no correction has that name.

    Example:
        >>> correct([0.01, float("nan"), 0.04], "holm")
        [0.02, nan, 0.04]
    """
    one_of("correction", correction, CORRECTIONS)
    return CORRECTIONS[correction](p_values)


def _sorted(p_values: Sequence[float], adjust: Callable[[np.ndarray], np.ndarray]) -> list[float]:
    """P-values after ``adjust``, which takes the ones that are not NaN, in ascending order."""
    p = np.asarray(p_values, dtype=np.float64)
    made = np.flatnonzero(~np.isnan(p))
    order = made[np.argsort(p[made], kind="stable")]
    corrected = np.full(len(p), np.nan)
    corrected[order] = np.minimum(1.0, adjust(p[order]))
    return corrected.tolist()
