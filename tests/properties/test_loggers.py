"""Loggers, each with its own reader: the keys and values of a collection arrive as they were logged.

A logger that is not installed is skipped. ``pip install lightning mlflow tensorboard trackio wandb`` installs all.
"""

import csv
import functools
import json
import struct
import warnings
from pathlib import Path

import pytest
import torch

import torchrank as tr

pytestmark = [
    pytest.mark.xdist_group("processes"),
    *(
        pytest.mark.filterwarnings(f"ignore::{kind}")
        for kind in ("UserWarning", "FutureWarning", "DeprecationWarning", "ResourceWarning")
    ),
]

# Two that differ after the cutoff of one is dropped, a sign in a number, several parameters, and a value above 1.
NAMES = ["ndcg@10", "rbp(p=0.8)@5", "rbp(p=0.85)", "rbp(p=1e-05)", "ndcg(gain=exponential,log_base=2.5)@10", "mr"]
STYLES = ["label", "plain", "identifier"]
SCORES = torch.tensor([[0.1, 0.9, 0.5, 0.3], [0.4, 0.3, 0.2, 0.1]])
TARGET = torch.tensor([[0, 0, 2, 1], [1, 0, 0, 3]])


def build(style):
    return tr.RankingCollection(NAMES, prefix="val/", keys=style)


@functools.cache
def logged(style):
    """The keys of a collection and its values, as Python's floats."""
    suite = build(style)
    suite.update(SCORES, TARGET)
    return {key: value.item() for key, value in suite.compute().items()}


@pytest.fixture(params=STYLES)
def style(request):
    return request.param


# ---- loggers by themselves -------------------------------------------------------------------------------------------


def of_tensorboard(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {key: events.Scalars(key)[-1].value for key in events.Tags()["scalars"]}


def test_tensorboard(style, tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        for key, value in logged(style).items():
            writer.add_scalar(key, value, 1)
    assert of_tensorboard(tmp_path) == logged(style)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The address of a database of MLflow."""
    pytest.importorskip("mlflow")
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'runs.db'}"


@pytest.mark.parametrize("style", ["plain", "identifier"])
def test_mlflow(style, store):
    client = pytest.importorskip("mlflow").MlflowClient(store)
    run = client.create_run("0").info.run_id
    for key, value in logged(style).items():
        client.log_metric(run, key, value)
    assert client.get_run(run).data.metrics == logged(style)


def test_mlflow_refuses_labels(store):
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(store)
    run = client.create_run("0").info.run_id
    for key in list(logged("label"))[:3]:
        with pytest.raises(mlflow.exceptions.MlflowException, match=r"[Ii]nvalid"):
            client.log_metric(run, key, 1.0)


def test_wandb(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    everything = {key: value for style in STYLES for key, value in logged(style).items()}
    run = wandb.init(mode="offline", dir=tmp_path, project="p")
    run.log(everything)
    run.finish()
    wandb.teardown()  # the process that writes the file may go on after the run
    (file,) = tmp_path.rglob("*.wandb")
    assert {key: value for key, value in of_wandb(file).items() if not key.startswith("_")} == everything


def of_wandb(file):
    """The history in a file of an offline run, shorter than a block of its format, LevelDB's log."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, found = file.read_bytes(), 7, {}  # after the header of the file
    assert len(data) < 32768
    while place < len(data):
        _, size, kind = struct.unpack_from("<IHB", data, place)
        assert kind == 1  # a whole record
        record = Record.FromString(data[place + 7 : place + 7 + size])
        found |= {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        place += 7 + size
    return found


def test_trackio(style, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio")
    trackio.init(project=style, name="run")
    trackio.log(logged(style))
    trackio.finish()
    from trackio.sqlite_storage import SQLiteStorage

    (found,) = SQLiteStorage.get_logs(style, "run")
    assert {key: value for key, value in found.items() if key in logged(style)} == logged(style)


# ---- loggers of Lightning --------------------------------------------------------------------------------------------


def fit(style, folder, logger, callbacks=()):
    """Two epochs with a validation each; the scores of the second are the ones above."""
    lightning = pytest.importorskip("lightning")

    class Ranker(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.suite = build(style)

        def training_step(self, batch, _):
            return self.weight**2

        def validation_step(self, batch, _):
            scores, target = batch
            self.suite.update(scores if self.current_epoch else -scores, target)
            self.log_dict(self.suite)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(SCORES, TARGET), batch_size=1)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    checkpoints = {"enable_checkpointing": bool(callbacks), "callbacks": list(callbacks)}
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=2, logger=logger, default_root_dir=folder, **checkpoints, **quiet
    )
    trainer.fit(Ranker(), loader, loader)
    return trainer


def test_lightning_csv(style, tmp_path):
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    logger = loggers.CSVLogger(tmp_path)
    fit(style, tmp_path, logger)
    *_, last = csv.DictReader(Path(logger.log_dir, "metrics.csv").read_text().splitlines())
    found = {key: float(value) for key, value in last.items() if key.startswith("val/")}
    assert found == logged(style)


def test_lightning_checkpoints_are_chosen_by_a_plain_key(tmp_path):
    callbacks = pytest.importorskip("lightning.pytorch.callbacks")
    name = "epoch={epoch}-{val/ndcg_at_10:.4f}"
    best = callbacks.ModelCheckpoint(
        tmp_path, name, monitor="val/ndcg_at_10", mode="max", auto_insert_metric_name=False
    )
    trainer = fit("plain", tmp_path, False, [best])
    assert set(logged("plain")) <= set(trainer.callback_metrics)
    last = logged("plain")["val/ndcg_at_10"]
    reverse = build("label")
    reverse.update(-SCORES, TARGET)
    first = reverse.compute()["val/ndcg@10"].item()
    assert best.best_model_score.item() == max(first, last)
    assert best.best_model_path == str(tmp_path / f"epoch={int(last > first)}-{max(first, last):.4f}.ckpt")


def test_lightning_mlflow(style, store, tmp_path):
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    client = pytest.importorskip("mlflow").MlflowClient(store)
    logger = loggers.MLFlowLogger(f"of {style}", tracking_uri=store, artifact_location=str(tmp_path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(style, tmp_path, logger)
    found = {key: value for key, value in client.get_run(logger.run_id).data.metrics.items() if key.startswith("val")}
    dropped = [str(one.message) for one in caught if "Replacing val/ndcg@10 with val/ndcg10" in str(one.message)]
    if style == "label":  # the reason for plain keys
        assert dropped
        assert "val/rbpp0.85" in found
        assert len(found) < len(NAMES)
    else:
        assert not dropped
        assert found == logged(style)
