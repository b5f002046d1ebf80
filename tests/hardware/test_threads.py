"""A batch has a thread of torch for each core that no other process wants, as far as Linux tells."""

import hashlib
import io
import math
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import torchrank as tr
from torchrank.hardware import devices as threads
from torchrank.retrieval import RetrievalMAP, RetrievalPrecisionRecallCurve


@pytest.fixture(params=[2, 3])
def busy(request, monkeypatch):
    """Torch with several threads on a busy machine, on which every batch is large."""
    monkeypatch.setattr(threads, "free_cores", lambda: 0)
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


def seen_in(name, work, *args, **kwargs):
    """The number of threads at the calls of functions of a name."""
    seen = set()

    def profiler(frame, event, _):
        if event == "call" and frame.f_code.co_name == name:
            seen.add(torch.get_num_threads())

    sys.setprofile(profiler)
    try:
        work(*args, **kwargs)
    finally:
        sys.setprofile(None)
    (number,) = seen
    return number


def seen_by(metric, *args, **kwargs):
    """The number of threads while a metric sums the values of a batch."""
    return seen_in("reduce", metric.update, *args, **kwargs)


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_measured_with_one_thread_on_a_busy_machine(busy, name):
    args, kwargs = BATCHES[name]
    assert seen_by(tr.MAP(), *args, **kwargs) == 1
    assert torch.get_num_threads() == busy


@pytest.mark.parametrize(("free", "number"), [(math.inf, 3), (3, 3), (2.5, 2), (1.5, 1), (-4, 1)])
def test_a_batch_has_a_thread_for_each_free_core_and_no_more_than_the_caller(busy, monkeypatch, free, number):
    monkeypatch.setattr(threads, "free_cores", lambda: free)
    assert seen_by(tr.MAP(), *BATCHES["dense"][0]) == min(number, busy)


def test_a_batch_has_the_same_bits_with_any_number_of_threads():
    draw = torch.Generator().manual_seed(0)
    scores, grades = torch.rand(2000, 40, generator=draw), torch.randint(-1, 4, (2000, 40), generator=draw)
    ties, places = (8 * scores).floor(), torch.randperm(80_000, generator=draw)
    queries = torch.arange(2000).repeat_interleave(40)
    batches = [
        ((scores, grades), {}),
        ((ties, grades), {"mask": scores > 0.1}),
        ((ties, grades), {"tie_break": grades}),
        ((ties, grades[:, 0]), {}),
        ((ties.flatten(), grades.flatten()), {"indexes": queries}),
        ((scores.flatten()[places], grades.flatten()[places]), {"indexes": queries[places]}),
        ((scores.argsort(-1), grades[:, 0].abs()), {}),
    ]
    suite = tr.RankingCollection(["ndcg@5", "map", "mrr", "auroc", "recall@10", "err@10"])
    try:
        for args, kwargs in batches:
            found = []
            for number in (1, 3):
                torch.set_num_threads(number)
                suite.reset()
                suite.update(*args, **kwargs)
                numbers = [*suite.score(*args, **kwargs).values(), *suite.compute().values()]
                found.append([x.nan_to_num(-1) for x in numbers])  # empty queries of some measures are NaN
            assert all(one.equal(other) for one, other in zip(*found))
    finally:
        torch.set_num_threads(1)


def test_the_classes_of_torchmetrics_have_one_thread(busy):
    for metric in RetrievalMAP(), RetrievalPrecisionRecallCurve():
        args, kwargs = BATCHES["flat"]
        assert seen_in("_binary", metric.update, args[0], args[1].clamp(0, 1), **kwargs) == 1
        assert seen_in("rankings", metric.compute) == 1
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


# ---- free cores --------------------------------------------------------------------------------------------------


@pytest.fixture
def counts(monkeypatch):
    """A machine with four cores. Set what it counts, and move its clock on."""
    counts = {"running": 1, "own": 1, "now": 100.0}
    monkeypatch.setattr(threads, "_counted", (-math.inf, 0))
    monkeypatch.setattr(threads, "_running", lambda: counts["running"])
    monkeypatch.setattr(threads, "_own", lambda: counts["own"])
    monkeypatch.setattr(threads, "_quota", lambda: math.inf)
    monkeypatch.setattr(threads.time, "monotonic", lambda: counts["now"])
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3, 4, 9}, raising=False)
    return counts


@pytest.mark.parametrize(("running", "own", "free"), [(1, 1, 4), (2, 1, 3), (7, 2, -1), (0, 1, 4), (1, 3, 4)])
def test_a_core_is_free_if_no_thread_of_another_process_wants_it(counts, running, own, free):
    counts.update(running=running, own=own)
    assert threads.free_cores() == free


def test_threads_are_counted_again_after_milliseconds_and_a_quota_limits_the_cores(counts, monkeypatch):
    for running, later, free in ((3, 0, 2), (1, 0, 2), (1, 1.01 * threads.HOLDS, 4)):
        counts.update(running=running, now=counts["now"] + later)
        assert threads.free_cores() == free
    monkeypatch.setattr(threads, "_quota", lambda: 1.5)
    assert threads.free_cores() == 1.5
    counts.update(running=5, now=200)
    assert threads.free_cores() == 0
    monkeypatch.setattr(threads, "_quota", lambda: math.inf)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert threads.free_cores() == 7 - 4


@pytest.mark.parametrize(("text", "running"), [(b"0.92 2.89 3.48 12/98 30201\n", 12), (b"", 0), (b"a b c d e", 0)])
def test_a_system_that_does_not_tell_has_no_others(monkeypatch, text, running):
    monkeypatch.setattr(threads, "open", lambda *args, **kwargs: io.BytesIO(text), raising=False)
    assert threads._running() == running


@pytest.mark.parametrize(("text", "cores"), [("max 100000", math.inf), ("150000 100000\n", 1.5), ("", math.inf)])
def test_a_container_has_the_cores_of_its_quota(monkeypatch, text, cores):
    monkeypatch.setattr(threads, "open", lambda *args: io.StringIO(text), raising=False)
    threads._quota.cache_clear()
    try:
        assert threads._quota() == cores
    finally:
        threads._quota.cache_clear()


@pytest.mark.skipif(not os.path.exists("/proc/loadavg"), reason="this system does not tell")
def test_a_process_that_spins_wants_a_core_at_once():
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as spinning:
        try:
            spinning.stdout.readline()
            assert any(threads._running() > threads._own() for _ in range(100))
        finally:
            spinning.kill()


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="this system does not tell")
def test_threads_of_this_process_are_its_own_whatever_their_names():
    begun, end = threading.Event(), threading.Event()

    def work():
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
            file.write("a) S (b) Z 1")
        begun.set()
        while not end.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)  # without Python's lock

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    try:
        assert any(threads._own() > 1 for _ in range(1000))
    finally:
        end.set()
        thread.join()


def test_a_system_without_a_list_of_threads_has_this_one(monkeypatch):
    def missing(*args, **kwargs):
        raise FileNotFoundError

    monkeypatch.setattr(threads, "open", missing, raising=False)
    assert threads._own() == 1
    monkeypatch.setattr(os, "listdir", missing)
    assert threads._own() == 1
