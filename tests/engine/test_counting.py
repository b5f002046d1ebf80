"""Counts of scores, and of excluded pairs, are those of plain comparisons."""

import itertools
import math

import pytest
import torch

from torchrank.engine import judged as counting
from torchrank.engine.judged import ScoreCounts
from torchrank.layouts.canonical import Pairs

INF, NAN = math.inf, math.nan
VALUES = [-INF, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, INF, NAN]


def drawn(shape, generator, dtype=torch.float32):
    return torch.tensor(VALUES, dtype=dtype)[torch.randint(len(VALUES), shape, generator=generator)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("cached", [7, 100, 2**18])
def test_every_type_is_counted_in_tiles_of_every_size(assume, dtype, cached):
    assume(tile=cached)
    generator = torch.Generator().manual_seed(0)
    for (queries, candidates, entries), masked in itertools.product(((1, 1, 1), (5, 40, 1), (7, 33, 4)), (False, True)):
        scores = drawn((queries, candidates), generator, dtype)
        scores[0] = scores[0].nan_to_num(1)
        own = scores[:, torch.randint(candidates, (entries,), generator=generator)]
        mask = torch.rand(scores.shape, generator=generator) > 0.3 if masked else None
        counts = counting.count_by_comparing(scores, own, mask)
        for row in range(queries):
            there = [
                x for x, kept in zip(scores[row].tolist(), [True] * candidates if mask is None else mask[row]) if kept
            ]
            assert counts.retrieved[row] == sum(x > -INF for x in there)
            assert counts.has_nan[row] == any(math.isnan(x) for x in there)
            for entry, mine in enumerate(own[row].tolist()):
                assert counts.greater[row, entry] == sum(x > mine for x in there)
                assert counts.equal[row, entry] == sum(x == mine > -INF for x in there)


def test_counts_by_sorting_equal_counts_by_comparing_also_beside_nan():
    generator = torch.Generator().manual_seed(1)
    for queries, candidates, entries in ((1, 1, 1), (40, 7, 3), (9, 60, 4)):
        scores = drawn((queries, candidates), generator)
        own = scores[:, torch.randint(candidates, (entries,), generator=generator)]
        mask = torch.rand(scores.shape, generator=generator) > 0.3
        for given in (None, mask):
            got, want = (
                counting.count_by_sorting(scores, own, given),
                counting.count_by_comparing(scores, own, given),
            )
            # An item that was not retrieved gets no equal candidates later.
            got = got._replace(equal=torch.where(own > -INF, got.equal, 0))
            for one, other in zip(got, want):
                assert torch.equal(one, other)


def test_tiles_of_all_sizes_count_alike(assume):
    scores = torch.randint(9, (200, 16), generator=torch.Generator().manual_seed(0)).float()
    bounds = scores[:, :3].contiguous()
    want = (scores.unsqueeze(1) > bounds.unsqueeze(-1)).sum(-1)
    for tile in (5, 64, 128, 10**6):
        assume(tile=tile)
        assert torch.equal(counting.count_above(scores, bounds), want)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("own", [0, 1, 2])
def test_zero_is_tied_with_itself_where_denormal_numbers_are_zero(monkeypatch, fused, own):
    monkeypatch.setattr(counting, "_requested", fused)
    monkeypatch.setattr(counting, "_kernel", lambda: counting._compare)
    scores = torch.tensor([[0.0, 1e-40, -1e-40, -2e-38, 1.0]])
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor keeps denormal numbers")
    try:
        counts = counting.count_by_comparing(scores, scores[:, own : own + 1])
    finally:
        torch.set_flush_denormal(False)
    assert (counts.greater.item(), counts.equal.item()) == (1, 3)
    counts = counting.count_by_comparing(scores, scores[:, own : own + 1])
    assert (counts.greater.item(), counts.equal.item()) == ((2, 1, 3)[own], 1)


def test_candidates_that_are_not_retrieved_equal_nothing():
    scores = torch.tensor([[1.0, -math.inf, -math.inf, 1.0], [-2.0, -math.inf, -3.0, -2.0]])
    assert counting.count_equal(scores, torch.tensor([[-math.inf], [-math.inf]])).tolist() == [0, 0]
    assert counting.count_equal(scores, scores[:, :1]).tolist() == [2, 2]


def test_nan_is_found_if_as_many_scores_are_numbers_as_there_are_queries():
    scores = torch.ones(3, 4)
    scores[:, 2] = math.nan
    counts = counting.count_by_comparing(scores, scores[:, :1])
    assert counts.retrieved.tolist() == [3, 3, 3]
    assert counts.has_nan.all()


def test_counts_are_added_to_those_of_other_columns():
    scores = torch.tensor([[3.0, 1.0, 2.0, 2.0]])
    total = ScoreCounts.nothing((1, 1), scores.device)
    for columns in scores.split(2, dim=1):
        assert counting.count_by_comparing(columns, scores[:, 2:3], total=total) is total
    assert [x.item() for x in total] == [1, 2, 4, False]


@pytest.mark.parametrize("entries", [3, 17, 40])
@pytest.mark.parametrize("with_tie_break", [False, True])
def test_excluded_pairs_are_subtracted_one_by_one(entries, with_tie_break):
    generator = torch.Generator().manual_seed(entries)
    own, scores = drawn((4, entries), generator), drawn((150,), generator)
    own_ties, ties = (torch.randint(3, shape, generator=generator) for shape in (own.shape, scores.shape))
    query = torch.randint(-1, 4, scores.shape, generator=generator).sort().values
    counts = ScoreCounts.nothing((4, entries), own.device)
    breaks = (ties, own_ties) if with_tie_break else (None, None)
    counting.subtract(counts, Pairs(query, torch.zeros_like(query)), scores, own, *breaks)
    for row in range(4):
        pairs = [(s, t if with_tie_break else 0) for q, s, t in zip(query, scores.tolist(), ties.tolist()) if q == row]
        assert -counts.retrieved[row] == sum(s > -INF for s, _ in pairs)
        for entry, mine in enumerate(own[row].tolist()):
            tie = int(own_ties[row, entry]) if with_tie_break else 0
            assert -counts.greater[row, entry] == sum(s > mine or (s == mine and t > tie) for s, t in pairs)
            assert -counts.equal[row, entry] == sum(s == mine and t == tie for s, t in pairs)


@pytest.mark.parametrize("entries", [3, 17, 40])
def test_excluded_pairs_remove_judged_items_that_are_not_relevant(entries):
    generator = torch.Generator().manual_seed(entries)
    items = torch.stack([torch.randperm(60, generator=generator)[:entries] for _ in range(4)])
    items[:, -2:], grade = -1, torch.randint(2, items.shape, generator=generator)
    query, item = torch.randint(-1, 4, (99,), generator=generator), torch.randint(60, (99,), generator=generator)
    pairs, gone = counting.removable(Pairs(query, item), items, grade)
    given = set(zip(query.tolist(), item.tolist()))
    for row, judged in enumerate(items.tolist()):
        for entry, one in enumerate(judged):
            assert gone[row, entry] == ((row, one) in given and one >= 0 and grade[row, entry] == 0)
    relevant = {
        (row, one) for row, judged in enumerate(items.tolist()) for i, one in enumerate(judged) if grade[row, i]
    }
    for before, after, one in zip(query.tolist(), pairs.query.tolist(), item.tolist()):
        assert after == (-1 if (before, one) in relevant else before)


@pytest.mark.parametrize("row", [[0.3, 0.1, 0.1], [0.3, 0.3, 0.1], [0.1, 0.2, 0.3], [0.2]])
def test_sorting_finds_ties_wherever_they_are(row):
    scores = torch.tensor([row])
    counts = counting.count_by_sorting(scores, scores)
    assert counts.equal.tolist() == [[row.count(x) for x in row]]
    assert counts.greater.tolist() == [[sum(other > x for other in row) for x in row]]
