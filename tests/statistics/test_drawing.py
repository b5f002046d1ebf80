"""What all plots share: styles of lines, names, legends, and rows of intervals."""

import pytest

import torchrank as tr
from tests.support.optional import pyplot
from torchrank.statistics import drawing


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


@pytest.mark.parametrize(
    ("names", "beside", "columns"), [(["a"] * 2, False, 1), (["a" * 25, "b"], True, 1), (["a"] * 60, True, 3)]
)
def test_a_legend_with_long_or_many_names_is_beside_the_axes(names, beside, columns):
    axes = pyplot.Figure().add_subplot()
    lines = [axes.plot([0, 1], [0, 1])[0] for _ in names]
    drawing.add_legend(axes, lines, names)
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == names
    assert (legend.get_bbox_to_anchor().x0 > axes.bbox.x1) == beside
    assert legend._ncols == columns
    room = drawing.room_for(names)
    assert room == pytest.approx(columns * (0.55 + 0.07 * len(names[0])) if beside else 0)


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
    assert [label.get_text() for label in axes.get_yticklabels()] == ["$a", "b", "c"]
    bottom, top = axes.get_ylim()
    assert bottom > 2 > 0 > top


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
