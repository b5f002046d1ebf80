"""Arithmetic helpers of derived quantities and measures."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, elementwise; 0 where the whole is 0."""
    return torch.where(whole == 0, whole, part / whole)


def row_sum(x: Tensor) -> Tensor:
    """Sums over the last dimension; a view if it has one element."""
    return x.squeeze(-1) if x.shape[-1] == 1 else x.sum(-1)


def marked_rows(where: Tensor) -> Tensor:
    """Numbers of the rows with a True, int64; all rows if reading the values would wait for a device."""
    if not reading_is_free(where):
        return torch.arange(len(where), device=where.device)
    return where.any(-1).nonzero().squeeze(-1)


def running_sum(x: Tensor) -> Tensor:
    """Cumulative sum of floats over the last dimension, the same in every run."""
    if reading_is_free(x):
        return x.cumsum(-1)
    # torch.cumsum is not deterministic on accelerators, so add shifted copies, with shifts 1, 2, 4, ...
    step = 1
    while step < x.shape[-1]:
        x = x + torch.nn.functional.pad(x[..., :-step], (step, 0))
        step *= 2
    return x
