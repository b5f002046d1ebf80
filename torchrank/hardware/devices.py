"""Precision and costs of a device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 on the devices that have nothing wider."""
    return torch.float32 if device.type == "mps" else torch.float64


def autocast_off(device: torch.device) -> AbstractContextManager[Any]:
    """Within it autocast is off: scores are ranked in the dtype that they have."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()
