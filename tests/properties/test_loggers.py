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

IGNORED = ("UserWarning", "FutureWarning", "DeprecationWarning", "ResourceWarning")
pytestmark = [pytest.mark.xdist_group("processes"), *(pytest.mark.filterwarnings(f"ignore::{x}") for x in IGNORED)]

# Two that differ after the cutoff of one is dropped, a sign in a number, several parameters, and a value above 1.
NAMES = ["ndcg@10", "rbp(p=0.8)@5", "rbp(p=0.85)", "rbp(p=1e-05)", "ndcg(gain=exponential,log_base=2.5)@10", "mr"]
STYLES = ["label", "plain", "identifier"]
SCORES = torch.tensor([[0.1, 0.9, 0.5, 0.3], [0.4, 0.3, 0.2, 0.1]])
TARGET = torch.tensor([[0, 0, 2, 1], [1, 0, 0, 3]])


def build(style):
    return tr.RankingCollection(NAMES, prefix=f"{style}/", keys=style)


@functools.cache
def logged(*styles):
    """The keys of a collection of each style and its values, as Python's floats."""
    found = {}
    for suite in map(build, styles):
        suite.update(SCORES, TARGET)
        found |= {key: value.item() for key, value in suite.compute().items()}
    return found


# ---- loggers by themselves -------------------------------------------------------------------------------------------


def of_tensorboard(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {key: events.Scalars(key)[-1].value for key in events.Tags()["scalars"]}


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        for key, value in logged(*STYLES).items():
            writer.add_scalar(key, value, 1)
    assert of_tensorboard(tmp_path) == logged(*STYLES)


def test_mlflow_has_plain_keys_and_identifiers_and_refuses_labels(mlflow_store):
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(mlflow_store)
    run = client.create_run("0").info.run_id
    taken = logged("plain", "identifier")
    for key, value in taken.items():
        client.log_metric(run, key, value)
    for key in list(logged("label"))[:3]:
        with pytest.raises(mlflow.exceptions.MlflowException, match=r"[Ii]nvalid"):
            client.log_metric(run, key, 1.0)
    assert client.get_run(run).data.metrics == taken


def test_wandb(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=tmp_path, project="p")
    run.log(logged(*STYLES))
    run.finish()
    wandb.teardown()  # the process that writes the file may go on after the run
    (file,) = tmp_path.rglob("*.wandb")
    assert {key: value for key, value in of_wandb(file).items() if not key.startswith("_")} == logged(*STYLES)


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


def test_trackio(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio")
    trackio.init(project="p", name="run")
    trackio.log(logged(*STYLES))
    trackio.finish()
    from trackio.sqlite_storage import SQLiteStorage

    (found,) = SQLiteStorage.get_logs("p", "run")
    assert {key: value for key, value in found.items() if "/" in key} == logged(*STYLES)


# ---- loggers of Lightning --------------------------------------------------------------------------------------------


def fit(folder, loggers, callback):
    """Two epochs with a validation each; the scores of the second are the ones above."""
    lightning = pytest.importorskip("lightning")

    class Ranker(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.suites = torch.nn.ModuleList(map(build, STYLES))

        def training_step(self, batch, _):
            return self.weight**2

        def validation_step(self, batch, _):
            scores, target = batch
            for suite in self.suites:
                suite.update(scores if self.current_epoch else -scores, target)
                self.log_dict(suite)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(SCORES, TARGET), batch_size=1)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    more = {"logger": loggers, "callbacks": [callback], "default_root_dir": folder}
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=2, **more, **quiet)
    trainer.fit(Ranker(), loader, loader)
    return trainer


def test_lightning_logs_all_keys_and_chooses_a_checkpoint_by_a_plain_key_but_mlflow_drops_labels(
    mlflow_store, tmp_path
):
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    callbacks = pytest.importorskip("lightning.pytorch.callbacks")
    of_csv = loggers.CSVLogger(tmp_path)
    of_mlflow = loggers.MLFlowLogger("x", tracking_uri=mlflow_store, artifact_location=str(tmp_path))
    key, name = "plain/ndcg_at_10", "epoch={epoch}-{plain/ndcg_at_10:.4f}"
    best = callbacks.ModelCheckpoint(tmp_path, name, monitor=key, mode="max", auto_insert_metric_name=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = fit(tmp_path, [of_csv, of_mlflow], best)
    every = logged(*STYLES)
    *_, last = csv.DictReader(Path(of_csv.log_dir, "metrics.csv").read_text().splitlines())
    assert {key: float(value) for key, value in last.items() if "/" in key} == every

    assert set(every) <= set(trainer.callback_metrics)
    reverse = build("plain")
    reverse.update(-SCORES, TARGET)
    first, second = reverse.compute()[key].item(), every[key]
    assert best.best_model_score.item() == max(first, second)
    assert best.best_model_path == str(tmp_path / f"epoch={int(second > first)}-{max(first, second):.4f}.ckpt")

    found = pytest.importorskip("mlflow").MlflowClient(mlflow_store).get_run(of_mlflow.run_id).data.metrics
    dropped = [key for key in found if key.startswith("label/")]
    left = {key: value for key, value in found.items() if "/" in key and key not in dropped}
    assert left == logged("plain", "identifier")
    assert "label/rbpp0.85" in dropped  # the reason for plain keys
    assert len(dropped) < len(NAMES)
    said = [str(one.message) for one in caught if "Replacing " in str(one.message)]
    assert said
    assert all("Replacing label/" in one for one in said)
