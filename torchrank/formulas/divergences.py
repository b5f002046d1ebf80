"""Differences of two distributions, over the last dimension: float64 [..., group] to float64 [...]."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def kullback_leibler(p: Tensor, q: Tensor) -> Tensor:
    """KL divergence in nats: the sum of p ln(p / q); infinite if q is 0 where p is not."""
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1).clamp_min(0)


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """JS divergence in nats: the mean KL divergence of p and q from their mean; at most ln 2."""
    middle = (p + q) / 2
    return ((kullback_leibler(p, middle) + kullback_leibler(q, middle)) / 2).clamp_max(math.log(2))


def hellinger(p: Tensor, q: Tensor) -> Tensor:
    """Hellinger distance, from 0 to 1."""
    return ((p.sqrt() - q.sqrt()).square().sum(-1) / 2).clamp_max(1).sqrt()


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Half the sum of absolute differences, from 0 to 1."""
    return ((p - q).abs().sum(-1) / 2).clamp_max(1)


#: differences by name; logarithms are natural
DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl": kullback_leibler,
    "js": jensen_shannon,
    "tv": total_variation,
    "hellinger": hellinger,
}

#: names of differences that are made of logarithms
LOGARITHMIC = ("kl", "js")


def difference(name: str, p: Tensor, q: Tensor, log_base: float) -> Tensor:
    """The difference of a name; its logarithms, if it has any, are to the base ``log_base``."""
    divergence = DISTANCES[name](p, q)
    return divergence / math.log(log_base) if name in LOGARITHMIC else divergence
