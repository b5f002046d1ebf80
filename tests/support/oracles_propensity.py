"""Measures of inverse propensities from their definitions: gains are grades divided by propensities."""

from tests.support.oracles import discounted, discounts, normalised_gain, oracle


def doubled(grade):
    return 2 * grade


def at_most_one(grade):
    return (grade <= 1) * grade + (grade > 1) * 1.0


def sixth_root(rank):
    return rank ** (-1 / 6)


@oracle(
    "psp",
    of="grades",
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
def psp(grades, missing, top_k=None, gain="linear"):
    return normalised_gain(grades, missing, top_k, gain, "none")


oracle(
    "psndcg",
    of="grades",
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
)(normalised_gain)


@oracle(
    "ips",
    of="grades",
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
def ips(grades, missing, top_k=None, gain="linear", discount="none", self_normalized=False):
    whole = discounted([*grades, *missing], None, gain, "none")
    value = discounted(grades, top_k, gain, discount)
    return value / whole if self_normalized else value
