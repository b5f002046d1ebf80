"""Real processes: the number does not depend on how many there are, and none of them ever waits in vain.

Starting a process costs seconds, so one set of three workers runs all scenarios, see workers.py.
"""

import pickle
import time
import warnings
from functools import cache

import pytest
import workers
import workers_retrieval  # noqa: F401 (its scenarios)
import workers_statistics  # noqa: F401 (its scenarios)

pytestmark = pytest.mark.xdist_group("workers")
# All scenarios run on three workers, which have unequal shares. Two are a group of another size, of metrics that sum,
# gather or have nothing.
WORLDS = (2, 3)
OF_TWO = ("single_metrics", "collections", "curves", "nothing", "rows_", "per_query", "rounds")
JOBS = [(world, name) for world in WORLDS for name in workers.SCENARIOS if world == 3 or name.startswith(OF_TWO)]
LIMIT = 480  # seconds for all, beside other tests


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, request):
    """(result, error, seconds) of every worker for every number of workers and scenario that is asked for."""
    jobs = [
        tuple(item.callspec.params[key] for key in ("world", "name")) for item in filter(is_here, request.session.items)
    ]
    folder = tmp_path_factory.mktemp("workers")
    run(folder, jobs)
    return {job: [read(workers.result_of(folder, *job, rank)) for rank in range(job[0])] for job in jobs}


def is_here(item):
    return item.path.name == "test_workers.py" and "name" in getattr(getattr(item, "callspec", None), "params", {})


def run(folder, jobs):
    """Run scenarios in workers; with new workers behind one in which a worker has died."""
    end = time.monotonic() + LIMIT
    while jobs and time.monotonic() < end:
        arguments = [(rank, str(folder), jobs) for rank in range(max(WORLDS))]
        processes = [workers.CONTEXT.Process(target=workers.work, args=args, daemon=True) for args in arguments]
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
        started = [job for job in jobs if any(workers.result_of(folder, *job, rank).exists() for rank in range(job[0]))]
        jobs = jobs[max(1, len(started)) :]


def read(path):
    return pickle.loads(path.read_bytes()) if path.exists() else (None, "the worker died, or had no time left", 0.0)


@cache
def alone(name):
    """The values of a single process."""
    return workers.plain(workers.SCENARIOS[name](0, 1))


@pytest.mark.parametrize(("world", "name"), JOBS)
def test_workers(outcomes, world, name):
    run = workers.SCENARIOS[name]
    results, errors, seconds = zip(*outcomes[world, name])
    hung = [rank for rank in range(world) if seconds[rank] > 0.9 * run.timeout]
    told = "\n".join(f"worker {rank}: {error}" for rank, error in enumerate(errors) if error)
    assert not told, f"{'hung: ' + str(hung) if hung else ''}\n{told}"
    assert all(result == results[0] for result in results), "workers have different results"
    if run.alone:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert alone(name) == results[0]
