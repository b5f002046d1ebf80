"""Collections in real processes: their members can be computed in any order, and none of the workers waits in vain."""

import pytest
import workers
import workers_collection

pytestmark = pytest.mark.xdist_group("workers_collection")


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    return workers.outcomes_of(workers_collection.__name__, request, tmp_path_factory)


@pytest.mark.parametrize(("world", "name"), workers.jobs_of(workers_collection.__name__))
def test_workers(outcomes, world, name):
    workers.check(outcomes, world, name)
