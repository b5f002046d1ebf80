"""The threads of torch for a batch on a CPU: as many as there are cores that no other process wants.

torch cuts every operation into as many pieces as it has threads, and waits for all pieces. A batch is hundreds of
operations. Beside a process that keeps a core busy, each wait can be for a thread that has lost its core, which costs
milliseconds. One thread waits for nobody. The results are the same.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

import torch

#: seconds for which a count of threads holds, because the system takes a tenth of a millisecond for it
HOLDS = 0.01

#: when threads were counted, and how many of other processes wanted a core
_counted = -math.inf, 0


def free_cores() -> float:
    """Number of cores that this process may use and that no thread of another process wants; may be below 1."""
    global _counted
    now = time.monotonic()
    if now - _counted[0] > HOLDS:
        running = _running()
        # The threads of this process include those of torch, which spin for milliseconds after an operation.
        _counted = now, max(0, running - _own()) if running > 1 else 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores - _counted[1], _quota())


@functools.cache
def _quota() -> float:
    """The quota of a Linux container in cores, read once; inf if there is none."""
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max") as file:
        quota, period = map(int, file.read().split())  # without a quota, the first word is "max"
        return quota / period
    return math.inf


def _running() -> int:
    """Number of threads of the machine that run or wait for a core; 0 if the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/loadavg", "rb", buffering=0) as file:
        return int(file.read(64).split()[3].partition(b"/")[0])
    return 0


def _own() -> int:
    """Number of such threads of this process, at least 1."""
    running = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            # A thread may end between the listing and the reading.
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/stat", "rb", buffering=0) as file:
                running += file.read(256).rpartition(b") ")[2][:1] == b"R"  # behind the name, which may be anything
    return max(1, running)


# torch cuts an operation into pieces if it has more elements than this.
GRAIN = 2**15

# Whether a batch may run with another number of threads than that of the caller.
_flexible = True


def keep_number_of_threads(keep: bool) -> None:
    """Run all batches with the caller's number of threads, also on a busy machine."""
    global _flexible
    _flexible = not keep


def in_batch(device: torch.device, size: int) -> AbstractContextManager[None]:
    """Context of a batch, with fewer threads of torch if fewer cores are free.

    Args:
        device: the device of the batch. Accelerators need no threads.
        size: number of elements of the batch. Operations with few elements are not cut into pieces.
    """
    number = torch.get_num_threads()
    if device.type != "cpu" or size <= GRAIN or number < 2 or not _flexible or (free := free_cores()) >= number:
        return contextlib.nullcontext()
    return _with_threads(max(1, int(free)))


@contextlib.contextmanager
def _with_threads(fewer: int) -> Iterator[None]:
    number = torch.get_num_threads()
    torch.set_num_threads(fewer)
    try:
        yield
    finally:
        torch.set_num_threads(number)
