"""The command, run as a user runs it."""

import contextlib
import io
import os
import subprocess
import sys

import pytest
import torch

from tests.support import workers
from tests.support.optional import sklearn_metrics
from torchrank import __version__
from torchrank.cli import main


def of_output(text):
    """The lines of the table in an output."""
    lines = text.splitlines()
    return lines[2 : lines.index("", 2)]  # between two empty lines


def read(table):
    """The rows of a table without that of the gain."""
    names = table[0].split()
    rows = [dict(zip(names, map(float, line.split()))) for line in table[1:] if "gain" not in line]
    assert [row["epoch"] for row in rows] == list(range(len(rows)))
    return rows


def needed():
    """Skip tests of the training where a package that it needs is not installed."""
    for name in ("lightning", "sklearn", "matplotlib"):
        pytest.importorskip(name)


# One training for all tests of it, in the process that has imported Lightning.
together = pytest.mark.xdist_group("processes")


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """The command with two workers. It takes long to start, so it runs beside the other training."""
    needed()
    folder = tmp_path_factory.mktemp("two")
    call = ["demo", "--epochs", "1", "--workers", "2"], folder / "output", folder / "errors", ".", None
    process = workers.CONTEXT.Process(target=workers.as_main, args=("torchrank", *call))
    process.start()
    yield process, folder
    process.kill()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The table of a short training, and the folder with the figure and the weights that it wrote."""
    needed()
    folder, printed = tmp_path_factory.mktemp("demo"), io.StringIO()
    with contextlib.redirect_stdout(printed):
        end = main(["demo", "--epochs", "3", "--plot", f"{folder}/curves.png", "--save", f"{folder}/weights.pt"])
    assert end == 0
    (folder / "output.txt").write_text(printed.getvalue())
    return of_output(printed.getvalue()), folder


@together
def test_two_workers_train_as_one(of_two, trained):
    process, folder = of_two
    process.join(300)
    assert (process.exitcode, (folder / "errors").read_text()) == (0, "")
    alone, both = read(trained[0]), read(of_output((folder / "output").read_text()))
    assert both[0] == alone[0]
    for row, expected in zip(both, alone):
        assert row == pytest.approx(expected, abs=0.005)  # sums are rounded in another order


@together
def test_training_lifts_every_measure(trained):
    rows = read(trained[0])
    assert len(rows) == 4
    gain = {name: rows[-1][name] - before for name, before in rows[0].items()}
    (printed,) = [line.split()[1:] for line in trained[0] if "gain" in line]
    assert [float(one) for one in printed] == pytest.approx([gain[name] for name in gain if name != "epoch"], abs=2e-4)
    assert all(one[0] in "+-" for one in printed)
    assert min(gain.values()) > 0.05
    assert gain["ndcg@10"] > 0.15
    assert gain["map"] > 0.25


@together
def test_numbers_are_those_of_scikit_learn(trained):
    from torchrank.cli.demo import Digits, Encoder

    table, folder = trained
    encoder = Encoder()
    encoder.load_state_dict(torch.load(folder / "weights.pt", weights_only=True))
    images, labels, columns = Digits(seed=0).held_out.tensors
    with torch.no_grad():
        points = encoder(images)
    others = columns[:, None] != columns
    scores, same = (x[others].reshape(len(x), -1).numpy() for x in (points @ points.T, labels[:, None] == labels))
    row = read(table)[-1]
    precision = [sklearn_metrics.average_precision_score(s, p) for s, p in zip(same, scores)]
    assert row["map"] == pytest.approx(sum(precision) / len(precision), abs=1e-4)
    assert row["ndcg@10"] == pytest.approx(sklearn_metrics.ndcg_score(same, scores, k=10), abs=1e-4)


@pytest.mark.parametrize(("name", "package"), [("lightning", "lightning"), ("sklearn", "scikit-learn")])
@pytest.mark.needs("lightning", "sklearn", "matplotlib")
def test_a_missing_extra_is_named(monkeypatch, capsys, name, package):
    monkeypatch.setitem(sys.modules, name, None)
    assert main(["demo"]) == 2
    said = capsys.readouterr().err
    way_out = f"run `pip install {package}` (the extra 'demo' of torchrank installs what the demo needs)"
    assert said == f"torchrank demo: Expected {package} to be installed; {way_out}\n"


def test_commands_are_described_in_lower_case_and_without_a_full_stop(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for part in ("presets list the libraries", "spellings list the names of measures", "agree print how far"):
        assert part in text
    assert "here. " not in text


def test_usage(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"torchrank {__version__}\n"
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--workers", "0"])
    assert "Expected an integer >= 1, got '0'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--plot", "no/such/folder/x.png"], ["--plot", "x.txt"], ["--save", "no/such/folder/x.pt"]]
)
def test_files_are_refused_before_the_work(options, capsys):
    with pytest.raises(SystemExit):
        main(["demo", *options])
    assert f"got {options[1]}" in capsys.readouterr().err


def test_a_closed_pipe_ends_the_command_quietly():
    read, write = os.pipe()
    os.close(read)
    needed()
    command = [sys.executable, "-m", "torchrank"]  # whose help needs no PyTorch
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
