"""Names of measures: labels and their grammar, other libraries' spellings, presets, checks of arguments."""

from __future__ import annotations
