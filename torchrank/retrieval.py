"""torchmetrics.retrieval's classes on this engine: change one import.

Constructors, argument checks and plots are torchmetrics' own. A query may arrive in pieces, over batches and over
workers:

    >>> from torchmetrics import MetricCollection
    >>> suite = MetricCollection([RetrievalNormalizedDCG(top_k=10), RetrievalMAP()])
    >>> suite.update(torch.tensor([0.9, 0.3, 0.4]), torch.tensor([0, 1, 1]), indexes=torch.tensor([7, 7, 8]))
    >>> suite.update(torch.tensor([0.6, 0.2]), torch.tensor([1, 0]), indexes=torch.tensor([7, 8]))
    >>> suite.compute()
    {'RetrievalNormalizedDCG': tensor(0.8467), 'RetrievalMAP': tensor(0.7917)}

State. These metrics keep all rows (score, target, index) in the smallest dtypes that hold them, nine bytes a row as a
rule. A collection keeps its rows once and ranks them once. The rankings stay until the next update or reset. Each
metric gathers its rows in two collectives, for any number of batches. If every query is whole in one ``update``,
:class:`torchrank.NDCG` and the other kinds of :class:`torchrank.RankingMetric` keep 20 numbers instead. There
``indexes`` goes by keyword and ``ignore_index`` becomes ``mask``. ``MAP(top_k=k, normalize="retrieved")`` replaces
``RetrievalMAP(top_k=k)``.

Differences. For positive float32 scores without ties the numbers equal those of torchmetrics, its special cases
included: 0 for an AUROC of one class, 0 if all queries are skipped. Elsewhere they differ:

- Scores of 0 and below: torchmetrics 1.9 treats them as irrelevant in ``MAP``, ``MRR``, ``Precision`` and ``Recall``.
  Here they are compared like all others.
- Ties, except in ``NormalizedDCG``: torchmetrics uses the order that a sort happens to leave. Here the value is the
  expectation over all orders.
- float64 scores: torchmetrics rounds them to float32, which makes ties. Here they are compared as they are.
- NaN scores: most classes of torchmetrics rank them first. Here ``compute`` raises ValueError on all workers.
- A score of -inf: torchmetrics gives it the last rank. Here it is not retrieved: outside of the list and of its length.
- Grades below 0 in ``NormalizedDCG``: torchmetrics counts negative gains, and values leave [0, 1]. Here such a
  candidate is unjudged, with gain 0.
- Targets between 0 and 1 elsewhere: torchmetrics counts them as fractions or as relevant, or raises TypeError. Here
  ``update`` raises ValueError.
- ``top_k=-5`` or 1.5 in ``MAP`` and ``MRR``: torchmetrics accepts it, and ``compute`` fails. Here the constructor
  raises ValueError.
- ``max_fpr`` outside (0, 1]: torchmetrics accepts it, and ``compute`` fails or returns a meaningless number. Here the
  constructor raises ValueError.
- A batch that is all ``ignore_index``: torchmetrics raises ValueError. Here nothing is kept.
- An ``aggregation`` without an argument ``dim``: TypeError in torchmetrics' ``compute``. Here it receives the values
  alone.
- ``compute`` without any row: torchmetrics raises ValueError. Here it returns 0, or empty curves.
- Workers with different numbers of batches, or none: with torchmetrics the process aborts, or a worker raises. Here the
  number is that of one process.
- Metrics of a collection that differ in ``ignore_index``: torchmetrics merges them for good, if the first batch has
  nothing to ignore. Here they are never joined.
- States: torchmetrics has ``preds``, ``target`` and ``indexes``, in checkpoints if persistent. Here they have other
  names and dtypes, so checkpoints of one library do not load into the other.

One process can show most of these. First torchmetrics' number, then torchrank's:

    >>> from torchrank import retrieval as ours
    >>> def both(name, preds, target, **arguments):
    ...     found = []
    ...     for library in (stock, ours):
    ...         try:
    ...             metric = getattr(library, "Retrieval" + name)(**arguments)
    ...             metric.update(torch.tensor(preds), torch.tensor(target), torch.zeros(len(preds), dtype=torch.int64))
    ...             found.append(round(metric.compute().item(), 4))
    ...         except Exception as error:
    ...             found.append(type(error).__name__)
    ...     return found

    >>> both("MAP", [-1.0, -2.0, -3.0], [1, 0, 0])  # scores below 0; the relevant candidate is first
    [0.0, 1.0]
    >>> both("MRR", [0.5, 0.5, 0.5], [0, 0, 1])  # three tied candidates: (1 + 1/2 + 1/3) / 3
    [0.3333, 0.6111]
    >>> both("MRR", torch.tensor([1, 1 + 1e-12], dtype=torch.float64).numpy(), [0, 1])  # the second is larger
    [0.5, 1.0]
    >>> both("MRR", [0.1, float("nan")], [1, 0])
    [0.5, 'ValueError']
    >>> both("HitRate", [float("-inf"), 0.1], [1, 0])
    [1.0, 0.0]
    >>> both("NormalizedDCG", [0.3, 0.2, 0.1], [-3, 1, 1])
    [-14.2754, 0.6934]
    >>> both("MRR", [0.2, 0.1], [0.5, 0.5])
    [1.0, 'ValueError']
    >>> both("MAP", [0.5, 0.4], [1, 0], top_k=-5)
    ['RuntimeError', 'ValueError']
    >>> both("AUROC", [0.5, 0.4], [1, 0], max_fpr=-1.0)
    [0.6667, 'ValueError']
    >>> both("MRR", [0.2, 0.1], [7, 7], ignore_index=7)
    ['ValueError', 0.0]
    >>> both("MRR", [0.2, 0.1], [0, 1], aggregation=lambda values: values.mean())
    ['TypeError', 0.5]
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
import torchmetrics.retrieval as stock
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrank.engine import rank
from torchrank.hardware.devices import eager, in_batch
from torchrank.layouts.arrange import arrange
from torchrank.layouts.canonical import BLOCK, Need, buckets
from torchrank.layouts.checks import explain, tensor_of
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.binary import MAP, MRR, FallOut, HitRate, Precision, Recall, RPrecision
from torchrank.metrics.curves import AUROC
from torchrank.metrics.graded import NDCG
from torchrank.names.arguments import MOST
from torchrank.ranking.ranking import Ranking, batch_order
from torchrank.state.metric import SafeMetric
from torchrank.state.synchronisation import gather_rows
from torchrank.state.waiting import LOCK

__all__ = [
    "RetrievalAUROC",
    "RetrievalFallOut",
    "RetrievalHitRate",
    "RetrievalMAP",
    "RetrievalMRR",
    "RetrievalNormalizedDCG",
    "RetrievalPrecision",
    "RetrievalPrecisionRecallCurve",
    "RetrievalRPrecision",
    "RetrievalRecall",
    "RetrievalRecallAtFixedPrecision",
]


AGGREGATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda values: values.mean(0),
    "median": lambda values: values.median(0).values,
    "min": lambda values: values.amin(0),
    "max": lambda values: values.amax(0),
}
INCOMPARABLE = (torch.uint16, torch.uint32, torch.uint64)  # dtypes for which torch has no comparisons

T = TypeVar("T")

# Elements of padding that cost as much as a further rectangle of curves.
OVERHEAD = 2**17


def _in_batch(compute: Callable[..., T]) -> Callable[..., T]:
    """Decorator for ``compute``: the kept rows are a batch."""

    @functools.wraps(compute)
    def computed(self: Any) -> T:
        with in_batch(self.device, sum(map(len, self._parts()[0]))):
            return compute(self)

    return computed


INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


class Rows(NamedTuple):
    """Candidates: score, target and index of the query of each, all [row]."""

    preds: Tensor
    target: Tensor
    indexes: Tensor


# The dtypes of a state without rows.
EMPTY = (torch.float32, torch.int8, torch.int32)


def narrowed(x: Tensor) -> Tensor:
    """A copy in the smallest signed integer dtype that holds all values; floats keep their dtype. Reads the values."""
    if x.dtype == torch.bool:
        return x.to(torch.int8)
    if x.is_floating_point() or x.dtype == torch.int8:
        return x.clone()
    low, high = torch.stack(x.aminmax()).tolist()
    fitting = (t for t in INTEGERS if torch.iinfo(t).min <= low and high <= torch.iinfo(t).max)
    return x.to(next(fitting), copy=True)


class Retrieval(SafeMetric):
    """Mixin of all classes here. It precedes a class of torchmetrics and keeps the constructor of that class.

    Its states ``preds``, ``target`` and ``indexes`` are lists of rows.
    """

    if TYPE_CHECKING:  # torch.jit.script would evaluate these annotations
        empty_target_action: str
        ignore_index: int | None
        aggregation: Literal["mean", "median", "min", "max"] | Callable
        allow_non_binary_target: bool
        _ranked: tuple[Rows, list[Ranking]] | None  # the rows and their rankings, until the next update or reset
        measure: ClassVar[type[RankingMetric]]
        _latest: ClassVar[weakref.ref[Retrieval] | None]

    #: the kind of target that an empty query does not have
    needed = "positive"

    # The metric that has ranked last. Other metrics of its collection have the same rows and take its rankings.
    _latest = None

    def add_state(self, name: str, default: Any, dist_reduce_fx: Any = None, persistent: bool = False) -> None:
        """Add a state. The name of a state of rows contains ``ignore_index``, which selects the rows."""
        if name in Rows._fields:
            # torchmetrics.MetricCollection shares states between metrics if their names are equal, and their values
            # after the first batch. So the name contains all arguments that select rows, and no others.
            self._state = "rows" if self.ignore_index is None else f"rows(ignore_index={self.ignore_index})"
            name, dist_reduce_fx = f"{self._state}:{name}", "cat"
        super().add_state(name, default, dist_reduce_fx, persistent)

    def _parts(self) -> list[list[Tensor]]:
        return [getattr(self, f"{self._state}:{field}") for field in Rows._fields]

    def all_rows(self) -> Rows:
        """All rows as one tensor for each field. The state keeps these tensors in place of the parts."""
        for parts, dtype in zip(self._parts(), EMPTY):
            if len(parts) != 1:
                parts[:] = [torch.cat(parts) if parts else torch.empty(0, dtype=dtype, device=self.device)]
        return Rows(*(parts[0] for parts in self._parts()))

    def fits(self, name: str, rows: Tensor) -> bool:
        return rows.dim() == 1

    def joined(self, name: str, earlier: Any, later: Any) -> Any:
        return [*earlier, *later]

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        return x.to(device)

    def restored(self, x: Tensor) -> Tensor:
        return x.to(self.device)

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        rows = self.all_rows()
        if dist_sync_fn is gather_all_tensors:
            none = torch.empty(0, dtype=torch.int64, device=self.device)
            columns = [x.to(self.device).unsqueeze(1) for x in rows]
            columns, _ = gather_rows(columns, none, process_group or self.process_group)
            rows = Rows(*(x.squeeze(1) for x in columns))
        else:  # a function of the user, which gathers one state at a time
            super()._sync_dist(dist_sync_fn, process_group)
            rows = Rows(*(getattr(self, f"{self._state}:{field}") for field in Rows._fields))
        for field, x in zip(Rows._fields, rows):
            self._set(field, [x])

    def update(self, preds: Tensor, target: Tensor, indexes: Tensor) -> None:
        """Keep the rows of a batch. A query may have rows in several batches. Reads values, so it waits for a GPU.

        Args:
            preds: scores, floating, of any shape; -inf = not retrieved.
            target: bool, integer or floating, of the same shape: 0 or 1; grades for :class:`RetrievalNormalizedDCG`.
            indexes: integer, of the same shape: the query of each row.

        Raises:
            ValueError: shapes or dtypes do not fit, the batch is empty, or a target that must be binary is not.
        """
        self._ranked = None
        _check(preds, target, indexes)
        with in_batch(preds.device, preds.numel()):
            rows = Rows(*(tensor_of(x).detach().flatten() for x in (preds, target, indexes)))
            if self.ignore_index is not None:  # compare as int64: ignore_index may be out of range of a narrow dtype
                accepted = (rows.target if target.is_floating_point() else rows.target.long()) != self.ignore_index
                rows = Rows(*(x.index_select(0, accepted.nonzero().squeeze(1)) for x in rows))
            if not len(rows.preds):
                return
            if not self.allow_non_binary_target:
                rows = rows._replace(target=_binary(rows.target))
            narrow = [narrowed(x) for x in rows]
            with LOCK:
                for parts, x in zip(self._parts(), narrow):
                    parts.append(x)

    def rankings(self) -> list[Ranking]:
        """The rankings of all rows. Metrics of a collection with the same rows share them."""
        rows = self.all_rows()
        # MetricCollection does not tell a metric about the others, so compare with the rows that were ranked last.
        other = Retrieval._latest() if Retrieval._latest else None
        ranked = other._ranked if other else None
        if ranked is None or not all(map(_same, rows, ranked[0])):
            lists = arrange(rows.preds, rows.target, indexes=rows.indexes)
            with in_batch(rows.preds.device):
                ranked = self._ranked = rows, list(rank(lists, Need(relevant=True)))
            Retrieval._latest = weakref.ref(self)
        if not self.allow_non_binary_target:
            _binary(rows.target)  # in a collection, a metric of grades may have kept these rows
        if problems := explain(torch.stack([ranking.errors for ranking in ranked[1]]).sum(0)):
            raise ValueError(problems)
        return ranked[1]

    def counterpart(self) -> RankingMetric:
        """The metric of this library with the same definition."""
        return made(self.measure, self.top_k)

    @_in_batch
    def compute(self) -> Any:
        """The aggregate over all queries: float32 []; 0 if every query was skipped.

        Raises:
            ValueError: a query is empty under ``empty_target_action="error"``, or scores or targets are NaN.
        """
        rankings, metric = self.rankings(), self.counterpart()
        values = torch.cat([metric.measure(metric.resolve_ties(ranking)) for ranking in rankings])
        empty = self.all_empty(rankings)
        if callable(self.aggregation) and (order := batch_order([r.queries for r in rankings])) is not None:
            values, empty = values[order], empty[order]  # a callable receives the values in the order of indexes
        return self.aggregated(values, empty)

    def empty(self, ranking: Ranking) -> Tensor:
        """bool [query]: whether the query has nothing to measure."""
        return self.counterpart().empty(ranking)

    def all_empty(self, rankings: list[Ranking]) -> Tensor:
        """:meth:`empty` for all queries; raises ValueError under ``empty_target_action="error"`` if one is empty."""
        empty = torch.cat([self.empty(ranking) for ranking in rankings])
        if self.empty_target_action == "error" and bool(empty.any()):
            raise ValueError(f"`compute` method was provided with a query with no {self.needed} target.")
        return empty

    def aggregated(self, values: Tensor, empty: Tensor) -> Tensor:
        """The aggregate over queries of values [query] or [query, rank]: [] or [rank].

        Values of queries that are ``empty``, bool [query], are replaced or left out. ``values`` is overwritten.
        """
        dim = 0 if values.dim() > 1 else None  # torchmetrics passes the same
        if self.empty_target_action == "skip":
            values = values[~empty]
        else:
            fill = float(self.empty_target_action == "pos")
            values.masked_fill_(empty if dim is None else empty.unsqueeze(1), fill)
        if not values.numel():  # torchmetrics returns 0 if all queries are skipped
            return values.new_zeros(values.shape[1:]).float()
        if isinstance(self.aggregation, str):
            return AGGREGATIONS[self.aggregation](values).float()
        if _takes_dim(self.aggregation):
            return torch.as_tensor(self.aggregation(values.float(), dim=dim), device=values.device)
        # A function without `dim` receives the values of all queries at one rank. torchmetrics squeezes one result.
        columns = values.float().unsqueeze(1).flatten(1).T
        return torch.stack([torch.as_tensor(self.aggregation(column), device=column.device) for column in columns])

    def reset(self) -> None:
        """Forget all rows."""
        super().reset()
        self._ranked = None

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self._ranked = None  # the rankings stay on the old device
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_ranked": None}


def _check(preds: Tensor, target: Tensor, indexes: Tensor) -> None:
    """Check shapes and dtypes, with torchmetrics' messages.

    Raises:
        ValueError: they do not fit.
    """
    if indexes is None:
        raise ValueError("Argument `indexes` cannot be None")
    if not indexes.shape == preds.shape == target.shape:
        got = [list(x.shape) for x in (indexes, preds, target)]
        raise ValueError(f"`indexes`, `preds` and `target` must be of the same shape, got {got}")
    if indexes.is_floating_point() or indexes.is_complex() or indexes.dtype in (torch.bool, *INCOMPARABLE):
        raise ValueError(f"`indexes` must be a tensor of long integers, got {indexes.dtype}")
    if not preds.numel() or not preds.dim():
        raise ValueError(
            f"`indexes`, `preds` and `target` must be non-empty and non-scalar tensors, got shape {list(preds.shape)}"
        )
    if target.is_complex() or target.dtype in INCOMPARABLE:
        raise ValueError(f"`target` must be a tensor of booleans, integers or floats, got {target.dtype}")
    if not preds.is_floating_point():
        raise ValueError(f"`preds` must be a tensor of floats, got {preds.dtype}")


def _binary(target: Tensor) -> Tensor:
    """A target as int8. Reads its values once.

    Raises:
        ValueError: a value is neither 0 nor 1.
    """
    if target.is_floating_point():
        good = bool(((target == 0) | (target == 1)).all())
    else:
        target = target.view(torch.int8) if target.dtype == torch.bool else target
        low, high = torch.stack(target.aminmax()).tolist() if len(target) else (0, 0)
        good = low >= 0 and high <= 1
    if not good:
        raise ValueError("`target` must contain `binary` values")
    return target.to(torch.int8)


def _same(x: Tensor, y: Tensor) -> bool:
    return x is y or (x.dtype == y.dtype and x.device == y.device and torch.equal(x, y))


def _takes_dim(function: Callable) -> bool:
    """Whether a function has the argument ``dim``, which torchmetrics passes to every aggregation."""
    try:
        called = function.forward if isinstance(function, torch.nn.Module) else function
        parameters = inspect.signature(called).parameters.values()
    except ValueError:  # a builtin has no signature
        return False
    return any(p.name == "dim" or p.kind is p.VAR_KEYWORD for p in parameters)


@functools.cache
def made(metric: type[RankingMetric], *args: Any, **kwargs: Any) -> RankingMetric:
    """A metric of this library, used for its formulas alone. It is constructed once."""
    return metric(*args, **kwargs)


class RetrievalMAP(Retrieval, stock.RetrievalMAP):
    """Mean average precision, as :class:`torchmetrics.retrieval.RetrievalMAP`: AP divided by the hits in the first k.

    :class:`torchrank.MAP` with ``normalize="retrieved"``.

    Args:
        empty_target_action: a query without a relevant row counts as 0 ("neg") or 1 ("pos"), not at all ("skip") or
            raises ("error").
        ignore_index: rows with this target are left out.
        top_k: count only the first ``top_k`` ranks; None = all of them.
        aggregation: "mean", "median", "min", "max" of the queries, or a callable.
        kwargs: of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: an argument has an unknown value.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalMAP
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalMAP()(preds, torch.tensor([0, 0, 1, 0, 1]), indexes=indexes)
        tensor(1.)
    """

    def counterpart(self) -> RankingMetric:
        return made(MAP, self.k, normalize="retrieved")


class RetrievalMRR(Retrieval, stock.RetrievalMRR):
    """Mean reciprocal rank, as :class:`torchmetrics.retrieval.RetrievalMRR`.

    :class:`torchrank.MRR`. Arguments of :class:`RetrievalMAP`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalMRR
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalMRR()(preds, torch.tensor([0, 1, 0, 0, 1]), indexes=indexes)
        tensor(0.7500)
    """

    measure = MRR


class RetrievalNormalizedDCG(Retrieval, stock.RetrievalNormalizedDCG):
    """Normalised DCG, as :class:`torchmetrics.retrieval.RetrievalNormalizedDCG`: targets are grades.

    :class:`torchrank.NDCG`; grades below 0 gain nothing. Arguments of :class:`RetrievalMAP`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalNormalizedDCG
        >>> preds, indexes = torch.tensor([0.9, 0.8, 0.1]), torch.tensor([0, 0, 0])
        >>> RetrievalNormalizedDCG()(preds, torch.tensor([0, 3, 5]), indexes=indexes)
        tensor(0.6373)
    """

    measure = NDCG


class RetrievalPrecision(Retrieval, stock.RetrievalPrecision):
    """Precision, as :class:`torchmetrics.retrieval.RetrievalPrecision`.

    :class:`torchrank.Precision`. Arguments of :class:`RetrievalMAP`, and ``adaptive_k``: divide by the length of a
    list that is shorter than ``top_k``.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalPrecision
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalPrecision(top_k=2)(preds, torch.tensor([1, 0, 1, 0, 1]), indexes=indexes)
        tensor(0.5000)
    """

    def counterpart(self) -> RankingMetric:
        return made(Precision, self.top_k, adaptive_k=self.adaptive_k)


class RetrievalRecall(Retrieval, stock.RetrievalRecall):
    """Recall, as :class:`torchmetrics.retrieval.RetrievalRecall`.

    :class:`torchrank.Recall`. Arguments of :class:`RetrievalMAP`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalRecall
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalRecall(top_k=2)(preds, torch.tensor([1, 0, 1, 0, 1]), indexes=indexes)
        tensor(0.7500)
    """

    measure = Recall


class RetrievalHitRate(Retrieval, stock.RetrievalHitRate):
    """Hit rate, as :class:`torchmetrics.retrieval.RetrievalHitRate`.

    :class:`torchrank.HitRate`. Arguments of :class:`RetrievalMAP`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalHitRate
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalHitRate(top_k=1)(preds, torch.tensor([1, 0, 0, 0, 1]), indexes=indexes)
        tensor(0.5000)
    """

    measure = HitRate


class RetrievalFallOut(Retrieval, stock.RetrievalFallOut):
    """Fall-out, as :class:`torchmetrics.retrieval.RetrievalFallOut`; lower is better.

    :class:`torchrank.FallOut`. Arguments of :class:`RetrievalMAP`; empty is a query without an irrelevant row, and
    counts as 1 by default.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalFallOut
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalFallOut(top_k=1)(preds, torch.tensor([1, 0, 0, 0, 1]), indexes=indexes)
        tensor(0.2500)
    """

    needed = "negative"
    measure = FallOut


class RetrievalRPrecision(Retrieval, stock.RetrievalRPrecision):
    """R-precision, as :class:`torchmetrics.retrieval.RetrievalRPrecision`.

    :class:`torchrank.RPrecision`. Arguments of :class:`RetrievalMAP`, except ``top_k``.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalRPrecision
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalRPrecision()(preds, torch.tensor([1, 0, 1, 0, 1]), indexes=indexes)
        tensor(0.7500)
    """

    def counterpart(self) -> RankingMetric:
        return made(RPrecision)


class RetrievalAUROC(Retrieval, stock.RetrievalAUROC):
    """Area under the ROC curve, as :class:`torchmetrics.retrieval.RetrievalAUROC`; 0 if one class is missing.

    :class:`torchrank.AUROC`. Arguments of :class:`RetrievalMAP`, and ``max_fpr``: the largest false positive rate that
    counts, a float > 0 and <= 1.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalAUROC
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalAUROC()(preds, torch.tensor([1, 0, 1, 0, 1]), indexes=indexes)
        tensor(0.7500)
    """

    def counterpart(self) -> RankingMetric:
        return made(AUROC, self.top_k, max_fpr=self.max_fpr)

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_relevant(1) == 0  # a query without an irrelevant row is not empty: torchmetrics returns 0


class RetrievalPrecisionRecallCurve(Retrieval, stock.RetrievalPrecisionRecallCurve):
    """Precision and recall at k = 1 ... max_k, as :class:`torchmetrics.retrieval.RetrievalPrecisionRecallCurve`.

    Args:
        max_k: the largest k; None = the length of the longest list of retrieved rows.
        adaptive_k: divide by the length of a list that is shorter than k.
        empty_target_action, ignore_index, aggregation, kwargs: as :class:`RetrievalMAP`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalPrecisionRecallCurve
        >>> preds, indexes = torch.tensor([0.4, 0.1, 0.5, 0.6]), torch.tensor([0, 0, 0, 0])
        >>> precision, recall, top_k = RetrievalPrecisionRecallCurve()(preds, torch.tensor([1, 0, 0, 1]), indexes)
        >>> precision, recall
        (tensor([1.0000, 0.5000, 0.6667, 0.5000]), tensor([0.5000, 0.5000, 1.0000, 1.0000]))
    """

    def empty(self, ranking: Ranking) -> Tensor:
        return ranking.num_relevant(1) == 0

    @_in_batch
    def compute(self) -> tuple[Tensor, Tensor, Tensor]:
        """Precision and recall, float32 [k], aggregated over the queries, and k itself, int64 [k].

        Raises:
            ValueError: as :meth:`RetrievalMAP.compute`.
        """
        rankings = self.rankings()
        empty, lengths = self.all_empty(rankings), torch.cat([r.num_candidates for r in rankings]).long().cpu()
        ranks = torch.arange(1, 1 + (self.max_k or int(lengths.amax() if len(lengths) else 0)), device=empty.device)
        # Curves are computed in rectangles of queries with similar lengths, because most lists may be short.
        parts, numbers = [], []
        for ranking, places in zip(
            rankings, torch.arange(len(lengths), device=lengths.device).split([r.num_queries for r in rankings])
        ):
            for queries, longest in buckets(lengths[places].clamp_max(len(ranks)), OVERHEAD, BLOCK):
                complete = len(queries) == ranking.num_queries
                part = ranking if complete else ranking.take(queries.to(empty.device))
                length = ranks[:longest]
                hits, relevant = part.hits_by_rank(1, len(length)), part.num_relevant(1)
                if self.adaptive_k:
                    length = torch.minimum(length, part.num_candidates.unsqueeze(1))
                curves = hits / length.clamp_min(1), hits / relevant.clamp_min(1).unsqueeze(1)
                if self.aggregation == "mean":  # keep the sum of the curves instead of the curves
                    total = torch.stack([curve.sum(0) for curve in curves]).unsqueeze(0)
                    parts.append(self._between(total, ranks))
                    continue
                parts.append(torch.stack(curves, dim=1).float())
                numbers.append(places if complete else places[queries])
        if self.aggregation == "mean":
            filled = empty.sum() * (self.empty_target_action == "pos")
            counted = len(empty) - empty.sum() * (self.empty_target_action == "skip")
            precision, recall = ((torch.cat(parts).sum(0) + filled) / counted.clamp_min(1)).float()
            return precision, recall, ranks
        # Aggregate chunks of ranks, each over the queries in the order of their indexes, which a function may need.
        order, by_index = torch.cat(numbers).to(empty.device).argsort(), batch_order([r.queries for r in rankings])
        if by_index is not None:
            order, empty = order[by_index], empty[by_index]
        columns = []
        for chunk in ranks.split(max(1, BLOCK // 2 // max(1, len(order)))):
            values = torch.cat([self._between(part, chunk) for part in parts])[order]
            columns.append([self.aggregated(values[:, n], empty) for n in range(2)])
        precision, recall = (torch.cat(column) for column in zip(*columns))
        return precision, recall, ranks

    def _between(self, curves: Tensor, ranks: Tensor) -> Tensor:
        """Curves [query, 2, rank] at some consecutive ranks. Beyond the last rank of a curve there are no more hits."""
        width = curves.shape[2]
        if not width:
            return curves.new_zeros((len(curves), 2, len(ranks)))
        first, last = int(ranks[0]), int(ranks[-1])
        there = curves[:, :, first - 1 : last]
        if last <= width:
            return there
        beyond = ranks[max(0, width + 1 - first) :]
        constant = curves[:, :, -1:].repeat(1, 1, len(beyond))
        if not self.adaptive_k:
            constant[:, 0] *= width / beyond
        return torch.cat([there, constant], dim=2)


class RetrievalRecallAtFixedPrecision(RetrievalPrecisionRecallCurve, stock.RetrievalRecallAtFixedPrecision):
    """The largest recall@k whose precision@k is large enough, on the aggregated curve, and its k.

    As :class:`torchmetrics.retrieval.RetrievalRecallAtFixedPrecision`: the largest k if several have this recall, and
    the last k if no precision is large enough or recall is 0.

    Args:
        min_precision: the least precision, a float from 0 to 1.
        max_k, adaptive_k, empty_target_action, ignore_index, kwargs: as :class:`RetrievalPrecisionRecallCurve`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalRecallAtFixedPrecision
        >>> preds, indexes = torch.tensor([0.4, 0.1, 0.5, 0.6]), torch.tensor([0, 0, 0, 0])
        >>> RetrievalRecallAtFixedPrecision(min_precision=0.6)(preds, torch.tensor([1, 0, 0, 1]), indexes)
        (tensor(1.), tensor(3))
    """

    @_in_batch
    def compute(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """The recall, float32 [], and the k, int64 [].

        Raises:
            ValueError: as :meth:`RetrievalMAP.compute`.
        """
        precision, recall, ranks = super().compute()
        if not len(ranks):
            return recall.new_zeros(()), ranks.new_zeros(())
        enough = precision >= self.min_precision
        best = torch.where(enough, recall, float("-inf")).amax()
        best = torch.where(enough.any(), best, 0.0)
        reached = torch.where(enough & (recall == best), ranks, 0).amax()
        return best, torch.where(best == 0, ranks[-1], reached)


def _checked(constructor: Callable[..., None]) -> Callable[..., None]:
    """A constructor of torchmetrics, with the checks that some of them lack. torch.compile cannot trace it."""

    @functools.wraps(constructor)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        constructor(self, *args, **kwargs)
        for name in ("k", "top_k", "max_k"):
            value = getattr(self, name, None)
            if value is not None and not (type(value) is int and 0 < value <= MOST):
                shown = name if name == "max_k" else "top_k"
                beyond = " up to 2 ** 53" if type(value) is int and value > MOST else ""
                raise ValueError(f"`{shown}` has to be a positive integer{beyond} or None, got {value!r}")
        fpr = getattr(self, "max_fpr", None)
        if fpr is not None and not (isinstance(fpr, float) and 0 < fpr <= 1):
            raise ValueError(f"Arguments `max_fpr` should be a float in range (0, 1], but got: {fpr!r}")

    return eager(checked)


for _cls, _constructor in [(globals()[_name], globals()[_name].__init__) for _name in __all__]:
    _cls.__init__ = _checked(_constructor)
