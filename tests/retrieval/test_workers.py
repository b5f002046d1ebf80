"""The drop-in in real processes: queries whose rows lie with several workers."""

from tests.support import workers, workers_retrieval

outcomes, test_workers = workers.tests_of(workers_retrieval)
