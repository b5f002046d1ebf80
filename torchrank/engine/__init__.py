"""Engines: rank canonical layouts, and return a :class:`Ranking`. No other code reads all scores."""

from torchrank.engine.rank_layout import rank, rank_whole

__all__ = ["rank", "rank_whole"]
