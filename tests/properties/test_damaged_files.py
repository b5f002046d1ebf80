"""Damaged files of every format: the table that a slow reader in plain Python reads, or our error, never another one.

``TORCHRANK_FUZZ=20000 pytest tests/properties/test_damaged_files.py`` tries so many random files for each test.
"""

import contextlib
import gzip
import io
import json
import math
import os
import re
import zlib

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import torchrank as tr

arrow, ipc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.ipc")
parquet = pytest.importorskip("pyarrow.parquet")
MANY = int(os.environ.get("TORCHRANK_FUZZ", "0"))
FUZZ = settings(max_examples=MANY or 80, deadline=None, derandomize=not MANY, suppress_health_check=list(HealthCheck))

BLANKS = b" \t\r\x0b\x0c"
NUMBER = re.compile(rb"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf(inity)?", re.IGNORECASE)


class RefusedError(Exception):
    """The slow reader refuses the file."""


def refuse(wrong):
    if wrong:
        raise RefusedError


# ---- slow readers ----------------------------------------------------------------------------------------------------


def checked(rows, grades, duplicates="error"):
    """{query: {document: number}} of rows (query, document, number)."""
    table: dict = {}
    for query, item, number in rows:
        refuse(math.isnan(number) or (grades and math.isinf(number)))
        docs = table.setdefault(query, {})
        if item in docs:
            refuse(duplicates == "error")
            number = max(number, docs[item]) if duplicates == "best" else docs[item]
        docs[item] = number
    return table


def text_of(data):
    """The lines of a text."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    refuse(data[:2] in (b"\xff\xfe", b"\xfe\xff") or not data.strip())
    return data.split(b"\n")


def name(data):
    return data.decode("utf-8", "surrogateescape")


def number(data):
    data = data.strip(BLANKS + b"\n")  # of a field between tabs
    refuse(not NUMBER.fullmatch(data))
    return float(data)


def lines_of(data):
    for line in text_of(data):
        refuse(any(byte < 32 and byte not in BLANKS for byte in line))
        yield line


def slow_trec(data, grades):
    """Rows of fields between white space, without a header."""
    rows, width = [], None
    for line in list(lines_of(data)):
        if not (fields := line.split()) or fields[0] == b"#":  # blank lines and comments
            continue
        width = width or len(fields)
        refuse(len(fields) != width or width not in ((2, 4) if grades else (5, 6)))
        if width == 2:  # interactions
            rows.append((name(fields[0]), name(fields[1]), 1.0))
            continue
        rows.append((name(fields[0]), name(fields[2]), number(fields[3 if grades else 4])))
    refuse(not rows)
    return rows


HEADER = b"query-id\tcorpus-id\tscore"


def slow_tsv(data, grades):
    """Rows of fields between tabs, with the header of BEIR."""
    lines = list(lines_of(data))
    while not lines[0].strip():
        lines.pop(0)
    rows = []
    for line in lines[1:]:
        line = line.removesuffix(b"\r")
        if not line:
            continue
        fields = line.split(b"\t")
        refuse(len(fields) != 3 or b"" in fields)
        rows.append((name(fields[0]), name(fields[1]), number(fields[2])))
    return rows


def once(pairs):
    refuse(len(dict(pairs)) < len(pairs))
    return dict(pairs)


def loads(data):
    try:
        return json.loads(data, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise RefusedError from None


def value(found):
    refuse(isinstance(found, str) or not isinstance(found, int | float))
    try:
        return float(found)
    except OverflowError:
        raise RefusedError from None


def slow_json(data, grades):
    found = loads(b"\n".join(text_of(data)))
    refuse(not isinstance(found, dict) or not all(isinstance(docs, dict) for docs in found.values()))
    return {query: {item: value(one) for item, one in docs.items()} for query, docs in found.items()}


def slow_jsonl(data, grades):
    found = [loads(line) for line in text_of(data) if line.strip()]
    refuse(not all(isinstance(one, dict) and {"qid", "docid", "score"} <= set(one) for one in found))
    rows = [(one["qid"], one["docid"], value(one["score"])) for one in found]
    for column in (0, 1):
        kinds = {type(row[column]) for row in rows}
        refuse(kinds not in ({str}, {int}) or any(row[column] == "" for row in rows))
        refuse(kinds == {int} and any(not -(2**63) <= row[column] < 2**63 for row in rows))
    return rows


def slowly(data, format, grades, duplicates):
    """The table of a file by the slow readers; None = refused."""
    try:
        if data[:2] == b"\x1f\x8b":
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error):
                raise RefusedError from None
        if format == "json":
            found = slow_json(data, grades)
            for docs in found.values():
                checked([("", item, number) for item, number in docs.items()], grades)
            return found
        reader = {"trec": slow_trec, "tsv": slow_tsv, "jsonl": slow_jsonl}[format]
        return checked(reader(data, grades), grades, duplicates)
    except RefusedError:
        return None


def agree(data, format, grades, duplicates="error", auto=False):
    """Our reader and the slow one agree."""
    reader = tr.read_qrels if grades else tr.read_run
    want = slowly(data, format, grades, duplicates)
    try:
        table = reader(io.BytesIO(data), format="auto" if auto else format, duplicates=duplicates).to_dict()
    except tr.ReadingError:
        table = None
    event(f"{format} {'refused' if table is None else 'read'}")
    assert table == want, data


# ---- files -----------------------------------------------------------------------------------------------------------

QUERY = st.sampled_from(["q1", "q2", "007", "1e5", "NA", "é"])
ITEM = st.sampled_from(["d1", "d2", "d3", "null", "#3", '"', "日本", "long" * 20])
SCORE = st.floats(-1e3, 1e3) | st.integers(-3, 3) | st.sampled_from([math.inf, -math.inf, 1e-300, -0.0])
ROWS = st.lists(st.tuples(QUERY, ITEM, SCORE), min_size=1, max_size=5, unique_by=lambda row: row[:2])


def written(rows, format, grades, tag):
    """The file of some rows."""
    if format == "trec":
        form = "{} 0 {} {}\n" if grades else f"{{}} Q0 {{}} 1 {{}}{tag}\n"
        return "".join(form.format(*row) for row in rows).encode()
    if format == "tsv":
        return HEADER + "".join("\n{}\t{}\t{}".format(*row) for row in rows).encode() + b"\n"
    if format == "jsonl":
        return "\n".join(json.dumps(dict(zip(("qid", "docid", "score"), row))) for row in rows).encode()
    table: dict = {}
    for query, item, score in rows:
        table.setdefault(query, {})[item] = score
    return json.dumps(table, ensure_ascii=False).encode()


PIECES = [b"", b" ", b"\t", b"\n", b"\r\n", b"\r", b"\0", b"\xff", b".", b"-", b"+", b"e", b"_", b"x", b"0", b"1e999"]
PIECES += [b'"', b",", b":", b"{", b"}", b"[", b"\\", b"null", b"NaN", b"true", b"nan", b"\xc2\xa0", b"\x1c", b"\x85"]
BYTES = st.sampled_from(PIECES) | st.binary(max_size=2)
DAMAGE = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6), BYTES), max_size=3)


def damaged(data, damage):
    """A file of which some bytes are replaced."""
    for place, removed, added in damage:
        at = round(place * len(data))
        data = data[:at] + added + data[at + removed :]
    return data


def is_another_format(data, format):
    """Whether the reader may recognise another file than the slow one: another header, deeper or other JSON."""
    start = data.removeprefix(b"\xef\xbb\xbf")
    if format == "tsv":
        first = next((line for line in start.split(b"\n") if line.strip()), b"")
        return first.removesuffix(b"\r") != HEADER
    if format == "json":
        return start.count(b"{") - start.count(b'"{') > 1 + start.count(b": {")
    if format == "trec":
        return False
    first = next((line for line in start.split(b"\n") if line.strip()), b"")
    return not all(key in first for key in (b'"qid"', b'"docid"', b'"score"')) or first.count(b'"') > 10


OPTIONS = st.tuples(st.booleans(), st.sampled_from(["error", "first", "best"]), st.sampled_from(["", " t"]))


@FUZZ
@given(ROWS, st.sampled_from(["trec", "tsv", "json", "jsonl"]), DAMAGE, OPTIONS, st.booleans())
def test_a_damaged_file_is_the_table_of_the_slow_reader_or_refused(rows, format, damage, options, packed):
    grades, duplicates, tag = options
    data = damaged(written(rows, format, grades, tag), damage)
    if not is_another_format(data, format):
        agree(gzip.compress(data) if packed else data, format, grades, duplicates)


@FUZZ
@given(ROWS, st.sampled_from(["trec", "tsv", "json", "jsonl"]), OPTIONS)
def test_a_whole_file_is_recognised_and_read(rows, format, options):
    grades, duplicates, tag = options
    agree(written(rows, format, grades, tag), format, grades, duplicates, auto=True)


@FUZZ
@given(ROWS, st.booleans(), DAMAGE)
def test_a_damaged_gzip_file_is_refused_or_whole(rows, grades, damage):
    agree(damaged(gzip.compress(written(rows, "trec", grades, " t"), mtime=0), damage), "trec", grades)


@FUZZ
@given(ROWS, st.sampled_from(["trec", "tsv", "json", "jsonl"]), st.floats(0, 1), st.booleans())
def test_a_cut_file_is_the_table_of_its_whole_lines_or_refused(rows, format, place, grades):
    data = written(rows, format, grades, "")
    data = data[: round(place * len(data))]
    if not is_another_format(data, format):
        agree(data, format, grades)


@FUZZ
@given(ROWS, st.sampled_from(["parquet", "lz4", "zstd", "uncompressed", "stream"]), DAMAGE)
def test_a_damaged_file_of_columns_is_read_or_refused(rows, format, damage):
    table = arrow.table(dict(zip(("qid", "docid", "score"), map(list, zip(*rows)))))
    table = table.set_column(2, "score", table["score"].cast("float64"))
    file = io.BytesIO()
    if format == "parquet":
        parquet.write_table(table, file)
    else:
        packed = None if format in ("uncompressed", "stream") else format
        new = ipc.new_stream if format == "stream" else ipc.new_file
        with new(file, table.schema, options=ipc.IpcWriteOptions(compression=packed)) as writer:
            writer.write_table(table, max_chunksize=2)
    data = damaged(file.getvalue(), damage)
    if data[:4] in (b"PAR1", b"ARRO", b"\xff\xff\xff\xff"):
        with contextlib.suppress(tr.ReadingError):
            found = tr.read_run(io.BytesIO(data)).to_dict()
            assert damage or found == checked(rows, False)


OTHERS = [b"q", b"d", b"{}", b'{"q": {"d": ', b"}}", b"score", b"qid", b"docid"]
SOUP = st.binary(max_size=80) | st.lists(st.sampled_from(PIECES + OTHERS), max_size=20).map(b"".join)


@FUZZ
@given(SOUP, st.sampled_from(["auto", "trec", "tsv", "csv", "json", "jsonl"]), OPTIONS)
def test_no_bytes_cause_another_error(data, format, options):
    grades, duplicates, _ = options
    reader = tr.read_qrels if grades else tr.read_run
    for content in (data, gzip.compress(data), b"\x1f\x8b" + data):
        with contextlib.suppress(tr.ReadingError):
            reader(io.BytesIO(content), format=format, duplicates=duplicates).to_dict()
