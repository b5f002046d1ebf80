"""Evaluations on Ray with two workers on this machine: the bits of one process, and what goes wrong."""

import importlib
import os

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.impressions import (
    COLUMNS,
    OF_NULLS,
    WRONG,
    assert_like_one_process,
    impressions,
    run_guide,
    shuffled,
    with_nulls,
)
from tests.support.optional import OptionalModule
from torchrank.integrations.arrow import Job
from torchrank.version import __version__

ray = OptionalModule("ray")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.needs("ray")]

MEASURES = "ndcg@10 map"


@pytest.fixture(scope="module")
def engine():
    from torchrank.integrations import ray as engine

    # By default workers wait for all other processes of the machine, and end when there is nothing to do for a second.
    workers = {"worker_niceness": 0, "kill_idle_workers_interval_ms": 0}
    settings = {"include_dashboard": False, "log_to_driver": False, "_system_config": workers}
    for attempt in range(5):
        try:
            ray.init(num_cpus=2, object_store_memory=2**28, **settings)
            break
        except Exception as error:  # Ray gives its processes 30 seconds to start
            if "timed out during startup" not in str(error) or attempt == 4:
                raise
            ray.shutdown()
    ray.data.DataContext.get_current().enable_progress_bars = False

    @ray.remote
    def ready():
        importlib.import_module("tests.support.torchmetrics_alone")

    ray.get([ready.remote() for _ in range(2)])
    yield engine
    ray.shutdown()


@pytest.fixture(scope="module")
def table():
    return impressions()


@pytest.fixture
def dataset(engine, table):
    rows = shuffled(table)
    return ray.data.from_arrow([rows[start : start + 300] for start in range(0, len(rows), 300)])


@pytest.fixture
def blocks(engine, monkeypatch):
    """The number of blocks that were evaluated, by call."""
    seen, found = [], engine._found

    def counted(states, measures):
        states = states.materialize()
        seen.append(states.count())
        return found(states, measures)

    monkeypatch.setattr(engine, "_found", counted)
    return seen


def test_the_guide_has_the_bits_of_one_process(engine, monkeypatch):
    monkeypatch.setattr(ray.module, "init", lambda **settings: None)
    monkeypatch.setattr(ray.module, "shutdown", lambda: None)
    whole = run_guide("")["whole"]
    guide = run_guide("Ray", on_spark=whole)
    found, scored = guide["on_ray"], guide["scored"]
    assert found.means == whole.means
    assert found.by().rows == whole.by().rows
    assert str(found.compare("old")) == str(whole.compare("old"))
    users = np.arange(1000)
    assert scored.num_queries == len(users)
    judgments, run = guide["load_towers"]()({"user": users, "bought": users})
    assert scored.means == tr.evaluate(judgments, run, [*scored.means]).means["run"]
    places = run["item"].view(1000, 100).eq(torch.tensor(users)[:, None]).double() / torch.arange(1, 101)
    assert scored.means["mrr@100"] == pytest.approx(places.sum(1).mean().item(), abs=1e-12)


@pytest.mark.filterwarnings("ignore:.*rows (with a grade )?have no")
def test_null_and_nan_scores_and_grades_are_those_of_one_process(engine):
    table = with_nulls()
    found = engine.evaluate(ray.data.from_arrow([table[:3], table[3:]]), OF_NULLS, partitions=3)
    assert_like_one_process(found, table)


def test_one_row_may_be_one_query_with_lists(engine):
    rows = [{"user": n, "items": [n, 10, 11], "scores": [0.1, 0.5, 0.3 * n], "labels": [1, 0, 1]} for n in range(9)]
    found = engine.evaluate(ray.data.from_items(rows), "map", partitions=2)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert found.means == tr.evaluate(columns, "map").means["run"]


def test_wrong_arguments_raise_before_ray_starts(engine, dataset):
    for wanted, call in WRONG.items():
        with pytest.raises(ValueError, match=wanted):
            engine.evaluate(dataset, MEASURES, **{**COLUMNS, **call})
    with pytest.raises(TypeError, match="Expected one dataset with scores and grades, got two; join judgments and run"):
        engine.evaluate(dataset, dataset)


def test_no_rows_are_a_state(engine, dataset):
    nobody = dataset.filter(lambda row: row["user"] == "")
    assert engine.evaluate(nobody, MEASURES, **COLUMNS, partitions=2).num_queries == 0


# Other tests sort. "hash_shuffle" of older versions takes the way of "shuffle_v2", with two more processes.
def test_a_worker_that_dies_is_run_again_and_changes_nothing(engine, dataset, table, blocks, tmp_path, monkeypatch):
    monkeypatch.setattr(ray.data.DataContext.get_current(), "shuffle_strategy", "shuffle_v2")
    dead = str(tmp_path / "dead")

    def itself(item):
        if item and not os.path.exists(dead):
            open(dead, "w").close()
            os._exit(1)
        return item

    found = engine.evaluate(dataset, MEASURES, **COLUMNS, parent=itself, partitions=3)
    assert os.path.exists(dead)
    assert found.num_queries == 60
    assert found.means == tr.evaluate(table, MEASURES, **COLUMNS).means
    assert blocks[0] > 2  # no shuffle gathers all rows in one block


def test_a_query_in_two_blocks_is_found(engine, dataset):
    job = Job("mrr", "user", {**COLUMNS, "score": "new"})
    states = dataset.map_batches(engine._states, fn_args=[job], batch_size=None, batch_format="pyarrow")  # not by user
    with pytest.raises(ValueError, match="Expected every query in one part"):
        engine.merged(states)


class Towers:
    """Scores of all items for users, by a model that each worker makes."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.users, self.items = (torch.randn(size, 8, generator=generator) for size in (40, 100))

    def __call__(self, batch):
        scores = self.users[batch["user"]] @ self.items.T
        best = scores.topk(20)
        run = {"user": np.repeat(batch["user"], 20), "item": best.indices.flatten(), "score": best.values.flatten()}
        judged = {"user": batch["user"], "item": batch["bought"], "grade": np.ones(len(batch["user"]))}
        return judged, run


def test_another_version_on_a_worker_is_an_error_with_both(engine, dataset, monkeypatch):
    users = np.arange(40)
    with monkeypatch.context() as older:
        older.setattr(importlib.import_module("torchrank.evaluation.partial"), "__version__", "0.0.1")
        (state,) = engine.Scorer(Towers, "mrr")({"user": users, "bought": 7 * users % 100})["state"]
    states = ray.data.from_items([{"state": state}])
    with pytest.raises(ValueError, match=f"Expected torchrank {__version__}, .* got 0.0.1 on a worker;"):
        engine.merged(states)
    job = Job("mrr", "user", {**COLUMNS, "score": "new"}, version="0.0.1")
    states = dataset.map_batches(engine._states, fn_args=[job], batch_size=None, batch_format="pyarrow")
    # The error of the worker, and not that of Ray, which has the same text after many lines.
    with pytest.raises(ValueError, match=f"^Expected torchrank 0.0.1, .* got {__version__} on a worker;") as raised:
        engine.merged(states)
    assert type(raised.value) is ValueError
    assert isinstance(raised.value.__cause__, ray.exceptions.RayTaskError)
    assert not states.context.raise_original_map_exception
