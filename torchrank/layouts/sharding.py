"""A catalogue spread over workers: each has some of the items, and scores of all queries for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Shard:
    """This worker's part of the catalogue."""

    #: the workers; None = all
    group: Any
    #: number of its first item in the whole catalogue
    offset: int
    #: items of all workers
    total: int
    #: items of the worker that has most, by which all cut their work alike
    longest: int

    @classmethod
    def of(cls, items: int, queries: int, group: Any, device: torch.device) -> Shard:
        """Number the items of all workers, those of the first worker first.

        Raises:
            ValueError: the workers have different numbers of queries; on all of them.
        """
        sizes = torch.zeros((dist.get_world_size(group), 2), dtype=torch.int64, device=device)
        rank = dist.get_rank(group)
        sizes[rank] = torch.tensor([items, queries], device=device)
        dist.all_reduce(sizes, group=group)
        counts, seen = ([int(x) for x in column] for column in sizes.T.tolist())
        if len(set(seen)) > 1:
            raise ValueError(f"Expected the same queries on every worker of a sharded catalogue, got {seen} of them")
        return cls(group, sum(counts[:rank]), sum(counts), max(counts))

    def sum(self, *parts: Tensor) -> list[Tensor]:
        """The sums of tensors over the workers, in one collective: each in the shape and dtype that it has here."""
        # As float64, scores of any dtype and counts below 2 ** 53 are exact.
        flat = torch.cat([part.reshape(-1).to(torch.float64) for part in parts])
        dist.all_reduce(flat, group=self.group)
        split = flat.split([part.numel() for part in parts])
        return [total.reshape(part.shape).to(part.dtype) for total, part in zip(split, parts)]

    def gather(self, part: Tensor) -> list[Tensor]:
        """A tensor, of one shape on all workers, from each of them."""
        wide = part.to(torch.float64)
        gathered = [torch.empty_like(wide) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(gathered, wide, group=self.group)
        return [other.to(part.dtype) for other in gathered]
