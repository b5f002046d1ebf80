"""Scenarios of worker processes for the tests of torch.distributed, each run by 2 and by 3 workers, and by one.

A scenario is a function of its rank and of the number of workers. It returns values that must be the same, to the bit,
on all workers and in a single process without torch.distributed that has all the data.
"""

import contextlib
import copy
import datetime
import importlib
import itertools
import multiprocessing
import os
import pickle
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MetricCollection, MetricTracker
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

import torchrank as tr
from torchrank.retrieval import RetrievalMRR

NAN = float("nan")
SCENARIOS = {}


def scenario(function=None, *, alone=True, timeout=60):
    """Register a scenario. ``alone``: a single process returns the same. ``timeout``: of collectives, in seconds."""
    if function is None:
        return lambda function: scenario(function, alone=alone, timeout=timeout)
    SCENARIOS[function.__name__] = function
    function.alone, function.timeout = alone, timeout
    return function


# ---- running ---------------------------------------------------------------------------------------------------------


#: Processes that tests start are forked from one that has imported torch, which takes seconds.
CONTEXT = multiprocessing.get_context("forkserver" if sys.platform.startswith("linux") else "spawn")
if CONTEXT.get_start_method() == "forkserver":
    CONTEXT.set_forkserver_preload(["torch", "torchmetrics", "torch.distributed", "torchrank", "torchrank.retrieval"])


def work(rank, folder, jobs):
    """The main function of a worker: run (number of workers, scenario), each in a process group of its own."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in ("workers_retrieval", "workers_statistics"):
        importlib.import_module(name)  # its scenarios
    for world, name in jobs:
        results = [result_of(folder, world, name, other) for other in range(world)]
        if rank < world:
            run_one(rank, world, name, results[rank])
        while not all(result.exists() for result in results):
            time.sleep(0.002)
    end()


def result_of(folder, world, name, rank):
    """The file with (result, error, seconds) of a worker."""
    return Path(folder, f"{name}.of{world}.{rank}.result")


def run_one(rank, world, name, path):
    run = SCENARIOS[name]
    meeting = path.with_name(f"{name}.of{world}.group")
    group = {"init_method": f"file://{meeting}", "rank": rank, "world_size": world}
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=run.timeout), **group)
    result, error, started = None, "", time.monotonic()
    try:
        result = plain(run(rank, world))
        dist.monitored_barrier()  # a collective too many on one worker shows here
    except BaseException:
        error = traceback.format_exc()
    seconds = time.monotonic() - started
    leave()  # which wakes up whoever waits for this worker
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps((result, error, seconds)))
    part.rename(path)
    if error and KEPT:
        os._exit(1)  # which wakes up whoever waits for this worker


# Process groups that were left but not ended. Before torch 2.13, where it was not seen, the end of a gloo group may
# hang in torch itself: it holds the GIL while it waits for its thread, which wants the GIL to drop the last work. So a
# worker keeps its groups, and ends without an end of Python.
KEPT = []
ENDS_GROUPS = torch.__version__ >= (2, 13)


def leave(group=None):
    """Leave a process group; None = all of them."""
    if not ENDS_GROUPS:
        KEPT.extend(dist.distributed_c10d._world.pg_map if group is None else [group])
    dist.destroy_process_group(group)


def end():
    """End a worker."""
    if KEPT:
        os._exit(0)


def call(module, function, *args):
    """Call a function of another test module, which a new process finds only by its name here."""
    getattr(importlib.import_module(module), function)(*args)


def plain(value):
    """Tensors as lists, so that equal means equal bits; NaN as None, because it is not equal to itself."""
    if isinstance(value, Tensor):
        return plain([str(value.dtype), value.tolist()])
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if value != value else value


COLLECTIVES = [
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "barrier", "broadcast"),
    *("broadcast_object_list", "gather", "reduce", "reduce_scatter", "scatter", "send", "recv", "isend", "irecv"),
]


@contextlib.contextmanager
def counted():
    """Count the collectives that run inside."""
    count, real = Counter(), {name: getattr(dist, name) for name in COLLECTIVES}

    def wrap(name):
        def counting(*args, **kwargs):
            count[name] += 1
            return real[name](*args, **kwargs)

        return counting

    for name in COLLECTIVES:
        setattr(dist, name, wrap(name))
    try:
        yield count
    finally:
        for name, function in real.items():
            setattr(dist, name, function)


@contextlib.contextmanager
def exactly(world, **expected):
    """Nothing but these collectives run inside, where there are several workers."""
    with counted() as count:
        yield
    assert dict(count) == (expected if world > 1 else {}), f"{dict(count)} instead of {expected}"


# ---- data ------------------------------------------------------------------------------------------------------------


def batch(seed, queries=None):
    generator = torch.Generator().manual_seed(seed)
    queries = 1 + seed % 5 if queries is None else queries
    scores = torch.randint(0, 12, (queries, 9), generator=generator) / 2
    target = torch.randint(0, 4, (queries, 9), generator=generator) * (torch.rand(9, generator=generator) < 0.5)
    target[1:2] = 0
    return scores, target


BATCHES = [batch(seed) for seed in range(12)]
MORE = [batch(seed) for seed in range(20, 24)]
BAD = (torch.tensor([[0.1, NAN, 0.3]]), torch.tensor([[1, 0, 0]]))

# How many of twelve batches each of two and of three workers has.
SHARES = {
    "uneven": {2: (9, 3), 3: (7, 1, 4)},
    "even": {2: (6, 6), 3: (4, 4, 4)},
    "first empty": {2: (0, 12), 3: (0, 5, 7)},
    "last empty": {2: (12, 0), 3: (5, 7, 0)},
    "all in one": {2: (0, 12), 3: (0, 12, 0)},
}


def share(batches, rank, world, how="uneven"):
    """A worker's part of the batches, in order of rank."""
    if world == 1:
        return batches
    sizes = SHARES[how][world]
    scale = len(batches) / 12
    start, stop = (round(scale * sum(sizes[:n])) for n in (rank, rank + 1))
    return batches[start:stop]


def few(batches):
    """The first batch, and all others as one: rows cost nothing, calls do."""
    first, *rest = list(batches) or [()]
    widths = {x.shape[1:] for x in itertools.chain(first[:1], *(batch[:1] for batch in rest))}
    if len(rest) < 2 or len(widths) > 1:
        return batches
    return [first, tuple(torch.cat(x) if isinstance(x[0], Tensor) else [*itertools.chain(*x)] for x in zip(*rest))]


def fill(metric, batches):
    """Update a metric in one call, or in two."""
    for arguments in few(batches):
        metric.update(*arguments)
    return metric


def spread(values):
    return values.max() - values.min()


AGGREGATIONS = ("mean", "median", "min", "max", "none", spread)
#: Synchronisation is the same code for all measures: one metric for each kind of state.
SUMS = (
    "ndcg(ties=pessimistic)@3",
    "mr",
    "kendalltau",
    "mr(adjusted=z)",
    "psp(average=pooled)@3",
    "ips(self_normalized=True)",
)
SUMMED = [f"{name}@{k}" for name in ("ndcg", "recall", "precision", "mrr", "hitrate", "map", "f1") for k in range(1, 4)]
SUMMED.append("mr")  # 22 in all
MIXED = [
    "ndcg@5",
    "mrr(aggregation=median)",
    "map(relevance_level=1.5)",
    "mr",
    "recall(aggregation=none)@3",
    "fallout(aggregation=max)@2",
    "auroc(empty_target_action=neg)",
    "mr(aggregation=none)",
    "dcg@3",
]
COST = {"summed": {"all_reduce": 1}, "mixed": {"all_reduce": 1, "all_gather": 1}}
NAMES = {"summed": SUMMED, "mixed": MIXED}


LOGGER = {"__name__": "lightning.pytorch.trainer.connectors.logger_connector.result"}
exec("def logged(metric): return metric.compute()", LOGGER)  # test_lightning.py has the real one


def one_by_one(suite):
    """As Lightning's log_dict does it: the items first, and later every metric by itself."""
    items = list(suite.items())
    return {key: LOGGER["logged"](metric) for key, metric in items}


def at_once(suite):
    return suite.compute()


WAYS = {"at once": at_once, "one by one": one_by_one}


def errors_of(function, kind=ValueError):
    """The message of the error that a call must raise."""
    try:
        function()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")


# ---- the same numbers ------------------------------------------------------------------------------------------------


def single_metrics(rank, world, how):
    values = {}
    for metric in [*map(tr.parse, SUMS), *(tr.MRR(aggregation=aggregation) for aggregation in AGGREGATIONS)]:
        fill(metric, share(BATCHES, rank, world, how))
        kept = {} if metric.aggregation == "mean" else {"all_gather": 1}
        with exactly(world, all_reduce=1, **kept):
            values[metric.label] = metric.compute()
        with exactly(world, all_reduce=1, **kept):
            assert plain(metric.compute()) == plain(values[metric.label])
        assert metric.num_queries == sum(len(preds) for preds, _ in share(BATCHES, rank, world, how))
    return values


def collections(rank, world, how):
    values = {}
    for (kind, names), (way, compute) in itertools.product(NAMES.items(), WAYS.items()):
        suite = fill(tr.RankingCollection(names, prefix="v/"), share(BATCHES, rank, world, how))
        with exactly(world, **COST[kind]):
            values[kind, way] = compute(suite)
        with exactly(world, **COST[kind]):
            assert plain(compute(suite)) == plain(values[kind, way])
        assert plain(values[kind, way]) == plain(values[kind, "at once"])
    stock = MetricCollection({name: tr.parse(name) for name in MIXED if "." not in name})
    values["stock"] = dict(sorted(fill(stock, share(BATCHES, rank, world, how)).compute().items()))
    with_own = MetricCollection([tr.RankingCollection(SUMMED), MeanAbsoluteError()])
    values["own in stock"] = fill(with_own, share(BATCHES, rank, world, how)).compute()
    del values["own in stock"]["MeanAbsoluteError"]  # whose float32 sums depend on the order
    return values


for _how, _scene in itertools.product(SHARES, (single_metrics, collections)):

    def _run(rank, world, how=_how, scene=_scene):
        return scene(rank, world, how)

    _run.__name__ = f"{_scene.__name__}, {_how}".replace(" ", "_").replace(",", "")
    scenario(_run)


@scenario
def curves(rank, world):
    suite = fill(tr.RankingCollection([tr.PRCurve(3), "mrr"]), share(BATCHES, rank, world))
    with exactly(world, all_reduce=1):
        values = suite.compute()
    return dict(zip(("precision", "recall", "rank"), values["prcurve@3"])) | {"mrr": values["mrr"]}


@scenario
def nothing_anywhere(rank, world):
    values = {}
    for aggregation in AGGREGATIONS:
        metric = tr.MR(aggregation=aggregation)
        with exactly(world, all_reduce=1):  # nobody has rows to gather
            values[metric.label] = metric.compute()
        assert metric.compute().shape == ((0,) if aggregation == "none" else ())
    values["suite"] = tr.RankingCollection(MIXED).compute()
    metric = tr.MR(aggregation="none")
    metric.update(torch.zeros(0, 3), torch.zeros(0, 3))
    values["batches without queries"] = metric.compute()
    return values


@scenario
def weights(rank, world):
    suite = tr.RankingCollection(MIXED)
    for number, (preds, target) in enumerate(share(list(BATCHES), rank, world)):
        first = sum(SHARES["uneven"][world][:rank]) if world > 1 else 0
        suite.update(preds, target, weights=torch.arange(len(preds)) + (first + number) / 3)
    return suite.compute()


@scenario
def other_precision(rank, world):
    suite = tr.RankingCollection(MIXED).to(torch.bfloat16).half()
    torch.set_default_dtype(torch.bfloat16)
    with torch.inference_mode():
        fill(suite, share(BATCHES, rank, world))
        values = suite.compute()
    torch.set_default_dtype(torch.float32)
    return values, fill(suite, share(MORE, rank, world)).compute()["ndcg@5"]


# ---- compute, update, compute ----------------------------------------------------------------------------------------


def rounds(suite, compute, rank, world):
    """Compute between updates of which some workers have none: nobody may answer from a cache or wait in vain."""
    values, shares = [], ("uneven", "first empty", "last empty", "all in one", "even")
    for number, how in enumerate(shares):
        batches = BATCHES if number == 0 else [batch(100 * number + seed) for seed in range(12)]
        fill(suite, share(batches, rank, world, how))
        values.append(compute(suite))
        values.append(compute(suite))
    suite.reset()
    values.append(compute(suite))
    fill(suite, share(MORE, rank, world, "last empty"))
    values.append(compute(suite))
    return values


@scenario
def rounds_of_single_metrics(rank, world):
    values = [rounds(tr.parse(name), at_once, rank, world) for name in MIXED if "none" not in name]
    return [*values, rounds(tr.MRR() + tr.NDCG(top_k=3) / 2, at_once, rank, world)]


@scenario
def rounds_of_collections(rank, world):
    names = [name for name in MIXED if "none" not in name]  # whose order is by worker, then by round
    values = [rounds(tr.RankingCollection(names), compute, rank, world) for compute in WAYS.values()]
    assert plain(values[0]) == plain(values[1])
    stock = MetricCollection({name: tr.parse(name) for name in names if "." not in name})
    return values, [dict(sorted(v.items())) for v in rounds(stock, at_once, rank, world)]


@scenario(alone=False)
def rows_come_by_worker_then_by_time(rank, world):
    metric = tr.MRR(aggregation="none")
    for number in range(3):
        metric.update(tr.Ranking.from_ranks(torch.full((rank + 1,), float(10**number + rank))))
        metric.compute()
    values = [1 / (10**number + r) for r in range(world) for number in range(3) for _ in range(r + 1)]
    torch.testing.assert_close(metric.compute(), torch.tensor(values))


@scenario(timeout=15)
def rounds_with_a_foreign_metric(rank, world):
    suite = tr.RankingCollection(["mrr", MeanAbsoluteError(), "map"])
    values = rounds(suite, at_once, rank, world)
    return [{key: value for key, value in v.items() if key != "MeanAbsoluteError"} for v in values]


# ---- bad values ------------------------------------------------------------------------------------------------------


@scenario(alone=False)
def bad_values_on_one_worker_raise_on_all(rank, world):
    messages = []
    for name in MIXED:
        metric = fill(tr.parse(name), share(BATCHES, rank, world))
        if rank == world - 1:
            metric.update(*BAD)
        messages.append(errors_of(metric.compute))
        assert errors_of(metric.compute) == messages[-1]
        if rank == 0:
            fill(metric, MORE)
        messages.append(errors_of(metric.compute))
        metric.reset()
        value = fill(metric, share(BATCHES, rank, world)).compute()
        assert plain(value) == plain(expected(name, BATCHES))
    assert all("1 query with NaN" in message for message in messages)
    return messages


EXPECTED = {}


def expected(name, batches):
    """The value of a process without others."""
    key = (name, *map(id, batches))
    if key not in EXPECTED:  # with the batches, so that no other gets their id
        EXPECTED[key] = list(batches), fill(tr.parse(name, distributed_available_fn=lambda: False), batches).compute()
    return EXPECTED[key][1]


@scenario(alone=False)
def bad_values_in_collections(rank, world):
    """One metric of many raises; the others have their turn, and everything goes on."""
    names = [
        "ndcg@5",
        "map(empty_target_action=error)",
        "mrr(aggregation=median)",
        "mr(empty_target_action=error)",
        "f1",
    ]
    empty = (torch.tensor([[0.1, 0.9]]), torch.tensor([[0, 0]]))
    some = [(preds[:1], target[:1] + 1) for preds, target in BATCHES]
    messages = []
    for build in (tr.RankingCollection, lambda names: MetricCollection({name: tr.parse(name) for name in names})):
        suite = fill(build(names), share(some, rank, world))
        for _ in range(2):
            if rank == 1:
                suite.update(*empty)
            messages.append(errors_of(suite.compute))
            values = {}
            for key, metric in suite.items():
                if "error" in key:
                    messages.append(errors_of(metric.compute))
                else:
                    values[key] = metric.compute()
            messages.append(errors_of(lambda: one_by_one(suite)))  # noqa: B023  called at once
        assert values.keys() == {"ndcg@5", "mrr(aggregation=median)", "f1"}
        for key, value in values.items():
            assert plain(value) == plain(expected(key, [*some, empty, empty]))
        suite.reset()
        fill(suite, share(some, rank, world, "last empty"))
        for key, value in suite.compute().items():
            assert plain(value) == plain(expected(key, some))
    return messages


@scenario
def a_call_that_raises_on_one_worker(rank, world):
    """It leaves no trace there, and so nothing to wait for."""
    suite = fill(tr.RankingCollection(MIXED), share(BATCHES, rank, world))
    suite.compute()
    for method in (suite.update, suite.forward, suite["mr"].update, suite["mr"].forward) if rank == 0 else ():
        errors_of(lambda: method(torch.zeros(2, 3), torch.zeros(2, 4)))  # noqa: B023  called at once
    return suite.compute(), one_by_one(suite)


@scenario
def a_failing_aggregation(rank, world):
    def fails(values):
        raise RuntimeError("no")

    suite = fill(tr.RankingCollection(["mrr", tr.NDCG(aggregation=fails), "mr"]), share(BATCHES, rank, world))
    for compute in WAYS.values():
        errors_of(lambda: compute(suite), RuntimeError)  # noqa: B023  called at once
        suite.reset()
        fill(suite, share(BATCHES, rank, world))
    return suite["mrr"].compute(), suite["mr"].compute()


# ---- torchmetrics' arguments -----------------------------------------------------------------------------------------


@scenario
def forward_without_sync(rank, world):
    suite = tr.RankingCollection(MIXED)
    with exactly(world):
        for arguments in share(BATCHES, rank, world):
            values = suite(*arguments)
            assert plain(values["ndcg@5"]) == plain(expected("ndcg@5", [arguments]))
            assert plain(values["mr(aggregation=none)"]) == plain(expected("mr(aggregation=none)", [arguments]))
    return suite.compute()


def steps(metric, rank, world):
    """Forward of as many batches by every worker; the union of them in one process."""
    values = []
    for number in range(3):
        parts = [batch(1000 + 10 * number + r, queries=r) for r in (1, 2, 3)]
        mine = {1: [(0, 3)], 2: [(0, 2), (2, 3)], 3: [(0, 1), (1, 2), (2, 3)]}[world][rank]
        values.append(metric(*(torch.cat(x) for x in zip(*parts[slice(*mine)]))))
    return values


@scenario
def sync_on_step(rank, world):
    values = []
    for name in MIXED:
        metric = tr.parse(name, dist_sync_on_step=True)
        values.append(steps(metric, rank, world))
        assert metric.num_queries == {1: [18], 2: [9, 9], 3: [3, 6, 9]}[world][rank]
        value = metric.compute()
        values.append(value if "none" not in name else value.sort().values)
    return values


@scenario(alone=False)
def bad_values_of_one_worker_in_a_synced_step(rank, world):
    values = []
    for kwargs in ({}, {"aggregation": "median"}):
        suite = tr.RankingCollection([tr.MRR(dist_sync_on_step=True, **kwargs), tr.MR(dist_sync_on_step=True)])
        for arguments in (MORE[0], BAD if rank == 1 else MORE[1], MORE[2]):
            values.append(suite(*arguments))
        assert [value.isnan().item() for v in values[-3:] for value in v.values()] == [
            False,
            False,
            True,
            True,
            False,
            False,
        ]
        assert "1 query with NaN" in errors_of(suite.compute)
    return values


@scenario
def sync_on_step_in_collections(rank, world):
    values = []
    suite = tr.RankingCollection([tr.parse(name, dist_sync_on_step=True) for name in MIXED if "none" not in name])
    stock = MetricCollection({name: metric.clone() for name, metric in suite.items() if "." not in name})
    for _ in range(2):
        values.append(steps(suite, rank, world))
        values.append(suite.compute())
        values.append(one_by_one(suite))
        values.append([dict(sorted(v.items())) for v in steps(stock, rank, world)])
        values.append(dict(sorted(stock.compute().items())))
    return values


@scenario(alone=False)
def no_sync_on_compute(rank, world):
    mine = share(BATCHES, rank, world)
    members = {name: tr.parse(name, sync_on_compute=False) for name in MIXED[:4]}
    suite = fill(tr.RankingCollection({**members, "global": "ndcg@5"}), mine)
    for compute in WAYS.values():
        with exactly(world, all_reduce=1):
            values = compute(suite)
        for name in members:
            assert plain(values[name]) == plain(expected(name, mine))
    metric = fill(tr.MRR(sync_on_compute=False), mine)
    with exactly(world):
        metric.compute()
    metric(*MORE[0])
    with exactly(world):
        assert plain(metric.compute()) == plain(expected("mrr", [*mine, MORE[0]]))
    return values["global"]


class Gather:
    """A user's own way to gather."""

    def __init__(self):
        self.calls = 0

    def __call__(self, tensor, group=None):
        self.calls += 1
        return gather_all_tensors(tensor, group)


@scenario
def own_gather(rank, world):
    values = []
    for how in SHARES:
        gather = Gather()
        own = {f"own {name}": tr.parse(name, dist_sync_fn=gather) for name in MIXED}
        suite = tr.RankingCollection({**own, **{name: tr.parse(name) for name in MIXED}})
        for _ in range(2):
            for compute in WAYS.values():
                fill(suite, share(MORE, rank, world, how))
                got = compute(suite)
                assert all(plain(got[name]) == plain(got[f"own {name}"]) for name in MIXED)
                values.append({name: v for name, v in got.items() if "none" not in name})
        assert (gather.calls > 0) == (world > 1)
    metric = fill(tr.MRR(aggregation="none", dist_sync_fn=gather_all_tensors), share(MORE, rank, world))
    return values, metric.compute()


@scenario(alone=False)
def foreign_metrics(rank, world):
    suite = tr.RankingCollection(["mrr", MeanAbsoluteError(), "ndcg(aggregation=none)", "map"])
    error = MeanAbsoluteError(distributed_available_fn=lambda: False)
    fill(error, BATCHES)
    for how in ("uneven", "last empty"):
        suite.reset()
        fill(suite, share(BATCHES, rank, world, how))
        for compute in WAYS.values():
            values = compute(suite)
            assert plain(values["mrr"]) == plain(expected("mrr", BATCHES))
            torch.testing.assert_close(values["MeanAbsoluteError"], error.compute())
    return values


@scenario(alone=False)
def subgroups(rank, world):
    """The first two workers by themselves, beside metrics of all."""
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=60))
    mine = [batch(50 + rank), batch(60 + rank, queries=rank)]
    both = [b for r in (0, 1) for b in (batch(50 + r), batch(60 + r, queries=r))]
    everyone = [b for r in range(world) for b in (batch(50 + r), batch(60 + r, queries=r))]
    names = ["mrr", "ndcg(aggregation=none)", "mr(aggregation=median)"]
    if rank < 2:
        for name in names:
            metric = fill(tr.parse(name, process_group=group), mine)
            for _ in range(2):
                assert plain(metric.compute()) == plain(expected(name, both))
            with tr.parse(name).sync_context(process_group=group):
                pass
            metric = fill(tr.parse(name), mine)
            with metric.sync_context(process_group=group):
                assert metric.num_queries == sum(len(preds) for preds, _ in both)
            assert metric.num_queries == sum(len(preds) for preds, _ in mine)
        suite = fill(tr.RankingCollection([tr.parse(name, process_group=group) for name in names]), mine)
        for compute in WAYS.values():
            with exactly(world, all_reduce=1, all_gather=1):
                assert plain(compute(suite)) == plain({name: expected(name, both) for name in names})
    dist.barrier()
    local = {f"local {name}": tr.parse(name, process_group=group) for name in names} if rank < 2 else {}
    suite = fill(tr.RankingCollection({**local, **{name: tr.parse(name) for name in names}}), mine)
    for compute in WAYS.values():
        for _ in range(2):
            values = compute(suite)
            for name in names:
                assert plain(values[name]) == plain(expected(name, everyone))
            for name in local:
                assert plain(values[name]) == plain(expected(name.removeprefix("local "), both))
    leave(group) if rank < 2 else None


# ---- inside sync_context, copies, checkpoints ------------------------------------------------------------------------


@scenario
def sync_context(rank, world):
    mine = share(BATCHES, rank, world)
    local = sum(len(preds) for preds, _ in mine)
    values = []
    suite = fill(tr.RankingCollection(MIXED), mine)
    for joint in (False, True):
        for metric in suite.values() if joint else (fill(tr.parse(name), mine) for name in MIXED):
            error = metric.standard_error
            for _ in range(2):
                with metric.sync_context():
                    values.append([metric.num_queries, metric.num_empty, metric.standard_error])
                    metric.persistent(True)
                    values.append(
                        metric.state_dict()[f"{metric.label}:sums"][[2, 3, -1]]
                    )  # whole numbers: exact in any order
                assert metric.num_queries == local
                assert plain(metric.standard_error) == plain(error)
            values.append(metric.compute())
    with contextlib.ExitStack() as stack:
        for metric in suite.values():
            stack.enter_context(metric.sync_context())
        values.append([metric.num_queries for metric in suite.values()])
    assert {metric.num_queries for metric in suite.values()} == {local}
    return values, suite.compute()


@scenario(alone=False)
def forward_while_synced(rank, world):
    """torchmetrics refuses it; the local state must come back all the same."""
    for name in ("mrr", "mrr(aggregation=none)"):
        metric = fill(tr.parse(name), share(BATCHES, rank, world))
        local = metric.num_queries
        with metric.sync_context():
            all_candidates = metric.num_queries
            errors_of(lambda: metric(*BATCHES[0]), TorchMetricsUserError)  # noqa: B023  called at once
            assert metric.num_queries == all_candidates
        assert metric.num_queries == local
        assert plain(metric.compute()) == plain(expected(name, BATCHES))


@scenario(alone=False)
def copies_reduce_alone(rank, world):
    suite = fill(tr.RankingCollection(MIXED), share(BATCHES, rank, world))
    for _ in range(2):
        for name in MIXED:
            for twin in (suite[name].clone(), copy.deepcopy(suite[name]), pickle.loads(pickle.dumps(suite[name]))):
                kept = {"all_gather": 1} if "aggregation" in name else {}
                with exactly(world, all_reduce=1, **kept):
                    assert plain(twin.compute()) == plain(expected(name, BATCHES))
        for twin in (suite.clone(prefix="t/"), pickle.loads(pickle.dumps(suite))):
            with exactly(world, all_reduce=1, all_gather=1):
                values = twin.compute()
            assert plain(values) == plain({key: expected(key.removeprefix("t/"), BATCHES) for key in values})
        suite.compute()
    tracker = MetricTracker(tr.RankingCollection(["mrr", "mr"]))
    for some in (BATCHES, MORE):
        tracker.increment()
        fill(tracker, share(some, rank, world))
        tracker.compute()
    assert plain(tracker.compute_all()["mr"]) == plain(torch.stack([expected("mr", BATCHES), expected("mr", MORE)]))


@scenario
def checkpoints(rank, world):
    """Every worker saves its own state, and goes on with it."""
    suite = fill(tr.RankingCollection(MIXED), share(BATCHES, rank, world))
    suite.persistent(True)
    saved = suite.state_dict()
    suite.compute()
    assert all(torch.equal(a, b) for a, b in zip(suite.state_dict().values(), saved.values()) if isinstance(a, Tensor))
    twin = fill(tr.RankingCollection(MIXED), MORE[:1])
    twin.compute()
    twin.load_state_dict(suite.state_dict())
    fill(twin, share(MORE, rank, world))
    return suite.compute(), {name: value for name, value in twin.compute().items() if "none" not in name}


# ---- trying to break it ----------------------------------------------------------------------------------------------


def seen(names, values, batches):
    for name in names:
        assert plain(values[name]) == plain(expected(name, batches)), name


@scenario(alone=False)
def members_computed_one_by_one_are_reduced_alone(rank, world):
    suite = fill(tr.RankingCollection(SUMMED[:5]), share(BATCHES, rank, world))
    for _ in range(2):
        items = dict(suite.items())
        for name in (*SUMMED[:2], SUMMED[0], *SUMMED[2:5], SUMMED[1]):
            with exactly(world, all_reduce=1):
                assert plain(items[name].compute()) == plain(expected(name, BATCHES))
        seen(SUMMED[:5], suite.compute(), BATCHES)


@scenario(alone=False)
def logged_members_in_any_order(rank, world):
    generator = random.Random(1)
    suite = fill(tr.RankingCollection(MIXED), share(BATCHES, rank, world))
    for _ in range(5):
        names = generator.sample(MIXED, len(MIXED))
        with exactly(world, all_reduce=1, all_gather=1):
            seen(MIXED, {name: LOGGER["logged"](suite[name]) for name in names}, BATCHES)


@scenario(alone=False)
def some_members_only_then_new_data(rank, world):
    """A member computed for early stopping, say: the parts of the others are out of date afterwards."""
    for first in (at_once, one_by_one):
        suite = fill(tr.RankingCollection(SUMMED[:4]), share(BATCHES, rank, world))
        first(suite)
        assert plain(LOGGER["logged"](suite[SUMMED[1]])) == plain(expected(SUMMED[1], BATCHES))
        suite.reset()
        fill(suite, share(MORE, rank, world))
        assert plain(LOGGER["logged"](suite[SUMMED[2]])) == plain(expected(SUMMED[2], MORE))
        fill(suite, share(BATCHES, rank, world, "first empty"))
        data = [*MORE, *BATCHES]
        assert plain(suite[SUMMED[0]].compute()) == plain(expected(SUMMED[0], data))
        seen(SUMMED[:4], {name: LOGGER["logged"](suite[name]) for name in SUMMED[:4]}, data)


@scenario(alone=False)
def updates_between_members(rank, world):
    """On all workers or on one, after a look at the items on all, on one or on none: every value is fresh."""
    for first, looking, updated in itertools.product((at_once, one_by_one), ((), (0,), range(world)), ((), (0,))):
        data = BATCHES[:4]
        suite = fill(tr.RankingCollection(SUMMED[:4]), share(BATCHES[:4], rank, world))
        first(suite)
        for name in (*SUMMED[:4], SUMMED[0], SUMMED[0], SUMMED[2]):
            if rank in looking:
                assert all(metric.num_queries for _, metric in suite.items())
            assert plain(suite[name].compute()) == plain(expected(name, data))
            if rank in (updated or range(world)):
                fill(suite, MORE[:1])
            data += MORE[:1] * (len(updated) or world)
        seen(SUMMED[:4], suite.compute(), data)


@scenario(alone=False, timeout=15)
def one_worker_looks_on(rank, world):
    """Reading and building on one worker need nothing of the others."""
    suite = fill(tr.RankingCollection(SUMMED[:3]), share(BATCHES, rank, world))
    for compute in (LOGGER["logged"], lambda metric: metric.compute()):
        for name in SUMMED[:3]:
            if rank == 0:
                assert suite[name].num_queries == sum(len(preds) for preds, _ in share(BATCHES, rank, world))
                assert repr(suite)
                assert len(suite) == len(list(suite.items())) == len(list(suite.values())) == len(suite.metric_state)
                suite.clone()
                suite.state_dict()
                tr.RankingCollection([suite])
                tr.RankingCollection([suite[name], "map"])
                MetricCollection([suite])
            assert plain(compute(suite[name])) == plain(expected(name, BATCHES))
        with exactly(world, all_reduce=1):
            seen(SUMMED[:3], one_by_one(suite), BATCHES)
        with exactly(world, all_reduce=1):
            seen(SUMMED[:3], suite.compute(), BATCHES)


def rotated(values, rank):
    """The same in another order on each worker."""
    values = list(values)
    return values[rank:] + values[:rank]


@scenario(alone=False, timeout=15)
def members_in_another_order_on_each_worker(rank, world):
    pairs = rotated({"a": "ndcg@2", "b": "mrr", "c": "mrr(aggregation=none)", "d": "mr"}.items(), rank)
    kinds = (
        tr.RankingCollection(dict(pairs)),
        tr.RankingCollection(rotated(MIXED, rank)),
        tr.RankingCollection(
            [MeanAbsoluteError() if x == "mae" else x for x in rotated(["ndcg@2", "mae", "mrr"], rank)]
        ),
        MetricCollection({key: tr.parse(name) for key, name in pairs}),
    )
    for suite in kinds:
        values = fill(suite, share(BATCHES, rank, world)).compute()
        seen_keys = {key: dict(pairs).get(key, key) for key in values if "Error" not in key}
        for key, name in seen_keys.items():
            assert plain(values[key]) == plain(expected(name, BATCHES)), key
    for suite in kinds[:2]:
        with exactly(world, all_reduce=1, all_gather=1):
            values = one_by_one(suite)
        for key in values:
            assert plain(values[key]) == plain(expected(dict(pairs).get(key, key), BATCHES)), key
    stock = fill(MetricCollection([tr.RankingCollection(rotated(SUMMED[:4], rank))]), share(BATCHES, rank, world))
    assert "ndcg@1 on 0; ndcg@2 on 1" in errors_of(stock.compute)  # which computes its members as they come


@scenario(alone=False, timeout=15)
def members_that_differ_raise_on_all_workers(rank, world):
    """For states of any length: another metric, another k, one more, another key, another catalogue."""
    last = rank == world - 1
    many = [f"ndcg@{k}" for k in range(1, 400)]  # more than one message holds
    cases = [
        (["mrr", "ndcg@5"], ["mrr", "ndcg@10"], "ndcg@5 on 0", f"ndcg@10 on {world - 1}"),
        (["mrr"], ["map"], "mrr on 0", f"map on {world - 1}"),
        (["mrr"], ["mrr", "mr"], f"mr on {world - 1}", "only"),
        (["mrr"], ["mrr", *many], f"ndcg@399 on {world - 1}", "only"),
        (["mrr"], ["mrr", MeanAbsoluteError()], f"MeanAbsoluteError: MeanAbsoluteError on {world - 1}", "only"),
        (["mrr"], [tr.MRR(aggregation="none")], "mrr on 0", f"mrr(aggregation=none) on {world - 1}"),
        ({"a": "mrr"}, {"b": "mrr"}, "a: mrr on 0", f"b: mrr on {world - 1}"),
    ]
    messages = []
    for usual, other, *parts in cases:
        suite = fill(tr.RankingCollection(other if last else usual), share(BATCHES, rank, world))
        ways = [suite.compute] if len(parts[0]) > 30 else [suite.compute, lambda: one_by_one(suite)]  # noqa: B023
        for compute in ways:
            messages.append(errors_of(compute))
            assert all(part in messages[-1] for part in parts), messages[-1]
            with exactly(world, all_reduce=1):  # and all can go on
                assert plain(fill(tr.MRR(), share(BATCHES, rank, world)).compute()) == plain(expected("mrr", BATCHES))
    single = fill(tr.NDCG(top_k=10 if last else 5), share(BATCHES, rank, world))
    messages.append(errors_of(single.compute))
    assert "ndcg@5 on 0" in messages[-1]
    coverage = fill(tr.Coverage(num_items=CATALOGUE + last), [(torch.zeros(1, 1, dtype=torch.int64),)])
    messages.append(errors_of(coverage.compute))
    later = fill(tr.RankingCollection(["mrr"]), share(BATCHES, rank, world))
    seen(["mrr"], later.compute(), BATCHES)
    if last:
        later.add_metrics("map")
    messages.append(errors_of(later.compute))
    return messages


@scenario
def states_longer_than_a_message(rank, world):
    suite = fill(tr.RankingCollection([f"ndcg@{k}" for k in range(1, 200)]), share(BATCHES, rank, world))
    with exactly(world, all_reduce=2):
        values = suite.compute()
    lists = [lists_of(seed) for seed in range(12)]
    wide = tr.RankingCollection([tr.Gini(num_items=9000), "recall@3", "recall(aggregation=none)@2"])
    with exactly(world, all_reduce=2, all_gather=1):
        more = fill(wide, share(lists, rank, world)).compute()
    return values, {key: value.round(decimals=6) for key, value in more.items()}


@scenario(alone=False)
def functions_of_one_name_on_one_worker(rank, world):
    """A worker that has made other metrics before counts them, but this is no part of the definition."""

    def build():
        def gain(grade):
            return grade * 2

        return gain

    before = [build() for _ in range(rank)]
    numbered = [tr.DCG(gain=function) for function in before]
    metric = fill(tr.DCG(gain=build()), share(BATCHES, rank, world))
    torch.testing.assert_close(metric.compute(), 2 * expected("dcg", BATCHES))
    assert len(numbered) == rank


@scenario(alone=False)
def outside_the_process_group(rank, world):
    group = dist.new_group([1])
    suite = tr.RankingCollection([tr.MRR(process_group=group), tr.MR(aggregation="none", process_group=group)])
    metrics = [*suite.values(), RetrievalMRR(process_group=group)]
    fill(suite, BATCHES)
    metrics[-1].update(torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), indexes=torch.tensor([0, 0]))
    for compute in [suite.compute, *(metric.compute for metric in metrics)]:
        if rank == 1:
            compute()
        else:
            assert f"process {rank}" in errors_of(compute)
    assert suite["mrr"].num_queries == sum(len(preds) for preds, _ in BATCHES)


@scenario(alone=False)
def standard_errors_of_large_values_add_up(rank, world):
    """Batches of one query, with a weight of 0 or more, whose values differ in the tenth digit."""
    g = torch.Generator().manual_seed(3)
    values = 1e9 + torch.randn(60, 1, generator=g, dtype=torch.float64)
    weights = torch.rand(60, 1, generator=g, dtype=torch.float64)
    batches = [(tr.Ranking.from_scores(torch.zeros(1, 1), v.unsqueeze(0)), w) for v, w in zip(values, weights)]
    metric = tr.CG()
    for ranking, weight in share(batches, rank, world):
        metric.update(ranking, weights=weight)
    with metric.sync_context():
        found = metric.standard_error.item()
    v, w = (values - 1e9).flatten(), weights.flatten()
    m = (w * v).sum() / w.sum()
    wanted = ((w**2 * (v - m) ** 2).sum() * 60 / 59).sqrt() / w.sum()
    assert abs(found / wanted.item() - 1) < 1e-5


@scenario(alone=False)
def a_member_of_an_earlier_collection(rank, world):
    """Metrics outlive the collection that they were computed with, and sit in two at once."""
    first = tr.RankingCollection(SUMMED[:4])
    second = tr.RankingCollection([first[SUMMED[0]], first[SUMMED[1]], "mr"])
    fill(first, share(BATCHES, rank, world))
    fill(second["mr"], share(BATCHES, rank, world))
    for _ in range(2):
        for suite in (first, second):
            for compute in (at_once, one_by_one):
                seen(suite.keys(), compute(suite), BATCHES)
    del first[SUMMED[0]]
    for suite in (second, first):
        for compute in (at_once, one_by_one):
            with exactly(world, all_reduce=1 if compute is at_once or suite is first else 3):
                seen(suite.keys(), compute(suite), BATCHES)


@scenario(alone=False)
def a_collection_that_differs_in_what_is_synced(rank, world):
    """One member already synced by hand while the others are computed."""
    suite = fill(tr.RankingCollection(SUMMED[:4]), share(BATCHES, rank, world))
    suite.compute()
    with suite[SUMMED[0]].sync_context():
        for name in SUMMED[1:4]:
            assert plain(suite[name].compute()) == plain(expected(name, BATCHES))
            assert plain(LOGGER["logged"](suite[name])) == plain(expected(name, BATCHES))
    seen(SUMMED[:4], suite.compute(), BATCHES)


def fuzz(rank, world, seed, partial):
    """The same random walk on every worker; only who has updates differs."""
    generator = random.Random(seed)
    names = [name for name in MIXED if "none" not in name]
    suite, data = tr.RankingCollection(names), []
    actions = [*3 * ["update"], "forward", "bad", "compute", "one", "order", "reset", "clone", "pickle"]
    for step in range(30):
        action = generator.choice(actions)
        if partial and generator.random() < 0.4:
            action = generator.choice(["member", "context", "members"])
        numbers = [generator.choice((0, 0, 1, 2)) for _ in range(world)]
        batches = [[batch(seed * 10000 + step * 100 + 10 * r + n) for n in range(numbers[r])] for r in range(world)]
        order = generator.sample(names, len(names))
        if action in ("update", "forward"):
            for arguments in batches[rank]:
                getattr(suite, action)(*arguments)
            data += [b for part in batches for b in part]
        elif action == "bad":
            if rank == step % world:
                suite.update(*BAD)
            errors_of(suite.compute)
            suite.reset()
            data = []
        elif action == "compute":
            seen(names, suite.compute(), data)
        elif action == "one":
            seen(names, one_by_one(suite), data)
        elif action == "order":
            seen(names, {name: LOGGER["logged"](suite[name]) for name in order}, data)
        elif action == "reset":
            suite.reset()
            data = []
        elif action == "clone":
            suite = suite.clone()
        elif action == "pickle":
            suite = pickle.loads(pickle.dumps(suite))
        elif action == "member":
            assert plain(dict(suite.items())[order[0]].compute()) == plain(expected(order[0], data))
        elif action == "members":
            items = dict(suite.items())
            logged = generator.random() < 0.5
            for name in order[:3]:
                value = LOGGER["logged"](items[name]) if logged else items[name].compute()
                assert plain(value) == plain(expected(name, data))
            items[order[0]].compute()  # ends the row
        elif action == "context":
            metric = dict(suite.items())[order[0]]
            with metric.sync_context():
                assert metric.num_queries == sum(len(preds) for preds, _ in data)
    seen(names, suite.compute(), data)


@scenario(alone=False)
def fuzz_with_whole_collections(rank, world):
    for seed in range(2):
        fuzz(rank, world, seed, partial=False)


@scenario(alone=False)
def fuzz_with_some_members_only(rank, world):
    for seed in range(2):
        fuzz(rank, world, seed, partial=True)


# ---- measures of recommended lists, whose states are as long as the catalogue ----------------------------------------

CATALOGUE = 11
KNOWN = torch.arange(CATALOGUE) % 5


def lists_of(seed):
    """Ids with padding, and the relevant ones; none at all for some seeds."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.stack([torch.randperm(CATALOGUE, generator=generator)[:6] for _ in range(1 + seed % 4)])
    ids[torch.rand(ids.shape, generator=generator) < 0.3] = -1
    return ids, [ids[q, :2][ids[q, :2] >= 0] for q in range(len(ids))]


def beyond_suite():
    exposure = [tr.Coverage(1, num_items=CATALOGUE), tr.Gini(num_items=CATALOGUE), tr.Entropy(4, num_items=CATALOGUE)]
    users = [tr.Popularity(3, interactions=KNOWN), tr.Popularity(3, interactions=KNOWN, aggregation="median")]
    return tr.RankingCollection(
        [*exposure, "recall@3", *users, tr.IntraListDiversity(categories=KNOWN), tr.Serendipity(interactions=KNOWN)]
    )


@scenario
def lists_beyond_accuracy(rank, world):
    batches = [lists_of(seed) for seed in range(12)]
    found = {}
    for how in SHARES:
        suite = fill(beyond_suite(), share(batches, rank, world, how))
        with exactly(world, all_reduce=1, all_gather=1):
            found[how] = {key: round(value.item(), 6) for key, value in suite.compute().items()}
        alone = fill(tr.Gini(num_items=CATALOGUE), share(batches, rank, world, how))
        with exactly(world, all_reduce=1):
            found[how, "alone"] = alone.compute()
        fill(suite, share(batches, rank, world, how))
        found[how, "again"] = suite.compute()["gini"]
    if rank == world - 1:
        alone.update(torch.tensor([[CATALOGUE]]))
    return {str(key): value for key, value in found.items()} | {"error": errors_of(alone.compute)}
