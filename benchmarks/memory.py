"""The memory of a contender beyond its inputs, measured in a new process."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.plan import Shape, UnavailableError, Workload

ROOT = Path(__file__).parents[1]
MB = 1e6


def peak_growth(workload: Workload, contender: str, shape: Shape, device: str) -> float:
    """The peak growth of memory in megabytes while a contender runs once, measured in a new process."""
    asked = json.dumps([workload.key, contender, dict(shape), device])
    child = [sys.executable, "-m", "benchmarks.child", asked]
    done = subprocess.run(child, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError((done.stderr.strip() or f"ended with {done.returncode}").splitlines()[-1])
    return float(done.stdout.split()[-1])


def grown(workload: Workload, contender: str, shape: Shape, device: str) -> float:
    """:func:`peak_growth`, measured in this process, which should be new."""
    prepare = workload.contenders[contender]
    prepare(workload.make(workload.quick, device)).run()  # load modules and start threads before the measurement
    ready = prepare(workload.make(shape, device))
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        ready.run()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / MB
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # on Linux, reset the peak, which the inputs have raised
    before = _peak()
    ready.run()
    return (_peak() - before) / MB


def _peak() -> int:
    """The peak memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss begins with the size of the parent process, so it is too large
        return 1024 * int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1])  # type: ignore[index]
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
