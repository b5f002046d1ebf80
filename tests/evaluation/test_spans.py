"""Measures of retrieved text: the same as by sets of characters, at ranks and at budgets."""

import random
from collections import Counter

import polars
import pytest

import torchrank as tr
from tests.support.optional import pandas
from tests.tables.test_spans import drawn

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


@pytest.mark.parametrize("repeated", ["once", "each"])
def test_values_are_those_of_sets_of_characters(repeated):
    draw, compared = random.Random(1), 0
    for _ in range(100):
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
    assert compared > 100


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
    values = [tr.evaluate_spans(SHORT, GOLD, run, "spanrecall@1", ties=ties)["run"]["spanrecall@1"][0] for ties in
              ("document", "rows", None)]  # fmt: skip
    assert values == [0.75, 0.25, 0.75]
    with pytest.raises(ValueError, match="Expected ties to be 'document' or 'rows', got 'expected'"):
        tr.evaluate_spans(SHORT, GOLD, tr.read_run(run, ties="expected"), "spanrecall@1")


def test_documents_of_score_minus_infinity_are_not_retrieved():
    run = {"q1": {"a": 1.0, "b": float("-inf")}}
    assert tr.evaluate_spans(SHORT, GOLD, run, "spanrecall@5")["run"]["spanrecall@5"][0] == 0.25


@pytest.mark.parametrize(
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
