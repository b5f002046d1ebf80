"""Metrics of single scores beside rankings: torchmetrics computes, and never sees padding."""

import copy
import pickle

import pytest
import torch
from torchmetrics import MeanAbsoluteError, MeanMetric, MeanSquaredError, MinMaxMetric, PearsonCorrCoef
from torchmetrics.classification import BinaryAccuracy, MulticlassAccuracy
from torchmetrics.retrieval import RetrievalMRR

import torchrank as tr
from torchrank.retrieval import RetrievalMRR as Drop

NAMES = ["ndcg@3", "mae", "rmse", "mse"]
NAN = float("nan")


def batch(seed, queries=6, items=7):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(queries, items, generator=generator)
    target = torch.randint(0, 4, (queries, items), generator=generator).float()
    return scores, target, torch.rand(queries, items, generator=generator) < 0.6


BATCHES = [batch(seed) for seed in range(3)]


def test_names_of_both_kinds_can_be_in_one_text():
    assert list(tr.RankingCollection("mae rmse, ndcg@3")) == ["mae", "rmse", "ndcg@3"]
    assert list(tr.RankingCollection("mae rmse")) == ["mae", "rmse"]


def members():
    return [*NAMES, MeanSquaredError(squared=False), PearsonCorrCoef()]


def hidden(preds, target, mask):
    """Masked candidates have nonsense for scores."""
    return preds.masked_fill(~mask, NAN), target.masked_fill(~mask, 10**6)


def expected(batches=BATCHES):
    preds, target = (torch.cat([b[i][b[2]] for b in batches]).double() for i in (0, 1))
    error = preds - target
    pearson = torch.corrcoef(torch.stack([preds, target]))[0, 1]
    mse = error.square().mean()
    return {"mae": error.abs().mean(), "rmse": mse.sqrt(), "mse": mse, "MeanSquaredError": mse.sqrt()} | {
        "PearsonCorrCoef": pearson
    }


def check(values, batches=BATCHES):
    for key, want in expected(batches).items():
        torch.testing.assert_close(values[key].double(), want, rtol=1e-5, atol=0)


@pytest.mark.parametrize("flat", [False, True])
def test_masked_scores_are_not_seen(flat):
    suite = tr.RankingCollection([*NAMES, RetrievalMRR()] if flat else members())
    reference = RetrievalMRR()
    for number, (preds, target, mask) in enumerate(BATCHES):
        arguments, keywords = hidden(preds, target, mask), {"mask": mask}
        if flat:
            target = (target > 2).long()  # as torchmetrics' retrieval wants it
            arguments = hidden(preds, target, mask)
            indexes = torch.arange(len(preds))[:, None].expand_as(preds) + 10 * number
            reference.update(preds[mask].sigmoid(), target[mask], indexes=indexes[mask])
            arguments = tuple(x.flatten() for x in (arguments[0].sigmoid(), arguments[1]))
            keywords = {"mask": mask.flatten(), "indexes": indexes.flatten()}
        suite.update(*arguments, **keywords)
    values = suite.compute()
    if flat:
        assert values["RetrievalMRR"] == reference.compute()
        assert values["mae"].isfinite()
    else:
        check(values)
    assert list(values)[:4] == ["ndcg@3", "mae", "rmse", "mse"]


def test_without_a_mask_all_is_seen_as_it_is():
    suite, alone = tr.RankingCollection(["mae", "mrr"]), MeanAbsoluteError()
    for preds, target, _ in BATCHES:
        suite.update(preds, target)
        alone.update(preds, target)
    assert suite.compute()["mae"] == alone.compute()


def test_forward_reset_clone_and_checkpoint():
    suite = tr.RankingCollection(members(), prefix="val/")
    for batch in BATCHES:
        values = suite(*hidden(*batch), mask=batch[2])
        check({key.removeprefix("val/"): value for key, value in values.items()}, [batch])
    for copied in (suite, suite.clone(), copy.deepcopy(suite), pickle.loads(pickle.dumps(suite))):
        check({key.removeprefix("val/"): value for key, value in copied.compute().items()})
    suite.persistent(True)
    twin = tr.RankingCollection(members(), prefix="val/")
    twin.persistent(True)
    twin.load_state_dict(suite.state_dict())
    assert twin.compute()["val/mae"] == suite.compute()["val/mae"]
    suite.reset()
    suite.update(*hidden(*BATCHES[0]), mask=BATCHES[0][2])
    check({key.removeprefix("val/"): value for key, value in suite.compute().items()}, BATCHES[:1])


def test_merge_state():
    suite, other = tr.RankingCollection(NAMES), tr.RankingCollection(NAMES)
    suite.update(*hidden(*BATCHES[0]), mask=BATCHES[0][2])
    other.update(*hidden(*BATCHES[1]), mask=BATCHES[1][2])
    suite.merge_state(other)
    values = suite.compute()
    assert values["mae"].item() == pytest.approx(expected(BATCHES[:2])["mae"].item(), rel=1e-5)


def test_nothing_but_padding():
    suite = tr.RankingCollection(["mae", "mrr"])
    preds, target, mask = BATCHES[0]
    suite.update(preds, target, mask=mask)
    before = suite.compute()["mae"]
    suite.update(preds, target, mask=mask & False)
    assert suite.compute()["mae"] == before


@pytest.mark.parametrize("method", ["update", "forward"])
@pytest.mark.parametrize(
    ("error", "target"),
    [
        (ValueError, torch.tensor([1, 2, 0, 0, 1, 3])),
        (ValueError, (torch.tensor([0]), torch.tensor([1]))),
        (ValueError, [torch.tensor([1])] * 6),
    ],
)
def test_layouts_without_a_value_for_each_score_are_refused(method, error, target):
    suite = tr.RankingCollection(["mrr", "mae"])
    with pytest.raises(error, match=r"Expected target of preds' shape \[6, 7\], a value for each.*MeanAbsoluteError"):
        getattr(suite, method)(BATCHES[0][0], target)
    assert suite["mrr"].num_queries == 0


def test_ids_are_no_scores():
    suite = tr.RankingCollection(["mrr", "mae"])
    with pytest.raises(TypeError, match="floating point scores for MeanAbsoluteError"):
        suite.update(torch.tensor([[1, 2]]), torch.tensor([[2, 3]]))


@pytest.mark.parametrize("wrong", [{"mask": torch.ones(6, dtype=torch.bool)}, {"mask": [True]}])
def test_a_mask_of_another_shape(wrong):
    with pytest.raises(ValueError, match="mask of preds' shape"):
        tr.RankingCollection(["mae"]).update(*BATCHES[0][:2], **wrong)


def test_others_get_the_arguments_that_they_take():
    """Class labels beside scores, wrappers, and metrics that know of masks themselves."""

    class Masked(MeanMetric):
        def update(self, preds, target, mask):
            super().update((preds == 0) & mask)

    label = BATCHES[0][1].argmax(-1)
    suite = tr.RankingCollection({"accuracy": MulticlassAccuracy(7, average="micro"), "mrr": "mrr"})
    suite.update(BATCHES[0][0], label)
    assert suite.compute()["accuracy"] == (BATCHES[0][0].argmax(-1) == label).float().mean()
    with pytest.raises(ValueError, match="with a mask for MulticlassAccuracy"):
        suite.update(BATCHES[0][0], label, mask=BATCHES[0][2])

    preds, target, mask = BATCHES[0]
    suite = tr.RankingCollection([Masked(), MinMaxMetric(tr.MRR())])
    suite.update(preds * 0, target, mask=mask)
    values = suite.compute()
    assert values["Masked"] == mask.float().mean()
    alone = tr.MRR()
    alone.update(preds * 0, target, mask=mask)
    assert values["MinMaxMetric_raw"] == alone.compute()


def test_names_are_case_insensitive_and_given_once():
    assert list(tr.RankingCollection(["MAE", "Rmse"]).keys()) == ["mae", "rmse"]
    assert list(tr.RankingCollection({"error": "mae", "mae": MeanAbsoluteError()}).keys()) == ["error", "mae"]
    with pytest.raises(ValueError, match="twice"):
        tr.RankingCollection(["mae", "mae"])


def test_targets_of_bool_are_0_and_1_to_metrics_of_single_scores():
    scores, target = torch.tensor([[0.25, 1.0]]), torch.tensor([[True, False]])
    suite = tr.RankingCollection(["map", "mae"])
    suite.update(scores, target)
    assert {name: value.item() for name, value in suite.compute().items()} == {"map": 0.5, "mae": 0.875}


# ---- arguments that others do not have -------------------------------------------------------------------------------

SCORES, TARGET = torch.tensor([[0.9, 0.8, 0.2, 0.1], [0.3, 0.6, 0.7, 0.4]]), torch.tensor([[0, 1, 0, 0], [1, 0, 0, 1]])


@pytest.mark.parametrize("listed", [False, True])
def test_excluded_candidates_are_hidden_as_by_a_mask_unless_they_are_relevant(listed):
    pairs = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 2, 3, 3])  # one twice; (0, 1), (1, 3) are relevant
    exclude = [pairs[1][pairs[0] == query] for query in range(2)] if listed else pairs
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])
    hidden = torch.tensor([[True, False, False, False], [False, False, True, False]])
    members = {"mrr": "mrr", "accuracy": BinaryAccuracy(), "error": "mae"}
    for given in (None, mask):
        both, alone = tr.RankingCollection(members).clone(), tr.RankingCollection(members).clone()
        both.update(SCORES, TARGET, exclude=exclude, mask=given)
        alone.update(SCORES, TARGET, mask=~hidden if given is None else ~hidden & given)
        assert both.compute() == alone.compute()
    assert alone.compute()["accuracy"] == pytest.approx(2 / 5)
    with pytest.raises(ValueError, match="a value for each score, with exclude for BinaryAccuracy"):
        both.update(SCORES, torch.tensor([1, 0]), exclude=exclude)
    assert both["mrr"].num_queries == 2


def test_a_batch_without_queries_excludes_nothing():
    suite, nothing = tr.RankingCollection("mrr, mae"), torch.zeros(0, dtype=torch.int64)
    suite.update(SCORES, TARGET)
    before = suite.compute()
    suite.update(SCORES[:0], TARGET[:0], exclude=(nothing, nothing))
    assert suite.compute() == before


def test_excluded_pairs_outside_of_the_batch_raise_in_compute_only():
    suite, target = tr.RankingCollection({"mrr": "mrr", "accuracy": BinaryAccuracy()}), torch.zeros_like(TARGET)
    target[0, 0] = 1
    suite.update(SCORES, target, exclude=(torch.tensor([0, 5]), torch.tensor([9, 0])))
    assert suite["accuracy"].compute() == BinaryAccuracy()(SCORES, target)
    with pytest.raises(ValueError, match="out of range"):
        suite.compute()


def test_rows_have_no_exclude_beside_a_metric_of_torchmetrics():
    suite, pairs = tr.RankingCollection({"error": MeanAbsoluteError()}), (torch.tensor([0]), torch.tensor([1]))
    with pytest.raises(ValueError, match="Expected no exclude for flat rows, got exclude; leave the rows out, or pass"):
        suite.update(SCORES.flatten(), TARGET.flatten(), exclude=pairs)
    suite.update(SCORES.flatten(), TARGET.flatten(), mask=torch.arange(8) != 1)


@pytest.mark.parametrize("metric", [MeanAbsoluteError, BinaryAccuracy, RetrievalMRR])
def test_weights_for_a_metric_that_takes_none_are_an_error(metric):
    suite = tr.RankingCollection({"mrr": "mrr", "other": metric()})
    indexes = torch.arange(2)[:, None].expand(2, 4)
    with pytest.raises(ValueError, match=f"Expected no weights for {metric.__name__}, whose update takes none"):
        suite.update(SCORES.flatten(), TARGET.flatten(), indexes=indexes.flatten(), weights=torch.tensor([1.0, 2.0]))
    assert suite["mrr"].num_queries == 0


def test_weights_reach_a_metric_that_takes_them():
    class Weighted(MeanMetric):
        def update(self, preds, target, weights=None):
            super().update(preds.amax(-1), 1.0 if weights is None else weights)

    suite = tr.RankingCollection({"mrr": "mrr", "best": Weighted()})
    suite.update(SCORES, TARGET, weights=torch.tensor([1.0, 3.0]))
    assert suite.compute()["best"].item() == pytest.approx((0.9 + 3 * 0.7) / 4)


@pytest.mark.parametrize("method", ["update", "forward"])
def test_calls_that_do_not_fit_a_metric_of_torchmetrics_say_so(method):
    for target in ((torch.tensor([0]), torch.tensor([1])), [torch.tensor([1]), torch.tensor([2])]):
        suite = tr.RankingCollection({"mrr": "mrr", "other": BinaryAccuracy()})
        with pytest.raises(ValueError, match=r"target to be a tensor for BinaryAccuracy, got a (tuple|list)"):
            getattr(suite, method)(SCORES, target)
    for metric in (RetrievalMRR(), Drop()):
        suite = tr.RankingCollection({"mrr": "mrr", "other": metric})
        with pytest.raises(ValueError, match="indexes for RetrievalMRR, got none; pass flat rows preds, target"):
            getattr(suite, method)(SCORES, TARGET)
        assert suite["mrr"].num_queries == 0
        rows = {"indexes": torch.arange(2).repeat_interleave(4)}
        getattr(suite, method)(SCORES.flatten(), TARGET.flatten(), **rows)
        torch.testing.assert_close(suite.compute()["other"], suite.compute()["mrr"])


def test_a_wrapper_of_our_metric_takes_the_targets_of_our_metric():
    suite = tr.RankingCollection({"mrr": "mrr", "range": MinMaxMetric(tr.MRR())})
    suite.update(SCORES, (torch.tensor([0, 1]), torch.tensor([1, 3])))
    assert suite.compute()["range_raw"] == suite.compute()["mrr"]
