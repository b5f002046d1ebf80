"""A cutoff such as "10%" is for each query the integer of its list, for every measure that can be cut."""

import copy
import functools
import math
import pickle

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.random_batches import rng
from torchrank.metrics.item_lists import PerUserMetric
from torchrank.names.parse import required

LENGTHS = [30, 7, 1, 0, 10, 11, 21, 30, 3]
CUTTABLE = {
    name: cls
    for name, cls in tr.RankingMetric.registry.items()
    if cls.__module__.startswith("torchrank.") and not required(cls) and cls.takes_top_k
    if isinstance(cls.declared["top_k"], type(tr.RankingMetric.declared["top_k"]))
}
POLICIES = [{}, {"ties": "optimistic"}, {"unjudged": "condensed"}]


def lists(levels=8):
    """Scores with ties and grades of lists of other lengths, some of them unjudged."""
    scores = torch.randint(0, levels, (len(LENGTHS), 30), generator=rng(1)).float()
    grades = torch.randint(-1, 3, scores.shape, generator=rng(2))
    return scores, grades, torch.arange(30) < torch.tensor(LENGTHS).unsqueeze(-1)


def test_the_usual_measures_can_be_cut_at_a_share():
    assert {"precision", "recall", "hitrate", "mrr", "map", "ndcg", "dcg", "f1", "rbp", "err"} <= set(CUTTABLE)


@functools.cache
def ranked():
    return tr.Ranking.from_scores(*lists()[:2], mask=lists()[2])


@functools.cache
def taken(*queries):
    """Some of these lists, ranked once for all measures."""
    return ranked().take(torch.tensor(queries))


def policy_of(name):
    """One of the policies that a measure knows, in turn."""
    cls, turn = CUTTABLE[name], [*CUTTABLE].index(name)
    known = [one for one in POLICIES if one.get("ties", "expected") in cls.policies]
    known = [one for one in known if one.get("unjudged", "irrelevant") in cls.takes_unjudged_for]
    return known[turn % len(known)] if known else {}


@cases("name", CUTTABLE)
def test_a_share_is_the_cutoff_that_it_means_in_each_list(name):
    more = policy_of(name)
    _, grades, mask = lists()
    metric = tr.parse(f"{name}@20%", **more)
    assert (metric.label, tr.parse(metric.label).label) == (metric.label, metric.label)
    assert metric.label.endswith("@20%")
    listed = mask & (grades >= 0) if more.get("unjudged") == "condensed" else mask
    cuts = (-(-listed.sum(-1) // 5)).clamp_min(1)
    got, want = metric.score(ranked()), torch.zeros(len(LENGTHS), dtype=torch.float64)
    for k in cuts.unique().tolist():
        some = cuts == k
        want[some] = tr.parse(f"{name}@{k}", **more).score(taken(*some.nonzero().flatten().tolist()))
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14, equal_nan=True)
    metric.update(ranked())
    mean = got[~got.isnan()].mean().item()
    assert metric.compute().item() == pytest.approx(mean, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("share", ["1%", "2.5%", "33%", "50%", "100%", "0.7%", "7%"])
def test_the_cutoff_is_rounded_up_without_the_error_of_floats(share):
    number = round(float(share[:-1]) * 10)
    for length in (1, 10, 100, 1000):
        k = max(1, -(-length * number // 1000))
        ranking = tr.Ranking.from_ranks(torch.tensor([min(k, length)]), length)
        assert tr.parse(f"hitrate@{share}").score(ranking) == 1
        if k < length:
            assert tr.parse(f"hitrate@{share}").score(tr.Ranking.from_ranks(torch.tensor([k + 1]), length)) == 0


def test_a_collection_and_its_copies_cut_each_list():
    scores, grades, mask = lists()
    names = "ndcg@20%, ndcg@3, recall@20%,5, mrr"
    suite = tr.RankingCollection(names, keys="identifier")
    assert list(suite) == ["ndcg_at_20pct", "ndcg_at_3", "recall_at_20pct", "recall_at_5", "mrr"]
    suite.update(scores, grades, mask=mask)
    values = {key: tr.parse(x.label).score(scores, grades, mask=mask).nanmean() for key, x in suite.items()}
    torch.testing.assert_close(suite.compute(), {key: value.float() for key, value in values.items()})
    again = pickle.loads(pickle.dumps(copy.deepcopy(suite)))
    again.update(scores, grades, mask=mask)
    assert again.compute() == suite.compute()


def test_labels_of_catalogues_and_lists_of_ids_are_cut_alike():
    scores, labels = torch.rand(5, 40, generator=rng(3)), torch.tensor([3, 0, -1, 39, 7])
    for name in ("hitrate", "mrr", "ndcg"):
        share, cut = tr.parse(f"{name}@10%"), tr.parse(f"{name}@4")
        assert share.score(scores, labels).equal(cut.score(scores, labels))
        ids = scores.argsort(descending=True)
        assert share.score(ids, labels).equal(cut.score(ids, labels))


def test_bounds_over_unjudged_candidates_are_those_of_the_integer():
    scores, grades, _ = lists()
    for bound in ("lower", "upper"):
        share, cut = (tr.parse(f"precision@{k}", unjudged=bound) for k in ("10%", 3))
        torch.testing.assert_close(share.score(scores, grades), cut.score(scores, grades))


def test_what_is_no_share_or_cannot_be_cut_is_refused():
    for text in ("0%", "100.1%", "-5%", "%", "ten%", "1-5%"):
        with pytest.raises(ValueError, match="integer >= 1, a share as '10%'"):
            tr.HitRate(text)
    with pytest.raises(ValueError, match="lengths of all lists for hitrate@10%, got none; pass num_candidates"):
        tr.parse("hitrate@10%").score(tr.Ranking.from_ranks(torch.tensor([1, 2])))
    with pytest.raises(ValueError, match="Expected the lengths of all lists for recall@50%"):
        tr.parse("recall@50%").score(tr.Ranking.from_ranks(torch.tensor([[1], [3]]), torch.tensor([4, math.nan])))
    with pytest.raises(ValueError, match="whose cutoff depends on the list"):
        tr.difference_bounds("recall@10%", torch.rand(2, 9), torch.rand(2, 9), torch.ones(2, 9).long())
    for cls in (cls for cls in PerUserMetric.registry.values() if cls.takes_top_k and not required(cls)):
        with pytest.raises(ValueError, match="top_k"):
            cls("10%")
