"""A metric of torchmetrics with every kind of state: updates, copies, checkpoints, casts, threads, graphs and names."""

import copy
import io
import math
import pickle
import re
import sys
import threading
import warnings

import pytest
import torch
import torchmetrics
from torch import Tensor, nn
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from torchmetrics.wrappers import Running

import torchrank as tr
from tests.support import layout_cases, workers
from tests.support.cases import cases
from tests.support.metric_kinds import (
    ALL,
    BATCHES,
    KINDS,
    NAN,
    aggregated,
    check,
    each_state,
    every_class,
    every_kind,
    fill,
    filled,
    variants,
    with_cutoff,
)
from tests.support.oracle_comparison import IN_TURN, MEASURES, REPRESENTATIVES
from tests.support.unread import leave_values_unread
from tests.support.workers import batch as drawn
from torchrank.retrieval import RetrievalMRR

BAD = (torch.tensor([[0.1, NAN, 0.3]]), torch.tensor([[1, 0, 0]]))


@every_kind
@pytest.mark.parametrize("read", [True, False])
def test_update_and_compute(kind, read, monkeypatch):
    if not read:
        leave_values_unread(monkeypatch)
    metric = kind.make()
    for number in range(len(BATCHES)):
        metric.update(*BATCHES[number])
        check(metric.compute(), aggregated(metric, BATCHES[: number + 1]))
    assert (metric.update_count, metric.num_queries) == (len(BATCHES), len(ALL[0]))
    metric.update(*BAD)
    with pytest.raises(ValueError, match="1 query with NaN"):
        metric.compute()
    metric.reset()
    same_states(metric.metric_state, states(kind.make()))
    assert (metric.num_queries, metric.num_empty, metric.update_count) == (0, 0, 0)
    metric.update(*BATCHES[1])
    check(metric.compute(), aggregated(metric, BATCHES[1:2]))


@every_kind
@pytest.mark.parametrize("on_step", [False, True])
def test_forward_gives_the_value_of_the_batch_and_accumulates(kind, on_step):
    metric = kind.make(dist_sync_on_step=on_step)
    for number, (preds, target) in enumerate(BATCHES):
        check(metric(preds, target), aggregated(metric, [(preds, target)]))
        if number == 1:
            metric.compute()
    check(metric.compute(), aggregated(metric, BATCHES))
    assert metric.num_queries == len(ALL[0])
    assert metric.update_count == len(BATCHES)


@every_kind
@pytest.mark.parametrize("on_step", [False, True])
def test_forward_of_bad_values_is_nan_and_loses_nothing(kind, on_step):
    metric = kind.make(dist_sync_on_step=on_step)
    metric(*BATCHES[0])
    assert metric(*BAD).isnan().all()
    assert not metric(*BATCHES[2]).isnan().all()
    assert metric.num_queries == 12
    with pytest.raises(ValueError, match="1 query with NaN"):
        metric.compute()
    with pytest.raises(ValueError, match="1 query with NaN"):
        metric.compute()
    metric.update(*BAD)
    with pytest.raises(ValueError, match="2 queries with NaN"):
        metric.compute()
    metric.reset()
    metric.update(*BATCHES[2])
    check(metric.compute(), aggregated(metric, BATCHES[2:]))


def states(metric):
    return copy.deepcopy(metric.metric_state)


def same_states(one, other):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0, equal_nan=True)


WRONG = {
    "shape": (ValueError, (torch.zeros(2, 3), torch.zeros(2, 4)), {}),
    "type": (TypeError, ({}, torch.zeros(1, 1)), {}),
    "weights": (ValueError, BATCHES[0], {"weights": torch.ones(9)}),
}


@each_state
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("on_step", [False, True])
def test_a_call_that_raises_leaves_no_trace(kind, wrong, on_step):
    metric = filled(kind, dist_sync_on_step=on_step, compute_on_cpu=not on_step)
    metric.compute()
    error, arguments, keywords = WRONG[wrong]
    before = states(metric)
    kept = ("update_count", "compute_on_cpu", "_to_sync", "_should_unsync", "_is_synced", "_enable_grad")
    settings = {name: getattr(metric, name) for name in kept}
    with pytest.raises(error):
        metric(*arguments, **keywords)
    same_states(metric.metric_state, before)
    assert {name: getattr(metric, name) for name in kept} == settings
    with pytest.raises(error):
        metric.update(*arguments, **keywords)
    same_states(metric.metric_state, before)
    check(metric.compute(), aggregated(metric, BATCHES))
    check(metric(*BATCHES[0]), aggregated(metric, BATCHES[:1]))
    check(metric.compute(), aggregated(metric, [*BATCHES, BATCHES[0]]))


def test_a_failing_aggregation_leaves_no_trace():
    def fails(values):
        raise RuntimeError("no")

    metric = tr.MRR(aggregation=fails)
    metric.update(*BATCHES[0])
    before = states(metric)
    with pytest.raises(RuntimeError, match="no"):
        metric(*BATCHES[1])
    same_states(metric.metric_state, before)


def is_as_it_was_made(metric):
    """The state and its defaults are float64, also after casts."""
    for values in (metric.metric_state, metric._defaults):
        for value in values.values():
            assert all(part.dtype == torch.float64 for part in ([value] if isinstance(value, Tensor) else value))


NOTHING = {
    "dense": (torch.zeros(0, 7), torch.zeros(0, 7, dtype=torch.int64)),
    "dense, no candidates": (torch.zeros(0, 0), torch.zeros(0, 0)),
    "label": (torch.zeros(0, 7), torch.zeros(0, dtype=torch.int64)),
    "pairs": (torch.zeros(0, 7), (torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))),
    "lists": (torch.zeros(0, 7), []),
    "ids": (torch.zeros(0, 4, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int64)),
}


@each_state
@pytest.mark.parametrize("layout", [*NOTHING, "flat"])
def test_a_batch_without_queries_changes_nothing(kind, layout):
    arguments = NOTHING.get(layout, (torch.zeros(0), torch.zeros(0)))
    keywords = {"indexes": torch.zeros(0, dtype=torch.int64)} if layout == "flat" else {}
    metric = kind.make()
    metric.update(*arguments, **keywords)
    value = metric(*arguments, **keywords, weights=torch.zeros(0))
    assert value.isnan().all()
    assert value.shape == ((0,) if metric.aggregation == "none" else ())
    assert metric.score(*arguments, **keywords).shape == (0,)
    assert metric.num_queries == 0
    assert metric.compute().isnan().all()
    metric.update(*BATCHES[0])
    metric.update(*arguments, **keywords)
    check(metric.compute(), aggregated(metric, BATCHES[:1]))


@each_state
def test_no_graph_is_kept(kind):
    metric = kind.make()
    preds = BATCHES[0][0].clone().requires_grad_()
    weights = torch.ones(len(preds), requires_grad=True)
    value = metric(preds, BATCHES[0][1], weights=weights)
    metric.update(preds, BATCHES[0][1], weights=weights)
    assert not value.requires_grad
    assert not metric.compute().requires_grad
    state = metric.metric_state.values()
    assert not any(x.requires_grad for part in state for x in (part if isinstance(part, list) else [part]))


def through_a_file(saved, weights_only=True):
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


COPIES = {
    "clone": lambda metric: metric.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda metric: pickle.loads(pickle.dumps(metric)),
    "torch.save": lambda metric: through_a_file(metric, weights_only=False),
}


@each_state
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("computed", [False, True])
def test_a_copy_goes_on_by_itself(kind, way, computed):
    metric = filled(kind, BATCHES[:1])
    if computed:
        metric.compute()
    twin = COPIES[way](metric)
    assert twin.label == metric.label
    check(twin.compute(), aggregated(metric, BATCHES[:1]))
    twin.update(*BATCHES[2])
    check(twin.compute(), aggregated(metric, [BATCHES[0], BATCHES[2]]))
    check(metric.compute(), aggregated(metric, BATCHES[:1]))
    metric.reset()
    assert twin.num_queries == 11
    with pytest.raises(AttributeError, match="ties"):
        twin.ties = "optimistic"


def test_a_copy_of_a_computed_metric_keeps_a_value_of_grades_with_fractions():
    metric, batch = tr.MRR(relevance_level=0.5), (torch.tensor([[0.9, 0.8]]), torch.tensor([[0.2, 0.7]]))
    metric.update(*batch)
    assert metric.compute() == 0.5
    assert COPIES["pickle"](metric).compute() == 0.5
    assert metric.score(*batch) == 0.5
    with pytest.warns(UserWarning, match="No grade reaches relevance_level=0.9"):
        tr.MRR(relevance_level=0.9).score(*batch)


RANKINGS = [layout for layout in layout_cases.LAYOUTS if layout.startswith("ranking")]


@pytest.mark.parametrize(
    ("layout", "way"),
    [(RANKINGS[0], "deepcopy"), (RANKINGS[0], "torch.save"), *((name, "pickle") for name in RANKINGS)],
)
def test_a_ranking_that_measures_have_scored_can_be_copied(layout, way):
    (ranking,), _ = layout_cases.batch(layout, 20)[1]
    names = MEASURES if way == "pickle" and layout == RANKINGS[0] else REPRESENTATIVES
    known = [config for config in IN_TURN if config.name in names and layout_cases.suits(config, layout)]
    suite = tr.RankingCollection([config.metric() for config in known])
    fresh = len(pickle.dumps(ranking))
    values = suite.score(ranking)
    twin = COPIES[way](ranking)
    assert len(pickle.dumps(ranking)) == fresh  # without the pieces that measures have shared
    torch.testing.assert_close(suite.score(twin), values, rtol=0, atol=0, equal_nan=True)
    if way != "pickle":
        torch.testing.assert_close(suite.score(ranking), values, rtol=0, atol=0, equal_nan=True)


@every_kind
def test_merge_state(kind):
    one, other, fresh = (kind.make() for _ in range(3))
    one.update(*BATCHES[0])
    other.update(*BATCHES[1])
    one.compute()
    before = states(other)
    one.merge_state(other)
    check(one.compute(), aggregated(one, BATCHES[:2]))
    one.update(*BATCHES[2])
    check(one.compute(), aggregated(one, BATCHES))
    same_states(other.metric_state, before)
    fresh.merge_state(other)
    check(fresh.compute(), aggregated(one, BATCHES[1:2]))
    fresh.merge_state(kind.make())
    check(fresh.compute(), aggregated(one, BATCHES[1:2]))
    fresh.merge_state(one.metric_state)
    check(fresh.compute(), aggregated(one, [BATCHES[1], *BATCHES]))
    fresh.merge_state(fresh)
    assert fresh.num_queries == 26
    assert fresh.update_count > 1


@each_state
def test_merge_state_takes_equals_only(kind):
    metric = filled(kind)
    for other in (kind.make(empty_target_action="error"), tr.NDCG(3, aggregation="max"), torchmetrics.MeanMetric(), 3):
        with pytest.raises(ValueError, match="Expected"):
            metric.merge_state(other)
    check(metric.compute(), aggregated(metric, BATCHES))


@each_state
@pytest.mark.parametrize("parent", [None, nn.Module, tr.RankingCollection, torchmetrics.MetricCollection])
def test_resume_from_a_checkpoint_in_mid_epoch(kind, parent):
    def build():
        metric = kind.make()
        assert not metric.state_dict()
        metric.persistent(True)
        if parent is None:
            return metric, metric
        if parent is nn.Module:
            owner = nn.Module()
            owner.inner = nn.Module()
            owner.inner.metric = metric
            owner.weight = nn.Linear(2, 2)
            return owner, metric
        return parent([metric]), metric

    owner, metric = build()
    for number in range(2):
        metric.update(*BATCHES[number])
    saved = through_a_file(owner.state_dict())
    assert any(metric.label in key for key in saved)
    for used in (True, False):
        resumed, twin = build()
        if used:
            twin.update(*BATCHES[0])
            twin.compute()
        resumed.load_state_dict(saved)
        is_as_it_was_made(twin)
        check(twin.compute(), aggregated(metric, BATCHES[:2]))
        assert twin.update_called
        twin.update(*BATCHES[2])
        check(twin.compute(), aggregated(metric, BATCHES))
        check(metric.compute(), aggregated(metric, BATCHES[:2]))
        twin.reset()
        assert twin.num_queries == 0


#: What can stand in the place of a vector of sums, and of a list of values.
WRONG_SUMS = {
    "float32": lambda x: x.float(),
    "complex": lambda x: x.to(torch.complex128),
    "short": lambda x: x[:3],
    "a matrix": lambda x: torch.stack([x, x]),
    "sparse": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "a list": lambda x: x.tolist(),
    "None": lambda x: None,
    "counts below 0": lambda x: -x,
    "NaN counts": lambda x: x * NAN,
}


WRONG_ROWS = {
    "numbers": lambda rows: [row.tolist() for row in rows],
    "None": lambda rows: None,
    "None in it": lambda rows: [None, *rows],
    "one column": lambda rows: [row[:, :1] for row in rows],
    "complex": lambda rows: [row.to(torch.complex64) for row in rows],
}
WRONG_STATES = [("sums", name, wrong) for name, wrong in WRONG_SUMS.items()]
WRONG_STATES += [("values", name, wrong) for name, wrong in WRONG_ROWS.items()]


@cases(("field", "wrong"), [(f, w) for f, _, w in WRONG_STATES], ids=[f"{f}: {n}" for f, n, _ in WRONG_STATES])
def test_a_wrong_state_is_refused_and_changes_nothing(field, wrong):
    for kind in [KINDS["kept, none"], *([KINDS["sums"]] if field == "sums" else [])]:
        metric, owner = filled(kind), nn.Module()
        metric.persistent(True)
        owner.inner = metric
        before, name = states(metric), f"{metric.label}:{field}"
        bad = {**states(metric), name: wrong(metric.metric_state[name])}
        with pytest.raises(ValueError, match=rf"^Expected {re.escape(name)} to .*, got .*; pass a metric"):
            metric.merge_state(bad)
        for module, prefix in ((metric, ""), (owner, "inner.")):
            for strict in (True, False):
                with pytest.raises(RuntimeError, match=rf"Expected {re.escape(name)} to .*, got .*; leave its keys"):
                    module.load_state_dict({prefix + key: x for key, x in bad.items()}, strict=strict)
        owner.load_state_dict({})  # as the error says
        same_states(states(metric), before)
        check(metric.compute(), aggregated(metric, BATCHES))


def test_a_wrong_state_of_rows_or_of_a_wrapper_is_refused_and_changes_nothing():
    values, table, slices, rows = tr.MRR(aggregation="none"), tr.PerQuery("mrr"), tr.Sliced("mrr", 2), RetrievalMRR()
    values.update(*BATCHES[0])
    table.update(*BATCHES[0], query_ids=torch.arange(5))
    slices.update(*BATCHES[0], slices=torch.arange(5) % 2)
    rows.update(torch.tensor([0.1, 0.2]), torch.tensor([1, 0]), indexes=torch.tensor([0, 0]))
    wrong = [(table, f"{table._state}:{field}", lambda x: [p[:2] for p in x]) for field in ("ids", "values", "counted")]
    wrong += [(metric, f"{metric._state}:sums", lambda x: -x - 1) for metric in (table, slices)]
    bad = None, [None], [torch.ones(3)], [torch.ones(2, 1)], torch.ones(2)
    wrong += [(rows, "rows:preds", lambda x, other=other: other) for other in bad]
    for metric, name, change in wrong:
        before = states(metric)
        for load, error in ((metric.merge_state, ValueError), (metric.load_state_dict, RuntimeError)):
            with pytest.raises(error, match=r"Expected .* got"):
                load({**before, name: change(before[name])})
        same_states(states(metric), before)
    with pytest.raises(RuntimeError, match=r":values to be a list of tensors as in metric_state, got NoneType"):
        values.load_state_dict({name: x for name, x in states(values).items() if name.endswith("sums")})


@each_state
def test_an_exception_inside_sync_context_leaves_the_state_of_this_worker(kind):
    metric = kind.make(distributed_available_fn=lambda: True)
    metric.update(*BATCHES[0])

    def work():
        with metric.sync_context(dist_sync_fn=lambda x, group=None: [x, x]):
            assert metric.num_queries == 10
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert not metric._is_synced
    metric.update(*BATCHES[1])
    assert metric.num_queries == 6


CASTS = {
    "to(bfloat16)": lambda m: m.to(torch.bfloat16),
    "half": lambda m: m.half(),
    "double": lambda m: m.double(),
    "float": lambda m: m.float(),
    "type": lambda m: m.type(torch.float16),
}


@cases("kind", [KINDS["sums"], KINDS["kept, none"]], ids=["sums", "kept"])
@cases(("cast", "inside"), [*((cast, False) for cast in (*CASTS, "set_dtype")), ("half", True), ("type", True)])
def test_casts_leave_state_and_result_alone(kind, cast, inside):
    metric = filled(kind, BATCHES[:1])
    expected = filled(kind).compute()
    metric.compute()
    if cast == "set_dtype":
        metric.set_dtype(torch.float16)
    else:
        CASTS[cast](nn.ModuleList([metric]) if inside else metric)
    is_as_it_was_made(metric)
    assert metric.compute().dtype == torch.float32
    for arguments in BATCHES[1:]:
        assert metric(*arguments).dtype == torch.float32
    is_as_it_was_made(metric)
    assert torch.equal(metric.compute().nan_to_num(9), expected.nan_to_num(9))
    metric.reset()
    is_as_it_was_made(metric)


@every_kind
def test_inference_mode(kind):
    metric = kind.make()
    with torch.inference_mode():
        metric.update(*BATCHES[0])
        check(metric.compute(), aggregated(metric, BATCHES[:1]))
    metric(*BATCHES[1])
    twin = metric.clone()
    metric.persistent(True)
    twin.load_state_dict(metric.state_dict())
    with torch.inference_mode():
        metric(*BATCHES[2])
        twin(*BATCHES[2])
    metric.update(*BATCHES[0])
    check(metric.compute(), aggregated(metric, [*BATCHES, BATCHES[0]]))
    check(twin.compute(), aggregated(metric, BATCHES))
    with torch.inference_mode():
        metric.reset()
    metric.update(*BATCHES[1])
    metric.merge_state(twin)
    check(metric.compute(), aggregated(metric, [BATCHES[1], *BATCHES]))


@each_state
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_the_default_dtype_does_not_matter(kind, dtype, request):
    request.addfinalizer(lambda: torch.set_default_dtype(torch.float32))
    torch.set_default_dtype(dtype)
    metric = kind.make()
    values = [metric(*arguments) for arguments in BATCHES]
    result, error = metric.compute(), metric.standard_error
    is_as_it_was_made(metric)
    nothing = kind.make().compute()
    torch.set_default_dtype(torch.float32)
    for value, arguments in zip(values, BATCHES):
        check(value, aggregated(metric, [arguments]))
    check(result, aggregated(metric, BATCHES))
    assert error.dtype == nothing.dtype == torch.float32
    assert torch.equal(error, filled(kind).standard_error)


@every_kind
def test_the_state_is_small_and_named_by_the_label(kind):
    metric = filled(kind, empty_target_action="error")
    names = list(metric.metric_state)
    assert all(metric.label in name and name not in dir(kind.cls) for name in names)
    assert "empty_target_action=error" in metric.label
    vectors = [value for value in metric.metric_state.values() if isinstance(value, Tensor)]
    assert [vector.dim() for vector in vectors] == [1]
    assert vectors[0].numel() <= 26
    assert vectors[0].dtype == torch.float64
    assert metric._reductions[names[0]] is torchmetrics.utilities.data.dim_zero_sum
    assert len(names) == (2 if "aggregation" in kind.parameters else 1)


@every_class
def test_labels_parse_back_into_the_metric(cls):
    seen = {}
    for kwargs, metric in variants(cls):
        label = metric.label
        assert seen.setdefault(label, kwargs) is kwargs, "two metrics with one label"
        functions = {name: value for name, value in kwargs.items() if callable(value)}
        twin = tr.parse(label, **functions)
        assert type(twin) is cls
        assert twin.label == label
        assert twin.metric_state.keys() == metric.metric_state.keys()
        for name, value in kwargs.items():
            assert getattr(twin, name) == value
        if "(" not in label:
            assert tr.parse(label.upper()).label == label
    assert len(seen) > 3


@every_class
def test_parameters_of_the_label_are_fixed(cls):
    metric = with_cutoff(cls)
    for name in ["top_k", *cls.definition()]:
        with pytest.raises(AttributeError, match=name):
            setattr(metric, name, getattr(metric, name))
    metric.validate_args = False


def test_tracker_of_a_collection():
    names = ["ndcg@3", "mr", "fallout@2", "map(relevance_level=1.5)"]
    tracker = torchmetrics.MetricTracker(tr.RankingCollection(names, prefix="val/"))
    for arguments in (BATCHES[0], BATCHES[2]):
        tracker.increment()
        tracker.update(*arguments)
    best, step = tracker.best_metric(return_step=True)
    assert list(best) == ["val/" + name for name in names]
    for name in names:
        values = [aggregated(tr.parse(name), [arguments]) for arguments in (BATCHES[0], BATCHES[2])]
        expected = (max if tr.parse(name).higher_is_better else min)(values)
        assert best["val/" + name] == pytest.approx(expected)
        assert values[step["val/" + name]] == pytest.approx(expected)


def test_arithmetic():
    ndcg, mrr, map_ = tr.NDCG(top_k=3), tr.MRR(), tr.MAP()
    parts = [aggregated(metric, BATCHES) for metric in (ndcg, mrr, map_)]
    combined = (ndcg + mrr) / 2 - map_ * 0.5
    for preds, target in BATCHES:
        combined.update(preds, target, weights=torch.ones(len(preds)))
    check(combined.compute(), (parts[0] + parts[1]) / 2 - parts[2] * 0.5)
    again = pickle.loads(pickle.dumps(1 - ndcg))
    check(again.compute(), 1 - parts[0])
    combined.reset()
    first = [aggregated(metric, BATCHES[:1]) for metric in (ndcg, mrr, map_)]
    check(combined(*BATCHES[0]), (first[0] + first[1]) / 2 - first[2] * 0.5)
    check((ndcg > mrr).compute().float(), float(first[0] > first[1]))
    assert len({ndcg, mrr, map_}) == 3


@every_class
def test_values_and_plots_stay_in_the_range_of_the_measure(cls):
    metric = with_cutoff(cls)
    assert metric.is_differentiable is False
    assert isinstance(metric.higher_is_better, bool)
    assert metric.full_state_update is False
    low, high = cls.value_range
    assert metric.plot_lower_bound == (low if math.isfinite(low) else None)
    assert metric.plot_upper_bound == (high if math.isfinite(high) else None)
    values = metric.score(*ALL)
    inside = (values >= low) & (values <= high) | values.isnan() | (metric.empty(tr.Ranking.from_scores(*ALL)))
    assert inside.all()
    assert type(metric).__name__ in repr(metric)


def test_a_metric_made_where_tensors_have_no_values_has_its_state_on_the_cpu():
    with torch.device("meta"):
        metrics = [tr.MRR(), tr.MRR(aggregation="median"), RetrievalMRR()]
    for metric in metrics:
        metric.update(torch.tensor([0.1, 0.9]), torch.tensor([1, 0]), indexes=torch.tensor([0, 0]))
        assert (metric.device.type, metric.compute().item()) == ("cpu", 0.5)


def test_batches_of_one_flat_row_are_whole_queries():
    metric = tr.MRR()
    for number in range(3):
        metric.update(torch.rand(1), torch.tensor([1]), indexes=torch.tensor([number]))
    assert metric.num_queries == 3


TWO_BATCHES = [drawn(seed) for seed in range(7)]


def test_a_value_beyond_float32_is_float64_and_any_other_float32():
    metric = tr.DCG(gain="exponential")
    large, small = ((torch.tensor([[0.9]]), torch.tensor([[grade]])) for grade in (140, 3))
    assert metric(*large).item() == 2.0**140 - 1
    assert metric.compute().item() == metric.score(*large).item() == 2.0**140 - 1
    metric.update(*small)
    assert metric.compute().item() == pytest.approx(2.0**139)
    assert metric.standard_error.item() == pytest.approx(2.0**139)
    metric.reset()
    metric.update(*small)
    assert metric.compute().dtype == torch.float32
    values = tr.CG(gain="exponential", aggregation="none")
    values.update(torch.tensor([[0.9], [0.9]]), torch.tensor([[140], [3]]))
    assert values.compute().tolist() == [2.0**140 - 1, 7.0]


@pytest.mark.parametrize("method", ["update", "forward"])
def test_kept_values_lie_in_few_parts_in_the_order_of_their_queries(method):
    metric = tr.MRR(aggregation="none")
    sizes = [*(1 for _ in range(90)), *range(30, 0, -1), 0, 0, 5, 0, 0]
    expected = []
    for number, size in enumerate(sizes):
        ranks = torch.arange(1, size + 1) + number
        getattr(metric, method)(tr.Ranking.from_ranks(ranks.unsqueeze(-1)))
        expected += (1 / ranks).tolist()
        assert len(metric.rows) <= 9
    torch.testing.assert_close(metric.compute(), torch.tensor(expected))


def test_forward_copies_no_kept_values():
    metric = fill(tr.MRR(aggregation="median"), [drawn(1, 64), drawn(2, 8)])
    first = metric.rows[0].data_ptr()
    metric(*drawn(3, 1))
    assert metric.rows[0].data_ptr() == first


@pytest.mark.parametrize("method", ["update", "forward"])
@pytest.mark.parametrize("name", ["mrr", "ndcg(aggregation=median)@3", "mrr(aggregation=none)"])
def test_running_is_the_metric_of_the_last_batches(name, method):
    metric, rows = Running(tr.parse(name), window=3), Running(RetrievalMRR(), window=3)
    for number, (preds, target) in enumerate(TWO_BATCHES[:5]):
        getattr(metric, method)(preds, target)
        indexes = torch.arange(len(preds)).repeat_interleave(9) + 100 * number
        getattr(rows, method)(preds.flatten(), target.flatten() > 0, indexes=indexes)
        expected = fill(tr.parse(name), TWO_BATCHES[max(0, number - 2) : number + 1]).compute()
        for _ in range(2):
            torch.testing.assert_close(metric.compute().sort().values, expected.sort().values, rtol=0, atol=0)
            assert name != "mrr" or rows.compute() == expected


@pytest.mark.parametrize("name", ["mrr", "mrr(aggregation=median)"])
def test_threads_that_update_one_metric_lose_nothing(name):
    metric, start = tr.parse(name), threading.Barrier(4)
    ranking = tr.Ranking.from_ranks(torch.tensor([[1], [2]]))

    def work():
        torch.set_num_threads(1)
        start.wait()
        for _ in range(80):
            metric.update(ranking)

    threads, interval = [threading.Thread(target=work) for _ in range(4)], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert metric.num_queries == 4 * 80 * 2
    if metric.rows is not None:
        assert sum(map(len, metric.rows)) == 4 * 80 * 2


class Model(nn.Module):
    """A module that holds a metric."""

    def __init__(self, metric):
        super().__init__()
        self.layer, self.metric = nn.Linear(9, 9), metric

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


#: A metric of each kind, and one whose class has annotations and properties of its own.
HELD = [
    lambda: tr.MR(adjusted="z"),
    tr.FBeta,
    lambda: tr.PRCurve(3),
    lambda: tr.Coverage(num_items=3),
    lambda: tr.Popularity(3, interactions=torch.arange(4)),
    lambda: tr.MRR() / 2,
    lambda: tr.RankingCollection(["ndcg@5", "recall(aggregation=none)@3"]),
    RetrievalMRR,
]


def test_a_module_that_holds_a_metric_can_be_scripted():
    for make in HELD:
        model = Model(make())
        x = torch.rand(2, 9)
        assert torch.equal(torch.jit.script(model)(x), model(x))


SUITE, LISTED, ONES = tr.RankingCollection(["ndcg@5", "mrr"]), tr.Unrepeated(top_k=3), torch.ones(3)


SLICED, DROP_IN = tr.Sliced("mrr", 2), RetrievalMRR()


#: Calls with scores [query, candidate], grades like them, and one label for each query.
CALLS = {
    "update": lambda x, grades, label: (SUITE["mrr"].update(x, grades), SUITE.update(x, grades)),
    "forward": lambda x, grades, label: (SUITE["mrr"](x, grades), SUITE(x, grades)),
    "score": lambda x, grades, label: SUITE["mrr"].score(x, grades),
    "score of a collection": lambda x, grades, label: SUITE.score(x, grades),
    "score of lists": lambda x, grades, label: LISTED.score(grades),
    "compute": lambda x, grades, label: SUITE["mrr"].compute(),
    "interval": lambda x, grades, label: SUITE["mrr"].interval(),
    "standard_error": lambda x, grades, label: SUITE["mrr"].standard_error,
    "counts": lambda x, grades, label: (SUITE["mrr"].num_queries, SUITE["mrr"].num_empty),
    "merge_state": lambda x, grades, label: SUITE["mrr"].merge_state(SUITE["mrr"]),
    "reset": lambda x, grades, label: (SUITE["mrr"].reset(), LISTED.reset(), DROP_IN.reset()),
    "of a collection": lambda x, grades, label: (SUITE.intervals(), SUITE.summary(), SUITE.reset()),
    "of a wrapper": lambda x, grades, label: (SLICED.summary(), SLICED.estimates(), SLICED.num_queries, SLICED.reset()),
    "a metric": lambda x, grades, label: tr.FBeta(3, beta=2.0).score(x, grades),
    "a metric with data": lambda x, grades, label: tr.Popularity(3, interactions=label),
    "a collection": lambda x, grades, label: tr.RankingCollection("ndcg@5, mrr"),
    "a wrapper": lambda x, grades, label: tr.Sliced("mrr", 2),
    "of torchrank.retrieval": lambda x, grades, label: RetrievalMRR(),
    "from_scores": lambda x, grades, label: tr.Ranking.from_scores(x, grades),
    "from_label": lambda x, grades, label: tr.Ranking.from_label(x, label),
    "from_flat": lambda x, grades, label: tr.Ranking.from_flat(ONES, label, label),
    "from_ids": lambda x, grades, label: tr.Ranking.from_ids(grades, label),
    "from_rankings": lambda x, grades, label: tr.Ranking.from_rankings(grades, grades),
    "from_ranks": lambda x, grades, label: tr.Ranking.from_ranks(label),
    "from_negatives": lambda x, grades, label: tr.Ranking.from_negatives(x, x),
    "from_embeddings": lambda x, grades, label: tr.Ranking.from_embeddings(x, x, label),
    "from_score_blocks": lambda x, grades, label: tr.Ranking.from_score_blocks([x, x], label),
}


@pytest.mark.xdist_group("gpu")  # whose process has what the compiler imports
def test_torch_compile_leaves_calls_and_constructors_out_of_its_graphs():
    from torch._dynamo.testing import CompileCounter  # here, because workers import this module without the compiler

    torch._dynamo.reset()
    arguments = torch.rand(3, 9), torch.stack([torch.arange(9)] * 3), torch.arange(1, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call in CALLS.items():
            counter = CompileCounter()
            torch.compile(call, backend=counter)(*arguments)
            assert (name, counter.op_count) == (name, 0)
    torch._dynamo.reset()


@pytest.mark.xdist_group("processes")
def test_the_compiler_is_imported_by_nothing_here():
    process = workers.CONTEXT.Process(target=workers.call, args=(__name__, "use_without_the_compiler"))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_attributes_are_kept_as_torch_and_torchmetrics_keep_them():
    class Holding(tr.MRR):
        name = "holding"

        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.register_buffer("table", torch.zeros(2))

    metric = Holding()
    assert [name for name, _ in metric.named_children()] == ["layer"]
    metric.layer = metric.table = None
    assert metric.layer is metric.table is None
    assert not [*metric.children(), *metric.buffers(), *metric.parameters()]
    with pytest.raises(RuntimeError, match="Can't change const"):
        metric.higher_is_better = False
    with pytest.raises(AttributeError):
        metric.label = "mrr"
    metric.note = "mine"
    assert metric.clone().note == "mine"


def test_a_count_that_float32_would_round_is_exact():
    metric = tr.NumQ()
    metric.update(torch.tensor([[0.5, 0.1]]), torch.tensor([[1, 0]]))
    one = metric.clone()
    for _ in range(25):
        metric.merge_state(metric.clone())
    assert metric.compute().dtype == torch.float32  # 2 ** 25, without rounding
    metric.merge_state(one)
    assert (metric.compute().dtype, metric.compute().item()) == (torch.float64, 2**25 + 1)


def use_without_the_compiler():
    suite = tr.RankingCollection(["ndcg@5", "mrr(aggregation=median)"])
    suite.update(torch.rand(3, 9), torch.ones(3, 9))
    suite(torch.rand(3, 9), torch.ones(3, 9))
    suite.compute()
    assert "torch._dynamo" not in sys.modules


@pytest.mark.parametrize("name", ["Upper", "with_line", "1st", "two words"])
def test_the_name_of_a_measure_is_lower_case_letters_and_digits(name):
    with pytest.raises(TypeError, match=f"Expected Own.name to be lower-case letters and digits, got '{name}'"):
        type("Own", (tr.extend.BinaryMetric,), {"name": name})


def test_a_measure_has_a_name_of_its_own_and_no_parameter_like_a_method():
    with pytest.raises(TypeError, match="Expected Other to have a name of its own, got 'mrr'; choose another name"):
        type("Other", (tr.extend.BinaryMetric,), {"name": "mrr"})

    class Heir(tr.MRR):
        pass

    with pytest.raises(TypeError, match="Expected Heir to have a name of its own, got 'mrr'; set the attribute name"):
        Heir()

    class Twice(tr.extend.BinaryMetric):
        name = "twicedefined"
        measured: float = tr.extend.number(default=1)

    assert type("Twice", (tr.extend.BinaryMetric,), {"name": "again1", "__module__": "a"}).name == "again1"
    assert Twice(measured=2).label == "twicedefined(measured=2)"
    for method in ("half", "weight", "standard_error"):
        body = {"name": "shadowing", "__annotations__": {method: float}, method: tr.extend.number(default=1)}
        with pytest.raises(TypeError, match=f"Expected Shadow to name no parameter like a method, got '{method}'; re"):
            type("Shadow", (tr.extend.BinaryMetric,), body)


def test_a_metric_with_a_state_of_another_is_not_warned_of():
    full, merged, loaded = (tr.MRR() for _ in range(3))
    full.update(torch.tensor([[0.1, 0.9]]), torch.tensor([0]))
    full.persistent(True)
    merged.merge_state(full.metric_state)
    loaded.load_state_dict(full.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [(one.compute(), one.update_called) for one in (merged, loaded)] == [(0.5, True)] * 2


def test_sums_of_negative_values_can_be_loaded():
    report, other = tr.TieReport("utility(false_alarm=-3)@2"), tr.TieReport("utility(false_alarm=-3)@2")
    report.update(torch.rand(3, 4), torch.zeros(3, 4))
    assert (report.sums < 0).any()
    report.persistent(True)
    other.load_state_dict(report.state_dict())
    assert torch.equal(other.sums, report.sums)


def test_a_metric_with_the_state_of_all_workers_has_their_interval_and_refuses_a_batch():
    metric, of_both = tr.MRR(), tr.MRR()
    scores = torch.tensor([[0.3, 0.2, 0.1]] * 2)
    metric.update(scores, torch.tensor([0, 1]))
    of_both.update(scores.repeat(2, 1), torch.tensor([0, 1, 0, 1]))
    metric.sync(dist_sync_fn=lambda x, group: [x, x], distributed_available=lambda: True)
    torch.testing.assert_close(metric.interval(), of_both.interval())
    with pytest.raises(TorchMetricsUserError):
        metric(torch.rand(2, 3), torch.tensor([0, 1]))
    metric.unsync()
    metric(torch.rand(2, 3), torch.tensor([0, 1]))
    assert metric.num_queries == 4
