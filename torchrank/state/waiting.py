"""Small batches that wait and are ranked as one: a batch has a fixed cost, of which most is spent on few numbers."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from numpy import ndarray
from torch import Tensor

from torchrank.hardware.devices import in_batch
from torchrank.layouts.arrange import Batch
from torchrank.layouts.checks import tensor_of
from torchrank.ranking.ranking import Ranking
from torchrank.state.scoring import ranking_for

F = TypeVar("F", bound=Callable[..., Any])

#: Held while a state is replaced, so that threads lose no update. One for all metrics, because locks cannot be pickled.
LOCK = threading.RLock()

# Other threads do not exist in the child of a fork: none may hold the lock, or be changing a state.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire,
        after_in_parent=LOCK.release,
        after_in_child=LOCK._at_fork_reinit,  # type: ignore[attr-defined]
    )

#: The bytes that may wait. A batch of more than a quarter of them is ranked at once.
ROOM = {"cpu": 2**22}
ROOM_OF_ACCELERATORS = 2**26

#: What a tensor that waits costs beside its elements, in bytes.
OVERHEAD = 2**10

#: The bytes of a ranking of labels, for each of them.
BYTES_OF_LABEL = 2**6

#: Arguments with a number for each candidate or row, of as many dimensions as preds.
BY_CANDIDATE = ("mask", "tie_break", "groups")

#: Arguments with (query, item) pairs.
PAIRS = ("target", "exclude")

#: Arguments with an element for each flat row.
BY_ROW = frozenset({"preds", "target", "indexes", *BY_CANDIDATE})


def bulk(update: F) -> F:
    """Decorator for an ``update`` that gives the same state for several batches as for one batch of all queries."""
    update.bulk = update  # type: ignore[attr-defined]
    return update


class Waiting:
    """The batches of a metric or of several metrics that wait to be ranked as one.

    All of them have one signature, see :func:`signed`. The first batch of a signature is ranked at once, with all
    checks of its shapes and dtypes; a batch of the same signature would pass them, too. While batches wait, the metrics
    do not have their states, so that whoever reads one has the batches ranked first.

    Args:
        owner: the metric or collection; if its ``waits`` is False, batches do not.
        at_once: updates all metrics with the arguments of one batch.
        later: adds the joined arguments of several batches, which were counted as updates already, to ``ranked``.
        members: returns the metrics; empty if batches must not wait.
    """

    def __init__(
        self, owner: Any, at_once: Callable[..., Any], later: Callable[..., Any], members: Callable[[], Sequence[Any]]
    ) -> None:
        self.owner, self.at_once, self.later, self.members = owner, at_once, later, members
        self.places, self.names = _names(getattr(later, "__func__", later))
        #: the metrics whose batches are being ranked
        self.ranked: list[Any] = []
        self.batches: list[dict[str, Any]] = []
        self.size = 0
        self._signature: Any = None
        self._states: list[tuple[Any, dict[str, Any]]] = []

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Keep a batch, or rank it at once."""
        if not self.owner.waits:
            if self._states:
                self.flush()
            self.at_once(*args, **kwargs)
            return
        given = dict(zip(self.places, args), **kwargs)
        for name, x in given.items():
            if type(x) is ndarray:
                given[name] = tensor_of(x)
        # Too many arguments, one twice, or an unknown one.
        wrong = len(given) != len(args) + len(kwargs) or not self.names.issuperset(given)
        signature, size = (None, 0) if wrong else signed(given)
        if not self._takes(given, signature, size):
            self.at_once(*args, **kwargs)
            self._signature = signature or self._signature

    def _takes(self, given: Mapping[str, Any], signature: Any, size: int) -> bool:
        """Keep a batch. False if it must be ranked at once; then nothing waits any more."""
        with LOCK:
            room = 0
            if signature is not None and signature == self._signature:
                device = _first(given).device
                if device.type != "cuda" or not torch.cuda.is_current_stream_capturing():
                    room = ROOM.get(device.type, ROOM_OF_ACCELERATORS)
            ranked = 0 < room < 4 * size and self._can_rank(given)
            if ranked:
                size = BYTES_OF_LABEL * len(given["preds"]) + OVERHEAD
            small = 0 < 4 * size <= room
            of_a_kind = not self.batches or isinstance(self.batches[0]["preds"], Ranking) is ranked
            if self._states and not (small and of_a_kind and self.size + size <= room):
                self.flush()
            if not small or not (self._states or self._begin()):
                return False
            if (indexes := given.get("indexes")) is not None:
                self._states[0][0].notice_cut(indexes)
            batch = {name: x for name, x in given.items() if x is not None}
            if ranked:
                weights = {"weights": batch["weights"]} if "weights" in batch else {}
                batch = {"preds": ranking_for(self.members(), Batch(**batch)), **weights}
            self.batches.append({name: _copied(x) for name, x in batch.items()})
            self.size += size
            for metric, _ in self._states:
                metric.count_update()
        return True

    def _can_rank(self, given: Mapping[str, Any]) -> bool:
        """Whether a batch that is too large to wait is ranked first: a label has few numbers, however many scores.

        On a CPU the scores take so much longer than the label that nothing is saved.
        """
        preds, target = given["preds"], given.get("target")
        labels = isinstance(preds, Tensor) and preds.dim() == 2 and isinstance(target, Tensor) and target.dim() == 1
        return labels and preds.device.type not in ROOM and all(hasattr(x, "required") for x in self.members())

    def _begin(self) -> bool:
        """Take the states of the metrics. False if one of them must not wait."""
        metrics = self.members()
        for metric in metrics:
            if metric._held is not None:
                metric._held.flush()
            if metric._in_forward or metric._is_synced or metric.compute_on_cpu or not metric.waits:
                return False
        self._hold(metrics)
        return bool(metrics)

    def _hold(self, metrics: Sequence[Any]) -> None:
        for metric in metrics:
            attributes = metric.__dict__
            self._states.append((metric, {name: attributes.pop(name) for name in metric._defaults}))
            attributes["_held"] = self

    def _end(self) -> list[dict[str, Any]]:
        """Give the states back. Returns the batches, of which none waits any more."""
        for metric, states in self._states:
            metric.__dict__.update(states, _held=None)
        batches, self.batches, self.size, self._states = self.batches, [], 0, []
        return batches

    def flush(self) -> None:
        """Rank all batches. If that fails, they wait on."""
        with LOCK:
            # Copies, because lists of values are appended to. The ends of each batch of flat rows were looked at.
            before = [
                (metric, {name: list(x) if isinstance(x, list) else x for name, x in states.items()}, metric._ends)
                for metric, states in self._states
            ]
            size, batches = self.size, self._end()
            if not batches:
                return
            self.ranked, warned = [metric for metric, _, _ in before], None
            try:
                try:
                    self._rank(batches)
                except Warning as warning:  # an error by the user's wish, which keeps no batch from the state
                    warned = warning
                    _restore(before)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        self._rank(batches)
            except BaseException as error:
                _restore(before)
                self._hold(self.ranked)
                self.batches, self.size = batches, size
                error.add_note(
                    f"This concerns the batches of the last {len(batches)} updates, which wait to be ranked as one;"
                    " reset() drops them"
                )
                raise
            finally:
                for metric, _, ends in before:
                    metric._ends = ends
            if warned is not None:
                raise warned

    def _rank(self, batches: Sequence[Mapping[str, Any]]) -> None:
        for metric in self.ranked:
            metric._ends = None
        preds = _first(batches[0])
        device = preds.num_candidates.device if isinstance(preds, Ranking) else preds.device
        with torch.no_grad(), in_batch(device):
            self.later(**joined(batches))

    def drop(self) -> None:
        """Forget all batches."""
        with LOCK:
            self._end()


def _restore(before: Sequence[tuple[Any, dict[str, Any], Any]]) -> None:
    for metric, states, _ in before:
        metric.__dict__.update({name: list(x) if isinstance(x, list) else x for name, x in states.items()})


def _first(given: Mapping[str, Any]) -> Any:
    """The scores of a batch, or of the first system."""
    preds = given.get("preds")
    return next(iter(preds.values()), None) if type(preds) is dict else preds


@functools.cache
def _names(update: Callable[..., Any]) -> tuple[list[str], frozenset[str]]:
    """The arguments of a method that can be given by their places, and all arguments."""
    _, *known = inspect.signature(update).parameters.values()
    return [one.name for one in known if one.kind is one.POSITIONAL_OR_KEYWORD], frozenset(one.name for one in known)


def signed(given: Mapping[str, Any]) -> tuple[Any, int]:
    """The signature of the arguments of ``update``, and their size in bytes.

    Batches with equal signatures differ in values and in the number of queries or rows only, so they can be joined.
    None = the batch cannot be joined, or its shapes do not fit together.
    """
    first = _first(given)
    if type(first) is not Tensor or first.is_nested or not (dims := first.dim()):
        return None, 0
    rows, floating, size = first.shape[0], first.is_floating_point(), 0
    parts: list[Any] = []
    for name, x in given.items():
        if x is None:
            continue
        tensors: Any = (x,)
        if type(x) is not Tensor:
            if type(x) is str:
                parts.append((name, x))
                continue
            if type(x) is dict and name == "preds":
                tensors = x.values()
                parts.append(tuple(x))
            elif type(x) is tuple and name in PAIRS and dims == 2:
                tensors = x
                lengths = {len(one) if type(one) is Tensor and one.dim() == 1 else -1 for one in x}
                if len(lengths) != 1 or -1 in lengths:
                    return None, 0
            else:
                return None, 0
        for one in tensors:
            if type(one) is not Tensor or one.layout is not torch.strided or not one.dim() or one.is_nested:
                return None, 0
            if tensors is not x and one.shape[0] != rows:
                return None, 0
            size += one.nbytes + OVERHEAD
            parts.append((name, one.dtype, one.device, one.shape[1:]))
        if name == "target":
            # Integer scores with labels in the place of scores are an error that values decide.
            if not floating and any(one.is_floating_point() for one in tensors):
                return None, 0
        elif name in BY_CANDIDATE and x.dim() != dims:
            return None, 0
    indexes = given.get("indexes")
    if (dims == 1) is (indexes is None):
        return None, 0
    if indexes is not None:
        # How many queries flat rows have is not known, so nothing may be one per query.
        named = {name for name, x in given.items() if x is not None and type(x) is not str}
        if not named <= BY_ROW or indexes.dim() != 1 or indexes.dtype is torch.uint64:
            return None, 0
    if torch._C._functorch.maybe_current_level() is not None:
        return None, 0
    return parts, size


def _copied(x: Any) -> Any:
    if isinstance(x, Tensor):
        return (x.detach() if x.requires_grad else x).clone()
    if isinstance(x, tuple):
        return tuple(map(_copied, x))
    return {key: _copied(part) for key, part in x.items()} if isinstance(x, dict) else x


def joined(batches: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The arguments of one batch with all queries of several batches of the same signature."""
    if len(batches) == 1:
        return batches[0]
    result: dict[str, Any] = {}
    for name, x in batches[0].items():
        parts = [batch[name] for batch in batches]
        if isinstance(x, tuple):
            query, *others = map(torch.cat, zip(*parts))
            result[name] = (_shifted(query, parts, batches), *others)
        elif isinstance(x, dict):
            result[name] = {key: torch.cat([part[key] for part in parts]) for key in x}
        elif isinstance(x, Ranking):
            result[name] = Ranking.join(parts).joined
        elif name == "indexes":  # no two batches have the same, and the order within a batch stays
            start = itertools.accumulate(map(len, parts), initial=0)
            result[name] = torch.cat(
                [x.long().unique(return_inverse=True)[1] + first for x, first in zip(parts, start)]
            )
        else:
            result[name] = x if isinstance(x, str) else torch.cat(parts)
    return result


def _shifted(query: Tensor, parts: Sequence[tuple[Tensor, ...]], batches: Sequence[Mapping[str, Any]]) -> Tensor:
    """The queries of pairs as rows of the joined batch; -1 if they are not rows of their own batch."""
    rows = [len(_first(batch)) for batch in batches]
    number, end = torch.tensor([[len(part[0]) for part in parts], rows], device="cpu")
    sizes = torch.stack([end, end.cumsum(0) - end]).repeat_interleave(number, dim=1)
    end, start = sizes.to(query.device, non_blocking=True)
    query = query.long()
    return torch.where((query >= 0) & (query < end), query + start, -1)
