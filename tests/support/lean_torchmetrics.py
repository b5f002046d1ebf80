"""Importing this module imports torchmetrics without SciPy and matplotlib, which workers do not use."""

from torchrank.cli.lean import import_torchmetrics

import_torchmetrics(whole=False)
