"""The collection: many metrics, one ranking of each batch, one all-reduce; and plots of many metrics in one figure."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, Unpack, get_args
from urllib.parse import unquote

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, MetricCollection
from torchmetrics.metric import jit_distributed_available

from torchrank.display import COLUMN, Table, axes_of, draw_lines, log_axis, plainly, room_for, style
from torchrank.hardware.devices import eager
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.layouts.checks import excluded_pairs
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.item_lists import ListMetric, PerUserMetric
from torchrank.names.arguments import did_you_mean, imported, one_of, unknown, warn
from torchrank.names.labels import KeyStyle, check_different, spell, split
from torchrank.names.parse import parse_all
from torchrank.names.types import Array, Results, Target, call_of
from torchrank.ranking.ranking import Ranking
from torchrank.state.metric import Measure, SafeMetric
from torchrank.state.scoring import score_batch
from torchrank.state.sums import Estimate, Interval, Method, estimate_table
from torchrank.state.synchronisation import State, WorkersDifferError, reduce_together
from torchrank.state.waiting import Waiting

#: torchmetrics' metrics of single scores, by their names in a collection
POINTWISE: dict[str, Callable[[], Metric]] = {
    "mae": MeanAbsoluteError,
    "mse": MeanSquaredError,
    "rmse": functools.partial(MeanSquaredError, squared=False),
}


class Pointwise:
    """The arguments for the metrics of other libraries in a collection, without candidates that are hidden.

    ``mask`` and ``exclude`` hide candidates. A metric whose ``update`` has these arguments receives all elements. Any
    other metric receives scores, targets and ``indexes`` of the candidates that are left, flat. Without ``mask`` and
    ``exclude`` tensors keep their shape. Other keywords that ``update`` does not have are left out, except weights,
    which are an error there.

    Args:
        preds: scores.
        target: a value for each score.
        keywords: the keywords given to :meth:`torchrank.RankingCollection.update`.
    """

    def __init__(self, preds: Any, target: Any, keywords: dict[str, Any]) -> None:
        self.preds, self.target, self.keywords = preds, target, keywords

    def arguments_of(self, metric: Metric) -> tuple[tuple[Any, Any], dict[str, Any]]:
        """The arguments and keywords for ``metric.update``.

        Raises:
            TypeError, ValueError: the metric needs a target for each score, or an argument that is not there; or it
                takes no weights.
        """
        name, alone = type(metric).__name__, "update it by itself, or leave it out of this collection"
        # An update without such an argument would count padding and excluded candidates.
        hiding = [x for x in ("mask", "exclude") if x in self.keywords and not _takes(metric, x)]
        if hiding or _of(metric, "regression"):
            beside = {"mask": "a mask", "exclude": "exclude"}[hiding[0]] if hiding else "scores"
            _check(metric, self.preds, self.target, beside)
        elif _of(metric, "classification", "retrieval") and not isinstance(self.target, Tensor):
            raise ValueError(f"Expected target to be a tensor for {name}, got a {type(self.target).__name__}; {alone}")
        if "weights" in self.keywords and not _takes(metric, "weights"):
            raise ValueError(f"Expected no weights for {name}, whose update takes none, got weights; {alone}")
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        needed = [p for p in metric._update_signature.parameters.values() if p.kind in kinds][2:]
        needed = [p for p in needed if p.default is inspect.Parameter.empty]
        if missing := [p.name for p in needed if p.name not in self.keywords]:
            rows = "pass flat rows preds, target and indexes, " if missing == ["indexes"] else ""
            raise ValueError(f"Expected {missing[0]} for {name}, got none; {rows}{alone}")
        try:
            preds, target, keywords = self.left if hiding else (self.preds, self.target, self.keywords)
        except ValueError as error:
            raise ValueError(f"{error}, for {name}") from None
        if _of(metric, "regression") and target.dtype == torch.bool:
            target = target.to(preds.dtype)  # a difference of bool has no meaning in torch
        return (preds, target), metric._filter_kwargs(**keywords) if keywords else {}

    @functools.cached_property
    def left(self) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Scores, targets and keywords of the candidates that are not hidden, selected once. Reads the mask."""
        preds, target = self.preds, self.target.to(self.preds.device)
        there = torch.ones_like(preds, dtype=torch.bool)
        if "mask" in self.keywords:
            there = _like(preds, self.keywords["mask"], "mask").bool()
        if "exclude" in self.keywords:
            if preds.dim() != 2:
                raise ValueError(
                    "Expected no exclude for flat rows, got exclude; leave the rows out, or pass mask [row]"
                )
            pairs, _ = excluded_pairs(self.keywords["exclude"], preds)  # our metrics count its bad values
            if pairs is not None:
                query, item = pairs.query[pairs.query >= 0], pairs.item[pairs.query >= 0]
                there = there.index_put((query, item), there[query, item] & (target[query, item] > 0))
        keywords = dict(self.keywords)
        if "indexes" in keywords:
            keywords["indexes"] = _like(there, keywords["indexes"], "indexes")[there]
        return preds[there], target[there], keywords


def _takes(metric: Metric, argument: str) -> bool:
    """Whether ``update`` of a metric has an argument, or any keyword arguments."""
    parameters = metric._update_signature.parameters
    return argument in parameters or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


def _of(metric: Metric, *packages: str) -> bool:
    """Whether a metric is of some packages of torchmetrics. Those of "regression" compare each score with a value."""
    names = tuple(f"torchmetrics.{package}" for package in packages)
    return any(cls.__module__.startswith(names) for cls in type(metric).__mro__)


def _check(metric: Metric, preds: Any, target: Any, beside: str) -> None:
    name = type(metric).__name__
    if _of(metric, "regression") and isinstance(preds, Tensor) and not preds.is_floating_point():
        raise TypeError(
            f"Expected floating point scores for {name}, got ranked ids of {preds.dtype};"
            " update it by itself, or leave it out of this collection"
        )
    if not isinstance(preds, Tensor) or not isinstance(target, Tensor) or target.shape != preds.shape:
        shape = list(preds.shape) if isinstance(preds, Tensor) else type(preds).__name__
        got = f"shape {list(target.shape)}" if isinstance(target, Tensor) else f"a {type(target).__name__}"
        raise ValueError(
            f"Expected target of preds' shape {shape}, a value for each score, with {beside} for {name}, got {got};"
            " update it by itself, or leave it out of this collection"
        )


def _like(preds: Tensor, x: Any, name: str) -> Tensor:
    if not isinstance(x, Tensor) or x.shape != preds.shape:
        got = list(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"Expected {name} of preds' shape {list(preds.shape)}, got {got}")
    return x.to(preds.device)


#: a name, or several names in one string; a metric; or a collection
Member = str | Metric | MetricCollection

#: the elements of a collection
Metrics = Member | Iterable[Member] | Mapping[str, Member]


def several(metrics: object) -> TypeGuard[Iterable[Any]]:
    """Whether the elements of a collection are given as an iterable, for example a list, or a ListConfig of Hydra."""
    # torchmetrics.Metric has an `__iter__`, which raises.
    return isinstance(metrics, Iterable) and not isinstance(metrics, str | bytes | Mapping | Metric | MetricCollection)


def keyed(metrics: Metrics, *more: Member, options: Mapping[str, Any] | None = None) -> Iterator[tuple[str, Metric]]:
    """The keys and metrics of all arguments of a collection.

    Args:
        metrics: names, metrics or collections.
        more: further ones.
        options: arguments of :class:`torchmetrics.Metric` for metrics that are given by their names.

    Raises:
        ValueError: an element is none of these, needs arguments that a collection does not pass, or was made with other
            options; or names of XGBoost are beside names that mean something else there.
    """
    options = options or {}
    if isinstance(metrics, Mapping) and not isinstance(metrics, MetricCollection):
        for key, value in metrics.items():
            pairs = metrics_of(value, options)
            if len(pairs) != 1 and not isinstance(value, MetricCollection):
                raise ValueError(f"Expected one metric for key {key!r}, got {len(pairs)}: {value!r}")
            for name, metric in pairs:
                yield f"{key}_{name}" if isinstance(value, MetricCollection) else str(key), metric
        arguments: tuple[Any, ...] = more
        check_one_library([*metrics.values(), *more])
    else:
        arguments = (*metrics, *more) if several(metrics) else (metrics, *more)
        check_one_library(arguments)
    for value in arguments:
        yield from metrics_of(value, options)


def check_one_library(elements: Iterable[Any]) -> None:
    """Raise ValueError for XGBoost's ``ndcg@10-`` beside ``ndcg@10``, whose gain is exponential in XGBoost alone."""
    texts = [value for value in elements if isinstance(value, str)]
    if "-" not in "".join(texts):
        return
    names = [name.lower() for text in texts for name in split(text)]
    plain = {name.partition("@")[0]: name for name in names if not name.endswith("-")}
    for name in names:
        measure, _, cut = name.removesuffix("-").partition("@")
        if name.endswith("-") and measure in plain:
            one, other = (parse_all(text)[0].label for text in (plain[measure], name))
            if one.partition("@")[0] != other.partition("@")[0]:
                raise ValueError(
                    f"Expected {plain[measure]!r} and XGBoost's {name!r} to differ in queries without a relevant row"
                    f" only, got {one} and {other}; pass tr.preset('xgboost'{cut and ', '}{cut}), which has both"
                )


def metrics_of(value: Any, options: Mapping[str, Any]) -> list[tuple[str, Metric]]:
    """The keys and metrics of one element of a collection."""
    if isinstance(value, str):
        if value.lower() in POINTWISE:
            return [(value.lower(), POINTWISE[value.lower()](**options))]
        if len(names := split(value)) > 1:
            return [pair for name in names for pair in metrics_of(name, options)]
        return [(metric.label, metric) for metric in parse_all(value, **options)]
    if isinstance(value, MetricCollection):
        pairs = [(str(key), metric) for key, metric in value.items(keep_base=False)]
    elif isinstance(value, Metric):
        pairs = [(value.label if isinstance(value, Measure) else type(value).__name__, value)]
    else:
        way_out = f"; make one, {value.__name__}()" if isinstance(value, type) and issubclass(value, Metric) else ""
        raise ValueError(f"Expected the name of a measure or a torchmetrics.Metric, got {value!r}{way_out}")
    for key, metric in pairs:
        if isinstance(metric, SafeMetric) and metric.asks_for:
            raise ValueError(
                f"Expected metrics that take the arguments of a collection, got {key!r}, which needs {metric.asks_for},"
                f" too; update the {type(metric).__name__} by itself, it can contain all other metrics"
            )
        for name, option in options.items():
            if getattr(metric, name) != option:
                raise ValueError(
                    f"Expected {key} with {name}={option!r}, as its collection, got {getattr(metric, name)!r}; make the"
                    " metric with it, or give its name"
                )
    return pairs


def plot_results(values: Any, axes: Any) -> tuple[Any, Any]:
    """Draw the results of several metrics: a row for each metric, or a line for each over a list of results."""
    return plot_steps(values, axes) if isinstance(values, Sequence) else plot_values(values, axes)


def plot_values(values: Mapping[str, Any], axes: Any) -> tuple[Any, Any]:
    """Draw a row for each metric: its name, a mark for its value or for the value of each query, and the number."""
    # sizes in inches, from the number and the lengths of names in a small font
    width, height = 6 + 0.09 * max(map(len, values), default=0), min(max(2.4, 1.2 + 0.28 * len(values)), 20)
    axes = axes_of(axes, width, height, managed=True)
    for row, value in enumerate(values.values()):
        numbers = torch.as_tensor(value, device="cpu").reshape(-1)
        single = len(numbers) == 1
        axes.plot(numbers, [row] * len(numbers), "o" if single else "|", color=style(row)["color"])
        text = f"{numbers.item():.4g}" if single else f"{len(numbers)} values"
        axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), va="center", size="small")
    axes.set_yticks(range(len(values)), list(values))
    plainly(axes.get_yticklabels(), list(values))
    axes.set_ylim(len(values) - 0.4, -0.6)  # descending, so that the first metric is on top
    axes.grid(True, alpha=0.4)
    return axes.get_figure(), axes


def plot_steps(values: Sequence[Mapping[str, Tensor]], axes: Any) -> tuple[Any, Any]:
    """Draw a line for each metric over a list of results."""
    steps = list(range(len(values)))
    figure, axes = _plot_lines({key: (steps, [float(result[key]) for result in values]) for key in values[0]}, axes)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(imported("matplotlib.ticker", "plot").MaxNLocator(integer=True))
    return figure, axes


def plot_over_k(
    lines: Mapping[str, tuple[list[int], list[float]]], levels: Mapping[str, float], axes: Any
) -> tuple[Any, Any]:
    """Draw lines through points (k, value), with ticks at these k, and lines at some levels."""
    cutoffs = sorted({k for found, _ in lines.values() for k in found})
    across = [cutoffs[0], cutoffs[-1]] if cutoffs else [1, 2]
    figure, axes = _plot_lines({**lines, **{name: (across, [level, level]) for name, level in levels.items()}}, axes)
    axes.set_xlabel("k")
    log_axis(axes, cutoffs)
    return figure, axes


def _plot_lines(lines: Mapping[str, tuple[list[int], list[float]]], axes: Any) -> tuple[Any, Any]:
    """Draw lines through points (x, y), with their names next to the axes."""
    height = max(4.8, 1.2 + 0.22 * min(len(lines), COLUMN))
    axes = axes_of(axes, 6.4 + room_for(list(lines), aside=True), height, managed=True)
    draw_lines(axes, lines, aside=True)
    return axes.get_figure(), axes


def _takes_values(metric: Metric) -> TypeGuard[Measure]:
    """Whether a metric may get its values in place of a batch. Other classes may change it before it is added."""
    cls: Any = type(metric)
    return cls.forward is Measure.forward and cls.update in (RankingMetric.update, ListMetric.update)


@contextlib.contextmanager
def _with_state(metric: Metric, reduced: State | ValueError | None) -> Iterator[None]:
    """Context in which the state of a metric over all workers is known, if it was reduced together with others."""
    if isinstance(reduced, ValueError):
        raise reduced
    with metric.reduced_to(reduced) if isinstance(metric, Measure) else contextlib.nullcontext():
        yield


class RankingCollection(MetricCollection):
    """Metrics that are updated together: a batch is ranked once for all, and one all-reduce synchronises them.

    A :class:`torchmetrics.MetricCollection` whose members return the same results as alone. Keys are labels, in the
    order given. On several workers :meth:`compute` makes one all-reduce. A member that is computed by itself, as by
    Lightning's ``log_dict``, makes its own. The order of members may differ between workers; if the members differ,
    all workers raise ValueError.

    Members from other libraries receive ``preds`` and ``target`` of the candidates that ``mask`` and ``exclude`` leave.
    ``"mae"``, ``"mse"`` and ``"rmse"`` are torchmetrics' metrics, which take no ``weights``. A collection can contain
    any :class:`torchmetrics.MetricCollection`, and can be contained in one if no label has a dot.

    Args:
        metrics: names, metrics, collections, or an iterable of these; or a dict from keys to names or metrics. A name
            can stand for several metrics: ``"ndcg@5,10"`` for two, ``"recall@1-3, mrr"`` for four.
        more: further names or metrics.
        prefix: text before every key.
        postfix: text after every key.
        keys: the spelling of all keys, those of a dict too: "label" as they are; "plain" for loggers that refuse
            ``@``, ``(`` or ``=``, e.g. ``ndcg_at_10``; "identifier" also without ``.`` and ``-``. See
            :func:`torchrank.plain`. States keep their names, so checkpoints fit collections of any spelling.
        kwargs: of :class:`torchmetrics.Metric`, e.g. ``sync_on_compute=False``, for all metrics that are given by their
            names. Other metrics must have been made with them.

    Raises:
        TypeError: an argument is unknown.
        ValueError: a name is unknown, two keys are equal or have one spelling, an element is neither a name nor a
            metric, or a metric was made with other ``kwargs``, or needs more arguments, as :class:`torchrank.Sliced`.

    Example:
        >>> import torch, torchrank as tr
        >>> suite = tr.RankingCollection(["ndcg@2", "recall@1,2", tr.MRR()], prefix="val/")
        >>> suite.update(torch.tensor([[0.1, 0.9, 0.5]]), torch.tensor([[0, 0, 1]]))
        >>> {key: round(value.item(), 4) for key, value in suite.compute().items()}
        {'val/ndcg@2': 0.6309, 'val/recall@1': 0.0, 'val/recall@2': 1.0, 'val/mrr': 0.5}
    """

    __jit_unused_properties__: ClassVar = ["metric_state", "compute_groups"]
    # The constructor of MetricCollection reads them, and pickles of older versions do.
    _style = "label"
    #: whether small batches may wait to be ranked together, see :meth:`torchrank.RankingMetric.update`
    waits = True
    _options = dict[str, Any]()

    @eager
    def __init__(
        self,
        metrics: Metrics,
        *more: Member,
        prefix: str | None = None,
        postfix: str | None = None,
        keys: KeyStyle = "label",
        **kwargs: Any,
    ) -> None:
        one_of("keys", keys, get_args(KeyStyle))
        known = [name for name, measure in Measure.declared.items() if measure.of_torchmetrics]
        for name in kwargs.keys() - {*known}:
            raise TypeError(unknown("RankingCollection", name, ["metrics", "prefix", "postfix", "keys", *known]))
        # torchmetrics' groups share states of equal metrics. Here metrics share the ranking, and groups are not needed.
        super().__init__([], prefix=prefix, postfix=postfix, compute_groups=False)
        self._style, self._options = keys, kwargs
        self.add_metrics(metrics, *more)

    def add_metrics(self, metrics: Metrics, *more: Member) -> None:
        """Add metrics, given as in the constructor."""
        self._groups: dict[int, list[str]] = {}  # torchmetrics' compute groups: none
        # The constructor of MetricCollection calls this method, so it cannot rely on attributes.
        if "_waiting" not in self.__dict__:
            self._begin_waiting()
        members = [*self._unprefixed().items(), *keyed(metrics, *more, options=self._options)]
        check_different([key for key, _ in members], self._style)
        for key, metric in members:
            inner = key.replace("%", "%25").replace(".", "%2E")
            taken = hasattr(type(self), inner) or inner in self.__dict__
            self[f"%{ord(inner[0]):02X}{inner[1:]}" if taken else inner] = metric

    # ---- keys: torch's ModuleDict accepts neither dots nor names of its own attributes: both are percent-encoded ----

    def _set_name(self, base: str, more: str = "") -> str:
        return super()._set_name(self._spelled(base, more))

    def _spelled(self, inner: str, more: str = "") -> str:
        return spell(unquote(inner) + more, self._style)

    def _find(self, key: object) -> str | None:
        """The key in ModuleDict of a metric; None = there is no such metric."""
        for name_of in (self._set_name, self._spelled, unquote):
            for inner in self._modules:
                if key == name_of(inner):
                    return inner
        return None

    def __getitem__(self, key: str, copy_state: bool = True) -> Metric:
        """The metric with a key: with prefix and postfix, without them, or as it was given."""
        inner = self._find(key)
        if inner is None:
            known = ", ".join(map(repr, self.keys()))
            raise KeyError(f"Expected one of {known}, got {key!r}{did_you_mean(key, self.keys())}")
        return self._modules[inner]

    def add_module(self, name: str, module: Any) -> None:
        """Add or replace a metric. What waits belongs to the metrics before."""
        if "_waiting" in self.__dict__:
            self._waiting.flush()
        super().add_module(name, module)

    def clear(self) -> None:
        """Remove all metrics."""
        self._waiting.flush()
        super().clear()

    def __delitem__(self, key: str) -> None:
        inner = self._find(key)
        self._waiting.flush()
        del self._modules[str(inner)]

    def __contains__(self, key: object) -> bool:
        return key in self._modules or self._find(key) is not None

    def keys(self, keep_base: bool = False) -> KeysView[str]:
        """All keys; with ``keep_base`` as they were given, without prefix and postfix."""
        return self._unprefixed().keys() if keep_base else self._to_renamed_dict().keys()

    def items(self, keep_base: bool = False, copy_state: bool = True) -> Iterable[tuple[str, Metric]]:  # type: ignore[override]
        """All keys and metrics; with ``keep_base`` the keys as they were given."""
        return self._unprefixed().items() if keep_base else super().items(False, copy_state)

    def _unprefixed(self) -> dict[str, Metric]:
        return {unquote(inner): metric for inner, metric in self._modules.items()}

    def _begin_waiting(self) -> None:
        self._waiting: Waiting = Waiting(self, self._update_at_once, self._update_later, self._waiters)

    def __getstate__(self) -> dict[str, Any]:
        self._waiting.flush()
        return {key: value for key, value in self.__dict__.items() if key != "_waiting"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin_waiting()

    # ---- rank once ---------------------------------------------------------------------------------------------

    @eager
    @with_options
    def update(  # type: ignore[override]
        self, preds: Array | Ranking, target: Target | None = None, **options: Unpack[Options]
    ) -> None:
        """Add a batch of whole queries to every metric. Arguments of :meth:`torchrank.RankingMetric.update`."""
        self._waiting.update(preds, target, **options)

    @with_options
    def _update_at_once(self, preds: Any, target: Any = None, **options: Unpack[Options]) -> None:
        for call in self._calls(Batch(preds, target, **options)):
            call()

    @with_options
    def _update_later(self, preds: Any, target: Any = None, **options: Unpack[Options]) -> None:
        """As :meth:`update`, for several batches in one, which count as updates already."""
        ours, batch = self._waiting.ranked, Batch(preds, target, **options)
        found = score_batch(ours, batch, values=False)
        for n, metric in enumerate(ours):
            metric.accumulate(found, n)

    def _waiters(self) -> Sequence[Measure]:
        """The metrics, if batches can wait for all of them."""
        members = list(self._modules.values())
        # A metric with two keys gets each batch twice.
        every = all(map(_takes_values, members)) and len(set(map(id, members))) == len(members)
        return members if every else ()  # type: ignore[return-value]

    def reset(self) -> None:
        """Forget all batches."""
        self._waiting.drop()
        super().reset()

    @eager
    @with_options
    def forward(self, preds: Array | Ranking, target: Target | None = None, **options: Unpack[Options]) -> Results:
        """Add a batch and return its own values by key. Arguments of :meth:`update`."""
        values = [call() for call in self._calls(Batch(preds, target, **options), forward=True)]
        return self._shown(dict(zip(self._modules, values)))

    @eager
    @with_options
    def score(self, preds: Array | Ranking, target: Target | None = None, **options: Unpack[Options]) -> Results:
        """The values [query] of every metric with per-query values, by key. States do not change.

        Metrics of other libraries are left out, and so are measures of a whole catalogue, e.g.
        :class:`torchrank.Coverage`.

        Raises:
            TypeError, ValueError: as :meth:`update`, and ValueError at once for bad values.
        """
        batch = Batch(preds, target, **options)
        members = {inner: m for inner, m in self._modules.items() if isinstance(m, RankingMetric | PerUserMetric)}
        if not members:
            return {}
        found = score_batch(list(members.values()), batch, total=False)
        named = enumerate(members.items())
        return {self._set_name(inner): metric.scored(batch, found.of(n)) for n, (inner, metric) in named}

    def _calls(self, batch: Batch, forward: bool = False) -> list[Callable[[], Any]]:
        """The update of each metric, or its ``forward``. Our metrics get their values of one ranking of the batch.

        If the batch does not fit one of them, an error is raised before any metric is updated.
        """
        members = list(self._modules.values())
        for metric in members if isinstance(batch.preds, Ranking) else []:
            if not isinstance(metric, RankingMetric):
                raise TypeError(
                    f"Expected preds and target for {type(metric).__name__}, got a Ranking; update it by itself, or"
                    " leave it out of this collection"
                )
        ours = list(filter(_takes_values, members))
        found: Any = score_batch(ours, batch, values=False) if ours else None
        # All others receive only the keywords that the user has passed.
        options = {key: x for key, x in {**batch.options, "weights": batch.weights}.items() if x is not None}
        others = Pointwise(batch.preds, batch.target, options)
        calls: list[Callable[[], Any]] = []
        number = itertools.count()
        for metric in members:
            if _takes_values(metric):
                add = metric.forward_scored if forward else metric.add_scored
                calls.append(functools.partial(add, found, next(number)))
                continue
            if isinstance(metric, Measure):
                taken = ("mask", "exclude", "repeats", "weights") if isinstance(metric, ListMetric) else options
                arguments, keywords = (batch.preds, batch.target), {x: options[x] for x in taken if x in options}
            else:
                arguments, keywords = others.arguments_of(metric)
            calls.append(functools.partial(metric if forward else metric.update, *arguments, **keywords))
        for metric in ours[:1]:
            metric.notice_cut(batch.indexes)
        return calls

    # ---- reduce once -------------------------------------------------------------------------------------------

    @eager
    def compute(self) -> Results:
        """The value of every metric, by key.

        Raises:
            ValueError: a worker has met bad values. All metrics can be used further.
        """
        reduced = reduce_together(self._unprefixed())
        ours = {inner for inner, metric in self._modules.items() if isinstance(metric, Measure)}
        values: dict[str, Any] = {}
        raised: dict[str, ValueError] = {}
        # Sorted, so that workers with another order of members call collectives in the same order.
        for inner in sorted(self._modules, key=lambda inner: (inner not in ours, inner)):
            metric = self._modules[inner]
            if inner not in ours and jit_distributed_available():
                # The other libraries' metrics may differ as well, and would wait for each other forever.
                if any(isinstance(error, WorkersDifferError) for error in raised.values()):
                    break
                metric._computed = None  # a worker that returned a cached value would leave the others waiting
            try:
                with _with_state(metric, reduced.get(unquote(inner))):
                    values[inner] = metric.compute()
            except ValueError as error:  # compute the other metrics first, or workers would get out of step
                raised[inner] = error
        for inner in self._modules:
            if inner in raised:
                raise raised[inner]
        return self._shown({inner: values[inner] for inner in self._modules})

    @eager
    def intervals(self, level: float = 0.95, method: Method = "auto") -> dict[str, Interval]:
        """The confidence interval of every metric of this library, by key: (low, high), both floats.

        As :meth:`compute`, it makes one all-reduce. See :meth:`torchrank.RankingMetric.interval`.

        Raises:
            ValueError: an argument has an unknown value, or a worker has met bad values.
        """
        return {key: result.interval for key, result in self._estimates(level, method).items()}

    @eager
    def confidence_sequences(self, level: float = 0.95) -> dict[str, Interval]:
        """The confidence sequence of every metric, by key: an interval that may be looked at after every batch.

        As :meth:`compute`, it makes one all-reduce. See :meth:`torchrank.RankingMetric.confidence_sequence`.

        Raises:
            ValueError: as :meth:`intervals`.
        """
        return self.intervals(level, "anytime")

    @eager
    def summary(self, level: float = 0.95, method: Method = "auto", anytime: bool = False) -> Table:
        """A table with a row for every metric: value, standard error, interval, and numbers of queries.

        As :meth:`compute`, it makes one all-reduce. Metrics of other libraries are left out; a curve has no value.

        Args:
            level: the probability that an interval contains the expected value.
            method: as :meth:`torchrank.RankingMetric.interval`.
            anytime: the intervals are those of :meth:`confidence_sequences`, for looks after every batch.

        Returns:
            A :class:`torchrank.Table` with the columns measure, value, standard error, low, high, queries, empty; and
            effective, the effective number of queries, if their weights differ.

        Raises:
            ValueError: an argument has an unknown value, or a worker has met bad values.

        Example:
            >>> import torch, torchrank as tr
            >>> suite = tr.RankingCollection(["ndcg", "hitrate@1"])
            >>> suite.update(torch.tensor([[0.1, 0.9], [0.8, 0.3], [0.2, 0.4]]), torch.tensor([[1, 0], [1, 0], [1, 1]]))
            >>> suite.summary()
            measure     value  standard error     low    high  queries  empty
            ndcg       0.8770          0.1230  0.3476  1.4063        3      0
            hitrate@1  0.6667          0.3333  0.2077  0.9385        3      0
            low and high: 95 % confidence interval
        """
        method = "anytime" if anytime else method
        return estimate_table(self._estimates(level, method), level, method=method)

    def _estimates(self, level: float, method: Method) -> dict[str, Estimate]:
        reduced, states = reduce_together(self._unprefixed()), {}
        ours = {inner: metric for inner, metric in self._modules.items() if isinstance(metric, Measure)}
        # Sorted, so that workers with another order of members call collectives in the same order.
        for inner in sorted(ours):
            with _with_state(ours[inner], reduced.get(unquote(inner))):
                states[inner] = ours[inner].of_all_workers()
        return {self._set_name(inner): m.estimate_of(*states[inner], level, method) for inner, m in ours.items()}

    def _shown(self, values: dict[str, Any]) -> Results:
        """Results by key, with prefix and postfix. A metric that returns a dict has one key for each entry."""
        shown: dict[str, Any] = {}
        for inner, value in values.items():
            several = {f"_{key}": part for key, part in value.items()} if isinstance(value, dict) else {"": value}
            shown |= {self._set_name(inner, key): part for key, part in several.items()}
        return shown

    def plot(self, val: Any = None, ax: Any = None, together: bool | None = None, over_k: bool = False) -> Any:
        """Plot the values of all metrics in one figure; needs matplotlib.

        Args:
            val: a result of :meth:`compute` or :meth:`forward`, or a list of results, drawn as lines; None = compute.
            ax: the axes to draw in; for one plot of each metric a sequence of axes; None = new axes.
            together: True = all metrics in one axes; False = each metric in its own figure, drawn by torchmetrics;
                None = in one axes unless ``ax`` is a sequence.
            over_k: draw measures in one axes as lines over their cutoffs: ``ndcg@1``, ``ndcg@2`` and ``ndcg@5`` are one
                line. A metric without a cutoff is a dashed line.

        Measures whose values can exceed 1 need axes without the others: a warning names them.

        Returns:
            The figure and its axes; with ``together=False`` a list of (figure, axes), one for each metric.

        Raises:
            ValueError: a metric returned a curve, or values for each query, that cannot be drawn in one axes; or
                ``val`` is a list and ``over_k`` is True.
        """
        if not over_k and (together is False or (together is None and isinstance(ax, Sequence))):
            return super().plot(val, ax, together=False)
        val = self.compute() if val is None else val
        several = isinstance(val, Sequence)
        if over_k and several:
            raise ValueError(f"Expected one result to plot over k, got a list of {len(val)}; pass one of them")
        for key, value in (val[0] if several else val).items():
            if isinstance(value, tuple) or ((several or over_k) and torch.as_tensor(value, device="cpu").numel() != 1):
                raise ValueError(f"Expected one number of each metric, got several of {key!r}; plot it by itself")
        ours = {key: metric for key, metric in self.items(copy_state=False) if isinstance(metric, Measure)}
        wide = [key for key, metric in ours.items() if max(map(abs, metric.value_range)) > 1]
        if 0 < len(wide) < len(ours):
            warn(
                f"{', '.join(wide)} can exceed 1, which flattens the other metrics in the same axes; plot these in a"
                " collection without the others"
            )
        if not over_k:
            return plot_results(val, ax)
        values, lines, levels = val, dict[str, tuple[list[int], list[float]]](), dict[str, float]()
        cuts = {key: ours[key].top_k if key in ours else None for key in values}
        for key, cut in sorted(cuts.items(), key=lambda of: of[1] or 0):
            if cut is None:
                levels[key] = float(values[key])
                continue
            cutoff = re.compile(rf"@{cut}(?!\d)")
            name = key if cutoff.search(key) else str(self[key].label)  # a key chosen by the user has no cutoff
            ranks, numbers = lines.setdefault(cutoff.sub("@k", name), ([], []))
            ranks.append(cut)
            numbers.append(float(values[key]))
        return plot_over_k(lines, levels, ax)

    def merge_state(self, other: RankingCollection) -> None:
        """Add the states of another collection of the same metrics. Its queries follow the queries of this one.

        Raises:
            ValueError: ``other`` is not a collection of the same metrics. No metric is changed.
        """
        there = isinstance(other, MetricCollection)
        if not there or list(other._modules) != list(self._modules):
            got = list(other.keys()) if there else f"a {type(other).__name__}; pass a collection of the same metrics"
            raise ValueError(f"Expected a collection of {list(self.keys())}, got {got}")
        for inner, metric in self._modules.items():
            if isinstance(metric, SafeMetric):  # check all before the first one changes
                metric.mergeable(other._modules[inner])
        for inner, metric in self._modules.items():
            metric.merge_state(other._modules[inner])

    if TYPE_CHECKING:

        @call_of(forward, Results)
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
