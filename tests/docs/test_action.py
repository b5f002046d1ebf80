"""The GitHub Action: the shell scripts of its steps, run on files, with a simulated gh that has artifacts."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading

import pytest

from tests.support import workers
from tests.support.pages import ROOT

yaml = pytest.importorskip("yaml")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step.get("id", step["name"].split()[0].lower()): step for step in ACTION["runs"]["steps"]}

pytestmark = [
    pytest.mark.xdist_group("processes"),
    pytest.mark.skipif(not (shutil.which("bash") and shutil.which("openssl")), reason="needs bash and openssl"),
]


@pytest.fixture
def files(tmp_path):
    """Judgments, a run and a better one of 40 queries, in a folder whose name has characters of the shell."""
    folder = tmp_path / "a $(touch pwned) 'b'"
    folder.mkdir()
    documents = {"qrels.txt": ["d0 2"], "worse.run": ["d1 3.5", "d2 2", "d0 1"], "better.run": ["d0 2.5", "d1 1"]}
    for name, rows in documents.items():
        template = "{} 0 {} {}\n" if name == "qrels.txt" else "{} Q0 {} 0 {} tag\n"
        lines = [template.format(f"q{query}", *row.split()) for query in range(40) for row in rows]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    return [folder / name for name in documents]


#: the installed command: its arguments go to the process of the tests, which forks one that has imported torch
COMMAND = """#!/bin/sh
cd "$(dirname "$0")"
printf '%s\\0' "$@" >arguments
read status <status
cat output
cat errors >&2
exit "$status"
"""


@pytest.fixture
def command(tmp_path):
    """The command torchrank in the folder into which the action installs it."""
    folder = tmp_path / "torchrank/bin"
    folder.mkdir(parents=True)
    (folder / "torchrank").write_text(COMMAND)
    (folder / "torchrank").chmod(0o755)
    for name in ("arguments", "status"):
        os.mkfifo(folder / name)

    def serve():
        while arguments := (folder / "arguments").read_text().split("\0")[:-1]:
            for name in ("output", "errors"):
                (folder / name).write_text("")
            status = workers.run_module("torchrank", arguments, folder / "output", folder / "errors", tmp_path)
            (folder / "status").write_text(f"{status}\n")

    serving = threading.Thread(target=serve)
    serving.start()
    yield
    (folder / "arguments").write_text("")
    serving.join()


@pytest.fixture
def run(tmp_path, command):
    """A function that runs the script of a step: its exit status, its output, and the summary of the job."""
    (tmp_path / "bin").mkdir()
    places = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    context = {"github.token": "secret", "github.event.repository.default_branch": "main"}

    def run(step, **inputs):
        inputs = {name.replace("_", "-"): str(value) for name, value in inputs.items()}
        assert inputs.keys() <= ACTION["inputs"].keys()
        defaults = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()}
        values = {f"inputs.{name}": value for name, value in {**defaults, **inputs}.items()} | context
        environment = {
            name: re.sub(r"\$\{\{ (.*?) \}\}", lambda found: values[found[1]], value)
            for name, value in STEPS[step].get("env", {}).items()
        }
        environment |= {"RUNNER_TEMP": tmp_path, "GITHUB_REPOSITORY": "us/search", "PYTHONPATH": ROOT, **places}
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        script = tmp_path / "script.sh"
        script.write_text(STEPS[step]["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script], cwd=tmp_path, capture_output=True, text=True,
            check=False, env={**os.environ, **environment, "PATH": path},
        )  # fmt: skip
        assert not done.stderr
        assert not [*tmp_path.rglob("pwned")]
        summary = places["GITHUB_STEP_SUMMARY"]
        return done.returncode, done.stdout, summary.read_text() if summary.exists() else ""

    return run


def annotations(output):
    return re.findall(r"^::(error|warning|notice) title=torchrank::(.*)$", output, re.MULTILINE)


def test_scripts_have_no_expressions_and_bash_reads_them():
    for step in STEPS.values():
        assert "${{" not in step["run"]
        assert subprocess.run(["bash", "-n"], input=step["run"], text=True, check=False).returncode == 0
        assert step["shell"] == "bash"


def test_a_gate_that_fails_is_an_error_and_the_table_is_in_the_summary(run, files, tmp_path):
    judgments, worse, better = files
    gates = {"fail_if": "ndcg@10 < -0.005\nndcg@10 < -0.9", "require": "ndcg@10 > -0.001"}
    status, output, summary = run(
        "compare", judgments=judgments, run=worse, baseline=better, measures="ndcg@10", **gates
    )
    assert status == 1
    assert [level for level, _ in annotations(output)] == ["error", "error"]
    assert annotations(output)[0][1].startswith("torchrank compare: FAILED: fail-if ndcg@10 < -0.005 [run - baseline]")
    assert re.search(r"^\| ndcg@10 +\| baseline +\| run ", summary, re.MULTILINE)
    assert "- passed: fail-if ndcg@10 < -0.9 [run - baseline]" in summary
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == f"status=1\ntable={tmp_path / 'torchrank.md'}\n"
    stop = re.search(r"^::stop-commands::(\w{32})\n(.*)^::\1::$", output, re.MULTILINE | re.DOTALL)
    assert summary in stop[2]


def test_gates_pass_and_warnings_are_annotations(run, files):
    judgments, worse, better = files
    judgments.write_text(judgments.read_text().replace("d0 2", "d0 0.7"))
    inputs = {"measures": "ndcg@10\nmrr", "require": "ndcg@10 > 0.01", "options": "--test=sign\n--seed=1"}
    status, output, summary = run("compare", judgments=judgments, run=better, baseline=worse, **inputs)
    assert status == 0
    assert "passed: require ndcg@10 > 0.01" in summary
    assert "sign test of b - a" in summary
    ((level, message),) = annotations(output)
    assert level == "warning"
    assert message.startswith(
        "torchrank: No grade is relevant to mrr, because the largest is 0.7; pass --relevance-level,"
    )


def test_gates_without_a_baseline_are_refused(run, files):
    status, output, _ = run("compare", judgments=files[0], run=files[1], require="mrr > 0")
    assert status == 2
    assert annotations(output) == [
        ("error", "Expected a baseline for the gates, got none; set baseline or baseline-artifact")
    ]


def test_a_file_that_cannot_be_read_keeps_the_exit_status(run, files):
    status, output, summary = run("compare", judgments="100%\n::error::.txt", run=files[1], baseline=files[2])
    assert status == 2
    ((level, message),) = annotations(output)
    assert level == "error"
    assert message.startswith("torchrank: Expected a file that exists, got 100%25")
    assert "    torchrank: Expected a file that exists, got 100%" in summary


GH = """#!{python}
import json, os, pathlib, shutil, sys
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
if sys.argv[1] == "api":
    print((here / "artifacts.json").read_text())
else:
    folder = pathlib.Path(sys.argv[sys.argv.index("--dir") + 1])
    folder.mkdir()
    shutil.copy(here / "baseline.run", folder / "new.run")
"""


@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
def test_the_baseline_is_the_newest_artifact_of_the_default_branch(run, files, tmp_path):
    judgments, worse, better = files
    gh = tmp_path / "bin/gh"
    gh.write_text(GH.format(python=sys.executable))
    gh.chmod(0o755)
    shutil.copy(worse, tmp_path / "bin/baseline.run")
    new = better.rename(better.with_name("new.run"))

    def artifact(id, day, branch="main", expired=False, head=1):
        run = {"id": id, "head_branch": branch, "repository_id": 1, "head_repository_id": head}
        return {"expired": expired, "created_at": f"2026-11-{day}T00:00:00Z", "workflow_run": run}

    others = [artifact(1, 28, "topic"), artifact(2, 27, expired=True), artifact(3, 26, head=2)]
    inputs = {
        "judgments": judgments,
        "run": new,
        "baseline_artifact": "a run&name=x",
        "measures": "ndcg@10",
        "require": "ndcg@10 > 0",
    }
    (tmp_path / "bin/artifacts.json").write_text(json.dumps({"artifacts": others}))
    assert run("download", **inputs)[0] == 0
    status, output, summary = run("compare", **inputs)
    assert status == 0
    assert annotations(output) == [
        ("warning", "There is no artifact a run&name=x of the default branch yet: no gate is tested")
    ]
    assert re.search(r"^\| run +\| ndcg@10 +\| ", summary, re.MULTILINE)

    mine = [artifact(4, 24), artifact(5, 25)]
    (tmp_path / "bin/artifacts.json").write_text(json.dumps({"artifacts": others + mine}))
    assert run("download", **inputs)[0] == 0
    calls = [json.loads(line) for line in (tmp_path / "bin/calls").read_text().splitlines()]
    assert calls[1][3:] == ["repos/us/search/actions/artifacts", "-f", "name=a run&name=x", "-F", "per_page=100"]
    assert calls[2][:3] == ["run", "download", "5"]
    status, _, summary = run("compare", **inputs)
    assert status == 0
    assert "passed: require ndcg@10 > 0 [run - baseline]" in summary
