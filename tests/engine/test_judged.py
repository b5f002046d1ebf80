"""Counts of scores, the best of them, and the kernel that is compiled: against plain comparisons."""

import math
import os
import shutil
import sys
from itertools import pairwise

import pytest
import torch

import torchrank as tr
from tests.support import memory_growth, workers
from tests.support.brute_force_ranks import DTYPES, FORCED, INF, NAN, assert_same, assert_stands, some_scores, standing
from tests.support.unread import leave_values_unread
from torchrank.engine import judged as counting
from torchrank.engine.judged import Counting, cheapest
from torchrank.hardware import devices

GROUPS = [(64, 8), (1, 1), (3, 2), (4, 1), (16, 3)]


@pytest.mark.parametrize(
    ("dtype", "group", "per_rank"),
    [*((dtype, *GROUPS[0]) for dtype in DTYPES), *((DTYPES[n % 4], *group) for n, group in enumerate(GROUPS[1:]))],
    ids=str,
)
def test_top_k_is_the_head_of_the_sorted_row(monkeypatch, assume, dtype, group, per_rank):
    assume(group=group)
    assume(groups_per_rank=per_rank)
    assume(block=60)
    grouped = []
    monkeypatch.setattr(counting, "_by_groups", lambda *x, real=counting._by_groups: grouped.append(x) or real(*x))
    edges = {group * per_rank * k + d for k in (1, 2) for d in (-1, 0, 1)}
    for width in sorted({1, 7, 50, *edges} - {0}):
        scores = some_scores(23, width, dtype, seed=width)
        scores[5::9, ::4] = NAN
        for k in {k for k in (0, 1, 2, 3, 7, width) if k <= width}:
            seen = len(grouped)
            values, columns = counting.top_k(scores, k)
            torch.testing.assert_close(values, scores.topk(k).values, rtol=0, atol=0, equal_nan=True)
            assert columns.dtype == torch.int64
            assert columns.shape == (23, k)
            torch.testing.assert_close(scores.gather(1, columns), values, rtol=0, atol=0, equal_nan=True)
            assert (columns.sort(dim=-1).values.diff() > 0).all()
            assert (len(grouped) > seen) == (k > 0 and width >= group * per_rank * k)
    assert grouped


CUDA = torch.device("cuda")


def test_torch_has_a_faster_kernel_for_the_numbers_of_best_scores_that_are_asked_on_cuda():
    # torch's own rule; sorted=True is the default. The smallest widths are its choice.
    kernel = pytest.importorskip("torch._native.ops.topk.cutedsl_impl", reason="from torch 2.13 on")._kernel_for
    for k in (1, 2, 11, 16, 17, 64, 65, 101, 257, 1001, 1024):
        assert k <= devices.asked(k, 100_000, CUDA) < max(65, 2 * k)
        assert kernel(devices.asked(k, 100_000, CUDA), 100_000) == "radix"
    assert kernel(11, 100_000) is kernel(101, 100_000) is None
    assert [devices.asked(k, 200, CUDA) for k in (0, 65, 129, 200)] == [64, 128, 200, 200]
    assert [devices.asked(k, 2000, CUDA) for k in (1025, 2000)] == [1025, 2000]
    assert [devices.asked(k, 2000, torch.device("cpu")) for k in (0, 11, 2000)] == [0, 11, 2000]


@pytest.mark.parametrize("width", [1, 40, 64, 90, 300])
def test_the_best_scores_are_the_same_for_the_numbers_that_are_asked_on_cuda(monkeypatch, assume, width):
    assume(groups_per_rank=INF)
    assume(heap_from=0)  # by torch
    monkeypatch.setattr(devices, "asked", lambda k, width, _, real=devices.asked: real(k, width, CUDA))
    scores = some_scores(23, width, torch.float32, seed=width)
    for k in {k for k in (0, 1, 10, 39, 63, 64, 89, 128, 300) if k <= width}:
        want = scores.sort(dim=-1, descending=True).values[:, :k]
        values, columns = counting.top_k(scores, k)
        assert torch.equal(values, want)
        assert torch.equal(scores.gather(1, columns), want)
        assert torch.equal(counting.best_scores(scores, k), want)
        assert values.shape == want.shape
        assert values.is_contiguous()  # so that no longer rows stay in memory
        if k:  # -inf is not retrieved, and has no tie
            last = want[:, -1:]
            assert (counting.Top.of(scores, k).last == (scores == last).sum(-1))[last[:, 0] > -INF].all()


@pytest.mark.parametrize("k", [-1, 4])
def test_top_k_refuses_a_k_that_there_is_not(k):
    with pytest.raises(ValueError, match=rf"0 \.\.\. 3.*got {k}"):
        counting.top_k(torch.rand(2, 3), k)


@pytest.mark.parametrize("dtype", DTYPES[::2], ids=str)
def test_the_best_of_parts_know_the_candidates_around_a_score(assume, dtype):
    assume(group=3)
    assume(groups_per_rank=1)
    assume(tile=30)
    cuts = [[0, 40], [0, 1, 40], [0, 0, 13, 13, 14, 40], [0, 20, 21, 22, 39, 40], [0, 3, 6, 9, 40]]
    for seed, cut in enumerate(cuts):
        scores = some_scores(30, 40, dtype, seed)
        scores[:, 3:30:4] = scores[:, 7, None]  # a tie that lies across all parts
        own = torch.cat([scores, torch.full_like(scores[:, :2], 0.37)], dim=-1)
        greater, equal = (compare(scores.unsqueeze(1), own.unsqueeze(2)).sum(-1) for compare in (torch.gt, torch.eq))
        for k in (1, 2, 3, 5, 12, 40, 45):
            parts = [counting.Top.of(scores[:, start:stop], k) for start, stop in pairwise(cut)]
            top = counting.Top.nothing(30, k, dtype, scores.device)
            for part in reversed(parts):
                top = top.merge(part)
            best = scores.sort(dim=-1, descending=True).values[:, :k]
            best = torch.nn.functional.pad(best, (0, k - best.shape[1]), value=-INF)
            torch.testing.assert_close(top.scores, best, rtol=0, atol=0)
            there = top.scores[:, -1] > -INF
            assert (top.last == (scores == top.scores[:, -1:]).sum(-1))[there].all()
            got_greater, got_equal = top.before_and_in_tie(own)
            inside, listed = own >= best[:, -1:], own > -INF
            assert (inside & listed).any()
            assert torch.equal(got_greater[inside & listed], greater[inside & listed])
            assert torch.equal(got_equal[inside & listed], equal[inside & listed])
            assert (got_greater[~inside] == k).all()
            assert (got_equal[~inside] == 0).all()


def test_the_best_of_as_many_scores_as_are_asked_for_are_all_of_them(monkeypatch):
    leave_values_unread(monkeypatch)
    top = counting.Top.of(torch.tensor([[1.0, 2.0, 2.0], [3.0, 1.0, 1.0]]), 3)
    assert top.scores.tolist() == [[2, 2, 1], [3, 1, 1]]
    assert top.last.tolist() == [1, 2]


def test_the_best_scores_of_rows_that_are_longer_than_a_chunk_are_found_one_row_at_a_time(assume):
    scores = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    assume(block=4)
    assert torch.equal(counting.best_scores(scores, 2), scores.sort(descending=True).values[:, :2])


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")
@pytest.mark.parametrize("grown_by", [memory_growth.memory_of_best_scores, memory_growth.memory_of_sparse_lists])
def test_scores_that_are_selected_or_of_which_few_are_relevant_are_not_copied(grown_by):
    with workers.CONTEXT.Pool(1) as pool:
        grown = pool.apply_async(grown_by).get(300)
    assert max(grown) < 80, "MB, as the scores have; a copy would come beside the 40 of a chunk"


def test_cheapest_looks_at_how_many_are_judged():
    tie_break = torch.zeros(1)
    for device in (torch.device("cpu"), torch.device("cuda")):
        for candidates in (5_000, 100_000, 10**7):
            for judged in (0, 1, 2):
                assert cheapest(judged, candidates, None, device, None) is Counting.COUNT
                assert cheapest(judged, candidates, 10, device, None) in (Counting.COUNT, Counting.TOP)
            assert cheapest(1, candidates, 10, device, None) is Counting.COUNT
            assert cheapest(500, candidates, 10, device, None) is Counting.TOP
            assert cheapest(500, candidates, None, device, None) is Counting.SORT
            assert cheapest(500, candidates, candidates, device, None) is Counting.SORT
            assert cheapest(500, candidates, 10, device, tie_break) is Counting.SORT


def test_tie_breaks_of_a_long_list_with_many_relevant_candidates_are_sorted():
    # To compare each of them with all others would take half a minute.
    g = torch.Generator().manual_seed(17)
    levels, breaks = torch.randint(100, (1, 100_000), generator=g), torch.randperm(100_000, generator=g)
    grade = torch.randint(4, levels.shape, generator=g) == 0
    metrics = tr.RankingCollection(["map", "ndcg", "mr"])
    want = metrics.score(levels.double() * 100_000 + breaks, grade)
    some = metrics.score(levels.float(), tuple(grade.nonzero().T), tie_break=breaks)
    for found in (metrics.score(levels.float(), grade, tie_break=breaks), some):
        for name, values in want.items():
            torch.testing.assert_close(found[name], values, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64], ids=str)
def test_grades_of_any_type_leave_unjudged_candidates_unjudged(dtype):
    judged = torch.tensor([0, 0]), torch.tensor([1, 2]), torch.tensor([0, 2], dtype=dtype)
    metric = tr.MRR(unjudged="lower")
    assert metric.score(torch.tensor([[0.9, 0.8, 0.7]]), judged).tolist() == pytest.approx([1 / 3])


@pytest.mark.parametrize("name", ["ndcg(unjudged=upper)", "map(unjudged=upper)@3", "rbp(unjudged=lower)", "judged@3"])
def test_padding_of_ids_is_no_unjudged_candidate(name):
    relevant = torch.tensor([[3, 9], [1, -1]])
    padded = tr.parse(name).score(torch.tensor([[5, 3, -1, -1], [7, -1, 2, 1]]), relevant)
    lists = zip(([5, 3], [7, 2, 1]), relevant)
    alone = [tr.parse(name).score(torch.tensor([ids]), ones[None]).item() for ids, ones in lists]
    assert padded.tolist() == alone


def test_a_cpu_beside_a_device_has_no_kernel(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    counting.why_no_kernel.cache_clear()
    assert counting.why_no_kernel(torch.device("cpu")) == "the scores are not on a CUDA device"
    counting.why_no_kernel.cache_clear()


@pytest.fixture
def compiled():
    yield tr.use_compiled
    tr.use_compiled(False)


@pytest.mark.xdist_group("gpu")  # whose process has what the compiler imports
@pytest.mark.skipif(not any(map(shutil.which, (os.environ.get("CXX", "g++"), "c++"))), reason="needs a C++ compiler")
def test_the_compiled_kernel_counts_alike(monkeypatch, compiled):
    # The kernel compiles for seconds, for each dtype anew.
    label = torch.randint(-1, 300, (60,), generator=torch.Generator().manual_seed(0))
    scores = some_scores(60, 300, torch.bfloat16, seed=8)
    batches = [(scores, label), (scores[:13], label[:13]), (scores.clone(), label)]  # of one memory layout
    batches[-1][0][::9, 5] = NAN
    want = [tr.Ranking.from_label(*batch) for batch in batches]
    assert_stands(want[0], standing(scores, [{x: 1} if x >= 0 else {} for x in label.tolist()]))
    assert want[-1].errors.sum() == 7
    calls = []
    monkeypatch.setattr(counting, "_compiled", lambda *args, real=counting._compiled: calls.append(args) or real(*args))
    compiled(True)
    for batch, ranking in zip(batches, want):
        assert_same(tr.Ranking.from_label(*batch), ranking)
    assert len(calls) == len(batches)
    queries, items = (torch.randint(-3, 4, (n, 8)).bfloat16() for n in (20, 900))
    chunked = tr.Ranking.from_embeddings(queries, items, label[:20], chunk_size=128)
    assert_same(chunked, tr.Ranking.from_label(queries @ items.T, label[:20]))
    assert len(calls) > len(batches) + 7
    assert counting._requested


def test_where_compiling_fails_the_eager_kernel_goes_on(monkeypatch, compiled):
    def fails(scores, own):
        raise RuntimeError("no compiler here")

    scores, label = some_scores(40, 50), torch.randint(-1, 50, (40,))
    want = tr.Ranking.from_label(scores, label)
    monkeypatch.setattr(counting, "_kernel", lambda: fails)
    compiled(True)
    with pytest.warns(UserWarning, match=r"torch\.compile failed.*no compiler here") as record:
        rankings = [tr.Ranking.from_label(scores, label) for _ in range(3)]
    assert len(record) == 1
    for ranking in rankings:
        assert_same(ranking, want)
    assert not counting._requested


@pytest.mark.xdist_group("gpu")  # whose process has what the compiler imports
def test_the_limit_of_compilations_is_named_and_the_next_request_goes_on(monkeypatch, compiled):
    kernel = torch.compile(counting._compare, dynamic=True, fullgraph=True, backend="eager")
    monkeypatch.setattr(counting, "_kernel", lambda: kernel)
    label = torch.arange(5)
    batches = [some_scores(5, 50, dtype) for dtype in (torch.float64, torch.float16, torch.bfloat16)]
    want = [tr.Ranking.from_label(scores, label) for scores in batches]
    torch._dynamo.reset()
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"  # torch 2.6
    with torch._dynamo.config.patch({limit: 2}):
        compiled(True)
        with pytest.warns(UserWarning, match=r"(?s)until use_compiled\(True\): .*_limit") as record:
            found = [tr.Ranking.from_label(scores, label) for scores in batches]
        assert len(record) == 1
        for one, ranking in zip(found, want):
            assert_same(one, ranking)
        assert not counting._requested
    compiled(True)
    for scores, ranking in zip(batches, want):
        assert_same(tr.Ranking.from_label(scores, label), ranking)
    assert counting._requested
    torch._dynamo.reset()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("own", [0, 1, 2])
def test_zero_is_tied_with_itself_where_denormal_numbers_are_zero(monkeypatch, fused, own):
    monkeypatch.setattr(counting, "_requested", fused)
    monkeypatch.setattr(counting, "_kernel", lambda: counting._compare)
    scores = torch.tensor([[0.0, 1e-40, -1e-40, -2e-38, 1.0]])
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor keeps denormal numbers")
    try:
        counts = counting.count_by_comparing(scores, scores[:, own : own + 1])
    finally:
        torch.set_flush_denormal(False)
    assert (counts.greater.item(), counts.equal.item()) == (1, 3)
    counts = counting.count_by_comparing(scores, scores[:, own : own + 1])
    assert (counts.greater.item(), counts.equal.item()) == ((2, 1, 3)[own], 1)


def test_candidates_that_are_not_retrieved_equal_nothing():
    scores = torch.tensor([[1.0, -math.inf, -math.inf, 1.0], [-2.0, -math.inf, -3.0, -2.0]])
    assert counting.count_equal(scores, torch.tensor([[-math.inf], [-math.inf]])).tolist() == [0, 0]
    assert counting.count_equal(scores, scores[:, :1]).tolist() == [2, 2]


@pytest.mark.parametrize("method", [Counting.COUNT, Counting.SORT], ids=str)
def test_nan_is_ahead_of_no_judged_item(assume, method):
    assume(**FORCED[method])
    scores = torch.tensor([[0.5, NAN, 0.7, 0.1, NAN]] * 3)
    assert tr.MR(validate_args=False).score(scores, torch.tensor([0, 2, 3])).tolist() == [2, 1, 3]


def test_nan_is_found_if_as_many_scores_are_numbers_as_there_are_queries():
    scores = torch.ones(3, 4)
    scores[:, 2] = math.nan
    counts = counting.count_by_comparing(scores, scores[:, :1])
    assert counts.retrieved.tolist() == [3, 3, 3]
    assert counts.has_nan.all()
