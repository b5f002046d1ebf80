"""Main module of a process that measures memory once; started by :mod:`benchmarks.memory`."""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    from benchmarks.memory import grown
    from benchmarks.workloads import find

    key, contender, shape, device = json.loads(sys.argv[1])
    print(grown(find(key), contender, shape, device))
