"""On a busy machine a batch is cut into parts on threads: the same numbers, and torch is serial in all of them."""

import functools
import io
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
import workers
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import torchrank as tr
from torchrank.hardware import load, threads
from torchrank.hardware.load import Load, Others, Time, Use

SUITE = ["ndcg@5", "map", "mrr", "recall@3", "mr", "auroc", "bpref", "rbp", "hitrate@1"]


@pytest.fixture(params=[2, 3, 9])
def busy(request, monkeypatch):
    """Torch with several threads on a machine that counts as busy, and parts that are small enough to be many."""
    monkeypatch.setattr(threads, "machine", Load())
    monkeypatch.setattr(Load, "judge", lambda self, *args, **kwargs: None)
    for name in (
        "hardware.threads.GRAIN",
        "layouts.canonical.GRAIN",
        "layouts.canonical.WORTHWHILE",
        "ranking.parts.GRAIN",
        "metrics.item_lists.GRAIN",
    ):
        monkeypatch.setattr(f"torchrank.{name}", 1)
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


def batches():
    """Arguments of ``update`` in every layout, with ties, padding and queries in which nothing is relevant."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 9, (37, 23), generator=generator).float()
    grades = torch.randint(-1, 4, (37, 23), generator=generator)
    mask = torch.rand(37, 23, generator=generator) < 0.8
    items = [torch.randperm(23, generator=generator)[: n % 5] for n in range(37)]
    pairs = torch.randint(0, 37, (90,), generator=generator), torch.randint(0, 23, (90,), generator=generator)
    order = torch.randperm(37 * 23, generator=generator)
    rows = torch.arange(37).repeat_interleave(23)
    ids = torch.rand(37, 23, generator=generator).argsort(-1)
    yield "dense", (scores, grades), {"mask": mask, "weights": torch.rand(37, generator=generator)}
    yield "excluded", (scores, grades), {"exclude": pairs}
    yield "label", (scores, torch.randint(-1, 23, (37,), generator=generator)), {}
    yield "lists", (scores, items), {"exclude": pairs}
    yield "flat", (scores.flatten(), grades.flatten()), {"indexes": rows}
    yield "ragged", (scores.flatten()[7:], grades.flatten()[7:]), {"indexes": rows[7:]}
    yield "shuffled", (scores.flatten()[order], grades.flatten()[order]), {"indexes": rows[order]}
    yield "ids", (ids, items), {}
    yield "ranking", (tr.Ranking.from_scores(scores, grades, mask=mask),), {}
    yield "one query", (scores[:1], grades[:1]), {}


BATCHES = {name: (args, kwargs) for name, args, kwargs in batches()}


@pytest.mark.parametrize("name", BATCHES)
def test_parts_on_threads_have_the_values_of_the_whole(busy, name):
    args, kwargs = BATCHES[name]
    found = tr.RankingCollection(SUITE).score(*args, **kwargs)
    torch.set_num_threads(1)
    expected = tr.RankingCollection(SUITE).score(*args, **kwargs)
    last_bits = 1e-14 * (name in ("flat", "ragged", "shuffled"))  # tied rows come in no order
    torch.testing.assert_close(found, expected, rtol=last_bits, atol=0, equal_nan=True)


def test_measures_of_lists_have_the_values_of_the_whole(busy):
    (ids, _), _ = BATCHES["ids"]
    items = torch.rand(23, 4, generator=torch.Generator().manual_seed(2))
    metrics = [tr.Coverage(num_items=23, top_k=3), tr.IntraListDiversity(7, embeddings=items), tr.Gini(num_items=23)]
    found = []
    for number in (busy, 1):
        torch.set_num_threads(number)
        suite = tr.RankingCollection([metric.clone() for metric in metrics])
        suite.update(ids)
        found.append([*suite.compute().values(), suite[metrics[1].label].score(ids)])
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("make", ["from_scores", "from_flat", "from_ids", "from_embeddings"])
def test_rankings_of_parts_are_rankings_of_the_whole(busy, make):
    generator = torch.Generator().manual_seed(1)
    (scores, _), _ = BATCHES["label"]
    (ids, items), _ = BATCHES["ids"]
    (preds, target), indexes = BATCHES["shuffled"]
    # Whole numbers, so that a product does not round.
    queries, catalogue = (torch.randint(-3, 4, (n, 5), generator=generator).float() for n in (37, 23))
    calls = {
        "from_scores": lambda: tr.Ranking.from_scores(scores, items),
        "from_flat": lambda: tr.Ranking.from_flat(preds, target, **indexes),
        "from_ids": lambda: tr.Ranking.from_ids(ids, items),
        "from_embeddings": lambda: tr.Ranking.from_embeddings(queries, catalogue, items),
    }
    found = calls[make]()
    torch.set_num_threads(1)
    expected = calls[make]()
    assert entries(found) == entries(expected)
    assert found.num_candidates.tolist() == expected.num_candidates.tolist()
    assert found.errors.tolist() == expected.errors.tolist()


def entries(ranking):
    """The entries of each query, those of one rank in any order."""
    fields = (ranking.first, ranking.tied, ranking.grade, ranking.valid)
    return [sorted(zip(*row)) for row in zip(*(x.tolist() for x in fields))]


def test_errors_of_all_parts_are_counted_once(busy):
    scores, grades = torch.rand(37, 23), torch.ones(37, 23)
    scores[[0, 20, 36], 5] = float("nan")
    with pytest.raises(ValueError, match=r"^ndcg: 3 queries with NaN"):
        tr.NDCG().score(scores, grades)
    # More parts than queries.
    ranking = tr.Ranking.from_scores(scores[:1].repeat(1, 4000), grades[:1].repeat(1, 4000))
    with pytest.raises(ValueError, match=r"^ndcg: 1 query with NaN"):
        tr.NDCG().score(ranking)


def test_torch_is_serial_in_every_function_that_sees_a_batch(busy, monkeypatch):
    monkeypatch.setattr(threads, "_pools", {})  # so that its threads begin under the profiler
    seen = set()

    def profiler(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and any(
            f"torchrank{os.sep}{room}" in name for room in ("engine", "metrics", "ranking", "layouts", "state")
        ):
            seen.add(
                (torch.get_num_threads(), threading.current_thread().name.rpartition("_")[0], frame.f_code.co_name)
            )

    metric = tr.RankingCollection(SUITE)
    threading.setprofile(profiler)
    try:
        metric.update(*BATCHES["dense"][0], **BATCHES["dense"][1])
        metric.update(*BATCHES["lists"][0], **BATCHES["lists"][1])
    finally:
        threading.setprofile(None)
    shares = {name: number for number, name, _ in seen}
    assert shares == {"torchrank-batch": 1, "torchrank-part": busy // min(busy, threads.MOST_THREADS)}
    functions = {function for _, _, function in seen}
    assert functions >= {"arrange_batch", "rank_dense", "rank_catalogue", "measure", "weigh"}


class Operations(TorchDispatchMode):
    """Counts the operations that it sees."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Counts the functions that it sees."""

    count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Operations, Functions])
def test_a_mode_that_watches_operations_sees_them_all(busy, mode):
    counts = []
    tr.NDCG().update(*BATCHES["dense"][0])  # makes constants
    for quiet in (False, True):
        threads.machine.quiet = quiet
        with mode() as watching:
            tr.NDCG().update(*BATCHES["dense"][0])
        counts.append(watching.count)
    assert counts[0] == counts[1] > 50


def test_the_compiled_kernel_has_all_threads_of_torch(busy):
    """It keeps Python's lock, so parts of a batch on several threads would be counted one after the other."""
    seen = []

    def gain(grade):
        seen.append((threading.current_thread() is threading.main_thread(), torch.get_num_threads()))
        return grade

    metric, (given, options) = tr.CG(gain=gain), BATCHES["dense"]
    try:
        for compiled in (False, True, False):
            seen.clear()
            tr.use_compiled(compiled)
            metric.score(*given, **options)
            assert all(here == compiled and (number == busy or not compiled) for here, number in seen)
            assert seen
    finally:
        tr.use_compiled(False)


def test_a_default_device_watches_nothing(busy):
    with torch.device("meta"):
        assert threads.available() == min(busy, threads.MOST_THREADS)


def test_number_of_threads_stays_as_it_was(busy):
    def number_of_a_new_thread():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    tr.NDCG().update(*BATCHES["dense"][0])
    assert torch.get_num_threads() == number_of_a_new_thread() == busy


def test_an_error_of_a_part_is_raised_here(busy):
    def gain(grade):
        raise KeyError("no such grade")

    with pytest.raises(KeyError, match="no such grade"):
        tr.DCG(gain=gain).update(*BATCHES["dense"][0])
    tr.DCG().update(*BATCHES["dense"][0])


def test_inference_mode_holds_in_parts(busy):
    seen = []
    metric = tr.NDCG(gain=lambda_named(seen))
    with torch.inference_mode():
        metric.update(*BATCHES["dense"][0])
    assert set(seen) == {True}


def lambda_named(seen):
    def gain(grade):
        seen.append(torch.is_inference_mode_enabled())
        return grade

    return gain


def test_threads_of_the_user_can_update_metrics_of_their_own_at_once(busy):
    args, kwargs = BATCHES["dense"]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: tr.NDCG().score(*args, **kwargs), range(12)))
    assert all(torch.equal(one, found[0]) for one in found)


def status_of_a_fork():
    """The status of a process that is forked from one whose threads have ranked a batch."""
    torch.set_num_threads(2)
    threads.machine.quiet = False
    scores, grades = torch.rand(300, 200), torch.randint(2, (300, 200))
    tr.state.torchmetrics_fixes.LOCK.acquire()  # by a thread that is not in the child
    expected = tr.NDCG().score(scores, grades)
    if (child := os.fork()) == 0:
        tr.NDCG().update(scores, grades)
        os._exit(0 if torch.equal(tr.NDCG().score(scores, grades), expected) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_threads_of_its_own():
    with workers.CONTEXT.Pool(1) as pool:
        assert pool.apply_async(status_of_a_fork).get(60) == 0


# ---- is the machine busy? ----------------------------------------------------------------------------------------


def judged(machine, *batches):
    found = []
    for batch in batches:
        machine.judge(*batch)
        found.append(machine.quiet)
    return found


def test_a_machine_is_busy_until_a_window_of_batches_was_quiet():
    assert judged(Load(), (0.004, 0.0), (0.004, 0.0), (0.004, 0.0)) == [False, False, True]


def test_a_machine_is_busy_when_threads_lack_a_core_for_a_tenth_of_the_time():
    assert judged(Load(), (0.1, 0.0), (0.1, 0.0099), (0.1, 0.0101)) == [True, True, False]


def test_a_machine_that_was_busy_must_be_quiet_for_longer_each_time():
    machine = Load()
    quiet, busy = (0.0625, 0.0), (0.0625, 0.02)
    assert judged(machine, quiet, busy) == [True, False]
    assert judged(machine, *[quiet] * 5) == [False, False, False, True, True]
    assert judged(machine, busy, *[quiet] * 7) == [False] * 7 + [True]
    assert judged(machine, *[(1.0, 0.0)] * 6, busy, *[quiet] * 4) == [True] * 6 + [False] * 4 + [True]


def test_a_machine_is_quiet_as_soon_as_the_processes_that_kept_it_busy_are_gone():
    quiet, busy = (0.02, 0.0), (0.02, 0.01)
    assert judged(Load(), quiet, (*busy, 1.0), (*quiet, 1.0), (*quiet, 0.1)) == [True, False, False, True]
    assert judged(Load(), quiet, busy, quiet, (*quiet, 0.1)) == [True, False, False, True]
    # Threads of this process keep it busy, so that others are idle says nothing.
    assert judged(Load(), quiet, (*busy, 0.1), (*quiet, 0.1), (*quiet, 0.1)) == [True, False, False, False]


def test_a_system_that_does_not_say_how_long_threads_wait_is_busy():
    machine = Load()
    machine.judge(1.0, 0.0, known=False)
    assert not machine.quiet


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this system does not say")
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


def test_waiting_for_threads_of_torch_itself_is_no_sign_of_a_busy_machine():
    tr.NDCG().score(torch.rand(2, 3), torch.ones(2, 3))
    with ThreadPoolExecutor(1, "torchrank-part") as pool:
        ours = pool.submit(threading.get_native_id).result()
        spent = {ours: Time(ran=4_000_000, waited=3_000_000), -1: Time(ran=2_000_000, waited=0)}
        lacking = functools.partial(load.lacking, seconds=0.007, others=math.inf)
        assert lacking(spent, apart=True) == pytest.approx(0.001)
        assert lacking(spent, apart=False) == pytest.approx(0.003)
        assert lacking({ours: Time(4, 2), -1: Time(3, 1)}, apart=True) == 0


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(load, "available_cores", lambda: 2)


@pytest.mark.parametrize(("others", "count", "waited"), [(0, 2, 0), (0.2, 2, 0), (0.3, 2, 5), (1, 2, 5), (0, 3, 5)])
def test_waits_count_only_if_more_cores_are_wanted_than_there_are(two_cores, others, count, waited):
    # All threads want a core all the time, and take turns on one.
    spent = {-number: Time(ran=5 * 10**9, waited=5 * 10**9) for number in range(count)}
    assert load.lacking(spent, apart=False, seconds=10, others=others) == waited


def test_threads_of_torch_that_spin_beside_parts_of_a_batch_want_no_core(two_cores):
    with ThreadPoolExecutor(1, "torchrank-part") as pool:
        ours = pool.submit(threading.get_native_id).result()
        spent = {ours: Time(8 * 10**9, 2 * 10**9), -1: Time(10**9, 9 * 10**9), -2: Time(10**9, 9 * 10**9)}
        assert load.lacking(spent, apart=True, seconds=10, others=0) == 0
        assert load.lacking(spent, apart=True, seconds=10, others=2) == 7


@pytest.mark.parametrize(("others", "quiet"), [(0, True), (math.inf, False)])
def test_the_cores_of_others_decide_on_a_measured_batch(monkeypatch, two_cores, others, quiet):
    readings = iter([{-1: Time(0, 0)}, {-1: Time(0, 10**7)}])
    monkeypatch.setattr(load, "times", lambda: next(readings))
    monkeypatch.setattr(Others, "cores", lambda self: others)
    machine = Load()
    with machine.measured():
        time.sleep(0.02)
    assert machine.quiet == quiet


def test_a_quiet_machine_is_not_measured_for_a_while_after_each_verdict(monkeypatch, two_cores):
    clock, read = SimpleNamespace(now=100.0), []
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(load, "times", lambda: read.append(clock.now) or {-1: Time(0, 0)})
    monkeypatch.setattr(Others, "cores", lambda self: 0.0)
    machine = Load()
    for _ in range(2 * int(load.REST / 0.004)):
        with machine.measured():
            clock.now += 0.004
    # Three batches fill a window. The first window and the one after the rest give a verdict.
    assert machine.quiet
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
