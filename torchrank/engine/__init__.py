"""The second room: the only code that reads all the scores. Canonical layouts in, :class:`Ranking` out."""

from torchrank.engine.door import rank, rank_parts, rank_whole

__all__ = ["rank", "rank_parts", "rank_whole"]
