"""Scenarios of workers whose collections are computed member by member, in any order, in part, or by a random walk."""

import itertools
import pickle
import random

import torch
from torchmetrics import MeanAbsoluteError, MetricCollection

import torchrank as tr
from tests.support.workers import (
    BAD,
    BATCHES,
    MORE,
    batch,
    errors_of,
    exactly,
    fill,
    for_each,
    near,
    plain,
    scenario,
    share,
)
from tests.support.workers_state import (
    CATALOGUE,
    MIXED,
    SUMMED,
    WAYS,
    at_once,
    cost,
    expected,
    one_by_one,
    rounds,
    steps,
)

NAMES = {"summed": SUMMED, "mixed": MIXED}


@for_each(("uneven", "first empty", "last empty", "all in one"), of_two=("uneven",))
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


@scenario
def rounds_of_collections(rank, world):
    names = [name for name in MIXED if "none" not in name]  # whose order is by worker, then by round
    values = [rounds(tr.RankingCollection(names), compute, rank, world) for compute in WAYS.values()]
    assert plain(values[0]) == plain(values[1])
    stock = MetricCollection({name: tr.parse(name) for name in names if "." not in name})
    return values, [dict(sorted(v.items())) for v in rounds(stock, at_once, rank, world)]


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


def seen(names, values, batches):
    for name in names:
        assert plain(values[name]) == plain(expected(name, batches)), name


@scenario(alone=False)
def members_computed_one_by_one_are_reduced_alone(rank, world):
    suite = fill(tr.RankingCollection(SUMMED), share(BATCHES, rank, world))
    for _ in range(2):
        items = dict(suite.items())
        for name in (*SUMMED[:2], SUMMED[0], *SUMMED[2:], SUMMED[1]):
            with exactly(world, all_reduce=1):
                assert plain(items[name].compute()) == plain(expected(name, BATCHES))
        seen(SUMMED, suite.compute(), BATCHES)


@scenario(alone=False)
def logged_members_in_any_order(rank, world):
    generator = random.Random(1)
    suite = fill(tr.RankingCollection(MIXED), share(BATCHES, rank, world))
    for _ in range(4):
        names = generator.sample(MIXED, len(MIXED))
        with exactly(world, **cost(one_by_one, MIXED)):
            seen(MIXED, {name: suite[name].compute() for name in names}, BATCHES)


@scenario(alone=False)
def some_members_only_then_new_data(rank, world):
    """A member computed for early stopping, say: the parts of the others are out of date afterwards."""
    for first in (at_once, one_by_one):
        suite = fill(tr.RankingCollection(SUMMED[:4]), share(BATCHES, rank, world))
        first(suite)
        assert plain(suite[SUMMED[1]].compute()) == plain(expected(SUMMED[1], BATCHES))
        suite.reset()
        fill(suite, share(MORE, rank, world))
        assert plain(suite[SUMMED[2]].compute()) == plain(expected(SUMMED[2], MORE))
        fill(suite, share(BATCHES, rank, world, "first empty"))
        data = [*MORE, *BATCHES]
        assert plain(suite[SUMMED[0]].compute()) == plain(expected(SUMMED[0], data))
        seen(SUMMED[:4], {name: suite[name].compute() for name in SUMMED[:4]}, data)


@scenario(alone=False)
def updates_between_members(rank, world):
    """On all workers or on one, after a look at the items on all, on one or on none: every value is fresh."""
    looks, on_one = ((), (0,), range(world)), ((), (0,))
    for first, looking, updated in (*itertools.product([at_once], looks, on_one), (one_by_one, looks[1], on_one[1])):
        data = BATCHES[:4]
        suite = fill(tr.RankingCollection(SUMMED[:3]), share(BATCHES[:4], rank, world))
        first(suite)
        for name in (*SUMMED[:3], SUMMED[0], SUMMED[0]):
            if rank in looking:
                assert all(metric.num_queries for _, metric in suite.items())
            assert plain(suite[name].compute()) == plain(expected(name, data))
            if rank in (updated or range(world)):
                fill(suite, MORE[:1])
            data += MORE[:1] * (len(updated) or world)
        seen(SUMMED[:3], suite.compute(), data)


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
            with exactly(world, all_reduce=1 if compute is at_once else 3):
                seen(suite.keys(), compute(suite), BATCHES)


@scenario(alone=False)
def a_collection_that_differs_in_what_is_synced(rank, world):
    """One member already synced by hand while the others are computed."""
    suite = fill(tr.RankingCollection(SUMMED[:4]), share(BATCHES, rank, world))
    suite.compute()
    with suite[SUMMED[0]].sync_context():
        for name in SUMMED[1:4]:
            assert plain(suite[name].compute()) == plain(expected(name, BATCHES))
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
def fuzz_with_whole_collections(rank, world):
    for seed in range(2):
        fuzz(rank, world, seed, partial=False)


@scenario(alone=False)
def fuzz_with_some_members_only(rank, world):
    for seed in range(2):
        fuzz(rank, world, seed, partial=True)
