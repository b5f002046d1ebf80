"""Checks of tensors that describe the items of a catalogue."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchrank.hardware.devices import widened
from torchrank.layouts.checks import type_of


def item_numbers(name: str, values: Any) -> Tensor:
    """A number for each item of the catalogue, checked: float64 [item].

    Raises:
        ValueError: it is not a 1-D tensor of one or more finite numbers >= 0.
    """
    if not isinstance(values, Tensor) or values.dim() != 1 or values.is_complex():
        raise ValueError(
            f"Expected {name} to be a tensor [item], a number for each item of the catalogue,"
            f" got {kind_of(values, name)}"
        )
    numbers = widened(values.detach())
    if not len(numbers) or not bool((numbers.isfinite() & (numbers >= 0)).all()):
        raise ValueError(f"Expected {name} to be one or more finite numbers >= 0, got other values or none")
    return numbers


def item_flags(name: str, values: Any, true: str) -> Tensor:
    """A flag for each item of the catalogue, checked: bool [item]. ``true`` names the items of True.

    Raises:
        TypeError: it is not a 1-D bool tensor.
    """
    if not isinstance(values, Tensor) or values.dim() != 1 or values.dtype != torch.bool:
        raise TypeError(f"Expected {name} to be bool [item], True for {true}, got {kind_of(values, name)}")
    return values


def item_categories(values: Any, several: bool = True) -> Tensor:
    """The categories of each item, checked: integer [item], or bool [item, category] if there can be ``several``.

    Raises:
        TypeError: another shape or dtype, no items, or no categories.
    """
    there = isinstance(values, Tensor) and values.numel() > 0
    single = there and values.dim() == 1 and is_integer(values)
    if not single and not (there and several and values.dim() == 2 and values.dtype == torch.bool):
        wanted = "integer [item] or bool [item, category]" if several else "integer [item]"
        raise TypeError(f"Expected categories to be {wanted}, got {kind_of(values, 'categories')}")
    return values


def item_embeddings(values: Any) -> Tensor:
    """An embedding of each item, checked: floating [item, dimension].

    Raises:
        TypeError: another shape or dtype, or no items.
        ValueError: a number is not finite.
    """
    if not isinstance(values, Tensor) or values.dim() != 2 or not values.is_floating_point() or not len(values):
        raise TypeError(f"Expected embeddings to be floating [item, dimension], got {kind_of(values, 'embeddings')}")
    if not bool(values.isfinite().all()):
        raise ValueError("Expected embeddings to be finite numbers, got NaN or infinite ones")
    return values


def is_integer(x: Tensor) -> bool:
    """Whether a tensor has an integer dtype; bool is none."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def kind_of(x: object, name: str) -> str:
    """For an error: the dtype and shape of a tensor; the type of any other object, and the call that converts it."""
    return f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type_of(x, name)
