"""Constructors of rankings: what they refuse, at which bounds, and how a ranking is printed and checked."""

import pytest
import torch

import torchrank as tr
from torchrank.layouts.canonical import Need
from torchrank.ranking.ranking import Rankings

T = torch.tensor
SCORES = T([[0.9, 0.1, 0.5]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tr.Ranking.from_label(SCORES, T([[1]])), ValueError, r"Expected label of shape \[1\], got \[1, 1\]"),
        (
            lambda: tr.Ranking.from_ids(SCORES, T([1])),
            TypeError,
            "Expected ids to be integer, best first, got torch.float32",
        ),
        (
            lambda: tr.Ranking.from_ranks(T([True])),
            TypeError,
            "Expected ranks to be integer or floating point, got torch.bool",
        ),
        (lambda: tr.Ranking.from_ranks(T([1j])), TypeError, "Expected ranks to be integer or floating point"),
        (
            lambda: tr.Ranking.from_ranks(T(1)),
            ValueError,
            r"Expected ranks of shape \[query\] or \[query, entry\], got \[\]",
        ),
        (lambda: tr.Ranking.from_ranks(T([[[1]]])), ValueError, r"Expected ranks of shape .*, got \[1, 1, 1\]"),
        (
            lambda: tr.Ranking.from_negatives(T([True]), SCORES),
            TypeError,
            "Expected pos to be scores, integer or floating",
        ),
        (
            lambda: tr.Ranking.from_negatives(T([0.5]), T([[1j]])),
            TypeError,
            "Expected neg to be scores, integer or floating",
        ),
        (
            lambda: tr.Ranking.from_negatives(T([0.5, 0.5]), SCORES),
            ValueError,
            r"with the same number of queries, got shapes \[2, 1\] and \[1, 3\]",
        ),
        (lambda: tr.Ranking.from_negatives(T([0.5]), T([0.5])), ValueError, r"got shapes \[1, 1\] and \[1\]"),
        (lambda: tr.Ranking.from_negatives(T(0.5), SCORES), ValueError, "got shapes"),
        (
            lambda: tr.Ranking.from_embeddings(T([[1.0]]), T([[1.0], [0.5]]), T([0]), top_k=1).sampled(1),
            ValueError,
            "Expected a ranking with all ranks exact, got top_k=1; make it without top_k",
        ),
        (lambda: tr.extend.Gain()(SCORES), NotImplementedError, r"Expected Gain to define __call__\(grade\)"),
    ],
)
def test_what_is_no_ranking_is_refused(call, error, message):
    with pytest.raises(error, match=message):
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


def test_names_and_groups_are_those_of_the_table():
    frame = {"qid": ["x", "y", "z"], "score": [0.5, 0.3, 0.1], "label": [1, 1, 0], "group": ["a", None, "b"]}
    ranking = tr.Ranking.from_table(frame, group="group")
    assert (ranking.query_ids, ranking.groups) == (["x", "y", "z"], ["a", None, "b"])
    plain = tr.Ranking.from_table({key: frame[key] for key in ("qid", "score", "label")})
    assert (plain.query_ids, plain.groups) == (["x", "y", "z"], None)
    assert (tr.Ranking.from_label(SCORES, T([1])).query_ids, tr.Ranking.from_label(SCORES, T([1])).groups) == (
        None,
        None,
    )


def test_a_ranking_says_what_it_lacks_for_a_need():
    embeddings = T([[1.0]]), T([[1.0], [0.5], [0.2]])
    short = tr.Ranking.from_embeddings(*embeddings, T([0]), top_k=2)
    short.check(Need(2, relevant=True), "x")
    short.check(Need(1, relevant=True), "x")
    with pytest.raises(
        ValueError,
        match=r"Expected a Ranking for x with ranks up to 3 exact, got one with top_k=2; make it with top_k=3",
    ):
        short.check(Need(3, relevant=True), "x")
    with pytest.raises(ValueError, match="with all ranks exact, got one with top_k=2; make it without top_k"):
        short.check(Need(relevant=True), "x")
    sampled = tr.Ranking.from_label(torch.rand(2, 9), T([1, 2])).sampled(3)
    sampled.check(Need(relevant=True), "x")
    for need in (Need(), Need(relevant=True, all_candidates=True)):
        with pytest.raises(
            ValueError, match="Expected a measure of relevant candidates for sampled negatives, got x, which"
        ):
            sampled.check(need, "x")
    flat = tr.Ranking.from_flat(T([0.5, 0.2]), T([1, 0]), T([0, 0]))
    if flat.only_relevant:
        with pytest.raises(ValueError, match="with entries of irrelevant candidates, got one without; make it by"):
            flat.check(Need(), "x")
    tr.Ranking.from_flat(T([0.5, 0.2]), T([1, 0]), T([0, 0]), judged=True).check(Need(), "x")
    label = tr.Ranking.from_label(SCORES, T([1]))
    with pytest.raises(
        ValueError, match="with an entry for every candidate, got one of some judged candidates; make it by"
    ):
        label.check(Need(all_candidates=True), "x")
    every = tr.Ranking.from_scores(SCORES, T([[1, 0, -1]]))
    every.check(Need(all_candidates=True), "x")
    tr.Ranking.join([every, every]).check(Need(all_candidates=True), "x")
    for parts in ([label, label], [every, label], [label, every]):
        with pytest.raises(ValueError, match="with an entry for every candidate, got one of some judged candidates"):
            tr.Ranking.join(parts).check(Need(all_candidates=True), "x")


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
