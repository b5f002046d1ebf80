"""Notebooks executed one after the other in one kernel, so that libraries are imported once."""

import json
import re
from functools import cache
from pathlib import Path

from tests.support.optional import OptionalModule

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
nbclient, nbformat = OptionalModule("nbclient"), OptionalModule("nbformat")


@cache
def client():
    """What runs all notebooks."""
    return nbclient.NotebookClient(
        nbformat.v4.new_notebook(), timeout=300, kernel_name="python3", shutdown_kernel="immediate"
    )


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
    notebook, new_code_cell = kept(name), nbformat.v4.new_code_cell
    pairs = ", ".join(f"'{name}': {value}" for name, value in (values or {}).items())
    last = f"import json; print(json.dumps({{{pairs}}}))"
    fresh = FRESH.format(folder=str(folder), root=str(ROOT))
    notebook.cells = [new_code_cell(fresh), *notebook.cells, new_code_cell(last)]
    client().nb = notebook
    client().execute(cleanup_kc=False)
    errors = [output for cell in notebook.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
    assert errors == []
    found = json.loads(notebook.cells.pop().outputs[0].text)
    del notebook.cells[0]
    return notebook, found


def close():
    """End the kernel, if one was started."""
    if client().km is not None and client().km.has_kernel:
        client()._cleanup_kernel()


def kept(name):
    """A notebook with the outputs that its file keeps."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


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
