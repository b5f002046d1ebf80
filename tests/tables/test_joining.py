"""Judgments and runs from any source give the ranking of plain Python and the numbers of trec_eval."""

import io
import math
import pickle
import random
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchrank as tr
from torchrank.tables import files, joining, pair_tables

FIELDS = ("first", "tied", "grade")
READERS = tr.read_qrels, tr.read_run


def made(seed, queries=30, documents=25, levels=6, name="d{}".format):
    """Judgments and a run with ties, missing queries and documents, and queries without judgments."""
    rng = random.Random(seed)
    names = [name(number) for number in range(3 * documents)]
    qrels, run = {}, {}
    for number in range(queries):
        query = name(1000 + number)
        if number % 7 != 3:
            qrels[query] = {d: rng.randint(-1, 3) for d in rng.sample(names, rng.randrange(12))}
        if number % 5 != 2:
            size = rng.choice([0, 1, documents, rng.randrange(documents)])
            run[query] = {d: rng.randrange(levels) / 4 for d in rng.sample(names, size)}
            run[query] |= {d: -math.inf for d in run[query] if str(d).endswith("7")}
    return qrels, run


def trec(table_, run=True):
    line = "{} Q0 {} 0 {!r} tag\n" if run else "{} 0 {} {}\n"
    return "".join(line.format(q, d, value) for q, docs in table_.items() for d, value in docs.items())


def shuffled(lines_, seed):
    lines = lines_.splitlines(keepends=True)
    random.Random(seed).shuffle(lines)
    return io.StringIO("".join(lines))


def plain_entries(qrels, run, query):
    """Entries (first, tied, grade) of a query as trec_eval ranks them, by plain Python."""
    judged, scored = qrels[query], {d: s for d, s in run.get(query, {}).items() if s > -math.inf}
    order = sorted(sorted(scored, key=str, reverse=True), key=lambda d: -scored[d])
    found = [(rank, 1, max(judged[d], -1) if d in judged else -2) for rank, d in enumerate(order, 1)]
    lost = set(judged) | set(run.get(query, {}))
    return sorted(
        found + [(len(order) + 1, 0, max(judged.get(d, -2), -1) if d in judged else -2) for d in lost - set(order)]
    )


def entries(ranking):
    rows = zip(*(getattr(ranking, name).tolist() for name in FIELDS), ranking.valid.tolist())
    return [sorted(one[:3] for one in zip(*row) if one[3]) for row in rows]


def scored(qrels, run):
    ranking = tr.Ranking.from_run(qrels, run)
    ids_ = qrels.query_ids if isinstance(qrels, tr.Qrels) else list(qrels)
    values = tr.RankingCollection(["ndcg@10", "map", "mrr", "bpref", "infap", "judged@5"]).score(ranking)
    return {str(q): [x[row].item() for x in values.values()] for row, q in enumerate(ids_)}


def test_measures_are_the_same_from_judged_and_from_all_candidates():
    ranking = tr.Ranking.from_run(*made(5))
    whole = tr.Ranking.from_run(*made(5))
    assert whole.grade.min() == -2  # reading a field makes entries of all candidates
    assert ranking.size < 30 * 20  # the judged documents alone
    names = "ndcg@10 map mrr(ties=pessimistic) bpref infap judged@5 fallout@5 rbp map(unjudged=condensed) auroc"
    suite = [tr.parse(name) for name in names.split()]
    for metric in suite:
        rows = torch.arange(whole.num_queries)
        torch.testing.assert_close(metric.score(ranking), metric.score(whole.take(rows)), equal_nan=True)
    upper = tr.parse("precision(unjudged=upper)@5")
    torch.testing.assert_close(upper.score(ranking), upper.score(whole.take(rows)))
    assert (upper.score(ranking) > tr.parse("precision@5").score(ranking)).any()


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-120, 120), max_size=20),
    st.lists(st.text("a0-é\ue000\U0001f600", max_size=20)),
)
def test_ids_are_ordered_as_text(numbers, texts):
    for values, column in (
        (numbers, pair_tables.NumberIds(np.array(numbers, dtype=np.int64))),
        (texts, pair_tables.TextIds.of(texts)),
    ):
        order = np.argsort(pair_tables.text_order(column), kind="stable")
        assert [str(values[row]) for row in order] == sorted(map(str, values))


@pytest.mark.filterwarnings("ignore:No document of the run is judged")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([1, 2, 1000]), st.sampled_from(["text", "int", "file"]))
def test_any_run_has_the_ranks_of_plain_python(seed, expected, levels, kind):
    names = {"int": lambda n: 7 * n - 40}.get(kind, lambda n: "d" * (n % 11) + str(n))
    qrels, run = made(seed, queries=6, documents=9, levels=levels, name=names)
    qrels = {q: docs for q, docs in qrels.items() if docs}
    if not any(run.get(q) for q in qrels):
        return
    sources = qrels, run
    if kind == "file":
        sources = tr.read_qrels(io.StringIO(trec(qrels, run=False))), shuffled(trec(run), seed)
    ranking = tr.Ranking.from_run(sources[0], tr.read_run(sources[1], ties="expected" if expected else "document"))
    found = entries(ranking)
    for query, ours, length in zip(qrels, found, ranking.num_candidates.tolist()):
        scores = {d: score for d, score in run.get(query, {}).items() if score > -math.inf}
        assert length == len(scores)
        if not expected:
            assert ours == plain_entries(qrels, run, query)
            continue
        want = []
        for d, grade in qrels[query].items():
            above = sum(other > scores[d] for other in scores.values()) if d in scores else len(scores)
            want.append((1 + above, sum(s == scores[d] for s in scores.values()) if d in scores else 0, grade))
        assert [one for one in ours if one[2] > -2] == sorted(want)
    assert entries(pickle.loads(pickle.dumps(ranking))) == found


@pytest.mark.parametrize("mask", [0, 7, 2**60 - 1])
def test_hashes_that_collide_change_nothing(monkeypatch, mask):
    qrels, run = made(4)
    qrels = {q: docs for q, docs in qrels.items() if docs}
    texts = trec(qrels, run=False), trec(run)
    want = scored(*(read(io.StringIO(one)) for read, one in zip(READERS, texts)))

    strong = pair_tables.pair_hashes

    def weak(query, items):
        return strong(query, items) & np.uint64(mask)

    monkeypatch.setattr(pair_tables, "pair_hashes", weak)
    monkeypatch.setattr(joining, "pair_hashes", weak)
    assert scored(*(read(io.StringIO(one)) for read, one in zip(READERS, texts))) == want
    with pytest.raises(tr.ReadingError, match=r"got document '.*' of query '.*' twice"):
        tr.read_run(io.StringIO(texts[1] + texts[1].splitlines()[0]))


def test_blocks_of_rows_and_of_text_change_nothing(monkeypatch):
    qrels, run = made(6)
    texts = trec({q: docs for q, docs in qrels.items() if docs}, run=False), trec(run)
    want = scored(*(read(io.StringIO(one)) for read, one in zip(READERS, texts)))
    monkeypatch.setattr(pair_tables, "BLOCK", 5)
    monkeypatch.setattr(files, "PIECE", 50)
    sources = tr.read_qrels(io.StringIO(texts[0])), tr.read_run(shuffled(texts[1], 1))
    assert scored(*sources) == want
    assert sources[1].to_dict() == {q: docs for q, docs in run.items() if docs}
    with pytest.raises(tr.ReadingError, match=r"line 150: .*got 3: 'q 0 half'"):
        tr.read_run(io.StringIO("".join(f"q 0 {n} 0 1\n" if n < 149 else "q 0 half\n" for n in range(200))))
    with pytest.raises(tr.ReadingError, match=r"line 100: .*number, got 'x'"):
        tr.read_run(io.StringIO("".join(f"q 0 {n} 0 {n if n < 99 else 'x'}\n" for n in range(200))))


def test_ids_of_different_types_match_nothing_and_warn():
    with pytest.warns(UserWarning, match="a query of the run is 1, a judged query is '1'; use ids of one type in both"):
        tr.Ranking.from_run(io.StringIO("1 0 2 1"), [(1, 2, 0.5)])
    with pytest.warns(UserWarning, match="a document of the run is 2, a judged document is '2'") as caught:
        ranking = tr.Ranking.from_run(io.StringIO("1 0 2 1"), [("1", 2, 0.5)])
    assert caught[0].filename == __file__
    assert tr.MRR().score(ranking).tolist() == [0]


def test_exchanged_judgments_and_run_warn():
    grades, scores = {"q": {"a": 1, "b": 0, "c": 2}}, {"q": {"a": 12.9, "b": 10, "c": 4.2}}
    with pytest.warns(UserWarning, match="grades such as 12.9, and all scores of the run are integers") as caught:
        tr.Ranking.from_run(scores, grades)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="pass the judgments first"):
        tr.evaluate(scores, grades, "ndcg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for judgments, run in ((grades, scores), (grades, grades), (scores, scores), (scores, {"q": {}})):
            tr.Ranking.from_run(judgments, run)


def test_a_run_keeps_its_rule_for_ties():
    run = tr.read_run({"q": {"a": 1, "b": 1}}, ties="expected")
    assert tr.MRR().score(tr.Ranking.from_run({"q": {"a": 1}}, run)).tolist() == [0.75]
    assert tr.read_run(run).ties == "expected"
    assert tr.read_run(run, ties="document").ties == "document"
    assert tr.MRR().score(tr.Ranking.from_run({"q": {"a": 1}}, {"q": {"a": 1, "b": 1}})).tolist() == [0.5]


# ---- one frame -------------------------------------------------------------------------------------------------------
