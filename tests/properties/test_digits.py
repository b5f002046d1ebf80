"""Digits of measures in ties far down a list, where differences of prefix sums cancel."""

import math
from dataclasses import replace

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from torchrank.formulas.cascades import best_first
from torchrank.formulas.random_ranking import reciprocal_sums


def tie(first, size, relevant):
    """A query whose relevant candidates are all in one tie group."""
    wide = torch.ones(1, relevant, dtype=torch.float64)
    ranking = tr.Ranking.from_ranks(torch.ones(1), num_candidates=first + size)
    valid, grade = wide.bool(), wide.to(torch.int8)
    return replace(ranking, first=first * wide, tied=size * wide, valid=valid, grade=grade, depth=first + size - 1)


@cases("first", [3, 40, 300, 30_000, 200_000])
@cases(("size", "relevant"), [(2, 2), (3, 1), (10, 4), (1000, 3)])
def test_ties_far_down_a_list_keep_eleven_digits(first, size, relevant):
    ranking, ranks = tie(first, size, relevant), range(first, first + size)
    c = (relevant - 1) / (size - 1)
    wanted = {
        tr.MAP(): math.fsum((1 + c * (rank - first)) / rank for rank in ranks) / size,
        tr.MAP(top_k=first + 1): math.fsum((1 + c * i) / (first + i) for i in range(2)) / size,
        tr.MAPAtR(): math.fsum((1 + c * i) / (first + i) for i in range(size) if first + i <= relevant) / size,
        tr.TrapezoidalAP(): math.fsum((1 + c * i) / (first + i) + c * i / (first + i - 1) for i in range(size))
        / size
        / 2,
        tr.INP(): math.fsum(math.comb(i, relevant - 1) / (first + i) for i in range(size))
        * relevant
        / math.comb(size, relevant),
        tr.DCG(): math.fsum(relevant / math.log2(1 + rank) for rank in ranks) / size,
        tr.DCG(discount="reciprocal"): math.fsum(relevant / rank for rank in ranks) / size,
    }
    for metric, want in wanted.items():
        assert metric.score(ranking).item() == pytest.approx(want, rel=1e-11), metric.label


def test_sums_of_reciprocals_at_any_rank():
    for first in (1, 16, 17, 100, 2 * 10**7, 10**9):
        for count in (0, 1, 2, 16, 17, 18, 33, 1000):
            found = reciprocal_sums(*(torch.tensor([x], dtype=torch.float64) for x in (first, count)))
            wanted = [
                math.fsum(top / (first + i) for i, top in enumerate(tops)) for tops in ([1] * count, range(count))
            ]
            for one, want in zip(found, wanted):
                assert one.item() == pytest.approx(want, rel=1e-14, abs=1e-25), (first, count)


@pytest.mark.parametrize("binary", [True, False])
def test_the_greedy_order_of_equal_candidates(binary):
    generator = torch.Generator().manual_seed(1)
    worth = torch.randint(0, 2 if binary else 4, (9, 3, 7), generator=generator).double() / (1 if binary else 4)
    got = best_first(worth, 0.5, 5)
    for query, gains in zip(worth, got):
        left, free = torch.ones(3, dtype=torch.float64), list(range(7))
        for gain in gains.tolist():
            chosen = max(free, key=lambda c: (round((query[:, c] * left).sum().item(), 9), *query[:, c].tolist()))
            assert gain == pytest.approx((query[:, chosen] * left).sum().item(), rel=1e-12)
            left, free = left * (1 - 0.5 * query[:, chosen]), [c for c in free if c != chosen]
