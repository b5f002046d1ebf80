"""Statistics in real processes: slices, bootstraps, tables and reports of all workers."""

import workers
import workers_statistics

outcomes, test_workers = workers.tests_of(workers_statistics)
