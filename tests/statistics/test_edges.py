"""Wrong calls and edges of statistics: each message names the argument; values without a spread have no error."""

import inspect
import itertools
import math
import re

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import stats
from torchrank.display import Score, Table, finite, printable
from torchrank.statistics.comparison import cluster_numbers, comparison_of, match
from torchrank.statistics.intervals import check_share, queries_needed, t_cdf, t_quantile, welch, wilson
from torchrank.statistics.paired import statistics_of_runs

NAN = float("nan")
ONE = {"q1": 0.5, "q2": 0.25, "q3": 1.0}


class Keeps:
    def compute(self):
        return 1


@cases(
    ("call", "error", "message"),
    [
        (lambda: match([ONE, ONE]), ValueError, "Expected a dictionary of systems, got list; pass"),
        (lambda: match({"a": ONE}), ValueError, "two"),
        (lambda: match({"a": ONE, "b": ONE}, "dropp"), ValueError, "got 'dropp'; did you mean 'drop'"),
        (
            lambda: match({"a": ONE, "b": Keeps()}),
            TypeError,
            r"Expected 'b' to be values, got Keeps; pass its compute\(\)",
        ),
        (lambda: match({"a": [[0.5, 1.0]], "b": [1, 2]}), ValueError, "Expected at least two runs of 'a', got one"),
        (lambda: match({"a": [1.0], "b": [1, 2]}), ValueError, "Expected as many queries in every system"),
        (lambda: match({"a": ONE, "b": [1, 2, 3]}), ValueError, "Expected ids in all systems or in none"),
        (
            lambda: match({"a": tr.QueryTable([1], {}), "b": tr.QueryTable([1], {})}),
            ValueError,
            "Expected values of at least one measure, got none in 'a'",
        ),
        (
            lambda: match({"a": {"q1": 1.0}, "b": {"q2": 1.0}}, "drop"),
            ValueError,
            r"Expected queries that all systems have, got none \(a: .*q1.*; b: .*q2.*\); use the same ids",
        ),
        (
            lambda: match({"a": {"q1": 1.0}, "b": {"q2": 1.0}}),
            ValueError,
            "got none of 'q2' in 'a'; pass missing='zero'",
        ),
        (
            lambda: cluster_numbers({"q1": "x"}, None, 1),
            ValueError,
            "Expected clusters to be a sequence with the cluster",
        ),
        (lambda: cluster_numbers(["x"], ["q1"], 1), ValueError, "Expected clusters to be a dictionary"),
        (
            lambda: cluster_numbers({"q1": "x"}, ["q1", "q2"], 2),
            ValueError,
            "Expected a cluster for every query, got none",
        ),
        (lambda: cluster_numbers(["x"], None, 2), ValueError, "Expected clusters of 2 queries, got 1"),
        (
            lambda: cluster_numbers([["x"]], None, 1),
            ValueError,
            r"to be a text, a number or a tuple, got \['x'\] for query 0",
        ),
        (lambda: cluster_numbers([None], None, 1), ValueError, "got None for query 0"),
        (lambda: cluster_numbers([NAN], None, 1), ValueError, "got nan for query 0"),
        (
            lambda: queries_needed(1e-200, 1.0),
            ValueError,
            "Expected delta to be more than a tiny part of sd, 1, got 1e-200",
        ),
        (lambda: queries_needed(0, 1.0), ValueError, "Expected delta to be a difference other than 0, got 0"),
        (lambda: queries_needed(NAN, 1.0), ValueError, "Expected delta to be a difference other than 0"),
        (lambda: queries_needed(0.1, 0), ValueError, "Expected sd to be positive, got 0"),
        (lambda: queries_needed(0.1, math.inf), ValueError, "Expected sd to be positive, got inf"),
        (
            lambda: tr.compare({"a": ONE, "b": ONE}).forest(measure="mrrr"),
            ValueError,
            "measure to be one of 'value', got 'mrrr'",
        ),
        (
            lambda: tr.compare({"a": ONE, "b": ONE}, margin={"mrr": 0.1}),
            ValueError,
            "each label of margin to be one of 'value', got 'mrr'",
        ),
    ],
)
def test_wrong_calls_name_the_argument_and_the_way_out(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_margin_belongs_to_a_measure_that_is_compared():
    pair = tr.compare({"a": ONE, "b": {"q1": 0.75, "q2": 0.5, "q3": 0.25}}).rows[0].pair
    assert comparison_of([pair], margin={"value": 0.1}).rows[0].pair is pair
    with pytest.raises(ValueError, match="each label of margin to be one of 'value', got 'valu'; did you mean 'value'"):
        comparison_of([pair], margin={"value": 0.1, "valu": 0.1})
    with pytest.raises(ValueError, match="Expected margin to be positive"):
        comparison_of([pair], margin=-0.1)


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, NAN])
def test_a_share_is_strictly_between_0_and_1(level):
    for call in (
        lambda: check_share("level", level),
        lambda: wilson(0.5, 9, level),
        lambda: tr.compare({}, alpha=level),
    ):
        with pytest.raises(ValueError, match="Expected"):
            call()
    check_share("level", 1e-9)
    check_share("level", 1 - 1e-9)


def test_queries_that_a_system_lacks_are_dropped_or_count_0():
    a, b = {"q1": 1.0, "q2": 0.5}, {"q2": 0.25, "q3": 1.0}
    dropped, zero = (match({"a": a, "b": b}, missing) for missing in ("drop", "zero"))
    assert list(dropped.ids) == ["q1", "q2", "q3"]
    (row,) = tr.compare({"a": a, "b": b}, missing="drop").rows
    assert (row.pair.n, row.pair.difference) == (1, -0.25)
    assert zero.values["value"]["a"].tolist() == [[1], [0.5], [0]]
    assert zero.values["value"]["b"].tolist() == [[0], [0.25], [1]]
    assert cluster_numbers(["x", "y", "x", ("a", 1)], None, 4).tolist() == [0, 1, 0, 2]
    assert cluster_numbers({"q1": "x", "q2": "x"}, ["q1", "q2"], 2).tolist() == [0, 0]


def test_arrays_and_tensors_of_values_are_read_alike():
    values = [[0.5, 1.0, 0.25], [0.25, 0.5, 1.0]]
    for convert in (list, tuple, np.array, torch.tensor):
        found = tr.compare({name: convert(row) for name, row in zip("ab", values)})
        assert found.rows[0].pair.difference == pytest.approx(0)
        assert found.rows[0].pair.n == 3


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_welch_and_wilson_are_those_of_scipy_and_have_edges():
    draw = np.random.default_rng(0)
    a, b = draw.normal(0, 1, 8), draw.normal(0, 3, 21)
    error, df = welch([(stats.sem(x) ** 2, len(x)) for x in (a, b)])
    test = stats.ttest_ind(a, b, equal_var=False)
    assert (a.mean() - b.mean()) / error == pytest.approx(test.statistic)
    assert df == pytest.approx(test.df)
    assert welch([(0.04, 1), (0.0, 5)]) == (pytest.approx(0.2), 1)
    for parts in ([(0.0, 5), (0.0, 5)], [(NAN, 5), (0.1, 5)], []):
        assert all(map(math.isnan, welch(parts)))
    for hits, n in ((0, 2), (2, 2), (3, 20), (20, 20), (0, 9)):
        want = stats.binomtest(hits, n).proportion_ci(0.9, "wilson")
        assert wilson(hits / n, n, 0.9) == pytest.approx((want.low, want.high), abs=1e-12)
    assert wilson(0, 9)[0] == 0 == 1 - wilson(1, 9)[1]
    for p, n in ((0.5, 1), (0.5, 1.9), (-0.1, 9), (1.1, 9), (NAN, 9), (0.5, NAN)):
        assert all(map(math.isnan, wilson(p, n)))
    assert not math.isnan(wilson(0.5, 2 - 1e-12)[0])


@pytest.mark.parametrize("df", [0.5, 1, 2, 3.5, 30, 1e3, 1e7])
def test_the_distribution_of_t_is_that_of_scipy_also_far_out_and_at_0(df):
    for x in (0.0, 1e-9, 0.3, 1, 2.5, 40, 1e6):
        for sign in (1, -1):
            assert t_cdf(sign * x, df) == pytest.approx(stats.t.cdf(sign * x, df), rel=1e-8, abs=1e-300)
    for p in (0.5, 0.6, 0.9, 0.975, 0.9999, 0.1):
        assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-7, abs=1e-9)


def test_runs_without_a_spread_or_without_queries_have_no_degrees_of_their_own():
    runs = np.array([[0.5, 0.5, 0.5], [0.25, 0.25, 0.25]])
    pair = statistics_of_runs(runs, runs[:, :2] + 0.1)
    assert (pair.standard_error, pair.df) == (pytest.approx(0, abs=1e-12), 3)
    assert (pair.n, pair.difference, pair.wins, pair.losses) == (2, pytest.approx(0.1), 2, 0)
    nothing = statistics_of_runs(np.full((2, 3), NAN), runs)
    assert (nothing.n, nothing.df) == (0, 0)
    assert math.isnan(nothing.difference)
    one = statistics_of_runs(runs, np.array([[NAN, 1.0], [0.5, 0.75]]))
    assert (one.n, one.unpaired, one.mean_b) == (1, 1, 0.625)
    zero = statistics_of_runs(runs * 0, runs)
    assert math.isnan(zero.relative_standard_error)


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_tables_compare_by_values_formats_and_notes():
    table = Table({"a": [1, NAN], "b": ["x", None]}, {"a": ".1f"}, ["note"])
    assert table == Table({"a": [1, NAN], "b": ["x", None]}, {"a": ".1f"}, ["note"])
    for other in (
        Table({"b": ["x", None], "a": [1, NAN]}, {"a": ".1f"}, ["note"]),
        Table({"a": [1, NAN], "b": ["x", None]}, {"a": ".2f"}, ["note"]),
        Table({"a": [1, NAN], "b": ["x", None]}, {"a": ".1f"}),
        "table",
        None,
    ):
        assert table != other
    assert table.__eq__("table") is NotImplemented
    assert table.without_notes(Table({}, notes=["note", "more"])).notes == ()
    assert table.without_notes(Table({}, notes=["more"])).notes == ("note",)
    assert table.with_notes("x").notes == ("x",)
    with pytest.raises(
        ValueError, match=r"Expected columns of equal length, got \{'a': 1, 'b': 2\}; fill gaps with None"
    ):
        Table({"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match=r"Expected formats of columns, got one for \['c'\]; drop it"):
        Table({"a": [1]}, {"c": ".1f"})
    with pytest.raises(KeyError, match="Expected a column of a, b, got 'c'"):
        table["c"]
    assert str(table) == "  a  b\n1.0  x\n  -  -\nnote" or "1" in str(table)
    assert Table.of_rows([], columns=("a", "b")).columns == ("a", "b")
    assert len(Table({})) == 0
    assert table.widths == [
        max(map(len, cells)) for cells in zip(*(line.split() for line in str(table).split("\n")[:3]))
    ]


def test_texts_of_cells_command_nothing_and_numbers_of_json_are_finite():
    assert printable("a\tb\nc\x1b", "\t\n") == "a\tb\nc\\x1b"
    assert printable("a\tb\nc") == "a\\tb\\nc"
    assert [finite(value) for value in (1.5, NAN, math.inf, -math.inf, 3, "x", None)] == [
        1.5,
        None,
        None,
        None,
        3,
        "x",
        None,
    ]
    assert repr(Score(0.5, "ᵃ")) == "0.5ᵃ"
    assert (Score(0.5).marks, Score(0.5).best) == ("", False)
    assert type(finite(Score(0.5, "ᵃ"))) is float


@pytest.mark.parametrize("n", [1, 2, 5, 14])
def test_few_differences_are_all_enumerated_by_the_randomization_test(n):
    draw = np.random.default_rng(n)
    differences = draw.normal(0.3, 1, n)
    found = tr.compare({"a": np.zeros(n + 1), "b": [*differences, 0.0]}, test="randomization").rows[0]
    signs = np.array([[1]]) if n == 0 else np.array(list(itertools.product([1, -1], repeat=n)))
    extreme = np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12
    assert found.pair.n == n + 1
    assert tr.compare({"a": np.zeros(n + 1), "b": [*differences, 0.0]}, test="randomization").table["p"] == [
        extreme.mean()
    ]


def test_a_comparison_of_rows_alone_has_the_defaults_of_compare():
    rows = tr.compare({"a": ONE, "b": ONE}).rows
    alone, parameters = tr.Comparison(rows), inspect.signature(tr.compare).parameters
    assert alone.correction == "holm"  # that of None with a t test
    for name in ("test", "family", "alpha", "power", "margin", "baseline"):
        assert getattr(alone, name) == parameters[name].default, name
    assert (alone.level, alone.notes, alone.warnings) == (0.95, (), ())


def test_the_skewness_of_differences_is_that_of_scipy():
    draw = np.random.default_rng(3)
    a, b = draw.normal(0, 1, 30), draw.gamma(1, 1, 30)
    pair = tr.compare({"a": a, "b": b}).rows[0].pair
    assert pair.skewness == pytest.approx(stats.skew(b - a))
    assert pair.sd == pytest.approx(np.std(b - a, ddof=1))
    assert pair.relative_standard_error == pytest.approx(stats.sem(b - b.mean() / a.mean() * a) / abs(a.mean()))
    assert math.isnan(tr.compare({"a": a, "b": a + 1}).rows[0].pair.skewness)


def test_equal_neighbours_of_the_first_column_are_one_cell_of_a_grouped_table():
    table = Table({"measure": ["mrr", "mrr", "map"], "run": ["a", "b", "b"], "value": [0.5, 1.0, 0.25]})
    for grouped in (False, True):
        text = table.to_html(grouped=grouped)
        assert text.count("<tbody>") == (2 if grouped else 1)
        assert text.count("<tr>") == 4
        assert re.findall(r'rowspan="(\d+)">(\w+)<', text) == ([("2", "mrr"), ("1", "map")] if grouped else [])
        assert re.findall(r'<th scope="row"[^>]*>(\w+)<', text) == (
            ["a", "b", "b"] if grouped else ["mrr", "mrr", "map"]
        )
    assert Table({"a": []}).to_html(grouped=True).count("<tbody>") == 1
    assert 'id="x&amp;y"' in table.to_html("x&y") or "x&amp;y" in table.to_html("x&y")
