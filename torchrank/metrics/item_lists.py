"""What measures of recommended lists share: ranked ids, a catalogue, and state that is a sum."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

import torchrank.state.sums as state
from torchrank.engine.ids import found, kept_ids
from torchrank.hardware.devices import widest_float
from torchrank.hardware.threads import GRAIN, available, each, serially
from torchrank.layouts.arrange import arrange
from torchrank.layouts.bad_values import Problem, count
from torchrank.layouts.batch import Batch
from torchrank.layouts.canonical import ALL, BLOCK, RankedIds
from torchrank.layouts.checks import check_tensor
from torchrank.names.arguments import plain
from torchrank.names.parameters import derived, fixed, integer, parameter
from torchrank.names.types import Aggregation, Pairs, Target, call_of
from torchrank.state.measure import Measure
from torchrank.state.scoring import BatchResult, Measured, Measurements, result_for, weigh
from torchrank.state.sums import Sum

#: what a metric keeps of a catalogue, by name
Catalogue = Mapping[str, Tensor | int | None]


@dataclass(frozen=True, eq=False)
class Recommended:
    """The first ranks of some lists."""

    #: int64 [query, position]: ids, and some id of the catalogue where nothing is kept
    ids: Tensor
    #: bool [query, position]: an item is recommended here
    kept: Tensor
    #: int64 [query, position]: its rank in the list
    rank: Tensor
    #: [query, position]: its grade if it is judged, else 0; None if no measure looks at it
    grade: Tensor | None
    #: bool [query]: a label says that the list does not count; None = all do
    ignored: Tensor | None
    #: float, as precise as the device allows, for results
    dtype: torch.dtype

    @property
    def length(self) -> Tensor:
        """Number of items in each list: float64 [query]."""
        return self.kept.sum(-1).to(self.dtype)

    def rows(self, start: int, stop: int) -> Recommended:
        """Some consecutive queries."""
        names = ("ids", "kept", "rank", "grade", "ignored")
        cut: dict[str, Any] = {name: getattr(self, name) for name in names}
        cut = {name: None if x is None else x[start:stop] for name, x in cut.items()}
        return replace(self, **cut)

    def mean(self, x: Tensor) -> Tensor:
        """Mean of values [query, position] over each list: float64 [query]; NaN of an empty one."""
        return torch.where(self.kept, x.to(self.dtype), 0.0).sum(-1) / self.length


class ListMetric(Measure):
    """Base of measures that look at recommended lists alone: ids, best first, and what is known of the catalogue.

    A subclass declares tensors that describe the catalogue, ``interactions: Tensor = described()``, and says in
    :meth:`describe` what it keeps of them. They are no part of the label; their digest is part of the name of the
    state, so that metrics with other ones are never taken for the same.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        aggregation: as :class:`RankingMetric`.
        validate_args: count bad values (ids outside the catalogue or twice in a list) and raise for them in
            ``compute``. Without it ids outside the catalogue are no items.
        process_group, dist_sync_fn, distributed_available_fn, sync_on_compute, dist_sync_on_step, compute_on_cpu,
            compute_with_cache: as :class:`torchmetrics.Metric`.

    Raises:
        ValueError: an argument has a value that the metric does not know.
    """

    #: every measure by its name
    registry: ClassVar[dict[str, type[ListMetric]]] = {}
    #: whether it compares lists with targets
    needs_target: ClassVar[bool] = False
    #: lists with fewer items have no value, and no part in the result
    fewest: ClassVar[int] = 1

    aggregation: Aggregation = parameter(default="mean")
    validate_args: bool = parameter(default=True, labelled=False)
    num_items: int | None = derived()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # A constructor of its own may give behind top_k what describe would return, instead of tensors by name.
        self._catalogue = args[1:] if len(args) == 3 else ()
        super().__init__(*(args[:1] if self._catalogue else args), **kwargs)

    def describe(self, *args: Any, **catalogue: Any) -> tuple[Catalogue, int | None]:
        """What is kept of the catalogue, and how many items it has, so that ids are smaller; None = any id.

        It gets the tensors that are declared as ``described()``, by name. Other arguments are attributes already. What
        it returns becomes attributes, of which the tensors are buffers that follow the metric to its device; they are
        kept, not copied.
        """
        return {}, None

    def keep(self, catalogue: dict[str, Any]) -> str:
        kept, self.num_items = self._catalogue or self.describe(**catalogue)
        del self._catalogue
        for name, value in kept.items():
            if value is None or isinstance(value, Tensor):
                self.register_buffer(name, None if value is None else value.detach(), persistent=False)
            else:
                setattr(self, name, plain(value))
        return f"#{digest(*kept.values(), self.num_items)}"

    def width(self, lists: Recommended) -> int:
        """Elements that :meth:`measure` makes for each position, so that temporaries stay small."""
        return 1

    def measure(self, lists: Recommended) -> Tensor:
        """The formula: float64 [query]. Whatever it says of a list with too few items is not looked at."""
        raise NotImplementedError

    # ---- add ---------------------------------------------------------------------------------------------------

    def update(
        self,
        preds: Tensor,
        target: Target | None = None,
        *,
        mask: Tensor | None = None,
        exclude: Pairs | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Add the lists of some users.

        Args:
            preds: int [query, position], ids of a ranked list, best first; negative = padding.
            target: relevant ids, as :meth:`torchrank.RankingMetric.update` takes them beside ids. Only looked at where
                the measure needs it, to tell what ``exclude`` leaves, or for a label of -100: that list does not count.
            mask: bool like ``preds``, True for real candidates.
            exclude: (query, item) tuple of 1-D tensors, or a list of one id tensor per query: these are no candidates,
                unless they are relevant.
            weights: [query], finite and >= 0: how much each list counts; 0 = as if it were not there.

        Raises:
            TypeError: ``preds`` are no ids.
            ValueError: shapes do not fit together. Bad values are counted and raise in :meth:`compute`.
        """
        batch = Batch(preds, target, weights, {"mask": mask, "exclude": exclude})
        self.accumulate(result_for(self) or self.of_batch(batch))

    def of_batch(self, batch: Batch) -> BatchResult:
        preds = batch.preds
        check_tensor(preds, "preds", f"integer ids [query, position] for {self.label}")
        with torch.no_grad():
            return serially(preds.device, preds.numel(), self._scored, batch)

    def _scored(self, batch: Batch) -> BatchResult:
        preds, options = batch.preds, batch.options
        lists, errors = self.recommended(preds, batch.target, options["mask"], options["exclude"])
        queries, elements = len(lists.ids), max(1, lists.ids.shape[1] * max(1, self.width(lists)))
        threads = available() if queries * elements > GRAIN and preds.device.type == "cpu" else 1
        step = max(1, min(BLOCK // elements, -(-queries // threads)))
        starts = range(0, max(1, queries), step)
        values = torch.cat(each(lambda start: self.measure(lists.rows(start, start + step)), starts))
        empty = lists.length < self.fewest
        values = torch.where(empty, float("nan"), values)
        errors = errors if self.validate_args else torch.zeros_like(errors)
        measured = Measured(values, torch.ones_like(values), empty.to(torch.int8), errors)
        (result,) = weigh([self], Measurements.of([measured], None), batch.weights, lists.ignored)
        return self.with_extra_sums(result, lists)

    def with_extra_sums(self, result: BatchResult, lists: Recommended) -> BatchResult:
        """The result of a batch with the :attr:`more` numbers that it adds to the state."""
        return result

    def recommended(self, preds: Any, target: Any, mask: Any, exclude: Any) -> tuple[Recommended, Tensor]:
        """The first ranks of the lists, checked, and counters of bad values."""
        if preds.is_floating_point() or preds.dtype == torch.bool:
            raise TypeError(
                f"Expected integer ids [query, position] for {self.label}, best first, got {preds.dtype}: of scores,"
                " pass scores.topk(k).indices"
            )
        if preds.dim() != 2:
            raise ValueError(f"Expected ids [query, position] for {self.label}, got shape {list(preds.shape)}")
        if self.needs_target and target is None:
            raise ValueError(f"Expected target for {self.label}, the relevant ids of each list, got None")
        if not self.needs_target and exclude is None and not _labels(target, preds):
            target = None
        given = preds.new_full((len(preds),), -1, dtype=torch.int64) if target is None else target
        lists = arrange(preds, given, mask=mask, exclude=exclude, validate=self.validate_args)
        assert isinstance(lists, RankedIds)
        parts = [self._judged(block) for block in lists.blocks(ALL)]  # type: ignore[arg-type]
        kept, grades = (torch.cat(x) for x in ([part[n] for part in parts] for n in (0, 1)))
        errors = torch.stack([part[2] for part in parts]).sum(0)
        rank = kept.cumsum(-1)
        if self.num_items is not None:
            outside = kept & (lists.ids >= self.num_items)
            errors = errors + count(Problem.OUT_OF_RANGE, outside, lists.ignored)
            kept = kept & ~outside
        if self.top_k is not None:
            kept = kept & (rank <= self.top_k)
        ids = torch.where(kept, lists.ids, 0)
        grade = grades if self.needs_target else None
        return Recommended(ids, kept, rank, grade, lists.ignored, widest_float(ids.device)), errors

    def _judged(self, lists: RankedIds) -> tuple[Tensor, Tensor, Tensor]:
        """Positions that hold a candidate, bool; its grade, both [query, position]; and counters of bad values."""
        items, grade = lists.judged.rectangle()
        kept, _, errors = kept_ids(lists, items, grade)
        grades = grade.new_zeros((len(kept), kept.shape[1] + 1 if self.needs_target else 0))
        if self.needs_target:  # the first column is for what is in no list
            at = found(items, torch.where(kept, lists.ids, -1))
            grades = grades.scatter(1, at, grade)[:, 1:]
        return kept, grades, errors

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        if any(x is known for known in self._buffers.values()):
            return x.to(device, dtype=widest_float(device) if x.dtype == torch.float64 else x.dtype)
        return super().moved(x, device)

    if TYPE_CHECKING:

        @call_of(update, Tensor)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class PerUserMetric(ListMetric):
    """A measure that has a value for every list: their mean, or another aggregate, is reported."""

    def score(
        self,
        preds: Tensor,
        target: Target | None = None,
        *,
        mask: Tensor | None = None,
        exclude: Pairs | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """The value of each list, float64 [query], without touching the state; NaN of what has too few items.

        Raises:
            TypeError, ValueError: as :meth:`update`, which takes the same, and for bad values at once.
        """
        batch = Batch(preds, target, weights, {"mask": mask, "exclude": exclude})
        return self.scored(self.of_batch(batch), batch)


class ExposureMetric(ListMetric):
    """A measure of how often each item of the catalogue is recommended: its state has a number for every item.

    Sums of whole numbers are exact under any split of the lists; with discounts or weights, up to rounding.
    """

    num_items: int = integer(least=1)
    aggregation: Aggregation = fixed("mean", "which has no value for each list")

    def describe(self) -> tuple[Catalogue, int]:
        return {}, self.num_items

    @property
    def num_extra_sums(self) -> int:
        return self.num_items

    def amounts(self, lists: Recommended, weights: Tensor) -> Tensor:
        """What each position adds to its item, in lists of these weights [query]: float64 [query, position]."""
        return weights.unsqueeze(-1).expand(lists.ids.shape)

    def of_exposure(self, exposure: Tensor, sums: Tensor) -> Tensor:
        """The formula, on what each item has got, float64 [item], and :class:`Sum` of the lists: float64 []."""
        raise NotImplementedError

    def measure(self, lists: Recommended) -> Tensor:
        return torch.zeros_like(lists.length)

    def with_extra_sums(self, result: BatchResult, lists: Recommended) -> BatchResult:
        amounts = torch.where(lists.kept, self.amounts(lists, result.weights), 0.0)
        exposure = torch.zeros(self.num_extra_sums, dtype=lists.dtype, device=lists.ids.device)
        exposure.index_add_(0, lists.ids.flatten(), amounts.flatten())
        return replace(result, sums=torch.cat([result.sums, exposure]))

    def result(self, sums: Tensor) -> Tensor:
        value = self.of_exposure(sums[state.SIZE :], sums)
        return torch.where(sums[Sum.W] > 0, value, float("nan"))

    @property
    def standard_error(self) -> Tensor:
        """NaN: it is no mean over queries."""
        return torch.tensor(float("nan"), dtype=torch.float32, device=self.device)


def _labels(target: object, preds: Tensor) -> bool:
    """Whether a target has one label for each list, which may say that the list does not count."""
    return (
        isinstance(target, Tensor)
        and not target.is_nested
        and target.shape == preds.shape[:1]
        and not target.is_floating_point()
    )


def digest(*data: Tensor | int | None) -> str:
    """A short name for the contents of tensors and numbers, the same in every process. Reads them all."""
    found = hashlib.blake2b(digest_size=4)
    for x in data:
        if isinstance(x, Tensor):
            found.update(f"{x.dtype}{list(x.shape)}".encode())
            for block in x.detach().contiguous().flatten().view(torch.uint8).split(2**24):
                found.update(block.cpu().numpy())
        else:
            found.update(f"{x};".encode())
    return found.hexdigest()
