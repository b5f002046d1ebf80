"""Values that other libraries and papers print for short lists."""

import math

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases

PROBE = (1, 0, 0, 1, 1)  # of which libraries say different things, see their definitions
FIRST, THIRD = (2, 4, 3, 1, 5), (5, 1, 1, 2, 1, 2, 3, 2, 1)
NATURAL = {"log_base": math.e}


@cases(
    ("metric", "grades", "printed"),
    [
        (tr.Precision(10), PROBE, 0.3),
        (tr.Recall(2), PROBE, 0.3333),
        (tr.MAP(2), PROBE, 0.3333),
        (tr.MAP(4, normalize="retrieved"), PROBE, 0.75),
        (tr.MAP(), PROBE, 0.7),
        (tr.NDCG(2), PROBE, 0.6131),
        (tr.NDCG(10), PROBE, 0.8529),
        (tr.F1(10), PROBE, 0.4615),
        (tr.CG(), FIRST, 15),
        (tr.DCG(**NATURAL), THIRD, 14.4609),
        (tr.DCG(), (3, 2, 3, 0, 1, 2), 6.8611),
        (tr.NDCG(**NATURAL), THIRD, 0.9252),
        (tr.NDCG(), THIRD, 0.9252),
        (tr.NDCG(gain="exponential"), THIRD, 0.9455),
        (tr.NDCG(), (3, 2, 3, 0, 1, 2), 0.9608),
    ],
)
def test_printed_values(metric, grades, printed):
    scores = -torch.arange(float(len(grades)))
    assert metric.score(scores[None], torch.tensor([grades])).item() == pytest.approx(printed, abs=5.1e-5)
