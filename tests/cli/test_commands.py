"""The commands eval, compare and power: numbers, formats, gates and exit statuses."""

import csv
import hashlib
import io
import json
import pathlib
from xml.etree import ElementTree

import pytest

import torchrank as tr
from tests.support.optional import pandas, pyplot
from tests.support.trec_files import files_of, two_runs
from torchrank import display
from torchrank.cli import main


@pytest.fixture
def files(tmp_path):
    return files_of(tmp_path, *two_runs())


def output(capsys, *arguments):
    status = main([str(one) for one in arguments])
    return status, capsys.readouterr().out


def test_eval_writes_the_values_of_all_queries(files, capsys, tmp_path):
    output(capsys, "eval", *files[:2], "-m", "map", "-q", tmp_path / "values.tsv")
    rows = list(csv.DictReader((tmp_path / "values.tsv").open(), delimiter="\t"))
    table = tr.evaluate(files[0], files[1], "map")["bm25"]
    assert [row["query"] for row in rows] == table.ids.tolist()
    assert [float(row["value"]) for row in rows] == table.columns["map"].tolist()


def test_eval_prints_slices(files, capsys, tmp_path):
    table = tr.evaluate(files[0], files[1], "map")["bm25"]
    slices = {query: ("short", "a long one")[n % 2] for n, query in enumerate(table.ids.tolist())}
    (tmp_path / "slices").write_text("".join(f"{query} {name}\n" for query, name in slices.items()))
    text = output(capsys, "eval", *files[:2], "-m", "map", "--by", tmp_path / "slices", "--format", "json")[1]
    found = {row["measure"]: row["value"] for row in json.loads(text)["rows"]}
    assert found == {**table.values(), **dict(zip(*(table.by(slices)[c] for c in ("measure", "value"))))}
    output(capsys, "eval", *files, "-m", "map", "--by", tmp_path / "slices", "--html", tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text()
    assert f">{found['map/short']:.4f}<" in report.partition("Slices")[2].partition("Comparison")[0]
    text = output(capsys, "compare", *files, "-m", "map", "--by", tmp_path / "slices", "--format", "json")[1]
    tables = {run: tr.evaluate(files[0], path, "map")[run] for run, path in zip(("bm25", "dense"), files[1:])}
    for name in ("short", "a long one"):
        inside = [slices[query] == name for query in table.ids.tolist()]
        (wanted,) = tr.compare({run: one.where(inside) for run, one in tables.items()}).table
        (row,) = [row for row in json.loads(text)["rows"] if row["measure"] == f"map/{name}"]
        assert [row[key] for key in ("n", "difference", "p")] == [wanted[key] for key in ("n", "difference", "p")]
    gates = ["--fail-if", "P_5/a long one < 0", "--require", "P_5/short > -2"]  # add P_5, once
    call = ["compare", *files, "-m", "map", "--by", tmp_path / "slices", "--format", "json", *gates]
    document = json.loads(output(capsys, *call)[1])
    names = ["map", "map/short", "map/a long one", "P_5", "P_5/short", "P_5/a long one"]
    assert sorted({row["measure"] for row in document["rows"]}) == sorted(names)
    asked = ["fail-if P_5/a long one < 0", "require P_5/short > -2"]
    assert [gate["gate"] for gate in document["gates"]] == asked
    (tmp_path / "slices").write_text("q1\n")
    assert main(["eval", *files[:2], "--by", str(tmp_path / "slices")]) == 3


def test_eval_and_compare_have_one_value_for_each_group_of_queries(tmp_path, capsys):
    qrels = {f"g_{n}_{m}": {"a": 1} for n in range(8) for m in range(3)}
    runs = [{q: {"b": 5, "c": 7 * (n % k == 0), "a": 6} for n, q in enumerate(qrels)} for k in (2, 5)]
    files = files_of(tmp_path, qrels, dict(zip(("old", "new"), runs)))
    (tmp_path / "slices").write_text("".join(f"g_{n} {'even' if n % 2 == 0 else 'odd'}\n" for n in range(8)))
    table = tr.evaluate(files[0], files[1], "mrr").grouped("min", "_")
    text = output(capsys, "eval", *files[:2], "-m", "mrr", "--group", "_", "--format", "json")[1]
    assert json.loads(text)["means"]["old"] == table.means["old"] == {"mrr/min": 0.5}
    gates = ["--fail-if", "P_1/mean < 0", "--require", "mrr/mean/even > -2"]
    call = ["compare", *files, "-m", "mrr", "--group", "_", "--reduce", "mean", "--by", tmp_path / "slices", *gates]
    document = json.loads(output(capsys, *call, "--format", "json")[1])
    names = {f"{measure}/mean{end}" for measure in ("mrr", "P_1") for end in ("", "/even", "/odd")}
    assert {row["measure"] for row in document["rows"]} == names
    assert {row["n"] for row in document["rows"]} == {8, 4}
    assert [gate["gate"] for gate in document["gates"]] == ["fail-if P_1/mean < 0", "require mrr/mean/even > -2"]
    assert (document["options"]["group"], document["options"]["reduce"]) == ("_", "mean")
    assert main(["eval", *map(str, files[:2]), "--reduce", "min"]) == 2
    assert "Expected --group TEXT with --reduce" in capsys.readouterr().err


def test_judgments_and_runs_of_agree_are_looked_for_before_the_work(files, capsys, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "one.json").write_text("{}")
    message = refused(capsys, "agree", files[0], f"b={tmp_path / 'folder'}")
    assert "Expected a file, got the folder" in message
    for arguments in ((files[0], "none.qrels"), (files[0], f"b={files[0]}", "--runs", "none.run", files[1])):
        assert "Expected a file that exists, got none." in refused(capsys, "agree", *arguments)


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        (["--fail-if", "P_5 < -0.01"], {"fail_if": "P_5 < -0.01"}),
        (["--require", "map > -0.5", "--fail-if", "map > 0"], {"fail_if": ["map > 0"], "require": ["map > -0.5"]}),
        (["--fail-if", "nDCG@3 < 1e-3", "--anytime"], {"fail_if": "ndcg@3 < 1e-3"}),
    ],
)
def test_a_gate_in_python_says_what_the_command_says(files, capsys, options, keywords):
    status, text = output(capsys, "compare", *files, "-m", "map", *options, "--wide")
    test = "anytime" if "--anytime" in options else "t"
    comparison = tr.evaluate(files[0], files[1:], "map P_5 nDCG@3").compare("bm25", test=test)
    gate = comparison.gate(**keywords)
    assert text.endswith(f"\n{gate}\n")
    assert bool(gate) == (status == 0)
    with pytest.raises(ValueError, match=r"Expected the measure of fail-if to be one of map, P_5, nDCG@3, got 'mrr'"):
        comparison.gate("mrr < 0")


def test_a_gate_adds_its_measure_once_and_with_the_options_of_all(files, capsys):
    def measures(*options):
        call = ["compare", *files, "--format", "json", "--require", "map > -1", *options]
        found = json.loads(output(capsys, *call)[1])
        return [row["measure"] for row in found["rows"]], found["gates"][-1]["gate"]

    assert measures("-m", "mrr", "--fail-if", "map > 1") == (["mrr", "map"], "require map > -1")
    assert measures("-m", "mrr AP") == (["mrr", "AP"], "require AP > -1")
    level = "map(relevance_level=2)"
    assert measures("-m", "mrr", "--relevance-level", "2")[0] == ["mrr(relevance_level=2)", level]
    assert measures("-m", "map", "--relevance-level", "2") == ([level], f"require {level} > -1")
    assert measures()[0] == ["ndcg@10", "map", "mrr", "recall@100"]
    preset = [*tr.preset("msmarco", 10)]
    assert measures("--preset", "msmarco")[0] == [*preset, "map"]


@pytest.mark.parametrize("chunked", [["new"], ["old", "new"]])
def test_labels_that_a_run_lacks_are_no_regression(tmp_path, capsys, chunked):
    def lines(run):
        for n in range(40):
            yield f"q{n} Q0 {'c' if run in chunked and n > 2 else 'd'}{n} 1 1 t\nq{n} Q0 x{n} 2 0.5 t\n"

    (tmp_path / "qrels").write_text("".join(f"q{n} 0 d{n} 1\n" for n in range(40)))
    for run in ("old", "new"):
        (tmp_path / run).write_text("".join(lines(run)))
    files = [tmp_path / name for name in ("qrels", "old", "new")]
    status, text = output(capsys, "compare", *files, "-m", "mrr", "--fail-if", "mrr < 0", "--wide")
    *_, verdict = text.splitlines()
    assert (status, verdict.startswith("passed")) == ((0, True) if len(chunked) > 1 else (1, False))
    beside = ", old 40" * (len(chunked) == 1)
    assert f"a loss may be no regression: new has 3 of 40 judged documents{beside}, and" in verdict
    lacking = {row["run"]: row["not retrieved"] for row in tr.evaluate(files[0], files[1:], "mrr").coverage}
    assert lacking == {run: 37 * (run in chunked) for run in ("old", "new")}
    assert len([line for line in text.splitlines() if line.startswith("Warning: labels")]) == len(chunked)
    everything = tr.evaluate(files[0], files[1], "mrr").coverage.notes
    assert [note.startswith("Warning: labels") for note in everything] == [True] * (len(chunked) - 1)


def test_a_worse_order_of_the_same_documents_is_a_regression(files):
    qrels = {f"q{n}": {"a": 1, "b": 0} for n in range(20)}
    runs = {name: {q: {"a": first, "b": 1 - first} for q in qrels} for name, first in (("old", 1), ("new", 0))}
    gate = tr.evaluate(qrels, runs, "mrr").compare("old").gate("mrr < -0.1")
    assert "labels" not in str(gate)
    assert not gate


def test_equal_runs_are_not_tested(files, capsys):
    runs = [files[0], f"a={files[1]}", f"b={files[1]}"]
    assert output(capsys, "compare", *runs, "-m", "map", "--fail-if", "map < 0")[0] == 0
    status, text = output(capsys, "compare", *runs, "-m", "map", "--require", "map > -1")
    assert (status, "not tested (difference +0.0000); equal on every query" in " ".join(text.split())) == (1, True)


def test_compare_prints_what_the_library_computes(files, capsys):
    text = output(capsys, "compare", *files, "-m", "map mrr", "--format", "json", "--require", "map > 0.01")[1]
    found = json.loads(text)
    comparison = tr.evaluate(files[0], files[1:], "map mrr").compare()
    assert found["rows"] == json.loads(comparison.to_json())["rows"]
    (gate,) = found["gates"]
    pair = comparison.rows[0].pair
    assert gate["p"] == pytest.approx(pair.p_not_worse(-0.01))
    assert found["qrels"]["blake2b"]
    text = output(capsys, "compare", *files, "-m", "map", "--worst", "3")[1]
    assert "the largest losses against bm25" in text
    best = max(comparison.systems, key=lambda run: found["means"][run]["map"])
    assert text.startswith(f"{best} is best in map, {found['means'][best]['map']:.4f}: ")


def test_gates_for_all_looks_together_have_the_p_values_of_a_confidence_sequence(files, capsys):
    gate = ["-m", "map", "--require", "map > 0.01", "--format", "json"]
    once, always = (json.loads(output(capsys, "compare", *files, *gate, *more)[1]) for more in ([], ["--anytime"]))
    comparison = tr.evaluate(files[0], files[1:], "map").compare(test="anytime")
    assert always["rows"] == json.loads(comparison.to_json())["rows"]
    assert always["gates"][0]["p"] == comparison.rows[0].pair.p_above(comparison.rows[0].pair.difference - 0.01)
    assert always["gates"][0]["p"] > once["gates"][0]["p"]
    assert "not allowed with argument --anytime" in refused(capsys, "compare", *files, "--anytime", "--test", "sign")


def test_the_family_of_corrected_tests_can_be_all_measures(files, capsys):
    call = ["compare", *files, "-m", "map mrr", "--family", "all", "--format", "json"]
    rows = json.loads(output(capsys, *call)[1])["rows"]
    p = [row["p"] for row in rows]
    assert min(row["p_corrected"] for row in rows) == pytest.approx(min(1, 2 * min(p)))  # Holm, of two tests


def test_queries_that_a_run_lacks_are_named_beside_the_largest_losses(capsys, tmp_path):
    lines = {"qrels": "q{0} 0 a 1\nq{0} 0 b 0\n", "old": "q{} Q0 a 1 1.0 tag\n", "new": "q{} Q0 b 1 1.0 tag\n"}
    for name, line in lines.items():
        (tmp_path / name).write_text("".join(line.format(q) for q in range(4) if name != "new" or q != 2))
    text = output(capsys, "compare", *(tmp_path / name for name in lines), "-m", "mrr", "--worst", "4")[1]
    assert ["new", "q2", "1.0000", "0.0000", "(missing)", "-1.0000"] in [line.split() for line in text.splitlines()]
    files = [tmp_path / name for name in ("qrels", "new", "old")]
    text = output(capsys, "compare", *files, "-m", "mrr", "--worst", "4", "--format", "json")[1]
    assert json.loads(text)["worst"] == []  # there are gains only
    files = [tmp_path / name for name in ("qrels", "old", "new")]
    text = output(capsys, "compare", *files, "-m", "mrr precision@2", "--worst", "2", "--format", "json")[1]
    assert [row["delta"] for row in json.loads(text)["worst"]] == [-1, -1]  # of the first measure
    paths = {name: tmp_path / name for name in ("old", "new")}
    assert "0.0000 (missing)" in tr.evaluate(tmp_path / "qrels", paths, "mrr").to_html()
    for queries in ("judged", "both"):
        found = tr.evaluate(tmp_path / "qrels", paths, "mrr", queries=queries)
        assert (found.missing("old"), found.missing("new")) == ([], ["q2"])


def test_a_note_has_a_few_values_and_the_option_that_prints_all(capsys, tmp_path):
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 a 1\n")
    (tmp_path / "a.run").write_text("q1 Q0 a 1 1.0 tag\n")
    call = ["eval", tmp_path / "qrels", tmp_path / "a.run", "--preset"]
    text = output(capsys, *call, "beir", "--wide")[1]
    (note,) = [line for line in text.splitlines() if "on all 2 judged queries" in line]
    assert "P@1 0.5000, P@3 0.1667, P@5 0.1000, P@10 0.0500, " in note
    assert note.endswith("20 more with queries='judged' (--queries judged)")
    text = output(capsys, *call[:3], "-m", "mrr ndcg@1")[1]
    assert "a: on the judged query that it answers: mrr 1.0000, ndcg@1 1.0000" in text.splitlines()


def test_ways_out_that_only_python_has_are_called_so(files, capsys, tmp_path):
    (tmp_path / "a.run").write_text("q1 d1 0.5\n")
    assert main(["eval", files[0], str(tmp_path / "a.run")]) == 3
    assert capsys.readouterr().err.endswith("in Python: tr.evaluate(qrels, tr.read_run(path, columns=...))\n")


def test_ways_out_in_a_shell_are_options_of_the_command(tmp_path, capsys):
    (tmp_path / "qrels").write_text("q1 0 a 1\nq2 0 b 1\n")
    (tmp_path / "a.run").write_text("q1 Q0 b 1 0.5 t\nq1 Q0 a 2 0.1 t\nq1 Q0 a 3 0.7 t\n")
    (tmp_path / "b.run").write_text("q1 Q0 a 1 0.5 t\n")
    qrels, first, second = (str(tmp_path / name) for name in ("qrels", "a.run", "b.run"))
    for call in (["eval", qrels, first], ["compare", qrels, first, second], ["convert", first, f"{tmp_path}/c.run"]):
        assert main(call) == 3
        assert "pass --duplicates first or best: 'q1 Q0 a 3 0.7 t'\n" in capsys.readouterr().err
        assert main([*call, "--duplicates", "best"]) == 0
        capsys.readouterr()
    assert tr.read_run(tmp_path / "c.run").to_dict() == {"q1": {"a": 0.7, "b": 0.5}}
    for one, wanted in (("first", 0.25), ("best", 0.5)):
        text = output(capsys, "eval", qrels, first, "-m", "mrr", "--duplicates", one, "--format", "json")[1]
        assert json.loads(text)["rows"][0]["value"] == wanted
        assert json.loads(text)["options"]["duplicates"] == one
    for command in (["compare"], ["power", "--delta", "0.1"]):
        assert main([*command, qrels, first]) == 2
        error = capsys.readouterr().err
        assert error == f"torchrank: Expected two or more runs to compare, got {first}; name the files of both\n"
    assert main(["compare", qrels, first, second, "--duplicates", "first"]) == 0


def test_warnings_are_lines_of_the_command(tmp_path, capsys):
    (tmp_path / "qrels").write_text("q1 0 D001 0.5\n")
    (tmp_path / "a.run").write_text("q1 Q0 D001 1 2 t\n")
    assert main(["eval", str(tmp_path / "qrels"), str(tmp_path / "a.run"), "-m", "ndcg"]) == 0
    assert capsys.readouterr().err == (
        "torchrank: The judgments have grades such as 0.5, and all scores of the run are integers; if the two are"
        " exchanged, pass the judgments first\n"
    )


@pytest.mark.parametrize("command", ["eval", "compare", "power"])
@pytest.mark.parametrize("ids", [("q1", "D001#1"), ("p1", "D001"), ("q2", "D001")])
def test_a_run_without_a_judged_document_of_its_queries_has_a_status_of_its_own(tmp_path, capsys, command, ids):
    (tmp_path / "qrels").write_text("q1 0 D001 1\nq2 0 D002 0\n")
    (tmp_path / "a.run").write_text("q1 Q0 D001 1 0.5 t\n")
    (tmp_path / "b.run").write_text("{} Q0 {} 1 0.5 t\n".format(*ids))
    call = [command, *(str(tmp_path / name) for name in ("qrels", "a.run", "b.run")), "-m", "mrr"]
    more = {"compare": ["--fail-if", "mrr < 0"], "power": ["--delta", "0.1"]}.get(command, [])
    assert main([*call, *more]) == 4
    out, err = capsys.readouterr()
    assert (out, "in run 'b'" in err or "Run 'b': No document" in err) == ("", True)
    assert ("--parent '#'" in err) == ("#" in ids[1])


@pytest.mark.parametrize(
    ("queries", "gate", "status"),
    [
        (12, ["--fail-if", "mrr < -1"], 0),  # the difference is -1, with no spread
        (12, ["--require", "mr > 0.5"], 0),
        (2, ["--fail-if", "mrr < -0.01"], 0),
        (5, ["--fail-if", "mrr < -0.01"], 1),
        (5, ["--fail-if", "mrr < -0.01", "--anytime"], 0),  # p 0.03 of one look is 0.19 of all
        (12, ["--fail-if", "mrr < -0.01", "--anytime"], 1),
    ],
)
def test_a_gate_sees_the_same_loss_on_all_queries(tmp_path, capsys, queries, gate, status):
    lines = {"qrels": "q{0} 0 a 1\nq{0} 0 b 0\n", "good": "q{} Q0 a 1 1.0 tag\n", "bad": "q{} Q0 b 1 1.0 tag\n"}
    for name, line in lines.items():
        (tmp_path / name).write_text("".join(line.format(q) for q in range(queries)))
    paths = [tmp_path / name for name in lines]
    assert output(capsys, "compare", *paths, "-m", "mrr mr", *gate)[0] == status


def refused(capsys, *arguments):
    """The message of a wrong call, which prints nothing else."""
    try:
        status = main([str(one) for one in arguments])
    except SystemExit as end:
        status = end.code
    printed = capsys.readouterr()
    assert (status, printed.out) == (2, "")
    return printed.err


@pytest.mark.parametrize("command", ["eval", "compare", "power"])
def test_csv_jsonl_and_json_have_the_same_unrounded_numbers(files, capsys, command):
    call = [command, *files, "-m", "map mrr", *(["--delta", "0.01"] if command == "power" else []), "--format"]
    rows = list(csv.DictReader(io.StringIO(output(capsys, *call, "csv")[1])))
    lines = [json.loads(line) for line in output(capsys, *call, "jsonl")[1].splitlines()]
    assert [{k: "" if v is None else str(v) for k, v in line.items()} for line in lines] == rows
    found = json.loads(output(capsys, *call, "json")[1])
    assert lines == [{k: row[k] for k in lines[0]} for row in found["rows"]]
    assert found["means"] == tr.evaluate(*two_runs(), "map mrr").means  # the dictionaries in the files


def test_json_tells_how_its_numbers_were_made(files, capsys, monkeypatch):
    call = [*files[1:], "-m", "map", "--format", "json"]
    found = json.loads(output(capsys, "compare", files[0], *call, "--test", "randomization", "--seed", "3")[1])
    assert found["versions"].keys() == {"torchrank", "torch", "numpy", "python"}
    assert (found["test"], found["seed"], found["alpha"], found["correction"]) == ("randomization", 3, 0.05, "holm")
    assert found["options"]["queries"] == "judged"
    assert {"n", "difference", "low", "high", "p", "p_corrected"} <= found["rows"][0].keys()
    data = pathlib.Path(files[0]).read_bytes()
    assert found["qrels"]["blake2b"] == hashlib.blake2b(data, digest_size=16).hexdigest()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    tables = json.loads(output(capsys, "compare", files[0], *call, "--table", "paper")[1])
    assert tables["table"] != tables["rows"]
    piped = json.loads(output(capsys, "eval", "-", *call)[1])
    assert piped["qrels"] == {"path": "-", "blake2b": found["qrels"]["blake2b"]}
    assert piped["rows"] == json.loads(output(capsys, "eval", files[0], *call)[1])["rows"]


@pytest.mark.parametrize("kind", ["table", "json", "jsonl", "csv", "markdown", "latex"])
def test_verdicts_are_printed_in_all_formats(files, capsys, kind):
    gates = ["--require", "map > 0", "--require", "map > 0.9"]
    assert main(["compare", *files, "-m", "map", *gates, "--format", kind]) == 1
    out, err = capsys.readouterr()
    assert "map > 0.9 [dense - bm25]: not significant" in err
    several = kind in ("table", "json", "markdown")
    assert ("map > 0 " in err) != several
    assert out.count("require map") == 2 * several
    assert "FAILED: require map > 0.9 " in err
    assert ("passed: require map > 0 " in out) == (kind in ("table", "markdown"))


def test_files_that_cannot_be_read_are_named(files, capsys, tmp_path, monkeypatch):
    assert f"got the folder {tmp_path}" in refused(capsys, "eval", tmp_path, files[1])
    (tmp_path / "empty").mkdir()
    assert f"got no file in {tmp_path / 'empty'};" in refused(capsys, "eval", files[0], tmp_path / "empty")
    message = refused(capsys, "convert", tmp_path / "empty", tmp_path / "x.run")
    assert f"got the folder {tmp_path / 'empty'}; pass the path of a file" in message
    assert "Expected a file that exists" in refused(capsys, "eval", files[0], f"a={tmp_path / 'none'}")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "change its permissions" in refused(capsys, "compare", *files)


def test_measures_are_names_between_blanks_or_commas_in_one_or_several_options(files, capsys):
    for measures in (
        ["-m", "map,mrr"],
        ["-m", "map, mrr"],
        ["-m", "map", "-m", "mrr"],
        ["-m", "map", "mrr"],
        ["--measures=map", "mrr"],
    ):
        for call in ([*files[:2], *measures], [*measures, *files[:2]]):
            found = json.loads(output(capsys, "eval", *call, "--format", "json")[1])
            assert [row["measure"] for row in found["rows"]] == ["map", "mrr"]


def test_paths_may_contain_equals_signs(files, capsys, tmp_path):
    path = tmp_path / "k=1.run"
    path.write_bytes(pathlib.Path(files[1]).read_bytes())
    for text, name in ((path, "k=1"), (f"a={path}", "a")):
        found = json.loads(output(capsys, "eval", files[0], text, "-m", "map", "--format", "json")[1])
        assert [row["run"] for row in found["rows"]] == [name]
    assert "Expected a file that exists" in refused(capsys, "eval", files[0], tmp_path / "x=1" / "a.run")


def test_a_folder_or_a_pattern_is_all_its_runs(files, capsys, tmp_path):
    (folder := tmp_path / "runs").mkdir()
    for path in map(pathlib.Path, files[1:]):
        path.rename(folder / path.name)
    wanted = [pathlib.Path(path).stem for path in sorted(map(str, files[1:]))]
    for source in (folder, f"{folder}/*"):
        found = json.loads(output(capsys, "compare", files[0], source, "-m", "map", "--format", "json")[1])
        assert list(found["means"]) == wanted
    assert "Expected two or more runs to compare" in refused(capsys, "compare", files[0], folder / f"{wanted[0]}.*")
    assert "Expected files like" in refused(capsys, "eval", files[0], f"{folder}/*.none")


def test_a_note_is_printed_once(files, capsys):
    for kind in ("table", "markdown"):
        text = output(capsys, "eval", *files, "-m", "map mr", "--format", kind)[1]
        assert (
            text.count("bm25: on the 27 judged queries that it answers")
            == text.count("Warning: bm25 lacks 3 judged queries")
            == 1
        )
    assert str(tr.evaluate(files[0], files[1], "map")).count("on the 27 judged queries") == 1


@pytest.mark.needs("tqdm")
def test_progress_is_shown_on_a_terminal_only(files, capsys, monkeypatch):
    main(["eval", *files, "-m", "map"])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    main(["eval", *files, "-m", "map"])
    assert "evaluating" in capsys.readouterr().err


def test_convert_leaves_no_half_file_and_its_input_alone(files, capsys, tmp_path):
    before = pathlib.Path(files[1]).read_bytes()
    assert "write a new file" in refused(capsys, "convert", files[1], tmp_path / "." / "bm25.run")
    assert "out.docx" in refused(capsys, "convert", files[1], tmp_path / "out.docx")
    assert pathlib.Path(files[1]).read_bytes() == before
    blank = tmp_path / "blank.json"
    blank.write_text('{"q1": {"a b": 1.0}}')
    old = tmp_path / "old.run"
    old.write_text("as it was")
    names = sorted(tmp_path.iterdir())
    assert main(["convert", str(blank), str(old)]) == 3
    assert "write .tsv, .json" in capsys.readouterr().err
    assert (old.read_text(), sorted(tmp_path.iterdir())) == ("as it was", names)
    assert main(["convert", str(blank), str(tmp_path / "new.tsv")]) == 0
    assert tr.read_run(tmp_path / "new.tsv").to_dict() == {"q1": {"a b": 1.0}}


def test_convert_keeps_scores_exactly_and_reads_standard_input(tmp_path, monkeypatch):
    scores = {"a": 0.1 + 0.2, "b": 1e-300, "c": -5e-324, "d": 123456789.123456789, "e": 2.0**60}
    lines = "".join(f"q Q0 {document} 1 {score!r} t\n" for document, score in scores.items())
    for ending in ("run.gz", "tsv", "json", "jsonl.gz"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        assert main(["convert", "-", str(tmp_path / f"out.{ending}")]) == 0
        found = tr.read_run(tmp_path / f"out.{ending}").to_dict()["q"]
        assert list(found.items()) == sorted(scores.items(), key=lambda pair: -pair[1])


def test_power_prints_needed_queries_and_detectable_differences(files, capsys):
    call = ["power", *files, "-m", "map", "--delta", "0.01", "--format", "json"]
    (row,) = json.loads(output(capsys, *call)[1])["rows"]
    comparison = tr.evaluate(files[0], files[1:], "map").compare()
    assert row["needed"] == comparison.queries_needed(0.01)["queries"][0]
    assert row["detectable"] == comparison.detectable()["detectable"][0]


@pytest.mark.parametrize("command", ["eval", "compare", "convert", "power"])
def test_help_has_examples_and_statuses_in_the_width_of_the_terminal(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert f"  torchrank {command} " in text
    assert "exit status: 0" in text


def test_slices_are_found_by_integer_ids_and_runs_without_common_queries_are_wrong_data(tmp_path, capsys):
    for name, column in (("qrels", "grade"), ("one", "score")):
        pandas.DataFrame({"query": [1, 2], "doc": [5, 6], column: [1, 1]}).to_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "slices").write_text("1 x\n2 y\n")
    files = [str(tmp_path / name) for name in ("qrels.parquet", "one.parquet", "slices", "qrels", "a", "b")]
    assert main(["eval", *files[:2], "-m", "mrr", "--by", files[2], "--format", "csv"]) == 0
    assert "mrr/y,1.0" in capsys.readouterr().out
    for path, text in zip(files[3:], ("q1 0 a 1\nq2 0 a 1\n", "q1 Q0 a 1 1 t\n", "q2 Q0 a 1 1 t\n")):
        pathlib.Path(path).write_text(text)
    assert main(["compare", *files[3:], "--queries", "both"]) == 3


def test_no_line_is_wider_than_the_terminal_unless_all_columns_are_asked_for(files, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    calls = [["eval"], ["compare", "--worst", "3"], ["compare", "--table", "paper"], ["power", "--delta", "0.01"]]
    for command, *more in calls:
        call = [command, files[0], f"{'long' * 12}={files[1]}", files[2], "-m", "ndcg(gain=exponential)@10 map", *more]
        assert max(map(len, output(capsys, *call)[1].splitlines())) <= 80
    wide = output(capsys, "compare", *files, "--wide")[1]
    assert all(column in wide for column in ("effect", "losses", "mean_a"))


def test_what_is_no_terminal_gets_whole_lines_and_all_columns(files, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    for call, word in ((["measures"], "probability"), (["compare", *files, "-m", "map"], "effect  wins  ties  losses")):
        text = output(capsys, *call)[1]
        assert (word in text, "…" in text, "--wide" in text) == (True, False, False)


def texts_of(path):
    """The texts of a picture, in the order in which they are drawn."""
    return [node.text for node in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.needs("matplotlib")
def test_plots_have_a_title_and_a_panel_for_each_measure(files, capsys, tmp_path):
    measures = ["ndcg@10", "map", "mr", "P_5", "recip_rank"]
    for command in ("eval", "compare"):
        with pyplot.rc_context({"svg.fonttype": "none"}):
            assert main([command, *files, "-m", *measures, "--plot", str(tmp_path / f"{command}.svg")]) == 0
    assert capsys.readouterr().err == ""
    means, differences = (texts_of(tmp_path / f"{command}.svg") for command in ("eval", "compare"))
    lower = {"mr": " (lower is better)"}
    found = [text for text in means if text.endswith(", 95 % interval")]
    counts = {"mr": 27}
    assert found == [f"mean {m}{lower.get(m, '')} over {counts.get(m, 30)} queries, 95 % interval" for m in measures]
    assert means.count("bm25") == means.count("dense") == len(measures)
    assert [t for t in differences if t.split(" (")[0] in measures] == [f"{m}{lower.get(m, '')}" for m in measures]
    assert differences.count("dense - bm25") == len(measures)
    assert differences.count("filled dot: significant after correction; hollow dot: not") == 1
    assert ("Means of bm25 and dense" in means, "Differences of bm25 and dense" in differences) == (True, True)
    assert main(["eval", *files[:2], "-m", "map", "--plot", str(tmp_path / "means.png")]) == 0
    assert (tmp_path / "means.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("command", ["eval", "compare"])
def test_a_measure_with_many_cutoffs_is_one_panel_over_k(files, capsys, tmp_path, monkeypatch, command):
    drawn = []
    monkeypatch.setattr(display, "draw_lines", lambda axes, lines: drawn.append((axes.get_ylabel(), lines)))
    with pyplot.rc_context({"svg.fonttype": "none"}):
        measures = "P_100 recall@1-9 map ndcg@1,3 P_5 P_10 P_20 P_30"
        call = [command, *files, "-m", measures, "--plot"]
        assert main([*call, str(tmp_path / "plot.svg")]) == 0
    capsys.readouterr()
    texts = " ".join(texts_of(tmp_path / "plot.svg"))
    assert [name in texts for name in ("map", "ndcg@1", "ndcg@3", "recall@2", "P_5")] == [True] * 3 + [False] * 2
    assert texts.count("cutoff k") == 2  # recall and P
    found = tr.evaluate(files[0], files[1:], "recall@1-9")
    what, lines = "mean", {run: list(means.values()) for run, means in found.means.items()}
    if command == "compare":
        what, lines = "difference of", {"dense - bm25": [row.pair.difference for row in found.compare().rows]}
    assert sorted(label for label, _ in drawn) == [f"{what} P@k, 95 % interval", f"{what} recall@k, 95 % interval"]
    (shown,) = [lines for label, lines in drawn if "recall" in label]
    assert {name: (list(x), list(y)) for name, (x, y) in shown.items()} == {
        name: (list(range(1, 10)), pytest.approx(values)) for name, values in lines.items()
    }
