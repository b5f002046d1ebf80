"""Kinds of bad values, which are counted on the device while ranking and raise in ``compute``.

Reading a value back to decide whether to raise would stall an accelerator in every ``update``. So each kind of
problem has a counter. The counters are part of the state and summed over workers, so that all workers raise alike.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import torch
from torch import Tensor

from torchrank.hardware.devices import constant


class Problem(IntEnum):
    """Kinds of bad values; each is the index of its counter."""

    NAN_SCORES = 0
    BAD_GRADES = 1
    OUT_OF_RANGE = 2
    DUPLICATE_TARGETS = 3
    DUPLICATE_IDS = 4
    BAD_RANKS = 5
    BAD_WEIGHTS = 6
    EMPTY_QUERIES = 7
    UNEQUAL_SCORES = 8


#: for messages: the problem in the singular, the problem in the plural, the expected values
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
        "label, id or (query, item) index out of range",
        "labels, ids or (query, item) indices out of range",
        "0 to Q - 1 for Q queries, and 0 to D - 1 for D items",
    ),
    Problem.DUPLICATE_TARGETS: (
        "target given more than once for its query",
        "targets given more than once for their query",
        "each relevant item once (if the target has grades, not ids, pass preds.float() and torch.as_tensor(target), or"
        " target.nonzero(as_tuple=True))",
    ),
    Problem.DUPLICATE_IDS: (
        "id that occurs more than once in a ranked list",
        "ids that occur more than once in a ranked list",
        "each id once: integer preds are read as ids, so pass preds.float() if they are scores; of ids repeats='first'"
        " leaves out later copies, and repeats='hold' counts them as not relevant",
    ),
    Problem.BAD_RANKS: (
        "rank below 1, beyond num_candidates, NaN or equal to another of its query",
        "ranks below 1, beyond num_candidates, NaN or equal to another of their query",
        "1 for the best, infinite for not retrieved, negative for padding, or 0 in ranks [query, entry] (if ranks count"
        " from 0, pass ranks + 1)",
    ),
    Problem.BAD_WEIGHTS: (
        "query weight that is negative or not finite, or such a cost of a candidate",
        "query weights that are negative or not finite, or such costs of candidates",
        "finite numbers >= 0",
    ),
    Problem.EMPTY_QUERIES: (
        "query with nothing to measure",
        "queries with nothing to measure",
        "none under empty_target_action='error'",
    ),
    Problem.UNEQUAL_SCORES: (
        "relevant item whose score was computed twice with different results",
        "relevant items whose scores were computed twice with different results",
        "the same score (this device computes it in two ways: pass queries.float(), items.float(), no precision, and"
        " chunk_size=2**31)",
    ),
}


@constant
def no_errors(device: torch.device) -> Tensor:
    """Counters that are all zero, int64 [kind]."""
    return torch.zeros(len(Problem), dtype=torch.int64, device=device)


def count(kind: Problem, where: Tensor, ignored: Tensor | None = None, others: Tensor | None = None) -> Tensor:
    """Counters that hold the number of True in ``where`` under one kind, without host synchronisation.

    Args:
        kind: the kind of problem.
        where: bool [...]; together with ``ignored`` bool [query] or [query, column].
        ignored: bool [query], the queries that do not count.
        others: counters to be added. They are returned as they are if nothing is True, on the CPU.
    """
    if ignored is not None:
        where = where > (ignored if where.dim() == 1 else ignored.unsqueeze(-1))  # True and not ignored
    others = no_errors(where.device) if others is None else others
    if where.is_cpu and not where.any():
        return others
    return torch.addcmul(others, _one(kind, where.device), where.sum())


@constant
def _one(kind: Problem, device: torch.device) -> Tensor:
    """Counters that hold 1 under one kind."""
    return torch.tensor([int(one is kind) for one in Problem], dtype=torch.int64, device=device)


def explain(
    counters: Tensor,
    first: Callable[[Problem], int | None] = lambda kind: None,
    outside: Callable[[int], str] = lambda number: "",
) -> str:
    """Message with a clause for every kind that was counted; empty if there is none. Reads the counters on the host.

    Args:
        counters: int64 [kind].
        first: returns the number of the first query with a problem of a kind, or None if unknown.
        outside: returns a clause on the first index that is out of range, of a number of them, or "" if unknown.
    """
    found, clauses = [int(n) for n in counters.tolist()], []
    if found[Problem.DUPLICATE_IDS]:
        found[Problem.DUPLICATE_TARGETS] = 0  # both are integer scores with grades, and one message is enough
    for kind in (kind for kind in Problem if found[kind]):
        one, several, expected = MEANING[kind]
        if kind is Problem.OUT_OF_RANGE and (named := outside(found[kind])):
            clauses.append(named)
            continue
        query = first(kind)
        where = "" if query is None else f", first in query {query}"
        clauses.append(f"{found[kind]} {one if found[kind] == 1 else several}{where}; expected {expected}")
    return "; ".join(clauses)
