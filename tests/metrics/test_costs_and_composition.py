"""Lists whose items have lengths, costs, categories and popularity: equal to plain Python, and to peers."""

import functools
import math
import random
from collections import Counter

import pytest
import torch

import torchrank as tr
from tests.support.recommended_lists import ids_of

ITEMS, USERS = 11, 30
RNG = random.Random(3)
LENGTHS = [RNG.choice((0.0, 120.0, 900.0, 4000.5)) for _ in range(ITEMS)]
COUNTS = [RNG.choice((0, 1, 1, 2, 5, 9)) for _ in range(ITEMS)]
COUNTS[2] = COUNTS[7] = 0
KINDS = [RNG.choice((-3, -1, 2, 7, 7, 40)) for _ in range(ITEMS)]
TAGS = [[RNG.random() < 0.4 for _ in range(4)] for _ in range(ITEMS)]
TAGS[0] = [False] * 4
CUTS = (None, 1, 3, 20)


def draw(seed, most=8):
    """Ragged lists, and the grades of the judged items of each user."""
    rng = random.Random(seed)
    lists = [rng.sample(range(ITEMS), rng.choice([0, 1, 2, 5, most])) for _ in range(USERS)]
    judged = [rng.sample(range(ITEMS), rng.choice([0, 3, 6])) for _ in lists]
    return lists, [{i: rng.choice((0, 1, 1, 2)) for i in some} for some in judged]


def tensors(lists, graded):
    """Ids of ragged lists, and (query, item, grade) triples."""
    triples = [(q, i, grade) for q, judged in enumerate(graded) for i, grade in judged.items()]
    return ids_of(lists), tuple(torch.tensor(column) for column in zip(*triples))


def assert_equal(metric, value, seed=0):
    """Each list has the value of a function of its items and of the grades; None = the list is left out."""
    lists, graded = draw(seed)
    want = [value(found[: metric.top_k], judged) for found, judged in zip(lists, graded)]
    want = torch.tensor([math.nan if x is None else x for x in want], dtype=torch.float64)
    ids, target = tensors(lists, graded)
    torch.testing.assert_close(metric.score(ids, target), want, rtol=1e-12, atol=1e-14, equal_nan=True)
    for part in (slice(0, 11), slice(11, USERS)):
        metric.update(*tensors(lists[part], graded[part]))
    assert metric.compute().item() == pytest.approx(want.nanmean().item(), rel=1e-6)


# ---- costs -----------------------------------------------------------------------------------------------------------


def time_biased_gain(found, judged, level=1, half_life=224, click=(0.64, 0.39), save=0.77, seconds=(4.4, 0.018, 7.8)):
    time, value = 0.0, 0.0
    for i in found:
        relevant = judged.get(i, 0) >= level
        value += relevant * click[0] * save * math.exp(-time * math.log(2) / half_life)
        time += seconds[0] + (click[0] if relevant else click[1]) * (seconds[1] * LENGTHS[i] + seconds[2])
    return value


def u_measure(found, judged, level=1, patience=132_000, snippet=200, read=0.2, gain=lambda grade: 2**grade - 1):
    trail, gains = [], []
    for i in found:
        grade = judged.get(i, 0)
        trail.append(snippet + (read * LENGTHS[i] if grade >= level else 0))
        gains.append(gain(grade) if grade >= level else 0)
    return math.fsum(g * max(0, 1 - sum(trail[: n + 1]) / patience) for n, g in enumerate(gains))


@pytest.mark.parametrize("k", CUTS)
def test_time_biased_gain_by_hand(k):
    lengths = torch.tensor(LENGTHS)
    assert_equal(tr.TBG(k, lengths=lengths), time_biased_gain)
    other = tr.TBG(
        k, lengths=lengths, relevance_level=2, half_life=50, click_relevant=0.9, click_other=0.1, save=0.5,
        seconds_per_summary=2, seconds_per_word=0.1, seconds_per_item=3,
    )  # fmt: skip
    assert_equal(other, lambda *of: time_biased_gain(*of, 2, 50, (0.9, 0.1), 0.5, (2, 0.1, 3)))


@pytest.mark.parametrize("k", CUTS)
def test_u_measure_by_hand(k):
    lengths = torch.tensor(LENGTHS)
    assert_equal(tr.UMeasure(k, lengths=lengths), u_measure)
    other = tr.UMeasure(k, lengths=lengths, patience=900, snippet=50, read=0.5, gain="linear", relevance_level=2)
    assert_equal(other, lambda *of: u_measure(*of, 2, 900, 50, 0.5, lambda grade: grade))
    # Halfway through 900 characters a gain is worth half.
    half = tr.UMeasure(lengths=torch.tensor([0.0, 900.0]), patience=900, snippet=0, read=0.5)
    assert half.score(torch.tensor([[0, 1], [1, 0]]), torch.tensor([1, 0])).tolist() == [0.5, 1.0]


def walk(found, judged, ranks, goes_on, behind):
    """Cost per candidate, and in total, of a user who goes on with some chance at each rank."""
    seen, total, depth, gained = 1.0, 0.0, 0.0, 0
    for rank in range(1, ranks + 1):
        inside = rank <= len(found)
        total, depth = total + seen * (LENGTHS[found[rank - 1]] if inside else behind), depth + seen
        gained += inside and judged.get(found[rank - 1], 0) >= 1
        seen *= goes_on(rank, gained)
    return total / depth, total


@pytest.mark.parametrize("of", ["cost", "total_cost"])
@pytest.mark.parametrize("k", [1, 4, 15, None])
def test_the_cost_of_a_user_by_hand(of, k):
    users = {
        "rbp": ({"p": 0.5}, lambda rank, gained: 0.5),
        "rr": ({}, lambda rank, gained: gained == 0),
        "bpm": ({"target": 2}, lambda rank, gained: gained < 2),
        "inst": ({"target": 2}, lambda rank, gained: (1 - 1 / (rank + 4 - gained)) ** 2),
    }
    for name, (given, goes_on) in users.items():
        metric = tr.CWLCost(k, costs=torch.tensor(LENGTHS), of=of, user=name, behind=3, **given)
        value = functools.partial(walk, ranks=k or 1000, goes_on=goes_on, behind=3)
        assert_equal(metric, lambda *lists, value=value: value(*lists)[of == "total_cost"])


def test_costs_of_1_are_the_depth():
    lists, graded = draw(1)
    ids, target = tensors(lists, graded)
    for user in ("rbp", "ap", "nerr11", "sdcg"):
        total = tr.CWLCost(6, costs=torch.ones(ITEMS), of="total_cost", user=user).score(ids, target)
        torch.testing.assert_close(total, tr.CWL(6, of="depth", user=user).score(ids, target), rtol=1e-12, atol=0)
        each = tr.CWLCost(6, costs=torch.ones(ITEMS), user=user).score(ids, target)
        torch.testing.assert_close(each, torch.ones(USERS, dtype=torch.float64), rtol=1e-12, atol=0)


# ---- composition -----------------------------------------------------------------------------------------------------


def tail_by(tail):
    """RecBole's long tail."""
    used = {i: n for i, n in enumerate(COUNTS) if n}
    if tail > 1:
        return {i for i, n in used.items() if n <= tail}
    return set(sorted(used, key=lambda i: (used[i], i))[: max(int(len(used) * tail), 1)])


@pytest.mark.parametrize("tail", [0.1, 0.5, 1, 2, 6])
def test_tail_percentage_by_hand(tail):
    rare = tail_by(tail)
    for k in (None, 3):
        metric = tr.TailPercentage(k, interactions=torch.tensor(COUNTS), tail=tail)
        assert_equal(metric, lambda found, _: sum(i in rare for i in found) / len(found) if found else None)


def entropy_of(shares_of, categories, patience, smoothing):
    def value(found, _):
        amounts = Counter(dict.fromkeys(categories, smoothing))
        for place, i in enumerate(found):
            for category in shares_of(i):
                amounts[category] += patience**place / len(shares_of(i))
        whole = math.fsum(amounts.values())
        return -math.fsum(x / whole * math.log2(x / whole) for x in amounts.values() if x) if found else None

    return value


@pytest.mark.parametrize(("patience", "smoothing"), [(None, 0), (0.85, 0), (None, 0.5), (0.5, 1e-6)])
def test_category_entropy_by_hand(patience, smoothing):
    kinds, tags = sorted({kind for kind in KINDS if kind >= 0}), range(4)
    for k in (None, 3):
        given = {"patience": patience, "smoothing": smoothing}
        one = tr.CategoryEntropy(k, categories=torch.tensor(KINDS), **given)
        assert_equal(one, entropy_of(lambda i: [KINDS[i]] * (KINDS[i] >= 0), kinds, patience or 1, smoothing))
        many = tr.CategoryEntropy(k, categories=torch.tensor(TAGS), **given)
        assert_equal(many, entropy_of(lambda i: [c for c in tags if TAGS[i][c]], tags, patience or 1, smoothing))


@pytest.mark.parametrize("categories", [torch.zeros(0).long(), torch.zeros(0, 3).bool(), torch.ones(3), 3])
def test_categories_of_another_kind_or_of_no_items_are_refused(categories):
    for measure in (tr.CategoryEntropy, tr.IntraListDiversity):
        with pytest.raises(TypeError, match=r"integer \[item\] or bool \[item, category\], got "):
            measure(categories=categories)


# ---- empty lists, wrong arguments ------------------------------------------------------------------------------------


def test_a_list_without_items_scores_0_by_gains_and_is_left_out_of_composition():
    ids, target = torch.full((2, 3), -1), torch.tensor([1, 2])
    lengths = torch.tensor(LENGTHS)
    assert tr.TBG(lengths=lengths).score(ids, target).tolist() == [0, 0]
    assert tr.UMeasure(lengths=lengths).score(ids, target).tolist() == [0, 0]
    assert tr.CWLCost(4, costs=lengths, of="total_cost", user="rr", behind=2).score(ids, target).tolist() == [8, 8]
    assert tr.TailPercentage(interactions=lengths).score(ids).isnan().all()
    assert tr.CategoryEntropy(categories=torch.tensor(KINDS)).score(ids).isnan().all()
    no_positions = torch.zeros(2, 0, dtype=torch.int64)
    assert tr.TBG(lengths=lengths).score(no_positions, target).tolist() == [0, 0]
    assert tr.CWLCost(4, costs=lengths, user="rr", behind=2).score(no_positions, target).tolist() == [2, 2]


def test_wrong_arguments_of_costs_and_composition_are_refused():
    numbers = torch.ones(3)
    wrong = [
        (ValueError, "lengths", lambda: tr.TBG(lengths=torch.tensor([1.0, -1.0]))),
        (ValueError, "lengths", lambda: tr.UMeasure(lengths=[[1, 2]])),
        (ValueError, "costs", lambda: tr.CWLCost(costs=torch.tensor([math.nan]))),
        (TypeError, "which cuts lists at top_k", lambda: tr.CWLCost(costs=numbers, cost=2)),
        (ValueError, "either relevance_level", lambda: tr.CWLCost(costs=numbers, max_grade=2, relevance_level=2)),
        (ValueError, "Expected target", lambda: tr.TBG(lengths=numbers).update(torch.tensor([[1]]))),
        (TypeError, "scores.topk", lambda: tr.TBG(lengths=numbers).update(torch.rand(1, 2), torch.tensor([1]))),
        (ValueError, "interactions", lambda: tr.TailPercentage(interactions=torch.ones(2, 2))),
        (TypeError, "categories", lambda: tr.CategoryEntropy(categories=numbers)),
        (TypeError, "categories", lambda: tr.CategoryEntropy(categories=torch.zeros(3, 2, dtype=torch.int64))),
    ]
    for error, message, call in wrong:
        with pytest.raises(error, match=message):
            call()


# ---- peers -----------------------------------------------------------------------------------------------------------


def test_the_costs_of_cwl_eval():
    ruler = pytest.importorskip("cwl.ruler.cwl_ruler")
    costs = torch.tensor(LENGTHS)
    as_costs = {"click_relevant": 1, "click_other": 1, "save": 1, "seconds_per_summary": 0, "seconds_per_item": 0}
    pairs = [
        ({"top_k": 7, "user": "precision"}, ruler.PrecisionCWLMetric(7)),
        ({"user": "rbp", "p": 0.9}, ruler.RBPCWLMetric(0.9)),
        ({"user": "rr"}, ruler.RRCWLMetric()),
        ({"user": "ap"}, ruler.APCWLMetric()),
        ({"top_k": 6, "user": "sdcg"}, ruler.NDCGCWLMetric(6)),
        ({"user": "inst", "target": 2}, ruler.INSTCWLMetric(2)),
    ]
    lists, graded = draw(6)
    ids, target = tensors(lists, [{i: min(1, grade) for i, grade in judged.items()} for judged in graded])
    tbg = tr.TBG(lengths=costs, seconds_per_word=1, half_life=3000, **as_costs).score(ids, target)
    for row, (found, judged) in enumerate(zip(lists, graded)):
        if not any(judged.get(i, 0) for i in found):  # AP of cwl_eval divides by 0
            continue
        gains = [float(judged.get(i, 0) >= 1) for i in found]
        ranking = ruler.Ranking("q", gains, [LENGTHS[i] for i in found], max_cost=3.0)
        theirs = ruler.TBGCWLMetric(3000)
        theirs.measure(ranking)
        assert tbg[row].item() == pytest.approx(theirs.expected_total_utility, rel=1e-9)
        for given, theirs in pairs:
            theirs.measure(ranking)
            left = theirs.w_vector(ranking)[-1] * theirs.expected_items * theirs.c_vector(ranking)[-1]
            total = theirs.expected_total_cost + left * ranking.get_cost_vector().sum()
            for of, want in (("cost", theirs.expected_cost), ("total_cost", total)):
                metric = tr.CWLCost(costs=costs, of=of, behind=3, **given)
                triples = torch.zeros(len(found)).long(), torch.tensor(found), torch.tensor(gains)
                got = metric.score(ids[row : row + 1], triples)
                assert got.item() == pytest.approx(want, rel=1e-9), (theirs.name(), of)


def test_reranked_lists_and_categories_of_lenskit():
    reranking = pytest.importorskip("lenskit.metrics.reranking")
    from lenskit.data import ItemList
    from lenskit.metrics import GeometricRankWeight
    from lenskit.metrics.ranking._entropy import matrix_column_entropy

    before, after = draw(8)[0], draw(9)[0]
    ranking = tr.Ranking.from_rankings(tensors(after, [{0: 1}])[0], tensors(before, [{0: 1}])[0])
    for k in (1, 3, 10):
        risen, overlap = tr.LIP(k).score(ranking), tr.RBO(k, p=0.85).score(ranking)
        for row, (old, new) in enumerate(zip(before, after)):
            lists = ItemList(old, ordered=True), ItemList(new, ordered=True)
            theirs = reranking.least_item_promoted(*lists, n=k)
            if math.isnan(theirs):
                assert risen[row].isnan()
            else:  # whose ranks count from 0
                assert max(0, risen[row].item() - 1) == theirs
            if old or new:
                theirs = reranking.rank_biased_overlap(*lists, weight=GeometricRankWeight(0.85), n=k)
                assert overlap[row].item() == pytest.approx(theirs, rel=1e-9)
    shares = torch.tensor(TAGS).double()
    shares = shares / shares.sum(-1, keepdim=True).clamp_min(1)
    plain = tr.CategoryEntropy(categories=torch.tensor(TAGS), smoothing=1e-6)
    biased = tr.CategoryEntropy(categories=torch.tensor(TAGS), smoothing=1e-6, patience=0.85)
    for found in filter(None, before):
        ids, rows = torch.tensor([found]), shares[found].numpy()
        weights = GeometricRankWeight(0.85).weight(1 + torch.arange(len(found)).numpy())
        assert plain.score(ids).item() == pytest.approx(matrix_column_entropy(rows), rel=1e-9)
        assert biased.score(ids).item() == pytest.approx(matrix_column_entropy(rows, weights), rel=1e-9)
