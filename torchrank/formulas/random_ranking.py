"""What measures of positions are worth by chance, and what is left of them once that is taken off.

By chance every order of the candidates is as likely, so that the rank of one of n is uniform on 1, 2, ..., n.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.layouts.canonical import BLOCK
from torchrank.ranking.arithmetic import ratio

EULER = 0.57721566490153286  # the harmonic number of n is digamma(n + 1) + this


BASEL = math.pi**2 / 6  # all reciprocal squares


class Moments(NamedTuple):
    """What a measure of each query is by chance: float64 [query] each."""

    mean: Tensor
    variance: Tensor

    def adjusted(self, value: Tensor, how: str, best_first: bool) -> Tensor:
        """A value in terms of chance; 0 where chance leaves nothing open, as with a single candidate."""
        if how == "ratio":
            return ratio(value, self.mean)
        better = value - self.mean if best_first else self.mean - value
        return ratio(better, self.variance.sqrt() if how == "z" else (1 - self.mean).abs())

    def weight(self, how: str) -> Tensor:
        """How much an adjusted value counts, if the weighted mean is to be the adjusted mean: float64 [query].

        The adjusted mean has means over queries in place of value and expectation, and in place of the variance
        that of the mean; so of z the weighted mean still lacks the factor sum(weights) / sqrt(sum(weights^2)).
        """
        if how == "z":
            return self.variance.sqrt()
        return self.mean if how == "ratio" else (1 - self.mean).abs()


# ---- of one measure: n candidates, of which r are relevant -----------------------------------------------------


def mean_rank(n: Tensor, r: Tensor) -> Moments:
    """Of the mean of the ranks of all relevant: that of a sample without replacement."""
    return Moments((n + 1) / 2, ratio((n + 1) * (n - r), 12 * r))


def hit(n: Tensor, r: Tensor, top_k: int | None, most: int) -> Moments:
    """Of a relevant one among the first k; ``most`` bounds r."""
    top_k = _reached(n, top_k)
    if top_k is None:
        mean = (r > 0).to(n.dtype)
    elif most <= 1:
        mean = r * (n.clamp_max(top_k) / n.clamp_min(1))
    else:
        miss = torch.ones_like(n)
        for i in _steps(0, top_k, len(n), n):
            left = n.unsqueeze(-1) - i
            miss = miss * ((left - r.unsqueeze(-1)).clamp_min(0) / left.clamp_min(1)).prod(-1)
        mean = torch.where(r > 0, 1 - miss, 0.0)
    return Moments(mean, mean * (1 - mean))


def reciprocal_rank(n: Tensor, r: Tensor, top_k: int | None, most: int) -> Moments:
    """Of 1 / rank of the first relevant, 0 beyond k; ``most`` bounds r."""
    top_k = _reached(n, top_k)
    if most <= 1:
        last, n = n if top_k is None else n.clamp_max(top_k), n.clamp_min(1)
        mean, square = r * harmonic(last) / n, r * harmonic_of_squares(last) / n
    elif top_k is None:
        # Where many are relevant the closed form loses digits, but then one of the first 128 is, but for 1e-16.
        pairs = zip(_first_up_to(n, r, 128), _first_anywhere(n, r, most))
        mean, square = (torch.where(4 * r >= n, near, far) for near, far in pairs)
    else:
        mean, square = _first_up_to(n, r, top_k)
    sure = (r > 0) & (n <= r)  # the first rank is relevant
    return Moments(torch.where(sure, 1.0, mean), torch.where(sure, 0.0, (square - mean * mean).clamp_min(0)))


def _reached(n: Tensor, top_k: int | None) -> int | None:
    """A cut no deeper than the longest list, where looking at values costs nothing."""
    if top_k is None or not reading_is_free(n) or not len(n):
        return top_k
    longest = float(n.max())
    return top_k if math.isnan(longest) else min(top_k, max(1, int(longest)))


def harmonic(n: Tensor) -> Tensor:
    """1 + 1/2 + ... + 1/n."""
    return torch.special.digamma(n + 1) + EULER


def harmonic_of_squares(n: Tensor) -> Tensor:
    """1 + 1/4 + ... + 1/n^2; torch's polygamma is right to nine digits only."""
    return BASEL - torch.special.zeta(torch.full_like(n, 2), n + 1)


def _first_anywhere(n: Tensor, r: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Expected 1 / rank and 1 / rank^2 of the first of r among n: [query] each.

    With S_m(n, r) the sum over j of C(n - j, r - 1) / j^m, these are S_m(n, r) / C(n, r). From (n - j) C(n - j - 1,
    r - 2) = (r - 1) C(n - j, r - 1) follows S_2 from S_2 and S_1 of n - 1 and r - 1, down to r = 1; and S_1(n, r) =
    C(n, r - 1) (H(n) - H(r - 1)).
    """
    if reading_is_free(n) and len(r):
        most = int(r.max())
    rest = n - r + 1
    mean = ratio(r, rest) * (harmonic(n) - harmonic((r - 1).clamp_min(0)))
    total = harmonic_of_squares(rest)
    for i in _steps(0, most - 1, len(n), n):
        left, others = n.unsqueeze(-1) - i, r.unsqueeze(-1) - 1 - i
        term = (harmonic(left.clamp_min(1) - 1) - harmonic(others.clamp_min(1) - 1)) / left.clamp_min(1)
        total = total - torch.where(others >= 1, term, 0.0).sum(-1)
    return mean, ratio(r, rest) * total


def _first_up_to(n: Tensor, r: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
    """Expected 1 / rank and 1 / rank^2 of the first of r among n, 0 beyond k: [query] each, rank by rank."""
    mean, square = torch.zeros_like(n), torch.zeros_like(n)
    for place, chance in first_at(n, r, top_k):
        mean, square = mean + (chance / place).sum(-1), square + (chance / place**2).sum(-1)
    return mean, square


def first_at(n: Tensor, r: Tensor, places: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Some places at a time, float64 [place], the chance that the first of r among n is there: float64 [query, place].

    It is r / (n - j + 1) times the chance that none of the first j - 1 is.
    """
    none_yet, n, r = torch.ones_like(n).unsqueeze(-1), n.unsqueeze(-1), r.unsqueeze(-1)
    for i in _steps(0, places, len(n), n):
        left = (n - i).clamp_min(1)
        survive = none_yet * ((left - r) / left).clamp_min(0).cumprod(-1)
        yield i + 1, torch.cat([none_yet, survive[:, :-1]], dim=-1) * (r / left).clamp_max(1)
        none_yet = survive[:, -1:]


def _steps(start: int, stop: int, rows: int, like: Tensor) -> Iterator[Tensor]:
    """The whole numbers from start to stop in pieces, so that one for each of some rows stays small."""
    step = max(1, BLOCK // 4 // max(1, rows))
    for low in range(start, stop, step):
        yield torch.arange(low, min(low + step, stop), dtype=like.dtype, device=like.device)
