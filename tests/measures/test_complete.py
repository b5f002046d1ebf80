"""Every measure has all its pieces; the test that fails says which one is forgotten, and where it belongs."""

import doctest
import sys
from functools import cache

import pytest
from oracles import ORACLES

import torchrank as tr
import torchrank.metrics
from torchrank.cli.measures import HEAD, Description, table
from torchrank.metrics import ComparingMetric
from torchrank.names.parse import parse_all
from torchrank.names.registry import KINDS
from torchrank.names.spellings import PARSE, TITLES, also_in, known, without_optional

MEASURES = [cls for kind in KINDS for cls in kind.values() if cls.__module__.startswith("torchrank.metrics.")]
RANKED = [cls for cls in MEASURES if cls in tr.RankingMetric.registry.values()]  # not curves

#: measures whose mean over random orders has no closed form
NO_BASELINE = {"infap"}

every_measure = pytest.mark.parametrize("measure", MEASURES, ids=lambda cls: cls.__name__)
every_ranked_measure = pytest.mark.parametrize("measure", RANKED, ids=lambda cls: cls.__name__)


def test_there_are_measures_of_rankings_and_of_lists():
    assert len(MEASURES) > len(RANKED) > 50


@every_measure
def test_a_measure_is_exported(measure):
    name, module = measure.__name__, measure.__module__
    assert name in getattr(sys.modules[module], "__all__", ()), f"add {name} to __all__ of {module}"
    for package in (tr, torchrank.metrics):
        assert name in package.__all__, f"add {module} to torchrank/metrics/public.py"
        assert getattr(package, name) is measure


@every_measure
def test_the_docstring_of_a_measure_is_complete(measure):
    described = Description.of(measure)  # raises without a formula or a section Source
    assert described.summary, f"give {measure.__name__} a first line"
    assert described.formula, f"give {measure.__name__} a formula"
    assert described.source, f"give {measure.__name__} a source"
    assert doctest.DocTestFinder(recurse=False).find(measure)[0].examples, (
        f"give {measure.__name__} an example that runs"
    )
    assert "Also in:" not in (measure.__doc__ or ""), f"put names elsewhere into known_as of {measure.__name__}"


@every_measure
def test_a_measure_has_a_range_of_values(measure):
    low, high = measure.value_range
    assert low < high, f"{measure.__name__}.value_range is {measure.value_range}"


@every_measure
def test_names_elsewhere_are_of_known_libraries(measure):
    libraries = {one.library for one in known(measure)}
    unknown = libraries - set(TITLES) - {PARSE}
    assert not unknown, f"add {unknown} to TITLES in torchrank/names/spellings.py, or correct {measure.__name__}"
    assert also_in(measure)


@every_ranked_measure
def test_a_setting_for_another_library_is_a_metric_of_this_measure(measure):
    for setting in (setting for one in known(measure) for setting in one.settings):
        if "{" not in setting.replace("{k}", ""):  # of numbers in their names
            label = measure.name + without_optional(setting).replace("{k}", "5")
            label += "@5" if measure.takes_top_k and "@" not in label else ""
            assert {type(metric) for metric in parse_all(label)} == {measure}


@cache
def lines_of_the_page():
    return table().splitlines()


@every_measure
def test_a_measure_is_on_the_page_of_measures(measure):
    lines = [line for line in lines_of_the_page() if f"` `{measure.__name__}` |" in line]
    assert len(lines) == 1, f"torchrank measures does not list {measure.__name__}"
    assert len(lines[0].replace(r"\|", "").split("|")) == len(HEAD) + 2


@every_ranked_measure
def test_a_measure_has_an_oracle_with_parameters_to_try(measure):
    name = measure.name
    assert name in ORACLES, f'write @oracle("{name}", ...) in an oracles file: its definition in plain Python'
    assert ORACLES[name].few, f'give @oracle("{name}") few=, the parameters to try in every layout'
    assert len(ORACLES[name].few) > 1 or ORACLES[name].many, f'give @oracle("{name}") many=, further parameters'
    none = issubclass(measure, ComparingMetric) or name in NO_BASELINE
    assert none or ORACLES[name].baseline, f'give @oracle("{name}") baseline=, the mean over random orders'


def test_every_oracle_is_of_a_measure():
    assert set(ORACLES) == {measure.name for measure in RANKED}
