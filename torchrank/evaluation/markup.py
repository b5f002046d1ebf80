"""Texts, numbers and elements of charts. A template of the page escapes texts by itself; charts call `escaped`."""

from __future__ import annotations

import html
import math

from torchrank.statistics.table import cell, printable


def escaped(text: object) -> str:
    """A text as content, or as the value of an attribute.

    Example:
        >>> escaped('<b title="x">')
        '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(printable(str(text)))


def tag(name: str, content: str = "", **attributes: object) -> str:
    """An element. Its content is markup, its attributes are texts; None leaves an attribute out.

    Example:
        >>> tag("th", escaped("a & b"), scope="col", class_="n", id=None)
        '<th scope="col" class="n">a &amp; b</th>'
    """
    texts = (
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{''.join(texts)}>{content}</{name}>"


def interval(low: float, high: float, spec: str = ".4f") -> str:
    """An interval as text; "-" if there is none.

    Example:
        >>> interval(0.1, 0.25, "+.2f")
        '[+0.10, +0.25]'
    """
    return "-" if math.isnan(low) or math.isnan(high) else f"[{cell(low, spec)}, {cell(high, spec)}]"
