"""What all wrappers do alike: splits, copies, checkpoints, merges and bad values; and values that nobody reads."""

import copy
import functools
import math
import pickle

import pytest
import torch

import torchrank as tr
from tests.support.random_batches import batch
from tests.support.unread import leave_values_unread

# ---- one state, however it came about --------------------------------------------------------------------------------

KEYS = ["mrr", "ndcg@3", "map(empty_target_action=skip)"]
IDS = torch.arange(40) * 7919 % 1009
SLICES, JUDGED = IDS % 4 - 1, IDS % 3 > 0
#: groups of at most three queries, which none of the updates below cuts
GROUPS = torch.arange(40) // 3 + 100 * torch.bucketize(torch.arange(40), torch.tensor([7, 8, 25, 32, 39]), right=True)
PEOPLE = batch(7)[1]


def of_two(scores):
    return {"x": scores, "y": scores.flip(1)}


#: for each wrapper its constructor, what ``update`` takes for some rows besides scores and grades, and what is read
MADE = {
    "Sliced": (
        lambda suite=(*KEYS, "map(aggregation=geometric)"), **more: tr.Sliced(suite, ["new", "old", "none"], **more),
        lambda rows: {"slices": SLICES[rows]},
        ["summary", "worst"],
    ),
    "Sliced, overlapping": (
        lambda suite=KEYS, **more: tr.Sliced(suite, ["new", "old"], **more),
        lambda rows: {"slices": torch.stack([IDS[rows] % 2 == 0, IDS[rows] % 3 > 0], -1)},
        ["summary"],
    ),
    "Bootstrapped": (
        lambda suite=KEYS, **more: tr.Bootstrapped(suite, 30, **more),
        lambda rows: {"query_ids": IDS[rows]},
        ["summary", "intervals", "replicates"],
    ),
    "Sliced bootstrap": (
        lambda suite=KEYS, **more: tr.Sliced(tr.Bootstrapped(suite, 30), ["new", "old"], **more),
        lambda rows: {"query_ids": IDS[rows], "slices": SLICES[rows].clamp_max(1)},
        ["summary", "worst"],
    ),
    "Compared": (
        lambda suite=KEYS, **more: tr.Compared(suite, ["x", "y"], **more),
        lambda rows: {},
        ["summary", "comparison"],
    ),
    "Rectified": (
        lambda suite=KEYS[:2], **more: tr.Rectified(suite, **more),
        lambda rows: {"human": PEOPLE[rows], "judged": JUDGED[rows]},
        ["summary"],
    ),
    "Abstention": (
        lambda suite=KEYS, **more: tr.Abstention(suite, **more),
        lambda rows: {"confidence": IDS[rows].float()},
        ["summary"],
    ),
    "Grouped": (
        lambda suite=KEYS, **more: tr.Grouped(suite, "min", **more),
        lambda rows: {"group": GROUPS[rows]},
        ["summary"],
    ),
    "Grouped, the last": (
        lambda suite=KEYS, **more: tr.Grouped(suite, "last", **more),
        lambda rows: {"group": [f"g{n}" for n in GROUPS[rows]], "order": IDS[rows]},
        ["summary"],
    ),
    "TieReport": (lambda suite=(*KEYS, "mr"), **more: tr.TieReport(suite, **more), lambda rows: {}, ["summary"]),
    "PerQuery": (lambda suite=KEYS, **more: tr.PerQuery(suite, **more), lambda rows: {"query_ids": IDS[rows]}, []),
    "texts": (
        lambda suite=KEYS, **more: tr.PerQuery(suite, **more),
        lambda rows: {"query_ids": [f"q{n}" for n in IDS[rows]]},
        [],
    ),
    "SampledRanks": (lambda: tr.SampledRanks(num_negatives=5, num_items=50), lambda rows: {}, []),
}


def arguments(name, rows, scores=None):
    found, grades = batch()
    scores = ((found * 8).round() if name == "TieReport" else found)[rows] if scores is None else scores
    target = torch.zeros(len(scores), dtype=torch.int64) if name == "SampledRanks" else grades[rows]
    return (of_two(scores) if name == "Compared" else scores, target), MADE[name][1](rows)


def add(name, metric, rows, **more):
    args, kwargs = arguments(name, rows)
    metric.update(*args, **kwargs, **more)
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
        columns = (x if isinstance(x, list) else [x] for x in (found[key], value))
        for one, other in zip(*columns, strict=True):
            number = isinstance(other, int | float)
            assert one == (pytest.approx(other, rel=1e-6, abs=1e-9, nan_ok=True) if number else other), key


@functools.cache
def of_one_update(name, stop):
    """The results of each reader after one update with the first rows."""
    metric = add(name, MADE[name][0](), slice(0, stop))
    return {read: numbers(getattr(metric, read)()) for read in ("compute", *MADE[name][2])}


WAYS = ["pieces", "checkpoint", "merge", "forward"]
#: what no wrapper has code of its own for, each with some wrappers in turn
COMMON = ["pickle", "deepcopy", "clone", "half", "cpu", "merge states"]


@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for number, name in enumerate(MADE) for way in (*WAYS, COMMON[number % 6])],
)
def test_the_results_are_those_of_one_update(name, way):
    make, _, reads = MADE[name]
    metric, first, rest = make(), slice(0, 25), slice(25, 40)
    if way == "forward":
        args, kwargs = arguments(name, first)
        found = metric(*args, **kwargs)
        same(numbers(found), of_one_update(name, 25)["compute"])
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
    for read in ("compute", *reads):
        same(numbers(getattr(metric, read)()), of_one_update(name, 40)[read])
    if name not in ("PerQuery", "texts"):
        assert len(pickle.dumps(metric.metric_state)) == size
    metric.reset()
    same(numbers(add(name, metric, first).compute()), of_one_update(name, 25)["compute"])


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
    same(numbers(add(name, metric, slice(0, 40)).compute()), of_one_update(name, 40)["compute"])


OF_SUITES = [name for name in MADE if name != "SampledRanks"]


@pytest.mark.parametrize("name", OF_SUITES)
def test_the_suite_of_the_user_stays_empty_and_another_state_is_refused(name):
    suite = tr.RankingCollection(KEYS[:2])
    make, metric = MADE[name][0], add(name, MADE[name][0](suite), slice(0, 40))
    assert all(member.num_queries == 0 for member in suite.values())
    with pytest.raises(ValueError, match="Expected the state of another"):
        metric.merge_state(make(["precision@1"]))


@pytest.mark.parametrize("name", OF_SUITES)
def test_prefix_postfix_and_keys_are_those_of_a_collection(name):
    make, labels = MADE[name][0], ["mrr", "ndcg@3"]

    def keys(*args, **kwargs):
        found = add(name, make(*args, **kwargs), slice(0, 9)).compute()
        return list(found.columns if isinstance(found, tr.QueryTable) else found)

    plain = keys(labels)
    assert keys(tr.parse(label) for label in labels) == plain  # any iterable of metrics
    assert keys(labels, prefix="val/") == [f"val/{key}" for key in plain]
    spelt = [f"val/{key.replace('ndcg@3', 'ndcg_at_3')}" for key in plain]
    assert keys(labels, prefix="val/", keys="plain", sync_on_compute=False) == spelt
    assert keys(tr.RankingCollection(labels, prefix="val/", keys="plain")) == spelt
    ended = keys(labels, prefix="val/", postfix="_x")
    assert [key.replace("_x", "") for key in ended] == [f"val/{key}" for key in plain]
    assert all("_x" in key for key in ended)
    make(labels).merge_state(make(labels, prefix="val/"))  # states have the same names


@pytest.mark.parametrize("name", MADE)
def test_flat_rows_take_options_in_the_order_of_indexes(name):
    (preds, target), kwargs = arguments(name, slice(0, 40))
    order = torch.randperm(240, generator=torch.Generator().manual_seed(1))
    indexes = torch.arange(40).repeat_interleave(6)[order] * 3 + 5
    if target.dim() == 1:
        target = torch.nn.functional.one_hot(target, 6)
    if "human" in kwargs:
        kwargs["human"] = kwargs["human"].flatten()[order]
    flat = {key: x.flatten()[order] for key, x in preds.items()} if name == "Compared" else preds.flatten()[order]
    metric = MADE[name][0]()
    metric.update(flat, target.flatten()[order], indexes=indexes, **kwargs)
    same(numbers(metric.compute()), of_one_update(name, 40)["compute"])


@pytest.mark.parametrize("name", OF_SUITES)
def test_a_query_that_is_cut_by_two_updates_is_noticed(name):
    metric, scores, grades = MADE[name][0]("mrr"), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1, 0, 1])
    preds = {"x": scores, "y": scores} if name == "Compared" else scores
    options = {key: x for key, x in MADE[name][1](slice(0, 2)).items() if key not in ("human", "judged")}
    metric.update(preds, grades, indexes=torch.tensor([0, 0, 1]), **options)
    with pytest.warns(UserWarning, match="Counted the last query of an update"):
        metric.update(preds, grades, indexes=torch.tensor([1, 2, 2]), **options)


# ---- values that are not read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MADE)
def test_wrappers_of_which_no_value_is_read_have_the_same_results(name, monkeypatch):
    make, _, reads = MADE[name]
    weights = (IDS % 5).double()

    def filled():
        metric = make()
        for rows in (slice(0, 7), slice(7, 8), slice(8, 40)):
            add(name, metric, rows, weights=weights[rows])
        return metric

    want = filled()
    leave_values_unread(monkeypatch)
    found = filled()
    for read in ("compute", *reads):
        same(numbers(getattr(found, read)()), numbers(getattr(want, read)()))
