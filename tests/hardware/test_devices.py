"""What a device can do, and values that are read without waiting for it."""

import sys

import pytest
import torch

import torchrank as tr
from torchrank import retrieval
from torchrank.hardware import costs, devices

CPU, CUDA, MPS = map(torch.device, ("cpu", "cuda", "mps"))


def test_a_processor_keeps_denormal_numbers_until_it_is_told_not_to():
    assert [devices.keeps_denormals(device) for device in (CPU, CUDA, MPS)] == [True, True, False]
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor keeps denormal numbers")
    try:
        assert not devices.keeps_denormals(CPU)
    finally:
        torch.set_flush_denormal(False)


def test_numpy_sorts_on_a_cpu_with_few_threads(monkeypatch):
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        with costs.assumed(numpy_threads=2):
            assert [devices.by_numpy(device) for device in (CPU, CUDA)] == [threads <= 2, False]


def test_autocast_is_off_where_there_is_one():
    ones = torch.ones(2, 2)
    with torch.autocast("cpu"):
        with devices.in_batch(CPU):
            assert (ones @ ones).dtype == torch.float32
        with devices.in_batch(torch.device("meta")):  # which has no autocast
            assert (ones @ ones).dtype == torch.bfloat16


def test_a_metric_on_the_cpu_in_a_group_for_gpus_raises(tmp_path):
    """Gloo for tensors on "cuda" alone has the devices of a group with NCCL, which this machine may not have."""
    suite, rows = tr.RankingCollection(["mrr", "ndcg"]), retrieval.RetrievalMRR()
    table, report = tr.PerQuery("mrr"), tr.TieReport("mrr")
    scores, label = torch.rand(3, 4), torch.tensor([0, 1, 2])
    for metric in (suite, report):
        metric.update(scores, label)
    table.update(scores, label, query_ids=label)
    rows.update(scores[0], torch.tensor([0, 1, 0, 1]), torch.zeros(4, dtype=torch.int64))
    torch.distributed.init_process_group("cuda:gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        for metric in (suite, suite["mrr"], rows, table, report):
            with pytest.raises(ValueError, match=r"on the CPU, got 'cuda:gloo' .*cpu:gloo,cuda:nccl"):
                metric.compute()
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("precision", [None, "highest", "tf32"])
def test_a_device_without_a_choice_of_precision_multiplies_as_it_does(precision):
    with devices.multiplying(precision, torch.device("mps")):
        assert torch.eye(2).mm(torch.ones(2, 2)).equal(torch.ones(2, 2))


def test_a_tile_takes_half_of_a_large_second_level_cache():
    sizes = [costs.tile_for(kilobytes * 1024) for kilobytes in (0, 512, 2047, 2048, 4096)]
    assert sizes == [2**19, 2**19, 2**19, 2**18, 2**19]
    assert costs.Costs().tile == costs.tile_for(costs.second_level())


def test_a_metric_is_outside_of_graphs_only_in_a_process_that_compiles(monkeypatch):
    called = []
    function = devices.eager(lambda: called.append("called"))
    monkeypatch.setattr(torch.compiler, "disable", lambda function: lambda: called.append("outside"))
    monkeypatch.setitem(sys.modules, "torch._dynamo", sys)
    function()
    monkeypatch.delitem(sys.modules, "torch._dynamo")
    function()
    assert called == ["outside", "called"]
