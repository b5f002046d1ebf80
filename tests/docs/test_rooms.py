"""The table of rooms is the order of their imports."""

import ast
import re

import pytest
from pages import ROOT

PACKAGE = ROOT / "torchrank"
TABLE = re.findall(r"^\| \[?`(\w+)(?:/|\.py)`", (PACKAGE / "README.md").read_text(), re.MULTILINE)
#: the public names of `tables` on runs in parts, which it hands on when they are used
HANDED_ON = {("tables/__init__.py", "evaluation")}


def imported(file):
    """The rooms that a file imports, in functions and for type checkers too."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [f"{node.module}.{one.name}" for one in node.names]
        for parts in (name.split(".") for name in names):
            if parts[0] == "torchrank" and len(parts) > 1 and parts[1] != "__version__":
                yield parts[1]


def test_every_room_is_in_the_table():
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert rooms | files == set(TABLE)
    assert len(TABLE) == len(set(TABLE))


@pytest.mark.parametrize("room", TABLE)
def test_a_room_imports_from_rooms_above_it_only(room):
    above = {room, *TABLE[: TABLE.index(room)]}
    for file in [*(PACKAGE / room).rglob("*.py"), *PACKAGE.glob(f"{room}.py")]:
        name = str(file.relative_to(PACKAGE))
        assert {one for one in imported(file) if (name, one) not in HANDED_ON} <= above, name
