"""Many measures, one ranking."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.metric import jit_distributed_available

from torchrank.collection.plots import plot_lines, plot_steps, plot_values
from torchrank.collection.pointwise import POINTWISE, Pointwise
from torchrank.layouts.batch import Batch
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.item_lists import ListMetric, PerUserMetric
from torchrank.names.labels import split
from torchrank.names.parse import parse_all
from torchrank.names.types import Pairs, Results, Target, call_of
from torchrank.ranking.ranking import Ranking
from torchrank.state.measure import Measure
from torchrank.state.query_mean import QueryMean
from torchrank.state.scoring import BatchResult, results_of, score_batch
from torchrank.state.synchronisation import JointReduction, WorkersDifferError
from torchrank.state.torchmetrics_fixes import eager

#: a name, or several in one string; a metric; or a collection
Member = str | Metric | MetricCollection

#: what a collection is made of
Metrics = Member | Sequence[Member] | Mapping[str, Member]


class RankingCollection(MetricCollection):
    """Metrics that are updated together: a batch is ranked once for all, and one all-reduce syncs all.

    Among workers :meth:`compute` takes one all-reduce, and so does Lightning's ``log_dict``. A member that is computed
    by itself takes one of its own. Workers may have the members in another order; other members are an error.

    Keys are the labels, in the order given. A :class:`torchmetrics.MetricCollection` with the same results as its
    members would have alone. Members that are not torchrank's get ``preds`` and ``target``, where ``mask`` is True;
    ``"mae"``, ``"mse"`` and ``"rmse"`` stand for torchmetrics' own. It can hold any
    :class:`torchmetrics.MetricCollection`; one of these can hold it as long as no label has a dot.

    Args:
        metrics: names (``"ndcg@5,10"`` stands for two metrics, ``"recall@1-3, mrr"`` for four), metrics, collections,
            or a sequence of these; or a dict from keys to names or metrics.
        more: further names or metrics.
        prefix: put before every key.
        postfix: put behind every key.

    Raises:
        ValueError: an unknown name, a key given twice, or something that is neither a name nor a metric.

    Example:
        >>> import torch, torchrank as tr
        >>> suite = tr.RankingCollection(["ndcg@2", "recall@1,2", tr.MRR()], prefix="val/")
        >>> suite.update(torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[0, 0, 1]]))
        >>> {key: round(value.item(), 4) for key, value in suite.compute().items()}
        {'val/ndcg@2': 0.6309, 'val/recall@1': 0.0, 'val/recall@2': 1.0, 'val/mrr': 0.5}
    """

    __jit_unused_properties__: ClassVar = ["metric_state", "compute_groups"]

    def __init__(
        self,
        metrics: Metrics,
        *more: Member,
        prefix: str | None = None,
        postfix: str | None = None,
    ) -> None:
        # Groups are torchmetrics' way of sharing what is computed alike. Here the ranking is what is shared.
        super().__init__([], prefix=prefix, postfix=postfix, compute_groups=False)
        self.add_metrics(metrics, *more)

    def add_metrics(self, metrics: Metrics, *more: Member) -> None:
        """Add metrics, given as in the constructor."""
        self._groups: dict[int, list[str]] = {}
        if "_joint" not in self.__dict__:
            self._joint = JointReduction({})
        if isinstance(metrics, Mapping) and not isinstance(metrics, MetricCollection):
            for key, value in metrics.items():
                found = _metrics(value)
                if len(found) != 1 and not isinstance(value, MetricCollection):
                    raise ValueError(f"Expected one metric for key {key!r}, got {len(found)}: {value!r}")
                for name, metric in found:
                    self._add(f"{key}_{name}" if isinstance(value, MetricCollection) else str(key), metric)
            given: Sequence[Any] = more
        else:
            given = (*metrics, *more) if isinstance(metrics, list | tuple) else (metrics, *more)
        for value in given:
            for name, metric in _metrics(value):
                self._add(name, metric)
        self._link()

    def _add(self, key: str, metric: Metric) -> None:
        inner = self._inner(key)
        if inner in self._modules:
            raise ValueError(f"Expected every metric once, got {key!r} twice; a dict gives them keys of their own")
        self[inner] = metric

    # ---- keys: torch's ModuleDict refuses dots and names of its own attributes, so they are escaped inside -------

    def _set_name(self, base: str, more: str = "") -> str:
        return super()._set_name(unquote(base) + more)

    def __getitem__(self, key: str, copy_state: bool = True) -> Metric:
        """The metric with a key, given with or without prefix and postfix."""
        for name_of in (self._set_name, unquote):
            for inner, metric in self._modules.items():
                if key == name_of(inner):
                    return metric
        raise KeyError(f"Expected one of {', '.join(map(repr, self.keys()))}, got {key!r}")

    def __delitem__(self, key: str) -> None:
        metric = self[key]
        del self._modules[next(inner for inner, other in self._modules.items() if other is metric)]
        if isinstance(metric, QueryMean) and metric.joint is self._joint:
            metric.reduce_with(None)
        self._link()

    def __contains__(self, key: object) -> bool:
        return key in self._modules or key in self.keys() or key in [unquote(inner) for inner in self._modules]

    def _inner(self, key: str) -> str:
        """A key that ModuleDict takes: "%", "." and the names of attributes are percent-encoded."""
        inner = key.replace("%", "%25").replace(".", "%2E")
        taken = hasattr(type(self), inner) or inner in self.__dict__
        return f"%{ord(inner[0]):02X}{inner[1:]}" if taken else inner

    def keys(self, keep_base: bool = False) -> KeysView[str]:
        """Keys; with ``keep_base`` without prefix and postfix."""
        return self._unprefixed().keys() if keep_base else self._to_renamed_dict().keys()

    def items(self, keep_base: bool = False, copy_state: bool = True) -> Iterable[tuple[str, Metric]]:  # type: ignore[override]
        """Keys and metrics; with ``keep_base`` keys without prefix and postfix."""
        return self._unprefixed().items() if keep_base else super().items(False, copy_state)

    def _unprefixed(self) -> dict[str, Metric]:
        return {unquote(inner): metric for inner, metric in self._modules.items()}

    def _link(self) -> None:
        """Let the metrics share one reduction, but for those that share that of another collection already."""
        members = self._unprefixed()
        for key, metric in list(members.items()):
            if isinstance(metric, QueryMean):
                if metric.joint not in (None, self._joint):
                    del members[key]
                metric.reduce_with(metric.joint or self._joint)
        self._joint.members = members

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_joint"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._joint = JointReduction({})
        self._link()

    # ---- rank once ---------------------------------------------------------------------------------------------

    @eager
    def update(  # type: ignore[override]
        self,
        preds: Tensor | Ranking,
        target: Target | None = None,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        exclude: Pairs | None = None,
        tie_break: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Add a batch of whole queries to every metric; arguments as :meth:`RankingMetric.update`."""
        options = {"mask": mask, "indexes": indexes, "exclude": exclude, "tie_break": tie_break}
        with self._ranked(Batch(preds, target, weights, options)) as calls:
            for metric, arguments, keywords in calls:
                metric.update(*arguments, **keywords)

    @eager
    def forward(
        self,
        preds: Tensor | Ranking,
        target: Target | None = None,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        exclude: Pairs | None = None,
        tie_break: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Results:
        """Add a batch and return its own values; arguments as :meth:`update`."""
        options = {"mask": mask, "indexes": indexes, "exclude": exclude, "tie_break": tie_break}
        with self._ranked(Batch(preds, target, weights, options)) as calls:
            values = [metric(*arguments, **keywords) for metric, arguments, keywords in calls]
        return self._shown(dict(zip(self._modules, values)))

    def score(
        self,
        preds: Tensor | Ranking,
        target: Target | None = None,
        *,
        mask: Tensor | None = None,
        indexes: Tensor | None = None,
        exclude: Pairs | None = None,
        tie_break: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Results:
        """The values [query] of every metric that has a value for each query, without touching any state.

        Those of other libraries have none, nor do measures of a whole catalogue, as :class:`torchrank.Coverage`.

        Raises:
            TypeError, ValueError: as :meth:`update`, and for bad values at once.
        """
        options = {"mask": mask, "indexes": indexes, "exclude": exclude, "tie_break": tie_break}
        kinds = {inner: m for inner, m in self._modules.items() if isinstance(m, RankingMetric | PerUserMetric)}
        batch = Batch(preds, target, weights, options)
        results = self._results(list(kinds.values()), batch)
        return {self._set_name(inner): metric.scored(results[id(metric)], batch) for inner, metric in kinds.items()}

    @contextlib.contextmanager
    def _ranked(self, batch: Batch) -> Iterator[list[tuple[Metric, tuple[Any, ...], dict[str, Any]]]]:
        """Each metric with the arguments of its update, within which ours take the results of one ranking.

        A batch that does not fit raises before any metric has taken it.
        """
        members = list(self._modules.values())
        for metric in members if isinstance(batch.preds, Ranking) else []:
            if not isinstance(metric, RankingMetric):
                raise TypeError(
                    f"Expected preds and target for {type(metric).__name__}, which ranks nothing, got a Ranking"
                )
        ours = [metric for metric in members if isinstance(metric, Measure)]
        results = self._results(ours, batch, values=False)
        given = {key: x for key, x in {**batch.options, "weights": batch.weights}.items() if x is not None}
        others = Pointwise(batch.preds, batch.target, given)
        calls = [
            (metric, (batch.preds, batch.target), {})
            if isinstance(metric, Measure)
            else (metric, *others.arguments_of(metric))
            for metric in members
        ]
        with results_of(results):
            yield calls

    def _results(self, metrics: Sequence[Measure], batch: Batch, values: bool = True) -> dict[int, BatchResult]:
        """The results of measures for a batch, by the identity of each."""
        ranking = [metric for metric in metrics if isinstance(metric, RankingMetric)]
        results = dict(zip(map(id, ranking), score_batch(ranking, batch, values)))
        results |= {id(metric): metric.of_batch(batch) for metric in metrics if isinstance(metric, ListMetric)}
        return results

    # ---- reduce once -------------------------------------------------------------------------------------------

    @eager
    def compute(self) -> Results:
        """The value of every metric by its key.

        Raises:
            ValueError: bad values were met, on whatever worker. All metrics can go on.
        """
        row = JointReduction(self._unprefixed())
        ours = {inner for inner, metric in self._modules.items() if isinstance(metric, QueryMean)}
        values: dict[str, Any] = {}
        raised: dict[str, ValueError] = {}
        for inner in sorted(self._modules, key=lambda inner: (inner not in ours, inner)):  # alike on all workers
            metric = self._modules[inner]
            if inner not in ours and jit_distributed_available():
                if any(isinstance(error, WorkersDifferError) for error in raised.values()):
                    break
                metric._computed = None  # a worker that answers from its cache would let the others wait
            try:
                values[inner] = metric.compute_in(row) if isinstance(metric, QueryMean) else metric.compute()
            except ValueError as error:  # every metric must have its turn, or workers would lose step
                raised[inner] = error
        for inner in self._modules:
            if inner in raised:
                raise raised[inner]
        return self._shown({inner: values[inner] for inner in self._modules})

    def _shown(self, values: dict[str, Any]) -> Results:
        """Results by the keys that are shown; of a metric that has several results, one for each."""
        shown: dict[str, Any] = {}
        for inner, value in values.items():
            several = {f"_{key}": part for key, part in value.items()} if isinstance(value, dict) else {"": value}
            shown |= {self._set_name(inner, key): part for key, part in several.items()}
        return shown

    def plot(self, val: Any = None, ax: Any = None, together: bool | None = None, over_k: bool = False) -> Any:
        """Plot the values of all metrics in one figure; needs matplotlib.

        Args:
            val: a result of :meth:`compute` or :meth:`forward`, or a list of them, drawn as lines; None = computes one.
            ax: the axes to draw in, or, for one plot of each metric, a sequence of as many; None = new ones.
            together: True = all in one axes; False = each metric in a figure of its own, as torchmetrics draws it.
                None = all in one, unless ``ax`` is a sequence.
            over_k: draw measures, in one axes, as lines over their cut-offs: ``ndcg@1``, ``ndcg@2``, ``ndcg@5`` are
                one. A metric without a cut-off is a dashed line.

        Returns:
            The figure and its axes; not ``together``, a list of these, one for each metric.

        Raises:
            ValueError: a curve, or a value for each query over steps or over k, which has no place in one axes; a list
                of results over k.
        """
        if not over_k and (together is False or (together is None and isinstance(ax, Sequence))):
            return super().plot(val, ax, together=False)
        val = self.compute() if val is None else val
        several = isinstance(val, Sequence)
        if over_k and several:
            raise ValueError(f"Expected one result to plot over k, got a list of {len(val)}: give one of them")
        for key, value in (val[0] if several else val).items():
            if isinstance(value, tuple) or ((several or over_k) and torch.as_tensor(value, device="cpu").numel() != 1):
                raise ValueError(f"Expected a number of each metric to plot, got several of {key!r}: plot it by itself")
        if over_k:
            return self._plot_over_k(val, ax)
        return plot_steps(val, ax) if several else plot_values(val, ax)

    def _plot_over_k(self, values: Mapping[str, Any], ax: Any) -> Any:
        lines: dict[str, tuple[list[int], list[float]]] = {}
        levels: dict[str, float] = {}
        ours = {key: metric for key, metric in self.items(copy_state=False) if isinstance(metric, Measure)}
        cuts = {key: ours[key].top_k if key in ours else None for key in values}
        for key, cut in sorted(cuts.items(), key=lambda of: of[1] or 0):
            if cut is None:
                levels[key] = float(values[key])
                continue
            cutoff = re.compile(rf"@{cut}(?!\d)")
            name = key if cutoff.search(key) else str(self[key].label)  # a key of the user's own
            at, numbers = lines.setdefault(cutoff.sub("@k", name), ([], []))
            at.append(cut)
            numbers.append(float(values[key]))
        return plot_lines(lines, "k", ax, levels)

    def merge_state(self, other: RankingCollection) -> None:
        """Add the states of another collection of the same metrics, whose queries come after this one's."""
        if list(other._modules) != list(self._modules):
            raise ValueError(f"Expected a collection of {list(self.keys())}, got {list(other.keys())}")
        for inner, metric in self._modules.items():
            if isinstance(metric, QueryMean):  # all or none
                metric.mergeable(other._modules[inner])
        for inner, metric in self._modules.items():
            metric.merge_state(other._modules[inner])

    if TYPE_CHECKING:

        @call_of(forward, Results)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


def _metrics(value: Any) -> list[tuple[str, Metric]]:
    """The metrics, with their keys, that one element of a collection stands for."""
    if isinstance(value, str):
        if value.lower() in POINTWISE:
            return [(value.lower(), POINTWISE[value.lower()]())]
        if len(names := split(value)) > 1:
            return [found for name in names for found in _metrics(name)]
        return [(metric.label, metric) for metric in parse_all(value)]
    if isinstance(value, MetricCollection):
        return [(str(key), metric) for key, metric in value.items(keep_base=False)]
    if isinstance(value, Measure):
        return [(value.label, value)]
    if isinstance(value, Metric):
        return [(type(value).__name__, value)]
    raise ValueError(f"Expected the name of a measure or a torchmetrics.Metric, got {value!r}")
