"""Precision and recall at every rank: a metric with more than one number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics.utilities.plot import plot_curve

from torchrank.metrics.arguments import integer, one_of
from torchrank.metrics.average import QueryValues
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.batch import Batch
from torchrank.metrics.binary import Precision
from torchrank.metrics.state import SIZE, Sum
from torchrank.pieces import ratio
from torchrank.ranking import Ranking


class PRCurve(Precision):
    r"""Precision and recall at every rank up to k, averaged: :math:`P@1, ..., P@k, R@1, ..., R@k`.

    Averages over queries. Each number is that of :class:`Precision` and :class:`Recall` at that rank, under ties as
    well. A query arrives whole in one ``update``; the state is one vector of sums, whatever was seen.

    Source:
        torchmetrics, ``RetrievalPrecisionRecallCurve``.

    Also in:
        none of the other libraries compared; ranx draws the interpolated curve.

    Args:
        top_k: the last rank.
        adaptive_k: divide by the length of a list that is shorter than a rank.
        kwargs: ``ties``, ``relevance_level``, ``empty_target_action``, ``validate_args``: as :class:`Precision`; and
            those of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: ``top_k`` is no integer >= 1, or another argument has a value that the metric does not know.

    Example:
        >>> import torch, torchrank as tr
        >>> curve = tr.PRCurve(top_k=3)
        >>> curve(torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]]))
        (tensor([1.0000, 0.5000, 0.6667]), tensor([0.5000, 0.5000, 1.0000]), tensor([1, 2, 3]))
    """

    name = "prcurve"
    #: a curve is no number, so it is not among the measures
    registry: ClassVar[dict[str, type[RankingMetric]]] = {}
    takes_unjudged_for = ("irrelevant",)

    def __init__(self, top_k: int, *, aggregation: str = "mean", **kwargs: Any) -> None:
        integer("top_k", top_k, least=1, or_none=False)
        one_of("aggregation", aggregation, ("mean",))
        super().__init__(top_k, aggregation=aggregation, **kwargs)

    top_k: int

    @property
    def more(self) -> int:
        return 2 * self.top_k

    def evaluate(self, ranking: Ranking) -> tuple[Tensor, Tensor]:
        table, errors = super().evaluate(ranking)
        curves = torch.where(table[2] > 0, table[0], self.curves(ranking))  # an empty query counts alike at each rank
        return torch.cat([table, curves]), errors

    def curves(self, ranking: Ranking) -> Tensor:
        """Precision and then recall of each query at each rank, empty ones too: float64 [2 * rank, query]."""
        hits = self.settled(ranking).hits_by_rank(self.relevance_level, self.top_k)
        rank = torch.arange(1, self.top_k + 1, dtype=hits.dtype, device=hits.device).expand_as(hits)
        length = torch.minimum(rank, ranking.num_candidates.unsqueeze(-1)) if self.adaptive_k else rank
        relevant = ranking.num_relevant(self.relevance_level).unsqueeze(-1)
        return torch.cat([ratio(hits, length), ratio(hits, relevant)], -1).mT

    def with_more(self, result: QueryValues, rows: Tensor) -> QueryValues:
        sums = torch.where(result.weights > 0, rows * result.weights, 0.0).sum(-1)
        rows = torch.where(result.values.isnan(), float("nan"), rows)
        return replace(result, values=rows, sums=torch.cat([result.sums, sums]))

    def result(self, sums: Tensor) -> Tensor:
        return sums[SIZE:] / sums[Sum.W]

    def compute(self) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        """Precision and recall of all queries, of all workers.

        Returns:
            float32 [rank], float32 [rank], both NaN if no query was scored; and the ranks, int64 [rank].

        Raises:
            ValueError: bad values were met, on whatever worker. The metric can go on.
        """
        precision, recall = super().compute().view(2, -1)
        return precision, recall, torch.arange(1, self.top_k + 1, device=recall.device)

    def scored(self, result: QueryValues, batch: Batch) -> tuple[Tensor, Tensor]:
        """Precision and recall of each query, float64 [query, rank] each: what ``score`` returns."""
        precision, recall = super().scored(result, batch).mT.chunk(2, -1)
        return precision, recall

    def plot(self, curve: tuple[Tensor, Tensor, Tensor] | None = None, ax: Any = None) -> Any:
        """Draw precision over recall; needs matplotlib."""
        precision, recall, ranks = self.compute() if curve is None else curve
        return plot_curve((recall, precision, ranks), ax=ax, label_names=("Recall", "Precision"), name=self.label)
