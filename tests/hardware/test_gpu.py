"""On an accelerator: the same numbers, no waiting for the device in ``update``, determinism on request."""

import inspect
import warnings
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torchrank as tr
from tests.support.brute_force_ranks import NAN, pairs_of
from tests.support.oracle_comparison import FEW, IN_TURN, REPRESENTATIVES
from torchrank import retrieval
from torchrank.engine.compiled import is_compiled
from torchrank.metrics import ComparingMetric
from torchrank.metrics.item_lists import ListMetric

pytestmark = pytest.mark.xdist_group("gpu")  # the first use of the meta device takes seconds


def on_gpu(test):
    """A test that needs a CUDA device; the others take the meta device for one."""
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")(test))


@contextmanager
def no_waiting():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


NAMES = [
    *["mr", "mrr", "mrr@5", "hitrate@5", "precision@5", "precision", "recall@5", "f1@5", "fbeta(beta=2)@5"],
    *["map", "map(normalize=min)@5", "map(normalize=retrieved)@5", "cg@5", "dcg@5", "ndcg@5", "ndcg(gain=exponential)"],
    *["rprecision", "fallout@5", "auroc", "auroc@5", "mr(filtered=True)", "mrr(filtered=True,average=positive)"],
    *["mrr(ties=realistic)", "ndcg(ties=optimistic)@5", "map(ties=pessimistic)", "mrr(aggregation=median)"],
    *["pia@5", "apia", "strecall@5", "alphadcg", "alphandcg@5", "nerria", "nrbp"],
]


def batch(layout):
    torch.manual_seed(0)
    scores = torch.randn(64, 300).round(decimals=1)
    exclude = torch.randint(64, (500,)), torch.randint(300, (500,))
    ids = torch.stack([torch.randperm(400)[:50] for _ in range(64)])
    relevant = torch.stack([torch.randperm(300)[:6] for _ in range(64)])
    relevant[::3, 3:] = -1
    groups = torch.randint(-1, 90, scores.shape)
    return {
        "dense": ((scores, torch.randint(-1, 4, scores.shape)), {"mask": scores < 1.5, "exclude": exclude}),
        "dense, subtopics": ((scores, torch.randint(-1, 3, (*scores.shape, 4))), {"mask": scores < 1.5}),
        "dense, tie_break": ((scores, torch.randint(-1, 4, scores.shape)), {"tie_break": torch.rand(300)}),
        "bf16": ((scores.bfloat16(), torch.randint(0, 2, scores.shape)), {"weights": torch.rand(64)}),
        "label": ((scores, torch.randint(-1, 300, (64,))), {"exclude": exclude, "mask": scores < 1.5}),
        "list": ((scores, list(relevant[1::3].repeat(4, 1)[:64])), {"exclude": exclude}),
        "ids": ((ids, relevant), {"exclude": exclude}),
        "dense, groups": ((scores, torch.randint(-1, 4, scores.shape)), {"exclude": exclude, "groups": groups}),
        "label, groups": ((scores, torch.randint(-1, 300, (64,))), {"mask": scores < 1.5, "groups": groups[0]}),
        "list, groups": ((scores, list(relevant[1::3].repeat(4, 1)[:64])), {"groups": groups[0]}),
        "ids, groups": ((ids, relevant), {"exclude": exclude, "groups": torch.randint(-1, 90, (400,))}),
        "ids, repeats": ((ids % 30, relevant[:, 0] % 30), {"repeats": "first"}),
    }[layout]


def to_device(x):
    if isinstance(x, torch.Tensor):
        return x.cuda()
    return type(x)(to_device(y) for y in x) if isinstance(x, list | tuple) else x


LAYOUTS = ["dense", "dense, subtopics", "dense, tie_break", "bf16", "label", "list", "ids"]
LAYOUTS += ["dense, groups", "label, groups", "list, groups", "ids, groups", "ids, repeats"]


@on_gpu
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_update_never_waits_for_the_device(layout, deterministic):
    arguments, keywords = batch(layout)
    expected = tr.RankingCollection(NAMES)
    expected.update(*arguments, **keywords)
    suite = tr.RankingCollection(NAMES).cuda()
    arguments, keywords = to_device(arguments), {name: to_device(value) for name, value in keywords.items()}
    suite.update(*arguments, **keywords)  # the first call may load kernels
    suite.reset()
    torch.use_deterministic_algorithms(deterministic)
    try:
        with no_waiting():
            suite.update(*arguments, **keywords)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, expected.compute())


EMBEDDED = [{}, {"chunk_size": 700}, {"similarity": "cosine"}, {"top_k": 5}, {"chunk_size": 999, "top_k": 5}]


@on_gpu
@pytest.mark.parametrize("more", EMBEDDED, ids=str)
@pytest.mark.parametrize("relevant", [1, 4, 200])
def test_embeddings_are_ranked_without_waiting(relevant, more):
    torch.manual_seed(0)
    queries, items = torch.randn(64, 16).round(), torch.randn(5000, 16).round()
    if "similarity" in more:
        queries, items = (torch.eye(16)[torch.randint(16, (n,))] for n in (64, 5000))
    target = [torch.randperm(5000)[:relevant] for _ in range(64)]
    target = torch.cat(target) if relevant == 1 else target
    exclude = torch.randint(64, (3000,)), torch.randint(5000, (3000,))
    names = [name for name in NAMES if "top_k" not in more or tr.parse(name).need().reach == 5]
    suite, expected = tr.RankingCollection(names).cuda(), tr.RankingCollection(names)
    expected.update(queries @ items.T, target, exclude=exclude)
    given = to_device((queries, items, target))
    exclude = to_device(exclude)
    suite.update(tr.Ranking.from_embeddings(*given, exclude=exclude, **more))  # the first call may load kernels
    suite.reset()
    with no_waiting():
        suite.update(tr.Ranking.from_embeddings(*given, exclude=exclude, **more))
    torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, expected.compute())


@on_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_labels_beside_nan_are_counted_without_waiting(compiled):
    (scores, label), _ = batch("label")
    bad = scores.clone()
    bad[5:8, 17] = NAN
    scores, bad, label = to_device((scores, bad, label))
    suite = tr.RankingCollection(NAMES).cuda()
    expected = tr.RankingCollection(NAMES)
    expected.update(scores.cpu(), label.cpu())
    tr.use_compiled(compiled)
    try:
        suite.update(scores, label)
        assert is_compiled() == compiled
        torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, expected.compute())
        with no_waiting():
            suite.update(bad, label)
    finally:
        tr.use_compiled(False)
    with pytest.raises(ValueError, match="3 queries with NaN"):
        suite.compute()


@on_gpu
def test_flat_rows_and_pairs():
    torch.manual_seed(0)
    indexes, scores = torch.randint(50, (2000,)), torch.randn(2000).round(decimals=1)
    target = torch.randint(-1, 3, (2000,))
    flat = tr.RankingCollection(NAMES)
    on_device = tr.RankingCollection(NAMES).cuda()
    flat.update(scores, target, indexes=indexes)
    on_device.update(scores.cuda(), target.cuda(), indexes=indexes.cuda())
    torch.testing.assert_close({k: v.cpu() for k, v in on_device.compute().items()}, flat.compute())
    scores = torch.randn(50, 100)
    pairs = (torch.rand(50, 100) < 0.05).nonzero(as_tuple=True)
    expected = tr.NDCG().score(scores, pairs)
    torch.testing.assert_close(tr.NDCG().score(scores.cuda(), to_device(pairs)).cpu(), expected)


@on_gpu
def test_state_moves_with_the_metric():
    metric = tr.MAP(aggregation="median").cuda()
    metric.update(torch.rand(5, 8).cuda(), torch.randint(2, (5, 8)).cuda())
    value = metric.compute()
    assert value.is_cuda
    assert metric.cpu().compute() == value.cpu()
    metric.reset()
    assert not metric.sums.is_cuda


# ---- the shapes alone decide -------------------------------------------------------------------------------------


@cache
def looks_or_copies(func):
    """Whether an operation may look at values, and whether it may copy them."""
    name = func._schema.name
    return name.split("::")[1].startswith(NoWaiting.LOOKS), "copy" in name


class NoWaiting(TorchDispatchMode):
    """Refuse operations that make the host wait for an accelerator, for which the meta device stands."""

    LOOKS = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "unique", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        looks, copies = looks_or_copies(func)
        if looks or copies:
            given = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            assert not (looks and any(x.is_meta for x in given)), func
            if copies and isinstance(result, torch.Tensor):
                moved = result.is_meta and not all(x.is_meta or x.dim() == 0 for x in given)
                assert not moved or (kwargs or {}).get("non_blocking"), func
        return result


def meta(x):
    if isinstance(x, torch.Tensor):
        return x.to("meta")
    return type(x)(map(meta, x)) if isinstance(x, list | tuple) else x


TRIED = [config for config in FEW if config.name in REPRESENTATIVES]


def all_candidates(of_ids=False, some=TRIED):
    metrics = [config.metric() for config in some]
    if of_ids:  # two lists of which a comparison takes as one ranking only
        metrics = [metric for metric in metrics if not isinstance(metric, ComparingMetric)]
    return tr.RankingCollection([*metrics, "mrr(aggregation=median)"]).to("meta")


ITEMS = {
    "label": torch.zeros(6).long(),
    "padded": torch.zeros(6, 3).long(),
    "list": [torch.arange(i) for i in range(6)],
}
GRID, GRADES, PAIRS = torch.zeros(6, 12), torch.zeros(6, 12).long(), pairs_of((6, 12), 9, seed=0)
CASES = {
    "dense": ((GRID, GRADES), {"mask": GRID > 0, "exclude": PAIRS, "weights": GRID[:, 0]}),
    "dense, tie_break": ((GRID, GRADES > 0), {"tie_break": GRID[0]}),
    "label": ((GRID, ITEMS["label"]), {"mask": GRID > 0, "exclude": PAIRS, "tie_break": GRID}),
    "list": ((GRID, ITEMS["list"]), {"exclude": PAIRS}),
    "padded ids": ((GRADES, ITEMS["padded"]), {"exclude": PAIRS, "mask": GRID > 0}),
    "ids, list": ((GRADES, ITEMS["list"]), {}),
    "dense, groups": ((GRID, GRADES), {"mask": GRID > 0, "exclude": PAIRS, "groups": GRADES, "tie_break": GRID}),
    "label, groups": ((GRID, ITEMS["label"]), {"mask": GRID > 0, "groups": GRADES[0]}),
    "list, groups": ((GRID, ITEMS["list"]), {"exclude": PAIRS, "groups": GRADES[0]}),
    "ids, groups": ((GRADES, ITEMS["padded"]), {"exclude": PAIRS, "groups": GRADES[0], "repeats": "first"}),
    "ids, repeats": ((GRADES, ITEMS["list"]), {"mask": GRID > 0, "repeats": "hold"}),
}


@pytest.mark.parametrize(
    ("case", "few"),
    [*((case, 16) for case in CASES), *((case, 0) for case in CASES if "list" in case or "ids" in case)],
)
def test_an_update_looks_at_no_value(assume, case, few):
    assume(compared=few)
    arguments, keywords = CASES[case]
    # The first layout meets all measures. The others meet those of every kind of need, of which each three differ in
    # their tie policy, that the layout does not see.
    some = IN_TURN if case == "dense" else TRIED[list(CASES).index(case) % 3 :: 3]
    suite = all_candidates(of_ids=not arguments[0].is_floating_point(), some=some)
    arguments, keywords = meta(arguments), {name: meta(value) for name, value in keywords.items()}
    with NoWaiting():
        suite.update(*arguments, **keywords)
    assert all(metric.sums.is_meta for metric in suite.values())


ITEM = torch.arange(12)
CATALOGUE = {
    **dict.fromkeys(("interactions", "lengths", "costs"), torch.ones(12)),
    **dict.fromkeys(("groups", "categories"), ITEM % 3),
    "long_tail": ITEM > 5,
    "num_items": 12,
    "num_users": 12,
}


LISTED = [cls for cls in ListMetric.registry.values() if "ids_of" not in cls.declared]  # identifiers are read


@pytest.mark.parametrize("cls", [*LISTED, tr.LorenzCurve], ids=lambda cls: cls.__name__)
def test_an_update_of_lists_looks_at_no_value(cls):
    about = {name: value for name, value in CATALOGUE.items() if name in inspect.signature(cls).parameters}
    metric = cls(2, **about).to("meta")
    lists, target = meta((ITEM.view(3, 4), ITEM[:6].view(3, 2)))
    with NoWaiting():
        metric.update(lists, target)
    assert metric.sums.is_meta


SUITE = ["ndcg@3", "mrr"]


@pytest.mark.parametrize("kind", ["sliced", "overlapping", "booted", "both", "kept", "compared", "ties"])
@pytest.mark.parametrize(
    ("target", "weighted"), [(GRADES > 0, True), (ITEMS["label"], False)], ids=["dense, weighted", "label"]
)
def test_an_update_of_statistics_looks_at_no_value(target, kind, weighted):
    queries = len(GRID)
    ids, slices = meta(torch.arange(queries)), meta(torch.arange(queries) % 3 - 1)
    names = ["new", "old"]
    booted = tr.Bootstrapped(SUITE, replicates=9)
    metric, more = {
        "sliced": (tr.Sliced(SUITE, names), {"slices": slices}),
        "overlapping": (tr.Sliced(SUITE, names), {"slices": meta(torch.ones(queries, 2) > 0)}),
        "booted": (booted, {"query_ids": ids}),
        "both": (tr.Sliced(booted, names), {"slices": slices, "query_ids": ids}),
        "kept": (tr.PerQuery(SUITE), {"query_ids": ids}),
        "compared": (tr.Compared(SUITE, names), {}),
        "ties": (tr.TieReport(SUITE), {}),
    }[kind]
    metric = metric.to("meta")
    scores, target = meta(GRID), meta(target)
    more = {**more, "weights": meta(torch.ones(queries))} if weighted else more
    with NoWaiting():
        metric.update(dict.fromkeys(names, scores) if kind == "compared" else scores, target, **more)


@pytest.mark.parametrize(
    ("overhead", "items", "more"),
    [
        *((2**10, items, {}) for items in ITEMS),
        *((2**10, "label", more) for more in ({"top_k": 5}, {"chunk_size": 170}, {"similarity": "cosine"})),
        *((-12, "list", more) for more in ({}, {"top_k": 5}, {"chunk_size": 170})),
    ],
    ids=str,
)
def test_ranking_embeddings_looks_at_no_value(assume, items, more, overhead):
    assume(rectangle_counted=overhead)
    suite = tr.RankingCollection(
        ["ndcg@5", "mrr@3", "map@5"] if "top_k" in more else ["ndcg", "mrr", "mr(filtered=True)"]
    ).to("meta")
    given, exclude = meta((torch.zeros(6, 4), torch.zeros(500, 4), ITEMS[items])), meta(PAIRS)
    with NoWaiting():
        ranking = tr.Ranking.from_embeddings(*given, exclude=exclude, **more)
        suite.update(ranking)
    assert ranking.first.is_meta


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((GRID, PAIRS), {}), ((GRID[0], GRADES[0]), {"indexes": GRADES[1]})],
    ids=["pairs", "flat"],
)
def test_pairs_and_flat_rows_have_their_shapes_in_their_values(arguments, keywords):
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        all_candidates().update(*meta(arguments), **{name: meta(value) for name, value in keywords.items()})


@on_gpu
@pytest.mark.parametrize("name", retrieval.__all__)
def test_rows_are_worth_the_same_on_both_devices(name):
    generator = torch.Generator().manual_seed(0)
    preds = torch.randn(5000, generator=generator).round(decimals=1)
    rows = preds, torch.randint(0, 2, (5000,), generator=generator), torch.randint(0, 300, (5000,), generator=generator)
    here, there = getattr(retrieval, name)(), getattr(retrieval, name)().cuda()
    for part in zip(*(x.split(1700) for x in rows)):
        here.update(*part)
        there.update(*(x.cuda() for x in part))
    values = here.compute(), there.compute()
    for one, other in zip(*(value if isinstance(value, tuple) else (value,) for value in values), strict=True):
        assert other.is_cuda
        torch.testing.assert_close(other.cpu(), one)


@on_gpu
@pytest.mark.parametrize("name", retrieval.__all__)
def test_compute_of_rows_waits_equally_often_for_any_number_of_queries(name):
    waits = []
    for queries in (50, 2000):
        generator = torch.Generator().manual_seed(1)
        indexes = torch.arange(queries).repeat_interleave(20)[torch.randperm(20 * queries, generator=generator)]
        metric = getattr(retrieval, name)().cuda()
        preds = torch.randn(len(indexes), generator=generator)
        metric.update(preds.cuda(), torch.randint(0, 2, preds.shape, generator=generator).cuda(), indexes.cuda())
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                metric.compute()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        waits.append(sum("synchroniz" in str(warning.message) for warning in found))
    assert waits[0] == waits[1] > 0
