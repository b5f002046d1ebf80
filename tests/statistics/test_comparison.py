"""Comparisons of systems: their forms, numbers, verdicts, notes, clusters and runs; and the best of checkpoints."""

import json
import math
import re
import statistics
import string
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import by_scipy, pyplot, stats
from tests.support.system_values import Columns, by_id, named, only, values
from torchrank.cli import main
from torchrank.display import SUPERSCRIPTS
from torchrank.statistics import comparison
from torchrank.statistics.comparison import COLUMNS, Comparison, Row, cluster_numbers, compare, comparison_of, match
from torchrank.statistics.intervals import queries_needed
from torchrank.statistics.paired import FAMILY_TESTS, PAIR_TESTS, PairStatistics, paired_statistics


class Lazy:
    """Values that are computed when they are read."""

    def __init__(self, column):
        self.column = column

    def compute(self):
        return self.column

    def __array__(self, dtype=None, copy=None):
        return np.array(self.column, dtype)


def test_every_form_of_a_system_gives_the_same_comparison():
    a, b = values(30, 2).T
    ids = [f"q{i}" for i in range(30)]
    plain = compare({"a": a, "b": b}).rows
    assert compare({"a": torch.tensor(a), "b": b.tolist()}).rows == plain
    assert compare({"a": list(torch.tensor(a)), "b": Lazy(b)}).rows == plain
    for form in (
        by_id,
        lambda column: {"value": by_id(column)},
        lambda column: {"value": torch.tensor(column)},
        lambda column: Columns(ids, {"value": torch.tensor(column)}),
    ):
        found = compare({"a": form(a), "b": form(b)}).table
        assert found["p"][0] == pytest.approx(plain[0].p)
        assert found["measure"] == ["value"]


@cases("test", ["t", "randomization", "bootstrap", "randomized-tukey"])
def test_the_order_of_the_queries_changes_nothing(test):
    a, b = values(40, 2, step=0.02).T
    shuffled = dict(reversed(by_id(b).items()))
    one = compare({"a": by_id(a), "b": by_id(b)}, test=test, replicates=200)
    assert compare({"a": by_id(a), "b": shuffled}, test=test, replicates=200) == one


def test_queries_that_a_system_lacks_are_an_error_that_names_three():
    a, b = (by_id(column) for column in values(30, 2).T)
    del b["q2"], b["q3"], b["q5"]
    with pytest.raises(ValueError, match=re.escape("got none of 'q2', 'q3', 'q5' in 'b'")):
        compare({"a": a, "b": b})
    del b["q7"]
    with pytest.raises(ValueError, match=re.escape("got none of 'q2', 'q3', 'q5' and 1 more in 'b'")):
        compare({"a": a, "b": b})
    dropped = compare({"a": a, "b": b}, missing="drop")
    assert dropped.table["n"] + dropped.table["unpaired"] == [26, 4]
    assert any("4 queries that some system lacks are left out" in note for note in dropped.notes)
    zero = only({"a": a, "b": b}, missing="zero")
    assert (zero["n"], zero["mean_b"]) == (30, pytest.approx(sum(b.values()) / 30))


X58, X59 = "x" * 58, "x" * 59


@cases(
    ("systems", "error", "message"),
    [
        ({"a": X58, "b": [0.1]}, TypeError, f"got '{X58}';"),
        ({"a": X59, "b": [0.1]}, TypeError, rf"got str '{'x' * 39}\.\.\.;"),
        ({"a": {1: 0.5, 2: 0.5}, "b": {"1": 0.5, "2": 0.5}}, ValueError, "got none of '1', '2' in 'a'"),
        ({"a": [0.1]}, ValueError, "at least two systems"),
        ({"a": [0.1, 0.2], "b": [0.1]}, ValueError, r"as many queries in every system, got {'a': 2, 'b': 1}"),
        ({"a": [0.1], "b": {"q1": 0.1}}, ValueError, "ids in all systems or in none"),
        ({"a": {"x": [0.1]}, "b": {"y": [0.1]}}, ValueError, "'x', 'y' in only one of 'a' and 'b'"),
        ({"a": "run.txt", "b": [0.1]}, TypeError, "got 'run.txt'"),
        ({"a": torch.zeros(2, 2), "b": [0.1]}, ValueError, r"got shape \[2, 2\]"),
        ({"a": pandas.DataFrame({"x": [0.1, 0.2]}), "b": [0.1, 0.2]}, ValueError, r"got shape \[2, 1\]"),
        ({"a": {"x": {"q": 0.1}, "y": [0.1]}, "b": [0.1]}, TypeError, "'a', 'x' to be values per query"),
        ({"a": [math.inf, 0.5], "b": [0.1, 0.2]}, ValueError, "finite or NaN"),
        ({"a": Columns([2, 1, 1], {"x": [0, 1, 1]}), "b": Columns([1], {"x": [0]})}, ValueError, "got 1 twice"),
        ({"a": Columns([1, 2, 3], {"x": [0, 1]}), "b": Columns([1, 2], {"x": [0, 1]})}, ValueError, "equal length"),
    ],
)
def test_systems_that_do_not_match_are_errors(systems, error, message):
    with pytest.raises(error, match=message):
        compare(systems)


@cases(
    ("options", "message"),
    [
        ({"test": "student"}, "Expected test to be one of t,"),
        ({"test": "wilcoxn"}, "did you mean 'wilcoxon'"),
        ({"test": "randomised-tukey"}, "did you mean 'randomized-tukey'"),
        ({"test": "permutation"}, "it is called 'randomization'"),
        ({"correction": "holms"}, "did you mean 'holm'"),
        ({"baseline": "bb"}, "Expected baseline to be one of 'a', 'b', 'c', got 'bb'"),
        ({"family": "al"}, "did you mean 'all'"),
        ({"missing": "skip"}, "missing to be one of 'error', 'drop', 'zero'"),
        ({"alpha": 5}, "alpha to be between 0 and 1, got 5"),
        ({"level": 95}, "level to be between 0 and 1, got 95"),
        ({"margin": 0}, "margin to be positive, got 0"),
        ({"test": "tukey", "correction": "holm"}, "p-values cover all pairs"),
        ({"test": "tukey", "family": "all"}, "p-values cover all pairs"),
        ({"higher_is_better": {"mr": False}}, "each label of higher_is_better to be one of 'value', got 'mr'"),
    ],
)
def test_wrong_arguments_are_errors(options, message):
    with pytest.raises(ValueError, match=message):
        compare(named(), **options)


@cases(("options", "level"), [({}, 0.95), ({"level": 0.5}, 0.5), ({"alpha": 0.01}, 0.99)])
def test_t_test_and_interval_are_those_of_scipy(options, level):
    a, b = values(systems=2).T
    row, reference = only({"a": a, "b": b}, **options), stats.ttest_rel(b, a)
    low, high = reference.confidence_interval(level)
    want = {"p": reference.pvalue, "low": low, "high": high, "mean_a": a.mean(), "mean_b": b.mean()}
    want |= {"difference": (b - a).mean(), "sd": (b - a).std(ddof=1)}
    assert {name: row[name] for name in want} == pytest.approx(want, rel=1e-9)


def test_the_effect_is_d_z_with_hedges_correction():
    a, b = values(12, 2).T
    d = b - a
    gamma = math.gamma(11 / 2) / (math.sqrt(11 / 2) * math.gamma(10 / 2))  # the exact correction for 11 degrees
    assert only({"a": a, "b": b})["effect"] == pytest.approx(d.mean() / d.std(ddof=1) * gamma, rel=1e-3)


def test_the_probability_of_being_better_is_the_posterior_of_the_mean_without_a_correction_of_its_variance():
    a, b = values(80, 2, step=0.01).T
    d = b - a
    posterior = stats.t.sf(0, 79, loc=d.mean(), scale=d.std(ddof=1) / math.sqrt(80))
    assert only({"a": a, "b": b})["better"] == pytest.approx(posterior, rel=1e-9)


def test_wins_count_queries_on_which_b_is_better_and_rounding_is_a_tie():
    for higher, wins, losses in ((True, 2, 1), (False, 1, 2)):
        row = only({"a": [0.1, 0.3, 0.5, 0.7], "b": [0.2, 0.1 + 0.2, 0.4, 0.9]}, higher_is_better=higher)
        assert (row["wins"], row["ties"], row["losses"]) == (wins, 1, losses)


@pytest.mark.xdist_group("statsmodels")  # imported once
def test_tests_of_equivalence_are_those_of_statsmodels():
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    a, b = values(90, 2, step=0.004).T
    row = only({"a": a, "b": b}, margin=0.03)
    p, lower, _ = weightstats.ttost_paired(b, a, -0.03, 0.03)
    assert row["p_equivalent"] == pytest.approx(p)
    assert row["p_not_worse"] == pytest.approx(lower[1])
    assert row["equivalent"] is (row["p_equivalent"] <= 0.05)


def test_not_worse_follows_the_direction_of_the_measure():
    systems = {"a": values(90, 1)[:, 0], "b": values(90, 1)[:, 0] + np.random.default_rng(2).normal(0.1, 0.02, 90)}
    for higher in (True, False):
        row = only(systems, margin=0.02, higher_is_better=higher)
        assert (row["not_worse"], row["equivalent"]) == (higher, False)


def test_each_measure_has_its_own_margin():
    systems = {name: {"ndcg": column, "mr": 100 * column} for name, column in named(200, 2, step=0).items()}
    both = compare(systems, margin={"ndcg": 0.05, "mr": 5.0}).table
    assert both["p_equivalent"][0] == pytest.approx(both["p_equivalent"][1])
    one = compare(systems, margin={"mr": 5.0})
    assert one.table["equivalent"] == [None, both["equivalent"][1]]
    with pytest.raises(ValueError, match="did you mean 'ndcg'"):
        compare(systems, margin={"ndgc": 0.1})


def test_statistics_of_pairs_and_their_values_make_the_same_comparison():
    a, b = values(50, 2).T
    assert comparison_of([paired_statistics(a, b)]) == compare({"a": a, "b": b})


@pytest.mark.parametrize("test", by_scipy([*PAIR_TESTS, *FAMILY_TESTS]))
def test_identical_systems_have_p_1_and_are_named(test):
    a = values(30, 1)[:, 0]
    compared = compare({"a": a, "b": a.copy(), "c": a + values(30, 1, seed=1)[:, 0]}, test=test, replicates=200)
    row = compared.table.rows[0]
    assert row["p"] == row["p_corrected"] == 1
    assert row["winner"] is None
    assert row["better"] == 0.5
    assert math.isnan(row["low"])
    assert any(note.startswith("identical") and "a, b" in note for note in compared.notes)


@cases("n", [0, 1])
@pytest.mark.parametrize("test", by_scipy([*PAIR_TESTS, *FAMILY_TESTS]))
def test_fewer_than_two_queries_have_no_verdict(n, test):
    compared = compare({"a": [0.1] * n, "b": [0.9] * n}, test=test, margin=0.1)
    row = compared.table.rows[0]
    assert row["n"] == n
    assert row["winner"] is None
    assert row["equivalent"] is None
    assert all(math.isnan(row[name]) for name in ("p", "p_corrected", "low", "high", "better", "detectable", "effect"))
    assert any("fewer than two queries" in note for note in compared.notes)


def test_a_constant_difference_has_no_interval_and_no_t_test_but_a_randomization_test():
    a = values(30, 1)[:, 0]
    compared = compare({"a": a, "b": a + 0.1})
    row = compared.table.rows[0]
    assert all(math.isnan(row[name]) for name in ("p", "low", "high", "better", "effect"))
    assert row["winner"] is None
    assert any("no spread" in note for note in compared.notes)
    assert only({"a": a, "b": a + 0.1}, test="randomization")["winner"] == "b"


def test_a_query_without_a_value_of_one_system_is_not_paired_but_counted():
    a, b = values(30, 2).T
    b[3] = a[4] = a[5] = b[5] = math.nan
    row = only({"a": a, "b": b})
    keep = ~np.isnan(a - b)
    assert (row["n"], row["unpaired"]) == (27, 2)
    assert row["p"] == pytest.approx(stats.ttest_rel(b[keep], a[keep]).pvalue)
    assert "unpaired" in str(compare({"a": a, "b": b}))
    p = only({"a": a, "b": b}, test="randomization")["p"]
    assert p == only({"a": a[keep], "b": b[keep]}, test="randomization")["p"] < 1


@pytest.mark.needs("scipy")
def test_tukey_takes_the_queries_that_all_systems_have_scored():
    systems = named(30, 3)
    systems["c"][:4] = math.nan
    for column in systems.values():
        column[9] = math.nan  # a query that no system has scored is not missing in any
    row = compare(systems, test="tukey").table.rows[0]
    assert (row["n"], row["unpaired"]) == (25, 4)
    complete = {name: np.delete(column, [0, 1, 2, 3, 9]) for name, column in systems.items()}
    assert row["p"] == compare(complete, test="tukey").table["p"][0]


def two_measures():
    columns = {name: {"ndcg@10": column, "mr": 10 - column} for name, column in named().items()}
    return {name: Columns(range(60), both, {"mr": False}) for name, both in columns.items()}


def test_the_family_of_the_correction_is_the_measure_or_everything():
    each, joint = compare(two_measures()), compare(two_measures(), family="all")
    p = each.table["p"]
    assert each.table["p_corrected"][:3] == pytest.approx(stats_holm(p[:3]))
    assert joint.table["p_corrected"] == pytest.approx(stats_holm(p))


def stats_holm(p):
    # by definition: the largest over all smaller p-values, each times the number of p-values from it on
    ordered = sorted(p)
    return [min(1.0, max((len(p) - i) * q for i, q in enumerate(ordered) if q <= own)) for own in p]


def test_a_baseline_is_compared_with_each_other_system():
    compared = compare(named(), baseline="b")
    assert list(zip(compared.table["a"], compared.table["b"])) == [("b", "a"), ("b", "c")]
    assert "holm over 2 pairs" in str(compared)
    assert compared.systems == ("b", "a", "c")


def test_directions_come_from_the_systems_and_turn_wins_and_winners():
    compared = compare(two_measures())
    for first, second in zip(compared.table.rows[:3], compared.table.rows[3:]):
        assert first["difference"] == pytest.approx(-second["difference"])
        for name in ("winner", "wins", "losses", "better"):
            assert first[name] == pytest.approx(second[name])
    assert "lower is better: mr" in str(compared)
    turned = compare(two_measures(), higher_is_better={"mr": True}).table.rows[5]
    assert turned["winner"] == "b"
    assert compared.table["winner"][5] == "c"


def test_the_leaderboard_marks_the_systems_that_each_one_beats():
    board = compare(named(200, 3, step=0.05)).leaderboard(digits=3)
    assert board[""] == ["a", "b", "c"]
    assert [cell.marks for cell in board["value"]] == ["", "ᵃ", "ᵃᵇ"]
    means = values(200, 3, step=0.05).mean(0)
    assert board["value"] == pytest.approx(means)
    best = f"{means[2]:.3f}"
    for text, bold in (
        (board.to_latex(), rf"\textbf{{{best}}}$^{{ab}}$"),
        (board.to_markdown(), f"**{best}**ᵃᵇ"),
        (board.to_html(), f"<b>{best}</b>ᵃᵇ"),
    ):
        assert bold in text
        assert text.count("<b>") + text.count("textbf") + text.count("**") // 2 == 1
        assert text.count("Bold: best.") == 1
    assert "Bold" not in str(board)
    lower = compare({"x": [3.0, 5.0], "y": [1.0, 2.0]}, higher_is_better=False).leaderboard()
    assert [cell.best for cell in lower["value"]] == [False, True]


def test_the_mean_of_a_system_is_that_of_its_pair_with_the_most_queries():
    systems = named(12, 3)
    systems["b"][:5] = systems["c"][2:4] = math.nan
    board = compare(systems).leaderboard()
    for name, mean in zip(board["system"], board["value"]):
        shared = [np.isfinite(systems[name] + column) for other, column in systems.items() if other != name]
        assert mean == pytest.approx(systems[name][max(shared, key=sum)].mean())


@cases("alpha", [0.05, 0.01])
def test_a_p_value_of_exactly_alpha_is_a_verdict(alpha):
    pair = PairStatistics("mrr", "a", "b", 80, 0.3, 0.4, 0.01, 79.0)
    for p, verdict in ((alpha, True), (math.nextafter(alpha, 1), False)):
        found = Comparison((Row(pair, p, p, p, p),), alpha=alpha, margin=0.2)
        (row,) = found.table
        assert (row["winner"], row["equivalent"], row["not_worse"]) == ("b" if verdict else None, verdict, verdict)
        assert found.decided is verdict
        assert Comparison((Row(replace(pair, mean_b=0.3), 1, 1, p, p),), alpha=alpha).decided is verdict


def test_a_rank_test_has_a_winner_unless_wins_contradict_the_means():
    for wins, winner in ((5, "b"), (4, "b"), (3, None)):
        pair = PairStatistics("mrr", "a", "b", 8, 0.3, 0.4, 0.01, 7.0, wins=wins, losses=8 - wins)
        (row,) = Comparison((Row(pair, 0.01, 0.01),), "sign").table
        assert row["winner"] == winner
    equal = PairStatistics("mrr", "a", "b", 8, 0.3, 0.3, 0.01, 7.0)
    assert Comparison((Row(equal, 0.01, 0.01),), "sign").table["winner"] == [None]


@cases(("count", "between"), [(25, ""), (26, " ")])
def test_up_to_25_systems_are_marked_by_letters_and_more_by_numbers(count, between):
    noise = np.random.default_rng(0).normal(0, 1e-3, (count, 3))
    board = compare({f"s{i:02}": i + noise[i] for i in range(count)}, correction="none").leaderboard()
    marks = [str(i + 1) for i in range(count)] if between else list(string.ascii_lowercase.replace("q", ""))
    assert board[""] == marks
    beaten = [SUPERSCRIPTS.get(mark, mark) for mark in board["value"][-1].marks]
    assert "".join(beaten) == between.join(marks[:-1])


@pytest.mark.parametrize(
    "options",
    [{}, {"test": "anytime", "margin": 0.2}, *by_scipy([{"test": "sign", "baseline": "a"}]), {"margin": {"mr": 0.1}}],
)
def test_a_comparison_survives_json_and_an_incomplete_one_is_an_error(options):
    systems = two_measures()
    systems["b"].columns["mr"] = systems["a"].columns["mr"].copy()  # identical: its interval is missing
    compared = compare(systems, **options)
    given = json.loads(compared.to_json())
    read = Comparison.from_dict(given)
    for of in (lambda one: one, str, hash, lambda one: one.table):
        assert of(read) == of(compared)
    assert compared != compare(systems, alpha=0.01)
    del given["rows"][0]["mean_a"]
    with pytest.raises(ValueError, match="'mean_a'"):
        Comparison.from_dict(given)


def test_every_format_has_the_names_and_the_notes():
    compared = compare({"x_1": values(9, 2)[:, 0], "<b>": values(9, 2)[:, 1]})
    assert "&lt;b&gt;" in compared._repr_html_()
    assert r"x\_1" in compared.to_latex()
    assert compared.to_csv().split("\n")[0].split(",") == [column.name for column in compared.columns]
    for text in (str(compared), compared.to_markdown(), compared.to_latex(), compared._repr_html_()):
        assert "holm over 1 pair" in text
        assert "few queries" in text
    assert compared.to_pandas()["wins"].tolist() == compared.table["wins"]


@pytest.mark.needs("matplotlib")
def test_the_forest_plot_has_an_interval_for_each_row_and_the_band_of_the_margin():
    compared = compare(two_measures(), margin=0.05, alpha=0.01, level=0.95)
    figure, axes = compared.forest()
    ends = [segment[:, 0].tolist() for segment in axes.collections[0].get_segments()]
    assert ends == [[row["low"], row["high"]] for row in compared.table.rows]
    assert [label.get_text() for label in axes.get_yticklabels()][3] == "mr: b - a (lower is better)"
    assert axes.patches
    assert any(list(line.get_xdata()) == [0, 0] and list(line.get_ydata()) == [0, 1] for line in axes.lines)
    white = [place for line in axes.lines if line.get_markerfacecolor() == "white" for place in line.get_ydata()]
    assert white == [place for place, row in enumerate(compared.table.rows) if row["winner"] is None]
    assert 0 < len(white) < len(compared.table.rows)
    assert compared.forest(axes) == (figure, axes)
    pyplot.close(figure)


def test_one_entry_is_a_new_column_of_tables_the_report_and_the_help(monkeypatch, capsys):
    column = comparison.Column("gain", "difference in the better direction", "+.2f", head="Gain", legend="is larger")
    monkeypatch.setattr(comparison, "COLUMNS", (*COLUMNS, column))
    runs = {"x": {"q1": {"a": 2.0, "b": 1.0}, "q2": {"c": 1.0}}, "y": {"q1": {"b": 2.0, "a": 1.0}, "q2": {"c": 1.0}}}
    found = tr.evaluate({"q1": {"a": 1}, "q2": {"c": 1}}, runs, "mrr")
    assert found.compare().table["gain"] == [-0.25]
    assert repr(found.compare()).splitlines()[0].endswith("gain")
    assert json.loads(found.compare().to_json())["rows"][0]["gain"] == -0.25
    page = found.to_html()
    assert ">Gain</th>" in page
    assert ">-0.25</td>" in page
    assert "<dt>gain</dt><dd>is larger</dd>" in page
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    assert "  gain         difference in the better direction\n" in capsys.readouterr().out


def test_the_printed_columns_are_the_main_ones_and_corrected_p_values_where_they_differ():
    two = compare(named(30, 2))
    assert ("p_corrected" in two.table.columns, "p_corrected" in two.printed.columns) == (True, False)
    table = compare(named(40, 3), margin=0.02)
    hidden = {"relative", "relative_low", "relative_high", "better", "sd", "detectable", "p_equivalent", "p_not_worse"}
    assert list(table.printed.columns) == [name for name in table.table.columns if name not in {*hidden, "unpaired"}]


def statistics_of(measure, n=100, difference=0.1, error=0.01, df=99.0, sd=0.1, wins=60, losses=40, **more):
    return PairStatistics(measure, "a", "b", n, 0.3, 0.3 + difference, error, df, sd, wins=wins, losses=losses, **more)


#: pairs of all kinds, named by what is said of them
PAIRS = [
    statistics_of("usual"),
    statistics_of("identical", difference=0.0, error=0.0, sd=0.0, wins=0, losses=0),
    statistics_of("identical, 2", 2, 0.0, 0.0, 1.0, math.nan, 0, 0),
    statistics_of("same, 2", 2, 0.1, 0.0, 1.0, math.nan, 2, 0),
    statistics_of("fewer, with a spread", 1, 0.1, math.nan, 0.0, 0.1, 1, 0),
    statistics_of("fewer, identical", 1, 0.0, math.nan, 0.0, math.nan, 0, 0),
    statistics_of("fewer, no query", 0, math.nan, math.nan, 0.0, math.nan, 0, 0),
    statistics_of("fewer, different", 1, 0.1, math.nan, 0.0, math.nan, 1, 0),
    statistics_of("fewer, one cluster", 30, 0.1, math.nan, 0.0, 0.1, 20, 10),
    statistics_of("same", 30, 0.1, 0.0, 29.0, 0.0, 30, 0),
    statistics_of("few", 2, df=1.0, wins=2, losses=0),
    statistics_of("few, 19", 19, skewness=9.0),
    statistics_of("20", 20),
    statistics_of("runs", 19, sd=math.nan),
    statistics_of("rare", skewness=-2.51),
    statistics_of("rare, 20", 20, skewness=1.2),
    statistics_of("not so rare", skewness=2.5),
    statistics_of("weight", effective=49.9),
    statistics_of("half the weight", effective=50.0),
    statistics_of("opposite", wins=49, losses=51),
    statistics_of("opposite, lower", wins=51, losses=49, higher_is_better=False),
    statistics_of("as many wins", wins=50, losses=50),
]

#: how a line begins, and which pairs it names
NOTES = {"identical on every": "identical", "fewer than two": "fewer", "the same difference": "same"}
WARNINGS = {"a few queries make up": "rare", "few queries": "few", "a few queries have most": "weight"}
WARNINGS |= {"means and wins": "opposite"}


@cases("test", ["t", "sign", "wilcoxon", "randomization"])
def test_each_note_and_warning_names_the_pairs_that_it_concerns(test):
    for one in PAIRS:
        found = comparison_of([one], test=test)
        kind = one.measure.split(",")[0]
        for lines, texts, unsaid in (
            (found.notes[1:], NOTES, {}),
            (found.warnings, WARNINGS, "rare" if test in ("sign", "wilcoxon") else "opposite"),
        ):
            said = [line for line in lines if line.endswith(f"({one.measure}: a, b)")]
            wanted = [text for text, of in texts.items() if of == kind and of != unsaid]
            assert len(said) == len(wanted), one
            assert all(line.startswith(text) for line, text in zip(said, wanted))


@cases("count", [1, 3, 4, 9])
def test_a_note_names_up_to_three_pairs(count):
    equal = {"difference": 0.0, "error": 0.0, "wins": 0, "losses": 0}
    *_, note = comparison_of([statistics_of(f"m{i}", **equal) for i in range(count)]).notes
    named = "; ".join(f"m{i}: a, b" for i in range(min(count, 3)))
    assert note == f"identical on every query, p = 1 ({named}{f'; {count - 3} more' if count > 3 else ''})"


ONE_PAIR = "family='all' (--family all) corrects over the measures"


@cases(
    ("systems", "measures", "options", "said"),
    [
        (2, 1, {}, "holm over 1 pair"),
        (3, 1, {}, "holm over 3 pairs"),
        (3, 2, {}, "holm over 3 pairs, for each measure"),
        (3, 2, {"family": "all"}, "holm over 3 pairs x 2 measures"),
        (2, 2, {"family": "all"}, "holm over 1 pair x 2 measures"),
        (2, 1, {"family": "all"}, "holm over 1 pair"),
        (2, 2, {}, "p-values are not corrected, since each measure has one pair; " + ONE_PAIR),
        (2, 2, {"correction": "none"}, "p-values are not corrected"),
        (3, 1, {"test": "randomized-tukey"}, "p-values are valid over all pairs together"),
        (3, 2, {"test": "randomized-tukey"}, "p-values are valid over all pairs together, for each measure"),
    ],
)
def test_the_first_note_says_what_p_values_are_corrected_over(systems, measures, options, said):
    columns = {name: {f"m{i}": column for i in range(measures)} for name, column in named(30, systems).items()}
    found = compare(columns, replicates=99, **options)
    assert found.notes[0] == f"{options.get('test', 't')} test of b - a, 95 % t intervals; {said}"


def test_the_first_note_counts_the_pairs_without_a_test():
    found = comparison_of([statistics_of("m"), PairStatistics("m", "a", "c", 9, 0.3, 0.4, 0.0, 8.0, wins=9)])
    assert found.notes[0].endswith("; holm over 2 pairs (1 without a test not counted)")


@pytest.mark.parametrize("test", by_scipy(["t", "anytime", "sign", "wilcoxon"]))
def test_other_tests_are_explained(test):
    notes = " ".join(compare(named(30, 2), test=test).notes)
    assert ("confidence sequences" in notes) == ("valid at all looks" in notes) == (test == "anytime")
    assert ("t intervals" in notes) == (test != "anytime")
    assert (f"{test} tests " in notes) == (test in ("sign", "wilcoxon"))
    warnings = " ".join(compare(named(8, 2), test=test).warnings)
    assert ("confidence_sequences holds for any number" in warnings) == (test == "anytime")


@cases("margin", [0.1, {"x": 0.25, "y": 0.5}])
def test_margins_are_named_with_their_measures(margin):
    systems = {name: {"x": column, "y": column} for name, column in named(30, 2).items()}
    (note,) = (note for note in compare(systems, margin=margin).notes if note.startswith("margin"))
    assert note.startswith("margin 0.1:" if margin == 0.1 else "margin 0.25 x, 0.5 y:")
    assert not any(note.startswith("margin") for note in compare(systems).notes)


def test_the_largest_number_of_unpaired_queries_and_directions_are_named():
    systems = named(30, 3)
    systems["b"][:2], systems["c"][:5] = math.nan, math.nan
    notes = compare(systems, higher_is_better=False).notes
    assert any(re.match("up to 5 queries were scored by one system only", note) for note in notes)
    assert "lower is better: value" in notes
    notes = " ".join(compare({name: Columns(range(30), {"x": column}) for name, column in named(30, 2).items()}).notes)
    assert "lower is better" not in notes
    assert "one system only" not in notes


@pytest.mark.xdist_group("statsmodels")  # imported once
def test_standard_errors_of_clusters_are_those_of_statsmodels():
    linear = pytest.importorskip("statsmodels.regression.linear_model")
    a, b = values(200, 2).T
    users = np.random.default_rng(3).integers(0, 40, 200)
    fitted = linear.OLS(b - a, np.ones(200)).fit(
        cov_type="cluster", cov_kwds={"groups": users, "use_correction": False}, use_t=True
    )
    count = len(set(users))
    row = compare({"a": a, "b": b}, clusters=users).rows[0]
    assert row.pair.standard_error == pytest.approx(fitted.bse[0] * math.sqrt(count / (count - 1)))
    assert row.pair.df == count - 1


def test_randomization_flips_whole_clusters():
    a, b = values(40, 2).T
    users = np.arange(40) % 8
    sums = np.array([(b - a)[users == user].sum() for user in range(8)])
    signs = 1 - 2 * (np.arange(2**8)[:, None] >> np.arange(8) & 1)
    exact = (np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12).mean()
    assert only({"a": a, "b": b}, clusters=users, test="randomization")["p"] == pytest.approx(exact)


def test_clusters_are_given_by_id_where_systems_have_ids():
    a, b = values(40, 2).T
    users = {f"q{i}": f"user {i % 9}" for i in range(40)}
    named, plain = {"a": by_id(a), "b": by_id(b)}, {"a": a, "b": b}
    assert only(named, clusters=users)["p"] == pytest.approx(only(plain, clusters=torch.arange(40) % 9)["p"])
    for systems, clusters, test, message in (
        (named, {"q1": "user 1"}, "t", "got none for 'q0'"),
        (named, [0] * 40, "t", r"a dictionary \{id: cluster\}"),
        (plain, [0, 1, 2], "t", "clusters of 40 queries, got 3"),
        (plain, [0] * 40, "wilcoxon", "got test='wilcoxon'"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(systems, clusters=clusters, test=test)


@cases(("count", "warned"), [(29, True), (30, False)])
def test_a_comparison_of_clusters_names_their_number_and_size(count, warned):
    found = compare(named(60, 2), clusters=np.arange(60) * count // 60)
    assert f"standard errors of {count} clusters of {60 / count:.3g} queries on average" in found.notes
    assert any(warning.startswith(f"{count} clusters") for warning in found.warnings) == warned
    assert "standard errors of 0 clusters of 0 queries on average" in compare({"a": [], "b": []}, clusters=[]).notes


def test_several_runs_are_compared_by_welchs_test_of_their_means():
    rng = np.random.default_rng(5)
    base = values(100, 1)[:, 0]
    a = [torch.tensor(base + rng.normal(0, 0.01) + rng.normal(0, 0.05, 100)) for _ in range(4)]
    b = [torch.tensor(base + 0.02 + rng.normal(0, 0.02) + rng.normal(0, 0.05, 100)) for _ in range(6)]
    row = only({"a": a, "b": b})
    means = [[float(run.mean()) for run in runs] for runs in (a, b)]
    reference = stats.ttest_ind(means[1], means[0], equal_var=False)
    interval = reference.confidence_interval()
    assert row["p"] == pytest.approx(reference.pvalue)
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    assert row["n"] == 100
    assert "it speaks of methods" in str(compare({"a": a, "b": b}))
    assert "it speaks of methods" not in str(compare({"a": a[0], "b": b[0]}))
    errors = [stats.sem(x) for x in means]
    ratio = row["mean_b"] / row["mean_a"]  # its error by the delta method: relative errors add like independent ones
    relative = ratio * math.hypot(errors[0] / row["mean_a"], errors[1] / row["mean_b"])
    half = stats.t.ppf(0.975, reference.df) * relative
    assert (row["relative_low"], row["relative_high"]) == pytest.approx((ratio - 1 - half, ratio - 1 + half))


def test_runs_need_the_t_test_and_two_runs_of_every_system():
    a = list(values(30, 4).T)
    for runs, others, options, message in (
        (a[:2], a[2], {}, r"several runs of every system or of none, got \{'a': 2, 'b': 1\}"),
        (a[:2], a[2:], {"test": "sign"}, "test='t' with several runs"),
        (a[:2], a[2:], {"clusters": [0, 1] * 15}, "one run of each system"),
        (a[:1], a[2:], {}, "at least two runs of 'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            compare({"a": runs, "b": others}, **options)


ONE = {"q1": 0.5, "q2": 0.25, "q3": 1.0}


class Keeps:
    def compute(self):
        return 1


@cases(
    ("call", "error", "message"),
    [
        (lambda: match([ONE, ONE]), ValueError, "Expected a dictionary of systems, got list; pass"),
        (lambda: match({"a": ONE, "b": Keeps()}), TypeError, r"'b' to be values, got Keeps; pass its compute\(\)"),
        (lambda: match(dict.fromkeys("ab", tr.QueryTable([1], {}))), ValueError, "one measure, got none in 'a'"),
        (
            lambda: match({"a": {"q1": 1.0}, "b": {"q2": 1.0}}, "drop"),
            ValueError,
            r"queries that all systems have, got none \(a: .*q1.*; b: .*q2.*\); use the same ids",
        ),
        (lambda: cluster_numbers({"q1": "x"}, None, 1), ValueError, "clusters to be a sequence with the cluster"),
        (lambda: cluster_numbers([["x"]], None, 1), ValueError, r"a number or a tuple, got \['x'\] for query 0"),
        (lambda: cluster_numbers([None], None, 1), ValueError, "got None for query 0"),
        (lambda: cluster_numbers([math.nan], None, 1), ValueError, "got nan for query 0"),
        (lambda: queries_needed(1e-200, 1.0), ValueError, "delta to be more than a tiny part of sd, 1, got 1e-200"),
        (lambda: queries_needed(0, 1.0), ValueError, "Expected delta to be a difference other than 0, got 0"),
        (lambda: queries_needed(math.nan, 1.0), ValueError, "Expected delta to be a difference other than 0"),
        (lambda: queries_needed(0.1, 0), ValueError, "Expected sd to be positive, got 0"),
        (lambda: queries_needed(0.1, math.inf), ValueError, "Expected sd to be positive, got inf"),
        (lambda: tr.compare({"a": ONE, "b": ONE}).forest(measure="mrrr"), ValueError, "one of 'value', got 'mrrr'"),
        (lambda: tr.best_of({1: ONE}), ValueError, "two or more checkpoints"),
        (lambda: tr.best_of({1: ONE, 2: ONE}, level=95), ValueError, "level to be between 0 and 1"),
        (lambda: tr.best_of({1: ONE, 2: ONE}, replicates=0), ValueError, "replicates to be an integer >= 1"),
        (lambda: tr.best_of({1: {"mrr": [0.1]}, 2: {"map": [0.1]}}), ValueError, "same measures"),
    ],
)
def test_wrong_calls_name_the_argument_and_the_way_out(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_skewness_and_relative_differences_are_those_of_scipy():
    draw = np.random.default_rng(3)
    a, b = draw.normal(0, 1, 30), draw.gamma(1, 1, 30)
    pair = tr.compare({"a": a, "b": b}).rows[0].pair
    assert pair.skewness == pytest.approx(stats.skew(b - a))
    assert pair.sd == pytest.approx(np.std(b - a, ddof=1))
    ratio = b.mean() / a.mean()
    error = stats.sem(b - ratio * a) / abs(a.mean())
    assert pair.relative_standard_error == pytest.approx(error)
    row = only({"a": a, "b": b})
    ends = stats.t.interval(0.95, 29, ratio - 1, error)
    assert (row["relative"], row["relative_low"], row["relative_high"]) == pytest.approx((ratio - 1, *ends))
    assert math.isnan(tr.compare({"a": a, "b": a + 1}).rows[0].pair.skewness)
    of_zeros = only({"a": a * 0, "b": b})
    assert all(math.isnan(of_zeros[name]) for name in ("relative", "relative_low", "relative_high"))


EPOCHS = 20


@pytest.mark.parametrize(("first", "error"), [(0.5, 0.1), (0.3, 0.5)], ids=["all equal", "rising"])
def test_the_bias_is_what_the_choice_adds_and_the_interval_is_honest(first, error):
    draw, expected, found = np.random.default_rng(0), np.linspace(first, 0.5, EPOCHS), []
    for _ in range(150):
        values = expected[:, None] + draw.normal(0, 0.3, 150) + draw.normal(0, 0.2, (EPOCHS, 150))
        (row,) = tr.best_of(dict(enumerate(values)), replicates=200)
        truth = expected[row["best"]]
        found.append((row["value"] - truth, row["bias"], row["low"] <= truth <= row["high"]))
    luck, bias, inside = np.mean(found, axis=0)
    assert bias == pytest.approx(luck, rel=error, abs=0.004)
    assert inside >= 0.9  # 150 runs at 0.95


def test_the_bias_of_two_checkpoints_is_that_of_the_formula():
    values = np.random.default_rng(3).normal([[0.5], [0.56]], 0.2, (2, 25))
    means, draw = [statistics.fmean(x) for x in values], np.random.default_rng(4)
    luck = np.array([values[:, draw.integers(25, size=25)].mean(axis=1) - means for _ in range(8000)])
    noise = statistics.fmean(statistics.variance(pair) for pair in luck.tolist())
    assert 0 < noise < statistics.variance(means)
    shrunk = math.sqrt(1 - noise / statistics.variance(means))
    expected = [statistics.fmean(means) + shrunk * (mean - statistics.fmean(means)) for mean in means]
    bias = statistics.fmean(x[int(np.argmax(np.add(expected, x)))] for x in luck)
    (row,) = tr.best_of({"a": values[0], "b": values[1]}, replicates=8000)
    assert row["bias"] == pytest.approx(bias, rel=0.06)


def test_a_checkpoint_that_is_far_better_was_not_chosen_by_luck():
    draw = np.random.default_rng(0)
    values = draw.uniform(0, 0.1, (5, 300)) + np.array([0, 0, 0.5, 0, 0])[:, None]
    (row,) = tr.best_of(dict(zip("abcde", values)))
    assert row["best"] == "c"
    assert row["bias"] == pytest.approx(0, abs=1e-3)
    error = values[2].std(ddof=1) / math.sqrt(300)
    assert (row["high"] - row["low"]) / 2 == pytest.approx(1.96 * error, rel=0.1)
    (row,) = tr.best_of(dict(zip("abcde", values)), level=0.5, replicates=4000)
    for end, sign in (("low", -1), ("high", 1)):
        assert row[end] - row["value"] == pytest.approx(sign * 0.6745 * error, rel=0.15)


def test_tables_are_matched_by_id_and_lower_may_be_better():
    draw = np.random.default_rng(1)
    ids, ranks = np.arange(80), draw.integers(1, 30, (3, 80)) + 0.0
    order = draw.permutation(80)
    metrics = {"mr": tr.MR(), "mrr": tr.MRR()}
    tables = {}
    for epoch, x, at in zip((10, 20, 30), ranks, (ids, order, ids)):
        tables[epoch] = tr.QueryTable(at, {"mr": x[at], "mrr": 1 / x[at]}, metrics=metrics)
    found = tr.best_of(tables)
    mr, mrr = found
    assert mr["best"] == (10, 20, 30)[ranks.mean(axis=1).argmin()]
    assert mrr["best"] == (10, 20, 30)[(1 / ranks).mean(axis=1).argmax()]
    assert mr["bias"] < 0 < mrr["bias"]
    assert mr["value"] < mr["corrected"] == mr["value"] - mr["bias"]
    assert mr["low"] < mr["corrected"] < mr["high"]
    assert found == tr.best_of(tables)
    assert found != tr.best_of(tables, seed=1)
    assert tr.Table(found.to_dict()).columns == found.columns


def test_queries_that_a_checkpoint_skips_are_left_out():
    values = np.random.default_rng(2).uniform(0, 1, (3, 40))
    values[1, :5] = math.nan
    (row,) = tr.best_of(dict(enumerate(values)))
    assert row["queries"] == 35
    assert row["value"] == pytest.approx(values[:, 5:].mean(axis=1).max())
    dicts = {n: {f"q{i}": x for i, x in enumerate(column) if x == x} for n, column in enumerate(values)}
    assert next(iter(tr.best_of(dicts)))["value"] == pytest.approx(row["value"])


def test_identical_checkpoints_and_single_queries_have_no_bias():
    (row,) = tr.best_of({1: [0.1, 0.4, 0.3], 2: [0.1, 0.4, 0.3]}, replicates=20_000)
    assert row["bias"] == pytest.approx(0, abs=2e-3)
    (row,) = tr.best_of({1: [0.1], 2: [0.4]})
    assert (row["best"], row["value"]) == (2, 0.4)
    assert math.isnan(row["bias"])
    assert math.isnan(row["low"])


def test_weights_and_other_aggregations_are_warned_of():
    tables = {n: tr.QueryTable([1, 2, 3], {"mrr": x}, {"mrr": [1, 2, 1]}) for n, x in ((1, [1, 0, 1]), (2, [0, 0, 1]))}
    assert any("weights" in note for note in tr.best_of(tables).notes)
