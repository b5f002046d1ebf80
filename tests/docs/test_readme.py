"""The examples of the pages run and print the output shown; their tables are the output of their commands."""

import doctest
import re

import pytest
import torch

import torchrank as tr
from tests.support.pages import BLOCKS, GUIDES, PAGES, README, ROOT, WRITE, printed, shown
from torchrank import RankingMetric

#: examples of a page, at least
EXAMPLES = {
    "README.md": 18,
    "benchmarks/ACCELERATORS.md": 0,
    "benchmarks/README.md": 0,
    "torchrank/evaluation/README.md": 13,
    "torchrank/metrics/README.md": 26,
    "torchrank/names/README.md": 11,
    "torchrank/statistics/README.md": 25,
    "torchrank/tables/README.md": 8,
}


@pytest.mark.parametrize("page", [*PAGES, *GUIDES], ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_print_the_output_shown(page):
    if page.parent.name == "evaluation":
        pytest.importorskip("matplotlib")
    known = dict(RankingMetric.registry)
    try:
        text = re.sub(r"^```.*$", "", page.read_text(), flags=re.MULTILINE)  # or the fence would be expected output
        examples = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, page.name, str(page), 0)
        result = doctest.DocTestRunner().run(examples)
    finally:
        RankingMetric.registry.clear()
        RankingMetric.registry.update(known)  # without the measure that the README defines
    assert result.attempted >= EXAMPLES[str(page.relative_to(ROOT))]
    assert result.failed == 0


def test_pages_have_the_number_of_sums_in_the_state():
    pages = [*PAGES, *GUIDES, *(ROOT / "notebooks").glob("*.ipynb")]
    said = [int(number) for page in pages for number in re.findall(r"\b(\d+) sums\b", page.read_text())]
    for metric in (tr.NDCG(top_k=10), tr.MAP()):
        assert {*said} == {sum(state.numel() for state in metric.metric_state.values())}
    assert len(said) >= 2


@pytest.mark.needs("lightning")
@pytest.mark.xdist_group("processes")  # whose process has imported Lightning
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


@pytest.mark.parametrize(("page", "block", "command"), BLOCKS)
def test_tables_are_the_output_of_their_commands(page, block, command):
    text = (ROOT / page).read_text()
    assert f"`{command}`" in text
    current = shown(ROOT / page, block) == printed(command)
    assert current, f"{page} is stale: its block {block!r} differs from `{command}`. Run `{WRITE}`."


@pytest.mark.parametrize("page", [page for page in PAGES if page != README], ids=lambda page: page.parent.name)
def test_first_line_of_a_reference_page_names_its_commands(page):
    first = page.read_text().splitlines()[0]
    for command in (command for name, _, command in BLOCKS if ROOT / name == page):
        assert f"`{command}`" in first
    assert f"`{WRITE}`" in first


@pytest.mark.parametrize("page", [*PAGES, *GUIDES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_of_this_clone(page):
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, link


def test_every_measure_is_on_the_page():
    text = (ROOT / "torchrank" / "metrics" / "README.md").read_text()
    exported = {name for name in tr.__all__ if vars(getattr(tr, name)).get("name")}
    assert exported
    missing = {name for name in exported if f"\n#### {name}\n" not in text}
    assert not missing


def test_readme_can_be_read_in_two_minutes():
    lines = README.read_text().splitlines()
    assert len(lines) < 200
    assert len(README.read_text().split()) <= 1800
    assert all(len(line) <= 120 for line in lines if not line.startswith("|"))


def test_the_page_of_measures_is_readable_where_it_stands():
    text = (ROOT / "torchrank/metrics/README.md").read_text()
    outputs = {line for example in doctest.DocTestParser().get_examples(text) for line in example.want.splitlines()}
    assert [line for line in text.splitlines() if len(line) > 100 and line not in outputs] == []
    headings = [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in re.findall(r"^#+ (.*)", text, re.M)]
    links = re.findall(r"\(#([^)]*)\)", text)
    assert [one for one in links if headings.count(one) > 1] == []
