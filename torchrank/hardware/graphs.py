"""Functions outside of the graphs of torch.compile, which would trace a ranking for minutes, for new shapes again."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from torchrank.names.arguments import explained

F = TypeVar("F", bound=Callable[..., Any])


def eager(function: F) -> F:
    """Exclude a function from the graphs of torch.compile and torch.jit.script, and explain wrong calls.

    Like torch.compiler.disable, but without its import, which takes seconds.
    """
    disabled = functools.cache(lambda: torch.compiler.disable(function))

    @functools.wraps(function)
    def outside(*args: Any, **kwargs: Any) -> Any:
        try:
            if "torch._dynamo" not in sys.modules:  # no function is compiled in this process
                return function(*args, **kwargs)
            return disabled()(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            raise explained(error, function, args, kwargs)  # noqa: B904

    outside._torchdynamo_disable = True  # type: ignore[attr-defined]
    outside.eager = outside  # type: ignore[attr-defined]
    return cast(F, torch.jit.unused(outside))
