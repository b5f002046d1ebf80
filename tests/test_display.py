"""Tables of results, and what all plots share: styles of lines, names, legends, and rows of intervals."""

import json
import math
import re
import sys

import numpy as np
import pytest
import torch

import torchrank.display as drawing
from tests.support.optional import pyplot
from torchrank.display import Score, Table, finite, printable


def example():
    return Table(
        {"measure": ["ndcg@10", "mr<1>|x"], "value": [0.25, float("nan")], "queries": [3, 12000]},
        formats={"value": ".2%"},
        notes=["2 rows & more"],
    )


def test_text_aligns_numbers_to_the_right_and_marks_missing_ones():
    assert str(example()).split("\n") == [
        "measure   value  queries",
        "ndcg@10  25.00%        3",
        "mr<1>|x       -    12000",
        "2 rows & more",
    ]


def test_rows_are_dictionaries_and_columns_are_lists():
    table = example()
    assert len(table) == 2
    assert table.rows[0] == {"measure": "ndcg@10", "value": 0.25, "queries": 3}
    assert [row["queries"] for row in table] == table["queries"] == [3, 12000]
    assert "value" in table
    assert table.columns == ("measure", "value", "queries")


def test_a_returned_list_does_not_change_the_table():
    table, given = example(), [1, 2]
    table["queries"].append(5)
    table.rows[0]["queries"] = 7
    assert table == example()
    other = Table({"a": given})
    given.append(3)
    assert other["a"] == [1, 2]


def test_numbers_of_numpy_and_torch_become_numbers_of_python():
    table = Table({"a": [np.float64(0.5), torch.tensor(2.0)], "b": np.arange(2)})
    assert table.to_dict() == {"a": [0.5, 2.0], "b": [0, 1]}
    assert [type(v) for v in table["a"] + table["b"]] == [float, float, int, int]


def test_numbers_beside_missing_ones_stand_at_the_right():
    assert str(Table({"some": [None, 0.5]})).split("\n") == ["  some", "     -", "0.5000"]
    assert str(Table({"some": ["-", "0.5000"]})).split("\n") == ["some", "-", "0.5000"]


def test_truth_is_shown_in_words():
    assert str(Table({"a": [True, False, None]})).split() == ["a", "yes", "no", "-"]


def test_tables_are_equal_if_their_values_formats_and_notes_are():
    assert example() == example()
    assert example() != Table(example().to_dict())
    assert Table({"a": [1], "b": [2]}) != Table({"b": [2], "a": [1]})
    assert Table({"a": [1]}) != Table({"a": [2]})


def test_json_has_null_for_a_missing_number():
    table = Table({"value": [0.5, float("nan"), math.inf]})
    assert json.loads(table.to_json()) == {"value": [0.5, None, None]}
    assert "inf" in str(table)


def test_html_is_escaped():
    page = example()._repr_html_()
    assert "mr&lt;1&gt;|x" in page
    assert "2 rows &amp; more" in page
    assert page.count("<tr>") == 3


def test_a_bar_in_a_name_does_not_split_a_markdown_cell():
    lines = example().to_markdown().split("\n")
    assert lines[1] == "| --- | ---: | ---: |"
    assert lines[3] == r"| mr<1>\|x | - | 12000 |"


def test_latex_escapes_its_special_characters_and_raises_the_marks_of_systems():
    text = Table({"a_b": ["50% & #1", "0.412ᵃᵇ", "x^2~{\\}<"]}).to_latex()
    assert r"a\_b \\" in text
    assert r"50\% \& \#1 \\" in text
    assert r"0.412$^{ab}$ \\" in text
    assert r"x\textasciicircum{}2\textasciitilde{}\{\textbackslash{}\}\textless{} \\" in text


def test_csv_keeps_all_digits_and_quotes_commas(tmp_path):
    table, file = Table({"a": ["x,y", 'q"'], "b": [1 / 3, float("nan")]}), tmp_path / "table.csv"
    assert table.to_csv() == table.to_csv(file) == (f'a,b\n"x,y",{1 / 3!r}\n"q""",\n')
    assert file.read_bytes().decode() == table.to_csv()


def test_digits_of_numbers_with_marks_are_below_each_other_in_text():
    table = Table({"mrr": [Score(0.5, "ᵃᵇ", best=True), Score(0.25, "ᵃ"), 3]})
    assert str(table) == "     mrr\n0.5000ᵃᵇ\n0.2500ᵃ\n     3"
    assert " <" not in table.to_html()


def test_pandas_gets_the_same_columns():
    pandas = pytest.importorskip("pandas")
    frame = example().to_pandas()
    assert list(frame.columns) == ["measure", "value", "queries"]
    assert frame["queries"].tolist() == [3, 12000]
    assert frame["value"].isna().tolist() == [False, True]
    assert isinstance(frame, pandas.DataFrame)


def test_polars_gets_the_same_columns():
    pytest.importorskip("polars")
    assert example().to_polars()["queries"].to_list() == [3, 12000]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named_with_the_way_out(monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=f"pip install {library}"):
        getattr(example(), f"to_{library}")()


def test_wrong_columns_and_formats_are_errors():
    with pytest.raises(ValueError, match=r"equal length, got \{'a': 1, 'b': 2\}"):
        Table({"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match="got one for \\['c'\\]"):
        Table({"a": [1]}, formats={"c": ".2f"})
    with pytest.raises(KeyError, match="did you mean 'measure'"):
        example()["mesure"]


def test_a_table_without_rows_has_its_head():
    assert str(Table({"a": [], "b": []})) == "a  b"
    assert Table({"a": []}).to_markdown() == "| a |\n| ---: |"
    assert len(Table({})) == 0
    assert str(Table({})) == ""


def test_many_lines_differ_and_the_first_ones_in_every_respect():
    styles = [drawing.style(number) for number in range(140)]
    assert len({tuple(style.values()) for style in styles}) == 140
    first = styles[: min(map(len, (drawing.COLOURS, drawing.LINES, drawing.MARKS)))]
    assert all(len({style[part] for style in first}) == len(first) for part in ("color", "linestyle", "marker"))


@pytest.mark.parametrize("most", [4, 21, 40])
def test_long_names_lose_their_middle_only(most):
    name = "".join(map(str, range(100)))
    for length in range(1, 100):
        short = drawing.shortened(name[:length], most)
        begin, cut, end = short.partition("…")
        assert len(short) <= most
        assert bool(cut) == (length > most)
        assert name[:length].startswith(begin)
        assert name[:length].endswith(end)
        assert not cut or 0 <= most - len(short) <= 1
        assert not cut or len(begin) == len(end)
    assert drawing.shortened("a\nb  c") == "a b c"
    assert drawing.shortened(name) == drawing.shortened(name, 40)


@pytest.mark.parametrize(
    ("names", "beside", "columns"),
    [
        (["a"] * 6, False, 1),
        (["a"] * 7, True, 1),
        (["a" * 24, "b"], False, 1),
        (["a" * 25, "b"], True, 1),
        (["a"] * 60, True, 3),
        (["a"] * 61, True, 4),
    ],
)
def test_a_legend_with_long_or_many_names_is_beside_the_axes(names, beside, columns):
    axes = pyplot.Figure().add_subplot()
    lines = [axes.plot([0, 1], [0, 1])[0] for _ in names]
    drawing.add_legend(axes, lines, names)
    legend = axes.get_legend()
    assert not legend.get_frame_on()
    assert [text.get_text() for text in legend.get_texts()] == names
    assert not any(text.get_parse_math() for text in legend.get_texts())
    assert (legend.get_bbox_to_anchor().x0 > axes.bbox.x1) == beside
    assert legend._ncols == columns
    room, width = drawing.room_for(names), pytest.approx(columns * (0.55 + 0.07 * len(names[0])))
    assert room == (width if beside else 0)
    assert drawing.room_for(names, aside=True) == width


def test_only_runs_with_names_have_a_legend():
    for names, shown in (([], False), (["run"], False), (["bm25"], True), (["run", "bm25"], True)):
        axes = pyplot.Figure().add_subplot()
        drawing.add_legend(axes, [axes.plot([0, 1], [0, 1])[0] for _ in names], names)
        assert (axes.get_legend() is not None) == shown
    assert drawing.room_for([], aside=True) == 0


@pytest.mark.parametrize("count", [0, 1, 2, 8, 9])
def test_up_to_8_cutoffs_are_ticks_of_a_logarithmic_axis(count):
    cutoffs, axes = [3, 7, 30, 60, 90, 110, 130, 170, 190][:count], pyplot.Figure().add_subplot()
    axes.plot([1, 200], [0, 1])
    drawing.log_axis(axes, cutoffs)
    low, high = axes.get_xlim()
    assert axes.get_xscale() == "log"
    ticks = cutoffs if 0 < count <= 8 else [1, 2, 5, 10, 20, 50, 100, 200]
    assert [round(tick) for tick in axes.get_xticks() if low <= tick <= high] == ticks
    assert len(axes.get_xticks(minor=True)) == 0
    if count == 1:
        assert (low, high) == (1.5, 6)
    texts = [axes.xaxis.get_major_formatter()(k) for k in (5, 12_000, 999_999, 1_000_000, 1_500_000)]
    assert texts == ["5", "12,000", "999,999", "1e+06", "1.5e+06"]


def test_rows_of_intervals_are_from_top_to_bottom_and_hollow_where_they_are_not_filled():
    axes = pyplot.Figure().add_subplot()
    drawing.draw_intervals(axes, ["$a", "b", "c"], [0.1, 0.2, 0.3], [0, 0.1, 0.2], [0.2, 0.3, 0.4], [True, False, True])
    (ranges,) = axes.collections
    assert [line.tolist() for line in ranges.get_segments()] == [
        [[low, row], [high, row]] for row, (low, high) in enumerate([(0, 0.2), (0.1, 0.3), (0.2, 0.4)])
    ]
    full, hollow = axes.lines
    assert full.get_xydata().tolist() == [[0.1, 0], [0.2, 1], [0.3, 2]]
    assert hollow.get_xydata().tolist() == [[0.2, 1]]
    assert hollow.get_markerfacecolor() == "white"
    assert [full.get_color(), hollow.get_color()] == [
        pyplot.matplotlib.colors.to_hex(ranges.get_color()[0]).upper()
    ] * 2
    assert [label.get_text() for label in axes.get_yticklabels()] == ["$a", "b", "c"]
    assert not any(label.get_parse_math() for label in axes.get_yticklabels())
    bottom, top = axes.get_ylim()
    assert 3 > bottom > 2 > 0 > top > -1


def test_titles_and_labels_are_no_mathematics():
    axes = pyplot.Figure().add_subplot()
    drawing.describe(axes, "$a$", "$b$", "$c$")
    texts = [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
    assert [text.get_text() for text in texts] == ["", "$a$", "$b$", "$c$"]
    assert not any(text.get_parse_math() for text in texts[1:])
    assert [side for side, spine in axes.spines.items() if spine.get_visible()] == ["left", "bottom"]


def test_texts_of_cells_command_nothing_and_numbers_of_json_are_finite():
    assert printable("a\tb\nc\x1b", "\t\n") == "a\tb\nc\\x1b"
    assert printable("a\tb\nc") == "a\\tb\\nc"
    assert [finite(value) for value in (1.5, math.nan, math.inf, -math.inf, 3, "x", None)] == [
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
