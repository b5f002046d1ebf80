"""Parts of formulas that several measures or wrappers share, against enumeration."""

import itertools
import math
import random
from fractions import Fraction
from statistics import mean

import pytest
import torch

import torchrank as tr
from tests.support import layout_cases
from tests.support.cases import cases
from torchrank.formulas import cascades, judgment_bounds
from torchrank.formulas.cascades import _order, best_first
from torchrank.formulas.random_ranking import SERIES
from torchrank.metrics import user_models
from torchrank.metrics.user_models import Tail
from torchrank.wrappers import sampled_ranks


def greedy(worth, fading, weights, top_k):
    """The gains of the greedy order of one query: worth by subtopic and candidate."""
    left, free, gains = [1.0] * len(worth), set(range(len(worth[0]))), []
    for _ in range(min(top_k, len(free))):
        gain = {c: sum(w * l * x[c] for w, l, x in zip(weights, left, worth)) for c in free}
        best = max(gain.values())
        chosen = max((c for c in free if gain[c] >= best * (1 - 1e-12)), key=lambda c: [x[c] for x in worth])
        gains.append(gain[chosen])
        left = [l * (1 - fading * x[chosen]) for l, x in zip(left, worth)]
        free.remove(chosen)
    return gains + [0.0] * (min(top_k, len(worth[0])) - len(gains))


@cases("binary", [True, False])
@cases("weighted", [True, False])
@cases(("subtopics", "top_k"), [(1, None), (1, 2), (3, None), (3, 2), (3, 9), (31, 3), (33, 3)])
def test_the_greedy_order_takes_the_largest_weighted_gain_at_each_rank(subtopics, top_k, weighted, binary):
    draw = random.Random(subtopics)
    value = (lambda: draw.choice([0, 0, 1])) if binary else (lambda: draw.choice([0, 0.5, 0.25, 1]))
    worth = [[[value(), 0, *(value() for _ in range(3))] for _ in range(subtopics)] for _ in range(20)]
    weights = [[draw.choice([0.5, 0.25, 0.125]) for _ in range(subtopics)] for _ in worth]
    tensors = torch.tensor(worth, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)
    found = best_first(tensors[0], 0.5, top_k, tensors[1] if weighted else None)
    for row, its_worth, its_weights in zip(found.tolist(), worth, weights, strict=True):
        want = greedy(its_worth, 0.5, its_weights if weighted else [1] * subtopics, 5 if top_k is None else top_k)
        assert row == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("values", [2, 3])
def test_candidates_of_the_same_gain_are_in_the_order_of_their_worth_by_subtopic(values):
    worth = torch.randint(0, values, (20, 3, 9), generator=torch.Generator().manual_seed(0)).double()
    for row, order in zip(worth.mT.tolist(), _order(worth).tolist(), strict=True):
        assert [row[c] for c in order] == sorted(row, reverse=True)


@pytest.mark.parametrize("name", ["err", "rbp", "err@3"])
def test_cascades_in_many_blocks_have_the_values_of_one(monkeypatch, name):
    queries, batch = layout_cases.batch("dense_masked", 20)
    want = tr.parse(name).score(*batch.args, **batch.kwargs)
    for block in (1, 4, 40, 200, 1000):
        monkeypatch.setattr(cascades, "BLOCK", block)
        suite = tr.RankingCollection([name, "err@2", "err@5"])
        torch.testing.assert_close(suite.score(*batch.args, **batch.kwargs)[name], want, rtol=1e-12, atol=1e-15)
    assert len(queries) == len(want)


def test_a_block_that_is_too_small_for_all_ranks_serves_no_other_cutoff(monkeypatch):
    scores, grades = (
        torch.tensor([[1, 1, 0.5, 0.5, 0.5], [1, 1, 1, 1, 0]]),
        torch.tensor([[1, 0, 2, 0, 1], [0, 2, 1, 1, 1]]),
    )
    ks = [5, 4, 1, 2, 3]
    want = tr.RankingCollection([f"err@{k}" for k in ks]).score(scores, grades)
    monkeypatch.setattr(cascades, "BLOCK", 7)  # less than the two queries x 4 ranks
    for order in (ks, ks[::-1]):
        got = tr.RankingCollection([f"err@{k}" for k in order]).score(scores, grades)
        for k in ks:
            torch.testing.assert_close(got[f"err@{k}"], want[f"err@{k}"], rtol=1e-13, atol=0)
            torch.testing.assert_close(tr.ERR(top_k=k).score(scores, grades), want[f"err@{k}"], rtol=1e-13, atol=0)


@pytest.mark.parametrize("replacement", [False, True])
def test_chances_of_sampled_ranks_do_not_depend_on_their_chunks(monkeypatch, replacement):
    ((rows, want),) = sampled_ranks.chances(3, 9, replacement)
    assert (rows, want.shape) == (slice(0, 10), (10, 4))
    for block in (1, 4, 8, 12, 20, 36):
        monkeypatch.setattr(sampled_ranks, "BLOCK", block)
        parts = list(sampled_ranks.chances(3, 9, replacement))
        assert [rows.start for rows, _ in parts] == list(range(0, 10, max(1, block // 4)))
        assert torch.equal(torch.cat([part for _, part in parts]), want)


def test_the_series_of_the_digamma_function_is_that_of_the_bernoulli_numbers():
    bernoulli = [Fraction(1)]
    for n in range(1, 2 * len(SERIES) + 1):
        bernoulli.append(-sum(math.comb(n + 1, k) * bernoulli[k] for k in range(n)) / (n + 1))
    terms = range(2, len(bernoulli), 2)
    assert list(SERIES) == [float((Fraction(2) ** (1 - n) - 1) * -bernoulli[n] / n) for n in terms]


def test_bounds_over_judgments_take_lists_up_to_a_largest_length_where_every_rank_matters(monkeypatch):
    monkeypatch.setattr(judgment_bounds, "LONGEST", 6)
    scores, grades = torch.rand(3, 7), torch.full((3, 7), -1)
    metric = tr.MAP(unjudged="lower")
    assert metric.score(scores[:, :6], grades[:, :6]).shape == (3,)
    with pytest.raises(ValueError, match=r"Expected lists of at most 6 candidates for map.*, got 7; pass"):
        metric.score(scores, grades)
    assert tr.MAP(top_k=2, unjudged="lower").score(scores, grades).shape == (3,)
    want = metric.score(scores[:, :6], grades[:, :6])
    monkeypatch.setattr(judgment_bounds, "MOST_ELEMENTS", 1)  # one choice at a time
    assert torch.equal(metric.score(scores[:, :6], grades[:, :6]), want)


@cases("dtype", [torch.int8, torch.int16, torch.int64])
@cases("level", [1, 127, 127.5, 128, 200])
def test_bounds_hold_for_levels_that_the_grades_dtype_cannot_hold(dtype, level):
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    grades = torch.tensor([[-1, 0, 127, -1]], dtype=dtype)
    unjudged = [0, 3]
    values = []
    for some in itertools.product([0, 1], repeat=2):
        judged = [0, 0, 127, 0]
        for at, one in zip(unjudged, some):
            judged[at] = math.ceil(level) * one
        flags = [grade >= level for grade in judged]
        found = [mean(flags[: rank + 1]) for rank, one in enumerate(flags) if one]
        values.append(mean(found) if found else 0)
    for side, best in (("lower", min), ("upper", max)):
        metric = tr.MAP(relevance_level=level, unjudged=side)
        assert metric.score(scores, grades).item() == pytest.approx(best(values), rel=1e-12)


@pytest.mark.parametrize("p", [1e-6, 0.5, 0.9, 0.999_9])
def test_the_weight_of_a_common_candidate_is_the_series_from_its_depth_on(p, monkeypatch):
    depths = [1, 1.5, 2, 7, 39.2, 40, 1e9]  # a fraction counts as the next integer
    terms = [p ** (d - 1) / d for d in range(1, 400_000 if p > 0.99 else 1000)]
    wanted = [math.fsum(terms[min(math.ceil(depth), 10**6) - 1 :]) for depth in depths]
    for block in (2**19, 16):  # a table of all ranks, or of those that occur
        monkeypatch.setattr(user_models, "BLOCK", block)
        for some in (depths, depths[:-1], depths[:1], []):
            found = Tail(p)(torch.tensor(some, dtype=torch.float64)).tolist()
            assert found == pytest.approx(wanted[: len(some)], rel=1e-9, abs=1e-15)


def test_an_unknown_gain_or_an_empty_table_of_gains_is_refused():
    with pytest.raises(ValueError, match=r"gain to be one of .*, got 'exponental'; did you mean 'exponential'"):
        tr.NDCG(gain="exponental")
    with pytest.raises(ValueError, match=r"Expected a table of gains by grade, e\.g\. .*, got an empty one"):
        tr.NDCG(gain={})
