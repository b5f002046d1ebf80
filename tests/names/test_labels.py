"""Plain spellings of labels: which characters they have, and that they can be read in one way only."""

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import torchrank as tr
from tests.support.cases import cases
from torchrank.names.labels import spell, write
from torchrank.names.parse import LIBRARIES
from torchrank.names.registry import measures
from torchrank.names.types import Aggregation, EmptyAction

MLFLOW = re.compile(r"[/\w.\- :]*")  # mlflow.utils.validation
LIGHTNING = re.compile(r"[a-zA-Z0-9_/. -]+")  # MLFlowLogger drops all others
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
numbers = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e-05, -1e-05, 0.8, 0.85, -0.5, 2.0, 1.5e-300]),
)
cuts = st.one_of(st.none(), st.integers(1, 2**53), st.just("5,10"))


@st.composite
def labels(draw):
    """The label of any measure with any of its parameters, including combinations that its constructor refuses."""
    name = draw(st.sampled_from(sorted(ALL)))
    values = {}
    for parameter in draw(st.lists(st.sampled_from(sorted(ALL[name])), unique=True, max_size=4)):
        kinds = [st.sampled_from(ALL[name][parameter])] if ALL[name][parameter] else [numbers]
        if parameter == "gain":
            kinds.append(st.dictionaries(numbers, numbers, min_size=1, max_size=3))
        values[parameter] = draw(st.one_of(kinds))
    return write(name, values, draw(cuts))


def label_of(plain):
    """The label with a plain spelling, read from the names of measures, parameters and options."""
    name, *rest = plain.split("_")
    inside, at = [], ""
    while rest:
        if rest[0] == "at":
            at, rest = "@" + ",".join(rest[1:]), []
            continue
        (parameter,) = starting(rest, ALL[name])
        rest = rest[len(parameter.split("_")) :]
        if option := starting(rest, ALL[name][parameter]):
            (value,) = option
            rest = rest[len(value.split("_")) :]
        else:
            run = next((n for n, one in enumerate(rest) if not NUMBER.fullmatch(one)), len(rest))
            pairs = ",".join(f"{key}:{worth}" for key, worth in zip(rest[:run:2], rest[1:run:2]))
            value = rest[0] if run == 1 else f"{{{pairs}}}"
            rest = rest[run:]
        inside.append(f"{parameter}={value}")
    return name + (f"({','.join(inside)})" if inside else "") + at


def starting(parts, names):
    """The names that the parts begin with; two would make the reading ambiguous."""
    return [name for name in names if parts[: len(name.split("_"))] == name.split("_")]


def numbers_of(identifier):
    """An identifier with its numbers as a plain spelling has them."""
    return "_".join(
        part.replace("p", ".").replace("m", "-") if re.fullmatch(r"m?\d[\dpem]*", part) else part
        for part in identifier.split("_")
    )


@given(labels())
def test_every_label_can_be_read_from_its_plain_spelling_so_no_two_have_the_same(label):
    plain = tr.plain(label)
    assert label_of(plain) == label
    assert MLFLOW.fullmatch(plain)
    assert LIGHTNING.fullmatch(plain)
    assert tr.plain(plain) == plain


@given(labels())
def test_every_label_can_be_read_from_its_identifier(label):
    identifier = tr.plain(label, identifier=True)
    assert WANDB.fullmatch(identifier)
    assert numbers_of(identifier) == tr.plain(label)
    assert tr.plain(identifier, identifier=True) == identifier


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
        (
            "utility(hit=-0.5,miss=-2)",
            "utility_hit_-0.5_miss_-2",
            "utility_hit_m0p5_miss_m2",
        ),
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


def test_a_metric_is_no_label():
    with pytest.raises(TypeError, match=r"pass the label of a metric"):
        tr.plain(tr.NDCG())
