"""Measures of ranked lists whose items cost time or attention, judged or not: the gain falls with the cost so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.gains import gain_of
from torchrank.hardware.devices import running_sum
from torchrank.metrics.item_data import item_numbers
from torchrank.metrics.item_lists import Catalogue, PerUserMetric, Recommended
from torchrank.metrics.user_models import BoundedGain, UserModel
from torchrank.names.parameters import described, fixed, number, one_of
from torchrank.names.types import Described

__all__ = ["TBG", "CWLCost", "UMeasure"]


class CostMetric(PerUserMetric):
    """A measure of ranked ids, their grades, and a number for each item of the catalogue.

    An empty list has a value, too. A list without a relevant item counts like any other.
    """

    value_range = (0.0, math.inf)
    needs_target = True
    fewest = 0

    def describe(self, **catalogue: Tensor) -> tuple[Catalogue, int]:
        ((name, numbers),) = catalogue.items()
        numbers = item_numbers(name, numbers)
        return {name: numbers}, len(numbers)


class TBG(CostMetric):
    r"""Time-biased gain: the gain of relevant items, which falls with the time to reach them.

    :math:`\sum_{i \le k} rel_i \, c_1 \, s \, 2^{-t_i / h}`. A user reads the summary at each rank. The user clicks it
    with probability :math:`c_1` if the item is relevant, else :math:`c_0`, and saves a relevant item that was clicked
    with probability s. So the user reaches rank i at the time :math:`t_i = \sum_{j < i} T_s + c_j (a \, l_j + b)`. Here
    :math:`T_s` is the time to read a summary, and :math:`l_j` the number of words of an item. Reading takes the time a
    for each word, and b for each item. The half-life h is the time after which half of the users have stopped.

    The lists are ranked ids, because the time to reach an item depends on all items above it, judged or not. So there
    are no ties. The times of the paper are in seconds. It lets duplicates of items above take no time and gain nothing;
    remove them from the lists and judgments. The measure has no upper bound that is common to all queries. A list
    without a relevant item scores 0, also an empty one.

    Source:
        Smucker and Clarke, Time-based calibration of effectiveness measures, SIGIR 2012.

    Args:
        lengths: [item], the number of words of each item; >= 0.
        half_life: h, > 0.
        seconds_per_summary: :math:`T_s`, >= 0.
        seconds_per_word: a, >= 0.
        seconds_per_item: b, >= 0.
        click_relevant: :math:`c_1`, from 0 to 1.
        click_other: :math:`c_0`, from 0 to 1.
        save: s, from 0 to 1.
        relevance_level: a grade at or above it is relevant; > 0. Ids without grades have grade 1.

    Raises:
        ValueError: ``lengths`` is not a 1-D tensor of finite numbers >= 0, or an argument is out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.TBG(lengths=torch.tensor([500.0, 1000.0]))
        >>> metric.score(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 1]))  # 0.4928 * 2 ** (-t / 224), t = 10.952
        tensor([0.4764, 0.4928], dtype=torch.float64)
    """

    name = "tbg"

    lengths: Described[Tensor] = described()
    half_life: float = number(default=224, above=0)
    seconds_per_summary: float = number(default=4.4, least=0)
    seconds_per_word: float = number(default=0.018, least=0)
    seconds_per_item: float = number(default=7.8, least=0)
    click_relevant: float = number(default=0.64, least=0, most=1)
    click_other: float = number(default=0.39, least=0, most=1)
    save: float = number(default=0.77, least=0, most=1)
    relevance_level: float = number(default=1, above=0)

    def measure(self, lists: Recommended) -> Tensor:
        relevant = _graded_from(lists, self.relevance_level)
        reading = self.seconds_per_word * self.lengths[lists.ids].to(lists.dtype) + self.seconds_per_item
        clicked = torch.where(relevant, self.click_relevant * reading, self.click_other * reading)
        seconds = torch.where(lists.is_item, self.seconds_per_summary + clicked, 0.0)
        reached = running_sum(seconds) - seconds
        gain = self.click_relevant * self.save * torch.exp2(-reached / self.half_life)
        return torch.where(relevant, gain, 0.0).sum(-1)


class UMeasure(CostMetric):
    r"""U-measure: the gain of relevant items, which falls linearly with the text that was read before.

    :math:`\sum_{i \le k} gain_i \, \max(0, 1 - pos_i / L)`. A user reads a snippet at each rank, and of
    each relevant item a share of its text, which has :math:`l_i` characters. So
    :math:`pos_i = \sum_{j \le i} snippet + rel_j \, read \, l_j` characters are read at the end of rank i. After L
    characters nothing gains.

    The lists are ranked ids, because the position of an item depends on all items above it, judged or not. So there are
    no ties. The value is not normalised. A list without a relevant item scores 0, also an empty one.

    Source:
        Sakai and Dou, Summaries, ranked retrieval and sessions: a unified framework for information access evaluation,
        SIGIR 2013.

    Args:
        lengths: [item], the number of characters of each item; >= 0.
        patience: L, the number of characters after which reading gains nothing, > 0.
        snippet: the number of characters that are read of every item; >= 0.
        read: the share of the text that is read of a relevant item, from 0 to 1.
        gain: from the grade of a relevant item to its gain: "exponential", 2 ** grade - 1; "linear", the grade itself;
            or a callable with a name, from float64 grades to gains.
        relevance_level: a grade at or above it is relevant; > 0. Ids without grades have grade 1.

    Raises:
        ValueError: ``lengths`` is not a 1-D tensor of finite numbers >= 0, or an argument is unknown or out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.UMeasure(lengths=torch.tensor([4000.0, 8000.0]), patience=10_000)
        >>> metric.score(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 1]))  # 1 - 2000 / L and 1 - 1800 / L
        tensor([0.8000, 0.8200], dtype=torch.float64)
    """

    name = "umeasure"

    lengths: Described[Tensor] = described()
    patience: float = number(default=132_000, above=0)
    snippet: float = number(default=200, least=0)
    read: float = number(default=0.2, least=0, most=1)
    gain: Literal["linear", "exponential"] | Callable[[Tensor], Tensor] = one_of(default="exponential")
    relevance_level: float = number(default=1, above=0)

    def measure(self, lists: Recommended) -> Tensor:
        relevant = _graded_from(lists, self.relevance_level)
        text = torch.where(relevant, self.read * self.lengths[lists.ids].to(lists.dtype), 0.0)
        position = running_sum(torch.where(lists.is_item, self.snippet + text, 0.0))
        gain = gain_of(self.gain)(lists.grade.to(lists.dtype))
        return torch.where(relevant, gain * (1 - position / self.patience).clamp_min(0), 0.0).sum(-1)


class CWLCost(UserModel, BoundedGain, CostMetric):
    r"""Expected cost of a user in the C/W/L framework, per candidate or in total: :math:`\sum_i W_i \, cost_i`.

    The probability :math:`V_i` to see rank i and the share of attention :math:`W_i` follow from the gains, as in
    :class:`CWL`. Its users are known here as well. ``of`` is the number to report:

    - "cost": the expected cost (EC) per candidate, :math:`\sum_i W_i \, cost_i`.
    - "total_cost": the expected total cost (ETC), :math:`\sum_i V_i \, cost_i`.

    The lists are ranked ids, because every item that the user sees has a cost, judged or not. So there are no ties.
    The gains of the same lists are those of :class:`CWL`.

    Source:
        Moffat, Bailey, Scholer and Thomas, Incorporating user expectations and behavior into the measurement of search
        effectiveness, ACM TOIS 35(3), 2017; Azzopardi, Thomas and Moffat, cwl_eval, SIGIR 2019.

    Args:
        top_k: number of ranks that a user can see, at most 262,144; None = 1000.
        costs: [item], the cost of each item; >= 0.
        of: the number to report: "cost" or "total_cost".
        behind: the cost of a rank behind the end of the list, >= 0.
        user: a name from the table of :class:`CWL`, or a callable with a name.
        p: probability to go on for "rbp" and "nerr10", > 0 and < 1.
        target: the total gain that is the aim of "insq", "inst", "bpm" and "nerr11", > 0.
        benefit, middle: the effect of gains on the target of "bpm".
        relevance_level: a grade at or above it is relevant; > 0. Ids without grades have grade 1.

    Raises:
        ValueError: ``costs`` is not a 1-D tensor of finite numbers >= 0, or an argument is unknown or out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.CWLCost(3, costs=torch.tensor([1.0, 4.0, 2.0]), user="rr")
        >>> metric.score(torch.tensor([[0, 1, 2]]), torch.tensor([1]))  # the user stops at item 1: (1 + 4) / 2
        tensor([2.5000], dtype=torch.float64)
    """

    name = "cwlcost"
    higher_is_better = False

    costs: Described[Tensor] = described()
    of: Literal["cost", "total_cost"] = one_of(default="cost")
    behind: float = number(default=1, least=0)
    cost: float = fixed(0.0, "which cuts lists at top_k")

    def width(self, lists: Recommended) -> int:
        # A user can go on behind the end of the list: there are some tables [query, rank].
        return 4 * -(-self.ranks // lists.ids.shape[1])

    def measure(self, lists: Recommended) -> Tensor:
        gain = self.by_rank(lists, self.gain_function(lists.grade.to(lists.dtype)).clamp(0, 1), 0.0)
        cost = self.by_rank(lists, self.costs[lists.ids].to(lists.dtype), self.behind)
        seen = self.seen(gain)
        total = (seen * cost).sum(-1)
        return total / seen.sum(-1) if self.of == "cost" else total

    def by_rank(self, lists: Recommended, x: Tensor, behind: float) -> Tensor:
        """``x`` [query, position] at the ranks 1 to ``ranks``, and ``behind`` at ranks without an item."""
        # The last column absorbs positions without an item and ranks that no user sees.
        column = torch.where(lists.is_item, lists.rank - 1, self.ranks).clamp_max(self.ranks)
        return x.new_full((len(x), self.ranks + 1), behind).scatter(1, column, x)[:, :-1]


def _graded_from(lists: Recommended, level: float) -> Tensor:
    """Relevant items: bool [query, position]."""
    return lists.is_item & (lists.grade >= level)
