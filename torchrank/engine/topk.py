"""The exact k best scores of each row in about one read of the scores, and of scores in several parts."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.engine.comparing import count_equal, count_retrieved, equal_in_order
from torchrank.engine.score_counts import ScoreCounts
from torchrank.engine.thresholds import compared_dtype
from torchrank.hardware import costs
from torchrank.hardware.sorted_values import best, largest
from torchrank.layouts.catalogues import Shard


def by_groups_pays(scores: Tensor, k: int) -> bool:
    """Whether maxima of groups find the k best scores faster than :func:`torch.topk` does: not on CUDA."""
    return scores.device.type != "cuda" and scores.shape[1] >= costs.now.group * costs.now.groups_per_rank * k


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best scores of each row, best first, and their columns.

    Among equal scores the choice is arbitrary, as in :func:`torch.topk`. NaN counts as best.

    Args:
        scores: floating [query, candidate].
        k: number of scores, at most the number of candidates.

    Returns:
        scores and int64 columns, [query, k] each.

    Raises:
        ValueError: ``k`` is negative or larger than the number of candidates.

    Example:
        >>> import torch
        >>> from torchrank.engine.topk import top_k
        >>> top_k(torch.tensor([[0.1, 0.9, 0.5]]), 2)
        (tensor([[0.9000, 0.5000]]), tensor([[1, 2]]))
    """
    queries, candidates = scores.shape
    if not 0 <= k <= candidates:
        raise ValueError(f"Expected k in 0 ... {candidates}, the number of candidates, got {k}")
    if not by_groups_pays(scores, k) or not k or not queries:
        return best(scores, k)
    step = max(1, costs.now.block // (candidates // costs.now.group + costs.now.group * k))
    parts = [_by_groups(scores[row : row + step], k) for row in range(0, queries, step)]
    if len(parts) == 1:
        return parts[0]
    return torch.cat([values for values, _ in parts]), torch.cat([columns for _, columns in parts])


def best_scores(scores: Tensor, k: int) -> Tensor:
    """The k best scores of each row, best first, as :func:`top_k` finds them: [query, k]."""
    if by_groups_pays(scores, k):
        return top_k(scores, k)[0]
    step, wide = max(1, costs.now.room(scores) // max(1, scores.shape[1])), compared_dtype(scores.dtype)
    tiles = (scores[row : row + step] for row in range(0, max(1, len(scores)), step))
    parts = [largest(tile.to(wide), k).to(scores.dtype) for tile in tiles]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _by_groups(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """:func:`top_k` by the maxima of groups: torch.topk of the k best groups and of the columns behind all groups."""
    size = costs.now.group
    groups = scores.shape[1] // size
    grouped, rest = scores[:, : groups * size].unflatten(1, (groups, size)), scores[:, groups * size :]
    chosen = grouped.amax(-1).topk(k, sorted=False).indices
    row = torch.arange(len(scores), device=scores.device).unsqueeze(-1)
    pool = torch.cat([grouped[row, chosen].flatten(1), rest], dim=-1)
    values, column = pool.topk(k)
    # From places in the pool to columns: the pool begins with k groups, then the rest follows.
    group = chosen.gather(1, (column // size).clamp_max(k - 1))
    from_rest = column >= k * size
    return values, torch.where(from_rest, column + (groups - k) * size, group * size + column % size)


@dataclass(frozen=True, eq=False)
class Top:
    """The k best scores of each query, with the size of the tie group at the cutoff. Parts can be merged."""

    #: [query, k], best first; -inf if there are fewer scores
    scores: Tensor
    #: int64 [query]: number of scores equal to the last one, including scores beyond the k best
    last: Tensor

    @classmethod
    def nothing(cls, queries: int, k: int, dtype: torch.dtype, device: torch.device) -> Top:
        """The top of no scores, from which merging begins."""
        scores = torch.full((queries, k), float("-inf"), dtype=dtype, device=device)
        return cls(scores, torch.zeros(queries, dtype=torch.int64, device=device))

    @classmethod
    def of(cls, scores: Tensor, k: int) -> Top:
        """The top of scores [query, candidate]."""
        width = scores.shape[1]
        # One more than k shows if the tie group at the cutoff goes on behind it.
        best = best_scores(scores, min(k + 1, width))
        if width < k:
            best = torch.nn.functional.pad(best, (0, k - width), value=float("-inf"))
        top = best[:, :k].contiguous()
        last = top[:, -1:]
        inside = (top == last).sum(-1)
        if width <= k:
            return cls(top, inside)
        goes_on = best[:, k:] == last
        if scores.is_cpu and not goes_on.any():
            return cls(top, inside)
        return cls(top, torch.where(goes_on.squeeze(-1), count_equal(scores, last), inside))

    def merge(self, other: Top) -> Top:
        """The top of the scores of both."""
        k = self.scores.shape[1]
        top = best_scores(torch.cat([self.scores, other.scores], dim=-1), k)
        last = top[:, -1:]
        return Top(top, sum(part._equal(last) for part in (self, other)))  # type: ignore[arg-type]

    def gather(self, shard: Shard) -> Top:
        """The top of the scores of all workers."""
        parts = zip(shard.gather(self.scores), shard.gather(self.last))
        return functools.reduce(Top.merge, (Top(scores, last) for scores, last in parts))

    def _equal(self, score: Tensor) -> Tensor:
        """Number of scores equal to ``score`` [query, 1], which must be at least the last one: int64 [query]."""
        inside = (self.scores == score).sum(-1)
        return torch.where(self.scores[:, -1] == score.squeeze(-1), self.last, inside)

    def before_and_in_tie(self, judged: Tensor) -> tuple[Tensor, Tensor]:
        """Number of scores greater than, and equal to, each score of ``judged`` [query, entry]: int64 each.

        A score below the k best is reported as rank k + 1, and as equal to nothing, for several have this rank.
        """
        k = self.scores.shape[1]
        ascending, judged = self.scores.flip(-1).contiguous(), judged.contiguous()
        up_to = torch.searchsorted(ascending, judged, right=True)
        greater, equal = k - up_to, equal_in_order(ascending, judged, up_to)
        last = self.scores[:, -1:]
        # The last score may have equals beyond the k best, so its number is not the number in the list.
        equal = torch.where(judged == last, self.last.unsqueeze(-1), equal)
        return greater, torch.where(judged < last, 0, equal)


def count_among_best(scores: Tensor, judged: Tensor, reach: int) -> ScoreCounts:
    """Count scores as :func:`torchrank.engine.comparing.count_by_comparing`, but exactly up to the rank ``reach`` only.

    Args:
        scores: [query, candidate].
        judged: scores of the judged items, [query, entry].
        reach: the last exact rank.
    """
    total = ScoreCounts.nothing(judged.shape, judged.device)
    step = max(1, costs.now.room(scores) // (reach + 1))  # queries whose best scores are held at a time
    for row in range(0, len(scores), step):
        rows = slice(row, row + step)
        counts = Top.of(scores[rows], reach).before_and_in_tie(judged[rows])
        total.add(ScoreCounts(*counts, *count_retrieved(scores[rows])), rows)
    return total
