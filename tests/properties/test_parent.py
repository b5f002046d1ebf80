"""Chunks are evaluated as the documents that they are of: against tables of documents, made in plain Python."""

import json
import math
import random

import numpy as np
import pytest

import torchrank as tr
from torchrank.cli import main

MEASURES = "ndcg@3 map mrr recall@2 bpref"


def chunked(seed, judged_chunks):
    """Judgments and a run of chunks, with equal scores and negative grades, and both as tables of documents."""
    rng = random.Random(seed)
    qrels, run = {}, {}
    for query in range(12):
        names = [f"d{rng.randint(0, 5)}#{part}" for part in range(8)]
        run[f"q{query}"] = {name: rng.choice((0.1, 0.2, 0.5, 0.9)) for name in names}
        judged = rng.sample([f"d{document}" for document in range(6)], 4)
        judged = [f"{one}#{part}" for one in judged for part in range(3)] if judged_chunks else judged
        qrels[f"q{query}"] = {one: rng.choice((-1, 0, 1, 2)) for one in judged}
    return qrels, run


def of_documents(table):
    return {
        query: {
            document: max(value for name, value in items.items() if name.split("#")[0] == document)
            for document in {name.split("#")[0] for name in items}
        }
        for query, items in table.items()
    }


def rows(table):
    return [(query, item, value) for query, items in table.items() for item, value in items.items()]


def same(one, other):
    left, right = ({label: x.tolist() for label, x in found["run"].columns.items()} for found in (one, other))
    return all(left[label] == pytest.approx(right[label]) for label in MEASURES.split())


WAYS = {
    "separator": "#",
    "function": lambda name: name.split("#")[0],
    "dictionary": {f"d{document}#{part}": f"d{document}" for document in range(6) for part in range(8)},
}


@pytest.mark.parametrize("judged_chunks", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_chunks_count_as_their_document(way, judged_chunks):
    qrels, run = chunked(way, judged_chunks)
    for ties in ("document", "expected"):
        want = tr.evaluate(of_documents(qrels), of_documents(run), MEASURES, ties=ties)
        for make in (dict, rows):
            got = tr.evaluate(make(qrels), make(run), MEASURES, ties=ties, parent=WAYS[way])
            assert same(got, want)
    suite = tr.RankingCollection(MEASURES)
    got = suite.score(tr.Ranking.from_run(qrels, run, parent=WAYS[way]))
    want = suite.score(tr.Ranking.from_run(of_documents(qrels), of_documents(run)))
    assert all(got[label].tolist() == pytest.approx(want[label].tolist()) for label in want)


def test_ids_without_a_separator_or_of_another_type_are_documents():
    assert tr.evaluate({"q": {7: 1}}, {"q": {7: 0.5, 8: 0.9}}, "mrr", parent="#").means["run"]["mrr"] == 0.5
    found = tr.evaluate({"q": {"a#b": 1}}, {"q": {"a#b#1": 0.5, "c": 0.9}}, "mrr", parent={"a#b#1": "a#b"})
    assert found.means["run"]["mrr"] == 0.5
    assert tr.evaluate({"q": {"#1": 1}}, {"q": {"#1": 0.5}}, "mrr", parent="#").means["run"]["mrr"] == 1


NO_PARENT = [None, math.nan, np.float64("nan")]


@pytest.mark.parametrize("no_parent", NO_PARENT, ids=repr)
def test_ids_without_a_parent_are_documents_of_their_own(no_parent):
    of = {"c#1": "c", "junk": no_parent}
    for parent in (of, lambda name: of.get(name, no_parent), *([of.get] if no_parent is None else [])):
        for ids in (str, lambda name: [*"abcdefghijklmnopqrstuvwxyz"].index(name[0])):  # text, integers
            qrels, run = {"q": {ids("gold"): 1}}, {"q": {ids("junk"): 0.9, ids("x"): 0.5, ids("gold"): 0.4}}
            way = parent if ids is str else {9: no_parent, 23: no_parent}
            for make in (dict, rows):
                assert tr.evaluate(make(qrels), make(run), "mrr", parent=way).means["run"]["mrr"] == 1 / 3
                assert tr.MRR()(tr.Ranking.from_run(make(qrels), make(run), parent=way)).item() == pytest.approx(1 / 3)
    run = {"q": {"junk": 0.9, "c#1": 0.5}}
    with pytest.raises(ValueError, match="No document of the run is judged"):
        tr.evaluate({"q": {"gold": 1}}, run, "mrr", parent=of)
    assert tr.evaluate({"q": {"gold": 1, "c": 0}}, run, "mrr", parent=of).means["run"]["mrr"] == 0
    assert tr.evaluate({"q": {"c": 1}}, run, "mrr", parent=of).means["run"]["mrr"] == 0.5
    frame = {"user": ["u"] * 3, "item": ["junk", "x", "c#1"], "score": [3, 2, 1], "label": [0, 0, 1]}
    assert tr.evaluate(frame, "mrr", parent=of, ties="document").means["run"]["mrr"] == 1 / 3


@pytest.mark.parametrize("wrong", [["c"], "", {"c": 1}, np.array(["c"])], ids=repr)
def test_a_parent_that_is_no_id_is_named_with_its_chunk(wrong):
    for parent in ({"c#1": wrong}, {"c#1": wrong}.get):
        for call in (tr.Ranking.from_run, lambda *tables, parent: tr.evaluate(*tables, "mrr", parent=parent)):
            with pytest.raises(TypeError, match=r"to return text or an integer, got .* for 'c#1'.* return None"):
                call({"q": {"c": 1}}, {"q": {"c#1": 0.5}}, parent=parent)


def test_a_run_is_mapped_to_its_documents_once_also_with_judgments_of_people():
    qrels, run = {q: {"a#b#9": 1} for q in "qp"}, {q: {"a#b#1": 0.5, "c": 0.9} for q in "qp"}
    of = {"a#b#1": "a#b", "a#b#9": "a#b", "c": "d", "d": "a#b"}
    for parent in ("#", of):
        found = tr.evaluate(qrels, run, "mrr", parent=parent, human=qrels)
        assert found["run"].columns["mrr"].tolist() == [0.5, 0.5]
        assert found.means["run"]["mrr"] == 0.5


def test_each_subtopic_of_a_document_has_the_largest_grade_of_its_chunks():
    qrels = [("q", "1", "a#0", 1), ("q", "2", "a#1", 1), ("q", "2", "b#0", 1), ("q", "1", "c#0", 0)]
    run = {"q": {"a#0": 0.5, "b#0": 0.9, "a#1": 0.7, "c#0": 0.8}}
    documents = [("q", "1", "a", 1), ("q", "2", "a", 1), ("q", "2", "b", 1), ("q", "1", "c", 0)]
    got = tr.evaluate(tr.read_qrels(qrels), run, "alphandcg ndcg", parent="#")
    want = tr.evaluate(tr.read_qrels(documents), of_documents(run), "alphandcg ndcg")
    assert got.means["run"] == pytest.approx(want.means["run"])


def test_the_command_takes_a_separator(tmp_path, capsys):
    qrels, run = chunked("command", judged_chunks=False)
    files = tmp_path / "qrels.json", tmp_path / "run.json"
    for path, table in zip(files, (qrels, run)):
        path.write_text(json.dumps(table))
    call = ["eval", *map(str, files), "-m", "ndcg@3", "--format", "json"]
    assert main([*call, "--parent", "#"]) == 0
    document = json.loads(capsys.readouterr().out)
    want = tr.evaluate(of_documents(qrels), of_documents(run), "ndcg@3").means["run"]["ndcg@3"]
    assert document["options"]["parent"] == "#"
    assert next(row["value"] for row in document["rows"] if row["measure"] == "ndcg@3") == pytest.approx(want)


def test_a_run_of_chunks_that_are_not_judged_is_told_of_their_documents():
    qrels, run = {"q": {"d0": 1}}, {"q": {"d0#1": 0.5}}
    for judged, retrieved in ((qrels, run), (run, qrels)):
        with pytest.raises(ValueError, match=r"in both, or parent='#' \(--parent '#'\) to evaluate chunks"):
            tr.evaluate(judged, retrieved, "mrr")
    assert tr.evaluate(qrels, run, "mrr", parent="#").means["run"]["mrr"] == 1
    with pytest.raises(ValueError, match=r"use the same ids in both$"):
        tr.evaluate(qrels, {"q": {"d7": 0.5}}, "mrr")


def test_a_parent_that_is_none_of_the_three_raises():
    for parent in (3, ""):
        with pytest.raises(TypeError, match="a separator such as '#', a dictionary from chunk to document or"):
            tr.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, "mrr", parent=parent)
