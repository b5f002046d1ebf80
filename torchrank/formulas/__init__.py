"""Formulas that several measures share: gains, discounts, cascades, concordance, random rankings."""

from __future__ import annotations
