"""The first room: layouts of the user become canonical layouts, checked."""

from __future__ import annotations
