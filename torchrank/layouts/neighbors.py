"""The ranks of exact nearest neighbours among the points that an index has returned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from torchrank.hardware import costs
from torchrank.hardware.devices import widest_float
from torchrank.layouts.checks import Problem, check_tensor, count, integer_ids

# The id of padding. Other negative ids are ids, because indexes have them.
NO_POINT = -1


def neighbor_ranks(lists: dict[str, Any], counts: Any, atol: float, rtol: float) -> tuple[Tensor, Tensor, Tensor]:
    """Find exact neighbours among returned points; see :meth:`torchrank.Ranking.from_neighbors`.

    Args:
        lists: the arguments ``found``, ``found_distance``, ``exact`` and ``exact_distance``, by name.
        counts: the number of returned points of each query; None = ids tell padding.
        atol: a distance within ``atol + rtol * radius`` of the radius, the last exact distance, is tied with it.
        rtol: see ``atol``.

    Returns:
        float64 [query, neighbour]: the rank of each exact neighbour, best first; infinite = not found, -1 = padding.
        float64 [query]: the number of returned points.
        int64 [kind]: counters of bad values.
    """
    found, found_distance, exact, exact_distance = _rectangles(lists)
    width, place = exact.shape[1], torch.arange(max(exact.shape[1], found.shape[1]), device=found.device)
    real, returned = exact != NO_POINT, found != NO_POINT
    if counts is not None:
        counts = integer_ids(counts, "counts", "found").to(found.device)
        if counts.shape != found.shape[:1]:
            raise ValueError(f"Expected counts of shape [{len(found)}], got {list(counts.shape)}")
        returned &= place[: found.shape[1]] < counts.unsqueeze(-1)
    last = torch.where(real, place[:width], 0).amax(-1, keepdim=True)
    radius = exact_distance.gather(-1, last)
    tolerance = atol + rtol * radius.abs()
    nan = (found_distance.isnan() & returned).any(-1) | (exact_distance.isnan() & real).any(-1)
    if found.is_cpu:  # values are read on a CPU only
        step = exact_distance.diff().masked_fill(~real[:, 1:], 0)
        unordered = (step > tolerance).any(-1) & (step < -tolerance).any(-1)
        for wrong, wanted, way_out in (
            (nan, "distances that are numbers", "pass counts if the index fills short lists with NaN"),
            (unordered, "exact neighbours nearest first", "sort them"),
        ):
            if bool(wrong.any()):
                raise ValueError(f"Expected {wanted}, got others in query {int(wrong.nonzero()[0])}; {way_out}")
    rows = max(1, costs.now.room(found) // (found.shape[1] + width))
    lists_of_all = (found, returned, found_distance, exact, real, exact_distance, radius, tolerance)
    ranks, repeated = zip(*(_ranks(*part) for part in zip(*(x.split(rows) for x in lists_of_all))))
    errors = count(Problem.DUPLICATE_TARGETS, torch.cat(repeated), others=count(Problem.NAN_SCORES, nan))
    return torch.cat(ranks), returned.sum(-1).to(radius), errors


def _ranks(
    found: Tensor,
    returned: Tensor,
    found_distance: Tensor,
    exact: Tensor,
    real: Tensor,
    exact_distance: Tensor,
    radius: Tensor,
    tolerance: Tensor,
) -> tuple[Tensor, Tensor]:
    """The ranks of some queries, [query, neighbour], and which of the queries repeat an exact neighbour.

    ``returned`` [query, position] and ``real`` [query, neighbour] are False for padding; ``radius`` is [query, 1].
    """
    width = exact.shape[1]
    at_radius, tied = ((x - radius).abs() <= tolerance for x in (exact_distance, found_distance))
    at_radius &= real
    # The stable sort puts equal ids side by side, the exact neighbour first, then the copies of the found point.
    ordered, order = torch.cat([exact, found], -1).sort(dim=-1, stable=True)
    again, before = pad(ordered[:, 1:] == ordered[:, :-1], (1, 0)), order.roll(1, -1)
    match = again & (before < width)
    repeated = (match & (order < width) & (ordered != NO_POINT)).any(-1)
    sorted_place = order.argsort(dim=-1)[:, width:]
    match, new = match.gather(-1, sorted_place), (match | ~again).gather(-1, sorted_place) & returned
    neighbor = before.gather(-1, sorted_place).clamp_max(width - 1)
    nearer = match & ~at_radius.gather(-1, neighbor)
    # An exact answer has all points nearer than the radius. Any points at the radius fill the rest of its places.
    tied = new & ~nearer & (match | tied)
    hits = (new & nearer) | (tied & (tied.cumsum(-1) <= at_radius.sum(-1, keepdim=True)))
    number = torch.arange(1, width + 1, device=found.device).expand(len(found), -1).contiguous()
    at = torch.searchsorted(hits.cumsum(-1), number)
    ranks = pad(returned.cumsum(-1).to(radius), (0, 1), value=float("inf")).gather(-1, at)
    return ranks.masked_fill(number > real.sum(-1, keepdim=True), -1), repeated


def _rectangles(lists: dict[str, Any]) -> list[Tensor]:
    """The lists as rectangles: int64 ids and float64 distances, in turn; short lists are padded.

    Raises:
        TypeError: ids are not integers, or distances not numbers.
        ValueError: shapes do not fit together.
    """
    tensors: list[Tensor] = []
    for name, x in lists.items():
        is_distance = name.endswith("distance")
        if isinstance(x, list) and len({len(row) for row in x if hasattr(row, "__len__")}) > 1:
            rows = [check_tensor(row, name) for row in x]
            has_fractions = is_distance or max(rows, key=len).is_floating_point()
            rows = [row.to(torch.float64 if has_fractions else torch.int64) for row in rows]
            x = pad_sequence(rows, batch_first=True, padding_value=float("inf") if is_distance else NO_POINT)
        x = check_tensor(x, name).detach()
        has_fractions = x.is_floating_point() and x.numel() > 0  # an empty list of Python has none
        if x.is_complex() or x.dtype == torch.bool or has_fractions > is_distance:
            wanted = "distances" if is_distance else "integer ids (the order is ids, distances, ids, distances)"
            raise TypeError(f"Expected {name} to be {wanted}, got {x.dtype}")
        device = tensors[0].device if tensors else x.device
        tensors.append(x.to(device, widest_float(device) if is_distance else torch.int64))
    found, found_distance, exact, exact_distance = tensors
    same = found.shape == found_distance.shape and exact.shape == exact_distance.shape
    if not same or found.dim() != 2 or exact.dim() != 2 or len(found) != len(exact) or not exact.shape[1]:
        got = ", ".join(f"{name} {list(x.shape)}" for name, x in zip(lists, tensors))
        raise ValueError(
            "Expected found and found_distance [query, position], exact and exact_distance [query, neighbour], got"
            f" {got}; for one query, pass each as x[None]"
        )
    return tensors
