"""Is the machine busy? How long threads of this process wait for a core, and the cores that other processes use.

A thread can also wait while another core is idle: after a pause, Linux may wake two threads on one core. Such waits are
no sign of a busy machine, so waits count only while more cores are wanted than this process may use. Only Linux tells
the waits; other systems count as quiet.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Seconds of batches between two verdicts on a quiet machine, and the share of them that a busy machine exceeds: the
# time for which a thread was ready to run without a core.
WINDOW, WAITING_SHARE = 0.01, 0.1

# Seconds after a verdict for which a quiet machine is not measured, because measuring takes time.
REST = 0.25

# Seconds after which a busy machine is tried again, at least and at most.
PATIENCE = (0.2, 5.0)

# The system counts the use of its cores in steps of 10 ms. So the use is a mean over at least SPAN seconds, and a
# difference of up to SLACK cores does not count.
SPAN, SLACK = 0.2, 0.25


class Load:
    """Verdict on whether other processes keep the cores busy.

    A quiet machine is found to be busy by the waits of this process's threads in batches. A busy machine counts as
    quiet again if the other processes leave a core for each thread, or else after some time, for a trial.
    """

    def __init__(self) -> None:
        self.busy = False
        self._seconds, self._waited = 0.0, 0.0
        self._since, self._patience, self._next = -math.inf, 0.0, 0.0
        self._lock, self._others = threading.Lock(), Others()

    @contextlib.contextmanager
    def measured(self, threads: int) -> Iterator[bool]:
        """Context of a batch that can use some threads; yields whether the machine is busy."""
        now = time.perf_counter()
        # If another thread measures its batch now, both would count the same waits, so this batch is not measured.
        if (now < self._next and not self.busy) or not self._lock.acquire(blocking=False):
            yield self.busy
            return
        try:
            if self.busy and (now >= self._next or self._others.cores() + threads <= available_cores() + SLACK):
                self.busy, self._since, self._next = False, now, 0.0
            if self.busy:
                yield True
                return
            before, start = times(), time.perf_counter()
            yield False
            seconds, after = time.perf_counter() - start, times()
            # A thread that began or ended within the batch has no difference, so it is left out.
            spent = [after[thread] - before[thread] for thread in before.keys() & after.keys()]
            self.judge(seconds, lacking(spent, seconds, self._others.cores()))
        finally:
            self._lock.release()

    def judge(self, seconds: float, waited: float) -> None:
        """Add a batch on a quiet machine, and give a verdict if the window is full.

        Args:
            seconds: duration of the batch.
            waited: seconds of these for which a thread was ready to run without a core.
        """
        self._seconds, self._waited = self._seconds + seconds, self._waited + waited
        if self._seconds < WINDOW:
            return
        self.busy = self._waited > WAITING_SHARE * self._seconds
        now, (least, most) = time.perf_counter(), PATIENCE
        if self.busy:
            # The patience doubles each time, so that a machine that stays busy pays for few trials. It starts again
            # from the least after a long quiet time.
            self._patience = least if now - self._since > most else min(max(2 * self._patience, least), most)
        self._next = now + (self._patience if self.busy else REST)
        self._seconds, self._waited = 0.0, 0.0


class Time(NamedTuple):
    """Nanoseconds for which a thread ran, and for which it was ready to run without a core."""

    ran: int
    waited: int

    def __sub__(self, earlier: Time) -> Time:
        return Time(self.ran - earlier.ran, self.waited - earlier.waited)


def lacking(spent: Sequence[Time], seconds: float, others: float) -> float:
    """Seconds for which a thread had no core; 0 if there are enough cores.

    Args:
        spent: the times of each thread of this process during a batch.
        seconds: duration of the batch.
        others: number of cores that other processes use, inf if unknown.
    """
    wanted = sum(time.ran + time.waited for time in spent) / 1e9 + others * seconds
    if wanted <= (available_cores() + SLACK) * seconds:
        return 0.0
    return max((time.waited for time in spent), default=0) / 1e9


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
        if not now.time - self._before.time < SPAN:
            spent, self._before = now - self._before, now
            # A system that hides its use from this process shows less than this process has used itself.
            known = spent.time > 0 and now.machine >= now.process  # False for NaN, so before the first reading
            self._cores = max(0.0, (spent.machine - spent.process) / spent.time) if known else math.inf
        return self._cores


class Use(NamedTuple):
    """Seconds of use of all cores by the whole machine and by this process, at a time."""

    time: float
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
    by_thread = {}
    with contextlib.suppress(OSError):  # only Linux has the folder
        for thread in os.listdir("/proc/self/task")[:64]:
            path = f"/proc/self/task/{thread}/schedstat"
            # A thread may end between the listing and the reading.
            with contextlib.suppress(OSError, ValueError), open(path, "rb", buffering=0) as file:
                ran, waited, _ = file.read().split()
                by_thread[int(thread)] = Time(int(ran), int(waited))
    return by_thread
