"""The greedy order, which gains most at each rank: the ideal of novelty measures, whose gains fade with redundancy."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

# Gains are equal if their relative difference is at most this: the rounding of a sum depends on the order of its terms.
EQUAL = 1e-12

# Largest number of binary digits in an int32.
MOST_DIGITS = 31


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
    if worth.is_cpu and worth.numel():  # irrelevant candidates gain nothing, and are last in this order
        candidates = int((worth > 0).any(1).sum(-1).max())
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
    gain = torch.empty_like(free)
    for rank in range(ranks):
        # In place, subtopic by subtopic: faster than a product [query, subtopic, candidate] and its sum.
        factor = left if weights is None else left * weights.unsqueeze(-1)
        gain.copy_(free)
        for its_worth, its_factor in zip(worth.unbind(1), factor.unbind(1)):
            gain.addcmul_(its_worth, its_factor)
        best = torch.amax(gain, -1, keepdim=True, out=gains[:, rank : rank + 1])
        # The first of the equal gains; torch finds it in bytes, but not in bool.
        chosen = (gain >= best * (1 - EQUAL)).view(torch.uint8).argmax(-1, keepdim=True)
        left = left * (1 - fading * worth.gather(-1, chosen.unsqueeze(1).expand(-1, subtopics, -1)))
        free.scatter_(1, chosen, -torch.inf)
    return pad(gains, (0, width - ranks))


def _order(worth: Tensor) -> Tensor:
    """Candidates by worth for the first subtopic, the best first; of equal ones by the second, and so on.

    Returns:
        int64 [query, candidate].
    """
    keys = list(worth.unbind(1))
    if worth.is_cpu and len(keys) <= MOST_DIGITS and bool(((worth == 0) | (worth == 1)).all()):
        # Zeros and ones are the digits of one number, which takes a single sort.
        keys = [functools.reduce(lambda number, digit: 2 * number + digit, keys).to(torch.int32)]
    # Stable sorts from the last subtopic to the first.
    order = keys.pop().argsort(dim=-1, descending=True)
    for key in reversed(keys):
        order = order.gather(-1, key.gather(-1, order).argsort(dim=-1, descending=True, stable=True))
    return order
