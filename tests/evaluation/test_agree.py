"""Krippendorff's alpha: his example, the definition in plain Python, and judges that know nothing."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.support.cases import cases
from torchrank.evaluation.agree import krippendorff_alpha

LEVELS = ("nominal", "ordinal", "interval")
_ = math.nan
#: four observers of twelve units, from Krippendorff, Computing Krippendorff's alpha-reliability, 2011, part C
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]


@cases(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_the_example_of_its_author_has_his_numbers(level, alpha):
    assert round(krippendorff_alpha(np.array(OBSERVERS).T, level), 3) == alpha


def by_definition(items, level):
    """One minus the observed over the expected disagreement, pair by pair of grades."""
    items = [[grade for grade in item if not math.isnan(grade)] for item in items]
    items = [item for item in items if len(item) > 1]
    every = [grade for item in items for grade in item]

    def distance(a, b):
        if level == "nominal":
            return float(a != b)
        if level == "interval":
            return (a - b) ** 2
        low, high = sorted((a, b))
        return (sum(low <= grade <= high for grade in every) - (every.count(a) + every.count(b)) / 2) ** 2

    def mean(grades):
        pairs = [distance(a, b) for a, b in itertools.permutations(grades, 2)]
        return sum(pairs) / len(pairs)

    if not every or not (expected := mean(every)):
        return math.nan
    return 1 - sum(len(item) * mean(item) for item in items) / len(every) / expected


@given(
    arrays.arrays(float, st.tuples(st.integers(1, 8), st.integers(2, 4)), elements=st.sampled_from([_, 0, 1, 2, 3.5])),
    st.sampled_from(LEVELS),
)
def test_alpha_is_its_definition(items, level):
    expected = by_definition(items.tolist(), level)
    assert krippendorff_alpha(items, level) == pytest.approx(expected, abs=1e-12, nan_ok=True)


@cases("level", LEVELS)
def test_alpha_is_1_for_equal_judges_and_0_for_judges_that_guess(level):
    draw = np.random.default_rng(0).choice(4, (20_000, 2), p=[0.5, 0.3, 0.1, 0.1]).astype(float)
    assert krippendorff_alpha(draw[:, :1].repeat(3, 1), level) == 1
    assert abs(krippendorff_alpha(draw, level)) < 0.02


def test_grades_by_many_numbers_need_no_matrix_of_them():
    grades = np.random.default_rng(0).random((200_000, 1)) + np.array([0, 0.01])
    assert krippendorff_alpha(grades, "ordinal") > 0.99  # a matrix of 400,000 grades would have 1.3 TB


def test_an_unknown_level_raises():
    with pytest.raises(ValueError, match="Expected level to be one of"):
        krippendorff_alpha(np.zeros((2, 2)), "ratio")
