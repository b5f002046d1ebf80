"""Measures of recommended lists: as metrics; lists that are short or repeat items, beside profiles; Lorenz curves."""

import itertools
import math

import pytest
import torch
from torchmetrics import MetricCollection

import torchrank as tr
from tests.support.cases import cases
from tests.support.recommended_lists import COUNTS, ITEMS, KINDS, METRICS, TAGS, VECTORS, of
from tests.support.unread import Largest

LISTS = [[4, 1, 7, 2], [0], [], [3, 0, 5], [9, 8, 2, 1], [6, 2, 3]]
REPEATING = [[4, 1, 4, 4], [0], [], [3, 3, 3], [9, 8, 9, 8], [6, 2, 3]]
CATEGORIES = torch.tensor([5, -2, 5, 0, 5, 0, 7, -2, 0, 5])


def padded(lists):
    return torch.tensor([found + [-1] * (4 - len(found)) for found in lists])


def values(metric, lists, target=None):
    return metric.score(padded(lists), target).tolist()


def same(got, want):
    assert got == pytest.approx([math.nan if value is None else value for value in want], abs=1e-12, nan_ok=True)


def cut_in_python(k, lists, value):
    return [value(found[:k]) if found else None for found in lists]


@pytest.mark.parametrize("whole", [False, True])
def test_it_is_unknown_whether_a_list_of_unknown_length_is_filled(whole):
    assert tr.Filled(2, whole=whole).score(tr.Ranking.from_ranks(torch.tensor([[1], [3]]))).isnan().all()


@pytest.mark.parametrize("k", [None, 1, 2, 3, 9])
def test_a_list_repeats_no_item_or_some(k):
    same(values(tr.Unrepeated(k), REPEATING), cut_in_python(k, REPEATING, lambda ids: len(set(ids)) / len(ids)))
    whole = values(tr.Unrepeated(k, whole=True), REPEATING)
    same(whole, cut_in_python(k, REPEATING, lambda ids: float(len(set(ids)) == len(ids))))


def test_repeated_items_are_left_out_as_asked_and_counted_by_the_share_of_others():
    tail = torch.arange(10) % 3 == 0
    firsts = [list(dict.fromkeys(found)) for found in REPEATING]
    held = [[i if i not in found[:rank] else -1 for rank, i in enumerate(found)] for found in REPEATING]
    for repeats, lists in ("first", firsts), ("hold", held):
        got = tr.ACLT(2, long_tail=tail).score(padded(REPEATING), repeats=repeats).tolist()
        same(got, cut_in_python(2, lists, lambda ids: sum(i % 3 == 0 for i in ids if i >= 0)))
        assert tr.Unrepeated().score(padded(REPEATING), repeats=repeats)[0] == 1 / 2
    with pytest.raises(ValueError, match="more than once"):
        tr.ACLT(2, long_tail=tail).score(padded(REPEATING))


def test_repeated_items_are_no_error_but_weights_below_0_are():
    metric = tr.Unrepeated()
    metric.update(padded(REPEATING), weights=torch.ones(6))
    assert metric.compute().item() == pytest.approx((1 / 2 + 1 + 1 / 3 + 1 / 2 + 1) / 5)
    metric.update(padded(REPEATING), weights=-torch.ones(6))
    with pytest.raises(ValueError, match="6 query weights that are negative"):
        metric.compute()


@pytest.mark.parametrize("k", [None, 1, 3, 9])
def test_categories_are_counted_in_the_first_k(k):
    def share(ids, size):
        return len({int(CATEGORIES[i]) for i in ids}) / size

    fixed, adaptive = (tr.CategoricalDiversity(k, categories=CATEGORIES, adaptive_k=one) for one in (False, True))
    same(values(fixed, LISTS), cut_in_python(k, LISTS, lambda ids: share(ids, k or len(ids))))
    same(values(adaptive, LISTS), cut_in_python(k, LISTS, lambda ids: share(ids, len(ids))))


@pytest.mark.parametrize("k", [None, 2])
def test_long_tail_items_are_counted(k):
    tail = torch.arange(10) % 3 == 0
    same(values(tr.ACLT(k, long_tail=tail), LISTS), cut_in_python(k, LISTS, lambda ids: sum(i % 3 == 0 for i in ids)))


def test_coverage_of_no_tail_is_nan():
    metric = tr.TailCoverage(long_tail=torch.zeros(10, dtype=torch.bool))
    metric.update(padded(LISTS))
    assert metric.compute().isnan()


def test_a_list_without_a_baseline_is_unexpected_and_other_grades_are_no_baseline():
    ids = torch.tensor([[1, 2], [3, 4]])
    same(tr.Unexpectedness().score(ids, [torch.tensor([2]), torch.tensor([], dtype=torch.int64)]).tolist(), [0.5, 1])
    graded = (torch.tensor([0, 0, 1]), torch.tensor([1, 2, 4]), torch.tensor([2, 0, -1]))
    same(tr.Unexpectedness().score(ids, graded).tolist(), [0.5, 1])
    ignored = tr.Unexpectedness().score(ids, torch.tensor([-100, 3]))
    same(ignored.tolist(), [None, 0.5])


def test_a_number_of_minus_100_that_is_no_label_leaves_no_list_out():
    lists = torch.tensor([[0, 1], [2, 2], [1, 2]])
    for no_labels in (torch.tensor([-1.0, -100, 2]), torch.full((3, 2), -100), [torch.tensor([-100])] * 3):
        assert tr.Unrepeated().score(lists, no_labels).tolist() == tr.Unrepeated().score(lists).tolist() == [1, 0.5, 1]


def test_the_diversity_of_vectors_is_that_of_their_directions_however_short_they_are():
    vectors = torch.randn(10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    short, long = (tr.IntraListDiversity(embeddings=vectors * scale) for scale in (1e-100, 1e100))
    same(values(short, LISTS), values(long, LISTS))


@cases(
    "make",
    [
        lambda items: tr.Unrepeated(),
        lambda items: tr.IntraListDiversity(embeddings=torch.rand(items, 96)),
        lambda items: tr.IntraListDiversity(categories=torch.rand(items, 96) < 0.1),
        lambda items: tr.AWRF(groups=torch.rand(items, 96)),
        lambda items: tr.NDKL(groups=torch.rand(items, 96)),
        lambda items: tr.DemographicParity(groups=torch.rand(items, 96)),
        lambda items: tr.CategoryEntropy(categories=torch.arange(items)),
        lambda items: tr.CategoryEntropy(categories=torch.rand(items, 96) < 0.1),
        lambda items: tr.CWLCost(96, costs=torch.rand(items)),
    ],
)
def test_lists_are_measured_a_block_at_a_time(make):
    metric = make(64)
    ids = torch.rand(130, 64, generator=torch.Generator().manual_seed(0)).argsort(-1)
    measure, largest = metric.measure, Largest()

    def watched(self, lists):
        with largest:
            return measure(lists)

    target = [torch.tensor([1])] * len(ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(metric), "measure", watched)
        patch.setattr("torchrank.metrics.item_lists.BLOCK", 6144)
        for positions in (64, 5, 0):
            assert len(metric.score(ids[:, :positions], target)) == len(ids)
            assert largest.bytes <= 8 * (6144 + 96)  # a column more


def test_popularity_lift_of_groups_is_the_difference_of_their_group_average_popularity():
    counts = torch.tensor([9, 4, 7, 0, 2, 3, 1, 8, 5, 6])
    profiles = [[0, 2], [4], [1, 5], [3], [8, 7, 6], [5]]  # the fourth has only items of popularity 0
    group = torch.tensor([0, 1, 0, 1, 0, 1])
    sliced = tr.Sliced(tr.PopularityLift(interactions=counts), ["a", "b"])
    sliced.update(padded(LISTS), [torch.tensor(one) for one in profiles], slices=group)
    popularity = tr.Popularity(interactions=counts)
    lists, used = popularity.score(padded(LISTS)), torch.tensor([counts[one].double().mean() for one in profiles])
    for name, number in (("popularitylift/a", 0), ("popularitylift/b", 1)):
        there = (group == number) & ~lists.isnan() & (used > 0)
        r, p = lists[there].mean(), used[there].mean()
        assert sliced.compute()[name].item() == pytest.approx(((r - p) / p).item(), rel=1e-6)


def test_a_target_outside_the_catalogue_is_no_error_of_a_measure_that_does_not_read_it():
    metric = tr.ACLT(long_tail=torch.tensor([True, False, True]))
    values = metric.score(torch.tensor([[0, 1, 2]]), [torch.tensor([2, 99])], exclude=[torch.tensor([0, 2])])
    assert values.tolist() == [1]  # the relevant item is not excluded


def test_a_profile_outside_the_catalogue_is_an_error():
    lift = tr.PopularityLift(interactions=torch.tensor([1, 2]))
    lift.update(torch.tensor([[0, 1]]), torch.tensor([[1, 2]]))
    with pytest.raises(ValueError, match=r"1 label, id .* out of range"):
        lift.compute()


# ---- Lorenz curves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discount", ["none", "log2"])
def test_a_lorenz_curve_is_the_share_of_the_least_exposed_items_and_gini_its_area(discount):
    curve, gini = (cls(3, num_items=10, discount=discount) for cls in (tr.LorenzCurve, tr.Gini))
    exposure = [0.0] * 10
    for found in LISTS:
        for rank, i in enumerate(found[:3], 1):
            exposure[i] += 1 if discount == "none" else 1 / math.log2(1 + rank)
    for part in (LISTS[:2], LISTS[2:]):
        curve.update(padded(part))
        gini.update(padded(part))
    items, shares = curve.compute()
    assert items.tolist() == pytest.approx([n / 10 for n in range(11)])
    want = [min(map(math.fsum, itertools.combinations(exposure, n))) / math.fsum(exposure) for n in range(11)]
    assert shares.tolist() == pytest.approx(want, abs=1e-6)
    between = 1 - 2 * torch.trapezoid(shares.double(), items.double()).item()
    assert between == pytest.approx(gini.compute().item(), abs=1e-6)


# ---- sessions --------------------------------------------------------------------------------------------------------


def test_mean_ndcg_with_discounts_of_queries_is_session_dcg_over_its_ideal():
    scores = torch.rand(3, 6, generator=torch.Generator().manual_seed(1))
    grades = torch.tensor([[0, 2, 1, 0, 3, 0]])
    factor = [1 / (1 + math.log(q, 4)) for q in (1, 2, 3)]

    def dcg(gains):
        return math.fsum(gain / math.log2(1 + rank) for rank, gain in enumerate(gains[:4], 1))

    orders = scores.argsort(dim=-1, descending=True)
    session = math.fsum(w * dcg(grades[0, order].tolist()) for w, order in zip(factor, orders))
    ideal = math.fsum(factor) * dcg(sorted(grades[0].tolist(), reverse=True))
    ndcg = tr.NDCG(4)
    ndcg.update(scores, grades.expand(3, -1), weights=torch.tensor(factor))
    assert ndcg.compute().item() == pytest.approx(session / ideal, rel=1e-6)
    values = torch.tensor(factor, dtype=torch.float64) * tr.DCG(4).score(scores, grades.expand(3, -1))
    assert values.sum().item() == pytest.approx(session)


def test_a_measure_of_all_lists_has_no_score_of_one():
    assert not hasattr(tr.Gini(num_items=3), "score")
    with pytest.raises(AttributeError, match=r"Expected no score of coverage@2, .* use compute\(\)"):
        tr.Coverage(2, num_items=3).score  # noqa: B018


def test_profiles_count_items_of_positive_grades_only():
    lift = tr.PopularityLift(interactions=torch.tensor([8, 4, 2, 2]))
    query, item, grade = torch.tensor([0, 0, 0]), torch.tensor([0, 2, 1]), torch.tensor([0, 1, -1])
    same(values(lift, [[1]], (query, item, grade)), values(lift, [[1]], [torch.tensor([2])]))


# ---- as metrics: errors, collections, catalogues that differ, copies and checkpoints ---------------------------------


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
        (TypeError, "aggregation", lambda: tr.Coverage(num_items=3, aggregation="median")),
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


def test_contents_name_the_state_not_the_tensor():
    one, other = tr.Popularity(interactions=COUNTS), tr.Popularity(interactions=COUNTS.clone())
    assert one.metric_state.keys() == other.metric_state.keys()
    assert one.label == "popularity"
    gini = tr.Gini(10, num_items=5, discount="geometric", patience=0.5)
    assert gini.label == "gini(discount=geometric,patience=0.5)@10"
