"""Precision and recall at every rank: a metric with more than one number."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.plot import plot_curve

import torchrank.metrics.labels as labels
from torchrank.engine.places import real
from torchrank.layouts import arrange
from torchrank.lists import as_given
from torchrank.metrics.arguments import integer, one_of
from torchrank.metrics.average import QueryValues
from torchrank.metrics.base import weighted
from torchrank.metrics.binary import Precision
from torchrank.metrics.contract import SafeMetric
from torchrank.metrics.state import SIZE, Sum
from torchrank.pieces import ratio
from torchrank.problems import explain
from torchrank.ranking import Ranking, batch_order


class PRCurve(SafeMetric):
    r"""Precision and recall at every rank up to k, averaged over queries: :math:`P@1, ..., P@k` and :math:`R@1, ..., R@k`.

    Each number is that of :class:`Precision` and :class:`Recall` at that rank, under ties as well. A query arrives whole
    in one ``update``; the state is one vector of sums, whatever was seen.

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
    """  # noqa: E501

    name = "prcurve"
    value_range = (0.0, 1.0)
    takes_top_k = True

    is_differentiable = False
    higher_is_better = True

    def __init__(self, top_k: int, *, adaptive_k: bool = False, **kwargs: Any) -> None:
        integer("top_k", top_k, least=1, or_none=False)
        own = {key: kwargs.pop(key) for key in (*self.definition(), "validate_args") if key in kwargs}
        one_of("aggregation", kwargs.pop("aggregation", "mean"), ("mean",))
        one_of("unjudged", kwargs.pop("unjudged", "irrelevant"), ("irrelevant",))
        super().__init__(**kwargs)
        #: what settles ties, empty queries, weights and bad values
        self.rule = Precision(top_k, adaptive_k=adaptive_k, **own)
        differing = {k: v for k, default in self.rule.definition().items() if (v := getattr(self.rule, k)) != default}
        self.label = labels.write(self.name, differing, top_k)
        nothing = torch.zeros(SIZE + 2 * top_k, dtype=real(self.device), device=self.device)
        self.add_state(f"{self.label}:sums", nothing, dist_reduce_fx="sum")
        self._errors: Tensor | None = None

    @classmethod
    def definition(cls) -> dict[str, Any]:
        """The arguments that make the numbers, with their defaults."""
        return {
            name: value for name, value in Precision.definition().items() if name not in ("aggregation", "unjudged")
        }

    @property
    def sums(self) -> Tensor:
        """The state: float64 [SIZE + 2 * k], sums as those of the precision at k, then those of both curves."""
        return getattr(self, f"{self.label}:sums")

    @property
    def num_queries(self) -> int:
        """Queries seen by this worker, empty ones too."""
        return int(self.sums[Sum.QUERIES])

    @property
    def num_empty(self) -> int:
        """Queries among :attr:`num_queries` without a relevant candidate."""
        return int(self.sums[Sum.EMPTY])

    # ---- add, compute ------------------------------------------------------------------------------------------

    def curves(self, ranking: Ranking) -> Tensor:
        """Precision and recall of each query at each rank, empty ones too: float64 [2, rank, query]."""
        settled, level, last = self.rule.settled(ranking), self.rule.relevance_level, self.rule.top_k
        assert last is not None
        hits = settled.hits_by_rank(level, last)
        rank = torch.arange(1, last + 1, dtype=hits.dtype, device=hits.device).expand_as(hits)
        length = torch.minimum(rank, ranking.num_candidates.unsqueeze(-1)) if self.rule.adaptive_k else rank
        return torch.stack([ratio(hits, length), ratio(hits, ranking.num_relevant(level).unsqueeze(-1))]).mT

    @torch.no_grad()
    def _evaluate(
        self, preds: Tensor | Ranking, target: Any, weights: Tensor | None, layout: dict[str, Any]
    ) -> tuple[Tensor, QueryValues]:
        """Curves [2, rank, query] of a batch, and what the rule makes of its queries."""
        need = self.rule.need()
        if isinstance(preds, Ranking):
            if given := [name for name, value in {"target": target, **layout}.items() if value is not None]:
                raise ValueError(f"Expected nothing but weights beside a Ranking, got {', '.join(given)}")
            preds.check(need, self.label)
            rankings: Iterable[Ranking] = [preds]
        else:
            rankings = Ranking.blocks(arrange(preds, target, validate=self.rule.validate_args, **layout), need)
        parts = []
        with as_given(preds.first.device if isinstance(preds, Ranking) else preds.device):
            for ranking in rankings:
                parts.append((self.curves(ranking), *self.rule.evaluate(ranking), ranking.queries))
        curves, tables, errors, numbers = zip(*parts)
        curve, table = torch.cat(curves, dim=-1), torch.cat(tables, dim=-1)
        if (order := batch_order(numbers)) is not None:
            curve, table = curve[..., order], table[..., order]
        (result,) = weighted([self.rule], table[None], torch.stack(errors).sum(0)[None], weights)
        return torch.where(table[2] > 0, table[0], curve), result  # an empty query counts alike at each rank

    def update(
        self,
        preds: Tensor | Ranking,
        target: Any = None,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
        tie_break: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Add a batch of whole queries; arguments as :meth:`RankingMetric.update`."""
        layout = {"mask": mask, "indexes": indexes, "exclude": exclude, "tie_break": tie_break}
        curve, result = self._evaluate(preds, target, weights, layout)
        sums = torch.where(result.weights > 0, curve * result.weights, 0.0).sum(-1)
        extra = torch.cat([result.sums, sums.flatten()])
        setattr(self, f"{self.label}:sums", self.sums + extra.to(self.sums))

    def compute(self) -> tuple[Tensor, Tensor, Tensor]:
        """Precision and recall of all queries, of all workers.

        Returns:
            float32 [rank], float32 [rank], both NaN if no query was scored; and the ranks, int64 [rank].

        Raises:
            ValueError: bad values were met, on whatever worker. The metric can go on.
        """
        self._errors = self.sums[Sum.ERRORS : SIZE]
        curve = self.sums[SIZE:].reshape(2, -1) / self.sums[Sum.W]
        precision, recall = torch.where(self._errors.sum() > 0, float("nan"), curve).to(torch.float32)
        return precision, recall, torch.arange(1, len(recall) + 1, device=recall.device)

    def score(
        self,
        preds: Tensor | Ranking,
        target: Any = None,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        exclude: tuple[Tensor, Tensor] | None = None,
        tie_break: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Precision and recall of each query, float64 [query, rank] each, without touching the state.

        Raises:
            TypeError, ValueError: as :meth:`update`, and for bad values at once.
        """
        layout = {"mask": mask, "indexes": indexes, "exclude": exclude, "tie_break": tie_break}
        curve, result = self._evaluate(preds, target, weights, layout)
        if found := explain(result.errors):
            raise ValueError(f"{self.label}: {found}")
        return curve[0].mT, curve[1].mT

    def plot(self, curve: tuple[Tensor, Tensor, Tensor] | None = None, ax: Any = None) -> Any:
        """Draw precision over recall; needs matplotlib."""
        precision, recall, ranks = self.compute() if curve is None else curve
        curve = (recall, precision, ranks)
        return plot_curve(curve, ax=ax, label_names=("Recall", "Precision"), name=self.label)

    # ---- torchmetrics' contract --------------------------------------------------------------------------------

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        stock = super()._wrap_compute(compute)

        @functools.wraps(compute)
        def computed(*args: Any, **kwargs: Any) -> Any:
            value = stock(*args, **kwargs)
            in_forward = not self._should_unsync
            if not in_forward and self._errors is not None and (found := explain(self._errors)):
                self._computed = None
                raise ValueError(f"{self.label}: {found}")
            return tuple(part.reshape(-1) for part in value)  # torchmetrics squeezes one value

        return computed

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        return x.to(device, real(device)) if x.is_floating_point() else x.to(device)

    def extra_repr(self) -> str:
        return self.label
