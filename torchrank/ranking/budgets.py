"""Cutoffs by cost: the ranks that a budget pays for, also where the order of tied candidates decides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrank.hardware.devices import running_sum
from torchrank.layouts.canonical import BLOCK
from torchrank.names.labels import quantity_of
from torchrank.ranking.ranking import FURTHER, Ranking, only, run_starts

#: Sets of tied candidates, or orders of them, that are tried for a query: all sets of up to 11 candidates. If more than
#: 1,024 candidates are tied, fewer orders are tried: at most MOST candidates of all orders bound time and memory.
DRAWS, MOST = 2**11, 2**21

#: Sums of costs have rounding errors, so a budget pays for a little more.
SLACK = 1 + 1e-9


class Cut(NamedTuple):
    """Where a budget ends in each list."""

    #: int64 [query, 1]: number of candidates in the tie groups that the budget pays for
    number: Tensor
    #: float64 [query, 1]: what it leaves of the budget
    left: Tensor
    #: bool [query, entry]: the tie group that it does not pay for
    group: Tensor

    @classmethod
    def of(cls, ranking: Ranking, budget: float) -> Cut:
        assert ranking.costs is not None
        retrieved = ranking.tied > 0
        spent = running_sum(torch.where(retrieved, ranking.costs, math.inf))
        last = (ranking.first + ranking.tied - 2).long().clamp_min(0)  # columns are ranks: all candidates are entries
        paid = retrieved & (spent.gather(-1, last) <= budget * SLACK)
        number = paid.sum(-1, keepdim=True)
        left = budget * SLACK - torch.nn.functional.pad(spent, (1, 0)).gather(-1, number)
        first = ranking.first.gather(-1, number.clamp_max(spent.shape[1] - 1))
        return cls(number, left, retrieved & ~paid & (ranking.first == first))


def cutoffs(ranking: Ranking, quantity: str, label: str) -> tuple[Tensor, Tensor]:
    """The cutoff of each query for "10%" or "2000tok", float64 [query]; and whether ties decide it, bool [query].

    A budget ends the list before the first rank that costs too much. Ties decide a cutoff if it depends on the order of
    tied candidates. ``label`` is the metric's.
    """
    wanted, unit = quantity_of(quantity)
    if unit == "%":
        cuts = (ranking.num_candidates * wanted / 100 - 1e-9).ceil().clamp_min(1)
        if bool(cuts.isnan().any()):
            raise ValueError(f"Expected the lengths of all lists for {label}, got none; pass num_candidates")
        return cuts, torch.zeros_like(cuts, dtype=torch.bool)
    cost = ranking.costs
    if cost is None:
        raise ValueError(f"Expected a ranking with costs for {label}; pass Ranking.from_scores(..., cost=...)")
    number, left, group = Cut.of(ranking, wanted)
    left, number = left.squeeze(-1), number.squeeze(-1).to(left.dtype)
    least = torch.where(group, cost, math.inf).amin(-1)
    most = torch.where(group, cost, -math.inf).amax(-1)
    more = torch.where(least == most, (left / least).floor(), 0)
    return number + more, (least < most) & (least <= left)


def prefixes(ranking: Ranking, budget: float, ties: str) -> Iterator[tuple[Tensor, Tensor, Ranking]]:
    """The rankings that tied candidates can have up to the budget, for queries whose ties decide the cutoff.

    A budget pays for the first candidates of a tie group, a set S. Given S, all orders of S are equally likely. So a
    ranking has S as one tie group, and after it the rest of the group, which cannot be paid for.

    Yields:
        the query of each ranking, int64 [row]; its probability, float64 [row]; and the rankings [row].
    """
    if ties in ("optimistic", "pessimistic"):
        order = ranking.under(ties)
        yield torch.arange(order.num_queries, device=order.first.device), torch.ones_like(order.num_candidates), order
        return
    cut = Cut.of(ranking, budget)
    waiting: list[tuple[Tensor, Tensor, Tensor]] = []
    size = 0
    for found in itertools.chain(_sets(ranking, cut), [None]):
        if found is not None:
            waiting.append(found)
            size += found[2].numel()
        if waiting and (found is None or size >= BLOCK):
            query, chance, ahead = map(torch.cat, zip(*waiting))
            yield query, chance, _ahead(ranking.take(query), cut.group[query], ahead)
            waiting, size = [], 0


def _sets(ranking: Ranking, cut: Cut) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The sets of candidates of the tie group at the cut that the budget can pay for, in parts.

    For groups of n candidates with 2^n <= DRAWS each set S is tried. It is the first part of an order with probability
    1 / C(n, |S|), and then ends at the cut if the next candidate does not fit. For larger groups, random orders are
    tried, the same in every run: DRAWS of them, so that the standard error is at most 1 / (2 sqrt(DRAWS)), 1.1% of the
    range of values, or fewer, so that they have MOST candidates in all.

    Yields:
        the query of each set, int64 [row]; its probability, float64 [row]; and the set, bool [row, entry].
    """
    cost, device = ranking.costs, cut.group.device
    assert cost is not None
    # Candidates of one kind can stand for each other. A set is known by the sum of random numbers, one for each kind.
    if ranking.subtopics is None:
        kinds = ranking.grade.unique(return_inverse=True)[1]
    else:
        kinds = ranking.subtopics.flatten(0, 1).unique(dim=0, return_inverse=True)[1].view(cost.shape)
    random = torch.Generator("cpu").manual_seed(0)
    numbers = torch.randint(-(2**63), 2**63 - 1, (int(kinds.max()) + 1,), generator=random, device="cpu").to(device)
    sizes, orders = cut.group.sum(-1), torch.empty(0, 0, device="cpu")
    for n in sizes.unique().tolist():
        place = torch.arange(n, device=device)
        if every := 2**n <= DRAWS:
            sets = torch.arange(2**n, device=device).unsqueeze(-1)
            inside, with_next = (sets >> place) % 2 == 1, sets | 1 << place
        else:
            if orders.shape[1] < n:
                width = 1 << (n - 1).bit_length()
                orders = torch.rand(min(DRAWS, MOST // width), width, generator=random.manual_seed(0), device="cpu")
                orders = orders.argsort(dim=-1, stable=True)
            order = orders[orders < n].view(-1, n).to(device)
        for queries in (sizes == n).nonzero().squeeze(-1).split(max(1, BLOCK // (n * len(sets if every else order)))):
            column, left = cut.number[queries] + place, cut.left[queries]
            # In one order, whatever that of the candidates is.
            column = column.gather(1, kinds[queries].gather(1, column).argsort(stable=True))
            column = column.gather(1, cost[queries].gather(1, column).argsort(stable=True))
            price, key = cost[queries].gather(1, column), numbers[kinds[queries].gather(1, column)]
            if every:
                fits, number = price @ inside.to(price).T <= left, inside.sum(-1)
                chance = fits * (~fits[:, with_next]).sum(-1, dtype=price.dtype) / (n - number).clamp_min(1)
                chance = chance / price.new_tensor([math.comb(n, k) for k in range(n + 1)])[number]
                key = (inside * key.unsqueeze(1)).sum(-1)
            else:
                most = int((price.cumsum(-1) <= left).sum(-1).max())
                drawn = order[:, :most].reshape(-1)
                shape = len(queries), len(order), most
                fits = running_sum(price.index_select(1, drawn).view(shape)) <= left.unsqueeze(-1)
                number, chance = fits.sum(-1), price.new_full((len(queries), len(order)), 1 / len(order))
                key = only(fits, key.index_select(1, drawn).view(shape)).sum(-1)
            key, by = key.sort(dim=-1, stable=True)
            begins = run_starts(key)
            chance = chance.gather(1, by).flatten()
            chance = chance.new_zeros(int(begins.sum())).index_add_(0, begins.flatten().cumsum(0) - 1, chance)
            possible = (chance > 0).nonzero().squeeze(-1)
            row, by = begins.nonzero()[:, 0], by[begins]
            for some in possible.split(max(1, BLOCK // cost.shape[1])):
                drawn, which = row[some], by[some]
                chosen = inside[which] if every else order[which].argsort(-1) < number[drawn, which].unsqueeze(-1)
                ahead = torch.zeros_like(cut.group[drawn]).scatter(1, column[drawn], chosen)
                yield queries[drawn], chance[some], ahead


def _ahead(ranking: Ranking, group: Tensor, ahead: Tensor) -> Ranking:
    """A ranking in which some candidates of a tie group, ``ahead`` of the others, are all that a budget pays for."""
    assert ranking.costs is not None
    number = ahead.sum(-1, keepdim=True).to(ranking.first)
    first = ranking.first + number * (group & ~ahead)
    tied = torch.where(ahead, number, ranking.tied - number * group)
    cost = torch.where(ahead, 0.0, ranking.costs.masked_fill(group, math.inf))
    rest: dict[str, Any] = {name: getattr(ranking, name) for name in FURTHER} | {"costs": cost, "placed": True}
    fields = (ranking.grade, ranking.valid, ranking.num_candidates, ranking.errors, ranking.depth)
    return replace(ranking.in_rank_order(first, tied, *fields, **rest), intents=ranking.intents, complete=True)
