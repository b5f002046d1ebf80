"""Packages that some tests need: each is imported where a test first uses it, and the test is skipped without it.

A test whose package is imported by the library alone has the mark ``needs``.
"""

import doctest
import re
from functools import cached_property

import pytest


class OptionalModule:
    """A module in whose place ``name`` is imported when a test first takes something from it."""

    def __init__(self, name):
        self.name = name

    @cached_property
    def module(self):
        return pytest.importorskip(self.name)

    def __getattr__(self, attribute):
        if attribute.startswith("__"):  # pytest looks for those of everything that a test file imports
            raise AttributeError(attribute)
        return getattr(self.module, attribute)


annoy = OptionalModule("annoy")
faiss = OptionalModule("faiss")
hnswlib = OptionalModule("hnswlib")
pandas = OptionalModule("pandas")
polars = OptionalModule("polars")
pyarrow = OptionalModule("pyarrow")
pyplot = OptionalModule("matplotlib.pyplot")
pytrec_eval = OptionalModule("pytrec_eval")
sklearn_metrics = OptionalModule("sklearn.metrics")
sparse = OptionalModule("scipy.sparse")
stats = OptionalModule("scipy.stats")
tqdm = OptionalModule("tqdm.auto")
usearch_index = OptionalModule("usearch.index")


def examples_of(name):
    """A test that the examples in the docstrings of a module print the output shown, for modules that import much."""

    def test():
        result = doctest.testmod(OptionalModule(name).module)
        assert result.attempted > 1
        assert result.failed == 0

    return test


def by_scipy(cases):
    """Parameters of a test; those that name one of the paired tests that SciPy computes are skipped without it."""
    marks = pytest.mark.needs("scipy")
    return [
        pytest.param(*(case if isinstance(case, tuple) else [case]), marks=marks)
        if re.search("'(wilcoxon|sign|tukey)'", repr(case))
        else case
        for case in cases
    ]
