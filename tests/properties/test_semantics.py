"""The meaning of each special case."""

import math

import numpy as np
import pytest
import torch
from torch import tensor

import torchrank as tr
from tests.support.cases import cases

NAN, INF = float("nan"), float("inf")


def score(name, *arguments, **keywords):
    return tr.parse(name).score(*arguments, **keywords).tolist()


# ---- gains and discounts ---------------------------------------------------------------------------------------


def one_more(grade):
    return grade.add_(1)


def reciprocal_in_place(rank):
    return rank.reciprocal_()


def test_gains_and_discounts_may_work_in_place():
    ranking = tr.Ranking.from_scores(tensor([[1.0, 1.0, 0.5]]), tensor([[0, 2, 1]]))
    cg = [tr.CG(gain=gain).score(ranking).item() for gain in ("linear", one_more, "linear")]
    assert cg == [3, 3 + 2, 3]  # an irrelevant candidate gains nothing
    discounts = ["reciprocal", reciprocal_in_place, "reciprocal"]
    dcg = [tr.DCG(discount=discount, top_k=k).score(ranking).item() for k in (2, 3) for discount in discounts]
    assert dcg == [1.5] * 3 + [1.5 + 1 / 3] * 3


@cases(("width", "most"), [(3, 1), (3, 8), (255, 2), (255, 7), (255, 8), (256, 4), (256, 7)])
def test_ideals_are_right_up_to_the_largest_counts_of_grades(width, most):
    """Grades up to 7 of lists of up to 255 candidates are counted at once, all others level by level or sorted."""
    draw = torch.Generator().manual_seed(width + most)
    grades = torch.randint(-2, most + 1, (5, width), generator=draw)
    grades[0], grades[1], grades[2] = most, 1, 0
    mask = torch.ones(5, width, dtype=torch.bool)
    mask[3, ::2] = False
    scores = torch.rand(5, width, generator=draw)
    for top_k in (2, width - 1, None):
        discounts = [1 / math.log2(1 + rank) for rank in range(1, 1 + (top_k or width))]
        for options in ({}, {"mask": mask}):
            got = tr.NDCG(top_k=top_k).score(scores, grades, **options).tolist()
            columns = got, scores.tolist(), grades.tolist(), mask.tolist()
            for value, score, grade, listed in zip(*columns, strict=True):
                there = [n for n in range(width) if not options or listed[n]]
                found, best = (
                    math.fsum(max(0, grade[n]) * d for n, d in zip(sorted(there, key=key, reverse=True), discounts))
                    for key in (score.__getitem__, grade.__getitem__)
                )
                assert value == pytest.approx(found / best if best else 0, rel=1e-12)


# ---- nothing relevant ------------------------------------------------------------------------------------------


@cases("kept", [True, False])
def test_each_metric_of_a_suite_has_its_own_policy_for_empty_queries(kept):
    # A relevant candidate; none; one, but nothing is retrieved; none, and nothing is retrieved.
    scores = tensor([[0.9, 0.1], [0.9, 0.1], [-INF, -INF], [-INF, -INF]])
    grades = tensor([[1, 0], [0, 0], [1, 0], [0, 0]])
    fills = {"neg": 0.0, "pos": 1.0, "skip": math.nan, "listed": 0.0}
    expected, numbers = {}, {}
    for name in ("recall", "ndcg", "mr"):
        for action, fill in fills.items():
            left_out = name == "mr" or action == "listed"  # lists without candidates
            key = f"{name}(empty_target_action={action})"
            expected[key] = [1.0, fill, *([math.nan, math.nan] if left_out else [0.0, fill])]
            # Under "skip", an empty list without a relevant candidate is an empty query all the same.
            numbers[key] = (4, 2) if not left_out else (3, 2) if action == "skip" else (2, 1)
    suite = tr.RankingCollection({key: tr.parse(key) for key in expected})
    found = suite.score(scores, grades)
    for key, values in expected.items():
        assert found[key].tolist() == pytest.approx(values, nan_ok=True), key
    if kept:  # by an aggregation that needs the values
        suite.add_metrics({"kept": tr.Recall(aggregation="none")})
    suite.update(scores, grades)
    results = suite.compute()
    for key, values in expected.items():
        counted = [value for value in values if not math.isnan(value)]
        assert float(results[key]) == pytest.approx(sum(counted) / len(counted))
        assert (suite[key].num_queries, suite[key].num_empty) == numbers[key]


@pytest.mark.parametrize("name", ["mrr", "mr", "ndcg", "fallout@1", "mrr(aggregation=median)"])
def test_nothing_scored_is_nan(name):
    metric = tr.parse(name, empty_target_action="skip")
    assert metric.compute().isnan()
    metric.update(torch.zeros(0, 3), torch.zeros(0, 3))
    assert metric.compute().isnan()
    if name != "fallout@1":
        metric.update(torch.rand(2, 3), torch.zeros(2, 3))
        assert metric.compute().isnan()


# ---- label -100 --------------------------------------------------------------------------------------------------

LABEL = tensor([3, -100, -1, 2, 6, -100, -7, 0])
KEPT = LABEL != -100


def catalogue():
    generator = torch.Generator().manual_seed(0)
    queries = torch.rand(len(LABEL), 3, generator=generator, dtype=torch.float64)
    items = torch.rand(7, 3, generator=generator, dtype=torch.float64)
    return queries, items


def scored(rows):
    queries, items = catalogue()
    return (queries @ items.T)[rows]


# a batch of some queries
LABELLED = {
    "scores": lambda rows: (scored(rows), LABEL[rows]),
    "int8 labels": lambda rows: (scored(rows), LABEL[rows].to(torch.int8)),
    "ids": lambda rows: (scored(rows).argsort(descending=True), LABEL[rows]),
    "from_label": lambda rows: (tr.Ranking.from_label(scored(rows), LABEL[rows]),),
    "from_embeddings": lambda rows: (
        tr.Ranking.from_embeddings(catalogue()[0][rows], catalogue()[1], LABEL[rows], chunk_size=3),
    ),
    "from_score_blocks": lambda rows: (tr.Ranking.from_score_blocks(scored(rows).split(3, -1), LABEL[rows]),),
}
ALL_ROWS = torch.ones_like(KEPT)
IGNORING = [
    *["mrr", "mr", "ndcg@3", "map", "precision@2", "fallout@2", "auroc", "bpref", "judged@3"],
    *["mr(filtered=True,average=positive)", "mr(adjusted=index)", "mrr(empty_target_action=pos)"],
    *["mrr(empty_target_action=skip)", "mrr(aggregation=geometric)", "mrr(aggregation=median)"],
    *["recall(aggregation=none)@2", "utility"],
]


@pytest.mark.parametrize("layout", LABELLED)
def test_a_label_of_minus_100_is_no_query(layout):
    all_candidates, rest = LABELLED[layout](ALL_ROWS), LABELLED[layout](KEPT)
    weights = torch.rand(len(LABEL), dtype=torch.float64)
    weights[1], weights[0] = NAN, 0  # of no query, of one that weighs nothing
    for names in (IGNORING, ["mrr"], ["recall(aggregation=none)@2"]):
        # many are ranked together, one by itself
        one, other = (tr.RankingCollection(names) if len(names) > 1 else tr.parse(names[0]) for _ in range(2))
        for weigh in (False, True):
            one.reset()
            other.reset()
            one.update(*all_candidates, **({"weights": weights} if weigh else {}))
            other.update(*rest, **({"weights": weights[KEPT]} if weigh else {}))
            found, wanted = one.compute(), other.compute()
            values, kept = one.score(*all_candidates), other.score(*rest)
            for member, twin in zip(*((x.values() if len(names) > 1 else [x]) for x in (one, other)), strict=True):
                name = member.label
                assert (member.num_queries, member.num_empty) == (twin.num_queries, twin.num_empty), name
                assert member.num_queries == 6 - weigh
                assert_close(member.sums, twin.sums, name)
                of_it = [x[name] if len(names) > 1 else x for x in (found, wanted, values, kept)]
                if member.aggregation == "none":
                    assert of_it[0][~KEPT].isnan().all()
                    of_it[0] = of_it[0][KEPT]
                assert_close(of_it[0], of_it[1], name)
                assert of_it[2][~KEPT].isnan().all(), name
                assert_close(of_it[2][KEPT], of_it[3], name)


def assert_close(got, want, label):
    torch.testing.assert_close(got, want, equal_nan=True, msg=lambda text: f"{label}: {text}")


def test_cross_entropy_ignores_the_same_labels():
    scores, label = scored(ALL_ROWS), LABEL.masked_fill((LABEL < 0) & KEPT, 1)
    ours = tr.MRR()
    ours.update(scores, label)
    one_by_one = torch.nn.functional.cross_entropy(scores, label, reduction="none")
    assert ours.num_queries == (one_by_one > 0).sum()
    assert ours.score(scores, label).isnan().tolist() == (one_by_one == 0).tolist()


def test_an_error_where_nothing_is_relevant_is_none_for_a_label_of_minus_100():
    metric = tr.MRR(empty_target_action="error")
    metric.update(SCORED, tensor([1, -100]))
    assert metric.compute() == 1
    metric.update(SCORED, tensor([1, -1]))
    with pytest.raises(ValueError, match="1 query with nothing to measure"):
        metric.compute()


@pytest.mark.parametrize("name", ["mrr", "mrr@2", "map(unjudged=upper)"])
def test_nan_in_a_query_that_is_none_is_no_error(name):
    scores = scored(ALL_ROWS)
    expected = tr.parse(name).score(scores, LABEL)
    scores[~KEPT] = NAN
    tie_break = torch.zeros(scores.shape).masked_fill(~KEPT.unsqueeze(-1), NAN)
    calls = [((scores, LABEL), {}), ((scores, LABEL), {"tie_break": tie_break})]
    if name == "mrr":
        calls.append(((tr.Ranking.from_score_blocks(scores.split(2, -1), LABEL),), {}))
    for arguments, keywords in calls:
        torch.testing.assert_close(tr.parse(name).score(*arguments, **keywords), expected, equal_nan=True)
    ids = tensor([[1, 2], [3, 3]])
    assert score("mrr", ids, tensor([2, -100])) == pytest.approx([1 / 2, NAN], nan_ok=True)
    with pytest.raises(ValueError, match="1 id that occurs"):
        tr.MRR().score(ids, tensor([2, -1]))


def test_a_label_of_minus_100_takes_its_list_out_of_measures_of_lists():
    ids = scored(ALL_ROWS).argsort(descending=True)
    known = torch.arange(1, 8)
    for make in (
        lambda: tr.Novelty(3, interactions=known, num_users=9),
        lambda: tr.Serendipity(3, interactions=known),
        lambda: tr.Coverage(2, num_items=7),
        lambda: tr.Gini(2, num_items=7),
    ):
        suite, rest = tr.RankingCollection([make(), "mrr"]), tr.RankingCollection([make(), "mrr"])
        suite.update(ids, LABEL)
        rest.update(ids[KEPT], LABEL[KEPT])
        assert suite.compute() == rest.compute()
        assert {metric.num_queries for metric in suite.values()} == {6}
    values = tr.Novelty(3, interactions=known, num_users=9).score(ids, LABEL)
    assert values.isnan().tolist() == (~KEPT).tolist()


def test_a_curve_has_no_part_for_a_label_of_minus_100():
    curve, rest = tr.PRCurve(3), tr.PRCurve(3)
    curve.update(scored(ALL_ROWS), LABEL)
    rest.update(scored(KEPT), LABEL[KEPT])
    torch.testing.assert_close(curve.compute(), rest.compute())
    for ours, theirs in zip(curve.score(scored(ALL_ROWS), LABEL), rest.score(scored(KEPT), LABEL[KEPT])):
        assert ours[~KEPT].isnan().all()
        torch.testing.assert_close(ours[KEPT], theirs)


def test_rankings_that_are_joined_cut_and_condensed_keep_who_is_no_query():
    parts = [LABELLED["from_label"](ALL_ROWS)[0], tr.Ranking.from_scores(SCORED, tensor([[0, 1, 0, 0], [1, 0, 0, 0]]))]
    joined = tr.Ranking.join(parts)
    assert joined.ignored.tolist() == [*(~KEPT).tolist(), False, False]
    expected = torch.cat([tr.MRR().score(part) for part in parts])
    torch.testing.assert_close(tr.MRR().score(joined), expected, equal_nan=True)
    torch.testing.assert_close(tr.MRR().score(joined.take(tensor([1, 8]))), tensor([NAN, 1.0]).double(), equal_nan=True)
    assert tr.MRR().score(joined.condensed()).isnan().tolist() == joined.ignored.tolist()
    each = joined.each_positive(1)
    assert tr.MRR().score(each).isnan().tolist() == joined.ignored.repeat_interleave(joined.first.shape[1]).tolist()
    assert tr.Ranking.join(parts[1:] * 2).ignored is None


# ---- exclude ---------------------------------------------------------------------------------------------------


LISTS = [tensor([1, 3, -1]), tensor([1, -1, -1])]  # -1 is padding, and (1, 1) or (3, -1) are no pairs
PAIRS = tensor([0, 0, 1]), tensor([1, 3, 1])
SCORED = tensor([[0.1, 0.9, 0.3, 0.8], [0.4, 0.2, 0.3, 0.1]])
RANKED = SCORED.argsort(descending=True)
EMBEDDINGS = torch.eye(2), SCORED.mT.contiguous()
BLOCKS = [SCORED[:, :1], SCORED[:, 1:]]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda e: tr.MRR().score(SCORED, tensor([[0, 0, 1, 0], [0, 0, 1, 0]]), exclude=e), [1, 1 / 2]),
        (lambda e: tr.MRR().score(SCORED, tensor([2, 3]), exclude=e, tie_break=torch.rand(4)), [1, 1 / 3]),
        (lambda e: tr.MRR().score(RANKED, tensor([2, 3]), exclude=e), [1, 1 / 3]),
        (lambda e: tr.MRR().score(RANKED + 2**33, tensor([2, 3]) + 2**33, exclude=beyond(e)), [1, 1 / 3]),
        (lambda e: tr.MRR().score(tr.Ranking.from_label(SCORED, tensor([2, 3]), exclude=e)), [1, 1 / 3]),
        (lambda e: tr.MRR().score(tr.Ranking.from_embeddings(*EMBEDDINGS, tensor([2, 3]), exclude=e)), [1, 1 / 3]),
        (lambda e: tr.MRR().score(tr.Ranking.from_score_blocks(BLOCKS, tensor([2, 3]), exclude=e)), [1, 1 / 3]),
        (lambda e: tr.Popularity(1, interactions=tensor([1, 2, 4, 8])).score(RANKED, exclude=e), [4, 1]),
        (lambda e: tr.Serendipity(2, interactions=torch.ones(4)).score(RANKED, tensor([2, 3]), exclude=e), [0, 0]),
    ],
)
def test_a_list_to_exclude_has_one_id_tensor_per_query_as_a_target_has(call, expected):
    assert call(LISTS).tolist() == pytest.approx(expected)
    assert call(PAIRS).tolist() == pytest.approx(expected)


def beyond(exclude):
    if isinstance(exclude, tuple):
        return exclude[0], exclude[1] + 2**33
    return [torch.where(ids < 0, ids, ids + 2**33) for ids in exclude]


# ---- grades ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.float16, torch.float64])
def test_grades_of_any_dtype(dtype):
    grades = tensor([[0, 1, 1]]).to(dtype)
    assert score("map", tensor([[0.9, 0.8, 0.7]]), grades) == pytest.approx([(1 / 2 + 2 / 3) / 2])
    assert score("ndcg", tensor([[0.7, 0.9, 0.8]]), grades) == [1]


# ---- tie_break -------------------------------------------------------------------------------------------------


def test_a_tie_of_several_relevant_that_the_cut_divides():
    for n in (47, 49, 55, 98):
        ranking = tr.Ranking.from_scores(torch.zeros(1, n), (torch.zeros(2, dtype=torch.int64), torch.arange(2)))
        inexact = [k for k in range(1, n) if k * (1 / n) * n != k or k / n * n != k]
        assert inexact
        for k in [1, 2, *inexact, n - 1, n]:
            places = range(1, min(k, n - 1) + 1)
            expected = sum((n - j) / (n * (n - 1) / 2) / j for j in places)
            assert tr.MRR(top_k=k).score(ranking).item() == pytest.approx(expected, rel=1e-12)


# ---- layouts ---------------------------------------------------------------------------------------------------


def test_documents_of_a_run_without_a_judgment_are_outside_the_pool():
    qrels = {"q": {"a": np.int64(2), "b": 0, "c": -1, "d": np.float32(-3), "e": True}, "none": {}, "lacks": {"x": 1}}
    run = {"q": {"a": 1, "b": np.float32(0.5), "c": np.float64(0.25), "f": -1}, "none": {"y": 0.0}}
    ranking = tr.Ranking.from_run(qrels, run)
    rows = zip(ranking.first, ranking.tied, ranking.grade, ranking.valid)
    found = [sorted(zip(*(part[valid].tolist() for part in row))) for *row, valid in rows]
    assert found[0] == [(1, 1, 2), (2, 1, 0), (3, 1, -1), (4, 1, -2), (5, 0, -1), (5, 0, 1)]
    assert found[1] == [(1, 1, -2)]
    assert ranking.num_candidates.tolist() == [4, 1, 0]
    assert tr.Recall(empty_target_action="skip").score(ranking).tolist() == pytest.approx([1 / 2, NAN, 0], nan_ok=True)
    assert tr.FallOut().score(ranking).tolist() == pytest.approx([1, 1, NAN], nan_ok=True)
    assert tr.Ranking.from_run({}, {"q": {"a": 1.0}}).num_queries == 0
    assert tr.MAP().score(tr.Ranking.from_run({"q": {}, "p": {"a": 1}}, {})).tolist() == [0, 0]


def test_scores_of_a_run_are_compared_in_double_precision():
    ranking = tr.Ranking.from_run({"q": {"a": 1}}, {"q": {"a": 1 + 1e-12, "b": 1.0}})
    assert tr.MRR().score(ranking).tolist() == [1]
    with pytest.raises(ValueError, match="NaN"):
        tr.MRR().score(tr.Ranking.from_run({"q": {"a": 1}}, {"q": {"a": NAN}}))
    with pytest.raises(ValueError, match="grade"):
        tr.MRR().score(tr.Ranking.from_run({"q": {"a": NAN}}, {"q": {"a": 1}}))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [torch.float16, torch.bfloat16])
def test_under_autocast_scores_are_compared_as_they_are(dtype, autocast):
    torch.manual_seed(0)
    scores, grades, label = torch.randn(6, 9).to(dtype), torch.randint(3, (6, 9)).float(), torch.randint(9, (6,))
    suite = tr.RankingCollection(["ndcg@2", "mrr", "map@3", "auroc"])
    calls = [((scores, grades), {}), ((scores, label), {}), ((scores.flatten(), grades.flatten()), {})]
    calls[2][1]["indexes"] = torch.arange(6).repeat_interleave(9)
    expected = [suite.score(*arguments, **keywords) for arguments, keywords in calls]
    negatives = tr.MRR().score(tr.Ranking.from_negatives(scores[:, 0], scores[:, 1:]))
    with torch.autocast("cpu", dtype=autocast):
        for (arguments, keywords), values in zip(calls, expected):
            torch.testing.assert_close(suite.score(*arguments, **keywords), values, equal_nan=True)
        assert torch.equal(tr.MRR().score(tr.Ranking.from_negatives(scores[:, 0], scores[:, 1:])), negatives)


def test_an_empty_list_of_ids_may_have_any_dtype():
    assert score("mr", tensor([[0.3, 0.2, 0.1]] * 2), tensor([2, 2]), exclude=[tensor([]), tensor([0])]) == [3, 2]
    assert score("recall", tensor([[0.9, 0.1]] * 2), [tensor([0]), tensor([])]) == [1, 0]
