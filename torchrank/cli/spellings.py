"""The names of measures in other libraries, as a table in Markdown."""

from __future__ import annotations

from torchrank.metrics.spellings import SPELLINGS


def table() -> str:
    """One row for each label, in alphabetical order, with all spellings that give it."""
    spellings: dict[str, list[str]] = {}
    for spelling, labels in SPELLINGS.items():
        label = labels if isinstance(labels, str) else ", ".join(labels)
        spellings.setdefault(label, []).append(f"`{spelling}`")
    rows = [f"| `{label}` | {', '.join(spellings[label])} |" for label in sorted(spellings)]
    return "\n".join(["| label | spellings |", "| --- | --- |", *rows])
