"""Packages that some tests need. Each is imported at its first use, and a test that uses it is skipped without it."""

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
        if attribute.startswith("__"):  # pytest and doctest look for those of all that a test file imports
            raise AttributeError(attribute)
        return getattr(self.module, attribute)


pandas = OptionalModule("pandas")
pyplot = OptionalModule("matplotlib.pyplot")
pytrec_eval = OptionalModule("pytrec_eval")
sklearn_metrics = OptionalModule("sklearn.metrics")
stats = OptionalModule("scipy.stats")
tqdm = OptionalModule("tqdm.auto")
