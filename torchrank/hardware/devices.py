"""Precision and costs of a device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on the devices that have nothing wider."""
    return torch.float32 if device.type == "mps" else torch.float64


def autocast_off(device: torch.device) -> AbstractContextManager[Any]:
    """Within it autocast is off: scores are ranked in the dtype that they have."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


def reading_is_free(x: Tensor) -> bool:
    """Whether values of a tensor can be read without waiting.

    An accelerator runs behind the program, and a read waits until it has caught up. So every shortcut that depends on
    values (no tie, few grades, nothing to do) is taken on the CPU only.
    """
    return x.device.type == "cpu"
