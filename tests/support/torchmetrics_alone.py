"""Importing this module imports torchmetrics without ``scipy.signal`` and ``transformers``, which take a second each.

torchmetrics imports the first only to see whether a window has its old name, and the second for measures of texts.
"""

import sys
from types import SimpleNamespace

UNUSED = {
    "scipy.signal": SimpleNamespace(hamming=None),
    "transformers": SimpleNamespace(
        **dict.fromkeys(("AutoModel", "AutoTokenizer", "PreTrainedModel", "PreTrainedTokenizerBase"))
    ),
}
new = {name: module for name, module in UNUSED.items() if name not in sys.modules}
sys.modules.update(new)
import torchmetrics  # noqa: E402, F401

for name in new:
    del sys.modules[name]
