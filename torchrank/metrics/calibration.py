"""Calibration: whether recommended lists have the genres of the users' histories, in the same proportions."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from torchrank.formulas.concordance import LOGARITHMIC, difference
from torchrank.metrics.item_groups import GroupMetric, distribution
from torchrank.metrics.item_lists import PerUserMetric, Recommended
from torchrank.metrics.rank_discount import Discount
from torchrank.names.parameters import number, one_of

__all__ = ["Miscalibration"]


class Miscalibration(GroupMetric, PerUserMetric):
    r"""Miscalibration: how far the genres of a list are from the genres of the user's history.

    :math:`KL(p, \tilde q) = \sum_g p_g \ln \frac{p_g}{\tilde q_g}` with
    :math:`\tilde q = (1 - \alpha) q + \alpha p`. The share of genre g in the history H is
    :math:`p_g \propto \sum_{i \in H} v_i \, s_{i,g}`, in the list L :math:`q_g \propto \sum_{i \in L} w(rank_i) \,
    s_{i,g}`. Here :math:`s_{i,g}` is the share of item i in genre g, :math:`v_i` the weight of an item in the history
    and w the discount. :math:`\alpha` keeps the value finite for genres that the list lacks. 0 is perfect calibration.

    ``update`` takes the history of each user as ``target``: ids of items, all of weight 1, or (query, item, weight)
    triples. So the metric belongs to another collection than measures of relevant items. Items of the history that
    ``exclude`` names stay candidates, as relevant items do: remove them from the lists instead. A list or a history
    without an item of a genre is left out.

    Source:
        Steck, Calibrated recommendations, RecSys 2018: "kl".

    Args:
        distance: "kl"; or "js", the Jensen-Shannon divergence, "hellinger" or "tv", the total variation, of p and q.
        alpha: the share of the history in :math:`\tilde q`, of "kl" only; > 0 and < 1.
        log_base: the base of the logarithm of "kl" and "js", >= 2; math.e by default.

    Raises:
        TypeError, ValueError: ``groups`` has a wrong shape, dtype or value, or a parameter is out of range.

    Example:
        >>> import torch, torchrank as tr
        >>> genres = torch.tensor([[1, 0], [1, 1], [0, 1], [0, 1]], dtype=torch.bool)
        >>> history = [torch.tensor([0, 2]), torch.tensor([0, 3])]  # both half and half
        >>> tr.Miscalibration(groups=genres).score(torch.tensor([[1, -1], [2, 3]]), history)
        tensor([0.0000, 1.9585], dtype=torch.float64)
    """

    name = "miscalibration"
    value_range = (0.0, math.inf)
    higher_is_better = False
    needs_target = True

    discount: Discount = "none"
    distance: Literal["kl", "js", "tv", "hellinger"] = one_of(default="kl")
    alpha: float = number(default=0.01, above=0, below=1)
    log_base: float = number(default=math.e, least=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distance != "kl" and self.alpha != 0.01:
            raise ValueError(f"Expected alpha only with distance='kl', got {self.alpha} with {self.distance!r}")
        if self.distance not in LOGARITHMIC and self.log_base != math.e:
            raise ValueError(
                f"Expected log_base only with distance='kl' or 'js', got {self.log_base} with {self.distance!r}"
            )

    def of_target(self, items: Tensor, grade: Tensor) -> Tensor:
        weights = torch.where(items >= 0, grade, torch.zeros_like(grade)).clamp_min(0).to(self.groups.dtype)
        return self.by_group(items.clamp_min(0), weights)

    def empty(self, lists: Recommended) -> Tensor:
        return super().empty(lists) | (lists.from_target.sum(-1) == 0)

    def measure(self, lists: Recommended) -> Tensor:
        history, shown = distribution(lists.from_target), distribution(self.attention_by_group(lists))
        if self.distance == "kl":
            shown = (1 - self.alpha) * shown + self.alpha * history
        return difference(self.distance, history, shown, self.log_base)
