"""The metadata of the package and the files of the source distribution, as setuptools makes them."""

import re
import shutil
import subprocess
import sys
from email import message_from_string

import pytest

from tests.support.pages import README, ROOT

PREPARE = (
    "import sys; from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel(sys.argv[1]))"
)


@pytest.fixture(scope="module")
def metadata(tmp_path_factory):
    """The metadata of a copy of the files that it is made from."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "torchrank/version.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "made").mkdir()
    command = [sys.executable, "-c", PREPARE, "made"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return message_from_string((folder / "made" / done.stdout.split()[-1] / "METADATA").read_text(encoding="utf-8"))


def targets(description):
    """The addresses of links and pictures."""
    return re.findall(r"\]\(([^)]*)\)|(?:src|href)=[\"']([^\"']*)", description)


def test_links_of_the_long_description_lead_to_the_repository_and_its_code_is_unchanged(metadata):
    assert metadata["Description-Content-Type"] == "text/markdown"
    (source,) = [one.split(", ")[1] for one in metadata.get_all("Project-URL") if one.startswith("Source")]
    description = metadata.get_payload()
    relative = [link for link, _ in targets(README.read_text()) if link and not link.startswith(("https:", "#"))]
    assert len(relative) > 20
    for link in relative:
        kind = "raw" if link.endswith(".png") else "blob"
        assert f"]({source}/{kind}/HEAD/{link})" in description
    assert [one for one in targets(description) if not "".join(one).startswith(("https://", "#"))] == []
    blocks = [re.findall(r"^```.*?^```$", text, re.DOTALL | re.MULTILINE) for text in (description, README.read_text())]
    assert blocks[0] == blocks[1]
    assert blocks[0]


def test_classifiers_name_the_python_of_the_tests_and_the_types(metadata):
    classifiers = metadata.get_all("Classifier")
    assert "Typing :: Typed" in classifiers
    versions = [one.rsplit(" ", 1)[1] for one in classifiers if re.search(r"3\.\d+$", one)]
    assert metadata["Requires-Python"] == f">={versions[0]}"
    assert ".".join(map(str, sys.version_info[:2])) in versions


def test_the_source_distribution_has_every_file_of_the_repository(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("needs a clone")
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (sources,) = tmp_path.glob("*.egg-info/SOURCES.txt")
    shipped = {line.removeprefix("./") for line in sources.read_text().splitlines()}
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "tests/docs/test_packaging.py" in tracked
    assert set(tracked) - shipped == {".gitignore"}
    assert not [name for name in shipped if re.search(r"\.pyc$|__pycache__|\.ipynb_checkpoints", name)]
