"""Every way to find the places of candidates gives the places counted one query at a time, up to its reach."""

import contextlib
import functools
import itertools
import math
import os
import shutil
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import torchrank as tr
from tests.support import layout_cases, memory_growth, oracles, workers
from tests.support.brute_force_ranks import (
    DTYPES,
    FORCED,
    INF,
    NAN,
    assert_same,
    assert_stands,
    entries,
    joined,
    make_blocks_small,
    pairs_of,
    some_scores,
    standing,
)
from tests.support.cases import cases
from tests.support.oracle_comparison import FEW, REPRESENTATIVES, assert_equal_by_need, scored
from tests.support.unread import Elsewhere, NothingRead, leave_values_unread
from torchrank.engine import judged as counting
from torchrank.engine import rank, sorting, streams
from torchrank.engine.judged import Counting, cheapest
from torchrank.engine.lists import NumberedRows, PackedRows, rank_lists
from torchrank.engine.rank_layout import as_matrix, chunks, plan
from torchrank.hardware import costs, devices
from torchrank.hardware.devices import ascending
from torchrank.layouts.arrange import arrange, streamed
from torchrank.layouts.canonical import DenseLayout, Need
from torchrank.layouts.checks import Problem, no_errors

TRIED = [config for config in FEW if config.name in REPRESENTATIVES]
OWN = {name: cls for name, cls in tr.RankingMetric.registry.items() if cls.__module__.startswith("torchrank.")}


# ---- ways, forced ------------------------------------------------------------------------------------------------


WAYS = {
    "as it comes": {},
    "few, by counting": {"rare": 0, **FORCED[Counting.COUNT]},
    "few, among the best": {"rare": 0, **FORCED[Counting.TOP]},
    "few, by sorting": {"rare": 0, **FORCED[Counting.SORT]},
    "few, in groups": {"rare": 0, "padding": 0, "rectangle_counted": -10, "copied": 100},
    "all, sorted": {"rare": 10**9, "best_of": 10**9},
    "all, the best": {
        "rare": 10**9,
        "best_of": 0,
        "block": 1,
    },  # a query with a tie at the cut is no matter of the others
    "no value is read": {},
}


@pytest.fixture(params=WAYS)
def way(request, assume, monkeypatch):
    assume(**WAYS[request.param])
    if request.param == "no value is read":
        leave_values_unread(monkeypatch)
    return request.param


# ---- the best k --------------------------------------------------------------------------------------------------

GROUPS = [(64, 8), (1, 1), (3, 2), (4, 1), (16, 3)]


@pytest.mark.parametrize(
    ("dtype", "group", "per_rank"),
    [
        *((dtype, *GROUPS[0]) for dtype in DTYPES),
        *((DTYPES[number % 4], *group) for number, group in enumerate(GROUPS[1:])),
    ],
    ids=str,
)
def test_top_k_is_the_head_of_the_sorted_row(monkeypatch, assume, dtype, group, per_rank):
    assume(group=group)
    assume(groups_per_rank=per_rank)
    assume(block=60)
    grouped = []
    monkeypatch.setattr(
        counting, "_by_groups", lambda *args, real=counting._by_groups: grouped.append(args) or real(*args)
    )
    edges = {group * per_rank * k + d for k in (1, 2) for d in (-1, 0, 1)}
    for width in sorted({1, 7, 50, *edges} - {0}):
        scores = some_scores(23, width, dtype, seed=width)
        scores[5::9, ::4] = NAN
        for k in {k for k in (0, 1, 2, 3, 7, width) if k <= width}:
            seen = len(grouped)
            values, columns = counting.top_k(scores, k)
            torch.testing.assert_close(values, scores.topk(k).values, rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(
                values, scores.sort(dim=-1, descending=True).values[:, :k], rtol=0, atol=0, equal_nan=True
            )
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


def test_top_k_of_no_query():
    values, columns = counting.top_k(torch.rand(0, 5000), 3)
    assert values.shape == columns.shape == (0, 3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
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


# ---- engines: the same places ------------------------------------------------------------------------------------


def judged_lists(queries, candidates, seed):
    """Judged items with grades from -1 to 3, between none and half of all, as dicts and as triples."""
    g = torch.Generator().manual_seed(seed)
    grade = torch.randint(-1, 4, (queries, candidates), generator=g)
    share = torch.tensor([0.0, 0.05, 0.2, 0.5])[torch.randint(4, (queries, 1), generator=g)]
    query, item = (torch.rand(queries, candidates, generator=g) < share).nonzero(as_tuple=True)
    judged = [dict(zip(item[query == q].tolist(), grade[q, item[query == q]].tolist())) for q in range(queries)]
    shuffled = torch.randperm(len(query), generator=g)
    return judged, (query[shuffled], item[shuffled], grade[query, item][shuffled])


OPTIONS = ["plain", "mask", "exclude", "mask, exclude", "tie_break", "mask, exclude, tie_break"]


@functools.cache
def lists_of(dtype, options):
    """Scores, judged items, options and places."""
    scores = some_scores(16, 41, dtype, seed=3)
    judged, triples = judged_lists(16, 41, seed=4)
    all_options = {
        "mask": torch.rand(16, 41, generator=torch.Generator().manual_seed(5)) < 0.8,
        "exclude": pairs_of((16, 41), 270, seed=6),
        "tie_break": torch.arange(41) // 3,
    }
    given = {name: value for name, value in all_options.items() if name in options}
    return scores, triples, given, standing(scores, judged, **given)


@pytest.mark.parametrize(
    ("engine", "read", "options", "dtype"),
    [
        (engine, read, options, DTYPES[(turn + number) % 4])  # every pair of two of these
        for turn, (engine, read) in enumerate(itertools.product(Counting, (True, False)))
        for number, options in enumerate(OPTIONS)
    ],
    ids=str,
)
def test_every_engine_finds_the_same_places(assume, monkeypatch, read, engine, dtype, options):
    make_blocks_small(assume)
    if not read:
        leave_values_unread(monkeypatch)
    scores, triples, given, want = lists_of(dtype, options)
    assume(**FORCED[engine])
    for reach in (None, 1, 6, 100):
        rankings = list(rank(arrange(scores, triples, **given), Need(reach)))
        assert len(rankings) > 1
        assert_stands(tr.Ranking.join(rankings), want, reach)


@pytest.mark.parametrize(
    "need", [Need(), Need(3), Need(relevant=True), Need(1, relevant=True), Need(2, metrics=9)], ids=str
)
@pytest.mark.parametrize("layout", list(filter(layout_cases.is_read_never, layout_cases.LAYOUTS)))
def test_no_engine_reads_a_value_of_an_accelerator(assume, monkeypatch, layout, need):
    leave_values_unread(monkeypatch)
    _, batch = layout_cases.batch(layout, 20)
    for engine in Counting:
        assume(**FORCED[engine])
        with NothingRead():
            assert list(rank(arrange(*batch.args, **batch.kwargs), need))


@pytest.mark.parametrize("counting", Counting, ids=str)
def test_a_ranking_reaches_as_far_as_it_was_asked_to(assume, counting):
    assume(**FORCED[counting])
    scores, label = torch.rand(3, 50), torch.tensor([1, 2, 3])
    blocks = list(scores.split(20, dim=1))
    for reach in (None, 4):
        for layout in (arrange(scores, label), streamed(blocks, label, None, reach)):
            (ranking,) = rank(layout, Need(reach, relevant=True))
            assert ranking.reach == reach
        assert tr.Ranking.from_score_blocks(blocks, label, top_k=reach).reach == reach


def test_nan_is_counted_in_each_group_of_queries_with_similar_numbers_of_relevant_candidates(assume):
    assume(copied=1)
    scores, target = torch.rand(100, 2000), torch.zeros(100, 2000, dtype=torch.int8)
    for query, row in enumerate(target):
        row[: 200 if query % 8 == 7 else 2] = 1
    scores[5:9, 1500] = NAN
    assert "in groups" in plan(arrange(scores, target), Need(relevant=True))[0]
    metric = tr.MAP()
    metric.update(scores, target)
    with pytest.raises(ValueError, match="4 queries with NaN"):
        metric.compute()


@pytest.mark.parametrize(("bits", "fit"), [(30, True), (31, False)])
def test_rows_are_packed_if_the_query_and_the_grade_fit_in_31_bits(bits, fit):
    indexes = torch.tensor([0, 2**bits - 1, 5])
    layout = arrange(torch.tensor([0.5, 0.25, 1.0]), torch.tensor([1, 0, 1]), indexes=indexes)
    assert (PackedRows.of(layout, layout.scores, Need(relevant=True)) is not None) == fit


@pytest.mark.parametrize("options", ["plain", "mask", "exclude", "tie_break"])
def test_a_nan_score_beside_ties_is_counted_whatever_the_measure(options):
    scores = torch.arange(6.0).repeat(3, 1)
    scores[1, 1:3], scores[0, 0:4:3] = 100, NAN
    given = {
        "mask": torch.arange(6).expand(3, -1) < 5,
        "exclude": (torch.tensor([0, 1]), torch.tensor([5, 5])),
        "tie_break": torch.tensor([0, 1, 1, 2, 3, 4]),
    }
    given = {name: value for name, value in given.items() if name == options}
    for config in TRIED if options == "plain" else TRIED[len(options) % 3 :: 3]:
        for validate in (True, False):
            metric = config.metric(validate_args=validate)
            metric.update(scores, torch.tensor([[1, 2, 0, 1, 1, 0]]).expand(3, -1), **given)
            if validate:
                with pytest.raises(ValueError, match="1 query with NaN"):
                    metric.compute()


@pytest.mark.parametrize("grade", [0, -3])
def test_flat_rows_of_which_none_is_relevant_have_lists_and_no_entries(grade):
    scores, indexes = torch.tensor([0.3, -INF, 0.1, 0.2, 0.3]), torch.tensor([7, 7, 2, 2, 2])
    layout = arrange(scores, torch.full((5,), grade), indexes=indexes)
    assert PackedRows.of(layout, scores, Need(relevant=True)) is not None
    ranking = tr.Ranking.from_flat(scores, torch.full((5,), grade), indexes)
    assert ranking.num_candidates.tolist() == [3, 1]
    assert not ranking.valid.any()


def test_nan_scores_of_flat_rows_are_counted_once_per_query():
    metric = tr.NDCG()
    scores = torch.tensor([NAN, 0.5, NAN, 0.1, NAN, 0.3])
    metric.update(scores, torch.ones(6), indexes=torch.tensor([3, 3, 3, 8, 8, 5]))
    with pytest.raises(ValueError, match=r"(?<!-)2 queries with NaN"):
        metric.compute()


def test_flat_rows_without_a_tie_are_untied():
    scores, indexes = torch.tensor([0.3, 0.2, 0.1, 0.2]), torch.tensor([7, 7, 7, 2])
    assert tr.Ranking.from_flat(scores, torch.ones(4), indexes).untied
    assert not tr.Ranking.from_flat(scores.clamp_min(0.2), torch.ones(4), indexes).untied


def test_no_query_of_very_many_candidates_has_no_value():
    assert tr.MAP().score(torch.zeros(0, 600_000), torch.zeros(0, 600_000)).shape == (0,)


@functools.cache
def graded_lists_of(dtype, options):
    """Scores, grades, options and places."""
    torch.manual_seed(7)
    scores = some_scores(20, 33, dtype, seed=7)
    grade = torch.randint(-1, 4, (20, 33)) * (torch.rand(20, 33) < 0.3)
    judged = [dict(enumerate(row)) for row in grade.tolist()]
    all_options = {
        "mask": torch.rand(20, 33) < 0.8,
        "exclude": pairs_of((20, 33), 200, seed=6),
        "tie_break": torch.randint(3, (20, 33)),
    }
    given = {name: value for name, value in all_options.items() if name in options}
    return scores, grade, given, standing(scores, judged, **given)


@pytest.mark.parametrize(
    ("way", "options", "dtype"),
    [
        (way, options, DTYPES[(turn + number) % 4])  # every pair of two of these
        for turn, way in enumerate(WAYS)
        for number, options in enumerate(OPTIONS)
    ],
    indirect=["way"],
    ids=str,
)
def test_dense_lists_know_the_same_places(way, dtype, options):
    scores, grade, given, want = graded_lists_of(dtype, options)
    assert_stands(tr.Ranking.from_scores(scores, grade, **given), want)  # irrelevant candidates too
    for reach in (None, 1, 5, 40):
        parts = list(rank(arrange(scores, grade, **given), Need(reach, relevant=True)))
        end = 0
        for part in parts:
            start, end = end, end + part.num_queries
            assert_stands(part, want.rows(start, end), reach, relevant=True)
            if part.pool is not None:
                positive = [sorted(g for g in row if g > 0) for row in part.pool.tolist()]
                relevant = want.rows(start, end).only(want.rows(start, end).grade > 0)
                assert positive == [
                    relevant.grade[relevant.query == q].sort().values.tolist() for q in range(end - start)
                ]
        assert end == 20


@pytest.mark.parametrize(
    ("way", "layout"),
    [
        *((way, layout) for way in WAYS for layout in ("dense_masked", "catalogue_triples")),
        *((way, layout) for way in ("as it comes", "all, the best") for layout in ("dense_padded", "dense_excluded")),
        *((way, "catalogue_tie_break") for way in WAYS if way.startswith("few")),
    ],
    indirect=["way"],
)
def test_every_way_gives_the_values_of_the_oracle(assume, way, layout):
    queries, batch = layout_cases.batch(layout, 30)
    if way != "all, the best":
        assume(block=128)
    # An engine sees nothing of the tie policy, in which each three of these differ: another one for each layout.
    turn = list(WAYS).index(way) + list(layout_cases.LAYOUTS).index(layout)
    tried = [config for config in TRIED[turn % 3 :: 3] if layout_cases.suits(config, layout)]
    if way == "all, the best":  # without a cutoff all are sorted
        tried = [config for config in tried if config.metric().required.reach]
    assert_equal_by_need(tried, queries, batch, f"{layout}, {way}")


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


def test_a_cpu_beside_a_device_has_no_kernel(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    counting.why_no_kernel.cache_clear()
    assert counting.why_no_kernel(torch.device("cpu")) == "the scores are not on a CUDA device"
    counting.why_no_kernel.cache_clear()


def test_lists_whose_best_differ_are_not_sorted_whole(monkeypatch):
    monkeypatch.setattr("torchrank.engine.lists.descending", None)
    scores = torch.stack([torch.randperm(5000) for _ in range(4)]).float()
    layout = arrange(scores, torch.ones(4, 5000, dtype=torch.int8))
    (ranking,) = rank_lists(layout, 3)
    assert ranking.first.tolist() == [[1, 2, 3]] * 4


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


# ---- need: no metric looks further than it says ------------------------------------------------------------------


def measures(k):
    """Every measure cut at k, under every tie policy, and the parameters that change its need."""
    found = []
    for name, cls in OWN.items():
        for ties in cls.policies:
            found.append(layout_cases.config(name, ties=ties, **{"top_k": k} if cls.takes_top_k else {}))
            more = {
                "map": {"normalize": ("min", "retrieved")},
                "mrr": {"filtered": (True,)},
                "ndcg": {"log_base": (3,)},
            }
            more |= {"hitrate": {"filtered": (True,)}, "dcg": {"discount": ("reciprocal",)}, "recall": {}}
            for parameter, values in more.get(name, {}).items():
                found += [layout_cases.config(name, top_k=k, ties=ties, **{parameter: value}) for value in values]
        if "relevance_level" in cls.definition() and cls.takes_top_k:
            found.append(layout_cases.config(name, top_k=k, relevance_level=2))
        if "gain" in cls.definition() and cls.takes_top_k:
            gains = ("linear",) if name in ("err", "nerr") else ("exponential", oracles.squared)
            found += [layout_cases.config(name, top_k=k, gain=gain) for gain in gains]
    return found


@pytest.mark.parametrize(
    ("way", "layout"),
    [
        *((way, "dense") for way in WAYS),
        *(("as it comes", layout) for layout in ("dense, float grades", "list", "pairs", "triples", "flat")),
        *((way, "triples") for way in WAYS if way.startswith("few")),
    ],
    indirect=["way"],
)
def test_no_metric_looks_further_than_it_says(way, layout):
    seed = len(way + layout)
    scores = some_scores(25, 60, DTYPES[seed % 4], seed)
    g = torch.Generator().manual_seed(seed)
    grade = torch.randint(-1, 4, (25, 60), generator=g) * (torch.rand(25, 1, generator=g) > torch.rand(60, generator=g))
    if layout not in ("dense", "triples", "flat"):
        grade = grade.clamp(0, 1)
    if layout == "dense, float grades":
        grade = grade * torch.tensor([0.5, 1.0, 2.5, 20.0])[torch.randint(4, grade.shape, generator=g)]
    pairs = (grade > 0).nonzero(as_tuple=True)
    given = {
        "list": (scores, [(row > 0).nonzero().squeeze(-1) for row in grade]),
        "pairs": (scores, pairs),
        "triples": (scores, (*pairs, grade[pairs])),
    }.get(layout, (scores, grade))
    full = tr.Ranking.from_scores(scores, grade)
    assert full.reach is None
    more = {}
    if layout == "flat":
        order = torch.randperm(scores.numel(), generator=g)
        given = tuple(x.flatten()[order] for x in (scores, grade))
        more["indexes"] = torch.arange(25).repeat_interleave(60)[order]
    tried = measures(1 if layout == "triples" else 4)
    if (way, layout) != ("as it comes", "dense"):  # one metric of each measure
        of_measure = {config.name: [other for other in tried if other.name == config.name] for config in tried}
        tried = [several[seed % len(several)] for several in of_measure.values()]
    if way == "all, the best":  # without a cutoff all are sorted
        tried = [config for config in tried if config.metric().required.reach]
    if (way, layout) != ("as it comes", "dense"):
        tried = tried[seed % 2 :: 2]
    metrics = [layout_cases.scoring(config) for config in tried]
    if layout in ("list", "pairs", "triples"):  # these name nothing but relevant candidates
        metrics = [metric for metric in metrics if metric.required.relevant]
    got, want = scored(metrics, *given, **more), scored(metrics, full)
    assert got
    for label in got:
        torch.testing.assert_close(got[label], want[label], rtol=1e-9, atol=1e-12, equal_nan=True, msg=label)


FURTHER = ["ndcg@6", "mrr", "mr", "map", "rprecision", "auroc@3", "fallout@3", "mrr(filtered=True)@2", "recall@10"]


@cases("judged", [1, 200])
@cases("name", FURTHER)
def test_a_ranking_up_to_a_rank_is_refused_by_metrics_with_a_larger_reach(judged, name):
    g = torch.Generator().manual_seed(0)
    blocks = [torch.randn(4, 1000, generator=g) for _ in range(3)]
    relevant = [torch.randperm(3000, generator=g)[:judged] for _ in range(4)]
    ranking = tr.Ranking.from_score_blocks(blocks, relevant, top_k=5)
    near = tr.RankingCollection(["ndcg@5", "precision@1", "map(normalize=retrieved)@5", "mrr@3"])
    whole = near.score(torch.cat(blocks, dim=-1), relevant)
    torch.testing.assert_close(near.score(ranking), whole)
    metric = tr.parse(name)
    label = metric.label.replace("(", r"\(").replace(")", r"\)")
    for use in (metric.score, metric.update, tr.RankingCollection(["ndcg@5", metric]).update):
        with pytest.raises(ValueError, match=rf"{label} with .* exact, got one with top_k=5"):
            use(ranking)


# ---- flat rows ---------------------------------------------------------------------------------------------------


LIMIT = torch.iinfo(torch.int64)
INDEXES = {
    "few": (range(12), torch.int64),
    "int32": (range(-(2**31), 2**31, 2**29), torch.int32),
    "negative int32": (range(-(2**31), -1, 2**28), torch.int32),
    "int16": (range(-30_000, 30_001, 6_000), torch.int16),
    "int8": (range(-100, 101, 20), torch.int8),
    "uint8": (range(5, 256, 25), torch.uint8),
    "uint16": (range(5, 65_000, 6_000), torch.uint16),
    "uint32": (range(5, 2**32, 2**28), torch.uint32),
    "huge": (
        (LIMIT.min, LIMIT.min + 1, -(2**40), -1, 0, 1, 2**31, 2**32, 2**40, LIMIT.max - 1, LIMIT.max),
        torch.int64,
    ),
    "close and huge": (range(LIMIT.max - 8, LIMIT.max + 1), torch.int64),
    "sparse": ((-5, 0, 3, 4, 2**31 - 6), torch.int64),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", INDEXES)
def test_flat_rows_of_any_index_stand_as_in_their_lists(assume, name, dtype):
    names, index_dtype = INDEXES[name]
    numbers = torch.tensor(list(names), dtype=torch.int64)
    scores = some_scores(len(numbers), 29, dtype, seed=9)
    grade = torch.randint(-1, 3, scores.shape, generator=torch.Generator().manual_seed(9))
    there = torch.rand(scores.shape, generator=torch.Generator().manual_seed(10)) < 0.6
    there[:, 0] = True
    query, item = there.nonzero(as_tuple=True)
    order = torch.randperm(len(query), generator=torch.Generator().manual_seed(11))
    query, item = query[order], item[order]
    rows = scores[query, item], grade[query, item], numbers[query].to(index_dtype)
    judged = [dict(enumerate(row)) for row in grade.tolist()]
    tie_break = torch.arange(29) // 4
    for small in (False, True):
        if small:
            make_blocks_small(assume)
        assert_stands(tr.Ranking.from_flat(*rows, judged=True), standing(scores, judged, there))
        assert_stands(
            tr.Ranking.from_flat(*rows, tie_break=tie_break[item], judged=True),
            standing(scores, judged, there, tie_break=tie_break),
        )


@pytest.mark.parametrize("scale", [1, 2**40], ids=["small grades", "grades beyond 31 bits"])
@pytest.mark.parametrize("lie", ["in lists", "almost in lists", "in no order"])
def test_rows_of_whole_grades_stand_as_counted_query_by_query(monkeypatch, assume, lie, scale):
    g = torch.Generator().manual_seed(12)
    scores = some_scores(6, 8, torch.float32, seed=12).flatten()
    grade, mask = torch.randint(-1, 3, (48,), generator=g) * scale, torch.rand(48, generator=g) < 0.8
    indexes = torch.arange(48) // 8 * 2 - 3
    if lie == "almost in lists":  # a row inside of a list belongs to a query between two lists
        indexes[20] += 1
    if lie == "in no order":
        indexes = indexes[torch.randperm(48, generator=g)]
    lists = [indexes == index for index in indexes.unique()]
    # Rows that fit in integers are never numbered.
    monkeypatch.setattr("torchrank.engine.lists.NumberedRows", None if scale == 1 else NumberedRows)
    for small, where in itertools.product((False, True), (None, mask)):
        if small:
            make_blocks_small(assume)
        want = joined(
            [
                standing(
                    scores[rows][None],
                    [dict(enumerate(grade[rows].tolist()))],
                    None if where is None else where[rows][None],
                )
                for rows in lists
            ]
        )
        assert_stands(tr.Ranking.from_flat(scores, grade, indexes, mask=where), want, relevant=True)
        assert_stands(tr.Ranking.from_flat(scores, grade, indexes, mask=where, judged=True), want)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [3, 0, 4, 1, 5, 2]], ids=["in lists", "in no order"])
def test_flat_rows_have_the_same_entries_however_they_lie(order):
    scores, target = torch.tensor([0.3, 0.2, 0.1, 0.9, 0.5, 0.5])[order], torch.tensor([1, 0, 0, 0, 2, 0])[order]
    indexes = torch.tensor([4, 4, 4, 7, 7, 7])[order]
    ranking = tr.Ranking.from_flat(scores, target, indexes, judged=True)
    assert ranking.first.tolist() == [[1, 2, 3], [1, 2, 2]]
    assert ranking.tied.tolist() == [[1, 1, 1], [1, 2, 2]]
    assert tr.KendallTau().score(ranking).tolist() == tr.KendallTau().score(scores, target, indexes=indexes).tolist()
    ranking = tr.Ranking.from_flat(scores, target, indexes)
    assert ranking.first.tolist() == [[1], [2]]
    assert ranking.tied.tolist() == [[1], [2]]
    tie_break = torch.tensor([1, 2, 3, 4, 5, 6])[order].to(torch.uint16)  # torch 2.6 cannot index it
    ranking = tr.Ranking.from_flat(scores, target, indexes, tie_break=tie_break)
    assert ranking.first.tolist() == [[1], [3]]
    wanted = tr.NDCG().score(torch.stack([scores, scores]), torch.stack([target, target]))
    assert torch.equal(tr.NDCG().score(scores.repeat(2), target.repeat(2), indexes=torch.arange(12) // 6), wanted)


@pytest.mark.parametrize("name", ["ndcg(unjudged=upper)", "map(unjudged=upper)@3", "rbp(unjudged=lower)", "judged@3"])
def test_padding_of_ids_is_no_unjudged_candidate(name):
    relevant = torch.tensor([[3, 9], [1, -1]])
    padded = tr.parse(name).score(torch.tensor([[5, 3, -1, -1], [7, -1, 2, 1]]), relevant)
    lists = zip(([5, 3], [7, 2, 1]), relevant)
    alone = [tr.parse(name).score(torch.tensor([ids]), ones[None]).item() for ids, ones in lists]
    assert padded.tolist() == alone


def test_the_smallest_number_is_a_score_of_a_retrieved_candidate():
    scores = torch.tensor([0.5, -INF, torch.finfo(torch.float32).min, 0.1])
    ranking = tr.Ranking.from_flat(scores, torch.ones(4, dtype=torch.int64), torch.tensor([7, 7, 7, 2]))
    assert ranking.num_candidates.tolist() == [1, 2]


def test_candidates_not_retrieved_are_no_tie():
    scores, indexes = torch.tensor([0.3, -INF, -INF, 0.1]), torch.tensor([7, 7, 7, 2])
    ranking = tr.Ranking.from_flat(scores, torch.ones(4), indexes)
    assert ranking.untied
    assert ranking.tied.tolist() == [[1, 0, 0], [1, 0, 0]]


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")
def test_scores_of_which_few_are_relevant_are_not_copied():
    with workers.CONTEXT.Pool(1) as pool:
        grown = pool.apply_async(memory_growth.memory_of_sparse_lists).get(300)
    assert max(grown) < 55, "of the 80 MB of scores, in rows and transposed"  # 34 were seen


@pytest.mark.xdist_group("processes")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak of memory from /proc")
def test_scores_of_which_the_best_are_selected_are_not_copied():
    with workers.CONTEXT.Pool(1) as pool:
        grown = pool.apply_async(memory_growth.memory_of_best_scores).get(300)
    assert max(grown) < 64, "of 160 MB of float32 scores, and of 80 MB of float16"


def test_queries_of_very_different_sizes_come_in_ascending_order_of_index():
    g = torch.Generator().manual_seed(0)
    sizes = torch.ones(501, dtype=torch.int64)
    sizes[317] = 2000
    query = torch.arange(501).repeat_interleave(sizes)
    scores = torch.cat([torch.randn(len(query), generator=g), torch.randn(5010, generator=g)]).round(decimals=1)
    target = (torch.arange(len(scores)) < len(query)).long()
    query = torch.cat([query, torch.arange(501).repeat_interleave(10)])
    order = torch.randperm(len(query), generator=g)
    scores, target, query = scores[order], target[order], query[order]
    names = torch.randperm(10**6, generator=g)[:501].sort().values - 5 * 10**5
    for indexes in (names[query], names[query] * 2**41):
        blocks = list(rank(arrange(scores, target, indexes=indexes), Need(relevant=True)))
        assert sum(block.first.numel() for block in blocks) < 2 * (2000 + 500)
        ranking = tr.Ranking.from_flat(scores, target, indexes)
        for number, got in enumerate(entries(ranking)):
            mine = query == number
            assert_row(got, scores[mine], target[mine])
        weights = torch.rand(501, generator=g)
        metric, ranks = tr.MR(), tr.MR().score(ranking)
        metric.update(scores, target, indexes=indexes, weights=weights)
        torch.testing.assert_close(metric.compute().double(), (ranks * weights).sum() / weights.double().sum())


def assert_row(got, scores, target):
    own = scores[target > 0].unsqueeze(-1)
    places = zip(((scores > own).sum(-1) + 1).tolist(), (scores == own).sum(-1).tolist())
    assert Counter((first, tied) for first, tied, _ in got) == Counter(places)


# ---- compiled ----------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled():
    yield tr.use_compiled
    tr.use_compiled(False)


@pytest.mark.skipif(not any(map(shutil.which, (os.environ.get("CXX", "g++"), "c++"))), reason="needs a C++ compiler")
def test_the_compiled_kernel_counts_alike(monkeypatch, compiled):
    # The kernel compiles for seconds, for bfloat16 and for float32.
    label = torch.randint(-1, 300, (60,), generator=torch.Generator().manual_seed(0))
    half, full = (some_scores(60, 300, dtype, seed=8) for dtype in (torch.bfloat16, torch.float32))
    batches = [(full, label), (full[:13, :100], label[:13] % 100), (full[:0], label[:0]), (half, label)]
    for scores in (full.clone(), half.clone()):
        scores[::9, 5] = NAN
        batches.append((scores, label))
    want = [tr.Ranking.from_label(*batch) for batch in batches]
    assert_stands(want[0], standing(batches[0][0], [{x: 1} if x >= 0 else {} for x in label.tolist()]))
    assert want[-1].errors.sum() == want[-2].errors.sum() == 7
    calls = []
    monkeypatch.setattr(counting, "_compiled", lambda *args, real=counting._compiled: calls.append(args) or real(*args))
    compiled(True)
    for batch, ranking in zip(batches, want):
        assert_same(tr.Ranking.from_label(*batch), ranking)
    assert len(calls) == len(batches)
    queries, items = (torch.randint(-3, 4, (n, 8)).float() for n in (20, 900))
    chunked = tr.Ranking.from_embeddings(queries, items, label[:20], chunk_size=128)
    assert_same(chunked, tr.Ranking.from_label(queries @ items.T, label[:20]))
    assert len(calls) > len(batches) + 7
    assert counting._requested


def test_on_a_device_the_kernel_itself_searches_for_nan(monkeypatch, compiled):
    scores, label = some_scores(40, 50), torch.randint(-1, 50, (40,))
    scores[3, 7], scores[5, :9], scores[6] = NAN, -math.inf, NAN
    want = tr.Ranking.from_label(scores, label)
    monkeypatch.setattr(counting, "_kernel", lambda: counting._compare)
    monkeypatch.setattr(counting, "find_nan", None)
    compiled(True)
    found = tr.Ranking.from_label(scores.as_subclass(Elsewhere), label)
    assert found.errors.sum() == 2
    assert want.depth <= found.depth == 50  # a device does not tell which rank is the largest
    assert_same(replace(found, depth=want.depth), want)


def test_where_compiling_fails_the_eager_kernel_goes_on(monkeypatch, compiled):
    def fails(scores, own, find_nan):
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


@pytest.mark.parametrize(
    ("shape", "relevant", "how"),
    [
        ((1000, 40), [1], "sort each list"),  # short lists
        ((100, 2000), [20], "rank the judged items of each list"),
        ((100, 2000), [10, 30], "rank the judged items of each list"),
        (
            (100, 2000),
            [2, 2, 2, 2, 2, 2, 2, 200],
            "rank the judged items, in groups of queries with similar numbers of them",
        ),
        ((100, 2000), [200], "sort each list"),
    ],
)
def test_relevant_candidates_are_ranked_alone_if_they_are_few_in_long_lists(assume, shape, relevant, how):
    assume(long=costs.Costs().long, rare=costs.Costs().rare)
    target = torch.zeros(shape, dtype=torch.int8)
    for query, row in enumerate(target):
        row[: relevant[query % len(relevant)]] = 1
    said = plan(arrange(torch.rand(shape), target), Need(10, relevant=True))[0]
    assert said == (how if how.startswith("sort") else f"the relevant candidates are judged items; {how}")


@pytest.mark.parametrize(("width", "metrics", "matrix"), [(40, 1, True), (40, 2, False), (2000, 1, False)])
def test_flat_rows_are_a_matrix_for_one_metric_of_short_lists(width, metrics, matrix):
    target, indexes = torch.ones(100 * width, dtype=torch.int8), torch.arange(100).repeat_interleave(width)
    layout = arrange(torch.rand(100 * width), target, indexes=indexes)
    how = plan(layout, Need(relevant=True, metrics=metrics))[0]
    assert how == ("flat rows are a matrix; sort each list" if matrix else "sort all rows together")


def test_flat_rows_are_a_matrix_if_they_are_lists_of_one_length_in_ascending_order():
    for count in range(1, 5):
        for lengths in itertools.product(range(1, 4), repeat=count):
            queries = [query for query, length in enumerate(lengths) for _ in range(length)]
            rows = torch.rand(len(queries)), torch.ones(len(queries))
            matrix = as_matrix(arrange(*rows, indexes=torch.tensor(queries)), 3)
            assert (None if matrix is None else matrix.scores.shape[1]) == (
                lengths[0] if len({*lengths}) == 1 else None
            )
            if count > 1:
                assert as_matrix(arrange(*rows, indexes=torch.tensor(queries).flip(0)), 3) is None
    assert as_matrix(arrange(*rows, indexes=torch.tensor(queries)), 2) is None


def test_a_row_of_another_query_within_lists_of_equal_length_is_found():
    generator = torch.Generator().manual_seed(7)
    indexes = torch.arange(2000).repeat_interleave(3)
    indexes[5002] = 3000  # the middle row of a list, far behind the rows that are looked at first
    scores, target = torch.rand(6000, generator=generator), torch.randint(2, (6000,), generator=generator)
    order = torch.randperm(6000, generator=generator)
    got = tr.MRR().score(scores, target, indexes=indexes)
    want = tr.MRR().score(scores[order], target[order], indexes=indexes[order])
    assert len(got) == 2001
    torch.testing.assert_close(got, want)


def matrices():
    """Rows of every dtype, with ties, extremes and values that are equal in 32 bits."""
    generator = torch.Generator().manual_seed(0)
    small = torch.randint(-3, 4, (50, 70), generator=generator)
    for dtype in sorted(sorting.PACKED, key=str):  # every worker must have them in one order
        yield small.to(dtype)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.randn((40, 90), generator=generator).to(dtype)
        x[::2, ::7], x[1::3, 3], x[::5, 8], x[2, :] = math.inf, -math.inf, -0.0, 0.0
        yield x
        x = x.clone()
        x[::3, 5], x[4, ::2] = math.nan, -torch.tensor(math.nan)
        yield x
    yield 1 + torch.randint(0, 5, (30, 40), generator=generator).double() * 1e-15
    yield torch.tensor([[1e300, 2e300, -1e300, 1e-300, 0, -1e-300, 1e300]], dtype=torch.float64)
    yield torch.tensor([[2**62, -(2**62), 2**62 + 1, 2**62], [3, 3, 3, 3]])
    yield torch.tensor([[2**31 - 1, -(2**31), 0, 2**31 - 1]])
    yield torch.tensor([[2**31, 0, 5, 2**31]])
    yield torch.tensor([[-(2**31) - 1, 0, 5, -(2**31)]])
    yield torch.tensor([[2**31 - 1, -(2**31), 0, 2**31 - 1]], dtype=torch.int32)
    for dtype, least in ((torch.float32, 1e-40), (torch.float64, 5e-324)):
        x = torch.stack([torch.randperm(90, generator=generator) - 45.5 for _ in range(40)]).to(dtype)
        x[30, :4] = torch.tensor([0.0, least, -least, torch.finfo(dtype).max / 100], dtype=dtype)
        x[31, 7], x[33, 10:50:2], x[35, 3], x[35, 70] = -0.0, 3.5, 0.0, -0.0
        yield from (x, x.T.contiguous().T, x[:, ::3])
    close = torch.rand((40, 90), generator=generator, dtype=torch.float64)
    close[35] = 1 + torch.randperm(90, generator=generator) * 2.0**-52
    yield close
    yield from (torch.zeros(3, 0), torch.zeros(0, 3), torch.zeros(3, 1))


def test_one_query_of_many_has_a_tie_at_the_cutoff(assume):
    assume(tied=10**9)
    scores = torch.rand(100, 2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores[90] = scores[90].mul(5).floor()
    grade = (torch.arange(200_000).view(100, 2000) % 2).long()  # with fewer relevant, other engines are cheaper
    ranking = tr.Ranking.join(rank(arrange(scores, grade), Need(3, relevant=True)))
    found = ranking.first[90][ranking.valid[90] & (ranking.grade[90] > 0)]
    assert (found == 1).sum() == (scores[90][grade[90] > 0] == 4).sum() > 10
    assert ranking.tied[90].max() == (scores[90] == 4).sum()


def test_columns_of_zeros_are_kept_where_denormal_numbers_are_zero():
    x = torch.randn((64, 90), generator=torch.Generator().manual_seed(6))
    x[60:, 3] = 0
    if not torch.set_flush_denormal(True):
        pytest.skip("the processor keeps denormal numbers")
    try:
        order = sorting.descending(x).order
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(order, x.argsort(dim=-1, descending=True))


@cases("x", list(matrices()), ids=lambda x: f"{x.dtype}{list(x.shape)}")
def test_rows_are_sorted_as_torch_sorts_them(x):
    values, order, begins = sorting.descending(x)
    want, expected = x.sort(dim=-1, descending=True, stable=True)
    torch.testing.assert_close(values, want, rtol=0, atol=0, equal_nan=True)
    assert order.dtype == torch.int64
    assert torch.equal(order, expected)
    # Whether a run begins is written down element by element, as NaN is unequal to itself.
    rows = values.tolist()
    runs = [[not column or row[column] != row[column - 1] for column in range(len(row))] for row in rows]
    assert begins.tolist() == runs
    if not x.is_floating_point():
        assert torch.equal(ascending(x.long()), x.long().sort(dim=-1).values)


@pytest.mark.parametrize("columns", [9, 40_000])
def test_a_row_is_sorted_by_keys_as_large_as_it_is_wide(columns):
    key = torch.arange(columns).flip(0)
    assert torch.equal(sorting.by_key(key.unsqueeze(0)), key.unsqueeze(0))
    halves = key.unsqueeze(0) // 2
    assert torch.equal(
        sorting.by_key(halves)[0], torch.tensor(sorted(range(columns), key=halves[0].tolist().__getitem__))
    )


def test_the_last_columns_of_a_wide_row_are_searched_for_bad_scores(assume):
    assume(tile=30)
    scores = torch.rand(3, 100, generator=torch.Generator().manual_seed(3))
    scores[1, -1], scores[2, -1] = -INF, NAN
    ranking = tr.Ranking.from_label(scores, torch.tensor([3, 4, 5]))
    assert ranking.num_candidates[:2].tolist() == [100, 99]
    assert ranking.errors[Problem.NAN_SCORES] == 1


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((12, 10), [12]),
        ((13, 10), [7, 6]),
        ((25, 10), [9, 9, 7]),
        ((3, 80), [1, 1, 1]),
        ((2, 500), [1, 1]),
        ((0, 10), [0]),
        ((4, 0), [4]),
    ],
)
def test_chunks_are_alike_and_at_most_a_quarter_larger_than_the_room(assume, shape, sizes):
    assume(block=100)
    layout = DenseLayout(no_errors(torch.device("cpu")), True, torch.zeros(shape), torch.zeros(shape), None)
    cuts = chunks(layout, Need(reach=1))
    assert ([stop - start for start, stop in cuts] or [shape[0]]) == sizes


def test_bad_values_of_a_batch_are_counted_once_whatever_its_chunks(assume):
    assume(block=10)
    layout = arrange(torch.rand(40, 20), torch.full((40,), 20))
    assert len(chunks(layout, Need(reach=1))) > 2
    assert layout.errors.sum() > 0
    assert torch.equal(sum(ranking.errors for ranking in rank(layout, Need(reach=1))), layout.errors)


@pytest.mark.parametrize(
    ("relevant", "alike", "unlike"), [(2, [12, 12], [10, 14]), (10, [8, 8, 8], [6, 6, 6, 6])], ids=str
)
def test_chunks_of_ids_have_room_to_compare_few_relevant_ids_and_to_look_up_many(assume, relevant, alike, unlike):
    assume(block=400, compared=4)
    ids, target = torch.arange(20).expand(24, -1), torch.arange(relevant).expand(24, -1)
    for judged, sizes in ((target, alike), ([target[0], *target[1:, 1:]], unlike)):
        cuts = chunks(arrange(ids, judged), Need(reach=1))
        assert [stop - start for start, stop in cuts] == sizes


def test_chunks_of_an_accelerator_are_a_multiple_of_those_of_a_cpu(assume, monkeypatch):
    layout = DenseLayout(no_errors(torch.device("cpu")), True, torch.zeros(25, 80), torch.zeros(25, 80), None)
    assume(block=400)
    wanted = chunks(layout, Need(reach=1))
    assume(block=100, device_chunk=4)
    assert len(chunks(layout, Need(reach=1))) == 25
    leave_values_unread(monkeypatch)
    assert chunks(layout, Need(reach=1)) == wanted == tuple((start, start + 5) for start in range(0, 25, 5))


@pytest.mark.parametrize("spread", [False, True], ids=["", "spread over a group"])
def test_scores_that_differ_from_their_prediction_are_counted_again(monkeypatch, tmp_path, spread):
    monkeypatch.setattr(streams, "_guess", lambda layout, row, item: torch.full_like(item, 0.25, dtype=torch.float32))
    g = torch.Generator().manual_seed(0)
    queries, items = (torch.randint(-3, 4, (number, 4), generator=g).float() for number in (20, 50))
    scores, label = queries @ items.T, torch.randint(50, (20,), generator=g)
    with workers.group_of_one(tmp_path) if spread else contextlib.nullcontext():
        ranking = tr.Ranking.from_embeddings(queries, items, label, chunk_size=16, group=None if spread else False)
    own = scores.gather(1, label[:, None])
    assert ranking.first.tolist() == [
        [1 + sum(one > mine for one in row)] for row, [mine] in zip(scores.tolist(), own.tolist())
    ]
    assert ranking.tied.tolist() == [[row.count(mine)] for row, [mine] in zip(scores.tolist(), own.tolist())]


def test_the_best_scores_of_rows_that_are_longer_than_a_chunk_are_found_one_row_at_a_time(assume):
    scores = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    assume(block=4)
    assert torch.equal(counting.best_scores(scores, 2), scores.sort(descending=True).values[:, :2])


def test_flat_rows_are_joined_if_some_have_queries_in_another_order():
    g = torch.Generator().manual_seed(0)
    # The first sizes are alike. The others are ranked in groups, the longest list last.
    sizes = torch.tensor([2] * 2000 + [3, 3000, 1, 999])
    indexes = torch.arange(len(sizes)).repeat_interleave(sizes)
    scores, target = torch.randn(len(indexes), generator=g), torch.ones(len(indexes))
    got = tr.MR().score(tr.Ranking.from_flat(scores, target, indexes))
    assert got.tolist() == [(1 + size) / 2 for size in sizes.tolist()]
    assert got.tolist() == tr.MR().score(scores, target, indexes=indexes).tolist()


@cases("mask", [None, torch.tensor([True, True, True, False])])
@cases("name", REPRESENTATIVES)
def test_a_query_of_label_minus_100_has_no_candidates_for_any_kind_of_measure(name, mask):
    scores = torch.tensor([[0.9, 0.5, 0.1, 0.1], [math.nan, 0.3, math.nan, 0.2], [0.1, 0.2, 0.3, 0.3]])
    alone = tr.parse(name).score(scores[::2], torch.tensor([1, 0]), mask=mask)
    found = tr.parse(name).score(scores, torch.tensor([1, -100, 0]), mask=mask)
    torch.testing.assert_close(found[::2], alone, equal_nan=True, rtol=0, atol=0)
    assert found[1].isnan()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["mrr", "ndcg", "ndcg@2"])
def test_queries_are_numbered_by_integers_of_any_size_and_sign(name, dtype):
    generator = torch.Generator().manual_seed(0)
    limits = torch.iinfo(dtype)
    numbers = torch.tensor([limits.min, limits.min + 1, -1, 0, 1, limits.max - 1, limits.max], dtype=dtype)
    place = torch.randint(len(numbers), (60,), generator=generator)
    scores, grades = torch.rand(60, generator=generator), torch.randint(0, 3, (60,), generator=generator)
    metric = tr.parse(name)
    found = metric.score(scores, grades, indexes=numbers[place])
    alone = [metric.score(scores[place == n][None], grades[place == n][None]).item() for n in range(len(numbers))]
    assert found.tolist() == pytest.approx(alone)


LOWER = ["mrr(unjudged=lower)", "precision(unjudged=lower)@2", "rbp(unjudged=lower)"]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64], ids=str)
def test_grades_of_any_type_leave_unjudged_candidates_unjudged(dtype):
    judged = torch.tensor([0, 0]), torch.tensor([1, 2]), torch.tensor([0, 2], dtype=dtype)
    metric = tr.MRR(unjudged="lower")
    assert metric.score(torch.tensor([[0.9, 0.8, 0.7]]), judged).tolist() == pytest.approx([1 / 3])


@pytest.mark.parametrize("name", LOWER)
def test_relevant_ids_beside_unjudged_candidates_are_grades(name):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(20, 9, generator=generator)
    relevant = torch.stack([torch.randperm(9, generator=generator)[:2] for _ in range(20)])
    relevant[::3, 1], relevant[1::3, 0] = -1, 0  # padding, and the first item
    grades = torch.full((20, 10), -1).scatter(1, relevant % 10, 1)[:, :9]
    metric = tr.parse(name)
    assert metric.score(scores, list(relevant)).tolist() == metric.score(scores, grades).tolist()


@pytest.mark.parametrize("name", [*LOWER, "recall(unjudged=lower)", "map(unjudged=lower)"])
def test_ranked_ids_with_unjudged_candidates_are_lists_whose_scores_fall(name):
    generator = torch.Generator().manual_seed(0)
    ids = torch.stack([torch.randperm(9, generator=generator)[:5] for _ in range(20)])
    relevant = torch.stack([torch.randperm(9, generator=generator)[:2] for _ in range(20)])
    scores = torch.full((20, 9), -INF).scatter(1, ids, torch.arange(5.0, 0, -1).expand(20, 5))
    grades = torch.full((20, 9), -1).scatter(1, relevant, 1)
    metric = tr.parse(name)
    known = (scores > -INF) | (grades > 0)
    expected = metric.score(scores, grades, mask=known)
    assert metric.score(ids, relevant).tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize("within", [0, 3])
def test_rows_of_another_query_within_what_seem_to_be_lists_are_its_rows(within):
    indexes = torch.tensor([0, 0, 0, 1, 1, 1, 2, within, 2])
    scores, target = (
        torch.rand(9, generator=torch.Generator().manual_seed(0)),
        torch.tensor([1, 0, 1, 0, 1, 0, 0, 1, 1]),
    )
    want = [
        tr.MAP().score(scores[indexes == q].unsqueeze(0), target[indexes == q].unsqueeze(0))
        for q in range(max(3, within + 1))
    ]
    assert tr.MAP().score(scores, target, indexes=indexes).tolist() == torch.cat(want).tolist()


def test_lists_with_many_relevant_candidates_behind_lists_with_few_are_all_sorted():
    few, candidates = 2**22 // 4096 + 1, 4096  # more lists than are looked at together
    grade = torch.zeros(few + 1, candidates, dtype=torch.int64)
    grade[:, 7] = 1
    plan_of = functools.partial(plan, need=Need(relevant=True))
    scores = torch.rand(grade.shape)
    errors = no_errors(torch.device("cpu"))
    assert "judged items" in plan_of(DenseLayout(errors, True, scores, grade, None))[0]
    grade[few // 2 :] = 1
    assert plan_of(DenseLayout(errors, True, scores, grade, None))[0].startswith("sort each list")


@pytest.mark.parametrize("names", ["mask", "tie_break", "mask tie_break"])
def test_lists_of_one_length_in_flat_rows_keep_their_masks_and_tie_breaks(names):
    draw = torch.Generator().manual_seed(0)
    scores, target = (torch.randint(0, 3, (20, 6), generator=draw) for _ in range(2))
    options = {
        "mask": torch.rand(20, 6, generator=draw) < 0.7,
        "tie_break": torch.rand(20, 6, generator=draw),
    }
    options = {name: options[name] for name in names.split()}
    flat = {name: x.flatten() for name, x in options.items()}
    indexes = torch.arange(20).repeat_interleave(6)
    for metric in (tr.NDCG(3), tr.MAP()):
        found = metric.score(scores.float().flatten(), target.flatten(), indexes=indexes, **flat)
        assert found.tolist() == metric.score(scores.float(), target, **options).tolist()
