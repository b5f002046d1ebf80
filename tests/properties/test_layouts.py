"""Every layout of the same queries has the same ranking, and the same values of measures of every kind of need."""

import math
import random
from collections import Counter
from functools import cache

import pytest
import torch
from torch import tensor

import torchrank as tr
from tests.support import layout_cases
from tests.support.oracle_comparison import (
    FEW,
    IN_TURN,
    MANY,
    MEASURES,
    REPRESENTATIVES,
    assert_equal,
    assert_equal_by_need,
    configs_of,
    kind_of_need,
    wanted,
)
from tests.support.unread import NothingRead, leave_values_unread
from torchrank.engine import rank
from torchrank.layouts.arrange import Batch, arrange

TRIED = [config for name in REPRESENTATIVES for config in configs_of(name, FEW)]


def ranking_of(batch):
    """The ranking of a batch, from the constructor that takes its layout."""
    preds, *target = batch.args
    if isinstance(preds, tr.Ranking):
        return preds
    if "indexes" in batch.kwargs:
        return tr.Ranking.from_flat(preds, *target, **batch.kwargs)
    if preds.is_floating_point():
        return tr.Ranking.from_scores(preds, *target, **batch.kwargs)
    return tr.Ranking.from_ids(preds, *target, **batch.kwargs)


def test_representatives_have_every_kind_of_need():
    # Every measure under every tie policy, and every parameter under the first one.
    several = [*FEW, *(config for config in MANY if config.for_oracle.get("ties", "expected") == "expected")]
    assert {kind_of_need(config) for config in TRIED} == {kind_of_need(config) for config in set(several)}
    assert set(REPRESENTATIVES) <= set(MEASURES)


@pytest.mark.parametrize("layout", layout_cases.LAYOUTS)
def test_a_ranking_says_where_every_relevant_candidate_stands(layout):
    queries, batch = layout_cases.batch(layout, 60)
    ranking = ranking_of(batch)
    rows = zip(ranking.first, ranking.tied, ranking.grade, ranking.valid)
    for query, length, row in zip(queries, ranking.num_candidates.tolist(), rows):
        scores = [score for score, _ in query.listed]
        listed = [(1 + sum(x > s for x in scores), scores.count(s), grade) for s, grade in query.listed]
        want = [entry for entry in listed if entry[2] > 0]
        want += [(len(scores) + 1, 0, grade) for grade in query.missing if grade > 0]
        first, tied, grade, valid = (part.tolist() for part in row)
        entries = [entry for entry, real in zip(zip(first, tied, grade), valid) if real]
        assert length == len(scores), query
        assert sorted(entry for entry in entries if entry[2] > 0) == sorted(want), query
        places = Counter(entry[:2] for entry in entries if entry[1] > 0)  # the unjudged have no grade to compare
        assert not places - Counter(entry[:2] for entry in listed), query
        assert first[: len(entries)] == sorted(first[: len(entries)])
        mixed = layout.startswith(("dense", "ranking_from_scores", "ranking_from_run"))
        assert mixed or valid == sorted(valid, reverse=True)


@pytest.mark.parametrize("layout", layout_cases.LAYOUTS)
def test_measures_of_every_kind_of_need_equal_the_oracle(layout):
    queries, batch = layout_cases.batch(layout, 20)
    suited = [config for config in TRIED if layout_cases.suits(config, layout)]
    assert_equal_by_need(suited, queries, batch, layout)
    # One of them alone, another one in each layout.
    alone = suited[list(layout_cases.LAYOUTS).index(layout) % len(suited)]
    assert_equal(alone, queries, alone.metric().score(*batch.args, **batch.kwargs), layout)


@pytest.mark.parametrize("layout", layout_cases.LAYOUTS)
def test_values_that_are_not_read_have_the_same_measures_in_each_layout(layout, monkeypatch):
    leave_values_unread(monkeypatch)
    queries, batch = layout_cases.batch(layout, 20)
    half = TRIED[list(layout_cases.LAYOUTS).index(layout) % 2 :: 2]  # the others in the next layout
    suited = [config for config in half if layout_cases.suits(config, layout)]
    assert_equal_by_need(suited, queries, batch, layout)
    if layout_cases.is_read_never(layout):
        with NothingRead():
            list(rank(arrange(*batch.args, **batch.kwargs)))


@cache
def met():
    """The metrics that each layout meets: each metric is in one layout that suits it."""
    found = {layout: [] for layout in layout_cases.LAYOUTS}
    for config in IN_TURN:
        suited = [layout for layout in found if layout_cases.suits(config, layout)]
        found[min(suited, key=lambda layout: len(found[layout]))].append(config)
    assert all(found.values())
    return found


@pytest.mark.parametrize("layout", layout_cases.LAYOUTS)
def test_the_mean_of_updates_is_the_mean_of_the_oracle(layout):
    kind, make = layout_cases.LAYOUTS[layout]
    queries = layout_cases.population(kind, 12)
    pieces = [queries[:1], queries[1:11], queries[11:]]
    batches = [make(list(piece), random.Random(layout)) for piece in pieces]
    configs = met()[layout]
    suite = tr.RankingCollection({str(config): config.metric() for config in configs})
    alone = configs[0].metric()
    for batch in batches:
        suite.update(*batch.args, **batch.kwargs)
        alone.update(*batch.args, **batch.kwargs)
    for config, metric in [(configs[0], alone), *((config, suite[str(config)]) for config in configs)]:
        values = [value for value in (wanted(config, query) for query in queries) if not math.isnan(value)]
        got = metric.compute()
        assert got.dtype == torch.float32
        assert got.shape == ()
        number = 1 if metric.aggregation == "sum" else len(values)
        assert got.item() == pytest.approx(math.fsum(values) / number, rel=2e-7, abs=1e-9), f"{config}, {layout}"
        # If low values are good, a query for which nothing was retrieved does not count, unless it is empty anyway.
        uncounted = sum(not query.listed for query in queries) if metric.lower_is_better else 0
        assert len(queries) - uncounted <= metric.num_queries <= len(queries)


SHARED = ["ndcg@5", "map", "mrr@10", "recall@3", "precision", "rprecision", "auroc", "err@10", "kendalltau", "mr"]


@pytest.mark.parametrize(("index", "dtype"), [(torch.int8, torch.float32), (torch.int64, torch.bfloat16)], ids=str)
def test_arguments_are_never_changed(index, dtype):
    """Large batches take shortcuts that work in place, on tensors of their own."""
    g = torch.Generator().manual_seed(1)
    scores = torch.randn(100, 200, generator=g).round(decimals=1).to(dtype)
    target = (torch.randint(-20, 4, scores.shape, generator=g)).clamp_min(-1).to(index)
    query, item = (target > 0).nonzero(as_tuple=True)
    options = {"mask": scores > -1, "exclude": (torch.arange(100).repeat(2), torch.arange(200))}
    indexes = torch.arange(100).repeat_interleave(200).to(index)
    order = torch.randperm(len(indexes), generator=g)
    calls = [
        ((scores, target), options),
        ((scores, target.double()), {"tie_break": torch.arange(200)}),
        ((scores, target.argmax(-1)), options),
        ((scores, (query, item, target[query, item])), options),
        ((scores.flatten(), target.flatten()), {"indexes": indexes}),
        ((scores.flatten()[order], target.flatten()[order]), {"indexes": indexes[order]}),
    ]
    for arguments, more in calls:
        given = list(layout_cases.tensors_in((arguments, more)))
        kept = [x.clone() for x in given]
        for names in (SHARED, ["map"], ["precision@7"]):
            suite = tr.RankingCollection(names)
            suite.update(*arguments, **more)
            suite.compute()
            assert all(map(torch.equal, given, kept))


@pytest.mark.parametrize("name", ["mask", "tie_break", "exclude"])
@pytest.mark.parametrize("shape", [(2, 0), (2, 0, 3), None])
def test_lists_without_candidates_are_lists_without_relevant_ones(name, shape):
    option = torch.zeros(2, 0) if name == "tie_break" else torch.zeros(2, 0, dtype=torch.bool)
    options = {name: (tensor([], dtype=torch.int64),) * 2 if name == "exclude" else option}
    target = [tensor([], dtype=torch.int64)] * 2 if shape is None else torch.zeros(shape)
    ranking = tr.Ranking.from_scores(torch.zeros(2, 0), target, **options)
    assert ranking.num_candidates.tolist() == [0, 0]
    assert tr.AlphaNDCG(empty_target_action="pos").score(ranking).tolist() == [1, 1]
    assert tr.Precision(top_k=3).score(ranking).tolist() == [0, 0]


def test_rows_of_a_batch_are_the_rows_of_all_its_tensors():
    draw = torch.Generator().manual_seed(0)
    names = ("preds", "target", "mask", "tie_break", "groups")
    given = {name: torch.randint(9, (5, 3), generator=draw) for name in names}
    given["weights"] = torch.rand(5, generator=draw)
    part = Batch(**given, exclude=(tensor([0, 2, 3, 4]), tensor([1, 2, 0, 1]))).rows(2, 4)
    for name, x in given.items():
        assert torch.equal(getattr(part, name), x[2:4]), name
    assert [x.tolist() for x in part.exclude] == [[0, 1], [2, 0]]
    of_catalogue = tensor([0, 1, 1])
    assert torch.equal(Batch(given["preds"], groups=of_catalogue).rows(2, 4).groups, of_catalogue)
