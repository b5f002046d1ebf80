"""Plain spellings of labels: which characters they have, and that their parts can be told apart."""

import re
from typing import get_args

import pytest

import torchrank as tr
from tests.support.cases import cases
from torchrank.names.labels import spell
from torchrank.names.parse import LIBRARIES
from torchrank.names.registry import measures
from torchrank.names.types import Aggregation, EmptyAction

MLFLOW = re.compile(r"[/\w.\- :]*")  # mlflow.utils.validation
WANDB = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")  # its guide to the names of metrics
NUMBER = re.compile(r"-?\d[\d.]*(?:e-?\d+)?")

# The options of parameters that accept a callable or a mapping as well. Others declare theirs.
OPEN = {
    "aggregation": list(get_args(get_args(Aggregation)[0])),
    "empty_target_action": list(get_args(EmptyAction)),
    "gain": ["linear", "exponential", "rating"],
}


def options(measure, name):
    """The named values of a parameter as a label shows them; a parameter of numbers has none."""
    one = measure.declared[name]
    if name in OPEN:
        return OPEN[name]
    if not hasattr(one, "known"):
        return []
    known = one.known(measure) if callable(one.known) else one.known or one.literals
    return [str(value) for value in known]


def parameters(measure):
    """The options of each parameter that a label can show."""
    shown = [key for key, one in measure.declared.items() if one.labelled and not one.of_catalogue and key != "top_k"]
    return {name: options(measure, name) for name in shown}


ALL = {name: parameters(measure) for name, measure in measures().items()}


@cases("name", ALL)
def test_the_names_of_a_measure_can_be_told_apart(name):
    assert name.isalnum()
    assert not any(one.split("_")[0] == "at" for one in ALL[name])
    for names in (list(ALL[name]), *ALL[name].values()):
        assert not [(a, b) for a in names for b in names if a != b and f"{b}_".startswith(f"{a}_")]
        assert not any(NUMBER.fullmatch(one) or re.fullmatch(r"m?\d[\dpem]*", one) for one in names)


@pytest.mark.parametrize("identifier", [False, True])
def test_names_in_presets_have_different_plain_spellings(identifier):
    for library in LIBRARIES:
        preset = tr.preset(library, 5, 10)
        for names in (preset, set(preset.values())):
            assert len({tr.plain(name, identifier=identifier) for name in names}) == len(names)


@cases(
    ("label", "plain", "identifier"),
    [
        ("mrr", "mrr", "mrr"),
        ("ndcg@10", "ndcg_at_10", "ndcg_at_10"),
        ("rbp(p=0.8)@5", "rbp_p_0.8_at_5", "rbp_p_0p8_at_5"),
        ("rbp(p=0.85)", "rbp_p_0.85", "rbp_p_0p85"),
        ("rbp(p=1e-05)", "rbp_p_1e-05", "rbp_p_1em05"),
        ("utility(hit=-0.5,miss=-2)", "utility_hit_-0.5_miss_-2", "utility_hit_m0p5_miss_m2"),
        ("ndcg(gain={-1:0.5,2:3})@5", "ndcg_gain_-1_0.5_2_3_at_5", "ndcg_gain_m1_0p5_2_3_at_5"),
        ("mr(filtered=True)", "mr_filtered_True", "mr_filtered_True"),
        ("ndcg@5,10", "ndcg_at_5_10", "ndcg_at_5_10"),
        ("a/b.c-d é", "a/b.c-d _", "a_b_c_d__"),
        ("5core", "5core", "_5core"),
    ],
)
def test_spellings(label, plain, identifier):
    assert tr.plain(label) == plain
    assert tr.plain(label, identifier=True) == identifier
    assert [spell(label, style) for style in ("label", "plain", "identifier")] == [label, plain, identifier]
    assert MLFLOW.fullmatch(plain)
    assert WANDB.fullmatch(identifier)
    assert (tr.plain(plain), tr.plain(identifier, identifier=True)) == (plain, identifier)


def test_a_metric_is_no_label():
    with pytest.raises(TypeError, match=r"pass the label of a metric"):
        tr.plain(tr.NDCG())
