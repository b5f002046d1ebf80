"""Two rankings compared: against scipy, torchmetrics, the package rbo's values, and examples from the papers."""

import copy
import math
import random

import pytest
import torch
from torchmetrics.functional import kendall_rank_corrcoef

import torchrank as tr
from tests.support import oracles_compare
from tests.support.cases import cases
from tests.support.optional import stats
from torchrank.layouts.checks import Problem
from torchrank.metrics.rank_correlation import larger_before


def two_rankings(width, levels, seed=0, queries=5):
    generator = torch.Generator().manual_seed(seed)
    if levels is None:
        return torch.rand((2, queries, width), generator=generator, dtype=torch.float64)
    return torch.randint(-levels, levels, (2, queries, width), generator=generator).double()


# scipy imports its parts when they are used: not in each process that runs tests.
SCIPY = {
    "kendalltau": lambda x, y: stats.kendalltau(x, y),
    "kendalltau(variant=c)": lambda x, y: stats.kendalltau(x, y, variant="c"),
    "weightedtau": lambda x, y: stats.weightedtau(x, y),
    "weightedtau(weigh_by=preds)": lambda x, y: stats.weightedtau(x, y, rank=None),
    "weightedtau(weigh_by=target)": lambda x, y: stats.weightedtau(y, x, rank=None),
    "spearman": lambda x, y: stats.spearmanr(x, y),
}


@cases("label", SCIPY)
@cases("levels", [None, 3, 1])
@cases("width", [2, 33, 1100])
@pytest.mark.filterwarnings("ignore")
def test_scipy(label, levels, width):
    preds, target = two_rankings(width, levels)
    want = [SCIPY[label](x.numpy(), y.numpy()).statistic for x, y in zip(preds, target)]
    got = tr.parse(label).score(preds, target)
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-12, equal_nan=True)
    preds[1:3, ::3] = -math.inf
    mask = torch.rand(preds.shape, generator=torch.Generator().manual_seed(1)) < 0.8
    mask[::2] = True
    want = []
    for x, y, kept in zip(preds.clamp_min(-1e9), target, mask):
        want.append(SCIPY[label](x[kept].numpy(), y[kept].numpy()).statistic if kept.sum() > 1 else math.nan)
    got = tr.parse(label).score(preds, target, mask=mask)
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("levels", [None, 4])
@pytest.mark.parametrize("variant", ["gamma", "b", "c"])
def test_torchmetrics(levels, variant):
    preds, target = two_rankings(40, levels)
    want = kendall_rank_corrcoef(preds.T, target.T, variant="a" if variant == "gamma" else variant)
    torch.testing.assert_close(tr.KendallTau(variant=variant).score(preds, target), want.double(), rtol=0, atol=1e-6)


def test_ap_correlation_equals_the_r_package():
    # The example of the package ircor, of the authors of tau_AP,a: truth first there.
    x = [0.67, 0.45, 0.29, 0.12, 0.57, 0.24, 0.94, 0.75, 0.08, 0.54]
    y = [0.48, 0.68, 0.32, 0.09, 0.06, 0.61, 0.87, 0.22, 0.44, 0.84]
    rounded = [round(value, 1) for value in y]
    got = tr.APTau().score(torch.tensor([y, rounded]), torch.tensor([x, x]))
    assert got.tolist() == pytest.approx([0.3928571, 0.39903], abs=1e-6)


@cases("width", [0, 1, 2, 31, 32, 33, 1000, 1024, 1025, 2500])
def test_inversions(width):
    order = torch.rand((3, width), generator=torch.Generator().manual_seed(0)).argsort(-1)
    want = (order.unsqueeze(1) > order.unsqueeze(2)).tril().sum(-1)
    assert torch.equal(larger_before(order), want)


# ---- two lists of ids ------------------------------------------------------------------------------------------------


def shares(ids):
    return oracles_compare.shares({name: float(place) for place, name in enumerate(ids)}, "a")


@pytest.mark.parametrize("p", [0.5, 0.9, 0.98])
def test_rank_biased_overlap_of_uneven_lists(p):
    generator = torch.Generator().manual_seed(0)
    for length, other_length, pool in ((5, 5, 5), (3, 8, 12), (9, 2, 10), (1, 1, 2), (6, 7, 40)):
        pool = max(pool, length, other_length)
        one = torch.randperm(pool, generator=generator)[:length]
        other = torch.randperm(pool, generator=generator)[:other_length]
        padded = torch.cat([one[:1], torch.tensor([-1]), one[1:]]).unsqueeze(0)
        short, long = sorted((shares(one.tolist()), shares(other.tolist())), key=len)
        want = oracles_compare.extrapolated(short, long, p, "a")
        for variant in "abw":
            metric = tr.RBO(p=p, variant=variant)
            assert metric.score(tr.Ranking.from_rankings(padded, other[None])).item() == pytest.approx(want, abs=1e-12)
            assert metric.score(tr.Ranking.from_rankings(other[None], padded)).item() == pytest.approx(want, abs=1e-12)


def test_lists_of_ids():
    one, other = torch.tensor([[3, 7, 5], [1, 2, -1]]), torch.tensor([[7, 9, -1, 3], [4, 5, 6, 7]])
    ranking = tr.Ranking.from_rankings(one, other)
    assert tr.Overlap(top_k=2).score(ranking).tolist() == [0.5, 0]
    assert tr.Overlap().score(ranking).tolist() == [2 / 3, 0]
    # Pairs (3, 7), (3, 9) and (5, 9) are in different order, none is tied.
    assert tr.KendallDistance().score(ranking)[0].item() == 3
    # Of two lists without a common id: all 8 pairs across, and half of the 1 and 6 within.
    assert tr.KendallDistance().score(ranking)[1].item() == 8 + (1 + 6) / 2


def test_lists_of_ids_that_cannot_be():
    with pytest.raises(ValueError, match="1 id that occurs more than once"):
        tr.RBO().score(tr.Ranking.from_rankings(torch.tensor([[1, 1]]), torch.tensor([[1, 2]])))
    with pytest.raises(TypeError, match="integer ids"):
        tr.Ranking.from_rankings(torch.tensor([[1.0]]), torch.tensor([[1]]))
    with pytest.raises(ValueError, match="the same number of queries"):
        tr.Ranking.from_rankings(torch.tensor([[1]]), torch.tensor([[1], [2]]))


# Pairs of rankings with ties, "(...)", p, and RBO_ext by the variants "a", "b", "w": from the test data of the authors.
TIED = [
    (
        "(i5 i9 i13 i15 i16 i19 i20) (i3 i8)",
        "i6 (i4 i18) i2 i7 i8 i17 i14 (i11 i12) i1",
        0.958074765324023,
        (0.0808189832771587, 0.0813693619867344, 0.0816485573277354),
    ),
    (
        "i11 (i8 i21) (i2 i18) (i6 i16 i20) (i4 i10)",
        "i8 (i9 i20 i21) (i2 i3) i13 i1 i11 i14 i19",
        0.93912403977192,
        (0.46852753894333, 0.486650566878314, 0.482369482292872),
    ),
]


def groups(text):
    found, inside = [], False
    for word in text.split():
        if inside:
            found[-1].append(word.strip("()"))
        else:
            found.append([word.strip("()")])
        inside = (inside or word.startswith("(")) and not word.endswith(")")
    return {name: float(-place) for place, group in enumerate(found) for name in group}


@pytest.mark.parametrize(("one", "other", "p", "want"), TIED)
def test_rank_biased_overlap_with_ties(one, other, p, want):
    one, other = groups(one), groups(other)
    names = sorted({*one, *other})
    preds = torch.tensor([[one.get(name, -math.inf) for name in names]], dtype=torch.float64)
    target = torch.tensor([[other.get(name, -math.inf) for name in names]], dtype=torch.float64)
    ranking = tr.Ranking.from_scores(preds, target)  # a grade of -inf is counted as bad, and is in no list
    got = [tr.RBO(p=p, variant=variant, validate_args=False).score(ranking).item() for variant in "abw"]
    assert got == pytest.approx(want, abs=1e-12)


def test_two_lists_without_a_column():
    none = torch.empty((2, 0), dtype=torch.int64)
    ranking = tr.Ranking.from_rankings(none, none)
    for cls in (tr.KendallTau, tr.Spearman, tr.WeightedTau, tr.APTau, tr.KendallDistance, tr.RBO, tr.Overlap):
        assert cls().score(ranking).isnan().all(), cls.name


def test_two_lists_of_ids_are_no_layout():
    one, other = torch.tensor([[7, 8, 9, 4]]), torch.tensor([[7, 9, 8, 1]])
    for cls in (tr.KendallTau, tr.KendallDistance, tr.RBO, tr.Overlap):
        with pytest.raises(TypeError, match="from_rankings"):
            cls().score(one, other)
    with pytest.raises(TypeError, match="from_rankings"):
        tr.RankingCollection(["mrr", "rbo"]).update(one, other)
    grades = (torch.zeros(4, dtype=torch.int64), one[0], torch.tensor([3.0, 1, 2, 0]))
    assert tr.KendallTau().score(one, grades).item() == pytest.approx(2 / 3)


def test_truncated_overlap_at_any_depth_takes_little_memory():
    ranking = tr.Ranking.from_rankings(torch.tensor([[1, 2, 3]]), torch.tensor([[2, 1, 4]]))
    far, further = (tr.RBO(k, p=0.8).score(ranking).item() for k in (10**3, 10**13))
    series = math.fsum(0.2 * 0.8 ** (d - 1) * min(2, d) / d for d in range(2, 1000))
    assert far == pytest.approx(series, rel=1e-12)
    assert further == pytest.approx(series, rel=1e-12)


def test_p_mrr_of_changed_documents_is_the_score_that_mteb_takes_of_their_ranks():
    generator = random.Random(3)
    after, before, changed, wanted = [], [], [], []
    for _ in range(50):
        lists = [generator.sample(range(12), generator.randint(0, 8)) for _ in range(2)]
        some = generator.sample(range(14), generator.randint(1, 4))
        new, old = ([ids.index(one) + 1 if one in ids else len(ids) + 1 for one in some] for ids in lists)
        wanted.append(sum(r / o - 1 if o >= r else 1 - o / r for o, r in zip(old, new)) / len(some))
        for rows, ids in zip((after, before, changed), (*lists, some)):
            rows.append(ids + [-1] * (8 - len(ids)))
    ranking = tr.Ranking.from_rankings(*(torch.tensor(rows) for rows in (after, before, changed)))
    torch.testing.assert_close(tr.PMRR().score(ranking), torch.tensor(wanted, dtype=torch.float64))
    # other measures do not read them
    plain = tr.Ranking.from_rankings(torch.tensor(after), torch.tensor(before))
    torch.testing.assert_close(tr.RBO().score(ranking), tr.RBO().score(plain), rtol=0, atol=0, equal_nan=True)


def test_changed_documents_and_subtopics_are_read_for_what_they_are():
    scores, grades = torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[[1], [2], [3]]])
    assert tr.PMRR().score(scores, grades).tolist() == tr.PMRR().score(scores, grades[..., 0]).tolist() == [0.0]
    lists = torch.tensor([[7, 8, 9], [1, 2, -1]]), torch.tensor([[9, 7, 8], [2, 1, 3]])
    changed = tr.Ranking.from_rankings(*lists, torch.tensor([[9, -1], [2, 3]]))
    for name in ("alphandcg", "strecall@2", "erria", "pia@2", "nrbp", "apia"):
        assert tr.parse(name).score(changed).equal(tr.parse(name).score(tr.Ranking.from_rankings(*lists))), name
    with pytest.raises(ValueError, match="with subtopics"):
        changed.with_intents([1.0])
    # from rank 1 to 3; from 1 to 2, and from 3 to the one behind the list, 3
    want = [1 - 1 / 3, (1 - 1 / 2 + 0) / 2]
    joined = tr.Ranking.join([changed, changed.take(slice(1, 2))])
    for ranking in (changed, joined.take([0, 1]), joined.joined.take(slice(0, 2)), copy.deepcopy(changed)):
        assert tr.PMRR().score(ranking).tolist() == pytest.approx(want)
    with pytest.raises(ValueError, match="all have changed, or none"):
        tr.Ranking.join([changed, tr.Ranking.from_rankings(*lists)]).take([0])


def test_p_mrr_skips_a_query_without_changed_documents_and_refuses_others_than_ids():
    after, before = torch.tensor([[1, 2], [1, 2]]), torch.tensor([[2, 1], [2, 1]])
    values = tr.PMRR().score(tr.Ranking.from_rankings(after, before, torch.tensor([[1], [-1]])))
    assert values[0] == -0.5
    assert values[1].isnan()
    for bad in (torch.tensor([[0.5], [1.0]]), torch.tensor([1, 2]), torch.tensor([[1]])):
        with pytest.raises((TypeError, ValueError), match=r"Expected changed (of shape \[2, id\]|with both lists)"):
            tr.Ranking.from_rankings(after, before, bad)


def test_p_mrr_of_a_tie_of_a_million_is_exact():
    # A constant scorer after, the document first before: the mean of 1 - 1 / r over all ranks r.
    n = 1_000_000
    change = 1 - (math.log(n) + 0.5772156649015329 + 1 / (2 * n)) / n
    ranking = tr.Ranking(*(torch.tensor([[x]], dtype=torch.float64) for x in (1.0, n, 1.0)),
                         torch.tensor([[True]]), torch.tensor([float(n)], dtype=torch.float64),
                         torch.zeros(len(Problem), dtype=torch.int64), all_candidates=True, depth=n)  # fmt: skip
    assert tr.PMRR().score(ranking).item() == pytest.approx(change, rel=1e-12)


def test_rank_biased_alignment_has_the_values_of_its_authors():
    # RBStar's tests: phi = 0.8 and ten items, equal, swapped pairwise, reversed
    one = torch.arange(1, 11).unsqueeze(0)
    two = torch.tensor([[2, 1, 4, 3, 6, 5, 8, 7, 10, 9]])
    values = [tr.RBA(p=0.8).score(tr.Ranking.from_rankings(x, one)).item() for x in (one, two, one.flip(-1))]
    assert values == pytest.approx([1 - 0.8**10, 0.887, 0.733], abs=1e-3)


def test_rank_biased_recall_weighs_the_reference_and_not_the_order_of_the_set():
    reference = torch.tensor([[1, 2, 3, 4]])
    for first in ([1, 3, 9], [9, 3, 1]):
        value = tr.RBR(top_k=3, p=0.9).score(tr.Ranking.from_rankings(torch.tensor([first]), reference))
        assert value.item() == pytest.approx(0.1 * (1 + 0.9**2))
