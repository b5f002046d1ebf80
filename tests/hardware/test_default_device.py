"""A default device other than that of the tensors changes nothing: here "meta", where tensors have no values."""

import ast
from pathlib import Path

import pytest
import torch
from torch.utils._device import _device_constructors

import torchrank as tr
from tests.support import layout_cases
from tests.support.oracle_comparison import IN_TURN
from torchrank import retrieval

QUERIES = 40


@pytest.fixture
def other_device():
    """A switch: between calls with True and with False another default device is set."""
    yield lambda on: torch.set_default_device("meta" if on else None)
    torch.set_default_device(None)  # "cpu" would be a default device too: each call of torch would go through Python


def both_ways(make, other_device):
    """The result of a function, and its result under another default device."""
    found = make()
    other_device(True)
    again = make()
    other_device(False)
    return found, again


def same(found, again):
    torch.testing.assert_close(again, found, rtol=0, atol=0, equal_nan=True)


def test_every_factory_names_its_device():
    factories = {function.__name__ for function in _device_constructors()}
    silent = []
    for path in Path(tr.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called.removeprefix("torch.") in factories and called.startswith("torch."):
                named = [keyword.arg for keyword in node.keywords]
                silent += [] if "device" in named else [f"{path.name}:{node.lineno}: {ast.unparse(node)}"]
    assert not silent


@pytest.mark.parametrize(
    "layout", ["dense_masked", "flat", "catalogue_lists_excluded", "labels_masked", "ids_excluded"]
)
def test_values_are_the_same_in_layouts_of_each_kind(layout, other_device):
    arguments, keywords = layout_cases.batch(layout, QUERIES)[1]
    known = [config for config in IN_TURN if layout_cases.suits(config, layout)]
    if layout != "dense_masked":  # which meets all measures: the others one metric of some
        names = ("alphandcg", "auroc", "kendalltau", "ndcg", "rbpresidual")
        known = [next(iter(found)) for name in names if (found := [config for config in known if config.name == name])]

    def values():
        suite = tr.RankingCollection([config.metric() for config in known])
        suite.update(*arguments, **keywords)
        errors = [metric.standard_error for metric in suite.values() if metric.aggregation == "mean"]
        return suite.score(*arguments, **keywords), suite.compute(), errors

    same(*both_ways(values, other_device))


def test_every_constructor_of_a_ranking_makes_the_same(other_device):
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand((QUERIES, 300), generator=generator)
    grades = torch.randint(0, 3, scores.shape, generator=generator)
    label = grades.argmax(-1)
    ids = scores.argsort(-1)[:, :20]
    several = [row.nonzero().squeeze(-1)[:50] for row in grades]
    pairs = tuple(grades.nonzero().T)
    indexes = torch.arange(QUERIES).repeat_interleave(300)
    users, items = torch.rand((QUERIES, 4), generator=generator), torch.rand((300, 4), generator=generator)
    names = [str(number) for number in range(30)]
    run = {name: dict(zip(names, row)) for name, row in zip(names, scores.tolist())}
    qrels = {name: dict(zip(names, row)) for name, row in zip(names, grades.tolist())}

    def rankings():
        ranking = tr.Ranking
        return [
            ranking.from_scores(scores, grades, exclude=pairs, tie_break=-scores),
            ranking.from_scores(scores, several),
            ranking.from_label(scores, label, mask=grades > 0),
            ranking.from_flat(scores.flatten(), grades.flatten(), indexes),
            ranking.from_flat(scores.flatten(), grades.flatten(), indexes, judged=True),
            ranking.from_ids(ids, several),
            ranking.from_rankings(ids, ids.flip(-1)),
            ranking.from_ranks(label + 1, 300),
            ranking.from_negatives(scores[:, 0], scores[:, 1:]),
            ranking.from_neighbors(ids, scores[:, :20], *tr.exact_neighbors(users, items, 9)),
            ranking.from_embeddings(users, items, several, chunk_size=100),
            ranking.from_embeddings(users, items, pairs, top_k=5),
            ranking.from_score_blocks(list(scores.split(100, dim=1)), several),
            ranking.from_run(qrels, run),
        ]

    for one, other in zip(*both_ways(rankings, other_device)):
        for field in ("first", "tied", "grade", "valid", "num_candidates", "errors"):
            same(getattr(one, field), getattr(other, field))
        suite = tr.RankingCollection(
            ["ndcg@3", "mrr(ties=pessimistic)", "map(unjudged=condensed)", "mrr(filtered=True)"]
        )
        if one.reach is None and not one.only_relevant:
            same(*both_ways(lambda one=one, suite=suite: suite.score(one), other_device))


def test_aggregations_and_other_states_work_where_metrics_are_made_there(other_device):
    scores, grades = torch.rand((QUERIES, 9)), torch.randint(0, 2, (QUERIES, 9))
    aggregations = ("geometric", "harmonic", "median", "midpoint", "p5", "min", "max", "none")
    names = [f"mrr(aggregation={how})" for how in aggregations]
    own = [tr.MRR(aggregation=torch.std), tr.PRCurve(4)]

    def values():
        suite = tr.RankingCollection([*names, *own]).clone()
        first = suite(scores, grades)
        suite.update(scores, grades)
        twin = suite.clone()
        twin.reset()
        twin.update(scores, grades)
        suite.merge_state(twin)
        return first, suite.compute()

    same(*both_ways(values, other_device))
    other_device(True)
    metric = tr.MRR()
    torch.nn.ModuleList([metric, torch.nn.Linear(1, 1)]).to_empty(device="cpu")  # as a model that is made there
    other_device(False)
    metric.update(scores, grades)
    same(tr.MRR()(scores, grades), metric.compute())


@pytest.mark.parametrize("name", retrieval.__all__)
def test_the_drop_in(name, other_device):
    scores, indexes = torch.rand(200), torch.arange(20).repeat_interleave(10)
    target = torch.arange(200) % 3 // 2

    def value():
        metric = getattr(retrieval, name)()
        for rows in (slice(0, 55), slice(55, 200)):
            metric.update(scores[rows], target[rows], indexes[rows])
        return metric.compute()

    same(*both_ways(value, other_device))
