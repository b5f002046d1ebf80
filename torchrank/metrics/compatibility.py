"""Compatibility: the overlap of a ranking with the ideal ranking that is most like it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.engine.sorting import descending
from torchrank.formulas.gains import LINEAR, POSITIVE
from torchrank.hardware.devices import running_sum, worth_reading
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import flag, number
from torchrank.ranking.intervals import ratio
from torchrank.ranking.ranking import Ranking, cached, run_bounds, run_starts

__all__ = ["Compat"]

# Depths are left out if all of them together have a smaller weight: it is below the precision of float64.
TINY = 1e-18


@dataclass(frozen=True)
class Tail:
    r"""The weight of a candidate that both rankings have from a depth on: :math:`T(m) = \sum_{d \ge m} p^{d-1} / d`."""

    p: float

    @property
    def last(self) -> int:
        """The last depth whose T matters."""
        return math.ceil(math.log(TINY) / math.log(self.p))

    def __call__(self, depth: Tensor) -> Tensor:
        """T of depths >= 1; of a fraction, T of the next integer."""
        last = self.last
        # A table for a p near 1 has many ranks, and only those that occur are needed.
        if last > BLOCK and depth.is_cpu and depth.numel():
            last = int(depth.clamp_max(last).max())
        ranks = torch.arange(1, last + 1, dtype=depth.dtype, device=depth.device)
        terms = self.p ** (ranks - 1) / ranks
        # The terms behind the table are the whole series less the terms in it.
        rest = (-math.log1p(-self.p) / self.p - terms.sum()).clamp_min(0) if last < self.last else 0.0
        sums = running_sum(terms.flip(-1)).flip(-1) + rest
        return torch.nn.functional.pad(sums, (0, 1)).take(depth.ceil().clamp_max(last + 1).long() - 1)


@dataclass(frozen=True, eq=False)
class IdealRanks:
    """Ranks in the ideal ranking that is most like a ranking: by grade, and equal grades by the ranking.

    A class is the candidates of one tie group of the ranking with one grade. All are float64 [query, entry].
    """

    #: best rank of an entry in the ranking
    first: Tensor
    #: size of its tie group; 0 = not retrieved
    tied: Tensor
    #: rank of an entry in the ideal ranking; each order of a class has the same ranks
    rank: Tensor
    #: number of candidates above the class in the ideal ranking
    above: Tensor
    #: size of the class
    size: Tensor
    #: log of the probability that the candidates of the class up to this entry have the first ranks of the tie group
    log_first: Tensor

    @classmethod
    def of(cls, ranking: Ranking) -> IdealRanks:
        """The ideal ranks of all entries of a ranking. Entries without a positive grade follow all others."""
        grade, order, starts = descending(ranking.gains(LINEAR))
        judged = ranking.judged_gains(LINEAR)
        higher = judged.shape[1] - torch.searchsorted(judged.sort(dim=-1).values, grade, right=True)
        begin = run_bounds(starts)[0]
        start, stop = run_bounds(starts | run_starts(ranking.first.gather(-1, order)))
        position = torch.arange(grade.shape[1], device=grade.device)
        tied, size = ranking.tied.gather(-1, order), (stop - start).to(grade.dtype)
        # Candidate h of the r in the class is in the next of the n places with probability (r - h) / (n - h).
        number = (position - start).to(grade.dtype)
        log = torch.where(tied > number, ((size - number) / (tied - number)).log(), 0.0)
        sums = torch.nn.functional.pad(running_sum(log), (1, 0))
        log_first = sums[:, 1:] - sums.gather(-1, start)

        def by_entry(x: Tensor) -> Tensor:
            return torch.empty_like(grade).scatter_(-1, order, x.to(grade.dtype))

        above = higher + start - begin
        fields = (above + position - start + 1, above, size, log_first)
        return cls(ranking.first, ranking.tied, *(by_entry(x) for x in fields))

    def take(self, entries: Tensor) -> IdealRanks:
        """Some entries of all queries, given by their numbers, int64 [entry]: fields [entry]."""
        return IdealRanks(*(x.flatten()[entries] for x in vars(self).values()))


@cached
def ideal_ranks(ranking: Ranking) -> IdealRanks:
    return IdealRanks.of(ranking)


class Compat(RankingMetric):
    r"""Compatibility: the rank-biased overlap with the most similar ideal ranking.

    :math:`\sum_{d=1}^D p^{d-1} \frac{|A_d \cap I_d|}{d}`, divided by the value of the ideal ranking itself. Here
    :math:`A_d` and :math:`I_d` are the first d candidates of the list and of the ideal ranking. The ideal ranking has
    the candidates of positive grade, retrieved or not, in descending order of grade. Equal grades are in the order of
    the list, which gives the largest overlap, and those that were not retrieved come last. D is the length of the
    longer of the two rankings, at most ``top_k``.

    Only the order of the grades counts, as in a ranking by preferences. Under ``ties="expected"`` it is the exact mean
    over all orders of the tied candidates, each with its own ideal ranking. Each candidate in a tie group with several
    grades then costs one pass over the ranks of the group.

    Source:
        Clarke, Vtyurina and Smucker, Assessing top-k preferences, TOIS 39(3), 2021; D and ``normalize`` as in its
        script ``compatibility.py``.

    Args:
        top_k: count only the first ``top_k`` depths; None = all of them.
        p: the probability that the user goes on to the next depth, between 0 and 1.
        normalize: divide by the value of the ideal ranking. If False, divide by the sum of the weights
            :math:`p^{d-1}` of all D depths; few candidates of positive grade then leave 1 out of reach.

    Raises:
        ValueError: p is not between 0 and 1, or ``normalize`` is not a bool.

    Example:
        >>> import torch, torchrank as tr
        >>> # p = 1/2: (0/1 + 1/2 * 2/2 + 1/4 * 2/3) / (1/1 + 1/2 * 2/2 + 1/4 * 2/3)
        >>> tr.Compat(p=0.5).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 3, 0]]))
        tensor([0.4000], dtype=torch.float64)
    """

    name = "compat"
    value_range = (0.0, 1.0)

    p: float = number(default=0.95, above=0, below=1)
    normalize: bool = flag(default=True)

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return (ranking.judged_gains(LINEAR) > 0).sum(-1) == 0

    def measure(self, ranking: Ranking) -> Tensor:
        several = (ranking.judged_gains(LINEAR) > 0).sum(-1).to(ranking.first.dtype)
        depth = torch.maximum(ranking.num_candidates, several).clamp_max(self.top_k or math.inf)  # NaN if unknown
        behind = Tail(self.p)(depth.nan_to_num(nan=2.0**60) + 1)
        value = self.overlap(ranking, behind.unsqueeze(-1))
        if self.normalize:
            # A candidate at rank j of both rankings is in their overlap from depth j on.
            ideal = ranking.ideal(POSITIVE, Tail(self.p), self.top_k) - torch.minimum(several, depth) * behind
        else:
            ideal = (1 - self.p**depth) / (1 - self.p)
        return ratio(value, torch.where(depth.isnan(), math.nan, ideal))

    def overlap(self, ranking: Ranking, behind: Tensor) -> Tensor:
        """Sum over the entries of T(m) - T(D + 1); m is the depth from which both rankings have the entry: [query].

        ``behind`` is T(D + 1), float64 [query, 1].
        """
        ideal, tail = ideal_ranks(ranking), Tail(self.p)
        gaining = ranking.hit(0) & (ranking.gains(LINEAR) > 0)
        depth = torch.maximum(ranking.first, ideal.rank)
        inside = gaining & (depth <= (self.top_k or math.inf))
        value = torch.where(inside, tail(depth) - behind, 0.0)
        if ranking.untied:
            return value.sum(-1)
        # An entry ranks behind its ideal rank in every order of its class, unless more candidates precede the class in
        # the ideal ranking than in the list. So its m is its own rank.
        spread = ranking.mean_discount(tail, self.top_k) - ranking.prob_in_top_k(self.top_k) * behind
        tied = gaining & (ranking.tied > 1)
        early = tied & (ideal.above > ranking.first - 1)
        value = torch.where(tied, torch.where(early, 0.0, spread), value).flatten()
        flat = early.flatten()
        reads = worth_reading(early, early.shape[1])
        chosen = flat.nonzero().squeeze(-1) if reads else torch.arange(len(flat), device=flat.device)
        entries = ideal.take(chosen)
        longest = int(entries.tied.max()) if reads and len(chosen) else ranking.depth
        mean = self.mean_of_ties(entries, behind.expand(gaining.shape).flatten()[chosen], longest)
        value[chosen] = torch.where(flat[chosen], mean, value[chosen])
        return value.view(gaining.shape).sum(-1)

    def mean_of_ties(self, entries: IdealRanks, behind: Tensor, longest: int) -> Tensor:
        """The mean of T(m) - T(D + 1) for the entry that is number h of the r in its class: float64 [entry].

        It is at place x of the n in its tie group with probability C(x - 1, h - 1) C(n - x, r - h) / C(n, r). n is at
        most ``longest``.
        """
        tail = Tail(self.p)
        x = torch.arange(1, min(longest, tail.last) + 1, dtype=behind.dtype, device=behind.device)
        parts = [behind[:0]]
        for part in torch.arange(len(behind), device=behind.device).split(max(1, BLOCK // 4 // max(1, len(x)))):
            members = entries.take(part)
            n, j, r, above = (y.unsqueeze(-1) for y in (members.tied, members.rank, members.size, members.first - 1))
            h = j - members.above.unsqueeze(-1)
            # The ratio of the probabilities of x and x - 1, from the first possible x on, which is h.
            step = (x - 1) * (n - x + 1 - r + h) / ((x - h) * (n - x + 1))
            log = running_sum(torch.where(x > h, step.clamp_min(0), 1.0).log()) + members.log_first.unsqueeze(-1)
            chance = torch.where((x >= h) & (x <= n - r + h), log.exp(), 0.0)
            depth = torch.maximum(above + x, j)
            weight = torch.where(depth <= (self.top_k or math.inf), tail(depth) - behind[part].unsqueeze(-1), 0.0)
            parts.append((chance * weight).sum(-1))
        return torch.cat(parts)
