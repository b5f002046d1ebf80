"""Mean and variance of position measures under a random ranking, and values adjusted for chance.

In a random ranking all orders of the n candidates are equally likely, so the rank of each is uniform on 1, 2, ..., n.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchrank.layouts.canonical import BLOCK
from torchrank.layouts.checks import check_tensor, tensor_of
from torchrank.names.arguments import one_of
from torchrank.names.types import Array
from torchrank.ranking.intervals import ratio

EULER = 0.57721566490153286  # 1 + 1/2 + ... + 1/n = digamma(n + 1) + EULER


BASEL = math.pi**2 / 6  # 1 + 1/4 + 1/9 + ...


class Moments(NamedTuple):
    """Mean and variance of a measure under a random ranking of each query: float64 [query] each."""

    mean: Tensor
    variance: Tensor

    def adjusted(self, value: Tensor, how: str, best_first: bool) -> Tensor:
        """A value adjusted for chance; 0 if all rankings have the same value, as with a single candidate."""
        if how == "ratio":
            return ratio(value, self.mean)
        better = value - self.mean if best_first else self.mean - value
        return ratio(better, self.variance.sqrt() if how == "z" else (1 - self.mean).abs())

    def weight(self, how: str) -> Tensor:
        """Weight of each adjusted value, so that their weighted mean is the adjusted mean: float64 [query].

        The adjusted mean is computed from the means of values and expectations over queries, and for z from the
        variance of the mean. The weighted mean of z still lacks the factor sum(weights) / sqrt(sum(weights^2)).
        """
        if how == "z":
            return self.variance.sqrt()
        return self.mean if how == "ratio" else (1 - self.mean).abs()


def expected_median_rank(num_candidates: Array, aggregation: Literal["midpoint", "median"] = "midpoint") -> Tensor:
    r"""Expected median of the ranks in random order, :math:`\sum_{x \ge 0} P(\text{median} > x)`, to compare one with.

    Each rank is uniform on 1, ..., n, independently of all others, and n is its number of candidates. The probability
    is that of too few ranks up to x, a Poisson binomial distribution. The time grows with the square of the number of
    ranks, times the root of that number and the largest n.

    Source:
        PyKEEN, the expected value of ``MedianRank``, which takes the upper of the two middle ranks.

    Args:
        num_candidates: int [rank], the number of candidates of each rank, >= 1. In link prediction these are the
            irrelevant candidates of each positive, and one.
        aggregation: as that of :class:`torchrank.MR`: "midpoint", halfway between the two middle ranks, or "median",
            the lower of them.

    Returns:
        float64 [].

    Raises:
        TypeError: ``num_candidates`` is not a tensor, an array or a list.
        ValueError: it is not 1-D, empty, or has a number below 1; or the aggregation is another one.

    Example:
        >>> import torchrank as tr
        >>> tr.expected_median_rank([2, 4, 100])  # the expected mean is 18.8
        tensor(2.6025, dtype=torch.float64)
    """
    one_of("aggregation", aggregation, ("midpoint", "median"))
    n = check_tensor(tensor_of(num_candidates), "num_candidates").to(torch.float64)
    if n.dim() != 1 or not len(n) or not bool((n >= 1).all()):
        raise ValueError(f"Expected num_candidates to be numbers >= 1 [rank], got {num_candidates!r}")
    number = len(n)
    low, high = (number + 1) // 2, number // 2 + 1 if aggregation == "midpoint" else (number + 1) // 2
    total = torch.zeros_like(n[0])
    for x in _steps(0, int(n.max()), high, n):
        within = (x.unsqueeze(-1) / n).clamp_max(1)
        # Hoeffding: the number of ranks up to x is that far from its mean with a probability below 1e-17.
        gap = within.sum(-1) - (low + high) / 2
        total = total + (gap < -5 * math.sqrt(number)).sum()
        within = within[gap.abs() <= 5 * math.sqrt(number)]
        chance = torch.zeros((len(within), high), dtype=n.dtype, device=n.device)  # of 0, 1, ... ranks up to x
        chance[:, 0] = 1
        for p in within.unsqueeze(-1).unbind(1):
            chance = chance * (1 - p) + torch.nn.functional.pad(chance[:, :-1], (1, 0)) * p
        total = total + (chance[:, :low].sum() + chance.sum()) / 2
    return total


# ---- moments of one measure: n candidates, r of them relevant --------------------------------------------------


def mean_rank(n: Tensor, r: Tensor) -> Moments:
    """Moments of the mean rank of the relevant candidates."""
    # They are a sample of size r without replacement from the ranks 1, ..., n.
    return Moments((n + 1) / 2, ratio((n + 1) * (n - r), 12 * r))


def hit(n: Tensor, r: Tensor, top_k: int | None, most: int) -> Moments:
    """Moments of the hit rate: whether a relevant candidate is among the first k. ``most`` is an upper bound of r."""
    top_k = _reached(n, top_k)
    if top_k is None:
        mean = (r > 0).to(n.dtype)
    elif most <= 1:
        mean = r * (n.clamp_max(top_k) / n.clamp_min(1))
    else:
        # P(no hit) = (1 - r/n) (1 - r/(n-1)) ... over the first k ranks.
        miss = torch.ones_like(n)
        for i in _steps(0, top_k, len(n), n):
            left = n.unsqueeze(-1) - i
            miss = miss * ((left - r.unsqueeze(-1)).clamp_min(0) / left.clamp_min(1)).prod(-1)
        mean = torch.where(r > 0, 1 - miss, 0.0)
    return Moments(mean, mean * (1 - mean))  # of a Bernoulli variable


def reciprocal_rank(n: Tensor, r: Tensor, top_k: int | None, most: int) -> Moments:
    """Moments of 1 / rank of the first relevant candidate, 0 beyond k; ``most`` is an upper bound of r."""
    top_k = _reached(n, top_k)
    if most <= 1:  # the rank is uniform
        last, n = n if top_k is None else n.clamp_max(top_k), n.clamp_min(1)
        mean, square = r * harmonic(last) / n, r * harmonic_of_squares(last) / n
    elif top_k is None:
        # The closed form cancels if r >= n/4. Then the first relevant candidate is within rank 128 except with
        # probability (3/4)^128 = 1e-16, so the sum over 128 ranks is exact.
        pairs = zip(_first_up_to(n, r, 128), _first_anywhere(n, r, most))
        mean, square = (torch.where(4 * r >= n, near, far) for near, far in pairs)
    else:
        mean, square = _first_up_to(n, r, top_k)
    sure = (r > 0) & (n <= r)  # all candidates are relevant: 1 without rounding
    return Moments(torch.where(sure, 1.0, mean), torch.where(sure, 0.0, (square - mean * mean).clamp_min(0)))


def _reached(n: Tensor, top_k: int | None) -> int | None:
    """The cutoff, lowered to the longest list if reading values is free: ranks behind it add nothing."""
    if top_k is None or not n.is_cpu or not len(n):
        return top_k
    longest = float(n.max())
    return top_k if math.isnan(longest) else min(top_k, max(1, int(longest)))


def harmonic(n: Tensor) -> Tensor:
    """1 + 1/2 + ... + 1/n."""
    return torch.special.digamma(n + 1) + EULER


def harmonic_of_squares(n: Tensor) -> Tensor:
    """1 + 1/4 + ... + 1/n^2."""
    # The Hurwitz zeta function is the rest of the series behind n. torch's polygamma has nine correct digits only.
    return BASEL - torch.special.zeta(torch.full_like(n, 2), n + 1)


def _first_anywhere(n: Tensor, r: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Expected 1 / rank and 1 / rank^2 of the first of r relevant candidates among n: [query] each.

    The first one is at rank j with probability C(n - j, r - 1) / C(n, r). So with S_m(n, r) = sum over j of
    C(n - j, r - 1) / j^m, the expectations are S_1(n, r) / C(n, r) and S_2(n, r) / C(n, r). Let H(n) be the harmonic
    number. Then S_1(n, r) = C(n, r - 1) (H(n) - H(r - 1)). The identity (n - j) C(n - j - 1, r - 2) =
    (r - 1) C(n - j, r - 1) reduces S_2(n, r) to S_2 and S_1 of (n - 1, r - 1), and so on down to r = 1.
    """
    # The largest r bounds the loop: behind step r - 1 nothing is added.
    if n.is_cpu and len(r):
        most = int(r.max())
    rest = n - r + 1
    mean = ratio(r, rest) * (harmonic(n) - harmonic((r - 1).clamp_min(0)))
    total = harmonic_of_squares(rest)
    for i in _steps(0, most, len(n), n):
        left, others = n.unsqueeze(-1) - i, r.unsqueeze(-1) - 1 - i
        term = (harmonic(left.clamp_min(1) - 1) - harmonic(others.clamp_min(1) - 1)) / left.clamp_min(1)
        total = total - torch.where(others >= 1, term, 0.0).sum(-1)
    return mean, ratio(r, rest) * total


def _first_up_to(n: Tensor, r: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """As :func:`_first_anywhere`, but 0 beyond k: the sums over the ranks 1, ..., k, term by term."""
    mean, square = torch.zeros_like(n), torch.zeros_like(n)
    for place, chance in chances_of_first(n, r, top_k):
        mean, square = mean + (chance / place).sum(-1), square + (chance / place**2).sum(-1)
    return mean, square


def chances_of_first(n: Tensor, r: Tensor, places: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Probability that the first of r relevant candidates among n is at place j, for j = 1, ..., ``places``.

    It is r / (n - j + 1) times the probability that none of the first j - 1 places holds one.

    Yields:
        a chunk of places, float64 [place], and their probabilities, float64 [query, place].
    """
    none_yet, n, r = torch.ones_like(n).unsqueeze(-1), n.unsqueeze(-1), r.unsqueeze(-1)
    for i in _steps(0, places, len(n), n):
        left = (n - i).clamp_min(1)
        survive = none_yet * ((left - r) / left).clamp_min(0).cumprod(-1)
        yield i + 1, torch.cat([none_yet, survive[:, :-1]], dim=-1) * (r / left).clamp_max(1)
        none_yet = survive[:, -1:]


def chunk_length(rows: int, like: Tensor) -> int:
    """Number of columns of a table of ``rows`` that are computed at a time."""
    room = BLOCK // 4 if like.is_cpu else 2 * BLOCK  # on an accelerator, more chunks launch more kernels
    return max(1, room // max(1, rows))


def _steps(start: int, stop: int, rows: int, like: Tensor) -> Iterator[Tensor]:
    """The integers from start to stop in chunks, so that a table of ``rows`` times a chunk has bounded memory."""
    step = chunk_length(rows, like)
    for low in range(start, stop, step):
        yield torch.arange(low, min(low + step, stop), dtype=like.dtype, device=like.device)
