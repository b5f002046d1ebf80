"""Sums and what is computed from them: means, aggregates, standard errors and intervals, also of extreme values."""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchrank as tr
from tests.support.cases import cases
from tests.support.metric_kinds import ALL, check, fill, with_cutoff
from tests.support.workers import batch as drawn
from torchrank.state import sums
from torchrank.state.sums import ExactSums


@cases("cls", [tr.NDCG, tr.MR, tr.FallOut, tr.NumQ, tr.KendallTau])
def test_weighted_mean_and_standard_error(cls):
    metric = with_cutoff(cls, empty_target_action="skip", **({"aggregation": "mean"} if cls is tr.NumQ else {}))
    weights = torch.arange(1, 13) / 4
    for part in (slice(5), slice(5, 12)):
        metric.update(*(x[part] for x in ALL), weights=weights[part])
    values = metric.score(*ALL)
    pairs = [(v, w) for v, w in zip(values.tolist(), weights.tolist()) if not math.isnan(v)]
    total = sum(w for _, w in pairs)
    mean = sum(v * w for v, w in pairs) / total
    check(metric.compute(), mean)
    variance = sum(w * w * (v - mean) ** 2 for v, w in pairs) * len(pairs) / (len(pairs) - 1)
    check(metric.standard_error, math.sqrt(variance) / total)
    assert metric.num_queries == 12
    assert metric.num_empty == 12 - len(pairs)


def test_pairs_of_float32_lose_nothing_in_an_addition():
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(2, 9, dtype=torch.float32)
    exact = [Fraction(0)] * 9
    for power in (3, -3, 6, 0, -6, 5):
        extra = torch.rand(9, generator=generator) * 10.0**power
        total = sums.add(total, extra)
        exact = [x + Fraction(y) for x, y in zip(exact, extra.tolist())]
    for want, high, low in zip(exact, *total.tolist()):
        assert high != want  # one float32 is too short
        assert abs(Fraction(high) + Fraction(low) - want) < want * Fraction(1, 10**11)
    for want, high, low in zip(exact, *sums.add(total, total).tolist()):
        assert abs(Fraction(high) + Fraction(low) - 2 * want) < want * Fraction(1, 10**11)


def cumulative_gains(values):
    """A ranking in which the cumulative gain of each query is a given number."""
    return tr.Ranking.from_scores(torch.zeros(len(values), 1), values.unsqueeze(-1))


def whole_numbers(values):
    """Floats times a power of two that makes them integers, and this power."""
    ratios = [x.as_integer_ratio() for x in values.tolist()]
    power = max(below for _, below in ratios)
    return [above * (power // below) for above, below in ratios], power


def exact_error(values, weights):
    """In integers, without rounding."""
    (v, power), (w, _) = whole_numbers(values), whole_numbers(weights)
    total, scored = sum(w), sum(weight > 0 for weight in w)
    mean = sum(a * b for a, b in zip(v, w))  # times the total
    square = sum((b * (a * total - mean)) ** 2 for a, b in zip(v, w))
    return math.sqrt(Fraction(square * scored, (scored - 1) * total**4 * power**2))


ONE = torch.ones(300, dtype=torch.float64)


WEIGHTS = {
    "one": ONE,
    "tiny": ONE * 1e-120,
    "huge": ONE * 1e120,
    "both": torch.where(torch.arange(300) % 2 > 0, ONE * 1e120, ONE * 1e-120),
    "one and huge": torch.where(torch.arange(300) % 2 > 0, ONE * 1e120, ONE),
    "random": torch.rand(300, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 8,
}


CENTRES = (10.0, 2.0**20 + 64, 1e6 / 3, 1e9, 2.0**30 + 2**16, 1e11)


def sums_of(values, weights, batches):
    """The sums [batch, SIZE] of batches of as many queries each."""
    v, w = values.view(batches, -1), weights.view(batches, -1)
    number, nothing = torch.full((batches,), v.shape[1]), torch.zeros(batches)
    return sums.summed(v, w, number, nothing, torch.zeros(batches, sums.SIZE - sums.Sum.ERRORS))


@cases("direct", [0, sums.DIRECT])
@cases("weights", WEIGHTS)
@cases("centre", CENTRES)
def test_the_standard_error_of_large_values_is_that_of_exact_arithmetic(monkeypatch, centre, weights, direct):
    monkeypatch.setattr(sums, "DIRECT", direct)
    weights = WEIGHTS[weights]
    values = centre + torch.randn(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    metric, other = tr.CG(), tr.CG()
    for number, (v, w) in enumerate(zip(values.chunk(3), weights.chunk(3))):
        (metric if number else other).update(cumulative_gains(v), weights=w)
    metric.merge_state(other)
    tolerance = 1e-3 if centre < 1e11 else 2e-2
    wanted = exact_error(values, weights)
    assert metric.standard_error.item() == pytest.approx(wanted, rel=tolerance)
    assert metric.compute().item() == pytest.approx(centre, rel=1)
    torch.testing.assert_close(metric.sums, sums_of(values, weights, 3).sum(0), rtol=1e-9, atol=0)
    for batches in (1, 30, 300):
        total = functools.reduce(sums.add, sums_of(values, weights, batches))
        assert metric.error_of(total).item() == pytest.approx(wanted, rel=tolerance), batches


def test_values_far_from_each_other_beside_large_ones():
    values = torch.cat([torch.full((500,), 1e9, dtype=torch.float64), torch.zeros(10), -ONE.new_full((9,), 0)])
    wanted, metric = exact_error(values, torch.ones(len(values))), tr.CG()
    for batches in (1, 3, len(values)):
        total = functools.reduce(sums.add, sums_of(values, torch.ones(len(values)), batches))
        assert metric.error_of(total).item() == pytest.approx(wanted, rel=1e-6)
    for v in values.chunk(7):
        metric.update(cumulative_gains(v))
    assert metric.standard_error.item() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e155])
def test_weights_with_squares_beyond_float64_have_a_mean_and_no_standard_error(scale):
    metric = tr.HitRate(top_k=1)
    weights = torch.tensor([scale, 3 * scale], dtype=torch.float64)
    metric.update(torch.tensor([[0.9, 0.1], [0.1, 0.9]]), torch.tensor([0, 0]), weights=weights)
    assert metric.compute().item() == 0.25
    assert metric.standard_error.isnan()
    assert all(map(math.isnan, metric.interval()))


TWO_BATCHES = [drawn(seed) for seed in range(7)]


@pytest.mark.parametrize("scale", [1e-120, 1e120, 3.0])
def test_weights_of_one_size_change_neither_z_nor_its_standard_error(scale):
    plain, scaled = tr.MR(adjusted="z"), tr.MR(adjusted="z")
    for preds, target in TWO_BATCHES:
        plain.update(preds, target)
        scaled.update(preds, target, weights=torch.full((len(preds),), scale, dtype=torch.float64))
    torch.testing.assert_close(scaled.compute(), plain.compute())
    torch.testing.assert_close(scaled.standard_error, plain.standard_error)
    assert plain.compute().isfinite()


def third(values):
    return values.quantile(0.3)


@pytest.mark.parametrize("aggregation", ["median", third], ids=["median", "function"])
def test_one_value_that_is_nan_leaves_no_interval_of_many(aggregation):
    ranks = torch.arange(1.0, 101.0).unsqueeze(-1)
    metric = tr.MR(aggregation=aggregation)
    metric.update(tr.Ranking.from_ranks(ranks))
    low, high = metric.interval()
    assert low < metric.compute() < high
    metric.update(tr.Ranking.from_ranks(torch.tensor([[math.inf]])))  # not retrieved from a list of unknown length
    assert all(map(math.isnan, metric.interval()))


def constant(values):
    return 0.5


def pair_of(values):
    return values[:2]


@pytest.mark.parametrize(
    ("function", "method"),
    [(third, "anytime"), (constant, "auto"), (pair_of, "auto")],
    ids=["looks", "constant", "pair"],
)
def test_a_function_without_a_bootstrap_distribution_has_no_interval(function, method):
    metric = tr.MR(aggregation=function)
    metric.update(tr.Ranking.from_ranks(torch.arange(1.0, 101.0).unsqueeze(-1)))
    assert all(map(math.isnan, metric.interval(method=method)))


def test_a_state_that_was_saved_with_seven_more_sums_is_read_without_them():
    metric, former = fill(tr.MRR(), TWO_BATCHES), tr.MRR()
    errors = sums.Sum.ERRORS
    saved = torch.cat([metric.sums[:errors], torch.full((7,), 9.0), metric.sums[errors : errors + 8]])
    former.load_state_dict({"mrr:sums": saved})
    assert torch.equal(former.sums, metric.sums)
    # In float32 a state has two rows: the sums and their rounding errors.
    both = sums.current(torch.stack([saved, saved / 2]), len(metric.sums))
    assert torch.equal(both, torch.stack([metric.sums, metric.sums / 2]))


@pytest.mark.parametrize("how", ["mean", "sum", "median", "midpoint", "p5", "min", "max"])
def test_a_value_that_is_nan_makes_every_aggregate_nan_and_a_skipped_query_does_not(how):
    ranks = torch.tensor([[2.0], [float("inf")], [0.0], [3.0]])  # not retrieved from a list of unknown length; no query
    metric = tr.MR(aggregation=how)
    metric.update(tr.Ranking.from_ranks(ranks))
    assert metric.compute().isnan()
    assert all(map(math.isnan, metric.interval()))
    metric.reset()
    metric.update(tr.Ranking.from_ranks(ranks), weights=torch.tensor([1.0, 0, 1, 1]))
    want = {"sum": 5, "median": 2, "p5": 2, "min": 2, "max": 3}.get(how, 2.5)
    assert metric.compute().item() == pytest.approx(want)


@pytest.mark.parametrize("percent", [1, 10, 25, 99])
def test_a_percentile_is_numpys_inverted_distribution_with_and_without_weights(percent):
    generator = np.random.default_rng(percent)
    metric = tr.MR(aggregation=f"p{percent}")
    assert metric.label == f"mr(aggregation=p{percent})"
    assert tr.parse(metric.label).aggregation == metric.aggregation
    for queries in (1, 20, 100, 257):
        ranks, weights = generator.integers(1, 50, queries), generator.integers(0, 4, queries) + (queries == 1)
        for used in (np.ones(queries), weights):
            metric.reset()
            for rows in np.array_split(np.arange(queries), min(3, queries)):
                metric.update(tr.Ranking.from_ranks(ranks[rows]), weights=torch.from_numpy(used[rows] * 1.0))
            want = np.quantile(ranks, percent / 100, method="inverted_cdf", weights=used)
            assert metric.compute().item() == want


NAN, INF = math.nan, math.inf


def test_means_of_exact_sums_are_rounded_once_and_infinite_values_are_told():
    values = np.array([1e16, 1.0, -1e16, 3.0, NAN, 1e-300])
    found = ExactSums.of(values)
    exact = [Fraction(one) for one in values if one == one]
    assert (found.count, found.total, found.squares) == (5, sum(exact), sum(one * one for one in exact))
    assert found.mean == float(sum(exact) / 5)
    assert (found - ExactSums.of(np.array([1e16, -1e16]))).mean == float(sum(exact) / 3)
    assert math.isnan(ExactSums.of(np.array([])).mean)
    assert math.isnan(ExactSums.of(np.array([NAN])).mean)
    for more, want in (([INF], INF), ([-INF], -INF), ([INF, -INF], NAN)):
        infinite = found + ExactSums.of(np.array(more))
        assert infinite.mean == want or (math.isnan(want) and math.isnan(infinite.mean))
        assert (infinite.above, infinite.below) == (more.count(INF), more.count(-INF))
        spread = slice(sums.Sum.SQUARES, sums.Sum.W2)
        assert infinite.vector()[spread].isnan().all()
        assert infinite.vector()[sums.Sum.W2] == infinite.vector()[sums.Sum.W] == 5 + len(more)
        assert (infinite - ExactSums.of(np.array(more))) == found
    assert ExactSums.of(np.array([1.0, INF, 3.0]), np.array([1.0, 0.0, 1.0])).mean == 2  # a weight of 0 is no query
    large = ExactSums.of(np.array([1.7e308, 1.7e308]))
    assert (large.mean, large.vector()[sums.Sum.WV]) == (1.7e308, INF)
    assert (ExactSums.of(np.array([-1.7e308, -1.7e308])).vector()[sums.Sum.WV]) == -INF


@pytest.mark.parametrize("values", [[], [0.5], [0.25, 0.5, 1.0], [1e6, 1e6 + 1e-3, 1e6 - 1e-3]])
def test_the_vector_of_exact_sums_is_that_of_a_batch(values):
    exact = ExactSums.of(np.array(values, dtype=np.float64)).vector()
    errors = torch.zeros(1, len(exact) - sums.Sum.ERRORS)
    batch = sums.summed(torch.tensor([values], dtype=torch.float64), None, None, None, errors)[0]
    assert len(exact) == len(batch) == sums.SIZE
    torch.testing.assert_close(exact, batch.nan_to_num(0), rtol=1e-9, atol=1e-9)
    assert (exact[sums.Sum.W], exact[sums.Sum.QUERIES], exact[sums.Sum.EMPTY]) == (len(values), len(values), 0)
    numbers, weights = np.random.default_rng(0).random((2, 50))
    numbers[3], weights[4] = NAN, 0.0
    weighted, known = ExactSums.of(numbers, weights), np.arange(50) != 3
    both = (torch.from_numpy(x[known]).unsqueeze(0) for x in (numbers, weights))
    batch = sums.summed(*both, torch.tensor([49]), torch.zeros(1), errors)[0]
    torch.testing.assert_close(weighted.vector(), batch, rtol=1e-9, atol=1e-12)
    assert weighted.mean == pytest.approx(np.average(numbers[known], weights=weights[known]), rel=1e-15)


@pytest.mark.parametrize("extra", [0, 1])
def test_a_state_goes_to_a_device_without_float64_and_back(monkeypatch, extra):
    state, cpu = torch.rand(sums.SIZE + extra, dtype=torch.float64), torch.device("cpu")
    rows = torch.rand(2, sums.SIZE - 1, dtype=torch.float64)
    assert torch.equal(sums.carry(state, cpu), state)
    with monkeypatch.context() as patch:
        patch.setattr(sums, "widest_float", lambda device: torch.float32)
        there, few = sums.carry(state, cpu), sums.carry(rows, cpu)
        assert (there.shape, there.dtype) == ((2, len(state)), torch.float32)
        assert (few.shape, few.dtype) == (rows.shape, torch.float32)
        assert sums.carry(torch.arange(3), cpu).dtype == torch.int64
        assert torch.equal(sums.carry(there, cpu), there)
    back = sums.carry(there, cpu)
    assert (back.shape, back.dtype) == (state.shape, torch.float64)
    torch.testing.assert_close(back, state, rtol=1e-13, atol=0)
    assert sums.carry(few, cpu).shape == rows.shape
    assert not sums.compensated(rows)
    assert not sums.compensated(state)
    torch.testing.assert_close(sums.add(state, there.double()), 2 * state, rtol=1e-12, atol=0)


GENERATOR = torch.Generator().manual_seed(0)


SCORES = torch.rand(40, 9, generator=GENERATOR)


GRADES = torch.randint(-1, 3, (40, 9), generator=GENERATOR)
GRADES[::7] = 0


OF_QUERIES = torch.rand(40, generator=GENERATOR, dtype=torch.float64) * 3


MEAN, SUM = tr.NDCG(top_k=3, empty_target_action="skip"), "ndcg(empty_target_action=skip,aggregation=sum)@3"


def filled_with(metric, pieces=1, weights=None):
    metric = metric.clone() if isinstance(metric, torch.nn.Module) else tr.parse(metric)
    for part in torch.arange(len(SCORES)).tensor_split(pieces):
        metric.update(SCORES[part], GRADES[part], weights=None if weights is None else weights[part])
    return metric


@pytest.mark.parametrize("weights", [None, OF_QUERIES], ids=["equal", "weights"])
def test_the_sum_is_over_all_queries_with_a_value_and_its_error_that_of_the_mean_times_the_weights(weights):
    values, one = MEAN.score(SCORES, GRADES), filled_with(MEAN, 3, weights)
    scored, used = ~values.isnan(), torch.ones(40, dtype=torch.float64) if weights is None else weights
    assert 0 < scored.sum() < len(SCORES)
    for pieces in (1, 5):
        whole = filled_with(SUM, pieces, weights)
        assert whole.compute().item() == pytest.approx((values * used)[scored].sum().item(), rel=1e-6)
    times = used[scored].sum().item()
    assert whole.standard_error.item() == pytest.approx(times * one.standard_error.item(), rel=1e-6)
    assert whole.interval() == pytest.approx([times * end for end in one.interval()], rel=1e-9)
    part = tr.parse(SUM)
    assert all(map(math.isnan, (part.compute(), *part.interval())))
    part.merge_state(whole)
    assert part.compute() == whole.compute()
    assert part.rows is None  # no values are kept


def test_kept_values_have_the_same_sum_and_error():
    kept = tr.PerQuery([MEAN, SUM])
    kept.update(SCORES, GRADES, query_ids=torch.arange(len(SCORES)))
    table = kept.compute()
    assert table.compute()[SUM].item() == pytest.approx(filled_with(SUM).compute().item(), rel=1e-6)
    for clusters in (None, {n: n // 4 for n in range(len(SCORES))}):
        mean, total = (dict(row) for row in table.summary(clusters=clusters).rows)
        times = total["value"] / mean["value"]
        assert total["standard error"] == pytest.approx(times * mean["standard error"], rel=1e-9)
    assert table.other_results == [SUM]


def test_the_sum_of_a_rank_has_the_slope_of_its_inverse():
    mean, total = filled_with(tr.MR(inverse=True)), filled_with(tr.MR(inverse=True, aggregation="sum"))
    count = mean.num_queries - mean.num_empty
    assert total.compute().item() == pytest.approx(mean.compute().item() / count)
    assert total.standard_error.item() == pytest.approx(mean.standard_error.item() / count)


def test_queries_count_their_weights():
    assert tr.NumQ().label == "numq"
    assert filled_with(tr.NumQ()).compute() == len(SCORES)
    assert filled_with(tr.NumQ(), 2, OF_QUERIES).compute().item() == pytest.approx(OF_QUERIES.sum().item())
    assert filled_with(tr.NumQ(aggregation="mean")).compute() == 1


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40), st.integers(0, 40))
def test_sums_are_exact_and_can_be_taken_apart(values, place):
    whole = ExactSums.of(np.array(values, dtype=np.float64))
    first, second = (ExactSums.of(np.array(part, dtype=np.float64)) for part in (values[:place], values[place:]))
    assert (first + second, whole - second) == (whole, first)
    assert whole.total == sum(map(Fraction, values))
    assert whole.squares == sum(Fraction(value) ** 2 for value in values)


def test_sums_of_many_values_are_those_of_fsum():
    values = np.random.default_rng(0).random(9005) ** 30
    whole = ExactSums.of(values)
    assert float(whole.total) == math.fsum(values)
    assert whole.squares == pytest.approx(math.fsum(values**2), rel=1e-12)


@given(
    st.lists(
        st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 2, st.floats(0, 1e300), st.integers(0, 2)),
        max_size=20,
    )
)
def test_sums_of_products_by_group_are_those_of_fractions(rows):
    a, b, weights = (np.array([row[n] for row in rows], dtype=np.float64) for n in range(3))
    group = np.array([row[3] for row in rows], dtype=np.int64)
    for columns in ([a], [a, b], [a, a, b], [a, b, weights, weights]):
        found = sums.exact_sums(columns, group, 4)
        for number in range(4):
            inside = [row for row in range(len(rows)) if group[row] == number]
            assert found[number] == sum(math.prod(Fraction(column[row]) for column in columns) for row in inside)
    for number, found in enumerate(ExactSums.by(a, weights, group, 3)):
        v, w = ([Fraction(x) for x in column[group == number].tolist()] for column in (a, weights))
        assert (found.count, found.weight, found.squared_weight) == (len(v), sum(w), sum(x * x for x in w))
        assert found.total == sum(x * y for x, y in zip(w, v))
        assert found.first == sum(x * x * y for x, y in zip(w, v))
        assert found.squares == sum((x * y) ** 2 for x, y in zip(w, v))
