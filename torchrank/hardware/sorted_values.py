"""Sorting of numbers without their columns, by numpy or by torch, whichever is faster."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from torchrank.hardware import costs
from torchrank.hardware.devices import by_numpy


def ascending(x: Tensor) -> Tensor:
    """Sort each row in ascending order, NaN last. Not for bfloat16, which numpy does not have."""
    return torch.from_numpy(numpy.sort(x.numpy(), axis=-1)) if by_numpy(x.device) else x.sort(dim=-1).values


def sort_in_place(x: Tensor) -> None:
    """Sort each row of integers [..., element] in ascending order, for the CPU only."""
    if by_numpy(x.device):
        x.numpy().sort(axis=-1)
    else:
        x.copy_(x.sort(dim=-1).values)


def largest(x: Tensor, k: int) -> Tensor:
    """The ``k`` largest numbers of each row in descending order, NaN first: [row, k]. Not for bfloat16."""
    if by_numpy(x.device) and x.shape[1] < costs.now.heap_from * k:
        largest = numpy.partition(x.numpy(), -k, axis=-1)[:, -k:] if k < x.shape[1] else x.numpy()
        return torch.from_numpy(numpy.sort(largest, axis=-1)).flip(-1)
    return x.sort(dim=-1, descending=True).values if k == x.shape[1] else best(x, k)[0]


def best(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest numbers of each row in descending order, and their columns, by torch.topk: [row, k] each."""
    values, columns = x.topk(asked(k, x.shape[1], x.device))
    return values[:, :k].contiguous(), columns[:, :k].contiguous()


def asked(k: int, width: int, device: torch.device) -> int:
    """The number of columns to ask of torch.topk, at least ``k`` and at most ``width``.

    On CUDA torch 2.13 has a faster kernel for sorted powers of two from 64 to 1,024. In long rows more columns take the
    same time.
    """
    return k if device.type != "cuda" or k > 2**10 else min(width, max(2**6, 2 ** (k - 1).bit_length()))


def selection(share: float) -> float:
    """Nanoseconds per number that torch.topk takes on one thread to select a share of many numbers."""
    each, more = costs.now.selection
    return each + more * share


def order_of(numbers: Tensor) -> Tensor:
    """The argsort of distinct integers >= 0, int64 [number]; in one pass if none is missing."""
    if numbers.is_cpu and len(numbers) and int(numbers.max()) == len(numbers) - 1:
        return torch.empty_like(numbers).scatter_(0, numbers, torch.arange(len(numbers), device="cpu"))
    return numbers.argsort()
