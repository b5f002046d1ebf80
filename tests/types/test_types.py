"""Type checkers know every argument and every result."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

pytestmark = pytest.mark.xdist_group("types")  # mypy runs once for all tests


@pytest.fixture(scope="module")
def refused():
    """Lines with errors, by file."""
    files = [HERE / "right.py", HERE / "wrong.py"]
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "--no-pretty", *files]
    done = subprocess.run([*map(str, command)], cwd=HERE.parents[1], capture_output=True, text=True, timeout=300)
    assert not done.stderr, done.stderr
    found = {file.name: {} for file in files}
    for line in done.stdout.splitlines():
        where, _, said = line.partition(": error: ")
        if said:
            file, number = where.split(":")[:2]
            found.setdefault(Path(file).name, {}).setdefault(int(number), said)
    return found


def test_right_calls_are_accepted(refused):
    assert refused["right.py"] == {}


def test_wrong_calls_are_refused_line_by_line(refused):
    lines = (HERE / "wrong.py").read_text().splitlines()
    wanted = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    assert {n: lines[n - 1] for n in sorted(wanted ^ refused["wrong.py"].keys())} == {}


def test_the_library_itself_is_accepted(refused):
    assert refused.keys() == {"right.py", "wrong.py"}
