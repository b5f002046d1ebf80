"""The notebooks run as they stand, and their numbers say what their words say."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.notebook_runs import FOLDER, executed, kept, printed, validate, words
from tests.support.optional import stats

pytestmark = pytest.mark.xdist_group("notebooks")  # one run for all tests of it


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict:
    """The values that the notebook "training" has computed."""
    names = ["baseline", "in_tens", "final", "history", "constant", "guessed"]
    notebook, found = executed("training", tmp_path_factory.mktemp("notebook"), {name: name for name in names})
    return {**found, "notebook": notebook}


def test_the_training_prints_the_words_kept(results):
    assert words(results["notebook"]) == words(kept("training"))


def test_training_lifts_every_measure(results):
    for name, before in results["baseline"].items():
        assert results["final"][name] > before + 0.05
    assert results["final"]["map"] > 0.85


def test_a_plain_loop_and_lightning_agree_on_any_batches(results):
    assert results["in_tens"] == pytest.approx(results["baseline"], abs=1e-5)
    assert results["history"][0] == pytest.approx(results["baseline"], abs=1e-5)
    assert results["history"][-1] == pytest.approx(results["final"], abs=1e-5)


def test_a_constant_scorer_gets_what_chance_gets(results):
    constant = results["constant"]
    for name, value in results["guessed"].items():
        assert constant[name] == pytest.approx(value, abs=0.01)
    assert constant["auroc"] == 0.5
    assert constant["map(ties=pessimistic)"] < constant["map"] < constant["map(ties=optimistic)"] == 1


@pytest.fixture(scope="module")
def better(tmp_path_factory) -> dict:
    """The numbers of the comparison of two encoders, and the values of all queries behind them."""
    columns = "{label: column.tolist() for label, column in table.columns.items()}"
    values = {
        "values": f"{{name: {columns} for name, table in tables.items()}}",
        "runs": f"{{name: [{columns} for table in results] for name, results in runs.items()}}",
        "digits": "labels.tolist()",
        "summaries": "{name: table.to_dict() for name, table in summaries.items()}",
        **{name: f"{name}.table.rows" for name in ("comparison", "from_sums", "methods")},
        **{name: f"{name}.to_dict()" for name in ("worst", "lost")},
        "sliced": "{key: value.item() for key, value in sliced.compute().items()}",
        "needed": "list(needed.items())",
        "report": "report",
        "points": "[list(map(float, line.get_xdata())) for line in axes.lines]",
        "limits": "axes.get_xlim()",
    }
    notebook, found = executed("is_it_better", tmp_path_factory.mktemp("better"), values)
    return {**found, "notebook": notebook}


@pytest.mark.parametrize("source", ["comparison", "from_sums"])
def test_paired_tests_of_values_and_of_sums_are_scipys(better, source):
    old, new = better["values"].values()
    assert [row["measure"] for row in better[source]] == list(old) == list(new)
    for row in better[source]:
        before, after = np.array(old[row["measure"]]), np.array(new[row["measure"]])
        peer = stats.ttest_rel(after, before)
        low, high = peer.confidence_interval(0.95)
        assert [row["p"], row["difference"]] == pytest.approx([peer.pvalue, (after - before).mean()], rel=1e-6)
        assert [row["low"], row["high"]] == pytest.approx([low, high], abs=1e-9)
        assert row["effect"] == pytest.approx((after - before).mean() / (after - before).std(ddof=1), rel=0.01)
        signs = np.sign((after - before).round(12))  # 1 and 1 - 1e-16 are a tie
        counts = [(signs == sign).sum() for sign in (1, 0, -1)]
        assert [row["wins"], row["ties"], row["losses"]] == counts


@pytest.mark.parametrize("source", ["comparison", "from_sums", "methods"])
def test_p_values_are_corrected_over_the_three_measures(better, source):
    rows = sorted(better[source], key=lambda row: row["p"])
    largest = 0.0
    for factor, row in zip((3, 2, 1), rows, strict=True):  # Holm's method
        largest = max(largest, min(1.0, factor * row["p"]))
        assert row["p_corrected"] == pytest.approx(largest)
        assert (row["winner"] is not None) == (largest <= 0.05)


def test_intervals_overlap_although_the_paired_test_has_a_verdict(better):
    first = better["comparison"][0]
    assert first["measure"] == "map"
    assert (first["winner"], first["p_corrected"] < 0.05) == ("16 dim", True)
    old, new = better["summaries"].values()
    assert all(value < other for value, other in zip(old["value"], new["value"], strict=True))
    assert all(low < high for low, high in zip(new["low"], old["high"], strict=True))


def test_the_worst_slice_has_an_interval_for_all_ten_digits(better):
    values, digits = np.array(better["values"]["16 dim"]["map"]), np.array(better["digits"])
    means = [values[digits == digit].mean() for digit in range(10)]
    for digit, mean in enumerate(means):
        assert better["sliced"][f"map/digit {digit}"] == pytest.approx(mean, abs=1e-6)
    part = values[digits == np.argmin(means)]
    half = stats.t.ppf(1 - 0.05 / 10 / 2, len(part) - 1) * stats.sem(part)
    (row,) = zip(*(better["worst"][name] for name in ("slice", "queries", "low", "high")), strict=True)
    assert row[:2] == (f"digit {np.argmin(means)}", len(part))
    assert row[2:] == pytest.approx((part.mean() - half, part.mean() + half), abs=1e-6)


def test_deltas_are_the_largest_losses(better):
    old, new = (np.array(table["map"]) for table in better["values"].values())
    assert better["lost"]["delta"] == pytest.approx(np.sort(new - old)[:5].tolist(), abs=1e-9)
    assert np.all(np.diff(better["lost"]["delta"]) >= 0)


def test_power_is_the_power_asked_for(better):
    for row in better["comparison"]:
        assert power(row["detectable"], row["sd"], row["n"]) == pytest.approx(0.8, abs=0.005)
    sd = better["comparison"][0]["sd"]
    for delta, queries in better["needed"]:
        assert power(delta, sd, queries) == pytest.approx(0.8, abs=0.01)


def power(delta: float, sd: float, queries: int) -> float:
    """Probability that a two-sided paired t test at 0.05 finds a true difference."""
    quantile, centre = stats.t.ppf(0.975, queries - 1), delta / sd * queries**0.5
    away = stats.nct(queries - 1, centre)
    return away.sf(quantile) + away.cdf(-quantile)


def test_five_trainings_do_not_show_the_difference_of_two_checkpoints(better):
    for row in better["methods"]:
        old, new = ([np.mean(run[row["measure"]]) for run in runs] for runs in better["runs"].values())
        assert len(old) == len(new) == 5
        assert row["p"] == pytest.approx(stats.ttest_ind(new, old, equal_var=False).pvalue, rel=1e-6)
        per_query = [np.mean([run[row["measure"]] for run in runs], 0) for runs in better["runs"].values()]
        assert row["losses"] == (per_query[1] < per_query[0] - 1e-9).sum()
    assert better["methods"][0]["winner"] is None


def test_the_forest_plot_has_each_difference_and_its_interval(better):
    cells = [cell for cell in better["notebook"].cells if ".forest()" in cell.source]
    assert [any("image/png" in output.get("data", {}) for output in cell.outputs) for cell in cells] == [True]
    drawn = sorted({x for points in better["points"] for x in points if x})  # some marks are drawn twice
    assert drawn == pytest.approx(sorted(row["difference"] for row in better["comparison"]), abs=1e-9)
    low, high = better["limits"]
    assert all(low < row["low"] < row["high"] < high for row in better["comparison"])


def test_the_report_has_a_row_for_each_measure(better):
    lines = better["report"].splitlines()[2:5]
    for line, row in zip(lines, better["comparison"], strict=True):
        assert line.startswith(f"| {row['measure']} | 8 dim | 16 dim |")
        assert f"| {row['difference']:+.4f} |" in line


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


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.ipynb")))
def test_kept_outputs_are_whole_and_clean(name):
    notebook = kept(name)
    validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 300_000


def test_layouts_print_the_outputs_kept(tmp_path):
    fresh, _ = executed("layouts", tmp_path)
    assert list(map(printed, fresh.cells)) == list(map(printed, kept("layouts").cells))


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
