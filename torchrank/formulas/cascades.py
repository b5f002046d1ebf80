"""Readers who go down a list and may stop at each candidate: the piece that ERR, NRBP and alpha-DCG share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free
from torchrank.layouts.canonical import BLOCK
from torchrank.layouts.cutting import groups
from torchrank.ranking.derived import Derived
from torchrank.ranking.entries import depth_of

# From so many candidates times ranks in a list on, blocks are long.
LONG = 2**14


# A share of all chances that is left out.
TINY = 1e-16


def stopped(ranking: Derived, go: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
    """The expected discount of the rank at which a reader stops, 0 for one who passes all of them.

    With S_i the chance to go on past the first i ranks, which are independent of each other, it is the sum over
    i <= ``top_k`` of discount(i) (S_{i-1} - S_i). In a block of tied candidates S is the mean over all orders:
    that over a set of j of them drawn at random. In long blocks the number of candidates that would stop a reader
    leads to it, without the tails of its distribution: less than :data:`TINY` of the chance to stop.

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
    reached = passed.gather(-1, ranking.run_bounds()[0]) if not ranking.untied else passed[:, :-1]
    alone = torch.where(stops & (ranking.tied == 1), reached * (1 - go), 0.0)
    total = (alone * ranking.mean_discount(discount, top_k)).sum(-1)
    if ranking.untied:
        return total

    depth = ranking.depth
    if reading_is_free(go):
        depth = depth_of(ranking.first, torch.where(stops, ranking.tied, 0))
    ranks = depth if top_k is None else min(top_k, depth)
    crowded = stops & (ranking.tied > 1)
    if reading_is_free(go) and len(go) and int(crowded.sum(-1).max()) * ranks > LONG:
        return total + _stopped_in_long_blocks(ranking, crowded, reached, 1 - go, discount, top_k)
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
    run_starts = crowded.clone()
    earlier = torch.nn.functional.pad(torch.where(crowded, first, 0.0).cummax(-1).values[:, :-1], (1, 0))
    run_starts &= first > earlier
    number = crowded.cumsum(-1)
    slots = torch.zeros_like(first, dtype=torch.int64)[:, :1].expand(-1, ranks + 1)
    begins = torch.where(run_starts, first - 1, ranks).clamp_max(ranks).long()
    entry = torch.arange(1, first.shape[1] + 1, device=first.device).expand_as(begins)
    leader = slots.scatter(1, begins, torch.where(run_starts, entry, 0))[:, :ranks].cummax(-1).values
    at = (leader - 1).clamp_min(0)
    n = tied.gather(-1, at)
    j = torch.arange(1, ranks + 1, dtype=first.dtype, device=first.device) - first.gather(-1, at) + 1
    inside = (leader > 0) & (j <= n)
    n, j = torch.where(inside, n, 1), torch.where(inside, j, 1)

    # The entries of a block that let everybody pass stand between the others: those that matter, side by side.
    order = (~crowded).int().argsort(dim=-1, stable=True)
    going = go.gather(-1, order)
    rank_of_leader = (number.gather(-1, at) - 1).clamp_min(0)
    sizes = _sizes(run_starts, crowded, number)
    size = torch.where(inside, sizes.gather(-1, at), 0)
    most = int(size.max()) if reading_is_free(go) and size.numel() else first.shape[1]
    mean = torch.ones_like(j)
    for taken in range(1, most + 1):
        q = going.gather(-1, (rank_of_leader + taken - 1).clamp_max(going.shape[1] - 1))
        so_many = n - size + taken
        one_less = torch.where(j == 1, 1.0, torch.nn.functional.pad(mean[:, :-1], (1, 0), value=1.0))
        share = (j / so_many.clamp_min(1)).clamp_max(1)
        mean = torch.where(taken <= size, (1 - share) * mean + share * q * one_less, mean)
    before = torch.where(j == 1, 1.0, torch.nn.functional.pad(mean[:, :-1], (1, 0), value=1.0))
    return torch.where(inside, reached.gather(-1, at) * (before - mean), 0.0)


def _stopped_in_long_blocks(
    ranking: Derived,
    crowded: Tensor,
    reached: Tensor,
    stop: Tensor,
    discount: Callable[[Tensor], Tensor],
    top_k: int | None,
) -> Tensor:
    """The expected discount of stopping in a block of ties, given the chance of each candidate: float64 [query].

    Whether each candidate would stop a reader is settled first. If k of n would, all sets of k places are as likely,
    and the reader stops at the first of them.
    """
    row, entry = crowded.nonzero(as_tuple=True)
    first, chance = ranking.first[row, entry], stop[row, entry]
    leads = _changes(row, first)
    block, leader = leads.cumsum(0) - 1, leads.nonzero().squeeze(-1)
    above, n, come = first[leader] - 1, ranking.tied[row, entry][leader], reached[row, entry][leader]
    # The candidates of a block with equal chances, side by side: how many there are of each.
    order = chance.argsort()
    order = order[block[order].argsort(stable=True)]
    block, chance = block[order], chance[order]
    begin = _changes(block, chance).nonzero().squeeze(-1)
    number = torch.diff(begin, append=torch.tensor([len(block)], device=begin.device)).to(chance.dtype)
    chance, kinds = chance[begin], torch.bincount(block[begin], minlength=len(leader))
    start = kinds.cumsum(0) - kinds
    total = torch.zeros_like(ranking.num_candidates)
    for some, _ in groups(n.long(), BLOCK // 16, BLOCK // 4):
        kind = torch.arange(int(kinds[some].max()), device=kinds.device)
        valid = kind < kinds[some].unsqueeze(-1)
        at = torch.where(valid, start[some].unsqueeze(-1) + kind, 0)
        stoppers = _how_many(torch.where(valid, chance[at], 0.0), torch.where(valid, number[at], 0.0))
        value = _first_of(stoppers, above[some], n[some], discount, top_k)
        total.index_add_(0, row[leader[some]], come[some] * value)
    return total


def _changes(*keys: Tensor) -> Tensor:
    """bool [element]: one of the keys [element] is not that of the element before."""
    changed = torch.ones_like(keys[0], dtype=torch.bool)
    changed[1:] = torch.stack([key[1:] != key[:-1] for key in keys]).any(0)
    return changed


def _how_many(chance: Tensor, number: Tensor) -> Tensor:
    """Chance of k = 0, 1, ... successes in independent trials, so many of each chance: float64 [block, k].

    Chances and numbers are float64 [block, kind]. What is left out has a chance below :data:`TINY`.
    """
    ways = chance.new_zeros((len(chance), 1 + _most(chance, number)))
    ways[:, 0] = 1
    for s, c in zip(chance.T.unsqueeze(-1), number.T.unsqueeze(-1)):
        h = torch.arange(1 + _most(s, c), dtype=s.dtype, device=s.device)
        odds = torch.where(h > 0, (c - h + 1).clamp_min(0) / h.clamp_min(1) * (s / (1 - s)), 1.0)
        log = odds.log().cumsum(-1)  # the ratios of neighbours are exact, factorials are not
        share = torch.where(h <= c, (log - log.nan_to_num(nan=-torch.inf).amax(-1, keepdim=True)).exp(), 0.0)
        share = torch.where(s < 1, share / share.sum(-1, keepdim=True), (h == c).to(s.dtype))
        before, ways = ways, ways * share[:, :1]
        for successes in range(1, len(h)):
            ways[:, successes:] += share[:, successes, None] * before[:, : before.shape[1] - successes]
    return ways


def _most(chance: Tensor, number: Tensor) -> int:
    """More successes in any row have a chance below :data:`TINY`, by Bennett's inequality."""
    mean, small = (chance * number).sum(-1), -math.log(TINY)
    bound = mean + small / 3 + (small**2 / 9 + 2 * small * mean).sqrt()
    return int(torch.minimum(bound.ceil(), number.sum(-1)).max())


def _first_of(
    stoppers: Tensor, above: Tensor, n: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None
) -> Tensor:
    """The expected discount of the first of k places drawn from n behind ``above`` others: float64 [block].

    ``stoppers`` float64 [block, k] has the chance of each k = 0, 1, ...; ``above`` and ``n`` are float64 [block].
    """
    k = torch.arange(1, stoppers.shape[1], dtype=n.dtype, device=n.device)
    ahead = stoppers[:, 1:]  # none of the k is among the places so far
    all_ahead, total = ahead.sum(-1), torch.zeros_like(n)
    inside = n if top_k is None else torch.minimum(n, (top_k - above).clamp_min(0))
    place, last = 0, int(inside.max())
    while place < last and len(k):
        step = min(last - place, max(1, BLOCK // 4 // ahead.numel()))
        places = torch.arange(place, place + step, dtype=n.dtype, device=n.device)
        now = (k / (n.unsqueeze(-1) - places).clamp_min(1).unsqueeze(-1)).clamp_max_(1)  # [block, place, k]
        passed = (1 - now).cumprod(1)
        now[:, 1:] *= passed[:, :-1]
        stops = (now @ ahead.unsqueeze(-1)).squeeze(-1)
        at = discount(above.unsqueeze(-1) + places + 1)
        total += torch.where(places < inside.unsqueeze(-1), stops * at, 0.0).sum(-1)
        ahead, place = ahead * passed[:, -1], place + step
        matters = (ahead > TINY / stoppers.shape[1] * all_ahead.unsqueeze(-1)).any(0)
        k, ahead = k[matters], ahead[:, matters]
    return total


def _sizes(run_starts: Tensor, crowded: Tensor, number: Tensor) -> Tensor:
    """For each first entry of a block, how many of its entries are marked: int64 [query, entry]."""
    width = run_starts.shape[1]
    position = torch.arange(width, device=run_starts.device)
    # The next block begins at the nearest fresh entry behind; its number less one closes this one.
    ahead = torch.where(run_starts, position, width).flip(-1).cummin(-1).values.flip(-1)
    after = torch.nn.functional.pad(ahead[:, 1:], (0, 1), value=width)
    last = torch.where(after < width, number.gather(-1, after.clamp_max(width - 1)) - 1, number[:, -1:])
    return torch.where(run_starts, last - number + 1, 0)
