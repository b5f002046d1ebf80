"""A query as plain tuples, and every order of its candidates that ties leave open."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from functools import cache
from typing import NamedTuple


class Query(NamedTuple):
    """The candidates of one query, in no particular order."""

    #: (score, grade) of every candidate that was retrieved
    listed: tuple[tuple[float, float], ...] = ()
    #: grades of the judged candidates that were not
    missing: tuple[float, ...] = ()

    @property
    def grades(self):
        return [*(grade for _, grade in self.listed), *self.missing]


# ---- the orders that ties leave open -------------------------------------------------------------


def blocks(query):
    """Grades of the candidates that share a score, the best score first."""
    by_score = defaultdict(list)
    for score, grade in query.listed:
        by_score[score].append(grade)
    return [tuple(sorted(by_score[score])) for score in sorted(by_score, reverse=True)]


@cache
def arrangements(block):
    """Every order of a block, with the number of permutations that look like it."""
    return list(Counter(itertools.permutations(block)).items())


@cache
def orders(query, ties):
    """Every order of grades that a tie policy allows, with its weight."""
    if ties == "expected":
        choices = [arrangements(block) for block in blocks(query)]
    else:
        best_first = {"optimistic": True, "pessimistic": False}[ties]
        choices = [[(tuple(sorted(block, reverse=best_first)), 1)] for block in blocks(query)]
    found = []
    for choice in itertools.product(*choices):
        grades = tuple(itertools.chain.from_iterable(part for part, _ in choice))
        found.append((grades, math.prod(weight for _, weight in choice)))
    return found


def flags(query, level):
    """Relevance instead of grades; candidates that are missing and irrelevant are of no account."""
    listed = tuple((score, grade >= level) for score, grade in query.listed)
    return Query(listed, tuple(True for grade in query.missing if grade >= level))


def expectation(values):
    """The weighted mean of values; None if there is nothing to measure, in any order."""
    if any(value is None for value, _ in values):
        assert all(value is None for value, _ in values)
        return None
    return math.fsum(value * weight for value, weight in values) / sum(weight for _, weight in values)


def number_of_positives(query, level=1):
    return sum(grade >= level for grade in query.grades)
