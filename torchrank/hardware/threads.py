"""Threads for a batch on a CPU: torch's own if the machine is quiet, torchrank's if other processes keep it busy.

torch cuts every operation into as many pieces as it has threads, and waits for all of them. A batch is hundreds of
operations. On a busy machine each wait can be for a thread that has lost its core, which costs milliseconds. So a busy
machine gets another scheme: the batch is cut once, into parts of whole queries. Each torchrank thread takes its parts
through all operations, with torch running serially. There is one wait, at the end.

On a quiet machine this scheme is up to three times as slow, because Python runs one thread at a time. So
:class:`torchrank.hardware.load.Load` measures for how long threads of this process were ready to run without a core,
while more cores were wanted than there are. Only Linux tells; other systems count as busy. Results are the same in both
schemes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import torch
from torch.utils._device import DeviceContext

from torchrank.hardware.load import NAME_PREFIX, Load

P = ParamSpec("P")


T = TypeVar("T")


R = TypeVar("R")


# Largest number of threads for the parts of a batch. Each operation of torch holds Python's lock for a few
# microseconds, so more threads would wait for each other. Each runs torch with its share of torch's threads.
MOST_THREADS = 4


# torch cuts an operation into pieces if it has more elements than this.
GRAIN = 2**15


# Largest number of user threads whose batches are cut into parts at the same time.
CALLERS = 2


machine = Load()


# Whether batches may be cut into parts for torchrank's threads.
_cutting = True


def allow_cutting(allowed: bool) -> None:
    """Allow batches to be cut into parts for torchrank's threads, or let torch's threads serve all batches."""
    global _cutting
    _cutting = allowed


class _Here(threading.local):
    """Roles of the current thread, 0 = it does not have the role."""

    #: if the thread runs a part: how many parts of the batch run at a time
    parts_at_once = 0
    #: if the thread runs a batch for a caller: the number of torch threads of the caller
    caller_threads = 0


_here = _Here()


class _Pool:
    """Threads that serve callers whose torch has a given number of threads."""

    def __init__(self, number: int) -> None:
        self.count = min(MOST_THREADS, number)
        begun = threading.Barrier(self.count + CALLERS + 1)
        # Batches run on threads of their own, because torch is serial in them: the caller's number stays as it is.
        self.parts = ThreadPoolExecutor(self.count, f"{NAME_PREFIX}-part", _begin, (begun, number // self.count))
        self.batches = ThreadPoolExecutor(CALLERS, f"{NAME_PREFIX}-batch", _begin, (begun, 1))
        try:
            # An executor starts a thread only if it has a task, so each thread gets an empty one.
            for pool, size in ((self.parts, self.count), (self.batches, CALLERS)):
                for _ in range(size):
                    pool.submit(int)
        except RuntimeError:  # the system starts no more threads: release the threads that wait at the barrier
            begun.abort()
            raise
        begun.wait()
        # Each thread has its own number of torch threads, but new threads inherit the number set last by any thread.
        # So set the caller's number again after all threads of the pool have set theirs.
        torch.set_num_threads(number)


def _begin(begun: threading.Barrier, number: int) -> None:
    torch.get_num_threads()  # initialises torch in this thread; otherwise the first operation resets the number
    torch.set_num_threads(number)
    begun.wait()


_pools: dict[int, _Pool] = {}


_lock = threading.Lock()


def _pool(number: int) -> _Pool:
    with _lock:
        if number not in _pools:
            _pools[number] = _Pool(number)
        return _pools[number]


def _after_fork() -> None:
    global _lock, machine
    # The child has no copy of the threads, and a lock that another thread held would stay locked for ever.
    _pools.clear()
    _lock, machine = threading.Lock(), Load()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def parts_at_once() -> int:
    """Number of parts of a batch that run at a time, including this thread's. They share memory and caches."""
    return max(1, _here.parts_at_once)


def available() -> int:
    """Number of threads on which the parts of a batch can run now: 1 inside a part and on a quiet machine."""
    number = _here.caller_threads or torch.get_num_threads()
    together = not _cutting or _here.parts_at_once or machine.quiet or _watched()
    return 1 if together else min(MOST_THREADS, number)


def _watched() -> bool:
    """Whether a torch mode intercepts the operations of this thread, other than the mode of a default device.

    Modes belong to one thread, so they would miss the operations on other threads.
    """
    if torch._C._len_torch_dispatch_stack():
        return True
    count = torch._C._len_torch_function_stack()
    return any(not isinstance(torch._C._get_function_stack_at(i), DeviceContext) for i in range(count))


def each(work: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """Return ``work(part)`` for every part, in order; on threads if there are several parts and threads."""
    if len(parts) < 2 or available() < 2:
        return [work(part) for part in parts]
    pool = _pool(_here.caller_threads or torch.get_num_threads())
    inside, count = _in_our_modes(work), min(pool.count, len(parts))

    def one(part: T) -> R:
        _here.parts_at_once = count
        try:
            return inside(part)
        finally:
            _here.parts_at_once = 0

    futures = [pool.parts.submit(one, part) for part in parts]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:  # if one failed, do not begin the others
            future.cancel()
        # A failed future holds its exception, and the exception holds this frame: a cycle that keeps the batch alive.
        futures.clear()


def serially(device: torch.device, size: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return ``work(*args)`` for a batch; on a busy machine with torch running serially outside of :func:`each`.

    A batch with few elements (``size``) or on an accelerator runs on the caller's thread.
    """
    small = device.type != "cpu" or size <= GRAIN
    inside = _here.caller_threads or _here.parts_at_once
    if small or inside or not _cutting or torch.get_num_threads() < 2 or _watched():
        return work(*args, **kwargs)
    with machine.measured():
        if machine.quiet:
            return work(*args, **kwargs)
        number, carried = torch.get_num_threads(), _in_our_modes(work)

        def one() -> R:
            _here.caller_threads = number
            try:
                return carried(*args, **kwargs)
            finally:
                _here.caller_threads = 0

        return _pool(number).batches.submit(one).result()


def _in_our_modes(work: Callable[P, R]) -> Callable[P, R]:
    """Wrap work for another thread, so that inference mode and gradients there are as on this thread."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return work(*args, **kwargs)

    return carried
