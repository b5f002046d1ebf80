"""Notebooks executed one after the other in one kernel, so that libraries are imported once."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="pip install '.[test]'")  # in test modules that import this one

from nbclient import NotebookClient
from nbformat import NotebookNode, read, validate  # noqa: F401 - validate is for tests
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
CLIENT = NotebookClient(new_notebook(), timeout=300, kernel_name="python3", shutdown_kernel="immediate")

# Each notebook begins with no names, no figures and in a folder of its own. "%reset" collects garbage twice, a second
# each time where libraries are not frozen. What other libraries warn of at their own lines changes with their versions;
# a warning of this library has the line of a cell.
FRESH = """
%reset -f
import gc, os, sys, warnings
sys.path.insert(0, {root!r})
import tests.support.torchmetrics_alone
del tests, sys.path[0]
os.chdir({folder!r})
warnings.filterwarnings("ignore", module="(?!__main__|torchrank)")
if "matplotlib.pyplot" in sys.modules:
    sys.modules["matplotlib.pyplot"].close("all")
gc.freeze()
del gc, os, sys, warnings
"""


def executed(name, folder, values=None):
    """A notebook after a run in ``folder``, and the values of some expressions at its end. No cell writes to stderr."""
    notebook = read(FOLDER / f"{name}.ipynb", as_version=4)
    pairs = ", ".join(f"'{name}': {value}" for name, value in (values or {}).items())
    last = f"import json; print(json.dumps({{{pairs}}}))"
    fresh = FRESH.format(folder=str(folder), root=str(ROOT))
    notebook.cells = [new_code_cell(fresh), *notebook.cells, new_code_cell(last)]
    CLIENT.nb = notebook
    CLIENT.execute(cleanup_kc=False)
    errors = [output for cell in notebook.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
    assert errors == []
    found = json.loads(notebook.cells.pop().outputs[0].text)
    del notebook.cells[0]
    return notebook, found


def close():
    """End the kernel, if one was started."""
    if CLIENT.km is not None and CLIENT.km.has_kernel:
        CLIENT._cleanup_kernel()


def kept(name):
    """A notebook with the outputs that its file keeps."""
    return read(FOLDER / f"{name}.ipynb", as_version=4)


NUMBER = re.compile(r"[-+]?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")


def words(notebook, rough=False):
    """The words of all outputs, by cell and line, with "#" for decimal numbers and, if ``rough``, for whole ones."""
    # Trainings end in slightly other numbers on other processors. Blanks align the numbers of a table.
    texts = [NUMBER.sub("#", printed(cell)) for cell in notebook.cells]
    return [[line.split() for line in (re.sub(r"\d+", "#", text) if rough else text).splitlines()] for text in texts]


def numbers(notebook):
    """All decimal numbers of all outputs."""
    return [float(number) for cell in notebook.cells for number in NUMBER.findall(printed(cell))]


def printed(cell):
    """The text of the outputs of a cell."""
    return "".join(output.get("text") or output["data"].get("text/plain", "") for output in cell.get("outputs", []))


def pictures(cell):
    """The number of figures of a cell."""
    return sum("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
