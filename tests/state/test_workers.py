"""Real processes: the number does not depend on how many there are, and none of them ever waits in vain."""

import pytest
import workers
import workers_state

pytestmark = pytest.mark.xdist_group("workers_state")


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    return workers.outcomes_of(workers_state.__name__, request, tmp_path_factory)


@pytest.mark.parametrize(("world", "name"), workers.jobs_of(workers_state.__name__))
def test_workers(outcomes, world, name):
    workers.check(outcomes, world, name)
