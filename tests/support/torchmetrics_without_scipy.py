"""Importing this module imports torchmetrics without ``scipy.signal``, which takes a second or two.

torchmetrics imports it only to see whether a window has its old name.
"""

import sys
from types import SimpleNamespace

if "scipy.signal" not in sys.modules:
    sys.modules["scipy.signal"] = SimpleNamespace(hamming=None)
    import torchmetrics  # noqa: F401

    del sys.modules["scipy.signal"]
