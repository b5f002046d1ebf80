"""How good the best of several checkpoints is, judged by the queries that chose it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from torchrank.statistics.compare import of_plain_means
from torchrank.statistics.matching import match
from torchrank.statistics.mean_intervals import check_share
from torchrank.statistics.paired_tests import Drawing
from torchrank.statistics.table import Table

Array = np.ndarray


def best_of(checkpoints: Mapping[Any, Any], level: float = 0.95, replicates: int = 1000, seed: int = 0) -> Table:
    r"""The value of the best checkpoint without the luck of having been chosen, for each measure.

    The best of E checkpoints on a set of queries looks better than it is on other queries, because the luck of these
    queries helped to choose it. A paired bootstrap draws queries, the same for all checkpoints, and chooses again: the
    bias is the mean of how far the value of the chosen one is above its expectation. Values of the checkpoints differ
    by this luck, too, so their expectations are nearer to each other than their values :math:`m_e`. With v the mean
    variance of the luck and s the variance of the values over checkpoints, the bootstrap takes expectations of variance
    s - v:

    .. math:: \bar m + \sqrt{\max(0, 1 - v / s)} \; (m_e - \bar m).

    Args:
        checkpoints: the values of each checkpoint by its epoch or name, as a :class:`torchrank.QueryTable` or another
            form that :func:`torchrank.compare` takes. Queries that one of them lacks are left out.
        level: share of such intervals that contain the expected value of the chosen checkpoint.
        replicates: number of replicates.
        seed: their seed.

    Returns:
        A :class:`torchrank.Table` with a row for each measure: ``best``, the chosen checkpoint; ``value``, its mean;
        ``bias``; ``corrected`` = value - bias; ``low`` and ``high``, the interval around the corrected value;
        ``queries``, the number of queries that all checkpoints have scored. Fewer than two queries have no bias.

    Raises:
        ValueError: there are fewer than two checkpoints, they have different measures, or an argument is out of range.

    Example:
        >>> import numpy as np, torchrank as tr
        >>> generator = np.random.default_rng(0)
        >>> query = generator.uniform(0.2, 0.8, 100)  # the expected value of each query is the same at every epoch
        >>> values = query + generator.uniform(-0.2, 0.2, (20, 100))
        >>> epochs = {epoch: tr.QueryTable(range(100), {"mrr": values[epoch]}) for epoch in range(20)}
        >>> tr.best_of(epochs)
        measure  best   value    bias  corrected     low    high  queries
        mrr         1  0.5456  0.0207     0.5249  0.4851  0.5629      100
        value: mean of the best of 20 checkpoints, on the queries that chose it
        bias: the luck of this choice, by 1000 bootstrap replicates (seed 0)
        corrected: value - bias; low and high: its 95 % interval
    """
    check_share("level", level)
    if len(checkpoints) < 2:
        raise ValueError(f"Expected two or more checkpoints, got {len(checkpoints)}; a single one was not chosen")
    drawing = Drawing(replicates, seed)
    matched = match({str(name): table for name, table in checkpoints.items()}, missing="drop")
    names, rows = list(checkpoints), []
    for measure, columns in matched.values.items():
        sign = 1 if matched.higher_is_better.get(measure, True) else -1
        values = sign * np.stack([column.mean(axis=1) for column in columns.values()])
        values = values[:, ~np.isnan(values).any(axis=0)]
        means = values.mean(axis=1) if values.size else np.full(len(values), np.nan)
        best = int(means.argmax())
        luck = _luck(values, means, drawing) if values.shape[1] > 1 else np.full(1, np.nan)
        bias, ends = luck.mean(), np.quantile(luck, [(1 + level) / 2, (1 - level) / 2])
        low, high = sorted(sign * (means[best] - ends))
        row = {"best": names[best], "value": sign * means[best], "bias": sign * bias}
        row |= {"corrected": row["value"] - row["bias"], "low": low, "high": high, "queries": values.shape[1]}
        rows.append({"measure": measure, **row})
    notes = [
        f"value: mean of the best of {len(names)} checkpoints, on the queries that chose it",
        f"bias: the luck of this choice, by {replicates} bootstrap replicates (seed {seed})",
        f"corrected: value - bias; low and high: its {100 * level:g} % interval",
        *(f"Warning: {warning}" for warning in of_plain_means(checkpoints.values())),
    ]
    return Table.of_rows(rows, notes=notes)


def _luck(values: Array, means: Array, drawing: Drawing) -> Array:
    """How far the chosen checkpoint of each replicate is above its expectation, from values [checkpoint, query]."""
    n = values.shape[1]
    parts = []
    for generator, count in drawing.chunks(n):
        drawn = generator.integers(n, size=(count, n)) + n * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * n).reshape(count, n)
        parts.append(times @ values.T / n - means)
    luck = np.concatenate(parts)  # [replicate, checkpoint]
    of_luck = luck.var(axis=1, ddof=1).mean()
    spread = means.var(ddof=1)
    shrunk = math.sqrt(max(0.0, 1 - of_luck / spread) if spread > 0 else 0.0) * means
    chosen = (shrunk + luck).argmax(axis=1)  # a common mean would choose the same
    return luck[np.arange(len(luck)), chosen]
