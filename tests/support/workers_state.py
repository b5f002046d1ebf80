"""Scenarios of workers for one metric and one collection: sums, rows, bad values, torchmetrics' arguments, groups."""

import contextlib
import datetime

import torch
import torch.distributed as dist
from torchmetrics import MeanAbsoluteError
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank as tr
from tests.support.workers import (
    AGGREGATIONS,
    BAD,
    BATCHES,
    MORE,
    batch,
    errors_of,
    exactly,
    fill,
    for_each,
    leave,
    near,
    plain,
    scenario,
    share,
)
from torchrank.retrieval import RetrievalMRR

#: Synchronisation is the same code for all measures: one metric for each kind of state.
SUMS = ["ndcg(ties=pessimistic)@3", "mr", "kendalltau", "mr(adjusted=z)", "psp(average=pooled)@3"]
SUMS += ["ips(self_normalized=True)"]
SUMMED = ["ndcg@1", "ndcg@2", "mrr@2", "map", "mr"]
MIXED = ["ndcg@5", "mrr(aggregation=median)", "map(relevance_level=1.5)", "mr", "recall(aggregation=none)@3"]
#: A sum, and values of which the order counts, or does not.
KEPT = [MIXED[0], MIXED[1], MIXED[4]]


def one_by_one(suite):
    """As Lightning's log_dict does it: the items first, and later every metric by itself."""
    items = list(suite.items())
    return {key: metric.compute() for key, metric in items}


def at_once(suite):
    return suite.compute()


WAYS = {"at once": at_once, "one by one": one_by_one}


def cost(compute, names):
    """The collectives of a collection: one together or one a metric, and the same for values that are kept."""
    reduced, kept = len(names), sum("none" in name or "median" in name for name in names)
    reduced, kept = (1, min(kept, 1)) if compute is at_once else (reduced, kept)
    return {"all_reduce": reduced, **({"all_gather": kept} if kept else {})}


# ---- the same numbers ------------------------------------------------------------------------------------------------


@for_each(("uneven", "first empty", "all in one"), of_two=("first empty",))
def single_metrics(rank, world, how):
    values = {}
    sums = map(tr.parse, SUMS if how == "uneven" else SUMS[2:4])
    for metric in [*sums, *(tr.MRR(aggregation=a) for a in AGGREGATIONS)]:
        fill(metric, share(BATCHES, rank, world, how))
        kept = {} if metric.aggregation == "mean" else {"all_gather": 1}
        with exactly(world, all_reduce=1, **kept):
            values[metric.label] = metric.compute()
        with exactly(world, all_reduce=1, **kept):
            assert plain(metric.compute()) == plain(values[metric.label])
        assert metric.num_queries == sum(len(preds) for preds, _ in share(BATCHES, rank, world, how))
    values["both"] = fill(tr.MRR() + tr.NDCG(top_k=3) / 2, share(BATCHES, rank, world, how)).compute()
    return values


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
def other_precision(rank, world):
    suite = tr.RankingCollection(MIXED).to(torch.bfloat16).half()
    torch.set_default_dtype(torch.bfloat16)
    with torch.inference_mode():
        fill(suite, share(BATCHES, rank, world))
        values = suite.compute()
    torch.set_default_dtype(torch.float32)
    return values, fill(suite, share(MORE, rank, world)).compute()["ndcg@5"]


@scenario(alone=False)
def rows_come_by_worker_then_by_time(rank, world):
    metric = tr.MRR(aggregation="none")
    for number in range(3):
        metric.update(tr.Ranking.from_ranks(torch.full((rank + 1,), float(10**number + rank))))
        metric.compute()
    values = [1 / (10**number + r) for r in range(world) for number in range(3) for _ in range(r + 1)]
    near(metric.compute(), torch.tensor(values))


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
        for arguments in share(BATCHES[:6], rank, world):
            values = suite(*arguments)
            assert plain(values["ndcg@5"]) == plain(expected("ndcg@5", [arguments]))
            assert plain(values[MIXED[-1]]) == plain(expected(MIXED[-1], [arguments]))
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
        bad = [value.isnan().item() for v in values[-3:] for value in v.values()]
        assert bad == [False, False, True, True, False, False]
        assert "1 query with NaN" in errors_of(suite.compute)
    return values


@scenario(alone=False)
def no_sync_on_compute(rank, world):
    mine = share(BATCHES, rank, world)
    members = {name: tr.parse(name, sync_on_compute=False) for name in MIXED[:4]}
    suite = fill(tr.RankingCollection({**members, "global": "ndcg@5"}), mine)
    for compute in WAYS.values():
        with exactly(world, all_reduce=1):  # of the only member that is synchronised
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


@scenario
def own_gather(rank, world):
    values, calls = [], []

    def gather(tensor, group=None):
        calls.append(tensor)
        return gather_all_tensors(tensor, group)

    own = {f"own {name}": tr.parse(name, dist_sync_fn=gather) for name in KEPT}
    suite = tr.RankingCollection({**own, **{name: tr.parse(name) for name in KEPT}})
    for compute in WAYS.values():
        fill(suite, share(MORE, rank, world, "last empty"))
        got = compute(suite)
        assert all(plain(got[name]) == plain(got[f"own {name}"]) for name in KEPT)
        values.append({name: v for name, v in got.items() if "none" not in name})
    assert bool(calls) == (world > 1)
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
            near(values["MeanAbsoluteError"], error.compute())
    if rank == 0:  # nobody may answer from a cache
        fill(suite, MORE)
    near(suite.compute()["MeanAbsoluteError"], fill(error, MORE).compute())
    return values


@scenario(alone=False)
def subgroups(rank, world):
    """The first two workers by themselves, beside metrics of all."""
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=300))
    mine = [batch(50 + rank), batch(60 + rank, queries=rank)]
    both = [b for r in (0, 1) for b in (batch(50 + r), batch(60 + r, queries=r))]
    everyone = [b for r in range(world) for b in (batch(50 + r), batch(60 + r, queries=r))]
    names = ["mrr", "ndcg(aggregation=none)", "mr(aggregation=median)"]
    if rank < 2:
        metric = fill(tr.MRR(), mine)
        with metric.sync_context(process_group=group):
            assert metric.num_queries == sum(len(preds) for preds, _ in both)
        assert metric.num_queries == sum(len(preds) for preds, _ in mine)
        suite = fill(tr.RankingCollection([tr.parse(name, process_group=group) for name in names]), mine)
        for compute in WAYS.values():
            with exactly(world, **cost(compute, names)):
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
    for metric in suite.values():
        error = metric.standard_error
        for _ in range(2):
            with metric.sync_context():
                values.append([metric.num_queries, metric.num_empty, metric.standard_error])
                metric.persistent(True)
                values.append(metric.state_dict()[f"{metric.label}:sums"][[2, 3, -1]])  # whole numbers: exact
            assert metric.num_queries == local
            assert plain(metric.standard_error) == plain(error)
        values.append(metric.compute())
    with contextlib.ExitStack() as stack:
        for metric in suite.values():
            stack.enter_context(metric.sync_context())
        values.append([metric.num_queries for metric in suite.values()])
    assert {metric.num_queries for metric in suite.values()} == {local}
    return values, suite.compute()


def all_kinds():
    made = [*map(tr.parse, MIXED), tr.Sliced("mrr", 2), tr.PerQuery("mrr"), tr.Coverage(num_items=9), RetrievalMRR()]
    for metric in made:
        metric.persistent(True)
    return made


def add(metric, batches, start=0):
    """Add batches to a metric of any kind. Queries are numbered from ``start``."""
    for preds, target in batches:
        ids = start + torch.arange(len(preds))
        start += len(preds)
        if isinstance(metric, RetrievalMRR):
            rows = ids[:, None].expand_as(preds).flatten()
            metric.update(preds.flatten(), (target.flatten() > 0).long(), indexes=rows)
        elif isinstance(metric, tr.Coverage):
            metric.update(preds.topk(2).indices)
        elif isinstance(metric, tr.Sliced):
            metric.update(preds, target, slices=torch.arange(len(preds)) % 2)
        elif isinstance(metric, tr.PerQuery):
            metric.update(preds, target, query_ids=ids)
        else:
            metric.update(preds, target)


def results(metric):
    """All results as tensors without an order, rounded where the order of additions counts."""
    found = metric.compute()
    found = found if isinstance(found, dict) else found.compute() if isinstance(found, tr.QueryTable) else {"": found}
    return {key: value.reshape(-1).sort().values.round(decimals=5) for key, value in found.items()}


@scenario(of_two=True)
def a_checkpoint_of_all_workers_loads_into_any_number(rank, world):
    values = []
    for first, second in zip(all_kinds(), all_kinds()):
        add(first, share(BATCHES, rank, world), 1000 * rank)
        saved = first.state_dict(prefix="inner.")
        with first.sync_context():
            saved.update(first.state_dict(prefix="inner."))
        add(second, MORE[:1], 10**6)  # is forgotten
        outer = torch.nn.Module()
        outer.inner = second
        outer.load_state_dict(saved)
        assert plain(results(second)) == plain(results(first))
        add(second, share(MORE, rank, world), 10**5 + 1000 * rank)
        values.append(results(second))
    return values


@scenario(alone=False)
def a_checkpoint_of_one_worker_is_refused_by_the_others(rank, world):
    for first, second, empty in zip(all_kinds(), all_kinds(), all_kinds()):
        add(first, share(BATCHES, rank, world), 1000 * rank)
        box = [first.state_dict(), empty.state_dict()]
        dist.broadcast_object_list(box)
        theirs, nothing = map(dict, box)
        second.load_state_dict(nothing)
        if rank:
            add(second, MORE[:1])
            before = second.state_dict()
            error = errors_of(lambda: second.load_state_dict(theirs), RuntimeError)  # noqa: B023  called at once
            assert f"[worker, of] [{rank}, {world}], got that of [0, {world}]; save it in metric.sync" in error
            assert plain(second.state_dict()) == plain(before)
        else:
            second.load_state_dict(theirs)
        second.load_state_dict(first.state_dict())  # each worker its own
        assert plain(results(second)) == plain(results(first))


@scenario(alone=False)
def a_metric_that_is_not_synchronised_is_the_whole_on_each_worker(rank, world):
    metric, twin = (tr.MRR(sync_on_compute=False) for _ in range(2))
    metric.persistent(True)
    fill(metric, BATCHES[: 1 + rank])
    assert list(metric.state_dict()) == ["mrr:sums"]
    twin.load_state_dict(metric.state_dict())
    assert plain(twin.compute()) == plain(metric.compute()) == plain(expected("mrr", BATCHES[: 1 + rank]))


# ---- long states, names, other groups --------------------------------------------------------------------------------


@scenario
def states_longer_than_a_message(rank, world):
    lists = [lists_of(seed) for seed in range(12)]
    suite = tr.RankingCollection([tr.Coverage(num_items=3000), tr.Gini(num_items=4000), "recall@3"])
    wide = tr.RankingCollection([tr.Gini(num_items=9000), "recall@3", "recall(aggregation=none)@2"])
    with exactly(world, all_reduce=2):
        values = fill(suite, share(lists, rank, world)).compute()
    with exactly(world, all_reduce=2, all_gather=1):
        more = fill(wide, share(lists, rank, world)).compute()
    return [{key: value.round(decimals=6) for key, value in found.items()} for found in (values, more)]


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
    near(metric.compute(), 2 * expected("dcg", BATCHES))
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
    lists = [tr.Coverage(1, num_items=CATALOGUE), tr.Gini(num_items=CATALOGUE), tr.Entropy(4, num_items=CATALOGUE)]
    lists += [tr.Popularity(3, interactions=KNOWN), tr.Popularity(3, interactions=KNOWN, aggregation="median")]
    lists += [tr.IntraListDiversity(categories=KNOWN), tr.Serendipity(interactions=KNOWN)]
    return tr.RankingCollection([*lists, "recall@3"])


@scenario
def lists_beyond_accuracy(rank, world):
    batches = [lists_of(seed) for seed in range(12)]
    found = {}
    for how in ("uneven", "first empty", "all in one"):
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
