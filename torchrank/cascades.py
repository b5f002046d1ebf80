"""Readers who go down a list and may stop at each candidate: the piece that ERR, NRBP and alpha-DCG share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torchrank.engine.places import depth_of
from torchrank.lists import BLOCK
from torchrank.pieces import Pieces


def stopped(ranking: Pieces, go: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
    """The expected discount of the rank at which a reader stops, 0 for one who passes all of them.

    With S_i the chance to go on past the first i ranks, which are independent of each other, it is the sum over
    i <= ``top_k`` of discount(i) (S_{i-1} - S_i). In a block of tied candidates S is the mean over all orders:
    that over a set of j of them drawn at random.

    Args:
        ranking: with its ties as intervals, or settled.
        go: float64 [query, entry]: chance to go on past each; any other candidate lets everybody pass.
        discount: from ranks float64 to discounts.
        top_k: the last rank to look at; None = all.

    Returns:
        float64 [query].
    """
    stops = ranking.valid & (ranking.tied > 0) & (go < 1)
    go = torch.where(stops, go, 1.0)
    # A block ahead of another is passed as a whole, in whatever order it is.
    passed = torch.nn.functional.pad(go.cumprod(-1), (1, 0), value=1.0)
    reached = passed.gather(-1, ranking.runs()[0]) if not ranking.untied else passed[:, :-1]
    alone = torch.where(stops & (ranking.tied == 1), reached * (1 - go), 0.0)
    total = (alone * ranking.discounted(discount, top_k)).sum(-1)
    if ranking.untied:
        return total

    depth = ranking.depth
    if go.device.type == "cpu":  # where looking at values costs nothing
        depth = depth_of(ranking.first, torch.where(stops, ranking.tied, 0))
    ranks = depth if top_k is None else min(top_k, depth)
    crowded = stops & (ranking.tied > 1)
    step = max(1, BLOCK // 4 // ranks)
    at = discount(torch.arange(1, ranks + 1, dtype=go.dtype, device=go.device))
    parts = [total[:0]]
    for start in range(0, len(go), step):
        rows = slice(start, start + step)
        block = (ranking.first[rows], ranking.tied[rows], crowded[rows], reached[rows], go[rows])
        parts.append((_stopped_in_blocks(*block, ranks) * at).sum(-1))
    return total + torch.cat(parts)


def _stopped_in_blocks(first: Tensor, tied: Tensor, crowded: Tensor, reached: Tensor, go: Tensor, ranks: int) -> Tensor:
    """Chance to stop at each rank that belongs to a block of ties: float64 [query, rank].

    The mean m_j over all sets of j of n candidates of the product of their chances to go on follows from that without
    the last of them, of which a set of j has its share: m_j = ((n - j) m'_j + j q m'_{j-1}) / n. All blocks of all
    queries take in one candidate at a time.
    """
    # What stands first among those of its block where a reader may stop leads to the others, which are next to it.
    fresh = crowded.clone()
    earlier = torch.nn.functional.pad(torch.where(crowded, first, 0.0).cummax(-1).values[:, :-1], (1, 0))
    fresh &= first > earlier
    number = crowded.cumsum(-1)
    slots = torch.zeros_like(first, dtype=torch.int64)[:, :1].expand(-1, ranks + 1)
    begins = torch.where(fresh, first - 1, ranks).clamp_max(ranks).long()
    entry = torch.arange(1, first.shape[1] + 1, device=first.device).expand_as(begins)
    leader = slots.scatter(1, begins, torch.where(fresh, entry, 0))[:, :ranks].cummax(-1).values
    at = (leader - 1).clamp_min(0)
    n = tied.gather(-1, at)
    j = torch.arange(1, ranks + 1, dtype=first.dtype, device=first.device) - first.gather(-1, at) + 1
    inside = (leader > 0) & (j <= n)
    n, j = torch.where(inside, n, 1), torch.where(inside, j, 1)

    # The entries of a block that let everybody pass stand between the others: those that matter, side by side.
    order = (~crowded).int().argsort(dim=-1, stable=True)
    going = go.gather(-1, order)
    rank_of_leader = (number.gather(-1, at) - 1).clamp_min(0)
    sizes = _sizes(fresh, crowded, number)
    size = torch.where(inside, sizes.gather(-1, at), 0)
    most = int(size.max()) if go.device.type == "cpu" and size.numel() else first.shape[1]
    mean = torch.ones_like(j)
    for taken in range(1, most + 1):
        q = going.gather(-1, (rank_of_leader + taken - 1).clamp_max(going.shape[1] - 1))
        so_many = n - size + taken
        one_less = torch.where(j == 1, 1.0, torch.nn.functional.pad(mean[:, :-1], (1, 0), value=1.0))
        share = (j / so_many.clamp_min(1)).clamp_max(1)
        mean = torch.where(taken <= size, (1 - share) * mean + share * q * one_less, mean)
    before = torch.where(j == 1, 1.0, torch.nn.functional.pad(mean[:, :-1], (1, 0), value=1.0))
    return torch.where(inside, reached.gather(-1, at) * (before - mean), 0.0)


def _sizes(fresh: Tensor, crowded: Tensor, number: Tensor) -> Tensor:
    """For each first entry of a block, how many of its entries are marked: int64 [query, entry]."""
    width = fresh.shape[1]
    position = torch.arange(width, device=fresh.device)
    # The next block begins at the nearest fresh entry behind; its number less one closes this one.
    ahead = torch.where(fresh, position, width).flip(-1).cummin(-1).values.flip(-1)
    after = torch.nn.functional.pad(ahead[:, 1:], (0, 1), value=width)
    last = torch.where(after < width, number.gather(-1, after.clamp_max(width - 1)) - 1, number[:, -1:])
    return torch.where(fresh, last - number + 1, 0)
