"""Formulas that several measures share: gains, discounts, cascades, bounds by what is judged, random rankings."""

from __future__ import annotations
