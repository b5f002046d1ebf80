"""Hostile ids, names and files: what the command prints and writes, and its exit statuses."""

import csv
import errno
import io
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

import pytest

from tests.support import workers
from tests.support.cases import cases
from torchrank.cli import commands, main
from torchrank.display import Table, printable

HOSTILE = "a\x1b]0;owned\x07\u202eb"


@pytest.fixture
def folder(tmp_path):
    """Judgments and two runs."""
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 b 1\nq3 0 a 1\n")
    (tmp_path / "a.run").write_text("q1 Q0 a 1 1 t\nq2 Q0 a 1 1 t\nq3 Q0 b 1 1 t\n")
    (tmp_path / "b.run").write_text("q1 Q0 b 1 1 t\nq2 Q0 b 1 1 t\nq3 Q0 b 1 1 t\n")
    return tmp_path


def printed(capsys, *arguments):
    """The exit status, standard output and standard error."""
    try:
        status = main([str(one) for one in arguments])
    except SystemExit as end:
        status = end.code
    return status, *capsys.readouterr()


# ---- exit statuses ---------------------------------------------------------------------------------------------------


@cases(
    ("arguments", "status", "message"),
    [
        ("eval qrels a.run -m prcurve", 2, "Expected top_k for 'prcurve'"),
        ("eval qrels a.run -m prcurve@10", 2, "Expected metrics with one value for each query"),
        (f"eval qrels a.run -m map{'-l1' * 2000}", 2, "Expected one relevance level"),
        (f"eval qrels a.run -m ndcg(gain={'-' * 3000}1)", 2, "Expected"),
        ("power qrels a.run b.run --delta 5e-324", 2, "give a larger one"),
        ("eval qrels deep.json", 3, "Expected score to be a number"),
        ("eval qrels deeper.json", 3, "Expected JSON"),
        ("eval qrels run.zip", 3, "decompress it with unzip"),
        ("eval qrels a.run --ties expected --depth 3", 2, "Expected --ties document or rows with depth"),
        ("compare qrels a.run b.run --test tukey --correction bh", 2, "--family measure with --test tukey"),
        ("eval qrels a.run a.run", 2, "Expected runs with different names, got 'a' twice; write name=path"),
        ("eval qrels a.run --by twice", 3, "each query once, in line 3 of twice, got 'q1 y'"),
        ("eval qrels a.run --by short", 3, "Expected a query and its slice, each query once, in line 2 of short"),
        ("compare qrels a.run b.run --require map/y>0 --by one", 2, "Expected"),
        ("compare qrels a.run b.run --require mrr,map>0", 2, "Expected one measure in a condition for require"),
        *(
            (f"compare qrels a.run b.run {option} ", 2, f"{option}: Expected a text, got ''; leave the option")
            for option in ("--parent", "--by", "--human", "--strata", "--baseline", "--measures")
        ),
        ("measures ndcg(gain=other)@10", 2, "Expected gain to be"),
        ("measures ndgc", 2, "did you mean 'ndcg'"),
        ("presets nothing", 2, "Expected a library that has a preset, got 'nothing'; the libraries are trec_eval, "),
        ("eval qrels mteb.json", 3, "read it by tr.read_run(source, subset=...)"),
        ("eval qrels a.run -q none/values.tsv", 2, "Expected a file in a folder that exists, got none/values.tsv"),
        ("eval qrels a.run -q .", 2, "Expected a file, got the folder ."),
        ("convert a.run none/b.run", 2, "Expected a file in a folder that exists, got none/b.run"),
    ],
)
def test_wrong_calls_and_files_have_a_message_and_a_status_that_no_gate_has(
    folder, capsys, monkeypatch, arguments, status, message
):
    monkeypatch.chdir(folder)
    pathlib.Path("deep.json").write_text('{"a": ' * 500 + "1" + "}" * 500)
    pathlib.Path("deeper.json").write_text('{"a": ' * 100_000)
    pathlib.Path("twice").write_text("q1 x\n\nq1 y\n")
    pathlib.Path("short").write_text("q1 x\nq2\n")
    pathlib.Path("one").write_text("q1 x\nq2 x\nq3 x\n")
    pathlib.Path("run.zip").write_bytes(b"PK\x03\x04" + bytes(50))
    pathlib.Path("mteb.json").write_text(json.dumps({s: {"test": {"q1": {"a": 1}}} for s in ("en", "de")}))
    found, out, err = printed(capsys, *arguments.split(" "))
    assert (found, out) == (status, "")
    assert message in err
    assert "Traceback" not in err


def test_errors_that_nobody_has_foreseen_and_interrupts_have_a_status_of_their_own(folder, capsys, monkeypatch):
    call = ["compare", folder / "qrels", folder / "a.run", folder / "b.run"]
    for error, message in (
        (MemoryError("too much"), "Expected more memory, got too little: too much"),
        (RuntimeError("can't allocate memory: you tried to allocate 99 bytes"), "Expected more memory"),
        (RecursionError("deep"), "please report the lines above"),
        (KeyError("x"), "please report the lines above"),
    ):
        monkeypatch.setattr("torchrank.cli.commands.compared", lambda _, error=error: (_ for _ in ()).throw(error))
        status, _, err = printed(capsys, *call)
        assert status == 70
        assert message in err.splitlines()[-1]
    monkeypatch.setattr("torchrank.cli.commands.compared", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    assert printed(capsys, *call) == (130, "", "")


def test_a_gate_of_values_that_are_not_there_is_not_tested(folder, capsys):
    (folder / "qrels").write_text("q1 0 a 0\nq1 0 b 0\n")
    call = ["compare", *(folder / name for name in ("qrels", "a.run", "b.run")), "-m", "mr", "--format", "json"]
    for gate, status in (("--require", 1), ("--fail-if", 0)):
        found, out, _ = printed(capsys, *call, gate, "mr > 0")
        (verdict,) = json.loads(out)["gates"]
        assert (found, verdict["state"], verdict["difference"], verdict["p"]) == (status, "not tested", None, None)


def test_a_line_says_what_is_read_for_how_long_and_disappears(monkeypatch):
    monkeypatch.setattr(commands, "PATIENCE", 0.01)
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with commands._patiently("x", True):
        while "\r\x1b[Kreading x: 0 s" not in stream.getvalue():
            time.sleep(0.01)
    assert stream.getvalue().endswith("\r\x1b[K")
    stream.truncate(0)
    with commands._patiently("x", False):
        time.sleep(0.05)
    assert not stream.getvalue()


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_and_too_little_memory_are_no_failed_gates(folder):
    errors = folder / "errors"
    # a text so short that it is written when all is done
    assert workers.run_module("torchrank", ["--version"], "/dev/full", errors) == 2
    assert errors.read_text() == f"torchrank: [Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}\n"
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))\n"
    call = [sys.executable, "-c", f"{code}from torchrank.cli import main; sys.exit(main())"]
    with (folder / "large.run").open("wb") as file:
        file.truncate(2**29)
    quiet = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([*call, "convert", "large.run", "x.run"], cwd=folder, **quiet)
    assert (done.returncode, "Expected more memory, got too little" in done.stderr) == (70, True)


@pytest.mark.xdist_group("processes")
def test_a_failed_gate_is_a_failed_gate_if_nobody_reads_the_output(folder):
    call, errors = ["compare", "qrels", "b.run", "a.run", "-m", "mrr", "--require", "mrr > 0.5"], folder / "errors"
    assert workers.run_module("torchrank", call, None, errors, folder) == 1
    assert "Traceback" not in errors.read_text()


# ---- output ----------------------------------------------------------------------------------------------------------


def test_no_character_commands_a_terminal(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    name = f"{HOSTILE}\nx"
    pathlib.Path(name).write_text("q1 Q0 b 1 1 t\nq2 Q0 b 1 1 t\n\x7fq Q0 b 1 1 t\n")
    compared = ["compare", "qrels", "a.run", name, "--worst", "3", "--fail-if", "mrr < 0", "-m", "mrr"]
    for call in (["eval", "qrels", name, f"{name}2=a.run"], compared):
        for kind in ("table", "markdown", "latex"):
            if kind == "latex" and "--worst" in call:
                continue
            _, out, err = printed(capsys, *call, "--format", kind)
            assert printable(out + err, "\n") == out + err
            assert "\\x1b]0;owned" in out or "textbackslash" in out
    for call in (
        ["eval", "qrels", f"{name}=none"],
        ["presets", name],
        ["measures", name],
        ["compare", "qrels", "a.run", "b.run", "--baseline", name],
        ["--", name],
        ["eval", "qrels", "a.run", "-m", name],
        ["convert", name, f"x{name}"],
    ):
        status, out, err = printed(capsys, *call)
        assert (status, out) == (2, "")
        assert printable(err, "\n") == err
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for option in (["--format", "csv"], ["-q", "-"]):
        out = printed(capsys, "eval", "qrels", name, *option)[1]
        assert printable(out, "\n\t") == out != ""


def test_a_note_stays_in_its_latex_comment_and_its_line():
    table = Table({"run": ["x\ny", "\u2028"]}, notes=["a\n\\input{/etc/passwd}\u2029b"])
    assert [line for line in table.to_latex().split("\n") if "input" in line] == ["% a\\n\\input{/etc/passwd}\\u2029b"]
    assert str(table).split("\n")[1:] == ["x\\ny", "\\u2028", "a\\n\\input{/etc/passwd}\\u2029b"]
    assert len(table.to_markdown().splitlines()) == 6


def test_texts_in_csv_are_no_formulas_and_numbers_stay_numbers():
    values = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "-5", "+1.5e3", "a=b", "-", "-inf"]
    table = Table({"=HYPERLINK()": values, "number": [-1.5, -2, float("nan"), 3, 4, 5, 6, 7, 8, 9]})
    rows = list(csv.reader(io.StringIO(table.to_csv())))
    assert rows[0] == ["'=HYPERLINK()", "number"]
    kept = {"-5", "+1.5e3", "a=b"}
    assert [row[0] for row in rows[1:]] == [value if value in kept else f"'{value}" for value in values]
    assert [row[1] for row in rows[1:4]] == ["-1.5", "-2", ""]


@pytest.mark.xdist_group("processes")
def test_bytes_of_ids_come_out_as_they_went_in(folder):
    query, item, name = b"q\xff\xe9", b"d\xed\xa0\x80\xc3\xa9\x80", os.fsdecode(b"r\xff")
    (folder / "qrels").write_bytes(query + b" 0 " + item + b" 1\n")
    (folder / name).write_bytes(query + b" Q0 " + item + b" 1 0.5 t\n")
    at = [str(folder / one) for one in ("qrels", name, "again.run", "values.tsv")]
    for ending in ("run", "tsv", "json", "jsonl", "run.gz"):
        assert main(["convert", at[1], str(folder / f"out.{ending}")]) == 0
        assert main(["convert", str(folder / f"out.{ending}"), at[2]]) == 0
        assert (folder / "again.run").read_bytes() == query + b" Q0 " + item + b" 1 0.5 torchrank\n"
    line = b"r\xff\t" + query + b"\tmrr\t1.0\n"
    assert main(["eval", *at[:2], "-m", "mrr", "-q", at[3]]) == 0
    assert line in (folder / "values.tsv").read_bytes()
    output, errors, call = folder / "output", folder / "errors", ["eval", *at[:2], "-m", "mrr", "-q", "-"]
    assert workers.run_module("torchrank", call, output, errors, encoding="ascii") == 0
    assert errors.read_bytes() == b""
    assert line in output.read_bytes()
    assert b"r\\udcff  mrr" in output.read_bytes()


def test_a_result_is_written_to_no_file_that_waits_for_it(folder):
    for number in range(os.getpid(), os.getpid() + 1):
        (folder / f".out.run.{number}.part").symlink_to(folder / "victim")
    before = sorted(folder.iterdir())
    assert main(["convert", str(folder / "a.run"), str(folder / "out.run")]) == 0
    assert not (folder / "victim").exists()
    assert sorted(folder.iterdir()) == sorted([*before, folder / "out.run"])
    long = folder / ("x" * 251 + ".run")
    assert main(["convert", str(folder / "a.run"), str(long)]) == 0
    assert long.stat().st_mode == (folder / "a.run").stat().st_mode


def test_slices_have_the_queries_of_the_judgments_byte_by_byte(folder, capsys):
    queries = [b"q\xff", "q\u00a0x".encode(), b"q\x1cx".replace(b"\x1c", b"\xc2\x85")]
    for name, line in (("qrels", b"%b 0 a 1\n"), ("a.run", b"%b Q0 a 1 1 t\n"), ("slices", b"%b all of them \r\n")):
        (folder / name).write_bytes(b"".join(line % query for query in queries))
    call = [str(folder / name) for name in ("qrels", "a.run", "slices")]
    out = printed(capsys, "eval", *call[:2], "-m", "mrr", "--by", call[2], "--format", "json")[1]
    assert [row["measure"] for row in json.loads(out)["rows"]] == ["mrr", "mrr/all of them"]
    assert [row["queries"] for row in json.loads(out)["rows"]] == [3, 3]
    for wrong, message in ((folder, "got the folder"), (folder / "none", "Expected a file that exists")):
        status, _, err = printed(capsys, "eval", *call[:2], "--by", wrong)
        assert (status, message in err) == (2, True)


def test_a_file_is_replaced_and_a_pipe_is_written_to(tmp_path):
    old, link, pipe = (tmp_path / name for name in ("old", "link", "pipe"))
    old.write_text("before")
    link.hardlink_to(old)
    commands.write(str(old), "after")
    assert (old.read_text(), link.read_text()) == ("after", "before")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    commands.write(str(pipe), "after")
    assert os.read(reader, 9) == b"after"
    os.close(reader)
    assert pipe.is_fifo()
    assert {path.name for path in tmp_path.iterdir()} == {"old", "link", "pipe"}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            commands.write(str(old), "a text that is too long")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert old.read_text() == "after"
    assert {path.name for path in tmp_path.iterdir()} == {"old", "link", "pipe"}
