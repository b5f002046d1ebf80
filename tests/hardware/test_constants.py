"""Constants that are made once for each device, and states that are added by one kernel."""

import pytest
import torch

import torchrank as tr
from torchrank.hardware import devices


@pytest.mark.parametrize("large", [False, True])
def test_small_and_large_constants_do_not_displace_each_other(large):
    sizes = {False: devices.SMALL, True: devices.SMALL + 1}
    most = {False: devices.MANY, True: devices.MOST}
    made = devices.constant(lambda number, size: torch.full((size,), float(number)))
    other = made(-1, sizes[not large])
    first = made(-1, sizes[large])
    for number in range(most[large] - 1):
        made(number, sizes[large])
    assert made(-1, sizes[large]) is first
    made(most[large], sizes[large])
    assert made(-1, sizes[large]) is not first  # the oldest had to go
    assert made(-1, sizes[not large]) is other
    assert len(devices._tensors) <= devices.MANY + devices.MOST
    assert made(0, devices.LARGEST) is made(0, devices.LARGEST)
    assert made(0, devices.LARGEST + 1) is not made(0, devices.LARGEST + 1)


@pytest.mark.xdist_group("gpu")  # the first mode of a process takes a second
def test_constants_of_a_tracing_mode_are_not_kept():
    first = []
    made = devices.constant(lambda number: torch.full((2,), float(number)))
    pair = devices.constant(lambda: (first[-1], torch.ones(2)))
    with torch._subclasses.FakeTensorMode():
        first.append(made(1))
    assert made(1).tolist() == [1, 1]
    assert pair()[0] is first[0]  # one of the two
    first.append(torch.zeros(2))
    assert pair()[0].tolist() == [0, 0]


def test_discounts_of_users_may_change_between_batches():
    power = [1.0]

    def discount(rank):
        return rank ** -power[0]

    metric, tied = tr.DCG(discount=discount), (torch.zeros(1, 4), torch.tensor([[1, 0, 0, 0]]))
    for power[0] in (1.0, 2.0):
        want = sum(rank ** -power[0] for rank in (1, 2, 3, 4)) / 4
        assert metric.score(*tied).item() == pytest.approx(want)
