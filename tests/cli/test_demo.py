"""The command, run as a user runs it."""

import os
import subprocess
import sys

import pytest
import torch

from tests.support.optional import sklearn_metrics
from torchrank import __version__
from torchrank.cli import main

needs_the_extra = pytest.mark.needs("lightning", "sklearn", "matplotlib")


@needs_the_extra
@pytest.mark.xdist_group("processes")  # whose process has imported Lightning
def test_training_lifts_every_measure_and_ends_with_the_numbers_of_scikit_learn(tmp_path, capsys):
    from torchrank.cli.demo import Digits, Encoder

    plot, weights = tmp_path / "curves.png", tmp_path / "weights.pt"
    assert main(["demo", "--epochs", "3", "--plot", str(plot), "--save", str(weights)]) == 0
    lines = capsys.readouterr().out.splitlines()
    names, *rows, (title, *printed) = (line.split() for line in lines[2 : lines.index("", 2)])
    rows = [[float(cell) for cell in row] for row in rows]
    gain = {name: after - before for name, before, after in zip(names[1:], rows[0][1:], rows[-1][1:], strict=True)}
    assert ([names[0], title], [row[0] for row in rows]) == (["epoch", "gain"], [0, 1, 2, 3])
    assert [float(one) for one in printed] == pytest.approx([*gain.values()], abs=2e-4)
    assert all(one[0] in "+-" for one in printed)
    assert min(gain.values()) > 0.05
    assert gain["ndcg@10"] > 0.15
    assert gain["map"] > 0.25
    assert plot.read_bytes().startswith(b"\x89PNG")

    encoder = Encoder()
    encoder.load_state_dict(torch.load(weights, weights_only=True))
    images, labels, columns = Digits(seed=0).held_out.tensors
    with torch.no_grad():
        points = encoder(images)
    others = columns[:, None] != columns
    scores, same = (x[others].reshape(len(x), -1).numpy() for x in (points @ points.T, labels[:, None] == labels))
    last = dict(zip(names, rows[-1]))
    precision = [sklearn_metrics.average_precision_score(s, p) for s, p in zip(same, scores)]
    assert last["map"] == pytest.approx(sum(precision) / len(precision), abs=1e-4)
    assert last["ndcg@10"] == pytest.approx(sklearn_metrics.ndcg_score(same, scores, k=10), abs=1e-4)


@pytest.mark.parametrize(("name", "package"), [("lightning", "lightning"), ("sklearn", "scikit-learn")])
@needs_the_extra
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
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"torchrank {__version__}\n"


def test_a_closed_pipe_ends_the_command_quietly():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "torchrank"]  # whose help needs no PyTorch
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=300)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
