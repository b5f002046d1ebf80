"""Measures of recommended lists: equal to plain Python on ragged lists, however these are split; and to peers."""

import copy
import itertools
import math
import pickle
import random
import warnings

import pytest
import torch
from torch import nn

import torchrank as tr
from tests.support.recommended_lists import (
    BASELINE,
    COUNTS,
    ITEMS,
    METRICS,
    USERS,
    close,
    draw,
    every_metric,
    expected,
    mean,
    of,
    over_list,
    personalization,
    tensors,
    total,
)

# ---- the number ------------------------------------------------------------------------------------------------------


@every_metric
@pytest.mark.parametrize("k", [None, 1, 5, 30])
def test_equal_to_plain_python_however_the_lists_are_split(name, k, monkeypatch):
    if k == 5:  # in blocks
        monkeypatch.setattr("torchrank.metrics.item_lists.BLOCK", 100)
    lists, wanted = draw(k or 0)
    want = expected(name, lists, wanted, k)
    for sizes in ([7, 0, 20, 13], *([[USERS], [1] * 9 + [USERS - 9]] if k is None else [])):
        metric, start = of(name, k), 0
        for size in sizes:
            part = slice(start, start + size)
            metric.update(*tensors(lists[part], wanted[part], random.Random(size)))
            start += size
        close(total(metric), want)
        assert metric.compute().dtype == torch.float32
        close(metric.compute().item(), torch.tensor(total(metric), dtype=torch.float32).item())
        assert metric.num_queries == USERS


def unexpected(k):
    known = set(BASELINE[:k].tolist())
    return over_list(lambda i: float(i not in known))


@pytest.mark.parametrize("k", [None, 2, 5])
def test_unexpectedness(k):
    lists, wanted = draw(4)
    metric = tr.Unexpectedness(k, baseline=BASELINE)
    metric.update(*tensors(lists, wanted))
    close(total(metric), unexpected(k)([found[:k] for found in lists], wanted))
    own = tr.Unexpectedness(k)  # the baseline of each user, which is not cut
    own.update(*tensors(lists, wanted))
    cut = [found[:k] for found in lists]
    close(total(own), mean([len(set(a) - set(b)) / len(a) for a, b in zip(cut, wanted) if a]))


@every_metric
def test_mask_exclude_and_weights(name):
    lists, wanted = draw(3)
    rng = random.Random(1)
    ids, target = tensors(lists, wanted)
    mask = torch.tensor([[rng.random() < 0.7 for _ in row] for row in ids.tolist()])
    pairs = torch.tensor([(q, i) for q in range(USERS) for i in rng.sample(range(ITEMS), 3)]).T
    weights = torch.tensor([float(rng.random() < 0.6) for _ in lists])
    gone = set(map(tuple, pairs.T.tolist()))
    left = [
        [i for i, real in zip(row, real_row) if i >= 0 and real and ((q, i) not in gone or i in wanted[q])]
        for q, (row, real_row) in enumerate(zip(ids.tolist(), mask.tolist()))
    ]
    metric = of(name, 3)
    metric.update(ids, target, mask=mask, exclude=tuple(pairs), weights=weights)
    kept = [q for q in range(USERS) if weights[q]]
    close(total(metric), expected(name, [left[q] for q in kept], [wanted[q] for q in kept], 3))


def test_weights_count_as_often():
    lists, wanted = draw(6)
    ids, target = tensors(lists, wanted)
    times = torch.arange(USERS) % 4
    for name in METRICS:
        if name == "personalization":  # where a list and its copy are a pair
            continue
        weighted, repeated = of(name, 5), of(name, 5)
        weighted.update(ids, target, weights=times)
        order = [q for q in range(USERS) for _ in range(int(times[q]))]
        repeated.update(ids[order], [target[q] for q in order])
        close(total(weighted), total(repeated))


def test_weights_of_pairs():
    lists, wanted = draw(6, 12)
    lists = [found or [1] for found in lists]
    weights = [0.5 + q % 3 for q in range(12)]
    metric = tr.Personalization(num_items=ITEMS)
    metric.update(*tensors(lists, wanted), weights=torch.tensor(weights))
    pairs = list(itertools.combinations(range(12), 2))
    value = math.fsum(weights[u] * weights[v] * personalization([lists[u], lists[v]], None) for u, v in pairs)
    close(total(metric), value / math.fsum(weights[u] * weights[v] for u, v in pairs))


@pytest.mark.parametrize("weight", [2.0**-400, 2.0**400])
def test_personalization_is_the_same_for_lists_of_any_equal_weight(weight):
    ids = torch.tensor([[0, 1], [1, 4], [2, 4]])
    metric = tr.Personalization(num_items=5)
    metric.update(ids, weights=torch.full((3,), weight, dtype=torch.float64))
    assert metric.compute().item() == pytest.approx(1 - 2 * (1 / 2 + 1 / 2 + 0) / 6)
    metric.reset()
    metric.update(ids[:1])
    assert metric.compute().isnan()  # one list has no pair


@every_metric
def test_nothing_and_empty_lists(name):
    metric = of(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert metric.compute().isnan()
    metric.update(torch.empty(0, 3, dtype=torch.int64), [])
    metric.update(torch.empty(2, 0, dtype=torch.int64), [torch.tensor([1])] * 2)
    metric.update(torch.full((3, 2), -1), [torch.tensor([1])] * 3)
    assert metric.compute().isnan()
    assert (metric.num_queries, metric.num_empty) == (5, 5)


def test_score_and_aggregation():
    lists, wanted = draw(8)
    ids, target = tensors(lists, wanted)
    for make in (METRICS[name][0] for name in METRICS if hasattr(METRICS[name][0](None), "score")):
        metric = make(5)
        values = metric.score(ids, target)
        assert values.dtype == torch.float64
        if metric.name == "popularitylift":  # whose mean is weighted
            continue
        metric.update(ids, target)
        close(total(metric), values.nanmean().item())
    values = tr.Popularity(5, interactions=COUNTS).score(ids)
    median = tr.Popularity(5, interactions=COUNTS, aggregation="median")
    median.update(ids)
    assert median.label == "popularity(aggregation=median)@5"
    assert median.compute().item() == pytest.approx(values[~values.isnan()].median().item())
    each = tr.Popularity(5, interactions=COUNTS, aggregation="none")
    each.update(ids)
    torch.testing.assert_close(each.compute(), values.float(), equal_nan=True)


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


# ---- peers -----------------------------------------------------------------------------------------------------------


def test_equal_to_the_examples_of_rectools():
    interactions = torch.tensor([3, 2, 0, 0])
    ids, target = torch.tensor([[0, 1], [1, 2], [2, -1], [1, 2]]), [[0, 1], [1, 2], [1], [1]]
    target = [torch.tensor(x) for x in target]
    for k, want in ((1, [0, 0.25, 0, 0.25]), (2, [0, 0.5, 0, 0.125])):
        value = tr.Serendipity(k, interactions=interactions).score(ids, target)
        torch.testing.assert_close(value, torch.tensor(want, dtype=torch.float64))
    novelty = tr.Novelty(3, interactions=torch.tensor([0, 3, 1, 0]), num_users=3)
    value = novelty.score(torch.tensor([[3, -1], [2, 3], [1, 2]]))
    torch.testing.assert_close(value, torch.tensor([1.5849625, 1.5849625, 0.79248125], dtype=torch.float64))
    tags = torch.tensor([[0, 0], [0, 1], [1, 1], [0, 0]], dtype=torch.bool)
    value = tr.IntraListDiversity(2, categories=tags).score(torch.tensor([[0, 1, 2], [0, 3, -1]]))
    torch.testing.assert_close(value * 2, torch.tensor([1.0, 0], dtype=torch.float64))  # which counts features
    lists, nothing = torch.tensor([[1, 2, -1, -1, -1], [1, 2, 3, -1, -1], [1, 2, 3, 4, 5]]), torch.full((3,), -1)
    for k, whole, want in ((1, True, [1, 1, 1]), (4, True, [0, 0, 1]), (4, False, [0.5, 0.75, 1])):
        assert tr.Filled(k, whole=whole).score(lists, nothing).tolist() == want
    repeating = torch.tensor([[1, 2, -1, -1, -1], [1, 1, 3, -1, -1], [1, 2, 2, 1, 5]])
    for k, whole, want in ((1, True, [1, 1, 1]), (4, True, [1, 0, 0]), (4, False, [1, 2 / 3, 1 / 2])):
        assert tr.Unrepeated(k, whole=whole).score(repeating).tolist() == pytest.approx(want)
    served = tr.Filled().score(torch.tensor([[1, 2], [1, -1], [-1, -1], [-1, -1]]), torch.full((4,), 1))
    assert served.nan_to_num(nan=9).tolist() == [1, 1, 0, 0]
    popularity = tr.Popularity(3, interactions=torch.tensor([0, 3, 2, 1]), normalize=True)
    value = popularity.score(torch.tensor([[1, 2, -1], [3, 1, 2], [3, 2, -1]]))
    assert value.tolist() == pytest.approx([2.5 / 6, 2 / 6, 1.5 / 6])


def test_equal_to_the_examples_of_replay():
    ids = torch.tensor([[3, 7, 10, 11, 2], [5, 8, 11, 1, 3], [4, 9, 2, -1, -1]])
    users = torch.tensor([0, 1, 2, 1, 1, 2, 1, 0, 2, 2, 0, 1])  # of items 0 to 11
    value = tr.Novelty(2, interactions=users, num_users=3, normalize=True).score(ids)
    torch.testing.assert_close(value, torch.tensor([1.0, 0.3690702464285426, 0.6845351232142713], dtype=torch.float64))
    value = tr.Unexpectedness(2, baseline=torch.tensor([2, 3, 7])).score(ids[:1])
    torch.testing.assert_close(value, torch.tensor([0.5], dtype=torch.float64))
    for k, want in ((3, [1, 1, 1]), (5, [1, 1, 0.6])):
        assert tr.CategoricalDiversity(k, categories=torch.arange(12)).score(ids).tolist() == pytest.approx(want)
    base = torch.tensor([[2, 3, 7, -1], [5, 8, 3, -1], [4, 9, -1, -1]])
    known = [[5, 6, 8, 9, 2], [5, 8, 11, 1, 3], [4, 9, 2]]  # RePlay's data of training
    for target, want in ((base[:, :2], [0.5, 0, 0]), ([torch.tensor(items) for items in known], [1, 0, 0])):
        assert tr.Unexpectedness(2).score(ids, target).tolist() == want
