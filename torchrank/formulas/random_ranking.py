"""Random orders: of all candidates, of the tie group at a cutoff, and of the first group with a relevant candidate.

In a random order of n candidates the rank of each is uniform on 1, 2, ..., n.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchrank.formulas.gains import RECIPROCAL
from torchrank.hardware.devices import greatest, running_sum
from torchrank.layouts.canonical import BLOCK
from torchrank.layouts.checks import check_tensor, tensor_of
from torchrank.names.arguments import one_of
from torchrank.names.types import Array
from torchrank.ranking.ranking import Ranking, cached, marked_rows, only, ratio, row_sum

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


def hit_moments(n: Tensor, r: Tensor, top_k: int | None, most: int) -> Moments:
    """Moments of the hit rate: whether a relevant candidate is among the first k. ``most`` is an upper bound of r."""
    if top_k is None:
        mean = (r > 0).to(n.dtype)
    else:
        mean = only(r > 0, 1 - none_in(n, r, n.clamp_max(top_k), most))
    return Moments(mean, mean * (1 - mean))  # of a Bernoulli variable


def none_in(n: Tensor, r: Tensor, places: Tensor, most: int) -> Tensor:
    """Probability that ``places`` of n ranks hold none of r relevant candidates, for r <= ``most``: float64 [query].

    C(n - places, r) / C(n, r) is the product of (n - places - i) / (n - i) over i = 0, ..., r - 1.
    """
    none = torch.ones_like(n)
    for i in _steps(0, greatest(r, most), len(n), n):
        missed = ratio((n - places).unsqueeze(-1) - i, n.unsqueeze(-1) - i).clamp_min(0)
        none = none * torch.where(i < r.unsqueeze(-1), missed, 1.0).prod(-1)
    return none


def reciprocal_rank_moments(n: Tensor, r: Tensor, top_k: int | None, most: int) -> Moments:
    """Moments of 1 / rank of the first relevant candidate, 0 beyond k; ``most`` is an upper bound of r."""
    if most <= 1:  # the rank is uniform
        last, n = n.clamp_max(top_k or math.inf), n.clamp_min(1)
        mean, square = r * harmonic(last) / n, r * harmonic_of_squares(last) / n
    elif top_k is None:
        # The closed form cancels if r >= n/4. Then the first relevant candidate is within rank 128 except with
        # probability (3/4)^128 = 1e-16, so the sum over 128 ranks is exact.
        pairs = zip(_first_up_to(n, r, 128), _first_anywhere(n, r, most))
        mean, square = (torch.where(4 * r >= n, near, far) for near, far in pairs)
    else:
        mean, square = _first_up_to(n, r, min(top_k, greatest(n.nan_to_num(nan=top_k), top_k)))
    sure = (r > 0) & (n <= r)  # all candidates are relevant: 1 without rounding
    return Moments(torch.where(sure, 1.0, mean), torch.where(sure, 0.0, (square - mean * mean).clamp_min(0)))


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
    rest = n - r + 1
    mean = ratio(r, rest) * (harmonic(n) - harmonic((r - 1).clamp_min(0)))
    total = harmonic_of_squares(rest)
    for i in _steps(0, greatest(r, most), len(n), n):  # nothing is added after step r - 1
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


def _steps(start: int, stop: int, rows: int, like: Tensor) -> Iterator[Tensor]:
    """The integers from start to stop in chunks, so that a table of ``rows`` times a chunk has bounded memory."""
    step = max(1, BLOCK // max(1, rows))
    for low in range(start, stop, step):
        yield torch.arange(low, min(low + step, stop), dtype=like.dtype, device=like.device)


# Terms that are added one by one; the series below needs a first rank beyond them.
ADDED_TERMS = 16

# Coefficients of x ** -2, x ** -4, ... in digamma(x + 1/2) - ln(x), from the Bernoulli numbers.
SERIES = (1 / 24, -7 / 960, 31 / 8064, -127 / 30720, 511 / 67584)

# Ratios below this take the series of the logarithm.
SMALL = 0.1


def reciprocal_sums(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The sums of 1 / (first + i) and of i / (first + i) over i = 0, ..., count - 1, in the shape of ``first``.

    All terms that are added are positive or small, so the relative errors are below 1e-13.

    Args:
        first: float64, at least 1.
        count: float64, integers >= 0.
    """
    plain, weighted = torch.zeros_like(first), torch.zeros_like(first)
    for i in range(ADDED_TERMS):
        term = torch.where(count > i, 1 / (first + i), 0.0)
        plain, weighted = plain + term, weighted + i * term
    rest, start = (count - ADDED_TERMS).clamp_min(0), first + ADDED_TERMS
    behind, rising = _far(start, rest)
    return plain + behind, weighted + ADDED_TERMS * behind + rising


def _far(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`reciprocal_sums` for first ranks beyond :data:`ADDED_TERMS`."""
    # The sum is digamma(x + n + 1/2) - digamma(x + 1/2), with digamma(x + 1/2) = ln(x) + the series.
    x = first - 0.5
    u = count / x
    tail = torch.zeros_like(x)
    for power, factor in enumerate(SERIES, 1):
        tail = tail + factor * ((x + count) ** (-2 * power) - x ** (-2 * power))
    plain = torch.log1p(u) + tail
    # sum i / (first + i) = n - first * sum = x (u - log1p(u)) - sum / 2 - x * tail.
    # For small u, log1p(u) = 2 (r + r^3 / 3 + r^5 / 5 + ...) with r = u / (2 + u), and u - 2 r = u r.
    r = u / (2 + u)
    series = sum(r ** (2 * k) / (2 * k + 1) for k in range(1, 7))
    less = torch.where(u < SMALL, r * (u - 2 * series), u - torch.log1p(u))  # u - log1p(u)
    return plain, (x * less - plain / 2 - x * tail).clamp_min(0)


@dataclass(frozen=True)
class CutoffTie:
    """The tie group of each query with ranks on both sides of ``top_k``, and its number of hits.

    The group has n candidates, r of them relevant, and s ranks up to the cutoff. Its number of hits h, the relevant
    candidates at these s ranks, is hypergeometric. A query has at most one such group.
    """

    #: bool [query, entry]: the relevant entries of the group; none if the query has no such group
    cut: Tensor
    #: float64 [query, 1]: hits above the group; all hits if the query has no such group
    before: Tensor
    #: float64 [query, 1]: s
    places: Tensor
    #: float64 [query, h]: h = 0, 1, ...
    hits: Tensor
    #: float64 [query, h]: probability of each h
    chance: Tensor

    @classmethod
    def of(cls, ranking: Ranking, level: float, top_k: int | None) -> CutoffTie:
        """Find the groups of a ranking. A group without a relevant entry has no hits and is left out."""
        retrieved = ranking.hit(level)
        if top_k is None or ranking.untied:
            none, hits = retrieved.new_zeros(()).expand(retrieved.shape), ranking.hits(level, top_k).unsqueeze(-1)
            return cls(none, hits, torch.zeros_like(hits), torch.zeros_like(hits), torch.ones_like(hits))
        share = ranking.prob_in_top_k(top_k)
        # Only ranks on both sides of the cutoff make the probability of an entry neither 0 nor 1.
        cut = retrieved & (share > 0) & (share < 1)
        n, r, s = (
            _first_where(cut, x)
            for x in (ranking.tied, ranking.relevant_before_and_in_tie(level)[1], ranking.ranks_in_top_k(top_k))
        )
        before = (retrieved & (share == 1)).sum(-1, keepdim=True).to(share.dtype)
        # The largest r is unknown unless values are read, so h has a column for each number up to top_k.
        most = min(top_k, retrieved.shape[1])
        hits = torch.arange(most + 1, dtype=share.dtype, device=share.device).expand(len(n), -1)
        return cls(cut, before, s, hits, hypergeometric(hits, n, r, s))

    def of_group(self, x: Tensor) -> Tensor:
        """The value of ``x`` [query, entry] for the group: [query, 1]; 0 if the query has no such group."""
        return _first_where(self.cut, x)


def _first_where(where: Tensor, x: Tensor) -> Tensor:
    """The first element of each row of ``x`` at which ``where`` is True: [query, 1]; 0 if there is none."""
    first = where.int().argmax(-1, keepdim=True)
    return only(where.any(-1, keepdim=True), x.gather(-1, first))


def hypergeometric(h: Tensor, n: Tensor, r: Tensor, s: Tensor) -> Tensor:
    """Probability of h relevant candidates among s drawn from n with r relevant: float64 [query, h].

    Computed from the ratios P(h) / P(h - 1), because factorials would overflow.
    """
    possible = (h <= r) & (h <= s) & (s - h <= n - r)
    step = ratio((r - h + 1) * (s - h + 1), h * (n - r - s + h))
    # A ratio needs h and h - 1 to be possible. The weight of the first possible h is 1 until all are normalised.
    linked = possible & torch.nn.functional.pad(possible[:, :-1], (1, 0))
    log = running_sum(torch.where(linked, step, 1.0).log())
    weight = only(possible, (log - log.amax(-1, keepdim=True)).exp())
    return weight / weight.sum(-1, keepdim=True)


@dataclass(frozen=True, eq=False)
class RelevantRanks:
    """The relevant candidates at each rank, if the columns of a ranking are its ranks: float64 [query, rank] each.

    A rank belongs to a tie group of n candidates, r of them relevant, whose orders are equally likely. So no value
    decides what is computed, and an accelerator is not waited for.
    """

    #: number of relevant candidates before the group
    before: Tensor
    #: r; 0 in padding
    relevant: Tensor
    #: n; 0 in padding
    tied: Tensor
    #: number of ranks of the group before each rank
    passed: Tensor
    #: 1, 2, ...: [rank]
    ranks: Tensor

    @functools.cached_property
    def missed(self) -> Tensor:
        """Probability that no candidate up to each rank is relevant."""
        left = (self.tied - self.passed).clamp_min(1)
        return ((left - self.relevant) / left).clamp_min(0).cumprod(-1)

    def reciprocal(self, top_k: int | None) -> Tensor:
        """Expected 1 / rank of the first relevant candidate, 0 beyond ``top_k``: float64 [query]."""
        missed = self.missed[:, :top_k]
        missed_before = torch.nn.functional.pad(missed[:, :-1], (1, 0), value=1.0)
        return ((missed_before - missed) / self.ranks[:top_k]).sum(-1)

    def precisions(self, top_k: int | None) -> Tensor:
        """Expected sum of the precisions at the relevant ranks up to ``top_k``: float64 [query].

        If the candidate at a rank is relevant, each of the n - 1 others is with probability (r - 1) / (n - 1).
        """
        fields = (self.before, self.relevant, self.tied, self.passed)
        before, relevant, tied, passed = (x[:, :top_k] for x in fields)
        up_to = torch.addcmul(before + 1, (relevant - 1) / (tied - 1).clamp_min(1), passed)
        # Rounded as for a query without ties, which may be in a batch with ties or not.
        return row_sum(up_to * (1 / self.ranks[:top_k]) * (relevant / tied.clamp_min(1)), top_k)


@cached
def relevant_ranks(ranking: Ranking, level: float) -> RelevantRanks | None:
    """The expected relevant candidates at each rank, if there are ties and the columns are ranks; else None."""
    if ranking.untied or not ranking.complete or not ranking.first.shape[1]:
        return None
    ranks = torch.arange(1, ranking.first.shape[1] + 1, dtype=ranking.first.dtype, device=ranking.first.device)
    return RelevantRanks(*ranking.relevant_before_and_in_tie(level), ranking.tied, ranks - ranking.first, ranks)


def hit(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Probability that a candidate graded at or above ``level`` is among the first ``top_k``: float64 [query]."""
    if ranking.untied or ranking.first.shape[1] == 1:
        return ranking.hits(level, top_k).clamp_max(1)
    if (expected := relevant_ranks(ranking, level)) is not None:
        return 1 - expected.missed[:, :top_k][:, -1]
    first = _first_group(ranking, level)
    n, r, s = first.tied, first.relevant, first.places(top_k)
    value = s / n.clamp_min(1)
    # Several candidates of the group are relevant, and the cutoff is within it.
    rows = marked_rows(((r > 1) & (value > 0) & (value < 1)).unsqueeze(-1))
    value[rows] = 1 - none_in(n[rows], r[rows], s[rows], ranking.first.shape[1])
    return value


@dataclass(frozen=True, eq=False)
class FirstGroup:
    """The first tie group of each query that contains relevant candidates."""

    #: its number of relevant candidates; 0 if no relevant candidate of the query is retrieved: float64 [query]
    relevant: Tensor
    #: its number of candidates, 0 without a relevant one: float64 [query]
    tied: Tensor
    #: number of candidates above it: float64 [query]
    above: Tensor

    def places(self, top_k: int | None) -> Tensor:
        """Number of its ranks up to a cutoff: float64 [query]."""
        return self.tied if top_k is None else torch.minimum((top_k - self.above).clamp_min_(0), self.tied)


@cached
def _first_group(ranking: Ranking, level: float) -> FirstGroup:
    """Find the first relevant candidates of a ranking with ties."""
    relevant_entries = ranking.hit(level)
    column, exists = relevant_entries.view(torch.int8).argmax(-1, keepdim=True), relevant_entries.any(-1)
    beside = ranking.relevant_before_and_in_tie(level)[1]
    relevant, tied, first = (x.gather(-1, column).squeeze(-1) for x in (beside, ranking.tied, ranking.first))
    return FirstGroup(only(exists, relevant), only(exists, tied), first - 1)


def first_rank(ranking: Ranking, level: float) -> Tensor:
    r"""Expected rank of the first candidate at or above ``level``, infinite if none is retrieved: float64 [query].

    The first of r relevant candidates in a tie group of n candidates after a others is at rank
    :math:`a + \frac{n + 1}{r + 1}` on average: the mean of the smallest of r numbers drawn from 1 ... n.
    """
    before, beside = ranking.relevant_before_and_in_tie(level)
    rank = ranking.first - 1 + (ranking.tied + 1) / (beside + 1)
    return torch.where(ranking.hit(level) & (before == 0), rank, float("inf")).amin(-1)


def reciprocal_last_rank(ranking: Ranking, level: float) -> Tensor:
    """Expected 1 / rank of the last candidate at or above ``level``, 0 if not all are retrieved: float64 [query].

    By symmetry, the last of r relevant candidates is as far from the end of its tie group as the first one is from its
    start.
    """
    before, beside = ranking.relevant_before_and_in_tie(level)
    last = ranking.hit(level) & (before + beside == ranking.num_relevant(level).unsqueeze(-1))
    if ranking.untied:
        return only(last, ranking.first.reciprocal()).sum(-1)
    n, r, first = (_first_where(last, x) for x in (ranking.tied, beside, ranking.first))
    total = torch.zeros_like(ranking.num_candidates)
    longest = greatest(n, ranking.depth, steps=ranking.depth * len(n) // BLOCK)  # a step for each chunk of places
    for j, share in chances_of_first(n.squeeze(-1), r.squeeze(-1), longest):
        total = total + only(j <= n, share / (first + n - j)).sum(-1)
    return total


def reciprocal_rank(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Expected 1 / rank of the first candidate graded at or above ``level``, 0 beyond ``top_k``: float64 [query]."""
    if ranking.untied:
        anywhere = _alone(ranking, level, None)
        return anywhere if top_k is None else only(ranking.hits(level, top_k) > 0, anywhere)
    if ranking.first.shape[1] == 1:
        return _alone(ranking, level, top_k)
    if (expected := relevant_ranks(ranking, level)) is not None:
        return expected.reciprocal(top_k)
    first = _first_group(ranking, level)
    value = ranking.discount_sum_of(first.above + 1, first.tied, RECIPROCAL, top_k) / first.tied.clamp_min(1)
    value = only(first.relevant == 1, value)
    # Only queries with several relevant candidates in that group need the longer formula.
    rows = marked_rows((first.relevant > 1).unsqueeze(-1))
    n, r, s, above = (x[rows] for x in (first.tied, first.relevant, first.places(top_k), first.above))
    crowded, longest = r > 1, min(top_k or ranking.depth, ranking.depth)
    longest = greatest(only(crowded, s), longest, steps=longest * len(s) // BLOCK)  # a step for each chunk of places
    total, s, above = torch.zeros_like(n), s.unsqueeze(-1), above.unsqueeze(-1)
    for j, share in chances_of_first(n, r, longest):
        total = total + only(j <= s, share / (above + j)).sum(-1)
    value[rows] = torch.where(crowded, total, value[rows])
    return value


@cached
def _alone(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """The largest expected 1 / rank of an entry graded at or above ``level``: float64 [query].

    It is that of the first one, if the first tie group with relevant candidates has only one of them.
    """
    values = only(ranking.hit(level), ranking.mean_discount(RECIPROCAL, top_k))
    return values.squeeze(-1) if values.shape[1] == 1 else values.amax(-1)
