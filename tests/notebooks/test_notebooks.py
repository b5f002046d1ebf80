"""The notebooks run as they stand, and print the outputs that their files keep."""

import re

import numpy as np
import pytest

from tests.support import notebook_runs
from tests.support.notebook_runs import FOLDER, executed, kept, nbformat, numbers, pictures, printed, words
from tests.support.optional import stats

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
#: tests of Spark and Ray run the guide on clusters
GUIDES = sorted({*NAMES} - {"clusters", "integrations", "is_it_better"})
#: their whole numbers depend on the processor, or on the version of a library
ROUGH = {"index_recall", "large", "training"}
#: by how much numbers may differ: the graph of an index depends on the last digits of distances, and a percentile of
#: recall@10 moves in steps of 0.1
NEAR = {"index_recall": 0.101}

# One kernel imports the libraries for all notebooks.
pytestmark = [pytest.mark.xdist_group("notebooks"), pytest.mark.needs("nbclient", "nbformat")]


@pytest.fixture(scope="module", autouse=True)
def kernel():
    yield
    notebook_runs.close()


@pytest.mark.parametrize("name", NAMES)
def test_kept_outputs_are_whole_and_clean(name):
    notebook = kept(name)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 300_000


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_prints_the_outputs_kept(name, tmp_path):
    if name == "index_recall":
        pytest.importorskip("faiss")
    fresh, before = executed(name, tmp_path)[0], kept(name)
    assert words(fresh, name in ROUGH) == words(before, name in ROUGH)
    assert numbers(fresh) == pytest.approx(numbers(before), rel=0.05, abs=NEAR.get(name, 0.02))
    assert list(map(pictures, fresh.cells)) == list(map(pictures, before.cells))


def test_integrations_print_the_outputs_kept_where_the_library_is_installed(tmp_path):
    notebook, found = executed("integrations", tmp_path, {"kept": "expected"})
    skipped = []
    for cell, before in zip(notebook.cells, kept("integrations").cells, strict=True):
        text = printed(cell)
        assert "not run here" not in printed(before)
        if not text.startswith("not run here"):
            assert text == printed(before)
            continue
        skipped += text.split("pip install ")[1].split()
    # The extra [test] has the others.
    assert set(skipped) <= {"keras", "pytorch-ignite", "sentence-transformers"}
    assert found["kept"]["mrr"] == pytest.approx(0.5716, abs=1e-4)


def test_the_comparison_of_two_encoders_has_the_numbers_of_scipy(tmp_path):
    columns = "{label: column.tolist() for label, column in table.columns.items()}"
    values = {
        "values": f"{{name: {columns} for name, table in tables.items()}}",
        "comparison": "comparison.table.rows",
        "from_sums": "from_sums.table.rows",
    }
    notebook, found = executed("is_it_better", tmp_path, values)
    assert list(map(pictures, notebook.cells)) == list(map(pictures, kept("is_it_better").cells))
    old, new = found["values"].values()
    for row, other in zip(found["comparison"], found["from_sums"], strict=True):
        one, two = np.array(old[row["measure"]]), np.array(new[row["measure"]])
        peer = stats.ttest_rel(two, one)
        for each in (row, other):
            assert [each["p"], each["difference"]] == pytest.approx([peer.pvalue, (two - one).mean()], rel=1e-6)
            ends = peer.confidence_interval(0.95)
            assert [each["low"], each["high"]] == pytest.approx([ends.low, ends.high], abs=1e-9)


def test_words_cite_numbers_of_the_outputs_kept():
    cells = kept("is_it_better").cells
    words = "".join(cell.source for cell in cells if cell.cell_type == "markdown")
    output = next(printed(cell) for cell in cells if ".forest()" in cell.source)
    header, *rows = (line.split() for line in output.splitlines()[:4])
    table = {row[0]: dict(zip(header, " ".join(row).replace(" dim", "_dim").split(), strict=True)) for row in rows}
    assert re.search(r"(\d+) queries got worse", words)[1] == table["map"]["losses"]
    assert re.search(r"would pass with p = (\S+)\.", words)[1] == table["precision@1"]["p"]
    assert (table["map"]["winner"], table["precision@1"]["winner"]) == ("16_dim", "-")
    assert table["map"]["effect"].startswith("+0.1")  # "a tenth of the standard deviation"
