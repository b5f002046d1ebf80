"""torchmetrics.retrieval's classes on this engine: change one import.

Constructors, argument checks and plots are torchmetrics' own. What differs: rows are ranked all at once, ties count as
their expectation, scores are only compared, and workers may have seen any number of batches, or none.

A query may arrive in pieces, over batches and over workers, so these metrics keep all rows: a score, a target and an
index each. Where every query is whole in one batch, :class:`torchrank.RankingMetric` keeps fifteen numbers instead.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
import torch.distributed as dist
import torchmetrics.retrieval as stock
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrank.layouts import arrange
from torchrank.lists import BLOCK, Need
from torchrank.metrics import AUROC, MAP, MRR, NDCG, FallOut, HitRate, Precision, RankingMetric, Recall, RPrecision
from torchrank.metrics.contract import SafeMetric
from torchrank.metrics.state import all_gather
from torchrank.pieces import ratio
from torchrank.problems import explain
from torchrank.ranking import Ranking, batch_order

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


Aggregation = Literal["mean", "median", "min", "max"] | Callable


class Rows(NamedTuple):
    """What a metric keeps, all [row]: of an empty one, in the dtypes of an empty one."""

    preds: Tensor
    target: Tensor
    indexes: Tensor


# What is kept of a row has one of these dtypes, which workers tell each other by number.
EMPTY = (torch.float32, torch.int8, torch.int32)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = (*INTEGERS, torch.float16, torch.bfloat16, torch.float32, torch.float64)


class OnRows(SafeMetric):
    """State and synchronisation of rows that are ranked as a whole in ``compute``.

    A mixin before a class of torchmetrics, whose constructor it keeps.
    """

    if TYPE_CHECKING:  # torch.jit.script would try to understand them
        ignore_index: int | None
        empty_target_action: str
        aggregation: Aggregation
        allow_non_binary_target: bool
        _ranked: tuple[Rows, list[Ranking]] | None
        _latest: ClassVar[weakref.ref[OnRows] | None]

    _ranked = None
    # The metric that has ranked last: others of its collection have the same rows.
    _latest = None

    def add_state(self, name: str, default: Any, dist_reduce_fx: Any = None, persistent: bool = False) -> None:
        if name in Rows._fields:
            # torchmetrics.MetricCollection lets metrics whose states have equal names, and equal values after the first
            # batch, share them. So the name says which rows are kept; the other arguments matter in compute only.
            name, dist_reduce_fx = self._name(name), "cat"
        super().add_state(name, default, dist_reduce_fx, persistent)

    def _name(self, field: str) -> str:
        return f"rows:{field}" if self.ignore_index is None else f"rows(ignore_index={self.ignore_index}):{field}"

    def update(self, preds: Tensor, target: Tensor, indexes: Tensor) -> None:
        """Keep the rows of a batch, whose queries may have rows in others.

        Args:
            preds: floating, of any shape: scores.
            target: bool, integer or floating, of that shape: 0 or 1; grades for :class:`RetrievalNormalizedDCG`.
            indexes: integer, of that shape: the query of each row.

        Raises:
            ValueError: shapes or dtypes do not fit, the batch is empty, or a target is not binary where it should be.
        """
        self._ranked = None
        if indexes is None:
            raise ValueError("Argument `indexes` cannot be None")
        _check(preds, target, indexes)
        rows = Rows(preds.detach().flatten(), target.detach().flatten(), indexes.detach().flatten())
        if self.ignore_index is not None:
            kept = rows.target != self.ignore_index
            rows = Rows(*(x[kept] for x in rows))
        if len(rows.preds):
            for field, x in _compact(rows, self.allow_non_binary_target)._asdict().items():
                getattr(self, self._name(field)).append(x)

    def rankings(self) -> list[Ranking]:
        """All rows, ranked: once for all metrics that have the same."""
        rows = self._whole()
        other = OnRows._latest() if OnRows._latest else None
        if other is not None and other._ranked and all(map(_same, rows, other._ranked[0])):
            found = other._ranked[1]
        else:
            lists = arrange(rows.preds, rows.target, indexes=rows.indexes)
            found = list(Ranking.blocks(lists, Need(relevant=True)))
            self._ranked, OnRows._latest = (rows, found), weakref.ref(self)
        if not self.allow_non_binary_target and not _binary(rows.target):  # a metric of grades has led its collection
            raise ValueError("`target` must contain `binary` values")
        if problems := explain(torch.stack([ranking.errors for ranking in found]).sum(0)):
            raise ValueError(problems)
        return found

    def _whole(self) -> Rows:
        """The rows as one tensor each, which then replaces those of the batches."""
        parts = [getattr(self, self._name(field)) for field in Rows._fields]
        for part, dtype in zip(parts, EMPTY):
            part[:] = [torch.cat(part) if part else torch.empty(0, dtype=dtype, device=self.device)]
        return Rows(*(part[0] for part in parts))

    def empty(self, ranking: Ranking) -> Tensor:
        """bool [query]: nothing is relevant."""
        return ranking.num_relevant(1) == 0

    def filled(self, ranking: Ranking, values: Tensor) -> Tensor:
        """``values`` [query, ...] with the policy for empty queries applied: NaN where it skips."""
        empty = self.empty(ranking)
        if self.empty_target_action == "error" and bool(empty.any()):
            lacking = "negative" if isinstance(self, stock.RetrievalFallOut) else "positive"
            raise ValueError(f"`compute` method was provided with a query with no {lacking} target.")
        fill = {"neg": 0.0, "pos": 1.0}.get(self.empty_target_action, float("nan"))
        return torch.where(empty.view(-1, *[1] * (values.dim() - 1)), fill, values)

    def aggregated(self, parts: list[Tensor], dim: int | None = None) -> Tensor:
        """The aggregate of what :meth:`filled` gave for all :meth:`rankings`, the queries in the order of their index.

        float32 [] of values [query]; with ``dim`` 0 float32 [column] of [query, column]. 0 if every query was skipped.
        """
        values = torch.cat(parts)
        if self.aggregation != "mean" and (order := batch_order([r.queries for r in self.rankings()])) is not None:
            values = values[order]
        if self.empty_target_action == "skip":
            values = values[~values.view(len(values), -1).isnan().any(-1)]
        if not len(values):
            return values.new_zeros(values.shape[1:]).float()
        return _aggregate(self.aggregation, values, dim).float()

    # ---- torchmetrics' contract ----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all rows."""
        super().reset()
        self._ranked = None

    def _copy_state_dict(self) -> dict[str, Any]:
        # Rows are never written to, so forward and synchronisation need no copies of them.
        return {name: x.copy() if isinstance(x, list) else x.clone() for name, x in self.metric_state.items()}

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        rows = self._whole()
        if dist_sync_fn is not gather_all_tensors:  # the user's own
            super()._sync_dist(dist_sync_fn, process_group)
            for field in Rows._fields:
                setattr(self, self._name(field), [getattr(self, self._name(field))])
            return
        gathered = _gathered(Rows(*(x.to(self.device) for x in rows)), process_group or self.process_group)
        for field, x in gathered._asdict().items():
            setattr(self, self._name(field), [x])

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_ranked": None}


def _check(preds: Tensor, target: Tensor, indexes: Tensor) -> None:
    """Shapes and dtypes, as torchmetrics checks them."""
    if not indexes.shape == preds.shape == target.shape:
        got = [list(x.shape) for x in (indexes, preds, target)]
        raise ValueError(f"`indexes`, `preds` and `target` must be of the same shape, got {got}")
    if indexes.is_floating_point() or indexes.is_complex() or indexes.dtype == torch.bool:
        raise ValueError(f"`indexes` must be a tensor of long integers, got {indexes.dtype}")
    if not preds.numel() or not preds.dim():
        raise ValueError(
            f"`indexes`, `preds` and `target` must be non-empty and non-scalar tensors, got shape {list(preds.shape)}"
        )
    if target.is_complex() or target.dtype in (torch.uint16, torch.uint32, torch.uint64):
        raise ValueError(f"`target` must be a tensor of booleans, integers or floats, got {target.dtype}")
    if not preds.is_floating_point():
        raise ValueError(f"`preds` must be a tensor of floats, got {preds.dtype}")


def _compact(rows: Rows, graded: bool) -> Rows:
    """A copy in as few bytes as hold the values: one look at them."""
    preds, target, indexes = rows
    target = target.to(torch.int8) if target.dtype == torch.bool else target
    if not graded and not _binary(target):
        raise ValueError("`target` must contain `binary` values")
    return Rows(preds.clone(), _narrow(target) if graded else target.to(torch.int8, copy=True), _narrow(indexes))


def _binary(target: Tensor) -> bool:
    if target.is_floating_point() or not len(target):
        return bool(((target == 0) | (target == 1)).all())
    low, high = torch.stack(target.aminmax()).tolist()
    return low >= 0 and high <= 1


def _narrow(x: Tensor) -> Tensor:
    """A copy in the smallest signed integers that hold its values; floats as they are."""
    if x.is_floating_point() or x.dtype == torch.int8:
        return x.clone()
    low, high = torch.stack(x.aminmax()).tolist()
    fitting = (t for t in INTEGERS if torch.iinfo(t).min <= low and high <= torch.iinfo(t).max)
    return x.to(next(fitting), copy=True)


def _same(x: Tensor, y: Tensor) -> bool:
    return x is y or (x.dtype == y.dtype and x.device == y.device and torch.equal(x, y))


def _gathered(rows: Rows, group: Any) -> Rows:
    """The rows of all workers, in the order of the workers: two collectives, whatever each has."""
    mine = torch.tensor([len(rows.preds), *(DTYPES.index(x.dtype) for x in rows)], device=rows.preds.device)
    heads = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(heads, mine, group=group)
    counts, *codes = torch.stack(heads).T.tolist()
    used = [[DTYPES[c] for c, n in zip(code, counts) if n] for code in codes]
    dtypes = [functools.reduce(torch.promote_types, found) if found else x.dtype for found, x in zip(used, rows)]
    # As bytes, so that all fields travel together.
    packed = [x.to(t).unsqueeze(-1).view(torch.uint8).view(-1, t.itemsize) for x, t in zip(rows, dtypes)]
    parts = torch.cat(all_gather(torch.cat(packed, dim=-1), counts, group))
    fields = parts.split([t.itemsize for t in dtypes], dim=-1)
    return Rows(*(x.contiguous().view(t).flatten() for x, t in zip(fields, dtypes)))


def _aggregate(how: Aggregation, values: Tensor, dim: int | None) -> Tensor:
    """One value of those of the queries [query]; with ``dim`` 0 one per column."""
    if how == "mean":
        return values.mean(0)
    if how == "median":
        return values.median(0).values
    if how in ("min", "max"):
        return values.amin(0) if how == "min" else values.amax(0)
    assert callable(how)
    values = values.float()
    if _takes_dim(how):
        return torch.as_tensor(how(values, dim=dim))
    return torch.as_tensor(how(values)) if dim is None else torch.stack([torch.as_tensor(how(x)) for x in values.T])


def _takes_dim(function: Callable) -> bool:
    """Whether it has the argument that torchmetrics passes, though it does not ask for it."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of torch
        return True
    return any(p.name == "dim" or p.kind is p.VAR_KEYWORD for p in parameters)


class PerQuery(OnRows):
    """A measure with one value per query."""

    def measure(self) -> RankingMetric:
        """Its definition."""
        raise NotImplementedError

    def compute(self) -> Tensor:
        """The aggregate over all queries: float32 []; 0 if every query was skipped.

        Raises:
            ValueError: a query is empty under ``empty_target_action="error"``, or scores or targets are NaN.
        """
        measure = self.measure()
        return self.aggregated([self.filled(ranking, measure.measure(ranking)) for ranking in self.rankings()])


def _positive(top_k: Any) -> None:
    if top_k is not None and not (isinstance(top_k, int) and top_k > 0):
        raise ValueError(f"Argument ``top_k`` has to be a positive integer or None, but got {top_k}")


class RetrievalMAP(PerQuery, stock.RetrievalMAP):
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
        ValueError: an argument has a value that is not known.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalMAP
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalMAP()(preds, torch.tensor([0, 0, 1, 0, 1]), indexes=indexes)
        tensor(1.)
    """

    def __init__(
        self,
        empty_target_action: str = "neg",
        ignore_index: int | None = None,
        top_k: int | None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(empty_target_action, ignore_index, top_k, aggregation, **kwargs)
        _positive(top_k)

    def measure(self) -> RankingMetric:
        return MAP(self.k, normalize="retrieved")


class RetrievalMRR(PerQuery, stock.RetrievalMRR):
    """Mean reciprocal rank, as :class:`torchmetrics.retrieval.RetrievalMRR`.

    :class:`torchrank.MRR`. Arguments of :class:`RetrievalMAP`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalMRR
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalMRR()(preds, torch.tensor([0, 1, 0, 0, 1]), indexes=indexes)
        tensor(0.7500)
    """

    def __init__(
        self,
        empty_target_action: str = "neg",
        ignore_index: int | None = None,
        top_k: int | None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(empty_target_action, ignore_index, top_k, aggregation, **kwargs)
        _positive(top_k)

    def measure(self) -> RankingMetric:
        return MRR(self.top_k)


class RetrievalNormalizedDCG(PerQuery, stock.RetrievalNormalizedDCG):
    """Normalised DCG, as :class:`torchmetrics.retrieval.RetrievalNormalizedDCG`: targets are grades.

    :class:`torchrank.NDCG`; grades below 0 gain nothing. Arguments of :class:`RetrievalMAP`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalNormalizedDCG
        >>> preds, indexes = torch.tensor([0.9, 0.8, 0.1]), torch.tensor([0, 0, 0])
        >>> RetrievalNormalizedDCG()(preds, torch.tensor([0, 3, 5]), indexes=indexes)
        tensor(0.6373)
    """

    def measure(self) -> RankingMetric:
        return NDCG(self.top_k)

    def empty(self, ranking: Ranking) -> Tensor:
        return NDCG().empty(ranking)


class RetrievalPrecision(PerQuery, stock.RetrievalPrecision):
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

    def measure(self) -> RankingMetric:
        return Precision(self.top_k, adaptive_k=self.adaptive_k)


class RetrievalRecall(PerQuery, stock.RetrievalRecall):
    """Recall, as :class:`torchmetrics.retrieval.RetrievalRecall`.

    :class:`torchrank.Recall`. Arguments of :class:`RetrievalMAP`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalRecall
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalRecall(top_k=2)(preds, torch.tensor([1, 0, 1, 0, 1]), indexes=indexes)
        tensor(0.7500)
    """

    def measure(self) -> RankingMetric:
        return Recall(self.top_k)


class RetrievalHitRate(PerQuery, stock.RetrievalHitRate):
    """Hit rate, as :class:`torchmetrics.retrieval.RetrievalHitRate`.

    :class:`torchrank.HitRate`. Arguments of :class:`RetrievalMAP`.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalHitRate
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalHitRate(top_k=1)(preds, torch.tensor([1, 0, 0, 0, 1]), indexes=indexes)
        tensor(0.5000)
    """

    def measure(self) -> RankingMetric:
        return HitRate(self.top_k)


class RetrievalFallOut(PerQuery, stock.RetrievalFallOut):
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

    def measure(self) -> RankingMetric:
        return FallOut(self.top_k)

    def empty(self, ranking: Ranking) -> Tensor:
        return FallOut().empty(ranking)


class RetrievalRPrecision(PerQuery, stock.RetrievalRPrecision):
    """R-precision, as :class:`torchmetrics.retrieval.RetrievalRPrecision`.

    :class:`torchrank.RPrecision`. Arguments of :class:`RetrievalMAP`, but ``top_k``.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalRPrecision
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalRPrecision()(preds, torch.tensor([1, 0, 1, 0, 1]), indexes=indexes)
        tensor(0.7500)
    """

    def measure(self) -> RankingMetric:
        return RPrecision()


class RetrievalAUROC(PerQuery, stock.RetrievalAUROC):
    """Area under the ROC curve, as :class:`torchmetrics.retrieval.RetrievalAUROC`; 0 where one class is missing.

    :class:`torchrank.AUROC`. Arguments of :class:`RetrievalMAP`, and ``max_fpr``: the largest false positive rate that
    counts, a float > 0 and <= 1.

    Example:
        >>> import torch
        >>> from torchrank.retrieval import RetrievalAUROC
        >>> preds, indexes = torch.tensor([0.2, 0.3, 0.5, 0.1, 0.3]), torch.tensor([0, 0, 0, 1, 1])
        >>> RetrievalAUROC()(preds, torch.tensor([1, 0, 1, 0, 1]), indexes=indexes)
        tensor(0.7500)
    """

    def __init__(
        self,
        empty_target_action: Literal["error", "skip", "neg", "pos"] = "neg",
        ignore_index: int | None = None,
        top_k: int | None = None,
        max_fpr: float | None = None,
        aggregation: Aggregation = "mean",
        **kwargs: Any,
    ) -> None:
        super().__init__(empty_target_action, ignore_index, top_k, None, aggregation, **kwargs)
        if max_fpr is not None and not (isinstance(max_fpr, float) and 0 < max_fpr <= 1):
            raise ValueError(f"Arguments `max_fpr` should be a float in range (0, 1], but got: {max_fpr}")
        self.max_fpr = max_fpr

    def measure(self) -> RankingMetric:
        return AUROC(self.top_k, max_fpr=self.max_fpr)


class RetrievalPrecisionRecallCurve(OnRows, stock.RetrievalPrecisionRecallCurve):
    """Precision and recall at k = 1 ... max_k, as :class:`torchmetrics.retrieval.RetrievalPrecisionRecallCurve`.

    Args:
        max_k: the largest k; None = the length of the longest list.
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

    def compute(self) -> tuple[Tensor, Tensor, Tensor]:
        """Precision and recall float32 [k], aggregated over the queries; and k itself, int64 [k].

        Raises:
            ValueError: as :meth:`RetrievalMAP.compute`.
        """
        rankings = self.rankings()
        most = self.max_k or max(
            int(ranking.num_candidates.amax()) if ranking.num_queries else 0 for ranking in rankings
        )
        ranks = torch.arange(1, most + 1, device=rankings[0].first.device)
        curves = [self._curves(part, ranks) for ranking in rankings for part in _parts(ranking, most)]
        precision, recall = self.aggregated(curves, dim=0).split(most)
        return precision, recall, ranks

    def _curves(self, ranking: Ranking, ranks: Tensor) -> Tensor:
        """Precision and recall: float64 [query, 2 * k]."""
        hits, length = ranking.hits_by_rank(1, len(ranks)), ranks
        if self.adaptive_k:
            length = torch.minimum(ranks, ranking.num_candidates.unsqueeze(-1))
        curves = [ratio(hits, length), ratio(hits, ranking.num_relevant(1).unsqueeze(-1))]
        return self.filled(ranking, torch.cat(curves, dim=-1))


def _parts(ranking: Ranking, most: int) -> Iterator[Ranking]:
    """The ranking itself, or some of its queries at a time, so that curves of ``most`` ranks stay small."""
    step = max(1, BLOCK // max(1, most))
    if ranking.num_queries <= step:
        yield ranking
        return
    for queries in torch.arange(ranking.num_queries, device=ranking.first.device).split(step):
        yield ranking.take(queries)


class RetrievalRecallAtFixedPrecision(RetrievalPrecisionRecallCurve, stock.RetrievalRecallAtFixedPrecision):
    """The largest recall@k whose precision@k is large enough, on the aggregated curve, and its k.

    As :class:`torchmetrics.retrieval.RetrievalRecallAtFixedPrecision`: of several k the largest; the last k if no
    precision is large enough, or recall is 0.

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

    def compute(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """The recall, float32 [], and the k, int64 [].

        Raises:
            ValueError: as :meth:`RetrievalMAP.compute`.
        """
        precision, recall, ranks = super().compute()
        recall = torch.where(precision >= self.min_precision, recall, 0.0)
        best = recall.amax() if len(recall) else recall.new_zeros(())
        reached = (recall == best) & (precision >= self.min_precision) if best > 0 else recall >= 0
        return best, torch.where(reached, ranks, 0).amax() if len(ranks) else ranks.new_zeros(())
