"""Judged items, pairs and buckets of queries, and the look-up of ids in lists."""

import itertools
import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import tensor

from tests.support.unread import Elsewhere
from torchrank.engine.rank_layout import chunks
from torchrank.layouts.arrange import arrange
from torchrank.layouts.canonical import Judged, Need, Pairs, buckets
from torchrank.layouts.conversions import found
from torchrank.layouts.conversions import repeated as repeated_ids


def test_queries_of_similar_sizes_share_a_rectangle():
    sizes = tensor([9, 100, 1, 9, 2, 100, 0])
    cut = [(rows.tolist(), width) for rows, width in buckets(sizes, 5, 1000)]
    assert cut == [([1, 5], 100), ([0, 3], 9), ([2, 4, 6], 2)]
    assert [(rows.tolist(), width) for rows, width in buckets(sizes, 1000, 700)] == [([*range(7)], 100)]
    assert [rows.tolist() for rows, _ in buckets(sizes, 1000, 200)] == [[0, 1], [2, 3], [4, 5], [6]]


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(0, 200))
@example([0, 1], 0)
def test_a_rectangle_is_as_wide_as_its_longest_query_and_padding_costs_no_more_than_one_more(sizes, overhead):
    rectangles = list(buckets(tensor(sizes, dtype=torch.int64), overhead, 10**9))
    assert sorted(row for rows, _ in rectangles for row in rows.tolist()) == list(range(len(sizes)))
    for rows, width in rectangles:
        inside = [max(1, sizes[row]) for row in rows.tolist()]
        assert width == max(inside, default=1)
        octaves = {size: [x for x in inside if math.ceil(math.log2(x)) == size] for size in range(7)}
        for some in octaves.values():
            assert not some or width < 2 * max(some) or (width - max(some)) * len(some) <= overhead


def test_chunks_of_queries_fill_their_room_and_not_more(assume):
    assume(block=(room := 2000))
    queries, width = 500, 40
    ids, scores = torch.arange(width).expand(queries, width), torch.rand(queries, width)
    grades = torch.zeros(queries, width, 3, dtype=torch.int64)
    few, many = ([torch.arange(number)] * queries for number in (3, 30))
    for layout, each in (
        (arrange(ids, few), 3 * width),  # each judged id is compared with each id
        (arrange(ids, many), 2 * (3 * 10 + width)),  # both are sorted
        (arrange(scores, few), 3),
        (arrange(scores, many), 30),
        (arrange(scores, grades[..., 0]), width),
        (arrange(scores, grades), 3 * width),
    ):
        cuts = [stop - start for start, stop in chunks(layout, Need(reach=5))] or [queries]
        assert sum(cuts) == queries
        assert max(cuts) * each <= 1.25 * room
        assert max(cuts) * each > 0.7 * room


def test_pairs_of_some_queries_are_the_same_on_an_accelerator():
    query, item = tensor([-1, 0, 0, 2, 3, 3]), tensor([9, 4, 5, 6, 7, 8])
    for start, stop in ((0, 1), (1, 3), (2, 4), (0, 4)):
        got = []
        for kind in (torch.Tensor, Elsewhere):
            pairs = Pairs(query.as_subclass(kind), item).rows(start, stop)
            got.append([pair for pair in zip(pairs.query.tolist(), pairs.item.tolist()) if pair[0] != -1])
        assert got[0] == got[1] == [(q - start, i) for q, i in zip(query.tolist(), item.tolist()) if start <= q < stop]


def test_pairs_of_queries_in_another_order_are_the_same_on_an_accelerator():
    query, item = tensor([-1, 0, 0, 2, 3, 3]), tensor([9, 4, 5, 6, 7, 8])
    number = tensor([2, 0, -1, 1, -1])  # of queries 0 to 3, and of pairs without a query
    for kind in torch.Tensor, Elsewhere:
        pairs = Pairs(query.as_subclass(kind), item).numbered(number.as_subclass(kind))
        got = [pair for pair in zip(pairs.query.tolist(), pairs.item.tolist()) if pair[0] != -1]
        assert sorted(got) == [(1, 7), (1, 8), (2, 4), (2, 5)]
        if kind is torch.Tensor:  # where the others are left out, and the rest is sorted
            assert pairs.query.tolist() == [1, 1, 2, 2]


def test_ragged_items_of_some_queries_are_in_the_order_of_these():
    items, grades = [[5, 3], [], [7], [2, 9, 4]], [[1, 0], [], [2], [3, 1, 1]]
    start = tensor([0, 2, 2, 3, 6])
    ragged = Judged(*(tensor([*itertools.chain(*rows)]) for rows in (items, grades)), start)
    for rows in [3, 0], [1], [2, 1, 3], [0, 1, 2, 3], []:
        taken = ragged.take(tensor(rows, dtype=torch.int64))
        for got, want in (taken.items, items), (taken.grade, grades):
            assert [part.tolist() for part in got.split(taken.sizes.tolist())] == [want[row] for row in rows]
        width = max(map(len, (items[row] for row in rows)), default=0) or 1
        wide = [
            [[*some[row], *[pad] * (width - len(some[row]))] for row in rows]
            for some, pad in ((items, -1), (grades, 0))
        ]
        assert [part.tolist() for part in taken.rectangle()] == wide
    part = ragged[1:3]
    assert (part.items.tolist(), part.grade.tolist(), part.start.tolist()) == ([7], [2], [0, 0, 1])


def test_an_item_is_repeated_within_its_query_only():
    rows = [[0, 3, 0, 3, 0], [0], [3, -1, -1], [5, 5]]
    start = tensor([0, 5, 6, 9, 11])
    items = tensor([*itertools.chain(*rows)])
    assert int(Judged(items, torch.ones_like(items), start).again().sum()) == 2 + 1 + 1
    assert int(Judged.from_rows(tensor([[0, 3, 0], [-1, -1, 0]])).again().sum()) == 1


@pytest.mark.parametrize("compared", [0, 100])
def test_an_item_is_found_at_its_last_position(assume, compared):
    assume(compared=compared)
    g = torch.Generator().manual_seed(0)
    items, ids = torch.randint(-1, 9, (20, 4), generator=g), torch.randint(-1, 9, (20, 7), generator=g)
    for row, of_query, listed in zip(found(items, ids).tolist(), items.tolist(), ids.tolist(), strict=True):
        places = {one: place for place, one in enumerate(listed, 1)}
        assert row == [places.get(one, 0) if one >= 0 else 0 for one in of_query]


def test_a_need_of_two_contains_both():
    some, few, every = Need(3, relevant=True), Need(5), Need(relevant=True, all_candidates=True, metrics=2)
    assert some | few == few | some == Need(5, metrics=2)
    assert some | every == every | some == Need(None, relevant=True, all_candidates=True, metrics=3)


def test_padding_of_ids_is_not_repeated():
    ids = tensor([[3, -1, 3, -1], [-1, -1, -1, 4]])
    assert repeated_ids(ids).tolist() == [[False, False, True, False], [False] * 4]
