"""``aggregation="sum"``: the sum of weight x value wherever results are aggregated, and the measures that count."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchrank as tr
from torchrank.state.sums import ExactSums

GENERATOR = torch.Generator().manual_seed(0)
SCORES = torch.rand(40, 9, generator=GENERATOR)
GRADES = torch.randint(-1, 3, (40, 9), generator=GENERATOR)
GRADES[::7] = 0
WEIGHTS = torch.rand(40, generator=GENERATOR, dtype=torch.float64) * 3
MEAN, SUM = tr.NDCG(top_k=3, empty_target_action="skip"), "ndcg(empty_target_action=skip,aggregation=sum)@3"
QRELS = {f"q{n}": {f"d{m}": int(g) for m, g in enumerate(row)} for n, row in enumerate(GRADES)}
RUN = {f"q{n}": {f"d{m}": float(s) for m, s in enumerate(row)} for n, row in enumerate(SCORES)}


def filled(metric, pieces=1, weights=None):
    metric = metric.clone() if isinstance(metric, torch.nn.Module) else tr.parse(metric)
    for part in torch.arange(len(SCORES)).tensor_split(pieces):
        metric.update(SCORES[part], GRADES[part], weights=None if weights is None else weights[part])
    return metric


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weights"])
def test_the_sum_is_over_all_queries_with_a_value(weights):
    values = MEAN.score(SCORES, GRADES)
    scored = ~values.isnan()
    want = (values * (1.0 if weights is None else weights))[scored].sum()
    assert 0 < scored.sum() < len(SCORES)
    for pieces in (1, 5):
        assert filled(SUM, pieces, weights).compute().item() == pytest.approx(want.item(), rel=1e-6)
    whole, part = filled(SUM, 1, weights), tr.parse(SUM)
    part.merge_state(whole)
    assert part.compute() == whole.compute()
    assert part.rows is None  # no values are kept


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weights"])
def test_error_and_interval_of_a_sum_are_those_of_the_mean_times_the_weights(weights):
    one, other = filled(MEAN, 3, weights), filled(SUM, 3, weights)
    scored = ~MEAN.score(SCORES, GRADES).isnan()
    times = scored.sum().item() if weights is None else weights[scored].sum().item()
    assert other.standard_error.item() == pytest.approx(times * one.standard_error.item(), rel=1e-6)
    assert other.interval() == pytest.approx([times * end for end in one.interval()], rel=1e-9)


def test_a_sum_without_queries_is_nan():
    assert math.isnan(tr.parse(SUM).compute())
    assert all(math.isnan(end) for end in tr.parse(SUM).interval())


def test_slices_add_up_to_the_whole():
    sliced = tr.Sliced(SUM, ["new", "old"])
    cohort = torch.arange(len(SCORES)) % 2
    sliced.update(SCORES, GRADES, slices=cohort)
    found = {key: value.item() for key, value in sliced.compute().items()}
    assert found[f"{SUM}/new"] + found[f"{SUM}/old"] == pytest.approx(filled(SUM).compute().item(), rel=1e-6)


def test_kept_values_have_the_same_sum_and_error():
    kept = tr.PerQuery([MEAN, SUM])
    kept.update(SCORES, GRADES, query_ids=torch.arange(len(SCORES)))
    table = kept.compute()
    assert table.compute()[SUM].item() == pytest.approx(filled(SUM).compute().item(), rel=1e-6)
    for clusters in (None, {n: n // 4 for n in range(len(SCORES))}):
        mean, total = (dict(row) for row in table.summary(clusters=clusters).rows)
        times = total["value"] / mean["value"]
        assert total["standard error"] == pytest.approx(times * mean["standard error"], rel=1e-9)
    assert table.other_results == [SUM]


def test_replicates_have_as_many_queries_as_the_sample():
    booted = tr.Bootstrapped([MEAN, SUM], replicates=50, seed=3)
    booted.update(SCORES, GRADES, query_ids=torch.arange(len(SCORES)))
    found = booted.compute()
    times = found[SUM] / found[MEAN.label]
    for end in ("low", "high"):
        assert found[f"{SUM}/{end}"].item() == pytest.approx((times * found[f"{MEAN.label}/{end}"]).item(), rel=1e-5)


def test_compared_asks_for_the_mean_instead():
    with pytest.raises(ValueError, match="arithmetic means"):
        tr.Compared(SUM, ["a", "b"])


def test_a_function_that_is_named_sum_is_refused():
    with pytest.raises(ValueError, match="name of its own"):
        tr.NDCG(aggregation=torch.sum)


def test_the_sum_of_a_rank_has_the_slope_of_its_inverse():
    mean, total = filled(tr.MR(inverse=True)), filled(tr.MR(inverse=True, aggregation="sum"))
    count = mean.num_queries - mean.num_empty
    assert total.compute().item() == pytest.approx(mean.compute().item() / count)
    assert total.standard_error.item() == pytest.approx(mean.standard_error.item() / count)


def test_counts_of_an_evaluation_add_up_as_in_ir_measures():
    ir_measures = pytest.importorskip("ir_measures")
    names = {"NumQ": "num_q", "NumRet": "num_ret", "NumRel": "num_rel", "NumRelRet": "num_rel_ret"}
    names |= {"NumRet(rel=2)": "NumRet(rel=2)"}
    asked = {name: ir_measures.parse_measure(name) for name in names}
    theirs = ir_measures.calc_aggregate(asked.values(), QRELS, RUN)
    ours = tr.evaluate(QRELS, RUN, list(names.values())).means["run"]
    for name, one in asked.items():
        assert ours[tr.parse(names[name]).label] == theirs[one] > 0, name


def test_queries_count_their_weights():
    assert tr.NumQ().label == "numq"
    assert filled(tr.NumQ()).compute() == len(SCORES)
    assert filled(tr.NumQ(), 2, WEIGHTS).compute().item() == pytest.approx(WEIGHTS.sum().item())
    assert filled(tr.NumQ(aggregation="mean")).compute() == 1


# ---- exact sums


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
