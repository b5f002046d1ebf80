"""On an accelerator no shortcut depends on values, which are not read: measures have the same numbers."""

import pytest

import torchrank as tr
from tests.support import layout_cases
from tests.support.oracle_comparison import FEW, IN_TURN, MEASURES, assert_all_equal, configs_of
from tests.support.unread import leave_values_unread


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
            suite = tr.RankingCollection({f"m{n}": layout_cases.scoring(one) for n, one in enumerate(some)})
            assert_all_equal(some, queries, [*suite.score(*batch.args, **batch.kwargs).values()], layout)
