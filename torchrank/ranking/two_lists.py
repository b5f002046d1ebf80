"""Conversion of two ranked lists of ids to the entries of one ranking."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import widest_float
from torchrank.layouts.bad_values import Problem, count


def both_lists(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Ranks of ids from the first of two lists, and grades from the second.

    Entries are the ids of either list. An id's grade is its place from the end of the second list, 1 for the last id,
    or -inf if the second list lacks it.

    Args:
        one: int64 [query, position], negative = padding.
        other: the same.

    Returns:
        ``first``, ``tied``, ``grade``, ``valid``, ``num_candidates`` and ``errors`` of a ranking, entries in any order.
    """
    if not one.shape[1] + other.shape[1]:  # measures never read an empty row
        one = one.new_full((len(one), 1), -1)
    width = one.shape[1]
    ids = torch.cat([one, other], -1)
    kept, other_kept = one >= 0, other >= 0
    dtype = widest_float(ids.device)
    number, length = kept.sum(-1), other_kept.sum(-1, keepdim=True)
    rank = torch.cat([kept.cumsum(-1), torch.zeros_like(other)], -1)
    grade = torch.cat([torch.zeros_like(one), (length + 1 - other_kept.cumsum(-1)) * other_kept], -1)
    # The stable sort puts equal ids side by side, the one of the first list before the one of the second.
    ordered, order = ids.sort(dim=-1, stable=True)
    second = order >= width
    again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    pair = again & second[:, 1:] & ~second[:, :-1]
    # Equal ids of the same list are bad values.
    errors = count(Problem.DUPLICATE_IDS, again & (second[:, 1:] == second[:, :-1]))
    repeated = torch.nn.functional.pad(pair, (1, 0))[:, : ids.shape[1]]
    found = torch.nn.functional.pad(pair, (0, 1))[:, : ids.shape[1]]
    # An id of both lists becomes one entry: its place in the first list takes the grade, its place in the second
    # becomes padding.
    other_grade = torch.where(found, grade.gather(-1, order).roll(-1, -1), 0)
    grade = grade + torch.zeros_like(grade).scatter(-1, order, other_grade)
    valid = torch.cat([kept, other_kept], -1) & ~torch.zeros_like(found).scatter(-1, order, repeated)
    return (
        rank.to(dtype),
        (rank > 0).to(dtype) * valid,
        torch.where(grade > 0, grade.to(dtype), float("-inf")),
        valid,
        number.to(dtype),
        errors,
    )
