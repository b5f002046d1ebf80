"""Judgments and runs are read from every source, or refused by an error that names the place."""

import base64
import csv
import gzip
import io
import json
import math
import re
import sys
import types
import zlib
from collections import namedtuple
from typing import get_args

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.awkward_ids import IDS
from tests.support.optional import pandas
from torchrank.tables import files
from torchrank.tables.files import FORMATS, WRITERS, Format
from torchrank.tables.pair_tables import shorten

RUN = "q1 Q0 d2 1 0.75 tag\nq1 Q0 d1 2 0.5 tag\nq2 Q0 d1 1 -1e-3 tag\n"
RUN_DICT = {"q1": {"d2": 0.75, "d1": 0.5}, "q2": {"d1": -0.001}}
QRELS = "q1 0 d1 1\nq1 0 d2 0\nq2 0 d9 -1\n"
QRELS_DICT = {"q1": {"d1": 1, "d2": 0}, "q2": {"d9": -1}}


def run_of(text, **options):
    return tr.read_run(io.BytesIO(text if isinstance(text, bytes) else text.encode()), **options).to_dict()


def qrels_of(text, **options):
    return tr.read_qrels(io.BytesIO(text if isinstance(text, bytes) else text.encode()), **options).to_dict()


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace(" tag", ""),
        lambda text: text.replace(" ", "\t"),
        lambda text: text.replace(" ", "  \t ").replace("q", " q"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", " \n\n \t\n"),
        lambda text: "\n\r\n" + text,
        lambda text: text.rstrip("\n"),
        lambda text: "\ufeff" + text,
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(("\ufeff" + text).encode()),
    ],
)
def test_white_space_compression_and_a_byte_order_mark_change_nothing(change):
    assert run_of(change(RUN)) == RUN_DICT
    assert qrels_of(change(QRELS)) == QRELS_DICT


def test_a_path_a_path_object_and_standard_input_are_read(tmp_path, monkeypatch):
    path = tmp_path / "with blank.gz"  # the ending says gzip, the content is text
    path.write_text(RUN)
    assert tr.read_run(path).to_dict() == tr.read_run(str(path)).to_dict() == RUN_DICT
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(QRELS.encode())))
    qrels = tr.read_qrels("-")
    assert qrels.to_dict() == QRELS_DICT
    assert repr(qrels) == "Qrels(queries=2, rows=3, source='<stdin>')"
    with pytest.raises(FileNotFoundError):
        tr.read_run(tmp_path / "none")


STRANGE = [*IDS, '"a"', "'b", "a,b", "\\t"]


def test_strange_ids_are_kept_byte_for_byte():
    strange = {name: {other: float(n) for n, other in enumerate(STRANGE)} for name in STRANGE}
    lines = [f"{q} Q0 {d} 0 {score} {d}" for q, docs in strange.items() for d, score in docs.items()]
    assert run_of("\n".join(lines)) == strange
    lines = [f"{q}\t0\t{d}\t{grade:.0f}" for q, docs in strange.items() for d, grade in docs.items()]
    assert qrels_of("\n".join(lines)) == strange
    header = ["query-id\tcorpus-id\tscore", *(f"{q}\t{d}\t{s}" for q, docs in strange.items() for d, s in docs.items())]
    assert qrels_of("\n".join(header)) == run_of("\n".join(header)) == strange
    records = [{"qid": q, "docno": d, "score": s} for q, docs in strange.items() for d, s in docs.items()]
    assert run_of("\n".join(map(json.dumps, records))) == strange
    assert tr.read_run(pandas.DataFrame(records)).to_dict() == strange
    assert tr.read_run(records).to_dict() == strange
    assert run_of(json.dumps(strange)) == strange


def as_csv(rows, **options):
    text = io.StringIO()
    csv.writer(text, **options).writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("options", [{}, {"quoting": csv.QUOTE_ALL}, {"lineterminator": "\n"}], ids=repr)
def test_fields_between_commas_are_those_of_the_csv_module(options):
    rows = [(q, d, float(n), 'a, "text"\nof\ttwo lines' * (n % 2)) for q in STRANGE for n, d in enumerate(STRANGE)]
    want = {q: {d: float(n) for n, d in enumerate(STRANGE)} for q in STRANGE}
    for header in (["qid", "docno", "score", "text"], ["Query ID", "doc id", "sim", "note"]):
        assert run_of(as_csv([header, *rows], **options)) == want
        assert run_of(gzip.compress(("\ufeff" + as_csv([header, *rows], **options)).encode())) == want
    assert qrels_of(as_csv([["x", "text", "rel", "doc", "query"]] + [(0, "", n, d, q) for q, d, n, _ in rows])) == want
    assert run_of(as_csv([("who", "what", "p"), ("q", "d", 2)]), columns=["who", "what", "p"]) == {"q": {"d": 2}}
    assert run_of(as_csv([("q", "x", 2, "d")]), columns={"query": 0, "item": 3, "score": 2}) == {"q": {"d": 2}}
    assert run_of(as_csv([("qid", "pid", "rank"), ("q", "d", 2)])) == {"q": {"d": -2}}
    assert run_of("# a comment, with a comma\nqid,docno,score\n") == {}
    with pytest.warns(UserWarning, match="no grades: each pair is relevant"):
        assert qrels_of("user_id,movie_id,timestamp\nq,d,3\n") == {"q": {"d": 1}}


def test_ids_with_commas_do_not_make_a_file_of_commas():
    for q, d in (("user,item", "a,b"), ("q", "user,item,score"), ("a,b", "c")):
        assert run_of(f"{q} Q0 {d} 1 0.5 t\n{q} Q0 x 2 0.25 t") == {q: {d: 0.5, "x": 0.25}}
        assert qrels_of(f"{q}\t0\t{d}\t1\n") == qrels_of(f"{q}\t{d}\t1\n") == {q: {d: 1}}


def test_rows_in_a_list_of_json_are_read_as_in_python():
    rows = [(q, d, float(n)) for q in STRANGE for n, d in enumerate(STRANGE)]
    want = {q: {d: float(n) for n, d in enumerate(STRANGE)} for q in STRANGE}
    assert run_of(json.dumps(rows)) == qrels_of(json.dumps(rows)) == want
    assert run_of(json.dumps([{"qid": q, "docno": d, "score": s} for q, d, s in rows], indent=1)) == want
    assert qrels_of(json.dumps([{"qid": 7, "pid": 8, "label": 2}])) == {7: {8: 2}}
    assert run_of("[]") == {}
    with pytest.raises(tr.ReadingError, match="row 2: Expected 3 fields, as in the first row"):
        run_of('[["q", "d", 1], ["q", "e"]]')
    with pytest.raises(tr.ReadingError, match="row 2: Expected score to be a number, got None: \"'q', 'e', None\""):
        run_of('[{"qid": "q", "docid": "d", "score": 1}, {"qid": "q", "docid": "e"}]')
    with pytest.raises(tr.ReadingError, match=r"row 2: Expected a dictionary in each row: .\['q', 'e', 2\]"):
        run_of('[{"qid": "q", "docid": "d", "score": 1}, ["q", "e", 2]]')


BLANKED = ["a", "b 1", "0", "x  y", "1 0 d", "q 0"]


@pytest.mark.parametrize("first", BLANKED)
@pytest.mark.parametrize("query", BLANKED)
def test_ids_with_blanks_between_tabs_are_read_in_any_file_of_tabs(query, first, tmp_path):
    docs = [first, *(doc for doc in BLANKED if doc != first)]
    run = {query: {doc: -float(rank) for rank, doc in enumerate(docs, 1)}}
    forms = ["{q}\tQ0\t{d}\t{r}\t-{r}\ttag", "{q}\tq0\t{d}\t{r}\t-{r}"]
    forms += ["{q}\t{d}\t{r}\t-{r}", "{q}\t{d}\t{r}"] * (query[1:3] != " 0")  # the second field of TREC
    for form in forms:
        text = "".join(form.format(q=query, d=doc, r=rank) + "\n" for rank, doc in enumerate(docs, 1))
        assert run_of(text) == run_of(text.replace("\n", "\r\n")) == run, text
        (tmp_path / "a.run").write_text(text)
        chunks = list(tr.read_chunks(tmp_path / "a.run", lines=3))
        assert {doc: score for chunk in chunks for doc, score in chunk.to_dict()[query].items()} == run[query]
    for form in ("{q}\t0\t{d}\t{r}", *["{q}\t{d}\t{r}"] * (query[1:3] != " 0")):
        text = "".join(form.format(q=query, d=doc, r=rank) + "\n" for rank, doc in enumerate(docs, 1))
        assert qrels_of(text) == {query: {doc: rank for rank, doc in enumerate(docs, 1)}}, text


def test_tabs_beside_blanks_stay_white_space():
    for text in ("q\t0 d 1\n", "q 0 d\t1\n", "q\t\t0\td 1\n"):
        assert qrels_of(text) == {"q": {"d": 1}}, text
    for text in ("q Q0\td\t1\t0.5 t\n", "q Q0\td\t1\t0.5\tt\n", "q\tQ0 d 1 0.5\tt\n", " q\tQ0\td\t1\t0.5\tt \n"):
        assert run_of(text) == {"q": {"d": 0.5}}, text


def test_a_line_that_has_known_fields_between_tabs_and_between_blanks_is_refused():
    for text, reader, by_blanks, by_tabs in (
        ("q 0\td\t1\n", qrels_of, {"q": {"d": 1}}, {"q 0": {"d": 1}}),
        ("q 0\td 1\t1\t0.5\n", run_of, {"q": {"d": 1}}, {"q 0": {"d 1": 0.5}}),
    ):
        with pytest.raises(tr.ReadingError, match="between tabs or between blanks, got both; use one of them, or read"):
            reader(text)
        assert (reader(text, format="trec"), reader(text, format="tsv")) == (by_blanks, by_tabs)


def test_files_of_colbert_have_ranks_and_scores(tmp_path, monkeypatch):
    run = {str(q): {f"{100 * q + r}": 30 - r // 2 * 0.25 for r in range(20)} for q in (3, 1, 2)}
    for least in (0, 1):  # the first rank
        rows = [(q, d, r, s) for q, docs in run.items() for r, (d, s) in enumerate(docs.items(), least)]
        path = tmp_path / "ranking.tsv"
        path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
        assert tr.read_run(path).to_dict() == run
        for lines in (1, 7, 1000):
            pieces = [chunk.to_dict() for chunk in tr.read_chunks(path, lines=lines)]
            assert {q: docs for piece in pieces for q, docs in piece.items()} == run
    for column in range(1, 4):  # neither in another order of columns, nor as judgments of integer documents
        text = "".join("\t".join(map(str, (row[0], *row[1 + column :], *row[1 : 1 + column]))) + "\n" for row in rows)
        if column < 3:
            with pytest.raises(tr.ReadingError, match="four fields between tabs"):
                run_of(text)
    with pytest.raises(tr.ReadingError, match="four fields between tabs"):
        run_of("".join(f"{q}\t0\t{d}\t1\n" for q, docs in run.items() for d in [*docs][:1]))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("inf", math.inf), ("-Infinity", -math.inf), ("1e400", math.inf), ("1e-400", 0.0), ("-0.0", 0.0)],
        *[(".5", 0.5), ("5.", 5.0), ("+1e-3", 0.001), ("0." + "0" * 40 + "1", 1e-41)],
    ],
)
def test_scores_are_the_nearest_doubles(text, value):
    assert run_of(f"q 0 a 1 {text} t\nq 0 b 1 0.1 t")["q"] == {"a": value, "b": 0.1}


def test_scores_of_17_digits_come_back():
    scores = np.random.default_rng(0).standard_normal(500) * 10.0 ** np.arange(-250, 250)
    text = "".join(f"q Q0 d{n} 0 {score!r}\n" for n, score in enumerate(scores.tolist()))
    assert list(run_of(text)["q"].values()) == scores.tolist()


# Integers, some equal, of which float64 cannot tell most apart.
LARGE = [2**53 + n % 3 for n in range(5)] + [17 * 10**17 + 5 * n for n in range(9)] + [2**63 - 1, 2**53 - 1]
LARGE += [-score for score in LARGE] + [0, 7, -(2**63)]
ROWS = [("q", f"d{n}", score) for n, score in enumerate(LARGE)]
SOURCES = {
    "dictionary": lambda: {"q": {doc: score for _, doc, score in ROWS}},
    "pairs": lambda: {"q": [row[1:] for row in ROWS]},
    "tuples": lambda: ROWS,
    "columns": lambda: dict(zip(("qid", "docno", "score"), map(list, zip(*ROWS)))),
    "halves": lambda: {**SOURCES["columns"](), "score": [2.5, *LARGE[1:]]},
    "arrays": lambda: {name: np.array(column) for name, column in SOURCES["columns"]().items()},
    "unsigned": lambda: {**SOURCES["columns"](), "score": np.array([score + 2**63 for score in LARGE], np.uint64)},
    "longdouble": lambda: {**SOURCES["columns"](), "score": np.array(LARGE, np.longdouble) / 2**60},
    "tensors": lambda: {**SOURCES["columns"](), "score": torch.tensor(LARGE)},
    "pandas": lambda: pandas.DataFrame(SOURCES["columns"]()),
    "polars": lambda: pytest.importorskip("polars").DataFrame(SOURCES["columns"]()),
    "pyarrow": lambda: pytest.importorskip("pyarrow").table(SOURCES["columns"]()),
    "json": lambda: io.StringIO(json.dumps(SOURCES["dictionary"]())),
    "json lines": lambda: io.StringIO("\n".join(json.dumps({"qid": q, "docno": d, "score": s}) for q, d, s in ROWS)),
    "trec": lambda: io.StringIO("".join(f"{q} Q0 {doc} 1 {score} t\n" for q, doc, score in ROWS)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_numbers_that_float64_cannot_tell_apart_keep_their_order(source):
    if source == "longdouble" and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("longdouble is float64 here")
    exact = np.array([2.5, *LARGE[1:]] if source == "halves" else LARGE, dtype=object)
    found, order = tr.read_run(SOURCES[source]()), signs(exact)
    assert np.array_equal(signs(found.scores.tolist()), order)
    if source not in ("unsigned", "longdouble"):
        assert found.scores.tolist() == pytest.approx(exact.astype(float).tolist(), rel=1e-14)
    ranks = 1 + (order < 0).sum(1) + ((order == 0).sum(1) - 1) / 2
    for row in range(0, len(exact), 5):
        means = tr.evaluate({"q": {f"d{row}": 1}}, SOURCES[source](), "mr", ties="expected").means["run"]
        assert means["mr"] == ranks[row]


def signs(numbers):
    return np.array([[(one > other) - (one < other) for other in numbers] for one in numbers])


@pytest.mark.parametrize("format", ["auto", "tsv"])
def test_tables_between_tabs_have_a_header_or_the_columns_of_ms_marco(format):
    assert qrels_of("query-id\tcorpus-id\tscore\r\nq 1\td 1\t2\r\n", format=format) == {"q 1": {"d 1": 2}}
    assert qrels_of("query-id\tcorpus-id\tscore\r\nq\r\td\r\t2\r\n", format=format) == {"q\r": {"d\r": 2}}
    assert run_of("score\tdoc_id\tother\tqid\n0.5\td\t\u00a0x\tq\n", format=format) == {"q": {"d": 0.5}}
    assert run_of("7\td1\t1\n7\td2\t2\n", format=format) == {"7": {"d1": -1, "d2": -2}}
    assert qrels_of("7\t0\td1\t1\n", format=format) == qrels_of("7\td1\t1\n", format=format) == {"7": {"d1": 1}}


def test_columns_are_chosen_by_name_or_number():
    assert run_of("q d 0.5 x\n", columns={"query": 0, "item": 1, "score": 2}) == {"q": {"d": 0.5}}  # fmt: skip
    assert run_of("0.5 d q\n", columns=[2, 1, 0]) == {"q": {"d": 0.5}}
    assert run_of("a b c\n0.5 d q\n", columns=["c", "b", "a"]) == {"q": {"d": 0.5}}
    assert run_of("q d 3\n", columns={"query": 0, "item": 1, "rank": 2}) == {"q": {"d": -3}}
    frame = pandas.DataFrame({"who": [1], "movie": [2], "p": [0.5], "rank": [9]})
    assert tr.read_run(frame, columns={"query": "who", "item": "movie", "score": "p"}).to_dict() == {1: {2: 0.5}}
    with pytest.raises(tr.ReadingError, match=r"one of the columns who, movie, p, rank, got 'pp'"):
        tr.read_run(frame, columns=["who", "movie", "pp"])
    with pytest.raises(ValueError, match="one of 'query', 'item', 'grade', 'subtopic', got 'score'"):
        tr.read_qrels(frame, columns={"score": "p"})


RECORD = '{"qid": "a", "docid": "b", "score": 1}\n'


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("q Q0 d 1 0.5 t\nq Q0 e 2 0.4\n", 2, "6 fields between white space, as in the first line, got 5: 'q Q0"),
        ("q Q0 d 1 0.5 t\nq Q0 e 2 0.4 0.4 t\nq Q0 f 3 0.3\n", 2, "got 7"),
        ("q Q0 d 1 0.5\nq Q0 e 2 half\n", 2, "score to be a number, got 'half': 'q Q0 e 2 half'"),
        ("q Q0 d 1 0.5\nq Q0 e 2 nan\n", 2, "number, got 'nan'"),
        ("q Q0 d 1 0.5\nq Q0 e 2 " + "1" * 50 + "x\n", 2, "number, got '1111"),
        ("q Q0 d 1 0.5\np Q0 d 1 0.5\nq Q0 d 3 0.4\n", 3, "first in line 1; pass duplicates='first' or 'best': 'q Q0"),
        ("q Q0 d 1 0.5\nq Q0 \x1bd 1 0.5\n", 2, "control character 0x1b"),
        ("qid,docid,score\nq,d,1\n\nq,e\n", 4, "Expected 3 fields between commas, as in the first line, got 2: 'q,e'"),
        ('qid,docid,score\nq,"d\n1",1\nq,d,1\n', 2, "3 fields between tabs, as in the first line, got 2"),
        ('qid,docid,score\nq,d,1\nq,"d"x,1\n', 3, "Expected fields between commas, got"),
        ("qid,docid,score\nq,d,1\nq,d,2\n", 3, "got document 'd' of query 'q' twice, first in line 2"),
        ("qid,docid,score\nq,,1\n", 2, "got an empty one"),
        ("q\ta\t1\t3\nq\tb\t1.5\t2\n", 2, "four fields between tabs"),
        ("q\ta\t1\t3\np\tb\t2\t2\n", 2, "four fields between tabs"),
        ("\tq d 1\n", 1, "got 3; read it by tr.read_run(source, columns="),
        ("q\td\t1\nq\te\t1\n", 2, "the third field to be a rank"),
        (RECORD + '{"qid": "a", "docid": "c"}\n', 2, "Expected score to be a number, got None"),
        (RECORD + '{"qid": "a", "score": 1}\n', 2, "Expected document ids to be text, got None; leave out missing ids"),
        (RECORD + '{"qid": 1, "docid": "c", "score": 1}\n', 2, "query ids to be text, got 1 of type int"),
        (RECORD + '{"qid": "a", "docid": "c", "score": NaN}\n', 2, "score to be a number, got NaN"),
        (RECORD + '{"qid": "a", "doc\n', 2, "Expected JSON, got"),
        ('{"q":\n {"d": 1,}}', 2, "Expected JSON, got"),
        ('{"q": {"d": null}}', None, "score to be a number, got None for document 'd' of query 'q'"),
        ('{"q": {"d": {"x": 1}}, "p": {"d": 1}}', None, "one of q, p, got None; read it by tr.read_run(source, s"),
        ('{"q": {"d": NaN}}', None, "score to be a number, got NaN for document 'd' of query 'q'"),
        ("\ufeff", None, "an empty file"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_the_line_and_its_text(tmp_path, text, line, message):
    path = tmp_path / "my.run"
    path.write_bytes(text.encode())
    with pytest.raises(tr.ReadingError, match=re.escape(message)) as error:
        tr.read_run(path)
    assert error.value.line == line
    assert str(error.value).startswith(f"{path}" + (f", line {line}: " if line else ""))
    assert isinstance(error.value, ValueError)


def test_an_error_in_columns_names_the_json_file_or_the_dictionary(tmp_path):
    columns = {"query": ["q"], "doc": ["a"], "score": ["x"]}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(columns))
    for source, name in ((columns, "<dict>"), (path, str(path))):
        with pytest.raises(tr.ReadingError, match="Expected score to be a number, got 'x'") as caught:
            tr.read_run(source)
        assert caught.value.source == name


@pytest.mark.parametrize("grade", [math.inf, -math.inf, math.nan])
def test_grades_are_finite(grade):
    with pytest.raises(tr.ReadingError, match="line 2: Expected grade to be a"):
        tr.read_qrels(io.StringIO(f"q 0 a 1\nq 0 b {grade}\n"))
    with pytest.raises(tr.ReadingError, match=r"grade to be a finite number, got .* for document 'a' of query 'q'"):
        tr.read_qrels({"q": {"a": grade}})
    with pytest.raises(tr.ReadingError, match="row 1: Expected grade to be a finite number"):
        tr.read_qrels([("q", "a", grade)])


@pytest.mark.parametrize(
    ("compressed", "library"),
    [(True, "pyarrow"), (False, "pyarrow"), pytest.param(False, "polars", marks=pytest.mark.needs("polars"))],
)
def test_a_parquet_file_of_many_times_its_size_is_refused_before_it_is_read(tmp_path, monkeypatch, compressed, library):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "run.parquet"
    monkeypatch.setattr(files, "EXPANDED", 2**22)
    rows, doc = (6_000, "d" * 1000) if compressed else (200_000, 7)
    columns = {"query": np.ones(rows, dtype=np.int64), "doc": [doc] * rows, "score": np.ones(rows)}
    given = {"compression": "zstd", "use_dictionary": False} if compressed else {}
    parquet.write_table(arrow.table(columns), path, **given)
    assert path.stat().st_size < 30_000
    if library == "polars":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(tr.ReadingError, match="at most 4,194,304 bytes, decompressed, got") as e:
        tr.read_run(path)
    assert str(path) in str(e.value)
    way_out = str(e.value).split("; if you trust it, read it by ")[1]
    with pytest.raises(tr.ReadingError, match="Expected every document once"):  # of a file that is read
        eval(way_out, {"tr": tr, "source": path})


@pytest.mark.parametrize("kind", ["feather", "stream"])
def test_an_arrow_file_of_many_times_its_size_is_refused(tmp_path, monkeypatch, kind):
    arrow, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
    monkeypatch.setattr(files, "EXPANDED", 2**22)
    table = arrow.table({"query": ["q"] * 6_000, "doc": ["d" * 1000] * 6_000, "score": np.ones(6_000)})
    new = ipc.new_stream if kind == "stream" else ipc.new_file
    with new(path := tmp_path / "run", table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(table, max_chunksize=1000)
    with pytest.raises(tr.ReadingError, match=r"arrow file of at most 4,194,304 bytes, .* expansion="):
        tr.read_run(path)
    with pytest.raises(tr.ReadingError, match="Expected every document once"):
        tr.read_run(path, expansion=10_000)


@pytest.mark.parametrize(("data", "format"), [(b"PAR1" + b"x" * 20 + b"PAR1", "auto"), (b"q Q0 d 1 0.5", "parquet")])
def test_a_broken_parquet_file_is_refused(data, format):
    pytest.importorskip("pyarrow")
    with pytest.raises(tr.ReadingError, match="whole parquet file, got one with: "):
        run_of(data, format=format)


#: a Parquet file with a wrong byte, for which polars 2.1 panics; its exception is no Exception
PANIC = (
    "eNp9kL0KwjAQxy9BQpGuFwxk6NKgoGIFnQKiuAgO4htULeig9sOP1efyaXwLV6/VooN65C73/98PjmQ2nAcIKFE2kVMjUGgA4Hky"
    "RjX8O12QqVF/mUIRtwFW1LQHNZEt19E2RAHo+rzGEh+mOfxUq1JVc5WB5Eora0Cjq3wBingkU1ppjTPRtAuQgyVMKFMs/GRXL5aZ"
    "8U+2+mKzgh3JkbmwN9woUXllkhuHLqh7cZgmx+jQWsZxK0zT/dk7RWm22e+8br/daQfK0hueB+6UM/rbB2shKUg="
)


@pytest.mark.needs("polars")
def test_a_panic_of_polars_is_a_file_that_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(tr.ReadingError, match="whole parquet file, got one with: "):
        run_of(zlib.decompress(base64.b64decode(PANIC)))


# ---- JSON, tuples, frames --------------------------------------------------------------------------------------------


def test_predictions_of_mteb_are_read_from_a_file_or_its_folder(tmp_path):
    predictions = {"mteb_model_meta": {"model_name": "m"}, "default": {"test": RUN_DICT}}
    path = tmp_path / "Task_predictions.json"
    path.write_text(json.dumps(predictions))
    assert tr.read_run(path).to_dict() == tr.read_run(tmp_path).to_dict() == RUN_DICT
    path.write_text(json.dumps({"en": {"test": RUN_DICT}, "de": {"dev": {"q": {"d": 1}}, "test": {}}}))
    assert tr.read_run(path, subset="en").to_dict() == RUN_DICT
    assert tr.read_run(path, subset="de", split="dev").to_dict() == {"q": {"d": 1}}
    with pytest.raises(tr.ReadingError, match=r"subset to be one of en, de, got None; .*\(source, subset=...\)"):
        tr.read_run(path)
    (tmp_path / "Other_predictions.json").write_text("{}")
    with pytest.raises(tr.ReadingError, match=r"one JSON file of predictions, got Other_predictions.json, Task_"):
        tr.read_run(tmp_path)
    for n in range(7):
        (tmp_path / f"A{n}_predictions.json").write_text("{}")
    with pytest.raises(tr.ReadingError, match=r"got A0_\S*, A1_\S*, A2_\S*, A3_\S*, A4_predictions.json;"):
        tr.read_run(tmp_path)


def test_numbers_as_text_are_refused_in_dictionaries_and_queries_without_documents_are_read():
    for wrong in ("1", "1_000", b"1", None, [1]):
        with pytest.raises(tr.ReadingError, match=r"score to be a number, got .* for document 'd' of query 'q'"):
            tr.read_run({"q": {"c": 1, "d": wrong}})
    assert tr.read_run({"q": {"c": True, "d": np.float32(0.5)}}).to_dict() == {"q": {"c": 1.0, "d": 0.5}}
    assert run_of('{"q": {"d": 1}, "p": {}, "r": {"d": 2}}') == {"q": {"d": 1}, "p": {}, "r": {"d": 2}}
    assert (run_of("{}"), run_of('{"q": {}}')) == ({}, {"q": {}})


def test_tuples_named_tuples_and_dictionaries_are_rows():
    judgment = namedtuple("TrecQrel", "query_id doc_id relevance iteration")
    assert tr.read_qrels(judgment("q", d, n, "0") for n, d in enumerate("ab")).to_dict() == {"q": {"a": 0, "b": 1}}
    assert tr.read_qrels([("q", "0", "a", 1)]).to_dict() == {"q": {"a": 1}}
    assert tr.read_run([("q", 7, np.float32(0.5)), ("q", np.int64(8), 1)]).to_dict() == {"q": {7: 0.5, 8: 1}}
    assert tr.read_run([{"qid": 1, "pid": 2, "rank": 3}]).to_dict() == {1: {2: -3}}
    with pytest.raises(tr.ReadingError, match=r"row 2: Expected 3 fields, as in the first row: \"\('q', 'b'\)\""):
        tr.read_run([("q", "a", 1), ("q", "b")])
    with pytest.raises(tr.ReadingError, match=r"row 2: Expected every document once for its query.*first in row 1"):
        tr.read_run([("q", "a", 1), ("q", "a", 2)])
    for wrong in (None, 1.5, True, b"x"):
        with pytest.raises(tr.ReadingError, match="row 2: Expected document ids to be text, got"):
            tr.read_run([("q", "a", 1), ("q", wrong, 2)])
    with pytest.raises(TypeError, match="Expected a path, a data frame, a dictionary or tuples, got int"):
        tr.read_run(3)
    with pytest.raises(TypeError, match="exchange the judgments and the run"):
        tr.read_run(tr.read_qrels({"q": {"a": 1}}))


def test_an_object_with_to_pandas_is_a_frame():
    frame = pandas.DataFrame({"query-id": ["q"], "corpus-id": ["d"], "score": [1]})
    assert tr.read_qrels(types.SimpleNamespace(to_pandas=lambda: frame)).to_dict() == {"q": {"d": 1}}


# ---- comments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("places", [[0], [1], [3], [0, 1, 2, 3]])
@pytest.mark.parametrize("comment", ["# a comment", "# of four fields", "#", "# of five whole fields"])
def test_a_comment_may_be_the_first_line_and_the_last_also_of_a_piece_of_a_file(places, comment, monkeypatch):
    monkeypatch.setattr("torchrank.tables.files.PIECE", 23)  # so many bytes are read at a time
    lines = ["q 0 a 1", "q  0 b 2", "p 0 c 1"]
    for place in reversed(places):
        lines.insert(place, comment)
    for end in ("", "\n"):
        assert qrels_of("\n".join(lines) + end) == {"q": {"a": 1, "b": 2}, "p": {"c": 1}}


def test_comments_alone_and_wrong_lines_among_comments_raise():
    with pytest.raises(tr.ReadingError, match="comments only"):
        tr.read_qrels(io.StringIO("# one\n# two\n"))
    with pytest.raises(tr.ReadingError, match=r"line 3.*got 3|got 3") as caught:
        tr.read_qrels(io.StringIO("q 0 a 1\n# a comment\nq 0 b\n"))
    assert caught.value.line == 3


# ---- the registry of formats -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_a_written_file_is_recognised_and_read_as_it_was(name):
    known, run = FORMATS[name], {"q1": {"a": 0.5, "b": 0.25}, "q2": {"a": 1e-300}}
    if known.write is None:
        assert not known.endings
        return
    text = "".join(known.write({query: list(docs.items()) for query, docs in run.items()}))
    assert tr.read_run(io.StringIO(text), format=name).to_dict() == run
    assert tr.read_run(io.StringIO(text)).to_dict() == run
    assert any(ending in known.endings for ending in WRITERS)


def test_types_and_docstrings_name_every_format():
    assert get_args(Format) == ("auto", *FORMATS)
    for reader in (tr.read_qrels, tr.read_run):
        assert [name for name in FORMATS if f'"{name}": ' not in reader.__doc__] == []


# ---- lines and fields beside plain Python: all texts of a few pieces, cut as a whole and in small pieces -------------


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\nq Q0 b 1 1 t"])
@pytest.mark.parametrize("size", [5, 5000])
def test_an_error_shows_the_beginning_of_its_line(size, end):
    line = f"q Q0 {'b' * size} 1 wrong t"
    with pytest.raises(tr.ReadingError, match="Expected score to be a number, got 'wrong'") as refused:
        run_of(f"q Q0 a 1 1 t\n\n# no row\n{line}{end}")
    assert (refused.value.line, refused.value.text) == (4, shorten(line))


def test_ranks_may_begin_at_0(tmp_path):
    path = tmp_path / "run.tsv"
    path.write_text("q\td\t0\nq\te\t1\n")
    assert list(tr.read_run(path).to_dict()["q"]) == ["d", "e"]
