"""Statistics in real processes: slices, bootstraps, tables and reports of all workers."""

from tests.support import workers, workers_wrappers

outcomes, test_workers = workers.tests_of(workers_wrappers)
