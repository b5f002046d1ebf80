"""Abstention against MTEB's definition of nAUC and the mean of selective risks, query by query."""

import itertools
import math
from statistics import fmean

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.random_batches import batch, rng
from torchrank.wrappers import abstention

RATES = np.linspace(0, 1, 11)[:-1]


def area(order):
    """Under the means of values after abstention from the first ones, by trapezoids."""
    n = len(order)
    means = [fmean(order[min(round(rate * n), n - 1) :]) for rate in RATES]
    return sum((x + y) / 2 * width for x, y, width in zip(means, means[1:], np.diff(RATES)))


def nauc(order):
    """Of values in ascending order of confidence."""
    flat = fmean(order) * (RATES[-1] - RATES[0])
    return (area(order) - flat) / (area(sorted(order)) - flat)


def aurc(order):
    return fmean(1 - fmean(order[-n:]) for n in range(1, len(order) + 1))


def orders(confidence, values):
    """Every order of the values that ties of the confidence leave open."""
    groups = [[v for c, v in zip(confidence, values) if c == one] for one in sorted(set(confidence))]
    for choice in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield list(itertools.chain(*choice))


def exactly(metric):
    """The results in float64, before they are narrowed."""
    return metric.results(metric.sums)


def with_values(values, confidence, weights=None, **kwargs):
    """Precision at 100 of lists with that many hits."""
    target = torch.arange(100) < torch.tensor(values).unsqueeze(-1)
    metric = tr.Abstention("precision@100", **kwargs)
    metric.update(torch.rand(target.shape), target.long(), confidence=torch.tensor(confidence), weights=weights)
    return [float(x) for x in exactly(metric).values()]


@cases("queries", [1, 2, 15, 35, 45, 101])
def test_distinct_confidences_have_the_areas_of_the_definitions(queries):
    values = torch.randint(0, 101, (queries,), generator=rng(queries)).tolist()
    confidence = (torch.randperm(queries, generator=rng(1)) - queries / 2).tolist()
    order = [values[i] / 100 for i in np.argsort(confidence)]
    mean, area_, risk = with_values(values, confidence)
    assert mean == pytest.approx(fmean(order))
    assert risk == pytest.approx(aurc(order), rel=1e-12)
    if len(set(values)) == 1:
        assert math.isnan(area_)
    else:
        assert area_ == pytest.approx(nauc(order), rel=1e-12)


def test_tied_confidences_have_the_mean_over_all_orders():
    values, confidence = [10, 90, 40, 0, 100, 70, 20], [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 2.0]
    found = list(orders(confidence, [v / 100 for v in values]))
    assert len(found) == 48
    _, area_, risk = with_values(values, confidence)
    assert area_ == pytest.approx(fmean(map(nauc, found)), rel=1e-12)
    assert risk == pytest.approx(fmean(map(aurc, found)), rel=1e-12)


def test_weights_are_shares_of_the_queries_that_abstention_leaves_whatever_their_scale():
    values, confidence = torch.randint(0, 101, (20,), generator=rng(0)).tolist(), torch.randperm(20).tolist()
    weights = torch.rand(20, generator=rng(1), dtype=torch.float64) + 0.1
    equal, unequal = with_values(values, confidence), with_values(values, confidence, weights)
    for scale in (1 / 40, 1 / 20, 0.5, 100):
        assert with_values(values, confidence, torch.full((20,), scale)) == pytest.approx(equal, rel=1e-9)
        assert with_values(values, confidence, weights * scale) == pytest.approx(unequal, rel=1e-9)
    share = (weights / weights.mean()).tolist()

    def area(order):
        means = []
        for rate in RATES:
            out, left = round(rate * 20), []
            for i in order:
                left.append(max(0.0, share[i] - out))
                out = max(0.0, out - share[i])
            means.append(sum(values[i] * x for i, x in zip(order, left)) / sum(left) / 100)
        return np.trapezoid(means, RATES)

    flat = sum(value * x for value, x in zip(values, share)) / 2000 * RATES[-1]
    best = area(sorted(range(20), key=values.__getitem__))
    want = (area(sorted(range(20), key=confidence.__getitem__)) - flat) / (best - flat)
    assert unequal[1] == pytest.approx(want, rel=1e-9)


@cases("block", [abstention.BLOCK, 5, 14])  # all lists at once, one, two
def test_confidences_are_those_of_mteb_from_the_scores_of_retrieved_candidates(monkeypatch, block):
    monkeypatch.setattr(abstention, "BLOCK", block)
    scores = torch.randn(30, 7, generator=rng(4), dtype=torch.float64)
    scores[:5, 3:] = -math.inf
    mask = torch.rand(scores.shape, generator=rng(5)) < 0.8
    scores[5], mask[6] = -math.inf, False  # nothing is retrieved
    scores[7, 1:] = -math.inf
    target = torch.randint(0, 2, scores.shape, generator=rng(6))
    for name in ("max", "std", "diff1"):
        confidence = []
        for row, real in zip(scores.tolist(), mask.tolist()):
            listed = sorted((x for x, there in zip(row, real) if there and x > -math.inf), reverse=True)
            found = {"max": max(listed, default=-math.inf), "std": float(np.std(listed)) if listed else 0.0}
            confidence.append((found | {"diff1": listed[0] - listed[1] if len(listed) > 1 else 0.0})[name])
        derived, given = tr.Abstention("ndcg map", name), tr.Abstention("ndcg map", name)
        derived.update(scores, target, mask=mask)
        given.update(scores, target, mask=mask, confidence=torch.tensor(confidence))
        assert derived.sums.equal(given.sums)
    for name, confidence in (("diff1", [0, 0, 0]), ("max", [0.5, -0.25, 0.75]), ("std", [0, 0, 0])):
        derived, given = tr.Abstention("mrr", name), tr.Abstention("mrr", name)
        column, target = torch.tensor([[0.5], [-0.25], [0.75]]), torch.tensor([[1], [0], [1]])
        derived.update(column, target)
        given.update(column, target, confidence=confidence)
        assert derived.sums.equal(given.sums)


def test_queries_that_a_metric_skips_do_not_count_for_it():
    scores, grades = batch()
    confidence = torch.randperm(40, generator=rng(3))
    whole = tr.Abstention(["ndcg@3", "map(empty_target_action=skip)"])
    whole.update(scores, grades, confidence=confidence)
    skipping = tr.MAP(empty_target_action="skip").score(scores, grades)
    order = skipping[confidence.argsort()]
    assert exactly(whole)["map(empty_target_action=skip)/aurc"].item() == pytest.approx(
        aurc(order[~order.isnan()].tolist()), rel=1e-12
    )


def test_the_state_has_about_a_megabyte_for_each_metric():
    for names in (["mrr"], ["mrr", "map", "ndcg"]):
        assert tr.Abstention(names).sums.nbytes == pytest.approx(1.1e6 * len(names), rel=0.02)


def test_values_that_differ_by_one_of_4096_bins_are_sorted():
    hits = torch.randperm(30, generator=rng(0)) + 1000
    metric = tr.Abstention("precision@4095")
    target = torch.arange(4095) < hits.unsqueeze(-1)
    confidence = torch.randperm(30, generator=rng(1))
    metric.update(torch.zeros(target.shape), target.long(), confidence=confidence)
    order = (hits.double() / 4095)[confidence.argsort()].tolist()
    assert exactly(metric)["precision@4095/nauc"].item() == pytest.approx(nauc(order), rel=1e-6)


def test_nothing_and_equal_values_have_no_area():
    assert all(math.isnan(x) for x in exactly(tr.Abstention("mrr")).values())
    for value in (0, 10, 70):
        found = with_values([value] * 35, list(range(35)))
        assert found == pytest.approx([value / 100, math.nan, 1 - value / 100], nan_ok=True)


def test_confidences_of_both_zeros_are_equal():
    assert with_values([10, 90], [0.0, -0.0]) == with_values([10, 90], [0.0, 0.0])


def test_values_beyond_the_range_of_a_measure_are_sorted_at_its_ends():
    class Wide(tr.MRR):
        name = "wide"

        def measure(self, ranking):
            return 3 * super().measure(ranking) - 1  # from -1 to 2

    wide, plain = tr.Abstention(Wide(top_k=1)), tr.Abstention("mrr@1")
    scores, labels, confidence = torch.tensor([[0.9, 0.1]] * 4), torch.tensor([0, 1, 0, 1]), [0.4, 0.1, 0.2, 0.3]
    for metric in (wide, plain):
        metric.update(scores, labels, confidence=confidence)
    assert exactly(wide)["wide@1"].item() == 0.5
    assert exactly(wide)["wide@1/nauc"].item() == pytest.approx(exactly(plain)["mrr@1/nauc"].item())


def test_errors_say_the_way_out():
    metric = tr.Abstention("mrr")
    with pytest.raises(ValueError, match=r"got none; pass confidence="):
        metric.update(torch.tensor([[1, 2]]), torch.tensor([1]))
    metric.update(torch.tensor([[1, 2]]), torch.tensor([1]), confidence=[0.5])
    with pytest.raises(ValueError, match=r"confidence of shape \[1\], got \[2\]"):
        metric.update(torch.tensor([[1, 2]]), torch.tensor([1]), confidence=[0.5, 0.5])
    metric.update(torch.tensor([[1, 2]]), torch.tensor([1]), confidence=[math.nan])
    with pytest.raises(ValueError, match="got NaN for 1 queries"):
        metric.compute()
    for label in ("mr", "dcg", "firstrank"):
        with pytest.raises(ValueError, match="bounded measures, higher is better"):
            tr.Abstention(label)
    with pytest.raises(ValueError, match="confidence to be one of 'max', 'std', 'diff1', got 'entropy'"):
        tr.Abstention("mrr", "entropy")


def test_a_summary_has_the_level_95_percent_unless_another_is_named():
    metric = tr.Abstention("mrr")
    metric.update(torch.rand(40, 9), torch.arange(40) % 9)
    assert str(metric.summary()) == str(metric.summary(level=0.95)) != str(metric.summary(level=0.5))
