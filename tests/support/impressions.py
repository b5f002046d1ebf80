"""Rows with scores of two systems and grades, for engines of clusters; and another version of the package for them."""

import json
import logging
from pathlib import Path

import numpy as np

import torchrank
from tests.support.optional import pyarrow
from tests.support.pages import ROOT
from torchrank.version import __version__

COLUMNS = {"query": "user", "item": "item", "score": ["new", "old"], "grade": "clicked"}

#: measures of a table with nulls
OF_NULLS = "ndcg recall@2 map"

#: arguments that are refused on the driver, by what the error says
WRONG = {
    "Expected ties='expected' or 'document', got 'rows'": {"ties": "rows"},
    "duplicates": {"duplicates": "best of"},
    "Expected one of the columns country": {"query": "usr"},
}


def impressions(users=60, most=40, seed=0):
    """A table with text ids, in which scores are tied, users have a country, and rows are sorted by user and item."""
    draw = np.random.default_rng(seed)
    candidates = draw.integers(1, most, users)
    user = np.repeat(np.arange(users), candidates)
    item = np.concatenate([np.sort(draw.permutation(1000)[:number]) for number in candidates])
    clicked = np.where(draw.random(len(user)) < 0.2, draw.integers(1, 4, len(user)), 0)
    new, old = (np.round(draw.normal(size=len(user)) + weight * clicked, 1) for weight in (1, 0.5))
    return pyarrow.table(
        {
            "country": np.array(["de", "fr", "it"])[user % 3].tolist(),
            "old": old,
            "user": [f"u{number:04}" for number in user],
            "clicked": clicked.astype(np.int32),
            "item": [f"i{number:04}" for number in item],
            "new": new,
        }
    )


def with_nulls():
    """A table in which scores and grades are null and NaN."""
    nan = float("nan")
    columns = {
        "user": ["a"] * 4 + ["b"] * 4,
        "item": [*"pqrs"] * 2,
        "score": [nan, 0.9, None, 0.5, 0.1, nan, None, -np.inf],
        "label": [1.0, 0.0, 1.0, 1.0, nan, 1.0, 1.0, None],
    }
    return pyarrow.table(columns)


def assert_like_one_process(found, table):
    """Compare the measures of a table with nulls that an engine has found."""
    assert found.means == torchrank.evaluate(table, OF_NULLS).means["run"]
    assert found.means["recall@2"] == (1 / 3 + 0) / 2


def shuffled(table, seed=1):
    """The rows in a random order."""
    return table.take(np.random.default_rng(seed).permutation(len(table)))


def other_version(folder):
    """Make a copy of the package that says it has another version, in a folder for PYTHONPATH; return the version."""
    package = folder / "torchrank"
    package.mkdir()
    for path in Path(torchrank.__file__).parent.iterdir():
        if path.name not in ("version.py", "__pycache__"):
            (package / path.name).symlink_to(path)
    other = f"{__version__}.other"
    (package / "version.py").write_text(f'__version__ = "{other}"\n')
    return other


def run_guide(part, **names):
    """Run the first cell and one part of the guide on clusters here, where the engine has started; return its names."""
    cells = json.loads((ROOT / "notebooks/clusters.ipynb").read_text(encoding="utf-8"))["cells"]
    names["__name__"], heading = "__main__", part
    try:
        for cell in cells:
            source = "".join(cell["source"])
            if source.startswith("## "):
                heading = source.splitlines()[0].removeprefix("## ")
            elif cell["cell_type"] == "code" and heading == part:
                exec(source, names)
    finally:
        logging.disable(logging.NOTSET)
    return names
