"""The threads of torch for a batch on a CPU: as many as there are cores that no other process wants.

torch cuts every operation into as many pieces as it has threads, and waits for all pieces. A batch is hundreds of
operations. Beside a process that keeps a core busy, each wait can be for a thread that has lost its core, which costs
milliseconds. One thread waits for nobody. The results are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from torchrank.hardware.load import free_cores

P = ParamSpec("P")


R = TypeVar("R")


# torch cuts an operation into pieces if it has more elements than this.
GRAIN = 2**15


# Whether a batch may run with another number of threads than that of the caller.
_flexible = True


def keep_number_of_threads(keep: bool) -> None:
    """Run all batches with the caller's number of threads, also on a busy machine."""
    global _flexible
    _flexible = not keep


def in_batch(device: torch.device, size: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return ``work(*args)``, with fewer threads of torch if fewer cores are free.

    Args:
        device: the device of the batch. Accelerators need no threads.
        size: number of elements of the batch. Operations with few elements are not cut into pieces.
        work: the function.
        *args: its arguments.
        **kwargs: its keyword arguments.
    """
    number = torch.get_num_threads()
    if device.type != "cpu" or size <= GRAIN or number < 2 or not _flexible or (free := free_cores()) >= number:
        return work(*args, **kwargs)
    torch.set_num_threads(max(1, int(free)))
    try:
        return work(*args, **kwargs)
    finally:
        torch.set_num_threads(number)
