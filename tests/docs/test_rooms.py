"""The table of rooms is the order of their imports, and no file imports a file that imports it."""

import ast
import re
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter

import pytest

import torchrank as tr
from tests.support.pages import ROOT
from torchrank.evaluation import report

PACKAGE = ROOT / "torchrank"
TABLE = re.findall(r"^\| \[?`(\w+)(?:/|\.py)`", (PACKAGE / "README.md").read_text(), re.MULTILINE)
FILES = sorted(PACKAGE.rglob("*.py"))


def module(name):
    """The file of a module, or of the module that has this name in it; None if it is not of this package."""
    parts = name.split(".")
    while parts and parts[0] == "torchrank":
        path = ROOT.joinpath(*parts)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                return file
        parts.pop()
    return None


@cache
def tree(file):
    return ast.parse(file.read_text())


def imported(module_):
    """The files that a module imports: at its top, in functions, for type checkers, and by the name in a string."""
    for node in ast.walk(module_):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if re.fullmatch(r"torchrank(\.\w+)+\.?", node.value) else []
        yield from {module(name.rstrip(".")) for name in names} - {None}


@cache
def imports(file):
    """The files that a file imports. The constructors of `Ranking` import late what imports it."""
    late = ("torchrank.engine.rank_layout", "torchrank.tables.joining") if file.name == "ranking.py" else ()
    return {*imported(tree(file))} - {module(name) for name in late if file.parent.name == "ranking"}


def room(file):
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_every_room_is_in_the_table():
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert rooms | files == set(TABLE)
    assert len(TABLE) == len(set(TABLE))


@pytest.mark.parametrize("name", TABLE)
def test_a_room_imports_from_rooms_above_it_only(name):
    above = {name, *TABLE[: TABLE.index(name)]}
    for file in FILES:
        if room(file) == name:
            assert {room(other) for other in imports(file)} <= above, file


def test_no_file_imports_a_file_that_imports_it():
    graph = {file: imports(file) - {file} for file in FILES}
    try:
        assert {*TopologicalSorter(graph).static_order()} >= {*FILES}
    except CycleError as error:
        pytest.fail(" -> ".join(str(file.relative_to(ROOT)) for file in error.args[1]))


def test_few_places_ask_for_the_device():
    asking = [file for file in FILES for _ in re.findall(r"\.is_cpu\b|device\.type\b|\.is_cuda\b", file.read_text())]
    assert len([file for file in asking if room(file) != "hardware"]) <= 37
    assert not [file for file in asking if room(file) in ("formulas", "metrics")]


@pytest.mark.parametrize(
    "text",
    [
        "from torchrank.cli import commands",
        "def late():\n    import torchrank.cli.commands",
        "if TYPE_CHECKING:\n    from torchrank.cli.commands import source_of",
        "import_module('torchrank.cli.commands')",
        "import_module(f'torchrank.cli.commands.{name}')",
    ],
)
def test_imports_of_every_form_are_read(text):
    assert [*imported(ast.parse(text))] == [PACKAGE / "cli/commands.py"]


def test_packages_that_are_imported_without_a_condition_are_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {re.match(r"[\w-]+", one)[0] for one in project["dependencies"]}
    for file in FILES:
        body = tree(file).body
        names = {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in body if isinstance(node, ast.ImportFrom)}
        if file.parent.name != "integrations" and file.name not in ("demo.py", "kernels.py"):  # imported if they can be
            assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"torchrank"} <= core, file


def test_a_report_without_its_packages_names_their_extra(monkeypatch):
    report._template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"run `pip install jinja2` \(the extra 'report' of torchrank installs it\)"):
        tr.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0}}, "mrr").to_html()
