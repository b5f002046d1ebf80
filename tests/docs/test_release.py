"""The promises of a release: stable names, the workflows, the citation, and the links of the site."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from tests.support.stable_names import absent, listed, names
from torchrank.version import __version__

WRITE = "python -m tests.support.stable_names"
LINTER = Path(sys.executable).with_name("zizmor")
together = pytest.mark.xdist_group("processes")  # whose process imports most of the libraries


@together
def test_public_names_labels_and_states_are_those_of_the_list():
    found, hidden = names(), absent()
    promised = {promise for promise in listed() if not promise.startswith(hidden)}
    gone, new = sorted(promised - found), sorted(found - promised)
    assert not gone, f"These names were promised: warn for two minor releases first, see docs/stability.md: {gone}"
    assert not new, f"`{WRITE}` adds {new}"


@pytest.mark.skipif(not LINTER.exists(), reason="zizmor is not installed")
def test_the_linter_of_workflows_has_no_findings():
    command = [LINTER, "--offline", "--persona=pedantic", "--no-progress", ROOT / ".github", ROOT / "action.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_citation_has_the_version_and_the_address_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in citation
    urls = dict(re.findall(r'^(Source|Documentation) = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    assert f"\nrepository-code: {urls['Source']}\n" in citation
    assert f"\nurl: {urls['Documentation']}\n" in citation


@pytest.fixture
def site(monkeypatch):
    """The modules that build and check the site."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module


@pytest.mark.needs("sphinx", "nbformat")
def test_a_link_to_a_page_stays_in_the_site_and_one_to_code_leads_to_the_repository(site):
    build = site("build")
    places = build.pages()
    text = (
        "[a](../tables/README.md#words) [b](../../pyproject.toml) [c](https://example.org) `[d](x)`\n```\n[e](y)\n```"
    )
    moved = build.linked(text, "torchrank/names/README.md", places)
    assert moved.startswith(
        f"[a](tables.md#words) [b]({build.source()}/blob/HEAD/pyproject.toml) [c](https://example.org)"
    )
    assert moved.endswith("```\n[e](y)\n```")


def test_a_link_to_a_missing_page_or_heading_is_reported(site, tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here">1</a><a href="b.html#gone">2</a><img src="gone.png">')
    (tmp_path / "b.html").write_text('<p id="here"><a href="a.html">3</a><a href="https://example.org">4</a>')
    assert site("check").broken(tmp_path) == ["a.html links to b.html#gone", "a.html links to gone.png"]


@together
@pytest.mark.needs("sphinx", "matplotlib", "ir_measures", "lightning", "mlflow", "pykeen", "ray")
def test_every_public_name_has_a_page_and_every_plot_is_in_the_gallery(site):
    import torchrank as tr

    pages, gallery = site("class_pages"), (ROOT / "docs/gallery.rst").read_text()
    addresses = pages.addresses()
    assert addresses["NDCG"] == "measures/ndcg"
    assert set(tr.__all__) <= set(addresses)
    assert len(set(addresses.values())) == len(addresses)
    assert "ndcg_cut_{k}" in pages.measure_page("NDCG")
    things = [(key, getattr(thing, key)) for thing in map(tr.__getattr__, tr.__all__) for key in dir(thing)]
    plots = {key for key, method in things if key.startswith("plot") and callable(method)}
    assert {"plot", "plot_ranks"} <= plots
    assert {plot for plot in plots if f".{plot}(" not in gallery} == set()
