"""One class per measure, each a formula on a :class:`Ranking`; exported here with the base class of each family."""

from typing import TYPE_CHECKING

from torchrank.metrics import public
from torchrank.metrics.binary import BinaryMetric, PositionMetric
from torchrank.metrics.graded import GradedMetric
from torchrank.metrics.item_lists import ExposureMetric, PerUserMetric
from torchrank.metrics.public import *  # noqa: F403
from torchrank.metrics.rank_correlation import ComparingMetric
from torchrank.metrics.subtopics import IntentMetric
from torchrank.metrics.user_models import UserMetric

__all__ = [
    "BinaryMetric",
    "ComparingMetric",
    "ExposureMetric",
    "GradedMetric",
    "IntentMetric",
    "PerUserMetric",
    "PositionMetric",
    "UserMetric",
]
if not TYPE_CHECKING:
    __all__ += public.__all__
