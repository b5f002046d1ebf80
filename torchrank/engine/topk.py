"""The k best scores of each row, exactly, in about one read of the scores; and the best of several parts."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.engine.counting import count_equal
from torchrank.hardware.devices import reading_is_free
from torchrank.layouts.canonical import BLOCK
from torchrank.layouts.sharding import Shard

# Columns of which one maximum is taken. The k best scores stand in the k of these groups with the best maxima.
GROUP = 64


# From this many groups for each of the k on, looking at maxima first is cheaper than torch.topk of everything.
GROUPS_PER_RANK = 8


def by_groups_pays(scores: Tensor, k: int) -> bool:
    """Whether the k best scores are found faster by the maxima of groups than by :func:`torch.topk`."""
    return scores.shape[1] >= GROUP * GROUPS_PER_RANK * k


def best_pays(scores: Tensor, k: int) -> bool:
    """Whether the k best scores are found faster than the order of all."""
    # On one thread numpy sorts a row faster than torch finds its best.
    serial = scores.device.type == "cpu" and torch.get_num_threads() == 1
    return by_groups_pays(scores, k) if serial else 2 * k <= scores.shape[1]


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best scores of each row, best first, and their columns.

    Which of several equal scores is named is arbitrary, as in :func:`torch.topk`, and NaN counts as best.

    Args:
        scores: floating [query, candidate].
        k: how many, at most the number of candidates.

    Returns:
        scores and int64 columns, [query, k] each.

    Raises:
        ValueError: there are fewer candidates than ``k``.

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
        values, columns = scores.topk(k)
        return values, columns
    step = max(1, BLOCK // (candidates // GROUP + GROUP * k))
    parts = [_by_groups(scores[row : row + step], k) for row in range(0, queries, step)]
    if len(parts) == 1:
        return parts[0]
    return torch.cat([values for values, _ in parts]), torch.cat([columns for _, columns in parts])


def _by_groups(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    groups = scores.shape[1] // GROUP
    grouped, rest = scores[:, : groups * GROUP].unflatten(1, (groups, GROUP)), scores[:, groups * GROUP :]
    chosen = grouped.amax(-1).topk(k, sorted=False).indices
    row = torch.arange(len(scores), device=scores.device).unsqueeze(-1)
    pool = torch.cat([grouped[row, chosen].flatten(1), rest], dim=-1)
    values, at = pool.topk(k)
    group = chosen.gather(1, (at // GROUP).clamp_max(k - 1))
    from_rest = at >= k * GROUP
    return values, torch.where(from_rest, at + (groups - k) * GROUP, group * GROUP + at % GROUP)


@dataclass(frozen=True, eq=False)
class Top:
    """The best scores of each query, and how many share the last of them."""

    #: [query, k], best first; -inf where there are fewer
    scores: Tensor
    #: int64 [query]: scores equal to the last, in the list or not
    last: Tensor

    @classmethod
    def nothing(cls, queries: int, k: int, dtype: torch.dtype, device: torch.device) -> Top:
        """Of no score."""
        scores = torch.full((queries, k), float("-inf"), dtype=dtype, device=device)
        return cls(scores, torch.zeros(queries, dtype=torch.int64, device=device))

    @classmethod
    def of(cls, scores: Tensor, k: int) -> Top:
        """Of scores [query, candidate]."""
        width = scores.shape[1]
        best = top_k(scores, min(k + 1, width))[0]
        if width < k:
            best = torch.nn.functional.pad(best, (0, k - width), value=float("-inf"))
        top = best[:, :k].contiguous()
        last = top[:, -1:]
        inside = (top == last).sum(-1)
        if width <= k:
            return cls(top, inside)
        cut = best[:, k:] == last
        if reading_is_free(scores) and not cut.any():
            return cls(top, inside)
        return cls(top, torch.where(cut.squeeze(-1), count_equal(scores, last), inside))

    def merge(self, other: Top) -> Top:
        """Of the scores of both."""
        k = self.scores.shape[1]
        top = torch.cat([self.scores, other.scores], dim=-1).topk(k).values
        last = top[:, -1:]
        return Top(top, sum(part._equal(last) for part in (self, other)))  # type: ignore[arg-type]

    def gather(self, shard: Shard) -> Top:
        """Of the scores of all workers."""
        parts = zip(shard.gather(self.scores), shard.gather(self.last))
        return functools.reduce(Top.merge, (Top(scores, last) for scores, last in parts))

    def _equal(self, score: Tensor) -> Tensor:
        """How many scores equal one that is no smaller than the last [query, 1]: int64 [query]."""
        listed = (self.scores == score).sum(-1)
        return torch.where(self.scores[:, -1] == score.squeeze(-1), self.last, listed)

    def before_and_in_tie(self, own: Tensor) -> tuple[Tensor, Tensor]:
        """Scores greater than and equal to each of ``own`` [query, entry]: int64 each.

        Those behind the k best are as if k were greater and they were alone.
        """
        k = self.scores.shape[1]
        ascending, own = self.scores.flip(-1).contiguous(), own.contiguous()
        greater = k - torch.searchsorted(ascending, own, right=True)
        equal = k - greater - torch.searchsorted(ascending, own)
        last = self.scores[:, -1:]
        equal = torch.where(own == last, self.last.unsqueeze(-1), equal)
        return greater, torch.where(own < last, 1, equal)
