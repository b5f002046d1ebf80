"""The order that gains most at each rank, where a gain fades with what was seen before: the ideal of novelty."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free

# Gains that differ by less are equal: they are sums, of which the last digit depends on the order of the summands.
EQUAL = 1e-12


def best_first(worth: Tensor, fading: float, top_k: int | None) -> Tensor:
    """The gain at each rank if each rank goes to the candidate that gains most there.

    A candidate gains the sum over subtopics of its worth times (1 - ``fading`` worth) for each of those before it.
    Among equals the one of the larger worth for the first subtopic is chosen, then for the second and so on: what is
    chosen depends on nothing but judgments. Irrelevant candidates are left out where that costs no waiting.

    Args:
        worth: float64 [query, subtopic, candidate], from 0 to 1.
        fading: from 0 to 1.
        top_k: the last rank to fill; None = all.

    Returns:
        float64 [query, rank].
    """
    queries, subtopics, candidates = worth.shape
    if reading_is_free(worth) and worth.numel():
        some = (worth > 0).any(1)
        candidates = int(some.sum(-1).max())
        worth = _in_order(worth, (~some).int().argsort(dim=-1, stable=True)[:, :candidates])
    for subtopic in reversed(range(subtopics)):
        worth = _in_order(worth, worth[:, subtopic].argsort(dim=-1, descending=True, stable=True))
    ranks = candidates if top_k is None else min(top_k, candidates)
    if subtopics == 1:  # whatever was seen before, the largest worth gains most
        worth = worth[:, 0, :ranks]
        return worth * torch.nn.functional.pad((1 - fading * worth).cumprod(-1), (1, 0), value=1.0)[:, :-1]

    left = worth.new_ones((queries, subtopics, 1))
    free = torch.ones((queries, candidates), dtype=torch.bool, device=worth.device)
    gains = worth.new_zeros((queries, ranks))
    for rank in range(ranks):
        gain = torch.where(free, (worth * left).sum(1), 0.0)
        gains[:, rank : rank + 1] = best = gain.amax(-1, keepdim=True)
        chosen = (gain >= best * (1 - EQUAL)).int().argmax(-1, keepdim=True)  # the first of them
        left = left * (1 - fading * _in_order(worth, chosen))
        free = free.scatter(1, chosen, False)
    return gains


def _in_order(worth: Tensor, order: Tensor) -> Tensor:
    """Some candidates in an order, int64 [query, candidate]."""
    return worth.gather(-1, order.unsqueeze(1).expand(-1, worth.shape[1], -1))
