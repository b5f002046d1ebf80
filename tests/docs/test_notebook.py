"""The notebooks run as they stand, and their numbers say what their words say."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
QUICKSTART, LAYOUTS = NOTEBOOKS / "quickstart.ipynb", NOTEBOOKS / "layouts.ipynb"

pytestmark = pytest.mark.xdist_group("notebook")  # one run for all tests of it


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict:
    """The values that the quickstart has computed."""
    notebook = nbformat.read(QUICKSTART, as_version=4)
    names = ["baseline", "one_by_one", "final", "history", "constant", "guessed"]
    report = "import json; print(json.dumps({" + ", ".join(f"'{name}': {name}" for name in names) + "}))"
    notebook.cells.append(nbformat.v4.new_code_cell(report))
    folder = tmp_path_factory.mktemp("notebook")
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    errors = [output for cell in notebook.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
    assert errors == []
    return json.loads(notebook.cells[-1].outputs[0].text)


def test_training_lifts_every_measure(results):
    for name, before in results["baseline"].items():
        assert results["final"][name] > before + 0.05
    assert results["final"]["map"] > 0.85


def test_a_plain_loop_and_lightning_agree_on_any_batches(results):
    assert results["one_by_one"] == pytest.approx(results["baseline"], abs=1e-5)
    assert results["history"][0] == pytest.approx(results["baseline"], abs=1e-5)
    assert results["history"][-1] == pytest.approx(results["final"], abs=1e-5)


def test_a_constant_scorer_gets_what_chance_gets(results):
    constant = results["constant"]
    for name, value in results["guessed"].items():
        assert constant[name] == pytest.approx(value, abs=0.01)
    assert constant["auroc"] == 0.5
    assert constant["map(ties=pessimistic)"] < constant["map"] < constant["map(ties=optimistic)"] == 1


@pytest.mark.parametrize("path", [QUICKSTART, LAYOUTS], ids=lambda path: path.stem)
def test_kept_outputs_are_whole_and_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)
    assert path.stat().st_size < 300_000


def test_layouts_print_the_outputs_kept(tmp_path):
    kept, fresh = (nbformat.read(LAYOUTS, as_version=4) for _ in range(2))
    NotebookClient(fresh, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    assert list(map(printed, fresh.cells)) == list(map(printed, kept.cells))


def printed(cell: nbformat.NotebookNode) -> str:
    """The text of the outputs of a cell."""
    return "".join(output.get("text") or output["data"]["text/plain"] for output in cell.get("outputs", []))
