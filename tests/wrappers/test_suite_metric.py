"""What all wrappers do alike: splits, copies, checkpoints, merges and bad values; and values that nobody reads."""

import copy
import math
import pickle

import pytest
import torch

import torchrank as tr
from tests.support.random_batches import batch
from tests.support.unread import leave_values_unread
from torchrank.state import scoring
from torchrank.wrappers import suite_metric
from torchrank.wrappers.suite_metric import values_of

# ---- one state, however it came about --------------------------------------------------------------------------------

KEYS = ["mrr", "ndcg@3", "map(empty_target_action=skip)"]
IDS = torch.arange(40) * 7919 % 1009
SLICES, JUDGED = IDS % 4 - 1, IDS % 3 > 0
PEOPLE = batch(7)[1]


def of_two(scores):
    return {"x": scores, "y": scores.flip(1)}


#: for each wrapper its constructor, what ``update`` takes for some rows besides scores and grades, and what is read
MADE = {
    "Sliced": (
        lambda: tr.Sliced([*KEYS, "map(aggregation=geometric)"], ["new", "old", "none"]),
        lambda rows: {"slices": SLICES[rows]},
        ["summary", "worst"],
    ),
    "Bootstrapped": (
        lambda: tr.Bootstrapped(KEYS, 30),
        lambda rows: {"query_ids": IDS[rows]},
        ["summary", "intervals", "replicates"],
    ),
    "Sliced bootstrap": (
        lambda: tr.Sliced(tr.Bootstrapped(KEYS, 30), ["new", "old"]),
        lambda rows: {"query_ids": IDS[rows], "slices": SLICES[rows].clamp_max(1)},
        ["summary", "worst"],
    ),
    "Compared": (lambda: tr.Compared(KEYS, ["x", "y"]), lambda rows: {}, ["summary", "comparison"]),
    "Rectified": (
        lambda: tr.Rectified(KEYS[:2]),
        lambda rows: {"human": PEOPLE[rows], "judged": JUDGED[rows]},
        ["summary"],
    ),
    "Abstention": (lambda: tr.Abstention(KEYS), lambda rows: {"confidence": IDS[rows].float()}, ["summary"]),
    "TieReport": (lambda: tr.TieReport([*KEYS, "mr"]), lambda rows: {}, ["summary"]),
    "PerQuery": (lambda: tr.PerQuery(KEYS), lambda rows: {"query_ids": IDS[rows]}, []),
    "texts": (lambda: tr.PerQuery(KEYS), lambda rows: {"query_ids": [f"q{n}" for n in IDS[rows]]}, []),
    "SampledRanks": (lambda: tr.SampledRanks(num_negatives=5, num_items=50), lambda rows: {}, []),
}


def arguments(name, rows, scores=None):
    found, grades = batch()
    scores = ((found * 8).round() if name == "TieReport" else found)[rows] if scores is None else scores
    target = torch.zeros(len(scores), dtype=torch.int64) if name == "SampledRanks" else grades[rows]
    return (of_two(scores) if name == "Compared" else scores, target), MADE[name][1](rows)


def add(name, metric, rows):
    args, kwargs = arguments(name, rows)
    metric.update(*args, **kwargs)
    return metric


def numbers(result):
    """A result as a dict of numbers or of lists."""
    if hasattr(result, "table"):
        result = result.table
    found = result.to_dict() if hasattr(result, "to_dict") else result
    return {key: x.tolist() if isinstance(x, torch.Tensor) else x for key, x in found.items()}


def same(found, want):
    assert found.keys() == want.keys()
    for key, value in want.items():
        if any(isinstance(x, str) or x is None for x in (value if isinstance(value, list) else [value])):
            assert found[key] == value
        else:
            assert found[key] == pytest.approx(value, rel=1e-6, abs=1e-9, nan_ok=True), key


WAYS = ["pieces", "deepcopy", "pickle", "clone", "half", "cpu", "checkpoint", "merge", "merge states", "forward"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MADE)
def test_the_results_are_those_of_one_update(name, way):
    make, _, reads = MADE[name]
    metric, first, rest = make(), slice(0, 25), slice(25, 40)
    whole = add(name, make(), slice(0, 40))
    if way == "forward":
        args, kwargs = arguments(name, first)
        found = metric(*args, **kwargs)
        same(numbers(found), numbers(add(name, make(), first).compute()))
        if name in ("PerQuery", "texts"):
            assert len(found) == 25
    else:
        add(name, metric, first)
        metric.compute()
    size = len(pickle.dumps(metric.metric_state))
    if way in ("deepcopy", "pickle"):
        metric = copy.deepcopy(metric) if way == "deepcopy" else pickle.loads(pickle.dumps(metric))
    elif way in ("clone", "half", "cpu"):
        metric = getattr(metric, way)()
    elif way == "checkpoint":
        metric.persistent(True)
        saved, metric = metric.state_dict(), make()
        metric.load_state_dict(saved)
    if way.startswith("merge"):
        more = add(name, make(), rest)
        metric.merge_state(more if way == "merge" else more.metric_state)
    else:
        for rows in torch.arange(25, 40).split(7 if way == "pieces" else 15):
            add(name, metric, rows)
    same(numbers(metric.compute()), numbers(whole.compute()))
    for read in reads:
        same(numbers(getattr(metric, read)()), numbers(getattr(whole, read)()))
    if name not in ("PerQuery", "texts"):
        assert len(pickle.dumps(metric.metric_state)) == size
    metric.reset()
    same(numbers(add(name, metric, first).compute()), numbers(add(name, make(), first).compute()))


@pytest.mark.parametrize("name", MADE)
def test_bad_values_make_a_batch_nan_and_raise_in_all_results(name):
    make, _, reads = MADE[name]
    metric, (args, kwargs) = make(), arguments(name, slice(0, 2), torch.tensor([[0.9, 0.1, 0, 0, 0, 0]] * 2))
    scores = args[0]["x"] if name == "Compared" else args[0]
    scores[1, 1] = math.nan
    found = numbers(metric(*args, **kwargs))
    assert all(math.isnan(x) for key, value in found.items() if key != "id" for x in torch.tensor(value).reshape(-1))
    also = [read for read in ("estimates", "difference") if name.startswith("Sliced")]
    for read in ["compute", "compute", *reads, *also]:
        with pytest.raises(ValueError, match="NaN among the scores" if name == "Compared" else "with NaN"):
            getattr(metric, read)(*["new"] * (read == "difference"))
    metric.reset()
    same(numbers(add(name, metric, slice(0, 40)).compute()), numbers(add(name, make(), slice(0, 40)).compute()))


OTHERS = {
    "Sliced": lambda suite: tr.Sliced(suite, ["new", "old", "none"]),
    "Bootstrapped": lambda suite: tr.Bootstrapped(suite, 30),
    "Sliced bootstrap": lambda suite: tr.Sliced(tr.Bootstrapped(suite, 30), ["new", "old"]),
    "Compared": lambda suite: tr.Compared(suite, ["x", "y"]),
    "Rectified": tr.Rectified,
    "Abstention": tr.Abstention,
    "TieReport": tr.TieReport,
    "PerQuery": tr.PerQuery,
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_suite_of_the_user_stays_empty_and_another_state_is_refused(name):
    suite = tr.RankingCollection(KEYS[:2])
    metric = add(name, OTHERS[name](suite), slice(0, 40))
    assert all(member.num_queries == 0 for member in suite.values())
    with pytest.raises(ValueError, match="Expected the state of another"):
        metric.merge_state(OTHERS[name](["precision@1"]))


# ---- values that are not read ----------------------------------------------------------------------------------------

UNREAD = ["mrr", "mr", "ndcg@3", "map(aggregation=geometric)", "precision@2"]


def batches():
    g = torch.Generator().manual_seed(0)
    for start, size in ((0, 7), (7, 1), (8, 12)):
        scores = torch.randint(0, 6, (size, 6), generator=g) / 2
        grades = torch.randint(0, 3, (size, 6), generator=g) * (torch.rand(size, 1, generator=g) < 0.8)
        ids = torch.arange(start, start + size)
        yield scores, grades, ids, torch.rand(size, generator=g).where(ids % 5 > 0, 0)


WRAPPED = {
    "slices": lambda: tr.Sliced(UNREAD, ["a", "b"]),
    "slices that overlap": lambda: tr.Sliced(UNREAD, ["a", "b"]),
    "replicates": lambda: tr.Bootstrapped(UNREAD[:3], replicates=20, seed=3),
    "replicates of slices": lambda: tr.Bootstrapped(UNREAD[:3], replicates=1001, seed=3),
    "values": lambda: tr.PerQuery(UNREAD),
    "systems": lambda: tr.Compared([*UNREAD[:3], "precision@2"], ["x", "y"]),
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
