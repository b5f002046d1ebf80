"""Judgments of spans, and measures of retrieved text: the same as by sets of characters, at ranks and at budgets."""

import random
from collections import Counter

import pytest

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pandas, polars

SHARES = {
    "smaller": lambda chunk, span: min(len(chunk), len(span)),
    "span": lambda chunk, span: len(span),
    "chunk": lambda chunk, span: len(chunk),
    "union": lambda chunk, span: len(chunk | span),
}
PIECES = [("a", "doc", 0, 15), ("b", "doc", 15, 40), ("c", "other", 0, 9)]
PASSAGE = [("q1", "doc", 10, 30)]


def drawn(draw, most=12):
    """Chunks that overlap and contain each other, and spans of three documents."""

    def span():
        start = draw.randrange(30)
        return draw.choice("xyz"), start, start + draw.randrange(1, 12)

    chunks = [(f"c{n}", *span()) for n in range(draw.randrange(1, most))]
    return chunks, [(f"q{draw.randrange(3)}", *span()) for _ in range(draw.randrange(1, most))]


def shares_by_characters(chunks, gold, share):
    """The share of each chunk and query, from sets of characters."""
    judged = {query: {} for query, *_ in gold}
    for query, document, start, end in gold:
        for chunk, of_chunk, first, last in chunks:
            text, span = set(range(first, last)), set(range(start, end))
            if document == of_chunk and text & span:
                value = len(text & span) / SHARES[share](text, span)
                judged[query][chunk] = max(judged[query].get(chunk, 0), value)
    return judged


@cases("share", SHARES)
def test_shares_are_those_of_sets_of_characters(share):
    draw, compared = random.Random(0), 0
    for _ in range(40):
        chunks, gold = drawn(draw)
        if not {span[1] for span in gold} & {chunk[1] for chunk in chunks}:
            continue
        expected = shares_by_characters(chunks, gold, share)
        assert tr.judge_spans(chunks, gold, grade="overlap", share=share).to_dict() == expected
        above = {query: {chunk: float(s >= 0.4) for chunk, s in each.items()} for query, each in expected.items()}
        assert tr.judge_spans(chunks, gold, grade=0.4, share=share).to_dict() == above
        compared += sum(map(len, expected.values()))
    assert compared > 100


def test_a_long_chunk_that_touches_a_span_is_not_relevant_and_one_that_contains_it_is():
    chunks = [("touches", "doc", 0, 1000), ("contains", "doc", 1000, 3000), ("inside", "doc", 1010, 1020)]
    gold = [("q", "doc", 990, 1090)]
    assert tr.judge_spans(chunks, gold, grade=0.5).to_dict() == {"q": {"touches": 0, "contains": 1, "inside": 1}}
    assert tr.judge_spans(chunks, gold, grade=0.5, share="span").to_dict()["q"]["inside"] == 0
    assert tr.judge_spans(chunks, gold, grade=0.5, share="chunk").to_dict()["q"]["contains"] == 0


def test_the_spans_of_a_query_are_its_subtopics():
    gold = [("q", "doc", 0, 10), ("q", "doc", 20, 30), ("q", "doc", 32, 40)]
    qrels = tr.judge_spans(PIECES, gold, grade=0.5)
    assert qrels.subtopics.tolist() == [[1, 0, 0], [0, 1, 1]]
    run = {"q": {"b": 2.0, "a": 1.0}}
    assert tr.evaluate(qrels, run, "strecall@1 strecall@2").means["run"] == {"strecall@1": 2 / 3, "strecall@2": 1.0}


def test_more_spans_than_subtopics_are_judged_by_the_best():
    gold = [("q", "doc", start, start + 20) for start in range(150)]
    qrels = tr.judge_spans(PIECES, gold, grade="overlap")
    assert qrels.subtopics is None
    assert qrels.to_dict() == shares_by_characters(PIECES, gold, "smaller")


@cases("run", [{"q1": {"b": 1.0}, "q2": {"c": 1.0}}, {"q1": {"b": 1.0}}])
@cases("spans", [PASSAGE, [*PASSAGE, ("q1", "doc", 0, 2)]])
def test_a_query_whose_span_no_chunk_has_counts_and_is_empty(run, spans):
    qrels = tr.judge_spans(PIECES, [*spans, ("q2", "lost", 0, 5)], grade=0.5)
    results = tr.evaluate(qrels, run, "hitrate@1 strecall@1 ndcg@5")
    assert results["run"].ids.tolist() == ["q1", "q2"]
    assert results["run"]["hitrate@1"].tolist() == [1, 0]
    assert results["run"]["ndcg@5"][1] == results["run"]["strecall@1"][1] == 0


def test_frames_of_other_libraries_are_read_by_their_names():
    wanted = tr.judge_spans(PIECES, PASSAGE, grade="overlap").to_dict()
    chunk, document, start, end = map(list, zip(*PIECES))
    llama = polars.DataFrame({"node_id": chunk, "doc_id": document, "start_char_idx": start, "end_char_idx": end})
    gold = polars.DataFrame(PASSAGE, ["qid", "document", "start_index", "end_index"], orient="row")
    assert tr.judge_spans(llama, gold, grade="overlap").to_dict() == wanted
    records = [dict(zip(("chunk_id", "doc_id", "start", "end"), row)) for row in PIECES]
    assert tr.judge_spans(records, gold.to_pandas(), grade="overlap").to_dict() == wanted
    assert tr.judge_spans([*map(list, PIECES)], tuple(PASSAGE), grade="overlap").to_dict() == wanted


def test_integer_ids_stay_integers():
    qrels = tr.judge_spans([(7, 1, 0, 4), (8, 1, 4, 8)], [(3, 1, 2, 5)], grade=0.5)
    assert qrels.to_dict() == {3: {7: 1.0, 8: 0.0}}  # 2 of 3, and 1 of 3 positions


@cases(
    ("chunks", "gold", "options", "message"),
    [
        (PIECES, PASSAGE, {"grade": 0}, "Expected grade to be 'overlap' or a threshold, 0 < threshold <= 1, got 0"),
        (PIECES, PASSAGE, {"share": "gold"}, "Expected share to be one of 'smaller', 'span'"),
        (PIECES, [("q1", "else", 1, 2)], {}, "a chunk is in 'doc', a span in 'else'; use the same ids in both"),
        ([("a", 1, 0, 5)], [("q1", "1", 1, 2)], {}, "a chunk is in 1, a span in '1'; use the same ids"),
        ([*PIECES, ("a", "x", 0, 1)], PASSAGE, {}, "<chunks>, row 4: Expected every chunk once, got 'a' again"),
        (PIECES, [("q1", "doc", 5, 5)], {}, "<spans>, row 1: Expected integers from the start .*, 0 <= start < end"),
        (PIECES, [("q1", "doc", -1, 5)], {}, "got -1 and 5"),
        (PIECES, [("q1", "doc", 0.5, 5)], {}, "got 0.5 and 5"),
        (PIECES, [("q1", "doc", 0, float("nan"))], {}, "got 0 and nan"),
        (PIECES, [("q1", "doc", 0, 2**36)], {}, r"< 2\*\*36, where end is .*, got 0 and 6.87195e"),
        (PIECES, [("q1", None, 0, 5)], {}, "got None; leave out missing ids"),
        (PIECES, [("q1", "doc", 5)], {}, r"Expected rows \(query, document, start, end\), or a frame"),
        (PIECES, {"qid": ["q1"], "doc_id": ["doc"], "start": [1]}, {}, "Expected a column of ends named like end"),
    ],
)
def test_what_cannot_be_judged_is_said(chunks, gold, options, message):
    with pytest.raises(ValueError, match=message):
        tr.judge_spans(chunks, gold, **{"grade": 0.5, **options})


# ---- measures of text ------------------------------------------------------------------------------------------------

MEASURES = "spanrecall@3 spanprecision@3 spaniou@3 spanrecall@10tok spanprecision@10tok spaniou@10tok"
GOLD = [("q1", "doc", 10, 30), ("q2", "doc", 50, 60), ("q3", "doc", 70, 80)]
SHORT = [("a", "doc", 0, 15), ("b", "doc", 15, 40), ("c", "doc", 50, 70)]
RUN = {"q1": {"b": 0.9, "a": 0.3}, "q2": {"c": 1.0}}


def by_characters(gold, chunks, run, repeated, ranks=None, budget=None):
    """The three values of each query, from sets of characters, or from their numbers."""
    spans, values = {chunk: row for chunk, *row in chunks}, {}
    for query in dict.fromkeys(query for query, *_ in gold):
        wanted = {(doc, place) for other, doc, *ends in gold if other == query for place in range(*ends)}
        ranked = sorted(run.get(query, {}).items(), key=lambda pair: (pair[1], pair[0]), reverse=True)
        text, spent = Counter(), 0
        for chunk, _ in ranked[:ranks]:
            document, start, end, cost = spans[chunk]
            spent += cost
            if budget is not None and spent > budget:
                break
            text.update((document, place) for place in range(start, end))
        size = text.total() if repeated == "each" else len(text)
        both = len(wanted & set(text))
        values[query] = [both / len(wanted), both / size if size else 0, both / (size + len(wanted) - both)]
    return values


@cases("repeated", ["once", "each"])
def test_values_are_those_of_sets_of_characters(repeated):
    draw, compared = random.Random(1), 0
    for _ in range(50):
        chunks, gold = drawn(draw)
        if not {span[1] for span in gold} & {chunk[1] for chunk in chunks}:
            continue
        chunks = [(*chunk, draw.randrange(9)) for chunk in chunks]
        frame = dict(zip(("chunk_id", "doc_id", "start", "end", "tokens"), zip(*chunks)))
        # Scores are often tied. The query q3 has no spans.
        run = {f"q{n}": {c: draw.randrange(3) / 2 for c, *_ in chunks if draw.random() < 0.6} for n in range(4)}
        run[gold[0][0]]["c0"] = 0.2
        table = tr.evaluate_spans(frame, gold, run, MEASURES, repeated=repeated)["run"]
        expected = by_characters(gold, chunks, run, repeated, 3), by_characters(gold, chunks, run, repeated, budget=10)
        for row, query in enumerate(table.ids):
            values = [table[label][row] for label in table.labels]
            assert values == pytest.approx([*expected[0][query], *expected[1][query]], abs=1e-12)
            compared += 1
    assert compared > 50


def test_chunkers_are_compared_by_one_set_of_labels():
    runs = {"short": RUN, "long": {query: {"all": 1.0} for query in ("q1", "q2", "q3")}}
    results = tr.evaluate_spans({"short": SHORT, "long": [("all", "doc", 0, 100)]}, GOLD, runs)
    assert results.means["short"] == pytest.approx(
        {"spanrecall@5": 2 / 3, "spanprecision@5": (20 / 40 + 10 / 20) / 3, "spaniou@5": (20 / 40 + 10 / 20) / 3}
    )
    assert results.means["long"]["spanrecall@5"] == 1
    assert results.missing("short") == ["q3"]
    assert results.coverage["missing"] == [1, 0]
    assert results.coverage["in no chunk"] == [1, 0]
    comparison = results.compare("short").table
    assert comparison["mean_b"] == pytest.approx([1, 4 / 30, 4 / 30])
    assert "spaniou@5" in results.to_html()
    assert results.by({"q1": "x", "q2": "x", "q3": "y"})["queries"] == [2, 1] * 6


def test_chunks_of_one_table_serve_all_runs_and_cost_their_length():
    frame = polars.DataFrame(SHORT, ["chunk_id", "doc_id", "start", "end"], orient="row")
    runs = {"one": RUN, "other": {"q1": ["a", "b"], "q2": ["c"]}}
    results = tr.evaluate_spans(frame, GOLD, runs, "spanrecall@1 spanrecall@24tok spanrecall@25,40tok")
    assert results["one"].labels == ["spanrecall@1", "spanrecall@24tok", "spanrecall@25", "spanrecall@40tok"]
    assert results["one"].to_dict()["spanrecall@24tok"] == [0, 1, 0]  # b has 25 characters
    assert results["one"].to_dict()["spanrecall@40tok"] == [1, 1, 0]
    assert results["other"].to_dict()["spanrecall@24tok"] == [0.25, 1, 0]


def test_equal_scores_rank_by_id_or_row():
    run = [("q1", "a", 1.0), ("q1", "b", 1.0)]
    for ties, value in (("document", 0.75), ("rows", 0.25), (None, 0.75)):
        assert tr.evaluate_spans(SHORT, GOLD, run, "spanrecall@1", ties=ties)["run"]["spanrecall@1"][0] == value
    with pytest.raises(ValueError, match="Expected ties to be 'document' or 'rows', got 'expected'"):
        tr.evaluate_spans(SHORT, GOLD, tr.read_run(run, ties="expected"), "spanrecall@1")


def test_documents_of_score_minus_infinity_are_not_retrieved():
    run = {"q1": {"a": 1.0, "b": float("-inf")}}
    assert tr.evaluate_spans(SHORT, GOLD, run, "spanrecall@5")["run"]["spanrecall@5"][0] == 0.25


@cases(
    ("changed", "message"),
    [
        ({"measures": "recall@5"}, "Expected each measure to be one of 'spanrecall', 'spanprecision', 'spaniou'"),
        ({"measures": "spanrecall"}, "Expected a cutoff such as spanrecall@5 or spanrecall@2000tok, got 'spanrecall'"),
        ({"measures": "spanrecall@10%"}, "got 'spanrecall@10%'"),
        ({"measures": "spanrecall(x=1)@5"}, "Expected a cutoff"),
        ({"repeated": "twice"}, "Expected repeated to be one of 'once', 'each', got 'twice'"),
        ({"run": {"q1": {"z": 1.0}}}, "Expected a row in chunks for .*, got none for 'z'; add its row"),
        ({"run": {"q9": {"a": 1.0}}}, "a query of the run is 'q9', a judged query is 'q1'"),
        ({"run": {"a": RUN, "b": RUN}, "chunks": {"a": SHORT}}, "chunks for run 'b', got those of a; add them"),
        ({"gold": []}, "Expected spans of at least one query, got none"),
        ({"chunks": {"chunk": ["a"], "doc": ["doc"], "start": [0], "end": [5], "tokens": [-1]}}, "costs to be finite"),
    ],
)
def test_what_cannot_be_evaluated_is_said(changed, message):
    arguments = {"gold": GOLD, "chunks": SHORT, "run": RUN, "measures": "spanrecall@5"} | changed
    with pytest.raises(ValueError, match=message):
        tr.evaluate_spans(**arguments)


def test_evaluations_without_rankings_draw_values_and_the_others_say_so():
    results = tr.evaluate_spans(SHORT, GOLD, {"a": RUN, "b": {"q1": {"a": 1.0}}})
    assert results.plot_differences("a", "b", "spaniou@5") is not None
    assert results.plot_intervals("spaniou@5") is not None
    for draw in (results.plot_ranks, results.plot_precision_recall, lambda: results.plot_cutoffs("ndcg")):
        with pytest.raises(ValueError, match="Expected rankings to draw, got values alone; use plot_intervals"):
            draw()


def test_evaluate_names_the_function_of_these_measures():
    with pytest.raises(ValueError, match=r"got 'spaniou@5': use tr\.evaluate_spans"):
        tr.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, "ndcg spaniou@5")


def test_the_chunks_of_a_frame_that_also_names_documents_are_read():
    frame = {"query_id": ["q1", "q1"], "doc_id": ["doc", "doc"], "chunk_id": ["a", "b"], "score": [0.2, 0.9]}
    want = tr.evaluate_spans(SHORT, GOLD, {"q1": {"a": 0.2, "b": 0.9}}, ["spanrecall@1", "spaniou@2"]).means
    assert tr.evaluate_spans(SHORT, GOLD, pandas.DataFrame(frame), ["spanrecall@1", "spaniou@2"]).means == want
    with pytest.raises(TypeError, match=r"names of measures, such as 'spanrecall@5', got \{'a': 'mrr'\}"):
        tr.evaluate_spans(SHORT, GOLD, frame, {"a": "mrr"})
