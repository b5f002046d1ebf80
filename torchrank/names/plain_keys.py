"""Plain spellings of labels, for loggers that refuse or drop characters such as "@", "(" and "="."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

#: the spelling of the keys of a collection
KeyStyle = Literal["label", "plain", "identifier"]

_SPELLED = str.maketrans({"@": "_at_", "%": "pct", **dict.fromkeys("(,=:", "_"), **dict.fromkeys("){}", "")})
# MLflow accepts these and ":", which it refuses on Windows. Lightning's MLFlowLogger drops letters beyond ASCII.
_REFUSED = re.compile(r"[^\w/. -]", re.ASCII)
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_MINUS = re.compile(r"(?:(?<=[=,:{])|(?<=\de))-(?=\d)")


def plain(label: str, *, identifier: bool = False) -> str:
    """The plain spelling of a label, which all loggers accept: ``ndcg_at_10`` for ``ndcg@10``.

    ``@`` becomes ``_at_``; ``%`` becomes ``pct``; ``(``, ``,``, ``=`` and ``:`` become ``_``; closing and curly
    brackets are left out. ASCII letters, digits, ``_``, ``/``, ``.``, ``-`` and blanks stay, and any other character
    becomes ``_``.

    Different labels of this library's measures have different plain spellings, because each can be read in one way
    only. Names of measures contain no ``_``. No parameter or option of a measure has a name that another one continues
    after ``_``. Numbers begin with a digit or a sign. A callable of yours can break this: a gain with the name
    ``exponential_at_10``. A :class:`torchrank.RankingCollection` refuses two keys with one spelling.

    Args:
        label: a label, or any other key.
        identifier: also spell numbers without ``.`` and ``-``: 0.8 is ``0p8`` and 1e-05 is ``1em05``. Any other such
            character, ``/`` and blanks become ``_``. The result fits ``[_a-zA-Z][_a-zA-Z0-9]*``, W&B's pattern of
            names by which its pages can sort and filter.

    Returns:
        The spelling. It fits MLflow's pattern ``[/\\w.\\- :]*``. The plain spelling of a plain spelling is the same.

    Raises:
        TypeError: the label is not a text.

    Example:
        >>> import torchrank as tr
        >>> tr.plain("rbp(p=0.8)@5"), tr.plain(tr.NDCG(top_k=10, gain="exponential").label)
        ('rbp_p_0.8_at_5', 'ndcg_gain_exponential_at_10')
        >>> tr.plain("rbp(p=0.8)@5", identifier=True)
        'rbp_p_0p8_at_5'
    """
    if not isinstance(label, str):
        raise TypeError(f"Expected a label, got {label!r}; pass the label of a metric, e.g. tr.plain(metric.label)")
    if not identifier:
        return _REFUSED.sub("_", label.translate(_SPELLED))
    spelled = plain(_MINUS.sub("m", _POINT.sub("p", label)))
    return re.sub(r"[/. -]|^(?=\d)", "_", spelled)


def spell(key: str, style: str) -> str:
    """A key in the spelling of a collection."""
    return key if style == "label" else plain(key, identifier=style == "identifier")


def check_different(keys: Iterable[str], style: str) -> None:
    """Raise ValueError if two keys have the same spelling."""
    labels: dict[str, str] = {}
    for key in keys:
        spelled = spell(key, style)
        if spelled in labels:
            other = labels[spelled]
            wanted, got = (
                ("every metric once", f"{key!r} twice")
                if other == key
                else (f"keys with different {style} spellings", f"{other!r} and {key!r}, both {spelled!r}")
            )
            raise ValueError(f"Expected {wanted}, got {got}; pass a dict to choose the keys")
        labels[spelled] = key
