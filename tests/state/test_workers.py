"""Real processes: the number does not depend on how many there are, and none of them ever waits in vain."""

from tests.support import workers, workers_state

outcomes, test_workers = workers.tests_of(workers_state)
