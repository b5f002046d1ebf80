"""The error of a wrong call of each kind has "Expected" and "got"."""

import math

import pytest
import torch
from torch import tensor
from torchmetrics.regression import MeanAbsoluteError

import torchrank as tr
from tests.support.cases import cases

SCORES = tensor([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]])
GRADES = tensor([[1, 0, 0], [0, 0, 1]])
IDS = tensor([[5, 3, 1], [2, 4, 6]])
ROWS, LABELS = tensor([0.1, 0.2]), tensor([0, 1])
PAIRS = LABELS, LABELS
NAN, INF = float("nan"), float("inf")


# fmt: off
# (type, parts of the message: expected, got; the arguments, and the keywords if there are some)
SHAPES = [
    (TypeError, ["preds to be a tensor", "dict"], ({}, GRADES)),
    (TypeError, ["floating point scores or integer ids", "torch.bool"], (SCORES > 0.2, GRADES)),
    (ValueError, ["[query, candidate]", "[1, 2, 3]"], (SCORES[None], GRADES[None])),
    (ValueError, ["indexes [3]", "[0] * 3"], (SCORES[0], GRADES[0])),
    (ValueError, ["shape [2, 3]", "[2, 2]"], (SCORES, GRADES[:, :2])),
    (ValueError, ["ids [2]", "shape [1]"], (SCORES, tensor([1]))),
    (TypeError, ["integer ids", "torch.float32"], (SCORES, tensor([1.0, 0.0]))),
    (TypeError, ["a list of 2 id tensors", "NoneType"], (SCORES,)),
    (TypeError, ["ids [2]", "dict"], (SCORES, {})),
    (TypeError, ["integer, bool or floating", "complex64"], (SCORES, GRADES + 0j)),
    (ValueError, ["list of 2", "list of 3", "tuple"], (SCORES, [tensor([1])] * 3)),
    (ValueError, ["(query, item)", "[[1]]"], (SCORES, (tensor([0]),))),
    (ValueError, ["equally long", "[[1], [2]]"], (SCORES, (tensor([0]), tensor([0, 1])))),
    (TypeError, ["integer ids", "float32"], (SCORES, (tensor([0.0]), tensor([0])))),
    (ValueError, ["mask", "[2, 3] or [3]", "[2, 2]"], (SCORES, GRADES), {"mask": GRADES[:, 1:] > 0}),
    (TypeError, ["mask to be a bool tensor", "torch.int64"], (SCORES, GRADES), {"mask": GRADES}),
    (ValueError, ["mask of preds' shape [2]", "[3]"], (ROWS, LABELS), {"mask": GRADES[0] > 0, "indexes": LABELS}),
    (ValueError, ["tie_break", "[3]", "[2]"], (SCORES, GRADES), {"tie_break": ROWS}),
    (ValueError, ["no tie_break", "ids already ranked"], (IDS, IDS), {"tie_break": IDS}),
    (ValueError, ["equally long", "[[1], [2]]"], (SCORES, GRADES), {"exclude": (tensor([0]), tensor([0, 1]))}),
    (ValueError, ["no exclude for flat rows"], (ROWS, LABELS), {"indexes": LABELS, "exclude": PAIRS}),
    (ValueError, ["weights", "[2]", "[3]"], (SCORES, GRADES), {"weights": torch.ones(3)}),
    (ValueError, ["list of 2", "'int'", "torch.as_tensor(target)"], (SCORES, [1, 0])),
    (TypeError, ["labels", "exchange preds and target"], (GRADES > 0, SCORES)),
    (TypeError, ["labels", "exchange preds and target"], (GRADES * 3, SCORES)),
    (TypeError, ["labels", "exchange preds and target"], (tensor([1, 0]), ROWS), {"indexes": tensor([0, 0])}),
    (ValueError, ["indexes", "[2]", "[1]"], (ROWS, tensor([0, 1])), {"indexes": tensor([0])}),
    (TypeError, ["integer indexes", "torch.float32"], (ROWS, tensor([0, 1])), {"indexes": ROWS}),
    (ValueError, ["flat preds [row]", "[2, 3]"], (SCORES, GRADES), {"indexes": GRADES}),
    (TypeError, ["floating point scores", "torch.int64"], (tensor([1, 2]), LABELS), {"indexes": LABELS}),
]
# fmt: on


@cases("case", SHAPES)
@cases("call", ["score", "update", "forward", "collection"])
def test_shapes_and_dtypes_raise_at_once(case, call):
    error, said, arguments, *keywords = case
    metric = tr.RankingCollection(["mrr"]) if call == "collection" else tr.MRR()
    with pytest.raises(error) as caught:
        getattr(metric, "update" if call == "collection" else call)(*arguments, **dict(*keywords))
    for part in said:
        assert part in str(caught.value), str(caught.value)


EMBEDDED, ITEMS = torch.ones(2, 3), torch.ones(4, 3)

# each with one argument, and how an error calls it
DOORS = {
    "preds": (SCORES, lambda x: tr.MRR().score(x, GRADES)),
    "grades": (GRADES.float(), lambda x: tr.MRR().score(SCORES, x)),
    "labels": (LABELS, lambda x: tr.MRR().score(SCORES, x)),
    "a list": (LABELS, lambda x: tr.MRR().score(SCORES, [x, x])),
    "a tuple": (PAIRS[1], lambda x: tr.MRR().score(SCORES, (PAIRS[0], x))),
    "exclude": (PAIRS[1], lambda x: tr.MRR().score(SCORES, GRADES, exclude=(PAIRS[0], x))),
    "a list to exclude": (PAIRS[1], lambda x: tr.MRR().score(SCORES, GRADES, exclude=[x, x])),
    "mask": (GRADES > 0, lambda x: tr.MRR().score(SCORES, GRADES, mask=x)),
    "tie_break": (SCORES, lambda x: tr.MRR().score(SCORES, GRADES, tie_break=x)),
    "weights": (SCORES[:, 0], lambda x: tr.MRR().score(SCORES, GRADES, weights=x)),
    "weights of lists": (SCORES[:, 0], lambda x: tr.Coverage(num_items=7).update(IDS, weights=x)),
    "flat preds": (ROWS, lambda x: tr.MRR().score(x, LABELS, indexes=LABELS)),
    "flat target": (LABELS, lambda x: tr.MRR().score(ROWS, x, indexes=LABELS)),
    "indexes": (LABELS, lambda x: tr.MRR().score(ROWS, LABELS, indexes=x)),
    "ids": (IDS, lambda x: tr.MRR().score(x, LABELS)),
    "lists": (IDS, lambda x: tr.Coverage(num_items=7).update(x)),
    "relevant of lists": (IDS, lambda x: tr.Serendipity(interactions=torch.ones(7)).score(IDS, x)),
    "from_label": (LABELS, lambda x: tr.Ranking.from_label(SCORES, x)),
    "from_ids": (IDS, lambda x: tr.Ranking.from_ids(x, LABELS)),
    "from_rankings": (IDS, lambda x: tr.Ranking.from_rankings(IDS, x)),
    "from_ranks": (SCORES, lambda x: tr.Ranking.from_ranks(x)),
    "from_negatives, pos": (ROWS, lambda x: tr.Ranking.from_negatives(x, SCORES)),
    "from_negatives, neg": (SCORES, lambda x: tr.Ranking.from_negatives(ROWS, x)),
    "from_neighbors, found": (IDS, lambda x: tr.Ranking.from_neighbors(x, SCORES, IDS, SCORES)),
    "from_neighbors, distance": (SCORES, lambda x: tr.Ranking.from_neighbors(IDS, SCORES, IDS, x)),
    "exact_neighbors": (ITEMS, lambda x: tr.exact_neighbors(EMBEDDED, x, 2)),
    "queries": (EMBEDDED, lambda x: tr.Ranking.from_embeddings(x, ITEMS, LABELS)),
    "items": (ITEMS, lambda x: tr.Ranking.from_embeddings(EMBEDDED, x, LABELS)),
    "relevant": (LABELS, lambda x: tr.Ranking.from_embeddings(EMBEDDED, ITEMS, x)),
    "blocks": (SCORES, lambda x: tr.Ranking.from_score_blocks([x], LABELS)),
}


def nested(x, **more):
    return torch.nested.nested_tensor(list(x.unbind()) if x.dim() > 1 else [x, x], dtype=x.dtype, **more)


# with the ways out, of which an error has one
KINDS = {
    "nested": (nested, ["to_padded_tensor", "nested"]),
    "jagged": (lambda x: nested(x, layout=torch.jagged), ["to_padded_tensor", "nested"]),
    "sparse": (lambda x: x.to_sparse(), ["to_dense", "x.values()"]),
    "8 bits": (lambda x: x.float().to(torch.float8_e4m3fn), [".float()"]),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@cases("kind", KINDS)
@cases("door", DOORS)
def test_a_kind_of_tensor_that_torch_cannot_compare_is_refused_with_a_way_out(door, kind):
    (good, call), (make, ways) = DOORS[door], KINDS[kind]
    call(good)
    with pytest.raises((TypeError, ValueError), match=r"^Expected .* got ") as caught:
        call(make(good))
    assert any(way in str(caught.value) for way in ways), str(caught.value)


ONE, TWO = "1 label, id or (query, item) index out of range", "2 labels, ids or (query, item) indices out of range"
COLUMNS, QUERIES = "is out of range: preds has 3 columns, 0 to 2", "is out of range: preds has 2 queries, 0 to 1"
NAN_TIES = "2 queries with NaN among the scores or tie breaks"
ROWS_WITH_NAN = (tensor([NAN, 1.0, NAN]), tensor([1, 0, 1]))
NO_CANDIDATE = {"exclude": (tensor([0, 1]), tensor([0, 0]))}
#: what ``compute`` counts, where ``score`` finds the first, the arguments, and the keywords if there are some
VALUES = [
    ("1 query with NaN", "first in query 1;", (tensor([[0, 1, 2.0], [NAN, 1, NAN]]), GRADES)),
    ("2 queries with NaN", "first in query 0;", (tensor([[NAN, 1, 0], [NAN, 1, 2]]), tensor([1, 1]))),
    ("2 queries with NaN", "first in query 7;", ROWS_WITH_NAN, {"indexes": tensor([9, 7, 7])}),
    ("2 relevance grades", "first in query 1;", (SCORES, tensor([[1, 1, 0], [NAN, 1, INF]]))),
    ("1 query with NaN", "first in query 1;", (tensor([[0, 1, 2.0], [NAN, 1, 0]]), GRADES), NO_CANDIDATE),
    (NAN_TIES, "first in query 0;", (SCORES, tensor([1, 0])), {"tie_break": tensor([0, NAN, 1])}),
    (ONE, f"label 3 of query 1 {COLUMNS}", (SCORES, tensor([1, 3]))),
    (ONE, f"item 3 of query 1 {COLUMNS}", (SCORES, (tensor([0, 1, 0]), tensor([0, 3, 1])))),
    (TWO, f"item 0 of query 2 {QUERIES} (the first of 2)", (SCORES, (tensor([0, 2, -1]), tensor([0, 0, 0])))),
    ("1 target given more than once for its query", "first in query 1;", (SCORES, [tensor([0]), tensor([1, 1])])),
    ("1 target given more than once", "first in query 1;", (SCORES, (tensor([1, 0, 1]), tensor([2, 2, 2])))),
    ("1 id that occurs more than once", "first in query 1;", (tensor([[1, 2, 3], [4, 4, 1]]), tensor([4, 1]))),
    ("2 targets given more than once", "first in query 0;", (IDS, GRADES)),
    ("1 query weight that is", "first in query 1;", (SCORES, GRADES), {"weights": tensor([1, -1.0])}),
    ("2 query weights", "first in query 0;", (SCORES, GRADES), {"weights": tensor([NAN, INF])}),
    (ONE, f"excluded item 5 of query 2 {QUERIES}", (IDS, tensor([5, 4])), {"exclude": (tensor([2]), tensor([5]))}),
]
VALUES += [
    (said, f"excluded item {where}", (SCORES, tensor([0, 1])), {"exclude": exclude})
    for said, where, exclude in (
        (TWO, f"3 of query 0 {COLUMNS} (the first", (tensor([0, 5]), tensor([3, 0]))),
        (ONE, f"-1 of query 0 {COLUMNS}", (tensor([0]), tensor([-1]))),
        (ONE, f"0 of query 2 {QUERIES}", (tensor([2]), tensor([0]))),
        (ONE, f"0 of query -1 {QUERIES}", (tensor([-1]), tensor([0]))),
        (ONE, f"3 of query 1 {COLUMNS}", [tensor([0, -1]), tensor([3])]),
    )
]


@cases("case", VALUES)
def test_bad_values_are_counted_and_raise_in_compute_and_score_names_the_first_query_with_one(case):
    said, where, arguments, *keywords = case
    metric, unchecked = tr.NDCG(top_k=2), tr.NDCG(top_k=2, validate_args=False)
    unchecked.update(*arguments, **dict(*keywords))
    assert unchecked.compute().dim() == 0  # and does not raise
    metric.update(SCORES, GRADES)
    metric.update(*arguments, **dict(*keywords))
    for _ in range(2):  # not only the first time
        with pytest.raises(ValueError, match=r"^ndcg@2: ") as caught:
            metric.compute()
        assert f"ndcg@2: {said}" in str(caught.value)
    metric.reset()
    metric.update(SCORES, GRADES)
    assert metric.compute() == 1
    for scoring in (metric, tr.RankingCollection(["ndcg@2"])):
        with pytest.raises(ValueError, match=r"^ndcg@2: ") as caught:
            scoring.score(*arguments, **dict(*keywords))
        text = str(caught.value)
        assert where in text
        assert (f"ndcg@2: {said}" in text) == ("first in" in text) == ("out of range" not in where)


def test_the_first_of_many_queries_is_named():
    for first in (0, 1, 499, 500, 999):
        scores = torch.rand(1000, 5)
        scores[first, 2] = NAN
        scores[first + 300 :: 7, 1] = NAN
        with pytest.raises(ValueError, match=f"first in query {first};"):
            tr.MRR().score(scores, torch.zeros(1000, dtype=torch.int64), exclude=[tensor([3])] * 1000)
    lists = torch.arange(6).repeat(100, 1)
    lists[40:, 3] = 0
    with pytest.raises(ValueError, match=r"60 ids that occur more than once .*, first in query 40;"):
        tr.Novelty(interactions=torch.ones(6), num_users=8).score(lists, exclude=[tensor([5])] * 100)


NAN_BREAKS = tensor([[math.nan, math.nan], [1.0, 2.0], [3.0, math.nan]])


def test_queries_with_nan_among_their_tie_breaks_are_counted_once_each():
    scores, target = tensor([[0.5, 0.4]] * 3), tensor([[1, 0]] * 3)
    flat = {"indexes": torch.arange(3).repeat_interleave(2).to(torch.uint16)}  # which torch 2.6 cannot index
    rows, flat["tie_break"] = (scores.flatten(), target.flatten()), NAN_BREAKS.flatten()
    mask = tensor([True, True, True, True, True, False])
    for said, arguments, given in (
        ("2 queries", (scores, target), {"tie_break": NAN_BREAKS}),
        ("2 queries", rows, flat),
        ("1 query", rows, {"mask": mask, **flat}),
    ):
        with pytest.raises(ValueError, match=f"mrr: {said} with NaN among the scores or tie breaks"):
            tr.MRR().score(*arguments, **given)


def test_a_label_outside_of_the_catalogue_has_no_item_if_nothing_is_checked():
    scores = tensor([[0.9, 0.1], [0.1, 0.9]])
    assert tr.MRR(validate_args=False).score(scores, tensor([9, 1])).tolist() == [0, 1]
    assert tr.MRR().score(tensor([[0, 1], [1, 0]]), torch.empty(2, 0).long()).tolist() == [0, 0]


def test_a_grade_of_a_pair_that_is_nan_is_counted_and_that_of_a_pair_outside_is_not():
    scores, pairs = torch.rand(2, 3), (tensor([0, 1, 5]), tensor([0, 1, 0]))
    with pytest.raises(ValueError, match=r"2 relevance grades.*; item 0 of query 5 is out of range: preds has 2 que"):
        tr.NDCG().score(scores, (*pairs, torch.full((3,), math.nan)))


def test_a_number_among_lists_is_no_list_of_numbers():
    for exclude, way_out in (([1, 2], r"pass \[\[x\] for x in exclude\]"), ([[1], 2], "")):
        with pytest.raises((ValueError, TypeError), match=way_out or "1-D id tensors") as caught:
            tr.MRR().score(torch.rand(2, 3), tensor([0, 1]), exclude=exclude)
        assert ("[[x] for x in exclude]" in str(caught.value)) == bool(way_out)


def test_each_hint_stands_beside_its_own_case():
    with pytest.raises(ValueError, match=r"ids that occur .*pass preds\.float\(\)"):
        tr.MRR().score(tensor([[2, 2, 2, 1]]), tensor([1]))
    with pytest.raises(ValueError, match="given more than once") as caught:
        tr.MRR().score(SCORES, (tensor([0, 0]), tensor([1, 1])))
    assert "integer preds" not in str(caught.value)


def test_bad_values_add_up_over_batches_and_kinds():
    metric = tr.MRR()
    for _ in range(3):
        metric.update(SCORES, tensor([7, 7]), weights=tensor([-1.0, 1]))
    with pytest.raises(ValueError, match=r"6 .*indices out of range.*; 3 query weights"):
        metric.compute()


CONSTRUCTORS = {
    "top_k where the field has none": (lambda: tr.MR(top_k=3), ["no top_k for MR", "3"]),
    "ties": (lambda: tr.NDCG(ties="random"), ["'expected'", "'random'"]),
    "realistic ties of lists": (lambda: tr.NDCG(ties="realistic"), ["'pessimistic'", "'realistic'"]),
    "aggregation by a lambda": (lambda: tr.NDCG(aggregation=lambda x: x.mean()), ["name of its own", "lambda"]),
    "validate_args": (lambda: tr.NDCG(validate_args="yes"), ["validate_args", "'yes'"]),
    "gain": (lambda: tr.DCG(gain="quadratic"), ["'exponential'", "'quadratic'"]),
    "an aggregation named as a known one": (lambda: tr.DCG(aggregation=torch.median), ["name of its own", "median"]),
    "log_base without a logarithm": (lambda: tr.NDCG(discount="reciprocal", log_base=3), ["only with", "log_base=3"]),
    "average of one value": (lambda: tr.MRR(average="positive"), ["filtered=True", "got filtered=False"]),
    "an argument of no one": (lambda: tr.Coverage(num_items=3, ties="expected"), ["Coverage", "got 'ties'"]),
    "a cut-off where there is none": (lambda: tr.parse("mr@10"), ["no cutoff for mr"]),
    "one key for two metrics": (lambda: tr.RankingCollection({"n": "ndcg@5,10"}), ["one metric for key 'n'", "got 2"]),
    "a key twice": (lambda: tr.RankingCollection(["mrr", "RR"]), ["once", "'mrr' twice"]),
    "no metric": (lambda: tr.RankingCollection([3]), ["name of a measure", "3"]),
}


@cases("case", CONSTRUCTORS)
def test_wrong_arguments_of_constructors_name_the_expected(case):
    make, said = CONSTRUCTORS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        make()
    for part in said:
        assert part in str(caught.value), str(caught.value)


def test_a_foreign_metric_cannot_take_a_ranking():
    suite = tr.RankingCollection([tr.MRR(), MeanAbsoluteError()])
    with pytest.raises(TypeError, match=r"preds and target for MeanAbsoluteError.*got a Ranking"):
        suite.update(tr.Ranking.from_scores(SCORES, GRADES))


@pytest.mark.parametrize(("queries", "items"), [(2, 4), (4, 2), (3, 3)])
def test_labels_and_pairs_outside_the_catalogue_are_counted(queries, items):
    query = tensor([0, 0, queries - 1, queries, -1, 0, 0])
    item = tensor([0, items - 1, 0, 0, 0, items, -1])
    label = torch.arange(queries).clamp_max(items - 1)
    embeddings = torch.rand(queries, 3), torch.rand(items, 3)
    for wrong, number in ((0, 4), (1, 5)):
        label[0] = items * wrong
        for ranking in (
            lambda: tr.Ranking.from_embeddings(*embeddings, label, exclude=(query, item)),
            lambda: tr.Ranking.from_scores(torch.rand(queries, items), label, exclude=(query, item)),
        ):
            with pytest.raises(ValueError, match=f"mrr: {number} labels, ids or .* out of range"):
                tr.MRR().score(ranking())
    with pytest.raises(ValueError, match=r"mrr: excluded item 0 of query .* preds has . que.* \(the first of 4\)"):
        tr.MRR().score(torch.rand(queries, items), torch.ones(queries, items), exclude=(query, item))


@pytest.mark.parametrize("groups", [torch.zeros((1, 3), dtype=torch.int64), torch.zeros(0, dtype=torch.int64)])
def test_groups_of_blocks_are_one_row(groups):
    with pytest.raises(ValueError, match=r"Expected groups of shape \[item\], the group of each item of all blocks"):
        tr.Ranking.from_score_blocks([torch.rand(2, 3)], tensor([0, 1]), groups=groups)


def test_integer_scores_beside_float_grades_are_told_from_labels_beside_scores():
    ranks, grades = tensor([[3, 2, 1, 0]]), tensor([[1.0, 0, 0, 1]])
    with pytest.raises(TypeError, match=r"Expected target with integer preds .* pass preds\.float\(\)"):
        tr.NDCG().score(ranks, grades)
    for labels, scores in ((ranks % 2, grades), (ranks, grades / 2)):
        with pytest.raises(TypeError, match="exchange preds and target"):
            tr.NDCG().score(labels, scores)


@pytest.mark.parametrize("count", [2, 3, 40])
def test_a_relevant_item_given_twice_is_counted_in_lists_of_any_length(count):
    items, ids = torch.arange(count) % (count - 1), torch.arange(50).unsqueeze(0)
    for preds, target in ((torch.rand(1, 50), [items]), (ids, [items]), (ids, items.unsqueeze(0))):
        metric = tr.MRR()
        metric.update(preds, target)
        with pytest.raises(ValueError, match="1 target given more than once"):
            metric.compute()


def test_a_batch_without_queries_has_no_values_and_excludes_nothing():
    assert tr.MRR().score(torch.zeros(0, 5), []).shape == (0,)
    nothing = torch.zeros(0, dtype=torch.int64)
    ids = torch.zeros((0, 5), dtype=torch.int64)
    assert tr.MRR().score(ids, nothing, exclude=(nothing, nothing)).shape == (0,)
    assert tr.MRR().score(ids, nothing, exclude=[]).shape == (0,)


@cases(
    "call",
    [
        lambda big, ids: tr.MRR().update(big, tensor([3])),
        lambda big, ids: tr.MRR().update(ids, big),
        lambda big, ids: tr.MRR().update(ids, [big[0]]),
        lambda big, ids: tr.MRR().update(ids, (torch.zeros(2, dtype=torch.int64), big[0])),
        lambda big, ids: tr.MRR().update(ids, ids, exclude=(torch.zeros(2, dtype=torch.int64), big[0])),
        lambda big, ids: tr.Popularity(3, interactions=torch.arange(9)).update(big),
        lambda big, ids: tr.Ranking.from_ids(big, ids),
        lambda big, ids: tr.Ranking.from_rankings(ids, big),
        lambda big, ids: tr.Ranking.from_rankings(big, ids),
    ],
)
def test_ids_that_int64_may_not_hold_are_refused(call):
    with pytest.raises(TypeError, match="int64 can hold"):
        call(tensor([[2**63 + 5, 3]], dtype=torch.uint64), tensor([[5, 3]]))
