"""Devices that this machine does not have: the numbers of a CPU, no mixture of devices, no float64 where there is none.

An update waits for a device only where the shape of its input is in the values: pairs, triples and flat rows.
"""

import copy
import functools
import itertools

import numpy
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torchrank as tr
from tests.support import layout_cases, recommended_lists
from tests.support.oracle_comparison import IN_TURN, REPRESENTATIVES
from tests.support.simulated_device import Device
from torchrank import retrieval

pytestmark = pytest.mark.xdist_group("gpu")  # the first mode of a process takes seconds

QUERIES = 10


class Counted(TorchDispatchMode):
    """A context that counts operations, and lists those whose sums of floats a GPU adds up in any order."""

    UNORDERED = ("cumsum", "cumsum_", "index_add", "index_add_", "scatter_add", "scatter_add_")

    def __init__(self):
        super().__init__()
        self.operations, self.unordered = 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations += not func.is_view
        name = func._schema.name.split("::")[1]
        self.unordered += [name] * (name in self.UNORDERED and args[0].is_floating_point())
        return func(*args, **(kwargs or {}))


WITH_FLOAT64 = {"cuda": True, "mps": False}


@pytest.fixture
def device(kind):
    with Device(kind, WITH_FLOAT64[kind]) as device:
        yield device


def same(found, expected, device):
    """Equal numbers; without float64 equal in the first digits."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            same(one, other, device)
    else:
        close = {"rtol": 1e-9, "atol": 1e-9} if device.float64 else {"rtol": 3e-5, "atol": 3e-6}
        numpy.testing.assert_allclose(*(x.cpu().double().numpy() for x in (found, expected)), **close)


def reads_values(arguments, keywords):
    """Whether the shape of an input is in its values."""
    return isinstance(arguments[-1], tuple) or "indexes" in keywords


def batch_of(layout):
    """The arguments of an update; further layouts are those of other test modules with one more option."""
    if layout in LAYOUTS:
        return layout_cases.batch(layout, QUERIES)[1]
    generator = torch.Generator().manual_seed(0)
    scores, others = torch.rand((2, QUERIES, 30), generator=generator)
    ids = others.argsort()
    grades = torch.randint(-1, 4, (QUERIES, 30), generator=generator)
    groups, items = torch.randint(-1, 9, (QUERIES, 30), generator=generator), list(ids[:, 3:7])
    weights = torch.rand(QUERIES, generator=generator)
    return {
        "dense, groups": ((scores, grades), {"groups": groups, "tie_break": scores}),
        "label, groups": ((scores, grades.argmax(-1)), {"groups": groups[0]}),
        "list, groups": ((scores, items), {"groups": groups[0]}),
        "ids, groups": ((ids, items), {"groups": groups[0], "repeats": "first"}),
        "ids, repeats": ((ids % 12, items), {"repeats": "hold"}),
        "dense, weights": ((scores.bfloat16(), grades), {"weights": weights}),
    }[layout]


def measures(layout, all_measures=False):
    """Some measures of each need, or all measures."""
    known = [config for config in IN_TURN if layout_cases.suits(config, layout if layout in LAYOUTS else "labels")]
    if all_measures:
        known = list({config.name: config for config in known}.values())
    else:
        known = [config for config in known if config.name in REPRESENTATIVES][:: 1 + 3 * (layout != "labels_excluded")]
    return tr.RankingCollection([config.metric() for config in known])


#: a suite and each wrapper, with its further arguments: functions of the layout and the ids of the queries
METRICS = {
    "suite": lambda layout, ids: (measures(layout), {}),
    "values": lambda layout, ids: (tr.MRR(aggregation="median"), {}),
    "slices": lambda layout, ids: (tr.Sliced(SUITE, NAMES), {"slices": torch.stack([ids > 3, ids > 5], 1)}),
    "bootstrapped slices": lambda layout, ids: (
        tr.Sliced(tr.Bootstrapped(SUITE, replicates=9), NAMES),
        {"slices": ids % 3 - 1, "query_ids": ids},
    ),
    "each query": lambda layout, ids: (tr.PerQuery(SUITE), {"query_ids": ids}),
    "abstention": lambda layout, ids: (tr.Abstention("mrr"), {"confidence": ids / 2.0}),
    "groups of queries": lambda layout, ids: (tr.Grouped(SUITE, "min"), {"group": ids // 2}),
    "last of a group": lambda layout, ids: (tr.Grouped(SUITE, "last"), {"group": ids // 2, "order": -ids}),
    "judge and people": lambda layout, ids: (tr.Rectified(SUITE, strata=2), {"judged": ids % 3 > 0, "strata": ids % 2}),
    "two systems": lambda layout, ids: (tr.Compared(SUITE, NAMES), {}),
    "ties": lambda layout, ids: (tr.TieReport(SUITE), {}),
    "sampled ranks": lambda layout, ids: (tr.SampledRanks(num_negatives=4, num_items=20), {}),
    "curve": lambda layout, ids: (tr.PRCurve(5), {}),
}
LAYOUTS = [name for name in layout_cases.LAYOUTS if not name.startswith("ranking")]
FURTHER = ["dense, groups", "label, groups", "list, groups", "ids, groups", "ids, repeats", "dense, weights"]
SUITE, NAMES = "ndcg@3", ["new", "old"]


def update(metric, scores, target, **options):
    scores = dict.fromkeys(NAMES, scores) if type(metric) is tr.Compared else scores
    metric.update(scores, target, **options, **({"human": target} if isinstance(metric, tr.Rectified) else {}))


def state_of(metric):
    suite = metric.values(copy_state=False) if isinstance(metric, tr.RankingCollection) else [metric]
    return [one.metric_state for one in suite]


def values_of(metric):
    if isinstance(metric, tr.SampledRanks):  # computes for queries of one relevant candidate only
        return metric.histogram
    value = metric.compute()
    if not isinstance(metric, tr.PerQuery):
        return value
    return {key: torch.as_tensor(column) for key, column in value.columns.items()}


COMPUTED = ("bootstrapped slices", "each query", "abstention")


def numbers(name, metric):
    """The state on a CPU; the values where states differ: what is rounded may be rounded the other way in float32."""
    if name == "suite":
        return values_of(metric)
    metric.to("cpu")
    return values_of(metric) if name in COMPUTED else metric.metric_state


#: A layout meets the suite, on the device without float64, or some wrappers, on one of the two in turn.
ALL = [*LAYOUTS, *FURTHER]


def tried_on(kind, layout):
    """The names of what meets a layout on a device."""
    number = ALL.index(layout)
    suite = ["suite"] if (kind == "mps" and number % 2) or layout == "dense_masked" else []
    return suite + ([*METRICS][1 + number // 2 % 5 :: 5] if number % 4 == 2 * (kind == "cuda") else [])


PLACES = [(kind, layout) for kind in ("mps", "cuda") for layout in ALL if tried_on(kind, layout)]


@pytest.mark.parametrize(("kind", "layout"), PLACES)
def test_layouts_and_wrappers_have_the_numbers_of_a_cpu_without_waiting(layout, kind, assume):
    arguments, keywords = batch_of(layout)
    ids = torch.arange(tr.MRR().score(*arguments, **keywords).numel())
    assume(compared=16 if kind == "cuda" else 0)  # ids of lists are compared, or looked up
    tried = {name: METRICS[name](layout, ids) for name in tried_on(kind, layout)}
    if (kind, layout) == ("mps", "dense_masked"):  # where float64 is lacking, which is harder on formulas
        tried["suite"] = measures(layout, all_measures=True), {}
    expected = {}
    for name, (metric, more) in tried.items():
        metric = copy.deepcopy(metric)
        update(metric, *arguments, **keywords, **more)
        expected[name] = numbers(name, metric)
    with Device(kind, WITH_FLOAT64[kind]) as device:
        there, options = device.put((arguments, keywords))
        for name, (metric, more) in tried.items():
            metric.to(kind)
            more = device.put(more)
            before = len(device.waits)
            update(metric, *there, **options, **more)
            assert reads_values(arguments, keywords) or device.waits[before:] == [], name
            assert {value.device.type for value in layout_cases.tensors_in(state_of(metric))} == {kind}, name
            same(numbers(name, metric), expected[name], device)


MANY = ["err@10", "nerr", "nrbp", "alphandcg@5", "infap", "compatibility", "ndcg(unjudged=upper)@10"]


# With ties in float32, which is harder on formulas, and without.
@pytest.mark.parametrize(("kind", "decimals"), [("mps", 0), ("cuda", 3)])
def test_a_long_list_is_waited_for_where_each_candidate_would_be_an_operation(device, decimals):
    torch.manual_seed(0)
    scores, grades = torch.rand(QUERIES, 200).round(decimals=decimals), torch.randint(-1, 3, (QUERIES, 200))
    grades[:, 5:] = grades[:, 5:].clamp_min(0)  # few unjudged candidates
    there = device.put((scores, grades))
    for name in MANY:
        expected, metric = tr.parse(name), tr.parse(name).to(device.device)
        expected.update(scores, grades)
        before = len(device.waits)
        with Counted() as counted:
            metric.update(*there)
        waited = len(device.waits) - before
        metric.update(*device.put((scores[:0], grades[:0])))  # a batch of no queries
        same(metric.compute(), expected.compute(), device)
        assert 0 < waited < 20, name
        assert not counted.unordered, name  # values are the same in every run
        assert decimals == 0 or counted.operations < 1500, (name, counted.operations)


def constructed(put=lambda x: x):
    """A ranking by each constructor that takes tensors, and whether it reads values."""
    generator, ranking = torch.Generator().manual_seed(0), tr.Ranking
    scores = put(torch.rand((QUERIES, 60), generator=generator))
    grades = torch.randint(0, 3, (QUERIES, 60), generator=generator)
    label, ids = put(grades.argmax(-1)), torch.stack([torch.randperm(60, generator=generator)[:9] for _ in grades])
    several = [put(row.nonzero().squeeze(-1)[:n]) for n, row in enumerate(grades)]
    pairs = put(tuple(grades[:, :5].nonzero().T))
    users, items = (put(torch.eye(4)[torch.randint(4, (n,), generator=generator)]) for n in (QUERIES, 60))
    grades, ids = put(grades), put(ids)
    yield lambda: ranking.from_scores(scores, grades, exclude=pairs, tie_break=-scores), False
    yield lambda: ranking.from_label(scores, label, mask=grades > 0), False
    yield lambda: ranking.from_flat(scores[0], grades[0], grades[1].sort().values), True
    yield lambda: ranking.from_ids(ids, several), False
    yield lambda: ranking.from_ids(ids, label, cost=label.new_ones(60)), False
    yield lambda: ranking.from_scores(scores, grades, cost=scores[0]), False
    yield lambda: ranking.from_rankings(ids, ids.flip(-1)), False
    yield lambda: ranking.from_ranks(label + 1, 300), False
    yield lambda: ranking.from_negatives(scores[:, 0], scores[:, 1:]), False
    yield lambda: ranking.from_neighbors(ids, scores[:, :9], ids.flip(-1)[:, :4], scores[:, 5:9].sort().values), False
    yield lambda: ranking.from_score_blocks(list(scores.split(20, dim=1)), several), False
    for relevant in (label, ids, several, pairs):
        for options in ({}, {"top_k": 5}, {"chunk_size": 17, "similarity": "cosine"})[: 1 if relevant is ids else None]:
            make = functools.partial(ranking.from_embeddings, users, items, relevant, exclude=pairs, **options)
            yield make, isinstance(relevant, tuple)


FIELDS = ("first", "tied", "grade", "valid", "num_candidates", "errors")


@pytest.mark.parametrize(("kind", "rectangle"), [("cuda", 2**10), ("mps", -12)], ids=["padded", "in groups"])
def test_constructors_make_the_rankings_of_a_cpu_without_waiting(kind, device, assume, rectangle):
    assume(rectangle_counted=rectangle)
    suite = tr.RankingCollection(["ndcg@5", "mrr@5"])
    for (make, reads), (make_expected, _) in zip(constructed(device.put), constructed()):
        before = len(device.waits)
        found, expected = make(), make_expected()
        assert reads or device.waits[before:] == []
        for one, other in ((getattr(found, field), getattr(expected, field)) for field in FIELDS):
            assert one.device.type == kind
            if found.reach is None:
                same(*(x.sort(-1).values if x.dim() == 2 else x for x in (one, other)), device)  # entries have no order
        if found.reach is not None:  # ranks behind it differ
            same(suite.score(found), suite.score(expected), device)


@pytest.mark.parametrize("kind", ["mps"])
def test_recommended_lists_have_the_numbers_of_a_cpu_without_waiting(kind, device):
    ids, relevant = recommended_lists.tensors(*recommended_lists.draw(3))
    for name, (make, *_) in recommended_lists.METRICS.items():
        metric, expected = make(2).to(kind), make(2)
        there = device.put((ids, relevant))
        before = len(device.waits)
        metric.update(*there)
        assert device.waits[before:] == [], name
        expected.update(ids, relevant)
        same(metric.compute(), expected.compute(), device)


@pytest.mark.parametrize(("kind", "name"), [*zip(itertools.cycle(WITH_FLOAT64), retrieval.__all__)])
def test_drop_in_classes_have_the_numbers_of_a_cpu_and_wait_equally_often_for_any_number_of_queries(name, kind, device):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(200, generator=generator).round(decimals=1), torch.randint(0, 2, (200,), generator=generator)
    rows = (*rows, torch.randint(0, 30, (200,), generator=generator))
    metric, expected = getattr(retrieval, name)().to(kind), getattr(retrieval, name)()
    for part in zip(*(x.split(70) for x in rows)):
        expected.update(*part)
        there = device.put(part)
        before = len(device.waits)
        metric.update(*there)
        assert len(device.waits[before:]) == 2  # of the target, and of the indexes
    same(metric.compute(), expected.compute(), device)
    waits = []
    for queries in (50, 200):
        scores, target = torch.randperm(8 * queries) / (8 * queries), torch.arange(8 * queries) % 3 % 2
        metric.reset()
        metric.update(*device.put((scores, target, torch.arange(queries).repeat_interleave(8))))
        before = len(device.waits)
        metric.compute()
        waits.append(len(device.waits) - before)
    assert waits[0] == waits[1] > 0


BATCHES = [layout_cases.batch(layout, QUERIES)[1] for layout in ("dense_masked", "dense_excluded")]


@pytest.mark.parametrize(
    ("kind", "name"),
    zip(itertools.cycle(WITH_FLOAT64), ["ndcg", "mrr(aggregation=median)", "mrr(aggregation=harmonic)", "kendalltau"]),
)
def test_a_metric_moves_between_batches_and_its_value_stays(name, kind, device):
    expected, metric, saved = tr.parse(name), tr.parse(name), tr.parse(name).to(kind)
    metric.persistent(True)
    saved.persistent(True)
    for place, (arguments, keywords) in zip((kind, "cpu"), BATCHES):
        expected.update(*arguments, **keywords)
        there = device.put((arguments, keywords)) if place == kind else (arguments, keywords)
        metric.to(place).update(*there[0], **there[1])
    same(metric.compute(), expected.compute(), device)
    saved.load_state_dict(metric.state_dict())
    same(saved.compute(), expected.compute(), device)
    if expected.aggregation == "mean":
        same(torch.tensor(saved.interval()), torch.tensor(expected.interval()), device)
    other = tr.parse(name)
    other.merge_state(saved)
    assert other.compute().device.type == "cpu"
    same(other.compute(), expected.compute(), device)
    same(metric.to(kind).compute(), expected.compute(), device)


@pytest.mark.parametrize(("kind", "name"), [*zip(itertools.cycle(WITH_FLOAT64), METRICS)])
def test_a_metric_on_a_cpu_takes_batches_of_a_device_and_the_other_way_round(name, kind, device):
    make = METRICS[name]
    (arguments, keywords), ids = BATCHES[0], torch.arange(len(BATCHES[0].args[0]))
    (expected, more), (mixed, _), (there, _) = (make("catalogue_pairs", ids) for _ in range(3))
    given = [((arguments, keywords), more), device.put(((arguments, keywords), more)), ((arguments, keywords), more)]
    for metric, (((scores, target), options), further) in zip((expected, mixed, there.to(kind)), given):
        update(metric, scores, target, **options, **further)
    for metric, place in ((mixed, "cpu"), (there, kind)):
        found = values_of(metric)
        same(found, values_of(expected), device)
        if not isinstance(metric, tr.PerQuery):  # whose table is no tensor
            assert {value.device.type for value in layout_cases.tensors_in(found)} == {place}
