"""Curves and plots: the numbers of plain Python, read back from the axes; and names, edges and figures."""

import itertools
import math
import random
import statistics

import pytest
import torch

import torchrank as tr
from tests.support.cases import cases
from tests.support.optional import pyplot, stats
from tests.support.system_values import evaluation_of
from torchrank.evaluation import plots

NAMES = ("_bm25", "cost_$x$ & $", "dense")


@pytest.fixture(autouse=True)
def no_figure_is_left_open():
    pyplot.close("all")
    yield
    assert pyplot.get_fignums() == []


def made(names=NAMES, seed=0, queries=25, documents=60):
    """Judgments, and runs without ties; the last query has nothing relevant, runs lack the first one."""
    draw = random.Random(seed)
    qrels = {f"q{q}": {f"d{d}": draw.randrange(3) for d in draw.sample(range(documents), 9)} for q in range(queries)}
    qrels[f"q{queries - 1}"] = {"d0": 0}
    runs = {name: {} for name in names}
    for name, q in itertools.product(names, range(1, queries)):
        found = draw.sample(range(documents), 40)
        runs[name][f"q{q}"] = {f"d{d}": qrels[f"q{q}"].get(f"d{d}", 0) * draw.random() + draw.random() for d in found}
    return qrels, runs


def grades(qrels, run):
    """For each judged query the grades of the list, best first, and all its positive grades."""
    lists = {}
    for query, judged in qrels.items():
        order = sorted(run.get(query, {}), key=lambda d: -run[query][d])
        lists[query] = [judged.get(d, 0) for d in order], [g for g in judged.values() if g > 0]
    return lists


def ndcg(listed, relevant, k):
    def dcg(gains):
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:k], 1))

    return dcg(listed) / dcg(sorted(relevant, reverse=True)) if relevant else 0.0


def interpolated(listed, relevant, recall):
    if not relevant:
        return 0.0
    needed = math.floor(recall * len(relevant) + 0.5)
    hits = list(itertools.accumulate(grade > 0 for grade in listed))
    return max((h / rank for rank, h in enumerate(hits, 1) if h >= needed), default=0.0)


def mean(qrels, run, value, inside=lambda query: True):
    return statistics.fmean(value(*one) for query, one in grades(qrels, run).items() if inside(query))


@pytest.fixture(scope="module")
def judged():
    return made()


@pytest.fixture(scope="module")
def found(judged):
    return tr.evaluate(*judged, "ndcg@10 mrr mr")


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


# ---- numbers ---------------------------------------------------------------------------------------------------------


@cases("measure", ["ndcg", "ndcg@10", tr.NDCG(top_k=3)])
def test_a_line_over_k_has_the_means_at_each_k(judged, found, measure):
    axes = found.plot_cutoffs(measure, cutoffs=[20, 1, 3])
    assert axes.get_xscale() == "log"
    assert axes.get_ylabel() == "mean ndcg@k over 25 queries"
    for line, run in zip(axes.lines, judged[1].values(), strict=True):
        wanted = [mean(judged[0], run, lambda *one, k=k: ndcg(*one, k)) for k in (1, 3, 20)]
        assert list(line.get_xdata()) == [1, 3, 20]
        assert list(line.get_ydata()) == pytest.approx(wanted, abs=1e-12)


def test_only_the_queries_that_count_are_in_curves(judged):
    qrels, runs = judged
    both = tr.evaluate(qrels, runs, "ndcg@10", queries="both")
    for curve, run in zip(both.over_cutoffs("ndcg", [4]), runs.values(), strict=True):
        assert curve.queries == 24
        assert curve.y[0] == pytest.approx(mean(qrels, run, lambda *one: ndcg(*one, 4), run.__contains__))
    curve = both.over_cutoffs("ndcg(empty_target_action=skip)", [4])[0]
    assert curve.queries == 23
    assert {len(ranking.num_candidates) for ranking in both.rankings.values()} == {24}


@cases("points", [11, 5])
def test_lines_over_recall_have_the_interpolated_precision(judged, found, points):
    axes = found.plot_precision_recall(points=points)
    recall = [point / (points - 1) for point in range(points)]
    for line, run in zip(axes.lines, judged[1].values(), strict=True):
        wanted = [mean(judged[0], run, lambda *one, r=r: interpolated(*one, r)) for r in recall]
        assert list(line.get_xdata()) == pytest.approx(recall)
        assert list(line.get_ydata()) == pytest.approx(wanted, abs=1e-12)


def shares(qrels, run, bins):
    """Percent of queries in each bin of first ranks, and without a hit."""
    lists = [one for one in grades(qrels, run).values() if one[1]]
    firsts = [next((rank for rank, grade in enumerate(listed, 1) if grade), math.inf) for listed, _ in lists]
    edges = [0, *bins, *([40] if bins[-1] < 40 else [])]
    counts = [sum(low < first <= high for first in firsts) for low, high in itertools.pairwise(edges)]
    return [100 * count / len(lists) for count in [*counts, firsts.count(math.inf)]]


def test_bars_of_ranks_have_the_shares_of_queries(judged, found):
    for bins in ([1, 2, 5, 10, 20, 40], [2, 40]):
        axes = found.plot_ranks(bins=None if len(bins) > 2 else bins)
        assert axes.get_xscale() == "log"
        assert axes.get_ylabel() == "share of 24 queries (%)"
        for bars, run in zip(axes.containers, judged[1].values(), strict=True):
            wanted = shares(judged[0], run, bins)
            assert [bar.get_height() for bar in bars] == pytest.approx(wanted)
            assert wanted[-1] > 0
            for bar, low, high in zip(bars, [0.5, *(end + 0.5 for end in bins)], [end + 0.5 for end in bins]):
                assert low < bar.get_x() < bar.get_x() + bar.get_width() < high
            end = bars[-1].get_x() + bars[-1].get_width()
            assert axes.get_xlim()[0] < 0.5 < bins[-1] + 0.5 < bars[-1].get_x() < end < axes.get_xlim()[1]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1-2", "3-40", "not retrieved"]
    assert not len(axes.get_xticks(minor=True))


def test_many_runs_are_lines_of_the_same_shares():
    qrels, runs = made([f"run {i}" for i in range(5)])
    axes = tr.evaluate(qrels, runs, "mrr").plot_ranks(bins=[1, 3, 40])
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 3]
    missed = [line for line in axes.lines if len(line.get_xdata()) == 1]
    for line, apart, run in zip(drawn, missed, runs.values(), strict=True):
        assert [*line.get_ydata(), *apart.get_ydata()] == pytest.approx(shares(qrels, run, [1, 3, 40]))


def test_a_tied_first_document_has_its_mean_rank_over_all_orders():
    draw = random.Random(1)
    for _ in range(60):
        scores = [draw.choice([1.0, 2.0, 3.0]) for _ in range(5)]
        target = [draw.choice([0, 0, 1]) for _ in scores]
        (one,) = evaluation_of(tr.Ranking.from_scores(torch.tensor([scores]), torch.tensor([target]))).first_ranks()
        if not any(target):
            assert (one.no_relevant, math.isnan(one.ranks[0])) == (1, True)
            continue
        orders = [sorted(order, key=lambda i: -scores[i]) for order in itertools.permutations(range(5))]
        wanted = statistics.fmean(next(rank for rank, i in enumerate(order, 1) if target[i]) for order in orders)
        assert one.ranks[0] == pytest.approx(wanted)
        assert [last >= wanted for last in one.bins].index(True) == one.counts.index(1)


def test_differences_are_sorted_with_their_mean_and_interval(judged, found):
    qrels, runs = judged
    first, second = NAMES[0], NAMES[2]
    each = [[ndcg(*one, 10) for one in grades(qrels, runs[name]).values()] for name in (first, second)]
    deltas = sorted(b - a for a, b in zip(*each))
    axes = found.plot_differences(first, second, "ndcg@10", level=0.9)
    (bars,) = axes.containers
    assert [bar.get_height() for bar in bars] == pytest.approx(deltas, abs=1e-12)
    centre = statistics.fmean(deltas)
    assert axes.lines[1].get_ydata() == pytest.approx([centre] * 2)
    wanted = stats.ttest_rel(each[1], each[0]).confidence_interval(0.9)
    band = next(patch for patch in axes.patches if patch not in list(bars))
    assert band.get_extents().transformed(axes.transData.inverted()).intervaly == pytest.approx([*wanted])
    counts = [sum(sign(delta) == way for delta in deltas) for way in (1, 0, -1)]
    assert axes.get_title(loc="left").endswith("better on {}, equal on {}, worse on {} of 25 queries".format(*counts))
    rows = found.differences(first, second, "ndcg@10")
    assert rows["delta"] == pytest.approx(deltas, abs=1e-12)
    assert legend_of(axes)[0] == f"mean {centre:+.4f}"


def sign(x):
    return (x > 1e-12) - (x < -1e-12)


def test_lower_is_better_turns_the_colours_and_is_said(found):
    axes = found.plot_differences(NAMES[0], NAMES[2], "mr")
    assert axes.get_ylabel() == "difference of mr (lower is better)"
    gains = {bar.get_facecolor() for bar in axes.containers[0] if bar.get_height() < 0}
    assert len(gains) == 1
    assert gains.isdisjoint({bar.get_facecolor() for bar in axes.containers[0] if bar.get_height() > 0})


def test_rows_of_runs_have_their_intervals(judged, found):
    axes = found.plot_intervals("ndcg@10", level=0.9)
    for name, segment, mark in zip(NAMES, axes.collections[0].get_segments(), axes.lines[0].get_xdata(), strict=True):
        values = [ndcg(*one, 10) for one in grades(judged[0], judged[1][name]).values()]
        assert mark == pytest.approx(statistics.fmean(values))
        assert segment[:, 0] == pytest.approx([*stats.ttest_1samp(values, 0).confidence_interval(0.9)])
    assert [label.get_text() for label in axes.get_yticklabels()] == [*NAMES]
    assert axes.get_xlabel() == "mean ndcg@10 over 25 queries, 90 % interval"


def test_default_cutoffs_spread_over_the_longest_list_up_to_1000():
    for length, wanted in ((7, [1, 2, 3, 4, 5, 6, 7]), (300, [1, 300]), (10**6, [1, 1000])):
        ranking = tr.Ranking.from_ranks(torch.tensor([3, 2]), num_candidates=length)
        x = evaluation_of(ranking).over_cutoffs("hitrate")[0].x
        assert [x[0], x[-1]] == [wanted[0], wanted[-1]]
        assert length > 7 or list(x) == wanted
        assert length == 7 or 18 <= len(x) <= 25
        assert list(x) == sorted(set(x))
    unknown = tr.Ranking.from_ranks(torch.tensor([3.0, math.inf]))
    assert evaluation_of(unknown).over_cutoffs("hitrate")[0].y == (0, 0, 0.5)
    deep = tr.Ranking.from_ranks(torch.tensor([3, 70_000]), num_candidates=10**6)
    (one,) = evaluation_of(deep).first_ranks()
    assert (one.bins[:4], one.bins[-1], sum(one.counts)) == ((1, 3, 10, 30), 10**6, 2)
    assert [one.bins[i] for i, count in enumerate(one.counts) if count] == [3, 100_000]


def test_the_worst_queries_come_first_in_the_direction_of_the_measure():
    values = [0.5, math.nan, 2.0, 1.0, 0.5]
    for measure, want in (("mrr", [(0, 0.5), (4, 0.5), (3, 1), (2, 2)]), ("mr", [(2, 2), (3, 1), (0, 0.5), (4, 0.5)])):
        table = tr.QueryTable(range(5), {measure: values}, metrics={measure: tr.parse(measure)})
        for most in (None, 1, 3, 9):
            rows = plots.worst_first(table, measure, most)
            assert [*zip(rows["id"], rows["value"])] == want[:most]


# ---- figures, names, edges -------------------------------------------------------------------------------------------


def drawings(found, measure="ndcg@10"):
    a, b = found.runs[0], found.runs[-1]
    return [
        lambda ax=None: found.plot_cutoffs(measure, ax=ax),
        lambda ax=None: found.plot_precision_recall(ax=ax),
        lambda ax=None: found.plot_ranks(ax=ax),
        lambda ax=None: found.plot_differences(a, b, measure, ax=ax),
        lambda ax=None: found.plot_intervals(measure, ax=ax),
    ]


def test_given_axes_are_drawn_in_and_new_ones_have_a_figure_of_their_own(found):
    given = pyplot.Figure(figsize=(20, 4)).subplots(1, 5)
    for draw, ax in zip(drawings(found), given):
        assert draw(ax) is ax
        assert ax.has_data()
        alone = draw()
        assert alone.figure.axes == [alone]
        assert alone.figure is not given[0].figure
        assert alone.has_data()
        alone.figure.canvas.draw()  # raises for bad mathematics


def test_names_are_literal(found):
    axes = found.plot_cutoffs("mrr")
    assert legend_of(axes) == [*NAMES]
    texts = [*axes.get_legend().get_texts(), *found.plot_intervals("mrr").get_yticklabels()]
    assert not any(text.get_parse_math() for text in texts)
    assert legend_of(found.plot_ranks()) == [*NAMES]
    title = found.plot_differences(NAMES[1], NAMES[0], "mrr").get_title(loc="left")
    assert title.startswith(f"{NAMES[0]} - {NAMES[1]}\n")


def test_one_query_one_run_and_equal_runs_are_drawn():
    one = tr.evaluate({"q": {"a": 1}}, {"q": {"b": 1.0, "a": 0.5}}, "mrr")
    for draw in drawings(one, "mrr"):
        draw().figure.canvas.draw()
    assert one.plot_cutoffs("mrr").get_legend() is None
    axes = one.plot_differences("run", "run", "mrr")
    assert [bar.get_height() for bar in axes.containers[0]] == [0.0]
    assert axes.get_title(loc="left").endswith("better on 0, equal on 1, worse on 0 of 1 query")
    empty = tr.evaluate({"q": {"a": 1}}, {"none": {}, "same": {"q": {}}}, "mrr")
    for draw in drawings(empty, "mrr"):
        draw().figure.canvas.draw()
    assert [bars[-1].get_height() for bars in empty.plot_ranks().containers] == [100, 100]


def test_queries_without_a_value_are_left_out():
    nothing = math.nan
    a = tr.QueryTable([1, 2, 3], {"mrr": [0.5, nothing, 0.25]})
    b = tr.QueryTable([3, 2, 1], {"mrr": [1.0, 0.5, nothing]})
    found = evaluation_of({"a": a, "b": b, "empty": tr.QueryTable([1, 2], {"mrr": [nothing, nothing]})})
    axes = found.plot_differences("a", "b", "mrr")
    assert [bar.get_height() for bar in axes.containers[0]] == [0.75]
    none = found.plot_differences("a", "empty", "mrr")
    assert none.texts[0].get_text() == "no query with a value in both"
    rows = found.plot_intervals("mrr")
    assert rows.lines[0].get_xdata() == pytest.approx([0.375, 0.75, math.nan], nan_ok=True)
    for axes in (none, rows):
        axes.figure.canvas.draw()


@cases(
    ("call", "error", "message"),
    [
        (lambda e: e.plot_cutoffs("mr"), ValueError, "a measure with a cutoff, got 'mr'"),
        (lambda e: e.plot_cutoffs("ndgc"), ValueError, "did you mean"),
        (lambda e: e.plot_cutoffs(10), TypeError, "a metric of rankings, got 10"),
        (lambda e: e.plot_cutoffs("prcurve"), TypeError, "one value for each ranking"),
        (lambda e: e.plot_cutoffs("ndcg", cutoffs=[]), ValueError, "at least one rank"),
        (lambda e: e.plot_ranks(bins=[0, 5]), ValueError, "bins to be an integer >= 1"),
        (lambda e: e.plot_precision_recall(points=1), ValueError, "points to be an integer >= 2"),
        (lambda e: e.plot_intervals("map"), ValueError, "measure to be one of 'ndcg@10', 'mrr', 'mr', got 'map'"),
        (lambda e: e.plot_differences("dense", "dence", "mrr"), KeyError, "did you mean 'dense'"),
        (lambda e: e.plot_differences("dense", "dense", "mrr", level=2), ValueError, "level"),
    ],
)
def test_wrong_calls_raise(found, call, error, message):
    with pytest.raises(error, match=message):
        call(found)


def test_rankings_without_exact_ranks_are_refused():
    cut = tr.Ranking.from_embeddings(torch.eye(3), torch.eye(3), torch.tensor([0, 1, 2]), top_k=1)
    sampled = tr.Ranking.from_ranks(torch.tensor([5]), num_candidates=100).sampled(10)
    for ranking, message in ((cut, "all ranks exact"), (sampled, "by sampled()")):
        with pytest.raises(ValueError, match=message):
            evaluation_of(ranking).first_ranks()
    assert evaluation_of(cut).over_cutoffs("hitrate")[0].x == (1,)
