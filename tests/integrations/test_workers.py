"""A sampler that repeats no query, alone and beside that of torch."""

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases


@cases("shuffle", [False, True])
@cases("world", [1, 2, 3, 7])
@cases("size", [0, 1, 5, 12])
def test_every_sample_is_on_one_worker_once(size, world, shuffle):
    samplers = [tr.UnpaddedSampler(range(size), rank, world, shuffle=shuffle) for rank in range(world)]
    parts = [list(sampler) for sampler in samplers]
    assert sorted(n for part in parts for n in part) == list(range(size))
    assert [len(sampler) for sampler in samplers] == [len(part) for part in parts]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    equal = [tr.UnpaddedSampler(size, rank, world, shuffle=shuffle, drop_last=True) for rank in range(world)]
    assert [list(sampler) for sampler in equal] == [part[: size // world] for part in parts]
    assert {len(sampler) for sampler in equal} == {size // world}


@cases("world", [1, 2, 3, 7])
@cases("drop_last", [False, True])
def test_a_sampler_has_the_attributes_of_a_distributed_sampler(world, drop_last):
    dataset = list("abcdefghijkl")
    names = ("rank", "num_replicas", "dataset", "shuffle", "seed", "drop_last", "epoch")
    samplers = [tr.UnpaddedSampler(dataset, rank, world, drop_last=drop_last) for rank in range(world)]
    for rank, sampler in enumerate(samplers):
        peer = torch.utils.data.DistributedSampler(dataset, world, rank, shuffle=False, drop_last=drop_last)
        assert [getattr(sampler, name) for name in names] == [getattr(peer, name) for name in names]
        assert sampler.num_samples == len([*sampler])
        assert sampler.total_size == sum(len([*one]) for one in samplers)
        assert not drop_last or (sampler.num_samples, sampler.total_size) == (peer.num_samples, peer.total_size)


def test_an_epoch_and_a_seed_have_an_order_of_their_own():
    def order(epoch=0, **kwargs):
        sampler = tr.UnpaddedSampler(50, shuffle=True, **kwargs)
        sampler.set_epoch(epoch)
        return tuple(sampler)

    torch.manual_seed(1)
    first = order()
    torch.manual_seed(2)
    assert order() == first
    assert len({first, order(1), order(2), order(seed=1), order(1, seed=1), tuple(range(50))}) == 6


def test_a_sampler_made_before_the_process_group_finds_its_worker_later(monkeypatch):
    whole, even, first, none = (
        tr.UnpaddedSampler(5, rank, **kwargs)
        for rank, kwargs in ((None, {}), (None, {"drop_last": True}), (0, {}), (2, {}))
    )
    assert [*whole] == [*even] == [*first] == [*range(5)]
    for name, value in {"is_initialized": True, "get_rank": 1, "get_world_size": 2}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    assert [[*whole], [*even], [*first]] == [[1, 3], [1, 3], [0, 2, 4]]
    assert [len(whole), len(even), len(first)] == [2, 2, 3]
    found = whole.rank, whole.num_replicas, whole.num_samples, whole.total_size, len(whole.dataset)
    assert found == (1, 2, 2, 5, 5)
    with pytest.raises(ValueError, match="Expected rank from 0 to 1 of 2 workers, got 2"):
        list(none)
    for rank, world in ((3, 3), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="Expected rank from 0"):
            tr.UnpaddedSampler(5, rank, world)
