"""Parameters of measures: the errors of wrong calls, signatures, docstrings, warnings at the line of the user."""

import inspect
import sys
from typing import Literal

import numpy as np
import pytest
import torchmetrics

import torchrank as tr
from torchrank.names import arguments
from torchrank.names.registry import measures


def test_a_declaration_has_a_type_and_one_of_has_values():
    with pytest.raises(TypeError, match="Expected Untyped to give the parameter 'share' a type, as share: float"):
        type("Untyped", (tr.extend.BinaryMetric,), {"name": "untyped", "share": tr.extend.number(default=1)})

    class Open(tr.extend.BinaryMetric):
        name = "openmeasure"
        kind: str = tr.extend.one_of(default="a")

    with pytest.raises(TypeError, match=r"Expected values for one_of\(\), or a Literal type, got "):
        Open(kind="b")


def test_a_type_that_is_a_text_is_evaluated_and_one_of_an_unknown_name_stays_a_text():
    class Own(tr.extend.BinaryMetric):  # annotations of this file are types, not texts
        name = "ownwithtypes"
        other: "float | None" = tr.extend.number(default=None)
        unknown: "NotThere" = tr.extend.parameter(default=3)  # noqa: F821

    assert [Own.declared[name].hint for name in ("other", "unknown")] == [float | None, "NotThere"]


def test_a_fixed_parameter_is_refused_with_its_reason():
    fixed = [(cls, key) for cls in measures().values() for key, param in cls.declared.items() if param.why]
    assert fixed
    for cls, key in fixed:
        with pytest.raises(TypeError, match=f"Expected no {key} for {cls.__name__}, .*, got 'x'"):
            cls(**{key: "x"})


def test_a_docstring_without_arguments_gets_them_before_its_example():
    class Bare(tr.extend.BinaryMetric):
        r"""A measure: :math:`1`.

        Example:
            >>> 1
            1
        """

        name = "baremeasure"

    text = inspect.getdoc(Bare)
    assert text.index("A measure") < text.index("Args:\n    top_k: ") < text.index("Example:\n    >>> 1")
    assert text.count("Args:") == 1
    assert "kwargs: ``ties``, ``empty_target_action``, ``aggregation``, ``validate_args``: as" in text

    class Own(tr.extend.BinaryMetric):
        """A measure.

        Args:
            kwargs: as they are.
        """

        name = "ownkwargs"

    assert inspect.getdoc(Own) == "A measure.\n\nArgs:\n    kwargs: as they are."


# ---- checks of arguments ---------------------------------------------------------------------------------------------


def test_integers_are_taken_within_their_bounds():
    for value in (1, 2, 2**53, np.int64(7), np.int8(1)):
        found = arguments.integer("x", value, least=1)
        assert (found, type(found)) == (int(value), int)
    metric = tr.FBeta(np.int64(3), beta=np.uint8(2))
    assert (metric.label, type(metric.top_k), type(metric.beta)) == ("fbeta(beta=2)@3", int, int)
    assert arguments.integer("x", None, least=1) is None
    assert arguments.integer("x", 4, least=4, most=4) == 4
    for value, wanted in ((0, ">= 1"), (-1, ">= 1"), (True, ">= 1"), (1.0, ">= 1"), ("1", ">= 1"), (2**53 + 1, "<= ")):
        with pytest.raises(ValueError, match=f"Expected x to be an integer {wanted}.* or None, got"):
            arguments.integer("x", value, least=1)
    with pytest.raises(ValueError, match=r"Expected x to be an integer >= 1, got None$"):
        arguments.integer("x", None, least=1, or_none=False)
    with pytest.raises(ValueError, match=r"Expected x to be an integer <= 4, got 5$"):
        arguments.integer("x", 5, least=4, most=4, or_none=False)
    for name, value in (("top_k", [1, 2]), ("top_k", (1,)), ("other", [1, 2]), ("top_k", 0)):
        with pytest.raises(ValueError, match="Expected") as raised:
            arguments.integer(name, value, least=1)
        assert ("give several to RankingCollection" in str(raised.value)) == (name == "top_k" and value != 0)


# ---- names -----------------------------------------------------------------------------------------------------------


def test_a_package_that_is_not_there_is_named_with_the_ways_out(monkeypatch):
    assert arguments.installed("json.decoder")
    assert not arguments.installed("torchrank_has_no_such_package")
    assert arguments.imported("json.decoder").JSONDecoder
    with pytest.raises(ImportError, match=r"^Expected nopkg to be installed; run `pip install nopkg`, or do without$"):
        arguments.imported("nopkg.part", instead="do without")
    monkeypatch.setitem(sys.modules, "json.decoder", None)
    assert not arguments.installed("json.decoder")
    with pytest.raises(ImportError, match=r"run `pip install json` \(the extra 'x' of torchrank installs it\)$"):
        arguments.imported("json.decoder", "x")
    monkeypatch.setitem(sys.modules, "json", None)  # though a module of it was imported
    with pytest.raises(ImportError, match="Expected json to be installed"):
        arguments.imported("json.decoder")


def test_constructors_take_the_arguments_of_torchmetrics_with_its_defaults():
    ours = {name: p.default for name, p in inspect.signature(tr.NDCG).parameters.items()}
    theirs = [name for name, p in tr.NDCG.declared.items() if p.of_torchmetrics]
    assert {"sync_on_compute", "dist_sync_on_step", "process_group", "compute_on_cpu"} <= set(theirs) <= set(ours)
    metric = torchmetrics.MeanMetric()
    for name in theirs:
        assert ours[name] in (None, getattr(metric, name)), name
        assert not tr.NDCG.declared[name].labelled
    assert tr.NDCG(sync_on_compute=False).sync_on_compute is False
    assert tr.NDCG(sync_on_compute=False).label == "ndcg"


def squared(grade):
    return grade**2


def test_a_label_names_a_callable_a_share_and_none():
    assert tr.NDCG(gain=squared).label.startswith("ndcg(gain=squared")
    assert tr.Precision("10.0%").label == "precision@10%"
    for wrong in ("ten", "10", "0%", "101%", "5 tokens"):
        with pytest.raises(ValueError, match=f"Expected top_k to be an integer >= 1, a share .*, got '{wrong}'"):
            tr.Precision(wrong)

    class Weighed(tr.extend.BinaryMetric):
        name = "weighedbysome"
        how: Literal["some"] | None = tr.extend.one_of(default=None)

    assert Weighed().how is None
    with pytest.raises(ValueError, match="got True"):
        Weighed(how=True)
    with pytest.raises(ValueError, match="Expected how to be one of 'some', None, got <function squared"):
        Weighed(how=squared)
