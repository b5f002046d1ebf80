"""Base classes for measures of recommended lists: ranked ids, what is known of items, and a state of sums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

import torchrank.state.sums as state
from torchrank.engine.rank_layout import chunks, cut
from torchrank.formulas.gains import Geometric, discount_of
from torchrank.hardware.devices import ascending, eager, in_batch, widened, widest_float
from torchrank.layouts.arrange import Batch, arrange
from torchrank.layouts.canonical import ALL, BLOCK, RankedIds
from torchrank.layouts.checks import Problem, check_tensor, count, tensor_of, type_of
from torchrank.layouts.conversions import HELD, found, listed_ids
from torchrank.names.arguments import plain
from torchrank.names.parameters import derived, fixed, flag, integer, number, one_of
from torchrank.names.types import Aggregation, Array, Pairs, Repeats, Target, call_of
from torchrank.ranking.ranking import run_starts
from torchrank.state.metric import Measure
from torchrank.state.scoring import Values, score_batch
from torchrank.state.sums import Sum
from torchrank.state.waiting import bulk

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


def item_numbers(name: str, values: Any) -> Tensor:
    """A number for each item of the catalogue, checked: float64 [item].

    Raises:
        ValueError: it is not a 1-D tensor of one or more finite numbers >= 0.
    """
    if not isinstance(values, Tensor) or values.dim() != 1 or values.is_complex():
        raise ValueError(
            f"Expected {name} to be a tensor [item], a number for each item of the catalogue,"
            f" got {kind_of(values, name)}"
        )
    numbers = widened(values.detach())
    if not len(numbers) or not bool((numbers.isfinite() & (numbers >= 0)).all()):
        raise ValueError(f"Expected {name} to be one or more finite numbers >= 0, got other values or none")
    return numbers


def item_flags(name: str, values: Any, true: str) -> Tensor:
    """A flag for each item of the catalogue, checked: bool [item]. ``true`` names the items of True.

    Raises:
        TypeError: it is not a 1-D bool tensor.
    """
    if not isinstance(values, Tensor) or values.dim() != 1 or values.dtype != torch.bool:
        raise TypeError(f"Expected {name} to be bool [item], True for {true}, got {kind_of(values, name)}")
    return values


def item_categories(values: Any, several: bool = True) -> Tensor:
    """The categories of each item, checked: integer [item], or bool [item, category] if there can be ``several``.

    Raises:
        TypeError: another shape or dtype, no items, or no categories.
    """
    there = isinstance(values, Tensor) and values.numel() > 0
    single = there and values.dim() == 1 and is_integer(values)
    if not single and not (there and several and values.dim() == 2 and values.dtype == torch.bool):
        wanted = "integer [item] or bool [item, category]" if several else "integer [item]"
        raise TypeError(f"Expected categories to be {wanted}, got {kind_of(values, 'categories')}")
    return values


def item_embeddings(values: Any) -> Tensor:
    """An embedding of each item, checked: floating [item, dimension].

    Raises:
        TypeError: another shape or dtype, or no items.
        ValueError: a number is not finite.
    """
    if not isinstance(values, Tensor) or values.dim() != 2 or not values.is_floating_point() or not len(values):
        raise TypeError(f"Expected embeddings to be floating [item, dimension], got {kind_of(values, 'embeddings')}")
    if not bool(values.isfinite().all()):
        raise ValueError("Expected embeddings to be finite numbers, got NaN or infinite ones")
    return values


def is_integer(x: Tensor) -> bool:
    """Whether a tensor has an integer dtype; bool is none."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def kind_of(x: object, name: str) -> str:
    """For an error: the dtype and shape of a tensor; the type of any other object, and the call that converts it."""
    return f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else type_of(x, name)


#: attributes of a metric that describe its catalogue, by name
Catalogue = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Recommended:
    """The first ranks of some lists."""

    #: int64 [query, position]: item ids; an arbitrary id of the catalogue where ``is_item`` is False
    ids: Tensor
    #: bool [query, position]: whether an item is recommended at this position
    is_item: Tensor
    #: int64 [query, position]: the rank of the item in the list
    rank: Tensor
    #: [query, position]: the grade of the item, 0 if it has none; [query, 0] if the measure needs no target
    grade: Tensor
    #: [query, ...]: the result of :meth:`ListMetric.of_target`; None if the measure reads none
    from_target: Any
    #: bool [query]: whether a label excludes the list; None = all lists count
    ignored: Tensor | None
    #: dtype of results: the most precise float of the device
    dtype: torch.dtype

    @property
    def length(self) -> Tensor:
        """Number of items in each list: float64 [query]."""
        return self.is_item.sum(-1).to(self.dtype)

    def rows(self, start: int, stop: int) -> Recommended:
        """The lists of consecutive queries."""
        names = ("ids", "is_item", "rank", "grade", "from_target", "ignored")
        return replace(self, **{name: x[start:stop] for name in names if (x := getattr(self, name)) is not None})

    def mean(self, x: Tensor) -> Tensor:
        """Mean of ``x`` [query, position] over each list: float64 [query]; NaN for an empty list."""
        return torch.where(self.is_item, x.to(self.dtype), 0.0).sum(-1) / self.length

    def distinct(self, x: Tensor) -> Tensor:
        """Number of different values of ``x`` in each list, int64 [query, position], all >= 0: float64 [query]."""
        ordered = ascending(torch.where(self.is_item, x, -1))
        return (run_starts(ordered) & (ordered >= 0)).sum(-1).to(self.dtype)


class ListMetric(Measure):
    """Base of measures that read only recommended lists: ids, best first, and data about the catalogue.

    A subclass declares tensors that describe the catalogue, ``interactions: Tensor = described()``. Its
    ``describe`` returns the attributes to keep. The tensors are not part of the label. Their digest is part of the
    name of the state, so metrics with different catalogues never share a state.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        aggregation: as :class:`RankingMetric`.
        validate_args: count bad values (ids outside the catalogue or twice in a list) and raise for them in
            ``compute``. If False, ids outside the catalogue are dropped.
        process_group, dist_sync_fn, distributed_available_fn, sync_on_compute, dist_sync_on_step, compute_on_cpu,
            compute_with_cache: as :class:`torchmetrics.Metric`.

    Raises:
        ValueError: an argument has an unknown value.
    """

    #: every measure by its name
    registry: ClassVar[dict[str, type[ListMetric]]] = {}
    takes_lists, leaves_out_empty_lists = True, False
    #: whether the measure compares lists with targets
    needs_target: ClassVar[bool] = False
    #: whether the measure reads lists with repeated ids as they are
    takes_repeats: ClassVar[bool] = False
    #: lists with fewer items have no value and are left out of the result
    fewest: ClassVar[int] = 1

    #: too short lists are skipped
    empty_target_action = "skip"
    aggregation: Aggregation = one_of(default="mean")
    validate_args: bool = flag(default=True, labelled=False)
    num_items: int | None = derived()

    def describe(self, *args: Any, **catalogue: Any) -> tuple[Catalogue, int | None]:
        """The attributes to keep of the catalogue, and its number of items; None = any id is valid.

        The arguments are the tensors declared as ``described()``, by name. All other arguments of the constructor are
        attributes already. The values returned become attributes. Tensors among them become buffers, which move to the
        device of the metric. They are kept, not copied.
        """
        return {}, None

    def keep(self, catalogue: dict[str, Any]) -> str:
        catalogue = {name: tensor_of(x) for name, x in catalogue.items()}
        attributes, self.num_items = self.describe(**catalogue)
        for name, value in attributes.items():
            if value is None or isinstance(value, Tensor):
                self.register_buffer(name, None if value is None else value.detach(), persistent=False)
            else:
                setattr(self, name, plain(value))
        return f"#{digest(*attributes.values(), self.num_items)}"

    def width(self, lists: Recommended) -> int:
        """Number of elements that :meth:`measure` makes for each position, to bound temporary memory."""
        return 1

    def of_target(self, items: Tensor, grade: Tensor) -> Tensor | None:
        """Ranking of the whole target of each list: [query, ...]; None if the measure reads none.

        Args:
            items: int64 [query, entry], the ids of the target; negative = padding, or outside the catalogue.
            grade: [query, entry].
        """
        return None

    def empty(self, lists: Recommended) -> Tensor:
        """bool [query]: lists without a value, which are left out of the result."""
        return lists.length < self.fewest

    def weight(self, lists: Recommended) -> Tensor | None:
        """float64 [query]: the weight of each list in the mean, to be multiplied by the user's; None = 1 for each."""
        return None

    def measure(self, lists: Recommended) -> Tensor:
        """The formula: float64 [query]. Values of empty lists are discarded."""
        raise NotImplementedError

    # ---- add ---------------------------------------------------------------------------------------------------

    @eager
    @bulk
    def update(
        self,
        preds: Array,
        target: Target | None = None,
        *,
        mask: Array | None = None,
        exclude: Pairs | None = None,
        repeats: Repeats = "error",
        weights: Array | None = None,
    ) -> None:
        """Add the lists of some users.

        Args:
            preds: int [query, position], ids of a ranked list, best first; negative = padding.
            target: relevant ids, as in :meth:`torchrank.RankingMetric.update` beside ids. It is read if the measure
                needs it, to keep relevant items from ``exclude``, or for labels of -100. Such a list does not count.
            mask: bool like ``preds``, or [position]; True for real candidates.
            exclude: (query, item) tuple of 1-D tensors, or a list of one id tensor per query: pairs that are not
                candidates unless they are relevant.
            repeats: as in :meth:`torchrank.RankingMetric.update`.
            weights: [query], finite and >= 0: the weight of each list; a list of weight 0 does not count.

        Raises:
            TypeError: ``preds`` is not a tensor of integer ids.
            ValueError: shapes do not fit together. Bad values are counted and raise in :meth:`compute`.
        """
        batch = Batch(preds, target, weights, mask, exclude=exclude, repeats=repeats)
        self.accumulate(score_batch([self], batch, values=False))

    def per_query(self, batch: Batch) -> Values:
        """The values of the lists of a batch. Its weights are not read."""
        preds = batch.preds
        check_tensor(preds, "preds", f"integer ids [query, position] for {self.label}")
        if batch.groups is not None:
            raise ValueError(f"Expected no groups for {self.label}, which reads items; update it by itself")
        with torch.no_grad(), in_batch(preds.device, preds.numel()):
            lists, errors = self.recommended(preds, batch.target, batch.mask, batch.exclude, batch.repeats)
            queries, elements = len(lists.ids), lists.ids.shape[1] * self.width(lists)
            step = max(1, BLOCK // elements)  # bounds the temporary memory
            values = torch.cat([self.measure(lists.rows(n, n + step)) for n in range(0, max(1, queries), step)])
            empty = self.empty(lists)
            errors = errors if self.validate_args else torch.zeros_like(errors)
            extra = lists if self.num_extra_sums else None
            return Values(values, empty.to(torch.int8), errors, self.weight(lists), extra, ignored=lists.ignored)

    def recommended(self, preds: Any, target: Any, mask: Any, exclude: Any, repeats: str) -> tuple[Recommended, Tensor]:
        """The first ranks of the lists, checked, and counts of bad values."""
        if preds.is_floating_point() or preds.dtype == torch.bool:
            raise TypeError(
                f"Expected integer ids [query, position] for {self.label}, best first, got {preds.dtype}; pass"
                " scores.topk(k).indices instead of scores"
            )
        if preds.dim() != 2:
            raise ValueError(f"Expected ids [query, position] for {self.label}, got shape {list(preds.shape)}")
        if self.needs_target and target is None:
            raise ValueError(f"Expected target for {self.label}, the relevant ids of each list, got None")
        if not self.needs_target and exclude is None and not _labels(target, preds):
            target = None
        # Without a target, every list gets the id -1, which means that nothing is relevant.
        relevant = preds.new_full((len(preds),), -1, dtype=torch.int64) if target is None else target
        repeats = "error" if self.takes_repeats else repeats
        lists = arrange(preds, relevant, mask=mask, exclude=exclude, repeats=repeats, validate=self.validate_args)
        assert isinstance(lists, RankedIds)
        kepts, grades, targets, counts = zip(*map(self._judged, cut(lists, chunks(lists, ALL))))
        is_item, grade = torch.cat(kepts), torch.cat(grades)
        from_target = None if targets[0] is None else torch.cat(targets)
        errors = torch.stack(counts).sum(0)
        if self.takes_repeats:
            errors = torch.where(torch.arange(len(errors), device=errors.device) == Problem.DUPLICATE_IDS, 0, errors)
        rank = is_item.cumsum(-1)  # counted before ids outside the catalogue are dropped, so the other ids keep theirs
        is_item = is_item & (lists.ids < HELD)
        if self.num_items is not None:
            outside = is_item & (lists.ids >= self.num_items)
            errors = errors + count(Problem.OUT_OF_RANGE, outside, lists.ignored)
            is_item = is_item & ~outside
        if self.top_k is not None:
            is_item = is_item & (rank <= self.top_k)
        ids = torch.where(is_item, lists.ids, 0)
        return Recommended(ids, is_item, rank, grade, from_target, lists.ignored, widest_float(ids.device)), errors

    def _judged(self, lists: RankedIds) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Whether a position has a candidate, bool, and its grade; :meth:`of_target`; and counts of bad values."""
        items, grade = lists.judged.rectangle()
        ids, _, errors = listed_ids(lists, items, grade)
        is_item = ids >= 0
        grades = grade.new_zeros((len(is_item), is_item.shape[1] + 1 if self.needs_target else 0))
        if self.needs_target:
            # Column 0 absorbs the grades of judged items that are not in the list.
            column = found(items, ids)
            grades = grades.scatter(1, column, grade)[:, 1:]
        outside = torch.zeros_like(items, dtype=torch.bool) if self.num_items is None else items >= self.num_items
        from_target = self.of_target(items.masked_fill(outside, -1), grade) if self.needs_target else None
        if from_target is not None:
            errors = errors + count(Problem.OUT_OF_RANGE, outside, lists.ignored)
        return is_item, grades, from_target, errors

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        # The catalogue keeps its precision: integers and float32 stay, float64 becomes the widest float of the device.
        if any(x is known for known in self._buffers.values()):
            return x.to(device, dtype=widest_float(device) if x.dtype == torch.float64 else x.dtype)
        return super().moved(x, device)

    if TYPE_CHECKING:

        @call_of(update, Tensor)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class PerUserMetric(ListMetric):
    """A measure with a value for every list. Their mean or another aggregate is reported."""

    @eager
    def score(
        self,
        preds: Array,
        target: Target | None = None,
        *,
        mask: Array | None = None,
        exclude: Pairs | None = None,
        repeats: Repeats = "error",
        weights: Array | None = None,
    ) -> Tensor:
        """The value of each list, float64 [query]; NaN for a list with too few items. The state stays as it is.

        Raises:
            TypeError, ValueError: as :meth:`update`, which takes the same arguments; for bad values at once.
        """
        return self.scored(Batch(preds, target, weights, mask, exclude=exclude, repeats=repeats))


class ExposureMetric(ListMetric):
    """A measure of how often each item of the catalogue is recommended.

    Its state has one number for every item. Without discounts and weights these are whole numbers, so their sums are
    exact for any split of the lists. With discounts or weights they are exact up to rounding.
    """

    num_items: int = integer(least=1)
    aggregation: Aggregation = fixed("mean", "which has one value for all lists")

    def __getattr__(self, name: str) -> Any:
        if name == "score":
            raise AttributeError(f"Expected no score of {self.label}, which has one value for all lists; use compute()")
        return super().__getattr__(name)

    def describe(self, *args: Any, **catalogue: Any) -> tuple[Catalogue, int]:
        return {}, self.num_items

    @property
    def num_extra_sums(self) -> int:
        return self.num_items

    def amounts(self, lists: Recommended, weights: Tensor) -> Tensor:
        """Exposure that each position gives its item, for lists with ``weights`` [query]: float64 [query, position]."""
        return weights.unsqueeze(-1).expand(lists.ids.shape)

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        """The formula: float64 [], from the exposure of each item, float64 [item], and the further sums."""
        raise NotImplementedError

    def measure(self, lists: Recommended) -> Tensor:
        return torch.zeros_like(lists.length)

    def further_sums(self, lists: Recommended, weights: Tensor) -> Tensor:
        amounts = torch.where(lists.is_item, self.amounts(lists, weights), 0.0)
        exposure = torch.zeros(self.num_extra_sums, dtype=lists.dtype, device=lists.ids.device)
        return exposure.index_add_(0, lists.ids.flatten(), amounts.flatten())

    def result(self, sums: Tensor) -> Tensor:
        value = self.of_exposure(sums[state.SIZE :], sums)
        return torch.where(sums[Sum.W] > 0, value, float("nan"))

    def error_of(self, sums: Tensor) -> Tensor:
        """NaN, because the value is not a mean over queries."""
        return torch.full_like(sums[..., Sum.W], float("nan"))


def _labels(target: object, preds: Tensor) -> bool:
    """Whether a target has one label for each list. A label of -100 excludes its list."""
    if not isinstance(target, Tensor) or target.is_nested:
        return False
    return target.shape == preds.shape[:1] and not target.is_floating_point()


def digest(*data: Tensor | int | None) -> str:
    """A short digest of the contents of tensors and numbers, equal in every process. Reads all values."""
    hashed = hashlib.blake2b(digest_size=4)
    for x in data:
        if isinstance(x, Tensor):
            hashed.update(f"{x.dtype}{list(x.shape)}".encode())
            for block in x.detach().contiguous().flatten().view(torch.uint8).split(2**24):
                hashed.update(block.cpu().numpy())
        else:
            hashed.update(f"{x};".encode())
    return hashed.hexdigest()
