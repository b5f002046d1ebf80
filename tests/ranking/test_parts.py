"""Rectangles of queries of a ranking: their numbers, their entries and their bad values."""

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from torch import tensor

import torchrank as tr
from torchrank.formulas.gains import GAINS
from torchrank.ranking.intervals import _is_fixed
from torchrank.ranking.ranking import Rankings, batch_order, numbered, together


def ragged(queries=60, width=30):
    """A ranking in which one query of ten has many relevant candidates."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand((queries, width), generator=generator)
    relevant = [[0] * (1 + 19 * (i % 10 == 0)) for i in range(queries)]
    relevant = [torch.randperm(width, generator=generator)[: len(x)].tolist() for x in relevant]
    grade = torch.zeros((queries, width), dtype=torch.int64)
    for row, items in enumerate(relevant):
        grade[row, items] = 1
    return tr.Ranking.from_scores(scores, grade)


@pytest.mark.parametrize("start", [0, 100])
def test_a_ranking_is_cut_into_rectangles_with_all_of_its_queries_entries_and_bad_values(assume, start):
    assume(rectangle=1)
    ranking = ragged().joined
    ranking = replace(ranking, valid=ranking.grade > 0, errors=torch.ones_like(ranking.errors))
    parts = list(ranking.narrowed(start))
    assert len(parts) > 1
    assert torch.equal(sum(part.errors for part in parts), ranking.errors)
    assert torch.cat([part.queries for part in parts]).sort().values.tolist() == list(range(start, start + 60))
    for part in parts:
        assert part.valid[:, -1].any(), "no column of padding alone"
        for row, query in enumerate((part.queries - start).tolist()):
            for name in ("first", "tied", "grade"):
                mine, whole = (getattr(x, name)[i][x.valid[i]] for x, i in ((part, row), (ranking, query)))
                assert torch.equal(mine, whole), name


def test_queries_without_a_column_of_entries_stay_queries():
    ranking = ragged().joined
    names = ("first", "tied", "grade", "valid")
    (part,) = replace(ranking, **{name: getattr(ranking, name)[:, :0] for name in names}).narrowed(5)
    assert part.queries.tolist() == list(range(5, 65))
    assert part.first.shape == (60, 0)


def test_queries_of_parts_are_numbered_one_after_the_other():
    first, second = (tr.Ranking.from_scores(torch.rand(n, 4), torch.ones(n, 4)).joined for n in (2, 3))
    placed = replace(second, queries=tensor([4, 2, 3]))
    got = [part.queries.tolist() for part in numbered([first, placed, second], 10)]
    assert got == [[10, 11], [14, 12, 13], [15, 16, 17]]
    assert batch_order([tensor([2, 0]), tensor([1])]).tolist() == [1, 2, 0]
    assert batch_order([None, None]) is None
    flag = tensor([True, False])
    assert together([(None, flag), (flag, flag)]).tolist() == [False, False, True, False]
    assert together([(None, flag)]) is None


def test_functions_of_numbers_alone_have_tables_that_are_kept():
    @dataclass(frozen=True)
    class Fixed:
        exponent: float
        shift: int = 1

    @dataclass(frozen=True)
    class Mixed:
        exponent: float
        inner: object

    @dataclass
    class Changing:
        exponent: float

    kept = {1: True, 0.5: True, Fixed(2.0): True, Mixed(2.0, Fixed(1.0)): True}
    kept |= {"x": False, Mixed(2.0, "x"): False, Mixed(2.0, Mixed("x", 1)): False, len: False}
    assert {x: _is_fixed(x) for x in kept} == kept
    assert not _is_fixed(Changing(1.0))


@pytest.mark.parametrize("most", [0, 1, 9, 100])
@pytest.mark.parametrize("width", [1, 5, 40])
def test_an_ideal_order_is_the_grades_in_descending_order(most, width):
    grade = torch.randint(-1, most + 1, (6, width), generator=torch.Generator().manual_seed(width))
    grade[0, 0] = most
    ranking = tr.Ranking.from_scores(torch.rand(6, width), grade)
    (part,) = ranking.parts()
    for gain, of_grade in ((GAINS["linear"], float), (GAINS["exponential"], lambda x: 2.0**x - 1)):
        want = [sorted((max(0.0, of_grade(x)) for x in row), reverse=True) for row in grade.tolist()]
        for k in (None, 1, 3):
            assert part.ideal_order(gain, k).tolist() == [row[:k] for row in want]
            values = [sum(x / rank for rank, x in enumerate(row[:k], 1)) for row in want]
            assert part.ideal(gain, torch.reciprocal, k).tolist() == pytest.approx(values)


@pytest.mark.parametrize("most", [1, 9])
def test_the_gain_and_the_ideal_value_of_a_plain_function_are_those_of_its_values(most):
    grade = torch.randint(0, most + 1, (6, 9), generator=torch.Generator().manual_seed(0))
    (part,) = tr.Ranking.from_scores(torch.arange(9.0).flip(0).expand(6, 9), grade).parts()
    gain, discount = (lambda x: x % 3), torch.reciprocal
    gains = [[float(x % 3) for x in row] for row in grade.tolist()]
    assert part.gains(gain).tolist() == gains
    for k in (None, 4):
        want = [sum(x / rank for rank, x in enumerate(sorted(row, reverse=True)[:k], 1)) for row in gains]
        assert part.ideal(gain, discount, k).tolist() == pytest.approx(want)


def test_the_first_query_that_has_no_draw_is_named():
    ranking = tr.Ranking.from_ranks(tensor([3, 2, 4]), num_candidates=tensor([9, 4, 5]))
    assert ranking.sampled(3).draw.num_negatives == 3
    with pytest.raises(ValueError, match=r"Expected 4 negatives or more in each query, got .* 3 .* in query 1; lower"):
        ranking.sampled(4)
    several = tr.Ranking.from_scores(torch.rand(3, 4), tensor([[1, 0, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0]]))
    with pytest.raises(ValueError, match=r"Expected one relevant candidate in each query, got 2 .* in query 1; rank"):
        several.sampled(1)


@pytest.mark.parametrize(("tolerance", "tied"), [({}, 1), ({"atol": 0.1}, 2), ({"rtol": 0.1}, 2)])
def test_scores_of_embeddings_within_either_tolerance_are_tied(tolerance, tied):
    items = tensor([[1.0], [1.05], [0.0]])
    ranking = tr.Ranking.from_embeddings(torch.ones(1, 1), items, tensor([0]), **tolerance)
    assert ranking.tied.tolist() == [[tied]]


def test_grades_of_two_lists_are_places_from_the_end_of_the_second():
    first, second = tensor([[7, 8, 9, -1], [1, 2, -1, -1]]), tensor([[7, 9, 8, 5], [3, 1, -1, -1]])
    ranking = tr.Ranking.from_rankings(first, second)
    for row, (one, other) in enumerate(zip(first.tolist(), second.tolist())):
        there = ranking.valid[row]
        found = sorted(zip(ranking.first[row][there].tolist(), ranking.grade[row][there].tolist()))
        one, other = ([x for x in ids if x >= 0] for ids in (one, other))
        grades = {x: float(len(other) - place) for place, x in enumerate(other)}
        listed = [(rank, grades.get(x, -torch.inf)) for rank, x in enumerate(one, 1)]
        assert [pair for pair in found if pair[0] <= len(one) and pair[0] > 0] == listed
        assert sorted(grade for _, grade in found) == sorted([*grades.values(), *[-torch.inf] * len({*one} - {*other})])


@pytest.mark.parametrize("numbered", list(itertools.product([False, True], repeat=3)), ids=str)
def test_rectangles_with_and_without_numbers_are_joined_in_the_order_of_their_queries(numbered):
    generator = torch.Generator().manual_seed(0)
    scores, grades = torch.rand((6, 5), generator=generator), torch.randint(0, 2, (6, 5), generator=generator)
    whole, parts, order = tr.Ranking.from_scores(scores, grades), [], []
    for rows, has_numbers in zip(([1, 0], [3, 2], [5, 4]), numbered):
        part = whole.take(tensor(rows))
        parts.append(replace(part, queries=tensor(rows) if has_numbers else None))
        order += sorted(rows) if has_numbers else rows
    assert tr.MRR().score(Rankings(parts)).equal(tr.MRR().score(scores[order], grades[order]))
