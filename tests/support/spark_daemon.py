"""The daemon that forks Spark's workers, with their packages imported before: each worker would take seconds for it."""

import tests.support.torchmetrics_alone  # noqa: F401, I001 - before all that imports torchmetrics

import pandas  # noqa: F401
import pyarrow  # noqa: F401

import torchrank.integrations.arrow  # noqa: F401

if __name__ == "__main__":
    from pyspark import daemon

    daemon.manager()
