"""The daemon that forks Spark's workers, with torchrank imported before: each worker would take seconds for it."""

import torchrank.evaluation.partial  # noqa: F401

if __name__ == "__main__":
    from pyspark import daemon

    daemon.manager()
