"""Sums of discounts: digits that rounding takes from long sums are kept."""

import itertools
import random
from fractions import Fraction

import pytest
import torch

from torchrank.ranking.intervals import BLOCK, NEAR, lost_digits, prefix_differences, prefix_sums


@pytest.mark.parametrize("discount", [torch.reciprocal, lambda rank: 1 / torch.log2(rank + 1)], ids=["1/r", "log2"])
def test_sums_of_discounts_of_a_few_ranks_far_down_have_all_digits(discount):
    limit = BLOCK + 1000
    starts = torch.tensor([NEAR, BLOCK - 3, BLOCK - 1, BLOCK, BLOCK + 1, limit - 2])
    sums = prefix_differences(discount, limit, torch.stack([starts, starts + 2]), torch.float64)
    want = [sum(discount(torch.tensor([n + 1.0, n + 2.0], dtype=torch.float64)).tolist()) for n in starts.tolist()]
    assert sums.tolist() == pytest.approx(want, rel=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_digits_that_running_sums_lose_are_those_of_exact_sums(seed):
    draw = random.Random(seed)
    values = [draw.random() * 2.0 ** (rank + draw.randint(-30, 30)) for rank in range(NEAR + 50)]
    limit, discount = len(values), lambda rank: torch.tensor(values, dtype=torch.float64)[rank.long() - 1]
    table = prefix_sums(discount, limit, torch.float64, torch.device("cpu")).tolist()
    exact = [Fraction(0), *itertools.accumulate(map(Fraction, values))]
    lost = [float(whole - Fraction(rounded)) for whole, rounded in zip(exact, table)]
    found = lost_digits(discount, limit, torch.float64, torch.device("cpu"))
    assert found[NEAR:].tolist() == pytest.approx([x - lost[NEAR] for x in lost[NEAR:]], rel=1e-9)
