"""A real Trainer: Lightning logs the value of the metric for the same scores in one process."""

import copy
import os
import pickle
import socket
import warnings
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import workers

import torchrank as tr

warnings.filterwarnings("ignore", category=DeprecationWarning)
lightning = pytest.importorskip("lightning")
from lightning.pytorch.strategies import DDPStrategy  # noqa: E402

pytestmark = [
    pytest.mark.xdist_group("lightning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PRECISIONS = ["32-true", "bf16-mixed", "16-true"]
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


def loader(rank, world, even=False):
    return torch.utils.data.DataLoader(Queries(), batch_size=4, sampler=Share(rank, world, even))


def build_trainer(folder, **kwargs):
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=folder,
        **kwargs,
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


@pytest.mark.parametrize("precision", PRECISIONS)
def test_one_process(precision, tmp_path):
    said, epochs, (logged, trained) = train(precision, 0, 1, tmp_path)
    dtype = {"bf16-mixed": torch.bfloat16, "bf16-true": torch.bfloat16, "16-true": torch.float16}
    assert epochs[0][1][0][0].dtype == dtype.get(precision, torch.float32)
    check(said, epochs)
    last = trained[len(trained) // 2 :]
    assert torch.equal(logged["train/mrr_epoch"], direct("mrr", last))
    assert torch.equal(logged["train/mrr_step"], direct("mrr", last[-1:]))


def worker(rank, folder, port):
    """The main function of one of two processes, set up as Lightning's own launcher does."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ |= {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    results = {}

    def ddp():
        return DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=60))

    for precision in TOGETHER:
        how = ("32-true", NAMES) if precision == "sums only" else (precision, [*NAMES, *ROWS])
        results[precision] = train(how[0], rank, 2, folder, how[1], strategy=ddp())
    try:
        trainer = build_trainer(folder, devices=2, strategy=ddp())
        trainer.validate(Ranker(broken=rank == 1), loader(rank, 2), verbose=False)
    except ValueError as error:
        results["broken"] = str(error)
    Path(folder, f"{rank}.result").write_bytes(pickle.dumps(results))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [("test_lightning", "worker", rank, str(folder), port) for rank in range(2)]
    processes = [workers.CONTEXT.Process(target=workers.call, args=args, daemon=True) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(150)
        process.kill()
    return [pickle.loads((folder / f"{rank}.result").read_bytes()) for rank in range(2)]


@pytest.mark.parametrize("precision", TOGETHER)
def test_two_processes(two, precision):
    names = NAMES if precision == "sums only" else (*NAMES, *ROWS)
    (said, first, (logged, trained)), (other, second, (too, trained_too)) = (results[precision] for results in two)
    assert said == other
    for (one, _, sums), (another, _, sums_too) in zip(first, second):
        assert one.keys() == another.keys()
        assert all(torch.equal(one[key], another[key]) for key in one)
        # one for self.log(metric), one for log_dict(suite), one for suite.compute(), one for single members
        assert sums == sums_too == 4
    check(said, [(values, [*batches, *more], 0) for (values, batches, _), (_, more, _) in zip(first, second)], names)
    half = len(trained) // 2
    expected = direct("mrr", [*trained[half:], *trained_too[half:]])
    assert torch.equal(logged["train/mrr_epoch"], expected)
    assert torch.equal(too["train/mrr_epoch"], expected)


def test_bad_values_on_one_worker_raise_on_both(two):
    messages = [results["broken"] for results in two]
    assert messages[0] == messages[1]
    assert "6 queries with NaN" in messages[0]


def test_a_checkpoint_in_mid_epoch(tmp_path):
    """Persistent states travel in Lightning's checkpoint, and a module loaded from it goes on where it was."""

    class Save(lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if index == 2:
                trainer.save_checkpoint(tmp_path / "mid.ckpt")

    def build():
        module = Ranker()
        module.train_mrr.persistent(True)
        return module

    module = build()
    build_trainer(tmp_path, devices=1, max_epochs=1, callbacks=[Save()]).fit(module, loader(0, 1))
    saved = torch.load(tmp_path / "mid.ckpt", weights_only=True)["state_dict"]
    twin = build()
    twin.load_state_dict(saved)
    assert torch.equal(twin.train_mrr.compute(), direct("mrr", module.trained[:3]))
    for arguments in module.trained[3:]:
        twin.train_mrr.update(*arguments)
    assert len(module.trained) == 6
    assert torch.equal(twin.train_mrr.compute(), direct("mrr", module.trained))
