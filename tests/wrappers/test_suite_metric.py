"""Slices beside metrics that are updated with the queries of one slice only, and beside scipy."""

import copy
import itertools
import math
import pickle
from statistics import fmean

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pandas, polars, pyarrow, pyplot, stats
from tests.support.random_batches import batch, rng
from tests.support.unread import Elsewhere
from torchrank.state.sums import SIZE
from torchrank.wrappers import suite_metric
from torchrank.wrappers.suite_metric import poisson_counts

SUITE = ["mrr", "ndcg@3", "mr", "hitrate@1", "map(aggregation=geometric)"]
NAMES = ["new", "old", "none"]


def chosen(queries=40, names=2, seed=2):
    """A slice for each query, some in none."""
    return torch.randint(-1, names, (queries,), generator=rng(seed))


def updated(metric, *args, pieces=1, **given):
    """The metric after an update with a batch in pieces; tensors in ``given`` are cut as well."""
    for part in torch.arange(len(args[0])).tensor_split(pieces):
        metric.update(*(x[part] for x in args), **{key: x[part] for key, x in given.items()})
    return metric


def sliced(scores, grades, slices, names=NAMES, suite=SUITE, **given):
    return updated(tr.Sliced(suite, names), scores, grades, slices=slices, **given)


def same(got, want, tolerance=1e-6):
    assert got.keys() == want.keys()
    for key, value in got.items():
        assert float(value) == pytest.approx(float(want[key]), rel=tolerance, abs=tolerance, nan_ok=True), key


def with_values(parts):
    """Sliced sums of queries with these values, one slice for each list."""
    values = torch.cat([torch.as_tensor(part, dtype=torch.float64) for part in parts])
    slices = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]))
    return sliced(torch.zeros(len(values), 1), values[:, None], slices, len(parts), tr.CG(top_k=1))


def row_of(table):
    (row,) = table.rows
    return row


# ---- values --------------------------------------------------------------------------------------------------------


@cases("kind", ["int", "bool", "overlapping"])
@cases("weighted", [False, True])
def test_each_slice_has_the_value_of_a_suite_updated_with_its_queries(kind, weighted):
    (scores, grades), one = batch(), chosen()
    members = one[:, None] == torch.arange(3)
    if kind == "overlapping":
        members = torch.rand(40, 3, generator=rng(5)) < 0.5
    weights = torch.rand(40, generator=rng(3)) if weighted else torch.ones(40)
    given = {"int": one, "bool": members, "overlapping": members.numpy()}[kind]
    metric = sliced(scores, grades, given, weights=weights, pieces=3)
    want = updated(tr.RankingCollection(SUITE), scores, grades, weights=weights).compute()
    of_slices, estimates = {key: [] for key in want}, metric.estimates()
    for name, inside in zip(NAMES, members.T):
        suite = updated(tr.RankingCollection(SUITE), scores[inside], grades[inside], weights=weights[inside])
        for key, of in of_slices.items():
            want[f"{key}/{name}"] = value = float(suite[key].compute())
            of += [] if math.isnan(value) else [value]
            found = estimates[name][key]
            assert (found.queries, found.empty) == (suite[key].num_queries, suite[key].num_empty)
            assert found.interval == pytest.approx(tuple(suite[key].interval()), rel=1e-6, nan_ok=True)
    same(metric.compute(), want | {f"{key}/macro": fmean(of) for key, of in of_slices.items()})


def test_ignored_labels_and_weights_of_0_do_not_count_in_a_slice():
    scores, labels, slices = torch.rand(20, 5, generator=rng()), torch.arange(20) % 5, torch.arange(20) % 2
    labels[:4], weights = -100, (torch.arange(20) < 16).float()
    metric = sliced(scores, labels, slices, weights=weights, suite="mrr")
    assert metric.estimates()["new"]["mrr"].queries == 6
    same(metric.compute(), sliced(scores[4:16], labels[4:16], slices[4:16], suite="mrr").compute())


def test_measures_of_lists_have_slices():
    lists = torch.arange(60).view(20, 3)
    novelty = tr.Novelty(interactions=torch.arange(1, 61), num_users=100)
    metric = tr.Sliced({"novelty": novelty}, NAMES)
    metric.update(lists, slices=torch.arange(20) % 2)
    for n, name in enumerate(("new", "old")):
        assert float(metric.compute()[f"novelty/{name}"]) == pytest.approx(float(novelty.score(lists)[n::2].mean()))


def test_slices_of_a_bootstrap_equal_the_bootstrap_of_their_queries():
    (scores, grades), slices, ids = batch(), chosen(), torch.arange(40) * 7
    booted = tr.Bootstrapped(["mrr", "mr"], replicates=60, seed=3, level=0.9, method="basic")
    metric = updated(tr.Sliced(booted, NAMES), scores, grades, slices=slices, query_ids=ids, pieces=3)
    for n, name in enumerate(NAMES):
        inside = slices == n
        one = updated(booted.clone(), scores[inside], grades[inside], query_ids=ids[inside])
        want = {"/".join([key.split("/")[0], name, *key.split("/")[1:]]): value for key, value in one.compute().items()}
        same({key: metric.compute()[key] for key in want}, want, 1e-6)
        assert metric.estimates()[name]["mrr"].interval == pytest.approx(one.intervals()["mrr"], nan_ok=True)
    assert booted.num_queries == 0
    high, wider = (table.rows[1]["high"] for table in (metric.summary(), metric.summary(0.99)))
    assert wider > high == pytest.approx(float(metric.compute()["mrr/new/high"]))
    assert all("90 %" in table.notes[0] for table in (metric.difference("new"), metric.worst()))


def test_infinite_numbers_of_one_slice_stay_out_of_the_replicates_of_others():
    harmonic = tr.MRR(top_k=2, aggregation="harmonic")  # 1 / 0 for the last query
    metric = tr.Sliced(tr.Bootstrapped({"mrr": harmonic}, replicates=50), 2)
    scores, labels = torch.tensor([[0.9, 0.1, 0.0]]).expand(3, 3), torch.tensor([0, 1, 2])
    metric.update(scores, labels, slices=torch.tensor([0, 0, 1]), query_ids=torch.arange(3))
    found = metric.compute()
    assert (float(found["mrr"]), float(found["mrr/0"])) == pytest.approx((0, 2 / 3))
    assert (float(found["mrr/0/low"]), float(found["mrr/0/high"])) == pytest.approx((0.5, 1))


# ---- tables --------------------------------------------------------------------------------------------------------


def test_macro_mean_has_the_error_of_a_sum_of_independent_means():
    parts = [torch.rand(n, generator=rng(n), dtype=torch.float64).tolist() for n in (5, 20, 60)]
    row = with_values(parts).summary(0.9).rows[-1]
    variances = [stats.sem(part) ** 2 / 9 for part in parts]
    error = math.sqrt(sum(variances))
    df = sum(variances) ** 2 / sum(v**2 / (len(part) - 1) for v, part in zip(variances, parts))
    reach, value = stats.t.ppf(0.95, df) * error, fmean(map(fmean, parts))
    assert row["measure"] == "cg@1/macro"
    want = {"value": value, "standard error": error, "low": value - reach, "high": value + reach, "queries": 85}
    assert {key: row[key] for key in want} == pytest.approx(want)


def test_macro_mean_of_common_queries_has_an_error_from_a_bootstrap_only():
    (scores, grades), both = batch(queries=200), torch.ones(200, 2, dtype=torch.bool)
    assert math.isnan(sliced(scores, grades, both, 2, "mrr").summary().rows[-1]["standard error"])
    metric = tr.Sliced(tr.Bootstrapped("mrr", replicates=200), 2)
    metric.update(scores, grades, slices=both, query_ids=torch.arange(200))
    whole, *_, macro = metric.summary().rows
    for name in ("value", "standard error", "low", "high"):
        assert macro[name] == pytest.approx(whole[name])


def test_macro_mean_of_slices_without_a_value_has_none_and_a_bootstrap_no_error():
    metric = tr.Sliced(tr.Bootstrapped("mr", replicates=20), 2)
    metric.update(torch.rand(3, 2), torch.zeros(3, 2).int(), slices=torch.tensor([0, 1, 1]), query_ids=torch.arange(3))
    *_, macro = metric.summary().rows
    assert all(math.isnan(macro[name]) for name in ("value", "standard error", "low", "high"))


@cases(("sizes", "other", "level"), [((20, 50), 1, 0.8), ((3, 9, 40), 2, 0.9), ((20, 50, 30), None, 0.95)])
def test_difference_is_the_test_of_welch_in_scipy(sizes, other, level):
    parts = [torch.rand(n, generator=rng(n), dtype=torch.float64).tolist() for n in sizes]
    rest = parts[other] if other else [v for part in parts[1:] for v in part]
    row = row_of(with_values(parts).difference("0", *([str(other)] if other else []), level=level))
    want = stats.ttest_ind(parts[0], rest, equal_var=False)
    ends = want.confidence_interval(level)
    got = row["mean_a"], row["difference"], row["low"], row["high"], row["p"], row["standard error"]
    error = math.hypot(stats.sem(parts[0]), stats.sem(rest))
    expected = (fmean(parts[0]), fmean(parts[0]) - fmean(rest), *ends, want.pvalue, error)
    assert (row["queries_a"], row["queries_b"]) == (sizes[0], len(rest))
    assert got == pytest.approx(expected, rel=1e-6)


@cases("parts", [[[0.1, 0.2, 0.7]], [[0.5] * 30, [1 / 3] * 30], [[0.1] * 1000, [0.7] * 2]])
def test_difference_to_nothing_and_of_constants_has_no_error(parts):
    row = row_of(with_values(parts).difference("0"))
    assert all(math.isnan(row[name]) for name in ("standard error", "low", "high", "p")), row


@cases("scale", [1.0, 1e-9])
def test_a_rest_of_one_query_has_its_value_and_small_values_have_their_error(scale):
    parts = [[0.1 * scale, 0.3 * scale, 0.7 * scale], [0.4 * scale], [0.5 * scale, 0.8 * scale]]
    metric = with_values(parts[:2])
    assert row_of(metric.difference("0"))["mean_b"] == pytest.approx(parts[1][0], rel=1e-6)
    row = row_of(with_values(parts).difference("0", "2"))
    error = math.hypot(stats.sem(parts[0]), stats.sem(parts[2]))
    assert row["standard error"] == pytest.approx(error, rel=1e-6)


def test_slices_with_common_queries_are_compared_by_a_bootstrap_only():
    (scores, grades), members = batch(), torch.tensor([[True, True], [True, False]]).repeat(20, 1)
    with pytest.raises(ValueError, match="got 20 queries in several of all slices"):
        sliced(scores, grades, members, 2, "mrr").difference("0", "1")
    metric = tr.Sliced(tr.Bootstrapped("mrr", replicates=400), 2)
    metric.update(scores, grades, slices=members, query_ids=torch.arange(40))
    row = row_of(metric.difference("0", "1"))
    values = tr.MRR().score(scores, grades)
    halves = values[::2], values[1::2]
    # The whole minus one half is half of the difference of the halves.
    assert row["difference"] == pytest.approx(float(values.mean() - halves[0].mean()))
    want = math.hypot(*(stats.sem(half.numpy()) for half in halves)) / 2
    assert row["standard error"] == pytest.approx(want, rel=0.15)


def test_worst_of_equal_slices_has_the_interval_that_holds_for_all_of_them():
    draws = (torch.randn(20, 50, generator=rng(), dtype=torch.float64) * 0.3 + 0.5).clamp(1e-3, 0.999)
    row, means = row_of(with_values(draws).worst()), draws.mean(1)
    assert (row["slice"], row["value"]) == (str(int(means.argmin())), pytest.approx(float(means.min())))
    ends = stats.ttest_1samp(draws[means.argmin()].numpy(), 0).confidence_interval(1 - 0.05 / 20)
    assert (row["low"], row["high"]) == pytest.approx(tuple(ends))


def test_several_numbers_have_no_best_direction():
    for metric in (tr.Sliced("ndcg mr", 2), tr.Bootstrapped("ndcg mr"), tr.TieReport("ndcg mr")):
        assert metric.higher_is_better is None


def test_worst_slice_of_a_rank_is_the_largest_and_small_slices_can_be_left_out():
    scores, labels = torch.tensor([[0.9, 0.8, 0.1]]).repeat(9, 1), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1, 2])
    metric = sliced(scores, labels, torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2]), 4, ["mr", "mrr"])
    assert metric.worst()["slice"] == ["1", "1"]
    assert metric.worst(min_queries=3)["slice"] == ["2", "2"]
    assert metric.worst(min_queries=3).notes[0].startswith("low and high: 95 % for all 2 slices")
    with pytest.raises(ValueError, match="Expected a slice with 5 queries or more"):
        metric.worst(5)
    with pytest.raises(ValueError, match="min_queries to be an integer"):
        metric.worst(min_queries=None)


# ---- arguments -----------------------------------------------------------------------------------------------------


@cases("names", [["rest"], ["macro"], ["low"], ["a", "a"], [], 0, -1, True, "new", None, 2.0, [""]])
def test_names_that_cannot_be_told_apart_are_an_error(names):
    with pytest.raises(ValueError, match="slice"):
        tr.Sliced("mrr", names)


@cases(
    ("name", "message"),
    [
        ("new", "two different slices"),
        ("odl", "Expected the name of a slice, one of new, old, got 'odl'; did you mean 'old'"),
        (1, "Expected the name of a slice, one of new, old, got 1$"),
    ],
)
def test_a_slice_is_compared_with_another_one_by_its_name(name, message):
    with pytest.raises(ValueError, match=message):
        tr.Sliced("mrr", ["new", "old"]).difference("new", name)


BOOLS, INTS = [(40,), (40, 1, 2), (40, 3), (39, 2)], [(40, 2), (39,), (41,), ()]


@cases("shape, dtype", [((40,), torch.float32), *((x, torch.bool) for x in BOOLS), *((x, torch.int64) for x in INTS)])
def test_wrong_slices_raise_at_once_and_leave_the_state(shape, dtype):
    metric = tr.Sliced("mrr", 2)
    with pytest.raises(TypeError if dtype == torch.float32 else ValueError, match="slices") as caught:
        metric.update(*batch(), slices=torch.zeros(shape, dtype=dtype))
    assert ("for two slices, 0 and 1" in str(caught.value)) == (dtype == torch.bool and len(shape) == 1)
    assert metric.num_queries == 0
    with pytest.raises(ValueError, match="query_ids"):
        tr.Sliced(tr.Bootstrapped("mrr", replicates=5), 2).update(*batch(), slices=chosen())


# ---- wrong calls, and what their errors say ------------------------------------------------------------------------


def obeyed(message, slices, **others):
    """The value of the expression after "pass" in an error message."""
    return eval(message.split("; pass ")[1], {"torch": torch, "slices": slices, **others})


#: three queries with the reciprocal ranks 1, 1/2 and 1
THREE = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.4]]), torch.tensor([0, 1, 1])


@cases(
    ("slices", "meant"),
    [
        *((given, [0, 1, 1]) for given in ((0, 1, 1), [0.0, 1.0, 1.0], torch.tensor([0.0, 1.0, 1.0]))),
        *((given, [1, 1, 1]) for given in ("y", 1)),  # one slice for a batch
    ],
)
def test_the_way_out_of_wrong_slices_works(slices, meant):
    sliced, right = tr.Sliced("mrr", ["x", "y"]), tr.Sliced("mrr", ["x", "y"])
    with pytest.raises(TypeError, match="Expected slices to be names out of") as error:
        sliced.update(*THREE, slices=slices)
    sliced.update(*THREE, slices=obeyed(str(error.value), slices, target=THREE[1]))
    right.update(*THREE, slices=torch.tensor(meant))
    same(sliced.compute(), right.compute())


def series(values):
    return pandas.Series(values)


def test_forgotten_arguments_are_named():
    scores, labels = torch.tensor([[0.9, 0.1]]), torch.tensor([0])
    with pytest.raises(TypeError, match=r"Expected slices .*, got none; pass slices= to every update$"):
        tr.Sliced("mrr", ["x", "y"]).update(scores, labels)
    for wrapper in (tr.PerQuery("mrr"), tr.Bootstrapped("mrr", 2)):
        with pytest.raises(ValueError, match=r"Expected query_ids in every update .*, got none; pass query_ids=, an"):
            wrapper.update(scores, labels)
    with pytest.raises(TypeError, match=r"dict from system to scores, got Tensor; pass {'old': \.\.\., 'new': \.\.\.}"):
        tr.Compared("mrr", ["old", "new"]).update(scores, labels)


def test_what_the_error_of_log_dict_says_can_be_logged():
    scores, labels, zero = torch.tensor([[0.9, 0.1]]), torch.tensor([0]), torch.tensor([0])
    made = {tr.Sliced("mrr", 1): {"slices": zero}, tr.TieReport("mrr"): {}}
    made |= {metric: {"query_ids": zero} for metric in (tr.Bootstrapped("mrr", 2), tr.PerQuery("mrr"))}
    for metric, options in made.items():
        metric.update(scores, labels, **options)
        with pytest.raises(AttributeError, match=f"dict or a collection, got a {type(metric).__name__}") as error:
            metric.items()
        logged = eval(str(error.value).split("self.log_dict(")[1].split(", sync_dist")[0], {"metric": metric})
        assert {type(key) for key in logged} == {str}
        assert all(torch.as_tensor(value).numel() == 1 for value in logged.values())
    with pytest.raises(AttributeError, match=r"got a MRR; log one value with self\.log"):
        tr.MRR().items()
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        tr.MRR().other  # noqa: B018  it raises


def test_a_function_of_the_user_synchronises_a_suite():
    calls = []
    gather = {"dist_sync_fn": lambda state, group=None: calls.append(1) or [state, state]}
    metric = tr.Sliced("mrr", ["x", "y"], **gather, distributed_available_fn=lambda: True)
    metric.update(*THREE, slices=[0, 1, 1])
    assert metric.summary()["queries"][0] == 6
    assert metric.compute()["mrr"] == pytest.approx(2.5 / 3)
    assert (len(calls), metric.num_queries) == (2, 3)


def test_groups_of_a_ranking_are_its_slices():
    rows = {"query": [1, 2, 3, 4], "doc": [7] * 4, "score": [0.5] * 4, "grade": [1, 0, 1, 1], "lang": [3, 4, 3, None]}
    frame = pandas.DataFrame(rows).astype({"lang": "Int64"})
    metric = tr.Sliced("hitrate@1", ["3", "4"])
    metric.update(tr.Ranking.from_table(frame, group="lang"))
    want = {"hitrate@1": 0.75, "hitrate@1/3": 1, "hitrate@1/4": 0, "hitrate@1/macro": 0.5}
    assert {key: value.item() for key, value in metric.compute().items()} == want
    metric = tr.Sliced("hitrate@1", ["3"])
    metric.update(tr.Ranking.from_table(frame, group="lang"))
    with pytest.raises(ValueError, match=r"slices among 3, .* for 1 query, e\.g\. '4'; give Sliced the names of all"):
        metric.compute()
    metric = tr.Sliced("hitrate@1", ["3"])
    metric.update(tr.Ranking.from_table({**rows, "lang": [None] * 4}, group="lang"))
    assert metric.compute()["hitrate@1/3"].isnan()


# ---- names ---------------------------------------------------------------------------------------------------------

TEXTS = {
    "list": list,
    "tuple": tuple,
    "array of texts": lambda names: np.array(names) if None not in names else np.array(names, dtype=object),
    "array of objects": lambda names: np.array(names, dtype=object),
    "pandas": series,
    "pandas with NA": lambda names: pandas.Series(names, dtype="string"),
    "categories": lambda names: pandas.Series(names, dtype=pandas.CategoricalDtype(["de", "fr"])),
    "polars": lambda names: polars.Series(names, dtype=polars.String),
    "arrow": lambda names: pyarrow.chunked_array([names], pyarrow.string()),
}


@cases("given", [["de", "fr", "fr"], ["fr", None, "de"], [None, None, None]])
@cases("kind", [*TEXTS, "positions"])
def test_names_of_slices_are_their_positions(kind, given):
    positions = [None if name is None else ["de", "fr"].index(name) for name in given]
    metric = tr.Sliced("mrr", ["de", "fr"])
    metric.update(*THREE, slices=positions if kind == "positions" else TEXTS[kind](given))
    inside = {name: [value for one, value in zip(given, (1, 0.5, 1)) if one == name] for name in ("de", "fr")}
    means = {name: fmean(of) if of else math.nan for name, of in inside.items()}
    known = [mean for mean in means.values() if not math.isnan(mean)]
    want = {"mrr": 2.5 / 3, "mrr/macro": fmean(known) if known else math.nan}
    same(metric.compute(), want | {f"mrr/{name}": mean for name, mean in means.items()})


@cases(
    ("slices", "example"),
    [(["de", "xx", "xx"], ", e.g. 'xx'"), (["", "yy", "de"], ", e.g. ''"), (torch.tensor([0, 2, 7]), "")],
    ids=str,
)
def test_an_unknown_name_raises_in_results_which_name_it(slices, example):
    metric = tr.Sliced("mrr", ["de", "fr"])
    metric.update(torch.rand(3, 2), torch.zeros(3).long(), slices=slices)
    results = (metric.compute, metric.summary, metric.worst, lambda: metric.difference("de"))
    for result in (*results, copy.deepcopy(metric).compute):
        with pytest.raises(ValueError, match=r"positions from 0 to 1, negative for none, got others") as error:
            result()
        assert str(error.value).endswith(f" for 2 queries{example}; give Sliced the names of all slices")
    metric.reset()  # which forgets the name, too
    metric.update(torch.rand(1, 2), torch.zeros(1).long(), slices=torch.tensor([7]))
    with pytest.raises(ValueError, match="for 1 query; give"):
        metric.compute()


def test_names_of_slices_have_the_device_of_the_scores():
    scores, labels = torch.rand(4, 3), torch.zeros(4).long()
    metric, other = (tr.Sliced(tr.Bootstrapped("mrr", 3), ["x", "y"]) for _ in range(2))
    metric.update(scores.as_subclass(Elsewhere), labels, slices=list("xyxy"), query_ids=torch.arange(4))
    other.update(scores, labels, slices=torch.tensor([0, 1, 0, 1]), query_ids=torch.arange(4))
    same(metric.compute(), other.compute())


# ---- plots ---------------------------------------------------------------------------------------------------------


@cases("booted", [False, True])
def test_a_plot_has_the_interval_of_each_slice(booted):
    suite = ["mrr", "ndcg@3"]
    metric = tr.Sliced(tr.Bootstrapped(suite, 50) if booted else suite, NAMES, prefix="val/")
    metric.update(*batch(), slices=chosen(), query_ids=torch.arange(40))
    _, axes = metric.plot()
    keys = [f"val/{name}{end}" for name in suite for end in ("", "/new", "/old", "/none", "/macro")]
    assert [text.get_text() for text in axes.get_yticklabels()] == keys
    table = metric.summary()
    assert table["measure"] == keys
    (intervals,) = axes.collections
    found = {n: tuple(ends[:, 0]) for n, ends in enumerate(intervals.get_segments()) if len(ends)}
    known = {n: (row["low"], row["high"]) for n, row in enumerate(table.rows) if not math.isnan(row["low"])}
    assert found.keys() == known.keys() == {0, 1, 2, 4, 5, 6, 7, 9}
    assert all(found[n] == pytest.approx(known[n], rel=1e-6) for n in known)
    assert axes.get_xlabel() == "value with its 95 % interval"
    drawn = metric.plot(tr.Sliced.compute(metric))[1]
    assert drawn.get_xlabel() == ("value with its 95 % interval" if booted else "value")
    pyplot.close("all")


# ---- the Poisson bootstrap: counts in plain Python, closed forms, statsmodels --------------------------------------

BITS = 2**64


def booted(suite, scores, grades, ids=None, replicates=50, order=None, pieces=1, weights=None, **given):
    """A bootstrap, updated with the queries in an order and in pieces."""
    metric = tr.Bootstrapped(suite, replicates, **given)
    ids = torch.arange(len(scores)) if ids is None else ids
    order = torch.arange(len(scores)) if order is None else order
    for part in order.tensor_split(pieces):
        cut = None if weights is None else weights[part]
        metric.update(scores[part], grades[part], query_ids=ids[part], weights=cut)
    return metric


def with_values_booted(values, ids=None, replicates=1000, **given):
    """A bootstrap of the mean of these values, >= 0."""
    values = torch.as_tensor(values, dtype=torch.float64)
    return booted(tr.CG(top_k=1), torch.zeros(len(values), 1), values[:, None], ids, replicates, **given)


# ---- counts --------------------------------------------------------------------------------------------------------


def mixed(x):
    """The finalizer of splitmix64 on numbers from 0 to 2^64 - 1, from the paper."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % BITS
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % BITS
    return x ^ (x >> 31)


class SplitMix:
    """The generator splitmix64."""

    def __init__(self, state):
        self.state = state % BITS

    def __call__(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % BITS
        return mixed(self.state)


def drawn(query, seed, replicates):
    """The counts of one query: 16 bits each, read as a signed share of the Poisson distribution."""
    words = SplitMix(SplitMix((query % BITS) ^ SplitMix(seed)())())
    found = []
    for word in (words() for _ in range(-(-replicates // 4))):
        for at in range(4):
            number = (word >> 16 * at) % 2**16
            signed = number - 2**16 if number >= 2**15 else number
            found.append(int(stats.poisson.ppf((signed + 2**15 + 0.5) / 2**16, 1)))
    return found[:replicates]


@cases("seed", [0, 7, -(2**63), 2**63 - 1])
def test_counts_are_those_of_plain_python(seed):
    ids = [0, 1, -5, 2**62, -(2**63)]
    got = poisson_counts(torch.tensor(ids), seed, 30).tolist()
    assert got == [drawn(query, seed, 30) for query in ids]


def test_hashes_of_ids_are_those_of_every_process_and_version():
    wanted = [-7390381631024868802, -5426141060434712860, 2928034821719740069, -7944617457221751129]
    assert tr.hash_ids(["user-7", "", "Ünïcode", b"\xff"]).tolist() == wanted
    assert tr.hash_ids(["12"]).tolist() == tr.hash_ids([12]).tolist()
    many = tr.hash_ids(map(str, range(10000)))
    assert len(many.unique()) == 10000
    assert many.dtype == torch.int64
    assert tr.hash_ids([]).shape == (0,)
    texts, numbers = (tr.Bootstrapped("mrr", 9) for _ in range(2))
    texts.update(*THREE, query_ids=list("abc"))
    numbers.update(*THREE, query_ids=tr.hash_ids("abc"[n] for n in range(3)))
    assert torch.equal(texts.sums, numbers.sums)
    for wrong in (1.5, None, True):
        with pytest.raises(TypeError, match="Expected ids to be text"):
            tr.hash_ids([wrong])
    for text in ("ab", b"ab"):
        with pytest.raises(TypeError, match=r"to be a list of texts, got one text, b?'ab'; pass \[b?'ab'\]"):
            tr.hash_ids(text)


# ---- replicates ----------------------------------------------------------------------------------------------------

MEASURES = ["mrr", "ndcg@3", "mr", "dcg(gain=exponential)", "map(aggregation=geometric)", "mr(inverse=True)"]
MEASURES += ["mrr(adjusted=index)"]


@cases("weighted", [False, True])
def test_each_replicate_is_the_metric_with_counts_as_weights(weighted):
    scores, grades = batch()
    ids = torch.randint(-(2**62), 2**62, (40,), generator=rng(4))
    weights = torch.rand(40, generator=rng(5), dtype=torch.float64) if weighted else torch.ones(40)
    counts = torch.tensor([drawn(query, 9, 12) for query in ids.tolist()])
    found = booted(MEASURES, scores, grades, ids, 12, weights=weights, seed=9, pieces=3).replicates()
    for b in range(12):
        suite = tr.RankingCollection(MEASURES)
        suite.update(scores, grades, weights=weights * counts[:, b])
        for key, value in suite.compute().items():
            assert float(found[key][b]) == pytest.approx(float(value), rel=1e-6), (key, b)


@cases("scale", [None, 1e-3, 1e4])
def test_replicates_have_the_same_bits_in_every_order_and_split(scale):
    scores, grades = batch(queries=300)
    ids = torch.randint(0, 200, (300,), generator=rng(3))
    weights = scale and scale * torch.rand(300, generator=rng(4), dtype=torch.float64)
    suite = ["mrr", "mr", "dcg(gain=exponential)", "ndcg(empty_target_action=skip)", "map(aggregation=geometric)"]
    states = []
    for pieces, order in itertools.product((1, 7), (None, torch.randperm(300, generator=rng(5)))):
        metric = booted(suite, scores, grades, ids, order=order, pieces=pieces, weights=weights)
        states.append(metric.sums[len(metric.metrics) * SIZE :])
    half, rest = (
        booted(suite, scores, grades, ids, order=order, weights=weights) for order in torch.arange(300).split([90, 210])
    )
    half.merge_state(rest)
    states.append(half.sums[len(half.metrics) * SIZE :])
    assert states[0].abs().sum() > 0
    assert all(torch.equal(states[0], other) for other in states[1:])


@pytest.mark.parametrize(("most", "sizes"), [(2**18, [9]), (36, [3, 3, 3]), (1, [1] * 9)])
def test_counts_are_drawn_for_some_queries_at_a_time_or_for_one(monkeypatch, most, sizes):
    values, drawn = torch.rand(9, generator=rng(), dtype=torch.float64), []
    want = with_values_booted(values, replicates=12).sums
    monkeypatch.setattr(suite_metric, "MOST_COUNTS", most)
    counts = suite_metric.poisson_counts
    monkeypatch.setattr(suite_metric, "poisson_counts", lambda ids, *x: drawn.append(len(ids)) or counts(ids, *x))
    assert torch.equal(with_values_booted(values, replicates=12).sums, want)
    assert drawn == sizes


def test_replicates_that_drew_nothing_are_left_out():
    metric = with_values_booted([1.0, 3.0], replicates=400)
    replicates = metric.replicates()["cg@1"]
    empty = [a + b == 0 for a, b in zip(drawn(0, 0, 400), drawn(1, 0, 400))]
    assert sum(empty) > 20
    assert replicates.isnan().tolist() == empty
    assert metric.intervals()["cg@1"] == (1.0, 3.0)
    assert row_of(metric.summary())["standard error"] == pytest.approx(float(replicates[~replicates.isnan()].std()))


# ---- intervals -----------------------------------------------------------------------------------------------------


def test_intervals_are_percentiles_their_mirror_images_and_normal_quantiles():
    level = 0.8
    values = torch.rand(60, generator=rng(), dtype=torch.float64) ** 3
    metric = with_values_booted(values, level=level)
    replicates, value = metric.replicates()["cg@1"].numpy(), float(values.mean())
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    reach = stats.norm.ppf((1 + level) / 2) * replicates.std(ddof=1)
    want = {"percentile": (low, high), "basic": (2 * value - high, 2 * value - low)}
    want["se"] = value - reach, value + reach
    for method, ends in want.items():
        assert metric.intervals(method=method)["cg@1"] == pytest.approx(ends)
        one = with_values_booted(values, level=level, method=method)
        found = one.compute()
        assert [float(found[f"cg@1/{end}"]) for end in ("low", "high")] == pytest.approx(ends, rel=1e-6)
        row = row_of(one.summary())
        assert (row["low"], row["high"]) == pytest.approx(ends)
        assert (row["value"], row["standard error"]) == pytest.approx((value, replicates.std(ddof=1)), rel=1e-6)
    assert metric.intervals(0.5)["cg@1"] == pytest.approx(tuple(np.quantile(replicates, [0.25, 0.75])))
    for method in ("t", "wilson"):
        with pytest.raises(ValueError, match="method"):
            metric.intervals(method=method)
    for wrong in (0, 1, "a"):
        with pytest.raises(ValueError, match="level"):
            metric.intervals(wrong)


@pytest.mark.xdist_group("statsmodels")  # imported once
def test_ids_of_users_give_the_error_of_clusters():
    api = pytest.importorskip("statsmodels.regression.linear_model")
    generator = rng(2)
    sizes = torch.randint(1, 15, (60,), generator=generator)
    user = torch.arange(60).repeat_interleave(sizes)
    level = torch.rand(60, generator=generator, dtype=torch.float64)[user]
    values = level + 0.1 * torch.rand(len(user), generator=generator, dtype=torch.float64)
    fit = api.OLS(values.numpy(), np.ones(len(user))).fit(cov_type="cluster", cov_kwds={"groups": user.numpy()})
    order = torch.randperm(len(user), generator=generator)  # queries of a user are in several batches
    error = row_of(with_values_booted(values, user, order=order, pieces=6).summary())["standard error"]
    naive = stats.sem(values.numpy())
    assert error == pytest.approx(fit.bse[0], rel=0.1)
    assert error > 1.8 * naive


@cases("values", [[], [0.3], [0.7] * 30])
def test_no_spread_has_no_interval(values):
    metric = with_values_booted(values, replicates=100)
    assert all(map(math.isnan, metric.intervals()["cg@1"]))
    row = row_of(metric.summary())
    assert math.isnan(row["standard error"])
    assert row["queries"] == len(values)


# ---- two models ----------------------------------------------------------------------------------------------------


def two_models(queries=400, **given):
    """Values of two models that differ little beside their spread over queries."""
    base = torch.rand(queries, generator=rng(), dtype=torch.float64)
    values = base + 0.5, base + 0.52 + 0.1 * torch.rand(queries, generator=rng(1), dtype=torch.float64)
    return values, [with_values_booted(each, **given) for each in values]


def test_difference_is_paired_by_ids_also_if_models_are_evaluated_apart():
    values, (one, _) = two_models()
    order = torch.randperm(400, generator=rng(3))
    other = with_values_booted(values[1], order=order, pieces=3)
    row = row_of(one.difference(pickle.loads(pickle.dumps(other))))
    apart = (values[0] - values[1]).numpy()
    assert (row["mean_a"], row["mean_b"]) == pytest.approx((float(values[0].mean()), float(values[1].mean())), rel=1e-6)
    assert row["difference"] == pytest.approx(apart.mean(), rel=1e-6)
    assert row["standard error"] == pytest.approx(stats.sem(apart), rel=0.1)
    assert row["standard error"] < 0.2 * math.hypot(*(stats.sem(each.numpy()) for each in values))
    ends = stats.ttest_1samp(apart, 0).confidence_interval()
    assert (row["low"], row["high"]) == pytest.approx(tuple(ends), rel=0.05)
    p = 2 * (1 + int((one.replicates()["cg@1"] >= other.replicates()["cg@1"]).sum())) / 1001
    assert row["p"] == row_of(other.difference(one))["p"] == pytest.approx(p)
    assert len(one.difference(other).notes) == 1


def test_difference_uses_level_and_method_of_the_constructor():
    _, (one, other) = two_models(level=0.5, method="se", replicates=200)
    row = row_of(one.difference(other))
    reach = stats.norm.ppf(0.75) * row["standard error"]
    assert (row["low"], row["high"]) == pytest.approx((row["difference"] - reach, row["difference"] + reach))
    wide = row_of(one.difference(other, level=0.95, method="percentile"))
    assert wide["low"] < row["low"] < row["high"] < wide["high"]


def test_equal_models_have_no_difference():
    _, (one, _) = two_models(replicates=100)
    row = row_of(one.difference(copy.deepcopy(one)))
    assert (row["difference"], row["p"], math.isnan(row["low"])) == (0, 1, True)


def test_models_over_other_queries_get_a_note():
    values, (one, other) = two_models(replicates=20)
    shifted = with_values_booted(values[1], ids=torch.arange(1, 401), replicates=20)
    fewer = with_values_booted(values[1][:399], replicates=20)
    for different in (shifted, fewer):
        assert any("the queries differ" in note for note in one.difference(different).notes)
    assert not any("the queries differ" in note for note in one.difference(other).notes)


@cases("given", [{"seed": 1}, {"replicates": 21}])
def test_model_with_other_counts_is_an_error(given):
    values, (one, _) = two_models(replicates=20)
    other = with_values_booted(values[1], **{"replicates": 20, **given})
    for wrong in (other, tr.Bootstrapped("mrr", 20), tr.MRR()):
        with pytest.raises(ValueError, match="use one suite, seed and replicates"):
            one.difference(wrong)
    with pytest.raises(ValueError, match="Expected the state of another"):
        one.merge_state(other)


# ---- arguments and state -------------------------------------------------------------------------------------------


WRONG = [*({"seed": seed} for seed in (-(2**63) - 1, 2**63, 0.0, True)), {"replicates": 1}, {"replicates": 2.5}]


@cases("given", [*WRONG, {"level": 1}, {"method": "bca"}])
def test_unknown_argument_is_an_error(given):
    with pytest.raises(ValueError, match=f"Expected {next(iter(given))} to be"):
        tr.Bootstrapped("mrr", **given)
