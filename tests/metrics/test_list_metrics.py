"""Measures of recommended lists as metrics: errors, collections, catalogues that differ, copies and checkpoints."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torchmetrics import MetricCollection

import torchrank as tr
from tests.support.recommended_lists import (
    COUNTS,
    ITEMS,
    KINDS,
    METRICS,
    TAGS,
    USERS,
    VECTORS,
    close,
    draw,
    every_metric,
    expected,
    of,
    tensors,
    total,
)


def test_a_collection_takes_a_batch_as_a_whole_or_not_at_all():
    suite = tr.RankingCollection(["mrr", tr.Coverage(3, num_items=4), tr.Popularity(interactions=COUNTS)])
    for method in (suite.update, suite.forward):
        with pytest.raises(TypeError, match=r"scores.topk\(k\).indices"):
            method(torch.rand(2, 3), torch.tensor([0, 1]))
    assert [metric.num_queries for metric in suite.values()] == [0, 0, 0]
    ids, target = torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])
    scores = suite.score(ids, target)
    assert scores.keys() == {"mrr", "popularity"}  # coverage has no value for each list
    assert torch.equal(scores["popularity"], suite["popularity"].score(ids))
    layout = {"exclude": (torch.tensor([0]), torch.tensor([1])), "mask": torch.tensor([[True, True], [True, False]])}
    hidden = suite.score(ids, target, **layout)["popularity"]
    assert torch.equal(hidden, suite["popularity"].score(ids, target, **layout))
    assert not (hidden == scores["popularity"]).any()


def test_parameters_in_the_name_of_the_state_are_fixed():
    for metric in (tr.Coverage(3, num_items=4), tr.Novelty(interactions=COUNTS, num_users=20)):
        with pytest.raises(AttributeError, match="make a new metric"):
            metric.top_k = 5
    with pytest.raises(AttributeError, match="make a new metric"):
        metric.normalize = True


def test_bad_values_raise_in_compute_and_all_can_go_on():
    for name in METRICS:
        metric = of(name)
        metric.update(torch.tensor([[1, 2]]), [torch.tensor([1])])
        before = metric.sums.clone()
        value = metric(torch.tensor([[1, ITEMS], [4, 4]]), [torch.tensor([1])] * 2)
        assert value.isnan()
        with pytest.raises(ValueError, match=r"1 label, id .* out of range; .*; 1 id that occurs more than once"):
            metric.compute()
        metric.reset()
        metric.update(torch.tensor([[1, 2]]), [torch.tensor([1])])
        assert torch.equal(metric.sums, before)
    loose = tr.Coverage(num_items=4, validate_args=False)
    loose.update(torch.tensor([[1, 9]]))
    assert loose.compute() == 0.25


def test_wrong_arguments_are_refused():
    wrong = [
        (ValueError, "num_items", lambda: tr.Coverage(num_items=0)),
        (ValueError, "num_items", lambda: tr.Gini(num_items=2.5)),
        (ValueError, "top_k", lambda: tr.Coverage(0, num_items=3)),
        (TypeError, "aggregation", lambda: tr.Coverage(num_items=3, aggregation="median")),
        (ValueError, "patience", lambda: tr.Gini(num_items=3, discount="geometric", patience=1.5)),
        (ValueError, "patience", lambda: tr.Gini(num_items=3, patience=0.5)),
        (ValueError, "discount", lambda: tr.Entropy(num_items=3, discount="log3")),
        (ValueError, "log_base", lambda: tr.Entropy(num_items=3, log_base=3, normalize=True)),
        (ValueError, "interactions", lambda: tr.Popularity(interactions=torch.tensor([1.0, -1]))),
        (ValueError, "tensor .item., .* got str", lambda: tr.Popularity(interactions="12")),
        (ValueError, "num_users", lambda: tr.Novelty(interactions=torch.tensor([5, 1]), num_users=4)),
        (ValueError, "both", lambda: tr.IntraListDiversity(embeddings=VECTORS, categories=KINDS)),
        (ValueError, "neither", lambda: tr.IntraListDiversity()),
        (TypeError, "categories", lambda: tr.IntraListDiversity(categories=VECTORS)),
        (TypeError, "embeddings", lambda: tr.IntraListDiversity(embeddings=KINDS)),
        (ValueError, "embeddings to be finite", lambda: tr.IntraListDiversity(embeddings=VECTORS / 0)),
        (TypeError, "long_tail", lambda: tr.APLT(long_tail=COUNTS)),
        (TypeError, "long_tail", lambda: tr.TailCoverage(long_tail=TAGS)),
        (TypeError, "categories", lambda: tr.CategoricalDiversity(categories=TAGS)),
        (ValueError, "Expected target", lambda: tr.Unexpectedness().update(torch.tensor([[1]]))),
        (TypeError, "normalize", lambda: tr.PopularityLift(interactions=COUNTS, normalize=True)),
        (TypeError, "baseline", lambda: tr.Unexpectedness(baseline=VECTORS)),
        (ValueError, "Expected target", lambda: tr.Serendipity(interactions=COUNTS).update(torch.tensor([[1]]))),
        (ValueError, "query, position", lambda: tr.Coverage(num_items=3).update(torch.tensor([1]))),
    ]
    for error, message, call in wrong:
        with pytest.raises(error, match=message):
            call()


def test_beside_ranking_metrics():
    lists, wanted = draw(11)
    ids, target = tensors(lists, wanted)
    names = ("coverage", "serendipity", "diversity", "gini")
    suite = tr.RankingCollection(["recall@3", *(of(name, 3) for name in names), "mrr"])
    assert list(suite(ids, target)) == ["recall@3", "coverage@3", "serendipity@3", "diversity@3", "gini@3", "mrr"]
    suite.update(ids[:0], target[:0])
    for copied in (suite, suite.clone(), pickle.loads(pickle.dumps(suite))):
        values = copied.compute()
        for name in names:
            assert values[f"{name}@3"].item() == pytest.approx(expected(name, lists, wanted, 3), rel=1e-6)
    suite.merge_state(suite.clone())
    assert suite.compute()["gini@3"].item() == pytest.approx(expected("gini", lists, wanted, 3), rel=1e-6)
    assert suite["gini@3"].num_queries == 2 * USERS


@pytest.mark.parametrize("build", [MetricCollection, tr.RankingCollection])
def test_other_catalogues_never_merge(build):
    geometric = {"num_items": ITEMS, "discount": "geometric"}
    members = [
        *(tr.Popularity(interactions=counts) for counts in (COUNTS, COUNTS.roll(1))),
        *(tr.Novelty(interactions=COUNTS, num_users=number) for number in (20, 30)),
        *(cls(num_items=ITEMS) for cls in (tr.Coverage, tr.Gini)),
        *(tr.Gini(num_items=ITEMS, discount="log2"), tr.Gini(**geometric), tr.Gini(**geometric, patience=0.5)),
    ]
    assert len({tuple(metric.metric_state) for metric in members}) == len(members)
    suite = build({f"m{i}": metric.clone() for i, metric in enumerate(members)})
    for ids in (torch.tensor([[1]]), torch.tensor([[2, 5, 7], [1, 0, -1]])):
        for metric in (suite, *members):
            metric.update(ids)
    assert list(suite.compute().values()) == [metric.compute() for metric in members]


@every_metric
def test_checkpoint_clone_and_casts(name):
    lists, wanted = draw(12)
    ids, target = tensors(lists, wanted)
    metric = of(name, 4)
    metric.persistent(True)
    metric.update(ids[:10], target[:10])
    twin = of(name, 4)  # of tensors of the same contents, as in another process
    twin.persistent(True)
    assert not set(dict(twin.named_buffers())) & set(metric.state_dict())
    twin.load_state_dict(metric.state_dict())
    copies = [metric, twin, metric.clone(), copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))]
    copies += [metric.clone().to(torch.bfloat16), nn.ModuleList([metric.clone()]).half()[0]]
    for one in copies:
        one.update(ids[10:], target[10:])
        close(total(one), expected(name, lists, wanted, 4))
        one.reset()
        assert one.sums.sum() == 0


def test_buffers_follow_the_device():
    metric = tr.IntraListDiversity(embeddings=VECTORS).to("meta")
    assert metric.embeddings.device.type == "meta"
    assert metric.sums.device.type == "meta"


def test_contents_name_the_state_not_the_tensor():
    one, other = tr.Popularity(interactions=COUNTS), tr.Popularity(interactions=COUNTS.clone())
    assert one.metric_state.keys() == other.metric_state.keys()
    assert one.label == "popularity"
    assert tr.Gini(10, num_items=5, discount="geometric", patience=0.5).label == (
        "gini(discount=geometric,patience=0.5)@10"
    )


def test_state_does_not_grow():
    metric = tr.Personalization(num_items=ITEMS)
    sizes = set()
    for seed in range(20):
        metric.update(tensors(*draw(seed))[0])
        sizes.add(metric.sums.numel())
    assert len(sizes) == 1
