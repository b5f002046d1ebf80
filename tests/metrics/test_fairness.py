"""Groups of items, calibration and expected exposure: equal to plain Python however lists are split; and to peers."""

import itertools
import math
import random

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.recommended_lists import ids_of, mean, total

ITEMS, USERS = 11, 30
GENERATOR = torch.Generator().manual_seed(3)
ONE = torch.tensor([0, 0, 1, 2, -1, 1, 2, 0, -5, 1, 1])
SEVERAL = torch.rand(ITEMS, 3, generator=GENERATOR) < 0.4
SHARES = torch.rand(ITEMS, 3, generator=GENERATOR, dtype=torch.float64) * (ONE >= 0).unsqueeze(-1)
WANTED = torch.tensor([3.0, 1.0, 1.0])


# ---- from the definitions, in plain Python ---------------------------------------------------------------------------


def shares_of(groups):
    if groups.dim() == 1:
        return [[float(g == one) for g in range(3)] for one in groups.tolist()]
    if groups.dtype == torch.bool:
        return [[x / sum(row) if any(row) else 0.0 for x in row] for row in groups.tolist()]
    return groups.tolist()


def normalised(amounts):
    return [x / math.fsum(amounts) for x in amounts]


def log2(rank):
    return 1 / math.log2(1 + rank)


def clipped(rank):
    return 1 / math.log2(max(rank, 2))


def clipped_tensor(rank):
    return 1 / rank.clamp_min(2).log2()


def amounts(found, groups, weight):
    """Sum of the weights of each group; an item has a weight by its rank."""
    table = shares_of(groups)
    return [math.fsum(weight(rank) * table[i][g] for rank, i in enumerate(found, 1)) for g in range(3)]


def kl(p, q):
    return math.fsum(x * math.log(x / y) for x, y in zip(p, q) if x)


def js(p, q):
    middle = [(x + y) / 2 for x, y in zip(p, q)]
    return (kl(p, middle) + kl(q, middle)) / 2


def tv(p, q):
    return sum(abs(x - y) for x, y in zip(p, q)) / 2


def hellinger(p, q):
    return math.dist([math.sqrt(x) for x in p], [math.sqrt(y) for y in q]) / math.sqrt(2)


def whole(groups):
    return amounts(range(ITEMS), groups, lambda rank: 1)


def fair_attention(groups, population, distance, weight):
    def value(found, history):
        attention = amounts(found, groups, weight)
        return 1 - distance(normalised(attention), normalised(population)) if any(attention) else None

    return value


def prefixes(groups, population, weight):
    def value(found, history):
        total = z = 0.0
        for rank in range(1, len(found) + 1):
            if any(shares_of(groups)[found[rank - 1]]):
                so_far = amounts(found[:rank], groups, lambda rank: 1)
                total += weight(rank) * kl(normalised(so_far), normalised(population))
                z += weight(rank)
        return total / z if z else None

    return value


def parity(exposure, size):
    each = [e / n for e, n in zip(exposure, size) if n]
    return min(each) / max(each) if len(each) > 1 and any(each) else None


def parity_of_list(groups, weight):
    return lambda found, history: parity(amounts(found, groups, weight), amounts(found, groups, lambda rank: 1))


def miscalibration(groups, distance, weight=lambda rank: 1):
    def value(found, history):
        shown = amounts(found, groups, weight)
        past = amounts([i for i, _ in history], groups, lambda rank: history[rank - 1][1])
        return distance(normalised(past), normalised(shown)) if any(shown) and any(past) else None

    return value


def smoothed(alpha):
    return lambda p, q: kl(p, [(1 - alpha) * y + alpha * x for x, y in zip(p, q)])


def per_list(value):
    return lambda lists, histories: mean([value(found, history) for found, history in zip(lists, histories)])


def over_all(groups, merit, weight):
    def value(lists, histories):
        rows = [amounts(found, groups, weight) for found in lists]
        found = parity([math.fsum(column) for column in zip(*rows)], merit)
        return math.nan if found is None else found

    return value


def patient(rank):
    return 0.3 ** (rank - 1)


PATIENT = {"discount": "geometric", "patience": 0.3}
POPULATED = {"groups": SHARES, "population": WANTED}
BY_MERIT = {"groups": SEVERAL, "merit": torch.tensor([2.0, 0.0, 5.0]), "discount": clipped_tensor}
#: measures, what they take, and their definitions
METRICS = [
    (tr.AWRF, {"groups": ONE}, per_list(fair_attention(ONE, whole(ONE), js, clipped))),
    (
        tr.AWRF,
        POPULATED | {"log_base": 2, "discount": "log2"},
        per_list(fair_attention(SHARES, WANTED.tolist(), lambda p, q: js(p, q) / math.log(2), log2)),
    ),
    (
        tr.AWRF,
        {"groups": SEVERAL, "distance": "tv", **PATIENT},
        per_list(fair_attention(SEVERAL, whole(SEVERAL), tv, patient)),
    ),
    (tr.AWRF, {"groups": ONE, "distance": "hellinger"}, per_list(fair_attention(ONE, whole(ONE), hellinger, clipped))),
    (tr.NDKL, {"groups": ONE}, per_list(prefixes(ONE, whole(ONE), log2))),
    (
        tr.NDKL,
        POPULATED | {"discount": "reciprocal"},
        per_list(prefixes(SHARES, WANTED.tolist(), lambda rank: 1 / rank)),
    ),
    (tr.DemographicParity, {"groups": ONE}, per_list(parity_of_list(ONE, log2))),
    (tr.DemographicParity, {"groups": SEVERAL, **PATIENT}, per_list(parity_of_list(SEVERAL, patient))),
    (tr.ExposureParity, {"groups": ONE}, over_all(ONE, whole(ONE), log2)),
    (tr.ExposureParity, BY_MERIT, over_all(SEVERAL, [2, 0, 5], clipped)),
    (tr.Miscalibration, {"groups": SEVERAL}, per_list(miscalibration(SEVERAL, smoothed(0.01)))),
    (
        tr.Miscalibration,
        {"groups": SHARES, "alpha": 0.2, "log_base": 2, "discount": "log2"},
        per_list(miscalibration(SHARES, lambda p, q: smoothed(0.2)(p, q) / math.log(2), log2)),
    ),
    (tr.Miscalibration, {"groups": ONE, "distance": "js"}, per_list(miscalibration(ONE, js))),
    (tr.Miscalibration, {"groups": SEVERAL, "distance": "hellinger"}, per_list(miscalibration(SEVERAL, hellinger))),
]
every_metric = cases(("cls", "given", "want"), METRICS)


def draw(seed):
    """Ragged lists, and histories of (item, weight)."""
    rng = random.Random(seed)
    lists = [rng.sample(range(ITEMS), rng.choice([0, 1, 2, 5, 9])) for _ in range(USERS)]
    histories = [[(i, rng.choice([1, 2])) for i in rng.sample(range(ITEMS), rng.choice([0, 2, 5]))] for _ in lists]
    return lists, histories


def tensors(lists, histories):
    triples = [(row, i, weight) for row, history in enumerate(histories) for i, weight in history]
    return ids_of(lists), tuple(torch.tensor(triples, dtype=torch.int64).reshape(-1, 3).T)


def close(got, want):
    assert got == pytest.approx(want, rel=1e-11, abs=1e-13, nan_ok=True)


# ---- lists -----------------------------------------------------------------------------------------------------------


@every_metric
@pytest.mark.parametrize("k", [None, 2])
def test_equal_to_plain_python_however_the_lists_are_split(cls, given, want, k, monkeypatch):
    if k:  # in blocks
        monkeypatch.setattr("torchrank.metrics.item_lists.BLOCK", 100)
    lists, histories = draw(k or 0)
    wanted = want([found[:k] for found in lists], histories)
    assert not math.isnan(wanted)
    for sizes in ([USERS], [1, 0, 16, 13]):
        metric, start = cls(k, **given), 0
        for size in sizes:
            part = slice(start, start + size)
            metric.update(*tensors(lists[part], histories[part]))
            start += size
        close(total(metric), wanted)
        assert metric.num_queries == USERS


@every_metric
def test_lists_of_weight_0_and_lists_without_items_do_not_count(cls, given, want):
    lists, histories = draw(5)
    metric = cls(3, **given)
    ids, target = tensors(lists, histories)
    weights = (torch.arange(USERS) % 3 > 0).float()
    metric.update(ids[:0], tensors([], [])[1])
    metric.update(torch.full((2, 3), -1), tensors([[], []], [[], []])[1])
    assert metric.compute().isnan()
    metric.update(ids, target, weights=weights)
    kept = [row for row in range(USERS) if weights[row]]
    close(total(metric), want([lists[row][:3] for row in kept], [histories[row] for row in kept]))


def test_a_list_without_a_grouped_item_is_left_out():
    ids = torch.tensor([[4, 8], [4, 0]])  # items 4 and 8 have no group
    for metric in (tr.AWRF(groups=ONE), tr.NDKL(groups=ONE)):
        assert metric.score(ids).isnan().tolist() == [True, False]
        metric.update(ids)
        assert (metric.num_queries, metric.num_empty) == (2, 1)
    history = [torch.tensor([0]), torch.tensor([4])]
    assert tr.Miscalibration(groups=ONE).score(torch.tensor([[0], [0]]), history).isnan().tolist() == [False, True]


def from_rank_3(rank):
    return (rank >= 3).double()


def test_a_list_without_exposure_has_no_parity_and_does_not_count():
    metric = tr.DemographicParity(groups=torch.tensor([0, 0, 1]), discount=from_rank_3)
    ids = torch.tensor([[0, 2, -1], [0, 1, 2]])
    assert metric.score(ids).nan_to_num(nan=9).tolist() == [9, 0]
    assert metric(ids) == 0


def test_a_population_can_leave_out_a_group_without_items():
    metric = tr.NDKL(groups=torch.eye(3)[[0, 1, 0, 1]], population=torch.tensor([1.0, 1.0, 0.0]))
    two = tr.NDKL(groups=torch.eye(2)[[0, 1, 0, 1]])
    lists = torch.tensor([[0, 2], [0, 1]])
    assert metric.score(lists).tolist() == two.score(lists).tolist()


@pytest.mark.parametrize("count", [1, 3])
def test_equal_to_fairranktune(count):
    pandas, peer = pytest.importorskip("pandas"), pytest.importorskip("FairRankTune")
    rng = random.Random(count)
    orders = [rng.sample(range(9), 9) for _ in range(count)]
    groups = torch.arange(9) % 3
    frame = pandas.DataFrame({str(n): order for n, order in enumerate(orders)})
    known = dict(enumerate(groups.tolist()))
    theirs = peer.EXP(frame, known, "MinMaxRatio"), peer.AWRF(frame, known, 0.3, "MinMaxRatio")
    for given, (want, *_) in zip(({}, {"discount": "geometric", "patience": 0.7}), theirs):
        metric = tr.ExposureParity(groups=groups, **given)
        metric.update(torch.tensor(orders))
        close(total(metric), want)
    if count == 1:
        value = tr.NDKL(groups=groups).score(torch.tensor(orders)).item()
        assert value == pytest.approx(peer.NDKL(frame, known), abs=1e-5)


def test_parity_of_no_exposure_is_undefined():
    metric = tr.ExposureParity(groups=ONE, merit=torch.tensor([0.0, 1.0, 1.0]))
    metric.update(torch.tensor([[0, 1, 4]]))
    assert metric.compute().isnan()
    alone = tr.ExposureParity(groups=ONE, merit=torch.tensor([1.0, 0.0, 0.0]))
    alone.update(torch.tensor([[0, 1, 4]]))
    assert alone.compute().isnan()
    # Less than the exposure of one first place, and merits below 1, are defined.
    some = tr.ExposureParity(groups=torch.tensor([0, 1, 2]), merit=torch.tensor([0.0, 0.25, 0.5]))
    some.update(torch.tensor([[0, 1]]))
    assert some.compute().item() == 0


def test_ids_outside_the_catalogue_raise_in_lists_and_histories():
    for metric, ids, history in (
        (tr.AWRF(groups=ONE), [[0, ITEMS]], None),
        (tr.Miscalibration(groups=ONE), [[0, 1]], [torch.tensor([0, ITEMS])]),
    ):
        metric.update(torch.tensor(ids), history)
        with pytest.raises(ValueError, match="out of range"):
            metric.compute()
    loose = tr.Miscalibration(groups=ONE, validate_args=False)
    assert loose.score(torch.tensor([[0, 1]]), [torch.tensor([0, ITEMS])]).item() == pytest.approx(0, abs=1e-12)


def test_a_history_of_labels_is_one_item_each():
    metric = tr.Miscalibration(groups=ONE, distance="tv")
    value = metric.score(torch.tensor([[0, 2], [1, 7], [0, 1]]), torch.tensor([0, 1, -100]))
    assert value.tolist()[:2] == [0.5, 0.0]
    assert value[2].isnan()


def test_other_groups_and_populations_never_share_a_state():
    metrics = [
        tr.AWRF(groups=ONE),
        tr.AWRF(groups=SEVERAL),
        tr.AWRF(groups=ONE, population=WANTED),
        tr.ExposureParity(groups=ONE),
        tr.ExposureParity(groups=ONE, merit=WANTED),
    ]
    assert len({tuple(metric.metric_state) for metric in metrics}) == len(metrics)
    assert tr.AWRF(5, groups=ONE).label == "awrf@5"
    assert tr.AWRF(groups=ONE, population=WANTED * 7).metric_state.keys() == metrics[2].metric_state.keys()


def test_wrong_arguments_are_refused():
    wrong = [
        (TypeError, "groups", lambda: tr.AWRF(groups="ab")),
        (TypeError, "groups", lambda: tr.AWRF(groups=torch.tensor([0.5, 1]))),
        (TypeError, "groups", lambda: tr.AWRF(groups=torch.tensor([[0, 1]]))),
        (ValueError, "groups", lambda: tr.AWRF(groups=torch.tensor([-1, -1]))),
        (ValueError, "groups", lambda: tr.AWRF(groups=torch.tensor([[0.5, -1.0]]))),
        (ValueError, "population", lambda: tr.AWRF(groups=ONE, population=torch.ones(2))),
        (ValueError, "population", lambda: tr.AWRF(groups=ONE, population=torch.tensor([0.0, 0.0, 0.0]))),
        (ValueError, "population", lambda: tr.NDKL(groups=ONE, population=torch.tensor([1.0, 1.0, 0.0]))),
        (ValueError, "merit", lambda: tr.ExposureParity(groups=ONE, merit=torch.tensor([1.0, -1.0, 0.0]))),
        (ValueError, "log_base", lambda: tr.AWRF(groups=ONE, distance="tv", log_base=2)),
        (ValueError, "log_base", lambda: tr.Miscalibration(groups=ONE, distance="tv", log_base=2)),
        (ValueError, "alpha", lambda: tr.Miscalibration(groups=ONE, distance="js", alpha=0.1)),
        (ValueError, "patience", lambda: tr.AWRF(groups=ONE, patience=0.7)),
        (ValueError, "patience", lambda: tr.Miscalibration(groups=ONE, patience=0.7)),
        (ValueError, "patience", lambda: tr.EEL(discount="log2", patience=0.7)),
        (TypeError, "aggregation", lambda: tr.ExposureParity(groups=ONE, aggregation="median")),
        (ValueError, "target", lambda: tr.Miscalibration(groups=ONE).score(torch.tensor([[0]]))),
    ]
    for error, message, call in wrong:
        with pytest.raises(error, match=f"Expected.*{message}"):
            call()


# ---- expected exposure -----------------------------------------------------------------------------------------------


def exposure_of(orders, patience):
    """Mean exposure of each candidate over orders of all candidates."""
    rows = [[patience ** order.index(candidate) for order in orders] for candidate in range(len(orders[0]))]
    return torch.tensor([[math.fsum(row) / len(orders) for row in rows]], dtype=torch.float64)


def test_a_tie_has_the_exposure_of_all_its_orders():
    scores, grades = torch.tensor([[2.0, 1, 1, 0, 1, 0]]), torch.tensor([[0, 1, 0, 2, -1, 0]])
    orders = [(0, *middle, *last) for middle in itertools.permutations((1, 2, 4)) for last in ((3, 5), (5, 3))]
    exposure = exposure_of(orders, 0.7)
    for measure in (tr.EEL, tr.EED, tr.EER):
        metric = measure(patience=0.7)
        torch.testing.assert_close(metric.of_exposure(exposure, grades), metric.score(scores, grades))


def test_candidates_behind_the_mask_have_no_exposure():
    exposure, grades = torch.tensor([[1.0, 0.5, 9.0]]), torch.tensor([[0, 1, 5]])
    mask = torch.tensor([[True, True, False]])
    for measure in (tr.EEL, tr.EED, tr.EER):
        short = measure().of_exposure(exposure[:, :2], grades[:, :2])
        torch.testing.assert_close(measure().of_exposure(exposure, grades, mask), short)


def test_scores_tied_by_grade_have_no_loss():
    grades = torch.tensor([[0, 3, 1, 1, 0, 3]])
    for discount in ("geometric", "log2", "reciprocal"):
        assert tr.EEL(discount=discount).score(grades.double(), grades).item() < 1e-25
    assert tr.EEL(3).score(grades.double(), grades).item() < 1e-25
