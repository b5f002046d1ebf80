"""The cost of a ``compute`` on several workers: collectives, bytes and time."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.measure import interleaved, repetitions, summary, timed
from benchmarks.plan import OURS, Prepared, Shape, cuts, label

#: names in the shape: a small and a large number of queries on each worker
SMALL, LARGE = "few", "many"
THEIRS = "torchmetrics"

CUTOFFS = "1,2,3,4,5,6,8,10,15,20"
SUITE = " ".join(f"{name}@{CUTOFFS}" for name in ("ndcg", "map", "recall", "precision", "hitrate"))
# Fewer than in SUITE, because torchmetrics would need minutes.
THEIR_SUITE = {
    "ndcg@10": "RetrievalNormalizedDCG",
    "recall@10": "RetrievalRecall",
    "precision@10": "RetrievalPrecision",
}

#: functions of torch.distributed in which workers wait for each other: position of the input, None = no input
COLLECTIVES = {
    "all_reduce": 0,
    "all_gather": 1,
    "all_gather_into_tensor": 1,
    "all_gather_object": 1,
    "all_to_all_single": 1,
    "broadcast": 0,
    "broadcast_object_list": 0,
    "gather": 0,
    "reduce": 0,
    "reduce_scatter_tensor": 1,
    "barrier": None,
}


@contextlib.contextmanager
def counting() -> Iterator[dict[str, int]]:
    """Context that counts the collectives, and the bytes that this worker passes to them."""
    seen = {"collectives": 0, "bytes": 0}

    def counted(call: Callable[..., Any], position: int | None) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            seen["collectives"] += 1
            given = [*args, *kwargs.values()][position] if position is not None else None
            seen["bytes"] += given.nbytes if isinstance(given, Tensor) else 0
            return call(*args, **kwargs)

        return wrapper

    own = {name: getattr(dist, name) for name in COLLECTIVES}
    try:
        for name, call in own.items():
            setattr(dist, name, counted(call, COLLECTIVES[name]))
        yield seen
    finally:
        for name, call in own.items():
            setattr(dist, name, call)


def synchronised(shape: Shape, device: str) -> dict[str, Any]:
    """Time and count in new worker processes.

    Returns contenders and checks as in the report, and the processor seconds of the workers, ``cpu_seconds``.
    """
    context = multiprocessing.get_context("forkserver" if sys.platform.startswith("linux") else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["torch", "torchmetrics", "torchrank"])  # imported once for all workers
    with tempfile.TemporaryDirectory() as folder:
        arguments = [(rank, dict(shape), folder) for rank in range(shape["workers"])]
        workers = [context.Process(target=work, args=args, daemon=True) for args in arguments]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if failed := [rank for rank, worker in enumerate(workers) if worker.exitcode]:
            raise RuntimeError(f"Expected all workers to exit with status 0, got other statuses of workers {failed}")
        spent = sum(float(path.read_text()) for path in Path(folder).glob("cpu-*"))
        return {**json.loads((Path(folder) / "results.json").read_text()), "cpu_seconds": spent}


def work(rank: int, shape: Shape, folder: str) -> None:
    """The main function of a worker. The first worker writes the results."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    group = {"init_method": f"file://{folder}/group", "rank": rank, "world_size": shape["workers"]}
    dist.init_process_group("gloo", **group)
    suites: dict[str, Any] = {}
    for size in (SMALL, LARGE):
        scores = torch.randn((shape[size], shape["candidates"]), generator=torch.Generator().manual_seed(rank))
        target = (scores + torch.randn(scores.shape, generator=torch.Generator().manual_seed(100 + rank)) > 1).long()
        suites |= {f"{OURS}, {size}": _ours(scores, target), f"{THEIRS}, {size}": _theirs(scores, target)}
    contenders = {name: Prepared(_together(suite.compute)) for name, suite in suites.items()}
    counts, wanted, numbers = {}, {}, {}
    for name, ready in contenders.items():
        with counting() as counts[name]:
            numbers[name] = suites[name].compute()["ndcg@10"].item()
        seconds = timed(ready, "cpu")[0]
        bounds = (3, 20) if shape["seconds"] else (1, 1)
        wanted[name] = _agreed(repetitions(seconds, shape["seconds"], bounds))
    times = interleaved(contenders, wanted, "cpu", lambda name: None)
    dist.barrier()
    dist.destroy_process_group()
    (Path(folder) / f"cpu-{rank}").write_text(str(time.process_time()))
    if not rank:
        sizes = {OURS: len(cuts(SUITE)), THEIRS: len(THEIR_SUITE)}
        results = {
            name: {**summary(times[name]), **counts[name], "metrics": sizes[name.split(",")[0]]} for name in contenders
        }
        checks = [_check(size, numbers) for size in (SMALL, LARGE)]
        (Path(folder) / "results.json").write_text(json.dumps({"contenders": results, "checks": checks}))


def _ours(scores: Tensor, target: Tensor) -> Any:
    import torchrank as tr

    suite = tr.RankingCollection([tr.parse(label(*cut), compute_with_cache=False) for cut in cuts(SUITE)])
    suite.update(scores, target)
    return suite


def _theirs(scores: Tensor, target: Tensor) -> Any:
    from torchmetrics import MetricCollection, retrieval

    metrics = {key: getattr(retrieval, name)(top_k=10, compute_with_cache=False) for key, name in THEIR_SUITE.items()}
    suite = MetricCollection(metrics)
    indexes = torch.arange(len(scores)) * dist.get_world_size() + dist.get_rank()  # no query is on two workers
    suite.update(scores.flatten(), target.flatten(), indexes=indexes.repeat_interleave(scores.shape[1]))
    return suite


def _together(compute: Callable[[], Any]) -> Callable[[], Any]:
    """A compute that ends when the last worker has its result."""

    def run() -> Any:
        result = compute()
        dist.barrier()
        return result

    return run


def _agreed(number: int) -> int:
    """The number of the first worker, which all workers use, so that they run equally often."""
    shared = torch.tensor(number)
    dist.broadcast(shared, 0)
    return int(shared)


def _check(size: str, numbers: dict[str, float]) -> dict[str, Any]:
    ours, theirs = numbers[f"{OURS}, {size}"], numbers[f"{THEIRS}, {size}"]
    agree = abs(ours - theirs) < 1e-4
    return {"against": f"{THEIRS}, {size}", "labels": ["ndcg@10"], "difference": abs(ours - theirs), "agree": agree}
