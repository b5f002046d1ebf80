"""Reduction of the states of many metrics over workers, in one collective."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torchrank.hardware.devices import widest_float


class WorkersDifferError(ValueError):
    """Workers reduce different metrics."""


#: the state of a metric over all workers: its sums, and its per-query values if it keeps them
State = tuple[Tensor, list[Tensor] | None]


def reduce_together(members: Mapping[str, Any]) -> dict[str, State | ValueError]:
    """The states of the members of a collection over all workers, by key; one all-reduce for each process group.

    Metrics are matched by key and label, so their order may differ between workers. If workers have other members, each
    member has the error: all are computed, or not, on all workers, so that these stay in step. Missing are metrics that
    are reduced in another way, or not at all.
    """
    found: dict[str, State | ValueError] = {}
    for key in sorted(members):
        if key in found or not _reducible(members[key]) or not members[key].distributed_available_fn():
            continue
        group, peers, others = members[key].process_group, dict[str, str](), []
        for other, member in members.items():
            if not (member.process_group is group and member.sync_on_compute):
                continue
            # Members that are not reduced here take part by name, so that workers with other members raise an error.
            if _reducible(member):
                name = member.definition_name
                peers[name if name == other else f"{other}: {name}"] = other
            else:
                others.append(f"{other}: {type(member).__name__}")
        try:
            states = all_reduce({name: members[other] for name, other in peers.items()}, group, others)
            found |= {peers[name]: state for name, state in states.items()}
        except ValueError as error:
            found |= dict.fromkeys(peers.values(), error)
    return found


def _reducible(member: Any) -> bool:
    return bool(getattr(member, "reducible", bool)())


#: Numbers in the first message. The length is fixed, because messages of different lengths abort a worker.
MESSAGE = 4096


#: Bytes in the digest of the names. The message contains each byte and its square.
DIGEST = 8


def all_reduce(
    metrics: Mapping[str, Any], group: Any, beside: Sequence[str] = (), one_message: bool = False
) -> dict[str, State]:
    """Sum the states of metrics over the workers of a group, by name, in one collective.

    States with more than some 4,000 numbers in total take a second one. Per-query values take a further one, and are
    returned in the order of the workers.

    Args:
        metrics: metrics by name, each with its ``sums``, and its ``rows`` if it keeps values.
        group: the workers; None = all.
        beside: further names that must be equal on all workers.
        one_message: send the sums in one message of any length. Then workers with states of different lengths may be
            aborted by the backend.

    Raises:
        WorkersDifferError: workers have different names, or states of different sizes. All workers raise it.
        ValueError: this process is not in the group.
    """
    names = sorted(metrics)
    members = [metrics[name] for name in names]
    device = members[0].sums.device
    rank, world = place_in(group, device)
    keepers = {name: _flat(m.rows, device) for name, m in zip(names, members) if m.rows is not None}
    # Each worker fills its own row of counts, so the sum over workers gathers them.
    counts = torch.zeros((world, len(keepers)), dtype=widest_float(device), device=device)
    if keepers:
        counts[rank] = counts.new_tensor([len(rows) for rows in keepers.values()])
    states = [m.sums.to(device) for m in members]
    sizes = [f"{state.numel()} numbers{' and values' * (name in keepers)}" for name, state in zip(names, states)]
    # A digest of names and sizes stands first, so that workers with different metrics find out before they use sums.
    described = dict(zip(names, sizes))
    described |= dict.fromkeys(sorted(beside), "")
    digest = hashlib.blake2b(repr(described).encode(), digest_size=DIGEST).digest()
    mark = counts.new_tensor(list(digest))
    payload = torch.cat([mark, mark**2, *(state.reshape(-1) for state in states), counts.reshape(-1)])

    # Equal digests mean equal lengths, so a second message is safe only after the first one.
    message = torch.nn.functional.pad(payload, (0, MESSAGE - min(len(payload), MESSAGE)))
    first = len(message) if one_message else MESSAGE
    head, rest = message[:first].contiguous(), message[first:].contiguous()
    dist.all_reduce(head, group=group)
    total, total_of_squares = head[: 2 * DIGEST].view(2, DIGEST)
    if not bool((total**2 == world * total_of_squares).all()):  # equal only if all digests are equal (Cauchy-Schwarz)
        raise WorkersDifferError(_differences(described, world, group))
    if len(rest):
        dist.all_reduce(rest, group=group)
    reduced = torch.cat([head, rest])[2 * DIGEST : len(payload)].split([*(s.numel() for s in states), counts.numel()])
    sums = {name: part.reshape(state.shape) for name, part, state in zip(names, reduced, states)}
    gathered: dict[str, list[Tensor]] = {}
    if keepers:
        lengths = reduced[-1].reshape(world, -1).round().long().tolist()
        parts = all_gather(torch.cat(list(keepers.values())), [sum(several) for several in lengths], group)
        split = [part.split(several) for part, several in zip(parts, lengths)]
        gathered = {name: [by_worker[n] for by_worker in split] for n, name in enumerate(keepers)}
    return {name: (sums[name], gathered.get(name)) for name in names}


def place_in(group: Any, device: torch.device) -> tuple[int, int]:
    """The rank of this process in a group that reduces tensors of a device, and the number of its workers.

    Raises:
        ValueError: this process is not in the group, or the metric is on the CPU and the group is for GPUs only.
    """
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(
            f"Expected this process to be in the metric's process_group, got process {dist.get_rank()}, which is not;"
            " compute on the workers of the group only"
        )
    backends = dist.get_backend_config(group)
    if device.type == "cpu" and "cpu:" not in backends:
        raise ValueError(
            f"Expected a process group that reduces tensors on the CPU, got {backends!r} and a metric on the CPU; call"
            " init_process_group('cpu:gloo,cuda:nccl'), or move the metric: metric.to('cuda')"
        )
    return rank, dist.get_world_size(group)


def _differences(described: dict[str, str], world: int, group: Any) -> str:
    """The error message for workers that reduce different metrics: lists these metrics and their workers."""
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, described, group=group)
    having: dict[str, list[int]] = {}
    for rank, counts in enumerate(everyone):
        for name, size in counts.items():
            same = all(other.get(name, size) == size for other in everyone)
            having.setdefault(name if same else f"{name} of {size}", []).append(rank)
    partly = [f"{name} on {', '.join(map(str, ranks))}" for name, ranks in having.items() if len(ranks) < world]
    return (
        f"Expected all {world} workers to compute the same metrics, got {'; '.join(partly)} only;"
        " build the same metrics and collections on every worker"
    )


def appended(rows: list[Tensor], more: list[Tensor]) -> list[Tensor]:
    """Rows and more rows as a new list of few parts."""
    rows = list(rows)
    for part in more:
        # Joining a part only with a similar or shorter one keeps the number of parts and of copies logarithmic.
        while len(rows) > 1 and len(rows[-2]) <= 2 * len(rows[-1]) and rows[-2].device == rows[-1].device:
            rows[-2:] = [torch.cat(rows[-2:])]
        rows.append(part)
    return rows


def _flat(rows: list[Tensor], device: torch.device) -> Tensor:
    return torch.cat([torch.empty((0, 2), dtype=widest_float(device), device=device), *(r.to(device) for r in rows)])


def all_gather(rows: Tensor, sizes: list[int], group: Any) -> list[Tensor]:
    """The rows [n, column] of every worker, given their numbers: one collective, or none if no worker has rows."""
    # dist.all_gather needs tensors of equal shapes on all workers.
    longest = max(sizes)
    if not longest:
        return [rows[:0] for _ in sizes]
    padded = torch.nn.functional.pad(rows, (0, 0, 0, longest - len(rows)))
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded, group=group)
    return [part[:size] for part, size in zip(gathered, sizes)]


#: the dtypes of rows. Workers exchange indexes into this tuple
DTYPES = (
    torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.bool,
)  # fmt: skip


def gather_rows(fields: Sequence[Tensor], more: Tensor, group: Any) -> tuple[list[Tensor], Tensor]:
    """The rows of all workers, in the order of the workers, and some more numbers of each: [worker, number].

    Two collectives, or one if no worker has rows.

    Args:
        fields: the rows of this worker, [row, column] each. Workers may have other dtypes, of which each field gets the
            smallest that holds all, and fewer columns, which are filled with ones.
        more: the numbers of this worker, as many on each.
        group: the workers; None = all.
    """
    _, world = place_in(group, more.device)
    forms = [number for x in fields for number in (x.shape[1], DTYPES.index(x.dtype))]
    mine = torch.cat([more.new_tensor([len(fields[0]), *forms]), more])
    heads = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(heads, mine, group=group)
    numbers, others = torch.stack(heads).split([1 + len(forms), len(more)], dim=1)
    counts, *columns = numbers.long().T.tolist()
    if not any(counts):
        return list(fields), others
    alike = []
    for x, widths, codes in zip(fields, columns[::2], columns[1::2]):
        dtypes = [DTYPES[code] for code, count in zip(codes, counts) if count]
        alike.append(widened(x, max(widths)).to(functools.reduce(torch.promote_types, dtypes)))
    # Bytes, so that fields of different dtypes travel together.
    packed = [x.contiguous().view(torch.uint8) for x in alike if x.shape[1]]
    rows = torch.cat(all_gather(torch.cat(packed, dim=1), counts, group))
    parts = zip(alike, rows.split([x.shape[1] * x.element_size() for x in alike], dim=1))
    return [part.contiguous().view(x.dtype) if x.shape[1] else x.new_empty((len(rows), 0)) for x, part in parts], others


def widened(x: Tensor, width: int) -> Tensor:
    """Rows with as many columns, ones in those that they did not have."""
    return x if x.shape[1] == width else torch.cat([x, x.new_ones((len(x), width - x.shape[1]))], dim=1)
