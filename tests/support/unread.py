"""Batches on the CPU of which no value is read, as on an accelerator."""

import sys


def leave_values_unread(monkeypatch):
    """Take the branches of an accelerator: every shortcut that depends on values is left out."""
    for name, module in list(sys.modules.items()):
        for function in ("reading_is_free", "all_finite"):
            if name.startswith("torchrank.") and hasattr(module, function):
                monkeypatch.setattr(module, function, lambda x: False)
