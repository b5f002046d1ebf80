"""The report on ties beside all orders of tied candidates, and bounds of differences beside all judgments."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torchrank as tr
from tests.support.cases import cases
from torchrank.names.registry import measures
from torchrank.wrappers import tie_report

NAN, INF = math.nan, math.inf
POLICIES = ("expected", "optimistic", "pessimistic")
SUITE = ["mrr", "precision@2", "ndcg@3", "map", "mr", "fallout@2"]


def batch(seed, queries=12, width=5, levels=3):
    """Scores with many ties, and grades; some queries have nothing relevant."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, levels, (queries, width), generator=generator).float()
    grades = torch.randint(0, 3, (queries, width), generator=generator)
    grades[::5] = 0
    return scores, grades


def close(got, want):
    return math.isclose(got, want, rel_tol=1e-6, abs_tol=1e-7) or (math.isnan(got) and math.isnan(want))


def same(one, other):
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7, equal_nan=True)


def reported(metrics, *args, **kwargs):
    report = tr.TieReport(metrics)
    report.update(*args, **kwargs)
    return report.compute()


# ---- a report against all orders -------------------------------------------------------------------------------------


def test_tie_groups_are_counted_by_hand():
    scores, grades = batch(1)
    sizes = [
        max((row.count(score) for score, grade in zip(row, judged) if grade > 0), default=0)
        for row, judged in zip(scores.tolist(), grades.tolist())
    ]
    got = reported(["map", "mrr"], scores, grades)
    assert got["largest_tie"] == max(sizes)
    assert close(got["tied_queries"].item(), sum(size > 1 for size in sizes) / len(sizes))


def test_ties_beyond_the_cutoff_of_all_metrics_are_not_counted():
    arguments = torch.tensor([[5.0, 4, 3, 1, 1, 1]]), torch.tensor([[0, 0, 1, 1, 0, 0]])
    for layout in (arguments, (tr.Ranking.from_scores(*arguments),)):
        assert [reported("mrr@3", *layout)[key] for key in ("largest_tie", "tied_queries")] == [1, 0]
        assert [reported("mrr@3, mrr@4", *layout)[key] for key in ("largest_tie", "tied_queries")] == [3, 1]


# ---- a report against the metrics ------------------------------------------------------------------------------------


@cases("seed", range(2))
@cases(
    "name",
    [
        *SUITE, "ndcg(aggregation=geometric)", "mr(adjusted=index)", "mr(inverse=True)", "kendalltau", "lrap",
        "mrr(filtered=True,average=positive)", "ips(self_normalized=True)@2", "precision(unjudged=upper)@2",
        "map(empty_target_action=skip)", "precision@50%",
    ],
)  # fmt: skip
def test_means_equal_those_of_the_metric_under_each_policy(name, seed):
    scores, grades = batch(seed)
    grades -= 1 * (seed == 1)
    weights = torch.rand(len(scores), generator=torch.Generator().manual_seed(seed))
    got = reported(name, scores, grades, weights=weights)
    key = tr.parse(name).label
    for policy in POLICIES:
        alone = tr.parse(name, ties=policy)
        alone.update(scores, grades, weights=weights)
        assert torch.equal(got[f"{key}/{policy}"], alone.compute()), policy
    best, worst = (tr.parse(name, ties=policy).score(scores, grades) for policy in ("optimistic", "pessimistic"))
    widths, counted = (best - worst).abs().nan_to_num(), weights * ~best.isnan()
    want = {"width_max": widths.max()}
    if name in SUITE:  # others have weights of their own
        means = (counted * torch.stack([widths > 1e-9, widths])).sum(1) / counted.sum()
        want |= dict(zip(("tied", "width"), means))
    assert all(close(got[f"{key}/{part}"].item(), number.item()) for part, number in want.items()), want


def test_every_measure_is_reported_or_left_out_with_a_reason():
    every = [cls(3) if cls.takes_top_k else cls() for cls in tr.RankingMetric.registry.values()]
    report = tr.TieReport(every)
    report.update(*batch(3))
    found = report.compute()
    for metric in every:
        if set(POLICIES) <= set(metric.policies):
            assert found[f"{metric.label}/width_max"] >= found[f"{metric.label}/width"] >= 0
        else:
            assert metric.label in report.not_applicable
            with pytest.raises(ValueError, match="does not support optimistic and pessimistic ties"):
                tr.TieReport(metric)


def test_metrics_without_one_value_per_query_of_a_ranking_are_left_out():
    report = tr.TieReport(["mrr", "mrr(aggregation=median)", tr.PRCurve(top_k=3), "mae"])
    assert list(report.not_applicable) == ["mrr(aggregation=median)", "prcurve@3", "mae"]
    assert "largesttie" not in measures()  # it is a part of the report
    assert {key.split("/")[0] for key in report.compute()} == {"mrr", "tied_queries", "largest_tie"}


def test_tie_break_removes_ties():
    scores, grades = batch(0)
    got = reported(SUITE, scores, grades, tie_break=torch.arange(5))
    assert all(value == 0 for key, value in got.items() if key.endswith(("/tied", "/width", "/width_max")))
    assert got["largest_tie"] == 1


def test_ignored_queries_do_not_count():
    scores = torch.tensor([[1.0, 1, 1], [1, 1, 0], [2, 1, 0], [1, 1, 1]])
    got = reported("mrr", scores, torch.tensor([-100, 0, 0, 0]), weights=torch.tensor([1.0, 1, 3, 0]))
    assert (got["mrr/tied"], got["mrr/width"], got["tied_queries"]) == (0.25, 0.125, 0.25)
    assert (got["mrr/width_max"], got["largest_tie"]) == (0.5, 2)


# ---- a report as a metric --------------------------------------------------------------------------------------------


def test_queries_of_weight_0_or_without_a_relevant_candidate_have_no_largest_tie():
    report = tr.TieReport("mrr")
    for width, grades, weights, largest in ((3, 1, 0, 0), (3, 0, 1, 0), (2, 1, 1, 2)):
        report.update(torch.zeros(1, width), torch.full((1, width), grades), weights=torch.tensor([weights]))
        assert report.compute()["largest_tie"] == largest


def test_reports_with_other_tolerances_have_other_states_of_one_row_of_maxima():
    reports = [tr.TieReport("mrr, ndcg@2", **given) for given in ({}, {"atol": 0.1}, {"rtol": 0.1}, {"atol": 0.2})]
    assert len({name for report in reports for name in report.metric_state}) == 2 * len(reports)
    assert list(reports[0].metric_state) == [
        f"report on {tr.MRR().label} {tr.NDCG(top_k=2).label}:{part}" for part in ("sums", "most")
    ]
    assert all(report.most.shape == (1, 3) for report in reports)


def test_the_metric_that_counts_a_query_as_bad_is_named():
    report = tr.TieReport({"a": "mrr", "b": "ndcg", "c": "map(empty_target_action=error)", "d": "recall"})
    report.update(torch.rand(3, 4), torch.tensor([[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]]))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^c: 1 query with nothing to measure"):
            report.compute()


def test_summary_has_a_row_for_each_metric_and_a_note_for_each_metric_without_one():
    report = tr.TieReport(["mrr", "ndcg@3", "alphandcg"])
    report.update(*batch(0))
    table, values = report.summary(), report.compute()
    assert "mrr, ndcg@3" in repr(report)
    assert all(value.dtype == torch.float32 and not value.dim() for value in values.values())
    assert table["measure"] == ["mrr", "ndcg@3"]
    assert table["mean width"] == [values["mrr/width"].item(), values["ndcg@3/width"].item()]
    assert f"the largest group has {values['largest_tie']:.0f} candidates" in table.notes[0]
    assert table.notes[1] == "alphandcg does not support optimistic and pessimistic ties."
    assert f"{values['mrr/tied'].item():.1%}" in str(table)
    report.reset()
    report.update(torch.tensor([[1.0, 2.0]]), torch.tensor([0]))
    assert report.summary().notes[0] == "No relevant candidate is in a tie group."


# ---- bounds of differences -------------------------------------------------------------------------------------------

MEASURES = [
    "precision", "precision@2", "precision(adaptive_k=True)@4", "precision(relevance_level=2)@2",
    "precision(empty_target_action=pos)@1", "recall", "recall@2", "recall(normalize=min)@2",
    "recall(gain=linear)@2", "recall(gain=exponential,relevance_level=2)@3", "eachrr", "eachrr@2",
    "recall(empty_target_action=skip)@2", "relprecision@2", "f1@2", "fbeta(beta=2)@3", "numrel", "numrelret@2",
    "utility@2", "utility(miss=-0.5)", "cg@2", "dcg", "dcg@3", "dcg(gain=exponential,discount=reciprocal)@3",
    "dcg(empty_target_action=skip)@2", "pwa@3", "ndcg", "ndcg@2", "ndcg(normalize=k)@3",
    "ndcg(empty_target_action=skip)@3", "ndcg(empty_target_action=pos)@3", "psp@2", "psndcg@3", "ips@2",
    "ips(self_normalized=query,discount=log2)@2", "rbp", "rbp(p=0.5,max_grade=2)@3", "rbp(normalize=True)@3",
    "cwl(user=precision)@3", "cwl(user=rbp)@4", "cwl(user=sdcg)@3", "cwl(user=insq,target=2)@4",
]  # fmt: skip
WITH_GAIN_OF_ZERO = tr.CG(top_k=3, gain={0: 0.5, 1: 2})  # unjudged candidates gain by either judgment


def pair(seed, queries=8, width=6):
    """Scores of two systems with ties and candidates that were not retrieved; grades, a third unjudged; a mask."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(0, 4, (queries, width), generator=generator).float() for _ in range(2))
    a[torch.rand(a.shape, generator=generator) < 0.15] = -INF
    b[torch.rand(a.shape, generator=generator) < 0.15] = -INF
    grades = torch.randint(0, 3, a.shape, generator=generator)
    grades[torch.rand(a.shape, generator=generator) < 0.4] = -1
    grades[1], grades[2] = grades[1].clamp_max(0), grades[2].abs()  # nothing relevant yet; all judged
    return a, b, grades, torch.rand(a.shape, generator=generator) < 0.9


def all_differences(metric, a, b, grades, mask):
    """The differences of each query under every judgment of its unjudged candidates."""
    worth, judged = max(1, getattr(metric, "relevance_level", 1)), []
    for row in range(len(a)):
        where = ((grades[row] < 0) & mask[row]).nonzero().flatten()
        judgments = torch.tensor(list(itertools.product([0, worth], repeat=len(where))))
        complete = grades[row].clamp_min(0).repeat(len(judgments), 1)
        complete[:, where] = judgments.view(len(judgments), -1).to(complete.dtype)
        judged.append(complete)
    sizes = [len(complete) for complete in judged]
    at = torch.arange(len(a)).repeat_interleave(torch.tensor(sizes))
    one, other = (metric.score(x[at], torch.cat(judged), mask=mask[at]) for x in (a, b))
    return [difference.tolist() for difference in (other - one).split(sizes)]


@cases(("name", "seed"), zip([*MEASURES, WITH_GAIN_OF_ZERO], itertools.cycle((0, 1))), ids=str)
def test_bounds_are_the_extremes_over_all_judgments(name, seed):
    metric = tr.parse(name) if isinstance(name, str) else name
    a, b, grades, mask = pair(seed)
    grades = grades.float() if seed else grades
    lower, upper = tr.difference_bounds(metric, a, b, grades, mask=mask)
    assert lower.dtype == upper.dtype == torch.float64
    for row, found in enumerate(all_differences(metric, a, b, grades, mask)):
        found = [value for value in found if not math.isnan(value)]
        assert close(lower[row].item(), min(found, default=NAN)), (row, lower[row], min(found))
        assert close(upper[row].item(), max(found, default=NAN)), (row, upper[row], max(found))


def test_every_measure_has_bounds_or_a_reason():
    tried = {type(tr.parse(name)) for name in MEASURES}
    ours = {cls for cls in tr.RankingMetric.registry.values() if cls.__module__.startswith("torchrank.")}
    assert tried == {cls for cls in ours if cls.linear()}
    x = torch.tensor([[1.0, 2.0]])
    for cls in ours - tried:
        with pytest.raises(ValueError, match="Expected a measure with bounds of differences"):
            tr.difference_bounds(cls(), x, x, torch.tensor([[1, -1]]))


def test_a_column_that_is_a_candidate_of_no_query_changes_no_bounds():
    a, b, target = (torch.tensor([x]) for x in ([0.9, 0.8, 0.7], [0.7, 0.9, 0.8], [0, 1, -1]))
    wider = [torch.nn.functional.pad(x, (1, 0)) for x in (a, b, target)]
    mask = torch.tensor([False, True, True, True])
    assert tr.difference_bounds("dcg", *wider, mask=mask) == tr.difference_bounds("dcg", a, b, target)


def test_judgments_that_leave_a_query_out_have_no_difference():
    a, b = torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, 2.0]])
    for target, want in (([-1, 0], (-1, -1)), ([-1, -1], (-1, 1)), ([0, 0], (NAN, NAN))):
        got = tr.difference_bounds("precision(empty_target_action=skip)@1", a, b, torch.tensor([target]))
        assert all(close(x.item(), number) for x, number in zip(got, want)), target


def test_chunks_of_queries_have_the_bounds_of_the_whole(monkeypatch):
    arguments = pair(5, queries=20)
    whole = tr.difference_bounds("ndcg@3", *arguments[:3], mask=arguments[3])
    monkeypatch.setattr(tie_report, "BLOCK", 8 * 6 * 3)  # three queries
    parts = tr.difference_bounds("ndcg@3", *arguments[:3], mask=arguments[3])
    assert torch.equal(torch.stack(whole), torch.stack(parts))
    nothing = tr.difference_bounds("ndcg@3", *(x[:0] for x in arguments[:3]))
    assert [x.shape for x in nothing] == [(0,), (0,)]


X, Y = torch.tensor([[1.0, 2.0]]), torch.tensor([[1, -1]])


@cases(
    ("arguments", "error", "message"),
    [
        (("map", X, X, Y), ValueError, "not a sum over candidates"),
        (("f1", X, torch.tensor([[1.0, -INF]]), Y), ValueError, "lists of equal length for f1, .*; pass top_k"),
        (("cwl(user=rr)", X, X, Y), ValueError, "guided by gains"),
        (("cwl(of=depth)", X, X, Y), ValueError, "not a sum of gains"),
        (("utility(rejection=1)", X, X, Y), ValueError, "rejection is 0"),
        (("dcg(ties=optimistic)", X, X, Y), ValueError, "Expected ties='expected'"),
        (("dcg(unjudged=condensed)", X, X, Y), ValueError, "Expected unjudged='irrelevant'"),
        (("dcg(empty_target_action=error)", X, X, Y), ValueError, "Expected empty_target_action='neg'"),
        (("dcg", X, X, torch.tensor([1])), TypeError, "Expected target of shape"),
        (("dcg", X, X, [torch.tensor([1])]), TypeError, "Expected target of shape"),
        (("dcg", X, tr.Ranking.from_scores(X, Y), Y), TypeError, "Expected preds_b of shape"),
        (("dcg", X.long(), X, torch.tensor([[1, 0]])), TypeError, "Expected preds_a to be floating point scores"),
        (("dcg", X, torch.rand(1, 3), Y), ValueError, "shape"),
        (("dcg", X, torch.tensor([[NAN, 1.0]]), Y), ValueError, "dcg: 1 query with NaN"),
        (("dcg", X, X, torch.tensor([[NAN, 1.0]])), ValueError, "1 relevance grade"),
        ((tr.PRCurve(top_k=2), X, X, Y), ValueError, "not a sum over candidates"),
        ((3, X, X, Y), TypeError, "Expected a metric or its name"),
    ],
)  # fmt: skip
def test_other_arguments_are_refused_with_the_reason(arguments, error, message):
    with pytest.raises(error, match=message):
        tr.difference_bounds(*arguments)


# ---- near ties


@given(data=st.data())
def test_a_negative_is_tied_with_the_nearest_positive_within_the_tolerance(data):
    number = st.integers(-8, 8).map(float) | st.sampled_from([math.inf, -math.inf])
    pos, neg = (data.draw(st.lists(number, min_size=1, max_size=5)) for _ in range(2))
    atol, rtol = data.draw(st.sampled_from([(0, 0.25), (1.5, 0), (0.5, 0.125)]))

    def snapped(score):
        near = [p for p in pos if math.isfinite(p) and abs(score - p) <= atol + rtol * abs(p)]
        return min(near, key=lambda p: (abs(score - p), p), default=score)

    found = tr.Ranking.from_negatives(torch.tensor([pos]), torch.tensor([neg]), atol=atol, rtol=rtol)
    want = tr.Ranking.from_negatives(torch.tensor([pos]), torch.tensor([[snapped(score) for score in neg]]))
    for name in ("first", "tied"):
        assert getattr(found, name).tolist() == getattr(want, name).tolist()


@cases("block", [tie_report.BLOCK, 12, 1])  # all queries at a time, two, one
@cases("labels", [False, True])
def test_a_report_with_a_tolerance_is_that_of_scores_moved_to_the_nearest_positive(monkeypatch, block, labels):
    draw = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 9, (13, 6), generator=draw) + 0.2 * torch.rand(13, 6, generator=draw)
    grades = (torch.rand(13, 6, generator=draw) < 0.3).long()
    target = torch.arange(13) % 6 if labels else grades
    target[4] = -1
    target[7:9] = -100 if labels else 0
    weights = torch.rand(13, generator=draw)
    moved = scores.clone()
    for n, row in enumerate(scores.tolist()):
        relevant = target[n].tolist() if labels else None
        good = [x for m, x in enumerate(row) if (m == relevant if labels else target[n, m] > 0)]
        for m, x in enumerate(row):
            near = [p for p in good if abs(x - p) <= 0.15]
            moved[n, m] = min(near, key=lambda p, x=x: abs(x - p), default=x)
    monkeypatch.setattr(tie_report, "BLOCK", block)
    report, plain = tr.TieReport("mrr, ndcg@2", atol=0.15), tr.TieReport("mrr, ndcg@2")
    report.update(scores, target, weights=weights)
    plain.update(moved, target, weights=weights)
    assert plain.compute()["tied_queries"] > 0.2
    for batch in (slice(0), slice(2, 5)):
        report.update(scores[batch], target[batch], weights=weights[batch])
        plain.update(moved[batch], target[batch], weights=weights[batch])
    same(report.compute(), plain.compute())
    for each in (report, plain):
        each.update(scores[:2, :0], torch.tensor([-1, -1]) if labels else target[:2, :0])
    same(report.compute(), plain.compute())


def test_a_tolerance_is_a_number_from_0_on_and_needs_scores():
    with pytest.raises(ValueError, match="atol"):
        tr.TieReport("mrr", atol=-1)
    with pytest.raises(ValueError, match="rtol"):
        tr.Ranking.from_negatives(torch.ones(1), torch.ones(1, 2), rtol=math.nan)
    with pytest.raises(TypeError, match=r"floating \[query, candidate\]"):
        tr.TieReport("mrr", atol=1e-3).update(torch.tensor([[3, 1]]), torch.tensor([1]))
