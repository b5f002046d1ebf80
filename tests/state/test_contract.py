"""torchmetrics' contract. State is the same code for all measures, so metrics of each kind of state keep it for all."""

import copy
import io
import itertools
import math
import pickle
import re
import statistics
from collections import Counter
from typing import Any, NamedTuple

import pytest
import torch
import torchmetrics
from torch import Tensor, nn

import torchrank as tr
from tests.support import layout_cases
from tests.support.cases import cases
from tests.support.optional import pyplot
from tests.support.oracle_comparison import IN_TURN, MEASURES, REPRESENTATIVES
from tests.support.unread import leave_values_unread
from torchrank.layouts.checks import Problem
from torchrank.retrieval import RetrievalMRR

CLASSES = list(tr.RankingMetric.registry.values())
NAN = float("nan")


def spread(values: Tensor) -> Tensor:
    return values.max() - values.min()


class Kind(NamedTuple):
    """A metric with one kind of state."""

    cls: type[tr.RankingMetric]
    parameters: dict[str, Any] = {}

    def make(self, **kwargs: Any) -> tr.RankingMetric:
        return self.cls(**self.parameters, **kwargs)


# All candidates of a query are listed in these tests, so that the mean of the adjusted ranks is that of its queries.
KINDS = {
    "sums": Kind(tr.NDCG, {"top_k": 3}),
    "sums, empty skipped": Kind(tr.MR),
    "sums, mean adjusted": Kind(tr.MR, {"adjusted": "index"}),
    "kept, none": Kind(tr.MRR, {"aggregation": "none"}),
    "kept, median": Kind(tr.NDCG, {"aggregation": "median"}),
    "kept, function": Kind(tr.KendallTau, {"aggregation": spread}),
}
every_class = cases("cls", CLASSES, ids=lambda cls: cls.name)
every_kind = cases("kind", KINDS.values(), ids=list(KINDS))
each_state = cases(
    "kind", [KINDS[name] for name in ("sums", "sums, mean adjusted", "kept, none")], ids=["sums", "adjusted", "kept"]
)


def make(cls, **kwargs):
    return cls(**({"top_k": 3} if cls.takes_top_k else {}), **kwargs)


def batch(seed: int, queries: int = 5) -> tuple[Tensor, Tensor]:
    """Scores with ties and graded targets; the second query has nothing relevant."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 12, (queries, 7), generator=generator) / 2
    target = torch.randint(0, 4, (queries, 7), generator=generator) * (torch.rand(7, generator=generator) < 0.6)
    target[1:2] = 0
    return scores, target


BATCHES = [batch(seed, queries) for seed, queries in ((1, 5), (2, 1), (3, 6))]
ALL = tuple(torch.cat(parts) for parts in zip(*BATCHES))
BAD = (torch.tensor([[0.1, NAN, 0.3]]), torch.tensor([[1, 0, 0]]))


SCORED: dict[Any, Any] = {}


def values_of(metric, scores, target):
    """The values of the queries of a batch, each scored by itself, and once for all tests."""
    key = metric.label, id(scores), id(target)
    if key not in SCORED:  # with the batch, so that no other gets its id
        SCORED[key] = scores, target, [metric.score(s[None], t[None]).item() for s, t in zip(scores, target)]
    return SCORED[key][2]


def aggregated(metric, batches):
    """The expected value of batches: plain Python on its values for one query at a time."""
    rows = [row for batch in batches for row in values_of(metric, *batch)]
    if metric.aggregation == "none":
        return rows
    rows = [row for row in rows if not math.isnan(row)]
    if not rows:
        return NAN
    if callable(metric.aggregation):
        return max(rows) - min(rows)
    how = {"mean": statistics.fmean, "sum": math.fsum, "median": statistics.median_low, "min": min, "max": max}
    return how[metric.aggregation](rows)


def check(value, expected):
    expected = torch.tensor(expected, dtype=torch.float32)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected, equal_nan=True, rtol=1e-6, atol=1e-7)


def filled(kind, batches=BATCHES, **kwargs):
    metric = kind.make(**kwargs)
    for preds, target in batches:
        metric.update(preds, target)
    return metric


def states(metric):
    return copy.deepcopy(metric.metric_state)


def same_states(one, other):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0, equal_nan=True)


def is_as_it_was_made(metric):
    """The state and its defaults are float64, also after casts."""
    for values in (metric.metric_state, metric._defaults):
        for value in values.values():
            assert all(part.dtype == torch.float64 for part in ([value] if isinstance(value, Tensor) else value))


# ---- update, compute, forward, reset ---------------------------------------------------------------------------------


@every_kind
def test_update_and_compute(kind):
    metric = kind.make()
    for number in range(len(BATCHES)):
        metric.update(*BATCHES[number])
        check(metric.compute(), aggregated(metric, BATCHES[: number + 1]))
    assert metric.update_count == len(BATCHES)
    metric.reset()
    metric.update(*BATCHES[1])
    check(metric.compute(), aggregated(metric, BATCHES[1:2]))


@every_kind
def test_values_that_are_not_read_give_the_same_result(kind, monkeypatch):
    leave_values_unread(monkeypatch)
    metric = filled(kind)
    check(metric.compute(), aggregated(metric, BATCHES))
    assert (metric.num_queries, metric.num_empty) == (filled(kind).num_queries, filled(kind).num_empty)
    metric.update(*BAD)
    with pytest.raises(ValueError, match="1 query with NaN"):
        metric.compute()


def test_a_collection_of_which_no_value_is_read_has_the_results_intervals_and_counts_of_one_that_is_read(monkeypatch):
    names = ["ndcg@3", "mrr", "mr", "map", "recall@1,2", "mr(adjusted=index)", "mrr(aggregation=median)", "auroc"]
    labels = [(scores, target.argmax(-1).where(torch.arange(len(target)) % 4 < 3, -100)) for scores, target in BATCHES]

    def results(batches, **kwargs):
        suite = tr.RankingCollection(names)
        steps = [suite(*batch, **kwargs) for batch in batches]
        return [*steps, suite.compute(), suite.summary().rows, {key: m.num_queries for key, m in suite.items()}]

    want = [results(BATCHES), results(labels)]
    leave_values_unread(monkeypatch)
    for found, values in zip((results(BATCHES), results(labels)), want):
        torch.testing.assert_close(found[:-2], values[:-2], equal_nan=True, rtol=1e-6, atol=1e-7)
        assert repr(found[-1]) == repr(values[-1])
        for row, wanted in zip(found[-2], values[-2]):
            assert row == pytest.approx(wanted, nan_ok=True, rel=1e-9)


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


WRONG = {
    "shape": (ValueError, (torch.zeros(2, 3), torch.zeros(2, 4)), {}),
    "type": (TypeError, ({}, torch.zeros(1, 1)), {}),
    "weights": (ValueError, BATCHES[0], {"weights": torch.ones(9)}),
}


@each_state
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("on_step", [False, True])
def test_a_call_that_raises_leaves_no_trace(kind, wrong, on_step):
    metric = filled(kind, dist_sync_on_step=on_step)
    metric.compute()
    error, arguments, keywords = WRONG[wrong]
    before = states(metric)
    kept = ("update_count", "_to_sync", "_should_unsync", "_is_synced", "_enable_grad")
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


def test_a_call_that_raises_keeps_computing_on_the_cpu():
    metric = tr.MRR(aggregation="none", compute_on_cpu=True)
    with pytest.raises(ValueError, match="shape"):
        metric(torch.zeros(2, 3), torch.zeros(2, 4))
    assert metric.compute_on_cpu


def test_a_failing_aggregation_leaves_no_trace():
    def fails(values):
        raise RuntimeError("no")

    metric = tr.MRR(aggregation=fails)
    metric.update(*BATCHES[0])
    before = states(metric)
    with pytest.raises(RuntimeError, match="no"):
        metric(*BATCHES[1])
    same_states(metric.metric_state, before)


@every_kind
def test_reset_forgets_everything(kind):
    metric = filled(kind)
    metric.update(*BAD)
    metric.reset()
    same_states(metric.metric_state, states(kind.make()))
    assert (metric.num_queries, metric.num_empty, metric.update_count) == (0, 0, 0)
    is_as_it_was_made(metric)
    assert metric.compute().isnan().all()


@every_kind
def test_nothing_seen_is_nan(kind):
    metric = kind.make()
    value = metric.compute()
    assert value.dtype == torch.float32
    assert value.shape == ((0,) if metric.aggregation == "none" else ())
    assert value.isnan().all()
    assert kind.make().standard_error.isnan()


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


def test_none_is_a_value_per_query():
    metric = tr.MRR(aggregation="none", empty_target_action="skip")
    metric.update(torch.tensor([[0.1, 0.9]]), torch.tensor([[1, 0]]))
    check(metric.compute(), [0.5])
    check(metric(torch.tensor([[0.1, 0.9]]), torch.tensor([0])), [0.5])
    metric.update(torch.tensor([[0.1, 0.9], [0.9, 0.1]]), torch.tensor([[0, 0], [1, 0]]))
    check(metric.compute(), [0.5, 0.5, NAN, 1.0])
    assert metric.clone().compute().shape == (4,)


def test_an_aggregation_without_a_name_is_refused():
    with pytest.raises(ValueError, match="name"):
        tr.NDCG(aggregation=lambda values: values.mean())


@each_state
@pytest.mark.parametrize(
    "kwargs", [{"compute_with_cache": False}, {"compute_on_cpu": True}, {"sync_on_compute": False}]
)
def test_torchmetrics_arguments(kind, kwargs):
    metric = filled(kind, **kwargs)
    for _ in range(2):
        check(metric.compute(), aggregated(metric, BATCHES))
    with pytest.raises(TypeError, match="nonsense"):
        kind.make(nonsense=1)


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


# ---- copies, checkpoints, merging ------------------------------------------------------------------------------------

COPIES = {
    "clone": lambda metric: metric.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda metric: pickle.loads(pickle.dumps(metric)),
    "torch.save": lambda metric: through_a_file(metric, weights_only=False),
}


def through_a_file(saved, weights_only=True):
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


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
    for other in (
        kind.make(empty_target_action="error"),
        tr.NDCG(top_k=3, aggregation="max"),
        torchmetrics.MeanMetric(),
        {},
        3,
    ):
        with pytest.raises(ValueError, match="Expected"):
            metric.merge_state(other)
    check(metric.compute(), aggregated(metric, BATCHES))


@each_state
@pytest.mark.parametrize("parent", [None, nn.Module, tr.RankingCollection, torchmetrics.MetricCollection])
def test_resume_from_a_checkpoint_in_mid_epoch(kind, parent):
    def build():
        metric = kind.make()
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

    resumed, twin = build()
    twin.update(*BATCHES[0])
    twin.compute()
    resumed.load_state_dict(saved)
    third, thrice = build()
    third.load_state_dict(saved)
    is_as_it_was_made(twin)
    check(twin.compute(), aggregated(metric, BATCHES[:2]))
    assert twin.update_called
    twin.update(*BATCHES[2])
    check(twin.compute(), aggregated(metric, BATCHES))
    check(thrice.compute(), aggregated(metric, BATCHES[:2]))
    check(metric.compute(), aggregated(metric, BATCHES[:2]))
    twin.reset()
    assert twin.num_queries == 0
    fourth, again = build()
    fourth.load_state_dict(saved)
    check(again.compute(), aggregated(metric, BATCHES[:2]))


@each_state
def test_checkpoints_hold_no_state_unless_asked(kind):
    metric = filled(kind)
    assert not metric.state_dict()
    metric.persistent(True)
    other = kind.make(empty_target_action="error")
    other.persistent(True)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        other.load_state_dict(metric.state_dict())


#: What can stand in the place of a vector of sums, and of a list of values.
WRONG_SUMS = {
    "integers": lambda x: x.long(),
    "float32": lambda x: x.float(),
    "float16": lambda x: x.half(),
    "complex": lambda x: x.to(torch.complex128),
    "bool": lambda x: x > 0,
    "short": lambda x: x[:3],
    "long": lambda x: torch.cat([x, x]),
    "a matrix": lambda x: torch.stack([x, x]),
    "a number": lambda x: x.sum(),
    "sparse": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "a list": lambda x: x.tolist(),
    "None": lambda x: None,
    "counts below 0": lambda x: -x,
    "NaN counts": lambda x: x * NAN,
}
WRONG_ROWS = {
    "one tensor": lambda rows: torch.cat(rows),
    "numbers": lambda rows: [row.tolist() for row in rows],
    "None": lambda rows: None,
    "None in it": lambda rows: [None, *rows],
    "one column": lambda rows: [row[:, :1] for row in rows],
    "flat": lambda rows: [row.flatten() for row in rows],
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
                with pytest.raises(
                    RuntimeError, match=rf"Expected {re.escape(name)} to .*, got .*; leave its keys out"
                ):
                    module.load_state_dict({prefix + key: x for key, x in bad.items()}, strict=strict)
        owner.load_state_dict({})  # as the error says
        same_states(states(metric), before)
        check(metric.compute(), aggregated(metric, BATCHES))


def test_a_state_without_one_of_its_parts_is_refused():
    metric = filled(KINDS["kept, none"])
    state = {name: x for name, x in states(metric).items() if name.endswith("sums")}
    with pytest.raises(RuntimeError, match=r":values to be a list of tensors as in metric_state, got NoneType"):
        metric.load_state_dict(state)


@pytest.mark.parametrize("field", ["ids", "values", "counted", "sums"])
def test_a_wrong_state_of_a_wrapper_is_refused_and_changes_nothing(field):
    kept, suite = tr.PerQuery("mrr"), tr.Sliced("mrr", 2)
    kept.update(*BATCHES[0], query_ids=torch.arange(5))
    suite.update(*BATCHES[0], slices=torch.arange(5) % 2)
    for metric in (kept, suite) if field == "sums" else (kept,):
        before, name = states(metric), f"{metric._state}:{field}"
        bad = {**before, name: -before[name] - 1 if field == "sums" else [x[:2] for x in before[name]]}
        for change, error in ((metric.merge_state, ValueError), (metric.load_state_dict, RuntimeError)):
            with pytest.raises(error, match=r"Expected .* got"):
                change(dict(bad))
        same_states(states(metric), before)


def test_a_wrong_state_of_rows_is_refused_and_changes_nothing():
    metric = RetrievalMRR()
    metric.update(torch.tensor([0.1, 0.2]), torch.tensor([1, 0]), indexes=torch.tensor([0, 0]))
    before = states(metric)
    for wrong in (None, [None], [torch.ones(3)], [torch.ones(2, 1)], torch.ones(2)):
        for change, error in ((metric.merge_state, ValueError), (metric.load_state_dict, RuntimeError)):
            with pytest.raises(error, match=r"Expected .* got"):
                change({**before, "rows:preds": wrong})
        same_states(states(metric), before)


# ---- inside sync_context ---------------------------------------------------------------------------------------------


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


# ---- precision -------------------------------------------------------------------------------------------------------

CASTS = {
    "to(bfloat16)": lambda m: m.to(torch.bfloat16),
    "to(cpu, half)": lambda m: m.to("cpu", torch.half),
    "half": lambda m: m.half(),
    "bfloat16": lambda m: m.bfloat16(),
    "double": lambda m: m.double(),
    "float": lambda m: m.float(),
    "type": lambda m: m.type(torch.float16),
}


@cases("kind", [KINDS["sums"], KINDS["kept, none"]], ids=["sums", "kept"])
@cases(
    ("cast", "inside"),
    [*((cast, False) for cast in (*CASTS, "set_dtype")), *((cast, True) for cast in ("half", "type"))],
)
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


@pytest.fixture(params=[torch.bfloat16, torch.float16, torch.float64], ids=str)
def default_dtype(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@each_state
def test_the_default_dtype_does_not_matter(kind, default_dtype):
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


# ---- labels ----------------------------------------------------------------------------------------------------------

OTHERS = layout_cases.OTHERS | {
    "aggregation": ["geometric", "harmonic", "median", "min", "max", "none", spread],
    "relevance_level": [2, 0.5, 1e-07, 1.5],
    "beta": [0.75, 0.5, 1e-3],
    "log_base": [10, 2.5, math.e],
    "top_k": [1, 10, 1000],
}


#: Parameters of more than half of the measures.
SHARED = {
    name
    for name, number in Counter(n for cls in CLASSES for n in cls.definition()).items()
    if number > len(CLASSES) / 2
}


def variants(cls):
    """Metrics of a class that differ from the default in one parameter, and some in two."""
    names = [*cls.definition(), *(["top_k"] if cls.takes_top_k else [])]
    assert set(names) <= OTHERS.keys(), f"{cls.__name__} has parameters for which there are no values to try"
    known = {"ties": (*cls.policies, "realistic"), "unjudged": cls.takes_unjudged_for}
    tried = [(name, value) for name in names for value in OTHERS.get(f"{cls.name}.{name}", OTHERS[name])]
    options = [(n, v) for n, v in tried if v != cls.definition().get(n) and v in known.get(n, [v])]
    if cls not in (tr.NDCG, tr.MAP):  # parameters that most measures have are the same code: two values of each
        options = [option for n in names for option in [o for o in options if o[0] == n][: 2 if n in SHARED else None]]
    for chosen in [(), *((o,) for o in options), *list(itertools.combinations(options, 2))[::17]]:
        kwargs = dict(chosen)
        if len(kwargs) == len(chosen):
            try:
                yield kwargs, cls(**kwargs)
            except ValueError:  # some do not go together
                needs_more = kwargs.keys() & {"average", "bounded"}
                if len(kwargs) == 1 and not needs_more and kwargs not in ({"ties": "realistic"}, {"normalize": "k"}):
                    raise


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
    assert len(seen) > 5


@every_class
def test_parameters_of_the_label_are_fixed(cls):
    metric = make(cls)
    for name in ["top_k", *cls.definition()]:
        with pytest.raises(AttributeError, match=name):
            setattr(metric, name, getattr(metric, name))
    metric.validate_args = False


# ---- bad values ------------------------------------------------------------------------------------------------------

I = torch.tensor
GOOD = (I([[0.1, 0.9, 0.5], [0.7, 0.2, 0.3]]), I([[0, 0, 1], [1, 0, 1]]))
BAD_VALUES = {
    Problem.NAN_SCORES: ((I([[NAN, NAN, 1], [1, NAN, 2], [1, 2, 3]]), I([[1, 0, 1]] * 3)), {}, 2),
    Problem.BAD_GRADES: ((I([[0.1, 0.9, 0.5]]), I([[NAN, math.inf, -math.inf]])), {}, 3),
    Problem.OUT_OF_RANGE: ((I([[0.1, 0.9, 0.5]] * 3), I([3, 2, 700])), {}, 2),
    Problem.DUPLICATE_TARGETS: ((I([[0.1, 0.9, 0.5]] * 2), [I([1, 1, 0]), I([2, 2, 2])]), {}, 3),
    Problem.DUPLICATE_IDS: ((I([[5, 5, 7], [7, 7, 7], [1, 2, 3]]), I([5, 7, 3])), {}, 3),
    Problem.BAD_WEIGHTS: (GOOD, {"weights": I([-1.0, NAN])}, 2),
    Problem.EMPTY_QUERIES: ((I([[0.1, 0.9]] * 3), I([[0, 0]] * 2 + [[1, 1]])), {}, 2),
}
# Bad ranks come with a Ranking, which raises at once; scores that differ from themselves need a kernel of Triton.
COUNTED = list(BAD_VALUES)


@each_state
@pytest.mark.parametrize("problem", COUNTED, ids=lambda problem: problem.name)
def test_bad_values_are_counted_and_raise_in_compute(kind, problem):
    arguments, keywords, number = BAD_VALUES[problem]
    action = {"empty_target_action": "error"} if problem is Problem.EMPTY_QUERIES else {}
    metric = kind.make(**action)
    metric.update(*GOOD)
    metric.update(*arguments, **keywords)
    with pytest.raises(ValueError, match=rf"\b{number} ") as raised:
        metric.compute()
    assert metric.label in str(raised.value)
    assert metric(*arguments, **keywords).isnan().all()
    with pytest.raises(ValueError, match=rf"\b{2 * number} "):
        metric.compute()
    with pytest.raises(ValueError, match=rf"\b{number} "):
        metric.score(*arguments, **keywords)
    metric.reset()
    metric.update(*GOOD)
    check(metric.compute(), aggregated(metric, [GOOD]))


def test_all_kinds_are_told_at_once():
    metric = tr.MRR()
    for kind in (Problem.NAN_SCORES, Problem.BAD_WEIGHTS, Problem.OUT_OF_RANGE):
        arguments, keywords, _ = BAD_VALUES[kind]
        metric.update(*arguments, **keywords)
    with pytest.raises(ValueError, match=r"2 queries with NaN.*; 2 .*indices.*; 2 query weights"):
        metric.compute()


@pytest.mark.parametrize("kind", [k for k in COUNTED if k is not Problem.EMPTY_QUERIES], ids=lambda kind: kind.name)
def test_without_validation_only_bad_weights_are_counted(kind):
    arguments, keywords, _ = BAD_VALUES[kind]
    metric = tr.MRR(validate_args=False)
    metric.update(*arguments, **keywords)
    if kind is not Problem.BAD_WEIGHTS:
        metric.compute()
        assert metric.num_queries == len(arguments[0])


def test_ranks_that_cannot_be_raise_where_they_are_used():
    ranking = tr.Ranking.from_ranks(torch.tensor([0.5, 2, 9]), num_candidates=5)
    with pytest.raises(ValueError, match="2 ranks"):
        tr.MRR().score(ranking)
    metric = tr.MRR()
    metric.update(ranking)  # one worker never raises alone
    with pytest.raises(ValueError, match="2 ranks"):
        metric.compute()


# ---- weights, counts, standard error ---------------------------------------------------------------------------------

# reciprocal ranks 1/2, 1, nothing relevant, 1/3, 1/4
FIVE = (
    torch.tensor([[0.5, 0.9, 0.1, 0.0], [0.9, 0.5, 0.1, 0.0], [4, 3, 2, 1], [0.5, 0.9, 0.6, 0.0], [1, 4, 3, 2]]),
    torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]),
)
WEIGHTS = torch.tensor([1.0, 2.0, 3.0, 0.0, 0.5])


@cases(
    ("how", "action", "expected"),
    [
        ("mean", "neg", (0.5 + 2 + 0.125) / 6.5),
        ("mean", "pos", (0.5 + 2 + 3 + 0.125) / 6.5),
        ("mean", "skip", (0.5 + 2 + 0.125) / 3.5),
        ("median", "neg", 0.25),  # weight 3 at 0, then 0.5 at 1/4: half of 6.5 is reached
        ("median", "skip", 1.0),
        ("min", "skip", 0.25),
        ("max", "neg", 1.0),
        ("none", "neg", [0.5, 1.0, 0.0, NAN, 0.25]),
        ("none", "skip", [0.5, 1.0, NAN, NAN, 0.25]),
        (spread, "skip", 0.75),
    ],
)
@cases("dtype", [torch.float32, torch.float64, torch.float16, torch.int64], ids=str)
def test_weights_by_hand(how, action, expected, dtype):
    metric = tr.MRR(aggregation=how, empty_target_action=action)
    weights = WEIGHTS.to(dtype) if dtype.is_floating_point else (WEIGHTS * 2).to(dtype)
    metric.update(*FIVE, weights=weights)
    check(metric.compute(), expected)
    assert (metric.num_queries, metric.num_empty) == (4, 1)


@every_kind
def test_a_weight_of_zero_is_as_if_the_query_were_not_there(kind):
    metric, without = kind.make(), kind.make()
    kept = torch.tensor([True, False, True, True, False, True, True, False, True, True, True, True])
    for there, (preds, target) in zip(kept.split([5, 1, 6]), BATCHES):
        metric.update(preds, target, weights=there.double())
        without.update(preds[there], target[there])
    value = metric.compute()
    if metric.aggregation == "none":
        assert value[~kept].isnan().all()
        value = value[kept]
    assert torch.equal(value.nan_to_num(9), without.compute().nan_to_num(9))
    assert metric.num_queries == without.num_queries
    assert metric.num_empty == without.num_empty
    torch.testing.assert_close(metric.standard_error, without.standard_error, equal_nan=True)


@pytest.mark.parametrize("name", ["mrr(aggregation=none)@2", "mr(aggregation=median)", "recall@2"])
def test_a_label_of_weight_zero_is_as_if_it_were_not_there(name):
    scores, label = torch.tensor([[0.1, 0.9, 0.5]] * 4), torch.tensor([1, 0, -1, 2])
    metric, without = tr.parse(name), tr.parse(name)
    metric.update(scores, label, weights=torch.tensor([1.0, 0.0, 1.0, 1.0]))
    without.update(scores[[0, 2, 3]], label[[0, 2, 3]])
    value = metric.compute()
    if metric.aggregation == "none":
        assert value[1].isnan()
        value = value[[0, 2, 3]]
    assert torch.equal(value.nan_to_num(9), without.compute().nan_to_num(9))


@every_class
def test_an_empty_query_of_weight_zero_is_no_error(cls):
    metric = make(cls, empty_target_action="error")
    preds, target = torch.tensor([[0.1, 0.9, 0.5]] * 2), torch.tensor([[1, 0, 1], [0, 0, 0]])
    if cls is tr.FallOut:
        target[1] = 1
    metric.update(preds, target, weights=torch.tensor([1.0, 0.0]))
    check(metric.compute(), metric.score(preds[:1], target[:1]).item())


@every_kind
def test_all_weights_zero_is_nan(kind):
    metric = kind.make()
    metric.update(*FIVE, weights=torch.zeros(5))
    assert metric.compute().isnan().all()
    assert metric.num_queries == 0


@pytest.mark.parametrize("weights", [torch.ones(4), torch.ones(5, 1), [1.0] * 4, 1.0])
def test_weights_of_another_shape_raise(weights):
    with pytest.raises((ValueError, TypeError), match="weights"):
        tr.NDCG().update(*FIVE, weights=weights)


@every_class
def test_weighted_mean_and_standard_error(cls):
    metric = make(cls, empty_target_action="skip", **({"aggregation": "mean"} if cls is tr.NumQ else {}))
    weights = torch.arange(1, 13) / 4
    for part in (slice(5), slice(5, 12)):
        metric.update(*(x[part] for x in ALL), weights=weights[part])
    values = metric.score(*ALL)
    pairs = [(v, w) for v, w in zip(values.tolist(), weights.tolist()) if not math.isnan(v)]
    total = sum(w for _, w in pairs)
    mean = sum(v * w for v, w in pairs) / total
    check(metric.compute(), mean)
    variance = sum(w * w * (v - mean) ** 2 for v, w in pairs) * len(pairs) / (len(pairs) - 1)
    check(metric.standard_error, math.sqrt(variance) / total)
    assert metric.num_queries == 12
    assert metric.num_empty == 12 - len(pairs)


@every_kind
def test_unweighted_standard_error(kind):
    metric = filled(kind)
    values = [v for v in metric.score(*ALL).tolist() if not math.isnan(v)]
    check(metric.standard_error, statistics.stdev(values) / math.sqrt(len(values)))
    single = kind.make()
    single.update(ALL[0][:1], ALL[1][:1])
    assert single.standard_error.isnan()


def test_one_query_has_no_standard_error_whatever_its_weight_is_rounded_to():
    scores, grades = torch.tensor([[0.5, 0.4, 0.3]]), torch.tensor([[1, 0, 2]])
    for weight in torch.rand(40, generator=torch.Generator().manual_seed(0)):
        metric = tr.NDCG(top_k=2)
        metric.update(scores, grades, weights=weight.view(1))
        assert metric.standard_error.isnan()


def test_standard_error_of_equal_values_is_zero():
    metric = tr.NDCG()
    for _ in range(50):
        metric.update(torch.tensor([[0.1, 0.9, 0.5]] * 20), torch.tensor([[0, 0, 1]] * 20))
    assert metric.standard_error < 1e-7


def test_mean_over_positives_by_hand():
    # positives at ranks 1 and 3 of the first query and at 2 of the second
    scores = torch.tensor([[9, 8, 7.0], [9, 8, 7.0]])
    target = torch.tensor([[1, 0, 1], [0, 1, 0]])
    for kwargs, expected in (({}, 2.0), ({"filtered": True}, 1.75), ({"average": "positive"}, 2.0)):
        metric = tr.MR(**kwargs)
        metric.update(scores, target)
        check(metric.compute(), expected)
    metric = tr.MR(average="positive")
    metric.update(scores, target, weights=torch.tensor([3.0, 2.0]))
    check(metric.compute(), (3 * 1 + 3 * 3 + 2 * 2) / 8)
    assert metric.num_queries == 2


def test_a_hundred_thousand_updates_lose_nothing():
    metric = tr.MRR()
    ranking = tr.Ranking.from_ranks(torch.full((4096,), 3.0))
    for _ in range(300):
        metric.update(ranking)
    assert metric.compute().item() == torch.tensor(1 / 3).item()
    assert metric.num_queries == 300 * 4096


# ---- torchmetrics' own users -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [tr.NDCG, tr.MR, tr.FallOut], ids=lambda cls: cls.name)
def test_tracker(cls):
    tracker = torchmetrics.MetricTracker(make(cls))
    for arguments in BATCHES:
        tracker.increment()
        tracker.update(*arguments)
    values = [aggregated(make(cls), [arguments]) for arguments in BATCHES]
    best = (max if cls.higher_is_better else min)(v for v in values if not math.isnan(v))
    if not any(math.isnan(v) for v in values):
        value, step = tracker.best_metric(return_step=True)
        assert value == pytest.approx(best)
        assert values[step] == pytest.approx(best)
    check(tracker.compute_all(), values)


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


@each_state
@pytest.mark.needs("matplotlib")
def test_plot(kind):
    metric = filled(kind)
    _, axes = metric.plot()
    assert metric.label in axes.get_ylabel()
    assert metric.plot([metric(*arguments).mean() for arguments in BATCHES])[1] is not axes
    assert metric.plot(metric.compute(), ax=axes)[1] is axes
    pyplot.close("all")


@pytest.mark.needs("matplotlib")
def test_plot_of_a_collection():
    suite = tr.RankingCollection(["ndcg@3", "mr", "map(relevance_level=1.5)", "f1@1,2"], prefix="val/")
    values = [suite(*arguments) for arguments in (BATCHES[0], BATCHES[2])]
    for given in (None, values):
        plots = suite.plot(given, together=False)
        assert [axes.get_ylabel() for _, axes in plots] == [
            "ndcg@3", "mr", "map(relevance_level=1.5)", "f1@1", "f1@2"
        ]  # fmt: skip
        several = [axes for _, axes in plots]
        assert [axes for _, axes in suite.plot(given, several)] == several
    pyplot.close("all")


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


@pytest.mark.parametrize("cls", [tr.NDCG, tr.MR], ids=lambda cls: cls.name)
def test_running_minmax_and_bootstrap(cls):
    running = torchmetrics.wrappers.Running(make(cls, empty_target_action="neg"), window=2)
    best = torchmetrics.MinMaxMetric(make(cls, empty_target_action="neg"))
    seen = []
    for arguments in BATCHES:
        running(*arguments)
        best(*arguments)
        seen.append(aggregated(make(cls, empty_target_action="neg"), [arguments]))
    check(running.compute(), aggregated(make(cls, empty_target_action="neg"), BATCHES[1:]))
    assert best.compute()["max"] >= max(seen) - 1e-6
    boots = torchmetrics.BootStrapper(make(cls), num_bootstraps=3, sampling_strategy="multinomial")
    boots.update(*BATCHES[0])
    assert boots.compute().keys() == {"mean", "std"}


@every_class
def test_values_and_plots_stay_in_the_range_of_the_measure(cls):
    metric = make(cls)
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
