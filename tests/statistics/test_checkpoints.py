"""The best of several checkpoints: its bias and its interval, simulated."""

import math
import statistics

import numpy as np
import pytest

import torchrank as tr

EPOCHS = 20


def simulated(expected, runs=150, queries=150, own=0.2, seed=0):
    """Value - expectation, bias, and whether the interval contains the expectation, of the best checkpoint of runs."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(runs):
        values = np.array(expected)[:, None] + draw.normal(0, 0.3, queries) + draw.normal(0, own, (EPOCHS, queries))
        (row,) = tr.best_of(dict(enumerate(values)), replicates=200)
        truth = expected[row["best"]]
        found.append((row["value"] - truth, row["bias"], row["low"] <= truth <= row["high"]))
    return np.mean(found, axis=0)


@pytest.mark.parametrize(
    ("expected", "error"),
    [([0.5] * EPOCHS, 0.1), (np.linspace(0.3, 0.5, EPOCHS).tolist(), 0.5), ([0.4] * 15 + [0.5] * 5, 0.25)],
    ids=["all equal", "rising", "a plateau"],
)
def test_the_bias_is_what_the_choice_adds_and_the_interval_is_honest(expected, error):
    luck, bias, inside = simulated(expected)
    assert bias == pytest.approx(luck, rel=error, abs=0.004)
    assert inside >= 0.9  # 150 runs at 0.95


def test_the_bias_of_two_checkpoints_is_that_of_the_formula():
    values = np.random.default_rng(3).normal([[0.5], [0.56]], 0.2, (2, 25))
    means, draw = [statistics.fmean(x) for x in values], np.random.default_rng(4)
    luck = np.array([values[:, draw.integers(25, size=25)].mean(axis=1) - means for _ in range(8000)])
    noise = statistics.fmean(statistics.variance(pair) for pair in luck.tolist())
    assert 0 < noise < statistics.variance(means)
    shrunk = math.sqrt(1 - noise / statistics.variance(means))
    expected = [statistics.fmean(means) + shrunk * (mean - statistics.fmean(means)) for mean in means]
    bias = statistics.fmean(x[int(np.argmax(np.add(expected, x)))] for x in luck)
    (row,) = tr.best_of({"a": values[0], "b": values[1]}, replicates=8000)
    assert row["bias"] == pytest.approx(bias, rel=0.06)


def test_a_checkpoint_that_is_far_better_was_not_chosen_by_luck():
    draw = np.random.default_rng(0)
    values = draw.uniform(0, 0.1, (5, 300)) + np.array([0, 0, 0.5, 0, 0])[:, None]
    (row,) = tr.best_of(dict(zip("abcde", values)))
    assert row["best"] == "c"
    assert row["bias"] == pytest.approx(0, abs=1e-3)
    error = values[2].std(ddof=1) / math.sqrt(300)
    assert (row["high"] - row["low"]) / 2 == pytest.approx(1.96 * error, rel=0.1)
    (row,) = tr.best_of(dict(zip("abcde", values)), level=0.5, replicates=4000)
    for end, sign in (("low", -1), ("high", 1)):
        assert row[end] - row["value"] == pytest.approx(sign * 0.6745 * error, rel=0.15)


def test_tables_are_matched_by_id_and_lower_may_be_better():
    draw = np.random.default_rng(1)
    ids, ranks = np.arange(80), draw.integers(1, 30, (3, 80)) + 0.0
    order = draw.permutation(80)
    metrics = {"mr": tr.MR(), "mrr": tr.MRR()}
    tables = {
        epoch: tr.QueryTable(ids[order], {"mr": x[order], "mrr": 1 / x[order]}, metrics=metrics) if epoch == 20
        else tr.QueryTable(ids, {"mr": x, "mrr": 1 / x}, metrics=metrics)
        for epoch, x in zip((10, 20, 30), ranks)
    }  # fmt: skip
    found = tr.best_of(tables)
    mr, mrr = found
    assert mr["best"] == (10, 20, 30)[ranks.mean(axis=1).argmin()]
    assert mrr["best"] == (10, 20, 30)[(1 / ranks).mean(axis=1).argmax()]
    assert mr["bias"] < 0 < mrr["bias"]
    assert mr["value"] < mr["corrected"] == mr["value"] - mr["bias"]
    assert mr["low"] < mr["corrected"] < mr["high"]
    assert found == tr.best_of(tables)
    assert found != tr.best_of(tables, seed=1)
    assert tr.Table(found.to_dict()).columns == found.columns


def test_queries_that_a_checkpoint_skips_are_left_out():
    values = np.random.default_rng(2).uniform(0, 1, (3, 40))
    values[1, :5] = math.nan
    (row,) = tr.best_of(dict(enumerate(values)))
    assert row["queries"] == 35
    assert row["value"] == pytest.approx(values[:, 5:].mean(axis=1).max())
    dicts = {n: {f"q{i}": x for i, x in enumerate(column) if x == x} for n, column in enumerate(values)}
    assert next(iter(tr.best_of(dicts)))["value"] == pytest.approx(row["value"])


def test_identical_checkpoints_and_single_queries_have_no_bias():
    (row,) = tr.best_of({1: [0.1, 0.4, 0.3], 2: [0.1, 0.4, 0.3]}, replicates=20_000)
    assert row["bias"] == pytest.approx(0, abs=2e-3)
    (row,) = tr.best_of({1: [0.1], 2: [0.4]})
    assert (row["best"], row["value"]) == (2, 0.4)
    assert math.isnan(row["bias"])
    assert math.isnan(row["low"])


def test_weights_and_other_aggregations_are_warned_of():
    tables = {n: tr.QueryTable([1, 2, 3], {"mrr": x}, {"mrr": [1, 2, 1]}) for n, x in ((1, [1, 0, 1]), (2, [0, 0, 1]))}
    assert any("weights" in note for note in tr.best_of(tables).notes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tr.best_of({1: [0.1, 0.2]}), "two or more checkpoints"),
        (lambda: tr.best_of({1: [0.1, 0.2], 2: [0.1, 0.2]}, level=95), "level to be between 0 and 1"),
        (lambda: tr.best_of({1: [0.1, 0.2], 2: [0.1, 0.2]}, replicates=0), "replicates to be an integer >= 1"),
        (lambda: tr.best_of({1: {"mrr": [0.1]}, 2: {"map": [0.1]}}), "same measures"),
    ],
)
def test_wrong_calls_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
