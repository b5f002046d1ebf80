"""The elements of a collection: names, metrics and collections become keys and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchmetrics import Metric, MetricCollection

from torchrank.collection.pointwise import POINTWISE
from torchrank.names.labels import split
from torchrank.names.parse import parse_all
from torchrank.state.measure import Measure

#: a name, or several names in one string; a metric; or a collection
Member = str | Metric | MetricCollection

#: the elements of a collection
Metrics = Member | Sequence[Member] | Mapping[str, Member]


def keyed(metrics: Metrics, *more: Member) -> Iterator[tuple[str, Metric]]:
    """The keys and metrics of all arguments of a collection."""
    if isinstance(metrics, Mapping) and not isinstance(metrics, MetricCollection):
        for key, value in metrics.items():
            found = _metrics(value)
            if len(found) != 1 and not isinstance(value, MetricCollection):
                raise ValueError(f"Expected one metric for key {key!r}, got {len(found)}: {value!r}")
            for name, metric in found:
                yield f"{key}_{name}" if isinstance(value, MetricCollection) else str(key), metric
        given: Sequence[Any] = more
    else:
        given = (*metrics, *more) if isinstance(metrics, list | tuple) else (metrics, *more)
    for value in given:
        yield from _metrics(value)


def _metrics(value: Any) -> list[tuple[str, Metric]]:
    """The keys and metrics of one element of a collection."""
    if isinstance(value, str):
        if value.lower() in POINTWISE:
            return [(value.lower(), POINTWISE[value.lower()]())]
        if len(names := split(value)) > 1:
            return [found for name in names for found in _metrics(name)]
        return [(metric.label, metric) for metric in parse_all(value)]
    if isinstance(value, MetricCollection):
        return [(str(key), metric) for key, metric in value.items(keep_base=False)]
    if isinstance(value, Measure):
        return [(value.label, value)]
    if isinstance(value, Metric):
        return [(type(value).__name__, value)]
    way_out = f"; make one, {value.__name__}()" if isinstance(value, type) and issubclass(value, Metric) else ""
    raise ValueError(f"Expected the name of a measure or a torchmetrics.Metric, got {value!r}{way_out}")
