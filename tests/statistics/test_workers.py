"""Statistics in real processes: slices, bootstraps, tables and reports of all workers."""

import pytest
import workers
import workers_statistics

pytestmark = pytest.mark.xdist_group("workers_statistics")


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    return workers.outcomes_of(workers_statistics.__name__, request, tmp_path_factory)


@pytest.mark.parametrize(("world", "name"), workers.jobs_of(workers_statistics.__name__))
def test_workers(outcomes, world, name):
    workers.check(outcomes, world, name)
