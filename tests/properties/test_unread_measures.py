"""On an accelerator no shortcut depends on values, which are not read: measures have the same numbers."""

import pytest
import torch

import torchrank as tr
from tests.support import layout_cases
from tests.support.oracle_comparison import FEW, IN_TURN, MANY, MEASURES, assert_all_equal, configs_of, each_in_turn
from tests.support.tie_orders import Query
from tests.support.unread import NothingRead, leave_values_unread


def suite_of(configs):
    return tr.RankingCollection({f"m{n}": layout_cases.scoring(one) for n, one in enumerate(configs)})


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_of_values_that_are_not_read_equals_the_oracle(name, monkeypatch):
    leave_values_unread(monkeypatch)
    for layout, size, configs in (
        ("dense_masked", 20, FEW),
        ("dense_float_grades", 20, IN_TURN),
        ("catalogue_triples", 20, IN_TURN),
        ("labels", 20, IN_TURN),
    ):
        queries, batch = layout_cases.batch(layout, size)
        some = [config for config in configs_of(name, configs) if layout_cases.suits(config, layout)]
        if some:
            assert_all_equal(some, queries, [*suite_of(some).score(*batch.args, **batch.kwargs).values()], layout)


#: Every parameter, under one tie policy each. An upper bound is a number of the CPU on every device.
EVERY = [config for config in each_in_turn(MANY) if not config.for_oracle.get("bounded")]


@pytest.mark.parametrize("name", MEASURES)
def test_measures_read_no_value_and_have_the_same_numbers(name, monkeypatch):
    draw = torch.Generator().manual_seed(0)
    scores, grades = (torch.randint(low, 4, (3, 12), generator=draw) for low in (0, -1))  # few long lists
    batch, suite = (scores.double(), grades), suite_of(configs_of(name, EVERY))
    want = suite.score(tr.Ranking.from_scores(*batch))
    leave_values_unread(monkeypatch)
    ranking = tr.Ranking.from_scores(*batch)
    for key, values in suite.score(ranking).items():
        torch.testing.assert_close(values, want[key], equal_nan=True, rtol=1e-9, atol=1e-9)
    with NothingRead():
        suite.update(ranking)


@pytest.mark.parametrize("name", MEASURES)
def test_batches_without_queries_or_candidates(name, monkeypatch):
    configs = configs_of(name, EVERY)
    suite = suite_of(configs)
    for shapes in ((0, 3), (2, 0), (0, 0)), ((0, 3), (2, 0)):  # read, and unread
        for queries, candidates in shapes:
            scores = torch.zeros(queries, candidates)
            values = suite.score(tr.Ranking.from_scores(scores, scores)).values()
            assert_all_equal(configs, [Query((), ())] * queries, [*values], f"{queries} lists of {candidates}")
        leave_values_unread(monkeypatch)
