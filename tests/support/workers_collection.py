"""Scenarios of workers whose collections are computed member by member, in any order, in part, or by a random walk."""

import itertools
import pickle
import random

import torch
from torchmetrics import MeanAbsoluteError, MetricCollection

import torchrank as tr
from tests.support.workers import BAD, BATCHES, batch, errors_of, exactly, fill, for_each, near, plain, scenario, share
from tests.support.workers_state import CATALOGUE, MIXED, SUMMED, WAYS, cost, expected, one_by_one

NAMES = {"summed": SUMMED, "mixed": MIXED}


@for_each(("uneven", "first empty"), of_two=("uneven",))
def collections(rank, world, how):
    values = {}
    for (kind, names), (way, compute) in itertools.product(NAMES.items(), WAYS.items()):
        suite = fill(tr.RankingCollection(names, prefix="v/"), share(BATCHES, rank, world, how))
        with exactly(world, **cost(compute, names)):
            values[kind, way] = compute(suite)
        with exactly(world, **cost(compute, names)):
            assert plain(compute(suite)) == plain(values[kind, way])
        assert plain(values[kind, way]) == plain(values[kind, "at once"])
    stock = MetricCollection({name: tr.parse(name) for name in MIXED if "." not in name})
    values["stock"] = dict(sorted(fill(stock, share(BATCHES, rank, world, how)).compute().items()))
    with_own = MetricCollection([tr.RankingCollection(SUMMED), MeanAbsoluteError()])
    values["own in stock"] = fill(with_own, share(BATCHES, rank, world, how)).compute()
    del values["own in stock"]["MeanAbsoluteError"]  # whose float32 sums depend on the order
    return values


@scenario(alone=False)
def bad_values_in_collections(rank, world):
    """One metric of many raises; the others have their turn, and everything goes on."""
    names = ["ndcg@5", "mrr(aggregation=median)", "f1", *(f"{one}(empty_target_action=error)" for one in ("map", "mr"))]
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


def seen(names, values, batches):
    for name in names:
        assert plain(values[name]) == plain(expected(name, batches)), name


@scenario(alone=False)
def one_worker_looks_on(rank, world):
    """Reading and building on one worker need nothing of the others."""
    suite = fill(tr.RankingCollection(SUMMED[:3]), share(BATCHES, rank, world))
    for _ in range(2):
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
            assert plain(suite[name].compute()) == plain(expected(name, BATCHES))
        with exactly(world, all_reduce=3):
            seen(SUMMED[:3], one_by_one(suite), BATCHES)
        with exactly(world, all_reduce=1):
            seen(SUMMED[:3], suite.compute(), BATCHES)


def rotated(values, rank):
    """The same in another order on each worker."""
    values = list(values)
    return values[rank:] + values[:rank]


@scenario(alone=False)
def members_in_another_order_on_each_worker(rank, world):
    pairs = rotated({"a": "ndcg@2", "b": "mrr", "c": "mrr(aggregation=none)", "d": "mr"}.items(), rank)
    kinds = (
        tr.RankingCollection(dict(pairs)),
        tr.RankingCollection(rotated(MIXED, rank)),
        tr.RankingCollection(rotated(["ndcg@2", MeanAbsoluteError(), "mrr"], rank)),
        MetricCollection({key: tr.parse(name) for key, name in pairs}),
    )
    for suite in kinds:
        values = fill(suite, share(BATCHES, rank, world)).compute()
        seen_keys = {key: dict(pairs).get(key, key) for key in values if "Error" not in key}
        for key, name in seen_keys.items():
            assert plain(values[key]) == plain(expected(name, BATCHES)), key
        for error in {*values} - {*seen_keys}:
            near(values[error], fill(MeanAbsoluteError(), BATCHES).compute())
    stock = fill(MetricCollection([tr.RankingCollection(rotated(SUMMED[:4], rank))]), share(BATCHES, rank, world))
    assert "ndcg@1 on 0; ndcg@2 on 1" in errors_of(stock.compute)  # which computes its members as they come


@scenario(alone=False)
def members_that_differ_raise_on_all_workers(rank, world):
    """For states of any length: another metric, another k, one more, another key, another catalogue."""
    last = rank == world - 1
    many = [f"ndcg@{k}" for k in range(1, 200)]  # more than one message holds
    cases = [
        (["mrr", "ndcg@5"], ["mrr", "ndcg@10"], "ndcg@5 on 0", f"ndcg@10 on {world - 1}"),
        (["mrr"], ["map"], "mrr on 0", f"map on {world - 1}"),
        (["mrr"], ["mrr", "mr"], f"mr on {world - 1}", "only"),
        (["mrr"], ["mrr", *many], f"ndcg@199 on {world - 1}", "only"),
        (["mrr"], ["mrr", MeanAbsoluteError()], f"MeanAbsoluteError: MeanAbsoluteError on {world - 1}", "only"),
        (["mrr"], [tr.MRR(aggregation="none")], "mrr on 0", f"mrr(aggregation=none) on {world - 1}"),
        ({"a": "mrr"}, {"b": "mrr"}, "a: mrr on 0", f"b: mrr on {world - 1}"),
    ]
    messages = []
    for usual, other, *parts in cases:
        suite = tr.RankingCollection(other if last else usual)
        fill(suite, share(BATCHES, rank, world) if len(suite) < 9 else [])
        messages.append(errors_of(suite.compute))
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


def walk(rank, world, seed):
    """The same random walk on every worker; only who has updates differs."""
    generator = random.Random(seed)
    names = [name for name in MIXED if "none" not in name]
    suite, data = tr.RankingCollection(names), []
    actions = [*3 * ["update"], "forward", "bad", "compute", "one", "order", "reset", "clone", "pickle"]
    for step in range(30):
        action = generator.choice(actions)
        if generator.random() < 0.4:
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
            seen(names, {name: suite[name].compute() for name in order}, data)
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
            for name in order[:3]:
                assert plain(items[name].compute()) == plain(expected(name, data))
        elif action == "context":
            metric = dict(suite.items())[order[0]]
            with metric.sync_context():
                assert metric.num_queries == sum(len(preds) for preds, _ in data)
    seen(names, suite.compute(), data)


@scenario(alone=False)
def random_walks_of_collections(rank, world):
    for seed in range(2):
        walk(rank, world, seed)
