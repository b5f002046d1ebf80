"""What a workload is: shapes, contenders by name, and targets as data. Nothing here measures anything."""

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
#: the inputs of a workload, shared by its contenders; ``device`` says where they are
Data = SimpleNamespace
#: values by torchrank's labels
Numbers = Mapping[str, Any]


def cuts(measures: str) -> list[tuple[str, int | None]]:
    """The measures that names stand for, each with its cut: "ndcg@5,10 mr" is ndcg@5, ndcg@10 and mr."""
    split = [name.partition("@") for name in measures.split()]
    return [(name, int(k) if k else None) for name, _, ks in split for k in ks.split(",")]


def label(name: str, k: int | None) -> str:
    """torchrank's label."""
    return name if k is None else f"{name}@{k}"


class UnavailableError(Exception):
    """A contender cannot take part here, and why."""


@dataclass(frozen=True)
class Prepared:
    """A contender that is ready to run.

    Args:
        run: what is timed.
        read: the numbers in what ``run`` returned, by torchrank's labels: only those of the same definition.
        before: called before each run, outside of the time.
        after: called after each run, outside of the time.
    """

    run: Callable[[], Any]
    read: Callable[[Any], Numbers] | None = None
    before: Callable[[], Any] = lambda: None
    after: Callable[[], Any] = lambda: None


#: makes a contender ready; ImportError and UnavailableError are told in the report
Contender = Callable[[Data], Prepared]


@dataclass(frozen=True)
class Target:
    """A bound on a quantity of one contender, alone or compared with another.

    Args:
        limit: the bound.
        at_least: whether the value must reach ``limit``; else it must not exceed it.
        contender: whose quantity it is.
        versus: divide by the quantity of this contender; with ``at_least``, the other way round ("times faster").
        quantity: what is compared, by its key in the results.
        device: where the target holds: "cpu", "cuda", or None for both.
    """

    limit: float
    at_least: bool = False
    contender: str = OURS
    versus: str | None = None
    quantity: str = "median_ms"
    device: str | None = "cpu"


def at_most(limit: float, versus: str | None = None, **others: Any) -> Target:
    """No more than ``limit`` times the time of ``versus``."""
    return Target(limit, versus=versus, **others)


def faster(limit: float, versus: str, **others: Any) -> Target:
    """At least ``limit`` times as fast as ``versus``."""
    return Target(limit, at_least=True, versus=versus, **others)


@dataclass(frozen=True)
class Workload:
    """One row of the report.

    Args:
        name: what ``--only`` selects; several rows can share it.
        row: tells these rows apart.
        what: describes it in the table, from the sizes of its shape.
        shape: sizes; ``quick`` are those of a smoke test.
        make: the inputs of a shape on a device.
        contenders: by name; the timed ones, in the order of the report.
        floor: the contender that bounds from below what any implementation could take.
        targets: what is asked for.
        references: contenders that are only read, to check numbers.
        memory: contenders whose extra memory is measured.
        grow: sizes that ``--scaling`` doubles: what they are called, and their name in ``shape``.
        reads: bytes of input that must be read at least once, for the bandwidth.
        measure: measures in another way than by timing contenders here; gets the shape and the device.
        devices: kinds of device it runs on.
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
