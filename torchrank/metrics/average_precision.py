"""Average precision, and its log odds."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.gains import RECIPROCAL, OfRelevant, checked_weighing, gain_of
from torchrank.formulas.random_ranking import CutoffTie, reciprocal_sums
from torchrank.metrics.binary import BinaryMetric
from torchrank.names.parameters import one_of, parameter
from torchrank.names.types import Described, GainOption
from torchrank.ranking.intervals import only, per, ratio, row_sum
from torchrank.ranking.ranking import Gain, Ranking, cached

__all__ = ["MAP", "YAAP"]

# Up to this rank, the expected precision of tied candidates is computed from differences, which lose a digit each time
# that the rank grows by a factor of ten. The sums that are used behind it lose none, and take longer.
FAR = 2**15


class MAP(BinaryMetric):
    r"""Average precision, whose mean over queries is MAP: :math:`AP@k = \frac{1}{N} \sum_{i \le k} rel_i \, P@i`.

    ``normalize`` sets N. Ties follow McSherry and Najork, Computing information retrieval performance measures
    efficiently in the presence of tied scores, ECIR 2008. With ``normalize="retrieved"``, a tie group at the cutoff
    makes N random; AP is then averaged over the number of hits.

    Source:
        trec_eval; Buckley and Voorhees, Evaluating evaluation measure stability, SIGIR 2000.

    Args:
        normalize: the denominator N: "relevant", all R relevant candidates (trec_eval's ``map`` and ``map_cut``);
            "min", min(R, k); "length", min(R, k, length of the list), as in LensKit; "k", k itself (without ``top_k``
            the length of the list), an option of RecTools; "retrieved", the relevant candidates among the first k. With
            ``top_k`` and expected ties, "retrieved" has no bounds over unjudged candidates.
        gain: None, every relevant candidate has the same weight; or the weight of a relevant candidate by its grade:
            "linear", "exponential", a callable or a table, as the gain of :class:`DCG`. Then :math:`AP@k =
            \frac{\sum_{i \le k} gain_i \, rel_i \, P@i}{\sum_i gain_i \, rel_i}`. It requires ``normalize="relevant"``.
            Weights of single candidates are grades with ``gain="linear"`` and a small ``relevance_level``. With a gain
            ``ties="optimistic"`` is the order by descending grade, which need not be the best one: the candidate behind
            has the higher precision.

    Raises:
        ValueError: ``gain`` is unknown, or given together with another ``normalize`` than "relevant"; or ``unjudged``
            asks for bounds with a table or callable as gain, or with a gain and a ``relevance_level`` below 1.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, target = torch.tensor([[0.9, 0.8, 0.7, 0.6, 0.5]]), torch.tensor([[1, 0, 1, 1, 0]])
        >>> tr.MAP().score(scores, target)  # (1 + 2/3 + 3/4) / 3
        tensor([0.8056], dtype=torch.float64)
        >>> tr.MAP(gain="linear").score(scores, torch.tensor([[1, 0, 3, 1, 0]]))  # (1 * 1 + 3 * 2/3 + 1 * 3/4) / 5
        tensor([0.7500], dtype=torch.float64)
    """

    name = "map"
    monotone_behind = True

    normalize: Literal["relevant", "min", "length", "k", "retrieved"] = one_of(default="relevant")
    gain: Described[GainOption | None] = parameter(default=None, check=checked_weighing)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gain is not None and self.normalize != "relevant":
            raise ValueError(f"Expected normalize='relevant' together with gain={self.gain!r}, got {self.normalize!r}")

    @property
    def weighing(self) -> Gain:
        """The function from grades to the weights of relevant candidates."""
        return OfRelevant(gain_of(self.gain or "linear"), self.relevance_level)

    def empty(self, ranking: Ranking) -> Tensor:
        return super().empty(ranking) if self.gain is None else ranking.total_gain(self.weighing) == 0

    @property
    def no_bounds_reason(self) -> str:
        # A candidate that gains most may lose more precision on its way up than the others win.
        if self.gain is not None and not (self.weighing.monotone and self.relevance_level >= 1):
            return "whose unjudged candidates may gain more than others that are relevant"
        random = self.normalize == "retrieved" and self.top_k is not None and self.ties == "expected"
        return "whose denominator is random if a tie group crosses the cutoff" if random else ""

    def of_one_rank(self) -> bool:
        return self.gain is None and (self.normalize != "k" or self.top_k is not None)

    def measure(self, ranking: Ranking) -> Tensor:
        # The expectation of a ratio is not the ratio of expectations, so a random N needs a formula of its own.
        if self.normalize == "retrieved" and self.top_k is not None and not ranking.untied:
            return _precision_by_hits(ranking, self.relevance_level, self.top_k)
        if self.gain is None:
            return per(_sum_of_precisions(ranking, self.relevance_level, self.top_k), self.denominator(ranking))
        values = precisions(ranking, self.relevance_level, self.top_k)
        # All orders of a tie group are equally likely, so its relevant entries have the same expected precision.
        return ratio((ranking.gains(self.weighing) * values).sum(-1), ranking.total_gain(self.weighing))

    def denominator(self, ranking: Ranking) -> Tensor:
        """The denominator N, if it is not random: float64 [query]."""
        if self.normalize in ("retrieved", "k"):
            return self.length(ranking) if self.normalize == "k" else self.hits(ranking)
        relevant = ranking.num_relevant(self.relevance_level)
        if self.normalize == "length":
            relevant = torch.minimum(relevant, ranking.num_candidates)
        return relevant if self.normalize == "relevant" or self.top_k is None else relevant.clamp_max(self.top_k)


@cached
def _sum_of_precisions(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Expected sum of :func:`precisions`: float64 [query]."""
    if ranking.untied:
        return ranking.sum_up_to(top_k, precisions, level, None)
    if (expected := ranking.relevant_ranks(level)) is not None:
        return expected.precisions(top_k)
    if not ranking.shares_sums(top_k) or ranking.depth > FAR:
        return row_sum(precisions(ranking, level, top_k))
    # All groups before the last one end before the cutoff.
    sooner, up_to = ranking.before_and_up_to_last(top_k, precisions, level, None)
    before, beside = ranking.before_and_in_last(top_k, Ranking.hit_numbers, level)
    last = ranking.last_group(top_k)
    harmonic = ranking.discount_in_last(RECIPROCAL, top_k)
    rising = last.places - last.ranks.first * harmonic
    total = (before + 1) * harmonic + ratio(beside - 1, last.ranks.tied - 1) * rising
    return torch.where(last.complete, up_to, sooner + beside * total / last.ranks.number)


@cached
def precisions(ranking: Ranking, level: float, top_k: int | None) -> Tensor:
    """Expected precision at the rank of each relevant entry, 0 beyond ``top_k``: float64 [query, entry].

    An entry is tied in a group of n candidates, r of them relevant. a candidates precede the group, ``before`` of them
    relevant. If the entry has rank j, j - a - 1 candidates of the group are before it. Each of these is relevant with
    probability c = (r - 1) / (n - 1). So the expected precision at j is (before + 1 + c (j - a - 1)) / j.
    """
    if ranking.first.shape[1] == 1:  # a single relevant entry has precision 1 / rank
        return only(ranking.hit(level), ranking.mean_discount(RECIPROCAL, top_k))
    before, beside = ranking.relevant_before_and_in_tie(level)
    if ranking.untied:
        return (before + beside) * ranking.discount_sum(RECIPROCAL, top_k) * beside
    c = ratio(beside - 1, ranking.tied - 1)
    # The sum over the ranks j of the group, up to the cutoff.
    harmonic, rising = _sums_over_ties(ranking, ranking.hit(level), top_k)
    total = (before + 1) * harmonic + c * rising
    # Each of the n ranks is equally likely, also a rank behind the cutoff, which contributes 0.
    return only(ranking.hit(level), ratio(total, ranking.tied))


def _sums_over_ties(ranking: Ranking, wanted: Tensor, top_k: int | None) -> tuple[Tensor, Tensor]:
    """Sums of 1 / j and of (j - first) / j over an entry's ranks j up to ``top_k``: float64 [query, entry] each.

    Entries that are not ``wanted``, bool [query, entry], may have other numbers.
    """
    inside = ranking.ranks_in_top_k(top_k)
    if ranking.depth <= FAR:
        harmonic = ranking.discount_sum(RECIPROCAL, top_k)
        return harmonic, inside - ranking.first * harmonic
    single, several = inside / ranking.first, wanted & (ranking.tied > 1)
    if not single.is_cpu:
        harmonic, rising = reciprocal_sums(ranking.first, inside)
        return torch.where(several, harmonic, single), rising
    rising = torch.zeros_like(single)
    single[several], rising[several] = reciprocal_sums(ranking.first[several], inside[several])
    return single, rising


def _precision_by_hits(ranking: Ranking, level: float, top_k: int) -> Tensor:
    """Expected AP divided by the number of hits in the first k: float64 [query].

    A tie group at the cutoff makes the number of hits random, so this is a mean over that number.
    """
    # Entries before this tie group are in the first k for certain, with the same precision for every number of hits.
    surely = ranking.hit(level) & (ranking.prob_in_top_k(top_k) == 1)
    full = only(surely, precisions(ranking, level, top_k)).sum(-1)
    # s places of the tie group are before the cutoff. Given h hits, they are a tie group of s candidates, h of them
    # relevant, and the formula of `precisions` holds for it.
    cut = CutoffTie.of(ranking, level, top_k)
    h, s = cut.hits, cut.places
    harmonic, rising = (cut.of_group(x) for x in _sums_over_ties(ranking, ranking.tied > 0, top_k))
    c = ratio(h - 1, s - 1)
    partial = ratio(h, s) * ((cut.before + 1) * harmonic + c * rising)
    return (cut.chance * ratio(full.unsqueeze(-1) + partial, cut.before + h)).sum(-1)


class YAAP(BinaryMetric):
    r"""Yet another average precision, the log odds of AP: :math:`\ln \frac{1 + R \, AP}{1 + R - R \, AP}`.

    With log odds, the mean over queries depends less on queries of middling precision. Under ``ties="expected"`` it is
    the log odds of the expected average precision, not the expectation of the log odds.

    Source:
        Robertson, On smoothing average precision, ECIR 2012; trec_eval, ``yaap``.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.YAAP().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))  # ln((1 + 5/3) / (3 - 5/3))
        tensor([0.6931], dtype=torch.float64)
    """

    name = "yaap"
    value_range = (-math.inf, math.inf)
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        total = precisions(ranking, self.relevance_level, None).sum(-1)
        return torch.log((1 + total) / (1 + ranking.num_relevant(self.relevance_level) - total))
