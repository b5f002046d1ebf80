"""Judged items, pairs and buckets of queries, and the look-up of ids in lists."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import tensor

from torchrank.engine.rank_layout import chunks
from torchrank.layouts.arrange import arrange
from torchrank.layouts.canonical import Judged, Need, buckets
from torchrank.layouts.conversions import found


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


@pytest.mark.parametrize("others", [0, 50])  # with many other queries, a rectangle would have much padding
def test_every_item_that_a_query_has_again_is_found_and_padding_is_none(others):
    items = tensor([0, 3, 0, -1, 3, -1, 0, *[0] * others])
    start = tensor([0, *range(7, 8 + others)])
    assert Judged(items, torch.ones_like(items), start).again().sum() == 3


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


def test_some_of_some_queries_have_their_items():
    ragged = Judged(tensor([5, 3, 7, 2, 9, 4]), torch.ones(6), tensor([0, 2, 2, 3, 6]))
    part = ragged[1:4]
    assert (part.items.tolist(), part.start.tolist()) == ([7, 2, 9, 4], [0, 0, 1, 4])
    assert part.take(tensor([2, 1, 0])).items.tolist() == [2, 9, 4, 7]


def test_a_need_of_two_contains_both():
    some, few, every = Need(3, relevant=True), Need(5), Need(relevant=True, all_candidates=True, metrics=2)
    assert some | few == few | some == Need(5, metrics=2)
    assert some | every == every | some == Need(None, relevant=True, all_candidates=True, metrics=3)


@pytest.mark.parametrize("width", [1, 127, 128, 129, 300])
def test_items_are_found_at_their_places_in_lists_of_any_length(width):
    generator = torch.Generator().manual_seed(width)
    ids = torch.stack([torch.randperm(width + 5, generator=generator)[:width] for _ in range(4)])
    items = torch.tensor([[0, width - 1, width + 4, -1]]).expand(4, -1)
    places = [[row.index(item) + 1 if item in row else 0 for item in items[0].tolist()] for row in ids.tolist()]
    assert found(items, ids).tolist() == places
