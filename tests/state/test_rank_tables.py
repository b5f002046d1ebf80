"""Metrics that are looked up by the rank of one relevant candidate have the values that their formulas give."""

from functools import cache

import pytest
import torch
from torch.testing import assert_close

import torchrank as tr
from tests.support.oracle_comparison import MANY
from torchrank.hardware import devices
from torchrank.layouts.arrange import arrange
from torchrank.state import scoring, sums

INF = float("inf")


@cache
def metrics():
    """Metrics of all classes that can be looked up, without a cutoff and with different ones."""
    found = []
    for number, config in enumerate(MANY):
        cls, parameters = tr.RankingMetric.registry[config.name], dict(config.parameters)
        if "of_one_rank" not in vars(cls):
            continue
        if "top_k" in parameters or parameters.get("normalize") != "k":  # which needs a cutoff
            found.append(cls(**parameters))
        if "top_k" not in parameters and cls.takes_top_k:
            found.append(cls(top_k=2 + number % 5, **parameters))
    return found


@cache
def looked_up():
    return [metric for metric in metrics() if metric.rank_decides]


def labels(ties: bool, candidates: int = 9, queries: int = 150):
    """Scores [query, candidate] and labels: at every rank, not retrieved, none, and of no query."""
    generator = torch.Generator().manual_seed(candidates)
    scores = torch.randn(queries, candidates, generator=generator)
    scores = scores.round() if ties else scores
    label = torch.randint(-1, candidates, (queries,), generator=generator)
    label[::50] = -100
    scores[torch.arange(0, queries, 7), label[::7].clamp_min(0)] = -INF
    scores[1] = -INF
    return scores, label


@pytest.fixture
def computed(monkeypatch):
    """The values of a suite for a batch, computed by the formulas."""

    def values(suite, *batch):
        with monkeypatch.context() as patch:
            patch.setattr(scoring, "looked_up", lambda metrics, ranking: [])
            return suite.score(*batch)

    return values


def test_every_class_that_can_be_looked_up_is():
    classes = {type(metric) for metric in metrics() if "of_one_rank" in vars(type(metric))}
    assert classes == {type(metric) for metric in looked_up()}
    assert {metric.ties for metric in looked_up()} == {"expected", "optimistic", "pessimistic"}
    assert {metric.empty_target_action for metric in looked_up()} == {"neg", "pos", "skip"}


@pytest.mark.parametrize(("candidates", "ties"), [(1, False), (2, True), (9, False), (9, True), (40, True)])
def test_values_are_those_of_the_formulas(monkeypatch, computed, ties, candidates):
    read = []
    table = scoring._read
    monkeypatch.setattr(scoring, "_read", lambda metrics, *given: read.append(metrics) or table(metrics, *given))
    suite = tr.RankingCollection({f"m{place}": metric for place, metric in enumerate(looked_up())})
    batch = labels(ties, candidates)
    values, wanted = suite.score(*batch), computed(suite, *batch)
    assert sum(map(len, read)) == len(looked_up())
    for key, value in values.items():
        message = f"{suite[key].label} is looked up with another value than it has"
        torch.testing.assert_close(value, wanted[key], rtol=1e-14, atol=1e-15, equal_nan=True, msg=message)


def test_a_metric_alone_has_the_bits_that_it_has_in_a_suite():
    batch = labels(ties=True)
    suite = tr.RankingCollection(["ndcg@3", "mrr@7", "map@50", "hitrate@1"])
    for key, value in suite.score(*batch).items():
        assert torch.equal(value.nan_to_num(-1), tr.parse(key).score(*batch).nan_to_num(-1))
        assert torch.equal(value.nan_to_num(-1), tr.parse(key).score(tr.Ranking.from_label(*batch)).nan_to_num(-1))


@pytest.mark.parametrize("weights", [None, "whole", "random"])
@pytest.mark.parametrize("queries", [1, 3, 150])
@pytest.mark.parametrize("direct", [0, sums.DIRECT])
def test_a_metric_alone_has_the_state_that_it_has_in_a_suite(monkeypatch, queries, weights, direct):
    monkeypatch.setattr(sums, "DIRECT", direct)
    scores, label = labels(ties=True, queries=150)
    weight = {None: None, "whole": label.abs() % 3, "random": torch.rand(150, dtype=torch.float64)}[weights]
    batch = scores[-queries:], label[-queries:], None if weight is None else weight[-queries:]
    # Some have weights of their own, some are not looked up, and some have infinite values.
    names = [
        "ndcg@3",
        "mrr",
        "mr",
        "hitrate(ties=realistic)@2",
        "mr(aggregation=harmonic)",
        "mr(filtered=True,average=positive)",
    ]
    suite = tr.RankingCollection(names)
    suite.update(*batch[:2], weights=batch[2])
    for key, metric in suite.items():
        alone = tr.parse(key)
        alone.update(*batch[:2], weights=batch[2])
        assert torch.equal(alone.sums.view(torch.int64), metric.sums.view(torch.int64)), key


def test_only_labels_are_looked_up(monkeypatch):
    """Lists of one item are not: the digits of a query would depend on the longest list of its batch."""
    asked = []
    table = scoring._read
    monkeypatch.setattr(scoring, "_read", lambda *given: asked.append(1) or table(*given))
    scores, metric = torch.rand(3, 5), tr.DCG(top_k=3)
    lists, pairs = [torch.tensor([1]), torch.tensor([4]), torch.tensor([2])], (torch.arange(3), torch.tensor([1, 4, 2]))
    others = [metric.score(scores, lists), metric.score(scores, pairs)]
    others.append(metric.score(scores, (*pairs, torch.tensor([1, 1, 1]))))
    assert not asked
    ids = scores.argsort(-1, descending=True)
    for value in metric.score(scores, pairs[1]), metric.score(ids, pairs[1]):
        torch.testing.assert_close(torch.stack(others), value.expand(3, -1), rtol=1e-14, atol=0)
    assert len(asked) == 2


def test_a_class_with_another_formula_is_not_looked_up():
    class PerCandidate(tr.MRR):
        name = "percandidate"

        def measure(self, ranking):
            return super().measure(ranking) / ranking.num_candidates.clamp_min(1)

    scores, label = labels(ties=True)
    retrieved = (scores > -INF).sum(-1).clamp_min(1)
    want = tr.MRR(top_k=4).score(scores, label) / retrieved
    torch.testing.assert_close(PerCandidate(top_k=4).score(scores, label), want, equal_nan=True)


@pytest.mark.parametrize("action", ["neg", "pos", "skip", "error", "listed"])
@pytest.mark.parametrize("scores", [[[0.9, 0.1]], [[0.5, 0.5, 0.5]]], ids=["no ties", "ties"])
def test_a_label_below_the_level_leaves_its_query_empty(action, scores):
    scores, label = torch.tensor(scores), torch.tensor([1])
    grades = torch.zeros(scores.shape, dtype=torch.int64).scatter(1, label[:, None], 1)
    for cls in {type(metric) for metric in metrics() if hasattr(metric, "relevance_level")}:
        for cut in [{"top_k": 1}, {}] if cls.takes_top_k else [{}]:
            metric = cls(**cut, relevance_level=2, empty_target_action=action)
            if action == "error":
                with pytest.raises(ValueError, match="empty_target_action='error'"):
                    metric.score(scores, label)
            else:
                assert_close(metric.score(scores, label), metric.score(scores, grades), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("names", [["ndcg@3", "mrr@2"], ["ndcg@3", "mrr(unjudged=lower)@2"]])
def test_labels_in_chunks_and_beside_metrics_of_all_candidates(monkeypatch, assume, computed, names):
    suite, batch, read = tr.RankingCollection(names), labels(ties=True), []
    table = scoring._read
    wanted = computed(suite, *batch)
    assume(block=99)
    monkeypatch.setattr(
        scoring,
        "_read",
        lambda metrics, ranking, reach: read.append(ranking.num_queries) or table(metrics, ranking, reach),
    )
    for key, value in suite.score(*batch).items():
        torch.testing.assert_close(value, wanted[key], rtol=1e-14, atol=1e-15, equal_nan=True)
    # Entries for all candidates are not labels.
    assert sum(read) == (len(batch[1]) if "mrr@2" in names else 0)
    assert len(read) != 1
    # Threads take parts of the layout.
    assert arrange(*batch).judged[slice(2, 5)].labels


def test_a_class_with_values_behind_the_cutoff_is_refused():
    class Worst(tr.MRR):
        name = "worst"

        def of_one_rank(self):
            return True

        def measure(self, ranking):
            return super().measure(ranking) + 0.5

    with pytest.raises(ValueError, match=r"Expected worst@4 to be 0 .* behind top_k, got 0.5; let of_one_rank"):
        Worst(top_k=4).score(*labels(ties=True))


def test_a_class_without_a_number_for_a_rank_is_refused():
    class Undefined(tr.MRR):
        name = "undefined"

        def of_one_rank(self):
            return True

        def measure(self, ranking):
            return torch.where(ranking.first[:, 0] == 2, float("nan"), super().measure(ranking))

    with pytest.raises(
        ValueError, match=r"Expected a number from undefined@4 for every rank, got NaN; let of_one_rank"
    ):
        Undefined(top_k=4).score(*labels(ties=False))


@pytest.mark.parametrize(("room", "looked_up"), [(16 * 3, ["mrr", "ndcg", "hitrate@2"]), (16 * 3 - 1, ["hitrate@2"])])
def test_a_table_without_room_for_all_ranks_serves_metrics_with_a_cutoff(monkeypatch, computed, room, looked_up):
    suite, batch, read = tr.RankingCollection(["mrr", "hitrate@2", "ndcg"]), labels(ties=True), []
    table, wanted = scoring._read, computed(suite, *batch)
    monkeypatch.setattr(scoring, "ROOM", room)
    monkeypatch.setattr(
        scoring, "_read", lambda metrics, *given: read.extend(x.label for x in metrics) or table(metrics, *given)
    )
    for key, value in suite.score(*batch).items():
        torch.testing.assert_close(value, wanted[key], rtol=1e-14, atol=1e-15, equal_nan=True)
    assert sorted(read) == sorted(looked_up)


def test_digits_far_down_a_list_are_those_of_the_formula(computed):
    scores = torch.zeros(2000, 3000).index_fill_(1, torch.arange(1500), 1.0)
    scores[:, 1000:1002] = 0.5
    label = torch.arange(2000) % 3000
    suite = tr.RankingCollection(["mrr", "map", "ndcg", "mr", "mrr@1000"])
    wanted = computed(suite, scores, label)
    for key, value in suite.score(scores, label).items():
        torch.testing.assert_close(value, wanted[key], rtol=1e-14, atol=0)


def test_functions_of_the_user_and_long_cutoffs_are_not_looked_up():
    assert tr.NDCG(top_k=scoring.LONGEST).rank_decides
    others = [
        tr.NDCG(top_k=scoring.LONGEST + 1),
        tr.Precision(),
        tr.NDCG(top_k=3, gain={1: 2}),
        tr.DCG(top_k=3, discount=torch.rsqrt),
        tr.MAP(top_k=3, gain={1: 2}),
        tr.MRR(top_k=3, adjusted="index"),
        tr.Precision(top_k=3, adaptive_k=True),
        tr.HitRate(top_k=3, ties="realistic"),
        tr.Recall(top_k=3, unjudged="condensed"),
    ]
    assert not any(metric.rank_decides for metric in others)


def test_a_table_is_made_once(monkeypatch):
    made = []
    monkeypatch.setattr(devices, "_tensors", {})
    monkeypatch.setattr(scoring.Table, "of", lambda *args, make=scoring.Table.of: made.append(1) or make(*args))
    for _ in range(3):
        tr.RankingCollection(["ndcg@3", "mrr@7"]).score(*labels(ties=True))
    assert len(made) == 1
    tr.RankingCollection(["ndcg(gain=exponential)@3", "mrr@7"]).score(*labels(ties=True))
    assert len(made) == 2


@pytest.mark.parametrize("candidates", [5, 9])
def test_a_label_with_score_nan_is_not_retrieved(candidates):
    scores = torch.arange(float(candidates)).expand(3, -1).clone()
    scores[0, 2] = scores[1, 0] = float("nan")
    scores[1, 1] = -INF
    label = torch.tensor([2, 0, candidates - 1])
    rank = tr.MR(validate_args=False).score(scores, label)
    assert rank.tolist() == [candidates, candidates - 1, 1]  # behind the others that are retrieved
    assert tr.MRR(validate_args=False).score(scores, label).tolist() == [0, 0, 1]
    assert tr.Ranking.from_label(scores, label).errors.sum() == 2


def test_errors_are_counted():
    scores, label = labels(ties=False)
    scores[3, 2] = float("nan")
    with pytest.raises(ValueError, match="1 query with NaN"):
        tr.MRR(top_k=3).score(scores, label)
    metric = tr.MRR(top_k=3, validate_args=False)
    metric.update(scores, label)
    assert metric.compute().isfinite()
    with pytest.raises(ValueError, match=r"quer\w+ with nothing"):
        tr.Recall(top_k=3, empty_target_action="error").score(*labels(ties=True))
