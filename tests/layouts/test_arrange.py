"""Arguments that seem to mean something else than they are read as: a warning says so, and none is given for others."""

import warnings

import pytest
import torch
from torch import tensor

import torchrank as tr
from tests.support.cases import cases
from torchrank import retrieval


def warned(call):
    """The warnings of a call; all of them name this file, where the call is."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert all(one.filename == __file__ for one in found)
    return [str(one.message) for one in found]


def random(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def integers(low, high, *shape, dtype=torch.int64, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


METRICS = {"metric": lambda: tr.MRR(), "collection": lambda: tr.RankingCollection("mrr, ndcg")}


@pytest.mark.parametrize("make", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("call", ["update", "forward", "score"])
def test_integer_scores_that_cannot_be_ids_are_noticed(make, call):
    similar = integers(0, 100_000, 16, 16)  # of a batch with itself
    (message,) = warned(lambda: getattr(make(), call)(similar, torch.arange(16)))
    assert "no label is in its list" in message
    assert message.endswith("if they are scores, pass preds.float()")
    (message,) = warned(lambda: getattr(make(), call)(integers(-128, 127, 2, 6, dtype=torch.int8), tensor([1, 2])))
    assert "two different negative numbers" in message


def test_ranked_ids_are_never_taken_for_scores():
    scores = random(50, 50)
    every = scores.argsort(descending=True)
    metric = tr.MRR()
    assert not warned(lambda: metric.update(every, torch.arange(50)))  # of a catalogue of 50
    assert not warned(lambda: metric.update(every[:, :10], torch.arange(50)))
    assert not warned(lambda: metric.update(tensor([[10, 70, 50, 20]]), tensor([1])))  # one query can miss
    assert not warned(lambda: metric.update(tensor([[10, -1], [4, -100], [-1, -1]]), tensor([3, 4, 5])))
    masked = tensor([[10, -9], [4, -8], [3, -7]])
    assert not warned(lambda: metric.update(masked, tensor([10, 4, 3]), mask=masked >= 0))
    large = integers(0, 100_000, 16, 16)
    assert not warned(lambda: tr.Ranking.from_ids(large, torch.arange(16)))  # says that it has ids


@pytest.mark.parametrize("flat", [False, True])
def test_exchanged_scores_and_labels_are_noticed(flat):
    scores = random(8, 10).log()
    labels = (random(8, 10, seed=1) > 0.7).float()
    options = {"indexes": torch.arange(8).repeat_interleave(10)} if flat else {}
    shape = (-1,) if flat else (8, 10)
    scores, labels = scores.reshape(shape), labels.reshape(shape)
    (message,) = warned(lambda: tr.NDCG().update(labels, scores, **options))
    assert message.endswith("exchange preds and target")
    (tied,) = warned(lambda: tr.NDCG().update(labels, scores.mul(4).round() / 4, **options))  # as of few trees
    assert tied == message
    assert not warned(lambda: tr.NDCG().update(scores, labels, **options))
    assert not warned(lambda: tr.NDCG().update(scores.round(), labels / 2, **options))
    assert not warned(lambda: tr.NDCG().update(torch.zeros_like(scores), labels / 2, **options))  # a constant scorer
    assert not warned(lambda: tr.NDCG().update(scores, scores.exp(), **options))


@pytest.mark.parametrize(("numbers", "exchanged"), [([0, 1, 0, 1], False), ([0, 1, 0, 1, 1], True), ([1] * 9, False)])
def test_whole_numbers_are_labels_if_each_stands_more_than_twice_on_average(numbers, exchanged):
    labels = tensor([numbers]).float()
    assert bool(warned(lambda: tr.NDCG().update(labels, random(*labels.shape)))) == exchanged


LENGTHS = tensor([3, 7, 10, 5])
PADDING = torch.arange(10) >= LENGTHS.unsqueeze(-1)


def test_negative_grades_that_pad_lists_are_noticed():
    scores = random(4, 10).masked_fill(PADDING, 0.4)
    grades = integers(0, 3, 4, 10).masked_fill(PADDING, -1)
    (message,) = warned(lambda: tr.NDCG().update(scores, grades))
    assert message.endswith("if they are padding, pass mask=target >= 0")
    assert not warned(lambda: tr.NDCG().update(scores, grades, mask=grades >= 0))


def test_unjudged_candidates_are_never_taken_for_padding():
    grades = integers(0, 3, 4, 10)
    scores = random(4, 10)
    behind = grades.masked_fill(PADDING, -1)
    assert not warned(lambda: tr.NDCG().update(scores, behind))  # the judged candidates are given first
    assert not warned(lambda: tr.NDCG().update(scores.masked_fill(PADDING, -torch.inf), behind))  # not retrieved
    some = scores.masked_fill(PADDING, 0.4)
    some[0] = some[0].masked_fill(PADDING[0], -torch.inf)
    assert not warned(lambda: tr.NDCG().update(some, behind))  # those of one list are not retrieved
    last = torch.zeros(4, 10, dtype=torch.bool)
    last[::2, -1] = True
    assert not warned(lambda: tr.NDCG().update(scores, grades.masked_fill(last, -1)))  # one score is equal to itself
    assert not warned(lambda: tr.NDCG().update(scores * 0, grades.masked_fill(scores > 0.5, -1)))
    alike = behind.masked_fill(torch.arange(10) > 2, -1)  # of one length
    assert not warned(lambda: tr.NDCG().update(scores * 0, alike))


def test_padded_ids_as_wide_as_the_catalogue_are_noticed():
    ids = tensor([[3, 1, -1, -1, -1], [0, -1, -1, -1, -1], [4, 2, 0, -1, -1]])
    scores = random(3, 5)
    (message,) = warned(lambda: tr.MRR().update(scores, ids))
    assert message.endswith("if they are ids, pass list(target)")
    assert not warned(lambda: tr.MRR().update(scores, list(ids)))
    graded = tensor([[0, 0, -1, -1, -1], [4, -1, -1, -1, -1], [4, 2, 0, -1, -1]])
    assert not warned(lambda: tr.MRR().update(scores, graded))  # no list of ids has 0 twice


def test_pairs_that_a_loader_made_a_list_are_noticed():
    scores, pairs = random(2, 9), [tensor([0, 1]), tensor([5, 7])]
    (message,) = warned(lambda: tr.MRR().update(scores, pairs))
    assert message.endswith("pass tuple(target)")
    (message,) = warned(lambda: tr.MRR().update(scores, tensor([1, 2]), exclude=pairs))
    assert message.endswith("pass tuple(exclude)")
    triples = [tensor([0, 1, 2]), tensor([5, 7, 8]), tensor([1, 3, 2])]
    (message,) = warned(lambda: tr.NDCG().update(random(3, 9), triples))
    assert message.endswith("pass tuple(target)")
    for ids in ([tensor([1, 0]), tensor([5, 7])], [tensor([0, 2]), tensor([5, 7])], [tensor([0, 1]), tensor([5])]):
        assert not warned(lambda: tr.MRR().update(scores, ids))  # noqa: B023
    # Positives before negatives are columns, the same for both queries.
    assert not warned(lambda: tr.Ranking.from_negatives(random(2, 2), random(2, 5)))


SUITES = {
    "metric": lambda: tr.MAP(),
    "kept values": lambda: tr.MAP(aggregation="median"),
    "collection": lambda: tr.RankingCollection("map, mrr"),
}


def added(metric, indexes, call="update"):
    """Add flat rows of some queries."""
    getattr(metric, call)(random(len(indexes)), torch.ones(len(indexes)), indexes=tensor(indexes))


@cases("suite", SUITES)
@cases("call", ["update", "forward"])
def test_a_query_that_is_cut_between_two_updates_is_noticed(suite, call):
    metric = SUITES[suite]()
    added(metric, [0, 0, 1], call)
    (message,) = warned(lambda: added(metric, [1, 1, 2], call))
    assert "torchrank.retrieval" in message
    assert not warned(lambda: added(metric, [3, 4], call))
    metric.reset()
    assert not warned(lambda: added(metric, [4, 5], call))


def test_queries_that_each_batch_numbers_by_itself_are_never_taken_for_cut_ones():
    metric = tr.MAP()
    for indexes in ([0, 0, 1], [0, 1], [0], [0, 0], [0, 1, 1], [1, 0, 1], [1, 0], [1, 0, 2]):
        assert not warned(lambda: added(metric, indexes))  # noqa: B023
    for indexes in ([7, 7, 8], [9, 9], [10], [11, 12]):
        assert not warned(lambda: metric.score(random(len(indexes)), torch.ones(len(indexes)), indexes=tensor(indexes)))  # noqa: B023
        assert not warned(lambda: added(metric, indexes))  # noqa: B023


def test_rows_of_cut_queries_are_joined_by_the_classes_that_the_warning_names():
    pieces = [([0.9, 0.2, 0.8], [0, 1, 0], [0, 0, 1]), ([0.7, 0.6], [0, 1], [1, 1])]
    joined = tr.RankingCollection({"map": retrieval.RetrievalMAP()})
    for preds, target, indexes in pieces:
        assert not warned(lambda: joined.update(tensor(preds), tensor(target), indexes=tensor(indexes)))  # noqa: B023
    assert joined.compute()["map"].item() == pytest.approx((1 / 2 + 1 / 3) / 2)


#: grades of an LLM, all below 1; with one that is 1; and whole numbers
LOW = tensor([[0.7, 0, 0.2, 0], [0.9, 0.3, 0, 0]])
SOME, WHOLE = LOW.round(), LOW.long()
NO_GRADE = "No grade reaches relevance_level=1, so no query has a relevant candidate"


def computed(metric, *batches):
    """The warnings of updates and compute about grades with fractions."""

    def run():
        for grades in batches:
            metric.update(random(2, 4), grades)
        metric.compute()

    return [message for message in warned(run) if "relevance_level" in message]


@cases("name", ["mrr", "recall@2", "map", "hitrate@1", "recall@50%", "rbp", "mrr(empty_target_action=skip)"])
def test_grades_between_0_and_the_level_alone_are_noticed_in_the_end(name):
    metric = tr.parse(name)
    (message,) = computed(metric, LOW, LOW * 0)
    assert message.startswith(NO_GRADE)
    assert message.endswith("pass relevance_level=, the lowest grade that is relevant")
    assert not computed(metric, SOME)  # one query has a relevant candidate, before or after
    assert not computed(metric, LOW)
    metric.reset()
    assert not computed(metric, WHOLE * 0, LOW * 0)
    (message,) = warned(lambda: tr.parse(name).score(random(2, 4), LOW))
    assert message.startswith(NO_GRADE)
    assert not warned(lambda: tr.parse(name).score(random(2, 4), SOME))
    assert not computed(tr.parse(name, relevance_level=0.6), LOW)
    assert not computed(tr.parse(name, relevance_level=2), SOME, WHOLE + 1)  # whole numbers, of which none is relevant


@pytest.mark.parametrize("call", ["update", "score"])
def test_a_collection_notices_grades_between_0_and_the_level_of_some_of_its_members(call):
    suite = tr.RankingCollection(["ndcg", "mrr", "map(relevance_level=0.5)"])
    found = computed(suite, LOW) if call == "update" else warned(lambda: suite.score(random(2, 4), LOW))
    assert len(found) == 1  # of MRR alone
    assert not computed(tr.RankingCollection("ndcg dcg err"), LOW)
    assert warned(lambda: tr.RankingCollection("mrr").update(random(2, 4), LOW)) == []  # other batches may have others


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_grades_between_0_and_the_level_are_noticed_in_any_layout(dtype):
    scores, low, metric = random(2, 4), LOW.to(dtype), tr.MRR()
    pairs = (tensor([0, 1]), tensor([2, 3]), tensor([0.3, 0.9], dtype=dtype))
    for call in (
        lambda: metric.score(scores, low),
        lambda: metric.score(scores.flatten(), low.flatten(), group_sizes=[4, 4]),
        lambda: metric.score(scores, pairs),
        lambda: metric.score(scores.argsort(-1), pairs),
        lambda: metric.score(tr.Ranking.from_scores(scores, low)),
        lambda: metric.score(tr.Ranking.from_run({"q": {"a": 0.7}}, {"q": {"a": 1.0}})),
    ):
        assert [message for message in warned(call) if message.startswith(NO_GRADE)]
    assert not warned(lambda: metric.score(scores, low, mask=low < 0.1))  # they are padding


def test_grades_between_0_and_the_level_alone_are_noticed_in_judgments():
    run = {"q": {"a": 0.5}, "r": {"b": 0.5}}
    (message,) = warned(lambda: tr.evaluate({"q": {"a": 0.7}, "r": {"b": 0.2}}, run, "mrr ndcg@10 recall@5"))
    assert "No grade is relevant to mrr, recall@5, because the largest is 0.7; pass relevance_level=" in message
    for grade, level in ((0.7, 0.5), (1, None), (0, None)):
        qrels = {"q": {"a": grade}, "r": {"b": 0.2 * grade}}
        assert not warned(lambda: tr.evaluate(qrels, run, "mrr ndcg@10", relevance_level=level))  # noqa: B023
    assert not warned(lambda: tr.evaluate({"q": {"a": 1}, "r": {"b": 0}}, run, "mrr", relevance_level=2))


def test_copies_and_merged_metrics_notice_the_grades_that_they_were_given():
    metric, merged = tr.MRR(), tr.MRR()
    metric.update(random(2, 4), LOW)
    assert not warned(lambda: metric.score(random(1, 4), torch.zeros(1, 4)))  # of other grades
    merged.merge_state(metric)
    for each in (metric.clone(), merged, metric):
        assert [message for message in warned(each.compute) if message.startswith(NO_GRADE)]
