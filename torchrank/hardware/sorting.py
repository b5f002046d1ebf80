"""Sorting of numbers without their places, by numpy or by torch, whichever is faster."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

# numpy sorts with vector instructions on one thread. With more threads than this, torch is as fast on all of them.
THREADS = 4

# torch.topk keeps the k largest numbers in a heap, in one pass, if there are at least this many numbers for each of the
# k. Otherwise it selects and sorts them, which takes several times as long.
HEAP = 64


def by_numpy(x: Tensor) -> bool:
    """Whether numpy sorts a tensor faster than torch. Its dtype must not be bfloat16, which numpy does not have."""
    return x.device.type == "cpu" and torch.get_num_threads() <= THREADS


def ascending(x: Tensor) -> Tensor:
    """Sort each row in ascending order, NaN last. Not for bfloat16."""
    return torch.from_numpy(numpy.sort(x.numpy(), axis=-1)) if by_numpy(x) else x.sort(dim=-1).values


def sort_in_place(x: Tensor) -> None:
    """Sort each row of integers [..., element] in ascending order, for the CPU only."""
    if by_numpy(x):
        x.numpy().sort(axis=-1)
    else:
        x.copy_(x.sort(dim=-1).values)


def largest(x: Tensor, k: int) -> Tensor:
    """The ``k`` largest numbers of each row in descending order, NaN first: [row, k]. Not for bfloat16."""
    if not by_numpy(x) and k == x.shape[1]:
        return x.sort(dim=-1, descending=True).values
    if not by_numpy(x) or not k or HEAP * k <= x.shape[1]:
        return x.topk(k).values
    found = numpy.partition(x.numpy(), -k, axis=-1)[:, -k:] if k < x.shape[1] else x.numpy()
    return torch.from_numpy(numpy.sort(found, axis=-1)).flip(-1)
