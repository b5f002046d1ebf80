"""Several systems on the same queries, compared from sums alone; and a judge that people correct on some queries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor

import torchrank.state.sums as state
from torchrank.display import Table
from torchrank.hardware.devices import eager
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.layouts.checks import check_tensor
from torchrank.names.arguments import did_you_mean, warn
from torchrank.names.types import Array, Target
from torchrank.ranking.ranking import Ranking
from torchrank.state.scoring import Status, Values
from torchrank.state.sums import ROUNDING, SIZE, Sum, check, estimate_table
from torchrank.state.waiting import bulk
from torchrank.statistics.comparison import Comparison, comparison_of
from torchrank.statistics.intervals import t_interval, t_quantile, wilson
from torchrank.statistics.paired import TIE, PairStatistics, tukey_p
from torchrank.wrappers.per_query import QueryTable
from torchrank.wrappers.suite_metric import Scores, Suite, SuiteMetric, is_plain_mean, members_of, names_of


class Pair(IntEnum):
    """Sums over the queries that both systems of a pair have scored, after the sums of their differences d = b - a."""

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
    def update(self, preds: Mapping[str, Scores], target: Target | None = None, **options: Unpack[Options]) -> None:
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
        known: dict[Any, Any] = {}  # of the target, which is the same for all systems
        systems = [self._values(batch, known) for batch in batches]
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

    @eager
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

    @eager
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
        options: dict[str, Any] = {"family": family, "alpha": alpha, "level": level, "margin": margin, "power": power}
        options["notes"] = self.notes
        sums = self.of_all_workers().to("cpu", torch.float64)

        def of_pair(metric: int, pair: int, turned: bool) -> PairStatistics:
            return self._statistics(sums, pair, metric, turned)

        return comparison_of_pairs(of_pair, len(self.metrics), self.systems, baseline, test, correction, **options)

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
        higher = measure.higher_is_better is not False
        return statistics_of(self._pairs(sums)[pair, metric], key, (a, b), higher, turned)


def comparison_of_pairs(
    of_pair: Callable[[int, int, bool], PairStatistics],
    measures: int,
    systems: Sequence[str],
    baseline: str | None,
    test: str,
    correction: str | None,
    **options: Any,
) -> Comparison:
    """The comparison of all pairs of systems, or of each one with a baseline, by a test that needs no values.

    Args:
        of_pair: the statistics of a pair from the number of the measure, that of the pair in the order of
            itertools.combinations, and whether the second system is ``a``.
        measures: number of measures.
        systems: names of the systems.
        baseline: as :meth:`Compared.comparison`.
        test: as there.
        correction: as there.
        options: the other arguments of there, and notes and warnings of the comparison.

    Raises:
        ValueError: an argument has an unknown value, or systems have scored different queries for Tukey's test.
    """
    if baseline is not None and baseline not in systems:
        hint = did_you_mean(baseline, systems)
        raise ValueError(f"Expected baseline to be one of {', '.join(systems)}, got {baseline!r}{hint}")
    if test == "tukey" and correction not in (None, "none"):
        raise ValueError(f"Expected no correction with test='tukey', whose p covers all pairs, got {correction!r}")
    rows: list[tuple[PairStatistics, float]] = []
    turned = [b == baseline for _, b in itertools.combinations(systems, 2)]
    for measure in range(measures):
        statistics = [of_pair(measure, pair, turn) for pair, turn in enumerate(turned)]
        p = _tukey(statistics, len(systems)) if test == "tukey" else [pair.p for pair in statistics]
        rows += [(pair, p_value) for pair, p_value in zip(statistics, p) if baseline in (None, pair.a)]
    if test == "anytime":
        rows = [(pair, pair.p) for pair in (pair.anytime() for pair, _ in rows)]
    options |= {"test": test, "baseline": baseline, "correction": correction or ("none" if test == "tukey" else "holm")}
    return comparison_of([pair for pair, _ in rows], [p_value for _, p_value in rows], **options)


def statistics_of(
    sums: Tensor, measure: str, names: tuple[str, str], higher_is_better: bool, turned: bool
) -> PairStatistics:
    """The statistics of a pair of systems from its sums, float64 [PAIR_SIZE] on the CPU.

    With ``turned`` those of the second system against the first.
    """
    a, b = names
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
    wins, losses = (above, below) if higher_is_better else (below, above)
    further: dict[str, Any] = {"wins": wins, "ties": n - above - below, "losses": losses, "skewness": skewness}
    further |= {"unpaired": int(more[Pair.UNPAIRED]), "effective": float(state.effective_size(sums[:SIZE]))}
    further |= {"higher_is_better": higher_is_better, "relative_standard_error": relative}
    return PairStatistics(measure, a, b, n, mean_a, mean_b, error, float(max(0, n - 1)), sd, **further)


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


#: Queries on which the judge is taken to know nothing, beside those of people: a perfect agreement on few queries can
#: be luck. Chosen by the simulation of `tests.support.simulated_judges`, and as many as Agresti and Coull (1998) add.
DOUBT = 4


class Kind(IntEnum):
    """The values whose sums a stratum has."""

    ALL = 0  # by the judge, of all queries
    JUDGE = 1  # by the judge, of the queries that people have judged, too
    HUMAN = 2  # by people
    GAP = 3  # by people minus by the judge


class Rectification(NamedTuple):
    """Means of a judge that people correct. Tensors are [...], and with a last dimension of strata where it says so."""

    value: Tensor
    #: of the value, and its degrees of freedom
    variance: Tensor
    df: Tensor
    #: the weight of the judge, and its correlation with people as far as it is trusted
    factor: Tensor
    correlation: Tensor
    #: number of human queries, drawn at random, that would be as sure without the judge
    effective: Tensor
    #: the mean of the judge alone
    judge: Tensor
    #: [..., kind, stratum]: number of queries
    number: Tensor
    #: [..., stratum]: the share of the stratum in all queries
    share: Tensor
    #: [..., stratum]: effective number of queries, and of those that people have judged
    queries: Tensor
    human: Tensor
    #: [..., stratum]: the variance of the values of people, and of the part that the judge does not explain
    spread: Tensor
    rest: Tensor
    #: whether all values of people are 0 or 1
    zero_or_one: Tensor
    #: the part of the variance that comes from the numbers of queries in the strata
    between: Tensor

    def variance_with(self, human: Tensor) -> Tensor:
        """The variance of the value if people judge ``human`` [..., stratum] queries."""
        now, then = (torch.where(self.share > 0, n, 0.0).sum(-1) for n in (self.human, human))
        trusted = self.correlation * ((now + DOUBT) / now * then / (then + DOUBT))
        rest = self.rest * ((1 - trusted**2) / (1 - self.correlation**2)).unsqueeze(-1)
        parts = self.share**2 * ((1 / human - 1 / self.queries) * rest + self.spread / self.queries)
        return torch.where(self.share > 0, parts, 0.0).sum(-1) + self.between


def rectify(sums: Tensor, number: Tensor) -> Rectification:
    """The means by people, with the judge as a control variate; formulas in :class:`Rectified`.

    Args:
        sums: float [subject, kind, stratum, SIZE].
        number: [subject, kind, stratum]: number of queries with a value.
    """
    weight = sums[:, Kind.ALL, :, Sum.W]
    share = weight / weight.sum(1, keepdim=True)
    everyone, judge, human, _ = torch.where(share.unsqueeze(1) > 0, state.mean(sums), 0.0).unbind(1)
    queries, _, people, _ = state.effective_size(sums).unbind(1)
    error = state.standard_error(sums, number)
    error = torch.where(error <= ROUNDING * state.mean(sums).abs(), 0.0, error)  # of equal values
    of_all, of_judge, of_human, of_gap = error.square().unbind(1)
    covariance = (of_human + of_judge - of_gap) / 2
    # A sample without the rare values of the judge would make its weight too large.
    of_judge = torch.maximum(of_judge, of_all * queries / people)
    # The judge can add nothing about queries that people have judged.
    left = share**2 * (1 - people / queries).clamp_min(0)
    y, f, c = (torch.where(share > 0, left * x, 0.0).sum(1) for x in (of_human, of_judge, covariance))
    total = torch.where(share > 0, people, 0.0).sum(1)
    useful = (y > 0) & (f > 0)
    correlation = (c / (y * f).sqrt()).clamp(-1, 1) * total / (total + DOUBT)
    correlation = torch.where(useful, correlation, 0.0)
    factor = torch.where(useful, correlation * (y / f).sqrt(), 0.0)

    means = human + factor.unsqueeze(1) * (everyone - judge)
    value = (share * means).sum(1)
    apart = (share * (means - value.unsqueeze(1)) ** 2).sum(1)
    spread, by = people * of_human, factor.unsqueeze(1)
    rest = people * (of_human - 2 * by * covariance + by**2 * of_judge)
    open_now = torch.where(share > 0, left * rest / people, 0.0).sum(1)
    rest = rest * ((1 - correlation**2) * y / open_now).nan_to_num().unsqueeze(1)
    between = apart * sums[:, Kind.ALL, :, Sum.W2].sum(1) / weight.sum(1) ** 2
    squares, firsts = (sums[:, Kind.HUMAN, :, at].sum(1) for at in (Sum.SQUARES, Sum.SQUARES + 3))
    zero_or_one, judged = (squares - firsts).abs() <= 1e-12 * firsts.abs(), (share * everyone).sum(1)
    found = Rectification(value, value, value, factor, correlation, value, judged, number, share, queries, people,
                          spread, rest, zero_or_one, between)  # fmt: skip
    variance = found.variance_with(people)
    whole = torch.where(share > 0, share * spread, 0.0).sum(1) + apart
    parts = torch.where(share > 0, share**2 * of_human, 0.0)
    df = parts.sum(1) ** 2 / (parts**2 / (people - 1)).nansum(1)
    effective = torch.where(variance > 0, whole / variance, total)
    return found._replace(variance=variance, df=df, effective=effective)


class Rectified(Compared):
    r"""A suite under the grades of a judge, as a language model, corrected by the grades of people for some queries.

    ``update`` takes the grades of the judge for all queries as ``target``, and those of people as ``human``. Only the
    values of a query are compared, so people judge whole queries: **a random sample of them**, or of each stratum. A
    judge that is right narrows the interval. A judge that is wrong leaves the mean of the sample as it is: the weight
    of the judge follows from the sample, and may be 0 or negative.

    With the values y by people and f by the judge, of n sampled and of all N queries:

    .. math:: \hat\theta = \bar y_n + \lambda (\bar f_N - \bar f_n), \qquad
        \lambda = \rho \sqrt{\frac{s_y^2}{s_f^2}}, \qquad
        se^2 = \frac{s_y^2}{n} \left(1 - \Big(1 - \frac{n}{N}\Big) \rho^2\right)

    where :math:`\rho = r n / (n + 4)` has the correlation r of the sample: four queries of doubt, in which the judge
    would know nothing, because few queries can agree by luck. :math:`s_f^2` is the variance of the sample or of all
    queries, the larger one. Over strata with shares W, means and variances are :math:`\sum W_h \bar y_h` and
    :math:`\sum W_h^2 se_h^2`, with one :math:`\lambda` for all, plus the variance of the shares. The interval is
    Student's t, or Wilson's with the effective number of queries if all values of people are 0 or 1.

    ``compute`` returns the corrected value as ``key``; with several systems ``key/name``, and the difference of each
    pair as ``key/b-a``, which is corrected as a difference: the judge often knows it better than the values. A query
    that only one of both has scored (``empty_target_action="skip"``) is not in the sample.

    Source:
        Angelopoulos, Duchi and Zrnic, PPI++: Efficient prediction-powered inference, 2023. For measures of rankings:
        Oosterhuis et al., Reliable confidence intervals for information retrieval evaluation using generative AI, KDD
        2024. The regression estimator: Cochran, Sampling techniques, 1977, sections 7 and 12. Four queries of doubt,
        as in Agresti and Coull, Approximate is better than exact for interval estimation of binomial proportions, The
        American Statistician 1998.

    Args:
        suite: a metric, names of metrics, or a collection. Its measures are copied; their states stay empty.
        systems: names of the systems, at least two, if ``update`` takes a dict of scores; None = one system.
        strata: names of strata, or their number, which people sample at different rates; None = one.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: names are repeated, or the suite has a metric that is not an arithmetic mean over queries, or weighs
            queries by the lists.

    Example:
        >>> import torch, torchrank as tr
        >>> generator = torch.Generator().manual_seed(0)
        >>> scores = torch.rand(2000, 10, generator=generator)
        >>> people = (torch.rand(2000, 10, generator=generator) < 0.1 + 0.4 * scores).long()
        >>> model = torch.where(torch.rand(2000, 10, generator=generator) < 0.05, 1, people)      # 5 % too kind
        >>> judged = torch.rand(2000, generator=generator) < 0.05                                 # 105 queries
        >>> rectified = tr.Rectified("ndcg@10")
        >>> rectified.update(scores, model, human=people, judged=judged)
        >>> rectified.summary()
        measure   value  standard error     low    high  queries  human  effective   judge  weight
        ndcg@10  0.7183          0.0095  0.6995  0.7371     2000    105      565.6  0.7303    0.96
        low and high: 95 % confidence interval; human: queries that people have judged
        >>> tr.NDCG(top_k=10)(scores, people)                                                     # of all queries
        tensor(0.7100)
    """

    asks_for = "the grades of people"
    tests = ("t",)
    other_tests = "take test='t'"
    notes = (
        "the difference is estimated directly, and mean_b = mean_a + difference; wins and losses use only the human"
        " judgments",
    )

    def __init__(
        self,
        suite: Suite,
        systems: Sequence[str] | None = None,
        strata: Sequence[str] | int | None = None,
        **kwargs: Any,
    ) -> None:
        names = [""] if systems is None else system_names(systems)
        self.strata = [""] if strata is None else names_of(strata)
        subjects = len(names) + len(names) * (len(names) - 1) // 2
        definition = f"rectified({','.join(names)};{','.join(self.strata)})"
        self._begin(suite, names, definition, subjects * len(Kind) * len(self.strata), kwargs)

    @property
    def num_counters(self) -> int:
        return super().num_counters + 1  # queries in no stratum, or in several

    @bulk
    @with_options
    def update(
        self,
        preds: Scores | Mapping[str, Scores],
        target: Target | None = None,
        *,
        human: Target | Ranking | Mapping[str, Ranking] | None = None,
        judged: Array | None = None,
        strata: Array | Sequence[str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`, and three more.

        ``preds`` are scores, with several systems a dict from the name of each to its scores; ``target`` has the grades
        of the judge. ``human`` has the grades of people for the same queries, in any layout of ``target``; for rankings
        it is a ranking; None = people have judged no query of this batch. ``judged`` is bool [query], the queries that
        people have judged; what ``human`` has for others is ignored; None = all, without those of label -100.
        ``strata`` is the stratum of each query, if there are several: its name, or its position, int [query].

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`; or ``judged`` or ``strata`` have another
                dtype or shape. A query without a stratum is counted, and raises in :meth:`compute`.
        """
        if judged is not None and human is None:
            raise ValueError("Expected the grades of people with judged, got none; pass human=, or drop judged")
        batches = self._batches(preds, target, options)
        judge = self._scored(batches)
        if human is None:
            people = judge
            judged = torch.zeros(judge[0].num_queries, dtype=torch.bool, device=judge[0].values.device)
        else:
            of_people, grades = (human, None) if isinstance(human, Ranking | Mapping) else (preds, human)
            try:
                people = self._scored(self._batches(of_people, grades, options))
            except (TypeError, ValueError) as error:
                error.add_note("target is human= here, the grades of people: one row for each query of preds")
                raise
        self.add_values(judge, people, judged, strata)
        self.notice_cut(batches[0].indexes)

    def _batches(self, preds: Any, target: Any, options: Mapping[str, Any]) -> list[Batch]:
        return super()._batches({"": preds} if self.systems == [""] else preds, target, options)

    def add_values(
        self,
        judge: Sequence[Values],
        people: Sequence[Values],
        judged: Array | None,
        strata: Array | Sequence[str] | None,
    ) -> None:
        """Add the values [metric, query] of each system by the judge, and by people: NaN where they have judged none.

        The other arguments are those of :meth:`update`.
        """
        queries, device = judge[0].num_queries, judge[0].values.device
        if judged is not None:
            judged = check_tensor(judged, "judged", "a bool tensor [query]").to(device)
            if judged.dtype != torch.bool or judged.shape != (queries,):
                got = f"{judged.dtype} of shape {list(judged.shape)}; mark the queries of people"
                raise ValueError(f"Expected judged to be bool of shape [{queries}], one per query, got {got}")
            people = [replace(one, values=torch.where(judged, one.values, math.nan)) for one in people]
        if {one.num_queries for one in people} != {queries}:
            got = f"{people[0].num_queries}; give every query a row, and mark those that count with judged="
            raise ValueError(f"Expected human to have the {queries} queries of preds, got {got}")
        strata = torch.zeros(queries, dtype=torch.int64, device=device) if self.strata == [""] else strata
        inside, _, unknown = members_of(strata, self.strata, "strata")
        inside, self._unknown = inside.to(device), self._unknown if unknown is None else unknown
        if len(inside) != queries:
            raise ValueError(f"Expected strata of {queries} queries, as in preds, got {len(inside)}")
        outside = (inside.sum(1) != 1).sum().view(1).to(judge[0].values)
        kinds = [_kinds(one, other) for one, other in zip(judge, people)]
        pairs = [pair_sums(kinds[a][Kind.HUMAN], kinds[b][Kind.HUMAN]) for a, b in self.pairs]
        kinds += [_kinds(*(_difference(x[a], x[b]) for x in (judge, people))) for a, b in self.pairs]
        self.add(*pairs, outside, *(self._sums_of(one, inside.unbind(1)) for found in kinds for one in found))

    # ---- results -----------------------------------------------------------------------------------------------

    @property
    @eager
    def num_queries(self) -> int:
        """Number of queries of this worker, empty ones included; within ``sync_context()`` of all workers."""
        return int(self.parts(state.read(self.sums))[: len(self.strata), Sum.QUERIES].sum())

    def check(self, sums: Tensor) -> None:
        if (outside := int(sums[self.num_counters - 1])) > 0:
            names = ", ".join(self.strata)
            got = f"{outside} in none or in several{self.example}; pass strata=, names or positions"
            raise ValueError(f"Expected each query in one of the strata {names}, got {got}")

    @property
    def subjects(self) -> list[str]:
        """The endings of keys: systems, then pairs of them."""
        if self.systems == [""]:
            return [""]
        pairs = [f"{self.systems[b]}-{self.systems[a]}" for a, b in self.pairs]
        return [f"/{name}" for name in (*self.systems, *pairs)]

    def _rectified(self, sums: Tensor) -> dict[str, Rectification]:
        """The results [subject] of each metric by its key."""
        parts = self.by_metric(self.parts(sums).unflatten(0, (len(self.subjects), len(Kind), len(self.strata))))
        return {key: rectify(part, self.metrics[key].scored_of(part)) for key, part in parts.items()}

    def results(self, sums: Tensor) -> dict[str, Tensor]:
        found = self._rectified(sums).items()
        return {f"{key}{name}": value for key, one in found for name, value in zip(self.subjects, one.value)}

    def _statistics(self, sums: Tensor, pair: int, metric: int, turned: bool) -> PairStatistics:
        # Wins and losses are those of people.
        found, (a, b) = super()._statistics(sums, pair, metric, turned), self.pairs[pair]
        one, at = list(self._rectified(sums).values())[metric], len(self.systems) + pair
        mean, value, error, df = (
            float(x) for x in (one.value[b if turned else a], one.value[at], one.variance[at].sqrt(), one.df[at])
        )
        found = replace(found, mean_a=mean, mean_b=mean + (-value if turned else value))
        return replace(found, standard_error=error, df=df, relative_standard_error=math.nan)

    @eager
    def summary(self, level: float = 0.95, method: str | None = None) -> Table:
        """A table with a row for every metric, or metric and system, over the queries of all workers.

        ==========  ==================================================================================
        value       the corrected mean, with its standard error and interval
        queries     number of queries with a value by the judge
        human       number of those that people have judged, too
        effective   number of queries that people would have to judge to be as sure without the judge
        judge       the mean by the judge alone
        weight      the weight of the judge: 0 if the judge knows nothing
        ==========  ==================================================================================

        Args:
            level: the probability that an interval contains the expected value.
            method: "t", or "auto" = None: Wilson's interval if all values of people are 0 or 1.
        """
        check(level, method or "auto")
        rows = []
        for key, name, one in self._by_subject(len(self.systems)):
            value, error, effective = float(one.value), float(one.variance.sqrt()), float(one.effective)
            low, high = t_interval(value, error, float(one.df), level)
            if method != "t" and one.zero_or_one and self.metrics[key].value_range == (0, 1):
                low, high = wilson(min(max(value, 0.0), 1.0), effective, level)
            row = {"measure": f"{key}{name}", "value": value, "standard error": error, "low": low, "high": high}
            numbers = one.number.sum(1).int().tolist()
            row |= {"queries": numbers[Kind.ALL], "human": numbers[Kind.HUMAN], "effective": effective}
            rows.append(row | {"judge": float(one.judge), "weight": float(one.factor)})
        notes = [f"low and high: {100 * level:g} % confidence interval; human: queries that people have judged"]
        return Table.of_rows(rows, {"effective": ".1f", "weight": ".2f"}, notes)

    def queries_needed(self, width: float, level: float = 0.95) -> Table:
        r"""How many queries people have to judge, in which stratum, for an interval of a width.

        With W the share of a stratum and s the standard deviation of the part of its values that the judge does not
        explain, :math:`n_h \propto W_h s_h`: the numbers for which the interval is narrowest. None has fewer queries
        than people have judged.

        Source:
            Neyman, On the two different aspects of the representative method, Journal of the Royal Statistical Society
            1934.

        Args:
            width: the width of the interval, in the unit of the measure.
            level: the level of the interval.

        Returns:
            A table with a row for every metric, system or pair, and stratum: queries, human (judged so far), needed
            and more, which are None if the width cannot be reached; and narrowest, the width if people judge all
            queries. The widths are those of Student's t.

        Raises:
            ValueError: ``width`` is not positive, ``level`` is not between 0 and 1, or people have judged fewer than
                two queries of a stratum.
        """
        check(level, "auto")
        if not (width > 0 and math.isfinite(width)):
            raise ValueError(f"Expected width to be positive, got {width}; give the width of an interval, as 0.02")
        rows: list[dict[str, Any]] = []
        for key, name, one in self._by_subject(len(self.subjects)):
            if not bool(one.variance >= 0):
                got = f"{one.number[Kind.HUMAN].int().tolist()} with values of {key}; judge some at random first"
                raise ValueError(f"Expected two or more queries of each stratum that people have judged, got {got}")
            needed, narrowest = _needed(one, width, level)
            for n, stratum in enumerate(self.strata):
                queries, human = (int(one.number[kind, n]) for kind in (Kind.ALL, Kind.HUMAN))
                row = {"measure": f"{key}{name}", **({"stratum": stratum} if stratum else {}), "queries": queries}
                more = {"needed": needed and needed[n], "more": needed and needed[n] - human}
                rows.append(row | {"human": human, **more, "narrowest": narrowest})
        notes = [
            f"for a {100 * level:g} % interval of a width of {width:g}; narrowest: the width if people judge all"
            " queries; - = cannot be reached"
        ]
        return Table.of_rows(rows, notes=notes)

    def _by_subject(self, number: int) -> Iterator[tuple[str, str, Rectification]]:
        """Key, ending and results of each metric and of the first subjects, over the queries of all workers."""
        for key, found in self._rectified(self.of_all_workers().to("cpu", torch.float64)).items():
            for at, name in enumerate(self.subjects[:number]):
                yield key, name, Rectification(*(x[at] for x in found))


def rectified_tables(
    suite: Suite, judge: Mapping[str, QueryTable], people: Mapping[str, QueryTable], strata: Mapping[Any, Any] | None
) -> Rectified:
    """The values of all queries by the judge, and of some by people, by the name of the system.

    Args:
        suite: the metrics of the tables.
        judge: a table for each system.
        people: a table for each system, of some of these queries.
        strata: the stratum of each query by its id.

    Raises:
        ValueError: people have judged no query of the judge, or the stratum of a query is missing.
    """
    ids = list(dict.fromkeys(key for one in judge.values() for key in one.ids.tolist()))
    asked, known = dict.fromkeys(key for one in people.values() for key in one.ids.tolist()), set(ids)
    if unknown := [key for key in asked if key not in known]:
        message = f"{len(unknown)} of {len(asked)} queries that people have judged, e.g. {unknown[0]!r}"
        if len(unknown) == len(asked):
            raise ValueError(f"Expected queries of the judge, got none among {message}; give both the same ids")
        way_out = "; exchange the judgments if these are the model's" * (len(asked) > len(ids))
        warn(f"Left out {message}: they have no value by the judge{way_out}")
    names = at = None
    if strata is not None:
        if missing := [key for key in ids if key not in strata]:
            raise ValueError(f"Expected a stratum for every query, got none for {missing[0]!r}; add it to strata")
        names, at = np.unique([str(strata[key]) for key in ids], return_inverse=True)
    found = Rectified(suite, list(judge) if len(judge) > 1 else None, None if names is None else names.tolist())
    values, by_people = ([_values(one, ids) for one in tables.values()] for tables in (judge, people))
    found.add_values(values, by_people, None, at)
    return found


def _values(table: QueryTable, ids: Sequence[Any]) -> Values:
    """The values [metric, query] of a table for some queries; NaN where it has none."""
    row = {key: n for n, key in enumerate(table.ids.tolist())}
    rows = [row.get(key, -1) for key in ids]  # the last row is added

    def of_queries(columns: Mapping[str, np.ndarray], other: float) -> Tensor:
        return torch.from_numpy(np.stack([np.append(columns[label], other)[rows] for label in table.columns]))

    values = of_queries(table.columns, math.nan)
    status = torch.where(values.isnan(), Status.ABSENT, Status.SCORED).to(torch.int8)
    errors = torch.zeros((len(values), len(state.Problem)), dtype=torch.int64, device="cpu")
    weights = None if table.weights is None else of_queries(table.weights, 1.0)
    return Values(values, status, errors, weights, (None,) * len(values))


def _difference(one: Values, other: Values) -> Values:
    """The differences of two systems, with the weights of the first."""
    values = other.values - one.values
    status = torch.where(values.isnan(), Status.ABSENT, one.status)
    return replace(one, values=values, status=status.to(one.status))


def _kinds(judge: Values, people: Values) -> list[Values]:
    """The values of each :class:`Kind`."""
    gap = people.values - judge.values
    inside = ~gap.isnan()
    status = torch.where(inside, judge.status, Status.ABSENT).to(judge.status)
    sampled = [torch.where(inside, values, math.nan) for values in (judge.values, people.values, gap)]
    rest = replace(judge, status=status, errors=people.errors)
    return [judge, *(replace(rest, values=values) for values in sampled)]


def _needed(found: Rectification, width: float, level: float) -> tuple[list[int] | None, float]:
    """The smallest numbers of queries of an interval of a width by Neyman's allocation, and at least those so far.

    None if the width cannot be reached; and the smallest width that can be reached.
    """
    # A stratum without queries has none of people either: its numbers are NaN.
    pull = (found.share * found.rest.clamp_min(0).sqrt()).nan_to_num()

    def allocated(factor: float) -> Tensor:
        return torch.minimum(torch.maximum(factor * pull, found.human), found.queries).nan_to_num()

    def width_of(human: Tensor) -> float:
        df = float(human.sum() - (found.share > 0).sum())
        return 2 * t_quantile((1 + level) / 2, df) * math.sqrt(float(found.variance_with(human)))

    low, high = 0.0, float(torch.where(pull > 0, found.queries / pull, 0.0).max())
    narrowest = width_of(allocated(high))
    if narrowest > width:
        return None, narrowest
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if width_of(allocated(middle)) <= width else (middle, high)
    return [math.ceil(number - 1e-9) for number in allocated(high).tolist()], narrowest
