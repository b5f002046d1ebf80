"""What all wrappers do alike: splits, copies, checkpoints, merges and bad values."""

import copy
import functools
import math
import pickle

import pytest
import torch

import torchrank as tr
from tests.support.random_batches import batch

# ---- one state, however it came about --------------------------------------------------------------------------------

KEYS = ["mrr", "ndcg@3", "map(empty_target_action=skip)"]
IDS = torch.arange(40) * 7919 % 1009
SLICES, JUDGED = IDS % 4 - 1, IDS % 3 > 0
#: groups of at most three queries, which none of the updates below cuts
GROUPS = torch.arange(40) // 3 + 100 * torch.bucketize(torch.arange(40), torch.tensor([7, 8, 25, 32, 39]), right=True)
PEOPLE = batch(7)[1]


def of_two(scores):
    return {"x": scores, "y": scores.flip(1)}


def of(cls, *given, suite=KEYS):
    """A constructor, by default for some metrics."""
    return lambda suite=suite, **more: cls(suite, *given, **more)


def sliced_bootstrap(suite=KEYS, **more):
    return tr.Sliced(tr.Bootstrapped(suite, 30), ["new", "old"], **more)


def ids(rows):
    return {"query_ids": IDS[rows]}


def by_order(rows):
    return {"group": [f"g{n}" for n in GROUPS[rows]], "order": IDS[rows]}


OVERLAPPING = torch.stack([IDS % 2 == 0, IDS % 3 > 0], -1)
GEOMETRIC = (*KEYS, "map(aggregation=geometric)")
#: for each wrapper its constructor, what ``update`` takes for some rows besides scores and grades, and what is read
MADE = {
    "Sliced": (
        of(tr.Sliced, ["new", "old", "none"], suite=GEOMETRIC),
        lambda rows: {"slices": SLICES[rows]},
        ["summary", "worst"],
    ),
    "overlapping": (of(tr.Sliced, ["new", "old"]), lambda rows: {"slices": OVERLAPPING[rows]}, ["summary"]),
    "Bootstrapped": (of(tr.Bootstrapped, 30), ids, ["summary", "intervals", "replicates"]),
    "Sliced bootstrap": (
        sliced_bootstrap,
        lambda rows: {**ids(rows), "slices": SLICES[rows].clamp_max(1)},
        ["summary", "worst"],
    ),
    "Compared": (of(tr.Compared, ["x", "y"]), lambda rows: {}, ["summary", "comparison"]),
    "Rectified": (
        of(tr.Rectified, suite=KEYS[:2]),
        lambda rows: {"human": PEOPLE[rows], "judged": JUDGED[rows]},
        ["summary"],
    ),
    "Abstention": (of(tr.Abstention), lambda rows: {"confidence": IDS[rows].float()}, ["summary"]),
    "Grouped": (of(tr.Grouped, "min"), lambda rows: {"group": GROUPS[rows]}, ["summary"]),
    "Grouped, the last": (of(tr.Grouped, "last"), by_order, ["summary"]),
    "TieReport": (of(tr.TieReport, suite=(*KEYS, "mr")), lambda rows: {}, ["summary"]),
    "PerQuery": (of(tr.PerQuery), ids, []),
    "texts": (of(tr.PerQuery), lambda rows: {"query_ids": [f"q{n}" for n in IDS[rows]]}, []),
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
    also = [read for read in ("estimates", "difference") if name.startswith(("Sliced", "overlapping"))]
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
