"""Scores that count as tied although they differ a little, because they were computed by different operations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchrank.names.arguments import number


@dataclass(frozen=True)
class Tolerance:
    """A score within ``atol + rtol * |positive|`` of a positive is tied with it."""

    atol: float = 0.0
    rtol: float = 0.0

    @classmethod
    def of(cls, atol: float, rtol: float) -> Tolerance:
        """A tolerance of checked numbers.

        Raises:
            ValueError: a number is negative, or not finite.
        """
        number("atol", atol, least=0)
        number("rtol", rtol, least=0)
        return cls(atol, rtol)

    def snapped(self, scores: Tensor, positives: Tensor) -> Tensor:
        """Scores [query, candidate], with the nearest positive in place of each score that is tied with it.

        ``positives`` are scores [query, positive], in any order; NaN and infinite ones are tied with no other score.
        """
        if not (self.atol or self.rtol) or not positives.shape[1]:
            return scores
        ordered = positives.sort(dim=-1).values.contiguous()
        behind = torch.searchsorted(ordered, scores.contiguous())
        best, gap = scores, torch.full_like(scores, float("inf"))
        for place in (behind - 1, behind):
            near = ordered.gather(-1, place.clamp(0, ordered.shape[1] - 1))
            distance = (scores - near).abs()
            closer = (distance <= self.atol + self.rtol * near.abs()) & (distance < gap) & near.isfinite()
            best, gap = torch.where(closer, near, best), torch.where(closer, distance, gap)
        return best
