"""PyKEEN: an evaluator of link prediction for its pipelines and its early stopper."""

from __future__ import annotations

import copy
import re
from typing import Any

from pykeen.evaluation import Evaluator, RankBasedMetricResults
from pykeen.evaluation.rank_based_evaluator import RankBasedMetricKey
from torch import Tensor

from torchrank.collection.collection import Metrics, RankingCollection
from torchrank.integrations.workers import alone, floats, members
from torchrank.names.parse import preset

#: a side, a tie policy and a key of a suite
KEY = re.compile(r"(?:(head|tail|both)\.)?(?:(expected|optimistic|pessimistic|realistic)\.)?(.+)")


class RankingResults(RankBasedMetricResults):
    """Results by side, tie policy and key of the suite: ``both.realistic.hits_at_10``, ``tail.expected.ndcg@10``."""

    @classmethod
    def key_from_string(cls, s: str | None) -> RankBasedMetricKey:
        """The key of a result; "both" and "expected" may be left out.

        PyKEEN's spellings of its measures are understood.
        """
        try:
            return super().key_from_string(s)
        except (KeyError, ValueError):  # a measure that PyKEEN does not have
            return _literal(str(s))

    def get_metric(self, name: Any) -> float:
        """The value of a result, by its key or its spelling.

        Raises:
            KeyError: the suite does not have the measure.
        """
        for key in (self.string_or_key_to_key(name), _literal(str(name))):
            if key in self.data:
                return self.data[key]
        raise KeyError(f"Expected one of {', '.join(self.to_flat_dict())}, got {name!r}")


def _literal(name: str) -> RankBasedMetricKey:
    side, ties, key = KEY.fullmatch(name).groups()  # type: ignore[union-attr]
    return RankBasedMetricKey._make((side or "both", ties or "expected", key))


class RankingEvaluator(Evaluator):
    """The measures of a suite for link prediction; an ``Evaluator`` of PyKEEN.

    Triples are ranked among entities of the head and of the tail. Other true triples are not candidates, as in
    ``RankBasedEvaluator(filtered=True)``. The state is a few sums, so memory does not grow with the triples.

    Args:
        suite: a metric, names of metrics, or a collection. It is copied, and does not change. None = the measures of
            ``tr.preset("pykeen", 1, 3, 5, 10)``, whose keys and numbers are those of ``RankBasedEvaluator``, with
            realistic ranks.
        options: ``batch_size``, ``slice_size`` and ``mode`` of PyKEEN's ``Evaluator``.

    Example:
        >>> import torchrank as tr
        >>> from pykeen.datasets import Nations
        >>> from pykeen.models import TransE
        >>> nations = Nations()
        >>> results = tr.integrations.pykeen.RankingEvaluator("mrr, ndcg@10").evaluate(
        ...     TransE(triples_factory=nations.training, random_seed=0), nations.testing.mapped_triples,
        ...     additional_filter_triples=nations.training.mapped_triples, batch_size=32, use_tqdm=False,
        ... )
        >>> list(results.to_flat_dict())[:3]
        ['head.expected.mrr', 'head.expected.ndcg@10', 'tail.expected.mrr']
        >>> results.get_metric("ndcg@10") == results.get_metric("both.expected.ndcg@10")
        True
    """

    metric_result_cls = RankingResults

    def __init__(self, suite: Metrics | None = None, **options: Any) -> None:
        super().__init__(filtered=True, **options)
        self.suite = alone(RankingCollection(preset("pykeen", 1, 3, 5, 10) if suite is None else suite))
        self.sides: dict[str, Any] = {}

    def process_scores_(
        self,
        hrt_batch: Tensor,
        target: str,
        scores: Tensor,
        true_scores: Tensor | None = None,
        dense_positive_mask: Tensor | None = None,
    ) -> None:
        assert true_scores is not None  # there for every filtered evaluator
        if target not in self.sides:
            self.sides[target] = copy.deepcopy(self.suite).to(scores.device)
        # Entities with the score of the right one have its rank. So its column is not needed, which
        # restrict_entities_to changes. Filtered entities are NaN; a model that returns NaN is an error.
        label = (scores == true_scores).int().argmax(-1)
        self.sides[target].update(scores, label, mask=~scores.isnan() | true_scores.isnan())

    def clear(self) -> None:
        self.sides.clear()

    def finalize(self) -> RankingResults:
        """The results of both sides together and of each side.

        Raises:
            ValueError: there are no triples, or a score of a model is NaN.
        """
        if not self.sides:
            raise ValueError("Expected triples, got none; call evaluate with mapped_triples")
        first, *others = self.sides.values()
        both = copy.deepcopy(first)
        for other in others:
            both.merge_state(other)
        ties = {key: getattr(metric, "ties", "expected") for key, metric in members(self.suite).items()}
        found: dict[Any, float] = {}
        for side, suite in (*self.sides.items(), ("both", both)):
            found |= {RankBasedMetricKey._make((side, ties[key], key)): x for key, x in floats(suite).items()}
        self.clear()
        return RankingResults(found)
