"""The Poisson bootstrap beside counts drawn in plain Python, closed forms, and statsmodels."""

import copy
import itertools
import math
import os
import pickle
import statistics
import sys

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support import workers
from tests.support.optional import stats
from tests.support.random_batches import batch, rng
from torchrank.state.sums import SIZE
from torchrank.wrappers import suite_metric
from torchrank.wrappers.suite_metric import interval_of, poisson_counts, splitmix64

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


def with_values(values, ids=None, replicates=1000, **given):
    """A bootstrap of the mean of these values, >= 0."""
    values = torch.as_tensor(values, dtype=torch.float64)
    return booted(tr.CG(top_k=1), torch.zeros(len(values), 1), values[:, None], ids, replicates, **given)


def row_of(table):
    (row,) = table.rows
    return row


# ---- counts ----------------------------------------------------------------------------------------------------------


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


def test_splitmix64_has_the_numbers_of_the_reference():
    assert int(splitmix64(torch.tensor([0]))) % BITS == 0xE220A8397B1DCDAF
    states = [0, 1, -1, 2**63 - 1, -(2**63), 123456789]
    assert [x % BITS for x in splitmix64(torch.tensor(states)).tolist()] == [SplitMix(x)() for x in states]


@pytest.mark.parametrize("method", ["se", "percentile"])
def test_two_replicates_have_an_interval_and_fewer_none(method):
    replicates = torch.tensor([0.25, math.nan, 0.75], dtype=torch.float64)
    low, high, error = interval_of(torch.tensor(0.5, dtype=torch.float64), replicates, 0.5, method)
    assert error.item() == pytest.approx(statistics.stdev([0.25, 0.75]))
    assert 0.25 <= low < high <= 0.75
    for few in (replicates[:2], replicates[1:2], replicates[:1].repeat(3)):
        assert all(map(math.isnan, interval_of(torch.tensor(0.5), few, 0.5, method)))


@pytest.mark.parametrize("seed", [-(2**63) - 1, 2**63, 0.0, True])
def test_a_seed_is_an_integer_of_64_bits(seed):
    with pytest.raises(ValueError, match="Expected seed to be an integer of 64 bits"):
        tr.Bootstrapped("mrr", seed=seed)
    assert tr.Bootstrapped("mrr", seed=-(2**63)).num_queries == tr.Bootstrapped("mrr", seed=2**63 - 1).num_queries == 0


@pytest.mark.parametrize("seed", [0, 7, -1, 2**63 - 1])
def test_counts_are_those_of_plain_python(seed):
    ids = [0, 1, -5, 2**62, -(2**63)]
    got = poisson_counts(torch.tensor(ids), seed, 30).tolist()
    assert got == [drawn(query, seed, 30) for query in ids]


def test_counts_are_poisson_and_independent_over_queries_and_replicates():
    counts = poisson_counts(torch.arange(20000), 0, 40).double()
    expected = stats.poisson.pmf(np.arange(7), 1) * counts.numel()
    observed = np.bincount(counts.flatten().int(), minlength=8)[:7].astype(float)
    expected[6], observed[6] = counts.numel() - expected[:6].sum(), counts.numel() - observed[:6].sum()
    assert stats.chisquare(observed, expected).pvalue > 1e-3
    assert float(counts.mean()) == pytest.approx(1, abs=0.005)
    assert float(counts.var()) == pytest.approx(1, abs=0.01)
    replicates = np.corrcoef(counts.T.numpy())
    assert np.abs(replicates - np.eye(40)).max() < 5 / math.sqrt(20000)
    for lag in (1, 2, 1024):  # consecutive ids, and ids that differ in one bit
        pairs = np.corrcoef(counts[:-lag].flatten(), counts[lag:].flatten())[0, 1]
        assert abs(pairs) < 5 / math.sqrt(counts.numel())
    other = poisson_counts(torch.arange(20000), 1, 40).double()
    assert abs(np.corrcoef(counts.flatten(), other.flatten())[0, 1]) < 5 / math.sqrt(counts.numel())


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif("PYTHONHASHSEED" in os.environ, reason="all processes have one seed of hash")
def test_text_ids_are_equal_in_processes_with_other_seeds_of_hash():
    ids = ["user-7", "", "Ünïcode", b"\xff", 12]
    with workers.CONTEXT.Pool(1) as pool:
        assert pool.apply(hash, ("a text",)) != hash("a text")
        assert pool.apply(tr.hash_ids, (ids,)).tolist() == tr.hash_ids(ids).tolist()


def test_hashes_of_ids():
    assert tr.hash_ids(["12"]).tolist() == tr.hash_ids([12]).tolist()
    many = tr.hash_ids(map(str, range(10000)))
    assert len(many.unique()) == 10000
    assert many.dtype == torch.int64
    assert tr.hash_ids([]).shape == (0,)
    for wrong in (1.5, None, True):
        with pytest.raises(TypeError, match="Expected ids to be text"):
            tr.hash_ids([wrong])


# ---- replicates ------------------------------------------------------------------------------------------------------

MEASURES = [
    "mrr",
    "ndcg@3",
    "mr",
    "dcg(gain=exponential)",
    "map(aggregation=geometric)",
    "mr(inverse=True)",
    "mrr(adjusted=index)",
]


@pytest.mark.parametrize("weighted", [False, True])
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


def test_replicates_of_measures_of_lists_use_their_values():
    lists, novelty = torch.arange(60).view(20, 3), tr.Novelty(interactions=torch.arange(1, 61), num_users=100)
    metric = tr.Bootstrapped({"novelty": novelty}, replicates=8)
    metric.update(lists, query_ids=torch.arange(20))
    counts = torch.tensor([drawn(query, 0, 8) for query in range(20)]).double()
    want = (novelty.score(lists) @ counts) / counts.sum(0)
    assert torch.allclose(metric.replicates()["novelty"], want)


@pytest.mark.parametrize("weights", [None, 1.0, 1e-3, 1e4])
def test_replicates_have_the_same_bits_in_every_order_and_split(weights):
    scores, grades = batch(queries=300)
    ids = torch.randint(0, 200, (300,), generator=rng(3))
    weights = None if weights is None else weights * torch.rand(300, generator=rng(4), dtype=torch.float64)
    suite = ["mrr", "mr", "dcg(gain=exponential)", "ndcg(empty_target_action=skip)", "map(aggregation=geometric)"]
    states = []
    for pieces, order in itertools.product((1, 7), (None, torch.randperm(300, generator=rng(5)))):
        metric = booted(suite, scores, grades, ids, order=order, pieces=pieces, weights=weights)
        states.append(metric.sums[len(metric.metrics) * SIZE :])
    half = booted(suite, scores[:90], grades[:90], ids[:90], weights=None if weights is None else weights[:90])
    half.merge_state(
        booted(suite, scores[90:], grades[90:], ids[90:], weights=None if weights is None else weights[90:])
    )
    states.append(half.sums[len(half.metrics) * SIZE :])
    assert states[0].abs().sum() > 0
    assert all(torch.equal(states[0], other) for other in states[1:])


@pytest.mark.parametrize(("most", "sizes"), [(2**18, [9]), (36, [3, 3, 3]), (1, [1] * 9)])
def test_counts_are_drawn_for_some_queries_at_a_time_or_for_one(monkeypatch, most, sizes):
    values, drawn = torch.rand(9, generator=rng(), dtype=torch.float64), []
    want = with_values(values, replicates=12).sums
    monkeypatch.setattr(suite_metric, "MOST_COUNTS", most)
    monkeypatch.setattr(
        suite_metric, "poisson_counts", lambda ids, *given: drawn.append(len(ids)) or poisson_counts(ids, *given)
    )
    assert torch.equal(with_values(values, replicates=12).sums, want)
    assert drawn == sizes


def test_replicates_that_drew_nothing_are_left_out():
    metric = with_values([1.0, 3.0], replicates=400)
    replicates = metric.replicates()["cg@1"]
    counts = [drawn(0, 0, 400), drawn(1, 0, 400)]
    empty = [a + b == 0 for a, b in zip(*counts)]
    assert sum(empty) > 20
    assert replicates.isnan().tolist() == empty
    assert metric.intervals()["cg@1"] == (1.0, 3.0)
    assert row_of(metric.summary())["standard error"] == pytest.approx(float(replicates[~replicates.isnan()].std()))


# ---- intervals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_are_percentiles_their_mirror_images_and_normal_quantiles(level):
    values = torch.rand(60, generator=rng(), dtype=torch.float64) ** 3
    metric = with_values(values, level=level)
    replicates, value = metric.replicates()["cg@1"].numpy(), float(values.mean())
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    reach = stats.norm.ppf((1 + level) / 2) * replicates.std(ddof=1)
    want = {
        "percentile": (low, high),
        "basic": (2 * value - high, 2 * value - low),
        "se": (value - reach, value + reach),
    }
    for method, ends in want.items():
        assert metric.intervals(method=method)["cg@1"] == pytest.approx(ends)
        one = with_values(values, level=level, method=method)
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


def test_error_is_near_the_closed_form_also_with_weights():
    scores, grades = batch(queries=500)
    weights = torch.rand(500, generator=rng(8))
    metric = booted(["mrr", "ndcg"], scores, grades, replicates=1000, weights=weights)
    suite = tr.RankingCollection(["mrr", "ndcg"])
    suite.update(scores, grades, weights=weights)
    for row in metric.summary().rows:
        assert row["standard error"] == pytest.approx(float(suite[row["measure"]].standard_error), rel=0.08)


@pytest.mark.parametrize("n", [20, 500])
def test_percentiles_cover_the_mean_of_skewed_values(n):
    inside, metric = [], with_values([], replicates=400)
    for seed in range(100):
        values = torch.rand(n, generator=rng(seed), dtype=torch.float64) ** 2
        metric.reset()
        metric.update(torch.zeros(n, 1), values[:, None], query_ids=torch.arange(n) + 1000 * seed)
        low, high = metric.intervals(0.9)["cg@1"]
        inside.append(low <= 1 / 3 <= high)
    assert np.mean(inside) == pytest.approx(0.87 if n == 20 else 0.9, abs=0.07)


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
    error = row_of(with_values(values, user, order=order, pieces=6).summary())["standard error"]
    naive = stats.sem(values.numpy())
    assert error == pytest.approx(fit.bse[0], rel=0.1)
    assert error > 1.8 * naive


@pytest.mark.parametrize("values", [[], [0.3], [0.7] * 30])
def test_no_spread_has_no_interval(values):
    metric = with_values(values, replicates=100)
    assert all(map(math.isnan, metric.intervals()["cg@1"]))
    row = row_of(metric.summary())
    assert math.isnan(row["standard error"])
    assert row["queries"] == len(values)


# ---- two models ------------------------------------------------------------------------------------------------------


def two_models(queries=400, **given):
    """Values of two models that differ little beside their spread over queries."""
    base = torch.rand(queries, generator=rng(), dtype=torch.float64)
    values = base + 0.5, base + 0.52 + 0.1 * torch.rand(queries, generator=rng(1), dtype=torch.float64)
    return values, [with_values(each, **given) for each in values]


def test_difference_is_paired_by_ids_also_if_models_are_evaluated_apart():
    values, (one, _) = two_models()
    order = torch.randperm(400, generator=rng(3))
    other = with_values(values[1], order=order, pieces=3)
    row = row_of(one.difference(pickle.loads(pickle.dumps(other))))
    apart = (values[0] - values[1]).numpy()
    assert (row["mean_a"], row["mean_b"]) == pytest.approx((float(values[0].mean()), float(values[1].mean())), rel=1e-6)
    assert row["difference"] == pytest.approx(apart.mean(), rel=1e-6)
    assert row["standard error"] == pytest.approx(stats.sem(apart), rel=0.1)
    assert row["standard error"] < 0.2 * math.hypot(*(stats.sem(each.numpy()) for each in values))
    assert (row["low"], row["high"]) == pytest.approx(
        tuple(stats.ttest_1samp(apart, 0).confidence_interval()), rel=0.05
    )
    replicates = one.replicates()["cg@1"] - other.replicates()["cg@1"]
    assert (
        row["p"] == row_of(other.difference(one))["p"] == pytest.approx(2 * (1 + int((replicates >= 0).sum())) / 1001)
    )
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
    assert (row["difference"], row["p"]) == (0, 1)
    assert math.isnan(row["low"])


def test_models_over_other_queries_get_a_note():
    values, (one, other) = two_models(replicates=20)
    shifted = with_values(values[1], ids=torch.arange(1, 401), replicates=20)
    fewer = with_values(values[1][:399], replicates=20)
    for different in (shifted, fewer):
        assert any("the queries differ" in note for note in one.difference(different).notes)
    assert not any("the queries differ" in note for note in one.difference(other).notes)


@pytest.mark.parametrize("given", [{"seed": 1}, {"replicates": 21}])
def test_model_with_other_counts_is_an_error(given):
    values, (one, _) = two_models(replicates=20)
    other = with_values(values[1], **{"replicates": 20, **given})
    for wrong in (other, tr.Bootstrapped("mrr", 20), tr.MRR()):
        with pytest.raises(ValueError, match="use one suite, seed and replicates"):
            one.difference(wrong)
    with pytest.raises(ValueError, match="Expected the state of another"):
        one.merge_state(other)


# ---- arguments and state ---------------------------------------------------------------------------------------------


def test_update_without_an_id_for_each_query_is_an_error():
    metric = tr.Bootstrapped("mrr", 10)
    wrong = [
        (None, ValueError, "Expected query_ids in every update"),
        (torch.arange(39), ValueError, "one per query"),
        (torch.zeros(40), TypeError, "to be integers"),
        (torch.zeros(40, dtype=torch.bool), TypeError, "to be integers"),
        (["a"] * 41, ValueError, "one per query"),
        ([1.5] * 40, TypeError, "text"),
    ]
    for ids, error, message in wrong:
        with pytest.raises(error, match=message):
            metric.update(*batch(), query_ids=ids)
    assert metric.num_queries == 0


def test_texts_are_ids():
    texts = [f"user {n}" for n in range(40)]
    one, other = tr.Bootstrapped("mrr", 10), tr.Bootstrapped("mrr", 10)
    one.update(*batch(), query_ids=texts)
    other.update(*batch(), query_ids=tr.hash_ids(texts))
    assert torch.equal(one.sums, other.sums)


@pytest.mark.parametrize(
    "metric",
    [tr.MRR(aggregation="median"), tr.MRR(adjusted="z"), tr.Coverage(num_items=3), tr.PRCurve(3)],
    ids=lambda metric: metric.label,
)
def test_metric_that_is_no_mean_is_refused(metric):
    with pytest.raises(ValueError, match="in Bootstrapped, got"):
        tr.Bootstrapped(metric)


@pytest.mark.parametrize(
    "given", [{"replicates": 1}, {"replicates": 2.5}, {"seed": 2**63}, {"seed": 1.0}, {"level": 1}, {"method": "bca"}]
)
def test_unknown_argument_is_an_error(given):
    with pytest.raises(ValueError, match=next(iter(given))):
        tr.Bootstrapped("mrr", **given)


def test_memory_is_bounded_for_many_queries():
    resource = pytest.importorskip("resource")
    queries, replicates = 60_000, 1000
    scores, labels = torch.zeros(queries, 1), torch.zeros(queries, dtype=torch.int64)
    metric = tr.Bootstrapped("mrr", replicates)
    metric.update(scores[:10], labels[:10], query_ids=torch.arange(10))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    metric.update(scores, labels, query_ids=torch.arange(queries))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert metric.num_queries == queries + 10
    assert grown < queries * replicates * 8 / 4  # all counts at once would have 8 bytes each, as float64


def test_the_interval_of_a_sum_is_that_of_the_mean_times_the_number_of_queries():
    scores, grades = torch.rand(30, 5), torch.randint(0, 2, (30, 5))
    found = {}
    for how in ("sum", "mean"):
        metric = tr.Bootstrapped(f"numrelret(aggregation={how})@3", replicates=50, seed=1)
        metric.update(scores, grades, query_ids=torch.arange(30))
        found[how] = [float(value) for value in metric.compute().values()]
    assert found["sum"] == pytest.approx([30 * value for value in found["mean"]], rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coarse_and_fine_parts_add_up_and_their_sums_do_not_depend_on_the_order(dtype):
    values, weights = torch.rand(2, 3, 100, dtype=dtype)
    rows = suite_metric._limbs(values, weights)
    assert rows.shape == (12, 100)
    parts = rows.view(2, 2, 3, 100)
    torch.testing.assert_close(parts.sum(1), torch.stack([values, weights]), rtol=0, atol=1e-10)
    if dtype == torch.float64:
        assert torch.equal(parts.cumsum(-1)[..., -1], parts.flip(-1).cumsum(-1)[..., -1])
    else:
        assert not parts[:, 1].any()


@pytest.mark.needs("matplotlib")
def test_plots_without_a_result_draw_that_of_compute():
    scores, grades, ids = torch.rand(30, 5), torch.randint(0, 2, (30, 5)), torch.arange(30)
    booted, kept, report = tr.Bootstrapped("mrr", replicates=9), tr.PerQuery("mrr"), tr.TieReport("mrr, ndcg@2")
    paired = tr.Compared("mrr", ["a", "b"])
    for metric in (booted, kept):
        metric.update(scores, grades, query_ids=ids)
    report.update(scores.round(), grades)
    paired.update({"a": scores, "b": scores.flip(1)}, grades)

    def drawn(axes):
        lines = [line.get_xydata().tolist() for line in axes.get_lines()]
        bars = [bar.get_bbox().bounds for bar in axes.patches]
        paths = [path.vertices.tolist() for one in axes.collections for path in one.get_paths()]
        return lines, bars, paths, [text.get_text() for text in axes.get_yticklabels()]

    for metric in (booted, kept, report):
        assert drawn(metric.plot()[1]) == drawn(metric.plot(metric.compute())[1])
        assert any(drawn(metric.plot()[1])[:3])
    assert drawn(report.plot()[1])[3] == ["mrr", "ndcg@2"]
    lines, _, paths, names = drawn(booted.plot()[1])
    found = {key: value.item() for key, value in booted.compute().items()}
    assert (lines[0], names) == ([[found["mrr"], 0]], ["mrr"])  # a row, with a line from the low to the high end
    assert [x for x, _ in paths[0]] == [found["mrr/low"], found["mrr/high"]]
    assert len(booted.plot([booted.compute()] * 3)[1].get_lines()) == 3  # over time
    figure, axes = paired.plot()
    assert drawn(axes)[:3] == drawn(paired.comparison().forest(None)[1])[:3]
    assert figure is axes.figure
