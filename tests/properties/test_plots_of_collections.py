"""Plots of a collection: one figure, in which every name can be read."""

import itertools
import warnings

import pytest
import torch
import torchmetrics

import torchrank as tr
from tests.support.optional import pyplot

SUITES = {
    3: {"_hidden": "ndcg@1", "cost $a$ in $, of thirty signs": "recall@10", "mrr_$": "mrr"},
    40: [f"{name}@{k}" for name in ("ndcg", "recall", "precision", "hitrate") for k in range(1, 11)],
}


@pytest.fixture(autouse=True)
def no_figure_before_and_behind():
    pyplot.close("all")
    yield
    pyplot.close("all")


def filled(metrics):
    """A collection, and its results of five batches."""
    generator = torch.Generator().manual_seed(0)
    suite = tr.RankingCollection(metrics)
    grades = torch.randint(0, 3, (5, 30, 20), generator=generator)
    scores = torch.rand(grades.shape, generator=generator)
    return suite, [suite(*batch) for batch in zip(scores, grades)]


def shown(figure, texts):
    """The boxes of texts, all within the figure and none on another."""
    figure.draw_without_rendering()
    boxes = [pyplot.Text.get_window_extent(text) for text in texts]  # without the line to it
    for box in boxes:
        assert box.width > 0
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    return boxes


@pytest.mark.parametrize("size", SUITES)
def test_values_stand_in_one_axes_beside_their_names_and_numbers(size):
    suite, _ = filled(SUITES[size])
    figure, axes = suite.plot()
    assert pyplot.get_fignums() == [figure.number]
    assert figure.axes == [axes]
    assert axes.get_legend() is None
    values = suite.compute()
    names = axes.get_yticklabels()
    assert [name.get_text() for name in names] == list(values)
    assert not any(name.get_parse_math() for name in names)
    assert [text.get_text() for text in axes.texts] == [f"{value.item():.4g}" for value in values.values()]
    for line, row, value in zip(axes.lines, axes.get_yticks(), values.values()):
        assert (line.get_xdata().item(), line.get_ydata()[0]) == (value.item(), row)
    inside = axes.get_window_extent()
    boxes = shown(figure, [*names, *axes.texts])
    assert all(box.x1 <= inside.x0 or box.x0 >= inside.x1 for box in boxes)
    bottom, top = axes.get_ylim()
    assert -1 < top < 0  # the first row is on top
    assert len(values) - 1 < bottom < len(values)
    assert inside.width > 5 * figure.dpi
    assert all(line.get_visible() for axis in (axes.xaxis, axes.yaxis) for line in axis.get_gridlines())


@pytest.mark.parametrize("size", SUITES)
def test_results_of_steps_are_lines_with_their_names_beside_the_axes(size):
    suite, results = filled(SUITES[size])
    figure, axes = suite.plot(results)
    assert pyplot.get_fignums() == [figure.number]
    assert figure.axes == [axes]
    names = axes.get_legend().get_texts()
    assert sorted(name.get_text() for name in names) == sorted(results[0])
    assert not any(name.get_parse_math() for name in names)
    for line, key in zip(axes.lines, results[0]):
        assert line.get_ydata() == pytest.approx([result[key].item() for result in results])
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    assert axes.get_xlabel() == "step"
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines}
    assert len(looks) == len(axes.lines)
    inside = axes.get_window_extent()
    assert all(box.x0 > inside.x1 for box in shown(figure, names))
    assert inside.width > 5 * figure.dpi


def test_measures_are_lines_over_k():
    cuts = (100, *range(1, 50))
    suite, _ = filled([*(f"ndcg@{k}" for k in cuts), "recall(normalize=min)@1,3", "mrr", "map"])
    suite.prefix = "val/"
    figure, axes = suite.plot(over_k=True)
    assert pyplot.get_fignums() == [figure.number]
    names = ["val/ndcg@k", "val/recall(normalize=min)@k", "val/mrr", "val/map"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == names
    values = {key: value.item() for key, value in suite.compute().items()}
    ndcg, recall, *levels = axes.lines
    assert list(ndcg.get_xdata()) == sorted(cuts)
    assert list(ndcg.get_ydata()) == [values[f"val/ndcg@{k}"] for k in sorted(cuts)]
    assert list(recall.get_ydata()) == [values[f"val/recall(normalize=min)@{k}"] for k in (1, 3)]
    assert [set(line.get_ydata()) for line in levels] == [{values["val/mrr"]}, {values["val/map"]}]
    assert [list(line.get_xdata()) for line in levels] == [[1, 100]] * 2
    assert axes.get_xlabel() == "k"
    again = suite.plot(suite.compute(), axes, over_k=True)
    assert again == (figure, axes)


def test_keys_of_ones_own_are_lines_over_k_by_their_labels():
    suite, _ = filled({"P_5": "precision@5", "P_10": "precision@10", "at 1@10": "ndcg@10", "at 1@1": "ndcg@1"})
    _, axes = suite.plot(over_k=True)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["at 1@k", "precision@k"]
    assert [list(line.get_xdata()) for line in axes.lines] == [[1, 10], [5, 10]]


def test_axes_that_are_given_are_drawn_in():
    suite, results = filled(SUITES[3])
    figure, axes = pyplot.subplots()
    for given in (None, results, results[0], {key: value.item() for key, value in results[0].items()}):
        assert suite.plot(given, axes) == suite.plot(given, axes, together=True) == (figure, axes)
    assert pyplot.get_fignums() == [figure.number]


def test_each_metric_has_axes_of_its_own_if_they_are_not_together():
    suite, results = filled({"a": "ndcg", "b": "mrr"})
    _, axes = pyplot.subplots(1, 2)
    for given in (None, results[0]):
        assert [one for _, one in suite.plot(given, axes.tolist())] == axes.tolist()
        drawn = suite.plot(given, together=False)
        assert len({one for _, one in drawn}) == len(drawn) == 2
        assert all(len(one.lines) == 1 for _, one in drawn)
    _, both = suite.plot(results[0], axes[0], together=True)
    assert both is axes[0]


def test_values_of_queries_are_marks_in_one_row():
    suite, results = filled(["mrr(aggregation=none)", "ndcg"])
    _, axes = suite.plot()
    assert list(axes.lines[0].get_xdata()) == suite.compute()["mrr(aggregation=none)"].tolist()
    assert axes.texts[0].get_text() == "150 values"
    assert [line.get_marker() for line in axes.lines] == ["|", "o"]
    for refused in (lambda: suite.plot(results), lambda: suite.plot(over_k=True)):
        with pytest.raises(ValueError, match="several of 'mrr"):
            refused()


def test_values_without_a_place_in_one_axes_are_refused():
    suite, results = filled(["prcurve@3", "ndcg@3"])
    with pytest.raises(ValueError, match="several of 'prcurve@3'"):
        suite.plot()
    with pytest.raises(ValueError, match="got a list of 5"):
        suite.plot(results, over_k=True)


@pytest.mark.parametrize("over_k", [False, True])
def test_ranks_beside_measures_up_to_1_are_named(over_k):
    suite, alone = tr.RankingCollection("mr, ndcg@2, kendalltau"), tr.RankingCollection("mr, dcg@2")
    with pytest.warns(UserWarning, match=r"^mr can exceed 1, .*; plot these in .* without the others$") as seen:
        suite.plot(dict.fromkeys(suite, torch.tensor(0.5)), over_k=over_k)
    assert [one.filename for one in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (alone, tr.RankingCollection("ndcg@2, kendalltau")):
            quiet.plot(dict.fromkeys(quiet, torch.tensor(0.5)), over_k=over_k)


SCORES = torch.tensor([[0.5, 0.5, 0.1], [0.9, 0.5, 0.1], [0.1, 0.2, 0.3], [0.4, 0.4, 0.4]])
GRADES = torch.tensor([[1, 0, 0], [0, 1, 1], [0, 2, 0], [0, 0, 1]])
WRAPPERS = {
    "sliced": (tr.Sliced("mrr, ndcg", ["new", "old"]), {"slices": torch.tensor([0, 0, 1, 1])}),
    "bootstrapped": (tr.Bootstrapped("mrr, ndcg", replicates=20), {"query_ids": torch.arange(4)}),
    "compared": (tr.Compared("mrr, ndcg", ["a", "b"]), {}),
    "per_query": (tr.PerQuery("mrr, ndcg"), {"query_ids": torch.arange(4)}),
    "tie_report": (tr.TieReport("mrr, ndcg"), {}),
}


def wrapped(name):
    metric, given = WRAPPERS[name]
    metric = metric.clone()
    metric.update({"a": SCORES, "b": -SCORES} if name == "compared" else SCORES, GRADES, **given)
    return metric


@pytest.mark.parametrize("name", ["sliced", "bootstrapped", "compared"])
def test_results_of_a_wrapper_are_rows_or_lines_over_a_list_of_results(name):
    metric = wrapped(name)
    values = metric.compute()
    _, axes = metric.plot(values)
    rows = [text.get_text() for text in axes.get_yticklabels()]
    if name == "bootstrapped":  # a row has a value and its interval
        assert rows == [key for key in values if not key.endswith(("/low", "/high"))]
    else:
        assert rows == list(values)
        drawn = {int(row): x for line in axes.lines for x, row in line.get_xydata()}
        assert [drawn[row] for row in range(len(rows))] == [value.item() for value in values.values()]
        assert [line.get_xydata()[:, 1].tolist() for line in axes.lines[:2]] == (
            [[0, 1, 2, 3], [4, 5, 6, 7]] if name == "sliced" else [[0, 1, 2], [3, 4, 5]]
        )  # a line, and so a colour, for each metric
    _, axes = metric.plot([values, values])
    assert [list(line.get_ydata()) for line in axes.lines] == [[value.item()] * 2 for value in values.values()]


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_draws_what_it_computes_in_the_axes_that_are_given(name):
    metric = wrapped(name)
    figure, axes = pyplot.subplots()
    assert metric.plot(ax=axes) == (figure, axes)
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert pyplot.get_fignums() == [figure.number]
    assert metric.plot()[0] is not figure
    if name == "compared":
        assert names == ["mrr: b - a", "ndcg: b - a"]
        drawn = {float(x) for line in axes.lines[1:] for x in line.get_xdata()}
        assert drawn == {row["difference"] for row in metric.comparison().table.rows}
    if name == "per_query":
        assert names == ["mrr", "ndcg"]
        assert [list(line.get_xdata()) for line in axes.lines] == [list(x) for x in metric.compute().columns.values()]
    if name == "tie_report":
        found = metric.compute()
        assert names == ["mrr", "ndcg"]
        assert list(axes.lines[0].get_xdata()) == [found[f"{key}/expected"].item() for key in names]
        ends = [segment[:, 0].tolist() for segment in axes.collections[0].get_segments()]
        assert ends == [[found[f"{key}/{end}"].item() for end in ("pessimistic", "optimistic")] for key in names]


def test_every_public_metric_draws():
    metrics = [one for one in vars(tr).values() if isinstance(one, type) and issubclass(one, torchmetrics.Metric)]
    assert [one.__name__ for one in metrics if one.plot is torchmetrics.Metric.plot] == []


def test_ticks_over_k_are_the_cutoffs_that_were_asked_for():
    suite, _ = filled(["ndcg@20,1,5", "recall@3", "mrr"])
    _, axes = suite.plot(over_k=True)
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1, 3, 5, 20]
    axes.figure.draw_without_rendering()
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "3", "5", "20"]
    assert not len(axes.get_xticks(minor=True))
    for single in ("ndcg@10", "mrr"):
        tr.RankingCollection(single).plot({single: 0.5}, over_k=True)
