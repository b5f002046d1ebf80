"""Hostile files, and the page's table of their results: ``python -m tests.support.hostile_files`` prints it."""

import bz2
import gzip
import lzma
import os
import sys
import tempfile
from pathlib import Path

import torchrank as tr

RUN = "q1 Q0 d2 1 0.75 t\nq1 Q0 d1 2 0.5 t\n"
QRELS = "q1 0 d1 1\nq1 0 d2 0\n"
HEADER = "qid\tdocid\tscore\n"


def scored(text):
    """A run of one line with a score."""
    return f"q1 Q0 d1 1 {text} t\n"


def named(name):
    """A run of one document with a name."""
    return f"q1 Q0 {name} 1 0.5 t\n"


#: title and content of files; of runs, if the title has no "qrels"
CASES = [
    ("Lines not in order of score", "q1 Q0 d1 2 0.5 t\nq1 Q0 d2 1 0.75 t\n"),
    ("Queries interleaved", "q1 Q0 d2 1 0.75 t\nq2 Q0 d1 1 1 t\nq1 Q0 d1 2 0.5 t\n"),
    ("Ties", "q1 Q0 a 1 0.5 t\nq1 Q0 b 2 0.5 t\n"),
    ("Lines that end in CRLF", RUN.replace("\n", "\r\n")),
    ("Tabs between fields", RUN.replace(" ", "\t")),
    ("Two blanks between fields", RUN.replace(" ", "  ")),
    ("Blanks at both ends of a line", RUN.replace("q1", " q1").replace("\n", " \n")),
    ("Blank lines", RUN.replace("\n", "\n\n \t\n")),
    ("No newline at the end", RUN[:-1]),
    ("UTF-8 with a byte order mark", "\ufeff" + RUN),
    ("gzip, under any name", gzip.compress(RUN.encode(), mtime=0)),
    ("bzip2", bz2.compress(RUN.encode())),
    ("xz", lzma.compress(RUN.encode())),
    ("5 columns, no tag", RUN.replace(" t\n", "\n")),
    ("Header between tabs", HEADER + "q1\td2\t0.75\nq1\td1\t0.5\n"),
    ("3 columns between tabs: ranks, as in MS MARCO", "q1\td2\t1\nq1\td1\t2\n"),
    ("Id of 100,000 bytes", named("d" * 100_000)),
    ("Line of 1,000,000 bytes", "q1 Q0 d1 1 0.5 t".ljust(1_000_000) + "\n" + RUN[:18]),
    *((f"Id `{name}`", named(name)) for name in ("007", "1e5", "NA", "null", "#3", '"a', "é", "日本")),
    ("Id of 300 bytes", named("d" * 300)),
    ("Id of bytes that are not UTF-8", b"q1 Q0 \xe9\xff 1 0.5 t\n"),
    *((f"Score `{text}`", scored(text)) for text in ("inf", "-inf", "-0.0", "1e400", "1e-400", "+0.5", ".5")),
    *((f"Score `{text}`", scored(text)) for text in ("nan", "0x10", "1_000", "1,5", "0.5x", "0.5.5", "--1")),
    ("Doubled line", scored("0.5") * 2),
    ("3 columns between blanks", "q1 d1 0.5\n"),
    ("3 columns between tabs: scores", "q1\td1\t0.5\n"),
    ("7 columns", "q1 Q0 d1 1 0.5 t x\n"),
    ("A line with a field less", RUN + "q1 Q0 d3 3 0.25\n"),
    ("Header between blanks of other names", "topic iter document place value run\n" + RUN),
    ("Commas between fields, with a header", 'qid,docid,score\nq1,d1,0.5\nq1,"d,2",0.25\n'),
    ("Commas between fields, without a header", "q1,d1,0.5\n"),
    ("Semicolons between fields", "qid;docid;score\nq1;d1;0.5\n"),
    ("A blank in an id between tabs", "q 1\tQ0\td 1\t1\t0.5\nq 1\tQ0\td2\t2\t0.25\n"),
    ("4 columns between tabs: ranks and scores, as of ColBERT", "7\t31\t1\t23.5\n7\t12\t2\t19.25\n"),
    ("4 columns between tabs: judgments", "7\t0\t31\t1\n"),
    ("A list of dictionaries in JSON", '[{"qid": "q1", "docid": "d1", "score": 0.5}]'),
    ("Comment line", "# my run\n" + RUN),
    ("Judgments in place of a run", QRELS),
    ("A run in place of qrels", RUN),
    ("Grade `0.5` in qrels", "q1 0 d1 0.5\n"),
    ("Grade `inf` in qrels", "q1 0 d1 inf\n"),
    ("Id of 100,001 bytes", RUN + named("d" * 100_001)),
    ("Line of 1,000,001 bytes", RUN + "q1 Q0 d3 1 0.5 t".ljust(1_000_001) + "\n"),
    ("Empty file", ""),
    ("Only blanks", " \n\t\n"),
    ("Only a header", HEADER),
    ("UTF-16", RUN.encode("utf-16")),
    ("Truncated gzip file", gzip.compress(RUN.encode(), mtime=0)[:-9]),
    ("A zip archive", b"PK\x03\x04" + RUN.encode()),
    ("Truncated bzip2 file", bz2.compress(RUN.encode())[:-9]),
    ("NUL byte", RUN.replace("d1", "d\0")),
    ("Binary file", bytes(range(256))),
    ("JSON cut at its end", '{"q1": {"d1": 0.5'),
    ("JSON nested 500 deep", '{"q1": {"d1": ' + '{"a": ' * 498 + "1" + "}" * 500),
    ("JSON with a key twice", '{"q1": {"d1": 1, "d1": 2}}'),
    ("A folder", None),
    ("A folder in place of qrels", None),
    ("A missing file", ...),
]


def read(title, content, folder):
    """The table of a file, or its error, as the page shows it."""
    path = Path(folder) / title.replace("/", " ")[:60].lower()
    if content is None:
        path.mkdir(exist_ok=True)
    elif content is not ...:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    reader = tr.read_qrels if "qrels" in title else tr.read_run
    try:
        table = str(reader(path).to_dict())
        return f"read: `{table if len(table) < 80 else f'{table[:60]}...'}`"
    except tr.ReadingError as error:
        line = "" if error.line is None else f"line {error.line}: "
        message = str(error).removeprefix(f"{error.source}{', ' * bool(line)}{line or ': '}")
        return f"`{line}{message}`"
    except OSError as error:
        return f"`{type(error).__name__}: {error}`".replace(folder + os.sep, "")


def page():
    """The rows of the page."""
    yield "| file | result |"
    yield "|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        for title, content in CASES:
            result = read(title, content, folder).replace("|", "\\|")
            yield f"| {title} | {result} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()) + "\n")
