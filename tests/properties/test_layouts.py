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
from torchrank import retrieval
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
    queries, batch = layout_cases.batch(layout, 200)
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
        assert valid == sorted(valid, reverse=True) or layout.startswith(
            ("dense", "ranking_from_scores", "ranking_from_run")
        )


@pytest.mark.parametrize("layout", layout_cases.LAYOUTS)
def test_measures_of_every_kind_of_need_equal_the_oracle(layout):
    queries, batch = layout_cases.batch(layout, 30)
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
    for config in FEW:
        suited = [layout for layout in found if layout_cases.suits(config, layout)]
        found[min(suited, key=lambda layout: len(found[layout]))].append(config)
    assert all(found.values())
    return found


@pytest.mark.parametrize("layout", layout_cases.LAYOUTS)
def test_the_mean_of_updates_is_the_mean_of_the_oracle(layout):
    kind, make = layout_cases.LAYOUTS[layout]
    queries = layout_cases.population(kind, 20)
    pieces = [queries[:1], queries[1:15], queries[15:]]
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


@pytest.mark.parametrize(
    "layout", ["dense_masked", "dense_excluded", "catalogue_triples_excluded", "catalogue_tie_break", "labels_excluded"]
)
def test_batches_that_are_ranked_in_several_blocks(layout):
    # A batch this wide is more than the engine takes at once.
    kind, make = layout_cases.LAYOUTS[layout]
    queries = list(layout_cases.population(kind, 40))
    batch = make(queries, random.Random(layout))
    preds, target = batch.args
    kwargs = dict(batch.kwargs)
    columns = 2**14 // preds.shape[1]
    wide = torch.full((len(queries), columns * preds.shape[1]), -math.inf, dtype=preds.dtype)
    wide[:, ::columns] = preds
    for name in ("mask", "tie_break"):
        if name in kwargs:
            grown = torch.zeros_like(wide, dtype=kwargs[name].dtype)
            grown[:, ::columns] = kwargs[name]
            kwargs[name] = grown
    if "exclude" in kwargs:
        kwargs["exclude"] = (kwargs["exclude"][0], kwargs["exclude"][1] * columns)
    if isinstance(target, tuple):
        target = (target[0], target[1] * columns, *target[2:])
    elif isinstance(target, list):
        target = [items * columns for items in target]
    elif target.dim() == 1:
        target = target * columns
    else:
        grades = torch.zeros(wide.shape, dtype=target.dtype)
        grades[:, ::columns] = target
        target = grades
    ranking = tr.Ranking.from_scores(wide, target, **kwargs)
    configs = [
        config for config in TRIED if layout_cases.suits(config, layout) and layout_cases.suits(config, "dense_padded")
    ]
    assert_equal_by_need(configs[::7], queries, layout_cases.Batch((ranking,)), f"wide {layout}")
    config = layout_cases.config("map", top_k=3)
    assert_equal(config, queries, config.metric().score(wide, target, **kwargs), f"wide {layout}")


@pytest.mark.parametrize("layout", ["ids_and_padded_ids", "ids_masked", "ids_excluded"])
def test_ids_that_are_ranked_in_several_blocks(layout):
    queries, batch = layout_cases.batch(layout, 60)
    ids, target = batch.args
    longer = torch.full((len(ids), 2**12), -1)
    longer[:, : ids.shape[1]] = ids
    kwargs = dict(batch.kwargs)
    if "mask" in kwargs:
        kwargs["mask"] = torch.nn.functional.pad(kwargs["mask"], (0, 2**12 - ids.shape[1]))
    ranking = tr.Ranking.from_ids(longer, target, **kwargs)
    configs = [config for config in TRIED if layout_cases.suits(config, layout)]
    assert_equal_by_need(configs[::2], queries, layout_cases.Batch((ranking,)), f"long {layout}")


def repeated(pairs, times, number):
    """Rows about ``number`` queries, said again of each further repetition of these."""
    query, *rest = pairs
    shift = torch.arange(times).repeat_interleave(len(query)) * number
    return (query.repeat(times) + shift, *(part.repeat(times) for part in rest))


@pytest.mark.parametrize(
    ("name", "layout"), [("auroc", "dense_padded"), ("mrr", "dense_padded"), ("map", "catalogue_triples_excluded")]
)
def test_more_queries_than_the_engine_takes_at_once(assume, name, layout):
    assume(block=2**15)
    queries, batch = layout_cases.batch(layout, 40)
    (preds, target), number = batch.args, len(queries)
    times = 2**13 // number
    preds = preds.repeat(times, 1)
    target = repeated(target, times, number) if isinstance(target, tuple) else target.repeat(times, 1)
    kwargs = {key: repeated(pairs, times, number) for key, pairs in batch.kwargs.items()}
    # Queries of different weights keep them.
    once, often = (tr.MRR(filtered=True, average="positive") for _ in range(2))
    once.update(*batch.args, **batch.kwargs)
    often.update(preds, target, **kwargs)
    assert often.compute().item() == pytest.approx(once.compute().item(), rel=1e-6)
    ranking = tr.Ranking.from_scores(preds, target, **kwargs)
    whole, near = layout_cases.config(name), layout_cases.config(name, top_k=4)
    values = [(config, config.metric().score(ranking)) for config in (whole, near)]
    # Without a cutoff another engine may rank than for the ranking, which has every entry.
    alone = near if name == "mrr" else whole
    for config, value in [*values, (alone, alone.metric().score(preds, target, **kwargs))]:
        assert_equal(config, queries, value[:number], f"{layout}, the first")
        torch.testing.assert_close(value, value[:number].repeat(times), rtol=0, atol=0, equal_nan=True)


SHARED = ["ndcg@5", "map", "mrr@10", "recall@3", "precision", "rprecision", "auroc", "err@10", "kendalltau", "mr"]


@pytest.mark.parametrize(
    ("index", "dtype", "rounded"),
    [
        (torch.int32, torch.float32, False),
        (torch.int64, torch.float64, False),
        (torch.int64, torch.bfloat16, True),
        (torch.int8, torch.float32, True),
    ],
    ids=str,
)
def test_arguments_are_never_changed(index, dtype, rounded):
    """Large batches take shortcuts that work in place, on tensors of their own."""
    g = torch.Generator().manual_seed(1)
    scores = torch.randn(100, 400, generator=g).to(dtype)
    scores = scores.round() if rounded else scores
    target = (torch.randint(-20, 4, scores.shape, generator=g)).clamp_min(-1).to(index)
    label, there = target.argmax(-1), scores > -1
    query, item = (target > 0).nonzero(as_tuple=True)
    pairs = (torch.arange(100).repeat(3), torch.arange(300))
    flat = scores.flatten(), target.flatten()
    indexes = torch.arange(100).repeat_interleave(400).to(index)
    order = torch.randperm(len(indexes), generator=g)
    calls = [
        ((scores, target), {}),
        ((scores, target), {"mask": there, "exclude": pairs}),
        ((scores, target.double()), {"tie_break": torch.arange(400)}),
        ((scores, label), {"exclude": pairs}),
        ((scores, (query, item, target[query, item])), {"mask": there}),
        (flat, {"indexes": indexes}),
        (tuple(x[order] for x in flat), {"indexes": indexes[order]}),
        (tuple(x[order] for x in flat), {"indexes": indexes[order], "mask": there.flatten()[order]}),
    ]
    for arguments, options in calls:
        given = list(layout_cases.tensors_in((arguments, options)))
        kept = [x.clone() for x in given]
        for names in (SHARED, ["map"], ["precision@7"], ["ndcg"]):
            suite = tr.RankingCollection(names)
            suite.update(*arguments, **options)
            suite.compute()
            assert all(map(torch.equal, given, kept))
    # The rows of a class of torchrank.retrieval are its state, and computing leaves them as they are.
    rows = tuple(x[order] for x in (flat[0], (flat[1] > 0).to(index), indexes))
    kept = [x.clone() for x in rows]
    metric = retrieval.RetrievalPrecision(top_k=7)
    metric.update(*rows)
    values = []
    for _ in range(2):
        values.append(metric.compute())
        metric._computed = metric._ranked = None
    assert torch.equal(*values)
    assert all(map(torch.equal, rows, kept))


@pytest.mark.parametrize("masked", [False, True])
def test_a_candidate_is_as_relevant_as_it_is_to_its_best_subtopic(masked):
    g = torch.Generator().manual_seed(0)
    scores, subtopics = torch.randn(30, 6, generator=g), torch.randint(4, (30, 6, 3), generator=g)
    mask = torch.rand(30, 6, generator=g) < 0.8 if masked else None
    best = tensor([[max(grades) for grades in query] for query in subtopics.tolist()])
    for label in ("ndcg@3", "map(relevance_level=2)", "mr"):
        metric = tr.RankingCollection([label])
        assert metric.score(scores, subtopics, mask=mask)[label].tolist() == pytest.approx(
            metric.score(scores, best, mask=mask)[label].tolist(), nan_ok=True
        )


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


@pytest.mark.parametrize("exclude", [None, [tensor([1])] * 2])
def test_lists_without_ids_retrieve_nothing(exclude):
    ids = torch.zeros(2, 0, dtype=torch.int64)
    ranking = tr.Ranking.from_ids(ids, tensor([[3, 4], [5, -1]]), exclude=exclude)
    assert ranking.num_candidates.tolist() == [0, 0]
    assert tr.Recall().score(ranking).tolist() == [0, 0]
    assert ranking.num_relevant(1).tolist() == [2, 1]


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


def test_padded_ids_without_a_column_and_a_batch_of_two_tensors_have_the_defaults():
    metric = tr.RPrecision()
    metric.update(tensor([[1, 0, 2], [0, 1, 2]]), torch.zeros(2, 0, dtype=torch.int64))
    assert (metric.num_queries, metric.num_empty) == (2, 2)
    batch = Batch(torch.rand(2, 3), torch.zeros(2, 3))
    given = ("preds", "target", "repeats", "results")
    assert {name: x for name, x in vars(batch).items() if name not in given and x is not None} == {}


def test_rows_of_a_batch_of_flat_rows_are_those_of_some_queries():
    batch = Batch(tensor([0.1, 0.2, 0.3, 0.4]), tensor([0, 1, 1, 0]), indexes=tensor([4, 7, 9, 7]))
    assert batch.rows(1, 2).preds.tolist() == pytest.approx([0.2, 0.4])
    assert batch.rows(1, 3).indexes.tolist() == [7, 9, 7]
