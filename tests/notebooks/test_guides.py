"""The guides run as they stand and print the outputs that their files keep."""

from __future__ import annotations

import pytest

from notebooks import FOLDER, executed, kept, numbers, words

# Notebooks whose numbers have tests of their own in test_notebooks.py.
TESTED = {"quickstart", "layouts", "is_it_better", "large", "integrations"}
GUIDES = sorted({path.stem for path in FOLDER.glob("*.ipynb")} - TESTED)

# Every group has a kernel of its own, which imports the libraries once. The slowest guide is with the other notebooks.
GROUPS = {name: "notebooks" if name == "several_workers" else "guides" for name in GUIDES}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group(GROUPS[name])) for name in GUIDES])
def test_a_guide_prints_the_outputs_kept(name, tmp_path):
    fresh, _ = executed(name, tmp_path)
    assert words(fresh) == words(kept(name))
    assert numbers(fresh) == pytest.approx(numbers(kept(name)), rel=0.05, abs=0.02)
    assert any("image/png" in output.get("data", {}) for cell in fresh.cells for output in cell.get("outputs", []))
