"""An unknown keyword gets the argument that is meant, in other words of the field, too, and the call then works."""

import re
import warnings

import numpy
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pandas

SCORES, GRADES = torch.tensor([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]]), torch.tensor([[1, 0, 0], [0, 1, 0]])
PAIRS, ROWS, ROW_GRADES = (torch.tensor([0]), torch.tensor([2])), torch.tensor([0.3, 0.2, 0.1]), torch.tensor([1, 0, 0])
FRAME = {"user": [1, 1, 2], "item": [1, 2, 1], "score": [0.1, 0.2, 0.3], "label": [0, 1, 1]}
QRELS, RUN = {"q": {"a": 1}}, {"q": {"a": 1.0}}
SUITE = ["ndcg@2", "mrr"]


def tables():
    kept = tr.PerQuery(tr.RankingCollection(SUITE))
    kept.update(SCORES, GRADES, query_ids=[1, 2])
    return {"a": kept.compute(), "b": kept.compute()}


# the call, its keyword, the argument that is meant, and a value
HINTS = [
    *(
        (call, "exlude", "exclude", PAIRS)
        for call in (
            lambda **more: tr.NDCG(2).update(SCORES, GRADES, **more),
            lambda **more: tr.RankingCollection(SUITE).score(SCORES, GRADES, **more),
            lambda **more: tr.RankingCollection(SUITE)(SCORES, GRADES, **more),
            lambda **more: tr.Sliced(tr.RankingCollection(SUITE), ["a"]).update(SCORES, GRADES, slices=[0, 0], **more),
            lambda **more: tr.Coverage(2, num_items=9).update(GRADES + torch.arange(3), **more),
            lambda **more: tr.Ranking.from_scores(SCORES, GRADES, **more),
        )
    ),
    (lambda **more: tr.NDCG(2).score(ROWS, ROW_GRADES, **more), "query_id", "indexes", [0, 0, 1]),
    (lambda **more: tr.NDCG(2).score(ROWS, ROW_GRADES, **more), "qid", "indexes", [0, 0, 1]),
    (lambda **more: tr.NDCG(2).score(SCORES, **more), "y_true", "target", GRADES),
    (lambda **more: tr.NDCG(2).score(SCORES, GRADES, **more), "sample_weight", "weights", [1.0, 2.0]),
    (lambda **more: tr.PerQuery(tr.MRR()).update(SCORES, GRADES, **more), "query_id", "query_ids", [3, 4]),
    (lambda **more: tr.evaluate(FRAME, **more), "metrics", "measures", "mrr"),
    (lambda **more: tr.evaluate(FRAME, "mrr", **more), "query_id", "query", "user"),
    (lambda **more: tr.evaluate(FRAME | {"country": [1, 1, 2]}, "mrr", **more), "slices", "by", "country"),
    (lambda **more: tr.evaluate(QRELS, measures="mrr", **more), "predictions", "run", RUN),
    (lambda **more: tr.Ranking.from_table(FRAME, **more), "user_id", "query", "user"),
    (lambda **more: tr.compare(tables(), **more), "reference", "baseline", "a"),
    (lambda **more: tr.partial(QRELS, RUN, **more), "metrics", "measures", "mrr"),
    (lambda **more: tr.read_run(RUN, **more), "duplicate", "duplicates", "first"),
    *((tr.NDCG, word, "top_k", 10) for word in ("k", "at", "cutoff", "topk")),
    (tr.NDCG, "tie", "ties", "optimistic"),
    (tr.MAP, "threshold", "relevance_level", 2),
    (tr.Coverage, "n_items", "num_items", 5),
]


@cases(("call", "keyword", "meant", "value"), HINTS)
def test_the_argument_that_is_meant_is_named_and_works(call, keyword, meant, value):
    with pytest.raises((TypeError, ValueError), match=f"got '{keyword}'; did you mean '{meant}'") as raised:
        call(**{keyword: value})
    assert len(str(raised.value)) < 150
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of two equal systems
        call(**{meant: value})


ELSEWHERE = [
    (lambda: tr.evaluate(QRELS, RUN, "ndcg", k=10), "pass top_k to the measure, as NDCG"),
    (lambda: tr.RankingCollection(["ndcg"], k=10), "pass top_k to the measure, as NDCG"),
    (lambda: tr.NDCG().score(SCORES, GRADES, cutoff=10), "pass top_k to the measure, as NDCG"),
    (lambda: tr.evaluate(QRELS, RUN, "ndcg", gain="linear"), "pass gain to the measure, as .*gain='linear'"),
    (lambda: tr.evaluate(QRELS, RUN, "rbp", p=0.5), "pass p to the measure, as .*p=0.9"),
    (lambda: tr.RankingCollection(["map"], rel=2), r"pass relevance_level to the measure, as \w+\(relevance_level=1"),
    (lambda: tr.NDCG(ignore_index=-1), "pass mask= to update"),
    (lambda: tr.NDCG(exclude=PAIRS), "pass exclude= to update"),
]


@pytest.mark.parametrize(("call", "way"), ELSEWHERE)
def test_an_argument_of_another_call_is_sent_there(call, way):
    with pytest.raises((TypeError, ValueError), match=f"Expected an argument of .*; {way}") as raised:
        call()
    if "to the measure" in str(raised.value):
        made, name = re.search(r"as (\w+\(.*\)) or '(.*)'$", str(raised.value)).groups()
        assert eval(f"tr.{made}").label == tr.parse(name).label
        assert "gain" not in made or "gain" in way  # the example has the argument that was passed, and no other


def test_without_a_hint_all_arguments_are_listed():
    with pytest.raises(TypeError, match=r"score to have arguments preds, target, mask, .*weights, got 'xyzzy'"):
        tr.NDCG().score(SCORES, GRADES, xyzzy=1)


def test_other_errors_of_a_call_stay_as_they_are():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'preds'"):
        tr.NDCG().score(exclude=PAIRS)
    with pytest.raises(AttributeError, match="'dict' object has no attribute 'dim'"):
        tr.Ranking.from_ranks({}.dim)


CLASSES = [
    lambda: tr.NDCG.score(SCORES, GRADES),
    lambda: tr.NDCG.score(SCORES),
    lambda: tr.NDCG.score(preds=SCORES, target=GRADES),
    lambda: tr.NDCG(SCORES, GRADES),
    lambda: tr.NDCG(SCORES.numpy()),
    lambda: tr.MRR.score(SCORES, GRADES),
    lambda: tr.NDCG.update(SCORES, GRADES),
    lambda: tr.Coverage.update(preds=SCORES, target=GRADES),
]


@pytest.mark.parametrize("call", CLASSES)
def test_a_class_that_is_called_as_a_function_gets_the_call_that_works(call):
    with pytest.raises(TypeError, match=r"; write NDCG\(top_k=10\)|; write MRR\(top_k=10\)") as raised:
        call()
    way = str(raised.value).partition("; write ")[2].replace(".update", "")  # update returns nothing
    assert eval(f"tr.{way}", {"tr": tr, "preds": SCORES, "target": GRADES}).ndim <= 1


def test_a_percentile_that_is_not_there_does_not_lead_to_another_one():
    with pytest.raises(ValueError, match=r"got 'p50'; did you mean 'median'\?$"):
        tr.NDCG(aggregation="p50")


def test_two_series_are_sent_to_one_frame():
    frame = pandas.DataFrame(FRAME)
    for call in (
        lambda: tr.evaluate(frame["label"], frame["score"]),
        lambda: tr.evaluate(frame["label"], frame["score"], "ndcg@10"),
        lambda: tr.evaluate(frame["label"].to_numpy(), frame["score"].to_numpy()),
    ):
        with pytest.raises(ValueError, match=r"as tr.evaluate\(frame, 'ndcg@10'\)"):
            call()
    assert tr.evaluate(frame, "ndcg@10").means["run"]["ndcg@10"] == pytest.approx(1.0)


def test_a_key_without_its_cutoff_leads_to_the_metric():
    with pytest.raises(KeyError, match="got 'ndcg'; did you mean 'ndcg@2'"):
        tr.RankingCollection(SUITE)["ndcg"]


def test_queries_in_text_get_the_call_that_numbers_them():
    queries = numpy.array(["a", "a", "b"])
    with pytest.raises(TypeError, match=r"pass numpy\.unique\(indexes, return_inverse=True\)\[1\]") as raised:
        tr.MRR().score(ROWS, ROW_GRADES, indexes=queries)
    numbers = eval(str(raised.value).rpartition("pass ")[2], {"numpy": numpy, "indexes": queries})
    assert tr.MRR().score(ROWS, ROW_GRADES, indexes=numbers).tolist() == [1, 0]
