"""Collections: many metrics, updated from one ranking."""

from __future__ import annotations
