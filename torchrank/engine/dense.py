"""Every candidate is judged: sort each list once."""

import torch
from torch import Tensor

from torchrank.engine.places import Places, real, runs
from torchrank.lists import DenseLists, Pairs
from torchrank.problems import Problem, count


def place_dense(lists: DenseLists) -> Places:
    """Places of all candidates, by one sort."""
    scores, grade, mask, errors = lists.scores, lists.grade, lists.mask, lists.errors
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if lists.exclude is not None:
        if lists.validate:
            hidden = scores.isnan().any(-1)  # before excluding hides some
        kept = ~_excluded(lists.exclude, grade)
        mask = kept if mask is None else mask & kept
        scores = scores.masked_fill(~kept, float("-inf"))
    scores, order, fresh = _sort(scores, lists.tie_break)

    start, stop = runs(fresh)
    retrieved = scores > float("-inf")
    num_candidates = retrieved.sum(-1)
    first = torch.where(retrieved, start, num_candidates.unsqueeze(-1)) + 1
    tied = torch.where(retrieved, stop - start, 0)

    if lists.validate:  # NaN sorts first
        errors = errors + count(Problem.NAN_SCORES, scores[:, 0].isnan() if lists.exclude is None else hidden)
    dtype = real(scores.device)
    return Places(
        first.to(dtype),
        tied.to(dtype),
        grade.gather(-1, order),
        torch.ones_like(retrieved) if mask is None else mask.gather(-1, order),
        num_candidates.to(dtype),
        errors,
        depth=scores.shape[1],
    )


def _sort(scores: Tensor, tie_break: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Scores in descending order, that order, and where the score (or tie break) is not the one before."""
    if tie_break is None:
        scores, order = scores.sort(dim=-1, descending=True)
        fresh = scores[:, 1:] != scores[:, :-1]
    else:
        by_tie = tie_break.argsort(dim=-1, descending=True, stable=True)
        scores, order = scores.gather(-1, by_tie).sort(dim=-1, descending=True, stable=True)
        order = by_tie.gather(-1, order)
        tie_break = tie_break.gather(-1, order)
        fresh = (scores[:, 1:] != scores[:, :-1]) | (tie_break[:, 1:] != tie_break[:, :-1])
    return scores, order, torch.cat([fresh.new_ones((len(fresh), 1)), fresh], dim=-1)


def _excluded(exclude: Pairs, grade: Tensor) -> Tensor:
    marked = torch.zeros((grade.shape[0] + 1, grade.shape[1]), dtype=torch.bool, device=grade.device)
    marked[exclude.query, exclude.item] = True  # query -1 is the row to spare
    return marked[:-1] & (grade <= 0)
