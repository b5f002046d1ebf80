"""Expected reciprocal rank: a reader goes down the list and stops at a satisfying candidate."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.cascades import Reader
from torchrank.formulas.gains import RECIPROCAL, UNDISCOUNTED, Satisfying, Scaled
from torchrank.hardware.devices import running_sum
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.names.parameters import number, one_of
from torchrank.ranking.intervals import only, ratio
from torchrank.ranking.ranking import Gain, Ranking, cached

__all__ = ["ERR", "NERR"]


class ERR(RankingMetric):
    r"""Expected reciprocal rank: :math:`\sum_{i \le k} \frac{1}{i} R_i \prod_{j < i} (1 - R_j)`.

    The reader stops at a candidate with probability :math:`R = (2^{grade} - 1) / 2^{max\_grade}`, or, with
    ``gain="linear"``, :math:`R = grade / max\_grade`. Grades above ``max_grade`` count as ``max_grade``, because no
    probability exceeds 1. Under ``ties="expected"`` it is the exact
    mean over all orders of the tied candidates. On an accelerator this takes one pass for each candidate of a list,
    because reading the sizes of tie groups would make the host wait.

    Source:
        Chapelle, Metzler, Zhang and Grinspan, Expected reciprocal rank for graded relevance, CIKM 2009.

    Args:
        max_grade: the largest possible grade, not only of this batch; > 0.
        gain: "exponential" or "linear", from a grade to the probability that the reader stops. Grades that are
            probabilities, as in CatBoost, need ``gain="linear", max_grade=1``.

    Raises:
        ValueError: ``max_grade`` is not a number > 0, or ``gain`` is unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.ERR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 4, 0]]))  # 1/16 + 1/2 15/16 15/16
        tensor([0.5020], dtype=torch.float64)
    """

    name = "err"
    monotone_behind = True

    max_grade: float = number(default=4, above=0)
    gain: Literal["exponential", "linear"] = one_of(default="exponential")

    @property
    def gain_function(self) -> Gain:
        """The function from grades to the probability that the reader stops."""
        return Scaled(self.max_grade) if self.gain == "linear" else Satisfying(self.max_grade)

    def need(self) -> Need:
        return Need(self.top_k, relevant=True)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.ideal(self.gain_function, UNDISCOUNTED, 1) == 0

    def measure(self, ranking: Ranking) -> Tensor:
        if ranking.untied:
            return ranking.sum_up_to(self.top_k, _stopping, self.gain_function)
        return _reader(ranking, self.gain_function).stopped(self.top_k)


@cached
def _reader(ranking: Ranking, gain: Gain) -> Reader:
    """A reader of a ranking with ties."""
    return Reader(ranking, ranking.gains(gain), RECIPROCAL)


@cached
def _stopping(ranking: Ranking, gain: Gain) -> Tensor:
    """Probability to stop at each entry, times 1 / rank, in a ranking without ties: float64 [query, entry]."""
    return _stops(only(ranking.retrieved(), ranking.gains(gain))) * ranking.mean_discount(RECIPROCAL, None)


@cached
def _ideal_running(ranking: Ranking, gain: Gain) -> Tensor:
    """ERR of the ideal order at the cutoffs 1, 2, ...: float64 [query, rank]."""
    chance = ranking.ideal_order(gain, None)
    return running_sum(_stops(chance) / torch.arange(1, chance.shape[1] + 1, dtype=chance.dtype, device=chance.device))


def _stops(chance: Tensor) -> Tensor:
    """Probability to stop at each rank, [query, rank], from the chance to stop there once it is reached."""
    passed = (1 - chance).cumprod(-1)
    passed[:, 1:] = passed[:, :-1].clone()
    passed[:, :1] = 1
    return passed * chance


class NERR(ERR):
    r"""Normalised expected reciprocal rank.

    :math:`nERR@k = \frac{1}{IERR@k} \sum_{i \le k} \frac{1}{i} R_i \prod_{j < i} (1 - R_j)`. This is :class:`ERR`
    divided by IERR, the ERR of the best order of all judged candidates, retrieved or not, cut at k. The best order is
    by descending grade. The reader stops at a candidate with probability R, as for :class:`ERR`.

    Source:
        Clarke, Craswell, Soboroff and Ashkan, A comparative analysis of cascade measures for novelty and diversity,
        WSDM 2011, in which ERR is divided by its value for an ideal list.

    Args:
        max_grade: the largest possible grade; see :class:`ERR`.

    Example:
        >>> import torch, torchrank as tr
        >>> tr.NERR().score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[0, 4, 0]]))
        tensor([0.5000], dtype=torch.float64)
    """

    name = "nerr"
    monotone_behind = True

    def measure(self, ranking: Ranking) -> Tensor:
        value = super().measure(ranking)  # first, because the ideal order takes as much memory as the ranking
        ideal = _ideal_running(ranking, self.gain_function)[:, : self.top_k]
        return ratio(value, ideal[:, -1:].sum(-1))
