"""Cascade models: a reader goes down a list and may stop at each candidate. ERR, NRBP and alpha-DCG share them.

Also the order that gains most at each rank: the ideal of novelty measures, whose gains fade with redundancy.

Notation: q is the probability that the reader continues past a candidate, n the size of a tie group, j = 1, ..., n a
place within the group.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from torchrank.hardware.devices import greatest, running_sum
from torchrank.layouts.canonical import BLOCK, buckets
from torchrank.ranking.ranking import Ranking, only, run_bounds, run_starts

# Tie groups are long if stopping candidates times ranks of a list exceed this: the recursion over both gets slow.
LONG = 2**14

# Events of a smaller probability are left out: they are below the precision of float64.
TINY = 1e-16


def stopped(ranking: Ranking, chance: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None) -> Tensor:
    """Expected discount of the rank at which a reader stops; 0 for a reader who passes the first ``top_k`` ranks.

    Let S_i be the probability that the reader passes the first i ranks. The result is the sum over i <= ``top_k`` of
    discount(i) (S_{i-1} - S_i): float64 [query]. The decisions at different candidates are independent, so S_i is a
    product of q. Within a tie group S_i is the mean over all orders of the group: the first j places hold a random
    j-subset of it.

    Long tie groups are computed from the distribution of the number of candidates that would stop the reader. Its
    tails, with less than :data:`TINY` of the probability to stop, are left out.

    Args:
        ranking: the ranking, with tie groups as intervals or with resolved ties.
        chance: float64 [query, entry], 1 - q of each entry.
        discount: function from ranks, float64, to discounts.
        top_k: the last rank that counts; None = all count.
    """
    stops = ranking.valid & (ranking.tied > 0) & (chance > 0)
    chance = only(stops, chance)
    go, width = 1 - chance, chance.shape[1]
    # The probability to reach the tie group, at the first entry of each group: the product over a whole group does not
    # depend on its order, so it is exact there.
    reached = torch.nn.functional.pad(go.cumprod(-1), (1, 0), value=1.0)[:, :-1]
    # Candidates without a tie have one rank, which leaves nothing to average.
    alone = only(ranking.tied == 1, reached * chance)
    total = (alone * ranking.mean_discount(discount, top_k)).sum(-1)
    if ranking.untied or not len(total):
        return total
    # The tables have a column for each rank, so the last rank of a tie group that matters bounds their size.
    in_tie = stops & (ranking.tied > 1)
    depth = greatest(only(in_tie, ranking.first - 1 + ranking.tied), ranking.depth, width)
    ranks = depth if top_k is None else min(top_k, depth)
    if not ranks:
        return total
    start, stop = run_bounds(run_starts(ranking.first))
    if greatest((ranking.tied > 1).sum(-1), 0, width) * ranks > LONG:
        return total + _stopped_in_long_groups(ranking, in_tie, chance, reached, start, discount, top_k)
    discounts = discount(torch.arange(1, ranks + 1, dtype=go.dtype, device=go.device))
    fields = (ranking.first, ranking.tied, start, stop, reached, go)
    parts = zip(*(x.split(max(1, BLOCK // 4 // ranks)) for x in fields))
    return total + torch.cat([running_sum(_stopped_in_groups(ranks, *part) * discounts)[:, -1] for part in parts])


def _stopped_in_long_groups(
    ranking: Ranking,
    in_tie: Tensor,
    chance: Tensor,
    reached: Tensor,
    start: Tensor,
    discount: Callable[[Tensor], Tensor],
    top_k: int | None,
) -> Tensor:
    """Expected discount of stopping within tie groups: float64 [query].

    Draw for each candidate whether it would stop the reader, with probability 1 - q. If k of the n candidates of a
    group would, then all k-subsets of its places are equally likely. The reader stops at the first place of the
    subset. The candidates ``in_tie`` may stop the reader, and their groups ``start`` at some columns.
    """
    width = chance.shape[1]
    row, entry = in_tie.nonzero(as_tuple=True)
    starts, group = (row * width + start[row, entry]).unique(return_inverse=True)
    place = starts // width, starts % width
    above, n, arrive = ranking.first[place] - 1, ranking.tied[place], reached[place]
    # Count the candidates of each group that have equal probabilities, a kind. Few grades make few kinds.
    pairs = torch.stack([group.to(n.dtype), chance[row, entry]], -1)
    pairs, number = pairs.unique(dim=0, return_counts=True)
    of_kind, kinds = pairs[:, 1], torch.bincount(pairs[:, 0].long(), minlength=len(starts))
    first_kind = kinds.cumsum(0) - kinds
    # Each group has a place of its own, because the sum of an index_add_ of floats would depend on the run.
    values = torch.zeros_like(reached)
    for members, _ in buckets(n.long(), BLOCK // 16, BLOCK // 4):
        kind = torch.arange(int(kinds[members].max()), device=kinds.device)
        valid = kind < kinds[members].unsqueeze(-1)
        which = only(valid, first_kind[members].unsqueeze(-1) + kind)
        stoppers = _how_many(only(valid, of_kind[which]), only(valid, number[which].to(n.dtype)))
        value = _first_of(stoppers, above[members], n[members], discount, top_k)
        values[place[0][members], place[1][members]] = arrive[members] * value
    return values.sum(-1)


def _stopped_in_groups(
    ranks: int, first: Tensor, tied: Tensor, start: Tensor, stop: Tensor, reached: Tensor, go: Tensor
) -> Tensor:
    """Probability to stop at each rank within a tie group: float64 [query, rank]; 0 at ranks outside of tie groups.

    Let m_j be the mean, over all j-subsets of a group of n - 1 candidates, of the product of their q. A further
    candidate with probability q is in j / n of the j-subsets of the larger group, so its mean is

        m_j <- (1 - j / n) m_j + (j / n) q m_{j-1},    m_0 = 1.

    Each step adds one entry to every tie group of every query. The result is the probability to reach the group times
    (m_{j-1} - m_j). The entries of a group are in the columns from ``start`` up to ``stop``.
    """
    rank = torch.arange(1, ranks + 1, dtype=first.dtype, device=first.device).expand(len(first), -1)
    # The last entry that begins at or before a rank is in the tie group of this rank, if any is.
    entry = (torch.searchsorted(first.contiguous(), rank.contiguous(), right=True) - 1).clamp_min(0)
    n, begin, end = (x.gather(-1, entry) for x in (tied, start, stop))
    j = rank - first.gather(-1, entry) + 1
    inside = (n > 1) & (j > 0) & (j <= n)
    n, j, size = torch.where(inside, n, 1), torch.where(inside, j, 1), only(inside, end - begin)

    def one_less(mean: Tensor) -> Tensor:
        """m_{j-1} from m_j."""
        return torch.where(j == 1, 1.0, torch.nn.functional.pad(mean[:, :-1], (1, 0), value=1.0))

    # The group begins with its n - size candidates that are not entries: their q is 1, and so are all m_j.
    mean = torch.ones_like(j)
    for taken in range(1, greatest(size, go.shape[1], go.shape[1]) + 1):
        q = go.gather(-1, (begin + taken - 1).clamp_max(go.shape[1] - 1))
        # If j exceeds the members so far, there is no j-subset yet. The clamp keeps such m_j finite until there is one.
        share = (j / (n - size + taken).clamp_min(1)).clamp_max(1)
        mean = torch.where(taken <= size, (1 - share) * mean + share * q * one_less(mean), mean)
    return only(inside, reached.gather(-1, begin) * (one_less(mean) - mean))


def _how_many(chance: Tensor, number: Tensor) -> Tensor:
    """Probability of k = 0, 1, ... successes in independent trials of several kinds: float64 [group, k].

    ``chance`` is the probability of a success for each kind of trial, ``number`` the number of its trials: float64
    [group, kind]. Larger k, which together have a probability below :data:`TINY`, are left out.
    """
    ways = chance.new_zeros((len(chance), 1 + _most(chance, number)))
    ways[:, 0] = 1
    # Convolve the binomial distributions of the kinds.
    for s, c in zip(chance.T.unsqueeze(-1), number.T.unsqueeze(-1)):
        h = torch.arange(1 + _most(s, c), dtype=s.dtype, device=s.device)
        odds = torch.where(h > 0, (c - h + 1).clamp_min(0) / h.clamp_min(1) * (s / (1 - s)), 1.0)
        log = running_sum(odds.log())  # ratios of consecutive terms are accurate, and factorials would overflow
        share = only(h <= c, (log - log.amax(-1, keepdim=True)).exp())
        share = torch.where(s < 1, share / share.sum(-1, keepdim=True), (h == c).to(s.dtype))
        before, ways = ways, ways * share[:, :1]
        for successes in range(1, len(h)):
            ways[:, successes:] += share[:, successes, None] * before[:, : before.shape[1] - successes]
    return ways


def _most(chance: Tensor, number: Tensor) -> int:
    """Number of successes that is exceeded with a probability below :data:`TINY` in every row.

    From Bernstein's inequality, with the variance bounded by the mean.
    """
    mean, small = (chance * number).sum(-1), -math.log(TINY)
    bound = mean + small / 3 + (small**2 / 9 + 2 * small * mean).sqrt()
    return int(torch.minimum(bound.ceil(), number.sum(-1)).max())


def _first_of(
    stoppers: Tensor, above: Tensor, n: Tensor, discount: Callable[[Tensor], Tensor], top_k: int | None
) -> Tensor:
    """Expected discount of the first of k places drawn from n: float64 [group].

    ``stoppers`` float64 [group, k] is the probability of k = 0, 1, ... stopping candidates. ``above``, the number of
    candidates ranked above the group, and ``n`` are float64 [group].
    """
    k = torch.arange(1, stoppers.shape[1], dtype=n.dtype, device=n.device)
    ahead = stoppers[:, 1:]  # joint probability of k, and of no stopping candidate at the places so far
    all_ahead, total = ahead.sum(-1), torch.zeros_like(n)
    inside = n if top_k is None else torch.minimum(n, (top_k - above).clamp_min(0))
    place, last = 0, int(inside.max())
    while place < last and len(k):
        step = min(last - place, max(1, BLOCK // 4 // ahead.numel()))
        places = torch.arange(place, place + step, dtype=n.dtype, device=n.device)
        # Given that all k are among the n - place remaining candidates, the probability that the next is one of them.
        now = (k / (n.unsqueeze(-1) - places).clamp_min(1).unsqueeze(-1)).clamp_max_(1)  # [group, place, k]
        passed = (1 - now).cumprod(1)
        now[:, 1:] *= passed[:, :-1]
        stops = (now @ ahead.unsqueeze(-1)).squeeze(-1)
        discounts = discount(above.unsqueeze(-1) + places + 1)
        total += only(places < inside.unsqueeze(-1), stops * discounts).sum(-1)
        ahead, place = ahead * passed[:, -1], place + step
        # With a large k the reader stops early. Drop each k with a negligible remainder: later chunks are cheaper.
        matters = (ahead > TINY / stoppers.shape[1] * all_ahead.unsqueeze(-1)).any(0)
        k, ahead = k[matters], ahead[:, matters]
    return total


# Gains are equal if their relative difference is at most this: the rounding of a sum depends on the order of its terms.
EQUAL = 1e-12


def best_first(worth: Tensor, fading: float, top_k: int | None, weights: Tensor | None = None) -> Tensor:
    """The gain at each rank if each rank takes the remaining candidate with the largest gain.

    Let w_s(c) be the ``worth`` of candidate c for subtopic s. Then c gains the sum over s of w_s(c) times the product
    of (1 - ``fading`` w_s(b)) over all candidates b ranked before it. Of equal gains the candidate with the largest
    worth for the first subtopic is chosen, then for the second, and so on. So the choice depends on judgments only.

    Args:
        worth: float64 [query, subtopic, candidate], from 0 to 1.
        fading: from 0 to 1.
        top_k: the last rank to fill; None = all.
        weights: float64 [query, subtopic], factors of the gains of each subtopic; None = 1.

    Returns:
        float64 [query, rank].
    """
    queries, subtopics, candidates = worth.shape
    width = candidates if top_k is None else min(top_k, candidates)
    order = _order(worth)
    # Irrelevant candidates gain nothing, and are last in this order.
    candidates = greatest((worth > 0).any(1).sum(-1), candidates)
    worth = worth.gather(-1, order[:, :candidates].unsqueeze(1).expand(-1, subtopics, -1))
    ranks = min(width, candidates)
    # With one subtopic all remaining gains fade by the same factor, so the order by worth is greedy.
    # Zeros fill the last ranks up to the width of the batch, on which the rounding of a sum depends.
    pad = torch.nn.functional.pad
    if subtopics == 1:
        worth = worth[:, 0, :ranks]
        gains = worth * pad((1 - fading * worth).cumprod(-1), (1, 0), value=1.0)[:, :-1]
        return pad(gains if weights is None else gains * weights, (0, width - ranks))

    # For each subtopic the product of (1 - fading worth) so far.
    left = worth.new_ones((queries, subtopics, 1))
    # -inf for the candidates that were chosen, so that they are not chosen again.
    free = worth.new_zeros((queries, candidates))
    gains = worth.new_zeros((queries, ranks))
    for rank in range(ranks):
        factor = left if weights is None else left * weights.unsqueeze(-1)
        gain = free + (worth * factor).sum(1)
        gains[:, rank] = best = gain.amax(-1)
        # The first of the equal gains; torch finds it in bytes, but not in bool.
        chosen = (gain >= best.unsqueeze(-1) * (1 - EQUAL)).view(torch.uint8).argmax(-1, keepdim=True)
        left = left * (1 - fading * worth.gather(-1, chosen.unsqueeze(1).expand(-1, subtopics, -1)))
        free.scatter_(1, chosen, -torch.inf)
    return pad(gains, (0, width - ranks))


def _order(worth: Tensor) -> Tensor:
    """Candidates by worth for the first subtopic, the best first; of equal ones by the second, and so on.

    Returns:
        int64 [query, candidate].
    """
    *keys, last = worth.unbind(1)
    order = last.argsort(dim=-1, descending=True)
    for key in reversed(keys):  # stable sorts from the last subtopic to the first
        order = order.gather(-1, key.gather(-1, order).argsort(dim=-1, descending=True, stable=True))
    return order
