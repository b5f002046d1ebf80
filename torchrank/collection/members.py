"""The elements of a collection: names, metrics and collections become keys and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard

from torchmetrics import Metric, MetricCollection

from torchrank.collection.pointwise import POINTWISE
from torchrank.names.labels import split
from torchrank.names.parse import parse_all
from torchrank.state.measure import Measure
from torchrank.state.summed import SummedMetric

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
        if isinstance(metric, SummedMetric) and metric.asks_for:
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
