"""Measures of inverse propensities from their definitions: sums over the ranks of every order that ties leave open."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.support.oracles import discounts, oracle
from tests.support.tie_orders import Query, expectation, orders


def doubled(grade: Any) -> Any:
    return 2 * grade


def at_most_one(grade: Any) -> Any:
    return (grade <= 1) * grade + (grade > 1) * 1.0


def sixth_root(rank: Any) -> Any:
    return rank ** (-1 / 6)


def worth(grade: float, gain: str | Callable = "linear") -> float:
    if grade <= 0:
        return 0.0
    if callable(gain):
        return gain(grade)
    return 2.0**grade - 1 if gain == "exponential" else float(grade)


def discount_at(rank: int, discount: str | Callable, log_base: float = 2) -> float:
    if callable(discount):
        return discount(rank)
    return {"none": 1.0, "log2": 1 / math.log(1 + rank, log_base), "reciprocal": 1 / rank}[discount]


def total(grades: Any, top_k: int | None, gain: Any, discount: Any, log_base: float = 2) -> float:
    places = list(enumerate(grades, 1))[:top_k]
    return math.fsum(worth(grade, gain) * discount_at(rank, discount, log_base) for rank, grade in places)


def over_best(
    query: Query, ties: str, top_k: int | None, gain: Any, discount: Any, log_base: float = 2
) -> float | None:
    all_candidates = [grade for _, grade in query.listed] + list(query.missing)
    by_gain = sorted(all_candidates, key=lambda grade: worth(grade, gain), reverse=True)
    best = total(by_gain, top_k, gain, discount, log_base)
    if best == 0:
        return None
    found = [(total(o, top_k, gain, discount, log_base), weight) for o, weight in orders(query, ties)]
    return expectation(found) / best


@oracle(
    "psp",
    few=[{"top_k": 2}],
    many=[
        {},
        {"top_k": 1, "average": "pooled"},
        {"top_k": 3, "gain": doubled},
        {"top_k": 10, "empty_target_action": "skip"},
    ],
    baseline=lambda n, r, k: k * r / n / min(r, k),
    others={"average": ["pooled"]},
)
def psp(query: Query, *, ties: str, top_k: int | None = None, gain: Any = "linear") -> float | None:
    return over_best(query, ties, top_k, gain, "none")


@oracle(
    "psndcg",
    few=[{"top_k": 3}],
    many=[
        {},
        {"top_k": 2, "average": "pooled"},
        {"top_k": 2, "average": "scaled"},
        {"gain": at_most_one, "discount": "reciprocal"},
        {"top_k": 4, "discount": sixth_root},
        {"log_base": 3, "top_k": 4},
        {"empty_target_action": "skip"},
    ],
    baseline=lambda n, r, k: r / n * discounts(k) / discounts(min(r, k)),
    others={"average": ["pooled", "scaled"]},
)
def psndcg(
    query: Query,
    *,
    ties: str,
    top_k: int | None = None,
    gain: Any = "linear",
    discount: Any = "log2",
    log_base: float = 2,
) -> float | None:
    return over_best(query, ties, top_k, gain, discount, log_base)


@oracle(
    "ips",
    few=[{"top_k": 2}, {"discount": "log2", "self_normalized": "query"}],
    many=[
        {},
        {"top_k": 1, "self_normalized": True},
        {"top_k": 3, "discount": "reciprocal", "gain": at_most_one},
        {"top_k": 4, "discount": sixth_root, "self_normalized": True},
        {"empty_target_action": "skip"},
    ],
    baseline=lambda n, r, k: k * r / n,
    others={"discount": ["log2", "reciprocal"], "self_normalized": [True, "query"]},
)
def ips(
    query: Query,
    *,
    ties: str,
    top_k: int | None = None,
    gain: Any = "linear",
    discount: Any = "none",
    self_normalized: Any = False,
) -> float | None:
    whole = math.fsum(worth(grade, gain) for grade in [*(grade for _, grade in query.listed), *query.missing])
    if whole == 0:
        return None
    value = expectation([(total(o, top_k, gain, discount), weight) for o, weight in orders(query, ties)])
    return value / whole if self_normalized else value
