"""NDCG, MAP, MRR, Recall@k, Hit Rate and 90 more ranking metrics for PyTorch.

Start here:

>>> import torch
>>> import torchrank as tr
>>> scores = torch.tensor([[0.2, 0.9, 0.4], [0.8, 0.1, 0.3]])  # a row for each query, a column for each candidate
>>> grades = torch.tensor([[0, 1, 0], [0, 0, 2]])  # 0 = not relevant
>>> metrics = tr.RankingCollection(["ndcg@10", "recall@2", "mrr"])
>>> metrics.update(scores, grades)  # once for each batch
>>> {name: round(value.item(), 4) for name, value in metrics.compute().items()}
{'ndcg@10': 0.8155, 'recall@2': 1.0, 'mrr': 0.75}
>>> tr.NDCG(top_k=10).score(scores, grades)  # the value of each query
tensor([1.0000, 0.6309], dtype=torch.float64)

Then:

- RankingCollection: several metrics, for which each batch is ranked once
- RankingMetric: the arguments that all metrics share, such as ties and empty_target_action
- Ranking: other inputs, such as embeddings, sampled negatives and tables: Ranking.from_embeddings, ...
- evaluate: files, dictionaries or data frames of judgments and runs
- compare: is one model better than another?
- torchrank.retrieval: the classes of torchmetrics.retrieval; torchrank.extend: all you need for a new measure

`help(tr.NDCG)` describes a measure; in a shell, `torchrank measures` lists all of them.
"""

import sys
from typing import TYPE_CHECKING

from torchrank.version import __version__ as __version__

if TYPE_CHECKING:
    from torchrank.metrics.public import *  # noqa: F403
    from torchrank.public import *  # noqa: F403


if not TYPE_CHECKING:
    # PyTorch takes seconds to import, which `torchrank --help` does not need: all names come with the first in use.

    def __getattr__(name: str):
        """Import all public names, and return one; raise for an unknown name, with the way to what it means."""
        if name != "__all__" and name.startswith("__"):  # asked for by tools
            raise AttributeError(f"module 'torchrank' has no attribute {name!r}")
        public = _public()
        if name in globals():
            return globals()[name]
        if name == "__all__":
            # `help(torchrank)` prints each class in __all__ with all methods of torch.nn.Module: 188,000 lines.
            if sys._getframe(1).f_globals.get("__name__") == "pydoc":
                raise AttributeError(name)
            return public.__all__
        raise AttributeError(f"module 'torchrank' has no attribute {name!r}; {public.way_to(name)}")

    def __dir__():
        return sorted(["__version__", *_public().__all__])

    def _public():
        from importlib import import_module

        public = import_module("torchrank.public")  # this form asks this module for no attribute
        globals().update({name: getattr(public, name) for name in public.__all__})
        return public
