"""Measures of pairs of candidates, and scikit-learn's measures of label rankings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from torchrank.engine.sorting import by_key, descending
from torchrank.formulas.gains import POSITIVE, checked_weighing, gain_of
from torchrank.hardware.devices import running_sum
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import BinaryMetric, nothing_irrelevant, precisions
from torchrank.names.parameters import one_of, parameter
from torchrank.names.types import Described, GainOption
from torchrank.ranking.intervals import as_numbers, marked_rows, only, ratio
from torchrank.ranking.ranking import Gain, Ranking, cached, run_bounds, run_starts
from torchrank.state.scoring import Values

__all__ = ["LRAP", "OPA", "CoverageError", "RankingLoss"]


# Up to this level a pass for each level is faster than one for each of its digits, which sorts.
FEW_LEVELS = 8


class LRAP(BinaryMetric):
    r"""Label ranking average precision.

    :math:`\frac{1}{R} \sum_{i \in rel} \frac{|\{j \in rel: rank_j \le rank_i\}|}{rank_i}`. R is the number of relevant
    candidates. A relevant candidate that was not retrieved adds 0. Without ties, and under "expected", "optimistic" and
    "pessimistic" ties, the value is average precision. With ``ties="grouped"``, as in the source, the rank of a
    candidate is the last rank of its tie group. All relevant candidates of the group then count as ranked no later.
    scikit-learn's ``label_ranking_average_precision_score`` has ``ties="grouped"`` and ``empty_target_action="pos"``.

    Source:
        Schapire and Singer, BoosTexter: a boosting-based system for text categorization, Machine Learning 39, 2000.

    Args:
        ties: as :class:`RankingMetric`, and "grouped".

    Example:
        >>> import torch, torchrank as tr
        >>> tr.LRAP(ties="grouped").score(torch.tensor([[0.9, 0.5, 0.5, 0.5]]), torch.tensor([[0, 1, 1, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "lrap"
    policies = ("expected", "optimistic", "pessimistic", "grouped")
    top_k: None = None

    def resolve_ties(self, ranking: Ranking) -> Ranking:
        return ranking if self.ties == "grouped" else ranking.under(self.ties)

    def measure(self, ranking: Ranking) -> Tensor:
        if self.ties != "grouped":
            return self.per_relevant(ranking, precisions(ranking, self.relevance_level, None))
        before, beside = ranking.relevant_before_and_in_tie(self.relevance_level)
        # first - 1 + tied is the last rank of the tie group.
        return self.per_relevant(ranking, ratio(before + beside, ranking.first - 1 + ranking.tied))


class CoverageError(BinaryMetric):
    r"""Coverage error: the rank of the last relevant candidate, :math:`\max_{i \in rel} rank_i`.

    Lower is better. A relevant candidate that was not retrieved has the rank after the list. Under ``ties="expected"``
    the value is the mean rank of the last relevant candidate, :math:`a + \frac{r (n + 1)}{r + 1}`. Here the last tie
    group with a relevant candidate comes after a others and has n candidates, of them r relevant. scikit-learn's
    ``coverage_error`` is ``ties="pessimistic"``. A query for which nothing was retrieved has no value.

    Source:
        Schapire and Singer, BoosTexter: a boosting-based system for text categorization, Machine Learning 39, 2000, as
        coverage, which is 1 less.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.CoverageError().score(torch.tensor([[0.9, 0.5, 0.5, 0.1]]), torch.tensor([[1, 1, 0, 0]]))
        tensor([2.5000], dtype=torch.float64)
    """

    name = "coverageerror"
    value_range = (0.0, math.inf)
    higher_is_better = False
    top_k: None = None

    def measure(self, ranking: Ranking) -> Tensor:
        _, beside = ranking.relevant_before_and_in_tie(self.relevance_level)
        # The largest of r places drawn from 1 ... n has the mean r (n + 1) / (r + 1).
        last = ranking.first - 1 + beside * (ranking.tied + 1) / (beside + 1)
        rank = torch.where(ranking.tied > 0, last, (ranking.num_candidates + 1).unsqueeze(-1))
        return only(ranking.relevant(self.relevance_level), rank).amax(-1)


class RankingLoss(BinaryMetric):
    r"""Ranking loss: the share of wrongly ordered pairs.

    :math:`\frac{1}{R N} \sum_{i \in rel} \sum_{j \notin rel} [rank_i > rank_j]`. A pair has one of the R relevant
    candidates and one of the N irrelevant candidates in the list. Lower is better. A tied pair counts half under
    ``ties="expected"``. A relevant candidate that was not retrieved ranks after all others. A query without a pair is
    empty, and a query for which nothing was retrieved has no value. scikit-learn's ``label_ranking_loss`` is
    ``ties="pessimistic"``.

    Source:
        Schapire and Singer, BoosTexter: a boosting-based system for text categorization, Machine Learning 39, 2000.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.RankingLoss().score(torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 0, 1, 0]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "rankingloss"
    higher_is_better = False
    top_k: None = None

    def empty(self, ranking: Ranking) -> Tensor:
        return super().empty(ranking) | nothing_irrelevant(ranking, self.relevance_level)

    def measure(self, ranking: Ranking) -> Tensor:
        before, beside = ranking.relevant_before_and_in_tie(self.relevance_level)
        hits = self.hits(ranking).unsqueeze(-1)
        irrelevant = ranking.num_candidates.unsqueeze(-1) - hits
        ahead = ranking.first - 1 - before  # irrelevant candidates before the tie group
        # Right are the pairs with an irrelevant candidate after the tie group, and half of those within it.
        right = irrelevant - ahead - (ranking.tied - beside) / 2
        right = only(ranking.hit(self.relevance_level), right).sum(-1)
        return 1 - ratio(right, irrelevant.squeeze(-1) * ranking.num_relevant(self.relevance_level))


class OPA(RankingMetric):
    r"""Ordered pair accuracy: the share of pairs with different grades in the right order.

    :math:`OPA = \frac{\sum_{g_i > g_j} [rank_i < rank_j]}{|\{(i, j): g_i > g_j\}|}`, with :math:`g_i` the grade of
    candidate i. Candidates are the list and the candidates of positive grade that were not retrieved. The latter rank
    after the list, tied with each other. A tied pair counts half under ``ties="expected"``. A query without a pair is
    empty. But if it has positive grades and nothing was retrieved, it scores 0.

    With ``gain`` a pair weighs as much as its better candidate: both sums have the factor :math:`gain_i`. The weights
    are a function of the grade, so candidates of one grade have one weight.

    Unjudged candidates, with a negative grade or none, count as grade 0. There are no bounds for them, because the
    number of pairs depends on which of them were retrieved.

    Source:
        TensorFlow Ranking, ``OPAMetric``.

    Args:
        gain: None, all pairs weigh the same; or the weight of a pair by the grade of its better candidate:
            "linear", "exponential", a callable or a table, as the gain of :class:`DCG`.
        average: "query", the mean over queries; "pair", the share of all pairs of all queries: a query weighs as much
            as its pairs.
        pairs: "all", pairs of all these candidates; "retrieved", pairs of two retrieved candidates only.

    Raises:
        ValueError: ``pairs`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.OPA().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 2, 0]]))  # one pair of three is wrong
        tensor([0.6667], dtype=torch.float64)
        >>> tr.OPA(gain="linear").score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 2, 0]]))  # (1 + 2) / 5
        tensor([0.6000], dtype=torch.float64)
    """

    name = "opa"
    takes_unjudged_for = ("irrelevant", "condensed")
    top_k: None = None

    pairs: Literal["all", "retrieved"] = one_of(default="all")
    gain: Described[GainOption | None] = parameter(default=None, check=checked_weighing)
    average: Literal["query", "pair"] = one_of(default="query")

    @property
    def weighing(self) -> Gain:
        """The function from the grade of the better candidate to the weight of a pair."""
        return POSITIVE if self.gain is None else gain_of(self.gain)

    def need(self) -> Need:
        return Need(relevant=True)

    def per_query(self, ranking: Ranking) -> Values:
        if self.pairs == "retrieved":
            ranking = replace(ranking, valid=ranking.valid & (ranking.tied > 0))
        return super().per_query(ranking)

    def empty(self, ranking: Ranking) -> Tensor:
        nothing_retrieved = (ranking.num_candidates == 0) & _positive(ranking).any(-1)
        return (different_grades(ranking, self.weighing) == 0) & ~nothing_retrieved

    @property
    def weighs_lists(self) -> bool:
        # Irrelevant candidates of the list are in pairs.
        return self.average == "pair"

    def resolve_ties(self, ranking: Ranking) -> Ranking:
        # Candidates that were not retrieved are tied with each other, also in a ranking without other ties.
        return ranking if self.ties == "expected" else ranking.resolved(self.ties)

    def weight(self, ranking: Ranking) -> Tensor | None:
        # A mean of ratios, weighted by their denominators, is the ratio of the sums.
        return super().weight(ranking) if self.average == "query" else different_grades(ranking, self.weighing)

    def measure(self, ranking: Ranking) -> Tensor:
        pairs = different_grades(ranking, self.weighing)
        right = _in_order(ranking, self.weighing)
        if self.ties == "expected":
            # The best and the worst order of a tie group reverse each of its pairs, so their mean counts a pair half.
            lacking = _positive(ranking) & ~ranking.retrieved()  # one tie group after the list
            among = lacking.sum(-1, keepdim=True) > 1
            # Both orders are needed only for queries with ties.
            rows = marked_rows(among if ranking.untied else among | (ranking.tied > 1))
            if len(rows):
                part = ranking.take(rows)
                best, worst = (_in_order(part.resolved(ties), self.weighing) for ties in ("optimistic", "pessimistic"))
                right[rows] = (best + worst) / 2
        return torch.where(ranking.num_candidates == 0, 0.0, ratio(right, pairs))


@cached
def _positive(ranking: Ranking) -> Tensor:
    """bool [query, entry]: whether a candidate has a positive grade."""
    return ranking.valid & (ranking.grade > 0)


@cached
def different_grades(ranking: Ranking, gain: Gain) -> Tensor:
    """float64 [query]: number of pairs of candidates with different grades, each times the gain of the larger grade."""
    positive = _positive(ranking)
    several = positive.sum(-1).to(ranking.first.dtype)
    zeros = ranking.num_candidates - (positive & ranking.retrieved()).sum(-1)
    if (levels := ranking.levels) is not None:
        return _over_levels(ranking, gain, levels, zeros)
    grade, begins, _ = grade_classes(ranking)
    position = torch.arange(grade.shape[1], device=grade.device)
    if gain is not POSITIVE:
        lower = zeros.unsqueeze(-1) + several.unsqueeze(-1) - run_bounds(begins)[1]
        wide = grade.to(several.dtype)
        return only(grade > 0, gain(torch.where(grade > 0, wide, 1)) * lower).sum(-1)
    # Each entry adds its pairs with earlier entries of the same grade.
    alike = only(grade > 0, position - run_bounds(begins)[0]).sum(-1)
    # Pairs of a positive grade and 0, and pairs of different positive grades.
    return several * zeros + several * (several - 1) / 2 - alike


def _over_levels(ranking: Ranking, gain: Gain, levels: int, lower: Tensor) -> Tensor:
    """:func:`different_grades` for the grades 1, ..., ``levels``, with ``lower`` [query] candidates of grade 0."""
    total = torch.zeros_like(lower)
    reached = [ranking.num_relevant(level) for level in range(1, levels + 1)] + [total]
    gains = gain(torch.arange(1, levels + 1, dtype=lower.dtype, device=lower.device)).tolist()
    for worth, here, above in zip(gains, reached, reached[1:]):
        total = total + worth * (here - above) * lower
        lower = lower + here - above
    return total


@cached
def grade_classes(ranking: Ranking) -> tuple[Tensor, Tensor, Tensor]:
    """Positive grades in descending order, then 0 for all others; the starts of their runs; the class of each entry.

    Classes are numbered from 0, the class of the largest grade.
    """
    grade, order, begins = descending(only(_positive(ranking), ranking.grade))
    return grade, begins, torch.empty_like(order).scatter_(-1, order, begins.cumsum(-1) - 1)


def _in_order(ranking: Ranking, gain: Gain) -> Tensor:
    """float64 [query]: number of pairs with the higher grade first, each times its gain, in rankings without ties."""
    positive = _positive(ranking)
    hits = as_numbers(positive & ranking.retrieved(), ranking.first.dtype)
    later = ranking.num_candidates.unsqueeze(-1) - ranking.first
    # Entries are in rank order: found.sum - found.cumsum of the later candidates have positive grades.
    so_far = running_sum(hits)
    zeros = later - so_far[:, -1:] + so_far
    # Numbers of pairs are integers, which are added exactly.
    worth = as_numbers(positive, hits.dtype) if gain is POSITIVE else only(positive, ranking.gains(gain))
    if (levels := ranking.levels) is not None:
        among = _descents(ranking, worth, levels)
    else:
        among = _ascents(grade_classes(ranking)[2], positive, worth)
    return only(hits > 0, zeros * worth).sum(-1) + among


def _descents(ranking: Ranking, worth: Tensor, levels: int) -> Tensor:
    """Sum, over pairs of entries in which the first has the higher of two grades, of the first's ``worth``: [query].

    The grades are 0, ..., ``levels``; pairs with grade 0 are left out. ``worth`` is float64 [query, entry].
    """
    total = torch.zeros_like(ranking.num_candidates)
    for level in range(1, levels):
        above = ranking.relevant(level + 1)
        total += only(ranking.relevant(level) ^ above, running_sum(only(above, worth))).sum(-1)
    return total


def _ascents(level: Tensor, counted: Tensor, worth: Tensor) -> Tensor:
    """Sum, over pairs of counted elements in which the first has the lower level, of the first's ``worth``: [query].

    float64, as ``worth`` [query, element], which is 0 for elements that are not counted.

    The levels of such a pair agree in their upper binary digits. At the first digit that differs, the earlier element
    has 0 and the later one 1. So one pass for each digit counts all pairs, over elements grouped by the digits above.
    """
    highest = level.shape[1] - 1
    if level.is_cpu:  # most data has few grades
        highest = int(level.max()) if level.numel() else 0
    total = torch.zeros_like(worth[:, 0])
    if highest <= FEW_LEVELS:
        for lower in range(highest):
            so_far = running_sum(only(level == lower, worth))
            total = total + only(counted & (level > lower), so_far).sum(-1)
        return total
    for digit in range(highest.bit_length()):
        upper = level >> (digit + 1)
        # Stable: within a group the elements stay in the order of the row.
        order = by_key(upper)
        has = ((level >> digit) & 1).gather(-1, order) > 0
        real = counted.gather(-1, order)
        earlier = torch.where(has, 0, worth.gather(-1, order))
        so_far = torch.nn.functional.pad(running_sum(earlier), (1, 0))
        # The worth of elements with digit 0 before each element, less that of elements before its group.
        ahead = so_far[:, :-1] - so_far.gather(-1, run_bounds(run_starts(upper.gather(-1, order)))[0])
        total = total + only(real & has, ahead).sum(-1)
    return total
