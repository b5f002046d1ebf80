"""Worker processes for the tests of torch.distributed, and the batches of their scenarios.

A scenario is a function of its rank and of the number of workers. It returns values that must be the same, to the bit,
on all workers and in a single process without torch.distributed that has all the data. Scenarios are in the modules
``workers_...``; ``tests/properties/test_workers.py`` runs them. Starting a process costs seconds, so one set of three
workers runs all scenarios.
"""

import contextlib
import datetime
import importlib
import itertools
import multiprocessing
import os
import pickle
import runpy
import socket
import sys
import time
import traceback
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import tests.support.small_batches  # noqa: F401 - here too, because workers are other processes

NAN = float("nan")
SCENARIOS = {}
#: All scenarios run on three workers, which have unequal shares. Some also run on two, a group of another size.
WORLDS = (2, 3)
LIMIT, TIMEOUT = 1800, 300  # seconds for all scenarios, and for a collective, on a machine that is busy


def scenario(function=None, *, alone=True, of_two=False):
    """Register a scenario.

    Args:
        function: the scenario.
        alone: a single process returns the same.
        of_two: run it on two workers as well.
    """
    if function is None:
        return lambda function: scenario(function, alone=alone, of_two=of_two)
    assert function.__name__ not in SCENARIOS, f"two scenarios have the name {function.__name__}"
    SCENARIOS[function.__name__] = function
    function.alone, function.of_two = alone, of_two
    return function


def for_each(hows, of_two=()):
    """Register a function of (rank, world, how) as a scenario for each way to share the batches, see ``SHARES``."""

    def register(function):
        for how in hows:

            def run(rank, world, how=how):
                return function(rank, world, how)

            run.__name__, run.__module__ = f"{function.__name__}_{how}".replace(" ", "_"), function.__module__
            scenario(run, of_two=how in of_two)
        return function

    return register


# ---- tests -----------------------------------------------------------------------------------------------------------


def jobs():
    """(number of workers, scenario) of all scenarios."""
    return [(world, name) for world in WORLDS for name, run in SCENARIOS.items() if world == 3 or run.of_two]


def outcomes_of(request, tmp_path_factory):
    """(result, error, seconds) of every worker for every number of workers and scenario that is asked for."""
    tests = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    jobs = [tuple(item.callspec.params[key] for key in ("world", "name")) for item in tests]
    folder = tmp_path_factory.mktemp("workers")
    run_all(folder, jobs)
    return {job: [read(result_of(folder, *job, rank)) for rank in range(job[0])] for job in jobs}


def run_all(folder, jobs):
    """Run scenarios in workers; with new workers behind one in which a worker has died."""
    end = time.monotonic() + LIMIT
    while jobs and time.monotonic() < end:
        modules = {SCENARIOS[name].__module__ for _, name in jobs}
        arguments = [(rank, str(folder), modules, jobs) for rank in range(max(WORLDS))]
        processes = [CONTEXT.Process(target=work, args=args, daemon=True) for args in arguments]
        for process in processes:
            process.start()
        while time.monotonic() < end and any(process.is_alive() for process in processes):
            if any(process.exitcode for process in processes):
                time.sleep(1)  # let the others notice
                break
            time.sleep(0.05)
        for process in processes:
            process.kill()
            process.join()
        started = [job for job in jobs if any(result_of(folder, *job, rank).exists() for rank in range(job[0]))]
        jobs = jobs[max(1, len(started)) :]


def read(path):
    return pickle.loads(path.read_bytes()) if path.exists() else (None, "the worker died, or had no time left", 0.0)


@cache
def alone(name):
    """The values of a single process."""
    return plain(SCENARIOS[name](0, 1))


def check(outcomes, world, name):
    """The workers of a scenario have the same values, and those of a single process."""
    run = SCENARIOS[name]
    results, errors, seconds = zip(*outcomes[world, name])
    hung = [rank for rank in range(world) if seconds[rank] > 0.9 * TIMEOUT]
    told = "\n".join(f"worker {rank}: {error}" for rank, error in enumerate(errors) if error)
    assert not told, f"{'hung: ' + str(hung) if hung else ''}\n{told}"
    assert all(result == results[0] for result in results), "workers have different results"
    if run.alone:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert alone(name) == results[0]


# ---- running ---------------------------------------------------------------------------------------------------------


#: Processes that tests start are forked from one that has imported torch, which takes seconds.
CONTEXT = multiprocessing.get_context("forkserver" if sys.platform.startswith("linux") else "spawn")
if CONTEXT.get_start_method() == "forkserver":
    # In Python 3.11 the server does not get this process's sys.path, in which tests.support is found.
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    CONTEXT.set_forkserver_preload(
        ["tests.support.torchmetrics_alone", "torch.testing", "torch.distributed", "torchrank.public"]
        + ["torchrank.retrieval"]
    )


def work(rank, folder, modules, jobs):
    """The main function of a worker: run (number of workers, scenario), each in a process group of its own."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for module in modules:
        importlib.import_module(module)  # its scenarios
    for world, name in jobs:
        results = [result_of(folder, world, name, other) for other in range(world)]
        if rank < world:
            run_one(rank, world, name, results[rank])
        while not all(result.exists() for result in results):
            time.sleep(0.002)
    end()


def result_of(folder, world, name, rank):
    """The file with (result, error, seconds) of a worker."""
    return Path(folder, f"{name}.of{world}.{rank}.result")


def run_one(rank, world, name, path):
    run = SCENARIOS[name]
    meeting = path.with_name(f"{name}.of{world}.group")
    group = {"init_method": f"file://{meeting}", "rank": rank, "world_size": world}
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT), **group)
    result, error, started = None, "", time.monotonic()
    try:
        result = plain(run(rank, world))
        dist.monitored_barrier()  # a collective too many on one worker shows here
    except BaseException:
        error = traceback.format_exc()
    seconds = time.monotonic() - started
    leave()  # which wakes up whoever waits for this worker
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps((result, error, seconds)))
    part.rename(path)
    if error and KEPT:
        os._exit(1)  # which wakes up whoever waits for this worker


# Process groups that were left but not ended. Before torch 2.13, where it was not seen, the end of a gloo group may
# hang in torch itself: it holds the GIL while it waits for its thread, which wants the GIL to drop the last work. So a
# worker keeps its groups, and ends without an end of Python.
KEPT = []
ENDS_GROUPS = torch.__version__ >= (2, 13)


def leave(group=None):
    """Leave a process group; None = all of them."""
    if not ENDS_GROUPS:
        KEPT.extend(dist.distributed_c10d._world.pg_map if group is None else [group])
    dist.destroy_process_group(group)


def end():
    """End a worker."""
    if KEPT:
        os._exit(0)


@contextlib.contextmanager
def group_of_one(folder):
    """A process group of this process only, over which a catalogue can be spread."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
    try:
        yield
    finally:
        leave()


def call(module, function, *args):
    """Call a function of another test module, which a new process finds only by its name here."""
    getattr(importlib.import_module(module), function)(*args)


def launched(folder, work, imports, worlds=(1, 2)):
    """The results of ``work(rank, world, folder)`` in the processes of a launcher such as torchrun: {world: [result]}.

    The processes are forked from one that imports what takes long. Their own imports are inside ``work``.
    """
    process = CONTEXT.Process(target=launch, args=(folder, work, imports, worlds))
    process.start()
    process.join()
    return {n: [pickle.loads((folder / f"{rank}.of{n}").read_bytes()) for rank in range(n)] for n in worlds}


def launch(folder, work, imports, worlds):
    forks = CONTEXT.get_start_method() == "forkserver"
    for name in imports if forks else ():
        importlib.import_module(name)
    context = multiprocessing.get_context("fork" if forks else "spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    each = [(rank, n) for n in worlds for rank in range(n)]
    processes = [context.Process(target=launched_one, args=(folder, work, port, *place)) for place in each]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
        process.kill()


def launched_one(folder, work, port, rank, world):
    torch.set_num_threads(1)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()} if world > 1 else {})
    Path(folder, f"{rank}.of{world}").write_bytes(pickle.dumps(work(rank, world, str(folder))))


def run_module(module, arguments, output, errors, folder=".", encoding=None, anew=False, environment=None):
    """Exit status of ``python -m module``; ``output`` and ``errors`` are files, or None: a pipe that nobody reads.

    ``anew``: whether the process imports ``torchrank`` itself, as a new one would.
    """
    call = module, list(map(str, arguments)), output, errors, folder, encoding, anew, environment or {}
    process = CONTEXT.Process(target=as_main, args=call)
    process.start()
    process.join()
    return process.exitcode


def as_main(module, arguments, output, errors, folder, encoding, anew=False, environment=()):
    """Be ``python -m module`` from here on."""
    os.environ.update(environment)
    for name in [name for name in sys.modules if anew and name.split(".")[0] == "torchrank"]:
        del sys.modules[name]
    for number, path in ((1, output), (2, errors)):
        if path is None:
            unread, file = os.pipe()
            os.close(unread)
        else:
            file = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", encoding=encoding), os.fdopen(2, "w", buffering=1)
    sys.argv[1:] = arguments
    os.chdir(folder)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_tests(file, output, environment):
    """Run the tests of a file in this process, whose environment is another one; ``output`` gets what is printed."""
    import pytest

    os.environ.update(environment)
    with output.open("w") as printed, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = pytest.main([file, "-p", "no:cacheprovider", "-n", "0"])
    sys.exit(int(status))


def near(one, other):
    """Fail unless two tensors are equal but for rounding. torch.testing would import sympy in every worker."""
    assert (one.shape, one.dtype) == (other.shape, other.dtype), f"{one} instead of {other}"
    assert torch.allclose(one, other, rtol=1.3e-6, atol=1e-5), f"{one} instead of {other}"


def plain(value):
    """Tensors as lists, so that equal means equal bits; NaN as None, because it is not equal to itself."""
    if isinstance(value, Tensor):
        return plain([str(value.dtype), value.tolist()])
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if value != value else value


COLLECTIVES = [
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "barrier", "broadcast"),
    *("broadcast_object_list", "gather", "reduce", "reduce_scatter", "scatter", "send", "recv", "isend", "irecv"),
]


@contextlib.contextmanager
def counted():
    """Count the collectives that run inside."""
    count, real = Counter(), {name: getattr(dist, name) for name in COLLECTIVES}

    def wrap(name):
        def counting(*args, **kwargs):
            count[name] += 1
            return real[name](*args, **kwargs)

        return counting

    for name in COLLECTIVES:
        setattr(dist, name, wrap(name))
    try:
        yield count
    finally:
        for name, function in real.items():
            setattr(dist, name, function)


@contextlib.contextmanager
def exactly(world, **expected):
    """Nothing but these collectives run inside, where there are several workers."""
    with counted() as count:
        yield
    assert dict(count) == (expected if world > 1 else {}), f"{dict(count)} instead of {expected}"


# ---- data ------------------------------------------------------------------------------------------------------------


def batch(seed, queries=None):
    generator = torch.Generator().manual_seed(seed)
    queries = 1 + seed % 5 if queries is None else queries
    scores = torch.randint(0, 12, (queries, 9), generator=generator) / 2
    target = torch.randint(0, 4, (queries, 9), generator=generator) * (torch.rand(9, generator=generator) < 0.5)
    target[1:2] = 0
    return scores, target


BATCHES = [batch(seed) for seed in range(12)]
MORE = [batch(seed) for seed in range(20, 24)]
BAD = (torch.tensor([[0.1, NAN, 0.3]]), torch.tensor([[1, 0, 0]]))

# How many of twelve batches each of two and of three workers has.
SHARES = {
    "uneven": {2: (9, 3), 3: (7, 1, 4)},
    "even": {2: (6, 6), 3: (4, 4, 4)},
    "first empty": {2: (0, 12), 3: (0, 5, 7)},
    "last empty": {2: (12, 0), 3: (5, 7, 0)},
    "all in one": {2: (0, 12), 3: (0, 12, 0)},
}


def share(batches, rank, world, how="uneven"):
    """A worker's part of the batches, in order of rank."""
    if world == 1:
        return batches
    sizes = SHARES[how][world]
    scale = len(batches) / 12
    start, stop = (round(scale * sum(sizes[:n])) for n in (rank, rank + 1))
    return batches[start:stop]


def few(batches):
    """The first batch, and all others as one: rows cost nothing, calls do."""
    first, *rest = list(batches) or [()]
    widths = {x.shape[1:] for x in itertools.chain(first[:1], *(batch[:1] for batch in rest))}
    if len(rest) < 2 or len(widths) > 1:
        return batches
    return [first, tuple(torch.cat(x) if isinstance(x[0], Tensor) else [*itertools.chain(*x)] for x in zip(*rest))]


def fill(metric, batches):
    """Update a metric in one call, or in two."""
    for arguments in few(batches):
        metric.update(*arguments)
    return metric


def spread(values):
    return values.max() - values.min()


AGGREGATIONS = ("mean", "median", "none", spread)


def errors_of(function, kind=ValueError):
    """The message of the error that a call must raise."""
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")
