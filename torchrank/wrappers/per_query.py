"""The values of every query of a suite, under the id of the query."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

from torchrank.collection.collection import plot_values
from torchrank.hardware.devices import widest_float
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.layouts.checks import Problem
from torchrank.names.types import Array, Target
from torchrank.ranking.ranking import Ranking
from torchrank.state.metric import SummedMetric
from torchrank.state.scoring import Status, Values, score_batch
from torchrank.state.synchronisation import DIGEST, WorkersDifferError, all_gather, appended, place_in
from torchrank.state.waiting import LOCK, bulk
from torchrank.wrappers.query_table import QueryTable
from torchrank.wrappers.suite_metric import Suite, check_ids, collection_of, measures_of

#: the lists of the state, each [query, column]; the last two have no column as long as all queries count alike, the
#: first has one, and those of :func:`_words` as soon as an id is a text; the first column of the last says whether a
#: query counts, the others for each metric whether it has something to measure
FIELDS = ("ids", "values", "weights", "counted")


class PerQuery(SummedMetric):
    """The value of every query, kept with its id: for tests, slices after the fact, and lists of the worst queries.

    ``compute`` returns a :class:`torchrank.QueryTable`. **An id that appears twice counts once**, so samplers that
    repeat queries, as those of torch, Lightning and Accelerate do, give the right number. Ids are integers or texts; if
    one of all batches and workers is a text, an integer is its decimal text. The state has 8 bytes for each id and 8
    for each value (4 with ``dtype=torch.float32``), and as many for weights, if there are any. If ids are texts, each
    also has the bytes of the longest text. If a query has nothing to measure, each id and each value has one byte more.
    ``compute`` gathers the state in two collectives.

    Args:
        suite: a metric, names of metrics, or a collection. Its measures are copied; their states stay empty.
        dtype: the dtype in which values are kept, torch.float64 or torch.float32.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: the suite has a metric without a value for each query, or the dtype is another one.

    Example:
        >>> import torch, torchrank as tr
        >>> per_query = tr.PerQuery(["mrr", "hitrate@1"])
        >>> scores, labels = torch.tensor([[0.9, 0.1], [0.2, 0.3], [0.2, 0.3]]), torch.tensor([0, 0, 0])
        >>> per_query.update(scores, labels, query_ids=torch.tensor([7, 8, 8]))
        >>> per_query.compute().summary()["value"]
        [0.75, 0.5]
    """

    higher_is_better = None
    is_differentiable = False
    asks_for = "query_ids"
    results_to_log = "metric.compute().values()"

    def __init__(self, suite: Suite, dtype: torch.dtype = torch.float64, **kwargs: Any) -> None:
        collection = collection_of(suite, kwargs)
        super().__init__(**kwargs)
        if dtype not in (torch.float64, torch.float32):
            raise ValueError(f"Expected dtype to be torch.float64 or torch.float32, got {dtype}")
        self.suite, self.dtype_of_values = collection, dtype
        self.metrics = measures_of(self.suite, "PerQuery", means=False)
        self._state = f"perquery({dtype}): {', '.join(metric._state for metric in self.metrics.values())}"
        # The error message for an id with two values, since the last compute.
        self._differing = ""
        # The names of states may have numbers of namesakes, which depend on the metrics made before in this process.
        names = [f"{key}: {metric.definition_name}" for key, metric in self.metrics.items()]
        self._definition = f"perquery({dtype}): {', '.join(names)}"
        counters = torch.zeros(len(Problem), dtype=widest_float(self.device), device=self.device)
        self.add_state(f"{self._state}:sums", counters, dist_reduce_fx="sum")
        for field in FIELDS:
            self.add_state(f"{self._state}:{field}", [], dist_reduce_fx="cat")

    @property
    def definition_name(self) -> str:
        return self._definition

    # ---- add ---------------------------------------------------------------------------------------------------

    @bulk
    @with_options
    def update(
        self,
        preds: Array | Ranking,
        target: Target | None = None,
        *,
        query_ids: Array | Sequence[str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`, and ``query_ids``.

        ``query_ids`` is int [query], one for each query of the data set; or a list of texts. With ``indexes`` it is in
        ascending order of index. None = those of the ranking, which has them if it was made by
        :meth:`torchrank.Ranking.from_table` or :meth:`torchrank.Ranking.from_run`.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`, or if ids are missing.
        """
        batch = Batch(preds, target, **options)
        batch_values = Values.stack(score_batch(list(self.metrics.values()), batch, total=False))
        if query_ids is None and isinstance(preds, Ranking):
            query_ids = preds.query_ids
        ids, texts = check_ids(query_ids, batch_values.num_queries, batch_values.values.device, "PerQuery")
        ids = ids.unsqueeze(1) if texts is None else torch.cat([ids.unsqueeze(1), _words(texts).to(ids.device)], dim=1)
        with torch.no_grad():
            values = batch_values.values.mT
            final_weights = torch.where(values.isnan(), 1.0, batch_values.final_weights.mT)
            full = batch_values.status.mT != Status.EMPTY
            counted = torch.cat([batch_values.counted.unsqueeze(1), full], dim=1)
            rows = self._rows(ids, values, final_weights, counted, batch.weights is None)
        with LOCK:
            self._set("sums", self.sums + batch_values.errors.amax(0).to(self.sums))
            for field, part in rows.items():
                earlier = [x.to(part.device) for x in getattr(self, f"{self._state}:{field}")]
                self._set(field, appended(*_alike(earlier, [part])))
        self.notice_cut(batch.indexes)

    def _rows(self, ids: Tensor, values: Tensor, weights: Tensor, counted: Tensor, alike: bool) -> dict[str, Tensor]:
        """The fields of a batch, each [query, column], without columns that no reader needs."""
        values, weights = (x.to(self._dtype_on(x.device)) for x in (values, weights))
        # On an accelerator a look at the values would have to wait, so no column is dropped there.
        if values.is_cpu:
            if alike and bool((weights == 1).all()):
                weights = weights[:, :0]
            row = counted[:, 0].nonzero().squeeze(1)
            counted = counted[row]
            counted = counted[:, :0] if bool(counted.all()) else counted
            return dict(zip(FIELDS, (ids[row], values[row], weights[row], counted)))
        return dict(zip(FIELDS, (ids, values, weights, counted)))

    def _dtype_on(self, device: torch.device) -> torch.dtype:
        """The dtype of values on a device, which may have no float64."""
        return min(self.dtype_of_values, widest_float(device), key=lambda dtype: dtype.itemsize)

    def _fields(self) -> dict[str, Tensor]:
        """Each field as one tensor [query, column]."""
        dtype = self._dtype_on(self.device)
        fields = {}
        for field, width, kind in zip(FIELDS, (1, len(self.metrics), 0, 0), (torch.int64, dtype, dtype, torch.bool)):
            parts = [self.moved(x, self.device) for x in getattr(self, f"{self._state}:{field}")]
            empty = torch.empty((0, width), dtype=kind, device=self.device)
            fields[field] = torch.cat(_alike(parts, [])[0]) if parts else empty
        return fields

    # ---- compute -----------------------------------------------------------------------------------------------

    def compute(self) -> QueryTable:
        """The table of all queries of all workers, in ascending order of id, each id once.

        Raises:
            ValueError: a worker has met bad values, or an id has two different values. The metric can be used further.
        """
        self._errors = self.sums
        rows = {field: x.cpu() for field, x in self._fields().items()}
        if rows["counted"].shape[1]:
            rows = {field: x[rows["counted"][:, 0]] for field, x in rows.items()}
        ids = _named(rows["ids"].numpy())
        order = np.argsort(ids, kind="stable")
        ids, values, weights = ids[order], rows["values"].numpy()[order], rows["weights"].numpy()[order]
        first = np.ones(len(ids), dtype=bool)
        first[1:] = ids[1:] != ids[:-1]
        self._differing = _differing(ids, np.concatenate([values, weights], 1), first, list(self.metrics))
        if not self._should_unsync and bool((self.sums > 0).any()):  # forward, which does not raise
            values = np.full_like(values, np.nan)
        columns = {key: values[first, n] for n, key in enumerate(self.metrics)}
        weight = {key: weights[first, n] for n, key in enumerate(self.metrics)} if weights.shape[1] else None
        full = _wide(rows["counted"], 1 + len(self.metrics)).numpy()[order][first]
        empty = {key: ~full[:, 1 + n] for n, key in enumerate(self.metrics)}
        return QueryTable(ids[first], columns, weight, self.metrics, empty=empty)

    def raise_errors(self) -> None:
        super().raise_errors()
        if self._differing:
            raise ValueError(self._differing)

    def plot(self, val: QueryTable | None = None, ax: Any = None) -> Any:
        """Plot the values of all queries, a row of marks for each metric; needs matplotlib.

        Args:
            val: a result of :meth:`compute`; None = compute.
            ax: the axes to draw in; None = new axes.

        Returns:
            The figure and its axes.
        """
        return plot_values((self.compute() if val is None else val).columns, ax)

    @property
    def num_rows(self) -> int:
        """Number of rows that this worker keeps, repeated ids included."""
        return sum(len(x) for x in getattr(self, f"{self._state}:ids"))

    # ---- torchmetrics' contract --------------------------------------------------------------------------------

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:
            raise ValueError("Expected no dist_sync_fn for PerQuery, which gathers rows of different lengths; drop it")
        group = process_group or self.process_group
        rows, errors = _gathered(self._fields(), self.sums, self.definition_name, group)
        self._set("sums", errors)
        for field, x in rows.items():
            self._set(field, [x])

    def joined(self, name: str, earlier: Any, later: Any) -> Any:
        if isinstance(earlier, list):
            return appended(*_alike(earlier, [x.to(self.device) for x in later]))
        return super().joined(name, earlier, later)

    def counts(self, sums: Tensor) -> Tensor:
        return sums

    def fits(self, name: str, rows: Tensor) -> bool:
        number = len(self.metrics)
        widths = {"ids": range(1, 2**31), "values": (number,), "weights": (0, number), "counted": (0, 1, 1 + number)}
        return rows.dim() == 2 and rows.shape[1] in widths[name.rpartition(":")[2]]

    def moved(self, x: Tensor, device: torch.device) -> Tensor:
        return x.to(device, dtype=widest_float(device)) if x.dtype == torch.float64 else x.to(device)

    def restored(self, x: Tensor) -> Tensor:
        return self.moved(x, self.device)


def _wide(x: Tensor, width: int) -> Tensor:
    """Rows with as many columns, ones in those that they did not have."""
    return x if x.shape[1] == width else torch.cat([x, x.new_ones((len(x), width - x.shape[1]))], dim=1)


def _alike(parts: list[Tensor], more: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Parts with the same number of columns."""
    width = max((x.shape[1] for x in (*parts, *more)), default=0)
    return [_wide(x, width) for x in parts], [_wide(x, width) for x in more]


def _words(texts: list[str]) -> Tensor:
    """Texts as int64 [text, word]: their number of bytes + 2, then their bytes. An integer has 1 in their place."""
    data = [text.encode("utf-8", "surrogatepass") for text in texts]  # as in hash_ids
    width = -(-max(map(len, data), default=0) // 8) * 8
    words = np.frombuffer(b"".join(x.ljust(width, b"\0") for x in data), dtype="<i8").reshape(len(data), width // 8)
    return torch.from_numpy(np.column_stack([[len(x) + 2 for x in data], words]).astype(np.int64))


def _named(ids: np.ndarray) -> np.ndarray:
    """The ids from their rows in the state: int64 [query], or texts as objects if one of them is a text."""
    if ids.shape[1] == 1:
        return ids[:, 0]
    data, width, texts = ids[:, 2:].astype("<i8").tobytes(), 8 * (ids.shape[1] - 2), dict[int, str]()
    for row, (number, size) in enumerate(ids[:, :2].tolist()):
        if size > 1:
            texts[number] = data[row * width : row * width + size - 2].decode("utf-8", "surrogatepass")
    # An integer can be the number of a text, as in checkpoints of older versions.
    return np.array([texts.get(number, str(number)) for number in ids[:, 0].tolist()], dtype=object)


def _gathered(rows: dict[str, Tensor], errors: Tensor, name: str, group: Any) -> tuple[dict[str, Tensor], Tensor]:
    """The rows and the counters of all workers: two collectives, or one if no worker has rows.

    Raises:
        WorkersDifferError: workers have other names. All workers raise it.
    """
    _, world = place_in(group, errors.device)
    digest = hashlib.blake2b(name.encode(), digest_size=DIGEST).digest()
    head = errors.new_tensor([*digest, len(rows["ids"]), *(x.shape[1] for x in rows.values())])
    mine = torch.cat([head, errors])
    heads = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(heads, mine, group=group)
    digests, numbers, counters = torch.stack(heads).split([DIGEST, 1 + len(rows), len(errors)], dim=1)
    if others := (digests != digests[0]).any(1).nonzero().squeeze(1).tolist():
        raise WorkersDifferError(
            f"Expected PerQuery of the same metrics on all {world} workers, got other metrics on {others} than on 0;"
            " build the same suite on every worker"
        )
    total = counters.sum(0)
    counts, *widths = numbers.round().long().T.tolist()
    if not any(counts):
        return rows, total
    most = {field: max(width) for field, width in zip(rows, widths)}
    wide = {field: _wide(x, most[field]) for field, x in rows.items()}
    # Bytes, so that fields of different dtypes travel together.
    packed = [x.contiguous().view(torch.uint8) for x in wide.values() if x.shape[1]]
    parts = torch.cat(all_gather(torch.cat(packed, dim=1), counts, group))
    sizes = {field: most[field] * x.element_size() for field, x in wide.items()}
    fields = zip(wide.items(), parts.split(list(sizes.values()), dim=1))
    return {
        field: part.contiguous().view(x.dtype) if sizes[field] else x.new_empty((sum(counts), 0))
        for (field, x), part in fields
    }, total


def _differing(ids: np.ndarray, numbers: np.ndarray, first: np.ndarray, keys: list[str]) -> str:
    """The error message for an id with two different values; empty if each has one."""
    rtol = 1e-9 if numbers.dtype == np.float64 else 1e-6
    same = np.isclose(numbers[1:], numbers[:-1], rtol=rtol, atol=1e-12, equal_nan=True)
    wrong = np.flatnonzero(~first[1:] & ~same.all(1))
    if not len(wrong):
        return ""
    row = int(wrong[0])
    column = int(np.flatnonzero(~same[row])[0])
    label = keys[column] if column < len(keys) else "weight"
    return (
        f"Expected one value for each id, got {label} of {numbers[row, column]:.6g} and {numbers[row + 1, column]:.6g}"
        f" for id {ids[row]}; give every query a different id, or make the scores deterministic"
    )
