"""Runs in chunks of whole queries give the evaluation of the whole run."""

import gzip
import json
import os
import random
import sys
import threading

import pytest

import torchrank as tr
from tests.support.optional import pandas
from torchrank import read_chunks as read
from torchrank.cli import main
from torchrank.tables import sources

ipc = pytest.importorskip("pyarrow.ipc")

MEASURES = "ndcg map mrr recall@20"
DRAW = random.Random(0)
QRELS = {f"q{q}": {f"d{d}": DRAW.choice([0, 1, 2]) for d in DRAW.sample(range(60), 12)} for q in range(16)}
# The order of the queries is no order by id; sizes differ, and the longest query has more lines than a chunk.
RUN = {
    f"q{q}": {f"d{d}": round(DRAW.random(), 2) for d in DRAW.sample(range(60), 50 if q == 9 else DRAW.randint(1, 20))}
    for q in DRAW.sample(range(3, 19), 16)
}
ROWS = [(query, item, score) for query, scores in RUN.items() for item, score in scores.items()]


def lines(kind):
    """The run in a format, with line breaks of two kinds and blank lines."""
    if kind == "jsonl":
        return "".join(json.dumps(dict(zip(("qid", "docid", "score"), row))) + "\n" for row in ROWS)
    if kind == "tsv":
        return "query-id\tcorpus-id\tscore\r\n" + "".join(f"{q}\t{d}\t{s}\r\n" for q, d, s in ROWS)
    if kind == "comment":
        return "# made by a tool\n" + lines("trec")
    if kind == "blank":
        return "\n" + lines("tsv")
    if kind == "mark":
        return "\ufeff\n" + lines("trec").rstrip("\n")
    return "".join(f"{q} Q0 {d}  1 {s} tag\n" + "\n" * (n % 97 == 0) for n, (q, d, s) in enumerate(ROWS))


def written(folder, kind, compressed=False):
    path = folder / f"bm25.{kind}"
    data = lines(kind).encode()
    path.write_bytes(gzip.compress(data) if compressed else data)
    return path


def written_frame(path, library):
    """The run as a Parquet or an Arrow file."""
    columns = dict(zip(("qid", "docid", "score"), map(list, zip(*ROWS))))
    table = pytest.importorskip("pyarrow").table(columns)
    if library == "pandas":
        pandas.DataFrame(columns).to_parquet(path, row_group_size=20)
    elif path.suffix == ".parquet":
        pytest.importorskip("polars").DataFrame(columns).write_parquet(path)
    elif library == "stream":
        with ipc.new_stream(path, table.schema) as file:
            file.write_table(table, max_chunksize=7)
    else:
        with ipc.new_file(path, table.schema, options=ipc.IpcWriteOptions(compression=library)) as file:
            file.write_table(table, max_chunksize=None if library == "zstd" else 15)
    return path


def same(one, two):
    """All numbers of two evaluations are equal to the bit."""
    assert dict(numbers(one.to_dict())).items() ^ dict(numbers(two.to_dict())).items() == set()
    assert one.intervals() == two.intervals()


def assert_whole_queries(path):
    """Chunks of a file are whole queries in its order, many or few, with all that the file has."""
    for size in (8, 10_000):
        parts = [part.to_dict() for part in read(path, lines=size)]
        assert [query for part in parts for query in part] == list(RUN)
        assert {query: scores for part in parts for query, scores in part.items()} == RUN
        assert len(parts) > 9 if size == 8 else len(parts) == 2


def numbers(values, place=()):
    """Each value in nested dictionaries and lists, with its place, so that a failure names the few that differ."""
    if isinstance(values, dict | list):
        for key, value in values.items() if isinstance(values, dict) else enumerate(values):
            yield from numbers(value, (*place, key))
    else:
        yield place, values


@pytest.mark.parametrize(
    ("kind", "compressed"),
    [("trec", True), ("tsv", False), ("jsonl", False), ("mark", False), ("comment", False), ("blank", False)],
)
def test_chunks_of_a_file_are_whole_queries_and_give_the_same_evaluation(tmp_path, kind, compressed):
    path = written(tmp_path, kind, compressed)
    assert_whole_queries(path)
    same(tr.evaluate(QRELS, read(path, lines=8), "ndcg mrr"), tr.evaluate(QRELS, path, "ndcg mrr"))


FRAMES = [("run.parquet", "pandas"), ("run.parquet", "polars"), ("run.arrow", "stream"), ("run.feather", "zstd")]


@pytest.fixture(scope="module")
def whole():
    return tr.evaluate(QRELS, ROWS, "ndcg mrr")


@pytest.mark.parametrize(
    ("name", "library", "blocked"),
    [
        *((*one, None) for one in (*FRAMES, ("run.feather", None))),
        *((*FRAMES[0], blocked) for blocked in ("pyarrow", "polars")),
        (*FRAMES[3], "pyarrow"),
    ],
)
def test_chunks_of_a_file_of_columns_give_the_same_evaluation(whole, tmp_path, monkeypatch, name, library, blocked):
    path = written_frame(tmp_path / name, library)
    if blocked:
        monkeypatch.setitem(sys.modules, blocked, None)
    if blocked == "pyarrow" and path.suffix != ".parquet":
        with pytest.raises(ImportError, match="run `pip install pyarrow`"):
            tr.read_run(path)
        return
    assert tr.read_run(path).to_dict() == RUN
    assert_whole_queries(path)
    same(tr.evaluate(QRELS, read(path, lines=8), "ndcg mrr"), whole)


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_errors_name_the_row_of_a_file_of_columns(tmp_path, kind):
    frame = pandas.DataFrame({"qid": list("aabbcc"), "docid": list("xyxyxy"), "score": [1, 2, 3, 4, float("nan"), 6]})
    getattr(frame, f"to_{kind}")(path := tmp_path / f"run.{kind}")
    for call in (tr.read_run, lambda path: list(read(path, lines=2))):
        with pytest.raises(tr.ReadingError, match=r"row 5: Expected score to be a number, got NaN: \"'c', 'x', nan\""):
            call(path)


@pytest.mark.parametrize(
    ("name", "library", "order"), [*((*one, "grouped") for one in FRAMES), (*FRAMES[0], "mixed"), (*FRAMES[3], "mixed")]
)
def test_large_files_of_columns_are_read_in_chunks_if_queries_are_together(tmp_path, monkeypatch, name, library, order):
    monkeypatch.setattr(sys.modules[__name__], "ROWS", ROWS if order == "grouped" else sorted(ROWS, key=lambda r: r[1]))
    path = written_frame(tmp_path / name, library)
    assert sources.chunks_of_large(path) is None
    monkeypatch.setattr(sources, "LARGE_COMPRESSED", 100)
    monkeypatch.setattr(sources.read_chunks, "__kwdefaults__", {**sources.read_chunks.__kwdefaults__, "lines": 15})
    chunks = sources.chunks_of_large(path)
    if order == "mixed":
        with pytest.raises(tr.ReadingError, match=r"run.*, row \d+: .* together"):
            list(chunks)
    else:
        assert len(list(chunks)) > 5
    same(tr.evaluate(QRELS, path, MEASURES), tr.evaluate(QRELS, {"run": ROWS}, MEASURES))


@pytest.mark.parametrize("queries", ["judged", "both"])
def test_several_runs_and_options_are_those_of_whole_runs(tmp_path, queries):
    path = written(tmp_path, "trec")
    options = {"queries": queries, "precision": "single", "ties": "expected", "ignore_identical_ids": True}
    chunked = tr.evaluate(QRELS, {"a": read(path, lines=9), "b": RUN}, MEASURES, **options)
    same(chunked, tr.evaluate(QRELS, {"a": path, "b": RUN}, MEASURES, **options))
    assert chunked.means["a"] == chunked.means["b"]
    assert tr.evaluate(QRELS, read(path), "mrr").runs == ["bm25"]


PIECES = {
    "rows": lambda rows: rows,
    "frames": lambda rows: pandas.DataFrame(rows, columns=["qid", "docid", "score"]),
    "runs": lambda rows: tr.read_run(rows),
    "dictionaries": lambda rows: {q: {d: s for o, d, s in rows if o == q} for q in dict.fromkeys(r[0] for r in rows)},
}


@pytest.mark.parametrize("kind", PIECES)
def test_pieces_may_cut_a_query(whole, kind):
    pieces = [PIECES[kind](ROWS[start : start + 7]) for start in range(0, len(ROWS), 7)]
    same(tr.evaluate(QRELS, read(iter(pieces)), "ndcg mrr"), whole)


def test_a_query_in_many_pieces_is_joined_once(monkeypatch):
    joined = []
    ids_of = sources.ids_of
    monkeypatch.setattr(sources, "ids_of", lambda names: joined.append(len(names)) or ids_of(names))
    pieces = [[("q", f"{piece} {number}", piece) for number in range(2)] for piece in range(300)]
    (found,) = read(pieces)
    assert (len(found), joined) == (600, [600])
    pieces[200][1] = pieces[7][1]
    with pytest.raises(tr.ReadingError, match=r"row 2: Expected every document once .* first in row 2;"):
        list(read(pieces))


def test_queries_without_documents_are_in_the_run():
    pieces = [{"q1": dict.fromkeys(QRELS["q1"], 0.5), "q2": {}}, {}, [], {"q3": {"d1": 0.5}}]
    (row,) = tr.evaluate(QRELS, read(pieces), "mrr", queries="both").coverage.rows
    assert (row["queries"], row["missing"]) == (3, 13)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_query_that_returns_is_an_error_with_file_and_line(tmp_path, size, compressed):
    text = "q1 Q0 a 1 3 t\nq1 Q0 b 2 2 t\n\nq2 Q0 a 1 1 t\nq3 Q0 a 1 1 t\nq1 Q0 c 3 1 t\n"
    path = tmp_path / "wrong.run"
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    with pytest.raises(tr.ReadingError, match=r"wrong.run, line 6: .*query 'q1' again.*q1 Q0 c 3 1 t") as found:
        tr.evaluate({"q1": {"a": 1}}, read(path, lines=size))
    assert found.value.line == 6


@pytest.mark.parametrize(
    ("kind", "text", "line", "message"),
    [
        ("trec", "q1 Q0 a 1 3 t\nq1 Q0 b 1 2 t\nq1 Q0 a 2 1 t\n", 3, "first in line 1"),
        ("trec", "q1 Q0 a 1 3 t\nq2 Q0 b 1 2 t\nq3 Q0 c 1\n", 3, "Expected 6 fields.* as in the first line"),
        ("trec", "q1 Q0 a 1 3 t\nq2 Q0 b 1 x t\n", 2, "score to be a number"),
        ("tsv", "qid\tdocid\tscore\nq1\ta\t1\nq2\tb\t\n", 3, "got an empty one"),
        ("jsonl", '{"qid": "q", "docid": "a", "score": 1}\n{"qid": "q"}\n', 2, "score to be a number, got None"),
    ],
)
def test_errors_name_the_line_of_the_file(tmp_path, kind, text, line, message):
    path = tmp_path / "wrong"
    path.write_text(text)
    with pytest.raises(tr.ReadingError, match=message) as found:
        list(read(path, lines=1 if kind != "jsonl" else 9, format=kind))
    assert (found.value.line, found.value.source) == (line, str(path))


def test_empty_and_other_files_are_refused(tmp_path):
    path = tmp_path / "run"
    for data, message in (
        (b"", "empty file"), (b"\n \n" * 50, "empty file"), (b'{"q": {"d": 1}}', "file of lines or columns, got json"),
        (b"\xff\xfeq", "UTF-16"), (gzip.compress(lines("trec").encode())[:-9], "whole gzip file"),
    ):  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(tr.ReadingError, match=message):
            list(read(path, lines=3))
    with pytest.raises(TypeError, match="path or an iterable of pieces"):
        read(tr.read_run(RUN))


@pytest.mark.parametrize("order", ["grouped", "mixed"])
@pytest.mark.parametrize("compressed", [False, True])
def test_large_files_are_read_in_chunks_if_queries_are_together(tmp_path, monkeypatch, order, compressed):
    path = written(tmp_path, "trec", compressed)
    if order == "mixed":
        path.write_text("".join(f"{q} Q0 {d} 1 {s} t\n" for q, d, s in sorted(ROWS, key=lambda row: row[1:])))
    whole = tr.evaluate(QRELS, path, MEASURES)
    sizes = []
    of_rows = tr.Run.of_rows.__func__
    monkeypatch.setattr(tr.Run, "of_rows", classmethod(lambda cls, *a: sizes.append(of_rows(cls, *a)) or sizes[-1]))
    monkeypatch.setattr(sources, "LARGE", 100)
    monkeypatch.setattr(sources, "LARGE_COMPRESSED", 100)
    monkeypatch.setattr(sources.read_chunks, "__kwdefaults__", {**sources.read_chunks.__kwdefaults__, "lines": 15})
    same(tr.evaluate(QRELS, path, MEASURES), whole)
    assert max(map(len, sizes)) < len(ROWS) if order == "grouped" else len(sizes[-1]) == len(ROWS)


@pytest.mark.parametrize("compressed", [False, True])
def test_pipes_are_read_once(tmp_path, compressed):
    data, pipe = b"q1 Q0 a 1 1.0 t\nq1 Q0 b 2 0.5 t\nq2 Q0 c 1 1.0 t\n", tmp_path / "pipe"
    os.mkfifo(pipe)
    for call in (lambda source: tr.read_chunks(source, lines=1), lambda source: [tr.read_run(source)]):
        writer = threading.Thread(target=lambda: pipe.write_bytes(gzip.compress(data) if compressed else data))
        writer.start()
        found = [run.to_dict() for run in call(pipe)]
        writer.join()
        both = {query: one for run in found for query, one in run.items()}
        assert both == {"q1": {"a": 1.0, "b": 0.5}, "q2": {"c": 1.0}}


def test_an_iterator_of_pieces_is_not_read_for_a_second_time():
    chunks = tr.read_chunks(piece for piece in [[("q1", "a", 1.0)]])
    assert len(list(chunks)) == 1
    with pytest.raises(ValueError, match="pieces that can be read again"):
        list(chunks)


def test_ids_of_all_pieces_have_one_type():
    for second in (("q1", 7, 0.5), (2, "a", 0.5)):
        with pytest.raises(ValueError, match="ids of queries and documents as before"):
            list(tr.read_chunks([[("q1", "a", 1.0)], [second]]))


def test_a_folder_or_a_pattern_has_runs_named_by_their_files(tmp_path):
    for name, ending in (("b", "run.gz"), ("a", "run"), ("c", "run.gz"), ("d", "tsv")):
        written(tmp_path, "tsv" if ending == "tsv" else "trec", "gz" in ending).rename(tmp_path / f"{name}.{ending}")
    (tmp_path / ".hidden").write_text("no run")
    (tmp_path / "folder").mkdir()
    for source, names in (
        (tmp_path, ["a", "b", "c", "d"]),
        (str(tmp_path), ["a", "b", "c", "d"]),
        (tmp_path / "*.run", ["a"]),
        (f"{tmp_path}/[bd].*", ["b", "d"]),
        ([f"{tmp_path}/*.gz", tmp_path / "a.run"], ["b", "c", "a"]),
    ):
        found = tr.evaluate(QRELS, source, MEASURES)
        assert found.runs == names
        assert len({str(means) for means in found.means.values()}) == 1
    with pytest.raises(FileNotFoundError, match=r"Expected files like .*\*.txt, got none"):
        tr.evaluate(QRELS, f"{tmp_path}/*.txt")
    with pytest.raises(ValueError, match=r"different names, got \['a', 'b', 'c', 'd', 'a'\]"):
        tr.evaluate(QRELS, [tmp_path, tmp_path / "a.*"])
    with pytest.raises(FileNotFoundError, match=r"got no file in .*; of folders in it pass a pattern such as '.*\*"):
        tr.evaluate(QRELS, tmp_path / "folder")


@pytest.mark.parametrize("damaged", ["a", "b"])
def test_a_damaged_file_among_several_says_how_to_leave_it_out(damaged, tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / f"{name}.run").write_text("q1 Q0 d 1 0.5 t\n" if name != damaged else "q1 Q0 d 1 x t\n")
    (tmp_path / "qrels").write_text("q1 0 d 1\n")
    way_out = f"To leave {damaged} out, pass the files of the other runs."
    with pytest.raises(tr.ReadingError, match=rf"{damaged}\.run, line 1: Expected score") as raised:
        tr.evaluate(tmp_path / "qrels", tmp_path / "*.run", "mrr")
    assert raised.value.__notes__ == [way_out]
    assert main(["eval", str(tmp_path / "qrels"), str(tmp_path / "*.run")]) == 3
    assert capsys.readouterr().err.endswith(f": {way_out}\n")


def test_files_of_one_name_are_named_by_their_folders(tmp_path):
    for name in ("bm25", "dense"):
        (tmp_path / name).mkdir()
        written(tmp_path / name, "trec").rename(tmp_path / name / "test[1].run")
    assert tr.evaluate(QRELS, f"{tmp_path}/*/*.run", "mrr").runs == ["bm25/test[1]", "dense/test[1]"]
    assert tr.evaluate(QRELS, f"{tmp_path}/**/*.run", "mrr").runs == ["bm25/test[1]", "dense/test[1]"]
    assert tr.evaluate(QRELS, tmp_path / "bm25" / "test[1].run", "mrr").runs == ["test[1]"]  # no pattern: a file


def test_a_folder_of_json_alone_is_one_run_of_mteb(tmp_path):
    (tmp_path / "predictions.json").write_text(json.dumps(RUN))
    assert tr.evaluate(QRELS, tmp_path, "mrr").runs == [tmp_path.name]
    assert tr.evaluate(QRELS, tmp_path / "*.json", "mrr").runs == ["predictions"]
