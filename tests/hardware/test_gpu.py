"""On an accelerator: the same numbers, no waiting for the device in ``update``, determinism on request."""

import warnings
from contextlib import contextmanager

import pytest
import torch

import torchrank as tr
from tests.support.brute_force_ranks import NAN
from torchrank import retrieval
from torchrank.engine import judged

pytestmark = [
    *(pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
    pytest.mark.xdist_group("gpu"),
]


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
    """Lists of fewer candidates than those for which some measures wait."""
    torch.manual_seed(0)
    scores = torch.randn(64, 60).round(decimals=1)
    exclude = torch.randint(64, (500,)), torch.randint(60, (500,))
    ids = torch.stack([torch.randperm(80)[:50] for _ in range(64)])
    relevant = torch.stack([torch.randperm(60)[:6] for _ in range(64)])
    relevant[::3, 3:] = -1
    groups = torch.randint(-1, 90, scores.shape)
    return {
        "dense": ((scores, torch.randint(-1, 4, scores.shape)), {"mask": scores < 1.5, "exclude": exclude}),
        "dense, subtopics": ((scores, torch.randint(-1, 3, (*scores.shape, 4))), {"mask": scores < 1.5}),
        "dense, tie_break": ((scores, torch.randint(-1, 4, scores.shape)), {"tie_break": torch.rand(60)}),
        "bf16": ((scores.bfloat16(), torch.randint(0, 2, scores.shape)), {"weights": torch.rand(64)}),
        "label": ((scores, torch.randint(-1, 60, (64,))), {"exclude": exclude, "mask": scores < 1.5}),
        "list": ((scores, list(relevant[1::3].repeat(4, 1)[:64])), {"exclude": exclude}),
        "ids": ((ids, relevant), {"exclude": exclude}),
        "dense, groups": ((scores, torch.randint(-1, 4, scores.shape)), {"exclude": exclude, "groups": groups}),
        "label, groups": ((scores, torch.randint(-1, 60, (64,))), {"mask": scores < 1.5, "groups": groups[0]}),
        "list, groups": ((scores, list(relevant[1::3].repeat(4, 1)[:64])), {"groups": groups[0]}),
        "ids, groups": ((ids, relevant), {"exclude": exclude, "groups": torch.randint(-1, 90, (80,))}),
        "ids, repeats": ((ids % 30, relevant[:, 0] % 30), {"repeats": "first"}),
    }[layout]


def to_device(x):
    if isinstance(x, torch.Tensor):
        return x.cuda()
    return type(x)(to_device(y) for y in x) if isinstance(x, list | tuple) else x


LAYOUTS = ["dense", "dense, subtopics", "dense, tie_break", "bf16", "label", "list", "ids"]
LAYOUTS += ["dense, groups", "label, groups", "list, groups", "ids, groups", "ids, repeats"]


@pytest.fixture(autouse=True)
def ranked_at_once(monkeypatch):
    """Batches are ranked in their own update, unless a test asks for the queue."""
    monkeypatch.setattr(tr.RankingCollection, "waits", False)
    monkeypatch.setattr(tr.RankingMetric, "waits", False)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("joined", [False, True])
def test_update_never_waits_for_the_device(layout, deterministic, joined):
    arguments, keywords = batch(layout)
    expected = tr.RankingCollection(NAMES)
    expected.update(*arguments, **keywords)
    suite = tr.RankingCollection(NAMES).cuda()
    arguments, keywords = to_device(arguments), {name: to_device(value) for name, value in keywords.items()}
    suite.update(*arguments, **keywords)  # the first call may load kernels
    suite.reset()
    suite.waits = joined
    for metric in suite.values():
        metric.waits = joined
    torch.use_deterministic_algorithms(deterministic)
    try:
        with no_waiting():
            for _ in range(2 if joined else 1):
                suite.update(*arguments, **keywords)
            suite._waiting.flush()
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, expected.compute())


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("decimals", [1, 6])
def test_ties_of_long_lists_have_the_values_of_a_cpu(decimals, deterministic):
    torch.manual_seed(0)
    scores, grades = torch.rand(64, 300).round(decimals=decimals), torch.randint(-1, 4, (64, 300))
    names = ["err", "err@5", "nerr", "nrbp", "alphandcg@5", "infap", "compatibility", "mrr", "map(unjudged=upper)@5"]
    expected, suite = tr.RankingCollection(names), tr.RankingCollection(names).cuda()
    expected.update(scores, grades)
    torch.use_deterministic_algorithms(deterministic)
    try:
        suite.update(scores.cuda(), grades.cuda())
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, expected.compute())


EMBEDDED = [{}, {"chunk_size": 700}, {"similarity": "cosine"}, {"top_k": 5}, {"chunk_size": 999, "top_k": 5}]


@pytest.mark.parametrize("more", EMBEDDED, ids=str)
@pytest.mark.parametrize("relevant", [1, 4, 60])
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


@pytest.mark.parametrize("precision", [None, "tf32", "tf32x3", "bf16"])
def test_infinite_scores_of_embeddings_rank_as_on_a_cpu_and_nan_is_an_error(precision):
    generator = torch.Generator().manual_seed(0)
    queries, items = (torch.randint(1, 4, (n, 16), generator=generator).float() for n in (64, 3000))
    items[::7], items[3::7] = -float("inf"), float("inf")
    label = torch.randint(3000, (64,), generator=generator)
    expected, suite = (tr.RankingCollection("mrr, mr, numret"), tr.RankingCollection("mrr, mr, numret").cuda())
    expected.update(queries @ items.T, label)
    suite.update(tr.Ranking.from_embeddings(*to_device((queries, items, label)), precision=precision))
    torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, expected.compute())
    items[5] = NAN
    suite.reset()
    suite.update(tr.Ranking.from_embeddings(*to_device((queries, items, label)), precision=precision))
    with pytest.raises(ValueError, match="NaN among the scores"):
        suite.compute()


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
        assert judged._requested == compiled
        torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, expected.compute())
        with no_waiting():
            suite.update(bad, label)
    finally:
        tr.use_compiled(False)
    with pytest.raises(ValueError, match="3 queries with NaN"):
        suite.compute()


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


# ---- as users have devices -------------------------------------------------------------------------------------------


def test_pinned_batches_are_copied_on_a_side_stream_while_the_last_one_is_ranked():
    (scores, label), _ = batch("label")
    expected, suite = tr.RankingCollection(NAMES), tr.RankingCollection(NAMES).cuda()
    side = torch.cuda.Stream()
    for _ in range(3):
        expected.update(scores, label)
        with torch.cuda.stream(side):
            copies = [x.pin_memory().cuda(non_blocking=True) for x in (scores, label)]
        torch.cuda.current_stream().wait_stream(side)
        suite.update(*copies)
        for x in copies:  # their memory is free for the side stream only after the update
            x.record_stream(torch.cuda.current_stream())
    torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, expected.compute())


def test_a_cuda_graph_of_an_update_adds_each_batch_that_is_copied_into_its_input():
    (scores, label), _ = batch("label")
    batches = [(scores.roll(n, 0), label.roll(2 * n)) for n in range(3)]
    expected, metric = tr.NDCG(top_k=5), tr.NDCG(top_k=5).cuda()
    inputs = [x.cuda() for x in (scores, label)]
    metric.update(*inputs)  # makes constants and loads kernels
    total = torch.zeros_like(metric.sums)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        metric.reset()
        metric.update(*inputs)
        total += metric.sums
    total.zero_()
    for one in batches:
        expected.update(*one)
        for static, x in zip(inputs, one):
            static.copy_(x)
        graph.replay()
    metric.reset()
    metric.merge_state({name: total.clone() for name in metric.metric_state})
    torch.testing.assert_close(metric.compute().cpu(), expected.compute())


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_one_worker_reduces_float64_sums_of_a_device(backend, tmp_path):
    (scores, label), _ = batch("label")
    names = [*NAMES, "mrr(aggregation=none)"]
    expected, suite = tr.RankingCollection(names), tr.RankingCollection(names).cuda()
    rows = retrieval.RetrievalMAP().cuda()
    expected.update(scores, label)
    values = expected.compute()  # on the CPU, where a group of NCCL reduces nothing
    suite.update(scores.cuda(), label.cuda())
    rows.update(scores[0].cuda(), (scores[1] > 0).long().cuda(), label.abs()[:1].expand(60).cuda())
    alone = rows.compute().clone()
    torch.distributed.init_process_group(backend, init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        rows._computed = None
        torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, values)
        torch.testing.assert_close(rows.compute(), alone)
    finally:
        torch.distributed.destroy_process_group()
