"""The cases of one test: each is run, and the one that fails is named."""

import pytest

from tests.support.cases import cases


def test_all_cases_run_and_the_one_that_fails_is_named():
    seen = []

    @cases("second", [1, 2])
    @cases(("first", "word"), [(1, "a"), (2, "b")], ids=["one", "two"])
    def test(seen, first, word, second):
        if first == second == 1:
            pytest.skip("the first case of all")
        seen.append((first, word, second))
        assert first + second < 4

    with pytest.raises(AssertionError) as raised:
        test(seen=seen)
    assert seen == [(2, "b", 1), (1, "a", 2), (2, "b", 2)]
    assert raised.value.__notes__ == ["in the case two", "in the case {'second': 2}"]


def test_a_test_without_cases_is_an_error_and_one_whose_cases_are_all_skipped_is_skipped():
    with pytest.raises(AssertionError, match="no cases"):
        cases("x", [])
    with pytest.raises(pytest.skip.Exception, match="never"):
        cases("x", [1, 2])(lambda x: pytest.skip("never"))()
