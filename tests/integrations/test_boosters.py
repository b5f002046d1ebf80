"""Metrics for LightGBM, XGBoost and CatBoost, in their training, beside their own numbers."""

import numpy as np
import pytest
import torch

import torchrank as tr
from torchrank.integrations.boosters import EvalMetric, catboost


@pytest.fixture
def rows():
    """Features, grades from 0 to 3, sizes of groups, and a weight of each query. Trees of two leaves tie many rows.

    A query without a relevant row has weight 1: LightGBM and XGBoost add 1 for it, not its weight.
    """
    random = np.random.default_rng(0)
    sizes = random.integers(1, 12, 40)
    grades = random.integers(0, 4, sizes.sum()).astype(np.float32)
    features = np.stack([grades + random.normal(0, 1.5, len(grades)), random.normal(size=len(grades))], 1)
    graded = np.maximum.reduceat(grades, sizes.cumsum() - sizes) > 0
    weights = np.where(graded, random.integers(1, 4, len(sizes)), 1)
    assert not graded.all()
    return features.round(1), grades, sizes, weights.astype(np.float64)


def by_query(preds, grades, sizes, measure, weights=None):
    """The mean of the values of the queries that have one, each ranked alone."""
    metric, values = tr.parse(measure), []
    for scores, target in zip(*(np.split(x.copy(), sizes.cumsum()[:-1]) for x in (preds, grades))):
        values.append(metric(torch.tensor(scores[None]), torch.tensor(target[None])).item())
    scored = ~np.isnan(values)
    return np.average(np.array(values)[scored], weights=None if weights is None else weights[scored])


# ---- LightGBM --------------------------------------------------------------------------------------------------------


@pytest.fixture
def lightgbm_rounds(rows):
    """Trains with a feval or metrics of LightGBM, and returns the values of each round, and the booster."""
    lightgbm = pytest.importorskip("lightgbm")
    features, grades, sizes, weights = rows

    def train(feval=None, metric="None", weighted=False, **options):
        weight = np.repeat(weights, sizes) if weighted else None
        data, held = (lightgbm.Dataset(x, grades, group=sizes, weight=weight) for x in (features, features[:, ::-1]))
        settings = {"objective": "lambdarank", "metric": metric, "eval_at": [5], "num_leaves": 3, "verbosity": -1}
        found = {}
        callbacks = [lightgbm.record_evaluation(found), *options.pop("callbacks", [])]
        booster = lightgbm.train(settings, data, 6, valid_sets=[held], feval=feval, callbacks=callbacks, **options)
        return found.get("valid_0"), booster

    return train


@pytest.mark.parametrize("weighted", [False, True])
def test_the_preset_has_the_numbers_of_lightgbm_and_others_the_mean_over_the_groups(lightgbm_rounds, rows, weighted):
    features, grades, sizes, weights = rows
    metrics = [EvalMetric(tr.preset("lightgbm", 5), ties="rows"), EvalMetric("err@10, mr")]
    ours, booster = lightgbm_rounds(metrics, weighted=weighted)
    theirs, _ = lightgbm_rounds(metric=["ndcg", "map"], weighted=weighted)
    assert (theirs.keys(), ours.keys()) == ({"ndcg@5", "map@5"}, {"ndcg@5", "map@5", "err@10", "mr"})
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, atol=1e-6)
    preds = booster.predict(features[:, ::-1])
    for name in ("err@10", "mr"):
        assert ours[name][-1] == pytest.approx(by_query(preds, grades, sizes, name, weights if weighted else None))


def test_a_group_without_rows_is_no_query():
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    scores, labels, rows = np.array([0.9, 0.1, 0.8, 0.3]), [1.0, 0, 0, 1], np.zeros((4, 1))
    expected = (1 * 1.0 + 3 * 0.5) / 4
    data = lightgbm.Dataset(rows, labels, group=[2, 0, 2], weight=[1.0, 1, 3, 3], params={"verbosity": -1})
    assert EvalMetric("mrr")(scores, data.construct()) == [("mrr", expected, True)]
    matrix = xgboost.DMatrix(rows, labels, group=[2, 0, 2], weight=[1.0, 9, 3])
    assert EvalMetric("mrr")(scores, matrix) == [("mrr", expected)]


def test_lightgbm_keeps_the_round_of_the_lowest_mean_rank(lightgbm_rounds):
    import lightgbm

    ours, booster = lightgbm_rounds(EvalMetric("mr"), callbacks=[lightgbm.early_stopping(3, verbose=False)])
    assert booster.best_iteration == 1 + int(np.argmin(ours["mr"]))


@pytest.mark.parametrize("first_metric_only", [True, False])
def test_lightgbm_watches_the_first_metric_if_it_is_told_to(lightgbm_rounds, first_metric_only):
    import lightgbm

    stop = lightgbm.early_stopping(2, first_metric_only=first_metric_only, verbose=False)
    ours, booster = lightgbm_rounds(EvalMetric("err@10, recall"), callbacks=[stop])  # recall of all rows is constant
    assert np.argmax(ours["err@10"]) > 0
    assert booster.best_iteration == (1 + int(np.argmax(ours["err@10"])) if first_metric_only else 1)


def test_the_ranker_of_lightgbm_takes_it(rows):
    lightgbm = pytest.importorskip("lightgbm")
    features, grades, sizes, weights = rows
    ranker = lightgbm.LGBMRanker(n_estimators=3, num_leaves=3, verbosity=-1, n_jobs=1)
    held = {"eval_set": [(features[:, ::-1], grades)], "eval_group": [sizes]}
    held["eval_sample_weight"] = [np.repeat(weights, sizes)]
    ranker.fit(features, grades, group=sizes, eval_metric=EvalMetric("err@10"), **held)
    expected = by_query(ranker.predict(features[:, ::-1]), grades, sizes, "err@10", weights)
    assert ranker.evals_result_["valid_0"]["err@10"][-1] == pytest.approx(expected)


# ---- XGBoost ---------------------------------------------------------------------------------------------------------


def by_xgboost(rows, custom_metric=None, callbacks=(), weighted=True, **settings):
    xgboost = pytest.importorskip("xgboost")
    features, grades, sizes, weights = rows
    weight, found = (weights if weighted else None), {}
    data, held = (xgboost.DMatrix(x, grades, group=sizes, weight=weight) for x in (features, features[:, ::-1]))
    settings = {"objective": "rank:ndcg", "max_depth": 1, "nthread": 1, **settings}
    booster = xgboost.train(
        settings, data, 6, evals=[(held, "held")], custom_metric=custom_metric, callbacks=list(callbacks),
        evals_result=found, verbose_eval=False,
    )  # fmt: skip
    return found["held"], booster, booster.predict(held)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_preset_has_the_numbers_of_xgboost_in_each_round(rows, weighted):
    preset = {name: measure for name, measure in tr.preset("xgboost", 5).items() if "ndcg" in name}  # others are binary
    ours, *_ = by_xgboost(rows, EvalMetric(preset, "rows"), weighted=weighted, disable_default_eval_metric=1)
    theirs, *_ = by_xgboost(rows, weighted=weighted, eval_metric=["ndcg@5", "ndcg@5-"])
    assert len(ours) == len(theirs) == 2
    for found, expected in zip(ours.values(), theirs.values()):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("measure", ["mr", "err@10"])
def test_xgboost_keeps_the_best_round_in_either_direction(rows, measure):
    metric = EvalMetric(f"ndcg@5 {measure}".split())
    ours, booster, preds = by_xgboost(rows, metric, [metric.early_stopping(2, measure)], disable_default_eval_metric=1)
    best = {"mr": np.argmin, "err@10": np.argmax}[measure]
    assert booster.best_iteration == best(ours[measure])
    last = by_query(preds, rows[1], rows[2], measure, rows[3])
    assert ours[measure][-1] == pytest.approx(last, abs=1e-6)  # XGBoost keeps six decimals


def test_the_ranker_of_xgboost_is_refused_because_it_passes_single_queries(rows):
    xgboost = pytest.importorskip("xgboost")
    features, grades, sizes, _ = rows
    ranker = xgboost.XGBRanker(n_estimators=2, n_jobs=1, eval_metric=EvalMetric("err@10"))
    qid = np.repeat(np.arange(len(sizes)), sizes)
    with pytest.raises(TypeError, match=r"got ndarray; with XGBRanker use xgboost.train\(custom_metric="):
        ranker.fit(features, grades, qid=qid, eval_set=[(features, grades)], eval_qid=[qid], verbose=False)


# ---- CatBoost --------------------------------------------------------------------------------------------------------


def by_catboost(rows, metric, rounds=6, **settings):
    library = pytest.importorskip("catboost")
    features, grades, sizes, _ = rows
    ids = np.repeat(np.arange(len(sizes)), sizes)
    pools = [library.Pool(x, y, group_id=ids) for x, y in ((features, grades), (features[:, ::-1], grades[::-1]))]
    made = metric(pools)
    settings |= {"loss_function": "YetiRank", "depth": 1, "thread_count": 1, "random_seed": 0, "verbose": 0}
    model = library.CatBoost({**settings, "iterations": rounds, "eval_metric": made, "allow_writing_files": False})
    model.fit(pools[0], eval_set=pools[1])
    return model.get_evals_result(), model, model.predict(pools[1])


def test_catboost_has_the_mean_over_the_groups_of_each_pool(rows, recwarn):
    found, model, preds = by_catboost(rows, lambda pools: catboost("mr", *pools))
    assert set(found["learn"]) == {"mr"}
    assert model.get_best_iteration() == np.argmin(found["validation"]["mr"])
    assert not [warning for warning in recwarn if "optimize" in str(warning.message)]
    best = found["validation"]["mr"][model.get_best_iteration()]
    assert best == pytest.approx(by_query(preds, rows[1][::-1], rows[2], "mr"))
    assert found["learn"]["mr"][0] == pytest.approx(
        by_query(model.predict(rows[0], ntree_end=1), rows[1], rows[2], "mr")
    )


@pytest.mark.parametrize("name", ["NDCG:top=5", "MRR", "MAP:top=5"])
def test_the_preset_has_the_numbers_of_catboost_in_each_round(rows, name):
    measure = tr.preset("catboost", 5)[name]
    ours, *_ = by_catboost(rows, lambda pools: catboost(measure, *pools))
    theirs, *_ = by_catboost(rows, lambda pools: name)
    theirs = next(values for key, values in theirs["validation"].items() if key.startswith(name))
    np.testing.assert_allclose(ours["validation"][tr.parse(measure).label], theirs, atol=1e-6)


# ---- errors ----------------------------------------------------------------------------------------------------------


class Data:
    """A data set of LightGBM, in the methods that are called."""

    def __init__(self, group, label=(1.0, 0.0, 0.0, 2.0)):
        self.group, self.label = group, label

    def get_group(self):
        return self.group

    def get_label(self):
        return self.label

    def get_weight(self):
        return None

    def get_group_id_hash(self):
        return np.repeat(np.arange(len(self.group)), self.group)


def test_wrong_data_have_a_way_out():
    metric = EvalMetric("mrr")
    with pytest.raises(ValueError, match="got a data set without them; give the data set group="):
        metric(np.ones(4), Data(None))
    with pytest.raises(ValueError, match=r"got shape \[2, 2\]; train one output"):
        metric(np.ones((2, 2)), Data([4]))
    with pytest.raises(ValueError, match="Expected ties to be one of 'expected', 'rows', got 'row'"):
        EvalMetric("mrr", ties="row")
    with pytest.raises(ValueError, match="NaN"):
        metric(np.array([1, np.nan, 0, 0]), Data([4]))
    assert metric(np.arange(4.0), Data([4])) == [("mrr", 1.0, True)]  # nothing is left of what failed


def test_wrong_pools_have_a_way_out():
    with pytest.raises(ValueError, match="Expected one metric, got mrr, mr; CatBoost has one"):
        catboost("mrr, mr", Data([4]))
    with pytest.raises(ValueError, match="got none; CatBoost passes no groups"):
        catboost("mrr")
    with pytest.raises(ValueError, match="got one without; pass group_id="):
        catboost("mrr", Data([]))
    with pytest.raises(ValueError, match="got two with the same ones in other groups"):
        catboost("mrr", Data([4]), Data([2, 2]))
    with pytest.raises(ValueError, match=r"got others; pass all pools to boosters\.catboost"):
        catboost("mrr", Data([4])).evaluate((np.ones(4),), np.zeros(4), None)
