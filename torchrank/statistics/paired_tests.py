"""Tests of two systems, or of several, on the same queries, and corrections of p-values that are read together.

A test of :data:`PAIR_TESTS` returns the p-value of one pair from the differences of its queries. A test of
:data:`FAMILY_TESTS` returns the p-values of all pairs of systems at once, already valid for all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchrank.names.arguments import did_you_mean, imported, integer, one_of
from torchrank.statistics.pair_statistics import paired_statistics


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


Array = np.ndarray

# Up to so many differences other than 0, all combinations of signs are enumerated.
_EXACT = 14
# Random numbers that are drawn at a time: 32 MB.
_CHUNK = 4_000_000


@dataclass(frozen=True)
class Drawing:
    """Settings of tests: number of random ``replicates``, their ``seed``, and the ``zeros`` policy of Wilcoxon's test.

    The same seed gives the same p-value on every run.

    Example:
        >>> paired_p(np.array([0.1, 0.3, -0.1, 0.2]), "randomization", Drawing(seed=1))
        0.375
    """

    replicates: int = 10_000
    seed: int = 0
    zeros: str = "pratt"

    def __post_init__(self) -> None:
        integer("replicates", self.replicates, least=1, or_none=False)
        one_of("zeros", self.zeros, ("pratt", "zsplit"))

    def chunks(self, width: int) -> Iterator[tuple[np.random.Generator, int]]:
        """The generator, and the number of replicates that are drawn at a time if each has ``width`` numbers."""
        generator = np.random.default_rng(self.seed)
        most = max(1, _CHUNK // width)
        for start in range(0, self.replicates, most):
            yield generator, min(most, self.replicates - start)

    def p(self, extreme: Any) -> Any:
        """The p-value of so many ``extreme`` replicates: the observed order is one of them, so it is never 0."""
        return (1 + extreme) / (1 + self.replicates)


def paired_p(differences: Array, test: str, drawing: Drawing = Drawing()) -> float:
    """Two-sided p-value of one pair.

    Args:
        differences: float64 [query], differences of two systems, without NaN; ties are exactly 0.
        test: name in :data:`PAIR_TESTS`.
        drawing: settings of the test.

    Returns:
        A p-value; 1 if all differences are 0, NaN for fewer than two.

    Raises:
        ValueError: no test of pairs has that name.
        ImportError: the test needs scipy, which is not installed.

    Example:
        >>> round(paired_p(np.array([0.1, 0.3, -0.1, 0.2]), "t"), 4)
        0.2394
    """
    if test not in PAIR_TESTS:
        raise ValueError(unknown_test(test, PAIR_TESTS))
    if len(differences) < 2:
        return math.nan
    return PAIR_TESTS[test](differences, drawing) if differences.any() else 1.0


def family_p(values: Array, test: str, drawing: Drawing = Drawing()) -> Array:
    """P-values of all pairs of systems, valid together.

    Args:
        values: float64 [query, system], without NaN.
        test: name in :data:`FAMILY_TESTS`.
        drawing: settings of the test.

    Returns:
        float64 [system, system], symmetric; 1 for equal values, NaN for fewer than two queries.

    Raises:
        ValueError: no test of families has that name.
        ImportError: the test needs scipy, which is not installed.

    Example:
        >>> values = np.array([[0.1, 0.2, 0.6], [0.3, 0.3, 0.9], [0.2, 0.4, 0.5]])
        >>> family_p(values, "randomized-tukey", Drawing(replicates=99)).shape
        (3, 3)
    """
    if test not in FAMILY_TESTS:
        raise ValueError(unknown_test(test, FAMILY_TESTS))
    if len(values) < 2:
        return np.full((values.shape[1], values.shape[1]), np.nan)
    p = FAMILY_TESTS[test](values, drawing)
    p[(values[:, :, None] == values[:, None, :]).all(axis=0)] = 1.0
    return p


def unknown_test(test: str, known: Any) -> str:
    """The message for a test that is not among the known ones."""
    hint = "; it is called 'randomization'" if str(test).startswith("perm") else did_you_mean(test, known)
    return f"Expected test to be one of {', '.join(known)}, got {test!r}{hint}"


def _randomization(differences: Array, drawing: Drawing) -> float:
    """Sign flips: Fisher's randomization test of "the labels of the systems could be swapped on every query".

    Source:
        Smucker, Allan and Carterette, A comparison of statistical significance tests for information retrieval
        evaluation, CIKM 2007.
    """
    differences = differences[differences != 0]  # their signs change no sum
    n = len(differences)
    # sums that are equal in exact arithmetic differ by rounding
    least = abs(differences.sum()) - 1e-10 * np.abs(differences).sum()
    if n <= _EXACT:
        signs = 1 - 2 * (np.right_shift.outer(np.arange(2**n), np.arange(n)) & 1)
        return float((np.abs(signs @ differences) >= least).mean())
    extreme = 0
    for generator, count in drawing.chunks(n):
        bits = np.frombuffer(generator.bytes(count * -(-n // 8)), dtype=np.uint8).reshape(count, -1)
        negative = np.unpackbits(bits, axis=1, count=n)
        sums = differences.sum() - 2 * (negative.astype(np.float64) @ differences)
        extreme += int((np.abs(sums) >= least).sum())
    return float(drawing.p(extreme))


def _wilcoxon(differences: Array, drawing: Drawing) -> float:
    """Wilcoxon's signed-rank test of "the differences are symmetric about 0", which is not equality of means.

    Zeros are ranked, and then dropped ("pratt") or split between the signs ("zsplit"). They are never dropped first:
    950 zeros among 1,000 differences would not count as evidence of equality.

    Source:
        Pratt, Remarks on zeros and ties in the Wilcoxon signed rank procedures, JASA 1959.
    """
    return float(_scipy().wilcoxon(differences, zero_method=drawing.zeros).pvalue)


def _sign(differences: Array, drawing: Drawing) -> float:
    """Sign test of "wins and losses are equally likely", exact by the binomial distribution; ties are dropped."""
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    return float(_scipy().binomtest(wins, wins + losses).pvalue)


def _bootstrap(differences: Array, drawing: Drawing) -> float:
    """Bootstrap test of equal means: t statistics of resampled queries, whose mean was moved to 0.

    Source:
        Sakai, Evaluating evaluation metrics based on the bootstrap, SIGIR 2006.
    """
    n = len(differences)
    observed = paired_statistics(np.zeros(n), differences)
    if not observed.standard_error > 0:
        return math.nan
    centred = differences - differences.mean()
    least = abs(observed.difference / observed.standard_error) * (1 - 1e-10)
    extreme = 0
    for generator, count in drawing.chunks(n):
        drawn = centred[generator.integers(0, n, (count, n))]
        means, errors = np.abs(drawn.mean(axis=1)), drawn.std(axis=1, ddof=1) / math.sqrt(n)
        # one query drawn n times has no spread: an extreme value
        extreme += int((means >= least * errors).sum())
    return float(drawing.p(extreme))


def _tukey(values: Array, drawing: Drawing) -> Array:
    r"""Tukey's honest significant differences of systems, two-way: the differences between queries are removed.

    .. math:: q = \frac{|m_i - m_j|}{\sqrt{MSE / n}}, \qquad
        MSE = \frac{\sum (v - m_{system} - m_{query} + m)^2}{(k - 1)(n - 1)}

    One-way tests leave the variance of the queries in the error, so that they find almost nothing.

    Source:
        Carterette, Multiple testing in statistical analysis of systems-based information retrieval experiments, ACM
        TOIS 2012.
    """
    n, k = values.shape
    df = (k - 1) * (n - 1)
    residuals = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    error = math.sqrt((residuals**2).sum() / df / n)
    if error <= 1e-12 * np.abs(values).max():
        return np.full((k, k), np.nan)
    p = np.ones((k, k))
    upper = np.triu_indices(k, 1)
    means = values.mean(axis=0)
    p[upper] = tukey_p(means[upper[0]] - means[upper[1]], error, k, n)
    return np.minimum(p, p.T)


def tukey_p(differences: Array, error: float, systems: int, queries: int) -> Array:
    """P-values of differences of means, float64 [pair], by the studentized range.

    Args:
        differences: float64 [pair].
        error: standard error of one mean, sqrt(MSE / queries).
        systems: number of systems.
        queries: number of queries that all systems have scored.

    Raises:
        ImportError: scipy is not installed.

    Example:
        >>> tukey_p(np.array([0.1]), error=0.03, systems=3, queries=50).round(4).tolist()
        [0.0528]
    """
    return _scipy().studentized_range.sf(np.abs(differences) / error, systems, (systems - 1) * (queries - 1))


def _randomized_tukey(values: Array, drawing: Drawing) -> Array:
    """Permutes the systems within each query, and compares a difference with the range of the permuted means.

    Source:
        Carterette, Multiple testing in statistical analysis of systems-based information retrieval experiments, ACM
        TOIS 2012.
    """
    n, k = values.shape
    means = values.mean(axis=0)
    least = np.abs(np.subtract.outer(means, means)) - 1e-10 * np.abs(values).max()
    ranges = []
    for generator, count in drawing.chunks(n * k):
        drawn = generator.permuted(np.broadcast_to(values, (count, n, k)), axis=2).mean(axis=1)
        ranges.append(drawn.max(axis=1) - drawn.min(axis=1))
    ordered = np.sort(np.concatenate(ranges))
    return drawing.p(len(ordered) - np.searchsorted(ordered, least))


def _scipy() -> Any:
    return imported("scipy.stats", "stats", "use test='t'")


#: tests of one pair, from the differences of its queries
PAIR_TESTS: dict[str, Callable[[Array, Drawing], float]] = {
    "t": lambda differences, drawing: paired_statistics(np.zeros(len(differences)), differences).p,
    "randomization": _randomization,
    "wilcoxon": _wilcoxon,
    "sign": _sign,
    "bootstrap": _bootstrap,
    "anytime": lambda differences, drawing: paired_statistics(np.zeros(len(differences)), differences).anytime().p,
}
#: tests of all pairs of systems, from the values of all
FAMILY_TESTS: dict[str, Callable[[Array, Drawing], Array]] = {"tukey": _tukey, "randomized-tukey": _randomized_tukey}
#: tests whose null hypothesis is not an equality of means, in a line for the report
OTHER_NULLS = {
    "wilcoxon": "wilcoxon tests the symmetry of the differences about 0, not the equality of the means",
    "sign": "sign tests whether wins and losses are equally likely, not the equality of the means; ties are dropped",
}
