"""Classes of measures that are refused, arguments beside rankings, exact sums, and sums where float64 is missing."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from torchmetrics.utilities.exceptions import TorchMetricsUserError

import torchrank as tr
from tests.support.unread import leave_values_unread
from torchrank.state import scoring, sums
from torchrank.state.metric import narrowed
from torchrank.state.sums import ExactSums

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("name", ["Upper", "with_line", "1st", "two words", ""])
def test_the_name_of_a_measure_is_lower_case_letters_and_digits(name):
    if not name:
        return
    with pytest.raises(TypeError, match=f"Expected Own.name to be lower-case letters and digits, got '{name}'"):
        type("Own", (tr.extend.BinaryMetric,), {"name": name})


def test_a_measure_has_a_name_of_its_own_and_no_parameter_like_a_method():
    with pytest.raises(TypeError, match="Expected Other to have a name of its own, got 'mrr'; choose another name"):
        type("Other", (tr.extend.BinaryMetric,), {"name": "mrr"})

    class Heir(tr.MRR):
        pass

    with pytest.raises(TypeError, match="Expected Heir to have a name of its own, got 'mrr'; set the attribute name"):
        Heir()

    class Twice(tr.extend.BinaryMetric):
        name = "twicedefined"
        measured: float = tr.extend.number(default=1)

    assert type("Twice", (tr.extend.BinaryMetric,), {"name": "again1", "__module__": "a"}).name == "again1"
    assert Twice(measured=2).label == "twicedefined(measured=2)"
    for method in ("half", "weight", "standard_error"):
        body = {"name": "shadowing", "__annotations__": {method: float}, method: tr.extend.number(default=1)}
        with pytest.raises(TypeError, match=f"Expected Shadow to name no parameter like a method, got '{method}'; re"):
            type("Shadow", (tr.extend.BinaryMetric,), body)


def test_an_unknown_argument_is_told_with_the_nearest_one_or_where_it_belongs():
    for wrong, message in (
        ("topk", "Expected an argument of NDCG, got 'topk'; did you mean 'top_k'"),
        ("aggregaton", "Expected an argument of NDCG, got 'aggregaton'; did you mean 'aggregation'"),
        ("weights", "Expected an argument of NDCG, got 'weights'; pass weights= to update"),
        ("a_long_word", "Expected NDCG to have arguments top_k, .* validate_args, got 'a_long_word'"),
    ):
        with pytest.raises(TypeError, match=message):
            tr.NDCG(**{wrong: 3})


@pytest.mark.parametrize("validate_args", [True, False])
def test_sampled_negatives_have_finite_counts_of_bad_values(validate_args):
    metric = tr.HitRate(top_k=10, validate_args=validate_args)
    metric.update(tr.Ranking.from_ranks(torch.tensor([201, 1]), num_candidates=10_001).sampled(100))
    assert metric.sums[sums.Sum.ERRORS : sums.SIZE].tolist() == [0.0] * (sums.SIZE - sums.Sum.ERRORS)


def test_ignored_queries_and_those_of_weight_zero_do_not_count():
    scores, labels = torch.rand(4, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, -100, 1, 2])
    metric = tr.MRR()
    metric.update(scores, labels, weights=torch.tensor([1.0, 2.0, 0.0, 3.0]))
    of_two = tr.MRR()
    of_two.update(scores[::3], labels[::3], weights=torch.tensor([1.0, 3.0]))
    assert (metric.num_queries, metric.compute()) == (2, of_two.compute())
    assert metric.sums.equal(of_two.sums)


def test_each_metric_of_a_collection_has_its_value_of_an_empty_query():
    scores, grades = torch.tensor([[0.3, 0.2], [0.5, 0.1], [0.4, -INF]]), torch.tensor([[1, 0], [0, 0], [-1, 1]])
    values = {"neg": 0.0, "pos": 1.0, "listed": 0.0, "skip": NAN}  # of the second query, which has no relevant item
    suite = {name: tr.MRR(empty_target_action=name) for name in values}
    found = tr.RankingCollection(suite).score(scores, grades)
    for name, value in values.items():
        alone = suite[name].score(scores, grades)
        torch.testing.assert_close(found[name], alone, equal_nan=True, rtol=0, atol=0)
        torch.testing.assert_close(alone[1], torch.tensor(value, dtype=alone.dtype), equal_nan=True)
    assert tr.RankingCollection(suite).score(scores - INF, grades)["listed"].isnan().all()  # nothing is retrieved
    left_out = tr.RankingCollection(suite).score(scores, torch.tensor([[1, 0], [0, 0], [-1, -1]]))
    assert {name: x[2].item() for name, x in left_out.items() if name != "skip"} == {"neg": 0, "pos": 1, "listed": 0}


@pytest.mark.parametrize("width", [1, 2, 3, 9])
def test_ranked_ids_of_an_accelerator_have_the_values_of_a_cpu(monkeypatch, width):
    ids = torch.stack([torch.arange(width).roll(n) for n in range(5)])
    labels = torch.tensor([0, 1, 2, 7, 0])
    metrics = ["mrr", "mr", "hitrate@2", "ndcg"]
    expected = tr.RankingCollection(metrics).score(ids, labels)
    leave_values_unread(monkeypatch)
    for name, found in tr.RankingCollection(metrics).score(ids, labels).items():
        torch.testing.assert_close(found, expected[name], equal_nan=True, rtol=1e-12, atol=0)


@pytest.mark.parametrize("inverse", [False, True])
def test_a_turned_mean_has_the_other_direction_for_queries(inverse):
    assert tr.MR(inverse=inverse).higher_values_are_better is False
    assert tr.MRR().higher_values_are_better is True


@pytest.mark.parametrize("way", ["merge", "load"])
def test_a_metric_with_a_state_of_another_is_not_warned_of(way):
    full, metric = tr.MRR(), tr.MRR()
    full.update(torch.tensor([[0.1, 0.9]]), torch.tensor([0]))
    if way == "merge":
        metric.merge_state(full.metric_state)
    else:
        full.persistent(True)
        metric.load_state_dict(full.state_dict())
    assert metric.update_called
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert metric.compute() == 0.5


def test_a_wrong_state_is_told_in_words():
    metric = tr.MRR()
    for wrong, told in (
        ([torch.zeros(2)] * 2, r"a list of a tensor \[2\] of torch.float32, a tensor"),
        ([], "a list of nothing"),
    ):
        with pytest.raises(ValueError, match=f"got {told}"):
            metric.merge_state({next(iter(metric.metric_state)): wrong})


def test_curves_of_rows_of_all_lengths_have_the_weights_of_their_queries():
    generator = torch.Generator().manual_seed(0)
    lengths = [3, 90, 5, 40, 4]
    indexes = torch.tensor([query for query, length in enumerate(lengths) for _ in range(length)])
    scores, target = torch.rand((2, len(indexes)), generator=generator)
    target, weights = (target > 0.5).long(), torch.tensor([1.0, 8.0, 2.0, 4.0, 16.0])
    whole, each = tr.PRCurve(5), tr.PRCurve(5)
    whole.update(scores, target, indexes=indexes, weights=weights)
    for query in range(len(lengths)):
        rows = indexes == query
        each.update(scores[rows].unsqueeze(0), target[rows].unsqueeze(0), weights=weights[query : query + 1])
    for found, expected in zip(whole.compute(), each.compute()):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_a_measure_of_whole_lists_takes_no_cutoff():
    for cls in (tr.RPrecision, tr.NumQ):
        if not cls.takes_top_k:
            with pytest.raises(
                ValueError, match=f"Expected no top_k for {cls.__name__}, which reads the whole list, got 3"
            ):
                cls(3)


@pytest.mark.parametrize("name", ["mask", "exclude", "tie_break", "indexes"])
def test_a_ranking_takes_weights_alone(name):
    ranking = tr.Ranking.from_ranks(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match=f"Expected nothing but weights with a Ranking, got {name}"):
        tr.MRR().score(ranking, **{name: torch.ones(2)})
    with pytest.raises(ValueError, match="Expected nothing but weights with a Ranking, got target"):
        tr.MRR().score(ranking, torch.ones(2))
    metric = tr.MRR()
    metric.update(ranking, weights=torch.tensor([3.0, 1.0]))
    assert metric.compute().item() == 0.875


@pytest.mark.parametrize(
    "metric",
    [tr.MRR(), tr.MR(), tr.MR(inverse=True), tr.MR(adjusted="z"), tr.MRR(adjusted="index"), tr.DCG(), tr.KendallTau()],
    ids=lambda metric: metric.label,
)
def test_plots_end_where_the_values_of_a_measure_do(metric):
    ends = [end if math.isfinite(end) else None for end in metric.value_range]
    assert [metric.plot_lower_bound, metric.plot_upper_bound] == ends


@pytest.mark.parametrize(("queries", "warned"), [(19, True), (20, False)])
def test_a_summary_for_looks_warns_of_fewer_than_20_queries(queries, warned):
    suite = tr.RankingCollection("mrr")
    suite.update(torch.rand(queries, 4), torch.arange(queries) % 4)
    assert ("fewer than 20" in suite.summary(anytime=True).notes[-1]) == warned
    both = tr.RankingCollection("mrr hitrate(empty_target_action=skip)@2")  # some queries are in one mean only
    both.update(torch.rand(30, 4), torch.arange(30).where(torch.arange(30) < queries, -1).clamp_max(3))
    assert ("fewer than 20" in both.summary(anytime=True).notes[-1]) == warned


def test_two_queries_have_an_interval_and_fewer_none():
    scores = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    for how in ("mean", torch.amax):
        metric = tr.MRR(aggregation=how)
        for queries in (0, 1, 2):
            metric.reset()
            metric.update(scores[:queries], torch.zeros(queries, dtype=torch.int64))
            assert all(math.isnan(end) == (queries < 2) for end in metric.interval())
    assert all(map(math.isnan, tr.MRR().interval(method="wilson")))
    metric = tr.MRR()
    metric.update(scores, torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="Expected values of 0 and 1 only"):
        metric.interval(method="wilson")


def test_a_score_sums_nothing(monkeypatch):
    monkeypatch.setattr(scoring, "reduce", None)
    assert tr.MRR().score(torch.tensor([[0.1, 0.9]]), torch.tensor([0])).tolist() == [0.5]


@pytest.mark.parametrize("bad", [INF, NAN, -1.0])
def test_without_validation_a_bad_weight_is_0_and_not_counted(bad):
    suite = tr.RankingCollection({"checked": tr.MRR(), "unchecked": tr.MRR(validate_args=False)})
    labels, weights = torch.tensor([0, 1, 2]), torch.tensor([1.0, bad, 2.0])
    scores = torch.tensor([[3.0, 2.0, 1.0]] * 3)
    suite.update(scores, labels, weights=weights)
    assert suite["unchecked"].compute().item() == pytest.approx((1 + 2 / 3) / 3)
    assert suite["unchecked"].sums.isfinite().all()
    with pytest.raises(ValueError, match="1 query weight"):
        suite["checked"].compute()


@pytest.mark.parametrize("name", ["mrr(aggregation=median)", "mr(filtered=True,average=positive)", "mr", "mrr@2"])
@pytest.mark.parametrize("labels", [False, True])
def test_chunks_of_a_batch_have_the_sums_and_values_of_the_whole(assume, name, labels):
    draw = torch.Generator().manual_seed(0)
    scores, grades = torch.rand(40, 9, generator=draw), torch.randint(0, 3, (40, 9), generator=draw)
    grades[::7] = 0
    target = grades.argmax(-1).masked_fill(torch.arange(40) % 9 == 0, -100) if labels else grades
    weights = torch.rand(40, generator=draw, dtype=torch.float64)
    found = []
    for block in (10_000, 45):
        assume(block=block)
        plain, weighted = (tr.parse(name) for _ in range(2))
        plain.update(scores, target)
        weighted.update(scores, target, weights=weights)
        kept = tr.PerQuery(name)
        kept.update(scores, target, query_ids=torch.arange(40))
        found.append([plain.sums, weighted.sums, kept.compute().compute()[name], plain.compute(), weighted.compute()])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("block", [10_000, 45])
def test_values_that_are_summed_some_at_a_time_have_the_mean_and_error_of_all(assume, monkeypatch, block):
    draw = torch.Generator().manual_seed(0)
    batch = torch.rand(40, 9, generator=draw), torch.randint(0, 3, (40, 9), generator=draw)
    whole, parts = (tr.RankingCollection(["mr", "ndcg", tr.PRCurve(9)]) for _ in range(2))
    whole.update(*batch)
    monkeypatch.setattr("torchrank.state.scoring.MANY_VALUES", 16)
    assume(block=block)
    parts.update(*batch)
    torch.testing.assert_close(parts.compute(), whole.compute(), rtol=1e-13, atol=0, equal_nan=True)
    for name in ("mr", "ndcg"):
        torch.testing.assert_close(parts[name].standard_error, whole[name].standard_error)


def test_sums_of_negative_values_can_be_loaded():
    report, other = tr.TieReport("utility(false_alarm=-3)@2"), tr.TieReport("utility(false_alarm=-3)@2")
    report.update(torch.rand(3, 4), torch.zeros(3, 4))
    assert (report.sums < 0).any()
    report.persistent(True)
    other.load_state_dict(report.state_dict())
    assert torch.equal(other.sums, report.sums)


# ---- exact sums ------------------------------------------------------------------------------------------------------


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
        assert infinite.infinite == (more.count(INF), more.count(-INF))
        spread = slice(sums.Sum.SQUARES, sums.Sum.W2)
        assert infinite.vector()[spread].isnan().all()
        assert infinite.vector()[sums.Sum.W2] == infinite.vector()[sums.Sum.W] == 5 + len(more)
        assert (infinite - ExactSums.of(np.array(more))) == found
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


# ---- sums on a device without float64 --------------------------------------------------------------------------------


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setattr(sums, "widest_float", lambda device: torch.float32)


def test_sums_in_float32_carry_their_rounding_errors(narrow):
    state = sums.nothing(torch.device("cpu"), 2)
    assert (state.shape, state.dtype) == ((2, sums.SIZE + 2), torch.float32)
    assert sums.compensated(state)
    added = torch.rand(1000, sums.SIZE + 2, generator=torch.Generator().manual_seed(0))
    for part in added:
        state = sums.add(state, part)
    torch.testing.assert_close(sums.read(state.double()), added.double().sum(0), rtol=1e-9, atol=0)
    both = sums.add(state, state)
    torch.testing.assert_close(sums.read(both.double()), 2 * added.double().sum(0), rtol=1e-9, atol=0)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mean_is_rounded_to_14_bits_of_two_grids(dtype):
    for mean in (0.3, 1.0, 0.99999, 123.456, 1e-5):
        zero, first, second = sums.centres(torch.tensor([mean], dtype=dtype)).tolist()
        assert zero == 0
        for centre, times in ((first, Fraction(1)), (second, Fraction(4, 3))):
            mantissa, _ = math.frexp(float(Fraction(centre) * times))
            scaled = mantissa * 2**14
            assert abs(scaled - round(scaled)) < 1e-3
            assert abs(centre - mean) <= mean * 2.0**-14


# ---- an accelerator --------------------------------------------------------------------------------------------------


# ---- forward ---------------------------------------------------------------------------------------------------------

ROWS = torch.rand(4), torch.tensor([1, 0, 1, 0])


def test_a_reset_behind_forward_forgets_the_last_query_and_forward_does_not():
    for make in (tr.MRR, lambda: tr.RankingCollection("mrr, map")):
        metric = make()
        metric(*ROWS, indexes=torch.tensor([0, 0, 1, 1]))
        with pytest.warns(UserWarning, match="Counted the last query of an update and the first query of the next one"):
            metric.update(*ROWS, indexes=torch.tensor([1, 1, 2, 2]))
        metric(*ROWS, indexes=torch.tensor([3, 3, 4, 4]))
        metric.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            metric.update(*ROWS, indexes=torch.tensor([4, 4, 5, 5]))


def test_a_metric_with_the_state_of_all_workers_refuses_a_batch():
    metric = tr.MRR()
    metric.update(torch.rand(2, 3), torch.tensor([0, 1]))
    metric.sync(dist_sync_fn=lambda x, group: [x, x], distributed_available=lambda: True)
    with pytest.raises(TorchMetricsUserError):
        metric(torch.rand(2, 3), torch.tensor([0, 1]))
    metric.unsync()
    metric(torch.rand(2, 3), torch.tensor([0, 1]))
    assert metric.num_queries == 4


# ---- kept rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_whole_numbers_are_kept_in_the_smallest_type_that_holds_them(bits):
    types = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for values, wanted in (([low, high], bits), ([low - 1, 0], 2 * bits), ([0, high + 1], 2 * bits)):
        found = narrowed(torch.tensor(values))
        assert (found.dtype, found.tolist()) == (types[wanted], values)


def test_kept_rows_are_copies_and_bools_are_numbers():
    for x in (torch.tensor([1, 2], dtype=torch.int8), torch.tensor([300, 2], dtype=torch.int16), torch.rand(2).half()):
        found = narrowed(x)
        assert (found.dtype, found.tolist()) == (x.dtype, x.tolist())
        assert found.data_ptr() != x.data_ptr()
    assert narrowed(torch.tensor([True, False])).dtype == torch.int8
