"""Arrays, lists and arguments of the whole catalogue count as the tensors that they stand for, at every entry point."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import tensor
from torchmetrics import Metric
from torchmetrics.regression import MeanAbsoluteError

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import sparse

SCORES = torch.rand(3, 5, generator=torch.Generator().manual_seed(0)).round(decimals=1)
GRADES = tensor([[0, 2, 0, 1, 0], [0, 0, 1, 0, 0], [1, 0, 0, 0, 1]])
MASK = tensor([True, True, False, True, True])
ORDER = tensor([2, 3, 1, 5, 4])
PAIRS = (tensor([0, 2, 2]), tensor([0, 1, 3]))
WEIGHTS = tensor([1.0, 2.0, 0.5])
IDS = [tensor([1, 3]), tensor([2]), tensor([0, 4])]


def lists(x):
    return x.tolist() if isinstance(x, torch.Tensor) else type(x)(map(lists, x))


def reversed_arrays(x):
    """Arrays that torch cannot share, because they are stored backwards, in the other byte order, or read-only."""
    if not isinstance(x, torch.Tensor):
        return type(x)(map(reversed_arrays, x))
    found = x.numpy()[..., ::-1].copy()[..., ::-1]
    found = found.astype(found.dtype.newbyteorder())
    found.flags.writeable = False
    return found


CONVERSIONS = {"lists": lists, "arrays": reversed_arrays}


def in_turn(entries, values):
    """Each entry with one of the values, which are read by the same function at all entries."""
    values = [*values]
    return [(entry, values[number % len(values)]) for number, entry in enumerate(entries)]


def wrapped(metric, **more):
    def value(preds, target, **options):
        metric.reset()
        metric.update(preds, target, **options, **more)
        found = metric.compute()
        return found.columns if isinstance(found, tr.QueryTable) else found

    return value


def scored(metric):
    return lambda preds, target, **options: metric.score(preds, target, **options)


ENTRIES = {
    "score": scored(tr.NDCG()),
    "update": wrapped(tr.NDCG()),
    "forward": lambda preds, target, **options: tr.NDCG()(preds, target, **options),
    "collection": wrapped(tr.RankingCollection("ndcg, map")),
    "collection score": scored(tr.RankingCollection("ndcg, map")),
    "Sliced": wrapped(tr.Sliced("ndcg", ["a"]), slices=tensor([0, 0, -1])),
    "PerQuery": wrapped(tr.PerQuery("ndcg"), query_ids=[1, 2, 3]),
    "Bootstrapped": wrapped(tr.Bootstrapped("ndcg", replicates=9), query_ids=[1, 2, 3]),
    "TieReport": wrapped(tr.TieReport("ndcg")),
    "Compared": lambda preds, target, **options: wrapped(tr.Compared("ndcg", ["a", "b"]))(
        {"a": preds, "b": preds}, target, **options
    ),
    "from_scores": lambda preds, target, weights, **options: tr.MAP().score(
        tr.Ranking.from_scores(preds, target, **options), weights=weights
    ),
}


def assert_same(one, other):
    torch.testing.assert_close(one, other, equal_nan=True)


@cases("conversion", CONVERSIONS)
@cases("entry", ENTRIES)
def test_arrays_and_lists_have_the_values_of_tensors(entry, conversion):
    value, convert = ENTRIES[entry], CONVERSIONS[conversion]
    options = {"mask": MASK.repeat(3, 1), "exclude": PAIRS, "tie_break": ORDER.repeat(3, 1), "weights": WEIGHTS}
    converted = {name: convert(x) for name, x in options.items()}
    preds = convert(SCORES.double())
    assert_same(value(preds, convert(IDS), **converted), value(SCORES.double(), IDS, **options))
    if conversion != "lists":  # a list of lists has ids
        assert_same(value(preds, convert(GRADES), **converted), value(SCORES.double(), GRADES, **options))


@cases("entry, form", in_turn(ENTRIES, ["csr_matrix", "csr_array", "coo_array", "csc_matrix"]))
def test_a_sparse_matrix_has_the_grades_and_the_excluded_pairs(entry, form):
    make, value = getattr(sparse, form), ENTRIES[entry]
    excluded = make(np.array([[0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]], dtype=bool))
    want = value(SCORES, GRADES, exclude=(tensor([0, 2]), tensor([4, 1])), weights=WEIGHTS)
    assert_same(value(SCORES, make(GRADES.numpy()), exclude=excluded, weights=WEIGHTS), want)


def test_a_sparse_matrix_judges_ids_and_embeddings_too():
    ids, matrix = SCORES.argsort(descending=True), sparse.csr_array(GRADES.numpy() > 0)
    assert_same(tr.MAP().score(ids, matrix, exclude=matrix), tr.MAP().score(ids, IDS, exclude=IDS))
    embedded = [tr.Ranking.from_embeddings(SCORES, SCORES[:, :5].T @ SCORES, x) for x in (matrix, IDS)]
    assert_same(*map(tr.MAP().score, embedded))


@pytest.mark.parametrize("name", ["target", "exclude"])
def test_a_sparse_matrix_of_all_users_is_cut_to_those_of_the_batch(name):
    users, matrix = [4, 0, 2], sparse.csr_array(np.eye(7, 5, dtype=int))
    arguments = {"target": tensor([1, 2, 3]), name: matrix}
    with pytest.raises(ValueError, match=rf"sparse matrix \[7, 5\]; pass the rows of the batch, as {name}\[users\]"):
        tr.MRR().score(SCORES, **arguments)
    tr.MRR().score(SCORES, **{**arguments, name: matrix[users]})


@pytest.mark.parametrize("name", ["target", "exclude"])
@pytest.mark.parametrize("columns", [4, 6])
def test_a_sparse_matrix_of_other_items_is_refused(name, columns):
    arguments, matrix = {"target": tensor([1, 2, 3])}, sparse.coo_array(np.eye(3, columns, dtype=int))
    with pytest.raises(ValueError, match=rf"{name} with 5 columns.*got a sparse matrix \[3, {columns}\].*\[:, items\]"):
        tr.MRR().score(SCORES, **arguments | {name: matrix})
    embedded = {"queries": SCORES, "items": SCORES[:, :5].T @ SCORES, "relevant": tensor([1, 2, 3])}
    with pytest.raises(ValueError, match=rf"with 5 columns, one per item, got a sparse matrix \[3, {columns}\]"):
        tr.Ranking.from_embeddings(**embedded | {{"target": "relevant"}.get(name, name): matrix})
    tr.MRR().score(SCORES.argsort(), **arguments | {name: matrix})  # ids are of any catalogue
    tr.Ranking.from_score_blocks([SCORES], arguments["target"], exclude=matrix)


@cases("form", ["csr_array", "csc_array", "coo_array", "bsr_array"])
def test_elements_that_a_sparse_matrix_stores_twice_are_summed_as_scipy_does(form):
    indices, start = np.array([3, 3, 0, 1, 1]), np.array([0, 2, 3, 5])
    twice = sparse.csr_array((np.array([1, 2, 1, 1, -1]), indices, start), shape=(3, 5))  # of the last element 0
    dense = twice.toarray()
    given = twice if form == "csr_array" else getattr(sparse, form)(twice)
    if form == "coo_array":
        given = sparse.coo_array((twice.data, (np.repeat([0, 1, 2], np.diff(start)), indices)), shape=(3, 5))
    assert_same(tr.NDCG().score(SCORES, given), tr.NDCG().score(SCORES, dense))
    assert_same(*(tr.NDCG().score(SCORES, GRADES, exclude=pairs) for pairs in (given, dense.nonzero())))
    assert given.nnz == (5 if form in ("csr_array", "coo_array") else given.nnz)  # the matrix stays as it is


def test_the_query_with_a_bad_value_is_named_beside_sparse_matrices():
    scores = SCORES.clone()
    scores[2, 0] = float("nan")
    with pytest.raises(ValueError, match="first in query 2;"):
        tr.MRR().score(scores, sparse.coo_matrix(GRADES.numpy()), exclude=sparse.coo_array(GRADES.numpy() > 1))


FLAT = {name: x for name, x in ENTRIES.items() if name != "from_scores"} | {
    "from_flat": lambda preds, target, weights, **options: tr.MAP().score(
        tr.Ranking.from_flat(preds, target, **options), weights=weights
    )
}


@cases("entry, convert", in_turn(FLAT, [list, np.array, tensor, lambda x: np.array(x, dtype=np.int32)]))
def test_group_sizes_are_the_numbers_of_rows_of_consecutive_queries(entry, convert):
    rows, value = (SCORES.flatten(), GRADES.flatten()), FLAT[entry]
    sizes, options = [4, 3, 8], {"weights": WEIGHTS, "tie_break": torch.arange(15)}
    want = value(*rows, indexes=[0] * 4 + [1] * 3 + [2] * 8, **options)
    assert_same(value(*rows, group_sizes=convert(sizes), **options), want)


@pytest.mark.parametrize(
    ("sizes", "message", "way_out"),
    [
        ([5, 5], r"2 numbers, 10 in all; pass those of all rows", {"group_sizes": [5, 5, 5]}),
        ([5, 0, 10], r"3 numbers, 15 in all; pass group_sizes\[group_sizes > 0\]", {"group_sizes": [5, 10]}),
        ([7] * 5 + [8] * 10, "15 numbers, 115 in all; .* pass indexes=group_sizes", {"indexes": [7] * 5 + [8] * 10}),
    ],
)
def test_group_sizes_of_other_rows_have_a_way_out(sizes, message, way_out):
    rows = SCORES.flatten(), GRADES.flatten()
    with pytest.raises(ValueError, match=message):
        tr.NDCG().score(*rows, group_sizes=sizes)
    for without_rows in (tensor(0.5), None):
        with pytest.raises(ValueError, match="to the 0 rows of preds"):
            tr.NDCG().score(without_rows, GRADES.flatten(), group_sizes=sizes)
    assert len(tr.NDCG().score(*rows, **way_out)) in (2, 3)
    with pytest.raises(ValueError, match="got both; leave out one of them"):
        tr.NDCG().score(*rows, group_sizes=sizes, indexes=[0] * 15)
    with pytest.raises(ValueError, match=r"got None; pass group_sizes, the number of .*, or indexes=\[0\] \* 15"):
        tr.NDCG().score(*rows)


@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_flat_rows_and_ids_can_be_arrays_and_lists(conversion):
    convert = CONVERSIONS[conversion]
    rows = (SCORES.double().flatten(), GRADES.flatten())
    indexes = torch.arange(3).repeat_interleave(5)
    want = tr.NDCG().score(*rows, indexes=indexes)
    assert_same(tr.NDCG().score(*map(convert, rows), indexes=convert(indexes)), want)
    ids = SCORES.argsort(descending=True)  # integers of an array are ids, too
    want = tr.MAP().score(ids, IDS, exclude=PAIRS)
    assert_same(tr.MAP().score(convert(ids), convert(IDS), exclude=convert(PAIRS)), want)
    lists = tr.Coverage(num_items=5)
    lists.update(convert(ids[:, :2]), weights=convert(WEIGHTS))
    assert lists.compute() == len(ids[:, :2].unique()) / 5


#: measures of every kind, with what describes the catalogue
DESCRIBED = [
    (tr.Novelty, {"interactions": tensor([8, 1, 2, 4, 3])}, {"num_users": 9}),
    (tr.Unexpectedness, {"baseline": tensor([3, 0])}, {}),
    (tr.AWRF, {"groups": tensor([0, 1, 1, 0, 0]), "population": tensor([0.25, 0.75])}, {}),
    (tr.ExposureParity, {"groups": tensor([0, 1, 1, 0, 0]), "merit": tensor([0.25, 0.75])}, {}),
    (tr.IntraListDiversity, {"categories": tensor([5, 7, 5, 5, 9])}, {}),
    (tr.TBG, {"lengths": tensor([300.0, 20.0, 100.0, 5.0, 80.0])}, {}),
]


@cases("conversion", CONVERSIONS)
@cases(("measure", "catalogue", "more"), DESCRIBED, ids=lambda x: getattr(x, "__name__", ""))
def test_arrays_and_lists_describe_a_catalogue_as_tensors_do(measure, catalogue, more, conversion):
    values = []
    for convert in (lambda x: x, CONVERSIONS[conversion]):
        metric = measure(**{name: convert(x) for name, x in catalogue.items()}, **more)
        metric.update(SCORES.argsort(descending=True)[:, :3], IDS if metric.needs_target else None)
        values.append(metric.compute().nan_to_num(-1))
    torch.testing.assert_close(*values)


@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_every_other_function_takes_arrays_and_lists(conversion):
    convert, positive = CONVERSIONS[conversion], tensor([0.5, 0.25, 0.125, 1.0, 0.5])
    other, pairs = SCORES.flip(1), (*PAIRS, tensor([1, 2, 0]))
    grades = GRADES - 1 if conversion == "lists" else convert(GRADES - 1)  # a list of lists has ids
    assert_same(
        tr.difference_bounds("cg@2", convert(SCORES), convert(other), grades, mask=convert(MASK)),
        tr.difference_bounds("cg@2", SCORES, other, GRADES - 1, mask=MASK),
    )
    assert_same(tr.propensities(convert(tensor([1, 2])), 10), tr.propensities(tensor([1, 2]), 10))
    for target in (IDS, PAIRS, pairs, *([GRADES] if conversion != "lists" else [])):
        want = tr.inverse_propensity(target, positive.double())
        assert_same(tr.inverse_propensity(convert(target), convert(positive)), want)
    sampled = tr.SampledRanks(num_negatives=4, num_items=9)
    sampled.update(convert(SCORES), [[0], [1], [2]])
    weights, (distances, ids) = torch.arange(1.0, 11), SCORES.sort()
    assert_same(sampled.estimate("mrr", "bv", prior=convert(weights)), sampled.estimate("mrr", "bv", prior=weights))
    for name, arguments in {
        "from_label": (SCORES, tensor([0, 1, 2])),
        "from_flat": (SCORES[0], GRADES[0], tensor([4, 4, 4, 2, 2])),
        "from_ids": (ids, IDS),
        "from_rankings": (ids, ids.flip(1)),
        "from_ranks": (tensor([[1], [3]]), tensor([4, 5])),
        "from_negatives": (SCORES[:, 0], SCORES),
        "from_neighbors": (ids, distances, ids[:, :2], distances[:, :2]),
        "from_embeddings": (SCORES, SCORES, IDS),
    }.items():
        make = getattr(tr.Ranking, name)
        assert_same(vars(make(*map(convert, arguments)))["first"], vars(make(*arguments))["first"])
    assert_same(tr.exact_neighbors(convert(SCORES), convert(SCORES), 2), tr.exact_neighbors(SCORES, SCORES, 2))
    blocks = [SCORES, SCORES.flip(0)]
    ranking = tr.Ranking.from_score_blocks([convert(block) for block in blocks], convert(IDS))
    assert_same(ranking.first, tr.Ranking.from_score_blocks(blocks, IDS).first)
    named = (tr.preset("recbole", 2, num_items=5, interactions=x) for x in (convert(positive), positive))
    assert_same(*(one["averagepopularity@2"].score(SCORES.argsort()) for one in named))


@cases("entry, shape", in_turn(ENTRIES, [(5,), (1, 5)]))
def test_a_mask_and_a_tie_break_of_the_catalogue_are_those_of_each_query(entry, shape):
    value = ENTRIES[entry]
    each = value(SCORES, GRADES, mask=MASK.repeat(3, 1), tie_break=ORDER.repeat(3, 1), weights=WEIGHTS)
    assert_same(value(SCORES, GRADES, mask=MASK.view(shape), tie_break=ORDER.view(shape), weights=WEIGHTS), each)
    each = value(SCORES, IDS, mask=MASK.repeat(3, 1), weights=WEIGHTS)
    assert_same(value(SCORES, IDS, mask=MASK.view(shape), weights=WEIGHTS), each)


def test_a_mask_of_the_catalogue_reaches_ids_and_metrics_of_other_libraries():
    ids = tensor([[3, 1, 2, 0, 4], [0, 1, 4, 2, 3], [2, 4, 1, 0, 3]])
    want = tr.MRR().score(ids, IDS, mask=MASK.repeat(3, 1))
    assert_same(tr.MRR().score(ids, IDS, mask=MASK), want)
    suite = tr.RankingCollection([tr.MRR(), MeanAbsoluteError()])
    suite.update(SCORES.numpy(), GRADES.float().numpy(), mask=MASK)
    error = (SCORES - GRADES).abs()[:, MASK].mean()
    torch.testing.assert_close(suite.compute()["MeanAbsoluteError"], error)


def test_numbers_of_python_keep_their_digits():
    scores = [[0.1, 0.1 + 1e-12]]  # equal in float32
    assert tr.MRR().score(scores, [[1]]).tolist() == [1]


def test_memory_of_an_array_is_shared():
    array = np.random.default_rng(0).random((100, 200))
    for found in (array, np.broadcast_to(array[:1], (100, 200)), array.T, array[::2]):
        found.flags.writeable = False
        assert tr.layouts.checks.tensor_of(found).data_ptr() == found.ctypes.data


@pytest.mark.parametrize("wrong", ["text", {1: 2}, np.array(["a"]), np.array([[1, None]], dtype=object)])
def test_objects_without_numbers_are_refused(wrong):
    with pytest.raises(TypeError, match=r"^Expected preds to be a tensor of scores or ids or a Ranking, got"):
        tr.MRR().score(wrong, GRADES)


#: arguments with a masked element, and how their errors end
MASKED = {
    "preds": (SCORES.double().numpy(), "; pass preds.filled(-numpy.inf) or preds.data, and mask=~preds.mask"),
    "target": (GRADES.numpy(), "; pass target.filled(-1)"),
    "mask": (MASK.repeat(3, 1).numpy(), "; pass mask.filled(False)"),
    "tie_break": (ORDER.repeat(3, 1).numpy(), " with masked elements"),
    "weights": (WEIGHTS.numpy(), "; pass weights.filled(0)"),
    "groups": (np.arange(5), "; pass groups.filled(-1)"),
}


@cases("name", MASKED)
@cases("entry", ["score", "update", "collection", "from_scores"])
def test_masked_elements_of_an_array_are_refused_and_not_read(name, entry):
    array, end = MASKED[name]
    array = np.ma.array(array, mask=np.zeros_like(array, dtype=bool))
    calls = {"score": tr.NDCG().score, "update": tr.NDCG().update, "collection": tr.RankingCollection("ndcg").update}
    call = calls.get(entry) or (lambda preds, target, weights=None, **options: tr.NDCG().score(
        tr.Ranking.from_scores(preds, target, **options), weights=weights))  # fmt: skip
    arguments = {"preds": SCORES, "target": GRADES} | {name: array}
    call(**arguments)  # nothing is masked
    array.mask[(0,) * array.ndim] = True
    with pytest.raises(TypeError, match=rf"{name}.* got MaskedArray of \w+ with masked elements") as error:
        call(**arguments)
    assert str(error.value).endswith(end)
    if "; pass" in end:
        filled = eval(end.removeprefix("; pass ").split(" or ")[0], {"numpy": np, name: array})
        call(**arguments | {name: filled})


def test_masked_elements_of_arrays_in_lists_are_refused():
    ids = [np.ma.array([3, 1], mask=[False, True]), np.array([2]), np.array([0])]
    with pytest.raises(ValueError, match=r"; pass \[numpy.ma.compressed\(x\) for x in target\]$"):
        tr.MRR().score(SCORES, ids)
    tr.MRR().score(SCORES, [np.ma.compressed(x) for x in ids])
    rows = [np.ma.array(row, mask=row > 0.5) for row in SCORES.numpy()]
    with pytest.raises(TypeError, match=r"got list of masked arrays; pass numpy.ma.stack\(preds\)"):
        tr.MRR().score(rows, GRADES)


def test_masked_ids_of_queries_are_refused_and_masked_values_are_missing():
    with pytest.raises(TypeError, match="query_ids with None or masked elements"):
        tr.PerQuery("mrr").update(SCORES, GRADES, query_ids=np.ma.array([1, 2, 3], mask=[False, True, False]))
    a, b = np.array([0.2, 0.5, 0.4, 0.9]), np.array([0.3, 0.4, 0.8, 0.1])
    masked = np.ma.array(b, mask=[False, False, False, True])
    missing = tr.compare({"a": a, "b": [0.3, 0.4, 0.8, np.nan]}, test="t")
    assert str(tr.compare({"a": a, "b": masked}, test="t")) == str(missing)


@pytest.mark.parametrize(
    ("array", "way_out"),
    [
        (SCORES.numpy().astype(np.longdouble), "numpy.asarray(preds, 'float64')"),
        (SCORES.numpy().astype(object), "preds.tolist()"),
    ],
    ids=["long double", "objects"],
)
def test_arrays_that_torch_lacks_have_a_way_out(array, way_out):
    with pytest.raises(TypeError, match="got ndarray of") as error:
        tr.MRR().score(array, GRADES)
    assert str(error.value).endswith(f"; pass {way_out}")
    same = eval(way_out, {"numpy": np, "preds": array})
    assert tr.MRR().score(same, GRADES).tolist() == tr.MRR().score(SCORES, GRADES).tolist()


def test_a_column_of_lists_or_decimals_of_polars_has_a_way_out():
    polars = pytest.importorskip("polars")
    target = polars.Series([[1, 2], [3], [0]])
    with pytest.raises(TypeError, match=r"got Series of .*; pass target.to_list\(\)$"):
        tr.MRR().score(SCORES, target)
    assert tr.MRR().score(SCORES, target.to_list()).tolist() == tr.MRR().score(SCORES, [[1, 2], [3], [0]]).tolist()
    weights = polars.Series(["1.5", "1", "2"]).cast(polars.Decimal(10, 2))
    with pytest.raises(TypeError, match=r"got Series of Decimal.*; pass numpy.asarray\(weights, 'float64'\)$"):
        tr.MRR().score(SCORES, GRADES, weights=weights)
    assert np.asarray(weights, "float64").tolist() == [1.5, 1, 2]


class Subclass(torch.Tensor):
    """A tensor whose class cannot be made of a shape, so that a copy of such a state would fail."""

    def __new__(cls, x, name):
        return x.as_subclass(cls)


@cases("entry", ["metric", "collection", "PerQuery", "queue"])
def test_tensors_of_a_subclass_are_plain_ones_in_the_state(entry):
    metric = {"collection": tr.RankingCollection("ndcg mrr"), "PerQuery": tr.PerQuery("mrr")}.get(entry, tr.NDCG())
    more = {"query_ids": Subclass(tensor([1, 2, 3]), "c")} if entry == "PerQuery" else {}
    arguments = (Subclass(SCORES, "a"), Subclass(GRADES, "b"))
    metric.update(*arguments, weights=torch.nn.Parameter(WEIGHTS.float()), **more)
    if entry == "metric":
        assert type(metric.score(*arguments)) is torch.Tensor
        assert type(metric.compute()) is torch.Tensor
    copied = copy.deepcopy(metric)  # of a batch that waits, too
    pickle.loads(pickle.dumps(metric))
    for one in (metric, copied):
        parts = [part for part in one.modules() if isinstance(part, Metric)]
        states = [x for part in parts for x in getattr(part, "metric_state", {}).values() if not isinstance(x, dict)]
        assert all(type(x) is torch.Tensor for value in states for x in (value if isinstance(value, list) else [value]))
    plain = tr.NDCG()
    plain.update(SCORES, GRADES, weights=WEIGHTS)
    if entry in ("metric", "queue"):
        assert copied.compute() == plain.compute()
