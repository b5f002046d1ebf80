"""Kinds of bad values, counted on the device while ranking and reported when a metric is computed.

Reading a value back to decide whether to raise would stall an accelerator in every ``update``. So each kind of
problem has a counter; the counters travel with the state, are summed over workers, and raise on all of them alike.
"""

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


MEANING = {
    Problem.NAN_SCORES: "{n} queries with NaN among the scores or tie breaks of candidates; expected numbers or -inf",
    Problem.BAD_GRADES: "{n} relevance grades, or gains of them, that are NaN or infinite; expected finite numbers",
    Problem.OUT_OF_RANGE: (
        "{n} labels, ids or (query, item) indices outside the batch or the catalogue; expected query in 0 ... Q - 1,"
        " item in 0 ... D - 1"
    ),
    Problem.DUPLICATE_TARGETS: (
        "{n} targets given more than once for their query; expected each relevant item once"
        " (integer preds are read as ids: if yours are scores, pass preds.float())"
    ),
    Problem.DUPLICATE_IDS: "{n} ids that occur more than once in a ranked list; expected each id once",
    Problem.BAD_RANKS: (
        "{n} ranks below 1, beyond num_candidates or equal to another of their query;"
        " expected 1 for the best, 0 for padding"
    ),
    Problem.BAD_WEIGHTS: "{n} query weights that are negative or not finite; expected finite weights >= 0",
    Problem.EMPTY_QUERIES: "{n} queries with nothing to measure, which empty_target_action='error' forbids",
}


def no_errors(device: torch.device) -> Tensor:
    """Counters at zero, int64 [kind]."""
    return torch.zeros(len(Problem), dtype=torch.int64, device=device)


def count(kind: Problem, where: Tensor) -> Tensor:
    """Counters with the number of True in ``where`` (bool, any shape) under ``kind``; no host synchronisation."""
    counters = no_errors(where.device)
    counters[kind] = where.sum()
    return counters


def explain(counters: Tensor) -> str:
    """A sentence for every kind that was met; empty when there was none. Reads the counters back to the host."""
    found = counters.tolist()
    return "; ".join(MEANING[kind].format(n=int(found[kind])) for kind in Problem if found[kind])
