"""Batches on the CPU of which no value is read, as on an accelerator."""

from torch import Tensor


def leave_values_unread(monkeypatch):
    """Take the branches of an accelerator: every shortcut that depends on values is left out."""
    monkeypatch.setattr(Tensor, "is_cpu", False)


class Elsewhere(Tensor):
    """Tensors on the CPU that say that they are not, beside others; and so do all results of their operations."""

    is_cpu = False
