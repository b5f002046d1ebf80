"""Hostile files, and the page's table of their results: ``python -m tests.support.hostile_files`` prints it."""

import bz2
import gzip
import lzma
import math
import os
import sys
import tempfile
from pathlib import Path

import torchrank as tr

RUN = "q1 Q0 d2 1 0.75 t\nq1 Q0 d1 2 0.5 t\n"
QRELS = "q1 0 d1 1\nq1 0 d2 0\n"
TABLE = {"q1": {"d2": 0.75, "d1": 0.5}}
JUDGED = {"q1": {"d1": 1.0, "d2": 0.0}}
HEADER = "qid\tdocid\tscore\n"
LONG = "d" * 300


def scored(text):
    """A run of one line with a score."""
    return f"q1 Q0 d1 1 {text} t\n"


def named(name):
    """A run of one document with a name."""
    return f"q1 Q0 {name} 1 0.5 t\n"


#: title, content of the file, the table or the error's line and message; runs, if the title has no "qrels"
CASES = [
    # order and layout of lines
    ("Lines not in order of score", "q1 Q0 d1 2 0.5 t\nq1 Q0 d2 1 0.75 t\n", TABLE),
    (
        "Queries interleaved",
        "q1 Q0 d2 1 0.75 t\nq2 Q0 d1 1 1 t\nq1 Q0 d1 2 0.5 t\n",
        {"q1": TABLE["q1"], "q2": {"d1": 1.0}},
    ),
    ("Ties", "q1 Q0 a 1 0.5 t\nq1 Q0 b 2 0.5 t\n", {"q1": {"a": 0.5, "b": 0.5}}),
    ("Lines that end in CRLF", RUN.replace("\n", "\r\n"), TABLE),
    ("Tabs between fields", RUN.replace(" ", "\t"), TABLE),
    ("Two blanks between fields", RUN.replace(" ", "  "), TABLE),
    ("Blanks at both ends of a line", RUN.replace("q1", " q1").replace("\n", " \n"), TABLE),
    ("Blank lines", RUN.replace("\n", "\n\n \t\n"), TABLE),
    ("No newline at the end", RUN[:-1], TABLE),
    ("UTF-8 with a byte order mark", "\ufeff" + RUN, TABLE),
    ("gzip, under any name", gzip.compress(RUN.encode(), mtime=0), TABLE),
    ("bzip2", bz2.compress(RUN.encode()), TABLE),
    ("xz", lzma.compress(RUN.encode()), TABLE),
    ("5 columns, no tag", RUN.replace(" t\n", "\n"), TABLE),
    ("Header between tabs", HEADER + "q1\td2\t0.75\nq1\td1\t0.5\n", TABLE),
    ("3 columns between tabs: ranks, as in MS MARCO", "q1\td2\t1\nq1\td1\t2\n", {"q1": {"d2": -1.0, "d1": -2.0}}),
    ("Id of 100,000 bytes", named("d" * 100_000), {"q1": {"d" * 100_000: 0.5}}),
    ("Line of 1,000,000 bytes", "q1 Q0 d1 1 0.5 t".ljust(1_000_000) + "\n" + RUN[:18], {"q1": {"d1": 0.5, "d2": 0.75}}),
    # ids
    *[
        (f"Id `{name}`", named(name), {"q1": {name: 0.5}})
        for name in ("007", "1e5", "NA", "null", "#3", '"a', "é", "日本")
    ],
    ("Id of 300 bytes", named(LONG), {"q1": {LONG: 0.5}}),
    ("Id of bytes that are not UTF-8", b"q1 Q0 \xe9\xff 1 0.5 t\n", {"q1": {"\udce9\udcff": 0.5}}),
    # scores
    *[
        (f"Score `{text}`", scored(text), {"q1": {"d1": value}})
        for text, value in (
            ("inf", math.inf),
            ("-inf", -math.inf),
            ("-0.0", -0.0),
            ("1e400", math.inf),
            ("1e-400", 0.0),
            ("+0.5", 0.5),
            (".5", 0.5),
        )
    ],
    *[
        (f"Score `{text}`", scored(text), (1, f"Expected score to be a number, got '{text}': 'q1 Q0 d1 1 {text} t'"))
        for text in ("nan", "0x10", "1_000", "1,5", "0.5x", "0.5.5", "--1")
    ],
    # refused
    (
        "Doubled line",
        scored("0.5") * 2,
        (
            2,
            "Expected every document once for its query, got document 'd1' of query 'q1' twice, first in line 1; pass"
            " duplicates='first' or 'best': 'q1 Q0 d1 1 0.5 t'",
        ),
    ),
    (
        "3 columns between blanks",
        "q1 d1 0.5\n",
        (
            1,
            "Expected fields like 'query Q0 document rank score tag', got 3; read it by"
            " tr.read_run(source, columns={'query': 0, 'item': 1, 'score': ...}): 'q1 d1 0.5'",
        ),
    ),
    (
        "3 columns between tabs: scores",
        "q1\td1\t0.5\n",
        (
            1,
            "Expected the third field to be a rank, each once for a query; if it is a score, read it by"
            " tr.read_run(source, columns={'query': 0, 'item': 1, 'score': 2}): 'q1\\td1\\t0.5'",
        ),
    ),
    (
        "7 columns",
        "q1 Q0 d1 1 0.5 t x\n",
        (
            1,
            "Expected fields like 'query Q0 document rank score tag', got 7; read it by"
            " tr.read_run(source, columns={'query': 0, 'item': 1, 'score': ...}): 'q1 Q0 d1 1 0.5 t x'",
        ),
    ),
    (
        "A line with a field less",
        RUN + "q1 Q0 d3 3 0.25\n",
        (3, "Expected 6 fields between white space, as in the first line, got 5: 'q1 Q0 d3 3 0.25'"),
    ),
    (
        "Header between blanks of other names",
        "topic iter document place value run\n" + RUN,
        (1, "Expected score to be a number, got 'value': 'topic iter document place value run'"),
    ),
    (
        "Commas between fields, with a header",
        'qid,docid,score\nq1,d1,0.5\nq1,"d,2",0.25\n',
        {"q1": {"d1": 0.5, "d,2": 0.25}},
    ),
    (
        "Commas between fields, without a header",
        "q1,d1,0.5\n",
        (
            None,
            "Expected a column of query ids named like query_id, qid, topic_id, user_id, got the columns q1, d1, 0.5;"
            " read it by tr.read_run(source, columns={'query': ...})",
        ),
    ),
    (
        "Semicolons between fields",
        "qid;docid;score\nq1;d1;0.5\n",
        (
            1,
            "Expected fields like 'query Q0 document rank score tag', got 1; separate the fields by blanks, tabs or"
            " commas: 'qid;docid;score'",
        ),
    ),
    (
        "A blank in an id between tabs",
        "q 1\tQ0\td 1\t1\t0.5\nq 1\tQ0\td2\t2\t0.25\n",
        {"q 1": {"d 1": 0.5, "d2": 0.25}},
    ),
    (
        "4 columns between tabs: ranks and scores, as of ColBERT",
        "7\t31\t1\t23.5\n7\t12\t2\t19.25\n",
        {"7": {"31": 23.5, "12": 19.25}},
    ),
    (
        "4 columns between tabs: judgments",
        "7\t0\t31\t1\n",
        (
            1,
            "Expected four fields between tabs to be query, document, rank from 1 and score, the best first, as ColBERT"
            " writes them; exchange the judgments and the run, or read it by tr.read_run(source, columns={'query': 0,"
            " 'item': 1, 'score': ...}): '7\\t0\\t31\\t1'",
        ),
    ),
    (
        "A list of dictionaries in JSON",
        '[{"qid": "q1", "docid": "d1", "score": 0.5}]',
        {"q1": {"d1": 0.5}},
    ),
    (
        "Comment line",
        "# my run\n" + RUN,
        {"q1": {"d2": 0.75, "d1": 0.5}},
    ),
    (
        "Judgments in place of a run",
        QRELS,
        (
            1,
            "Expected fields like 'query Q0 document rank score tag', got 4; read it by"
            " tr.read_run(source, columns={'query': 0, 'item': 1, 'score': ...}), or exchange the judgments and the"
            " run: 'q1 0 d1 1'",
        ),
    ),
    (
        "A run in place of qrels",
        RUN,
        (
            1,
            "Expected fields like 'query 0 document grade', got 6; read it by"
            " tr.read_qrels(source, columns={'query': 0, 'item': 1, 'grade': ...}), or exchange the judgments and the"
            " run: 'q1 Q0 d2 1 0.75 t'",
        ),
    ),
    ("Grade `0.5` in qrels", "q1 0 d1 0.5\n", {"q1": {"d1": 0.5}}),
    (
        "Grade `inf` in qrels",
        "q1 0 d1 inf\n",
        (1, "Expected grade to be a finite number, got inf: 'q1 0 d1 inf'"),
    ),
    (
        "Id of 100,001 bytes",
        RUN + named("d" * 100_001),
        (3, f"Expected fields of at most 100,000 bytes, got one of 100,001; shorten it: 'q1 Q0 {'d' * 111}...'"),
    ),
    (
        "Line of 1,000,001 bytes",
        RUN + "q1 Q0 d3 1 0.5 t".ljust(1_000_001) + "\n",
        (
            3,
            "Expected lines of at most 1,000,000 bytes, got a longer one; end each row with a line break:"
            f" '{'q1 Q0 d3 1 0.5 t'.ljust(117)}...'",
        ),
    ),
    ("Empty file", "", (None, "Expected lines of text, got an empty file")),
    ("Only blanks", " \n\t\n", (None, "Expected lines of text, got an empty file")),
    ("Only a header", HEADER, {}),
    ("UTF-16", RUN.encode("utf-16"), (None, "Expected text in UTF-8, got UTF-16; convert the file")),
    (
        "Truncated gzip file",
        gzip.compress(RUN.encode(), mtime=0)[:-9],
        (
            None,
            "Expected a whole gzip file, got one with: Compressed file ended before the end-of-stream marker was"
            " reached",
        ),
    ),
    (
        "A zip archive",
        b"PK\x03\x04" + RUN.encode(),
        (None, "Expected text or gzip, got another compression; decompress it with unzip"),
    ),
    (
        "Truncated bzip2 file",
        bz2.compress(RUN.encode())[:-9],
        (
            None,
            "Expected a whole bzip2 file, got one with: Compressed file ended before the end-of-stream marker was"
            " reached",
        ),
    ),
    (
        "NUL byte",
        RUN.replace("d1", "d\0"),
        (2, "Expected text, got the control character 0x00: 'q1 Q0 d\\x00 2 0.5 t'"),
    ),
    (
        "Binary file",
        bytes(range(256)),
        (1, "Expected text, got the control character 0x00: '\\x00\\x01\\x02\\x03\\x04\\x05\\x06\\x07\\x08\\t'"),
    ),
    (
        "JSON cut at its end",
        '{"q1": {"d1": 0.5',
        (1, "Expected JSON, got Expecting ',' delimiter: line 1 column 18 (char 17): '{\"q1\": {\"d1\": 0.5'"),
    ),
    (
        "JSON nested 500 deep",
        '{"q1": {"d1": ' + '{"a": ' * 498 + "1" + "}" * 500,
        (
            None,
            "Expected score to be a number, got {'a': {'a': {'a': {'a': {'a': {'a': {...}}}}}}} for document 'a' of"
            " query 'a'",
        ),
    ),
    ("JSON with a key twice", '{"q1": {"d1": 1, "d1": 2}}', (None, "Expected each key once, got 'd1' twice")),
    ("A folder", None, (None, "Expected a folder with one JSON file of predictions, got none; pass a file")),
    ("A folder in place of qrels", None, (None, "Expected a file, got a folder; pass the path of a file")),
    ("A missing file", ..., "FileNotFoundError: [Errno 2] No such file or directory: 'a missing file'"),
]


def read(title, content, folder):
    """The table of a case, or its error; its file is in a folder."""
    path = Path(folder) / title.replace("/", " ")[:60].lower()
    if content is None:
        path.mkdir(exist_ok=True)
    elif content is not ...:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    reader = tr.read_qrels if "qrels" in title else tr.read_run
    try:
        return reader(path).to_dict()
    except (ValueError, OSError) as error:
        return error


def outcome(found):
    """A table as a dictionary, or an error as the number of its line and its message."""
    if isinstance(found, tr.ReadingError):
        place = f"{found.source}, line {found.line}: " if found.line is not None else f"{found.source}: "
        return found.line, str(found).removeprefix(place)
    return f"{type(found).__name__}: {found}" if isinstance(found, Exception) else found


def page():
    """The rows of the page."""
    yield "| file | result |"
    yield "|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        for title, content, _ in CASES:
            found = outcome(read(title, content, folder))
            if isinstance(found, tuple):
                line, message = found
                found = message if line is None else f"line {line}: {message}"
            shown = str(found).replace(folder + os.sep, "").replace("|", "\\|")
            shown = shown if isinstance(found, str) or len(shown) < 80 else f"{shown[:60]}..."
            yield f"| {title} | {'read: ' if isinstance(found, dict) else ''}`{shown}` |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()) + "\n")
