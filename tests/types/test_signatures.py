"""A parameter is one line of a class: signature, check, attribute and label follow from it."""

import copy
import inspect
import pickle
import pydoc
import runpy
import typing
from pathlib import Path
from types import NoneType
from typing import Literal

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from torchrank.metrics import BinaryMetric
from torchrank.names.parameters import flag, number, one_of
from torchrank.names.registry import measures

SCORES, GRADES = torch.tensor([[0.9, 0.5, 0.1]]), torch.tensor([[0, 1, 2]])
CLASSES = [*measures().values(), tr.PRCurve]
every_class = cases("cls", CLASSES, ids=lambda cls: cls.__name__)


def known(cls):
    return inspect.signature(cls).parameters


@every_class
def test_a_signature_has_every_argument_with_type_and_default(cls):
    found = known(cls)
    assert not {one.kind for one in found.values()} & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert all(one.annotation is not one.empty for one in found.values())
    torchmetrics = {"process_group", "dist_sync_fn", "sync_on_compute", "compute_on_cpu", "compute_with_cache"}
    assert {"top_k", "validate_args", *torchmetrics} <= found.keys()
    for name, default in cls.definition().items():
        assert name not in found or found[name].default == default
    fixed = {"aggregation", "cost", "normalize"}  # of the whole catalogue, of CWLCost, of PopularityLift
    assert cls.definition().keys() - found.keys() <= fixed
    assert next(iter(found)) == "top_k"


@every_class
def test_constructors_signatures_and_type_hints_are_those_of_a_dataclass(cls):
    constructor = inspect.signature(cls.__init__)
    assert constructor.parameters == {"self": constructor.parameters["self"], **known(cls)}
    hints = typing.get_type_hints(cls)
    assert {name: one.annotation for name, one in known(cls).items()} == {name: hints[name] for name in known(cls)}
    assert [base.__name__ for base in cls.__mro__ if "__init_subclass__" in vars(base)][:1] == ["SafeMetric"]
    assert isinstance(vars(cls)["__doc__"], str)


def test_jsonargparse_sets_the_parameters_of_a_metric():
    jsonargparse = pytest.importorskip("jsonargparse")
    parser = jsonargparse.ArgumentParser()
    parser.add_subclass_arguments(tr.RankingMetric, "metric")
    chosen = parser.parse_args(["--metric=torchrank.MAP", "--metric.top_k=3", "--metric.normalize=min"])
    make = getattr(parser, "instantiate", None) or parser.instantiate_classes
    assert make(chosen).metric.label == "map(normalize=min)@3"


@cases("cls", [tr.NDCG, tr.MR, tr.Coverage, tr.PRCurve])
def test_help_prints_the_arguments(cls):
    said = pydoc.render_doc(cls, renderer=pydoc.plaintext)
    first = said[said.index(f"{cls.__name__}(top_k") :].split("\n", 1)[0]
    assert all(f"{name}: " in first for name in known(cls))


def test_own_arguments_come_before_those_of_parents():
    names = "top_k inverse empty_target_action filtered average adjusted relevance_level ties aggregation"
    assert list(known(tr.MR))[:9] == names.split()
    assert known(tr.MR)["empty_target_action"].default == "skip"
    assert known(tr.MR)["top_k"].annotation is NoneType


def test_right_calls_work():
    for name, function in runpy.run_path(str(Path(__file__).with_name("right.py"))).items():
        if inspect.isfunction(function) and not inspect.signature(function).parameters and name != "assert_type":
            function()


class Discounted(BinaryMetric):
    name = "testdiscounted"
    p: float = number(default=0.5, above=0, most=1)
    how: Literal["first", "all"] = one_of(default="all")
    limit: float | None = number(default=None, above=0)
    loud: bool = flag(default=False)
    empty_target_action: str = "skip"

    def __post_init__(self):
        super().__post_init__()
        if self.loud and self.how == "first":
            raise ValueError("Expected how='all' together with loud=True, got 'first'")

    def measure(self, ranking):
        return self.hits(ranking) * self.p


tr.RankingMetric.registry.pop("testdiscounted")


@pytest.fixture
def discounted():
    tr.RankingMetric.registry["testdiscounted"] = Discounted
    return Discounted


def test_a_declared_parameter_is_stored_labelled_and_read_back(discounted):
    metric = discounted(2, p=0.25, how="first", relevance_level=2)
    assert (metric.top_k, metric.p, metric.how, metric.limit, metric.loud) == (2, 0.25, "first", None, False)
    assert metric.label == "testdiscounted(p=0.25,how=first,relevance_level=2)@2"
    assert tr.parse(metric.label).metric_state.keys() == metric.metric_state.keys()
    assert metric(SCORES, GRADES) == 0
    for twin in (metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert (twin.label, twin.p) == (metric.label, 0.25)
    with pytest.raises(AttributeError, match="make a new metric"):
        metric.p = 1
    assert discounted(loud=1).label == "testdiscounted(loud=True)"
    assert discounted(empty_target_action="neg").label == "testdiscounted(empty_target_action=neg)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"p": 2}, "Expected p to be a number > 0 and <= 1, got 2"),
        ({"p": None}, "Expected p to be a number > 0 and <= 1, got None"),
        ({"limit": 0}, "Expected limit to be a number > 0, got 0"),
        ({"how": "last"}, "Expected how to be one of 'first', 'all', got 'last'"),
        ({"loud": "yes"}, "Expected loud to be one of True, False, got 'yes'"),
        ({"how": "first", "loud": True}, "Expected how='all' together with loud=True"),
    ],
)
def test_a_declared_parameter_is_checked(discounted, arguments, said):
    with pytest.raises(ValueError) as caught:
        discounted(**arguments)
    assert said in str(caught.value)


def test_an_unknown_argument_gets_the_list_of_the_known_ones(discounted):
    said = "Expected Discounted to have arguments top_k, p, how, limit, loud, empty_target_action, .* got 'q'"
    with pytest.raises(TypeError, match=said):
        discounted(q=1)


def test_a_constructor_of_ones_own_sets_its_parameters_and_calls_its_parent():
    class Mine(tr.MRR):
        name = "testmine"
        p: float = number(default=0.5, above=0)
        filtered: bool = True

        def __init__(self, top_k=None, *, half=0.25, **kwargs):
            self.p = 2 * half
            super().__init__(top_k, **{"filtered": True, **kwargs})

    assert list(Mine.definition())[:3] == ["p", "filtered", "average"]
    assert list(known(Mine)) == ["top_k", "half", "kwargs"]
    assert Mine(3, half=0.125).label == "testmine(p=0.25)@3"
    assert (Mine().p, Mine().filtered, Mine().label) == (0.5, True, "testmine")
    with pytest.raises(ValueError, match="Expected p to be a number > 0, got -2"):
        Mine(half=-1)

    class Further(Mine):  # without a constructor of its own it has one of all parameters
        name = "testfurther"
        q: float = number(default=1)
        top_k: None = None

    assert Further(q=2, p=1).label == "testfurther(q=2,p=1)"
    with pytest.raises(ValueError, match="no top_k for Further"):
        Further(top_k=3)


def test_a_parent_checks_a_parameter_whose_default_changes():
    class InBody(tr.MAP):
        name = "testinbody"
        normalize: str = "min"

    assert (InBody().normalize, InBody(normalize="k").label) == ("min", "testinbody(normalize=k)")
    with pytest.raises(ValueError, match="'relevant'"):
        InBody(normalize="max")


def test_what_a_class_computes_is_no_argument():
    with pytest.raises(TypeError, match="got 'expected'"):
        tr.Serendipity(interactions=torch.ones(3), expected=torch.ones(3))
    with pytest.raises(TypeError, match="no aggregation for Coverage"):
        tr.Coverage(num_items=3, aggregation="mean")
