"""Texts, numbers and elements of the report. A template of the page escapes texts by itself; charts call `escaped`."""

from __future__ import annotations

import html
import math
import re

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
