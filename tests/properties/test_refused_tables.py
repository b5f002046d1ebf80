"""Tables that are refused, each with the reason, and edges of those that are read."""

import gzip
import io
import itertools

import numpy as np
import pytest

import torchrank as tr
from tests.support.cases import cases
from torchrank.tables import sources
from torchrank.tables.files import _field

RUN = [("q1", "a", 0.5), ("q1", "b", 0.7)]


BLANKS = "q1 d1 0.5\n"
COLUMNS = {"qid": ["q"], "docno": ["d"], "score": [1.0]}
LARGE = {"qid": [1, 1], "docno": np.array([7, 2**63], np.uint64), "score": [1.0, 2.0]}
TABS = "query id\tdoc id\tscore\nq\td\t1\n"


def read(text, **options):
    return tr.read_run(io.StringIO(text), **options)


@cases(
    ("message", "call"),
    [
        ("columns to be a dictionary or three names, got 'qid'", lambda: tr.read_run(RUN, columns="qid")),
        (r"to be query, item and score, got \['a', 'b'\]", lambda: tr.read_run(RUN, columns=["a", "b"])),
        ("columns to be query, item and grade", lambda: tr.read_qrels(RUN, columns=[0, 1])),
        ("'score', 'rank', got 'itm'; did you mean 'item'", lambda: tr.read_run(RUN, columns={"itm": 1})),
        ("'grade', 'subtopic', got 'rank'", lambda: tr.read_qrels(RUN, columns={"rank": 1})),
        ("columns to number query, item and score", lambda: read(BLANKS, columns={"query": 0, "item": 1})),
        ("columns to be numbers from 0 to 2, got", lambda: read(BLANKS, columns=[0, 1, 3])),
        ("columns to be numbers from 0 to 2, got", lambda: read(BLANKS, columns=[0, 1, -1])),
        ("got ndarray; pass the name of a column", lambda: tr.read_run(COLUMNS, columns={"query": np.array(["q"])})),
        ("scor", lambda: read("qid docno score\nq d 1\n", columns={"score": "scor"})),
        ("columns query id, doc id, score, got 'topic'", lambda: read(TABS, columns={"query": "topic"})),
        ("columns query, doc, value, got", lambda: read("query doc value\nq d 1\n", columns={"score": "weight"})),
        (r"rows to be tuples \(query, document, score\), got 1; pass ", lambda: tr.read_run([1, 2])),
        (r"rows to be tuples \(query, document, score\), got 'abc'", lambda: tr.read_run(["abc"])),
        ("for query 'p'", lambda: tr.read_run({"q": {"a": 1.0}, "p": 3})),
        (r"a file with a split 'test', got \{query", lambda: read('{"q": {"a": 1.0}}', split="test")),
        (r"a file with a subset 'en', got \{query", lambda: read('{"q": {"a": 1.0}}', subset="en")),
        (r"\{query: \{document: number\}\} or rows, got \[1, 2\]", lambda: read("[1, 2]", format="json")),
        ("that int64 can hold; pass them as text", lambda: tr.read_run(LARGE)),
        ("'document', 'expected', 'rows', got 'documents'", lambda: tr.read_chunks(RUN, ties="documents")),
        ("ties to be one of 'document'", lambda: tr.read_run({"q": {"a": 1.0}}, ties="documents")),
        ("format to be one of", lambda: tr.read_chunks(RUN, format="text")),
        ("format to be one of", lambda: tr.read_run(RUN, format="text")),
        ("duplicates to be one of", lambda: tr.read_chunks(RUN, duplicates="last")),
    ],
)
def test_a_wrong_table_or_argument_is_named(message, call):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@cases(
    ("blank", "endings", "names"),
    [(" ", r"\.tsv, \.json or", ("a b", "", "a\tb", "\n")), ("", r"\.json or", ("", "a\tb", "\n"))],
)
def test_an_id_with_white_space_is_not_written_between_white_space(blank, endings, names):
    for name in names:
        with pytest.raises(ValueError, match=rf"Expected ids without white space, got .*; write {endings} \.jsonl"):
            _field(name, blank)
    assert [_field(name, blank) for name in ("a\u00a0b", 3)] == ["a\u00a0b", "3"]
    assert blank or _field("a b", blank) == "a b"


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, np.float32("nan"), "", np.str_("")], ids=repr)
@pytest.mark.parametrize("read", [tr.read_qrels, tr.read_run])
def test_a_missing_id_is_refused_in_every_source_with_its_place(read, missing):
    value = "grade" if read is tr.read_qrels else "score"
    sources = [
        ({"p": {"a": 1}, "q": {"a": 1, missing: 1}}, "document ids of query 'q' to be text.* leave it out"),
        ({"p": {"a": 1}, missing: {"a": 1}}, "query ids to be text.* leave it out"),
        ({1: {2: 1, missing: 1}}, "document ids of query 1 to be text.* leave it out"),
        ({"q": ["a", missing]}, f"document ids to be text.*'q': {'None' if missing is None else ''}"),
        ({"p": ["a"], missing: ["b"]}, "query ids to be text.* leave it out"),
        ({"q": [("a", 1), (missing, 2)]}, r"document ids to be text.*'q': \("),
        ([("q", "a", 1), ("q", missing, 1)], "row 2: .*document ids to be text"),
        ([("q", "a", 1), (missing, "a", 1)], "row 2: .*query ids to be text"),
        ([{"qid": "q", "docno": missing, value: 1}], "row 1: .*document ids to be text"),
        ({"qid": ["q", "q"], "docno": ["a", missing], value: [1, 1]}, "row 2: .*document ids to be text"),
    ]
    if value == "grade":
        sources += [([("q", "1", "a", 1), ("q", missing, "a", 1)], "row 2: .*subtopics to be text")]
    for source, message in sources:
        with pytest.raises(tr.ReadingError, match=message) as caught:
            read(source)
        assert "rows" not in str(caught.value) or not isinstance(source, dict)


@pytest.mark.parametrize("missing", [None, np.nan, ""], ids=repr)
def test_a_missing_id_is_found_in_large_dictionaries_too(missing, monkeypatch):
    monkeypatch.setattr("torchrank.tables.pair_tables.TYPED", 3)
    tables = {q: {"a": 1, "b": 0.5} for q in ("q1", "q2", "q3")}
    assert tr.read_run(tables).to_dict() == tables
    with pytest.raises(tr.ReadingError, match="document ids of query 'q3' to be text or integers, got"):
        tr.read_run(tables | {"q3": {"a": 1, missing: 1}})
    with pytest.raises(tr.ReadingError, match="query ids to be text or integers, got"):
        tr.read_run(tables | {missing: {"a": 1}})


def test_a_missing_id_of_json_or_pandas_is_refused():
    missing = pytest.importorskip("pandas").NA
    texts = ('{"q": {"": 1}}', '{"": {"a": 1}}', '{"q": [null, "a"]}', '{"q": ["", "a"]}', '{"": ["a"]}')
    tables = ({"q": {missing: 1}}, {"q": [missing]}, [("q", missing, 1)], {missing: {"a": 1}})
    for source in (*map(io.StringIO, texts), *tables):
        with pytest.raises(tr.ReadingError, match=r"ids.* to be text"):
            tr.read_run(source)


def test_a_masked_score_is_no_number():
    masked = {"qid": ["q", "q"], "docno": ["a", "b"], "score": np.ma.array([0.5, 0.25], mask=[False, True])}
    with pytest.raises(ValueError, match=r"row 2|number"):
        tr.read_run(masked)


def test_large_files_are_read_in_pieces_compressed_ones_from_a_smaller_size(tmp_path, monkeypatch):
    lines, path = b"q1 Q0 a 1 2 t\n" * 9, tmp_path / "a.run"
    assert (sources.LARGE, sources.LARGE_COMPRESSED) == (64 << 20, 16 << 20)
    for data, size in ((lines, "LARGE"), (gzip.compress(lines), "LARGE_COMPRESSED")):
        path.write_bytes(data)
        for more in (-1, 0, 1):
            with monkeypatch.context() as changed:
                changed.setattr(sources, size, len(data) + more)
                assert (sources.chunks_of_large(path) is None) == (more > 0)
    monkeypatch.setattr(sources, "LARGE", 1)
    for other in ({"q": {}}, tmp_path, tmp_path / "none"):
        assert sources.chunks_of_large(other) is None
    for text in ("\n\n  \n", '{"q": {"a": 1.0}}'):
        path.write_text(text)
        assert sources.chunks_of_large(path) is None


def test_the_largest_unsigned_integers_are_ids_up_to_those_of_int64():
    for largest in (0, 2**63 - 1):
        frame = {"qid": ["q"], "docno": np.array([largest], np.uint64), "score": [1.0]}
        assert tr.read_run(frame).to_dict() == {"q": {largest: 1.0}}
    for fits, large in itertools.product((-(2**63), 2**62), (-(2**63) - 1, 2**63)):
        message = f"Expected integer ids that int64 can hold, got {large}"
        with pytest.raises(ValueError, match=message):
            assert tr.read_run({"q": {fits: 1.0, large: 0.5}}).columns
        with pytest.raises(tr.ReadingError, match=message) as caught:
            tr.read_run({"q": [(fits, 1.0), (large, 0.5)]})
        assert caught.value.text == f"'q': ({large}, 0.5)"
    assert len(tr.read_run({"qid": [], "docno": np.array([], np.uint64), "score": []})) == 0


def test_ties_and_duplicates_of_pieces_are_those_of_a_run():
    pieces = [[("q1", "a", 0.5), ("q1", "b", 0.5)], [("q1", "a", 0.7), ("q2", "c", 1.0)]]
    with pytest.raises(ValueError, match=r"duplicate|twice"):
        list(tr.read_chunks(pieces))
    for keep, score in (("first", 0.5), ("best", 0.7)):
        found = list(tr.read_chunks(pieces, duplicates=keep, ties="expected"))
        assert [run.to_dict() for run in found] == [{"q1": {"a": score, "b": 0.5}}, {"q2": {"c": 1.0}}]
        assert {run.ties for run in found} == {"expected"}
    assert {run.ties for run in tr.read_chunks(pieces, duplicates="best")} == {"document"}
    error = [[("q1", "a", 1.0), ("q2", "a", 1.0)], [("q2", "b", 1.0), ("q3", "a", 1.0), ("q3", "a", 2.0)]]
    with pytest.raises(ValueError, match=r"q3|'a'"):
        list(tr.read_chunks(error))


@pytest.mark.parametrize("wanted", [0, 1, 2, 9])
def test_pieces_that_are_read_early_are_given_once_and_in_order(wanted, monkeypatch):
    pieces = [[("q1", "a", 0.5)], [("q2", "b", 0.5)], [("q3", "c", 0.7)]]
    read = []
    source = tr.read_chunks(read.append(number) or piece for number, piece in enumerate(pieces))
    left = iter([True] * wanted + [False])
    begun = source.begun(lambda: next(left))
    assert len(read) == min(wanted, 3)
    assert [run.to_dict() for run in begun] == [{q: {d: s}} for ((q, d, s),) in pieces]
    monkeypatch.setattr(sources, "EARLY", 2)
    read.clear()
    source = tr.read_chunks(read.append(number) or piece for number, piece in enumerate(pieces))
    assert len(list(source.begun(lambda: True))) == 3
    source = tr.read_chunks(read.append(number) or piece for number, piece in enumerate(pieces))
    read.clear()
    source.begun(lambda: True)
    assert read == [0, 1]


def test_a_class_of_frames_and_a_series_are_no_frames():
    for library in map(pytest.importorskip, ("pandas", "polars")):
        with pytest.raises(TypeError, match="Expected a path, a data frame, a dictionary or tuples, got type"):
            tr.read_run(library.DataFrame)
        with pytest.raises(tr.ReadingError, match=r"Expected rows to be tuples \(query, document, score\), got 1"):
            tr.read_run(library.Series([1, 2]))


def test_a_line_of_the_largest_length_is_read_also_after_an_empty_one(monkeypatch):
    monkeypatch.setattr("torchrank.tables.files.LONGEST_LINE", 13)
    monkeypatch.setattr("torchrank.tables.files.PIECE", 13)
    lines = b"q1 Q0 b 1 3 t\n\nq1 Q0 a 1 2 t"
    assert tr.read_run(io.BytesIO(lines)).to_dict() == {"q1": {"b": 3, "a": 2}}
    with pytest.raises(ValueError, match="Expected lines of at most 13 bytes, got a longer one"):
        tr.read_run(io.BytesIO(lines + b"t"))
