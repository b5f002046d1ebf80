"""Metrics that estimate or examine the values of other metrics."""

from __future__ import annotations
