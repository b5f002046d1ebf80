"""Workloads as data: shapes, contenders by name, and targets. Measuring is done elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

OURS = "torchrank"
COMPILED = "torchrank, compiled"
NUMBERS = "torchrank, to the numbers"

#: sizes by name
Shape = Mapping[str, Any]
#: the inputs of a workload, shared by its contenders, and their ``device``
Data = SimpleNamespace
#: values by torchrank's labels
Numbers = Mapping[str, Any]


def cuts(measures: str) -> list[tuple[str, int | None]]:
    """Names of measures with their cutoffs: "ndcg@5,10 mr" stands for ndcg@5, ndcg@10 and mr."""
    split = [name.partition("@") for name in measures.split()]
    return [(name, int(k) if k else None) for name, _, ks in split for k in ks.split(",")]


def label(name: str, k: int | None) -> str:
    """torchrank's label of a measure with a cutoff."""
    return name if k is None else f"{name}@{k}"


class UnavailableError(Exception):
    """The reason why a contender cannot run here."""


@dataclass(frozen=True)
class Prepared:
    """A contender that is ready to run.

    Args:
        run: function that is timed.
        read: the numbers in the result of ``run``, by torchrank's labels. Only numbers of the same definition.
        before: function that is called before each run and not timed.
        after: function that is called after each run and not timed.
    """

    run: Callable[[], Any]
    read: Callable[[Any], Numbers] | None = None
    before: Callable[[], Any] = lambda: None
    after: Callable[[], Any] = lambda: None


#: prepares a contender; the report contains its ImportError or UnavailableError
Contender = Callable[[Data], Prepared]


@dataclass(frozen=True)
class Target:
    """A bound on a quantity of one contender, alone or compared with another.

    Args:
        limit: the bound.
        at_least: whether the value must reach ``limit``; else it must not exceed it.
        contender: the contender with the quantity.
        versus: divide by the quantity of this contender; with ``at_least`` divide the other way round ("times faster").
        quantity: key of the quantity in the results.
        device: the device for which the target holds: "cpu", "cuda", or None for both.
    """

    limit: float
    at_least: bool = False
    contender: str = OURS
    versus: str | None = None
    quantity: str = "median_ms"
    device: str | None = "cpu"


def at_most(limit: float, versus: str | None = None, **others: Any) -> Target:
    """Target: at most ``limit`` times the time of ``versus``."""
    return Target(limit, versus=versus, **others)


def faster(limit: float, versus: str, **others: Any) -> Target:
    """Target: at least ``limit`` times as fast as ``versus``."""
    return Target(limit, at_least=True, versus=versus, **others)


@dataclass(frozen=True)
class Workload:
    """One row of the report.

    Args:
        name: name for ``--only``; several rows can share it.
        row: name of this row among the rows with the same ``name``.
        what: description in the table, a format string for the sizes of the shape.
        shape: sizes by name.
        quick: sizes for a smoke test.
        make: function from a shape and a device to the inputs.
        contenders: timed contenders by name, in the order of the report.
        floor: the contender whose time is a lower bound for any implementation.
        targets: targets of the row.
        references: contenders that check numbers and are not timed.
        memory: names of contenders whose extra memory is measured.
        grow: sizes that ``--scaling`` doubles: names in ``shape`` by their names in the table.
        reads: function from inputs to the bytes that must be read at least once, for the bandwidth.
        measure: function from shape and device to results, in place of timing the contenders in this process.
        devices: kinds of device for which the workload exists.
    """

    name: str
    row: str
    what: str
    shape: Shape
    quick: Shape
    make: Callable[[Shape, str], Data] = lambda shape, device: Data(device=device, **shape)
    contenders: Mapping[str, Contender] = field(default_factory=dict)
    floor: str | None = None
    targets: tuple[Target, ...] = ()
    references: Mapping[str, Contender] = field(default_factory=dict)
    memory: tuple[str, ...] = ()
    grow: Mapping[str, str] = field(default_factory=dict)
    reads: Callable[[Data], int] | None = None
    measure: Callable[[Shape, str], dict[str, dict[str, Any]]] | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")

    @property
    def key(self) -> str:
        """Name and row."""
        return f"{self.name}: {self.row}" if self.row else self.name
