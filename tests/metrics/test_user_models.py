"""Models of users: worked examples, and the numbers of cwl_eval and ranx."""

import math
import random

import pytest
import torch

import torchrank as tr
from tests.support.oracles_graded import hasty
from torchrank.metrics.user_models import USERS


def listed(*grades, missing=()):
    """One list of grades in rank order, and the grades that it lacks."""
    scores = [float(-rank) for rank in range(len(grades))] + [-math.inf] * len(missing)
    return torch.tensor([scores], dtype=torch.float64), torch.tensor([[*grades, *missing]])


def of(metric, *grades, **more):
    return metric.score(*listed(*grades, **more)).item()


# ---- users -----------------------------------------------------------------------------------------------------------


def test_a_user_of_ones_own():
    assert of(tr.CWL(top_k=2, user=hasty), 1, 0, 1) == pytest.approx(1 / (1 + 1 / 3))
    assert tr.CWL(top_k=2, user=hasty).label == "cwl(user=hasty)@2"
    with pytest.raises(ValueError, match="user"):
        tr.CWL(user="somebody")
    with pytest.raises(ValueError, match="name of its own"):
        tr.CWL(user=lambda gain, rank: gain)


def test_many_queries_are_taken_in_pieces():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 20, (700, 30), generator=generator).double()
    target = torch.randint(0, 4, scores.shape, generator=generator)
    metric = tr.CWL(user="inst", max_grade=3)
    parts = [metric.score(*pair) for pair in zip(scores.split(50), target.split(50))]
    torch.testing.assert_close(metric.score(scores, target), torch.cat(parts), rtol=1e-12, atol=0)


def test_the_users_of_cwl_eval():
    ruler = pytest.importorskip("cwl.ruler.cwl_ruler")
    pairs = [
        (tr.CWL(top_k=7, user="precision", max_grade=3), ruler.PrecisionCWLMetric(7)),
        (tr.CWL(user="rbp", p=0.9, max_grade=3), ruler.RBPCWLMetric(0.9)),
        (tr.CWL(user="rr", max_grade=3), ruler.RRCWLMetric()),
        (tr.CWL(user="ap", max_grade=3), ruler.APCWLMetric()),
        (tr.CWL(top_k=6, user="sdcg", max_grade=3), ruler.NDCGCWLMetric(6)),
        (tr.CWL(user="insq", target=2.5, max_grade=3), ruler.INSQCWLMetric(2.5)),
        (tr.CWL(user="inst", target=2, max_grade=3), ruler.INSTCWLMetric(2)),
        (tr.CWL(top_k=8, user="bpm", target=2.1, max_grade=3), ruler.BPMCWLMetric(2.1, 8)),
        # whose budget of costs stays as it is for any hc
        (
            tr.CWL(top_k=8, user="bpm", target=2.1, benefit=0.6, middle=0.4, max_grade=3),
            ruler.BPMDCWLMetric(2.1, 8, hb=0.6, hc=1, gain_med=0.4),
        ),
        (tr.CWL(top_k=6, user="nerr8", max_grade=3), ruler.NERReq8CWLMetric(6)),
        (tr.CWL(top_k=6, user="nerr9", max_grade=3), ruler.NERReq9CWLMetric(6)),
        (tr.CWL(user="nerr10", p=0.9, max_grade=3), ruler.NERReq10CWLMetric(0.9)),
        (tr.CWL(user="nerr11", target=1.5, max_grade=3), ruler.NERReq11CWLMetric(1.5)),
        (tr.RBP(p=0.7, max_grade=3), ruler.RBPCWLMetric(0.7)),
    ]
    rng = random.Random(1)
    for _ in range(10):
        grades = [rng.choice((0, 0, 1, 2, 3)) for _ in range(rng.randint(1, 40))] + [1]
        for ours, theirs in pairs:
            ranking = ruler.Ranking("q", [grade / 3 for grade in grades], [1.0] * len(grades))
            assert of(ours, *grades) == pytest.approx(theirs.measure(ranking), abs=1e-12), theirs.name()
            if isinstance(ours, tr.CWL):
                # Their total leaves out users who would go on from the last rank.
                left = theirs.w_vector(ranking)[-1] * theirs.expected_items * theirs.c_vector(ranking)[-1]
                total = theirs.expected_total_utility + left * sum(grades) / 3
                assert of(reporting(ours, "total_utility"), *grades) == pytest.approx(total, rel=1e-9), theirs.name()
                depth = of(reporting(ours, "depth"), *grades)
                assert depth == pytest.approx(theirs.expected_items, rel=1e-9), theirs.name()


def reporting(metric, number):
    names = ("user", "p", "target", "benefit", "cost", "middle", "relevance_level", "max_grade")
    return tr.CWL(metric.top_k, of=number, **{name: getattr(metric, name) for name in names})


def test_parameters_that_a_user_does_not_have_change_nothing():
    of_user = {"rbp": ["p"], "nerr10": ["p"], "bpm": ["target", "benefit", "cost", "middle"]}
    of_user |= {key: ["target"] for key in ("insq", "inst", "nerr11")}
    scores, grades = torch.rand(20, 6), torch.randint(0, 2, (20, 6))
    for user in USERS:
        usual = tr.CWL(top_k=3, user=user).score(scores, grades)
        others = {"p": 0.3, "target": 2, "benefit": 0.5, "cost": 1, "middle": 0.2}
        others = {name: value for name, value in others.items() if name not in of_user.get(user, [])}
        assert torch.equal(tr.CWL(top_k=3, user=user, **others).score(scores, grades), usual), user
    assert [tr.CWL(top_k=3, user="bpm", cost=cost).ranks for cost in (0, 1)] == [3, 1000]


def test_each_number_of_a_user_has_its_range_and_direction():
    metric = tr.CWL(of="depth")
    assert (metric.label, metric.higher_is_better, metric.value_range) == ("cwl(of=depth)", None, (1.0, math.inf))
    total = tr.CWL(of="total_utility")
    assert (total.higher_is_better, total.value_range) == (True, (0.0, math.inf))
    with pytest.raises(ValueError, match="total_utility can fall"):
        tr.CWL(of="total_utility", user="inst", unjudged="upper")


@pytest.mark.parametrize("p", [0.5, 0.95])
def test_the_rank_biased_precision_of_ranx(p):
    ranx = pytest.importorskip("ranx")
    rng = random.Random(3)
    qrels = {f"q{i:02}": {f"d{j}": rng.choice((1, 2, 3)) for j in rng.sample(range(50), 12)} for i in range(20)}
    run = {query: {f"d{j}": rng.random() for j in rng.sample(range(50), 30)} for query in qrels}
    ranking = tr.Ranking.from_run(qrels, run)
    want = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), f"rbp.{round(100 * p)}", return_mean=False)
    got = 3 * tr.RBP(p=p, max_grade=3).score(ranking)  # whose gains are the grades
    torch.testing.assert_close(got, torch.as_tensor(want, dtype=torch.float64), rtol=1e-9, atol=1e-12)
