"""Changes of the input that leave all values as they are, and values known without an oracle.

Where the code that is tested is the same for all measures, measures of every kind of need stand for all.
"""

import copy
import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

import torchrank as tr
from tests.support import layout_cases, oracles
from tests.support.oracle_comparison import MANY, REPRESENTATIVES, scored
from tests.support.oracles import discounts, hypergeometric, precisions

MEASURES = sorted(name for name, cls in tr.RankingMetric.registry.items() if cls.__module__.startswith("torchrank."))
CONFIGS = {name: [config for config in MANY if config.name == name] for name in MEASURES}

# One that sums, one that skips, one with a weight of its own, and one that compares.
of_every_state = pytest.mark.parametrize("name", ["ndcg", "mr", "ips", "kendalltau"])
few = settings(max_examples=5)


def draw_of_every_need(data):
    """One metric of each measure that stands for all."""
    number = data.draw(st.integers(0, 99), label="number of the configurations")
    return [layout_cases.scoring(CONFIGS[name][number % len(CONFIGS[name])]) for name in REPRESENTATIVES]


def draw_dense(data, **kwargs):
    """Scores and grades; candidates not retrieved, and padding, are -inf."""
    queries = data.draw(layout_cases.queries(**kwargs), label="queries")
    return layout_cases.dense_padded(queries, random.Random(data.draw(st.integers(0, 9)))).args


def assert_all_same(got, want, where="", rtol=1e-11):
    """The same values by label."""
    assert got.keys() == want.keys()
    for label, values in got.items():
        said = lambda text, label=label: f"{label} {where}: {text}"  # noqa: E731
        torch.testing.assert_close(values, want[label], rtol=rtol, atol=1e-12, equal_nan=True, msg=said)


def without_name(metrics):
    """Those to which candidates without a name, which are unjudged, are as irrelevant as others."""
    return [metric for metric in metrics if metric.required.relevant]


def assert_same_mean(got, want):
    torch.testing.assert_close(got, want, rtol=2e-7, atol=1e-9, equal_nan=True)


# ---- changes that keep the values ----------------------------------------------------------------

TRANSFORMS = {
    "exponential": lambda x: x.exp(),
    "all negative": lambda x: x - 1000,
    "tiny": lambda x: x * 1e-300,
    "huge": lambda x: x * 1e305,
    "hair's breadth": lambda x: 1 + x * 2.0**-50,
    "cubic": lambda x: x**3,
    "up to infinity": lambda x: torch.where(x == 2, math.inf, x.atan()),
}


@few
@given(data=st.data())
def test_a_strictly_increasing_transform_of_the_scores_changes_nothing(data):
    metrics = draw_of_every_need(data)
    preds, target = draw_dense(data)
    preds = preds.double()
    transform = TRANSFORMS[data.draw(st.sampled_from(sorted(TRANSFORMS)))]
    moved = torch.where(preds.isinf(), preds, transform(preds))
    levels = preds[preds.isfinite()].unique()
    assert (transform(levels).diff() > 0).all()
    want = scored(metrics, preds, target)
    assert_all_same(scored(metrics, moved, target), want)
    index = torch.arange(len(preds)).repeat_interleave(preds.shape[1])
    assert_all_same(scored(metrics, moved.flatten(), target.flatten(), indexes=index), want, "of rows")
    assert_all_same(of_triples(metrics, moved, target), want, "of triples")


def of_triples(metrics, preds, target):
    """Values of a target that names the relevant candidates, or for measures that read others too, all of them."""
    found = {}
    for all_named in (False, True):
        named = tuple(((target > 0) | all_named).nonzero().T)
        some_metrics = [metric for metric in metrics if metric.required.relevant != all_named]
        found.update(scored(some_metrics, preds, (*named, target[named])))
    return {metric.label: found[metric.label] for metric in metrics}


def parsed(label):
    try:
        return tr.parse(label)
    except ValueError:  # measures without a cutoff, or only with one
        return None


LABELS = [label for name in MEASURES for label in (name, f"{name}@5") if parsed(label) is not None]
# In long tie groups these may round by the longest group of the batch.
ROUNDED_BY_THE_BATCH = {"compat", "err", "nerr", "alphadcg", "alphandcg", "erria", "nerria", "nrbp", "nnrbp"}


def test_a_query_has_the_same_digits_beside_any_neighbours():
    # Ties, ties at the cutoff, and grades beyond the levels, each in some queries only.
    generator = torch.Generator().manual_seed(7)
    preds, target = torch.rand((8, 24), generator=generator), torch.randint(4, (8, 24), generator=generator)
    preds[1::2] = (preds[1::2] * 5).round()
    target[::4, 3] = 11
    metrics = [parsed(label) for label in LABELS]
    together = scored(metrics, preds, target)
    alone = [scored(metrics, preds[row : row + 1], target[row : row + 1]) for row in range(8)]
    for label, metric in zip(LABELS, metrics, strict=True):
        rows = slice(None, None, 2) if label.split("@")[0] in ROUNDED_BY_THE_BATCH else slice(None)
        got, want = together[metric.label][rows], torch.cat([values[metric.label] for values in alone])[rows]
        assert torch.equal(got.nan_to_num(nan=-9), want.nan_to_num(nan=-9)), label


def test_a_value_for_a_list_of_unknown_length_holds_for_every_length():
    metrics, inf = [parsed(label) for label in LABELS], math.inf
    ranks = tensor([[1, 3, 0], [2, inf, 0], [4, 5, inf], [inf, 0, 0], [1, 2, 3]])
    unknown, *lengths = [tr.Ranking.from_ranks(ranks, length) for length in (None, 10, 1000)]
    for metric in metrics:
        if not metric.required.all_candidates:
            found = metric.score(unknown)
            for known in lengths:
                want = torch.where(found.isnan(), found, metric.score(known))
                assert_all_same({metric.label: found}, {metric.label: want})


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("level", [128, 200, 256, 300, 65536])
def test_a_level_that_the_dtype_of_the_grades_cannot_hold(dtype, level):
    target = tensor([[1, 0, 100]]).to(dtype)
    preds = tensor([[3.0, 2.0, 1.0]])
    metric = tr.Recall(relevance_level=level, empty_target_action="skip")
    assert metric.score(preds, target).isnan().all()
    assert metric.score(preds.flatten(), target.flatten(), indexes=torch.zeros(3, dtype=torch.int64)).isnan().all()


def test_integer_tie_breaks_beyond_the_precision_of_float64():
    tie_break = 2**60 + torch.arange(4)
    target = tensor([[0, 1, 0, 0]])
    assert tr.MRR().score(torch.zeros(1, 4), target, tie_break=tie_break).item() == pytest.approx(1 / 3)
    assert tr.MRR().score(torch.zeros(1, 4), tensor([1]), tie_break=tie_break).item() == pytest.approx(1 / 3)


# ---- a scorer that knows nothing -----------------------------------------------------------------


BASELINES = {name: oracle.baseline for name, oracle in oracles.ORACLES.items() if oracle.baseline}


@pytest.mark.parametrize(("n", "r", "k"), [(9, 5, 1), (100, 40, 7), (1000, 3, 600)])
def test_a_constant_scorer_gets_the_random_baseline(n, r, k):
    target = torch.zeros(2, n, dtype=torch.int64)
    target[0, :r] = target[1, -r:] = 1
    metrics, want = [], {}
    for name in sorted(set(MEASURES) & set(BASELINES)):
        cls = tr.RankingMetric.registry[name]
        metric = cls(**({"beta": 2} if name == "fbeta" else {}), **({"top_k": k} if cls.takes_top_k else {}))
        metrics.append(metric)
        want[metric.label] = torch.full((2,), float(BASELINES[name](n, r, k)), dtype=torch.float64)
    scores = torch.full((2, n), -3.5)
    relevant = (target > 0).nonzero()
    assert_all_same(scored(metrics, scores, target), want, rtol=1e-10)
    for named in (tuple(relevant.T), list(relevant[:, 1].view(2, r))):
        found = scored(without_name(metrics), scores, named)
        assert_all_same(found, {label: want[label] for label in found}, "of named candidates", rtol=1e-10)


@pytest.mark.parametrize(("n", "r", "k"), [(8, 3, 4), (100, 40, 7), (300, 30, 300), (3000, 700, 60)])
def test_average_precision_by_hits_of_a_constant_scorer(n, r, k):
    target = torch.zeros(1, n, dtype=torch.int64)
    target[0, :r] = 1
    # Among the first k, h hits stand in random order.
    hits = range(max(1, k - (n - r)), min(r, k) + 1)
    want = math.fsum(hypergeometric(h, n, r, k) * precisions(k, h, k) / h for h in hits)
    got = tr.MAP(top_k=k, normalize="retrieved").score(torch.zeros(1, n), target)
    assert got.item() == pytest.approx(want, rel=1e-10)


def test_one_positive_in_a_catalogue_of_equal_scores():
    n = 200_000
    ranking = tr.Ranking.from_label(torch.zeros(1, n), tensor([77]))
    harmonic = math.fsum(1 / rank for rank in range(1, n + 1))
    assert tr.MRR().score(ranking).item() == pytest.approx(harmonic / n, rel=1e-11)
    first = math.fsum(1 / rank for rank in range(1, 11))
    assert tr.MRR(top_k=10).score(ranking).item() == pytest.approx(first / n, rel=1e-11)
    assert tr.NDCG().score(ranking).item() == pytest.approx(discounts(n) / n, rel=1e-11)
    assert tr.HitRate(top_k=10).score(ranking).item() == pytest.approx(10 / n, rel=1e-11)
    assert tr.MR().score(ranking).item() == (n + 1) / 2
    assert tr.AUROC().score(ranking).item() == pytest.approx(1 / 2, rel=1e-11)


# ---- the user's tensors --------------------------------------------------------------------------


def test_nothing_is_written_to_the_arguments_of_a_ranking():
    pos, neg, ranks = tensor([1.0, 2.0]), torch.zeros(2, 3), tensor([1.0, math.inf])
    queries, items, relevant = torch.ones(2, 3), torch.ones(4, 3), tensor([0, 1])
    exclude = (tensor([0, 0, 1]), tensor([2, 2, 1]))
    mine = [pos, neg, ranks, queries, items, relevant, *exclude]
    before = [(x._version, x.clone()) for x in mine]
    for ranking in (
        tr.Ranking.from_negatives(pos, neg),
        tr.Ranking.from_ranks(ranks, 3),
        tr.Ranking.from_embeddings(queries, items, relevant, exclude=exclude),
        tr.Ranking.from_embeddings(queries, items, relevant, exclude=exclude, similarity="cosine"),
    ):
        for name in REPRESENTATIVES:
            if not (metric := CONFIGS[name][0].metric()).required.all_candidates:
                metric.score(ranking)
    for x, (version, copied) in zip(mine, before):
        assert x._version == version
        assert torch.equal(x, copied)


def test_values_changed_by_the_user_leave_the_metric_as_it_is():
    metric, ranking = tr.MRR(), tr.Ranking.from_ranks(tensor([2, 4]))
    metric.score(ranking).fill_(9)
    metric.update(ranking)
    metric.compute().fill_(9)
    metric.update(ranking)
    assert metric.compute().item() == pytest.approx((1 / 2 + 1 / 4) / 2)


# ---- a state that is small and loses nothing -----------------------------------------------------


@of_every_state
def test_a_single_query_is_counted_among_billions(name):
    preds, target = tensor([[3.0, 1.0, 1.0, 0.0]]), tensor([[0, 1, 0, 2]])
    metric = CONFIGS[name][0].metric()
    metric.update(preds.repeat(3, 1), target.repeat(3, 1))
    once = metric.compute()
    for _ in range(30):
        metric.merge_state(copy.deepcopy(metric))
    for _ in range(20):
        metric.update(preds, target)
    assert metric.num_queries == 3 * 2**30 + 20
    assert_same_mean(metric.compute(), once)


def test_single_queries_count_beside_very_many():
    metric = tr.MRR()
    metric.update(tr.Ranking.from_ranks(tensor([1])), weights=tensor([1e9]))
    for _ in range(100):  # each of them is less than float32 can add to the sum
        metric.update(tr.Ranking.from_ranks(tensor([2])), weights=tensor([30.0]))
    want = (1e9 + 100 * 30 / 2) / (1e9 + 100 * 30)
    assert metric.compute().item() == tensor(want).item() != 1


# ---- ranks beyond any table ----------------------------------------------------------------------


def test_ranks_far_down_a_long_list_take_no_memory():
    # A table over ranks would take terabytes.
    ranking = tr.Ranking.from_ranks(tensor([1.0, 2e12], dtype=torch.float64), num_candidates=4 * 10**12)
    for metric, far in [(tr.MRR(), 1 / 2e12), (tr.HitRate(top_k=10), 0), (tr.NDCG(), 1 / math.log2(1 + 2e12))]:
        assert metric.score(ranking).tolist() == pytest.approx([1, far], rel=1e-9)
