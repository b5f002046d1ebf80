"""Numbers are sorted alike by numpy and by torch."""

import math

import pytest
import torch

from torchrank.hardware import devices

NUMBERS = torch.tensor([math.nan, -math.inf, math.inf, -0.0, 0.0, 1.0, 1.0, 2.5, -3.0])


def rows(dtype, height, width):
    g = torch.Generator().manual_seed(width)
    if dtype.is_floating_point:
        return NUMBERS[torch.randint(len(NUMBERS), (height, width), generator=g)].to(dtype)
    return torch.randint(-9, 9, (height, width), generator=g).to(dtype)


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int16, torch.int64], ids=str)
def test_numbers_are_sorted_and_selected_as_by_plain_python(monkeypatch, assume, dtype, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assume(heap_from=8)
    for height, width in ((3, 1), (7, 40), (0, 5)):
        x = rows(dtype, height, width)
        kept = x.clone()
        # NaN last, as the largest number
        want = [sorted(row, key=lambda number: (math.isnan(number), number)) for row in x.tolist()]
        for k in (0, 1, 3, 13, 20, 40):
            if k <= width:
                found = devices.largest(x, k)
                assert found.dtype == dtype
                assert equal(found, [row[::-1][:k] for row in want])
        assert equal(devices.ascending(x), want)
        assert torch.equal(x.nan_to_num(7), kept.nan_to_num(7))
        if not dtype.is_floating_point:
            row = x.flatten()
            devices.sort_in_place(x)
            assert x.tolist() == want
            devices.sort_in_place(row)
            assert row.tolist() == sorted(kept.flatten().tolist())


@pytest.mark.parametrize("numbers", [[], [0], [2, 0, 1], [3, 0], [5, 0, 9, 2], [7], [1, 2, 3]])
def test_the_order_of_numbers_of_which_some_may_be_missing(numbers):
    want = sorted(range(len(numbers)), key=numbers.__getitem__)
    assert devices.order_of(torch.tensor(numbers, dtype=torch.int64)).tolist() == want


def equal(x, want):
    other = torch.tensor(want, dtype=torch.float64).view(x.shape)
    return torch.equal(x.double().nan_to_num(77), other.nan_to_num(77))
