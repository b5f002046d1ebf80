"""Beyond accuracy: how recommendations are spread over the catalogue and over users."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torchmetrics.utilities.plot import plot_curve

from torchrank.hardware.devices import running_sum
from torchrank.metrics.item_lists import ExposureMetric, ListMetric, Recommended
from torchrank.metrics.rank_discount import Discount, RankDiscount
from torchrank.names.parameters import number, one_of
from torchrank.state.sums import Sum

__all__ = ["Coverage", "Entropy", "Gini", "LorenzCurve", "Personalization"]


class Coverage(ExposureMetric):
    r"""Catalogue coverage: the share of items that at least one list contains, :math:`|\bigcup_u L_u| / N`.

    :math:`L_u` is the list of user u and N the number of items.

    Source:
        Ge, Delgado-Battenfeld and Jannach, Beyond accuracy: evaluating recommender systems by coverage and serendipity,
        RecSys 2010.

    Args:
        num_items: N, the number of items in the catalogue.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Coverage(num_items=5)
        >>> metric.update(torch.tensor([[0, 1], [1, 4]]))
        >>> metric.compute()
        tensor(0.6000)
    """

    name = "coverage"

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        return (exposure > 0).to(exposure.dtype).mean()


class Personalization(ExposureMetric):
    r"""Personalization: how different the lists of two users are, :math:`1 - |L_u \cap L_v| / \sqrt{|L_u| |L_v|}`.

    The value is 1 - cosine of the lists of users u and v, averaged over all pairs of users. It is computed from one sum
    over users. Let :math:`x_i = \sum_u [i \in L_u] / \sqrt{|L_u|}`, and let U be the number of lists that are not
    empty. The mean is then :math:`1 - (|x|^2 - U) / (U (U - 1))`, so no list is stored and no pair enumerated. It is
    NaN for fewer than two lists. With weights, a pair counts the product of the weights of its lists.

    Source:
        Zhou et al., Solving the apparent diversity-accuracy dilemma of recommender systems, PNAS 107(10), 2010 (as
        inter-user diversity, of lists of equal length).

    Args:
        num_items: the number of items in the catalogue.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Personalization(num_items=5)
        >>> metric.update(torch.tensor([[0, 1], [1, 4]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    name = "personalization"

    def amounts(self, lists: Recommended, weights: Tensor) -> Tensor:
        return super().amounts(lists, weights / lists.length.clamp_min(1).sqrt())

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        themselves = sums[Sum.W2]  # the pairs of a list with itself: the sum of squared weights
        pairs, alike = sums[Sum.W] ** 2 - themselves, exposure.square().sum() - themselves
        # One list makes no pair: the difference is 0 up to rounding.
        return torch.where(pairs > 1e-12 * themselves, 1 - alike / pairs, float("nan"))


class Spread(RankDiscount, ExposureMetric):
    """A measure of how evenly exposure is spread over the catalogue.

    The exposure of an item is the sum of the discounts of its ranks in all lists.

    Args:
        num_items: the number of items in the catalogue.
    """

    discount: Discount = "none"
    patience: float = 0.85

    def amounts(self, lists: Recommended, weights: Tensor) -> Tensor:
        return super().amounts(lists, weights) * self.discount_function(lists.rank.clamp_min(1).to(lists.dtype))


class Entropy(Spread):
    r"""Shannon entropy of the items' shares of the exposure: :math:`-\sum_i p_i \log_b p_i`.

    :math:`p_i` is the share of item i in the sum of all exposure, and b the base of the logarithm.

    Source:
        Shannon, A mathematical theory of communication, 1948; of recommendations, Adomavicius and Kwon, Improving
        aggregate recommendation diversity using ranking-based techniques, TKDE 24(5), 2012.

    Args:
        num_items: N, the number of items in the catalogue.
        normalize: True divides by :math:`\log_b N`, the entropy of the uniform distribution; "distinct", as in RecBole,
            by the number of different items in the lists.
        log_base: b, the base of the logarithm, > 1.

    Raises:
        ValueError: an argument is out of range, or unknown.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Entropy(num_items=4)
        >>> metric.update(torch.tensor([[0, 1], [0, 2]]))
        >>> metric.compute()
        tensor(1.5000)
    """

    name = "entropy"
    value_range = (0.0, math.inf)

    normalize: bool | Literal["distinct"] = one_of(False, True, "distinct", default=False)
    log_base: float = number(default=2, above=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalize is True and self.log_base != 2:
            raise ValueError(f"Expected no log_base together with normalize=True, got {self.log_base}")

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        share = exposure / exposure.sum()
        nats = -torch.xlogy(share, share).sum()
        if self.normalize is True:
            return nats / max(math.log(len(exposure)), 1e-300)  # avoids 0 / 0 if the catalogue has one item
        distinct = (exposure > 0).sum() if self.normalize else 1
        return nats / math.log(self.log_base) / distinct


class Gini(Spread):
    r"""Gini index of exposure x in ascending order: :math:`\frac{\sum_i (2i - N - 1) x_i}{N \sum_i x_i}`.

    N is the number of items. The index is 0 if all items have equal exposure, and near 1 if a few items have nearly all
    of it. Lower is more even.

    Source:
        Gini, 1912; of recommendations, Fleder and Hosanagar, Blockbuster culture's next rise or fall, Management
        Science 55(5), 2009.

    Args:
        num_items: N, the number of items in the catalogue.

    Example:
        >>> import torch, torchrank as tr
        >>> metric = tr.Gini(num_items=4)
        >>> metric.update(torch.tensor([[0, 1], [0, 2]]))
        >>> metric.compute()
        tensor(0.3750)
    """

    name = "gini"
    higher_is_better = False

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        n = len(exposure)
        place = torch.arange(1, n + 1, dtype=exposure.dtype, device=exposure.device)
        return ((2 * place - n - 1) * exposure.sort().values).sum() / (n * exposure.sum())


class LorenzCurve(Spread):
    r"""Lorenz curve of exposure: the share of all exposure that the n least exposed of N items have together.

    :math:`L(n / N) = \sum_{i \le n} x_i / \sum_i x_i` for exposure x in ascending order and n = 0, 1, ..., N. Equal
    exposure gives the diagonal. :class:`Gini` is twice the area between the diagonal and the curve, whose points are
    joined by straight lines.

    Source:
        Lorenz, Methods of measuring the concentration of wealth, Publications of the American Statistical Association
        9(70), 1905.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        num_items: N, the number of items in the catalogue.
        discount: the exposure at a rank: "none", 1 at every rank; "log2", 1 / log2(1 + rank); "clipped",
            1 / log2(max(rank, 2)); "reciprocal", 1 / rank; "geometric", patience ** (rank - 1); or a callable with a
            name, from ranks float64.
        patience: the base of the geometric discount, > 0 and <= 1.
        kwargs: ``validate_args``: as :class:`RankingMetric`.

    Example:
        >>> import torch, torchrank as tr
        >>> curve = tr.LorenzCurve(num_items=4)
        >>> curve(torch.tensor([[0, 1], [0, 2]]))
        (tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000]), tensor([0.0000, 0.0000, 0.2500, 0.5000, 1.0000]))
    """

    name = "lorenzcurve"
    #: a registry of its own: a curve is not a number, so it is not listed among the measures
    registry: ClassVar[dict[str, type[ListMetric]]] = {}

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        so_far = running_sum(exposure.sort().values)
        return torch.nn.functional.pad(so_far / so_far[-1], (1, 0))

    def compute(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """The curve over the lists of all workers.

        Returns:
            shares of the items, n / N for n = 0, 1, ..., N, and their shares of the exposure: float32 [N + 1] both. The
            latter are NaN if there was no item in any list.

        Raises:
            ValueError: a worker received bad values. The metric can still be updated.
        """
        exposure = super().compute()
        return torch.linspace(0, 1, len(exposure), dtype=exposure.dtype, device=exposure.device), exposure

    def plot(self, curve: tuple[Tensor, Tensor] | None = None, ax: Any = None) -> Any:
        """Draw the share of exposure over the share of items. Needs matplotlib."""
        items, exposure = self.compute() if curve is None else curve
        names = ("Share of items", "Share of exposure")
        return plot_curve((items, exposure, items), ax=ax, label_names=names, name=self.label)
