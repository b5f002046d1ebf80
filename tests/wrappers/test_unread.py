"""On an accelerator no value is read while batches are added: wrappers have the same results."""

import pytest
import torch

import torchrank as tr
from tests.support.unread import leave_values_unread
from torchrank.state import scoring
from torchrank.wrappers import suite_metric
from torchrank.wrappers.suite_metric import values_of

SUITE = ["mrr", "mr", "ndcg@3", "map(aggregation=geometric)", "precision@2"]


def batches():
    g = torch.Generator().manual_seed(0)
    for start, size in ((0, 7), (7, 1), (8, 12)):
        scores = torch.randint(0, 6, (size, 6), generator=g) / 2
        grades = torch.randint(0, 3, (size, 6), generator=g) * (torch.rand(size, 1, generator=g) < 0.8)
        ids = torch.arange(start, start + size)
        yield scores, grades, ids, torch.rand(size, generator=g).where(ids % 5 > 0, 0)


WRAPPED = {
    "slices": lambda: tr.Sliced(SUITE, ["a", "b"]),
    "slices that overlap": lambda: tr.Sliced(SUITE, ["a", "b"]),
    "replicates": lambda: tr.Bootstrapped(SUITE[:3], replicates=20, seed=3),
    "replicates of slices": lambda: tr.Bootstrapped(SUITE[:3], replicates=1001, seed=3),
    "values": lambda: tr.PerQuery(SUITE),
    "systems": lambda: tr.Compared([*SUITE[:3], "precision@2"], ["x", "y"]),
}


def filled(name):
    metric = WRAPPED[name]()
    for scores, grades, ids, weights in batches():
        more = {"weights": weights}
        if name.startswith("slices"):
            more["slices"] = ids % 2 if name == "slices" else torch.stack([ids % 2 == 0, ids % 3 > 0], -1)
        elif name != "systems":
            more["query_ids"] = ids
        metric.update({"x": scores, "y": scores.flip(1)} if name == "systems" else scores, grades, **more)
    return metric


def result(name):
    metric = filled(name)
    return metric.compute(), metric.summary().rows if hasattr(metric, "summary") else []


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapper_sums_values_in_its_way_only(name, monkeypatch):
    assert suite_metric.reduce is scoring.reduce  # imported before the next line
    monkeypatch.setattr(scoring, "reduce", None)  # the sums of metrics by themselves
    filled(name)
    ranking = tr.Ranking.from_scores(torch.rand(3, 4), torch.ones(3, 4))
    values, weights, _ = values_of({"mrr": tr.MRR()}, ranking)
    assert (values["mrr"].tolist(), weights) == ([1, 1, 1], None)


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_of_which_no_value_is_read_have_the_same_results(name, monkeypatch):
    want, rows = result(name)
    leave_values_unread(monkeypatch)
    found, again = result(name)
    for row, wanted in zip(again, rows, strict=True):
        assert row.keys() == wanted.keys()
        for key, value in row.items():
            number = isinstance(value, int | float)
            assert value == (pytest.approx(wanted[key], nan_ok=True, rel=1e-9) if number else wanted[key])
    if name == "values":
        assert repr(found.to_dict()) == repr(want.to_dict())
    else:
        torch.testing.assert_close(found, want, equal_nan=True, rtol=1e-6, atol=1e-9)
