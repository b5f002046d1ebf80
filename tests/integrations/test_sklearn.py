"""Scorers in scikit-learn's cross-validation and searches, beside queries that are ranked one by one."""

import pickle

import numpy as np
import pytest
import torch

import torchrank as tr
from tests.support.optional import OptionalModule, examples_of, pandas

sklearn = OptionalModule("sklearn")
linear_model, model_selection = OptionalModule("sklearn.linear_model"), OptionalModule("sklearn.model_selection")
integration = OptionalModule("torchrank.integrations.sklearn")


@pytest.fixture(autouse=True)
def routed():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def rows():
    """Features that tie rows, grades, and queries of several lengths whose rows are not together."""
    random = np.random.default_rng(0)
    query = random.integers(0, 40, 300)
    features = random.normal(size=(300, 3)).round(0)
    grades = (features[:, 0] + random.normal(size=300) > 0).astype(int) + (features[:, 1] > 1)
    return features, grades, query


def one_by_one(name, scores, grades, queries):
    """The mean of the values of the queries, each ranked alone."""
    values = []
    for query in np.unique(queries):
        inside = queries == query
        values.append(tr.parse(name).score(*(torch.tensor(x[inside])[None] for x in (scores, grades))).item())
    return np.nanmean(values)


def by_hand(name, model, rows, splits=5):
    """The value of each fold."""
    features, grades, query = rows
    values = []
    for train, test in model_selection.GroupKFold(splits).split(features, grades, query):
        model.fit(features[train], grades[train])
        score = getattr(model, "decision_function", model.predict)
        values.append(one_by_one(name, score(features[test]), grades[test], query[test]))
    return values


def test_folds_have_the_values_of_queries_ranked_one_by_one(rows):
    features, grades, query = rows
    given = {"numbers": query, "texts": np.array([f"q{n}" for n in query]), "list": query.tolist()}
    given["pandas"] = pandas.Series(query, index=np.arange(300)[::-1])
    scoring = {name: integration.scorer(name) for name in ("ndcg@5", "mr")}
    wanted = {name: by_hand(name, linear_model.Ridge(), rows) for name in scoring}
    for kind, qid in given.items():
        data = (pandas.DataFrame(features), pandas.Series(grades)) if kind == "pandas" else (features, grades)
        found = model_selection.cross_validate(
            linear_model.Ridge(), *data, cv=model_selection.GroupKFold(5), scoring=scoring, error_score="raise",
            params={"qid": qid, "groups": query},
        )  # fmt: skip
        assert found["test_ndcg@5"].tolist() == pytest.approx(wanted["ndcg@5"], rel=1e-6), kind
        assert (-found["test_mr"]).tolist() == pytest.approx(wanted["mr"], rel=1e-6), kind


def test_classifiers_are_ranked_by_their_scores_not_by_their_classes(rows):
    features, grades, query = rows
    model, folds = linear_model.LogisticRegression(), model_selection.GroupKFold(5)
    found = model_selection.cross_val_score(
        model, features, grades > 0, cv=folds, scoring=integration.scorer("mrr", qid="groups"), params={"groups": query}
    )
    assert found.tolist() == pytest.approx(by_hand("mrr", model, (features, grades > 0, query)), rel=1e-6)
    with pytest.raises(ValueError, match=r"got shape \[.*, 3\]; pass response_method='predict'"):
        integration.scorer("mrr")(model.fit(features, grades), features, grades, qid=query)
    integration.scorer("mrr", response_method="predict")(model, features, grades, qid=query)


def test_a_search_chooses_by_the_scorer_and_scores_with_it(rows):
    features, grades, query = rows
    scorer, folds = integration.scorer("ndcg@3"), model_selection.GroupKFold(3)
    search = model_selection.GridSearchCV(
        linear_model.Ridge(), {"alpha": [0.1, 1e5]}, scoring=scorer, cv=folds, error_score="raise"
    )
    search.fit(features, grades, qid=query, groups=query)
    want = [np.mean(by_hand("ndcg@3", linear_model.Ridge(alpha=alpha), rows, 3)) for alpha in (0.1, 1e5)]
    assert search.cv_results_["mean_test_score"].tolist() == pytest.approx(want, rel=1e-6)
    scores = search.predict(features)
    assert search.score(features, grades, qid=query) == pytest.approx(one_by_one("ndcg@3", scores, grades, query))


def test_wrong_calls_say_what_is_missing(rows):
    features, grades, query = rows
    model = linear_model.Ridge().fit(features, grades)
    for params, message in (
        ({}, r"got none; pass params=\{'qid': qid\} to cross_validate"),
        ({"qid": query[:-1]}, r"one qid for each of \d+ rows of the fold, got shape \[299\]; pass as many"),
    ):
        with pytest.raises(ValueError, match=message):
            model_selection.cross_validate(
                model, features, grades, cv=model_selection.GroupKFold(5), scoring=integration.scorer("mrr"),
                params={"groups": query, **params}, error_score="raise",
            )  # fmt: skip
    model, scorer = linear_model.Ridge().fit([[1], [2]], [0, 1]), integration.scorer("mrr")
    for missing in ([1, None], ["a", None], [1.0, float("nan")], pandas.array([1, None], "Int64")):
        with pytest.raises(ValueError, match="Expected a qid for each row, got missing ones; leave these rows out"):
            scorer(model, [[1], [2]], [0, 1], qid=missing)
    assert scorer(model, [[1], [2]], np.array([0, 1], dtype=object), qid=["a", 1]) == 0.5
    with pytest.raises(ValueError, match="Expected one metric, got mrr, ndcg@3; pass scoring="):
        integration.scorer("mrr, ndcg@3")


def test_a_scorer_is_made_without_routing_which_scikit_learn_then_asks_for(rows):
    features, grades, query = rows
    with sklearn.config_context(enable_metadata_routing=False):
        scorer = integration.scorer("mrr")
        with pytest.raises(ValueError, match="enable_metadata_routing=True"):
            scorer(linear_model.Ridge().fit(features, grades), features, grades, qid=query)
    copied = pickle.loads(pickle.dumps(scorer))
    model = linear_model.Ridge().fit(features, grades)
    assert copied(model, features, grades, qid=query) == scorer(model, features, grades, qid=query)
    assert "response_method" in repr(scorer)


test_examples_print_the_output_shown = examples_of("torchrank.integrations.sklearn")
