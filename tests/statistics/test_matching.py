import math
import re

import numpy as np
import pandas
import pytest
import torch

from tests.support.system_values import Columns, by_id, named, only, values
from torchrank.statistics.comparison import compare


def test_every_form_of_a_system_gives_the_same_comparison():
    a, b = values(30, 2).T
    ids = [f"q{i}" for i in range(30)]
    plain = compare({"a": a, "b": b}).rows
    assert compare({"a": torch.tensor(a), "b": b.tolist()}).rows == plain
    assert compare({"a": list(torch.tensor(a)), "b": list(b)}).rows == plain
    for form in (
        by_id,
        lambda column: {"value": by_id(column)},
        lambda column: {"value": torch.tensor(column)},
        lambda column: Columns(ids, {"value": torch.tensor(column)}),
        lambda column: Columns(np.arange(30), {"value": column}),
    ):
        found = compare({"a": form(a), "b": form(b)}).table
        assert found["p"][0] == pytest.approx(plain[0].p)
        assert found["measure"] == ["value"]


@pytest.mark.parametrize("test", ["t", "randomization", "bootstrap", "randomized-tukey"])
def test_the_order_of_the_queries_changes_nothing(test):
    a, b = values(40, 2, step=0.02).T
    shuffled = dict(reversed(by_id(b).items()))
    one = compare({"a": by_id(a), "b": by_id(b)}, test=test, replicates=200)
    assert compare({"a": by_id(a), "b": shuffled}, test=test, replicates=200) == one


def test_queries_that_a_system_lacks_are_an_error_that_names_three():
    a, b = (by_id(column) for column in values(30, 2).T)
    del b["q2"], b["q3"], b["q5"]
    with pytest.raises(ValueError, match=re.escape("got none of 'q2', 'q3', 'q5' in 'b'")):
        compare({"a": a, "b": b})
    del b["q7"]
    with pytest.raises(ValueError, match=re.escape("got none of 'q2', 'q3', 'q5' and 1 more in 'b'")):
        compare({"a": a, "b": b})
    dropped = compare({"a": a, "b": b}, missing="drop")
    assert dropped.table["n"] + dropped.table["unpaired"] == [26, 4]
    assert any("4 queries that some system lacks are left out" in note for note in dropped.notes)
    zero = only({"a": a, "b": b}, missing="zero")
    assert (zero["n"], zero["mean_b"]) == (30, pytest.approx(sum(b.values()) / 30))


@pytest.mark.parametrize("length", [60, 61])
def test_a_wrong_value_of_up_to_60_characters_is_shown(length):
    text = "x" * (length - 2)
    shown = repr(text) if length == 60 else f"str '{'x' * 39}..."
    with pytest.raises(TypeError, match=f"got {re.escape(shown)};"):
        compare({"a": text, "b": [0.1]})


def test_values_that_are_computed_when_they_are_read_are_values():
    class Lazy:
        def __init__(self, column):
            self.column = column

        def compute(self):
            return self.column

        def __array__(self, dtype=None, copy=None):
            return np.array(self.column, dtype)

    a, b = values(30, 2).T
    assert compare({"a": Lazy(a), "b": b}).rows == compare({"a": a, "b": b}).rows


def test_ids_of_different_types_do_not_match():
    with pytest.raises(ValueError, match="got none of '1', '2' in 'a'"):
        compare({"a": {1: 0.5, 2: 0.5}, "b": {"1": 0.5, "2": 0.5}})


@pytest.mark.parametrize(
    ("systems", "error", "message"),
    [
        ({"a": [0.1]}, ValueError, "at least two systems"),
        ({"a": [0.1, 0.2], "b": [0.1]}, ValueError, r"as many queries in every system, got {'a': 2, 'b': 1}"),
        ({"a": [0.1], "b": {"q1": 0.1}}, ValueError, "ids in all systems or in none"),
        ({"a": {"x": [0.1]}, "b": {"y": [0.1]}}, ValueError, "'x', 'y' in only one of 'a' and 'b'"),
        ({"a": "run.txt", "b": [0.1]}, TypeError, "got 'run.txt'"),
        ({"a": torch.zeros(2, 2), "b": [0.1]}, ValueError, r"got shape \[2, 2\]"),
        ({"a": pandas.DataFrame({"x": [0.1, 0.2]}), "b": [0.1, 0.2]}, ValueError, r"got shape \[2, 1\]"),
        ({"a": {"x": {"q": 0.1}, "y": [0.1]}, "b": [0.1]}, TypeError, "'a', 'x' to be values per query"),
        ({"a": [math.inf, 0.5], "b": [0.1, 0.2]}, ValueError, "finite or NaN"),
        ({"a": Columns([2, 1, 1], {"x": [0, 1, 1]}), "b": Columns([1], {"x": [0]})}, ValueError, "got 1 twice"),
        ({"a": Columns([1, 2, 3], {"x": [0, 1]}), "b": Columns([1, 2], {"x": [0, 1]})}, ValueError, "equal length"),
    ],
)
def test_systems_that_do_not_match_are_errors(systems, error, message):
    with pytest.raises(error, match=message):
        compare(systems)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "student"}, "Expected test to be one of t,"),
        ({"test": "wilcoxn"}, "did you mean 'wilcoxon'"),
        ({"test": "randomised-tukey"}, "did you mean 'randomized-tukey'"),
        ({"test": "permutation"}, "it is called 'randomization'"),
        ({"correction": "holms"}, "did you mean 'holm'"),
        ({"baseline": "bb"}, "Expected baseline to be one of 'a', 'b', 'c', got 'bb'"),
        ({"family": "al"}, "did you mean 'all'"),
        ({"missing": "skip"}, "missing to be one of 'error', 'drop', 'zero'"),
        ({"alpha": 5}, "alpha to be between 0 and 1, got 5"),
        ({"level": 95}, "level to be between 0 and 1, got 95"),
        ({"margin": 0}, "margin to be positive, got 0"),
        ({"test": "tukey", "correction": "holm"}, "p-values cover all pairs"),
        ({"test": "tukey", "family": "all"}, "p-values cover all pairs"),
        ({"higher_is_better": {"mr": False}}, "each label of higher_is_better to be one of 'value', got 'mr'"),
    ],
)
def test_wrong_arguments_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        compare(named(), **options)
