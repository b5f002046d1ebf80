"""Kinds of bad values, counted on the device while ranking and reported when a metric is computed.

Reading a value back to decide whether to raise would stall an accelerator in every ``update``. So each kind of
problem has a counter; the counters travel with the state, are summed over workers, and raise on all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import torch
from torch import Tensor


class Problem(IntEnum):
    """Index of each counter."""

    NAN_SCORES = 0
    BAD_GRADES = 1
    OUT_OF_RANGE = 2
    DUPLICATE_TARGETS = 3
    DUPLICATE_IDS = 4
    BAD_RANKS = 5
    BAD_WEIGHTS = 6
    EMPTY_QUERIES = 7


#: What was met once, what was met several times, and what was expected.
MEANING = {
    Problem.NAN_SCORES: (
        "query with NaN among the scores or tie breaks of candidates",
        "queries with NaN among the scores or tie breaks of candidates",
        "numbers or -inf",
    ),
    Problem.BAD_GRADES: (
        "relevance grade, or gain of it, that is NaN or infinite",
        "relevance grades, or gains of them, that are NaN or infinite",
        "finite numbers",
    ),
    Problem.OUT_OF_RANGE: (
        "label, id or (query, item) index outside the batch or the catalogue",
        "labels, ids or (query, item) indices outside the batch or the catalogue",
        "query in 0 ... Q - 1, item in 0 ... D - 1",
    ),
    Problem.DUPLICATE_TARGETS: (
        "target given more than once for its query",
        "targets given more than once for their query",
        "each relevant item once (if these are grades of integer scores, pass preds.float())",
    ),
    Problem.DUPLICATE_IDS: (
        "id that occurs more than once in a ranked list",
        "ids that occur more than once in a ranked list",
        "each id once (integer preds are read as ids: if yours are scores, pass preds.float())",
    ),
    Problem.BAD_RANKS: (
        "rank below 1, beyond num_candidates or equal to another of its query",
        "ranks below 1, beyond num_candidates or equal to another of their query",
        "1 for the best, 0 for padding",
    ),
    Problem.BAD_WEIGHTS: (
        "query weight that is negative or not finite",
        "query weights that are negative or not finite",
        "finite weights >= 0",
    ),
    Problem.EMPTY_QUERIES: (
        "query with nothing to measure",
        "queries with nothing to measure",
        "none, as empty_target_action='error' says",
    ),
}


def no_errors(device: torch.device) -> Tensor:
    """Counters at zero, int64 [kind]."""
    return torch.zeros(len(Problem), dtype=torch.int64, device=device)


def count(kind: Problem, where: Tensor, ignored: Tensor | None = None) -> Tensor:
    """Counters with the number of True in ``where`` (bool [...]) under ``kind``; no host synchronisation.

    ``ignored`` bool [query]: the queries, first dimension of ``where``, that do not count.
    """
    counters = no_errors(where.device)
    if ignored is not None:
        where = where & ~(ignored if where.dim() == 1 else ignored.unsqueeze(-1))
    counters[kind] = where.sum()
    return counters


def explain(counters: Tensor, first: Callable[[Problem], int | None] = lambda kind: None) -> str:
    """A sentence for every kind that was met; empty when there was none. Reads the counters back to the host.

    ``first``: the number of the first query with a problem, None = not known.
    """
    found, said = [int(n) for n in counters.tolist()], []
    for kind in (kind for kind in Problem if found[kind]):
        one, several, expected = MEANING[kind]
        query = first(kind)
        where = "" if query is None else f", first in query {query}"
        said.append(f"{found[kind]} {one if found[kind] == 1 else several}{where}; expected {expected}")
    return "; ".join(said)
