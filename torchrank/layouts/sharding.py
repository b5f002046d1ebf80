"""A catalogue spread over workers: each has a part of the items and all queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Shard:
    """This worker's part of a catalogue."""

    #: process group of the workers; None = the default group
    group: Any
    #: number of this worker's first item in the whole catalogue
    offset: int
    #: number of items of all workers
    total: int
    #: largest number of items of one worker; all workers choose their chunk size by it, so that it is the same
    longest: int

    @classmethod
    def of(cls, items: int, queries: int, group: Any, device: torch.device) -> Shard:
        """Number the items of all workers in the order of the workers, with one collective.

        Raises:
            ValueError: the workers have different numbers of queries; raised on all workers.
        """
        sizes = torch.zeros((dist.get_world_size(group), 2), dtype=torch.int64, device=device)
        rank = dist.get_rank(group)
        sizes[rank] = torch.tensor([items, queries], device=device)  # the sum of one-row tables is the whole table
        dist.all_reduce(sizes, group=group)
        counts, seen = ([int(x) for x in column] for column in sizes.T.tolist())
        if len(set(seen)) > 1:
            raise ValueError(
                f"Expected the same queries on every worker of a sharded catalogue, got {seen} queries;"
                " pass all queries on every worker"
            )
        return cls(group, sum(counts[:rank]), sum(counts), max(counts))

    def sum(self, *parts: Tensor) -> list[Tensor]:
        """Sums of tensors over the workers, in one collective; each has the shape and dtype of its part."""
        # In float64, scores of every dtype and counts below 2 ** 53 are exact.
        flat = torch.cat([part.reshape(-1).to(torch.float64) for part in parts])
        dist.all_reduce(flat, group=self.group)
        split = flat.split([part.numel() for part in parts])
        return [total.reshape(part.shape).to(part.dtype) for total, part in zip(split, parts)]

    def gather(self, part: Tensor) -> list[Tensor]:
        """The tensors of all workers, which have one shape, in the order of the workers."""
        wide = part.to(torch.float64)
        gathered = [torch.empty_like(wide) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(gathered, wide, group=self.group)
        return [other.to(part.dtype) for other in gathered]
