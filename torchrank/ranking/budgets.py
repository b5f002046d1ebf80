"""Costs of candidates, and the ranks that a budget pays for."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchrank.hardware.devices import running_sum, widened
from torchrank.layouts.arrange import Batch
from torchrank.layouts.checks import check_tensor
from torchrank.ranking.entries import run_bounds, run_starts

#: the most tied candidates at the end of a budget whose orders are tried, 720 of them
MOST_TIED = 6


@dataclass(frozen=True, eq=False)
class Costs:
    """The cost of each candidate of some queries of a batch."""

    #: scores [query, candidate] and all else of the batch
    batch: Batch
    #: float64 [query, candidate]; infinite for what is no candidate
    cost: Tensor
    #: int64 [query]: the queries of the batch
    rows: Tensor

    @classmethod
    def of(cls, batch: Batch, cost: object) -> Costs:
        """The costs of scores [query, candidate]; ``cost`` is in the shape of the scores, or [candidate].

        Raises:
            ValueError: costs have another shape, or one is negative or NaN.
        """
        scores, cost = batch.preds, widened(check_tensor(cost, "cost").detach().to(batch.preds.device))
        if cost.shape not in (scores.shape, scores.shape[1:]):
            raise ValueError(f"Expected cost in the shape of preds {list(scores.shape)}, got {list(cost.shape)}")
        if not bool((cost >= 0).all()):
            raise ValueError("Expected costs >= 0, got a negative one or NaN; set the cost of padding to 0")
        listed = scores > -math.inf if batch.mask is None else (scores > -math.inf) & batch.mask
        return cls(batch, torch.where(listed, cost, math.inf), torch.arange(len(scores), device=scores.device))

    def __getitem__(self, rows: Tensor | slice) -> Costs:
        return replace(self, rows=self.rows[rows])

    def cutoffs(self, budget: float) -> tuple[Tensor, Tensor]:
        """The number of ranks whose costs add up to at most ``budget``, and whether the order of ties decides.

        float64 and bool [query].
        """
        order, starts = self._order()
        cost = self.cost[self.rows].gather(-1, order)
        spent, (start, stop) = running_sum(cost), run_bounds(starts)
        affordable = spent.gather(-1, stop - 1) <= budget  # tie groups that fit whatever their order
        number = affordable.sum(-1, keepdim=True)
        paid = torch.nn.functional.pad(spent, (1, 0)).gather(-1, number)
        cut = start == start.gather(-1, number.clamp_max(start.shape[1] - 1))  # the group that does not fit
        least, most = cost.masked_fill(~cut, math.inf).amin(-1), cost.masked_fill(~cut, -math.inf).amax(-1)
        left, number = budget - paid.squeeze(-1), number.squeeze(-1).to(cost.dtype)
        ends = number == start.shape[1]
        more = torch.where(ends | (least == 0), 0, (left / least).floor())
        return number + torch.where(least == most, more, 0), ~ends & (least < most) & (least <= left)

    def _order(self) -> tuple[Tensor, Tensor]:
        """The candidates of each query, best first, and where a tie group starts: int64 and bool [query, candidate]."""
        scores = self.batch.preds[self.rows].masked_fill(self.cost[self.rows].isinf(), -math.inf)
        tie = torch.zeros_like(scores) if self.batch.tie_break is None else self.batch.tie_break[self.rows]
        by_tie = tie.argsort(dim=-1, descending=True, stable=True)
        values, order = scores.gather(-1, by_tie).sort(dim=-1, descending=True, stable=True)
        order = by_tie.gather(-1, order)
        return order, run_starts(values) | run_starts(tie.gather(-1, order))

    def orders(self, query: int, budget: float) -> list[dict[str, Any]] | None:
        """Arguments of a ranking of one query, for each order of the ties that the budget cuts; None if too many."""
        single = self[query : query + 1]
        order, starts = single._order()
        start, stop = run_bounds(starts)
        total = running_sum(single.cost[single.rows].gather(-1, order)).gather(-1, stop - 1)
        first = int((total <= budget).sum())
        last = int(stop[0, first])
        if last - first > MOST_TIED:
            return None
        row = int(single.rows)
        batch, cost = self.batch.rows(row, row + 1), self.cost[row : row + 1].nan_to_num(posinf=0)
        arguments = {"preds": batch.preds, "target": batch.target, "mask": batch.mask, "cost": cost}
        group = torch.empty_like(start[0]).scatter_(0, order[0], start[0])  # of each candidate; its ties stay
        places = torch.tensor([*itertools.permutations(range(first, last))], device=group.device)
        broken = -group.repeat(len(places), 1)
        broken[:, order[0, first:last]] = -places
        return [{**arguments, "tie_break": tie_break} for tie_break in broken.split(1)]
