"""Expected exposure of candidates under a distribution over rankings, compared with an ideal one."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from torchrank.hardware.devices import running_sum
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.rank_discount import Discount, RankDiscount
from torchrank.names.types import EmptyAction
from torchrank.ranking.intervals import ratio
from torchrank.ranking.ranking import Ranking, run_bounds, run_starts

__all__ = ["EED", "EEL", "EER"]


class ExpectedExposureMetric(RankDiscount, RankingMetric):
    r"""Base of the measures of expected exposure.

    The exposure :math:`\epsilon_d` of candidate d is the expected discount of its rank over a distribution of rankings.
    Under ``ties="expected"`` a tie is such a distribution: all orders of the tie group, equally likely. The target
    :math:`\epsilon^*_d` is the exposure in an ideal distribution: candidates in descending order of grade, and all
    orders of candidates with equal grades equally likely. Unjudged candidates have grade 0. The target is over
    candidates that are retrieved or have a grade above 0; the others are not candidates.

    Several sampled rankings of one query are not ties. Their mean exposure goes into ``of_exposure``.

    Args:
        top_k: count only the first ``top_k`` ranks: ranks behind it have no exposure, in the target too.
        kwargs: ``ties``, ``empty_target_action`` ("skip" by default), ``aggregation``, ``validate_args``: as
            :class:`RankingMetric`.

    Raises:
        ValueError: an unknown discount, or a patience out of range.
    """

    value_range = (0.0, math.inf)
    takes_unjudged_for = ("irrelevant", "condensed")

    empty_target_action: EmptyAction = "skip"
    discount: Discount = "geometric"

    def need(self) -> Need:
        # The exposure of irrelevant candidates counts, also of those that a layout does not name.
        return Need(all_candidates=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return ~(ranking.valid & (ranking.grade > 0)).any(-1)

    def measure(self, ranking: Ranking) -> Tensor:
        candidates = ranking.valid & ((ranking.tied > 0) | (ranking.grade > 0))
        exposure = ranking.mean_discount(self.discount_function, self.top_k)
        return self.of_exposure(exposure, ranking.grade, candidates)

    def of_exposure(self, exposure: Tensor, grade: Tensor, mask: Tensor | None = None) -> Tensor:
        """The value of given exposures, such as means over sampled rankings: float64 [query].

        Args:
            exposure: floating [query, candidate], the expected discount of each candidate.
            grade: [query, candidate]; negative = unjudged, as 0.
            mask: bool [query, candidate], False for padding.

        Example:
            >>> import torch, torchrank as tr
            >>> ranks = torch.tensor([[[1, 2, 3], [2, 3, 1]]])  # [query, sample, candidate]
            >>> exposure = (0.5 ** (ranks.double() - 1)).mean(1)
            >>> tr.EED(patience=0.5).of_exposure(exposure, torch.tensor([[1, 0, 1]]))  # 0.75**2 + 0.375**2 + 0.625**2
            tensor([1.0938], dtype=torch.float64)
        """
        there = torch.ones_like(exposure, dtype=torch.bool) if mask is None else mask
        exposure = torch.where(there, exposure.to(torch.promote_types(exposure.dtype, torch.float32)), 0.0)
        target = target_exposure(grade, there, self.discount_function, self.top_k, exposure)
        return self.compare(exposure, target)

    def compare(self, exposure: Tensor, target: Tensor) -> Tensor:
        """The formula: float64 [query], from exposures of candidates, [query, candidate] each."""
        raise NotImplementedError


def target_exposure(
    grade: Tensor, mask: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None, like: Tensor
) -> Tensor:
    """Exposure if candidates are in descending order of grade, and equal grades in random order.

    Returns:
        [query, candidate], with the dtype of ``like``; 0 where ``mask`` is False.
    """
    key = torch.where(mask, grade.to(like.dtype).clamp_min(0), -1.0)
    ordered, order = key.sort(dim=-1, descending=True, stable=True)
    start, stop = run_bounds(run_starts(ordered))
    ranks = torch.arange(1, key.shape[1] + 1, dtype=like.dtype, device=key.device)
    seen = discount(ranks) if top_k is None else torch.where(ranks <= top_k, discount(ranks), 0.0)
    sums = torch.nn.functional.pad(running_sum(seen), (1, 0))
    mean = ratio(sums.take(stop) - sums.take(start), (stop - start).to(like.dtype))
    return torch.where(mask, torch.zeros_like(like).scatter(-1, order, mean), 0.0)


class EEL(ExpectedExposureMetric):
    r"""Expected exposure loss, EE-L: the squared distance of the exposures of candidates from their targets.

    :math:`\sum_d (\epsilon_d - \epsilon^*_d)^2`. :math:`\epsilon_d` is the exposure of candidate d, and
    :math:`\epsilon^*_d` its target: its exposure if the candidates are in descending order of grade, and all orders of
    candidates with equal grades are equally likely. The loss equals EE-D - 2 EE-R plus a constant of the query. It is 0
    if candidates of equal grade share the ranks that their grade earns. A single order of several relevant candidates
    has a loss, because it prefers some of them. The paper's cascade model, in which relevant candidates reduce the
    exposure of later ones, is not available.

    Source:
        Diaz, Mitra, Ekstrand, Biega and Carterette, Evaluating stochastic rankings with expected exposure, CIKM 2020.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        discount: "geometric", the user of :class:`RBP`; "log2", "clipped", "reciprocal", "none" or a callable.
        patience: the probability that the user goes on to the next rank, > 0 and <= 1.

    Raises:
        ValueError: an unknown discount, or a patience out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, grades = torch.tensor([[0.9, 0.9, 0.1], [0.9, 0.8, 0.1]]), torch.tensor([[1, 1, 0], [1, 1, 0]])
        >>> tr.EEL().score(scores, grades)  # a tie shares the exposure, an order does not: 2 * 0.25**2
        tensor([0.0000, 0.1250], dtype=torch.float64)
    """

    name = "eel"
    higher_is_better = False

    def compare(self, exposure: Tensor, target: Tensor) -> Tensor:
        return (exposure - target).square().sum(-1)


class EED(ExpectedExposureMetric):
    r"""Expected exposure disparity, EE-D: how unevenly exposure is spread over candidates, :math:`\sum_d \epsilon_d^2`.

    :math:`\epsilon_d` is the exposure of candidate d. A fixed order has the largest value, and a tie of all candidates
    the smallest. Grades have no effect, except that queries without a relevant candidate are skipped, as for
    :class:`EEL`.

    Source:
        Diaz, Mitra, Ekstrand, Biega and Carterette, Evaluating stochastic rankings with expected exposure, CIKM 2020.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        discount: "geometric", the user of :class:`RBP`; "log2", "clipped", "reciprocal", "none" or a callable.
        patience: the probability that the user goes on to the next rank, > 0 and <= 1.

    Raises:
        ValueError: an unknown discount, or a patience out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> scores, grades = torch.tensor([[0.9, 0.9], [0.9, 0.8]]), torch.tensor([[1, 0], [1, 0]])
        >>> tr.EED().score(scores, grades)  # 2 * 0.75**2 and 1 + 0.5**2
        tensor([1.1250, 1.2500], dtype=torch.float64)
    """

    name = "eed"
    higher_is_better = False

    def compare(self, exposure: Tensor, target: Tensor) -> Tensor:
        return exposure.square().sum(-1)


class EER(ExpectedExposureMetric):
    r"""Expected exposure relevance, EE-R: how much exposure goes where the target has it.

    :math:`\sum_d \epsilon_d \, \epsilon^*_d`. :math:`\epsilon_d` is the exposure of candidate d, and
    :math:`\epsilon^*_d` its target, as in :class:`EEL`. It is linear in the exposure, so the mean over sampled rankings
    is exact.

    Source:
        Diaz, Mitra, Ekstrand, Biega and Carterette, Evaluating stochastic rankings with expected exposure, CIKM 2020.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        discount: "geometric", the user of :class:`RBP`; "log2", "clipped", "reciprocal", "none" or a callable.
        patience: the probability that the user goes on to the next rank, > 0 and <= 1.

    Raises:
        ValueError: an unknown discount, or a patience out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.EER().score(torch.tensor([[0.9, 0.8]]), torch.tensor([[0, 1]]))  # 1 * 0.5 + 0.5 * 1
        tensor([1.], dtype=torch.float64)
    """

    name = "eer"

    def compare(self, exposure: Tensor, target: Tensor) -> Tensor:
        return (exposure * target).sum(-1)
