"""Scenarios of workers with rows whose queries are in pieces, see workers.py."""

import torch
from torchmetrics import MetricCollection
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank.retrieval as retrieval
from tests.support.workers import errors_of, exactly, few, for_each, plain, scenario, share

ARGUMENTS = {
    "RetrievalMAP": [{}, {"top_k": 3, "aggregation": "median"}],
    "RetrievalMRR": [{}, {"empty_target_action": "skip"}],
    "RetrievalNormalizedDCG": [{}, {"top_k": 4, "aggregation": "max"}],
    "RetrievalPrecision": [{"top_k": 9, "adaptive_k": True}],
    "RetrievalRecall": [{"top_k": 2, "ignore_index": 0}],
    "RetrievalHitRate": [{"top_k": 1}],
    "RetrievalFallOut": [{"top_k": 3}],
    "RetrievalRPrecision": [{"aggregation": "min", "empty_target_action": "pos"}],
    "RetrievalAUROC": [{"top_k": 5}, {"max_fpr": 0.3}],
    "RetrievalPrecisionRecallCurve": [{"max_k": 5}, {"aggregation": "median", "adaptive_k": True}],
    "RetrievalRecallAtFixedPrecision": [{"min_precision": 0.4}],
}
SIX = ["MAP", "MRR", "NormalizedDCG", "Precision", "Recall", "HitRate"]
GATHERED = 2  # collectives of a metric


def rows(seed, count=17, queries=9, first=0):
    """Some rows of some queries, which have rows in other batches too; scores without ties over all batches."""
    generator = torch.Generator().manual_seed(seed)
    preds = torch.rand(count, generator=generator, dtype=torch.float64) - 0.3
    target = torch.randint(0, 2, (count,), generator=generator)
    return preds, target, first + torch.randint(0, queries, (count,), generator=generator)


BATCHES = [rows(seed) for seed in range(12)]


def every_class():
    for name, several in ARGUMENTS.items():
        for arguments in several:
            yield name, arguments, getattr(retrieval, name)(**arguments)


def some_classes():
    """A class with one value for each query, and one with a curve: all others gather rows in the same way."""
    for name in ("RetrievalMAP", "RetrievalPrecisionRecallCurve"):
        arguments = ARGUMENTS[name][1]
        yield name, arguments, getattr(retrieval, name)(**arguments)


def fill(metric, batches):
    for preds, target, indexes in few(batches):
        metric.update(preds, target, indexes=indexes)
    return metric


def cost(world, metrics=1):
    return exactly(world, all_gather=GATHERED * metrics)


@for_each(("uneven", "even", "all in one"))
def retrieval_classes(rank, world, how):
    values = {}
    for name, arguments, metric in every_class() if how == "uneven" else some_classes():
        fill(metric, share(BATCHES, rank, world, how))
        with cost(world):
            values[name, str(arguments)] = metric.compute()
        assert plain(metric.compute()) == plain(values[name, str(arguments)])
    return values


@scenario
def retrieval_collections(rank, world):
    values = []
    for how, count in (("uneven", 12), ("last empty", 1), ("all in one", 12)):
        suite = MetricCollection({name: getattr(retrieval, f"Retrieval{name}")() for name in SIX})
        for number, (preds, target, indexes) in enumerate(share(BATCHES, rank, world, how)):
            if number < count or world == 1:
                suite.update(preds, target, indexes=indexes)
        with cost(world, len(SIX)):  # however many batches there were
            value = suite.compute()
        if count == 12:
            values.append(dict(sorted(value.items())))
    return values


@scenario
def retrieval_of_other_dtypes_on_each_worker(rank, world):
    batches = []
    dtypes = [torch.float64, torch.float32, torch.float16] * 4
    for number, (dtype, first) in enumerate(zip(dtypes, [0, 1000, -(2**40), 2**31] * 3)):
        preds, target, indexes = rows(100 + number, first=first)
        batches.append(((preds * 8).round().to(dtype) / 8, target, indexes))
    values = []
    for how in ("uneven", "first empty"):
        for _, _, metric in some_classes():
            for preds, target, indexes in share(batches, rank, world, how):
                metric.update(preds, target, indexes=indexes)
            values.append(metric.compute())
        graded = retrieval.RetrievalNormalizedDCG()
        for preds, target, indexes in share(batches, rank, world, how):
            graded.update(preds, target * 500, indexes=indexes)
        values.append(graded.compute())
    return values


@scenario
def retrieval_of_nothing(rank, world):
    return [metric.compute() for _, _, metric in every_class()]


@scenario
def retrieval_that_raises_raises_everywhere(rank, world):
    values = []
    for metric, *bad in [
        (retrieval.RetrievalMAP(), [float("nan"), 0.3], [1, 0], [3, 3]),
        (retrieval.RetrievalMRR(empty_target_action="error"), [0.1], [0], [77]),
    ]:
        fill(metric, share(BATCHES, rank, world))
        values.append(metric.compute())
        if rank == world - 1:
            fill(metric, [tuple(map(torch.tensor, bad))])
        values.append(errors_of(metric.compute))
        values.append(errors_of(metric.compute))
        assert not metric._is_synced
        metric.reset()
        values.append(fill(metric, share(BATCHES, rank, world)).compute())
    return values


@scenario(alone=False)
def retrieval_forward_and_the_users_own_gather(rank, world):
    calls = []

    def gather(x, group=None):
        calls.append(x.dtype)
        return gather_all_tensors(x, group)

    metric = retrieval.RetrievalMAP(dist_sync_fn=gather)
    for preds, target, indexes in share(BATCHES, rank, world):
        here = metric(preds, target, indexes=indexes)  # of this worker alone
        alone = retrieval.RetrievalMAP(sync_on_compute=False)
        assert plain(here) == plain(fill(alone, [(preds, target, indexes)]).compute())
    assert not calls
    value = metric.compute()
    assert sorted(map(str, calls)) == ["torch.float64", "torch.int8", "torch.int8"]
    together = fill(retrieval.RetrievalMAP(sync_on_compute=False), BATCHES)
    assert plain(value) == plain(together.compute())
    every_step = retrieval.RetrievalMAP(dist_sync_on_step=True)
    first = share(BATCHES, rank, world, "even")[0]
    value = every_step(first[0], first[1], indexes=first[2])
    firsts = [share(BATCHES, other, world, "even")[0] for other in range(world)]
    assert plain(value) == plain(fill(retrieval.RetrievalMAP(sync_on_compute=False), firsts).compute())
    return value
