"""Values of groups beside loops over the queries of each group, MTEB's functions, and enumerated orders of ties."""

import itertools
import math
from statistics import fmean

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.random_batches import batch, rng
from torchrank.wrappers import grouped

SUITE = ["mrr", "ndcg@3", "map(empty_target_action=skip)", "mr"]
GROUPS = torch.randint(0, 12, (40,), generator=rng(1)) * 7919 - 20_000
ORDER = torch.randint(0, 4, (40,), generator=rng(2))


def value_of_group(how, rows):
    """From the (value, weight, order) of the queries of a group that count: the value of the group, or None."""
    values = [value for value, _, _ in rows]
    if how == "last":
        latest = max((order for *_, order in rows), default=0)
        rows = [row for row in rows if row[2] == latest]
    mean = sum(v * w for v, w, _ in rows) / sum(w for _, w, _ in rows) if rows else None
    by_name = {"min": min, "max": max, "all": math.prod}
    return by_name[how](values) if values and how in by_name else mean


def looped(how, name, scores, grades, groups=GROUPS, order=ORDER, weights=None):
    """The mean over groups, the number of groups, and that of groups without a value."""
    weights = torch.ones(len(scores)) if weights is None else weights
    values = tr.parse(name).score(scores, grades).tolist()
    found = []
    for group in groups.unique().tolist():
        own = [(v, w, o) for v, w, o, g in zip(values, weights.tolist(), order.tolist(), groups.tolist()) if g == group]
        rows = [row for row in own if not math.isnan(row[0]) and row[1] > 0]
        if any(w > 0 for _, w, _ in own):
            weight = fmean(w for _, w, _ in rows) if rows else 0.0
            found.append((value_of_group(how, rows), weight))
    total = sum(weight for _, weight in found)
    mean = sum(value * weight for value, weight in found if weight) / total if total else math.nan
    return mean, len(found), sum(value is None for value, _ in found)


def sparse():
    """Lists of which some have nothing relevant."""
    scores, grades = batch()
    return scores, torch.where(torch.arange(40)[:, None] % 3 == 0, 0, grades)


@cases("weighted", [False, True])
@cases("how", ["min", "max", "mean", "all", "last"])
def test_results_are_those_of_a_loop_over_groups_and_of_kept_values(how, weighted):
    scores, grades = sparse()
    weights = torch.rand(40, generator=rng(3)) * (torch.arange(40) % 5 > 0) if weighted else None
    suite = SUITE[:3] if how == "all" else SUITE
    metric, kept = tr.Grouped(suite, how), tr.PerQuery(suite)
    order = {"order": ORDER} if how == "last" else {}
    metric.update(scores, grades, group=GROUPS, weights=weights, **order)
    for rows in torch.randperm(40, generator=rng(4)).split(7):  # in any order
        kept.update(scores[rows], grades[rows], query_ids=rows, weights=None if weights is None else weights[rows])
    by_id = {name: dict(enumerate(x.tolist())) for name, x in order.items()}
    table = kept.compute().grouped(how, dict(enumerate(GROUPS.tolist())), **by_id)
    for summary, numbers in ((metric.summary(), metric.compute()), (table.summary(), table.compute())):
        assert list(numbers) == [f"{name}/{how}" for name in suite]
        for name, row in zip(suite, summary.rows):
            mean, groups, empty = looped(how, name, scores, grades, weights=weights)
            assert (row["queries"], row["measure"]) == (groups, f"{name}/{how}")
            assert row["value"] == pytest.approx(mean, rel=1e-12), name
            assert numbers[f"{name}/{how}"].item() == pytest.approx(mean, rel=1e-6)
            if "skip" in name:
                assert row["empty"] == empty
    assert metric.num_queries == len(GROUPS.unique())


def test_intervals_are_those_of_a_suite_with_the_values_of_the_groups():
    scores, grades = batch()
    metric, values = tr.Grouped("cg@1", "max"), tr.CG(top_k=1).score(scores, grades)
    metric.update(scores, grades, group=GROUPS)
    largest = torch.stack([values[group == GROUPS].max() for group in GROUPS.unique()])
    plain = tr.CG(top_k=1)
    plain.update(torch.zeros(len(largest), 1), largest[:, None])
    low, high = plain.interval(0.9)
    assert metric.intervals(0.9) == {"cg@1/max": (pytest.approx(low), pytest.approx(high))}
    assert metric.summary()["standard error"] == pytest.approx([plain.standard_error.item()])
    assert metric.summary().notes[-1] == "queries: number of groups"


def test_all_under_ties_is_the_probability_that_all_queries_of_the_group_are_right():
    scores = torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [3.0, 1.0, 1.0], [1.0, 1.0, 2.0]])
    labels, group = torch.tensor([0, 1, 0, 2]), torch.tensor([5, 5, 5, 6])

    def right(row, label, order):
        """Whether the label is first if equal scores have this order."""
        return min(range(3), key=lambda item: (-row[item], order[item])) == label

    orders = list(itertools.permutations(range(3)))
    shares = [
        math.prod(right(row, label, order) for row, label, order in zip(scores[:3].tolist(), labels.tolist(), three))
        for three in itertools.product(orders, repeat=3)
    ]
    metric = tr.Grouped("hitrate@1", "all")
    metric.update(scores, labels, group=group)
    assert metric.compute()["hitrate@1/all"].item() == pytest.approx((fmean(shares) + 1) / 2)
    assert fmean(shares) == pytest.approx(1 / 6)  # the minimum of the expected values would be 1 / 3


def test_values_are_those_of_mteb():
    mteb = pytest.importorskip("mteb._evaluators.retrieval_metrics")
    # Instances with two queries, as NevIR's, and with several ones, as InstructIR's.
    scores = {f"{n}_q{q}": torch.rand(2, generator=rng(2 * n + q)).tolist() for n in range(30) for q in (1, 2)}
    run = {key: dict(zip(("d1", "d2"), both)) for key, both in scores.items()}
    qrels = {key: {key.replace("q", "d").split("_")[1]: 1} for key in run}
    table = tr.evaluate(qrels, run, "ndcg@10 recall@1")["run"]
    columns = zip(table.ids, table["recall@1"], table["ndcg@10"])
    scores = {key: {"recall_1": recall, "ndcg_cut_10": ndcg} for key, recall, ndcg in columns}
    groups = {key: key.split("_")[0] for key in qrels}
    want = [function(qrels, run, scores) for function in (mteb.paired_accuracy, mteb.robustness_at_10)]
    found = table.grouped("all", groups).values()["recall@1/all"], table.grouped("min", groups).values()["ndcg@10/min"]
    assert list(found) == pytest.approx(want, abs=1e-12)


def test_a_ranking_of_a_frame_has_its_groups():
    frame = {"qid": [1, 1, 2, 2, 3, 3], "score": [2.0, 1.0] * 3, "label": [1, 0, 0, 1, 1, 0], "talk": list("aaaabb")}
    metric = tr.Grouped("mrr", "all")
    metric.update(tr.Ranking.from_table(frame, group="talk"))
    assert metric.compute()["mrr/all"].item() == 0.75  # 1 and 1 / 2; 1


# ---- groups in several updates ---------------------------------------------------------------------------------------


def in_updates(groups, how="min"):
    metric = tr.Grouped("mrr", how)
    metric.waits = False
    for group in groups:
        metric.update(torch.rand(len(group), 4), torch.zeros(len(group)).long(), group=group)
    return metric


@cases("groups", [40, 3000, 100_000])
def test_groups_in_one_update_each_never_raise_and_groups_in_two_do(groups):
    ids = torch.randint(-(2**62), 2**62, (groups,), generator=rng(groups)).unique()
    in_updates(ids.tensor_split(5)).compute()
    halves = in_updates([ids, ids])  # as by a sampler that gives each worker a part of each group
    cut = in_updates([*ids.tensor_split(20), ids[:: max(1, groups // 2000)]])  # one of 50, or of 2,000
    for metric in (halves, cut) if groups < 100_000 else (halves,):
        with pytest.raises(ValueError, match="got groups in several ones, or on several workers; keep the queries"):
            metric.compute()
        with pytest.raises(ValueError, match=r"compute\(\).grouped\('min', groups\)"):
            metric.summary()


def test_nearly_every_group_in_two_updates_is_found_if_there_are_few():
    missed = 0
    for seed in range(20):
        ids = torch.randint(-(2**62), 2**62, (50,), generator=rng(seed))
        try:
            in_updates([ids, ids[:1]]).compute()
            missed += 1
        except ValueError:
            pass
    assert missed <= 5  # expected: 20 x (50 / 3) / 256 = 1.3


def test_counters_do_not_depend_on_the_chunks_of_groups(monkeypatch):
    ids = torch.arange(1000)
    want = in_updates([ids]).metric_state
    monkeypatch.setattr(grouped, "CHUNK", 300)
    found = in_updates([ids]).metric_state
    assert all(torch.equal(found[key][: grouped.LEVELS * 33], want[key][: grouped.LEVELS * 33]) for key in want)


def test_small_batches_that_wait_may_have_a_group_in_common():
    metric, scores = tr.Grouped("mrr", "min"), torch.tensor([[0.9, 0.1]])
    metric.update(scores, torch.tensor([0]), group=torch.tensor([0]))  # the first batch does not wait
    for label in (0, 1):
        metric.update(scores, torch.tensor([label]), group=torch.tensor([7]))
    assert metric.compute()["mrr/min"].item() == 0.75


# ---- wrong calls -----------------------------------------------------------------------------------------------------

SCORES, LABELS = torch.tensor([[0.9, 0.1], [0.3, 0.4]]), torch.tensor([0, 1])
TABLE = tr.QueryTable(["a1", "a2"], {"mrr": [1.0, 0.5]})
BY_ID = {"a1": "a", "a2": "a"}


WRONG = [
    (lambda: tr.Grouped("mrr", "worst"), "Expected reduce to be one of"),
    (lambda: tr.Grouped("mrr(aggregation=median)"), "computed from sums in Grouped"),
    (lambda: tr.Grouped("map(aggregation=geometric)"), "Expected arithmetic means over queries in Grouped"),
    (lambda: tr.Grouped("mrr, dcg@3", "all"), "between 0 and 1 with reduce='all', got 'dcg@3'"),
    *(
        (lambda how=how, given=given: tr.Grouped("mrr", how).update(SCORES, LABELS, **given), message)
        for how, given, message in [
            ("min", {}, "Expected group in every update of Grouped, got none"),
            ("min", {"group": [1]}, r"Expected group of shape \[2\]"),
            ("min", {"group": SCORES[0]}, r"pass group.long\(\)"),
            ("min", {"group": LABELS, "order": LABELS}, "leave it out"),
            ("last", {"group": LABELS}, "got none; pass order="),
            ("last", {"group": LABELS, "order": ["1", "2"]}, "order to be integers, got '1'; pass the place of each"),
            ("last", {"group": LABELS, "order": SCORES[0]}, "Expected order to be integers, got torch.float32"),
        ]
    ),
    (lambda: TABLE.grouped("worst", BY_ID), "Expected reduce to be one of"),
    (lambda: TABLE.grouped(), "Expected a table with groups, got none"),
    (lambda: TABLE.grouped("min", {"a1": "a"}), "Expected a key in groups for every id, got none for 1 of 2"),
    (lambda: TABLE.grouped("last", BY_ID), "got none; pass order="),
    (lambda: TABLE.grouped("min", BY_ID, {"a1": 1, "a2": 2}), "leave it out"),
    (lambda: TABLE.grouped("last", BY_ID, {"a1": 1, "a2": True}), "order to be integers, got True; pass"),
    (lambda: TABLE.grouped("min", {"a1": 1, "a2": "x"}), "groups of one type, got numbers and texts"),
    (lambda: TABLE.grouped("all", BY_ID), "between 0 and 1 with reduce='all', got 'mrr'"),
]


@cases("call, message", WRONG)
def test_wrong_calls_say_what_is_expected(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_table_leaves_out_queries_without_a_group_and_takes_its_own_groups():
    table = tr.QueryTable([1, 2, 3, 4], {"mrr": [1.0, 0.5, 0.25, math.nan]}, groups=["a", None, "a", "b"])
    assert table.grouped("min").to_dict() == {"id": ["a", "b"], "mrr/min": [0.25, pytest.approx(math.nan, nan_ok=True)]}
    assert table.grouped("max", {1: 7, 2: 7, 3: math.nan, 4: 7}).to_dict() == {"id": [7], "mrr/max": [1.0]}
    assert len(tr.QueryTable([], {"mrr": []}).grouped("min", {})) == 0
