"""The drop-in in real processes: queries whose rows lie with several workers."""

import pytest
import workers
import workers_retrieval

pytestmark = pytest.mark.xdist_group("workers_retrieval")


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    return workers.outcomes_of(workers_retrieval.__name__, request, tmp_path_factory)


@pytest.mark.parametrize(("world", "name"), workers.jobs_of(workers_retrieval.__name__))
def test_workers(outcomes, world, name):
    workers.check(outcomes, world, name)
