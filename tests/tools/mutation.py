"""Faults of one token, and the tests that notice them: ``python tests/tools/mutation.py engine --places 30 --seed 7``.

Changes one token of a folder of ``torchrank`` at a time, in random places, and runs the tests of this folder until one
fails: those that execute the place, the fastest first, then the rest of their files. If all of them pass, the tests of
other folders follow.
Prints each mutant and the test that caught it, and for each folder the share that its tests caught. Read those that
survived:

- a mutant that does the same as the code is equivalent: leave it out with ``--equivalent engine-3``;
- code that makes no difference can go;
- all others need a test. Run only these mutants again with ``--only engine-3``.

On a busy machine, a test of processes that exceeds its time limit fails without a cause; such tests come last.

Your files are never written: the tests run in copies of the repository. Which mutants are drawn, and their numbers,
depends on the seed and on the code of the folder. Words (docstrings, messages, annotations), looks of plots (widths
of lines, sizes of texts), methods that only subclasses define, flags of dataclasses and of their fields, ``stable`` of
sorts, assertions, and costs by which plans are made are not changed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import mmap
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(Path(__file__).parent))
from mutants import Mutant, drawn, with_calls  # noqa: E402

#: tests of a folder or file of ``torchrank`` beside those of the folder with its name and ``tests/properties``
FURTHER = {
    "display": ["test_display.py"],
    "engine": ["hardware/test_devices.py"],
    "formulas": ["metrics", "wrappers/test_sampled_ranks.py"],
    "hardware": ["engine/test_streams.py"],
    "ranking": ["metrics", "wrappers/test_sampled_ranks.py", "wrappers/test_tie_report.py"],
    "state": ["retrieval", "wrappers/test_sampled_ranks.py"],
}
TESTS = {
    path.stem: [path.stem] * (ROOT / "tests" / path.stem).is_dir() + ["properties", *FURTHER.get(path.stem, [])]
    for path in sorted((ROOT / "torchrank").iterdir())
    if (path / "__init__.py").exists() or path.stem in ("display", "retrieval")
}
#: folders of tests that are not tried on mutants of others: they take long, or read the code without executing it
NOT_TRIED = {"tests/notebooks", "tests/types"}
#: imported once, before the processes of all mutants are forked
IMPORTED = ("numpy", "torch", "torchmetrics", "scipy.stats", "pandas", "hypothesis")
#: bytes of memory that a mutant can ask for
MEMORY = 16 << 30


# ---- processes, each with a copy of the repository -------------------------------------------------------------------


def in_processes(tasks: deque[Callable], jobs: int, root: Path) -> Iterator[tuple[Callable, object]]:
    """Call each task in a process and a copy of the repository; with its result, or None if the process was ended.

    Tasks may be added while others run.
    """
    running = {}
    while True:
        while tasks and len(running) < jobs:
            task, copy = tasks.popleft(), Path(tempfile.mkdtemp(dir=root.parent))
            if not (process := os.fork()):
                run_alone(task, shutil.copytree(root, copy, dirs_exist_ok=True))
            running[process] = task, copy
        if not running:
            return
        process, _ = os.wait()
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # the processes that its tests started
        task, copy = running.pop(process)
        result = copy / "result.json"
        yield task, json.loads(result.read_text()) if result.exists() else None
        shutil.rmtree(copy, ignore_errors=True)


def run_alone(task: Callable, copy: Path) -> None:
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        output = os.open(copy / "output.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(copy)
        sys.path[0] = str(copy)
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        result = json.dumps(task(copy))
        (copy / "result.json").write_text(result)
    finally:
        os._exit(0)


# ---- the tests -------------------------------------------------------------------------------------------------------


class Plugin:
    """What both runs of tests share: no examples of hypothesis are drawn at random or made smaller."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutation", settings.default, derandomize=True, database=None, phases=phases)
        settings.load_profile("mutation")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def run(self, tests: Iterable[str], *options: str) -> int:
        return pytest.main([*tests, "-p", "no:cacheprovider", "--tb=short", *options], plugins=[self])


class Recorder(Plugin):
    """The places that each test executes, and its seconds."""

    def __init__(self, hits: mmap.mmap) -> None:
        super().__init__()
        self.hits, self.imported, self.tests = hits, [], {}

    def executed(self) -> list[int]:
        places = [place for place, hit in enumerate(self.hits[:]) if hit]
        self.hits[:] = bytes(len(self.hits))
        return places

    def pytest_collection_finish(self) -> None:
        self.imported = self.executed()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.tests[item.nodeid] = self.imported + self.executed(), time.perf_counter() - start
        return True


class Chosen(Plugin):
    """The tests in ``order``, without the others of ``recorded``. Tests with names that are new come first.

    A test that takes far longer than when it was recorded ends the process.
    """

    def __init__(self, recorded: dict[str, Any], order: list[str]) -> None:
        super().__init__()
        self.left_out = recorded.keys() - set(order)
        self.rank = {test: i for i, test in enumerate(order)}
        self.limit = {test: int(60 + 10 * recorded[test][1]) for test in order}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        signal.alarm(self.limit.get(item.nodeid, 300))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.left_out]
        items.sort(key=lambda item: self.rank.get(item.nodeid, -1))


RECORD = """import mmap
with open({!r}, "r+b") as file:
    hits = mmap.mmap(file.fileno(), 0)  # processes that tests start write in the same bytes
def hit(place): hits[place] = 1
"""


def record(mutants: list[Mutant], paths: list[str], copy: Path) -> dict[str, Any]:
    """Run tests on code without mutants, in which the place of each mutant says that it is executed.

    Each file of tests has a process, because a value that a test of another file has cached executes no place.
    """
    (copy / "hits").write_bytes(bytes(len(mutants)))
    (copy / "mutation_record.py").write_text(RECORD.format(str(copy / "hits")))
    for file in {mutant.file for mutant in mutants}:
        calls = {f"__import__('mutation_record').hit({i})": m for i, m in enumerate(mutants) if m.file == file}
        (copy / file).write_bytes(with_calls((copy / file).read_bytes(), calls))
    recorded: dict[str, Any] = {"tests": {}, "failed": [], "output": ""}
    for path in paths:
        files = sorted((copy / path).rglob("test_*.py")) if path.startswith("tests/") and (copy / path).is_dir() else []
        for each in [str(file.relative_to(copy)) for file in files] or [path]:
            if not (process := os.fork()):
                record_file(each, copy)
            os.waitpid(process, 0)
            part = json.loads((copy / "part.json").read_text())
            recorded["tests"] |= part["tests"]
            recorded["failed"] += part["failed"]
            recorded["output"] += part["output"]
    return recorded


def record_file(path: str, copy: Path) -> None:
    try:
        (copy / "part.json").write_text(json.dumps({"tests": {}, "failed": [], "output": f"{path} ended its process"}))
        with (copy / "hits").open("r+b") as file:
            recorder = Recorder(mmap.mmap(file.fileno(), 0))
        ran = recorder.run([path]) in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        output = "" if ran else (copy / "output.txt").read_text()[-3000:]
        result = {"tests": recorder.tests, "failed": recorder.failed, "output": output}
        (copy / "part.json").write_text(json.dumps(result))
    finally:
        os._exit(0)


def attempt(mutant: Mutant, paths: list[str], chosen: Chosen, copy: Path) -> str:
    """The test that catches a mutant, or nothing."""
    signal.alarm(300)  # the modules may not end their import
    (copy / mutant.file).write_bytes(mutant.applied((copy / mutant.file).read_bytes()))
    passed = chosen.run(paths, "--exitfirst") in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return "" if passed else [*chosen.failed, "an error before the first test"][0]


def attempts(mutants: list[Mutant], recorded: dict[str, Any]) -> Iterator[Callable]:
    """For each mutant, a run of the tests that execute its place; all cases of the fastest function come first.

    The other tests of their files follow, because they can share a fixture or a cached value.
    """
    if recorded is None or recorded["output"]:
        sys.exit(f"These tests do not run without mutants: {recorded}")
    for test in recorded["failed"]:
        print(f"left out, because it fails without a mutant: {test}")
    tests, seconds = recorded["tests"], defaultdict(float)
    for test, (_, taken) in tests.items():
        seconds[function(test)] = max(taken, seconds[function(test)])
    for place, mutant in enumerate(mutants):
        executing = {test for test in tests.keys() - recorded["failed"] if place in tests[test][0]}
        files = {test.split("::")[0] for test in executing}
        order = [test for test in tests.keys() - recorded["failed"] if test.split("::")[0] in files]
        order.sort(key=lambda test: (test not in executing, seconds[function(test)], test))
        if order:
            yield partial(attempt, mutant, sorted(files), Chosen(tests, order))


def function(test: str) -> str:
    return test.split("[")[0]


def catch(rounds: Iterable[tuple[list[Mutant], list[str]]], processes: Callable) -> None:
    """Try mutants and paths of tests, round by round, until a test catches the mutant."""
    tasks = deque(partial(record, *each) for each in rounds if each[0])
    for task, result in processes(tasks):
        if task.func is record:
            tasks.extendleft([*attempts(task.args[0], result)][::-1])
            continue
        mutant = task.args[0]
        mutant.caught_by = "the end of its process: time, memory or a crash" if result is None else result
        print(mutant, flush=True)
        for other in [each for each in tasks if mutant.caught_by and each.args[0] is mutant]:
            tasks.remove(other)


# ---- the command -----------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="*", default=list(TESTS), help="of torchrank; all if none is named")
    parser.add_argument("--places", type=int, default=12, help="in each folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="+", metavar="MUTANT", help="run these only")
    parser.add_argument("--equivalent", nargs="+", default=[], metavar="MUTANT", help="leave these out")
    parser.add_argument("--own", action="store_true", help="do not try the tests of other folders")
    args = parser.parse_args()
    for module in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(module)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(shutil.copytree(ROOT, Path(temporary, "root"), ignore=shutil.ignore_patterns(".*")))
        processes = partial(in_processes, jobs=args.jobs, root=root)
        every = [mutant for folder in args.folders for mutant in drawn(root, folder, args.places, args.seed)]
        mutants = [mutant for mutant in every if mutant.label in (args.only or {mutant.label} - {*args.equivalent})]
        own = {folder: [f"tests/{name}" for name in TESTS[folder]] for folder in args.folders}
        catch([([mutant for mutant in mutants if mutant.folder == folder], own[folder]) for folder in own], processes)
        left = [mutant for mutant in mutants if not mutant.caught_by]
        if not args.own:
            paths = {f"tests/{path.parent.name}" for path in root.glob("tests/*/test_*.py")} - NOT_TRIED
            rounds = [([mutant for mutant in left if path not in own[mutant.folder]], [path]) for path in sorted(paths)]
            catch([*rounds, (left, ["torchrank"])], processes)
    print("\nNot caught by the tests of their folder:", *left, sep="\n")
    print("\n| folder | mutants | not caught by its tests | nor by others | share |", "|---" * 5 + "|", sep="\n")
    for folder in own:
        of = sum(mutant.folder == folder for mutant in mutants)
        survived = [mutant.caught_by == "" for mutant in left if mutant.folder == folder]
        print(f"| {folder} | {of} | {len(survived)} | {sum(survived)} | {1 - len(survived) / max(of, 1):.2f} |")


if __name__ == "__main__":
    main()
