"""The command starts without PyTorch, and the public names come with the first in use."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

import torchrank as tr

CODE = """
import sys
from torchrank.cli import main

def status(*arguments):
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code

run, out = sys.argv[1:]
calls = [["--help"], ["--version"], ["eval"], ["eval", "none", "none"], ["convert", run, out]]
assert [status(*call) for call in calls] == [0, 0, 2, 2, 0]
assert not {"torch", "torchmetrics", "scipy", "pandas"} & sys.modules.keys()
"""


def test_help_wrong_calls_and_convert_do_without_torch(tmp_path):
    (tmp_path / "a.run").write_text("q Q0 d 1 0.5 tag\n")
    command = [sys.executable, "-c", CODE, str(tmp_path / "a.run"), str(tmp_path / "a.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.json").read_text() == '{"q": {"d": 0.5}}\n'


@pytest.fixture
def fresh():
    """The package before a name of it is used."""
    spec = spec_from_file_location("torchrank", tr.__file__)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_name_brings_all_names(fresh):
    assert "NDCG" not in vars(fresh)
    assert fresh.NDCG is tr.NDCG
    assert {name: vars(fresh)[name] for name in tr.__all__} == {name: getattr(tr, name) for name in tr.__all__}


def test_all_names_are_listed_before_one_is_used(fresh):
    assert {*tr.__all__, "__version__"} <= set(dir(fresh))
    assert fresh.__all__ == tr.__all__


def test_every_public_name_is_listed_once():
    public = {name for name, value in vars(tr.public).items() if not name.startswith("_") and name[0].isupper()}
    assert public - {"TYPE_CHECKING"} <= set(tr.__all__)
    assert len(tr.__all__) == len(set(tr.__all__))


def test_tools_that_ask_for_attributes_bring_no_names(fresh):
    assert not hasattr(fresh, "__wrapped__")
    assert "NDCG" not in vars(fresh)


@pytest.mark.parametrize(
    ("name", "hint"), [("ndcg", "'NDCG'"), ("RetrievalMAP", "torchrank.retrieval"), ("xyz", "'xyz'$")]
)
def test_unknown_names_have_a_hint(fresh, name, hint):
    with pytest.raises(AttributeError, match=hint):
        getattr(fresh, name)
