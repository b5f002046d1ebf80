"""Flat rows and lists that are sorted: their entries are those counted one query at a time."""

import itertools
from collections import Counter
from math import inf as INF

import pytest
import torch

import torchrank as tr
from tests.support.brute_force_ranks import assert_stands, entries, joined, make_blocks_small, some_scores, standing
from torchrank.engine import rank
from torchrank.engine.lists import NumberedRows, PackedRows, rank_lists
from torchrank.layouts.arrange import arrange
from torchrank.layouts.canonical import Need


@pytest.mark.parametrize("grade", [0, -3])
def test_flat_rows_of_which_none_is_relevant_have_lists_and_no_entries(grade):
    scores, indexes = torch.tensor([0.3, -INF, 0.1, 0.2, 0.3]), torch.tensor([7, 7, 2, 2, 2])
    layout = arrange(scores, torch.full((5,), grade), indexes=indexes)
    assert PackedRows.of(layout, scores, Need(relevant=True)) is not None
    ranking = tr.Ranking.from_flat(scores, torch.full((5,), grade), indexes)
    assert ranking.num_candidates.tolist() == [3, 1]
    assert not ranking.valid.any()


def test_flat_rows_without_a_tie_are_untied():
    scores, indexes = torch.tensor([0.3, 0.2, 0.1, 0.2]), torch.tensor([7, 7, 7, 2])
    assert tr.Ranking.from_flat(scores, torch.ones(4), indexes).untied
    assert not tr.Ranking.from_flat(scores.clamp_min(0.2), torch.ones(4), indexes).untied
    ranking = tr.Ranking.from_flat(torch.tensor([0.3, -INF, -INF, 0.1]), torch.ones(4), indexes)
    assert (ranking.untied, ranking.tied.tolist()) == (True, [[1, 0, 0], [1, 0, 0]][::-1])


def test_no_query_of_very_many_candidates_has_no_value():
    assert tr.MAP().score(torch.zeros(0, 600_000), torch.zeros(0, 600_000)).shape == (0,)


def test_lists_whose_best_differ_are_not_sorted_whole(monkeypatch):
    monkeypatch.setattr("torchrank.engine.lists.descending", None)
    scores = torch.stack([torch.randperm(5000) for _ in range(4)]).float()
    layout = arrange(scores, torch.ones(4, 5000, dtype=torch.int8))
    (ranking,) = rank_lists(layout, 3)
    assert ranking.first.tolist() == [[1, 2, 3]] * 4


LIMIT = torch.iinfo(torch.int64)


INDEXES = {
    "few": (range(12), torch.int64),
    "int32": (range(-(2**31), 2**31, 2**29), torch.int32),
    "negative int32": (range(-(2**31), -1, 2**28), torch.int32),
    "int16": (range(-30_000, 30_001, 6_000), torch.int16),
    "int8": (range(-100, 101, 20), torch.int8),
    "uint8": (range(5, 256, 25), torch.uint8),
    "uint16": (range(5, 65_000, 6_000), torch.uint16),
    "uint32": (range(5, 2**32, 2**28), torch.uint32),
    "huge": ((LIMIT.min, LIMIT.min + 1, -(2**40), -1, 0, 1, 2**31, 2**32, 2**40, LIMIT.max), torch.int64),
    "close and huge": (range(LIMIT.max - 8, LIMIT.max + 1), torch.int64),
    "sparse": ((-5, 0, 3, 4, 2**31 - 6), torch.int64),
}


@pytest.mark.parametrize("name", INDEXES)
def test_flat_rows_of_any_index_stand_as_in_their_lists(assume, name):
    names, index_dtype = INDEXES[name]
    dtype = (torch.float16, torch.float32, torch.float64)[len(name) % 3]
    numbers = torch.tensor(list(names), dtype=torch.int64)
    scores = some_scores(len(numbers), 29, dtype, seed=9)
    grade = torch.randint(-1, 3, scores.shape, generator=torch.Generator().manual_seed(9))
    there = torch.rand(scores.shape, generator=torch.Generator().manual_seed(10)) < 0.6
    there[:, 0] = True
    query, item = there.nonzero(as_tuple=True)
    order = torch.randperm(len(query), generator=torch.Generator().manual_seed(11))
    query, item = query[order], item[order]
    rows = scores[query, item], grade[query, item], numbers[query].to(index_dtype)
    judged = [dict(enumerate(row)) for row in grade.tolist()]
    tie_break = torch.arange(29) // 4
    for small in (False, True):
        if small:
            make_blocks_small(assume)
        assert_stands(tr.Ranking.from_flat(*rows, judged=True), standing(scores, judged, there))
        assert_stands(
            tr.Ranking.from_flat(*rows, tie_break=tie_break[item], judged=True),
            standing(scores, judged, there, tie_break=tie_break),
        )


@pytest.mark.parametrize("scale", [1, 2**40], ids=["small grades", "grades beyond 31 bits"])
@pytest.mark.parametrize("lie", ["in lists", "almost in lists", "in no order"])
def test_rows_of_whole_grades_stand_as_counted_query_by_query(monkeypatch, assume, lie, scale):
    g = torch.Generator().manual_seed(12)
    scores = some_scores(6, 8, torch.float32, seed=12).flatten()
    grade, mask = torch.randint(-1, 3, (48,), generator=g) * scale, torch.rand(48, generator=g) < 0.8
    indexes = torch.arange(48) // 8 * 2 - 3
    if lie == "almost in lists":  # a row inside of a list belongs to a query between two lists
        indexes[20] += 1
    if lie == "in no order":
        indexes = indexes[torch.randperm(48, generator=g)]
    lists = [indexes == index for index in indexes.unique()]
    # Rows that fit in integers are never numbered.
    monkeypatch.setattr("torchrank.engine.lists.NumberedRows", None if scale == 1 else NumberedRows)
    for small, where in itertools.product((False, True), (None, mask)):
        if small:
            make_blocks_small(assume)
        want = joined(
            [
                standing(
                    scores[rows][None],
                    [dict(enumerate(grade[rows].tolist()))],
                    None if where is None else where[rows][None],
                )
                for rows in lists
            ]
        )
        assert_stands(tr.Ranking.from_flat(scores, grade, indexes, mask=where), want, relevant=True)
        assert_stands(tr.Ranking.from_flat(scores, grade, indexes, mask=where, judged=True), want)


def test_the_smallest_number_is_a_score_of_a_retrieved_candidate():
    scores = torch.tensor([0.5, -INF, torch.finfo(torch.float32).min, 0.1])
    ranking = tr.Ranking.from_flat(scores, torch.ones(4, dtype=torch.int64), torch.tensor([7, 7, 7, 2]))
    assert ranking.num_candidates.tolist() == [1, 2]


def test_queries_of_very_different_sizes_come_in_ascending_order_of_index():
    g = torch.Generator().manual_seed(0)
    sizes = torch.ones(501, dtype=torch.int64)
    sizes[317] = 2000
    query = torch.arange(501).repeat_interleave(sizes)
    scores = torch.cat([torch.randn(len(query), generator=g), torch.randn(5010, generator=g)]).round(decimals=1)
    target = (torch.arange(len(scores)) < len(query)).long()
    query = torch.cat([query, torch.arange(501).repeat_interleave(10)])
    order = torch.randperm(len(query), generator=g)
    scores, target, query = scores[order], target[order], query[order]
    names = torch.randperm(10**6, generator=g)[:501].sort().values - 5 * 10**5
    for indexes in (names[query], names[query] * 2**41):
        blocks = list(rank(arrange(scores, target, indexes=indexes), Need(relevant=True)))
        assert sum(block.first.numel() for block in blocks) < 2 * (2000 + 500)
        ranking = tr.Ranking.from_flat(scores, target, indexes)
        for number, got in enumerate(entries(ranking)):
            mine = query == number
            assert_row(got, scores[mine], target[mine])
        weights = torch.rand(501, generator=g)
        metric, ranks = tr.MR(), tr.MR().score(ranking)
        metric.update(scores, target, indexes=indexes, weights=weights)
        torch.testing.assert_close(metric.compute().double(), (ranks * weights).sum() / weights.double().sum())


def assert_row(got, scores, target):
    own = scores[target > 0].unsqueeze(-1)
    places = zip(((scores > own).sum(-1) + 1).tolist(), (scores == own).sum(-1).tolist())
    assert Counter((first, tied) for first, tied, _ in got) == Counter(places)


OPTIONS = ("", "mask", "exclude", "tie_break", "cost", "subtopics")


@pytest.mark.parametrize("option", OPTIONS)
def test_few_lists_with_ties_are_ranked_alone_and_stand_in_their_places(assume, option):
    draw = torch.Generator().manual_seed(3)
    scores = torch.stack([torch.randperm(12, generator=draw) for _ in range(90)]).float()
    scores[::40, 3:9] = 5
    grade = torch.randint(-1, 4, (90, 12), generator=draw)
    values = {
        "mask": torch.rand(90, 12, generator=draw) < 0.7,
        "tie_break": torch.randint(2, (90, 12), generator=draw).float(),
        "cost": torch.rand(90, 12, generator=draw),
        "exclude": (torch.arange(90), torch.arange(90) % 12),
    }
    names, options = ["ndcg", "map@5", "auroc"], {option: values[option]} if option in values else {}
    names += ["precision@2tok"] if option == "cost" else []
    if option == "subtopics":
        grade, names = torch.randint(2, (90, 12, 2), generator=draw), ["alphandcg@5", "strecall@3"]
    if option == "exclude":
        rows = [{"exclude": (torch.zeros(1, dtype=torch.long), values[option][1][[row]])} for row in range(90)]
    else:
        rows = [{name: x[[row]] for name, x in options.items()} for row in range(90)]
    metrics = [*map(tr.parse, names)]
    rankings = [tr.Ranking.from_scores(scores[[n]], grade[[n]], **row) for n, row in enumerate(rows)]
    alone = [torch.cat([*map(metric.score, rankings)]) for metric in metrics]
    for block in (2**19, 400):
        assume(block=block)
        ranking = tr.Ranking.from_scores(scores, grade, **options)
        for metric, want in zip(metrics, alone):
            whole = [metric.score(ranking)]
            whole += [] if option == "cost" else [metric.score(scores, grade, **options)]
            for got in whole:
                torch.testing.assert_close(got, want, rtol=0, atol=1e-12, equal_nan=True)


def test_one_query_of_many_has_a_tie_at_the_cutoff(assume):
    assume(tied=10**9, few_tied=10**9)
    scores = torch.rand(100, 2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores[90] = scores[90].mul(5).floor()
    grade = (torch.arange(200_000).view(100, 2000) % 2).long()  # with fewer relevant, other engines are cheaper
    ranking = tr.Ranking.join(rank(arrange(scores, grade), Need(3, relevant=True)))
    found = ranking.first[90][ranking.valid[90] & (ranking.grade[90] > 0)]
    assert (found == 1).sum() == (scores[90][grade[90] > 0] == 4).sum() > 10
    assert ranking.tied[90].max() == (scores[90] == 4).sum()
