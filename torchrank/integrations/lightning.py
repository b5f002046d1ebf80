"""Lightning: end a validation when its verdict is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchrank.names.arguments import integer
from torchrank.statistics.comparison import Comparison
from torchrank.wrappers.compared import Compared

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

try:
    from lightning.pytorch import Callback
except ImportError:  # the other package of Lightning
    from pytorch_lightning import Callback  # type: ignore[assignment]


class StopWhenDecided(Callback):
    """A callback that ends a validation when a comparison is decided, on all workers together.

    The module has a :class:`torchrank.Compared` with ``anytime=True``, updates it in ``validation_step``, and resets it
    at the end of the epoch. The callback looks at the sums of all workers, so all of them stop after the same number
    of batches. Batches must come in random order. Without a verdict the validation runs to its end.

    Args:
        name: attribute of the module with the comparison.
        every: number of batches between two looks. A look is one all-reduce.
        options: of :meth:`torchrank.Compared.comparison`, e.g. ``margin=0.01``: then equivalence is a verdict, too.

    Attributes:
        comparison: the comparison that was decided, of the last validation; None if there was no verdict.

    Raises:
        TypeError: the module has no such comparison.
        ValueError: several workers have loaders without a length, so they cannot know when all of them look.

    Example:
        >>> import torchrank as tr
        >>> stop = tr.integrations.lightning.StopWhenDecided("paired", every=20, margin=0.01)
        >>> # lightning.Trainer(callbacks=[stop]).validate(module, loader); print(stop.comparison)
    """

    def __init__(self, name: str = "paired", every: int = 10, **options: Any) -> None:
        integer("every", every, least=1, or_none=False)
        self.name, self.every, self.options = name, every, options
        self.comparison: Comparison | None = None

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Learn how many batches all workers have. A worker that looked alone would wait for the others forever."""
        paired, self.comparison = getattr(pl_module, self.name, None), None
        if not (isinstance(paired, Compared) and paired.anytime):
            wanted = f"{self.name} of the module to be torchrank.Compared(..., anytime=True)"
            raise TypeError(f"Expected {wanted}, got {type(paired).__name__}; set self.{self.name} to it in __init__")
        batches = torch.tensor(trainer.num_val_batches, dtype=torch.float64, device=pl_module.device)
        if trainer.world_size > 1 and bool(batches.isinf().any()):
            raise ValueError("Expected loaders with a length, got one without; pass limit_val_batches to Trainer")
        self.batches = trainer.strategy.reduce(batches, reduce_op="min").tolist()

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Look, and end the loop in the way in which a loader without further batches ends it."""
        due = batch_idx and not batch_idx % self.every and batch_idx < self.batches[dataloader_idx]
        if due and not trainer.sanity_checking:
            comparison = getattr(pl_module, self.name).comparison(**self.options)
            if comparison.decided:
                self.comparison = comparison
                raise StopIteration
