"""Digits of measures in ties far down a list, where differences of prefix sums cancel."""

import math
from dataclasses import replace

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from torchrank.formulas.random_ranking import reciprocal_sums
from torchrank.ranking.ranking import only


def tie(first, size, relevant):
    """A query whose relevant candidates are all in one tie group."""
    wide = torch.ones(1, relevant, dtype=torch.float64)
    ranking = tr.Ranking.from_ranks(torch.ones(1), num_candidates=first + size)
    valid, grade = wide.bool(), wide.to(torch.int8)
    return replace(ranking, first=first * wide, tied=size * wide, valid=valid, grade=grade, depth=first + size - 1)


@cases("first", [3, 40, 300, 30_000, 200_000])
@cases(("size", "relevant"), [(2, 2), (3, 1), (10, 4), (1000, 3)])
def test_ties_far_down_a_list_keep_eleven_digits(first, size, relevant):
    ranking, ranks, whole = tie(first, size, relevant), range(first, first + size), math.comb(size, relevant)
    c, places = (relevant - 1) / (size - 1), range(size)
    wanted = {
        tr.MAP(): math.fsum((1 + c * (rank - first)) / rank for rank in ranks) / size,
        tr.MAP(top_k=first + 1): math.fsum((1 + c * i) / (first + i) for i in range(2)) / size,
        tr.MAPAtR(): math.fsum((1 + c * i) / (first + i) for i in range(size) if first + i <= relevant) / size,
        tr.TrapezoidalAP(): math.fsum((1 + c * i) / (first + i) + c * i / (first + i - 1) for i in places) / size / 2,
        tr.INP(): math.fsum(math.comb(i, relevant - 1) / (first + i) for i in places) * relevant / whole,
        tr.DCG(): math.fsum(relevant / math.log2(1 + rank) for rank in ranks) / size,
        tr.DCG(discount="reciprocal"): math.fsum(relevant / rank for rank in ranks) / size,
    }
    for metric, want in wanted.items():
        assert metric.score(ranking).item() == pytest.approx(want, rel=1e-11), metric.label


def test_sums_of_reciprocals_at_any_rank():
    for first in (1, 16, 17, 100, 2 * 10**7, 10**9):
        for count in (0, 1, 2, 16, 17, 18, 33, 1000):
            found = reciprocal_sums(*(torch.tensor([x], dtype=torch.float64) for x in (first, count)))
            for one, tops in zip(found, ([1] * count, range(count))):
                want = math.fsum(top / (first + i) for i, top in enumerate(tops))
                assert one.item() == pytest.approx(want, rel=1e-14, abs=1e-25), (first, count)


@pytest.mark.parametrize("bad", [float("inf"), float("nan"), -0.0])
def test_a_mask_keeps_the_bits_of_infinite_and_nan_values(bad):
    x = torch.tensor([bad, 1.0, bad], dtype=torch.float64).repeat(2, 5)
    mask, first = torch.arange(x.numel()).view(x.shape) % 5 < 2, torch.tensor([[True], [False]])
    for where, values in ((mask, x), (mask[0], x), (mask, x[:1]), (first, x)):
        wanted = torch.where(where, values, 0.0)
        assert only(where, values).numpy().tobytes() == wanted.numpy().tobytes()
    assert torch.equal(only(mask, x.long()), torch.where(mask, x.long(), 0))


@pytest.mark.parametrize("grade", [2000.0, math.inf])
def test_a_gain_that_overflows_is_counted_once_and_in_its_own_query_only(grade):
    metric = tr.DCG(gain="exponential")
    metric.update(torch.rand(3, 2), torch.tensor([[1.0, 0.0], [grade, 1.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"dcg.*: 1 relevance grade, or gain of it"):
        metric.compute()
