"""A module with metrics and its training by Lightning. Its own file, because the import of Lightning takes seconds."""

import contextlib
import copy
import io
import os
import warnings
from datetime import timedelta

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy

import torchrank as tr
from tests.support import workers
from tests.support.random_batches import MANY, MEASURES, many, unpadded
from torchrank.cli import main
from torchrank.integrations.lightning import StopWhenDecided

TOGETHER = ["bf16-true", "sums only"]  # in two processes
NAMES = ["ndcg@5", "ndcg(gain=exponential)@10", "map(relevance_level=1.5)", "mr", "recall@1", "mrr(ties=pessimistic)"]
ROWS = ["mrr(aggregation=median)", "ndcg(aggregation=max)@3"]
ITEMS, QUERIES = 20, 23


class Queries(torch.utils.data.Dataset):
    """Features and graded targets of some queries; every other feature is coarse, so that there are ties."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.features = torch.randint(-2, 3, (QUERIES, 8), generator=generator).float()
        self.target = torch.randint(0, 4, (QUERIES, ITEMS), generator=generator)
        self.target[torch.rand(QUERIES, ITEMS, generator=generator) < 0.7] = 0
        self.target[3] = 0

    def __len__(self):
        return QUERIES

    def __getitem__(self, index):
        return self.features[index], self.target[index]


class Ranker(lightning.LightningModule):
    def __init__(self, names=(*NAMES, *ROWS), broken=False):
        super().__init__()
        torch.manual_seed(1)
        self.broken = broken
        self.layer = torch.nn.Linear(8, ITEMS)
        self.ndcg = tr.NDCG(top_k=10)
        self.train_mrr = tr.MRR()
        self.suite = tr.RankingCollection(list(names), prefix="val/")
        self.by_hand = tr.RankingCollection(list(names), prefix="end/")
        self.members = tr.RankingCollection({"a.b": "mrr@2", "update": "map"})
        self.seen, self.trained = [], []

    def training_step(self, batch, _):
        features, target = batch
        scores = self.layer(features)
        self.train_mrr(scores, target)
        self.log("train/mrr", self.train_mrr, on_step=True, on_epoch=True)
        self.trained.append((scores.detach().clone(), target))
        return torch.nn.functional.cross_entropy(scores, target.float().softmax(-1).to(scores.dtype))

    def validation_step(self, batch, _):
        features, target = batch
        scores = self.layer(features) * (float("nan") if self.broken else 1)
        self.ndcg.update(scores, target)
        self.log("val/ndcg@10", self.ndcg)
        self.suite.update(scores, target)
        self.log_dict(self.suite)
        self.by_hand.update(scores, target)
        self.members.update(scores, target)
        for key in ("update", "a.b"):
            self.log(f"member/{key}", self.members[key])
        if not self.trainer.sanity_checking:
            self.seen.append((scores.clone(), target))

    def on_validation_epoch_end(self):
        self.log_dict(self.by_hand.compute())
        self.by_hand.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.layer.parameters(), lr=0.5)


class Watch(lightning.Callback):
    """The logged values of each epoch, the scores it was logged for, and how many float64 reductions it took."""

    def __init__(self):
        self.epochs, self.sums = [], 0
        self.real = dist.all_reduce

    def on_validation_start(self, trainer, module):
        self.sums, module.seen = 0, []

        def all_reduce(tensor, *args, **kwargs):
            self.sums += tensor.dtype == torch.float64  # Lightning itself sends other things
            return self.real(tensor, *args, **kwargs)

        dist.all_reduce = all_reduce

    def on_validation_end(self, trainer, module):
        dist.all_reduce = self.real
        if not trainer.sanity_checking:
            logged = {key: value.clone() for key, value in trainer.callback_metrics.items() if "train" not in key}
            self.epochs.append((logged, copy.deepcopy(module.seen), self.sums))


class Share(torch.utils.data.Sampler):
    """A worker's part of the queries: contiguous, of different length, none of them twice."""

    def __init__(self, rank, world, even=False):
        cuts = {1: [0, QUERIES], 2: [0, 8, 16] if even else [0, 17, QUERIES]}[world]
        self.indices = range(cuts[rank], cuts[rank + 1])

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


class Paired(lightning.LightningModule):
    """Two systems, whose labels are at the ranks of a data set; they differ by a gain of ranks."""

    def __init__(self, gain, anytime=True):
        super().__init__()
        self.gain, self.batches = gain, 0
        self.layer = torch.nn.Linear(1, 1)
        self.paired = tr.Compared("mrr", ["old", "new"], anytime=anytime)
        self.other = None

    def training_step(self, batch, _):
        return self.layer(batch[0].float().unsqueeze(-1)).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.layer.parameters(), lr=0.1)

    def validation_step(self, batch, *_):
        self.batches += 1
        ranks = {"old": batch[0], "new": batch[0] - self.gain}
        self.paired.update({name: tr.Ranking.from_ranks(x, num_candidates=ITEMS) for name, x in ranks.items()})
        self.log("val/mrr", self.paired.num_queries, on_epoch=True)

    def on_validation_epoch_end(self):
        self.log_dict(self.paired.compute(), sync_dist=True)
        self.paired.reset()


class Sampled(lightning.LightningModule):
    """Validates 101 queries by each of two loaders, trains on them, and logs slices as the error of log_dict says."""

    def __init__(self, before):
        super().__init__()
        self.before, self.layer = before, torch.nn.Linear(1, 1)
        self.suites = torch.nn.ModuleList(tr.RankingCollection(MEASURES, prefix=when) for when in ("before/", "after/"))
        self.sliced = tr.Sliced(tr.RankingCollection("ndcg@20", prefix="of "), ["even", "odd"])
        self.trained, self.batches = [], [0, 0]

    def train_dataloader(self):
        return torch.utils.data.DataLoader(range(MANY), batch_size=10)

    def val_dataloader(self):
        return [self.before, unpadded()]

    def training_step(self, batch, _):
        self.trained += batch.tolist()
        return self.layer(batch.float().unsqueeze(-1)).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.layer.parameters(), lr=0.0)

    def validation_step(self, batch, _, dataloader_idx):
        self.batches[dataloader_idx] += 1
        suite = self.suites[dataloader_idx]
        suite.update(*many(batch))
        self.log_dict(suite, add_dataloader_idx=False)
        if dataloader_idx == 0:
            self.sliced.update(*many(batch), slices=batch % 2)

    def on_validation_epoch_end(self):
        try:
            self.log_dict(self.sliced)
        except AttributeError as error:
            way_out = str(error).split("on_validation_epoch_end: ")[1]
        for line in way_out.split("; "):
            eval(line, {"self": self, "metric": self.sliced})

    def predict_step(self, batch, _):
        return batch


def fit_sampled(before, folder, **kwargs):
    """What Lightning logs, trains on, validates and predicts with its own default for samplers, and its warnings."""
    module = Sampled(before)
    trainer = build_trainer(folder, max_epochs=1, num_sanity_val_steps=0, use_distributed_sampler=True, **kwargs)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module)
    logged = {key: value.item() for key, value in trainer.callback_metrics.items()}
    predicted = torch.cat(trainer.predict(module, before)).tolist()
    return logged, module.trained, module.batches, predicted, [str(warning.message) for warning in caught]


def fabric_sampled(before):
    """The values of loaders that Fabric has set up, and the queries of one for training."""
    strategy = lightning.fabric.strategies.DDPStrategy(process_group_backend="gloo")
    fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy=strategy)
    fabric.launch()
    found = {}
    for when, drawn in (("before", before), ("after", unpadded())):
        suite = tr.RankingCollection(MEASURES, prefix=f"{when}/")
        for batch in fabric.setup_dataloaders(drawn):
            suite.update(*many(batch))
        found |= {key: value.item() for key, value in suite.compute().items()}
    return found, torch.cat(list(fabric.setup_dataloaders(torch.utils.data.DataLoader(range(MANY), 10)))).tolist()


def ranks_of_old(rank=0, world=1):
    """A loader of 92 queries in batches of 4: on two workers of 17 batches and of 6."""
    ranks = 6 + torch.arange(92) % 7
    part = ranks if world == 1 else ranks.split([68, 24])[rank]
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(part), batch_size=4)


def loader(rank, world, even=False):
    return torch.utils.data.DataLoader(Queries(), batch_size=4, sampler=Share(rank, world, even))


def build_trainer(folder, **kwargs):
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **{"use_distributed_sampler": False, **kwargs},
    )


def train(precision, rank, world, folder, names=(*NAMES, *ROWS), **kwargs):
    """Validate, then fit for two epochs with a sanity check."""
    watch, module = Watch(), Ranker(names)
    epochs = {"max_epochs": 2, "num_sanity_val_steps": 2}
    trainer = build_trainer(folder, devices=world, precision=precision, callbacks=[watch], **epochs, **kwargs)
    said = trainer.validate(module, loader(rank, world), verbose=False)
    trainer.fit(module, loader(rank, world, even=True), loader(rank, world))
    epoch = {key: value for key, value in trainer.callback_metrics.items() if key.startswith("train")}
    return said[0], watch.epochs, (epoch, module.trained)


def direct(name, batches):
    return workers.fill(tr.parse(name, distributed_available_fn=lambda: False), batches).compute()


def check(said, epochs, names=(*NAMES, *ROWS)):
    keys = {f"val/{name}": name for name in names} | {f"end/{name}": name for name in names}
    keys |= {"val/ndcg@10": "ndcg@10", "member/a.b": "mrr@2", "member/update": "map"}
    assert len(epochs) == 3
    for logged, batches, _ in epochs:
        assert sum(len(scores) for scores, _ in batches) == QUERIES
        assert logged.keys() == keys.keys()
        for key, name in keys.items():
            assert logged[key].dtype == torch.float32
            assert torch.equal(logged[key], direct(name, batches)), key
    assert said == {key: value.item() for key, value in epochs[0][0].items()}
    assert any(not torch.equal(epochs[0][0][key], epochs[2][0][key]) for key in keys)  # it has learned something


def demo():
    """The exit status of ``torchrank demo`` on two workers, and what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = main(["demo", "--epochs", "1", "--workers", "2"])
    return status, printed.getvalue()


def work(rank, world, folder):
    """The results of one of two processes, set up as Lightning's own launcher does."""
    warnings.simplefilter("ignore")
    os.environ["NODE_RANK"] = "0"
    results, before = {}, unpadded()  # there is no process group yet

    def ddp():
        return DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=300))

    for precision in TOGETHER:
        how = ("32-true", NAMES) if precision == "sums only" else (precision, [*NAMES, *ROWS])
        results[precision] = train(how[0], rank, 2, folder, how[1], strategy=ddp())
    for name, gain in (("decided", 4), ("undecided", 0)):
        module, stop = Paired(gain), StopWhenDecided(every=2)
        trainer = build_trainer(folder, devices=2, strategy=ddp(), callbacks=[stop])
        said = trainer.validate(module, ranks_of_old(rank, 2), verbose=False)[0]
        results[name] = module.batches, said["mrr/new-old"], stop.comparison and stop.comparison.to_dict()
    results["sampled"] = fit_sampled(before, folder, devices=2, strategy=ddp())
    results["fabric"] = fabric_sampled(before)
    results["demo"] = demo()
    try:
        trainer = build_trainer(folder, devices=2, strategy=ddp())
        trainer.validate(Ranker(broken=rank == 1), loader(rank, 2), verbose=False)
    except ValueError as error:
        results["broken"] = str(error)
    return results
