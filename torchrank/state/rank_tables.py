"""Measures of one relevant candidate, looked up by its rank for all metrics at once.

With a label for each query, most measures cut at k depend on the rank of the label alone. Then k + 3 values of each
metric are computed once, and a batch reads them: two cutoffs or fifty cost the same few operations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrank.hardware.constants import kept, scalar
from torchrank.ranking.ranking import Ranking
from torchrank.state.measurements import Measured

# Largest cutoff of a table.
LONGEST = 1024

# Columns of a table before the first rank: no relevant candidate, and one that was not retrieved.
NONE, MISSING, BEFORE = 0, 1, 2


class Table(NamedTuple):
    """Measurements of some metrics by the rank of the relevant candidate."""

    #: float64 [metric, column]: a column for no relevant candidate, one for a relevant candidate that was not
    #: retrieved, one for each rank up to ``reach``, and one for all ranks behind it
    values: Tensor
    #: int8 [metric, column]
    status: Tensor
    #: float64 [metric, number]: sums of the values over so many first ranks
    sums: Tensor

    @classmethod
    def of(cls, metrics: Sequence[Any], reach: int, like: Tensor) -> Table:
        """The table of metrics on the device of a tensor of ranks, and in its dtype.

        Raises:
            ValueError: a metric is not 0 behind its cutoff, so ``of_one_rank`` of its class is wrong.
        """
        ranks = torch.tensor([0.0, math.inf, *range(1, reach + 2)], dtype=torch.float64, device="cpu")
        lists = Ranking.from_ranks(ranks, torch.full_like(ranks, reach + 2))
        values, _, status, *_ = zip(*(metric.measured(lists) for metric in metrics))
        found = torch.stack(values)
        for metric, behind in zip(metrics, found[:, -1].tolist()):
            if behind != 0:
                raise ValueError(
                    f"Expected {metric.label} to be 0 for a relevant candidate behind top_k, got {behind:g}; let"
                    " of_one_rank return False"
                )
        sums = torch.nn.functional.pad(found[:, BEFORE:-1].cumsum(-1), (1, 0))
        return cls._make(
            x.to(like.device, like.dtype if x.is_floating_point() else x.dtype, non_blocking=True)
            for x in (found, torch.stack(status), sums)
        )


def looked_up(metrics: Sequence[Any], ranking: Ranking) -> Mapping[int, Measured]:
    """The measurements that can be read from a table, by the places of their metrics."""
    if not ranking.of_labels:
        return {}
    by_ties: dict[str, list[int]] = {}
    for place, metric in enumerate(metrics):
        if metric.rank_decides:
            by_ties.setdefault(metric.ties, []).append(place)
    found: dict[int, Measured] = {}
    for ties, places in by_ties.items():
        own = [metrics[place] for place in places]
        values, status = _read(own, ranking.under(ties))
        for place, metric, value, state in zip(places, own, values.unbind(), status.unbind()):
            errors = metric.errors(ranking) if metric.validate_args else torch.zeros_like(ranking.errors)
            found[place] = Measured(value, ranking.ones, state, errors)
    return found


def _read(metrics: Sequence[Any], ranking: Ranking) -> tuple[Tensor, Tensor]:
    """Values and status of metrics of one tie policy: float64 and int8 [metric, query]."""
    reach = max(metric.required().reach for metric in metrics)
    first, tied, exists = (x.squeeze(-1) for x in (ranking.first, ranking.tied, ranking.valid))
    definitions = tuple((type(metric), metric._state) for metric in metrics)
    key = (definitions, first.device, first.dtype)
    table = kept(key, lambda: Table.of(metrics, reach, first))
    missing, none = (scalar(column, first.dtype, first.device) for column in (MISSING, NONE))
    column = torch.where(tied > 0, first.clamp_max(reach + 1) + (BEFORE - 1), missing)
    column = torch.where(exists, column, none).long()
    values, status = table.values.index_select(1, column), table.status.index_select(1, column)
    if ranking.untied:
        return values, status
    # The mean over the ranks of a tie group, as a difference of sums.
    before = first - 1
    ends = torch.cat([before, before + tied]).clamp(0, reach).long()
    low, high = table.sums.index_select(1, ends).chunk(2, -1)
    return torch.where(tied > 1, (high - low) / tied, values), status
