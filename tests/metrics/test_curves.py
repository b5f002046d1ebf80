"""Interpolated precision, ordered pairs and curves: worked by hand, and as other libraries have them."""

import itertools
import math
import pickle

import numpy as np
import pytest
import torch
import torchmetrics

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pyplot
from tests.support.oracles_binary import of_pairs, ordered_pairs
from tests.support.peer_queries import collection
from tests.support.tie_orders import Query

INF = math.inf
TENTHS = [tenths / 10 for tenths in range(11)]


def of(metric, *flags, missing=0):
    """The value of a query that has these flags in rank order, and so many relevant candidates beside."""
    scores = [float(-rank) for rank in range(len(flags))] + [-INF] * missing
    return metric.score(torch.tensor([scores]), torch.tensor([[*flags, *[1] * missing]])).item()


def same(ours, theirs, tolerance=1e-9):
    theirs = theirs.double() if isinstance(theirs, torch.Tensor) else torch.tensor(np.array(theirs)).double()
    torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=tolerance)


# ---- worked by hand ----------------------------------------------------------------------------------------------


def test_halves_are_rounded_away_from_zero():
    # 0.5 of five is 2.5, of one 0.5: rounding to even would make it 2 and 0.
    assert of(tr.InterpolatedPrecision(recall=0.5), 1, 1, 0, 1, 1, 1) == pytest.approx(5 / 6)
    assert of(tr.InterpolatedPrecision(recall=0.5), 1, 1, 0, 0, 0, 1, 1, 1) == pytest.approx(5 / 8)
    assert of(tr.InterpolatedPrecision(recall=0.5), missing=1) == 0
    # A value just below a half must not be carried over it by a sum that is rounded itself.
    below = math.nextafter(0.5, 0)
    assert of(tr.InterpolatedPrecision(recall=below), 0, 1) == 0.5


def test_recall_at_a_precision():
    flags = (1, 0, 1, 1, 0, 0, 1)  # precision 1, 1/2, 2/3, 3/4, 3/5, 1/2, 4/7
    for asked, hits in [(1, 1), (0.75, 3), (0.76, 1), (0.6, 3), (0.57, 4), (0.1, 4)]:
        assert of(tr.RecallAtPrecision(min_precision=asked), *flags) == hits / 4
    assert of(tr.RecallAtPrecision(top_k=3, min_precision=0.5), *flags) == 2 / 4
    assert of(tr.RecallAtPrecision(min_precision=0.6), 0, 1) == 0
    assert of(tr.RecallAtPrecision(min_precision=2 / 3), 1, 1, 0, missing=1) == 2 / 3
    # A precision that is exactly the one asked for suffices, though no float is 1/10.
    assert of(tr.RecallAtPrecision(min_precision=0.1), *[0] * 9, 1) == 1


BAD = [
    (tr.InterpolatedPrecision, {"rounding": "down"}),
    (tr.ElevenPoint, {"rounding": None}),
    (tr.Utility, {"miss": math.nan}),
    (tr.Utility, {"hit": INF}),
    (tr.PRCurve, {"top_k": None}),
    (tr.PRCurve, {"top_k": 3, "adaptive_k": 2}),
    (tr.PRCurve, {"top_k": 3, "aggregation": "median"}),
    (tr.PRCurve, {"top_k": 3, "ties": "grouped"}),
]


@cases(("cls", "kwargs"), BAD, ids=str)
def test_arguments_that_have_no_meaning(cls, kwargs):
    with pytest.raises(ValueError, match=f"Expected {list(kwargs)[-1]}"):
        cls(**kwargs)


# ---- ordered pairs -----------------------------------------------------------------------------------------------


@cases("dtype", [torch.int64, torch.float32, torch.uint8, torch.bool])
@cases("ties, different", [("expected", 60), ("optimistic", 60), ("pessimistic", 60), ("optimistic", 2**50)])
def test_ordered_pairs_of_long_lists_with_many_grades(dtype, ties, different):
    generator = torch.Generator().manual_seed(0)
    grades = torch.randn((3, 150), generator=generator) * 40
    grades = grades > 0 if dtype == torch.bool else grades.clamp_min(-20 * dtype.is_signed).to(dtype)
    scores = torch.randint(0, different, grades.shape, generator=generator).double()  # of 2**50 none are equal
    scores[torch.rand(scores.shape, generator=generator) < 0.1] = -INF
    want = []
    for row, grade in zip(scores.tolist(), grades.tolist()):
        listed = tuple((s, g) for s, g in zip(row, grade) if s > -INF)
        missing = tuple(g for s, g in zip(row, grade) if s == -INF)
        want.append(ordered_pairs(Query(listed, missing), ties=ties))
    metric = tr.OPA(ties=ties)
    same(metric.score(scores, grades), want)
    pairs = (grades > 0).nonzero()
    labels = (*pairs.T, grades[grades > 0])
    same(metric.score(scores, labels), want)


# ---- ranx --------------------------------------------------------------------------------------------------------


def test_interpolated_precision_of_ranx():
    ranx = pytest.importorskip("ranx")  # which takes long to import
    module = pytest.importorskip("ranx.metrics.interpolated_precision_at_recall")
    qrels, run = collection(4, False)
    # Theirs takes a grade of 0 for no judgment, and knows no query without a relevant document.
    kept = [query for query in qrels if any(grade > 0 for grade in qrels[query].values())]
    judged, ranked = ranx.Qrels({q: qrels[q] for q in kept}), ranx.Run({q: run[q] for q in kept})
    theirs = module.interpolated_precision_at_recall(judged.to_typed_list(), ranked.to_typed_list())
    order = [list(judged.keys()).index(query) for query in kept]
    ranking = tr.Ranking.from_run({q: qrels[q] for q in kept}, run)
    for column, recall in enumerate(TENTHS):
        same(tr.InterpolatedPrecision(recall=recall, rounding="up").score(ranking), theirs[order, column])


# ---- the curve ---------------------------------------------------------------------------------------------------


def batch(seed, queries=6, candidates=7):
    generator = torch.Generator().manual_seed(seed)
    preds = torch.randint(0, 9, (queries, candidates), generator=generator).float()
    target = (torch.rand(preds.shape, generator=generator) < 0.4).long()
    target[1] = 0
    return preds, target


BATCHES = [batch(seed, queries) for seed, queries in ((0, 6), (1, 2), (2, 9))]


def parts(curve):
    return torch.stack(curve[:2]).double()


@cases("adaptive_k", [False, True])
@cases("action", ["neg", "pos", "skip"])
@cases("k", [1, 4, 12])
def test_the_curve_of_torchmetrics(adaptive_k, action, k):
    theirs = torchmetrics.retrieval.RetrievalPrecisionRecallCurve(k, adaptive_k, empty_target_action=action)
    ours = tr.PRCurve(k, adaptive_k=adaptive_k, empty_target_action=action)
    for number in range(3):
        generator = torch.Generator().manual_seed(number)
        preds = torch.rand((20, 3 + 4 * number), generator=generator)
        target = (torch.rand(preds.shape, generator=generator) < 0.3).long()
        index = torch.arange(20).repeat_interleave(preds.shape[1])
        theirs.update(preds.flatten(), target.flatten(), 20 * number + index)
        ours.update(preds, target)
    got, want = ours.compute(), theirs.compute()
    same(parts(got), parts(want).reshape(2, k).numpy(), 1e-6)  # theirs has no dimension for a single rank
    assert got[2].tolist() == list(range(1, k + 1))


@cases("ties", ["expected", "optimistic", "pessimistic"])
@cases("action", ["neg", "pos", "skip"])
@cases("weighted", [False, True])
def test_the_curve_is_precision_and_recall_at_each_rank(ties, action, weighted):
    options = {"ties": ties, "empty_target_action": action, "relevance_level": 2}
    curve = tr.PRCurve(5, **options)
    labels = [[f"{name}@{k}" for k in range(1, 6)] for name in ("precision", "recall")]
    singles = tr.RankingCollection({label: tr.parse(label, **options) for label in itertools.chain(*labels)})
    for preds, target in BATCHES:
        weights = torch.arange(len(preds)) / 2 if weighted else None
        values, each = curve.score(preds, target * 2), singles.score(preds, target * 2)
        for row, keys in zip(values, labels):
            want = torch.stack([each[key] for key in keys], dim=-1)
            torch.testing.assert_close(row, want, rtol=1e-12, atol=1e-12, equal_nan=True)
        curve.update(preds, target * 2, weights=weights)
        singles.update(preds, target * 2, weights=weights)
    found, first = singles.compute(), singles["precision@1"]
    same(parts(curve.compute()), [[found[key].item() for key in keys] for keys in labels], 1e-6)
    assert (curve.num_queries, curve.num_empty) == (first.num_queries, first.num_empty)


def test_the_state_of_the_curve():
    curve, whole = tr.PRCurve(3), tr.PRCurve(3)
    assert parts(curve.compute()).isnan().all()
    whole.update(*(torch.cat(x) for x in zip(*BATCHES)))
    for batch in BATCHES:
        alone = tr.PRCurve(3)
        alone.update(*batch)
        assert torch.equal(parts(curve(*batch)), parts(alone.compute()))
    want = parts(whole.compute())
    loaded = tr.PRCurve(3)
    curve.persistent(True)
    loaded.load_state_dict(curve.state_dict())
    for one in (pickle.loads(pickle.dumps(curve)), loaded, curve.to(torch.float16)):
        same(parts(one.compute()), want.numpy(), 1e-7)
        assert (one.sums.shape, one.sums.dtype) == ((whole.sums.numel(),), torch.float64)
        one.merge_state(whole)  # which forgets the value that was kept
        assert one.num_queries == 2 * whole.num_queries
        one.reset()
        assert parts(one.compute()).isnan().all()


def test_bad_values_raise_when_the_curve_is_computed():
    curve, lenient = tr.PRCurve(2), tr.PRCurve(2, validate_args=False)
    bad = (torch.tensor([[0.1, math.nan]]), torch.tensor([[1, 0]]))
    assert parts(curve(*bad)).isnan().all()
    for call in (lambda: curve.score(*bad), curve.compute, curve.compute):
        with pytest.raises(ValueError, match=r"prcurve@2.*1 query with NaN"):
            call()
    lenient.update(*bad)
    lenient.compute()
    strict = tr.PRCurve(2, empty_target_action="error")
    strict.update(*BATCHES[0])
    with pytest.raises(ValueError, match="queries with nothing"):
        strict.compute()


@pytest.mark.needs("matplotlib")
def test_the_curve_is_drawn():
    curve = tr.PRCurve(4)
    curve.update(*BATCHES[0])
    figure, axes = curve.plot()
    (line,) = axes.get_lines()
    np.testing.assert_allclose(line.get_xdata(), curve.compute()[1].numpy())
    np.testing.assert_allclose(line.get_ydata(), curve.compute()[0].numpy())
    pyplot.close(figure)


@pytest.mark.parametrize(("relevant", "others", "k"), [(3, 5, 2), (4, 3, 3), (2, 6, 1), (6, 2, 4)])
def test_the_first_k_relevant_of_a_tie_group_are_those_of_all_its_orders(relevant, others, k):
    places = range(relevant + others)
    orders = [[place in chosen for place in places] for chosen in itertools.combinations(places, relevant)]
    want = math.fsum(of_pairs([True, *order], 0, k, k) for order in orders) / len(orders)
    scores = torch.tensor([[2.0] + [1.0] * len(places)])
    assert tr.PAP(k).score(scores, torch.tensor([[1, *orders[0]]]).long()).item() == pytest.approx(want, abs=1e-12)
