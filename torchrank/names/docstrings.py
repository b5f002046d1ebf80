"""Docstrings that list the entries of a registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def with_texts(**texts: str) -> Callable[[Function], Function]:
    """A decorator that writes texts in place of words in capitals in the docstring of a function."""

    def decorate(function: Function) -> Function:
        for word, text in texts.items():
            function.__doc__ = (function.__doc__ or "").replace(word, text)
        return function

    return decorate
