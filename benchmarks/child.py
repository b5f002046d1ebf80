"""Main module of a process that measures memory once; started by :mod:`benchmarks.memory`."""

from __future__ import annotations

import json
import sys

from torchrank.cli.lean import import_torchmetrics

if __name__ == "__main__":
    import_torchmetrics(whole=False)  # a third less time to start
    from benchmarks.memory import grown
    from benchmarks.workloads import find

    key, contender, shape, device = json.loads(sys.argv[1])
    print(grown(find(key), contender, shape, device))
