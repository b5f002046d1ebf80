"""Two ranked lists of ids, as the entries of one ranking."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import widest_float
from torchrank.layouts.bad_values import Problem, count


def both_lists(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Ranks of ids in the first of two lists [query, position], negative = padding, and grades from the second.

    Entries are the ids of either list; the grade of an id that the second list lacks is -inf.

    Returns:
        ``first``, ``tied``, ``grade``, ``valid``, ``num_candidates`` and ``errors`` of a ranking, entries in any order.
    """
    if not one.shape[1] + other.shape[1]:  # of a list without a column others would have nothing to look at
        one = one.new_full((len(one), 1), -1)
    width = one.shape[1]
    ids = torch.cat([one, other], -1)
    kept, other_kept = one >= 0, other >= 0
    dtype = widest_float(ids.device)
    number, length = kept.sum(-1), other_kept.sum(-1, keepdim=True)
    rank = torch.cat([kept.cumsum(-1), torch.zeros_like(other)], -1)
    grade = torch.cat([torch.zeros_like(one), (length + 1 - other_kept.cumsum(-1)) * other_kept], -1)
    # Side by side if both have it, that of the first list before the other.
    ordered, order = ids.sort(dim=-1, stable=True)
    second = order >= width
    again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    pair = again & second[:, 1:] & ~second[:, :-1]
    errors = count(Problem.DUPLICATE_IDS, again & (second[:, 1:] == second[:, :-1]))
    repeated = torch.nn.functional.pad(pair, (1, 0))[:, : ids.shape[1]]
    found = torch.nn.functional.pad(pair, (0, 1))[:, : ids.shape[1]]
    beside = torch.where(found, grade.gather(-1, order).roll(-1, -1), 0)
    grade = grade + torch.zeros_like(grade).scatter(-1, order, beside)
    valid = torch.cat([kept, other_kept], -1) & ~torch.zeros_like(found).scatter(-1, order, repeated)
    return (
        rank.to(dtype),
        (rank > 0).to(dtype) * valid,
        torch.where(grade > 0, grade.to(dtype), float("-inf")),
        valid,
        number.to(dtype),
        errors,
    )
