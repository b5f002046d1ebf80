"""Rows are sorted as torch sorts them."""

import math

import pytest
import torch

from tests.support.cases import cases
from torchrank.engine import sorting
from torchrank.hardware import costs
from torchrank.hardware.devices import ascending, largest, order_of, sort_in_place
from torchrank.layouts.checks import DTYPES


def matrices():
    """Rows of every dtype, with ties, extremes and values that are equal in 32 bits."""
    generator = torch.Generator().manual_seed(0)
    small = torch.randint(-3, 4, (50, 70), generator=generator)
    for dtype in DTYPES:  # torch does not sort unsigned integers of more than a byte
        if dtype.is_signed or dtype.itemsize == 1:
            yield small.to(dtype)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.randn((40, 90), generator=generator).to(dtype)
        x[::2, ::7], x[1::3, 3], x[::5, 8], x[2, :] = math.inf, -math.inf, -0.0, 0.0
        yield x
        x = x.clone()
        x[::3, 5], x[4, ::2] = math.nan, -torch.tensor(math.nan)
        yield x
    yield 1 + torch.randint(0, 5, (30, 40), generator=generator).double() * 1e-15
    yield torch.tensor([[1e300, 2e300, -1e300, 1e-300, 0, -1e-300, 1e300]], dtype=torch.float64)
    yield torch.tensor([[2**62, -(2**62), 2**62 + 1, 2**62], [3, 3, 3, 3]])
    yield torch.tensor([[2**31 - 1, -(2**31), 0, 2**31 - 1]])
    yield torch.tensor([[2**31, 0, 5, 2**31]])
    yield torch.tensor([[-(2**31) - 1, 0, 5, -(2**31)]])
    yield torch.tensor([[2**31 - 1, -(2**31), 0, 2**31 - 1]], dtype=torch.int32)
    for dtype, least in ((torch.float32, 1e-40), (torch.float64, 5e-324)):
        x = torch.stack([torch.randperm(90, generator=generator) - 45.5 for _ in range(40)]).to(dtype)
        x[30, :4] = torch.tensor([0.0, least, -least, torch.finfo(dtype).max / 100], dtype=dtype)
        x[31, 7], x[33, 10:50:2], x[35, 3], x[35, 70] = -0.0, 3.5, 0.0, -0.0
        yield from (x, x.T.contiguous().T, x[:, ::3])
    close = torch.rand((40, 90), generator=generator, dtype=torch.float64)
    close[35] = 1 + torch.randperm(90, generator=generator) * 2.0**-52
    yield close
    yield from (torch.zeros(3, 0), torch.zeros(0, 3), torch.zeros(3, 1))


def test_columns_of_zeros_are_kept_where_denormal_numbers_are_zero():
    x = torch.randn((64, 90), generator=torch.Generator().manual_seed(6))
    x[60:, 3] = 0
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor keeps denormal numbers")
    try:
        order = sorting.descending(x).order
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(order, x.argsort(dim=-1, descending=True))


@cases("x", list(matrices()), ids=lambda x: f"{x.dtype}{list(x.shape)}")
def test_rows_are_sorted_as_torch_sorts_them(x):
    values, order, begins = sorting.descending(x)
    want, expected = x.sort(dim=-1, descending=True, stable=True)
    torch.testing.assert_close(values, want, rtol=0, atol=0, equal_nan=True)
    assert order.dtype == torch.int64
    assert torch.equal(order, expected)
    # Whether a run begins is written down element by element, as NaN is unequal to itself.
    rows = values.tolist()
    runs = [[not column or row[column] != row[column - 1] for column in range(len(row))] for row in rows]
    assert begins.tolist() == runs
    if not x.is_floating_point():
        for threads in (0, 9):  # by torch, by numpy
            with costs.assumed(numpy_threads=threads):
                rows = x.long()
                assert torch.equal(ascending(rows), want.long().flip(-1))
                for k in {1, rows.shape[1] // 2, rows.shape[1]} - {0}:
                    assert torch.equal(largest(rows, k), want.long()[:, :k])
                sort_in_place(rows := rows.clone())
                assert torch.equal(rows, want.long().flip(-1))


@pytest.mark.parametrize("columns", [9, 40_000])
def test_a_row_is_sorted_by_keys_as_large_as_it_is_wide(columns):
    key = torch.arange(columns).flip(0)
    assert torch.equal(sorting.by_key(key.unsqueeze(0)), key.unsqueeze(0))
    assert torch.equal(order_of(key), key)
    assert order_of(torch.tensor([5, 0, 9, 2])).tolist() == [1, 3, 0, 2]
    halves = key.unsqueeze(0) // 2
    assert torch.equal(
        sorting.by_key(halves)[0], torch.tensor(sorted(range(columns), key=halves[0].tolist().__getitem__))
    )
