"""Long ids, and compressed or cut files, in bounded memory or refused. The page of files has a table of others."""

import gzip
import io
import json
import os
import sys
import tracemalloc

import pytest

import torchrank as tr
from torchrank.tables import files
from torchrank.tables.pair_tables import decode, encode


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_an_os_error(tmp_path):
    path = tmp_path / "secret"
    path.touch(mode=0)
    with pytest.raises(PermissionError, match="secret"):
        tr.read_run(path)


def peak(call):
    """The result of a call, and the most memory that it had, in MB; NumPy's arrays count."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def test_tied_documents_beside_one_long_id_are_ordered_in_memory_of_the_size_of_the_file(tmp_path):
    names = [*(f"d{number}" for number in range(5_000)), "d1" * 10_000, "d1" * 9_999 + "d0", "d1" * 9_999]
    (tmp_path / "run").write_text("".join(f"q Q0 {name} 1 0.5 t\n" for name in names))
    tr.evaluate({"q": {"d": 1}}, {"q": {"d": 0.5}}, "mr")  # imports, which are slow where memory is watched
    found, size = peak(lambda: tr.evaluate({"q": {"d0": 1, names[-2]: 1}}, tmp_path / "run", "mr"))
    ordered = sorted(names, reverse=True)
    assert found.means["run"]["mr"] == sum(ordered.index(name) + 1 for name in ("d0", names[-2])) / 2
    assert size < 20  # of 100 MB, if all ids were as long as the longest


def test_long_ids_among_many_short_ones_are_told_apart():
    long = [f"{'d' * 99_990}{number}" for number in range(20)]
    rows = "".join(f"q{number % 7} Q0 {name} 1 0.5 t\n" for number, name in enumerate(long))
    rest = "".join(f"q{number % 7} Q0 d{number} 1 0.5 t\n" for number in range(20_000))
    found = tr.read_run(io.BytesIO((rows + rest).encode()))
    assert found.to_dict()["q3"][long[3]] == 0.5
    assert len(found) == 20_020


def test_a_gzip_file_of_many_times_its_size_is_refused_unless_the_user_allows_it(tmp_path, monkeypatch):
    bomb = tmp_path / "bomb.run.gz"
    line = b"q Q0 d 1 0.5 t\n"
    small = gzip.compress(line + b"\n" * 2**18)
    assert len(line + b"\n" * 2**18) > 100 * len(small)  # a small file may grow at will
    assert tr.read_run(io.BytesIO(small + gzip.compress(b"q Q0 e 1 0.5 t\n"))).to_dict() == {"q": {"d": 0.5, "e": 0.5}}
    monkeypatch.setattr(files, "EXPANDED", 2**18)  # of 2**26
    bomb.write_bytes(gzip.compress(line + b"\n" * 2**20))
    assert bomb.stat().st_size < 2_000
    for source in (bomb, bomb.open("rb")):
        with pytest.raises(tr.ReadingError, match=r"gz: Expected a gzip file of at most .*\(source, expansion=1100\)"):
            tr.read_run(source)
    assert tr.read_run(bomb, expansion=1100).to_dict() == {"q": {"d": 0.5}}
    assert tr.evaluate({"q": {"d": 1}}, bomb, "mrr", expansion=1100).means == {"bomb": {"mrr": 1.0}}
    with pytest.raises(ValueError, match="expansion to be an integer >= 1, got 0"):
        tr.read_qrels(bomb, expansion=0)


@pytest.mark.parametrize("package", ["gzip", "bz2", "lzma", "lz4.frame", "backports.zstd"])
def test_a_compressed_file_is_read_as_its_text_whole_and_in_chunks_or_refused(package, tmp_path, monkeypatch):
    module, text = pytest.importorskip(package), b"".join(b"q%d Q0 d 1 0.5 t\n" % n for n in range(999))
    packed, path = module.compress(text), tmp_path / "run"
    path.write_bytes(packed)
    in_chunks = {q: x for run in tr.read_chunks(path) for q, x in run.to_dict().items()}
    assert tr.read_run(path).to_dict() == in_chunks == {f"q{n}": {"d": 0.5} for n in range(999)}
    path.write_bytes(packed[: len(packed) // 2])
    for call in (lambda: tr.read_run(path), lambda: list(tr.read_chunks(path))):
        with pytest.raises(tr.ReadingError, match=r"Expected a whole .* file, got one with: "):
            call()
    monkeypatch.setattr(files, "EXPANDED", 2**20)
    path.write_bytes(module.compress(text + b"\n" * 2**22))
    with pytest.raises(tr.ReadingError, match=r"run: Expected a .* file of at most 1,\d*,\d* bytes, decompressed, got"):
        tr.read_run(path, expansion=10)
    if package in ("lz4.frame", "backports.zstd"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(tr.ReadingError, match=r"decompress it with \w+ -d, or install the package (lz4|backports)"):
            tr.read_run(path)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("begin", [b"", b"q Q0 a 1 1.0 t\n"])
def test_chunks_of_a_file_without_line_breaks_are_refused_in_little_memory(tmp_path, begin, compressed):
    path, data = tmp_path / "run", begin + b"q" * 2**25
    path.write_bytes(gzip.compress(data, 1) if compressed else data)

    def refused():
        with pytest.raises(tr.ReadingError, match=r"line [12]: Expected lines of at most 1,000,000 bytes") as found:
            list(tr.read_chunks(path, lines=1000))
        return found.value.line

    line, size = peak(refused)
    assert (line, size < 20) == (1 + bool(begin), True)


def test_a_first_line_that_is_long_makes_no_large_chunks(tmp_path):
    short = "".join(f"q{n} Q0 d 1 0.5\n" for n in range(20_000))
    (tmp_path / "run").write_text("q Q0 d 1 0.5".ljust(900_000) + "\n" + short)
    assert max(map(len, tr.read_chunks(tmp_path / "run", lines=100))) < 10**4


@pytest.mark.parametrize("rows", [[("q", "d", 1), ("q", "d" * 100_001, 1)], [("q", "d", 1), ("é" * 50_001, "d", 1)]])
def test_rows_with_an_id_that_is_too_long_are_refused_by_their_number(rows):
    lines = "\n".join(json.dumps(dict(zip(("qid", "docid", "score"), row))) for row in rows)
    columns = dict(zip(("query", "document", "score"), map(list, zip(*rows))))
    for source in (rows, io.StringIO(lines), columns):
        with pytest.raises(tr.ReadingError, match=r" ids of at most 100,000 bytes, got one of 100,00\d") as found:
            tr.read_run(source)
        assert found.value.line == 2
    with pytest.raises(tr.ReadingError, match="ids of at most 100,000 characters"):
        tr.read_run(io.StringIO(json.dumps({"q": {"d" * 100_001: 1}})))


def test_ids_and_lines_of_the_largest_length_are_read():
    name, wanted = "d" * 100_000, {"q": {"d" * 100_000: 1.0}}
    assert tr.read_run([("q", name, 1)]).to_dict() == wanted
    for text in (json.dumps(wanted), f"qid\tdocid\tscore\nq\t{name}\t1"):
        assert tr.read_run(io.StringIO(text)).to_dict() == wanted
    lines = [json.dumps({"qid": q, "docid": name, "score": 1, "text": ""}) for q in "qp"]
    full = lines[0].replace('""', '"' + "t" * (1_000_000 - len(lines[0])) + '"')
    assert tr.read_run(io.StringIO(f"{full}\n{lines[1]}")).to_dict() == wanted | {"p": wanted["q"]}


def test_a_line_of_json_lines_has_a_largest_length():
    lines = [json.dumps({"qid": "q", "docid": d, "score": 1, "text": "t" * n}) for d, n in (("a", 9), ("b", 10**6))]
    with pytest.raises(tr.ReadingError, match="line 2: Expected lines of at most 1,000,000 bytes"):
        tr.read_run(io.StringIO("\n".join(lines)))


def test_blank_lines_before_the_first_row_are_skipped_at_once():
    data = b"\n" * 300_000 + b"q\tQ0\td\t1\t0.5\tt\n" * 2 + b"q\tQ0\te\t1\tx\tt\n"
    with pytest.raises(tr.ReadingError, match="line 300003: Expected score to be a number, got 'x'"):
        tr.read_run(io.BytesIO(data), format="tsv", columns=[0, 2, 4])


@pytest.mark.parametrize("name", ["\ud800", "a\udcff\ud800é", "\ud83d\ude00", "é\udfff"])
def test_ids_keep_lone_surrogates_and_bytes_that_are_not_utf_8(name):
    text = json.dumps({name: {name: 0.5}})
    assert tr.read_run(io.StringIO(text)).to_dict() == json.loads(text)
    assert tr.read_run([(name, name, 0.5)]).to_dict() == {name: {name: 0.5}}
    assert decode(encode(name)) == name
    for data in (b"\xed\xa0\x80", b"\xed\xb3\xbf", b"\xff\xed\xa0\x80\xc3\xa9", b"\xed\xb3\xff"):
        assert encode(decode(data)) == data
