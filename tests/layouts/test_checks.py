"""The error of a wrong call of each kind has "Expected" and "got"."""

import math
import re

import numpy as np
import pytest
import torch
from torch import tensor
from torchmetrics.regression import MeanAbsoluteError

import torchrank as tr
from tests.support.cases import cases

SCORES = tensor([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]])
GRADES = tensor([[1, 0, 0], [0, 0, 1]])
IDS = tensor([[5, 3, 1], [2, 4, 6]])
ROWS = tensor([0.1, 0.2])
NAN, INF = float("nan"), float("inf")


def exponential(grade):
    return 3.0**grade - 1


# (arguments, keywords, type, pattern of the message: expected, got)
SHAPES = {
    "preds is no tensor": (({}, GRADES), {}, TypeError, ["preds to be a tensor", "dict"]),
    "preds is bool": ((SCORES > 0.2, GRADES), {}, TypeError, ["floating point scores or integer ids", "torch.bool"]),
    "preds is complex": ((SCORES + 0j, GRADES), {}, TypeError, ["floating point scores", "complex"]),
    "preds has three dimensions": ((SCORES[None], GRADES[None]), {}, ValueError, ["[query, candidate]", "[1, 2, 3]"]),
    "one query without its dimension": ((SCORES[0], GRADES[0]), {}, ValueError, ["indexes [3]", "[0] * 3"]),
    "grades of another shape": ((SCORES, GRADES[:, :2]), {}, ValueError, ["shape [2, 3]", "[2, 2]"]),
    "grades of another number of queries": ((SCORES, GRADES[:1]), {}, ValueError, ["[2, 3]", "[1, 3]"]),
    "labels of another number": ((SCORES, tensor([1])), {}, ValueError, ["ids [2]", "shape [1]"]),
    "labels that are floating": ((SCORES, tensor([1.0, 0.0])), {}, TypeError, ["integer ids", "torch.float32"]),
    "target missing": ((SCORES,), {}, TypeError, ["a list of 2 id tensors", "NoneType"]),
    "target is a dict": ((SCORES, {}), {}, TypeError, ["ids [2]", "dict"]),
    "grades that are complex": ((SCORES, GRADES + 0j), {}, TypeError, ["integer, bool or floating", "complex64"]),
    "a list of another length": ((SCORES, [tensor([1])] * 3), {}, ValueError, ["list of 2", "list of 3", "tuple"]),
    "pairs that collation made a list": (
        (SCORES, [tensor([0, 1, 1])] * 3),
        {},
        ValueError,
        ["if they are (query, item) pairs", "list of 3"],
    ),
    "a tuple of one": ((SCORES, (tensor([0]),)), {}, ValueError, ["(query, item)", "[[1]]"]),
    "a tuple of unequal lengths": (
        (SCORES, (tensor([0]), tensor([0, 1]))),
        {},
        ValueError,
        ["equally long", "[[1], [2]]"],
    ),
    "a tuple of floats": ((SCORES, (tensor([0.0]), tensor([0]))), {}, TypeError, ["integer ids", "float32"]),
    "mask of another shape": (
        (SCORES, GRADES),
        {"mask": GRADES[:, 1:] > 0},
        ValueError,
        ["mask", "[2, 3] or [3]", "[2, 2]"],
    ),
    "mask that is not bool": (
        (SCORES, GRADES),
        {"mask": GRADES},
        TypeError,
        ["mask to be a bool tensor", "torch.int64"],
    ),
    "tie_break of another shape": ((SCORES, GRADES), {"tie_break": ROWS}, ValueError, ["tie_break", "[3]", "[2]"]),
    "tie_break of ids": ((IDS, IDS), {"tie_break": IDS}, ValueError, ["no tie_break", "ids already ranked"]),
    "exclude that is no pair": (
        (SCORES, GRADES),
        {"exclude": GRADES},
        ValueError,
        ["(query, item) tuple", "a list of 2 1-D id tensors", "Tensor"],
    ),
    "exclude of unequal lengths": (
        (SCORES, GRADES),
        {"exclude": (tensor([0]), tensor([0, 1]))},
        ValueError,
        ["equally long", "[[1], [2]]"],
    ),
    "exclude of flat rows": (
        (ROWS, tensor([0, 1])),
        {"indexes": tensor([0, 0]), "exclude": (tensor([0]), tensor([0]))},
        ValueError,
        ["no exclude for flat rows"],
    ),
    "weights of another number": ((SCORES, GRADES), {"weights": torch.ones(3)}, ValueError, ["weights", "[2]", "[3]"]),
    "labels in a list": ((SCORES, [1, 0]), {}, ValueError, ["list of 2", "'int'", "torch.as_tensor(target)"]),
    "bool labels before scores": ((GRADES > 0, SCORES), {}, TypeError, ["labels", "exchange preds and target"]),
    "0 and 1 before scores": ((GRADES, SCORES), {}, TypeError, ["labels", "exchange preds and target"]),
    "grades before scores": ((GRADES * 3, SCORES), {}, TypeError, ["labels", "exchange preds and target"]),
    "a label per query before scores": (
        (tensor([1, 2]), SCORES),
        {},
        TypeError,
        ["labels", "exchange preds and target"],
    ),
    "flat labels before scores": (
        (tensor([1, 0]), ROWS),
        {"indexes": tensor([0, 0])},
        TypeError,
        ["labels", "exchange preds and target"],
    ),
    "ids of 64 bits without a sign": ((IDS.to(torch.uint64), IDS), {}, TypeError, ["int64 can hold", "uint64"]),
    "relevant ids without a sign": (
        (IDS, tensor([5, 2]).to(torch.uint64)),
        {},
        TypeError,
        ["int64 can hold", "uint64"],
    ),
    "excluded ids without a sign": (
        (IDS, IDS),
        {"exclude": [tensor([5]).to(torch.uint64)] * 2},
        TypeError,
        ["int64 can hold", "uint64"],
    ),
    "pairs to exclude that collation made a list": (
        (SCORES, GRADES),
        {"exclude": [tensor([0, 1, 1])] * 3},
        ValueError,
        ["exclude to be a list of 2 1-D id tensors", "list of 3", "if they are (query, item) pairs", "tuple(exclude)"],
    ),
    "indexes of another length": (
        (ROWS, tensor([0, 1])),
        {"indexes": tensor([0])},
        ValueError,
        ["indexes", "[2]", "[1]"],
    ),
    "indexes that are floating": (
        (ROWS, tensor([0, 1])),
        {"indexes": ROWS},
        TypeError,
        ["integer indexes", "torch.float32"],
    ),
    "indexes beside a grid": ((SCORES, GRADES), {"indexes": GRADES}, ValueError, ["flat preds [row]", "[2, 3]"]),
    "sparse preds": ((SCORES.to_sparse(), GRADES), {}, TypeError, ["dense tensor", "sparse_coo"]),
    "flat rows of ids": (
        (tensor([1, 2]), tensor([0, 1])),
        {"indexes": tensor([0, 0])},
        TypeError,
        ["floating point scores", "torch.int64"],
    ),
    "flat mask that is not bool": (
        (ROWS, tensor([0, 1])),
        {"indexes": tensor([0, 0]), "mask": ROWS},
        TypeError,
        ["mask to be a bool tensor", "torch.float32"],
    ),
    "integer scores with bool grades": (
        (IDS, GRADES > 0),
        {},
        TypeError,
        ["integer ids", "torch.bool", "preds.float()"],
    ),
    "integer scores with float grades": (
        (IDS, GRADES * 1.0),
        {},
        TypeError,
        ["integer ids", "float32", "preds.float()"],
    ),
    "something beside a ranking": (
        (tr.Ranking.from_scores(SCORES, GRADES), GRADES),
        {},
        ValueError,
        ["nothing but weights with a Ranking", "target"],
    ),
}


@cases("case", SHAPES)
@cases("call", ["score", "update", "forward", "collection"])
def test_shapes_and_dtypes_raise_at_once(case, call):
    arguments, keywords, error, said = SHAPES[case]
    metric = tr.RankingCollection(["mrr"]) if call == "collection" else tr.MRR()
    with pytest.raises(error) as caught:
        getattr(metric, "update" if call == "collection" else call)(*arguments, **keywords)
    for part in said:
        assert part in str(caught.value), str(caught.value)


PAIRS = (tensor([0, 1]), tensor([0, 1]))
EMBEDDED, ITEMS, LABELS = torch.ones(2, 3), torch.ones(4, 3), tensor([0, 1])

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
    "queries": (EMBEDDED, lambda x: tr.Ranking.from_embeddings(x, ITEMS, LABELS)),
    "items": (ITEMS, lambda x: tr.Ranking.from_embeddings(EMBEDDED, x, LABELS)),
    "relevant": (LABELS, lambda x: tr.Ranking.from_embeddings(EMBEDDED, ITEMS, x)),
    "blocks": (SCORES, lambda x: tr.Ranking.from_score_blocks([x], LABELS)),
}
KINDS = {
    "nested": lambda x: torch.nested.nested_tensor(list(x.unbind()) if x.dim() > 1 else [x, x]),
    "jagged": lambda x: torch.nested.nested_tensor(
        list(x.unbind()) if x.dim() > 1 else [x, x], layout=torch.jagged, dtype=x.dtype
    ),
    "sparse": lambda x: x.to_sparse(),
    "8 bits": lambda x: x.float().to(torch.float8_e4m3fn),
}


WAYS = {
    "nested": ["to_padded_tensor", "nested"],
    "jagged": ["to_padded_tensor", "nested"],
    "sparse": ["to_dense", "x.values()"],
    "8 bits": [".float()"],
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@cases("kind", KINDS)
@cases("door", DOORS)
def test_a_kind_of_tensor_that_torch_cannot_compare_is_refused_with_a_way_out(door, kind):
    good, call = DOORS[door]
    call(good)
    with pytest.raises((TypeError, ValueError), match=r"^Expected .* got ") as caught:
        call(KINDS[kind](good))
    assert any(way in str(caught.value) for way in WAYS[kind]), str(caught.value)


# (arguments, keywords, pattern of the message: number and kind; the query that is named)
VALUES = {
    "NaN scores, dense": ((tensor([[0, 1, 2.0], [NAN, 1, NAN]]), GRADES), {}, "1 query with NaN", 1),
    "NaN scores, catalogue": ((tensor([[NAN, 1, 0], [NAN, 1, 2]]), tensor([1, 1])), {}, "2 queries with NaN", 0),
    "NaN scores, flat": (
        (tensor([NAN, 1.0, NAN]), tensor([1, 0, 1])),
        {"indexes": tensor([9, 7, 7])},
        "2 queries with NaN",
        7,
    ),
    "NaN grades": ((SCORES, tensor([[1, 1, 0], [NAN, 1, INF]])), {}, "2 relevance grades", 1),
    "NaN scores, excluded": (
        (tensor([[0, 1, 2.0], [NAN, 1, 0]]), GRADES),
        {"exclude": (tensor([0, 1]), tensor([0, 0]))},
        "1 query with NaN",
        1,
    ),
    "NaN tie breaks": (
        (SCORES, tensor([1, 0])),
        {"tie_break": tensor([0, NAN, 1])},
        "2 queries with NaN among the scores or tie breaks",
        0,
    ),
    "label out of range": ((SCORES, tensor([1, 3])), {}, "1 label, id or (query, item) index out of range", 1),
    "item out of range": (
        (SCORES, (tensor([0, 1, 0]), tensor([0, 3, 1]))),
        {},
        "1 label, id or (query, item) index out of range",
        1,
    ),
    "pair out of range": (
        (SCORES, (tensor([0, 2, -1]), tensor([0, 0, 0]))),
        {},
        "2 labels, ids or (query, item) indices out of range",
        None,
    ),
    "excluded pair out of range": (
        (SCORES, tensor([0, 1])),
        {"exclude": (tensor([0, 5]), tensor([3, 0]))},  # columns are 0, 1 and 2
        "2 labels, ids or (query, item) indices out of range",
        0,
    ),
    "excluded pair with a negative item": (
        (SCORES, tensor([0, 1])),
        {"exclude": (tensor([0]), tensor([-1]))},
        "1 label, id or (query, item) index out of range",
        0,
    ),
    "excluded pair with a query behind the last": (
        (SCORES, tensor([0, 1])),
        {"exclude": (tensor([2]), tensor([0]))},
        "1 label, id or (query, item) index out of range",
        None,
    ),
    "excluded pair with a negative query": (
        (SCORES, tensor([0, 1])),
        {"exclude": (tensor([-1]), tensor([0]))},
        "1 label, id or (query, item) index out of range",
        None,
    ),
    "excluded id of a list out of range": (
        (SCORES, tensor([0, 1])),
        {"exclude": [tensor([0, -1]), tensor([3])]},
        "1 label, id or (query, item) index out of range",
        1,
    ),
    "excluded pair of ids with a query behind the last": (
        (IDS, tensor([5, 4])),
        {"exclude": (tensor([2]), tensor([5]))},
        "1 label, id or (query, item) index out of range",
        None,
    ),
    "the same target twice": (
        (SCORES, [tensor([0]), tensor([1, 1])]),
        {},
        "1 target given more than once for its query",
        1,
    ),
    "the same pair twice": ((SCORES, (tensor([1, 0, 1]), tensor([2, 2, 2]))), {}, "1 target given more than once", 1),
    "the same id twice": ((tensor([[1, 2, 3], [4, 4, 1]]), tensor([4, 1])), {}, "1 id that occurs more than once", 1),
    "integer scores, integer grades": ((IDS, GRADES), {}, "2 targets given more than once", 0),
    "negative weight": ((SCORES, GRADES), {"weights": tensor([1, -1.0])}, "1 query weight that is", 1),
    "weights that are not finite": ((SCORES, GRADES), {"weights": tensor([NAN, INF])}, "2 query weights", 0),
}


#: what ``score`` says of indices that are out of range
OUTSIDE = {
    "label out of range": "label 3 of query 1 is out of range: preds has 3 columns, 0 to 2",
    "item out of range": "item 3 of query 1 is out of range: preds has 3 columns, 0 to 2",
    "pair out of range": "item 0 of query 2 is out of range: preds has 2 queries, 0 to 1 (the first of 2)",
    "excluded pair out of range": "excluded item 3 of query 0 is out of range: preds has 3 columns, 0 to 2 (the first",
    "excluded pair with a negative item": "excluded item -1 of query 0 is out of range: preds has 3 columns, 0 to 2",
    "excluded pair with a query behind the last": "excluded item 0 of query 2 is out of range: preds has 2 queries, 0",
    "excluded pair with a negative query": "excluded item 0 of query -1 is out of range: preds has 2 queries, 0 to 1",
    "excluded id of a list out of range": "excluded item 3 of query 1 is out of range: preds has 3 columns, 0 to 2",
    "excluded pair of ids with a query behind the last": "excluded item 5 of query 2 is out of range: preds has 2 quer",
}


@cases("case", VALUES)
def test_bad_values_are_counted_and_raise_in_compute(case):
    arguments, keywords, said, _ = VALUES[case]
    metric = tr.NDCG(top_k=2)
    metric.update(SCORES, GRADES)
    metric.update(*arguments, **keywords)
    for _ in range(2):  # not only the first time
        with pytest.raises(ValueError, match=r"^ndcg@2: ") as caught:
            metric.compute()
        assert f"ndcg@2: {said}" in str(caught.value)
    metric.reset()
    metric.update(SCORES, GRADES)
    assert metric.compute() == 1


@cases("case", VALUES)
@cases("call", ["metric", "collection"])
def test_score_names_the_first_query_with_a_bad_value(case, call):
    arguments, keywords, said, query = VALUES[case]
    metric = tr.NDCG(top_k=2) if call == "metric" else tr.RankingCollection(["ndcg@2"])
    with pytest.raises(ValueError, match=r"^ndcg@2: ") as caught:
        metric.score(*arguments, **keywords)
    if case in OUTSIDE:
        assert f"ndcg@2: {OUTSIDE[case]}" in str(caught.value)
        return
    assert f"ndcg@2: {said}" in str(caught.value)
    assert (f", first in query {query};" in str(caught.value)) is (query is not None)
    assert ("first in" in str(caught.value)) is (query is not None)


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
    with pytest.raises(ValueError, match="mrr: 2 queries with NaN among the scores or tie breaks"):
        tr.MRR().score(scores, target, tie_break=NAN_BREAKS)
    with pytest.raises(ValueError, match="mrr: 2 queries with NaN among the scores or tie breaks"):
        tr.MRR().score(scores.flatten(), target.flatten(), tie_break=NAN_BREAKS.flatten(), **flat)
    mask = tensor([[True, True], [True, True], [True, False]])
    with pytest.raises(ValueError, match="mrr: 1 query with NaN among the scores or tie breaks"):
        tr.MRR().score(scores.flatten(), target.flatten(), tie_break=NAN_BREAKS.flatten(), mask=mask.flatten(), **flat)


def test_blocks_that_are_a_number_are_an_error():
    with pytest.raises(TypeError, match="Expected blocks to be an iterable of score blocks or a function, got int"):
        tr.Ranking.from_score_blocks(3, tensor([0]))


def test_a_label_outside_of_the_catalogue_has_no_item_if_nothing_is_checked():
    scores = tensor([[0.9, 0.1], [0.1, 0.9]])
    assert tr.MRR(validate_args=False).score(scores, tensor([9, 1])).tolist() == [0, 1]
    assert tr.MRR().score(tensor([[0, 1], [1, 0]]), torch.empty(2, 0).long()).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("exclude", "ways"),
    [
        (
            [[0.0, 1.0], [1.0, 0.0]],
            "exclude.nonzero(as_tuple=True) if it is a matrix of 0 and 1, or tuple(exclude.long())",
        ),
        (
            [[0, 1], [1, 0]],
            "tuple(exclude) if its rows are queries and items, or list(exclude) if its rows are the ids",
        ),
        ([[0, 1, 1], [1, 0, 0]], "exclude.nonzero(as_tuple=True) if it is a matrix of 0 and 1, or tuple(exclude) if"),
    ],
)
def test_a_matrix_of_excluded_pairs_may_be_marks_pairs_or_ids(exclude, ways):
    with pytest.raises(ValueError, match=re.escape(f"; pass {ways}")):
        tr.MRR().score(torch.rand(2, 4), tensor([0, 1]), exclude=tensor(exclude))


def test_a_grade_of_a_pair_that_is_nan_is_counted_and_that_of_a_pair_outside_is_not():
    scores, pairs = torch.rand(2, 3), (tensor([0, 1, 5]), tensor([0, 1, 0]))
    with pytest.raises(ValueError, match=r"2 relevance grades.*; item 0 of query 5 is out of range: preds has 2 que"):
        tr.NDCG().score(scores, (*pairs, torch.full((3,), math.nan)))


def test_a_mask_of_rows_has_no_other_shape():
    with pytest.raises(ValueError, match=r"Expected mask of preds' shape \[4\], got \[3\]"):
        tr.MRR().score(torch.rand(4), torch.ones(4), mask=torch.ones(3).bool(), indexes=torch.zeros(4).long())
    with pytest.raises(ValueError, match=r"Expected mask of preds' shape \[2, 4\] or \[4\], got \[2, 3\]"):
        tr.MRR().score(torch.rand(2, 4), torch.ones(2, 4), mask=torch.ones(2, 3).bool())


def test_a_number_among_lists_is_no_list_of_numbers():
    for exclude, way_out in (([1, 2], r"pass \[\[x\] for x in exclude\]"), ([[1], 2], "")):
        with pytest.raises((ValueError, TypeError), match=way_out or "1-D id tensors") as caught:
            tr.MRR().score(torch.rand(2, 3), tensor([0, 1]), exclude=exclude)
        assert ("[[x] for x in exclude]" in str(caught.value)) == bool(way_out)


def test_sets_among_lists_are_advised_to_become_lists():
    for target in ([{0}, [1]], [{0}, {1}]):
        with pytest.raises(ValueError, match=r"pass \[list\(x\) for x in target\]"):
            tr.MRR().score(torch.rand(2, 3), target)


def test_each_hint_stands_beside_its_own_case():
    with pytest.raises(ValueError, match=r"ids that occur .*pass preds\.float\(\)"):
        tr.MRR().score(tensor([[2, 2, 2, 1]]), tensor([1]))
    with pytest.raises(ValueError, match="given more than once") as caught:
        tr.MRR().score(SCORES, (tensor([0, 0]), tensor([1, 1])))
    assert "integer preds" not in str(caught.value)


@cases("case", VALUES)
def test_without_validation_bad_values_are_not_counted(case):
    arguments, keywords, *_ = VALUES[case]
    metric = tr.NDCG(top_k=2, validate_args=False)
    metric.update(*arguments, **keywords)
    assert metric.compute().dim() == 0  # and does not raise


def test_a_gain_that_overflows_is_counted():
    metric = tr.NDCG(gain="exponential")
    metric.update(SCORES, tensor([[1, 0, 2000], [1023, 1023, 1023]]))
    with pytest.raises(ValueError, match="2 relevance grades, or gains"):
        metric.compute()


def test_bad_values_add_up_over_batches_and_kinds():
    metric = tr.MRR()
    for _ in range(3):
        metric.update(SCORES, tensor([7, 7]), weights=tensor([-1.0, 1]))
    with pytest.raises(ValueError, match=r"6 .*indices out of range.*; 3 query weights"):
        metric.compute()


def test_empty_queries_are_an_error_where_they_are_forbidden():
    metric = tr.Recall(empty_target_action="error")
    metric.update(SCORES, torch.zeros_like(GRADES))
    with pytest.raises(ValueError, match=r"recall\(empty_target_action=error\): 2 queries with nothing to measure"):
        metric.compute()


CONSTRUCTORS = {
    "top_k zero": (lambda: tr.NDCG(0), ["integer >= 1", "got 0"]),
    "top_k negative": (lambda: tr.MAP(top_k=-5), ["integer >= 1", "-5"]),
    "top_k bool": (lambda: tr.MAP(top_k=True), ["integer >= 1", "True"]),
    "top_k float": (lambda: tr.MAP(top_k=1.5), ["integer >= 1", "1.5"]),
    "top_k where the field has none": (lambda: tr.MR(top_k=3), ["no top_k for MR", "3"]),
    "ties": (lambda: tr.NDCG(ties="random"), ["'expected'", "'random'"]),
    "realistic ties of lists": (lambda: tr.NDCG(ties="realistic"), ["'pessimistic'", "'realistic'"]),
    "empty_target_action": (lambda: tr.NDCG(empty_target_action="zero"), ["'skip'", "'zero'"]),
    "aggregation": (lambda: tr.NDCG(aggregation="total"), ["'median'", "'total'"]),
    "aggregation by a lambda": (lambda: tr.NDCG(aggregation=lambda x: x.mean()), ["name of its own", "lambda"]),
    "validate_args": (lambda: tr.NDCG(validate_args="yes"), ["validate_args", "'yes'"]),
    "relevance_level": (lambda: tr.MAP(relevance_level=0), ["number > 0", "got 0"]),
    "normalize": (lambda: tr.MAP(normalize="max"), ["'relevant'", "'max'"]),
    "beta": (lambda: tr.FBeta(beta=-1), ["number > 0", "-1"]),
    "gain": (lambda: tr.DCG(gain="quadratic"), ["'exponential'", "'quadratic'"]),
    "a gain named as a known one": (lambda: tr.DCG(gain=exponential), ["name of its own", "exponential"]),
    "an aggregation named as a known one": (lambda: tr.DCG(aggregation=torch.median), ["name of its own", "median"]),
    "gain by a lambda": (lambda: tr.DCG(gain=lambda g: g), ["name of its own", "lambda"]),
    "discount": (lambda: tr.NDCG(discount="log3"), ["'log2'", "'log3'"]),
    "log_base": (lambda: tr.NDCG(log_base=1), ["number > 1", "got 1"]),
    "log_base without a logarithm": (lambda: tr.NDCG(discount="reciprocal", log_base=3), ["only with", "log_base=3"]),
    "average": (lambda: tr.MR(average="micro"), ["'positive'", "'micro'"]),
    "average of one value": (lambda: tr.MRR(average="positive"), ["filtered=True", "got filtered=False"]),
    "an unknown argument": (lambda: tr.NDCG(k=3), ["an argument of NDCG", "got 'k'", "did you mean 'top_k'"]),
    "a misspelt argument": (lambda: tr.MAP(normalise="min"), ["got 'normalise'", "did you mean 'normalize'"]),
    "an argument of no one": (lambda: tr.Coverage(num_items=3, ties="expected"), ["Coverage", "got 'ties'"]),
    "a name without its catalogue": (
        lambda: tr.parse("coverage@10"),
        ["num_items", "tr.Coverage(top_k=10, num_items=...)"],
    ),
    "unknown name": (lambda: tr.parse("ndgc@10"), ["'ndgc@10'", "did you mean 'ndcg@10' or"]),
    "unknown parameter": (lambda: tr.parse("map(norms=min)"), ["'norms'", "normalize"]),
    "several cut-offs": (lambda: tr.parse("ndcg@5,10"), ["one cutoff", "RankingCollection"]),
    "a cut-off where there is none": (lambda: tr.parse("mr@10"), ["no cutoff for mr"]),
    "no label": (lambda: tr.parse("ndcg@"), ["'ndcg@10'", "'ndcg@'"]),
    "a bad parameter list": (lambda: tr.parse("ndcg(gain)"), ["parameters like", "'gain'"]),
    "one key for two metrics": (lambda: tr.RankingCollection({"n": "ndcg@5,10"}), ["one metric for key 'n'", "got 2"]),
    "a name that is taken": (
        lambda: type("Mine", (tr.MRR,), {"name": "rbp"}),
        ["Mine to have a name of its own", "'rbp'"],
    ),
    "a subclass without a name": (lambda: type("Mine", (tr.MRR,), {})(), ["Mine to have a name of its own", "'mrr'"]),
    "a name in capitals": (
        lambda: type("Mine", (tr.MRR,), {"name": "RR!"}),
        ["lower-case letters and digits", "'RR!'"],
    ),
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


RANKINGS = {
    "equal ranks in a list": (lambda: tr.Ranking.from_ranks(tensor([[3, 3, 1]]), 10), ["1 rank ", "equal to another"]),
    "ranks below one": (lambda: tr.Ranking.from_ranks(tensor([0.5, 2.0])), ["1 rank below 1"]),
    "ranks beyond the list": (lambda: tr.Ranking.from_ranks(tensor([4, 2]), 3), ["1 rank ", "beyond num_candidates"]),
    "ranks of three dimensions": (lambda: tr.Ranking.from_ranks(torch.ones(1, 1, 1)), ["[query, entry]", "[1, 1, 1]"]),
    "scores as ids": (lambda: tr.Ranking.from_ids(SCORES, tensor([1, 2])), ["ids to be integer", "float32"]),
    "a label per candidate": (lambda: tr.Ranking.from_label(SCORES, GRADES), ["label of shape [2]", "[2, 3]"]),
    "negatives of other queries": (
        lambda: tr.Ranking.from_negatives(ROWS, SCORES[:1]),
        ["the same number of queries", "[1, 3]"],
    ),
    "embeddings of two dimensions": (
        lambda: tr.Ranking.from_embeddings(torch.ones(2, 3), torch.ones(4, 2), tensor([0, 1])),
        ["one dimension", "[2, 3] and [4, 2]"],
    ),
    "embeddings of two dtypes": (
        lambda: tr.Ranking.from_embeddings(torch.ones(2, 3), torch.ones(4, 3).double(), tensor([0, 1])),
        ["one dtype", "torch.float64"],
    ),
    "similarity": (
        lambda: tr.Ranking.from_embeddings(torch.ones(2, 3), torch.ones(4, 3), tensor([0, 1]), similarity="l2"),
        ["'cosine'", "'l2'"],
    ),
    "item outside the catalogue": (
        lambda: tr.Ranking.from_embeddings(torch.ones(2, 3), torch.ones(4, 3), tensor([0, 4])),
        ["1 label, id or (query, item) index out of range"],
    ),
}


def test_integer_scores_get_one_message_that_begins_with_the_way_out_and_not_two():
    scores, grades = tensor([[3, 1, 3, 0], [2, 2, 1, 0]]), tensor([[1, 0, 0, 1], [0, 1, 0, 0]])
    with pytest.raises(ValueError, match=r"integer preds are read as ids, so pass preds.float\(\)") as caught:
        tr.NDCG(2).score(scores, grades)
    assert "target" not in str(caught.value)
    assert tr.NDCG(2).score(scores.float(), grades).shape == (2,)


@cases("case", RANKINGS)
def test_wrong_arguments_of_rankings_name_the_expected(case):
    make, said = RANKINGS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        tr.MRR().score(make())
    for part in said:
        assert part in str(caught.value), str(caught.value)


INTEGERS = {
    "top_k": (lambda n: tr.NDCG(n(5)), "ndcg@5"),
    "relevance_level": (lambda n: tr.MAP(relevance_level=n(2)), "map(relevance_level=2)"),
    "beta": (lambda n: tr.FBeta(n(3), beta=n(2)), "fbeta(beta=2)@3"),
    "collection_size": (lambda n: tr.Utility(collection_size=n(9)), "utility(collection_size=9)"),
    "the curve": (lambda n: tr.PRCurve(n(3)), "prcurve@3"),
    "num_items": (lambda n: tr.Coverage(n(2), num_items=n(7)), "coverage@2"),
    "num_users": (lambda n: tr.Novelty(interactions=torch.ones(7), num_users=n(8)), "novelty"),
}


@cases("kind", [np.int64, np.int32, np.uint8])
@cases("case", INTEGERS)
def test_an_integer_of_numpy_is_taken_for_pythons(case, kind):
    make, label = INTEGERS[case]
    theirs, ours = make(kind), make(int)
    assert theirs.label == ours.label == label
    assert theirs.metric_state.keys() == ours.metric_state.keys()
    for name, value in vars(ours).items():
        assert type(vars(theirs)[name]) is type(value), name


def test_functions_take_integers_of_numpy():
    queries, items, label = torch.rand(2, 3), torch.rand(9, 3), tensor([0, 4])
    three = np.int64(3)
    ranking = tr.Ranking.from_embeddings(queries, items, label, top_k=three, chunk_size=three)
    assert ranking.reach == 3
    assert type(ranking.reach) is int
    assert tr.Ranking.from_score_blocks([queries @ items.T], label, top_k=three).reach == 3
    torch.testing.assert_close(tr.MRR(top_k=3).score(ranking), tr.MRR(top_k=3).score(queries @ items.T, label))
    assert tr.FallOut(2).score(tr.Ranking.from_ranks(label + 1, np.int64(9)))[0] == 1 / 8
    assert tr.preset("recbole", three) == tr.preset("recbole", 3)


@pytest.mark.parametrize("wrong", [np.bool_(True), np.float64(3.0), np.int64(0), "3"])
def test_other_than_positive_integers_are_refused(wrong):
    with pytest.raises(ValueError, match="top_k to be an integer >= 1"):
        tr.NDCG(top_k=wrong)
    with pytest.raises(ValueError, match="top_k to be an integer >= 1"):
        tr.Ranking.from_embeddings(torch.rand(2, 3), torch.rand(9, 3), tensor([0, 4]), top_k=wrong)
    with pytest.raises(ValueError, match="chunk_size to be an integer >= 1 or None, got"):
        tr.Ranking.from_embeddings(torch.rand(2, 3), torch.rand(9, 3), tensor([0, 4]), chunk_size=wrong)


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
    with pytest.raises(
        ValueError, match=r"mrr: excluded item 0 of query .* preds has . queries, .* \(the first of 4\)"
    ):
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


def test_a_batch_of_ranked_ids_without_queries_excludes_nothing():
    nothing = torch.zeros(0, dtype=torch.int64)
    ids = torch.zeros((0, 5), dtype=torch.int64)
    assert tr.MRR().score(ids, nothing, exclude=(nothing, nothing)).shape == (0,)
    assert tr.MRR().score(ids, nothing, exclude=[]).shape == (0,)
