"""Every measure has all its pieces; the test that fails says which ones are forgotten, and where they belong."""

import doctest
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from types import NoneType

import pytest
import torch

import torchrank as tr
import torchrank.metrics
from docs.measure_list import page
from tests.support import usual_bounds
from tests.support.cases import cases
from tests.support.descriptions import also_in, describe, spellings
from tests.support.oracles import ORACLES
from torchrank.metrics import ComparingMetric
from torchrank.names.parse import parse_all
from torchrank.names.registry import DATA, KINDS, PARSE, TITLES, described, known, stored, without_optional

MEASURES = [cls for kind in KINDS for cls in kind.values() if cls.__module__.startswith("torchrank.metrics.")]
RANKED = [cls for cls in MEASURES if cls in tr.RankingMetric.registry.values()]  # not curves

#: measures whose mean over random orders has no closed form
NO_BASELINE = {"infap"}


def test_there_are_measures_of_rankings_and_of_lists():
    assert len(MEASURES) > len(RANKED) > 50


@pytest.mark.parametrize("measure", MEASURES, ids=lambda cls: cls.__name__)
def test_a_measure_has_all_its_pieces(measure):
    ranked = [*settings(measure), *oracle(measure)] if measure in RANKED else []
    pieces = exports, docstring, names_elsewhere, description, entry_of_the_page
    forgotten = [*(one for piece in pieces for one in piece(measure)), *ranked]
    low, high = measure.value_range
    if not low < high:
        forgotten.append(f"correct value_range of {measure.__name__}, which is {measure.value_range}")
    assert not forgotten, "; ".join(forgotten)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda cls: cls.__name__)
def test_parameters_have_the_usual_bounds_and_values_the_usual_range(measure):
    usual_bounds.check_measure(measure)


def test_names_elsewhere_are_of_measures_and_libraries_that_are_there():
    assert {*DATA["measures"]} <= {measure.name for measure in MEASURES}
    assert {*DATA["lacking"]} <= {*DATA["presets"]} <= {*DATA["titles"]}
    keys = {"title", "options", "cutoffs", "always", "cut", "except"}
    assert {key for preset in DATA["presets"].values() for key in preset} == keys
    parameters = {name for measure in MEASURES for name in measure.definition()} | {"top_k"}
    assert {value for value in DATA["parameters"].values() if isinstance(value, str)} <= parameters


def test_described_measures_are_those_of_the_package_in_their_order():
    registered = [name for kind in KINDS for name, cls in kind.items() if cls.__name__ in tr.__all__]
    assert [*described()] == registered


def exports(measure: type) -> Iterator[str]:
    name, module = measure.__name__, measure.__module__
    if name not in getattr(sys.modules[module], "__all__", ()):
        yield f"add {name} to __all__ of {module}"
    if any(name not in package.__all__ or getattr(package, name) is not measure for package in (tr, torchrank.metrics)):
        yield f"add {module} to torchrank/metrics/public.py"


def docstring(measure: type) -> Iterator[str]:
    about = describe(measure)  # raises without a formula or a section Source
    for piece in ("summary", "formula", "source"):
        if not getattr(about, piece):
            yield f"give the docstring of {measure.__name__} a {piece}"
    if not doctest.DocTestFinder(recurse=False).find(measure)[0].examples:
        yield f"give {measure.__name__} an example that runs"
    arguments = (measure.__doc__ or "").split("\nArgs:\n")[-1].split("\n\n")[0]
    for name, one in measure.declared.items():
        documented = name in arguments or one.of_torchmetrics or name == "unjudged"
        if one.init and one.hint is not NoneType and not documented:
            yield f"document {name} in the Args of {measure.__name__}"
    if "Also in:" in (measure.__doc__ or ""):
        yield f"put names elsewhere into torchrank/names/names.toml, [measures.{measure.name}]"


def names_elsewhere(measure: type) -> Iterator[str]:
    unknown = {one.library for one in known(measure)} - set(TITLES) - {PARSE}
    if unknown:
        yield f"add {unknown} to [titles] in torchrank/names/names.toml, or correct [measures.{measure.name}]"
    elif not also_in(measure):
        yield f"say in names.toml in which libraries {measure.__name__} is, or in none"


def description(measure: type) -> Iterator[str]:
    if measure.name not in described() or asdict(described()[measure.name]) != asdict(describe(measure)):
        yield f"write the description of {measure.__name__} with python tests/support/pages.py"
    if json.dumps(stored("spellings").get(measure.name)) != json.dumps(spellings(measure)):
        yield f"write the spellings of {measure.__name__} with python tests/support/pages.py"


@cache
def entries_of_the_page() -> list[str]:
    return page().split("\n#### ")


def entry_of_the_page(measure: type) -> Iterator[str]:
    entries = [entry for entry in entries_of_the_page() if entry.startswith(f"{measure.__name__}\n\n`{measure.name}")]
    pieces = "```math\n", "\nSource: ", "\nIn other libraries: "
    if len(entries) != 1 or not all(piece in entries[0] for piece in pieces):
        yield f"docs/measure_list.py prints no entry, or only a part of one, for {measure.__name__}"


def settings(measure: type[tr.RankingMetric]) -> Iterator[str]:
    for setting in (setting for one in known(measure) for setting in one.settings):
        if "{" not in setting.replace("{k}", ""):  # of numbers in their names
            label = measure.name + without_optional(setting).replace("{k}", "5")
            label += "@5" if measure.takes_top_k and "@" not in label else ""
            if {type(metric) for metric in parse_all(label)} != {measure}:
                yield f"correct {setting!r} in names.toml: {label} is no {measure.__name__}"


def oracle(measure: type[tr.RankingMetric]) -> Iterator[str]:
    name = measure.name
    if name not in ORACLES:
        yield f'write @oracle("{name}", ...) in an oracles file: its definition in plain Python'
        return
    if not ORACLES[name].few:
        yield f'give @oracle("{name}") few=, the parameters to try in every layout'
    elif len(ORACLES[name].few) == 1 and not ORACLES[name].many:
        yield f'give @oracle("{name}") many=, further parameters'
    if not (issubclass(measure, ComparingMetric) or name in NO_BASELINE or ORACLES[name].baseline):
        yield f'give @oracle("{name}") baseline=, the mean over random orders'


def test_every_oracle_is_of_a_measure():
    assert set(ORACLES) == {measure.name for measure in RANKED}


def grouped_coverage():
    suite = tr.RankingCollection([tr.MRR(), tr.Coverage(num_items=3)])
    suite.update(torch.tensor([[1]]), torch.tensor([1]), groups=[0, 1, 2])


WRONG = [
    ("log_base only with discount='log2' or 'clipped'", lambda: tr.DCG(discount="reciprocal", log_base=3)),
    ("top_k together with normalize='k'", lambda: tr.NDCG(normalize="k")),
    ("filtered=True together with average='positive' for mrr", lambda: tr.MRR(average="positive")),
    ("points to be recalls", lambda: tr.ElevenPoint(points=())),
    ("points to be recalls", lambda: tr.ElevenPoint(points="0.5")),
    ("each recall of points once", lambda: tr.ElevenPoint(points=(0.5, 0.5))),
    ("recall of points to be a number >= 0 and <= 1", lambda: tr.ElevenPoint(points=(0.5, 1.5))),
    ("no groups for coverage", grouped_coverage),
    ("top_k", lambda: tr.ERRIA(bounded=True)),
    ("top_k", lambda: tr.AlphaDCG(bounded=True)),
    ("normalize", lambda: tr.MAP(gain="linear", normalize="min")),
    ("Expected ties", lambda: tr.PIA(ties="optimistic")),
    ("Expected unjudged", lambda: tr.PIA(unjudged="lower")),
]


@cases(("message", "call"), WRONG)
def test_parameters_that_do_not_fit_together_are_refused(message, call):
    with pytest.raises(ValueError, match=message):
        call()
