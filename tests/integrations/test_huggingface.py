"""The callable for Hugging Face's Trainer: with objects that have the attributes of its own, and with Trainer itself.

Without transformers and accelerate, the tests with Trainer are skipped.
"""

import copy
import dataclasses
import importlib
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.distributed as dist

import torchrank as tr
from tests.support import huggingface_runs, workers
from tests.support.random_batches import MANY, MEASURES, many
from torchrank.integrations.huggingface import compute_metrics

NAMES = ["ndcg@5,10", "map", "mrr", "recall@3"]


class Prediction(NamedTuple):
    """The attributes of an EvalPrediction."""

    predictions: Any
    label_ids: Any
    inputs: Any = None


def drawn(queries=23, candidates=9, seed=0):
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, 6, (queries, candidates)).astype(np.float32)  # many ties
    return scores, draw.integers(0, 3, (queries, candidates))


def by_hand(*arguments, names=NAMES, **keywords):
    suite = tr.RankingCollection(names)
    suite.update(*arguments, **keywords)
    return {key: value.item() for key, value in suite.compute().items()}


def in_batches(call, *columns, size=5):
    """The last result of a call for each batch, as with ``batch_eval_metrics=True``."""
    starts = range(0, len(columns[0]), size)
    for start in starts:
        batch = Prediction(*(torch.as_tensor(column[start : start + size]) for column in columns))
        found = call(batch, compute_result=start == starts[-1])
        assert (found == {}) == (start != starts[-1])
    return found


def test_whole_predictions_and_batches_have_the_values_of_the_suite():
    scores, grades = drawn()
    expected = by_hand(torch.tensor(scores), torch.tensor(grades))
    call = compute_metrics(NAMES)
    assert call(Prediction(scores, grades)) == expected
    assert {type(value) for value in call(Prediction(scores, grades)).values()} == {float}
    assert in_batches(call, scores, grades) == pytest.approx(expected, rel=1e-6)
    assert in_batches(call, scores, grades) == pytest.approx(expected, rel=1e-6)  # nothing is left of the first one


def test_integrations_are_attributes_of_their_package():
    package = importlib.import_module("torchrank.integrations")
    assert package.huggingface is importlib.import_module("torchrank.integrations.huggingface")
    vars(package).pop("huggingface")
    assert package.huggingface.compute_metrics
    assert dir(package) == sorted(package.__all__)
    with pytest.raises(AttributeError, match=r"'torchrank\.integrations' has no attribute 'face'"):
        _ = package.face


def test_labels_of_one_column_and_lists_of_ids():
    scores, _ = drawn()
    labels = np.arange(len(scores)) % 9
    labels[3] = -100  # no query
    expected = by_hand(torch.tensor(scores), torch.tensor(labels))
    assert compute_metrics(NAMES)(Prediction(scores, labels)) == expected
    padded = np.full((len(scores), 2), -100)
    padded[:, 0] = labels = np.where(labels < 0, 0, labels)
    as_lists = lambda p: (p.predictions, list(p.label_ids))  # noqa: E731
    expected = by_hand(torch.tensor(scores), torch.tensor(labels))
    assert compute_metrics(NAMES, unpack=as_lists)(Prediction(scores, padded)) == expected
    ids = np.argsort(-scores, axis=1)[:, :5]
    found = compute_metrics("recall@5")(Prediction(ids, padded))
    expected = by_hand(torch.tensor(ids), torch.tensor(labels), names=["recall@5"])
    assert found == expected


def test_padding_is_no_candidate_and_a_query_of_padding_does_not_count():
    (wide, grades), (narrow, others) = drawn(6), drawn(8, candidates=4, seed=1)
    others[2] = -100
    suite = tr.RankingCollection(NAMES)
    suite.update(torch.tensor(wide), torch.tensor(grades))
    kept = np.arange(8) != 2
    suite.update(torch.tensor(narrow[kept]), torch.tensor(others[kept]))
    widen = [(0, 0), (0, 5)]
    scores = np.concatenate([wide - 200, np.pad(narrow - 200, widen, constant_values=-100)])  # padding scores best
    labels = np.concatenate([grades, np.pad(others, widen, constant_values=-100)])
    expected = {key: value.item() for key, value in suite.compute().items()}
    assert compute_metrics(NAMES)(Prediction(scores, labels)) == pytest.approx(expected, rel=1e-6)


def test_unpack_chooses_the_arguments():
    scores, grades = drawn()
    several = Prediction((np.zeros(3), scores), (grades, scores > 2), np.ones(3))
    expected = by_hand(torch.tensor(scores), torch.tensor(grades), mask=torch.tensor(scores > 2))
    as_dict = lambda p: {"preds": p.predictions[1], "target": p.label_ids[0], "mask": p.label_ids[1]}  # noqa: E731
    assert compute_metrics(NAMES, unpack=as_dict)(several) == expected
    pairs = lambda p: (p.predictions[1], tuple(np.nonzero(p.label_ids[0])))  # noqa: E731
    query, item = np.nonzero(grades)
    expected = by_hand(torch.tensor(scores), (torch.tensor(query), torch.tensor(item)))
    assert compute_metrics(NAMES, unpack=pairs)(several) == expected


def test_batches_have_what_trainer_gives_and_none_of_the_rest():
    scores, grades = drawn()
    seen = []
    call = compute_metrics("mrr", unpack=lambda p: seen.append(p) or (p.predictions, p.label_ids))
    call(Prediction([scores[:4], scores[4:]], [grades[:4], grades[4:]], ["a", "b"]))
    assert [(p.inputs, p.losses) for p in seen] == [("a", None), ("b", None)]
    seen.clear()
    call(Prediction([scores], [grades]))
    assert [(p.inputs, p.losses) for p in seen] == [(None, None)]


def test_the_suite_is_copied_and_its_keys_are_kept():
    scores, grades = drawn()
    suite = tr.RankingCollection(NAMES, prefix="val/", keys="plain")
    suite.update(torch.tensor(scores), torch.tensor(grades))
    before = copy.deepcopy(suite.compute())
    call = compute_metrics(suite)
    of_four = by_hand(torch.tensor(scores[:4]), torch.tensor(grades[:4]))
    assert call(Prediction(scores[:4], grades[:4])) == {f"val/{tr.plain(key)}": of_four[key] for key in of_four}
    assert call(Prediction(scores[:4], grades[:4]), compute_result=True) == call(Prediction(scores[:4], grades[:4]))
    assert suite.compute() == before
    assert compute_metrics(tr.NDCG(top_k=10))(Prediction(scores, grades)) == {
        "ndcg@10": pytest.approx(by_hand(*map(torch.tensor, (scores, grades)))["ndcg@10"])
    }
    sliced = compute_metrics(
        tr.Sliced("mrr", ["few", "many"]),
        unpack=lambda p: {"preds": p.predictions, "target": p.label_ids, "slices": (np.arange(23) > 4).astype(int)},
    )
    assert list(sliced(Prediction(scores, grades)))[:3] == ["mrr", "mrr/few", "mrr/many"]


def test_errors_name_the_way_out_and_leave_no_trace():
    scores, grades = drawn()
    call = compute_metrics(["mrr"])
    with pytest.raises(ValueError, match=r"Expected predictions to be one array, got 2; choose by .*unpack="):
        call(Prediction((scores, scores), grades))
    with pytest.raises(ValueError, match="Expected label_ids to be one array, got None; name the labels"):
        call(Prediction(scores, None))
    with pytest.raises(ValueError, match="Expected one number of each metric, got several of 'mrr"):
        compute_metrics(tr.MRR(aggregation="none"))(Prediction(scores, grades))
    expected = call(Prediction(scores, grades))
    with pytest.raises(ValueError, match=r"Expected label_ids to be one array, got 3; choose by"):
        call(Prediction(scores, [grades] * 3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.suite = tr.MRR()
    call(Prediction(scores[::-1].copy(), grades), compute_result=False)
    with pytest.raises(ValueError, match="Expected"):
        call(Prediction(scores, grades[:3]), compute_result=False)
    assert call(Prediction(scores, grades)) == expected


def test_nothing_is_synchronised(tmp_path, monkeypatch):
    scores, grades = drawn()
    suites = [tr.RankingCollection([*NAMES, "mae"]), tr.MRR(aggregation="median"), tr.Bootstrapped("mrr", replicates=3)]
    ids = {"query_ids": torch.arange(23)}
    unpacks = [None, None, lambda p: {"preds": p.predictions, "target": p.label_ids, **ids}]
    calls = [pickle.loads(pickle.dumps(compute_metrics(suite))) for suite in suites[:2]]
    calls.append(compute_metrics(suites[2], unpacks[2]))
    expected = [call(Prediction(scores, grades)) for call in calls]
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for name in ("all_reduce", "all_gather"):
            monkeypatch.setattr(dist, name, lambda *_, **__: pytest.fail("a collective"))
        assert [call(Prediction(scores, grades)) for call in calls] == expected
        suites[0].update(torch.tensor(scores), torch.tensor(grades))
        with pytest.raises(pytest.fail.Exception, match="a collective"):
            suites[0].compute()
    finally:
        dist.destroy_process_group()


# ---- Trainer and Accelerate themselves -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each of one process and of two finds."""
    for name in ("transformers", "accelerate"):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("huggingface")
    return workers.launched(folder, huggingface_runs.work, ["accelerate", "transformers.trainer"])


together = pytest.mark.xdist_group("processes")


@together
@pytest.mark.parametrize("world", [1, 2])
def test_trainer_has_the_values_of_the_suite(results, world):
    labels = {
        "one column": huggingface_runs.column(),
        "grades": huggingface_runs.grades(),
        "ragged grades": huggingface_runs.grades(ragged=True),
    }
    flags = labels["grades"] > 0
    of_pairs = {
        "all": by_hand(huggingface_runs.scores(), flags, names=["map", "mrr"]),
        "half": by_hand(huggingface_runs.scores()[:10], flags[:10], names=["map", "mrr"]),
    }
    for result in results[world]:
        for (kind, *_), (values, queries) in result["lists"].items():
            scores, target = huggingface_runs.scores(), labels[kind]
            keywords = {"mask": target != -100} if kind == "ragged grades" else {}
            expected = by_hand(scores, target, **keywords)
            assert queries == len(target)  # repeats of the last batch are cut, and the queries of others counted once
            assert {key: values[f"eval_{key}"] for key in expected} == pytest.approx(expected, rel=1e-5)
        assert len(result["lists"]) == 3 * 3
        for values in result["pairs"].values():
            for part, expected in of_pairs.items():
                assert {key: values[f"eval_{part}_{key}"] for key in expected} == pytest.approx(expected, rel=1e-5)
        assert len(result["pairs"]) == 2


@together
@pytest.mark.parametrize("world", [1, 2])
def test_accelerate_trains_with_even_batches_and_evaluates_each_query_once(results, world):
    found = [result["accelerate"] for result in results[world]]
    assert [batches for batches, *_ in found] == [6 // world] * world
    assert sum(batches for _, batches, *_ in found) == 6
    for _, _, values, scores in found:
        assert values.pop("numq") == huggingface_runs.QUERIES
        expected = by_hand(scores, huggingface_runs.column())
        assert {key: value.item() for key, value in values.items()} == pytest.approx(expected, rel=1e-5)


@together
@pytest.mark.parametrize("world", [1, 2])
def test_an_unpadded_sampler_shares_a_loader_unless_accelerate_shards_it_again_which_raises(results, world):
    expected = by_hand(*many(), names=MEASURES)
    for result in results[world]:
        (before, after), errors = result["accelerate, sampled"]
        assert before == after == pytest.approx(expected, rel=1e-6)
        assert after["numq"] == MANY
        for way, error in errors.items():
            assert (error is None) == (world == 1), way
            assert world == 1 or "Accelerate shards again; do not pass it to accelerator.prepare" in error


@together
@pytest.mark.parametrize("world", [1, 2])
def test_trainer_counts_each_query_once_and_refuses_an_unpadded_sampler(results, world):
    expected = by_hand(*many(), names=MEASURES)
    for result in results[world]:
        values = result["trainer, sampled"]
        assert len(values) == (2 if world == 1 else 1)
        for found in values:
            assert {key: found[f"eval_{key}"] for key in expected} == pytest.approx(expected, rel=1e-6)
