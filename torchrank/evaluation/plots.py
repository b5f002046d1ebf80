"""Curves of rankings as plain numbers, and plots. A plot is drawn in given axes or a new figure, which it returns.

Plots need matplotlib, which the extra ``plot`` installs. A new figure has no window: save it by
``axes.figure.savefig("plot.pdf")``. A notebook shows it if ``axes.figure`` is the last line of a cell; to arrange
several plots, pass the axes of ``pyplot.subplots()``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchrank import display
from torchrank.formulas.random_ranking import first_rank
from torchrank.layouts.canonical import Need
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.curves import InterpolatedPrecision, PRCurve
from torchrank.names.arguments import imported, integer, one_of
from torchrank.names.parse import Named, parse
from torchrank.ranking.ranking import Ranking
from torchrank.statistics.paired import PairStatistics, differences_of, paired_statistics
from torchrank.wrappers.compared import Rectified
from torchrank.wrappers.per_query import QueryTable
from torchrank.wrappers.suite_metric import values_of

#: largest default cutoff, and about how many there are
DEEPEST, CUTOFFS = 1000, 25


@dataclass(frozen=True)
class Curve:
    """A line of a plot: the values of one run.

    Attributes:
        run: the name of the run.
        x: the places, ascending.
        y: the value at each place; NaN if there is none.
        queries: number of queries that have a value, the largest of all places.
    """

    run: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    queries: int


@dataclass(frozen=True)
class FirstRanks:
    """The ranks of the first relevant documents of one run, and their numbers in bins.

    Attributes:
        run: the name of the run.
        ranks: the (expected) rank in each query; infinite if no relevant document is retrieved, NaN if there is none.
        bins: the last rank of each bin, ascending; the first bin begins at rank 1.
        counts: number of queries in each bin.
        not_retrieved: number of queries in which no relevant document is retrieved.
        no_relevant: number of queries without a relevant document; they are in no bin.
    """

    run: str
    ranks: tuple[float, ...]
    bins: tuple[int, ...]
    counts: tuple[int, ...]
    not_retrieved: int
    no_relevant: int


#: more queries than this are bars without gaps, which are drawn as one area; more than that are a step curve
MOST_APART, MOST_BARS = 60, 2000

#: ranks of more runs are drawn as lines instead of bars
MOST_GROUPED = 4


def worst_first(table: QueryTable, measure: str, most: int | None = None) -> display.Table:
    """The values of a measure, the worst first; queries without a value are left out.

    Example:
        >>> import torchrank as tr
        >>> worst_first(tr.QueryTable(["x", "y"], {"mrr": [1.0, 0.5]}), "mrr")
        id   value
        y   0.5000
        x   1.0000
    """
    values = table.columns[measure].astype(np.float64)
    order = np.argsort(values if table.higher_is_better[measure] else -values, kind="stable")
    order = order[~np.isnan(values[order])][:most]
    return display.Table({"id": table.ids[order].tolist(), "value": values[order].tolist()})


def differences(a: QueryTable, b: QueryTable, measure: str) -> tuple[display.Table, PairStatistics]:
    """The differences b - a of all queries, the largest losses first, and their statistics.

    Returns:
        A table with the columns id and delta, which is exactly 0 for a tie; and the statistics.

    Raises:
        ValueError: a table has no such measure, or the tables have no id in common.
    """
    rows = a.deltas(b, measure, most=None)
    before, after = (np.array(rows[name], dtype=np.float64) for name in ("before", "after"))
    pair = paired_statistics(before, after, measure=measure, higher_is_better=a.higher_is_better[measure])
    return display.Table({"id": rows["id"], "delta": differences_of(before, after).tolist()}), pair


def outcome(pair: PairStatistics) -> str:
    """On how many queries ``b`` is better, equal and worse, in words."""
    return f"better on {pair.wins:,}, equal on {pair.ties:,}, worse on {pair.losses:,} of {queries_of([pair.n])}"


def queries_of(numbers: Sequence[int]) -> str:
    """Numbers of queries: "50 queries", or "47 to 50 queries" if runs differ."""
    high = max(numbers, default=0)
    low = min(numbers, default=high)
    return f"{f'{low:,} to ' if low < high else ''}{high:,} {'query' if high == 1 else 'queries'}"


def _means(ranking: Ranking, metrics: Sequence[RankingMetric]) -> tuple[tuple[float, ...], int]:
    """The aggregate of each metric over the queries of a ranking, and the largest number of queries with a value."""
    keyed = {str(n): metric for n, metric in enumerate(metrics)}
    # A copy of the ranking has a cache of its own, which is freed.
    values, weights, _ = values_of(keyed, copy.copy(ranking))
    table = QueryTable(range(ranking.num_queries), values, weights, keyed)
    return tuple(table.values().values()), max(int((~np.isnan(column)).sum()) for column in table.columns.values())


def label_over_k(measure: str | RankingMetric) -> str:
    """The label of a measure at any cutoff.

    Raises:
        ValueError: the measure is unknown or has no cutoff.

    Example:
        >>> label_over_k("nDCG@10")
        'ndcg@k'
    """
    return f"{_cut(measure, 1).label.removesuffix('@1')}@k"


def _cut(measure: str | RankingMetric, k: int) -> RankingMetric:
    """The metric with another cutoff."""
    if not isinstance(measure, str | RankingMetric):
        raise TypeError(f"Expected the name of a measure or a metric of rankings, got {measure!r}; pass e.g. 'ndcg'")
    try:
        if isinstance(measure, str):
            metric = parse(measure, top_k=k)
        else:
            metric = type(measure)(top_k=k, **{name: getattr(measure, name) for name in measure.definition()})
    except ValueError as error:
        if "no top_k" in str(error):
            raise ValueError(
                f"Expected a measure with a cutoff, got {measure!r}, which reads the whole list; pass e.g. 'ndcg'"
            ) from None
        raise
    if not isinstance(metric, RankingMetric) or isinstance(metric, PRCurve):
        raise TypeError(f"Expected a measure with one value for each ranking, got {measure!r}; pass e.g. 'ndcg'")
    return metric


def _depth(rankings: Iterable[Ranking], deepest: int = DEEPEST) -> int:
    """The length of the longest list, or the largest rank if lengths are not known, at most ``deepest``."""
    longest = 1.0
    for ranking in rankings:
        length = float(ranking.num_candidates.nan_to_num(nan=1.0).amax()) if ranking.num_queries else 1.0
        ranks = torch.where(ranking.tied > 0, ranking.first, 1.0)
        length = max(length, float(ranks.amax()) if ranks.numel() else 1.0)
        longest = max(longest, length if ranking.reach is None else min(length, ranking.reach))
    return int(min(longest, deepest))


def _round(depth: int) -> list[int]:
    """The ends of bins: 1, 2, 5, 10, 20, 50, ... below ``depth``, or 1, 3, 10, 30, ... of long lists; and ``depth``."""
    digits = (1, 2, 5) if depth <= DEEPEST else (1, 3)
    steps = (digit * 10**power for power in range(len(str(depth))) for digit in digits)
    return [*(step for step in steps if step < depth), depth]


def _ranks(ranks: Sequence[int], name: str) -> tuple[int, ...]:
    """Ranks in ascending order, each once."""
    for rank in ranks:
        integer(name, rank, least=1, or_none=False)
    if not len(ranks):
        raise ValueError(f"Expected {name} with at least one rank, got none; pass e.g. [1, 5, 10], or None")
    return tuple(sorted({int(rank) for rank in ranks}))


class Plots:
    """The runs of an evaluation, their curves, and their plots."""

    tables: Mapping[str, QueryTable]
    rankings: Mapping[str, Ranking]
    rectified: Rectified | None

    @property
    def runs(self) -> list[str]:
        """The names of the runs."""
        return list(self.tables)

    def __getitem__(self, name: str) -> QueryTable:
        if name in self.tables:
            return self.tables[name]
        first = self.runs[0]
        try:
            Named(self.tables[first].columns)[name]
        except KeyError:
            return Named(self.tables)[name]  # which raises, with the nearest name
        way_out = f"its value is means[{first!r}][{name!r}]"
        raise KeyError(f"Expected one of {', '.join(map(repr, self.runs))}, got the measure {name!r}; {way_out}")

    def _refuse_people(self, what: str) -> None:
        """Raise ValueError for ``what`` by the judge alone, if people correct the means."""
        if self.rectified is not None:
            got = "one with human, which does not correct the values of single queries; leave human out"
            raise ValueError(f"Expected an evaluation by one file of judgments for {what}, got {got}")

    @property
    def _ranked(self) -> Mapping[str, Ranking]:
        if not self.rankings:
            raise ValueError("Expected rankings to draw, got values alone; use plot_intervals or plot_differences")
        return self.rankings

    def over_cutoffs(self, measure: str | RankingMetric, cutoffs: Sequence[int] | None = None) -> tuple[Curve, ...]:
        """The aggregate of a measure, mostly a mean over queries, at each cutoff k.

        Args:
            measure: a name or a metric; its own cutoff is replaced.
            cutoffs: the values of k; None = about 25 on a logarithmic scale, from 1 to the length of the longest list,
                at most 1,000.

        Returns:
            A curve for each run: its name, cutoffs ``x``, values ``y`` and number of queries.

        Raises:
            ValueError: the measure is unknown or has no cutoff, or a cutoff is not an integer >= 1.
            TypeError: the measure is not a measure of rankings.
        """
        if cutoffs is None:  # about 25 on a logarithmic scale, fewer if close ones are equal
            places = np.geomspace(1, _depth(self._ranked.values()), CUTOFFS)
            cutoffs = np.unique(places.round().astype(np.int64)).tolist()
        wanted = _ranks(cutoffs, "cutoffs")
        metrics = [_cut(measure, k) for k in wanted]
        return tuple(Curve(run, wanted, *_means(ranking, metrics)) for run, ranking in self._ranked.items())

    def precision_recall(self, points: int = 11, relevance_level: int = 1) -> tuple[Curve, ...]:
        """The mean interpolated precision at each recall; a query without a relevant document counts 0.

        The values are those of :class:`torchrank.InterpolatedPrecision`.

        Args:
            points: number of values of recall from 0 to 1: 11, as in TREC, or e.g. 101.
            relevance_level: a grade at or above it is relevant.

        Returns:
            A curve for each run: its name, recall ``x``, precision ``y`` and number of queries.

        Raises:
            ValueError: an argument has an unknown value.
        """
        integer("points", points, least=2, or_none=False)
        recall = tuple(point / (points - 1) for point in range(points))
        metrics = [InterpolatedPrecision(recall=level, relevance_level=relevance_level) for level in recall]
        return tuple(Curve(run, recall, *_means(ranking, metrics)) for run, ranking in self._ranked.items())

    def first_ranks(self, bins: Sequence[int] | None = None, relevance_level: int = 1) -> tuple[FirstRanks, ...]:
        """The rank of the first relevant document of each query, and how many queries have it in each bin of ranks.

        A tied document has its expected rank over random orders, which may be a fraction.

        Args:
            bins: the last rank of each bin; None = 1, 2, 5, 10, 20, 50, ..., or for lists longer than 1,000, 1, 3, 10,
                30, ... One more bin follows for ranks beyond the last.
            relevance_level: a grade at or above it is relevant.

        Returns:
            The ranks and the numbers of queries of each run, with the same bins.

        Raises:
            ValueError: a bin is not an integer >= 1, or a ranking has no exact ranks, because it was made with
                ``top_k`` or by ``sampled``.
        """
        ranks_of: dict[str, np.ndarray] = {}
        for run, ranking in self._ranked.items():
            ranking.check(Need(relevant=True), "ranks of first relevant documents")
            if ranking.draw is not None:
                way_out = "read the ranking before it"
                raise ValueError(f"Expected a ranking of all candidates, got one by sampled(); {way_out}")
            relevant = ranking.num_relevant(relevance_level) > 0
            first = torch.where(relevant, first_rank(ranking, relevance_level), math.nan)
            ranks_of[run] = (first if ranking.ignored is None else first[~ranking.ignored]).cpu().numpy()
        lasts = _ranks(_round(_depth(self._ranked.values(), deepest=2**53)) if bins is None else bins, "bins")
        ranks = np.concatenate([lasts, *ranks_of.values()])
        if (largest := ranks[np.isfinite(ranks)].max()) > lasts[-1]:
            lasts = (*lasts, math.ceil(largest))
        found = []
        for run, ranks in ranks_of.items():
            places = np.searchsorted(lasts, ranks[np.isfinite(ranks)])  # the first bin whose last rank is not below
            counts = tuple(np.bincount(places, minlength=len(lasts)).tolist())
            lost, without = int(np.isinf(ranks).sum()), int(np.isnan(ranks).sum())
            found.append(FirstRanks(run, tuple(ranks.tolist()), lasts, counts, lost, without))
        return tuple(found)

    def plot_cutoffs(self, measure: str | RankingMetric, ax: Any = None, cutoffs: Sequence[int] | None = None) -> Any:
        """Draw a measure over its cutoff k, on a logarithmic axis, a line for each run.

        Args:
            measure: a name or a metric; its own cutoff is replaced.
            ax: axes of matplotlib to draw in; None = axes of a new figure.
            cutoffs: the values of k; None = about 25 on a logarithmic scale, from 1 to the length of the longest list,
                at most 1,000.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: the measure is unknown or has no cutoff, or a cutoff is not an integer >= 1.
            TypeError: the measure is not a measure of rankings.

        Example:
            >>> import torchrank as tr
            >>> axes = tr.evaluate({"q": {"a": 1}}, {"q": {"b": 2.0, "a": 1.0}}, "mrr").plot_cutoffs("mrr")
            >>> axes.lines[0].get_xydata().tolist()
            [[1.0, 0.0], [2.0, 0.5]]
        """
        lines = self.over_cutoffs(measure, cutoffs)
        label = label_over_k(measure)
        axes = display.axes_of(ax, 6.4 + display.room_for(self.runs))
        mean = "" if "aggregation=" in label else "mean "
        queries = queries_of([curve.queries for curve in lines])
        display.describe(axes, f"{label} over the cutoff", "cutoff k (rank)", f"{mean}{label} over {queries}")
        display.log_axis(axes, lines[0].x)
        display.draw_lines(axes, {curve.run: (curve.x, curve.y) for curve in lines})
        return axes

    def plot_precision_recall(self, ax: Any = None, points: int = 11, relevance_level: int = 1) -> Any:
        """Draw the mean interpolated precision at each recall, a line for each run.

        Args:
            ax: axes of matplotlib to draw in; None = axes of a new figure.
            points: number of values of recall from 0 to 1: 11, as in TREC, or e.g. 101.
            relevance_level: a grade at or above it is relevant.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: an argument has an unknown value.
        """
        lines = self.precision_recall(points, relevance_level)
        axes = display.axes_of(ax, 6.4 + display.room_for(self.runs))
        queries = queries_of([curve.queries for curve in lines])
        display.describe(axes, f"precision over recall, {queries}", "recall", "mean interpolated precision")
        display.draw_lines(axes, {curve.run: (curve.x, curve.y) for curve in lines})
        axes.set_xlim(-0.02, 1.02)
        axes.set_ylim(0, 1.05 * max(max(curve.y) for curve in lines) or 1)  # also of flat curves
        return axes

    def plot_ranks(self, ax: Any = None, bins: Sequence[int] | None = None, relevance_level: int = 1) -> Any:
        """Draw how many queries have their first relevant document in each bin of ranks, on a logarithmic axis.

        Queries in which no relevant document is retrieved have a separate bin at the right end. Queries without a
        relevant document are left out.

        Args:
            ax: axes of matplotlib to draw in; None = axes of a new figure.
            bins: the last rank of each bin; None = 1, 2, 5, 10, 20, 50, ..., or for lists longer than 1,000, 1, 3, 10,
                30, ... One more bin follows for ranks beyond the last.
            relevance_level: a grade at or above it is relevant.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: a bin is not an integer >= 1, or a ranking has no exact ranks, because it was made with
                ``top_k`` or by ``sampled``.
        """
        distributions = self.first_ranks(bins, relevance_level)
        axes = display.axes_of(ax, 6.4 + display.room_for(self.runs))
        numbers = [sum(ranks.counts) + ranks.not_retrieved for ranks in distributions]
        display.describe(axes, "rank of the first relevant document", "rank", f"share of {queries_of(numbers)} (%)")
        axes.set_xscale("log")
        lasts = distributions[0].bins
        edges = np.array([0.5, *(last + 0.5 for last in lasts)])
        gap, stop = edges[-1] * 1.25, edges[-1] * 2.5  # the bin of queries without a hit
        left, right = np.array([*edges[:-1], gap]), np.array([*edges[1:], stop])
        drawn = []  # the share of each bin, in percent: bars side by side, or a line for each run if there are many
        for n, ranks in enumerate(distributions):
            counts = np.array([*ranks.counts, ranks.not_retrieved], dtype=np.float64)
            share = 100 * counts / max(1.0, counts.sum())
            if len(distributions) > MOST_GROUPED:
                centre = np.sqrt(left * right)
                drawn += axes.plot(centre[:-1], share[:-1], **display.style(n), markersize=4)
                axes.plot(centre[-1:], share[-1:], **display.style(n), markersize=6)
                continue
            margin = 0.08 * np.log(right / left)  # on each side of a bin
            width = (np.log(right / left) - 2 * margin) / len(distributions)
            begin, end = (np.exp(np.log(left) + margin + place * width) for place in (n, n + 1))
            look = {"color": display.COLOURS[n], "hatch": display.HATCHES[n], "edgecolor": "white", "linewidth": 0.5}
            drawn.append(axes.bar(begin, share, end - begin, align="edge", **look))
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
        display.add_legend(axes, drawn, [ranks.run for ranks in distributions])
        axes.axvline(math.sqrt(edges[-1] * gap), color="0.6", linewidth=0.8, linestyle=":")
        firsts = [1, *(last + 1 for last in lasts)]
        names = [f"{_rank(first)}-{_rank(last)}" if first < last else _rank(last) for first, last in zip(firsts, lasts)]
        turned = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if len(names) > 6 else {}
        axes.set_xticks(np.sqrt(left * right), [*names, "not retrieved"], fontsize="small", **turned)
        axes.set_xticks([], minor=True)
        axes.set_xlim(edges[0] * 0.93, stop * 1.07)
        axes.set_ylim(bottom=0)
        return axes

    def plot_differences(self, a: str, b: str, measure: str, ax: Any = None, level: float = 0.95) -> Any:
        """Draw the differences b - a of all queries, the largest losses first, with their mean and its interval.

        Args:
            a: the name of the first run, the baseline.
            b: the name of the second run.
            measure: the label of a measure of this evaluation.
            ax: axes of matplotlib to draw in; None = axes of a new figure.
            level: level of the interval of the mean.

        Returns:
            The axes.

        Raises:
            KeyError: there is no such run.
            ImportError: matplotlib is not installed.
            ValueError: there is no such measure, the runs have no query in common, or ``level`` is not between 0 and 1.
        """
        self._refuse_people("plots of values")
        rows, pair = differences(self[a], self[b], measure)
        interval = pair.interval(level)
        axes = display.axes_of(ax)
        first, second = (display.shortened(name, most=28) for name in (a, b))
        direction = "" if pair.higher_is_better else " (lower is better)"
        title = f"{second} - {first}\n{outcome(pair)}"
        display.describe(axes, title, "queries, the largest losses first", f"difference of {measure}{direction}")
        axes.axhline(0, color="0.4", linewidth=0.8)
        if not len(rows):
            axes.text(0.5, 0.5, "no query with a value in both", transform=axes.transAxes, ha="center")
            return axes
        deltas = np.array(rows["delta"])
        mean = axes.axhline(pair.difference, color="black", linewidth=1.2, linestyle="--", zorder=3)
        drawn, texts = [mean], [f"mean {pair.difference:+.4f}"]
        if all(map(math.isfinite, interval)):
            drawn.append(axes.axhspan(*interval, color="0.6", alpha=0.5, linewidth=0, zorder=2.5))
            texts.append(f"its {100 * level:g} % interval [{interval[0]:+.4f}, {interval[1]:+.4f}]")
        edges, gains = np.arange(len(deltas) + 1) + 0.5, (deltas > 0) == pair.higher_is_better
        if len(deltas) > MOST_BARS:
            axes.stairs(deltas, edges, baseline=None, color=display.COLOURS[0], linewidth=1.4)
        elif len(deltas) > MOST_APART:
            for colour, chosen in zip(display.COLOURS, (gains, ~gains)):
                axes.stairs(np.where(chosen, deltas, 0.0), edges, fill=True, color=colour)
        else:
            colours = [display.COLOURS[0 if gain else 1] for gain in gains]
            axes.bar(range(1, len(deltas) + 1), deltas.tolist(), color=colours)
        axes.set_xlim(0.5 - 0.01 * len(deltas), len(deltas) + 0.5 + 0.01 * len(deltas))
        ticker = imported("matplotlib.ticker", "plot")
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
        place = "upper left" if pair.higher_is_better else "upper right"  # the side of the losses
        axes.legend(drawn, texts, loc=place, framealpha=0.8, edgecolor="none")
        return axes

    def plot_intervals(self, measure: str, ax: Any = None, level: float = 0.95) -> Any:
        """Draw the value of a measure and its confidence interval, a row for each run.

        Args:
            measure: the label of the measure.
            ax: axes of matplotlib to draw in; None = axes of a new figure.
            level: level of the intervals.

        Returns:
            The axes. A run without an interval, e.g. of one query, has a mark only.

        Raises:
            ImportError: matplotlib is not installed.
            ValueError: there is no such measure, or ``level`` is not between 0 and 1.
        """
        self._refuse_people("plots of values")
        rows, counts = [], []
        for table in self.tables.values():
            one_of("measure", measure, table.labels)
            rows += [row for row in table.summary(level) if row["measure"] == measure]
            counts.append(int((~np.isnan(table.columns[measure])).sum()))
        axes = display.axes_of(ax, height=1.2 + 0.3 * len(rows))
        queries = queries_of(counts)
        mean = "" if "aggregation=" in measure else "mean "
        lower = False in (table.higher_is_better[measure] for table in self.tables.values())
        direction = " (lower is better)" if lower else ""
        display.describe(axes, "", f"{mean}{measure}{direction} over {queries}, {100 * level:g} % interval", "")
        names, ends = list(map(display.shortened, self.tables)), ("value", "low", "high")
        display.draw_intervals(axes, names, *([row[end] for row in rows] for end in ends))
        axes.grid(axis="x", alpha=0.3)
        return axes


def draw_over_k(lines: Mapping[str, Mapping[int, Sequence[float]]], label: str, axes: Any) -> Any:
    """Draw a line for each name through its values at k, each (value, low, high), with a band from low to high."""
    display.describe(axes, "", "cutoff k (rank)", label)
    display.log_axis(axes, [*next(iter(lines.values()))])
    for number, points in enumerate(lines.values()):
        _, low, high = zip(*points.values())
        axes.fill_between([*points], low, high, color=display.style(number)["color"], alpha=0.2, linewidth=0)
    display.draw_lines(axes, {name: ([*points], next(zip(*points.values()))) for name, points in lines.items()})
    return axes


def panels(title: str, measures: Sequence[str], rows: int, draw: Callable[[str, Any], Any]) -> Any:
    """A figure with a title and axes for each measure. Labels of the x axes that are the same are drawn once.

    Args:
        title: the title.
        measures: labels of the measures.
        rows: number of rows in each axes.
        draw: draws a measure in its axes.

    Raises:
        ImportError: matplotlib is not installed.
    """
    columns = 1 + (len(measures) > 4)
    lines = -(-len(measures) // columns)
    figure = display.axes_of(None, 7.2 * columns, 0.5 + (1.3 + 0.3 * rows) * lines).figure
    figure.clear()
    figure.suptitle(title, x=0.01, ha="left", weight="bold").set_parse_math(False)
    for measure, axes in zip(measures, figure.subplots(lines, columns, squeeze=False).flat):
        draw(measure, axes)
    for axes in figure.axes[len(measures) :]:
        axes.remove()
    labels = {axes.get_xlabel() for axes in figure.axes}
    if len(labels) == 1:
        figure.supxlabel(*labels, fontsize="medium", parse_math=False)
        for axes in figure.axes:
            axes.set_xlabel("")
    return figure


# ---- parts -----------------------------------------------------------------------------------------------------------


def _rank(rank: int) -> str:
    """A rank, rounded down to thousands or millions where it is large."""
    if rank < 10_000:
        return f"{rank}"
    return f"{rank // 1000}k" if rank < 10**6 else f"{rank // 10**6}M"
