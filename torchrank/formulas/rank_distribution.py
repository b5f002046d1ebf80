"""Estimates for ranks in a whole catalogue, from ranks among a random draw of negatives.

Let P[a, x] be the probability that x of m sampled negatives are above a relevant candidate if a of all N negatives are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from torchrank.hardware.threads import in_batch
from torchrank.layouts.canonical import BLOCK
from torchrank.ranking.quantities import chances_above

#: Ranks behind rank r are in one bucket if they differ by less than this share of r.
WIDTH = 0.01

#: Further iterations would follow the noise of the histogram.
ITERATIONS = 1000


def chances(num_negatives: int, num_items: int, replacement: bool) -> Iterator[tuple[slice, Tensor]]:
    """P in chunks of rows: the rows, and float64 [row, x]."""
    step = max(1, BLOCK // (num_negatives + 1))
    for start in range(0, num_items + 1, step):
        stop = min(start + step, num_items + 1)
        above = torch.arange(start, stop, dtype=torch.float64, device="cpu")
        yield slice(start, stop), chances_above(above, torch.full_like(above, num_items), num_negatives, replacement)


def buckets(num_items: int) -> Tensor:
    """Numbers of ranks in consecutive buckets, which add up to N + 1: int64 [bucket]. Small ranks are alone."""
    sizes, total = [], 0
    while total <= num_items:
        sizes.append(min(max(1, int(WIDTH * total)), num_items + 1 - total))
        total += sizes[-1]
    return torch.tensor(sizes, dtype=torch.int64, device="cpu")


@functools.lru_cache(maxsize=1)
def _bucket_chances(num_negatives: int, num_items: int, replacement: bool) -> Tensor:
    """Means of P over the ranks of each bucket: float64 [bucket, x]."""
    sizes = buckets(num_items)
    bucket = torch.repeat_interleave(sizes)
    table = torch.zeros((len(sizes), num_negatives + 1), dtype=torch.float64, device="cpu")
    for rows, part in chances(num_negatives, num_items, replacement):
        table.index_add_(0, bucket[rows], part)
    return table / sizes.unsqueeze(-1)


def likeliest(share: Tensor, num_items: int, replacement: bool) -> Tensor:
    r"""Estimate the distribution of the number a of negatives above, float64 [N + 1], by expectation maximisation.

    It maximises the likelihood of the sampled numbers x, :math:`\sum_x h_x \log \sum_a q_a P[a, x]`. The estimate is
    constant within buckets of ranks, and begins uniform.

    Args:
        share: h, float64 [m + 1]: the share of queries with each x.
        num_items: N.
        replacement: whether negatives were drawn with replacement.
    """
    table, sizes = _bucket_chances(len(share) - 1, num_items, replacement), buckets(num_items)

    def maximised() -> Tensor:
        q = sizes / sizes.sum(dtype=torch.float64)
        for _ in range(ITERATIONS):
            mixed = (q @ table).clamp_min(1e-300)
            q = q * (table @ (share / mixed))
        return q

    q = in_batch(table.device, ITERATIONS * table.numel(), maximised)
    return torch.repeat_interleave(q / sizes, sizes)


def bias_variance(values: Tensor, num_negatives: int, replacement: bool, gamma: float, prior: Tensor) -> Tensor:
    r"""The values of each x that best estimate values of each a, by the sum of squared bias and g times the variance.

    For f[a] and a prior p the estimator e[x] minimises

    :math:`\sum_a p_a \left((E[e | a] - f_a)^2 + g \, Var[e | a]\right)`, so that
    :math:`e = \left((1 - g) P^T D P + g \, diag(P^T p)\right)^{-1} P^T D f` with :math:`D = diag(p)`.

    Args:
        values: f, float64 [N + 1].
        num_negatives: m.
        replacement: whether negatives were drawn with replacement.
        gamma: g.
        prior: p, float64 [N + 1], which sums to 1.

    Returns:
        float64 [m + 1].
    """
    size = num_negatives + 1
    square, weight, right = (values.new_zeros(shape) for shape in ((size, size), size, size))
    for rows, part in chances(num_negatives, len(values) - 1, replacement):
        weighted = part * prior[rows].unsqueeze(-1)
        square += weighted.mT @ part
        weight += weighted.sum(0)
        right += values[rows] @ weighted
    # Scaled so that the diagonal of the variance is g, because numbers x that the prior makes rare have tiny weights.
    scale = weight.clamp_min(1e-300).rsqrt()
    matrix = (1 - gamma) * scale.unsqueeze(-1) * square * scale
    matrix.diagonal().add_(gamma)
    return torch.linalg.solve(matrix, scale * right) * scale
