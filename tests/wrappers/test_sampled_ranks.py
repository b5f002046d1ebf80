"""Sampled negatives: exact expectations over their draw, and estimates of the whole catalogue from one draw."""

import itertools
import math
import pickle
import warnings

import pytest
import torch
import torchmetrics

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import stats
from torchrank.ranking.ranking import chances_above
from torchrank.wrappers import sampled_ranks
from torchrank.wrappers.sampled_ranks import bias_variance, chances, likeliest

NAN = float("nan")
INF = float("inf")


def close(got, wanted, within=1e-12):
    torch.testing.assert_close(got, torch.as_tensor(wanted, dtype=got.dtype), rtol=0, atol=within, equal_nan=True)


def table(m, n, replacement):
    """P[a, x], by scipy; without replacement by factorials, because scipy takes seconds."""
    x, a = torch.arange(m + 1, dtype=torch.float64), torch.arange(n + 1, dtype=torch.float64).unsqueeze(-1)
    if replacement:
        return torch.as_tensor(stats.binom.pmf(x, m, a / n))

    def log_choose(n, k):
        return torch.where((k < 0) | (k > n), -INF, (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma())

    return (log_choose(a, x) + log_choose(n - a, m - x) - log_choose(a[-1:], x[-1:])).exp()


# ---- probabilities ---------------------------------------------------------------------------------------------------


@cases("replacement", [False, True])
@cases(("m", "n"), [(1, 1), (3, 7), (7, 7), (20, 300)])
def test_chances_are_hypergeometric_or_binomial(m, n, replacement):
    m += 2 * replacement
    a, x = torch.arange(n + 1, dtype=torch.float64), range(m + 1)
    each = a.unsqueeze(-1).numpy()
    wanted = stats.binom.pmf(x, m, each / n) if replacement else stats.hypergeom.pmf(x, n, each, m)
    close(chances_above(a, torch.full_like(a, n), m, replacement), wanted)


def test_chances_for_a_million_items_keep_ten_digits():
    m, n = 100, 1_000_000
    above = [0, 1, 500, 500_000, n]
    exact = [[math.comb(a, x) * math.comb(n - a, m - x) / math.comb(n, m) for x in range(m + 1)] for a in above]
    a = torch.tensor(above, dtype=torch.float64)
    found, exact = chances_above(a, torch.full_like(a, n), m, False), torch.tensor(exact, dtype=torch.float64)
    torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-300)


def test_many_ranks_are_computed_in_chunks():
    m, n = 1000, 3000  # more than a chunk of ranks
    ranking = tr.Ranking.from_ranks(torch.arange(n + 1, 0, -1), num_candidates=n + 1).sampled(m)
    wanted = stats.hypergeom.cdf(9, n, range(n, -1, -1), m)
    close(tr.HitRate(top_k=10).score(ranking), wanted, 1e-10)


# ---- the expectation over the draw -----------------------------------------------------------------------------------

SCORES = [0.9, 0.5, 0.5, 0.7, 0.5, 0.1, 0.7]
MEASURES = "hitrate@2 mrr mrr@2 ndcg@3 mr auroc map dcg@2 fallout@2 precision@3 err"


def draws(positive, m, replacement):
    """Every list of negatives that can be sampled beside a positive."""
    negatives = [score for n, score in enumerate(SCORES) if n != positive]
    lists = itertools.product(negatives, repeat=m) if replacement else itertools.combinations(negatives, m)
    return torch.tensor(list(lists))


@cases("replacement", [False, True])
@cases("ties", ["expected", "optimistic", "pessimistic"])
def test_a_sampled_ranking_has_the_mean_over_all_draws(ties, replacement):
    """The mean of each measure over every list that can be sampled, as ``from_negatives`` ranks it."""
    suite, number = tr.RankingCollection([tr.parse(name, ties=ties) for name in MEASURES.split()]), len(SCORES)
    full = tr.Ranking.from_label(torch.tensor([SCORES]).expand(number, -1), torch.arange(number))  # each is relevant
    for m in (1, 3):
        drawn = [draws(positive, m, replacement) for positive in range(number)]
        positives = torch.tensor(SCORES).repeat_interleave(len(drawn[0]))
        every = suite.score(tr.Ranking.from_negatives(positives, torch.cat(drawn)))
        for key, value in suite.score(full.sampled(m, replacement=replacement)).items():
            close(value, every[key].view(number, -1).mean(-1))


def test_queries_without_a_retrieved_positive_keep_their_policy():
    scores = torch.tensor([[0.1, 0.9, 0.5], [0.1, 0.9, 0.5], [-INF, 0.9, 0.5], [0.1, 0.9, 0.5]])
    sampled = tr.Ranking.from_label(scores, torch.tensor([2, -1, 0, -100])).sampled(2)
    close(tr.MRR().score(sampled), [0.5, 0, 0, NAN])
    close(tr.MRR(empty_target_action="skip").score(sampled), [0.5, NAN, 0, NAN])
    close(tr.MR().score(sampled), [2, NAN, 3, NAN])
    metric = tr.MR()
    metric.update(sampled)
    assert metric.compute() == 2.5
    assert (metric.num_queries, metric.num_empty) == (3, 1)
    strict = tr.MRR(empty_target_action="error")
    strict.update(sampled)
    with pytest.raises(ValueError, match="1 query with nothing to measure"):
        strict.compute()


def test_the_grade_of_relevant_candidates_counts():
    scores, grades = torch.tensor([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]]), torch.tensor([[0, 3, 0], [0, 3, 0]])
    ranking = tr.Ranking.from_scores(scores, grades).sampled(1)
    close(tr.DCG(gain="exponential").score(ranking), [7 * (0.5 + 0.5 / math.log2(3))] * 2)
    close(tr.HitRate(top_k=1, relevance_level=3).score(ranking), [0.5, 0.5])
    close(tr.HitRate(top_k=1, relevance_level=4).score(ranking), [0.0, 0.0])


def test_each_of_several_positives_is_a_query_of_its_own():
    scores, target = torch.tensor([[0.9, 0.8, 0.7, 0.1]]), torch.tensor([[1, 0, 1, 0]])
    ranking = tr.Ranking.from_scores(scores, target)
    with pytest.raises(ValueError, match=r"one relevant candidate .* got 2 relevant .* query 0; .*each_positive"):
        ranking.sampled(1)
    each = tr.Ranking.from_label(torch.tensor([[0.9, 0.8, 0.1], [0.7, 0.8, 0.1]]), torch.tensor([0, 0]))
    found = tr.MRR(empty_target_action="skip").score(ranking.each_positive(1).sampled(1))
    close(found[~found.isnan()], tr.MRR().score(each.sampled(1)))


def test_copies_stand_for_the_draw():
    ranking = tr.Ranking.from_ranks(torch.tensor([1, 40, 7]), num_candidates=100).sampled(10)
    values = tr.MRR().score(ranking)
    close(tr.MRR().score(ranking.take(torch.tensor([2, 0]))), values[[2, 0]])
    joined = tr.Ranking.join([ranking, ranking])
    close(tr.MRR().score(joined), torch.cat([values, values]))
    close(tr.MRR().score(joined.take(torch.tensor([1, 5]))), values[[1, 2]])
    close(tr.MRR().score(pickle.loads(pickle.dumps(ranking))), values)
    assert "num_negatives=10" in repr(ranking)


FULL, ONE_ITEM = (tr.Ranking.from_ranks(torch.tensor([rank]), num_candidates=n) for rank, n in ((3, 10), (1, 1)))
GRADED = tr.Ranking.from_scores(torch.rand(2, 3), torch.tensor([[1, 0, 0], [0, 2, 0]]))
CUT = tr.Ranking.from_embeddings(torch.rand(1, 2), torch.rand(5, 2), torch.tensor([1]), top_k=2)


@cases(
    ("call", "message"),
    [
        (lambda: FULL.sampled(0), "num_negatives to be an integer >= 1, got 0"),
        (lambda: FULL.sampled(0.5), "num_negatives to be an integer"),
        (lambda: FULL.sampled(2, replacement="yes"), "replacement to be one of True, False"),
        (lambda: FULL.sampled(10), "10 negatives or more in each query, got 1 relevant and 9 other"),
        (lambda: ONE_ITEM.sampled(2, replacement=True), "1 negatives or more"),
        (lambda: tr.Ranking.from_ranks(torch.tensor([3])).sampled(2), "lists of known length"),
        (lambda: tr.Ranking.from_ranks(torch.tensor([1.5]), 10).sampled(2), "a whole rank"),
        (lambda: GRADED.sampled(1), "relevant candidates of one grade, got 1, 2"),
        (lambda: CUT.sampled(1), "make it without top_k"),
        (lambda: tr.MRR(ties="realistic").score(FULL.sampled(2)), "for sampled negatives, got 'realistic'"),
        (lambda: tr.Bpref().score(FULL.sampled(2)), "measure of relevant candidates .*got bpref"),
        (lambda: tr.MRR(unjudged="condensed").score(FULL.sampled(2)), "measure of relevant candidates"),
    ],
)
def test_draws_that_do_not_exist_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- ranks among sampled negatives -----------------------------------------------------------------------------------


def batch(queries=6):
    """Scores with ties, the label of the relevant column; the second query has none, the third is ignored."""
    scores, label = torch.randint(0, 4, (queries, 6)).float(), torch.randint(0, 6, (queries,))
    label[1], label[2] = -1, -100
    return scores, label


def counted(scores, label, weights=None):
    """The histogram, query by query."""
    bins = [0.0] * scores.shape[1]
    for n, (row, at) in enumerate(zip(scores.tolist(), label.tolist())):
        if at < 0:
            continue
        above, ties = sum(s > row[at] for s in row), sum(s == row[at] for s in row)
        for x in range(above, above + ties):
            bins[x] += (1.0 if weights is None else float(weights[n])) / ties
    return bins


def make(**kwargs):
    return tr.SampledRanks(**{"num_negatives": 5, "num_items": 40, **kwargs})


def test_the_histogram_counts_sampled_ranks_and_spreads_ties():
    scores, label = batch(50)
    weights = torch.rand(50, generator=torch.Generator().manual_seed(1))
    for given in (None, weights):
        metric, bins = make(), counted(scores, label, given)
        metric.update(scores, label, weights=given)
        close(metric.histogram, bins)
        x = sum(n * count for n, count in enumerate(bins)) / sum(bins)
        found = {key: value.item() for key, value in metric.compute().items()}
        assert found == pytest.approx({"mr": 1 + 40 * x / 5, "auroc": 1 - x / 5}, rel=1e-6)


def test_several_positives_with_the_same_negatives_are_queries_of_their_own():
    positives, negatives = torch.tensor([[0.9, 0.3]]), torch.tensor([[0.8, 0.5, 0.1, 0.2, 0.0]])
    ranking, metric = tr.Ranking.from_negatives(positives, negatives), make()
    metric.update(ranking)
    with pytest.raises(ValueError, match=r"one relevant candidate and 5 negatives .*each_positive"):
        metric.compute()
    metric.reset()
    metric.update(ranking.each_positive(1))
    close(metric.histogram, [1, 0, 1, 0, 0, 0])
    close(metric.estimate("mr"), 1 + 40 * 1 / 5)


@cases("replacement", [False, True])
@cases("positive", range(len(SCORES)))
def test_mean_rank_and_auc_are_unbiased_over_all_draws(positive, replacement):
    drawn, metric = draws(positive, 3, replacement), make(num_negatives=3, num_items=6, replacement=replacement)
    metric.update(tr.Ranking.from_negatives(torch.full((len(drawn),), SCORES[positive]), drawn))
    full = tr.Ranking.from_label(torch.tensor([SCORES]), torch.tensor([positive]))
    close(metric.estimate("mr"), float(tr.MR().score(full)))
    close(metric.estimate(tr.AUROC()), float(tr.AUROC().score(full)))


def test_a_full_ranking_gives_the_expected_histogram():
    full, metric = tr.Ranking.from_ranks(torch.tensor([1, 9, 30]), num_candidates=41), make()
    metric.update(full.sampled(5))
    close(metric.histogram, table(5, 40, False)[[0, 8, 29]].sum(0))


def test_metrics_of_other_catalogues_never_merge():
    scores, label = batch()
    found = torchmetrics.MetricCollection({"a": make(), "b": make(num_items=400)})
    found.update(scores, label)
    found.update(scores, label)
    assert len(found.compute_groups) == 2
    assert tr.parse(make(replacement=True).label).label == "sampledranks(num_negatives=5,num_items=40,replacement=True)"
    suite = tr.RankingCollection([make(), "mrr"])
    suite.update(scores, label)
    assert set(suite.compute()) == {f"{make().label}_mr", f"{make().label}_auroc", "mrr"}


def test_score_is_the_auc_of_each_query():
    scores, label = batch(20)
    close(make().score(scores, label), tr.AUROC().score(scores, label).tolist())
    metric, auroc = make(), tr.AUROC()
    for one in (metric, auroc):
        one.update(scores, label)
    assert metric.standard_error == auroc.standard_error


def test_wrong_batches_are_refused():
    scores, label = batch()
    with pytest.raises(ValueError, match=r"preds to have 6 columns, .* got 5; pass num_negatives=4"):
        make().update(scores[:, 1:], label.clamp_max(4))
    for wrong in (torch.cat([scores, scores[:, :1]], 1), scores.index_fill(1, torch.tensor([0]), -INF)):
        metric = make()
        assert all(value.isnan() for value in metric(wrong, label.clamp_min(1)).values())
        raises_everywhere(metric, "5 negatives in each query, got others")
    metric = make()
    metric.update(torch.full((1, 6), NAN), torch.tensor([0]))
    raises_everywhere(metric, "1 query with NaN")
    metric.reset()
    metric.update(scores, label)
    assert metric.compute()["auroc"].isfinite()


def raises_everywhere(metric, message):
    for call in (metric.compute, lambda: metric.estimate("mr"), metric.rank_distribution):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_relevant_candidate_that_is_not_retrieved_comes_after_all_negatives():
    metric = make(num_negatives=3)
    metric.update(torch.tensor([[-INF, 0.1, 0.2, 0.3], [0.2, 0.1, 0.2, 0.3]]), torch.tensor([0, 0]))
    assert metric.histogram.tolist() == [0, 0.5, 0.5, 1]


@cases(
    ("kwargs", "message"),
    [
        ({"sampling": "popularity"}, r"'uniform', got 'popularity': .*popularity does not determine"),
        ({"num_negatives": 41}, r"at most num_items=40, got 41; pass replacement=True"),
        ({"num_negatives": 0}, "num_negatives to be an integer >= 1"),
        ({"ties": "realistic"}, "ties to be one of"),
        ({"aggregation": "median"}, "aggregation to be one of 'mean'"),
        ({"empty_target_action": "neg"}, "empty_target_action to be one of 'skip', 'error'"),
    ],
)
def test_arguments_without_meaning_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        make(**kwargs)
    assert make(num_negatives=40).num_negatives == 40


# ---- estimates -------------------------------------------------------------------------------------------------------

N = 2000
RANKS = torch.arange(1, N + 2, dtype=torch.float64)
#: distributions of the rank
TRUTHS = {
    "1 / (r + 29)": 1 / (RANKS + 29),
    "1 / r": 1 / RANKS,
    "lognormal": torch.exp(-((RANKS.log() - 4) ** 2) / 2) / RANKS,
    "two ranks": 0.2 * (RANKS == 1) + 0.8 * (RANKS == 1001),
}
HIT = (RANKS <= 10).double()


def filled(truth, m, queries=50_000, seed=0, **kwargs):
    """A metric whose queries have ranks of a distribution and a draw of negatives each, and the exact hit rate."""
    generator = torch.Generator().manual_seed(seed)
    p = (TRUTHS[truth] / TRUTHS[truth].sum()).double()
    x = torch.multinomial(p @ table(m, N, False), queries, True, generator=generator)
    metric = tr.SampledRanks(num_negatives=m, num_items=N, **kwargs)
    # Each rank once, with the number of its queries as weight.
    metric.update(tr.Ranking.from_ranks(torch.arange(1, m + 2), m + 1), weights=x.bincount(minlength=m + 1))
    return metric, float(p @ HIT)


@pytest.mark.filterwarnings("error")
@cases("truth", TRUTHS)
def test_a_tenth_of_the_items_gives_the_hit_rate_by_maximum_likelihood(truth):
    metric, exact = filled(truth, N // 10)
    assert float(metric.estimate("hitrate@10")) == pytest.approx(exact, rel=0.25, abs=0.01)


def test_the_likelihood_rises_to_that_of_the_truth():
    p = TRUTHS["1 / (r + 29)"] / TRUTHS["1 / (r + 29)"].sum()
    P = table(200, N, False)
    metric, _ = filled("1 / (r + 29)", 200)
    q = metric.rank_distribution()
    assert float(q.sum()) == pytest.approx(1)
    assert q.shape == (N + 1,)
    assert (q >= 0).all()
    assert float(metric.histogram @ (q @ P).log()) >= float(metric.histogram @ (p @ P).log())


@cases("replacement", [False, True])
@cases("gamma", [0.01, 0.3, 1.0])
def test_bias_variance_minimises_its_objective(gamma, replacement):
    """Squared bias plus gamma times the variance, by their definitions; any other estimator has more."""
    generator = torch.Generator().manual_seed(0)
    m, n = 4, 30
    P, f = table(m, n, replacement), (torch.arange(n + 1) < 5).double()
    p = torch.rand(n + 1, generator=generator, dtype=torch.float64)
    p = p / p.sum()

    def objective(e):
        mean = (P * e).sum(1)
        variance = (P * (e - mean.unsqueeze(1)) ** 2).sum(1)
        return float((p * ((mean - f) ** 2 + gamma * variance)).sum())

    best = bias_variance(f, m, replacement, gamma, p)
    least = objective(best)
    for _ in range(20):
        assert objective(best + 0.01 * torch.randn(m + 1, generator=generator, dtype=torch.float64)) > least


def test_bias_variance_with_the_true_prior_and_gamma_1_is_unbiased():
    p = TRUTHS["1 / r"] / TRUTHS["1 / r"].sum()
    e = bias_variance(HIT, 20, False, 1.0, p)
    assert float(p @ table(20, N, False) @ e) == pytest.approx(float(p @ HIT), abs=1e-10)


@pytest.mark.filterwarnings("error")
@cases("items", [2000, 100_000])
def test_estimates_of_linear_measures_are_exact_by_any_method(items):
    metric = make(num_negatives=20, num_items=items)
    metric.update(torch.arange(21.0).expand(2, -1), torch.tensor([20, 17]))  # at ranks 1 and 4
    for method in ("em", "bv")[: 1 if items > N else 2]:
        close(metric.estimate("mr", method), 1 + items * 1.5 / 20, 1e-9)
        close(metric.estimate("auroc", method), 1 - 1.5 / 20)


def test_buckets_of_ranks_do_not_change_chances():
    parts = torch.cat([part for _, part in chances(20, N, True)])
    close(parts, table(20, N, True), 1e-11)
    for exact in (0, 7, 150):  # beyond 100, buckets have several ranks
        share = parts[exact]
        q = likeliest(share, N, True)
        assert float((q @ parts - share).abs().max()) < 0.02


def test_estimates_from_few_negatives_warn_once():
    sampled_ranks._warn_once.cache_clear()
    metric, _ = filled("1 / r", 20, queries=100)
    with pytest.warns(UserWarning, match=r"200 sampled negatives or more, a tenth of the items, got 20") as found:
        metric.estimate("hitrate@10")
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metric.estimate("mrr")
    with pytest.warns(UserWarning, match="several times too large"):
        metric.estimate("mrr", "bv")


@pytest.mark.filterwarnings("ignore")
@cases(
    ("measure", "options", "message"),
    [
        ("mrr", {"method": "cls"}, "method to be one of 'em', 'bv'"),
        ("mrr", {"gamma": 0}, "gamma to be a number > 0"),
        ("mrr", {"gamma": 1.5}, "gamma to be a number .* got 1.5"),
        ("mrr", {"prior": torch.ones(3)}, r"shape \[41\]"),
        ("mrr", {"prior": torch.full((41,), -1.0)}, "weights >= 0"),
        ("mrr", {"prior": torch.arange(-1.0, 40)}, "weights >= 0"),
        ("bpref", {}, "measure of relevant candidates, got bpref"),
        (tr.MRR(aggregation="median"), {}, "mean of a measure"),
        (torchmetrics.MeanMetric(), {}, "got MeanMetric"),
    ],
)
def test_wrong_estimates_are_refused(measure, options, message):
    metric = make()
    metric.update(*batch())
    with pytest.raises((ValueError, TypeError), match=message):
        metric.estimate(measure, **{"method": "bv", **options})


def test_the_prior_of_a_rank_can_be_0_and_its_scale_does_not_matter():
    metric, prior = make(num_negatives=5, num_items=40), torch.zeros(41)
    metric.update(torch.tensor([[0.2, 0.1, 0.2, 0.3, 0.4, 0.5]] * 3), torch.tensor([0, 4, 5]))
    prior[:4] = torch.tensor([0.4, 0.3, 0.2, 0.1])
    one, other = (metric.estimate("hitrate@3", "bv", prior=prior * scale) for scale in (0.1, 50))
    assert one.item() == pytest.approx(other.item())
    assert one.item() != pytest.approx(metric.estimate("hitrate@3", "bv").item())
