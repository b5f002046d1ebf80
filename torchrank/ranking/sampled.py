"""Ranking of one relevant candidate against a random draw of negatives: probabilities of its rank in the sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchrank.hardware.devices import running_sum
from torchrank.layouts.canonical import BLOCK
from torchrank.names.arguments import integer, one_of


@dataclass(frozen=True, eq=False)
class Positive:
    """The only relevant candidate of each query: bool or float64, [query] each."""

    #: whether the query has a relevant candidate
    exists: Tensor
    #: whether it is retrieved; if not, the numbers are 0
    retrieved: Tensor
    #: number of negatives above it
    above: Tensor
    #: number of negatives tied with it
    tied: Tensor
    #: number of all negatives in the list
    negatives: Tensor


@dataclass(frozen=True)
class Draw:
    """A uniform draw of negatives, with which the relevant candidate of each query is ranked.

    The sampled list can have ``num_negatives`` + 3 outcomes: the relevant candidate has one of the ranks 1, 2, ...,
    ``num_negatives`` + 1; it is not retrieved; there is none.
    """

    num_negatives: int
    replacement: bool
    #: grade of the relevant candidates
    grade: float

    @classmethod
    def of(cls, num_negatives: int, replacement: bool, grades: Tensor) -> Draw:
        """A draw for relevant candidates with ``grades`` [candidate].

        Raises:
            ValueError: an argument has a wrong value, or grades differ.
        """
        integer("num_negatives", num_negatives, least=1, or_none=False)
        one_of("replacement", replacement, (True, False))
        if len(grades) and (grades != grades[0]).any():
            graded = ", ".join(f"{grade:g}" for grade in grades.unique().tolist()[:3])
            raise ValueError(f"Expected relevant candidates of one grade, got {graded}; make the target binary")
        return cls(int(num_negatives), replacement, grades[0].item() if len(grades) else 1)

    def check(self, positive: Positive, num_relevant: Tensor) -> None:
        """Raise ValueError for the first query that has no such draw; ``num_relevant`` is [query]."""
        least = 1 if self.replacement else self.num_negatives
        negatives = positive.negatives.masked_fill(~positive.retrieved, least)
        cases = [
            (num_relevant > 1, "one relevant candidate", "rank each by itself: ranking.each_positive(1).sampled(...)"),
            (negatives.isnan(), "lists of known length", "pass num_candidates to Ranking.from_ranks"),
            (negatives < least, f"{least} negatives or more", "lower num_negatives"),
            (positive.above.frac() != 0, "a whole rank", "pass an interval of ranks, as scores with ties have it"),
        ]
        for wrong, wanted, way_out in cases:
            if wrong.any():
                row = int(wrong.nonzero()[0])
                got = f"{num_relevant[row]:g} relevant and {positive.negatives[row]:g} other candidates"
                raise ValueError(f"Expected {wanted} in each query, got {got} in query {row}; {way_out}")

    @property
    def places(self) -> int:
        """Number of ranks in the sampled list."""
        return self.num_negatives + 1

    def expect(self, positive: Positive, values: Tensor) -> Tensor:
        """The expectation over the draw of values that depend on the outcome.

        Args:
            positive: the relevant candidate of each query.
            values: float64 [outcome, number].

        Returns:
            float64 [query, number].
        """
        rows, again = torch.stack([positive.above, positive.tied, positive.negatives], -1), None
        if rows.is_cpu:  # equal ranks have equal probabilities
            rows, again = rows.unique(dim=0, return_inverse=True)
        parts = rows.split(max(1, BLOCK // self.places))
        mean = torch.cat([self.chances(*part.unbind(-1)) @ values[: self.places] for part in parts])
        mean = mean if again is None else mean[again]
        other = torch.where(positive.exists.unsqueeze(-1), values[-2], values[-1])
        return torch.where(positive.retrieved.unsqueeze(-1), mean, other)

    def chances(self, above: Tensor, tied: Tensor, negatives: Tensor) -> Tensor:
        """The distribution of the rank among the sampled negatives: float64 [row, rank].

        Args:
            above: float64 [row]: negatives above the relevant candidate.
            tied: float64 [row]: negatives tied with it. Its rank is uniform on the interval of the sampled ties.
            negatives: float64 [row]: all negatives.
        """
        alone = chances_above(above, negatives, self.num_negatives, self.replacement)
        if tied.is_cpu and not tied.any():
            return alone
        # Sums over the interval telescope. With N negatives, m draws and t ties behind a others, the probability of
        # x above is (N + 1) / ((m + 1) (t + 1)) times P(X' > x | a + t + 1) - P(X' > x | a), with X' the number above
        # of m + 1 draws from N + 1. With replacement the integral over the share above has N and t for N + 1 and t + 1.
        added = 0 if self.replacement else 1
        behind, all_of = above + tied + added, negatives + added
        scale = all_of / (self.places * (tied + added).clamp_min(1))
        several = self._beyond(behind, all_of) - self._beyond(above, all_of)
        return torch.where((tied > 0).unsqueeze(-1), several.clamp_min(0) * scale.unsqueeze(-1), alone)

    def _beyond(self, above: Tensor, total: Tensor) -> Tensor:
        """P(more than x above) for one more draw and x = 0, ..., ``num_negatives``: float64 [row, x]."""
        chances = chances_above(above, total, self.places, self.replacement)
        return running_sum(chances[:, 1:].flip(-1)).flip(-1)


def chances_above(above: Tensor, total: Tensor, draws: int, replacement: bool) -> Tensor:
    """P(x of the drawn negatives are above) for x = 0, 1, ..., ``draws``: float64 [row, x].

    Of ``total`` [row] negatives ``above`` [row] are above the relevant candidate. The distribution is hypergeometric,
    or binomial with replacement. It is the softmax of sums of log(P(x + 1) / P(x)): no factorial of a large number, in
    which digits would be lost, is part of it.
    """
    x = torch.arange(draws, dtype=above.dtype, device=above.device)
    above, below = above.unsqueeze(-1), (total - above).unsqueeze(-1)
    used, left = (0, 0) if replacement else (x, draws - 1 - x)
    # Fewer than ``least`` are impossible, because there are not enough negatives below.
    least = (below <= 0) * draws if replacement else (draws - below).clamp_min(0)
    ratio = (above - used).clamp_min(0) * (draws - x) / ((below - left) * (x + 1))
    logits = pad(running_sum(torch.where(x < least, 0.0, ratio.log())), (1, 0))
    return logits.masked_fill(torch.arange(draws + 1, device=x.device) < least, float("-inf")).softmax(-1)
