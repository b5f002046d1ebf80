"""Values of single queries: the ones that are kept, ids that count once; and a sampler that repeats none."""

import copy
import math
import pickle
import sys

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pandas, polars
from tests.support.random_batches import batch, rng
from torchrank.statistics.intervals import betting_interval, t_quantile

NAN = float("nan")
AGGREGATIONS = ["mean", "geometric", "harmonic", "median", "midpoint", "p5", "min", "max", "none"]


def data(queries=40):
    """Scores with ties, grades with empty queries, and ids in no order."""
    scores, grades = batch(queries=queries, width=8)
    return (scores * 9).round(), grades, torch.randperm(queries, generator=rng()) * 3 + 100


def kept_of(suite, scores, grades, ids, size=7, weights=None, **kwargs):
    metric = tr.PerQuery(suite, **kwargs)
    for at in torch.arange(len(ids)).split(size):
        metric.update(scores[at], grades[at], query_ids=ids[at], weights=None if weights is None else weights[at])
    return metric


def same(one, other):
    assert one.keys() == other.keys()
    for key in one:
        torch.testing.assert_close(one[key], other[key], equal_nan=True, msg=key)


# ---- the values ----------------------------------------------------------------------------------------------------


@cases("weighted", [False, True])
def test_columns_are_the_scores_of_each_metric_in_ascending_order_of_id(weighted):
    scores, grades, ids = data()
    suite = tr.RankingCollection(["ndcg@3", "mrr(empty_target_action=skip)", "mr"], prefix="val/")
    weights = torch.arange(40) % 4 / 3 if weighted else None
    table, order = kept_of(suite, scores, grades, ids, weights=weights).compute(), ids.argsort()
    order = order[weights[order] > 0] if weighted else order
    assert table.ids.tolist() == ids[order].tolist()
    for label, values in suite.score(scores, grades).items():
        np.testing.assert_allclose(table.columns[label], values[order].numpy(), rtol=1e-12)
        assert (table.weights is None) if weights is None else table.weights[label].dtype == np.float64
    better = {"val/ndcg@3": True, "val/mrr(empty_target_action=skip)": True, "val/mr": False}
    assert list(table.higher_is_better.items()) == list(better.items())


@cases("dtype", [torch.float64, torch.float32])
@cases("weighted", [False, True])
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


# ---- ids -----------------------------------------------------------------------------------------------------------


@cases("dtype", [torch.float64, torch.float32])
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


def test_only_rounding_errors_are_no_other_value():
    metric = tr.PerQuery("mrr")
    for rank, weight in ((1000, 1.0), (1000, 1 + 1e-12), (1001, 1.0)):
        weights = torch.tensor([weight], dtype=torch.float64)
        metric.update(tr.Ranking.from_ranks(torch.tensor([float(rank)])), query_ids=torch.tensor([1]), weights=weights)
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
    longest = "a longer id than all others, which come after it in the state"
    twin = of_texts([longest], [49])
    for other in (metric, metric.metric_state):  # the second time all are repeated
        twin.merge_state(other)
    assert twin.num_rows == 2 * len(TEXTS) + 1
    twin.merge_state(of_texts([longest], [49]))
    found = values_by_id(twin)
    assert found.pop(longest) == 0.02
    return found


@cases("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), restored, lambda x: x.half(), merged])
def test_tables_have_the_texts_of_their_queries_after_copies_checkpoints_and_merges(how):
    found = how(of_texts())
    assert (found if isinstance(found, dict) else values_by_id(found)) == WANT
    at_once = tr.PerQuery("mrr")
    at_once.update(tr.Ranking.from_ranks(torch.arange(1.0, 1 + len(TEXTS))), query_ids=np.array(TEXTS, dtype=object))
    assert values_by_id(at_once) == WANT


@cases("order", [1, -1])
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
    saved = {"ids": [ids], "values": [torch.tensor([[1.0], [0.5]], dtype=torch.float64)]}
    saved |= {"weights": [none], "counted": [none.bool()], "sums": torch.zeros_like(metric.sums)}
    metric.load_state_dict({f"{name}:{part}": state for part, state in saved.items()})
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
    for column in (pandas.Series(["q9", "q10"]), polars.Series(["q9", "q10"]), ("q9", "q10")):
        metric = tr.PerQuery("mrr")
        metric.update(tr.Ranking.from_ranks(torch.tensor([2.0, 1.0])), query_ids=column)
        assert values_by_id(metric) == {"q9": 0.5, "q10": 1}
    losses = metric.compute().deltas(of_texts(["q9", "q10"], [3, 0]).compute(), "mrr")
    assert losses.rows[0] == {"id": "q9", "before": 0.5, "after": 0.25, "delta": -0.25}
    assert metric.compute().by({"q9": "x", "q10": "y"})["value"] == [0.5, 1]


@cases(
    ("ids", "error"),
    [
        (None, "Expected query_ids in every update of "),
        (torch.arange(3), "Expected query_ids of shape"),
        (["a"] * 3, "one per query"),
        (torch.zeros(2), "Expected query_ids to be integers"),
        (torch.tensor([True, False]), "Expected query_ids to be integers"),
        ({1, 2}, r"got set; pass list\(query_ids\)$"),
        (torch.ones(2) > 0, r"pass query_ids.long\(\)$"),
        ([1.5, 2.5], "Expected ids to be text, bytes or integers"),
    ],
)
@cases("wrapper", [tr.PerQuery, tr.Bootstrapped])
def test_wrong_ids_are_refused_and_leave_the_state_as_it_is(ids, error, wrapper):
    metric = wrapper("mrr")
    with pytest.raises((TypeError, ValueError), match=error):
        metric.update(torch.rand(2, 2), torch.tensor([0, 1]), query_ids=ids)
    assert str(metric.metric_state) == str(wrapper("mrr").metric_state)


# ---- the state -----------------------------------------------------------------------------------------------------


@cases(("dtype", "weights"), [(torch.float64, 0), (torch.float32, 0), (torch.float32, 1)])
def test_a_query_takes_the_documented_bytes(dtype, weights):
    scores, grades, ids = data()
    given = torch.ones(40) * 2 if weights else None
    metric = kept_of(["mrr", "ndcg@3", "map"], scores, grades, ids, dtype=dtype, weights=given)
    parts = [part for name, parts in metric.metric_state.items() if not name.endswith(":sums") for part in parts]
    size = 4 if dtype == torch.float32 else 8
    assert metric.compute().empty["mrr"].any()  # one byte for each id and value
    assert sum(part.numel() * part.element_size() for part in parts) == 40 * (8 + 3 * size * (1 + weights) + 1 + 3)
    assert next(iter(metric.compute().columns.values())).dtype == (np.float32 if size == 4 else np.float64)


def test_a_function_of_the_user_cannot_synchronise_rows():
    metric = tr.PerQuery("mrr")
    with pytest.raises(ValueError, match="Expected no dist_sync_fn for PerQuery, which gathers rows of different"):
        metric.sync(dist_sync_fn=lambda x, group: [x], distributed_available=lambda: True)


def test_suites_without_a_value_for_each_query_are_refused():
    for suite, error in (
        ([tr.Coverage(num_items=5)], "one value for each query in PerQuery, got .* a Coverage"),
        ([tr.PRCurve(top_k=2)], "one value for each query"),
        ([tr.SampledRanks(num_negatives=2, num_items=9)], "one value .* in PerQuery, got .* a SampledRanks"),
        (["mae"], "one value for each query"),
        ([], "Expected at least one metric"),
    ):
        with pytest.raises(ValueError, match=error):
            tr.PerQuery(suite)
    with pytest.raises(ValueError, match=r"Expected dtype to be torch.float64 or torch.float32, got torch.float16"):
        tr.PerQuery("mrr", dtype=torch.float16)
    with pytest.raises(ValueError, match="Expected the state of another perquery"):
        tr.PerQuery("mrr").merge_state(tr.PerQuery("mrr", dtype=torch.float32))


# ---- results of a table --------------------------------------------------------------------------------------------


def users(seed, count, within=0.1):
    """Values of the queries of some users, 1 to 6 each, which depend on the user; weights; and the users."""
    generator = np.random.default_rng(seed)
    user = np.repeat(np.arange(count), generator.integers(1, 7, count))
    values = generator.normal(0.5, 0.1, count)[user] + generator.normal(0, within, len(user))
    return values, generator.uniform(0.1, 3, len(user)), user


def by_id(keys):
    """Keys of queries whose ids are 0, 1, ..."""
    return dict(enumerate(np.asarray(keys).tolist()))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.xdist_group("statsmodels")  # imported once
def test_clustered_errors_are_those_of_statsmodels(weighted):
    models = pytest.importorskip("statsmodels.regression.linear_model")
    values, weights, user = users(0, 50)
    order = np.random.default_rng(1).permutation(len(values))
    table = tr.QueryTable(order, {"x": values[order]}, {"x": weights[order]} if weighted else None)
    (row,) = table.summary(clusters={n: f"user {user[n]}" for n in range(len(values))}).rows
    model = models.WLS(values, np.ones_like(values), weights=weights if weighted else 1.0)
    # statsmodels' correction is C / (C - 1) * (n - 1) / (n - 1) for a mean
    fit = model.fit(cov_type="cluster", cov_kwds={"groups": user, "use_correction": True}, use_t=True)
    assert row["value"] == pytest.approx(fit.params[0], rel=1e-13)
    assert row["standard error"] == pytest.approx(fit.bse[0], rel=1e-12)
    reach = t_quantile(0.975, 49) * fit.bse[0]
    assert [row["low"], row["high"]] == pytest.approx([row["value"] - reach, row["value"] + reach], rel=1e-12)
    assert [row["low"], row["high"]] == pytest.approx(fit.conf_int()[0], rel=1e-9)


def test_clusters_are_compared_alike_in_summary_and_compare():
    ids = [f"q{n}" for n in range(6)]
    one, other = (tr.QueryTable(ids, {"mrr": np.random.default_rng(seed).random(6)}) for seed in (1, 2))

    def both(clusters):
        by_id = dict(zip(ids, clusters))
        summary = one.summary(clusters=by_id)
        (row,) = tr.compare({"a": one, "b": other}, clusters=by_id).rows
        (plain,) = tr.compare({"a": one.columns["mrr"], "b": other.columns["mrr"]}, clusters=clusters).rows
        assert row.pair.standard_error == plain.pair.standard_error
        return summary["standard error"], row.pair.standard_error

    numbers = both([0, 0, 1, 1, 2, 2])
    assert both([1, 1, "1", "1", ("1",), ("1",)]) == numbers
    assert both([("ann", 1)] * 2 + [("ann", 2)] * 2 + [("bob", 1)] * 2) == numbers
    assert both([0, 1] * 3) != numbers
    for call in (lambda d: one.summary(clusters=d), lambda d: tr.compare({"a": one, "b": other}, clusters=d)):
        for missing in (None, math.nan, [1]):
            with pytest.raises(ValueError, match=r"a number or a tuple, got .* for query 'q3'; leave the query out"):
                call(dict(zip(ids, [1, 1, 2, missing, missing, 3])))
        call(dict(zip(ids, [1, 1, 2, "own", "own", 3])))


def test_clusters_of_single_queries_have_the_plain_error_and_few_clusters_a_note():
    values, weights, _ = users(2, 12)
    table = tr.QueryTable(range(len(values)), {"x": values}, {"x": weights})
    plain, alone = table.summary(), table.summary(clusters=by_id(range(len(values))))
    for name in ("value", "standard error", "queries"):
        assert alone[name] == pytest.approx(plain[name], rel=1e-12)
    for count in (1, 2, 29, 30, len(values)):
        found = table.summary(clusters=by_id(np.arange(len(values)) % count))
        first, *few = found.notes[1:]
        assert first == f"{count} clusters: standard errors and intervals allow for dependence within them"
        assert few == ["fewer than 30 clusters: the standard errors are too small"] * (count < 30)
        assert math.isnan(found["standard error"][0]) == (count == 1)
    assert tr.QueryTable([], {"x": []}).summary(clusters={}).notes[1].startswith("0 clusters")
    with pytest.raises(ValueError, match="Expected level to be a number between 0 and 1"):
        table.summary(level=2)
    with pytest.raises(ValueError, match=r"for every id, got none for .* ids, e\.g\. 1;"):
        table.summary(clusters={0: "a"})
    with pytest.raises(TypeError, match="a dict from id"):
        table.summary(clusters=np.arange(len(values)))


@cases("scale", [1e-3, 1.0])
def test_clustered_errors_depend_on_the_ratios_of_weights_and_not_on_queries_without_a_value(scale):
    values, weights, user = users(7, 12)
    metrics = {how: tr.MRR(aggregation=how) for how in ("mean", "geometric")}
    whole = tr.QueryTable(range(len(values)), dict.fromkeys(metrics, values), dict.fromkeys(metrics, weights), metrics)
    ids, more = range(len(values) + 9), np.append(values, [NAN] * 9)
    scaled = dict.fromkeys(metrics, np.append(weights * scale, np.ones(9)))
    found = tr.QueryTable(ids, dict.fromkeys(metrics, more), scaled, metrics)
    one, other = (table.summary(clusters=by_id(np.append(user, [0] * 9))) for table in (whole, found))
    for column in ("value", "standard error", "low", "high"):
        assert one[column] == pytest.approx(other[column], rel=1e-9)
    nothing = tr.QueryTable(range(4), {"x": [1.0, 0, 1, 0]}, {"x": [0.0] * 4})
    assert all(math.isnan(nothing.summary(clusters=by_id([0, 0, 1, 1]))[column][0]) for column in ("value", "low"))


def test_errors_of_other_means_have_the_slope_of_the_mean_and_other_aggregates_none():
    values, _, user = users(3, 40)
    metrics = {how: tr.MRR(aggregation=how) for how in ("geometric", "harmonic", "median")}
    table = tr.QueryTable(range(len(values)), dict.fromkeys(metrics, values), None, metrics)
    found = dict(zip(metrics, table.summary(clusters=by_id(user)).rows))
    for how, inside, slope in (("geometric", np.log, lambda m: m), ("harmonic", np.reciprocal, lambda m: m**2)):
        (plain,) = tr.QueryTable(range(len(values)), {"x": inside(values)}).summary(clusters=by_id(user)).rows
        assert found[how]["standard error"] == pytest.approx(plain["standard error"] * slope(found[how]["value"]))
    assert math.isnan(found["median"]["standard error"])
    assert found["median"]["value"] == np.sort(values)[(len(values) - 1) // 2]


@cases("how", ["mean", "sum", "geometric", "median"])
def test_queries_without_a_value_change_their_own_counts_only(how):
    values = np.random.default_rng(6).random(30)
    metrics = {"x": tr.MRR(aggregation=how, empty_target_action="skip")}
    few = tr.QueryTable(range(30), {"x": values}, None, metrics)
    more = tr.QueryTable(range(40), {"x": np.append(values, [np.nan] * 10)}, None, metrics)
    (row,), (wanted,) = more.summary().rows, few.summary().rows
    assert row == pytest.approx({**wanted, "queries": 40, "empty": 10}, nan_ok=True, abs=0, rel=1e-12)
    assert more.values() == few.values() == {"x": row["value"]}


def test_medians_and_weighted_means_are_other_results_than_plain_means():
    plain, median = tr.MRR(), tr.MRR(aggregation="median")
    metrics = {"mean": plain, "median": median, "weighted": plain, "mr": tr.MR(inverse=True)}
    columns, weights = dict.fromkeys(metrics, (1.0, 0.5)), dict.fromkeys(metrics, (1.0, 1.0))
    assert tr.QueryTable([1, 2], columns, None, metrics).other_results == ["median", "mr"]
    found = tr.QueryTable([1, 2], columns, weights | {"weighted": (1.0, 2.0)}, metrics)
    assert found.other_results == ["median", "weighted", "mr"]


def test_by_has_a_row_for_each_metric_and_slice():
    generator = np.random.default_rng(4)
    columns = {label: generator.integers(0, 9, 40) / 8 for label in ("mrr", "ndcg@3")}
    table = tr.QueryTable(generator.permutation(100)[:40], columns)
    slices = np.where(table.ids % 2, "odd", "even")
    found = table.by(dict(zip(table.ids.tolist(), slices)))
    assert found["measure"] == ["mrr/even", "mrr/odd", "ndcg@3/even", "ndcg@3/odd"]
    for row in found.rows:
        label, name = row["measure"].split("/")
        part = table.where(slices == name)
        assert len(part) == row["queries"]
        assert row["value"] == pytest.approx(table.columns[label][slices == name].mean())
        assert {**row, "measure": label} == part.summary().rows[part.labels.index(label)]
    with pytest.raises(ValueError, match="Expected bool of shape"):
        table.where(slices)


def test_deltas_are_the_largest_losses_first():
    lower = {"mr": tr.MR()}
    before = tr.QueryTable([1, 2, 3, 4, 5], {"mrr": [0.5, 0.9, 0.4, NAN, 1], "mr": [1, 2, 3, 4, 5]}, None, lower)
    after = tr.QueryTable([5, 3, 2, 4, 9], {"mrr": [0.5, 0.6, 0.1, 1, 0], "mr": [5, 9, 1, 4, 0]}, None, lower)
    found = before.deltas(after, "mrr")
    assert found["id"] == [2, 5, 3]
    assert found["delta"] == pytest.approx([-0.8, -0.5, 0.2])
    assert found["before"] == [0.9, 1, 0.4]
    assert found["after"] == [0.1, 0.5, 0.6]
    assert found.notes == ("mrr, 4 common queries",)
    assert before.deltas(after, "mrr", most=None) == found
    assert before.deltas(after, "mr", most=2)["id"] == [3, 4]  # lower is better; equal values in order of id
    for other, measure, message in (
        (after, "mrrr", "Expected one of mrr, mr, got 'mrrr'; did you mean"),
        ({"mrr": [1.0]}, "mrr", "Expected other to be a QueryTable, got dict; pass PerQuery's compute"),
        (tr.QueryTable([7], {"mrr": [1.0]}), "mrr", "Expected common ids, got none"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            before.deltas(other, measure)


@cases(
    ("arguments", "error"),
    [
        (([1, 2], {"a": [1.0]}), r"Expected a of shape \[2\], one per id, got \[1\]"),
        (([[1, 2]], {"a": [[1.0, 2.0]]}), "Expected a of shape"),
        (([1, 1, 2, 2, 2], {"a": range(5)}), "Expected each id once, got 2 3 times"),
        ((["q", "q"], {"a": [1, 2]}), "Expected each id once, got 'q' 2 times"),
        (([1, 2], {"a": [1, 2]}, None, None, ["x"]), "Expected one group for each of 2 ids, got 1"),
        (([1, 2], {"a": [1, 2], "id": [1, 2]}), "Expected labels of metrics, got 'id', the name of the column of ids"),
        (([1, 2], {"a": [1, 2]}, {"b": [1, 2]}), "Expected weights of a, got none"),
        (([1, 2], {"a": [1, 2]}, {"a": [1, -0.5]}), "Expected finite weights >= 0 for a"),
        (([1, 2], {"a": [1, 2]}, {"a": [1, NAN]}), "Expected finite weights >= 0 for a"),
    ],
)
def test_wrong_tables_are_refused(arguments, error):
    with pytest.raises(ValueError, match=error):
        tr.QueryTable(*arguments)


def test_tables_need_neither_the_default_dtype_nor_the_default_device():
    table = tr.QueryTable(range(1001), {"a": np.arange(1001) / 1001})
    want = table.summary()
    try:
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta"):
            assert table.summary() == want
            assert table.compute()["a"].item() == pytest.approx(500 / 1001)
    finally:
        torch.set_default_dtype(torch.float32)
    assert want["queries"] == [1001]


FRAME = {"qid": list("xxyz"), "score": [0.5, 0.9, 0.3, 0.1], "label": [1, 0, 1, 1], "language": list("aaba")}


def test_a_table_of_a_ranking_has_its_ids_its_groups_and_the_values_of_its_queries():
    ranking = tr.Ranking.from_table(pandas.DataFrame(FRAME), group="language")
    table = tr.QueryTable.of(ranking, ["mrr", "mr", "mr(aggregation=geometric,inverse=True)"])
    assert (table.ids.tolist(), table.columns["mrr"].tolist()) == (["x", "y", "z"], [0.5, 1, 1])
    assert table.groups.tolist() == ["a", "b", "a"]
    assert list(table.higher_is_better.values()) == [True, False, False]
    assert list(table.higher_results_are_better.values()) == [True, False, True]
    plain = tr.QueryTable.of(tr.Ranking.from_table({k: v for k, v in FRAME.items() if k != "language"}), "mrr")
    assert (plain.groups, plain.ids.tolist()) == (None, ["x", "y", "z"])
    with pytest.raises(ValueError, match="Expected a ranking with ids of its queries, got one without; make it by"):
        tr.QueryTable.of(tr.Ranking.from_ranks(torch.tensor([1, 2])), "mrr")
    kept, numbered = tr.PerQuery("mrr"), tr.PerQuery("mrr")
    kept.update(ranking, query_ids=["z", "x", "y"])
    numbered.update(ranking, query_ids=tr.hash_ids(["z", "x", "y"]))
    for metric in (kept, numbered):
        for names in (ranking, ["y", "x", "z"]):
            found = metric.compute().named(names)
            assert dict(zip(found.ids.tolist(), found["mrr"].tolist())) == {"z": 0.5, "x": 1, "y": 1}
            groups = None if found.groups is None else dict(zip(found.ids.tolist(), found.groups.tolist()))
            assert groups == ({"x": "a", "y": "b", "z": "a"} if names is ranking else None)
    assert kept.compute().named(tr.Ranking.from_table({k: FRAME[k] for k in ("qid", "score", "label")})).groups is None
    for metric, missing in ((kept, "'y'"), (numbered, "-?[0-9]+")):
        with pytest.raises(ValueError, match=f"Expected the texts of all ids, got none for {missing} and 1 others"):
            metric.compute().named(["x"])


@cases("weighted", [False, True])
def test_a_table_in_slices_has_columns_of_their_values_and_weights(weighted):
    weights = {"mrr": [1, 2, 3]} if weighted else None
    table = tr.QueryTable([1, 2, 3], {"mrr": [1.0, 0.5, 0.25]}, weights, groups=["a", "b", None])
    found = table.sliced()
    wanted = {"id": [1, 2, 3], "mrr": [1.0, 0.5, 0.25], "mrr/a": [1.0, NAN, NAN], "mrr/b": [NAN, 0.5, NAN]}
    assert repr(found.to_dict()) == repr(wanted)
    assert (found.weights is None) == (not weighted)
    if weighted:
        assert {key: one.tolist() for key, one in found.weights.items()} == {key: [1, 2, 3] for key in found.labels}
    assert found.groups.tolist() == ["a", "b", None]
    assert found.compute()["mrr/b"] == table.by()["value"][1] == 0.5
    with pytest.raises(ValueError, match="Expected a table with groups, got none; pass a dict from id to slice"):
        tr.QueryTable([1], {"mrr": [1.0]}).sliced()
    assert table._repr_html_() == table.summary()._repr_html_()


# ---- confidence sequences ------------------------------------------------------------------------------------------


def test_a_table_has_betting_sequences_of_bounded_measures_and_of_their_differences():
    ranks = np.random.default_rng(0).integers(1, 8, (2, 150))
    columns = [{"mrr": 1 / x, "mr": x * 1.0, "rr": 1 / x} for x in (ranks[0], (ranks[0] + ranks[1]) // 3 + 1)]
    old, new = (tr.QueryTable(range(150), x, None, {"mrr": tr.MRR(), "mr": tr.MR()}) for x in columns)
    single = old.confidence_sequences()
    for level in (0, 2):
        with pytest.raises(ValueError, match="level to be a number between 0 and 1"):
            old.confidence_sequences(level)
    assert single["mrr"] == betting_interval(old.columns["mrr"], 0.95)
    assert all(math.isnan(single[label].low) for label in ("mr", "rr"))  # no bounds; no metric
    turned = new.where(np.arange(150) >= 30)
    found = old.confidence_sequences(0.9, turned)["mrr"]
    d = (new.columns["mrr"] - old.columns["mrr"])[30:]
    assert found == betting_interval(d, 0.9, -1, 1)
    assert found.low < d.mean() < found.high
    weighted = tr.QueryTable(range(150), {"mrr": old.columns["mrr"]}, {"mrr": np.arange(150)}, {"mrr": tr.MRR()})
    assert math.isnan(weighted.confidence_sequences()["mrr"].low)


# ---- other formats -------------------------------------------------------------------------------------------------


@pytest.mark.needs("pandas")
def test_the_values_of_a_measure_are_found_by_any_spelling_of_its_name():
    table = tr.QueryTable(["b", "a"], {"P_5": [0.2, 0.4], "mrr": [1.0, 0.5]})
    assert table["mrr"] is table.columns["mrr"]
    assert table["precision@5"].tolist() == table["P_5"].tolist() == [0.2, 0.4]
    results = tr.evaluate({"q": {"a": 1}, "p": {"a": 1}}, {"bm25": {"q": {"b": 2, "a": 1}}}, "P_5 mrr")
    assert results["bm25"]["mrr"].tolist() == [0.5, 0]
    assert results["bm25"]["P@5"].tolist() == [0.2, 0]
    with pytest.raises(KeyError, match=r"Expected one of 'P_5', 'mrr', got 'mr'; did you mean 'mrr'"):
        table["mr"]
    for use in (iter, list, lambda table: "mrr" in table):  # neither a sequence of queries nor of measures
        with pytest.raises(TypeError, match="iterable"):
            use(table)


def through_pandas(table, _):
    frame = table.to_pandas()
    return tr.QueryTable(frame.index, dict(frame.items())).to_dict()


def through_parquet(table, path):
    pytest.importorskip("pyarrow")
    table.to_parquet(path / "table.parquet")
    return pandas.read_parquet(path / "table.parquet").to_dict("list")


#: what each package reads
FORMATS = {
    "pandas": through_pandas,
    "polars": lambda table, _: table.to_polars().to_dict(as_series=False),
    "pyarrow": lambda table, _: table.to_arrow().to_pydict(),
    "parquet": through_parquet,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_ids_and_the_columns(name, tmp_path, monkeypatch):
    table = tr.QueryTable(["q2", "q1", "q3"], {"mrr": [0.5, NAN, 1.0], "mr": torch.tensor([2.0, 3.0, 1.0])})
    if name in ("polars", "pyarrow"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, name, None)
            with pytest.raises(ImportError, match=f"pip install {name}"):
                FORMATS[name](table, tmp_path)
    if name != "parquet":
        pytest.importorskip(name)
    wanted = {"id": ["q2", "q1", "q3"], "mrr": [0.5, NAN, 1.0], "mr": [2.0, 3.0, 1.0]}
    assert repr(FORMATS[name](table, tmp_path)) == repr(table.to_dict()) == repr(wanted)


def test_clusters_go_by_the_texts_whose_hashes_are_the_ids():
    values, _, user = users(5, 40)
    texts = [f"query {n}" for n in range(len(values))]
    keyed = dict(zip(texts, user.tolist()))
    kept = tr.PerQuery("mrr")
    kept.update(torch.tensor(values).unsqueeze(-1), torch.zeros(len(values), dtype=torch.int64), query_ids=texts)
    hashed = tr.QueryTable(tr.hash_ids(texts), {"x": values})
    assert hashed.summary(clusters=keyed) == tr.QueryTable(texts, {"x": values}).summary(clusters=keyed)
    assert kept.compute().summary(clusters=keyed)["queries"] == [len(values)]


def test_a_number_and_its_text_are_two_slices_and_missing_ones_are_none():
    table = tr.QueryTable([1, 2, 3, 4], {"mrr": [1.0, 0.5, 0.25, 0.125]})
    slices = {1: 1, 2: "1", 3: 2, 4: math.nan}
    with pytest.raises(ValueError, match=r"got (1 and '1'|'1' and 1); pass a dict from id to a text$"):
        table.by(slices)
    found = table.by({key: repr(one) for key, one in slices.items() if key < 4} | {4: None})
    assert (found["measure"], found["value"]) == (["mrr/'1'", "mrr/1", "mrr/2"], [0.5, 1.0, 0.25])
    assert table.by({1: 1, 2: 1, 3: 2, 4: math.nan})["queries"] == [2, 1]
    mixed = table.by({1: 2, 2: "b", 3: 10, 4: "a", "a text": 5})
    assert mixed["measure"] == ["mrr/10", "mrr/2", "mrr/a", "mrr/b"]  # as texts
    assert "3 clusters" in table.summary(clusters={1: 1, 2: "1", 3: 2, 4: 2}).notes[1]
    (row,) = tr.compare({"a": table, "b": table}, clusters={1: 1, 2: "1", 3: 2, 4: 2}).rows
    assert row.pair.n == 4
