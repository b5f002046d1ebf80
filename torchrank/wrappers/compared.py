"""Several systems on the same queries, compared from sums alone: no value of a query is kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

import torchrank.state.sums as state
from torchrank.display import Table
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.names.arguments import did_you_mean
from torchrank.names.types import Array, Target
from torchrank.ranking.ranking import Ranking
from torchrank.state.scoring import Values
from torchrank.state.sums import SIZE, Sum, estimate_table
from torchrank.state.waiting import bulk
from torchrank.statistics.comparison import Comparison, comparison_of
from torchrank.statistics.paired import TIE, PairStatistics, tukey_p
from torchrank.wrappers.suite_metric import Suite, SuiteMetric, is_plain_mean


class Pair(IntEnum):
    """Sums over the queries that both systems of a pair have scored, behind the sums of their differences d = b - a."""

    A = 0  # sum(w a)
    B = 1  # sum(w b)
    AA = 2  # sum(w^2 a^2)
    BB = 3  # sum(w^2 b^2)
    D = 4  # sum(d)
    DD = 5  # sum(d^2)
    DDD = 6  # sum(d^3)
    ABOVE = 7  # number of queries with d > 0
    BELOW = 8  # number of queries with d < 0
    UNPAIRED = 9  # number of queries that only one system has scored


#: number of sums of a pair
PAIR_SIZE = SIZE + len(Pair)


class Compared(SuiteMetric):
    r"""A suite for several systems on the same queries, and the differences between them.

    ``update`` takes the scores of each system, and one target. For each pair of systems and each metric the state has
    sums over the queries of the differences d, so the paired t test needs no values:

    .. math:: t = \bar d / se, \qquad se^2 = \frac{n}{n - 1} \frac{\sum w^2 (d - \bar d)^2}{(\sum w)^2}.

    ``compute`` returns the value of each system as ``key/name`` and the difference of each pair as ``key/b-a``.
    :meth:`comparison` returns the tests. Tests that need the values of all queries are those of
    :func:`torchrank.compare`, on tables of :class:`torchrank.PerQuery`.

    A t test holds at one number of queries, chosen before. With ``anytime=True`` intervals, p-values and verdicts hold
    at all looks together, after every batch if you like: they are those of a confidence sequence, see
    :meth:`torchrank.RankingMetric.confidence_sequence`. So an evaluation may end as soon as it is :attr:`decided`.

    Source:
        Student, The probable error of a mean, Biometrika 1908. Tukey's test of several systems: Carterette, Multiple
        testing in statistical analysis of systems-based information retrieval experiments, ACM TOIS 2012. Confidence
        sequences: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, Time-uniform central limit theory and asymptotic
        confidence sequences, Annals of Statistics 2024.

    Args:
        suite: a metric, names of metrics, or a collection. Its measures are copied; their states stay empty.
        systems: names of the systems, at least two.
        anytime: results may be looked at after every batch.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: names are repeated, or the suite has a metric that is not an arithmetic mean over queries, or weighs
            queries by the lists, as ``OPA(average="pair")``.

    Example:
        >>> import torch, torchrank as tr
        >>> generator = torch.Generator().manual_seed(0)
        >>> scores, labels = torch.rand(200, 10, generator=generator), torch.arange(200) % 10
        >>> better = scores + 0.3 * torch.nn.functional.one_hot(labels, 10)
        >>> paired = tr.Compared("mrr", ["old", "new"])
        >>> paired.update({"old": scores, "new": better}, labels)
        >>> {key: round(value.item(), 3) for key, value in paired.compute().items()}
        {'mrr/old': 0.264, 'mrr/new': 0.515, 'mrr/new-old': 0.251}
    """

    asks_for = "the scores of each system"
    #: the tests that need no values of queries, the way to others, and further lines of comparisons
    tests: tuple[str, ...] = ("t", "tukey", "anytime")
    other_tests = "for other tests keep the values with torchrank.PerQuery, and pass its tables to torchrank.compare"
    notes: tuple[str, ...] = ()
    anytime = False

    def __init__(self, suite: Suite, systems: Sequence[str], anytime: bool = False, **kwargs: Any) -> None:
        names, self.anytime = system_names(systems), anytime
        self._begin(suite, names, f"compared({','.join(names)})", len(names), kwargs)

    def _begin(self, suite: Suite, systems: list[str], definition: str, num_parts: int, kwargs: dict[str, Any]) -> None:
        """Make the state: the sums of all pairs of systems, then those of each part."""
        self.systems, user = systems, type(self).__name__
        self.pairs = list(itertools.combinations(range(len(systems)), 2))
        SuiteMetric.__init__(self, suite, definition, num_parts, **kwargs)
        for key, metric in self.metrics.items():
            if not is_plain_mean(metric):
                raise ValueError(
                    f"Expected arithmetic means over queries in {user}, got {key!r}; leave it out, or take the mean"
                )
            if metric.weighs_lists:
                raise ValueError(
                    f"Expected queries with one weight for all systems in {user}, got {key!r}, which weighs them by"
                    " their lists; take average='query', or leave it out"
                )

    @property
    def num_counters(self) -> int:
        return len(self.metrics) * len(self.pairs) * PAIR_SIZE

    # ---- add ---------------------------------------------------------------------------------------------------

    @bulk
    @with_options
    def update(
        self, preds: Mapping[str, Array | Ranking], target: Target | None = None, **options: Unpack[Options]
    ) -> None:
        """Add a batch of whole queries. ``preds`` is a dict from the name of each system to its scores.

        All other arguments are those of :meth:`torchrank.RankingMetric.update`, the same for all systems.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`; or a system is missing or unknown, or the
                systems have different numbers of queries.
        """
        batches = self._batches(preds, target, options)
        systems = self._scored(batches)
        pairs = [pair_sums(systems[a], systems[b]) for a, b in self.pairs]
        self.add(*pairs, *map(self._sums_of, systems))
        self.notice_cut(batches[0].indexes)

    def _batches(self, preds: Any, target: Any, options: Mapping[str, Any]) -> list[Batch]:
        """The batch of each system."""
        if not isinstance(preds, Mapping):
            scores = ", ".join(f"{name!r}: ..." for name in self.systems)
            raise TypeError(
                f"Expected preds to be a dict from system to scores, got {type(preds).__name__}; pass {{{scores}}}"
            )
        if preds.keys() != set(self.systems):
            raise ValueError(
                f"Expected scores of the systems {', '.join(self.systems)}, got {', '.join(map(str, preds)) or 'none'};"
                " every update needs all of them"
            )
        shapes = {name: list(x.shape) for name, x in preds.items() if isinstance(x, Tensor) and x.is_floating_point()}
        if len({tuple(shape) for shape in shapes.values()}) > 1:
            raise ValueError(
                f"Expected scores of the same candidates from all systems, got shapes {shapes}; give candidates that a"
                " system has not retrieved the score -inf"
            )
        return [Batch(preds[name], target, **options) for name in self.systems]

    def _scored(self, batches: Sequence[Batch]) -> list[Values]:
        """The values [metric, query] of each system."""
        systems = list(map(self.scored, batches))
        sizes = {name: values.num_queries for name, values in zip(self.systems, systems)}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"Expected the same queries for all systems, got different numbers of them: {sizes}")
        return systems

    # ---- results -----------------------------------------------------------------------------------------------

    def results(self, sums: Tensor) -> dict[str, Tensor]:
        shown: dict[str, Tensor] = {}
        values, pairs = [self.values_of(part) for part in self.parts(sums)], self._pairs(sums)
        names = [f"{self.systems[b]}-{self.systems[a]}" for a, b in self.pairs]
        for n, key in enumerate(self.metrics):
            shown |= {f"{key}/{name}": result[key] for name, result in zip(self.systems, values)}
            shown |= {f"{key}/{name}": state.mean(pair[n, :SIZE]) for name, pair in zip(names, pairs)}
        return shown

    def _pairs(self, sums: Tensor) -> Tensor:
        """The sums of each pair: float [pair, metric, PAIR_SIZE]."""
        size = len(self.pairs), len(self.metrics), PAIR_SIZE
        return sums[: math.prod(size)].view(size)

    def summary(self, level: float = 0.95, method: str | None = None) -> Table:
        """A table with a row for every metric and system, over the queries of all workers, see :meth:`comparison`."""
        method = method or ("anytime" if self.anytime else "auto")
        parts = [self.estimates_of(part, level, method) for part in self.parts(self.of_all_workers())]
        keys = [(key, name, estimates) for key in self.metrics for name, estimates in zip(self.systems, parts)]
        return estimate_table({f"{key}/{name}": estimates[key] for key, name, estimates in keys}, level, method=method)

    @property
    def decided(self) -> bool:
        """Whether every pair has a verdict on every metric, see :attr:`torchrank.Comparison.decided`.

        Like :meth:`compute` it waits for all workers, which get the same answer. ``comparison(margin=0.01).decided``
        ends with equivalence, too.

        Example:
            >>> import torch, torchrank as tr
            >>> generator = torch.Generator().manual_seed(0)
            >>> paired = tr.Compared("mrr", ["old", "new"], anytime=True)
            >>> for batch in range(100):
            ...     labels = torch.arange(20) % 10
            ...     old, noise = torch.rand(2, 20, 10, generator=generator)
            ...     new = old + 0.5 * noise + 0.1 * torch.nn.functional.one_hot(labels, 10)
            ...     paired.update({"old": old, "new": new}, labels)
            ...     if paired.decided:
            ...         break
            >>> paired.num_queries, paired.comparison().table["winner"]
            (100, ['new'])
        """
        return self.comparison().decided

    def comparison(
        self,
        baseline: str | None = None,
        *,
        test: Literal["t", "tukey", "anytime"] | None = None,
        correction: str | None = None,
        family: str = "measure",
        alpha: float = 0.05,
        level: float | None = None,
        margin: float | Mapping[str, float] | None = None,
        power: float = 0.8,
    ) -> Comparison:
        """The comparison of all pairs, or of each system with a baseline, over the queries of all workers.

        Arguments are those of :func:`torchrank.compare`. ``test`` is "t", the paired t test; "anytime", which holds at
        all looks together; or "tukey", which needs systems that have scored the same queries, and scipy. None =
        "anytime" if the metric was made with ``anytime=True``, else "t". Like :meth:`compute` it waits for all workers.

        Raises:
            ValueError: an argument has an unknown value, a test needs the values of all queries, or a worker has met
                bad values.
        """
        test = test or ("anytime" if self.anytime else "t")
        if not self.pairs:
            raise ValueError("Expected two or more systems to compare, got one; pass systems= and a dict of scores")
        if test not in self.tests:
            raise ValueError(
                f"Expected test to be {' or '.join(map(repr, self.tests))} in {type(self).__name__}, which keeps sums"
                f" only, got {test!r}; {self.other_tests}"
            )
        if baseline is not None and baseline not in self.systems:
            hint = did_you_mean(baseline, self.systems)
            raise ValueError(f"Expected baseline to be one of {', '.join(self.systems)}, got {baseline!r}{hint}")
        if test == "tukey" and correction not in (None, "none"):
            raise ValueError(f"Expected no correction with test='tukey', whose p covers all pairs, got {correction!r}")
        sums = self.of_all_workers().to("cpu", torch.float64)
        rows: list[PairStatistics] = []
        p_values: list[float] = []
        turned = [self.systems[b] == baseline for _, b in self.pairs]
        for n in range(len(self.metrics)):
            statistics = [self._statistics(sums, number, n, turn) for number, turn in enumerate(turned)]
            p = _tukey(statistics, len(self.systems)) if test == "tukey" else [pair.p for pair in statistics]
            for pair, p_value in zip(statistics, p):
                if baseline in (None, pair.a):
                    rows.append(pair)
                    p_values.append(p_value)
        if test == "anytime":
            rows = [pair.anytime() for pair in rows]
            p_values = [pair.p for pair in rows]
        correction = correction or ("none" if test == "tukey" else "holm")
        options: dict[str, Any] = {"family": family, "alpha": alpha, "level": level, "margin": margin, "power": power}
        options |= {"test": test, "correction": correction, "baseline": baseline, "notes": self.notes}
        return comparison_of(rows, p_values, **options)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot the differences of :meth:`comparison` with their intervals; or results, as :class:`torchrank.Sliced`.

        Args:
            val: a result of :meth:`compute` or ``forward``, or a list of results; None = the comparison of all pairs.
            ax: the axes to draw in; None = new axes.

        Returns:
            The figure and its axes.
        """
        return self.comparison().forest(ax) if val is None and self.pairs else super().plot(val, ax)

    def _statistics(self, sums: Tensor, pair: int, metric: int, turned: bool) -> PairStatistics:
        """The statistics of a pair and a metric, by their numbers, from the whole vector of sums.

        With ``turned`` those of the second system against the first.
        """
        a, b = (self.systems[n] for n in self.pairs[pair])
        key, measure = list(self.metrics.items())[metric]
        sums = self._pairs(sums)[pair, metric]
        more = {kind: float(sums[SIZE + kind]) for kind in Pair}
        if turned:
            a, b = b, a
            swapped = {Pair.A: Pair.B, Pair.AA: Pair.BB, Pair.ABOVE: Pair.BELOW}
            more |= {kind: more[other] for pair in swapped.items() for kind, other in (pair, pair[::-1])}
            more |= {kind: -more[kind] for kind in (Pair.D, Pair.DDD)}
        n, weight = int(sums[Sum.QUERIES]), float(sums[Sum.W])
        mean_a = more[Pair.A] / weight if weight > 0 else math.nan
        # The mean of the differences is exact where the difference of the means is rounded.
        mean_b = mean_a + float(state.mean(sums[:SIZE])) * (-1 if turned else 1)
        error = float(state.standard_error(sums[:SIZE], torch.tensor(float(n), device="cpu"))) if n > 1 else math.nan
        sd, skewness = math.nan, math.nan
        if n > 1:
            mean = more[Pair.D] / n
            second = max(0.0, more[Pair.DD] / n - mean**2)
            sd = math.sqrt(second * n / (n - 1))
            third = more[Pair.DDD] / n - 3 * mean * more[Pair.DD] / n + 2 * mean**3
            skewness = third / second**1.5 if second > 0 else math.nan
        relative = math.nan
        if n > 1 and mean_a:
            # sum(w^2 (b - r a)^2) from sum(w^2 d^2) = AA + BB - 2 AB
            ratio, dd = mean_b / mean_a, float(sums[Sum.SQUARES])
            ab = (more[Pair.AA] + more[Pair.BB] - dd) / 2
            square = more[Pair.BB] - 2 * ratio * ab + ratio**2 * more[Pair.AA]
            relative = math.sqrt(max(0.0, square) * n / (n - 1)) / weight / abs(mean_a)
        above, below = int(more[Pair.ABOVE]), int(more[Pair.BELOW])
        higher = measure.higher_is_better is not False
        wins, losses = (above, below) if higher else (below, above)
        further: dict[str, Any] = {"wins": wins, "ties": n - above - below, "losses": losses, "skewness": skewness}
        further |= {"unpaired": int(more[Pair.UNPAIRED]), "effective": float(state.effective_size(sums[:SIZE]))}
        further |= {"higher_is_better": higher, "relative_standard_error": relative}
        return PairStatistics(key, a, b, n, mean_a, mean_b, error, float(max(0, n - 1)), sd, **further)


def system_names(systems: Sequence[str]) -> list[str]:
    """The names of systems, checked."""
    names = [] if isinstance(systems, str) else [str(name) for name in systems]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"Expected the names of two or more systems, each once, got {systems!r}")
    return names


def _tukey(pairs: Sequence[PairStatistics], systems: int) -> list[float]:
    """P-values of Tukey's two-way test from the variances of the differences of all pairs.

    The residual mean square is the mean over pairs of half the variance of their differences.
    """
    numbers = {pair.n for pair in pairs}
    if len(numbers) > 1 or any(pair.unpaired for pair in pairs):
        raise ValueError(
            f"Expected systems that have scored the same queries for test='tukey', got pairs with {sorted(numbers)}"
            " queries; use test='t'"
        )
    (n,) = numbers
    error = math.sqrt(sum(pair.standard_error**2 for pair in pairs) / (systems * (systems - 1))) if n > 1 else math.nan
    if not error > 0:
        return [pair.p for pair in pairs]
    return tukey_p(np.array([pair.difference for pair in pairs]), error, systems, n).tolist()


def pair_sums(first: Values, second: Values) -> Tensor:
    """The sums [metric, PAIR_SIZE] of one pair, from the values [metric, query] of its systems."""
    scored = [~x.values.isnan() & (x.final_weights > 0) for x in (first, second)]
    both = scored[0] & scored[1]
    w = torch.where(both, first.final_weights, 0.0)
    a, b = (torch.where(both, x.values, 0.0) for x in (first, second))
    d = b - a
    count = both.sum(1).to(w.dtype)
    none = torch.zeros((len(a), len(state.Problem)), dtype=w.dtype, device=w.device)
    differs = d.abs() > TIE * torch.maximum(a.abs(), b.abs())
    # in the order of Pair
    columns = [w * a, w * b, (w * a) ** 2, (w * b) ** 2, d, d**2, d**3]
    columns += [x.to(w.dtype) for x in (differs & (d > 0), differs & (d < 0), scored[0] != scored[1])]
    further = torch.stack([x.sum(1) for x in columns], dim=1)
    return torch.cat([state.summed(d, w, count, torch.zeros_like(count), none), further], dim=1)
