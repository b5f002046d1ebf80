"""Ranking metrics for PyTorch: exact under ties, constant in memory, the same number on one worker or many."""

from typing import TYPE_CHECKING

from torchrank.collection.collection import RankingCollection
from torchrank.engine.compiled import use_compiled
from torchrank.metrics import public
from torchrank.metrics.public import *  # noqa: F403
from torchrank.names.nearest import did_you_mean
from torchrank.names.parse import parse
from torchrank.names.presets import preset
from torchrank.ranking.ranking import Ranking
from torchrank.wrappers.sampled_ranks import SampledRanks

__version__ = "0.1.0"

__all__ = ["Ranking", "RankingCollection", "SampledRanks", "parse", "preset", "use_compiled"]
if not TYPE_CHECKING:
    __all__ += public.__all__

    def __getattr__(name: str):
        """Raise for an unknown name, with the nearest known one."""
        hint = did_you_mean(name, __all__)
        if name.startswith("Retrieval"):
            hint = "; import it from torchrank.retrieval"
        raise AttributeError(f"module 'torchrank' has no attribute {name!r}{hint}")
