"""A default device other than that of the tensors changes nothing: here "meta", where tensors have no values."""

import ast
from pathlib import Path

import pytest
import torch
from torch.utils._device import _device_constructors

import torchrank as tr
from tests.support import layout_cases
from tests.support.oracle_comparison import IN_TURN

QUERIES = 40


@pytest.fixture
def other_device():
    """A switch: between calls with True and with False another default device is set."""
    yield lambda on: torch.set_default_device("meta" if on else None)
    torch.set_default_device(None)  # "cpu" would be a default device too: each call of torch would go through Python


def both_ways(make, other_device):
    """The result of a function, and its result under another default device."""
    found = make()
    other_device(True)
    again = make()
    other_device(False)
    return found, again


def same(found, again):
    torch.testing.assert_close(again, found, rtol=0, atol=0, equal_nan=True)


def test_every_factory_names_its_device():
    factories = {function.__name__ for function in _device_constructors()}
    silent = []
    for path in Path(tr.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in factories:
                named = [keyword.arg for keyword in node.keywords]
                if "device" not in named and ast.unparse(node.func.value) == "torch":
                    silent.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert not silent


@pytest.mark.parametrize(
    "layout", ["dense_masked", "flat", "catalogue_triples_excluded", "labels_excluded", "ids_excluded"]
)
def test_values_are_the_same_in_layouts_of_each_kind(layout, other_device):
    arguments, keywords = layout_cases.batch(layout, QUERIES)[1]
    known = [config for config in IN_TURN if layout_cases.suits(config, layout)]
    if layout != "dense_masked":  # which meets all measures: the others one metric of some
        names = ("alphandcg", "auroc", "kendalltau", "ndcg", "rbpresidual")
        known = [next(iter(found)) for name in names if (found := [config for config in known if config.name == name])]

    def values():
        suite = tr.RankingCollection([config.metric() for config in known])
        suite.update(*arguments, **keywords)
        errors = [metric.standard_error for metric in suite.values() if metric.aggregation == "mean"]
        return suite.score(*arguments, **keywords), suite.compute(), errors

    same(*both_ways(values, other_device))


def test_aggregations_and_other_states_work_where_metrics_are_made_there(other_device):
    scores, grades = torch.rand((QUERIES, 9)), torch.randint(0, 2, (QUERIES, 9))
    aggregations = ("geometric", "harmonic", "median", "midpoint", "p5", "min", "max", "none")
    names = [f"mrr(aggregation={how})" for how in aggregations]
    own = [tr.MRR(aggregation=torch.std), tr.PRCurve(4)]

    def values():
        suite = tr.RankingCollection([*names, *own]).clone()
        first = suite(scores, grades)
        suite.update(scores, grades)
        twin = suite.clone()
        twin.reset()
        twin.update(scores, grades)
        suite.merge_state(twin)
        return first, suite.compute()

    same(*both_ways(values, other_device))
    other_device(True)
    metric = tr.MRR()
    torch.nn.ModuleList([metric, torch.nn.Linear(1, 1)]).to_empty(device="cpu")  # as a model that is made there
    other_device(False)
    metric.update(scores, grades)
    same(tr.MRR()(scores, grades), metric.compute())
