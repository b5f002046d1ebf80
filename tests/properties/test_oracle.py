"""Every measure, with every parameter, and under every tie policy: equal to the oracle on each query."""

import math
import random
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchrank as tr
from tests.support import layout_cases, oracles, tie_orders
from tests.support.oracle_comparison import (
    EACH,
    FEW,
    IN_TURN,
    MANY,
    MEASURES,
    REPRESENTATIVES,
    assert_all_equal,
    assert_equal,
    assert_equal_by_need,
    configs_of,
    wanted,
)
from tests.support.tie_orders import Query
from torchrank.engine.rank_layout import rank_whole
from torchrank.layouts.arrange import arrange
from torchrank.layouts.canonical import Need

#: Every parameter under expected ties.
EXPECTED = [config for config in MANY if config.for_oracle.get("ties", "expected") == "expected"]
#: And few under all policies: the others settle the order of any grades alike.
COVERING = list(dict.fromkeys([*FEW, *EXPECTED]))

#: (layout, number of queries, metrics): with ties, without, with one relevant candidate, and with relevant ones alone.
LAYOUTS = [
    ("dense_masked", 24, COVERING),
    ("dense_float_grades", 20, EACH),
    ("dense_shared_tie_break", 20, IN_TURN),
    ("catalogue_triples", 25, IN_TURN),
    ("labels", 20, IN_TURN),
]


def is_bound(config):
    return dict(config.parameters).get("unjudged") in ("lower", "upper")


@cache
def queries_of(layout, size, of_bounds):
    """Queries in a layout. Of bounds the oracle tries all that the unjudged could be, so there are at most four."""
    if not of_bounds:
        return layout_cases.batch(layout, size)
    kind, make = layout_cases.LAYOUTS[layout]
    queries = [query for query in layout_cases.population(kind, size) if number_of_unjudged(query) <= 4]
    return queries, make(queries, random.Random(layout))


def number_of_unjudged(query):
    return sum(grade < 0 for grade in [*(grade for _, grade in query.listed), *query.missing])


def check_that_every_parameter_is_tried(name):
    cls = tr.RankingMetric.registry[name]
    fixed = {"aggregation"}
    fixed |= {"ties"} if len(cls.policies) < 2 else set()
    fixed |= {"unjudged"} if len(cls.takes_unjudged_for) < 2 else set()
    tried = {key: set() for key in cls.definition() if key not in fixed}
    for config in configs_of(name, MANY):
        for key in tried:
            tried[key].add(config.for_oracle.get(key, cls.definition()[key]))
    assert {key: len(values) > 1 for key, values in tried.items()} == dict.fromkeys(tried, True)
    assert tried.get("ties", set(cls.policies)) == set(cls.policies)


def scored_together(configs, batch):
    """The values of metrics for one batch, which is ranked once."""
    suite = tr.RankingCollection({f"m{number}": layout_cases.scoring(one) for number, one in enumerate(configs)})
    return [*suite.score(*batch.args, **batch.kwargs).values()]


@pytest.mark.parametrize("name", MEASURES)
def test_every_parameter_equals_the_oracle(name):
    check_that_every_parameter_is_tried(name)
    for layout, size, configs in LAYOUTS:
        suited = [config for config in configs_of(name, configs) if layout_cases.suits(config, layout)]
        for of_bounds in (False, True):
            some = [config for config in suited if is_bound(config) == of_bounds]
            queries, batch = queries_of(layout, size, of_bounds)
            # In the first layout metrics of another need are ranked apart; in the others once for all.
            if layout == LAYOUTS[0][0]:
                assert_equal_by_need(some, queries, batch, layout)
            elif some:
                assert_all_equal(some, queries, scored_together(some, batch), layout)


@cache
def rankings_by_need(layout, *needs):
    """The rankings of a batch for each need."""
    _, batch = layout_cases.batch(layout, 60)
    return [rank_whole(arrange(*batch.args, **batch.kwargs), need) for need in needs]


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_asks_for_relevant_candidates_alone_if_these_decide_its_values(name):
    rankings = rankings_by_need("flat", Need(), Need(relevant=True))
    for config in configs_of(name, EACH):
        every_rank_is_equal = config.for_oracle.get("patience") == 1
        if layout_cases.suits(config, "flat") and "unjudged" not in config.for_oracle and not every_rank_is_equal:
            metric = layout_cases.scoring(config)
            every, relevant = (torch.where(x.status == 0, x.values, 0) for x in map(metric.per_query, rankings))
            assert metric.required.relevant == torch.allclose(every, relevant, equal_nan=True), metric.label


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_asks_for_all_candidates_if_those_without_a_judgment_decide_its_values(name):
    rankings = rankings_by_need("catalogue_triples", Need(all_candidates=True), Need())
    for config in configs_of(name, IN_TURN):
        if "unjudged" not in config.for_oracle:
            metric = layout_cases.scoring(config)
            every, judged = (torch.where(x.status == 0, x.values, 0) for x in map(metric.per_query, rankings))
            assert metric.required.all_candidates != torch.allclose(every, judged, equal_nan=True), metric.label


def long_queries():
    """Lists of eight in which the tie group at a cutoff is large, and has others before it and behind it."""
    rng = random.Random(0)
    for sizes in (1, 4, 2, 1), (2, 1, 4, 1), (3, 1, 3, 1), (4, 1, 1, 2):
        scores = [float(-group) for group, size in enumerate(sizes) for _ in range(size)]
        listed = tuple((score, rng.choice((-1, 0, 0, 1, 1, 2, 3))) for score in scores)
        yield Query(listed, rng.choice(((), (1,), (2, 0))))


@pytest.mark.parametrize("name", MEASURES)
def test_longer_lists_equal_the_oracle(name):
    queries = [*long_queries()]
    batch = layout_cases.LAYOUTS["dense_masked"].make(queries, random.Random(0))
    configs = [config for config in configs_of(name, FEW) if config in set(EXPECTED)] or configs_of(name, FEW)
    configs = [config for config in configs if layout_cases.suits(config, "dense_masked")]
    assert_all_equal(configs, queries, scored_together(configs, batch), "lists of eight")
    # Where nothing is tied, masked or missing, columns are ranks, and all cutoffs share their sums.
    untied = [Query(tuple((-float(n), grade) for n, (_, grade) in enumerate(query.listed))) for query in queries]
    scores, grades = torch.tensor([query.listed for query in untied]).unbind(-1)
    found = scored_together(configs, layout_cases.Batch((scores, grades.long())))
    assert_all_equal(configs, untied, found, "lists of eight without ties")


@pytest.mark.parametrize("config", [c for c in MANY if c.for_oracle.get("average") == "positive"], ids=str)
def test_mean_over_positives(config):
    queries, batch = layout_cases.batch("dense_masked", 100)
    rng = random.Random(6)
    weights = [rng.choice((0, 0.5, 1, 2.25)) for _ in queries]
    metric = config.metric()
    metric.update(*batch.args, **batch.kwargs, weights=torch.tensor(weights))
    # where nothing was retrieved, a mean rank is unknown
    counts = [tie_orders.number_of_positives(query) * (query.listed != () or config.name != "mr") for query in queries]
    weights = [weight * count for weight, count in zip(weights, counts)]
    total = math.fsum(n * wanted(config, query) for n, query in zip(weights, queries) if n)
    assert metric.compute().item() == pytest.approx(total / sum(weights), rel=2e-7)


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_error_for_empty_queries(name):
    queries, batch = layout_cases.batch("dense_masked", 20)
    metric = layout_cases.config(name, empty_target_action="error").metric()
    empty = sum(oracles.measured(name, query, "expected", ()) is None for query in queries)
    with pytest.raises(ValueError, match=rf"\b{empty} quer(y|ies)"):  # which looks for the first empty query
        metric.score(*batch.args, **batch.kwargs)
    metric.update(*batch.args, **batch.kwargs)
    with pytest.raises(ValueError, match=rf"\b{empty} quer(y|ies)"):
        metric.compute()


@pytest.mark.parametrize("name", layout_cases.POSITIONAL)
def test_fractional_ranks_are_the_middle_of_a_tie(name):
    queries = [query for query in layout_cases.population("single", 300) if len(query.listed) and not query.missing]
    queries = [query for query in queries if tie_orders.number_of_positives(query)]
    ranks = []
    for query in queries:
        at = next(score for score, grade in query.listed if grade)
        scores = [score for score, _ in query.listed]
        ranks.append(sum(s > at for s in scores) + (1 + sum(s == at for s in scores)) / 2)
    assert any(rank % 1 for rank in ranks)
    lengths = torch.tensor([len(query.listed) for query in queries])
    ranking = tr.Ranking.from_ranks(torch.tensor(ranks), lengths)
    for cut in [{}] if name == "mr" else [{}, {"top_k": 2}]:
        realistic = layout_cases.config(name, **cut, ties="realistic")
        assert_equal(realistic, queries, layout_cases.config(name, **cut).metric().score(ranking), "fractional ranks")


@cache
def suitable(layout):
    return [config for config in MANY if layout_cases.suits(config, layout)]


@settings(max_examples=25)
@given(st.data())
def test_any_queries_equal_the_oracle(data):
    """Hypothesis finds queries that random ones miss, and shrinks them to the shortest."""
    layout = data.draw(st.sampled_from(["dense_masked", "dense_tie_break", "flat", "catalogue_triples_excluded"]))
    config = data.draw(st.sampled_from(suitable(layout)))
    queries = data.draw(layout_cases.queries())
    batch = layout_cases.LAYOUTS[layout].make(queries, random.Random(data.draw(st.integers(0, 99))))
    assert_equal(config, queries, layout_cases.scoring(config).score(*batch.args, **batch.kwargs), layout)
