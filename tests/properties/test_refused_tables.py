"""Tables that are refused, each with the reason, and edges of those that are read."""

import gzip
import io
import itertools

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from torchrank.names.arguments import installed
from torchrank.tables import joining, pair_tables, sources
from torchrank.tables.columns import plain
from torchrank.tables.files import _field

RUN = [("q1", "a", 0.5), ("q1", "b", 0.7)]


@cases(
    ("call", "error", "message"),
    [
        (
            lambda: tr.read_run(RUN, columns="qid"),
            TypeError,
            "Expected columns to be a dictionary or three names, got 'qid'",
        ),
        (lambda: tr.read_run(RUN, columns=3), TypeError, "Expected columns to be a dictionary or three names, got 3"),
        (
            lambda: tr.read_run(RUN, columns=["a", "b"]),
            ValueError,
            r"Expected columns to be query, item and score, got \['a', 'b'\]",
        ),
        (lambda: tr.read_qrels(RUN, columns=[0, 1]), ValueError, "Expected columns to be query, item and grade"),
        (
            lambda: tr.read_run(RUN, columns={"itm": 1}),
            ValueError,
            "one of 'query', 'item', 'score', 'rank', got 'itm'; did you mean 'item'",
        ),
        (
            lambda: tr.read_qrels(RUN, columns={"rank": 1}),
            ValueError,
            "one of 'query', 'item', 'grade', 'subtopic', got 'rank'",
        ),
        (
            lambda: tr.read_run(io.BytesIO(b"q1 d1 0.5\n"), columns={"query": 0, "item": 1}),
            ValueError,
            "Expected columns to number query, item and score",
        ),
        (
            lambda: tr.read_run(io.BytesIO(b"q1 d1 0.5\n"), columns=[0, 1, 3]),
            ValueError,
            "Expected columns to be numbers from 0 to 2, got",
        ),
        (
            lambda: tr.read_run(io.BytesIO(b"q1 d1 0.5\n"), columns=[0, 1, -1]),
            ValueError,
            "Expected columns to be numbers from 0 to 2, got",
        ),
        (
            lambda: tr.read_run({"qid": ["q"], "docno": ["d"], "score": [1.0]}, columns={"query": np.array(["q"])}),
            ValueError,
            "Expected one of the columns qid, docno, score, got ndarray; pass the name of a column",
        ),
        (lambda: tr.read_run(io.BytesIO(b"qid docno score\nq d 1\n"), columns={"score": "scor"}), ValueError, "scor"),
        (
            lambda: tr.read_run([1, 2]),
            ValueError,
            r"Expected rows to be tuples \(query, document, score\), got 1; pass ",
        ),
        (lambda: tr.read_run(["abc"]), ValueError, r"Expected rows to be tuples \(query, document, score\), got 'abc'"),
        (lambda: tr.read_run({"q": {"a": 1.0}, "p": 3}), ValueError, r"for query 'p'"),
        (
            lambda: tr.read_run(io.BytesIO(b'{"q": {"a": 1.0}}'), split="test"),
            ValueError,
            r"Expected a file with a split 'test', got \{query",
        ),
        (
            lambda: tr.read_run(io.BytesIO(b'{"q": {"a": 1.0}}'), subset="en"),
            ValueError,
            r"Expected a file with a subset 'en', got \{query",
        ),
        (
            lambda: tr.read_run(io.BytesIO(b"[1, 2]"), format="json"),
            ValueError,
            r"Expected \{query: \{document: number\}\} or rows, got \[1, 2\]",
        ),
        (
            lambda: tr.read_run({"qid": [1, 1], "docno": np.array([7, 2**63], np.uint64), "score": [1.0, 2.0]}),
            ValueError,
            "that int64 can hold; pass them as text",
        ),
        (
            lambda: tr.read_chunks(RUN, ties="documents"),
            ValueError,
            "Expected ties to be one of 'document', 'expected', 'rows', got 'documents'",
        ),
        (lambda: tr.read_chunks(RUN, format="text"), ValueError, "Expected format to be one of"),
        (lambda: tr.read_run(RUN, format="text"), ValueError, "Expected format to be one of"),
        (lambda: tr.read_run({"q": {"a": 1.0}}, ties="documents"), ValueError, "Expected ties to be one of 'document'"),
        (
            lambda: tr.read_run(io.BytesIO(b"query id\tdoc id\tscore\nq\td\t1\n"), columns={"query": "topic"}),
            ValueError,
            "Expected one of the columns query id, doc id, score, got 'topic'",
        ),
        (
            lambda: tr.read_run(io.BytesIO(b"query doc value\nq d 1\n"), columns={"score": "weight"}),
            ValueError,
            "Expected one of the columns query, doc, value, got 'weight'",
        ),
        (lambda: tr.read_chunks(RUN, lines=0), ValueError, "Expected lines to be an integer >= 1, got 0"),
        (lambda: tr.read_chunks(RUN, duplicates="last"), ValueError, "Expected duplicates to be one of"),
        (
            lambda: tr.read_chunks({"q": {"a": 1.0}}),
            TypeError,
            "Expected a path or an iterable of pieces of a run, got dict",
        ),
        (lambda: tr.read_chunks(3), TypeError, "Expected a path or an iterable of pieces of a run, got int"),
    ],
)
def test_a_wrong_table_or_argument_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_an_id_with_white_space_is_not_written_between_white_space():
    for name in ("a b", "", "a\tb", "\n"):
        message = r"Expected ids without white space, got .*; write \.tsv, \.json or \.jsonl"
        with pytest.raises(ValueError, match=message):
            _field(name)
    for name in ("", "a\tb", "\n"):
        with pytest.raises(ValueError, match=r"Expected ids without white space, got .*; write \.json or \.jsonl"):
            _field(name, "")
    assert _field("a b", "") == "a b"
    assert _field("a\u00a0b") == "a\u00a0b"
    assert _field(3) == "3"


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


def test_a_missing_id_of_json_is_refused():
    for text in ('{"q": {"": 1}}', '{"": {"a": 1}}', '{"q": [null, "a"]}', '{"q": ["", "a"]}', '{"": ["a"]}'):
        with pytest.raises(tr.ReadingError, match=r"ids.* to be text"):
            tr.read_run(io.StringIO(text))


def test_na_of_pandas_is_a_missing_id():
    missing = pytest.importorskip("pandas").NA
    for source in ({"q": {missing: 1}}, {"q": [missing]}, [("q", missing, 1)], {missing: {"a": 1}}):
        with pytest.raises(tr.ReadingError, match=r"ids.* to be text.*got <NA>"):
            tr.read_run(source)


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


def test_a_line_of_a_piece_with_another_number_of_fields_is_named(tmp_path):
    path = tmp_path / "a.run"
    path.write_text("q1 Q0 a 1 2 t\nq1 Q0 b 2 1 t\nq2 a 1\nq2 b 0.5\n")
    with pytest.raises(
        ValueError, match=r"Expected 6 fields, as in the first line of the file.*line 3|line 3.*Expected 6"
    ):
        list(tr.read_chunks(path, lines=2))


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


def test_files_from_a_size_on_are_read_in_pieces_compressed_ones_from_a_smaller_one(tmp_path, monkeypatch):
    lines, path = b"q1 Q0 a 1 2 t\n" * 9, tmp_path / "a.run"
    assert (sources.LARGE, sources.LARGE_COMPRESSED) == (64 << 20, 16 << 20)
    for data, size in ((lines, "LARGE"), (gzip.compress(lines), "LARGE_COMPRESSED")):
        path.write_bytes(data)
        assert sources.chunks_of_large(path) is None
        for more in (-1, 0, 1):
            with monkeypatch.context() as changed:
                changed.setattr(sources, size, len(data) + more)
                assert (sources.chunks_of_large(path) is None) == (more > 0)


def test_small_compressed_and_blank_files_are_not_read_in_pieces(tmp_path, monkeypatch):
    path = tmp_path / "a.run"
    path.write_text("q1 Q0 a 1 2 t\n" * 1)
    assert sources.chunks_of_large(path) is None
    monkeypatch.setattr(sources, "LARGE_COMPRESSED", 1)
    assert sources.chunks_of_large(path) is None
    monkeypatch.setattr(sources, "LARGE", 1)
    assert sources.chunks_of_large(path).automatic
    assert sources.chunks_of_large(str(path)).automatic
    assert not tr.read_chunks(path).automatic
    assert sources.chunks_of_large({"q": {}}) is None
    assert sources.chunks_of_large(tmp_path) is None
    assert sources.chunks_of_large(tmp_path / "none") is None
    for text in ("\n\n  \n", '{"q": {"a": 1.0}}'):
        path.write_text(text)
        assert sources.chunks_of_large(path) is None


def test_masked_arrays_and_tensors_are_columns():
    scores = np.ma.array([0.5, 0.25], mask=[False, False])
    for column in (
        scores,
        torch.tensor([0.5, 0.25], requires_grad=True),
        [0.5, 0.25],
        (0.5, 0.25),
        np.array([0.5, 0.25]),
    ):
        assert tr.read_run({"qid": ["q", "q"], "docno": ["a", "b"], "score": column}).to_dict() == {
            "q": {"a": 0.5, "b": 0.25}
        }
    masked = {"qid": ["q", "q"], "docno": ["a", "b"], "score": np.ma.array([0.5, 0.25], mask=[False, True])}
    with pytest.raises(ValueError, match=r"row 2|number"):
        tr.read_run(masked)


def test_ranks_of_one_frame_are_descending_scores():
    frame = {"qid": ["x", "x", "y"], "docno": ["a", "b", "c"], "rank": [2, 1, 1], "label": [1, 0, 1]}
    assert tr.MRR().score(tr.Ranking.from_table(frame)).tolist() == [0.5, 1]
    scored = {"qid": ["x", "x", "y"], "score": [0.2, 0.3, 0.1], "label": [1, 0, 1]}  # without ids of documents
    assert tr.MRR().score(tr.Ranking.from_table(scored)).tolist() == [0.5, 1]
    assert tr.Ranking.from_table(scored).num_candidates.tolist() == [2, 1]


def test_ids_of_other_kinds_are_never_equal():
    texts, numbers = pair_tables.TextIds.of(["1", "2"]), pair_tables.NumberIds(np.array([1, 2]))
    assert texts.equals(numbers).tolist() == numbers.equals(texts).tolist() == [False, False]
    assert texts.equals(pair_tables.TextIds.of(["1", "3"])).tolist() == [True, False]
    assert numbers.equals(pair_tables.NumberIds(np.array([1, 3]))).tolist() == [True, False]
    long = ["x" * size + "y" for size in range(1, 40)]
    other = [text[:-1] + ("z" if n % 2 else "y") for n, text in enumerate(long)]
    found = pair_tables.TextIds.of(long).equals(pair_tables.TextIds.of(other)).tolist()
    assert found == [a == b for a, b in zip(long, other)]
    hashes = pair_tables.TextIds.of(long + long).hashes()
    assert len(set(hashes.tolist())) == len(long)
    assert hashes[: len(long)].tolist() == hashes[len(long) :].tolist()


def test_a_class_of_frames_and_a_series_are_no_frames():
    for library in map(pytest.importorskip, ("pandas", "polars")):
        with pytest.raises(TypeError, match="Expected a path, a data frame, a dictionary or tuples, got type"):
            tr.read_run(library.DataFrame)
        with pytest.raises(tr.ReadingError, match=r"Expected rows to be tuples \(query, document, score\), got 1"):
            tr.read_run(library.Series([1, 2]))


def test_the_grades_of_a_parent_are_the_largest_of_its_parts_and_all_subtopics_stay():
    rows = [
        ("q", "1", "a#1", 1),
        ("q", "1", "a#2", 3),
        ("q", "2", "a#1", 2),
        ("q", "2", "b#1", 1),
        ("p", "1", "a#1", 1),
    ]
    for form in (rows, [(q, document, grade) for q, subtopic, document, grade in rows if subtopic == "1"]):
        qrels = tr.read_qrels(form)
        assert qrels.by_parent(None) is qrels
        found = qrels.by_parent("#")
        assert found.to_dict() == {"q": {"a": 3, **({"b": 1} if form is rows else {})}, "p": {"a": 1}}
        if form is rows:
            grades = dict(zip(zip(found.query.tolist(), found.items.tolist()), found.subtopics.tolist()))
            assert grades == {(0, "a"): [3, 2], (0, "b"): [0, 1], (1, "a"): [1, 0]}
    unjudged = tr.read_run([("q", "a#1", -0.5), ("q", "a#2", -2), ("q", "b", -3)]).by_parent("#")
    assert unjudged.to_dict() == {"q": {"a": -0.5, "b": -3}}
    by_name, of_function = ({"a#1": "b", "a#2": "c"}, lambda name: name[0])
    assert tr.read_qrels(rows[:2]).by_parent(by_name).to_dict() == {"q": {"b": 1, "c": 3}}
    assert tr.read_qrels(rows[:2]).by_parent(of_function).to_dict() == {"q": {"a": 3}}
    with pytest.raises(TypeError, match=r"Expected parent to be a separator .* got 3"):
        tr.read_qrels(rows).by_parent(3)


def test_hashes_of_similar_ids_are_different_in_all_their_bits():
    texts = [f"{'x' * (size - 5)}{n:05}{'y' * (n % 3)}" for size in (5, 8, 13, 21) for n in range(2500)]
    powers = [sign << power for power in range(61) for sign in (1, -1, 3, 5)]
    for ids in (texts, [text[::-1] for text in texts], list(range(-5000, 5000)), powers):
        column = pair_tables.ids_of(ids)
        for query in (np.zeros(len(ids), np.int32), np.arange(len(ids))):
            for hashes in (column.hashes(), pair_tables.pair_hashes(query, column)):
                assert len(np.unique(hashes)) == len(set(ids))
                for shift in (0, 24, 48):  # 16 bits each, of which random numbers take the expected share
                    few = len(np.unique((hashes >> np.uint64(shift)) & np.uint64(0xFFFF)))
                    expected = 65536 * (1 - (1 - 1 / 65536) ** len(ids))
                    assert abs(few - expected) < 0.05 * expected, (ids[:2], shift)


def test_few_documents_without_a_judgment_are_compared():
    draw = np.random.default_rng(0)
    among = draw.integers(0, 2**64, 100_000, dtype=np.uint64)
    for judged, share in ((63, 32), (64, 64), (2**18, 64), (2**19, 32)):  # a judged document in so many places
        hashes = draw.choice(among, judged) if judged < 100 else draw.integers(0, 2**64, judged, dtype=np.uint64)
        rows = joining._candidates(hashes, among)
        assert np.isin(np.flatnonzero(np.isin(among, hashes)), rows).all()
        assert len(rows) == pytest.approx(len(among) / share, rel=0.3), judged


def test_columns_of_text_of_other_libraries_are_read_without_objects_or_not_at_all():
    polars, pyarrow, pandas = (pytest.importorskip(name) for name in ("polars", "pyarrow", "pandas"))
    texts = ["b", "", "ä", "b"]
    good = [
        polars.Series(texts),
        polars.Series(texts, dtype=polars.Categorical),
        polars.Series(texts, dtype=polars.Enum(["b", "", "ä"])),
        pyarrow.chunked_array([texts[:1], texts[1:]]),
        pyarrow.chunked_array([texts]).cast(pyarrow.large_string()),
        pyarrow.chunked_array([["x", *texts]]).slice(1),
        pyarrow.chunked_array([pyarrow.array(texts).dictionary_encode()]),
        pandas.Series(texts, dtype="category"),
        pandas.Series(texts, dtype=pandas.ArrowDtype(pyarrow.string())),
    ]
    for column in good:
        found = plain(column)
        assert isinstance(found, pair_tables.TextIds), column
        assert found.tolist() == texts, column
    assert plain(pyarrow.chunked_array([["", ""]])).tolist() == ["", ""]
    for column in (polars.Series(["a", None]), pyarrow.chunked_array([["a", None]]), pandas.Series(["a", None])):
        assert plain(column) == ["a", None]
    assert plain(pandas.Series([1, "a"], dtype="category")) == [1, "a"]
    assert not installed("no_such_package_at_all")
    assert installed("json")


def test_grades_and_scores_are_those_that_were_given():
    assert tr.read_qrels({"q": {"a": 2, "b": -1}}).grades.tolist() == [2, -1]
    assert tr.read_run({"q": {"a": 2.5, "b": -1}}).scores.tolist() == [2.5, -1]


def test_a_line_of_the_largest_length_is_read_also_after_an_empty_one(monkeypatch):
    monkeypatch.setattr("torchrank.tables.files.LONGEST_LINE", 13)
    monkeypatch.setattr("torchrank.tables.files.PIECE", 13)
    lines = b"q1 Q0 b 1 3 t\n\nq1 Q0 a 1 2 t"
    assert tr.read_run(io.BytesIO(lines)).to_dict() == {"q1": {"b": 3, "a": 2}}
    with pytest.raises(ValueError, match="Expected lines of at most 13 bytes, got a longer one"):
        tr.read_run(io.BytesIO(lines + b"t"))
