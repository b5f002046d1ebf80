"""Excluded pairs leave the judgments and the runs: against tables from which they are removed by hand."""

import functools
import json
import random

import numpy as np
import pytest

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pandas
from torchrank.cli import main

MEASURES = "ndcg@5 map mrr recall@5 bpref P@5 fallout@5 judged@5"


def drawn(seed, ids=str):
    """Judgments, two runs with ties, and excluded pairs: judged, retrieved, both, neither, and of unknown queries."""
    rng = random.Random(seed)
    names = [ids(n) for n in range(30)]
    queries = [ids(100 + n) for n in range(9)]
    qrels = {q: {d: rng.choice((-1, 0, 1, 2)) for d in rng.sample(names, 8)} for q in queries}
    runs = {
        name: {q: {d: rng.choice((0.1, 0.2, 0.5, 0.9)) for d in rng.sample(names, 12)} for q in queries[start:]}
        for name, start in (("a", 0), ("b", 2))
    }
    pairs = [(q, d) for q in [*queries, ids(999)] for d in rng.sample([*names, ids(77)], 9)]
    return qrels, runs, pairs + [(queries[3], d) for d in qrels[queries[3]]]  # nothing of it is left


def removed(table, pairs):
    """A table without some pairs, which keeps its queries."""
    gone = set(pairs)
    return {q: {d: value for d, value in docs.items() if (q, d) not in gone} for q, docs in table.items()}


def rows(table):
    return [(q, d, value) for q, docs in table.items() for d, value in docs.items()]


def same(found, wanted):
    for run in wanted.runs:
        assert found[run].ids.tolist() == wanted[run].ids.tolist()
        for label, values in wanted[run].columns.items():
            np.testing.assert_allclose(found[run].columns[label], values, rtol=1e-12, err_msg=f"{run} {label}")
    assert found.coverage.to_dict() == pytest.approx(wanted.coverage.to_dict(), nan_ok=True)


PAIRS = {
    "pairs": list,
    "twice": lambda pairs: pairs + pairs[::-1],
    "lists": lambda pairs: {q: [d for one, d in pairs if one == q] for q, _ in pairs},
    "sets": lambda pairs: {q: {d for one, d in pairs if one == q} for q, _ in pairs},
    "grades": lambda pairs: {q: {d: 0 for one, d in pairs if one == q} for q, _ in pairs},
    "columns": lambda pairs: {"query_id": [q for q, _ in pairs], "doc_id": [d for _, d in pairs]},
    "tuple": lambda pairs: tuple(map(np.array, zip(*pairs))),
    "frame": lambda pairs: pandas.DataFrame(pairs, columns=["qid", "docno"]),
    "run": lambda pairs: tr.read_run([(q, d, n) for n, (q, d) in enumerate(dict.fromkeys(pairs))]),
    "generator": iter,
}


@functools.cache
def by_hand(ids):
    """Drawn tables, their evaluation without the pairs, and the values of a ranking of one of them."""
    qrels, runs, pairs = drawn("by hand", ids)
    left, right = removed(qrels, pairs), {name: removed(run, pairs) for name, run in runs.items()}
    wanted = tr.evaluate(left, right, MEASURES)
    assert wanted.means != tr.evaluate(qrels, runs, MEASURES).means
    return qrels, runs, pairs, wanted, tr.RankingCollection(MEASURES).score(tr.Ranking.from_run(left, right["b"]))


@cases("form", PAIRS)
@cases("ids", [str, int])
@pytest.mark.filterwarnings("error")
def test_excluded_pairs_are_those_removed_by_hand(form, ids):
    qrels, runs, pairs, wanted, values = by_hand(ids)
    for left, right in ((qrels, runs["b"]), (rows(qrels), rows(runs["b"]))):
        ranking = tr.Ranking.from_run(left, right, exclude=PAIRS[form](pairs))
        for label, column in tr.RankingCollection(MEASURES).score(ranking).items():
            np.testing.assert_equal(column.numpy(), values[label].numpy())
    if form in ("generator", "frame"):  # all are read by one function
        same(tr.evaluate(qrels, runs, MEASURES, exclude=PAIRS[form](pairs)), wanted)
        read = tr.read_qrels(rows(qrels)), {name: rows(run) for name, run in runs.items()}
        same(tr.evaluate(*read, MEASURES, exclude=PAIRS[form](pairs)), wanted)


OPTIONS = [
    {"depth": 4},
    {"queries": "both"},
    {"ties": "expected"},
    {"precision": "single", "depth": 3},
    {"preset": "beir"},
    {"unjudged": "condensed"},
    {"duplicates": "best"},
]


@cases("options", OPTIONS)
def test_pairs_are_excluded_before_all_other_options(options):
    qrels, runs, pairs = drawn(repr(options))
    measures = None if "preset" in options else "ndcg@5 map mrr recall@5"
    by_hand = removed(qrels, pairs), {name: removed(run, pairs) for name, run in runs.items()}
    same(tr.evaluate(qrels, runs, measures, exclude=pairs, **options), tr.evaluate(*by_hand, measures, **options))


@pytest.mark.parametrize("chunks", [False, True])
def test_chunks_leave_with_their_document(chunks):
    rng = random.Random(chunks)
    qrels = {f"q{n}": {f"d{d}": rng.choice((0, 1, 2)) for d in range(5)} for n in range(6)}
    run = {q: {f"d{d}#{part}": rng.random() for d in range(8) for part in range(2)} for q in qrels}
    pairs = [(q, f"d{d}") for q in qrels for d in rng.sample(range(8), 3)]
    by_hand = {q: {c: s for c, s in docs.items() if (q, c.split("#")[0]) not in pairs} for q, docs in run.items()}
    wanted = tr.evaluate(removed(qrels, pairs), by_hand, "ndcg@3 map", parent="#")
    asked = [(q, d + "#1") for q, d in pairs] if chunks else pairs
    same(tr.evaluate(qrels, run, "ndcg@3 map", parent="#", exclude=asked), wanted)
    ranking = tr.Ranking.from_run(qrels, run, parent="#", exclude=asked)
    assert tr.MAP().score(ranking).tolist() == pytest.approx(wanted["run"].columns["map"].tolist())


def test_all_subtopics_of_a_document_leave_with_it():
    judged = [("q", "1", "a", 1), ("q", "1", "b", 1), ("q", "2", "b", 1), ("q", "2", "c", 1), ("q", "2", "d", 0)]
    run = {"q": ["b", "c", "d", "a"]}
    wanted = tr.evaluate([row for row in judged if row[2] != "b"], {"q": ["c", "d", "a"]}, "alphandcg ndcg strecall@1")
    same(tr.evaluate(judged, run, "alphandcg ndcg strecall@1", exclude=[("q", "b")]), wanted)


def test_pairs_leave_the_judgments_of_people_and_parts_of_runs_too(tmp_path, monkeypatch):
    qrels, runs, pairs = drawn("people")
    run, by_hand = runs["a"], (removed(qrels, pairs), removed(runs["a"], pairs))
    people = {q: {d: max(grade, 0) for d, grade in docs.items()} for q, docs in [*qrels.items()][:6]}
    found = tr.evaluate(qrels, run, "mrr ndcg@5", exclude=pairs, human=people)
    wanted = tr.evaluate(*by_hand, "mrr ndcg@5", human=removed(people, pairs))
    assert found.means["run"] == pytest.approx(wanted.means["run"])
    halves = [{q: run[q] for q in part} for part in ([*run][:4], [*run][4:])]
    merged = tr.merge(tr.partial(qrels, half, "mrr ndcg@5", exclude=pairs) for half in halves)
    assert merged.means == tr.merge([tr.partial(*by_hand, "mrr ndcg@5")]).means
    with pytest.raises(ValueError, match="states of the same exclude"):
        tr.merge(tr.partial(qrels, half, "mrr", exclude=pairs[n:]) for n, half in enumerate(halves))
    (tmp_path / "a.run").write_text("".join(f"{q} Q0 {d} 1 {score!r} t\n" for q, d, score in rows(run)))
    for chunk in (1, 20, 1000):
        chunks = tr.read_chunks(tmp_path / "a.run", lines=chunk)
        same(tr.evaluate(qrels, {"run": chunks}, MEASURES, exclude=pairs), tr.evaluate(*by_hand, MEASURES))


def test_pairs_are_excluded_from_one_frame_with_both():
    rows = zip("uuuvv", "abcab", [3, 2, 1, 2, 1], [0, 1, 1, 1, 0])
    frame = pandas.DataFrame(rows, columns=["user", "item", "score", "label"])
    pairs = [("u", "a"), ("u", "c"), ("v", "b"), ("v", "x")]
    left = frame[[pair not in pairs for pair in zip(frame["user"], frame["item"])]]
    same(tr.evaluate(frame, "mrr ndcg recall@1", exclude=pairs), tr.evaluate(left, "mrr ndcg recall@1"))
    for more in ({"exclude": pairs}, {"parent": "#"}):  # neither can be applied to items without ids
        with pytest.raises(tr.ReadingError, match="Expected a column of item ids"):
            tr.evaluate(frame.drop(columns="item"), "mrr", **more)


def test_the_excluded_ids_of_bright_give_the_numbers_of_pytrec_eval():
    peer = pytest.importorskip("pytrec_eval")
    qrels, runs, pairs = drawn("bright")
    excluded = {q: [d for one, d in pairs if one == q and d not in qrels[q]] or ["N/A"] for q in qrels}
    scores = {q: {d: s for d, s in docs.items() if d not in excluded[q]} for q, docs in runs["a"].items()}
    relevant = {q: {d: max(grade, 0) for d, grade in docs.items()} for q, docs in qrels.items()}
    wanted = peer.RelevanceEvaluator(relevant, {"ndcg_cut.10", "map_cut.10", "recall.10"}).evaluate(scores)
    found = tr.evaluate(relevant, runs["a"], "ndcg_cut_10 map_cut_10 recall_10", exclude=excluded)["run"]
    for label, values in found.columns.items():
        assert values.tolist() == pytest.approx([wanted[q][label] for q in found.ids.tolist()]), label


def test_a_query_of_which_nothing_is_left_has_nothing_relevant():
    found = tr.evaluate({"q": {"a": 1}, "p": {"a": 1}}, {"q": ["a", "b"], "p": ["a"]}, "mrr", exclude={"q": ["a"]})
    assert found["run"].to_dict() == {"id": ["q", "p"], "mrr": [0.0, 1.0]}
    assert found.coverage["no relevant"] == [1]
    with pytest.raises(tr.ReadingError, match="Expected judgments of at least one document, got none"):
        tr.evaluate({"q": {"a": 1}}, {"q": ["a"]}, "mrr", exclude={"q": ["a"]})


def test_excluded_pairs_without_a_judged_query_are_warned_of():
    for exclude, way_out in (([(1, "a")], "ids of one type"), ([("1 ", "a")], "the same ids")):
        with pytest.warns(UserWarning, match=f"No query of exclude= is judged: .* judged query is '1'; use {way_out}"):
            assert tr.evaluate({"1": {"a": 1}}, {"1": ["a"]}, "mrr", exclude=exclude).means["run"]["mrr"] == 1
        with pytest.warns(UserWarning, match="No query of exclude= is judged"):
            tr.Ranking.from_run({"1": {"a": 1}}, {"1": ["a"]}, exclude=exclude)


FILES = {
    "blanks": lambda pairs: "".join(f"{q} {d}\n" for q, d in pairs),
    "tabs": lambda pairs: "".join(f"{q}\t{d}\n" for q, d in pairs),
    "qrels": lambda pairs: "".join(f"{q} 0 {d} 1\n" for q, d in pairs),
    "beir": lambda pairs: "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t0\n" for q, d in pairs),
    "csv": lambda pairs: "query_id,doc_id\n" + "".join(f"{q},{d}\n" for q, d in pairs),
    "lists": lambda pairs: json.dumps(PAIRS["lists"](pairs)),
    "records": lambda pairs: json.dumps([{"qid": q, "docno": d} for q, d in pairs]),
}


@cases("form", FILES)
def test_the_command_takes_a_file_of_excluded_pairs(form, tmp_path, capsys):
    qrels, runs, pairs, *_ = by_hand(str)
    tables = {"qrels": qrels, "a": runs["a"], "b": runs["b"]}
    for name, table in tables.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(table))
        (tmp_path / f"{name}_left.json").write_text(json.dumps(removed(table, pairs)))
    (tmp_path / "seen").write_text(FILES[form](pairs))
    ends = ".json", "_left.json"
    asked, left = ([f"{tmp_path}/qrels{end}", *(f"{run}={tmp_path / run}{end}" for run in "ab")] for end in ends)
    asked += ["--exclude", str(tmp_path / "seen")]
    for command in ["eval", "compare"] if form == "blanks" else ["eval"]:
        shown = []
        for call in (asked, left):
            assert main([command, *call, "-m", "ndcg@5 map", "--format", "csv"]) == 0
            shown.append(capsys.readouterr())
        assert shown[0] == shown[1]
    if form == "blanks":
        assert main(["eval", *asked, "-m", "map", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["options"]["exclude"] == asked[-1]
        assert main(["eval", *asked[:-1], str(tmp_path / "none"), "-m", "map"]) == 2
        assert "Expected a file that exists" in capsys.readouterr().err


def test_ids_that_are_excluded_from_both_are_in_common():
    qrels, run = {"q": {"a": 1, "b": 1}}, {"q": ["a", "c"]}
    assert tr.evaluate(qrels, run, "mrr", exclude={"q": ["a"]}).means["run"]["mrr"] == 0
    with pytest.raises(ValueError, match="No document of the run is judged"):
        tr.evaluate(qrels, {"q": ["x", "c"]}, "mrr", exclude={"q": ["a"]})


def test_a_query_of_subtopics_that_loses_all_judgments_and_that_the_run_lacks_has_nothing_relevant():
    qrels = [("q1", "s1", "a", 1), ("q1", "s2", "b", 1), ("q2", "s1", "a", 1)]
    found = tr.evaluate(qrels, {"q1": ["a", "c"]}, "strecall@2 recall@2", exclude={"q2": ["a"]})["run"]
    assert found.to_dict() == {"id": ["q1", "q2"], "strecall@2": [0.5, 0], "recall@2": [0.5, 0]}
