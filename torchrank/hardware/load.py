"""Is the machine busy? How long threads of this process wait for a core, and the cores that other processes use.

A thread can also wait while another core is idle: after a pause, Linux may wake two threads on one core. Such waits are
no sign of a busy machine, so waits count only while more cores are wanted than this process may use.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

# Prefix of the names of torchrank's threads.
NAME_PREFIX = "torchrank"

# Seconds of batches between two verdicts on the machine, and the share of them that a busy machine exceeds: the time
# for which a thread was ready to run without a core.
WINDOW, WAITING_SHARE = 0.01, 0.1

# Seconds after a verdict for which a quiet machine is not measured, because measuring takes time.
REST = 0.25

# Seconds of quiet batches after which a busy machine counts as quiet again: at least and at most.
PATIENCE = (0.2, 5.0)

# The system counts the use of its cores in steps of 10 ms. So the use is a mean over at least SPAN seconds, and a
# difference of up to SLACK cores does not count.
SPAN, SLACK = 0.2, 0.25


class Load:
    """Verdict on whether other processes keep the cores busy, from the waits of this process's threads in batches."""

    def __init__(self) -> None:
        self.quiet = False
        self._seconds, self._waited, self._calm = 0.0, 0.0, 0.0
        self._patience, self._next, self._blamed = 0.0, 0.0, 0.0
        self._lock, self._others = threading.Lock(), Others()

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Context that measures the batch that runs inside it."""
        resting = self.quiet and time.perf_counter() < self._next
        # If another thread measures its batch now, both would count the same waits, so this batch is not measured.
        if resting or not self._lock.acquire(blocking=False):
            yield
            return
        try:
            apart, before, start = not self.quiet, times(), time.perf_counter()
            yield
            seconds, after = time.perf_counter() - start, times()
            # A thread that began or ended within the batch has no difference, so it is left out.
            spent = {thread: after[thread] - before[thread] for thread in before.keys() & after.keys()}
            others = self._others.cores()
            self.judge(seconds, lacking(spent, apart, seconds, others), others, known=bool(spent))
        finally:
            self._lock.release()

    def judge(self, seconds: float, waited: float, others: float = math.inf, known: bool = True) -> None:
        """Add a measured batch, and give a verdict if the window is full.

        Args:
            seconds: duration of the batch.
            waited: seconds of these for which a thread was ready to run without a core.
            others: number of cores that other processes use, inf if unknown.
            known: False if this system does not tell the waits, which counts as busy.
        """
        self._seconds, self._waited = self._seconds + seconds, self._waited + waited
        if self._seconds < WINDOW:
            return
        busy = not known or self._waited > WAITING_SHARE * self._seconds
        least, most = PATIENCE
        # A machine that alternates between quiet and busy would pay for many wrong verdicts. So the patience doubles
        # each time, and starts again from the least after a long quiet time.
        if busy and self.quiet:
            self._patience = least if self._calm > most else min(max(2 * self._patience, least), most)
        self._calm = 0.0 if busy else self._calm + self._seconds
        self._blamed = others if busy else self._blamed
        # Patience is for waits that come and go. Other processes that kept the cores busy can be seen to have gone.
        gone = others <= SLACK < self._blamed
        self.quiet = not busy and (gone or self._calm >= self._patience)
        self._seconds, self._waited = 0.0, 0.0
        self._next = time.perf_counter() + REST


class Time(NamedTuple):
    """Nanoseconds for which a thread ran, and for which it was ready to run without a core."""

    ran: int
    waited: int

    def __sub__(self, earlier: Time) -> Time:
        return Time(self.ran - earlier.ran, self.waited - earlier.waited)


def lacking(spent: dict[int, Time], apart: bool, seconds: float, others: float) -> float:
    """Seconds for which a thread had no core: 0 if there are enough, and without waits that this process caused.

    Args:
        spent: the times of each thread during a batch, by thread.
        apart: whether the batch ran on torchrank's threads. Then torch's own threads can take cores from it, because
            they spin for some milliseconds after an operation.
        seconds: duration of the batch.
        others: number of cores that other processes use, inf if unknown.
    """
    named = {thread.native_id for thread in threading.enumerate() if thread.name.startswith(NAME_PREFIX)}
    wanting = [one for thread, one in spent.items() if thread in named or not apart]
    wanted = sum(one.ran + one.waited for one in wanting) / 1e9 + others * seconds
    if wanted <= (available_cores() + SLACK) * seconds:
        return 0.0
    own_fault = sum(one.ran for thread, one in spent.items() if thread not in named) if apart else 0
    return max(0, max((one.waited for one in spent.values()), default=0) - own_fault) / 1e9


def available_cores() -> float:
    """Number of cores that this process may use: those it may run on, or the quota of its container if it is less."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _quota())


@functools.cache
def _quota() -> float:
    """The quota of a Linux container in cores, read once; inf if there is none."""
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max") as file:
        quota, period = map(int, file.read().split())  # without a quota, the first word is "max"
        return quota / period
    return math.inf


class Others:
    """The cores that other processes use."""

    def __init__(self) -> None:
        self._cores, self._before = math.inf, Use(math.nan, math.nan, math.nan)

    def cores(self) -> float:
        """Mean number of cores over the last ``SPAN`` seconds or longer, inf if unknown."""
        now = Use.read()
        if not now.at - self._before.at < SPAN:
            spent, self._before = now - self._before, now
            # A system that hides its use from this process shows less than this process has used itself.
            known = spent.at > 0 and now.machine >= now.process  # False for NaN, so before the first reading
            self._cores = max(0.0, (spent.machine - spent.process) / spent.at) if known else math.inf
        return self._cores


class Use(NamedTuple):
    """Seconds of use of all cores by the whole machine and by this process, at a time."""

    at: float
    machine: float
    process: float

    def __sub__(self, earlier: Use) -> Use:
        return Use(*(now - before for now, before in zip(self, earlier)))

    @classmethod
    def read(cls) -> Use:
        """The use until now; NaN for a machine that does not tell it. Only Linux does."""
        machine = math.nan
        with contextlib.suppress(OSError, ValueError), open("/proc/stat", "rb", buffering=0) as file:
            # The first line has the sums over all cores: user, nice, system, idle, iowait, irq, softirq, steal.
            user, nice, system, _, _, irq, softirq, steal = map(int, file.read(512).partition(b"\n")[0].split()[1:9])
            machine = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return cls(time.perf_counter(), machine, time.process_time())


def times() -> dict[int, Time]:
    """Times of this process's threads by thread id, for at most 64 threads; empty on systems other than Linux."""
    found = {}
    with contextlib.suppress(OSError):  # only Linux has the folder
        for thread in os.listdir("/proc/self/task")[:64]:
            path = f"/proc/self/task/{thread}/schedstat"
            # A thread may end between the listing and the reading.
            with contextlib.suppress(OSError, ValueError), open(path, "rb", buffering=0) as file:
                ran, waited, _ = file.read().split()
                found[int(thread)] = Time(int(ran), int(waited))
    return found
