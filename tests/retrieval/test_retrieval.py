"""torchrank.retrieval beside torchmetrics.retrieval: the same numbers where these are right, and its contract."""

import copy
import inspect
import io
import itertools
import math
import pickle

import pytest
import torch
import torchmetrics
import torchmetrics.retrieval as stock
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import tensor

from tests.support.cases import cases
from tests.support.optional import pyplot
from tests.support.oracles import Query, value
from torchrank import retrieval
from torchrank.engine.lists import rank_flat

NAN, INF = float("nan"), float("inf")
NAMES = retrieval.__all__
CURVES = ["RetrievalPrecisionRecallCurve", "RetrievalRecallAtFixedPrecision"]
SINGLE = [name for name in NAMES if name not in CURVES]
TOP_K = [name for name in SINGLE if name != "RetrievalRPrecision"]
BINARY = [name for name in NAMES if name != "RetrievalNormalizedDCG"]
MEASURES = {
    "RetrievalMAP": "map",
    "RetrievalMRR": "mrr",
    "RetrievalNormalizedDCG": "ndcg",
    "RetrievalPrecision": "precision",
    "RetrievalRecall": "recall",
    "RetrievalHitRate": "hitrate",
    "RetrievalFallOut": "fallout",
    "RetrievalRPrecision": "rprecision",
    "RetrievalAUROC": "auroc",
}

every_class = cases("name", NAMES)
#: Classes for the tests of code that all share: of binary targets, of grades, a curve, and one point of a curve.
some_class = cases("name", ["RetrievalMAP", "RetrievalNormalizedDCG", *CURVES])


def ours(name, **kwargs):
    return getattr(retrieval, name)(**kwargs)


def theirs(name, **kwargs):
    return getattr(stock, name)(**kwargs)


def rows(seed, queries=30, longest=12, grades=2):
    """Scores in (0, 1) without ties, targets and indexes, shuffled; some queries of one class, some of one row."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (queries,), generator=generator)
    names = torch.randperm(3 * queries, generator=generator)[:queries] - queries
    indexes = names.repeat_interleave(lengths)
    indexes = indexes[torch.randperm(len(indexes), generator=generator)]
    target = torch.randint(0, grades, indexes.shape, generator=generator)
    target[torch.isin(indexes, names[:3])] = 0
    target[torch.isin(indexes, names[3:6])] = 1
    preds = (torch.randperm(len(indexes), generator=generator) + 1) / (len(indexes) + 1)
    return preds, target, indexes


def split(batch, parts):
    """Rows over batches, wherever their query is."""
    return list(zip(*(x.tensor_split(parts) for x in batch)))


def filled(metric, *batches):
    for preds, target, indexes in batches:
        metric.update(preds, target, indexes=indexes)
    return metric


def close(one, other):
    """Equal numbers and shapes; float32 sums of another order."""
    torch.testing.assert_close(one, other, rtol=2e-6, atol=2e-6)


def equal(one, other):
    one, other = ((x,) if isinstance(x, torch.Tensor) else x for x in (one, other))
    return len(one) == len(other) and all(map(torch.equal, one, other))


def stored(metric):
    """Of the rows that a metric keeps, the dtypes of scores, targets and indexes in each batch."""
    state = {name.split(":")[1]: x for name, x in metric.metric_state.items()}
    return [tuple(x.dtype for x in part) for part in zip(state["preds"], state["target"], state["indexes"])]


def scale(values, dim=None):
    return values.mean() * 2 if dim is None else values.mean(dim=dim) * 2


# ---- torchmetrics' numbers -------------------------------------------------------------------------------------

AGGREGATES = {"mean": torch.mean, "median": torch.median, "min": torch.amin, "max": torch.amax}
AGGREGATIONS = ["mean", "median", "min", "max", scale]
POLICIES = [
    *({"empty_target_action": action, "aggregation": how} for action in ("neg", "pos") for how in AGGREGATIONS),
    *({"empty_target_action": "skip", "aggregation": how} for how in ("mean", "median", "min", scale)),
    {},
]


def variants(name):
    """Arguments of a class beside those that all have."""
    if name in CURVES:
        found = [{}, {"max_k": 3}, {"max_k": 20}, {"max_k": 5, "adaptive_k": True}, {"adaptive_k": True}]
        if name == "RetrievalRecallAtFixedPrecision":
            found = [{**kwargs, "min_precision": p} for kwargs, p in zip(found, (0.3137, 0.0, 0.2137, 1.0, 0.5137))]
        return found
    found = [{}, {"top_k": 1}, {"top_k": 4}, {"top_k": 50}] if name in TOP_K else [{}]
    if name == "RetrievalPrecision":
        found += [{"top_k": 4, "adaptive_k": True}, {"adaptive_k": True}]
    if name == "RetrievalAUROC":
        found += [{"max_fpr": 0.4}, {"max_fpr": 1.0}, {"max_fpr": 0.75, "top_k": 5}]
    return found


@every_class
def test_numbers_of_torchmetrics_for_every_argument(name):
    first, *others = variants(name)
    # Policies do not see the arguments of the class: a few of them meet each.
    tried = [*((first, policy) for policy in POLICIES), *itertools.product(others, POLICIES[::7])]
    for seed, (own, policy) in enumerate(tried):
        batch = rows(seed, queries=9, grades=4 if name == "RetrievalNormalizedDCG" else 2)
        one, other = (filled(make(name, **own, **policy), batch) for make in (ours, theirs))
        close(one.compute(), other.compute())


@every_class
@pytest.mark.parametrize("parts", [1, 3])
def test_numbers_of_torchmetrics_over_batches_and_in_forward(name, parts):
    for seed, own in enumerate(variants(name) if parts > 1 else [{}]):
        one, other = ours(name, **own), theirs(name, **own)
        for preds, target, indexes in split(rows(100 + seed, queries=9), parts):
            close(one(preds, target, indexes=indexes), other(preds, target, indexes=indexes))
        close(one.compute(), other.compute())
        assert one.update_count == other.update_count == parts


@some_class
def test_numbers_of_torchmetrics_for_any_shape(name):
    batch = [x[:120] for x in rows(7)]
    flat = filled(ours(name), batch).compute()
    for shape in ((8, 15), (15, 8), (120, 1), (2, 3, 20)):
        shaped = [x.reshape(shape) for x in batch]
        close(filled(ours(name), shaped).compute(), filled(theirs(name), shaped).compute())
        assert equal(filled(ours(name), shaped).compute(), flat)
        assert equal(filled(ours(name), [x.T if x.dim() == 2 else x for x in shaped]).compute(), flat)


@some_class
@pytest.mark.parametrize("ignore_index", [-100, 7, 0, 1])
def test_numbers_of_torchmetrics_with_ignore_index(name, ignore_index):
    preds, target, indexes = rows(11, queries=20)
    generator = torch.Generator().manual_seed(12)
    target[torch.rand(len(target), generator=generator) < 0.3] = ignore_index
    for action in ("neg", "pos", "skip") if ignore_index == 1 else ("pos",):
        one, other = (make(name, ignore_index=ignore_index, empty_target_action=action) for make in (ours, theirs))
        for batch in split((preds, target, indexes), 2):
            close(one(*batch), other(*batch))
        close(one.compute(), other.compute())


@some_class
@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32, torch.float64])
def test_numbers_of_torchmetrics_for_any_dtype_of_targets(name, dtype):
    preds, target, indexes = rows(13, queries=12)
    # torchmetrics' R-precision takes no floats
    close(ours(name)(preds, target.to(dtype), indexes), theirs(name)(preds, target, indexes))


@pytest.mark.parametrize("top_k", [None, 1, 4])
def test_numbers_of_torchmetrics_for_fractional_grades(top_k):
    preds, target, indexes = rows(14, grades=9)
    batch = preds, target / 8, indexes
    one, other = (filled(make("RetrievalNormalizedDCG", top_k=top_k), batch) for make in (ours, theirs))
    close(one.compute(), other.compute())


@every_class
def test_empty_queries_raise_where_torchmetrics_does(name):
    messages = []
    preds, target, indexes = tensor([0.1, 0.4, 0.3, 0.2]), tensor([1, 0, 0, 1]), tensor([0, 0, 1, 1])
    for make in (ours, theirs):
        metric = make(name, empty_target_action="error")
        close(metric(preds, target, indexes), theirs(name)(preds, target, indexes))
        metric.reset()
        metric.update(preds, torch.full((4,), int(name == "RetrievalFallOut")), indexes)
        with pytest.raises(ValueError, match="provided with a query with no") as raised:
            metric.compute()
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


@every_class
def test_nothing_but_skipped_queries_is_0(name):
    preds, indexes = tensor([0.1, 0.4, 0.3]), tensor([0, 0, 1])
    target = torch.full((3,), int(name == "RetrievalFallOut"))
    for own in variants(name):
        one, other = (make(name, empty_target_action="skip", **own)(preds, target, indexes) for make in (ours, theirs))
        assert equal(one, other)


# ---- where torchmetrics is wrong -------------------------------------------------------------------------------


@every_class
def test_scores_are_only_compared(name):
    for seed, own in enumerate(variants(name)):
        preds, target, indexes = rows(200 + seed)
        want = filled(ours(name, **own), (preds, target, indexes)).compute()
        close(want, theirs(name, **own)(preds, target, indexes))
        moves = preds - 2, preds.double() * 1e-300, preds - 0.5, preds * 1e30, -1 / preds, preds.logit()
        for moved in moves if not seed else moves[:2]:
            assert equal(filled(ours(name, **own), (moved, target, indexes)).compute(), want)


def empty(name, query):
    """Whether it is one in torchmetrics' sense."""
    grades = [grade for _, grade in query.listed]
    return all(grade > 0 for grade in grades) if name == "RetrievalFallOut" else all(grade <= 0 for grade in grades)


def from_definition(name, query, action, **kwargs):
    if empty(name, query):
        return {"neg": 0.0, "pos": 1.0, "skip": NAN}[action]
    if name == "RetrievalMAP":
        kwargs["normalize"] = "retrieved"
    return value(MEASURES[name], query, empty_target_action="neg", **kwargs)


def flatten(queries, seed=0):
    """Lists of (score, grade) as shuffled rows."""
    found = [(score, grade, index) for index, query in enumerate(queries) for score, grade in query.listed]
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed))
    preds, target, indexes = (torch.tensor(x) for x in zip(*found))
    return preds[order], target[order], indexes[order]


def mean(values):
    values = [x for x in values if not math.isnan(x)]
    return math.fsum(values) / len(values) if values else 0.0


def tied_queries(grades):
    """A few short lists of few scores, positive or not."""
    row = st.tuples(st.sampled_from([-1.5, -0.0, 0.0, 0.25, 2.0]), st.sampled_from(grades))
    return st.lists(st.lists(row, min_size=1, max_size=6).map(lambda x: Query(tuple(x))), min_size=1, max_size=4)


@pytest.mark.parametrize("name", SINGLE)
@settings(max_examples=12)
@given(data=st.data(), action=st.sampled_from(["neg", "pos", "skip"]), top_k=st.sampled_from([None, 1, 2, 3, 9]))
def test_ties_are_worth_their_expectation(name, data, action, top_k):
    graded = name == "RetrievalNormalizedDCG"
    queries = data.draw(tied_queries([-2, 0, 0, 1, 3] if graded else [0, 1]))
    kwargs = {"top_k": top_k} if name in TOP_K else {}
    if name == "RetrievalPrecision":
        kwargs["adaptive_k"] = data.draw(st.booleans())
    if name == "RetrievalAUROC":
        kwargs["max_fpr"] = data.draw(st.sampled_from([None, 0.3, 1.0]))
    want = mean(from_definition(name, query, action, **kwargs) for query in queries)
    got = ours(name, empty_target_action=action, **kwargs)(*flatten(queries))
    assert got.item() == pytest.approx(want, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("adaptive_k", [False, True])
@settings(max_examples=15)
@given(
    queries=tied_queries([0, 1]), action=st.sampled_from(["neg", "pos", "skip"]), max_k=st.sampled_from([None, 2, 8])
)
def test_curves_of_ties_are_their_expectation(adaptive_k, queries, action, max_k):
    ranks = range(1, (max_k or max(len(query.listed) for query in queries)) + 1)

    def curve(name, **kwargs):
        return [mean(from_definition(name, q, action, top_k=k, **kwargs) for q in queries) for k in ranks]

    want = [torch.tensor(x) for x in (curve("RetrievalPrecision", adaptive_k=adaptive_k), curve("RetrievalRecall"))]
    # torchmetrics squeezes curves of a single point
    want = [x.squeeze() for x in (*want, torch.tensor(ranks))]
    metric = ours(CURVES[0], max_k=max_k, adaptive_k=adaptive_k, empty_target_action=action)
    torch.testing.assert_close(metric(*flatten(queries)), tuple(want), rtol=1e-6, atol=1e-7)


@cases("name", [*TOP_K, CURVES[0]])
@cases("value", [-5, 0, 1.5, 4.0, True, 2**53 + 1])
def test_a_cut_that_is_no_positive_integer_is_refused_by_its_name(name, value):
    cut = "max_k" if name in CURVES else "top_k"
    with pytest.raises(ValueError, match=rf"`{cut}` has to be a positive integer") as raised:
        ours(name, **{cut: value})
    assert ("up to 2 ** 53" in str(raised.value)) == (value == 2**53 + 1)
    ours(name, **{cut: 2**53})


@pytest.mark.parametrize("max_fpr", [0.0, -1.0, 2.0, NAN, 2])
def test_a_false_positive_rate_that_is_none_is_refused(max_fpr):
    with pytest.raises(ValueError, match="max_fpr"):
        ours("RetrievalAUROC", max_fpr=max_fpr)


@every_class
@pytest.mark.parametrize("wrong", [{"empty_target_action": "none"}, {"ignore_index": 0.5}, {"aggregation": "sum"}])
def test_arguments_are_refused_as_torchmetrics_does(name, wrong):
    flags = [{"adaptive_k": 1}] if name in (*CURVES, "RetrievalPrecision") else []
    for make, bad in itertools.product((ours, theirs), [wrong, *flags]):
        with pytest.raises(ValueError, match=next(iter(bad))):
            make(name, **bad)


@some_class
def test_scores_that_are_nan_raise_in_compute(name):
    metric = ours(name)
    metric.update(tensor([0.1, NAN, 0.3]), tensor([0, 1, 0]), tensor([0, 0, 1]))
    for _ in range(2):
        with pytest.raises(ValueError, match="NaN"):
            metric.compute()
    metric.reset()
    assert equal(metric(*rows(1)), ours(name)(*rows(1)))
    if name == "RetrievalNormalizedDCG":
        with pytest.raises(ValueError, match="relevance grade"):
            metric(tensor([0.1, 0.2]), tensor([NAN, 1.0]), tensor([0, 0]))


@cases("name", BINARY)
@cases("bad", [0.5, 2, -1, 1.5, NAN])
def test_targets_that_are_not_binary_raise_in_update(name, bad):
    metric = ours(name, ignore_index=-100)
    with pytest.raises(ValueError, match="binary"):
        metric.update(tensor([0.1, 0.2, 0.3]), tensor([0, bad, -100]), tensor([0, 0, 0]))
    assert stored(metric) == []


@some_class
def test_a_batch_that_is_ignored_as_a_whole_changes_nothing(name):
    batch = rows(19)
    preds, target, indexes = batch
    metric = ours(name, ignore_index=-1)
    ignored = preds, torch.full_like(target, -1), indexes
    metric.update(*ignored)
    assert stored(metric) == []
    filled(metric, batch, ignored)
    close(metric.compute(), theirs(name)(*batch))
    assert metric.update_count == 3


@some_class
def test_ignored_rows_may_have_any_score(name):
    batch = tensor([0.1, NAN, 0.3]), tensor([1, -1, 0]), tensor([0, 0, 0])
    assert equal(ours(name, ignore_index=-1)(*batch), ours(name)(*(x[::2] for x in batch)))


@pytest.mark.parametrize(("dtype", "ignore_index"), [(torch.uint8, -256), (torch.int8, 256), (torch.int32, 2**32)])
def test_an_ignore_index_beyond_the_dtype_of_targets_ignores_nothing(dtype, ignore_index):
    preds, target, indexes = tensor([0.3, 0.2, 0.1]), tensor([0, 1, 0], dtype=dtype), tensor([0, 0, 0])
    assert ours("RetrievalMRR", ignore_index=ignore_index)(preds, target, indexes) == 0.5


def test_a_function_sees_one_curve_at_a_time():
    def relative(values, dim=None):
        return (values / values.mean()).amax(dim=dim)

    batch = rows(45)
    close(*(make(CURVES[0], max_k=2, aggregation=relative)(*batch) for make in (ours, theirs)))


def test_a_function_sees_the_queries_in_order_of_their_index():
    preds, target, indexes = rows(20)
    want = [theirs("RetrievalMRR")(*(x[indexes == i] for x in (preds, target, indexes))) for i in indexes.unique()]
    for order in (slice(None), indexes.argsort(stable=True)):
        seen = []
        metric = ours("RetrievalMRR", aggregation=lambda v, seen=seen: seen.append(v.clone()) or float(v.mean()))
        close(metric(preds[order], target[order], indexes[order]), torch.stack(want).mean())
        close(seen[0], torch.stack(want))
        assert seen[0].dtype == torch.float32


def test_a_function_with_dim_receives_the_values_of_all_queries_in_whatever_order_rows_come():
    seen = []

    def last(values, dim=None):
        seen.append((values.dim(), dim))
        return values[-1]

    for name, options, want in (("RetrievalMRR", {}, {(1, None)}), (CURVES[0], {"max_k": 3}, {(2, 0)})):
        seen.clear()
        for order in (slice(None), rows(20)[2].argsort(stable=True)):
            batch = tuple(x[order] for x in rows(20))
            close(*(make(name, aggregation=last, **options)(*batch) for make in (ours, theirs)))
        assert want <= set(seen)


def test_irrelevant_rows_of_long_lists_have_no_entries_in_rankings():
    metric = ours("RetrievalMAP")
    metric.update(torch.rand(4000), torch.arange(4000) % 2000 == 7, indexes=torch.arange(4000) // 2000)
    (ranking,) = metric.rankings()
    assert ranking.first.shape == (2, 1)


@some_class
def test_a_long_query_among_short_ones(name):
    # It goes into a rectangle of its own, so that the queries are not ranked in the order of their index.
    generator = torch.Generator().manual_seed(22)
    preds, target, indexes = rows(21, queries=20)
    middle = int(indexes.median())
    preds, target, indexes = (x[indexes != middle] for x in (preds, target, indexes))
    long = torch.randperm(8000, generator=generator) / 8000
    more = long, torch.randint(0, 2, long.shape, generator=generator), torch.full(long.shape, middle)
    batch = tuple(torch.cat(x) for x in zip((preds, target, indexes), more))
    own = {CURVES[0]: {"max_k": 5}, CURVES[1]: {"max_k": 5, "min_precision": 0.3137}}.get(name, {})
    for policy in (*POLICIES[::3], {"aggregation": lambda v: v[0]}):
        found = ours(name, **own, **policy)(*batch)
        if "lambda" in getattr(policy.get("aggregation"), "__name__", ""):
            policy = {"aggregation": lambda v, dim: v[0]}
        close(found, theirs(name, **own, **policy)(*batch))


@pytest.mark.parametrize("aggregation", ["mean", "median", "min", "max", scale, torch.mean])
@pytest.mark.parametrize("max_k", [None, 3])
@pytest.mark.parametrize("retrieved", [0, 1])
def test_curves_of_lists_without_retrieved_rows_are_0(aggregation, max_k, retrieved):
    preds = torch.tensor([-INF, -INF, 0.3])[: 2 + retrieved]
    target, indexes = torch.tensor([1, 0, 1])[: 2 + retrieved], torch.tensor([0, 0, 1])[: 2 + retrieved]
    metric = filled(ours(CURVES[0], aggregation=aggregation, max_k=max_k), (preds, target, indexes))
    found = [x.flatten().tolist() for x in metric.compute()]
    ranks = range(1, (max_k or retrieved) + 1)
    curves = [[(0.0, 0.0) for _ in ranks], [(1 / k, 1.0) for k in ranks]][: 1 + retrieved]
    expected = [
        (torch.as_tensor(AGGREGATES.get(aggregation, aggregation)(torch.tensor(values)))).item()
        for n in range(2)
        for values in zip(*([point[n] for point in curve] for curve in curves))
    ]
    assert found[0] + found[1] == pytest.approx(expected)
    assert found[2] == list(ranks)


@every_class
@pytest.mark.parametrize("action", ["neg", "pos", "skip", "error"])
def test_no_rows_are_worth_0(name, action):
    ways = [own | more for own in variants(name) for more in ({}, {"aggregation": "max"}, {"aggregation": torch.mean})]
    for own in ways:
        if name == CURVES[1] and "aggregation" in own:
            continue
        found = ours(name, empty_target_action=action, **own).compute()
        if name in SINGLE:
            assert (found.item(), found.dtype) == (0, torch.float32)
            continue
        length = own.get("max_k") or 0
        if name == CURVES[0]:
            assert [x.shape for x in found] == [(length,)] * 3
            assert not found[0].any()
            assert not found[1].any()
        else:
            assert [x.item() for x in found] == [0, length]


# ---- kept rows -------------------------------------------------------------------------------------------------------


@some_class
def test_rows_are_kept_in_few_bytes(name):
    metric = ours(name)
    assert len(metric.metric_state) == 3
    assert all(":" in state and x == [] for state, x in metric.metric_state.items())
    preds, target = tensor([0.1, 0.2]), tensor([0, 1])
    wanted = []
    for bound, dtype in ((2**7, torch.int8), (2**15, torch.int16), (2**31, torch.int32), (2**63, torch.int64)):
        for indexes in ([-bound, bound - 1], [0, bound - 1]):
            filled(metric, (preds, target, tensor(indexes)))
            wanted.append((torch.float32, torch.int8, dtype))
    metric.update(preds.double(), target.bool(), tensor([300, 5], dtype=torch.int32))
    metric.update(preds.half(), target.float() if name in BINARY else target.short(), tensor([300, 5]))
    wanted += [(torch.float64, torch.int8, torch.int16), (torch.float16, torch.int8, torch.int16)]
    assert stored(metric) == wanted


def test_grades_are_kept_in_few_bytes():
    metric = ours("RetrievalNormalizedDCG")
    for target in ([0, 127], [0, 128], [0, -129], [0, 2**15], [0, 2**31], [0, 0.5]):
        metric.update(tensor([0.1, 0.2]), tensor(target), tensor([0, 0]))
    dtypes = [torch.int8, torch.int16, torch.int16, torch.int32, torch.int64, torch.float32]
    assert [x[1] for x in stored(metric)] == dtypes


@pytest.mark.parametrize("name", ["RetrievalMAP", "RetrievalNormalizedDCG", "RetrievalPrecisionRecallCurve"])
@pytest.mark.parametrize("ignore_index", [None, -1])
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.int64, torch.int64), (torch.float64, torch.int8, torch.int8)])
def test_later_changes_of_the_users_tensors_change_nothing(name, ignore_index, dtypes):
    for forward in (False, True):
        batch = [x.to(dtype) for x, dtype in zip(rows(23), dtypes)]
        want = ours(name)(*(x.clone() for x in batch))
        metric = ours(name, ignore_index=ignore_index)
        metric(*batch) if forward else metric.update(*batch)
        for x in batch:
            x.zero_()
        assert equal(metric.compute(), want)


def resumed(metric):
    """A metric with the state of a file; another metric that took it has gone on since."""
    assert metric.state_dict() == {}  # no rows unless asked
    metric.persistent(True)
    torch.save(metric.state_dict(), file := io.BytesIO())
    file.seek(0)
    saved, one, other = torch.load(file), metric.clone(), metric.clone()
    for twin in (one, other):
        twin.reset()
        filled(twin, rows(99)).compute()  # which is replaced
        twin.load_state_dict(saved)
    one.update(*rows(98))
    assert [len(x) for x in saved.values()] == [1, 1, 1]
    return other


def merged(metric, by_state=False):
    """A metric that was merged with another one, and with one that has no rows."""
    twin, nothing = metric.clone(), metric.clone()
    nothing.reset()
    twin.reset()
    twin.compute()
    for other in (metric, nothing):
        twin.merge_state(other.metric_state if by_state else other)
    with pytest.raises(ValueError, match="Expected"):
        twin.merge_state(ours("RetrievalMAP", ignore_index=-1))
    return twin


WAYS = {
    "pickle": lambda metric: pickle.loads(pickle.dumps(metric)),
    "copy": copy.deepcopy,
    "clone": lambda metric: metric.clone(),
    "bfloat16": lambda metric: metric.to(torch.bfloat16),
    "half": lambda metric: metric.half(),
    "double": lambda metric: metric.double(),
    "set_dtype": lambda metric: metric.set_dtype(torch.half),
    "checkpoint": resumed,
    "merge": merged,
    "merge of a state": lambda metric: merged(metric, by_state=True),
}


@some_class
@pytest.mark.parametrize("way", WAYS)
def test_copies_casts_checkpoints_and_merges_have_the_rows_and_go_on_by_themselves(name, way):
    first, second, third = split(rows(27), 3)
    metric = filled(ours(name), first)
    close(metric.compute(), theirs(name)(*first))
    twin, before = WAYS[way](metric), stored(metric)
    assert equal(twin.compute(), metric.compute())
    assert way.startswith("merge") or stored(twin) == before  # rows of both may need more bytes
    assert equal(filled(twin, second).compute(), filled(ours(name), first, second).compute())
    if twin is not metric:
        assert equal(metric.compute(), filled(ours(name), first).compute())
    metric.reset()
    assert (stored(metric), metric.update_count) == ([], 0)
    assert equal(filled(metric, third).compute(), ours(name)(*third))


@some_class
def test_a_call_of_forward_that_raises_leaves_no_trace(name):
    first, second = split(rows(32), 2)
    short = tensor([0.1, 0.2])
    metric = filled(ours(name), first)
    for computed in (False, True):
        if computed:
            metric.compute()
        before = {state: list(x) for state, x in metric.metric_state.items()}
        for wrong in (
            (short, tensor([0, 1]), tensor([0])),
            (short, tensor([0, 1]), None),
            (short, tensor([0, 1]), tensor([0.0, 1.0])),
            (tensor([0.1, NAN]), tensor([0, 1]), tensor([0, 0])),
            *([(short, tensor([0, 2]), tensor([0, 0]))] if name in BINARY else []),
        ):
            with pytest.raises(ValueError):
                metric(*wrong)
            assert metric.metric_state.keys() == before.keys()
            for state, x in metric.metric_state.items():
                assert len(x) == len(before[state])
                assert all(map(torch.equal, x, before[state]))
            assert metric.update_count == 1
        assert equal(metric.compute(), filled(ours(name), first).compute())
    metric(*second)
    assert equal(metric.compute(), filled(ours(name), first, second).compute())


PAIR = tensor([0.1, 0.2])
WRONG = {
    "scalar": (tensor(0.5), tensor(1), tensor(0)),
    "empty": (torch.rand(0), torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long)),
    "integer scores": (tensor([1, 2]), tensor([0, 1]), tensor([0, 0])),
    "bool indexes": (PAIR, tensor([0, 1]), tensor([False, True])),
    "float indexes": (PAIR, tensor([0, 1]), tensor([0.0, 0.0])),
    "unsigned indexes": (PAIR, tensor([0, 1]), tensor([0, 0], dtype=torch.uint16)),
    "complex targets": (PAIR, tensor([0, 1j]), tensor([0, 0])),
    "shapes": (PAIR, tensor([[0, 1]]), tensor([0, 0])),
    "no indexes": (PAIR, tensor([0, 1]), None),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_inputs_that_torchmetrics_refuses_are_refused(wrong):
    for make, name in itertools.product((ours, theirs), ("RetrievalMAP", "RetrievalPrecisionRecallCurve")):
        with pytest.raises(ValueError):
            make(name).update(*wrong)


# ---- collections -----------------------------------------------------------------------------------------------


def count_rankings(monkeypatch):
    """Calls of the engine that ranks flat rows."""
    calls = []

    def counted(layout, need):
        calls.append(len(layout.scores))
        return rank_flat(layout, need)

    monkeypatch.setattr("torchrank.engine.rank_layout.rank_flat", counted)
    return calls


def all_candidates(**kwargs):
    """Metrics that differ in all that does not change their rows."""
    return {
        **{name: ours(name, **kwargs) for name in BINARY},
        "RetrievalNormalizedDCG": ours("RetrievalNormalizedDCG", **kwargs),
        **{f"{name}@3": ours(name, top_k=3, **kwargs) for name in TOP_K},
        "median": ours("RetrievalMRR", aggregation="median", **kwargs),
        "skip": ours("RetrievalMAP", empty_target_action="skip", **kwargs),
        "adaptive": ours(CURVES[0], adaptive_k=True, max_k=9, **kwargs),
    }


@pytest.mark.parametrize("ignore_index", [None, -1])
def test_a_collection_keeps_and_ranks_its_rows_once(monkeypatch, ignore_index):
    calls = count_rankings(monkeypatch)
    collection = torchmetrics.MetricCollection(all_candidates(ignore_index=ignore_index))
    batches = split(rows(36 if ignore_index is None else 360), 3)
    for batch in batches:
        collection.update(*batch)
    assert len(collection.compute_groups) == 1
    assert calls == []
    total = sum(len(preds) for preds, _, _ in batches)
    found = collection.compute()
    assert calls == [total]
    again = collection.compute()
    assert calls == [total]
    collection.update(*batches[0])
    collection.compute()
    assert calls == [total, total + len(batches[0][0])]
    for name, metric in all_candidates(ignore_index=ignore_index).items():
        want = filled(metric, *batches).compute()
        assert equal(found[name], want)
        assert equal(again[name], want)


def test_a_collection_ranks_each_batch_of_forward_once(monkeypatch):
    calls = count_rankings(monkeypatch)
    collection = torchmetrics.MetricCollection(all_candidates())
    for batch in split(rows(37), 3):
        values = collection(*batch)
        assert calls == [len(batch[0])]
        calls.clear()
        for name, metric in all_candidates().items():
            assert equal(values[name], metric(*batch))
        calls.clear()


def test_metrics_that_ignore_other_rows_keep_their_own():
    generator = torch.Generator().manual_seed(39)
    first, (preds, target, indexes) = split(rows(39), 2)
    names = ["RetrievalMAP", "RetrievalNormalizedDCG", CURVES[0]]
    metrics = {f"{name} {i}": ours(name, ignore_index=i) for name in names for i in (0, 1, -1, None)}
    collection = torchmetrics.MetricCollection(metrics)
    flags = preds, torch.ones_like(target), indexes
    ignored = torch.where(torch.rand(len(target), generator=generator) < 0.3, 1, 0)
    collection.update(*flags)  # of which most of them ignore nothing
    groups = {frozenset(group) for group in collection.compute_groups.values()}
    assert groups == {frozenset(f"{name} {i}" for name in names) for i in (0, 1, -1, None)}
    for batch in (first, (preds, ignored, indexes)):
        collection.update(*batch)
    for name, found in collection.compute().items():
        kind, i = name.split()
        metric = ours(kind, ignore_index=None if i == "None" else int(i))
        assert equal(found, filled(metric, flags, first, (preds, ignored, indexes)).compute())


def test_a_collection_led_by_a_metric_of_grades_still_refuses_them_elsewhere():
    preds, target, indexes = rows(40, grades=4)
    collection = torchmetrics.MetricCollection(
        {"a": ours("RetrievalNormalizedDCG"), "b": ours("RetrievalMAP"), "c": ours(CURVES[0])}
    )
    collection.update(preds, target.clamp_max(1), indexes)
    assert collection.compute_groups == {0: ["a", "b", "c"]}
    collection.update(preds, target, indexes)
    for name in ("b", "c"):
        with pytest.raises(ValueError, match="binary"):
            collection[name].compute()
    with pytest.raises(ValueError, match="binary"):
        collection.compute()
    batches = [(preds, target.clamp_max(1), indexes), (preds, target, indexes)]
    close(collection["a"].compute(), filled(theirs("RetrievalNormalizedDCG"), *batches).compute())


# ---- torchmetrics' interface -----------------------------------------------------------------------------------


def test_all_classes_of_torchmetrics_are_here():
    assert sorted(NAMES) == sorted(stock.__all__)


@every_class
def test_a_class_looks_like_that_of_torchmetrics(name):
    one, other = getattr(retrieval, name), getattr(stock, name)
    found = [[(p.name, p.kind, p.default) for p in inspect.signature(cls).parameters.values()] for cls in (one, other)]
    assert found[0] == found[1]
    assert [*inspect.signature(one.update).parameters] == [*inspect.signature(other.update).parameters]
    assert issubclass(one, other)
    assert isinstance(one(), other)
    for attribute in ("higher_is_better", "is_differentiable", "full_state_update"):
        assert getattr(one, attribute) == getattr(other, attribute)


@some_class
def test_plot(name):
    metric = ours(name)
    values = [metric(*batch) for batch in split(rows(44), 3)]
    try:
        figure, _ = metric.plot()
        assert isinstance(figure, pyplot.Figure)
        if name not in CURVES:
            figure, _ = metric.plot(values)
            assert isinstance(figure, pyplot.Figure)
        _, axes = pyplot.subplots()
        metric.plot(values[0], ax=axes)
    finally:
        pyplot.close("all")


# ---- hits at every rank ----------------------------------------------------------------------------------------


def test_recalls_below_0_are_recalls():
    def strange(values, dim=None):
        return values[-1] - 0.8 * values[0]

    rows = torch.tensor([0.9, 0.8, 0.9, 0.8, 0.7]), torch.tensor([1, 0, 1, 0, 1]), torch.tensor([0, 0, 1, 1, 1])
    found = []
    for library in (stock, retrieval):
        metric = library.RetrievalRecallAtFixedPrecision(min_precision=0.1, max_k=2, aggregation=strange)
        recall, k = metric(*rows)
        found.append((pytest.approx(recall.item()), k.item()))
    assert found[0] == found[1]
