"""Measures of a whole catalogue, estimated from ranks among a random draw of negatives.

Let P[a, x] be the probability that x of m sampled negatives are above a relevant candidate if a of all N negatives are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

import torchrank.names.arguments as arguments
import torchrank.state.sums as state
from torchrank.hardware.devices import eager, in_batch
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.layouts.checks import check_tensor
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import BinaryMetric
from torchrank.names.parameters import REQUIRED, flag, integer, one_of, parameter
from torchrank.names.parse import parse
from torchrank.names.types import Array
from torchrank.ranking.ranking import Ranking, chances_above
from torchrank.state.scoring import Values
from torchrank.state.sums import SIZE, Sum

__all__ = ["SampledRanks"]

#: methods of :meth:`SampledRanks.estimate`
METHODS = ("em", "bv")


def _uniform(value: object) -> str:
    """Check the parameter ``sampling``."""
    if value != "uniform":
        raise ValueError(
            f"Expected sampling to be 'uniform', got {value!r}: the rank among negatives drawn by popularity does not"
            " determine the rank in the catalogue; draw negatives uniformly, or rank the whole catalogue"
        )
    return "uniform"


class SampledRanks(BinaryMetric):
    r"""Ranks of relevant candidates among m sampled negatives, and estimates of measures of the whole catalogue.

    Each query has one relevant candidate and m negatives, which were drawn uniformly from N items that are not
    relevant. The state is a histogram: how often x of the m negatives are above the relevant candidate. A tie spreads x
    evenly over its interval. The histogram is a sum, so the result does not depend on batches or workers.

    :meth:`compute` returns two unbiased estimates, because both are linear in the rank: :math:`AUC = 1 - \bar x / m`
    and the mean rank :math:`1 + N \bar x / m`. No other measure in use has an unbiased estimate of bounded variance;
    see :meth:`estimate`. ``score`` returns the estimated AUC of each query, and ``standard_error`` is the standard
    error of the AUC; N times it is the standard error of the mean rank.

    Source:
        Krichene and Rendle, On sampled metrics for item recommendation, KDD 2020.

    Args:
        num_negatives: m, the number of sampled negatives of each query.
        num_items: N, the number of items from which the negatives of a query were drawn. These are the items that the
            whole catalogue would rank, without the relevant one. If N differs between queries, the AUC stays unbiased.
        replacement: whether a negative could be drawn several times for a query.
        sampling: "uniform", the only distribution of negatives that determines ranks in the catalogue.
        relevance_level: a grade at or above it is relevant; > 0.
        empty_target_action: the treatment of a query without a relevant candidate: "skip" or "error".
        kwargs: ``ties``, ``validate_args``: as :class:`RankingMetric`; and the arguments of
            :class:`torchmetrics.Metric`.

    Raises:
        ValueError: ``num_negatives`` is greater than ``num_items`` without replacement, or an argument has an unknown
            value.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.SampledRanks(num_negatives=4, num_items=20)
        >>> metric.update(torch.tensor([[0.3, 0.9, 0.2, 0.1, 0.0], [0.8, 0.5, 0.4, 0.1, 0.7]]), torch.tensor([0, 0]))
        >>> metric.compute()  # 1 of 4 and 0 of 4 negatives are above
        {'mr': tensor(3.5000), 'auroc': tensor(0.8750)}
        >>> metric.histogram
        tensor([1., 1., 0., 0., 0.], dtype=torch.float64)
        >>> metric.estimate("mr"), metric.rank_distribution().shape
        (tensor(3.5000, dtype=torch.float64), torch.Size([21]))
    """

    name = "sampledranks"
    #: a registry of its own: the result is not one number, so it is not listed among the measures
    registry: ClassVar[dict[str, type[RankingMetric]]] = {}
    takes_unjudged_for = ("irrelevant",)
    top_k: None = None

    num_negatives: int = integer(least=1)
    num_items: int = integer(least=1)
    replacement: bool = flag(default=False)
    sampling: Literal["uniform"] = parameter(default="uniform", check=_uniform)
    empty_target_action: Literal["skip", "error"] = one_of(default="skip")
    aggregation: Literal["mean"] = one_of(default="mean")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.replacement and self.num_negatives > self.num_items:
            raise ValueError(
                f"Expected num_negatives to be at most num_items={self.num_items}, got {self.num_negatives}; pass"
                " replacement=True if negatives were drawn with replacement"
            )

    @classmethod
    @functools.cache
    def definition(cls) -> dict[str, Any]:
        # Both change the values, so labels show them although they have no default.
        return {"num_negatives": REQUIRED, "num_items": REQUIRED, **super().definition()}

    # ---- a batch ---------------------------------------------------------------------------------------------------

    def need(self) -> Need:
        return Need(relevant=True)

    def check(self, preds: Any, target: Any) -> None:
        columns = preds.shape[1] if isinstance(preds, Tensor) and not preds.is_nested and preds.dim() == 2 else None
        if columns is not None and columns <= self.num_negatives:
            raise ValueError(
                f"Expected preds to have {self.num_negatives + 1} columns, a relevant candidate and its negatives, got"
                f" {columns}; pass num_negatives={columns - 1} to SampledRanks"
            )

    def measure(self, ranking: Ranking) -> Tensor:
        return 1 - (self._place(ranking, ranking.mean_rank()) - 1) / self.num_negatives

    def _place(self, ranking: Ranking, ranks: Tensor) -> Tensor:
        """The element of ``ranks`` [query, entry] of the relevant candidate: float64 [query]."""
        return torch.where(ranking.relevant(self.relevance_level), ranks, 0.0).sum(1)

    @property
    def num_extra_sums(self) -> int:
        """Number of further sums in the state."""
        return self.num_negatives + 2  # the histogram, and the number of queries that do not fit it

    def per_query(self, ranking: Ranking) -> Values:
        values = super().per_query(ranking)
        ranking = self.resolve_ties(ranking)
        first, tied = self._place(ranking, ranking.first), self._place(ranking, ranking.tied)
        level, rank = self.relevance_level, torch.arange(1, self.num_negatives + 2, device=first.device).unsqueeze(1)
        width = tied.clamp_min(1)  # 0 if not retrieved: after all negatives
        spread = ((rank >= first) & (rank < first + width)) / width
        relevant, negatives = ranking.num_relevant(level), ranking.num_candidates - ranking.hits(level, None)
        wrong = (relevant != 1) | (negatives != self.num_negatives)
        return replace(values, extra=torch.cat([spread.to(first.dtype), wrong.to(first.dtype).unsqueeze(0)]))

    # ---- the result ------------------------------------------------------------------------------------------------

    def result(self, sums: Tensor) -> Tensor:
        """Mean rank, AUC, and the weight of queries that do not fit, from sums [number]: float64 [3]."""
        histogram, wrong = sums[SIZE:-1], sums[-1:]
        x = torch.arange(self.num_negatives + 1, dtype=sums.dtype, device=sums.device)
        share = (histogram * x).sum() / histogram.sum() / self.num_negatives
        both = torch.stack([1 + self.num_items * share, 1 - share])
        return torch.cat([both.masked_fill(wrong > 0, float("nan")), wrong])

    def compute(self) -> dict[str, Tensor]:  # type: ignore[override]
        """Unbiased estimates of the mean rank and of the AUC in the whole catalogue, over all workers.

        Returns:
            ``{"mr": float32 [], "auroc": float32 []}``; NaN if no query had a relevant candidate.

        Raises:
            ValueError: a worker received bad values, or a query with another number of candidates.
        """
        mr, auroc, wrong = super().compute()
        if self._should_unsync:  # forward does not read values
            self._refuse(wrong)
        return {"mr": mr, "auroc": auroc}

    def _refuse(self, wrong: Tensor) -> None:
        if bool(wrong > 0):
            raise ValueError(
                f"Expected one relevant candidate and {self.num_negatives} negatives in each query, got others in some;"
                " pass each relevant candidate as a separate query: Ranking.from_negatives(pos, neg).each_positive(1)"
            )

    @property
    @eager
    def histogram(self) -> Tensor:
        """How often 0, 1, ..., m negatives are above the relevant candidate, by weight: float64 [m + 1].

        Of this worker; within ``metric.sync_context()`` of all workers.
        """
        return state.read(self.sums)[SIZE:-1]

    def _shares(self) -> Tensor:
        """The histogram of all workers, divided by its sum, on the CPU. Raises for bad values."""
        sums, _ = self.of_all_workers()
        self._errors = sums[Sum.ERRORS :]
        self.raise_errors()
        self._refuse(sums[-1])
        histogram = sums[SIZE:-1].to("cpu", torch.float64)
        return histogram / histogram.sum()

    @eager
    def estimate(
        self,
        metric: str | RankingMetric,
        method: Literal["em", "bv"] = "em",
        *,
        gamma: float = 0.01,
        prior: Array | None = None,
    ) -> Tensor:
        r"""Estimate the mean of a measure over the queries, in the whole catalogue. Call it on all workers.

        A measure that is linear in the rank has an unbiased estimate, which is returned by any method.

        Any other measure has estimates with a bias that depends on the ranks. The table has HitRate@10 for N = 10,000
        and four distributions of the rank r: estimates from 50,000 queries, mean and standard deviation over draws.
        With m = 100 a small value came out five times too large, and the spread is far above that of a full ranking.
        So a Python warning is given, once for each method, m and N, if m < N / 10.

        ====================== ===== ======= ================ =============== ================ ===============
        ranks                  exact sampled "em", m = 100    "bv", m = 100   "em", m = 1,000  "bv", m = 1,000
        ====================== ===== ======= ================ =============== ================ ===============
        p(r) ~ 1 / (r + 29)    .0501 .6005   .0474 +- .0054   .0415 +- .0011  .0496 +- .0036   .0502 +- .0014
        p(r) ~ 1 / r           .2992 .7591   .2831 +- .0103   .1485 +- .0014  .2996 +- .0026   .3148 +- .0007
        lognormal around 200   .0016 .9310   .0086 +- .0026   .0112 +- .0009  .0015 +- .0009   .0021 +- .0005
        20 % are 1, 80 % 5,001 .2000 .2000   .1992 +- .0018   .0810 +- .0007  .1984 +- .0004   .2370 +- .0004
        ====================== ===== ======= ================ =============== ================ ===============

        "sampled" is HitRate@10 among m = 100 negatives without any correction. Time grows with N m: a second for 10,000
        items and 1,000 negatives, half a minute for a million items and 100 negatives.

        Source:
            "bv": Krichene and Rendle, On sampled metrics for item recommendation, KDD 2020. "em", maximum likelihood:
            Jin et al., On estimating recommendation evaluation metrics under sampling, AAAI 2021.

        Args:
            metric: a measure of relevant candidates, or its name.
            method: "em" estimates the distribution of ranks by maximum likelihood, see :meth:`rank_distribution`. "bv"
                gives each x a value that minimises squared bias + ``gamma`` times variance, averaged over ``prior``.
            gamma: for "bv", > 0 and <= 1. Smaller values have less bias and more variance. With 1 and the true
                distribution as ``prior`` the estimate is unbiased.
            prior: for "bv", float [N + 1]: weights of the ranks 1, ..., N + 1; None = uniform.

        Returns:
            float64 [].

        Raises:
            TypeError: the measure is not a measure of a ranking.
            ValueError: it reads more than relevant candidates, or is not a mean; or an argument has a wrong value.
        """
        arguments.one_of("method", method, METHODS)
        arguments.number("gamma", gamma, above=0, most=1)
        metric = parse(metric) if isinstance(metric, str) else metric
        if not isinstance(metric, RankingMetric):
            raise TypeError(
                f"Expected a measure of a ranking, got {type(metric).__name__}; pass a name as 'hitrate@10'"
            )
        if metric.aggregation != "mean" or not metric.required.relevant or metric.num_extra_sums:
            raise ValueError(
                f"Expected the mean of a measure of relevant candidates, got {metric.label}; rank the whole catalogue"
            )
        ranks = torch.arange(1, self.num_items + 2, dtype=torch.float64, device="cpu")
        values = metric.score(Ranking.from_ranks(ranks, num_candidates=self.num_items + 1))
        share = self._shares()
        first, last = values[[0, -1]].tolist()
        line, of_share = (
            torch.linspace(first, last, len(x), dtype=values.dtype, device=values.device) for x in (values, share)
        )
        if (values - line).abs().max() <= 1e-9 * values.abs().max():
            return share @ of_share
        _warn_once(method, self.num_negatives, self.num_items)
        if method == "em":
            return values @ likeliest(share, self.num_items, self.replacement)
        prior = torch.ones_like(values) if prior is None else check_tensor(prior, "prior").detach().to(values)
        if prior.shape != values.shape or not bool((prior >= 0).all() & (prior.sum() > 0) & prior.sum().isfinite()):
            raise ValueError(
                f"Expected prior to be weights >= 0 of shape [{len(values)}], got shape {list(prior.shape)} or others;"
                " pass one weight for each rank"
            )
        prior = prior / prior.sum()
        return share @ bias_variance(values, self.num_negatives, self.replacement, gamma, prior)

    @eager
    def rank_distribution(self) -> Tensor:
        """The most likely distribution of the rank in the whole catalogue. Call it on all workers.

        It is found by expectation maximisation from a uniform start, constant within buckets of 1 % of the rank, in a
        fixed number of iterations. :meth:`estimate` describes its errors.

        Returns:
            float64 [N + 1]: the probabilities of the ranks 1, ..., N + 1, on the CPU.
        """
        _warn_once("em", self.num_negatives, self.num_items)
        return likeliest(self._shares(), self.num_items, self.replacement)


@functools.cache
def _warn_once(method: str, num_negatives: int, num_items: int) -> None:
    """Warn of estimates from few negatives."""
    if 10 * num_negatives < num_items:
        arguments.warn(
            f"Expected {-(-num_items // 10):,} sampled negatives or more, a tenth of the items, got"
            f" {num_negatives:,}: estimates of the first ranks can be several times too large or too small;"
            " sample more negatives, or rank the whole catalogue"
        )


#: Ranks after rank r are in one bucket if they differ by less than this share of r.
WIDTH = 0.01

#: Further iterations would follow the noise of the histogram.
ITERATIONS = 1000


def chances(num_negatives: int, num_items: int, replacement: bool) -> Iterator[tuple[slice, Tensor]]:
    """P in chunks of rows: the rows, and float64 [row, x]."""
    step = max(1, BLOCK // (num_negatives + 1))
    for start in range(0, num_items + 1, step):
        stop = min(start + step, num_items + 1)
        above = torch.arange(start, stop, dtype=torch.float64, device="cpu")
        yield slice(start, stop), chances_above(above, torch.full_like(above, num_items), num_negatives, replacement)


def buckets(num_items: int) -> Tensor:
    """Numbers of ranks in consecutive buckets, which add up to N + 1: int64 [bucket]. Small ranks are alone."""
    sizes, total = [], 0
    while total <= num_items:
        sizes.append(min(max(1, int(WIDTH * total)), num_items + 1 - total))
        total += sizes[-1]
    return torch.tensor(sizes, dtype=torch.int64, device="cpu")


@functools.lru_cache(maxsize=1)
def _bucket_chances(num_negatives: int, num_items: int, replacement: bool) -> Tensor:
    """Means of P over the ranks of each bucket: float64 [bucket, x]."""
    sizes = buckets(num_items)
    bucket = torch.repeat_interleave(sizes)
    table = torch.zeros((len(sizes), num_negatives + 1), dtype=torch.float64, device="cpu")
    for rows, part in chances(num_negatives, num_items, replacement):
        table.index_add_(0, bucket[rows], part)
    return table / sizes.unsqueeze(-1)


def likeliest(share: Tensor, num_items: int, replacement: bool) -> Tensor:
    r"""Estimate the distribution of the number a of negatives above, float64 [N + 1], by expectation maximisation.

    It maximises the likelihood of the sampled numbers x, :math:`\sum_x h_x \log \sum_a q_a P[a, x]`. The estimate is
    constant within buckets of ranks, and begins uniform.

    Args:
        share: h, float64 [m + 1]: the share of queries with each x.
        num_items: N.
        replacement: whether negatives were drawn with replacement.
    """
    table, sizes = _bucket_chances(len(share) - 1, num_items, replacement), buckets(num_items)
    q = sizes / sizes.sum(dtype=torch.float64)
    with in_batch(table.device, ITERATIONS * table.numel()):
        for _ in range(ITERATIONS):
            mixed = (q @ table).clamp_min(1e-300)
            q = q * (table @ (share / mixed))
    return torch.repeat_interleave(q / sizes, sizes)


def bias_variance(values: Tensor, num_negatives: int, replacement: bool, gamma: float, prior: Tensor) -> Tensor:
    r"""The values of each x that best estimate values of each a, by the sum of squared bias and g times the variance.

    For f[a] and a prior p the estimator e[x] minimises

    :math:`\sum_a p_a \left((E[e | a] - f_a)^2 + g \, Var[e | a]\right)`, so that
    :math:`e = \left((1 - g) P^T D P + g \, diag(P^T p)\right)^{-1} P^T D f` with :math:`D = diag(p)`.

    Args:
        values: f, float64 [N + 1].
        num_negatives: m.
        replacement: whether negatives were drawn with replacement.
        gamma: g.
        prior: p, float64 [N + 1], which sums to 1.

    Returns:
        float64 [m + 1].
    """
    size = num_negatives + 1
    square, weight, right = (values.new_zeros(shape) for shape in ((size, size), size, size))
    for rows, part in chances(num_negatives, len(values) - 1, replacement):
        weighted = part * prior[rows].unsqueeze(-1)
        square += weighted.mT @ part
        weight += weighted.sum(0)
        right += values[rows] @ weighted
    # Scaled so that the diagonal of the variance is g, because numbers x that the prior makes rare have tiny weights.
    scale = weight.clamp_min(1e-300).rsqrt()
    matrix = (1 - gamma) * scale.unsqueeze(-1) * square * scale
    matrix.diagonal().add_(gamma)
    return torch.linalg.solve(matrix, scale * right) * scale
