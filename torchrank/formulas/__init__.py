"""Formulas that several measures are built from: gains, discounts, cascades, concordance, chance."""

from __future__ import annotations
