"""A real Trainer: Lightning logs the value of the metric for the same scores in one process."""

import importlib
import importlib.util
import math
import re
import types

import pytest
import torch

import torchrank as tr
from tests.support import workers
from tests.support.optional import examples_of
from tests.support.random_batches import MANY, MEASURES, many
from torchrank.cli import main

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="the extra [lightning] is not installed"),
    pytest.mark.xdist_group("processes"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PRECISIONS = ["32-true", "bf16-mixed", "16-true"]
TOGETHER = ["bf16-true", "sums only"]  # in two processes


@pytest.fixture(scope="module")
def runs():
    """The module that imports Lightning, which takes seconds."""
    return importlib.import_module("tests.support.lightning_runs")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_one_process(runs, precision, tmp_path):
    said, epochs, (logged, trained) = runs.train(precision, 0, 1, tmp_path)
    dtype = {"bf16-mixed": torch.bfloat16, "bf16-true": torch.bfloat16, "16-true": torch.float16}
    assert epochs[0][1][0][0].dtype == dtype.get(precision, torch.float32)
    runs.check(said, epochs)
    last = trained[len(trained) // 2 :]
    assert torch.equal(logged["train/mrr_epoch"], runs.direct("mrr", last))
    assert torch.equal(logged["train/mrr_step"], runs.direct("mrr", last[-1:]))


@pytest.fixture(scope="module")
def two(runs, tmp_path_factory):
    return workers.launched(tmp_path_factory.mktemp("two"), runs.work, ["tests.support.lightning_runs"], worlds=(2,))[2]


@pytest.mark.parametrize("precision", TOGETHER)
def test_two_processes(runs, two, precision):
    names = runs.NAMES if precision == "sums only" else (*runs.NAMES, *runs.ROWS)
    (said, first, (logged, trained)), (other, second, (too, trained_too)) = (results[precision] for results in two)
    assert said == other
    for (one, _, sums), (another, _, sums_too) in zip(first, second):
        assert one.keys() == another.keys()
        assert all(torch.equal(one[key], another[key]) for key in one)
        # one for self.log(metric), one for each metric of log_dict(suite), one for suite.compute(), two for members
        assert sums == sums_too == 1 + len(names) + 1 + 2
    runs.check(
        said, [(values, [*batches, *more], 0) for (values, batches, _), (_, more, _) in zip(first, second)], names
    )
    half = len(trained) // 2
    expected = runs.direct("mrr", [*trained[half:], *trained_too[half:]])
    assert torch.equal(logged["train/mrr_epoch"], expected)
    assert torch.equal(too["train/mrr_epoch"], expected)


def of_all(runs, *whens):
    suite = tr.RankingCollection(MEASURES)
    suite.update(*many())
    return {f"{when}/{key}": value.item() for when in whens for key, value in suite.compute().items()}


def test_lightning_leaves_an_unpadded_sampler_alone_and_shards_the_training_loader(runs, two):
    (logged, trained, batches, predicted, warned), other = (results["sampled"] for results in two)
    expected = of_all(runs, "before", "after")
    assert expected["before/numq"] == MANY
    assert logged == other[0]
    assert {key: logged[key] for key in expected} == pytest.approx(expected, rel=1e-6)
    assert (batches, other[2]) == ([6, 6], [5, 5])
    assert sorted(predicted + other[3]) == list(range(MANY))
    assert len(trained) == len(other[1]) == 51  # one of them twice, so that the workers keep step
    assert set(trained + other[1]) == set(range(MANY))
    assert "replicates some samples" not in "".join(warned)


def test_slices_are_logged_on_two_workers_without_a_warning(runs, two):
    logged, *_, warned = two[0]["sampled"]
    assert "sync_dist" not in "".join(warned)
    sliced = tr.Sliced("ndcg@20", ["even", "odd"])
    sliced.update(*many(), slices=torch.arange(MANY) % 2)
    expected = {f"of {key}": value.item() for key, value in sliced.compute().items()}
    assert {key: logged[key] for key in expected} == pytest.approx(expected, rel=1e-6)


def test_fabric_leaves_an_unpadded_sampler_alone_and_shards_other_loaders(runs, two):
    (found, trained), other = (results["fabric"] for results in two)
    assert found == other[0] == pytest.approx(of_all(runs, "before", "after"), rel=1e-6)
    assert len(trained) == len(other[1]) == 51
    assert set(trained + other[1]) == set(range(MANY))


def test_two_workers_of_the_demo_train_as_one(two, capsys):
    printed = [output for status, output in (results["demo"] for results in two) if status == 0]
    assert main(["demo", "--epochs", "1"]) == 0
    alone, both = (
        [float(cell) for cell in re.findall(r"[-+]?\d\.\d{4}", text)] for text in (capsys.readouterr().out, printed[0])
    )
    assert printed[1] == ""
    assert len(alone) == 3 * 8  # before, after, and the gain
    assert both[:8] == alone[:8]
    assert both == pytest.approx(alone, abs=0.005)  # sums are rounded in another order


def test_bad_values_on_one_worker_raise_on_both(two):
    messages = [results["broken"] for results in two]
    assert messages[0] == messages[1]
    assert "6 queries with NaN" in messages[0]


def test_a_validation_ends_on_all_workers_when_the_sums_of_all_are_decided(two):
    (batches, value, comparison), other = (results["decided"] for results in two)
    assert (batches, value, comparison) == other
    assert batches == 4
    assert (comparison["rows"][0]["n"], comparison["rows"][0]["winner"]) == (32, "new")


def test_without_a_verdict_all_queries_count_and_no_worker_waits_for_one_with_fewer_batches(two):
    assert [results["undecided"] for results in two] == [(17, 0.0, None), (6, 0.0, None)]


@pytest.mark.parametrize(("gain", "margin", "batches"), [(4, None, 8), (0.01, 0.1, 4), (0, None, 23)])
def test_a_validation_ends_when_a_winner_or_equivalence_is_shown(runs, tmp_path, gain, margin, batches):
    module, stop = runs.Paired(gain), runs.StopWhenDecided(every=4, margin=margin)
    trainer = runs.build_trainer(tmp_path, devices=1, callbacks=[stop])
    for _ in range(2):  # the next validation begins anew
        module.batches = 0
        said = trainer.validate(module, runs.ranks_of_old(), verbose=False)[0]
        assert module.batches == batches
        assert said["val/mrr"] == pytest.approx(sum(range(4, 4 * batches + 1, 4)) / batches)  # the mean over batches
        assert module.paired.num_queries == 0
        assert (stop.comparison is not None) == (batches < 23)
    if stop.comparison is not None:
        assert stop.comparison.decided
        assert stop.comparison.rows[0].pair.n == 4 * batches
        assert said["mrr/new-old"] == pytest.approx(stop.comparison.rows[0].pair.difference)


def test_validations_of_a_training_end_early_and_the_sanity_check_does_not(runs, tmp_path):
    module, stop = runs.Paired(4), runs.StopWhenDecided(every=4)
    trainer = runs.build_trainer(tmp_path, devices=1, callbacks=[stop], max_epochs=2, num_sanity_val_steps=9)
    trainer.fit(module, runs.ranks_of_old(), [runs.ranks_of_old()] * 2)
    assert module.batches == 2 * 9 + 2 * 8
    assert trainer.global_step == 46
    assert stop.comparison.table["winner"] == ["new"]


def test_a_module_without_an_anytime_comparison_is_refused(runs, tmp_path):
    for module, name in ((runs.Paired(4), "other"), (runs.Paired(4, anytime=False), "paired")):
        trainer = runs.build_trainer(tmp_path, devices=1, callbacks=[runs.StopWhenDecided(name)])
        with pytest.raises(TypeError, match=f"Expected {name} of the module to be torchrank.Compared"):
            trainer.validate(module, runs.ranks_of_old(), verbose=False)
    for every in (0, None, 1.5):
        with pytest.raises(ValueError, match="every to be an integer >= 1"):
            runs.StopWhenDecided(every=every)
    assert runs.StopWhenDecided(every=1).comparison is None
    assert (runs.StopWhenDecided().name, runs.StopWhenDecided().every) == ("paired", 10)


@pytest.mark.parametrize("lengths", [[3, math.inf], [math.inf, math.inf], [3, 5]])
def test_several_workers_need_loaders_with_a_length_and_one_does_not(runs, lengths):
    for workers_of_all in (1, 2):
        strategy = types.SimpleNamespace(reduce=lambda batches, reduce_op: batches)
        trainer = types.SimpleNamespace(num_val_batches=lengths, world_size=workers_of_all, strategy=strategy)
        stop = runs.StopWhenDecided(every=4)
        if workers_of_all == 2 and math.inf in lengths:
            with pytest.raises(ValueError, match="Expected loaders with a length, got one without; pass limit_val"):
                stop.on_validation_start(trainer, runs.Paired(4))
        else:
            stop.on_validation_start(trainer, runs.Paired(4))
            assert stop.batches == lengths


def test_a_checkpoint_in_mid_epoch(runs, tmp_path):
    """Persistent states travel in Lightning's checkpoint, and a module loaded from it goes on where it was."""

    class Save(runs.lightning.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            if index == 2:
                trainer.save_checkpoint(tmp_path / "mid.ckpt")

    def build():
        module = runs.Ranker()
        module.train_mrr.persistent(True)
        return module

    module = build()
    runs.build_trainer(tmp_path, devices=1, max_epochs=1, callbacks=[Save()]).fit(module, runs.loader(0, 1))
    saved = torch.load(tmp_path / "mid.ckpt", weights_only=True)["state_dict"]
    twin = build()
    twin.load_state_dict(saved)
    assert torch.equal(twin.train_mrr.compute(), runs.direct("mrr", module.trained[:3]))
    for arguments in module.trained[3:]:
        twin.train_mrr.update(*arguments)
    assert len(module.trained) == 6
    assert torch.equal(twin.train_mrr.compute(), runs.direct("mrr", module.trained))


def test_a_checkpoint_has_the_value_in_its_file_name_and_no_folder():
    from lightning.pytorch.callbacks import ModelCheckpoint

    logged = {"epoch": 0, "val/ndcg@10": torch.tensor(0.517), "val_ndcg_at_10": torch.tensor(0.517)}
    of_value = ModelCheckpoint(filename="{epoch}-{val/ndcg@10:.4f}", auto_insert_metric_name=False)
    assert of_value.format_checkpoint_name(logged) == "0-0.5170.ckpt"
    of_key = ModelCheckpoint(filename="{epoch}-{val_ndcg_at_10:.4f}")
    assert of_key.format_checkpoint_name(logged) == "epoch=0-val_ndcg_at_10=0.5170.ckpt"
    assert list(tr.RankingCollection(["ndcg@10"], prefix="val_", keys="plain")) == ["val_ndcg_at_10"]


test_examples_print_the_output_shown = examples_of("torchrank.integrations.lightning")
