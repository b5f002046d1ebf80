"""Collections in real processes: their members can be computed in any order, and none of the workers waits in vain."""

from tests.support import workers, workers_collection

outcomes, test_workers = workers.tests_of(workers_collection)
