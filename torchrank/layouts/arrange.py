"""Conversion of the user's arguments to a canonical layout, with checks.

Bad shapes and dtypes raise at once. Bad values are counted on the device (see :mod:`torchrank.layouts.bad_values`),
because reading values would make every ``update`` wait for the accelerator.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchrank.layouts.canonical import CatalogueLayout, DenseLayout, FlatRows, Layout, RankedIds
from torchrank.layouts.checks import (
    bad_grades,
    bad_tie_break,
    check_not_exchanged,
    check_tensor,
    comparable,
    grades,
    integer_ids,
    on_grid,
    one_column,
)
from torchrank.layouts.judged_items import excluded_pairs, judged_items


def arrange(
    preds: Tensor,
    target: object,
    *,
    mask: Tensor | None = None,
    indexes: Tensor | None = None,
    exclude: object = None,
    tie_break: Tensor | None = None,
    validate: bool = True,
) -> Layout:
    """Convert the arguments of ``update`` to a canonical layout, recognised by their shapes and dtypes.

    Raises:
        TypeError: an argument has a type or dtype that no layout takes.
        ValueError: shapes do not fit together, or the layout does not take one of the arguments.
    """
    check_tensor(preds, "preds", "a tensor of scores or ids or a Ranking")
    preds = preds.detach()
    if isinstance(target, Tensor):
        check_tensor(target, "target")
        if not preds.is_floating_point():
            check_not_exchanged(preds, target)
    if tie_break is not None:
        check_tensor(tie_break, "tie_break")
        tie_break = comparable(tie_break)
    if preds.is_complex() or preds.dtype == torch.bool:
        raise TypeError(f"Expected preds to be floating point scores or integer ids, got {preds.dtype}")
    if preds.dim() == 1 or indexes is not None:
        return _flat(preds, target, indexes, mask, exclude, tie_break, validate)
    if preds.dim() != 2:
        raise ValueError(
            "Expected preds of shape [query, candidate], or [row] together with indexes,"
            f" got shape {list(preds.shape)}; flatten further dimensions, as by preds.flatten(0, -2)"
        )
    if not preds.is_floating_point():
        return _ranked_ids(preds, target, mask, exclude, tie_break, validate)
    if mask is not None:
        mask = on_grid(mask, "mask", preds, dtype=torch.bool)
    if tie_break is not None:
        tie_break = tie_break.expand_as(preds) if tie_break.shape == preds.shape[1:] else tie_break
        tie_break = on_grid(tie_break, "tie_break", preds, also=f" or {list(preds.shape[1:])}")
    if isinstance(target, Tensor) and target.dim() in (2, 3):
        return _dense(preds, target, mask, exclude, tie_break, validate)
    judged, errors = judged_items(target, preds, "preds [Q, D] of scores", limit=preds.shape[1])
    pairs = None
    if tie_break is not None:
        errors = errors + bad_tie_break(tie_break, mask, judged.ignored)
    if exclude is not None:
        pairs, bad = excluded_pairs(exclude, preds)
        errors = errors + bad
    if not preds.shape[1]:
        preds, tie_break = one_column(preds), None
        mask = torch.zeros_like(preds, dtype=torch.bool)  # the added column is padding
    return CatalogueLayout(errors, validate, preds, judged, mask, tie_break, pairs)


def _dense(
    preds: Tensor, target: Tensor, mask: Tensor | None, exclude: object, tie_break: Tensor | None, validate: bool
) -> DenseLayout:
    if target.shape[:2] != preds.shape or 0 in target.shape[2:]:
        raise ValueError(
            f"Expected target of preds' shape {list(preds.shape)} (a grade per candidate), with one more dimension (a"
            f" grade per candidate and subtopic), or [{preds.shape[0]}] (the column of the positive), a (query, item)"
            f" tuple or a list of {preds.shape[0]} id tensors, got shape {list(target.shape)}; if these are padded"
            " ids, pass list(target)"
        )
    grade = grades(target, preds.device)
    subtopics = grade if grade.dim() == 3 else None
    errors, pairs = bad_grades(grade, mask), None
    if tie_break is not None:
        errors = errors + bad_tie_break(tie_break, mask)
    if exclude is not None:
        pairs, bad = excluded_pairs(exclude, preds)
        errors = errors + bad
    # A candidate is as relevant as it is to its best subtopic: measures without subtopics read this grade.
    grade = grade if subtopics is None else grade.amax(-1)
    if not preds.shape[1]:
        preds, grade, tie_break = one_column(preds), grade.new_zeros((len(grade), 1)), None
        mask = torch.zeros_like(preds, dtype=torch.bool)
        subtopics = None if subtopics is None else subtopics.new_zeros((len(preds), 1, subtopics.shape[2]))
    return DenseLayout(errors, validate, preds, grade, mask, tie_break, pairs, subtopics)


def _flat(
    preds: Tensor,
    target: Any,
    indexes: Tensor | None,
    mask: Tensor | None,
    exclude: object,
    tie_break: Tensor | None,
    validate: bool,
) -> FlatRows:
    if indexes is None:
        raise ValueError(
            f"Expected indexes [{preds.shape[0]}] naming the query of each row of preds, got None;"
            " pass a single query as preds.unsqueeze(0), target.unsqueeze(0)"
        )
    if preds.dim() != 1:
        raise ValueError(f"Expected flat preds [row] together with indexes, got preds of shape {list(preds.shape)}")
    if not preds.is_floating_point():
        raise TypeError(
            f"Expected floating point scores in flat rows, got {preds.dtype}; pass integer scores as preds.float()"
        )
    if exclude is not None:
        raise ValueError("Expected no exclude for flat rows, got exclude; leave the rows out, or pass mask [row]")
    target, indexes = on_grid(target, "target", preds), on_grid(indexes, "indexes", preds)
    mask = None if mask is None else on_grid(mask, "mask", preds, dtype=torch.bool)
    tie_break = None if tie_break is None else on_grid(tie_break, "tie_break", preds)
    if indexes.is_floating_point() or indexes.is_complex() or indexes.dtype in (torch.bool, torch.uint64):
        raise TypeError(f"Expected integer indexes that int64 can hold, got {indexes.dtype}; pass indexes.long()")
    grade = grades(target, preds.device)
    errors = bad_grades(grade, mask)
    if tie_break is not None:
        errors = errors + bad_tie_break(tie_break, mask)
    return FlatRows(errors, validate, preds, grade, comparable(indexes), mask, tie_break)


def _ranked_ids(
    ids: Tensor, target: object, mask: Tensor | None, exclude: object, tie_break: Tensor | None, validate: bool
) -> RankedIds:
    if tie_break is not None:
        raise ValueError("Expected no tie_break for integer preds (ids already ranked), got tie_break; leave it out")
    if mask is not None:
        mask = on_grid(mask, "mask", ids, dtype=torch.bool)
    ids = integer_ids(ids, "preds", "target")
    judged, errors = judged_items(target, ids, "integer preds (ids, best first)", limit=None)
    pairs = None
    if exclude is not None:
        pairs, bad = excluded_pairs(exclude, ids, catalogue=False)
        errors = errors + bad
    # Engines never read an empty row, so lists of width 0 get one position of padding.
    if not ids.shape[1]:
        ids, mask = ids.new_full((ids.shape[0], 1), -1), None
    return RankedIds(errors, validate, ids.long(), judged, mask, pairs)
