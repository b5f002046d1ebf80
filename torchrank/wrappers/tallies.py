"""What wrappers share: suites and their metrics, ids of queries, sums, and the class around a suite."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank.state.sums as state
from torchrank.collection.collection import RankingCollection, plot_results
from torchrank.collection.members import Metrics
from torchrank.display import Table, plot_ends
from torchrank.hardware.devices import scalar
from torchrank.layouts.arrange import Batch
from torchrank.layouts.checks import tensor_of
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.item_lists import PerUserMetric
from torchrank.ranking.ranking import Ranking
from torchrank.state import sums
from torchrank.state.metric import COUNTS, Measure, QueryMean, SummedMetric
from torchrank.state.scoring import Status, Values, reduce, score_batch
from torchrank.state.sums import SIZE, Estimate, Sum, estimate, estimate_table, from_sums
from torchrank.state.synchronisation import all_reduce
from torchrank.state.waiting import LOCK

# Constants of splitmix64 as signed integers, because torch multiplies int64 and wraps around.
STEP = 0x9E3779B97F4A7C15 - 2**64
FIRST = 0xBF58476D1CE4E5B9 - 2**64
SECOND = 0x94D049BB133111EB - 2**64

#: A hash of 64 bits gives the counts of this many replicates, 16 bits each.
PER_HASH = 4

# Below the k-th threshold is the share of 16-bit numbers whose Poisson(1) count is less than k.
POISSON = [sum(math.exp(-1) / math.factorial(j) for j in range(k)) for k in range(1, 12)]
THRESHOLDS = [round(share * 2**16) - 2**15 for share in POISSON if round(share * 2**16) < 2**16]


def hash_ids(ids: Iterable[str | bytes | int], device: torch.device | str | None = None) -> Tensor:
    """A number for every id, equal in all processes and on all machines: int64 [id].

    Python's own ``hash`` of a string differs from process to process. Two of a million ids have the same number with a
    probability of 3e-8.

    Args:
        ids: text, bytes or integers. An integer has the number of its decimal text.
        device: the device of the result; None = CPU.

    Source:
        Aumasson, Neves, Wilcox-O'Hearn and Winnerlein, BLAKE2: simpler, smaller, fast as MD5, ACNS 2013.

    Raises:
        TypeError: an id is neither text, bytes nor an integer.

    Example:
        >>> import torchrank as tr
        >>> tr.hash_ids(["user-7", "user-8"])
        tensor([-7390381631024868802,  8089998561415321863])
    """
    if isinstance(ids, str | bytes):
        raise TypeError(f"Expected ids to be a list of texts, got one text, {ids!r}; pass [{ids!r}]")
    digests = []
    for key in ids:
        if isinstance(key, bool) or not isinstance(key, str | bytes | int):
            raise TypeError(f"Expected ids to be text, bytes or integers, got {key!r}; convert them with str")
        # Ids of files may have bytes that are not UTF-8, which are surrogates in a text.
        data = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
        digests.append(hashlib.blake2b(data, digest_size=8).digest())
    numbers = [int.from_bytes(digest, "little", signed=True) for digest in digests]
    return torch.tensor(numbers, dtype=torch.int64, device=device or "cpu")


def splitmix64(x: Tensor) -> Tensor:
    """The output of the generator splitmix64 after state ``x``: int64, 64 well mixed bits.

    Source:
        Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
    """
    x = x + STEP
    for bits, factor in ((30, FIRST), (27, SECOND)):
        x ^= (x >> bits).bitwise_and_(2 ** (64 - bits) - 1)  # a shift of unsigned numbers: `>>` copies the sign
        x *= factor
    x ^= (x >> 31).bitwise_and_(2**33 - 1)
    return x


def poisson_counts(ids: Tensor, seed: int, replicates: int) -> Tensor:
    """Counts of each query in each replicate: int8 [query, replicate], independent, Poisson with mean 1.

    A count depends on the seed, the id of the query and the number of the replicate only.

    Args:
        ids: int64 [query].
        seed: any integer of 64 bits.
        replicates: number of replicates.
    """
    hashes = -(-replicates // PER_HASH)
    key = splitmix64(torch.full((1,), seed, dtype=torch.int64, device=ids.device))
    start = splitmix64(ids ^ key)
    steps = torch.arange(hashes, dtype=torch.int64, device=ids.device) * STEP
    bits = splitmix64(start.unsqueeze(1) + steps).view(torch.int16)[:, :replicates]
    counts = torch.zeros(bits.shape, dtype=torch.int8, device=ids.device)
    # numpy compares short integers several times as fast as torch on the CPU.
    shares: Any
    total: Any
    shares, total = (bits.numpy(), counts.numpy()) if bits.is_cpu else (bits, counts)
    for threshold in THRESHOLDS:
        total += (shares >= threshold).view(total.dtype)
    return counts


#: a metric, a name or names, or a collection
Suite = Metrics


def readable(suite: Suite) -> Suite:
    """A suite that can be read again: the metrics of a generator as a list."""
    return list(suite) if isinstance(suite, Iterator) else suite


def collection_of(suite: Suite, options: dict[str, Any] | None = None) -> RankingCollection:
    """A copy of a suite as a collection, with empty states. Its prefix, postfix and keys are taken from ``options``."""
    copied, options = copy.deepcopy(readable(suite)), {} if options is None else options
    spelling = {name: options.pop(name) for name in ("prefix", "postfix", "keys") if name in options}
    if spelling or not isinstance(copied, RankingCollection):
        copied = RankingCollection(copied, **spelling)
    copied.reset()
    return copied


def measures_of(suite: RankingCollection, user: str, means: bool) -> dict[str, Measure]:
    """The measures of a collection by key; each must have a value for every query.

    Args:
        suite: the collection.
        user: the class that needs them, for the error message.
        means: accept only measures whose result is computed from sums.

    Raises:
        ValueError: a metric has no value for every query, or is not a mean although ``means``.
    """
    measures: dict[str, Measure] = {}
    for key, metric in suite.items():
        if not isinstance(metric, RankingMetric | PerUserMetric) or metric.num_extra_sums:
            raise ValueError(
                f"Expected metrics with one value for each query in {user}, got {key!r}, a {type(metric).__name__};"
                " leave it out of this suite"
            )
        if means and not from_sums(metric.aggregation):
            raise ValueError(
                f"Expected metrics that are computed from sums in {user}, got {key!r} with aggregation"
                f" {metric.aggregation!r}; keep the values with torchrank.PerQuery instead"
            )
        measures[key] = metric
    if not measures:
        raise ValueError(f"Expected at least one metric in {user}, got none")
    return measures


def is_plain_mean(metric: QueryMean) -> bool:
    """Whether the result of a metric is the arithmetic mean of the values: sum(w v) / sum(w)."""
    sums = torch.zeros(SIZE, dtype=torch.float64, device="cpu")
    sums[Sum.WV], sums[Sum.W], sums[Sum.QUERIES] = 0.5, 2.0, 2.0
    return metric.aggregation == "mean" and float(metric.value_of(sums)) == 0.25


def values_of(
    metrics: Mapping[str, Any], ranking: Ranking
) -> tuple[dict[str, Tensor], dict[str, Tensor] | None, dict[str, Tensor]]:
    """The values [query] of each metric by key, NaN for skipped queries; their weights; and which queries are empty.

    Weights are None if all are 1.

    Raises:
        ValueError: the ranking has bad values.
    """
    batch = Batch(ranking)
    results = dict(zip(metrics, score_batch(list(metrics.values()), batch, total=False)))
    values = {key: metric.scored(batch, results[key], notice=False) for key, metric in metrics.items()}
    weights = {key: torch.where(value.isnan(), 1.0, results[key].final_weights) for key, value in values.items()}
    empty = {key: results[key].status == Status.EMPTY for key in metrics}
    return values, None if all(bool((weight == 1).all()) for weight in weights.values()) else weights, empty


def listed(x: Any) -> Any:
    """An array or a column as a list; tensors, and anything else, as they are."""
    ways = [] if isinstance(x, Tensor) else [name for name in ("tolist", "to_list", "to_pylist") if hasattr(x, name)]
    return getattr(x, ways[0])() if ways else x


def check_ids(ids: Any, queries: int, device: torch.device, user: str) -> tuple[Tensor, list[str] | None]:
    """The ids of queries as int64 [query] on a device, and their texts; None = they are integers.

    Raises:
        ValueError: there are no ids, or another number of them.
        TypeError: ids are not integers.
    """
    if ids is None:
        raise ValueError(
            f"Expected query_ids in every update of {user}, got none; pass query_ids=, an int64 tensor or a list of"
            " texts (running numbers would depend on the split of the queries over batches and workers)"
        )
    ids, texts = listed(ids), None
    if isinstance(ids, list | tuple):
        ids = [x.item() if hasattr(x, "item") else x for x in ids]  # numbers of numpy or torch
        if any(x is None for x in ids):  # a masked element
            raise TypeError("Expected an id of each query, got query_ids with None or masked elements; give them ids")
        if all(isinstance(x, int) and not isinstance(x, bool) for x in ids):
            ids = torch.tensor(ids, dtype=torch.int64, device="cpu")
        else:
            texts = [x.decode(errors="surrogateescape") if isinstance(x, bytes) else str(x) for x in ids]
            ids = hash_ids(ids)
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        got, way_out = type(ids).__name__, "list(query_ids)"
        if isinstance(ids, Tensor):
            got, way_out = str(ids.dtype), "query_ids.long()"
        raise TypeError(
            f"Expected query_ids to be integers [query], or a list of integers or texts, got {got}; pass {way_out}"
        )
    if ids.shape != (queries,):
        raise ValueError(f"Expected query_ids of shape [{queries}], one per query, got {list(ids.shape)}")
    return tensor_of(ids).detach().to(device, torch.int64), texts


#: membership of queries: bool [query], or None = all queries
Members = Tensor | None


class PlainTally:
    """The sums of each metric: :class:`torchrank.state.sums.Sum`, one metric after the other."""

    #: whether each query needs an id
    needs_ids = False
    #: text that defines the sums, besides the metrics
    definition = ""
    #: the level of intervals if none is given
    level = 0.95

    def __init__(self, metrics: Mapping[str, Measure]) -> None:
        #: the metrics by key
        self.metrics = metrics
        #: number of the sums of means, which come first, and of all sums
        self.num_plain = self.size = len(metrics) * sums.SIZE

    def sums(self, values: Values, ids: Tensor | None, groups: Sequence[Members]) -> Tensor:
        """The sums over each group of queries, from values [metric, query]: float [group, size]."""
        metrics = list(self.metrics.values())
        return torch.stack([torch.cat(reduce(metrics, within(values, members))) for members in groups])

    def of_metrics(self, state: Tensor) -> dict[str, Tensor]:
        """The sums [..., SIZE] of each metric by key, from sums [..., size] of a group."""
        parts = state[..., : self.num_plain].unflatten(-1, (-1, sums.SIZE))
        return {key: parts[..., n, :] for n, key in enumerate(self.metrics)}

    def values(self, state: Tensor) -> dict[str, Tensor]:
        """The results to report, by key, from sums [size]: float64 []."""
        return {key: self.metrics[key].value_of(part) for key, part in self.of_metrics(state).items()}

    def estimates(self, state: Tensor, level: float, method: str) -> dict[str, Estimate]:
        """The estimates by key, from sums [size]."""
        parts = self.of_metrics(state).items()
        return {key: estimate(self.metrics[key], part, None, level, method) for key, part in parts}

    def errors(self, state: Tensor) -> Tensor:
        """Counters of bad values [kind], from sums [group, size]: for each kind the largest of all metrics."""
        parts = torch.stack(list(self.of_metrics(state).values()))
        return parts[..., sums.Sum.ERRORS :].flatten(0, -2).amax(0)


def within(values: Values, members: Members) -> Values:
    """Values in which only the members of a group count."""
    if members is None:
        return values
    if members.is_cpu:  # then the sums of a small group cost little
        return values.take(members.nonzero().squeeze(1))
    absent = scalar(Status.ABSENT, values.status.dtype, values.status.device)
    return replace(values, status=torch.where(members, values.status, absent))


class SuiteMetric(SummedMetric):
    """Sums of all measures of a suite over one or more groups of queries.

    The measures only define values: their own states stay empty. The state of this metric is one vector. It begins
    with ``num_counters`` numbers of the subclass; the sums of one group after the other follow, the first group being
    all queries.
    """

    higher_is_better = None
    is_differentiable = False
    #: number of further counters at the beginning of the state
    num_counters = 0
    #: a name among those that were counted as bad on this worker
    _unknown: str | None = None

    def __init__(self, tally: PlainTally, groups: int, definition: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tally, self.groups = tally, groups
        # Counters of the subclass over all workers, since the last compute.
        self._counters: Tensor | None = None
        names = [metric.definition_name for metric in tally.metrics.values()]
        self._definition = f"{definition}{tally.definition}: {', '.join(names)}"
        # The names of states may have numbers of namesakes, which depend on the metrics made before in this process.
        states = [metric._state for metric in tally.metrics.values()]
        self._state = f"{definition}{tally.definition}: {', '.join(states)}"
        size = self.num_counters + groups * tally.size
        self.add_state(f"{self._state}:sums", state.nothing(self.device, size - state.SIZE), dist_reduce_fx="sum")

    @property
    def definition_name(self) -> str:
        return self._definition

    # ---- add, compute ------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget all batches."""
        super().reset()
        if not self._in_forward:
            self._unknown = None

    def add(self, batch: Batch, ids: Any = None, groups: Sequence[Members] = (None,), counters: Any = None) -> None:
        """Add the queries of a batch to the sums of all queries and of each group.

        ``counters`` are those of the subclass, or a function of the values that returns them.
        """
        values = Values.stack(score_batch(list(self.tally.metrics.values()), batch, total=False))
        queries, device = values.num_queries, values.values.device
        for members in groups:
            if members is not None and len(members) != queries:
                raise ValueError(f"Expected slices of {queries} queries, as in preds, got {len(members)}")
        groups = [None if members is None else members.to(device) for members in groups]
        numbers = None
        if self.tally.needs_ids or ids is not None:
            numbers, _ = check_ids(ids, queries, device, type(self).__name__)
        with torch.no_grad():
            sums = self.tally.sums(values, numbers, groups).flatten()
            if counters is not None:
                counters = counters(values) if callable(counters) else counters
                sums = torch.cat([counters.to(sums), sums])
        with LOCK:
            self._set("sums", state.add(self.sums, sums))
        self.notice_cut(batch.indexes)

    def counts(self, sums: Tensor) -> Tensor:
        return torch.cat([part[:, COUNTS] for part in self.tally.of_metrics(self.parts(sums)).values()])

    def parts(self, sums: Tensor) -> Tensor:
        """The sums [group, size] of each group, from the whole vector."""
        return sums[self.num_counters :].view(self.groups, self.tally.size)

    def compute(self) -> dict[str, Tensor]:
        """The results by key, over the queries of all workers: float32 [].

        Raises:
            ValueError: a worker has met bad values. The metric can be used further.
        """
        sums = self._counted(state.read(self.sums))
        bad = self.tally.errors(self.parts(sums)).sum() > 0
        return {key: self._narrow(torch.where(bad, float("nan"), x)) for key, x in self.results(sums).items()}

    def results(self, sums: Tensor) -> dict[str, Tensor]:
        """The results by key, from the whole vector of sums."""
        return self.tally.values(self.parts(sums)[0])

    def of_all_workers(self) -> Tensor:
        """The whole vector of sums over the queries of all workers.

        Raises:
            ValueError: a worker has met bad values.
        """
        with self.over_all_workers():
            sums = self._counted(state.read(self.sums))
        self.raise_errors()
        return sums

    def _counted(self, sums: Tensor) -> Tensor:
        """The sums. Their counters are kept, to raise after all workers have communicated."""
        self._errors, self._counters = self.tally.errors(self.parts(sums)), sums[: self.num_counters]
        return sums

    def raise_errors(self) -> None:
        super().raise_errors()
        if self._counters is not None:
            self.check(self._counters)

    @property
    def example(self) -> str:
        """A name that was counted as bad, for an error message."""
        return "" if self._unknown is None else f", e.g. {self._unknown!r}"

    def check(self, counters: Tensor) -> None:
        """Raise ValueError for bad arguments that the counters of the subclass have found."""

    def summary(self, level: float = 0.95, method: str | None = None) -> Table:
        """A table with a row for every metric, over the queries of all workers; see :meth:`RankingCollection.summary`.

        Like :meth:`compute` it makes one all-reduce, so all workers must call it.
        """
        sums = self.parts(self.of_all_workers())[0]
        return estimate_table(self.tally.estimates(sums, level, method or "auto"), level, method=method or "auto")

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot a row for each result, with its interval and one colour for each metric; needs matplotlib.

        Args:
            val: a result of :meth:`compute` or ``forward``, which has no intervals unless they are a bootstrap's; or a
                list of results, which are drawn as lines over time; None = compute, with the intervals of
                :meth:`summary`.
            ax: the axes to draw in; None = new axes.

        Returns:
            The figure and its axes.
        """
        if val is not None and not isinstance(val, Mapping):
            return plot_results(val, ax)
        if val is None:
            table = self.summary()
            intervals = {f"{key}/{end}": x for end in ("low", "high") for key, x in zip(table["measure"], table[end])}
            val = intervals | self.compute()
        keys = [key for key in val if not key.endswith(("/low", "/high"))]
        metrics = list(enumerate(self.tally.metrics))
        kinds = [next((n for n, metric in metrics if f"{key}/".startswith(f"{metric}/")), 0) for key in keys]
        what = f"value with its {100 * self.tally.level:g} % interval" if len(keys) < len(val) else "value"
        return plot_ends(ax, val, keys, ("", "/low", "/high"), what, kinds)

    @property
    def num_queries(self) -> int:
        """Number of queries of this worker, empty ones included; within ``sync_context()`` of all workers."""
        first = self.parts(state.read(self.sums))[0]
        return int(first[state.Sum.QUERIES])

    # ---- torchmetrics' contract --------------------------------------------------------------------------------

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:  # a function of the user
            super()._sync_dist(dist_sync_fn, process_group)
            return
        name = self.definition_name
        self._set("sums", all_reduce({name: self}, process_group or self.process_group, one_message=True)[name][0])
