"""Statistics in a real Trainer: what a module logs at the end of an epoch is the value in one process without it."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torchrank as tr

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.filterwarnings("ignore")]

SUITE = ["ndcg@5", "mrr", "hitrate@1"]
QUERIES = 23


def queries():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 9, (QUERIES, 12), generator=generator).float()
    grades = torch.randint(0, 3, scores.shape, generator=generator) * (
        torch.rand(scores.shape, generator=generator) < 0.4
    )
    return scores, grades, torch.arange(QUERIES) % 2, torch.randperm(QUERIES, generator=generator)


def module_of(lightning):
    """A module that logs statistics; Lightning is imported when it is used, because that takes seconds."""

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.suite = tr.RankingCollection(SUITE, prefix="suite/")
            self.sliced = tr.Sliced(tr.RankingCollection(SUITE, prefix="sliced/"), ["new", "old"])
            self.booted = tr.Bootstrapped(tr.RankingCollection(SUITE, prefix="booted/"), replicates=50)
            self.kept = tr.PerQuery(tr.RankingCollection(SUITE, prefix="kept/"))
            self.summaries = []

        def validation_step(self, batch, _):
            scores, grades, slices, ids = batch
            self.suite.update(scores, grades)
            self.log_dict(self.suite)
            self.sliced.update(scores, grades, slices=slices)
            self.booted.update(scores, grades, query_ids=ids)
            self.kept.update(scores, grades, query_ids=ids)

        def on_validation_epoch_end(self):
            self.summaries.append(self.suite.summary())
            self.log_dict(self.sliced.compute(), sync_dist=True)
            self.log_dict(self.booted.compute(), sync_dist=True)
            self.log_dict(self.kept.compute().compute(), sync_dist=True)
            for metric in (self.sliced, self.booted, self.kept):
                metric.reset()

    return Module()


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """The module and its logged values, after a second validation: the first leaves no trace."""
    lightning = pytest.importorskip("lightning")
    module = module_of(lightning)
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path_factory.mktemp("statistics"),
    )
    loader = DataLoader(TensorDataset(*queries()), 4, sampler=tr.UnpaddedSampler(QUERIES))
    trainer.validate(module, loader, verbose=False)
    return module, trainer.validate(module, loader, verbose=False)[0]


def test_logged_slices_bootstraps_and_tables_are_those_of_one_update(validated):
    _, logged = validated
    scores, grades, slices, ids = queries()
    sliced, booted, kept = tr.Sliced(SUITE, ["new", "old"]), tr.Bootstrapped(SUITE, replicates=50), tr.PerQuery(SUITE)
    sliced.update(scores, grades, slices=slices)
    booted.update(scores, grades, query_ids=ids)
    kept.update(scores, grades, query_ids=ids)
    want = {f"sliced/{key}": value.item() for key, value in sliced.compute().items()}
    want |= {f"booted/{key}": value.item() for key, value in booted.compute().items()}
    want |= {f"kept/{key}": value.item() for key, value in kept.compute().compute().items()}
    assert {key: value for key, value in logged.items() if not key.startswith("suite/")} == pytest.approx(
        want, rel=1e-6
    )


def test_a_summary_at_the_end_of_an_epoch_has_the_logged_values(validated):
    module, logged = validated
    first, second = module.summaries
    assert first == second  # the suite was reset in between
    assert second["queries"] == [QUERIES] * 3
    assert dict(zip(second["measure"], second["value"])) == pytest.approx(
        {key: value for key, value in logged.items() if key.startswith("suite/")}, rel=1e-6
    )
