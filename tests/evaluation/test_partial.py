"""Evaluations of parts of a run, which add up to the evaluation of the whole run to the bit."""

import math
import pickle
import random
import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import torchrank as tr
from tests.support.optional import pandas
from torchrank import merge, partial
from torchrank.evaluation.evaluate import Evaluator, Options, metrics_by_key
from torchrank.evaluation.partial import _absent
from torchrank.tables import joining

MEASURES = "ndcg ndcg(gain=exponential)@10 map mrr recall@100 err(max_grade=3) rbp(p=0.8) map(aggregation=geometric) mr"


def made(seed=0, queries=60, documents=80, missing=5):
    """Judgments, some of whose queries have nothing relevant, and a run that lacks some and has others."""
    draw = random.Random(seed)
    qrels = {
        f"q{q}": {
            f"d{d}": draw.choice([0, 0, 1, 2, 3]) for d in draw.sample(range(documents), draw.choice([1, 2, 7, 30]))
        }
        for q in range(queries)
    }
    run = {
        f"q{q}": {f"d{d}": round(draw.random(), 2) for d in draw.sample(range(documents), draw.choice([3, 20, 60]))}
        for q in range(missing, queries + 2)
    }
    return qrels, run


QRELS, RUN = made()
JUDGMENTS = tr.read_qrels([(q, d, grade) for q, grades in QRELS.items() for d, grade in grades.items()])


def split(run, parts):
    """The queries of a run by the number of their part."""
    found = {}
    for (query, scores), part in zip(run.items(), parts, strict=True):
        found.setdefault(part, {})[query] = scores
    return list(found.values())


def bits(found):
    """All numbers of an evaluation; NaN equals itself."""
    return repr([found.means, found.intervals(), found.summary().to_dict(), found.coverage.to_dict()])


@cache
def evaluated(queries):
    return tr.evaluate(JUDGMENTS, RUN, MEASURES, queries=queries)


WHOLE = {queries: partial(JUDGMENTS, RUN, MEASURES, queries=queries) for queries in ("judged", "both")}


FEW = "ndcg map err(max_grade=3) map(aggregation=geometric)"
ONE = partial(JUDGMENTS, RUN, FEW)


@settings(max_examples=8)
@given(st.lists(st.integers(0, 4), min_size=len(RUN), max_size=len(RUN)), st.randoms(use_true_random=False))
def test_any_partition_merged_in_any_order_is_one_process_to_the_bit(parts, draw):
    states = [partial(JUDGMENTS, part, FEW) for part in split(RUN, parts)]
    while len(states) > 1:  # merges of merges
        states.append(merge([states.pop(draw.randrange(len(states))), states.pop()]))
    assert bits(states[0]) == bits(ONE)


@pytest.mark.parametrize(("queries", "count"), [("judged", 1), ("judged", 8), ("both", 3)])
def test_means_intervals_and_coverage_are_those_of_evaluate(queries, count):
    found = evaluated(queries)
    parts = split(RUN, [number % count for number in range(len(RUN))])
    merged = merge(partial(JUDGMENTS, part, MEASURES, queries=queries) for part in parts)
    assert merged.means == found.means["run"]
    assert bits(merged) == bits(WHOLE[queries])
    assert merged.summary().rows == [{k: v for k, v in row.items() if k != "run"} for row in found.summary().rows]
    (ours,), (theirs,) = merged.coverage.rows, found.coverage.rows
    assert ours == {k: pytest.approx(v, abs=1e-12) for k, v in theirs.items() if k != "run"}
    assert (ours["judged"], ours["missing"], ours["not in the judgments"]) == (60, 5, 2)


@pytest.mark.parametrize("queries", ["judged", "both"])
def test_means_are_those_of_plain_python(queries):
    values = []
    for query, grades in QRELS.items():
        if query in RUN:
            order = sorted(RUN[query], key=lambda d: (RUN[query][d], d), reverse=True)
            ranks = [rank for rank, d in enumerate(order, 1) if grades.get(d, 0) >= 1]
            values.append(1 / ranks[0] if ranks else 0.0)
        elif queries == "judged":
            values.append(0.0)
    merged = merge(
        partial(QRELS, part, "mrr", queries=queries) for part in split(RUN, [n % 4 for n in range(len(RUN))])
    )
    assert merged.num_queries == len(values) == (60 if queries == "judged" else 55)
    assert merged.means["mrr"] == pytest.approx(math.fsum(values) / len(values), abs=1e-15)
    half = merged.intervals()["mrr"].high - merged.means["mrr"]
    assert merged.estimates()["mrr"].standard_error == pytest.approx(np.std(values, ddof=1) / len(values) ** 0.5)
    assert half / merged.estimates()["mrr"].standard_error == pytest.approx(2.0, abs=0.01)  # Student's t, 54 to 59


def test_a_state_pickles_to_the_same_few_kilobytes_for_any_number_of_queries():
    few, many = (pickle.dumps(partial(*made(queries=queries), "ndcg@10 map")) for queries in (20, 2000))
    assert len(few) < 12_000
    assert len(many) < len(few) + 200
    assert bits(pickle.loads(many)) == bits(partial(*made(queries=2000), "ndcg@10 map"))


def test_empty_parts_and_parts_without_judged_queries_add_nothing_but_counts():
    rest = [
        partial(QRELS, part, "mrr")
        for part in ({}, {"other": {"d1": 1.0}}, pandas.DataFrame(columns=["qid", "docid", "score"]))
    ]
    merged = merge([*rest, partial(QRELS, RUN, "mrr")])
    assert merged.means == partial(QRELS, RUN, "mrr").means
    assert merged.coverage.rows[0]["not in the judgments"] == 3
    assert merge([rest[0]]).means == tr.evaluate(QRELS, {}, "mrr").means["run"]
    for parts in (rest, rest[::-1]):
        with pytest.raises(ValueError, match="queries that are judged, got none: a query of the run is 'other'"):
            merge(parts).intervals()


def test_options_of_evaluate_are_those_of_its_parts():
    run = {"a": {"a": 9.0, "b": 1.0}, "b": {"c": 1.00000001, "b": 3.0, "a": 1.0}}
    qrels = {"a": {"b": 1}, "b": {"a": 1}}
    for options in (
        {"ignore_identical_ids": True},
        {"precision": "single"},
        {"precision": "single", "ties": "expected"},
    ):
        whole = tr.evaluate(qrels, run, "mrr", **options)
        merged = merge(partial(qrels, {query: run[query]}, "mrr", **options) for query in run)
        assert merged.means == whole.means["run"]
        assert merged.coverage.rows[0]["same id as query"] == 2


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("measures", lambda: partial(QRELS, {}, "mrr@5")),
        ("judgments", lambda: partial({**QRELS, "q1": {"d1": 3}}, {}, "mrr")),
        ("queries", lambda: partial(QRELS, {}, "mrr", queries="both")),
        ("precision", lambda: partial(QRELS, {}, "mrr", precision="single")),
        ("ties", lambda: partial(QRELS, {}, "mrr", ties="expected")),
    ],
)
def test_states_of_other_measures_options_or_judgments_are_refused(name, other):
    with pytest.raises(ValueError, match=f"states of the same {name}"):
        merge([partial(QRELS, RUN, "mrr"), other()])


def test_the_usual_order_of_ties_may_be_said():
    assert bits(merge([partial(QRELS, RUN, MEASURES, ties="document"), partial(QRELS, {}, MEASURES)])) == bits(
        WHOLE["judged"]
    )


def test_the_order_and_the_source_of_judgments_do_not_matter():
    rows = [(q, d, grade) for q, grades in QRELS.items() for d, grade in grades.items()]
    random.Random(0).shuffle(rows)
    first, second = split(RUN, [number % 2 for number in range(len(RUN))])
    assert bits(merge([partial(rows, first, MEASURES), partial(QRELS, second, MEASURES)])) == bits(WHOLE["judged"])


@pytest.mark.parametrize("missing", [0, 5])
def test_a_part_that_is_given_twice_is_refused(missing):
    qrels, run = made(missing=missing)
    parts = [partial(qrels, part, "mrr") for part in split(run, [number % 3 for number in range(len(run))])]
    with pytest.raises(ValueError, match="every query in one part"):
        merge([*parts, parts[1]])


def test_one_query_in_two_parts_of_a_complete_run_is_refused():
    qrels, run = made(missing=0)
    first, second = split(run, [number % 2 for number in range(len(run))])
    second["q0"] = first["q0"]
    with pytest.raises(ValueError, match="got 1 or more"):
        merge([partial(qrels, first, "mrr"), partial(qrels, second, "mrr")])


def test_wrong_states_and_measures_are_refused():
    with pytest.raises(ValueError, match="at least one part"):
        merge([])
    with pytest.raises(TypeError, match="got dict"):
        merge([{"mrr": 1.0}])
    with pytest.raises(ValueError, match="computed from sums"):
        partial(QRELS, RUN, [tr.MRR(aggregation="median")])


def test_metrics_of_one_name_have_their_values_for_queries_without_a_run():
    qrels = tr.read_qrels({"a": {"x": 1}, "b": {"x": 1, "y": 1}})
    for metric, expected in ((tr.NumRel(), 1.5), (tr.MRR(), 0.5)):
        part = tr.partial(qrels, {"a": {"x": 1.0}}, {"own": metric})
        assert tr.merge([part]).means == {"own": expected}


def test_metrics_beside_names_have_their_values_for_queries_without_a_run():
    qrels = tr.read_qrels({"a": {"x": 1}, "b": {"x": 1, "y": 1}})
    for k in (1, 2):
        part = tr.partial(qrels, {"a": {"z": 2.0, "x": 1.0}}, ["numrel", tr.MRR(top_k=k)])
        assert tr.merge([part]).means == {"numrel": 1.5, f"mrr@{k}": 0.25 * (k - 1)}


def test_the_part_without_a_run_is_made_once_for_names_and_anew_for_metrics_that_may_differ():
    def made_by(measures):
        return _absent(Evaluator.of(JUDGMENTS, metrics_by_key(measures), Options.of(None)), measures)

    assert made_by("mrr ndcg@3") is made_by("mrr ndcg@3")
    assert made_by(["mrr"]) is made_by(("mrr",))
    metric = tr.MRR()
    for measures in ([metric], ["ndcg", metric], {"mine": metric}, {"mine": "mrr"}):
        assert made_by(measures) is not made_by(measures)


@pytest.mark.parametrize("seen", [("x", "y"), ("x", None), (None, "y"), (None, "y", "z"), ("x", None, None)])
def test_merged_parts_without_a_judged_query_name_the_first_query_of_the_run_and_a_judged_one(seen):
    parts = [partial({"judged": {"a": 1}}, {query: {"a": 1.0}} if query else {}, "mrr") for query in seen]
    first = next(query for query in seen if query)
    wanted = rf"a query of the run is '{first}', a judged query is 'judged'"
    for merged in (merge(parts), merge([merge(parts[:1]), merge(parts[1:])])):
        with pytest.raises(ValueError, match=wanted):
            merged.summary()


def test_parts_of_a_run_of_chunks_read_the_judged_chunks_of_their_queries_alone(monkeypatch):
    qrels = {f"q{q}": {f"d{d}#{q}": (d + q) % 3 - 1 for d in range(9)} for q in range(6)}
    run = {f"q{q}": {f"d{d}#{c}": ((7 * d + 5 * c + q) % 11) / 4 for d in range(9) for c in (q, 8)} for q in range(6)}
    measures, read, parts_of = "mrr(unjudged=upper) ndcg(unjudged=lower)@5", [], joining._parts_of
    monkeypatch.setattr(joining, "_parts_of", lambda table: (read.append(x) or x for x in parts_of(table)))
    for judgments in (qrels, [(q, item, grade) for q, grades in qrels.items() for item, grade in grades.items()]):
        evaluator = Evaluator.of(judgments, metrics_by_key(measures), Options.of(None, parent="#"))
        whole, of_all = evaluator.part(run).values, len(read)
        parts = [evaluator.part(part).values for part in split(run, range(6))]
        for label, values in whole.items():
            assert np.concatenate([part[label] for part in parts]).tolist() == values.tolist(), label
        assert len(read) == 2 * of_all
        read.clear()


JUDGED = {"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 2}}


def test_a_state_without_a_common_query_or_document_says_so():
    other = partial(JUDGED, {"z": {"a": 1.0}}, "mrr")
    with pytest.raises(ValueError, match="'z'"):
        other.estimates()
    apart = partial(JUDGED, {"q1": {"z": 1.0}}, "mrr mr")
    assert apart.labels == ["mrr", "mr"]
    with pytest.raises(ValueError, match=r"document"):
        apart.estimates()
    with pytest.raises(ValueError, match=r"document"):
        tr.merge(
            [
                apart,
                partial(JUDGED, {}, "mrr mr"),
                partial(JUDGED, {"z": {"a": 1.0}}, "mrr mr"),
            ]
        ).estimates()
    both = tr.merge([partial(JUDGED, {"q2": {"b": 1.0}}, "mrr mr"), apart])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(both) == f"{both.summary()}\n\n{both.coverage}"
    assert both.means["mrr"] == pytest.approx(1 / 3)


def test_ids_of_any_type_are_told_apart_in_parts():
    qrels = {(1, 2): {"a": 1}, (2, 1): {"b": 1}}
    parts = [partial(qrels, {query: {"a": 1.0, "b": 0.5}}, "mrr") for query in qrels]
    assert tr.merge(parts).means == tr.evaluate(qrels, {key: {"a": 1.0, "b": 0.5} for key in qrels}, "mrr").means["run"]
    assert tr.merge(parts).means["mrr"] == pytest.approx(0.75)
    with pytest.raises(ValueError, match="Expected"):
        tr.merge([parts[0], partial({"x": {"a": 1}}, {}, "mrr")])
