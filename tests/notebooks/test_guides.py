"""The guides run as they stand and print the outputs that their files keep; and the guide on large runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.notebook_runs import FOLDER, executed, kept, numbers, printed, words

# Notebooks whose numbers have tests of their own.
TESTED = {"training", "layouts", "is_it_better", "large", "clusters", "integrations", "index_recall"}
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


def test_the_recall_of_indexes_is_that_of_brute_force(tmp_path):
    values = {
        "rows": "rows",
        "filtered": "filtered",
        "passing": "np.flatnonzero(passes).tolist()",
        "candidates": "candidates.tolist()",
        "means": "{name: table['recall@10'].mean() for name, table in split.items()}",
    }
    pytest.importorskip("faiss")
    notebook, found = executed("index_recall", tmp_path, values)
    pages, queries = index_data()
    distances = (((query - pages) ** 2).sum(-1) for query in queries)
    compressed, reranked, filtered_pages = [], [], len(found["passing"])
    for candidates, distance in zip(found["candidates"], distances):
        nearest = distance.argsort(kind="stable")[:10]
        radius = distance[nearest[-1]]
        nearer = set(np.flatnonzero(distance < radius).tolist())
        for ids, shares in ((candidates[:10], compressed), (candidates, reranked)):
            tied = [one for one in set(ids) if distance[one] == radius]
            shares.append((len(nearer & set(ids)) + min(len(tied), 10 - len(nearer))) / 10)
    assert found["means"]["compressed"] == pytest.approx(np.mean(compressed), abs=1e-9)
    assert found["means"]["reranked"] == pytest.approx(np.mean(reranked), abs=1e-9)
    assert found["means"]["compressed"] < found["means"]["full"] - 0.05
    assert filtered_pages < 10
    rows = found["rows"]
    assert found["filtered"][0] == pytest.approx(rows[2]["mean"])
    for narrow, wide in itertools.pairwise(rows):
        assert narrow["cost"] < wide["cost"]
        assert narrow["mean"] < wide["mean"]
    assert all(row["p5"] <= row["mean"] and row["low"] < row["mean"] < row["high"] for row in rows)
    assert rows[0]["p5"] == 0
    text = "".join(printed(cell) for cell in notebook.cells if not pictures(cell))
    assert "recall@10   1.0000" in text
    assert "recall@10                 0.1000" in text
    assert sum(map(pictures, notebook.cells)) == 1


def index_data():
    """The pages and queries of the notebook, in float64."""
    generator = np.random.default_rng(0)
    topics = generator.standard_normal((200, 48))
    pages, queries = (
        (topics[generator.integers(200, size=n)] + generator.standard_normal((n, 48))).astype(np.float32).astype(float)
        for n in (9000, 1000)
    )
    return np.concatenate([pages, pages[:1000]]), queries


def pictures(cell):
    return sum("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
