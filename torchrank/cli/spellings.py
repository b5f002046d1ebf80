"""``torchrank spellings``: the names of measures in other libraries, as a table in Markdown."""

from __future__ import annotations

from torchrank.names.registry import measures
from torchrank.names.spellings import known, without_optional


def table() -> str:
    """The table: a row for each label, in alphabetical order, with all its spellings."""
    spellings: dict[str, dict[str, None]] = {}
    for name, measure in measures().items():
        for one in known(measure):
            if one.same and one.theirs and without_optional(one.theirs) != name:
                label = ", ".join(name + without_optional(setting) for setting in one.settings)
                spellings.setdefault(label, {})[f"`{without_optional(one.theirs)}`"] = None
    rows = [f"| `{label}` | {', '.join(spellings[label])} |" for label in sorted(spellings)]
    return "\n".join(["| label | spellings |", "| --- | --- |", *rows])
