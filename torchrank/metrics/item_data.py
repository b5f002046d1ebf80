"""Checks of tensors that describe the items of a catalogue."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchrank.layouts.checks import tensor_of, type_of


def item_numbers(name: str, given: Any) -> Tensor:
    """A number for each item of the catalogue, checked: float64 [item].

    Raises:
        ValueError: it is not a 1-D tensor of one or more finite numbers >= 0.
    """
    given = tensor_of(given)
    if not isinstance(given, Tensor) or given.dim() != 1 or given.is_complex():
        raise ValueError(
            f"Expected {name} to be a tensor [item], a number for each item of the catalogue,"
            f" got {kind_of(given, name)}"
        )
    numbers = given.detach().to(torch.float64)
    if not len(numbers) or not bool((numbers.isfinite() & (numbers >= 0)).all()):
        raise ValueError(f"Expected {name} to be one or more finite numbers >= 0, got other values or none")
    return numbers


def item_flags(name: str, given: Any, true: str) -> Tensor:
    """A flag for each item of the catalogue, checked: bool [item]. ``true`` names the items of True.

    Raises:
        TypeError: it is not a 1-D bool tensor.
    """
    given = tensor_of(given)
    if not isinstance(given, Tensor) or given.dim() != 1 or given.dtype != torch.bool:
        raise TypeError(f"Expected {name} to be bool [item], True for {true}, got {kind_of(given, name)}")
    return given


def item_categories(given: Any, several: bool = True) -> Tensor:
    """The categories of each item, checked: integer [item], or bool [item, category] if there can be ``several``.

    Raises:
        TypeError: another shape or dtype, no items, or no categories.
    """
    given = tensor_of(given)
    there = isinstance(given, Tensor) and given.numel() > 0
    one = there and given.dim() == 1 and is_integer(given)
    if not one and not (there and several and given.dim() == 2 and given.dtype == torch.bool):
        wanted = "integer [item] or bool [item, category]" if several else "integer [item]"
        raise TypeError(f"Expected categories to be {wanted}, got {kind_of(given, 'categories')}")
    return given


def item_embeddings(given: Any) -> Tensor:
    """An embedding of each item, checked: floating [item, dimension].

    Raises:
        TypeError: another shape or dtype, or no items.
        ValueError: a number is not finite.
    """
    given = tensor_of(given)
    if not isinstance(given, Tensor) or given.dim() != 2 or not given.is_floating_point() or not len(given):
        raise TypeError(f"Expected embeddings to be floating [item, dimension], got {kind_of(given, 'embeddings')}")
    if not bool(given.isfinite().all()):
        raise ValueError("Expected embeddings to be finite numbers, got NaN or infinite ones")
    return given


def is_integer(x: Tensor) -> bool:
    """Whether a tensor has an integer dtype; bool is none."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def kind_of(x: object, name: str) -> str:
    """For an error: the dtype and shape of a tensor; the type of any other object, and the call that converts it."""
    return f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type_of(x, name)
