"""Subtopics of a query, which stand for its intents, and their probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from torchrank.layouts.checks import check_tensor
from torchrank.ranking.derived import cached
from torchrank.ranking.entries import PER_ENTRY
from torchrank.ranking.gained import gains_of
from torchrank.ranking.parts import Parted
from torchrank.ranking.query_names import Named


@dataclass(frozen=True, eq=False)
class Intended(Parted, Named):
    """A ranking whose subtopics can have probabilities."""

    def with_intents(self, probabilities: Tensor) -> Self:
        """This ranking with a probability of each subtopic, which intent-aware measures have as its weight.

        Without it all subtopics with a relevant candidate are equally likely. Only their shares count, so the
        probabilities of a query need not sum to 1. Reads values, so it waits for an accelerator.

        Source:
            Agrawal, Gollapudi, Halverson and Ieong, Diversifying search results, WSDM 2009, as P(c | q).

        Args:
            probabilities: [subtopic] or [query, subtopic], finite and >= 0.

        Raises:
            TypeError: ``probabilities`` is not a tensor of numbers.
            ValueError: the ranking has no subtopics, the shape is another, or a probability is negative or not finite.

        Example:
            >>> import torch, torchrank as tr
            >>> target = torch.tensor([[[1, 0], [1, 1], [0, 0]]])  # two subtopics of three candidates
            >>> ranking = tr.Ranking.from_scores(torch.tensor([[0.9, 0.8, 0.1]]), target)
            >>> tr.PIA(top_k=2).score(ranking.with_intents(torch.tensor([0.9, 0.1])))  # 0.9 * 2/2 + 0.1 * 1/2
            tensor([0.9500], dtype=torch.float64)
        """
        probabilities = check_tensor(probabilities, "probabilities")
        if self.subtopics is None:
            raise ValueError(
                "Expected a ranking with subtopics, got one without;"
                " make it by Ranking.from_scores with a target [query, candidate, subtopic]"
            )
        shape = [self.num_queries, self.num_subtopics]
        if list(probabilities.shape) not in (shape, shape[1:]):
            raise ValueError(f"Expected probabilities of shape {shape[1:]} or {shape}, got {list(probabilities.shape)}")
        intents = probabilities.detach().to(self.first)
        if not bool((intents.isfinite() & (intents >= 0)).all()):
            raise ValueError("Expected probabilities to be finite and >= 0, got others; correct them")
        return replace(self.joined, intents=intents.expand(shape)).with_names(self._names)

    def each_subtopic(self) -> Self:
        """This ranking once for each subtopic, graded for this subtopic alone: rows [query * subtopic].

        Grades without subtopics count as grades for a single subtopic.
        """
        return self if self.subtopics is None else self._of_subtopics(self.subtopics)

    @cached
    def _of_subtopics(self, subtopics: Tensor) -> Self:
        # Each query is repeated for all its subtopics, side by side.
        rows = torch.arange(self.num_queries, device=self.first.device).repeat_interleave(self.num_subtopics)
        grade = subtopics.transpose(1, 2).reshape(-1, subtopics.shape[1])
        return replace(replace(self.joined, subtopics=None, intents=None, queries=None).take(rows), grade=grade)

    @cached
    def head(self, top_k: int | None) -> Self:
        """This ranking with the entries that can be among the first ``top_k``, for sums over these ranks alone."""
        if top_k is None or not self.first.is_cpu or not self.first.numel():
            return self
        inside = (self.first <= top_k).any(0).nonzero()
        width = int(inside.amax()) + 1 if len(inside) else 1  # sums over tie groups need a column
        cut = {name: x[:, :width] for name in PER_ENTRY if (x := getattr(self, name)) is not None}
        return replace(self.joined, **cut)

    @cached
    def gains_by_subtopic(self, gain: Callable[[Tensor], Tensor]) -> Tensor:
        """float64 [query, subtopic, judged]: gains of all judged candidates for each subtopic, in any order."""
        if self.subtopics is None:
            return self.judged_gains(gain).unsqueeze(1)
        return gains_of(self.subtopics.transpose(1, 2).contiguous(), self.valid.unsqueeze(1), gain, self.first.dtype)
