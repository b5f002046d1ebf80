"""Measures of lists of generated identifiers, such as semantic ids of generative retrieval."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchrank.layouts.arrange import Batch
from torchrank.layouts.checks import check_tensor
from torchrank.layouts.conversions import identifiers
from torchrank.metrics.item_lists import Catalogue, PerUserMetric, Recommended
from torchrank.names.parameters import described
from torchrank.names.types import Array, Described, Target, call_of
from torchrank.ranking.intervals import ratio
from torchrank.state.scoring import Values

__all__ = ["Aliasing", "Duplication", "Validity"]

# The number of an identifier begins with the number of its items, up to two, above this bit.
BIT = 40


class GeneratedMetric(PerUserMetric):
    """Base of measures of generated identifiers. Reads values, so ``update`` waits for an accelerator."""

    takes_repeats = True

    ids_of: Described[Tensor] = described()

    def describe(self, ids_of: Any) -> tuple[Catalogue, None]:
        return {"ids_of": check_tensor(ids_of, "ids_of")}, None

    def per_query(self, batch: Batch) -> Values:
        beams, _, counts = identifiers(check_tensor(batch.preds, "beams"), self.ids_of)
        kinds = counts.clamp_max(2) << BIT
        return super().per_query(replace(batch, preds=torch.where(beams < 0, -1, kinds + beams)))

    def share(self, lists: Recommended, items: int) -> Tensor:
        """The share of a list whose identifiers are of at least so many items: float64 [query]."""
        return lists.mean(lists.ids >> BIT >= items)

    if TYPE_CHECKING:

        @call_of(PerUserMetric.update, Tensor)
        def __call__(self, beams: Array, target: Target | None = None, **kwargs: Any) -> Any: ...


class Validity(GeneratedMetric):
    r"""The share of the first k generated identifiers that an item of ``ids_of`` has: :math:`\sum_{b} [c_b > 0] / k`.

    The sum is over the first k beams b, so an identifier that is repeated counts each time; k is their number, if there
    are fewer. :math:`c_b` is the number of items with the identifier. ``preds`` of
    ``update`` and ``score`` are the beams, int [query, beam] or [query, beam, level], best first, negative = padding.
    A list without beams is left out.

    Source:
        Rajput et al., Recommender systems with generative retrieval, NeurIPS 2023, who count invalid identifiers.

    Args:
        ids_of: int [item] or [item, level], the identifier of each item.

    Example:
        >>> import torch, torchrank as tr
        >>> ids_of = torch.tensor([[0, 1], [0, 1], [2, 0]])
        >>> beams = torch.tensor([[[7, 7], [0, 1], [2, 0], [2, 0]]])
        >>> tr.Validity(2, ids_of=ids_of).score(beams), tr.Validity(ids_of=ids_of).score(beams)
        (tensor([0.5000], dtype=torch.float64), tensor([0.7500], dtype=torch.float64))
    """

    name = "validity"

    def measure(self, lists: Recommended) -> Tensor:
        return self.share(lists, 1)


class Aliasing(GeneratedMetric):
    r"""The share of valid beams whose identifier is of several items, :math:`\sum_{b} [c_b > 1] / \sum_{b} [c_b > 0]`.

    The sums are over the first k beams b, so an identifier that is repeated counts each time. :math:`c_b` is the number
    of items with the identifier. ``preds`` are as for :class:`Validity`. A list without a valid identifier is 0. For
    the share of a catalogue, pass each item as a list, ``ids_of.unsqueeze(1)``.

    Source:
        Rajput et al., Recommender systems with generative retrieval, NeurIPS 2023, who count collisions of identifiers.

    Args:
        ids_of: int [item] or [item, level], the identifier of each item.

    Example:
        >>> import torch, torchrank as tr
        >>> ids_of = torch.tensor([[0, 1], [0, 1], [2, 0]])
        >>> metric = tr.Aliasing(ids_of=ids_of)
        >>> metric.score(torch.tensor([[[7, 7], [0, 1], [2, 0]]]))
        tensor([0.5000], dtype=torch.float64)
        >>> metric(ids_of.unsqueeze(1))  # two of three items share their identifier
        tensor(0.6667)
    """

    name = "aliasing"
    higher_is_better = False

    def measure(self, lists: Recommended) -> Tensor:
        return ratio(self.share(lists, 2), self.share(lists, 1))


class Duplication(GeneratedMetric):
    r"""The share of generated identifiers that repeat an earlier one, :math:`1 - |\{b : b \in L_k\}| / |L_k|`.

    :math:`L_k` are the first k beams. ``preds`` are as for :class:`Validity`. A list without beams is left out.

    Source:
        The share that :class:`Unrepeated` has of items, RecTools' ``UnrepeatedReco``.

    Args:
        ids_of: int [item] or [item, level], the identifier of each item.

    Example:
        >>> import torch, torchrank as tr
        >>> ids_of = torch.tensor([[0, 1], [0, 1], [2, 0]])
        >>> tr.Duplication(ids_of=ids_of).score(torch.tensor([[[7, 7], [0, 1], [2, 0], [2, 0]]]))
        tensor([0.2500], dtype=torch.float64)
    """

    name = "duplication"
    higher_is_better = False

    def measure(self, lists: Recommended) -> Tensor:
        return 1 - lists.distinct(lists.ids) / lists.length
