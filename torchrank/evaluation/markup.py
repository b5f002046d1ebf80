"""HTML of the report: elements, tables and numbers, in which every text is escaped."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

#: characters that HTML cannot hold: controls and lone surrogates
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: object) -> str:
    r"""A text without the characters that HTML cannot hold; each becomes U+FFFD.

    Example:
        >>> clean("a\x00b") == "a\ufffdb"
        True
    """
    return _FORBIDDEN.sub("\ufffd", str(text))


def escaped(text: object) -> str:
    """A text as content, or as the value of an attribute.

    Example:
        >>> escaped('<b title="x">')
        '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(clean(text))


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element. Its content is markup, its attributes are texts; None leaves an attribute out.

    Example:
        >>> tag("th", escaped("a & b"), scope="col", class_="n", id=None)
        '<th scope="col" class="n">a &amp; b</th>'
    """
    given = (
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{''.join(given)}>{content}</{name}>"


def number(value: float | str | None, spec: str = ".4f") -> str:
    """A number as text; "-" if it is missing.

    Example:
        >>> number(0.25), number(3, "d"), number(float("nan")), number(None)
        ('0.2500', '3', '-', '-')
    """
    if value is None or isinstance(value, str):
        return value or "-"
    return "-" if math.isnan(value) else format(value, spec)


def interval(low: float, high: float, spec: str = ".4f") -> str:
    """An interval as text; "-" if there is none.

    Example:
        >>> interval(0.1, 0.25, "+.2f")
        '[+0.10, +0.25]'
    """
    return "-" if math.isnan(low) or math.isnan(high) else f"[{low:{spec}}, {high:{spec}}]"


class Best(str):
    """The text of the cell that is the best of its group, which is printed in bold."""

    __slots__ = ()


@dataclass(frozen=True)
class Head:
    """The head of a column.

    Attributes:
        text: the name of the column.
        numeric: whether its cells are aligned on the right.
        title: an explanation, shown if the pointer rests on it.
    """

    text: str
    numeric: bool = True
    title: str | None = None


def table(
    heads: Sequence[Head], groups: Sequence[tuple[str | None, Sequence[Sequence[str]]]], caption: str, **attributes: str
) -> str:
    """A table in a box that scrolls sideways if the page is narrow.

    Args:
        heads: the heads of the columns.
        groups: texts of the cells of rows, by group. The name of a group is a further cell, over all its rows; None =
            no such cell. The first text of a row is its name.
        caption: the name of the table, read by screen readers.
        **attributes: attributes of the table.
    """
    head = "".join(
        tag("th", escaped(one.text), scope="col", class_="n" if one.numeric else None, title=one.title) for one in heads
    )
    bodies = "".join(tag("tbody", _group(name, rows, heads)) for name, rows in groups)
    inner = tag("caption", escaped(caption)) + tag("thead", tag("tr", head)) + bodies
    return tag(
        "div", tag("table", inner, **attributes), class_="scroll", tabindex="0", role="region", aria_label=caption
    )


def _group(name: str | None, rows: Sequence[Sequence[str]], heads: Sequence[Head]) -> str:
    lines: list[str] = []
    for row in rows:
        cells = (
            [tag("th", escaped(name), scope="rowgroup", rowspan=len(rows))] if name is not None and not lines else []
        )
        for at, (cell, head) in enumerate(zip(row, heads[name is not None :])):
            classes = " ".join(["n"] * head.numeric + ["best"] * isinstance(cell, Best))
            scope = "row" if at == 0 else None
            cells.append(tag("td" if scope is None else "th", escaped(cell), scope=scope, class_=classes or None))
        lines.append(tag("tr", "".join(cells)))
    return "".join(lines)
