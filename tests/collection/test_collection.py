"""Many metrics, one ranking: every member of a collection has the value of the same metric alone."""

import copy
import functools
import io
import pickle
import re
from collections import UserList  # as Hydra's ListConfig, it is no list

import pytest
import torch
from torch import nn
from torchmetrics import MeanAbsoluteError, MeanMetric, MeanSquaredError, MetricCollection, MinMaxMetric
from torchmetrics.classification import BinaryAccuracy, MulticlassAccuracy
from torchmetrics.regression import PearsonCorrCoef
from torchmetrics.retrieval import RetrievalMRR

import torchrank as tr
from tests.support.cases import cases
from tests.support.metric_kinds import variants
from tests.support.workers import batch
from torchrank.collection.collection import RankingCollection
from torchrank.engine import rank
from torchrank.retrieval import RetrievalMRR as Drop
from torchrank.state import scoring

NAN = float("nan")
NAMES = [
    *("ndcg@5", "ndcg@10", "ndcg(gain=exponential)@5", "map(relevance_level=1.5)", "mrr", "mr", "hitrate@1"),
    *("recall(aggregation=none)@3", "fallout(aggregation=median)@2", "auroc(empty_target_action=neg)"),
    "dcg(log_base=2.5)@3",
]


BATCHES = (batch(1, 5), batch(2, 1), batch(3, 4))


def power(exponent):
    def gain(grade):
        return grade**exponent

    return gain


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda metric: pickle.loads(pickle.dumps(metric)),
    "clone": lambda metric: metric.clone(),
}


@functools.cache
def alone(name, batches=BATCHES):
    """The value of a metric by itself."""
    return fill(MeanAbsoluteError() if name == "mae" else tr.parse(name), batches).compute()


def fill(suite, batches=BATCHES, **kwargs):
    for arguments in batches:
        suite.update(*arguments, **kwargs)
    return suite


def same(values, expected):
    assert list(values) == list(expected)
    for key, value in values.items():
        # Among other measures an engine may know more entries, whose zeros change the order of a sum.
        close = 1e-13 if value.dtype == torch.float64 else 0
        torch.testing.assert_close(value, expected[key], rtol=close, atol=0, equal_nan=True, msg=key)


# ---- members and their keys ------------------------------------------------------------------------------------------


@cases(
    ("given", "keys"),
    [
        (["mrr"], ["mrr"]),
        ("ndcg@5,10", ["ndcg@5", "ndcg@10"]),
        ((["nDCG@10"], "RR", "AP(rel=2)@100"), ["ndcg@10", "mrr", "map(relevance_level=2)@100"]),
        ([tr.NDCG(top_k=5), "ndcg@3", tr.F1(aggregation="none")], ["ndcg@5", "ndcg@3", "f1(aggregation=none)"]),
        (tr.MRR(), ["mrr"]),
        ([], []),
        ({"z": "mrr", "a": tr.MAP()}, ["z", "a"]),
        ([MeanAbsoluteError(), "mrr"], ["MeanAbsoluteError", "mrr"]),
        ("mae Rmse, ndcg@3", ["mae", "rmse", "ndcg@3"]),
        (tr.RankingCollection(["mrr", "map"], prefix="x/"), ["x/mrr", "x/map"]),
        ([tr.RankingCollection(["mrr"]), "map"], ["mrr", "map"]),
        ({"in": tr.RankingCollection(["mrr@5", "map"]), "out": "mrr"}, ["in_mrr@5", "in_map", "out"]),
        (UserList(["mrr", "map"]), ["mrr", "map"]),
        (iter(["mrr", "map"]), ["mrr", "map"]),
        (dict.fromkeys(["mrr", "map"]).keys(), ["mrr", "map"]),
        ([MetricCollection([MeanAbsoluteError()], prefix="s/"), "map"], ["s/MeanAbsoluteError", "map"]),
    ],
)
def test_a_collection_takes_metrics_names_and_collections(given, keys):
    suite = tr.RankingCollection(*given) if isinstance(given, tuple) else tr.RankingCollection(given)
    assert list(suite.keys()) == list(suite) == [key for key, _ in suite.items()] == keys
    assert len(suite) == len(keys)
    assert all(key in suite for key in keys)
    assert "nothing" not in suite
    fill(suite)
    assert list(suite.compute()) == list(suite.metric_state) == keys
    for key, metric in suite.items():
        assert suite[key] is metric


@cases(
    ("given", "message"),
    [
        *(([*two], "twice") for two in (("mrr", "RR"), ("ndcg@5", tr.NDCG(top_k=5)), ("mae", "mae"))),
        ("ndcg@5,5", "twice"),
        (["mrr", tr.RankingCollection("mrr")], "twice"),
        *((one, "Expected") for one in (["ndgc@5"], [3], ["ndcg@x"], ["rprecision@3"], None, ["mrr(k=3)"], [["mrr"]])),
        *(({"own": two}, "Expected one metric for key 'own', got 2: ") for two in ("ndcg@5,10", "mrr map")),
    ],
)
def test_other_than_metrics_each_once_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        tr.RankingCollection(given)


ODD = ["update", "pop", "items", "training", "prefix", "postfix", "a.b", "a%2Eb", "%", "x/y z", "0", "é@1"]


def test_odd_keys():
    def make():
        return tr.RankingCollection({key: tr.NDCG(top_k=k) for k, key in enumerate(ODD, 1)}, prefix="v.", postfix=".")

    suite, expected = fill(make()), {f"v.{key}.": alone(f"ndcg@{k}") for k, key in enumerate(ODD, 1)}
    same(pickle.loads(pickle.dumps(suite)).compute(), expected)
    for k, key in enumerate(ODD, 1):
        assert suite[key].top_k == suite[f"v.{key}."].top_k == k
        assert key in suite
        assert f"v.{key}." in suite
    with pytest.raises(KeyError, match="nothing"):
        suite["nothing"]
    assert list(suite.keys(keep_base=True)) == ODD
    assert [(key, metric.top_k) for key, metric in suite.items(keep_base=True)] == list(zip(ODD, range(1, 13)))
    suite.persistent(True)
    twin = make()
    twin.load_state_dict(suite.state_dict())
    same(twin.compute(), expected)


def test_a_key_is_first_of_all_the_one_shown():
    suite = tr.RankingCollection({"v/x": "mrr", "x": "map"}, prefix="v/")
    assert {key: suite[key].label for key in suite} == {"v/v/x": "mrr", "v/x": "map"}


# ---- the numbers -----------------------------------------------------------------------------------------------------


@cases("weighted", [False, True])
def test_members_have_the_values_of_metrics_alone(weighted):
    suite = tr.RankingCollection(NAMES)
    members = {name: tr.parse(name) for name in NAMES}
    for preds, target in BATCHES:
        weights = torch.arange(len(preds)) / 3 if weighted else None
        values = {name: member(preds, target, weights=weights) for name, member in members.items()}
        same(suite(preds, target, weights=weights), values)
        same(suite.compute(), {name: member.compute() for name, member in members.items()})
        scores = {name: member.score(preds, target) for name, member in members.items()}
        same(suite.score(preds, target, weights=weights), scores)
    suite.reset()
    same(fill(suite, BATCHES[1:]).compute(), {name: alone(name, BATCHES[1:]) for name in NAMES})
    for (_, metric), name in zip(suite.items(), NAMES):
        assert metric.num_queries == 5
        assert torch.equal(metric.compute().nan_to_num(9), alone(name, BATCHES[1:]).nan_to_num(9))


def test_bad_values_make_a_batch_nan_and_raise_in_results():
    suite, bad = tr.RankingCollection(["mrr", "ndcg(aggregation=none)"]), (torch.tensor([[NAN, 0.9]]), torch.ones(1, 2))
    suite.update(*BATCHES[0])
    assert all(v.isnan().all() for v in suite(*bad).values())
    for call in (suite.compute, lambda: suite.score(*bad)):
        with pytest.raises(ValueError, match="1 query with NaN"):
            call()


def test_a_batch_is_ranked_once(monkeypatch):
    blocks = []

    def counted(layout, need):
        blocks.append(layout.num_queries)
        return rank(layout, need)

    monkeypatch.setattr(scoring, "rank", counted)
    suite = tr.RankingCollection(NAMES)
    for number, call in enumerate((suite.update, suite, suite.score), 1):
        call(*BATCHES[0])
        assert blocks == [5] * number
    suite.compute()
    suite.update(tr.Ranking.from_scores(*BATCHES[2]))
    assert blocks == [5, 5, 5]  # a ranking is not ranked again
    blocks.clear()
    suite.update(torch.rand(3000, 400), torch.randint(400, (3000,)))
    assert sum(blocks) == 3000


# ---- with others' metrics --------------------------------------------------------------------------------------------


def test_foreign_metrics_beside():
    suite = tr.RankingCollection(["ndcg@3", MeanAbsoluteError(), "mrr", MeanSquaredError()])
    members = {**suite.clone(), "ndcg@3": tr.NDCG(top_k=3), "mrr": tr.MRR()}
    for arguments in BATCHES:
        same(suite(*arguments), {key: member(*arguments) for key, member in members.items()})
    expected = {key: member.compute() for key, member in members.items()}
    same(suite.compute(), expected)
    assert list(suite.score(*BATCHES[0])) == ["ndcg@3", "mrr"]
    same(copy.deepcopy(suite).compute(), expected)


@cases("method", ["update", "forward"])
@cases(
    ("error", "arguments", "keywords"),
    [
        (TypeError, (tr.Ranking.from_scores(*BATCHES[0]),), {}),  # which a foreign metric cannot take
        (ValueError, (torch.zeros(2, 3), torch.zeros(2, 4)), {}),
        (ValueError, BATCHES[0], {"weights": torch.ones(3)}),
        (TypeError, BATCHES[0], {"nonsense": 1}),
    ],
)
def test_a_call_that_raises_leaves_no_trace(method, error, arguments, keywords):
    suite = fill(tr.RankingCollection(["mrr", MeanAbsoluteError(), "ndcg(aggregation=none)"]))
    before = suite.compute()
    with pytest.raises(error):
        getattr(suite, method)(*arguments, **keywords)
    assert suite["mrr"].num_queries == suite["ndcg(aggregation=none)"].num_queries == 10
    same(suite.compute(), before)


# ---- copies, checkpoints, merging ------------------------------------------------------------------------------------


def resumed(suite, inside=False):
    """A collection that takes the checkpoint of another in the middle of an epoch; as a part of a module, or alone."""
    twin = tr.RankingCollection([*NAMES, MeanAbsoluteError()], prefix="v/")
    for one in (suite, twin):
        one.persistent(True)
    fill(twin, BATCHES[2:])
    for name in NAMES:  # torchmetrics' own metrics do not notice that their computed value is out of date
        twin[name].compute()
    saved, owner = (nn.ModuleDict({"suite": one}) if inside else one for one in (suite, twin))
    torch.save(saved.state_dict(), file := io.BytesIO())
    file.seek(0)
    owner.load_state_dict(torch.load(file))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        tr.RankingCollection(["mrr"], prefix="v/").load_state_dict(suite.state_dict())
    return twin


@cases("way", [*COPIES, "checkpoint", "checkpoint of a module"])
@cases("computed", [False, True])
def test_a_copy_and_a_collection_from_a_checkpoint_go_on_by_themselves(way, computed):
    suite = fill(tr.RankingCollection([*NAMES, MeanAbsoluteError()], prefix="v/"), BATCHES[:1])
    if computed:
        suite.compute()
        dict(suite.items())
    twin = COPIES[way](suite) if way in COPIES else resumed(suite, inside=way != "checkpoint")
    members, keys = [*NAMES, "mae"], list(suite.keys())
    same(twin.compute(), dict(zip(keys, [alone(m, BATCHES[:1]) for m in members])))
    fill(twin, BATCHES[1:])
    same(twin.compute(), dict(zip(keys, [alone(m) for m in members])))
    same(suite.compute(), dict(zip(keys, [alone(m, BATCHES[:1]) for m in members])))
    if way in COPIES:
        member = COPIES[way](suite["ndcg@5"])
        member.update(*BATCHES[1])
        assert torch.equal(member.compute(), alone("ndcg@5", BATCHES[:2]))


def test_merge_state():
    one, other = (tr.RankingCollection([*NAMES, MeanAbsoluteError()]) for _ in range(2))
    fill(one, BATCHES[:1])
    for name in NAMES:
        one[name].compute()
    fill(other, BATCHES[1:])
    one.merge_state(other)
    expected = {key: alone(m) for key, m in zip(one.keys(), [*NAMES, "mae"])}
    same(one.compute(), expected)
    fill(one, BATCHES[:1])
    assert other["mrr"].num_queries == 5
    both = fill(tr.RankingCollection("mrr, recall(aggregation=median)@3"))
    before = both.compute()
    both.merge_state(both)
    same(both.compute(), before)
    assert both["mrr"].num_queries == 20


@cases(
    ("other", "got"),
    [
        ({}, "a dict; pass a collection"),
        (None, "a NoneType"),
        (tr.MRR(), "a MRR"),
        ([tr.MRR()], "a list"),
        (MetricCollection([tr.MRR()]), r"\['MRR'\]$"),
        (tr.RankingCollection("mrr").state_dict(), "a OrderedDict"),
        (tr.RankingCollection("mrr").metric_state, "a dict"),
        (tr.Sliced("mrr", 2), "a Sliced"),
        (tr.RankingCollection("mrr"), r"\['mrr'\]"),
        (tr.RankingCollection({"my_mrr": "mrr", "my_map": "map"}), r"\['my_mrr', 'my_map'\]"),
    ],
)
def test_a_collection_merges_only_a_collection_and_says_so(other, got):
    suite = fill(tr.RankingCollection("mrr, map"))
    with pytest.raises(ValueError, match=f"Expected a collection of \\['mrr', 'map'\\], got {got}"):
        suite.merge_state(other)
    assert suite["mrr"].num_queries == 10


def test_merge_state_is_all_or_nothing():
    one, other = (fill(tr.RankingCollection({"a": "mrr", "b": name})) for name in ("map", "f1"))
    with pytest.raises(ValueError, match="map"):
        one.merge_state(other)
    assert one["a"].num_queries == 10


#: wrappers whose updates need more than those of other metrics, and what that is
ASKING = {
    "query_ids": [lambda: tr.PerQuery("mrr"), lambda: tr.Bootstrapped("mrr", 3)],
    "group": [lambda: tr.Grouped("mrr")],
    "slices": [lambda: tr.Sliced("mrr", ["x", "y"]), lambda: tr.Sliced(tr.Bootstrapped("mrr", 3), 2)],
    "the scores of each system": [lambda: tr.Compared("mrr", ["a", "b"])],
    "the grades of people": [lambda: tr.Rectified("mrr"), lambda: tr.Rectified("mrr", ["a", "b"])],
}


@cases(("needed", "make"), [(needed, make) for needed, many in ASKING.items() for make in many])
def test_a_collection_refuses_members_that_it_could_never_update(needed, make):
    suite, name = tr.RankingCollection("mrr"), type(make()).__name__
    for add in (
        lambda: tr.RankingCollection(["mrr", make()]),
        lambda: tr.RankingCollection({"mrr": "mrr", name: make()}),
        lambda: tr.RankingCollection("mrr", make()),
        lambda: tr.RankingCollection(MetricCollection([make()])),
        lambda: suite.add_metrics(make()),
        lambda: tr.TieReport([tr.MRR(), make()]),
    ):
        with pytest.raises(ValueError, match=f"got '{name}', which needs {needed}, too; update the {name} by itself"):
            add()
    assert list(suite) == ["mrr"]


def test_a_collection_takes_the_wrappers_that_it_can_update():
    members = {"ties": tr.TieReport("mrr"), "abstention": tr.Abstention("mrr")}
    suite, given = tr.RankingCollection({"mrr": "mrr", **members}), torch.rand(9, 5).round(decimals=1)
    target, mask = torch.randint(0, 2, (9, 5)), torch.rand(9, 5) < 0.8
    suite.update(given, target, mask=mask)
    for key, alone in members.items():
        alone.reset()
        alone.update(given, target, mask=mask)
        found = {name.removeprefix(f"{key}_"): x for name, x in suite.compute().items() if name.startswith(key)}
        same(found, alone.compute())
    with pytest.raises(TypeError, match="Expected preds and target for TieReport, got a Ranking; update it by itself"):
        suite.update(tr.Ranking.from_scores(given, target))


def test_a_plain_collection_passes_wrappers_what_they_need():
    scores, target = torch.rand(9, 5), torch.randint(0, 2, (9, 5))
    given = {"slices": torch.arange(9) % 2, "query_ids": [f"q{n}" for n in range(9)], "human": target}
    made = {"mrr": tr.MRR(), "s": tr.Sliced("mrr", 2), "q": tr.PerQuery("mrr"), "r": tr.Rectified("mrr")}
    suite = MetricCollection({**made, "b": tr.Bootstrapped("mrr", 3)})
    suite.update(scores, target, **given)
    found = suite.compute()
    assert found["q"].to_dict() == {"id": given["query_ids"], "mrr": tr.MRR().score(scores, target).tolist()}
    for name in ("s_mrr", "r_mrr", "b_mrr"):
        assert found[name] == pytest.approx(found["mrr"])


def test_metrics_added_later():
    suite = fill(tr.RankingCollection(["ndcg@3"]), BATCHES[:1])
    suite.compute()
    inner = tr.RankingCollection("recall@5", prefix="r/")
    for more in (["mrr"], [["map", "f1@1,2"], tr.MR()], [{"x.y": "mrr"}], [inner]):
        suite.add_metrics(*more)
    with pytest.raises(ValueError, match="once"):
        suite.add_metrics("ndcg@3")
    fill(suite, BATCHES[1:])
    names = ["mrr", "map", "f1@1", "f1@2", "mr", "mrr", "recall@5"]
    keys = [*names[:5], "x.y", "r/recall@5"]
    expected = {key: alone(name, BATCHES[1:]) for key, name in zip(keys, names)}
    same(suite.compute(), {"ndcg@3": alone("ndcg@3"), **expected})


# ---- nested ----------------------------------------------------------------------------------------------------------


@cases("as_dict", [False, True])
def test_own_inside_stock(as_dict):
    inner = tr.RankingCollection(["ndcg@3", "mrr", "mrr(ties=pessimistic)"], prefix="v/")
    stock = MetricCollection({"in": inner, "mae": MeanAbsoluteError()} if as_dict else [inner, MeanAbsoluteError()])
    before = "in_" if as_dict else ""
    for _ in range(2):
        values = fill(stock).compute()
        for name in ("ndcg@3", "mrr", "mrr(ties=pessimistic)"):
            assert torch.equal(values[f"{before}v/{name}"], alone(name))
        assert torch.equal(values["mae" if as_dict else "MeanAbsoluteError"], alone("mae"))
        stock.reset()


def test_stock_inside_own():
    stock = MetricCollection({"b": tr.MRR(), "a": tr.MRR(ties="optimistic"), "c": MeanAbsoluteError()}, prefix="s/")
    fill(stock, BATCHES[:1])  # its groups are settled
    suite = tr.RankingCollection([stock, "ndcg@3", tr.RankingCollection({"a": stock["a"].clone()})])
    suite.reset()
    values = fill(suite).compute()
    assert list(values) == ["s/a", "s/b", "s/c", "ndcg@3", "a"]
    for key, name in {"s/b": "mrr", "s/a": "mrr(ties=optimistic)", "ndcg@3": "ndcg@3", "s/c": "mae"}.items():
        assert torch.equal(values[key], alone(name))
    assert torch.equal(values["a"], values["s/a"])


# ---- torchmetrics' compute groups: metrics with equal state names and values become one, for good --------------------

# A first batch on which parameters make no difference: a perfect ranking.
PERFECT = (torch.tensor([[9.0, 8, 7], [9, 7, 8]]), torch.tensor([[1, 0, 0], [1, 0, 0]]))


@cases(("cls", "method"), [(tr.NDCG, "forward"), (tr.MRR, "update"), (tr.KendallTau, "update")])
def test_metrics_that_differ_in_one_parameter_never_merge(cls, method):
    members = {f"m{i:02}": metric for i, (given, metric) in enumerate(variants(cls)) if len(given) < 2}
    scores, grades = batch(1, 12)
    grades[:3, :2], grades[3:5] = 3, 0  # some queries have nothing to measure
    wanted = {key: fill(metric.clone(), [PERFECT, (scores, grades)]) for key, metric in members.items()}
    for build in (MetricCollection, tr.RankingCollection):
        suite = build({key: metric.clone() for key, metric in members.items()})
        getattr(suite, method)(*PERFECT)
        getattr(suite, method)(scores, grades)
        for key, metric in suite.items():
            if metric.empty_target_action == "error":
                with pytest.raises(ValueError, match="with nothing"):
                    metric.compute()
            else:
                torch.testing.assert_close(metric.compute(), wanted[key].compute(), rtol=0, atol=0, equal_nan=True)
        assert all(len(group) == 1 for group in suite.compute_groups.values())


def test_functions_of_one_name_never_merge():
    for build in (MetricCollection, tr.RankingCollection):
        suite = build({"linear": tr.DCG(gain=power(1)), "square": tr.DCG(gain=power(2))})
        suite.update(*PERFECT)
        suite.update(PERFECT[0], PERFECT[1] * 3)
        assert suite.compute() == {"linear": 2.0, "square": 5.0}


def test_equal_metrics_may_merge():
    rows = {"c": tr.MRR(aggregation="none"), "d": tr.MRR(aggregation="none")}  # torchmetrics shares lists by reference
    suite = MetricCollection({"a": tr.MRR(), "b": tr.MRR(), **rows})
    for number in range(1, 4):
        values = fill(suite).compute()
        for key, name in zip("abcd", ["mrr", "mrr", "mrr(aggregation=none)", "mrr(aggregation=none)"]):
            assert torch.equal(values[key], alone(name, BATCHES * number))
    suite.add_metrics({"e": tr.MRR()})
    values = fill(suite, BATCHES[:1]).compute()
    assert torch.equal(values["b"], alone("mrr", (*BATCHES * 3, BATCHES[0])))
    assert torch.equal(values["e"], alone("mrr", BATCHES[:1]))


PAIRS = [
    (lambda: tr.NDCG(), lambda: tr.NDCG(top_k=1)),
    (lambda: tr.MRR(aggregation="median"), lambda: tr.NDCG()),
    (lambda: tr.NDCG(), lambda: tr.MRR(aggregation="none")),
    (lambda: tr.TieReport("mrr"), lambda: tr.TieReport("ndcg")),
    (lambda: tr.Bootstrapped("mrr", replicates=2), lambda: tr.Bootstrapped("mrr@1", replicates=2)),
    (lambda: tr.Coverage(num_items=3), lambda: tr.Coverage(num_items=4)),
]


@cases(("first", "second"), PAIRS)
def test_metrics_in_a_compute_group_by_hand_never_take_the_state_of_another(first, second):
    given = (PERFECT[1],) if isinstance(first(), tr.Coverage) else PERFECT
    more = {"query_ids": torch.arange(2)} if isinstance(first(), tr.Bootstrapped) else {}
    suite = MetricCollection({"a": first(), "b": second()}, compute_groups=[["a", "b"]])
    with pytest.raises(ValueError, match=r"to keep its own state, got that of .*; leave compute_groups out"):
        suite.update(*given, **more)
    same = MetricCollection({"a": first(), "b": first(), "c": second()}, compute_groups=[["a", "b"]])
    same.update(*given, **more)
    alone = first()
    alone.update(*given, **more)
    for key in ("a", "b"):
        torch.testing.assert_close(same[key].metric_state, alone.metric_state)
    MetricCollection({"a": first(), "b": second()}).update(*given, **more)


def test_a_member_that_changes_its_batch_has_the_value_that_it_has_alone():
    class OfTheNegated(tr.MRR):
        """A metric that changes the scores before it takes them."""

        name = "ofthenegated"

        def update(self, preds, target=None, **keywords):
            super().update(-preds, target, **keywords)

    preds, target = BATCHES[0]
    mask = torch.rand(preds.shape, generator=torch.Generator().manual_seed(1)) < 0.8
    want = OfTheNegated()
    want.update(preds, target, mask=mask)
    suite = tr.RankingCollection([OfTheNegated(), "mrr"])
    suite.update(preds, target, mask=mask)
    assert suite.compute()["ofthenegated"] == want.compute() != suite.compute()["mrr"]
    assert suite(preds, target, mask=mask)["ofthenegated"] == want.compute()


# ---- elements and arguments ------------------------------------------------------------------------------------------


GIVEN = ["ndcg@10", "mrr"]


def test_lists_of_configurations_are_lists_everywhere():
    names, judged, run = UserList(GIVEN), {"q": {"a": 1, "b": 0}}, {"q": {"a": 0.1, "b": 0.2}}
    assert list(tr.Sliced(names, UserList(["x", "y"])).suite) == GIVEN
    assert list(tr.Compared(names, UserList(["x", "y"])).systems) == ["x", "y"]
    (table,) = tr.evaluate(judged, run, names, relevance_level=1).tables.values()
    assert table.labels == GIVEN
    assert tr.integrations.huggingface.compute_metrics(names)
    part = tr.partial(judged, run, (one for one in GIVEN))
    assert list(tr.merge([part]).means) == list(tr.evaluate(judged, run, (one for one in GIVEN)).means["run"]) == GIVEN


def test_arguments_of_torchmetrics_reach_every_metric_that_is_given_by_its_name():
    options = {"sync_on_compute": False, "compute_on_cpu": True, "distributed_available_fn": lambda: False}
    own = tr.MAP(**options)
    suite = tr.RankingCollection(["ndcg@5,10, mrr", "mae", own], **options)
    suite.add_metrics("rmse")
    twin = copy.deepcopy(suite.clone(prefix="val/"))
    twin.add_metrics({"last": "mr"})
    assert len(suite) == 6
    for metric in [*suite.values(), *twin.values()]:
        assert {name: getattr(metric, name) for name in options} == options
    assert suite["map"] is own


def test_a_metric_with_other_arguments_than_its_collection_is_refused():
    other = "with sync_on_compute=False, as its collection, got True; make the metric"
    for metrics in ([tr.MRR()], {"a": tr.MRR()}, MetricCollection([MeanMetric()])):
        with pytest.raises(ValueError, match=other):
            tr.RankingCollection(metrics, sync_on_compute=False)
    with pytest.raises(TypeError, match=r"to have arguments metrics, prefix, .*sync_on_compute, .*got 'xyzzy'$"):
        tr.RankingCollection("mrr", xyzzy=False)
    with pytest.raises(TypeError, match=r"got 'ties'; pass ties to the measure, as .* or '(.*)'"):
        tr.RankingCollection("mrr", ties="optimistic")


def test_a_score_has_the_value_of_each_of_very_many_queries(monkeypatch):
    whole = torch.cat([scores for scores, _ in BATCHES]), torch.cat([target for _, target in BATCHES])
    alone = {name: tr.parse(name).score(*whole) for name in NAMES}
    monkeypatch.setattr("torchrank.state.scoring.MANY_VALUES", 3)
    found = tr.RankingCollection(NAMES).score(*whole)
    for name in NAMES:
        # Few queries may be ranked in another way, in which ties round otherwise.
        torch.testing.assert_close(found[name], alone[name], equal_nan=True, rtol=1e-14, atol=1e-15)
        torch.testing.assert_close(tr.parse(name).score(*whole), alone[name], equal_nan=True, rtol=0, atol=0)


def test_metrics_of_a_collection_are_in_no_groups_of_torchmetrics():
    suite = tr.RankingCollection({"mrr": tr.MRR(), "one": BinaryAccuracy(), "other": BinaryAccuracy(threshold=0.4)})
    suite.update(torch.tensor([[0.1, 0.9]]), torch.tensor([[1, 0]]))
    assert suite.compute_groups == {}


def test_a_metric_with_an_update_of_its_own_gets_the_options_that_it_takes():
    def update(self, preds, target=None, **options):
        received.append({name for name, x in options.items() if x is not None})
        super(type(self), self).update(preds, target, **options)

    Recording, RecordingItems = (
        type("Recording", (base,), {"name": f"recording{base.name}", "update": update})
        for base in (tr.MRR, tr.Popularity)
    )
    received = []
    flat = torch.rand(4), torch.tensor([1, 0, 0, 1])
    suite = tr.RankingCollection([Recording()])
    suite.update(*flat, indexes=torch.tensor([0, 0, 1, 1]), weights=torch.ones(2))
    lists = tr.RankingCollection([RecordingItems(interactions=torch.ones(9)), tr.MRR()])
    lists.update(torch.tensor([[0, 1]]), torch.tensor([1]), mask=torch.ones(1, 2).bool(), weights=torch.ones(1))
    assert received == [{"indexes", "weights"}, {"mask", "weights"}]


def test_a_query_that_is_cut_by_two_updates_of_a_collection_is_noticed_once():
    suite = tr.RankingCollection(["mrr", "map"])
    rows = torch.rand(4), torch.tensor([1, 0, 1, 0])
    suite.update(*rows, indexes=torch.tensor([0, 0, 1, 1]))
    with pytest.warns(UserWarning, match="Counted the last query of an update") as caught:
        suite.update(*rows, indexes=torch.tensor([1, 1, 2, 2]))
    assert len(caught) == 1


# ---- plain keys ----------------------------------------------------------------------------------------------------


KEYED = ["ndcg@10", "rbp(p=0.8)@5", "rbp(p=0.85)", "mae"]
KEYS = {
    "label": KEYED,
    "plain": ["ndcg_at_10", "rbp_p_0.8_at_5", "rbp_p_0.85", "mae"],
    "identifier": ["ndcg_at_10", "rbp_p_0p8_at_5", "rbp_p_0p85", "mae"],
}
BATCH = (torch.tensor([[0.1, 0.9, 0.5], [0.4, 0.3, 0.2]]), torch.tensor([[0, 0, 1], [1, 0, 0]]))


def build(style, **kwargs):
    return RankingCollection(KEYED, prefix="val/", postfix="!", keys=style, **kwargs)


@cases("style", KEYS)
def test_all_results_have_the_keys_of_the_collection_and_a_metric_is_found_by_them_and_by_its_label(style):
    suite, labelled = build(style), build("label")
    keys = [f"val/{key}!" for key in KEYS[style]]
    for one in (suite, labelled):
        one.update(*BATCH)
    assert list(suite.keys()) == [key for key, _ in suite.items()] == list(suite.metric_state) == keys
    assert list(suite.intervals()) == suite.summary()["measure"] == list(suite.score(*BATCH)) == keys[:-1]
    assert suite.compute() == dict(zip(keys, labelled.compute().values()))
    assert list(suite(*BATCH)) == keys
    for label, key in zip(KEYED, KEYS[style]):
        assert suite[f"val/{key}!"] is suite[key] is suite[label]
        assert key in suite
        assert label in suite
    assert list(suite.keys(keep_base=True)) == KEYED
    del suite["ndcg@10"]
    assert list(suite.keys()) == [f"val/{key}!" for key in KEYS[style][1:]]
    with pytest.raises(KeyError, match=re.escape(KEYS[style][1])):
        suite["ndcg@10"]


def test_a_pickle_of_a_collection_without_a_spelling_has_labels():
    suite = build("label")
    del suite.__dict__["_style"]
    assert list(pickle.loads(pickle.dumps(suite)).keys()) == [f"val/{name}!" for name in KEYED]


def test_a_checkpoint_fits_collections_of_any_spelling():
    suite = build("label")
    suite.update(*BATCH)
    suite.persistent(True)
    saved = suite.state_dict()
    for style in KEYS:
        twin = build(style)
        twin.persistent(True)
        assert list(twin.state_dict()) == list(saved)
        twin.load_state_dict(saved)
        assert list(twin.compute().values()) == list(suite.compute().values())


def test_two_keys_with_one_spelling_are_refused_by_name():
    def exponential_at_10(grade):
        return grade

    alike = ["ndcg(gain=exponential)@10", tr.NDCG(gain=exponential_at_10)]
    for metrics, styles, message in (
        ({"ndcg@10": "ndcg@10", "ndcg_at_10": "mrr"}, ["plain", "identifier"],
         r"'ndcg@10' and 'ndcg_at_10', both 'ndcg_at_10'"),
        (alike, ["plain"], r"'ndcg\(gain=exponential\)@10' and 'ndcg\(gain=exponential_at_10\)'"),
        ("mrr", ["simple"], "one of 'label', 'plain', 'identifier', got 'simple'"),
    ):  # fmt: skip
        for style in styles:
            with pytest.raises(ValueError, match=message):
                RankingCollection(metrics, keys=style)
        RankingCollection(metrics)


@cases("more", [["mrr", "ndcg@10"], {"mrr": "mrr", "rbp_p_0.85": "map"}])
def test_metrics_that_do_not_fit_are_not_added(more):
    suite = build("plain")
    with pytest.raises(ValueError, match=r"ndcg@10|rbp_p_0\.85"):
        suite.add_metrics(more)
    assert list(suite.keys(keep_base=True)) == KEYED
    suite.add_metrics("recall@1,2")
    assert list(suite.keys())[-2:] == ["val/recall_at_1!", "val/recall_at_2!"]


def test_keys_of_a_dict_of_other_libraries_and_of_contained_collections_are_spelled_too():
    inside = RankingCollection("map(normalize=min)@3", keys="plain")
    given = {"NDCG@10": "ndcg@10", "train/a b": MeanAbsoluteError(), "in": MetricCollection({"x@y": tr.MRR()})}
    keys = ["NDCG_at_10", "train/a b", "in_x_at_y", "map_normalize_min_at_3"]
    suite = RankingCollection(given, inside, keys="plain")
    assert list(suite.keys()) == keys
    assert list(RankingCollection(inside).keys()) == ["map_normalize_min_at_3"]


# ---- metrics of single scores beside rankings: torchmetrics computes, and never sees padding -----------------------


def masked_batch(seed):
    scores, target = batch(seed, 6)
    return scores, target.float(), torch.rand(scores.shape, generator=torch.Generator().manual_seed(seed)) < 0.6


MASKED = [masked_batch(seed) for seed in range(3)]


@cases("flat", [False, True])
def test_masked_scores_are_not_seen(flat):
    others = [RetrievalMRR()] if flat else [MeanSquaredError(squared=False), PearsonCorrCoef()]
    suite, reference = tr.RankingCollection(["ndcg@3", "mae", "rmse", "mse", *others]), RetrievalMRR()
    for number, (preds, target, mask) in enumerate(MASKED):
        keywords = {"mask": mask}
        if flat:
            indexes = torch.arange(len(preds))[:, None].expand_as(preds) + 10 * number
            preds, target = preds.sigmoid(), (target > 2).long()  # as torchmetrics' retrieval wants it
            reference.update(preds[mask], target[mask], indexes=indexes[mask])
            keywords |= {"indexes": indexes}
        hidden = preds.masked_fill(~mask, NAN), target.masked_fill(~mask, 10**6)
        shape = (-1,) if flat else preds.shape
        suite.update(*(x.view(shape) for x in hidden), **{key: x.reshape(shape) for key, x in keywords.items()})
    values = suite.compute()
    assert list(values)[:4] == ["ndcg@3", "mae", "rmse", "mse"]
    if flat:
        assert values["RetrievalMRR"] == reference.compute()
        assert values["mae"].isfinite()
        return
    preds, target = (torch.cat([one[i][one[2]] for one in MASKED]).double() for i in (0, 1))
    mse, pearson = (preds - target).square().mean(), torch.corrcoef(torch.stack([preds, target]))[0, 1]
    want = {"mae": (preds - target).abs().mean(), "rmse": mse.sqrt(), "mse": mse, "MeanSquaredError": mse.sqrt()}
    for key, value in (want | {"PearsonCorrCoef": pearson}).items():
        torch.testing.assert_close(values[key].double(), value, rtol=1e-5, atol=0)


@cases("method", ["update", "forward"])
@cases("target", [torch.tensor([1, 2, 0, 0, 1, 3]), (torch.tensor([0]), torch.tensor([1])), [torch.tensor([1])] * 6])
def test_layouts_without_a_value_for_each_score_are_refused(method, target):
    suite = tr.RankingCollection(["mrr", "mae"])
    with pytest.raises(ValueError, match=r"target of preds' shape \[6, 9\], a value for each.*MeanAbsoluteError"):
        getattr(suite, method)(MASKED[0][0], target)
    assert suite["mrr"].num_queries == 0


def test_nothing_but_padding():
    suite, (preds, target, mask) = tr.RankingCollection(["mae", "mrr"]), MASKED[0]
    suite.update(preds, target, mask=mask)
    before = suite.compute()["mae"]
    suite.update(preds, target, mask=mask & False)
    assert suite.compute()["mae"] == before


def test_ids_and_masks_of_another_shape_are_refused():
    with pytest.raises(TypeError, match="floating point scores for MeanAbsoluteError"):
        tr.RankingCollection(["mrr", "mae"]).update(torch.tensor([[1, 2]]), torch.tensor([[2, 3]]))
    for mask in (torch.ones(6, dtype=torch.bool), [True]):
        with pytest.raises(ValueError, match="mask of preds' shape"):
            tr.RankingCollection(["mae"]).update(*MASKED[0][:2], mask=mask)


def test_others_get_the_arguments_that_they_take():
    """Class labels beside scores, wrappers, and metrics that know of masks themselves."""

    class Masked(MeanMetric):
        def update(self, preds, target, mask):
            super().update((preds == 0) & mask)

    label = MASKED[0][1].argmax(-1)
    suite = tr.RankingCollection({"accuracy": MulticlassAccuracy(9, average="micro"), "mrr": "mrr"})
    suite.update(MASKED[0][0], label)
    assert suite.compute()["accuracy"] == (MASKED[0][0].argmax(-1) == label).float().mean()
    with pytest.raises(ValueError, match="with a mask for MulticlassAccuracy"):
        suite.update(MASKED[0][0], label, mask=MASKED[0][2])

    preds, target, mask = MASKED[0]
    suite = tr.RankingCollection([Masked(), MinMaxMetric(tr.MRR()), "mrr"])
    suite.update(preds * 0, target, mask=mask)
    values = suite.compute()
    assert values["Masked"] == mask.float().mean()
    assert values["MinMaxMetric_raw"] == values["mrr"]


def test_targets_of_bool_are_0_and_1_to_metrics_of_single_scores():
    scores, target = torch.tensor([[0.25, 1.0]]), torch.tensor([[True, False]])
    suite = tr.RankingCollection(["map", "mae"])
    suite.update(scores, target)
    assert {name: value.item() for name, value in suite.compute().items()} == {"map": 0.5, "mae": 0.875}


# ---- arguments that others do not have -------------------------------------------------------------------------------

SCORES, TARGET = torch.tensor([[0.9, 0.8, 0.2, 0.1], [0.3, 0.6, 0.7, 0.4]]), torch.tensor([[0, 1, 0, 0], [1, 0, 0, 1]])


@cases("listed", [False, True])
def test_excluded_candidates_are_hidden_as_by_a_mask_unless_they_are_relevant(listed):
    pairs = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 2, 3, 3])  # one twice; (0, 1), (1, 3) are relevant
    exclude = [pairs[1][pairs[0] == query] for query in range(2)] if listed else pairs
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])
    hidden = torch.tensor([[True, False, False, False], [False, False, True, False]])
    members = {"mrr": "mrr", "accuracy": BinaryAccuracy(), "error": "mae"}
    for given in (None, mask):
        both, alone = tr.RankingCollection(members).clone(), tr.RankingCollection(members).clone()
        both.update(SCORES, TARGET, exclude=exclude, mask=given)
        alone.update(SCORES, TARGET, mask=~hidden if given is None else ~hidden & given)
        assert both.compute() == alone.compute()
    assert alone.compute()["accuracy"] == pytest.approx(2 / 5)
    with pytest.raises(ValueError, match="a value for each score, with exclude for BinaryAccuracy"):
        both.update(SCORES, torch.tensor([1, 0]), exclude=exclude)
    assert both["mrr"].num_queries == 2


def test_excluded_pairs_outside_of_the_batch_raise_in_compute_only():
    suite, target = tr.RankingCollection({"mrr": "mrr", "accuracy": BinaryAccuracy()}), torch.zeros_like(TARGET)
    target[0, 0] = 1
    suite.update(SCORES, target, exclude=(torch.tensor([0, 5]), torch.tensor([9, 0])))
    assert suite["accuracy"].compute() == BinaryAccuracy()(SCORES, target)
    with pytest.raises(ValueError, match="out of range"):
        suite.compute()


def test_rows_have_no_exclude_beside_a_metric_of_torchmetrics():
    suite, pairs = tr.RankingCollection({"error": MeanAbsoluteError()}), (torch.tensor([0]), torch.tensor([1]))
    with pytest.raises(ValueError, match="Expected no exclude for flat rows, got exclude; leave the rows out, or pass"):
        suite.update(SCORES.flatten(), TARGET.flatten(), exclude=pairs)
    suite.update(SCORES.flatten(), TARGET.flatten(), mask=torch.arange(8) != 1)


@cases("metric", [MeanAbsoluteError, BinaryAccuracy, RetrievalMRR])
def test_weights_for_a_metric_that_takes_none_are_an_error(metric):
    suite = tr.RankingCollection({"mrr": "mrr", "other": metric()})
    indexes = torch.arange(2)[:, None].expand(2, 4)
    with pytest.raises(ValueError, match=f"Expected no weights for {metric.__name__}, whose update takes none"):
        suite.update(SCORES.flatten(), TARGET.flatten(), indexes=indexes.flatten(), weights=torch.tensor([1.0, 2.0]))
    assert suite["mrr"].num_queries == 0


def test_weights_reach_a_metric_that_takes_them():
    class Weighted(MeanMetric):
        def update(self, preds, target, weights=None):
            super().update(preds.amax(-1), 1.0 if weights is None else weights)

    suite = tr.RankingCollection({"mrr": "mrr", "best": Weighted()})
    suite.update(SCORES, TARGET, weights=torch.tensor([1.0, 3.0]))
    assert suite.compute()["best"].item() == pytest.approx((0.9 + 3 * 0.7) / 4)


@cases("method", ["update", "forward"])
def test_calls_that_do_not_fit_a_metric_of_torchmetrics_say_so(method):
    for target in ((torch.tensor([0]), torch.tensor([1])), [torch.tensor([1]), torch.tensor([2])]):
        suite = tr.RankingCollection({"mrr": "mrr", "other": BinaryAccuracy()})
        with pytest.raises(ValueError, match=r"target to be a tensor for BinaryAccuracy, got a (tuple|list)"):
            getattr(suite, method)(SCORES, target)
    for metric in (RetrievalMRR(), Drop()):
        suite = tr.RankingCollection({"mrr": "mrr", "other": metric})
        with pytest.raises(ValueError, match="indexes for RetrievalMRR, got none; pass flat rows preds, target"):
            getattr(suite, method)(SCORES, TARGET)
        assert suite["mrr"].num_queries == 0
        rows = {"indexes": torch.arange(2).repeat_interleave(4)}
        getattr(suite, method)(SCORES.flatten(), TARGET.flatten(), **rows)
        torch.testing.assert_close(suite.compute()["other"], suite.compute()["mrr"])


def test_a_wrapper_of_our_metric_takes_its_targets_and_gives_several_values():
    suite = tr.RankingCollection({"range": MinMaxMetric(tr.MRR()), "mrr": "mrr"}, prefix="v/")
    suite.update(SCORES, (torch.tensor([0, 1]), torch.tensor([1, 3])))
    values = suite.compute()
    assert list(values) == ["v/range_raw", "v/range_max", "v/range_min", "v/mrr"]
    assert values["v/range_raw"] == values["v/mrr"]
