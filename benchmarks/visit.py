"""``python -m benchmarks --visit``: all that a first hour on an accelerator must show, in eight minutes and one file.

Each part runs in a separate process and has some seconds. A part that fails, hangs or breaks the device is noted in the
file, with what it had found until then, and the next part goes on. ``--visit --table`` prints the measured section of
ACCELERATORS.md from the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import io
import math
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import benchmarks.report as report
import torchrank as tr
from benchmarks.data import embeddings, normal
from benchmarks.launches import CASES, SUITE
from benchmarks.measure import interleaved, repetitions, short, summary, warmed
from benchmarks.memory import ROOT
from benchmarks.plan import COMPILED, OURS, Prepared
from benchmarks.rows import Settings, measured
from benchmarks.table import heading, number, workloads
from benchmarks.workloads import WORKLOADS
from torchrank.engine.judged import count_by_comparing
from torchrank.hardware import costs

#: the rows of a CPU, where the visit only has to run
FEW = ("accelerator: float32", "accelerator: embeddings, float32", "top_k: 256 x 100,000, k = 10")

#: bytes per second, and operations per second of bf16, tf32 and float32: data sheets
SHEETS = {
    "H100": (3.35e12, 989e12, 495e12, 67e12),
    "H200": (4.8e12, 989e12, 495e12, 67e12),
    "A100": (2.0e12, 312e12, 156e12, 19.5e12),
}

#: what a part finds: (name, value)
Found = Iterator[tuple[str, Any]]


# ---- parts -----------------------------------------------------------------------------------------------------------


def machine(settings: Settings) -> Found:
    """The device and the versions of packages."""
    yield from report.new(settings.device, settings.quick).items()


def bits(settings: Settings) -> Found:
    """Ranks of embeddings beside those of float64 products, for whole numbers and for any numbers."""
    for dtype, precision in (
        ("bfloat16", None),
        ("float16", None),
        ("float32", None),
        ("float32", "tf32"),
        ("float32", "tf32x3"),
    ):
        for whole in (True, False):
            name = f"{precision or dtype}, {'whole' if whole else 'any'} numbers"
            try:
                yield name, _beside_float64(settings, dtype, precision, whole)
            except Exception as error:
                yield name, {"failed": _told(error)}


def _beside_float64(settings: Settings, dtype: str, precision: str | None, whole: bool) -> dict[str, int]:
    """How many labels have another rank than by float64 products."""
    queries, items, dimensions = (8, 300, 16) if settings.quick else (256, 50_000, 128)
    shape = {"queries": queries, "items": items, "dimensions": dimensions, "relevant": 1}
    data = embeddings(shape, settings.device)
    left, right = ((x.round() if whole else x).to(getattr(torch, dtype)) for x in (data.queries, data.items))
    ranking = tr.Ranking.from_embeddings(left, right, data.relevant[:, 0], precision=precision)
    exact = left.double() @ right.double().T
    apart = exact - exact.gather(1, data.relevant)
    # The sum of rounding errors of independent products.
    epsilon = 2.0 ** (-10 if precision == "tf32" else -22) * dimensions**0.5
    near = apart.abs() <= epsilon * left.double().norm(dim=1, keepdim=True) * right.double().norm(dim=1).amax()
    other = ranking.first[:, 0] - 1 != (apart > 0).sum(1)
    return {
        "queries": queries,
        "other ranks": int(other.sum()),
        "other ranks without a score near": int((other & (near.sum(1) == 1)).sum()),
        "bad values": int(ranking.errors.sum()),
    }


def rows(name: str, settings: Settings) -> Found:
    """The rows of a workload, as the benchmarks measure them."""
    for workload in WORKLOADS:
        if workload.name != name or (settings.device == "cpu" and workload.key not in FEW):
            continue
        if settings.device == "cpu":  # compiling takes longer than all the rest
            makers = {key: make for key, make in workload.contenders.items() if key != COMPILED}
            targets = tuple(target for target in workload.targets if target.contender in makers)
            workload = dataclasses.replace(workload, contenders=makers, targets=targets, memory=())
        yield workload.key, measured(workload, settings)


def _epoch(suite: tr.RankingCollection, scores: torch.Tensor, target: torch.Tensor) -> None:
    for _ in range(100):
        suite.update(scores, target)
    suite.compute()


def launches(settings: Settings) -> Found:
    """Times of the batches whose kernels ``--launches`` counts, and of small kernels."""
    shapes = {
        "label, 10,000 items": ((1024, 10_000), (1024,), torch.float32),
        "grades [1,024, 100]": ((1024, 100), (1024, 100), torch.float32),
    }
    if settings.device == "cuda":
        shapes["label, 1,000,000 items, bfloat16"] = (1024, 1_000_000), (1024,), torch.bfloat16
    for name, (size, of_target, dtype) in shapes.items():
        scores = normal(size, settings.device).to(dtype)
        target = torch.zeros(of_target, dtype=torch.int64, device=settings.device)
        suite = tr.RankingCollection(SUITE).to(settings.device)
        if settings.device == "cuda":  # a CPU has a row of the benchmarks for it
            yield f"{name}, epoch of 100", _timed(functools.partial(_epoch, suite, scores, target), settings)
        suite.waits = False
        yield name, _timed(functools.partial(suite.update, scores, target), settings)
        yield f"{name}, amax", _timed(functools.partial(scores.amax, -1), settings)
    one = torch.zeros(1, dtype=torch.float32, device=settings.device)
    yield "1,000 small kernels", _timed(lambda: [one.add_(1) for _ in range(1000)], settings)
    yield "kernels counted", {name: case().found.total() for name, case in CASES.items()}


def chunks(settings: Settings) -> Found:
    """Updates with grades by the size of a chunk on an accelerator: ms, and MB of temporaries."""
    size = (8, 2000) if settings.quick else (1024, 10_000)
    scores, target = normal(size, settings.device), torch.randint(4, size, device=settings.device)
    for name, measures in (("ndcg@10", ["ndcg@10"]), ("ndcg", ["ndcg"]), ("8 measures", SUITE)):
        suite = tr.RankingCollection(measures).to(settings.device)
        suite.waits = False
        for blocks in (1, 8, 32) if settings.device == "cuda" else (1,):  # a CPU has chunks of one size
            with costs.assumed(device_chunk=blocks):
                ms, peak = _timed(functools.partial(suite.update, scores, target), settings)["median_ms"], math.nan
                if settings.device == "cuda":
                    torch.cuda.reset_peak_memory_stats()
                    before = torch.cuda.memory_allocated()
                    suite.update(scores, target)
                    peak = (torch.cuda.max_memory_allocated() - before) / 2**20
            yield f"{name}, {blocks}", {"ms": short(ms), "MB": short(peak)}


def constants(settings: Settings) -> Found:
    """From how many judged items on another method than counting is faster. One pass over the scores is ``amax``."""
    queries, items = (8, 2000) if settings.quick else (256, 100_000)
    scores = normal((queries, items), settings.device)
    calls: dict[str, Callable[[], Any]] = {"amax": lambda: scores.amax(-1), "sort": lambda: scores.sort(-1)}
    for k in (10, 100, 1000):
        calls[f"topk({k})"] = functools.partial(scores.topk, k)
    for entries in (1, 8, 32):
        calls[f"counts of {entries} judged items"] = functools.partial(
            count_by_comparing, scores, scores[:, :entries].contiguous()
        )
    times = {name: _timed(call, settings)["median_ms"] for name, call in calls.items()}
    for name, ms in times.items():
        yield name, {"ms": ms, "passes": short(ms / times["amax"])}


def workers(settings: Settings) -> Found:
    """A compute with one worker: NCCL on a device, gloo on a CPU."""
    suite = tr.RankingCollection([tr.parse(name, compute_with_cache=False) for name in ("ndcg@10", "map", "mrr")])
    target = torch.randint(0, 2, (64, 100), generator=torch.Generator().manual_seed(0)).to(settings.device)
    suite.to(settings.device).update(normal((64, 100), settings.device), target)
    yield "alone", {name: float(value) for name, value in suite.compute().items()}
    with tempfile.TemporaryDirectory() as folder:
        backend = "gloo" if settings.device == "cpu" else "nccl"
        group = {"init_method": f"file://{folder}/group", "rank": 0, "world_size": 1}
        torch.distributed.init_process_group(backend, **group)
        yield backend, {name: float(value) for name, value in suite.compute().items()}
        yield "compute", _timed(suite.compute, settings)
        torch.distributed.destroy_process_group()


def tests(settings: Settings) -> Found:
    """All tests that need a device."""
    import pytest

    where = "tests/hardware/test_gpu.py" if settings.device == "cpu" else "tests"  # a CPU skips them all
    arguments = ["-m", "gpu", "-p", "no:cacheprovider", "--tb=line", "-rfE", where]
    if settings.device != "cpu" and importlib.util.find_spec("xdist") is not None:
        arguments += ["-n", "4", "--dist", "load"]
    output = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(output):
        status = pytest.main(arguments)  # in this process, which has imported torch
    lines = output.getvalue().splitlines()
    last = " ".join(lines[-20:])
    yield "counts", {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|failed|error|skipped)", last)}
    yield "failing", [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    if status:
        raise RuntimeError(f"pytest ended with {int(status)}: {last[-300:]}")


def _timed(call: Callable[[], Any], settings: Settings) -> dict[str, Any]:
    ready = Prepared(call)
    wanted = {OURS: repetitions(warmed(ready, settings.device)[0], settings.budget, settings.bounds)}
    return summary(interleaved({OURS: ready}, wanted, settings.device, settings.tick)[OURS])


#: parts by name: the seconds after which each is stopped, together less than eight minutes, and the part
PARTS: dict[str, tuple[float, Callable[[Settings], Found]]] = {
    "machine": (30, machine),
    "bits": (30, bits),
    "rows: accelerator": (80, functools.partial(rows, "accelerator")),
    "launches": (40, launches),
    "constants": (10, constants),
    "chunks": (20, chunks),
    "workers": (15, workers),
    "rows: catalogue": (50, functools.partial(rows, "catalogue")),
    "rows: next_item": (20, functools.partial(rows, "next_item")),
    "rows: top_k": (15, functools.partial(rows, "top_k")),
    "rows: ltr": (90, functools.partial(rows, "ltr")),  # torchmetrics needs a kernel for each step of each query
    "tests": (80, tests),
}


# ---- one process for each --------------------------------------------------------------------------------------------


def visit(settings: Settings, path: Path | None) -> report.Report:
    """Run all parts, and write the file after each; None = only return what it would hold."""
    found: report.Report = {"workloads": {}, "scaling": {}, "visit": {}}
    quiet = dataclasses.replace(settings, tick=lambda message: None)
    for name, (seconds, run) in PARTS.items():
        settings.tick(name)
        start = time.monotonic()
        part, fault = isolated(run, quiet, 300 if settings.device == "cpu" else seconds)  # a CPU may be busy
        if name == "machine":
            found, part = part | found, {}
            path = path or (None if settings.device == "cpu" else report.default_path(found.get("machine", {})))
        elif name.startswith("rows"):
            found["workloads"] |= part
            part = {"rows": list(part)}
        found["visit"][name] = {"seconds": round(time.monotonic() - start, 1), "failed": fault, **part}
        if path:
            report.write(found, path)
    return found


def isolated(run: Callable[[Settings], Found], settings: Settings, seconds: float) -> tuple[dict[str, Any], str | None]:
    """What a part finds in a process of its own until it ends or its time is over, and what was wrong; None = nothing.

    The process is forked, so that nothing is imported again. This process must therefore never use the device.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(run, settings, sender))
    process.start()
    sender.close()
    found, fault, end = {}, None, time.monotonic() + seconds
    try:
        while receiver.poll(max(0.0, end - time.monotonic())):
            name, value = receiver.recv()
            if name is None:
                fault = value
            else:
                found[name] = value
        fault = f"stopped after {seconds:g} seconds"
    except EOFError:  # the part has ended
        process.join()
        fault = fault or (f"ended with status {process.exitcode}" if process.exitcode else None)
    finally:
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that it has started
        process.join()
    return found, fault


def _send(run: Callable[[Settings], Found], settings: Settings, sender: Any) -> None:
    os.setsid()
    try:
        for one in run(settings):
            sender.send(one)
    except Exception as error:
        sender.send((None, _told(error)))


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


# ---- the page --------------------------------------------------------------------------------------------------------


def page(found: report.Report) -> str:
    """The measured section of ACCELERATORS.md."""
    parts = found["visit"]
    lines = [heading(found), _limits(found)] if "machine" in found else []
    lines += [f"**{name}**: {fault}" for name, part in parts.items() if (fault := part["failed"])]
    for name in ("bits", "constants", "chunks", "launches", "workers", "tests"):
        told = {key: value for key, value in parts.get(name, {}).items() if key not in ("seconds", "failed")}
        if told:
            lines.append("\n".join(f"- {name}: {key}: {_shown(value)}" for key, value in told.items()))
    return "\n\n".join([*lines, workloads(found["workloads"])] if found["workloads"] else lines)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(one)}" for key, one in value.items())
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def _limits(found: report.Report) -> str:
    """Measured times beside the limits that follow from the data sheet of the device."""
    gpu = found["machine"].get("gpu", "")
    moved, *multiplied = next((sheet for name, sheet in SHEETS.items() if name in gpu), (None,) * 4)
    rates = {"accelerator: float32": moved, "accelerator: bfloat16": moved}
    rates |= dict(
        zip((f"accelerator: embeddings, {kind}" for kind in ("bfloat16", "float32, tf32", "float32")), multiplied)
    )
    lines = ["| | limit, ms | measured, ms | of the limit |", "| --- " * 4 + "|"]
    for key, rate in rates.items():
        row = found["workloads"].get(key, {"contenders": {}})
        if OURS not in row["contenders"] or rate is None:
            continue
        shape, ms = row["shape"], row["contenders"][OURS]["median_ms"]
        if "candidates" in shape:  # bytes
            cost = shape["queries"] * shape["candidates"] * getattr(torch, shape["dtype"]).itemsize
        else:  # operations
            cost = shape["queries"] * 2 * shape["items"] * shape["dimensions"]
        limit = 1e3 * cost / rate
        lines.append(f"| {key} | {number(limit)} | {number(ms)} | {number(ms / limit)} |")
    return "\n".join(lines)
