"""The class around a suite, whose sums are those of slices of the queries and of replicates of a bootstrap."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack, get_args

import torch
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

import torchrank.state.sums as state
from torchrank.collection.collection import Metrics, RankingCollection, plot_results
from torchrank.display import Table, plot_ends
from torchrank.hardware.devices import eager, in_batch, scalar, widest_float
from torchrank.layouts.arrange import Batch, Options, with_options
from torchrank.layouts.checks import tensor_of
from torchrank.metrics.base import RankingMetric
from torchrank.metrics.item_lists import PerUserMetric
from torchrank.names.arguments import did_you_mean, integer, one_of
from torchrank.names.types import Array, Target
from torchrank.ranking.ranking import Ranking
from torchrank.state.metric import COUNTS, Measure, SafeMetric
from torchrank.state.scoring import Status, Values, reduce, score_batch
from torchrank.state.sums import NO_INTERVAL, SIZE, Estimate, Interval, Sum, check, estimate, estimate_table, from_sums
from torchrank.state.synchronisation import all_reduce
from torchrank.state.waiting import LOCK, bulk
from torchrank.statistics.intervals import normal_quantile, t_cdf, t_interval, welch


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


def check_ids(
    ids: Any, queries: int, device: torch.device, user: str, name: str = "query_ids"
) -> tuple[Tensor, list[str] | None]:
    """The ids of queries as int64 [query] on a device, and their texts; None = they are integers.

    Raises:
        ValueError: there are no ids, or another number of them.
        TypeError: ids are not integers.
    """
    if ids is None:
        raise ValueError(
            f"Expected {name} in every update of {user}, got none; pass {name}=, an int64 tensor or a list of"
            " texts (running numbers would depend on the split of the queries over batches and workers)"
        )
    ids, texts = listed(ids), None
    if isinstance(ids, list | tuple):
        ids = [x.item() if hasattr(x, "item") else x for x in ids]  # numbers of numpy or torch
        if any(x is None for x in ids):  # a masked element
            raise TypeError(f"Expected an id of each query, got {name} with None or masked elements; give them ids")
        if all(isinstance(x, int) and not isinstance(x, bool) for x in ids):
            ids = torch.tensor(ids, dtype=torch.int64, device="cpu")
        else:
            texts = [x.decode(errors="surrogateescape") if isinstance(x, bytes) else str(x) for x in ids]
            ids = hash_ids(ids)
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        got, way_out = type(ids).__name__, f"list({name})"
        if isinstance(ids, Tensor):
            got, way_out = str(ids.dtype), f"{name}.long()"
        raise TypeError(
            f"Expected {name} to be integers [query], or a list of integers or texts, got {got}; pass {way_out}"
        )
    if ids.shape != (queries,):
        raise ValueError(f"Expected {name} of shape [{queries}], one per query, got {list(ids.shape)}")
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

    def _values(self, batch: Batch, known: dict[Any, Any] | None = None) -> Values:
        """The values [metric, query] of a batch; ``known``: what other systems have shown of its judgments."""
        return score_batch(list(self.metrics.values()), batch, total=False, known=known)

    def _sums_of(self, values: Values, parts: Sequence[Members] = (None,), ids: Tensor | None = None) -> Tensor:
        """The sums over each part of the queries, from their values [metric, query]: float [part, size]."""
        metrics, each = list(self.metrics.values()), []
        with in_batch(values.status.device, values.status.numel()):
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


# ---- the suite in replicates and in slices ---------------------------------------------------------------------------


class Bootstrapped(SuiteMetric):
    r"""The bootstrap of a suite: how much its values change if other queries, or other users, had been drawn.

    **Pass the id of a user in the place of the id of a query, and it is a cluster bootstrap**: all queries of a user
    are drawn together. It is right even if the queries of a user are in several batches or on several workers. Use
    it if a user has several queries; an interval over queries would be too narrow.

    In replicate b, query q counts :math:`p_{bq}` times, Poisson with mean 1, and the replicate is

    .. math:: \hat m_b = \sum_q p_{bq} w_q v_q / \sum_q p_{bq} w_q.

    The counts come from a hash of (seed, id, b). So the replicates do not depend on the split of the queries over
    batches and workers, to the bit for sums up to 5e11. Weights below 1e-9 lose digits, so multiply them by a number.
    Two models with the same seed are paired: their replicates contain the same queries, also if they were evaluated in
    different jobs, see :meth:`difference`.

    The state has four numbers for every metric and replicate. ``compute`` returns, for each key of the suite, the value
    as ``key``, and the ends of its interval as ``key/low`` and ``key/high``. A query that is given twice counts twice.

    Source:
        Efron, Bootstrap methods: another look at the jackknife, Annals of Statistics 1979. Poisson counts in sums:
        Chamandy, Muralidharan, Najmi and Naidu, Estimating uncertainty for massive data streams, Google 2012.

    Args:
        suite: a metric, names of metrics, or a collection. Its measures are copied; their states stay empty.
        replicates: number of replicates. 200 are enough for a standard error (5 %), 1,000 for percentiles.
        seed: integer of 64 bits.
        level: the probability that an interval contains the expected value.
        method: "percentile", the percentiles of the replicates; "basic", these mirrored at the value; "se", the
            standard deviation of the replicates times a quantile of the normal distribution.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: an argument has an unknown value, or the suite has a metric without a mean over queries.

    Example:
        >>> import torch, torchrank as tr
        >>> booted = tr.Bootstrapped("mrr", replicates=200)
        >>> scores, labels = torch.rand(500, 10, generator=torch.Generator().manual_seed(0)), torch.arange(500) % 10
        >>> booted.update(scores, labels, query_ids=torch.arange(500))
        >>> {key: round(value.item(), 3) for key, value in booted.compute().items()}
        {'mrr': 0.286, 'mrr/low': 0.262, 'mrr/high': 0.311}
    """

    asks_for = "query_ids"
    bootstrap: Bootstrap

    def __init__(
        self,
        suite: Suite,
        replicates: int = 1000,
        seed: int = 0,
        level: float = 0.95,
        method: Percentiles = "percentile",
        **kwargs: Any,
    ) -> None:
        super().__init__(suite, "", bootstrap=Bootstrap(replicates, seed, level, method), **kwargs)
        one = torch.ones((), device="cpu")
        for key, metric in self.metrics.items():
            if not bool(metric.value_of(sums_of_mean(one, one)).isfinite()):
                raise ValueError(
                    f"Expected metrics that are a mean over queries in Bootstrapped, got {key!r}; leave it out"
                )

    @bulk
    @with_options
    def update(
        self, preds: Scores, target: Target | None = None, *, query_ids: Ids = None, **options: Unpack[Options]
    ) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`, and ``query_ids``.

        ``query_ids`` is int [query], the id of each query, or of the user whose query it is; or a list of texts, see
        :func:`torchrank.hash_ids`. With ``indexes`` it is in ascending order of index.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`, or if ids are missing.
        """
        batch = Batch(preds, target, **options)
        values = self._values(batch)
        ids, _ = check_ids(query_ids, values.num_queries, values.values.device, "Bootstrapped")
        self.add(self._sums_of(values, ids=ids))
        self.notice_cut(batch.indexes)

    @eager
    def intervals(self, level: float | None = None, method: Percentiles | None = None) -> dict[str, Interval]:
        """The interval of every metric by key, over the queries of all workers: (low, high), both floats.

        NaN if all replicates are equal, e.g. because there is one query only. ``level`` and ``method`` default to the
        arguments of the constructor.
        """
        level = self.level if level is None else level
        estimates = self.estimates_of(self.of_all_workers(), level, method or "auto")
        return {key: estimate.interval for key, estimate in estimates.items()}

    @eager
    def summary(self, level: float | None = None, method: str | None = None) -> Table:
        """A table with a row for every metric, over the queries of all workers. Arguments of :meth:`intervals`."""
        return super().summary(self.level if level is None else level, method)

    def replicates(self) -> dict[str, Tensor]:
        """The value of every metric in every replicate, by key: float64 [replicate], NaN where nothing was drawn."""
        return self.replicates_of(self.of_all_workers())

    @eager
    def difference(self, other: Bootstrapped, level: float | None = None, method: Percentiles | None = None) -> Table:
        """The differences between this model and another one, replicate by replicate, so that they are paired.

        Args:
            other: the same suite with the same seed and number of replicates, of another model, over the same queries.
            level: the probability that an interval contains the expected difference; None = that of the constructor.
            method: as in the constructor, and by default the same.

        Returns:
            A table with a row for every metric: mean_a of this model, mean_b of the other one, difference (a - b),
            standard error, low, high, queries_a, queries_b, and p, twice the share of replicates on the smaller side of
            0. A note tells if the two have other queries.

        Raises:
            ValueError: the other one has another suite, seed or number of replicates.
        """
        if not isinstance(other, Bootstrapped) or other.definition_name != self.definition_name:
            got = other.definition_name if isinstance(other, Bootstrapped) else type(other).__name__
            raise ValueError(f"Expected another {self.definition_name}, got {got}; use one suite, seed and replicates")
        mine, theirs = self.of_all_workers(), other.of_all_workers().to(self.device)
        # equal for equal queries: their number, and the sum of hashes of their ids
        prints = [(int(sums[Sum.QUERIES]), int(sums[len(self.metrics) * SIZE])) for sums in (mine, theirs)]
        notes = []
        if prints[0] != prints[1]:
            counts = " and ".join(str(queries) for queries, _ in prints)
            notes.append(f"the queries differ ({counts} of them): only common ids are paired")
        level, method = self.level if level is None else level, method or self.bootstrap.method
        return difference_table(self, mine, theirs, level, method, ("this", "other"), notes)


def difference_table(
    metric: SuiteMetric,
    first: Tensor,
    second: Tensor,
    level: float,
    method: str,
    names: tuple[str, str],
    notes: Sequence[str] = (),
) -> Table:
    """The differences of two parts of a bootstrap, paired by replicate, from their sums [size]."""
    check(level, "auto")
    one_of("method", method, get_args(Percentiles))
    assert metric.bootstrap is not None
    replicates, seed = metric.bootstrap.replicates, metric.bootstrap.seed
    values, drawn = ([each(sums) for sums in (first, second)] for each in (metric.values_of, metric.replicates_of))
    queries = {f"queries_{name}": int(sums[Sum.QUERIES]) for name, sums in (("a", first), ("b", second))}
    rows: list[dict[str, Any]] = []
    for key in metric.metrics:
        a, b = (by_key[key] for by_key in values)
        differences = drawn[0][key] - drawn[1][key]
        differences = differences[~differences.isnan()]
        low, high, error = interval_of(a - b, differences, level, method)
        sides = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
        p = min(1.0, 2 * (1 + sides) / (1 + len(differences))) if len(differences) > 1 else math.nan
        row: dict[str, Any] = {"measure": key, "a": names[0], "b": names[1], "mean_a": a, "mean_b": b}
        row |= {"difference": a - b, "standard error": error, "low": low, "high": high, "p": p}
        rows.append(row | queries)
    kind = f"{100 * level:g} % interval of {replicates} replicates, {method}"
    note = f"difference: a - b; low and high: {kind}, seed {seed}; p is at least {2 / (replicates + 1):.2g}"
    return Table.of_rows(rows, {"p": ".2g"}, [note, *notes])


#: the name of the queries outside of a slice
REST = "rest"

#: the name of the mean over slices
MACRO = "macro"

#: how a missing name among names is printed: None, NaN, or NA of pandas
MISSING = {"None", "nan", "<NA>"}

#: names of results and of columns, which no slice can have
RESERVED = {REST, MACRO, "low", "high"}


class Sliced(SuiteMetric):
    """A suite for all queries and for each slice of them.

    ``compute`` returns, for each key of the suite, the value over all queries as ``key``, the value of each slice as
    ``key/slice``, and the mean over slices with queries as ``key/macro``. A slice without queries is NaN. The state has
    the sums of every metric and slice. A query can be in several slices, or in none.

    Source:
        Welch, The generalization of Student's problem when several different population variances are involved,
        Biometrika 1947.

    Args:
        suite: a metric, names of metrics, a collection, or a :class:`Bootstrapped`, whose intervals the slices have
            then. Its measures are copied; their states stay empty.
        slices: the names of the slices, which ``update`` takes, or their number.
        kwargs: of :class:`torchmetrics.Metric`; and ``prefix``, ``postfix`` and ``keys``, as in
            :class:`torchrank.RankingCollection`.

    Raises:
        ValueError: names are repeated or reserved, or the suite has a metric without a mean over queries.

    Example:
        >>> import torch, torchrank as tr
        >>> sliced = tr.Sliced("mrr", ["new", "old"])
        >>> scores, labels = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.2, 0.4]]), torch.tensor([0, 1, 1])
        >>> sliced.update(scores, labels, slices=torch.tensor([0, 1, 1]))
        >>> {key: round(value.item(), 4) for key, value in sliced.compute().items()}
        {'mrr': 0.8333, 'mrr/new': 1.0, 'mrr/old': 0.75, 'mrr/macro': 0.875}
    """

    asks_for = "slices"

    def __init__(self, suite: Suite | Bootstrapped, slices: Sequence[str] | int, **kwargs: Any) -> None:
        self.names = names_of(slices)
        bootstrap = suite.bootstrap if isinstance(suite, Bootstrapped) else None
        suite = suite.suite if isinstance(suite, Bootstrapped) else suite
        definition = f"sliced({','.join(self.names)}) "
        super().__init__(suite, definition, 1 + len(self.names), bootstrap, **kwargs)

    @property
    def num_counters(self) -> int:
        return 2  # queries of slices that do not exist, and queries in more than one slice

    @bulk
    @with_options
    def update(
        self,
        preds: Scores,
        target: Target | None = None,
        *,
        slices: Array | Sequence[str | None] | None = None,
        query_ids: Ids = None,
        **options: Unpack[Options],
    ) -> None:
        """Add a batch of whole queries. Arguments of :meth:`torchrank.RankingMetric.update`, and ``slices``.

        ``slices`` is the slice of each query: its name, None = in none; or its position, int [query], negative = in
        none; or bool [query, slice], True for each slice that the query is in. It is a tensor, an array, a column
        or a list. With ``indexes`` it is in ascending order of index. None = the groups of a ranking by
        ``Ranking.from_table(group=...)``. ``query_ids`` is that of :meth:`Bootstrapped.update`, if the suite is a
        bootstrap.

        Raises:
            TypeError, ValueError: as :meth:`torchrank.RankingMetric.update`, or ``slices`` has another dtype or shape.
                A name or number of no slice is counted and raises in :meth:`compute`.
        """
        if slices is None and isinstance(preds, Ranking) and preds.groups is not None:
            slices = [None if group is None else str(group) for group in preds.groups]
        members, counters, unknown = members_of(slices, self.names)
        self._unknown = self._unknown if unknown is None else unknown
        batch = Batch(preds, target, **options)
        values, ids = self._values(batch), None
        queries, device = values.num_queries, values.values.device
        if len(members) != queries:
            raise ValueError(f"Expected slices of {queries} queries, as in preds, got {len(members)}")
        if self.bootstrap is not None or query_ids is not None:
            ids, _ = check_ids(query_ids, queries, device, "Sliced")
        self.add(counters, self._sums_of(values, [None, *members.to(device).unbind(1)], ids))
        self.notice_cut(batch.indexes)

    # ---- results -----------------------------------------------------------------------------------------------

    def results(self, sums: Tensor) -> dict[str, Tensor]:
        per_part = [self.results_of(part) for part in self.parts(sums)]
        result: dict[str, Tensor] = {}
        for key in self.metrics:
            ends = [end for end in ("", "/low", "/high") if f"{key}{end}" in per_part[0]]
            for name, values in zip(["", *(f"/{name}" for name in self.names)], per_part):
                result |= {f"{key}{name}{end}": values[f"{key}{end}"] for end in ends}
            result[f"{key}/{MACRO}"] = torch.stack([values[key] for values in per_part[1:]]).nanmean()
        return result

    def check(self, sums: Tensor) -> None:
        if (outside := int(sums[0])) > 0:
            raise ValueError(
                f"Expected slices among {', '.join(self.names)}, or positions from 0 to {len(self.names) - 1}, negative"
                f" for none, got others for {outside} {'query' if outside == 1 else 'queries'}{self.example}; give"
                " Sliced the names of all slices"
            )

    @eager
    def estimates(self, level: float | None = None, method: str = "auto") -> dict[str, dict[str, Estimate]]:
        """The estimates of each slice by key, over the queries of all workers; the name of all queries is ""."""
        parts, level = self.parts(self.of_all_workers()), self.level if level is None else level
        return {name: self.estimates_of(part, level, method) for name, part in zip(["", *self.names], parts)}

    @eager
    def summary(self, level: float | None = None, method: str | None = None) -> Table:
        """A table with a row for every metric and slice, and for the mean over slices, over all workers.

        The macro mean is the mean over slices with queries. Its standard error is sqrt(sum of squared errors) / slices;
        its interval uses the degrees of freedom of Welch and Satterthwaite. Both are NaN with ``method="anytime"``,
        and if a query is in several slices, because their values are not independent then. With a bootstrap both come
        from the replicates.
        """
        level, method = self.level if level is None else level, method or "auto"
        sums = self.of_all_workers()
        parts = self.parts(sums)
        estimates = [self.estimates_of(part, level, method) for part in parts]
        rows: dict[str, Estimate] = {}
        for key in self.metrics:
            total, *slices = (by_key[key] for by_key in estimates)
            rows |= {key: total} | {f"{key}/{name}": estimate for name, estimate in zip(self.names, slices)}
            macro = _macro(slices, level)
            if self.bootstrap is not None:
                known = [part for part in parts[1:] if not bool(self.values_of(part)[key].isnan())]
                if known:  # error and interval from the replicates in which each slice has a value
                    values = torch.stack([self.replicates_of(part)[key] for part in known]).mean(0)
                    how = self.bootstrap.method if method == "auto" else method
                    low, high, error = map(float, interval_of(values.new_tensor(macro.value), values, level, how))
                    macro = replace(macro, standard_error=error, interval=Interval(low, high))
            elif int(sums[1]) or method == "anytime":
                macro = replace(macro, standard_error=math.nan, interval=NO_INTERVAL)
            rows[f"{key}/{MACRO}"] = macro
        return estimate_table(rows, level, method=method)

    @eager
    def worst(self, min_queries: int = 2, level: float | None = None) -> Table:
        """The slice with the worst value of each metric, with an interval that holds for all slices at once.

        The worst of many slices looks worse than it is: of 20 equal slices, the smallest mean is an extreme. So the
        interval is Bonferroni's: each of S slices has the level 1 - (1 - level) / S.

        Args:
            min_queries: slices with fewer queries are left out.
            level: the probability that the intervals of all slices contain their expected values.

        Returns:
            A table with a row for every metric: slice, value, standard error, low, high, queries, empty.

        Source:
            Dunn, Multiple comparisons among means, JASA 1961.

        Raises:
            ValueError: no slice has so many queries.
        """
        level = self.level if level is None else level
        check(level, "auto")
        integer("min_queries", min_queries, least=1, or_none=False)
        parts = self.parts(self.of_all_workers())[1:]
        large = [n for n, part in enumerate(parts) if int(part[Sum.QUERIES]) >= min_queries]
        if not large:
            raise ValueError(f"Expected a slice with {min_queries} queries or more, got none; lower min_queries")
        estimates = [self.estimates_of(parts[n], 1 - (1 - level) / len(large), "auto") for n in large]
        rows, names = {}, []
        for key, metric in self.metrics.items():
            worst = max if metric.higher_is_better is False else min
            scored = [n for n, by_key in enumerate(estimates) if not math.isnan(by_key[key].value)]
            if scored:
                n = worst(scored, key=lambda n: estimates[n][key].value)
                rows[key] = estimates[n][key]
                names.append(self.names[large[n]])
        table = estimate_table(rows, level)
        columns = {"measure": table["measure"], "slice": names} | {n: table[n] for n in table.columns}
        note = f"low and high: {100 * level:g} % for all {len(large)} slices at once (Bonferroni)"
        return Table(columns, table.formats, [note])

    @eager
    def difference(self, one: str, other: str = REST, level: float | None = None) -> Table:
        """The difference of two slices, or of one slice and the queries outside of it.

        A slice is compared to the rest, not to all queries, because these contain the slice. Without a bootstrap,
        slices must have no query in common, because their values would not be independent.

        Args:
            one: the name of a slice.
            other: the name of another slice, or "rest".
            level: the probability that an interval contains the expected difference; None = 0.95, or the level of the
                bootstrap.

        Returns:
            A table with a row for every metric: a and b, the two slices; mean_a, mean_b, difference (a - b), standard
            error, low, high, p, queries_a and queries_b. Without a bootstrap, interval and p are those of Welch's test.

        Raises:
            ValueError: a slice has no such name, both are the same one, or queries are in several slices.
        """
        if one == other:
            raise ValueError(f"Expected two different slices, got {one!r} twice; compare with another one, or 'rest'")
        level, sums = self.level if level is None else level, self.of_all_workers()
        parts, overlap = self.parts(sums), int(sums[1])
        first = parts[self._at(one)]
        second = parts[0] - first if other == REST else parts[self._at(other)]
        if other == REST:
            for key, rest in self.by_metric(second).items():
                if not self.metrics[key].scored_of(rest) > 0:
                    rest.zero_()  # nothing is outside of the slice: a difference of sums is rounded
        if self.bootstrap is not None:
            return difference_table(self, first, second, level, self.bootstrap.method, (one, other))
        if overlap and other != REST:
            raise ValueError(
                f"Expected slices without common queries, got {overlap} queries in several of all slices; compare"
                " with 'rest', or give Sliced a Bootstrapped suite"
            )
        a, b = (self.estimates_of(part, level, "t") for part in (first, second))
        if other == REST:  # a spread of less than 1e-6 of the values is the rounding of the difference of sums
            for key, total in self.by_metric(parts[0]).items():
                weight = self.by_metric(second)[key][Sum.W]
                if b[key].standard_error * weight < 1e-6 * total[Sum.SQUARES].sqrt():
                    b[key] = replace(b[key], standard_error=0.0)
        rows = [_compared(key, a[key], b[key], (one, other), level) for key in self.metrics]
        note = f"difference: a - b; low and high: {100 * level:g} % confidence interval, Welch's t test"
        return Table.of_rows(rows, {"p": ".2g"}, [note])

    def _at(self, name: str) -> int:
        if name not in self.names:
            hint = did_you_mean(name, self.names) if isinstance(name, str) else ""
            raise ValueError(f"Expected the name of a slice, one of {', '.join(self.names)}, got {name!r}{hint}")
        return 1 + self.names.index(name)


def members_of(slices: Any, names: Sequence[str], what: str = "slices") -> tuple[Tensor, Tensor, str | None]:
    """Membership, bool [query, slice], and what is wrong with it.

    That is two counters, of queries in slices that do not exist and of queries in several slices; and the first unknown
    name, or None.
    """
    slices, size, unknown = tensor_of(slices), len(names), None
    keys = listed(slices)
    if isinstance(keys, list | tuple) and any(isinstance(key, str) or str(key) in MISSING for key in keys):
        numbers: dict[Any, int] = {name: number for number, name in enumerate(names)}
        numbers |= {number: number for number in range(size)}  # of positions beside missing ones
        missing = [not isinstance(key, str) and (str(key) in MISSING or str(key).startswith("-")) for key in keys]
        found = [-1 if none else numbers.get(key, numbers.get(str(key), size)) for key, none in zip(keys, missing)]
        unknown = next((str(key) for key, number in zip(keys, found) if number == size), None)
        slices = torch.tensor(found, device="cpu")
    if not isinstance(slices, Tensor) or slices.is_floating_point() or slices.is_complex():
        got, way_out = type(slices).__name__, f"pass torch.as_tensor({what})"
        if slices is None:
            got, way_out = "none", f"pass {what}= to every update"
        elif isinstance(slices, Tensor):
            got, way_out = str(slices.dtype), f"pass torch.as_tensor({what}).long()"
        elif isinstance(slices, str | int):
            got, way_out = f"{slices!r} for all queries", f"pass [{slices!r}] * len(target)"
        raise TypeError(
            f"Expected {what} to be names out of {tuple(names)}, or their positions, an int tensor [query], or a bool"
            f" tensor [query, {size}], got {got}; {way_out}"
        )
    if slices.dtype == torch.bool:
        if slices.dim() != 2 or slices.shape[1] != size:
            hint = f"; pass torch.as_tensor({what}).long() for two {what}, 0 and 1" if slices.dim() == 1 else ""
            raise ValueError(f"Expected bool {what} of shape [query, {size}], got {list(slices.shape)}{hint}")
        members, outside = slices, slices.new_zeros(len(slices))
    else:
        if slices.dim() != 1:
            raise ValueError(f"Expected int {what} of shape [query], one per query, got {list(slices.shape)}")
        members = slices.unsqueeze(1) == torch.arange(size, device=slices.device)
        outside = slices >= size
    dtype = widest_float(slices.device)
    return members, torch.stack([outside.sum(), (members.sum(1) > 1).sum()]).to(dtype), unknown


def names_of(slices: Any) -> list[str]:
    """The names of slices, checked."""
    if isinstance(slices, str | bytes) or not isinstance(slices, int | Sequence) or isinstance(slices, bool):
        raise ValueError(f"Expected slices to be a list of names or their number, got {slices!r}")
    names = [str(n) for n in range(slices)] if isinstance(slices, int) else [str(name) for name in slices]
    if not names or len(set(names)) < len(names) or "" in names:
        raise ValueError(f"Expected the names of slices, each once, got {slices!r}")
    if reserved := RESERVED & set(names):
        raise ValueError(
            f"Expected no slice with the name {min(reserved)!r}, which is the name of a result; choose another name"
        )
    return names


def _macro(slices: list[Estimate], level: float) -> Estimate:
    """The mean over slices with a value, which have the same weight."""
    known = [estimate for estimate in slices if not math.isnan(estimate.value)]
    count = len(known)
    value = sum(estimate.value for estimate in known) / count if count else math.nan
    variances = [(estimate.standard_error / count) ** 2 for estimate in known]
    queries, empty, scored = (sum(getattr(estimate, n) for estimate in known) for n in ("queries", "empty", "scored"))
    error, df = welch([(v, estimate.effective) for v, estimate in zip(variances, known)])
    interval, effective = Interval(*t_interval(value, error, df, level)), sum(estimate.effective for estimate in known)
    return Estimate(value, error, interval, queries, empty, scored, effective)


def _compared(key: str, a: Estimate, b: Estimate, names: tuple[str, str], level: float) -> dict[str, Any]:
    """A row of Welch's t test of the difference of two estimates."""
    difference = a.value - b.value
    error, df = welch([(part.standard_error**2, part.effective) for part in (a, b)])
    low, high = t_interval(difference, error, df, level)
    p = 2 * t_cdf(-abs(difference) / error, df) if error > 0 else math.nan
    row = {"measure": key, "a": names[0], "b": names[1], "mean_a": a.value, "mean_b": b.value}
    row |= {"difference": difference, "standard error": error, "low": low, "high": high, "p": p}
    return row | {"queries_a": a.queries, "queries_b": b.queries}
