"""Batches on the CPU of which no value is read, as on an accelerator."""

import torch


def leave_values_unread(monkeypatch):
    """Take the branches of an accelerator: every shortcut that depends on values is left out."""
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
