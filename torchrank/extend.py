"""All that a measure of your own needs, in one module.

A measure is a subclass of a base class below. Set a unique ``name`` (lower-case letters and digits) and
``value_range``, and define ``measure(ranking)``, the formula, and ``empty(ranking)``, the queries that have nothing to
measure. ``need()`` declares the part of a ranking that the formula reads: by default every judged candidate at every
rank, in the binary and graded families the relevant candidates up to ``top_k``. Targets given as labels or lists of ids
judge relevant candidates only.

Declare a parameter in one line of the class, e.g. ``p: float = number(default=0.5, above=0)``. It is checked, stored as
an attribute and shown in the label. A class has a constructor of all its parameters, as a dataclass. One of your own
sets the parameters that the class declares, and calls that of the parent: ``super().__init__(top_k, **kwargs)``.

Pass gains and discounts as frozen dataclasses or module-level functions, not as lambdas, because results are cached for
equal ones.

| for | use |
|---|---|
| the base class of a measure | :class:`BinaryMetric` of relevance, :class:`GradedMetric` of grades, :class:`IntentMetric` of subtopics, :class:`PositionMetric` of single ranks, :class:`UserMetric` of a browsing user, :class:`ComparingMetric` of two rankings; :class:`RankingMetric` for all else |
| the base class of a measure of recommended lists | :class:`PerUserMetric` with a value for each user, :class:`ExposureMetric` of the whole catalogue |
| the parameters of a measure | :func:`number`, :func:`integer`, :func:`flag`, :func:`one_of`, :func:`parameter` for any value, :func:`described` for data on a catalogue, :func:`fixed` for a parameter that a subclass does not offer |
| the part of a ranking that a measure reads | :class:`Need` |
| the ranking that :meth:`RankingMetric.measure` gets | :class:`Ranking` |
| a gain of grades with known properties | :class:`Gain` |
| a quotient that is 0 if the denominator is 0 | :func:`ratio` |

Example:
    >>> import torch
    >>> from torchrank.extend import BinaryMetric, number, ratio
    >>> class Weighted(BinaryMetric):
    ...     name = "weighted"
    ...     p: float = number(default=0.5, above=0, most=1)
    ...
    ...     def measure(self, ranking):
    ...         hits = ranking.hits(self.relevance_level, self.top_k)
    ...         return self.p * ratio(hits, ranking.num_relevant(self.relevance_level))
    >>> Weighted(top_k=1).score(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
    tensor([0.2500], dtype=torch.float64)
"""  # noqa: E501

from torchrank.layouts.canonical import Need
from torchrank.metrics import (
    BinaryMetric,
    ComparingMetric,
    ExposureMetric,
    GradedMetric,
    IntentMetric,
    PerUserMetric,
    PositionMetric,
    RankingMetric,
    UserMetric,
)
from torchrank.names.parameters import described, fixed, flag, integer, number, one_of, parameter
from torchrank.ranking.ranking import Gain, Ranking, ratio

__all__ = [
    "BinaryMetric",
    "ComparingMetric",
    "ExposureMetric",
    "Gain",
    "GradedMetric",
    "IntentMetric",
    "Need",
    "PerUserMetric",
    "PositionMetric",
    "Ranking",
    "RankingMetric",
    "UserMetric",
    "described",
    "fixed",
    "flag",
    "integer",
    "number",
    "one_of",
    "parameter",
    "ratio",
]
