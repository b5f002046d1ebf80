"""Real processes: the number does not depend on how many there are, and none of them ever waits in vain."""

import pytest

from tests.support import (
    workers,
    workers_collection,  # noqa: F401
    workers_integrations,  # noqa: F401
    workers_retrieval,  # noqa: F401
    workers_state,  # noqa: F401
    workers_wrappers,  # noqa: F401
)


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    return workers.outcomes_of(request, tmp_path_factory)


@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize(("world", "name"), workers.jobs())
def test_workers(outcomes, world, name):
    workers.check(outcomes, world, name)
