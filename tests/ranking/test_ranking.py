"""Constructors of rankings, rectangles of their queries, and sums of discounts: numbers, entries and bad values."""

import itertools
import random
from contextlib import nullcontext
from dataclasses import make_dataclass, replace
from fractions import Fraction

import pytest
import torch
from torch import tensor

import torchrank as tr
from torchrank.formulas.gains import GAINS
from torchrank.layouts.canonical import BLOCK, Need
from torchrank.ranking.ranking import (
    NEAR,
    QueryNames,
    Rankings,
    _is_fixed,
    lost_digits,
    prefix_differences,
    prefix_sums,
)

T = torch.tensor
SCORES = T([[0.9, 0.1, 0.5]])


R, EYE = tr.Ranking, torch.eye(3)
NUMBERS, SHAPES = "Expected ranks to be integer or floating point", r"Expected ranks of shape \[query\] or .*, got"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: R.from_label(SCORES, T([[1]])), r"Expected label of shape \[1\], got \[1, 1\]"),
        (lambda: R.from_ids(SCORES, T([1])), "Expected ids to be integer, best first, got torch.float32"),
        (lambda: R.from_ranks(T([True])), f"{NUMBERS}, got torch.bool"),
        (lambda: R.from_ranks(T([1j])), NUMBERS),
        (lambda: R.from_ranks(T(1)), rf"{SHAPES} \[\]"),
        (lambda: R.from_ranks(T([[[1]]])), rf"{SHAPES} \[1, 1, 1\]"),
        (lambda: R.from_negatives(T([True]), SCORES), "Expected pos to be scores, integer or floating"),
        (lambda: R.from_negatives(T([0.5]), T([[1j]])), "Expected neg to be scores, integer or floating"),
        (lambda: R.from_negatives(T([0.5, 0.5]), SCORES), r"same number of .* shapes \[2, 1\] and \[1, 3\]"),
        (lambda: R.from_negatives(T([0.5]), T([0.5])), r"got shapes \[1, 1\] and \[1\]"),
        (lambda: R.from_negatives(T(0.5), SCORES), "got shapes"),
        (lambda: R.from_neighbors([[1]], [[1.0]], [[1]], [[1.0]], atol=-1), "atol to be a number >= 0"),
        (lambda: R.from_embeddings(EYE, EYE, T([0, 1, 2]), top_k=1).sampled(1), "all ranks exact, got top_k=1"),
        (lambda: R.from_embeddings(EYE, torch.ones(4, 2), T([0, 1, 2])), r"one dimension.* \[3, 3\] and \[4, 2\]"),
        (lambda: R.from_embeddings(EYE, EYE.double(), T([0, 1, 2])), "one dtype.*torch.float64"),
        (lambda: tr.MRR().score(R.from_embeddings(EYE, EYE, T([0, 4, 1]))), "1 label, id or .* index out of range"),
        (lambda: tr.extend.Gain()(SCORES), r"Expected Gain to define __call__\(grade\)"),
    ],
)
def test_what_is_no_ranking_is_refused(call, message):
    with pytest.raises((TypeError, ValueError, NotImplementedError), match=message):
        call()


def bad_ranks(ranks, length=None):
    return int(tr.Ranking.from_ranks(T(ranks), length).errors.sum())


def test_ranks_begin_at_1_are_not_given_twice_and_end_at_the_length():
    assert bad_ranks([1, 5, 9], 9) == 0
    assert bad_ranks([1, 10], 9) == 1
    assert bad_ranks([0, 3]) == 1  # ranks counted from 0
    assert bad_ranks([0.5, 3.0]) == 1
    assert bad_ranks([float("nan"), 3.0]) == 1
    assert bad_ranks([[3, 0], [1, 2]]) == 0  # padding
    assert bad_ranks([[3, 3], [1, 2]]) == 1
    assert bad_ranks([[2, 1, 2]]) == 1
    assert bad_ranks([float("inf"), 3.0], 9) == 0
    ranking = tr.Ranking.from_ranks(T([[3.5, 0], [float("inf"), 1]]), T([4, 7]))
    assert tr.MRR().score(ranking).tolist() == [1 / 3.5, 1]
    assert tr.Recall(top_k=3).score(ranking).tolist() == [0, 0.5]
    assert ranking.num_candidates.tolist() == [4, 7]
    assert tr.Ranking.from_ranks(torch.zeros(2, 0)).first.shape == (2, 1)
    assert tr.HitRate().score(tr.Ranking.from_ranks(torch.zeros(2, 0), 5)).tolist() == [0, 0]


def test_positives_and_negatives_of_any_dtype_are_compared_in_one_that_holds_both():
    for dtype in (torch.int64, torch.float16, torch.float32, torch.float64, torch.uint8):
        ranking = tr.Ranking.from_negatives(T([[2, 1]]).to(dtype), T([[3, 1, 0]]).to(dtype))
        assert ranking.first[0, :2].tolist() == [2, 3]
        assert ranking.tied[0, :2].tolist() == [1, 2]
    big = 2**53
    ranking = tr.Ranking.from_negatives(T([big - 1]), T([[big, big - 2]]))
    assert (ranking.first[0, 0], ranking.tied[0, 0]) == (2, 1)
    mixed = tr.Ranking.from_negatives(T([0.1], dtype=torch.float64), T([[0.1]], dtype=torch.float32))
    assert mixed.first[0, 0] == 2  # 0.1 in float32 is above 0.1


def test_a_ranking_is_printed_with_its_numbers():
    ranking = tr.Ranking.from_label(torch.rand(2, 9), T([1, 2]))
    assert repr(ranking) == "Ranking(num_queries=2, num_entries=2, device='cpu')"
    assert repr(ranking.sampled(3)) == "Ranking(num_queries=2, num_entries=2, device='cpu', num_negatives=3)"


def test_a_ranking_says_what_it_lacks_for_a_need():
    relevant, every_entry = Need(relevant=True), Need(all_candidates=True)
    short = R.from_embeddings(T([[1.0]]), T([[1.0], [0.5], [0.2]]), T([0]), top_k=2)
    sampled, label = R.from_label(torch.rand(2, 9), T([1, 2])).sampled(3), R.from_label(SCORES, T([1]))
    flat, every = R.from_flat(T([0.5, 0.2]), T([1, 0]), T([0, 0])), R.from_scores(SCORES, T([[1, 0, -1]]))
    some = "with an entry for every candidate, got one of some judged candidates; make it by"
    of_relevant = "Expected a measure of relevant candidates for sampled negatives, got x, which"
    for ranking, need, message in (
        (short, Need(2, relevant=True), None),
        (short, Need(1, relevant=True), None),
        (short, Need(3, relevant=True), "for x with ranks up to 3 exact, got one with top_k=2; make it with top_k=3"),
        (short, relevant, "with all ranks exact, got one with top_k=2; make it without top_k"),
        (sampled, relevant, None),
        (sampled, Need(), of_relevant),
        (sampled, relevant | every_entry, of_relevant),
        (flat, Need(), "with entries of irrelevant candidates, got one without; make it by" * flat.only_relevant),
        (R.from_flat(T([0.5, 0.2]), T([1, 0]), T([0, 0]), judged=True), Need(), None),
        (label, every_entry, some),
        (every, every_entry, None),
        (R.join([every, every]), every_entry, None),
        *((R.join(parts), every_entry, some) for parts in ([label, label], [every, label], [label, every])),
    ):
        with pytest.raises(ValueError, match=message) if message else nullcontext():
            ranking.check(need, "x")


def test_entries_of_all_candidates_are_made_only_if_they_are_asked_for():
    label, every = tr.Ranking.from_label(SCORES, T([1])), tr.Ranking.from_scores(SCORES, T([[0, 1, 0]]))
    made = []
    ranking = Rankings([label, label], lambda: made.append(1) or tr.Ranking.join([every, every]))
    assert ([part.size for part in ranking.parts()], made) == ([1, 1], [])
    assert ([part.size for part in ranking.parts(all_candidates=True)], made) == ([3, 3], [1])


@pytest.mark.parametrize(("num", "works"), [(1, True), (8, True), (9, False), (0, False), (1.5, False), (True, False)])
def test_a_sample_has_at_least_one_and_at_most_all_negatives(num, works):
    ranking = tr.Ranking.from_label(torch.rand(2, 9), T([1, 2]))
    if works:
        assert ranking.sampled(num).draw.num_negatives == num
    else:
        with pytest.raises(ValueError, match="Expected"):
            ranking.sampled(num)
    if num == 9:
        assert ranking.sampled(9, replacement=True).draw.replacement


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


def test_functions_of_numbers_alone_have_tables_that_are_kept():
    fixed, mixed = (make_dataclass("Own", ["exponent", "inner"][:size], frozen=True) for size in (1, 2))
    kept = {1: True, 0.5: True, fixed(2.0): True, mixed(2.0, fixed(1.0)): True}
    kept |= {"x": False, mixed(2.0, "x"): False, mixed(2.0, mixed("x", 1)): False, len: False}
    assert {x: _is_fixed(x) for x in kept} == kept
    assert not _is_fixed(make_dataclass("Changing", ["exponent"])(1.0))


@pytest.mark.parametrize("most", [0, 1, 9, 100])
@pytest.mark.parametrize("width", [1, 5, 40])
def test_an_ideal_order_is_the_grades_in_descending_order(most, width):
    grade = torch.randint(-1, most + 1, (6, width), generator=torch.Generator().manual_seed(width))
    grade[0, 0] = most
    ranking = tr.Ranking.from_scores(torch.rand(6, width), grade)
    (part,) = ranking.parts()
    for gain, of_grade in ((GAINS["linear"], float), (GAINS["exponential"], lambda x: 2.0**x - 1)):
        want = [sorted((max(0.0, of_grade(x)) for x in row), reverse=True) for row in grade.tolist()]
        assert part.ideal_order(gain).tolist() == want
        for k in (None, 1, 3):
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


def test_a_score_halfway_between_two_positives_is_tied_with_the_lower_one():
    ranking = tr.Ranking.from_negatives(tensor([[0.0, 1.0]]), tensor([[0.5]]), atol=0.5)
    assert (ranking.first[0, :2].tolist(), ranking.tied[0, :2].tolist()) == ([1, 2], [1, 2])


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


def test_an_entry_without_ties_has_its_own_gain_at_its_rank_to_the_bit():
    ranking = tr.Ranking.from_scores(T([[2.0, 2.0, 1.0]]), T([[1.0, 0.0, 0.1]], dtype=torch.float64))
    assert ranking.gains_by_rank(GAINS["linear"], 3).tolist() == [[0.5, 0.5, 0.1]]


def test_what_grades_alone_decide_is_computed_once_for_systems_judged_alike():
    grades, known = T([[1, 0, 2]]), {}
    one, other = (tr.Ranking.from_scores(scores, grades) for scores in (SCORES, -SCORES))
    with one.judged_alike(known):
        ideal, hits = one.ideal_order(GAINS["linear"]), one.hits(1, 1)
    with other.judged_alike(known):
        assert other.ideal_order(GAINS["linear"]) is ideal
        assert (other.hits(1, 1), hits) == (0, 1)


def test_fractions_are_grades_above_0_of_candidates():
    for grades, mask, want in (([0.5, 1], [1, 1], True), ([0.5, 1], [0, 1], False), ([2.0, -0.5], [1, 1], False)):
        ranking = tr.Ranking.from_scores(SCORES[:, :2], T([grades]), mask=T([mask]).bool())
        assert ranking.has_fractions() == want


def test_a_query_without_a_group_has_none_in_its_place():
    ranking = tr.Ranking.from_ranks(T([1, 2]))
    assert ranking.groups is None
    assert ranking.with_names(QueryNames(T([7, 8]), ["a"], T([0, -1]).numpy())).groups == ["a", None]


def test_joined_rankings_keep_all_subtopics_of_each():
    parts = [tr.Ranking.from_scores(SCORES, torch.ones(1, 3, number)) for number in (2, 3)]
    assert tr.Ranking.join(parts).subtopics.sum((1, 2)).tolist() == [6, 9]
