"""Queries on several processes: a sampler that repeats none, and suites for callers that have all queries on each."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Sized
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DistributedSampler
from torchmetrics import Metric, MetricCollection

from torchrank.collection.collection import Metrics, RankingCollection


class UnpaddedSampler(DistributedSampler[int]):
    """Sampler of one worker: samples rank, rank + world, rank + 2 world, ...; each of them on one worker only.

    :class:`torch.utils.data.DistributedSampler`, also that of Lightning, repeats samples to give all workers the same
    number. A repeated query counts twice in a metric. Here workers may differ by one sample. In training, where workers
    must keep step, set ``drop_last=True``.

    It may be made before the process group, whose rank and size are looked up when samples are drawn. Lightning and
    Fabric leave it as it is, and shard the other loaders. Accelerate would shard it again, which raises on every
    worker: do not pass its loader to ``accelerator.prepare``. Hugging Face's Trainer needs none, see
    :func:`torchrank.integrations.huggingface.compute_metrics`.

    Args:
        data: the data set, or its number of samples.
        rank: index of this worker; None = that of torch.distributed, 0 without it.
        world: number of workers; None = that of torch.distributed, 1 without it. Where several workers share a model
            (tensor parallelism), pass the rank and size of the data-parallel group.
        shuffle: whether the order is random, new after each :meth:`set_epoch`, and the same on all workers.
        seed: seed of the order.
        drop_last: leave out the last samples, so that all workers have the same number.

    Raises:
        ValueError: ``rank`` is not in 0 ... world - 1, or Accelerate has prepared the loader.

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
        # Not the parent's constructor, which needs the process group.
        self.dataset: Any = range(data) if isinstance(data, int) else data
        self.size = len(self.dataset)
        self.place = rank, world
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        if rank is not None and world is not None:
            self._share()

    def _share(self) -> range:
        """Places of this worker's samples in the order of all."""
        rank, world = self.place
        distributed = dist.is_available() and dist.is_initialized()
        world = world if world is not None else dist.get_world_size() if distributed else 1
        rank = rank if rank is not None else dist.get_rank() if distributed else 0
        if not 0 <= rank < world:
            raise ValueError(f"Expected rank from 0 to {world - 1} of {world} workers, got {rank}")
        return range(rank, self.size - self.size % world if self.drop_last else self.size, world)

    @property
    def rank(self) -> int:  # type: ignore[override]
        """The index of this worker."""
        return self._share().start

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """The number of workers."""
        return self._share().step

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """The number of samples of this worker."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """The number of samples of all workers."""
        return self._share().stop

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which changes the random order. Lightning calls it before every epoch."""
        self._refuse_to_be_sharded()  # Accelerate calls it on all workers, also where only the first one draws samples
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self._refuse_to_be_sharded()
        share = self._share()
        order = torch.arange(self.size, device="cpu")
        if self.shuffle:
            # The b-th batches of all workers together are the b-th batch of a single worker.
            generator = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
            order = torch.randperm(self.size, generator=generator, device="cpu")
        return iter(order[share.start : share.stop : share.step].tolist())

    def __len__(self) -> int:
        return len(self._share())

    def _refuse_to_be_sharded(self) -> None:
        """Raise if Accelerate draws from a loader that it has prepared: each worker would skip batches of its share."""
        state = sys.modules.get("accelerate.state")
        part = state.GradientState().active_dataloader if state and self._share().step > 1 else None
        while part is not None:
            if part is self:
                raise ValueError(
                    "Expected a loader that shards by its UnpaddedSampler alone, got one that Accelerate shards again;"
                    " do not pass it to accelerator.prepare, and leave the sampler out in Trainer of Hugging Face"
                )
            inner = getattr(part, "batch_sampler", None)
            part = getattr(part, "sampler", None) if inner is None else inner


#: a metric, names, a collection; or a wrapper such as :class:`torchrank.Sliced`
AnySuite = Metrics | Metric | MetricCollection


def alone(suite: AnySuite) -> Metric | MetricCollection:
    """A copy of a suite with empty states, which never synchronises.

    A trainer that has gathered the queries passes the same ones to every process. A sum over processes would count
    each query several times, and a collective would wait for processes that are not called.
    """
    made = copy.deepcopy(suite) if isinstance(suite, Metric | MetricCollection) else RankingCollection(suite)
    made.reset()
    for module in made.modules():  # also metrics in wrappers
        if isinstance(module, Metric):
            module.distributed_available_fn = _never
    return made


def _never() -> bool:
    """Whether torch.distributed can be used: a function with a name, so that copies can be pickled."""
    return False


def floats_of(suite: Any, *arguments: Any, **options: Any) -> dict[str, float]:
    """The results of one batch as :func:`floats`; the suite is empty afterwards."""
    try:
        suite.update(*arguments, **options)
        return floats(suite)
    finally:
        suite.reset()


def floats(suite: Metric | MetricCollection) -> dict[str, float]:
    """The results of a suite as Python floats by key; the key of a single metric is its label.

    Raises:
        ValueError: a metric has no single number, or the suite has met bad values.
    """
    results: Any = suite.compute()
    if not isinstance(results, dict):
        results = dict.fromkeys(members(suite), results)
    for key, value in results.items():
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise ValueError(
                f"Expected one number of each metric, got several of {key!r}; leave this metric out of the suite"
            )
    return {key: value.item() for key, value in results.items()}


def members(suite: Any) -> dict[str, Any]:
    """The metrics of a suite by key; the key of a single metric is its label."""
    return dict(suite.items()) if hasattr(suite, "items") else {getattr(suite, "label", type(suite).__name__): suite}
