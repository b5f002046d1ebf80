"""What all plots share: styles of lines, names, legends, and rows of intervals."""

from dataclasses import replace

import pytest

import torchrank as tr
import torchrank.display as drawing
from tests.support.optional import pyplot
from torchrank.statistics.comparison import Row
from torchrank.statistics.paired import PairStatistics


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


def test_a_legend_aside_begins_at_the_upper_right_corner_of_the_axes():
    axes = drawing.axes_of(None)
    drawing.draw_lines(axes, {"a": ([0, 1], [0, 1])}, aside=True)
    axes.figure.draw_without_rendering()
    legend, frame = axes.get_legend().get_window_extent(), axes.get_window_extent()
    assert 0 < legend.x0 - frame.x1 < 0.1 * frame.width
    assert legend.y1 == pytest.approx(frame.y1, abs=1)
    drawing.draw_lines(axes, {"a": ([0, 1], [0, 1])})
    axes.figure.draw_without_rendering()
    assert axes.get_legend().get_window_extent().x1 < axes.get_window_extent().x1


@pytest.mark.parametrize("n", [1, 29, 57, 58, 59, 60, 61, 62, 89, 90, 1000])
def test_a_line_has_a_grid_and_a_mark_at_every_point_or_at_30_to_59(n):
    axes = pyplot.Figure().add_subplot()
    drawing.draw_lines(axes, {"a": (range(n), range(n))})
    marks = len(range(0, n, axes.lines[0].get_markevery()))
    assert marks == n < 60 or 30 <= marks < 60
    assert all(line.get_visible() for axis in (axes.xaxis, axes.yaxis) for line in axis.get_gridlines())


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


@pytest.mark.parametrize(("rows", "name"), [(1, "a"), (8, "system"), (8, "a system with a long name")])
def test_rows_and_names_make_figures_larger(rows, name):
    values = {f"{number}{end}": number for number in range(rows) for end in ("", "/low", "/high")}
    pair = PairStatistics("mrr", name, name, 8, 0.3, 0.4, 0.01, 7.0)
    ends = drawing.plot_ends(None, values, [*map(str, range(rows))], ("", "/low", "/high"), "x")
    shorter = Row(replace(pair, a="a", b="b"), 0.01, 0.01)
    forest = tr.Comparison((Row(pair, 0.01, 0.01), *[shorter] * (rows - 1))).forest()
    for (figure, axes), width in ((ends, 6), (forest, 4.5)):
        assert pyplot.fignum_exists(figure.number)
        figure.draw_without_rendering()
        inside = axes.get_window_extent()
        assert inside.height / figure.dpi == pytest.approx(0.3 * rows + 0.6, abs=0.4)
        assert inside.width / figure.dpi == pytest.approx(width, abs=0.5)
        assert all(line.get_visible() for line in axes.xaxis.get_gridlines())
        assert not any(line.get_visible() for line in axes.yaxis.get_gridlines())
        pyplot.close(figure)


def test_values_and_the_ends_of_their_lines_are_found_by_their_keys():
    results = {"mrr": 0.5, "mrr/low": 0.25, "mrr/high": 0.75, "map": 0.3, "map/low": 0.2, "map/high": 0.35}
    figure, axes = drawing.plot_ends(None, results, ["mrr", "map"], ("", "/low", "/high"), "90 % interval")
    assert axes.get_xlabel() == "90 % interval"
    assert axes.lines[0].get_xydata().tolist() == [[0.5, 0], [0.3, 1]]
    assert [segment[:, 0].tolist() for segment in axes.collections[0].get_segments()] == [[0.25, 0.75], [0.2, 0.35]]
    assert drawing.plot_ends(axes, results, ["mrr"], ("", "/low", "/high"), "") == (figure, axes)
    pyplot.close(figure)


def test_new_axes_have_their_size_and_pyplot_knows_only_managed_ones():
    pyplot.close("all")
    own = drawing.axes_of(None)
    assert own.figure.get_size_inches().tolist() == [6.4, 4.2]
    assert drawing.axes_of(own, 1, 1, managed=True) is own
    assert not pyplot.get_fignums()
    managed = drawing.axes_of(None, 3, 2, managed=True)
    assert managed.figure.get_size_inches().tolist() == [3, 2]
    assert [pyplot.figure(number) for number in pyplot.get_fignums()] == [managed.figure]
    assert all(axes.figure.get_constrained_layout() for axes in (own, managed))
    pyplot.close("all")


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


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("names", [("a", "b"), ("a system with a long name", "another system with a long name")])
def test_the_text_below_a_forest_is_within_its_figure(names):
    values = dict(zip(names, ([0.1, 0.5, 0.3, 0.2], [0.4, 0.7, 0.4, 0.6])))
    figure, axes = tr.compare(values).forest()
    figure.draw_without_rendering()
    box = axes.xaxis.label.get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    pyplot.close(figure)
