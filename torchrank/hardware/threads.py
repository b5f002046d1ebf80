"""Threads for a batch on a CPU: torch's own while the machine is quiet, parts on threads of ours while it is busy.

torch cuts every operation into as many pieces as it has threads, and waits for all of them. A batch is hundreds of
operations. While other processes keep the cores busy, each wait is for a thread that has lost its core, some
milliseconds long. Then a batch is cut once: every thread of ours takes whole queries through all operations, torch runs
serially in it, and there is one wait at the end.

On a quiet machine that is up to 1.4 times as slow, because Python runs one thread at a time. So the time for which
threads of this process were ready to run and had no core is read after each batch. Linux keeps it in ``schedstat``;
other systems count as busy. The numbers are the same either way.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch.utils._device import DeviceContext

P = ParamSpec("P")


T = TypeVar("T")


R = TypeVar("R")


# Threads for the parts of a batch. Python runs one thread at a time, a few microseconds for each operation of torch:
# more threads would wait for each other there. Each runs torch with its share of torch's threads.
MOST = 4


# The names of these threads begin with it.
NAME = "torchrank"


# Elements from which on torch cuts an operation into pieces.
GRAIN = 2**15


# Batches of different threads of the user that are cut into parts at the same time.
CALLERS = 2


# Seconds of batches after which the machine is judged, and the share of them in which a thread may lack a core.
WINDOW, LACKING = 0.01, 0.1


# After a quiet verdict the next batch that is judged begins so many windows later.
REST = 5


# Seconds of batches for which a machine that was busy must be quiet, at least and at most.
PATIENCE = (0.2, 5.0)


class Load:
    """Whether other processes keep the cores busy, as far as threads of this process have felt it in batches."""

    def __init__(self) -> None:
        self.quiet = False
        self._seconds, self._waited, self._calm = 0.0, 0.0, 0.0
        self._patience, self._next = 0.0, 0.0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def felt(self) -> Iterator[None]:
        """Judge by the batch that runs within."""
        resting = self.quiet and time.perf_counter() < self._next
        if resting or not self._lock.acquire(blocking=False):  # another batch runs at the same time
            yield
            return
        try:
            apart, before, start = not self.quiet, times(), time.perf_counter()
            yield
            seconds, after = time.perf_counter() - start, times()
            self._next = start + seconds + REST * WINDOW
            spent = {thread: after[thread] - before[thread] for thread in before.keys() & after.keys()}
            self.judge(seconds, lacking(spent, apart), known=bool(spent))
        finally:
            self._lock.release()

    def judge(self, seconds: float, waited: float, known: bool = True) -> None:
        """Judge by a batch of some seconds, for ``waited`` of which a thread had no core."""
        self._seconds, self._waited = self._seconds + seconds, self._waited + waited
        if self._seconds < WINDOW:
            return
        busy = not known or self._waited > LACKING * self._seconds
        least, most = PATIENCE
        if busy and self.quiet:  # if it was quiet for a short time only, trust comes later
            self._patience = least if self._calm > most else min(max(2 * self._patience, least), most)
        self._calm = 0.0 if busy else self._calm + self._seconds
        self.quiet = not busy and self._calm >= self._patience
        self._seconds, self._waited = 0.0, 0.0


class Time(NamedTuple):
    """Nanoseconds for which a thread ran, and for which it was ready to run and had no core."""

    ran: int
    waited: int

    def __sub__(self, earlier: Time) -> Time:
        return Time(self.ran - earlier.ran, self.waited - earlier.waited)


def lacking(spent: dict[int, Time], apart: bool) -> float:
    """Seconds for which a thread had no core, through no fault of this process.

    Behind an operation torch's threads spin for some milliseconds, in the way of a batch that runs ``apart`` from them.
    """
    ours = {thread.native_id for thread in threading.enumerate() if thread.name.startswith(NAME)}
    own_fault = sum(time.ran for thread, time in spent.items() if thread not in ours) if apart else 0
    return max(0, max((time.waited for time in spent.values()), default=0) - own_fault) / 1e9


def times() -> dict[int, Time]:
    """The times of threads of this process, by thread; of 64 at most."""
    found = {}
    with contextlib.suppress(OSError):  # another system
        for thread in os.listdir("/proc/self/task")[:64]:
            path = f"/proc/self/task/{thread}/schedstat"
            with contextlib.suppress(OSError, ValueError), open(path, "rb", buffering=0) as file:  # or it has ended
                ran, waited, _ = file.read().split()
                found[int(thread)] = Time(int(ran), int(waited))
    return found


load = Load()


class _Here(threading.local):
    """State of one thread."""

    #: how many parts of its batch run at a time, if it runs one of them
    beside = 0
    #: the number of threads of its caller's torch, if it runs a batch for another thread
    number = 0


_here = _Here()


class _Pool:
    """Threads that serve callers whose torch has some number of threads."""

    def __init__(self, number: int) -> None:
        self.count = min(MOST, number)
        begun = threading.Barrier(self.count + CALLERS + 1)
        self.parts = ThreadPoolExecutor(self.count, f"{NAME}-part", _begin, (begun, number // self.count))
        self.batches = ThreadPoolExecutor(CALLERS, f"{NAME}-batch", _begin, (begun, 1))
        try:
            for pool, size in ((self.parts, self.count), (self.batches, CALLERS)):
                for _ in range(size):
                    pool.submit(int)
        except RuntimeError:  # no more threads can begin: those that have must not wait for them
            begun.abort()
            raise
        begun.wait()
        # A thread has a number of its own, but the last that any has set is the one of all threads to come.
        torch.set_num_threads(number)


def _begin(begun: threading.Barrier, number: int) -> None:
    torch.get_num_threads()  # or the first operation would set it again
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
    global _lock, load
    _pools.clear()  # the threads are not in the child
    _lock, load = threading.Lock(), Load()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def beside() -> int:
    """How many parts of a batch run at a time, this thread's included. They share memory and caches."""
    return max(1, _here.beside)


def available() -> int:
    """Threads of ours on which parts can run now: 1 within a part and on a quiet machine."""
    number = _here.number or torch.get_num_threads()
    return 1 if _here.beside or load.quiet or _watched() else min(MOST, number)


def _watched() -> bool:
    """Whether a mode watches the operations of this thread; the one of a default device does not matter here."""
    if torch._C._len_torch_dispatch_stack():
        return True
    count = torch._C._len_torch_function_stack()
    return any(not isinstance(torch._C._get_function_stack_at(i), DeviceContext) for i in range(count))


def each(work: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """``work(part)`` of every part, in order: on threads, if there are several parts and threads."""
    if len(parts) < 2 or available() < 2:
        return [work(part) for part in parts]
    pool = _pool(_here.number or torch.get_num_threads())
    inside, count = _in_our_modes(work), min(pool.count, len(parts))

    def one(part: T) -> R:
        _here.beside = count
        try:
            return inside(part)
        finally:
            _here.beside = 0

    futures = [pool.parts.submit(one, part) for part in parts]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:  # one has failed
            future.cancel()
        futures.clear()  # an exception, its frame and they would be a circle that holds the batch


def serially(device: torch.device, size: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """``work(*args)`` for a batch: while the machine is busy, torch runs serially in it, but for its parts on threads.

    A batch runs as it is if ``size``, the number of its elements, is small, or if it is on an accelerator.
    """
    small = device.type != "cpu" or size <= GRAIN
    if small or _here.number or _here.beside or torch.get_num_threads() < 2 or _watched():
        return work(*args, **kwargs)
    with load.felt():
        if load.quiet:
            return work(*args, **kwargs)
        number, inside = torch.get_num_threads(), _in_our_modes(work)

        def one() -> R:
            _here.number = number
            try:
                return inside(*args, **kwargs)
            finally:
                _here.number = 0

        return _pool(number).batches.submit(one).result()


def _in_our_modes(work: Callable[P, R]) -> Callable[P, R]:
    """The same work for another thread, under inference mode and with gradients as here."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return work(*args, **kwargs)

    return carried
