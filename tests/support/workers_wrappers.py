"""Scenarios of workers with intervals, slices, bootstraps, tables and reports, see workers.py.

Sums over queries depend on their order in the last of 16 digits. So tables of float64 sums are compared in 11 digits,
and all else to the bit: float32 results, replicates, and tables of single queries.
"""

import copy
import math
from functools import cache

import torch
import torch.distributed as dist

import torchrank as tr
from tests.support.workers import AGGREGATIONS, batch, errors_of, exactly, few, fill, leave, plain, scenario, share
from torchrank.display import Table

SUITE = ["ndcg@3", "mrr", "hitrate@1", "mr(adjusted=z)", "map(empty_target_action=skip)", "psp(average=pooled)@3"]
NAMES = ["new", "old", "none"]  # the last one stays empty


def numbered(seeds):
    """Batches with (scores, grades, ids of queries, slices)."""
    found, start = [], 0
    for seed in seeds:
        scores, grades = batch(seed, queries=2 + 2 * (seed % 5))
        ids = torch.arange(start, start := start + len(scores))
        found.append((scores, grades, ids * 7919 % 1009, ids % 3 - 1))
    return found


BATCHES = numbered(range(6))
BAD = (torch.tensor([[0.1, math.nan]]), torch.tensor([[1, 0]]), torch.tensor([5000]), torch.tensor([0]))


def sliced(**kwargs):
    return tr.Sliced(SUITE, NAMES, **kwargs)


def booted(**kwargs):
    return tr.Bootstrapped(SUITE[:3], replicates=100, seed=3, **kwargs)


def both(**kwargs):
    return tr.Sliced(booted(), NAMES, **kwargs)


def kept(**kwargs):
    return tr.PerQuery([*SUITE, *(tr.MR(aggregation=how) for how in AGGREGATIONS if how != "mean")], **kwargs)


def abstaining(**kwargs):
    return tr.Abstention([*SUITE[:3], SUITE[4]], **kwargs)


def ties(**kwargs):
    return tr.TieReport(SUITE[:3], **kwargs)


def grouped(**kwargs):
    return tr.Grouped([*SUITE[:3], SUITE[4]], "min", **kwargs)


def rectified(**kwargs):
    suite = ["ndcg@3", "mrr", "hitrate@1", "map(empty_target_action=skip)"]
    return tr.Rectified(suite, strata=["even", "odd"], **kwargs)


#: how to make each metric, and the arguments of its update beside scores and grades
KINDS = {
    sliced: ["slices"],
    booted: ["query_ids"],
    both: ["slices", "query_ids"],
    kept: ["query_ids"],
    ties: [],
    abstaining: [],
    rectified: ["human", "judged", "strata"],
    grouped: ["group"],
}
#: where slices alone and replicates alone are no other case than both
EACH = [kind for kind in KINDS if kind not in (sliced, booted)]
COST = {kind: {"all_reduce": 1} for kind in KINDS}
COST |= {kept: {"all_gather": 2}, ties: {"all_reduce": 2}}  # sums and maxima


def options(kind, grades, ids, slices):
    """The arguments of update beside scores and grades."""
    pairs = ids[torch.arange(len(ids)) // 2 * 2]  # a batch has an even number of queries
    known = {"query_ids": ids, "slices": slices, "strata": ids % 2, "group": pairs}
    known |= {"human": grades.roll(1, dims=1), "judged": slices >= 0}
    return {name: known[name] for name in KINDS[kind]}


def add(metric, kind, batches):
    for scores, grades, ids, slices in batches if kind is kept else few(batches):
        metric.update(scores, grades, **options(kind, grades, ids, slices))
    return metric


def rounded(table):
    """The cells of a table, with 11 digits."""
    return digits([list(row.values()) for row in table.rows])


def digits(x, number=11):
    """Numbers with some digits, because the last one depends on which batches are ranked as one."""
    if isinstance(x, dict):
        return {key: digits(one, number) for key, one in x.items()}
    if isinstance(x, list | tuple):
        return [digits(one, number) for one in x]
    return float(f"{x:.{number}g}") if isinstance(x, float) else x


def shown(result):
    """All numbers of a result, without the digits that rounding decides."""
    if isinstance(result, tr.QueryTable):
        return digits([result.to_dict(), result.compute(), [list(row.values()) for row in result.summary().rows]])
    return digits({key: value.item() for key, value in result.items()}, 6)


@cache
def alone(kind, stop=None):
    """The numbers of a process without others."""
    return plain(shown(add(kind(distributed_available_fn=lambda: False), kind, BATCHES[:stop]).compute()))


# ---- the same numbers ------------------------------------------------------------------------------------------------


@scenario
def all_wrappers(rank, world):
    mine, values = share(BATCHES, rank, world, "first empty"), []
    for kind in KINDS:
        metric = add(kind(), kind, mine)
        for _ in range(2):
            with exactly(world, **COST[kind]):
                values.append(shown(metric.compute()))
    return values


def in_one_reduction(world, *calls):
    """The results of calls, each of which takes one collective."""
    found = []
    for call in calls:
        with exactly(world, all_reduce=1):
            found.append(call())
    return [rounded(one) if isinstance(one, Table) else one for one in found]


@scenario
def compared_systems(rank, world):
    mine = share(BATCHES, rank, world, "first empty")
    metric = tr.Compared(["ndcg@3", "mrr", "map(empty_target_action=skip)"], ["a", "b"])
    rectified = tr.Rectified(["ndcg@3", "mrr"], ["a", "b"])
    for scores, grades, ids, _ in mine:
        both = {"a": scores, "b": scores + grades.float() * 0.1}
        metric.update(both, grades)
        rectified.update(both, grades, human=grades.roll(1, dims=1), judged=ids % 3 > 0)
    t_test = lambda: metric.comparison(test="t").table  # noqa: E731 - which needs no SciPy, unlike "tukey"
    values = in_one_reduction(world, metric.compute, t_test, metric.summary)
    metric.anytime = True
    values += in_one_reduction(world, lambda: metric.comparison().table, lambda: metric.decided)
    calls = lambda: rectified.comparison().table, rectified.summary, lambda: rectified.queries_needed(0.5)
    return values + in_one_reduction(world, *calls)


@scenario
def sampled_ranks(rank, world):
    metric, draw = tr.SampledRanks(num_negatives=9, num_items=100), torch.Generator().manual_seed(0)
    scores = [(torch.rand(n, 10, generator=draw) * 20).round() for n in (3, 1, 5, 2, 4, 6)]
    for part in share(scores, rank, world, "uneven"):
        metric.update(part, torch.zeros(len(part), dtype=torch.int64))
    return in_one_reduction(world, metric.compute)


@scenario
def summaries_and_intervals(rank, world):
    mine = share(BATCHES, rank, world, "last empty")
    suite = fill(tr.RankingCollection(SUITE), [arguments[:2] for arguments in mine])
    values = in_one_reduction(world, suite.summary, lambda: suite.summary(anytime=True))
    (found,) = in_one_reduction(world, suite.intervals)
    for key, metric in suite.items():
        (interval,) = in_one_reduction(world, metric.interval)
        assert interval == found[key] or all(map(math.isnan, found[key]))
    queries, whole = suite["mrr"].num_queries, sum(len(arguments[0]) for arguments in BATCHES)
    assert queries == sum(len(arguments[0]) for arguments in mine)  # the state of this worker is back
    assert suite.summary()["queries"][1] == whole
    slices, boot = add(sliced(), sliced, mine), add(booted(), booted, mine)
    of_slices = slices.summary, slices.worst, lambda: slices.difference("new", "old")
    values += in_one_reduction(world, *of_slices, boot.summary, boot.replicates, boot.intervals)
    other = add(booted(), booted, [(-scores, *more) for scores, *more in mine])
    with exactly(world, all_reduce=2):
        values.append(rounded(boot.difference(other)))
    report = add(ties(), ties, mine)
    return [*values, [list(row.values()) for row in report.summary().rows]]


@scenario
def nothing_on_all_workers(rank, world):
    values = []
    for kind in EACH:
        cost = {"all_gather": 1} if kind is kept else COST[kind]  # nobody has rows to gather
        metric = kind()
        with exactly(world, **cost):
            values.append(shown(metric.compute()))
        empty = tuple(x[:0] for x in BATCHES[0])
        values.append(shown(add(metric, kind, [empty] * rank).compute()))
    return values


@scenario
def repeated_queries_count_once(rank, world):
    """torch's DistributedSampler repeats the first queries, so that all workers have the same number."""
    scores, grades, ids = (torch.cat(x)[:31] for x in list(zip(*BATCHES))[:3])
    at = list(torch.utils.data.DistributedSampler(range(len(ids)), world, rank, shuffle=False))
    metric = tr.PerQuery(SUITE)
    for rows in torch.tensor(at).split(5):
        metric.update(scores[rows], grades[rows], query_ids=ids[rows])
    table = metric.compute()
    assert len(table) == len(ids)
    assert world == 1 or world * len(at) > len(ids)  # some are repeated
    whole = tr.RankingCollection([tr.parse(name, distributed_available_fn=lambda: False) for name in SUITE])
    whole.update(scores, grades)
    assert plain(table.compute()) == plain(whole.compute())
    return table.compute()


@scenario(alone=False)
def a_group_on_several_workers_raises_on_all_and_its_kept_values_are_right(rank, world):
    scores, grades, ids = (torch.cat(x)[:30] for x in list(zip(*BATCHES))[:3])
    rows, group = torch.arange(rank, 30, world), torch.arange(30) // 5
    metric, kept_values = tr.Grouped(["mrr", "ndcg@3"]), tr.PerQuery(["mrr", "ndcg@3"])
    metric.update(scores[rows], grades[rows], group=group[rows])
    kept_values.update(scores[rows], grades[rows], query_ids=ids[rows])
    message = errors_of(metric.compute)
    assert "got groups in several ones, or on several workers" in message
    assert message == errors_of(metric.summary)
    table = kept_values.compute().grouped("min", dict(zip(ids.tolist(), group.tolist())))
    whole = tr.Grouped(["mrr", "ndcg@3"], distributed_available_fn=lambda: False)
    whole.update(scores, grades, group=group)
    assert plain(shown(table.compute())) == plain(shown(whole.compute()))
    return [message, shown(table)]


@scenario
def texts_of_all_workers_name_the_queries(rank, world):
    """On one worker ids are integers, another one has longer texts, and one may have no query."""
    values, names = [], [f"q{n}" + "é\0" * (n % 5) for n in range(40)]
    for how in ("uneven", "first empty", "last empty", "all in one"):
        metric, parts = tr.PerQuery(["mrr", "ndcg@3"]), share(BATCHES, rank, world, how)
        metric.update(torch.empty(0, 9), torch.empty(0, 9).long(), query_ids=[])
        for scores, grades, ids, _ in parts:
            here = ids.tolist() if int(ids[0]) % 2 else [names[n % 40] + str(n) for n in ids.tolist()]
            metric.update(scores, grades, query_ids=here)
        if rank in (0, world - 1):  # a repeated one, which each of two workers names in its way
            metric.update(*batch(3, queries=1), query_ids=["4711" if rank else 4711])
        with exactly(world, all_gather=2):
            table = metric.compute()
        assert {type(key) for key in table.ids.tolist()} == {str}
        values.append(shown(table))
    assert all(str(value) == str(values[0]) for value in values)
    return values


@scenario(alone=False)
def an_unknown_name_of_one_worker_raises_on_all(rank, world):
    metric = tr.Sliced("mrr", ["de", "fr"])
    scores, grades = batch(3, queries=2)
    metric.update(scores, grades, slices=["de", "xx" if rank == 0 else None])
    message = errors_of(metric.compute)
    assert "got others for 1 query" in message
    assert ("e.g. 'xx'" in message) == (rank == 0)
    assert metric.num_queries == 2


@scenario
def weights_on_some_workers(rank, world):
    """Rows with and without weights, in float32 and in float64: the widths of messages agree all the same."""
    values = []
    for dtype in (torch.float64, torch.float32):
        metric = tr.PerQuery(["mrr", "ndcg(aggregation=median)@3"], dtype=dtype)
        for number, (scores, grades, ids, _) in enumerate(BATCHES):
            if any(ids is mine[2] for mine in share(BATCHES, rank, world, "last empty")):
                weights = None if number < 3 else ids % 4 / 3
                metric.update(scores, grades, query_ids=ids, weights=weights)
        values.append(shown(metric.compute()))
    return values


# ---- trying to break it ----------------------------------------------------------------------------------------------


@scenario(alone=False)
def bad_values_of_one_worker_raise_in_all_statistics(rank, world):
    mine, messages = share(BATCHES, rank, world), []
    for kind in EACH:
        metric = add(kind(), kind, mine)
        keep, before = copy.deepcopy(metric.metric_state), shown(metric.compute())
        if rank == world - 1:
            add(metric, kind, [BAD])
        messages.append(errors_of(metric.compute))
        assert "1 query with NaN" in messages[-1], messages[-1]
        if hasattr(metric, "summary"):
            assert "1 query with NaN" in errors_of(metric.summary)
        if rank == world - 1:
            for name, value in keep.items():
                setattr(metric, name, value)
        assert plain(shown(metric.compute())) == plain(before), kind.__name__
    suite = fill(tr.RankingCollection(SUITE), [x[:2] for x in ([*mine, BAD] if rank == 0 else mine)])
    messages += [errors_of(call) for call in (suite.summary, suite.intervals, suite["mrr"].interval)]
    return messages


@scenario(alone=False)
def one_id_with_two_values_raises_on_all(rank, world):
    metric = tr.PerQuery("mrr")
    metric.update(torch.tensor([[0.1, 0.2]]), torch.tensor([rank % 2]), query_ids=torch.tensor([77]))
    message = errors_of(metric.compute)
    assert "id 77" in message
    assert "0.5 and 1" in message
    assert metric.num_rows == 1
    metric.reset()
    whole = add(tr.PerQuery("mrr", distributed_available_fn=lambda: False), kept, BATCHES)
    found = add(metric, kept, share(BATCHES, rank, world))
    assert plain(found.compute().compute()) == plain(whole.compute().compute())
    return message


@scenario(alone=False)
def other_statistics_on_one_worker_raise_on_all(rank, world):
    """With states of equal length, or within one message. All can go on."""
    last = rank == world - 1
    makers = [
        (kept, lambda: tr.PerQuery("map" if last else "mrr")),
        (kept, lambda: tr.PerQuery(["map", "mr"] if last else "mrr")),
        (kept, lambda: tr.PerQuery("mrr", dtype=torch.float32 if last else torch.float64)),
        (sliced, lambda: tr.Sliced("mrr", ["a", "b", "c"] if last else ["a", "b", "d"])),
        (sliced, lambda: tr.Sliced("mrr", 4 if last else 3)),
        (booted, lambda: tr.Bootstrapped("mrr", replicates=100, seed=int(last))),
        (ties, lambda: tr.TieReport("mrr" if last else "ndcg")),
        (ties, lambda: tr.TieReport(["mrr", "map"] if last else ["ndcg"])),
    ]
    messages = []
    for kind, make in makers:
        metric = add(make(), kind, share(BATCHES, rank, world))
        messages.append(errors_of(metric.compute))
        assert "Expected" in messages[-1]
    assert plain(shown(add(kept(), kept, share(BATCHES, rank, world)).compute())) == alone(kept)
    return messages


@scenario(alone=False)
def a_group_of_one_worker_has_its_own_statistics(rank, world):
    group = dist.new_group([0])
    if rank == 0:
        for kind in (sliced, kept):
            assert plain(shown(add(kind(process_group=group), kind, BATCHES).compute())) == alone(kind)
        leave(group)


@scenario
def unpadded_samplers_find_their_worker(rank, world):
    metric = tr.PerQuery("mrr")
    scores, grades, ids = (torch.cat(x) for x in list(zip(*BATCHES))[:3])
    data = torch.utils.data.TensorDataset(scores, grades, ids)
    loader = torch.utils.data.DataLoader(data, 4, sampler=tr.UnpaddedSampler(data, shuffle=True))
    for scores, grades, ids in loader:
        metric.update(scores, grades, query_ids=ids)
    if world > 1:
        assert metric.num_rows == len(range(rank, len(data), world))
    return shown(metric.compute())
