"""Everything the README shows runs, and prints what it says."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchrank import RankingMetric

README = Path(__file__).parents[2] / "README.md"


def test_examples_print_what_the_readme_says():
    known = dict(RankingMetric.registry)
    try:
        result = doctest.testfile(str(README), module_relative=False)
    finally:
        RankingMetric.registry.clear()
        RankingMetric.registry.update(known)  # without the measure that the README defines
    assert result.attempted > 40
    assert result.failed == 0


def test_blocks_without_prompts_run():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    blocks = [block for block in blocks if ">>>" not in block]
    assert blocks
    for block in blocks:
        names = {}
        exec(block, names)
        model = names["Retriever"]()
        batch = torch.randn(3, 8), torch.randn(5, 8), torch.randint(0, 2, (3, 5))
        model.suite.update(model.encoder(batch[0]) @ model.encoder(batch[1]).T, batch[2])
        assert set(model.suite.compute()) == {"val/ndcg@10", "val/recall@10", "val/recall@100", "val/mrr"}


@pytest.mark.parametrize(
    ("block", "command"),
    [
        ("measures", "torchrank.cli measures"),
        ("presets", "torchrank.cli presets"),
        ("benchmarks", "benchmarks --table"),
    ],
)
def test_tables_are_what_their_commands_print(block, command):
    argv = [sys.executable, "-m", *command.split()]
    printed = subprocess.run(argv, cwd=README.parent, check=True, capture_output=True, text=True).stdout
    shown = re.search(rf"<!-- {block} -->\n(.*?)\n<!-- /{block} -->", README.read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1].strip() == printed.strip()


def test_measures_table_names_every_measure():
    text = README.read_text()
    missing = [name for name, measure in RankingMetric.registry.items() if f"`{measure.__name__}`" not in text]
    assert not missing
