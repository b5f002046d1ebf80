"""Every measure, with every parameter, under every tie policy, in every layout: equal to the oracle on each query."""

import math
import random
from collections import Counter
from functools import cache

import cases
import oracles
import orders
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchrank as tr

MEASURES = sorted(name for name, cls in tr.RankingMetric.registry.items() if cls.__module__.startswith("torchrank."))
FEW = cases.few_configs()
MANY = cases.many_configs()


@cache
def wanted(config, query):
    return oracles.value(config.name, query, **config.for_oracle)


def assert_equal(config, queries, got, what):
    want = torch.tensor([wanted(config, query) for query in queries], dtype=torch.float64)
    assert got.dtype == torch.float64, f"{config}: {got.dtype}"
    assert got.shape == want.shape, f"{config} in {what}: {got.shape}"
    wrong = (~torch.isclose(got, want, rtol=1e-9, atol=1e-9, equal_nan=True)).nonzero().flatten().tolist()
    if wrong:
        worst = min(wrong, key=lambda i: len(str(queries[i])))
        pytest.fail(
            f"{config} in {what}: {len(wrong)} of {len(queries)} differ; the shortest, number {worst}, {queries[worst]}"
            f" is {got[worst].item()} and should be {want[worst].item()}"
        )


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


def configs_of(name, configs):
    found = [config for config in configs if config.name == name]
    assert found, f"no metric to try of {name}"
    return found


def test_every_measure_has_an_oracle():
    assert set(MEASURES) == set(oracles.ORACLES), "write a brute-force oracle for it in tests/support"


@pytest.mark.parametrize("name", MEASURES)
def test_every_parameter_is_tried(name):
    cls = tr.RankingMetric.registry[name]
    fixed = {"aggregation"}
    fixed |= {"ties"} if len(cls.policies) < 2 else set()
    fixed |= {"unjudged"} if len(cls.takes_unjudged_for) < 2 else set()
    tried = {key: set() for key in cls.definition() if key not in fixed}
    for config in configs_of(name, MANY):
        metric = config.metric()
        for key in tried:
            value = getattr(metric, key)
            tried[key].add(value)
    assert {key: len(values) > 1 for key, values in tried.items()} == dict.fromkeys(tried, True)
    assert tried.get("ties", set(cls.policies)) == set(cls.policies)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_a_ranking_says_where_every_relevant_candidate_stands(layout):
    queries, batch = cases.batch(layout, 200)
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
        places = Counter(entry[:2] for entry in entries if entry[1] > 0)  # what nobody judged has no grade to tell
        assert not places - Counter(entry[:2] for entry in listed), query
        assert first[: len(entries)] == sorted(first[: len(entries)])
        assert valid == sorted(valid, reverse=True) or layout.startswith(
            ("dense", "ranking_from_scores", "ranking_from_run")
        )


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("layout", ["dense_masked", "dense_float_grades", "flat", "catalogue_triples"])
def test_every_parameter_equals_the_oracle(name, layout):
    many, few = cases.batch(layout, 500), cases.batch(layout, 120)
    for config in configs_of(name, MANY):
        if cases.suits(config, layout):
            # Of bounds the oracle tries all that the unjudged could be, the metric twice as many as there are.
            queries, batch = few if dict(config.parameters).get("unjudged") in ("lower", "upper") else many
            got = config.metric().score(*batch.args, **batch.kwargs)
            assert_equal(config, queries, got, layout)


@pytest.mark.parametrize("name", MEASURES)
def test_many_queries_equal_the_oracle(name):
    layout = "dense_padded" if cases.suits(configs_of(name, FEW)[0], "dense_padded") else "dense_masked"
    queries, batch = cases.batch(layout, 3000)
    ranking = tr.Ranking.from_scores(*batch.args, **batch.kwargs)
    for config in configs_of(name, FEW):
        assert_equal(config, queries, config.metric().score(ranking), "3000 dense queries")


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_every_layout_equals_the_oracle(name, layout):
    queries, batch = cases.batch(layout, 200)
    for config in configs_of(name, FEW):
        if cases.suits(config, layout):
            got = config.metric().score(*batch.args, **batch.kwargs)
            assert_equal(config, queries, got, layout)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
def test_the_mean_of_updates_is_the_mean_of_the_oracle(layout):
    kind, make = cases.LAYOUTS[layout]
    queries = cases.population(kind, 60)
    pieces = [queries[:1], queries[1:30], queries[30:]]
    batches = [make(list(piece), random.Random(layout)) for piece in pieces]
    some = FEW[list(cases.LAYOUTS).index(layout) % 4 :: 4]  # others in another layout
    for config in [config for config in some if cases.suits(config, layout)]:
        metric = config.metric()
        for batch in batches:
            metric.update(*batch.args, **batch.kwargs)
        values = [value for value in (wanted(config, query) for query in queries) if not math.isnan(value)]
        got = metric.compute()
        assert got.dtype == torch.float32
        assert got.shape == ()
        assert got.item() == pytest.approx(math.fsum(values) / len(values), rel=2e-7, abs=1e-9), f"{config}, {layout}"
        assert metric.num_queries == len(queries)


@pytest.mark.parametrize("config", FEW + [c for c in MANY if "empty_target_action" in c.for_oracle], ids=str)
def test_weighted_mean(config):
    queries, batch = cases.batch("flat_masked", 100)
    rng = random.Random(5)
    weights = [rng.choice((0, 0.5, 1, 2.25)) for _ in queries]
    metric = config.metric()
    metric.update(*batch.args, **batch.kwargs, weights=torch.tensor(weights))
    pairs = [(w, wanted(config, query)) for w, query in zip(weights, queries)]
    pairs = [(w, value) for w, value in pairs if not math.isnan(value)]
    mean = math.fsum(w * value for w, value in pairs) / math.fsum(w for w, _ in pairs)
    assert metric.compute().item() == pytest.approx(mean, rel=2e-7)


@pytest.mark.parametrize("config", [c for c in MANY if c.for_oracle.get("average") == "positive"], ids=str)
def test_mean_over_positives(config):
    queries, batch = cases.batch("dense_masked", 300)
    metric = config.metric(empty_target_action="skip")
    metric.update(*batch.args, **batch.kwargs)
    counts = [orders.number_of_positives(query) for query in queries]
    total = math.fsum(n * wanted(config, query) for n, query in zip(counts, queries) if n)
    assert metric.compute().item() == pytest.approx(total / sum(counts), rel=2e-7)


def test_empty_queries_are_counted():
    queries, batch = cases.batch("dense_masked", 300)
    no_relevant = sum(orders.number_of_positives(query) == 0 for query in queries)
    for name in ("mr", "map", "ndcg"):  # grades of this population are whole, so what gains is relevant
        metric = cases.config(name).metric()
        metric.update(*batch.args, **batch.kwargs)
        assert (metric.num_queries, metric.num_empty) == (len(queries), no_relevant)


@pytest.mark.parametrize("name", MEASURES)
def test_error_for_empty_queries(name):
    queries, batch = cases.batch("dense_masked", 300)
    metric = cases.config(name, empty_target_action="error").metric()
    skip = cases.config(name, empty_target_action="skip")
    empty = sum(math.isnan(wanted(skip, query)) for query in queries)
    with pytest.raises(ValueError, match=rf"\b{empty} queries"):
        metric.score(*batch.args, **batch.kwargs)
    metric.update(*batch.args, **batch.kwargs)
    with pytest.raises(ValueError, match=rf"\b{empty} queries"):
        metric.compute()


@pytest.mark.parametrize("name", cases.POSITIONAL)
def test_fractional_ranks_are_the_middle_of_a_tie(name):
    queries = [query for query in cases.population("single", 300) if len(query.listed) and not query.missing]
    queries = [query for query in queries if orders.number_of_positives(query)]
    ranks = []
    for query in queries:
        at = next(score for score, grade in query.listed if grade)
        scores = [score for score, _ in query.listed]
        ranks.append(sum(s > at for s in scores) + (1 + sum(s == at for s in scores)) / 2)
    assert any(rank % 1 for rank in ranks)
    lengths = torch.tensor([len(query.listed) for query in queries])
    ranking = tr.Ranking.from_ranks(torch.tensor(ranks), lengths)
    for config in [cases.config("mr")] if name == "mr" else [cases.config(name), cases.config(name, top_k=2)]:
        realistic = cases.config(name, **config.for_oracle, ties="realistic")
        assert_equal(realistic, queries, config.metric().score(ranking), "fractional ranks")


@pytest.mark.parametrize(
    "layout", ["dense_masked", "dense_excluded", "catalogue_triples_excluded", "catalogue_tie_break", "labels_excluded"]
)
def test_batches_that_are_ranked_in_several_blocks(layout):
    # A batch this wide is more than the engine takes at once.
    kind, make = cases.LAYOUTS[layout]
    queries = list(cases.population(kind, 40))
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
    for config in [
        config for config in FEW[::5] if cases.suits(config, layout) and cases.suits(config, "dense_padded")
    ]:
        assert_equal(config, queries, config.metric().score(ranking), f"wide {layout}")
    config = cases.config("map", top_k=3)
    assert_equal(config, queries, config.metric().score(wide, target, **kwargs), f"wide {layout}")


@pytest.mark.parametrize("layout", ["ids_and_padded_ids", "ids_masked", "ids_excluded"])
def test_ids_that_are_ranked_in_several_blocks(layout):
    queries, batch = cases.batch(layout, 60)
    ids, target = batch.args
    longer = torch.full((len(ids), 2**12), -1)
    longer[:, : ids.shape[1]] = ids
    kwargs = dict(batch.kwargs)
    if "mask" in kwargs:
        kwargs["mask"] = torch.nn.functional.pad(kwargs["mask"], (0, 2**12 - ids.shape[1]))
    ranking = tr.Ranking.from_ids(longer, target, **kwargs)
    for config in [config for config in FEW[::5] if cases.suits(config, layout)]:
        assert_equal(config, queries, config.metric().score(ranking), f"long {layout}")


def repeated(pairs, times, number):
    """Rows about ``number`` queries, said again of each further repetition of these."""
    query, *rest = pairs
    shift = torch.arange(times).repeat_interleave(len(query)) * number
    return (query.repeat(times) + shift, *(part.repeat(times) for part in rest))


@pytest.mark.parametrize("name", ["mrr", "map", "auroc"])
@pytest.mark.parametrize("layout", ["dense_padded", "catalogue_triples_excluded"])
def test_more_queries_than_the_engine_takes_at_once(name, layout):
    queries, batch = cases.batch(layout, 40)
    (preds, target), number = batch.args, len(queries)
    times = (2**18 if layout == "dense_padded" else 2**17) // number
    preds = preds.repeat(times, 1)
    target = repeated(target, times, number) if isinstance(target, tuple) else target.repeat(times, 1)
    kwargs = {key: repeated(pairs, times, number) for key, pairs in batch.kwargs.items()}
    ranking = tr.Ranking.from_scores(preds, target, **kwargs)
    for config in (cases.config(name), cases.config(name, top_k=4)):
        values = [config.metric().score(preds, target, **kwargs), config.metric().score(ranking)]
        for value in values:
            assert_equal(config, queries, value[:number], f"{layout}, the first")
            torch.testing.assert_close(value, value[:number].repeat(times), rtol=0, atol=0, equal_nan=True)


@cache
def suitable(layout):
    return [config for config in MANY if cases.suits(config, layout)]


@settings(max_examples=300)
@given(st.data())
def test_any_queries_equal_the_oracle(data):
    """Hypothesis finds, and shrinks to the shortest, what random queries miss."""
    layout = data.draw(st.sampled_from(["dense_masked", "dense_tie_break", "flat", "catalogue_triples_excluded"]))
    config = data.draw(st.sampled_from(suitable(layout)))
    queries = data.draw(cases.queries())
    batch = cases.LAYOUTS[layout].make(queries, random.Random(data.draw(st.integers(0, 99))))
    assert_equal(config, queries, config.metric().score(*batch.args, **batch.kwargs), layout)
