"""The names of all families of measures, for :mod:`torchrank`: each is named in its own module."""

# ruff: noqa: F403

from typing import TYPE_CHECKING

from torchrank.metrics.base import RankingMetric as RankingMetric
from torchrank.metrics.beyond_accuracy import *
from torchrank.metrics.binary import *
from torchrank.metrics.curves import *
from torchrank.metrics.fairness import *
from torchrank.metrics.graded import *
from torchrank.metrics.incomplete_judgments import *
from torchrank.metrics.rank_correlation import *
from torchrank.metrics.subtopics import *
from torchrank.metrics.user_models import *

if not TYPE_CHECKING:  # mypy takes every name if there is no list
    __all__ = [name for name in dir() if name != "TYPE_CHECKING" and not name.startswith("_")]
