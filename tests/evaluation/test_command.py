"""The commands eval, compare and power: numbers, formats, gates and exit statuses."""

import csv
import io
import json

import pytest
from test_evaluate import made

import torchrank as tr
from torchrank.cli import main


@pytest.fixture
def files(tmp_path):
    qrels, runs = made()
    (tmp_path / "qrels").write_text("".join(f"{q} 0 {d} {g}\n" for q, x in qrels.items() for d, g in x.items()))
    for name, run in runs.items():
        lines = (f"{q} Q0 {d} 1 {s} tag\n" for q, x in run.items() for d, s in x.items())
        (tmp_path / f"{name}.run").write_text("".join(lines))
    return [str(tmp_path / name) for name in ("qrels", "bm25.run", "dense.run")]


def output(capsys, *arguments):
    status = main([str(one) for one in arguments])
    return status, capsys.readouterr().out


def test_eval_prints_the_same_numbers_in_all_formats(files, capsys):
    wanted = tr.evaluate(files[0], files[1:], "map mrr").summary().to_dict()
    status, text = output(capsys, "eval", *files, "-m", "map mrr", "--format", "json")
    assert status == 0
    assert json.loads(text)["summary"] == wanted
    rows = list(csv.DictReader(io.StringIO(output(capsys, "eval", *files, "-m", "map mrr", "--format", "csv")[1])))
    assert [float(row["value"]) for row in rows] == wanted["value"]
    lines = output(capsys, "eval", *files, "-m", "map mrr", "--format", "jsonl")[1].splitlines()
    assert [json.loads(line)["value"] for line in lines] == wanted["value"]
    for kind in ("table", "markdown", "latex"):
        assert f"{wanted['value'][0]:.4f}" in output(capsys, "eval", *files, "-m", "map mrr", "--format", kind)[1]


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
    found = json.loads(text)["summary"]
    assert dict(zip(found["measure"], found["value"])) == dict(
        zip(*(table.by(slices)[c] for c in ("measure", "value")))
    )
    (tmp_path / "slices").write_text("q1\n")
    assert main(["eval", *files[:2], "--by", str(tmp_path / "slices")]) == 3


@pytest.mark.parametrize("ending", ["run", "tsv", "json", "jsonl", "run.gz", "jsonl.gz"])
def test_convert_keeps_queries_documents_and_scores(files, tmp_path, ending):
    out = tmp_path / f"out.{ending}"
    assert main(["convert", files[1], str(out)]) == 0
    assert tr.read_run(out).to_dict() == tr.read_run(files[1]).to_dict()
    assert main(["convert", files[1], str(tmp_path / "out.docx")]) == 2


def test_runs_have_the_names_of_files_unless_given(files, capsys):
    text = output(capsys, "eval", files[0], f"old={files[1]}", files[2], "-m", "map", "--format", "json")[1]
    assert json.loads(text)["summary"]["run"] == ["old", "dense"]


@pytest.mark.parametrize(
    ("gates", "status"),
    [
        ([], 0),
        (["--fail-if", "map < 0"], 0),
        (["--fail-if", "map > 0.01"], 1),
        (["--require", "map > 0"], 0),
        (["--require", "map > 0.9"], 1),
        (["--require", "map > 0", "--fail-if", "map > 0.01"], 1),
        (["--require", "ndcg@10 > 0"], 2),
        (["--require", "map"], 2),
    ],
)
def test_gates_decide_the_status(files, capsys, gates, status):
    assert output(capsys, "compare", *files, "-m", "map mrr", *gates)[0] == status


def test_equal_runs_are_undecided(files, capsys):
    runs = [files[0], f"a={files[1]}", f"b={files[1]}"]
    assert output(capsys, "compare", *runs, "-m", "map", "--fail-if", "map < 0")[0] == 0
    status, text = output(capsys, "compare", *runs, "-m", "map", "--require", "map > -1")
    assert (status, "undecided" in text) == (1, True)


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
    assert "the largest losses from bm25" in text


def test_power_prints_numbers_of_queries(files, capsys):
    status, text = output(capsys, "power", *files, "-m", "map", "--delta", "0.01")
    wanted = tr.evaluate(files[0], files[1:], "map").compare().queries_needed(0.01)["queries"]
    assert status == 0
    assert str(wanted[0]) in text


def test_statuses_tell_unreadable_files_from_wrong_data(files, capsys, tmp_path):
    assert main(["eval", files[0], str(tmp_path / "missing.run")]) == 2
    broken = tmp_path / "broken.run"
    broken.write_text("q1 Q0 d1 1 high tag\n")
    assert main(["eval", files[0], str(broken)]) == 3
    broken.write_text("x1 Q0 d1 1 0.5 tag\n")
    assert main(["eval", files[0], str(broken)]) == 3
    assert main(["eval", files[0], files[1], "-m", "nonsense"]) == 2
    assert "broken.run" in capsys.readouterr().err


def test_wrong_calls_are_not_taken_for_failed_gates_or_wrong_data(files, capsys, tmp_path):
    assert main(["eval", *files[:2], "-m", "judged@x"]) == 2
    assert main(["eval", *files[:2], "-q", str(tmp_path / "none" / "values.tsv")]) == 2
    assert main(["compare", *files, "--fail-if", "map < 1.2.3"]) == 2
    for runs in (["-", "-"], [files[0], "a=-", "b=-"], [files[0], "a="], [files[0], f"={files[1]}"]):
        capsys.readouterr()
        assert main(["eval", *runs]) == 2
        assert "Expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("queries", "gate", "status"),
    [
        (12, ["--fail-if", "mrr < -0.01"], 1),
        (12, ["--fail-if", "mrr > 0"], 0),
        (12, ["--require", "mr > 0.5"], 0),
        (2, ["--fail-if", "mrr < -0.01"], 0),
    ],
)
def test_a_gate_sees_the_same_loss_on_all_queries(tmp_path, capsys, queries, gate, status):
    lines = {"qrels": "q{} 0 a 1\n", "good": "q{} Q0 a 1 1.0 tag\n", "bad": "q{} Q0 b 1 1.0 tag\n"}
    for name, line in lines.items():
        (tmp_path / name).write_text("".join(line.format(q) for q in range(queries)))
    paths = [tmp_path / name for name in lines]
    assert output(capsys, "compare", *paths, "-m", "mrr mr", *gate)[0] == status
