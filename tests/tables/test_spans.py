"""Judgments of spans: the same as by sets of characters, whatever chunks overlap or contain."""

import random

import polars
import pytest

import torchrank as tr

SHARES = {
    "smaller": lambda chunk, span: min(len(chunk), len(span)),
    "span": lambda chunk, span: len(span),
    "chunk": lambda chunk, span: len(chunk),
    "union": lambda chunk, span: len(chunk | span),
}
CHUNKS = [("a", "doc", 0, 15), ("b", "doc", 15, 40), ("c", "other", 0, 9)]
GOLD = [("q1", "doc", 10, 30)]


def drawn(draw, most=12):
    """Chunks that overlap and contain each other, and spans of three documents."""

    def span():
        start = draw.randrange(30)
        return draw.choice("xyz"), start, start + draw.randrange(1, 12)

    chunks = [(f"c{n}", *span()) for n in range(draw.randrange(1, most))]
    return chunks, [(f"q{draw.randrange(3)}", *span()) for _ in range(draw.randrange(1, most))]


def by_characters(chunks, gold, share):
    """The share of each chunk and query, from sets of characters."""
    judged = {query: {} for query, *_ in gold}
    for query, document, start, end in gold:
        for chunk, of_chunk, first, last in chunks:
            text, span = set(range(first, last)), set(range(start, end))
            if document == of_chunk and text & span:
                value = len(text & span) / SHARES[share](text, span)
                judged[query][chunk] = max(judged[query].get(chunk, 0), value)
    return judged


@pytest.mark.parametrize("share", SHARES)
def test_shares_are_those_of_sets_of_characters(share):
    draw, compared = random.Random(0), 0
    for _ in range(100):
        chunks, gold = drawn(draw)
        if not {span[1] for span in gold} & {chunk[1] for chunk in chunks}:
            continue
        expected = by_characters(chunks, gold, share)
        assert tr.judge_spans(chunks, gold, grade="overlap", share=share).to_dict() == expected
        above = {query: {chunk: float(s >= 0.4) for chunk, s in each.items()} for query, each in expected.items()}
        assert tr.judge_spans(chunks, gold, grade=0.4, share=share).to_dict() == above
        compared += sum(map(len, expected.values()))
    assert compared > 300


def test_a_long_chunk_that_touches_a_span_is_not_relevant_and_one_that_contains_it_is():
    chunks = [("touches", "doc", 0, 1000), ("contains", "doc", 1000, 3000), ("inside", "doc", 1010, 1020)]
    gold = [("q", "doc", 990, 1090)]
    assert tr.judge_spans(chunks, gold, grade=0.5).to_dict() == {"q": {"touches": 0, "contains": 1, "inside": 1}}
    assert tr.judge_spans(chunks, gold, grade=0.5, share="span").to_dict()["q"]["inside"] == 0
    assert tr.judge_spans(chunks, gold, grade=0.5, share="chunk").to_dict()["q"]["contains"] == 0


def test_the_spans_of_a_query_are_its_subtopics():
    gold = [("q", "doc", 0, 10), ("q", "doc", 20, 30), ("q", "doc", 32, 40)]
    qrels = tr.judge_spans(CHUNKS, gold, grade=0.5)
    assert qrels.subtopics.tolist() == [[1, 0, 0], [0, 1, 1]]
    run = {"q": {"b": 2.0, "a": 1.0}}
    assert tr.evaluate(qrels, run, "strecall@1 strecall@2").means["run"] == {"strecall@1": 2 / 3, "strecall@2": 1.0}


def test_more_spans_than_subtopics_are_judged_by_the_best():
    gold = [("q", "doc", start, start + 20) for start in range(150)]
    qrels = tr.judge_spans(CHUNKS, gold, grade="overlap")
    assert qrels.subtopics is None
    assert qrels.to_dict() == by_characters(CHUNKS, gold, "smaller")


@pytest.mark.parametrize("run", [{"q1": {"b": 1.0}, "q2": {"c": 1.0}}, {"q1": {"b": 1.0}}])
@pytest.mark.parametrize("spans", [GOLD, [*GOLD, ("q1", "doc", 0, 2)]])
def test_a_query_whose_span_no_chunk_has_counts_and_is_empty(run, spans):
    qrels = tr.judge_spans(CHUNKS, [*spans, ("q2", "lost", 0, 5)], grade=0.5)
    results = tr.evaluate(qrels, run, "hitrate@1 strecall@1 ndcg@5")
    assert results["run"].ids.tolist() == ["q1", "q2"]
    assert results["run"]["hitrate@1"].tolist() == [1, 0]
    assert results["run"]["ndcg@5"][1] == results["run"]["strecall@1"][1] == 0


def test_frames_of_other_libraries_are_read_by_their_names():
    wanted = tr.judge_spans(CHUNKS, GOLD, grade="overlap").to_dict()
    chunk, document, start, end = map(list, zip(*CHUNKS))
    llama = polars.DataFrame({"node_id": chunk, "doc_id": document, "start_char_idx": start, "end_char_idx": end})
    gold = polars.DataFrame(GOLD, ["qid", "document", "start_index", "end_index"], orient="row")
    assert tr.judge_spans(llama, gold, grade="overlap").to_dict() == wanted
    records = [dict(zip(("chunk_id", "doc_id", "start", "end"), row)) for row in CHUNKS]
    assert tr.judge_spans(records, gold.to_pandas(), grade="overlap").to_dict() == wanted
    assert tr.judge_spans([*map(list, CHUNKS)], tuple(GOLD), grade="overlap").to_dict() == wanted


def test_integer_ids_stay_integers():
    qrels = tr.judge_spans([(7, 1, 0, 4), (8, 1, 4, 8)], [(3, 1, 2, 5)], grade=0.5)
    assert qrels.to_dict() == {3: {7: 1.0, 8: 0.0}}  # 2 of 3, and 1 of 3 positions


@pytest.mark.parametrize(
    ("chunks", "gold", "options", "message"),
    [
        (CHUNKS, GOLD, {"grade": 0}, "Expected grade to be 'overlap' or a threshold, 0 < threshold <= 1, got 0"),
        (CHUNKS, GOLD, {"share": "gold"}, "Expected share to be one of 'smaller', 'span'"),
        (CHUNKS, [("q1", "else", 1, 2)], {}, "a chunk is in 'doc', a span in 'else'; use the same ids in both"),
        ([("a", 1, 0, 5)], [("q1", "1", 1, 2)], {}, "a chunk is in 1, a span in '1'; use the same ids"),
        ([*CHUNKS, ("a", "x", 0, 1)], GOLD, {}, "<chunks>, row 4: Expected every chunk once, got 'a' again"),
        (CHUNKS, [("q1", "doc", 5, 5)], {}, "<spans>, row 1: Expected integers from the start .*, 0 <= start < end"),
        (CHUNKS, [("q1", "doc", -1, 5)], {}, "got -1 and 5"),
        (CHUNKS, [("q1", "doc", 0.5, 5)], {}, "got 0.5 and 5"),
        (CHUNKS, [("q1", "doc", 0, float("nan"))], {}, "got 0 and nan"),
        (CHUNKS, [("q1", "doc", 0, 2**36)], {}, r"< 2\*\*36, where end is .*, got 0 and 6.87195e"),
        (CHUNKS, [("q1", None, 0, 5)], {}, "got None; leave out missing ids"),
        (CHUNKS, [("q1", "doc", 5)], {}, r"Expected rows \(query, document, start, end\), or a frame"),
        (CHUNKS, {"qid": ["q1"], "doc_id": ["doc"], "start": [1]}, {}, "Expected a column of ends named like end"),
    ],
)
def test_what_cannot_be_judged_is_said(chunks, gold, options, message):
    with pytest.raises(ValueError, match=message):
        tr.judge_spans(chunks, gold, **{"grade": 0.5, **options})
