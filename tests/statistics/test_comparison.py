import json
import math
import string
import sys
from dataclasses import replace

import numpy as np
import pytest

import torchrank as tr
from tests.support.optional import by_scipy, pyplot
from tests.support.system_values import Columns, named, values
from torchrank.cli import main
from torchrank.display import SUPERSCRIPTS
from torchrank.statistics import comparison
from torchrank.statistics.comparison import COLUMNS, Column, Comparison, Row, compare
from torchrank.statistics.paired import PairStatistics


def two_measures():
    return {
        name: Columns(range(60), {"ndcg@10": column, "mr": 10 - column}, {"mr": False})
        for name, column in named().items()
    }


def test_the_family_of_the_correction_is_the_measure_or_everything():
    each, joint = compare(two_measures()), compare(two_measures(), family="all")
    p = each.table["p"]
    assert each.table["p_corrected"][:3] == pytest.approx(stats_holm(p[:3]))
    assert joint.table["p_corrected"] == pytest.approx(stats_holm(p))
    assert "holm over 3 pairs, for each measure" in str(each)
    assert "holm over 3 pairs x 2 measures" in str(joint)


def stats_holm(p):
    # by definition: the largest over all smaller p-values, each times the number of p-values from it on
    ordered = sorted(p)
    return [min(1.0, max((len(p) - i) * q for i, q in enumerate(ordered) if q <= own)) for own in p]


def test_the_corrected_p_decides():
    systems = named(60, 4, step=0.0125, seed=6)
    rows = compare(systems).table.rows
    unclear = [row for row in rows if row["p"] <= 0.05 < row["p_corrected"]]
    assert unclear
    assert all(row["winner"] is None for row in unclear)
    alone = [row["winner"] for row in compare(systems, correction="none").table.rows if row["p"] <= 0.05]
    assert len(alone) >= len(unclear)
    assert None not in alone


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


@pytest.mark.parametrize("alpha", [0.05, 0.01])
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


def test_a_margin_adds_two_p_values_and_two_verdicts():
    plain, margin = (compare(named(), margin=margin).table.columns for margin in (None, 0.1))
    assert [name for name in margin if name not in plain] == ["p_equivalent", "equivalent", "p_not_worse", "not_worse"]


@pytest.mark.parametrize("count", [24, 25, 26])
def test_up_to_25_systems_are_marked_by_letters(count):
    noise = np.random.default_rng(0).normal(0, 1e-3, (count, 3))
    systems = {f"s{i:02}": i + noise[i] for i in range(count)}
    board = compare(systems, correction="none").leaderboard()
    letters = [mark for mark in string.ascii_lowercase if mark != "q"]
    marks = [str(i + 1) for i in range(count)] if count > 25 else letters[:count]
    assert board[""] == marks
    beaten = [SUPERSCRIPTS.get(mark, mark) for mark in board["value"][-1].marks]
    assert "".join(beaten) == (" " if count > 25 else "").join(marks[:-1])


def test_many_systems_are_marked_by_numbers():
    systems = {f"s{i}": column for i, column in enumerate(values(30, 27, step=0.05).T)}
    board = compare(systems, baseline="s0").leaderboard()
    assert board[""][26] == "27"
    assert board["value"][26].marks.endswith("¹")


@pytest.mark.parametrize(
    "options", [{}, {"margin": 0.05}, *by_scipy([{"test": "sign", "baseline": "a"}]), {"margin": {"mr": 0.1}}]
)
def test_a_comparison_survives_json(options):
    systems = two_measures()
    systems["b"].columns["mr"] = systems["a"].columns["mr"].copy()  # identical: its interval is missing
    compared = compare(systems, **options)
    read = Comparison.from_dict(json.loads(compared.to_json()))
    assert read == compared
    assert str(read) == str(compared)
    assert read.table == compared.table
    assert hash(read) == hash(compared)
    assert compared != compare(systems, alpha=0.01)


def test_an_incomplete_dictionary_is_an_error():
    given = compare(named()).to_dict()
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
    pytest.importorskip("pandas")
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


def test_missing_matplotlib_is_named(monkeypatch):
    compared = compare(named())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install matplotlib` .*'plot'"):
        compared.forest()


def test_one_entry_is_a_new_column_of_tables_the_report_and_the_help(monkeypatch, capsys):
    column = Column("gain", "difference in the better direction", "+.2f", head="Gain", legend="better is larger")
    monkeypatch.setattr(comparison, "COLUMNS", (*COLUMNS, column))
    runs = {"x": {"q1": {"a": 2.0, "b": 1.0}, "q2": {"c": 1.0}}, "y": {"q1": {"b": 2.0, "a": 1.0}, "q2": {"c": 1.0}}}
    found = tr.evaluate({"q1": {"a": 1}, "q2": {"c": 1}}, runs, "mrr")
    assert found.compare().table["gain"] == [-0.25]
    assert repr(found.compare()).splitlines()[0].endswith("gain")
    assert json.loads(found.compare().to_json())["rows"][0]["gain"] == -0.25
    page = found.to_html()
    assert ">Gain</th>" in page
    assert ">-0.25</td>" in page
    assert "<dt>gain</dt><dd>better is larger</dd>" in page
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    assert "  gain         difference in the better direction\n" in capsys.readouterr().out


def test_the_printed_columns_are_the_main_ones():
    table = compare(named(40, 3), margin=0.02)
    hidden = {"relative", "relative_low", "relative_high", "better", "sd", "detectable", "p_equivalent", "p_not_worse"}
    assert list(table.printed.columns) == [name for name in table.table.columns if name not in {*hidden, "unpaired"}]


def test_what_is_not_given_of_a_pair_is_0_or_unknown():
    pair = PairStatistics("mrr", "a", "b", 80, 0.3, 0.4, 0.01, 79.0)
    assert (pair.wins, pair.ties, pair.losses, pair.unpaired, pair.higher_is_better) == (0, 0, 0, 0, True)
    assert all(map(math.isnan, (pair.sd, pair.relative_standard_error, pair.skewness, pair.effective)))
