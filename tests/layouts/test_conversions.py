"""Groups of candidates, which are ranked as one, and ids that are repeated: against lists of groups in plain Python."""

import itertools
import math
import random
from typing import NamedTuple

import pytest
import torch
from torch import tensor

import torchrank as tr
from tests.support import layout_cases
from tests.support.layout_cases import config
from tests.support.oracle_comparison import IN_TURN, assert_all_equal
from tests.support.tie_orders import Query
from tests.support.unread import Elsewhere, NothingRead, leave_values_unread
from torchrank.formulas import judgment_bounds

GRADED = [config(name) for name in ("ndcg", "map", "mrr", "bpref", "auroc")]
GRADED += [config("recall", top_k=2, ties=ties) for ties in ("expected", "optimistic", "pessimistic")]
BINARY = [config(name, top_k=k) for name in ("ndcg", "map", "mrr", "hitrate", "recall") for k in (1, 3, None)]
QUERIES, CANDIDATES = 30, 7


class Candidate(NamedTuple):
    score: float
    grade: float
    group: int
    real: bool = True
    excluded: bool = False
    tie_break: int = 0


def query_of(candidates, by_tie_break=False):
    """The query of groups: each has its best score and its largest grade."""
    groups = {}
    for number, one in enumerate(candidates):
        if one.real and not (one.excluded and one.grade <= 0):
            groups.setdefault(one.group if one.group >= 0 else ("alone", number), []).append(one)
    listed, missing, places = [], [], sorted({(one.score, one.tie_break) for one in candidates})
    for members in groups.values():
        best, grade = max((one.score, one.tie_break) for one in members), max(one.grade for one in members)
        if best[0] == -math.inf:
            missing.append(grade)
        else:
            listed.append((float(places.index(best)) if by_tie_break else best[0], grade))
    return Query(tuple(listed), tuple(missing))


def some_candidates(seed, shared=False, grades=(-1, 0, 0, 1, 2)):
    """Candidates of each query with few different scores, so that candidates and groups are tied."""
    rng = random.Random(seed)
    groups = [rng.randint(-1, 3) for _ in range(CANDIDATES)]
    return [
        [
            Candidate(
                float(rng.choice((-math.inf, 0, 1, 1, 2))),
                rng.choice(grades),
                groups[column] if shared else rng.randint(-1, 3),
                rng.random() < 0.8,
                rng.random() < 0.2,
                rng.randint(0, 2),
            )
            for column in range(CANDIDATES)
        ]
        for _ in range(QUERIES)
    ]


def column(rows, name, dtype=None):
    return tensor([[getattr(one, name) for one in row] for row in rows], dtype=dtype)


def pairs_of(rows, wanted):
    found = [(query, item) for query, row in enumerate(rows) for item, one in enumerate(row) if wanted(one)]
    return tuple(tensor(found).reshape(-1, 2).T)


def plain(rows, *names):
    """Candidates without some of what they have."""
    return [[one._replace(**{name: Candidate._field_defaults[name] for name in names}) for one in row] for row in rows]


def judged_items(rows, form):
    """The relevant items as lists; or a label, 4, and the candidates of which only it is relevant."""
    if form == "label":
        rows = [[one._replace(grade=int(number == 4)) for number, one in enumerate(row)] for row in rows]
        return rows, torch.full((QUERIES,), 4)
    return rows, [tensor([item for item, one in enumerate(row) if one.grade > 0], dtype=int) for row in rows]


def assert_values(configs, queries, *args, where="", **kwargs):
    values = [layout_cases.scoring(one).score(*args, **kwargs) for one in configs]
    assert_all_equal(configs, queries, values, where)


# ---- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("given", "kind"), [("", Elsewhere), ("mask", torch.Tensor), ("exclude", Elsewhere), ("mask exclude", torch.Tensor)]
)
def test_a_dense_list_is_one_of_groups(given, kind, shared):
    rows = some_candidates(given, shared)
    left_out = {"tie_break": False, "real": "mask" in given, "excluded": "exclude" in given}
    rows = plain(rows, *(name for name, there in left_out.items() if not there))
    options = {"mask": column(rows, "real")} if "mask" in given else {}
    if "exclude" in given:
        options["exclude"] = pairs_of(rows, lambda one: one.excluded)
    groups = column(rows, "group")
    groups = groups[0] if shared else groups
    assert_values(
        GRADED,
        [query_of(row) for row in rows],
        column(rows, "score").as_subclass(kind),
        column(rows, "grade"),
        groups=groups.as_subclass(kind),
        **options,
    )


def test_a_group_has_the_tie_break_of_its_best_candidate():
    rows = plain(some_candidates(3), "real", "excluded")
    queries = [query_of(row, by_tie_break=True) for row in rows]
    breaks, groups = column(rows, "tie_break"), column(rows, "group")
    for order in (breaks, breaks.double()):
        options = {"tie_break": order, "groups": groups}
        assert_values(GRADED, queries, column(rows, "score"), column(rows, "grade"), **options)


@pytest.mark.parametrize(("shared", "kind"), [(False, torch.Tensor), (True, Elsewhere)])
@pytest.mark.parametrize("form", ["pairs", "triples", "all graded", "lists", "label"])
def test_judged_items_are_the_groups_of_a_catalogue(form, shared, kind):
    rows = plain(some_candidates(form, shared, grades=(0, 0, 0, 1)), "tie_break")
    rows, label_or_lists = judged_items(rows, form)
    query, item = pairs_of(rows, lambda one: one.grade > 0)
    target = {
        "pairs": (query, item),
        "triples": (query, item, torch.ones(len(item))),
        "all graded": (*pairs_of(rows, lambda one: True), column(rows, "grade").flatten()),
    }.get(form, label_or_lists)
    groups, exclude = column(rows, "group"), pairs_of(rows, lambda one: one.excluded)
    options = {"mask": column(rows, "real"), "exclude": exclude, "groups": groups[0] if shared else groups}
    # A judged item that a mask hides is no candidate.
    queries = [query_of(row) for row in rows]
    assert_values(BINARY, queries, column(rows, "score").as_subclass(kind), target, **options)


@pytest.mark.parametrize(
    ("form", "more"),
    [("label", {}), ("lists", {"top_k": 3}), ("triples", {"similarity": "cosine"}), ("lists", {"chunk_size": 2})],
)
def test_embeddings_are_ranked_by_groups_without_their_matrix(form, more):
    draw = torch.Generator().manual_seed(1)
    vectors = torch.randint(-1, 2, (QUERIES, 3), generator=draw).double()
    items = torch.randint(-1, 2, (40, 3), generator=draw).double()
    groups = torch.randint(-1, 12, (40,), generator=draw)
    relevant = torch.rand(QUERIES, 40, generator=draw) < 0.1
    target = {
        "label": torch.arange(QUERIES) - 1,
        "lists": [row.nonzero().flatten() for row in relevant],
        "triples": (*relevant.nonzero(as_tuple=True), torch.ones(int(relevant.sum()))),
    }[form]
    exclude = (torch.rand(QUERIES, 40, generator=draw) < 0.2).nonzero(as_tuple=True)
    left, right = vectors, items
    if "similarity" in more:
        left, right = (torch.nn.functional.normalize(x, dim=-1) for x in (vectors, items))
    for pairs in (None, exclude):
        ranking = tr.Ranking.from_embeddings(vectors, items, target, groups=groups, exclude=pairs, **more)
        for metric in (tr.NDCG(3), tr.MRR(3), tr.Recall(2)):
            want = metric.score(left @ right.T, target, groups=groups, exclude=pairs)
            torch.testing.assert_close(metric.score(ranking), want)


@pytest.mark.parametrize("form", ["label", "lists"])
def test_blocks_of_scores_are_ranked_by_groups_that_lie_in_several_blocks(form):
    rows = plain(some_candidates(form, shared=True, grades=(0, 0, 0, 1)), "tie_break", "real")
    rows, target = judged_items(rows, form)
    groups, exclude = column(rows, "group")[0], pairs_of(rows, lambda one: one.excluded)
    queries, scores = [query_of(row) for row in rows], column(rows, "score")
    for sizes in ([1] * 7, [2, 5], [3, 0, 4]):
        ranking = tr.Ranking.from_score_blocks(scores.split(sizes, 1), target, groups=groups, exclude=exclude)
        assert_values(BINARY[::4], queries, ranking, where=str(sizes))
        options = {"groups": groups, "exclude": exclude, "top_k": 3}
        once = tr.Ranking.from_score_blocks(iter(scores.split(sizes, 1)), target, **options)
        assert tr.NDCG(3).score(once).equal(tr.NDCG(3).score(ranking))
    assert scores.equal(column(rows, "score"))  # blocks are not written to
    for wrong in (groups[:-1], groups.repeat(2), groups[:1]):
        with pytest.raises(ValueError, match="of all items of the blocks"):
            tr.Ranking.from_score_blocks(scores.split(2, 1), target, groups=wrong)
    for outside in ({"relevant": torch.full((QUERIES,), 7)}, {"exclude": (tensor([0]), tensor([7]))}):
        arguments = {"relevant": target, "groups": groups} | outside
        with pytest.raises(ValueError, match="out of range"):
            tr.MRR().score(tr.Ranking.from_score_blocks(scores.split(2, 1), **arguments))


def test_negatives_of_one_group_with_a_positive_are_no_candidates():
    pos, neg = tensor([0.5, 0.5]), tensor([[0.9, 0.1, 0.7], [0.9, 0.8, 0.7]])
    ranking = tr.Ranking.from_negatives(pos, neg, groups=[[0, 0, 1, 2], [0, 1, 1, 2]])
    assert ranking.first.flatten().tolist() == [1, 3]
    assert ranking.num_candidates.tolist() == [3, 3]


def test_an_irrelevant_judged_item_keeps_no_candidate_of_another_query():
    scores = tensor([[0.9, 0.8, 0.7], [0.9, 0.8, 0.7]])
    target = tensor([0, 1, 1]), tensor([2, 0, 1]), tensor([1, 0, 1])
    exclude = tensor([0]), tensor([0])
    ranking = tr.Ranking.from_scores(scores, target, exclude=exclude, groups=torch.arange(3))
    assert ranking.num_candidates.tolist() == [2, 3]


def test_a_label_of_ignored_queries_stays_one():
    for preds in (torch.rand(3, 4), tensor([[0, 1], [2, 1], [0, 3]])):
        values = tr.MRR().score(preds, tensor([-100, 1, -1]), groups=[0, 0, 1, 1])
        assert values.isnan().tolist() == [True, False, False]


def test_subtopics_of_a_group_have_the_largest_grade_each():
    grades = tensor([[[1, 0], [0, 1], [0, 1], [0, 0]]])
    scores, groups = tensor([[4.0, 3.0, 2.0, 1.0]]), tensor([0, 0, 1, 2])
    got = tr.AlphaNDCG().score(scores, grades, groups=groups)
    want = tr.AlphaNDCG().score(scores[:, [0, 2, 3]], tensor([[[1, 1], [0, 1], [0, 0]]]))
    assert got.tolist() == want.tolist()


@pytest.mark.parametrize("with_tie_break", [False, True])
def test_flat_rows_are_rows_of_groups(with_tie_break):
    rows = plain(some_candidates(5), "excluded")
    order = torch.randperm(QUERIES * CANDIDATES, generator=torch.Generator().manual_seed(0))
    names = ("score", "grade", "group", "real", "tie_break")
    score, grade, groups, real, breaks = (column(rows, name).flatten()[order] for name in names)
    indexes = torch.arange(QUERIES).repeat_interleave(CANDIDATES)[order] - 7
    options = {"tie_break": breaks} if with_tie_break else {}
    queries = [query_of(row, by_tie_break=with_tie_break) for row in rows]
    assert_values(GRADED, queries, score, grade, indexes=indexes, groups=groups, mask=real, **options)
    ranking = tr.Ranking.from_flat(score, grade, indexes, groups=groups, mask=real, judged=True, **options)
    assert_values(GRADED, queries, ranking)


def test_large_matrices_are_reduced_in_chunks(monkeypatch):
    monkeypatch.setattr("torchrank.layouts.conversions.BLOCK", 3 * CANDIDATES)
    for shared in (False, True):
        test_a_dense_list_is_one_of_groups("mask exclude", torch.Tensor, shared)
        test_judged_items_are_the_groups_of_a_catalogue("triples", shared, torch.Tensor)
    target = tensor([[0, 0]] * CANDIDATES + [[0, -1]])  # only the last chunk has a partly judged group
    values = tr.MRR(unjudged="upper").score(torch.rand(target.shape), target, groups=[3, 3])
    assert values.tolist() == [0.0] * CANDIDATES + [1.0]


def test_the_first_query_with_a_bad_value_is_named():
    scores, groups = torch.rand(4, 6), torch.arange(6) // 2
    label = tensor([1, 2, 9, 1])
    for of_all in (True, False):
        given = groups if of_all else groups.expand(4, 6)
        with pytest.raises(ValueError, match="label 9 of query 2 is out of range: preds has 6 columns, 0 to 5"):
            tr.MRR().score(scores, label, groups=given)
    lists = tensor([[0, 1], [2, 3], [4, 5], [1, 6]])  # as many as there are ids with a group
    with pytest.raises(ValueError, match="id 6 of query 3 is out of range: groups has 6 ids, 0 to 5"):
        tr.MRR().score(lists, tensor([0, 2, 4, 1]), groups=groups)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_scores_keep_their_precision(dtype):
    scores = tensor([[1.0, 1.0 + torch.finfo(dtype).eps, 0.0]], dtype=dtype)
    assert tr.MRR().score(scores, tensor([0]), groups=[0, 1, 2]).tolist() == [0.5]


def test_batches_without_queries_or_candidates_are_empty():
    for shape in ((0, 3), (2, 0), (0, 0)):
        for groups in (torch.zeros(shape[1:]), torch.zeros(shape)):
            assert len(tr.NDCG().score(torch.zeros(shape), torch.zeros(shape), groups=groups.long())) == shape[0]
    none = torch.zeros(0, dtype=torch.int64)
    assert len(tr.NDCG().score(none.float(), none, indexes=none, groups=none)) == 0


def test_groups_meet_every_state_and_wrapper():
    rows = plain(some_candidates(8), "real", "excluded")
    batch, groups = (column(rows, "score"), column(rows, "grade")), {"groups": column(rows, "group")}
    want, numbers = tr.NDCG().score(*batch, **groups), torch.arange(QUERIES)
    metric, suite = tr.NDCG(), tr.RankingCollection(["ndcg", "recall@3"])
    kept, sliced = tr.PerQuery(suite), tr.Sliced(suite, ["a", "b"])
    metric.update(*batch, **groups)
    kept.update(*batch, **groups, query_ids=numbers)
    sliced.update(*batch, **groups, slices=numbers % 2)
    assert metric.compute().item() == pytest.approx(want.mean().item())
    assert suite(*batch, **groups)["ndcg"].item() == pytest.approx(want.mean().item())
    assert kept.compute().columns["ndcg"].tolist() == want.tolist()
    assert sliced.compute()["ndcg/a"].item() == pytest.approx(want[::2].mean().item())
    tr.Bootstrapped(suite, replicates=10).update(*batch, **groups, query_ids=numbers)
    tr.Compared(suite, ["a", "b"]).update({"a": batch[0], "b": batch[0]}, batch[1], **groups)
    tr.TieReport(suite).update(*batch, **groups)
    tr.Grouped(suite).update(*batch, **groups, group=numbers)
    tr.Abstention(suite).update(*batch, **groups, confidence=want)
    with pytest.raises(ValueError, match="exclude and groups"):
        tr.Abstention(suite).update(*batch, **groups)


# ---- ids -------------------------------------------------------------------------------------------------------------


def some_ids(seed, repeated=False):
    """Lists of ids of a catalogue of 12, of 5 groups and some alone: ids, what is relevant, and the groups."""
    rng = random.Random(seed)
    groups = [rng.randint(-1, 4) for _ in range(12)]
    lists = [[rng.randrange(12) for _ in range(6)] if repeated else rng.sample(range(12), 6) for _ in range(QUERIES)]
    relevant = [{item: rng.randint(1, 3) for item in rng.sample(range(12), rng.randint(0, 4))} for _ in range(QUERIES)]
    return lists, relevant, groups


def triples(relevant):
    found = [(query, item, grade) for query, grades in enumerate(relevant) for item, grade in grades.items()]
    return tuple(tensor(found).reshape(-1, 3).T)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("options", ["", "mask", "exclude"])
def test_a_list_of_ids_is_one_of_groups(options, repeated):
    lists, relevant, groups = some_ids(options, repeated)
    rng, queries, mask, excluded = random.Random(1), [], [], []
    for ids, grades in zip(lists, relevant):
        gone = set(rng.sample(range(12), 3)) if options == "exclude" else set()
        shown = [options != "mask" or rng.random() < 0.7 for _ in ids]
        mask.append(shown)
        excluded.append(tensor([*gone]))
        order = [i for i, there in zip(ids, shown) if there and not (i in gone and i not in grades)]
        listed = [Candidate(-float(place), grades.get(i, 0), groups[i] if groups[i] >= 0 else 100 + i)
                  for place, i in enumerate(order)]  # fmt: skip
        missing = [Candidate(-math.inf, grade, groups[i] if groups[i] >= 0 else 100 + i) for i, grade in grades.items()]
        queries.append(query_of([*listed, *missing]))
    given = {"mask": {"mask": mask}, "exclude": {"exclude": excluded}}.get(options, {})
    if repeated:
        given["repeats"] = "first"
    assert_values(GRADED[:3], queries, tensor(lists), triples(relevant), groups=groups, **given)


def test_padded_targets_of_ids_are_groups_once_each():
    lists, relevant, groups = some_ids(2)
    padded = tensor([[*grades, *[-1] * (4 - len(grades))] for grades in relevant])
    for one in BINARY:
        metric, (query, item, _) = layout_cases.scoring(one), triples(relevant)
        want = metric.score(tensor(lists), (query, item), groups=groups)
        assert metric.score(tensor(lists), padded, groups=groups).equal(want)


@pytest.mark.parametrize("repeats", ["first", "hold"])
def test_later_copies_go_or_hold_their_place(repeats):
    lists, relevant, _ = some_ids(repeats, repeated=True)
    queries = []
    for ids, grades in zip(lists, relevant):
        seen, order = set(), []
        for item in ids:
            if item not in seen:
                order.append(grades.get(item, 0))
            elif repeats == "hold":
                order.append(0)
            seen.add(item)
        listed = tuple((-float(place), grade) for place, grade in enumerate(order))
        queries.append(Query(listed, tuple(grade for item, grade in grades.items() if item not in seen)))
    ids = tensor(lists)
    assert_values(GRADED[:3], queries, ids, triples(relevant), repeats=repeats)
    ranking = tr.Ranking.from_ids(ids, triples(relevant), repeats=repeats)
    assert_values(GRADED[:3], queries, ranking)
    suite = tr.RankingCollection([tr.NDCG(), tr.Unrepeated(), tr.Gini(num_items=12)])
    suite.update(ids, triples(relevant), repeats=repeats)
    want = sum(len(set(one)) / len(one) for one in lists) / QUERIES
    assert suite.compute()["unrepeated"].item() == pytest.approx(want)  # of the lists as they are
    gini = tr.Gini(num_items=12)
    gini.update(tensor([[*dict.fromkeys(one), *[-1] * 6][:6] for one in lists]))
    assert suite.compute()["gini"].item() == pytest.approx(gini.compute().item())


def test_the_error_of_a_repeated_id_names_the_argument_that_takes_it():
    ids, relevant = tensor([[1, 1, 2]]), tensor([2])
    for more in ({}, {"groups": [0, 1, 2]}):
        with pytest.raises(ValueError, match=r"occurs more than once.*repeats='first' .* repeats='hold'"):
            tr.MRR().score(ids, relevant, **more)
    assert tr.MRR().score(ids, relevant, repeats="first").tolist() == [0.5]
    assert tr.MRR().score(ids, relevant, repeats="hold").tolist() == [pytest.approx(1 / 3)]


SCORES, GRADES, IDS = torch.rand(2, 3), torch.ones(2, 3), tensor([[0, 1], [1, 2]])
GRADED_LISTS, FLAT, RANKED = (SCORES, GRADES), (SCORES.flatten(), GRADES.flatten()), (IDS, IDS[:, 0])


@pytest.mark.parametrize(
    ("message", "arguments", "options"),
    [
        (r"groups of shape \[3\] or \[2, 3\]", GRADED_LISTS, {"groups": [0, 1]}),
        (r"of shape \[1\] or \[2, 1\]", (SCORES[:, :1], GRADES[:, :1]), {"groups": [0, 1]}),
        ("groups", GRADED_LISTS, {"groups": [0.5, 1, 2]}),
        (r"\[id\], the group of each id", RANKED, {"groups": IDS}),
        (r"shape \[6\].*sizes of queries are group_sizes", FLAT, {"indexes": [0] * 6, "groups": [3, 3]}),
        (r"got list; pass numpy.unique\(", GRADED_LISTS, {"groups": ["a", "b", "a"]}),
        ("pass target", (SCORES, GRADES[:, :2]), {"groups": [0, 0, 1]}),
        ("repeats to be 'error', 'first'", RANKED, {"repeats": "max"}),
        ("repeats=.error. for scores", GRADED_LISTS, {"repeats": "first"}),
        ("'hold'", RANKED, {"groups": [0, 1, 2], "repeats": "hold"}),
        ("got groups", (tr.Ranking.from_scores(SCORES, GRADES),), {"groups": [0, 1, 2]}),
    ],
)
def test_wrong_groups_and_repeats_raise(message, arguments, options):
    with pytest.raises((TypeError, ValueError), match=message):
        tr.MRR().score(*arguments, **options)


def test_groups_of_embeddings_and_of_measures_of_lists_and_identifiers_of_another_shape_raise():
    with pytest.raises(ValueError, match=r"shape \[2\], the group of each item"):
        tr.Ranking.from_embeddings(SCORES, SCORES, IDS[:, 0], groups=[0])
    with pytest.raises(ValueError, match=r"ids_of \[item\], or both with one more dimension.* \[2, 1, 1\]"):
        tr.Ranking.from_generated(IDS[:, :, None, None], IDS[:, 0], torch.zeros(2, 1, 1).long())
    with pytest.raises(ValueError, match="no groups for unrepeated"):
        tr.RankingCollection(["mrr", tr.Unrepeated()]).update(*RANKED, groups=[0, 1, 2])


# ---- bounds over judgments -------------------------------------------------------------------------------------------

BOUNDED = [one for one in IN_TURN if "lower" in tr.RankingMetric.registry[one.name].takes_unjudged_for]
BOUNDED = [one for one in BOUNDED if not one.metric().no_bounds_reason]
BOUNDED += [config("mrr", relevance_level=2), config("map", relevance_level=0.3), config("ndcg", top_k=2)]
GRADED_BOUNDED = [one for one in BOUNDED if not hasattr(one.metric(), "relevance_level")]
GRADED_BOUNDED += [config("ndcg", normalize="k", top_k=3), config("arp", ties="optimistic")]


def judged_in_all_ways(grades, worth):
    """Grades of a query with each of its unjudged candidates irrelevant or relevant."""
    return list(itertools.product(*([0, worth] if grade < 0 else [grade] for grade in grades)))


def extremes(configs, scores, grades, groups, mask):
    """The smallest and the largest value of each query over all judgments of its candidates, for each metric."""
    found = []
    for one in configs:
        worth = max(1, dict(one.parameters).get("relevance_level", 1))
        # What a mask hides has one judgment.
        ways = [judged_in_all_ways(row, worth) for row in grades.where(mask, 0).tolist()]
        rows = tensor(list(map(len, ways)))
        ranked, grouped, real = (x.repeat_interleave(rows, 0) for x in (scores, groups, mask))
        judged = tensor(list(itertools.chain(*ways)), dtype=torch.float64)
        values = layout_cases.scoring(one).score(ranked, judged, groups=grouped, mask=real)
        # An empty query has NaN under "skip", and bounds are those of the other judgments.
        found.append([[extreme(x.nan_to_num(nan=none)).item() for x in values.split(rows.tolist())]
                      for extreme, none in ((torch.min, math.inf), (torch.max, -math.inf))])  # fmt: skip
    return found


def finite(values):
    return [x if math.isfinite(x) else math.nan for x in values]


def assert_bounds(configs, candidates, *args, where="", **kwargs):
    """The bounds of candidates, given as dense scores, grades, groups and mask, in another layout."""
    for one, want in zip(configs, extremes(configs, *candidates)):
        for unjudged, values in zip(("lower", "upper"), want):
            got = one.metric(unjudged=unjudged).score(*args, **kwargs).tolist()
            assert got == pytest.approx(finite(values), abs=1e-9, nan_ok=True), f"{one} {unjudged} {where}"


def candidates_of_groups(seed, grades, size=(8, 5)):
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 4, size, generator=draw).double()
    scores[torch.rand(size, generator=draw) < 0.15] = -math.inf
    return scores, tensor(grades)[torch.randint(0, len(grades), size, generator=draw)], draw


def test_bounds_of_groups_are_the_extremes_of_all_judgments_of_their_candidates():
    scores, target, draw = candidates_of_groups(1, [-2, -1, 0, 1, 2])
    groups = torch.randint(-1, 2, scores.shape, generator=draw)
    assert_bounds(BOUNDED, (scores, target, groups, target == target), scores, target, groups=groups)


SOME_BOUNDED = [config(name) for name in ("mrr", "map", "ndcg", "bpref", "auroc", "rprecision", "fallout")]
SOME_BOUNDED += [config(name, top_k=2) for name in ("recall", "ndcg", "err")] + [config("mrr", relevance_level=2)]


def test_bounds_of_groups_in_every_layout_of_scores():
    scores, target, draw = candidates_of_groups(2, [-2, -2, 0, 0, 1, 2])
    groups = torch.randint(-1, 2, scores.shape, generator=draw)
    mask = torch.rand(scores.shape, generator=draw) < 0.8
    excluded = (torch.rand(scores.shape, generator=draw) < 0.2) & (target <= 0) & mask
    real = mask & ~excluded
    alike = scores, target, groups, real
    query, item = (target > -2).nonzero(as_tuple=True)
    triples, pairs = (query, item, target[query, item]), excluded.nonzero(as_tuple=True)
    order = torch.randperm(scores.numel(), generator=draw)
    rows = {"indexes": torch.arange(len(scores)).repeat_interleave(scores.shape[1])}
    rows |= {"groups": groups.flatten(), "mask": real.flatten()}
    shuffled = {name: x[order] for name, x in rows.items()}
    for form, args, options in (
        ("dense", (scores, target), {"mask": mask, "exclude": pairs, "groups": groups}),
        ("triples", (scores, triples), {"mask": mask, "exclude": pairs, "groups": groups}),
        ("rows", (scores.flatten(), target.flatten()), rows),
        ("rows in any order", (scores.flatten()[order], target.flatten()[order]), shuffled),
        ("ranking", (tr.Ranking.from_scores(scores, target, mask=real, groups=groups),), {}),
        ("rows of a ranking", (tr.Ranking.from_flat(scores.flatten(), target.flatten(), judged=True, **rows),), {}),
    ):
        assert_bounds(SOME_BOUNDED, alike, *args, **options, where=form)
    every = torch.ones_like(mask)
    shared = scores, target, groups[0].expand_as(groups), every
    assert_bounds(SOME_BOUNDED, shared, scores, triples, groups=groups[0])
    assert_bounds(SOME_BOUNDED, shared, scores, target, groups=groups[0])
    label = torch.randint(5, (len(scores),), generator=draw)
    named = torch.full_like(target, -2).scatter(1, label[:, None], 1)
    assert_bounds(SOME_BOUNDED, (scores, named, groups, every), scores, label, groups=groups)
    assert_bounds(SOME_BOUNDED, (scores, named, groups, every), scores, [*label[:, None]], groups=groups)


def test_bounds_of_groups_of_ids_and_of_parents():
    draw = torch.Generator().manual_seed(3)
    groups = tensor([0, 0, 0, 1, 1, -1, 2, 2])
    ids = torch.stack([torch.randperm(8, generator=draw)[:4] for _ in range(12)])
    grades = tensor([-2, -1, 0, 0, 1])[torch.randint(0, 5, (12, 8), generator=draw)]
    query, item = (grades > -2).nonzero(as_tuple=True)
    scores = torch.full((12, 8), -math.inf).scatter(1, ids, -torch.arange(4.0).expand(12, -1)).double()
    # An id that is neither listed nor judged is no candidate.
    alike = scores, grades, groups.expand(12, -1), scores.isfinite() | (grades > -2)
    assert_bounds(SOME_BOUNDED, alike, ids, (query, item, grades[query, item]), groups=groups)
    assert_bounds(SOME_BOUNDED, alike, ids, (query, item, grades[query, item]), groups=groups, repeats="first")
    parents = {f"c{chunk}": f"g{group}" for chunk, group in enumerate(groups.tolist()) if group >= 0}
    qrels = {str(q): {f"c{i}": g for i, g in enumerate(row) if g > -2} for q, row in enumerate(grades.tolist())}
    run = {str(q): {f"c{i}": -float(n) for n, i in enumerate(row)} for q, row in enumerate(ids.tolist())}
    assert_bounds(SOME_BOUNDED, alike, tr.Ranking.from_run(qrels, run, parent=parents))
    names = [one.metric(unjudged=unjudged) for one in SOME_BOUNDED for unjudged in ("lower", "upper")]
    values = tr.evaluate(qrels, run, tr.RankingCollection(names), parent=parents)["run"].columns
    for one, want in zip(SOME_BOUNDED, extremes(SOME_BOUNDED, *alike)):
        for unjudged, of_queries in zip(("lower", "upper"), want):
            label = one.metric(unjudged=unjudged).label
            assert values[label].tolist() == pytest.approx(finite(of_queries), nan_ok=True), label


def test_a_grade_of_a_document_is_one_of_all_its_chunks():
    run = {"q": {"d#1": 0.9, "d#2": 0.8}}
    for qrels, upper in (({"d": 0}, 0.0), ({"d": 0, "d#2": -1}, 0.0), ({"d#1": 0}, 1.0), ({"d#1": 0, "d#2": 0}, 0.0)):
        ranking = tr.Ranking.from_run({"q": qrels}, run, parent="#")
        assert tr.MRR(unjudged="upper").score(ranking).tolist() == [upper], qrels


def test_a_partly_judged_group_is_judged_where_no_bound_is_asked_for():
    scores, target, groups = tensor([[3.0, 2.0, 1.0]]), tensor([[0, -1, 1]]), tensor([7, 7, 8])
    want = tensor([[3.0, 1.0]]), tensor([[0, 1]])
    suite = tr.RankingCollection(["judged", "bpref", "infap", "map(unjudged=condensed)", "mrr(unjudged=upper)", "mrr"])
    for (label, value), same in zip(suite.score(scores, target, groups=groups).items(), suite.score(*want).values()):
        assert value.item() == (1.0 if label == "mrr(unjudged=upper)" else same.item()), label


def test_bounds_of_short_lists_of_groups_read_no_grade(monkeypatch):
    grades = tensor([[0.1, -1.0, 0.2, -1.0, 0.3, -1.0], [0.5, -1.0, 0.5, -1.0, -1.0, -1.0]])
    ranking = tr.Ranking.from_scores(torch.rand(2, 6), grades, groups=torch.arange(3).repeat_interleave(2))
    metric = tr.NDCG(unjudged="upper")
    want = metric.score(ranking)
    leave_values_unread(monkeypatch)
    with NothingRead():
        metric.update(ranking)
    assert metric.score(ranking).equal(want)


@pytest.mark.parametrize("grades", [(0.1, 0.1, 0.1, 0.3, 0.5, 0.9), (0.1, 0.3, 0.5, 0.9, 3.0)])
def test_bounds_of_queries_with_too_many_different_grades_cover_all_judgments(monkeypatch, grades):
    monkeypatch.setattr(judgment_bounds, "LONGEST", 10)
    draw = torch.Generator().manual_seed(2)
    known = tensor(grades)[torch.randint(0, len(grades), (20, 5), generator=draw)]
    target = torch.stack([known, torch.full_like(known, -1.0)], -1).flatten(1)
    scores = torch.randint(0, 6, target.shape, generator=draw) / 4
    groups = torch.arange(5).repeat_interleave(2).expand(20, -1)
    numbers = [[row.count(grade) + 1 for grade in {*row} if grade < 1] for row in known.tolist()]
    few = [math.prod(row) <= 10 or len(row) == 1 for row in numbers]
    assert 1 < sum(few) < 19
    exact = 0
    for one, want in zip(GRADED_BOUNDED, extremes(GRADED_BOUNDED, scores, target, groups, target == target)):
        lower, upper = (one.metric(unjudged=name).score(scores, target, groups=groups) for name in ("lower", "upper"))
        least, most = tensor(want, dtype=torch.float64)
        assert not ((lower > least + 1e-12) | (upper < most - 1e-12)).any(), one
        exact += (got := torch.stack([lower, upper])).allclose(torch.stack([least, most]))
        assert got[:, few].allclose(torch.stack([least, most])[:, few]), one
        if one.name in ("cg", "dcg", "pwa"):
            assert got.allclose(torch.stack([least, most])), one
    assert exact < len(GRADED_BOUNDED)


def test_ids_outside_of_the_groups_are_counted_and_padding_is_in_none():
    groups, scores = tensor([0, 0, 1, 2]), tensor([[0.1, 0.4, 0.3, 0.2]])
    padded = tensor([[2, -1]])
    blocks = tr.Ranking.from_score_blocks(scores.split(2, 1), padded, groups=groups)
    assert tr.Recall(top_k=1).score(blocks).tolist() == [0.0]  # of one relevant item, on the second place
    assert tr.Recall(top_k=2).score(blocks).tolist() == [1.0]
    for ids, relevant, outside in (([[3, 9]], [[1]], 1), ([[3, 1]], [[9]], 1), ([[3, 9]], [[8]], 2)):
        metric = tr.MRR()
        metric.update(tensor(ids), tensor(relevant), groups=groups)
        with pytest.raises(ValueError, match=f"{outside} label"):
            metric.compute()
