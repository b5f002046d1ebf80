"""Judgments of subtopics, from any source, have the numbers of plain Python and of a target with subtopics."""

import io
import math
import pickle
import random
from collections import namedtuple

import pytest
import torch

import torchrank as tr
from tests.support.optional import pandas

INTENT = "alphandcg@5 alphadcg@3 erria@5 nrbp pia@2 apia strecall@2"
FLAT = "ndcg@5 map mrr bpref infap judged@5 precision@2"


def made(seed, queries=8, documents=12):
    """Rows (query, subtopic, document, grade), and a run that lacks a query, in which some documents are not judged."""
    draw = random.Random(seed)
    rows = []
    run = {}
    for query in range(queries):
        names = [f"d{n}" for n in draw.sample(range(2 * documents), documents)]
        for subtopic in draw.sample(["1", "2", "3", "10", "b"], draw.randint(1, 5)):
            for name in draw.sample(names, draw.randint(1, 5)):
                rows.append((f"q{query}", subtopic, name, draw.choice([1, 1, 2, 0, -1])))
        listed = [*names, "x", "y"]
        if query != 3:
            run[f"q{query}"] = dict(zip(draw.sample(listed, len(listed)), range(len(listed), 0, -1)))
    return rows, run


def natural(name):
    return len(name), name


def tensors(rows, run):
    """Scores and a target [query, document, subtopic] of the same queries; a document without a row has grade -2."""
    queries = list(dict.fromkeys(row[0] for row in rows))
    names = sorted({d for _, _, d, _ in rows} | {d for docs in run.values() for d in docs})
    scores = torch.full((len(queries), len(names)), -math.inf)
    target = torch.full((len(queries), len(names), 5), -2)
    mask = torch.zeros(scores.shape, dtype=torch.bool)
    for at, query in enumerate(queries):
        subtopics = sorted({s for q, s, _, _ in rows if q == query}, key=natural)
        for q, s, d, grade in rows:
            if q == query:
                row = target[at, names.index(d)]
                row[row == -2] = -1
                row[subtopics.index(s)] = grade
                mask[at, names.index(d)] = True
        for d, score in run.get(query, {}).items():
            scores[at, names.index(d)], mask[at, names.index(d)] = score, True
    return scores, target, mask


Judgment = namedtuple("Judgment", "query_id subtopic_id doc_id relevance")
SOURCES = {
    "tuples": lambda rows: rows,
    "shuffled": lambda rows: sorted(rows, key=lambda row: (row[0], *map(str, row[::-1]))),
    "named tuples": lambda rows: [Judgment(*row) for row in rows],
    "frame": lambda rows: pandas.DataFrame(rows, columns=["qid", "intent", "docno", "rel"]),
    "columns": lambda rows: dict(zip(("qid", "iteration", "docno", "rel"), map(list, zip(*rows)))),
    "file": lambda rows: io.StringIO("".join(f"{q} {s} {d} {grade}\n" for q, s, d, grade in rows)),
    "file with a header": lambda rows: io.StringIO(
        "subtopic\tgrade\tquery-id\tcorpus-id\n" + "".join(f"{s}\t{grade}\t{q}\t{d}\n" for q, s, d, grade in rows)
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_has_the_numbers_of_tensors(source):
    rows, run = made(source)
    qrels = tr.read_qrels(SOURCES[source](rows))
    found = tr.evaluate(qrels, run, f"{INTENT} {FLAT}")["run"]
    order = [found.ids.tolist().index(query) for query in dict.fromkeys(row[0] for row in rows)]
    scores, target, mask = tensors(rows, run)
    ranking = tr.Ranking.from_run(qrels, run)
    for name in INTENT.split():
        values = tr.parse(name).score(scores, target, mask=mask)
        torch.testing.assert_close(torch.from_numpy(found.columns[name])[order], values, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(tr.parse(name).score(ranking)[order], values, rtol=1e-12, atol=1e-12)


def test_other_measures_see_the_largest_grade():
    rows, run = made("flat")
    largest: dict = {}
    for query, _, document, grade in rows:
        docs = largest.setdefault(query, {})
        docs[document] = max(grade, docs.get(document, -1))
    assert tr.read_qrels(rows).to_dict() == largest
    found, wanted = (tr.evaluate(qrels, run, FLAT)["run"].columns for qrels in (rows, largest))
    for label, values in wanted.items():
        assert found[label].tolist() == pytest.approx(values.tolist(), abs=1e-12)


def test_parts_of_a_run_pickles_and_curves_keep_the_subtopics():
    rows, run = made("parts")
    found = tr.evaluate(rows, run, INTENT)
    pieces = [{query: docs} for query, docs in run.items()]
    assert tr.evaluate(rows, tr.read_chunks(pieces), INTENT).means == found.means
    merged = tr.merge(tr.partial(rows, piece, INTENT) for piece in pieces)
    assert merged.means == pytest.approx(found.means["run"], rel=1e-12)
    with pytest.raises(ValueError, match="the same judgments"):
        tr.merge([tr.partial(rows, pieces[0], INTENT), tr.partial([*rows, ("q0", "new", "d", 1)], pieces[1], INTENT)])
    (curve,) = found.over_cutoffs("alphandcg@5", [3, 5])
    assert curve.y[1] == pytest.approx(found.means["run"]["alphandcg@5"])
    ranking = pickle.loads(pickle.dumps(tr.Ranking.from_run(rows, run)))
    assert tr.AlphaNDCG(top_k=5)(ranking).item() == pytest.approx(found.means["run"]["alphandcg@5"])
    part = ranking.take(torch.tensor([2, 0]))
    values = found["run"].columns["alphandcg@5"]
    assert tr.AlphaNDCG(top_k=5).score(part).tolist() == pytest.approx([values[2], values[0]])


def test_flat_judgments_are_one_subtopic_which_is_said():
    qrels = {"q": {"a": 1, "b": 1}}
    for call in (tr.evaluate, tr.partial):
        with pytest.warns(UserWarning, match="no subtopics, so alphandcg@5, pia@2 counts each query as one") as caught:
            call(qrels, {"q": ["a", "b"]}, "alphandcg@5 pia@2 mrr")
        assert caught[0].filename == __file__
    rows = [("q", "0", "a", 1), ("q", "0", "b", 1)]
    assert tr.read_qrels(rows).subtopics is None
    assert tr.read_qrels([("q", "1", "a", 1), ("p", "2", "a", 1)]).subtopics is None


def test_documents_that_each_belong_to_one_subtopic_have_subtopics():
    found = tr.evaluate([("q", "1", "a", 1), ("q", "2", "b", 1)], {"q": ["a", "b"]}, "strecall@1")
    assert found.means["run"] == {"strecall@1": 0.5}


def test_a_document_twice_in_a_subtopic_is_a_duplicate():
    rows = [("q", "1", "a", 1), ("q", "2", "a", 1), ("q", "1", "a", 2), ("q", "2", "b", 0)]
    with pytest.raises(tr.ReadingError, match="row 3: Expected every document once for its subtopic, got document 'a"):
        tr.read_qrels(rows)
    assert tr.read_qrels(rows, duplicates="first").subtopics.tolist() == [[1, 1], [0, 0]]
    assert tr.read_qrels(rows, duplicates="best").subtopics.tolist() == [[2, 1], [0, 0]]


def test_a_second_column_of_many_numbers_is_no_subtopic():
    rows = [("q", str(n), f"d{n}", 1) for n in range(101)]
    assert tr.read_qrels(rows).subtopics is None
    assert tr.read_qrels(rows[1:]).subtopics.shape == (100, 100)
    with pytest.raises(tr.ReadingError, match="every document once for its query"):
        tr.read_qrels([*rows, ("q", "last", "d0", 1)])


def test_a_document_that_is_judged_for_no_subtopic_is_unjudged():
    rows = [("q", "1", "a", -1), ("q", "2", "a", -1), ("q", "1", "b", 1), ("q", "2", "c", 0)]
    assert tr.read_qrels(rows).subtopics.tolist() == [[-1, -1], [1, 0], [0, 0]]
    run = {"q": ["a", "b", "c"]}
    assert tr.PIA(top_k=1, unjudged="condensed").score(tr.Ranking.from_run(rows, run)).tolist() == [1]


def test_columns_of_subtopics_are_chosen(tmp_path):
    (tmp_path / "qrels").write_text("q a 1 x\nq a 1 y\nq b 1 y\n")
    columns = {"query": 0, "item": 1, "grade": 2, "subtopic": 3}
    qrels = tr.read_qrels(tmp_path / "qrels", columns=columns)
    assert (qrels.to_dict(), qrels.subtopics.tolist()) == ({"q": {"a": 1, "b": 1}}, [[1, 1], [0, 1]])
