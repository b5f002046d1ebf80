"""The command starts without PyTorch, and the public names come with the first in use."""

import inspect
import pydoc
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import torch

import torchrank as tr
from torchrank.cli import main

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
for names in (["measures", "nDCG@5,10", "recip_rank", "coverage@10"], ["presets", "beir"], ["spellings", "P_5"]):
    assert [status(*call) for call in (names, names[:1])] == [0, 0]
    assert status(names[0], "ngcd") == 2
assert not {"torch", "torchmetrics", "scipy", "pandas"} & sys.modules.keys()
"""


def test_help_wrong_calls_convert_and_lists_of_names_do_without_torch(tmp_path):
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


def test_a_name_brings_all_names_and_what_asks_for_attributes_brings_none(fresh):
    assert not hasattr(fresh, "__wrapped__")
    assert "NDCG" not in vars(fresh)
    assert fresh.NDCG is tr.NDCG
    assert {name: vars(fresh)[name] for name in tr.__all__} == {name: getattr(tr, name) for name in tr.__all__}


def test_every_public_name_is_listed_once_and_taken_by_a_star():
    public = {name for name, value in vars(tr.public).items() if not name.startswith("_") and name[0].isupper()}
    assert public - {"TYPE_CHECKING"} <= set(tr.__all__)
    assert len(tr.__all__) == len(set(tr.__all__))
    names = {}
    exec("from torchrank import *", names)
    assert set(tr.__all__) <= names.keys()
    assert not {"engine", "sys", "public"} & names.keys()


ELSEWHERE = (
    "ndcg NDCG, Hits HitRate, HitRatio HitRate, hits_at_10 HitRate, AveragePrecision MAP, AUC AUROC,"
    " ild IntraListDiversity, RetrievalMAP retrieval.RetrievalMAP, BinaryMetric extend.BinaryMetric"
)


@pytest.mark.parametrize(("name", "way"), map(str.split, ELSEWHERE.split(",")))
def test_names_used_elsewhere_lead_to_the_class(fresh, name, way):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; use torchrank\.{way}(;|$)"):
        getattr(fresh, name)
    assert isinstance(eval(f"tr.{way}"), type)


@pytest.mark.parametrize("name", ["functional", "score", "xyz", "ndcg", "hit_rate", "MeanAveragePrecision", "Rprec"])
def test_the_error_for_an_unknown_name_shows_a_function_that_works(fresh, name):
    with pytest.raises(AttributeError, match="as a function, ") as raised:
        getattr(fresh, name)
    call = str(raised.value).partition("as a function, ")[2]
    values = eval(call, {"torchrank": tr, "preds": torch.tensor([[0.9, 0.2]]), "target": torch.tensor([[1, 0]])})
    assert values.tolist() == [1.0]


def test_a_misspelt_name_leads_to_the_nearest(fresh):
    with pytest.raises(AttributeError, match=r"'evaluat'; did you mean 'evaluate' or 'Evaluation'\?"):
        getattr(fresh, "evaluat")  # noqa: B009


def test_a_measure_of_the_user_is_not_offered_as_a_name_of_torchrank(fresh, monkeypatch):
    monkeypatch.setitem(tr.RankingMetric.registry, "mine", type("Mine", (tr.NDCG,), {}))
    with pytest.raises(AttributeError, match=r"'mine'; (?!use torchrank\.Mine)"):
        getattr(fresh, "mine")  # noqa: B009


def test_tab_shows_public_names_only_also_before_one_is_used(fresh):
    assert fresh.__all__ == tr.__all__
    assert set(dir(fresh)) == {*tr.__all__, "__version__"}


def test_help_begins_with_an_example_and_names_public_objects():
    text = inspect.getdoc(tr)
    assert text.startswith("NDCG, MAP, MRR, Recall@k, Hit Rate and 90 more ranking metrics")
    assert ".update(scores, grades)" in text
    described = re.findall(r"^- (?:torchrank\.)?(\w+):", text, re.MULTILINE)
    assert len(described) >= 6
    assert set(described) <= set(tr.__all__)


def test_help_of_the_package_is_its_docstring_and_not_all_methods_of_all_classes():
    shown = pydoc.plain(pydoc.render_doc(tr)).splitlines()
    assert len(shown) < 80
    assert "Start here:" in " ".join(shown[:8])
    assert len(pydoc.plain(pydoc.render_doc(tr.evaluate)).splitlines()) > 50  # functions and classes keep their help


@pytest.mark.parametrize(("option", "meant"), [("--metrics", "measures"), ("--reference", "baseline")])
def test_an_unknown_option_gets_the_one_that_is_meant(option, meant, capsys):
    with pytest.raises(SystemExit):
        main(["compare", "qrels.txt", "a.run", "b.run", option, "x"])
    assert f"did you mean '{meant}'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate", "qrels.txt", "a.run"])
    assert "did you mean 'eval'?" in capsys.readouterr().err
