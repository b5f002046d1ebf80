"""Growth of time and memory if queries, candidates or positives are doubled, one at a time."""

from __future__ import annotations

from typing import Any

from benchmarks.measure import interleaved, repetitions, short, summary, warmed
from benchmarks.memory import peak_growth
from benchmarks.plan import OURS, Prepared, Shape, Workload
from benchmarks.rows import Settings

BASE = "as it is"


def scaled(workload: Workload, settings: Settings) -> dict[str, Any]:
    """Results for the shape and for each doubled size, and their growth."""
    shape = workload.quick if settings.quick else workload.shape
    shapes: dict[str, Shape] = {BASE: shape}
    shapes |= {f"{what} doubled": {**shape, name: 2 * shape[name]} for what, name in workload.grow.items()}
    points: dict[str, dict[str, Any]] = {}
    for point, sizes in shapes.items():
        settings.tick(f"{point}: memory")
        grown = peak_growth(workload, OURS, sizes, settings.device)
        points[point] = {"shape": dict(sizes), "peak_mb": short(grown)}
    for name, key in ((OURS, ""), (workload.floor, "floor_")):
        if name is not None:
            _times(workload, name, key, shapes, settings, points)
    for result in points.values():
        for quantity in ("median_ms", "floor_median_ms", "peak_mb"):
            before = points[BASE].get(quantity)
            result[f"{quantity}_growth"] = short(result[quantity] / before) if before else None
    return {"what": workload.what.format(**shape), "floor": workload.floor, "points": points}


def _times(
    workload: Workload, name: str, key: str, shapes: dict[str, Shape], settings: Settings, points: dict[str, Any]
) -> None:
    """Time a contender at all points, interleaved; fills in the points."""
    ready: dict[str, Prepared] = {}
    wanted: dict[str, int] = {}
    for point, shape in shapes.items():
        settings.tick(f"{name}, {point}: first runs")
        ready[point] = workload.contenders[name](workload.make(shape, settings.device))
        wanted[point] = repetitions(warmed(ready[point], settings.device)[0], settings.budget, settings.bounds)
    for point, seconds in interleaved(ready, wanted, settings.device, settings.tick).items():
        points[point] |= {f"{key}{quantity}": value for quantity, value in summary(seconds).items()}
