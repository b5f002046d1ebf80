"""What wrappers share: suites and their metrics, ids of queries, sums, and the class around a suite."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank.state.sums as state
from torchrank.collection.collection import Metrics, RankingCollection, plot_results
from torchrank.display import Table, plot_ends
from torchrank.hardware.devices import eager, in_batch, scalar
from torchrank.layouts.arrange import Batch
from torchrank.layouts.checks import tensor_of
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.item_lists import PerUserMetric
from torchrank.names.arguments import integer, one_of
from torchrank.names.types import Array
from torchrank.ranking.ranking import Ranking
from torchrank.state.metric import COUNTS, Measure, SafeMetric
from torchrank.state.scoring import Status, Values, reduce, score_batch
from torchrank.state.sums import SIZE, Estimate, Interval, Sum, check, estimate, estimate_table, from_sums
from torchrank.state.synchronisation import all_reduce
from torchrank.state.waiting import LOCK
from torchrank.statistics.intervals import normal_quantile


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


#: a metric, a name or names, or a collection
Suite = Metrics

#: the scores of a batch, in any layout
Scores = Array | Ranking

#: the ids of the queries of a batch
Ids = Array | Sequence[str] | None


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


def measures_of(suite: RankingCollection | Mapping[str, Any], user: str, means: bool) -> dict[str, Measure]:
    """The measures of a collection by key; each must have a value for every query.

    Args:
        suite: the collection, or metrics by key.
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


def is_plain_mean(metric: Measure) -> bool:
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
    found = score_batch(list(metrics.values()), batch, total=False)
    results = {key: found.of(n) for n, key in enumerate(metrics)}
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


# ---- the bootstrap -----------------------------------------------------------------------------------------------

#: membership of queries: bool [query], or None = all queries
Members = Tensor | None

#: an interval from replicates: their percentiles, their percentiles mirrored at the value, or their standard deviation
Percentiles = Literal["percentile", "basic", "se"]

# Counts of a chunk of queries, which fit in the cache of a core; and chunks between two additions.
MOST_COUNTS = 2**18

# A number is the sum of a multiple of 2^-14 and a multiple of 2^-47. Sums of such multiples are exact in float64, so
# they do not depend on the order: up to a sum of 2^39, and for weights from 2^-27 with a relative error below 1e-6.
COARSE, FINE = 1.5 * 2.0 ** (52 - 14), 1.5 * 2.0 ** (52 - 47)


# Constants of splitmix64 as signed integers, because torch multiplies int64 and wraps around.
STEP = 0x9E3779B97F4A7C15 - 2**64
FIRST = 0xBF58476D1CE4E5B9 - 2**64
SECOND = 0x94D049BB133111EB - 2**64

#: A hash of 64 bits gives the counts of this many replicates, 16 bits each.
PER_HASH = 4

# Below the k-th threshold is the share of 16-bit numbers whose Poisson(1) count is less than k.
POISSON = [sum(math.exp(-1) / math.factorial(j) for j in range(k)) for k in range(1, 12)]
THRESHOLDS = [round(share * 2**16) - 2**15 for share in POISSON if round(share * 2**16) < 2**16]


@dataclass(frozen=True)
class Bootstrap:
    """The sums of a Poisson bootstrap for each metric of a suite: a fingerprint of the ids, and sums of each replicate.

    Args:
        replicates, seed, level, method: as :class:`Bootstrapped`.
    """

    replicates: int
    seed: int
    level: float
    method: Percentiles

    def __post_init__(self) -> None:
        integer("replicates", self.replicates, least=2, or_none=False)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not -(2**63) <= self.seed < 2**63:
            raise ValueError(f"Expected seed to be an integer of 64 bits, got {self.seed!r}")
        check(self.level, "auto")
        one_of("method", self.method, get_args(Percentiles))

    @property
    def definition(self) -> str:
        """The text that defines the counts of the replicates."""
        return f"bootstrapped(replicates={self.replicates},seed={self.seed})"

    @property
    def size(self) -> int:
        """Number of sums for each metric: the coarse and fine parts of sum(p w v) and of sum(p w)."""
        return 4 * self.replicates

    def sums_of(self, metrics: Sequence[Measure], values: Values, parts: Sequence[Members], ids: Tensor) -> Tensor:
        """The fingerprint of the queries in each part, and their sums in every replicate: float [part, number]."""
        weight, counted = values.final_weights, values.counted
        inside = torch.stack([metric.mean.inside(row) for metric, row in zip(metrics, values.values)])
        rows = _limbs(torch.where(weight > 0, inside * weight, 0.0), weight)  # [4 * metric, query]
        prints = (splitmix64(ids.clone()) & (2**24 - 1)).to(rows.dtype)
        marks = [(prints * (counted if members is None else counted & members)).sum() for members in parts]
        with in_batch(rows.device, len(ids) * self.replicates):
            totals = self._replicated(rows, ids, parts)
        return torch.cat([torch.stack(marks).unsqueeze(1), totals.flatten(1)], dim=1)

    def _replicated(self, rows: Tensor, ids: Tensor, parts: Sequence[Members]) -> Tensor:
        """The sums of rows [row, query] over the queries of each part in every replicate: [part, row, replicate]."""
        distinct, position = rows, torch.arange(len(rows), device=rows.device)
        if rows.is_cpu and len(ids):  # most metrics have the same weights, whose rows are multiplied once
            distinct, position = torch.unique(rows, dim=0, return_inverse=True)
        step = max(1, MOST_COUNTS // self.replicates)
        total = rows.new_zeros((len(parts), len(distinct), self.replicates))
        for start in range(0, len(ids), step):
            chunk = slice(start, start + step)
            counts = poisson_counts(ids[chunk], self.seed, self.replicates).to(rows.dtype)
            inside = distinct[:, chunk]
            # The numbers of queries outside of a part may be infinite, so they are not multiplied by 0.
            each_part = (inside if members is None else torch.where(members[chunk], inside, 0.0) for members in parts)
            total += torch.stack([numbers @ counts for numbers in each_part])  # exact, so in any order
        return total[:, position]


def sums_of_mean(wv: Tensor, w: Tensor) -> Tensor:
    """Sums [replicate, SIZE] in which only the sums of a mean are known."""
    sums = wv.new_zeros((*wv.shape, SIZE))
    sums[..., Sum.WV], sums[..., Sum.W] = wv, w
    return sums


def _limbs(wv: Tensor, w: Tensor) -> Tensor:
    """Coarse and fine parts of two tables [metric, query], whose sums are exact: float [4 * metric, query]."""
    both = torch.stack([wv, w])
    if both.dtype != torch.float64:  # a device without float64 has no room for two parts
        return torch.stack([both, torch.zeros_like(both)], 1).flatten(0, 2)
    coarse = (both + COARSE) - COARSE
    fine = ((both - coarse) + FINE) - FINE
    return torch.stack([coarse, fine], 1).flatten(0, 2)


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


def interval_of(value: Tensor, replicates: Tensor, level: float, method: str) -> tuple[Tensor, Tensor, Tensor]:
    """Low and high end of an interval, and the standard error, from the value and its replicates: float [] each.

    NaN if fewer than two replicates drew a query, or if all of them are equal.
    """
    drawn = replicates[~replicates.isnan()]
    none = torch.full_like(value, float("nan"))
    if len(drawn) < 2 or bool(drawn.amin() == drawn.amax()):
        return none, none, none
    error = drawn.std()
    if method == "se":
        reach = error * normal_quantile((1 + level) / 2)
        return value - reach, value + reach, error
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=drawn.dtype, device=drawn.device)
    low, high = drawn.quantile(ends)
    return (2 * value - high, 2 * value - low, error) if method == "basic" else (low, high, error)


# ---- the metric --------------------------------------------------------------------------------------------------


class SuiteMetric(SafeMetric):
    """Sums of all measures of a suite over one or more parts of the queries.

    The measures only define values: their own states stay empty. The state of this metric is one vector. It begins
    with ``num_counters`` numbers of the subclass. Then come the sums of one part after the other: of each measure those
    of :class:`torchrank.state.sums.Sum`, and those of the replicates of a bootstrap, if there is one.

    Args:
        suite: a metric, names of metrics, or a collection.
        definition: text that defines the sums, besides the metrics.
        num_parts: number of parts.
        bootstrap: the bootstrap, if there is one.
        kwargs: of :class:`torchmetrics.Metric`, and the spelling of keys.
    """

    higher_is_better = None
    is_differentiable = False
    #: a name among those that were counted as bad on this worker
    _unknown: str | None = None

    def __init__(
        self, suite: Suite, definition: str, num_parts: int = 1, bootstrap: Bootstrap | None = None, **kwargs: Any
    ) -> None:
        collection = collection_of(suite, kwargs)
        super().__init__(**kwargs)
        self.suite, self.num_parts, self.bootstrap = collection, num_parts, bootstrap
        self.metrics = measures_of(collection, type(self).__name__, means=True)
        # The whole vector of sums that was read last, of all workers.
        self._read: Tensor | None = None
        self._definition = definition + ("" if bootstrap is None else bootstrap.definition)
        # The names of states may have numbers of namesakes, which depend on the metrics made before in this process.
        self._state = f"{self._definition}: {', '.join(metric._state for metric in self.metrics.values())}"
        size = len(self.metrics) * (SIZE + (0 if bootstrap is None else bootstrap.size)) + (bootstrap is not None)
        self.add_state(
            f"{self._state}:sums",
            state.nothing(self.device, self.num_counters + num_parts * size - SIZE),
            dist_reduce_fx="sum",
        )

    @property
    def num_counters(self) -> int:
        """Number of further counters at the beginning of the state."""
        return 0

    @property
    def level(self) -> float:
        """The level of intervals if none is given."""
        return 0.95 if self.bootstrap is None else self.bootstrap.level

    @property
    def definition_name(self) -> str:
        return f"{self._definition}: {', '.join(metric.definition_name for metric in self.metrics.values())}"

    # ---- add ---------------------------------------------------------------------------------------------------

    def scored(self, batch: Batch) -> Values:
        """The values [metric, query] of a batch."""
        return score_batch(list(self.metrics.values()), batch, total=False)

    def _sums_of(self, values: Values, parts: Sequence[Members] = (None,), ids: Tensor | None = None) -> Tensor:
        """The sums over each part of the queries, from their values [metric, query]: float [part, size]."""
        metrics, each = list(self.metrics.values()), []
        for members in parts:
            inside = values
            if members is not None:
                absent = scalar(Status.ABSENT, values.status.dtype, values.status.device)
                inside = replace(values, status=torch.where(members, values.status, absent))
            each.append(torch.cat(reduce(metrics, inside)))
        sums = torch.stack(each)
        if self.bootstrap is None:
            return sums
        assert ids is not None
        return torch.cat([sums, self.bootstrap.sums_of(metrics, values, parts, ids)], dim=1)

    def add(self, *sums: Tensor) -> None:
        """Add the sums of a batch, which follow each other, to the state."""
        added = torch.cat([part.to(sums[-1]).flatten() for part in sums])
        with LOCK:
            self._set("sums", state.add(self.sums, added))

    def reset(self) -> None:
        """Forget all batches."""
        super().reset()
        if not self._in_forward:
            self._unknown = None

    # ---- compute -----------------------------------------------------------------------------------------------

    def parts(self, sums: Tensor) -> Tensor:
        """The sums [part, size] of each part, from the whole vector."""
        return sums[self.num_counters :].view(self.num_parts, -1)

    def by_metric(self, sums: Tensor) -> dict[str, Tensor]:
        """The sums [..., SIZE] of each metric by key, from sums [..., size] of a part."""
        each = sums[..., : len(self.metrics) * SIZE].unflatten(-1, (-1, SIZE))
        return dict(zip(self.metrics, each.unbind(-2)))

    def counts(self, sums: Tensor) -> Tensor:
        return torch.stack([x[:, COUNTS] for x in self.by_metric(self.parts(sums)).values()])

    def values_of(self, sums: Tensor) -> dict[str, Tensor]:
        """The value of each metric by key, from the sums [size] of a part: float64 []."""
        return {key: self.metrics[key].value_of(part) for key, part in self.by_metric(sums).items()}

    def results_of(self, sums: Tensor) -> dict[str, Tensor]:
        """The results to report by key, from the sums [size] of a part: float64 []."""
        values = self.values_of(sums)
        if self.bootstrap is None:
            return values
        results: dict[str, Tensor] = {}
        for key, replicates in self.replicates_of(sums).items():
            low, high, _ = interval_of(values[key], replicates, self.level, self.bootstrap.method)
            results |= {key: values[key], f"{key}/low": low, f"{key}/high": high}
        return results

    def estimates_of(self, sums: Tensor, level: float, method: str) -> dict[str, Estimate]:
        """The estimates by key, from the sums [size] of a part."""
        parts = self.by_metric(sums).items()
        if self.bootstrap is None:
            return {key: estimate(self.metrics[key], part, None, level, method) for key, part in parts}
        method = self.bootstrap.method if method == "auto" else method
        one_of("method", method, get_args(Percentiles))
        estimates = {key: estimate(self.metrics[key], part, None, level) for key, part in parts}
        for key, values in self.replicates_of(sums).items():
            value = values.new_tensor(estimates[key].value)
            low, high, error = map(float, interval_of(value, values, level, method))
            estimates[key] = replace(estimates[key], standard_error=error, interval=Interval(low, high))
        return estimates

    def replicates_of(self, sums: Tensor) -> dict[str, Tensor]:
        """The value of every metric in every replicate by key, from the sums [size] of a part: float [replicate].

        NaN where nothing was drawn.
        """
        coarse_wv, fine_wv, coarse_w, fine_w = sums[len(self.metrics) * SIZE + 1 :].view(4, len(self.metrics), -1)
        wv, w = coarse_wv + fine_wv, coarse_w + fine_w
        values = {}
        for n, (key, part) in enumerate(self.by_metric(sums).items()):
            values[key] = self.metrics[key].value_of(sums_of_mean(wv[n], w[n]))
            if self.metrics[key].adds_up:  # a sum is that of as many queries as there are, not as many as were drawn
                values[key] = values[key] * (part[Sum.W] / w[n])
        return values

    def compute(self) -> dict[str, Tensor]:
        """The results by key, over the queries of all workers: float32 [].

        Raises:
            ValueError: a worker has met bad values. The metric can be used further.
        """
        sums = self._seen(state.read(self.sums))
        bad = self._errors.sum() > 0  # type: ignore[union-attr]
        return {key: self._narrow(torch.where(bad, float("nan"), x)) for key, x in self.results(sums).items()}

    def results(self, sums: Tensor) -> dict[str, Tensor]:
        """The results by key, from the whole vector of sums."""
        return self.results_of(self.parts(sums)[0])

    def of_all_workers(self) -> Tensor:
        """The whole vector of sums over the queries of all workers.

        Raises:
            ValueError: a worker has met bad values.
        """
        with self.over_all_workers():
            sums = self._seen(state.read(self.sums))
        self.raise_errors()
        return sums

    def _seen(self, sums: Tensor) -> Tensor:
        """The whole vector of sums. It is kept, to raise after all workers have communicated."""
        by_metric = torch.stack(list(self.by_metric(self.parts(sums)).values()))
        # For each kind of bad value the largest counter of all metrics and parts.
        self._read, self._errors = sums, by_metric[..., Sum.ERRORS :].amax((0, 1))
        return sums

    def raise_errors(self) -> None:
        super().raise_errors()
        if self._read is not None:
            self.check(self._read)

    @property
    def example(self) -> str:
        """A name that was counted as bad, for an error message."""
        return "" if self._unknown is None else f", e.g. {self._unknown!r}"

    def check(self, sums: Tensor) -> None:
        """Raise ValueError for bad arguments that the counters of the subclass, which come first, have found."""

    @eager
    def summary(self, level: float = 0.95, method: str | None = None) -> Table:
        """A table with a row for every metric, over the queries of all workers; see :meth:`RankingCollection.summary`.

        Like :meth:`compute` it makes one all-reduce, so all workers must call it.
        """
        estimates = self.estimates_of(self.parts(self.of_all_workers())[0], level, method or "auto")
        return estimate_table(estimates, level, method=method or "auto")

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
        metrics = list(enumerate(self.metrics))
        kinds = [next((n for n, metric in metrics if f"{key}/".startswith(f"{metric}/")), 0) for key in keys]
        what = f"value with its {100 * self.level:g} % interval" if len(keys) < len(val) else "value"
        return plot_ends(ax, val, keys, ("", "/low", "/high"), what, kinds)

    @property
    @eager
    def num_queries(self) -> int:
        """Number of queries of this worker, empty ones included; within ``sync_context()`` of all workers."""
        first = self.parts(state.read(self.sums))[0]
        return int(first[Sum.QUERIES])

    # ---- torchmetrics' contract --------------------------------------------------------------------------------

    def _sync_dist(self, dist_sync_fn: Callable = gather_all_tensors, process_group: Any = None) -> None:
        if dist_sync_fn is not gather_all_tensors:  # a function of the user
            super()._sync_dist(dist_sync_fn, process_group)
            return
        name = self.definition_name
        self._set("sums", all_reduce({name: self}, process_group or self.process_group, one_message=True)[name][0])
