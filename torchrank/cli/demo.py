"""``torchrank demo``: a small encoder learns to find the images that show the same digit.

An example to copy from. A LightningModule needs a collection, and the last two lines of ``validation_step``.
"""

from __future__ import annotations

import logging
import time
import warnings
from typing import Any

import lightning as L  # noqa: N812
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from torchrank.collection.collection import RankingCollection
from torchrank.integrations.workers import UnpaddedSampler

MEASURES = ["ndcg@10", "map", "mrr", "precision@1,10", "recall@100", "rprecision", "auroc"]


# ---- data ----------------------------------------------------------------------------------------------------------


class Digits(L.LightningDataModule):
    """scikit-learn's 1797 images of digits, 8 x 8 pixels: 1000 for training, 797 held out for the search."""

    def __init__(self, seed: int = 0, batch_size: int = 64) -> None:
        super().__init__()
        digits = load_digits()
        images = torch.tensor(digits.data / digits.data.max(), dtype=torch.float32, device="cpu")
        labels = torch.tensor(digits.target, device="cpu")
        generator = torch.Generator().manual_seed(seed)
        train, held_out = torch.randperm(len(images), generator=generator, device="cpu").split([1000, 797])
        self.train = TensorDataset(images[train], labels[train])
        # Each held-out image comes with its own column in the matrix of scores.
        self.held_out = TensorDataset(images[held_out], labels[held_out], torch.arange(len(held_out), device="cpu"))
        self.seed, self.batch_size = seed, batch_size

    def _loader(self, data: TensorDataset, seed: int | None) -> DataLoader:
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        train = seed is not None  # in training, workers must keep step
        share = UnpaddedSampler(data, rank, world, shuffle=train, seed=seed or 0, drop_last=train)
        return DataLoader(data, max(2, self.batch_size // world), sampler=share, drop_last=train)

    def train_dataloader(self) -> DataLoader:
        return self._loader(self.train, self.seed)

    def val_dataloader(self) -> DataLoader:
        return self._loader(self.held_out, None)


# ---- model ---------------------------------------------------------------------------------------------------------


class Encoder(nn.Sequential):
    """Two linear layers, from images [image, pixel] to points on the unit sphere [image, dimension]."""

    def __init__(self, pixels: int = 64, dimensions: int = 8) -> None:
        super().__init__(nn.Linear(pixels, pixels), nn.ReLU(), nn.Linear(pixels, dimensions))

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.normalize(super().forward(images), dim=-1)


def contrastive_loss(points: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """Supervised contrastive loss (Khosla et al., NeurIPS 2020): find the images of the same digit in the batch."""
    itself = torch.eye(len(points), dtype=torch.bool, device=points.device)
    log_chance = (points @ points.T / temperature).masked_fill(itself, -torch.inf).log_softmax(-1)
    same = (labels[:, None] == labels) & ~itself
    return -log_chance[same].sum() / same.sum().clamp_min(1)


class DigitSearch(L.LightningModule):
    """Trains an encoder. In validation every held-out image ranks all other held-out images."""

    def __init__(self, encoder: nn.Module, learning_rate: float = 1e-3) -> None:
        super().__init__()
        self.encoder = encoder
        self.learning_rate = learning_rate
        self.suite = RankingCollection(MEASURES, prefix="val/")

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        # Join the batches of all workers, so that the loss does not depend on the number of workers.
        points, labels = self.all_gather((self.encoder(images), labels), sync_grads=True)
        return contrastive_loss(points.flatten(0, -2), labels.flatten())

    def on_validation_epoch_start(self) -> None:
        held_out = self.trainer.datamodule.held_out  # type: ignore[attr-defined]
        images, self.gallery_labels, _ = (x.to(self.device) for x in held_out.tensors)
        self.gallery = self.encoder(images)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        images, labels, columns = batch
        scores = self.encoder(images) @ self.gallery.T  # [query, candidate]
        same = labels[:, None] == self.gallery_labels
        itself = (torch.arange(len(images), device=self.device), columns)
        same[itself] = False

        # torchrank needs these two lines. Lightning computes, logs and resets the suite at the end of the epoch.
        self.suite.update(scores, same, exclude=itself)
        self.log_dict(self.suite)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.learning_rate)


# ---- report --------------------------------------------------------------------------------------------------------


class Table(L.Callback):
    """Callback that prints a row of numbers after each validation, and keeps it.

    Attributes:
        rows: a dict from keys to values for each validation so far.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        row = {key.removeprefix("val/"): value.item() for key, value in trainer.callback_metrics.items()}
        if trainer.is_global_zero:
            if not self.rows:
                print("epoch", *(key.rjust(7) for key in row), sep="  ")
            self._print(str(len(self.rows)), row, ".4f")
        self.rows.append(row)

    def print_gain(self) -> None:
        """Print the last row minus the first."""
        self._print("gain", {key: self.rows[-1][key] - first for key, first in self.rows[0].items()}, "+.4f")

    @staticmethod
    def _print(name: str, row: dict[str, float], form: str) -> None:
        cells = (format(value, form).rjust(max(len(key), 7)) for key, value in row.items())
        print(name.rjust(len("epoch")), *cells, sep="  ", flush=True)


def plot(rows: list[dict[str, float]], suite: RankingCollection) -> Any:
    """A figure with a curve over the epochs for each measure."""
    figure, axes = suite.plot(rows)
    axes.set(xlabel="epoch", ylabel="mean over the queries")
    axes.set_title("Each held-out digit searches for the others of its kind", loc="left", weight="bold")
    return figure


# ---- all together --------------------------------------------------------------------------------------------------


def quiet_trainer(epochs: int, workers: int = 1, **options: Any) -> L.Trainer:
    """A Trainer without output of its own: on GPUs if there is one for each worker, else on the CPU."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    return L.Trainer(
        max_epochs=epochs, devices=workers,
        accelerator="auto" if workers == 1 or torch.cuda.device_count() >= workers else "cpu",
        strategy="auto" if workers == 1 else "ddp", num_sanity_val_steps=0, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip


def run(epochs: int, workers: int, seed: int, plot_file: str | None, save: str | None) -> int:
    """Run the demo. Under DDP every worker runs it, and the first one prints."""
    start = time.perf_counter()
    L.seed_everything(seed, verbose=False)
    torch.set_num_threads(1)  # tensors are tiny: threads would wait for each other, on a busy machine for minutes
    data, model, table = Digits(seed), DigitSearch(Encoder()), Table()
    trainer = quiet_trainer(epochs, workers, callbacks=[table])
    if trainer.is_global_zero:
        task = f"Each of {len(data.held_out)} held-out digits searches the others for the same digit."
        print(f"{task} Epoch 0 is untrained.\n")

    trainer.validate(model, data, verbose=False)
    if epochs:
        trainer.fit(model, data)

    if trainer.is_global_zero:
        if epochs:
            table.print_gain()
        print(f"\n{epochs} epochs, workers: {workers}, {time.perf_counter() - start:.1f} s")
        if plot_file:
            plot(table.rows, model.suite).savefig(plot_file, dpi=150)
        if save:
            torch.save(model.encoder.state_dict(), save)
    return 0
