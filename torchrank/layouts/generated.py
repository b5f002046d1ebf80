"""Lists of generative retrieval: identifiers that a model generates, of one item, of several or of none."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchrank.layouts.checks import integer_ids, tensor_of


def identifiers(beams: Tensor, ids_of: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number the identifiers, equal ones alike. Reads values, so it waits for an accelerator.

    Args:
        beams: int [query, beam], or [query, beam, level] for identifiers of several codes; negative = padding.
        ids_of: int [item] or [item, level], the identifier of each item.

    Returns:
        three of int64: the number of each beam, -1 = padding, [query, beam]; that of each item; and how many items have
        the identifier of each beam, 0 of padding, [query, beam].

    Raises:
        TypeError, ValueError: they are not integers, or not of as many levels.
    """
    beams, ids_of = integer_ids(beams, "beams", "ids_of"), integer_ids(ids_of, "ids_of", "beams")
    if ids_of.dim() not in (1, 2) or not ids_of.numel() or beams.dim() < 2 or beams.shape[2:] != ids_of.shape[1:]:
        wanted = "beams [query, beam] and ids_of [item], or both with one more dimension of as many levels"
        raise ValueError(f"Expected {wanted}, got shapes {list(beams.shape)} and {list(ids_of.shape)}")
    ids_of, levels = ids_of.to(beams.device).long(), max(1, ids_of.shape[1:].numel())
    codes = torch.cat([ids_of.reshape(-1, levels), beams.long().reshape(-1, levels)])
    number = torch.zeros_like(codes[:, 0])
    for code in codes.unbind(-1):
        _, one = code.unique(return_inverse=True)
        _, number = (number * len(codes) + one).unique(return_inverse=True)
    items, generated = number.split([len(ids_of), len(number) - len(ids_of)])
    padding = (codes[len(ids_of) :] < 0).any(-1)
    counts = items.bincount(minlength=int(number.max()) + 1)[generated].masked_fill(padding, 0)
    return generated.masked_fill(padding, -1).view(beams.shape[:2]), items, counts.view(beams.shape[:2])


def check_items(target: Any, ids_of: Any) -> None:
    """Raise ValueError if a target is a matrix of identifiers of items, in the place of numbers of items."""
    target, ids_of = target if isinstance(target, list) else tensor_of(target), tensor_of(ids_of)
    if not isinstance(target, Tensor) or target.dim() < 2 or not target.shape[1] == ids_of.shape[-1] > 1:
        return
    if len(target) and ids_of.dim() == 2 and bool((identifiers(target.unsqueeze(1), ids_of)[2] > 0).all()):
        raise ValueError("Expected target to have rows of ids_of, got identifiers; pass the items, or list(target)")
