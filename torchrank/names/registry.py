"""The registry of all measures by name."""

from __future__ import annotations

from typing import Any

#: the registries of all kinds of measures; a name in a later registry wins
KINDS: list[dict[str, Any]] = []


def measures() -> dict[str, Any]:
    """Every measure by its name, including measures of users."""
    by_name: dict[str, Any] = {}
    for kind in KINDS:
        by_name |= kind
    return by_name
