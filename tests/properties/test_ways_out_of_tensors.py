"""Each error of a layout names a call, and the call works in the function that raised the error."""

import math
import re

import numpy
import pytest
import torch
from torch import tensor
from torch._subclasses import FakeTensorMode
from torch.masked import masked_tensor

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import sparse

SCORES = tensor([[0.9, 0.8, 0.7, 0.6, 0.5], [0.9, 0.8, 0.7, 0.6, 0.5]])
GRADES = tensor([[0, 0, 1, 0, 0], [0, 0, 1, 0, 0]])
SEEN = tensor([[0, 1, 0, 0, 0], [1, 1, 0, 0, 0]])
ITEMS = torch.eye(5)
INF = math.inf


def way_out(error, number=0, **names):
    """The value of the expression that an error says to pass."""
    ways = re.search(r"pass (.+?)$", str(error.value))[1].split(", or ")
    return eval(ways[number].split(" if ")[0], {"torch": torch, "Ranking": tr.Ranking, **names})


#: functions with an argument ``exclude``, over the same candidates
EXCLUDING = {
    "grades": lambda x: tr.MRR().score(SCORES, GRADES, exclude=x),
    "labels": lambda x: tr.MRR().score(SCORES, tensor([2, 2]), exclude=x),
    "ids": lambda x: tr.MRR().score(SCORES.argsort(descending=True), tensor([2, 2]), exclude=x),
    "collection": lambda x: tr.RankingCollection("mrr").score(SCORES, GRADES, exclude=x)["mrr"],
    "from_scores": lambda x: tr.MRR().score(tr.Ranking.from_scores(SCORES, GRADES, exclude=x)),
    "from_embeddings": lambda x: tr.MRR().score(tr.Ranking.from_embeddings(SCORES, ITEMS, tensor([2, 2]), exclude=x)),
    "from_score_blocks": lambda x: tr.MRR().score(tr.Ranking.from_score_blocks([SCORES], tensor([2, 2]), exclude=x)),
}
#: forms of the seen items that are neither pairs nor lists of ids
SEEN_AS = {
    "0 and 1": SEEN,
    "bool": SEEN > 0,
    "floats": SEEN.float(),
    "an array": SEEN.numpy(),
    "sparse": SEEN.to_sparse(),
    "a matrix by rows": list(SEEN),
    "lists of 0 and 1": SEEN.tolist(),
    "padded ids": tensor([[1, -1], [1, 0]]),
    "padded floats": tensor([[1.0, -1], [1, 0]]),
    "nested": torch.nested.nested_tensor([tensor([1]), tensor([1, 0])]),
}


@cases("form", SEEN_AS)
@cases("door", EXCLUDING)
def test_seen_items_in_any_form_have_a_way_out_that_excludes_them(door, form):
    call, seen = EXCLUDING[door], SEEN_AS[form]
    assert call(SEEN.nonzero(as_tuple=True)).tolist() == [0.5, 1]
    with pytest.raises(ValueError, match=r"^Expected exclude to be .*; pass ") as error:
        call(seen)
    number = 1 if form.startswith("padded") else 0  # the first way is for pairs of two rows
    if form in ("0 and 1", "bool", "floats") and door != "from_score_blocks":  # which has as many items as its blocks
        assert str(error.value).endswith("; pass exclude.nonzero(as_tuple=True)")  # no other way is possible
    given = torch.as_tensor(seen) if form == "an array" else seen
    assert call(way_out(error, number, exclude=given)).tolist() == [0.5, 1]


def targets_of(scores):
    """Functions with a target, over the same candidates."""
    return [
        lambda x: tr.MRR().score(scores, x),
        lambda x: tr.MRR().score(scores.argsort(descending=True), x),
        lambda x: tr.MRR().score(tr.Ranking.from_embeddings(scores, ITEMS, x)),
    ]


TARGETS, OF_THREE = targets_of(SCORES), targets_of(SCORES[[0, 0, 0]])
PAIRS = tensor([[0, 1, 1, 1], [1, 0, 1, 4]])  # the query in the first row, the item in the second
PAIRS_OF_THREE = tensor([[0, 0, 1, 1], [2, 4, 4, 3]])
COLUMN, INTEGERS = tensor([[2], [0], [4]]), tensor([[10, 70, 50, 20]])
RAGGED, SHORT_MASK = [[0.1, 0.2], [0.3]], [[True, True], [True]]


def of_preds(*target):
    return lambda x: tr.MRR().score(x, *target)


def masked(x):
    return tr.MRR().score(tensor([[0.1, 0.2], [0.3, INF]]), [[0], [0]], mask=x)


#: functions that promise scores, with the name of their argument
PROMISED = [
    ("preds", lambda x: tr.Ranking.from_scores(x, tensor([1]))),
    ("preds", lambda x: tr.Ranking.from_scores(x, tensor([[0, 1, 0, 0]]))),
    ("preds", lambda x: tr.Ranking.from_label(x, tensor([1]))),
    ("preds", lambda x: tr.Ranking.from_flat(x[0], tensor([0, 1, 0, 0]), tensor([0, 0, 0, 0]))),
    ("block", lambda x: tr.Ranking.from_score_blocks([x], tensor([1]))),
    ("queries", lambda x: tr.Ranking.from_embeddings(x, torch.eye(4), tensor([1]))),
    ("items", lambda x: tr.Ranking.from_embeddings(torch.ones(1, 1), x.T, tensor([1]))),
]

#: what an error says to pass, the argument, a wrong one, a function of it, and the values with what it says
MENDED = [
    *((r"; pass tuple\(exclude\)", "exclude", PAIRS, call, [0.5, 1]) for call in EXCLUDING.values()),
    *((r"; pass tuple\(exclude\.T\)", "exclude", PAIRS.T, call, [0.5, 1]) for call in EXCLUDING.values()),
    *(
        (r"; pass list\(exclude", "exclude", row, EXCLUDING["grades"], want)
        for row, want in (
            (tensor([1, 0]), [0.5, 0.5]),  # an id of each query
            (tensor([0, 1, 4]), [1, 1]),  # ids for all queries
            (tensor([True, False, False, False, False]), [0.5, 0.5]),  # marks of the catalogue
        )
    ),
    # Whole numbers in two columns are two ids, not marks.
    (r"pass tuple\(.*, or list\(exclude\)", "exclude", tensor([[1, 0], [0, 1]]), EXCLUDING["grades"], [0.5, 0.5]),
    *((r"; pass tuple\(target\)", "target", PAIRS_OF_THREE, call, [1 / 3, 1 / 4, 0]) for call in OF_THREE),
    *(("; pass ", "target", rows, call, [1 / 3] * 2) for call in TARGETS for rows in (list(GRADES), GRADES.tolist())),
    (r"; pass list\(target\)", "target", tensor([[2, 4], [0, -1], [3, -1]]), OF_THREE[0], [1 / 3, 1, 1 / 4]),
    (r"; pass \[list\(x\) for x in target\]", "target", [{1}, {0, 2}], TARGETS[0], [1 / 2, 1]),
    *(
        (rf"; pass target\.{way}squeeze\(1\)$", "target", column, targets_of(SCORES[[0] * len(column)])[0], want)
        for dtype, way in ((torch.int64, ""), (torch.float32, r"long\(\)\."))
        for column, want in ((COLUMN[:n].to(dtype), [1 / 3, 1, 1 / 5][:n]) for n in (1, 2, 3))
    ),
    (r"got topk; pass preds\.indices", "preds", tensor([[0.1, 0.9]]).topk(2), of_preds(tensor([1])), [1]),
    (r"got tuple; pass list\(preds\)", "preds", ((0.1, 0.9),), of_preds(tensor([1])), [1]),
    *(
        (r"got lists of 1 to 2 numbers; pass torch\.nn\.utils\.rnn", "preds", lists, of_preds(target), [0.5, 1])
        for lists, target in ((RAGGED, [[0], [0]]), ([[7, 5], [9]], [[5], [9]]))
    ),
    ("mask to be a bool tensor, got lists of 1 to 2 numbers", "mask", SHORT_MASK, masked, [0.5, 1]),
    *(
        (rf"floating point .*, got {dtype}; pass {name}\.float\(\)$", name, INTEGERS.to(dtype), make, [1])
        for name, make in PROMISED
        for dtype in (torch.uint8, torch.int64)
    ),
]


@cases(("message", "name", "wrong", "call", "want"), MENDED, ids=lambda case: case[:3])
def test_what_an_error_says_to_pass_works_in_the_function_that_raised_it(message, name, wrong, call, want):
    with pytest.raises((TypeError, ValueError), match=message) as error:
        call(wrong)
    assert str(error.value).startswith(f"Expected {name} ")
    found = call(way_out(error, **{name: wrong}))
    values = tr.MRR().score(found) if isinstance(found, tr.Ranking) else found
    assert values.tolist() == pytest.approx(want)


def test_lists_that_can_be_grades_as_well_as_ids_are_refused():
    scores, target = tensor([[0.9, 0.1], [0.9, 0.1]]), [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match=r"grades or ids, got lists of 2 numbers for 2 candidates") as error:
        tr.MRR().score(scores, target)
    grades, ids = re.search(r"pass (.+) if they are grades, (.+) if ids", str(error.value)).groups()
    names = {"torch": torch, "target": target}
    assert tr.MRR().score(scores, eval(grades, names)).tolist() == [1, 0.5]
    assert tr.MRR().score(scores, eval(ids, names)).tolist() == [1, 1]
    assert tr.MRR().score(tensor([[5, 0], [1, 5]]), target).tolist() == [0.5, 1]  # beside ids there are no grades


def test_lists_of_text_have_no_way_out():
    with pytest.raises(TypeError, match=r"got list$"):
        tr.MRR().score([["a", "b"], ["c", "d"]], tensor([1]))


def test_pairs_of_a_loader_with_more_pairs_than_queries_have_a_way_out():
    pairs = [tensor([0, 0, 1]), tensor([2, 4, 3])]
    with pytest.raises(ValueError, match=r"pairs, which DataLoader collation turns into a list") as error:
        TARGETS[0](pairs)
    assert len(TARGETS[0](way_out(error, target=pairs))) == 2
    with pytest.warns(UserWarning, match=r"pass tuple\(exclude\)"):  # a pair may be excluded twice
        EXCLUDING["grades"](pairs)


def test_ranks_that_count_from_0_are_an_error():
    ranks = tensor([0, 1, 2])
    with pytest.raises(ValueError, match=r"1 rank below 1.*\(if ranks count from 0, pass ranks \+ 1\)"):
        tr.MRR().score(tr.Ranking.from_ranks(ranks))
    assert tr.MRR().score(tr.Ranking.from_ranks(ranks + 1)).tolist() == pytest.approx([1, 1 / 2, 1 / 3])
    # 0 stays padding beside other ranks of a query, and a negative rank means that nothing is relevant.
    assert tr.MRR().score(tr.Ranking.from_ranks(tensor([[2, 0], [1, 3]]))).tolist() == [0.5, 1]
    assert tr.MRR().score(tr.Ranking.from_ranks(tensor([-1, 2]))).tolist() == [0, 0.5]


def test_ids_of_a_catalogue_in_the_place_of_columns_have_a_way_out():
    ids = tensor([[70, 30, 20, 90, 10], [40, 30, 70, 80, 50]])  # of the candidates
    excluded = tensor([[30, -1], [40, 30]])
    with pytest.raises(ValueError, match=r"item 30 of query 0 is out .* 0 to 4 \(the first of 3\); to ") as error:
        tr.MRR().score(SCORES, GRADES, exclude=list(excluded))
    mask = eval(re.search(r"mask=(.+)$", str(error.value))[1], {"ids": ids, "excluded": excluded})
    assert tr.MRR().score(SCORES, GRADES, mask=mask).tolist() == [0.5, 1]


@pytest.mark.parametrize("similarity", ["euclidean", "l2"])
def test_a_distance_has_a_way_out(similarity):
    queries, items = torch.rand(3, 4), torch.rand(9, 4)
    relevant = tensor([[1, 2], [3, -1], [8, 0]])
    with pytest.raises(ValueError, match=f"'dot', 'cosine' or 'hamming', got '{similarity}'") as error:
        tr.Ranking.from_embeddings(queries, items, relevant, similarity=similarity)
    ranking = way_out(error, queries=queries, items=items, relevant=relevant)
    distance = (queries.unsqueeze(1) - items).square().sum(-1)
    torch.testing.assert_close(tr.MAP().score(ranking), tr.MAP().score(-distance, list(relevant)))


INT8, BITS = tensor([[3, -1], [0, 2]], dtype=torch.int8), tensor([[7, 255], [1, 0]], dtype=torch.uint8)


@cases(
    ("queries", "items", "more", "name", "right"),
    [
        (BITS, INT8.float(), {}, "queries", lambda x: (x, INT8.float())),
        (INT8, INT8, {"similarity": "cosine"}, "queries", lambda x: (x, INT8.float())),
        (INT8.float(), BITS[:, :1], {"similarity": "hamming"}, "queries", lambda x: (x, BITS[:, :1])),
        (BITS[:, :1], INT8.float(), {"similarity": "hamming"}, "items", lambda x: (BITS[:, :1], x)),
    ],
)
def test_embeddings_of_another_kind_have_a_way_out(queries, items, more, name, right):
    given = {"queries": queries, "items": items}
    with pytest.raises(TypeError, match=rf"Expected {name} to be .*, got {given[name].dtype}; pass ") as error:
        tr.Ranking.from_embeddings(queries, items, tensor([0, 1]), **more)
    passed = eval(str(error.value).split("; pass ")[1], {"numpy": numpy, **given})
    tr.Ranking.from_embeddings(*right(passed), tensor([0, 1]), **more)


@cases(
    ("queries", "items", "more", "says"),
    [
        (INT8, INT8.float(), {}, "int8 .* torch.float32 on cpu; pass both as .to.torch.float32.$"),
        (INT8.double(), INT8.float(), {}, "float64 .* torch.float32 on cpu; pass both as .to.torch.float64.$"),
        (INT8, BITS, {"similarity": "hamming"}, "int8 .* torch.uint8 on cpu; pack both alike$"),
        (INT8, INT8, {"precision": "bf16"}, "no precision for torch.int8, .* got 'bf16'; leave it out$"),
    ],
)
def test_integer_embeddings_beside_others_or_with_a_precision_have_a_way_out(queries, items, more, says):
    with pytest.raises(ValueError, match=says):
        tr.Ranking.from_embeddings(queries, items, tensor([0, 1]), **more)


def test_a_masked_tensor_has_a_way_out():
    preds = masked_tensor(SCORES, SEEN == 0)
    with pytest.raises(TypeError, match=r"got MaskedTensor; pass preds\.get_data\(\), and its get_mask\(\) as mask"):
        tr.MRR().score(preds, GRADES)
    assert tr.MRR().score(preds.get_data(), GRADES, mask=preds.get_mask()).tolist() == [0.5, 1]


def test_tensors_without_values_are_named_as_the_reason():
    with FakeTensorMode():
        preds = torch.rand(2, 5)
    with pytest.raises(TypeError, match=r"got FakeTensor, as under torch\.export; leave the metric out"):
        tr.MRR().score(preds, GRADES)


def test_a_precision_that_there_is_not_is_refused_and_short_products_are_those_of_short_embeddings():
    queries, items, relevant = torch.rand(3, 4), torch.rand(9, 4), tensor([1, 2, 8])
    with pytest.raises(ValueError, match=r"'highest', 'tf32', 'tf32x3' or 'bf16', got 'tf16'"):
        tr.Ranking.from_embeddings(queries, items, relevant, precision="tf16")
    wide = tr.Ranking.from_embeddings(queries.bfloat16().float(), items.bfloat16().float(), relevant)
    ranking = tr.Ranking.from_embeddings(queries, items, relevant, precision="bf16")
    assert torch.equal(ranking.first, wide.first)


@pytest.mark.parametrize("call", ["score", "update"])
def test_transforms_of_functions_are_named_as_the_reason(call):
    metric = tr.NDCG()

    def work(scores):
        getattr(metric, call)(scores, GRADES)
        return scores.sum()

    with pytest.raises(TypeError, match=r"got one of torch\.vmap or torch\.func; call the metric outside"):
        torch.func.grad(work)(SCORES)
    with pytest.raises(TypeError, match=r"got one of torch\.vmap or torch\.func; call the metric outside"):
        torch.vmap(work)(SCORES[None])


@cases("lists", [[[1, 2], [3]], [[0.5, 2], [], [3.5]], [[], [True, False]], [[], [1, 0.5], [True]]])
def test_lists_of_several_lengths_are_padded_with_what_is_no_candidate(lists):
    with pytest.raises(TypeError, match=r"got lists of . to 2 numbers; pass torch\.nn\.utils") as error:
        tr.MRR().score(lists, torch.tensor([1] * len(lists)))
    kinds = {type(x) for one in lists for x in one}
    padding = -math.inf if float in kinds else False if kinds == {bool} else -1
    assert way_out(error, preds=lists).tolist() == [one + [padding] * (2 - len(one)) for one in lists]


def sparse_scores(form):
    """Scores of three items of each query, of which one is stored and negative, and one stored and 0."""
    rows, columns, values = [0, 0, 1, 1], [0, 2, 1, 3], [-0.5, 0.0, 0.25, 0.75]
    if form == "torch":
        return torch.sparse_coo_tensor(tensor([rows, columns]), tensor(values), (2, 5))
    if form == "torch csr":
        return torch.sparse_coo_tensor(tensor([rows, columns]), tensor(values, dtype=float), (2, 5)).to_sparse_csr()
    return getattr(sparse, form)((values, (rows, columns)), shape=(2, 5))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("form", ["torch", "torch csr", "csr_array", "coo_matrix"])
def test_sparse_scores_have_a_way_out_by_which_only_stored_ones_are_retrieved(form):
    preds, names = sparse_scores(form), {"torch": torch, "numpy": numpy}
    with pytest.raises(TypeError, match=r"; make x = preds\.to") as error:
        tr.MRR().score(preds, tensor([0, 1]))
    first, last = re.search(r"; make (.+?)(?:,|) and (.+)$", str(error.value)).groups()
    exec(first, names | {"preds": preds}, names)
    for step in re.sub("^pass ", "set scores = ", last).split(", and pass scores")[0].split(", set "):
        exec(step.removeprefix("set "), names)
    scores = torch.as_tensor(names["scores"])
    assert scores.tolist() == [[-0.5, -INF, 0.0, -INF, -INF], [-INF, 0.25, -INF, 0.75, -INF]]
    assert tr.MRR().score(scores, tensor([0, 1])).tolist() == [0.5, 0.5]
    assert tr.MRR().score(scores, tensor([1, 4])).tolist() == [0, 0]  # not retrieved


def test_labels_with_fractions_are_not_made_integers():
    with pytest.raises(TypeError, match=r"got torch\.float32; pass target\.long\(\)$"):
        tr.MRR().score(SCORES, tensor([2.0, 0.0]))
    with pytest.raises(TypeError, match=r"got torch\.float32 with fractions$"):
        tr.MRR().score(SCORES, tensor([0.5, 0.0]))
    with pytest.raises(TypeError, match=r"integer indexes .* got torch\.float32 with fractions$"):
        tr.MRR().score(SCORES[0], GRADES[0], indexes=SCORES[0])
    with pytest.raises(ValueError, match=r"got shape \[2, 3\]$"):  # not the ids of each query
        tr.MRR().score(SCORES, SCORES[:, :3])
