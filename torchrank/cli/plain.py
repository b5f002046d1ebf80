"""Text for a terminal of 100 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

WIDTH = 100
#: longer names do not widen the first column of a list
LONGEST = 24

# LaTeX commands in formulas, and their text in a terminal.
SYMBOLS = {
    "sum": "Σ", "prod": "Π", "le": "≤", "ge": "≥", "ne": "≠", "in": "∈", "notin": "∉", "cap": "∩", "bigcup": "∪",  # noqa: RUF001
    "exists": "∃", "cdot": "·", "alpha": "α", "beta": "β", "tau": "τ", "choose": " choose ", "left": "", "right": "",  # noqa: RUF001
    "text": "", ",": " ", "{": "{", "}": "}",
}  # fmt: skip


def rows(pairs: Iterable[tuple[str, str]], indent: int = 2) -> list[str]:
    """Lines of a table with two columns. The second column is wrapped."""
    pairs = list(pairs)
    start = indent + max((len(left) for left, _ in pairs), default=0) + 2
    lines = []
    for left, right in pairs:
        first, rest = " " * indent + left.ljust(start - indent), " " * start
        lines += textwrap.wrap(right, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return lines


def listed(pairs: Iterable[tuple[str, str]], width: float, example: str = "") -> str:
    """Lines "name  text", cut at ``width`` characters, and an example of the command that prints one whole."""
    pairs = [(left.replace("`", ""), right.replace("`", "")) for left, right in pairs]
    start = min(max(len(left) for left, _ in pairs), LONGEST)
    lines = [f"{left.ljust(start)}  {right}" for left, right in pairs]
    cut = [line if len(line) <= width else f"{line[: int(width) - 1].rstrip()}…" for line in lines]
    return "\n".join([*cut, *([f"\n`{example}` describes one of them."] if example else [])])


def formula(latex: str) -> str:
    """A LaTeX formula as plain text."""
    # Unbrace simple indexes first, so that the braces that remain belong to fractions, roots and groups.
    latex = re.sub(r"([_^])\{(\w+)\}", r"\1\2", latex)
    while match := re.search(r"\\frac(?={)", latex):
        above, behind = _group(latex, match.end())
        below, behind = _group(latex, behind)
        over = "/" if re.fullmatch(r"\w+", above) and re.fullmatch(r"\w+", below) else " / "
        latex = f"{latex[: match.start()]}{_factor(above)}{over}{_factor(below)}{latex[behind:]}"
    while match := re.search(r"\\sqrt(?={)", latex):
        inside, behind = _group(latex, match.end())
        latex = f"{latex[: match.start()]}√({inside}){latex[behind:]}"
    latex = re.sub(r"(?<!\\)\{", "(", re.sub(r"(?<!\\)\}", ")", latex))
    return " ".join(re.sub(r"\\([a-z]+|.)", lambda command: SYMBOLS.get(command[1], command[1]), latex).split())


def _group(text: str, start: int) -> tuple[str, int]:
    """The inside of a group that begins with a brace at ``start``, and the position behind the group."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0) * (text[position - 1] != "\\")
        if not depth:
            return text[start + 1 : position], position + 1
    raise ValueError(f"Expected a closing brace for {text[start:]!r}, got none")


def _factor(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"
