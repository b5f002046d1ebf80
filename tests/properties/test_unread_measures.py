"""On an accelerator no shortcut depends on values, which are not read: measures have the same numbers."""

import pytest
import torch

import torchrank as tr
from tests.support import layout_cases
from tests.support.oracle_comparison import EACH, IN_TURN, MEASURES, assert_all_equal, configs_of
from tests.support.tie_orders import Query
from tests.support.unread import NothingRead, leave_values_unread
from torchrank.metrics import ComparingMetric


def suite_of(configs):
    return tr.RankingCollection({f"m{n}": layout_cases.scoring(one) for n, one in enumerate(configs)})


#: An upper bound is a number of the CPU on every device.
EVERY = [config for config in EACH if not config.for_oracle.get("bounded")]


@pytest.mark.parametrize("name", MEASURES)
def test_measures_read_no_value_and_have_the_same_numbers(name, monkeypatch):
    draw = torch.Generator().manual_seed(0)
    scores, grades = (torch.randint(low, 4, (3, 12), generator=draw) for low in (0, -1))  # few long lists
    configs = configs_of(name, EVERY)
    suite = suite_of(configs)
    suite.waits = False
    suite.update(tr.Ranking.from_scores(scores.double(), grades))
    wanted = [metric.sums for metric in suite.values()]
    suite.reset()
    leave_values_unread(monkeypatch)
    ranking = tr.Ranking.from_scores(scores.double(), grades)
    with NothingRead():
        suite.update(ranking)
    for config, metric, want in zip(configs, suite.values(), wanted):
        torch.testing.assert_close(metric.sums, want, rtol=1e-9, atol=1e-9, equal_nan=True, msg=str(config))
    suite.reset()


NONE = torch.zeros(0, dtype=torch.int64)
EMPTY = torch.zeros(2, 0)
#: scores, or ids, of lists without a column, all that can judge them, and what the oracle sees
COLUMNLESS = [(EMPTY, target, Query()) for target in (EMPTY, torch.tensor([-1, -1]), [NONE, NONE], (NONE, NONE))]
COLUMNLESS += [(EMPTY.long(), EMPTY.long(), Query()), (EMPTY.long(), torch.tensor([5, 6]), Query(missing=(1,)))]


@pytest.mark.parametrize("name", MEASURES)
def test_batches_without_queries_or_columns(name, monkeypatch):
    configs = configs_of(name, IN_TURN)
    suite, compares = suite_of(configs), issubclass(tr.RankingMetric.registry[name], ComparingMetric)
    for read in (True, False):
        for preds, target, query in COLUMNLESS:
            if preds.is_floating_point() or not compares:  # which takes no lists of ids
                assert_all_equal(configs, [query] * 2, [*suite.score(preds, target).values()], "lists without a column")
        assert_all_equal(configs, [], [*suite.score(torch.zeros(0, 3), torch.zeros(0, 3)).values()], "no lists")
        if read:
            leave_values_unread(monkeypatch)
