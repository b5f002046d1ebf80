"""A distributed sampler for evaluation, which repeats no sample."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch
import torch.distributed as dist
from torch.utils.data import Sampler


class UnpaddedSampler(Sampler[int]):
    """Sampler of one worker: samples rank, rank + world, rank + 2 world, ...; each of them on one worker only.

    :class:`torch.utils.data.DistributedSampler`, also that of Lightning and of Accelerate, repeats samples to give all
    workers the same number. A repeated query counts twice in a metric. Here workers may differ by one sample. In
    training, where workers must keep step, set ``drop_last=True``. Under Lightning, set
    ``Trainer(use_distributed_sampler=False)``.

    Args:
        data: the data set, or its number of samples.
        rank: index of this worker; None = that of torch.distributed, 0 without it.
        world: number of workers; None = that of torch.distributed, 1 without it.
        shuffle: whether the order is random, new after each :meth:`set_epoch`, and the same on all workers.
        seed: seed of the order.
        drop_last: leave out the last samples, so that all workers have the same number.

    Raises:
        ValueError: ``rank`` is not in 0 ... world - 1.

    Example:
        >>> import torchrank as tr
        >>> [list(tr.UnpaddedSampler(5, rank, 2)) for rank in range(2)]
        [[0, 2, 4], [1, 3]]
    """

    def __init__(
        self,
        data: Sized | int,
        rank: int | None = None,
        world: int | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        distributed = dist.is_available() and dist.is_initialized()
        self.size = data if isinstance(data, int) else len(data)
        self.world = world if world is not None else dist.get_world_size() if distributed else 1
        self.rank = rank if rank is not None else dist.get_rank() if distributed else 0
        if not 0 <= self.rank < self.world:
            raise ValueError(f"Expected rank from 0 to {self.world - 1} of {self.world} workers, got {self.rank}")
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0
        self.used = self.size - self.size % self.world if drop_last else self.size

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which changes the random order. Lightning calls it before every epoch of training."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = torch.arange(self.size, device="cpu")
        if self.shuffle:
            # The b-th batches of all workers together are the b-th batch of a single worker.
            generator = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
            order = torch.randperm(self.size, generator=generator, device="cpu")
        return iter(order[self.rank : self.used : self.world].tolist())

    def __len__(self) -> int:
        return len(range(self.rank, self.used, self.world))
