"""A bar that shows how far a long evaluation is, on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(show: bool) -> Iterator[Callable[[int], None] | None]:
    """What to call with a number of steps to come, and with -1 after each; None if nothing is to be shown.

    Raises:
        ModuleNotFoundError: tqdm is not installed.
    """
    if not show:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Expected tqdm to be installed for progress=True: pip install tqdm") from None
    with tqdm(total=0, desc="ranking", unit="product") as bar:

        def step(change: int) -> None:
            if change < 0:
                bar.update(-change)
            else:
                bar.total += change
                bar.refresh()

        yield step
