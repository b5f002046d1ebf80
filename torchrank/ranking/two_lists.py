"""Conversion of two ranked lists of ids to the entries of one ranking."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import widest_float
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.checks import check_tensor, integer_ids


def both_lists(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Ranks of ids from the first of two lists, and grades from the second.

    Entries are the ids of either list. An id's grade is its place from the end of the second list, 1 for the last id,
    or -inf if the second list lacks it.

    Args:
        first: int64 [query, position], negative = padding.
        second: the same.

    Returns:
        ``first``, ``tied``, ``grade``, ``valid``, ``num_candidates`` and ``errors`` of a ranking, entries in any order.
    """
    if not first.shape[1] + second.shape[1]:  # measures never read an empty row
        first = first.new_full((len(first), 1), -1)
    width = first.shape[1]
    ids = torch.cat([first, second], -1)
    in_first, in_second = first >= 0, second >= 0
    dtype = widest_float(ids.device)
    number, length = in_first.sum(-1), in_second.sum(-1, keepdim=True)
    rank = torch.cat([in_first.cumsum(-1), torch.zeros_like(second)], -1)
    grade = torch.cat([torch.zeros_like(first), (length + 1 - in_second.cumsum(-1)) * in_second], -1)
    # The stable sort puts equal ids side by side, the one of the first list before the one of the second.
    ordered, order = ids.sort(dim=-1, stable=True)
    second = order >= width
    again = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    pair = again & second[:, 1:] & ~second[:, :-1]
    # Equal ids of the same list are bad values.
    errors = count(Problem.DUPLICATE_IDS, again & (second[:, 1:] == second[:, :-1]))
    repeated = torch.nn.functional.pad(pair, (1, 0))
    in_both = torch.nn.functional.pad(pair, (0, 1))
    # An id of both lists becomes one entry: its place in the first list takes the grade, its place in the second
    # becomes padding.
    other_grade = torch.where(in_both, grade.gather(-1, order).roll(-1, -1), 0)
    grade = grade + torch.zeros_like(grade).scatter(-1, order, other_grade)
    valid = torch.cat([in_first, in_second], -1) & ~torch.zeros_like(in_both).scatter(-1, order, repeated)
    return (
        rank.to(dtype),
        ((rank > 0) & valid).to(dtype),
        torch.where(grade > 0, grade.to(dtype), float("-inf")),
        valid,
        number.to(dtype),
        errors,
    )


def shares_of(some: object, ids: Tensor, like: Tensor) -> Tensor:
    """The share of each of ``ids`` in ``some`` ids of its query, in the shape of ``like`` [query, entry]."""
    some = integer_ids(check_tensor(some, "changed"), "changed", "both lists").to(ids.device)
    if some.dim() != 2 or len(some) != len(ids):
        raise ValueError(f"Expected changed of shape [{len(ids)}, id], got {list(some.shape)}")
    shares = torch.zeros_like(like)
    for column in some.unsqueeze(-1).unbind(1):
        shares[:, : ids.shape[1]] += (ids == column) & (column >= 0)
    return shares / (some >= 0).sum(-1, keepdim=True)
