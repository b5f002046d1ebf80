"""Propensity-scored measures: the values of papers and pyxclib, in every layout that has grades."""

import math
import warnings

import numpy as np
import pytest
import torch

import torchrank as tr


def data(seed, queries=40, items=30):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(queries, items, generator=generator)
    target = (torch.rand(queries, items, generator=generator) < 0.15).int()
    target[:, 0] |= target.sum(-1) == 0  # pyxclib divides by how many there are
    counts = torch.randint(0, 500, (items,), generator=generator)
    return scores, target, tr.propensities(counts, num_samples=2000)


def flags(order, target, inverse, k):
    """[query, rank]: inverse propensities of relevant items, in the order of the scores."""
    places = np.argsort(-order, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(target * inverse, places, axis=1)


def pyxclib(scores, target, inverse, k):
    """Its psprecision and psndcg at k, from their formulas."""
    found, best = flags(scores, target, inverse, k), flags(target * inverse, target, inverse, k)
    discount = 1 / np.log2(np.arange(k) + 2)
    most = [math.fsum(1 / math.log2(rank + 1) for rank in range(1, min(int(n), k) + 1)) for n in target.sum(1)]
    dcg = [np.mean((x * discount).sum(1) / most) for x in (found, best)]
    return found.sum() / best.sum(), dcg[0] / dcg[1], (found @ discount).sum() / (best @ discount).sum()


@pytest.mark.parametrize("k", [1, 3, 5, 10])
def test_the_ratios_of_sums_are_those_of_pyxclib_and_of_the_paper(k):
    psp, scaled, pooled = tr.PSP(k, average="pooled"), tr.PSNDCG(k, average="scaled"), tr.PSNDCG(k, average="pooled")
    parts = [data(seed) for seed in range(3)]
    propensity = parts[0][2]
    for scores, target, _ in parts:
        for metric in (psp, scaled, pooled):
            metric.update(scores, tr.inverse_propensity(target, propensity))
    scores, target = (torch.cat([part[i] for part in parts]).double().numpy() for i in (0, 1))
    expected = pyxclib(scores, target, 1 / propensity.numpy(), k)
    for metric, want in zip((psp, scaled, pooled), expected):
        sums = metric.sums
        assert (sums[0] / sums[1]).item() == pytest.approx(want, rel=1e-12)
        assert metric.compute().item() == pytest.approx(want, rel=1e-6)


def test_propensities_are_those_of_the_paper():
    """One over the values of pyxclib's compute_inv_propesity."""
    counts, a, b = np.array([0, 3, 70, 1000]), 0.6, 2.6
    inverse = 1 + (math.log(5000) - 1) * (b + 1) ** a * (counts + b) ** -a
    np.testing.assert_allclose(tr.propensities(torch.from_numpy(counts), 5000, a=a, b=b).numpy(), 1 / inverse)


@pytest.mark.parametrize("metric", [tr.PSP(3), tr.PSNDCG(3), tr.IPS(3), tr.IPS(3, self_normalized="query")], ids=str)
def test_every_layout_says_the_same(metric):
    scores, target, propensity = data(7)
    lists = [row.nonzero().flatten() for row in target]
    width = max(map(len, lists))
    padded = torch.stack([torch.nn.functional.pad(row, (0, width - len(row)), value=-1) for row in lists])
    pairs = tuple(target.nonzero().T)
    triples = (*pairs, torch.ones(len(pairs[0])))
    expected = metric.score(scores, tr.inverse_propensity(target, propensity))
    for given in (lists, padded, pairs, triples):
        grades = tr.inverse_propensity(given, propensity)
        torch.testing.assert_close(metric.score(scores, grades), expected, rtol=1e-12, atol=0)
        ids = scores.argsort(dim=-1, descending=True)
        torch.testing.assert_close(metric.score(ids, grades), expected, rtol=1e-12, atol=0)
    of_queries = propensity.expand(len(scores), -1)
    torch.testing.assert_close(metric.score(scores, tr.inverse_propensity(lists, of_queries)), expected)
    label = torch.where(torch.arange(len(scores)) % 5 == 0, -1, target.argmax(-1))
    dense = torch.zeros_like(scores).scatter(1, label.clamp_min(0)[:, None], (label >= 0).float()[:, None])
    found, want = (metric.score(scores, tr.inverse_propensity(x, propensity)) for x in (label, dense))
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize("discount", ["none", "log2", "reciprocal"])
def test_the_estimate_is_unbiased(discount):
    """The mean over all possible observations is the measure of the relevant items."""
    scores = torch.tensor([[0.9, 0.8, 0.3, 0.1]])
    relevant, propensity = torch.tensor([1, 0, 1, 1]), torch.tensor([0.5, 0.9, 0.2, 0.7], dtype=torch.float64)
    metric, whole = tr.IPS(3, discount=discount), tr.IPS(3, discount=discount).score(scores, relevant[None])
    expected = 0.0
    for observed in torch.cartesian_prod(*[torch.tensor([0, 1])] * 4):
        chance = torch.where(observed > 0, propensity, 1 - propensity).prod()
        expected += chance * metric.score(scores, tr.inverse_propensity((observed * relevant)[None], propensity))
    torch.testing.assert_close(expected, whole)
    if discount == "log2":
        torch.testing.assert_close(whole, tr.DCG(3).score(scores, relevant[None]))


def test_self_normalised_counts_relevant_items_beyond_the_cutoff():
    scores, target, propensity = data(3)
    grades = tr.inverse_propensity(target, propensity)
    got = tr.IPS(2, self_normalized=True)
    got.update(scores, grades)
    found = torch.where(scores.argsort(-1, descending=True).argsort(-1) < 2, grades, 0.0)
    assert got.compute().item() == pytest.approx((found.sum() / grades.sum()).item(), rel=1e-6)
    ranking = tr.Ranking.from_score_blocks([scores], tuple(target.nonzero().T), top_k=2)
    flat = tr.Ranking.from_scores(scores, target)
    metric = tr.IPS(2, self_normalized="query")
    torch.testing.assert_close(metric.score(ranking), metric.score(flat))


def test_wrong_arguments_are_refused():
    scores, target, propensity = data(1)
    clicks, seen, order = target.flatten() > 0, torch.rand(target.numel()) + 0.1, torch.rand(target.numel())
    ones = torch.ones(3)
    last = [torch.cat([propensity[:-1], propensity.new_tensor([x])]) for x in (0, -1, math.nan)]
    for message, call in (
        ("average", lambda: tr.PSP(average="scaled")),
        ("discount", lambda: tr.IPS(discount="rank")),
        ("self_normalized", lambda: tr.IPS(self_normalized="pooled")),
        ("num_samples", lambda: tr.propensities(ones, 2)),
        (r"Expected counts to be .* got \[3, 2\]", lambda: tr.propensities(torch.ones(3, 2), 100)),
        ("Expected counts to be .* got NoneType", lambda: tr.propensities(None, 100)),
        ("Expected a to be a number > 0, got 0", lambda: tr.propensities(ones, 100, a=0)),
        ("Expected b to be a number > 0, got 0", lambda: tr.propensities(ones, 100, b=0)),
        ("propensities", lambda: tr.inverse_propensity(target, torch.ones(30, dtype=torch.int64))),
        ("Expected grades", lambda: tr.inverse_propensity(torch.rand(3, 4), propensity)),
        ("of flat rows, pass target / propensities to the metric", lambda: tr.inverse_propensity(clicks, seen)),
        *(
            ("propensities > 0", lambda wrong=wrong: tr.inverse_propensity(target, wrong))
            for wrong in (propensity * 0, -propensity, propensity * math.nan, *last)
        ),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()
    flat = tr.IPS(3).score(order, clicks / seen, group_sizes=[target.shape[1]] * len(target))
    dense = tr.inverse_propensity(clicks.view(target.shape), seen.view(target.shape))
    torch.testing.assert_close(flat, tr.IPS(3).score(order.view(target.shape), dense))
    metric = tr.PSP(3)
    metric.update(scores, tr.inverse_propensity((torch.tensor([0, 99]), torch.tensor([30, 1])), propensity))
    with pytest.raises(ValueError, match="2 labels"):
        metric.compute()


def test_inverse_propensities_keep_grades_that_are_no_relevance():
    p = torch.tensor([0.5, 0.25, 0.125])
    dense = tr.inverse_propensity(torch.tensor([[math.nan, 1, 0], [-1.0, 0, 2]]), p)
    assert dense.flatten().tolist() == pytest.approx([math.nan, 4, 0, -1, 0, 16], nan_ok=True)
    with pytest.raises(ValueError, match="NaN"):
        tr.PSP(1).score(torch.rand(2, 3), dense)
    pairs = (torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([-1.0, 1.0]))
    assert tr.inverse_propensity(pairs, p)[2].tolist() == [-1, 4]
    for empty in (torch.empty(0, dtype=torch.int64), torch.empty((0, 2), dtype=torch.int64)):
        assert [len(part) for part in tr.inverse_propensity(empty, p)] == [0, 0, 0]
    with pytest.raises(ValueError, match=r"ids \[query\]"):
        tr.inverse_propensity(torch.tensor([True, False]), p)


def test_clicks_in_flat_rows_are_not_read_as_items_without_a_warning():
    clicks, seen, scores = torch.tensor([0, 1, 1, 0]), torch.tensor([0.5, 0.25, 0.5, 0.1]), torch.rand(4)
    with pytest.warns(UserWarning, match=r"clicks in flat rows, pass target / propensities to the metric"):
        tr.inverse_propensity(clicks, seen)
    assert tr.IPS().score(scores, clicks / seen, indexes=torch.tensor([0, 0, 1, 1])).tolist() == [4, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tr.inverse_propensity(torch.tensor([0, 1, 2, 0]), seen)  # items
        tr.inverse_propensity(torch.tensor([0, 1, 1]), seen)


def test_one_is_true_for_the_self_normalised():
    assert tr.IPS(self_normalized=1).label == tr.IPS(self_normalized=True).label == "ips(self_normalized=True)"
    assert tr.IPS(self_normalized=0).label == "ips"


@pytest.mark.parametrize("name", ["ips", "snips", "psp", "psndcg"])
def test_clicks_without_propensities_are_noticed(name):
    scores, clicks = torch.tensor([[0.9, 0.8, 0.1]]), torch.tensor([[1, 0, 1]])
    metric = tr.parse(f"{name}@2")
    for target in (clicks, clicks.float(), [torch.tensor([0, 2])], torch.tensor([2])):
        with pytest.warns(UserWarning, match=r"1 / propensity .*torchrank.inverse_propensity\(target, propensities\)"):
            metric.score(scores, target)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            metric.score(scores, tr.inverse_propensity(target, torch.tensor([0.5, 0.25, 0.125])))
            metric.score(scores, torch.zeros(1, 3))


@pytest.mark.parametrize(("clicks", "warned"), [([0, 1], False), ([0, 1, 1], True), ([0, 2, 1], False)])
def test_flags_with_a_propensity_each_are_noticed(clicks, warned):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tr.inverse_propensity(torch.tensor(clicks), torch.ones(len(clicks)))
    assert [str(one.message)[:40] for one in found] == ["Read target as the relevant item of each"] * warned
