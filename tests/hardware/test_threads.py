"""On a busy machine a batch runs with one thread of torch, and the machine is known to be busy by what Linux tells."""

import contextlib
import io
import itertools
import math
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

import torchrank as tr
from tests.support import workers
from torchrank.hardware import load, threads
from torchrank.hardware.load import Load, Others, Time, Use


class Busy(Load):
    """A machine that other processes keep busy."""

    @contextlib.contextmanager
    def measured(self, threads):
        yield True


@pytest.fixture(params=[2, 3])
def busy(request, monkeypatch):
    """Torch with several threads on a busy machine, on which every batch is large."""
    monkeypatch.setattr(threads, "machine", Busy())
    monkeypatch.setattr(threads, "GRAIN", 1)
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


SCORES = torch.randint(0, 9, (37, 23), generator=torch.Generator().manual_seed(0)).float()
GRADES = torch.randint(-1, 4, (37, 23), generator=torch.Generator().manual_seed(1))
BATCHES = {
    "dense": ((SCORES, GRADES), {}),
    "label": ((SCORES, GRADES[:, 0]), {}),
    "flat": ((SCORES.flatten(), GRADES.flatten()), {"indexes": torch.arange(37).repeat_interleave(23)}),
    "ids": ((SCORES.argsort(-1), GRADES[:, 0].abs()), {}),
    "ranking": ((tr.Ranking.from_scores(SCORES, GRADES),), {}),
}


def seen_by(metric, *args, **kwargs):
    """The number of threads while a metric sums the values of a batch."""
    seen = []

    def profiler(frame, event, _):
        if event == "call" and frame.f_code.co_name == "reduce":
            seen.append(torch.get_num_threads())

    sys.setprofile(profiler)
    try:
        metric.update(*args, **kwargs)
    finally:
        sys.setprofile(None)
    (number,) = seen
    return number


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_measured_with_one_thread_on_a_busy_machine(busy, name):
    args, kwargs = BATCHES[name]
    assert seen_by(tr.MAP(), *args, **kwargs) == 1
    assert torch.get_num_threads() == busy


def test_a_batch_is_measured_with_all_threads_on_a_quiet_machine(busy, monkeypatch):
    monkeypatch.setattr(threads, "machine", Load())
    assert seen_by(tr.MAP(), *BATCHES["dense"][0]) == busy


def test_measures_of_lists_and_a_bootstrap_have_one_thread(busy):
    seen = []

    class Seen(tr.IntraListDiversity):
        name = "seenilds"

        def measure(self, lists):
            seen.append(torch.get_num_threads())
            return super().measure(lists)

    Seen(7, embeddings=torch.rand(23, 4)).score(BATCHES["ids"][0][0])
    assert seen == [1]
    booted = tr.Bootstrapped("mrr", replicates=50)
    booted.update(*BATCHES["dense"][0], query_ids=torch.arange(37))
    assert torch.get_num_threads() == busy


def test_a_compiled_kernel_keeps_the_number_of_threads(busy):
    tr.use_compiled(True)
    try:
        assert seen_by(tr.MAP(), *BATCHES["dense"][0]) == busy
    finally:
        tr.use_compiled(False)
    assert seen_by(tr.MAP(), *BATCHES["dense"][0]) == 1


def test_the_number_of_threads_is_restored_also_after_an_error(busy):
    def gain(grade):
        raise KeyError("no such grade")

    def number_of_a_new_thread():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    with pytest.raises(KeyError, match="no such grade"):
        tr.DCG(gain=gain).update(*BATCHES["dense"][0])
    assert torch.get_num_threads() == number_of_a_new_thread() == busy


def test_threads_of_the_user_can_update_metrics_at_once(busy):
    args, kwargs = BATCHES["dense"]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: tr.NDCG().score(*args, **kwargs), range(12)))
    assert all(torch.equal(one, found[0]) for one in found)


def status_of_a_fork():
    """The status of a process that is forked while another thread measures its batch."""
    torch.set_num_threads(2)
    scores, grades = torch.rand(300, 200), torch.randint(2, (300, 200))
    tr.state.waiting.LOCK.acquire()
    threads.machine._lock.acquire()
    if (child := os.fork()) == 0:
        tr.NDCG().update(scores, grades)
        os._exit(0 if threads.machine._lock.acquire(blocking=False) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_measures_its_own_batches():
    with workers.CONTEXT.Pool(1) as pool:
        assert pool.apply_async(status_of_a_fork).get(60) == 0


# ---- is the machine busy? ----------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests move on, on a machine with two cores of which others use `others`."""
    clock = SimpleNamespace(now=100.0, others=1.0)
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(load, "available_cores", lambda: 2)
    monkeypatch.setattr(load, "times", dict)
    monkeypatch.setattr(Others, "cores", lambda self: clock.others)
    return clock


def run(machine, clock, seconds, waited=0.0):
    """Whether the machine counts as busy in a batch; a quiet one judges the seconds without a core after it."""
    with machine.measured(threads=2) as busy:
        clock.now += seconds
    if not busy:
        machine.judge(seconds, waited)
    return busy


def test_a_machine_counts_as_quiet_until_a_window_of_batches_lacked_a_core():
    machine = Load()
    for waited, busy in ((0.002, False), (0.0, False), (0.002, True)):
        machine.judge(0.004, waited)
        assert machine.busy == busy


@pytest.mark.parametrize(("waited", "busy"), [(0.0099, False), (0.0101, True)])
def test_a_machine_is_busy_if_threads_lack_a_core_for_a_tenth_of_the_time(waited, busy):
    machine = Load()
    machine.judge(0.1, waited)
    assert machine.busy == busy


def test_a_busy_machine_is_quiet_as_soon_as_others_leave_a_core_for_each_thread(clock):
    machine = Load()
    assert [run(machine, clock, 0.02, 0.01), run(machine, clock, 0.02)] == [False, True]
    clock.others = load.SLACK
    assert not run(machine, clock, 0.02)


def test_a_busy_machine_is_tried_again_after_twice_the_time(clock):
    machine, trials = Load(), []
    start = clock.now
    while clock.now < start + 20:
        if not run(machine, clock, 0.0625, 0.0625):
            trials.append(clock.now - start)
    pauses = [round(after - before, 1) for before, after in itertools.pairwise(trials)]
    assert pauses[:3] == pytest.approx([0.3, 0.4, 0.8], abs=0.1)
    assert max(pauses) == pytest.approx(5, abs=0.1)


def test_the_pause_is_short_again_after_a_long_quiet_time(clock):
    machine = Load()
    for _ in range(100):
        run(machine, clock, 0.0625, 0.0625)
    clock.now += 5
    assert not run(machine, clock, 1.0, 0.0)
    clock.now += 10
    assert not run(machine, clock, 1.0, 1.0)
    assert machine._next == clock.now + 0.2


def test_a_system_that_does_not_tell_the_waits_is_quiet(clock):
    machine, clock.others = Load(), math.inf
    for _ in range(10):
        with machine.measured(threads=2) as busy:
            clock.now += 0.5
        assert not busy


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this system does not tell")
def test_the_time_without_a_core_is_read_for_every_thread():
    begun, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (begun.set(), end.wait()))
    thread.start()
    begun.wait()
    before, after = load.times(), load.times()
    end.set()
    thread.join()
    assert {os.getpid(), thread.native_id} <= before.keys() & after.keys()
    spent = [after[name] - before[name] for name in before.keys() & after.keys()]
    assert all(time.ran >= 0 and time.waited >= 0 for time in spent)


def test_times_of_a_batch_are_those_after_it_less_those_before_it():
    assert Time(ran=70, waited=11) - Time(ran=50, waited=8) == (20, 3)


@pytest.mark.parametrize(("others", "count", "waited"), [(0, 2, 0), (0.2, 2, 0), (0.3, 2, 5), (1, 2, 5), (0, 3, 5)])
def test_waits_count_only_if_more_cores_are_wanted_than_there_are(monkeypatch, others, count, waited):
    monkeypatch.setattr(load, "available_cores", lambda: 2)
    # All threads want a core all the time, and take turns on one.
    spent = [Time(ran=5 * 10**9, waited=5 * 10**9)] * count
    assert load.lacking(spent, seconds=10, others=others) == waited


def test_the_thread_that_waited_longest_tells_what_was_lacking(monkeypatch):
    monkeypatch.setattr(load, "available_cores", lambda: 2)
    spent = [Time(ran=9 * 10**9, waited=seconds * 10**9) for seconds in (1, 4, 2)]
    assert load.lacking(spent, seconds=10, others=0) == 4


@pytest.mark.parametrize(("others", "busy"), [(0.0, False), (math.inf, True)])
def test_the_cores_of_others_decide_on_a_measured_batch(monkeypatch, clock, others, busy):
    readings = iter([{-1: Time(0, 0)}, {-1: Time(0, 10**7)}])
    monkeypatch.setattr(load, "times", lambda: next(readings))
    machine, clock.others = Load(), others
    with machine.measured(threads=2):
        clock.now += 0.02
    assert machine.busy == busy


def test_a_quiet_machine_is_not_measured_for_a_while_after_each_verdict(monkeypatch, clock):
    read = []
    monkeypatch.setattr(load, "times", lambda: read.append(clock.now) or {-1: Time(0, 0)})
    machine, clock.others = Load(), 0.0
    for _ in range(2 * int(load.REST / 0.004)):
        with machine.measured(threads=2):
            clock.now += 0.004
    # Three batches fill a window. The first window and the one after the rest give a verdict.
    assert not machine.busy
    assert len(read) == 2 * 2 * 3


@pytest.fixture
def readings(monkeypatch):
    """Give readings of (time, use of the machine, use of this process), and find the use of others after each."""

    def found(*uses):
        given = iter(uses)
        monkeypatch.setattr(Use, "read", lambda: Use(*next(given)))
        others = Others()
        return [others.cores() for _ in uses]

    return found


def test_the_cores_of_others_are_known_after_a_span(readings):
    assert readings((5, 10, 1), (5.1, 10.2, 1.1), (6, 11, 1.75), (6.1, 19, 2)) == [math.inf, math.inf, 0.25, 0.25]
    assert readings((0, 10, 1), (load.SPAN, 10 + load.SPAN, 1)) == [math.inf, pytest.approx(1)]
    # The system counts in steps of 10 ms, so it may not have counted a short batch yet.
    assert readings((5, 10, 1), (7, 11, 2.25)) == [math.inf, 0]
    assert readings((5, 10, 1), (5.25, 10, 1.01)) == [math.inf, 0]


def test_the_cores_of_others_are_unknown_where_the_system_hides_them(readings):
    assert readings((5, math.nan, 1), (6, math.nan, 2)) == [math.inf, math.inf]
    assert readings((5, 0, 1), (6, 0, 2), (7, 2, 2), (8, 2, 3)) == [math.inf, math.inf, 2, math.inf]


@pytest.mark.parametrize(("text", "cores"), [("max 100000", math.inf), ("150000 100000\n", 1.5), ("", math.inf)])
def test_a_container_has_the_cores_of_its_quota(monkeypatch, text, cores):
    monkeypatch.setattr(load, "open", lambda *args: io.StringIO(text), raising=False)
    load._quota.cache_clear()
    try:
        assert load.available_cores() == min(cores, len(os.sched_getaffinity(0)))
    finally:
        load._quota.cache_clear()


def test_idle_cores_are_not_in_use(monkeypatch):
    text = b"cpu  100 20 30 4000 50 6 7 8 0 0\ncpu0 1 1 1\n"
    monkeypatch.setattr(load, "open", lambda *args, **kwargs: io.BytesIO(text), raising=False)
    assert Use.read().machine == 171 / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("text", [b"", b"\n", b"cpu 1 2 3\n", b"cpu  a b c d e f g h\n", b"0 0"])
def test_a_file_without_the_use_of_cores_is_no_error(monkeypatch, text):
    monkeypatch.setattr(load, "open", lambda *args, **kwargs: io.BytesIO(text), raising=False)
    assert math.isnan(Use.read().machine)


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="this system does not say")
def test_a_process_that_spins_is_among_the_others():
    others = Others()
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    ) as spinning:
        try:
            spinning.stdout.readline()
            others.cores()
            time.sleep(1)
            found = others.cores()
        finally:
            spinning.kill()
    assert 0.25 < found < 1.25 * os.cpu_count()


def test_no_time_is_lacking_where_no_thread_was_seen():
    assert load.lacking([], 1.0, float("inf")) == 0


def test_a_batch_within_another_is_not_measured():
    machine = Load()
    with machine.measured(1) as outer, machine.measured(1) as inner:
        assert (outer, inner) == (False, False)
    machine.busy, machine._next = True, math.inf
    with machine.measured(1) as outer, machine.measured(1) as inner:
        assert outer == inner


@pytest.mark.parametrize(("waited", "busy"), [(load.WAITING_SHARE, False), (load.WAITING_SHARE * 1.001, True)])
def test_a_machine_is_busy_above_the_largest_share_of_waits(waited, busy):
    machine = Load()
    machine.judge(1.0, waited)
    assert machine.busy == busy


def test_the_cores_are_those_that_this_process_may_run_on(monkeypatch):
    monkeypatch.setattr(load, "_quota", lambda: math.inf)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3}, raising=False)
    assert load.available_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert load.available_cores() == 7
