"""The row of a workload in the report: check numbers, time, measure memory, compare with the targets."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import interleaved, repetitions, short, summary, timed, warmed
from benchmarks.memory import peak_growth
from benchmarks.plan import OURS, Contender, Data, Numbers, Prepared, Target, UnavailableError, Workload

#: largest difference between equal numbers, relative and absolute: peers compute in single precision
TOLERANCE = 1e-4

Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Args:
        device: "cpu" or "cuda".
        quick: use small shapes and few repetitions; the times have no meaning.
        budget: seconds for each contender of a workload.
        tick: function that receives a message before each step.
    """

    device: str = "cpu"
    quick: bool = False
    budget: float = 3.0
    tick: Callable[[str], None] = lambda message: None

    @property
    def bounds(self) -> tuple[int, int]:
        """The fewest and the most repetitions."""
        return (1, 3) if self.quick else (3, 50)


def measured(workload: Workload, settings: Settings) -> Row:
    """The row of a workload."""
    shape = workload.quick if settings.quick else workload.shape
    row: Row = {"what": workload.what.format(**shape), "shape": dict(shape), "floor": workload.floor}
    row |= {"contenders": {}, "skipped": {}, "checks": []}
    if workload.measure is not None:
        row |= workload.measure(shape, settings.device)
    else:
        _memory(workload, settings, row)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers warn about their use
            _times(workload, settings, row)
    if workload.floor:
        floor = row["contenders"][workload.floor]["median_ms"]
        for result in row["contenders"].values():
            result["to_floor"] = short(result["median_ms"] / floor)
    targets = [target for target in workload.targets if target.device in (None, settings.device)]
    row["targets"] = [judged(target, row["contenders"]) for target in targets]
    return row


# ---- time ----------------------------------------------------------------------------------------------------------


def _times(workload: Workload, settings: Settings, row: Row) -> None:
    """Time the contenders of a workload and check their numbers; fills in the row."""
    data = workload.make(row["shape"], settings.device)
    ready: dict[str, Prepared] = {}
    wanted: dict[str, int] = {}
    numbers: dict[str, Any] = {}
    for name, contender in workload.contenders.items():
        if found := _started(name, contender, data, settings, row, warmed):
            ready[name], seconds, numbers[name] = found
            wanted[name] = repetitions(seconds, settings.budget, settings.bounds)
    for name, contender in workload.references.items():
        if found := _started(name, contender, data, settings, row, timed):
            numbers[name] = found[2]
    others = [name for name in numbers if name != OURS and numbers[name] and numbers.get(OURS)]
    row["checks"] = [compared(numbers[OURS], numbers[name], name) for name in others]
    gc.collect()
    times = interleaved(ready, wanted, settings.device, settings.tick)
    for name, runs in times.items():
        row["contenders"].setdefault(name, {}).update(summary(runs))
        if workload.reads:
            rate = workload.reads(data) / 1e6 / row["contenders"][name]["median_ms"]
            row["contenders"][name]["gb_per_s"] = short(rate)


def _started(
    name: str,
    contender: Contender,
    data: Data,
    settings: Settings,
    row: Row,
    first: Callable[[Prepared, str], tuple[float, Any]],
) -> tuple[Prepared, float, Numbers] | None:
    """A prepared contender, the seconds of a run, and its numbers; None, with a note in the row, if it cannot run."""
    settings.tick(f"{name}: first runs")
    try:
        ready = contender(data)
        seconds, result = first(ready, data.device)
    except (ImportError, UnavailableError) as error:
        row["skipped"][name] = f"not installed ({error})" if isinstance(error, ImportError) else str(error)
        return None
    except Exception as error:
        if name == OURS:
            raise
        row["skipped"][name] = f"failed: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        return None
    return ready, seconds, dict(ready.read(result)) if ready.read else {}


def _memory(workload: Workload, settings: Settings, row: Row) -> None:
    for name in workload.memory:
        settings.tick(f"{name}: memory")
        try:
            grown = peak_growth(workload, name, row["shape"], settings.device)
            row["contenders"][name] = {"peak_mb": short(grown)}
        except UnavailableError as error:
            row["skipped"][f"{name}, memory"] = str(error)


# ---- numbers -------------------------------------------------------------------------------------------------------


def compared(ours: Mapping[str, Any], theirs: Mapping[str, Any], name: str) -> Row:
    """Compare the numbers of two contenders for all labels that both have."""
    labels = [label for label in ours if label in theirs]
    differences = [_difference(_double(ours[label]), _double(theirs[label])) for label in labels]
    worst = max(differences, default=0.0)
    return {"against": name, "labels": labels, "difference": short(worst), "agree": worst <= TOLERANCE}


def _double(value: Any) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64, device="cpu")


def _difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, relative for numbers above 1; NaN counts as infinity."""
    apart = (one - other).abs() / other.abs().clamp_min(1)
    return apart.nan_to_num(nan=torch.inf).max().item()


# ---- targets -------------------------------------------------------------------------------------------------------


def judged(target: Target, contenders: Mapping[str, Row]) -> Row:
    """A target, its value, and whether it was met; None if a quantity was not measured."""
    names = [name for name in (target.contender, target.versus) if name]
    found = [contenders[name][target.quantity] for name in names if target.quantity in contenders.get(name, {})]
    value = None
    if len(found) == len(names):
        over, *under = reversed(found) if target.versus and target.at_least else found
        if not under or under[0]:  # a small run may need no memory, and nothing is divided by 0
            value = short(over / under[0]) if under else over
    met = None if value is None else bool(value >= target.limit if target.at_least else value <= target.limit)
    return {
        "contender": target.contender,
        "versus": target.versus,
        "quantity": target.quantity,
        "at_least": target.at_least,
        "limit": target.limit,
        "value": value,
        "met": met,
    }
