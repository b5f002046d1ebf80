"""The base class of all measures: a name, parameters, and a label that defines the metric."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

import torchrank.names.labels as labels
from torchrank.layouts.arrange import Batch
from torchrank.layouts.checks import explain
from torchrank.names.arguments import plain, unknown
from torchrank.names.parameters import REQUIRED, Parametrised, bind, integer, of_torchmetrics, signature
from torchrank.names.registry import DATA, KINDS
from torchrank.ranking.intervals import only
from torchrank.state.query_mean import QueryMean
from torchrank.state.scoring import score_batch
from torchrank.state.values import Status, Values


class Measure(Parametrised, QueryMean):
    """A metric with a name and declared arguments, which become attributes, a signature and a label.

    Args:
        top_k: count only the first ``top_k`` ranks; None = all of them.
        process_group, dist_sync_fn, distributed_available_fn, sync_on_compute, dist_sync_on_step, compute_on_cpu,
            compute_with_cache: as :class:`torchmetrics.Metric`.

    Raises:
        TypeError: the class has the name of another measure.
        ValueError: an argument has an unknown name or value.
    """

    #: its name in labels
    name: ClassVar[str] = ""
    #: every measure of a kind by its name
    registry: ClassVar[dict[str, Any]] = {}
    #: its names in other libraries, with the settings that reproduce them, as in ``torchrank/names/names.toml``, which
    #: has those of the measures of this package
    known_as: ClassVar[Mapping[str, Any]] = {}
    #: whether ``score`` returns the numbers of each query that are summed further
    shows_extra: ClassVar[bool] = False
    #: whether it measures recommended lists, and not rankings
    takes_lists: ClassVar[bool] = False
    #: whether it can be cut at a rank; False if a class declares ``top_k: None = None``
    takes_top_k: ClassVar[bool] = True

    #: the cutoff as a share of each list, "10%", or as a cost, "2000tok"; then ``top_k`` is None
    relative: str | None = None

    top_k: int | None = integer(default=None, least=1, kw_only=False)
    process_group: Any = of_torchmetrics(default=None)
    dist_sync_fn: Callable[..., Any] | None = of_torchmetrics(default=None)
    distributed_available_fn: Callable[[], bool] | None = of_torchmetrics(default=None)
    sync_on_compute: bool = of_torchmetrics(default=True)
    dist_sync_on_step: bool = of_torchmetrics(default=False)
    compute_on_cpu: bool = of_torchmetrics(default=False)
    compute_with_cache: bool = of_torchmetrics(default=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "top_k" in cls._class_parameters:
            cls.takes_top_k = cls._class_parameters["top_k"].hint is not None
        # A class with its own registry is the base of a kind of measures.
        if "registry" in cls.__dict__:
            KINDS.append(cls.registry)
        if name := cls.__dict__.get("name"):
            if not re.fullmatch("[a-z][a-z0-9]*", name):
                raise TypeError(f"Expected {cls.__name__}.name to be lower-case letters and digits, got {name!r}")
            # The same class may be defined again, for example in a cell of a notebook.
            if name in cls.registry and not _same(cls.registry[name], cls):
                raise TypeError(f"Expected {cls.__name__} to have a name of its own, got {name!r}; choose another name")
            cls.registry[name] = cls
            if cls.__module__.startswith("torchrank."):
                cls.known_as = DATA["measures"].get(name, {})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if self.name not in self.registry or not _same(self.registry[self.name], type(self)):
            raise TypeError(
                f"Expected {type(self).__name__} to have a name of its own, got {self.name!r}; set the attribute name"
            )
        values, others = bind(type(self), args, kwargs)
        for name in values:
            if callable(getattr(type(self), name, None)):
                raise TypeError(
                    f"Expected {type(self).__name__} to name no parameter like a method, got {name!r}; rename it"
                )
        for name in others:
            if name not in self.declared or not self.declared[name].of_torchmetrics:
                raise ValueError(self._unknown(name))
        action = values.pop("empty_target_action", "skip")  # measures of lists have none: too short lists are skipped
        super().__init__(values.pop("aggregation"), action, values.pop("validate_args"), **others)
        if (top_k := values["top_k"]) is not None and not self.takes_top_k:
            raise ValueError(f"Expected no top_k for {type(self).__name__}, which reads the whole list, got {top_k}")
        catalogue = {name: values.pop(name) for name, declaration in self.declared.items() if declaration.of_catalogue}
        # Attributes come first: the checks of a subclass and its catalogue read them.
        for name, value in values.items():
            setattr(self, name, plain(value))
        self.__post_init__()
        self.begin(self.keep(catalogue))

    def __post_init__(self) -> None:
        """Check arguments against each other. All of them are attributes already. A subclass calls its parent first."""

    def reports(self, value_range: tuple[float, float], higher_is_better: bool | None) -> None:
        """Set a range and a direction of the reported values that differ from the class."""
        low, high = (limit if math.isfinite(limit) else None for limit in value_range)
        bounds = {"value_range": value_range, "plot_lower_bound": low, "plot_upper_bound": high}
        # torchmetrics raises if these attributes are assigned, so they are written to the instance's dict.
        vars(self).update(bounds, higher_is_better=higher_is_better)

    def keep(self, catalogue: dict[str, Any]) -> str:
        """Store the data about a catalogue. Returns its digest, which becomes part of the name of the state."""
        return ""

    @classmethod
    @functools.cache
    def definition(cls) -> dict[str, Any]:
        """The arguments that change the value, with their defaults. The measure's own arguments come first."""
        declared = {
            name: declaration
            for name, declaration in cls.declared.items()
            if declaration.kw_only and declaration.labelled
        }
        return {
            name: declaration.default for name, declaration in declared.items() if declaration.default is not REQUIRED
        }

    def _unknown(self, name: str) -> str:
        """The error message for an unknown argument."""
        known = [x for x in signature(type(self)).parameters if not self.declared[x].of_torchmetrics]
        others = inspect.signature(type(self).update).parameters
        return unknown(type(self).__name__, name, known, others, "pass {}= to update")

    @property
    def label(self) -> str:
        """Name, parameters that differ from their defaults, and cutoff: ``map(normalize=min)@10``."""
        if (label := vars(self).get("_label")) is not None:
            return label
        values = {name: (getattr(self, name), default) for name, default in self.definition().items()}
        differing = {k: v for k, (v, default) in values.items() if not isinstance(v, Tensor) and v != default}
        return labels.write(self.name, differing, self.relative or self.top_k)

    @property
    def definition_name(self) -> str:
        # Without the numbers of namesakes, which depend on the metrics that a process has made before.
        return self.label + self._known

    def begin(self, known: str = "") -> None:
        """Create an empty state. ``known`` identifies data that are not part of the label, such as a catalogue."""
        # Two callables may share a name, and so a label. Their numbers keep the states apart.
        callables = [value for name in self.definition() if callable(value := getattr(self, name))]
        namesakes = "".join(f"#{n}" for value in callables if (n := labels.namesake(value)))
        label = self.label
        self.name_state(label + namesakes + known, self.num_extra_sums)
        self._known, self._label = known, label
        # A changed parameter would make the label, and so the name of the state, wrong.
        self._fixed = self._labelled()

    @classmethod
    @functools.cache
    def _labelled(cls) -> frozenset[str]:
        """The parameters that are part of the label."""
        return frozenset({"top_k", *cls.definition()})

    @functools.cached_property
    def num_extra_sums(self) -> int:
        """Number of further sums in the state, besides the sums of a mean."""
        return 0

    @property
    def weighs_lists(self) -> bool:
        """Whether the weight of a query depends on its list, so that it differs between systems."""
        return False

    def further_sums(self, extra: Any, weights: Tensor) -> Tensor:
        """The further sums [number] of a batch, from ``extra`` of its values, and the final weights [query].

        By default ``extra`` is [number, query], and the sums are those of extra x weight.
        """
        return only(weights > 0, extra * weights).sum(-1)

    def scored(self, batch: Batch, result: Values | None = None, notice: bool = True) -> Any:
        """The return value of ``score`` for a batch. Waits for the device, so ``update`` does not call it.

        Args:
            batch: the batch.
            result: its values; None = they are measured.
            notice: whether to warn of grades that are all below the level of relevance.

        Raises:
            ValueError: the batch has bad values; the error names the first query with them.
        """

        def of(part: Batch) -> Values:
            return score_batch([self], part, total=False)[0]

        of_state, now = self._fractions, self._fractions
        if result is None:
            self._fractions = None
            result = of(batch)
            now, self._fractions = self._fractions, of_state
        if faults := explain(
            result.errors, lambda kind: batch.first(kind, lambda part: of(part).errors), batch.outside
        ):
            raise ValueError(f"{self.label}: {faults}")
        counted = result.status != Status.ABSENT
        if notice:
            self.notice_fractions(int(counted.sum()), int((result.status == Status.EMPTY).sum()), now)
        return self.shown(result)

    def shown(self, result: Values) -> Any:
        """The values that ``score`` returns."""
        return result.values

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot one value, or a list of values over time, with the bounds of the measure. Needs matplotlib."""
        if isinstance(val, list | tuple):
            val = [torch.as_tensor(value, device="cpu") for value in val]
        figure, axes = self._plot(torch.as_tensor(val, device="cpu") if isinstance(val, float) else val, ax)
        axes.set_ylabel(self.label)  # type: ignore[union-attr]
        return figure, axes

    def extra_repr(self) -> str:
        return self.label


def _same(first: type, second: type) -> bool:
    """Whether two classes have the same module and name, for example one defined twice in a notebook."""
    return (first.__module__, first.__qualname__) == (second.__module__, second.__qualname__)
