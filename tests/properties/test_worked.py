"""Examples that were worked out by hand, or by other libraries, with the arithmetic written down."""

import math
from math import log, log2

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from torchrank.ranking.ranking import only


def in_order(*grades, missing=()):
    """Scores and grades of a list with these grades at rank 1, 2, ..., and of the candidates that it lacks."""
    scores = [float(-rank) for rank, _ in enumerate(grades)] + [-math.inf] * len(missing)
    return torch.tensor([scores]), torch.tensor([[*grades, *missing]])


def mean_over(metric, *lists):
    for grades in lists:
        metric.update(*in_order(*grades))
    return metric.compute().item()


def value(metric, *grades, missing=()):
    return metric.score(*in_order(*grades, missing=missing)).item()


# ---- ranks ---------------------------------------------------------------------------------------


def test_mean_rank():
    metric = tr.MR()
    metric.update(tr.Ranking.from_ranks(torch.tensor([1, 3, 3, 5, 2]), num_candidates=5))
    assert metric.compute().item() == pytest.approx((1 + 3 + 3 + 5 + 2) / 5)
    assert metric.compute().item() == pytest.approx(2.8)


def test_mean_rank_of_several():
    assert value(tr.MR(), 0, 1, 0, 1) == pytest.approx((2 + 4) / 2)
    assert value(tr.MR(filtered=True), 0, 1, 0, 1) == pytest.approx((2 + 3) / 2)
    assert value(tr.MR(), 0, 1, 0, missing=(1,)) == pytest.approx((2 + 4) / 2)
    assert value(tr.MR(filtered=True), 0, 1, 0, missing=(1,)) == pytest.approx((2 + 3) / 2)


def test_mean_over_queries_and_over_positives():
    lists = [(1, 0, 0, 0), (0, 0, 1, 1)]
    assert mean_over(tr.MR(), *lists) == pytest.approx((1 + (3 + 4) / 2) / 2)
    assert mean_over(tr.MR(average="positive"), *lists) == pytest.approx((1 + 3 + 4) / 3)
    assert mean_over(tr.MRR(filtered=True), *lists) == pytest.approx((1 + (1 / 3 + 1 / 3) / 2) / 2)
    assert mean_over(tr.MRR(filtered=True, average="positive"), *lists) == pytest.approx((1 + 1 / 3 + 1 / 3) / 3)


def test_mean_reciprocal_rank():
    lists = [(0, 0, 1), (0, 1, 1), (1, 1, 0)]
    assert mean_over(tr.MRR(), *lists) == pytest.approx((1 / 3 + 1 / 2 + 1) / 3)
    assert mean_over(tr.MRR(), *lists) == pytest.approx(0.6111, abs=5e-5)
    assert mean_over(tr.MRR(top_k=2), *lists) == pytest.approx((0 + 1 / 2 + 1) / 3)


@pytest.mark.parametrize(("k", "expected"), [(1, 1 / 3), (2, 2 / 3), (3, 1)])
def test_hits(k, expected):
    assert mean_over(tr.HitRate(top_k=k), (0, 0, 1), (0, 1, 1), (1, 1, 0)) == pytest.approx(expected)


def test_reciprocal_rank_looks_at_relevance_and_not_at_the_size_of_a_grade():
    assert value(tr.MRR(), 0, 1, 0, 3) == pytest.approx(1 / 2)
    assert value(tr.MRR(), 0, 0, 0, 3) == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("ties", "expected"),
    [("optimistic", 1), ("pessimistic", 1 / 3), ("realistic", 1 / 2), ("expected", (1 + 1 / 2 + 1 / 3) / 3)],
)
def test_reciprocal_rank_of_one_in_three_equal_scores(ties, expected):
    assert tr.MRR(ties=ties).score(torch.zeros(1, 3), torch.tensor([[0, 0, 1]])).item() == pytest.approx(expected)


# ---- binary relevance ----------------------------------------------------------------------------


def test_average_precision():
    assert value(tr.MAP(), 1, 0, 1, 1, 0) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert value(tr.MAP(), 1, 0, 1, 1, 0) == pytest.approx(0.8056, abs=5e-5)
    assert value(tr.MAP(), 0, 0, 0, 1, 1) == pytest.approx((1 / 4 + 2 / 5) / 2)
    assert value(tr.MAP(), 0, 0, 0, 1, 1) == pytest.approx(0.325)
    assert mean_over(tr.MAP(), (1, 0, 1, 1, 0), (0, 0, 0, 1, 1)) == pytest.approx(0.5653, abs=5e-5)


PROBE = (1, 0, 0, 1, 1)  # one ranking of which the libraries say different things, see their definitions


@cases(
    ("metric", "expected"),
    [
        (tr.Precision(top_k=10), 3 / 10),
        (tr.Precision(), 3 / 5),  # the value of libraries that divide P@10 by the length of a shorter list
        (tr.Recall(top_k=2), 1 / 3),
        (tr.MAP(top_k=2), 1 / 3),
        (tr.MAP(top_k=2, normalize="min"), 1 / 2),
        (tr.MAP(top_k=2, normalize="retrieved"), 1),
        (tr.MAP(top_k=4), (1 + 2 / 4) / 3),
        (tr.MAP(top_k=4, normalize="min"), (1 + 2 / 4) / 3),
        (tr.MAP(top_k=4, normalize="retrieved"), (1 + 2 / 4) / 2),
        (tr.MAP(), (1 + 2 / 4 + 3 / 5) / 3),
        (tr.NDCG(top_k=2), 1 / (1 + 1 / log2(3))),
        (tr.NDCG(top_k=5), (1 + 1 / log2(5) + 1 / log2(6)) / (1 + 1 / log2(3) + 1 / 2)),
        (tr.NDCG(top_k=10), (1 + 1 / log2(5) + 1 / log2(6)) / (1 + 1 / log2(3) + 1 / 2)),
        (tr.F1(top_k=10), 2 * (3 / 10) * 1 / (3 / 10 + 1)),
        (tr.RPrecision(), 1 / 3),
    ],
    ids=lambda x: x.label if isinstance(x, tr.RankingMetric) else "",
)
def test_probe(metric, expected):
    assert value(metric, *PROBE) == pytest.approx(expected)


@cases(
    ("label", "printed"),
    [
        ("precision@10", 0.3),
        ("recall@2", 0.3333),
        ("map@2", 0.3333),
        ("map@4", 0.5),
        ("map(normalize=retrieved)@4", 0.75),
        ("map", 0.7),
        ("ndcg@2", 0.6131),
        ("ndcg@5", 0.8529),
        ("ndcg@10", 0.8529),
        ("f1@10", 0.4615),
    ],
)
def test_probe_as_other_libraries_print_it(label, printed):
    assert value(tr.parse(label), *PROBE) == pytest.approx(printed, abs=5e-5)


def test_probe_with_a_relevant_candidate_that_was_not_retrieved():
    assert value(tr.MAP(top_k=2), *PROBE, missing=(1,)) == pytest.approx(1 / 4)
    assert value(tr.MAP(top_k=2, normalize="min"), *PROBE, missing=(1,)) == pytest.approx(1 / 2)
    assert value(tr.Recall(top_k=2), *PROBE, missing=(1,)) == pytest.approx(1 / 4)
    assert value(tr.RPrecision(), *PROBE, missing=(1,)) == pytest.approx(2 / 4)
    ideal = 1 + 1 / log2(3) + 1 / 2 + 1 / log2(5)
    assert value(tr.NDCG(), *PROBE, missing=(1,)) == pytest.approx((1 + 1 / log2(5) + 1 / log2(6)) / ideal)


def test_negative_scores_are_as_good_as_others():
    scores, target = torch.tensor([[-0.1, -0.5, -0.2, -0.3]]), torch.tensor([[0, 1, 1, 0]])
    for shift in (0, 1):
        assert tr.Precision(top_k=2).score(scores + shift, target).item() == pytest.approx(1 / 2)
        assert tr.Recall(top_k=2).score(scores + shift, target).item() == pytest.approx(1 / 2)
        assert tr.MRR().score(scores + shift, target).item() == pytest.approx(1 / 2)
        assert tr.MAP().score(scores + shift, target).item() == pytest.approx((1 / 2 + 2 / 4) / 2)


def test_f_beta():
    # two hits in the first four of five relevant: P = 1/2, R = 2/5
    grades, missing = (1, 0, 1, 0), (1, 1, 1)
    p, r = 2 / 4, 2 / 5
    assert value(tr.F1(top_k=4), *grades, missing=missing) == pytest.approx(2 * p * r / (p + r))
    for beta in (0.5, 2):
        expected = (1 + beta**2) * p * r / (beta**2 * p + r)
        assert value(tr.FBeta(top_k=4, beta=beta), *grades, missing=missing) == pytest.approx(expected)


def test_fall_out():
    assert value(tr.FallOut(top_k=2), 0, 1, 0, 1, 0) == pytest.approx(1 / 3)
    assert value(tr.FallOut(top_k=9), 0, 1, 0, 1, 0) == pytest.approx(1)
    assert value(tr.FallOut(top_k=2), 0, 1, missing=(0, 0)) == pytest.approx(1)  # of those retrieved
    assert value(tr.FallOut(top_k=2), 1, 1) == 1  # nothing irrelevant
    assert value(tr.FallOut(top_k=2, empty_target_action="neg"), 1, 1) == 0


def test_area_under_the_roc_curve():
    assert value(tr.AUROC(), 1, 0, 1, 0, 0) == pytest.approx((3 + 2) / (2 * 3))
    assert value(tr.AUROC(top_k=3), 1, 0, 1, 0, 0) == pytest.approx(1 / 2)
    assert value(tr.AUROC(top_k=1), 1, 0, 1, 0, 0) == 0  # no pair
    assert tr.AUROC().score(torch.zeros(1, 3), torch.tensor([[1, 0, 0]])).item() == pytest.approx(1 / 2)


# ---- graded relevance ----------------------------------------------------------------------------

LN = {"log_base": math.e}
FIRST = (2, 4, 3, 1, 5)
SECOND = (5, 1, 3, 2, 4)
THIRD = (5, 1, 1, 2, 1, 2, 3, 2, 1)


def test_three_grades():
    assert value(tr.CG(), 0, 3, 5) == 8
    assert value(tr.DCG(), 0, 3, 5) == pytest.approx(3 / log2(3) + 5 / log2(4))
    assert value(tr.DCG(), 0, 3, 5) == pytest.approx(4.3928, abs=5e-5)
    assert value(tr.DCG(), 5, 3, 0) == pytest.approx(6.8928, abs=5e-5)
    assert value(tr.NDCG(), 0, 3, 5) == pytest.approx((3 / log2(3) + 5 / 2) / (5 + 3 / log2(3)))
    assert value(tr.NDCG(), 0, 3, 5) == pytest.approx(0.6373, abs=5e-5)
    assert value(tr.NDCG(), 5, 3, 0) == 1


def test_six_grades():
    grades = (3, 2, 3, 0, 1, 2)
    assert value(tr.DCG(), *grades) == pytest.approx(3 + 2 / log2(3) + 3 / 2 + 1 / log2(6) + 2 / log2(7))
    assert value(tr.DCG(), *grades) == pytest.approx(6.8611, abs=5e-5)
    assert value(tr.DCG(), *sorted(grades, reverse=True)) == pytest.approx(7.1410, abs=5e-5)
    assert value(tr.NDCG(), *grades) == pytest.approx(0.9608, abs=5e-5)


@cases(
    ("metric", "grades", "printed"),
    [
        (tr.CG(), FIRST, 15),
        (tr.CG(), SECOND, 15),
        (tr.DCG(**LN), FIRST, 12.1023),
        (tr.DCG(**LN), SECOND, 13.7629),
        (tr.DCG(**LN), THIRD, 14.4609),
        (tr.DCG(), FIRST, 8.3887),
        (tr.DCG(), SECOND, 9.5397),
        (tr.NDCG(**LN), SECOND, 0.9287),
        (tr.NDCG(), SECOND, 0.9287),
        (tr.NDCG(**LN), THIRD, 0.9252),
        (tr.NDCG(), THIRD, 0.9252),
        (tr.NDCG(gain="exponential"), FIRST, 0.6219),
        (tr.NDCG(gain="exponential"), SECOND, 0.9251),
        (tr.NDCG(gain="exponential"), THIRD, 0.9455),
    ],
    ids=lambda x: x.label if isinstance(x, tr.RankingMetric) else str(x),
)
def test_printed_values_of_graded_lists(metric, grades, printed):
    assert value(metric, *grades) == pytest.approx(printed, abs=5.1e-5)


@pytest.mark.parametrize("grades", [FIRST, SECOND, THIRD])
def test_graded_lists_in_arithmetic(grades):
    numbered = list(enumerate(grades, 1))
    assert value(tr.DCG(**LN), *grades) == pytest.approx(sum(g / log(1 + i) for i, g in numbered))
    assert value(tr.DCG(), *grades) == pytest.approx(sum(g / log2(1 + i) for i, g in numbered))
    assert value(tr.DCG(discount="reciprocal"), *grades) == pytest.approx(sum(g / i for i, g in numbered))
    expected = sum((2**g - 1) / log2(1 + i) for i, g in numbered[:3])
    assert value(tr.DCG(top_k=3, gain="exponential"), *grades) == pytest.approx(expected)


def test_gains_of_candidates_not_retrieved_count_in_the_ideal_only():
    assert value(tr.CG(), 1, 0, missing=(3,)) == 1
    assert value(tr.NDCG(), 1, 0, missing=(3,)) == pytest.approx(1 / (3 + 1 / log2(3)))
    assert value(tr.NDCG(top_k=1), 1, 0, missing=(3,)) == pytest.approx(1 / 3)


def test_tied_candidates_share_the_discounts_of_their_ranks():
    scores, target = torch.tensor([[2.0, 1.0, 1.0, 0.0]]), torch.tensor([[0, 3, 1, 2]])
    shared = (1 / log2(3) + 1 / log2(4)) / 2
    assert tr.DCG().score(scores, target).item() == pytest.approx(3 * shared + 1 * shared + 2 / log2(5))
    assert tr.DCG(top_k=2).score(scores, target).item() == pytest.approx((3 + 1) / log2(3) / 2)
    assert tr.DCG(top_k=2, ties="optimistic").score(scores, target).item() == pytest.approx(3 / log2(3))
    assert tr.DCG(top_k=2, ties="pessimistic").score(scores, target).item() == pytest.approx(1 / log2(3))


# ---- nothing to measure --------------------------------------------------------------------------


@cases("name", ["ndcg", "dcg", "cg", "map", "mrr", "precision", "recall", "f1", "rprecision"])
def test_nothing_relevant(name):
    assert value(tr.parse(name), 0, 0, 0) == 0
    assert value(tr.parse(name, empty_target_action="pos"), 0, -1, 0) == 1
    assert math.isnan(value(tr.parse(name, empty_target_action="skip"), 0, 0, 0))


def test_the_area_under_the_curve_skips_a_query_of_one_class():
    assert mean_over(tr.AUROC(), (0, 0), (1, 1), (0, 1, 0)) == 1 / 2
    assert mean_over(tr.AUROC(empty_target_action="neg"), (0, 0), (0, 1, 0)) == 1 / 4


def test_mean_rank_skips_a_query_without_anything_relevant():
    assert math.isnan(value(tr.MR(), 0, 0))
    assert mean_over(tr.MR(), (0, 0), (0, 1)) == 2


def test_a_judged_query_for_which_nothing_was_retrieved_scores_0_even_if_empty_ones_are_skipped():
    for name in ("ndcg", "dcg", "cg", "map", "mrr", "hitrate", "precision", "recall", "f1", "rprecision", "auroc"):
        assert value(tr.parse(name, empty_target_action="skip"), missing=(1,)) == 0, name


def test_nothing_scored_at_all_is_nan():
    assert math.isnan(tr.NDCG().compute().item())
    assert math.isnan(mean_over(tr.MAP(empty_target_action="skip"), (0, 0)))


@pytest.mark.parametrize("levels", [None, 4], ids=["no ties", "ties"])
def test_one_running_sum_serves_all_cutoffs(levels):
    """Queries without ties share their ranks, so cutoffs are columns; alone, a query has ranks of its own."""
    draw = torch.Generator().manual_seed(7)
    scores, grades = torch.rand(9, 12, generator=draw), torch.randint(-1, 5, (9, 12), generator=draw)
    scores = scores if levels is None else (scores * levels).floor()
    names = [
        "ndcg",
        "dcg",
        "err",
        "nerr",
        "qmeasure",
        "rbp",
        "pwa",
        "map",
        "mrr",
        "hitrate",
        "recall",
        "precision",
        "judged",
    ]
    suite = tr.RankingCollection([f"{name}@1,3,12,40" for name in names])
    together = suite.score(scores, grades)
    for k in (1, 3, 12, 40):
        metrics = tr.RankingCollection([f"{name}@{k}" for name in names])  # they share nothing with other cutoffs
        alone = [metrics.score(scores[n : n + 1], grades[n : n + 1]) for n in range(9)]
        for label in metrics:
            values = torch.cat([one[label] for one in alone])
            torch.testing.assert_close(
                together[label], values, rtol=1e-14, atol=0, msg=lambda text, label=label: f"{label}: {text}"
            )


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


BEST = ["ndcg", "map", "mrr", "recall", "hitrate", "precision", "f1", "auroc", "err", "rbp", "mr", "kendalltau"]


@pytest.mark.parametrize("name", BEST)
def test_the_best_value_of_the_usual_measures_is_an_end_of_their_range(name):
    metric = tr.parse(name)
    if name == "kendalltau":
        value = metric.score(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[3, 2, 1]])).item()
    else:
        value = metric.score(torch.tensor([[0.9, 0.1]]), torch.tensor([[1, 0]])).item()
    if name in ("err", "rbp", "precision", "f1"):  # which longer lists of relevant candidates come near or reach
        assert value < metric.value_range[1] == 1
    else:
        assert value == metric.value_range[metric.higher_is_better]
