"""Base class for measures of exposure or attention, which depend on the rank by a discount."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from torchrank.formulas.gains import Geometric, discount_of
from torchrank.names.parameters import number, one_of
from torchrank.state.metric import Measure

#: the worth of a rank, by name or from ranks
Discount = Literal["none", "log2", "clipped", "reciprocal", "geometric"] | Callable[[Tensor], Tensor]


class RankDiscount(Measure):
    """A measure with a discount of the user's choice.

    Args:
        discount: the weight of a rank, such as its exposure or attention: "none", 1 at every rank; "log2", 1 / log2(1 +
            rank); "clipped", 1 / log2(max(rank, 2)); "reciprocal", 1 / rank; "geometric", patience ** (rank - 1); or a
            callable with a name, from ranks float64.
        patience: the base of the geometric discount, > 0 and <= 1.

    Raises:
        ValueError: an unknown discount, a patience out of range, or a patience with another discount.
    """

    discount: Discount = one_of(default="none")
    patience: float = number(default=0.5, above=0, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discount != "geometric" and self.patience != self.declared["patience"].default:
            raise ValueError(
                f"Expected patience only with discount='geometric', got {self.patience} with {self.discount!r}"
            )

    @property
    def discount_function(self) -> Callable[[Tensor], Tensor]:
        """The function from ranks to discounts."""
        return Geometric(self.patience) if self.discount == "geometric" else discount_of(self.discount)
