"""Weights of single candidates, by the formulas of TensorFlow Ranking's ``metrics_impl``."""

import math
import random

import pytest
import torch

import torchrank as tr


def lists(seed, number=40):
    """Labels, different scores and weights of lists; some weights are 0, and some labels negative for padding."""
    rng = random.Random(seed)
    for _ in range(number):
        length = rng.randint(1, 8)
        scores = rng.sample(range(20), length)
        yield [(rng.choice((-1, 0, 0, 1, 2, 3)), score, rng.choice((0, 0.5, 1, 2.5))) for score in scores]


def padded(rows):
    width = max(len(row) for row in rows)
    return torch.tensor([row + [(-1, 0, 0)] * (width - len(row)) for row in rows], dtype=torch.float64).unbind(-1)


def in_order(row):
    """(label, weight) by descending score, without padding and candidates of weight 0."""
    kept = sorted(((score, label, weight) for label, score, weight in row if label >= 0 and weight > 0), reverse=True)
    return [(label, weight) for _, label, weight in kept]


def average_precision(row, top_k):
    ranked = in_order(row)
    total = math.fsum(weight for label, weight in ranked if label >= 1)
    value = 0.0
    for rank, (label, weight) in enumerate(ranked[:top_k], 1):
        value += weight * (label >= 1) * sum(one >= 1 for one, _ in ranked[:rank]) / rank
    return value / total if total else 0.0


def ndcg(row, top_k):
    gains = [weight * (2**label - 1) for label, weight in in_order(row)]
    value, ideal = (
        math.fsum(gain / math.log2(1 + rank) for rank, gain in enumerate(order[:top_k], 1))
        for order in (gains, sorted(gains, reverse=True))
    )
    return value / ideal if ideal else 0.0


@pytest.mark.parametrize("top_k", [None, 3])
def test_item_weights_are_grades_with_linear_gain(top_k):
    rows = list(lists(3))
    labels, scores, weights = padded(rows)
    mask = (labels >= 0) & (weights > 0)
    precise = tr.MAP(top_k, gain="linear", relevance_level=1e-9).score(scores, weights * (labels >= 1), mask=mask)
    assert precise.tolist() == pytest.approx([average_precision(row, top_k) for row in rows])
    gains = torch.where(labels >= 0, weights * (2**labels - 1), 0.0)
    found = tr.NDCG(top_k).score(scores, gains, mask=mask)
    assert found.tolist() == pytest.approx([ndcg(row, top_k) for row in rows])


def test_pairs_of_all_queries_weigh_as_their_better_candidates():
    table = {1: 4.0, 2: 9.0, 3: 0.5}
    rows = list(lists(4))
    labels, scores, _ = padded(rows)
    right, whole = 0.0, 0.0
    for row in rows:
        for label, score, _ in row:
            for other, lower, _ in row:
                if label > other >= 0:
                    right, whole = right + table[label] * (score > lower), whole + table[label]
    metric = tr.OPA(gain=table, average="pair")
    metric.update(scores[:7], labels[:7], mask=labels[:7] >= 0)
    metric.update(scores[7:], labels[7:], mask=labels[7:] >= 0)
    assert metric.compute().item() == pytest.approx(right / whole, rel=1e-6)


@pytest.mark.parametrize("options", [{"gain": {1: 50, 2: 1}}, {"gain": "linear", "relevance_level": 0.05}])
def test_weighted_average_precision_has_no_bounds_if_unjudged_candidates_may_gain_most(options):
    # With the first gains these grades had the lower bound 0.5049; of all 32 judgments the smallest value is 0.4164.
    target = torch.tensor([[2, -1, -1, -1, -1, 2, 2, -1]])
    with pytest.raises(ValueError, match="gain more than others"):
        tr.MAP(unjudged="lower", **options).score(-torch.arange(8.0)[None], target)
    assert tr.MAP(unjudged="lower", gain="linear").label == "map(gain=linear,unjudged=lower)"
