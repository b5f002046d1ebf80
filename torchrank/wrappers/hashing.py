"""Random numbers that depend on a seed and on the id of a query only, so that every worker draws the same ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# Constants of splitmix64 as signed integers, because torch multiplies int64 and wraps around.
STEP = 0x9E3779B97F4A7C15 - 2**64
FIRST = 0xBF58476D1CE4E5B9 - 2**64
SECOND = 0x94D049BB133111EB - 2**64

#: A hash of 64 bits gives the counts of this many replicates, 16 bits each.
COUNTS = 4

# Below the k-th threshold is the share of 16-bit numbers whose Poisson(1) count is less than k.
POISSON = [sum(math.exp(-1) / math.factorial(j) for j in range(k)) for k in range(1, 12)]
THRESHOLDS = [round(share * 2**16) - 2**15 for share in POISSON if round(share * 2**16) < 2**16]


def hash_ids(ids: Iterable[str | bytes | int], device: torch.device | str | None = None) -> Tensor:
    """A number for every id, equal in all processes and on all machines: int64 [id].

    Python's own ``hash`` of a string differs from process to process. Two of a million ids have the same number with a
    probability of 3e-8.

    Args:
        ids: text, bytes or integers. An integer has the number of its decimal text.
        device: the device of the result; None = CPU.

    Source:
        Aumasson, Neves, Wilcox-O'Hearn and Winnerlein, BLAKE2: simpler, smaller, fast as MD5, ACNS 2013.

    Raises:
        TypeError: an id is neither text, bytes nor an integer.

    Example:
        >>> import torchrank as tr
        >>> tr.hash_ids(["user-7", "user-8"])
        tensor([-7390381631024868802,  8089998561415321863])
    """
    if isinstance(ids, str | bytes):
        raise TypeError(f"Expected ids to be a list of texts, got one text, {ids!r}; pass [{ids!r}]")
    return torch.tensor([_number(key) for key in ids], dtype=torch.int64, device=device or "cpu")


def _number(key: object) -> int:
    if isinstance(key, bool) or not isinstance(key, str | bytes | int):
        raise TypeError(f"Expected ids to be text, bytes or integers, got {key!r}; convert them with str")
    # Ids of files may have bytes that are not UTF-8, which are surrogates in a text.
    data = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


def splitmix64(x: Tensor) -> Tensor:
    """The output of the generator splitmix64 after state ``x``: int64, 64 well mixed bits.

    Source:
        Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
    """
    return _mixed(x + STEP)


def _mixed(x: Tensor) -> Tensor:
    """Mix the bits of int64 numbers, in place."""
    for bits, factor in ((30, FIRST), (27, SECOND)):
        x ^= _shifted(x, bits)
        x *= factor
    x ^= _shifted(x, 31)
    return x


def _shifted(x: Tensor, bits: int) -> Tensor:
    """``x`` shifted to the right as an unsigned number: `>>` copies the sign."""
    return (x >> bits).bitwise_and_(2 ** (64 - bits) - 1)


def poisson_counts(ids: Tensor, seed: int, replicates: int) -> Tensor:
    """Counts of each query in each replicate: int8 [query, replicate], independent, Poisson with mean 1.

    A count depends on the seed, the id of the query and the number of the replicate only.

    Args:
        ids: int64 [query].
        seed: any integer of 64 bits.
        replicates: number of replicates.
    """
    hashes = -(-replicates // COUNTS)
    key = splitmix64(torch.full((1,), seed, dtype=torch.int64, device=ids.device))
    start = splitmix64(ids ^ key)
    steps = torch.arange(1, hashes + 1, dtype=torch.int64, device=ids.device) * STEP
    bits = _mixed(start.unsqueeze(1) + steps).view(torch.int16)[:, :replicates]
    counts = torch.zeros(bits.shape, dtype=torch.int8, device=ids.device)
    # numpy compares short integers several times as fast as torch on the CPU.
    shares: Any
    total: Any
    shares, total = (bits.numpy(), counts.numpy()) if bits.is_cpu else (bits, counts)
    for threshold in THRESHOLDS:
        total += (shares >= threshold).view(total.dtype)
    return counts
