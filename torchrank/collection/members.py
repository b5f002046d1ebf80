"""The elements of a collection: keys and metrics, and the part of a batch for metrics of other libraries."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection

from torchrank.layouts.checks import excluded_pairs
from torchrank.names.labels import split
from torchrank.names.parse import parse_all
from torchrank.state.metric import Measure, SafeMetric

#: torchmetrics' metrics of single scores, by their names in a collection
POINTWISE: dict[str, Callable[[], Metric]] = {
    "mae": MeanAbsoluteError,
    "mse": MeanSquaredError,
    "rmse": functools.partial(MeanSquaredError, squared=False),
}


class Pointwise:
    """The arguments for the metrics of other libraries in a collection, without candidates that are hidden.

    ``mask`` and ``exclude`` hide candidates. A metric whose ``update`` has these arguments receives all elements. Any
    other metric receives scores, targets and ``indexes`` of the candidates that are left, flat. Without ``mask`` and
    ``exclude`` tensors keep their shape. Other keywords that ``update`` does not have are left out, except weights,
    which are an error there.

    Args:
        preds: scores.
        target: a value for each score.
        keywords: the keywords given to :meth:`torchrank.RankingCollection.update`.
    """

    def __init__(self, preds: Any, target: Any, keywords: dict[str, Any]) -> None:
        self.preds, self.target, self.keywords = preds, target, keywords

    def arguments_of(self, metric: Metric) -> tuple[tuple[Any, Any], dict[str, Any]]:
        """The arguments and keywords for ``metric.update``.

        Raises:
            TypeError, ValueError: the metric needs a target for each score, or an argument that is not there; or it
                takes no weights.
        """
        name, alone = type(metric).__name__, "update it by itself, or leave it out of this collection"
        # An update without such an argument would count padding and excluded candidates.
        hiding = [x for x in ("mask", "exclude") if x in self.keywords and not _takes(metric, x)]
        if hiding or _of(metric, "regression"):
            beside = {"mask": "a mask", "exclude": "exclude"}[hiding[0]] if hiding else "scores"
            _check(metric, self.preds, self.target, beside)
        elif _of(metric, "classification", "retrieval") and not isinstance(self.target, Tensor):
            raise ValueError(f"Expected target to be a tensor for {name}, got a {type(self.target).__name__}; {alone}")
        if "weights" in self.keywords and not _takes(metric, "weights"):
            raise ValueError(f"Expected no weights for {name}, whose update takes none, got weights; {alone}")
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        needed = [p for p in metric._update_signature.parameters.values() if p.kind in kinds][2:]
        needed = [p for p in needed if p.default is inspect.Parameter.empty]
        if missing := [p.name for p in needed if p.name not in self.keywords]:
            rows = "pass flat rows preds, target and indexes, " if missing == ["indexes"] else ""
            raise ValueError(f"Expected {missing[0]} for {name}, got none; {rows}{alone}")
        try:
            preds, target, keywords = self.left if hiding else (self.preds, self.target, self.keywords)
        except ValueError as error:
            raise ValueError(f"{error}, for {name}") from None
        if _of(metric, "regression") and target.dtype == torch.bool:
            target = target.to(preds.dtype)  # a difference of bool has no meaning in torch
        return (preds, target), metric._filter_kwargs(**keywords) if keywords else {}

    @functools.cached_property
    def left(self) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Scores, targets and keywords of the candidates that are not hidden, selected once. Reads the mask."""
        preds, target = self.preds, self.target.to(self.preds.device)
        there = torch.ones_like(preds, dtype=torch.bool)
        if "mask" in self.keywords:
            there = _like(preds, self.keywords["mask"], "mask").bool()
        if "exclude" in self.keywords:
            if preds.dim() != 2:
                raise ValueError(
                    "Expected no exclude for flat rows, got exclude; leave the rows out, or pass mask [row]"
                )
            pairs, _ = excluded_pairs(self.keywords["exclude"], preds)  # our metrics count its bad values
            if pairs is not None:
                query, item = pairs.query[pairs.query >= 0], pairs.item[pairs.query >= 0]
                there = there.index_put((query, item), there[query, item] & (target[query, item] > 0))
        keywords = dict(self.keywords)
        if "indexes" in keywords:
            keywords["indexes"] = _like(there, keywords["indexes"], "indexes")[there]
        return preds[there], target[there], keywords


def _takes(metric: Metric, argument: str) -> bool:
    """Whether ``update`` of a metric has an argument, or any keyword arguments."""
    parameters = metric._update_signature.parameters
    return argument in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _of(metric: Metric, *packages: str) -> bool:
    """Whether a metric is of some packages of torchmetrics. Those of "regression" compare each score with a value."""
    names = tuple(f"torchmetrics.{package}" for package in packages)
    return any(cls.__module__.startswith(names) for cls in type(metric).__mro__)


def _check(metric: Metric, preds: Any, target: Any, beside: str) -> None:
    name = type(metric).__name__
    if _of(metric, "regression") and isinstance(preds, Tensor) and not preds.is_floating_point():
        raise TypeError(
            f"Expected floating point scores for {name}, got ranked ids of {preds.dtype};"
            " update it by itself, or leave it out of this collection"
        )
    if not isinstance(preds, Tensor) or not isinstance(target, Tensor) or target.shape != preds.shape:
        shape = list(preds.shape) if isinstance(preds, Tensor) else type(preds).__name__
        got = f"shape {list(target.shape)}" if isinstance(target, Tensor) else f"a {type(target).__name__}"
        raise ValueError(
            f"Expected target of preds' shape {shape}, a value for each score, with {beside} for {name}, got {got};"
            " update it by itself, or leave it out of this collection"
        )


def _like(preds: Tensor, x: Any, name: str) -> Tensor:
    if not isinstance(x, Tensor) or x.shape != preds.shape:
        got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"Expected {name} of preds' shape {list(preds.shape)}, got {got}")
    return x.to(preds.device)


#: a name, or several names in one string; a metric; or a collection
Member = str | Metric | MetricCollection

#: the elements of a collection
Metrics = Member | Iterable[Member] | Mapping[str, Member]


def several(metrics: object) -> TypeGuard[Iterable[Any]]:
    """Whether the elements of a collection are given as an iterable, for example a list, or a ListConfig of Hydra."""
    # torchmetrics.Metric has an `__iter__`, which raises.
    return isinstance(metrics, Iterable) and not isinstance(metrics, str | bytes | Mapping | Metric | MetricCollection)


def keyed(metrics: Metrics, *more: Member, options: Mapping[str, Any] | None = None) -> Iterator[tuple[str, Metric]]:
    """The keys and metrics of all arguments of a collection.

    Args:
        metrics: names, metrics or collections.
        more: further ones.
        options: arguments of :class:`torchmetrics.Metric` for metrics that are given by their names.

    Raises:
        ValueError: an element is none of these, needs arguments that a collection does not pass, or was made with other
            options; or names of XGBoost are beside names that mean something else there.
    """
    options = options or {}
    if isinstance(metrics, Mapping) and not isinstance(metrics, MetricCollection):
        for key, value in metrics.items():
            pairs = _metrics(value, options)
            if len(pairs) != 1 and not isinstance(value, MetricCollection):
                raise ValueError(f"Expected one metric for key {key!r}, got {len(pairs)}: {value!r}")
            for name, metric in pairs:
                yield f"{key}_{name}" if isinstance(value, MetricCollection) else str(key), metric
        arguments: tuple[Any, ...] = more
        check_one_library([*metrics.values(), *more])
    else:
        arguments = (*metrics, *more) if several(metrics) else (metrics, *more)
        check_one_library(arguments)
    for value in arguments:
        yield from _metrics(value, options)


def check_one_library(elements: Iterable[Any]) -> None:
    """Raise ValueError for XGBoost's ``ndcg@10-`` beside ``ndcg@10``, whose gain is exponential in XGBoost alone."""
    texts = [value for value in elements if isinstance(value, str)]
    if "-" not in "".join(texts):
        return
    names = [name.lower() for text in texts for name in split(text)]
    plain = {name.partition("@")[0]: name for name in names if not name.endswith("-")}
    for name in names:
        measure, _, cut = name.removesuffix("-").partition("@")
        if name.endswith("-") and measure in plain:
            one, other = (parse_all(text)[0].label for text in (plain[measure], name))
            if one.partition("@")[0] != other.partition("@")[0]:
                raise ValueError(
                    f"Expected {plain[measure]!r} and XGBoost's {name!r} to differ in queries without a relevant row"
                    f" only, got {one} and {other}; pass tr.preset('xgboost'{cut and ', '}{cut}), which has both"
                )


def _metrics(value: Any, options: Mapping[str, Any]) -> list[tuple[str, Metric]]:
    """The keys and metrics of one element of a collection."""
    if isinstance(value, str):
        if value.lower() in POINTWISE:
            return [(value.lower(), POINTWISE[value.lower()](**options))]
        if len(names := split(value)) > 1:
            return [pair for name in names for pair in _metrics(name, options)]
        return [(metric.label, metric) for metric in parse_all(value, **options)]
    if isinstance(value, MetricCollection):
        pairs = [(str(key), metric) for key, metric in value.items(keep_base=False)]
    elif isinstance(value, Metric):
        pairs = [(value.label if isinstance(value, Measure) else type(value).__name__, value)]
    else:
        way_out = f"; make one, {value.__name__}()" if isinstance(value, type) and issubclass(value, Metric) else ""
        raise ValueError(f"Expected the name of a measure or a torchmetrics.Metric, got {value!r}{way_out}")
    for key, metric in pairs:
        if isinstance(metric, SafeMetric) and metric.asks_for:
            raise ValueError(
                f"Expected metrics that take the arguments of a collection, got {key!r}, which needs {metric.asks_for},"
                f" too; update the {type(metric).__name__} by itself, it can contain all other metrics"
            )
        for name, option in options.items():
            if getattr(metric, name) != option:
                raise ValueError(
                    f"Expected {key} with {name}={option!r}, as its collection, got {getattr(metric, name)!r}; make the"
                    " metric with it, or give its name"
                )
    return pairs
