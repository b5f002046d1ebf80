"""On an accelerator: the same numbers, no waiting for the device in ``update``, determinism on request."""

import pytest
import torch

import torchrank as tr

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

NAMES = [
    *["mr", "mrr", "mrr@5", "hitrate@5", "precision@5", "precision", "recall@5", "f1@5", "fbeta(beta=2)@5"],
    *["map", "map(normalize=min)@5", "map(normalize=retrieved)@5", "cg@5", "dcg@5", "ndcg@5", "ndcg(gain=exponential)"],
    *["rprecision", "fallout@5", "auroc", "auroc@5", "mr(filtered=True)", "mrr(filtered=True,average=positive)"],
    *["mrr(ties=realistic)", "ndcg(ties=optimistic)@5", "map(ties=pessimistic)", "mrr(aggregation=median)"],
]


def batch(layout):
    torch.manual_seed(0)
    scores = torch.randn(64, 300).round(decimals=1)
    exclude = torch.randint(64, (500,)), torch.randint(300, (500,))
    ids = torch.stack([torch.randperm(400)[:50] for _ in range(64)])
    relevant = torch.stack([torch.randperm(300)[:6] for _ in range(64)])
    relevant[::3, 3:] = -1
    return {
        "dense": ((scores, torch.randint(-1, 4, scores.shape)), {"mask": scores < 1.5, "exclude": exclude}),
        "dense, tie_break": ((scores, torch.randint(-1, 4, scores.shape)), {"tie_break": torch.rand(300)}),
        "bf16": ((scores.bfloat16(), torch.randint(0, 2, scores.shape)), {"weights": torch.rand(64)}),
        "label": ((scores, torch.randint(-1, 300, (64,))), {"exclude": exclude, "mask": scores < 1.5}),
        "list": ((scores, list(relevant[1::3].repeat(4, 1)[:64])), {"exclude": exclude}),
        "ids": ((ids, relevant), {"exclude": exclude}),
    }[layout]


def to_device(x):
    if isinstance(x, torch.Tensor):
        return x.cuda()
    return type(x)(to_device(y) for y in x) if isinstance(x, list | tuple) else x


LAYOUTS = ["dense", "dense, tie_break", "bf16", "label", "list", "ids"]


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
    torch.cuda.set_sync_debug_mode("error")
    try:
        suite.update(*arguments, **keywords)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close({k: v.cpu() for k, v in suite.compute().items()}, expected.compute())


def test_embeddings_are_ranked_without_waiting():
    torch.manual_seed(0)
    queries, items = torch.randn(64, 16).round().cuda(), torch.randn(5000, 16).round().cuda()
    relevant = torch.randint(5000, (64,)).cuda()
    expected = tr.MRR().score((queries @ items.T).cpu(), relevant.cpu())
    torch.testing.assert_close(tr.MRR().score(tr.Ranking.from_embeddings(queries, items, relevant)).cpu(), expected)


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


def test_state_moves_with_the_metric():
    metric = tr.MAP(aggregation="median").cuda()
    metric.update(torch.rand(5, 8).cuda(), torch.randint(2, (5, 8)).cuda())
    value = metric.compute()
    assert value.is_cuda
    assert metric.cpu().compute() == value.cpu()
    metric.reset()
    assert not metric.sums.is_cuda
