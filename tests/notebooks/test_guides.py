"""The guides run as they stand and print the outputs that their files keep; and the guide on large runs."""

from __future__ import annotations

import pytest

from tests.support.notebook_runs import FOLDER, executed, kept, numbers, words

# Notebooks whose numbers have tests of their own.
TESTED = {"training", "layouts", "is_it_better", "large", "clusters", "integrations"}
GUIDES = sorted({path.stem for path in FOLDER.glob("*.ipynb")} - TESTED)

# One kernel imports the libraries for all notebooks.
pytestmark = pytest.mark.xdist_group("notebooks")


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_prints_the_outputs_kept(name, tmp_path):
    fresh, _ = executed(name, tmp_path)
    assert words(fresh) == words(kept(name))
    assert numbers(fresh) == pytest.approx(numbers(kept(name)), rel=0.05, abs=0.02)
    assert any("image/png" in output.get("data", {}) for cell in fresh.cells for output in cell.get("outputs", []))


def test_chunks_and_parts_have_the_bits_of_one_process(tmp_path):
    values = {
        "whole": "whole.means['bm25']",
        "ends": "whole.intervals()['bm25']",
        "chunked": "chunked.means['bm25']",
        "merged": "merged.means",
        "intervals": "merged.intervals()",
        "coverage": "merged.coverage.rows[0]",
        "rows": "rows",
        "grades": "grades",
    }
    _, found = executed("large", tmp_path, values)
    assert found["chunked"] == found["merged"] == found["whole"]
    assert found["intervals"] == found["ends"]
    assert (found["coverage"]["queries"], found["coverage"]["missing"]) == (500, 10)
    lists: dict = {}
    for query, document, score in found["rows"]:
        lists.setdefault(query, []).append((score, found["grades"][query].get(document, 0) > 0))
    hits = [[hit for _, hit in sorted(one, reverse=True)] for one in lists.values()]
    mrr = sum(1 / (one.index(True) + 1) for one in hits if any(one)) / 500
    assert found["whole"]["mrr"] == pytest.approx(mrr, abs=1e-12)


def test_clusters_have_the_bits_of_one_process(tmp_path):
    for package, extra in (("pyspark", "spark"), ("ray", "ray")):
        pytest.importorskip(package, reason=f"the extra [{extra}] is not installed")
    values = {
        "whole": "[whole.means, whole.by().rows, str(whole.compare('old'))]",
        "spark": "[on_spark.means, on_spark.by().rows, str(on_spark.compare('old'))]",
        "ray": "[on_ray.means, on_ray.by().rows, str(on_ray.compare('old'))]",
        "joined": "joined.means",
        "scored": "scored.means",
        "users": "scored.num_queries",
    }
    _, found = executed("clusters", tmp_path, values, loud=True)
    assert found["spark"] == found["ray"] == found["whole"]
    assert list(found["joined"]) == ["old", "new"]
    assert found["users"] == 1000
    assert 0.05 < found["scored"]["mrr@100"] < found["scored"]["recall@20"] < 1
