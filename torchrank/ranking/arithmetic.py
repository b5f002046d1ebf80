"""Arithmetic that derived quantities and measures share."""

from __future__ import annotations

import torch
from torch import Tensor

from torchrank.hardware.devices import reading_is_free


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole, and 0 where the whole is 0."""
    return torch.where(whole == 0, 0.0, part / whole)


def marked_rows(where: Tensor) -> Tensor:
    """Rows in which something is marked, int64; all of them where finding out would mean waiting for the device."""
    if not reading_is_free(where):
        return torch.arange(len(where), device=where.device)
    return where.any(-1).nonzero().squeeze(-1)


def running_sum(x: Tensor) -> Tensor:
    """Cumulative sum of floats over the last dimension, in an order that does not change from run to run."""
    if reading_is_free(x):
        return x.cumsum(-1)
    step = 1  # torch.cumsum is not deterministic on accelerators
    while step < x.shape[-1]:
        x = x + torch.nn.functional.pad(x[..., :-step], (step, 0))
        step *= 2
    return x
