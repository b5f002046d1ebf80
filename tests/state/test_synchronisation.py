"""What is reduced over workers together, and where. Workers themselves are in tests/properties/test_workers.py."""

import pytest
import torch

import torchrank as tr
from torchrank.state import synchronisation


@pytest.mark.parametrize("options", [{"dist_sync_fn": len}, {"sync_on_compute": False}], ids=["function", "alone"])
def test_a_state_that_is_synchronised_in_another_way_is_not_reduced_together_with_others(options):
    assert tr.MRR().reducible()
    assert not tr.MRR(**options).reducible()


BOTH = "cpu:gloo,cuda:nccl"


@pytest.mark.parametrize(
    ("backends", "device"),
    [("cuda:nccl", "cpu"), (BOTH, "cpu"), (BOTH, "cuda"), ("cuda:nccl", "cuda"), ("cpu:gloo", "cpu")],
)
def test_only_a_metric_on_the_cpu_needs_a_group_that_reduces_there(monkeypatch, backends, device):
    for name, found in {"get_rank": 1, "get_world_size": 3, "get_backend_config": backends}.items():
        monkeypatch.setattr(synchronisation.dist, name, lambda group, found=found: found)
    if "cpu" not in backends and device == "cpu":
        with pytest.raises(ValueError, match=rf"reduces tensors on the CPU, got '{backends}' and a metric on the CPU"):
            synchronisation.place_in(None, torch.device(device))
    else:
        assert synchronisation.place_in(None, torch.device(device)) == (1, 3)
