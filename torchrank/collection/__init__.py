"""Many measures, one ranking."""

from __future__ import annotations
