"""Measures of one relevant candidate, looked up by its rank for all metrics at once.

With a label for each query, most measures depend on the rank of the label alone. Then their values at all ranks that
matter are computed once, and a batch reads them: two cutoffs or fifty cost the same few operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchrank.hardware.devices import cached_tensors, constant
from torchrank.ranking.intervals import lost_digits_of
from torchrank.ranking.ranking import Ranking
from torchrank.state.values import Status, Values, limits

# Largest cutoff of a metric that is looked up.
LONGEST = 1024

# Largest number of metrics times ranks of a table with metrics without a cutoff: six numbers each, so that it is kept.
ROOM = 2**17


class Table(NamedTuple):
    """Values of some metrics by the rank of the relevant candidate."""

    #: float64 [metric, column]: a column for no relevant candidate, one for each rank up to ``reach``, and one for all
    #: ranks behind it; then the same ranks again, of candidates that are not retrieved: the rank behind their list
    values: Tensor
    #: int8 [metric, column]
    status: Tensor
    #: float64 [2, metric, rank]: sums of the values over the ranks before a rank, and the digits lost in rounding them
    sums: Tensor

    @classmethod
    def of(cls, metrics: Sequence[Any], reach: int, like: Tensor) -> Table:
        """The table of metrics on the device of a tensor of ranks, and in its dtype.

        Raises:
            ValueError: a metric is NaN, or not 0 behind its cutoff, so ``of_one_rank`` of its class is wrong.
        """
        each = torch.arange(1, reach + 2, dtype=torch.float64, device="cpu")
        # No relevant candidate; one at each rank; and one that is not retrieved, beside a list of each length.
        lists = Ranking.from_ranks(
            torch.cat([each.new_full((1,), -math.inf), each, torch.full_like(each, math.inf)]),
            torch.cat([each.new_zeros(1), each, each - 1]),
        )
        values = Values.measured(metrics, [metric.per_query(lists) for metric in metrics])
        values_by_rank, states = values.values, values.status
        for metric, behind in zip(metrics, values_by_rank[:, reach + 1].tolist()):
            if metric.top_k is not None and behind != 0:
                raise ValueError(
                    f"Expected {metric.label} to be 0 for a relevant candidate behind top_k, got {behind:g}; let"
                    " of_one_rank return False"
                )
        for metric, unknown in zip(metrics, (values_by_rank.isnan() & (states == Status.SCORED)).any(1).tolist()):
            if unknown:
                raise ValueError(
                    f"Expected a number from {metric.label} for every rank, got NaN; let of_one_rank return False"
                )
        ranks = values_by_rank[:, 1 : reach + 1]
        sums = torch.nn.functional.pad(ranks.cumsum(1), (1, 0))
        # Nobody is at rank 0, and the sums begin before rank 1.
        sums = torch.nn.functional.pad(torch.stack([sums, lost_digits_of(ranks, sums)]), (1, 0))
        return cls._make(
            x.to(like.device, like.dtype if x.is_floating_point() else x.dtype, non_blocking=True)
            for x in (values_by_rank, states, sums)
        )


def looked_up(metrics: Sequence[Any], ranking: Ranking) -> list[tuple[list[int], Values]]:
    """The values that can be read from tables, for a ranking of labels: indexes of metrics, and their values."""
    by_ties: dict[str, list[int]] = {}
    for place, metric in enumerate(metrics):
        if metric.rank_decides:
            by_ties.setdefault(metric.ties, []).append(place)
    tables: list[tuple[list[int], Values]] = []
    for ties, places in by_ties.items():
        places, reach = _within_room(metrics, places, ranking)
        if not places:
            continue
        members = [metrics[place] for place in places]
        each = [
            metric.errors(ranking) if metric.validate_args else torch.zeros_like(ranking.errors) for metric in members
        ]
        values, status = _read(members, ranking.under(ties), reach)
        limit = limits(tuple(metric.empty_target_action for metric in members))
        none = (None,) * len(members)
        tables.append((places, Values(values, status, torch.stack(each), None, none, ranking.queries, limit=limit)))
    return tables


def _within_room(metrics: Sequence[Any], places: list[int], ranking: Ranking) -> tuple[list[int], int]:
    """The places of the metrics of one table, and its largest rank. A table has no room for the ranks of long lists."""
    cut = [place for place in places if metrics[place].top_k is not None]
    reach = max((metrics[place].top_k for place in cut), default=1)
    if len(cut) < len(places) and (longest := _longest(ranking)) is not None:
        ranks = max(reach, 1 << longest.bit_length())  # lists of similar length share a table
        if ranks * len(places) <= ROOM:
            return places, ranks
    return cut, reach


def _longest(ranking: Ranking) -> int | None:
    """A number that is not below the length of any list; None = unknown without waiting for a device."""
    # On an accelerator ``depth`` is the number of columns of scores, or 1 for lists of ids.
    if ranking.num_candidates.is_cpu:
        return int(ranking.num_candidates.max()) if ranking.num_queries else 0
    return ranking.depth if ranking.depth > 1 else None


def _read(metrics: Sequence[Any], ranking: Ranking, reach: int) -> tuple[Tensor, Tensor]:
    """Values and status of metrics of one tie policy: float64 and int8 [metric, query]."""
    first, tied = ranking.first, ranking.tied
    definitions = tuple((type(metric), metric._state) for metric in metrics)
    key = (definitions, reach, first.device, first.dtype)
    table = cached_tensors(key, lambda: Table.of(metrics, reach, first))
    # Column 0 is for no relevant candidate. Then come the ranks, and the ranks of candidates that are not retrieved.
    column = first.clamp_max(reach + 1).add(tied == 0, alpha=reach + 1).mul(ranking.valid)
    if ranking.untied:
        return _columns(table, column.long().flatten())
    # One clamp serves the columns too.
    columns = torch.stack([column, first, first + tied]).minimum(_last(reach, first.dtype, first.device)).long()
    values, status = _columns(table, columns[0].flatten())
    # The mean over the ranks of a tie group, as a difference of sums.
    before, up_to = table.sums.index_select(-1, columns[1:].flatten()).chunk(2, -1)
    (total, lost), tied = up_to - before, tied.flatten()
    return torch.where(tied > 1, (total + lost) / tied, values), status


def _columns(table: Table, column: Tensor) -> tuple[Tensor, Tensor]:
    return table.values.index_select(1, column), table.status.index_select(1, column)


@constant
def _last(reach: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The last column of the values, and of the sums at both ends of a tie group: [3, 1, 1]."""
    return torch.tensor([2, 1, 1], dtype=dtype, device=device).view(3, 1, 1) * (reach + 1)
