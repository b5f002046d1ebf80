"""Progress bar of a long evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torchrank.names.arguments import imported


@contextmanager
def progress_bar(
    show: bool, doing: str = "ranking", unit: str = "product", delay: float = 0
) -> Iterator[Callable[[int], None]]:
    """Context with a progress bar; yields the function that moves it, which does nothing if ``show`` is False.

    The bar appears after ``delay`` seconds. Call the function with a number of steps to come, and with -n after n
    steps.

    Raises:
        ImportError: tqdm is not installed.
    """
    if not show:
        yield lambda change: None
        return
    with imported("tqdm.auto", instead="pass progress=False").tqdm(total=0, desc=doing, unit=unit, delay=delay) as bar:

        def step(change: int) -> None:
            if change < 0:
                bar.update(-change)
            else:
                bar.total += change
                bar.refresh()

        yield step
