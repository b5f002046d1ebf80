"""Values of single queries: the ones that are kept, ids that count once; and a sampler that repeats none."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pandas
from tests.support.unread import Elsewhere

NAN = float("nan")
AGGREGATIONS = ["mean", "geometric", "harmonic", "median", "midpoint", "min", "max", "none"]


def data(seed=0, queries=40, width=8):
    """Scores with ties, grades with empty queries, and ids in no order."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 9, (queries, width), generator=generator).float()
    grades = torch.randint(0, 3, (queries, width), generator=generator)
    grades[torch.rand(grades.shape, generator=generator) < 0.6] = 0
    grades[3] = 0
    return scores, grades, torch.randperm(queries, generator=generator) * 3 + 100


def kept_of(suite, scores, grades, ids, size=7, weights=None, **kwargs):
    metric = tr.PerQuery(suite, **kwargs)
    for at in torch.arange(len(ids)).split(size):
        metric.update(scores[at], grades[at], query_ids=ids[at], weights=None if weights is None else weights[at])
    return metric


def same(one, other):
    assert one.keys() == other.keys()
    for key in one:
        torch.testing.assert_close(one[key], other[key], equal_nan=True, msg=key)


# ---- the values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_columns_are_the_scores_of_each_metric_in_ascending_order_of_id(weighted):
    scores, grades, ids = data()
    suite = tr.RankingCollection(["ndcg@3", "mrr(empty_target_action=skip)", "mr"], prefix="val/")
    weights = torch.arange(40) % 4 / 3 if weighted else None
    table = kept_of(suite, scores, grades, ids, weights=weights).compute()
    order = ids.argsort()
    order = order if weights is None else order[weights[order] > 0]
    assert table.ids.tolist() == ids[order].tolist()
    for label, values in suite.score(scores, grades).items():
        np.testing.assert_array_equal(table.columns[label], values[order].numpy())
        assert (table.weights is None) if weights is None else table.weights[label].dtype == np.float64
    assert table.labels == ["val/ndcg@3", "val/mrr(empty_target_action=skip)", "val/mr"]
    assert table.higher_is_better == {"val/ndcg@3": True, "val/mrr(empty_target_action=skip)": True, "val/mr": False}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_results_of_a_table_are_those_of_its_suite(weighted, dtype):
    """For every aggregation, measures that are no mean over queries included, and for functions."""
    scores, grades, _ = data()
    suite = tr.RankingCollection(
        [
            *(tr.NDCG(top_k=3, aggregation=how, empty_target_action="skip") for how in AGGREGATIONS),
            tr.MRR(aggregation=spread),
            *("mr(adjusted=z)", "mr(adjusted=index)", "psp(average=pooled)@3", "ips(self_normalized=True)"),
            *("hitrate(filtered=True,average=positive)@2", "mrr(filtered=True,average=positive)"),
        ]
    )
    weights = 0.5 + torch.arange(40) % 4 if weighted else None
    suite.update(scores, grades, weights=weights)
    kept = kept_of(suite, scores, grades, torch.arange(40), weights=weights, dtype=dtype)
    same(kept.compute().compute(), suite.compute())
    assert all(value.dtype == torch.float32 for value in kept.compute().compute().values())
    mine, theirs = kept.compute().summary(), suite.summary()
    for name in ("value", "standard error", "low", "high", "queries", "effective"):
        np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-9 if dtype == torch.float64 else 1e-5)


def spread(values):
    return values.max() - values.min()


def test_measures_of_lists_stand_beside_measures_of_rankings_and_labels_of_minus_100_are_dropped():
    lists = torch.tensor([[0, 1, 2], [2, 3, 4], [1, 0, 3], [4, 3, 0]])
    relevant, ids = torch.tensor([0, -100, 3, 1]), torch.tensor([5, 6, 7, 8])
    novelty = tr.Novelty(interactions=torch.tensor([5, 4, 3, 2, 1]), num_users=9)
    for suite in (["mrr", novelty], [novelty, "mrr"]):
        whole = tr.RankingCollection(suite)
        whole.update(lists, relevant)
        table = kept_of(suite, lists, relevant, ids, size=2).compute()
        assert table.ids.tolist() == [5, 7, 8]
        assert table.columns["mrr"].tolist() == [1, pytest.approx(1 / 3), 0]
        same(table.compute(), whole.compute())


def test_a_flat_layout_has_ids_in_ascending_order_of_index():
    scores, grades, ids = data()
    metric = tr.PerQuery("ndcg@3")
    order = torch.randperm(scores.numel(), generator=torch.Generator().manual_seed(1))
    index = torch.arange(40).repeat_interleave(8)
    metric.update(scores.flatten()[order], grades.flatten()[order], indexes=index[order], query_ids=ids)
    want = kept_of("ndcg@3", scores, grades, ids).compute()
    assert metric.compute().ids.tolist() == want.ids.tolist()
    np.testing.assert_allclose(metric.compute().columns["ndcg@3"], want.columns["ndcg@3"])


def test_batches_without_queries_that_count_are_empty_tables():
    metric = tr.PerQuery(["mrr", "mrr(aggregation=none)"])
    assert math.isnan(metric.compute().compute()["mrr"])
    scores, grades, ids = data()
    metric.update(scores[:0], grades[:0], query_ids=ids[:0])
    metric.update(scores[:2], grades[:2], query_ids=ids[:2], weights=torch.zeros(2))
    metric.update(scores[:2], torch.tensor([-100, -100]), query_ids=ids[:2])
    table = metric.compute()
    assert len(table) == metric.num_rows == 0
    assert table.compute()["mrr(aggregation=none)"].shape == (0,)
    assert "QueryTable of 0 queries" in repr(table)
    metric.update(scores, grades, query_ids=ids)
    assert len(metric.compute()) == 40


# ---- ids -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 3])
def test_queries_that_a_sampler_repeats_count_once(world):
    scores, grades, ids = data(queries=31)
    whole = tr.RankingCollection(["ndcg@3", "mrr", "mrr(aggregation=median)"])
    whole.update(scores, grades)
    total, repeated = tr.PerQuery(whole), copy.deepcopy(whole)
    repeated.reset()
    for rank in range(world):
        at = torch.tensor(list(torch.utils.data.DistributedSampler(ids, world, rank, shuffle=False)))
        total.merge_state(kept_of(whole, scores[at], grades[at], ids[at]))
        repeated.update(scores[at], grades[at])
    assert total.num_rows > len(total.compute()) == 31
    same(total.compute().compute(), whole.compute())
    assert repeated.compute()["mrr"] != whole.compute()["mrr"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_id_with_another_value_or_weight_is_an_error_that_names_it(dtype):
    scores, grades = torch.tensor([[0.2, 0.1], [0.1, 0.2]]), torch.tensor([[1, 0], [1, 0]])
    metric = tr.PerQuery(["hitrate@2", "mrr"], dtype=dtype)
    metric.update(scores, grades, query_ids=torch.tensor([8, 9]))
    metric.update(scores[:1], grades[:1], query_ids=torch.tensor([9]))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"got mrr of 0\.5 and 1 for id 9"):
            metric.compute()
    metric.reset()
    for weight in (1.0, 2.0):
        metric.update(scores[:1], grades[:1], query_ids=torch.tensor([9]), weights=torch.tensor([weight]))
    with pytest.raises(ValueError, match="got weight of 1 and 2 for id 9"):
        metric.compute()
    metric.reset()
    metric.update(scores[:1], grades[:1], query_ids=torch.tensor([9]))
    assert metric.compute().columns["mrr"].tolist() == [1]


def test_only_rounding_errors_are_no_other_value():
    metric = tr.PerQuery("mrr")
    for rank, weight in ((1000, 1.0), (1000, 1 + 1e-12), (1001, 1.0)):
        metric.update(
            tr.Ranking.from_ranks(torch.tensor([float(rank)])),
            query_ids=torch.tensor([1]),
            weights=torch.tensor([weight], dtype=torch.float64),
        )
        if rank == 1000:
            assert metric.compute().columns["mrr"].tolist() == [0.001]
    with pytest.raises(ValueError, match=r"got mrr of 0.001 and 0\.000999001 for id 1"):
        metric.compute()


def test_a_repeated_query_without_a_value_counts_once_and_stays_empty():
    metric = tr.PerQuery("mrr(empty_target_action=skip)")
    for _ in range(2):
        metric.update(torch.rand(2, 2), torch.tensor([[0, 0], [1, 1]]), query_ids=torch.tensor([1, 2]))
    table = metric.compute()
    assert np.isnan(table.columns["mrr(empty_target_action=skip)"]).tolist() == [True, False]
    row = table.summary().rows[0]
    assert (row["value"], row["queries"], row["empty"]) == (1, 2, 1)


def test_texts_are_ids_and_name_the_table():
    names = [f"query-{n}" for n in range(40)]
    scores, grades, _ = data()
    by_text, by_number = tr.PerQuery("mrr"), kept_of("mrr", scores, grades, torch.arange(40)).compute()
    by_text.update(scores, grades, query_ids=names)
    for table in (by_text.compute(), by_text.compute().named(reversed(names))):
        assert table.ids.tolist() == sorted(names)
        found = dict(zip(table.ids.tolist(), table.columns["mrr"]))
        assert [found[name] for name in names] == by_number.columns["mrr"].tolist()
    with pytest.raises(ValueError, match=r"Expected the texts of all ids, got none for .* and 1 others"):
        by_text.compute().named(names[2:])


#: texts that a file can have: of several lengths, without a character, with NUL, and with bytes that are not UTF-8
TEXTS = ["b", "", "a\0", "a", "\x01\x01", "\ue000 ü", "\udc80", "a long id of a query, longer than others", "12", "-3"]


def of_texts(ids=TEXTS, ranks=None, metric=None):
    """A metric updated one query at a time, the n-th with its relevant item at rank n + 1."""
    metric = tr.PerQuery("mrr") if metric is None else metric
    for n, key in zip(ranks or range(len(ids)), ids):
        metric.update(tr.Ranking.from_ranks(torch.tensor([1.0 + n])), query_ids=[key])
    return metric


WANT = {key: 1 / (1 + n) for n, key in enumerate(TEXTS)}


def values_by_id(metric):
    found = metric.compute().to_dict()
    assert found["id"] == sorted(found["id"])
    return dict(zip(found["id"], found["mrr"]))


def restored(metric):
    metric.persistent(True)
    twin = tr.PerQuery("mrr")
    twin.load_state_dict(metric.state_dict())
    return twin


def merged(metric):
    twin = of_texts(["a longer id than all others, which are behind it in the state"], [49])
    for other in (metric, metric.metric_state):  # the second time all are repeated
        twin.merge_state(other)
    assert twin.num_rows == 2 * len(TEXTS) + 1
    twin.merge_state(of_texts(["a longer id than all others, which are behind it in the state"], [49]))
    found = values_by_id(twin)
    assert found.pop("a longer id than all others, which are behind it in the state") == 0.02
    return found


@pytest.mark.parametrize(
    "how", [lambda x: x, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), restored, lambda x: x.half(), merged]
)
def test_tables_have_the_texts_of_their_queries_after_copies_checkpoints_and_merges(how):
    found = how(of_texts())
    assert (found if isinstance(found, dict) else values_by_id(found)) == WANT
    at_once = tr.PerQuery("mrr")
    at_once.update(tr.Ranking.from_ranks(torch.arange(1.0, 1 + len(TEXTS))), query_ids=np.array(TEXTS, dtype=object))
    assert values_by_id(at_once) == WANT


def test_repeated_texts_count_once_and_two_values_of_one_are_named():
    metric = of_texts(["q", "p", "q"], [0, 1, 0])
    assert values_by_id(metric) == {"p": 0.5, "q": 1}
    assert metric.num_rows == 3
    of_texts(["p"], [3], metric)
    with pytest.raises(ValueError, match=r"got mrr of 0\.5 and 0\.25 for id p; give every query"):
        metric.compute()


@pytest.mark.parametrize("order", [1, -1])
def test_integers_among_texts_are_their_decimal_texts_whatever_comes_first(order):
    parts = [("7", 0), (7, 0), (-3, 1), ("x", 2), (b"x", 2), (np.int64(12), 3), (torch.tensor(7), 0)]
    ids, ranks = zip(*parts[::order])
    want = {"7": 1, "-3": 1 / 2, "x": 1 / 3, "12": 1 / 4}
    assert values_by_id(of_texts(ids, ranks)) == want
    at_once = tr.PerQuery("mrr")
    at_once.update(tr.Ranking.from_ranks(torch.tensor(ranks) + 1.0), query_ids=list(ids))
    assert values_by_id(at_once) == want


def test_ids_are_integers_as_long_as_no_query_has_a_text():
    metric = of_texts([7, -3], [0, 1])
    assert (metric.compute().ids.dtype, metric.compute().ids.tolist()) == (np.int64, [-3, 7])
    assert metric.metric_state[f"{metric._state}:ids"][0].shape[1] == 1
    empty = tr.PerQuery("mrr")
    for labels, ids in ((torch.zeros(0, dtype=torch.int64), []), (torch.tensor([-100]), ["a"])):
        empty.update(torch.rand(len(labels), 2), labels, query_ids=ids)
    assert empty.compute().ids.tolist() == []


def test_checkpoints_of_older_versions_load_and_go_on_with_texts():
    """They have the numbers of texts only."""
    metric, ids = tr.PerQuery("mrr"), tr.hash_ids(["q", "p"]).unsqueeze(1)
    name = "perquery(torch.float64): mrr"
    none = torch.ones(2, 0, dtype=torch.float64)
    saved = {f"{name}:ids": [ids], f"{name}:values": [torch.tensor([[1.0], [0.5]], dtype=torch.float64)]}
    saved |= {
        f"{name}:weights": [none],
        f"{name}:counted": [none.bool()],
        f"{name}:sums": torch.zeros_like(metric.sums),
    }
    metric.load_state_dict(saved)
    table = metric.compute()
    assert dict(zip(table.ids.tolist(), table.columns["mrr"])) == dict(zip(ids.flatten().tolist(), (1, 0.5)))
    table = table.named(["p", "q"])
    assert dict(zip(table.ids.tolist(), table.columns["mrr"])) == {"q": 1, "p": 0.5}
    of_texts(["x", "q"], [2, 0], metric)
    assert values_by_id(metric) == {"q": 1, "x": 1 / 3, str(int(ids[1])): 0.5}  # nobody knows the text of the last one
    of_texts(["p"], [1], metric)
    assert values_by_id(metric) == {"q": 1, "x": 1 / 3, "p": 0.5}


def test_texts_of_a_ranking_and_of_columns_name_the_table():
    run = {"q9": {"a": 0.9, "b": 0.5}, "q10": {"a": 0.9, "b": 0.5}}
    metric = tr.PerQuery("mrr")
    metric.update(tr.Ranking.from_run({"q9": {"b": 1}, "q10": {"a": 1}}, run))
    assert values_by_id(metric) == {"q9": 0.5, "q10": 1}
    for column in (pandas.Series(["q9", "q10"]), pytest.importorskip("polars").Series(["q9", "q10"]), ("q9", "q10")):
        metric = tr.PerQuery("mrr")
        metric.update(tr.Ranking.from_ranks(torch.tensor([2.0, 1.0])), query_ids=column)
        assert values_by_id(metric) == {"q9": 0.5, "q10": 1}
    losses = metric.compute().deltas(of_texts(["q9", "q10"], [3, 0]).compute(), "mrr")
    assert losses.rows[0] == {"id": "q9", "before": 0.5, "after": 0.25, "delta": -0.25}
    assert metric.compute().by({"q9": "x", "q10": "y"})["value"] == [0.5, 1]


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        (None, "Expected query_ids in every update of PerQuery"),
        (torch.arange(3), "Expected query_ids of shape"),
        (torch.zeros(2), "Expected query_ids to be integers"),
        (torch.tensor([True, False]), "Expected query_ids to be integers"),
        ({1, 2}, r"got set; pass list\(query_ids\)$"),
        (torch.ones(2) > 0, r"pass query_ids.long\(\)$"),
        ([1.5, 2.5], "Expected ids to be text, bytes or integers"),
    ],
)
def test_wrong_ids_are_refused_and_leave_the_state_as_it_is(ids, error):
    metric = tr.PerQuery("mrr")
    with pytest.raises((TypeError, ValueError), match=error):
        metric.update(torch.rand(2, 2), torch.tensor([0, 1]), query_ids=ids)
    assert metric.num_rows == 0


# ---- the state -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "weights"), [(torch.float64, 0), (torch.float32, 0), (torch.float32, 1)])
def test_a_query_takes_the_documented_bytes(dtype, weights):
    scores, grades, ids = data()
    given = torch.ones(40) * 2 if weights else None
    metric = kept_of(["mrr", "ndcg@3", "map"], scores, grades, ids, dtype=dtype, weights=given)
    parts = [part for name, parts in metric.metric_state.items() if not name.endswith(":sums") for part in parts]
    size = 4 if dtype == torch.float32 else 8
    assert metric.compute().empty["mrr"].any()  # one byte for each id and value
    assert sum(part.numel() * part.element_size() for part in parts) == 40 * (8 + 3 * size * (1 + weights) + 1 + 3)
    assert next(iter(metric.compute().columns.values())).dtype == (np.float32 if size == 4 else np.float64)


def test_rows_that_do_not_count_are_dropped_later_where_values_cannot_be_read():
    """As on an accelerator, beside rows of a CPU."""
    scores, grades, ids = data()
    weights = torch.arange(40) % 3 / 1.0
    want = kept_of(["mrr", "mr"], scores, grades, ids, weights=weights).compute()
    metric = kept_of(["mrr", "mr"], scores[:9], grades[:9], ids[:9], weights=weights[:9])
    metric.merge_state(
        kept_of(["mrr", "mr"], scores[9:].as_subclass(Elsewhere), grades[9:], ids[9:], weights=weights[9:])
    )
    assert metric.num_rows > len(metric.compute()) == len(want)
    equal(metric.compute(), want)


def halves(suite=("mrr", "ndcg@3")):
    scores, grades, ids = data()
    first = kept_of(suite, scores[:25], grades[:25], ids[:25])
    rest = (scores[25:], grades[25:], ids[25:])
    return first, rest, kept_of(suite, scores, grades, ids).compute()


def equal(table, other):
    assert repr(table.to_dict()) == repr(other.to_dict())  # a NaN equals a NaN
    assert table.summary() == other.summary()


def test_a_function_of_the_user_cannot_synchronise_rows():
    metric = halves()[0]
    with pytest.raises(ValueError, match="Expected no dist_sync_fn for PerQuery, which gathers rows of different"):
        metric.sync(dist_sync_fn=lambda x, group: [x], distributed_available=lambda: True)


def test_ids_are_a_list_of_texts_and_not_one_text():
    for ids in ("ab", b"ab"):
        with pytest.raises(
            TypeError, match=r"Expected ids to be a list of texts, got one text, b?'ab'; pass \[b?'ab'\]"
        ):
            tr.hash_ids(ids)


def test_a_state_of_another_suite_is_refused():
    with pytest.raises(ValueError, match="Expected the state of another perquery"):
        tr.PerQuery("mrr").merge_state(tr.PerQuery("map"))
    with pytest.raises(ValueError, match="Expected the state of another perquery"):
        tr.PerQuery("mrr").merge_state(tr.PerQuery("mrr", dtype=torch.float32))


def test_suites_without_a_value_for_each_query_are_refused():
    for suite, error in (
        ([tr.Coverage(num_items=5)], "one value for each query in PerQuery, got .* a Coverage"),
        ([tr.PRCurve(top_k=2)], "one value for each query"),
        (
            [tr.SampledRanks(num_negatives=2, num_items=9)],
            "one value for each query in PerQuery, got .* a SampledRanks",
        ),
        (["mae"], "one value for each query"),
        ([], "Expected at least one metric"),
    ):
        with pytest.raises(ValueError, match=error):
            tr.PerQuery(suite)
    with pytest.raises(ValueError, match=r"Expected dtype to be torch.float64 or torch.float32, got torch.float16"):
        tr.PerQuery("mrr", dtype=torch.float16)


# ---- the sampler -----------------------------------------------------------------------------------------------------


@cases("shuffle", [False, True])
@cases("world", [1, 2, 3, 7])
@cases("size", [0, 1, 5, 12])
def test_every_sample_is_on_one_worker_once(size, world, shuffle):
    samplers = [tr.UnpaddedSampler(range(size), rank, world, shuffle=shuffle) for rank in range(world)]
    parts = [list(sampler) for sampler in samplers]
    assert sorted(n for part in parts for n in part) == list(range(size))
    assert [len(sampler) for sampler in samplers] == [len(part) for part in parts]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    equal = [tr.UnpaddedSampler(size, rank, world, shuffle=shuffle, drop_last=True) for rank in range(world)]
    assert [list(sampler) for sampler in equal] == [part[: size // world] for part in parts]
    assert {len(sampler) for sampler in equal} == {size // world}


@cases("world", [1, 2, 3, 7])
@cases("drop_last", [False, True])
def test_a_sampler_has_the_attributes_of_a_distributed_sampler(monkeypatch, world, drop_last):
    dataset = list("abcdefghijkl")
    names = ("rank", "num_replicas", "dataset", "shuffle", "seed", "drop_last", "epoch")
    samplers = [tr.UnpaddedSampler(dataset, rank, world, drop_last=drop_last) for rank in range(world)]
    for rank, sampler in enumerate(samplers):
        peer = torch.utils.data.DistributedSampler(dataset, world, rank, shuffle=False, drop_last=drop_last)
        assert [getattr(sampler, name) for name in names] == [getattr(peer, name) for name in names]
        assert sampler.num_samples == len([*sampler])
        assert sampler.total_size == sum(len([*one]) for one in samplers)
        assert not drop_last or (sampler.num_samples, sampler.total_size) == (peer.num_samples, peer.total_size)
    of_number = tr.UnpaddedSampler(5)  # its worker is found later
    for name, value in {"is_initialized": True, "get_rank": 1, "get_world_size": 2}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    found = of_number.rank, of_number.num_replicas, of_number.num_samples, of_number.total_size, len(of_number.dataset)
    assert found == (1, 2, 2, 5, 5)


def test_an_epoch_and_a_seed_have_an_order_of_their_own():
    def order(epoch=0, **kwargs):
        sampler = tr.UnpaddedSampler(50, shuffle=True, **kwargs)
        sampler.set_epoch(epoch)
        return tuple(sampler)

    torch.manual_seed(1)
    first = order()
    torch.manual_seed(2)
    assert order() == first
    assert len({first, order(1), order(2), order(seed=1), order(1, seed=1), tuple(range(50))}) == 6


def test_a_sampler_made_before_the_process_group_finds_its_worker_later(monkeypatch):
    whole, even, first, none = (
        tr.UnpaddedSampler(5, rank, **kwargs)
        for rank, kwargs in ((None, {}), (None, {"drop_last": True}), (0, {}), (2, {}))
    )
    assert [*whole] == [*even] == [*first] == [*range(5)]
    for name, value in {"is_initialized": True, "get_rank": 1, "get_world_size": 2}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    assert [[*whole], [*even], [*first]] == [[1, 3], [1, 3], [0, 2, 4]]
    assert [len(whole), len(even), len(first)] == [2, 2, 3]
    with pytest.raises(ValueError, match="Expected rank from 0 to 1 of 2 workers, got 2"):
        list(none)


def test_loaders_of_all_workers_together_are_one_loader():
    scores, grades, ids = data(queries=31)
    dataset = torch.utils.data.TensorDataset(scores, grades, ids)
    metric = tr.PerQuery("mrr")
    for rank in range(3):
        for scores_, grades_, ids_ in torch.utils.data.DataLoader(
            dataset, 4, sampler=tr.UnpaddedSampler(dataset, rank, 3)
        ):
            metric.update(scores_, grades_, query_ids=ids_)
    assert metric.num_rows == 31
    equal(metric.compute(), kept_of("mrr", scores, grades, ids).compute())
    for rank, world in ((3, 3), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="Expected rank from 0"):
            tr.UnpaddedSampler(5, rank, world)


def test_an_id_with_two_values_raises_each_time_it_is_asked_for():
    metric = tr.PerQuery("mrr")
    for label in (0, 1):
        metric.update(torch.tensor([[0.9, 0.1]]), torch.tensor([label]), query_ids=torch.tensor([7]))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Expected one value for each id, got mrr of .* for id 7"):
            metric.compute()
